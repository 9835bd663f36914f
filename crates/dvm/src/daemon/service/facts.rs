//! The facts of a job, as PMIx job info.

use std::{ffi::CString, os::unix::ffi::OsStrExt};

use base::{CpuSet, Level, NodeId, Topology};
use pmix::{
    codec::{Format, Reader},
    keys,
    server::{self, AppFacts, Job, NodeFacts, Overflow, RankFacts, Stop, StopIn},
    value::{Info, IofChannels, Key, Kval, Nspace, Proc, Value},
};

use super::{DaemonConfig, OwnNode, Subscription, channels, hwloc, name};
use crate::{
    daemon::spaced,
    place::Placed,
    proto::{Dropped, Keeping, Launch, LaunchNode, Parent, Relation},
    spec::HoldAt,
};

/// Returns the topology of this node as an hwloc XML document, which spares each process its own discovery. `None` if
/// it cannot be encoded.
pub(super) fn topology(config: &DaemonConfig) -> Option<Kval> {
    let text = CString::new(hwloc::xml(&config.topology, &config.host)).ok()?;
    Some(Kval {
        key: Key::new(keys::HWLOC_XML).ok()?,
        value: Value::String(Some(text)),
    })
}

/// Returns the sizes and first ranks of the apps under the keys that Open MPI 5 reads. Empty if there is only one app.
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

/// Returns the locality of a CPU set in the form that libraries compare. It lists the NUMA nodes, packages, caches,
/// cores and threads that contain these CPUs, by logical index.
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

/// Returns the number of each proc of a job among those on the same package; `None` for procs whose CPUs are not in exactly one. An
/// unbound proc may use all CPUs.
fn package_ranks(topology: &Topology, procs: &[Placed]) -> Vec<Option<u16>> {
    let packages = topology.objects(Level::Package);
    let mut counts = vec![0; packages.len()];
    let ranks = procs.iter().map(|proc| {
        let cpus = proc.cpus.as_ref().unwrap_or_else(|| topology.allowed());
        let mut found = (0..)
            .zip(&packages)
            .filter(|(_, all)| !all.is_disjoint(cpus));
        let (index, _): (usize, _) = found.next()?;
        if found.next().is_some() {
            return None;
        }
        let count: &mut u32 = counts.get_mut(index)?;
        let rank = short(*count);
        *count = count.saturating_add(1);
        Some(rank)
    });
    ranks.collect()
}

/// Returns the ranks that stop by themselves, and where; `None` if there are none.
fn stop(launch: &Launch) -> Option<Stop> {
    let place = match launch.hold.at {
        HoldAt::Nowhere | HoldAt::Exec => return None,
        HoldAt::Init => StopIn::Init,
        HoldAt::App => StopIn::App,
    };
    let ranks = launch.hold.among(launch.size());
    Some(Stop { place, ranks })
}

/// Converts a number to the 16 bits that PMIx has for it, saturating.
fn short(number: u32) -> u16 {
    u16::try_from(number).unwrap_or(u16::MAX)
}

/// Returns the nodes of a job, in the order of its map.
fn nodes(launch: &Launch) -> Vec<NodeFacts> {
    let of = |(id, node): (NodeId, &LaunchNode)| {
        let procs = u32::try_from(launch.map.ranks_on(id).len()).unwrap_or(u32::MAX);
        NodeFacts {
            name: CString::new(node.host.as_str()).unwrap_or_default(),
            id: id.0,
            procs: node.load.others.saturating_add(procs),
            oversubscribed: Subscription::of(node.load, procs) == Subscription::Oversubscribed,
        }
    };
    launch.map.nodes().zip(&launch.nodes).map(of).collect()
}

/// Returns the facts of all ranks of a job. Locality and package are known only on the node itself, and only its own ranks have them.
/// That suffices, because libraries compare them only among ranks on the same node.
fn ranks(config: &DaemonConfig, own: Option<&OwnNode>, launch: &Launch) -> Vec<RankFacts> {
    let mut ranks = vec![RankFacts::default(); launch.size() as usize];
    let mut fill = |node: u32, first: u32, topology: Option<&Topology>, procs: &[Placed]| {
        let packages = topology.map(|topology| package_ranks(topology, procs));
        for (index, proc) in procs.iter().enumerate() {
            let Some(facts) = ranks.get_mut(proc.rank.0 as usize) else {
                continue;
            };
            let cpus = proc.cpus.as_ref();
            let text = |text: String| CString::new(text).ok();
            *facts = RankFacts {
                app: proc.app,
                app_rank: proc.app_rank,
                node,
                local_rank: short(proc.local_rank),
                node_rank: short(first.saturating_add(proc.local_rank)),
                cpuset: cpus.and_then(|cpus| text(cpus.to_string())),
                locality: topology
                    .zip(cpus)
                    .and_then(|(topology, cpus)| text(locality(topology, cpus))),
                package_rank: packages
                    .as_ref()
                    .and_then(|ranks| ranks.get(index).copied().flatten()),
            };
        }
    };
    for (index, (id, node)) in (0..).zip(launch.map.nodes().zip(&launch.nodes)) {
        match own.filter(|own| own.index == index) {
            Some(own) => fill(index, node.load.first, Some(&config.topology), &own.procs),
            None => fill(index, node.load.first, None, &launch.map.on_node(id)),
        }
    }
    ranks
}

/// Returns the facts that the spawn request has for the job's procs.
fn told(launch: &Launch) -> Vec<Kval> {
    let packed = launch.parent.iter().map(|parent| &parent.told);
    let infos = packed.flat_map(|packed| Reader::new(Format::V4, packed).list::<Info>());
    let facts = infos.flatten().map(|info| Kval {
        key: info.key,
        value: info.value,
    });
    facts.collect()
}

/// Builds the PMIx facts of a job. `own` is `None` if the job has no procs on this node; `topology` is for these procs.
pub(super) fn facts(
    config: &DaemonConfig,
    own: Option<&OwnNode>,
    topology: Option<Kval>,
    launch: &Launch,
    nspace: Nspace,
) -> Job {
    let c_string = |bytes: &[u8]| CString::new(bytes).ok();
    let apps = (0..)
        .zip(&launch.apps)
        .zip(launch.map.apps())
        .map(|((index, app), ranks)| {
            let mut argv = app.program.as_bytes().to_vec();
            for argument in &app.args {
                argv.push(b' ');
                argv.extend_from_slice(argument.as_bytes());
            }
            AppFacts {
                argv: c_string(&argv),
                wdir: c_string(app.directory.as_bytes()),
                size: ranks.count,
                leader: ranks.first.0,
                set: launch
                    .sets
                    .get(&index)
                    .and_then(|set| c_string(set.as_str().as_bytes())),
            }
        });
    let apps: Vec<AppFacts> = apps.collect();
    let called = |parent: &Parent| Proc {
        nspace: name(&parent.nspace),
        rank: parent.proc.rank.into(),
    };
    let spawner = launch.parent.as_ref();
    let spawner = spawner.filter(|parent| parent.relation == Relation::Spawner);
    let nodes = nodes(launch);
    let nowhere = u32::try_from(nodes.len()).unwrap_or(u32::MAX);
    let forward = launch.parent.iter().flat_map(|parent| &parent.forward);
    let forwarded = forward.copied().map(channels).reduce(IofChannels::with);
    Job {
        session: 1,
        universe: launch.universe.size(),
        offset: launch.offset,
        nodes,
        ranks: ranks(config, own, launch),
        here: own.map_or(nowhere, |own| own.index),
        forward: launch.parent.as_ref().map(called).zip(forwarded),
        keep: launch
            .parent
            .as_ref()
            .and_then(|parent| Some(keeping(parent.keep?))),
        parent: spawner.map(called),
        map_by: None,
        rank_by: None,
        bind_to: None,
        session_dir: None,
        job_dir: None,
        stop: stop(launch),
        extra: topology
            .into_iter()
            .chain(programs(&apps))
            .chain(told(launch))
            .collect(),
        apps,
        nspace,
    }
}

const fn keeping(keep: Keeping) -> server::Keeping {
    server::Keeping {
        bytes: keep.bytes,
        overflow: match keep.dropped {
            Dropped::Oldest => Overflow::DropOldest,
            Dropped::Newest => Overflow::DropNewest,
        },
    }
}

#[cfg(test)]
mod tests {
    use base::{Pu, Rank};

    use super::*;
    use crate::{
        daemon::tests::{beside, launch_bound},
        place::BindTarget,
        spec::SetName,
    };

    #[test]
    fn locality_names_what_cpus_are_in() {
        let topology = Topology::flat(4);
        let mut cpus = CpuSet::single(1);
        assert_eq!(locality(&topology, &cpus), "hwloc:NM0:SK0:CR1:HT1");
        cpus.insert(2);
        cpus.insert(3);
        assert_eq!(locality(&topology, &cpus), "hwloc:NM0:SK0:CR1-3:HT1-3");
    }

    #[test]
    fn procs_are_numbered_on_each_package() {
        // PUs 0 and 1 are on one package, 2 and 3 on another.
        let pus = Topology::flat(4).pus().to_vec();
        let pus = pus.into_iter().map(|pu| Pu {
            package: pu.os_index / 2,
            ..pu
        });
        let topology = Topology::from_pus(pus.collect(), (0..4).collect());
        let placed = |rank: u32, cpus: Option<&[u32]>| Placed {
            rank: Rank(rank),
            app: 0,
            app_rank: rank,
            local_rank: rank,
            cpus: cpus.map(|cpus| cpus.iter().copied().collect()),
        };
        let procs = [
            placed(0, Some(&[0])),
            placed(1, Some(&[2, 3])),
            placed(2, Some(&[0, 1])),
            placed(3, Some(&[1, 2])),
            placed(4, None),
            placed(5, Some(&[3])),
            placed(6, Some(&[7])),
        ];
        let ranks = package_ranks(&topology, &procs);
        let expected = [Some(0), Some(0), Some(1), None, None, Some(1), None];
        assert_eq!(ranks, expected);
        let unbound = [placed(0, None), placed(1, None)];
        let ranks = package_ranks(&Topology::flat(4), &unbound);
        assert_eq!(ranks, [Some(0), Some(1)]);
    }

    /// Formats what a daemon registers about the ranks of a job. It is the same on every node, except for the locality
    /// of ranks and their numbers on packages.
    fn told(node: u32, launch: &Launch) -> String {
        let config = DaemonConfig {
            resources: Default::default(),
            node: NodeId(node),
            host: format!("n{node}"),
            topology: Topology::flat(4),
            descriptors: 100,
            service: None,
        };
        let own = OwnNode::of(config.node, launch).unwrap();
        let job = facts(&config, Some(&own), None, launch, Nspace::default());
        let text = |text: &Option<CString>| match text {
            Some(text) => text.to_str().unwrap().to_owned(),
            None => "-".to_owned(),
        };
        let nodes = job.nodes.iter().map(|node| {
            let more = if node.oversubscribed {
                ", too many"
            } else {
                ""
            };
            format!("{:?}: {}, {} procs{more}", node.name, node.id, node.procs)
        });
        let apps = job.apps.iter().map(|app| {
            format!(
                "app of {} from {}, set {}",
                app.size,
                app.leader,
                text(&app.set)
            )
        });
        let ranks = (0..).zip(&job.ranks).map(|(rank, facts)| {
            format!(
                "rank {rank}: {} of app {}, node {}, {} and {} there, cpus {} {}",
                facts.app_rank,
                facts.app,
                facts.node,
                facts.local_rank,
                facts.node_rank,
                text(&facts.cpuset),
                text(&facts.locality)
            )
        });
        let here = format!("on node {} of", job.here);
        let lines: Vec<String> = [here]
            .into_iter()
            .chain(nodes)
            .chain(apps)
            .chain(ranks)
            .collect();
        lines.join("\n")
    }

    #[test]
    fn every_node_tells_the_same_of_all_ranks() {
        let cores = BindTarget::Object(Level::Core);
        let mut launch = beside(launch_bound(1, &[3, 3], &["", "n1", "n2"], cores), 1);
        launch.sets = SetName::try_from("ocean".to_owned())
            .map(|set| (1, set))
            .into_iter()
            .collect();
        let first = told(1, &launch);
        insta::assert_snapshot!(first, @r#"
        on node 0 of
        "n1": 1, 5 procs, too many
        "n2": 2, 3 procs
        app of 3 from 0, set -
        app of 3 from 3, set ocean
        rank 0: 0 of app 0, node 0, 0 and 1 there, cpus 0 hwloc:NM0:SK0:CR0:HT0
        rank 1: 1 of app 0, node 0, 1 and 2 there, cpus 1 hwloc:NM0:SK0:CR1:HT1
        rank 2: 2 of app 0, node 0, 2 and 3 there, cpus 2 hwloc:NM0:SK0:CR2:HT2
        rank 3: 0 of app 1, node 0, 3 and 4 there, cpus 3 hwloc:NM0:SK0:CR3:HT3
        rank 4: 1 of app 1, node 1, 0 and 1 there, cpus 0 -
        rank 5: 2 of app 1, node 1, 1 and 2 there, cpus 1 -
        "#);
        let second = told(2, &launch);
        let differ = first
            .lines()
            .zip(second.lines())
            .filter(|(one, two)| one != two);
        let differ: Vec<String> = differ.map(|(_, two)| two.to_owned()).collect();
        insta::assert_snapshot!(differ.join("\n"), @"
        on node 1 of
        rank 0: 0 of app 0, node 0, 0 and 1 there, cpus 0 -
        rank 1: 1 of app 0, node 0, 1 and 2 there, cpus 1 -
        rank 2: 2 of app 0, node 0, 2 and 3 there, cpus 2 -
        rank 3: 0 of app 1, node 0, 3 and 4 there, cpus 3 -
        rank 4: 1 of app 1, node 1, 0 and 1 there, cpus 0 hwloc:NM0:SK0:CR0:HT0
        rank 5: 2 of app 1, node 1, 1 and 2 there, cpus 1 hwloc:NM0:SK0:CR1:HT1
        ");
    }
}
