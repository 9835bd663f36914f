//! Tests of the server: every command and its invalid states, participants that die, peers that misbehave, and the recorded
//! requests of real libraries.

#![expect(
    clippy::unwrap_used,
    reason = "a helper of tests fails the test by panicking"
)]

mod allocations;
mod bounds;
mod collectives;
mod commands;
#[path = "../traces/dialogue.rs"]
#[expect(dead_code, reason = "other tests need more of it")]
mod dialogue;
mod directives;
mod events;
mod facts;
mod groups;
mod hostile;
mod kept;
mod output;
mod property;
mod published;
#[path = "../traces/recording.rs"]
mod recording;
mod replay;
mod sets;
mod states;
mod stopping;
mod tools;
mod world;
