//! A job of the client: a front of the machine, whose messages become inputs of the session.
//!
//! | state | `Queued`, `Accepted` | `Refused` | `Launched` | `Ended`, or the link is lost | the client terminates it |
//! |---|---|---|---|---|---|
//! | `Asked` | the submission is answered → `Taken` | it is refused → over | – | it is refused → over | – |
//! | `Taken` | – | a message, and COMPLETED → over | the processes, RUNNING | what became of them, COMPLETED → over | the machine ends it → `Ending` |
//! | `Ending` | – | as `Taken` | as `Taken` | as `Taken` | it is refused |

use std::{
    collections::{BTreeMap, VecDeque},
    os::fd::BorrowedFd,
};

use base::{ExitStatus, JobId, NodeId, Rank, RankSet, Signal};
use dvm::{
    messages::Scene,
    proto::{self, Chunk, EndReason, FromFront, Outcome, OutputCredit, TableRow, ToFront},
    spec::JobSpec,
    stdio::{self, OUTPUT_WINDOW},
};
use message::{Message, Severity};
use ptp::{
    Fault, Input, JobKey, JobState, Level, ProcessFacts, RankState, Stream, Taken, Ticket, code,
};
use runtime::link::{FrontLink, LinkError, Received};

use super::{
    attach,
    check::{Attachment, Checked, Debugged},
    nodes::Nodes,
    routes,
};

/// Credit is sent in portions of at least this much.
const CREDIT_PORTION: u64 = OUTPUT_WINDOW / 16;

#[derive(Debug)]
enum State {
    /// The client has no answer to its submission yet.
    Asked(Ticket),
    Taken,
    /// The client has terminated it.
    Ending,
}

/// Output that the client has not got: what is left of a chunk, and what it is worth.
#[derive(Debug)]
struct Owed {
    node: NodeId,
    bytes: usize,
    cost: u64,
}

/// A job.
#[derive(Debug)]
pub(super) struct Job {
    pub(super) key: JobKey,
    link: FrontLink,
    state: State,
    /// `None` until the machine has taken it.
    id: Option<JobId>,
    /// Processes that the client knows of.
    procs: u32,
    debugged: Option<Debugged>,
    /// What attaches to it, until it runs.
    attaches: Option<Attachment>,
    /// The same, when it does.
    ready: Option<Vec<String>>,
    /// Output that precedes the processes: a node forwards it before all nodes have started theirs. Its window bounds it.
    early: Option<Told>,
    spec: Box<JobSpec>,
    table: Vec<TableRow>,
    owed: BTreeMap<(Rank, Stream), VecDeque<Owed>>,
    credit: BTreeMap<(NodeId, proto::Stream), u64>,
}

/// What the session is told of a job.
pub(super) type Told = Vec<Input<'static>>;

/// Whether a job goes on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Life {
    Lives,
    Over,
}

const fn stream(stream: proto::Stream) -> Stream {
    match stream {
        proto::Stream::Stdout => Stream::Stdout,
        proto::Stream::Stderr => Stream::Stderr,
    }
}

const fn stream_of(stream: Stream) -> proto::Stream {
    match stream {
        Stream::Stdout => proto::Stream::Stdout,
        Stream::Stderr => proto::Stream::Stderr,
    }
}

/// Returns a message as one text.
fn text(message: &Message) -> String {
    let help = message.help.as_ref();
    let help = help.map_or_else(String::new, |help| format!(" ({help})"));
    format!("{}{help}", message.headline)
}

/// Returns what the user reads of a message of `rally`.
pub(super) fn said(message: &Message) -> Input<'static> {
    let level = match message.severity {
        Severity::Note => Level::Info,
        Severity::Warning => Level::Warning,
        Severity::Error => Level::Error,
    };
    Input::Message(level, text(message))
}

impl Job {
    /// Submits a job over a link to the machine.
    pub(super) fn submit(
        key: JobKey,
        ticket: Ticket,
        mut link: FrontLink,
        checked: Checked,
    ) -> Self {
        let Checked {
            spec,
            procs,
            debugged,
            attaches,
        } = checked;
        let spec = link.submit(spec);
        Self {
            key,
            link,
            state: State::Asked(ticket),
            id: None,
            procs,
            debugged,
            attaches,
            ready: None,
            early: Some(Told::new()),
            spec,
            table: Vec::new(),
            owed: BTreeMap::new(),
            credit: BTreeMap::new(),
        }
    }

    /// Lets the machine end the job.
    pub(super) fn terminate(&mut self) -> Result<(), Fault> {
        if matches!(self.state, State::Ending) {
            let text = "the job is being ended already".to_owned();
            let code = code::JOB;
            return Err(Fault { code, text });
        }
        self.state = State::Ending;
        self.link.send(FromFront::End(EndReason::Canceled));
        Ok(())
    }

    /// Returns the arguments of a `dbgr` that attaches to the job now.
    pub(super) const fn take_ready(&mut self) -> Option<Vec<String>> {
        self.ready.take()
    }

    /// Returns true if there is something to write.
    pub(super) fn has_outgoing(&self) -> bool {
        self.link.link.has_outgoing()
    }

    pub(super) fn flush(&mut self, fd: BorrowedFd<'_>) -> Result<(), LinkError> {
        // A closed link shows at the next read.
        self.link.flush(fd).map(drop)
    }

    /// Counts output that the client has got, or does not want.
    pub(super) fn credit(&mut self, rank: Rank, stream: Stream, mut bytes: usize) {
        let Some(owed) = self.owed.get_mut(&(rank, stream)) else {
            return;
        };
        while let Some(first) = owed.front_mut() {
            let part = bytes.min(first.bytes);
            bytes -= part;
            first.bytes -= part;
            if first.bytes > 0 {
                break;
            }
            let account = (first.node, stream_of(stream));
            *self.credit.entry(account).or_default() += first.cost;
            owed.pop_front();
        }
        if owed.is_empty() {
            self.owed.remove(&(rank, stream));
        }
        let Some(job) = self.id else { return };
        let due = self
            .credit
            .extract_if(.., |_, cost| *cost >= CREDIT_PORTION);
        for ((node, stream), bytes) in due {
            self.link.send(FromFront::OutputCredit(OutputCredit {
                job,
                node,
                stream,
                bytes,
            }));
        }
    }

    /// Reads once, and handles what has come.
    pub(super) fn receive(
        &mut self,
        fd: BorrowedFd<'_>,
        nodes: &mut Nodes,
        told: &mut Told,
    ) -> Life {
        let received = self.link.link.receive(fd);
        loop {
            match self.link.next_message() {
                Ok(Some(message)) => {
                    if self.on_message(message, nodes, told) == Life::Over {
                        return Life::Over;
                    }
                }
                Ok(None) => break,
                Err(error) => return self.lose(&error.to_string(), told),
            }
        }
        match received {
            Ok(Received::Open | Received::Nothing) => Life::Lives,
            Ok(Received::Closed) => self.lose("the machine has closed the connection", told),
            Err(error) => self.lose(&error.to_string(), told),
        }
    }

    fn on_message(&mut self, message: ToFront, nodes: &mut Nodes, told: &mut Told) -> Life {
        match message {
            ToFront::Queued(job) | ToFront::Numbered(job) => self.take(job, told),
            ToFront::Accepted(job) => {
                self.id = Some(job);
                self.take(job, told);
            }
            ToFront::Refused(refusal) => {
                return self.fail(&text(&dvm::messages::refused(&refusal)), told);
            }
            ToFront::Launched { table, name, .. } => {
                self.ready = self
                    .attaches
                    .take()
                    .map(|attachment| attach::words(attachment, &name, &table));
                self.on_launched(table, nodes, told);
            }
            ToFront::Output { node, chunk } => self.on_output(node, &chunk, told),
            ToFront::Note(note) => {
                let message = dvm::messages::note(&note, &self.scene(nodes));
                told.push(said(&message));
            }
            ToFront::Failed(why) => return self.fail(&why.to_string(), told),
            ToFront::Ended(outcome) => {
                self.on_ended(&outcome, nodes, told);
                return Life::Over;
            }
            // Nothing of these is for the client.
            _ => {}
        }
        Life::Lives
    }

    fn on_output(&mut self, node: NodeId, chunk: &Chunk, told: &mut Told) {
        let (rank, stream, bytes) = (chunk.rank, stream(chunk.stream), chunk.bytes.len());
        // Without bytes, no credit would come back.
        if bytes == 0 {
            return;
        }
        let cost = stdio::cost(bytes);
        let owed = self.owed.entry((rank, stream)).or_default();
        owed.push_back(Owed { node, bytes, cost });
        let output = Input::Output {
            job: self.key,
            rank,
            stream,
            bytes: chunk.bytes.to_vec(),
        };
        self.early.as_mut().unwrap_or(told).push(output);
    }

    /// Answers the submission.
    fn take(&mut self, job: JobId, told: &mut Told) {
        let State::Asked(ticket) = self.state else {
            return;
        };
        self.state = State::Taken;
        let taken = Taken {
            key: self.key,
            name: job.to_string(),
            procs: self.procs,
        };
        told.push(Input::Submitted(ticket, Ok(taken)));
    }

    fn scene<'a>(&'a self, nodes: &'a Nodes) -> Scene<'a> {
        Scene {
            job: self.id,
            nodes: nodes.names(),
            table: &self.table,
            apps: &self.spec.apps,
            end: self.spec.end,
        }
    }

    fn on_launched(&mut self, table: Vec<TableRow>, nodes: &mut Nodes, told: &mut Told) {
        let mut processes = vec![ProcessFacts { node: 0, pid: 0 }; self.procs as usize];
        for row in &table {
            if let Some(process) = processes.get_mut(row.rank.0 as usize) {
                process.node = nodes.index_of(&row.host, told);
                // The process that the client knows is not that of the debugger.
                if self.debugged.is_none() {
                    process.pid = row.pid.unsigned_abs();
                }
            }
        }
        let running: RankSet = table
            .iter()
            .map(|row| row.rank)
            .filter(|rank| rank.0 < self.procs)
            .collect();
        told.push(Input::Started(self.key, processes));
        // How debugged processes are, their debugger tells the client.
        if self.debugged.is_none() {
            told.push(Input::Ranks(self.key, running, RankState::Running));
        }
        told.push(Input::Job(self.key, JobState::Running));
        told.extend(self.early.take().into_iter().flatten());
        self.table = table;
        let file = self.debugged.as_ref().and_then(|job| job.routes.as_ref());
        if let Some(file) = file
            && let Err(why) = routes::write(file, &self.table, self.procs)
        {
            told.push(Input::Message(Level::Error, why));
        }
    }

    fn on_ended(&mut self, outcome: &Outcome, nodes: &Nodes, told: &mut Told) {
        if let State::Asked(ticket) = self.state {
            // It has ended before it was accepted: nothing of it was started.
            let text = dvm::messages::cause(&outcome.cause, &self.scene(nodes));
            let code = code::SUBMIT;
            told.push(Input::Submitted(ticket, Err(Fault { code, text })));
            return;
        }
        told.extend(self.early.take().into_iter().flatten());
        let known = RankSet::range(0..self.procs);
        for (status, ranks) in &outcome.ended {
            let ranks = ranks.intersection(&known);
            told.push(Input::Ranks(self.key, ranks, state_of(*status)));
        }
        if !outcome.not_started.is_empty() {
            let ranks = outcome.not_started.intersection(&known);
            let code = i32::from(code_of_shell(outcome));
            told.push(Input::Ranks(self.key, ranks, RankState::Exited(code)));
        }
        for message in dvm::messages::outcome(outcome, &self.scene(nodes)) {
            told.push(match self.state {
                // The client wanted it.
                State::Ending => Input::Message(Level::Info, text(&message)),
                State::Asked(_) | State::Taken => said(&message),
            });
        }
        told.push(Input::Job(self.key, JobState::Completed));
    }

    /// The job is over without an outcome.
    fn fail(&mut self, why: &str, told: &mut Told) -> Life {
        let text = why.to_owned();
        match self.state {
            State::Asked(ticket) => {
                let code = code::SUBMIT;
                told.push(Input::Submitted(ticket, Err(Fault { code, text })));
            }
            State::Taken | State::Ending => {
                told.push(Input::Message(Level::Error, text));
                told.push(Input::Job(self.key, JobState::Completed));
            }
        }
        Life::Over
    }

    fn lose(&mut self, why: &str, told: &mut Told) -> Life {
        let what = match self.state {
            State::Asked(_) => "the machine has not taken the job",
            State::Taken | State::Ending => "lost the job",
        };
        self.fail(&format!("{what}: {why}"), told)
    }
}

/// Returns the code that a shell gives for a program that was not started.
fn code_of_shell(outcome: &Outcome) -> u8 {
    crate::exit::code_of(outcome)
}

fn state_of(status: ExitStatus) -> RankState {
    match status {
        ExitStatus::Exited(code) => RankState::Exited(i32::from(code)),
        ExitStatus::Signaled { signal, .. } => RankState::Signaled(signal),
        ExitStatus::OutOfMemory { .. } => RankState::Signaled(Signal::KILL),
    }
}
