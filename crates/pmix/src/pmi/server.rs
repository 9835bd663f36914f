//! The state machine of one node's ranks of one job. The table of states is in the documentation of the module above.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use base::Rank;

use crate::pmi::{
    Answer, Bound, Error, Kind, Request, VERSION,
    command::check_field,
    wire::{Framer, Message},
};

/// What the host knows before the first rank starts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Config {
    /// The ranks of this node.
    pub ranks: Vec<LocalRank>,
    /// How many procs could run: what `MPI_UNIVERSE_SIZE` says.
    pub universe: u32,
    /// The name of the job's key-value space, the same on every node.
    pub kvs_name: String,
    /// The value of `PMI_process_mapping`, see [`super::process_mapping`].
    pub process_mapping: Option<String>,
}

/// One rank of this node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LocalRank {
    /// Its position in the job.
    pub rank: Rank,
    /// Which app of the job it belongs to, 0-based.
    pub appnum: u32,
}

/// The number of a fence on this node, counted from 0. Every node completes the same fences in the same order.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct FenceId(pub u64);

/// What happens to the server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Input<'a> {
    /// Bytes that a rank has sent. The host gives no more of a rank while bytes for that rank wait to be written:
    /// that is how a client that does not read is kept from filling memory.
    Bytes { client: Rank, bytes: &'a [u8] },
    /// A rank's connection ended or its process did, whichever the host sees first. The second one is ignored.
    Closed { client: Rank },
    /// The answer to [`Event::Fence`]: what the ranks of all nodes have put since the last fence.
    FenceDone {
        id: FenceId,
        puts: Vec<(String, String)>,
    },
    /// No fence of this job can complete any more: every waiting rank and every later one gets an error.
    FenceFailed,
}

/// What the server wants done.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Output {
    /// Bytes for a rank.
    Send { client: Rank, bytes: Vec<u8> },
    /// End a rank's connection, because of what it did. What comes from it afterwards is ignored.
    Close { client: Rank, why: Error },
    /// News for the host.
    Event(Event),
}

/// What the host must know.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Event {
    /// A rank has said `init`: from now on its end without [`Event::Finalized`] is abnormal.
    Initialized { client: Rank },
    /// All ranks of this node that can come are in the barrier. `puts` is what they have put since the last one.
    Fence {
        id: FenceId,
        puts: Vec<(String, String)>,
    },
    /// `waiting` are in the barrier, and `lost` will never come. The host ends the job or answers
    /// [`Input::FenceFailed`].
    FenceBroken { lost: Vec<Rank>, waiting: Vec<Rank> },
    /// A rank wants the job ended with this exit code. It does not end by itself.
    Abort {
        client: Rank,
        code: i32,
        message: String,
    },
    /// A rank is done with PMI. It may run on.
    Finalized { client: Rank },
    /// A rank's connection ended between `init` and `finalize`.
    Lost { client: Rank },
}

/// Where a rank is. See the table in the module above.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Connected,
    Initialized,
    InBarrier,
    Finalized,
    Aborted,
    Left,
    Lost,
}

impl State {
    const COUNT: usize = 7;

    /// A rank in such a state has yet to come to the barrier, or never will.
    const MISSING: [Self; 4] = [
        Self::Connected,
        Self::Initialized,
        Self::Aborted,
        Self::Lost,
    ];

    /// What would have been right instead.
    const fn expected(self) -> &'static str {
        match self {
            Self::Connected => "init first",
            Self::Initialized => "init only once",
            Self::InBarrier => "nothing before barrier_out",
            Self::Finalized => "nothing after finalize",
            Self::Aborted | Self::Left | Self::Lost => "nothing after the end",
        }
    }
}

#[derive(Debug)]
struct Client {
    appnum: u32,
    state: State,
    framer: Framer,
    /// Bytes of answers in the output queue.
    queued: usize,
}

/// The clients, and how many are in which state. Every input asks whether the barrier is complete: to go through all of
/// them each time would cost the square of their number.
#[derive(Debug)]
struct Clients {
    of: BTreeMap<Rank, Client>,
    /// By state.
    counts: [usize; State::COUNT],
    /// Those in [`State::InBarrier`].
    waiting: BTreeSet<Rank>,
}

impl Clients {
    /// All of them are in the first state.
    fn new(of: BTreeMap<Rank, Client>) -> Self {
        let mut counts = [0; State::COUNT];
        counts[State::Connected as usize] = of.len();
        Self {
            of,
            counts,
            waiting: BTreeSet::new(),
        }
    }

    fn get_mut(&mut self, rank: Rank) -> Option<&mut Client> {
        self.of.get_mut(&rank)
    }

    /// The one way into a state.
    fn enter(&mut self, rank: Rank, state: State) {
        let Some(client) = self.of.get_mut(&rank) else {
            return;
        };
        let old = std::mem::replace(&mut client.state, state);
        self.counts[old as usize] -= 1;
        self.counts[state as usize] += 1;
        if old == State::InBarrier {
            self.waiting.remove(&rank);
        }
        if state == State::InBarrier {
            self.waiting.insert(rank);
        }
    }

    fn count(&self, states: &[State]) -> usize {
        states
            .iter()
            .map(|state| self.counts[*state as usize])
            .sum()
    }

    /// Goes through all clients: not for every input.
    fn among(&self, states: &'static [State]) -> impl Iterator<Item = Rank> {
        self.of
            .iter()
            .filter(|(_, client)| states.contains(&client.state))
            .map(|(rank, _)| *rank)
    }
}

/// How the current fence stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fence {
    /// Some local ranks have yet to come. The number is that of the lost ranks the host has been told about.
    Gathering { told_lost: usize },
    /// All local ranks are in, and the host has been told.
    WithHost,
    /// The host has given up.
    Failed,
}

/// PMI-1 for one node's ranks of one job.
#[derive(Debug)]
pub struct Server {
    universe: u32,
    kvs_name: String,
    clients: Clients,
    kvs: BTreeMap<String, String>,
    /// What local ranks have put since the last fence. A map, so that a rank that puts the same key without end stays
    /// within the bound of `kvs`, of which this repeats a part.
    puts: BTreeMap<String, String>,
    names: BTreeMap<String, String>,
    fence: Fence,
    next_fence: FenceId,
    /// Bounded by `MAX_QUEUED` for every client, and by a few events for every input.
    outputs: VecDeque<Output>,
}

impl Server {
    /// A server whose ranks have not connected yet.
    ///
    /// # Errors
    ///
    /// `Limit` or `Malformed` when `kvs_name` or `process_mapping` cannot be sent to a client.
    pub fn new(config: Config) -> Result<Self, Error> {
        check_field(&config.kvs_name, Bound::KvsName)?;
        let mut kvs = BTreeMap::new();
        if let Some(mapping) = config.process_mapping {
            check_field(&mapping, Bound::Value)?;
            kvs.insert("PMI_process_mapping".to_owned(), mapping);
        }
        let client = |LocalRank { rank, appnum }| {
            (
                rank,
                Client {
                    appnum,
                    state: State::Connected,
                    framer: Framer::default(),
                    queued: 0,
                },
            )
        };
        Ok(Self {
            universe: config.universe,
            kvs_name: config.kvs_name,
            clients: Clients::new(config.ranks.into_iter().map(client).collect()),
            kvs,
            puts: BTreeMap::new(),
            names: BTreeMap::new(),
            fence: Fence::Gathering { told_lost: 0 },
            next_fence: FenceId(0),
            outputs: VecDeque::new(),
        })
    }

    /// Tells the server what happened. Drain [`Self::poll`] afterwards.
    pub fn handle(&mut self, input: Input<'_>) {
        match input {
            Input::Bytes { client, bytes } => self.bytes(client, bytes),
            Input::Closed { client } => self.closed(client),
            Input::FenceDone { id, puts } => self.fence_done(id, puts),
            Input::FenceFailed => {
                self.fence = Fence::Failed;
                self.release(&Answer::refused(Kind::Barrier, "fence_failed"));
            }
        }
        self.advance_fence();
    }

    /// The next thing to do, `None` when there is nothing until the next input.
    pub fn poll(&mut self) -> Option<Output> {
        let output = self.outputs.pop_front()?;
        if let Output::Send { client, bytes } = &output
            && let Some(client) = self.clients.get_mut(*client)
        {
            client.queued = client.queued.saturating_sub(bytes.len());
        }
        Some(output)
    }

    /// The ranks that are in the current barrier: what to say when somebody asks why the job does not go on.
    pub fn waiting(&self) -> impl Iterator<Item = Rank> {
        self.clients.waiting.iter().copied()
    }

    /// The ranks for which the current barrier waits, lost ones included.
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
                // Nothing that such a rank sends is read again, and its bytes are not kept.
                client.framer = Framer::default();
                return;
            }
            let done = match client.framer.next() {
                Ok(Some(message)) => self.transition(rank, &message),
                Ok(None) => return,
                Err(error) => Err(error),
            };
            if let Err(why) = done {
                self.close(rank, why);
                return;
            }
        }
    }

    /// The one place where a command meets a state.
    fn transition(&mut self, rank: Rank, message: &Message) -> Result<(), Error> {
        let request = Request::decode(message)?;
        let Some(client) = self.clients.get_mut(rank) else {
            return Ok(());
        };
        match (client.state, request) {
            (State::Connected, Request::Init { version, .. }) if version != VERSION => {
                // The refusal tells the client which version would do, so that it can say so.
                self.answer(rank, &Answer::refused(Kind::Init, "version"))?;
                Err(Error::PeerIncompatible {
                    ours: VERSION,
                    theirs: version,
                })
            }
            (State::Connected, Request::Init { .. }) => {
                self.clients.enter(rank, State::Initialized);
                self.outputs
                    .push_back(Output::Event(Event::Initialized { client: rank }));
                self.answer(rank, &Answer::INIT)
            }
            (
                State::Connected | State::Initialized | State::InBarrier,
                Request::Abort { code, message },
            ) => {
                self.clients.enter(rank, State::Aborted);
                self.outputs.push_back(Output::Event(Event::Abort {
                    client: rank,
                    code,
                    message,
                }));
                Ok(())
            }
            (State::Initialized, Request::Barrier) => {
                self.clients.enter(rank, State::InBarrier);
                if self.fence == Fence::Failed {
                    self.release(&Answer::refused(Kind::Barrier, "fence_failed"));
                }
                Ok(())
            }
            (State::Initialized, Request::Finalize) => {
                self.clients.enter(rank, State::Finalized);
                self.outputs
                    .push_back(Output::Event(Event::Finalized { client: rank }));
                self.answer(rank, &Answer::Finalize)
            }
            // Several programs started together are one request of several parts; only the last part is answered.
            (State::Initialized, Request::Spawn { total, so_far }) if so_far < total => Ok(()),
            (State::Initialized, request) if request.kind() != Kind::Init => {
                let appnum = client.appnum;
                let answer = self.question(request, appnum);
                self.answer(rank, &answer)
            }
            (
                state @ (State::Connected
                | State::Initialized
                | State::InBarrier
                | State::Finalized
                | State::Aborted
                | State::Left
                | State::Lost),
                request,
            ) => Err(Error::PeerMisbehaved {
                expected: state.expected(),
                got: request.kind().request().to_owned(),
            }),
        }
    }

    /// The requests that change no state and are answered at once.
    fn question(&mut self, request: Request, appnum: u32) -> Answer {
        let refused = Answer::refused;
        match request {
            Request::GetMaxes => Answer::MAXES,
            Request::GetAppnum => Answer::Appnum(appnum),
            Request::GetKvsName => Answer::KvsName(self.kvs_name.clone()),
            Request::GetUniverseSize => Answer::UniverseSize(self.universe),
            Request::Put { kvs, .. } if kvs != self.kvs_name => refused(Kind::Put, "kvs_not_found"),
            Request::Put { key, value, .. } => match self.store(&key, &value) {
                Ok(()) => {
                    self.puts.insert(key, value);
                    Answer::Put
                }
                Err(error) => refused(Kind::Put, &error.to_string()),
            },
            Request::Get { kvs, .. } if kvs != self.kvs_name => refused(Kind::Get, "kvs_not_found"),
            Request::Get { key, .. } => match self.kvs.get(&key) {
                Some(value) => Answer::Get {
                    value: value.clone(),
                },
                None => refused(Kind::Get, "key_not_found"),
            },
            Request::Publish { service, port } => {
                let bounds = Bound::Key
                    .check(service.len())
                    .and_then(|()| Bound::Value.check(port.len()))
                    .and_then(|()| Bound::Names.check(self.names.len() + 1));
                match bounds {
                    Err(error) => refused(Kind::Publish, &error.to_string()),
                    Ok(()) if self.names.contains_key(&service) => {
                        refused(Kind::Publish, "already_published")
                    }
                    Ok(()) => {
                        self.names.insert(service, port);
                        Answer::Published
                    }
                }
            }
            Request::Unpublish { service } => match self.names.remove(&service) {
                Some(_) => Answer::Unpublished,
                None => refused(Kind::Unpublish, "service_not_found"),
            },
            Request::Lookup { service } => match self.names.get(&service) {
                Some(port) => Answer::Lookup { port: port.clone() },
                None => refused(Kind::Lookup, "service_not_found"),
            },
            Request::Spawn { .. } => refused(Kind::Spawn, "spawn is not supported"),
            Request::Init { .. } | Request::Barrier | Request::Finalize | Request::Abort { .. } => {
                refused(request.kind(), "not a question")
            }
        }
    }

    /// Puts one entry into the key-value space. The last value of a key is the one that counts.
    fn store(&mut self, key: &str, value: &str) -> Result<(), Error> {
        check_field(key, Bound::Key)?;
        check_field(value, Bound::Value)?;
        if let Some(old) = self.kvs.get_mut(key) {
            value.clone_into(old);
            return Ok(());
        }
        Bound::Entries.check(self.kvs.len() + 1)?;
        self.kvs.insert(key.to_owned(), value.to_owned());
        Ok(())
    }

    fn closed(&mut self, rank: Rank) {
        let Some(client) = self.clients.get_mut(rank) else {
            return;
        };
        client.framer = Framer::default();
        let state = match client.state {
            State::Finalized | State::Left => State::Left,
            State::Connected | State::Aborted | State::Lost => State::Lost,
            State::Initialized | State::InBarrier => {
                self.outputs
                    .push_back(Output::Event(Event::Lost { client: rank }));
                State::Lost
            }
        };
        self.clients.enter(rank, state);
    }

    /// Ends a connection because of what came over it.
    fn close(&mut self, rank: Rank, why: Error) {
        self.closed(rank);
        self.outputs.push_back(Output::Close { client: rank, why });
    }

    fn answer(&mut self, rank: Rank, answer: &Answer) -> Result<(), Error> {
        let Some(client) = self.clients.get_mut(rank) else {
            return Ok(());
        };
        let bytes = answer.message().encode()?;
        Bound::Queued.check(client.queued + bytes.len())?;
        client.queued += bytes.len();
        self.outputs.push_back(Output::Send {
            client: rank,
            bytes,
        });
        Ok(())
    }

    fn fence_done(&mut self, id: FenceId, puts: Vec<(String, String)>) {
        // An answer to another fence than the current one is late: the host had given up in between.
        if self.fence != Fence::WithHost || id != self.next_fence {
            return;
        }
        self.next_fence.0 += 1;
        self.fence = Fence::Gathering { told_lost: 0 };
        let stored = puts
            .iter()
            .try_for_each(|(key, value)| self.store(key, value));
        match stored {
            Ok(()) => self.release(&Answer::Barrier),
            // Some rank would miss what another one has put, so nobody may go on as if all were well.
            Err(error) => {
                self.fence = Fence::Failed;
                self.release(&Answer::refused(Kind::Barrier, &error.to_string()));
            }
        }
    }

    /// Lets the waiting ranks go on, with this answer.
    fn release(&mut self, answer: &Answer) {
        for rank in self.waiting().collect::<Vec<_>>() {
            self.clients.enter(rank, State::Initialized);
            if let Err(why) = self.answer(rank, answer) {
                self.close(rank, why);
            }
        }
    }

    /// Tells the host when the barrier is complete on this node, or when it cannot become so.
    fn advance_fence(&mut self) {
        let Fence::Gathering { told_lost } = self.fence else {
            return;
        };
        if self.clients.count(&[State::InBarrier]) == 0 {
            return;
        }
        let count = self.clients.count(&[State::Lost]);
        if count > told_lost {
            self.fence = Fence::Gathering { told_lost: count };
            let lost = self.clients.among(&[State::Lost]).collect();
            let waiting = self.waiting().collect();
            self.outputs
                .push_back(Output::Event(Event::FenceBroken { lost, waiting }));
        } else if self.clients.count(&State::MISSING) == 0 {
            self.fence = Fence::WithHost;
            let puts = std::mem::take(&mut self.puts).into_iter().collect();
            self.outputs.push_back(Output::Event(Event::Fence {
                id: self.next_fence,
                puts,
            }));
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const RANKS: u32 = 4;

    #[derive(Clone, Debug)]
    enum Op {
        Line(u32, &'static str),
        Close(u32),
        FenceDone,
        FenceFailed,
    }

    fn op() -> impl Strategy<Value = Op> {
        let line = prop_oneof![
            4 => Just("cmd=init pmi_version=1 pmi_subversion=1\n"),
            4 => Just("cmd=barrier_in\n"),
            1 => Just("cmd=put kvsname=k key=a value=b\n"),
            1 => Just("cmd=finalize\n"),
            1 => Just("cmd=abort exitcode=1 message=a\n"),
            1 => Just("cmd=dance\n"),
        ];
        prop_oneof![
            12 => (0..RANKS, line).prop_map(|(rank, line)| Op::Line(rank, line)),
            1 => (0..RANKS).prop_map(Op::Close),
            3 => Just(Op::FenceDone),
            1 => Just(Op::FenceFailed),
        ]
    }

    proptest! {
        /// What is counted step by step is what a count from the start finds, and the fence is told of as it says.
        #[test]
        fn the_counts_are_those_of_a_recount(ops in prop::collection::vec(op(), 0..60)) {
            let config = Config {
                ranks: (0..RANKS).map(|rank| LocalRank { rank: Rank(rank), appnum: 0 }).collect(),
                universe: RANKS,
                kvs_name: "k".to_owned(),
                process_mapping: None,
            };
            let mut server = Server::new(config).unwrap();
            for op in ops {
                match op {
                    Op::Line(rank, line) => server.handle(Input::Bytes {
                        client: Rank(rank),
                        bytes: line.as_bytes(),
                    }),
                    Op::Close(rank) => server.handle(Input::Closed { client: Rank(rank) }),
                    Op::FenceDone => server.handle(Input::FenceDone {
                        id: server.next_fence,
                        puts: Vec::new(),
                    }),
                    Op::FenceFailed => server.handle(Input::FenceFailed),
                }
                let mut counts = [0; State::COUNT];
                let mut waiting = BTreeSet::new();
                for (rank, client) in &server.clients.of {
                    counts[client.state as usize] += 1;
                    if client.state == State::InBarrier {
                        waiting.insert(*rank);
                    }
                }
                prop_assert_eq!(counts, server.clients.counts);
                prop_assert_eq!(&waiting, &server.clients.waiting);
                let complete = !waiting.is_empty() && server.missing().next().is_none();
                prop_assert_eq!(complete, server.fence == Fence::WithHost && !waiting.is_empty());
                while let Some(output) = server.poll() {
                    if let Output::Event(Event::FenceBroken { lost, waiting }) = output {
                        prop_assert!(lost.iter().eq(server.clients.among(&[State::Lost]).collect::<Vec<_>>().iter()));
                        prop_assert!(waiting.into_iter().eq(server.waiting()));
                    }
                }
            }
        }
    }
}
