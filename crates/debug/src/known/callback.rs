//! Functions of the user that a library calls: operations of reductions, error handlers, what frees an attribute.

use super::{Position, known, tables::SYSTEM};
use crate::stack::{Frame, FrameKind};

/// Beginnings of the names of libraries that MPI calls, or that stand between it and the C library. What is in none of
/// these, nor in one of the system, is taken for the user's: then no verdict is founded on it.
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
/// Part of the names of libfabric's providers.
const PROVIDER: &str = "-fi.so";
/// Beginnings of the names of functions inside implementations of MPI, where these are a part of the program.
const INSIDE_MPI: [&str; 13] = [
    "MPI", "PMPI", "mpi", "pmpi", "MPL_", "PMI", "ompi_", "opal_", "mca_", "uct_", "ucp_", "ucs_",
    "fi_",
];

/// Whether a frame below a call of a library is the user's; `home` is the frame of that call.
pub(crate) fn is_callback(frame: &Frame, home: &Frame) -> bool {
    match frame.kind {
        FrameKind::Python => return true,
        FrameKind::Signal => return false,
        FrameKind::Native | FrameKind::Inlined => {}
    }
    // Code in no file was made while the program ran.
    let Some(module) = frame.module.as_deref() else {
        return true;
    };
    let of_library = SYSTEM.iter().chain(&BELOW_MPI);
    let mut of_library = of_library.map(|start| module.starts_with(start));
    // What stands before the C library has the names of its functions.
    if of_library.any(|is| is)
        || module.contains(PROVIDER)
        || known(frame, Position::Inner).is_some()
    {
        return false;
    }
    if home.module.as_deref() != Some(module) {
        return true;
    }
    // The library is a part of the program. Libraries are rarely compiled to be debugged, what the user writes is.
    let name = frame.function.as_deref().unwrap_or_default();
    let is_inside = INSIDE_MPI.iter().any(|start| name.starts_with(start));
    home.source.is_none() && frame.source.is_some() && !is_inside
}
