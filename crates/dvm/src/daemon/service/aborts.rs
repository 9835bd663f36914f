//! Procs that abort their whole job get the answer when the controller ends the job. With an earlier answer, the proc could exit
//! before the controller knows of the abort. A rank of another node that notices the exit could then abort first, with a code of
//! its own.

use std::collections::{BTreeMap, BTreeSet};

use base::JobId;
use pmix::server::Ticket;

#[derive(Debug, Default)]
pub(super) struct Aborts {
    /// The requests of jobs that are not ended yet. The server limits the number of each proc's requests.
    waiting: BTreeMap<JobId, Vec<Ticket>>,
    ending: BTreeSet<JobId>,
}

impl Aborts {
    /// Adds a request. Returns false if its job is already being ended, so that the request can be answered.
    pub(super) fn add(&mut self, job: JobId, ticket: Ticket) -> bool {
        let waits = !self.ending.contains(&job);
        if waits {
            self.waiting.entry(job).or_default().push(ticket);
        }
        waits
    }

    /// Records that a job is being ended, and returns the requests that can now be answered.
    pub(super) fn on_ending(&mut self, job: JobId) -> Vec<Ticket> {
        self.ending.insert(job);
        self.waiting.remove(&job).unwrap_or_default()
    }

    pub(super) fn forget(&mut self, job: JobId) {
        self.waiting.remove(&job);
        self.ending.remove(&job);
    }
}
