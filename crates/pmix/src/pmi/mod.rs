//! PMI-1, as MPICH 5's ranks speak it over the descriptor in `PMI_FD`. The wire format is in `docs/formats/pmi-1.md`.
//!
//! Four layers on the way in, each a function of its own: bytes, [`wire::Framer`], [`wire::Message`], [`Request`],
//! and then a transition of [`Server`]. [`Client`] is the other side, small, for our demo program and for the tests.
//!
//! # The server
//!
//! One [`Server`] serves the ranks of one job on one node. It keeps a state per rank:
//!
//! | state | `init` | question, `put` | `barrier_in` | `finalize` | `abort` | closed |
//! |---|---|---|---|---|---|---|
//! | Connected | Initialized | error | error | error | Aborted | Lost |
//! | Initialized | error | answered | InBarrier | Finalized | Aborted | Lost |
//! | InBarrier | error | error | error | error | Aborted | Lost |
//! | Finalized | error | error | error | error | error | Left |
//! | Aborted | ignored | ignored | ignored | ignored | ignored | Lost |
//! | Left, Lost | ignored | ignored | ignored | ignored | ignored | ignored |
//!
//! *Error* is `PeerMisbehaved`: that rank's connection is closed, its state is Lost, and nobody else is touched.
//! Bytes that are no command do the same. *Aborted* ignores everything because MPICH 5 runs on after it has sent its
//! abort: it would even complete a barrier. It must be killed, by whoever acts on [`Event::Abort`].
//!
//! # A barrier
//!
//! Finalized and Left ranks take no part. When all others are InBarrier, the host gets [`Event::Fence`] with what
//! this node's ranks have put, and answers [`Input::FenceDone`] with what all nodes' ranks have put.
//!
//! A Lost rank can never come. As soon as one rank waits and another one is Lost, the host gets
//! [`Event::FenceBroken`], once per set of lost ranks, and it decides: end the job, or answer [`Input::FenceFailed`],
//! upon which every waiting rank gets `barrier_out rc=1`, and so does every rank that comes to a barrier later.
//! The server itself never waits for a time: a barrier belongs to the application.

mod client;
mod command;
mod environment;
mod error;
mod server;
pub mod wire;

pub use client::Client;
pub use command::{Answer, Kind, Request};
pub use environment::{environment, process_mapping};
pub use error::{Bound, Error, GOT_MAX, Malformed};
pub use server::{Config, Event, FenceId, Input, LocalRank, Output, Server};

/// By this variable MPICH 5 is told to speak PMI-1, where it might speak PMIx as well.
pub const CHOICE: (&str, &str) = ("MPIR_CVAR_PMI_VERSION", "1");
/// The version that this side speaks.
pub const VERSION: u32 = 1;
/// The minor version that this side speaks. Clients of another minor version are welcome.
pub const SUBVERSION: u32 = 1;

/// Bytes of the name of a key-value space, told to clients by `get_maxes`. Hydra's number.
pub const MAX_KVS_NAME: usize = 256;
/// Bytes of a key, told to clients by `get_maxes`. Hydra's number.
pub const MAX_KEY: usize = 64;
/// Bytes of a value, told to clients by `get_maxes`. Hydra's number.
pub const MAX_VALUE: usize = 1024;

/// Entries of a job's key-value space. MPICH 5 makes about ten a node, so this is room for 6,000 nodes and at most
/// 70 MiB.
pub const MAX_ENTRIES: usize = 65_536;
/// Published names of a job on one node.
pub const MAX_NAMES: usize = 1024;
/// Bytes of answers to one client that may wait in the server for [`Server::poll`]. A client asks one thing at a
/// time and the longest answer is below 2 KiB, so whoever comes near this does not read what it asks for.
pub const MAX_QUEUED: usize = 64 * 1024;
