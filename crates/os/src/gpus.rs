//! The number of GPUs that this process may use, as shown by the drivers.

use std::{fs, path::Path};

/// Number of GPUs by driver.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Gpus {
    pub nvidia: u32,
    pub amd: u32,
}

/// Counts GPUs. Those that cannot be read do not count: a container shows the devices assigned to it.
#[must_use]
pub fn gpus() -> Gpus {
    Gpus {
        nvidia: nvidia(Path::new("/dev")),
        amd: amd(Path::new("/sys/class/kfd/kfd/topology/nodes")),
    }
}

/// Counts device files `nvidia0`, `nvidia1`, and so on; other files of the driver have no number.
fn nvidia(devices: &Path) -> u32 {
    count(devices, |entry| {
        let name = entry.file_name();
        let number = name.to_str().and_then(|name| name.strip_prefix("nvidia"));
        number.is_some_and(|number| {
            !number.is_empty() && number.bytes().all(|byte| byte.is_ascii_digit())
        })
    })
}

/// Counts the nodes of the compute driver that are GPUs. CPUs have the id 0 there, and the id of a GPU that a container may
/// not use cannot be read.
fn amd(nodes: &Path) -> u32 {
    count(nodes, |entry| {
        let id = fs::read_to_string(entry.path().join("gpu_id"));
        id.is_ok_and(|id| id.trim().parse::<u64>().is_ok_and(|id| id != 0))
    })
}

fn count(directory: &Path, is_one: impl Fn(&fs::DirEntry) -> bool) -> u32 {
    let Ok(entries) = fs::read_dir(directory) else {
        return 0;
    };
    let found = entries.flatten().filter(is_one).count();
    u32::try_from(found).unwrap_or(u32::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn devices_are_counted() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path();
        for name in [
            "nvidia0",
            "nvidia1",
            "nvidiactl",
            "nvidia-uvm",
            "nvidia",
            "tty0",
        ] {
            fs::write(path.join(name), "").unwrap();
        }
        assert_eq!(nvidia(path), 2);
        for (node, id) in [("0", "0\n"), ("1", "51234\n"), ("2", "4711\n"), ("3", "")] {
            fs::create_dir_all(path.join("nodes").join(node)).unwrap();
            fs::write(path.join("nodes").join(node).join("gpu_id"), id).unwrap();
        }
        assert_eq!(amd(&path.join("nodes")), 2);
        assert_eq!(amd(&path.join("missing")), 0);
    }
}
