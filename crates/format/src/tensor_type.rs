//! The element types a tensor may have on disk: names, ggml ids and sizes.
//! Knows sizes only; what the bits of a block mean is said in `blocks`.

use std::fmt;

/// How the elements of a tensor are stored. Quantised types store runs of [`block_len`](Self::block_len)
/// elements in [`block_bytes`](Self::block_bytes) bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum TensorType {
    F32,
    F16,
    Bf16,
    Q4_0,
    Q4_1,
    Q5_0,
    Q5_1,
    Q8_0,
    Q2K,
    Q3K,
    Q4K,
    Q5K,
    Q6K,
    Iq4Nl,
    Iq4Xs,
    Mxfp4,
    I8,
    I16,
    I32,
    I64,
    F64,
}

/// Everything that is known of one type; [`FACTS`] holds one row for each.
struct Facts {
    kind: TensorType,
    /// Number in a GGUF file (`enum ggml_type`).
    ggml_id: u32,
    name: &'static str,
    /// Elements in a block.
    block_len: usize,
    block_bytes: usize,
}

const fn facts(
    kind: TensorType,
    ggml_id: u32,
    name: &'static str,
    block_len: usize,
    block_bytes: usize,
) -> Facts {
    Facts { kind, ggml_id, name, block_len, block_bytes }
}

/// In the order of the enum, so that a type indexes its own row (asserted below).
const FACTS: [Facts; 21] = [
    facts(TensorType::F32, 0, "F32", 1, 4),
    facts(TensorType::F16, 1, "F16", 1, 2),
    facts(TensorType::Bf16, 30, "BF16", 1, 2),
    facts(TensorType::Q4_0, 2, "Q4_0", 32, 18),
    facts(TensorType::Q4_1, 3, "Q4_1", 32, 20),
    facts(TensorType::Q5_0, 6, "Q5_0", 32, 22),
    facts(TensorType::Q5_1, 7, "Q5_1", 32, 24),
    facts(TensorType::Q8_0, 8, "Q8_0", 32, 34),
    facts(TensorType::Q2K, 10, "Q2_K", 256, 84),
    facts(TensorType::Q3K, 11, "Q3_K", 256, 110),
    facts(TensorType::Q4K, 12, "Q4_K", 256, 144),
    facts(TensorType::Q5K, 13, "Q5_K", 256, 176),
    facts(TensorType::Q6K, 14, "Q6_K", 256, 210),
    facts(TensorType::Iq4Nl, 20, "IQ4_NL", 32, 18),
    facts(TensorType::Iq4Xs, 23, "IQ4_XS", 256, 136),
    facts(TensorType::Mxfp4, 39, "MXFP4", 32, 17),
    facts(TensorType::I8, 24, "I8", 1, 1),
    facts(TensorType::I16, 25, "I16", 1, 2),
    facts(TensorType::I32, 26, "I32", 1, 4),
    facts(TensorType::I64, 27, "I64", 1, 8),
    facts(TensorType::F64, 28, "F64", 1, 8),
];

const _: () = {
    let mut index = 0;
    while index < FACTS.len() {
        assert!(FACTS[index].kind as usize == index);
        index += 1;
    }
};

impl TensorType {
    pub const ALL: [TensorType; FACTS.len()] = {
        let mut all = [TensorType::F32; FACTS.len()];
        let mut index = 0;
        while index < FACTS.len() {
            all[index] = FACTS[index].kind;
            index += 1;
        }
        all
    };

    /// The type with this number in a GGUF file, or `None` for one that adit does not read.
    pub fn from_ggml(id: u32) -> Option<TensorType> {
        FACTS.iter().find(|facts| facts.ggml_id == id).map(|facts| facts.kind)
    }

    /// The name of a type that exists (or existed) in ggml but that adit does not read.
    pub(crate) fn unsupported_name(id: u32) -> Option<&'static str> {
        Some(match id {
            4 => "Q4_2",
            5 => "Q4_3",
            9 => "Q8_1",
            15 => "Q8_K",
            16 => "IQ2_XXS",
            17 => "IQ2_XS",
            18 => "IQ3_XXS",
            19 => "IQ1_S",
            21 => "IQ3_S",
            22 => "IQ2_S",
            29 => "IQ1_M",
            31 => "Q4_0_4_4",
            32 => "Q4_0_4_8",
            33 => "Q4_0_8_8",
            34 => "TQ1_0",
            35 => "TQ2_0",
            36 => "IQ4_NL_4_4",
            37 => "IQ4_NL_4_8",
            38 => "IQ4_NL_8_8",
            40 => "NVFP4",
            41 => "Q1_0",
            42 => "Q2_0",
            _ => return None,
        })
    }

    pub fn ggml_id(self) -> u32 {
        self.facts().ggml_id
    }

    /// As the GGUF world writes it: `Q4_K`.
    pub fn name(self) -> &'static str {
        self.facts().name
    }

    /// Elements in a block; 1 for plain numbers.
    pub fn block_len(self) -> usize {
        self.facts().block_len
    }

    pub fn block_bytes(self) -> usize {
        self.facts().block_bytes
    }

    /// Bytes of a row of `cols` elements; `None` where the row is not whole blocks or too long to count.
    pub fn row_bytes(self, cols: usize) -> Option<usize> {
        if !cols.is_multiple_of(self.block_len()) {
            return None;
        }
        (cols / self.block_len()).checked_mul(self.block_bytes())
    }

    pub fn is_quantised(self) -> bool {
        self.block_len() > 1
    }

    fn facts(self) -> &'static Facts {
        &FACTS[self as usize]
    }
}

impl fmt::Display for TensorType {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(self.name())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_lead_back_to_their_type() {
        for kind in TensorType::ALL {
            assert_eq!(TensorType::from_ggml(kind.ggml_id()), Some(kind));
        }
        assert_eq!(TensorType::from_ggml(4), None);
        assert_eq!(TensorType::from_ggml(u32::MAX), None);
    }

    #[test]
    fn rows_are_whole_blocks() {
        assert_eq!(TensorType::Q4K.row_bytes(512), Some(288));
        assert_eq!(TensorType::Q4K.row_bytes(300), None);
        assert_eq!(TensorType::F32.row_bytes(3), Some(12));
        assert_eq!(TensorType::F32.row_bytes(usize::MAX), None);
        assert_eq!(TensorType::Q8_0.row_bytes(0), Some(0));
    }
}
