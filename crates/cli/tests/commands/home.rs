//! A temporary home for the real binary, and what it said there. Knows no command's flags.

use std::path::{Path, PathBuf};
use std::process::{Command, Output};

/// A temporary folder with a cache inside it, in which the real binary runs.
pub struct Home(tempfile::TempDir);

/// What one run of the binary said.
#[derive(Debug)]
pub struct Said {
    pub code: Option<i32>,
    pub stdout: String,
    pub stderr: String,
}

impl Home {
    pub fn new() -> Home {
        Home(tempfile::tempdir().expect("a temporary folder"))
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    /// The binary, shielded from the settings of whoever runs the tests.
    pub fn command(&self) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_adit"));
        command.current_dir(self.0.path()).env("ADIT_CACHE", self.path("cache"));
        for name in ["HF_ENDPOINT", "HF_TOKEN", "http_proxy", "https_proxy", "all_proxy", "HTTP_PROXY"] {
            command.env_remove(name);
        }
        for name in ["HTTPS_PROXY", "ALL_PROXY", "SSL_CERT_FILE"] {
            command.env_remove(name);
        }
        command
    }

    pub fn run(&self, arguments: &[&str]) -> Said {
        said(self.command().args(arguments).output().expect("the binary starts"))
    }

    /// Every file under the cache folder, by its name.
    pub fn cached_names(&self) -> Vec<String> {
        let mut names = Vec::new();
        gather(&self.path("cache"), &mut names);
        names.sort();
        names
    }
}

pub fn said(output: Output) -> Said {
    Said {
        code: output.status.code(),
        stdout: String::from_utf8(output.stdout).expect("stdout is UTF-8"),
        stderr: String::from_utf8(output.stderr).expect("stderr is UTF-8"),
    }
}

impl Said {
    /// Asserts success and returns stdout.
    #[track_caller]
    pub fn fine(self) -> String {
        assert_eq!(self.code, Some(0), "{self:?}");
        self.stdout
    }

    /// Asserts a failure with `code`, nothing on stdout and one last line `error: ...`, which it returns.
    #[track_caller]
    pub fn failed(self, code: i32) -> String {
        assert_eq!(self.code, Some(code), "{self:?}");
        assert_eq!(self.stdout, "", "{self:?}");
        let last = self.stderr.lines().last().unwrap_or_default();
        assert!(last.starts_with("error: "), "{self:?}");
        assert_eq!(self.stderr.matches("error: ").count(), 1, "{self:?}");
        last.to_owned()
    }
}

fn gather(folder: &Path, names: &mut Vec<String>) {
    let Ok(entries) = std::fs::read_dir(folder) else { return };
    for entry in entries {
        let entry = entry.expect("the folder can be listed");
        if entry.path().is_dir() {
            gather(&entry.path(), names);
        } else {
            names.push(entry.file_name().to_string_lossy().into_owned());
        }
    }
}
