//! Several servers with clients of their own: collectives, gets and events between nodes.

#![expect(
    clippy::unwrap_used,
    reason = "a helper of tests fails the test by panicking"
)]

mod added;
mod bounds;
mod cluster;
mod crossing;
mod events;
mod fences;
mod gets;
mod groups;
#[cfg(feature = "planted")]
mod planted;
mod queries;
#[path = "../server/world.rs"]
#[expect(dead_code, reason = "other tests need more of it")]
mod world;
