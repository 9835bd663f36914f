//! Nouns that every crate of Rallypoint needs, and nothing that acts on them.
//!
//! **Architecture invariant:** no protocol and no policy. Requests and events belong to the crate that owns the
//! state machine; a new module here needs a decision record in `docs/decisions`.

mod id;
mod status;
mod time;

pub use id::{JobId, NodeId, ProcId, Rank};
pub use status::{ExitStatus, Signal};
pub use time::Time;
