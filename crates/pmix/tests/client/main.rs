//! Tests of the client and the tool: with recorded traffic of real servers, with any byte of it changed, and with a scripted
//! server.

#![expect(
    clippy::unwrap_used,
    reason = "a helper of tests fails the test by panicking"
)]

mod facts;
mod host;
mod launch;
mod program;
mod property;
#[path = "../traces/recording.rs"]
#[expect(dead_code, reason = "other tests need more of it")]
mod recording;
mod replay;
mod states;
mod tool;
