//! Traces with one JSON object for each token: `{"tok": 0, "layers": [[experts of layer 0], ...]}`.

use anyhow::{Result, bail};
use serde::Deserialize;

use super::trace::{Lines, Trace};

#[derive(Deserialize)]
struct Token {
    layers: Vec<Vec<u32>>,
}

/// `line` is the first one.
pub fn parse(mut line: String, lines: &mut Lines) -> Result<Trace> {
    let mut trace = Trace::default();
    let mut token = 0;
    let mut layers = None;
    loop {
        if !line.trim().is_empty() {
            let Token { layers: chosen } = serde_json::from_str(&line)?;
            if *layers.get_or_insert(chosen.len()) != chosen.len() {
                bail!("a token with {} layers follows one with {}", chosen.len(), layers.unwrap_or(0));
            }
            for (layer, experts) in chosen.iter().enumerate() {
                trace.push(token, layer, experts)?;
            }
            token += 1;
        }
        if !lines.next(&mut line)? {
            return Ok(trace);
        }
    }
}
