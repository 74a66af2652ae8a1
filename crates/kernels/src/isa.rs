//! Which instruction set runs a kernel. Owns detection and the proof tokens; knows no kernel.

use std::sync::OnceLock;

/// An instruction set that kernels exist for. Every value proves that this CPU has it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Isa {
    /// Portable code, the truth that the others are tested against.
    Scalar,
    /// x86-64 with AVX2, FMA and F16C (every x86 server and desktop since 2013 to 2015).
    #[cfg(target_arch = "x86_64")]
    Avx2(Avx2),
    /// x86-64 with AVX-512 F, BW, DQ, VL, VBMI and VNNI (Ice Lake, Sapphire Rapids, Zen 4 and later).
    #[cfg(target_arch = "x86_64")]
    Avx512(Avx512),
    /// 64-bit ARM with the dot product instructions (ARMv8.2 and later: Cortex-A55 and A76, Neoverse, Apple).
    #[cfg(target_arch = "aarch64")]
    Neon(Neon),
    /// The same with the 8-bit matrix products (ARMv8.6 and later: Cortex-A510, Neoverse V1, Apple M2).
    #[cfg(target_arch = "aarch64")]
    NeonI8mm(NeonI8mm),
}

/// Proof that the CPU has AVX2, FMA and F16C: only [`Avx2::new`] makes one.
#[cfg(target_arch = "x86_64")]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Avx2(());

#[cfg(target_arch = "x86_64")]
impl Avx2 {
    pub fn new() -> Option<Avx2> {
        let there = std::is_x86_feature_detected!("avx2")
            && std::is_x86_feature_detected!("fma")
            && std::is_x86_feature_detected!("f16c");
        there.then_some(Avx2(()))
    }
}

/// Proof that the CPU has what [`Isa::Avx512`] names and what [`Avx2`] proves: only [`Avx512::new`]
/// makes one.
#[cfg(target_arch = "x86_64")]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Avx512(Avx2);

#[cfg(target_arch = "x86_64")]
impl Avx512 {
    pub fn new() -> Option<Avx512> {
        let there = std::is_x86_feature_detected!("avx512f")
            && std::is_x86_feature_detected!("avx512bw")
            && std::is_x86_feature_detected!("avx512dq")
            && std::is_x86_feature_detected!("avx512vl")
            && std::is_x86_feature_detected!("avx512vbmi")
            && std::is_x86_feature_detected!("avx512vnni");
        Avx2::new().filter(|_| there).map(Avx512)
    }

    pub fn avx2(self) -> Avx2 {
        self.0
    }
}

/// Proof that the CPU has the dot product instructions: only [`Neon::new`] makes one. NEON itself needs no
/// proof: it belongs to every CPU that this is compiled for.
#[cfg(target_arch = "aarch64")]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Neon(());

#[cfg(target_arch = "aarch64")]
impl Neon {
    pub fn new() -> Option<Neon> {
        std::arch::is_aarch64_feature_detected!("dotprod").then_some(Neon(()))
    }
}

/// Proof that the CPU has the 8-bit matrix products and what [`Neon`] proves: only [`NeonI8mm::new`] makes
/// one.
#[cfg(target_arch = "aarch64")]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NeonI8mm(Neon);

#[cfg(target_arch = "aarch64")]
impl NeonI8mm {
    pub fn new() -> Option<NeonI8mm> {
        let there = std::arch::is_aarch64_feature_detected!("i8mm");
        Neon::new().filter(|_| there).map(NeonI8mm)
    }

    pub fn neon(self) -> Neon {
        self.0
    }
}

/// The environment variable that names the instruction set to use, instead of the best one.
const VARIABLE: &str = "ADIT_ISA";

impl Isa {
    /// The fastest one that this CPU has, or the one that `ADIT_ISA` names if this CPU has it.
    pub fn best() -> Isa {
        static BEST: OnceLock<Isa> = OnceLock::new();
        *BEST.get_or_init(|| Isa::from_environment().ok().flatten().unwrap_or(Isa::detect()))
    }

    /// What the environment variable `ADIT_ISA` asks for; an error says why this machine cannot do it.
    pub fn from_environment() -> Result<Option<Isa>, String> {
        let Some(name) = std::env::var_os(VARIABLE) else { return Ok(None) };
        let found = Isa::named(&name.to_string_lossy());
        found.map(Some).map_err(|known| format!("{VARIABLE} is {name:?}; {known}"))
    }

    /// The one of this name; an error says which this CPU has.
    pub fn named(name: &str) -> Result<Isa, String> {
        let all = Isa::all();
        let names = || all.iter().map(|isa| isa.name()).collect::<Vec<_>>().join(", ");
        all.iter()
            .copied()
            .find(|isa| isa.name() == name)
            .ok_or_else(|| format!("this machine has {}", names()))
    }

    fn detect() -> Isa {
        *Isa::all().last().expect("the portable one is always there")
    }

    /// Every one that this CPU has, slowest first, for tests and tables.
    pub fn all() -> Vec<Isa> {
        [
            Some(Isa::Scalar),
            #[cfg(target_arch = "x86_64")]
            Avx2::new().map(Isa::Avx2),
            #[cfg(target_arch = "x86_64")]
            Avx512::new().map(Isa::Avx512),
            #[cfg(target_arch = "aarch64")]
            Neon::new().map(Isa::Neon),
            #[cfg(target_arch = "aarch64")]
            NeonI8mm::new().map(Isa::NeonI8mm),
        ]
        .into_iter()
        .flatten()
        .collect()
    }

    pub fn name(self) -> &'static str {
        match self {
            Isa::Scalar => "scalar",
            #[cfg(target_arch = "x86_64")]
            Isa::Avx2(_) => "avx2",
            #[cfg(target_arch = "x86_64")]
            Isa::Avx512(_) => "avx512",
            #[cfg(target_arch = "aarch64")]
            Isa::Neon(_) => "neon",
            #[cfg(target_arch = "aarch64")]
            Isa::NeonI8mm(_) => "neon-i8mm",
        }
    }
}

/// Compiles one portable body once for each instruction set and picks at run time. The body must be
/// `#[inline(always)]` and written with `mul_add` and fixed lanes, so that the compiler may widen it but
/// not reorder it: the bits are then the same everywhere.
macro_rules! per_isa {
    ($(#[$doc:meta])* $vis:vis fn $name:ident($($arg:ident: $ty:ty),* $(,)?) $(-> $ret:ty)? = $body:path) => {
        $(#[$doc])*
        $vis fn $name(isa: $crate::isa::Isa, $($arg: $ty),*) $(-> $ret)? {
            #[cfg(target_arch = "x86_64")]
            #[target_feature(enable = "avx2,fma,f16c")]
            fn wide($($arg: $ty),*) $(-> $ret)? {
                $body($($arg),*)
            }
            #[cfg(target_arch = "x86_64")]
            #[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx2,fma,f16c")]
            fn widest($($arg: $ty),*) $(-> $ret)? {
                $body($($arg),*)
            }
            match isa {
                $crate::isa::Isa::Scalar => $body($($arg),*),
                // SAFETY: the token proves that the CPU has the features of `wide`.
                #[cfg(target_arch = "x86_64")]
                $crate::isa::Isa::Avx2(_) => unsafe { wide($($arg),*) },
                // SAFETY: the token proves that the CPU has the features of `widest`.
                #[cfg(target_arch = "x86_64")]
                $crate::isa::Isa::Avx512(_) => unsafe { widest($($arg),*) },
                // The portable body is compiled for NEON already.
                #[cfg(target_arch = "aarch64")]
                $crate::isa::Isa::Neon(_) | $crate::isa::Isa::NeonI8mm(_) => $body($($arg),*),
            }
        }
    };
}
pub(crate) use per_isa;

#[cfg(test)]
mod tests {
    use super::*;

    /// `scripts/test-neon.sh` counts on this to learn that a CPU has what it should have.
    #[test]
    fn what_the_environment_asks_for_is_there_and_used() {
        let asked = Isa::from_environment().expect("an instruction set of this machine, or none");
        assert!(asked.is_none_or(|isa| isa == Isa::best()));
    }
}
