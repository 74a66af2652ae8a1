//! Brings the strangers' files here, or says why it cannot.

use std::io::Write;
use std::path::PathBuf;
use std::process::Command;
use std::sync::OnceLock;

/// The folder of `ggml-vocab-*.gguf` and `templates/`, or nothing, said on stderr, where it cannot be had.
pub fn models() -> Option<PathBuf> {
    static MODELS: OnceLock<Option<PathBuf>> = OnceLock::new();
    MODELS.get_or_init(fetch).clone()
}

fn fetch() -> Option<PathBuf> {
    let package = PathBuf::from(env!("CARGO_MANIFEST_DIR"));
    let run = Command::new("bash").arg(package.join("tests/strangers/fetch.sh")).output();
    let problem = match run {
        Ok(output) if output.status.success() => {
            let models = package.join("../../target/strangers/models");
            return Some(models.canonicalize().expect("fetch.sh made it"));
        }
        Ok(output) => String::from_utf8_lossy(&output.stderr).trim().to_string(),
        Err(error) => error.to_string(),
    };
    // Written past the test harness, which would hide it.
    let _ = writeln!(std::io::stderr(), "skipped: strangers' files cannot be fetched: {problem}");
    None
}
