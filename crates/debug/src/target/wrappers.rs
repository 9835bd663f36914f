//! Programs that start others and then only wait.

use super::names::file_name;

/// Programs that the user does not mean: the only child is the rank.
const WRAPPERS: [&str; 46] = [
    "sh",
    "bash",
    "dash",
    "ash",
    "zsh",
    "ksh",
    "mksh",
    "fish",
    "csh",
    "tcsh",
    "busybox",
    "env",
    "chroot",
    "unshare",
    "nsenter",
    "setpriv",
    "bwrap",
    "gdb",
    "gdbserver",
    "lldb",
    "valgrind",
    "strace",
    "ltrace",
    "perf",
    "numactl",
    "taskset",
    "time",
    "timeout",
    "nice",
    "ionice",
    "chrt",
    "setsid",
    "nohup",
    "stdbuf",
    "unbuffer",
    "script",
    "sudo",
    "su",
    "tini",
    "dumb-init",
    "catchsegv",
    "singularity",
    "apptainer",
    "starter",
    "starter-suid",
    "ch-run",
];
/// Programs that start many workers for a user, and whose own stack is of no interest.
const STARTERS: [&str; 10] = [
    "make",
    "gmake",
    "ninja",
    "parallel",
    "xargs",
    "just",
    "task",
    "entr",
    "watch",
    "mpiexec.gforker",
];

/// Returns true if a process with this program or command name is a wrapper, which only waits for its child.
pub(super) fn is_wrapper(program: &str, name: &str) -> bool {
    let is = |name: &str| WRAPPERS.contains(&name) || name.starts_with("valgrind");
    is(file_name(program)) || is(name)
}

/// Returns true if the children of the process are the ranks, and not the process.
pub(super) fn is_starter(program: &str, name: &str) -> bool {
    is_wrapper(program, name) || STARTERS.contains(&file_name(program)) || STARTERS.contains(&name)
}

/// Returns true if a process may be a PMIx server that answers tools. For some names that depends on whether the process has
/// mapped a PMIx server library.
pub(super) fn may_answer(program: &str, name: &str, has_library: impl FnOnce() -> bool) -> bool {
    const SERVERS: [&str; 2] = ["prterun", "prte"];
    // Launchers of several MPI implementations have these names.
    const PERHAPS: [&str; 3] = ["mpirun", "mpiexec", "orterun"];
    let is = |names: &[&str]| names.contains(&file_name(program)) || names.contains(&name);
    is(&SERVERS) || (is(&PERHAPS) && has_library())
}

/// Returns true if a library is one that a PMIx server maps.
pub(super) fn is_pmix(file: &str) -> bool {
    ["libpmix.", "libprrte.", "libopen-rte."]
        .iter()
        .any(|library| file.starts_with(library))
}

/// Returns true if a process with this name may have a table of ranks that are not its descendants.
pub(super) fn is_remote_launcher(name: &str) -> bool {
    ["srun", "sattach", "mpirun", "mpiexec", "orterun"].contains(&name)
}

/// Returns true if the ranks of the launcher are never its descendants: daemons of the nodes start them.
pub(super) fn starts_through_daemons(name: &str) -> bool {
    ["srun", "sattach"].contains(&name)
}

/// Returns true if a command with this name starts ranks, or is an ancestor of a process that does.
pub(super) fn is_launcher(name: &str) -> bool {
    const MORE: [&str; 6] = [
        "rally",
        "mpiexec.hydra",
        "prterun",
        "prte",
        "slurmstepd",
        "flux-shell",
    ];
    is_proxy(name) || is_remote_launcher(name) || MORE.contains(&name)
}

/// Returns true if a process with this name is the launcher's daemon on a node, between the launcher and its ranks.
pub(super) fn is_proxy(name: &str) -> bool {
    ["hydra_pmi_proxy", "prted", "orted"].contains(&name)
}
