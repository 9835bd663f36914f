//! What ssh asks is asked on the terminal. A script with the name `ssh` stands for other nodes: it asks as OpenSSH does, and runs the
//! command on this node.

use std::{fs, os::unix::fs::PermissionsExt, path::PathBuf};

use nix::{
    sys::signal::{self, Signal},
    unistd::Pid,
};

use crate::harness::{DEADLINE, Running, Sandbox, Stream, Terminal, eventually, rally};

/// Hosts that begin with `new` have an unknown key, those that begin with `dead` do not answer, and `open` wants no password. With
/// `BatchMode`, nothing is asked.
const SSH: &str = r#"#!/bin/bash
while [[ $1 == -* ]]; do [[ $1 == *BatchMode=yes ]] && batch=1; shift; done
host=$1; shift
mkdir -p "$HOME/$host/tmp"
refuse() { echo "$1" >&2; exit 255; }
ask() {
    [[ -z $batch && $SSH_ASKPASS_REQUIRE == force && -z $DISPLAY ]] || return 1
    answer=$("$SSH_ASKPASS" "$1")
}
case $host in
dead*) while ! [ -e "$HOME/go" ]; do sleep 0.01; done; refuse "ssh: connect to host $host port 22: No route to host" ;;
new*)
    text="The authenticity of host '$host (10.0.0.1)' can't be established.
ED25519 key fingerprint is SHA256:abc.
Are you sure you want to continue connecting (yes/no/[fingerprint])? "
    ask "$text" && [ "$answer" = yes ] || refuse "Host key verification failed." ;;
open*) ;;
*)
    for try in 1 2; do
        ask "me@$host's password: " && [ "$answer" = "word-of-$host" ] && break
        [ $try = 2 ] && refuse "me@$host: Permission denied (publickey,password)."
    done ;;
esac
exec env -i PATH=/usr/bin:/bin HOME="$HOME/$host" TMPDIR="$HOME/$host/tmp" RALLY_STRESS="$RALLY_STRESS" /bin/bash -c "$*"
"#;

/// Prints whether the terminal shows what is typed.
const SHOW_ECHO: &str = "stty -a | grep -o -e '-*echo ' | sed 's/^/terminal: /'";

fn nodes() -> Sandbox {
    let sandbox = Sandbox::new();
    fs::create_dir(sandbox.path("bin")).unwrap();
    let ssh = sandbox.file("bin/ssh", SSH);
    fs::set_permissions(&ssh, fs::Permissions::from_mode(0o755)).unwrap();
    sandbox
}

/// Returns the words that run a job over these hosts, for a shell. `exec` puts the front in place of that shell.
fn over(hosts: &str, rest: &str) -> String {
    format!(
        r#"sh -c 'echo front $$; exec "$RALLY" run --ssh bin/ssh --host {hosts} --map-by node {rest}'; echo "code $?"; {SHOW_ECHO}"#
    )
}

/// Returns the host that is asked for.
fn asked_for(run: &Running, times: usize) -> String {
    run.expect_times(Stream::Stdout, "'s password: ", times);
    let screen = run.so_far(Stream::Stdout);
    let (before, _) = screen.rsplit_once("'s password: ").unwrap();
    before.rsplit_once('@').unwrap().1.to_owned()
}

fn front_of(run: &Running) -> Pid {
    run.expect(Stream::Stdout, "front ");
    let number = || {
        let screen = run.so_far(Stream::Stdout);
        let (line, _) = screen.split_once("front ")?.1.split_once('\r')?;
        Some(Pid::from_raw(line.parse().unwrap()))
    };
    eventually(DEADLINE, number).unwrap()
}

/// Returns the files of the processes of the sandbox, and of its directories, that contain a text.
fn files_with(sandbox: &Sandbox, text: &str) -> Vec<PathBuf> {
    let alive = sandbox.alive();
    let of_processes = alive.iter().flat_map(|process| {
        ["environ", "cmdline"].map(|name| PathBuf::from(format!("/proc/{}/{name}", process.pid)))
    });
    let mut files: Vec<PathBuf> = of_processes.collect();
    let mut open = vec![sandbox.work().parent().unwrap().to_owned()];
    while let Some(directory) = open.pop() {
        for entry in fs::read_dir(directory).into_iter().flatten().flatten() {
            match entry.file_type() {
                Ok(kind) if kind.is_dir() => open.push(entry.path()),
                Ok(kind) if kind.is_file() => files.push(entry.path()),
                _ => {}
            }
        }
    }
    let contains = |path: &PathBuf| {
        let bytes = fs::read(path).unwrap_or_default();
        let mut windows = bytes.windows(text.len());
        windows.any(|window| window == text.as_bytes())
    };
    files.retain(contains);
    files
}

/// The answers are neither shown nor stored: not in the log, the recording, an argument or a variable.
#[test]
fn two_hosts_are_asked_for_one_after_the_other() {
    let sandbox = nodes();
    let rest = r#"--record tape -n 2 sh -c "echo here; cat""#;
    let script = format!(
        "export RALLY_LOG=trace RALLY_LOG_FILE=log; {}",
        over("n1,n2", rest)
    );
    let (mut terminal, run) = Terminal::run(&sandbox, &script);
    let first = asked_for(&run, 1);
    terminal.type_in(&format!("word-of-{first}\n"));
    let second = asked_for(&run, 2);
    assert_ne!(first, second);
    terminal.type_in(&format!("word-of-{second}\n"));
    run.expect_times(Stream::Stdout, "here", 2);
    assert!(!run.so_far(Stream::Stdout).contains("word-of"), "{run:?}");
    for host in [&first, &second] {
        let found = files_with(&sandbox, &format!("word-of-{host}"));
        assert!(found.is_empty(), "{found:?}");
    }
    // The search finds what is there, and the log and the recording are there.
    for (text, name) in [("starts a command", "log"), ("RALLYREC", "tape")] {
        assert!(files_with(&sandbox, text).contains(&sandbox.path(name)));
    }
    terminal.type_in("\x04");
    run.expect(Stream::Stdout, "code 0");
    run.expect(Stream::Stdout, "terminal: echo");
    run.end();
    sandbox.expect_clean();
}

#[test]
fn the_answer_to_yes_or_no_is_shown() {
    let sandbox = nodes();
    let (mut terminal, run) = Terminal::run(&sandbox, &over("new1", "-n 1 echo here"));
    run.expect(Stream::Stdout, "(yes/no/[fingerprint])? ");
    terminal.type_in("yes\n");
    run.expect(Stream::Stdout, "? yes\r\n");
    run.expect(Stream::Stdout, "here");
    run.expect(Stream::Stdout, "code 0");
    run.end();
}

/// ssh asks again after a wrong password, and its last words are in the message.
#[test]
fn wrong_answers_fail_with_the_words_of_ssh() {
    let sandbox = nodes();
    let (mut terminal, run) = Terminal::run(&sandbox, &over("open1,n2", "-n 2 echo here"));
    for times in [1, 2] {
        assert_eq!(asked_for(&run, times), "n2");
        terminal.type_in("wrong\n");
    }
    for words in [
        "cannot start the daemon on `n2`: `ssh` exited with code 255",
        "me@n2: Permission denied (publickey,password)",
        "1 other node can be used",
        "code 123",
        "terminal: echo",
    ] {
        run.expect(Stream::Stdout, words);
    }
    run.end();
}

/// Ctrl-D is no answer, and nothing is asked twice because of it.
#[test]
fn an_end_of_file_is_no_answer() {
    let sandbox = nodes();
    let (mut terminal, run) = Terminal::run(&sandbox, &over("new1", "-n 1 echo here"));
    run.expect(Stream::Stdout, "(yes/no/[fingerprint])? ");
    terminal.type_in("\x04");
    run.expect(Stream::Stdout, "Host key verification failed");
    run.expect(Stream::Stdout, "code 123");
    run.end();
}

#[test]
fn ctrl_c_ends_the_start_and_shows_what_is_typed_again() {
    let sandbox = nodes();
    let script = format!("trap : INT; {}", over("n1,n2", "-n 2 echo here"));
    let (mut terminal, run) = Terminal::run(&sandbox, &script);
    asked_for(&run, 1);
    terminal.type_in("half an answer\x03");
    run.expect(Stream::Stdout, "code 130");
    run.expect(Stream::Stdout, "terminal: echo");
    let run = run.end();
    assert_eq!(run.out().matches("password: ").count(), 1, "{run:?}");
    assert!(!run.out().contains("half"), "{run:?}");
    sandbox.expect_clean();
}

#[test]
fn ctrl_z_gives_the_terminal_back_until_we_are_in_the_foreground_again() {
    let sandbox = nodes();
    let script = format!(
        r#"set -m; "$RALLY" run --ssh bin/ssh --host n1 -n 1 echo here; echo "stopped $?"; {SHOW_ECHO}
        bg >/dev/null 2>&1; read line; echo "shell got $line"; fg >/dev/null; echo "finally $?""#
    );
    let (mut terminal, run) = Terminal::run(&sandbox, &script);
    asked_for(&run, 1);
    terminal.type_in("half\x1a");
    run.expect(Stream::Stdout, "stopped 14");
    run.expect(Stream::Stdout, "terminal: echo");
    terminal.type_in("for the shell\n");
    run.expect(Stream::Stdout, "shell got for the shell");
    assert_eq!(asked_for(&run, 2), "n1");
    terminal.type_in("word-of-n1\n");
    run.expect(Stream::Stdout, "here");
    run.expect(Stream::Stdout, "finally 0");
    run.end();
}

/// After SIGKILL, the controller restores the terminal.
#[test]
fn the_terminal_is_restored_however_the_front_ends() {
    for (signal, code) in [(Signal::SIGTERM, 143), (Signal::SIGKILL, 137)] {
        let sandbox = nodes();
        let script = over("n1,n2", "-n 2 echo here");
        let script = script.replace(
            SHOW_ECHO,
            "until stty -a | grep -q ' echo '; do sleep 0.01; done; echo restored",
        );
        let (_terminal, run) = Terminal::run(&sandbox, &script);
        asked_for(&run, 1);
        signal::kill(front_of(&run), signal).unwrap();
        run.expect(Stream::Stdout, &format!("code {code}"));
        run.expect(Stream::Stdout, "restored");
        run.end();
        sandbox.expect_clean();
    }
}

#[test]
fn a_time_limit_ends_a_start_that_asks() {
    let sandbox = nodes();
    let script = over("n1", "--timeout 1 -n 1 echo here");
    let (_terminal, run) = Terminal::run(&sandbox, &script);
    asked_for(&run, 1);
    run.expect(Stream::Stdout, "code 124");
    run.expect(Stream::Stdout, "terminal: echo");
    run.end();
}

/// The user need not answer if the job cannot start.
#[test]
fn a_prompt_ends_when_another_host_has_failed() {
    let sandbox = nodes();
    let script = over("n1,dead2", "-n 2 echo here");
    let (_terminal, run) = Terminal::run(&sandbox, &script);
    asked_for(&run, 1);
    sandbox.file("go", "");
    for words in [
        "cannot start the daemon on `dead2`",
        "code 123",
        "terminal: echo",
    ] {
        run.expect(Stream::Stdout, words);
    }
    run.end();
}

/// A process that is killed while it asks has no answer, and the next one is asked for.
#[test]
fn a_prompt_ends_with_the_ssh_that_asks() {
    let sandbox = nodes();
    let script = over("n1", "-n 1 echo here");
    let (mut terminal, run) = Terminal::run(&sandbox, &script);
    asked_for(&run, 1);
    let asking = || {
        let alive = sandbox.alive().into_iter();
        let mut asking = alive.filter(|process| process.args.ends_with("'s password:"));
        asking.find(|process| process.runs(&rally()))
    };
    let asking = eventually(DEADLINE, asking).unwrap();
    signal::kill(Pid::from_raw(asking.pid), Signal::SIGKILL).unwrap();
    // The stand-in tries twice.
    asked_for(&run, 2);
    terminal.type_in("word-of-n1\n");
    run.expect(Stream::Stdout, "here");
    run.expect(Stream::Stdout, "code 0");
    run.end();
}

/// Without a terminal, or in its background, ssh is told to ask nothing.
#[test]
fn without_a_terminal_nothing_is_asked() {
    let words = [
        "cannot start the daemon on `n1`: `ssh` exited with code 255",
        "Permission denied (publickey,password)",
        "help:   `rally` asks for passwords only on a terminal",
    ];
    let sandbox = nodes();
    let mut command = sandbox.command("setsid");
    command.arg("--wait").arg(rally());
    command.args(["run", "--ssh", "bin/ssh", "--host", "n1", "-n", "1", "echo"]);
    // Nobody is asked in a window either.
    command.env("SSH_ASKPASS", "/bin/false");
    let ended = sandbox.run(&mut command);
    ended.expect_code(123).expect_err(&words);
    let script =
        r#"set -m; "$RALLY" run --ssh bin/ssh --host n1 -n 1 echo here & wait $!; echo "code $?""#;
    let (_terminal, run) = Terminal::run(&sandbox, script);
    let ended = run.end();
    for words in [&words[..], &["code 123"]].concat() {
        assert!(ended.out().contains(words), "{words}: {ended:?}");
    }
    assert!(!ended.out().contains("'s password"), "{ended:?}");
}

/// Only what a start command has started may ask the user.
#[test]
fn another_process_cannot_ask_the_user() {
    let sandbox = nodes();
    let asks = r#"socket=$(find "$XDG_RUNTIME_DIR" -name 'control-*'); RALLY_ASKPASS="$socket" "$RALLY" "me@n1 password: "; echo "asked $?""#;
    let script = format!(
        r#""$RALLY" run --ssh bin/ssh --host open1 -n 1 sh -c 'echo here; while ! [ -e go ]; do sleep 0.01; done' </dev/null &
        while ! [ -e up ]; do sleep 0.01; done; {asks}; : >go; wait; echo over"#
    );
    let (_terminal, run) = Terminal::run(&sandbox, &script);
    run.expect(Stream::Stdout, "here");
    sandbox.file("up", "");
    run.expect(Stream::Stdout, "asked 125");
    run.expect(Stream::Stdout, "over");
    let run = run.end();
    for words in ["password", "cannot ask"] {
        assert!(!run.out().contains(words), "{run:?}");
    }
}

/// The terminal is in raw mode for the rank from the start, and the answer is a line all the same. Enter is a carriage return.
#[test]
fn a_job_with_a_terminal_of_its_own_asks_before() {
    let sandbox = nodes();
    let rest = r#"-n 1 --pty=0 sh -c "echo name?; read name; echo hello \$name""#;
    let (mut terminal, run) = Terminal::run(&sandbox, &over("n1", rest));
    asked_for(&run, 1);
    terminal.type_in("word-of-n2\x7f1\r");
    run.expect(Stream::Stdout, "name?\r\n");
    terminal.type_in("bob\r");
    run.expect(Stream::Stdout, "hello bob");
    run.expect(Stream::Stdout, "code 0");
    run.expect(Stream::Stdout, "terminal: echo");
    let run = run.end();
    assert!(!run.out().contains("word-of"), "{run:?}");
}
