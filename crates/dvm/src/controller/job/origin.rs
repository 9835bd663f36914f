//! Where a job comes from.

use base::{JobId, ProcId};
use bytes::Bytes;

use super::Job;
use crate::{
    controller::{asks::Asker, spawned::cospawn::Partner},
    preload::WantedFile,
    proto::{Keeping, Stream},
};

/// The origin of a job: the front that submitted it, or the proc that spawned it, or a front that has a job.
#[derive(Clone, Debug, PartialEq)]
pub(in crate::controller) enum Origin {
    /// Submitted by the job's front.
    Front,
    /// Submitted by the job's front, for a tool that has started the launcher.
    Controlled {
        by: ProcId,
        /// Output streams that go to the tool, and not to the front.
        forward: Vec<Stream>,
        /// True if ranks are held because the tool wants that.
        holds: bool,
        keep: Option<Keeping>,
        log: LoggedNews,
    },
    /// A tool beside the job that the front has submitted.
    Beside,
    Spawned {
        by: ProcId,
        /// Destination of the answer to the spawn request, which is sent when all procs have been started or have failed
        /// to start. `None` once it has been sent.
        asker: Option<Asker>,
        /// Output streams that are also forwarded to the spawner.
        forward: Vec<Stream>,
        /// How much output is kept for tools that ask for it later.
        keep: Option<Keeping>,
        /// Key-value pairs that the spawner has passed along with the request. `None` if the request came by PMIx, and
        /// not by PMI. In a spawn by PMI, the spawner's job and this one are one MPI program: if one fails, both end.
        preput: Option<Vec<(String, String)>>,
        /// Files of the job that are to be looked up on the controller's node. Empty once that was ordered.
        wanted: Vec<WantedFile>,
        /// Facts of a debugger's daemons, packed: their target.
        told: Bytes,
        /// The job whose ranks the daemons look at, if they are such.
        debugged: Option<JobId>,
        spawner: Spawner,
        start: StartNews,
        log: LoggedNews,
        /// The other job of the same request.
        partner: Partner,
    },
}

/// Whether the spawner of a job gets events about its start.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::controller) enum StartNews {
    Told,
    Untold,
}

/// What the front prints of the start and the end of a job that a proc has spawned or that a tool controls.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::controller) enum LoggedNews {
    Nothing,
    End,
    StartAndEnd,
}

/// Who has spawned a job.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::controller) enum Spawner {
    Rank,
    Tool(WhenItLeaves),
}

/// What becomes of a job when the tool that has spawned it leaves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::controller) enum WhenItLeaves {
    End,
    GoOn,
}

/// What the procs of a job are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::controller) enum Kind {
    Program,
    DebuggerDaemons,
}

impl Job {
    pub(in crate::controller) fn kind(&self) -> Kind {
        match &self.origin {
            Origin::Spawned { told, .. } if !told.is_empty() => Kind::DebuggerDaemons,
            Origin::Spawned { .. } | Origin::Controlled { .. } | Origin::Front | Origin::Beside => {
                Kind::Program
            }
        }
    }

    /// Returns the job whose ranks a debugger's daemons look at, if the procs of this one are such.
    pub(in crate::controller) const fn debugged(&self) -> Option<JobId> {
        match self.origin {
            Origin::Spawned { debugged, .. } => debugged,
            Origin::Controlled { .. } | Origin::Front | Origin::Beside => None,
        }
    }

    pub(in crate::controller) const fn is_of_front(&self) -> bool {
        matches!(self.origin, Origin::Front | Origin::Controlled { .. })
    }

    /// Returns the proc or the tool that hears of the job.
    pub(in crate::controller) const fn observer(&self) -> Option<ProcId> {
        match &self.origin {
            Origin::Front | Origin::Beside => None,
            Origin::Controlled { by, .. } | Origin::Spawned { by, .. } => Some(*by),
        }
    }

    /// Returns true if the front gets the output of this stream.
    pub(in crate::controller) fn prints(&self, stream: Stream) -> bool {
        match &self.origin {
            Origin::Front | Origin::Beside => true,
            Origin::Controlled { forward, .. } => !forward.contains(&stream),
            Origin::Spawned { .. } => !self.is_of_tool(),
        }
    }

    /// Returns true if a tool has spawned the job.
    pub(in crate::controller) const fn is_of_tool(&self) -> bool {
        matches!(
            self.origin,
            Origin::Spawned {
                spawner: Spawner::Tool(_),
                ..
            }
        )
    }
}
