//! The commands as a person meets them: every test runs the real binary in a temporary folder. One module a
//! command; `home` and `server` are what they share.

mod bench;
mod demo;
mod forge;
mod heat;
mod home;
mod info;
mod logits;
mod pack;
mod perplexity;
mod plan;
mod probe;
mod pull;
mod run;
mod server;
mod simulate;
mod tokenize;
mod trace;
