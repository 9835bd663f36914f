//! The client and the tool: fed with what real servers have sent, with every byte in every wrong place, and with a
//! server that is made up.

#![expect(
    clippy::unwrap_used,
    reason = "a helper of tests fails the test by panicking"
)]

#[path = "client/facts.rs"]
mod facts;
#[path = "client/host.rs"]
mod host;
#[path = "client/program.rs"]
mod program;
#[path = "client/property.rs"]
mod property;
#[path = "traces/recording.rs"]
#[expect(dead_code, reason = "other tests need more of it")]
mod recording;
#[path = "client/replay.rs"]
mod replay;
#[path = "client/states.rs"]
mod states;
#[path = "client/tool.rs"]
mod tool;
