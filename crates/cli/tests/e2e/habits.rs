//! Options and variables of other launchers, and what their ranks then see.

use std::{os::unix::fs::symlink, path::PathBuf, process::Command};

use crate::harness::{Sandbox, rally};

/// Returns a command for the launcher under another name, in a batch job of Slurm with three tasks.
fn called(sandbox: &Sandbox, name: &str, args: &[&str]) -> Command {
    let face: PathBuf = sandbox.path(name);
    if !face.exists() {
        symlink(rally(), &face).unwrap();
    }
    sandbox.face(&face, args)
}

const BATCH: [(&str, &str); 6] = [
    ("SLURM_JOB_ID", "7"),
    ("SLURM_JOB_NODELIST", "node"),
    ("SLURMD_NODENAME", "node"),
    ("SLURM_NTASKS", "3"),
    ("SLURM_TASKS_PER_NODE", "3"),
    ("SLURM_JOB_CPUS_PER_NODE", "3"),
];

#[test]
fn a_batch_job_says_how_many() {
    let sandbox = Sandbox::new();
    for name in ["srun", "mpirun", "mpiexec"] {
        sandbox
            .run(called(&sandbox, name, &["echo", "a"]).envs(BATCH))
            .expect_code(0)
            .expect_out("a\na\na\n");
    }
    sandbox
        .run(sandbox.rally(&["run", "echo", "a"]).envs(BATCH))
        .expect_code(0)
        .expect_out("a\na\na\n");
    // An option overrides the variable, and ranks see the resulting value exactly once.
    let script = "echo $SLURM_NTASKS; env | grep -c ^SLURM_NTASKS=";
    sandbox
        .run(called(&sandbox, "srun", &["-n", "1", "sh", "-c", script]).envs(BATCH))
        .expect_code(0)
        .expect_out("1\n1\n");
    sandbox
        .run(called(&sandbox, "srun", &["-n", "1", "echo", "a"]).envs(BATCH))
        .expect_code(0)
        .expect_out("a\n");
}

#[test]
fn each_rank_of_a_file_has_its_program() {
    let sandbox = Sandbox::new();
    let file = sandbox.file(
        "programs",
        "# who runs what\n1-2 echo client %t number %o\n0 echo server\n* echo rest\n",
    );
    let run = sandbox
        .run(&mut called(
            &sandbox,
            "srun",
            &["-l", "-n", "4", "--multi-prog", &file],
        ))
        .expect_code(0);
    assert_eq!(
        run.sorted(),
        "[0] server\n[1] client 1 number 0\n[2] client 2 number 1\n[3] rest"
    );
}

#[test]
fn files_of_srun_are_written_anew() {
    let sandbox = Sandbox::new();
    let script = "echo out; echo err >&2";
    let run = |args: &[&str]| {
        let args = [args, &["sh", "-c", script]].concat();
        sandbox
            .run(&mut called(&sandbox, "srun", &args))
            .expect_code(0)
    };
    sandbox.file("both", "old\n");
    for _ in 0..2 {
        run(&["-n", "2", "-o", "both"]).expect_quiet();
        let mut lines: Vec<String> = sandbox.read("both").lines().map(str::to_owned).collect();
        lines.sort_unstable();
        assert_eq!(lines, ["err", "err", "out", "out"]);
    }
    run(&["-o", "both", "-e", "own.%t", "--open-mode=append"]);
    assert_eq!(sandbox.read("both").lines().count(), 5);
    assert_eq!(sandbox.read("own.0"), "err\n");
}

#[test]
fn the_output_of_one_rank_is_shown() {
    let sandbox = Sandbox::new();
    let script = "echo $SLURM_PROCID; echo $SLURM_PROCID >&2";
    let args = ["-Q", "-n", "3", "--output=1", "sh", "-c", script];
    let run = sandbox
        .run(&mut called(&sandbox, "srun", &args))
        .expect_code(0)
        .expect_out("1\n");
    assert_eq!(run.err(), "1\n");
}

#[test]
fn a_signal_comes_before_the_limit() {
    let sandbox = Sandbox::new();
    let script = "trap 'echo warned; exit 0' USR1; echo ready; while :; do sleep 0.05; done";
    sandbox
        .run_rally(&[
            "run",
            "-n",
            "1",
            "--timeout",
            "60",
            "--warn",
            "USR1@59",
            "sh",
            "-c",
            script,
        ])
        .expect_code(0)
        .expect_out("ready\nwarned\n");
}

#[test]
fn others_are_not_waited_for_without_end() {
    let sandbox = Sandbox::new();
    let script = "[ $SLURM_PROCID = 0 ] || exec sleep 600";
    sandbox
        .run(&mut called(
            &sandbox,
            "srun",
            &["-n", "2", "--wait=1", "sh", "-c", script],
        ))
        .expect_code(124)
        .expect_err(&["it went on for 1 s after its first rank had ended"]);
}

#[test]
fn each_rank_has_its_gpu() {
    let sandbox = Sandbox::new();
    let script = "echo $RALLY_RANK has $CUDA_VISIBLE_DEVICES";
    let args = ["run", "-n", "2", "--gpus-per-proc", "2", "sh", "-c", script];
    let run = sandbox
        .run(
            sandbox
                .rally(&args)
                .env("CUDA_VISIBLE_DEVICES", "3,GPU-ab,5,6,7"),
        )
        .expect_code(0);
    assert_eq!(run.sorted(), "0 has 3,GPU-ab\n1 has 5,6");
    sandbox
        .run(sandbox.rally(&args).env("CUDA_VISIBLE_DEVICES", "0,1,2"))
        .expect_code(122)
        .expect_err(&["the job needs 4 GPUs, and"]);
}

#[test]
fn the_process_number_is_told() {
    let sandbox = Sandbox::new();
    let script = "cat pid; echo $PPID";
    let run = sandbox
        .run_rally(&["run", "-n", "1", "--report-pid", "pid", "sh", "-c", script])
        .expect_code(0);
    let first = run.out().lines().next().unwrap_or_default().parse::<u32>();
    assert!(first.is_ok(), "{run:?}");
    sandbox
        .run_rally(&["run", "-n", "1", "--report-pid", "missing/pid", "true"])
        .expect_code(121);
}

#[test]
fn files_of_parameters_reach_the_ranks() {
    let sandbox = Sandbox::new();
    let file = sandbox.file(
        "tune",
        "# for this machine\n-mca btl self,tcp -x A=1\nmpi_yield = 1\n",
    );
    let script = "echo $OMPI_MCA_btl $OMPI_MCA_mpi_yield $A";
    let args = ["--tune", &file, "-n", "1", "-x", "A=2", "sh", "-c", script];
    sandbox
        .run(&mut called(&sandbox, "mpirun", &args))
        .expect_code(0)
        .expect_out("self,tcp 1 2\n");
}

#[test]
fn exit_codes_are_printed() {
    let sandbox = Sandbox::new();
    let script = "exit $((PMI_RANK / 2))";
    let args = [
        "-n",
        "3",
        "-print-all-exitcodes",
        "-disable-auto-cleanup",
        "sh",
        "-c",
        script,
    ];
    sandbox
        .run(&mut called(&sandbox, "mpiexec", &args))
        .expect_code(1)
        .expect_err(&["how the ranks have ended: 0-1 exited with code 0; 2 exited with code 1"]);
}

#[test]
fn procs_are_bound_as_listed() {
    let sandbox = Sandbox::new();
    let script = "grep Cpus_allowed_list /proc/self/status";
    let first = sandbox.run(&mut called(
        &sandbox,
        "mpiexec",
        &["-n", "1", "-bind-to", "rr", "sh", "-c", script],
    ));
    let text = first.out();
    let number = text.split_whitespace().last().unwrap_or_default();
    assert!(number.parse::<u32>().is_ok(), "{first:?}");
    let list = format!("--cpu-bind=map_cpu:{number}*2");
    let run = sandbox
        .run(&mut called(
            &sandbox,
            "srun",
            &["-n", "2", &list, "sh", "-c", script],
        ))
        .expect_code(0);
    let expected = format!("Cpus_allowed_list:\t{number}\n");
    assert_eq!(run.out(), expected.repeat(2));
}

#[test]
fn more_than_a_share_of_hydra_fits() {
    let sandbox = Sandbox::new();
    sandbox
        .run(&mut called(
            &sandbox,
            "mpiexec",
            &["-n", "3", "-ppn", "1", "echo", "a"],
        ))
        .expect_code(0)
        .expect_out("a\na\na\n");
    sandbox
        .run(&mut called(&sandbox, "srun", &["--mpi=list"]))
        .expect_code(0)
        .expect_out("MPI plugin types are...\n  none\n  pmi2\n  pmix\n");
}

#[test]
fn a_rank_that_is_not_there_loses_no_output() {
    let sandbox = Sandbox::new();
    sandbox
        .run_rally(&["run", "-n", "2", "--only-from", "5", "echo", "a"])
        .expect_code(120)
        .expect_err(&["error: there is no rank 5 whose output could be shown"]);
    // For srun, a number that is no rank is a file name.
    let args = ["-n", "2", "--output=5", "echo", "a"];
    sandbox
        .run(&mut called(&sandbox, "srun", &args))
        .expect_code(0)
        .expect_quiet();
    assert_eq!(sandbox.read("5"), "a\na\n");
}

#[test]
fn the_name_of_a_job_is_told() {
    let sandbox = Sandbox::new();
    let script = "echo $SLURM_JOB_NAME; echo $SLURM_JOB_NAME >file.$SLURM_JOB_NAME";
    for (args, expected) in [
        (&["-J", "mine"][..], "mine"),
        (&["--job-name=other"], "other"),
        (&[], "sh"),
    ] {
        let args = [args, &["-o", "out.%x", "sh", "-c", script]].concat();
        sandbox
            .run(&mut called(&sandbox, "srun", &args))
            .expect_code(0)
            .expect_quiet();
        assert_eq!(
            sandbox.read(&format!("out.{expected}")),
            format!("{expected}\n")
        );
        assert_eq!(
            sandbox.read(&format!("file.{expected}")),
            format!("{expected}\n")
        );
    }
}

#[test]
fn errors_have_the_code_that_scripts_of_srun_ask_for() {
    let sandbox = Sandbox::new();
    let code = |args: &[&str]| {
        let mut command = called(&sandbox, "srun", args);
        sandbox.run(command.env("SLURM_EXIT_ERROR", "77")).code()
    };
    assert_eq!(code(&["--no-such-option", "true"]), 77);
    assert_eq!(code(&["-n", "2", "--stdin", "7", "true"]), 77);
    assert_eq!(code(&["./no-such-program"]), 77);
    // An end caused by a rank or a limit is no error of the launcher.
    assert_eq!(code(&["false"]), 1);
    assert_eq!(code(&["--timeout", "0.1", "sleep", "60"]), 124);
    // A full disk is an error of the launcher.
    let full = r#"exec "$RALLY" run --personality srun -q echo few >/dev/full"#;
    let mut command = sandbox.shell(full);
    sandbox
        .run(command.env("SLURM_EXIT_ERROR", "77"))
        .expect_code(77);
}
