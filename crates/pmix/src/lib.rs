//! PMIx and PMI: the protocols between a launcher, the processes of a parallel program, and the tools that observe them.
//!
//! This is an implementation of PMIx, wire-compatible with OpenPMIx 3 to 6, and of PMI-1 and PMI-2. It does no I/O: a host passes
//! in the received bytes and the time, and carries out the outputs. It therefore runs in any event loop, in a simulator, and
//! under a fuzzer. Received bytes pass through these layers, each a function of its own:
//!
//! | layer | module | input | output |
//! |---|---|---|---|
//! | frame | [`frame`] | bytes | a tag and a payload |
//! | handshake | [`handshake`] | the first message | the identity of the peer and its format |
//! | message | [`message`] | a payload | a request, an answer or a push |
//! | values | [`codec`], [`value`] | bytes in a message | a value |
//!
//! Sources: the PMIx Standard for the semantics, `docs/formats/pmix.md` for the wire format.
//!
//! **Architecture invariant:** no sockets, no processes, no clock, and no knowledge of our overlay or of the placement of ranks.
//! Any program with a byte stream can use this crate.

pub mod allocation;
mod bound;
pub mod client;
pub mod codec;
mod error;
pub mod frame;
pub mod handshake;
pub mod keys;
pub mod launcher;
pub mod message;
pub mod planted;
pub mod pmi;
pub mod server;
#[cfg(test)]
mod tests;
pub mod tool;
pub mod value;

pub use bound::{Bound, MAX_KEY, MAX_NSPACE};
pub use error::{Error, Malformed, THEIRS_MAX, Unsupported};
