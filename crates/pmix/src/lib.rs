//! Process management interfaces: what the processes of a parallel program, and the tools that watch them, say to the
//! one who launched them.
//!
//! This is an implementation of PMIx, wire-compatible with OpenPMIx 3 to 6, and of PMI-1. It is without I/O: a host
//! brings the bytes of its connections and the time, and carries out what comes back, so that it runs in any event
//! loop, in a simulator, and under a fuzzer. Layers on the way in, each a function of its own:
//!
//! | layer | module | from | to |
//! |---|---|---|---|
//! | frame | [`frame`] | bytes | a tag and a payload |
//! | handshake | [`handshake`] | the first message | who the peer is and how it writes |
//! | message | [`message`] | a payload | a request, an answer, a push |
//! | values | [`codec`], [`value`] | | |
//!
//! Sources: the PMIx Standard for what things mean, `docs/formats/pmix.md` for how they look.
//!
//! **Architecture invariant:** no sockets, no processes, no clock, and no knowledge of our overlay or of how ranks
//! are placed. Whoever has a stream of bytes can use it.

mod bound;
pub mod client;
pub mod codec;
mod error;
pub mod frame;
pub mod handshake;
pub mod keys;
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
