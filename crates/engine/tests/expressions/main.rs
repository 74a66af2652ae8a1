//! Small templates, one for each thing that chat templates do, against Python's jinja2.

use std::time::{Duration, SystemTime};

use adit_engine::{ChatTemplate, TemplateError};
use serde_json::{Map, Value};

/// 2026-07-06 09:08:07 UTC, as in `make_expected.py`.
const NOW: Duration = Duration::from_secs(1_783_328_887);

fn render(source: &str, variables: &Map<String, Value>) -> Result<String, TemplateError> {
    let mut template = ChatTemplate::new(source, "", "")?;
    template.set_time(SystemTime::UNIX_EPOCH + NOW);
    template.render(&Value::Null, None, true, variables)
}

#[test]
fn small_templates_do_what_they_do_in_jinja2() {
    let variables: Map<String, Value> = serde_json::from_str(include_str!("variables.json")).unwrap();
    let expected: Vec<(String, Value)> = serde_json::from_str(include_str!("expected.json")).unwrap();
    let mut differences = Vec::new();
    for (source, expected) in expected {
        let found = render(&source, &variables);
        let same = match (&found, &expected) {
            (Ok(text), Value::String(expected)) => text == expected,
            (Err(TemplateError::Refused { message }), Value::Object(_)) => expected["refuses"] == **message,
            (Err(_), Value::Object(_)) => expected.get("fails").is_some(),
            _ => false,
        };
        if !same {
            let found = found.unwrap_or_else(|error| error.to_string());
            differences.push(format!("{source}\n   found {found:?}\nexpected {expected}"));
        }
    }
    assert!(differences.is_empty(), "{} differ:\n{}", differences.len(), differences.join("\n"));
}
