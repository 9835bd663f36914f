//! PMIx on one node: the server, and the effects of its requests on the procs of this node.

mod aborts;
mod control;
mod facts;
mod hwloc;
mod neighbors;
mod refused;
mod syslog;
#[cfg(test)]
mod tests;
mod tools;

use std::{
    collections::{BTreeMap, BTreeSet, VecDeque},
    ffi::{CString, OsString},
    os::unix::ffi::OsStrExt,
};

use base::{ExitStatus, JobId, NodeId, ProcId, Rank, RankSet, Signal, Time};
use bytes::Bytes;
use pmix::{
    codec::{Format, Writer},
    message::{Answer, Command, GroupForm, Request, Shape},
    server::{
        Ask, Config, Conn, Input, LogStream, MAX_CARRIED, Output as FromServer, PeerOwner, Server,
        Ticket,
    },
    value::{IofChannels, Kval, Nspace, PmixRank, Proc, Status},
};

use serde::{Deserialize, Serialize};

use self::{aborts::Aborts, refused::RefusedConnections, syslog::Logging};
use super::{DaemonConfig, Output, OwnNode, Subscription};
use crate::planted::{self, Bug};
use crate::proto::{
    AskId, FromServer as FromOurs, Launch, Note, PushResult, Relation, Stream, ToController,
};

/// Configuration of the PMIx server of a node.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ServiceConfig {
    /// Port on the loopback interface that procs connect to.
    pub port: u16,
    /// The user who owns the jobs; connections of other users are refused.
    pub uid: u32,
    pub gid: u32,
    /// PMIx name (nspace) of the server itself.
    pub name: String,
    /// Directory for temporary files that are removed with the job; `None` if there is none.
    pub session_dir: Option<OsString>,
    pub tools: Tools,
}

/// Whether tools may connect to a server. They find only the server beside the controller, by its files.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Tools {
    Refused,
    Admitted,
}

/// The PMIx server of a node, with the mapping between job ids and nspaces.
#[derive(Debug)]
pub(super) struct Service {
    config: ServiceConfig,
    node: NodeId,
    identity: Proc,
    server: Server,
    host: String,
    /// The document about the node for its procs, once a job has needed it. It is the same for all jobs, and with many CPUs it is
    /// long. `Some(None)` if there is none.
    topology: Option<Option<Kval>>,
    names: BTreeMap<JobId, Nspace>,
    jobs: BTreeMap<Nspace, JobId>,
    ranks: BTreeMap<JobId, Ranks>,
    /// The job whose proc spawned the job, for each spawned job.
    parents: BTreeMap<JobId, JobId>,
    /// Outstanding requests to the controller: the command of each, by ticket.
    asked: BTreeMap<u64, Command>,
    /// Log requests for the syslog, by ticket.
    logging: BTreeMap<u64, Logging>,
    /// Output channels that clients have subscribed to, by job.
    wanted: BTreeMap<JobId, IofChannels>,
    /// Paths to remove when the proc exits.
    cleanups: BTreeMap<ProcId, Vec<OsString>>,
    refused: RefusedConnections,
    aborts: Aborts,
    /// Tools that are connected. Each also has its number in [`Self::jobs`].
    tools: BTreeSet<Nspace>,
    /// The name that a tool has given to the launcher which it has started.
    called: Option<Nspace>,
    demands: VecDeque<Demand>,
    /// Outputs of the daemon that concern no job on this node.
    effects: VecDeque<Output>,
    /// True while all known jobs have procs on this node only.
    is_alone: bool,
}

/// The number of a job's ranks, and which of them are here.
#[derive(Debug)]
struct Ranks {
    /// Number of ranks on all nodes.
    size: u32,
    here: RankSet,
}

/// An action that the service requests from a job.
#[derive(Debug)]
pub(super) struct Demand {
    /// The job that is to act. The rank is that of the requesting proc, if that belongs to this job.
    pub(super) proc: ProcId,
    pub(super) what: What,
}

#[derive(Debug)]
pub(super) enum What {
    /// Text to be output on a stream of the proc, although the proc has not written it.
    Say(Stream, Bytes),
    /// Send a signal to some procs of the job, on any node.
    Signal(RankSet, Signal),
    /// The proc has called `PMIx_Init`.
    Begun,
    Finished,
    /// The proc waits for its debugger.
    Ready,
    /// Input for some procs of the job, to be answered when there is room for more.
    Feed(Pushed),
    /// End some procs of the job; `None` for the whole job.
    Abort {
        ranks: Option<RankSet>,
        code: u8,
        message: String,
    },
}

/// The originator of a push, which waits for its result.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum PushId {
    /// A process on this node, by the ticket of its request.
    Ticket(u64),
    /// The controller, by its number for the push.
    Controller(u64),
}

/// Input that a process has pushed to procs of a job that it spawned.
#[derive(Debug)]
pub(super) struct Pushed {
    pub(super) id: PushId,
    pub(super) ranks: RankSet,
    pub(super) bytes: Bytes,
    pub(super) is_last: bool,
}

/// Facts for the environment variables with which a job's procs find the PMIx server.
#[derive(Clone, Debug)]
pub(super) struct Environment {
    server: Proc,
    port: u16,
    nspace: Nspace,
    host: String,
}

impl Environment {
    pub(super) fn of(&self, rank: Rank) -> impl Iterator<Item = (String, OsString)> {
        let proc = Proc {
            nspace: self.nspace.clone(),
            rank: rank.into(),
        };
        pmix::server::environment(&self.server, self.port, &proc, &self.host)
            .into_iter()
            .map(|(name, value)| (name.to_owned(), value))
    }
}

impl Service {
    pub(super) fn new(node: NodeId, config: ServiceConfig) -> Self {
        let identity = Proc {
            nspace: name(&config.name),
            rank: PmixRank(0),
        };
        let server = Server::new(Config {
            identity: identity.clone(),
            port: config.port,
            uid: config.uid,
            gid: config.gid,
            context: ((u64::from(node.0) << 32) + 1, 1),
            tools: match config.tools {
                Tools::Refused => pmix::server::Tools::Refused,
                Tools::Admitted => pmix::server::Tools::Admitted,
            },
        });
        Self {
            config,
            node,
            identity,
            server,
            host: String::new(),
            topology: None,
            names: BTreeMap::new(),
            jobs: BTreeMap::new(),
            ranks: BTreeMap::new(),
            parents: BTreeMap::new(),
            asked: BTreeMap::new(),
            logging: BTreeMap::new(),
            wanted: BTreeMap::new(),
            cleanups: BTreeMap::new(),
            refused: RefusedConnections::default(),
            aborts: Aborts::default(),
            tools: BTreeSet::new(),
            called: None,
            demands: VecDeque::new(),
            effects: VecDeque::new(),
            is_alone: true,
        }
    }

    /// Registers a job with the server, before any of its procs starts.
    pub(super) fn register(
        &mut self,
        now: Time,
        config: &DaemonConfig,
        own: &OwnNode,
        launch: &Launch,
    ) {
        self.host.clone_from(&config.host);
        self.is_alone &= launch.map.nodes().count() == 1;
        let nspace = self.name_job(launch);
        let here = own.procs.iter().map(|placed| placed.rank).collect();
        if let Some(ranks) = self.ranks.get_mut(&launch.job) {
            ranks.here = here;
        }
        let topology = self.topology.get_or_insert_with(|| facts::topology(config));
        let mut job = facts::facts(config, Some(own), topology.clone(), launch, nspace);
        if let Some(session) = &self.config.session_dir {
            let c_string = |text: &OsString| CString::new(text.as_bytes()).ok();
            job.session_dir = c_string(session);
            job.job_dir = c_string(&job_dir(session, launch.job));
        }
        self.server.handle(now, Input::Register(Box::new(job)));
    }

    /// Registers a job that has no procs on this node.
    pub(super) fn register_elsewhere(&mut self, now: Time, config: &DaemonConfig, launch: &Launch) {
        self.is_alone = false;
        let nspace = self.name_job(launch);
        let job = facts::facts(config, None, None, launch, nspace);
        self.server.handle(now, Input::Register(Box::new(job)));
    }

    fn name_job(&mut self, launch: &Launch) -> Nspace {
        let nspace = name(&launch.nspace);
        self.names.insert(launch.job, nspace.clone());
        self.jobs.insert(nspace.clone(), launch.job);
        let ranks = Ranks {
            size: launch.size(),
            here: RankSet::new(),
        };
        self.ranks.insert(launch.job, ranks);
        if let Some(parent) = &launch.parent
            && parent.relation == Relation::Spawner
        {
            self.parents.insert(launch.job, parent.proc.job);
        }
        nspace
    }

    /// Returns the facts for the environment of a job's procs.
    pub(super) fn environment(&self, job: JobId) -> Environment {
        Environment {
            server: self.identity.clone(),
            port: self.config.port,
            nspace: self
                .names
                .get(&job)
                .unwrap_or(&self.identity.nspace)
                .clone(),
            host: self.host.clone(),
        }
    }

    pub(super) fn on_spawned(&mut self, now: Time, proc: ProcId, pid: i32) {
        if let Some(proc) = self.proc(proc) {
            let pid = u32::try_from(pid).unwrap_or(0);
            self.server.handle(now, Input::Started { proc, pid });
        }
    }

    pub(super) fn on_exited(&mut self, now: Time, proc: ProcId, status: ExitStatus) {
        if let Some(paths) = self.cleanups.remove(&proc) {
            self.effects.push_back(Output::RemoveFiles { paths });
        }
        if let Some(proc) = self.proc(proc) {
            self.server.handle(now, Input::Ended { proc, status });
        }
    }

    /// Forwards output of a proc to subscribed clients. Empty `bytes` means that the stream has ended.
    pub(super) fn on_output(&mut self, now: Time, proc: ProcId, stream: Stream, bytes: Bytes) {
        let channels = channels(stream);
        let wanted = self.wanted.get(&proc.job);
        if wanted.is_some_and(|wanted| wanted.meets(channels))
            && let Some(proc) = self.proc(proc)
        {
            let input = Input::Output {
                proc,
                channels,
                bytes,
            };
            self.server.handle(now, input);
        }
    }

    /// Records that a job is being ended: the server reports no events about how its procs end. Procs that wait for the answer
    /// to an abort get it before any proc is ended.
    pub(super) fn on_ending(&mut self, now: Time, job: JobId) {
        for ticket in self.aborts.on_ending(job) {
            self.reply(now, ticket, Answer::Status(Status::SUCCESS));
        }
        if let Some(nspace) = self.names.get(&job) {
            self.server.handle(now, Input::Ending(nspace.clone()));
        }
    }

    pub(super) fn on_accepted(&mut self, now: Time, conn: Conn, owner: PeerOwner) {
        self.server.handle(now, Input::Accepted { conn, owner });
    }

    pub(super) fn on_bytes(&mut self, now: Time, conn: Conn, bytes: &[u8]) {
        self.server.handle(now, Input::Bytes { conn, bytes });
    }

    pub(super) fn on_closed(&mut self, now: Time, conn: Conn) {
        self.server.handle(now, Input::Closed { conn });
    }

    pub(super) fn on_tick(&mut self, now: Time) {
        self.server.handle(now, Input::Tick);
        for (job, note) in self.refused.due(now, self.node) {
            self.tell(job, note);
        }
    }

    pub(super) fn deadline(&self) -> Option<Time> {
        let deadlines = [self.server.deadline(), self.refused.deadline()];
        deadlines.into_iter().flatten().min()
    }

    /// Returns the final notes about a job on this node. After the last job, they include refused connections that
    /// belong to no job.
    pub(super) fn last_words(&mut self, job: JobId, left: usize) -> Vec<Note> {
        let strangers = if left == 0 {
            self.refused.of_strangers(self.node)
        } else {
            None
        };
        let ranks = self.refused.of_job(job, self.node);
        ranks.into_iter().chain(strangers).collect()
    }

    fn tell(&mut self, job: JobId, note: Note) {
        let note = ToController::Note { job, note };
        self.effects.push_back(Output::Send(note));
    }

    /// Handles the end of a job on this node. If any known job has procs on other nodes, the facts and puts of this job
    /// stay available until the controller reports its end.
    pub(super) fn on_clean(&mut self, now: Time, job: JobId) {
        if self.is_alone {
            self.forget(now, job);
        }
    }

    fn forget(&mut self, now: Time, job: JobId) {
        self.aborts.forget(job);
        if let Some(nspace) = self.names.remove(&job) {
            self.jobs.remove(&nspace);
            self.wanted.remove(&job);
            self.parents.remove(&job);
            self.ranks.remove(&job);
            self.server.handle(now, Input::Deregister(nspace));
        }
    }

    /// Passes the controller's answer on to the client that asked.
    pub(super) fn on_answer(&mut self, now: Time, ticket: u64, answer: &[u8]) {
        let first = self.asked.keys().next().copied();
        let ticket = match first {
            Some(first) if planted::is(Bug::AnswerToAnother) => first,
            _ => ticket,
        };
        let Some(command) = self.asked.remove(&ticket) else {
            return;
        };
        let shape = Shape::of(command, GroupForm::Members);
        let answer =
            Answer::decode(Format::V4, shape, answer).unwrap_or(Answer::Status(Status::ERROR));
        if command == Command::Log {
            return self.on_log_answer(now, ticket, answer.status());
        }
        self.reply(now, Ticket(ticket), answer);
    }

    /// Releases procs that wait for their debugger.
    pub(super) fn release(&mut self, now: Time, job: JobId, ranks: RankSet) {
        if let Some(nspace) = self.names.get(&job).cloned() {
            self.server.handle(now, Input::Release { nspace, ranks });
        }
    }

    /// Answers a process that pushed input to a job whose ranks are all on this node.
    pub(super) fn on_pushed(&mut self, now: Time, ticket: u64, result: PushResult) {
        self.reply(now, Ticket(ticket), Answer::Status(result.status()));
    }

    /// Carries out the server's outputs, and returns the next action that a job is to carry out.
    pub(super) fn poll(&mut self, now: Time, out: &mut VecDeque<Output>) -> Option<Demand> {
        loop {
            out.extend(self.effects.drain(..));
            if let Some(demand) = self.demands.pop_front() {
                return Some(demand);
            }
            match self.server.poll()? {
                FromServer::Send { conn, bytes } => {
                    out.push_back(Output::ClientSend { conn, bytes });
                }
                FromServer::Close { conn } => out.push_back(Output::ClientClose { conn }),
                FromServer::Ask(ask) => self.on_ask(now, *ask, out),
                FromServer::Log { proc, stream, text } => {
                    let stream = match stream {
                        LogStream::Stdout => Stream::Stdout,
                        LogStream::Stderr => Stream::Stderr,
                    };
                    self.demand(&proc, What::Say(stream, text));
                }
                FromServer::Syslog { ticket, from, log } => self.on_log(now, ticket, &from, &log),
                // A client that violates the protocol loses only its connection. What it does without one is up to the
                // client.
                FromServer::Refused { proc, error } => {
                    match proc.and_then(|proc| self.proc_id(&proc)) {
                        Some(ProcId { job, rank }) => self.refused.rank(now, job, rank, &error),
                        None => self.refused.stranger(&error),
                    }
                }
                FromServer::Connected { proc } => {
                    self.make_directory(&proc, out);
                    self.demand(&proc, What::Begun);
                }
                FromServer::Finalized { proc } => self.demand(&proc, What::Finished),
                FromServer::ToolConnects { conn, visitor } => self.on_tool(conn, visitor),
                FromServer::ToolLeft { tool } => self.on_tool_left(&tool),
                FromServer::Wanted { nspace, channels } => self.on_wanted(&nspace, channels),
                FromServer::Redirected { nspace, redirected } => {
                    if let Some(job) = self.jobs.get(&nspace).copied() {
                        self.say(FromOurs::Redirected {
                            job,
                            stdout: redirected.stdout,
                            stderr: redirected.stderr,
                        });
                    }
                }
                FromServer::Stdin {
                    ticket,
                    from,
                    to,
                    bytes,
                    is_last,
                } => match self.readers(&from, &to) {
                    Ok((job, ranks)) if self.is_whole(job) => self.demands.push_back(Demand {
                        proc: ProcId { job, rank: Rank(0) },
                        what: What::Feed(Pushed {
                            id: PushId::Ticket(ticket.0),
                            ranks,
                            bytes,
                            is_last,
                        }),
                    }),
                    // Send the push through the controller even for ranks on this node, so that pushes cannot overtake
                    // each other.
                    Ok(_) if bytes.len() > MAX_CARRIED => {
                        self.reply(now, ticket, Answer::Status(Status::OUT_OF_RESOURCE));
                    }
                    Ok((job, ranks)) => {
                        self.asked.insert(ticket.0, Command::IofPush);
                        out.push_back(Output::Send(ToController::Push {
                            ticket: AskId::Pmix(ticket.0),
                            job,
                            ranks,
                            bytes,
                            is_last,
                        }));
                    }
                    Err(status) => self.reply(now, ticket, Answer::Status(status)),
                },
                // The loss of the connection decides nothing; the exit of the proc does.
                FromServer::Lost { .. } => {}
                FromServer::Event { event, elsewhere } => {
                    if event.status == Status::DEBUGGER_RELEASE
                        && !planted::is(Bug::ReleaseNotPassedOn)
                    {
                        self.released(&event);
                    }
                    self.tell_event(*event, elsewhere);
                }
                FromServer::Ready { proc } => self.demand(&proc, What::Ready),
                output @ (FromServer::Gather { .. }
                | FromServer::Waits { .. }
                | FromServer::Forgotten { .. }
                | FromServer::NoShare { .. }
                | FromServer::Withdrawn { .. }
                | FromServer::MembersGone
                | FromServer::Declined { .. }
                | FromServer::Question { .. }
                | FromServer::NoLongerAsked { .. }
                | FromServer::QuestionAnswered { .. }) => self.tell_neighbors(output),
            }
        }
    }

    /// Notes which output of a job the server wants, and tells the controller if other nodes write some of it.
    fn on_wanted(&mut self, nspace: &Nspace, channels: IofChannels) {
        if let Some(job) = self.jobs.get(nspace).copied() {
            self.wanted.insert(job, channels);
            if !self.is_whole(job) {
                let mut streams = Stream::BOTH.to_vec();
                streams.retain(|stream| channels.meets(self::channels(*stream)));
                self.say(FromOurs::Wanted { job, streams });
            }
        }
    }

    /// Creates the temporary directory of a proc, whose path the proc learns from its job info.
    fn make_directory(&mut self, proc: &Proc, out: &mut VecDeque<Output>) {
        if let Some(session) = &self.config.session_dir
            && let Some(ProcId { job, rank }) = self.proc_id(proc)
        {
            let mut path = job_dir(session, job);
            path.push(format!("/{rank}"));
            out.push_back(Output::MakeDirectory { path });
        }
    }

    /// Returns true if all ranks of the job are on this node.
    fn is_whole(&self, job: JobId) -> bool {
        let ranks = self.ranks.get(&job);
        ranks.is_some_and(|ranks| ranks.here.len() == ranks.size as usize)
    }

    /// Returns the job and the ranks for which input is meant. The sender must have spawned the job: the front's own
    /// job gets its input from the front.
    fn readers(&self, from: &Proc, to: &[Proc]) -> Result<(JobId, RankSet), Status> {
        let first = to.first().ok_or(Status::BAD_PARAM)?;
        if to.iter().any(|proc| proc.nspace != first.nspace) {
            return Err(Status::NOT_SUPPORTED);
        }
        let job = *self.jobs.get(&first.nspace).ok_or(Status::NOT_FOUND)?;
        let spawner = self.parents.get(&job);
        if spawner.is_none() || spawner != self.jobs.get(&from.nspace) {
            return Err(Status::NO_PERMISSIONS);
        }
        let mut ranks = self.ranks_of(to.iter());
        Ok((job, ranks.remove(&job).unwrap_or_default()))
    }

    /// Returns the existing ranks that the given names refer to, by job.
    fn ranks_of<'a>(&self, procs: impl Iterator<Item = &'a Proc>) -> BTreeMap<JobId, RankSet> {
        let mut ranks: BTreeMap<JobId, Vec<Rank>> = BTreeMap::new();
        let mut whole: BTreeMap<JobId, RankSet> = BTreeMap::new();
        for proc in procs {
            let Some(job) = self.jobs.get(&proc.nspace) else {
                continue;
            };
            let size = self.ranks.get(job).map_or(0, |ranks| ranks.size);
            if proc.rank == PmixRank::WILDCARD {
                whole.insert(*job, RankSet::range(0..size));
            } else if proc.rank.0 < size {
                ranks.entry(*job).or_default().push(Rank(proc.rank.0));
            }
        }
        for (job, some) in ranks {
            whole
                .entry(job)
                .or_insert_with(|| some.into_iter().collect());
        }
        whole
    }

    fn on_ask(&mut self, now: Time, ask: Ask, out: &mut VecDeque<Output>) {
        let Ask {
            ticket,
            from,
            request,
        } = ask;
        let Some(proc) = self.proc_id(&from) else {
            return self.reply(now, ticket, Answer::Status(Status::NOT_FOUND));
        };
        match request {
            Request::Abort { procs, .. } if self.is_tool(&from) => {
                let status = self.signal_by_tool(&procs, Signal::KILL);
                self.reply(now, ticket, Answer::Status(status));
            }
            Request::Abort {
                status,
                message,
                procs,
            } => {
                let message =
                    message.map_or_else(String::new, |text| text.to_string_lossy().into_owned());
                let whole = procs.is_empty() || procs.contains(&Proc::all(from.nspace.clone()));
                if !whole && procs.iter().any(|proc| proc.nspace != from.nspace) {
                    // A proc may not end procs of another job.
                    return self.reply(now, ticket, Answer::Status(Status::NO_PERMISSIONS));
                }
                if !whole || !self.aborts.add(proc.job, ticket) {
                    self.reply(now, ticket, Answer::Status(Status::SUCCESS));
                }
                let some = || self.ranks_of(procs.iter()).remove(&proc.job);
                let ranks = (!whole).then(|| some().unwrap_or_default());
                let code = exit_code(status);
                self.demand(
                    &from,
                    What::Abort {
                        ranks,
                        code,
                        message,
                    },
                );
            }
            Request::JobControl { targets, infos } if control::defines_set(&infos) => {
                let asked = self.ask_for_set(&from, ticket, &targets, &infos);
                if let Err(status) = asked {
                    self.reply(now, ticket, Answer::Status(status));
                }
            }
            Request::JobControl { targets, infos } => {
                let answer = self.control(&from, proc, &targets, &infos);
                self.reply(now, ticket, answer);
            }
            request @ (Request::Publish { .. }
            | Request::Lookup { .. }
            | Request::Unpublish { .. }
            | Request::Query { .. }
            | Request::Allocate { .. }
            | Request::Spawn { .. }) => {
                let mut writer = Writer::new(Format::V4);
                request.encode(&mut writer);
                if writer.as_bytes().len() > MAX_CARRIED {
                    return self.reply(now, ticket, Answer::Status(Status::OUT_OF_RESOURCE));
                }
                self.asked.insert(ticket.0, request.command());
                out.push_back(Output::Send(ToController::Ask {
                    proc,
                    ticket: AskId::Pmix(ticket.0),
                    request: writer.into_bytes().into(),
                }));
            }
            _ => self.reply(now, ticket, Answer::Status(Status::NOT_SUPPORTED)),
        }
    }

    fn reply(&mut self, now: Time, ticket: Ticket, answer: Answer) {
        self.server.handle(now, Input::Answer { ticket, answer });
    }

    fn demand(&mut self, from: &Proc, what: What) {
        if let Some(proc) = self.proc_id(from) {
            self.demands.push_back(Demand { proc, what });
        }
    }

    fn proc(&self, proc: ProcId) -> Option<Proc> {
        Some(Proc {
            nspace: self.names.get(&proc.job)?.clone(),
            rank: proc.rank.into(),
        })
    }

    fn proc_id(&self, proc: &Proc) -> Option<ProcId> {
        Some(ProcId {
            job: *self.jobs.get(&proc.nspace)?,
            rank: Rank(proc.rank.0),
        })
    }
}

const fn channels(stream: Stream) -> IofChannels {
    match stream {
        Stream::Stdout => IofChannels::STDOUT,
        Stream::Stderr => IofChannels::STDERR,
    }
}

/// Returns the directory for files of a job.
pub(super) fn job_dir(session: &OsString, job: JobId) -> OsString {
    let mut path = session.clone();
    path.push(format!("/{job}"));
    path
}

/// Returns the exit code that an abort requests; never 0.
fn exit_code(status: Status) -> u8 {
    match u8::try_from(status.0 & 0xff) {
        Ok(0) | Err(_) => 1,
        Ok(code) => code,
    }
}

/// Converts a name to an nspace. Longer names than PMIx allows are cut; ours are shorter.
fn name(text: &str) -> Nspace {
    let end = text
        .char_indices()
        .map(|(at, character)| at + character.len_utf8())
        .take_while(|end| *end as u64 <= pmix::MAX_NSPACE)
        .last()
        .unwrap_or(0);
    Nspace::from_text(&text[..end]).unwrap_or_default()
}
