//! Procs that have become another user, whom we may not signal: they are named and left when they do not end by themselves.

use std::collections::BTreeMap;

use base::{Rank, RankSet, Time};
use pmix::pmi;

use super::{LocalJob, Out, Phase, Proc};
use crate::{
    daemon::{Output, proc_id, sweep::KILL_MAX},
    proto::{Note, Stream, ToController},
};

impl LocalJob {
    /// A proc belongs to another user, and was not killed. It may have been told in another way: sudo passes SIGTERM on.
    pub(in crate::daemon) fn on_not_permitted(&mut self, now: Time, rank: Rank, pid: i32) {
        let is_alive = |proc: &Proc| proc.life.is_alive();
        if self.phase == Phase::Killing && self.procs.get(&rank).is_some_and(is_alive) {
            let until = now + KILL_MAX;
            let (_, ranks) = self
                .not_permitted
                .get_or_insert_with(|| (until, BTreeMap::new()));
            ranks.insert(rank, pid);
        }
    }

    /// Names the procs that we may not end, and waits for them no longer.
    pub(super) fn leave(&mut self, now: Time, ranks: BTreeMap<Rank, i32>, out: &mut Out) {
        let job = self.launch.job;
        let mut pids = Vec::new();
        let mut left = RankSet::new();
        for (rank, pid) in ranks {
            let proc = self.procs.get_mut(&rank);
            if !proc.is_some_and(|proc| proc.life.on_given_up()) {
                continue;
            }
            pids.push(pid);
            left.insert(rank);
            self.close_outputs(rank, out);
            self.stop_feeding(rank, out);
            self.tell_pmi(now, pmi::Input::Closed { client: rank }, out);
            self.settle(rank);
        }
        if pids.is_empty() {
            return;
        }
        let node = self.node;
        let note = Note::NotPermitted { node, pids };
        out.push_back(Output::Send(ToController::Note { job, note }));
        out.push_back(Output::Send(ToController::Left { job, ranks: left }));
        self.finish_if_done(now, out);
    }

    /// Passes on what was read, and reads no more.
    fn close_outputs(&mut self, rank: Rank, out: &mut Out) {
        for stream in Stream::BOTH {
            let Some(proc) = self.procs.get_mut(&rank) else {
                return;
            };
            if !proc.life.is_open(stream) {
                continue;
            }
            let mut pieces = Vec::new();
            proc.assembler(stream).finish(&mut pieces);
            proc.life.on_stream_ended(stream);
            out.push_back(Output::CloseOutput {
                proc: proc_id(self.launch.job, rank),
                stream,
            });
            self.pass_on(rank, stream, pieces, out);
        }
    }
}
