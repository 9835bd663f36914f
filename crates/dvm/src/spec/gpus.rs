//! GPUs: those of a node, and those that the procs of a job get.

use serde::{Deserialize, Serialize};

/// GPUs of a node that are known. Those beyond it are not used.
const GPUS_MAX: usize = 256;
/// Bytes in the name of a GPU. A list ends at a longer one.
const GPU_NAME_MAX: usize = 128;

/// Assignment of GPUs to procs, by an environment variable.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct GpuPlan {
    pub kind: GpuKind,
    /// Identifiers of the GPUs that may be assigned, as the user lists them in the variable: the same on every node. If it is empty, each
    /// node has those that its daemon finds. A machine counts those in any case.
    pub available: Vec<String>,
    pub share: GpuShare,
}

/// Vendor of the GPUs, which determines the environment variable.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum GpuKind {
    Nvidia,
    Amd,
}

/// Distribution of a node's GPUs over its procs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum GpuShare {
    /// All procs get the same GPUs: this many, from the start of the list.
    Together(u32),
    /// Each proc gets this many GPUs for itself.
    Each(u32),
}

impl GpuKind {
    /// Returns the name of the variable that lists a program's GPUs.
    #[must_use]
    pub const fn variable(self) -> &'static str {
        match self {
            Self::Nvidia => "CUDA_VISIBLE_DEVICES",
            Self::Amd => "ROCR_VISIBLE_DEVICES",
        }
    }
}

impl GpuShare {
    /// Returns the GPUs for the proc with this local rank, as in the variable.
    #[must_use]
    pub fn of(self, available: &[String], local_rank: u32) -> String {
        let (from, count) = match self {
            Self::Together(count) => (0, count),
            Self::Each(count) => (u64::from(local_rank) * u64::from(count), count),
        };
        let from = usize::try_from(from).unwrap_or(usize::MAX);
        let own = available.iter().skip(from).take(count as usize);
        own.map(String::as_str).collect::<Vec<_>>().join(",")
    }

    /// Returns the number of GPUs that `procs` procs on one node need.
    #[must_use]
    pub fn needed(self, procs: u32) -> u64 {
        match self {
            Self::Together(count) => u64::from(count),
            Self::Each(count) => u64::from(count) * u64::from(procs),
        }
    }
}

/// The GPUs of a node, or a part of them.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct NodeGpus {
    pub kind: GpuKind,
    /// As in the variable.
    pub names: Vec<String>,
}

/// What a process can find out about GPUs.
#[derive(Clone, Copy, Debug, Default)]
pub struct FoundGpus<'a> {
    /// Numbers of GPUs that the drivers show.
    pub nvidia: u32,
    pub amd: u32,
    /// The lists in its environment. An empty one hides all GPUs.
    pub nvidia_list: Option<&'a str>,
    pub amd_list: Option<&'a str>,
}

impl NodeGpus {
    /// Returns the GPUs that a process may use: those of its list, otherwise all. If there are two lists, the one for the kind of GPU
    /// that was found counts. `None`: no GPU was found, and no list.
    #[must_use]
    pub fn of(found: &FoundGpus<'_>) -> Option<Self> {
        let list = match (found.nvidia_list, found.amd_list) {
            (Some(_), Some(amd)) if found.nvidia == 0 && found.amd > 0 => Some((GpuKind::Amd, amd)),
            (Some(nvidia), _) => Some((GpuKind::Nvidia, nvidia)),
            (None, Some(amd)) => Some((GpuKind::Amd, amd)),
            (None, None) => None,
        };
        if let Some((kind, listed)) = list {
            // As in the drivers, the list ends at the first item that is no device.
            let is_device = |name: &&str| {
                !matches!(*name, "" | "-1" | "NoDevFiles") && name.len() <= GPU_NAME_MAX
            };
            let mut names: Vec<String> = Vec::new();
            let listed = listed.split(',').map(str::trim).take_while(is_device);
            for name in listed.take(GPUS_MAX) {
                // The same one twice is one.
                if !names.iter().any(|other| other == name) {
                    names.push(name.to_owned());
                }
            }
            return Some(Self { kind, names });
        }
        let (kind, number) = match (found.nvidia, found.amd) {
            (0, 0) => return None,
            (0, number) => (GpuKind::Amd, number),
            (number, _) => (GpuKind::Nvidia, number),
        };
        Some(Self {
            kind,
            names: (0..number)
                .take(GPUS_MAX)
                .map(|gpu| gpu.to_string())
                .collect(),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What is found, the kind and the names of the GPUs.
    type Case<'a> = (FoundGpus<'a>, Option<(GpuKind, &'a [&'a str])>);

    #[test]
    fn gpus_are_those_that_are_found_unless_they_are_listed() {
        let found = |nvidia, amd| FoundGpus {
            nvidia,
            amd,
            ..FoundGpus::default()
        };
        let nvidia = |list| FoundGpus {
            nvidia_list: Some(list),
            ..found(2, 0)
        };
        let cases: [Case<'_>; 8] = [
            (nvidia("1,0,1"), Some((GpuKind::Nvidia, &["1", "0"]))),
            (found(0, 0), None),
            (found(2, 0), Some((GpuKind::Nvidia, &["0", "1"]))),
            (found(0, 2), Some((GpuKind::Amd, &["0", "1"]))),
            (found(1, 1), Some((GpuKind::Nvidia, &["0"]))),
            (nvidia(""), Some((GpuKind::Nvidia, &[]))),
            (nvidia("5,-1,2"), Some((GpuKind::Nvidia, &["5"]))),
            (
                nvidia("1, GPU-ab"),
                Some((GpuKind::Nvidia, &["1", "GPU-ab"])),
            ),
        ];
        for (found, expected) in cases {
            let gpus = NodeGpus::of(&found);
            let gpus = gpus.as_ref();
            let kind = gpus.map(|gpus| gpus.kind);
            assert_eq!(kind, expected.map(|(kind, _)| kind), "{found:?}");
            let names = gpus.map_or(&[][..], |gpus| &gpus.names);
            assert_eq!(
                names,
                expected.map_or(&[][..], |(_, names)| names),
                "{found:?}"
            );
        }
    }

    #[test]
    fn procs_have_the_same_gpus_or_their_own() {
        let names = ["a", "b", "c"].map(str::to_owned);
        let of = |share: GpuShare| [0, 1, 2].map(|rank| share.of(&names, rank));
        assert_eq!(of(GpuShare::Together(2)), ["a,b"; 3]);
        assert_eq!(of(GpuShare::Each(1)), ["a", "b", "c"]);
        assert_eq!(of(GpuShare::Each(2)), ["a,b", "c", ""]);
        assert_eq!(GpuShare::Together(2).needed(3), 2);
        assert_eq!(GpuShare::Each(2).needed(3), 6);
    }
}
