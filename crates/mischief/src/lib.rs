//! Programs that misbehave on purpose, for the end-to-end tests, and checks of their output.
//!
//! **Architecture invariant:** no shipped code depends on this crate, and it depends on none of our crates: the same fault in
//! the test program must not hide a fault in our code.

mod digest;
mod lines;
mod procs;

pub use digest::Digest;
pub use lines::{LineError, check_lines, line};
pub use procs::{Proc, all_procs, marked_procs};
