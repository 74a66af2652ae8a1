//! Files that appear under their name only when they are whole: written beside it, then renamed.

use std::fs::{self, File};
use std::io::{BufWriter, Write};
use std::path::Path;

use anyhow::{Context, Result};

/// Lets `fill` write the file at `path`, replacing what is there. After an error there is no trace of it.
pub fn write(path: &Path, fill: impl FnOnce(&mut BufWriter<File>) -> Result<()>) -> Result<()> {
    let mut beside = path.as_os_str().to_owned();
    beside.push(format!(".{}.new", std::process::id()));
    let write = || -> Result<()> {
        let mut out = BufWriter::new(File::create(&beside)?);
        fill(&mut out)?;
        out.flush()?;
        Ok(fs::rename(&beside, path)?)
    };
    write().with_context(|| {
        // The first error is the one to tell.
        let _ = fs::remove_file(&beside);
        format!("cannot write {}", path.display())
    })
}
