//! Values as Python's `str` and `repr` write them. Knows no template.

use std::fmt::Write;
use std::sync::LazyLock;

use minijinja::value::ValueKind;
use minijinja::{Error, ErrorKind, State, Value};
use regex::Regex;

/// Deeper than any conversation, and shallow enough for the stack.
const DEPTH_MAX: usize = 128;

/// `str(value)`; nothing for what is undefined.
pub(super) fn str(state: &State, value: &Value) -> Result<String, Error> {
    let mut out = String::new();
    match value.as_str() {
        Some(text) => out.push_str(text),
        None if value.is_undefined() => {}
        None => append_repr(state, value, 0, &mut out)?,
    }
    Ok(out)
}

/// Pays for each value: lists may be far longer than the memory they take.
fn append_repr(state: &State, value: &Value, depth: usize, out: &mut String) -> Result<(), Error> {
    state.consume_fuel(1 + value.as_str().map_or(0, |text| text.len() as u64 / 64))?;
    if depth > DEPTH_MAX {
        let problem = format!("a value of more than {DEPTH_MAX} levels cannot be printed");
        return Err(Error::new(ErrorKind::InvalidOperation, problem));
    }
    match value.kind() {
        ValueKind::String => append_quoted(value.as_str().unwrap_or_default(), out),
        ValueKind::Number if !value.is_integer() => append_float(value, out),
        ValueKind::Seq | ValueKind::Iterable => {
            let (open, close) = if value.is_tuple() { ('(', ')') } else { ('[', ']') };
            out.push(open);
            let mut count = 0;
            for item in value.try_iter()? {
                out.push_str(if count == 0 { "" } else { ", " });
                append_repr(state, &item, depth + 1, out)?;
                count += 1;
            }
            out.push_str(if value.is_tuple() && count == 1 { "," } else { "" });
            out.push(close);
        }
        ValueKind::Map => {
            out.push('{');
            for (index, key) in value.try_iter()?.enumerate() {
                out.push_str(if index == 0 { "" } else { ", " });
                append_repr(state, &key, depth + 1, out)?;
                out.push_str(": ");
                append_repr(state, &value.get_item(&key)?, depth + 1, out)?;
            }
            out.push('}');
        }
        _ => write!(out, "{value}").expect("a string takes all text"),
    }
    Ok(())
}

/// `repr` of a float: the shortest digits that read back as the same number.
pub(super) fn append_float(value: &Value, out: &mut String) {
    let number = f64::try_from(value.clone()).unwrap_or(f64::NAN);
    if !number.is_finite() {
        let sign = if number == f64::NEG_INFINITY { "-" } else { "" };
        out.push_str(sign);
        return out.push_str(if number.is_nan() { "nan" } else { "inf" });
    }
    let scientific = format!("{number:e}");
    let (digits, exponent) = scientific.split_once('e').expect("the form of :e");
    let exponent: i32 = exponent.parse().expect("the form of :e");
    let written = if (-4..16).contains(&exponent) {
        write!(out, "{number:?}")
    } else {
        let sign = if exponent < 0 { '-' } else { '+' };
        write!(out, "{digits}e{sign}{:02}", exponent.abs())
    };
    written.expect("a string takes all text");
}

/// `repr` of a string.
fn append_quoted(text: &str, out: &mut String) {
    static UNPRINTABLE: LazyLock<Regex> =
        LazyLock::new(|| Regex::new(r"^[\p{C}\p{Zl}\p{Zp}\p{Zs}--\x20]$").expect("a valid pattern"));
    let quote = if text.contains('\'') && !text.contains('"') { '"' } else { '\'' };
    out.push(quote);
    for letter in text.chars() {
        match letter {
            '\\' => out.push_str("\\\\"),
            '\n' => out.push_str("\\n"),
            '\r' => out.push_str("\\r"),
            '\t' => out.push_str("\\t"),
            _ if letter == quote => {
                out.push('\\');
                out.push(letter);
            }
            ' '..='~' => out.push(letter),
            _ if UNPRINTABLE.is_match(letter.encode_utf8(&mut [0; 4])) => {
                let code = u32::from(letter);
                let written = match code {
                    0..=0xFF => write!(out, "\\x{code:02x}"),
                    0x100..=0xFFFF => write!(out, "\\u{code:04x}"),
                    _ => write!(out, "\\U{code:08x}"),
                };
                written.expect("a string takes all text");
            }
            _ => out.push(letter),
        }
    }
    out.push(quote);
}
