//! Which instruction set runs a kernel. Owns detection and the proof tokens; knows no kernel.

/// An instruction set that kernels exist for. Every value proves that this CPU has it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Isa {
    /// Portable code, the truth that the others are tested against.
    Scalar,
    /// x86-64 with AVX2, FMA and F16C (every x86 server and desktop since 2013 to 2015).
    #[cfg(target_arch = "x86_64")]
    Avx2(Avx2),
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

impl Isa {
    /// The fastest one that this CPU has.
    pub fn best() -> Isa {
        #[cfg(target_arch = "x86_64")]
        if let Some(token) = Avx2::new() {
            return Isa::Avx2(token);
        }
        Isa::Scalar
    }

    /// Every one that this CPU has, for tests and tables.
    pub fn all() -> Vec<Isa> {
        let mut all = vec![Isa::Scalar];
        if Isa::best() != Isa::Scalar {
            all.push(Isa::best());
        }
        all
    }

    pub fn name(self) -> &'static str {
        match self {
            Isa::Scalar => "scalar",
            #[cfg(target_arch = "x86_64")]
            Isa::Avx2(_) => "avx2",
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
            match isa {
                $crate::isa::Isa::Scalar => $body($($arg),*),
                // SAFETY: the token proves that the CPU has the features of `wide`.
                #[cfg(target_arch = "x86_64")]
                $crate::isa::Isa::Avx2(_) => unsafe { wide($($arg),*) },
            }
        }
    };
}
pub(crate) use per_isa;
