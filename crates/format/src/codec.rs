//! Metadata values between memory and bytes, both ways. Knows nothing of what any key means.

use std::fmt;
use std::io::{self, Write};

use crate::FormatError;
use crate::cursor::Cursor;
use crate::error::shown;
use crate::value::{Array, Strings, Value};

/// Arrays may hold arrays; no real file goes deeper than one.
const DEPTH_MAX: u32 = 8;

/// Bytes that an array takes at least: the type of its elements and their count.
const ARRAY_BYTES_MIN: u64 = 12;

/// Reads the value of `key`; the cursor stands on its type.
pub(crate) fn read_value(cursor: &mut Cursor<'_>, key: &str) -> Result<Value, FormatError> {
    let name = shown(key);
    let field = format_args!("value of metadata key {name}");
    let offset = cursor.position();
    Ok(match cursor.u32(field)? {
        0 => Value::U8(cursor.number(u8::from_le_bytes, field)?),
        1 => Value::I8(cursor.number(i8::from_le_bytes, field)?),
        2 => Value::U16(cursor.number(u16::from_le_bytes, field)?),
        3 => Value::I16(cursor.number(i16::from_le_bytes, field)?),
        4 => Value::U32(cursor.number(u32::from_le_bytes, field)?),
        5 => Value::I32(cursor.number(i32::from_le_bytes, field)?),
        6 => Value::F32(cursor.number(f32::from_le_bytes, field)?),
        7 => Value::Bool(read_bool(cursor, field)?),
        8 => Value::Str(cursor.string(field)?),
        9 => Value::Array(read_array(cursor, field, 1)?),
        10 => Value::U64(cursor.number(u64::from_le_bytes, field)?),
        11 => Value::I64(cursor.number(i64::from_le_bytes, field)?),
        12 => Value::F64(cursor.number(f64::from_le_bytes, field)?),
        id => return Err(unknown_type(cursor, offset, field, id)),
    })
}

fn read_array(cursor: &mut Cursor<'_>, field: fmt::Arguments<'_>, depth: u32) -> Result<Array, FormatError> {
    let offset = cursor.position();
    let id = cursor.u32(field)?;
    let count = cursor.u64(field)?;
    Ok(match id {
        0 => Array::U8(cursor.numbers(count, u8::from_le_bytes, field)?),
        1 => Array::I8(cursor.numbers(count, i8::from_le_bytes, field)?),
        2 => Array::U16(cursor.numbers(count, u16::from_le_bytes, field)?),
        3 => Array::I16(cursor.numbers(count, i16::from_le_bytes, field)?),
        4 => Array::U32(cursor.numbers(count, u32::from_le_bytes, field)?),
        5 => Array::I32(cursor.numbers(count, i32::from_le_bytes, field)?),
        6 => Array::F32(cursor.numbers(count, f32::from_le_bytes, field)?),
        7 => {
            cursor.expect(count, 1, field)?;
            Array::Bool((0..count).map(|_| read_bool(cursor, field)).collect::<Result<_, _>>()?)
        }
        8 => Array::Str(read_strings(cursor, count, field)?),
        9 if depth == DEPTH_MAX => {
            return Err(cursor.malformed(
                offset,
                field,
                format_args!("arrays lie more than {DEPTH_MAX} deep in each other; the file is damaged"),
            ));
        }
        9 => {
            cursor.expect(count, ARRAY_BYTES_MIN, field)?;
            // Grows as elements really arrive: the levels below make the same claim on the same bytes.
            let mut arrays = Vec::new();
            for _ in 0..count {
                arrays.push(read_array(cursor, field, depth + 1)?);
            }
            Array::Array(arrays)
        }
        10 => Array::U64(cursor.numbers(count, u64::from_le_bytes, field)?),
        11 => Array::I64(cursor.numbers(count, i64::from_le_bytes, field)?),
        12 => Array::F64(cursor.numbers(count, f64::from_le_bytes, field)?),
        id => return Err(unknown_type(cursor, offset, field, id)),
    })
}

fn read_strings(
    cursor: &mut Cursor<'_>,
    count: u64,
    field: fmt::Arguments<'_>,
) -> Result<Strings, FormatError> {
    const LENGTH_BYTES: u64 = 8;
    cursor.expect(count, LENGTH_BYTES, field)?;
    let mut strings = Strings::default();
    for index in 0..count {
        let bytes = cursor.u64(field)?;
        strings
            .push_with(|arena| cursor.append(arena, bytes, format_args!("string {index} of the {field}")))?;
    }
    Ok(strings)
}

fn read_bool(cursor: &mut Cursor<'_>, field: fmt::Arguments<'_>) -> Result<bool, FormatError> {
    let offset = cursor.position();
    match cursor.number(u8::from_le_bytes, field)? {
        0 => Ok(false),
        1 => Ok(true),
        other => {
            Err(cursor.malformed(offset, field, format_args!("expected a bool (0 or 1), found {other}")))
        }
    }
}

fn unknown_type(cursor: &Cursor<'_>, offset: u64, field: fmt::Arguments<'_>, id: u32) -> FormatError {
    let problem = format_args!("expected a value type of 0 to 12, found {id}; the file is damaged");
    cursor.malformed(offset, field, problem)
}

pub(crate) fn write_string(out: &mut impl Write, string: &[u8]) -> io::Result<()> {
    out.write_all(&(string.len() as u64).to_le_bytes())?;
    out.write_all(string)
}

/// Writes a value with its type before it, as [`read_value`] reads it.
pub(crate) fn write_value(out: &mut impl Write, value: &Value) -> io::Result<()> {
    out.write_all(&value.id().to_le_bytes())?;
    match value {
        Value::U8(n) => out.write_all(&n.to_le_bytes()),
        Value::I8(n) => out.write_all(&n.to_le_bytes()),
        Value::U16(n) => out.write_all(&n.to_le_bytes()),
        Value::I16(n) => out.write_all(&n.to_le_bytes()),
        Value::U32(n) => out.write_all(&n.to_le_bytes()),
        Value::I32(n) => out.write_all(&n.to_le_bytes()),
        Value::F32(n) => out.write_all(&n.to_le_bytes()),
        Value::Bool(b) => out.write_all(&[u8::from(*b)]),
        Value::Str(bytes) => write_string(out, bytes),
        Value::Array(array) => write_array(out, array),
        Value::U64(n) => out.write_all(&n.to_le_bytes()),
        Value::I64(n) => out.write_all(&n.to_le_bytes()),
        Value::F64(n) => out.write_all(&n.to_le_bytes()),
    }
}

fn write_array(out: &mut impl Write, array: &Array) -> io::Result<()> {
    out.write_all(&array.element_id().to_le_bytes())?;
    out.write_all(&(array.len() as u64).to_le_bytes())?;
    match array {
        Array::U8(v) => out.write_all(v),
        Array::I8(v) => v.iter().try_for_each(|n| out.write_all(&n.to_le_bytes())),
        Array::U16(v) => v.iter().try_for_each(|n| out.write_all(&n.to_le_bytes())),
        Array::I16(v) => v.iter().try_for_each(|n| out.write_all(&n.to_le_bytes())),
        Array::U32(v) => v.iter().try_for_each(|n| out.write_all(&n.to_le_bytes())),
        Array::I32(v) => v.iter().try_for_each(|n| out.write_all(&n.to_le_bytes())),
        Array::F32(v) => v.iter().try_for_each(|n| out.write_all(&n.to_le_bytes())),
        Array::Bool(v) => v.iter().try_for_each(|b| out.write_all(&[u8::from(*b)])),
        Array::Str(v) => v.iter().try_for_each(|s| write_string(out, s)),
        Array::Array(v) => v.iter().try_for_each(|inner| write_array(out, inner)),
        Array::U64(v) => v.iter().try_for_each(|n| out.write_all(&n.to_le_bytes())),
        Array::I64(v) => v.iter().try_for_each(|n| out.write_all(&n.to_le_bytes())),
        Array::F64(v) => v.iter().try_for_each(|n| out.write_all(&n.to_le_bytes())),
    }
}
