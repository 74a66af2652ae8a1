//! HTTP downloads that survive cut connections: what has come is kept, the rest is asked for with `Range`,
//! and `If-Range` makes sure that a file which changed on the server is fetched anew, never spliced.
//!
//! Redirects are followed here, not by the HTTP crate, for two reasons: the hub announces a file's digest on
//! the redirect itself, and its token must not travel to another host.

use std::io::{ErrorKind, Read};
use std::thread;
use std::time::Duration;

use anyhow::{Context, Result, anyhow, bail};
use ureq::http::{Response, StatusCode, Uri, header};
use ureq::tls::{Certificate, PemItem, RootCerts, TlsConfig, parse_pem};
use ureq::{Agent, Body};

use super::digest::Digest;
use super::landing::{Journal, Landing, Part};
use crate::progress::Progress;
use crate::size::ByteSize;

/// A file on a server, and what is known of it beforehand.
pub struct Wanted<'a> {
    pub url: &'a str,
    pub token: Option<&'a str>,
    pub sha256: Option<Digest>,
    pub bytes: Option<u64>,
}

/// Tries in a row that bring less than [`PROGRESS_BYTES`] before we give up.
const TRIES: u32 = 5;
/// A try that brought this much does not count: a slow line may be cut often and still get there.
const PROGRESS_BYTES: u64 = 1 << 20;
const FIRST_PAUSE: Duration = Duration::from_millis(500);
const REDIRECTS_MAX: u32 = 10;
/// What a working server's connection may die of.
const HICCUPS: [ErrorKind; 5] = [
    ErrorKind::ConnectionReset,
    ErrorKind::ConnectionAborted,
    ErrorKind::BrokenPipe,
    ErrorKind::UnexpectedEof,
    ErrorKind::TimedOut,
];

/// Connections and their settings.
pub struct Client(Agent);

impl Client {
    pub fn new() -> Result<Client> {
        let config = Agent::config_builder()
            .user_agent(concat!("adit/", env!("CARGO_PKG_VERSION")))
            .http_status_as_error(false)
            .max_redirects(0)
            .timeout_resolve(Some(Duration::from_secs(5)))
            .timeout_connect(Some(Duration::from_secs(10)))
            .timeout_recv_response(Some(Duration::from_secs(60)))
            .timeout_per_read(Some(Duration::from_secs(60)))
            .tls_config(TlsConfig::builder().root_certs(root_certificates()?).build());
        Ok(Client(config.build().new_agent()))
    }
}

/// Mozilla's list, or the file that `SSL_CERT_FILE` names: behind a company's proxy only that one works.
fn root_certificates() -> Result<RootCerts> {
    let Some(path) = std::env::var_os("SSL_CERT_FILE").filter(|path| !path.is_empty()) else {
        return Ok(RootCerts::WebPki);
    };
    let named = || format!("cannot use SSL_CERT_FILE={}", path.display());
    let pem = std::fs::read(&path).with_context(named)?;
    let certificates: Vec<Certificate<'static>> = parse_pem(&pem)
        .filter_map(|item| match item {
            Ok(PemItem::Certificate(certificate)) => Some(certificate),
            _ => None,
        })
        .collect();
    Ok(RootCerts::from(certificates))
}

/// Why one try ended without the whole file.
enum Setback {
    /// Trying again cannot help.
    Final(anyhow::Error),
    /// The line or the server failed; it may not fail again.
    Passing(anyhow::Error),
}

impl From<anyhow::Error> for Setback {
    fn from(error: anyhow::Error) -> Setback {
        Setback::Final(error)
    }
}

/// Fills `part` to the end of the file at `wanted.url`. Returns the digest that the hub announced, if any.
pub fn download(
    client: &Client,
    wanted: &Wanted<'_>,
    part: &mut Part,
    landing: &Landing,
) -> Result<Option<Digest>> {
    let mut journal = landing.journal().filter(|journal| journal.url == wanted.url).unwrap_or_default();
    if journal.url.is_empty() {
        part.restart()?;
        journal.url = wanted.url.to_owned();
    }
    let mut tries = 0;
    let mut reached = part.bytes();
    loop {
        let before = part.bytes();
        let reason = match advance(client, wanted, part, landing, &mut journal) {
            Ok(()) => return Ok(journal.sha256.as_deref().and_then(|text| text.parse().ok())),
            Err(Setback::Final(error)) => return Err(error),
            Err(Setback::Passing(reason)) => reason,
        };
        tries = if part.bytes() >= reached + PROGRESS_BYTES { 0 } else { tries + 1 };
        if tries == TRIES {
            return Err(reason.context(format!("gave up after {TRIES} tries")));
        }
        if part.bytes() == before {
            thread::sleep(FIRST_PAUSE * 2u32.pow(tries - 1));
        }
        reached = reached.max(part.bytes());
    }
}

/// One request for what is missing, read until it ends.
fn advance(
    client: &Client,
    wanted: &Wanted<'_>,
    part: &mut Part,
    landing: &Landing,
    journal: &mut Journal,
) -> Result<(), Setback> {
    // Without a validator only a digest could show a splice; without either we start over.
    let splice_would_show =
        journal.validator.is_some() || wanted.sha256.is_some() || journal.sha256.is_some();
    if part.bytes() > 0 && !splice_would_show {
        part.restart()?;
    }
    if part.bytes() > 0 && journal.total_bytes == Some(part.bytes()) {
        return Ok(());
    }
    let answer = follow(client, wanted, part.bytes(), journal)?;
    let response = answer.response;
    let announced = answer.sha256.map(|digest| digest.to_string());
    let same_file = agree(announced.clone(), journal.sha256.clone());
    let total = match response.status() {
        StatusCode::PARTIAL_CONTENT => {
            let range = content_range(&response).filter(|(start, _)| *start == part.bytes());
            let range = range.filter(|(_, total)| agree(*total, journal.total_bytes));
            // Some servers honour `Range` and overlook `If-Range`, so the answer's own validator counts too.
            match range.filter(|_| same_file && agree(validator(&response), journal.validator.clone())) {
                Some((_, total)) => total,
                None => return Err(start_over(part, journal, "the file on the server has changed")),
            }
        }
        StatusCode::OK => {
            part.restart()?;
            content_length(&response)
        }
        StatusCode::RANGE_NOT_SATISFIABLE => {
            return Err(start_over(part, journal, "the file on the server is shorter than what had come"));
        }
        status => return Err(refusal(status, wanted, part.bytes())),
    };
    if let (Some(expected), Some(total)) = (wanted.bytes, total)
        && expected != total
    {
        return Err(Setback::Final(anyhow!(
            "the server offers a file of {total} bytes, expected {expected}"
        )));
    }
    *journal = Journal {
        url: wanted.url.to_owned(),
        validator: validator(&response).or_else(|| journal.validator.take().filter(|_| part.bytes() > 0)),
        total_bytes: total,
        sha256: announced.or_else(|| journal.sha256.take().filter(|_| part.bytes() > 0)),
    };
    landing.set_journal(journal)?;
    read_body(response, part, total, wanted.bytes)
}

/// Whether two things known of a file may be true of the same file.
fn agree<T: PartialEq>(one: Option<T>, other: Option<T>) -> bool {
    one.is_none() || other.is_none() || one == other
}

fn start_over(part: &mut Part, journal: &mut Journal, reason: &str) -> Setback {
    *journal = Journal { url: std::mem::take(&mut journal.url), ..Journal::default() };
    match part.restart() {
        Ok(()) => Setback::Passing(anyhow!("{reason}")),
        Err(error) => Setback::Final(error),
    }
}

fn read_body(
    response: Response<Body>,
    part: &mut Part,
    total: Option<u64>,
    limit: Option<u64>,
) -> Result<(), Setback> {
    let progress = Progress::bytes("downloading", total);
    let mut body = response.into_body().into_reader();
    let mut buffer = vec![0; 1 << 18];
    loop {
        let length = match body.read(&mut buffer) {
            Ok(0) => break,
            Ok(length) => length,
            Err(error) if error.kind() == ErrorKind::Interrupted => continue,
            Err(error) => {
                let got = ByteSize(part.bytes());
                return Err(Setback::Passing(
                    anyhow!(error).context(format!("the connection broke after {got}")),
                ));
            }
        };
        let limit = limit.or(total).unwrap_or(u64::MAX);
        if part.bytes() + length as u64 > limit {
            return Err(Setback::Final(anyhow!("the server sent more than the {limit} bytes expected")));
        }
        part.write(&buffer[..length])?;
        progress.set(part.bytes());
    }
    match total {
        Some(total) if part.bytes() < total => {
            let got = part.bytes();
            Err(Setback::Passing(anyhow!("the connection ended after {got} of {total} bytes")))
        }
        _ => Ok(()),
    }
}

/// The answer at the end of a chain of redirects.
struct Answer {
    response: Response<Body>,
    /// The digest announced on the way.
    sha256: Option<Digest>,
}

fn follow(client: &Client, wanted: &Wanted<'_>, from: u64, journal: &Journal) -> Result<Answer, Setback> {
    let first: Uri = wanted.url.parse().with_context(|| format!("{} is no valid URL", wanted.url))?;
    let mut uri = first.clone();
    let mut sha256 = None;
    for _ in 0..=REDIRECTS_MAX {
        let mut request = client.0.get(&uri).header(header::ACCEPT_ENCODING, "identity");
        if from > 0 {
            request = request.header(header::RANGE, format!("bytes={from}-"));
            if let Some(validator) = &journal.validator {
                request = request.header(header::IF_RANGE, validator);
            }
        }
        if let Some(token) = wanted.token.filter(|_| uri.authority() == first.authority()) {
            request = request.header(header::AUTHORIZATION, format!("Bearer {token}"));
        }
        let response = request.call().map_err(|error| connection_setback(error, &uri, from))?;
        sha256 = sha256.or_else(|| linked_digest(&response));
        if !response.status().is_redirection() {
            return Ok(Answer { response, sha256 });
        }
        let location = response.headers().get(header::LOCATION).and_then(|value| value.to_str().ok());
        let location = location.with_context(|| format!("{uri} redirects, but does not say where to"))?;
        let next = join(&uri, location).with_context(|| format!("{uri} redirects to {location:?}"))?;
        if uri.scheme_str() == Some("https") && next.scheme_str() != Some("https") {
            return Err(Setback::Final(anyhow!(
                "{uri} redirects to {next}, which is not encrypted; refused"
            )));
        }
        uri = next;
    }
    Err(Setback::Final(anyhow!("{} redirects more than {REDIRECTS_MAX} times", wanted.url)))
}

/// Nothing has come yet and there is nobody there (no such name, no route, no listener): that is an answer,
/// not a hiccup. Once something has come, the same may be a cut line.
fn connection_setback(error: ureq::Error, uri: &Uri, from: u64) -> Setback {
    let host = uri.host().unwrap_or_default();
    let nobody_there = match &error {
        ureq::Error::HostNotFound | ureq::Error::ConnectionFailed => true,
        ureq::Error::Timeout(ureq::Timeout::Resolve | ureq::Timeout::Connect) => true,
        ureq::Error::Io(error) => !HICCUPS.contains(&error.kind()),
        _ => false,
    };
    let hopeless = matches!(error, ureq::Error::BadUri(_) | ureq::Error::Http(_) | ureq::Error::Rustls(_));
    let error = anyhow!(error).context(format!("cannot reach {host}"));
    if hopeless || (nobody_there && from == 0) { Setback::Final(error) } else { Setback::Passing(error) }
}

fn refusal(status: StatusCode, wanted: &Wanted<'_>, from: u64) -> Setback {
    let url = wanted.url;
    let passing = status.is_server_error()
        || [StatusCode::REQUEST_TIMEOUT, StatusCode::TOO_EARLY, StatusCode::TOO_MANY_REQUESTS]
            .contains(&status);
    if passing {
        return Setback::Passing(anyhow!("{url} answered {status} after {from} bytes"));
    }
    Setback::Final(match status {
        StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN if wanted.token.is_none() => {
            anyhow!("{url} answered {status}; if it needs a login, set HF_TOKEN")
        }
        StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN => {
            anyhow!("{url} answered {status}: the token in HF_TOKEN does not open it")
        }
        StatusCode::NOT_FOUND => anyhow!("{url} answered {status}: check the names in it"),
        _ => anyhow!("{url} answered {status}, which is no file"),
    })
}

/// The hub names the SHA-256 of a large file in `X-Linked-ETag`. A small file has a git hash there instead.
fn linked_digest(response: &Response<Body>) -> Option<Digest> {
    header_text(response, "x-linked-etag")?.trim_start_matches("W/").trim_matches('"').parse().ok()
}

/// What `If-Range` may carry: a strong ETag, or else the date of the last change.
fn validator(response: &Response<Body>) -> Option<String> {
    let etag = header_text(response, "etag").filter(|etag| etag.starts_with('"'));
    etag.or_else(|| header_text(response, "last-modified")).map(str::to_owned)
}

fn content_length(response: &Response<Body>) -> Option<u64> {
    header_text(response, "content-length")?.trim().parse().ok()
}

/// `bytes 100-199/200` -> (100, Some(200))
fn content_range(response: &Response<Body>) -> Option<(u64, Option<u64>)> {
    let text = header_text(response, "content-range")?.trim().strip_prefix("bytes")?.trim_start();
    let (range, total) = text.split_once('/')?;
    let (start, end) = range.split_once('-')?;
    let (start, end): (u64, u64) = (start.trim().parse().ok()?, end.trim().parse().ok()?);
    let total = total.trim().parse().ok();
    // A server may send less than was asked for; then the next request asks for the rest.
    (start <= end && total.is_none_or(|total| end < total)).then_some((start, total))
}

fn header_text<'a>(response: &'a Response<Body>, name: &str) -> Option<&'a str> {
    response.headers().get(name)?.to_str().ok()
}

/// Resolves a `Location` against the address that sent it (RFC 3986, section 5.2, without dot segments).
fn join(base: &Uri, location: &str) -> Result<Uri> {
    let authority = base.authority().context("the address has no host")?;
    let scheme = base.scheme_str().unwrap_or("https");
    let absolute = if location.contains("://") {
        location.to_owned()
    } else if let Some(rest) = location.strip_prefix("//") {
        format!("{scheme}://{rest}")
    } else if location.starts_with('/') {
        format!("{scheme}://{authority}{location}")
    } else {
        let folder = base.path().rsplit_once('/').map_or("", |(folder, _)| folder);
        format!("{scheme}://{authority}{folder}/{location}")
    };
    let uri: Uri = absolute.parse()?;
    if !matches!(uri.scheme_str(), Some("http" | "https")) {
        bail!("it is neither http nor https");
    }
    Ok(uri)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn redirects_resolve_against_the_address_that_sent_them() {
        let base: Uri = "https://host:8443/a/b?x=1".parse().unwrap();
        let joined = |location: &str| join(&base, location).map(|uri| uri.to_string()).ok();
        assert_eq!(joined("http://other/c?d=e").as_deref(), Some("http://other/c?d=e"));
        assert_eq!(joined("//other/c").as_deref(), Some("https://other/c"));
        assert_eq!(joined("/c/d").as_deref(), Some("https://host:8443/c/d"));
        assert_eq!(joined("c").as_deref(), Some("https://host:8443/a/c"));
        assert_eq!(joined("ftp://other/c"), None);
    }

    #[test]
    fn content_ranges_are_read_strictly() {
        let range = |text: &str| {
            let response = Response::builder().header("content-range", text).body(Body::builder().data(""));
            content_range(&response.unwrap())
        };
        assert_eq!(range("bytes 100-199/200"), Some((100, Some(200))));
        assert_eq!(range("bytes 100-199/*"), Some((100, None)));
        for bad in ["", "bytes */200", "bytes 5-4/200", "bytes 0-200/200", "items 0-1/2", "bytes x-1/2"] {
            assert_eq!(range(bad), None, "{bad}");
        }
    }
}
