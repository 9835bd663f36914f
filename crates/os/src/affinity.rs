//! The CPUs that this process may use.
#![expect(unsafe_code, reason = "nix's CPU set ends at 1,024 CPUs")]

use base::{CpuSet, MAX_PUS};
use nix::errno::Errno;

use crate::error::Error;

/// Initial size of the buffer, in words of 64 CPUs: enough for 1,024.
const FIRST_WORDS: usize = 16;

/// Returns the CPUs that this process may use: its affinity mask, which the kernel keeps within the cgroup's cpuset.
///
/// # Errors
/// Only if the call is forbidden.
pub fn allowed_cpus() -> Result<CpuSet, Error> {
    // The kernel refuses a buffer smaller than its own mask with EINVAL, so grow the buffer until it fits.
    let mut words = vec![0_u64; FIRST_WORDS];
    loop {
        // SAFETY: the kernel writes at most the stated number of bytes into an owned buffer.
        let result = unsafe {
            libc::syscall(
                libc::SYS_sched_getaffinity,
                0,
                size_of_val(&words[..]),
                words.as_mut_ptr(),
            )
        };
        if let Ok(bytes) = usize::try_from(result) {
            return Ok(CpuSet::from_words(&words[..bytes / size_of::<u64>()]));
        }
        let errno = Errno::last();
        if errno != Errno::EINVAL || words.len() * 64 >= MAX_PUS as usize {
            return Err(Error::nix("read which CPUs are allowed")(errno));
        }
        words = vec![0; words.len() * 2];
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn we_may_use_at_least_one_cpu() {
        let allowed = allowed_cpus().unwrap();
        assert!(!allowed.is_empty());
    }
}
