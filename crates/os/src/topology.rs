//! The processors of this node, as /sys describes them.
//!
//! Few files are read: what one PU's file says about its siblings is not asked of them again, and the levels and
//! types of the caches are read once per cache index, not once per PU.

use std::{collections::BTreeMap, path::Path};

use base::{CoreKind, CpuSet, Pu, Topology};

use crate::{cgroup, error::Error, files::read_small};

/// Caches of a PU that are looked at. Three levels with the first split in two make four.
const MAX_CACHES: u32 = 8;
const CPUS: &str = "sys/devices/system/cpu";
const NODES: &str = "sys/devices/system/node";

/// Reads the topology of the system below `root`, which is `/`, or a recorded tree in a test. It needs `sys` and
/// `proc/self`. A system that says nothing about its PUs gets one core for each that we may use.
///
/// # Errors
/// [`Error::Malformed`] for a list of CPUs that is none; [`Error::File`] when neither the PUs that are online nor
/// those that we may use can be read.
pub fn read_topology(root: &Path) -> Result<Topology, Error> {
    let cpus = root.join(CPUS);
    let allowed = allowed_below(root);
    let online = match (read_list(&cpus.join("online")), &allowed) {
        (Err(Error::File { .. }), Ok(allowed)) => allowed.clone(),
        (online, _) => online?,
    };
    // Without a list of what is allowed, everything is.
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

/// A quota in thousandths of a CPU; `None` when it is beyond any machine. The tiniest quota is still one.
#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "the range is checked before the cast"
)]
fn thousandths(quota: f64) -> Option<u32> {
    let scaled = (quota * 1000.0).round().max(1.0);
    (scaled <= f64::from(u32::MAX)).then_some(scaled as u32)
}

/// Kinds of objects that contain a PU.
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
    /// Which object each PU is in. An object's identity is its lowest PU that is online, or for a package its number.
    places: BTreeMap<(Place, u32), u32>,
    /// The level of the data or unified cache at each cache index, `None` for one of instructions.
    cache_levels: BTreeMap<u32, Option<u32>>,
}

impl Reader<'_> {
    /// Finds out where `pu` sits, and with it all that sit there too.
    fn learn(&mut self, pu: u32) -> Result<(), Error> {
        let directory = self.cpus.join(format!("cpu{pu}"));
        if !self.places.contains_key(&(Place::Core, pu)) {
            let siblings = optional(read_list(&directory.join("topology/thread_siblings_list")))?;
            self.place_all(Place::Core, pu, siblings, None);
        }
        if !self.places.contains_key(&(Place::Package, pu)) {
            // Some virtual machines say -1: then the lowest PU names the package.
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
            // A frugal core may lack the last level that the others have.
            if let Some(siblings) = optional(read_list(&cache.join("shared_cpu_list")))? {
                self.place_all(Place::Cache(level), pu, Some(siblings), None);
            }
        }
        Ok(())
    }

    /// Notes that `pu` and its `siblings` are in one object. Its number is `id`, or its lowest PU.
    fn place_all(&mut self, place: Place, pu: u32, siblings: Option<CpuSet>, id: Option<u32>) {
        let mut members = siblings.unwrap_or_default().intersection(self.online);
        members.insert(pu);
        let id = id.or_else(|| members.first()).unwrap_or(pu);
        for member in members.iter() {
            self.places.insert((place, member), id);
        }
    }
}

/// The node of each PU, and the nodes that have memory only.
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

/// The PUs that this process may use, from its own status file so that a recorded tree can say it too.
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

/// A file that need not be there.
fn optional<T>(result: Result<T, Error>) -> Result<Option<T>, Error> {
    match result {
        Ok(value) => Ok(Some(value)),
        Err(Error::File { .. }) => Ok(None),
        Err(error) => Err(error),
    }
}
