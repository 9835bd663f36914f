//! The processors of a node.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::CpuSet;

/// Whether a core is a fast or an efficient one of a hybrid processor.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize,
)]
#[serde(rename_all = "kebab-case")]
pub enum CoreKind {
    /// The only kind, or the fast kind of a hybrid processor.
    #[default]
    Performance,
    /// The efficient kind of a hybrid processor.
    Efficient,
}

/// One online PU (hardware thread) and the objects that contain it.
///
/// Every number but `os_index` is an identity chosen by the reader of the topology: PUs with equal numbers share the
/// object. The numbers must be unique **in the node**, and not only in the package. The kernel's `core_id` is not: combine
/// it with the package.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Pu {
    /// The kernel's number, `N` in `/sys/devices/system/cpu/cpuN`.
    pub os_index: u32,
    /// The core that it belongs to.
    pub core: u32,
    pub package: u32,
    /// The kernel's number of the NUMA node; `None` if the kernel has no NUMA support.
    pub numa: Option<u32>,
    /// The level-3 cache; `None` if there is none or the kernel does not report it.
    pub l3: Option<u32>,
    pub l2: Option<u32>,
    /// The first-level data cache.
    pub l1: Option<u32>,
    #[serde(default)]
    pub kind: CoreKind,
}

/// A kind of object that contains PUs, from the widest to the narrowest in the usual node.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Level {
    Package,
    Numa,
    L3,
    L2,
    L1,
    Core,
    /// One hardware thread.
    Pu,
}

/// The PUs of a node in logical order, and those that we may use.
///
/// Logical order is hwloc's: packages by their lowest PU number; inside them NUMA nodes, caches, cores and PUs in the same
/// way. The kernel's numbers may alternate between packages; logical order does not.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(from = "Wire")]
pub struct Topology {
    pus: Vec<Pu>,
    allowed: CpuSet,
    /// NUMA nodes that have memory but no PU (HBM, CXL), by the kernel's number.
    memory_only: Vec<u32>,
    /// The cgroup's limit of CPU time in thousandths of a CPU; `None` if unlimited.
    cpu_quota: Option<u32>,
    /// Whether other jobs of the same user run on this node.
    has_neighbours: bool,
}

#[derive(Deserialize)]
struct Wire {
    pus: Vec<Pu>,
    allowed: CpuSet,
    #[serde(default)]
    memory_only: Vec<u32>,
    #[serde(default)]
    cpu_quota: Option<u32>,
    #[serde(default)]
    has_neighbours: bool,
}

impl From<Wire> for Topology {
    fn from(wire: Wire) -> Self {
        let topology = Self::from_pus(wire.pus, wire.allowed).with_memory_only(wire.memory_only);
        Self {
            cpu_quota: wire.cpu_quota,
            has_neighbours: wire.has_neighbours,
            ..topology
        }
    }
}

/// The levels that make logical order, outermost first.
const LOGICAL: [Level; 5] = [
    Level::Package,
    Level::Numa,
    Level::L3,
    Level::L2,
    Level::Core,
];

impl Topology {
    /// Makes a topology from what a reader found, in any order.
    ///
    /// `pus` are the online PUs; a PU given twice counts once. `allowed` is what this process may run on (affinity mask and
    /// cgroup cpuset); PUs that are not online are dropped from it.
    ///
    /// ```
    /// use base::{CoreKind, CpuSet, Pu, Topology};
    ///
    /// let pu = |os_index, core| Pu {
    ///     os_index, core, package: 0, numa: Some(0), l3: Some(0), l2: Some(core), l1: Some(core),
    ///     kind: CoreKind::Performance,
    /// };
    /// let topology = Topology::from_pus(vec![pu(0, 0), pu(1, 1), pu(2, 0), pu(3, 1)], (1..4).collect());
    /// assert_eq!(topology.cores(), ["2".parse::<CpuSet>()?, "1,3".parse()?]);
    /// # Ok::<(), base::ParseSetError>(())
    /// ```
    #[must_use]
    pub fn from_pus(mut pus: Vec<Pu>, allowed: CpuSet) -> Self {
        pus.retain(|pu| pu.os_index < crate::cpuset::MAX_PUS);
        pus.sort_by_key(|pu| pu.os_index);
        pus.dedup_by_key(|pu| pu.os_index);
        let online = pus.iter().map(|pu| pu.os_index).collect::<CpuSet>();
        // The lowest PU of an object determines its place among its siblings.
        let mut lowest = BTreeMap::new();
        for pu in &pus {
            for level in LOGICAL {
                lowest.entry((level, level.of(pu))).or_insert(pu.os_index);
            }
        }
        pus.sort_by_cached_key(|pu| {
            // If the node has no object of a level, the core stands in for it, so that cores are never split.
            let place = |level: Level| {
                let level = if level.of(pu).is_some() {
                    level
                } else {
                    Level::Core
                };
                lowest.get(&(level, level.of(pu))).copied()
            };
            (LOGICAL.map(place), pu.os_index)
        });
        Self {
            pus,
            allowed: allowed.intersection(&online),
            memory_only: Vec::new(),
            cpu_quota: None,
            has_neighbours: false,
        }
    }

    /// Makes `cores` identical cores with one PU each, in one package: for tests, and for nodes that could not be read.
    #[must_use]
    pub fn flat(cores: u32) -> Self {
        let pu = |index| Pu {
            os_index: index,
            core: index,
            package: 0,
            numa: Some(0),
            l3: None,
            l2: None,
            l1: None,
            kind: CoreKind::Performance,
        };
        Self::from_pus((0..cores).map(pu).collect(), (0..cores).collect())
    }

    /// Sets the cgroup's limit in thousandths of a CPU: a `cpu.max` of `150000 100000` is 1,500.
    #[must_use]
    pub const fn with_quota(mut self, millis: u32) -> Self {
        self.cpu_quota = Some(millis);
        self
    }

    /// Records that other jobs of the same user run on this node.
    #[must_use]
    pub const fn with_neighbours(mut self) -> Self {
        self.has_neighbours = true;
        self
    }

    /// Sets the NUMA nodes that have memory but no PU.
    #[must_use]
    pub fn with_memory_only(mut self, numa: Vec<u32>) -> Self {
        self.memory_only = numa;
        self
    }

    /// Returns the same node with fewer allowed PUs.
    #[must_use]
    pub fn restricted_to(&self, pus: &CpuSet) -> Self {
        Self {
            allowed: self.allowed.intersection(pus),
            ..self.clone()
        }
    }

    /// Returns every online PU in logical order, whether allowed or not.
    #[must_use]
    pub fn pus(&self) -> &[Pu] {
        &self.pus
    }

    /// Returns the PUs that we may use.
    #[must_use]
    pub const fn allowed(&self) -> &CpuSet {
        &self.allowed
    }

    /// Returns the cgroup's limit in thousandths of a CPU; `None` if unlimited.
    #[must_use]
    pub const fn cpu_quota(&self) -> Option<u32> {
        self.cpu_quota
    }

    /// Returns true if other jobs of the same user run on this node.
    #[must_use]
    pub const fn has_neighbours(&self) -> bool {
        self.has_neighbours
    }

    /// Returns true if we may use only some of the online PUs, which means that they were reserved for us.
    #[must_use]
    pub fn is_part_of_node(&self) -> bool {
        (self.allowed.len() as usize) < self.pus.len()
    }

    /// Returns the NUMA nodes that have memory but no PU, by the kernel's number.
    #[must_use]
    pub fn memory_only(&self) -> &[u32] {
        &self.memory_only
    }

    /// Returns the objects of a level in logical order, each as its allowed PUs. Objects without an allowed PU are omitted.
    #[must_use]
    pub fn objects(&self, level: Level) -> Vec<CpuSet> {
        self.identified(level)
            .into_iter()
            .map(|(_, pus)| pus)
            .collect()
    }

    /// Returns [`Topology::objects`] together with the identity of each object.
    #[must_use]
    pub fn identified(&self, level: Level) -> Vec<(u32, CpuSet)> {
        let mut objects = Vec::<(u32, CpuSet)>::new();
        let mut places = BTreeMap::new();
        for pu in self
            .pus
            .iter()
            .filter(|pu| self.allowed.contains(pu.os_index))
        {
            let Some(id) = level.of(pu) else { continue };
            let place = *places.entry(id).or_insert_with(|| {
                objects.push((id, CpuSet::new()));
                objects.len() - 1
            });
            if let Some((_, pus)) = objects.get_mut(place) {
                pus.insert(pu.os_index);
            }
        }
        objects
    }

    /// Returns the cores with at least one allowed PU, each as its allowed PUs, in logical order.
    #[must_use]
    pub fn cores(&self) -> Vec<CpuSet> {
        self.objects(Level::Core)
    }

    /// Returns the packages with at least one allowed PU.
    #[must_use]
    pub fn packages(&self) -> Vec<CpuSet> {
        self.objects(Level::Package)
    }

    /// Returns the NUMA nodes with at least one allowed PU; those with memory only are in [`Topology::memory_only`].
    #[must_use]
    pub fn numa_nodes(&self) -> Vec<CpuSet> {
        self.objects(Level::Numa)
    }
}

impl Level {
    /// Returns the identity of the object of this level that contains `pu`; `None` if the node has no such object.
    #[must_use]
    pub const fn of(self, pu: &Pu) -> Option<u32> {
        match self {
            Self::Package => Some(pu.package),
            Self::Numa => pu.numa,
            Self::L3 => pu.l3,
            Self::L2 => pu.l2,
            Self::L1 => pu.l1,
            Self::Core => Some(pu.core),
            Self::Pu => Some(pu.os_index),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns two packages whose PUs alternate, with two threads per core. PU n is thread `n / 8` of core `n % 8` on
    /// package `n % 2`.
    fn alternating() -> Topology {
        let pu = |n: u32| Pu {
            os_index: n,
            core: 100 + n % 8,
            package: n % 2,
            numa: Some(n % 2),
            l3: Some(n % 2),
            l2: Some(n % 8),
            l1: Some(n % 8),
            kind: CoreKind::Performance,
        };
        Topology::from_pus((0..16).rev().map(pu).collect(), (0..20).collect())
    }

    fn shown(sets: &[CpuSet]) -> String {
        sets.iter()
            .map(ToString::to_string)
            .collect::<Vec<_>>()
            .join(" ")
    }

    #[test]
    fn logical_order_follows_packages() {
        let topology = alternating();
        insta::assert_snapshot!(shown(&topology.cores()), @"0,8 2,10 4,12 6,14 1,9 3,11 5,13 7,15");
        insta::assert_snapshot!(shown(&topology.packages()), @"0,2,4,6,8,10,12,14 1,3,5,7,9,11,13,15");
        insta::assert_snapshot!(topology.allowed(), @"0-15");
    }

    #[test]
    fn missing_caches_do_not_split_cores() {
        let bare = |pu: &Pu| Pu {
            numa: None,
            l3: None,
            l2: None,
            l1: None,
            ..*pu
        };
        let order = Topology::from_pus(
            alternating().pus().iter().map(bare).collect(),
            CpuSet::new(),
        );
        let order = order
            .pus()
            .iter()
            .map(|pu| pu.os_index.to_string())
            .collect::<Vec<_>>();
        insta::assert_snapshot!(order.join(" "), @"0 8 2 10 4 12 6 14 1 9 3 11 5 13 7 15");
    }

    #[test]
    fn what_is_not_allowed_is_not_seen() {
        let topology = alternating().restricted_to(&"1,8-9,11".parse().unwrap());
        insta::assert_snapshot!(shown(&topology.cores()), @"8 1,9 11");
        insta::assert_snapshot!(shown(&topology.numa_nodes()), @"8 1,9,11");
        insta::assert_snapshot!(shown(&topology.objects(Level::Pu)), @"8 1 9 11");
    }

    #[test]
    fn survives_json() {
        let topology = alternating().with_memory_only(vec![2]).with_quota(1_500);
        let json = serde_json::to_string(&topology).unwrap();
        assert_eq!(serde_json::from_str::<Topology>(&json).unwrap(), topology);
        let short = r#"{"pus":[{"os_index":0,"core":0,"package":0,"numa":null,"l3":null,"l2":null,"l1":null}],"allowed":"0"}"#;
        assert_eq!(
            serde_json::from_str::<Topology>(short)
                .unwrap()
                .cores()
                .len(),
            1
        );
    }
}
