//! Where the cache folder is. It holds what can be had again: models, histories, built demo files.

use std::env;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};

/// `ADIT_CACHE`, or `adit` in the folder this system keeps caches in.
pub fn cache_folder() -> Result<PathBuf> {
    let set = |name: &str| env::var_os(name).filter(|value| !value.is_empty()).map(PathBuf::from);
    if let Some(folder) = set("ADIT_CACHE") {
        return Ok(folder);
    }
    let base = if cfg!(windows) {
        set("LOCALAPPDATA")
    } else if cfg!(target_os = "macos") {
        set("HOME").map(|home| home.join("Library/Caches"))
    } else {
        // The XDG specification tells us to ignore a relative path.
        let xdg = set("XDG_CACHE_HOME").filter(|path| path.is_absolute());
        xdg.or_else(|| set("HOME").map(|home| home.join(".cache")))
    };
    let base = base.context("cannot tell where the cache folder is; set ADIT_CACHE to a folder")?;
    Ok(base.join("adit"))
}

/// Makes the folder that `path` will lie in.
pub fn make_parent(path: &Path) -> Result<()> {
    let parent = path.parent().unwrap_or(Path::new("."));
    std::fs::create_dir_all(parent).with_context(|| format!("cannot create the folder {}", parent.display()))
}
