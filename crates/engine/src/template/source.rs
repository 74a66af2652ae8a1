//! Brings a template's source into a form that minijinja renders as jinja2 renders the original. Spelt out
//! are transformers' `{% generation %}`, what Python refuses to iterate over, sums in which `|safe` makes
//! Python escape the other parts, and products, which must not be worked out before anyone counts the cost.
//! Knows no values.

/// What `python::environment` must offer for the prepared source.
pub(super) const ITERATE: &str = "__iterate__";
pub(super) const SUM: &str = "__sum__";
pub(super) const ONE: &str = "__one__";

/// The longest source, and the longest code of one tag without its strings. Among strangers' templates the
/// longest have 17 kB and 1 kB.
const SOURCE_BYTES_MAX: usize = 256 * 1024;
const CODE_BYTES_MAX: usize = 16 * 1024;

/// The prepared source, or what is wrong with it.
pub(super) fn prepare(source: &str) -> Result<String, String> {
    if source.len() > SOURCE_BYTES_MAX {
        return Err(format!("it has {} bytes, more than {SOURCE_BYTES_MAX}", source.len()));
    }
    let mut prepared = String::with_capacity(source.len());
    let mut rest = source;
    while let Some(start) = rest.find('{') {
        prepared.push_str(&rest[..start]);
        rest = &rest[start..];
        let length = match rest.as_bytes().get(1) {
            Some(b'#') => rest.find("#}").map(|end| end + 2),
            Some(b'%') if block_name(rest) == Some("raw") => raw_block(rest),
            Some(b'{') => tag(rest, "}}"),
            Some(b'%') => tag(rest, "%}"),
            _ => Some(1),
        };
        // What does not end is left for the parser to refuse.
        let Some(length) = length else { break };
        let (piece, after) = rest.split_at(length);
        match piece.as_bytes().get(1) {
            Some(b'%') if block_name(piece) != Some("raw") => prepared.push_str(&rewrite(piece, block)?),
            Some(b'{') => prepared.push_str(&rewrite(piece, sum)?),
            _ => prepared.push_str(piece),
        }
        rest = after;
    }
    prepared.push_str(rest);
    Ok(prepared)
}

/// The first word of a `{% ... %}` tag.
fn block_name(tag: &str) -> Option<&str> {
    let inside = tag.strip_prefix("{%")?.trim_start_matches(['-', '+']).trim_start();
    inside.split(|letter: char| !letter.is_alphanumeric() && letter != '_').next()
}

/// The length of a block whose text is no template.
fn raw_block(text: &str) -> Option<usize> {
    let mut at = 2;
    loop {
        at += text[at..].find("{%")?;
        let length = tag(&text[at..], "%}")?;
        if block_name(&text[at..]) == Some("endraw") {
            return Some(at + length);
        }
        at += length;
    }
}

/// The length of a tag: up to `end` outside of strings and brackets.
fn tag(text: &str, end: &str) -> Option<usize> {
    outside(&text[2..]).find(|&(at, _)| text[2 + at..].starts_with(end)).map(|(at, _)| 2 + at + end.len())
}

/// The characters of an expression that stand outside of strings, with the depth of brackets around them; an
/// opening bracket counts as inside itself, a closing one as outside.
fn code(expression: &str) -> impl Iterator<Item = (usize, char, usize)> {
    let mut quote = None;
    let mut escaped = false;
    let mut depth = 0_usize;
    expression.char_indices().filter_map(move |(at, letter)| {
        let in_string = quote.is_some();
        match (quote, letter) {
            (Some(_), _) if escaped => escaped = false,
            (Some(_), '\\') => escaped = true,
            (Some(open), _) if open == letter => quote = None,
            (Some(_), _) => {}
            (None, '\'' | '"') => quote = Some(letter),
            (None, '(' | '[' | '{') => depth += 1,
            (None, ')' | ']' | '}') => depth = depth.saturating_sub(1),
            _ => {}
        }
        (!in_string && quote.is_none()).then_some((at, letter, depth))
    })
}

/// The characters that stand outside of strings and brackets.
fn outside(expression: &str) -> impl Iterator<Item = (usize, char)> {
    let mut before = 0;
    code(expression).filter_map(move |(at, letter, depth)| {
        let closes = std::mem::replace(&mut before, depth) > depth;
        (depth == 0 && !closes).then_some((at, letter))
    })
}

/// A tag with its inside changed by `change`, its marks for white space kept.
fn rewrite(tag: &str, change: impl Fn(&str) -> Option<String>) -> Result<String, String> {
    let inside = &tag[2..tag.len() - 2];
    let length = code(inside).count();
    if length > CODE_BYTES_MAX {
        return Err(format!("one of its tags has {length} characters of code, more than {CODE_BYTES_MAX}"));
    }
    let start = inside.len() - inside.strip_prefix(['-', '+']).unwrap_or(inside).len();
    let end = inside[start..].strip_suffix(['-', '+']).map_or(inside.len(), |rest| start + rest.len());
    let inside = products(&inside[start..end]);
    let changed = change(&inside).unwrap_or(inside);
    Ok([&tag[..2 + start], &changed, &tag[2 + end..]].concat())
}

/// `a * b` as `a * __one__ * b`, which is no constant: minijinja would work one out while it parses, where
/// no fuel bounds what `'x' * 99999999` costs.
fn products(inside: &str) -> String {
    let mut spelt = String::with_capacity(inside.len());
    let mut copied = 0;
    for (at, _, _) in code(inside).filter(|&(_, letter, _)| letter == '*') {
        let (before, after) = (inside[..at].trim_end(), &inside[at + 1..]);
        let operand = |letter: char| letter.is_alphanumeric() || "_'\")]}".contains(letter);
        if before.ends_with(operand) && !after.starts_with('*') {
            spelt.push_str(&inside[copied..at]);
            spelt.push_str("* ");
            spelt.push_str(ONE);
            spelt.push_str(" *");
            copied = at + 1;
        }
    }
    spelt.push_str(&inside[copied..]);
    spelt
}

fn block(inside: &str) -> Option<String> {
    match inside.trim() {
        // It marks what an assistant wrote, renders nothing, and opens a scope.
        "generation" => return Some(" with ".to_string()),
        "endgeneration" => return Some(" endwith ".to_string()),
        _ => {}
    }
    inside.trim_start().strip_prefix("for")?.strip_prefix(|letter: char| letter.is_whitespace())?;
    let start = word(inside, "in")? + "in".len();
    let end = [word(&inside[start..], "if"), word(&inside[start..], "recursive")];
    let end = end.into_iter().flatten().min().map_or(inside.len(), |end| start + end);
    let (target, iterated, filter) = (&inside[..start], &inside[start..end], &inside[end..]);
    if outside(iterated).any(|(_, letter)| letter == ',') {
        return None;
    }
    Some(format!("{target} {ITERATE}({iterated}) {filter}"))
}

/// Where `wanted` stands as a word of its own, outside of strings and brackets.
fn word(expression: &str, wanted: &str) -> Option<usize> {
    let part = |letter: char| letter.is_alphanumeric() || letter == '_' || letter == '.';
    outside(expression).map(|(at, _)| at).find(|&at| {
        expression[at..].starts_with(wanted)
            && !expression[..at].ends_with(part)
            && !expression[at + wanted.len()..].starts_with(part)
    })
}

/// A sum with a part that is `|safe`, and no operator of lower rank than `+`.
fn sum(inside: &str) -> Option<String> {
    if !inside.contains("safe") {
        return None;
    }
    let other = |(_, letter): (usize, char)| "~-*/%<>=!,".contains(letter);
    let words = ["if", "else", "and", "or", "not", "in", "is"];
    if outside(inside).any(other) || words.iter().any(|name| word(inside, name).is_some()) {
        return None;
    }
    let plus: Vec<usize> = outside(inside).filter(|&(_, letter)| letter == '+').map(|(at, _)| at).collect();
    let starts = std::iter::once(0).chain(plus.iter().map(|at| at + 1));
    let ends = plus.iter().copied().chain([inside.len()]);
    let parts: Vec<&str> = starts.zip(ends).map(|(start, end)| inside[start..end].trim()).collect();
    let safe = |part: &&str| part.rsplit('|').next().is_some_and(|filter| filter.trim() == "safe");
    let worth_it = parts.len() > 1 && parts.iter().any(safe) && !parts.contains(&"");
    worth_it.then(|| format!(" {SUM}({}) ", parts.join(", ")))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn prepared(source: &str) -> String {
        prepare(source).unwrap()
    }

    #[test]
    fn generation_tags_become_a_scope() {
        assert_eq!(prepared("a{%- generation -%}b{% endgeneration %}c"), "a{%- with -%}b{% endwith %}c");
    }

    #[test]
    fn loops_check_what_they_iterate_over() {
        assert_eq!(prepared("{%- for a in b %}"), "{%- for a in __iterate__( b ) %}");
        assert_eq!(
            prepared("{% for k, v in d.items() if v in 'if' recursive -%}"),
            "{% for k, v in __iterate__( d.items() ) if v in 'if' recursive -%}"
        );
        assert_eq!(prepared("{% for a in 1, 2 %}{% format in x %}"), "{% for a in 1, 2 %}{% format in x %}");
    }

    #[test]
    fn sums_with_safe_parts_are_spelt_out() {
        assert_eq!(prepared("{{- 'a+'|safe + f(b + c) }}"), "{{- __sum__('a+'|safe, f(b + c)) }}");
        for same in ["{{ a + b }}", "{{ x|safe ~ y }}", "{{ a|safe }}", "{{ 'safe' + b }}"] {
            assert_eq!(prepared(same), same);
        }
    }

    #[test]
    fn products_are_no_constants() {
        assert_eq!(prepared("{{ ('x' * 9) }}"), "{{ ('x' * __one__ * 9) }}");
        assert_eq!(prepared("{% set a = b.c*2 -%}"), "{% set a = b.c* __one__ *2 -%}");
        for same in ["{{ 2 ** 3 }}", "{{ f(*a, **b) }}", "{{ '2 * 3' }}", "{% macro m(*a) %}"] {
            assert_eq!(prepared(same), same);
        }
    }

    #[test]
    fn what_no_template_needs_is_refused() {
        assert!(prepare(&" ".repeat(SOURCE_BYTES_MAX + 1)).unwrap_err().contains("bytes"));
        assert!(prepare(&format!("{{{{ {}1 }}}}", "1 + ".repeat(5000))).unwrap_err().contains("tags"));
        assert!(prepare(&format!("{{{{ '{}' }}}}", "x".repeat(50_000))).is_ok());
    }

    #[test]
    fn strings_comments_and_raw_blocks_are_left_alone() {
        for same in [
            "{# {% for a in b %} #}",
            "{% raw %}{% for a in b %}{% endraw %}",
            "{{ '{% for a in b %}' }}",
            "{{ {'a': {}} }}",
            "{ {% set generation = 1 %}",
            "{% for a in b",
            "{{ 'é\\'}}' }}",
            "{",
        ] {
            assert_eq!(prepared(same), same);
        }
    }
}
