//! Placement: assigns ranks to nodes and binds them to PUs.
//!
//! [`place`] is a pure function of the user's request, the allocation and the topologies of its nodes. It works in four
//! steps, each in a file of its own:
//!
//! 1. `resolve`: adds defaults and implied policies to what the user requested.
//! 2. `count`: computes how many procs of each app go to each node.
//! 3. `node`: chooses an object and PUs for each proc of a node. Nodes that look alike are placed once.
//! 4. `number`: assigns ranks to the procs, as blocks of a [`JobMap`].
//!
//! Rankfiles, and `seq` with a list, name the node of every rank themselves. `listed` handles them.
//!
//! **Slots.** A node without a slot count from the user or a resource manager is *implicit*. It has as many slots as it
//! has cores that we may use, limited by the cgroup's CPU quota. It accepts more procs without an error; these then run
//! unbound, and the user gets one [`Note`]. A node with a slot count is *explicit*: it accepts no more procs, unless
//! oversubscription is allowed.
//!
//! **Binding** by default happens only where no other job uses the CPUs, see `tenancy`.
//!
//! **Bounds.** A job has at most [`MAX_RANKS`] ranks. The time and memory for placing grow with the number of nodes,
//! and with the number of ranks on nodes that look different. A million ranks on 100,000 equal nodes are one block.

mod count;
mod error;
mod explain;
mod listed;
mod map;
mod node;
mod number;
mod parse;
mod policy;
mod rankfile;
mod resolve;
mod tenancy;
#[cfg(test)]
mod tests;
mod topologies;

use std::collections::BTreeMap;

use base::{CpuSet, HostList, Level, NodeId, Rank, Topology};

use self::{
    count::Room,
    map::Builder,
    node::{Fit, Local, Machine},
    number::Look,
    resolve::{Asked, Resolved, Spread},
};
pub use self::{
    error::{Error, Note, SlotLimit},
    explain::{Explanation, explain},
    map::{AppPolicy, AppRanks, JobMap, Placed},
    parse::{PolicyError, PolicyProblem, bind_list, bind_to, map_by, map_by_file, rank_by},
    policy::{
        AppRequest, BindList, BindTarget, BindTo, Cores, CpuUnit, HostRef, MapBy, MapTo, Overload,
        Oversubscribe, Per, RankBy, RankLine, Rankfile, Request, Sharing, SlotSpec, Span,
    },
    rankfile::{MAX_RANKFILE, RankfileError, RankfileProblem, rankfile},
    topologies::{Topologies, TopologyDigest},
};
use crate::alloc::{Allocation, Slots};

/// Maximum number of ranks of a job.
pub const MAX_RANKS: u32 = 1 << 24;

/// Computes the map of a job.
pub fn place(
    request: &Request,
    allocation: &Allocation,
    topologies: &Topologies,
) -> Result<JobMap, Error> {
    if request.apps.is_empty() {
        return Err(Error::NoApps);
    }
    if allocation.nodes.is_empty() {
        return Err(Error::NoNodes);
    }
    if let Some(app) = request.apps.iter().position(|app| app.count == Some(0)) {
        return Err(Error::NoProcs {
            app: u32::try_from(app).unwrap_or(u32::MAX),
        });
    }
    let tenancy = tenancy::tenancy(request, allocation, topologies);
    let apps = request
        .apps
        .iter()
        .map(|app| resolve::resolve(request, app, tenancy))
        .collect::<Result<Vec<_>, _>>()?;
    check_together(request, &apps)?;
    let site = Site::new(request, allocation, topologies, &apps)?;
    match request.map_by.as_ref().and_then(|map| map.to.as_ref()) {
        Some(MapTo::Rankfile(file)) => listed::rankfile(&site, request, apps, file),
        Some(MapTo::Sequence(names)) if !names.is_empty() => {
            listed::sequence(&site, request, apps, names)
        }
        _ => regular(&site, request, apps),
    }
}

/// Checks that policies for the whole job are not given for one app, and that all apps count the same CPU unit.
fn check_together(request: &Request, apps: &[Resolved]) -> Result<(), Error> {
    for app in &request.apps {
        if let Some(to @ (MapTo::Rankfile(_) | MapTo::Sequence(_) | MapTo::PeList { .. })) =
            app.map_by.as_ref().and_then(|map| map.to.as_ref())
        {
            return Err(Error::NotPerApp {
                policy: to.to_string(),
            });
        }
    }
    if let [first, rest @ ..] = apps
        && let Some(other) = rest.iter().find(|app| app.unit != first.unit)
    {
        return Err(Error::Conflict {
            first: first.policy.map_by.to_string(),
            second: other.policy.map_by.to_string(),
        });
    }
    Ok(())
}

/// Allocation with the resources of its nodes: the part of the input that is the same for all apps.
struct Site<'a> {
    allocation: &'a Allocation,
    topologies: &'a Topologies,
    /// Usable resources of each kind of topology.
    machines: Vec<Machine<'a>>,
    unit: CpuUnit,
}

/// Returns the level of the objects that are grouped, and the number of objects in a group.
fn grouping(request: &Request) -> Result<Option<(Level, u32)>, Error> {
    let map = request.map_by.as_ref().and_then(|map| match map.to {
        Some(MapTo::Object(level)) => Some((level, map.group?)),
        _ => None,
    });
    let bind = request.bind_to.and_then(|bind| match bind.target {
        BindTarget::Object(level) => Some((level, bind.group?)),
        BindTarget::None | BindTarget::List => None,
    });
    match (map, bind) {
        (Some(map), Some(bind)) if map != bind => Err(Error::Conflict {
            first: request
                .map_by
                .as_ref()
                .map_or_else(String::new, ToString::to_string),
            second: request
                .bind_to
                .map_or_else(String::new, |bind| bind.to_string()),
        }),
        (map, bind) => Ok(map.or(bind)),
    }
}

/// Returns the name of a node with this kind of topology, for messages.
fn name_of(kind: u32, allocation: &Allocation, topologies: &Topologies) -> String {
    let mut nodes = (0..).zip(&allocation.nodes);
    let node = nodes.find(|(id, _)| topologies.kind(NodeId(*id)) == kind);
    node.map_or_else(String::new, |(_, node)| node.name.clone())
}

/// Returns the bindings of a node's procs. The error is a set that the user listed and that contains no usable PU.
fn list<'a>(bindings: &'a BindList, topology: &Topology) -> Result<Vec<CpuSet>, &'a CpuSet> {
    let allowed = topology.allowed();
    let usable = |listed: &'a CpuSet, set: CpuSet| {
        let set = set.intersection(allowed);
        if set.is_empty() { Err(listed) } else { Ok(set) }
    };
    match bindings {
        BindList::Each => Ok(allowed
            .iter()
            .map(|number| std::iter::once(number).collect())
            .collect()),
        BindList::Pus(sets) => sets.iter().map(|set| usable(set, set.clone())).collect(),
        BindList::Numa(sets) => {
            let pus = |nodes: &CpuSet| {
                let pus = topology.pus().iter();
                let of = pus.filter(|pu| pu.numa.is_some_and(|node| nodes.contains(node)));
                of.map(|pu| pu.os_index).collect()
            };
            sets.iter().map(|set| usable(set, pus(set))).collect()
        }
    }
}

impl<'a> Site<'a> {
    fn new(
        request: &Request,
        allocation: &'a Allocation,
        topologies: &'a Topologies,
        apps: &[Resolved],
    ) -> Result<Self, Error> {
        let unit = apps.first().map_or(CpuUnit::Core, |app| app.unit);
        let grouping = grouping(request)?;
        let mut machines = Vec::with_capacity(topologies.kinds().len());
        for (kind, topology) in (0..).zip(topologies.kinds()) {
            let mut machine = Machine::new(topology, request.cpus.as_ref(), unit);
            if let Some((level, size)) = grouping {
                machine = machine.grouped(level, size);
            }
            if let Some(MapTo::PeList { list, .. }) =
                request.map_by.as_ref().and_then(|map| map.to.as_ref())
            {
                let available = machine.len();
                let missing = |number| Error::NoSuchCpu {
                    node: name_of(kind, allocation, topologies),
                    number,
                    package: None,
                    available,
                    unit,
                };
                let units = list
                    .iter()
                    .map(|number| machine.unit(number).ok_or_else(|| missing(number)));
                let wanted = units
                    .collect::<Result<Vec<_>, _>>()?
                    .into_iter()
                    .flat_map(CpuSet::iter)
                    .collect();
                machine = Machine::new(topology, Some(&wanted), unit);
            }
            if let Some(bindings) = &request.bind_list {
                let list = list(bindings, topology).map_err(|wanted| Error::NoUsablePus {
                    node: name_of(kind, allocation, topologies),
                    wanted: wanted.to_string(),
                    usable: topology.allowed().to_string(),
                })?;
                machine = machine.with_list(list);
            }
            machines.push(machine);
        }
        Ok(Self {
            allocation,
            topologies,
            machines,
            unit,
        })
    }

    fn machine(&self, node: NodeId) -> Result<&Machine<'a>, Error> {
        let machine = self.machines.get(self.topologies.kind(node) as usize);
        machine
            .filter(|machine| machine.len() > 0)
            .ok_or_else(|| Error::NoCpus {
                node: self.name(node),
            })
    }

    fn name(&self, node: NodeId) -> String {
        self.allocation
            .nodes
            .get(node.0 as usize)
            .map_or_else(|| format!("+n{node}"), |node| node.name.clone())
    }

    /// Returns the nodes that an app may use.
    fn nodes(&self, app: &AppRequest) -> Result<Vec<NodeId>, Error> {
        let all = (0..).map(NodeId).zip(&self.allocation.nodes);
        let Some(hosts) = &app.hosts else {
            return Ok(all.map(|(id, _)| id).collect());
        };
        let known = all
            .map(|(id, node)| (node.name.as_str(), id))
            .collect::<BTreeMap<_, _>>();
        let mut nodes = Vec::with_capacity(hosts.len());
        for name in hosts.iter() {
            nodes.push(*known.get(name).ok_or_else(|| self.unknown(name))?);
        }
        nodes.sort_unstable();
        nodes.dedup();
        Ok(nodes)
    }

    fn unknown(&self, name: &str) -> Error {
        let names = self.allocation.nodes.iter().map(|node| node.name.as_str());
        Error::UnknownHost {
            name: name.to_owned(),
            nearest: message::nearest(name, names).map(str::to_owned),
        }
    }

    /// Returns how many procs of an app fit on a node that already has `taken` procs.
    fn room(&self, node: NodeId, app: &Resolved, taken: u32) -> Result<Room, Error> {
        let machine = self.machine(node)?;
        let fits = machine.room(app.scheme, app.each);
        let allocated = self.allocation.nodes.get(node.0 as usize);
        let max = allocated
            .and_then(|node| node.max_slots)
            .unwrap_or(u32::MAX);
        let (slots, most) = match allocated.map_or(Slots::Implicit, |node| node.slots) {
            Slots::Explicit(slots) => {
                // With several cores for each proc, a node is also full when its cores are used up.
                let slots = if app.each > 1 { slots.min(fits) } else { slots };
                (
                    slots,
                    if app.oversubscribe == Oversubscribe::Allow {
                        max
                    } else {
                        slots
                    },
                )
            }
            Slots::Implicit => {
                let granted = self
                    .granted(node)
                    .map_or(fits, |granted| fits.min(granted / app.each));
                let slots = granted.max(1).min(max);
                (
                    slots,
                    if app.oversubscribe == Oversubscribe::Refuse {
                        slots
                    } else {
                        max
                    },
                )
            }
        };
        let objects = match app.spread {
            Spread::Objects(level) | Spread::PerObject(_, level) => machine.objects(level),
            Spread::Fill | Spread::Nodes | Spread::PerNode(_) => 1,
        };
        Ok(Room {
            slots: slots.saturating_sub(taken),
            most: most.saturating_sub(taken),
            objects,
        })
    }

    /// Returns the CPU quota of a node's cgroup in whole CPUs, rounded up; `None` without a limit.
    fn granted(&self, node: NodeId) -> Option<u32> {
        Some(
            self.topologies
                .get(node)?
                .cpu_quota()?
                .div_ceil(1_000)
                .max(1),
        )
    }

    fn explicit(&self, node: NodeId) -> bool {
        self.allocation
            .nodes
            .get(node.0 as usize)
            .is_some_and(|node| matches!(node.slots, Slots::Explicit(_)))
    }

    /// Checks whether procs may stay unbound if a node has more of them than CPUs. Returns an error if the user asked
    /// for a binding on an explicit node that may not be oversubscribed.
    fn check_fit(
        &self,
        node: NodeId,
        fit: Fit,
        apps: &[Resolved],
        procs: u32,
    ) -> Result<(), Error> {
        let asked = apps.iter().find(|app| {
            app.bind_asked == Asked::ByUser && app.policy.bind_to.target != BindTarget::None
        });
        match asked {
            Some(app)
                if fit == Fit::TooMany
                    && self.explicit(node)
                    && app.oversubscribe != Oversubscribe::Allow =>
            {
                let available = self.machine(node)?.len();
                let bind = app.policy.bind_to.target.to_string();
                Err(Error::NotEnoughCpus {
                    node: self.name(node),
                    procs,
                    each: app.each,
                    available,
                    unit: self.unit,
                    bind,
                })
            }
            Some(_) | None => Ok(()),
        }
    }
}

/// Collected notes for the user: one note of each kind, for all nodes.
#[derive(Default)]
struct Notes {
    unbound: Vec<(NodeId, u32)>,
    over_quota: Vec<(NodeId, u32)>,
}

impl Notes {
    fn see(&mut self, site: &Site<'_>, node: NodeId, procs: u32, fit: Fit) -> Result<(), Error> {
        if fit == Fit::TooMany {
            self.unbound.push((node, procs));
        } else if site
            .granted(node)
            .is_some_and(|granted| granted < procs && granted < site.machines_len(node))
        {
            self.over_quota.push((node, procs));
        }
        site.machine(node).map(|_| ())
    }

    fn finish(self, site: &Site<'_>) -> Vec<Note> {
        let names = |nodes: &[(NodeId, u32)]| {
            nodes
                .iter()
                .map(|(node, _)| site.name(*node))
                .collect::<HostList>()
        };
        let procs = |nodes: &[(NodeId, u32)]| {
            nodes
                .iter()
                .map(|(_, procs)| *procs)
                .fold(0, u32::saturating_add)
        };
        let mut notes = Vec::new();
        if !self.unbound.is_empty() {
            let cpus = self
                .unbound
                .iter()
                .map(|(node, _)| site.machines_len(*node))
                .fold(0, u32::saturating_add);
            let (nodes, procs) = (names(&self.unbound), procs(&self.unbound));
            notes.push(Note::Unbound {
                nodes,
                procs,
                cpus,
                unit: site.unit,
            });
        }
        if !self.over_quota.is_empty() {
            let millis = |node: NodeId| {
                site.topologies
                    .get(node)
                    .and_then(Topology::cpu_quota)
                    .unwrap_or(0)
            };
            let millis = self
                .over_quota
                .iter()
                .map(|(node, _)| millis(*node))
                .fold(0, u32::saturating_add);
            notes.push(Note::OverQuota {
                nodes: names(&self.over_quota),
                procs: procs(&self.over_quota),
                millis,
            });
        }
        notes
    }
}

impl Site<'_> {
    fn machines_len(&self, node: NodeId) -> u32 {
        self.machine(node).map_or(0, Machine::len)
    }
}

/// Places a job under any policy that does not name a node for each rank.
fn regular(site: &Site<'_>, request: &Request, mut apps: Vec<Resolved>) -> Result<JobMap, Error> {
    let nodes = site.allocation.nodes.len();
    let mut taken = vec![0_u32; nodes];
    let mut counts = Vec::with_capacity(apps.len());
    let mut total = 0_u64;
    for (asked, app) in request.apps.iter().zip(&apps) {
        let dealt = deal(site, asked, app, &taken, request.apps.len())?;
        let mut by_node = vec![0_u32; nodes];
        for (node, procs) in dealt {
            if let (Some(taken), Some(count)) = (
                taken.get_mut(node.0 as usize),
                by_node.get_mut(node.0 as usize),
            ) {
                *taken = taken.saturating_add(procs);
                *count = procs;
            }
            total += u64::from(procs);
        }
        counts.push(by_node);
    }
    if total > u64::from(MAX_RANKS) {
        return Err(Error::TooManyProcs { asked: total });
    }
    for app in &mut apps {
        app.bind_for(total);
    }
    number_all(site, apps, &counts, &taken)
}

/// Returns how many procs of an app go to each node.
fn deal(
    site: &Site<'_>,
    asked: &AppRequest,
    app: &Resolved,
    taken: &[u32],
    apps: usize,
) -> Result<Vec<(NodeId, u32)>, Error> {
    let nodes = site.nodes(asked)?;
    let taken = |node: NodeId| taken.get(node.0 as usize).copied().unwrap_or(0);
    let rooms = nodes
        .iter()
        .map(|node| site.room(*node, app, taken(*node)))
        .collect::<Result<Vec<_>, _>>()?;
    check_object(site, app, &nodes)?;
    let sum =
        |each: &dyn Fn(&Room) -> u32| rooms.iter().map(|room| u64::from(each(room))).sum::<u64>();
    let slots = sum(&|room| room.slots);
    // Only `ppr` has a fixed number of places.
    let places = match app.spread {
        Spread::PerNode(each) => Some(sum(&|_| each)),
        Spread::PerObject(each, _) => Some(sum(&|room| each.saturating_mul(room.objects))),
        Spread::Fill | Spread::Nodes | Spread::Objects(_) => None,
    };
    let wanted = asked.count.map_or_else(
        || {
            if let Some(places) = places {
                places
            } else if apps == 1 {
                slots
            } else {
                1
            }
        },
        u64::from,
    );
    let Some(count) = u32::try_from(wanted)
        .ok()
        .filter(|count| *count <= MAX_RANKS)
    else {
        return Err(Error::TooManyProcs { asked: wanted });
    };
    if let Some(places) = places.filter(|places| *places < wanted) {
        return Err(Error::NotEnoughPlaces {
            asked: wanted,
            places,
            policy: app.policy.map_by.to_string(),
        });
    }
    let (counts, left) = count::deal(&rooms, app.spread, count);
    if left.0 > 0 || count == 0 {
        let most = sum(&|room| room.most);
        return Err(refuse(site, app, &nodes, taken, wanted, most));
    }
    Ok(nodes
        .into_iter()
        .zip(counts)
        .filter(|(_, procs)| *procs > 0)
        .collect())
}

/// Returns the slots of a node: its explicit count, or else its number of cores (or PUs, if `unit` says so), limited by
/// the CPU quota of the cgroup.
pub(crate) fn slots(said: Slots, topology: Option<&Topology>, unit: CpuUnit) -> u32 {
    match (said, topology) {
        (Slots::Explicit(slots), _) => slots,
        (Slots::Implicit, None) => 0,
        (Slots::Implicit, Some(topology)) => {
            let units = match unit {
                CpuUnit::Core => u32::try_from(topology.cores().len()).unwrap_or(u32::MAX),
                CpuUnit::Pu => topology.allowed().len(),
            };
            let granted = topology
                .cpu_quota()
                .map_or(units, |millis| millis.div_ceil(1_000).max(1));
            units.min(granted)
        }
    }
}

/// Returns the error for too many procs. It is about slots, or about cores if each proc gets several.
fn refuse(
    site: &Site<'_>,
    app: &Resolved,
    nodes: &[NodeId],
    taken: impl Fn(NodeId) -> u32,
    asked: u64,
    most: u64,
) -> Error {
    let counted = |node: &NodeId| match site
        .allocation
        .nodes
        .get(node.0 as usize)
        .map(|node| node.slots)
    {
        Some(Slots::Explicit(slots)) => u64::from(slots.saturating_sub(taken(*node))),
        Some(Slots::Implicit) | None => 0,
    };
    if app.each > 1
        && app.oversubscribe == Oversubscribe::WhereImplicit
        && nodes.iter().map(counted).sum::<u64>() >= asked
    {
        return Error::NotEnoughRoom {
            nodes: nodes.iter().map(|node| site.name(*node)).collect(),
            procs: asked,
            each: app.each,
            room: most,
            unit: site.unit,
        };
    }
    let limit = match app.oversubscribe {
        Oversubscribe::Allow => SlotLimit::MaxSlots,
        Oversubscribe::Refuse => SlotLimit::Refused,
        Oversubscribe::WhereImplicit => SlotLimit::Slots,
    };
    // Include the procs of the preceding apps, because the user thinks of the whole job.
    let before = nodes
        .iter()
        .map(|node| u64::from(taken(*node)))
        .sum::<u64>();
    let nodes = nodes.iter().map(|node| site.name(*node)).collect();
    Error::NotEnoughSlots {
        asked: asked + before,
        slots: most + before,
        nodes,
        limit,
    }
}

/// Checks that the CPUs of one proc (`PE=n`) fit into the objects that procs are mapped to.
fn check_object(site: &Site<'_>, app: &Resolved, nodes: &[NodeId]) -> Result<(), Error> {
    let level = match app.scheme {
        node::Scheme::Whole => None,
        node::Scheme::InTurn(level) | node::Scheme::Each(level, _) => Some(level),
    };
    if app.each == 1 {
        return Ok(());
    }
    for node in nodes {
        let machine = site.machine(*node)?;
        let largest = level.map_or_else(|| machine.len(), |level| machine.largest(level));
        if largest < app.each {
            let (node, unit) = (site.name(*node), site.unit);
            return Err(Error::ObjectTooSmall {
                node,
                level,
                each: app.each,
                largest,
                unit,
            });
        }
    }
    Ok(())
}

/// Places the procs of every node and assigns their ranks.
fn number_all(
    site: &Site<'_>,
    apps: Vec<Resolved>,
    counts: &[Vec<u32>],
    taken: &[u32],
) -> Result<JobMap, Error> {
    let mut builder = Builder::default();
    let mut notes = Notes::default();
    let mut looks = apps.iter().map(|_| Vec::new()).collect::<Vec<Vec<Look>>>();
    let mut used = apps
        .iter()
        .map(|_| Vec::new())
        .collect::<Vec<Vec<(NodeId, u32)>>>();
    // Nodes of one kind with the same counts look alike.
    let mut known = BTreeMap::<(u32, Vec<u32>), (u32, Fit)>::new();
    for (node, procs) in (0..).map(NodeId).zip(taken.iter().copied()) {
        if procs == 0 {
            continue;
        }
        let here = counts
            .iter()
            .map(|counts| counts.get(node.0 as usize).copied().unwrap_or(0))
            .collect::<Vec<_>>();
        let key = (site.topologies.kind(node), here);
        let (look, fit) = match known.get(&key) {
            Some(look) => *look,
            None => {
                let look = u32::try_from(known.len()).unwrap_or(u32::MAX);
                let fit = look_at(site.machine(node)?, &apps, &key.1, &mut builder, &mut looks);
                known.insert(key.clone(), (look, fit));
                (look, fit)
            }
        };
        site.check_fit(node, fit, &apps, procs)?;
        notes.see(site, node, procs, fit)?;
        for (used, count) in used.iter_mut().zip(&key.1) {
            if *count > 0 {
                used.push((node, look));
            }
        }
    }
    let mut first = 0;
    let mut ranks = Vec::with_capacity(apps.len());
    for (((app, counts), looks), used) in apps.into_iter().zip(counts).zip(&looks).zip(&used) {
        number::number(&mut builder, looks, used, app.policy.rank_by, first);
        let count = counts.iter().copied().fold(0, u32::saturating_add);
        ranks.push(AppRanks {
            first: Rank(first),
            count,
            policy: app.policy,
        });
        first += count;
    }
    Ok(builder.finish(ranks, notes.finish(site)))
}

/// Places the procs of one node, as an example for all nodes that look like it.
fn look_at(
    machine: &Machine<'_>,
    apps: &[Resolved],
    counts: &[u32],
    builder: &mut Builder,
    looks: &mut [Vec<Look>],
) -> Fit {
    let wanted = apps
        .iter()
        .zip(counts)
        .map(|(app, count)| app.local(*count))
        .collect::<Vec<_>>();
    let mut placement = node::place(machine, &wanted);
    for ((app, procs), looks) in apps.iter().zip(&mut placement.apps).zip(looks) {
        number::order(procs, app.policy.rank_by);
        let bound = procs
            .iter()
            .map(|proc| placement.bindings.get(proc.binding? as usize))
            .collect::<Vec<_>>();
        looks.push(Look {
            layout: builder.layout(&bound),
            procs: u32::try_from(procs.len()).unwrap_or(u32::MAX),
            rounds: number::rounds(procs, app.policy.rank_by),
        });
    }
    placement.fit
}

impl Resolved {
    const fn local(&self, count: u32) -> Local {
        let overload = self.policy.bind_to.overload;
        Local {
            number_by: match self.policy.rank_by {
                RankBy::Object(level) => Some(level),
                RankBy::Slot | RankBy::Node | RankBy::Fill | RankBy::Span => None,
            },
            scheme: self.scheme,
            each: self.each,
            bind: self.bind,
            overload,
            count,
        }
    }
}
