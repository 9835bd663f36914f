//! The client and the tool: fed with what real servers have sent, with every byte in every wrong place, and with a
//! server that is made up.

#![expect(
    clippy::unwrap_used,
    reason = "a helper of tests fails the test by panicking"
)]

mod facts;
mod host;
mod program;
mod property;
#[path = "../traces/recording.rs"]
#[expect(dead_code, reason = "other tests need more of it")]
mod recording;
mod replay;
mod states;
mod tool;
