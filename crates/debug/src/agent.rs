//! The agent of one node: it looks at the processes of its ranks, as a debug session tells it.
//!
//! It does nothing itself. Its host carries out one step after the other ([`kernel::Question`]), and gives each answer back with
//! the memory and the files of the process that it is about. Reading these is no event: a stack takes thousands of small
//! reads, each of which depends on the one before.
//!
//! | state | input | next |
//! |---|---|---|
//! | `Idle` | a command | `Listing`, or for [`Action::Describe`] `Describing` |
//! | `Listing` | the processes | `Owning` if the sample has neighbors and there may be some, else `Looking` |
//! | `Owning` | their users | `Looking` |
//! | `Looking` | an answer | the next step of the `probe`; the next process; the reply, and `Idle` |
//! | `Describing` | an answer | the next rank; the reply, and `Idle` |
//! | any but `Idle` | a command | it waits; [`MAX_ORDERS`] may |
//! | any but `Idle` | the command is cancelled, or the session is lost | `Idle`, as soon as no thread stands |
//!
//! At most one thread stands at a time, and an agent that is at work asks at most one question. A reply leaves at the end of its
//! sample; while that takes long, a sign of life leaves every [`SIGN_OF_LIFE`]. The host lets go those threads that were late to
//! stop when it hears of the end of a sample ([`Output::LetGo`]).

mod activity;
mod around;
mod describing;
#[cfg(test)]
pub(crate) mod fake;
pub mod kernel;
mod probe;
mod reader;
mod sampling;
#[cfg(test)]
mod tests;

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
    proto::{Action, CommandId, Extent, FromAgent, Proc, Refusal, ToAgent},
    reply::MAX_THREADS,
    report::Detail,
};

pub use self::{around::MAX_CHILDREN, probe::MAX_STACK_COPY};

/// Commands that wait while one is carried out.
pub const MAX_ORDERS: usize = 16;
/// From one sign of life to the next.
pub const SIGN_OF_LIFE: Duration = Duration::from_secs(1);
/// What an agent is told.
#[derive(Debug)]
pub enum Input<'a> {
    /// By the session.
    Message(ToAgent),
    /// By its host: the answer to the last question, with the process that it is about.
    Answer(Answer, Lent<'a>),
    /// The session is gone.
    SessionLost,
}

/// What an agent wants.
#[derive(Debug)]
pub enum Output {
    /// A step of its host, which answers before it asks for the next output.
    Ask(Question),
    /// A message to the session.
    Send(FromAgent),
    /// Let go, as soon as they stand, the threads that were late to stop.
    LetGo,
}

/// The agent of a node.
#[derive(Debug)]
pub struct Agent {
    node: NodeId,
    /// The number of its own process.
    own: i32,
    detail: Detail,
    reader: Reader,
    procs: BTreeMap<Rank, Proc>,
    /// Whether other processes than those of the next sample are to be forgotten.
    memory: Knowledge,
    /// How many processes below ranks were not looked at, in the sample with the most.
    left_out: usize,
    /// The first thread of each rank in the last sample.
    first_threads: BTreeMap<Rank, i32>,
    orders: VecDeque<Order>,
    state: State,
    /// Whether somebody waits for what is being done.
    fate: Fate,
    life: Life,
    /// When something was last said of the command that is carried out.
    last_sign: Time,
    outputs: VecDeque<Output>,
}

/// Whether what is known of processes is up to date.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Knowledge {
    Current,
    /// Other ranks are followed since.
    Outdated,
}

/// Whether there is anybody to work for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Life {
    Working,
    /// Every process is let go.
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
    Owning(Order, Around, Vec<i32>),
    Looking(Box<Work>),
    Describing(Order, Describing),
}

/// Whether somebody waits for what is being done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fate {
    Wanted,
    Cancelled,
}

impl Agent {
    /// Looks at nothing yet. Its own process has the number `own`.
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
            fate: Fate::Wanted,
            life: Life::Working,
            last_sign: Time::ZERO,
            outputs: VecDeque::new(),
        }
    }

    /// Looks at fewer threads of each process than [`MAX_THREADS`].
    #[must_use]
    pub fn with_max_threads(mut self, most: usize) -> Self {
        self.reader.max_threads = most.min(MAX_THREADS);
        self
    }

    /// What it wants next.
    pub fn poll(&mut self) -> Option<Output> {
        self.outputs.pop_front()
    }

    /// It waits for nothing but messages and answers, whose senders' ends are its own.
    #[must_use]
    pub const fn deadline(&self) -> Option<Time> {
        None
    }

    /// Takes in what happened.
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
                }
                self.orders.push_back(Order { id, ranks, action });
            }
            ToAgent::Cancel(id) => {
                self.orders.retain(|order| order.id != id);
                // The answer to the question that was asked last still comes.
                if self.current() == Some(id) {
                    self.fate = Fate::Cancelled;
                }
            }
            ToAgent::Stop => self.end(),
        }
    }

    /// The command that is being carried out.
    const fn current(&self) -> Option<CommandId> {
        match &self.state {
            State::Idle => None,
            State::Listing(order) | State::Owning(order, ..) | State::Describing(order, _) => {
                Some(order.id)
            }
            State::Looking(work) => Some(work.order.id),
        }
    }

    fn end(&mut self) {
        if self.life == Life::Working {
            self.life = Life::Ending;
            self.orders.clear();
            self.fate = Fate::Cancelled;
        }
    }

    /// Begins the next commands, until one of them has to wait for its host.
    fn begin(&mut self, now: Time) {
        while matches!(self.state, State::Idle) {
            if self.life == Life::Ending {
                self.life = Life::Ended;
                self.outputs.push_back(Output::LetGo);
                self.send(FromAgent::Stopped);
            }
            let Some(order) = self.orders.pop_front() else {
                return;
            };
            self.last_sign = now;
            self.fate = Fate::Wanted;
            match order.action {
                Action::Sample(_) | Action::Stacks(_) => {
                    self.reader.bound(self.detail);
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
            (State::Listing(_) | State::Owning(..) | State::Describing(..), _)
                if self.fate == Fate::Cancelled => {}
            (State::Listing(order), Answer::Processes(processes)) => {
                let procs = self.chosen(&order.ranks);
                let around = Around::new(processes, &procs, self.own);
                // Neighbors are of use only where it is seen whether they work.
                let pids = match order.action {
                    Action::Sample(Extent::Everybody) => around.unowned(),
                    Action::Sample(Extent::Children) | Action::Stacks(_) | Action::Describe => {
                        Vec::new()
                    }
                };
                if pids.is_empty() {
                    self.look(order, around);
                } else {
                    self.ask(Question::Owners { pids: pids.clone() });
                    self.state = State::Owning(order, around, pids);
                }
            }
            (State::Owning(order, mut around, pids), Answer::Owners(owners)) => {
                let owners = pids.into_iter().zip(owners);
                let owners = owners.filter_map(|(pid, owner)| Some((pid, owner?)));
                around.own(&owners.collect());
                self.look(order, around);
            }
            (State::Looking(work), answer) => self.go_on(work, answer, lent),
            (State::Describing(order, describing), answer) => {
                self.described(order, describing, answer);
            }
            (state, answer) => {
                debug_assert!(false, "{answer:?} is no answer in {state:?}");
            }
        }
    }

    /// The followed ranks that are among these.
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
        {
            self.last_sign = now;
            self.send(FromAgent::Working(id));
        }
    }
}
