//! Processes that do not belong to the session connect to the port of the controller or of a daemon while a job runs. There is one
//! message for each host, and the job is not disturbed.

use std::{
    fs,
    io::{BufRead as _, BufReader},
    net::SocketAddr,
    process::{Child, Stdio},
};

use super::{
    expect_no_daemon,
    host::{command_on, over},
};
use crate::harness::{Sandbox, Stream, testdata};

/// The port of the controller and of all daemons: each node has a network of its own.
const PORT: u32 = 21_500;

/// A stranger: the number of its node, its user, and what it does.
type Stranger = (u32, u32, &'static str);

/// Sends a byte now and then.
const SLOW: Stranger = (4, 0, "slow");
/// Opens more connections than may wait for their handshake. Meanwhile other strangers may be refused without a message.
const FLOOD: Stranger = (5, 0, "flood");
/// The first one learns the preamble of the session's processes, which others use.
const FAST: [Stranger; 9] = [
    (6, 0, "older"),
    (7, 0, "newer"),
    (8, 0, "build"),
    (9, 0, "garbage"),
    (10, 0, "browser"),
    (11, 0, "secret"),
    (12, 0, "replay"),
    (13, 0, "scan"),
    // Another user of a node of the job.
    (2, 65_534, "secret"),
];

fn start((node, user, kind): Stranger, words: &str) -> Child {
    let script = testdata("node/stranger.py");
    let script = script.display();
    let command =
        format!("exec setpriv --reuid {user} --clear-groups python3 {script} {kind} {words}");
    let mut command = command_on(node, &command);
    command.stdout(Stdio::piped()).spawn().unwrap()
}

/// Waits until a stranger was refused, and returns the answer that it got.
fn end(stranger: Child) -> String {
    let output = stranger.wait_with_output().unwrap();
    assert!(output.status.success(), "{output:?}");
    String::from_utf8(output.stdout).unwrap()
}

/// Runs a job over three nodes while strangers connect to `target`, and returns what the user reads.
fn messages(target: &str) -> String {
    let sandbox = Sandbox::new();
    let go = format!("/run/cluster/go-{}", std::process::id());
    let mut recorder = start((1, 0, "record"), "");
    let mut recorded = BufReader::new(recorder.stdout.take().unwrap()).lines();
    assert_eq!(recorded.next().unwrap().unwrap(), "ready");
    let script = format!("echo up; while ! [ -e {go} ]; do sleep 0.05; done; seq 20000");
    let ports = format!("{PORT}-{PORT}");
    let mut command = over(&sandbox, "n1,n2,n3", &["-n", "3", "--port-range", &ports]);
    let job = sandbox.start(command.args(["--", "sh", "-c", &script]));
    job.expect_times(Stream::Stdout, "up", 3);
    let recorded = recorded.next().unwrap().unwrap();
    recorder.wait().unwrap();

    let at = format!("{target} {PORT}");
    let slow = start(SLOW, &at);
    let mut preamble = String::new();
    for stranger in FAST {
        let bytes = match stranger.2 {
            "build" | "secret" => &preamble,
            "replay" => &recorded,
            _ => "",
        };
        let answer = end(start(stranger, &format!("{at} {bytes}")));
        if stranger.2 == "older" {
            preamble = answer;
        }
    }
    end(slow);
    end(start(FLOOD, &at));
    fs::write(&go, "").unwrap();
    let ended = job.end().expect_code(0);
    fs::remove_file(&go).unwrap();
    assert_eq!(ended.out().lines().count(), 3 + 3 * 20_000);
    expect_no_daemon();
    readable(&ended.err(), &preamble)
}

/// Replaces addresses by the names of their nodes, and the name of our build. Returns the first lines of the messages, sorted.
fn readable(text: &str, preamble: &str) -> String {
    let hosts = fs::read_to_string("/etc/hosts").unwrap();
    let name = |word: &str| {
        let address: SocketAddr = word.trim_end_matches(':').parse().ok()?;
        let ip = address.ip().to_string();
        let mut lines = hosts.lines().filter_map(|line| line.split_once(' '));
        let (_, name) = lines.find(|(address, _)| *address == ip)?;
        Some(format!(
            "{name}{}",
            if word.ends_with(':') { ":" } else { "" }
        ))
    };
    // Magic bytes, version and length are before the build.
    let build = preamble.as_bytes().chunks(2).skip(7).map(|digits| {
        let digits = std::str::from_utf8(digits).unwrap();
        u8::from_str_radix(digits, 16).unwrap()
    });
    let build = String::from_utf8(build.collect()).unwrap();
    let version = u8::from_str_radix(&preamble[8..10], 16).unwrap();
    let text = text.replace(&build, "OURS");
    let text = text.replace(&format!("we speak {version};"), "we speak OURS;");
    let words = |line: &str| {
        let words = line
            .split(' ')
            .map(|word| name(word).unwrap_or_else(|| word.to_owned()));
        words.collect::<Vec<_>>().join(" ")
    };
    let headlines = text
        .lines()
        .filter_map(|line| line.strip_prefix("warning: "));
    let mut headlines: Vec<String> = headlines.map(words).collect();
    assert_eq!(
        text.matches("effect: none: the job goes on").count(),
        headlines.len()
    );
    headlines.sort();
    headlines.join("\n")
}

#[test]
fn strangers_at_the_port_of_the_controller() {
    insta::assert_snapshot!(messages("head"), @"
    refused a connection from n10: the peer speaks another protocol
    refused a connection from n11: the peer does not know the secret of this session
    refused a connection from n12: a record was changed on its way
    refused a connection from n13: the connection was closed during the handshake
    refused a connection from n2: the peer does not know the secret of this session
    refused a connection from n4: no answer within 5 s
    refused a connection from n5: no answer within 5 s
    refused a connection from n6: the peer speaks version 0 of the protocol of nodes, and we speak OURS; it is `rally 0.0.9 (0123456789abcdef)`
    refused a connection from n7: the peer speaks version 999 of the protocol of nodes, and we speak OURS; it is `rally 9.0.0 (0123456789abcdef)`
    refused a connection from n8: the peer is `rally 0.1.0 (0123456789abcdef)`, and we are `OURS`
    refused a connection from n9: the peer speaks another protocol
    ");
}

/// A daemon cannot distinguish a port scan from a daemon that has reached it at another address, and says nothing.
#[test]
fn strangers_at_the_port_of_a_daemon() {
    insta::assert_snapshot!(messages("n1"), @"
    refused a connection from n10 to the daemon on `n1`: the peer speaks another protocol
    refused a connection from n11 to the daemon on `n1`: the peer does not know the secret of this session
    refused a connection from n12 to the daemon on `n1`: a record was changed on its way
    refused a connection from n2 to the daemon on `n1`: the peer does not know the secret of this session
    refused a connection from n4 to the daemon on `n1`: no answer within 5 s
    refused a connection from n5 to the daemon on `n1`: no answer within 5 s
    refused a connection from n6 to the daemon on `n1`: the peer speaks version 0 of the protocol of nodes, and we speak OURS; it is `rally 0.0.9 (0123456789abcdef)`
    refused a connection from n7 to the daemon on `n1`: the peer speaks version 999 of the protocol of nodes, and we speak OURS; it is `rally 9.0.0 (0123456789abcdef)`
    refused a connection from n8 to the daemon on `n1`: the peer is `rally 0.1.0 (0123456789abcdef)`, and we are `OURS`
    refused a connection from n9 to the daemon on `n1`: the peer speaks another protocol
    ");
}
