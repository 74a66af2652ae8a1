//! What a person may call a model, and where in the cache folder it belongs. No I/O beyond asking whether a
//! path exists.

use std::borrow::Cow;
use std::env;
use std::fmt;
use std::path::{Path, PathBuf};
use std::str::FromStr;

use anyhow::{Context, Result, bail};

use super::alias::{self, ALIASES, Alias};
use super::digest::Digest;
use crate::failure::Usage;

#[derive(Clone)]
pub enum Reference {
    Path(PathBuf),
    Url(String),
    Hub(Hub),
    Alias(&'static Alias),
}

/// A file in a Hugging Face repository.
#[derive(Clone)]
pub struct Hub {
    /// `owner/name`
    repository: Cow<'static, str>,
    /// A branch, tag or commit.
    revision: Cow<'static, str>,
    file: Cow<'static, str>,
}

impl Hub {
    pub const fn pinned(repository: &'static str, revision: &'static str, file: &'static str) -> Hub {
        Hub {
            repository: Cow::Borrowed(repository),
            revision: Cow::Borrowed(revision),
            file: Cow::Borrowed(file),
        }
    }

    pub fn url(&self) -> String {
        let endpoint = env::var("HF_ENDPOINT").ok().filter(|text| !text.is_empty());
        let endpoint = endpoint.as_deref().unwrap_or("https://huggingface.co").trim_end_matches('/');
        let path = format!("{}/resolve/{}/{}", self.repository, self.revision, self.file);
        format!("{endpoint}/{}", percent_encoded(&path))
    }

    /// Parses what follows `hf:`.
    fn parse(text: &str) -> Result<Hub, String> {
        let mut segments = text.splitn(3, '/');
        let (Some(owner), Some(name), Some(file)) = (segments.next(), segments.next(), segments.next())
        else {
            return Err(format!(
                "hf:{text} is incomplete; write hf:OWNER/REPO/FILE or hf:OWNER/REPO@REVISION/FILE"
            ));
        };
        let (name, revision) = name.split_once('@').unwrap_or((name, "main"));
        if ![owner, name, revision].into_iter().chain(file.split('/')).all(is_plain_name) {
            return Err(format!(
                "hf:{text} holds a name that is empty, '..' or has characters no repository uses"
            ));
        }
        Ok(Hub {
            repository: format!("{owner}/{name}").into(),
            revision: revision.to_owned().into(),
            file: file.to_owned().into(),
        })
    }
}

/// The token for gated repositories, from `HF_TOKEN`. Sent to the hub's own host only.
pub fn hub_token() -> Option<String> {
    env::var("HF_TOKEN").ok().map(|token| token.trim().to_owned()).filter(|token| !token.is_empty())
}

impl FromStr for Reference {
    type Err = anyhow::Error;

    fn from_str(text: &str) -> Result<Reference> {
        if let Some(rest) = text.strip_prefix("hf:") {
            return Ok(Reference::Hub(Hub::parse(rest).map_err(Usage)?));
        }
        if text.starts_with("http://") || text.starts_with("https://") {
            return Ok(Reference::Url(text.to_owned()));
        }
        let path = Path::new(text);
        if path.is_file() {
            return Ok(Reference::Path(path.to_owned()));
        }
        if let Some(alias) = alias::find(text) {
            return Ok(Reference::Alias(alias));
        }
        let known: Vec<_> = ALIASES.iter().map(|alias| alias.name).collect();
        let known = known.join(", ");
        let found =
            if path.is_dir() { "a folder, not a model file" } else { "neither a file nor a known alias" };
        bail!("{text:?} is {found}; give a path, hf:OWNER/REPO/FILE, a URL or one of {known}")
    }
}

impl Reference {
    /// Every file of a split model, when this is its first part; otherwise just itself.
    pub fn parts(&self) -> Result<Vec<Reference>, String> {
        let name = match self {
            Reference::Path(path) => path.to_string_lossy().into_owned(),
            Reference::Url(url) => url.split(['?', '#']).next().unwrap_or_default().to_owned(),
            Reference::Hub(hub) => hub.file.to_string(),
            Reference::Alias(_) => return Ok(vec![self.clone()]),
        };
        let Some((stem, index, count)) = split_name(&name) else { return Ok(vec![self.clone()]) };
        if index != 1 {
            return Err(format!(
                "{self} is part {index} of {count}; name the first part and all of them come"
            ));
        }
        let part = |number: u32| format!("{stem}-{number:05}-of-{count:05}.gguf");
        let renamed = |number: u32| match self {
            Reference::Path(_) => Reference::Path(part(number).into()),
            Reference::Url(url) => Reference::Url(url.replacen(&name, &part(number), 1)),
            Reference::Hub(hub) => Reference::Hub(Hub { file: part(number).into(), ..hub.clone() }),
            Reference::Alias(alias) => Reference::Alias(alias),
        };
        Ok((1..=count).map(renamed).collect())
    }

    /// Where the file belongs, relative to the cache's `models` folder. Distinct sources never share a path,
    /// and the parts of a split model lie side by side.
    pub fn cache_path(&self) -> Result<PathBuf> {
        Ok(match self {
            Reference::Alias(alias) => Path::new("alias").join(alias.name).join(alias.file),
            Reference::Hub(hub) => {
                let repository = match hub.revision.as_ref() {
                    "main" => hub.repository.to_string(),
                    revision => format!("{}@{revision}", hub.repository),
                };
                Path::new("hf").join(repository).join(hub.file.as_ref())
            }
            Reference::Url(url) => {
                let (address, query) = url.split_once(['?', '#']).unwrap_or((url, ""));
                let (folder, name) = address.rsplit_once('/').unwrap_or(("", address));
                Path::new("url").join(short_digest(&format!("{folder}?{query}"))).join(tame(name))
            }
            Reference::Path(path) => {
                let whole = path.canonicalize().with_context(|| format!("cannot find {}", path.display()))?;
                let folder = whole.parent().unwrap_or(Path::new("")).to_string_lossy();
                let name = whole.file_name().unwrap_or_default().to_string_lossy();
                Path::new("local").join(short_digest(&folder)).join(tame(&name))
            }
        })
    }
}

impl fmt::Display for Reference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Reference::Path(path) => write!(f, "{}", path.display()),
            Reference::Url(url) => f.write_str(url),
            Reference::Hub(hub) => write!(f, "{hub}"),
            Reference::Alias(alias) => f.write_str(alias.name),
        }
    }
}

impl fmt::Display for Hub {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.revision.as_ref() {
            "main" => write!(f, "hf:{}/{}", self.repository, self.file),
            revision => write!(f, "hf:{}@{revision}/{}", self.repository, self.file),
        }
    }
}

/// `model-00001-of-00003.gguf` -> (`model`, 1, 3)
fn split_name(name: &str) -> Option<(&str, u32, u32)> {
    let (rest, count) = name.strip_suffix(".gguf")?.rsplit_once("-of-")?;
    let (stem, index) = rest.rsplit_once('-')?;
    let number = |digits: &str| (digits.len() == 5).then(|| digits.parse::<u32>().ok()).flatten();
    let (index, count) = (number(index)?, number(count)?);
    (1..=count).contains(&index).then_some((stem, index, count))
}

/// Escapes what a URL's path cannot hold (RFC 3986, section 3.3).
fn percent_encoded(path: &str) -> String {
    let mut encoded = String::new();
    for byte in path.bytes() {
        match byte {
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'-' | b'.' | b'_' | b'~' | b'+' | b'/' => {
                encoded.push(byte.into());
            }
            _ => encoded.push_str(&format!("%{byte:02X}")),
        }
    }
    encoded
}

fn is_plain_name(name: &str) -> bool {
    let allowed = |c: char| c.is_alphanumeric() || "._-+ ()[]".contains(c);
    !name.is_empty() && !name.chars().all(|c| c == '.') && name.chars().all(allowed)
}

/// A name that every file system takes.
fn tame(name: &str) -> String {
    let name: String = name
        .chars()
        .map(|c| if c.is_ascii_alphanumeric() || "._-".contains(c) { c } else { '_' })
        .take(150)
        .collect();
    if name.trim_matches('.').is_empty() { "model.gguf".into() } else { name }
}

fn short_digest(text: &str) -> String {
    Digest::of_text(text).to_string()[..12].to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(text: &str) -> Reference {
        text.parse().unwrap()
    }

    #[test]
    fn a_hub_reference_names_repository_revision_and_file() {
        let plain = parsed("hf:owner/repo/sub folder/model.gguf");
        assert_eq!(plain.cache_path().unwrap(), Path::new("hf/owner/repo/sub folder/model.gguf"));
        let Reference::Hub(hub) = plain else { panic!("not a hub reference") };
        assert!(hub.url().ends_with("/owner/repo/resolve/main/sub%20folder/model.gguf"), "{}", hub.url());
        let pinned = parsed("hf:owner/repo@v1.0/model.gguf");
        assert_eq!(pinned.to_string(), "hf:owner/repo@v1.0/model.gguf");
        assert_eq!(pinned.cache_path().unwrap(), Path::new("hf/owner/repo@v1.0/model.gguf"));
    }

    #[test]
    fn a_hub_reference_cannot_leave_the_cache_folder() {
        for text in [
            "hf:",
            "hf:a/b",
            "hf:a/b/",
            "hf:../b/c",
            "hf:a/b/../../c",
            "hf:a/b@/c",
            "hf:a/b//c",
            "hf:a\\b/c/d",
        ] {
            assert!(text.parse::<Reference>().is_err(), "{text}");
        }
    }

    #[test]
    fn the_first_part_stands_for_the_whole_split_model() {
        let names = |text: &str| -> Vec<String> {
            parsed(text).parts().unwrap().iter().map(Reference::to_string).collect()
        };
        assert_eq!(
            names("hf:o/r/Q4/big-00001-of-00002.gguf"),
            ["hf:o/r/Q4/big-00001-of-00002.gguf", "hf:o/r/Q4/big-00002-of-00002.gguf"]
        );
        assert_eq!(names("http://h/m-00001-of-00002.gguf?x=1")[1], "http://h/m-00002-of-00002.gguf?x=1");
        assert_eq!(names("http://h/m.gguf"), ["http://h/m.gguf"]);
        assert!(parsed("hf:o/r/big-00002-of-00002.gguf").parts().is_err());
    }

    #[test]
    fn the_parts_of_a_url_lie_side_by_side_and_other_urls_elsewhere() {
        let folder = |text: &str| parsed(text).cache_path().unwrap().parent().unwrap().to_owned();
        assert_eq!(folder("http://h/m-00001-of-00002.gguf"), folder("http://h/m-00002-of-00002.gguf"));
        assert_ne!(folder("http://h/m.gguf"), folder("http://h/m.gguf?v=2"));
        assert_ne!(folder("http://h/m.gguf"), folder("http://g/m.gguf"));
    }

    #[test]
    fn strange_names_in_urls_become_plain_file_names() {
        let name = |text: &str| parsed(text).cache_path().unwrap().file_name().unwrap().to_owned();
        assert_eq!(name("http://h/a%2F..%2Fb:c.gguf"), "a_2F.._2Fb_c.gguf");
        assert_eq!(name("http://h/.."), "model.gguf");
    }

    #[test]
    fn an_unknown_name_lists_what_would_be_understood() {
        let error = "no-such-model".parse::<Reference>().err().unwrap().to_string();
        assert!(error.contains("smollm2") && error.contains("hf:OWNER/REPO/FILE"), "{error}");
    }
}
