//! Policies that name the node of every rank: `seq` with a list, and rankfiles.

use std::collections::BTreeMap;

use base::{CpuSet, HostList, Level, NodeId, Rank};

use super::{
    Builder, Error, MAX_RANKS, Notes, Request, Site,
    map::{AppRanks, Block, JobMap},
    node::{self, Fit, Machine},
    policy::{BindTarget, Cores, HostRef, Rankfile, SlotSpec},
    resolve::{Asked, Resolved},
};

/// Places one proc on each name, in order.
pub(super) fn sequence(
    site: &Site<'_>,
    request: &Request,
    mut apps: Vec<Resolved>,
    names: &HostList,
) -> Result<JobMap, Error> {
    let total = total(request, names.len())?;
    if total as usize > names.len() {
        let policy = "seq".to_owned();
        return Err(Error::NotEnoughPlaces {
            asked: u64::from(total),
            places: names.len() as u64,
            policy,
        });
    }
    for app in &mut apps {
        app.bind_for(u64::from(total));
    }
    let known = nodes_by_name(site);
    let mut by_node = BTreeMap::<NodeId, Vec<u32>>::new();
    for (rank, name) in (0..total).zip(names.iter()) {
        let node = known.get(name).ok_or_else(|| site.unknown(name))?;
        by_node.entry(*node).or_default().push(rank);
    }
    let mut builder = Builder::default();
    let mut notes = Notes::default();
    let mut layouts = BTreeMap::new();
    for (node, ranks) in by_node {
        let count = u32::try_from(ranks.len()).unwrap_or(u32::MAX);
        let key = (site.topologies.kind(node), count);
        let (layout, fit) = match layouts.get(&key) {
            Some(known) => *known,
            None => {
                let local = apps.first().map(|app| app.local(count));
                let placement = node::place(site.machine(node)?, local.as_slice());
                let procs = placement.apps.iter().flatten();
                let bound = procs
                    .map(|proc| placement.bindings.get(proc.binding? as usize))
                    .collect::<Vec<_>>();
                let look = (builder.layout(&bound), placement.fit);
                layouts.insert(key, look);
                look
            }
        };
        site.check_fit(node, fit, &apps, count)?;
        notes.see(site, node, count, fit)?;
        blocks(&mut builder, node, &ranks, layout);
    }
    Ok(builder.finish(ranks_of(request, apps, total), notes.finish(site)))
}

/// Places every rank on the node and cores of its line.
pub(super) fn rankfile(
    site: &Site<'_>,
    request: &Request,
    apps: Vec<Resolved>,
    file: &Rankfile,
) -> Result<JobMap, Error> {
    let total = total(request, file.lines.len())?;
    let bad = |line: Option<u32>, error: Error| Error::InFile {
        file: file.origin.clone(),
        line,
        error: Box::new(error),
    };
    let mut by_rank = BTreeMap::new();
    for line in &file.lines {
        if by_rank.insert(line.rank, line).is_some() {
            let twice = Error::RankTwice { rank: line.rank };
            return Err(bad(Some(line.number), twice));
        }
    }
    let known = nodes_by_name(site);
    let unbound = apps.first().is_some_and(|app| {
        app.bind_asked == Asked::ByUser && app.policy.bind_to.target == BindTarget::None
    });
    let mut by_node = BTreeMap::<NodeId, (Vec<u32>, Vec<Option<CpuSet>>)>::new();
    for rank in (0..total).map(Rank) {
        let line = by_rank
            .get(&rank)
            .ok_or_else(|| bad(None, Error::RankMissing { rank }))?;
        let in_line = |error| bad(Some(line.number), error);
        let node = match &line.host {
            HostRef::Name(name) => {
                let node = known.get(name.as_str());
                *node.ok_or_else(|| in_line(site.unknown(name)))?
            }
            HostRef::Relative(number) => {
                let nodes = u32::try_from(site.allocation.nodes.len()).unwrap_or(u32::MAX);
                if *number >= nodes {
                    let number = *number;
                    return Err(in_line(Error::NoSuchNode { number, nodes }));
                }
                NodeId(*number)
            }
        };
        let cpus = if line.slots.is_empty() || unbound {
            None
        } else {
            Some(cpus(site, node, &line.slots).map_err(in_line)?)
        };
        let (ranks, bound) = by_node.entry(node).or_default();
        ranks.push(rank.0);
        bound.push(cpus);
    }
    let mut builder = Builder::default();
    let mut notes = Notes::default();
    for (node, (ranks, bound)) in by_node {
        notes.see(
            site,
            node,
            u32::try_from(ranks.len()).unwrap_or(u32::MAX),
            Fit::Fits,
        )?;
        let layout = builder.layout(&bound.iter().map(Option::as_ref).collect::<Vec<_>>());
        blocks(&mut builder, node, &ranks, layout);
    }
    Ok(builder.finish(ranks_of(request, apps, total), notes.finish(site)))
}

/// Returns the PUs of the cores that a line lists.
fn cpus(site: &Site<'_>, node: NodeId, slots: &[SlotSpec]) -> Result<CpuSet, Error> {
    let machine = site.machine(node)?;
    let mut cpus = CpuSet::new();
    for SlotSpec { package, cores } in slots {
        let everything = (0..machine.len()).collect::<Vec<_>>();
        let units = match package {
            None => everything.as_slice(),
            Some(package) => machine
                .members(Level::Package, *package)
                .unwrap_or_default(),
        };
        let missing = |number| Error::NoSuchCpu {
            node: site.name(node),
            number,
            package: *package,
            available: u32::try_from(units.len()).unwrap_or(u32::MAX),
            unit: site.unit,
        };
        let add = |machine: &Machine<'_>, cpus: CpuSet, unit: u32| match machine.unit(unit) {
            Some(pus) => cpus.union(pus),
            None => cpus,
        };
        match cores {
            Cores::All if units.is_empty() => return Err(missing(0)),
            Cores::All => {
                cpus = units
                    .iter()
                    .fold(cpus, |cpus, unit| add(machine, cpus, *unit))
            }
            Cores::These(numbers) => {
                for number in numbers.iter() {
                    let unit = units.get(number as usize).ok_or_else(|| missing(number))?;
                    cpus = add(machine, cpus, *unit);
                }
            }
        }
    }
    Ok(cpus)
}

fn nodes_by_name<'a>(site: &Site<'a>) -> BTreeMap<&'a str, NodeId> {
    site.allocation
        .nodes
        .iter()
        .map(|node| node.name.as_str())
        .zip((0..).map(NodeId))
        .collect()
}

/// Returns the number of ranks of all apps. An app without a count gets as many ranks as are listed, or one if the job
/// has several apps.
fn total(request: &Request, listed: usize) -> Result<u32, Error> {
    let listed = u64::try_from(listed).unwrap_or(u64::MAX);
    let default = if request.apps.len() == 1 { listed } else { 1 };
    let asked = request
        .apps
        .iter()
        .map(|app| app.count.map_or(default, u64::from))
        .fold(0, u64::saturating_add);
    u32::try_from(asked)
        .ok()
        .filter(|total| *total <= MAX_RANKS)
        .ok_or(Error::TooManyProcs { asked })
}

fn ranks_of(request: &Request, apps: Vec<Resolved>, total: u32) -> Vec<AppRanks> {
    let mut first = 0;
    let default = if apps.len() == 1 { total } else { 1 };
    let counts = request.apps.iter().map(|app| app.count.unwrap_or(default));
    let ranks = apps.into_iter().zip(counts).map(|(app, count)| {
        let ranks = AppRanks {
            first: Rank(first),
            count,
            policy: app.policy,
        };
        first += count;
        ranks
    });
    ranks.collect()
}

/// Adds a node's ascending ranks as blocks, one for each run with a constant step.
fn blocks(builder: &mut Builder, node: NodeId, ranks: &[u32], layout: u32) {
    let mut rest = ranks;
    let mut offset = 0;
    while let [first, more @ ..] = rest {
        let step = more.first().map_or(1, |second| second - first);
        let mut per_node = 1;
        let mut last = *first;
        for rank in more {
            if rank - last != step {
                break;
            }
            last = *rank;
            per_node += 1;
        }
        builder.push(Block {
            first_node: node.0,
            nodes: 1,
            first_rank: *first,
            node_step: 0,
            rank_step: if per_node == 1 { 1 } else { step },
            per_node,
            layout,
            offset,
        });
        offset += per_node;
        rest = rest.get(per_node as usize..).unwrap_or_default();
    }
}
