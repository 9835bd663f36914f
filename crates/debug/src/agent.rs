//! The agent of one node samples the processes of its ranks for a debug session.
//!
//! The host of the agent carries out one step at a time ([`kernel::Question`]). It returns each answer together with the memory
//! and the files of the process. The agent reads memory and files directly, because a stack takes thousands of small reads, each
//! of which depends on the one before.
//!
//! | state | input | next |
//! |---|---|---|
//! | `Idle` | a command | `Listing`, or for [`Action::Describe`] `Describing` |
//! | `Listing` | the processes | `Owning` if the sample has neighbors and there may be some, else `Looking` |
//! | `Owning` | the owners of possible neighbors | `Looking` |
//! | `Looking` | an answer | the next step of the `probe`; then the next process; after the last one the reply, and `Idle` |
//! | `Describing` | an answer | the next rank; after the last one the reply, and `Idle` |
//! | any but `Idle` | a command | the command waits, behind at most [`MAX_ORDERS`] others |
//! | any but `Idle` | the command is cancelled, or the session is lost | `Idle`, after the release of a stopped thread |
//!
//! At most one thread is stopped, and at most one question is outstanding. The agent sends its answer at the end of a command,
//! and a sign of life every [`SIGN_OF_LIFE`] before that. At the end of a sample the host releases the threads that were late to
//! stop ([`Output::ReleaseLate`]).

mod activity;
mod around;
mod describing;
pub mod kernel;
mod probe;
mod reader;
mod sampling;
#[cfg(test)]
pub(crate) mod tests;

use std::{
    collections::{BTreeMap, VecDeque},
    mem,
    time::Duration,
};

use base::{NodeId, Rank, RankSet, Time};

use self::{
    around::Around,
    describing::Describing,
    kernel::{Answer, Lent, Question},
    reader::Reader,
    sampling::Work,
};
use crate::{
    planted::{self, Bug},
    proto::{Action, CommandId, Extent, FromAgent, Proc, Refusal, ToAgent},
    recorded::region,
    reply::MAX_THREADS,
    report::Detail,
};

pub use self::{around::MAX_CHILDREN, probe::MAX_STACK_COPY};

/// Maximum number of commands that wait while one is carried out.
pub const MAX_ORDERS: usize = 16;
/// The interval between signs of life.
pub const SIGN_OF_LIFE: Duration = Duration::from_secs(1);

/// An event for the agent.
#[derive(Debug)]
pub enum Input<'a> {
    /// A message from the session.
    Message(ToAgent),
    /// The host's answer to the last question, with the process that the question was about.
    Answer(Answer, Lent<'a>),
    /// The link to the session is closed.
    SessionLost,
}

/// An action for the host.
#[derive(Debug)]
pub enum Output {
    /// Carry out a step, and give the answer before the next call of [`Agent::poll`].
    Ask(Question),
    /// Send a message to the session.
    Send(FromAgent),
    /// Release the threads that were late to stop, as soon as they have stopped.
    ReleaseLate,
}

/// The agent of a node.
#[derive(Debug)]
pub struct Agent {
    node: NodeId,
    /// The pid of the agent.
    own: i32,
    detail: Detail,
    reader: Reader,
    procs: BTreeMap<Rank, Proc>,
    /// Whether the agent still knows processes that are no longer followed.
    memory: Knowledge,
    /// The largest number of descendants of ranks that one sample has left out.
    left_out: usize,
    /// The first thread of each rank in the last sample.
    first_threads: BTreeMap<Rank, i32>,
    orders: VecDeque<Order>,
    state: State,
    /// Whether the current command was cancelled.
    request: Request,
    life: Life,
    /// When the agent last sent a message about the current command.
    last_sign: Time,
    outputs: VecDeque<Output>,
}

/// Whether the agent knows only processes that it follows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Knowledge {
    Current,
    /// The session has sent other ranks.
    Outdated,
}

/// Whether the agent accepts commands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Life {
    Working,
    /// The agent has to release a stopped thread.
    Ending,
    Ended,
}

#[derive(Debug)]
struct Order {
    id: CommandId,
    ranks: RankSet,
    action: Action,
}

#[derive(Debug)]
enum State {
    Idle,
    Listing(Order),
    ReadingOwners(Order, Around, Vec<i32>),
    Sampling(Box<Work>),
    Describing(Order, Describing),
}

/// Whether the current command was cancelled.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Request {
    Wanted,
    Cancelled,
}

impl Agent {
    /// Returns an agent without ranks. `own` is its pid.
    #[must_use]
    pub fn new(node: NodeId, own: i32, detail: Detail) -> Self {
        Self {
            node,
            own,
            detail,
            reader: Reader::new(detail),
            procs: BTreeMap::new(),
            memory: Knowledge::Current,
            left_out: 0,
            first_threads: BTreeMap::new(),
            orders: VecDeque::new(),
            state: State::Idle,
            request: Request::Wanted,
            life: Life::Working,
            last_sign: Time::ZERO,
            outputs: VecDeque::new(),
        }
    }

    /// Lowers the maximum number of threads sampled in each process, which is [`MAX_THREADS`] by default.
    #[must_use]
    pub fn with_max_threads(mut self, most: usize) -> Self {
        self.reader.max_threads = most.min(MAX_THREADS);
        self
    }

    /// Returns the next action for the host; `None` until the next input.
    pub fn poll(&mut self) -> Option<Output> {
        self.outputs.pop_front()
    }

    /// Always `None`: an agent waits only for messages of its session and answers of its host, and ends with either.
    #[must_use]
    pub const fn deadline(&self) -> Option<Time> {
        None
    }

    /// Handles an event.
    pub fn handle(&mut self, now: Time, input: Input<'_>) {
        match input {
            Input::Message(message) => self.obey(now, message),
            Input::Answer(answer, lent) => {
                if self.life != Life::Ended {
                    self.learn(answer, lent);
                    self.show_life(now);
                }
            }
            Input::SessionLost => self.end(),
        }
        self.begin(now);
    }

    fn obey(&mut self, now: Time, message: ToAgent) {
        if self.life != Life::Working {
            if let ToAgent::Do { id, .. } = message {
                let why = Refusal::Stopping;
                self.send(FromAgent::Refused { id, why });
            }
            return;
        }
        match message {
            ToAgent::Follow(procs) => {
                self.procs = procs;
                self.memory = Knowledge::Outdated;
            }
            ToAgent::Do { id, ranks, action } => {
                if self.orders.len() >= MAX_ORDERS {
                    let why = Refusal::Busy;
                    self.send(FromAgent::Refused { id, why });
                    return;
                }
                if matches!(self.state, State::Idle) {
                    self.last_sign = now;
                } else if planted::is(Bug::OrderForgotten) {
                    return;
                }
                self.orders.push_back(Order { id, ranks, action });
            }
            ToAgent::Cancel(id) => {
                self.orders.retain(|order| order.id != id);
                // The answer to the outstanding question still comes.
                if self.current() == Some(id) {
                    self.request = Request::Cancelled;
                }
                // The session may have given this agent up.
                self.send(FromAgent::Working(id));
            }
            ToAgent::Stop => self.end(),
        }
    }

    /// Returns the id of the current command.
    const fn current(&self) -> Option<CommandId> {
        match &self.state {
            State::Idle => None,
            State::Listing(order)
            | State::ReadingOwners(order, ..)
            | State::Describing(order, _) => Some(order.id),
            State::Sampling(work) => Some(work.order.id),
        }
    }

    fn end(&mut self) {
        if self.life == Life::Working {
            self.life = Life::Ending;
            self.orders.clear();
            self.request = Request::Cancelled;
        }
    }

    /// Begins the next commands, until one of them has to wait for the host.
    fn begin(&mut self, now: Time) {
        while matches!(self.state, State::Idle) {
            if self.life == Life::Ending {
                self.life = Life::Ended;
                self.outputs.push_back(Output::ReleaseLate);
                self.send(FromAgent::Stopped);
            }
            let Some(order) = self.orders.pop_front() else {
                return;
            };
            self.last_sign = now;
            self.request = Request::Wanted;
            match order.action {
                Action::Sample(_) | Action::Stacks(_) => {
                    self.reader.bound(self.detail);
                    self.reader.extent = match order.action {
                        Action::Sample(Extent::Calls(last)) => region::Extent::Last(last.into()),
                        _ => region::Extent::Current,
                    };
                    self.ask(Question::Processes);
                    self.state = State::Listing(order);
                }
                Action::Describe => {
                    let describing = self.description(&order.ranks);
                    self.describe(order, describing);
                }
            }
        }
    }

    fn learn(&mut self, answer: Answer, lent: Lent<'_>) {
        match (mem::replace(&mut self.state, State::Idle), answer) {
            (State::Listing(_) | State::ReadingOwners(..) | State::Describing(..), _)
                if self.request == Request::Cancelled => {}
            (State::Listing(order), Answer::Processes(processes)) => {
                let procs = self.chosen(&order.ranks);
                let around = Around::new(processes, &procs, self.own);
                // Neighbors matter only in a sample with all peers.
                let pids = match order.action {
                    Action::Sample(Extent::Everybody) => around.owners_to_read(),
                    Action::Sample(Extent::Children | Extent::Calls(_))
                    | Action::Stacks(_)
                    | Action::Describe => Vec::new(),
                };
                if pids.is_empty() {
                    self.sample(order, around);
                } else {
                    self.ask(Question::Owners { pids: pids.clone() });
                    self.state = State::ReadingOwners(order, around, pids);
                }
            }
            (State::ReadingOwners(order, mut around, pids), Answer::Owners(owners)) => {
                let owners = pids.into_iter().zip(owners);
                let owners = owners.filter_map(|(pid, owner)| Some((pid, owner?)));
                around.add_neighbors(&owners.collect());
                self.sample(order, around);
            }
            (State::Sampling(work), answer) => self.go_on(work, answer, lent),
            (State::Describing(order, describing), answer) => {
                self.described(order, describing, answer);
            }
            (state, answer) => {
                debug_assert!(false, "{answer:?} is no answer in {state:?}");
            }
        }
    }

    /// Returns those of these ranks that the agent follows.
    fn chosen(&self, ranks: &RankSet) -> BTreeMap<Rank, Proc> {
        let procs = self.procs.iter();
        let chosen = procs.filter(|(rank, _)| ranks.contains(**rank));
        chosen.map(|(&rank, &proc)| (rank, proc)).collect()
    }

    fn ask(&mut self, question: Question) {
        self.outputs.push_back(Output::Ask(question));
    }

    fn send(&mut self, message: FromAgent) {
        self.outputs.push_back(Output::Send(message));
    }

    fn show_life(&mut self, now: Time) {
        if let Some(id) = self.current()
            && now.since(self.last_sign) >= SIGN_OF_LIFE
            && !planted::is(Bug::SignNotSent)
        {
            self.last_sign = now;
            self.send(FromAgent::Working(id));
        }
    }
}
