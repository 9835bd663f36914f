//! Programs that misbehave on purpose, for the end-to-end tests, and the checks of what they print.
//!
//! **Architecture invariant:** nothing that ships depends on this crate, and it depends on nothing of ours: a fault in
//! our code must not be able to hide itself in the program that looks for it.

mod digest;
mod lines;
mod procs;

pub use digest::Digest;
pub use lines::{LineError, check_lines, line};
pub use procs::{Proc, all_procs, marked_procs};
