//! PMI for the procs of a job: their requests, and fences that cannot complete.

use std::collections::{BTreeMap, BTreeSet};

use base::{JobId, NodeId, Rank, RankSet, Signal, Time};
use bytes::Bytes;
use pmix::pmi;

use super::{LocalJob, Out};
use crate::{
    daemon::{
        Output, proc_id,
        service::{Demand, What},
    },
    life::{LEAK_DELAY, State},
    planted::{self, Bug},
    proto::{AskId, Broken, FenceId, FenceNews, Launch, Shares, ToController},
    spec::OnFailure,
};

/// Maximum bytes that the ranks of one node contribute to one fence across nodes, so that the share fits in a frame. If
/// they have more, all fences of the job fail.
const MAX_SHARE: usize = 32 << 20;

/// PMI fences that involve ranks of several nodes.
#[derive(Debug, Default)]
pub(super) struct Gathers {
    /// Fences for which ranks on this node wait, by this node's number for the fence.
    under_way: BTreeMap<u32, (FenceId, Fence)>,
    next: u32,
    /// True once no fence can complete any more.
    failed: bool,
}

#[derive(Debug)]
enum Fence {
    All(pmi::FenceId),
    Group(pmi::Group),
}

impl Gathers {
    /// Returns the message with this node's share of a fence, once all its local participants have entered. `None` if
    /// the share is too large.
    fn share(
        &mut self,
        launch: &Launch,
        fence: Fence,
        puts: &[(String, String)],
    ) -> Option<Output> {
        let job = launch.job;
        let (group, nodes) = match &fence {
            Fence::All(_) => (None, None),
            Fence::Group(group) => (Some(group.to_string()), nodes_of(launch, group)),
        };
        let id = FenceId { job, group };
        let share = postcard::to_stdvec(puts).ok();
        let share = share.filter(|share| share.len() <= MAX_SHARE)?;
        let number = self.next;
        self.next = self.next.wrapping_add(1);
        self.under_way.insert(number, (id.clone(), fence));
        let news = FenceNews::Share {
            number,
            nodes,
            share: share.into(),
        };
        Some(Output::Send(ToController::Fence { id, news }))
    }
}

/// Returns the nodes of a group's members; `None` for a group that is not a list of ranks.
fn nodes_of(launch: &Launch, group: &pmi::Group) -> Option<Vec<NodeId>> {
    match &group.members {
        pmi::Members::World | pmi::Members::Node => None,
        pmi::Members::Ranks(ranks) => {
            let nodes = ranks.iter().filter_map(|rank| launch.map.node_of(*rank));
            let nodes: BTreeSet<NodeId> = nodes.collect();
            Some(nodes.into_iter().collect())
        }
    }
}

/// Merges the puts of all nodes. Returns `None` if a share cannot be decoded.
fn merged(shares: &[(u32, Bytes)]) -> Option<Vec<(String, String)>> {
    let mut all = Vec::new();
    for (_, share) in shares {
        let puts: Vec<(String, String)> = postcard::from_bytes(share).ok()?;
        all.extend(puts);
    }
    Some(all)
}

impl LocalJob {
    pub(in crate::daemon) fn on_pmi(&mut self, now: Time, rank: Rank, bytes: &[u8], out: &mut Out) {
        self.tell_pmi(
            now,
            pmi::Input::Bytes {
                client: rank,
                bytes,
            },
            out,
        );
        self.fail_broken_fence(now, out);
    }

    pub(in crate::daemon) fn on_pmi_closed(&mut self, now: Time, rank: Rank, out: &mut Out) {
        self.tell_pmi(now, pmi::Input::Closed { client: rank }, out);
        self.fail_broken_fence(now, out);
    }

    /// Completes a fence with the shares of all nodes, or fails it if some shares will never arrive.
    pub(in crate::daemon) fn on_gathered(
        &mut self,
        now: Time,
        number: u32,
        shares: Result<Shares, Broken>,
        out: &mut Out,
    ) {
        let Some((_, fence)) = self.gathers.under_way.remove(&number) else {
            return;
        };
        match (shares.ok().and_then(|shares| merged(&shares)), fence) {
            (Some(puts), Fence::All(id)) => {
                self.tell_pmi(now, pmi::Input::FenceDone { id, puts }, out);
            }
            (Some(puts), Fence::Group(group)) => {
                self.tell_pmi(now, pmi::Input::GroupDone { group, puts }, out);
            }
            (None, _) => self.fail_fences(now, out),
        }
    }

    /// Fails all fences of the job, which can no longer complete, for its ranks on all nodes.
    pub(super) fn fail_fences(&mut self, now: Time, out: &mut Out) {
        self.tell_pmi(now, pmi::Input::FenceFailed, out);
        if !std::mem::replace(&mut self.gathers.failed, true) {
            self.leave_fences(out);
        }
    }

    /// Withdraws from all fences in progress, and announces that ranks on this node will enter no more fences.
    pub(in crate::daemon) fn leave_fences(&mut self, out: &mut Out) {
        for (number, (id, _)) in std::mem::take(&mut self.gathers.under_way) {
            let news = FenceNews::Withdrawn { number };
            out.push_back(Output::Send(ToController::Fence { id, news }));
        }
        if self.pmi.is_some() && self.launch.nodes.len() > 1 {
            out.push_back(Output::Send(ToController::FencesAbandoned {
                job: self.launch.job,
            }));
        }
    }

    /// Returns true if no rank on this node will ever enter a fence.
    pub(in crate::daemon) const fn has_no_fences(&self) -> bool {
        self.gathers.failed
    }

    /// Handles the controller's answer to a request that a proc made by PMI.
    pub(in crate::daemon) fn on_answer(
        &mut self,
        now: Time,
        number: u64,
        answer: &[u8],
        out: &mut Out,
    ) {
        let ticket = pmi::Ticket(number);
        if let Some(kind) = self.asked.remove(&ticket) {
            let reply = pmi::Reply::decode(kind, answer);
            self.tell_pmi(now, pmi::Input::Answered { ticket, reply }, out);
        }
    }

    /// Carries out a request that a proc made by PMIx.
    pub(in crate::daemon) fn on_demand(&mut self, now: Time, demand: Demand, out: &mut Out) {
        let Demand { proc, what } = demand;
        let (job, rank) = (proc.job, proc.rank);
        match what {
            // `Daemon::serve` handles this, because it also needs the service.
            What::Ready => {}
            What::Begun => {
                self.exits_before_finalize.on_begun(now, rank);
                self.wake_at(self.exits_before_finalize.deadline());
            }
            What::Finished => {
                self.exits_before_finalize.on_finished(now, rank);
                self.wake_at(self.exits_before_finalize.deadline());
            }
            What::Feed(pushed) => self.on_pushed(pushed, out),
            What::Say(stream, bytes) => self.on_output(now, rank, stream, bytes, out),
            What::Signal(ranks, signal) => {
                let here: RankSet = self.procs.keys().copied().collect();
                let elsewhere = ranks.difference(&here);
                if !elsewhere.is_empty() {
                    out.push_back(Output::Send(ToController::SignalRanks {
                        job,
                        ranks: elsewhere,
                        signal,
                    }));
                }
                self.signal_ranks(&ranks, signal, out);
            }
            // If the policy is to continue, only the named ranks are ended. Otherwise the end of some ranks ends the
            // job, and the requesting rank is the cause.
            What::Abort {
                ranks: Some(ranks), ..
            } if self.launch.end.on_failure == OnFailure::Continue => {
                let what = What::Signal(ranks, Signal::KILL);
                self.on_demand(now, Demand { proc, what }, out);
            }
            What::Abort { code, message, .. } => {
                out.push_back(Output::Send(ToController::Abort {
                    job,
                    rank,
                    code,
                    message,
                }));
            }
        }
    }

    /// Fails a broken fence once the exit status of the ranks that are missing from it is known, or after
    /// [`LEAK_DELAY`]. If such a rank failed and thereby ends the job, the fence is not failed: errors of the waiting
    /// ranks would hide the cause.
    pub(super) fn fail_broken_fence(&mut self, now: Time, out: &mut Out) {
        let Some((lost, until)) = &self.fence_broken else {
            return;
        };
        let status = |rank: &Rank| match self.procs.get(rank).map(|proc| proc.life.state()) {
            Some(State::Exited { status, .. } | State::Done { status, .. }) => Some(status),
            _ => None,
        };
        let overdue = *until <= now;
        let ended = lost.iter().all(|rank| status(rank).is_some());
        let ends_job = self.launch.end.on_failure == OnFailure::EndJob
            && lost
                .iter()
                .filter_map(status)
                .any(|status| !status.is_success());
        if ends_job || planted::is(Bug::BrokenFenceNotTold) {
            self.fence_broken = None;
        } else if ended || overdue {
            self.fence_broken = None;
            self.fail_fences(now, out);
        }
    }

    /// Reports ranks for which others have waited too long as the cause of the job's end, unless the policy is to
    /// continue.
    pub(super) fn tell_absent(&mut self, now: Time, out: &mut Out) {
        let Some(ranks) = self.participation.overdue(now) else {
            return;
        };
        if self.launch.end.on_failure == OnFailure::EndJob {
            out.push_back(Output::Send(ToController::Absent {
                job: self.launch.job,
                ranks,
            }));
        }
    }

    /// Reports ranks that exited without `MPI_Finalize` as the cause of the job's end, unless the policy is to
    /// continue.
    pub(super) fn tell_unfinished(&mut self, now: Time, out: &mut Out) {
        if self.exits_before_finalize.overdue(now)
            && self.launch.end.on_failure == OnFailure::EndJob
        {
            let job = self.launch.job;
            let ranks = self.exits_before_finalize.take().unwrap_or_default();
            out.push_back(Output::Send(ToController::Unfinished { job, ranks }));
        }
    }

    pub(super) fn tell_pmi(&mut self, now: Time, input: pmi::Input<'_>, out: &mut Out) {
        let job: JobId = self.launch.job;
        let mut check = None;
        let mut is_too_much = false;
        let Some(server) = &mut self.pmi else { return };
        server.handle(input);
        while let Some(output) = server.poll() {
            match output {
                pmi::Output::Send { client, bytes } => {
                    out.push_back(Output::PmiSend {
                        proc: proc_id(job, client),
                        bytes,
                    });
                }
                pmi::Output::Close { client, why } => {
                    out.push_back(Output::PmiClose {
                        proc: proc_id(job, client),
                    });
                    out.push_back(Output::Send(ToController::Protocol {
                        job,
                        rank: client,
                        what: why.to_string(),
                    }));
                }
                // All ranks are on this node, so the fence is complete.
                pmi::Output::Event(pmi::Event::Fence { id, puts })
                    if self.launch.nodes.len() <= 1 =>
                {
                    server.handle(pmi::Input::FenceDone { id, puts });
                }
                pmi::Output::Event(pmi::Event::Fence { id, puts }) => {
                    let share = self.gathers.share(&self.launch, Fence::All(id), &puts);
                    is_too_much |= share.is_none();
                    out.extend(share);
                }
                pmi::Output::Event(pmi::Event::Group { group, puts }) => {
                    let share = self.gathers.share(&self.launch, Fence::Group(group), &puts);
                    is_too_much |= share.is_none();
                    out.extend(share);
                }
                pmi::Output::Event(pmi::Event::Ask {
                    ticket,
                    client,
                    ask,
                }) => match ask.encode() {
                    Ok(request) => {
                        self.asked.insert(ticket, ask.kind());
                        out.push_back(Output::Send(ToController::Ask {
                            proc: proc_id(job, client),
                            ticket: AskId::Pmi {
                                job,
                                number: ticket.0,
                            },
                            request,
                        }));
                    }
                    Err(pmi::NotRepresentable(why)) => {
                        let reply = pmi::Reply::Refused(why);
                        server.handle(pmi::Input::Answered { ticket, reply });
                    }
                },
                pmi::Output::Event(pmi::Event::FenceBroken { lost, .. }) => {
                    // A rank that lost its connection may be about to exit: its exit status is more informative than
                    // the loss.
                    let until = self
                        .fence_broken
                        .take()
                        .map_or(now + LEAK_DELAY, |(_, until)| until);
                    self.fence_broken = Some((lost, until));
                    check = Some(until);
                }
                pmi::Output::Event(pmi::Event::Abort {
                    client,
                    code,
                    message,
                }) => {
                    let code = u8::try_from(code & 0xff).unwrap_or(1);
                    out.push_back(Output::Send(ToController::Abort {
                        job,
                        rank: client,
                        code,
                        message,
                    }));
                }
                pmi::Output::Event(pmi::Event::Initialized { client }) => {
                    self.participation.on_begun(now, client);
                    self.exits_before_finalize.on_begun(now, client);
                }
                pmi::Output::Event(pmi::Event::Finalized { client }) => {
                    self.participation.on_left(now, client);
                    self.exits_before_finalize.on_finished(now, client);
                }
                // The loss of the connection decides nothing; the exit of the proc does.
                pmi::Output::Event(pmi::Event::Lost { client }) => {
                    self.participation.on_left(now, client);
                }
            }
        }
        // As with every fence that cannot complete, the ranks that wait on this node and on others get an error.
        if is_too_much {
            self.fail_fences(now, out);
        }
        self.wake_at(check);
        self.wake_at(self.participation.deadline());
        self.wake_at(self.exits_before_finalize.deadline());
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use base::ProcId;

    use super::*;
    use crate::{
        daemon::{
            Daemon, Input,
            tests::{daemon_of, launch_of},
        },
        proto::ToDaemon,
    };

    const NOW: Time = Time::ZERO;
    const PROC: ProcId = proc_id(JobId(1), Rank(0));

    /// Returns the daemon's PMI messages to the rank, and its messages to the controller about fences.
    fn said(daemon: &mut Daemon) -> Vec<String> {
        let mut said = Vec::new();
        while let Some(output) = daemon.poll() {
            match output {
                Output::PmiSend { bytes, .. } => {
                    let text = String::from_utf8(bytes).unwrap();
                    said.extend(text.lines().map(str::to_owned));
                }
                Output::Send(ToController::Fence { news, .. }) => said.push(format!("{news:?}")),
                Output::Send(ToController::FencesAbandoned { .. }) => said.push("left".to_owned()),
                _ => {}
            }
        }
        said
    }

    fn speak(daemon: &mut Daemon, text: &str) -> Vec<String> {
        let bytes = text.as_bytes();
        daemon.handle(NOW, Input::Pmi { proc: PROC, bytes });
        said(daemon)
    }

    /// A share beyond the limit: the fence fails for this rank and for the other node, so that no rank keeps waiting.
    #[test]
    fn a_fence_with_too_much_data_fails() {
        let mut daemon = daemon_of(0, "n0");
        let launch = ToDaemon::Launch(Arc::new(launch_of(1, &[8], &["n0", "n1"])));
        daemon.handle(NOW, Input::Message(launch));
        said(&mut daemon);
        for rank in 0..4 {
            let bytes = b"cmd=init pmi_version=1 pmi_subversion=1\n";
            let proc = proc_id(JobId(1), Rank(rank));
            daemon.handle(NOW, Input::Pmi { proc, bytes });
        }
        let value = "x".repeat(pmi::MAX_VALUE - 1);
        for number in 0..=MAX_SHARE / value.len() {
            let put = format!("cmd=put kvsname=rally-node-77@1 key=k{number} value={value}\n");
            speak(&mut daemon, &put);
        }
        for rank in 1..4 {
            let proc = proc_id(JobId(1), Rank(rank));
            let bytes = b"cmd=barrier_in\n";
            daemon.handle(NOW, Input::Pmi { proc, bytes });
        }
        assert_eq!(said(&mut daemon), [""; 0]);
        insta::assert_snapshot!(speak(&mut daemon, "cmd=barrier_in\n").join("\n"), @"
        cmd=barrier_out rc=1 msg=fence_failed
        cmd=barrier_out rc=1 msg=fence_failed
        cmd=barrier_out rc=1 msg=fence_failed
        cmd=barrier_out rc=1 msg=fence_failed
        left
        ");
        let id = FenceId {
            job: JobId(1),
            group: None,
        };
        let awaited = ToDaemon::FenceAwaited { id, gather: 7 };
        daemon.handle(NOW, Input::Message(awaited));
        insta::assert_snapshot!(said(&mut daemon).join("\n"), @"Declined { gather: 7 }");
    }
}
