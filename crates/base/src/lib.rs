//! Types that every crate of Rallypoint needs; nothing here acts.
//!
//! **Architecture invariant:** no protocol and no policy. Requests and events belong to the crate that owns the state
//! machine; a new module here needs a decision record in `docs/decisions`.

mod arch;
mod cpuset;
mod hostlist;
mod id;
mod planted;
mod set;
mod status;
mod time;
mod topology;
mod usage;

pub use arch::{Arch, InKernel, Registers};
pub use cpuset::{CpuSet, MAX_PUS};
pub use hostlist::{HostList, MAX_HOSTS, ParseHostListError, ipv6};
pub use id::{JobId, NodeId, ProcId, Rank};
pub use set::{MAX_MEMBERS, ParseSetError, RankSet};
pub use status::{ExitStatus, Signal};
pub use time::Time;
pub use topology::{CoreKind, Level, Pu, Topology};
pub use usage::Usage;
