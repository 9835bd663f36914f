//! Processes that are no ranks, and whose work may end what ranks wait for.
//!
//! Semaphores and locks in shared memory are let go by other processes, and a job waits for the messages of those that it has
//! spawned. *Below* a rank is what it has started: workers of a data loader, a pool, a shell. *Beside* the ranks is what their
//! launcher has started too, or where there is no launcher their parent: spawned jobs above all. Neither the launcher counts nor
//! what stands between it and a rank, such as a proxy, a shell or `time`: they wait for the rank.
//!
//! *Neighbors* are the processes of the same user's other launchers on this machine; a launcher above a rank, such as that of a
//! batch script, is none of these. Jobs can join each other by a port (`MPI_Comm_connect`), and nothing outside of them shows
//! that they have. So neighbors matter only to programs that name one of the functions which do that ([`Joining`]).

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt,
    time::Duration,
};

use base::{NodeId, Rank, RankSet};
use serde::{
    Deserialize, Deserializer, Serialize, Serializer,
    de::{IgnoredAny, MapAccess, Visitor},
};

use crate::{agent::kernel::Process, image::Joining, target::is_launcher};

/// Levels between a rank and the processes above or below it.
const MAX_DEPTH: usize = 64;
/// The first process, to which all go whose parent has ended.
const INIT: i32 = 1;

/// Some processes.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct PeerGroup {
    /// Their numbers.
    pub pids: BTreeSet<i32>,
    /// The processor time that all of them have used.
    pub cpu: Duration,
}

/// All processes that matter to a job, at one moment.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct LocalPeers {
    /// The name of the node's host, which the session knows; empty until the session has it.
    #[serde(default)]
    pub host: String,
    /// The ranks of the sample that are on the node.
    #[serde(default)]
    pub ranks: RankSet,
    /// What each rank has started, where that is anything.
    pub below: BTreeMap<Rank, PeerGroup>,
    /// What the launcher of the job, or the parent of its ranks, has started beside them.
    pub beside: PeerGroup,
    /// Those of them that the launcher has started itself: they are ranks of other jobs.
    pub jobs: BTreeSet<i32>,
    /// What other launchers of the same user have started.
    #[serde(default)]
    pub neighbors: PeerGroup,
    /// Whether the job can have joined one of theirs.
    #[serde(default)]
    pub joining: Joining,
}

impl LocalPeers {
    /// Finds the peers of some ranks among the processes of a node, except the neighbors. Also returns the processes below
    /// other launchers: those of them are neighbors that belong to the user of a rank, which costs a read of a file for each.
    /// `own` is the pid of the process that takes the sample.
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
        let ours = above(own).chain([own]);
        let waiting: BTreeSet<i32> = ranks.values().flat_map(|&pid| above(pid)).collect();
        let nobody: BTreeSet<i32> = ours.chain(waiting.iter().copied()).collect();
        // The launcher of a script has also started what else the script runs: that makes it no job.
        let is_anothers = |pid: i32| is_launcher(pid) && !waiting.contains(&pid);
        let roots: BTreeSet<i32> = ranks
            .values()
            .filter_map(|&pid| root(above(pid), &is_launcher))
            .collect();
        let mut peers = Self::default();
        let mut of_others = BTreeSet::new();
        for (&pid, process) in all {
            if by_pid.contains_key(&pid) || is_launcher(pid) || nobody.contains(&pid) {
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

/// Who matters to a job on each of its nodes, at one moment: a number means another process on another node.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Peers(pub BTreeMap<NodeId, LocalPeers>);

impl Peers {
    /// Those of one node.
    #[must_use]
    pub fn of(node: NodeId, peers: LocalPeers) -> Self {
        Self(BTreeMap::from([(node, peers)]))
    }

    /// Adds those of other nodes. Of a node that is in both, what is there already stays.
    pub fn merge(&mut self, other: Self) {
        for (node, peers) in other.0 {
            self.0.entry(node).or_insert(peers);
        }
    }

    /// What a rank has started, where that is anything.
    #[must_use]
    pub fn below(&self, rank: Rank) -> Option<&PeerGroup> {
        self.0.values().find_map(|it| it.below.get(&rank))
    }

    /// Whether a launcher of the job has other jobs.
    #[must_use]
    pub fn has_other_jobs(&self) -> bool {
        self.0.values().any(|it| !it.jobs.is_empty())
    }

    /// Whether the job can have joined another launcher's.
    #[must_use]
    pub fn joining(&self) -> Joining {
        let joining = self.0.values().map(|it| it.joining);
        joining.max().unwrap_or_default()
    }
}

impl Serialize for Peers {
    /// As text the peers of node 0 alone are its fields, as before there were several nodes; otherwise the fields of each node
    /// stand under its number.
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
        deserializer.deserialize_map(Text)
    }
}

/// Reads both forms of text: the fields of one node, or several nodes by their numbers. An untagged enum would not do, because it
/// keeps keys as text and then refuses ranks and nodes as keys.
struct Text;

impl<'de> Visitor<'de> for Text {
    type Value = Peers;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the peers of one node, or of several nodes by number")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Peers, A::Error> {
        let mut peers = Peers::default();
        while let Some(key) = map.next_key::<String>()? {
            if let Ok(node) = key.parse() {
                peers.0.insert(NodeId(node), map.next_value()?);
                continue;
            }
            let one = peers.0.entry(NodeId(0)).or_default();
            match &*key {
                "host" => one.host = map.next_value()?,
                "ranks" => one.ranks = map.next_value()?,
                "below" => one.below = map.next_value()?,
                "beside" => one.beside = map.next_value()?,
                "jobs" => one.jobs = map.next_value()?,
                "neighbors" => one.neighbors = map.next_value()?,
                "joining" => one.joining = map.next_value()?,
                _ => drop(map.next_value::<IgnoredAny>()?),
            }
        }
        Ok(peers)
    }
}

impl PeerGroup {
    /// Adds a process.
    pub(crate) fn add(&mut self, process: &Process) {
        self.pids.insert(process.pid);
        self.cpu = self.cpu.saturating_add(process.cpu);
    }
}

/// Below which process the peers of a rank is: the outermost of the launchers one above the other, or the rank's parent.
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

    /// `pid parent name` each.
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
        // What a wrapper has started beside its rank is somebody, and no job.
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
        // A batch script, in which the job, another one and programs of neither run.
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
