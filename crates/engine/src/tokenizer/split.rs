//! Runs the steps of a `pre` kind over a text, in time linear in its length. Knows no vocabulary.

use regex::Regex;

use super::pre::{Step, WhiteSpace};

pub(super) struct Splitter {
    steps: Vec<Compiled>,
}

enum Compiled {
    Pattern(Regex, WhiteSpace),
    DigitGroups(Regex),
}

impl Splitter {
    pub fn new(steps: &[Step]) -> Splitter {
        let compile = |pattern| Regex::new(pattern).expect("the patterns of all kinds are tested");
        let steps = steps.iter().map(|step| match *step {
            Step::Pattern(pattern, white_space) => Compiled::Pattern(compile(pattern), white_space),
            Step::DigitGroups => Compiled::DigitGroups(compile(r"\p{N}+")),
        });
        Splitter { steps: steps.collect() }
    }

    /// Calls `visit` with the words of `text`, in order and without gaps; none is empty.
    pub fn split<'t>(&self, text: &'t str, visit: &mut dyn FnMut(&'t str)) {
        run(&self.steps, text, visit);
    }
}

fn run<'t>(steps: &[Compiled], text: &'t str, visit: &mut dyn FnMut(&'t str)) {
    if text.is_empty() {
        return;
    }
    match steps {
        [] => visit(text),
        [Compiled::Pattern(pattern, white_space), later @ ..] => {
            let mut at = 0;
            while let Some(found) = pattern.find_at(text, at) {
                let end = found.end() - left_over(&text[found.start()..], found.len(), *white_space);
                run(later, &text[at..found.start()], visit);
                run(later, &text[found.start()..end], visit);
                at = end;
            }
            run(later, &text[at..], visit);
        }
        [Compiled::DigitGroups(digits), later @ ..] => {
            let mut at = 0;
            for found in digits.find_iter(text) {
                run(later, &text[at..found.start()], visit);
                groups_of_three(found.as_str(), &mut |group| run(later, group, visit));
                at = found.end();
            }
            run(later, &text[at..], visit);
        }
    }
}

/// How many bytes at the end of a match, the first `matched` bytes of `text`, belong to the next word.
fn left_over(text: &str, matched: usize, white_space: WhiteSpace) -> usize {
    let last = text[..matched].chars().next_back().filter(|last| last.is_whitespace());
    let Some(last) = last else { return 0 };
    let leaves = match white_space {
        WhiteSpace::Taken => false,
        WhiteSpace::LeavesOne => true,
        WhiteSpace::LeavesOneInLine => !matches!(last, '\r' | '\n'),
    };
    let alone = last.len_utf8() == matched;
    let at_the_end = matched == text.len();
    if leaves && !alone && !at_the_end { last.len_utf8() } else { 0 }
}

fn groups_of_three<'t>(digits: &'t str, visit: &mut dyn FnMut(&'t str)) {
    let first = match digits.chars().count() % 3 {
        0 => 3,
        rest => rest,
    };
    let mut start = 0;
    let mut wanted = first;
    for (at, _) in digits.char_indices().skip(1) {
        wanted -= 1;
        if wanted == 0 {
            visit(&digits[start..at]);
            (start, wanted) = (at, 3);
        }
    }
    visit(&digits[start..]);
}

#[cfg(test)]
mod tests {
    use super::super::pre::Pre;
    use super::*;

    fn words<'t>(pre: &str, text: &'t str) -> Vec<&'t str> {
        let mut words = Vec::new();
        Splitter::new(Pre::named(pre).unwrap().steps).split(text, &mut |word| words.push(word));
        words
    }

    #[test]
    fn every_kind_compiles_and_loses_nothing() {
        let text = "  Héllo, wörld!\n\n\tx=12345 'll I'LL 漢字かな é́ 🚀🏽\r\n   ";
        let mut seen = std::collections::HashSet::new();
        for kind in Pre::all() {
            for name in kind.names() {
                assert!(seen.insert(*name), "{name} twice");
            }
            let words = words(kind.names()[0], text);
            assert_eq!(words.concat(), text, "{:?}", kind.names());
            assert!(words.iter().all(|word| !word.is_empty()), "{:?}", kind.names());
        }
    }

    #[test]
    fn white_space_leaves_one_to_the_next_word() {
        assert_eq!(words("gpt-2", "a   b\n\nc  "), ["a", "  ", " b", "\n", "\n", "c", "  "]);
        assert_eq!(words("llama-bpe", "a   b \n\n c\t\td"), ["a", "  ", " b", " \n\n", " c", "\t", "\td"]);
        assert_eq!(words("smollm", "x 12"), ["x", " ", "1", "2"]);
        assert_eq!(words("qwen2", "I'LL don't"), ["I", "'LL", " don", "'t"]);
    }

    #[test]
    fn digits_are_grouped_as_the_kind_says() {
        assert_eq!(words("llama-bpe", "1234567"), ["123", "456", "7"]);
        assert_eq!(words("superbpe", "a b1234567c12"), ["a b", "1", "234", "567", "c", "12"]);
        assert_eq!(words("superbpe", "123456"), ["123", "456"]);
        assert_eq!(words("falcon", "12345"), ["123", "45"]);
    }

    #[test]
    fn a_long_run_of_anything_is_no_trouble() {
        for unit in [" ", "\n", "a", "1", "'", "é", "漢", " \u{301}"] {
            let text = unit.repeat(50_000);
            for kind in Pre::all() {
                let total: usize = words(kind.names()[0], &text).iter().map(|word| word.len()).sum();
                assert_eq!(total, text.len());
            }
        }
    }
}
