//! Our own clients of PMI against our own server, with scripted trouble.

#![expect(
    clippy::unwrap_used,
    reason = "a helper of tests fails the test by panicking"
)]

mod barriers;
mod bounds;
mod codec;
mod dialogues;
mod groups;
mod names;
mod pair;
mod rules;
mod spawns;
