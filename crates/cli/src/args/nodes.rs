//! The nodes that a job may use, from the command line, a host file, and the allocation of a resource manager.
//!
//! | given | without an allocation | inside an allocation |
//! |---|---|---|
//! | nothing | this node | its nodes |
//! | host file | its nodes | its nodes; slots that the file does not count are those of the allocation |
//! | `--host` | its nodes | the same as with a host file |
//! | host file and `--host` | nodes of the file that `--host` names | the same |
//!
//! Then `--exclude`, `--nolocal` and `--relative` take nodes away, and `--nodes` limits their number. The resource manager
//! starts the daemons if all nodes belong to its allocation.

use std::{collections::BTreeSet, path::Path};

use base::HostList;
use dvm::{
    alloc::{self, AllocatedNode, Allocation, Base, LocalNames, MAX_HOSTFILE, Slots},
    place::{self, Oversubscribe},
};

use super::{
    AppLine, Error, JobLine, Personality, World,
    batch::{self, Batch, Manager},
    error::FileKind,
    granted,
};
use crate::choices::Bootstrap;
use crate::config::Settings;
use crate::values::{self, ValueError};

/// Maximum number of nodes that one machine stands for.
const FORK_MAX: u32 = 512;

/// The nodes of a job.
#[derive(Debug)]
pub(super) struct Nodes {
    pub(super) allocation: Allocation,
    /// The resource manager to whose allocation all these nodes belong.
    pub(super) manager: Option<Manager>,
    /// The default for oversubscription.
    pub(super) oversubscribe: Oversubscribe,
    /// The mapping policy of a job that says none, if the launcher has one of its own for these nodes.
    pub(super) map_by: Option<&'static str>,
    /// Names of the nodes of each app; `None` for all nodes.
    hosts: Vec<Option<HostList>>,
}

impl Nodes {
    /// Returns nodes for a job whose nodes are not known yet: this one stands for them.
    pub(super) fn unknown(names: &LocalNames) -> Self {
        Self {
            allocation: Allocation::local(names),
            manager: None,
            oversubscribe: Oversubscribe::WhereImplicit,
            map_by: None,
            hosts: Vec::new(),
        }
    }

    /// Returns the names of the nodes that an app may use. `None`: all nodes.
    pub(super) fn of_app(&self, app: usize) -> Option<HostList> {
        // The programs of `srun --multi-prog` share the nodes of the one app that the command line has.
        let hosts = self.hosts.get(app).or_else(|| self.hosts.first());
        hosts.cloned().flatten()
    }

    /// Returns the number of nodes that an app may use.
    pub(super) fn count_of_app(&self, app: usize) -> u32 {
        let all = self.allocation.nodes.len();
        let count = self.of_app(app).map_or(all, |hosts| hosts.len());
        u32::try_from(count).unwrap_or(u32::MAX)
    }

    /// Limits the number of procs on each node.
    pub(super) fn limit_slots(&mut self, most: u32) {
        for node in &mut self.allocation.nodes {
            node.max_slots = Some(node.max_slots.map_or(most, |max| max.min(most)));
            if let Slots::Explicit(slots) = &mut node.slots {
                *slots = (*slots).min(most);
            }
        }
    }

    /// Gives each node as many slots as it gets procs if they are dealt to the nodes in turn, as `srun` does whatever the
    /// order of its ranks: each node of a job gets a proc. Without room for all procs, nothing changes.
    pub(super) fn deal_slots(&mut self, procs: u32) {
        let nodes = &mut self.allocation.nodes;
        if nodes.len() < 2 {
            return;
        }
        let room = |node: &AllocatedNode| match node.slots {
            Slots::Explicit(slots) => slots,
            Slots::Implicit => node.max_slots.unwrap_or(u32::MAX),
        };
        let rooms: Vec<u32> = nodes.iter().map(room).collect();
        let filled = |level: u32| rooms.iter().map(|room| u64::from((*room).min(level))).sum();
        if filled(u32::MAX) < u64::from(procs) {
            return;
        }
        // The number of complete rounds, by bisection: the most that do not need more procs than there are.
        let (mut rounds, mut above) = (0, procs.saturating_add(1));
        while above - rounds > 1 {
            let middle = rounds + (above - rounds) / 2;
            let needed: u64 = filled(middle);
            if needed <= u64::from(procs) {
                rounds = middle;
            } else {
                above = middle;
            }
        }
        let mut rest = u64::from(procs) - filled(rounds);
        for (node, room) in nodes.iter_mut().zip(rooms) {
            let more = u32::from(rest > 0 && room > rounds);
            rest -= u64::from(more);
            node.slots = Slots::Explicit(room.min(rounds) + more);
        }
    }

    /// Leaves out all but the first nodes.
    pub(super) fn use_at_most(&mut self, nodes: u32) {
        let most = usize::try_from(nodes).unwrap_or(usize::MAX);
        self.allocation.nodes.truncate(most.max(1));
    }
}

/// Returns the nodes that a job may use.
///
/// # Errors
///
/// A text or file that cannot be read, or options that leave too few nodes.
pub(super) fn resolve(
    apps: &[AppLine],
    job: &JobLine,
    personality: Personality,
    settings: &Settings,
    world: &World,
) -> Result<Nodes, Error> {
    let names = world.names();
    let batch = batch::of(personality, world)?;
    let start = match forked(job, &names)? {
        Some(allocation) => Start {
            allocation: Some(allocation),
            manager: None,
            is_final: true,
        },
        None => start(apps, batch, job, settings, world)?,
    };
    let is_of_slurm = start.manager == Some(Manager::Slurm);
    let mut nodes = chosen(apps, start, personality, world)?;
    reduce(&mut nodes, job, world)?;
    for node in &mut nodes.allocation.nodes {
        if names.contains(&node.name) {
            let here = granted::on_this_node(|name| world.variable(name));
            node.granted = here.or(node.granted);
        }
    }
    // Hydra starts as many procs as it is told to, whatever the allocation.
    if personality == Personality::Mpiexec && is_of_slurm {
        nodes.oversubscribe = Oversubscribe::Allow;
    }
    Ok(nodes)
}

/// Returns the nodes that this machine is to stand for (`--bootstrap=fork --nodes=N`): named after it, each with its cores.
fn forked(job: &JobLine, names: &LocalNames) -> Result<Option<Allocation>, Error> {
    let (Some(Bootstrap::Fork), Some(text)) = (job.args.bootstrap, &job.args.nodes) else {
        return Ok(None);
    };
    let nodes = values::procs(text).map_err(|reason| Error::BadValue {
        option: job.typed("nodes"),
        value: text.clone(),
        reason,
    })?;
    let host = names.host().split('.').next().unwrap_or_default();
    let [local] = Allocation::local(names)
        .nodes
        .try_into()
        .unwrap_or_else(|_| unreachable!("the allocation of this node has one node"));
    let node = |number: u32| AllocatedNode {
        name: format!("{host}-n{number}"),
        ..local.clone()
    };
    Ok((nodes > 1).then(|| Allocation {
        nodes: (0..nodes.min(FORK_MAX)).map(node).collect(),
    }))
}

/// The nodes from which `--host` chooses.
struct Start {
    /// `None` if nothing names nodes.
    allocation: Option<Allocation>,
    manager: Option<Manager>,
    /// Whether `--host` may name only nodes of the allocation.
    is_final: bool,
}

/// Returns the nodes of the host file, or those of the allocation.
fn start(
    apps: &[AppLine],
    batch: Option<Batch>,
    job: &JobLine,
    settings: &Settings,
    world: &World,
) -> Result<Start, Error> {
    let names = world.names();
    let base = Base {
        nodes: batch
            .as_ref()
            .map(|batch| batch.allocation.nodes.as_slice()),
        used: &[],
    };
    let max = u64::try_from(MAX_HOSTFILE).unwrap_or(u64::MAX);
    let file = match &settings.hostfile.value {
        Some(path) => {
            let text = world.read_text(path, FileKind::HostFile, max)?;
            let origin = format!("`{}`", path.display());
            Some(alloc::hostfile(&text, &origin, &names, base).map_err(Error::Nodes)?)
        }
        None => None,
    };
    let Some(file) = file else {
        return Ok(match batch {
            // This process stands for the node.
            Some(batch) if job.args.bootstrap == Some(Bootstrap::Fork) => {
                let mut allocation = batch.allocation;
                allocation.nodes.retain(|node| names.contains(&node.name));
                Start {
                    allocation: Some(allocation).filter(|here| !here.nodes.is_empty()),
                    manager: None,
                    is_final: false,
                }
            }
            Some(batch) => Start {
                allocation: Some(batch.allocation),
                manager: Some(batch.manager),
                is_final: false,
            },
            None => Start {
                allocation: of_policy(apps, settings, world)?,
                manager: None,
                is_final: false,
            },
        });
    };
    let narrowed = batch.and_then(|batch| {
        let allocation = batch.allocation.narrowed(&file)?;
        Some((allocation, batch.manager))
    });
    let (allocation, manager) = match narrowed {
        Some((allocation, manager)) => (allocation, Some(manager)),
        None => (file, None),
    };
    Ok(Start {
        allocation: Some(allocation),
        manager,
        is_final: true,
    })
}

/// Returns the nodes that a sequence or a rankfile names.
fn of_policy(
    apps: &[AppLine],
    settings: &Settings,
    world: &World,
) -> Result<Option<Allocation>, Error> {
    let Some(app) = apps.first() else {
        return Ok(None);
    };
    if app.args.host.iter().any(|text| !text.is_empty()) {
        return Ok(None);
    }
    let names = world.names();
    let said = app.args.map_by.iter().rev().map(String::as_str);
    let text = said
        .chain(settings.map_by.value.as_deref())
        .find(|text| !text.starts_with(':'));
    let Some((text, file)) = text.and_then(|text| Some((text, place::map_by_file(text)?))) else {
        return Ok(None);
    };
    // Mistakes in the policy are reported where it is read.
    let Ok(map) = place::map_by(text) else {
        return Ok(None);
    };
    let path = Path::new(file);
    let origin = format!("`{}`", path.display());
    let hosts: Vec<String> = match map.to {
        Some(place::MapTo::Sequence(_)) => {
            let max = u64::try_from(MAX_HOSTFILE).unwrap_or(u64::MAX);
            let text = world.read_text(path, FileKind::SequenceFile, max)?;
            let list = alloc::sequence(&text, &origin, &names, Base::default());
            let procs: Option<u32> = apps.iter().map(|app| app.args.procs).sum();
            let places = procs.and_then(|procs| usize::try_from(procs).ok());
            // Lines after the last rank may name any node.
            let list = list.map_err(Error::Nodes)?.into_iter();
            list.take(places.unwrap_or(usize::MAX)).collect()
        }
        Some(place::MapTo::Rankfile(_)) => {
            let max = u64::try_from(place::MAX_RANKFILE).unwrap_or(u64::MAX);
            let text = world.read_text(path, FileKind::RankFile, max)?;
            let ranks = place::rankfile(&text, &origin).map_err(Error::Rankfile)?;
            let host = |line: place::RankLine| match line.host {
                place::HostRef::Name(name) => Some(names.canonical(&name).to_owned()),
                place::HostRef::Relative(_) => None,
            };
            ranks.lines.into_iter().filter_map(host).collect()
        }
        _ => return Ok(None),
    };
    let mut known = BTreeSet::new();
    let nodes = hosts.into_iter().filter(|name| known.insert(name.clone()));
    let nodes = nodes.map(|name| AllocatedNode {
        name,
        slots: Slots::Implicit,
        max_slots: None,
        granted: None,
    });
    let nodes = nodes.collect::<Vec<_>>();
    Ok(Some(Allocation { nodes }).filter(|named| !named.nodes.is_empty()))
}

/// Chooses the nodes that the apps name with `--host`.
fn chosen(
    apps: &[AppLine],
    start: Start,
    personality: Personality,
    world: &World,
) -> Result<Nodes, Error> {
    let names = world.names();
    let mut hosts = Vec::with_capacity(apps.len());
    let mut used = Vec::new();
    let mut texts = Vec::new();
    for app in apps {
        if app.args.host.is_empty() {
            hosts.push(None);
            continue;
        }
        let base = Base {
            nodes: start.allocation.as_ref().map(|all| all.nodes.as_slice()),
            used: &used,
        };
        let origin = format!("`{}`", app.typed("host"));
        let text = app.args.host.join(",");
        let named = alloc::hosts(&text, &origin, &names, base).map_err(Error::Nodes)?;
        let list = named.names();
        used.extend(list.iter().map(str::to_owned));
        hosts.push(Some(list));
        texts.push(named);
    }
    let mut nodes = Nodes {
        allocation: Allocation::default(),
        manager: start.manager,
        oversubscribe: Oversubscribe::WhereImplicit,
        map_by: None,
        hosts,
    };
    let Some(mut wanted) = joined(texts) else {
        nodes.allocation = match start.allocation {
            Some(allocation) => allocation,
            None => Allocation::local(&names),
        };
        return Ok(nodes);
    };
    let is_all = nodes.hosts.iter().any(Option::is_none);
    let narrowed = start.allocation.as_ref().and_then(|all| {
        // An app without `--host` may use all nodes.
        let mut wanted = wanted.clone();
        if is_all {
            let known = wanted.names();
            let known: BTreeSet<&str> = known.iter().collect();
            let others = all.nodes.iter();
            let others = others.filter(|node| !known.contains(node.name.as_str()));
            wanted.nodes.extend(others.cloned());
        }
        all.narrowed(&wanted)
    });
    nodes.allocation = match (narrowed, start.allocation) {
        (Some(allocation), _) => allocation,
        // The placement reports the host that is not in the file.
        (None, Some(allocation)) if start.is_final => allocation,
        (None, _) => {
            nodes.manager = None;
            // Hydra goes over the hosts again when each has a proc, however many procs there are.
            if one_slot_each(&mut wanted, personality) && personality == Personality::Mpiexec {
                nodes.oversubscribe = Oversubscribe::Allow;
                nodes.map_by = Some("node");
            }
            wanted
        }
    };
    Ok(nodes)
}

/// Adds up the nodes of several apps.
fn joined(texts: Vec<Allocation>) -> Option<Allocation> {
    let count = |slots| match slots {
        Slots::Implicit => 1,
        Slots::Explicit(count) => count,
    };
    texts.into_iter().reduce(|mut all, more| {
        for node in more.nodes {
            match all.nodes.iter_mut().find(|known| known.name == node.name) {
                Some(known) => {
                    known.slots =
                        Slots::Explicit(count(known.slots).saturating_add(count(node.slots)));
                }
                None => all.nodes.push(node),
            }
        }
        all
    })
}

/// Gives hosts without a number of slots one slot each if there are several, as Open MPI and Hydra do: `mpirun --host a,b -n 2`
/// starts one proc on each. Returns true if it has done so.
fn one_slot_each(wanted: &mut Allocation, personality: Personality) -> bool {
    let is_theirs = matches!(personality, Personality::Mpiexec | Personality::Mpirun);
    if !is_theirs || wanted.nodes.len() < 2 {
        return false;
    }
    let nodes = wanted.nodes.iter_mut();
    let mut uncounted = nodes
        .filter(|node| node.slots == Slots::Implicit)
        .peekable();
    let is_any = uncounted.peek().is_some();
    for node in uncounted {
        node.slots = Slots::Explicit(1);
    }
    is_any
}

/// Returns the names in a value of `--exclude`, which may be a file.
pub(super) fn excluded(
    text: &str,
    job: &JobLine,
    names: &LocalNames,
    world: &World,
) -> Result<HostList, Error> {
    let base = Base::default();
    let hosts = if text.contains('/') {
        let path = Path::new(text);
        let max = u64::try_from(MAX_HOSTFILE).unwrap_or(u64::MAX);
        let list = world.read_text(path, FileKind::ExcludeFile, max)?;
        alloc::hostfile(&list, &format!("`{text}`"), names, base)
    } else {
        alloc::hosts(text, &format!("`{}`", job.typed("exclude")), names, base)
    };
    Ok(hosts.map_err(Error::Nodes)?.names())
}

/// Returns the number of nodes of `--nodes`, at least and at most.
pub(super) fn wanted(job: &JobLine) -> Result<Option<(u32, u32)>, Error> {
    let Some(text) = &job.args.nodes else {
        return Ok(None);
    };
    let range = values::node_range(text).map_err(|reason| Error::BadValue {
        option: job.typed("nodes"),
        value: text.clone(),
        reason: match reason {
            ValueError::NoProcs => ValueError::NoNodes,
            other => other,
        },
    });
    range.map(Some)
}

/// Takes away the nodes that options exclude, and limits the number of the others.
fn reduce(nodes: &mut Nodes, job: &JobLine, world: &World) -> Result<(), Error> {
    let before = nodes.allocation.names();
    let left = |nodes: &Nodes, option: String| {
        if nodes.allocation.nodes.is_empty() {
            Err(Error::NoNodeLeft {
                option,
                nodes: before.clone(),
            })
        } else {
            Ok(())
        }
    };
    let names = world.names();
    for text in &job.args.exclude {
        let hosts = excluded(text, job, &names, world)?;
        let all = &mut nodes.allocation.nodes;
        let hosts: BTreeSet<&str> = hosts.iter().collect();
        all.retain(|node| !hosts.contains(node.name.as_str()));
        left(nodes, format!("{} {text}", job.typed("exclude")))?;
    }
    if job.args.nolocal {
        let all = &mut nodes.allocation.nodes;
        all.retain(|node| !names.contains(&node.name));
        left(nodes, job.typed("nolocal"))?;
    }
    if let Some(first) = job.args.relative {
        let all = &mut nodes.allocation.nodes;
        all.drain(..all.len().min(usize::try_from(first).unwrap_or(usize::MAX)));
        left(nodes, format!("{} {first}", job.typed("relative")))?;
    }
    if let (Some(text), Some((least, most))) = (&job.args.nodes, wanted(job)?) {
        let have = u32::try_from(nodes.allocation.nodes.len()).unwrap_or(u32::MAX);
        if have < least {
            return Err(Error::TooFewNodes {
                option: format!("{} {text}", job.typed("nodes")),
                least,
                nodes: nodes.allocation.names(),
            });
        }
        let most = usize::try_from(most).unwrap_or(usize::MAX);
        nodes.allocation.nodes.truncate(most);
    }
    // An app that has named a node which was taken away uses its other nodes.
    let rest = nodes.allocation.names();
    if rest.len() < before.len() {
        for hosts in nodes.hosts.iter_mut().flatten() {
            let known: BTreeSet<&str> = rest.iter().collect();
            let kept: HostList = hosts.iter().filter(|host| known.contains(host)).collect();
            *hosts = if kept.is_empty() { rest.clone() } else { kept };
        }
    }
    Ok(())
}
