//! Filters and tests that differ between jinja2 and minijinja, as jinja2 has them. Knows no template.

use minijinja::value::{Kwargs, Rest, ValueKind, ValueOrKwargs};
use minijinja::{Environment, Error, ErrorKind, State, Value};

use super::{json, print};

pub(super) fn add_to(environment: &mut Environment<'static>) {
    environment.add_filter("default", default);
    environment.add_filter("d", default);
    environment.add_filter("float", float);
    environment.add_filter("indent", indent);
    environment.add_filter("int", int);
    environment.add_filter("string", |state: &State, value: &Value| print::str(state, value));
    environment.add_filter("tojson", json::tojson);
    environment.add_test("callable", |value: &Value| {
        matches!(value.kind(), ValueKind::Plain | ValueKind::Undefined)
    });
    environment.add_test("iterable", is_iterable);
    environment.add_test("sequence", is_iterable);
}

/// In Python strings and mappings are iterable too, and even what is undefined; numbers and None are not.
/// `sequence` means that `len` and an index work, which is the same set here.
pub(super) fn is_iterable(value: &Value) -> bool {
    use ValueKind::{Iterable, Map, Seq, String, Undefined};
    matches!(value.kind(), Undefined | String | Seq | Iterable | Map)
}

/// The argument at a place, or by its name.
fn argument<'a, T>(placed: Option<T>, name: &'a str, named: &'a Kwargs) -> Result<Option<T>, Error>
where
    T: minijinja::value::ArgType<'a, Output = T>,
    Option<T>: minijinja::value::ArgType<'a, Output = Option<T>>,
{
    match placed {
        Some(value) => Ok(Some(value)),
        None if named.has(name) => named.get(name),
        None => Ok(None),
    }
}

/// `default(value, default_value="", boolean=False)`
fn default(
    value: &Value,
    replacement: Option<Value>,
    boolean: Option<bool>,
    named: Kwargs,
) -> Result<Value, Error> {
    let replacement = argument(replacement, "default_value", &named)?;
    let boolean = argument(boolean, "boolean", &named)?.unwrap_or(false);
    named.assert_all_used()?;
    let replaced = value.is_undefined() || (boolean && !value.is_true());
    Ok(if replaced { replacement.unwrap_or_else(|| Value::from("")) } else { value.clone() })
}

/// `int(value, default=0)`
fn int(value: &Value, otherwise: Option<Value>, named: Kwargs) -> Result<Value, Error> {
    let otherwise = argument(otherwise, "default", &named)?.unwrap_or_else(|| Value::from(0));
    named.assert_all_used()?;
    let number = match value.as_str().map(str::trim) {
        Some(text) => match text.parse::<i64>() {
            Ok(number) => return Ok(Value::from(number)),
            Err(_) => text.parse::<f64>().ok(),
        },
        None if value.is_integer() => return Ok(value.clone()),
        None if value.kind() == ValueKind::Bool => Some(f64::from(u8::from(value.is_true()))),
        None => f64::try_from(value.clone()).ok(),
    };
    Ok(number.filter(|number| number.is_finite()).map_or(otherwise, |number| Value::from(number as i64)))
}

/// `float(value, default=0.0)`
fn float(value: &Value, otherwise: Option<Value>, named: Kwargs) -> Result<Value, Error> {
    let otherwise = argument(otherwise, "default", &named)?.unwrap_or_else(|| Value::from(0.0));
    named.assert_all_used()?;
    let number = match value.as_str() {
        Some(text) => text.trim().parse::<f64>().ok(),
        None => f64::try_from(value.clone()).ok(),
    };
    Ok(number.map_or(otherwise, Value::from))
}

/// `indent(text, width=4, first=False, blank=False)`
fn indent(state: &State, text: &str, arguments: Rest<ValueOrKwargs>) -> Result<String, Error> {
    let mut placed = arguments.into_values();
    let named = match placed.last().is_some_and(Value::is_kwargs) {
        true => Kwargs::try_from(placed.pop().unwrap_or_default())?,
        false => Kwargs::from_iter::<[(String, Value); 0]>([]),
    };
    let mut placed = placed.into_iter();
    let [width, first, blank] = std::array::from_fn(|_| placed.next());
    let width = argument(width, "width", &named)?.unwrap_or_else(|| Value::from(4));
    let first = argument(first, "first", &named)?.is_some_and(|first| first.is_true());
    let blank = argument(blank, "blank", &named)?.is_some_and(|blank| blank.is_true());
    named.assert_all_used()?;
    let indentation = match width.as_str() {
        Some(text) => text.to_string(),
        None => {
            let width = usize::try_from(i64::try_from(width)?.max(0)).unwrap_or(usize::MAX);
            charge(state, width)?;
            " ".repeat(width)
        }
    };
    charge(state, text.matches('\n').count().saturating_mul(indentation.len()))?;
    let mut indented = String::new();
    for (index, line) in text.split('\n').enumerate() {
        let line = line.strip_suffix('\r').unwrap_or(line);
        indented.push_str(if index == 0 { "" } else { "\n" });
        if if index == 0 { first } else { blank || !line.is_empty() } {
            indented.push_str(&indentation);
        }
        indented.push_str(line);
    }
    Ok(indented)
}

/// Pays for `bytes` that are about to be made.
pub(super) fn charge(state: &State, bytes: usize) -> Result<(), Error> {
    state.consume_fuel(bytes as u64 / 64).map_err(|error| Error::new(ErrorKind::OutOfFuel, error.to_string()))
}
