//! File systems that several computers share.

use std::path::Path;

use nix::sys::statfs::statfs;

/// Types of file systems whose files other computers see, as statfs(2) reports them. FUSE and overlays may be shared or not, so
/// they are left out.
const OF_NETWORKS: [(u32, &str); 15] = [
    (0x6969, "NFS"),
    (0x0bd0_0bd0, "Lustre"),
    (0x4750_4653, "GPFS"),
    (0x1983_0326, "BeeGFS"),
    (0x00c3_6400, "Ceph"),
    (0x5346_414f, "AFS"),
    (0x6b41_4653, "AFS"),
    (0xff53_4d42, "CIFS"),
    (0xfe53_4d42, "SMB"),
    (0x517b, "SMB"),
    (0x7461_636f, "OCFS2"),
    (0x0116_1970, "GFS2"),
    (0xaad7_aaea, "PanFS"),
    (0x2003_0528, "OrangeFS"),
    (0x0102_1997, "9P"),
];

/// Returns true if a file is on a file system that other computers see too, as far as its type says. If the file does not
/// exist, the directory decides in which it would be made.
#[must_use]
pub fn is_on_shared_files(path: &Path) -> bool {
    let found = path.ancestors().find_map(|path| statfs(path).ok());
    found.is_some_and(|found| {
        // The number has 32 bits; its type in C differs between libraries and architectures.
        let number = i128::from(found.filesystem_type().0) & 0xffff_ffff;
        OF_NETWORKS
            .iter()
            .any(|(known, _)| i128::from(*known) == number)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_of_the_kernel_are_not_shared() {
        for path in ["/proc/self/none/at/all", "/dev/shm", "/proc"] {
            assert!(!is_on_shared_files(Path::new(path)), "{path}");
        }
    }
}
