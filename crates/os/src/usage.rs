//! What running processes use, as /proc tells it.

use base::Usage;

use crate::process::{Pid, current_pid, inspect, listed_descendants, read_proc};

/// What a process and its descendants use.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Load {
    /// Number of the processes.
    pub processes: u32,
    /// Memory that is resident now, in bytes. Shared pages count for each process.
    pub resident: u64,
    /// Since their starts, with the children that they have waited for.
    pub used: Usage,
}

/// Returns what a process and its descendants use; `None` if it is gone. What we may not inspect counts as nothing: memory and I/O of
/// processes of other users.
#[must_use]
pub fn usage_below(root: Pid) -> Option<Load> {
    let mut all = usage_of(root)?;
    for pid in listed_descendants(root) {
        if let Some(one) = usage_of(pid) {
            all.processes += 1;
            all.resident = all.resident.saturating_add(one.resident);
            all.used.add(&one.used);
        }
    }
    Some(all)
}

/// Returns the memory of this process, in bytes: its share of the pages that it has in common with others, such as its program. `None` if
/// the kernel does not say.
#[must_use]
pub fn own_memory() -> Option<u64> {
    let text = read_proc(current_pid(), "smaps_rollup")?;
    let kibibytes = field(&String::from_utf8_lossy(&text), "Pss:");
    (kibibytes > 0).then(|| kibibytes.saturating_mul(1024))
}

fn usage_of(pid: Pid) -> Option<Load> {
    let info = inspect(pid)?;
    let text = |file| {
        let bytes = read_proc(pid, file).unwrap_or_default();
        String::from_utf8_lossy(&bytes).into_owned()
    };
    let status = text("status");
    let io = text("io");
    let memory = |name| field(&status, name).saturating_mul(1024);
    Some(Load {
        processes: 1,
        resident: memory("VmRSS:"),
        used: Usage {
            user: info.user,
            system: info.system,
            peak: memory("VmHWM:"),
            read: field(&io, "read_bytes:"),
            written: field(&io, "write_bytes:"),
        },
    })
}

/// Returns the first number behind a name at the start of a line; 0 if there is none.
fn field(text: &str, name: &str) -> u64 {
    let line = text.lines().find_map(|line| line.strip_prefix(name));
    let word = line.and_then(|line| line.split_ascii_whitespace().next());
    word.and_then(|word| word.parse().ok()).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_field_is_found_by_its_name() {
        let text = "VmHWM:\t   2048 kB\nVmRSS:\t   1024 kB\n";
        assert_eq!(field(text, "VmRSS:"), 1024);
        assert_eq!(field(text, "VmSwap:"), 0);
    }

    #[test]
    fn this_process_uses_something() {
        let load = usage_below(current_pid()).unwrap();
        assert!(load.processes >= 1 && load.resident > 0);
        assert!(load.used.peak >= load.resident / 2);
        let memory = own_memory().unwrap();
        assert!((1 << 16..=load.resident * 2).contains(&memory), "{memory}");
        assert_eq!(usage_below(Pid::from_raw(i32::MAX)), None);
    }
}
