//! What a job needs of the queue, computed from what it asks of the placement.

use std::collections::{BTreeMap, BTreeSet};

use base::NodeId;

use super::{Counted, Extras, Machine, Node, ResourceOf, TooMuch};
use crate::{
    place::{self, MapTo, Oversubscribe, Per},
    queue::{Amounts, Demand, Sharing, Spread},
    spec::JobSpec,
};

/// The slots that a job needs: see [`Demand`].
struct Slots {
    units: u32,
    unit: u32,
    /// The most procs of a unit; `None`: they are not known, because the job gets whole nodes.
    procs: Option<u32>,
    spread: Spread,
}

/// The nodes of a machine, as a job sees them.
struct View<'a> {
    nodes: &'a BTreeMap<NodeId, Node>,
    /// Nodes that the job may use; `None` means all.
    only: Option<&'a BTreeSet<NodeId>>,
    /// What a node has to have of counted resources for one proc of the job.
    least: Amounts,
}

/// Returns the demand of a job. It is the least with which the job can be placed as the user wants.
///
/// A job that does not say how many procs it has gets all slots of the nodes that it may use, as it does without a machine. Nodes that were
/// lost do not count: see [`super::Machine::fit_to_nodes`].
pub(super) fn demand(
    spec: &JobSpec,
    sharing: Sharing,
    nodes: &BTreeMap<NodeId, Node>,
    resources: &mut Counted,
    accepted: Option<u32>,
) -> Demand {
    let request = &spec.placement;
    let only = only(request, nodes);
    let extras = Extras::of(spec);
    let mut least = resources.amounts(0, &extras.proc);
    least.add(&resources.amounts(0, &extras.node));
    let view = View {
        nodes,
        only: only.as_ref(),
        least,
    };
    let slots = slots(request, &view, accepted);
    let sharing = slots.procs.map_or(Sharing::Exclusive, |_| sharing);
    // Of a whole node, the job may use all there is.
    let procs = u64::from(slots.procs.unwrap_or(1));
    let counted = extras.proc.into_iter();
    let counted = counted.map(|(name, count)| (name, count.saturating_mul(procs)));
    Demand {
        units: slots.units,
        unit: resources.amounts(slots.unit, &counted.collect()),
        per_node: resources.amounts(0, &extras.node),
        spread: slots.spread,
        sharing,
        shared: resources.amounts(0, &extras.job),
        only,
    }
}

impl Machine {
    /// `accepted` is for a job that was accepted by an earlier machine, when no node has joined this one: the slots that it has then.
    pub(super) fn demand(
        &mut self,
        spec: &JobSpec,
        sharing: Sharing,
        accepted: Option<u32>,
    ) -> Demand {
        demand(spec, sharing, &self.nodes, &mut self.counted, accepted)
    }

    /// Checks that there is a node with what a unit of the job needs of each counted resource, and that the machine has what it needs as a
    /// whole.
    pub(super) fn check_room(&self, demand: &Demand) -> Result<(), TooMuch> {
        if !demand.is_counted() {
            return Ok(());
        }
        let mut unit = demand.unit.clone();
        unit.add(&demand.per_node);
        let nodes = self.nodes.keys();
        let all = nodes.filter_map(|id| Some(self.queue.node(*id)?.0));
        let all: Vec<BTreeMap<String, u64>> = all.map(|all| self.counted.named(all)).collect();
        let on_node = self.counted.named(&unit).into_iter().map(|(name, needed)| {
            let most = all.iter().filter_map(|has| has.get(&name)).max();
            (name, needed, most.copied().unwrap_or(0), ResourceOf::Node)
        });
        let shared = self.counted.named(self.queue.shared());
        let of_machine = self.counted.named(&demand.shared).into_iter();
        let of_machine = of_machine.map(|(name, needed)| {
            let most = shared.get(&name).copied().unwrap_or(0);
            (name, needed, most, ResourceOf::Machine)
        });
        let mut both = on_node.chain(of_machine);
        match both.find(|(_, needed, most, _)| needed > most) {
            Some((name, needed, most, of)) => Err(TooMuch {
                name,
                needed,
                most,
                of,
            }),
            None => Ok(()),
        }
    }
}

/// Returns the slots that a job needs.
fn slots(request: &place::Request, view: &View<'_>, accepted: Option<u32>) -> Slots {
    if !is_uniform(request) {
        // What each app gets depends on what the others get, and where.
        return view.whole(accepted);
    }
    let counted = view.counted();
    let all = counted
        .iter()
        .map(|node| node.slots)
        .fold(0, u32::saturating_add);
    let mut procs_of_apps = request.apps.iter().map(|app| app.count);
    let map = request.map_of_all();
    let each = request.cpus_per_proc();
    // The units, the slots and the most procs of each.
    let (units, unit, procs, spread) = match map.and_then(|map| map.to.as_ref()) {
        // These choose nodes themselves.
        Some(MapTo::Rankfile(_) | MapTo::Sequence(_) | MapTo::PeList { .. }) => {
            return view.whole(accepted);
        }
        Some(MapTo::Ppr {
            per: Per::Object(_),
            ..
        }) => return view.whole(accepted),
        Some(MapTo::Ppr {
            count,
            per: Per::Node,
        }) => {
            let count = (*count).max(1);
            let procs =
                procs_of_apps.try_fold(0_u32, |sum, count| Some(sum.saturating_add(count?)));
            let nodes = procs.map_or_else(
                || u32::try_from(counted.len()).unwrap_or(u32::MAX),
                |procs| procs.div_ceil(count),
            );
            let most = procs.map_or(count, |procs| procs.clamp(1, count));
            (
                nodes.max(1),
                count.saturating_mul(each),
                most,
                Spread::Scatter,
            )
        }
        Some(MapTo::Slot | MapTo::Node | MapTo::Object(_)) | None => {
            let procs = match request.apps.as_slice() {
                [app] => app.count.unwrap_or(all / each),
                _ => procs_of_apps.fold(0_u32, |sum, count| sum.saturating_add(count.unwrap_or(1))),
            };
            (procs.max(1), each, 1, Spread::Pack)
        }
    };
    let oversubscribe = map.and_then(|map| map.oversubscribe);
    let may_share = match oversubscribe.unwrap_or(request.oversubscribe) {
        Oversubscribe::Allow => true,
        Oversubscribe::Refuse => false,
        Oversubscribe::WhereImplicit => {
            // Of nodes that were never there, nobody knows whether they may be shared.
            all > 0 && counted.iter().all(|node| node.is_implicit)
        }
    };
    // A job whose procs may share slots needs no more slots than there are. Its procs share nothing else.
    let there = match accepted {
        Some(slots) => (slots / unit).max(1),
        None if may_share => units.min((all / unit).max(1)),
        None => units,
    };
    let procs = if there < units {
        procs.saturating_mul(units).div_ceil(there)
    } else {
        procs
    };
    Slots {
        units: there,
        unit,
        procs: Some(procs),
        spread,
    }
}

/// Returns true if all apps of a job are placed by one rule, so that the number of slots says whether there is room for them.
fn is_uniform(request: &place::Request) -> bool {
    let [first, others @ ..] = request.apps.as_slice() else {
        return true;
    };
    let is_alike = |app: &place::AppRequest| {
        let maps = [app, first].map(|app| app.map_by.as_ref().or(request.map_by.as_ref()));
        app.hosts == first.hosts && maps[0] == maps[1]
    };
    let map = request.map_of_all();
    let is_ppr = map.is_some_and(|map| matches!(map.to, Some(MapTo::Ppr { .. })));
    others.iter().all(is_alike) && (others.is_empty() || !is_ppr)
}

impl View<'_> {
    /// Returns the need for all nodes that count.
    fn whole(&self, accepted: Option<u32>) -> Slots {
        let count = self.counted().len();
        let count = accepted.unwrap_or_else(|| u32::try_from(count).unwrap_or(u32::MAX));
        Slots {
            units: count.max(1),
            unit: 1,
            procs: None,
            spread: Spread::Scatter,
        }
    }

    /// Returns the nodes that count: the usable ones that have what a proc needs. If all of them are lost, the job waits for what they
    /// had.
    fn counted(&self) -> Vec<&Node> {
        let is_admitted = |id: &NodeId| self.only.is_none_or(|only| only.contains(id));
        let admitted = self.nodes.iter().filter(|(id, node)| {
            is_admitted(id) && (self.least.is_nothing() || node.has.covers(&self.least))
        });
        let admitted = admitted.map(|(_, node)| node);
        let usable: Vec<&Node> = admitted.clone().filter(|node| node.is_usable()).collect();
        if usable.is_empty() {
            return admitted.filter(|node| node.slots > 0).collect();
        }
        usable
    }
}

/// Returns the nodes that the apps of a job name; `None` if one of them may use any.
fn only(request: &place::Request, nodes: &BTreeMap<NodeId, Node>) -> Option<BTreeSet<NodeId>> {
    let mut names = BTreeSet::new();
    for app in &request.apps {
        names.extend(app.hosts.as_ref()?.iter());
    }
    let named = nodes
        .iter()
        .filter(|(_, node)| names.contains(node.name.as_str()));
    Some(named.map(|(id, _)| *id).collect())
}
