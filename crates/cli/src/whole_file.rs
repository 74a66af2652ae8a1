//! Files that appear under their name only when they are whole: written beside it, then renamed. What is
//! there and no ordinary file, such as a named pipe, or an open file by its number, such as `/dev/stdout`,
//! is written to, never replaced.

use std::ffi::OsString;
use std::fs::{self, File, OpenOptions};
use std::io::{BufWriter, Read, Write};
use std::path::Path;

use anyhow::{Context, Result};

/// Lets `fill` write the file at `path`, replacing what is there. After an error there is no trace of it.
pub fn write(path: &Path, fill: impl FnOnce(&mut BufWriter<File>) -> Result<()>) -> Result<()> {
    let written = match fs::metadata(path) {
        Ok(there) if !there.is_file() || is_open_file(path) => write_through(path, fill),
        // What a link points to is replaced, not the link.
        Ok(_) => refuse_model(path)
            .and_then(|()| fs::canonicalize(path))
            .map_err(Into::into)
            .and_then(|path| write_beside(&path, fill)),
        Err(_) => write_beside(path, fill),
    };
    written.with_context(|| format!("cannot write {}", path.display()))
}

/// Whether [`write`] could begin, asked before the work whose result is to be written.
pub fn check(path: &Path) -> Result<()> {
    let checked = match fs::metadata(path) {
        Ok(there) if there.is_dir() => Err(std::io::ErrorKind::IsADirectory.into()),
        // To open a pipe is to wait for its reader.
        Ok(there) if !there.is_file() || is_open_file(path) => Ok(()),
        Ok(_) => refuse_model(path).and_then(|()| fs::canonicalize(path)).and_then(|path| try_beside(&path)),
        Err(_) => try_beside(path),
    };
    checked.with_context(|| format!("cannot write {}", path.display()))
}

/// Whether two names lead to one file that is there.
pub fn is_same(one: &Path, other: &Path) -> bool {
    fs::canonicalize(one).ok().is_some_and(|one| fs::canonicalize(other).is_ok_and(|other| one == other))
}

/// Nobody means to replace a model by counters, logits or a page.
fn refuse_model(path: &Path) -> std::io::Result<()> {
    let mut magic = [0; 4];
    let is_model = File::open(path)?.read_exact(&mut magic).is_ok() && &magic == b"GGUF";
    if is_model { Err(std::io::Error::other("it is a GGUF model; give another name")) } else { Ok(()) }
}

/// `/dev/stdout` and its kin lead to whatever file was opened, which must not be replaced under its writer.
fn is_open_file(path: &Path) -> bool {
    path.starts_with("/dev") || path.starts_with("/proc")
}

fn try_beside(path: &Path) -> std::io::Result<()> {
    let beside = beside(path);
    File::create(&beside)?;
    fs::remove_file(&beside)
}

/// The name under which the file at `path` grows.
fn beside(path: &Path) -> OsString {
    let mut beside = path.as_os_str().to_owned();
    beside.push(format!(".{}.new", std::process::id()));
    beside
}

fn write_through(path: &Path, fill: impl FnOnce(&mut BufWriter<File>) -> Result<()>) -> Result<()> {
    let mut out = BufWriter::new(OpenOptions::new().append(true).open(path)?);
    fill(&mut out)?;
    Ok(out.flush()?)
}

fn write_beside(path: &Path, fill: impl FnOnce(&mut BufWriter<File>) -> Result<()>) -> Result<()> {
    let beside = beside(path);
    let write = || -> Result<()> {
        let mut out = BufWriter::new(File::create(&beside)?);
        fill(&mut out)?;
        out.flush()?;
        out.get_ref().sync_all()?;
        Ok(fs::rename(&beside, path)?)
    };
    // The first error is the one to tell.
    write().inspect_err(|_| drop(fs::remove_file(&beside)))
}

#[cfg(all(test, target_os = "linux"))]
mod tests {
    use std::os::fd::AsRawFd;

    use super::*;

    #[test]
    fn a_model_is_never_replaced() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("m.gguf");
        fs::write(&path, b"GGUF and more").unwrap();
        let error = format!("{:#}", check(&path).unwrap_err());
        assert!(error.contains("GGUF model"), "{error}");
        write(&path, |out| Ok(out.write_all(b"counters")?)).unwrap_err();
        assert_eq!(fs::read(&path).unwrap(), b"GGUF and more");
        assert!(is_same(&path, &folder.path().join("./m.gguf")) && !is_same(&path, folder.path()));
    }

    #[test]
    fn a_file_that_somebody_is_writing_is_added_to_not_replaced() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("answer");
        let mut open = File::create(&path).unwrap();
        open.write_all(b"the answer, ").unwrap();
        let by_number = format!("/proc/self/fd/{}", open.as_raw_fd());
        write(Path::new(&by_number), |out| Ok(out.write_all(b"the counters")?)).unwrap();
        assert_eq!(fs::read_to_string(&path).unwrap(), "the answer, the counters");
    }
}
