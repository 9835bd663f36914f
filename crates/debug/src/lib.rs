//! The logic of the parallel debugger: it finds the processes of a job, reads the stacks of their threads, and compares and
//! merges the stacks.
//!
//! **Architecture invariant:** no system call and no terminal. Processes are read through [`memory::Memory`] and
//! [`image::Files`], which `cli` implements with the kernel and tests implement with recordings. Nothing here depends on our
//! launcher: a job is a list of ranks with their processes, whichever launcher started it.

pub mod agent;
pub mod arch;
pub mod call_site;
pub mod gathered;
pub mod image;
pub mod known;
pub mod languages;
pub mod maps;
pub mod memory;
pub mod mpir;
pub mod peers;
pub mod planted;
pub mod proto;
pub mod python;
pub mod recorded;
pub mod reply;
pub mod report;
pub mod samples;
pub mod session;
pub mod snapshot;
pub mod stack;
pub mod target;
pub mod tree;
pub mod unwind;
pub mod verdict;
pub mod watch;
pub mod wire;
