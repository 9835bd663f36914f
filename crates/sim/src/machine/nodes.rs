//! Nodes that come and go.
//!
//! The model knows nodes by their names: `n3` is node 3, whatever the number of its daemon. The machine speaks of daemons.

use std::collections::BTreeMap;

use base::{HostList, NodeId};
use dvm::{
    alloc::{AllocatedNode, Slots},
    machine::{Additions, Ask, Down, Grant},
    proto::FrontId,
};

use super::{Call, Event, World, needs::Standing, questions::Asked};

impl World {
    /// Decides whether the daemon of a node joins.
    pub(super) fn start_node(&mut self, id: NodeId) {
        let wait = self.rng.millis(0, 800);
        let is_lost = self.rng.chance(4) && !self.is_calm;
        let event = if is_lost {
            Event::NodeLost
        } else {
            Event::NodeUp
        };
        self.later(wait, event(id));
    }

    /// The machine starts daemons.
    pub(super) fn start_nodes(&mut self, nodes: &[(NodeId, AllocatedNode)]) {
        for (daemon, said) in nodes {
            let number = said.name.trim_start_matches('n').parse().map(NodeId);
            let node = number
                .ok()
                .and_then(|id| Some((id, self.nodes.get_mut(&id)?)));
            let Some((id, node)) =
                node.filter(|(_, node)| matches!(node.standing, Standing::Lost | Standing::Gone))
            else {
                let wrong = format!("{} is started, and is there", said.name);
                return self.fault(Some(wrong));
            };
            node.daemon = *daemon;
            node.standing = Standing::Starting;
            node.closed_since = None;
            node.is_drained = false;
            self.start_node(id);
        }
    }

    /// Returns the names of the nodes that the machine lists.
    pub(super) fn listed(&self) -> Vec<String> {
        let nodes = self.nodes.iter();
        let listed = nodes.filter(|(_, node)| node.standing != Standing::Gone);
        listed.map(|(id, _)| format!("n{id}")).collect()
    }

    fn node_of(&self, daemon: NodeId) -> Option<NodeId> {
        let mut nodes = self.nodes.iter();
        nodes
            .find(|(_, node)| node.daemon == daemon)
            .map(|(id, _)| *id)
    }

    /// The machine tells a daemon to end.
    pub(super) fn leave(&mut self, daemon: NodeId) {
        let Some(id) = self.node_of(daemon) else {
            return self.fault(Some(format!("daemon {daemon} is to leave, and is none")));
        };
        let node = self.nodes.get_mut(&id);
        let is_dropped = node.is_some_and(|node| {
            node.is_told = true;
            node.is_dropped
        });
        self.fault((!is_dropped).then(|| format!("n{id} is to leave, and nobody wants that")));
        let busy = self.runs.on(id).into_iter().next();
        self.fault(busy.map(|task| format!("n{id} is to leave, and {task} runs there")));
        let wait = self.rng.millis(0, 500);
        self.later(wait, Event::NodeGone(id));
    }

    pub(super) fn node_gone(&mut self, id: NodeId) {
        let node = self.nodes.get(&id);
        if node.is_some_and(|node| node.is_told) {
            self.lose_node(id);
        }
    }

    /// Tells the machine that a daemon is lost, or did not start.
    pub(super) fn lose_node(&mut self, id: NodeId) {
        self.note(|| format!("node {id} is lost"));
        self.model.call += 1;
        let call = self.model.call;
        let node = self.nodes.get_mut(&id);
        let Some(node) = node.filter(|node| node.standing != Standing::Gone) else {
            return;
        };
        let daemon = node.daemon;
        node.is_told = false;
        node.standing = if std::mem::take(&mut node.is_dropped) {
            node.slots = 0;
            Standing::Gone
        } else {
            Standing::Lost
        };
        node.closed_since.get_or_insert(call);
        self.model.fit_to_nodes(&self.nodes);
        self.end_on(id);
        let now = self.agenda.now;
        self.call(Call::Other, |machine| {
            machine.node_lost(now, daemon, "no answer");
        });
    }

    /// Names the nodes of a grant as the model knows them.
    pub(super) fn by_name(&mut self, grant: Grant) -> Grant {
        let mut slots = BTreeMap::new();
        for (daemon, count) in grant.slots {
            match self.node_of(daemon) {
                Some(id) => drop(slots.insert(id, count)),
                None => self.fault(Some(format!("daemon {daemon} is granted, and is none"))),
            }
        }
        let gpus = grant.gpus.into_iter();
        let gpus = gpus.filter_map(|(daemon, gpus)| Some((self.node_of(daemon)?, gpus)));
        Grant {
            slots,
            gpus: gpus.collect(),
            sharing: grant.sharing,
        }
    }

    /// A front adds nodes.
    pub(super) fn add_nodes(&mut self, front: FrontId, ids: &[NodeId]) {
        let node = |id: &NodeId| AllocatedNode {
            name: format!("n{id}"),
            slots: Slots::Implicit,
            max_slots: None,
            granted: None,
        };
        let additions = Additions {
            nodes: ids.iter().map(node).collect(),
            environment: Vec::new(),
        };
        let ask = Ask::Add(Box::new(additions));
        self.ask(front, ask, Some(Asked::Add));
    }

    /// A front drops a node. Not a bad one: tasks that are being stored may have part of it, and nobody here knows them.
    pub(super) fn drop_node(&mut self, front: FrontId, id: NodeId) {
        let call = self.model.call + 1;
        let Some(node) = self.nodes.get_mut(&id) else {
            return;
        };
        match node.standing {
            Standing::Up => {}
            Standing::Starting if node.daemon == id => {}
            _ => return,
        }
        node.is_dropped = true;
        node.closed_since.get_or_insert(call);
        let hosts: HostList = [format!("n{id}").as_str()].into_iter().collect();
        // A start that is being stored has no run yet, so that nobody here knows whether it has to end.
        let down = if !self.disk.is_writing() && !self.disk.has_failed && self.rng.chance(50) {
            Down::Now
        } else {
            Down::WhenIdle
        };
        if down == Down::Now {
            for task in self.runs.on(id) {
                self.model.drive_out(task.job, task.index.unwrap_or(0));
            }
        }
        let ask = Ask::Drop(hosts, down);
        self.ask(front, ask, Some(Asked::Drop(id)));
    }
}
