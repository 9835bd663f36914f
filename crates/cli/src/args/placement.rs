//! Where the ranks are to go: the texts of several options and settings made into one request, and the files that they
//! name read.

use std::path::{Path, PathBuf};

use base::HostList;
use dvm::{
    alloc::{self, Allocation, MAX_HOSTFILE},
    place::{self, AppRequest, MapBy, MapTo, Request},
};

use super::{AppLine, Error, JobLine, Personality, World, error::FileKind, granted};
use crate::config::{Oversubscribe, Setting, Settings, Source};

/// Bytes that a rankfile may have.
const MAX_RANKFILE: u64 = 1 << 26;

/// The placement that a command line and the settings ask for, and the nodes that it may use.
pub(super) fn resolve(
    apps: &[AppLine],
    job: &JobLine,
    personality: Personality,
    settings: &Settings,
    world: &World,
) -> Result<(Request, Allocation), Error> {
    let allocation = allocation(apps, settings, world)?;
    let mut request = Request {
        apps: Vec::with_capacity(apps.len()),
        map_by: None,
        rank_by: None,
        bind_to: None,
        oversubscribe: match settings.oversubscribe.value {
            Oversubscribe::Yes => place::Oversubscribe::Allow,
            Oversubscribe::No => place::Oversubscribe::Refuse,
            Oversubscribe::Auto => place::Oversubscribe::WhereImplicit,
        },
        cpus: None,
    };
    for (position, app) in apps.iter().enumerate() {
        let default = settings.map_by.value.as_deref().filter(|_| position == 0);
        let map_by = match map_text(app, default)? {
            Some(text) => Some(map_by(
                &text,
                map_source(app, &settings.map_by),
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
    Ok((request, allocation))
}

/// How many procs an app has; `srun` starts one where nobody says, neither in all nor for each node.
fn count(app: &AppLine, personality: Personality) -> Option<u32> {
    app.args.procs.or(match (personality, app.args.per_node) {
        (Personality::Srun, None) => Some(1),
        _ => None,
    })
}

/// The nodes: those of the host file, else those that `--host` names, else this one.
fn allocation(apps: &[AppLine], settings: &Settings, world: &World) -> Result<Allocation, Error> {
    let names = world.names();
    let mut allocation = if let Some(path) = &settings.hostfile.value {
        let max = u64::try_from(MAX_HOSTFILE).unwrap_or(u64::MAX);
        let text = world.read_text(path, FileKind::HostFile, max)?;
        alloc::hostfile(&text, &format!("`{}`", path.display()), &names).map_err(Error::Nodes)?
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
            // An app without hosts of its own may use this node, whatever the others may.
            Some(typed) => alloc::hosts(&texts.join(","), &format!("`{typed}`"), &names)
                .map_err(Error::Nodes)?,
            None => Allocation::local(&names),
        }
    };
    allocation
        .refuse_remote(&names)
        .map_err(Error::RemoteNodes)?;
    if let [node] = allocation.nodes.as_mut_slice() {
        node.granted = granted::on_this_node(|name| world.variable(name));
    }
    Ok(allocation)
}

/// The hosts of one app.
fn hosts(app: &AppLine, world: &World) -> Result<Option<HostList>, Error> {
    if app.args.host.is_empty() {
        return Ok(None);
    }
    let origin = format!("`{}`", app.typed("host"));
    let hosts =
        alloc::hosts(&app.args.host.join(","), &origin, &world.names()).map_err(Error::Nodes)?;
    Ok(Some(hosts.names()))
}

/// The text of `--map-by` that several options make up together. The last policy counts; qualifiers, which begin with a
/// colon, add up. `default` is what is used where there is no policy.
fn map_text(app: &AppLine, default: Option<&str>) -> Result<Option<String>, Error> {
    let said = &app.args.map_by;
    let policy = said
        .iter()
        .rev()
        .find(|text| !text.starts_with(':'))
        .map(String::as_str)
        .or(default);
    let mut text = policy.unwrap_or_default().to_owned();
    // What names a file is the last part of a policy.
    let file = text
        .to_ascii_lowercase()
        .find(":file=")
        .map(|at| text.split_off(at))
        .unwrap_or_default();
    for qualifiers in said.iter().filter(|text| text.starts_with(':')) {
        text.push_str(qualifiers);
    }
    text.push_str(&file);
    if let Some(count) = app.args.per_node {
        let (word, qualifiers) = match text.find(':') {
            Some(at) => text.split_at(at),
            None => (text.as_str(), ""),
        };
        if !matches!(word.to_ascii_lowercase().as_str(), "" | "slot" | "node") {
            return Err(Error::Together {
                first: app.typed("per-node"),
                second: format!("{} {text}", app.typed("map-by")),
                why: "use `--map-by ppr:N:RESOURCE` alone, or leave one of them out",
            });
        }
        text = format!("ppr:{count}:node{qualifiers}");
    }
    Ok(if text.is_empty() { None } else { Some(text) })
}

fn map_source(app: &AppLine, setting: &Setting<Option<String>>) -> Source {
    if app.args.map_by.is_empty() && app.args.per_node.is_none() {
        setting.source.clone()
    } else {
        Source::CommandLine(app.typed("map-by"))
    }
}

/// Reads a mapping policy and the file that it names.
fn map_by(text: &str, source: Source, settings: &Settings, world: &World) -> Result<MapBy, Error> {
    let mut map = place::map_by(text).map_err(|error| Error::Policy {
        error: Box::new(error),
        from: source,
    })?;
    let file = place::map_by_file(text).map(PathBuf::from);
    let origin = |path: &Path| format!("`{}`", path.display());
    match &mut map.to {
        Some(MapTo::Rankfile(lines)) => {
            let Some(path) = file else {
                return Err(Error::MissingFile { policy: "rankfile" });
            };
            let text = world.read_text(&path, FileKind::RankFile, MAX_RANKFILE)?;
            *lines = place::rankfile(&text, &origin(&path)).map_err(Error::Rankfile)?;
        }
        // Without a file of its own, the sequence is that of the host file.
        Some(MapTo::Sequence(names)) => {
            if let Some(path) = file.as_ref().or(settings.hostfile.value.as_ref()) {
                let max = u64::try_from(MAX_HOSTFILE).unwrap_or(u64::MAX);
                let text = world.read_text(path, FileKind::SequenceFile, max)?;
                *names =
                    alloc::sequence(&text, &origin(path), &world.names()).map_err(Error::Nodes)?;
            }
        }
        _ => {}
    }
    Ok(map)
}

/// Reads a policy of the job.
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
