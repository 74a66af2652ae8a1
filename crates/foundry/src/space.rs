//! Whether a disk has room, asked before hours of writing and not after.

use std::path::Path;

use crate::FoundryError;

/// Fails where the disk of `path` (a file to be) is known to have less than `needed` bytes free.
pub(crate) fn check(path: &Path, needed: u64) -> Result<(), FoundryError> {
    match free_bytes(path) {
        Some(free) if free < needed => Err(FoundryError::Space { path: path.to_path_buf(), needed, free }),
        _ => Ok(()),
    }
}

#[cfg(unix)]
fn free_bytes(path: &Path) -> Option<u64> {
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let disk = rustix::fs::statvfs(folder).ok()?;
    disk.f_bavail.checked_mul(disk.f_frsize)
}

/// Elsewhere the write itself finds out.
#[cfg(not(unix))]
fn free_bytes(_path: &Path) -> Option<u64> {
    None
}

#[cfg(all(test, unix))]
mod tests {
    use super::*;

    #[test]
    fn more_than_the_disk_has_is_refused_with_the_numbers() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("model.gguf");
        assert!(check(&path, 1).is_ok());
        let message = check(&path, u64::MAX).unwrap_err().to_string();
        assert!(
            message.contains("needs 18446744073709551615 bytes") && message.contains("free"),
            "{message}"
        );
    }
}
