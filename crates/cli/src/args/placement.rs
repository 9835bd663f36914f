//! Placement of the ranks: combines several options and settings into one request, and reads the files that they name.

use std::{
    collections::BTreeSet,
    path::{Path, PathBuf},
};

use base::HostList;
use dvm::{
    alloc::{self, Allocation, LocalNames, MAX_HOSTFILE, RemoteNodes, SlurmTexts},
    place::{self, AppRequest, HostRef, MapBy, MapTo, Request},
};

use super::{
    AppLine, Error, JobLine, Personality, RunLine, World,
    error::{FileKind, NotOffered},
    granted,
};
use crate::choices::Oversubscribe;
use crate::config::{Setting, Settings, Source};
use crate::values::{self, ValueError};

/// The largest rankfile, in bytes.
const MAX_RANKFILE: u64 = 1 << 26;

/// The placement that a command line and the settings request.
#[derive(Debug)]
pub(super) struct Placement {
    pub(super) request: Request,
    /// The nodes that the job may use.
    pub(super) allocation: Allocation,
    /// Nodes of the same allocation that this version cannot use.
    pub(super) unused: HostList,
}

/// Combines all options and settings about placement.
pub(super) fn resolve(
    apps: &[AppLine],
    job: &JobLine,
    personality: Personality,
    settings: &Settings,
    world: &World,
) -> Result<Placement, Error> {
    check_nodes(job, world)?;
    let Nodes {
        allocation,
        unused,
        oversubscribe,
    } = nodes(apps, personality, settings, world)?;
    let mut request = Request {
        apps: Vec::with_capacity(apps.len()),
        map_by: None,
        rank_by: None,
        bind_to: None,
        oversubscribe: match settings.oversubscribe.value {
            Oversubscribe::Yes => place::Oversubscribe::Allow,
            Oversubscribe::No => place::Oversubscribe::Refuse,
            Oversubscribe::Auto => oversubscribe,
        },
        cpus: None,
        bind_list: match &job.args.bind_list {
            Some(text) => Some(place::bind_list(text).map_err(|error| Error::Policy {
                error: Box::new(error),
                from: Source::CommandLine(job.typed("bind-list")),
            })?),
            None => None,
        },
    };
    for (position, app) in apps.iter().enumerate() {
        let default = settings.map_by.value.as_deref().filter(|_| position == 0);
        // The policy of the first app also places the procs of the other apps.
        let places = if position == 0 {
            size(apps, personality)
        } else {
            count(app, personality)
        };
        let map_by = match map_text(app, default)? {
            Some(text) => Some(map_by(
                &text,
                map_source(app, &settings.map_by),
                places,
                settings,
                world,
            )?),
            None => None,
        };
        let own = if position == 0 {
            request.map_by = map_by;
            None
        } else {
            map_by
        };
        request.apps.push(AppRequest {
            count: count(app, personality),
            hosts: hosts(app, world)?,
            map_by: own,
        });
    }
    request.rank_by = policy(job, "rank-by", &settings.rank_by, place::rank_by)?;
    request.bind_to = policy(job, "bind-to", &settings.bind_to, place::bind_to)?;
    Ok(Placement {
        request,
        allocation,
        unused,
    })
}

/// Replaces `srun --ntasks-per-node` by a number of procs, because there is only one node. For srun it is an upper limit,
/// and the number itself if no other is given. It is no policy, so it may be combined with one. For other launchers it is a
/// policy.
///
/// # Errors
///
/// A number of procs above the limit.
pub(super) fn with_counts_of_the_node(line: &RunLine) -> Result<Option<RunLine>, Error> {
    let is_said = line.apps.iter().any(|app| app.args.per_node.is_some());
    if line.personality != Personality::Srun || !is_said {
        return Ok(None);
    }
    let mut line = line.clone();
    for app in &mut line.apps {
        let Some(limit) = app.args.per_node.take() else {
            continue;
        };
        let procs = *app.args.procs.get_or_insert(limit);
        if procs > limit {
            return Err(Error::Together {
                first: format!("{} {procs}", app.typed("np")),
                second: format!("{} {limit}", app.typed("per-node")),
                why: "this version runs jobs on one node: start fewer procs, or more on the node",
            });
        }
    }
    Ok(Some(line))
}

/// Returns the number of procs of a job. `None` if the command line does not determine it.
pub(super) fn size(apps: &[AppLine], personality: Personality) -> Option<u32> {
    let counts = apps.iter().map(|app| count(app, personality));
    counts
        .reduce(|sum, count| sum?.checked_add(count?))
        .flatten()
}

/// Returns the number of procs of an app. Without an option `srun` starts one.
fn count(app: &AppLine, personality: Personality) -> Option<u32> {
    app.args.procs.or(match (personality, app.args.deal) {
        (Personality::Srun, None) => Some(1),
        _ => None,
    })
}

/// Refuses options that need several nodes, or other nodes than this one.
fn check_nodes(job: &JobLine, world: &World) -> Result<(), Error> {
    let not_here = |flag: &str, value: &str| Error::NotOffered {
        option: format!("{} {value}", job.typed(flag)),
        why: NotOffered::OneNode,
    };
    if let Some(text) = &job.args.nodes {
        let least = text.split('-').next().unwrap_or_default();
        let least = values::procs(least).map_err(|reason| Error::BadValue {
            option: job.typed("nodes"),
            value: text.clone(),
            reason: match reason {
                ValueError::NoProcs => ValueError::NoNodes,
                other => other,
            },
        })?;
        if least > 1 {
            return Err(not_here("nodes", text));
        }
    }
    let names = world.names();
    for text in &job.args.exclude {
        let hosts = if text.contains('/') {
            let path = Path::new(text);
            let max = u64::try_from(MAX_HOSTFILE).unwrap_or(u64::MAX);
            let list = world.read_text(path, FileKind::ExcludeFile, max)?;
            alloc::hostfile(&list, &format!("`{text}`"), &names)
        } else {
            alloc::hosts(text, &format!("`{}`", job.typed("exclude")), &names)
        };
        let hosts = hosts.map_err(Error::Nodes)?;
        if hosts.nodes.iter().any(|node| names.contains(&node.name)) {
            return Err(not_here("exclude", text));
        }
    }
    Ok(())
}

/// The nodes that a job may use, and the other nodes of its allocation, which this version cannot use.
#[derive(Debug)]
struct Nodes {
    allocation: Allocation,
    unused: HostList,
    /// The default for oversubscription.
    oversubscribe: place::Oversubscribe,
}

impl From<Allocation> for Nodes {
    fn from(allocation: Allocation) -> Self {
        Self {
            allocation,
            unused: HostList::new(),
            oversubscribe: place::Oversubscribe::WhereImplicit,
        }
    }
}

/// Returns the nodes of the first of these sources: the host file, `--host`, an allocation of Slurm, this node.
fn nodes(
    apps: &[AppLine],
    personality: Personality,
    settings: &Settings,
    world: &World,
) -> Result<Nodes, Error> {
    let names = world.names();
    let mut file = None;
    let mut allocation = if let Some(path) = &settings.hostfile.value {
        let max = u64::try_from(MAX_HOSTFILE).unwrap_or(u64::MAX);
        let text = world.read_text(path, FileKind::HostFile, max)?;
        let origin = format!("`{}`", path.display());
        let allocation = alloc::hostfile(&text, &origin, &names).map_err(Error::Nodes)?;
        file = Some((text, origin));
        allocation
    } else {
        let texts: Vec<_> = apps
            .iter()
            .flat_map(|app| app.args.host.iter().map(String::as_str))
            .collect();
        let typed = apps
            .iter()
            .find(|app| !app.args.host.is_empty())
            .map(|app| app.typed("host"));
        match typed {
            // An app without `--host` may use this node, whatever hosts the other apps name.
            Some(typed) => alloc::hosts(&texts.join(","), &format!("`{typed}`"), &names)
                .map_err(Error::Nodes)?,
            None => return of_slurm(personality, world),
        }
    };
    allocation
        .refuse_remote(&names)
        .map_err(|error| Error::RemoteNodes {
            error,
            at: file.and_then(|(text, origin)| line_of_remote(&text, &origin, &names)),
        })?;
    if let [node] = allocation.nodes.as_mut_slice() {
        node.granted = granted::on_this_node(|name| world.variable(name));
    }
    Ok(allocation.into())
}

/// Returns the file, and the first line of it that names another node than this one.
fn line_of_remote(text: &str, origin: &str, names: &LocalNames) -> Option<String> {
    let is_remote = |line: &str| {
        let nodes = alloc::hostfile(line, origin, names);
        nodes.is_ok_and(|nodes| nodes.refuse_remote(names).is_err())
    };
    let (number, _) = (1_usize..)
        .zip(text.lines())
        .find(|(_, line)| is_remote(line))?;
    Some(format!("{origin}, line {number}"))
}

/// Returns this node's share of an allocation of Slurm. Without an allocation, returns this node.
fn of_slurm(personality: Personality, world: &World) -> Result<Nodes, Error> {
    let names = world.names();
    let job = world.variable("SLURM_JOB_ID");
    let list = world
        .variable("SLURM_JOB_NODELIST")
        .or_else(|| world.variable("SLURM_NODELIST"));
    let (Some(job), Some(list)) = (job, list) else {
        let mut local = Allocation::local(&names);
        if let [node] = local.nodes.as_mut_slice() {
            node.granted = granted::on_this_node(|name| world.variable(name));
        }
        return Ok(local.into());
    };
    // srun allocates CPUs; for MPI launchers a slot is a task.
    let counts = match personality {
        Personality::Srun => "SLURM_JOB_CPUS_PER_NODE",
        Personality::Rally | Personality::Mpiexec | Personality::Mpirun => "SLURM_TASKS_PER_NODE",
    };
    let texts = SlurmTexts {
        nodes: list,
        counts: world.variable(counts).map(|text| alloc::Text {
            text,
            origin: counts,
        }),
        here: world.variable("SLURMD_NODENAME"),
    };
    let mut allocation = alloc::slurm(&texts, &names).map_err(Error::Nodes)?;
    let unused = allocation
        .nodes
        .extract_if(.., |node| !names.contains(&node.name))
        .map(|node| node.name)
        .collect();
    if let [node] = allocation.nodes.as_mut_slice() {
        node.granted = granted::on_this_node(|name| world.variable(name));
    }
    if allocation.nodes.is_empty() {
        return Err(Error::AllocatedElsewhere {
            job: job.to_owned(),
            nodes: list.to_owned(),
        });
    }
    // Hydra starts as many procs as it is told to, whatever the allocation.
    let oversubscribe = match personality {
        Personality::Mpiexec => place::Oversubscribe::Allow,
        Personality::Rally | Personality::Mpirun | Personality::Srun => {
            place::Oversubscribe::WhereImplicit
        }
    };
    Ok(Nodes {
        allocation,
        unused,
        oversubscribe,
    })
}

/// Returns the hosts of one app.
fn hosts(app: &AppLine, world: &World) -> Result<Option<HostList>, Error> {
    if app.args.host.is_empty() {
        return Ok(None);
    }
    let origin = format!("`{}`", app.typed("host"));
    let hosts =
        alloc::hosts(&app.args.host.join(","), &origin, &world.names()).map_err(Error::Nodes)?;
    Ok(Some(hosts.names()))
}

/// Combines several options into the text of one `--map-by`. The last policy counts; qualifiers, which begin with a colon,
/// accumulate. `default` applies if there is no policy.
fn map_text(app: &AppLine, default: Option<&str>) -> Result<Option<String>, Error> {
    let said = &app.args.map_by;
    let is_counted = app.args.per_node.is_some() || app.args.deal.is_some();
    let default = default.filter(|_| !is_counted);
    let policy = said
        .iter()
        .rev()
        .find(|text| !text.starts_with(':'))
        .map(String::as_str)
        .or(default);
    let mut text = policy.unwrap_or_default().to_owned();
    // The qualifier that names a file is the last part of a policy.
    let file = text
        .to_ascii_lowercase()
        .find(":file=")
        .map(|at| text.split_off(at))
        .unwrap_or_default();
    let kind = |qualifier: &str| {
        let name = qualifier.split('=').next().unwrap_or_default();
        name.to_ascii_lowercase()
    };
    // If several separate qualifiers are of the same kind, the last one counts.
    let alone: Vec<&str> = said
        .iter()
        .filter_map(|text| text.strip_prefix(':'))
        .flat_map(|text| text.split(':'))
        .collect();
    for (position, qualifier) in alone.iter().enumerate() {
        let later = alone.get(position + 1..).unwrap_or_default();
        if later.iter().all(|other| kind(other) != kind(qualifier)) {
            text.push(':');
            text.push_str(qualifier);
        }
    }
    text.push_str(&file);
    // With one node, all rounds of a deal go to this node. The node's share is then the number of procs, if nothing else
    // sets it.
    let deal = app.args.deal.filter(|_| app.args.procs.is_none());
    if let Some(count) = app.args.per_node.or(deal) {
        let (word, qualifiers) = match text.find(':') {
            Some(at) => text.split_at(at),
            None => (text.as_str(), ""),
        };
        if !matches!(word.to_ascii_lowercase().as_str(), "" | "slot" | "node") {
            return Err(Error::Together {
                first: app.typed(if app.args.per_node.is_some() {
                    "per-node"
                } else {
                    "deal"
                }),
                second: format!("{} {text}", app.typed("map-by")),
                why: "use `--map-by ppr:N:RESOURCE` alone, or leave one of them out",
            });
        }
        text = format!("ppr:{count}:node{qualifiers}");
    }
    Ok(if text.is_empty() { None } else { Some(text) })
}

fn map_source(app: &AppLine, setting: &Setting<Option<String>>) -> Source {
    if app.args.map_by.is_empty() && app.args.per_node.is_none() && app.args.deal.is_none() {
        setting.source.clone()
    } else {
        Source::CommandLine(app.typed("map-by"))
    }
}

/// Parses a mapping policy, and reads the file that it names. `places` is the number of places needed from that file, if
/// known.
fn map_by(
    text: &str,
    source: Source,
    places: Option<u32>,
    settings: &Settings,
    world: &World,
) -> Result<MapBy, Error> {
    let mut map = place::map_by(text).map_err(|error| Error::Policy {
        error: Box::new(error),
        from: source,
    })?;
    let file = place::map_by_file(text).map(PathBuf::from);
    let origin = |path: &Path| format!("`{}`", path.display());
    match &mut map.to {
        Some(MapTo::Rankfile(ranks)) => {
            let Some(path) = file else {
                return Err(Error::MissingFile { policy: "rankfile" });
            };
            let text = world.read_text(&path, FileKind::RankFile, MAX_RANKFILE)?;
            *ranks = place::rankfile(&text, &origin(&path)).map_err(Error::Rankfile)?;
            let names = world.names();
            for line in &mut ranks.lines {
                if let HostRef::Name(name) = &mut line.host {
                    *name = names.canonical(name).to_owned();
                }
            }
        }
        // A sequence without its own file uses the host file.
        Some(MapTo::Sequence(names)) => {
            if let Some(path) = file.as_ref().or(settings.hostfile.value.as_ref()) {
                let max = u64::try_from(MAX_HOSTFILE).unwrap_or(u64::MAX);
                let text = world.read_text(path, FileKind::SequenceFile, max)?;
                let (origin, known) = (origin(path), world.names());
                *names = alloc::sequence(&text, &origin, &known).map_err(Error::Nodes)?;
                // Only this node can be used.
                let places = places.and_then(|places| usize::try_from(places).ok());
                let needed = names.iter().take(places.unwrap_or(usize::MAX));
                let remote = needed.filter(|name| !known.contains(name));
                let nodes: HostList = remote.collect::<BTreeSet<_>>().into_iter().collect();
                if !nodes.is_empty() {
                    return Err(Error::RemoteNodes {
                        error: RemoteNodes { nodes },
                        at: line_of_remote(&text, &origin, &known),
                    });
                }
            }
        }
        _ => {}
    }
    Ok(map)
}

/// Parses a policy that applies to the whole job.
fn policy<T>(
    job: &JobLine,
    flag: &str,
    setting: &Setting<Option<String>>,
    read: impl FnOnce(&str) -> Result<T, place::PolicyError>,
) -> Result<Option<T>, Error> {
    let Some(text) = &setting.value else {
        return Ok(None);
    };
    let source = match &setting.source {
        Source::CommandLine(_) => Source::CommandLine(job.typed(flag)),
        other => other.clone(),
    };
    read(text).map(Some).map_err(|error| Error::Policy {
        error: Box::new(error),
        from: source,
    })
}
