//! Debug launches, with a debugger that tells what it was given.

use std::{
    fs,
    io::{BufRead as _, BufReader},
    net::TcpListener,
};

use ptp::Framing;

use super::client::{Client, start};
use crate::{
    harness::{DEADLINE, Running, Sandbox, eventually},
    machine::Machine,
};

/// Says who it is and what it got, in a file of its rank, and waits. The one whose rank is that of the first line of the routing file connects to
/// its client.
const DEBUGGER: &str = r#"#!/bin/bash
echo "rank $OMPI_COMM_WORLD_RANK $PMI_RANK" > said.$PMI_RANK.new
for word; do echo "[$word]"; done >> said.$PMI_RANK.new
mv said.$PMI_RANK.new said.$PMI_RANK
if [ -n "$ROUTED" ]; then
    until [ -e routing_file ]; do sleep 0.02; done
    if [ "$(head -n 1 routing_file)" = $PMI_RANK ]; then
        for word; do case $word in --port=*) exec 3<>/dev/tcp/127.0.0.1/${word#--port=};; esac; done
        echo "master $PMI_RANK" >&3
        echo "out of the master"
    fi
fi
exec sleep 1000
"#;

struct Debugged {
    client: Client,
    proxy: Running,
    listener: TcpListener,
    job: String,
}

/// Submits a debugged job of two processes, as this dialect wants it.
fn submit(sandbox: &Sandbox, framing: Framing, options: &[&str], routed: bool) -> Debugged {
    let (mut client, proxy) = start(sandbox, framing, options);
    client.open();
    // One of an earlier job.
    sandbox.file("routing_file", "9\n");
    let debugger = sandbox.file("sdm", DEBUGGER);
    sandbox
        .shell(&format!("chmod 755 {debugger}"))
        .status()
        .unwrap();
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    let work = sandbox.work().display().to_string();
    let words = [
        "jobSubId=D".to_owned(),
        "execName=true".to_owned(),
        "progArgs=of the program".to_owned(),
        "jobNumProcs=2".to_owned(),
        format!("workingDir={work}"),
        "debug=true".to_owned(),
        "debugExecName=sdm".to_owned(),
        format!("debugExecPath={work}"),
        "debugArgs=--host=127.0.0.1".to_owned(),
        format!("debugArgs=--port={port}"),
        "debugArgs=a b=c".to_owned(),
        format!("env=ROUTED={}", if routed { "yes" } else { "" }),
    ];
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    client.command(5, 1, &words);
    let job = client.new_job();
    client.expect(&format!("230 1 {job} 1 jobState=RUNNING"));
    Debugged {
        client,
        proxy,
        listener,
        job,
    }
}

/// Returns what the debugger of a rank has said.
fn said(sandbox: &Sandbox, rank: u32) -> String {
    let file = sandbox.path(&format!("said.{rank}"));
    let found = eventually(DEADLINE, || fs::read_to_string(&file).ok());
    found.expect("the debugger says what it got")
}

/// N servers and a master, as PTP 2 wants them: all are started in place of the program.
#[test]
fn a21_to_a26_debuggers_with_a_master() {
    let sandbox = Sandbox::new();
    let machine = Machine::up(&sandbox, &["--host", "localhost:3"]);
    let dialect = ["--dialect=2.0"];
    let Debugged {
        mut client,
        proxy,
        listener,
        job,
    } = submit(&sandbox, Framing::Ascii, &dialect, true);
    // The master, rank 2, has found the file and its client.
    let (socket, _) = listener.accept().unwrap();
    let mut line = String::new();
    BufReader::new(socket).read_line(&mut line).unwrap();
    assert_eq!(line, "master 2\n");
    let port = listener.local_addr().unwrap().port();
    for rank in 0..3 {
        assert_eq!(
            said(&sandbox, rank),
            format!(
                "rank {rank} {rank}\n[--host=127.0.0.1]\n[--port={port}]\n[a b=c]\n[--jobid=1]\n"
            )
        );
    }
    let routes = sandbox.read("routing_file");
    let lines: Vec<&str> = routes.lines().collect();
    assert_eq!(lines.len(), 3, "{routes}");
    assert_eq!(lines[0], "2");
    let host = fs::read_to_string("/proc/sys/kernel/hostname").unwrap();
    for (rank, line) in lines[1..].iter().enumerate() {
        let words: Vec<&str> = line.split(' ').collect();
        assert_eq!(words[..2], [rank.to_string().as_str(), host.trim()]);
        assert!(words[2].parse::<u16>().unwrap() >= 50_000, "{routes}");
    }
    // The client knows the two processes of the program, which its debugger starts.
    let processes = client.heard.iter().find(|event| event.starts_with("223 "));
    let processes = processes.unwrap();
    assert!(
        processes.starts_with(&format!("223 {job} 2 1005 ")),
        "{processes}"
    );
    assert!(
        processes.matches("processPID=0").count() == 2,
        "{processes}"
    );
    client.expect("1 3 messageLevel=INFO messageCode=0 messageText=out of the master");
    let all_wait = || (sandbox.find("sleep 1000").len() == 3).then_some(());
    assert!(eventually(DEADLINE, all_wait).is_some());
    client.command(6, 1, &[&format!("jobId={job}")]);
    client.expect("0 ");
    client.expect(&format!("230 1 {job} 1 jobState=TERMINATED"));
    assert_eq!(sandbox.find("sleep 1000").len(), 0);
    client.quit(proxy).expect_code(0);
    machine.down();
}

/// N servers, as later versions want them. The client writes the file and starts the master.
#[test]
fn a23_servers_alone() {
    let sandbox = Sandbox::new();
    let machine = Machine::up(&sandbox, &["--host", "localhost:2"]);
    let Debugged {
        client,
        proxy,
        listener,
        job,
    } = submit(&sandbox, Framing::Binary, &[], false);
    let port = listener.local_addr().unwrap().port();
    for rank in 0..2 {
        assert_eq!(
            said(&sandbox, rank),
            format!("rank {rank} {rank}\n[--host=127.0.0.1]\n[--port={port}]\n[a b=c]\n")
        );
    }
    assert!(!sandbox.path("routing_file").exists());
    let begin = format!("223 {job} 2 0 5 name=0 processNodeId=1002 processIndex=0");
    assert!(
        client.heard.iter().any(|event| event.starts_with(&begin)),
        "{:#?}",
        client.heard
    );
    client.quit(proxy).expect_code(0);
    machine.expect_state("1", "failed");
    machine.down();
}

/// The debugger of PTP cannot attach; `dbgr` can, when the program runs.
#[test]
fn a27_dbgr_attaches_to_a_program_that_runs() {
    let sandbox = Sandbox::new();
    let machine = Machine::up(&sandbox, &["--host", "localhost:2"]);
    let (mut client, proxy) = start(&sandbox, Framing::Binary, &[]);
    client.open();
    let directory = format!("workingDir={}", sandbox.work().display());
    let words = [
        "jobSubId=A",
        "execName=sleep",
        "progArgs=1000",
        "jobNumProcs=2",
        &directory,
        "debug=true",
        "debugAttach=true",
    ];
    client.command(5, 1, &[&words[..], &["debugExecName=sdm"]].concat());
    let refused = client.expect("211 3 jobSubId=A ");
    assert!(
        refused.contains("`sdm` cannot attach to a program that runs"),
        "{refused}"
    );
    assert!(machine.states().is_empty());
    let attach = [
        "debugExecName=dbgr",
        "debugArgs=stacks",
        "debugArgs=--local",
    ];
    client.command(5, 1, &[&words[..], &attach].concat());
    let job = client.new_job();
    // Its ranks are those of the program, with their pids.
    client.expect(&format!("230 1 {job} 1 jobState=RUNNING"));
    let processes = client.heard.iter().find(|event| event.starts_with("223 "));
    assert!(!processes.unwrap().contains("processPID=0"));
    let said = client.expect("1 3 messageLevel=INFO messageCode=0 messageText=");
    assert!(said.contains("sleep"), "{said}");
    client.quit(proxy).expect_code(0);
    machine.down();
}

/// What the master prints waits for the client, too.
#[test]
fn a15_a_master_that_prints_much_costs_no_memory() {
    let sandbox = Sandbox::new();
    let machine = Machine::up(&sandbox, &["--host", "localhost:2"]);
    let (mut client, proxy) = start(&sandbox, Framing::Ascii, &["--dialect=2.0"]);
    client.open();
    let directory = format!("workingDir={}", sandbox.work().display());
    let words = [
        "jobSubId=M",
        "execName=true",
        "jobNumProcs=1",
        &directory,
        "debug=true",
        "debugExecName=sh",
        "debugArgs=-c",
        "debugArgs=[ $RALLY_RANK = 0 ] || yes | head -c 100000000; echo the end > end.$RALLY_RANK",
    ];
    client.command(8, 2, &[]);
    client.command(5, 1, &words);
    client.expect("0 ");
    let first = sandbox.path("end.0");
    assert!(eventually(DEADLINE, || first.exists().then_some(())).is_some());
    // The master has stopped when its progress is the same for a while.
    let mut last = (0, 0);
    let is_still = || {
        let head = sandbox.find("head -c 100000000");
        let head = head.into_iter().find(|it| it.args.starts_with("head"))?;
        let io = fs::read_to_string(format!("/proc/{}/io", head.pid)).ok()?;
        let line = io.lines().find_map(|line| line.strip_prefix("wchar: "))?;
        let written: u64 = line.parse().ok()?;
        last = if written == last.0 {
            (written, last.1 + 1)
        } else {
            (written, 0)
        };
        (last.1 > 50).then_some(())
    };
    assert!(eventually(DEADLINE, is_still).is_some());
    let status = fs::read_to_string(format!("/proc/{}/status", proxy.pid)).unwrap();
    let peak = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
    let peak: u64 = peak
        .unwrap()
        .split_whitespace()
        .next()
        .unwrap()
        .parse()
        .unwrap();
    assert!(peak < 96 << 10, "{peak} KiB");
    client.quit(proxy).expect_code(0);
    machine.down();
}
