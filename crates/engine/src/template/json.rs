//! JSON to template values and back: `tojson` writes what Python's `json.dumps` writes. Knows no template.

use minijinja::value::{Kwargs, ValueKind};
use minijinja::{Error, ErrorKind, State, Value};

use super::filters::charge;
use super::print;

/// Deeper than any tool's schema, and shallow enough for the stack.
const DEPTH_MAX: usize = 128;

pub(super) fn to_value(json: &serde_json::Value) -> Value {
    use serde_json::Value as Json;
    match json {
        Json::Null => Value::from(()),
        Json::Bool(flag) => Value::from(*flag),
        Json::Number(number) => match (number.as_i64(), number.as_u64()) {
            (Some(number), _) => Value::from(number),
            (_, Some(number)) => Value::from(number),
            _ => Value::from(number.as_f64().unwrap_or(f64::NAN)),
        },
        Json::String(text) => Value::from(text.as_str()),
        Json::Array(items) => items.iter().map(to_value).collect::<Vec<_>>().into(),
        Json::Object(fields) => {
            Value::from_pairs(fields.iter().map(|(name, value)| (name.as_str(), to_value(value))))
        }
    }
}

/// About how many bytes a value has when written.
pub(super) fn bytes(json: &serde_json::Value) -> u64 {
    const PUNCTUATION: u64 = 4;
    PUNCTUATION
        + match json {
            serde_json::Value::String(text) => text.len() as u64,
            serde_json::Value::Array(items) => items.iter().map(bytes).sum(),
            serde_json::Value::Object(fields) => {
                fields.iter().map(|(name, value)| name.len() as u64 + bytes(value)).sum()
            }
            _ => 0,
        }
}

/// `json.dumps(value, ensure_ascii=False, indent=None, separators=None, sort_keys=False)`, as transformers
/// gives it to templates.
pub(super) fn tojson(state: &State, value: &Value, arguments: Kwargs) -> Result<Value, Error> {
    let indent: Option<Value> = arguments.get("indent")?;
    let indent = match indent.filter(|indent| !indent.is_none()) {
        None => None,
        Some(indent) => Some(match indent.as_str() {
            Some(text) => text.to_string(),
            None => " ".repeat(usize::try_from(i64::try_from(indent)?.clamp(0, 64)).unwrap_or(0)),
        }),
    };
    let separators: Option<Vec<String>> = match arguments.get::<Option<Value>>("separators")? {
        Some(pair) if !pair.is_none() => Some(pair.try_iter()?.map(|part| part.to_string()).collect()),
        _ => None,
    };
    let (item_separator, key_separator) = match separators.as_deref() {
        None if indent.is_some() => (",".to_string(), ": ".to_string()),
        None => (", ".to_string(), ": ".to_string()),
        Some([item, key]) => (item.clone(), key.clone()),
        Some(_) => return Err(refused("separators are a pair")),
    };
    let mut writer = Writer {
        state,
        out: String::new(),
        indent,
        item_separator,
        key_separator,
        ensure_ascii: arguments.get::<Option<bool>>("ensure_ascii")?.unwrap_or(false),
        sort_keys: arguments.get::<Option<bool>>("sort_keys")?.unwrap_or(false),
    };
    arguments.assert_all_used()?;
    writer.value(value, 0)?;
    Ok(Value::from(writer.out))
}

fn refused(problem: impl Into<String>) -> Error {
    Error::new(ErrorKind::BadSerialization, format!("tojson: {}", problem.into()))
}

struct Writer<'s> {
    state: &'s State<'s, 's>,
    out: String,
    indent: Option<String>,
    item_separator: String,
    key_separator: String,
    ensure_ascii: bool,
    sort_keys: bool,
}

impl Writer<'_> {
    /// Pays for each value: lists may be far longer than the memory they take, and separators long.
    fn value(&mut self, value: &Value, depth: usize) -> Result<(), Error> {
        let indent = self.indent.as_ref().map_or(0, String::len);
        let around = self.item_separator.len() + self.key_separator.len() + indent * depth;
        charge(self.state, 64 + around + value.as_str().map_or(0, str::len))?;
        if depth > DEPTH_MAX {
            return Err(refused(format!("more than {DEPTH_MAX} levels deep")));
        }
        match value.kind() {
            ValueKind::None => self.out.push_str("null"),
            ValueKind::Bool => self.out.push_str(if value.is_true() { "true" } else { "false" }),
            ValueKind::Number if value.is_integer() => self.out.push_str(&value.to_string()),
            ValueKind::Number => self.float(value),
            ValueKind::String => self.string(value.as_str().unwrap_or_default()),
            ValueKind::Seq | ValueKind::Iterable => {
                self.container(['[', ']'], value.try_iter()?, depth, |writer, item| {
                    writer.value(&item, depth + 1)
                })?;
            }
            ValueKind::Map => {
                let mut keys: Vec<Value> = value.try_iter()?.collect();
                if self.sort_keys {
                    keys.sort();
                }
                self.container(['{', '}'], keys.into_iter(), depth, |writer, key| {
                    writer.key(&key)?;
                    writer.out.push_str(&writer.key_separator);
                    writer.value(&value.get_item(&key)?, depth + 1)
                })?;
            }
            _ => return Err(refused(format!("{} is not JSON serializable", value.kind()))),
        }
        Ok(())
    }

    fn float(&mut self, value: &Value) {
        let mut text = String::new();
        print::append_float(value, &mut text);
        self.out.push_str(match text.as_str() {
            "nan" => "NaN",
            "inf" => "Infinity",
            "-inf" => "-Infinity",
            finite => finite,
        });
    }

    fn container(
        &mut self,
        [open, close]: [char; 2],
        items: impl Iterator<Item = Value>,
        depth: usize,
        mut write: impl FnMut(&mut Self, Value) -> Result<(), Error>,
    ) -> Result<(), Error> {
        self.out.push(open);
        let mut empty = true;
        for item in items {
            if !std::mem::take(&mut empty) {
                self.out.push_str(&self.item_separator);
            }
            self.line(depth + 1);
            write(self, item)?;
        }
        if !empty {
            self.line(depth);
        }
        self.out.push(close);
        Ok(())
    }

    /// A new line, where there is an indent.
    fn line(&mut self, depth: usize) {
        if let Some(indent) = &self.indent {
            self.out.push('\n');
            (0..depth).for_each(|_| self.out.push_str(indent));
        }
    }

    /// Python writes keys that are numbers, booleans or none as strings.
    fn key(&mut self, key: &Value) -> Result<(), Error> {
        match key.kind() {
            ValueKind::String => self.string(key.as_str().unwrap_or_default()),
            ValueKind::Number | ValueKind::Bool | ValueKind::None => {
                self.out.push('"');
                self.value(key, 0)?;
                self.out.push('"');
            }
            kind => return Err(refused(format!("keys must be str, int, float, bool or None, not {kind}"))),
        }
        Ok(())
    }

    fn string(&mut self, text: &str) {
        self.out.push('"');
        for letter in text.chars() {
            match letter {
                '"' => self.out.push_str("\\\""),
                '\\' => self.out.push_str("\\\\"),
                '\n' => self.out.push_str("\\n"),
                '\r' => self.out.push_str("\\r"),
                '\t' => self.out.push_str("\\t"),
                '\u{8}' => self.out.push_str("\\b"),
                '\u{c}' => self.out.push_str("\\f"),
                letter if letter < ' ' || (self.ensure_ascii && !letter.is_ascii()) => {
                    for unit in letter.encode_utf16(&mut [0; 2]) {
                        self.out.push_str(&format!("\\u{unit:04x}"));
                    }
                }
                letter => self.out.push(letter),
            }
        }
        self.out.push('"');
    }
}
