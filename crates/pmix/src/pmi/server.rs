//! The state machine for the ranks of one job on one node. The table of states is in the documentation of [`crate::pmi`].

mod barrier;
mod clients;
mod stored;
#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, VecDeque};

use base::Rank;

use self::{
    barrier::Barriers,
    clients::{Client, Clients, State},
    stored::Stored,
};
use crate::pmi::{
    Answer, Ask, Bound, Dialect, Error, Group, IfAbsent, Kind, Malformed, Reach, Reply, Request,
    answer::{check_field, unknown},
    spawn::Gathered,
    wire::Message,
};

/// Key under which clients ask for the value of `MPI_UNIVERSE_SIZE`.
const UNIVERSE: &str = "universeSize";

/// Facts that the host knows before the first rank starts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Config {
    /// The ranks of this node.
    pub ranks: Vec<LocalRank>,
    /// Number of ranks in the job, on all nodes.
    pub size: u32,
    /// Number of procs that could run, reported as `MPI_UNIVERSE_SIZE`; `None` if unknown.
    pub universe: Option<u32>,
    /// The name of the job's key-value space, the same on every node. In PMI-2 it is the name of the job.
    pub kvs_name: String,
    /// The value of `PMI_process_mapping`, see [`super::process_mapping`]; `None` leaves the key out.
    pub process_mapping: Option<String>,
    /// The spawner and its data, if the job was spawned by PMI.
    pub spawned: Option<Spawned>,
}

/// Initial facts of a spawned job.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Spawned {
    /// The name of the spawner's key-value space.
    pub by: String,
    /// Entries that the spawner has put into the new key-value space.
    pub preput: Vec<(String, String)>,
}

/// One rank of this node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LocalRank {
    /// The position of the rank in the job.
    pub rank: Rank,
    /// 0-based index of the app that the rank belongs to.
    pub appnum: u32,
}

/// Number of a fence on this node, counted from 0. Every node completes the same fences in the same order.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct FenceId(pub u64);

/// Number of a question to the host.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Ticket(pub u64);

/// Input to the server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Input<'a> {
    /// Bytes that a rank has sent. The host reads no more from a rank while output for that rank is unwritten. This backpressure
    /// keeps a client that does not read from filling memory.
    Bytes { client: Rank, bytes: &'a [u8] },
    /// The rank's connection or its process has ended, whichever the host sees first. A repeated input is ignored.
    Closed { client: Rank },
    /// Answer to [`Event::Fence`]: the values that the ranks of all nodes have put since the last fence.
    FenceDone {
        id: FenceId,
        puts: Vec<(String, String)>,
    },
    /// Answer to [`Event::Group`]: the values that the members on all nodes have put.
    GroupDone {
        group: Group,
        puts: Vec<(String, String)>,
    },
    /// No fence of this job can complete any more: every waiting rank and every later one gets an error. Group barriers with all
    /// members on this node and none lost continue.
    FenceFailed,
    /// Answer to [`Event::Ask`].
    Answered { ticket: Ticket, reply: Reply },
}

/// Action for the host.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Output {
    /// Send bytes to a rank.
    Send { client: Rank, bytes: Vec<u8> },
    /// Close the connection of a rank that misbehaved. Later bytes from it are ignored.
    Close { client: Rank, why: Error },
    /// Report an event.
    Event(Event),
}

/// Event for the host.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Event {
    /// A rank has sent `init`, and in PMI-2 `fullinit`. From now on, an exit without [`Event::Finalized`] is abnormal.
    Initialized { client: Rank },
    /// All participating ranks of this node are in the barrier. `puts` holds the values they have put since the last fence.
    Fence {
        id: FenceId,
        puts: Vec<(String, String)>,
    },
    /// All members on this node are in the group's barrier, and other members are on other nodes. `puts` holds the values that
    /// ranks of this node have put since the last fence.
    Group {
        group: Group,
        puts: Vec<(String, String)>,
    },
    /// The ranks `waiting` are in a barrier that the ranks `lost` will never enter. The host ends the job or answers
    /// [`Input::FenceFailed`].
    FenceBroken { lost: Vec<Rank>, waiting: Vec<Rank> },
    /// A rank asks for something beyond this node. The host answers once, with [`Input::Answered`].
    Ask {
        ticket: Ticket,
        client: Rank,
        ask: Ask,
    },
    /// A rank asks to end the job with this exit code. The rank does not exit by itself.
    Abort {
        client: Rank,
        code: i32,
        message: String,
    },
    /// A rank has finalized PMI. It may continue to run.
    Finalized { client: Rank },
    /// A rank's connection ended between `init` and `finalize`.
    Lost { client: Rank },
}

/// Destination of an answer: a rank, and one of its threads if the request named one.
#[derive(Debug)]
struct To {
    client: Rank,
    thread: Option<String>,
}

/// Unanswered question to the host.
#[derive(Debug)]
struct Asked {
    to: To,
    kind: Kind,
}

/// PMI server for the ranks of one job on one node.
#[derive(Debug)]
pub struct Server {
    size: u32,
    universe: Option<u32>,
    kvs_name: String,
    spawner: Option<String>,
    clients: Clients,
    stored: Stored,
    barriers: Barriers,
    /// Questions to the host by ticket. Bounded by `MAX_WAITING` per client.
    asked: BTreeMap<Ticket, Asked>,
    next_ticket: u64,
    /// Bounded by `MAX_QUEUED` per client, and by a few events per input.
    outputs: VecDeque<Output>,
}

impl Server {
    /// Creates a server whose ranks have not connected yet.
    ///
    /// # Errors
    ///
    /// `Limit` or `Malformed` when `kvs_name`, `process_mapping` or an entry of the spawner cannot be sent to a client.
    pub fn new(config: Config) -> Result<Self, Error> {
        check_field(Dialect::One, &config.kvs_name, Bound::KvsName)?;
        let mut stored = Stored::default();
        if let Some(mapping) = config.process_mapping {
            check_field(Dialect::One, &mapping, Bound::Value)?;
            stored.keep("PMI_process_mapping", &mapping)?;
        }
        let spawner = match config.spawned {
            Some(Spawned { by, preput }) => {
                for (key, value) in &preput {
                    check_preput(key, value)?;
                    stored.keep(key, value)?;
                }
                Some(by)
            }
            None => None,
        };
        let clients = config
            .ranks
            .into_iter()
            .map(|LocalRank { rank, appnum }| (rank, Client::new(appnum)));
        Ok(Self {
            size: config.size,
            universe: config.universe,
            kvs_name: config.kvs_name,
            spawner,
            clients: Clients::new(clients.collect()),
            stored,
            barriers: Barriers::default(),
            asked: BTreeMap::new(),
            next_ticket: 0,
            outputs: VecDeque::new(),
        })
    }

    /// Processes one input. Drain [`Self::poll`] afterwards.
    pub fn handle(&mut self, input: Input<'_>) {
        match input {
            Input::Bytes { client, bytes } => self.bytes(client, bytes),
            Input::Closed { client } => self.closed(client),
            Input::FenceDone { id, puts } => self.fence_done(id, puts),
            Input::GroupDone { group, puts } => self.group_done(&group, puts),
            Input::FenceFailed => self.fence_failed(),
            Input::Answered { ticket, reply } => self.answered(ticket, reply),
        }
        self.advance_fence();
    }

    /// Returns the next output, `None` if there is none before the next input.
    pub fn poll(&mut self) -> Option<Output> {
        let output = self.outputs.pop_front()?;
        if let Output::Send { client, bytes } = &output
            && let Some(client) = self.clients.get_mut(*client)
        {
            client.queued = client.queued.saturating_sub(bytes.len());
        }
        Some(output)
    }

    /// Returns the ranks in the current barrier of all ranks, to explain why a job makes no progress.
    pub fn waiting(&self) -> impl Iterator<Item = Rank> {
        self.clients.waiting.iter().copied()
    }

    /// Returns the ranks that are missing in the current barrier, including lost ones.
    pub fn missing(&self) -> impl Iterator<Item = Rank> {
        self.clients.among(&State::MISSING)
    }

    fn bytes(&mut self, rank: Rank, bytes: &[u8]) {
        if let Some(client) = self.clients.get_mut(rank) {
            client.framer.push(bytes);
        }
        loop {
            let Some(client) = self.clients.get_mut(rank) else {
                return;
            };
            if matches!(client.state, State::Aborted | State::Left | State::Lost) {
                // Bytes of such a rank are dropped unread.
                client.framer = crate::pmi::wire::Framer::default();
                return;
            }
            let done = match client.framer.next() {
                Ok(Some(message)) => self.take(rank, &message),
                Ok(None) => return,
                Err(error) => Err(error),
            };
            if let Err(why) = done {
                self.close(rank, why);
                return;
            }
        }
    }

    /// Processes a command. An error in the command alone is answered; a command that is not allowed now ends the connection.
    fn take(&mut self, rank: Rank, message: &Message) -> Result<(), Error> {
        let Some(client) = self.clients.get_mut(rank) else {
            return Ok(());
        };
        let thread = message.field("thrid").map(str::to_owned);
        if let Some(thread) = &thread {
            Bound::Thread.check(thread.len())?;
        }
        let to = To {
            client: rank,
            thread,
        };
        let Some(kind) = Kind::asked_by(message) else {
            // Before `init` no dialect is agreed, so an unknown command cannot be answered.
            return if matches!(client.state, State::Initialized | State::InBarrier) {
                self.send(rank, &unknown(message))
            } else {
                Err(Error::PeerMisbehaved {
                    expected: client.state.expected(),
                    got: crate::pmi::error::shorten(message.name()),
                })
            };
        };
        let open = client.spawn.is_open();
        let request = Request::decode(message);
        if kind == Kind::Spawn && matches!(client.state, State::Initialized | State::InBarrier) {
            let part = request.and_then(|request| match request {
                Request::Spawn(part) => Ok(part),
                _ => Err(Error::Malformed(Malformed::NoCommand)),
            });
            return match client.spawn.add(message, part) {
                Gathered::More => Ok(()),
                Gathered::Whole(spawn) => match check_spawn(&spawn) {
                    Ok(()) => self.ask(to, kind, Ask::Spawn(spawn)),
                    Err(error) => self.refuse(to, kind, &error),
                },
                Gathered::Wrong(error) => self.refuse(to, kind, &error),
            };
        }
        if open {
            return Err(Error::PeerMisbehaved {
                expected: "the other parts of the spawn",
                got: kind.request(client.dialect).to_owned(),
            });
        }
        match request {
            Ok(request) => self.transition(to, request),
            // After a malformed `init` there is no agreed dialect to continue in.
            Err(error) if kind == Kind::Init => Err(error),
            Err(error) => self.refuse(to, kind, &error),
        }
    }

    /// Applies a request to the state of its rank. All transitions caused by requests are here.
    fn transition(&mut self, to: To, request: Request) -> Result<(), Error> {
        let rank = to.client;
        let Some(client) = self.clients.get_mut(rank) else {
            return Ok(());
        };
        let dialect = client.dialect;
        match (client.state, request) {
            (State::Connected, Request::Init { version, .. }) => self.agree_on(to, version),
            // MPICH sends `init` again for every session that it opens after the last one was closed. The agreed version stays.
            (State::Initialized | State::InBarrier, Request::Init { version: again, .. })
                if dialect == Dialect::One && again == dialect.version().0 =>
            {
                let (version, subversion) = dialect.version();
                let answer = Answer::Init {
                    version,
                    subversion,
                };
                self.answer(to, &answer)
            }
            (State::Greeted, Request::FullInit) => {
                let answer = Answer::FullInit {
                    rank,
                    size: self.size,
                    appnum: client.appnum,
                    spawner: self.spawner.clone(),
                };
                self.initialized(rank);
                self.answer(to, &answer)
            }
            (
                State::Connected | State::Greeted | State::Initialized | State::InBarrier,
                Request::Abort {
                    code,
                    message,
                    reach: Reach::Job,
                },
            ) => {
                self.clients.enter(rank, State::Aborted);
                self.gone(rank);
                self.outputs.push_back(Output::Event(Event::Abort {
                    client: rank,
                    code,
                    message,
                }));
                Ok(())
            }
            (
                State::Connected | State::Greeted | State::Initialized | State::InBarrier,
                Request::Abort {
                    reach: Reach::Caller,
                    ..
                },
            ) => {
                self.closed(rank);
                Ok(())
            }
            (State::Initialized, Request::Barrier { group: None }) => {
                client.in_barrier = to.thread;
                self.clients.enter(rank, State::InBarrier);
                self.arrived();
                Ok(())
            }
            (State::Initialized | State::InBarrier, Request::Barrier { group: Some(group) }) => {
                self.enter_group(to, group)
            }
            (State::Initialized, Request::Finalize) => {
                self.clients.enter(rank, State::Finalized);
                self.gone(rank);
                self.outputs
                    .push_back(Output::Event(Event::Finalized { client: rank }));
                self.answer(to, &Answer::Finalize)
            }
            (State::Initialized | State::InBarrier, request)
                if !matches!(
                    request,
                    Request::Init { .. }
                        | Request::FullInit
                        | Request::Barrier { .. }
                        | Request::Finalize
                ) =>
            {
                self.question(to, dialect, request)
            }
            (
                state @ (State::Connected
                | State::Greeted
                | State::Initialized
                | State::InBarrier
                | State::Finalized
                | State::Aborted
                | State::Left
                | State::Lost),
                request,
            ) => Err(Error::PeerMisbehaved {
                expected: state.expected(),
                got: request.kind().request(dialect).to_owned(),
            }),
        }
    }

    /// Chooses the dialect from the first request of a connection.
    fn agree_on(&mut self, to: To, version: u32) -> Result<(), Error> {
        let rank = to.client;
        let spoken = Dialect::ALL
            .into_iter()
            .find(|dialect| dialect.version().0 == version);
        let Some(dialect) = spoken else {
            // The refusal contains the version of this side, so that the client can report it.
            self.answer(to, &Answer::refused(Kind::Init, "version"))?;
            return Err(Error::PeerIncompatible {
                ours: Dialect::One.version().0,
                theirs: version,
            });
        };
        let Some(client) = self.clients.get_mut(rank) else {
            return Ok(());
        };
        client.dialect = dialect;
        let (version, subversion) = dialect.version();
        if dialect == Dialect::Two {
            client.framer.count();
            self.clients.enter(rank, State::Greeted);
        } else {
            self.initialized(rank);
        }
        let answer = Answer::Init {
            version,
            subversion,
        };
        self.answer(to, &answer)
    }

    fn initialized(&mut self, rank: Rank) {
        self.clients.enter(rank, State::Initialized);
        self.outputs
            .push_back(Output::Event(Event::Initialized { client: rank }));
    }

    /// Answers the requests that change no state.
    fn question(&mut self, to: To, dialect: Dialect, request: Request) -> Result<(), Error> {
        let kind = request.kind();
        let answer = match request {
            Request::GetMaxes => Answer::MAXES,
            Request::GetAppnum => {
                let client = self.clients.get_mut(to.client);
                Answer::Appnum(client.map_or(0, |client| client.appnum))
            }
            Request::GetKvsName => Answer::KvsName(self.kvs_name.clone()),
            Request::GetUniverseSize => Answer::UniverseSize(self.universe),
            Request::Put { kvs: Some(kvs), .. } | Request::Get { kvs: Some(kvs), .. }
                if kvs != self.kvs_name =>
            {
                Answer::refused(kind, "kvs_not_found")
            }
            Request::Put { key, value, .. } => match self.stored.put(dialect, key, value) {
                Ok(()) => Answer::Put,
                Err(refusal) => Answer::refused(kind, refusal.word()),
            },
            Request::Get { key, .. } => Answer::Get {
                value: self.job_attribute(&key).or_else(|| self.stored.get(&key)),
            },
            // The usual launcher for this dialect is Slurm, which answers the number of ranks.
            Request::JobAttribute { key } if key == UNIVERSE => Answer::JobAttribute {
                value: Some(self.universe.unwrap_or(self.size).to_string()),
            },
            Request::JobAttribute { key } => Answer::JobAttribute {
                value: self.job_attribute(&key),
            },
            Request::PutNodeAttribute { key, value } => {
                match self.stored.put_node(dialect, key, value.clone()) {
                    Ok(waiting) => {
                        self.answer(to, &Answer::PutNodeAttribute)?;
                        for to in waiting {
                            let value = Some(value.clone());
                            self.answer_late(to, &Answer::NodeAttribute { value });
                        }
                        return Ok(());
                    }
                    Err(refusal) => Answer::refused(kind, refusal.word()),
                }
            }
            Request::NodeAttribute { key, absent } => {
                let value = self.stored.node_attribute(&key);
                if value.is_none() && absent == IfAbsent::Wait {
                    return match self.begin_wait(to.client) {
                        Ok(()) => {
                            self.stored.want(key, to);
                            Ok(())
                        }
                        Err(error) => self.refuse(to, kind, &error),
                    };
                }
                Answer::NodeAttribute { value }
            }
            Request::Publish { service, port } => {
                let bounds = Bound::Service
                    .check(service.len())
                    .and_then(|()| Bound::Value.check(port.len()));
                return match bounds {
                    Ok(()) => self.ask(to, kind, Ask::Publish { service, port }),
                    Err(error) => self.refuse(to, kind, &error),
                };
            }
            Request::Unpublish { service } => {
                return self.ask(to, kind, Ask::Unpublish { service });
            }
            Request::Lookup { service } => return self.ask(to, kind, Ask::Lookup { service }),
            // The two servers that clients of PMI-2 know do not support these either.
            Request::Connect { .. } | Request::Disconnect { .. } => {
                Answer::refused(kind, "not_supported")
            }
            Request::Init { .. }
            | Request::FullInit
            | Request::Barrier { .. }
            | Request::Finalize
            | Request::Spawn(_)
            | Request::Abort { .. } => Answer::refused(kind, "not_a_question"),
        };
        self.answer(to, &answer)
    }

    /// Returns an attribute that every job has.
    fn job_attribute(&self, key: &str) -> Option<String> {
        match key {
            UNIVERSE => self.universe.map(|size| size.to_string()),
            key if key.starts_with("PMI_") => self.stored.get(key),
            _ => None,
        }
    }

    /// Sends a question to the host.
    fn ask(&mut self, to: To, kind: Kind, ask: Ask) -> Result<(), Error> {
        if let Err(error) = self.begin_wait(to.client) {
            return self.refuse(to, kind, &error);
        }
        let ticket = Ticket(self.next_ticket);
        self.next_ticket += 1;
        self.outputs.push_back(Output::Event(Event::Ask {
            ticket,
            client: to.client,
            ask,
        }));
        self.asked.insert(ticket, Asked { to, kind });
        Ok(())
    }

    /// Counts one more unanswered request of a client. `Limit` if it has too many.
    fn begin_wait(&mut self, rank: Rank) -> Result<(), Error> {
        if let Some(client) = self.clients.get_mut(rank) {
            Bound::Waiting.check(client.waiting + 1)?;
            client.waiting += 1;
        }
        Ok(())
    }

    /// Answers a request that has waited.
    fn answer_late(&mut self, to: To, answer: &Answer) {
        let rank = to.client;
        if let Some(client) = self.clients.get_mut(rank) {
            client.waiting = client.waiting.saturating_sub(1);
        }
        if let Err(why) = self.answer(to, answer) {
            self.close(rank, why);
        }
    }

    fn answered(&mut self, ticket: Ticket, reply: Reply) {
        if let Some(Asked { to, kind }) = self.asked.remove(&ticket) {
            self.answer_late(to, &reply.answer(kind));
        }
    }

    /// Drops all unanswered requests of a rank that is no longer served.
    fn gone(&mut self, rank: Rank) {
        self.stored.forget(rank);
        self.asked.retain(|_, asked| asked.to.client != rank);
        self.gone_from_groups(rank);
    }

    fn closed(&mut self, rank: Rank) {
        let Some(client) = self.clients.get_mut(rank) else {
            return;
        };
        client.framer = crate::pmi::wire::Framer::default();
        let state = match client.state {
            State::Finalized | State::Left => State::Left,
            State::Connected | State::Greeted | State::Aborted | State::Lost => State::Lost,
            State::Initialized | State::InBarrier => {
                self.outputs
                    .push_back(Output::Event(Event::Lost { client: rank }));
                State::Lost
            }
        };
        self.clients.enter(rank, state);
        self.gone(rank);
    }

    /// Ends a connection because of what the client sent.
    fn close(&mut self, rank: Rank, why: Error) {
        self.closed(rank);
        self.outputs.push_back(Output::Close { client: rank, why });
    }

    /// Answers a request with a refusal that gives the error in one word. An abort has no answer.
    fn refuse(&mut self, to: To, kind: Kind, error: &Error) -> Result<(), Error> {
        if kind == Kind::Abort {
            return Ok(());
        }
        self.answer(to, &Answer::refused(kind, error.word()))
    }

    fn answer(&mut self, to: To, answer: &Answer) -> Result<(), Error> {
        let Some(client) = self.clients.get_mut(to.client) else {
            return Ok(());
        };
        let dialect = client.dialect;
        let thread = to.thread.as_deref();
        match self.send(to.client, &answer.message(dialect, thread)) {
            // A value put in PMI-2 may not be representable in PMI-1.
            Err(Error::Malformed(Malformed::NotRepresentable)) => {
                let refusal = Answer::refused(answer.kind(), "value_not_representable");
                self.send(to.client, &refusal.message(dialect, thread))
            }
            sent => sent,
        }
    }

    fn send(&mut self, rank: Rank, message: &Message) -> Result<(), Error> {
        let Some(client) = self.clients.get_mut(rank) else {
            return Ok(());
        };
        let bytes = message.encode()?;
        Bound::Queued.check(client.queued + bytes.len())?;
        client.queued += bytes.len();
        self.outputs.push_back(Output::Send {
            client: rank,
            bytes,
        });
        Ok(())
    }
}

/// Checks that the ranks of a job can get an entry of its spawner in PMI-1, which they may speak.
fn check_preput(key: &str, value: &str) -> Result<(), Error> {
    check_field(Dialect::One, key, Bound::Key)
        .and_then(|()| check_field(Dialect::One, value, Bound::Value))
}

fn check_spawn(spawn: &crate::pmi::Spawn) -> Result<(), Error> {
    let mut preput = spawn.preput.iter();
    preput.try_for_each(|(key, value)| check_preput(key, value))
}
