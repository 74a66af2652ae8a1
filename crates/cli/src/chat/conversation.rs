//! What was said so far, as messages and as the tokens that the model has already computed.
//!
//! **Invariant:** while the rendered conversation begins with the text that was computed, its tokens begin
//! with the tokens that were computed, those of the answer as the model chose them. So a turn waits for its
//! new words only, even where an answer would be cut into other tokens if it were read anew.

use std::io::Write;
use std::path::Path;

use adit_engine::{Answer, Engine, Finish};
use anyhow::{Context, Result, anyhow, bail};
use serde::{Deserialize, Serialize};

use crate::args::read_text;
use crate::whole_file;

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Message {
    role: Role,
    content: String,
}

#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
enum Role {
    System,
    User,
    Assistant,
}

/// The file that `/save` writes.
#[derive(Serialize, Deserialize)]
struct Saved {
    messages: Vec<Message>,
}

/// How messages become text.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Style {
    /// Through the template in the model's file.
    Template,
    /// One after the other, as they are.
    Raw,
}

pub struct Conversation {
    messages: Vec<Message>,
    style: Style,
    /// The text computed so far, and its tokens.
    text: String,
    tokens: Vec<u32>,
    /// The rendered text of the question that is being answered.
    asked: String,
}

impl Conversation {
    /// A model without a template cannot do better than going on with the text.
    pub fn new(engine: &Engine, raw: bool) -> Result<Conversation> {
        let has_template = || match engine.template() {
            Ok(template) => Ok(template.is_some()),
            Err(error) => Err(anyhow!("{error}; --raw does without it")),
        };
        let style = if !raw && has_template()? { Style::Template } else { Style::Raw };
        Ok(Conversation {
            messages: Vec::new(),
            style,
            text: String::new(),
            tokens: Vec::new(),
            asked: String::new(),
        })
    }

    /// Whether messages go through the model's template.
    pub fn uses_template(&self) -> bool {
        self.style == Style::Template
    }

    pub fn len(&self) -> usize {
        self.messages.len()
    }

    pub fn ask(&mut self, content: String) {
        self.messages.push(Message { role: Role::User, content });
    }

    /// Forgets the question that could not be answered.
    pub fn take_back(&mut self) {
        self.messages.pop();
    }

    pub fn clear(&mut self) {
        self.messages.clear();
        self.text.clear();
        self.tokens.clear();
    }

    /// The tokens of the whole conversation, up to where the answer begins.
    pub fn prompt(&mut self, engine: &Engine) -> Result<Vec<u32>> {
        let tokenizer = engine.tokenizer();
        self.asked = self.render(engine)?;
        engine.check_length(&self.asked)?;
        if !self.text.is_empty()
            && let Some(rest) = self.asked.strip_prefix(&self.text)
        {
            let rest = tokenizer.encode(rest, false, true)?;
            // In the middle of a text the cut between tokens could fall elsewhere; at a control token not.
            if rest.first().is_some_and(|first| tokenizer.is_control(*first)) {
                return Ok([self.tokens.as_slice(), &rest].concat());
            }
        }
        Ok(tokenizer.encode_conversation(&self.asked)?)
    }

    /// Adds the answer to the question that `prompt` was made for. One that was stopped before its first
    /// word is none, and the question is taken back.
    pub fn answered(&mut self, prompt: &[u32], answer: Answer) {
        if answer.finish == Finish::Stopped && answer.text.is_empty() {
            return self.take_back();
        }
        self.text = std::mem::take(&mut self.asked) + &answer.text;
        self.tokens = [prompt, &answer.tokens].concat();
        self.messages.push(Message { role: Role::Assistant, content: answer.text });
    }

    fn render(&self, engine: &Engine) -> Result<String> {
        match engine.template().ok().flatten().filter(|_| self.style == Style::Template) {
            Some(template) => {
                let messages =
                    serde_json::to_value(&self.messages).context("cannot write messages as JSON")?;
                Ok(template.render(&messages, None, true, &Default::default())?)
            }
            None => Ok(self.messages.iter().map(|message| message.content.as_str()).collect()),
        }
    }

    /// Writes the conversation as JSON.
    pub fn save(&self, path: &Path) -> Result<()> {
        whole_file::write(path, |out| {
            serde_json::to_writer_pretty(&mut *out, &Saved { messages: self.messages.clone() })?;
            Ok(writeln!(out)?)
        })
    }

    /// Goes on with a saved conversation instead of this one.
    pub fn load(&mut self, path: &Path) -> Result<()> {
        let saved: Saved = serde_json::from_str(&read_text(path)?)
            .with_context(|| format!("{} is no conversation that /save wrote", path.display()))?;
        if saved.messages.last().is_some_and(|last| last.role == Role::User) {
            bail!("{} ends with a question that was never answered", path.display());
        }
        self.clear();
        self.messages = saved.messages;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn answer(text: &str, finish: Finish) -> Answer {
        Answer { tokens: vec![7; text.len()], text: text.to_owned(), finish, reused_tokens: 0 }
    }

    #[test]
    fn a_question_whose_answer_was_stopped_before_its_first_word_is_forgotten() {
        let (style, text, asked) = (Style::Raw, String::new(), String::new());
        let mut chat = Conversation { messages: Vec::new(), style, text, tokens: Vec::new(), asked };
        chat.ask("Why?".to_owned());
        chat.answered(&[1], answer("", Finish::Stopped));
        assert_eq!(chat.len(), 0);
        for (text, finish) in [("Bec", Finish::Stopped), ("", Finish::EndOfTurn)] {
            chat.ask("Why?".to_owned());
            chat.answered(&[1], answer(text, finish));
            assert_eq!(chat.messages.pop().map(|message| message.content).as_deref(), Some(text));
        }
    }
}
