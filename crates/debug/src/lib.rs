//! The parallel debugger's logic: which processes are the job, where each of their threads is, and what they have in
//! common.
//!
//! **Architecture invariant:** no system call and no terminal. Processes are seen through [`memory::Memory`] and
//! [`image::Files`], which `cli` answers from the kernel and tests from recordings. Nothing here knows our launcher: a
//! job is a list of ranks with their processes, whoever has started it.

pub mod agent;
pub mod arch;
pub mod image;
pub mod known;
pub mod languages;
pub mod maps;
pub mod memory;
pub mod peers;
pub mod proto;
pub mod python;
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
