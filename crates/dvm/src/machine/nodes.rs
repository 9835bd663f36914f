//! The nodes of a machine, which come and go while it runs.
//!
//! A node has a number in the queue, which it keeps as long as the machine lives: jobs that wait for it by its name still wait for it
//! when it comes back. Each start of its daemon has another number, which is the [`NodeId`] of the controller. A lost daemon may still
//! run somewhere, and must not be taken for the next one.
//!
//! | part | state | asked to add | daemon joins | daemon lost, or not started | asked to drop | no task has part of it |
//! |---|---|---|---|---|---|---|
//! | `Stays` | starting | – | up; drained, if the user wants that | bad | → `Leaves` | – |
//! | `Stays` | up, drained | – | – | bad | → `Leaves` | – |
//! | `Stays` | bad | starting, with another daemon | – | – | → `Gone` | – |
//! | `Leaves` | starting | refused | up: its daemon is told to end → `Told` | → `Gone` | – | – |
//! | `Leaves` | up, drained | refused | – | → `Gone` | – | its daemon is told to end → `Told` |
//! | `Told` | up, drained | refused | – | → `Gone` | – | – |
//! | `Gone` | – | starting, with another daemon → `Stays` | – | – | no such node | – |
//!
//! The daemon in the process of the controller is never told to end, and never lost: its node goes from `Leaves` to `Gone`, and comes back
//! with the same daemon. `--resume` takes a node from `Leaves` back to `Stays`.

use std::collections::{BTreeMap, BTreeSet};

use base::{HostList, NodeId, Rank, RankSet, Time};

use super::{
    Machine, MachineOutput, Work,
    demand::demand,
    planted::{self, Bug},
    resources::{GpuTable, MEMORY, UNKNOWN},
    talk::{Added, Additions, Down, NodeLine, NodeStanding, NotDone, Reply},
};
use crate::{
    alloc::{AllocatedNode, Slots},
    bootstrap::{NotJoined, NotJoinedClass},
    proto::FrontId,
    queue::{Amounts, NodeState, Requeue, TaskId},
    spec::NodeResources,
};

/// Most starts of daemons in the life of a machine. Each leaves its number behind.
pub const STARTS_MAX: u32 = 1 << 16;

/// Whether a node is to stay in the machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Part {
    Stays,
    /// Its daemon will be told to end when no task has part of the node.
    Leaves,
    /// Its daemon was told to end.
    Told,
    /// It is not listed any more.
    Gone,
}

/// A node of the machine.
#[derive(Clone, Debug)]
pub(super) struct Node {
    pub(super) name: String,
    /// 0 before its first daemon has joined, and when it is gone.
    pub(super) slots: u32,
    /// Nobody has said how many slots it has.
    pub(super) is_implicit: bool,
    /// The user has drained it before it has joined.
    is_drained: bool,
    pub(super) standing: NodeStanding,
    part: Part,
    /// Its daemon, or the last one; `None` if only jobs name the node.
    pub(super) daemon: Option<NodeId>,
    /// `None`: it has none.
    pub(super) gpus: Option<GpuTable>,
    /// What it has, also while it is lost; nothing before its first daemon has joined.
    pub(super) has: Amounts,
}

/// A front that waits for the nodes that it has added.
#[derive(Debug)]
struct Adding {
    front: FrontId,
    nodes: BTreeSet<NodeId>,
    there: HostList,
    failed: Vec<NotJoinedClass>,
}

/// A front that waits until nodes are gone.
#[derive(Debug)]
struct Dropping {
    front: FrontId,
    nodes: BTreeSet<NodeId>,
}

/// What is known of the nodes, beside the nodes themselves.
#[derive(Debug, Default)]
pub(super) struct Comings {
    /// The nodes of the daemons that live, or are being started.
    of_daemon: BTreeMap<NodeId, NodeId>,
    pub(super) next_daemon: u32,
    /// The daemon in the process of the controller.
    local: Option<NodeId>,
    /// Nodes in `Leaves`, and those in `Gone` of which tasks have part.
    leaving: BTreeSet<NodeId>,
    /// Nodes that came back while tasks have part of them, and that have other resources now.
    resizing: BTreeMap<NodeId, Resized>,
    adding: Vec<Adding>,
    dropping: Vec<Dropping>,
}

/// What a node has when no task has part of it any more.
#[derive(Debug)]
struct Resized {
    capacity: Amounts,
    gpus: Option<GpuTable>,
    /// It has other GPUs than its tasks have, by whose names they cannot be given out: nothing starts there until then.
    is_closed: bool,
}

impl Resized {
    const fn state(&self) -> NodeState {
        if self.is_closed {
            NodeState::Closed
        } else {
            NodeState::Up
        }
    }
}

impl Node {
    pub(super) fn starting(name: String, daemon: NodeId) -> Self {
        Self {
            name,
            slots: 0,
            is_implicit: true,
            is_drained: false,
            standing: NodeStanding::Starting,
            part: Part::Stays,
            daemon: Some(daemon),
            gpus: None,
            has: Amounts::default(),
        }
    }

    /// Returns true for a node that is listed.
    pub(super) fn is_listed(&self) -> bool {
        self.part != Part::Gone
    }

    /// Returns true if it has joined, and was neither lost nor dropped. The user may have drained it.
    pub(super) const fn is_usable(&self) -> bool {
        let has_joined = matches!(self.standing, NodeStanding::Up | NodeStanding::Drained);
        has_joined && self.slots > 0
    }

    /// Checks that the user may open or close it.
    fn can_be(&self, state: NodeState) -> Result<(), NotDone> {
        match (self.part, &self.standing) {
            (Part::Told, _) if state == NodeState::Up => Err(NotDone::NodeEnds(self.name.clone())),
            (Part::Stays, NodeStanding::Bad(_)) => Err(NotDone::NodeBad(self.name.clone())),
            _ => Ok(()),
        }
    }

    /// Returns why it cannot be added: it is about to leave.
    fn leaves(&self) -> Option<NotDone> {
        match self.part {
            Part::Leaves => Some(NotDone::NodeLeaves(self.name.clone())),
            Part::Told => Some(NotDone::NodeEnds(self.name.clone())),
            Part::Stays | Part::Gone => None,
        }
    }

    fn shown(&self) -> NodeStanding {
        match self.part {
            Part::Stays | Part::Gone => self.standing.clone(),
            Part::Leaves | Part::Told => NodeStanding::Leaving,
        }
    }
}

impl Machine {
    /// Begins with these nodes, whose daemons have the same numbers.
    pub(super) fn begin_with(&mut self, names: &[String], local: Option<NodeId>) {
        for (id, name) in (0..).map(NodeId).zip(names) {
            self.nodes.insert(id, Node::starting(name.clone(), id));
            self.comings.of_daemon.insert(id, id);
            self.comings.next_daemon = id.0 + 1;
        }
        self.comings.local = local;
    }

    /// Notes that a daemon has this number, and is none of the machine's nodes.
    pub fn keep_number(&mut self, daemon: NodeId) {
        self.comings.next_daemon = self.comings.next_daemon.max(daemon.0.saturating_add(1));
    }

    /// Gives nodes that only jobs name a number, so that these jobs can start there when the nodes are added.
    pub(super) fn foresee(&mut self, hosts: &HostList) {
        for host in hosts.iter() {
            if self.number_of(host).is_none() {
                let number = self.next_number();
                let node = Node {
                    // Nobody starts it.
                    standing: NodeStanding::Bad("nobody has added it".to_owned()),
                    part: Part::Gone,
                    daemon: None,
                    ..Node::starting(host.to_owned(), number)
                };
                self.nodes.insert(number, node);
            }
        }
    }

    fn number_of(&self, name: &str) -> Option<NodeId> {
        let mut nodes = self.nodes.iter();
        nodes.find(|(_, node)| node.name == name).map(|(id, _)| *id)
    }

    /// Returns the number of the next node that was never here. Nodes that are gone keep theirs.
    fn next_number(&self) -> NodeId {
        NodeId(u32::try_from(self.nodes.len()).unwrap_or(u32::MAX))
    }

    /// Notes that the daemon of a node has joined. Jobs may start there.
    pub fn node_up(
        &mut self,
        now: Time,
        daemon: NodeId,
        (slots, said): (u32, Slots),
        found: &NodeResources,
    ) {
        let id = self.comings.of_daemon.get(&daemon).copied();
        let Some((id, node)) = id.and_then(|id| Some((id, self.nodes.get_mut(&id)?))) else {
            return;
        };
        node.slots = slots.max(1);
        node.is_implicit = said == Slots::Implicit;
        node.standing = NodeStanding::Up;
        let has = self.counted.of_node(&node.name, node.slots, found);
        let gpus = found.gpus.clone().map(GpuTable::new);
        match self.queue.node(id) {
            // Jobs that go on without the lost daemon still have part of the node. It keeps what it had until they have ended.
            Some((capacity, free, _)) if capacity != free => {
                node.slots = capacity.slots;
                node.has = capacity.clone();
                let is_same = match (&node.gpus, &found.gpus) {
                    (Some(before), Some(found)) => before.is(found),
                    (before, found) => before.is_none() && found.is_none(),
                };
                let resized = Resized {
                    capacity: has,
                    gpus,
                    is_closed: !is_same,
                };
                let state = resized.state();
                self.comings.resizing.insert(id, resized);
                self.queue.set_node(id, state);
            }
            there => {
                let is_there = there.is_some();
                node.gpus = gpus;
                node.has = has.clone();
                if is_there {
                    self.queue.remove_node(id);
                }
                self.queue.add_node(id, has);
            }
        }
        if node.is_drained || node.part == Part::Leaves {
            node.standing = NodeStanding::Drained;
            self.queue.set_node(id, NodeState::Closed);
        }
        self.fit_to_nodes();
        self.settle(now);
    }

    /// Lets jobs that wait for more than the usable nodes have ask for what those have, if they ask for all that there is. Jobs
    /// that name an amount wait for it, and so do those that may use no usable node. While nodes are being started, nobody knows what
    /// there will be.
    pub(super) fn fit_to_nodes(&mut self) {
        let nodes = &self.nodes;
        let starts = |node: &Node| node.standing == NodeStanding::Starting;
        if nodes.values().any(starts) || planted::is(Bug::LostNodesCount) {
            return;
        }
        let is_usable = |id: NodeId| nodes.get(&id).is_some_and(Node::is_usable);
        for id in self.queue.too_large(is_usable) {
            let Some(entry) = self.jobs.get_mut(&id) else {
                continue;
            };
            let sharing = entry.record.wishes.sharing;
            let Work::Programs(spec) = &entry.work else {
                continue;
            };
            let spec = spec.open();
            let demand = demand(&spec, sharing, nodes, &mut self.counted, None);
            let is_admitted =
                |id: &NodeId| demand.only.as_ref().is_none_or(|only| only.contains(id));
            if !nodes.keys().any(|id| is_usable(*id) && is_admitted(id)) {
                continue;
            }
            let slots = demand.units.saturating_mul(demand.unit.slots);
            if slots != entry.record.slots && self.queue.set_demand(id, demand) {
                entry.record.slots = slots;
                self.books.touch(id);
            }
        }
    }

    /// Notes why nodes did not join. [`Self::node_lost`] follows for each of them.
    pub fn not_joined(&mut self, failed: &NotJoined) {
        let nodes = &self.nodes;
        for adding in &mut self.comings.adding {
            let added = adding.nodes.iter().filter_map(|id| nodes.get(id));
            let added: BTreeSet<&str> = added.map(|node| node.name.as_str()).collect();
            for class in &failed.classes {
                let hosts = class.hosts.iter().filter(|host| added.contains(host));
                let hosts: HostList = hosts.collect();
                if !hosts.is_empty() {
                    let class = class.clone();
                    adding.failed.push(NotJoinedClass { hosts, ..class });
                }
            }
        }
    }

    /// Notes that a daemon cannot be used any more. Its runs end by themselves.
    pub fn node_lost(&mut self, now: Time, daemon: NodeId, why: &str) {
        let Some(id) = self.comings.of_daemon.remove(&daemon) else {
            return;
        };
        self.queue.set_node(id, NodeState::Closed);
        if let Some(node) = self.nodes.get_mut(&id) {
            node.standing = NodeStanding::Bad(why.to_owned());
            if node.part != Part::Stays {
                self.gone(id);
            }
        }
        self.fit_to_nodes();
        self.settle(now);
    }

    /// Adds nodes, or starts the daemons of bad ones again. The answer comes when their daemons have joined or failed.
    pub(super) fn add_nodes(
        &mut self,
        front: FrontId,
        additions: Additions,
    ) -> Result<Option<Reply>, NotDone> {
        if self.down.is_some() {
            return Err(NotDone::GoingDown);
        }
        let Additions { nodes, environment } = additions;
        let count = u32::try_from(nodes.len()).unwrap_or(u32::MAX);
        if self.comings.next_daemon.saturating_add(count) > STARTS_MAX {
            return Err(NotDone::TooManyStarts(STARTS_MAX));
        }
        let known = self.nodes.iter().map(|(id, node)| (&node.name, *id));
        let known: BTreeMap<&String, NodeId> = known.collect();
        let named = nodes.iter().map(|said| known.get(&said.name).copied());
        let named: Vec<Option<NodeId>> = named.collect();
        for id in named.iter().flatten() {
            if let Some(node) = self.nodes.get(id)
                && let Some(why) = node.leaves()
            {
                return Err(why);
            }
        }
        let mut adding = Adding {
            front,
            nodes: BTreeSet::new(),
            there: HostList::default(),
            failed: Vec::new(),
        };
        let mut started = Vec::new();
        for (said, known) in nodes.into_iter().zip(named) {
            let id = known.unwrap_or_else(|| self.next_number());
            match self.nodes.get(&id) {
                Some(node)
                    if node.part == Part::Stays
                        && !matches!(node.standing, NodeStanding::Bad(_)) =>
                {
                    adding.there.push(&node.name);
                    continue;
                }
                _ => {}
            }
            adding.nodes.insert(id);
            started.extend(self.begin_to_start(id, said));
        }
        if !started.is_empty() {
            let output = MachineOutput::AddNodes {
                nodes: started,
                environment,
            };
            self.outputs.push_back(output);
        }
        self.comings.adding.push(adding);
        Ok(None)
    }

    /// Notes that a node gets a daemon. Returns it with the daemon's number, unless it has one.
    fn begin_to_start(
        &mut self,
        id: NodeId,
        said: AllocatedNode,
    ) -> Option<(NodeId, AllocatedNode)> {
        let before = self.nodes.get(&id).and_then(|node| node.daemon);
        if let Some(local) = before.filter(|daemon| self.comings.local == Some(*daemon)) {
            self.nodes
                .insert(id, Node::starting(said.name.clone(), local));
            self.comings.of_daemon.insert(local, id);
            self.outputs.push_back(MachineOutput::Reopen(local, said));
            return None;
        }
        if let Some(before) = before {
            self.outputs.push_back(MachineOutput::Forget(before));
        }
        let daemon = NodeId(self.comings.next_daemon);
        self.comings.next_daemon += 1;
        self.comings.of_daemon.insert(daemon, id);
        self.comings.leaving.remove(&id);
        let mut node = Node::starting(said.name.clone(), daemon);
        // What its lost daemon had counts until the next one has joined, and tasks that go on without that daemon still have some.
        node.slots = self.queue.node(id).map_or(0, |(all, ..)| all.slots);
        if let Some(before) = self.nodes.remove(&id) {
            node.is_implicit = before.is_implicit;
            node.gpus = before.gpus;
            node.has = before.has;
        }
        self.nodes.insert(id, node);
        Some((daemon, said))
    }

    /// Drops nodes. The answer comes when they are gone.
    pub(super) fn drop_nodes(
        &mut self,
        front: FrontId,
        hosts: &HostList,
        down: Down,
    ) -> Result<Option<Reply>, NotDone> {
        let nodes: BTreeSet<NodeId> = self.named(hosts)?;
        if down == Down::IfIdle {
            let tasks = nodes.iter().flat_map(|id| self.queue.tasks_on(*id));
            let tasks: BTreeSet<TaskId> = tasks.collect();
            if !tasks.is_empty() {
                return Err(NotDone::NodesBusy(tasks.len()));
            }
        }
        for id in &nodes {
            let Some(node) = self.nodes.get_mut(id) else {
                continue;
            };
            match (node.part, &node.standing) {
                (Part::Told | Part::Gone, _) => continue,
                (Part::Leaves | Part::Stays, NodeStanding::Bad(_)) => {
                    self.gone(*id);
                    continue;
                }
                (Part::Leaves | Part::Stays, _) => node.part = Part::Leaves,
            }
            self.comings.leaving.insert(*id);
            self.queue.set_node(*id, NodeState::Closed);
            if down == Down::Now {
                for task in self.queue.tasks_on(*id) {
                    self.drive_out(task);
                }
            }
        }
        self.comings.dropping.push(Dropping { front, nodes });
        Ok(None)
    }

    /// Ends a task whose node is dropped. It waits again if it may, and is canceled otherwise.
    fn drive_out(&mut self, task: TaskId) {
        let job = self.jobs.get(&task.job);
        let wishes = job.map(|entry| entry.record.wishes.on_node_loss);
        if wishes == Some(Requeue::OnNodeLoss) {
            self.queue.evict(task);
        } else {
            let index = Rank(task.index.unwrap_or(0));
            self.cancel_some(task.job, &RankSet::single(index));
            self.books.touch(task.job);
        }
    }

    /// Returns the numbers of these nodes.
    pub(super) fn named(&self, hosts: &HostList) -> Result<BTreeSet<NodeId>, NotDone> {
        let listed = self.nodes.iter().filter(|(_, node)| node.is_listed());
        let listed = listed.map(|(id, node)| (node.name.as_str(), *id));
        let listed: BTreeMap<&str, NodeId> = listed.collect();
        let found = hosts.iter().map(|host| {
            let known = listed.get(host).copied();
            known.ok_or_else(|| NotDone::NoSuchNode(host.to_owned()))
        });
        found.collect()
    }

    /// Opens nodes for jobs, or closes them.
    pub(super) fn set_nodes(
        &mut self,
        hosts: &HostList,
        state: NodeState,
    ) -> Result<Reply, NotDone> {
        let named = self.named(hosts)?;
        for id in &named {
            if let Some(node) = self.nodes.get(id) {
                node.can_be(state)?;
            }
        }
        for id in named {
            let Some(node) = self.nodes.get_mut(&id) else {
                continue;
            };
            match (node.part, &node.standing) {
                (Part::Stays, NodeStanding::Starting) => {
                    node.is_drained = state == NodeState::Closed;
                }
                (Part::Stays, NodeStanding::Up | NodeStanding::Drained) => {
                    node.standing = match state {
                        NodeState::Up => NodeStanding::Up,
                        NodeState::Closed => NodeStanding::Drained,
                    };
                    self.open_or_close(id, state);
                }
                (Part::Leaves, _) if state == NodeState::Up => {
                    node.part = Part::Stays;
                    node.is_drained = false;
                    self.comings.leaving.remove(&id);
                    if node.standing == NodeStanding::Starting {
                        // The queue opens it when its daemon has joined.
                        continue;
                    }
                    node.standing = NodeStanding::Up;
                    self.open_or_close(id, state);
                }
                _ => {}
            }
        }
        Ok(Reply::Done)
    }

    /// Opens or closes a node in the queue. One whose tasks have GPUs of its lost daemon is opened when they have ended.
    fn open_or_close(&mut self, id: NodeId, state: NodeState) {
        let waits = self.comings.resizing.get(&id);
        if !waits.is_some_and(|resized| resized.is_closed) {
            self.queue.set_node(id, state);
        }
    }

    /// Takes a node out of the listing. It keeps its number.
    fn gone(&mut self, id: NodeId) {
        self.comings.leaving.remove(&id);
        let Some(node) = self.nodes.get_mut(&id) else {
            return;
        };
        node.part = Part::Gone;
        node.slots = 0;
        self.comings.resizing.remove(&id);
        let daemon = node.daemon;
        self.fit_to_nodes();
        // If jobs that go on without it have part of it, the queue keeps it until they have ended.
        if self.queue.tasks_on(id).is_empty() {
            self.queue.remove_node(id);
        } else {
            self.comings.leaving.insert(id);
        }
        if let Some(daemon) = daemon.filter(|daemon| self.comings.local != Some(*daemon)) {
            self.comings.of_daemon.remove(&daemon);
            self.outputs.push_back(MachineOutput::Forget(daemon));
        }
    }

    /// Gives nodes the resources with which they came back, when no task has part of them any more.
    pub(super) fn resize_nodes(&mut self) {
        let idle = self.comings.resizing.keys().copied();
        let idle: Vec<NodeId> = idle
            .filter(|id| self.queue.tasks_on(*id).is_empty())
            .collect();
        for id in idle {
            let resized = self.comings.resizing.remove(&id);
            let (Some(resized), Some(node)) = (resized, self.nodes.get_mut(&id)) else {
                continue;
            };
            let is_open = node.standing == NodeStanding::Up && node.part == Part::Stays;
            node.slots = resized.capacity.slots;
            node.gpus = resized.gpus;
            node.has = resized.capacity.clone();
            self.queue.remove_node(id);
            self.queue.add_node(id, resized.capacity);
            self.queue.set_node(
                id,
                if is_open {
                    NodeState::Up
                } else {
                    NodeState::Closed
                },
            );
            self.fit_to_nodes();
        }
    }

    /// Tells daemons to end whose nodes have no task any more, and answers fronts that wait for nodes. Part of [`Self::settle`].
    pub(super) fn settle_nodes(&mut self) {
        let idle = self.comings.leaving.iter().copied();
        let idle: Vec<NodeId> = idle
            .filter(|id| self.queue.tasks_on(*id).is_empty())
            .collect();
        for id in idle {
            let Some(node) = self.nodes.get_mut(&id) else {
                continue;
            };
            let Some(daemon) = node.daemon else {
                continue;
            };
            if node.part == Part::Gone {
                self.comings.leaving.remove(&id);
                self.queue.remove_node(id);
                continue;
            }
            if node.standing == NodeStanding::Starting {
                continue;
            }
            if self.comings.local == Some(daemon) {
                self.gone(id);
            } else {
                node.part = Part::Told;
                self.comings.leaving.remove(&id);
                self.outputs.push_back(MachineOutput::Leave(daemon));
            }
        }
        self.tell_added();
        self.tell_dropped();
    }

    fn tell_added(&mut self) {
        let nodes = &self.nodes;
        let starts = |id: &NodeId| {
            let node = nodes.get(id);
            node.is_some_and(|node| node.standing == NodeStanding::Starting)
        };
        let is_done = |adding: &mut Adding| !adding.nodes.iter().any(starts);
        let done: Vec<Adding> = self.comings.adding.extract_if(.., is_done).collect();
        for adding in done {
            let all = adding.nodes.iter().filter_map(|id| self.nodes.get(id));
            let joined = all.filter(|node| !matches!(node.standing, NodeStanding::Bad(_)));
            let joined: HostList = joined.map(|node| node.name.as_str()).collect();
            let count = |nodes: usize| u32::try_from(nodes).unwrap_or(u32::MAX);
            let added = Added {
                there: adding.there,
                failed: NotJoined {
                    classes: adding.failed,
                    nodes: count(adding.nodes.len()),
                    joined: count(joined.len()),
                },
                joined,
            };
            self.reply(adding.front, Reply::Added(Box::new(added)));
        }
    }

    fn tell_dropped(&mut self) {
        let nodes = &self.nodes;
        let is_gone = |id: &NodeId| nodes.get(id).is_none_or(|node| node.part == Part::Gone);
        let stays = |id: &NodeId| nodes.get(id).is_some_and(|node| node.part == Part::Stays);
        for dropping in &mut self.comings.dropping {
            dropping.nodes.retain(|id| !is_gone(id));
        }
        let is_over = |dropping: &mut Dropping| dropping.nodes.iter().all(stays);
        let done: Vec<Dropping> = self.comings.dropping.extract_if(.., is_over).collect();
        for dropping in done {
            let back = dropping.nodes.first().and_then(|id| self.nodes.get(id));
            let reply = match back {
                None => Reply::Done,
                // It was resumed, or added again, before the front was told.
                Some(node) => Reply::Refused(NotDone::NodeStays(node.name.clone())),
            };
            self.reply(dropping.front, reply);
        }
    }

    /// Forgets a front that waits for nodes. What it has ordered goes on.
    pub(super) fn nodes_front_lost(&mut self, front: FrontId) {
        self.comings.adding.retain(|adding| adding.front != front);
        self.comings.dropping.retain(|one| one.front != front);
    }

    /// Returns counted resources: all, and what is free. Memory of a node that nobody knows is left out.
    pub(super) fn resources_of(
        &self,
        all: &Amounts,
        free: &Amounts,
    ) -> BTreeMap<String, (u64, u64)> {
        let free = self.counted.named(free);
        let all = self.counted.named(all).into_iter();
        let known = all.filter(|(name, count)| name != MEMORY || *count != UNKNOWN);
        known
            .map(|(name, count)| {
                let free = free.get(&name).copied().unwrap_or(0);
                (name, (count, free))
            })
            .collect()
    }

    pub(super) fn node_lines(&self) -> Vec<NodeLine> {
        let mut jobs: BTreeMap<NodeId, BTreeSet<base::JobId>> = BTreeMap::new();
        let runs = self.runs.values().copied();
        for task in runs.chain(self.held_allocations()) {
            for (node, _) in self.queue.units(task).into_iter().flatten() {
                jobs.entry(*node).or_default().insert(task.job);
            }
        }
        let listed = self.nodes.iter().filter(|(_, node)| node.is_listed());
        let lines = listed.map(|(id, node)| {
            let known = self.queue.node(*id);
            let free = known.map_or(0, |(_, free, _)| free.slots);
            let free = free.min(node.slots);
            let resources = known.map(|(all, free, _)| self.resources_of(all, free));
            NodeLine {
                name: node.name.clone(),
                number: node.daemon.unwrap_or(*id),
                state: node.shown(),
                slots: node.slots,
                free,
                resources: resources.unwrap_or_default(),
                jobs: jobs.remove(id).unwrap_or_default().into_iter().collect(),
            }
        });
        lines.collect()
    }
}
