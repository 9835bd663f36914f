//! The spellings of others, and what each becomes.

use super::{
    Emit, Error, Given, Personality,
    Takes::{self, Attached, None as Nothing, Number, One, Pair},
    rewrite,
};
use crate::args::error::{Meaning, NotOffered};

/// A foreign spelling.
#[derive(Debug)]
pub(crate) struct Spelling {
    /// Without hyphens; one letter or a word. One or two hyphens are accepted before each.
    pub(super) names: &'static [&'static str],
    pub(super) who: &'static [Personality],
    pub(super) takes: Takes,
    pub(super) means: Means,
}

/// A function that translates an option; it calls [`Emit`] for each flag that the option becomes.
type Rewrite = fn(&Given<'_>, &mut Emit<'_>) -> Result<(), Error>;

/// What a foreign spelling becomes.
#[derive(Debug)]
pub(super) enum Means {
    /// This flag of ours, with the value as it is.
    Same(&'static str),
    /// This flag with this value.
    Fixed(&'static str, &'static str),
    /// This flag without a value.
    Plain(&'static str),
    Each(Rewrite),
    /// Accepted without effect, which is said once for all of them.
    Ignored,
    /// Accepted, and nothing needs to be said: what it asks for is always so.
    Silent,
    /// Refused, because peers mean different things by it.
    Conflict(&'static [Meaning]),
    /// Refused, because ignoring it would run something else than was asked for.
    Refused(NotOffered),
}

impl Spelling {
    /// Whether it is this one.
    pub(super) fn is(&self, name: &str, personality: Personality) -> bool {
        self.names.contains(&name) && self.under(personality)
    }

    /// Whether it holds under a personality.
    pub(super) fn under(&self, personality: Personality) -> bool {
        self.who.contains(&personality)
    }

    /// Whether it is good for anything, so that it can be suggested.
    pub(super) const fn is_offered(&self) -> bool {
        !matches!(
            self.means,
            Means::Ignored | Means::Conflict(_) | Means::Refused(_)
        )
    }

    /// What it becomes, for people.
    pub(super) fn meaning(&self) -> Option<String> {
        match self.means {
            Means::Same(flag) | Means::Plain(flag) => Some(format!("`--{flag}`")),
            Means::Fixed(flag, value) => Some(format!("`--{flag}={value}`")),
            Means::Each(_)
            | Means::Ignored
            | Means::Silent
            | Means::Conflict(_)
            | Means::Refused(_) => None,
        }
    }
}

const ALL: &[Personality] = &Personality::ALL;
const PLAIN: &[Personality] = &[Personality::Rally];
const MPI: &[Personality] = &[Personality::Mpiexec, Personality::Mpirun];
const SRUN: &[Personality] = &[Personality::Srun];
const NOT_SRUN: &[Personality] = &[
    Personality::Rally,
    Personality::Mpiexec,
    Personality::Mpirun,
];

const fn row(
    who: &'static [Personality],
    names: &'static [&'static str],
    takes: Takes,
    means: Means,
) -> Spelling {
    Spelling {
        names,
        who,
        takes,
        means,
    }
}

const fn meaning(whose: &'static str, what: &'static str, ours: &'static str) -> Meaning {
    Meaning { whose, what, ours }
}

/// Every foreign spelling; the first row that fits decides, and rows come before our own flags.
pub(super) static SPELLINGS: &[Spelling] = &[
    // Numbers of procs.
    row(ALL, &["ntasks"], One, Means::Same("np")),
    row(MPI, &["c"], One, Means::Same("np")),
    row(
        SRUN,
        &["c", "cpus-per-task"],
        One,
        Means::Each(rewrite::cpus_per_proc),
    ),
    row(
        NOT_SRUN,
        &["cpus-per-task", "cpus-per-proc", "cpus-per-rank"],
        One,
        Means::Each(rewrite::cpus_per_proc),
    ),
    row(
        PLAIN,
        &["c"],
        One,
        Means::Conflict(&[
            meaning("mpirun", "the number of procs", "`-n N`"),
            meaning("srun", "CPUs for each proc", "`--map-by slot:PE=N`"),
        ]),
    ),
    // A set of acceptable counts: the largest, which `-n` gives, is always acceptable.
    row(ALL, &["soft"], One, Means::Silent),
    row(MPI, &["N"], One, Means::Same("per-node")),
    row(SRUN, &["N", "nodes"], One, Means::Each(rewrite::nodes)),
    row(
        PLAIN,
        &["N"],
        One,
        Means::Conflict(&[
            meaning("mpirun", "procs on each node", "`--per-node N`"),
            meaning("srun", "the number of nodes", "`--host LIST`"),
        ]),
    ),
    row(
        ALL,
        &["npernode", "ppn", "perhost", "grr", "ntasks-per-node"],
        One,
        Means::Same("per-node"),
    ),
    row(
        NOT_SRUN,
        &["pernode"],
        Nothing,
        Means::Fixed("per-node", "1"),
    ),
    row(
        ALL,
        &["npersocket", "ntasks-per-socket"],
        One,
        Means::Each(rewrite::per_package),
    ),
    row(
        ALL,
        &["ntasks-per-core"],
        One,
        Means::Each(rewrite::per_core),
    ),
    // Hosts.
    row(NOT_SRUN, &["H", "hosts"], One, Means::Same("host")),
    row(SRUN, &["w", "nodelist"], One, Means::Same("host")),
    row(
        NOT_SRUN,
        &["f", "machinefile", "machine", "default-hostfile"],
        One,
        Means::Same("hostfile"),
    ),
    row(
        SRUN,
        &["F", "nodefile", "machinefile"],
        One,
        Means::Same("hostfile"),
    ),
    row(ALL, &["arch"], One, Means::Ignored),
    row(
        SRUN,
        &["x", "exclude", "r", "relative"],
        One,
        Means::Refused(NotOffered::OneNode),
    ),
    row(
        NOT_SRUN,
        &["nolocal", "skip-launch-node"],
        Nothing,
        Means::Refused(NotOffered::OneNode),
    ),
    row(
        NOT_SRUN,
        &["add-host", "add-hostfile", "dvm", "dvm-uri"],
        One,
        Means::Refused(NotOffered::Machine),
    ),
    // The program.
    row(ALL, &["wd"], One, Means::Same("wdir")),
    row(SRUN, &["D", "chdir"], One, Means::Same("wdir")),
    row(NOT_SRUN, &["chdir", "cwd"], One, Means::Same("wdir")),
    row(
        ALL,
        &["configfile", "file", "appfile"],
        One,
        Means::Same("app"),
    ),
    row(
        SRUN,
        &["multi-prog"],
        Nothing,
        Means::Refused(NotOffered::MultiProg),
    ),
    row(
        NOT_SRUN,
        &["set-cwd-to-session-dir"],
        Nothing,
        Means::Refused(NotOffered::SessionDirectory),
    ),
    // Environment.
    row(MPI, &["x"], One, Means::Each(rewrite::export)),
    row(
        PLAIN,
        &["x"],
        One,
        Means::Conflict(&[
            meaning("mpirun", "export a variable", "`--set-env NAME[=VALUE]`"),
            meaning("srun", "hosts not to use", "`--host` with the others"),
        ]),
    ),
    row(
        NOT_SRUN,
        &["genv"],
        Pair,
        Means::Each(rewrite::set_everywhere),
    ),
    row(NOT_SRUN, &["env"], Pair, Means::Each(rewrite::set_here)),
    row(
        NOT_SRUN,
        &["genvlist"],
        One,
        Means::Each(rewrite::inherit_everywhere),
    ),
    row(NOT_SRUN, &["envlist"], One, Means::Same("inherit-env")),
    row(
        NOT_SRUN,
        &["genvall"],
        Nothing,
        Means::Each(rewrite::inherit_all_everywhere),
    ),
    row(
        NOT_SRUN,
        &["genvnone"],
        Nothing,
        Means::Each(rewrite::inherit_none_everywhere),
    ),
    row(
        NOT_SRUN,
        &["envall"],
        Nothing,
        Means::Fixed("inherit-env", "all"),
    ),
    row(
        NOT_SRUN,
        &["envnone"],
        Nothing,
        Means::Fixed("inherit-env", "none"),
    ),
    row(
        NOT_SRUN,
        &["genvexcl", "envexcl"],
        One,
        Means::Each(rewrite::unset_list),
    ),
    row(SRUN, &["export"], One, Means::Each(rewrite::slurm_export)),
    row(
        ALL,
        &["prepend-env", "prepend-envar"],
        Pair,
        Means::Each(rewrite::prepend),
    ),
    row(
        ALL,
        &["append-env", "append-envar"],
        Pair,
        Means::Each(rewrite::append),
    ),
    row(ALL, &["unset-envar"], One, Means::Same("unset-env")),
    // Placement.
    row(
        NOT_SRUN,
        &["bynode"],
        Nothing,
        Means::Fixed("map-by", "node"),
    ),
    row(
        NOT_SRUN,
        &["byslot"],
        Nothing,
        Means::Fixed("map-by", "slot"),
    ),
    row(
        NOT_SRUN,
        &["bycore"],
        Nothing,
        Means::Fixed("map-by", "core"),
    ),
    row(
        NOT_SRUN,
        &["bysocket"],
        Nothing,
        Means::Fixed("map-by", "package"),
    ),
    row(
        NOT_SRUN,
        &["bind-to-core"],
        Nothing,
        Means::Fixed("bind-to", "core"),
    ),
    row(
        NOT_SRUN,
        &["bind-to-socket"],
        Nothing,
        Means::Fixed("bind-to", "package"),
    ),
    row(
        NOT_SRUN,
        &["bind-to-none"],
        Nothing,
        Means::Fixed("bind-to", "none"),
    ),
    row(NOT_SRUN, &["binding"], One, Means::Same("bind-to")),
    row(
        NOT_SRUN,
        &["use-hwthread-cpus"],
        Nothing,
        Means::Fixed("map-by", ":HWTCPUS"),
    ),
    row(
        NOT_SRUN,
        &["rankfile", "rf"],
        One,
        Means::Each(rewrite::rankfile),
    ),
    row(
        NOT_SRUN,
        &["cpu-set", "cpu-list"],
        One,
        Means::Each(rewrite::cpu_list),
    ),
    row(
        NOT_SRUN,
        &["rankmap"],
        One,
        Means::Refused(NotOffered::RankMap),
    ),
    row(
        SRUN,
        &["m", "distribution"],
        One,
        Means::Each(rewrite::distribution),
    ),
    row(
        SRUN,
        &["cpu-bind", "cpu_bind"],
        One,
        Means::Each(rewrite::cpu_bind),
    ),
    row(
        NOT_SRUN,
        &["cpu-bind", "cpu_bind"],
        One,
        Means::Each(rewrite::cpu_bind),
    ),
    row(
        ALL,
        &["O", "overcommit"],
        Nothing,
        Means::Fixed("oversubscribe", "yes"),
    ),
    row(
        ALL,
        &["nooversubscribe", "no-oversubscribe"],
        Nothing,
        Means::Fixed("oversubscribe", "no"),
    ),
    row(ALL, &["display"], One, Means::Each(rewrite::display)),
    row(
        ALL,
        &["report-bindings"],
        Nothing,
        Means::Fixed("display", "bindings"),
    ),
    row(
        ALL,
        &["display-map", "display-devel-map", "print-rank-map"],
        Nothing,
        Means::Fixed("display", "map"),
    ),
    row(
        ALL,
        &["display-allocation", "display-devel-allocation"],
        Nothing,
        Means::Fixed("display", "allocation"),
    ),
    row(
        ALL,
        &["rtos", "runtime-options"],
        One,
        Means::Each(rewrite::runtime_options),
    ),
    row(
        ALL,
        &["do-not-launch", "donotlaunch", "test-only"],
        Nothing,
        Means::Plain("dry-run"),
    ),
    // Output and input.
    row(
        ALL,
        &["tag-output", "prepend-rank"],
        Nothing,
        Means::Fixed("label", "rank"),
    ),
    row(
        ALL,
        &["timestamp-output"],
        Nothing,
        Means::Fixed("timestamps", "yes"),
    ),
    row(
        ALL,
        &["merge-stderr-to-stdout"],
        Nothing,
        Means::Plain("merge-stderr"),
    ),
    row(
        NOT_SRUN,
        &["output-filename"],
        One,
        Means::Each(rewrite::output_filename),
    ),
    row(
        NOT_SRUN,
        &["output-directory"],
        One,
        Means::Each(rewrite::output_directory),
    ),
    row(
        NOT_SRUN,
        &["outfile-pattern", "outfile"],
        One,
        Means::Each(rewrite::outfile_pattern),
    ),
    row(
        NOT_SRUN,
        &["errfile-pattern", "errfile"],
        One,
        Means::Each(rewrite::errfile_pattern),
    ),
    row(
        MPI,
        &["output"],
        One,
        Means::Each(rewrite::output_directives),
    ),
    row(
        SRUN,
        &["o", "output"],
        One,
        Means::Each(rewrite::slurm_stdout),
    ),
    row(
        PLAIN,
        &["output"],
        One,
        Means::Conflict(&[
            meaning(
                "mpirun",
                "directives such as `tag` and `file=`",
                "`--label`, `--timestamps`, `--output-file PATTERN`",
            ),
            meaning("srun", "a file for stdout", "`--output-file PATTERN`"),
        ]),
    ),
    row(
        SRUN,
        &["e", "error"],
        One,
        Means::Each(rewrite::slurm_stderr),
    ),
    row(NOT_SRUN, &["error"], One, Means::Same("error-file")),
    row(
        SRUN,
        &["i", "input"],
        One,
        Means::Each(rewrite::slurm_input),
    ),
    row(NOT_SRUN, &["i"], One, Means::Each(rewrite::slurm_input)),
    row(
        SRUN,
        &["u", "unbuffered"],
        Nothing,
        Means::Fixed("line-buffered", "yes"),
    ),
    row(
        NOT_SRUN,
        &["s"],
        One,
        Means::Conflict(&[
            meaning(
                "mpirun of Open MPI",
                "copy the program to the nodes",
                "not needed",
            ),
            meaning(
                "mpiexec of Intel MPI",
                "the ranks that read stdin",
                "`--stdin RANK`",
            ),
        ]),
    ),
    row(SRUN, &["s", "oversubscribe"], Nothing, Means::Ignored),
    row(
        NOT_SRUN,
        &["prepend-pattern"],
        One,
        Means::Refused(NotOffered::PrependPattern),
    ),
    row(NOT_SRUN, &["xml"], Nothing, Means::Refused(NotOffered::Xml)),
    row(NOT_SRUN, &["xterm"], One, Means::Refused(NotOffered::Xterm)),
    row(SRUN, &["Q"], Nothing, Means::Plain("quiet")),
    row(ALL, &["pty"], Number, Means::Same("pty")),
    // Life of the job.
    row(SRUN, &["t", "time"], One, Means::Each(rewrite::slurm_time)),
    row(SRUN, &["K"], Attached, Means::Same("kill-on-bad-exit")),
    row(
        NOT_SRUN,
        &["K"],
        Nothing,
        Means::Fixed("kill-on-bad-exit", "yes"),
    ),
    row(
        NOT_SRUN,
        &["disable-auto-cleanup"],
        Nothing,
        Means::Fixed("kill-on-bad-exit", "no"),
    ),
    row(
        NOT_SRUN,
        &["enable-recovery", "continuous"],
        Nothing,
        Means::Fixed("kill-on-bad-exit", "no"),
    ),
    // Debuggers.
    row(
        NOT_SRUN,
        &["tv", "debug", "gdb", "gdba", "ddt", "totalview"],
        Nothing,
        Means::Refused(NotOffered::Debugger),
    ),
    row(
        NOT_SRUN,
        &["gtool", "gtoolfile", "debugger"],
        One,
        Means::Refused(NotOffered::Debugger),
    ),
    // How daemons get onto nodes.
    row(NOT_SRUN, &["launcher"], One, Means::Same("bootstrap")),
    row(
        NOT_SRUN,
        &[
            "launcher-exec",
            "bootstrap-exec",
            "rmk",
            "iface",
            "localhost",
            "nameserver",
            "order-nodes",
            "launch-agent",
        ],
        One,
        Means::Ignored,
    ),
    // Tuning, which scripts are full of.
    row(
        ALL,
        &["mca", "omca", "gmca", "prtemca", "gprtemca", "orte-mca"],
        Pair,
        Means::Each(rewrite::mca),
    ),
    row(ALL, &["pmixmca", "gpmixmca"], Pair, Means::Ignored),
    row(
        NOT_SRUN,
        &["with-ft"],
        One,
        Means::Each(rewrite::fault_tolerance),
    ),
    row(
        NOT_SRUN,
        &[
            "prefix",
            "pmix-prefix",
            "app-pmix-prefix",
            "tune",
            "am",
            "preload-files",
            "pset",
            "report-pid",
            "report-uri",
            "spawn-timeout",
            "forward-signals",
            "keepalive",
            "singleton",
            "tmpdir",
            "max-vm-size",
            "initial-errhandler",
            "memory-alloc-kinds",
            "topolib",
            "membind",
            "demux",
            "gpus-per-proc",
            "usize",
        ],
        One,
        Means::Ignored,
    ),
    row(
        NOT_SRUN,
        &[
            "noprefix",
            "no-app-prefix",
            "preload-binary",
            "show-progress",
            "report-state-on-timeout",
            "report-child-jobs-separately",
            "leave-session-attached",
            "debug-daemons",
            "debug-daemons-file",
            "hetero-nodes",
            "set-sid",
            "enable-x",
            "disable-x",
            "disable-hostname-propagation",
            "hybrid-hosts",
            "pmi-port",
            "print-all-exitcodes",
            "profile",
        ],
        Nothing,
        Means::Ignored,
    ),
    row(
        NOT_SRUN,
        &["get-stack-traces"],
        Nothing,
        Means::Fixed("on-hang", "report"),
    ),
    // Nobody needs it here: running as root is the user's own decision.
    row(ALL, &["allow-run-as-root"], Nothing, Means::Silent),
    // What only a batch system can use.
    row(
        SRUN,
        &[
            "p",
            "partition",
            "A",
            "account",
            "J",
            "job-name",
            "W",
            "wait",
            "q",
            "qos",
            "C",
            "constraint",
            "d",
            "dependency",
            "G",
            "gpus",
            "L",
            "licenses",
            "M",
            "clusters",
            "S",
            "core-spec",
            "T",
            "threads",
            "B",
            "extra-node-info",
            "mpi",
            "mem",
            "mem-per-cpu",
            "mem-bind",
            "mem_bind",
            "gres",
            "gpus-per-task",
            "gpus-per-node",
            "gpu-bind",
            "hint",
            "jobid",
            "reservation",
            "comment",
            "threads-per-core",
            "signal",
            "propagate",
            "open-mode",
            "prolog",
            "epilog",
            "task-prolog",
            "task-epilog",
            "network",
            "nice",
            "profile",
            "switches",
            "tmp",
            "slurmd-debug",
            "deadline",
            "container",
            "het-group",
        ],
        One,
        Means::Ignored,
    ),
    row(
        SRUN,
        &[
            "H",
            "hold",
            "overlap",
            "exact",
            "k",
            "no-kill",
            "X",
            "disable-status",
            "Z",
            "no-allocate",
            "E",
            "preserve-env",
            "quit-on-interrupt",
            "contiguous",
            "spread-job",
            "use-min-nodes",
            "reboot",
            "whole",
            "interactive",
        ],
        Nothing,
        Means::Ignored,
    ),
    row(
        SRUN,
        &["exclusive", "I", "immediate", "mincpus", "bcast"],
        Attached,
        Means::Ignored,
    ),
];
