//! Which CPUs a process may use.
#![expect(unsafe_code, reason = "nix's CPU set ends at 1,024 CPUs")]

use nix::errno::Errno;

use crate::{error::Error, process::Pid};

/// Largest CPU mask that is tried, in CPUs. Linux can be built for 8,192.
const MAX_CPUS: usize = 1 << 16;
/// Bits in a word of the kernel's mask.
const WORD_BITS: usize = usize::BITS as usize;

/// A CPU mask in the kernel's form: bit n of the words stands for CPU n.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CpuSetMask {
    words: Vec<usize>,
}

impl CpuSetMask {
    /// The mask's words, least significant CPU first.
    pub(crate) fn words(&self) -> &[usize] {
        &self.words
    }

    /// The CPUs in the mask, ascending.
    pub fn cpus(&self) -> impl Iterator<Item = u32> + '_ {
        (0..u32::try_from(self.words.len() * WORD_BITS).unwrap_or(u32::MAX))
            .filter(|&cpu| self.contains(cpu))
    }

    /// Whether `cpu` is in the mask.
    #[must_use]
    pub fn contains(&self, cpu: u32) -> bool {
        let cpu = cpu as usize;
        self.words
            .get(cpu / WORD_BITS)
            .is_some_and(|word| word >> (cpu % WORD_BITS) & 1 == 1)
    }
}

impl FromIterator<u32> for CpuSetMask {
    /// CPUs beyond any kernel's limit are left out.
    fn from_iter<I: IntoIterator<Item = u32>>(cpus: I) -> Self {
        let mut words = Vec::new();
        for cpu in cpus
            .into_iter()
            .map(|cpu| cpu as usize)
            .filter(|&cpu| cpu < MAX_CPUS)
        {
            if words.len() <= cpu / WORD_BITS {
                words.resize(cpu / WORD_BITS + 1, 0);
            }
            words[cpu / WORD_BITS] |= 1 << (cpu % WORD_BITS);
        }
        Self { words }
    }
}

/// The CPUs that process `pid` may use (sched_getaffinity).
///
/// # Errors
/// `ESRCH` when there is no such process.
pub fn affinity_of(pid: Pid) -> Result<CpuSetMask, Error> {
    // The kernel refuses a buffer that is smaller than its own mask with EINVAL, so grow until it fits.
    let mut words = vec![0_usize; 1024 / WORD_BITS];
    loop {
        // SAFETY: the kernel writes at most the stated number of bytes into an owned buffer.
        let result = unsafe {
            libc::syscall(
                libc::SYS_sched_getaffinity,
                pid.as_raw(),
                size_of_val(&words[..]),
                words.as_mut_ptr(),
            )
        };
        if let Ok(bytes) = usize::try_from(result) {
            words.truncate(bytes / size_of::<usize>());
            while words.last() == Some(&0) {
                words.pop();
            }
            return Ok(CpuSetMask { words });
        }
        let errno = Errno::last();
        if errno != Errno::EINVAL || words.len() * WORD_BITS >= MAX_CPUS {
            return Err(Error::nix("read which CPUs are allowed")(errno));
        }
        words = vec![0; words.len() * 2];
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::process::current_pid;

    #[test]
    fn masks_hold_what_was_put_in() {
        let cpus = [0, 5, 63, 64, 200];
        let mask: CpuSetMask = cpus.into_iter().chain([u32::MAX]).collect();
        assert_eq!(mask.cpus().collect::<Vec<_>>(), cpus);
        assert_eq!(mask.words().len(), 4);
        assert!(!mask.contains(201));
        assert!(!mask.contains(100_000));
        assert_eq!(CpuSetMask::from_iter([]).cpus().count(), 0);
    }

    #[test]
    fn we_may_use_at_least_one_cpu() {
        let mask = affinity_of(current_pid()).unwrap();
        assert!(mask.cpus().count() >= 1);
        assert_eq!(
            affinity_of(Pid::from_raw(i32::MAX)).unwrap_err().errno(),
            libc::ESRCH
        );
    }
}
