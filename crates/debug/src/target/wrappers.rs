//! Programs that start others and then only wait.

use super::names::file_name;

/// Programs whose only child is what the user means.
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
/// Programs that start many others for a user, and whose own stack says nothing.
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

/// Whether a process with this program or command name only waits for its child.
pub(super) fn is_wrapper(program: &str, name: &str) -> bool {
    let is = |name: &str| WRAPPERS.contains(&name) || name.starts_with("valgrind");
    is(file_name(program)) || is(name)
}

/// Whether what it has started is what the user means.
pub(super) fn is_starter(program: &str, name: &str) -> bool {
    is_wrapper(program, name) || STARTERS.contains(&file_name(program)) || STARTERS.contains(&name)
}

/// Whether a process is a PMIx server that answers tools; of some it shows only where they have the library for it.
pub(super) fn may_answer(program: &str, name: &str, has_library: impl FnOnce() -> bool) -> bool {
    const SERVERS: [&str; 2] = ["prterun", "prte"];
    // Launchers of many have these names.
    const PERHAPS: [&str; 3] = ["mpirun", "mpiexec", "orterun"];
    let is = |names: &[&str]| names.contains(&file_name(program)) || names.contains(&name);
    is(&SERVERS) || (is(&PERHAPS) && has_library())
}

/// Whether a library is of those that a PMIx server has.
pub(super) fn is_pmix(file: &str) -> bool {
    ["libpmix.", "libprrte.", "libopen-rte."]
        .iter()
        .any(|library| file.starts_with(library))
}

/// Whether it may have the table of ranks that it is not the ancestor of.
pub(super) fn is_remote_launcher(name: &str) -> bool {
    ["srun", "sattach", "mpirun", "mpiexec", "orterun"].contains(&name)
}

/// Whether its ranks are never below it: daemons of the nodes start them.
pub(super) fn starts_through_daemons(name: &str) -> bool {
    ["srun", "sattach"].contains(&name)
}

/// Whether a command of this name starts the ranks of jobs, or stands above what does.
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

/// Whether it stands between the launcher and its ranks on a node.
pub(super) fn is_proxy(name: &str) -> bool {
    ["hydra_pmi_proxy", "prted", "orted"].contains(&name)
}
