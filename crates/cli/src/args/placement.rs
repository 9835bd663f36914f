//! Placement of the ranks: combines several options and settings into one request, and reads the files that they name.

use std::path::{Path, PathBuf};

use dvm::{
    alloc::{self, Base, MAX_HOSTFILE},
    place::{self, AppRequest, BindList, HostRef, MapBy, MapTo, Request},
};

use super::{
    AppLine, Error, JobLine, Personality, Purpose, RunLine, World, error::FileKind, nodes::Nodes,
};
use crate::choices::Oversubscribe;
use crate::config::{Setting, Settings, Source};

/// The largest rankfile, in bytes.
const MAX_RANKFILE: u64 = 1 << 26;

/// The placement that a command line and the settings request.
#[derive(Debug)]
pub(super) struct Placement {
    pub(super) request: Request,
    /// The nodes of the job.
    pub(super) nodes: Nodes,
}

/// Combines all options and settings about placement.
pub(super) fn resolve(
    apps: &[AppLine],
    job: &JobLine,
    personality: Personality,
    settings: &Settings,
    nodes: Nodes,
    world: &World,
) -> Result<Placement, Error> {
    let mut request = Request {
        apps: Vec::with_capacity(apps.len()),
        map_by: None,
        rank_by: None,
        bind_to: None,
        oversubscribe: match settings.oversubscribe.value {
            Oversubscribe::Yes => place::Oversubscribe::Allow,
            Oversubscribe::No => place::Oversubscribe::Refuse,
            Oversubscribe::Auto => nodes.oversubscribe,
        },
        cpus: None,
        bind_list: bind_list(job)?,
    };
    for (position, app) in apps.iter().enumerate() {
        let default = settings.map_by.value.as_deref().filter(|_| position == 0);
        let map_by = match map_text(app, default, &nodes, position)? {
            Some(text) => Some(map_by(
                &text,
                map_source(app, &settings.map_by),
                &nodes,
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
            hosts: nodes.of_app(position),
            map_by: own,
        });
    }
    request.rank_by = policy(job, "rank-by", &settings.rank_by, place::rank_by)?;
    request.bind_to = policy(job, "bind-to", &settings.bind_to, place::bind_to)?;
    Ok(Placement { request, nodes })
}

/// Checks the policies of a job whose nodes are not known yet.
///
/// # Errors
///
/// A policy or a rankfile that cannot be read.
pub(super) fn check(
    apps: &[AppLine],
    job: &JobLine,
    settings: &Settings,
    world: &World,
) -> Result<(), Error> {
    let nodes = Nodes::unknown(&world.names());
    bind_list(job)?;
    policy(job, "rank-by", &settings.rank_by, place::rank_by)?;
    policy(job, "bind-to", &settings.bind_to, place::bind_to)?;
    for (position, app) in apps.iter().enumerate() {
        let default = settings.map_by.value.as_deref().filter(|_| position == 0);
        let Some(text) = map_text(app, default, &nodes, position)? else {
            continue;
        };
        // A sequence may count the nodes of the allocation.
        let is_sequence = |map: &MapBy| matches!(map.to, Some(MapTo::Sequence(_)));
        if !place::map_by(&text).as_ref().is_ok_and(is_sequence) {
            let source = map_source(app, &settings.map_by);
            map_by(&text, source, &nodes, settings, world)?;
        }
    }
    Ok(())
}

/// Gives the apps the numbers of procs that they have without an option. `None`: these depend only on the slots.
///
/// # Errors
///
/// See [`with_counts_of_nodes`].
pub(super) fn with_counts(
    line: &RunLine,
    nodes: &mut Nodes,
    settings: &Settings,
) -> Result<Option<RunLine>, Error> {
    match line.personality {
        Personality::Srun => with_counts_of_nodes(line, nodes).map(Some),
        _ => Ok(with_one_proc(line, settings)),
    }
}

/// Gives the apps of `srun` their numbers of procs, which depend on the nodes: one on each node, or `--ntasks-per-node` on
/// each. For srun that is an upper limit, and no policy, so it may be combined with one. For other launchers it is a policy.
///
/// # Errors
///
/// A number of procs above the limit.
fn with_counts_of_nodes(line: &RunLine, nodes: &mut Nodes) -> Result<RunLine, Error> {
    let mut line = line.clone();
    let is_alone = line.apps.len() == 1;
    for (position, app) in line.apps.iter_mut().enumerate() {
        let count = nodes.count_of_app(position);
        let Some(limit) = app.args.per_node.take() else {
            // A file of programs may say how many procs there are.
            if is_alone && app.args.deal.is_none() && !line.job.args.multi_prog {
                app.args.procs.get_or_insert(count);
            }
            continue;
        };
        let most = limit.saturating_mul(count);
        // The allocation's number of tasks is for all its nodes.
        let is_of_allocation = nodes.manager.is_some() && app.typed("np").starts_with("SLURM_");
        let said = app
            .args
            .procs
            .filter(|procs| !is_of_allocation || *procs <= most);
        let procs = said.unwrap_or(most);
        app.args.procs = Some(procs);
        if procs > most {
            return Err(Error::Together {
                first: format!("{} {procs}", app.typed("np")),
                second: format!("{} {limit}", app.typed("per-node")),
                why: "start fewer procs, or use more nodes, or more procs on each",
            });
        }
        if is_alone {
            nodes.limit_slots(limit);
        }
    }
    if is_alone && let Some(procs) = line.apps.first().and_then(|app| app.args.procs) {
        nodes.use_at_most(procs);
        let mut said = line.apps.iter().flat_map(|app| &app.args.map_by);
        if !said.any(|text| names_places(text)) {
            nodes.deal_slots(procs);
        }
    }
    Ok(line)
}

/// Returns true for a policy that says how many procs there are, and where.
fn names_places(policy: &str) -> bool {
    let lists = ["ppr", "seq", "rankfile"];
    let policy = policy.to_ascii_lowercase();
    lists.iter().any(|list| policy.starts_with(list))
}

/// Gives each app of an array one proc, unless something says how many there are. Users of arrays run programs that are no parallel
/// ones, and a task with a proc for each slot would have the machine for itself.
fn with_one_proc(line: &RunLine, settings: &Settings) -> Option<RunLine> {
    let default = settings.map_by.value.as_deref();
    let is_counted = |app: &AppLine| {
        let args = &app.args;
        let said = args.map_by.iter().rev().map(String::as_str);
        let policy = said.chain(default).find(|text| !text.starts_with(':'));
        args.procs.or(args.per_node).or(args.deal).is_some()
            || policy.is_some_and(names_places)
            // `--host n1:4` means four procs.
            || args.host.iter().any(|hosts| hosts.contains(':'))
    };
    let job = &line.job;
    if job.purpose != Purpose::Array || job.args.nodes.is_some() || line.apps.iter().any(is_counted)
    {
        return None;
    }
    let mut line = line.clone();
    for app in &mut line.apps {
        app.args.procs = Some(1);
    }
    Some(line)
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

/// Combines several options into the text of one `--map-by`. The last policy counts; qualifiers, which begin with a colon,
/// accumulate. `default` applies if there is no policy.
fn map_text(
    app: &AppLine,
    default: Option<&str>,
    nodes: &Nodes,
    position: usize,
) -> Result<Option<String>, Error> {
    let said = &app.args.map_by;
    let is_counted = app.args.per_node.is_some() || app.args.deal.is_some();
    let default = default.or(nodes.map_by).filter(|_| !is_counted);
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
    // After the first round, a deal begins again with the first node: with one node, all rounds go to it.
    let room = |each: u32| each.saturating_mul(nodes.count_of_app(position));
    let is_one_round = |each: &u32| app.args.procs.is_none_or(|procs| procs <= room(*each));
    let deal = app.args.deal.filter(is_one_round);
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

/// Parses a mapping policy, and reads the file that it names.
fn map_by(
    text: &str,
    source: Source,
    nodes: &Nodes,
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
                let base = Base {
                    nodes: Some(&nodes.allocation.nodes),
                    used: &[],
                };
                let list = alloc::sequence(&text, &origin(path), &world.names(), base);
                *names = list.map_err(Error::Nodes)?;
            }
        }
        _ => {}
    }
    Ok(map)
}

fn bind_list(job: &JobLine) -> Result<Option<BindList>, Error> {
    let read = |text: &String| {
        place::bind_list(text).map_err(|error| Error::Policy {
            error: Box::new(error),
            from: Source::CommandLine(job.typed("bind-list")),
        })
    };
    job.args.bind_list.as_ref().map(read).transpose()
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
