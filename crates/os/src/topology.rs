//! The processors of this node, as described by /sys.
//!
//! Few files are read: if one PU's file lists its siblings, theirs are not read; and the level and type of a cache are read
//! once per cache index instead of once per PU.

use std::{collections::BTreeMap, path::Path};

use base::{CoreKind, CpuSet, Pu, Topology};

use crate::{cgroup, error::Error, files::read_small};

/// Maximum number of caches of a PU that are examined. Three levels with the first split in two make four.
const MAX_CACHES: u32 = 8;
const CPUS: &str = "sys/devices/system/cpu";
const NODES: &str = "sys/devices/system/node";

/// Reads the topology of the system below `root`: `/`, or a recorded tree in a test. It needs `sys` and `proc/self`. If the
/// system does not describe its PUs, each PU that we may use becomes a core.
///
/// # Errors
/// [`Error::Malformed`] for a malformed list of CPUs; [`Error::File`] if neither the list of online PUs nor that of allowed
/// PUs can be read.
pub fn read_topology(root: &Path) -> Result<Topology, Error> {
    let cpus = root.join(CPUS);
    let allowed = allowed_below(root);
    let online = match (read_list(&cpus.join("online")), &allowed) {
        (Err(Error::File { .. }), Ok(allowed)) => allowed.clone(),
        (online, _) => online?,
    };
    // Without a list of allowed PUs, all are allowed.
    let allowed = allowed.unwrap_or_else(|_| online.clone());
    let (numa, memory_only) = read_numa(&root.join(NODES))?;
    let efficient = read_list(&root.join("sys/devices/cpu_atom/cpus")).unwrap_or_default();
    let mut reader = Reader {
        cpus: &cpus,
        online: &online,
        places: BTreeMap::new(),
        cache_levels: BTreeMap::new(),
    };
    let mut pus = Vec::with_capacity(online.len() as usize);
    for os_index in online.iter() {
        reader.learn(os_index)?;
        let places = &reader.places;
        let place = |kind: Place| places.get(&(kind, os_index)).copied();
        pus.push(Pu {
            os_index,
            core: place(Place::Core).unwrap_or(os_index),
            package: place(Place::Package).unwrap_or(0),
            numa: numa.get(&os_index).copied(),
            l3: place(Place::Cache(3)),
            l2: place(Place::Cache(2)),
            l1: place(Place::Cache(1)),
            kind: if efficient.contains(os_index) {
                CoreKind::Efficient
            } else {
                CoreKind::Performance
            },
        });
    }
    let topology = Topology::from_pus(pus, allowed).with_memory_only(memory_only);
    Ok(match cgroup::cpu_quota_below(root).and_then(thousandths) {
        Some(quota) => topology.with_quota(quota),
        None => topology,
    })
}

/// Converts a quota to thousandths of a CPU; `None` if it is too large for any node. The smallest result is 1.
#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "the range is checked before the cast"
)]
fn thousandths(quota: f64) -> Option<u32> {
    let scaled = (quota * 1000.0).round().max(1.0);
    (scaled <= f64::from(u32::MAX)).then_some(scaled as u32)
}

/// Kinds of objects that contain PUs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Place {
    Core,
    Package,
    /// The data or unified cache of a level.
    Cache(u32),
}

struct Reader<'a> {
    cpus: &'a Path,
    online: &'a CpuSet,
    /// The object that contains each PU. An object is identified by its lowest online PU, or for a package by its number.
    places: BTreeMap<(Place, u32), u32>,
    /// The level of the data or unified cache at each cache index; `None` for an instruction cache.
    cache_levels: BTreeMap<u32, Option<u32>>,
}

impl Reader<'_> {
    /// Finds the objects that contain `pu`, and records them for its siblings as well.
    fn learn(&mut self, pu: u32) -> Result<(), Error> {
        let directory = self.cpus.join(format!("cpu{pu}"));
        if !self.places.contains_key(&(Place::Core, pu)) {
            let siblings = optional(read_list(&directory.join("topology/thread_siblings_list")))?;
            self.place_all(Place::Core, pu, siblings, None);
        }
        if !self.places.contains_key(&(Place::Package, pu)) {
            // Some virtual machines report -1: then the lowest PU identifies the package.
            let id = read_number(&directory.join("topology/physical_package_id"));
            let siblings = optional(read_list(&directory.join("topology/core_siblings_list")))?;
            if id.is_some() || siblings.is_some() {
                self.place_all(Place::Package, pu, siblings, id);
            }
        }
        for index in 0..MAX_CACHES {
            let cache = directory.join(format!("cache/index{index}"));
            let level = match self.cache_levels.get(&index) {
                Some(level) => *level,
                None => {
                    let Some(level) = read_number(&cache.join("level")) else {
                        break;
                    };
                    let kind = read_small(&cache.join("type")).unwrap_or_default();
                    let level = (kind.trim() != "Instruction").then_some(level);
                    self.cache_levels.insert(index, level);
                    level
                }
            };
            let Some(level) = level else { continue };
            if self.places.contains_key(&(Place::Cache(level), pu)) {
                continue;
            }
            // An efficient core may lack the last cache level that other cores have.
            if let Some(siblings) = optional(read_list(&cache.join("shared_cpu_list")))? {
                self.place_all(Place::Cache(level), pu, Some(siblings), None);
            }
        }
        Ok(())
    }

    /// Records that `pu` and its `siblings` are in one object, identified by `id` or by its lowest PU.
    fn place_all(&mut self, place: Place, pu: u32, siblings: Option<CpuSet>, id: Option<u32>) {
        let mut members = siblings.unwrap_or_default().intersection(self.online);
        members.insert(pu);
        let id = id.or_else(|| members.first()).unwrap_or(pu);
        for member in members.iter() {
            self.places.insert((place, member), id);
        }
    }
}

/// Returns the NUMA node of each PU, and the nodes that have only memory.
fn read_numa(nodes: &Path) -> Result<(BTreeMap<u32, u32>, Vec<u32>), Error> {
    let mut of_pu = BTreeMap::new();
    let mut memory_only = Vec::new();
    // A kernel without NUMA support has no such directory.
    let online = optional(read_list(&nodes.join("online")))?.unwrap_or_default();
    for node in online.iter() {
        let pus = read_list(&nodes.join(format!("node{node}/cpulist")))?;
        if pus.is_empty() {
            memory_only.push(node);
        }
        of_pu.extend(pus.iter().map(|pu| (pu, node)));
    }
    Ok((of_pu, memory_only))
}

/// Returns the PUs that this process may use. They come from its status file, so that a recorded tree can contain them too.
fn allowed_below(root: &Path) -> Result<CpuSet, Error> {
    let path = root.join("proc/self/status");
    let status = read_small(&path)?;
    let list = status
        .lines()
        .find_map(|line| line.strip_prefix("Cpus_allowed_list:"));
    list.and_then(|list| list.trim().parse().ok())
        .ok_or_else(|| not_a_list(&path))
}

fn read_list(path: &Path) -> Result<CpuSet, Error> {
    read_small(path)?
        .trim()
        .parse()
        .map_err(|_| not_a_list(path))
}

fn not_a_list(path: &Path) -> Error {
    Error::Malformed {
        path: path.to_owned(),
        expected: "a list of CPUs, like `0-3,7`",
    }
}

fn read_number(path: &Path) -> Option<u32> {
    read_small(path).ok()?.trim().parse().ok()
}

/// Turns a missing or unreadable file into `None`.
fn optional<T>(result: Result<T, Error>) -> Result<Option<T>, Error> {
    match result {
        Ok(value) => Ok(Some(value)),
        Err(Error::File { .. }) => Ok(None),
        Err(error) => Err(error),
    }
}

#[cfg(test)]
mod tests {
    use std::{fmt::Write as _, fs};

    use base::Level;

    use super::*;

    /// Makes a node in a directory. Each line of `files` has a path below `sys/devices/system` (or below the root if it
    /// begins with a slash), then the content.
    fn machine(files: &str) -> tempfile::TempDir {
        let root = tempfile::tempdir().unwrap();
        for line in files.lines().map(str::trim).filter(|line| !line.is_empty()) {
            let (path, content) = line.split_once(' ').unwrap_or((line, ""));
            let path = path
                .strip_prefix('/')
                .map_or_else(|| format!("sys/devices/system/{path}"), str::to_owned);
            let path = root.path().join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, format!("{content}\n")).unwrap();
        }
        root
    }

    /// Returns the files of one PU: core and package siblings, then caches as `level type siblings`.
    fn pu(number: u32, core: &str, package: &str, id: i32, caches: &[(u32, &str, &str)]) -> String {
        let mut text = String::new();
        let topology = format!("cpu/cpu{number}/topology");
        writeln!(text, "{topology}/thread_siblings_list {core}").unwrap();
        writeln!(text, "{topology}/core_siblings_list {package}").unwrap();
        writeln!(text, "{topology}/physical_package_id {id}").unwrap();
        for (index, (level, kind, siblings)) in caches.iter().enumerate() {
            let cache = format!("cpu/cpu{number}/cache/index{index}");
            writeln!(
                text,
                "{cache}/level {level}\n{cache}/type {kind}\n{cache}/shared_cpu_list {siblings}"
            )
            .unwrap();
        }
        text
    }

    fn show(files: &str) -> String {
        let root = machine(files);
        let topology = match read_topology(root.path()) {
            Ok(topology) => topology,
            Err(error) => {
                return error
                    .to_string()
                    .replace(&root.path().display().to_string(), "");
            }
        };
        let mut text = format!("allowed {}\n", topology.allowed());
        for level in [
            Level::Package,
            Level::Numa,
            Level::L3,
            Level::L2,
            Level::L1,
            Level::Core,
        ] {
            let objects = topology.identified(level);
            let objects: Vec<String> = objects
                .iter()
                .map(|(id, pus)| format!("{id}=[{pus}]"))
                .collect();
            writeln!(
                text,
                "{}",
                format!("{level:?} {}", objects.join(" ")).trim_end()
            )
            .unwrap();
        }
        let efficient = topology
            .pus()
            .iter()
            .filter(|pu| pu.kind == CoreKind::Efficient);
        let efficient: CpuSet = efficient.map(|pu| pu.os_index).collect();
        let (memory_only, quota) = (topology.memory_only(), topology.cpu_quota());
        writeln!(
            text,
            "efficient [{efficient}] memory only {memory_only:?} quota {quota:?}"
        )
        .unwrap();
        text
    }

    #[test]
    fn two_sockets_with_two_threads_per_core_and_a_restricted_process() {
        // PUs alternate between packages, as many BIOSes number them; the threads of a core are 4 apart.
        let mut files = "cpu/online 0-7\nnode/online 0-2\nnode/node0/cpulist 0,2,4,6\nnode/node1/cpulist 1,3,5,7\n\
            node/node2/cpulist\n/proc/self/status Cpus_allowed_list:\t1-4,7\n"
            .to_owned();
        for number in 0..8 {
            let core = format!("{},{}", number % 4, number % 4 + 4);
            let package = if number % 2 == 0 {
                "0,2,4,6"
            } else {
                "1,3,5,7"
            };
            let caches = [
                (1, "Data", core.as_str()),
                (1, "Instruction", core.as_str()),
                (2, "Unified", core.as_str()),
                (3, "Unified", package),
            ];
            let id = i32::from(number % 2 == 1);
            files += &pu(number, &core, package, id, &caches);
        }
        insta::assert_snapshot!(show(&files), @"
        allowed 1-4,7
        Package 0=[2,4] 1=[1,3,7]
        Numa 0=[2,4] 1=[1,3,7]
        L3 0=[2,4] 1=[1,3,7]
        L2 0=[4] 2=[2] 1=[1] 3=[3,7]
        L1 0=[4] 2=[2] 1=[1] 3=[3,7]
        Core 0=[4] 2=[2] 1=[1] 3=[3,7]
        efficient [] memory only [2] quota None
        ");
    }

    #[test]
    fn a_hybrid_processor_with_frugal_cores_that_share() {
        // Two fast cores with two threads each, four efficient cores with a common L2, two without a third level.
        let mut files =
            "cpu/online 0-9\n/sys/devices/cpu_core/cpus 0-3\n/sys/devices/cpu_atom/cpus 4-9\n"
                .to_owned();
        for number in 0..10 {
            let own = number.to_string();
            let (core, second) = match number {
                0 | 1 => ("0-1", "0-1"),
                2 | 3 => ("2-3", "2-3"),
                4..=7 => (own.as_str(), "4-7"),
                _ => (own.as_str(), "8-9"),
            };
            let mut caches = vec![
                (1, "Data", core),
                (1, "Instruction", core),
                (2, "Unified", second),
                (3, "Unified", "0-7"),
            ];
            caches.truncate(if number < 8 { 4 } else { 3 });
            files += &pu(number, core, "0-9", 0, &caches);
        }
        insta::assert_snapshot!(show(&files), @"
        allowed 0-9
        Package 0=[0-9]
        Numa
        L3 0=[0-7]
        L2 0=[0-1] 2=[2-3] 4=[4-7] 8=[8-9]
        L1 0=[0-1] 2=[2-3] 4=[4] 5=[5] 6=[6] 7=[7] 8=[8] 9=[9]
        Core 0=[0-1] 2=[2-3] 4=[4] 5=[5] 6=[6] 7=[7] 8=[8] 9=[9]
        efficient [4-9] memory only [] quota None
        ");
    }

    #[test]
    fn offline_pus_and_unknown_packages() {
        // A virtual machine: no NUMA, no caches, package -1, and PU 1 is offline and has no files.
        let mut files = "cpu/online 0,2-3\n".to_owned();
        for (number, core) in [(0, "0"), (2, "2-3"), (3, "2-3")] {
            files += &pu(number, core, "0,2-3", -1, &[]);
        }
        files += "/proc/self/cgroup 0::/\n/sys/fs/cgroup/cpu.max 150000 100000\n\
            /proc/self/mountinfo 30 1 0:26 / /sys/fs/cgroup rw - cgroup2 cgroup2 rw\n";
        insta::assert_snapshot!(show(&files), @"
        allowed 0,2-3
        Package 0=[0,2-3]
        Numa
        L3
        L2
        L1
        Core 0=[0] 2=[2-3]
        efficient [] memory only [] quota Some(1500)
        ");
    }

    #[test]
    fn a_system_that_says_little() {
        insta::assert_snapshot!(show("/proc/self/status Cpus_allowed_list: 2-3"), @"
        allowed 2-3
        Package 0=[2-3]
        Numa
        L3
        L2
        L1
        Core 2=[2] 3=[3]
        efficient [] memory only [] quota None
        ");
        insta::assert_snapshot!(show("cpu/online 0-1"), @"
        allowed 0-1
        Package 0=[0-1]
        Numa
        L3
        L2
        L1
        Core 0=[0] 1=[1]
        efficient [] memory only [] quota None
        ");
        insta::assert_snapshot!(show(""), @"cannot read `/sys/devices/system/cpu/online`: No such file or directory");
        insta::assert_snapshot!(show("cpu/online zero"), @"cannot understand `/sys/devices/system/cpu/online`: expected a list of CPUs, like `0-3,7`");
        insta::assert_snapshot!(show("cpu/online 0\nnode/online 0\nnode/node0/cpulist x"), @"cannot understand `/sys/devices/system/node/node0/cpulist`: expected a list of CPUs, like `0-3,7`");
    }

    #[test]
    fn this_machine_can_be_read() {
        let topology = read_topology(Path::new("/")).unwrap();
        assert_eq!(topology.allowed(), &crate::allowed_cpus().unwrap());
        assert!(!topology.cores().is_empty());
    }

    #[test]
    fn quotas_are_rounded_and_never_nothing() {
        for (quota, expected) in [
            (1.5, Some(1500)),
            (0.0001, Some(1)),
            (1e9, None),
            (f64::INFINITY, None),
        ] {
            assert_eq!(thousandths(quota), expected, "{quota}");
        }
    }
}
