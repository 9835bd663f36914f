//! `rally launch`: launch configurations, with their actions and debuggers.

use std::{fs, process::Command};

use nix::sys::signal::Signal;

use crate::{
    harness::{
        CLEAN_WITHIN, DEADLINE, Finished, Running, Sandbox, Stream, Terminal, eventually, testdata,
    },
    machine::Machine,
};

/// Two ranks that print `up`, and wait.
const WAITS: &str = "version = 1\n[[app]]\nprogram = 'sh'\nargs = ['-c', 'echo up; exec sleep 1000']\nnp = 2\n\
    [job]\noversubscribe = true\n";

/// Writes a launch configuration, and returns the command that uses it.
fn command(sandbox: &Sandbox, text: &str, options: &[&str]) -> Command {
    sandbox.file("a.toml", text);
    let mut command = sandbox.rally(&["launch", "a.toml"]);
    command.args(options);
    // Jobs are found here, separate from those of other tests.
    command.env("XDG_RUNTIME_DIR", sandbox.work());
    command
}

fn run(sandbox: &Sandbox, text: &str, options: &[&str]) -> Finished {
    sandbox.run(&mut command(sandbox, text, options))
}

fn start(sandbox: &Sandbox, text: &str, options: &[&str]) -> Running {
    sandbox.start(&mut command(sandbox, text, options))
}

/// Calls another command of `rally` about this sandbox's jobs.
fn other(sandbox: &Sandbox, words: &[&str]) -> Finished {
    let mut command = sandbox.rally(words);
    command.env("XDG_RUNTIME_DIR", sandbox.work());
    sandbox.run(&mut command)
}

fn example() -> String {
    fs::read_to_string(testdata("launch/hello.toml")).unwrap()
}

#[test]
fn the_example_runs_with_its_actions() {
    let sandbox = Sandbox::new();
    let run = run(&sandbox, &example(), &[]).expect_code(0);
    assert_eq!(
        run.sorted(),
        "good-bye; it is over\nhello from rank 0 of 3\nhello from rank 1 of 3"
    );
    // stdout is for the ranks.
    run.expect_err(&["before\n", "after: 0\n"]);
    assert!(!sandbox.path("written-before").exists());
}

#[test]
fn a_dry_run_shows_everything_and_starts_nothing() {
    let sandbox = Sandbox::new();
    run(&sandbox, &example(), &["--dry-run"])
        .expect_code(0)
        .expect_quiet()
        .expect_out(
            "pre   echo 'it is over' > written-before\n\
             pre   echo before\n\
             run   rally run --oversubscribe --input=written-before --timeout=1m --np=2 --set-env=GREETING=hello -- \
             sh -c 'echo \"$GREETING from rank $RALLY_RANK of $RALLY_SIZE\"' : --np=1 --set-env=GREETING=good-bye -- \
             sh -c 'echo \"$GREETING; $(cat written-before)\"'\n\
             post  echo \"after: $RALLY_LAUNCH_CODE\"\n\
             post  rm written-before\n",
        );
    assert!(!sandbox.path("written-before").exists());
    let json = run(
        &sandbox,
        &example(),
        &["--dry-run", "--message-format=json"],
    );
    let json: serde_json::Value = serde_json::from_str(&json.expect_code(0).out()).unwrap();
    assert_eq!(json["pre"][1], "echo before");
    assert_eq!(json["run"][2], "--message-format=json");
    assert_eq!(json["post"][1], "rm written-before");
}

/// What a dry run prints does what the file does.
#[test]
fn the_line_of_a_dry_run_can_be_typed() {
    let sandbox = Sandbox::new();
    let text = "version = 1\n[[app]]\nprogram = 'printf'\nargs = ['<%s>', \"it's\", 'a b', '', '$HOME']\nnp = 1\n";
    let shown = run(&sandbox, text, &["--dry-run"]).expect_code(0).out();
    let line = shown.strip_prefix("run   rally ").unwrap();
    let typed = sandbox.run(&mut sandbox.shell(&format!("\"$RALLY\" {line}")));
    let launched = run(&sandbox, text, &[]).expect_code(0).out();
    assert_eq!(launched, "<it's><a b><><$HOME>");
    typed.expect_code(0).expect_out(&launched);
}

#[test]
fn the_exit_code_is_that_of_the_job() {
    let sandbox = Sandbox::new();
    let text = "version = 1\n[[app]]\nprogram = 'sh'\nargs = ['-c', 'exit 7']\nnp = 1\n\
        [actions]\npost = ['false', 'echo $RALLY_LAUNCH_CODE > code']\n";
    run(&sandbox, text, &[]).expect_code(7).expect_err(&[
        "warning: an action after the job failed: `false`",
        "from:   a.toml:7:9\n",
    ]);
    assert_eq!(sandbox.read("code"), "7\n");
}

#[test]
fn a_mistake_starts_nothing_and_has_its_place() {
    let sandbox = Sandbox::new();
    let actions = "[actions]\npre = ['touch pre']\npost = ['touch post']\n";
    let cases = [
        (
            WAITS.replace("np", "pn"),
            "from: a.toml:5:1\n  help: did you mean `np`?",
        ),
        (
            WAITS.replace("oversubscribe = true", "hostfile = 'none'\nmap-by = 'x'"),
            "from: a.toml:8:1\n",
        ),
        (
            WAITS.replace("oversubscribe = true", "bind-to = 'x'"),
            "from: a.toml:7:11\n",
        ),
    ];
    for (text, part) in cases {
        run(&sandbox, &format!("{text}{actions}"), &[])
            .expect_code(121)
            .expect_out("")
            .expect_err(&[part]);
        for name in ["pre", "post"] {
            assert!(!sandbox.path(name).exists(), "{text}");
        }
    }
}

#[test]
fn an_action_that_fails_ends_the_launch() {
    let sandbox = Sandbox::new();
    let actions = "[actions]\npre = ['true', 'exit 3', 'touch later']\npost = ['echo $RALLY_LAUNCH_CODE > code']\n";
    run(&sandbox, &format!("{WAITS}{actions}"), &[])
        .expect_code(123)
        .expect_out("")
        .expect_err(&[
            "error: the action before the job failed: `exit 3`: exited with code 3\n",
            "from:   a.toml:9:16\n",
            "effect: the job was not started\n",
        ]);
    assert!(!sandbox.path("later").exists());
    assert_eq!(sandbox.read("code"), "123\n");
}

/// The job is interrupted, and what cleans up after it is not.
#[test]
fn actions_after_the_job_run_after_an_interrupt() {
    for (signal, code) in [
        (Signal::SIGINT, 130),
        (Signal::SIGTERM, 143),
        (Signal::SIGHUP, 129),
    ] {
        let sandbox = Sandbox::new();
        let actions =
            "[actions]\npost = ['echo $RALLY_LAUNCH_CODE > code; sleep 0.2; echo done >> code']\n";
        let run = start(&sandbox, &format!("{WAITS}{actions}"), &[]);
        run.expect_times(Stream::Stdout, "up\n", 2);
        run.signal(signal);
        run.end().expect_code(code);
        assert_eq!(sandbox.read("code"), format!("{code}\ndone\n"));
    }
}

#[test]
fn an_interrupted_action_before_the_job_ends_the_launch() {
    for (signal, code) in [
        (Signal::SIGINT, 130),
        (Signal::SIGTERM, 143),
        (Signal::SIGHUP, 129),
        (Signal::SIGQUIT, 131),
    ] {
        let sandbox = Sandbox::new();
        let name = signal.as_str();
        // The descendants of the shell get the signal too, and nothing of them stays.
        let actions =
            "[actions]\npre = ['echo waits >&2; sleep 1000; true']\npost = ['touch post']\n";
        let run = start(&sandbox, &format!("{WAITS}{actions}"), &[]);
        run.expect(Stream::Stderr, "waits");
        // dash loses an interrupt that comes while it starts a program.
        let sleeps = |process: mischief::Proc| process.args == "sleep 1000";
        let is_there = || sandbox.alive().into_iter().any(sleeps).then_some(());
        assert!(eventually(DEADLINE, is_there).is_some());
        run.signal(signal);
        run.end()
            .expect_code(code)
            .expect_out("")
            .expect_err(&[&format!("interrupted by {name}")]);
        assert!(sandbox.path("post").exists());
    }
}

#[test]
fn the_second_signal_kills_an_action_and_the_next_one_runs() {
    let sandbox = Sandbox::new();
    let stubborn = "trap \"echo first >&2\" TERM; echo waits >&2; while :; do sleep 0.01; done";
    let text = format!(
        "version = 1\n[[app]]\nprogram = 'true'\nnp = 1\n[actions]\npost = ['{stubborn}', 'touch post']\n"
    );
    let run = start(&sandbox, &text, &[]);
    run.expect(Stream::Stderr, "waits");
    run.signal(Signal::SIGTERM);
    run.expect(Stream::Stderr, "first");
    run.signal(Signal::SIGTERM);
    run.end().expect_code(0).expect_err(&["killed by SIGKILL"]);
    assert!(sandbox.path("post").exists());
}

/// An action can start what the job needs, and the last one ends it.
#[test]
fn what_an_action_leaves_running_outlives_the_job() {
    let sandbox = Sandbox::new();
    let text = "version = 1\n[[app]]\nprogram = 'sh'\nargs = ['-c', 'kill -0 $(cat pid) && echo it runs']\nnp = 1\n\
        [actions]\npre = ['sleep 1000 >/dev/null 2>&1 & echo $! > pid']\npost = ['kill $(cat pid)']\n";
    run(&sandbox, text, &[])
        .expect_code(0)
        .expect_quiet()
        .expect_out("it runs\n");
}

/// A signal that ends no program by the will of its user reaches the action, and the launch goes on.
#[test]
fn an_action_gets_other_signals() {
    let sandbox = Sandbox::new();
    let waits =
        "trap \"touch got\" USR1; echo waits >&2; while ! [ -e got ]; do sleep 0.01; done; true";
    let text = format!(
        "version = 1\n[[app]]\nprogram = 'echo'\nargs = ['ran']\nnp = 1\n[actions]\npre = ['{waits}']\n"
    );
    let run = start(&sandbox, &text, &[]);
    run.expect(Stream::Stderr, "waits");
    run.signal(Signal::SIGUSR1);
    run.end().expect_code(0).expect_out("ran\n");
}

/// An action may ask on the terminal, and Ctrl-C reaches it there.
#[test]
fn actions_have_the_terminal() {
    let sandbox = Sandbox::new();
    let text = "version = 1\n[[app]]\nprogram = 'echo'\nargs = ['the job']\nnp = 1\n\
        [actions]\npre = ['echo name?; read name </dev/tty; echo $name > name']\n\
        post = ['echo waits; exec sleep 1000', 'touch post']\n";
    sandbox.file("a.toml", text);
    let (mut terminal, run) = Terminal::run(
        &sandbox,
        "trap : INT; \"$RALLY\" launch a.toml; echo code $?",
    );
    run.expect(Stream::Stdout, "name?");
    terminal.type_in("Ada\n");
    run.expect(Stream::Stdout, "waits");
    terminal.type_in("\u{3}");
    run.expect(Stream::Stdout, "code 0");
    run.end();
    assert_eq!(sandbox.read("name"), "Ada\n");
    assert!(sandbox.path("post").exists());
}

/// A signal that the caller ignores (nohup) ends no action.
#[test]
fn what_the_caller_ignores_stays_ignored() {
    let sandbox = Sandbox::new();
    let text = "version = 1\n[[app]]\nprogram = 'true'\nnp = 1\n\
        [actions]\npre = ['echo waits >&2; while ! [ -e go ]; do sleep 0.01; done']\n";
    sandbox.file("a.toml", text);
    let mut command = sandbox.shell("trap '' HUP; exec \"$RALLY\" launch a.toml");
    let run = sandbox.start(&mut command);
    run.expect(Stream::Stderr, "waits");
    run.signal(Signal::SIGHUP);
    sandbox.file("go", "");
    run.end().expect_code(0);
}

#[test]
fn ranks_are_held_for_dbgr() {
    let sandbox = Sandbox::new();
    let run = start(&sandbox, WAITS, &["--debug"]);
    run.expect(Stream::Stderr, "2 ranks held at the first instruction");
    let pid = run.pid.to_string();
    let said = format!("`dbgr stacks {pid}` shows where they are, and `rally release {pid}`");
    run.expect(Stream::Stderr, &said);
    assert_eq!(run.so_far(Stream::Stdout), "");
    let attached = self::run(&sandbox, WAITS, &["--attach", &pid]).expect_code(0);
    assert!(attached.out().contains(": 2 ranks of `"), "{attached:?}");
    other(&sandbox, &["release", &pid]).expect_code(0);
    run.expect_times(Stream::Stdout, "up\n", 2);
    run.signal(Signal::SIGTERM);
    run.end().expect_code(143);
}

#[test]
fn gdb_runs_beside_each_rank() {
    let sandbox = Sandbox::new();
    let commands = "['-nx', '-batch', '-ex', 'info proc', '-ex', 'info source', '-ex', 'show substitute-path', '-ex', 'show directories']";
    let text = format!(
        "{WAITS}[debugger]\nprogram = 'gdb'\nstart = 'rank'\nargs = {commands}\n\
        [sources]\ndirectories = ['my src']\nsubstitute = {{ '/b c' = '/h' }}\n"
    );
    fs::create_dir(sandbox.path("my src")).unwrap();
    let run = start(&sandbox, &text, &["--debug"]);
    run.expect_times(Stream::Stdout, "exe = '", 2);
    let seen = run.so_far(Stream::Stdout);
    assert!(!seen.contains("up\n"), "the ranks are held: {seen}");
    run.expect_times(Stream::Stdout, "/my src:", 2);
    run.expect_times(Stream::Stdout, "`/b c' -> `/h'", 2);
    let pid = run.pid.to_string();
    other(&sandbox, &["release", &pid]).expect_code(0);
    run.expect_times(Stream::Stdout, "up\n", 2);
    // The same for the running job, with the number of the rank in front.
    let attached = self::run(&sandbox, &text, &["--attach", &pid]).expect_code(0);
    for rank in 0..2 {
        let line = format!("[{rank}] exe = '");
        assert!(attached.out().contains(&line), "{attached:?}");
    }
    run.signal(Signal::SIGTERM);
    run.end().expect_code(143);
}

#[test]
fn gdb_starts_the_launcher() {
    let sandbox = Sandbox::new();
    let commands = [
        "-nx",
        "-batch",
        "-iex",
        "set debuginfod enabled off",
        "-ex",
        "starti",
        "-ex",
        "set language c",
        "-ex",
        "set var MPIR_being_debugged = 1",
        "-ex",
        "break MPIR_Breakpoint",
        "-ex",
        "continue",
        "-ex",
        "print MPIR_proctable_size",
        "-ex",
        "continue",
    ];
    let text = format!(
        "version = 1\n[[app]]\nprogram = 'echo'\nargs = ['ran']\nnp = 2\n[job]\noversubscribe = true\n\
         [debugger]\nprogram = 'gdb'\nargs = {commands:?}\n[actions]\npost = ['touch post']\n"
    );
    let run = run(&sandbox, &text, &["--debug"]).expect_code(0);
    assert!(run.out().contains("$1 = 2\n"), "{run:?}");
    assert_eq!(run.out().matches("ran\n").count(), 2, "{run:?}");
    assert!(sandbox.path("post").exists());
}

#[test]
fn a_debugger_that_is_missing_is_named() {
    let sandbox = Sandbox::new();
    let text = format!(
        "{WAITS}[debugger]\nprogram = 'no-such-debugger'\n[actions]\npost = ['touch post']\n"
    );
    run(&sandbox, &text, &["--debug"])
        .expect_code(127)
        .expect_err(&["cannot start the debugger `no-such-debugger`: there is no such program"]);
    assert!(sandbox.path("post").exists());
}

#[test]
fn a_job_can_go_to_a_machine_or_its_queue() {
    let sandbox = Sandbox::new();
    let machine = Machine::up(&sandbox, &["--host", "localhost:2", "--default"]);
    let text = "version = 1\n[[app]]\nprogram = 'sh'\nargs = ['-c', 'echo queue job $RALLY_QUEUE_JOB']\nnp = 1\n";
    sandbox.file("a.toml", text);
    let run = machine.run(&["launch", "a.toml"]).expect_code(0);
    run.expect_out("queue job 1\n");
    sandbox.file(
        "b.toml",
        format!("{text}[queue]\npriority = 3\noutput-to = 'out'\n"),
    );
    let run = machine.run(&["launch", "b.toml"]).expect_code(0);
    assert!(
        run.out().contains('2') || run.err().contains('2'),
        "{run:?}"
    );
    machine.run(&["wait", "2"]).expect_code(0);
    assert_eq!(sandbox.read("out"), "queue job 2\n");
    machine.down();
}

#[test]
fn a_new_file_is_written_once() {
    let sandbox = Sandbox::new();
    sandbox
        .run_rally(&["launch", "--new"])
        .expect_code(0)
        .expect_err(&["wrote `launch.toml`"]);
    sandbox
        .run_rally(&["launch", "launch.toml", "--dry-run"])
        .expect_code(0)
        .expect_out("run   rally run --np=2 -- ./program\n");
    sandbox.file("mine.toml", "mine");
    sandbox
        .run_rally(&["launch", "--new", "mine.toml"])
        .expect_code(121)
        .expect_err(&["cannot write `mine.toml`"]);
    assert_eq!(sandbox.read("mine.toml"), "mine");
}

/// No process of an action stays behind if `rally` is killed.
#[test]
fn an_action_dies_with_rally() {
    let sandbox = Sandbox::new();
    let actions = "[actions]\npre = ['echo waits >&2; exec sleep 1000']\n";
    let run = start(&sandbox, &format!("{WAITS}{actions}"), &[]);
    run.expect(Stream::Stderr, "waits");
    run.signal(Signal::SIGKILL);
    let gone = eventually(CLEAN_WITHIN, || sandbox.alive().is_empty().then_some(()));
    assert!(gone.is_some(), "{:?}", sandbox.alive());
    run.end().expect_code(137);
}
