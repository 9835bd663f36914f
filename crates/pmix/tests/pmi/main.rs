//! Our PMI clients with our server, including scripted faults.

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
