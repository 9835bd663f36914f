//! Programs that misbehave on purpose, for the end-to-end tests, and checks of what they print.
//!
//! **Architecture invariant:** nothing that ships depends on this crate, and it depends on none of our crates: a fault in
//! our code must not be hidden by the same fault in the program that tests it.

mod digest;
mod lines;
mod procs;

pub use digest::Digest;
pub use lines::{LineError, check_lines, line};
pub use procs::{Proc, all_procs, marked_procs};
