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
        let found = Isa::all().into_iter().find(|isa| name.to_str() == Some(isa.name()));
        found.map(Some).ok_or_else(|| {
            let names = Isa::all().iter().map(|isa| isa.name()).collect::<Vec<_>>().join(", ");
            format!("{VARIABLE} is {name:?}; this machine has {names}")
        })
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
            }
        }
    };
}
pub(crate) use per_isa;
