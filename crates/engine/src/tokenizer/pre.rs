//! How each `tokenizer.ggml.pre` kind splits a text into words before merging: data, one entry a kind.
//! The patterns are those of the makers' tokenisers in the form that llama.cpp gives them where the two
//! differ on vocabularies that both are tested with. Knows not how patterns are run.

/// How words are spelt in tokens.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Letters {
    /// One letter of the byte alphabet for every byte.
    Bytes,
    /// Characters as they are, spaces as `▁`, and `<0x0A>` for what has no token.
    Characters,
}

/// One pass over the pieces that the passes before it left.
#[derive(Clone, Copy, Debug)]
pub(super) enum Step {
    /// Matches become pieces, and so does what lies between them.
    Pattern(&'static str, WhiteSpace),
    /// Runs of digits become groups of three, counted from the right.
    DigitGroups,
}

/// What stands for `\s+(?!\S)` at the end of many patterns, with a plain `\s+` in its place so that the
/// patterns need no look-ahead and run in linear time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum WhiteSpace {
    /// Nothing: matches are taken as they are.
    Taken,
    /// A run of white space leaves its last character to the word after it.
    LeavesOne,
    /// The same, but a run that ends in a line break is taken whole.
    LeavesOneInLine,
}
use WhiteSpace::{LeavesOne, LeavesOneInLine, Taken};

#[derive(Clone, Copy, Debug)]
pub(super) struct Pre {
    names: &'static [&'static str],
    pub steps: &'static [Step],
    pub letters: Letters,
    /// A word that is a token is not merged.
    pub whole_words: bool,
    /// Begin-of-text is added where the file does not say.
    pub add_bos: bool,
}

const PLAIN: Pre =
    Pre { names: &[], steps: &[], letters: Letters::Bytes, whole_words: false, add_bos: false };

const GPT2: Step =
    Step::Pattern(r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+", LeavesOne);
const DIGIT: Step = Step::Pattern(r"\p{N}", Taken);
const LINES: Step = Step::Pattern(r"[^\n]+|\n+", Taken);

macro_rules! contraction {
    () => {
        "'[sS]|'[tT]|'[rR][eE]|'[vV][eE]|'[mM]|'[lL][lL]|'[dD]"
    };
}
/// A word with at most one capital run in front, as in gpt-4o; `$marks` are what goes along with letters.
macro_rules! cased_words {
    ($end:expr) => {
        concat!(
            r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+",
            $end,
            r"|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*",
            $end
        )
    };
}
macro_rules! optional_contraction {
    () => {
        concat!("(?:", contraction!(), ")?")
    };
}

const LLAMA3: Step = Step::Pattern(
    concat!(contraction!(), r"|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+"),
    LeavesOneInLine,
);
const QWEN2: Step = Step::Pattern(
    concat!(contraction!(), r"|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+"),
    LeavesOneInLine,
);
const GPT4O: Step = Step::Pattern(
    concat!(cased_words!(optional_contraction!()), r"|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+"),
    LeavesOneInLine,
);
const DEEPSEEK3: [Step; 3] = [
    Step::Pattern(r"\p{N}{1,3}", Taken),
    Step::Pattern(r"[\u{4E00}-\u{9FA5}\u{3040}-\u{309F}\u{30A0}-\u{30FF}]+", Taken),
    Step::Pattern(
        concat!(
            r##"[!"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+"##,
            r"| ?[\p{P}\p{S}]+[\r\n]*|\s*[\r\n]+|\s+"
        ),
        LeavesOneInLine,
    ),
];
/// The letters of scripts with two cases, as deepseek-llm lists them.
macro_rules! cased_letters {
    () => {
        concat!(
            r"A-Za-z\u{B5}\u{C0}-\u{D6}\u{D8}-\u{F6}\u{F8}-\u{1BA}\u{1BC}-\u{1BF}\u{1C4}-\u{293}",
            r"\u{295}-\u{2AF}\u{370}-\u{373}\u{376}\u{377}\u{37B}-\u{37D}\u{37F}\u{386}\u{388}-\u{38A}",
            r"\u{38C}\u{38E}-\u{3A1}\u{3A3}-\u{3F5}\u{3F7}-\u{481}\u{48A}-\u{52F}\u{531}-\u{556}",
            r"\u{10A0}-\u{10C5}\u{13A0}-\u{13F5}\u{13F8}-\u{13FD}\u{1C90}-\u{1CBA}\u{1CBD}-\u{1CBF}",
            r"\u{1D00}-\u{1D2B}\u{1D6B}-\u{1D77}\u{1D79}-\u{1D9A}\u{1E00}-\u{1F15}\u{1F18}-\u{1F1D}",
            r"\u{1F20}-\u{1F45}\u{1F48}-\u{1F4D}\u{1F50}-\u{1F57}\u{1F59}\u{1F5B}\u{1F5D}",
            r"\u{1F5F}-\u{1F7D}\u{1F80}-\u{1FB4}\u{1FB6}-\u{1FBC}\u{1FBE}\u{1FC2}-\u{1FC4}",
            r"\u{1FC6}-\u{1FCC}\u{1FD0}-\u{1FD3}\u{1FD6}-\u{1FDB}\u{1FE0}-\u{1FEC}\u{1FF2}-\u{1FF4}",
            r"\u{1FF6}-\u{1FFC}\u{2102}\u{2107}\u{210A}-\u{2113}\u{2115}\u{2119}-\u{211D}\u{2124}",
            r"\u{2126}\u{2128}\u{212A}-\u{212D}\u{212F}-\u{2134}\u{2139}\u{213C}-\u{213F}",
            r"\u{2145}-\u{2149}\u{214E}\u{2183}\u{2184}\u{2C00}-\u{2C7B}\u{2C7E}-\u{2CE4}",
            r"\u{2CEB}-\u{2CEE}\u{2CF2}\u{2CF3}\u{A640}-\u{A66D}\u{A680}-\u{A69B}\u{A722}-\u{A76F}",
            r"\u{A771}-\u{A787}\u{A78B}-\u{A78E}\u{AB70}-\u{ABBF}\u{FB00}-\u{FB06}\u{FB13}-\u{FB17}",
            r"\u{FF21}-\u{FF3A}\u{FF41}-\u{FF5A}\u{10400}-\u{1044F}\u{104B0}-\u{104D3}",
            r"\u{104D8}-\u{104FB}\u{10C80}-\u{10CB2}\u{10CC0}-\u{10CF2}\u{118A0}-\u{118DF}",
            r"\u{1E900}-\u{1E943}"
        )
    };
}
const DEEPSEEK_LLM: [Step; 6] = [
    Step::Pattern(r"[\r\n]", Taken),
    Step::Pattern(concat!(r"\s?[", cased_letters!(), "]+"), Taken),
    // The makers' last range begins with the ideographic space, which counts as white space here.
    Step::Pattern(r"\s?[!-/:-~\u{FF01}-\u{FF0F}\u{FF1A}-\u{FF5E}\u{2018}-\u{201F}\u{3001}-\u{3002}]+", Taken),
    Step::Pattern(r"\s+$", Taken),
    Step::Pattern(r"[\u{4E00}-\u{9FA5}\u{800}-\u{4E00}\u{AC00}-\u{D7FF}]+", Taken),
    Step::Pattern(r"\p{N}+", Taken),
];
const DEEPSEEK_CODER: [Step; 5] = [
    Step::Pattern(r"[\r\n]", Taken),
    Step::Pattern(r"\s?\p{L}+", Taken),
    Step::Pattern(r"\s?\p{P}+", Taken),
    Step::Pattern(r"[\u{4E00}-\u{9FA5}\u{800}-\u{4E00}\u{AC00}-\u{D7FF}]+", Taken),
    DIGIT,
];
const BLOOM: Step =
    Step::Pattern(r" ?[^(\s|.,!?\u{2026}\u{3002}\u{FF0C}\u{3001}\u{964}\u{6D4}\u{60C})]+", Taken);

const KINDS: &[Pre] = &[
    Pre {
        names: &["default"],
        steps: &[
            Step::Pattern(r"[\p{P}$+<=>^~|]+", Taken),
            GPT2,
            Step::Pattern(r"\p{N}+", Taken),
            Step::Pattern("[0-9][0-9][0-9]", Taken),
        ],
        ..PLAIN
    },
    Pre {
        names: &["llama-bpe", "llama3", "llama-v3", "falcon3", "falcon-h1", "pixtral", "midm-2.0", "lfm2"],
        steps: &[LLAMA3],
        whole_words: true,
        add_bos: true,
        ..PLAIN
    },
    Pre { names: &["glm4", "glm5"], steps: &[LLAMA3], whole_words: true, ..PLAIN },
    Pre { names: &["chatglm-bpe", "dbrx", "smaug-bpe"], steps: &[LLAMA3], ..PLAIN },
    Pre {
        names: &["minicpm5"],
        steps: &[
            Step::Pattern(r"\p{N}{1,3}", Taken),
            Step::Pattern(
                concat!(
                    contraction!(),
                    r"|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}+| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+"
                ),
                LeavesOneInLine,
            ),
        ],
        whole_words: true,
        ..PLAIN
    },
    Pre {
        names: &[
            "qwen2",
            "deepseek-r1-qwen",
            "kormo",
            "f2llmv2",
            "megrez",
            "stablelm2",
            "hunyuan",
            "solar-open",
            "grok-2",
        ],
        steps: &[QWEN2],
        ..PLAIN
    },
    Pre {
        names: &["qwen35"],
        steps: &[Step::Pattern(
            concat!(
                contraction!(),
                r"|[^\r\n\p{L}\p{N}]?[\p{L}\p{M}]+|\p{N}| ?[^\s\p{L}\p{M}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+"
            ),
            LeavesOneInLine,
        )],
        ..PLAIN
    },
    Pre { names: &["laguna"], steps: &[LINES, QWEN2], ..PLAIN },
    Pre {
        names: &["ufakzeka"],
        steps: &[Step::Pattern(
            r"[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+",
            LeavesOneInLine,
        )],
        ..PLAIN
    },
    Pre {
        names: &["bailingmoe", "bailingmoe2", "llada-moe"],
        steps: &[Step::Pattern(
            concat!(
                r"'[sSdDmMtT]|'[lL][lL]|'[vV][eE]|'[rR][eE]",
                r"|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]|\s+"
            ),
            LeavesOneInLine,
        )],
        ..PLAIN
    },
    Pre {
        names: &["seed-coder"],
        steps: &[Step::Pattern(
            concat!(contraction!(), r"|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}\r\n]+|\s*[\r\n]+|\s+"),
            LeavesOneInLine,
        )],
        ..PLAIN
    },
    Pre {
        names: &["exaone-moe"],
        steps: &[Step::Pattern(
            concat!(
                contraction!(),
                r"|[^\r\n\p{L}\p{N}]?(?:\p{L}\p{M}*(?: \p{L}\p{M}*)*)+|\p{N}",
                r"| ?[^\s\p{L}\p{N}]+[\r\n/]?|\s*[\r\n]|\s+"
            ),
            LeavesOneInLine,
        )],
        ..PLAIN
    },
    Pre {
        names: &[
            "gpt-2",
            "phi-2",
            "jina-es",
            "jina-de",
            "jina-v2-es",
            "jina-v2-de",
            "gigachat",
            "a.x-4.0",
            "mellum",
            "exaone4",
            "mpt",
            "olmo",
            "jais",
            "trillion",
            "granite-docling",
        ],
        steps: &[GPT2],
        ..PLAIN
    },
    Pre {
        names: &[
            "smollm",
            "starcoder",
            "refact",
            "command-r",
            "codeshell",
            "exaone",
            "minerva-7b",
            "mellum2",
        ],
        steps: &[DIGIT, GPT2],
        ..PLAIN
    },
    Pre {
        names: &["falcon"],
        steps: &[Step::Pattern(r"[\p{P}$+<=>^~|`]+", Taken), GPT2, Step::Pattern("[0-9][0-9][0-9]", Taken)],
        ..PLAIN
    },
    Pre { names: &["deepseek-llm"], steps: &DEEPSEEK_LLM, ..PLAIN },
    Pre { names: &["deepseek-coder"], steps: &DEEPSEEK_CODER, ..PLAIN },
    Pre { names: &["deepseek-v3", "hunyuan-dense", "joyai-llm", "hy_v4"], steps: &DEEPSEEK3, ..PLAIN },
    Pre {
        names: &["spark2_5"],
        steps: &[
            DEEPSEEK3[0],
            DEEPSEEK3[1],
            Step::Pattern(
                concat!(
                    r##"[!"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+"##,
                    r"|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+| ?[\p{P}\p{S}]+|[\r\n]|\s+"
                ),
                LeavesOne,
            ),
            DIGIT,
        ],
        ..PLAIN
    },
    Pre {
        names: &["youtu"],
        steps: &[
            Step::Pattern(
                concat!(
                    r"[\u{AC00}-\u{D7A3}\u{3131}-\u{318E}]+",
                    r"|[\u{FF01}\u{2026}\u{201C}\u{201D}\u{2018}\u{2019}\u{2014}\u{FF1A}\u{FF1B}\u{FF0C}",
                    r"\u{3001}-\u{303F}\u{FE30}-\u{FE4F}]+",
                    r"|[\u{3105}-\u{312F}]+|[\u{4E00}-\u{9FA5}\u{3040}-\u{309F}\u{30A0}-\u{30FF}]+"
                ),
                Taken,
            ),
            Step::Pattern(
                concat!(
                    cased_words!(optional_contraction!()),
                    r"|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+"
                ),
                LeavesOneInLine,
            ),
        ],
        whole_words: true,
        ..PLAIN
    },
    Pre { names: &["poro-chat", "bloom", "gpt3-finnish"], steps: &[BLOOM], ..PLAIN },
    Pre { names: &["viking"], steps: &[BLOOM, DIGIT], ..PLAIN },
    Pre {
        names: &["tekken"],
        steps: &[Step::Pattern(
            concat!(cased_words!(""), r"|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+"),
            LeavesOneInLine,
        )],
        whole_words: true,
        add_bos: true,
        ..PLAIN
    },
    Pre { names: &["gpt-4o", "llama4", "kanana2", "talkie", "minimax-m2"], steps: &[GPT4O], ..PLAIN },
    Pre { names: &["tiny_aya", "cohere2moe"], steps: &[Step::DigitGroups, GPT4O], ..PLAIN },
    Pre { names: &["superbpe"], steps: &[Step::DigitGroups], ..PLAIN },
    Pre {
        names: &["kimi-k2"],
        steps: &[Step::Pattern(
            concat!(
                r"\p{Han}+",
                r"|[^\r\n\p{L}\p{N}]?[[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]&&[^\p{Han}]]*",
                r"[[\p{Ll}\p{Lm}\p{Lo}\p{M}]&&[^\p{Han}]]+",
                optional_contraction!(),
                r"|[^\r\n\p{L}\p{N}]?[[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]&&[^\p{Han}]]+",
                r"[[\p{Ll}\p{Lm}\p{Lo}\p{M}]&&[^\p{Han}]]*",
                optional_contraction!(),
                r"|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+"
            ),
            LeavesOneInLine,
        )],
        ..PLAIN
    },
    Pre {
        names: &["afmoe"],
        steps: &[
            Step::DigitGroups,
            Step::Pattern(
                concat!(
                    r"[\u{4E00}-\u{9FFF}\u{3400}-\u{4DBF}\u{F900}-\u{FAFF}\u{3040}-\u{309F}\u{30A0}-\u{30FF}",
                    r"\u{FF65}-\u{FF9F}\u{2F00}-\u{2FDF}\u{E40}-\u{E7F}\u{E80}-\u{EFF}\u{1780}-\u{17FF}",
                    r"\u{1000}-\u{109F}\u{AA60}-\u{AA7F}\u{A9E0}-\u{A9FF}\u{AC00}-\u{D7AF}",
                    r"\u{1100}-\u{11FF}]+"
                ),
                Taken,
            ),
            DEEPSEEK3[2],
        ],
        ..PLAIN
    },
    Pre {
        names: &["chameleon"],
        steps: &[
            Step::Pattern("<sentinel:[0-9]+>", Taken),
            Step::Pattern("IMGIMG[A-I]{1,4}Z", Taken),
            Step::Pattern(r"[\t\n]|    |  ", Taken),
            DIGIT,
            Step::Pattern(r"[\p{P}!-/:-@\[-`{-~]", Taken),
            GPT2,
        ],
        add_bos: true,
        ..PLAIN
    },
    Pre {
        names: &["gemma4", "sarvam-moe"],
        steps: &[LINES],
        letters: Letters::Characters,
        add_bos: true,
        ..PLAIN
    },
];

impl Pre {
    pub fn named(name: &str) -> Option<&'static Pre> {
        KINDS.iter().find(|kind| kind.names.contains(&name))
    }

    #[cfg(test)]
    pub fn all() -> &'static [Pre] {
        KINDS
    }

    #[cfg(test)]
    pub fn names(&self) -> &'static [&'static str] {
        self.names
    }
}
