//! What the writer writes, the reader reads; and a writer that stops leaves nothing behind.

use std::fs;
use std::path::Path;

use adit_format::writer::{Existing, Layout, TensorSpec, Writer};
use adit_format::{Array, FormatError, Gguf, Metadata, Strings, TensorType, Value};

fn every_value() -> Metadata {
    let mut metadata = Metadata::new();
    let strings: Strings = ["", "Ġa", "\u{1F600}"].into_iter().collect();
    let not_utf8: Strings = [b"\xff\xfe".as_slice(), b"b"].into_iter().collect();
    let values = [
        Value::U8(1),
        Value::I8(-2),
        Value::U16(3),
        Value::I16(-4),
        Value::U32(5),
        Value::I32(-6),
        Value::F32(0.5),
        Value::Bool(true),
        Value::string("text"),
        Value::Str(vec![0xff, 0]),
        Value::U64(1 << 60),
        Value::I64(-(1 << 60)),
        Value::F64(1e300),
        Value::Array(Array::U8(vec![1, 2])),
        Value::Array(Array::I8(vec![-1])),
        Value::Array(Array::U16(vec![3])),
        Value::Array(Array::I16(vec![-3])),
        Value::Array(Array::U32(vec![])),
        Value::Array(Array::I32(vec![-7, 7])),
        Value::Array(Array::F32(vec![1.0, -0.0])),
        Value::Array(Array::Bool(vec![true, false])),
        Value::Array(Array::Str(strings)),
        Value::Array(Array::Str(not_utf8)),
        Value::Array(Array::Array(vec![Array::U8(vec![1]), Array::Array(vec![])])),
        Value::Array(Array::U64(vec![u64::MAX])),
        Value::Array(Array::I64(vec![i64::MIN])),
        Value::Array(Array::F64(vec![f64::MIN])),
    ];
    for (index, value) in values.into_iter().enumerate() {
        metadata.set(&format!("key.{index}"), value);
    }
    metadata
}

fn specs() -> Vec<TensorSpec> {
    let spec = |name: &str, kind, dims: &[u64]| TensorSpec { name: name.into(), kind, dims: dims.to_vec() };
    vec![
        spec("a.weight", TensorType::Q4K, &[256, 3]),
        spec("b.weight", TensorType::F32, &[5]),
        spec("c.weight", TensorType::Mxfp4, &[32, 2, 2, 1]),
    ]
}

fn write(path: &Path, metadata: &Metadata, specs: &[TensorSpec]) -> Result<u64, FormatError> {
    let layout = Layout::new(metadata, specs)?;
    let bytes = layout.file_bytes();
    let mut writer = Writer::create(path, layout, Existing::Refuse)?;
    writer.write(&[1; 432])?;
    writer.write(&[2; 15])?;
    // Over the end of one tensor into the next.
    writer.write(&[&[2; 5][..], &[3; 68]].concat())?;
    writer.finish()?;
    Ok(bytes)
}

#[test]
fn everything_written_is_read_back() {
    let folder = tempfile::tempdir().unwrap();
    for alignment in [None, Some(1), Some(64), Some(4096)] {
        let mut metadata = every_value();
        if let Some(alignment) = alignment {
            metadata.set("general.alignment", Value::U32(alignment));
        }
        let path = folder.path().join(format!("{alignment:?}.gguf"));
        let planned = write(&path, &metadata, &specs()).unwrap();
        let bytes = fs::read(&path).unwrap();
        assert_eq!(planned, bytes.len() as u64);

        let model = Gguf::open(&path).unwrap();
        assert_eq!(model.version(), 3);
        assert!(model.metadata().iter().eq(metadata.iter()));
        assert_eq!(model.tensors().len(), 3);
        for (found, expected) in model.tensors().iter().zip(specs()) {
            assert_eq!(
                (&found.name, found.kind, &found.dims),
                (&expected.name, expected.kind, &expected.dims)
            );
            assert!(found.offset.is_multiple_of(alignment.unwrap_or(32).into()));
        }
        for (name, value, length) in [("a.weight", 1, 432), ("b.weight", 2, 20), ("c.weight", 3, 68)] {
            let tensor = model.tensor(name).unwrap();
            let data = &bytes[tensor.offset as usize..][..tensor.bytes as usize];
            assert!(data.len() == length && data.iter().all(|&byte| byte == value), "{name}");
        }
    }
}

#[test]
fn a_file_without_tensors_opens() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("vocab.gguf");
    let layout = Layout::new(&every_value(), &[]).unwrap();
    Writer::create(&path, layout, Existing::Refuse).unwrap().finish().unwrap();
    let model = Gguf::open(&path).unwrap();
    assert_eq!((model.tensors().len(), model.metadata().len()), (0, 27));
}

#[test]
fn an_abandoned_writer_leaves_nothing_behind() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("model.gguf");
    let layout = Layout::new(&Metadata::new(), &specs()).unwrap();
    let mut writer = Writer::create(&path, layout, Existing::Refuse).unwrap();
    writer.write(&[1; 100]).unwrap();
    drop(writer);
    assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 0);
}

#[test]
fn an_existing_file_is_replaced_only_on_request() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("model.gguf");
    fs::write(&path, "precious").unwrap();
    let layout = || Layout::new(&Metadata::new(), &[]).unwrap();
    let refused = Writer::create(&path, layout(), Existing::Refuse).map(drop).unwrap_err();
    assert!(matches!(refused, FormatError::Exists { .. }), "{refused}");
    assert_eq!(fs::read(&path).unwrap(), b"precious");

    Writer::create(&path, layout(), Existing::Replace).unwrap().finish().unwrap();
    assert!(Gguf::open(&path).is_ok());
    assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1);
}

#[test]
fn impossible_dimensions_are_refused() {
    for dims in [&[100, 2][..], &[], &[256, 0], &[256, u64::MAX, u64::MAX]] {
        let spec = TensorSpec { name: "w".into(), kind: TensorType::Q6K, dims: dims.to_vec() };
        assert!(matches!(Layout::new(&Metadata::new(), &[spec]), Err(FormatError::Unwritable { .. })));
    }
}
