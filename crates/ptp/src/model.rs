//! What the client knows of: the machine, its nodes and its queue, jobs and their processes, each with a number.

use std::collections::{BTreeMap, VecDeque};

use base::{Rank, RankSet, Signal};

use crate::{Attribute, Dialect, Elements, Event, JobState, Kind, Level, ProcessState};

/// Jobs that are over and that the client is told of. When there are more, the oldest one is removed.
pub const ENDED_MAX: usize = 256;
/// Elements in one event.
const AT_ONCE: usize = 256;
/// The largest number that a client can read.
const ID_MAX: u32 = i32::MAX as u32;

/// A job of the platform, by the platform's own name for it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct JobKey(pub u64);

/// A node of the machine.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NodeFacts {
    /// Name by which the client can reach the node.
    pub name: String,
    pub is_up: bool,
}

/// A process that has been started.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ProcessFacts {
    /// Index of its node among those of the machine.
    pub node: u32,
    pub pid: u32,
}

/// How a process is, and how it has ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RankState {
    Running,
    Suspended,
    /// With this code.
    Exited(i32),
    /// By this signal.
    Signaled(Signal),
}

impl RankState {
    const fn process(&self) -> ProcessState {
        match self {
            Self::Running => ProcessState::Running,
            Self::Suspended => ProcessState::Suspended,
            Self::Exited(_) => ProcessState::Exited,
            Self::Signaled(_) => ProcessState::Signaled,
        }
    }

    fn attributes(&self, dialect: Dialect) -> Vec<Attribute> {
        let state = Attribute::new("processState", self.process().name(dialect));
        let how = match self {
            Self::Running | Self::Suspended => None,
            Self::Exited(code) => Some(Attribute::new("processExitCode", code.to_string())),
            Self::Signaled(signal) => Some(Attribute::new("processSignalName", signal.to_string())),
        };
        how.into_iter().chain([state]).collect()
    }
}

#[derive(Debug)]
struct JobModel {
    id: u32,
    sub_id: Vec<u8>,
    name: String,
    procs: u32,
    state: JobState,
    /// Number of rank 0, for a client to which processes have numbers of their own.
    first: u32,
    processes: Vec<(ProcessFacts, Option<RankState>)>,
}

/// Everything that a client is told of.
#[derive(Debug)]
pub(crate) struct Model {
    dialect: Dialect,
    base: u32,
    next: u32,
    machine: (u32, String),
    nodes: Vec<(u32, NodeFacts)>,
    queue: (u32, String),
    jobs: BTreeMap<JobKey, JobModel>,
    by_id: BTreeMap<u32, JobKey>,
    ended: VecDeque<JobKey>,
}

/// The client cannot be told of more: numbers are used up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct UsedUp;

fn one(id: u32, attributes: Vec<Attribute>) -> Vec<Elements> {
    vec![Elements {
        ids: RankSet::single(Rank(id)),
        attributes,
    }]
}

impl Model {
    pub(crate) fn new(
        dialect: Dialect,
        base: u32,
        machine: &str,
        queue: &str,
        nodes: &[NodeFacts],
    ) -> Result<Self, UsedUp> {
        let mut model = Self {
            dialect,
            base,
            next: base,
            machine: (0, machine.to_owned()),
            nodes: Vec::new(),
            queue: (0, queue.to_owned()),
            jobs: BTreeMap::new(),
            by_id: BTreeMap::new(),
            ended: VecDeque::new(),
        };
        model.machine.0 = model.take_ids(1)?;
        for node in nodes {
            let id = model.take_ids(1)?;
            model.nodes.push((id, node.clone()));
        }
        model.queue.0 = model.take_ids(1)?;
        Ok(model)
    }

    /// Returns the first of so many new numbers.
    fn take_ids(&mut self, count: u32) -> Result<u32, UsedUp> {
        let first = self.next.checked_add(1).ok_or(UsedUp)?;
        let last = self.next.checked_add(count).filter(|last| *last <= ID_MAX);
        self.next = last.ok_or(UsedUp)?;
        Ok(first)
    }

    fn node(&self, id: u32, node: &NodeFacts, number: usize) -> Vec<Elements> {
        let attributes = vec![
            Attribute::new("name", &*node.name),
            Attribute::new("nodeState", state_of(node)),
            Attribute::new("nodeNumber", number.to_string()),
        ];
        one(id, attributes)
    }

    /// Returns the events that tell a client of everything there is.
    pub(crate) fn all(&self) -> Vec<Event> {
        let new = |kind, parent, elements| Event::New {
            kind,
            parent,
            elements,
        };
        let machine = vec![
            Attribute::new("name", &*self.machine.1),
            Attribute::new("machineState", "UP"),
        ];
        let mut events = vec![new(Kind::Machine, self.base, one(self.machine.0, machine))];
        for (number, (id, node)) in self.nodes.iter().enumerate() {
            events.push(new(
                Kind::Node,
                self.machine.0,
                self.node(*id, node, number),
            ));
        }
        let queue = vec![
            Attribute::new("name", &*self.queue.1),
            Attribute::new("queueState", "NORMAL"),
        ];
        events.push(new(Kind::Queue, self.base, one(self.queue.0, queue)));
        for job in self.jobs.values() {
            events.push(self.new_job(job));
            events.extend(self.new_processes(job));
        }
        events
    }

    fn new_job(&self, job: &JobModel) -> Event {
        let attributes = vec![
            Attribute::new("jobSubId", &*job.sub_id),
            Attribute::new("name", &*job.name),
            Attribute::new("jobState", job.state.name(self.dialect)),
            Attribute::new("jobNumProcs", job.procs.to_string()),
        ];
        Event::New {
            kind: Kind::Job,
            parent: self.queue.0,
            elements: one(job.id, attributes),
        }
    }

    fn id_of(&self, job: &JobModel, rank: u32) -> u32 {
        match self.dialect {
            Dialect::V2 => job.first + rank,
            Dialect::V4 => rank,
        }
    }

    fn ids_of(&self, job: &JobModel, ranks: &RankSet) -> RankSet {
        ranks
            .iter()
            .map(|rank| Rank(self.id_of(job, rank.0)))
            .collect()
    }

    /// Returns events with all processes of a job, and their states.
    fn new_processes(&self, job: &JobModel) -> Vec<Event> {
        let all: Vec<_> = (0..).zip(&job.processes).collect();
        let element = |(rank, (facts, state)): &(u32, &(ProcessFacts, Option<RankState>))| {
            let node = self
                .nodes
                .get(facts.node as usize)
                .map(|(id, _)| id.to_string());
            let attributes = match state {
                None => vec![Attribute::new(
                    "processState",
                    ProcessState::Starting.name(self.dialect),
                )],
                Some(state) => state.attributes(self.dialect),
            };
            let more = [
                Attribute::new("name", rank.to_string()),
                Attribute::new("processNodeId", node.unwrap_or_default()),
                Attribute::new("processIndex", rank.to_string()),
                Attribute::new("processPID", facts.pid.to_string()),
            ];
            Elements {
                ids: RankSet::single(Rank(self.id_of(job, *rank))),
                attributes: more.into_iter().chain(attributes).collect(),
            }
        };
        let events = all.chunks(AT_ONCE).map(|chunk| Event::New {
            kind: Kind::Process,
            parent: job.id,
            elements: chunk.iter().map(element).collect(),
        });
        events.collect()
    }

    /// Adds a job that waits.
    pub(crate) fn add_job(
        &mut self,
        key: JobKey,
        sub_id: Vec<u8>,
        name: String,
        procs: u32,
    ) -> Result<Vec<Event>, UsedUp> {
        assert!(!self.jobs.contains_key(&key), "{key:?} is there already");
        let id = self.take_ids(1)?;
        let first = match self.dialect {
            Dialect::V2 => self.take_ids(procs)?,
            Dialect::V4 => 0,
        };
        let job = JobModel {
            id,
            sub_id,
            name,
            procs,
            state: JobState::Starting,
            first,
            processes: Vec::new(),
        };
        let event = self.new_job(&job);
        self.by_id.insert(id, key);
        self.jobs.insert(key, job);
        Ok(vec![event])
    }

    /// The processes of a job have been started. At most as many as it has are known; a job that runs again begins anew.
    pub(crate) fn start(&mut self, key: JobKey, processes: Vec<ProcessFacts>) -> Vec<Event> {
        let mut events = Vec::new();
        let Some(mut job) = self.jobs.remove(&key) else {
            return events;
        };
        if !job.processes.is_empty() {
            let ranks = RankSet::range(0..count(&job.processes));
            events.push(Event::Remove {
                kind: Kind::Process,
                job: Some(job.id),
                ids: self.ids_of(&job, &ranks),
            });
        }
        let with_state = |facts| (facts, None);
        job.processes = processes.into_iter().map(with_state).collect();
        job.processes.truncate(job.procs as usize);
        events.extend(self.new_processes(&job));
        self.jobs.insert(key, job);
        events
    }

    /// The state of some processes of a job has changed.
    pub(crate) fn change_ranks(
        &mut self,
        key: JobKey,
        ranks: &RankSet,
        state: &RankState,
    ) -> Option<Event> {
        let job = self.jobs.get_mut(&key)?;
        let known = RankSet::range(0..count(&job.processes)).intersection(ranks);
        for rank in known.iter() {
            job.processes[rank.0 as usize].1 = Some(state.clone());
        }
        let job = &self.jobs[&key];
        (!known.is_empty()).then(|| Event::Change {
            kind: Kind::Process,
            job: Some(job.id),
            elements: vec![Elements {
                ids: self.ids_of(job, &known),
                attributes: state.attributes(self.dialect),
            }],
        })
    }

    /// The state of a job has changed. The oldest job that is over may be forgotten.
    pub(crate) fn change_job(&mut self, key: JobKey, state: JobState) -> Vec<Event> {
        let Some(job) = self.jobs.get_mut(&key) else {
            return Vec::new();
        };
        if job.state == state || job.state == JobState::Completed {
            return Vec::new();
        }
        job.state = state;
        let attributes = vec![Attribute::new("jobState", state.name(self.dialect))];
        let mut events = vec![Event::Change {
            kind: Kind::Job,
            job: None,
            elements: one(job.id, attributes),
        }];
        if state == JobState::Completed {
            self.ended.push_back(key);
            if self.ended.len() > ENDED_MAX {
                events.extend(self.forget_oldest());
            }
        }
        events
    }

    fn forget_oldest(&mut self) -> Option<Event> {
        let job = self.jobs.remove(&self.ended.pop_front()?)?;
        self.by_id.remove(&job.id);
        Some(Event::Remove {
            kind: Kind::Job,
            job: None,
            ids: RankSet::single(Rank(job.id)),
        })
    }

    /// Output of a process; `None` if the client does not know the process.
    pub(crate) fn output(&self, key: JobKey, rank: Rank, attribute: Attribute) -> Option<Event> {
        let job = self.jobs.get(&key)?;
        job.processes.get(rank.0 as usize)?;
        Some(Event::Change {
            kind: Kind::Process,
            job: Some(job.id),
            elements: one(self.id_of(job, rank.0), vec![attribute]),
        })
    }

    /// Returns output of a process that the client does not know, such as the master of debuggers, as a message.
    pub(crate) fn message_of(&self, key: JobKey, bytes: &[u8]) -> Option<Event> {
        let job = self
            .jobs
            .get(&key)
            .filter(|job| !job.processes.is_empty())?;
        let is_over = job.state == JobState::Completed;
        (!is_over).then(|| Event::Message {
            level: Level::Info,
            code: 0,
            text: bytes.to_vec(),
        })
    }

    /// A node has gone down or come back, or is new, by its index.
    pub(crate) fn change_node(
        &mut self,
        index: u32,
        node: NodeFacts,
    ) -> Result<Option<Event>, UsedUp> {
        let number = index as usize;
        if let Some((id, known)) = self.nodes.get_mut(number) {
            known.is_up = node.is_up;
            let attributes = vec![Attribute::new("nodeState", state_of(known))];
            return Ok(Some(Event::Change {
                kind: Kind::Node,
                job: None,
                elements: one(*id, attributes),
            }));
        }
        // Nodes come in the order of their numbers.
        if number > self.nodes.len() {
            return Ok(None);
        }
        let id = self.take_ids(1)?;
        let elements = self.node(id, &node, number);
        self.nodes.push((id, node));
        Ok(Some(Event::New {
            kind: Kind::Node,
            parent: self.machine.0,
            elements,
        }))
    }

    /// Returns the job with this number, unless it is over.
    pub(crate) fn living(&self, id: u32) -> Option<JobKey> {
        let key = *self.by_id.get(&id)?;
        let job = self.jobs.get(&key)?;
        (job.state != JobState::Completed).then_some(key)
    }

    /// Returns true if there is a job with this number.
    pub(crate) fn knows(&self, id: u32) -> bool {
        self.by_id.contains_key(&id)
    }
}

fn count(processes: &[(ProcessFacts, Option<RankState>)]) -> u32 {
    u32::try_from(processes.len()).unwrap_or(u32::MAX)
}

const fn state_of(node: &NodeFacts) -> &'static str {
    match node.is_up {
        true => "UP",
        false => "DOWN",
    }
}
