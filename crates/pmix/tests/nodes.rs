//! Several servers, each with clients of its own: collectives, gets and events that leave a node.

#![expect(
    clippy::unwrap_used,
    reason = "a helper of tests fails the test by panicking"
)]

#[path = "nodes/cluster.rs"]
mod cluster;
#[path = "nodes/crossing.rs"]
mod crossing;
#[path = "nodes/events.rs"]
mod events;
#[path = "nodes/fences.rs"]
mod fences;
#[path = "nodes/gets.rs"]
mod gets;
#[path = "nodes/groups.rs"]
mod groups;
#[cfg(feature = "planted")]
#[path = "nodes/planted.rs"]
mod planted;
#[path = "server/world.rs"]
#[expect(dead_code, reason = "other tests need more of it")]
mod world;
