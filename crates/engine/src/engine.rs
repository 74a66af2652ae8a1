//! The engine: a loaded model with its tokeniser and template; one lane is one mutable timeline.
//!
//! A caller hands over the full token prefix; the engine reuses what the lane already holds, drops what
//! differs and computes the rest. Knows nothing of terminals or HTTP.

use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Instant;

use adit_format::{Gguf, Metadata};
use adit_model::{
    Blueprint, ExpertPlace, Heat, IoOptions, KV_BLOCK, KvFormat, Model, ModelError, Observer, Plan, Request,
    Row, ScoutSet, THREADS_MAX,
};

use crate::detokenizer::{ControlTokens, Detokenizer};
use crate::error::EngineError;
use crate::sampler::{Sampler, SamplerOptions};
use crate::speculation::{DraftFile, GUESSES_MAX, Speculation, SpeculationOptions};
use crate::stats::Stats;
use crate::template::{ChatTemplate, TemplateError};
use crate::tokenizer::Tokenizer;

/// The context that is planned for when nobody asks: what fits most conversations and small machines.
const CONTEXT_DEFAULT: usize = 4096;

/// Tokens at the end of a prompt that the next one may have otherwise: the head of an answer, mostly.
const TAIL_TOKENS: usize = 8;

/// Room for an answer's text; one with more bytes a token than this grows while it comes.
const TEXT_BYTES_PER_TOKEN: usize = 8;

/// How to load a model.
#[derive(Debug, Clone)]
pub struct LoadOptions {
    /// Whole-process budget in bytes; `None` means all that fits without swapping.
    pub memory: Option<u64>,
    /// Context length in tokens; `None` means the model's own, at most 4096.
    pub context: Option<usize>,
    /// At most [`THREADS_MAX`].
    pub threads: usize,
    pub kv: KvFormat,
    /// Prefill chunk in rows; `None` chooses from memory.
    pub chunk: Option<usize>,
    pub io: IoOptions,
    /// What an observer of the steps will take, in bytes.
    pub observer_bytes: u64,
    pub speculation: SpeculationOptions,
    /// Who may make hints.
    pub scouts: ScoutSet,
}

impl LoadOptions {
    /// The plan request for a model trained on `context_trained` positions.
    pub fn request(&self, context_trained: usize) -> Request {
        Request {
            memory: self.memory,
            context: self.context.unwrap_or(context_trained.min(CONTEXT_DEFAULT)),
            lanes: 1,
            threads: self.threads,
            kv: self.kv,
            chunk: self.chunk,
            observer_bytes: self.observer_bytes,
            draft_bytes: 0,
            scouts: self.scouts,
        }
    }

    /// The draft model that these options name, found to fit a model with these `metadata`, and the plan
    /// request with what it takes.
    pub fn request_with_draft(
        &self,
        metadata: &Metadata,
        context_trained: usize,
    ) -> Result<(Request, Option<DraftFile>), EngineError> {
        let request = self.request(context_trained);
        let open = |path: &PathBuf| DraftFile::open(path, metadata, request.context, self);
        let draft = self.speculation.draft.as_ref().map(open).transpose()?;
        let draft_bytes = draft.as_ref().map_or(0, DraftFile::bytes);
        Ok((Request { draft_bytes, ..request }, draft))
    }
}

impl Default for LoadOptions {
    fn default() -> Self {
        let threads = std::thread::available_parallelism().map_or(1, usize::from).min(THREADS_MAX);
        LoadOptions {
            memory: None,
            context: None,
            threads,
            kv: KvFormat::F16,
            chunk: None,
            io: IoOptions::default(),
            observer_bytes: 0,
            speculation: SpeculationOptions::default(),
            scouts: ScoutSet::ALL,
        }
    }
}

/// What happens while an answer is made.
pub enum Event<'a> {
    /// Prompt tokens computed so far, of those that had to be computed.
    Prefill { done: usize, total: usize },
    /// New text, whole characters only; may be empty for a token that completes none. The model shows its
    /// counters as they are now.
    Text { text: &'a str, model: &'a Model },
}

/// Whether to go on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Flow {
    Continue,
    Stop,
}

/// Why an answer ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Finish {
    /// The model ended its turn.
    EndOfTurn,
    /// The token limit was reached.
    Length,
    /// The context is full.
    ContextFull,
    /// The caller said stop.
    Stopped,
}

/// A finished answer.
#[derive(Debug, Clone)]
pub struct Answer {
    pub tokens: Vec<u32>,
    pub text: String,
    pub finish: Finish,
    /// Prompt tokens that the lane already held.
    pub reused_tokens: usize,
}

/// A loaded model that turns text into a stream of tokens.
pub struct Engine {
    model: Model,
    tokenizer: Arc<Tokenizer>,
    /// A template that cannot be read is an error only for those who want it.
    template: Result<Option<ChatTemplate>, TemplateError>,
    sampler: Sampler,
    /// Tokens whose keys and values lane 0 holds.
    history: Vec<u32>,
    rows: Vec<Row>,
    speculation: Speculation,
    /// Tokens that the last step drew: one, and those whose guesses came through. `taken` are in the answer.
    drawn: Vec<u32>,
    taken: usize,
    stats: Stats,
}

impl Engine {
    /// Opens, plans and loads. `progress(done, total)` counts backbone bytes.
    pub fn load(
        path: &Path,
        options: &LoadOptions,
        progress: &mut dyn FnMut(u64, u64),
    ) -> Result<Engine, EngineError> {
        let gguf = Gguf::open(path).map_err(ModelError::from)?;
        // Before its text: a model that cannot run is refused for what it is.
        let blueprint = Blueprint::from_gguf(gguf, &options.io)?;
        let metadata = blueprint.gguf.metadata();
        let tokenizer = Arc::new(Tokenizer::from_metadata(metadata)?);
        let template_source = metadata.str("tokenizer.chat_template").map_err(ModelError::from)?;
        let template = template_source.map(|source| template(source, &tokenizer)).transpose();
        let speculation = options.speculation.for_model(&blueprint.config)?;
        let (request, draft) =
            options.request_with_draft(blueprint.gguf.metadata(), blueprint.config.context_longest())?;
        let plan = blueprint.plan(&request)?;
        let main = blueprint.backbone_bytes();
        let total = main + draft.as_ref().map_or(0, DraftFile::backbone_bytes);
        let model = Model::load(blueprint, plan, &mut |done| progress(done, total))?;
        let draft = draft.map(|draft| draft.load(&mut |done| progress(main + done, total))).transpose()?;
        if tokenizer.vocab_size() > model.config().vocabulary {
            return Err(EngineError::VocabularyMismatch {
                tokens: tokenizer.vocab_size(),
                rows: model.config().vocabulary,
            });
        }
        let (chunk, context) = (model.plan().chunk, model.plan().context);
        Ok(Engine {
            sampler: Sampler::new(model.config().vocabulary),
            history: Vec::with_capacity(context),
            rows: Vec::with_capacity(chunk),
            speculation: Speculation::new(&speculation, draft, model.config().experts.is_some()),
            drawn: Vec::with_capacity(GUESSES_MAX + 1),
            taken: 0,
            stats: Stats::default(),
            model,
            tokenizer,
            template,
        })
    }

    pub fn plan(&self) -> &Plan {
        self.model.plan()
    }

    pub fn model(&self) -> &Model {
        &self.model
    }

    /// Lets `observer` watch the steps from now on, or nobody; returns who watched until now.
    pub fn observe(&mut self, observer: Option<Box<dyn Observer>>) -> Option<Box<dyn Observer>> {
        self.model.observe(observer)
    }

    /// Begins with what an earlier run of the same model used.
    pub fn warm(&mut self, heat: &Heat) {
        self.model.warm(heat);
    }

    /// From now on these experts never leave memory; errors as of [`Model::pin`].
    pub fn pin(&mut self, places: &[ExpertPlace]) -> Result<(), EngineError> {
        Ok(self.model.pin(places)?)
    }

    /// While nobody waits for an answer: [`Model::prewarm`].
    pub fn prewarm(&mut self, stop: &AtomicBool) -> Result<usize, EngineError> {
        Ok(self.model.prewarm(stop)?)
    }

    pub fn tokenizer(&self) -> &Arc<Tokenizer> {
        &self.tokenizer
    }

    /// The file's chat template, if it has one.
    pub fn template(&self) -> Result<Option<&ChatTemplate>, &TemplateError> {
        self.template.as_ref().map(Option::as_ref)
    }

    /// Refuses a text that cannot fit the context whatever its tokens are, before memory is spent on them.
    pub fn check_length(&self, text: &str) -> Result<(), EngineError> {
        let (tokens, context) = (text.len() / self.tokenizer.token_bytes_max().max(1), self.plan().context);
        if tokens < context { Ok(()) } else { Err(EngineError::PromptTooLong { tokens, context }) }
    }

    /// Counters since loading.
    pub fn stats(&self) -> Stats {
        self.stats.with_speculation(self.speculation.stats()).with_model(&self.model)
    }

    /// Forgets the conversation.
    pub fn clear(&mut self) {
        self.model.truncate(0, 0);
        self.history.clear();
    }

    /// Continues `prompt` (the full prefix) by up to `max_tokens` tokens.
    ///
    /// `on_event` sees progress and text as they come and may stop the answer; what was computed until
    /// then stays in the lane for the next call.
    pub fn generate(
        &mut self,
        prompt: &[u32],
        max_tokens: usize,
        sampling: SamplerOptions,
        on_event: &mut dyn FnMut(Event<'_>) -> Flow,
    ) -> Result<Answer, EngineError> {
        if prompt.is_empty() {
            return Err(EngineError::EmptyPrompt);
        }
        if prompt.len() >= self.plan().context {
            return Err(EngineError::PromptTooLong { tokens: prompt.len(), context: self.plan().context });
        }
        self.model.check_files()?;
        self.sampler.reset(sampling);
        let reused_tokens = self.rewind(prompt);
        self.stats.prompt_tokens += (prompt.len() - reused_tokens) as u64;
        let mut answer = self.answer(prompt.len(), max_tokens, reused_tokens);
        if max_tokens == 0 {
            return Ok(answer);
        }
        let Some(token) = self.prefill(prompt, reused_tokens, on_event)? else {
            answer.finish = Finish::Stopped;
            return Ok(answer);
        };
        let mut text = Detokenizer::continuing(self.tokenizer.clone(), ControlTokens::Hidden);
        let start = Instant::now();
        let extended = self.extend(&mut answer, token, max_tokens, &mut text, on_event);
        // What was verified but not taken is forgotten: the lane is as after plain decoding.
        self.drawn.clear();
        self.taken = 0;
        let held = self.model.truncate(0, self.history.len());
        self.history.truncate(held);
        answer.finish = extended?;
        // The first token came out of prefill; only steps after it are decoding.
        self.stats.decode_tokens += answer.tokens.len().saturating_sub(1) as u64;
        self.stats.decode_ns += start.elapsed().as_nanos() as u64;
        let rest = text.finish();
        answer.text.push_str(rest);
        if !rest.is_empty() {
            on_event(Event::Text { text: rest, model: &self.model });
        }
        Ok(answer)
    }

    /// An empty answer with room for its tokens and a usual text of theirs.
    fn answer(&self, prompt_len: usize, max_tokens: usize, reused_tokens: usize) -> Answer {
        let most = max_tokens.min(self.plan().context + 1 - prompt_len);
        Answer {
            tokens: Vec::with_capacity(most),
            text: String::with_capacity(most * TEXT_BYTES_PER_TOKEN),
            finish: Finish::Length,
            reused_tokens,
        }
    }

    /// Adds `token` and what follows it to the answer, until something ends it.
    fn extend(
        &mut self,
        answer: &mut Answer,
        mut token: u32,
        max_tokens: usize,
        text: &mut Detokenizer,
        on_event: &mut dyn FnMut(Event<'_>) -> Flow,
    ) -> Result<Finish, EngineError> {
        loop {
            if self.tokenizer.is_end_of_generation(token) {
                return Ok(Finish::EndOfTurn);
            }
            answer.tokens.push(token);
            self.stats.generated_tokens += 1;
            let piece = text.push(token);
            answer.text.push_str(piece);
            if on_event(Event::Text { text: piece, model: &self.model }) == Flow::Stop {
                return Ok(Finish::Stopped);
            }
            if answer.tokens.len() == max_tokens {
                return Ok(Finish::Length);
            }
            if self.history.len() == self.plan().context {
                return Ok(Finish::ContextFull);
            }
            token = self.next(token, max_tokens - answer.tokens.len())?;
        }
    }

    /// Computes `tokens` from an empty lane; `on_logits(position, logits)` for the `wanted` positions.
    pub fn logits(
        &mut self,
        tokens: &[u32],
        wanted: Range<usize>,
        on_logits: &mut dyn FnMut(usize, &[f32]),
    ) -> Result<(), EngineError> {
        self.clear();
        let chunk = self.plan().chunk;
        for (index, part) in tokens.chunks(chunk).enumerate() {
            let first = index * chunk;
            self.fill_rows(part, first, &wanted);
            self.model.step(&self.rows, &mut |row, logits| on_logits(first + row, logits))?;
            self.history.extend_from_slice(part);
        }
        Ok(())
    }

    /// Keeps the common prefix of `prompt` and the lane, less one token so that there are logits to
    /// sample from, and less what is behind the newest snapshot where layers carry a state; returns its
    /// length.
    fn rewind(&mut self, prompt: &[u32]) -> usize {
        let common = self.history.iter().zip(prompt).take_while(|(held, wanted)| held == wanted).count();
        // A step that failed may have left less in the lane than the history says.
        let wanted = common.min(prompt.len() - 1).min(self.model.lane_len(0));
        let keep = self.model.truncate(0, wanted);
        self.history.truncate(keep);
        self.stats.prompt_tokens_again += (wanted - keep) as u64;
        keep
    }

    /// Where in a prompt of which `held` tokens are in the lane the state is to be remembered, for the next
    /// prompt to go on from; nowhere if the model carries none.
    fn snapshot_place(&self, prompt: &[u32], held: usize) -> Option<usize> {
        let early = prompt.len().saturating_sub(TAIL_TOKENS) / KV_BLOCK * KV_BLOCK;
        (self.model.config().has_state() && held < prompt.len()).then_some(early.max(held))
    }

    /// Computes `prompt[from..]` in chunks and samples the first token; `None` if told to stop.
    fn prefill(
        &mut self,
        prompt: &[u32],
        from: usize,
        on_event: &mut dyn FnMut(Event<'_>) -> Flow,
    ) -> Result<Option<u32>, EngineError> {
        let total = prompt.len() - from;
        let snapshot = self.snapshot_place(prompt, from);
        let mut sampled = None;
        let mut first = from;
        while first < prompt.len() {
            if snapshot == Some(first) {
                self.model.snapshot(0);
            }
            let start = Instant::now();
            let end = prompt.len().min(first + self.plan().chunk);
            let end = snapshot.filter(|at| (first + 1..end).contains(at)).unwrap_or(end);
            let part = &prompt[first..end];
            self.fill_rows(part, first, &(prompt.len() - 1..prompt.len()));
            let sampler = &mut self.sampler;
            self.model.step(&self.rows, &mut |_, logits| sampled = Some(sampler.sample(logits)))?;
            self.history.extend_from_slice(part);
            first = end;
            let ns = start.elapsed().as_nanos() as u64;
            self.speculation.earn(ns as f64);
            self.stats.prefill_ns += ns;
            self.stats.prefill_tokens += part.len() as u64;
            if on_event(Event::Prefill { done: first - from, total }) == Flow::Stop {
                return Ok(None);
            }
        }
        Ok(sampled)
    }

    /// The token after `token`, which is the last of the answer: drawn by an earlier step or by a new one.
    /// No more than `room` tokens will be asked for.
    fn next(&mut self, token: u32, room: usize) -> Result<u32, EngineError> {
        self.history.push(token);
        if self.taken == self.drawn.len() {
            if let Err(error) = self.decode(room) {
                self.history.pop();
                return Err(error);
            }
            self.taken = 0;
        }
        self.taken += 1;
        Ok(self.drawn[self.taken - 1])
    }

    /// Computes the last token of the history, and behind it guesses at what follows; draws the next token
    /// and, as long as guesses come through, those after it.
    fn decode(&mut self, room: usize) -> Result<(), EngineError> {
        let first = self.history.len() - 1;
        let (chunk, context) = (self.plan().chunk, self.plan().context);
        // Rows for the token itself and for guesses; the last draw needs none.
        let most = (chunk - 1).min(context - self.history.len()).min(room - 1);
        let guesses = self.speculation.propose(&self.history, most);
        let tokens = self.history[first..].iter().chain(guesses);
        self.rows.clear();
        self.rows.extend(tokens.zip(first..).map(|(&token, position)| Row {
            lane: 0,
            token,
            position,
            wants_logits: true,
        }));
        let verified = self.verify();
        if verified.is_err() && self.rows.len() > 1 {
            // A guess may have asked for bytes that the answer does without.
            self.speculation.clear();
            self.rows.truncate(1);
            self.model.truncate(0, first);
            return Ok(self.verify()?);
        }
        Ok(verified?)
    }

    /// Computes the rows and draws from their logits in order, until a draw is not the next row's token.
    fn verify(&mut self) -> Result<(), ModelError> {
        let start = Instant::now();
        self.drawn.clear();
        let Engine { model, sampler, drawn, rows, tokenizer, .. } = self;
        let mut goes_on = true;
        model.step(rows, &mut |row, logits| {
            if goes_on {
                let token = sampler.sample(logits);
                drawn.push(token);
                let is_guessed = rows.get(row + 1).is_some_and(|next| next.token == token);
                goes_on = is_guessed && !tokenizer.is_end_of_generation(token);
            }
        })?;
        self.speculation.settle(&self.drawn, start.elapsed().as_nanos() as f64);
        // Rows of guesses that did not come through leave the lane.
        let kept = self.rows[0].position + self.drawn.len();
        self.model.truncate(0, kept);
        Ok(())
    }

    /// Makes the step's rows: `tokens` at the positions from `first` on, logits for those in `wanted`.
    fn fill_rows(&mut self, tokens: &[u32], first: usize, wanted: &Range<usize>) {
        self.rows.clear();
        self.rows.extend(tokens.iter().zip(first..).map(|(&token, position)| {
            let wants_logits = wanted.contains(&position);
            Row { lane: 0, token, position, wants_logits }
        }));
    }
}

/// The chat template of a file, told the texts of the tokens it may write.
fn template(source: &str, tokenizer: &Tokenizer) -> Result<ChatTemplate, TemplateError> {
    let text = |token: Option<u32>| token.and_then(|token| tokenizer.token_text(token)).unwrap_or_default();
    ChatTemplate::new(source, &text(tokenizer.bos()), &text(tokenizer.eos()))
}
