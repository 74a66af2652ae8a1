//! A metadata value in memory: what it may hold. Knows neither its bytes on disk nor what any key means.

use std::fmt;

use crate::error::shown;

#[derive(Clone, Debug, PartialEq)]
pub enum Value {
    U8(u8),
    I8(i8),
    U16(u16),
    I16(i16),
    U32(u32),
    I32(i32),
    F32(f32),
    Bool(bool),
    /// Meant to be UTF-8, but kept as found.
    Str(Vec<u8>),
    Array(Array),
    U64(u64),
    I64(i64),
    F64(f64),
}

#[derive(Clone, Debug, PartialEq)]
pub enum Array {
    U8(Vec<u8>),
    I8(Vec<i8>),
    U16(Vec<u16>),
    I16(Vec<i16>),
    U32(Vec<u32>),
    I32(Vec<i32>),
    F32(Vec<f32>),
    Bool(Vec<bool>),
    Str(Strings),
    Array(Vec<Array>),
    U64(Vec<u64>),
    I64(Vec<i64>),
    F64(Vec<f64>),
}

/// Many strings in one piece of memory: a vocabulary has hundreds of thousands.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Strings {
    bytes: Vec<u8>,
    /// Where string `i` ends in `bytes`.
    ends: Vec<usize>,
}

impl Strings {
    pub fn len(&self) -> usize {
        self.ends.len()
    }

    pub fn is_empty(&self) -> bool {
        self.ends.is_empty()
    }

    pub fn get(&self, index: usize) -> Option<&[u8]> {
        let end = *self.ends.get(index)?;
        let start = if index == 0 { 0 } else { self.ends[index - 1] };
        Some(&self.bytes[start..end])
    }

    /// The string if it exists and is valid UTF-8.
    pub fn str(&self, index: usize) -> Option<&str> {
        std::str::from_utf8(self.get(index)?).ok()
    }

    pub fn iter(&self) -> impl ExactSizeIterator<Item = &[u8]> {
        (0..self.len()).map(|index| self.get(index).expect("index below len"))
    }

    pub fn push(&mut self, string: &[u8]) {
        self.bytes.extend_from_slice(string);
        self.ends.push(self.bytes.len());
    }

    /// Adds the string that `append` puts at the end of the memory it is given.
    pub(crate) fn push_with<E>(
        &mut self,
        append: impl FnOnce(&mut Vec<u8>) -> Result<(), E>,
    ) -> Result<(), E> {
        append(&mut self.bytes)?;
        self.ends.push(self.bytes.len());
        Ok(())
    }
}

impl<S: AsRef<[u8]>> FromIterator<S> for Strings {
    fn from_iter<I: IntoIterator<Item = S>>(strings: I) -> Self {
        let mut all = Strings::default();
        strings.into_iter().for_each(|string| all.push(string.as_ref()));
        all
    }
}

impl Array {
    pub fn len(&self) -> usize {
        match self {
            Array::U8(v) => v.len(),
            Array::I8(v) => v.len(),
            Array::U16(v) => v.len(),
            Array::I16(v) => v.len(),
            Array::U32(v) => v.len(),
            Array::I32(v) => v.len(),
            Array::F32(v) => v.len(),
            Array::Bool(v) => v.len(),
            Array::Str(v) => v.len(),
            Array::Array(v) => v.len(),
            Array::U64(v) => v.len(),
            Array::I64(v) => v.len(),
            Array::F64(v) => v.len(),
        }
    }

    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The number that stands for the type of the elements in a file (`enum gguf_type`).
    pub(crate) fn element_id(&self) -> u32 {
        match self {
            Array::U8(_) => 0,
            Array::I8(_) => 1,
            Array::U16(_) => 2,
            Array::I16(_) => 3,
            Array::U32(_) => 4,
            Array::I32(_) => 5,
            Array::F32(_) => 6,
            Array::Bool(_) => 7,
            Array::Str(_) => 8,
            Array::Array(_) => 9,
            Array::U64(_) => 10,
            Array::I64(_) => 11,
            Array::F64(_) => 12,
        }
    }
}

impl Value {
    pub fn string(text: &str) -> Value {
        Value::Str(text.as_bytes().to_vec())
    }

    /// What the value is, for messages: `u32`, `an array of 12 x string`.
    pub fn type_name(&self) -> String {
        match self {
            Value::Array(array) => {
                let element = ELEMENT_NAMES[array.element_id() as usize];
                format!("an array of {} x {element}", array.len())
            }
            other => ELEMENT_NAMES[other.id() as usize].to_string(),
        }
    }

    /// The number that stands for this type in a file (`enum gguf_type`).
    pub(crate) fn id(&self) -> u32 {
        match self {
            Value::U8(_) => 0,
            Value::I8(_) => 1,
            Value::U16(_) => 2,
            Value::I16(_) => 3,
            Value::U32(_) => 4,
            Value::I32(_) => 5,
            Value::F32(_) => 6,
            Value::Bool(_) => 7,
            Value::Str(_) => 8,
            Value::Array(_) => 9,
            Value::U64(_) => 10,
            Value::I64(_) => 11,
            Value::F64(_) => 12,
        }
    }

    /// Any whole number, widened.
    pub(crate) fn integer(&self) -> Option<i128> {
        Some(match *self {
            Value::U8(n) => n.into(),
            Value::I8(n) => n.into(),
            Value::U16(n) => n.into(),
            Value::I16(n) => n.into(),
            Value::U32(n) => n.into(),
            Value::I32(n) => n.into(),
            Value::U64(n) => n.into(),
            Value::I64(n) => n.into(),
            _ => return None,
        })
    }
}

const ELEMENT_NAMES: [&str; 13] =
    ["u8", "i8", "u16", "i16", "u32", "i32", "f32", "bool", "string", "array", "u64", "i64", "f64"];

/// One line, as `adit info` shows it: long strings cut, long arrays by their first elements.
impl fmt::Display for Value {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Value::U8(n) => write!(out, "{n}"),
            Value::I8(n) => write!(out, "{n}"),
            Value::U16(n) => write!(out, "{n}"),
            Value::I16(n) => write!(out, "{n}"),
            Value::U32(n) => write!(out, "{n}"),
            Value::I32(n) => write!(out, "{n}"),
            Value::F32(n) => write!(out, "{n}"),
            Value::Bool(n) => write!(out, "{n}"),
            Value::Str(bytes) => out.write_str(&shown(&String::from_utf8_lossy(bytes))),
            Value::Array(array) => array.fmt(out),
            Value::U64(n) => write!(out, "{n}"),
            Value::I64(n) => write!(out, "{n}"),
            Value::F64(n) => write!(out, "{n}"),
        }
    }
}

impl fmt::Display for Array {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Array::U8(v) => list(out, v.iter()),
            Array::I8(v) => list(out, v.iter()),
            Array::U16(v) => list(out, v.iter()),
            Array::I16(v) => list(out, v.iter()),
            Array::U32(v) => list(out, v.iter()),
            Array::I32(v) => list(out, v.iter()),
            Array::F32(v) => list(out, v.iter()),
            Array::Bool(v) => list(out, v.iter()),
            Array::Str(v) => list(out, v.iter().map(|s| shown(&String::from_utf8_lossy(s)))),
            Array::Array(v) => list(out, v.iter()),
            Array::U64(v) => list(out, v.iter()),
            Array::I64(v) => list(out, v.iter()),
            Array::F64(v) => list(out, v.iter()),
        }
    }
}

fn list<T: fmt::Display>(
    out: &mut fmt::Formatter<'_>,
    mut items: impl ExactSizeIterator<Item = T>,
) -> fmt::Result {
    const SHOWN: usize = 6;
    let count = items.len();
    out.write_str("[")?;
    for (index, item) in items.by_ref().take(SHOWN).enumerate() {
        let comma = if index == 0 { "" } else { ", " };
        write!(out, "{comma}{item}")?;
    }
    if count > SHOWN {
        write!(out, ", ... {count} in all")?;
    }
    out.write_str("]")
}
