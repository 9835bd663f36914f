//! The process management interface of the procs, what they ask by it, and fences that cannot complete.

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

/// Bytes of what the ranks here bring to one fence over several nodes, so that a frame holds it. When they have more, no
/// fence can complete.
const MAX_SHARE: usize = 32 << 20;

/// Fences of PMI in which the ranks of several nodes are.
#[derive(Debug, Default)]
pub(super) struct Gathers {
    /// Those for which the ranks here wait, by number.
    under_way: BTreeMap<u32, (FenceId, Fence)>,
    next: u32,
    /// None can complete any more.
    failed: bool,
}

#[derive(Debug)]
enum Fence {
    All(pmi::FenceId),
    Group(pmi::Group),
}

impl Gathers {
    /// All ranks here that are in a fence have come: what the controller is told, unless it is too much.
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

/// The nodes that have members of a group.
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

/// What all nodes have put, unless a share cannot be read.
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

    /// The shares of all nodes, or the word that some never come.
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

    /// No fence of the job can complete any more: its ranks are told, here and on all nodes.
    pub(super) fn fail_fences(&mut self, now: Time, out: &mut Out) {
        self.tell_pmi(now, pmi::Input::FenceFailed, out);
        if !std::mem::replace(&mut self.gathers.failed, true) {
            self.leave_fences(out);
        }
    }

    /// Ranks here come to no fence any more.
    pub(in crate::daemon) fn leave_fences(&mut self, out: &mut Out) {
        for (number, (id, _)) in std::mem::take(&mut self.gathers.under_way) {
            let news = FenceNews::Withdrawn { number };
            out.push_back(Output::Send(ToController::Fence { id, news }));
        }
        if self.pmi.is_some() && self.launch.nodes.len() > 1 {
            out.push_back(Output::Send(ToController::FencesLeft {
                job: self.launch.job,
            }));
        }
    }

    /// No rank here will ever come to a fence.
    pub(in crate::daemon) const fn has_no_fences(&self) -> bool {
        self.gathers.failed
    }

    /// The controller has answered what a proc had asked by PMI.
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

    /// Does what a proc has asked for by PMIx.
    pub(in crate::daemon) fn on_demand(&mut self, now: Time, demand: Demand, out: &mut Out) {
        let Demand { proc, what } = demand;
        let (job, rank) = (proc.job, proc.rank);
        match what {
            // What is held depends on the service as well.
            What::Ready => {}
            What::Begun => {
                self.partings.on_begun(now, rank);
                self.wake_at(self.partings.deadline());
            }
            What::Finished => {
                self.partings.on_finished(now, rank);
                self.wake_at(self.partings.deadline());
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
            // Under the policy to go on only those are ended that were named. Otherwise the end of some is that of all,
            // and the one who asked for it is its cause.
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

    /// A fence that can never complete is failed when it is known how the proc ended that does not come: its own
    /// failure, which ends the job, must not be hidden behind the errors of those that waited for it.
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

    /// Those for whom others have waited too long are the cause of the job's end, unless others are to go on.
    pub(super) fn tell_absent(&mut self, now: Time, out: &mut Out) {
        let Some(ranks) = self.attendance.overdue(now) else {
            return;
        };
        if self.launch.end.on_failure == OnFailure::EndJob {
            out.push_back(Output::Send(ToController::Absent {
                job: self.launch.job,
                ranks,
            }));
        }
    }

    /// Those who have left others alone are the cause of the job's end, unless others are to go on.
    pub(super) fn tell_unfinished(&mut self, now: Time, out: &mut Out) {
        if self.partings.overdue(now)
            && self.launch.end.on_failure == OnFailure::EndJob
            && let Some(ranks) = self.partings.take()
        {
            let job = self.launch.job;
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
                // Who has all ranks needs nobody.
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
                    Err(pmi::NotAsked(why)) => {
                        let reply = pmi::Reply::Refused(why);
                        server.handle(pmi::Input::Answered { ticket, reply });
                    }
                },
                pmi::Output::Event(pmi::Event::FenceBroken { lost, .. }) => {
                    // Whose connection is gone may be about to exit: its status says more than its silence.
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
                    self.attendance.on_begun(now, client);
                    self.partings.on_begun(now, client);
                }
                pmi::Output::Event(pmi::Event::Finalized { client }) => {
                    self.attendance.on_left(now, client);
                    self.partings.on_finished(now, client);
                }
                // That the connection is gone decides nothing: the exit of the proc does.
                pmi::Output::Event(pmi::Event::Lost { client }) => {
                    self.attendance.on_left(now, client);
                }
            }
        }
        // Those who wait here and on other nodes are told, as of every fence that cannot complete.
        if is_too_much {
            self.fail_fences(now, out);
        }
        self.wake_at(check);
        self.wake_at(self.attendance.deadline());
        self.wake_at(self.partings.deadline());
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

    /// What a daemon says when its rank speaks PMI: to the rank, and to the controller about fences.
    fn said(daemon: &mut Daemon) -> Vec<String> {
        let mut said = Vec::new();
        while let Some(output) = daemon.poll() {
            match output {
                Output::PmiSend { bytes, .. } => {
                    let text = String::from_utf8(bytes).unwrap();
                    said.extend(text.lines().map(str::to_owned));
                }
                Output::Send(ToController::Fence { news, .. }) => said.push(format!("{news:?}")),
                Output::Send(ToController::FencesLeft { .. }) => said.push("left".to_owned()),
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

    /// More than a share may have: the rank and the other node are told that the fence has failed, and nobody waits.
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
