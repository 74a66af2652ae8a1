//! A draft model: a small model with the same vocabulary, resident beside the main one, which guesses the
//! likeliest token. Owns its model and the tokens that its lane holds; knows nothing of what becomes of them.
//!
//! Its lane need not begin where the timeline begins: reading all of a long text may cost more than the
//! guesses save. It begins with the last tokens, and reads the whole once that can be paid from savings.

use std::path::{Path, PathBuf};
use std::time::Instant;

use adit_format::{Gguf, Metadata};
use adit_model::{Blueprint, IoOptions, Model, ModelError, Plan, Request, Row};

use super::{GRADES, Guess, Proposer};
use crate::engine::LoadOptions;
use crate::error::EngineError;

/// Rows of a step while the draft reads: few, for a small scratch.
const CHUNK: usize = 16;
/// Tokens with which a lane begins at least: with fewer, guesses are poor.
const START_TOKENS: usize = 16;
/// Tokens that the draft may be behind without asking whether reading them can be paid.
const BEHIND_MAX: usize = 4;
/// Lead of the likeliest token's logit over the second from which each grade but the first begins.
const LEADS: [f32; GRADES - 1] = [0.25, 0.5, 1.0, 1.75, 2.75, 4.0, 6.0];
/// Weight of the newest time.
const NEWEST: f64 = 0.25;
const TOKENS: &str = "tokenizer.ggml.tokens";

/// A draft that was opened and found to fit the main model, but is not loaded.
pub struct DraftFile {
    blueprint: Blueprint,
    plan: Plan,
}

impl DraftFile {
    /// Opens `path` for a main model with these `metadata` and this `context`.
    pub fn open(
        path: &Path,
        metadata: &Metadata,
        context: usize,
        options: &LoadOptions,
    ) -> Result<DraftFile, EngineError> {
        let in_file =
            |source: ModelError| EngineError::Draft { path: path.to_path_buf(), source: Box::new(source) };
        let gguf = Gguf::open(path).map_err(|error| in_file(error.into()))?;
        check_vocabulary(metadata, gguf.metadata(), path)?;
        // Mirrors are copies of the main model.
        let io = IoOptions { mirrors: Vec::new(), ..options.io.clone() };
        let blueprint = Blueprint::from_gguf(gguf, &io).map_err(in_file)?;
        if blueprint.config.has_state() {
            return Err(EngineError::DraftWithState { path: path.to_path_buf() });
        }
        let request = Request {
            // All of it resident; whether that fits is for the main model's plan to say.
            memory: None,
            context: context.min(blueprint.config.context_trained),
            chunk: Some(CHUNK),
            ..options.request(context)
        };
        let plan = blueprint.plan(&request).map_err(in_file)?;
        if plan.slots < plan.experts {
            return Err(EngineError::DraftTooLarge {
                path: path.to_path_buf(),
                slots: plan.slots,
                experts: plan.experts,
            });
        }
        Ok(DraftFile { blueprint, plan })
    }

    /// What the draft takes beside the main model: its plan without the program, which is there once.
    pub fn bytes(&self) -> u64 {
        let shared = ["program", "reserve"];
        self.plan.terms.iter().filter(|term| !shared.contains(&term.name)).map(|term| term.bytes).sum()
    }

    /// Bytes that loading reads.
    pub fn backbone_bytes(&self) -> u64 {
        self.blueprint.backbone_bytes()
    }

    pub(crate) fn load(self, progress: &mut dyn FnMut(u64)) -> Result<Draft, ModelError> {
        let model = Model::load(self.blueprint, self.plan, progress)?;
        let (context, chunk) = (model.plan().context, model.plan().chunk);
        let mut draft = Draft {
            held: Vec::with_capacity(context),
            start: 0,
            rows: Vec::with_capacity(chunk),
            guess_ns: 0.0,
            read_ns: 0.0,
            model,
        };
        draft.measure()?;
        Ok(draft)
    }
}

/// Refuses a draft whose token numbers mean other texts.
fn check_vocabulary(model: &Metadata, draft: &Metadata, path: &Path) -> Result<(), EngineError> {
    let (ours, theirs) = (model.require_strings(TOKENS), draft.require_strings(TOKENS));
    let (ours, theirs) = (ours.map_err(ModelError::from)?, theirs.map_err(ModelError::from)?);
    let refuse = |difference| Err(EngineError::DraftVocabulary { path: PathBuf::from(path), difference });
    if ours.len() != theirs.len() {
        return refuse(format!("it has {} tokens, the model {}", theirs.len(), ours.len()));
    }
    match ours.iter().zip(theirs.iter()).enumerate().find(|(_, (ours, theirs))| ours != theirs) {
        None => Ok(()),
        Some((id, (ours, theirs))) => {
            let shown = |text: &[u8]| String::from_utf8_lossy(text).chars().take(40).collect::<String>();
            refuse(format!("its token {id} is {:?}, the model's {:?}", shown(theirs), shown(ours)))
        }
    }
}

pub(crate) struct Draft {
    model: Model,
    /// Tokens whose keys and values the lane holds; the first is the timeline's at `start`.
    held: Vec<u32>,
    start: usize,
    rows: Vec<Row>,
    /// Time of a guess.
    guess_ns: f64,
    /// Time to read one token of many.
    read_ns: f64,
}

impl Draft {
    /// Times a guess and the reading of a chunk, so that nobody need try what cannot pay.
    fn measure(&mut self) -> Result<(), ModelError> {
        let tokens = [0; CHUNK];
        // The first step touches memory that nothing has touched yet.
        for count in [1, CHUNK, 1] {
            let count = count.min(self.model.plan().context).min(self.model.plan().chunk);
            let start = Instant::now();
            self.read(&tokens[..count], true)?;
            let ns = start.elapsed().as_nanos() as f64;
            if count == 1 {
                self.guess_ns = ns
            } else {
                self.read_ns = ns / count as f64
            }
            self.forget();
        }
        if self.read_ns == 0.0 {
            self.read_ns = self.guess_ns;
        }
        Ok(())
    }

    fn forget(&mut self) {
        self.held.clear();
        self.model.truncate(0, 0);
    }

    /// Computes `tokens` behind those held; the guess after the last of them if it is `wanted`.
    fn read(&mut self, tokens: &[u32], wanted: bool) -> Result<Option<Guess>, ModelError> {
        let mut guess = None;
        let chunk = self.model.plan().chunk;
        for (index, part) in tokens.chunks(chunk).enumerate() {
            let first = self.held.len();
            let is_last = (index + 1) * chunk >= tokens.len();
            self.rows.clear();
            self.rows.extend(part.iter().enumerate().map(|(at, &token)| Row {
                lane: 0,
                token,
                position: first + at,
                wants_logits: wanted && is_last && at + 1 == part.len(),
            }));
            self.model.step(&self.rows, &mut |_, logits| guess = Some(likeliest(logits)))?;
            self.held.extend_from_slice(part);
        }
        Ok(guess)
    }

    /// Keeps what the lane shares with `timeline` and `proposed`, or begins anew where that is cheaper or
    /// where reading all can be paid. Returns where reading goes on; `None` if nothing can be paid.
    fn rewind(&mut self, timeline: &[u32], proposed: &[u32], spare_ns: f64) -> Option<usize> {
        let context = self.model.plan().context;
        let total = timeline.len() + proposed.len();
        let wanted = timeline.iter().chain(proposed).skip(self.start);
        let common = self.held.iter().zip(wanted).take_while(|(held, wanted)| held == wanted).count();
        // The last token is read again if it is held: its logits are gone.
        let keep = common.min((total - 1).saturating_sub(self.start));
        let affordable = (spare_ns / self.read_ns.max(1.0)) as usize;
        let reads_all = total <= affordable && total < context;
        let is_behind = keep == 0 || total - (self.start + keep) > affordable.max(BEHIND_MAX);
        let is_full = total - self.start > context;
        if proposed.is_empty() && (is_behind || is_full || reads_all && self.start > 0) {
            if affordable < START_TOKENS.min(total) {
                return None;
            }
            let most = if reads_all { total } else { affordable.min(context / 2) };
            self.start = total - most.clamp(1, total);
            self.forget();
            return Some(self.start);
        }
        self.held.truncate(keep);
        self.model.truncate(0, keep);
        Some(self.start + keep)
    }
}

impl Proposer for Draft {
    fn guess(
        &mut self,
        timeline: &[u32],
        proposed: &[u32],
        spare_ns: f64,
    ) -> Result<Option<Guess>, ModelError> {
        let Some(from) = self.rewind(timeline, proposed, spare_ns) else { return Ok(None) };
        let room = self.model.plan().context - self.held.len();
        let vocabulary = self.model.config().vocabulary;
        let (old, new) = timeline.split_at(from.min(timeline.len()));
        let new_proposed = &proposed[from - old.len()..];
        let known = |tokens: &[u32]| tokens.iter().all(|&token| (token as usize) < vocabulary);
        let count = new.len() + new_proposed.len();
        if count == 0 || count > room || !known(new) || !known(new_proposed) {
            return Ok(None);
        }
        let start = Instant::now();
        let mut guess = None;
        if !new.is_empty() {
            guess = self.read(new, new_proposed.is_empty())?;
        }
        if !new_proposed.is_empty() {
            guess = self.read(new_proposed, true)?;
        }
        let ns = start.elapsed().as_nanos() as f64;
        match count {
            1 => self.guess_ns += NEWEST * (ns - self.guess_ns),
            CHUNK.. => self.read_ns += NEWEST * (ns / count as f64 - self.read_ns),
            _ => {}
        }
        Ok(guess)
    }

    fn guess_ns(&self) -> f64 {
        self.guess_ns
    }
}

/// The token with the highest logit, and how far it leads.
fn likeliest(logits: &[f32]) -> Guess {
    let (mut token, mut best, mut second) = (0, f32::NEG_INFINITY, f32::NEG_INFINITY);
    for (id, &logit) in logits.iter().enumerate() {
        if logit > best {
            (token, best, second) = (id as u32, logit, best);
        } else if logit > second {
            second = logit;
        }
    }
    let lead = best - second;
    Guess { token, grade: LEADS.iter().take_while(|&&from| lead >= from).count() }
}
