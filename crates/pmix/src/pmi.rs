//! PMI-1 and PMI-2, as the ranks of MPICH and other MPI libraries speak them over the descriptor in `PMI_FD`. The wire formats
//! are in `docs/formats/pmi-1.md` and `docs/formats/pmi-2.md`.
//!
//! Received bytes pass through four layers, each a function of its own: [`wire::Framer`], [`wire::Message`], [`Request`], and a
//! transition of [`Server`]. [`Client`] is the rank's side, a small one for tests and the simulator. Requests and answers are the
//! same types in both dialects; only their encoding differs.
//!
//! # The server
//!
//! One [`Server`] serves the ranks of one job on one node, each in the dialect that its first line asks for. It keeps a state per
//! rank. In the table, (1) is PMI-1 and (2) is PMI-2:
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
//! *Error* is `PeerMisbehaved`: the rank's connection is closed and its state becomes Lost; other ranks are not affected. Bytes
//! that are not a command have the same effect. An unknown command, a missing field, or a question without a result is *answered*
//! with a non-zero `rc` and the reason in one word. The connection stays open. *Aborted* ignores everything because MPICH 5 keeps
//! running after it has sent its abort, and could even complete a barrier. The host must kill the rank on [`Event::Abort`]. An
//! abort that concerns only the caller is treated as a closed connection.
//!
//! A rank with threads may have several requests outstanding. The server cannot answer these immediately: publish, unpublish,
//! lookup and spawn, for which the host gets [`Event::Ask`]; a node attribute that does not exist yet; and barriers. One rank can
//! have [`MAX_WAITING`] of them, not counting the barrier of all ranks; more are refused. A spawn of PMI-1 arrives in several
//! parts, and its rank must send nothing else in between.
//!
//! # A barrier
//!
//! Finalized and Left ranks take no part. When all other local ranks are InBarrier, the host gets [`Event::Fence`] with the
//! values that this node's ranks have put. It answers [`Input::FenceDone`] with the values of all nodes.
//!
//! A Lost rank will never enter a barrier. As soon as one rank waits and another one is Lost, the host gets
//! [`Event::FenceBroken`], once per set of lost ranks. The host then either ends the job or answers [`Input::FenceFailed`]. After
//! that, every waiting rank gets `barrier_out rc=1`, and so does every rank that enters a barrier later. The server itself has no
//! timeout for a barrier: how long it takes depends on the application.
//!
//! Group barriers (PMI 1.2) are independent of the barrier of all ranks and identified by their members and a tag. They change no
//! state, and a rank may be in several. A barrier whose members are all on this node completes without the host; for any other
//! the host gets [`Event::Group`]. When the host answers [`Input::FenceFailed`], waiting group barriers fail that have a lost
//! member or members on other nodes.

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
pub use ask::{Ask, NotRepresentable, Reply};
pub use client::Client;
pub use environment::{Run, SPAWNED, environment, process_mapping};
pub use error::{Bound, Error, GOT_MAX, Malformed};
pub use kind::{Dialect, Kind};
pub use request::{Group, IfAbsent, Members, Reach, Request};
pub use server::{Config, Event, FenceId, Input, LocalRank, Output, Server, Spawned, Ticket};
pub use spawn::{Part, Spawn, SpawnApp};

/// Environment variable and value that make MPICH 5 speak PMI-1 where it could also choose PMIx.
pub const CHOICE: (&str, &str) = ("MPIR_CVAR_PMI_VERSION", "1");
/// Major version of PMI-1.
const VERSION: u32 = 1;
/// Minor version of PMI-1 that this side speaks. Version 1.2 added group barriers, and clients that see it use threads. Clients
/// with another minor version are accepted.
const SUBVERSION: u32 = 2;

/// Maximum number of bytes in the name of a key-value space, sent to clients by `get_maxes`. The value is Hydra's.
pub const MAX_KVS_NAME: usize = 256;
/// Maximum number of bytes in a key, sent to clients by `get_maxes`. The value is Hydra's and that of PMI-2.
pub const MAX_KEY: usize = 64;
/// Maximum number of bytes in a value, sent to clients by `get_maxes`. The value is Hydra's and that of PMI-2.
pub const MAX_VALUE: usize = 1024;
/// Maximum number of bytes in the name of a service, which is a key in PMIx.
pub const MAX_SERVICE: usize = 511;

/// Maximum number of entries in a job's key-value space. MPICH 5 puts about ten per node, so this is enough for 6,000 nodes and
/// takes at most 70 MiB.
pub const MAX_ENTRIES: usize = 65_536;
/// Maximum number of programs in one spawn.
pub const MAX_APPS: usize = 1024;
/// Maximum number of bytes in the thread id (`thrid`) by which a client matches an answer with the thread that waits. Clients
/// write an address.
pub const MAX_THREAD: usize = 64;
/// Maximum number of unanswered requests of one rank.
pub const MAX_WAITING: usize = 256;
/// Maximum number of bytes of answers to one client that may wait in the server for [`Server::poll`]. A client asks few things at
/// a time and the longest answer is below 3 KiB. A client near this limit is not reading its answers.
pub const MAX_QUEUED: usize = 64 * 1024;
