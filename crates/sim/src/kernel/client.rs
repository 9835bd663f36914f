//! The PMIx client of one process: a script drives the client state machine of `pmix`.

mod ask;
mod inquire;
mod invite;

use std::{
    collections::{BTreeMap, BTreeSet},
    ffi::OsString,
};

use base::{ExitStatus, Time};
use pmix::{
    client::{Config, Done, Input, Lost, Notice, Output, Program, ProgramEvent, Ticket},
    handshake::Owner,
    tool::{self, JobEnd, Tool},
    value::{Nspace, Proc, ProcInfo, Status},
};

use super::{Effect, Kernel, Next, Pid, Run};
use crate::{
    rng::Rng,
    script::{
        Circle, Data, FENCE_REFUSED, Lookup, Notify, Op, Party, Patience, PmixOp, Question, Site,
        Stranger, named,
    },
};

/// The user and group of all processes of a run.
pub(crate) const OWNER: Owner = Owner {
    uid: 1000,
    gid: 1000,
};

/// A message header whose length field exceeds the maximum of the protocol.
pub(crate) const GARBAGE: [u8; 16] = [0xff; 16];

/// Identifier of a connection to the PMIx server of the node; never reused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct ClientId(pub(crate) u64);

/// A step in the PMIx communication of a process, for the checks of the ledger.
#[derive(Debug)]
pub(crate) enum News {
    /// The process begins to initialize.
    Begun,
    /// The process is held in its init.
    Held,
    /// The process has initialized and has received the job info.
    Ready,
    Asked(Ticket, Ask),
    Answered(Ticket, Result<Done, Status>),
    /// The answer to a question for a process table.
    Table(Ticket, Result<Vec<ProcInfo>, Status>),
    Noticed(Notice),
    /// The process wants to hear of the ends of the jobs that it spawns from now on.
    Watches,
    /// A job that the process has spawned has ended.
    JobEnded(Nspace, JobEnd),
    /// The process has waited for events.
    Waited,
    Finalized,
    /// The process closes its connection without finalize, or sends garbage, so that the server closes the connection.
    Left,
    /// The process has waited in vain for the answer to its finalize, and closes its connection.
    GivenUp,
}

/// A PMIx request of a process.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Ask {
    Commit(Vec<String>),
    Together(Together, Vec<Proc>),
    /// Construct of a group with these members, in order.
    Construct(Circle, Vec<Proc>),
    Get(Proc, String),
    Publish(String),
    Lookup(Proc, Lookup),
    Unpublish(String),
    Register(Vec<Status>),
    Notify(Notify),
    /// Leave of the group with these members.
    Leave(Vec<Proc>),
    Spawn(usize, Site),
    /// Abort of these procs; of the whole job if the list is empty.
    Abort(Vec<Proc>),
    /// Release of these held procs.
    Release(Vec<Proc>),
    /// A question about this job. Who does not wait for the answer may never read it.
    Question(Question, Nspace, Patience),
    Finalize,
}

/// Kind of a PMIx collective.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Together {
    Fence(Data),
    Connect,
    Disconnect,
    Construct,
    Destruct,
}

/// The PMIx state of a process.
#[derive(Debug)]
pub(super) struct Client {
    /// A tool can do everything that a program can, so that all processes are tools as far as this side is concerned.
    tool: Tool,
    id: ClientId,
    inbox: Vec<u8>,
    /// True if the server has closed the connection and `tool` has not handled that yet.
    hung_up: bool,
    /// True once the process has sent garbage or disconnected. Losing the server is then no fault.
    is_guilty: bool,
    /// Keys that the process has put since its last commit.
    puts: Vec<String>,
    /// Requests whose answers the current operation waits for. The value is the child that a spawn starts; `None` for others.
    waits: BTreeMap<Ticket, Option<usize>>,
    /// True if a request of the current operation has failed.
    refused: bool,
    is_ready: bool,
    is_over: bool,
    children: BTreeMap<usize, Nspace>,
    /// True once it spawns as a tool does.
    watches: bool,
    /// Unanswered questions. An error may be the right answer.
    questions: BTreeSet<Ticket>,
    /// Constructs whose answers are outstanding, with the names of the groups.
    constructs: BTreeMap<Ticket, String>,
    groups: BTreeSet<String>,
    /// What the process has heard about groups by invitation, by the names of the groups.
    heard: BTreeMap<String, invite::Heard>,
    /// Processes of which it was told that they have died.
    dead: BTreeSet<Proc>,
    /// Time until which it waits for an event; `None` if it does not.
    until: Option<Time>,
}

impl Client {
    fn me(&self) -> Option<&Proc> {
        self.tool.as_program().me()
    }

    const fn program(&mut self) -> &mut Program {
        self.tool.program()
    }

    fn resolve(&self, party: Party) -> Option<Proc> {
        let me = self.me()?;
        Some(match party {
            Party::Rank(rank) => named(&me.nspace, rank),
            Party::Job => Proc::all(me.nspace.clone()),
            Party::Child(child) => Proc::all(self.children.get(&child)?.clone()),
            Party::ChildRank(child, rank) => named(self.children.get(&child)?, rank),
            Party::Parent => self.tool.as_program().job()?.parent()?.clone(),
        })
    }

    /// Handles an event of the PMIx client. Returns the news for the ledger, if any.
    ///
    /// # Errors
    ///
    /// Returns a description of an event that a correct server never causes.
    fn on_event(&mut self, event: tool::Event) -> Result<Option<News>, String> {
        let me = self.tool.as_program().config().connector.proc();
        let me = me.map_or_else(String::new, ToString::to_string);
        let event = match event {
            tool::Event::Program(event) => event,
            tool::Event::Table { ticket, result } => {
                self.waits.remove(&ticket);
                self.questions.remove(&ticket);
                return Ok(Some(News::Table(ticket, result)));
            }
            tool::Event::JobEnded { nspace, end } => {
                return Ok(Some(News::JobEnded(nspace, end)));
            }
            // No process of the simulator follows jobs.
            tool::Event::JobStage { .. } => return Ok(None),
            tool::Event::EndsUnknown {
                status: Status::UNREACH,
            } => return Ok(None),
            tool::Event::EndsUnknown { status } => {
                return Err(format!("{me} is not told of the ends of jobs: {status}"));
            }
        };
        Ok(Some(match event {
            ProgramEvent::Ready { .. } => {
                self.is_ready = true;
                News::Ready
            }
            ProgramEvent::Held => News::Held,
            ProgramEvent::Stdio(_) => return Ok(None),
            ProgramEvent::Notice { notice, .. } => {
                self.hear_of_group(&notice);
                News::Noticed(notice)
            }
            ProgramEvent::Ignored { why } => {
                return Err(format!("{me} is sent what means nothing: {why}"));
            }
            ProgramEvent::Done { ticket, result } => {
                let child = self.waits.remove(&ticket).flatten();
                if let (Some(child), Ok(Done::Spawned(nspace))) = (child, &result) {
                    self.children.insert(child, nspace.clone());
                }
                if let Some(group) = self.constructs.remove(&ticket)
                    && result.is_ok()
                {
                    self.groups.insert(group);
                }
                self.refused |= result.is_err() && !self.questions.remove(&ticket);
                News::Answered(ticket, result)
            }
            ProgramEvent::Finalized => {
                self.is_over = true;
                News::Finalized
            }
            ProgramEvent::Lost { why: Lost::Silent } if self.is_ready => {
                self.is_over = true;
                News::GivenUp
            }
            ProgramEvent::Lost { why } => {
                self.is_over = true;
                if !self.is_guilty {
                    return Err(format!("{me} loses its server: {why}"));
                }
                return Ok(None);
            }
        }))
    }

    fn resolve_all(&self, parties: &[Party]) -> Option<Vec<Proc>> {
        parties.iter().map(|party| self.resolve(*party)).collect()
    }
}

impl Kernel {
    /// Returns the identifier of a new connection.
    pub(crate) const fn new_client(&mut self) -> ClientId {
        let id = ClientId(self.next_client);
        self.next_client += 1;
        id
    }

    /// Returns the PMIx client of a process; `None` if the process has never initialized PMIx.
    pub(crate) fn program(&self, pid: Pid) -> Option<&Program> {
        let client = self.procs.get(&pid)?.client.as_ref()?;
        Some(client.tool.as_program())
    }

    /// Returns the environment of a process.
    pub(crate) fn environment(&self, pid: Pid) -> Option<&BTreeMap<String, OsString>> {
        self.procs.get(&pid).map(|proc| &proc.env)
    }

    /// Delivers bytes from the server to the process that opened a connection.
    pub(crate) fn client_bytes(&mut self, now: Time, id: ClientId, bytes: &[u8]) {
        self.of_client(now, id, |client| client.inbox.extend_from_slice(bytes));
    }

    /// Informs the process that opened a connection that the server has closed it.
    pub(crate) fn client_hung_up(&mut self, now: Time, id: ClientId) {
        self.of_client(now, id, |client| client.hung_up = true);
    }

    fn of_client(&mut self, now: Time, id: ClientId, act: impl FnOnce(&mut Client)) {
        let mut procs = self.procs.iter_mut();
        let found = procs.find_map(|(pid, proc)| {
            let client = proc.client.as_mut().filter(|client| client.id == id)?;
            proc.zombie.is_none().then_some((*pid, proc.run, client))
        });
        let Some((pid, run, client)) = found else {
            return;
        };
        act(client);
        if run == Run::Pmix {
            self.schedule(pid, now);
        }
    }

    /// Begins a PMIx operation of a script, or continues it with the messages that have arrived. After a failed request, the
    /// program exits with [`FENCE_REFUSED`] or continues, each with a probability of 50 percent.
    pub(super) fn pmix_step(&mut self, now: Time, pid: Pid, op: PmixOp, rng: &mut Rng) -> Next {
        let begun = self.procs.get(&pid).is_some_and(|proc| proc.asked);
        if !begun && !self.begin(now, pid, &op) {
            return Next::Go;
        }
        let over = self.listen(now, pid);
        let Some(proc) = self.procs.get_mut(&pid) else {
            return Next::Go;
        };
        let Some(client) = &mut proc.client else {
            return Next::Go;
        };
        let is_done = match &op {
            PmixOp::Init => client.is_ready,
            PmixOp::Finalize => client.is_over,
            PmixOp::Group(invitation, step) if step.waits() => {
                client.is_through(now, invitation, *step)
            }
            _ => client.waits.is_empty(),
        };
        proc.asked = !(is_done || over);
        if proc.asked {
            let deadline = client.tool.deadline().into_iter().chain(client.until);
            if let Some(deadline) = deadline.min() {
                self.schedule(pid, deadline.max(now));
            }
            return Next::Wait(Run::Pmix, Op::Pmix(op));
        }
        if client.until.take().is_some() && !over {
            let news = News::Waited;
            self.effects.push(Effect::Told { pid, news });
        }
        let refused = std::mem::take(&mut client.refused);
        if refused && rng.chance(50) {
            return Next::Over(ExitStatus::Exited(FENCE_REFUSED));
        }
        Next::Go
    }

    /// Opens another connection, which the server must refuse, and sends garbage over it.
    fn knock(&mut self, pid: Pid, stranger: Stranger) {
        let Some(config) = self.config_of(pid) else {
            return;
        };
        let port = config.server.address().port();
        let id = self.new_client();
        let uid = match stranger {
            Stranger::Babbler => OWNER.uid,
            Stranger::Foreigner => OWNER.uid + 1,
        };
        self.effects.push(Effect::ClientOpened { id, port, uid });
        let bytes = GARBAGE.to_vec();
        self.effects.push(Effect::ClientSent { id, bytes });
    }

    /// Reads the configuration of a PMIx client from the environment of its process. A missing configuration is a fault.
    fn config_of(&mut self, pid: Pid) -> Option<Config> {
        let env = &self.procs.get(&pid)?.env;
        let variable = |name: &str| Some(env.get(name)?.to_str()?.to_owned());
        match Config::from_environment(variable, OWNER) {
            Ok(config) => Some(config),
            Err(why) => {
                let what = format!("a process finds no PMIx in its environment: {why}");
                self.effects.push(Effect::Fault(what));
                None
            }
        }
    }

    /// Connects to the server that the environment names. Returns false if the environment names none, or if the process is
    /// already connected.
    fn init(&mut self, now: Time, pid: Pid) -> bool {
        let is_there = |client: &Client| !client.is_over;
        let proc = self.procs.get(&pid);
        if proc
            .and_then(|proc| proc.client.as_deref())
            .is_some_and(is_there)
        {
            return false;
        }
        let Some(config) = self.config_of(pid) else {
            return false;
        };
        let port = config.server.address().port();
        let id = self.new_client();
        let mut tool = Tool::new(now, config);
        tool.handle(now, Input::Opened);
        let client = Client {
            tool,
            id,
            inbox: Vec::new(),
            hung_up: false,
            is_guilty: false,
            puts: Vec::new(),
            waits: BTreeMap::new(),
            refused: false,
            is_ready: false,
            is_over: false,
            children: BTreeMap::new(),
            watches: false,
            questions: BTreeSet::new(),
            constructs: BTreeMap::new(),
            groups: BTreeSet::new(),
            heard: BTreeMap::new(),
            dead: BTreeSet::new(),
            until: None,
        };
        let Some(proc) = self.procs.get_mut(&pid) else {
            return false;
        };
        proc.client = Some(Box::new(client));
        proc.fds.client = Some(id);
        self.clients.insert(id, 1);
        let uid = OWNER.uid;
        self.effects.push(Effect::ClientOpened { id, port, uid });
        let news = News::Begun;
        self.effects.push(Effect::Told { pid, news });
        true
    }

    /// Passes received bytes, a close and an expired deadline to the PMIx client, and performs its outputs. Returns true if the
    /// client has finalized or lost its server, or was never connected.
    fn listen(&mut self, now: Time, pid: Pid) -> bool {
        let Some(proc) = self.procs.get_mut(&pid) else {
            return true;
        };
        let Some(client) = &mut proc.client else {
            return true;
        };
        let inbox = std::mem::take(&mut client.inbox);
        if !inbox.is_empty() {
            client.tool.handle(now, Input::Bytes(&inbox));
        }
        if std::mem::take(&mut client.hung_up) {
            client.tool.handle(now, Input::Closed);
        }
        if client.tool.deadline().is_some_and(|due| due <= now) {
            client.tool.handle(now, Input::Tick);
        }
        let id = client.id;
        let mut is_closed = false;
        while let Some(output) = client.tool.poll() {
            let event = match output {
                // `init` has already opened the connection.
                Output::Connect(_) => continue,
                Output::Send(bytes) => {
                    self.effects.push(Effect::ClientSent { id, bytes });
                    continue;
                }
                Output::Close => {
                    is_closed = true;
                    continue;
                }
                Output::Event(event) => event,
            };
            match client.on_event(event) {
                Ok(Some(news)) => self.effects.push(Effect::Told { pid, news }),
                Ok(None) => {}
                Err(what) => self.effects.push(Effect::Fault(what)),
            }
        }
        let is_over = client.is_over;
        if is_closed {
            proc.fds.client = None;
            if self.clients.remove(&id).is_some() {
                self.effects.push(Effect::ClientClosed { id });
            }
        }
        is_over
    }

    /// Closes one process's descriptor of a connection. The last one closes the connection.
    pub(super) fn drop_client(&mut self, id: Option<ClientId>) {
        let Some(id) = id else { return };
        let Some(holders) = self.clients.get_mut(&id) else {
            return;
        };
        *holders -= 1;
        if *holders == 0 {
            self.clients.remove(&id);
            self.effects.push(Effect::ClientClosed { id });
        }
    }
}
