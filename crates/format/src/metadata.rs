//! The key-value pairs of a model file, asked for by key and type. Knows no model family: callers know
//! the keys they need, and an error names the file, the key and where its value lies.

use std::collections::HashMap;
use std::path::{Path, PathBuf};

use crate::FormatError;
use crate::value::{Array, Strings, Value};

/// Ordered as in the file, found by key.
#[derive(Clone, Debug)]
pub struct Metadata {
    /// The file they came from, for messages.
    path: PathBuf,
    entries: Vec<Entry>,
    index: HashMap<String, usize>,
}

#[derive(Clone, Debug)]
struct Entry {
    key: String,
    value: Value,
    /// Where the value lies in the file; 0 for one made in memory.
    offset: u64,
}

impl Default for Metadata {
    fn default() -> Metadata {
        Metadata::new()
    }
}

impl Metadata {
    pub fn new() -> Metadata {
        Metadata::of_file(Path::new("(metadata made in memory)"))
    }

    pub(crate) fn of_file(path: &Path) -> Metadata {
        Metadata { path: path.to_path_buf(), entries: Vec::new(), index: HashMap::new() }
    }

    /// The file that these were read from, for messages.
    pub fn path(&self) -> &Path {
        &self.path
    }

    pub fn len(&self) -> usize {
        self.entries.len()
    }

    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    pub fn iter(&self) -> impl ExactSizeIterator<Item = (&str, &Value)> {
        self.entries.iter().map(|entry| (entry.key.as_str(), &entry.value))
    }

    pub fn get(&self, key: &str) -> Option<&Value> {
        self.entry(key).map(|entry| &entry.value)
    }

    /// Where the value of `key` lies in its file; 0 for one made in memory.
    pub(crate) fn offset(&self, key: &str) -> u64 {
        self.entry(key).map_or(0, |entry| entry.offset)
    }

    pub fn contains(&self, key: &str) -> bool {
        self.index.contains_key(key)
    }

    /// Adds a pair, or replaces the value where the key exists.
    pub fn set(&mut self, key: &str, value: Value) {
        match self.index.get(key) {
            Some(&at) => self.entries[at].value = value,
            None => self.append(key.to_string(), value, 0),
        }
    }

    pub fn remove(&mut self, key: &str) {
        if let Some(at) = self.index.remove(key) {
            self.entries.remove(at);
            self.index.values_mut().filter(|place| **place > at).for_each(|place| *place -= 1);
        }
    }

    /// Adds a pair whose key is known to be new.
    pub(crate) fn append(&mut self, key: String, value: Value, offset: u64) {
        let before = self.index.insert(key.clone(), self.entries.len());
        assert!(before.is_none(), "metadata key {key} appended twice");
        self.entries.push(Entry { key, value, offset });
    }

    fn entry(&self, key: &str) -> Option<&Entry> {
        self.index.get(key).map(|&at| &self.entries[at])
    }

    /// The value of `key` as `convert` sees it; an error where the key exists but `convert` refuses.
    fn typed<'m, T>(
        &'m self,
        key: &str,
        expected: &'static str,
        convert: impl FnOnce(&'m Value) -> Option<T>,
    ) -> Result<Option<T>, FormatError> {
        let Some(entry) = self.entry(key) else { return Ok(None) };
        match convert(&entry.value) {
            Some(converted) => Ok(Some(converted)),
            None => Err(FormatError::WrongType {
                path: self.path.clone(),
                key: key.to_string(),
                offset: entry.offset,
                expected,
                found: describe(&entry.value),
            }),
        }
    }

    /// Any whole number that fits, of whatever width and sign it is stored.
    pub fn u32(&self, key: &str) -> Result<Option<u32>, FormatError> {
        self.typed(key, "a whole number of 0 to 4294967295", |value| value.integer()?.try_into().ok())
    }

    pub fn i32(&self, key: &str) -> Result<Option<i32>, FormatError> {
        self.typed(key, "a whole number that fits 32 bits", |value| value.integer()?.try_into().ok())
    }

    pub fn u64(&self, key: &str) -> Result<Option<u64>, FormatError> {
        self.typed(key, "a whole number of 0 or more", |value| value.integer()?.try_into().ok())
    }

    pub fn f32(&self, key: &str) -> Result<Option<f32>, FormatError> {
        self.typed(key, "a number", |value| match *value {
            Value::F32(number) => Some(number),
            Value::F64(number) => Some(number as f32),
            _ => value.integer().map(|number| number as f32),
        })
    }

    pub fn bool(&self, key: &str) -> Result<Option<bool>, FormatError> {
        self.typed(key, "a bool", |value| match *value {
            Value::Bool(flag) => Some(flag),
            _ => None,
        })
    }

    pub fn str(&self, key: &str) -> Result<Option<&str>, FormatError> {
        self.typed(key, "a string of valid UTF-8", |value| match value {
            Value::Str(bytes) => std::str::from_utf8(bytes).ok(),
            _ => None,
        })
    }

    pub fn strings(&self, key: &str) -> Result<Option<&Strings>, FormatError> {
        self.typed(key, "an array of strings", |value| match value {
            Value::Array(Array::Str(strings)) => Some(strings),
            _ => None,
        })
    }

    pub fn u32s(&self, key: &str) -> Result<Option<Vec<u32>>, FormatError> {
        self.typed(key, "an array of whole numbers of 0 to 4294967295", |value| integers(array(value)?))
    }

    pub fn i32s(&self, key: &str) -> Result<Option<Vec<i32>>, FormatError> {
        self.typed(key, "an array of whole numbers that fit 32 bits", |value| integers(array(value)?))
    }

    pub fn f32s(&self, key: &str) -> Result<Option<Vec<f32>>, FormatError> {
        self.typed(key, "an array of numbers", |value| match array(value)? {
            Array::F32(numbers) => Some(numbers.clone()),
            Array::F64(numbers) => Some(numbers.iter().map(|&number| number as f32).collect()),
            _ => None,
        })
    }

    pub fn bools(&self, key: &str) -> Result<Option<Vec<bool>>, FormatError> {
        self.typed(key, "an array of bools", |value| match array(value)? {
            Array::Bool(flags) => Some(flags.clone()),
            _ => None,
        })
    }

    pub fn require_u32(&self, key: &str) -> Result<u32, FormatError> {
        self.u32(key)?.ok_or_else(|| self.missing(key))
    }

    pub fn require_f32(&self, key: &str) -> Result<f32, FormatError> {
        self.f32(key)?.ok_or_else(|| self.missing(key))
    }

    pub fn require_bool(&self, key: &str) -> Result<bool, FormatError> {
        self.bool(key)?.ok_or_else(|| self.missing(key))
    }

    pub fn require_str(&self, key: &str) -> Result<&str, FormatError> {
        self.str(key)?.ok_or_else(|| self.missing(key))
    }

    pub fn require_strings(&self, key: &str) -> Result<&Strings, FormatError> {
        self.strings(key)?.ok_or_else(|| self.missing(key))
    }

    fn missing(&self, key: &str) -> FormatError {
        FormatError::MissingKey { path: self.path.clone(), key: key.to_string() }
    }
}

fn array(value: &Value) -> Option<&Array> {
    match value {
        Value::Array(array) => Some(array),
        _ => None,
    }
}

/// All elements of a whole-number array, or `None` where it is of another kind or one does not fit.
fn integers<T>(array: &Array) -> Option<Vec<T>>
where
    T: TryFrom<u8> + TryFrom<i8> + TryFrom<u16> + TryFrom<i16>,
    T: TryFrom<u32> + TryFrom<i32> + TryFrom<u64> + TryFrom<i64>,
{
    fn all<N: Copy, T: TryFrom<N>>(numbers: &[N]) -> Option<Vec<T>> {
        numbers.iter().map(|&number| T::try_from(number).ok()).collect()
    }
    match array {
        Array::U8(numbers) => all(numbers),
        Array::I8(numbers) => all(numbers),
        Array::U16(numbers) => all(numbers),
        Array::I16(numbers) => all(numbers),
        Array::U32(numbers) => all(numbers),
        Array::I32(numbers) => all(numbers),
        Array::U64(numbers) => all(numbers),
        Array::I64(numbers) => all(numbers),
        _ => None,
    }
}

/// The type of a value, and the value itself where it is a number that did not fit.
fn describe(value: &Value) -> String {
    match value.integer() {
        Some(number) => format!("{} {number}", value.type_name()),
        None => value.type_name(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn whole_numbers_of_any_width_are_taken_if_they_fit() {
        let mut metadata = Metadata::new();
        metadata.set("small", Value::I64(7));
        metadata.set("negative", Value::I8(-1));
        metadata.set("text", Value::string("7"));
        assert_eq!(metadata.u32("small").unwrap(), Some(7));
        assert_eq!(metadata.i32("negative").unwrap(), Some(-1));
        assert_eq!(metadata.u32("absent").unwrap(), None);
        let message = metadata.u32("negative").unwrap_err().to_string();
        assert!(message.contains("negative") && message.contains("i8 -1"), "{message}");
        assert!(metadata.u32("text").is_err());
        assert!(metadata.require_u32("absent").unwrap_err().to_string().contains("absent"));
    }

    #[test]
    fn setting_and_removing_keeps_order_and_lookup() {
        let mut metadata = Metadata::new();
        for key in ["a", "b", "c"] {
            metadata.set(key, Value::string(key));
        }
        metadata.set("b", Value::U8(1));
        metadata.remove("a");
        metadata.remove("absent");
        assert_eq!(metadata.iter().map(|(key, _)| key).collect::<Vec<_>>(), ["b", "c"]);
        assert_eq!(metadata.str("c").unwrap(), Some("c"));
        assert_eq!(metadata.get("b"), Some(&Value::U8(1)));
    }
}
