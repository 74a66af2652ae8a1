//! Methods of Python's strings that minijinja's pycompat lacks or has otherwise. Knows no template.

use minijinja::value::{Tuple, from_args};
use minijinja::{Error, ErrorKind, State, Value};
use minijinja_contrib::pycompat;

use super::filters::charge;

pub(super) fn call(state: &mut State, value: &Value, method: &str, args: &[Value]) -> Result<Value, Error> {
    let own = match value.as_str() {
        Some(text) => string_method(state, text, method, args)?,
        None => None,
    };
    match own {
        Some(result) => Ok(result),
        None => pycompat::unknown_method_callback(state, value, method, args),
    }
}

fn string_method(state: &State, text: &str, method: &str, args: &[Value]) -> Result<Option<Value>, Error> {
    Ok(Some(match method {
        "title" => Value::from(title(text)),
        "swapcase" => Value::from(swapcase(text)),
        "casefold" => Value::from(text.to_lowercase().replace('ß', "ss")),
        "removeprefix" => {
            let (prefix,): (&str,) = from_args(args)?;
            Value::from(text.strip_prefix(prefix).unwrap_or(text))
        }
        "removesuffix" => {
            let (suffix,): (&str,) = from_args(args)?;
            Value::from(text.strip_suffix(suffix).unwrap_or(text))
        }
        "partition" | "rpartition" => {
            let (separator,): (&str,) = from_args(args)?;
            let first = method == "partition";
            let parts = if first { text.split_once(separator) } else { text.rsplit_once(separator) };
            let parts = match parts {
                Some((before, after)) => [before, separator, after],
                None if first => [text, "", ""],
                None => ["", "", text],
            };
            Value::from(Tuple::from(parts.map(Value::from)))
        }
        "rsplit" => {
            let (separator, most): (Option<&str>, Option<i64>) = from_args(args)?;
            Value::from(rsplit(text, separator, most.and_then(|most| usize::try_from(most).ok())))
        }
        "index" | "rindex" => {
            let (wanted,): (&str,) = from_args(args)?;
            let at = if method == "index" { text.find(wanted) } else { text.rfind(wanted) };
            let missing = || Error::new(ErrorKind::InvalidOperation, "substring not found");
            Value::from(text[..at.ok_or_else(missing)?].chars().count())
        }
        "zfill" => {
            let (width,): (usize,) = from_args(args)?;
            charge(state, width)?;
            let digits = text.strip_prefix(['-', '+']).unwrap_or(text);
            let zeros = width.saturating_sub(text.chars().count());
            Value::from([&text[..text.len() - digits.len()], &"0".repeat(zeros), digits].concat())
        }
        "ljust" | "rjust" | "center" => {
            let (width, fill): (usize, Option<&str>) = from_args(args)?;
            let (fill, missing) = (fill.unwrap_or(" "), width.saturating_sub(text.chars().count()));
            charge(state, missing.saturating_mul(fill.len()))?;
            let left = match method {
                "ljust" => 0,
                "rjust" => missing,
                // As CPython does: the odd one goes left where the width is odd too.
                _ => missing / 2 + (missing & width & 1),
            };
            Value::from([&fill.repeat(left), text, &fill.repeat(missing - left)].concat())
        }
        _ => return Ok(None),
    }))
}

/// Capital after everything that has no case.
fn title(text: &str) -> String {
    let mut titled = String::with_capacity(text.len());
    let mut in_word = false;
    for letter in text.chars() {
        if in_word {
            titled.extend(letter.to_lowercase());
        } else {
            titled.extend(letter.to_uppercase());
        }
        in_word = letter.is_lowercase() || letter.is_uppercase();
    }
    titled
}

fn swapcase(text: &str) -> String {
    let mut swapped = String::with_capacity(text.len());
    for letter in text.chars() {
        if letter.is_uppercase() {
            swapped.extend(letter.to_lowercase());
        } else {
            swapped.extend(letter.to_uppercase());
        }
    }
    swapped
}

/// Split from the right, at most `most` times, at `separator` or at runs of white space.
fn rsplit(text: &str, separator: Option<&str>, most: Option<usize>) -> Vec<Value> {
    let most = most.unwrap_or(usize::MAX - 1);
    let mut parts: Vec<&str> = match separator {
        Some(separator) => text.rsplitn(most + 1, separator).collect(),
        None => {
            let mut parts = Vec::new();
            let mut rest = text.trim_end();
            while !rest.is_empty() {
                let start = rest.char_indices().rev().find(|(_, letter)| letter.is_whitespace());
                match start {
                    Some((at, space)) if parts.len() < most => {
                        parts.push(&rest[at + space.len_utf8()..]);
                        rest = rest[..at].trim_end();
                    }
                    _ => {
                        parts.push(rest.trim_start());
                        break;
                    }
                }
            }
            parts
        }
    };
    parts.reverse();
    parts.into_iter().map(Value::from).collect()
}
