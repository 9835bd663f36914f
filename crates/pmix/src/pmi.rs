//! PMI-1 and PMI-2, as MPICH's ranks and others speak them over the descriptor in `PMI_FD`. The wire formats are in
//! `docs/formats/pmi-1.md` and `docs/formats/pmi-2.md`.
//!
//! Four layers on the way in, each a function of its own: bytes, [`wire::Framer`], [`wire::Message`], [`Request`],
//! and then a transition of [`Server`]. [`Client`] is the other side, small, for the tests and the simulator. Requests and
//! answers are the same in both dialects; only how they are written differs.
//!
//! # The server
//!
//! One [`Server`] serves the ranks of one job on one node, each in the dialect that it has asked for in its first line.
//! It keeps a state per rank:
//!
//! | state | `init` | `fullinit` | question, `put` | `barrier_in` | `finalize` | `abort` | closed |
//! |---|---|---|---|---|---|---|---|
//! | Connected | Initialized (1), Greeted (2) | error | error | error | error | Aborted | Lost |
//! | Greeted | error | Initialized | error | error | error | Aborted | Lost |
//! | Initialized | answered (1), error (2) | error | answered | InBarrier | Finalized | Aborted | Lost |
//! | InBarrier | answered (1), error (2) | error | answered | error | error | Aborted | Lost |
//! | Finalized | error | error | error | error | error | error | Left |
//! | Aborted | ignored | ignored | ignored | ignored | ignored | ignored | Lost |
//! | Left, Lost | ignored | ignored | ignored | ignored | ignored | ignored | ignored |
//!
//! *Error* is `PeerMisbehaved`: that rank's connection is closed, its state is Lost, and nobody else is touched.
//! Bytes that are no command do the same. A command that is unknown, lacks a field or asks for what there is not is
//! *answered*, with a non-zero `rc` and the reason in one word: the connection is as good as before.
//! *Aborted* ignores everything because MPICH 5 runs on after it has sent its abort: it would even complete a barrier. It
//! must be killed, by whoever acts on [`Event::Abort`]. An abort that concerns the caller alone is a connection that was
//! closed.
//!
//! A rank may have several requests under way when it has threads. What the server cannot answer at once are: a name that
//! is published or looked up, and a spawn, for which the host gets [`Event::Ask`]; an attribute of the node that is to be
//! waited for; and barriers. One rank can have [`MAX_WAITING`] of them; more are refused. A spawn of PMI-1 comes in parts,
//! and nothing else of its rank in between.
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
//!
//! Beside the barrier of all there are those of groups (PMI 1.2), named by their members and a tag. They change no state,
//! and a rank may be in several. One whose members are all on this node needs no host; for another the host gets
//! [`Event::Group`]. A barrier of a group fails when one of *its* members is lost and the host has given up.

mod answer;
mod ask;
mod client;
mod environment;
mod error;
mod kind;
mod request;
mod server;
mod spawn;
pub mod wire;

pub use answer::Answer;
pub use ask::{Ask, NotAsked, Reply};
pub use client::Client;
pub use environment::{SPAWNED, environment, process_mapping};
pub use error::{Bound, Error, GOT_MAX, Malformed};
pub use kind::{Dialect, Kind};
pub use request::{Group, IfAbsent, Members, Reach, Request};
pub use server::{Config, Event, FenceId, Input, LocalRank, Output, Server, Spawned, Ticket};
pub use spawn::{Part, Spawn, SpawnApp};

/// By this variable MPICH 5 is told to speak PMI-1, where it might speak PMIx as well.
pub const CHOICE: (&str, &str) = ("MPIR_CVAR_PMI_VERSION", "1");
/// The version of PMI-1.
const VERSION: u32 = 1;
/// The minor version of it that this side speaks: 2 has barriers of groups, and clients that see it use threads. Clients
/// of another minor version are welcome.
const SUBVERSION: u32 = 2;

/// Bytes of the name of a key-value space, told to clients by `get_maxes`. Hydra's number.
pub const MAX_KVS_NAME: usize = 256;
/// Bytes of a key, told to clients by `get_maxes`. Hydra's number, and that of PMI-2.
pub const MAX_KEY: usize = 64;
/// Bytes of a value, told to clients by `get_maxes`. Hydra's number, and that of PMI-2.
pub const MAX_VALUE: usize = 1024;
/// Bytes of the name of a service: it is a key in PMIx.
pub const MAX_SERVICE: usize = 511;

/// Entries of a job's key-value space. MPICH 5 makes about ten a node, so this is room for 6,000 nodes and at most
/// 70 MiB.
pub const MAX_ENTRIES: usize = 65_536;
/// Programs of one spawn.
pub const MAX_APPS: usize = 1024;
/// Bytes of the mark by which a thread of a client finds the answer to its request: clients write an address.
pub const MAX_THREAD: usize = 64;
/// Requests of one rank that are not answered yet.
pub const MAX_WAITING: usize = 256;
/// Bytes of answers to one client that may wait in the server for [`Server::poll`]. A client asks few things at a
/// time and the longest answer is below 3 KiB, so whoever comes near this does not read what it asks for.
pub const MAX_QUEUED: usize = 64 * 1024;
