//! Input variables of other launchers.

mod srun;
mod strength;

use dvm::place::Oversubscribe;

use super::*;

/// The environment of a batch script of `#SBATCH -n 3`.
const BATCH: &str = "SLURM_JOB_ID=7 SLURM_JOB_NODELIST=node7 SLURM_JOB_NUM_NODES=1 SLURM_NNODES=1 \
     SLURM_NTASKS=3 SLURM_NPROCS=3 SLURM_TASKS_PER_NODE=3 SLURM_JOB_CPUS_PER_NODE=4 SLURM_JOB_NAME=x \
     SLURM_MEM_PER_NODE=100 SLURMD_NODENAME=node7 SLURM_CONF=/x SLURM_UMASK=0022";

fn place(variables: &str) -> Place {
    variables
        .split_whitespace()
        .filter_map(|word| word.split_once('='))
        .fold(Place::new(), |place, (name, value)| {
            place.variable(name, value)
        })
}

/// Returns the parts of a job that variables change.
fn shown(place: &Place, line: &str) -> String {
    let run = match place.request(line) {
        Ok(Request::Run(run)) => run,
        Ok(other) => return format!("{other:?}"),
        Err(error) => return format!("error: {error}"),
    };
    let mut parts = Vec::new();
    for app in &run.spec.placement.apps {
        let count = app
            .count
            .map_or_else(|| "-".to_owned(), |count| count.to_string());
        parts.push(format!("n={count}"));
    }
    for node in &run.allocation.nodes {
        if let Slots::Explicit(slots) = node.slots {
            parts.push(format!("slots={slots}"));
        }
    }
    let request = &run.spec.placement;
    parts.extend(request.map_by.as_ref().map(|map| format!("map={map}")));
    parts.extend(request.rank_by.map(|rank| format!("rank={rank}")));
    parts.extend(request.bind_to.map(|bind| format!("bind={bind}")));
    if request.bind_list.is_some() {
        parts.push("list".to_owned());
    }
    if request.oversubscribe != Oversubscribe::WhereImplicit {
        parts.push(format!("over={:?}", request.oversubscribe));
    }
    let limit = run.spec.end.time_limit;
    parts.extend(limit.map(|limit| format!("limit={}", limit.as_secs())));
    if run.spec.end.on_failure == OnFailure::Continue {
        parts.push("continue".to_owned());
    }
    if run.front.label != Label::None {
        parts.push("label".to_owned());
    }
    if run.front.verbosity == Verbosity::Verbose {
        parts.push("verbose".to_owned());
    }
    if run.spec.stdio.stdout != Destination::Forward {
        parts.push(format!("stdout={:?}", run.spec.stdio.stdout));
    }
    if run.spec.stdio.stderr != Destination::Forward {
        parts.push(format!("stderr={:?}", run.spec.stdio.stderr));
    }
    if let Show::RunAndReport(reports) = &run.show {
        parts.push(format!("show={reports:?}"));
    }
    parts.extend(run.notices.iter().map(|notice| format!("[{notice}]")));
    parts.join(" ")
}

fn check(cases: &[(&str, &str, &str)]) {
    for (variables, line, expected) in cases {
        assert_eq!(
            shown(&place(variables), line),
            *expected,
            "{variables}: {line}"
        );
    }
}

#[test]
fn srun_does_what_the_batch_job_asked_for() {
    let batch = |more: &str| format!("{BATCH} {more}");
    let cases: &[(&str, &str, &str)] = &[
        ("", "srun a", "n=3 slots=4"),
        ("", "srun -n 2 a", "n=2 slots=4"),
        ("", "mpirun a", "n=- slots=3"),
        ("", "rally run a", "n=- slots=3"),
        ("", "mpiexec -n 4 a", "n=4 slots=3 over=Allow"),
        (
            "",
            "mpiexec -n 4 -hosts localhost a",
            "n=4 slots=3 over=Allow",
        ),
    ];
    for (more, line, expected) in cases {
        assert_eq!(
            shown(&place(&batch(more)), line),
            *expected,
            "{more}: {line}"
        );
    }
}

#[test]
#[expect(
    clippy::too_many_lines,
    reason = "a table of cases, and what is said of them"
)]
fn variables_of_srun() {
    check(&[
        ("SLURM_NTASKS=3", "srun a", "n=3"),
        ("SLURM_NTASKS=3", "srun -n 2 a", "n=2"),
        ("SLURM_NTASKS=3", "srun a : b", "n=1 n=1"),
        (
            "SLURM_NTASKS=x",
            "srun a",
            "error: `SLURM_NTASKS` cannot be `x`: it is not a whole number",
        ),
        ("SLURM_NTASKS_PER_NODE=2", "srun a", "n=2"),
        (
            "SLURM_NTASKS_PER_NODE=8 SLURM_DISTRIBUTION=block:cyclic",
            "srun a",
            "n=8 map=package",
        ),
        ("SLURM_NTASKS_PER_NODE=2 SLURM_NTASKS=4", "srun a", "n=4"),
        (
            "SLURM_NNODES=2",
            "srun a",
            "error: `SLURM_NNODES 2` needs 2 nodes, but the job has only `node7.cluster`",
        ),
        ("SLURM_NNODES=2", "srun -N 1 a", "n=1"),
        (
            "SLURM_JOB_ID=9 SLURM_NNODES=2 SLURM_NTASKS=4",
            "srun a",
            "n=4",
        ),
        ("SRUN_CPUS_PER_TASK=2", "srun a", "n=1 map=:PE=2"),
        (
            "SRUN_CPUS_PER_TASK=2",
            "srun -c 3 -m cyclic a",
            "n=1 map=node:PE=3",
        ),
        ("SLURM_CPU_BIND=cores", "srun a", "n=1 bind=core"),
        (
            "SLURM_CPU_BIND=cores",
            "srun --cpu-bind=none a",
            "n=1 bind=none",
        ),
        ("SLURM_DISTRIBUTION=cyclic", "srun a", "n=1 map=node"),
        ("SLURM_KILL_BAD_EXIT=0", "srun a", "n=1 continue"),
        ("SLURM_KILL_BAD_EXIT=0", "srun -K a", "n=1"),
        ("SLURM_LABELIO=1", "srun a", "n=1 label"),
        ("SLURM_LABELIO=", "srun a", "n=1 label"),
        ("SLURM_LABELIO=0", "srun a", "n=1"),
        ("SLURM_OVERCOMMIT=1", "srun a", "n=1 over=Allow"),
        ("SLURM_DEBUG=1", "srun a", "n=1 verbose"),
        ("SLURM_TIMELIMIT=2", "srun a", "n=1 limit=120"),
        ("SLURM_TIMELIMIT=2", "srun -t 1 a", "n=1 limit=60"),
        (
            "SLURM_STDOUTMODE=none",
            "srun a",
            "n=1 stdout=Discard stderr=Discard",
        ),
        ("SLURM_PARTITION=debug SLURM_JOB_ID=7", "srun a", "n=1"),
        (
            "SLURM_PARTITION=debug",
            "srun a",
            "n=1 [ignored, since it has no effect here: `SLURM_PARTITION`]",
        ),
        ("SLURM_HINT=nomultithread", "srun a", "n=1 bind=core"),
        (
            "SLURM_HINT=Compute_Bound,NoMultithread",
            "srun a",
            "n=1 bind=core",
        ),
        (
            "SLURM_HINT=memory_bound",
            "srun --hint=nomultithread -n 8 a",
            "n=8 bind=core",
        ),
        (
            "SLURM_HINT=memory_bound",
            "srun --cpu-bind=none -n 8 a",
            "n=8 bind=none",
        ),
        (
            "",
            "srun --hint=memory_bound --hint=compute_bound -n 8 a",
            "n=8 bind=core",
        ),
        (
            "SLURM_EXIT_ERROR=0",
            "srun a",
            "n=1 [ignored, since it has no effect here: `SLURM_EXIT_ERROR=0`]",
        ),
        (
            "SLURM_HINT=memory_bound",
            "srun -m block --cpu-bind=none a",
            "n=1 map=slot bind=none",
        ),
        (
            "SLURM_CPU_BIND=map_cpu:1",
            "srun --hint=compute_bound a",
            "n=1 bind=core",
        ),
        ("SLURM_HOSTFILE=missing", "srun -w localhost a", "n=1"),
        (
            "SLURM_HOSTFILE=missing",
            "srun a",
            "error: cannot read the host file `missing`: No such file or directory (os error 2)",
        ),
        ("SLURM_NTASKS=3", "mpirun a", "n=-"),
        ("SLURM_NTASKS=3", "rally run a", "n=-"),
    ]);
}

#[test]
fn a_number_of_procs_for_each_node_is_no_policy_of_srun() {
    check(&[
        (
            "",
            "srun -n 8 --ntasks-per-node=8 -m block:cyclic a",
            "n=8 map=package",
        ),
        (
            "",
            "srun -n 3 --ntasks-per-node=8 -m cyclic -c 2 a",
            "n=3 map=node:PE=2",
        ),
        ("", "srun --ntasks-per-node=8 -m plane=2 a", "n=8 map=slot"),
        ("", "srun --ntasks-per-node=2 a : -n 3 b", "n=2 n=3"),
        (
            "SLURM_DISTRIBUTION=block:cyclic",
            "srun --ntasks-per-node=8 --cpu-bind=cores a",
            "n=8 map=package bind=core",
        ),
        (
            "",
            "mpirun -n 2 --ntasks-per-node 2 a",
            "n=2 map=ppr:2:node",
        ),
        (
            "",
            "srun -n 8 --ntasks-per-node=4 -m block:cyclic a",
            "error: `-n 8` and `--ntasks-per-node 4` cannot be used together",
        ),
        (
            "SLURM_NTASKS=8",
            "srun --ntasks-per-node=4 a",
            "error: `SLURM_NTASKS 8` and `--ntasks-per-node 4` cannot be used together",
        ),
    ]);
    let programs = Place::new().file("f", "* ./a\n");
    let line = "srun --ntasks-per-node=3 --cpu-bind=rank --multi-prog f";
    let expected = shown(&Place::new(), "srun -n 3 --cpu-bind=rank a");
    assert_eq!(shown(&programs, line), expected);
    let limited = "srun -n 3 --ntasks-per-node=4 --cpu-bind=rank a";
    assert_eq!(shown(&programs, limited), expected);
}

#[test]
fn output_goes_where_the_command_line_says_last() {
    const NONE: &str = "SLURM_STDOUTMODE=none";
    const ERR: &str = "SLURM_STDERRMODE=none";
    let (o, e) = (
        r#"stdout=File(Pattern("o"))"#,
        r#"stderr=File(Pattern("e"))"#,
    );
    let cases = [
        (NONE, "--output-file o", o.to_owned()),
        (NONE, "--error-file e", format!("stdout=Discard {e}")),
        (
            NONE,
            "-o 0",
            "stdout=ForwardOnly(Rank(0)) stderr=ForwardOnly(Rank(0))".to_owned(),
        ),
        (ERR, "--error-file e", e.to_owned()),
        (ERR, "--output-file o", format!("{o} stderr=Discard")),
        (ERR, "--merge-stderr", "stderr=WithStdout".to_owned()),
        (ERR, "-e 0", "stderr=ForwardOnly(Rank(0))".to_owned()),
        ("", "-o none --output-file o", o.to_owned()),
        (
            "",
            "--output-file o -o none",
            "stdout=Discard stderr=Discard".to_owned(),
        ),
        ("", "-e none --error-file e", e.to_owned()),
        ("", "--error-file e -e none", "stderr=Discard".to_owned()),
        ("", "--merge-stderr -e none", "stderr=Discard".to_owned()),
        ("", "-e none --merge-stderr", "stderr=WithStdout".to_owned()),
    ];
    for (variables, options, expected) in cases {
        let line = format!("srun {options} a");
        let found = shown(&place(variables), &line);
        assert_eq!(found, format!("n=1 {expected}"), "{variables}: {line}");
    }
}

#[test]
fn input_comes_from_where_the_command_line_says() {
    let of = |mode: &str, line: &str| {
        let place = Place::new().file("in", "").file("other", "");
        let place = place.variable("SLURM_STDINMODE", mode);
        let run = place.run(line);
        let input = match &run.front.input {
            InputSource::File(path) => path.file_name().unwrap().display().to_string(),
            other => format!("{other:?}"),
        };
        format!("{:?} {input}", run.spec.stdin)
    };
    let cases = [
        ("none", "srun a", "None Null"),
        ("none", "srun -i in a", "All in"),
        ("other", "srun a", "All other"),
        ("other", "srun -i in a", "All in"),
        ("other", "srun -i 0 a", "Rank(Rank(0)) Inherit"),
        ("other", "srun -i none a", "None Null"),
    ];
    for (mode, line, expected) in cases {
        assert_eq!(of(mode, line), expected, "{mode}: {line}");
    }
}

#[test]
fn variables_of_open_mpi_and_hydra() {
    check(&[
        (
            "OMPI_MCA_rmaps_base_mapping_policy=node",
            "mpirun a",
            "n=- map=node",
        ),
        (
            "OMPI_MCA_rmaps_base_mapping_policy=node",
            "mpirun --map-by core a",
            "n=- map=core",
        ),
        (
            "OMPI_MCA_rmaps_base_mapping_policy=node",
            "rally run a",
            "n=-",
        ),
        (
            "PRTE_MCA_rmaps_default_mapping_policy=node",
            "mpirun a",
            "n=- map=node",
        ),
        (
            "PRTE_MCA_hwloc_default_binding_policy=none",
            "mpiexec a",
            "n=- bind=none",
        ),
        (
            "OMPI_MCA_hwloc_base_report_bindings=1",
            "mpirun a",
            "n=- show={Bindings}",
        ),
        ("OMPI_MCA_hwloc_base_report_bindings=0", "mpirun a", "n=-"),
        ("OMPI_MCA_btl=self", "mpirun a", "n=-"),
        (
            "OMPI_MCA_plm_base_verbose=5",
            "mpirun a",
            "n=- [ignored, since it has no effect here: `OMPI_MCA_plm_base_verbose`]",
        ),
        ("OMPI_MCA_plm_rsh_agent=ssh", "mpirun a", "n=-"),
        ("HYDRA_LAUNCHER_EXEC=/opt/ssh", "mpiexec a", "n=-"),
        ("OMPI_MCA_orte_hnp_uri=1", "mpirun a", "n=-"),
        ("HYDRA_BINDING=core", "mpiexec a", "n=- bind=core"),
        (
            "HYDRA_MAPPING=socket HYDRA_BINDING=core",
            "mpiexec -bind-to none a",
            "n=- map=package bind=none",
        ),
        (
            "HYDRA_IFACE=eth0",
            "mpiexec a",
            "n=- [ignored, since it has no effect here: `HYDRA_IFACE`]",
        ),
        (
            "HYDRA_SOMETHING=1",
            "mpiexec a",
            "n=- [ignored, since it has no effect here: `HYDRA_SOMETHING`]",
        ),
        (
            "HYDRA_HOST_FILE=missing",
            "mpiexec -hosts localhost a",
            "n=-",
        ),
        (
            "HYDRA_HOST_FILE=missing",
            "mpiexec a",
            "error: cannot read the host file `missing`: No such file or directory (os error 2)",
        ),
        (
            "HYDRA_BINDING=cro",
            "mpiexec a",
            "error: cannot read `--bind-to cro`: `cro` is not known\n  help:   known are none, core, hwthread, l1cache, l2cache, l3cache, numa, package",
        ),
    ]);
}

#[test]
fn every_variable_stands_for_an_option() {
    crate::args::inputs::check_tables();
}
