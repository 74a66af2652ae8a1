//! Strangers' chat templates against Python's jinja2, on conversations of our own.
//!
//! Only digests are kept here. To see what differs, let `make_renderings.py` write the whole texts to a
//! folder and name it in the environment variable `ADIT_RENDERINGS`.

use std::path::Path;
use std::time::{Duration, SystemTime};

use adit_engine::{ChatTemplate, TemplateError};
use serde_json::{Map, Value};
use sha2::{Digest, Sha256};

use crate::fetch::models;

/// 2026-07-06 09:08:07 UTC, as in `make_renderings.py`.
const NOW: Duration = Duration::from_secs(1_783_328_887);

fn render(source: &str, conversation: &Map<String, Value>) -> Result<String, TemplateError> {
    let mut template = ChatTemplate::new(source, "<s>", "</s>")?;
    template.set_time(SystemTime::UNIX_EPOCH + NOW);
    let mut extra = conversation.clone();
    let messages = extra.shift_remove("messages").unwrap();
    let tools = extra.shift_remove("tools");
    let prompt =
        extra.shift_remove("add_generation_prompt").is_some_and(|prompt| prompt == Value::Bool(true));
    template.render(&messages, tools.as_ref(), prompt, &extra)
}

/// It gives `tojson` a generator, which Python cannot serialise; to us it is a list like any other.
const LENIENT: &str = "llama-cpp-deepseek-r1";

/// What came out differently from `expected`, if anything did.
fn difference(found: Result<String, TemplateError>, expected: &Value) -> Option<String> {
    match (&found, expected) {
        (Ok(text), Value::String(digest)) => {
            let found: String =
                Sha256::digest(text).iter().take(8).map(|byte| format!("{byte:02x}")).collect();
            (found != *digest).then(|| format!("rendered {text:?}"))
        }
        (Err(TemplateError::Refused { message }), Value::Object(_)) if expected.get("refuses").is_some() => {
            (expected["refuses"] != **message).then(|| format!("refused with {message:?}, not {expected}"))
        }
        (Err(error), Value::Object(_)) if expected.get("fails").is_some() => {
            matches!(error, TemplateError::Refused { .. } | TemplateError::Syntax { .. })
                .then(|| format!("{error}, not {expected}"))
        }
        (Ok(text), _) => Some(format!("rendered {text:?}, not {expected}")),
        (Err(error), _) => Some(format!("{error}, not {expected}")),
    }
}

/// Where the text parts from the whole one, if that is at hand.
fn first_difference(found: &str, name: &str, case: &str) -> Option<String> {
    let folder = std::env::var_os("ADIT_RENDERINGS")?;
    let expected = std::fs::read_to_string(Path::new(&folder).join(format!("{name}.{case}.txt"))).ok()?;
    let (found, expected): (Vec<char>, Vec<char>) = (found.chars().collect(), expected.chars().collect());
    let at = found.iter().zip(&expected).take_while(|(found, expected)| found == expected).count();
    let around = |text: &[char]| -> String {
        text[at.saturating_sub(40).min(text.len())..(at + 60).min(text.len())].iter().collect()
    };
    Some(format!("character {at}\n   found {:?}\nexpected {:?}", around(&found), around(&expected)))
}

#[test]
fn templates_render_what_jinja2_renders_or_refuse_what_it_refuses() {
    let Some(models) = models() else { return };
    let parse = |text| serde_json::from_str::<Map<String, Value>>(text).unwrap();
    let conversations = parse(include_str!("conversations.json"));
    let expected = parse(include_str!("renderings.json"));
    let mut differences = Vec::new();
    for (name, cases) in &expected {
        let source = std::fs::read_to_string(models.join(format!("templates/{name}.jinja"))).unwrap();
        for (case, expected) in cases.as_object().unwrap() {
            let found = render(&source, conversations[case].as_object().unwrap());
            if name == LENIENT && expected.get("fails").is_some() && found.is_ok() {
                continue;
            }
            let whole = found.as_ref().ok().and_then(|text| first_difference(text, name, case));
            if let Some(difference) = difference(found, expected) {
                differences.push(format!("{name}, {case}: {}", whole.unwrap_or(difference)));
            }
        }
    }
    assert!(differences.is_empty(), "{} differ:\n{}", differences.len(), differences.join("\n"));
}

#[test]
fn every_template_of_the_package_has_its_renderings() {
    let Some(models) = models() else { return };
    let expected: Map<String, Value> = serde_json::from_str(include_str!("renderings.json")).unwrap();
    for entry in std::fs::read_dir(models.join("templates")).unwrap() {
        let path = entry.unwrap().path();
        let name = Path::new(&path).file_stem().unwrap().to_str().unwrap();
        assert!(expected.contains_key(name) || name == "README", "{name}");
    }
}
