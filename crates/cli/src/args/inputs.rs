//! Input variables: environment variables in which users set options of other launchers.
//!
//! Each variable stands for an option of the launcher that reads it, and goes through the same table. It is thus honored or
//! refused like the option, and named in the note if the option has no effect. The command line overrides variables,
//! whatever the order; variables override settings.
//!
//! `srun` reads `SLURM_*` and `SRUN_*`; `mpiexec` and `mpirun` read `OMPI_MCA_*`, `PRTE_MCA_*`, `HYDRA_*` and `MPIEXEC_*`.
//! `rally run` has variables of its own, and reads none of these.

use std::{
    ffi::{OsStr, OsString},
    num::NonZeroU8,
    os::unix::ffi::OsStrExt,
};

use self::Meaning::{Flag, InAllocation, NoEffect, SameAs, Unsupported};
use super::{
    Error, Personality, RunLine, RunOptions, World,
    compat::{Canonical, Native, Segment, Variable, translate_variable},
    environment::is_of_an_enclosing_launcher,
    read_segments,
};
use crate::values;

/// The meaning of a variable.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Meaning {
    /// This option, with the variable's value.
    SameAs(&'static str),
    /// This option, which has no value. It is set if the variable is empty, `yes` or a number other than 0.
    Flag(&'static str),
    /// This option, but only outside of an allocation. Within one the variable describes what was already granted.
    InAllocation(&'static str),
    /// No effect: it requests our only behaviour, or is read elsewhere.
    NoEffect,
    /// Has a meaning only for the other launcher, and stands for no option: it is named in the note.
    Unsupported,
}

/// The variables that `srun` of Slurm 22.05 reads, in the order of its manual page. If several stand for one option, the
/// last one counts.
const SRUN: &[(&str, Meaning)] = &[
    ("PMI_FANOUT", NoEffect),
    ("PMI_FANOUT_OFF_HOST", NoEffect),
    ("PMI_TIME", NoEffect),
    ("SLURM_ACCOUNT", InAllocation("account")),
    ("SLURM_ACCTG_FREQ", InAllocation("acctg-freq")),
    ("SLURM_BCAST", SameAs("bcast")),
    ("SLURM_BCAST_EXCLUDE", SameAs("bcast-exclude")),
    ("SLURM_BURST_BUFFER", InAllocation("bb")),
    ("SLURM_CLUSTERS", InAllocation("clusters")),
    ("SLURM_COMPRESS", SameAs("compress")),
    // Slurm's own configuration file, which has nothing for us.
    ("SLURM_CONF", NoEffect),
    ("SLURM_CONSTRAINT", InAllocation("constraint")),
    ("SLURM_CORE_SPEC", InAllocation("core-spec")),
    ("SLURM_CPU_BIND", SameAs("cpu-bind")),
    ("SLURM_CPU_FREQ_REQ", SameAs("cpu-freq")),
    ("SLURM_CPUS_PER_GPU", SameAs("cpus-per-gpu")),
    ("SRUN_CPUS_PER_TASK", SameAs("cpus-per-task")),
    ("SLURM_DEBUG", Flag("verbose")),
    ("SLURM_DEBUG_FLAGS", Unsupported),
    ("SLURM_DELAY_BOOT", InAllocation("delay-boot")),
    ("SLURM_DEPENDENCY", InAllocation("dependency")),
    ("SLURM_DISABLE_STATUS", Flag("disable-status")),
    // All procs are on one node, so the size of blocks has no effect.
    ("SLURM_DIST_PLANESIZE", NoEffect),
    ("SLURM_DISTRIBUTION", SameAs("distribution")),
    ("SLURM_EPILOG", SameAs("epilog")),
    ("SLURM_EXACT", Flag("exact")),
    ("SLURM_EXCLUSIVE", InAllocation("exclusive")),
    // Read by `exit_error`.
    ("SLURM_EXIT_ERROR", NoEffect),
    // Jobs never wait for resources.
    ("SLURM_EXIT_IMMEDIATE", NoEffect),
    ("SLURM_EXPORT_ENV", SameAs("export")),
    ("SRUN_EXPORT_ENV", SameAs("export")),
    ("SLURM_GPU_BIND", SameAs("gpu-bind")),
    ("SLURM_GPU_FREQ", SameAs("gpu-freq")),
    ("SLURM_GPUS", InAllocation("gpus")),
    ("SLURM_GPUS_PER_NODE", InAllocation("gpus-per-node")),
    ("SLURM_GPUS_PER_TASK", SameAs("gpus-per-task")),
    ("SLURM_GRES", InAllocation("gres")),
    ("SLURM_STEP_GRES", SameAs("gres")),
    ("SLURM_GRES_FLAGS", InAllocation("gres-flags")),
    ("SLURM_HINT", SameAs("hint")),
    ("SLURM_IMMEDIATE", InAllocation("immediate")),
    ("SLURM_JOB_ID", NoEffect),
    ("SLURM_JOB_NAME", InAllocation("job-name")),
    // Slurm sets these in every allocation. The nodes that stay idle are reported when the allocation is read.
    ("SLURM_JOB_NUM_NODES", InAllocation("nodes")),
    ("SLURM_NNODES", InAllocation("nodes")),
    ("SLURM_KILL_BAD_EXIT", SameAs("kill-on-bad-exit")),
    ("SLURM_LABELIO", Flag("label")),
    ("SLURM_MEM_BIND", SameAs("mem-bind")),
    ("SLURM_MEM_PER_CPU", InAllocation("mem-per-cpu")),
    ("SLURM_MEM_PER_GPU", InAllocation("mem-per-gpu")),
    ("SLURM_MEM_PER_NODE", InAllocation("mem")),
    ("SLURM_MPI_TYPE", SameAs("mpi")),
    ("SLURM_NETWORK", InAllocation("network")),
    ("SLURM_NO_KILL", InAllocation("no-kill")),
    ("SLURM_NPROCS", SameAs("ntasks")),
    ("SLURM_NTASKS", SameAs("ntasks")),
    ("SLURM_NTASKS_PER_CORE", SameAs("ntasks-per-core")),
    ("SLURM_NTASKS_PER_GPU", SameAs("ntasks-per-gpu")),
    ("SLURM_NTASKS_PER_NODE", SameAs("ntasks-per-node")),
    ("SLURM_NTASKS_PER_SOCKET", SameAs("ntasks-per-socket")),
    ("SLURM_OPEN_MODE", SameAs("open-mode")),
    ("SLURM_OVERCOMMIT", Flag("overcommit")),
    ("SLURM_OVERLAP", Flag("overlap")),
    ("SLURM_PARTITION", InAllocation("partition")),
    ("SLURM_PMI_KVS_NO_DUP_KEYS", NoEffect),
    ("SLURM_POWER", InAllocation("power")),
    ("SLURM_PROFILE", InAllocation("profile")),
    ("SLURM_PROLOG", SameAs("prolog")),
    ("SLURM_QOS", InAllocation("qos")),
    ("SLURM_REMOTE_CWD", SameAs("chdir")),
    ("SLURM_WORKING_DIR", SameAs("chdir")),
    ("SLURM_REQ_SWITCH", InAllocation("switches")),
    ("SLURM_RESERVATION", InAllocation("reservation")),
    ("SLURM_RESV_PORTS", SameAs("resv-ports")),
    ("SLURM_SEND_LIBS", SameAs("send-libs")),
    ("SLURM_SIGNAL", SameAs("signal")),
    ("SLURM_SPREAD_JOB", InAllocation("spread-job")),
    // Our messages always merge ranks that ended alike.
    ("SLURM_SRUN_REDUCE_TASK_EXIT_MSG", NoEffect),
    ("SLURM_STDERRMODE", SameAs("error")),
    ("SLURM_STDINMODE", SameAs("input")),
    ("SLURM_STDOUTMODE", SameAs("output")),
    ("SLURM_STEP_KILLED_MSG_NODE_ID", NoEffect),
    ("SLURM_TASK_EPILOG", SameAs("task-epilog")),
    ("SLURM_TASK_PROLOG", SameAs("task-prolog")),
    // All programs are always searched for before the first one is started.
    ("SLURM_TEST_EXEC", NoEffect),
    ("SLURM_THREAD_SPEC", InAllocation("thread-spec")),
    ("SLURM_THREADS", SameAs("threads")),
    ("SLURM_THREADS_PER_CORE", SameAs("threads-per-core")),
    ("SLURM_TIMELIMIT", SameAs("time")),
    // A list of nodes, accepted like a host file: it may name only this node.
    ("SLURM_HOSTFILE", SameAs("nodefile")),
    // Set in batch scripts together with the umask itself, which ranks inherit anyway.
    ("SLURM_UMASK", NoEffect),
    ("SLURM_UNBUFFEREDIO", Flag("unbuffered")),
    ("SLURM_USE_MIN_NODES", InAllocation("use-min-nodes")),
    ("SLURM_WAIT", SameAs("wait")),
    ("SLURM_WAIT4SWITCH", InAllocation("switches")),
    ("SLURM_WCKEY", InAllocation("wckey")),
    ("SLURMD_DEBUG", SameAs("slurmd-debug")),
    ("SRUN_CONTAINER", SameAs("container")),
];

/// The variables of Hydra, its helper programs, and the other process managers of MPICH.
const HYDRA: &[(&str, Meaning)] = &[
    ("HYDRA_HOST_FILE", SameAs("f")),
    ("HYDRA_BINDING", SameAs("bind-to")),
    ("HYDRA_MAPPING", SameAs("map-by")),
    ("HYDRA_MEMBIND", SameAs("membind")),
    // The whole environment is inherited anyway.
    ("HYDRA_ENV", NoEffect),
    ("HYDRA_DEBUG", Flag("verbose")),
    ("HYDRA_TOPO_DEBUG", Flag("report-bindings")),
    ("HYDRA_CONFIG_FILE", Unsupported),
    ("HYDRA_LAUNCHER", SameAs("launcher")),
    ("HYDRA_BOOTSTRAP", SameAs("launcher")),
    ("HYDRA_LAUNCHER_EXEC", SameAs("launcher-exec")),
    ("HYDRA_BOOTSTRAP_EXEC", SameAs("launcher-exec")),
    ("HYDRA_LAUNCHER_EXTRA_ARGS", Unsupported),
    ("HYDRA_LAUNCHER_AUTOFORK", Unsupported),
    ("HYDRA_LAUNCHER_SSH_ENABLE_WARNINGS", Unsupported),
    ("HYDRA_LAUNCHER_SSH_LIMIT", Unsupported),
    ("HYDRA_LAUNCHER_SSH_LIMIT_TIME", Unsupported),
    ("HYDRA_PROXY_RETRY_COUNT", Unsupported),
    ("HYDRA_HOSTNAME_PROPAGATION", Unsupported),
    ("HYDRA_IFACE", Unsupported),
    ("HYDRA_RMK", Unsupported),
    ("HYDRA_TOPOLIB", Unsupported),
    ("HYDRA_USE_LOCALHOST", Unsupported),
    ("HYDRA_DEMUX", Unsupported),
    // Variables by which the programs of Hydra communicate.
    ("HYDRA_USER_PROVIDED_BINDING", NoEffect),
    ("MPIEXEC_PORTRANGE", Unsupported),
    ("MPIEXEC_PORT_RANGE", Unsupported),
    ("MPIEXEC_TIMEOUT", NoEffect),
    ("MPIEXEC_UNIVERSE_SIZE", SameAs("usize")),
    ("MPIEXEC_PREFIX_DEFAULT", Flag("label")),
];

/// The prefixes of Hydra's variables: those missing from the table are named in the note.
const HYDRA_PREFIXES: [&str; 2] = ["HYDRA_", "MPIEXEC_"];
/// The prefixes of variables that each set an MCA parameter, with the equivalent option.
const MCA_PREFIXES: [(&str, &str); 2] = [("OMPI_MCA_", "mca"), ("PRTE_MCA_", "prtemca")];

/// The options that the variables of an environment stand for.
#[derive(Debug, Default)]
struct Said {
    options: Vec<Canonical>,
    ignored: Vec<String>,
}

/// Returns the command line with the options from input variables in front. `None` if there are none.
///
/// # Errors
///
/// A variable whose value its option does not accept, or whose option is refused.
pub(super) fn with_variables(line: &RunLine, world: &World) -> Result<Option<RunLine>, Error> {
    let mut said = match line.personality {
        Personality::Rally => return Ok(None),
        Personality::Mpiexec | Personality::Mpirun => of_mpi(line.personality, world)?,
        Personality::Srun => of_table(SRUN, Personality::Srun, world)?,
    };
    // On one node these only limit the number of procs, so an explicit number replaces them.
    let has_number = line.apps.iter().any(|app| says(&app.typed, "np"));
    if has_number || said.options.iter().any(|option| option.flag == "np") {
        said.options.retain(|option| option.flag != "per-node");
    }
    // The number counts the procs of the whole job, but with several apps each has its own number.
    if line.apps.len() > 1 {
        said.options.retain(|option| option.flag != "np");
    }
    // If several variables stand for `--export`, only the last one counts, with all its rules.
    let export = said.options.iter().rev();
    let export = export
        .map(|option| option.typed.clone())
        .find(|name| EXPORTS.contains(&name.as_str()));
    said.options.retain(|option| {
        !EXPORTS.contains(&option.typed.as_str()) || Some(&option.typed) == export.as_ref()
    });
    if said.options.is_empty() && said.ignored.is_empty() {
        return Ok(None);
    }
    with_options(line, &said.options, said.ignored).map(Some)
}

fn says(options: &[Canonical], flag: &str) -> bool {
    options.iter().any(|option| option.flag == flag)
}

/// The variables of srun that stand for `--export`.
const EXPORTS: [&str; 2] = ["SLURM_EXPORT_ENV", "SRUN_EXPORT_ENV"];

fn is_qualifier(option: &Canonical) -> bool {
    let text = option.value.as_ref();
    text.is_some_and(|text| text.as_bytes().starts_with(b":"))
}

/// Returns true if an option is overridden because a stronger source sets another option on the same subject. clap handles
/// repeated options, and those that always exclude each other.
fn is_void(weaker: &Canonical, personality: Personality, says: impl Fn(&str) -> bool) -> bool {
    let others: &[&str] = match weaker.flag.as_str() {
        // Both name the nodes.
        "hostfile" => &["host"],
        // For srun, one option sets both the input and the ranks that read it.
        "stdin" | "input" | "slurm-input" => &["stdin", "input", "slurm-input"],
        "gpus" | "gpus-per-proc" => &["gpus", "gpus-per-proc"],
        "verbose" => &["quiet"],
        // Qualifiers begin with a colon, and combine with every policy. For srun, such a number is no policy.
        "map-by" if personality != Personality::Srun && !is_qualifier(weaker) => {
            &["per-node", "deal"]
        }
        // Placement and binding of a hint belong together.
        "map-by" | "bind-to" if weaker.typed == "SLURM_HINT" => &["bind-to", "bind-list"],
        "inherit-env" | "set-env" if EXPORTS.contains(&weaker.typed.as_str()) => &["inherit-env"],
        _ => &[],
    };
    others.iter().any(|other| says(other))
}

/// Inserts options before those of a command line, which override them.
pub(super) fn with_options(
    line: &RunLine,
    options: &[Canonical],
    ignored: Vec<String>,
) -> Result<RunLine, Error> {
    let mut defined = RunOptions::define();
    let (mut job, app): (Vec<Canonical>, Vec<Canonical>) = options
        .iter()
        .cloned()
        .partition(|option| defined.in_job(&option.flag).is_some());
    job.retain(|option| {
        !is_void(option, line.personality, |flag| {
            let mut apps = line.apps.iter();
            says(&line.job.typed, flag) || apps.any(|app| says(&app.typed, flag))
        })
    });
    let segments = line.apps.iter().enumerate().map(|(position, own)| {
        let first = position == 0;
        let of_job = job.iter().chain(&line.job.typed).filter(|_| first);
        let stronger = |flag: &str| says(&own.typed, flag) || says(&line.job.typed, flag);
        let weaker = app
            .iter()
            .filter(|option| !is_void(option, line.personality, stronger));
        Segment {
            options: of_job.chain(weaker).chain(&own.typed).cloned().collect(),
            program: own.program.clone(),
        }
    });
    let ignored = line.ignored.iter().cloned().chain(ignored).collect();
    let segments = segments.collect();
    read_segments(&mut defined, segments, ignored, line.personality)
}

/// Returns the options that the variables of a table stand for.
fn of_table(
    table: &[(&str, Meaning)],
    personality: Personality,
    world: &World,
) -> Result<Said, Error> {
    let native = Native::of_run();
    let mut said = Said::default();
    let is_in_allocation = world.variable("SLURM_JOB_ID").is_some();
    for (name, meaning) in table {
        let Some(value) = world.variables.get(OsString::from(*name).as_os_str()) else {
            continue;
        };
        let (option, values) = match meaning {
            NoEffect => continue,
            InAllocation(_) if is_in_allocation => continue,
            Unsupported => {
                said.ignored.push((*name).to_owned());
                continue;
            }
            Flag(option) => match value.to_str() {
                Some(text) if is_yes(text) => (option, Vec::new()),
                _ => continue,
            },
            SameAs(_) | InAllocation(_) if value.is_empty() => continue,
            SameAs(option) | InAllocation(option) => (option, vec![value.clone()]),
        };
        let variable = Variable {
            name,
            option,
            values,
        };
        let translation = translate_variable(variable, personality, &native)?;
        said.options.extend(translation.options);
        said.ignored.extend(translation.ignored);
    }
    Ok(said)
}

/// Returns the options that the variables of Open MPI, PRRTE and Hydra stand for.
fn of_mpi(personality: Personality, world: &World) -> Result<Said, Error> {
    let mut said = of_table(HYDRA, personality, world)?;
    let native = Native::of_run();
    for (name, value) in &world.variables {
        let Some(name) = name.to_str() else { continue };
        if is_of_an_enclosing_launcher(name) {
            continue;
        }
        let is_unknown = HYDRA_PREFIXES.iter().any(|prefix| name.starts_with(prefix))
            && HYDRA.iter().all(|(known, _)| *known != name);
        if is_unknown {
            said.ignored.push(name.to_owned());
        }
        let parameter = MCA_PREFIXES
            .iter()
            .find_map(|(prefix, option)| Some((name.strip_prefix(prefix)?, *option)));
        let Some((parameter, option)) = parameter else {
            continue;
        };
        let variable = Variable {
            name,
            option,
            values: vec![parameter.into(), value.clone()],
        };
        let translation = translate_variable(variable, personality, &native)?;
        // Parameters of the MPI library reach the ranks with the rest of the environment.
        let ours = translation.options.into_iter();
        said.options
            .extend(ours.filter(|option| option.flag != "set-env"));
        said.ignored.extend(translation.ignored);
    }
    Ok(said)
}

/// The variable with the exit code for srun's own errors.
const EXIT_ERROR: &str = "SLURM_EXIT_ERROR";

/// Returns the exit code for srun's own errors. As in srun, a value that is no exit code of a failure is ignored.
pub(super) fn exit_error(personality: Personality, world: &World) -> Option<NonZeroU8> {
    let value = world.variables.get(OsStr::new(EXIT_ERROR));
    let value = value.filter(|_| personality == Personality::Srun)?;
    values::exit_code(value.to_str()?).ok()
}

/// Returns the variable of [`exit_error`] with its value, if the value has no effect.
pub(super) fn void_exit_error(personality: Personality, world: &World) -> Option<String> {
    let value = world.variables.get(OsStr::new(EXIT_ERROR))?;
    let is_void = personality == Personality::Srun && exit_error(personality, world).is_none();
    is_void.then(|| format!("{EXIT_ERROR}={}", value.display()))
}

/// Returns true if `srun` reads this value as "yes", in a variable for an option without a value.
fn is_yes(text: &str) -> bool {
    match text.parse::<i64>() {
        Ok(number) => number != 0,
        Err(_) => matches!(text, "" | "yes"),
    }
}

#[cfg(test)]
pub(super) fn check_tables() {
    let native = Native::of_run();
    let tables = [(SRUN, Personality::Srun), (HYDRA, Personality::Mpiexec)];
    for (table, personality) in tables {
        for (name, meaning) in table {
            let option = match meaning {
                SameAs(option) | Flag(option) | InAllocation(option) => option,
                NoEffect | Unsupported => continue,
            };
            assert!(
                native.knows(option, personality),
                "{name} stands for `{option}`, which is not known"
            );
        }
    }
}
