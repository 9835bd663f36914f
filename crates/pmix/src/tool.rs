//! The side of a tool: it finds a server, connects, spawns jobs, and monitors and controls them.
//!
//! [`plan`] and [`choose`] determine how the server is found, [`Rendezvous`] reads and writes the files for it, and [`Tool`] is
//! the connection. A tool can do everything that a program can, so that it contains a [`Program`]: [`Tool::program`]. It adds
//! what tools must handle beyond the messages:
//!
//! - Servers send the end of every job to every tool, including jobs that ended long ago, and sometimes twice.
//!   [`Event::JobEnded`] comes once for each job that this tool has spawned, even if the end overtakes the answer to the spawn.
//!   [`Tool::follow`] adds the stages before the end, and jobs that others have spawned.
//! - Output carries a number that the tool has chosen, or 0 if a spawn requested it. To stop it, the tool must send the number
//!   that the server has assigned. [`PullId`] hides both.
//! - A tool can start a launcher, which then connects to the tool: docs/formats/indirect-launch.md. [`Tool::accept`] takes that
//!   connection, and from there on the launcher is the tool's server. [`launcher_variables`] is the launcher's environment.

mod jobs;
mod launch;
mod rendezvous;
mod search;

use std::{
    collections::{BTreeMap, VecDeque},
    ffi::CStr,
};

use base::Time;
use bytes::Bytes;

use self::jobs::{Jobs, News, STAGES};
pub use self::{
    jobs::{Follow, JobEnd, MAX_FOLLOWED, Stage},
    launch::{launcher_name, launcher_variables, tool_name},
    rendezvous::{MAX_RENDEZVOUS, Rendezvous, RendezvousError},
    search::{
        After, Found, Life, NotChosen, Pattern, Place, Retry, Several, Step, WellKnown, Wish,
        candidates, choose, plan,
    },
};
use crate::{
    client::{
        Config, Done, HandlerId, Input, Notice, Output, Program, ProgramEvent, Terms, Ticket, infos,
    },
    keys,
    message::Request,
    value::{
        App, Elements, Info, IofChannels, Nspace, Proc, ProcInfo, Query, Range, Status, Value,
    },
};

/// Maximum number of events of jobs kept while it is unknown whether this tool has spawned the jobs. Further ones are dropped.
pub const MAX_EARLY_ENDS: usize = 65_536;

/// Directive that makes a server report the end of a spawned job.
const NOTIFY_COMPLETION: &CStr = c"pmix.notecomp";

/// Handle of a request for output.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct PullId(u64);

impl PullId {
    /// Returns the number that the output carries: [`crate::client::Stdio::id`].
    #[must_use]
    pub const fn number(self) -> u64 {
        self.0
    }
}

/// Extent of a process table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Extent {
    Job,
    /// Processes on the node of the server.
    Node,
}

/// Control operation on processes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Control {
    /// Kills the processes immediately.
    Kill,
    /// Asks the processes to terminate.
    Terminate,
    Pause,
    Resume,
    /// Sends a signal, by its number.
    Signal(i32),
}

/// Stream of the server on which it shows a text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LogTo {
    Stdout,
    Stderr,
}

/// Event of a tool.
#[derive(Clone, Debug, PartialEq)]
pub enum Event {
    /// Event of any program.
    Program(ProgramEvent),
    /// The processes of a job, in answer to [`Tool::proc_table`].
    Table {
        ticket: Ticket,
        result: Result<Vec<ProcInfo>, Status>,
    },
    /// A job that this tool follows has come this far. Stages come only after [`Tool::follow`], each once for a job.
    JobStage { nspace: Nspace, stage: Stage },
    /// A job that this tool has spawned, or follows, has ended. More of its output may come after this.
    JobEnded { nspace: Nspace, end: JobEnd },
    /// The server refused to report the ends of jobs.
    EndsUnknown { status: Status },
}

/// PMIx connection of a tool. Its phases are those of a [`Program`].
///
/// ```
/// use base::Time;
/// use pmix::{
///     client::{Config, Connector, Input, Output, ProgramEvent},
///     handshake::Owner,
///     tool::{Event, Rendezvous, Tool},
///     value::App,
/// };
/// let now = Time::ZERO;
/// let file = Rendezvous::parse(b"daemon-n1.0;tcp4://127.0.0.1:4711\n5.0.11\n")?;
/// let owner = Owner { uid: 1000, gid: 1000 };
/// let config = Config {
///     server_version: file.version_numbers(),
///     ..Config::new(file.uri, Connector::Tool, owner).describe(4242, "watch --all")
/// };
/// let mut tool = Tool::new(now, config);
/// tool.handle(now, Input::Opened);
/// # let mut welcome = vec![0; 4];
/// # for name in ["daemon-n1-tool1", "daemon-n1"] {
/// #     let mut field = name.as_bytes().to_vec();
/// #     field.resize(256, 0);
/// #     welcome.extend(field);
/// #     welcome.extend([0; 4]);
/// # }
/// # welcome.extend([0; 4]);
/// # welcome.extend([0, 0, 0, 0, 0, 0, 0, 101, 0, 0, 0, 18, 0, 0, 0, 0, 2, 32]);
/// # welcome.extend(b"daemon-n1-tool1\0");
/// tool.handle(now, Input::Bytes(&welcome)); // the server's welcome, and what it knows of the tool
/// while let Some(output) = tool.poll() {
///     if let Output::Event(Event::Program(ProgramEvent::Ready { me, .. })) = output {
///         assert_eq!(me.to_string(), "daemon-n1-tool1:0");
///         let app = App { command: Some(c"hostname".into()), maxprocs: 2, ..App::default() };
///         tool.spawn(Vec::new(), vec![app]);
///     }
/// }
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug)]
pub struct Tool {
    program: Program,
    purposes: BTreeMap<Ticket, Purpose>,
    jobs: Jobs,
    pulls: BTreeMap<PullId, Pull>,
    last_pull: PullId,
    outputs: VecDeque<Output<Event>>,
}

#[derive(Clone, Copy, Debug)]
enum Purpose {
    /// Registration for the ends of jobs, which nobody has asked for.
    Ends,
    /// Registration for the stages of jobs.
    Stages,
    Spawn,
    Table,
    Pull(PullId),
    CloseStdin,
}

/// State of a request for output.
#[derive(Debug)]
enum Pull {
    Asked,
    /// The server has assigned this number.
    Running(u64),
}

impl Tool {
    /// Creates a tool that is not connected yet.
    #[must_use]
    pub fn new(now: Time, config: Config) -> Self {
        Self::over(Program::new(now, config))
    }

    /// Takes the connection of a launcher that this tool has started. It is ready when the launcher has its directives, and waits for
    /// its release, which is that of [`ProgramEvent::Ready`]'s server. What the tool wants to hear of, it should ask for before.
    #[must_use]
    pub fn accept(now: Time, terms: Terms) -> Self {
        Self::over(Program::accept(now, terms))
    }

    fn over(program: Program) -> Self {
        Self {
            program,
            purposes: BTreeMap::new(),
            jobs: Jobs::default(),
            pulls: BTreeMap::new(),
            last_pull: PullId(0),
            outputs: VecDeque::new(),
        }
    }

    /// Returns the operations that every program has. Their events come from [`Self::poll`] as [`Event::Program`].
    pub const fn program(&mut self) -> &mut Program {
        &mut self.program
    }

    /// Returns what every program knows of itself and of its job.
    #[must_use]
    pub const fn as_program(&self) -> &Program {
        &self.program
    }

    /// Processes one input and queues the outputs it causes.
    pub fn handle(&mut self, now: Time, input: Input<'_>) {
        self.program.handle(now, input);
        self.pump();
    }

    /// Returns the next output, `None` if there is none before the next input.
    pub fn poll(&mut self) -> Option<Output<Event>> {
        self.pump();
        self.outputs.pop_front()
    }

    /// Returns the time at which to call [`Self::handle`] with [`Input::Tick`]; `None` if nothing is timed.
    #[must_use]
    pub fn deadline(&self) -> Option<Time> {
        self.program.deadline()
    }

    /// Spawns a job. Unless the infos say otherwise, this tool gets its output, with the number 0.
    pub fn spawn(&mut self, mut infos: Vec<Info>, apps: Vec<App>) -> Ticket {
        self.register_ends();
        if !infos.iter().any(|info| info.key == *NOTIFY_COMPLETION) {
            infos.extend(self::infos([(NOTIFY_COMPLETION, Value::Bool(true))]));
        }
        let ticket = self.program.spawn(infos, apps);
        self.purposes.insert(ticket, Purpose::Spawn);
        self.jobs.spawning(ticket);
        ticket
    }

    /// Reports the stages and the ends of these jobs from now on, and those before that the server has kept. When the ticket is
    /// done, no later event will be missed.
    pub fn follow(&mut self, follow: Follow) -> Ticket {
        self.jobs.follow(follow);
        self.register_ends();
        if self.jobs.stages.is_some() {
            return self.program.completed_ticket(Ok(Done::Nothing));
        }
        let (handler, ticket) = self.program.register(STAGES.to_vec(), Vec::new());
        self.jobs.stages = Some(handler);
        self.purposes.insert(ticket, Purpose::Stages);
        ticket
    }

    fn register_ends(&mut self) {
        if self.jobs.ends.is_none() {
            let codes = vec![Status::EVENT_JOB_END];
            let (handler, ticket) = self.program.register(codes, Vec::new());
            self.jobs.ends = Some(handler);
            self.purposes.insert(ticket, Purpose::Ends);
        }
    }

    /// Requests the processes of a job. The answer is an [`Event::Table`].
    pub fn proc_table(&mut self, nspace: &Nspace, extent: Extent) -> Ticket {
        let key = match extent {
            Extent::Job => keys::QUERY_PROC_TABLE,
            Extent::Node => keys::QUERY_LOCAL_PROC_TABLE,
        };
        let name = Value::String(Some(nspace.as_c_str().to_owned()));
        let ticket = self.query(vec![Query {
            keys: vec![Some(key.to_owned())],
            qualifiers: infos([(keys::NSPACE, name)]),
        }]);
        self.purposes.insert(ticket, Purpose::Table);
        ticket
    }

    /// Sends queries to the server.
    pub fn query(&mut self, queries: Vec<Query>) -> Ticket {
        self.program.request(&Request::Query { queries })
    }

    /// Requests the future output of these processes. Output may arrive before the ticket is done.
    pub fn pull(
        &mut self,
        procs: Vec<Proc>,
        channels: IofChannels,
        infos: Vec<Info>,
    ) -> (PullId, Ticket) {
        self.last_pull.0 += 1;
        let pull = self.last_pull;
        let ticket = self.program.request(&Request::IofPull {
            procs,
            infos,
            channels,
            id: pull.0,
        });
        self.pulls.insert(pull, Pull::Asked);
        self.purposes.insert(ticket, Purpose::Pull(pull));
        (pull, ticket)
    }

    /// Stops a request for output. Before the ticket of the pull is done, the result is `NOT_FOUND`.
    pub fn stop_pull(&mut self, pull: PullId) -> Ticket {
        match self.pulls.get(&pull) {
            Some(Pull::Running(id)) => {
                let infos = Vec::new();
                let id = *id;
                self.pulls.remove(&pull);
                self.program.request(&Request::IofDeregister { infos, id })
            }
            Some(Pull::Asked) | None => self.program.completed_ticket(Err(Status::NOT_FOUND)),
        }
    }

    /// Sends input to these processes. Empty `bytes` succeed immediately and are not sent, because they would mean the end of
    /// input. The status `IOF_COMPLETE` means that none of the processes reads any more.
    pub fn push_stdin(&mut self, procs: Vec<Proc>, bytes: Bytes) -> Ticket {
        if bytes.is_empty() {
            return self.program.completed_ticket(Ok(Done::Nothing));
        }
        self.program.request(&Request::IofPush {
            procs,
            infos: Vec::new(),
            bytes: Some(bytes),
        })
    }

    /// Ends the input of these processes.
    pub fn close_stdin(&mut self, procs: Vec<Proc>) -> Ticket {
        let ticket = self.program.request(&Request::IofPush {
            procs,
            infos: infos([(keys::IOF_COMPLETE, Value::Bool(true))]),
            bytes: Some(Bytes::new()),
        });
        self.purposes.insert(ticket, Purpose::CloseStdin);
        ticket
    }

    /// Applies a control operation to these processes.
    pub fn control(&mut self, targets: Vec<Proc>, control: Control) -> Ticket {
        let flag = Value::Bool(true);
        let directive = match control {
            Control::Kill => (keys::JOB_CTRL_KILL, flag),
            Control::Terminate => (keys::JOB_CTRL_TERMINATE, flag),
            Control::Pause => (keys::JOB_CTRL_PAUSE, flag),
            Control::Resume => (keys::JOB_CTRL_RESUME, flag),
            Control::Signal(number) => (keys::JOB_CTRL_SIGNAL, Value::Int(number)),
        };
        let infos = infos([directive]);
        self.program
            .request(&Request::JobControl { targets, infos })
    }

    /// Lets the server show a text to its user.
    pub fn log(&mut self, to: LogTo, text: &str) -> Ticket {
        let key = match to {
            LogTo::Stdout => keys::LOG_STDOUT,
            LogTo::Stderr => keys::LOG_STDERR,
        };
        self.program.request(&Request::Log {
            time: 0,
            data: infos([(key, Value::text(text))]),
            directives: Vec::new(),
        })
    }

    /// Releases processes that are held for a debugger; also a launcher that waits for this tool.
    pub fn release(&mut self, procs: Vec<Proc>) -> Ticket {
        let infos = infos([
            (keys::EVENT_CUSTOM_RANGE, Value::procs(procs)),
            (keys::EVENT_NON_DEFAULT, Value::Bool(true)),
        ]);
        self.program
            .notify(Status::DEBUGGER_RELEASE, Range::CUSTOM, infos)
    }

    fn pump(&mut self) {
        while let Some(output) = self.program.poll() {
            match output {
                Output::Connect(address) => self.outputs.push_back(Output::Connect(address)),
                Output::Send(bytes) => self.outputs.push_back(Output::Send(bytes)),
                Output::Close => self.outputs.push_back(Output::Close),
                Output::Event(ProgramEvent::Done { ticket, result }) => self.done(ticket, result),
                Output::Event(ProgramEvent::Notice { handlers, notice }) => {
                    self.notice(handlers, notice);
                }
                Output::Event(event) => self.event(Event::Program(event)),
            }
        }
    }

    fn done(&mut self, ticket: Ticket, mut result: Result<Done, Status>) {
        match self.purposes.remove(&ticket) {
            None => {}
            Some(Purpose::Ends) => {
                if let Err(status) = result {
                    self.jobs.ends = None;
                    self.event(Event::EndsUnknown { status });
                }
                return;
            }
            Some(Purpose::Stages) if result.is_err() => self.jobs.stages = None,
            Some(Purpose::Stages) => {}
            Some(Purpose::Table) => {
                let result = result.and_then(|done| table(&done));
                return self.event(Event::Table { ticket, result });
            }
            Some(Purpose::Pull(pull)) => match &result {
                Ok(Done::Number(number)) => {
                    self.pulls.insert(pull, Pull::Running(*number));
                    result = Ok(Done::Nothing);
                }
                _ => {
                    self.pulls.remove(&pull);
                }
            },
            // OpenPMIx confirms the end of input with this status.
            Some(Purpose::CloseStdin) if result == Err(Status::IOF_COMPLETE) => {
                result = Ok(Done::Nothing);
            }
            Some(Purpose::CloseStdin) => {}
            Some(Purpose::Spawn) => return self.spawned(ticket, result),
        }
        self.event(Event::Program(ProgramEvent::Done { ticket, result }));
    }

    fn spawned(&mut self, ticket: Ticket, result: Result<Done, Status>) {
        let nspace = match &result {
            Ok(Done::Spawned(nspace)) => Some(nspace.clone()),
            _ => None,
        };
        self.event(Event::Program(ProgramEvent::Done { ticket, result }));
        let news = self.jobs.spawned(ticket, nspace.as_ref());
        if let Some(nspace) = nspace {
            for one in news {
                self.report(nspace.clone(), one);
            }
        }
    }

    fn notice(&mut self, mut handlers: Vec<HandlerId>, notice: Notice) {
        let before = handlers.len();
        handlers.retain(|handler| !self.jobs.owns(*handler));
        if handlers.len() < before {
            for (nspace, one) in self.jobs.notice(&notice) {
                self.report(nspace, one);
            }
        }
        if !handlers.is_empty() {
            self.event(Event::Program(ProgramEvent::Notice { handlers, notice }));
        }
    }

    fn report(&mut self, nspace: Nspace, news: News) {
        self.event(match news {
            News::Stage(stage) => Event::JobStage { nspace, stage },
            News::Ended(end) => Event::JobEnded { nspace, end },
        });
    }

    fn event(&mut self, event: Event) {
        self.outputs.push_back(Output::Event(event));
    }
}

/// Returns the rows of the process table in the answer to a query.
fn table(done: &Done) -> Result<Vec<ProcInfo>, Status> {
    let Done::Infos { infos, .. } = done else {
        return Err(Status::NOT_FOUND);
    };
    let array = infos.iter().find_map(|info| match &info.value {
        Value::Array(array) => Some(array),
        _ => None,
    });
    let Some(Elements::Values(values)) = array.map(|array| &array.elements) else {
        return Err(Status::NOT_FOUND);
    };
    let rows = values.iter().map(|value| match value {
        Value::ProcInfo(row) => Ok((**row).clone()),
        _ => Err(Status::UNPACK_FAILURE),
    });
    rows.collect()
}
