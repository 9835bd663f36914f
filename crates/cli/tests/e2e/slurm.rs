//! Jobs of Slurm, with stand-ins for its commands: what they get, and what happens if they fail. The tests of the bed have a real one.

use std::{fs, os::unix::fs::PermissionsExt as _, process::Command};

use crate::harness::{DEADLINE, Finished, Sandbox, Stream, eventually};

/// A sandbox whose PATH begins with stand-ins.
struct Site(Sandbox);

impl Site {
    fn new(stand_ins: &[(&str, &str)]) -> Self {
        let site = Self(Sandbox::new());
        for (name, text) in stand_ins {
            site.install(name, text);
        }
        site
    }

    fn install(&self, name: &str, text: &str) {
        let directory = self.0.path("bin");
        fs::create_dir_all(&directory).unwrap();
        let file = directory.join(name);
        fs::write(&file, format!("#!/bin/sh\n{text}\n")).unwrap();
        fs::set_permissions(&file, fs::Permissions::from_mode(0o755)).unwrap();
    }

    fn command(&self, args: &[&str]) -> Command {
        let mut command = self.0.rally(args);
        let path = format!("{}:/usr/bin:/bin", self.0.path("bin").display());
        command.env("PATH", path);
        command
    }

    fn run(&self, args: &[&str]) -> Finished {
        self.0.run(&mut self.command(args))
    }

    /// Lets [`JOBS`] show this of a job from now on.
    fn show(&self, job: &str, records: &[String]) {
        let new = self.0.file("new", records.concat());
        fs::rename(new, self.0.path(&format!("job-{job}"))).unwrap();
        let asked = self.0.path(&format!("asked-{job}"));
        let _ = fs::remove_file(&asked);
    }

    fn expect_asked(&self, job: &str) {
        let asked = self.0.path(&format!("asked-{job}"));
        let is_there = || asked.exists().then_some(());
        assert!(eventually(DEADLINE, is_there).is_some(), "{job}");
    }
}

/// Shows what the files `job-*` have, and notes who was asked for.
const JOBS: &str = "cat \"job-$4\" 2>/dev/null || { echo 'slurm_load_jobs error: Invalid job id specified' >&2; exit 1; }
: >\"asked-$4\"";

/// Returns what `scontrol` shows of a job, or of a task.
fn record(ids: &str, state: &str, code: &str) -> String {
    format!(
        "{ids} JobName=a UserId=u(1) JobState={state} Reason=None ExitCode={code}:0 Command=(null) WorkDir=/ \n"
    )
}

/// Stores what it gets.
const SBATCH: &str = "cat >script; printf '%s\\n' \"$@\" >options; echo 17";

/// Says that the job of a file has this state.
const SCONTROL: &str = "[ -e known ] || { echo 'slurm_load_jobs error: Invalid job id specified' >&2; exit 1; }
read -r state reason code <known
case $3 in job) echo \"JobId=17 JobName=a UserId=u(1) JobState=$state Reason=$reason ExitCode=$code RunTime=00:01:02 TimeLimit=00:10:00 SubmitTime=2026-11-26T05:29:34 NodeList=n1 Command=(null) WorkDir=$PWD StdErr=$PWD/out-17 StdIn=/dev/null StdOut=$PWD/out-17 Power= \" ;; esac";

#[test]
fn the_script_gives_the_job_its_words_and_numbers() {
    let site = Site::new(&[("sbatch", SBATCH)]);
    let print = "printf '%s|' \"$RALLY_RANK\" \"$RALLY_QUEUE_JOB\" \"$RALLY_ARRAY_INDEX\" \"$@\"";
    let odd = ["it's $HOME", "a\nb", "\r\n", "", "*"];
    let args = [
        "submit",
        "--to",
        "slurm",
        "--parsable",
        "-n",
        "1",
        "--array",
        "3-9",
        "--",
        "sh",
        "-c",
        print,
        "sh",
    ];
    let submitted = site.run(&[&args[..], &odd].concat());
    submitted.expect_code(0).expect_out("17\n");
    let options = site.0.read("options");
    for option in [
        "--array=3-9",
        "--ntasks=1",
        "--comment=rally",
        "--job-name=sh",
    ] {
        assert!(options.lines().any(|line| line == option), "{options}");
    }
    let script = site.0.path("script").display().to_string();
    let mut shell = site.0.command("/bin/sh");
    shell
        .arg(script)
        .env("SLURM_ARRAY_JOB_ID", "17")
        .env("SLURM_ARRAY_TASK_ID", "4");
    let ran = site.0.run(&mut shell).expect_code(0);
    assert_eq!(ran.out(), format!("0|17|4|{}|", odd.join("|")));
}

#[test]
fn a_dry_run_submits_nothing() {
    let site = Site::new(&[]);
    let args = ["submit", "--to", "slurm", "--dry-run", "-n", "2", "./a"];
    let shown = site.run(&args).expect_code(0).out();
    assert!(shown.starts_with("sbatch --parsable "), "{shown}");
    assert!(shown.contains(" <<'RALLY_SCRIPT'\n#!/bin/sh\n"), "{shown}");
    let json = site.run(&[&args[..4], &["--message-format=json"], &args[4..]].concat());
    let json: serde_json::Value = serde_json::from_str(&json.expect_code(0).out()).unwrap();
    assert_eq!(json["command"][0], "sbatch");
    // Words as they are: a shell may run what is shown.
    site.install("sbatch", SBATCH);
    let shown = site.0.file("shown", shown);
    let mut shell = site.0.command("/bin/sh");
    let path = format!("{}:/usr/bin:/bin", site.0.path("bin").display());
    site.0
        .run(shell.arg(shown).env("PATH", path))
        .expect_code(0)
        .expect_out("17\n");
    assert_eq!(
        json["script"].as_str(),
        Some(site.0.read("script").as_str())
    );
}

#[test]
fn troubles_of_submission_are_told() {
    let down = "echo 'sbatch: error: Batch job submission failed: Unable to contact slurm controller (connect failure)' >&2; exit 1";
    let partition = "echo 'sbatch: error: invalid partition specified: nope' >&2; exit 1";
    let large = "echo 'sbatch: error: Batch job submission failed: Requested node configuration is not available' >&2; exit 1";
    let cases = [
        (None, 123, &["there is no `sbatch` in PATH"][..]),
        (
            Some(down),
            123,
            &[
                "Slurm does not answer",
                "Unable to contact slurm controller",
            ],
        ),
        (
            Some(partition),
            120,
            &[
                "Slurm refuses: the job was not submitted",
                "invalid partition specified: nope",
            ],
        ),
        (
            Some(large),
            122,
            &[
                "Slurm refuses",
                "Requested node configuration is not available",
            ],
        ),
        (Some("exit 3"), 122, &["`sbatch` exited with code 3"]),
        (Some("kill -9 $$"), 122, &["ended `sbatch`"]),
        (
            Some("echo hello"),
            125,
            &["the answer of `sbatch` is not understood", "hello"],
        ),
        (
            Some("sleep 61"),
            123,
            &[
                "`sbatch` has not answered for 1 s",
                "it may have been submitted",
            ],
        ),
        // A child keeps the streams, and is killed too.
        (
            Some("sleep 61 & echo 17"),
            123,
            &["`sbatch` has not answered for 1 s"],
        ),
    ];
    for (text, code, words) in cases {
        let site = Site::new(&[]);
        if let Some(text) = text {
            site.install("sbatch", text);
        }
        let mut command = site.command(&["submit", "--to", "slurm", "-n", "1", "true"]);
        if text.is_none() {
            command.env("PATH", site.0.path("bin"));
        }
        let ran = site.0.run(command.env("RALLY_SLURM_PATIENCE", "1s"));
        ran.expect_code(code).expect_err(words);
        site.0.expect_no_process();
    }
    let remark = format!("echo 'sbatch: error: nice value ignored' >&2; {SBATCH}");
    let site = Site::new(&[("sbatch", &remark)]);
    let ran = site
        .run(&["submit", "--to", "slurm", "-n", "1", "true"])
        .expect_code(0);
    ran.expect_err(&["with a remark", "nice value ignored"])
        .expect_out("job slurm:17\n");
}

/// A script that is longer than the buffer of a pipe, for an `sbatch` that does not read it.
#[test]
fn a_long_script_blocks_nothing() {
    let site = Site::new(&[("sbatch", "echo 'sbatch: error: no' >&2; exit 1")]);
    let long = "x".repeat(100_000);
    let args = [
        "submit", "--to", "slurm", "-n", "1", "true", &long, &long, &long,
    ];
    site.run(&args)
        .expect_code(122)
        .expect_err(&["Slurm says: no"]);
    site.install("sbatch", SBATCH);
    site.run(&args).expect_code(0);
    assert!(site.0.read("script").len() > 300_000);
}

#[test]
fn the_end_of_a_job_is_told_in_both_words() {
    let site = Site::new(&[("scontrol", SCONTROL)]);
    let cases = [
        ("COMPLETED None 0:0", 0, &[][..]),
        (
            "FAILED NonZeroExitCode 3:0",
            3,
            &[
                "job 17 of Slurm has failed",
                "FAILED (NonZeroExitCode)",
                "exit code:  3",
            ],
        ),
        ("FAILED RaisedSignal:9 0:9", 137, &["signal:     9"]),
        (
            "CANCELLED None 0:15",
            143,
            &["has been canceled", "CANCELLED"],
        ),
        (
            "TIMEOUT TimeLimit 0:15",
            124,
            &["TIMEOUT", "it reached its time limit"],
        ),
        (
            "PREEMPTED None 0:15",
            143,
            &["PREEMPTED", "a job that comes first has taken its nodes"],
        ),
        (
            "NODE_FAIL NodeDown 0:0",
            125,
            &["NODE_FAIL", "one of its nodes was lost"],
        ),
        (
            "OUT_OF_MEMORY OutOfMemory 0:125",
            137,
            &["OUT_OF_MEMORY", "it used more memory than it may"],
        ),
    ];
    for (known, code, words) in cases {
        site.0.file("known", format!("{known}\n"));
        site.run(&["wait", "slurm:17"])
            .expect_code(code)
            .expect_err(words);
    }
    site.0.file("known", "PENDING Priority 0:0\n");
    let shown = site.run(&["queue", "slurm:17"]).expect_code(0).out();
    for line in [
        "state: waiting",
        "Slurm says: PENDING (Priority)",
        "reason: jobs of higher priority come first",
        "limit: 00:10:00",
    ] {
        assert!(shown.contains(line), "{shown}");
    }
    fs::remove_file(site.0.path("known")).unwrap();
    let gone = ["Slurm does not know job 17", "sacct -j 17"];
    site.run(&["wait", "slurm:17"])
        .expect_code(120)
        .expect_err(&gone);
    site.run(&["cancel", "slurm:17"])
        .expect_code(120)
        .expect_err(&gone);
    site.run(&["output", "slurm:17"])
        .expect_code(120)
        .expect_err(&gone);
}

/// The controller of Slurm is away for a while, and then forgets the job.
#[test]
fn a_wait_survives_a_silent_controller() {
    let silent = "[ -e silent ] && { echo 'slurm_load_jobs error: Unable to contact slurm controller (connect failure)' >&2; exit 1; }\n";
    let scontrol = format!("{silent}{SCONTROL}\necho >>answered");
    let site = Site::new(&[("scontrol", &scontrol)]);
    let expect_answer = || {
        let is_there = || site.0.path("answered").exists().then_some(());
        assert!(eventually(DEADLINE, is_there).is_some());
        fs::remove_file(site.0.path("answered")).unwrap();
    };
    site.0.file("known", "RUNNING None 0:0\n");
    let waiting = site.0.start(&mut site.command(&["wait", "slurm:17"]));
    expect_answer();
    site.0.file("silent", "");
    waiting.expect(Stream::Stderr, "Slurm does not answer; waiting goes on");
    site.0.file("known", "FAILED NonZeroExitCode 4:0\n");
    fs::remove_file(site.0.path("silent")).unwrap();
    waiting.end().expect_code(4);
    expect_answer();
    site.0.file("known", "RUNNING None 0:0\n");
    let waiting = site
        .0
        .start(&mut site.command(&["wait", "slurm:17", "slurm:17"]));
    expect_answer();
    site.0.file("silent", "");
    waiting.expect(Stream::Stderr, "waiting goes on");
    fs::remove_file(site.0.path("known")).unwrap();
    fs::remove_file(site.0.path("silent")).unwrap();
    waiting
        .end()
        .expect_code(125)
        .expect_err(&["Slurm has forgotten job 17", "its exit code is not known"]);
}

#[test]
fn orders_are_passed_on() {
    let orders = "case $1 in hold|release) echo \"$@\" >>orders; exit ;; esac\n";
    let site = Site::new(&[
        ("scontrol", &format!("{orders}{SCONTROL}")),
        ("scancel", "echo scancel \"$@\" >>orders"),
    ]);
    site.0.file("known", "PENDING JobHeldUser 0:0\n");
    for order in ["hold", "release", "cancel"] {
        site.run(&[order, "slurm:17"]).expect_code(0);
    }
    assert_eq!(site.0.read("orders"), "hold 17\nrelease 17\nscancel 17\n");
    site.0.file("known", "COMPLETED None 0:0\n");
    for order in ["hold", "release", "cancel"] {
        site.run(&[order, "slurm:17"])
            .expect_code(120)
            .expect_err(&["job 17 of Slurm is over"]);
    }
}

/// The jobs of a machine come first. What is wrong with Slurm does not hide them.
#[test]
fn slurms_jobs_are_listed_beside_those_of_a_machine() {
    let site = Site::new(&[("sbatch", SBATCH)]);
    site.run(&["up", "--host", "localhost:1"]).expect_code(0);
    // Before anything was submitted to Slurm, nobody asks it.
    site.install("squeue", "echo asked >asked; exit 1");
    site.run(&["queue"]).expect_code(0).expect_out("no jobs\n");
    assert!(!site.0.path("asked").exists());
    site.run(&["submit", "--to", "slurm", "-n", "1", "true"])
        .expect_code(0);
    let failed = site.run(&["queue"]).expect_code(0).expect_out("no jobs\n");
    failed.expect_err(&["the jobs in Slurm are not listed"]);
    let rows = "echo '17|N/A|PENDING|Resources|0:00|1:00||rally|a|b'; echo '18|N/A|RUNNING|None|0:01|1:00|n1|other|mine'";
    site.install("squeue", rows);
    let listed = site.run(&["queue"]).expect_code(0).out();
    assert!(listed.starts_with("no jobs\n\nJOB"), "{listed}");
    assert!(
        listed.contains("slurm:17  a|b   waiting  PENDING (Resources)"),
        "{listed}"
    );
    assert!(!listed.contains("18"), "{listed}");
    site.run(&["queue", "--to", "machine"])
        .expect_code(0)
        .expect_out("no jobs\n");
    let json = site
        .run(&["queue", "--to", "slurm", "--message-format=json"])
        .expect_code(0);
    let row: serde_json::Value = serde_json::from_str(&json.out()).unwrap();
    assert_eq!(
        (&row["job"], &row["state"]),
        (&"slurm:17".into(), &"waiting".into())
    );
    site.run(&["down", "--now"]).expect_code(0);
    site.0.expect_no_process();
    // No machine has to run.
    let alone = site.run(&["queue"]).expect_code(0).out();
    assert!(alone.starts_with("JOB"), "{alone}");
}

#[test]
fn output_is_read_from_the_file_that_slurm_names() {
    let patterns = "printf '%s/out-%%j\\001%s/out-%%j\\001\\n' \"$PWD\" \"$PWD\"";
    let site = Site::new(&[("scontrol", SCONTROL), ("squeue", patterns)]);
    site.0.file("known", "PENDING Priority 0:0\n");
    site.run(&["output", "slurm:17"])
        .expect_code(121)
        .expect_err(&["it has not started"]);
    site.0.file("known", "PENDING JobHeldUser 0:0\n");
    site.run(&["output", "slurm:17"])
        .expect_code(121)
        .expect_err(&["it waits, because it is held"]);
    site.0.file("known", "PENDING Priority 0:0\n");
    let following = site
        .0
        .start(&mut site.command(&["output", "-f", "slurm:17"]));
    site.0.file("out-17", "one\n");
    site.0.file("known", "RUNNING None 0:0\n");
    following.expect(Stream::Stdout, "one");
    site.0.file("known", "COMPLETED None 0:0\n");
    following.end().expect_code(0).expect_out("one\n");
    site.run(&["output", "slurm:17", "--errors"])
        .expect_code(121)
        .expect_err(&["its standard error is with"]);
    fs::remove_file(site.0.path("out-17")).unwrap();
    site.run(&["output", "slurm:17"])
        .expect_code(121)
        .expect_err(&["its file is not on this computer", "/out-17"]);
}

/// Slurm forgets the first job that has ended while the other one runs. Its exit code counts all the same, and that of the first in
/// the order of the command line.
#[test]
fn a_wait_remembers_the_ends_of_jobs() {
    let site = Site::new(&[("scontrol", JOBS)]);
    let show = |job: &str, state: &str, code: &str| {
        site.show(job, &[record(&format!("JobId={job}"), state, code)]);
    };
    for (last, expected) in [(("COMPLETED", "0"), 3), (("FAILED", "5"), 5)] {
        show("17", "RUNNING", "0");
        show("18", "FAILED", "3");
        show("19", "FAILED", "4");
        let args = ["wait", "slurm:17", "slurm:18", "slurm:19"];
        let waiting = site.0.start(&mut site.command(&args));
        site.expect_asked("18");
        site.expect_asked("19");
        fs::remove_file(site.0.path("job-18")).unwrap();
        fs::remove_file(site.0.path("job-19")).unwrap();
        show("17", last.0, last.1);
        waiting
            .end()
            .expect_code(expected)
            .expect_err(&["job 18 of Slurm has failed", "job 19 of Slurm has failed"]);
    }
}

#[test]
fn a_wait_remembers_the_ends_of_tasks() {
    let site = Site::new(&[("scontrol", JOBS)]);
    let task = |index: u32, state: &str, code: &str| {
        let ids = format!("JobId={} ArrayJobId=17 ArrayTaskId={index}", 20 + index);
        record(&ids, state, code)
    };
    let first = [task(1, "FAILED", "4"), task(2, "RUNNING", "0")];
    site.show("17", &first);
    let waiting = site.0.start(&mut site.command(&["wait", "slurm:17"]));
    site.expect_asked("17");
    site.show("17", &[task(2, "COMPLETED", "0")]);
    waiting
        .end()
        .expect_code(4)
        .expect_err(&["job 17 of Slurm has failed", "tasks:      1"]);
    // Nobody has seen how the first one ended.
    site.show("17", &[task(1, "RUNNING", "0"), task(2, "RUNNING", "0")]);
    let waiting = site.0.start(&mut site.command(&["wait", "slurm:17"]));
    site.expect_asked("17");
    site.show("17", &[task(2, "COMPLETED", "0")]);
    waiting
        .end()
        .expect_code(125)
        .expect_err(&["Slurm has forgotten task 1 of job 17"]);
}

/// Slurm gives each task that has started a number of its own.
#[test]
fn a_task_is_canceled_by_its_own_number() {
    let site = Site::new(&[
        ("scontrol", JOBS),
        (
            "scancel",
            "echo \"$SCANCEL_NAME$SLURM_CLUSTERS$@\" >>orders",
        ),
    ]);
    let task = |index: u32, state: &str| {
        let ids = format!("JobId={} ArrayJobId=17 ArrayTaskId={index}", 20 + index);
        record(&ids, state, "0")
    };
    site.show("22", &[task(2, "RUNNING")]);
    site.show("17", &[task(1, "COMPLETED"), task(2, "RUNNING")]);
    let mut cancel = site.command(&["cancel", "slurm:22", "slurm:17[2]", "slurm:17"]);
    // They would cancel nothing, or somewhere else.
    cancel.env("SCANCEL_NAME", "b").env("SLURM_CLUSTERS", "c");
    site.0.run(&mut cancel).expect_code(0);
    assert_eq!(site.0.read("orders"), "17_[2]\n17_[2]\n17\n");
    let shown = site.run(&["queue", "slurm:22"]).expect_code(0).out();
    assert!(shown.starts_with("job 17[2] of Slurm: a\n"), "{shown}");
    site.run(&["cancel", "slurm:17[9]"])
        .expect_code(120)
        .expect_err(&["does not know task 9 of job 17"]);
    site.run(&["cancel", "slurm:17[1]"])
        .expect_code(120)
        .expect_err(&["is over"]);
    site.run(&["cancel", "slurm:22[2]"])
        .expect_code(120)
        .expect_err(&["job 22 of Slurm is one task", "`slurm:17[2]`"]);
    site.show("5", &[record("JobId=5", "RUNNING", "0")]);
    site.run(&["cancel", "slurm:5[2]"])
        .expect_code(120)
        .expect_err(&["job 5 of Slurm is no array"]);
}

#[test]
fn a_patience_that_is_none_is_refused() {
    let site = Site::new(&[("scontrol", JOBS)]);
    let mut command = site.command(&["wait", "slurm:17"]);
    let ran = site.0.run(command.env("RALLY_SLURM_PATIENCE", "soon"));
    ran.expect_code(120)
        .expect_err(&["`RALLY_SLURM_PATIENCE` cannot be `soon`: it is not a time"]);
    assert!(!site.0.path("asked-17").exists());
}
