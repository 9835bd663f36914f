//! Process management interfaces: what the processes of a parallel program say to the one who launched them.
//!
//! Today this is [`pmi`], PMI-1 as the ranks of MPICH speak it. PMIx itself (typed values, codecs per version, the
//! handshake, server, client and tool) comes with its own issue and will stand beside it, which is why the crate has
//! its name already.
//!
//! **Architecture invariant:** no sockets, no processes, no clock, and no knowledge of our overlay or of how ranks
//! are placed. Whoever has a stream of bytes can use it.

mod error;
pub mod pmi;

pub use error::{Bound, Error, GOT_MAX, Malformed};
