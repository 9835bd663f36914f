//! The server: every command and its wrong states, members that die, peers that misbehave, and the recorded requests of
//! real libraries.

#![expect(
    clippy::unwrap_used,
    reason = "a helper of tests fails the test by panicking"
)]

#[path = "server/bounds.rs"]
mod bounds;
#[path = "server/collectives.rs"]
mod collectives;
#[path = "server/commands.rs"]
mod commands;
#[path = "traces/dialogue.rs"]
#[expect(dead_code, reason = "other tests need more of it")]
mod dialogue;
#[path = "server/directives.rs"]
mod directives;
#[path = "server/events.rs"]
mod events;
#[path = "server/facts.rs"]
mod facts;
#[path = "server/groups.rs"]
mod groups;
#[path = "server/hostile.rs"]
mod hostile;
#[path = "server/output.rs"]
mod output;
#[path = "server/property.rs"]
mod property;
#[path = "server/published.rs"]
mod published;
#[path = "traces/recording.rs"]
mod recording;
#[path = "server/replay.rs"]
mod replay;
#[path = "server/states.rs"]
mod states;
#[path = "server/stopping.rs"]
mod stopping;
#[path = "server/world.rs"]
mod world;
