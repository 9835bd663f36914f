//! The peers of ranks: processes that are not ranks, but whose work may end the wait of a rank.
//!
//! Another process may release a semaphore or a lock in shared memory, and a job may wait for messages from a job that it has
//! spawned. Processes *below* a rank are its descendants: workers of a data loader or a pool, commands of a shell. Processes
//! *beside* the ranks are the other descendants of their launcher, mostly spawned jobs. If there is no launcher, the parent
//! of the ranks takes its place. The launcher and the processes between it and a rank are not peers, because they wait for
//! the rank: a proxy, a shell, `time`.
//!
//! Processes of `dbgr` are no peers, nor are their descendants: they work while they take samples. A watch may be a sibling of the
//! ranks, and the daemons of a job may have started agents.
//!
//! *Neighbors* are descendants of other launchers of the same user on the node. A launcher above a rank, such as that of a
//! batch script, is not one of these launchers. Jobs can connect to each other through a port (`MPI_Comm_connect`), and
//! nothing outside of the jobs shows whether they have. So neighbors matter only if the program refers to one of the
//! functions for this ([`Joining`]).

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use base::{NodeId, Rank, RankSet};
use serde::{Deserialize, Deserializer, Serialize, Serializer, de::Error as _};
use serde_json::{Map, Value};

use crate::{agent::kernel::Process, image::Joining, target::is_launcher};

/// Maximum number of levels of processes between a rank and an ancestor or descendant.
const MAX_DEPTH: usize = 64;
/// Pid of init, which adopts orphans.
const INIT: i32 = 1;
/// Name of the command of a debugger, its agents and its relays.
const DEBUGGER: &str = "dbgr";

/// A group of processes.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct PeerGroup {
    /// The pids of the processes.
    pub pids: BTreeSet<i32>,
    /// Total CPU time of these processes.
    pub cpu: Duration,
}

/// The peers of the ranks of one node, at one moment.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct LocalPeers {
    /// The name of the node's host. Empty until the session fills it in, because the agent does not know it.
    pub host: String,
    /// The ranks of the sample that are on the node.
    pub ranks: RankSet,
    /// The descendants of each rank. Ranks without descendants are absent.
    pub below: BTreeMap<Rank, PeerGroup>,
    /// The other descendants of the launcher. Without a launcher: those of the parent of the ranks.
    pub beside: PeerGroup,
    /// Children of the launcher in `beside`: they are ranks of other jobs.
    pub jobs: BTreeSet<i32>,
    /// Descendants of other launchers of the same user.
    pub neighbors: PeerGroup,
    /// Whether the job may be connected to a job of a neighbor.
    pub joining: Joining,
}

impl LocalPeers {
    /// Finds the peers of some ranks among the processes of a node, except the neighbors. Also returns the descendants of
    /// other launchers. Those that belong to the user of a rank are the neighbors, but the check costs the read of a file for
    /// each process. `own` is the pid of the process that takes the sample.
    #[must_use]
    pub fn of(
        all: &BTreeMap<i32, Process>,
        ranks: &BTreeMap<Rank, i32>,
        own: i32,
    ) -> (Self, BTreeSet<i32>) {
        let by_pid: BTreeMap<i32, Rank> = ranks.iter().map(|(&rank, &pid)| (pid, rank)).collect();
        let above = |pid: i32| {
            let parent = |pid: &i32| all.get(pid).map(|it| it.parent).filter(|&it| it > 0);
            std::iter::successors(parent(&pid), parent).take(MAX_DEPTH)
        };
        let is_launcher = |pid: i32| all.get(&pid).is_some_and(|it| is_launcher(&it.name));
        let is_debugger =
            |pid: i32| pid == own || all.get(&pid).is_some_and(|it| it.name == DEBUGGER);
        // The children of a rank are its own, whoever has started the rank.
        let is_ours = |pid: i32| {
            let mut upwards = std::iter::once(pid).chain(above(pid));
            let nearest = upwards.find(|&at| is_debugger(at) || by_pid.contains_key(&at));
            nearest.is_some_and(is_debugger)
        };
        let waiting: BTreeSet<i32> = ranks.values().flat_map(|&pid| above(pid)).collect();
        let nobody: BTreeSet<i32> = above(own).chain(waiting.iter().copied()).collect();
        // Below its launcher a batch script also runs programs that are not jobs.
        let is_anothers = |pid: i32| is_launcher(pid) && !waiting.contains(&pid);
        let roots: BTreeSet<i32> = ranks
            .values()
            .filter_map(|&pid| root(above(pid), &is_launcher))
            .collect();
        let mut peers = Self::default();
        let mut of_others = BTreeSet::new();
        for (&pid, process) in all {
            let is_rank = by_pid.contains_key(&pid);
            if is_rank || is_launcher(pid) || nobody.contains(&pid) || is_ours(pid) {
                continue;
            }
            let below = above(pid).find_map(|pid| by_pid.get(&pid));
            if let Some(&rank) = below {
                peers.below.entry(rank).or_default().add(process);
            } else if roots.contains(&pid) || above(pid).any(|pid| roots.contains(&pid)) {
                peers.beside.add(process);
                if is_launcher(process.parent) {
                    peers.jobs.insert(pid);
                }
            } else if above(pid).any(is_anothers) {
                of_others.insert(pid);
            }
        }
        (peers, of_others)
    }
}

/// The peers on each node of a job, at one moment. They are kept apart by node, because a pid identifies a process only on
/// its node.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Peers(pub BTreeMap<NodeId, LocalPeers>);

impl Peers {
    /// Returns the peers on one node.
    #[must_use]
    pub fn of(node: NodeId, peers: LocalPeers) -> Self {
        Self(BTreeMap::from([(node, peers)]))
    }

    /// Adds the peers on other nodes. If a node is in both, its present peers stay.
    pub fn merge(&mut self, other: Self) {
        for (node, peers) in other.0 {
            self.0.entry(node).or_insert(peers);
        }
    }

    /// Returns the descendants of a rank; `None` if it has none.
    #[must_use]
    pub fn below(&self, rank: Rank) -> Option<&PeerGroup> {
        self.0.values().find_map(|it| it.below.get(&rank))
    }

    /// Returns true if a launcher of the job has other jobs.
    #[must_use]
    pub fn has_other_jobs(&self) -> bool {
        self.0.values().any(|it| !it.jobs.is_empty())
    }

    /// Returns whether the job may be connected to a job of another launcher.
    #[must_use]
    pub fn joining(&self) -> Joining {
        let joining = self.0.values().map(|it| it.joining);
        joining.max().unwrap_or_default()
    }
}

impl Serialize for Peers {
    /// Writes one map of all nodes in binary formats. In text formats, peers of node 0 alone are written without the level of
    /// the node, which was the format before there were several nodes.
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        if !serializer.is_human_readable() {
            return self.0.serialize(serializer);
        }
        match self.0.get(&NodeId(0)) {
            None if self.0.is_empty() => LocalPeers::default().serialize(serializer),
            Some(peers) if self.0.len() == 1 => peers.serialize(serializer),
            _ => self.0.serialize(serializer),
        }
    }
}

impl<'de> Deserialize<'de> for Peers {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        if !deserializer.is_human_readable() {
            return BTreeMap::deserialize(deserializer).map(Self);
        }
        // An untagged enum would not work: serde buffers its keys as strings, and then cannot parse them as ranks and nodes.
        let text = Map::deserialize(deserializer)?;
        let has_nodes = text.keys().any(|key| key.parse::<u32>().is_ok());
        let text = Value::Object(text);
        let peers = if has_nodes {
            serde_json::from_value(text).map(Self)
        } else {
            serde_json::from_value(text).map(|peers| Self::of(NodeId(0), peers))
        };
        peers.map_err(D::Error::custom)
    }
}

impl PeerGroup {
    /// Adds a process.
    pub(crate) fn add(&mut self, process: &Process) {
        self.pids.insert(process.pid);
        self.cpu = self.cpu.saturating_add(process.cpu);
    }
}

/// Returns the process whose descendants are the peers of a rank. This is the outermost launcher of the first chain of
/// launchers above the rank, where each is the parent of the next; without a launcher, the parent of the rank.
fn root(
    above: impl Iterator<Item = i32> + Clone,
    is_launcher: &impl Fn(i32) -> bool,
) -> Option<i32> {
    let launchers = above.clone().skip_while(|&pid| !is_launcher(pid));
    let outermost = launchers.take_while(|&pid| is_launcher(pid)).last();
    outermost.or_else(|| above.into_iter().next().filter(|&pid| pid != INIT))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Finds the peers among processes given as `(pid, parent, name)`.
    fn peers(processes: &[(i32, i32, &str)], ranks: &[i32]) -> LocalPeers {
        let process = |&(pid, parent, name): &(i32, i32, &str)| {
            let process = Process {
                pid,
                parent,
                name: name.to_owned(),
                state: 'S',
                started: 0,
                cpu: Duration::from_millis(1),
            };
            (pid, process)
        };
        let all = processes.iter().map(process).collect();
        let ranks = ranks.iter().zip(0..).map(|(&pid, rank)| (Rank(rank), pid));
        let (mut peers, of_others) = LocalPeers::of(&all, &ranks.collect(), 99);
        let of_user = of_others.iter().filter(|pid| all[*pid].name != "other");
        of_user.for_each(|pid| peers.neighbors.add(&all[pid]));
        peers
    }

    fn pids(group: &PeerGroup) -> Vec<i32> {
        group.pids.iter().copied().collect()
    }

    #[test]
    fn below_a_rank_is_what_it_has_started() {
        let found = peers(
            &[
                (1, 0, "init"),
                (5, 1, "mpiexec"),
                (6, 5, "hydra_pmi_proxy"),
                (10, 6, "a.out"),
                (11, 6, "a.out"),
                (20, 11, "sh"),
                (21, 20, "worker"),
                (99, 1, "dbgr"),
            ],
            &[10, 11],
        );
        assert_eq!(pids(&found.below[&Rank(1)]), [20, 21]);
        assert_eq!(found.below.len(), 1);
        assert!(found.beside.pids.is_empty());
    }

    #[test]
    fn a_spawned_job_is_beside_its_parent_whichever_proxy_has_it() {
        let found = peers(
            &[
                (4, 1, "bash"),
                (5, 4, "mpiexec.hydra"),
                (6, 5, "hydra_pmi_proxy"),
                (10, 6, "parent"),
                (7, 5, "hydra_pmi_proxy"),
                (12, 7, "child"),
                (13, 12, "helper"),
                (30, 4, "make"),
            ],
            &[10],
        );
        assert_eq!(pids(&found.beside), [12, 13]);
        assert_eq!(found.jobs, [12].into());
    }

    #[test]
    fn what_stands_between_a_launcher_and_a_rank_is_nobody() {
        let found = peers(
            &[
                (5, 1, "mpiexec"),
                (6, 5, "hydra_pmi_proxy"),
                (9, 6, "sh"),
                (10, 9, "a.out"),
                (11, 6, "time"),
                (12, 11, "sh"),
                (13, 12, "a.out"),
            ],
            &[10, 13],
        );
        assert_eq!(found, LocalPeers::default());
        // A process that a wrapper started as a sibling of its rank is a peer, but not a job.
        let found = peers(
            &[
                (5, 1, "mpiexec"),
                (6, 5, "hydra_pmi_proxy"),
                (9, 6, "sh"),
                (10, 9, "a.out"),
                (11, 9, "monitor"),
            ],
            &[10],
        );
        assert_eq!(pids(&found.beside), [11]);
        assert_eq!(found.jobs, BTreeSet::new());
    }

    #[test]
    fn without_a_launcher_it_is_what_the_parent_has_started_but_not_we() {
        let found = peers(
            &[
                (1, 0, "init"),
                (4, 1, "python3"),
                (10, 4, "python3"),
                (11, 4, "python3"),
                (12, 4, "feeder"),
                (98, 4, "sudo"),
                (99, 98, "dbgr"),
            ],
            &[10, 11],
        );
        assert_eq!(pids(&found.beside), [12]);
        assert_eq!(found.jobs, BTreeSet::new());
        let orphan = peers(&[(1, 0, "init"), (10, 1, "a.out"), (11, 1, "cc1")], &[10]);
        assert_eq!(orphan, LocalPeers::default());
    }

    #[test]
    fn processes_of_a_debugger_are_no_peers() {
        // The daemons of the job have started an agent, whose relay is its child. A watch is below a rank, another beside the
        // launcher with the ssh of its agents, and another launcher has agents too.
        let processes = [
            (4, 1, "bash"),
            (5, 4, "rally"),
            (10, 5, "a.out"),
            (98, 5, "copy-of-us"),
            (99, 98, "copy-of-us"),
            (97, 99, "copy-of-us"),
            (20, 10, "dbgr"),
            (21, 20, "dbgr"),
            (30, 5, "dbgr"),
            (31, 30, "ssh"),
            (15, 4, "mpiexec"),
            (16, 15, "dbgr"),
            (17, 16, "dbgr"),
        ];
        let (found, of_none) = (peers(&processes, &[10]), LocalPeers::default());
        assert_eq!(found, of_none);
        // Without a launcher, the siblings of a rank are its peers.
        let script = [
            (4, 1, "bash"),
            (10, 4, "a.out"),
            (12, 4, "feeder"),
            (20, 4, "dbgr"),
            (21, 20, "ssh"),
            (99, 1, "dbgr"),
        ];
        assert_eq!(pids(&peers(&script, &[10]).beside), [12]);
        // The child of a rank that a debugger has started is a peer.
        let started = [(20, 1, "dbgr"), (10, 20, "a.out"), (11, 10, "worker")];
        assert_eq!(pids(&peers(&started, &[10]).below[&Rank(0)]), [11]);
    }

    #[test]
    fn neighbors_are_what_the_users_other_launchers_have_started() {
        let found = peers(
            &[
                (4, 1, "bash"),
                (5, 4, "mpiexec"),
                (10, 5, "a.out"),
                (11, 10, "helper"),
                (15, 4, "mpiexec"),
                (16, 15, "hydra_pmi_proxy"),
                (20, 16, "server"),
                (21, 20, "helper"),
                (30, 4, "make"),
                (40, 1, "mpiexec"),
                (41, 40, "other"),
                (99, 4, "dbgr"),
            ],
            &[10],
        );
        assert_eq!(pids(&found.neighbors), [20, 21]);
        assert!(found.beside.pids.is_empty());
    }

    #[test]
    fn what_a_launcher_above_the_ranks_has_started_is_no_neighbor() {
        // A batch script that runs our job, another job, and programs that belong to neither.
        let script = [
            (3, 1, "slurmstepd"),
            (4, 3, "bash"),
            (5, 4, "mpiexec"),
            (6, 5, "hydra_pmi_proxy"),
            (10, 6, "a.out"),
            (15, 4, "mpiexec"),
            (16, 15, "hydra_pmi_proxy"),
            (20, 16, "server"),
            (30, 4, "make"),
            (31, 30, "cc1"),
            (40, 1, "slurmstepd"),
            (41, 40, "server"),
            (99, 1, "dbgr"),
        ];
        let found = peers(&script, &[10]);
        assert_eq!(pids(&found.neighbors), [20, 41]);
        assert!(found.beside.pids.is_empty());
    }

    #[test]
    fn peers_come_back_from_text_as_they_were() {
        let local = LocalPeers {
            host: "n1".to_owned(),
            ranks: RankSet::range(2..5),
            below: [(Rank(3), PeerGroup::default())].into(),
            jobs: [9].into(),
            joining: Joining::Possible,
            ..LocalPeers::default()
        };
        for nodes in [&[0][..], &[1], &[0, 1], &[3, 12]] {
            let nodes = nodes.iter().map(|&node| (NodeId(node), local.clone()));
            let peers = Peers(nodes.collect());
            let text = serde_json::to_string(&peers).unwrap();
            let back: Peers = serde_json::from_str(&text).unwrap();
            assert_eq!(back, peers, "{text}");
        }
    }
}
