//! What the recorder of MPI calls writes, and a debugger reads: the functions of MPI, the roles of their arguments, and the layout
//! of the region of shared memory in which a rank's calls are.
//!
//! A rank writes its [region](layout) with atomic stores and never waits. A reader copies the bytes and decodes them with the
//! `…View` types; it must take every number in them for a wrong one.
//!
//! **Architecture invariant:** no allocation, no I/O, no decision: this crate is linked into the recorder, which runs in the
//! programs of users, and must not bring anything along.

#![no_std]

pub mod flavor;
pub mod function;
pub mod functions;
pub mod layout;

pub use flavor::Flavor;
pub use function::{Class, Function, Provision, Role};
pub use functions::{COUNT, FUNCTIONS};
