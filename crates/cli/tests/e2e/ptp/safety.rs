//! Who may connect, and clients that misbehave.

use std::{
    fs,
    io::Write as _,
    net::{TcpListener, TcpStream},
};

use ptp::{Framing, Packet, encode};

use super::client::start;
use crate::{
    harness::{Running, Sandbox, Stream, eventually},
    machine::Machine,
};

/// Starts a proxy, and returns the connection of its client.
fn plain(sandbox: &Sandbox) -> (TcpStream, Running) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port().to_string();
    let mut command = sandbox.rally(&["ptp-proxy", "--host=127.0.0.1", "--port", &port]);
    let proxy = sandbox.start(&mut command);
    (listener.accept().unwrap().0, proxy)
}

#[test]
fn other_addresses_need_an_option() {
    let sandbox = Sandbox::new();
    let machine = Machine::up(&sandbox, &[]);
    sandbox
        .run_rally(&["ptp-proxy", "--listen=0.0.0.0:0"])
        .expect_code(120)
        .expect_err(&["is no loopback address", "--anyone-may-connect"]);
    sandbox
        .run_rally(&["ptp-proxy", "--listen=localhost:1"])
        .expect_code(120)
        .expect_err(&["`localhost:1`", "it is no address with a port"]);
    let mut command = sandbox.rally(&["ptp-proxy", "--listen=0.0.0.0:0", "--anyone-may-connect"]);
    let proxy = sandbox.start(&mut command);
    proxy.expect(Stream::Stdout, "0.0.0.0:");
    let address = proxy
        .so_far(Stream::Stdout)
        .trim()
        .replace("0.0.0.0", "127.0.0.1");
    let mut client = super::Client::over(TcpStream::connect(address).unwrap(), Framing::Binary);
    client.open();
    client.quit(proxy).expect_code(0);
    machine.down();
}

/// Runs a line of bash as another user. Only root can.
fn as_nobody(sandbox: &Sandbox, line: &str) -> std::process::Command {
    let mut command = sandbox.command("setpriv");
    command.args([
        "--reuid=65534",
        "--regid=65534",
        "--clear-groups",
        "bash",
        "-c",
        line,
    ]);
    command
}

/// The kernel says who has the other end: as a client that connects, and as one that listens.
#[test]
fn another_user_is_refused() {
    if !nix::unistd::geteuid().is_root() {
        eprintln!("not checked: only root can be another user");
        return;
    }
    let sandbox = Sandbox::new();
    let machine = Machine::up(&sandbox, &[]);
    let proxy = sandbox.start(&mut sandbox.rally(&["ptp-proxy", "--listen=127.0.0.1:0"]));
    proxy.expect(Stream::Stdout, "127.0.0.1:");
    let address = proxy.so_far(Stream::Stdout).trim().to_owned();
    let line = format!("exec 3<>/dev/tcp/{}; cat <&3", address.replace(':', "/"));
    sandbox.run(&mut as_nobody(&sandbox, &line)).expect_code(0);
    proxy.expect(Stream::Stderr, "user 65534 has its other end");
    // The next one may be ours.
    let mut client = super::Client::over(TcpStream::connect(address).unwrap(), Framing::Binary);
    client.open();
    client.quit(proxy).expect_code(0);
    let script = "import socket; s = socket.socket(); s.bind(('127.0.0.1', 0)); s.listen(); \
                  print(s.getsockname()[1], flush=True); c = s.accept()[0]; \
                  c.sendall(bytes(9)); c.recv(1)";
    let line = format!("exec python3 -c \"{script}\"");
    let other = sandbox.start(&mut as_nobody(&sandbox, &line));
    other.expect(Stream::Stdout, "\n");
    let port = other.so_far(Stream::Stdout).trim().to_owned();
    sandbox
        .run_rally(&["ptp-proxy", "--host=127.0.0.1", "--port", &port])
        .expect_code(141)
        .expect_err(&["user 65534 has its other end"]);
    other.end();
    machine.down();
}

/// A packet that is none ends the session, with one line that says why.
#[test]
fn a03_what_is_no_packet_ends_the_session() {
    let zeros = [&b"\0\0\x04\x05\x50\0\0\0\x10"[..], &[0; 1024], &[0xff; 8]].concat();
    let endless = [&b"\0\0\x04\x05\x40\xff\xff\xff\xff"[..], &[0xff; 1024]].concat();
    let cases: [&[u8]; 8] = [
        b"<html>",
        b"ffffffff 0001:00000000:00000000",
        b"00000017 0001:00000000:ffffffff",
        b"\xff\xff\xff\xff\0\0\0\0",
        b"\0\0\0\x04\x08\0\0\0",
        b"\0\0\0\x07\0\xff\xff\xff\xff\xff\xff",
        &zeros,
        &endless,
    ];
    let sandbox = Sandbox::new();
    let machine = Machine::up(&sandbox, &[]);
    for case in cases {
        let (mut client, proxy) = plain(&sandbox);
        client.write_all(case).unwrap();
        let finished = proxy.end().expect_code(125);
        assert_eq!(
            finished.err().matches("error: ").count(),
            1,
            "{case:?}: {finished:?}"
        );
    }
    machine.down();
}

/// Wherever a client breaks off, the proxy ends, and nothing is left running.
#[test]
fn a19_a_client_may_break_off_anywhere() {
    let sandbox = Sandbox::new();
    let machine = Machine::up(&sandbox, &["--host", "localhost:2"]);
    let directory = format!("workingDir={}", sandbox.work().display());
    let command = |id, transaction, args: &[&str]| {
        let args = args.iter().map(|arg| arg.as_bytes().to_vec()).collect();
        let packet = Packet {
            id,
            transaction,
            args,
        };
        encode(&packet, Framing::Ascii).unwrap()
    };
    let job = [
        "jobSubId=J",
        "execName=sleep",
        "progArgs=1000",
        "jobNumProcs=2",
    ];
    let session = [
        command(1, 0, &["version=2.0", "baseId=0"]),
        command(3, 0, &[]),
        command(5, 1, &[&job[..], &[directory.as_str()]].concat()),
        command(6, 2, &["jobId=4"]),
    ]
    .concat();
    for cut in (0..=session.len()).step_by(session.len() / 12) {
        let (mut client, proxy) = plain(&sandbox);
        client.write_all(&session[..cut]).unwrap();
        drop(client);
        proxy
            .end()
            .expect_code(141)
            .expect_err(&["the client has closed the connection"]);
    }
    let is_idle = || {
        let states = machine.states();
        (!states.values().any(|state| state == "running")).then_some(())
    };
    assert!(eventually(crate::harness::DEADLINE, is_idle).is_some());
    assert_eq!(sandbox.find("sleep 1000").len(), 0);
    machine.down();
}

/// A client that does not read stops the output of its jobs, and nothing else grows.
#[test]
fn a15_a_client_that_does_not_read_costs_no_memory() {
    let sandbox = Sandbox::new();
    let machine = Machine::up(&sandbox, &["--host", "localhost:1"]);
    let (mut client, proxy) = start(&sandbox, Framing::Binary, &[]);
    client.open();
    let script = "yes 'a line of output' | head -c 200000000; echo done > done";
    let job = client.submit(&sandbox, 1, script);
    client.expect(&format!("230 1 {job} 1 jobState=RUNNING"));
    // Everything is full when the rank has stopped writing for a while.
    let rank = || {
        sandbox
            .find("head -c 200000000")
            .into_iter()
            .find(|it| it.args.starts_with("head"))
    };
    let written = || {
        let io = fs::read_to_string(format!("/proc/{}/io", rank()?.pid)).ok()?;
        let line = io.lines().find(|line| line.starts_with("wchar"))?;
        Some(line.to_owned())
    };
    let mut last = None;
    let mut times = 0;
    let is_still = || {
        let now = written();
        let is_same = now.is_some() && now == last;
        times = if is_same { times + 1 } else { 0 };
        last = now;
        (times > 50).then_some(())
    };
    assert!(eventually(crate::harness::DEADLINE, is_still).is_some());
    let status = fs::read_to_string(format!("/proc/{}/status", proxy.pid)).unwrap();
    let peak = status
        .lines()
        .find(|line| line.starts_with("VmHWM"))
        .unwrap();
    let peak: u64 = peak.split_whitespace().nth(1).unwrap().parse().unwrap();
    assert!(peak < 96 << 10, "{peak} KiB");
    assert!(!sandbox.path("done").exists());
    // It reads after all, and nothing is lost.
    client.expect(&format!("230 1 {job} 1 jobState=COMPLETED"));
    assert_eq!(client.output(&job, 0, "processStdout").len(), 200_000_000);
    client.quit(proxy).expect_code(0);
    machine.down();
}
