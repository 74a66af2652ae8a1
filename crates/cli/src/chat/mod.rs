//! A conversation with a person: lines in, answers out, and a few commands that begin with a slash.
//!
//! `input` reads what they type, `conversation` keeps what was said and turns it into tokens, `screen` shows
//! the answer. Knows nothing of where the model came from.

mod conversation;
mod gauge;
mod input;
mod pane;
mod screen;

use std::path::Path;

use adit_engine::{Engine, EngineError, Event, Finish, Flow, SamplerOptions};
use anyhow::{Result, anyhow, bail};

use crate::heat;
use crate::interrupt;
use crate::output::OutputClosed;
use crate::progress::{Progress, note};
pub use conversation::Conversation;
use input::{Input, Line};
pub use screen::Screen;

const HELP: &str = "\
/help        this list
/stats       what the answers so far have cost
/clear       begin a new conversation
/save FILE   write the conversation as JSON
/load FILE   go on with a saved conversation
/bye         leave (or Ctrl-D)
A line that ends with \\ goes on; \"\"\" begins and ends a text of several lines.
Ctrl-C stops an answer; the arrow keys bring back what was typed before.";

/// The way out of a context that the conversation has filled.
const CLEAR_HINT: &str = "; /clear begins a new conversation";

/// Prompts shorter than this are computed before a bar would be seen.
const PREFILL_BAR_TOKENS: usize = 128;

/// How to answer.
pub struct Manner {
    pub sampling: SamplerOptions,
    /// At most this many tokens an answer.
    pub tokens_max: usize,
}

/// Talks until the person leaves. Error at the end when none of the questions that a pipe gave was answered:
/// a person would have seen it.
pub fn talk(
    engine: &mut Engine,
    chat: &mut Conversation,
    mut manner: Manner,
    screen: &mut Screen,
) -> Result<()> {
    interrupt::install()?;
    let mut input = Input::open()?;
    if input.is_terminal() {
        note("/help lists the commands, Ctrl-C stops an answer, Ctrl-D leaves");
    }
    let (mut asked, mut failed) = (0, 0);
    let left = |asked: usize, failed: usize, is_terminal: bool| match failed == asked && !is_terminal {
        true if asked > 0 => Err(anyhow!("{failed} of {asked} questions were not answered, see above")),
        _ => Ok(()),
    };
    loop {
        let message = match heat::meanwhile(engine, || input.read())? {
            Line::End => return left(asked, failed, input.is_terminal()),
            Line::Nothing => continue,
            Line::Interrupted => {
                note("(/bye or Ctrl-D leaves)");
                continue;
            }
            Line::Command(name, argument) => {
                match command(&name, &argument, engine, chat, &mut input) {
                    Ok(Then::Leave) => return left(asked, failed, input.is_terminal()),
                    Ok(Then::GoOn) => {}
                    // A slip in a command must not cost the conversation.
                    Err(error) if error.is::<OutputClosed>() => return Err(error),
                    Err(error) => note(&format!("{error:#}")),
                }
                continue;
            }
            Line::Message(text) => text,
        };
        chat.ask(message);
        asked += 1;
        match answer(engine, chat, &manner, screen) {
            Ok(Finish::ContextFull) => note(&format!("(the context is full{CLEAR_HINT})")),
            Ok(_) => {}
            Err(error) => {
                // What was asked is gone from the conversation; the next question may fit.
                chat.take_back();
                failed += 1;
                let is_full = matches!(error.downcast_ref(), Some(EngineError::PromptTooLong { .. }));
                note(&format!("{error:#}{}", if is_full { CLEAR_HINT } else { "" }));
            }
        }
        manner.sampling.seed = manner.sampling.seed.wrapping_add(1);
    }
}

/// Answers the last question of `chat` on the screen and adds the answer to it. Why it ended is left to the
/// caller to tell, except that the person stopped it.
pub fn answer(
    engine: &mut Engine,
    chat: &mut Conversation,
    manner: &Manner,
    screen: &mut Screen,
) -> Result<Finish> {
    let prompt = chat.prompt(engine)?;
    let mut bar = None;
    let mut closed = None;
    let answer = interrupt::watched(|| {
        engine.generate(&prompt, manner.tokens_max, manner.sampling, &mut |event| {
            match event {
                Event::Prefill { done, total } if done < total && total >= PREFILL_BAR_TOKENS => {
                    bar.get_or_insert_with(|| Progress::tokens("reading", total as u64)).set(done as u64);
                }
                Event::Prefill { .. } => bar = None,
                Event::Text { text, model } => closed = screen.show(text, model).err(),
            }
            if interrupt::pressed() || closed.is_some() { Flow::Stop } else { Flow::Continue }
        })
    })?;
    // One that was stopped half-way would be glued to what comes next.
    drop(bar);
    if let Some(error) = closed {
        return Err(error.into());
    }
    screen.end()?;
    let finish = answer.finish;
    match finish {
        Finish::Stopped if answer.text.is_empty() => note("(stopped; the question is forgotten)"),
        Finish::Stopped => note("(stopped)"),
        Finish::ContextFull | Finish::EndOfTurn | Finish::Length => {}
    }
    chat.answered(&prompt, answer);
    Ok(finish)
}

enum Then {
    GoOn,
    Leave,
}

fn command(
    name: &str,
    argument: &str,
    engine: &mut Engine,
    chat: &mut Conversation,
    input: &mut Input,
) -> Result<Then> {
    let file = || match argument {
        "" => bail!("/{name} needs a file name"),
        name => Ok(Path::new(name)),
    };
    match name {
        "help" | "?" => note(HELP),
        "bye" | "exit" | "quit" => return Ok(Then::Leave),
        "stats" => note(&screen::summary(engine)),
        "clear" => {
            engine.clear();
            chat.clear();
            note("a new conversation");
        }
        "save" => {
            let path = file()?;
            if path.exists() && !input.confirm(&format!("{} exists; overwrite it?", path.display()))? {
                bail!("not saved");
            }
            chat.save(path)?;
            note(&format!("saved as {}", path.display()));
        }
        "load" => {
            chat.load(file()?)?;
            note(&format!("{} messages; the next question goes on from there", chat.len()));
        }
        _ => bail!("there is no /{name}; /help lists the commands"),
    }
    Ok(Then::GoOn)
}
