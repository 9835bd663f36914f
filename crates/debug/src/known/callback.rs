//! User functions that a library calls: reduction operations, error handlers, attribute deletion functions.

use super::{Position, known, tables::SYSTEM};
use crate::stack::{Frame, FrameKind};

/// Name prefixes of libraries that MPI calls, or that wrap the C library. Modules that are neither in this list nor part of the
/// system are taken for the user's: then no verdict is based on the library call.
const BELOW_MPI: [&str; 36] = [
    "libmca_",
    "mca_",
    "libhcoll",
    "libocoms",
    "libsharp",
    "libucc",
    "libucm",
    "libibverbs",
    "libmlx",
    "librdmacm",
    "libefa",
    "libpsm",
    "libcxi",
    "libhwloc",
    "libnuma",
    "libxpmem",
    "libnl-",
    "libudev",
    "libpmi",
    "libpals",
    "libltdl",
    "libz.",
    "librccl",
    "libamdhip",
    "libhsa",
    "libze_",
    "libasan",
    "libtsan",
    "libubsan",
    "liblsan",
    "libdarshan",
    "libjemalloc",
    "libtcmalloc",
    "libscorep",
    "libTAU",
    "libipm",
];
/// A part of the file names of libfabric's providers.
const PROVIDER: &str = "-fi.so";
/// Name prefixes of functions inside MPI implementations, for programs that contain their MPI library.
const INSIDE_MPI: [&str; 13] = [
    "MPI", "PMPI", "mpi", "pmpi", "MPL_", "PMI", "ompi_", "opal_", "mca_", "uct_", "ucp_", "ucs_",
    "fi_",
];

/// Returns true if a frame below a call of a library is user code. `home` is the frame of that call.
pub(crate) fn is_callback(frame: &Frame, home: &Frame) -> bool {
    match frame.kind {
        FrameKind::Python => return true,
        FrameKind::Signal => return false,
        FrameKind::Native | FrameKind::Inlined => {}
    }
    // Code in no file was generated at run time.
    let Some(module) = frame.module.as_deref() else {
        return true;
    };
    let of_library = SYSTEM.iter().chain(&BELOW_MPI);
    let mut of_library = of_library.map(|start| module.starts_with(start));
    // Libraries that wrap the C library have functions with its names.
    if of_library.any(|is| is)
        || module.contains(PROVIDER)
        || known(frame, Position::Inner).is_some()
    {
        return false;
    }
    if home.module.as_deref() != Some(module) {
        return true;
    }
    // The library is linked into the program. Libraries are rarely compiled with debug information; user code is.
    let name = frame.function.as_deref().unwrap_or_default();
    let is_inside = INSIDE_MPI.iter().any(|start| name.starts_with(start));
    home.source.is_none() && frame.source.is_some() && !is_inside
}
