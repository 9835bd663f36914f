//! Networks, addresses and ports between nodes: several networks, IPv6 alone, addresses that do not answer, firewalls.

use std::fs;

use super::{
    expect_no_daemon,
    host::{Family, Host, address, over},
};
use crate::harness::{Finished, Sandbox, dbgr};

const SAY: [&str; 4] = ["--", "sh", "-c", "echo $PMIX_RANK on $(hostname)"];
/// Commands of nftables that make a chain for rules of a test, and one that removes it.
const CHAIN: &str =
    "add table inet trial; add chain inet trial in { type filter hook input priority 0; };";
const NO_CHAIN: &str = "nft delete table inet trial";
/// Time for which a daemon waits for an answer.
const SILENCE: &str = "no answer within 5 s";

fn run(sandbox: &Sandbox, hosts: &str, args: &[&str]) -> Finished {
    let ended = sandbox.run(&mut over(sandbox, hosts, &[args, &SAY[..]].concat()));
    expect_no_daemon();
    ended
}

/// Changes of the head that end with the value. Its first node is only cleaned.
fn head() -> Host {
    Host::new(1)
}

/// Lets the head drop or reject connections to its own port at some of its addresses; ssh to nodes still works.
fn refuse_on_head(host: &mut Host, rules: &[String]) {
    let rules = rules
        .iter()
        .map(|rule| format!("add rule inet trial in {rule};"));
    let rules: String = rules.collect();
    host.on_head(&format!("nft '{CHAIN} {rules}'"), NO_CHAIN);
}

/// A rule for packets that open a connection to an address of the head.
fn opening(family: Family, verdict: &str) -> String {
    let protocol = match family {
        Family::Four => "ip",
        Family::Six => "ip6",
    };
    let to = address("head", family);
    format!("{protocol} daddr {to} tcp flags & (syn|ack) == syn {verdict}")
}

/// The head has a second network, which no node reaches.
#[test]
fn a_network_of_all_nodes_is_selected() {
    let sandbox = Sandbox::new();
    let mut head = head();
    head.on_head(
        "ip link add second type bridge && ip addr add 10.78.0.1/24 dev second && ip link set second up",
        "ip link del second",
    );
    for networks in ["br0,eth0", "10.77.0.0/16"] {
        let ended = run(&sandbox, "n1,n2", &["-n", "2", "--if-include", networks]);
        assert_eq!(ended.expect_code(0).sorted(), "0 on n1\n1 on n2");
    }
    run(
        &sandbox,
        "n1,n2",
        &["-n", "2", "--if-include", "second,eth0"],
    )
    .expect_code(123)
    .expect_err(&[
        "cannot start the daemon on `n[1-2]`: its daemon cannot connect to `rally`",
        "tried:  10.78.0.1:",
        "choose a network of all nodes with `--if-include`",
    ]);
}

#[test]
fn a_network_that_a_node_does_not_have_is_named() {
    let sandbox = Sandbox::new();
    let there = format!(
        "`br0` ({}, {})",
        address("head", Family::Four),
        address("head", Family::Six)
    );
    run(&sandbox, "n1", &["-n", "1", "--if-include", "ib7"])
        .expect_code(120)
        .expect_err(&["this node has no network `ib7`", &there]);
    run(&sandbox, "n1,n2", &["-n", "2", "--if-include", "br0"])
        .expect_code(123)
        .expect_err(&[
            "cannot start the daemon on `n[1-2]`: it has no network `br0`: its networks are `eth0`",
            "--if-include",
        ]);
}

/// The nodes are known by their IPv6 addresses, and IPv4 does not work between them.
#[test]
fn nodes_may_have_ipv6_alone() {
    let sandbox = Sandbox::new();
    let mut hosts = Vec::new();
    let nodes = [1, 2, 3].map(|number| {
        let mut host = Host::new(number);
        let no_ipv4 = "add rule inet trial in iifname eth0 meta nfproto ipv4 drop";
        host.run(&format!("nft '{CHAIN} {no_ipv4}'"));
        host.undo(NO_CHAIN);
        let name = address(&host.name(), Family::Six);
        // The value undoes its changes.
        hosts.push(host);
        name
    });
    let [one, two, three] = &nodes;
    let list = sandbox.file("hosts", format!("{one} slots=1\n[{two}]:1\n[{three}]\n"));
    let expected = "0 on n1\n1 on n2\n2 on n3";
    // Each daemon is the parent of the next one.
    let network = format!("{}/64", address("head", Family::Six));
    let options = ["-n", "3", "--radix", "1", "--if-include", &network];
    let named = format!("[{one}]:1,{two},[{three}]");
    assert_eq!(
        run(&sandbox, &named, &options).expect_code(0).sorted(),
        expected
    );
    let mut command = sandbox.rally(&["run", "--wdir", "/", "--hostfile", &list, "-n", "3"]);
    let ended = sandbox.run(command.args(SAY)).expect_code(0);
    assert_eq!(ended.sorted(), expected);
    expect_no_daemon();
}

/// The cluster's own network has no other listeners, so that these ports are free.
#[test]
fn a_range_of_ports_suffices_or_is_named() {
    let sandbox = Sandbox::new();
    let fork = |ports: &str| {
        let options = [
            "run",
            "--bootstrap",
            "fork",
            "--nodes",
            "4",
            "--port-range",
            ports,
        ];
        let ended = sandbox.run(sandbox.rally(&options).args(["-n", "4", "echo", "here"]));
        expect_no_daemon();
        ended
    };
    fork("21600-21603")
        .expect_code(0)
        .expect_out("here\nhere\nhere\nhere\n");
    fork("21600-21602").expect_code(123).expect_err(&[
        "no port is free in 21600-21602",
        "2 other nodes can be used",
        "give more ports with `--port-range`",
    ]);
    let taken = std::net::TcpListener::bind("[::]:21600").unwrap();
    fork("21600-21600").expect_code(123).expect_err(&[
        "no port is free in 21600-21600",
        "give more ports with `--port-range`",
    ]);
    drop(taken);
}

/// Debian's installer gives the name of a computer this address in its own /etc/hosts.
#[test]
fn names_may_resolve_to_the_loopback_interface() {
    let sandbox = Sandbox::new();
    let hosts = fs::read_to_string("/etc/hosts").unwrap();
    let with_own = |name: &str| {
        let others = hosts
            .lines()
            .filter(|line| line.split(' ').nth(1) != Some(name));
        let others: Vec<_> = others.collect();
        format!("127.0.1.1 {name}\n{}\n", others.join("\n"))
    };
    let mut node = Host::new(2);
    node.replace("/etc/hosts", &with_own("n2"));
    let own = sandbox.file("own", with_own("head"));
    node.on_head(
        &format!("mount --bind {own} /etc/hosts"),
        "umount /etc/hosts",
    );
    assert!(
        fs::read_to_string("/etc/hosts")
            .unwrap()
            .starts_with("127.0.1.1 head")
    );
    assert!(node.run("getent hosts n2").starts_with("127.0.1.1"));
    for options in [&["-n", "4"][..], &["-n", "4", "--radix", "1"]] {
        let ended = run(&sandbox, "localhost,n1,n2,n3", options).expect_code(0);
        assert_eq!(ended.sorted(), "0 on head\n1 on n1\n2 on n2\n3 on n3");
    }
}

#[test]
fn an_address_that_does_not_answer_does_no_harm() {
    let sandbox = Sandbox::new();
    for dead in [Family::Four, Family::Six] {
        let mut head = head();
        refuse_on_head(&mut head, &[opening(dead, "drop")]);
        let ended = run(&sandbox, "n1,n2", &["-n", "2"]).expect_code(0);
        assert_eq!(ended.sorted(), "0 on n1\n1 on n2");
    }
}

/// The firewall of the head lets only ssh out. The daemon names each address, and what became of it.
#[test]
fn addresses_that_cannot_be_reached_are_all_named() {
    let sandbox = Sandbox::new();
    let mut head = head();
    let rules = [
        opening(Family::Four, "drop"),
        opening(Family::Six, "reject with tcp reset"),
    ];
    refuse_on_head(&mut head, &rules);
    let ports = "21610-21610";
    let four = format!("{}:21610: {SILENCE}", address("head", Family::Four));
    let six = format!(
        "[{}]:21610: connection refused",
        address("head", Family::Six)
    );
    run(&sandbox, "n1,n2", &["-n", "2", "--port-range", ports])
        .expect_code(123)
        .expect_err(&[
            "cannot start the daemon on `n[1-2]`: its daemon cannot connect to `rally`",
            &four,
            &six,
            "ports that firewalls let through with `--port-range`",
        ]);
}

/// The agents of `dbgr` have the same options, and its messages the same reasons.
#[test]
fn networks_and_ports_of_a_debugger_are_named_too() {
    let sandbox = Sandbox::new();
    let stacks = |options: &[&str]| {
        let mut command = sandbox.command(dbgr());
        command.args(["stacks", "--hosts", "n1", "--name", "sshd"]);
        let said = sandbox.run(command.args(options)).err();
        expect_no_daemon();
        said
    };
    let said = stacks(&["--if-include", "ib7"]);
    assert!(said.contains("this node has no network `ib7`"), "{said}");
    let said = stacks(&["--if-include", "br0"]);
    let why = "n1 could not be searched: it has no network `br0`: its networks are `eth0`\n";
    assert!(said.contains(why), "{said}");
    let taken = std::net::TcpListener::bind("[::]:21620").unwrap();
    let said = stacks(&["--port-range", "21620-21620"]);
    drop(taken);
    for words in [
        "no port is free in 21620-21620",
        "give more ports with `--port-range`",
    ] {
        assert!(said.contains(words), "{said}");
    }
}
