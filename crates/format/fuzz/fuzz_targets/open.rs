//! Any bytes at all as a model file: `cargo +nightly fuzz run open -- -rss_limit_mb=512`, in this crate.
//! Opening must end in an error or in extents that lie in the file and apart, and metadata that were read
//! must survive being written and read again.

#![no_main]

use std::fs;
use std::path::PathBuf;
use std::sync::LazyLock;

use adit_format::Gguf;
use adit_format::writer::{Existing, Layout, Writer};
use libfuzzer_sys::fuzz_target;

static FOLDER: LazyLock<PathBuf> = LazyLock::new(|| tempfile::tempdir().expect("a folder").keep());

fuzz_target!(|bytes: &[u8]| {
    let path = FOLDER.join("input.gguf");
    fs::write(&path, bytes).expect("room for a small file");
    let Ok(model) = Gguf::open(&path) else { return };
    let mut extents: Vec<(u64, u64)> =
        model.tensors().iter().map(|tensor| (tensor.offset, tensor.offset + tensor.bytes)).collect();
    extents.sort_unstable();
    assert!(extents.iter().all(|&(start, end)| start < end && end <= bytes.len() as u64));
    assert!(extents.windows(2).all(|pair| pair[0].1 <= pair[1].0));

    let copy = FOLDER.join("copy.gguf");
    let layout = Layout::new(model.metadata(), &[]).expect("metadata that were read can be written");
    Writer::create(&copy, layout, Existing::Replace).unwrap().finish().unwrap();
    let again = Gguf::open(&copy).expect("what was written can be read");
    // By their text: a NaN is not equal to itself.
    assert!(
        format!("{:?}", model.metadata().iter().collect::<Vec<_>>())
            == format!("{:?}", again.metadata().iter().collect::<Vec<_>>())
    );
});
