//! Explanation of a map: the place and binding of each rank, and the reasons. As data, and as text for users.

use std::fmt;

use base::{CpuSet, HostList, NodeId, RankSet, Topology};
use serde::{Deserialize, Serialize};

use super::{
    Topologies,
    error::Note,
    map::{AppRanks, JobMap},
    policy::{BindTarget, CpuUnit, MapBy, Request},
    tenancy::{Tenancy, tenancy},
};
use crate::alloc::{Allocation, Slots};

/// Maximum number of procs of a node that are shown one by one. The rest is only counted.
const MAX_PROCS_SHOWN: usize = 1_024;

/// Maximum number of groups of nodes that are shown one by one. The rest is only counted.
const MAX_NODES_SHOWN: usize = 256;

/// Result of [`explain`].
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Explanation {
    pub ranks: u32,
    pub nodes: u32,
    /// How the daemons of other nodes are started, and why. The caller knows it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub daemons: Option<String>,
    pub apps: Vec<AppExplained>,
    /// Groups of nodes that look alike.
    pub placed: Vec<NodesExplained>,
    /// Number of groups that were left out because there are too many.
    pub groups_left_out: u32,
    pub notes: Vec<Note>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct AppExplained {
    pub app: u32,
    pub ranks: RankSet,
    pub map_by: String,
    pub rank_by: String,
    pub bind_to: String,
    /// Reasons for these policies: the user's options, or a default.
    pub why: Vec<String>,
}

/// Nodes with equal procs, except for their ranks.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct NodesExplained {
    pub nodes: HostList,
    /// Number of slots of each node, and whether it is implicit or explicit.
    pub slots: u32,
    pub counted: Counted,
    /// Number of cores and of PUs on each node that we may use.
    pub cores: u32,
    pub pus: u32,
    /// All ranks on these nodes.
    pub ranks: RankSet,
    /// Procs of the first of these nodes.
    pub procs: Vec<ProcExplained>,
    pub procs_left_out: u32,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Counted {
    /// Derived from the cores, because no slot count was given.
    Implicit,
    /// Given by the host list, the host file or the resource manager.
    Explicit,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ProcExplained {
    pub rank: u32,
    pub app: u32,
    /// PUs that the proc is bound to; `None` if it is unbound.
    pub cpus: Option<CpuSet>,
    /// Packages of the node in brackets, with cores separated by `/` and one letter per PU: `B` bound, `.` free, `-`
    /// not allowed.
    pub picture: String,
}

/// Describes a map and the reasons for it.
#[must_use]
pub fn explain(
    map: &JobMap,
    request: &Request,
    allocation: &Allocation,
    topologies: &Topologies,
) -> Explanation {
    let tenancy = tenancy(request, allocation, topologies);
    let apps = (0..).zip(map.apps()).map(|(index, app)| AppExplained {
        app: index,
        ranks: RankSet::range(app.first.0..app.first.0.saturating_add(app.count)),
        map_by: app.policy.map_by.to_string(),
        rank_by: app.policy.rank_by.to_string(),
        bind_to: app.policy.bind_to.to_string(),
        why: why(map, request, index, app, tenancy),
    });
    let mut placed = Vec::<(u32, Slots, NodesExplained)>::new();
    let mut left_out = 0;
    for node in map.nodes() {
        let kind = topologies.kind(node);
        let slots = allocation
            .nodes
            .get(node.0 as usize)
            .map_or(Slots::Implicit, |node| node.slots);
        let name = allocation
            .nodes
            .get(node.0 as usize)
            .map_or("?", |node| node.name.as_str());
        let topology = topologies.get(node);
        let group = group(map, node, topology, slots);
        if let Some((last_kind, last_slots, last)) = placed.last_mut()
            && (*last_kind, *last_slots) == (kind, slots)
            && alike(&last.procs, &group.procs)
        {
            last.nodes.push(name);
            last.ranks = last.ranks.union(&group.ranks);
        } else if placed.len() < MAX_NODES_SHOWN {
            placed.push((
                kind,
                slots,
                NodesExplained {
                    nodes: [name].into_iter().collect(),
                    ..group
                },
            ));
        } else {
            left_out += 1;
        }
    }
    Explanation {
        ranks: map.ranks(),
        nodes: map.node_count(),
        daemons: None,
        apps: apps.collect(),
        placed: placed.into_iter().map(|(_, _, group)| group).collect(),
        groups_left_out: left_out,
        notes: map.notes().to_vec(),
    }
}

/// Returns the reasons for the placement of an app's ranks and for their binding.
fn why(
    map: &JobMap,
    request: &Request,
    index: u32,
    app: &AppRanks,
    tenancy: Tenancy,
) -> Vec<String> {
    let asked = request
        .apps
        .get(index as usize)
        .and_then(|app| app.map_by.as_ref())
        .or(request.map_by.as_ref());
    let mapped = match asked {
        Some(asked) => format!("map as asked: `--map-by {asked}`"),
        None if request.bind_list.is_some() => {
            "map by slot: `--bind-list` determines the PUs".to_owned()
        }
        None if request.bind_to.is_some() => {
            "map by the resource that procs are bound to".to_owned()
        }
        None => "map by core: the default".to_owned(),
    };
    let numbered = match request.rank_by {
        Some(rank_by) => format!("number as asked: `--rank-by {rank_by}`"),
        None => format!(
            "number by {}: the default of that mapping",
            app.policy.rank_by
        ),
    };
    let is_over = |note: &Note| matches!(note, Note::Unbound { .. });
    let is_short = map.notes().iter().any(is_over);
    let (bind_to, nodes) = (app.policy.bind_to, map.node_count());
    let bound = match (request.bind_to, bind_to.target) {
        (_, BindTarget::List) => "bind as asked: `--bind-list`".to_owned(),
        (None, BindTarget::None) => {
            format!("do not bind: {tenancy} (`--bind-to core` binds nevertheless)")
        }
        (Some(asked), BindTarget::Object(_)) if is_short && nodes == 1 => {
            format!("do not bind, although `--bind-to {asked}` asks for it: too few cores")
        }
        (None, BindTarget::Object(_)) if is_short && nodes == 1 => {
            "do not bind: too few cores".to_owned()
        }
        (Some(asked), BindTarget::Object(_)) if is_short => {
            format!("bind as asked on nodes with enough cores: `--bind-to {asked}`")
        }
        (None, BindTarget::Object(_)) if is_short => {
            format!("bind to {bind_to} on nodes with enough cores")
        }
        (Some(asked), _) => format!("bind as asked: `--bind-to {asked}`"),
        (None, BindTarget::Object(_)) if asked.is_some_and(MapBy::says_which_cpus) => {
            format!("bind to {bind_to}: the default of that mapping")
        }
        (None, BindTarget::Object(_)) => format!("bind to {bind_to}: {tenancy}"),
    };
    vec![mapped, numbered, bound]
}

fn group(map: &JobMap, node: NodeId, topology: Option<&Topology>, slots: Slots) -> NodesExplained {
    let procs = map.on_node(node);
    let cores = topology.map_or(0, |topology| {
        u32::try_from(topology.cores().len()).unwrap_or(u32::MAX)
    });
    let counted = match slots {
        Slots::Explicit(_) => Counted::Explicit,
        Slots::Implicit => Counted::Implicit,
    };
    let slots = super::slots(slots, topology, CpuUnit::Core);
    let left_out = procs.len().saturating_sub(MAX_PROCS_SHOWN);
    let shown = procs
        .into_iter()
        .take(MAX_PROCS_SHOWN)
        .map(|proc| ProcExplained {
            rank: proc.rank.0,
            app: proc.app,
            picture: topology.map_or_else(String::new, |topology| {
                picture(topology, proc.cpus.as_ref())
            }),
            cpus: proc.cpus,
        });
    NodesExplained {
        nodes: HostList::new(),
        slots,
        counted,
        cores,
        pus: topology.map_or(0, |topology| topology.allowed().len()),
        ranks: map.ranks_on(node),
        procs: shown.collect(),
        procs_left_out: u32::try_from(left_out).unwrap_or(u32::MAX),
    }
}

fn alike(a: &[ProcExplained], b: &[ProcExplained]) -> bool {
    a.len() == b.len()
        && a.iter()
            .zip(b)
            .all(|(a, b)| a.cpus == b.cpus && a.app == b.app)
}

/// Returns, for example, `[BB/../..][../../--]`: packages in brackets, cores separated by `/`, one letter per PU in
/// logical order.
fn picture(topology: &Topology, cpus: Option<&CpuSet>) -> String {
    let mut text = String::new();
    let mut before: Option<(u32, u32)> = None;
    for pu in topology.pus() {
        match before {
            None => text.push('['),
            Some((package, _)) if package != pu.package => text.push_str("]["),
            Some((_, core)) if core != pu.core => text.push('/'),
            Some(_) => {}
        }
        before = Some((pu.package, pu.core));
        text.push(match cpus {
            _ if !topology.allowed().contains(pu.os_index) => '-',
            Some(cpus) if cpus.contains(pu.os_index) => 'B',
            Some(_) | None => '.',
        });
    }
    if before.is_some() {
        text.push(']');
    }
    text
}

fn plural(count: u32, one: &str) -> String {
    if count == 1 {
        format!("1 {one}")
    } else {
        format!("{count} {one}s")
    }
}

impl fmt::Display for Explanation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(
            f,
            "{} on {}",
            plural(self.ranks, "rank"),
            plural(self.nodes, "node")
        )?;
        if let Some(daemons) = &self.daemons {
            writeln!(f, "{daemons}")?;
        }
        for app in &self.apps {
            writeln!(f, "app {}: ranks {}", app.app, app.ranks)?;
            for why in &app.why {
                writeln!(f, "  {why}")?;
            }
        }
        for group in &self.placed {
            let slots = plural(group.slots, "slot");
            let counted = match group.counted {
                Counted::Implicit => "not counted",
                Counted::Explicit => "counted",
            };
            let (cores, pus) = (plural(group.cores, "core"), plural(group.pus, "PU"));
            writeln!(
                f,
                "{}: ranks {} ({slots}, {counted}; {cores}, {pus})",
                group.nodes, group.ranks
            )?;
            if group.nodes.len() > 1 {
                writeln!(f, "  on each node, shown for the first:")?;
            }
            let width = group
                .procs
                .iter()
                .map(|proc| proc.rank.to_string().len())
                .max()
                .unwrap_or(1);
            for proc in &group.procs {
                match &proc.cpus {
                    Some(cpus) => writeln!(
                        f,
                        "  rank {:<width$}  {}  PUs {cpus}",
                        proc.rank, proc.picture
                    )?,
                    None => writeln!(f, "  rank {:<width$}  not bound", proc.rank)?,
                }
            }
            if group.procs_left_out > 0 {
                writeln!(f, "  … and {}", plural(group.procs_left_out, "more rank"))?;
            }
        }
        if self.groups_left_out > 0 {
            writeln!(f, "… and {}", plural(self.groups_left_out, "more node"))?;
        }
        for note in &self.notes {
            writeln!(f, "note: {note}")?;
        }
        Ok(())
    }
}
