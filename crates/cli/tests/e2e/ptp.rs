//! The proxy for Eclipse PTP, with a strict client. The numbers in the names of tests are those of `docs/ptp.md`.

mod client;
mod debug;
mod safety;

use std::{fs, net::TcpListener, os::unix::fs::PermissionsExt as _};

use ptp::Framing;

use self::client::{Client, start};
use crate::{
    harness::{DEADLINE, Sandbox, Stream, eventually},
    machine::Machine,
};

/// A session over each framing, with what it shows of a job.
#[test]
fn a12_a13_a14_a_job_is_told_in_order() {
    for (framing, dialect) in [
        (Framing::Ascii, "2.0"),
        (Framing::Ascii, "4.0"),
        (Framing::Binary, "5.0"),
    ] {
        let sandbox = Sandbox::new();
        let machine = Machine::up(&sandbox, &["--host", "localhost:3"]);
        let (mut client, proxy) = start(&sandbox, framing, &["--dialect", dialect]);
        client.open();
        let script = r#"
            printf 'to %s from %s\n' "$NAME" "$RALLY_RANK"
            printf 'caf\303\251\n' >&2
            exec 2>/dev/null
            case $RALLY_RANK in
                0) trap '' TERM; touch ready.0;;
                1) trap 'exit 3' TERM; touch ready.1; while :; do sleep 0.02; done;;
                2) until [ -e ready.0 -a -e ready.1 ]; do sleep 0.02; done; kill -SEGV $$;;
            esac"#;
        let directory = format!("workingDir={}", sandbox.work().display());
        let script = format!("progArgs={script}");
        let words = ["jobSubId=JOB_7", "execName=sh", "jobNumProcs=3"];
        let more = ["env=NAME=a=b", "progArgs=-c", &script, &directory];
        client.command(5, 1, &[&words[..], &more].concat());
        client.expect("0 ");
        let job = client.new_job();
        client.expect("223 ");
        let state = if dialect == "2.0" {
            "TERMINATED"
        } else {
            "COMPLETED"
        };
        client.expect(&format!("230 1 {job} 1 jobState={state}"));
        let first = client.heard.iter().find(|event| event.starts_with("223 "));
        if dialect == "2.0" {
            let first = first.unwrap().split(' ').nth(3).unwrap();
            let first: u32 = first.parse().unwrap();
            assert_eq!(first, 1005, "{:#?}", client.heard);
            let ended = |process: u32, how: &str| format!("233 1 {} 2 {how}", first + process);
            client.heard_in_order(&[
                "220 1003 1 1004 4 jobSubId=JOB_7 name=1 jobState=STARTED jobNumProcs=3",
                &format!("233 1 {first}-{} 1 processState=RUNNING", first + 2),
                &ended(0, "processExitCode=0 processState=EXITED"),
                &ended(1, "processExitCode=3 processState=EXITED"),
                &ended(2, "processSignalName=SIGSEGV processState=EXITED_SIGNALLED"),
            ]);
        } else {
            client.heard_in_order(&[
                &format!(
                    "220 1003 1 {job} 4 jobSubId=JOB_7 name=1 jobState=STARTING jobNumProcs=3"
                ),
                &format!("233 {job} 1 0-2 1 processState=RUNNING"),
                &format!("233 {job} 1 0 2 processExitCode=0 processState=COMPLETED"),
                &format!("233 {job} 1 1 2 processExitCode=3 processState=COMPLETED"),
                &format!("233 {job} 1 2 2 processSignalName=SIGSEGV processState=COMPLETED"),
            ]);
            for rank in 0..3 {
                assert_eq!(
                    client.output(&job, rank, "processStdout"),
                    format!("to a=b from {rank}\n")
                );
                assert_eq!(
                    client.output(&job, rank, "processStderr"),
                    "caf\\xc3\\xa9\n"
                );
            }
        }
        client.quit(proxy).expect_code(0);
        machine.down();
    }
}

/// It tries again while nobody listens, and gives up.
#[test]
fn a01_the_proxy_waits_for_its_client() {
    let sandbox = Sandbox::new();
    let machine = Machine::up(&sandbox, &[]);
    let port = |listener: &TcpListener| listener.local_addr().unwrap().port().to_string();
    let free = port(&TcpListener::bind("127.0.0.1:0").unwrap());
    let mut command = sandbox.rally(&["ptp-proxy", "--host=127.0.0.1", "--port", &free]);
    let proxy = sandbox.start(&mut command);
    proxy.expect(Stream::Stderr, "yet: ");
    let listener = TcpListener::bind(format!("127.0.0.1:{free}")).unwrap();
    let (socket, _) = listener.accept().unwrap();
    let mut client = Client::over(socket, Framing::Binary);
    client.open();
    client.quit(proxy).expect_code(0);
    drop(listener);
    sandbox
        .run(&mut command)
        .expect_code(123)
        .expect_err(&["cannot connect to the client at 127.0.0.1", "refused"]);
    machine.down();
}

/// It waits for one client, and for no second one.
#[test]
fn a01_the_proxy_takes_one_connection() {
    let sandbox = Sandbox::new();
    let machine = Machine::up(&sandbox, &[]);
    let mut command = sandbox.rally(&["ptp-proxy", "--listen=127.0.0.1:0"]);
    let proxy = sandbox.start(&mut command);
    proxy.expect(Stream::Stdout, "127.0.0.1:");
    let address = proxy.so_far(Stream::Stdout).trim().to_owned();
    let connect = || std::net::TcpStream::connect(&address);
    let mut client = Client::over(connect().unwrap(), Framing::Ascii);
    client.open();
    assert!(connect().is_err());
    client.quit(proxy).expect_code(0);
    machine.down();
}

/// A job that must wait has no processes until it starts.
#[test]
fn a10_a_job_waits_in_the_queue() {
    let sandbox = Sandbox::new();
    let machine = Machine::up(&sandbox, &["--host", "localhost:1"]);
    let (mut client, proxy) = start(&sandbox, Framing::Binary, &[]);
    client.open();
    let first = client.submit(&sandbox, 1, "sleep 1000");
    client.expect(&format!("230 1 {first} 1 jobState=RUNNING"));
    let second = client.submit(&sandbox, 1, "echo second");
    machine.expect_state("2", "waiting");
    let starts = |client: &Client| {
        let begin = format!("223 {second} ");
        client.heard.iter().any(|event| event.starts_with(&begin))
    };
    assert!(!starts(&client), "{:#?}", client.heard);
    client.command(6, 1, &[&format!("jobId={first}")]);
    client.expect(&format!("230 1 {second} 1 jobState=COMPLETED"));
    assert!(starts(&client));
    assert_eq!(client.output(&second, 0, "processStdout"), "second\n");
    client.quit(proxy).expect_code(0);
    machine.down();
}

/// A submission without the argument that begins so, and with others in its place.
fn changed(words: &[String], without: &str, with: &[&str]) -> Vec<String> {
    let kept = words.iter().filter(|word| !word.starts_with(without));
    let with = with.iter().map(|word| (*word).to_owned());
    kept.cloned().chain(with).collect()
}

#[test]
fn a11_each_fault_of_a_submission_has_its_own_words() {
    let sandbox = Sandbox::new();
    let machine = Machine::up(&sandbox, &["--host", "localhost:2"]);
    let (mut client, proxy) = start(&sandbox, Framing::Ascii, &[]);
    client.open();
    let work = sandbox.work().display().to_string();
    let plain = sandbox.file("plain", "");
    let right = [
        "jobSubId=J".to_owned(),
        "execName=true".to_owned(),
        "jobNumProcs=1".to_owned(),
        format!("workingDir={work}"),
    ];
    let debug = ["debug=true", "debugExecName=nobody"];
    let cases: [(&str, &[&str], &str); 13] = [
        (
            "jobSubId",
            &[],
            "5 2 errorCode=1202 errorMsg=the submission has no `jobSubId`",
        ),
        ("execName", &[], "has no `execName`"),
        (
            "jobNumProcs",
            &["jobNumProcs=0"],
            "`jobNumProcs` is `0`, and no number above 0",
        ),
        ("jobNumProcs", &["jobNumProcs=-2"], "`jobNumProcs` is `-2`"),
        ("workingDir", &[], "has no `workingDir`"),
        (
            "workingDir",
            &["workingDir=/nowhere"],
            "`/nowhere`: No such file",
        ),
        (
            "workingDir",
            &["workingDir=/etc/passwd"],
            "`/etc/passwd` is no directory",
        ),
        (
            "execName",
            &["execName=no-such", "env=PATH=/opt:/srv"],
            "the program `no-such` is in no directory of PATH, which is `/opt:/srv`",
        ),
        (
            "execName",
            &["execName=a", "execPath=/nowhere"],
            "the program `/nowhere/a`: No such file",
        ),
        (
            "execName",
            &["execName=plain", &format!("execPath={work}")],
            "is no file that may be executed",
        ),
        (
            "nothing",
            &["env=odd"],
            "`env` is `odd`, and not of the form",
        ),
        (
            "nothing",
            &debug,
            "the debugger `nobody` is in no directory of PATH",
        ),
        (
            "nothing",
            &["jobNumProcs=3"],
            "the machine has room for 2 of the 3 units of the job",
        ),
    ];
    fs::set_permissions(&plain, fs::Permissions::from_mode(0o644)).unwrap();
    for (without, with, expected) in cases {
        let words = changed(&right, without, with);
        let words: Vec<&str> = words.iter().map(String::as_str).collect();
        client.command(5, 1, &words);
        let begin = if without == "jobSubId" {
            "5 "
        } else {
            "211 3 jobSubId=J "
        };
        let said = client.expect(begin);
        assert!(said.contains(expected), "{expected}: {said}");
    }
    assert!(machine.states().values().all(|state| state == "failed"));
    client.quit(proxy).expect_code(0);
    machine.down();
}

#[test]
fn a16_a_job_is_terminated_once() {
    let sandbox = Sandbox::new();
    let machine = Machine::up(&sandbox, &["--host", "localhost:2"]);
    let (mut client, proxy) = start(&sandbox, Framing::Binary, &[]);
    client.open();
    // It takes its time.
    let script = "trap 'echo trapped' TERM; echo ready; while :; do sleep 0.1; done";
    let job = client.submit(&sandbox, 1, script);
    client.expect(&format!("233 {job} 1 0 1 processStdout=ready"));
    let terminate = |client: &mut Client, job: &str, expected: &str| {
        client.command(6, 1, &[&format!("jobId={job}")]);
        client.expect(expected);
    };
    terminate(
        &mut client,
        "77",
        "212 3 jobId=77 errorCode=1203 errorMsg=there is no job 77",
    );
    terminate(&mut client, &job, "0 ");
    let again = format!("212 3 jobId={job} errorCode=1203 errorMsg=the job is being ended already");
    terminate(&mut client, &job, &again);
    client.expect(&format!("233 {job} 1 0 2 processSignalName=SIGKILL"));
    client.expect(&format!("230 1 {job} 1 jobState=COMPLETED"));
    let over = format!("212 3 jobId={job} errorCode=1203 errorMsg=job {job} is over");
    terminate(&mut client, &job, &over);
    client.quit(proxy).expect_code(0);
    machine.down();
}

/// A client that quits, closes, or is killed takes its jobs with it, unless they are to go on.
#[test]
fn a18_a19_jobs_end_with_their_client_or_go_on() {
    let sandbox = Sandbox::new();
    let machine = Machine::up(&sandbox, &["--host", "localhost:2"]);
    let (mut client, proxy) = start(&sandbox, Framing::Binary, &[]);
    client.open();
    let job = client.submit(&sandbox, 2, "sleep 1000");
    client.expect(&format!("230 1 {job} 1 jobState=RUNNING"));
    client
        .quit(proxy)
        .expect_code(0)
        .expect_err(&["its job is ended"]);
    machine.expect_state("1", "failed");

    let (mut client, proxy) = start(&sandbox, Framing::Binary, &[]);
    client.open();
    let job = client.submit(&sandbox, 2, "sleep 1000");
    client.expect(&format!("230 1 {job} 1 jobState=RUNNING"));
    drop(client);
    proxy
        .end()
        .expect_code(141)
        .expect_err(&["has closed the connection; its job is ended"]);
    machine.expect_state("2", "failed");

    let (mut client, proxy) = start(&sandbox, Framing::Binary, &["--on-disconnect=continue"]);
    client.open();
    let file = sandbox.path("go");
    let script = format!(
        "seq 1000000; until [ -e {} ]; do sleep 0.05; done",
        file.display()
    );
    let job = client.submit(&sandbox, 1, &script);
    client.expect(&format!("230 1 {job} 1 jobState=RUNNING"));
    drop(client);
    proxy.expect(Stream::Stderr, "its job goes on");
    machine.expect_state("3", "running");
    fs::write(file, "").unwrap();
    proxy.end().expect_code(141);
    machine.expect_state("3", "succeeded");
    machine.down();
}

/// The client hears that the machine has gone.
#[test]
fn the_end_of_the_machine_is_the_end_of_the_session() {
    let sandbox = Sandbox::new();
    let machine = Machine::up(&sandbox, &[]);
    let (mut client, proxy) = start(&sandbox, Framing::Binary, &[]);
    client.open();
    let job = client.submit(&sandbox, 1, "sleep 1000");
    client.expect(&format!("230 1 {job} 1 jobState=RUNNING"));
    machine.run(&["down", "--now"]).expect_code(0);
    client.expect(&format!("230 1 {job} 1 jobState=COMPLETED"));
    client.expect("1 3 messageLevel=FATAL");
    client.expect_end();
    proxy.end().expect_code(125);
    // Everything breaks at the same time.
    let machine = Machine::up(&sandbox, &["--host", "localhost:3"]);
    let (mut client, proxy) = start(&sandbox, Framing::Binary, &[]);
    client.open();
    let jobs = [(); 3].map(|()| client.submit(&sandbox, 1, "sleep 1000"));
    client.expect(&format!("230 1 {} 1 jobState=RUNNING", jobs[2]));
    machine.kill_controller();
    client.expect("1 3 messageLevel=FATAL");
    for job in &jobs {
        let over = format!("230 1 {job} 1 jobState=COMPLETED");
        assert!(client.heard.contains(&over), "{:#?}", client.heard);
    }
    client.expect_end();
    proxy.end().expect_code(125);
    sandbox.expect_no_process();
}

/// Without a machine, the proxy starts one, which ends with the last proxy that uses it, also if that is killed.
#[test]
fn a_machine_of_the_proxys_own_ends_with_it() {
    let sandbox = Sandbox::new();
    let options = ["--", "--host", "localhost:2"];
    let (mut client, proxy) = start(&sandbox, Framing::Binary, &options);
    client.open();
    let job = client.submit(&sandbox, 2, "sleep 1000");
    client.expect(&format!("230 1 {job} 1 jobState=RUNNING"));
    let (mut other, second) = start(&sandbox, Framing::Ascii, &[]);
    other.open();
    assert!(
        other.heard[1].contains("name=ptp-proxy"),
        "{:?}",
        other.heard
    );
    let finished = client.quit(proxy).expect_code(0);
    finished.expect_err(&["machine `ptp-proxy` is up"]);
    other.command(2, 7, &[]);
    other.expect("0 ");
    second.signal(nix::sys::signal::Signal::SIGKILL);
    second.end().expect_code(137);
    sandbox.expect_no_process();
    sandbox
        .run_rally(&["ptp-proxy", "--", "--hostfile", "nowhere"])
        .expect_code(123)
        .expect_err(&["nowhere", "`rally up` has failed"]);
}

/// Processes are on the nodes that the client is told, and a node that is lost is DOWN.
#[test]
fn a09_nodes_have_their_processes_and_are_lost() {
    let sandbox = Sandbox::new();
    let machine = Machine::up(&sandbox, &["--bootstrap", "fork", "--nodes", "3"]);
    let (mut client, proxy) = start(&sandbox, Framing::Binary, &[]);
    client.open();
    let nodes = client.heard.iter().filter(|it| it.starts_with("222 "));
    // An event has all of them.
    assert_eq!(
        nodes
            .map(|it| it.matches("nodeState=UP").count())
            .sum::<usize>(),
        3
    );
    let slots = machine.out(&["nodes", "--message-format=json"]);
    let slots = slots.lines().map(|line| {
        let row: serde_json::Value = serde_json::from_str(line).unwrap();
        row["slots"].as_u64().unwrap()
    });
    let procs = u32::try_from(slots.sum::<u64>()).unwrap();
    let script = "echo $PPID > daemon.$RALLY_RANK.new; mv daemon.$RALLY_RANK.new daemon.$RALLY_RANK; exec sleep 1000";
    let job = client.submit(&sandbox, procs, script);
    client.expect(&format!("230 1 {job} 1 jobState=RUNNING"));
    let processes = client.heard.iter().filter(|it| it.starts_with("223 "));
    let processes: Vec<String> = processes.cloned().collect();
    for node in [1002, 1003, 1004] {
        let node = format!("processNodeId={node} ");
        assert!(
            processes.iter().any(|it| it.contains(&node)),
            "{processes:?}"
        );
    }
    let file = sandbox.path(&format!("daemon.{}", procs - 1));
    let daemon = eventually(DEADLINE, || fs::read_to_string(&file).ok());
    let daemon = daemon.expect("the last rank runs").trim().parse().unwrap();
    let kill = nix::sys::signal::Signal::SIGKILL;
    nix::sys::signal::kill(nix::unistd::Pid::from_raw(daemon), kill).unwrap();
    client.expect("1 3 messageLevel=ERROR");
    client.expect(&format!("230 1 {job} 1 jobState=COMPLETED"));
    client.expect("232 1 1004 1 nodeState=DOWN");
    client.quit(proxy).expect_code(0);
    machine.down();
}

/// Output that precedes the processes is not lost: a node forwards it before all nodes have started theirs.
#[test]
fn a14_output_of_several_nodes_is_whole() {
    let sandbox = Sandbox::new();
    let nodes = ["--bootstrap", "fork", "--nodes", "4"];
    let machine = Machine::up(&sandbox, &nodes);
    let (mut client, proxy) = start(&sandbox, Framing::Binary, &[]);
    client.open();
    for _ in 0..8 {
        let job = client.submit(&sandbox, 8, "echo rank $RALLY_RANK; seq 10000");
        client.expect(&format!("230 1 {job} 1 jobState=COMPLETED"));
        for rank in 0..8 {
            let output = client.output(&job, rank, "processStdout");
            assert!(
                output.starts_with(&format!("rank {rank}\n1\n2\n")),
                "{job} {rank}"
            );
            assert_eq!(output.lines().count(), 10_001, "{job} {rank}");
        }
    }
    client.quit(proxy).expect_code(0);
    machine.down();
}

/// No word of a submission is an option, and the number of a job is that of the queue.
#[test]
fn words_of_a_submission_are_only_words() {
    let sandbox = Sandbox::new();
    let machine = Machine::up(&sandbox, &["--host", "localhost:2"]);
    // Runs and jobs are counted apart from now on.
    let waits = machine.submit(&["--hold", "-n", "1", "true"]);
    machine.run(&["cancel", &waits]).expect_code(0);
    let (mut client, proxy) = start(&sandbox, Framing::Binary, &[]);
    client.open();
    let directory = format!("workingDir={}", sandbox.work().display());
    let words = ["jobSubId=W", "execName=echo", "jobNumProcs=1", &directory];
    let args = [
        "progArgs=a",
        "progArgs=:",
        "progArgs=-n",
        "progArgs=2",
        "progArgs=b",
    ];
    let env = ["env=RALLY_TIMEOUT=1s", "env=RALLY_HOSTFILE=/nowhere"];
    client.command(5, 1, &[&words[..], &args, &env].concat());
    let new = client.expect("220 ");
    assert!(new.contains(" name=2 "), "{new}");
    let job = new.split(' ').nth(3).unwrap().to_owned();
    client.expect(&format!("230 1 {job} 1 jobState=COMPLETED"));
    assert_eq!(client.output(&job, 0, "processStdout"), "a : -n 2 b\n");
    client.quit(proxy).expect_code(0);
    machine.down();
}
