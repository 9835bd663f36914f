//! Private directories and files under every umask, which belongs to the whole process.
#![expect(unsafe_code, reason = "the standard library does not set it")]

use std::{ffi::OsStr, fs, os::unix::fs::MetadataExt, path::Path};

use crate::Test;

pub(crate) const TESTS: &[Test] = &[(
    "private::what_is_private_is_so_under_every_umask",
    what_is_private_is_so_under_every_umask,
)];

fn what_is_private_is_so_under_every_umask() {
    let root = tempfile::tempdir().unwrap();
    let mode = |path: &Path| fs::metadata(path).unwrap().mode() & 0o777;
    for umask in [0, 0o022, 0o077, 0o777] {
        // SAFETY: changes only this process, which is a test's own.
        unsafe { libc::umask(umask) };
        os::write_private_file(root.path(), OsStr::new("file"), b"address").unwrap();
        assert_eq!(mode(&root.path().join("file")), 0o600, "{umask:o}");
        let made = os::make_private_dir(root.path(), "job.");
        if umask == 0o777 {
            // No user could enter it, not even we.
            assert!(made.is_err(), "{made:?}");
        } else {
            assert_eq!(mode(&made.unwrap()), 0o700, "{umask:o}");
        }
    }
    assert_eq!(fs::read_dir(root.path()).unwrap().count(), 4);
}
