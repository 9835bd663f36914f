//! Where the programs of ranks are searched for.

use std::{
    ffi::{OsStr, OsString},
    os::unix::ffi::{OsStrExt as _, OsStringExt as _},
    path::{Path, PathBuf},
};

/// Returns the search path of a rank, with entries that are relative made absolute by its directory.
pub(crate) fn search_path(directory: &Path, search: &OsStr) -> OsString {
    let entries = search.as_bytes().split(|byte| *byte == b':').map(|entry| {
        let place = directory.join(OsStr::from_bytes(entry));
        // Drop the `.` components that a relative entry brings.
        let place: PathBuf = place.components().collect();
        place.into_os_string().into_vec()
    });
    OsString::from_vec(entries.collect::<Vec<_>>().join(&b':'))
}
