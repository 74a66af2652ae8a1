//! A model's chat template, rendered as Python's `transformers` would render it with jinja2. Owns the
//! environment that templates expect and the bounds of what they may do; knows of tokens only two texts.

mod filters;
mod json;
mod methods;
mod print;
mod python;
mod source;

use std::time::SystemTime;

use jiff::fmt::strtime;
use minijinja::{Environment, Error, ErrorKind, Value};

/// What one rendering may cost: steps, each worth 64 bytes written. Templates look at every message for every
/// message, some of them, so what they may cost grows with the conversation.
const FUEL: u64 = 1_000_000;
const FUEL_FOR_BYTE: u64 = 16;
const FUEL_MAX: u64 = 6_000_000;
/// Parsing and dropping recurse, once for each link of a chain like `not not not x` and for each level of a
/// value: this holds twice what the bounds allow. Only what is used of it becomes memory.
const STACK_BYTES: usize = 256 * 1024 * 1024;
/// How deep macros may call each other. Python gives up at about a thousand frames.
const RECURSION_MAX: usize = 200;
const NAME: &str = "chat template";

#[derive(Debug, thiserror::Error)]
pub enum TemplateError {
    /// The template itself said no, by `raise_exception`: the conversation is not one the model takes.
    #[error("the chat template refuses this conversation: {message}")]
    Refused { message: String },

    #[error("the chat template cannot be read: {problem}")]
    Syntax { problem: String },

    #[error("the chat template failed on this conversation: {problem}")]
    Failed { problem: String },

    #[error("the chat template did not come to an end within the steps it may take")]
    Endless,
}

pub struct ChatTemplate {
    environment: Environment<'static>,
    bos: String,
    eos: String,
}

impl ChatTemplate {
    /// `bos` and `eos` are the texts of those tokens, which many templates write themselves.
    pub fn new(source: &str, bos: &str, eos: &str) -> Result<ChatTemplate, TemplateError> {
        let source = source::prepare(source).map_err(|problem| TemplateError::Syntax { problem })?;
        let environment = on_deep_stack(|| ChatTemplate::environment(source))?;
        Ok(ChatTemplate { environment, bos: bos.to_string(), eos: eos.to_string() })
    }

    fn environment(source: String) -> Result<Environment<'static>, TemplateError> {
        let mut environment = python::environment();
        environment.set_recursion_limit(RECURSION_MAX);
        environment.add_function("strftime_now", |format: &str| time_now(format));
        environment
            .add_template_owned(NAME, source)
            .map_err(|error| TemplateError::Syntax { problem: python::describe(&error) })?;
        Ok(environment)
    }

    /// Makes `strftime_now` tell this time, in UTC, instead of the present local time.
    pub fn set_time(&mut self, time: SystemTime) {
        self.environment.add_function("strftime_now", move |format: &str| time_at(time, format));
    }

    /// The text for `messages`, a list of objects with `role` and `content`. `extra` holds further variables,
    /// such as `documents` or `enable_thinking`; they replace those of the same name given here.
    pub fn render(
        &self,
        messages: &serde_json::Value,
        tools: Option<&serde_json::Value>,
        add_generation_prompt: bool,
        extra: &serde_json::Map<String, serde_json::Value>,
    ) -> Result<String, TemplateError> {
        on_deep_stack(|| {
            let given = [
                ("messages", json::to_value(messages)),
                ("tools", tools.map_or(Value::from(()), json::to_value)),
                ("documents", Value::from(())),
                ("add_generation_prompt", Value::from(add_generation_prompt)),
                ("bos_token", Value::from(self.bos.as_str())),
                ("eos_token", Value::from(self.eos.as_str())),
            ];
            let bytes: u64 = [messages].into_iter().chain(tools).chain(extra.values()).map(json::bytes).sum();
            let extra = extra.iter().map(|(name, value)| (name.as_str(), json::to_value(value)));
            let variables = Value::from_pairs(given.into_iter().chain(extra));
            let mut environment = self.environment.clone();
            environment.set_fuel(Some((FUEL + FUEL_FOR_BYTE.saturating_mul(bytes)).min(FUEL_MAX)));
            let template = environment.get_template(NAME).expect("added by new");
            template.render(variables).map_err(|error| explain(&error))
        })
    }
}

/// Runs `work` where a hostile template cannot exhaust the stack.
fn on_deep_stack<T: Send>(
    work: impl FnOnce() -> Result<T, TemplateError> + Send,
) -> Result<T, TemplateError> {
    std::thread::scope(|scope| {
        let worker = std::thread::Builder::new().stack_size(STACK_BYTES).spawn_scoped(scope, work);
        let worker = worker.map_err(|error| TemplateError::Failed {
            problem: format!("no thread to render it on: {error}"),
        })?;
        worker.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
    })
}

fn explain(error: &Error) -> TemplateError {
    if let Some(message) = python::refusal(error) {
        return TemplateError::Refused { message };
    }
    match error.kind() {
        ErrorKind::OutOfFuel => TemplateError::Endless,
        _ => TemplateError::Failed { problem: python::describe(error) },
    }
}

fn time_now(format: &str) -> Result<String, Error> {
    strtime::format(format, &jiff::ZonedDateTime::now()).map_err(no_time)
}

fn time_at(time: SystemTime, format: &str) -> Result<String, Error> {
    let time = jiff::Timestamp::try_from(time).map_err(no_time)?;
    strtime::format(format, time).map_err(no_time)
}

fn no_time(error: jiff::Error) -> Error {
    Error::new(ErrorKind::InvalidOperation, format!("strftime_now: {error}"))
}

#[cfg(test)]
mod tests;
