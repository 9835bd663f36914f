//! `rally top` and `--watch` on a real terminal: what the user sees, after which keys, and that the terminal is given back.

use std::num::NonZero;

use mischief::Proc;
use nix::{
    sys::signal::{self, Signal},
    unistd::Pid,
};

use crate::{
    harness::{DEADLINE, Running, Sandbox, Stream, Terminal, eventually, rally},
    machine::Machine,
};

fn size(of: u16) -> NonZero<u16> {
    NonZero::new(of).unwrap()
}

/// A program that has the whole terminal, and what it shows.
struct Seen {
    terminal: Terminal,
    run: Running,
    parser: vt100::Parser,
    /// Bytes that were parsed.
    parsed: usize,
}

impl Seen {
    /// Runs a command of `rally` on a terminal that understands the usual sequences. Then the script says the exit code, and whether the modes of
    /// the terminal are what they were.
    fn start(sandbox: &Sandbox, command: &str, rows: u16, columns: u16) -> Self {
        let script = format!(
            r#"trap : INT; export TERM=xterm; before=$(stty -g); {command}; code=$?
            after=$(stty -g); test "$before" = "$after" && echo "code $code, same modes""#
        );
        let (terminal, run) = Terminal::run_sized(sandbox, &script, rows, columns);
        Self {
            terminal,
            run,
            parser: vt100::Parser::new(size(rows), size(columns), 0),
            parsed: 0,
        }
    }

    fn screen(&mut self) -> String {
        let news = self.run.bytes_from(Stream::Stdout, self.parsed);
        self.parsed += news.len();
        self.parser.process(&news);
        self.parser.screen().contents()
    }

    /// Waits until the screen has all these parts.
    #[track_caller]
    fn expect(&mut self, parts: &[&str]) {
        let found = eventually(DEADLINE, || {
            let screen = self.screen();
            parts.iter().all(|part| screen.contains(part)).then_some(())
        });
        assert!(found.is_some(), "not {parts:?}:\n{}", self.screen());
    }

    #[track_caller]
    fn expect_gone(&mut self, part: &str) {
        let gone = eventually(DEADLINE, || (!self.screen().contains(part)).then_some(()));
        assert!(gone.is_some(), "still {part:?}:\n{}", self.screen());
    }

    fn press(&mut self, keys: &str) {
        self.terminal.type_in(keys);
    }

    fn resize(&mut self, rows: u16, columns: u16) {
        self.screen();
        self.parser.screen_mut().set_size(size(rows), size(columns));
        self.terminal.resize(rows, columns);
    }

    /// Waits for the end with this exit code, and checks that the user has the terminal back. Returns what is on it.
    #[track_caller]
    fn expect_end(mut self, code: u8) -> String {
        self.expect(&[&format!("code {code}, same modes")]);
        let screen = self.parser.screen();
        assert!(!screen.alternate_screen() && !screen.hide_cursor());
        let contents = screen.contents();
        self.run.end();
        contents
    }
}

const TOP: &str = r#""$RALLY" top"#;
const TICKS: &str = "i=0; while :; do i=$((i+1)); echo tick $i; sleep 0.05; done";

/// Returns the processes of `rally` that were started with this command.
fn processes(sandbox: &Sandbox, command: &str) -> Vec<Proc> {
    let all = sandbox.alive().into_iter();
    let found: Vec<Proc> = all
        .filter(|process| process.runs(&rally()) && process.args.contains(command))
        .collect();
    assert!(!found.is_empty(), "no process of {command}");
    found
}

fn signal_all(processes: &[Proc], signal: Signal) {
    for process in processes {
        signal::kill(Pid::from_raw(process.pid), signal).unwrap();
    }
}

#[test]
fn a_machine_is_seen_and_steered() {
    let sandbox = Sandbox::new();
    let machine = Machine::up(&sandbox, &["--host", "localhost:2"]);
    let first = machine.submit(&["-n", "2", "--job-name", "ticker", "sh", "-c", TICKS]);
    machine.expect_state(&first, "running");
    let second = machine.submit(&["-n", "1", "--job-name", "second", "sleep", "1000"]);
    let third = machine.submit(&["-n", "1", "--job-name", "third", "--hold", "true"]);
    let mut seen = Seen::start(&sandbox, TOP, 24, 80);
    seen.expect(&[
        "2/2",
        "ticker",
        "next, after 1",
        "held by its user",
        "tick 3",
    ]);
    // Live.
    seen.expect(&["tick 40"]);
    assert!(seen.parser.screen().alternate_screen());
    seen.resize(40, 120);
    seen.expect(&["tick 60", "rally-1.out"]);
    let screen = seen.screen();
    assert!(
        screen.lines().nth(39).unwrap().contains("q quit"),
        "{screen}"
    );
    seen.press("3\x1b[5~");
    seen.expect(&[", line "]);
    seen.press("2e");
    seen.expect(&["all of it runs"]);
    // A lone Esc closes it.
    seen.press("\x1b");
    seen.expect_gone("all of it runs");
    seen.press("c");
    seen.expect(&["Cancel job 1?"]);
    seen.press("n");
    seen.expect_gone("Cancel job 1?");
    assert_eq!(machine.states()[&first], "running");
    seen.press("cy");
    machine.expect_state(&first, "canceled");
    machine.expect_state(&second, "running");
    seen.expect(&["canceled", "1/2"]);
    seen.press("G");
    seen.expect(&["job 3 has not started"]);
    seen.press("ry");
    machine.expect_state(&third, "succeeded");
    seen.press("1d");
    seen.expect(&["Start no more jobs on node"]);
    seen.press("y");
    seen.expect(&["drained"]);
    seen.press("ry");
    seen.expect_gone("drained");
    seen.press("?");
    seen.expect(&["Keys", "go to another pane"]);
    seen.press("qq");
    seen.expect_end(0);
    machine.down();
}

#[test]
fn what_running_jobs_use_is_seen() {
    let sandbox = Sandbox::new();
    let machine = Machine::up(&sandbox, &["--host", "localhost:2"]);
    let spin = "while :; do :; done";
    let job = machine.submit(&["-n", "1", "--job-name", "spins", "sh", "-c", spin]);
    machine.submit(&["-n", "1", "--job-name", "sleeps", "sleep", "1000"]);
    let mut seen = Seen::start(&sandbox, TOP, 24, 100);
    let mut cells = Vec::new();
    let found = eventually(DEADLINE, || {
        let screen = seen.screen();
        let row = |name: &str| {
            let line = screen.lines().find(|line| line.contains(name));
            let words = line.unwrap_or_default().split_whitespace();
            words.map(str::to_owned).collect::<Vec<String>>()
        };
        // JOB, NAME, STATE, SLOTS, CPU, MEMORY and its unit.
        cells = vec![row("spins"), row("sleeps")];
        let cpu = |row: &[String]| row.get(4)?.parse::<f64>().ok();
        let is_size = |row: &[String]| row.get(6).is_some_and(|unit| unit.ends_with("iB"));
        let is_seen =
            cpu(&cells[0])? > 0.0 && cpu(&cells[1])? < 0.1 && cells.iter().all(|row| is_size(row));
        is_seen.then_some(())
    });
    assert!(found.is_some(), "{cells:?}:\n{}", seen.screen());
    // The row is kept, but the job uses nothing any more.
    seen.press("cy");
    machine.expect_state(&job, "canceled");
    seen.expect(&["spins    canceled     1     -        -"]);
    seen.press("q");
    seen.expect_end(0);
    machine.down();
}

#[test]
fn whatever_ends_the_screen_gives_the_terminal_back() {
    let sandbox = Sandbox::new();
    let machine = Machine::up(&sandbox, &[]);
    let seen = || {
        let mut seen = Seen::start(&sandbox, TOP, 24, 80);
        seen.expect(&["no jobs"]);
        seen
    };
    let mut by_key = seen();
    by_key.press("\x03");
    by_key.expect_end(0);
    for (signal, code) in [
        (Signal::SIGTERM, 143),
        (Signal::SIGHUP, 129),
        (Signal::SIGINT, 130),
    ] {
        let seen = seen();
        signal_all(&processes(&sandbox, " top"), signal);
        seen.expect_end(code);
    }
    // Ctrl-Z gives it back too, and `fg` takes it again.
    let command = r#"set -m; "$RALLY" top; stty -a | grep -o ' icanon'; read line; fg >/dev/null"#;
    let mut stopped = Seen::start(&sandbox, command, 24, 80);
    stopped.expect(&["no jobs"]);
    stopped.press("\x1a");
    stopped.expect(&["icanon"]);
    assert!(!stopped.parser.screen().alternate_screen());
    stopped.press("\n");
    stopped.expect(&["no jobs"]);
    stopped.press("q");
    stopped.expect_end(0);
    machine.down();
}

#[test]
fn a_machine_that_goes_away_or_hangs_is_told() {
    let sandbox = Sandbox::new();
    let machine = Machine::up(&sandbox, &[]);
    let mut seen = Seen::start(&sandbox, TOP, 24, 80);
    seen.expect(&["no jobs"]);
    let stopped = processes(&sandbox, " up");
    signal_all(&stopped, Signal::SIGSTOP);
    seen.expect(&["machine `main` has not answered for"]);
    seen.press("?");
    seen.expect(&["Keys"]);
    signal_all(&stopped, Signal::SIGCONT);
    seen.expect_gone("has not answered");
    machine.run(&["down", "--now"]).expect_code(0);
    let shown = seen.expect_end(0);
    sandbox.expect_no_process();
    assert!(shown.contains("note: machine `main` has ended"), "{shown}");

    let machine = Machine::up(&sandbox, &[]);
    let mut seen = Seen::start(&sandbox, TOP, 24, 80);
    seen.expect(&["no jobs"]);
    machine.kill_controller();
    let shown = seen.expect_end(125);
    assert!(
        shown.contains("error: machine `main` does not answer"),
        "{shown}"
    );
    sandbox.expect_no_process();
}

#[test]
fn without_a_terminal_it_says_what_to_use() {
    let sandbox = Sandbox::new();
    let machine = Machine::up(&sandbox, &[]);
    let refused = machine.run(&["top"]).expect_code(123);
    refused.expect_err(&["`rally top` needs a terminal", "`rally queue --watch`"]);
    let (_terminal, run) = Terminal::run(&sandbox, r#""$RALLY" top; echo "code $?""#);
    let dumb = run.end();
    assert!(dumb.out().contains("cannot be moved (TERM)"), "{dumb:?}");
    assert!(dumb.out().contains("code 123"), "{dumb:?}");
    machine.down();
}

#[test]
fn a_watched_listing_is_drawn_in_place() {
    let sandbox = Sandbox::new();
    let machine = Machine::up(&sandbox, &["--host", "localhost:2"]);
    let mut queue = Seen::start(&sandbox, r#""$RALLY" queue --watch"#, 10, 60);
    queue.expect(&["no jobs"]);
    for _ in 0..20 {
        machine.submit(&["-n", "1", "--hold", "true"]);
    }
    queue.expect(&["JOB", "held", "… and 12 more"]);
    queue.press("\x03");
    queue.expect_end(130);
    let mut nodes = Seen::start(&sandbox, r#""$RALLY" nodes --watch"#, 10, 60);
    nodes.expect(&["NODE", "up"]);
    let name = sandbox.run(sandbox.command("uname").arg("-n")).out();
    machine
        .run(&["nodes", "--drain", name.trim()])
        .expect_code(0);
    nodes.expect(&["drained"]);
    nodes.press("q");
    nodes.expect_end(0);
    let mut status = Seen::start(&sandbox, r#""$RALLY" status --watch </dev/null"#, 10, 60);
    status.expect(&["machine main, up 0:0", "20 waiting"]);
    machine.run(&["down", "--now"]).expect_code(0);
    let shown = status.expect_end(0);
    assert!(shown.contains("machine `main` has ended"), "{shown}");
}

#[test]
fn a_watched_listing_has_a_line_for_each_change() {
    let sandbox = Sandbox::new();
    let machine = Machine::up(&sandbox, &["--host", "localhost:1"]);
    let args = ["queue", "--watch", "--message-format=json"];
    let json = sandbox.start(&mut sandbox.rally(&args));
    let text = sandbox.start(&mut sandbox.rally(&["queue", "--watch"]));
    text.expect(Stream::Stdout, "no jobs\n");
    let job = machine.submit(&[
        "-n",
        "1",
        "sh",
        "-c",
        "until test -e go; do sleep 0.01; done",
    ]);
    json.expect(Stream::Stdout, r#""state":"running""#);
    text.expect(Stream::Stdout, "running");
    // A reader that has enough ends it, also if nothing changes any more.
    let script = r#""$RALLY" queue --watch --message-format=json | head -n 1"#;
    let one = sandbox.run(&mut sandbox.shell(script));
    assert_eq!(one.out().lines().count(), 1, "{one:?}");
    sandbox.file("go", "");
    machine.run(&["wait", &job]).expect_code(0);
    json.expect(Stream::Stdout, r#""state":"succeeded""#);
    text.expect(Stream::Stdout, "\nno jobs\n");
    let nodes = sandbox.start(&mut sandbox.rally(&["nodes", "--watch", "--message-format=json"]));
    nodes.expect(Stream::Stdout, r#""state":"up""#);
    nodes.signal(Signal::SIGINT);
    assert_eq!(nodes.end().code(), 130);
    machine.run(&["down", "--now"]).expect_code(0);
    for watch in [json, text] {
        let ended = watch.end().expect_code(0);
        // The passing of time is no change.
        assert_eq!(ended.out().matches("running").count(), 1, "{ended:?}");
        ended.expect_err(&["machine `main` has ended"]);
    }
}
