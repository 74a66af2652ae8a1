//! What templates written for Python's jinja2 expect beyond minijinja. Knows no chat.

use std::fmt;

use minijinja::syntax::SyntaxConfig;
use minijinja::value::Rest;
use minijinja::{Environment, Error, ErrorKind, State, Value};

use super::{filters, methods, print, source};

/// An environment set up as transformers sets up jinja2.
pub(super) fn environment() -> Environment<'static> {
    let mut environment = Environment::new();
    let syntax = SyntaxConfig::builder().trim_blocks(true).lstrip_blocks(true).build();
    environment.set_syntax(syntax.expect("the usual delimiters"));
    environment.set_unknown_method_callback(methods::call);
    filters::add_to(&mut environment);
    // Not in jinja2's environment, or never used by templates, and both print without bounds.
    environment.remove_global("debug");
    environment.remove_filter("pprint");
    environment.set_formatter(|out, state, value| {
        let text = print::str(state, value)?;
        out.write_str(&text).map_err(Error::from)
    });
    environment.add_function("raise_exception", raise_exception);
    environment.add_function(source::ITERATE, iterate);
    environment.add_function(source::SUM, sum);
    environment.add_global(source::ONE, Value::from(1));
    environment
}

/// `for` over None is an error in Python, and over nothing here: so loops ask first.
fn iterate(value: Value) -> Result<Value, Error> {
    if filters::is_iterable(&value) {
        return Ok(value);
    }
    Err(Error::new(ErrorKind::InvalidOperation, format!("{} is not iterable", value.kind())))
}

/// `+` from the left, where a string marked safe makes the string that it meets safe by escaping it.
fn sum(state: &mut State, parts: Rest<Value>) -> Result<Value, Error> {
    let mut parts = parts.iter();
    let mut total = parts.next().cloned().unwrap_or_default();
    for part in parts {
        let (Some(left), Some(right)) = (total.as_str(), part.as_str()) else {
            let problem = format!("{} cannot be added to {}", part.kind(), total.kind());
            return Err(Error::new(ErrorKind::InvalidOperation, problem));
        };
        let escaped = |text: &str, safe: bool| if safe { text.to_string() } else { escape(text) };
        let safe = total.is_safe() || part.is_safe();
        state.consume_fuel((left.len() + right.len()) as u64 / 64)?;
        total = if safe {
            let joined = escaped(left, total.is_safe()) + &escaped(right, part.is_safe());
            Value::from_safe_string(joined)
        } else {
            Value::from([left, right].concat())
        };
    }
    Ok(total)
}

/// As Python's markupsafe escapes.
fn escape(text: &str) -> String {
    let text = text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;");
    text.replace('\'', "&#39;").replace('"', "&#34;")
}

/// The message of `raise_exception`, on its way out as the source of an error.
#[derive(Debug)]
struct Refusal(String);

impl fmt::Display for Refusal {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(&self.0)
    }
}

impl std::error::Error for Refusal {}

fn raise_exception(state: &State, message: &Value) -> Result<Value, Error> {
    let refusal = Refusal(print::str(state, message)?);
    Err(Error::new(ErrorKind::InvalidOperation, "raise_exception").with_source(refusal))
}

/// What the template gave to `raise_exception`, if that is what went wrong.
pub(super) fn refusal(error: &Error) -> Option<String> {
    let mut next: Option<&(dyn std::error::Error + 'static)> = Some(error);
    while let Some(error) = next {
        if let Some(refusal) = error.downcast_ref::<Refusal>() {
            return Some(refusal.0.clone());
        }
        next = error.source();
    }
    None
}

/// An error with all its causes, in one line.
pub(super) fn describe(error: &Error) -> String {
    let mut description = error.to_string();
    let mut next = std::error::Error::source(error);
    while let Some(cause) = next {
        description.push_str(&format!(": {cause}"));
        next = cause.source();
    }
    description
}
