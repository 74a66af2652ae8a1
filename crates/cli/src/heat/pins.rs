//! A plan of pins: which experts never leave memory, as a file or as the hottest ones.

use std::path::{Path, PathBuf};
use std::str::FromStr;

use adit_model::{ExpertPlace, Heat, Model};
use anyhow::{Result, bail};

use crate::args::read_text;

/// What `--pin` says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Pins {
    /// So many of the hottest.
    Hottest(usize),
    File(PathBuf),
}

impl FromStr for Pins {
    type Err = String;

    fn from_str(text: &str) -> Result<Pins, String> {
        match text.strip_prefix("heat:") {
            Some(count) => {
                let count = count.parse().ok().filter(|count| *count > 0);
                Ok(Pins::Hottest(count.ok_or("heat: needs a number of experts, as in heat:64")?))
            }
            None => Ok(Pins::File(text.into())),
        }
    }
}

/// The same, the file read.
pub enum Plan {
    Hottest(usize),
    Listed(Vec<ExpertPlace>),
}

impl Pins {
    pub fn read(&self) -> Result<Plan> {
        Ok(match self {
            Pins::Hottest(count) => Plan::Hottest(*count),
            Pins::File(path) => Plan::Listed(read(path)?),
        })
    }
}

impl Plan {
    /// The experts, given what is known of earlier runs.
    pub fn places(self, model: &Model, known: Option<&Heat>) -> Result<Vec<ExpertPlace>> {
        let most = match self {
            Plan::Listed(places) => return Ok(places),
            Plan::Hottest(_) if model.expert_layers().is_empty() => return Ok(Vec::new()),
            Plan::Hottest(most) => most,
        };
        let Some(heat) = known else {
            bail!("--pin heat:{most}: nothing is known of earlier runs of this model; run it once without");
        };
        let layers = model.expert_layers();
        let experts = layers
            .iter()
            .flat_map(|routed| (0..routed.experts).map(|expert| ExpertPlace { layer: routed.layer, expert }));
        let mut hot: Vec<(f32, ExpertPlace)> = heat.rates.iter().copied().zip(experts).collect();
        hot.retain(|(rate, _)| *rate > 0.0);
        if hot.len() < most {
            bail!(
                "--pin heat:{most}: earlier runs of this model used {} experts, so pin at most those",
                hot.len()
            );
        }
        hot.sort_by(|a, b| b.0.total_cmp(&a.0));
        Ok(hot.into_iter().take(most).map(|(_, place)| place).collect())
    }
}

/// The experts that the file names.
fn read(path: &Path) -> Result<Vec<ExpertPlace>> {
    parse(&read_text(path)?).map_err(|wrong| anyhow::anyhow!("{}: {wrong}", path.display()))
}

/// Lines of a layer and experts of it.
fn parse(text: &str) -> Result<Vec<ExpertPlace>, String> {
    let mut places = Vec::new();
    for (line, number) in text.lines().zip(1..) {
        let words = line.split('#').next().unwrap_or_default();
        let separates = |c: char| c.is_whitespace() || c == ',' || c == ':';
        let mut numbers = Vec::new();
        for word in words.split(separates).filter(|word| !word.is_empty()) {
            let whole =
                word.parse::<u32>().map_err(|_| format!("line {number}: {word:?} is no whole number"))?;
            numbers.push(whole as usize);
        }
        match numbers[..] {
            [] => {}
            [layer] => {
                return Err(format!(
                    "line {number}: layer {layer} without experts; expected `LAYER EXPERT...`"
                ));
            }
            [layer, ref experts @ ..] => {
                places.extend(experts.iter().map(|&expert| ExpertPlace { layer, expert }));
            }
        }
    }
    Ok(places)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_plan_has_lines_of_a_layer_and_its_experts() {
        let places = parse("# hot\n3 17 42\n\n0: 5,6 # first layer\r\n").unwrap();
        let expected = [(3, 17), (3, 42), (0, 5), (0, 6)];
        assert_eq!(places, expected.map(|(layer, expert)| ExpertPlace { layer, expert }));
        assert_eq!(parse(""), Ok(vec![]));
        assert!(parse("1 2\n3").unwrap_err().contains("line 2: layer 3 without experts"));
        assert!(parse("1 -2").unwrap_err().contains("line 1: \"-2\" is no whole number"));
        assert!(parse("{\"layer\": 1}").unwrap_err().starts_with("line 1"));
        assert!(parse("1 99999999999999999999").is_err());
    }

    #[test]
    fn heat_and_a_number_mean_the_hottest() {
        assert_eq!("heat:64".parse(), Ok(Pins::Hottest(64)));
        assert_eq!("plan.txt".parse(), Ok(Pins::File("plan.txt".into())));
        for wrong in ["heat:", "heat:0", "heat:-1", "heat:many"] {
            assert!(wrong.parse::<Pins>().is_err(), "{wrong}");
        }
    }
}
