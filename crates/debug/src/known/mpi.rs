//! MPI functions, in the spellings of C and of Fortran compilers.
//!
//! Functions in the tables have a specific [`Kind`]. Any other function with such a name is an MPI function of unknown purpose.

use super::{Kind, Known};

/// Operations by what they wait for. Names are compared without case, because Fortran ignores it.
const WAITS: [(Kind, &[&str]); 12] = [
    (
        Kind::Collective,
        &[
            "MPI_Allgather",
            "MPI_Allgatherv",
            "MPI_Allreduce",
            "MPI_Alltoall",
            "MPI_Alltoallv",
            "MPI_Alltoallw",
            "MPI_Barrier",
            "MPI_Bcast",
            "MPI_Exscan",
            "MPI_Gather",
            "MPI_Gatherv",
            "MPI_Reduce",
            "MPI_Reduce_scatter",
            "MPI_Reduce_scatter_block",
            "MPI_Scan",
            "MPI_Scatter",
            "MPI_Scatterv",
            "MPI_Neighbor_allgather",
            "MPI_Neighbor_allgatherv",
            "MPI_Neighbor_alltoall",
            "MPI_Neighbor_alltoallv",
            "MPI_Neighbor_alltoallw",
            "MPI_Comm_create",
            "MPI_Comm_create_group",
            "MPI_Comm_create_from_group",
            "MPI_Comm_dup",
            "MPI_Comm_dup_with_info",
            "MPI_Comm_split",
            "MPI_Comm_split_type",
            "MPI_Intercomm_create",
            "MPI_Intercomm_create_from_groups",
            "MPI_Intercomm_merge",
            "MPI_Cart_create",
            "MPI_Cart_sub",
            "MPI_Graph_create",
            "MPI_Dist_graph_create",
            "MPI_Dist_graph_create_adjacent",
            "MPI_Win_allocate",
            "MPI_Win_allocate_shared",
            "MPI_Win_create",
            "MPI_Win_create_dynamic",
            "MPI_Win_fence",
            "MPI_Win_free",
        ],
    ),
    (Kind::Recovery, &["MPIX_Comm_agree", "MPIX_Comm_shrink"]),
    (
        Kind::Start,
        &["MPI_Init", "MPI_Init_thread", "MPI_Session_init"],
    ),
    (Kind::Finish, &["MPI_Finalize", "MPI_Session_finalize"]),
    (
        Kind::Receive,
        &["MPI_Recv", "MPI_Mrecv", "MPI_Probe", "MPI_Mprobe"],
    ),
    (
        Kind::Send,
        &["MPI_Send", "MPI_Ssend", "MPI_Rsend", "MPI_Bsend"],
    ),
    (Kind::Exchange, &["MPI_Sendrecv", "MPI_Sendrecv_replace"]),
    (
        Kind::Completion,
        &["MPI_Wait", "MPI_Waitall", "MPI_Waitany", "MPI_Waitsome"],
    ),
    (
        Kind::Epoch,
        &["MPI_Win_start", "MPI_Win_complete", "MPI_Win_wait"],
    ),
    (
        Kind::Window,
        &[
            "MPI_Win_lock",
            "MPI_Win_lock_all",
            "MPI_Win_unlock",
            "MPI_Win_unlock_all",
            "MPI_Win_flush",
            "MPI_Win_flush_all",
            "MPI_Win_flush_local",
            "MPI_Win_flush_local_all",
        ],
    ),
    (
        Kind::File,
        &[
            "MPI_File_open",
            "MPI_File_close",
            "MPI_File_delete",
            "MPI_File_preallocate",
            "MPI_File_read",
            "MPI_File_read_all",
            "MPI_File_read_all_begin",
            "MPI_File_read_all_end",
            "MPI_File_read_at",
            "MPI_File_read_at_all",
            "MPI_File_read_at_all_begin",
            "MPI_File_read_at_all_end",
            "MPI_File_read_ordered",
            "MPI_File_read_ordered_begin",
            "MPI_File_read_ordered_end",
            "MPI_File_read_shared",
            "MPI_File_seek_shared",
            "MPI_File_set_atomicity",
            "MPI_File_set_info",
            "MPI_File_set_size",
            "MPI_File_set_view",
            "MPI_File_sync",
            "MPI_File_write",
            "MPI_File_write_all",
            "MPI_File_write_all_begin",
            "MPI_File_write_all_end",
            "MPI_File_write_at",
            "MPI_File_write_at_all",
            "MPI_File_write_at_all_begin",
            "MPI_File_write_at_all_end",
            "MPI_File_write_ordered",
            "MPI_File_write_ordered_begin",
            "MPI_File_write_ordered_end",
            "MPI_File_write_shared",
        ],
    ),
    (
        Kind::OtherJob,
        &[
            "MPI_Comm_accept",
            "MPI_Comm_connect",
            "MPI_Comm_disconnect",
            "MPI_Comm_join",
            "MPI_Comm_spawn",
            "MPI_Comm_spawn_multiple",
            "MPI_Lookup_name",
        ],
    ),
];

/// Functions that return immediately and that programs call in loops.
const TESTS: [&str; 28] = [
    "MPI_Test",
    "MPI_Testall",
    "MPI_Testany",
    "MPI_Testsome",
    "MPI_Test_cancelled",
    "MPI_Request_get_status",
    "MPI_Request_get_status_all",
    "MPI_Request_get_status_any",
    "MPI_Request_get_status_some",
    "MPI_Parrived",
    "MPI_Pready",
    "MPI_Win_test",
    "MPI_Start",
    "MPI_Startall",
    "MPI_Put",
    "MPI_Get",
    "MPI_Accumulate",
    "MPI_Rput",
    "MPI_Rget",
    "MPI_Wtime",
    "MPI_Wtick",
    "MPI_Comm_rank",
    "MPI_Comm_size",
    "MPI_Initialized",
    "MPI_Finalized",
    "MPI_Is_thread_main",
    "MPIX_Request_is_complete",
    "MPIX_Stream_progress",
];
/// Name prefixes of functions that begin with `I` but are not nonblocking operations.
const NOT_IMMEDIATE: [&str; 5] = ["init", "inter", "info", "initialized", "is_"];

/// Internal functions to which public functions jump instead of calling them, so that the public function has no frame. In Open
/// MPI 5, `MPI_Finalize` does nothing after this one.
const JUMPED_TO: [(&str, &str); 1] = [("ompi_mpi_finalize", "MPI_Finalize")];

/// Returns the known MPI function for a function's name and its module, the file name of its program or library.
pub(super) fn known(name: &str, module: Option<&str>) -> Option<Known> {
    let jumped = JUMPED_TO.iter().find(|(inner, _)| *inner == name);
    let name = jumped.map_or(name, |(_, public)| public);
    let (base, spelling) = base(name)?;
    for (kind, names) in &WAITS {
        if let Some(name) = names.iter().find(|known| known.eq_ignore_ascii_case(&base)) {
            let name = (*name).into();
            return Some(Known { name, kind: *kind });
        }
    }
    let test = TESTS.iter().find(|known| known.eq_ignore_ascii_case(&base));
    if let Some(name) = test {
        let name = (*name).into();
        return Some(Known {
            name,
            kind: Kind::Test,
        });
    }
    // Programs have functions of their own with such names, in spellings that the standard does not reserve.
    let is_library = module.is_some_and(|module| module.starts_with("libmpi"));
    if spelling == Spelling::Fortran && !is_library {
        return None;
    }
    let rest = base.strip_prefix("MPI_").unwrap_or_default();
    let lower = rest.to_ascii_lowercase();
    let immediate =
        lower.starts_with('i') && !NOT_IMMEDIATE.iter().any(|start| lower.starts_with(start));
    Some(Known {
        name: base.as_str().into(),
        kind: if immediate {
            Kind::Test
        } else {
            Kind::UnknownMpi
        },
    })
}

/// Functions that connect a job with one that another launcher has started.
const JOIN_JOBS: [&str; 3] = ["MPI_Comm_accept", "MPI_Comm_connect", "MPI_Comm_join"];
/// Functions that start a job, and connect the job of the caller with it.
const SPAWN_JOBS: [&str; 2] = ["MPI_Comm_spawn", "MPI_Comm_spawn_multiple"];

/// Returns true if a symbol is one of [`JOIN_JOBS`], in any spelling.
pub(crate) fn joins_jobs(symbol: &[u8]) -> bool {
    is_one_of(symbol, &JOIN_JOBS)
}

/// Returns true if a symbol is one of [`SPAWN_JOBS`], in any spelling.
pub(crate) fn spawns_jobs(symbol: &[u8]) -> bool {
    is_one_of(symbol, &SPAWN_JOBS)
}

fn is_one_of(symbol: &[u8], names: &[&str]) -> bool {
    /// The maximum length of a symbol: no spelling of these functions is longer.
    const MAX: usize = 64;
    let base = str::from_utf8(symbol).ok().filter(|it| it.len() <= MAX);
    let base = base.and_then(base_of_symbol);
    base.is_some_and(|it| names.iter().any(|name| name.eq_ignore_ascii_case(&it)))
}

fn base_of_symbol(symbol: &str) -> Option<String> {
    // Most symbols are not of MPI: a cheap test rejects them.
    let is_likely = ["mpi_comm_", "mpi_f08_mod", "mpi_f08_mp", "mpir_comm_"];
    let lower = symbol.to_ascii_lowercase();
    let is_likely = is_likely.iter().any(|part| lower.contains(part));
    Some(base(symbol.split('@').next().filter(|_| is_likely)?)?.0)
}

/// The spelling of a name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Spelling {
    /// `MPI_Send`, as in the standard.
    C,
    /// `mpi_send_` or `MPI_SEND`, as Fortran compilers write it.
    Fortran,
}

/// Returns the standard's name for a function, without the profiling prefix and without suffixes of compilers and bindings;
/// `None` if the function is not of MPI.
fn base(name: &str) -> Option<(String, Spelling)> {
    // Module procedures: `__mpi_f08_MOD_mpi_send_f08`, `mpi_f08_mp_mpi_send_f08_`.
    let procedure = ["_MOD_", "_mp_"].iter().find_map(|sign| {
        let (module, procedure) = name.split_once(sign)?;
        module.contains("mpi").then_some(procedure)
    });
    let name = procedure.unwrap_or(name).trim_end_matches('_');
    let name = name
        .strip_prefix(['P', 'p'])
        .filter(|rest| starts(rest, "mpi"))
        .unwrap_or(name);
    let is_c = name.starts_with("MPI") && name.contains(|letter: char| letter.is_lowercase());
    // Suffixes of the Fortran 2008 bindings (`_f08`), and of those with large counts (`_c`).
    let bound = ["_f08ts", "_f08"]
        .iter()
        .find_map(|end| name.strip_suffix(end));
    let plain = bound.or_else(|| name.strip_suffix("_c")).unwrap_or(name);
    // Internal names: `PMPIR_Send_f08` in MPICH; `ompi_send_f` in Open MPI, an alias of all Fortran spellings.
    let inside = || {
        let of_open_mpi = plain.strip_prefix("ompi_");
        let of_open_mpi = of_open_mpi.and_then(|rest| rest.strip_suffix("_f"));
        of_open_mpi.or_else(|| plain.strip_prefix("MPIR_").filter(|_| bound.is_some()))
    };
    let (prefix, rest) = if starts(plain, "mpi_") {
        ("MPI_", &plain[4..])
    } else if starts(plain, "mpix_") {
        ("MPIX_", &plain[5..])
    } else {
        ("MPI_", inside()?)
    };
    if is_c {
        return Some((format!("{prefix}{rest}"), Spelling::C));
    }
    let lower = rest.to_ascii_lowercase();
    let mut letters = lower.chars();
    let first = letters.next()?.to_ascii_uppercase();
    let name = format!("{prefix}{first}{}", letters.as_str());
    Some((name, Spelling::Fortran))
}

/// Returns true if a string has this prefix, ignoring case.
fn starts(text: &str, beginning: &str) -> bool {
    let bytes = text.as_bytes().get(..beginning.len());
    bytes.is_some_and(|bytes| bytes.eq_ignore_ascii_case(beginning.as_bytes()))
}
