//! Resource limits, the umask and the free memory of a process.
#![expect(unsafe_code, reason = "no crate has the call of the allocator")]

use nix::sys::stat::{Mode, umask as set_umask};

/// Returns the file mode creation mask of this process, which must have no other thread: the kernel only returns the mask when
/// it sets one.
#[must_use]
pub fn umask() -> u32 {
    let mask = set_umask(Mode::from_bits_truncate(0o077));
    set_umask(mask);
    mask.bits()
}

/// Gives the system back the free memory of this process, in whole pages. The allocator does that by itself only behind the last
/// piece in use: one that stays keeps all before it.
pub fn give_back_memory() {
    // SAFETY: it changes nothing but memory that is free, under the locks of the allocator.
    #[cfg(target_env = "gnu")]
    unsafe {
        libc::malloc_trim(0)
    };
}

/// A resource with a limit, see getrlimit(2).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Resource {
    /// Address space in bytes.
    AddressSpace,
    /// Size of a core file in bytes.
    Core,
    /// CPU time in seconds.
    Cpu,
    /// Data segment in bytes.
    Data,
    /// Size of a written file in bytes.
    FileSize,
    /// Locked memory in bytes.
    LockedMemory,
    /// One more than the highest descriptor.
    Descriptors,
    /// Number of processes of the user.
    Processes,
    /// Stack in bytes.
    Stack,
}

impl Resource {
    /// Returns the kernel's number of the resource.
    #[expect(
        clippy::unnecessary_cast,
        reason = "the C library's type for these differs between glibc and musl"
    )]
    pub(crate) const fn raw(self) -> u32 {
        match self {
            Self::AddressSpace => libc::RLIMIT_AS as u32,
            Self::Core => libc::RLIMIT_CORE as u32,
            Self::Cpu => libc::RLIMIT_CPU as u32,
            Self::Data => libc::RLIMIT_DATA as u32,
            Self::FileSize => libc::RLIMIT_FSIZE as u32,
            Self::LockedMemory => libc::RLIMIT_MEMLOCK as u32,
            Self::Descriptors => libc::RLIMIT_NOFILE as u32,
            Self::Processes => libc::RLIMIT_NPROC as u32,
            Self::Stack => libc::RLIMIT_STACK as u32,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns the resident memory of this process that is its own, in KiB.
    fn resident() -> usize {
        let status = std::fs::read_to_string("/proc/self/status").unwrap();
        let line = status.lines().find(|line| line.starts_with("RssAnon:"));
        let number = line.unwrap().split_whitespace().nth(1);
        number.unwrap().parse().unwrap()
    }

    #[test]
    fn one_piece_keeps_no_others() {
        const PIECES: usize = 64 << 10;
        let mut pieces: Vec<Box<[u8]>> = (0..PIECES).map(|_| vec![1; 1 << 10].into()).collect();
        let last = pieces.pop();
        let before = resident();
        drop(pieces);
        give_back_memory();
        // Other tests run beside this one.
        assert!(
            resident() + (PIECES / 2) < before,
            "{before}, {}",
            resident()
        );
        drop(last);
    }
}
