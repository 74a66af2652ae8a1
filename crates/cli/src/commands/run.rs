//! `adit run MODEL`: with a prompt one answer, which is all that stdout gets; without one a conversation.

use std::path::PathBuf;

use adit_engine::{Engine, Finish};
use anyhow::Result;

use crate::args::{ContextArgs, LengthArgs, MachineArgs, ModelArgs, SamplingArgs, SpeculationArgs, TextArgs};
use crate::chat::{self, Conversation, Manner, Screen};
use crate::failure::Usage;
use crate::heat::HeatArgs;
use crate::progress::note;
use crate::session;
use crate::trace::{TraceArgs, Tracing};
use crate::whole_file;

#[derive(clap::Args)]
pub struct Args {
    #[command(flatten)]
    model: ModelArgs,

    #[command(flatten)]
    text: TextArgs,

    #[command(flatten)]
    length: LengthArgs,

    #[command(flatten)]
    sampling: SamplingArgs,

    #[command(flatten)]
    machine: MachineArgs,

    #[command(flatten)]
    context: ContextArgs,

    #[command(flatten)]
    speculation: SpeculationArgs,

    /// Go on with the text as it is, without the chat template
    #[arg(long)]
    raw: bool,

    /// Write counters to this file as JSON when done
    #[arg(long, value_name = "FILE.json")]
    stats: Option<PathBuf>,

    #[command(flatten)]
    heat: HeatArgs,

    #[command(flatten)]
    trace: TraceArgs,
}

pub fn run(args: Args) -> Result<()> {
    args.stats.as_deref().map(whole_file::check).transpose()?;
    args.trace.check()?;
    if args.stats.is_some() && args.stats.as_deref() == args.trace.path() {
        return Err(Usage("--stats and --trace name the same file; give each its own".into()).into());
    }
    let text = args.text.given()?;
    let pins = args.heat.pins()?;
    let mut options = args.machine.load_options(args.context.tokens(), None);
    options.observer_bytes = args.trace.bytes();
    // A trace is of the tokens of the answer: without guesses there are no others.
    if options.observer_bytes == 0 {
        options.speculation = args.speculation.options()?;
    }
    let model = args.model.locate()?;
    let mut engine = session::load(&model, &options)?;
    let learning = args.heat.begin(&mut engine, pins)?;
    args.context.tell_if_beyond(engine.model().config().context_trained);
    let mut chat = Conversation::new(&engine, args.raw)?;
    if !args.raw && !chat.uses_template() {
        note("this model has no chat template: it goes on with the text as it is");
    }
    let manner = Manner { sampling: args.sampling.options(), tokens_max: args.length.tokens_max() };
    let tracing = args.trace.begin(&model, engine.model())?.map(|(tracing, observer)| {
        engine.observe(Some(observer));
        tracing
    });
    let talked = talk(&mut engine, &mut chat, manner, text);
    if let Some(learning) = learning {
        learning.end(&engine);
    }
    // What was traced until an error is worth keeping; the error comes first all the same.
    let traced = tracing.map_or(Ok(()), Tracing::end);
    talked.and(traced)?;
    match &args.stats {
        Some(path) => session::write_stats(path, &engine.stats()),
        None => Ok(()),
    }
}

/// One answer to `text`, or else a conversation.
fn talk(engine: &mut Engine, chat: &mut Conversation, manner: Manner, text: Option<String>) -> Result<()> {
    let mut screen = Screen::stdout();
    match text {
        Some(text) => {
            chat.ask(text);
            let finish = chat::answer(engine, chat, &manner, &mut screen)?;
            if finish == Finish::ContextFull {
                note("(the context is full; -c gives a longer one)");
            }
        }
        None => chat::talk(engine, chat, manner, &mut screen)?,
    }
    Ok(())
}
