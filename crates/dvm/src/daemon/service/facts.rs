//! The facts of a job, in PMIx's words.

use std::{ffi::CString, os::unix::ffi::OsStrExt};

use base::{CpuSet, Level, Topology};
use pmix::{
    keys,
    server::{AppFacts, Job, NodeFacts, RankFacts, Stop, StopIn},
    value::{IofChannels, Key, Kval, Nspace, Proc, Value},
};

use super::{Company, Crowd, DaemonConfig, channels, hwloc, name};
use crate::{daemon::job::spaced, proto::Launch, spec::HoldAt};

/// The topology of the node, as a fact that every process would otherwise find out by itself.
fn topology(config: &DaemonConfig) -> Option<Kval> {
    let text = CString::new(hwloc::xml(&config.topology, &config.host)).ok()?;
    Some(Kval {
        key: Key::new(keys::HWLOC_XML).ok()?,
        value: Value::String(Some(text)),
    })
}

/// The sizes and the first ranks of the programs, where there are several, as Open MPI 5 looks for them.
fn programs(apps: &[AppFacts]) -> impl Iterator<Item = Kval> {
    let lists = [
        (c"OMPI_APP_SIZES", spaced(apps.iter().map(|app| app.size))),
        (
            c"OMPI_FIRST_RANKS",
            spaced(apps.iter().map(|app| app.leader)),
        ),
    ];
    let is_one = apps.len() <= 1;
    lists
        .into_iter()
        .filter(move |_| !is_one)
        .filter_map(|(key, list)| {
            Some(Kval {
                key: Key::new(key).ok()?,
                value: Value::text(&list),
            })
        })
}

/// Where CPUs are, as libraries compare it: the numbers of the NUMA nodes, packages, caches, cores and threads that they
/// are in, counted in logical order.
fn locality(topology: &Topology, cpus: &CpuSet) -> String {
    const LEVELS: [(&str, Level); 7] = [
        ("NM", Level::Numa),
        ("SK", Level::Package),
        ("L3", Level::L3),
        ("L2", Level::L2),
        ("L1", Level::L1),
        ("CR", Level::Core),
        ("HT", Level::Pu),
    ];
    let mut text = "hwloc".to_owned();
    for (name, level) in LEVELS {
        let mut numbers = CpuSet::new();
        for (number, object) in (0..).zip(topology.objects(level)) {
            if !object.is_disjoint(cpus) {
                numbers.insert(number);
            }
        }
        if !numbers.is_empty() {
            text.push_str(&format!(":{name}{numbers}"));
        }
    }
    text
}

/// Which procs stop by themselves.
fn stop(launch: &Launch) -> Option<Stop> {
    let place = match launch.hold.at {
        HoldAt::Nowhere | HoldAt::Exec => return None,
        HoldAt::Init => StopIn::Init,
        HoldAt::App => StopIn::App,
    };
    let ranks = launch.hold.among(launch.size);
    Some(Stop { place, ranks })
}

/// The facts of a job, as PMIx wants them.
pub(super) fn facts(
    config: &DaemonConfig,
    company: Company,
    launch: &Launch,
    nspace: Nspace,
) -> Job {
    let c_string = |bytes: &[u8]| CString::new(bytes).ok();
    let apps = (0..).zip(&launch.apps).map(|(index, app)| {
        let mut argv = app.program.as_bytes().to_vec();
        for argument in &app.args {
            argv.push(b' ');
            argv.extend_from_slice(argument.as_bytes());
        }
        let mine = || launch.procs.iter().filter(|proc| proc.app == index);
        AppFacts {
            argv: c_string(&argv),
            wdir: c_string(app.directory.as_bytes()),
            size: u32::try_from(mine().count()).unwrap_or(u32::MAX),
            leader: mine().map(|proc| proc.rank.0).min().unwrap_or(0),
        }
    });
    let ranks = launch.procs.iter().map(|proc| {
        let number = |number: u32| u16::try_from(number).unwrap_or(u16::MAX);
        RankFacts {
            app: proc.app,
            app_rank: proc.app_rank,
            node: 0,
            local_rank: number(proc.local_rank),
            node_rank: number(company.first.saturating_add(proc.local_rank)),
            cpuset: proc
                .cpus
                .as_ref()
                .and_then(|cpus| CString::new(cpus.to_string()).ok()),
            locality: proc
                .cpus
                .as_ref()
                .and_then(|cpus| CString::new(locality(&config.topology, cpus)).ok()),
        }
    });
    let apps: Vec<AppFacts> = apps.collect();
    let parent = launch.parent.as_ref().map(|parent| Proc {
        nspace: name(&parent.nspace),
        rank: parent.proc.rank.into(),
    });
    let forward = launch.parent.iter().flat_map(|parent| &parent.forward);
    let forwarded = forward.copied().map(channels).reduce(IofChannels::with);
    Job {
        session: 1,
        universe: launch.universe.size(),
        offset: launch.offset,
        nodes: vec![NodeFacts {
            name: CString::new(config.host.as_str()).unwrap_or_default(),
            id: config.node.0,
            procs: company.procs,
            oversubscribed: company.crowd == Crowd::Oversubscribed,
        }],
        ranks: ranks.collect(),
        here: 0,
        forward: parent.clone().zip(forwarded),
        parent,
        map_by: None,
        rank_by: None,
        bind_to: None,
        session_dir: None,
        job_dir: None,
        stop: stop(launch),
        extra: topology(config)
            .into_iter()
            .chain(programs(&apps))
            .collect(),
        apps,
        nspace,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn locality_names_what_cpus_are_in() {
        let topology = Topology::flat(4);
        let mut cpus = CpuSet::single(1);
        assert_eq!(locality(&topology, &cpus), "hwloc:NM0:SK0:CR1:HT1");
        cpus.insert(2);
        cpus.insert(3);
        assert_eq!(locality(&topology, &cpus), "hwloc:NM0:SK0:CR1-3:HT1-3");
    }
}
