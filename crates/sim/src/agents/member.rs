//! The program of a node: the agent that ships, on the kernel of its node, as `dbgr __agent` hosts it.
//!
//! A node has a *character*. The agent always carries out its commands. The host of an agent that is not honest changes what
//! the agent sends.

use std::{
    collections::{BTreeMap, BTreeSet, VecDeque},
    time::Duration,
};

use base::{NodeId, Rank, RankSet, Time};
use bytes::Bytes;
use debug::{
    agent::{Agent, Input, Output, kernel::Question},
    proto::{Action, Answers, CommandId, FromAgent, FromNode, Refusal, Search, ToAgent, ToNode},
    reply::{Description, Partial, PartialSample, PartialStacks},
    report::Detail,
    stack::{Missing, Seen},
    wire,
};
use overlay::node::GatherId;

use super::truth::{OWN, Truth};
use crate::rng::Rng;

/// A rank that the job does not have.
pub(super) const NOBODY: Rank = Rank(100_000);

/// The behavior of an agent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Character {
    /// It answers each command.
    Honest,
    /// It also answers cancelled commands.
    AnswersCancelled,
    /// It refuses commands.
    Refuses,
    /// It sends signs of life at this interval, and no answer.
    Chatters(Duration),
    /// It answers twice, once outside of the gather.
    Twice,
    /// Its answers are no messages.
    Garbles,
    /// It sends bytes that are no message beside its answer.
    Babbles,
    /// It answers about a rank that the job does not have.
    Unasked,
    /// It says that the ranks of other nodes are gone.
    Others,
    /// It answers another question.
    OtherKind,
    /// It answers a command that the session never sent.
    UnknownCommand,
}

impl Character {
    /// Returns true if the answers of the agent are true.
    pub(super) const fn is_true(self) -> bool {
        matches!(
            self,
            Self::Honest | Self::AnswersCancelled | Self::Refuses | Self::Chatters(_)
        )
    }

    /// Returns true if the agent answers each command, and does nothing else.
    pub(super) const fn answers(self) -> bool {
        matches!(self, Self::Honest | Self::AnswersCancelled)
    }
}

/// A message to the program.
#[derive(Debug)]
pub(super) enum Incoming {
    Body(Bytes),
    Asked(GatherId, Bytes),
    /// On the node of the session: a message of it.
    Local(ToAgent),
}

/// A message of the program.
#[derive(Debug)]
pub(super) enum Sent {
    Up(Bytes),
    Answer(GatherId, CommandId, Bytes),
    /// On the node of the session: a message to it.
    Local(FromAgent),
}

/// A step of the program that takes time.
#[derive(Debug)]
enum Work {
    Step(Question),
    Find,
    Chat(CommandId, Duration),
}

/// The program of a node.
#[derive(Debug)]
pub(super) struct Member {
    node: NodeId,
    pub(super) character: Character,
    /// Longest time that a step takes, in microseconds.
    slowness: u64,
    agent: Option<Agent>,
    questions: BTreeMap<CommandId, GatherId>,
    cancelled: BTreeMap<CommandId, GatherId>,
    actions: BTreeMap<CommandId, (RankSet, Action)>,
    inbox: VecDeque<Incoming>,
    work: Option<Work>,
    /// Time of the next step; `None` if the program waits for a message.
    pub(super) due: Option<Time>,
    /// The program is stopped until this time.
    pub(super) stalled: Time,
    pub(super) outbox: VecDeque<Sent>,
}

impl Member {
    pub(super) fn new(node: NodeId, character: Character, slowness: u64) -> Self {
        Self {
            node,
            character,
            slowness,
            agent: (node == NodeId(0)).then(|| Agent::new(node, OWN, Detail::Folded)),
            questions: BTreeMap::new(),
            cancelled: BTreeMap::new(),
            actions: BTreeMap::new(),
            inbox: VecDeque::new(),
            work: None,
            due: None,
            stalled: Time::ZERO,
            outbox: VecDeque::new(),
        }
    }

    /// Takes a message. Returns the time of the next step, unless that is scheduled.
    pub(super) fn take(&mut self, now: Time, incoming: Incoming) -> Option<Time> {
        self.inbox.push_back(incoming);
        self.wake_at(now)
    }

    fn wake_at(&mut self, at: Time) -> Option<Time> {
        if self.due.is_some() {
            return None;
        }
        let at = at.max(self.stalled);
        self.due = Some(at);
        Some(at)
    }

    /// Takes the next step. Returns the time of the one after it; `None` if the program waits for a message.
    pub(super) fn go_on(&mut self, now: Time, truth: &Truth, rng: &mut Rng) -> Option<Time> {
        self.due = None;
        if now < self.stalled {
            return self.wake_at(self.stalled);
        }
        if let Some(work) = self.work.take() {
            self.end_work(now, work, truth);
        }
        // A message comes between two steps.
        if let Some(message) = self.inbox.pop_front() {
            self.hear(now, message);
        }
        while self.work.is_none() {
            let output = self.agent.as_mut().and_then(Agent::poll);
            match output {
                Some(Output::Ask(question)) => self.work = Some(Work::Step(question)),
                Some(Output::Send(message)) => self.send(message),
                Some(Output::ReleaseLate) => {}
                None => {
                    let message = self.inbox.pop_front()?;
                    self.hear(now, message);
                }
            }
        }
        let time = match self.work {
            Some(Work::Chat(_, every)) => every,
            _ => rng.micros(1, self.slowness),
        };
        self.wake_at(now + time)
    }

    fn end_work(&mut self, now: Time, work: Work, truth: &Truth) {
        match work {
            Work::Step(question) => {
                let answer = truth.answer(self.node, now, question);
                if let Some(agent) = &mut self.agent {
                    truth.lend(|lent| agent.handle(now, Input::Answer(answer, lent)));
                }
            }
            Work::Find => self.up(&FromNode::Found {
                identity: Some(self.node.to_string()),
                found: truth.search(self.node, now),
            }),
            Work::Chat(id, every) => {
                self.up(&FromNode::Agent(FromAgent::Working(id)));
                if self.questions.contains_key(&id) {
                    self.work = Some(Work::Chat(id, every));
                }
            }
        }
    }

    fn up(&mut self, message: &FromNode) {
        if let Ok(bytes) = wire::encode(message) {
            self.outbox.push_back(Sent::Up(Bytes::from(bytes)));
        }
    }

    fn hear(&mut self, now: Time, incoming: Incoming) {
        match incoming {
            Incoming::Body(body) => match wire::decode(&body) {
                Ok(ToNode::Begin { node, detail }) => {
                    self.agent = Some(Agent::new(node, OWN, detail));
                }
                Ok(ToNode::Find(Search::Wish(_) | Search::Ranks(_))) => {
                    self.work = Some(Work::Find);
                }
                Ok(ToNode::Agent(message)) => self.tell(now, message),
                Err(_) => {}
            },
            Incoming::Asked(gather, body) => {
                let Ok(message) = wire::decode(&body) else {
                    return;
                };
                if let ToAgent::Do { id, ranks, action } = &message {
                    self.questions.insert(*id, gather);
                    self.actions.insert(*id, (ranks.clone(), *action));
                    self.order(now, *id, message);
                }
            }
            Incoming::Local(message) => self.tell(now, message),
        }
    }

    /// Begins a command.
    fn order(&mut self, now: Time, id: CommandId, message: ToAgent) {
        match self.character {
            Character::Refuses => {
                let why = Refusal::Busy;
                self.send(FromAgent::Refused { id, why });
            }
            Character::Chatters(every) => self.work = Some(Work::Chat(id, every)),
            _ => self.tell(now, message),
        }
    }

    fn tell(&mut self, now: Time, message: ToAgent) {
        if let ToAgent::Cancel(id) = &message
            && let Some(question) = self.questions.remove(id)
        {
            self.cancelled.insert(*id, question);
            if self.character == Character::AnswersCancelled {
                // It has not heard that the command is cancelled.
                self.questions.insert(*id, question);
                return self.up(&FromNode::Agent(FromAgent::Working(*id)));
            }
        }
        if let Some(agent) = &mut self.agent {
            agent.handle(now, Input::Message(message));
        }
    }

    /// Sends a message of the agent.
    fn send(&mut self, message: FromAgent) {
        if self.node == NodeId(0) {
            return self.outbox.push_back(Sent::Local(message));
        }
        let (id, answers) = match message {
            FromAgent::Done { id, part } => {
                let part = self.changed(id, part);
                let (part, refused) = (Some(part), BTreeSet::new());
                (id, Answers { part, refused })
            }
            FromAgent::Refused { id, .. } => {
                let (part, refused) = (None, [self.node].into());
                (id, Answers { part, refused })
            }
            FromAgent::Working(_) | FromAgent::Stopped => {
                return self.up(&FromNode::Agent(message));
            }
        };
        let Some(question) = self.questions.remove(&id) else {
            return;
        };
        if self.character == Character::AnswersCancelled && self.cancelled.contains_key(&id) {
            // Late: the overlay has forgotten the gather. The session drops what comes outside of it.
            if let Some(part) = answers.part.clone() {
                self.up(&FromNode::Agent(FromAgent::Done { id, part }));
            }
        }
        let answer = match wire::encode(&answers) {
            Ok(_) if self.character == Character::Garbles => b"?".to_vec(),
            Ok(answer) => answer,
            Err(_) => return,
        };
        let answer = Sent::Answer(question, id, Bytes::from(answer));
        self.outbox.push_back(answer);
    }

    /// Returns what an agent of this character answers instead of this part.
    fn changed(&mut self, id: CommandId, part: Partial) -> Partial {
        match self.character {
            Character::Unasked => gone(&part, RankSet::single(NOBODY)),
            Character::Others => {
                let asked = self.actions.get(&id).map(|(ranks, _)| ranks.clone());
                gone(&part, asked.unwrap_or_default())
            }
            Character::OtherKind => match part {
                Partial::Description(_) => Partial::Sample(PartialSample::default()),
                _ => Partial::Description(Description::default()),
            },
            Character::Twice => {
                self.up(&FromNode::Agent(FromAgent::Done {
                    id,
                    part: part.clone(),
                }));
                part
            }
            Character::Babbles => {
                self.outbox
                    .push_back(Sent::Up(Bytes::from_static(b"\xff?")));
                part
            }
            Character::UnknownCommand => {
                self.up(&FromNode::Agent(FromAgent::Done {
                    id: CommandId(id.0 + 1_000),
                    part: part.clone(),
                }));
                part
            }
            _ => part,
        }
    }
}

/// Returns an answer of the kind of `part` that says that these ranks have ended.
fn gone(part: &Partial, ranks: RankSet) -> Partial {
    match part {
        Partial::Sample(_) => {
            let mut all = PartialSample::default();
            let seen = |rank| (rank, Seen::Missing(Missing::Gone));
            all.snapshot.procs = ranks.iter().map(seen).collect();
            Partial::Sample(all)
        }
        Partial::Stacks(_) => {
            let mut all = PartialStacks::default();
            all.missing.insert(Missing::Gone, ranks);
            Partial::Stacks(all)
        }
        Partial::Description(_) => Partial::Description(Description {
            ranks,
            ..Description::default()
        }),
    }
}
