//! The network of a cluster: a bridge on the head, a cable from it to each node, and disturbances.

use std::{
    io::Write as _,
    process::{Command, Stdio},
};

use anyhow::{Context as _, Result, bail};

use super::plan::{Node, Plan};

/// Commands that make the bridge on the head.
pub(super) fn bridge(plan: &Plan) -> String {
    let (ipv4, ipv6) = (plan.ipv4(Node::Head), plan.ipv6(Node::Head));
    format!(
        "link set lo up\n\
         link add br0 type bridge\n\
         addr add {ipv4}/24 dev br0\n\
         addr add {ipv6}/64 dev br0 nodad\n\
         link set br0 up\n"
    )
}

/// Commands on the head that connect the network namespace of the process `pid`.
pub(super) fn cable(node: Node, pid: u32) -> String {
    let cable = cable_of(node);
    format!(
        "link add {cable} type veth peer name eth0 netns {pid}\n\
         link set {cable} master br0\n\
         link set {cable} up\n"
    )
}

/// Commands on a node that set up its end of the cable.
pub(super) fn interface(plan: &Plan, node: Node) -> String {
    let (ipv4, ipv6) = (plan.ipv4(node), plan.ipv6(node));
    format!(
        "link set lo up\n\
         addr add {ipv4}/24 dev eth0\n\
         addr add {ipv6}/64 dev eth0 nodad\n\
         link set eth0 up\n"
    )
}

/// State of the cable of a node.
#[derive(Clone, Copy, Debug)]
pub(super) enum Link {
    Up,
    Down,
}

/// Command on the head that sets the state of a cable. The head's end is used, because the node would lose its IPv6 address with
/// its own end.
pub(super) fn link(node: Node, link: Link) -> String {
    let state = match link {
        Link::Up => "up",
        Link::Down => "down",
    };
    format!("link set {} {state}\n", cable_of(node))
}

/// Returns the head's end of a cable.
pub(super) fn cable_of(node: Node) -> String {
    match node {
        Node::Head => "br0".to_owned(),
        Node::Number(number) => format!("v{number}"),
    }
}

/// Packets that a node drops without a message to anyone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Dropped {
    All,
    /// Those from and to this port of the node.
    Port(u16),
}

/// Rules of nftables on a node that drop packets.
pub(super) fn rules(dropped: Dropped) -> String {
    let (incoming, outgoing) = match dropped {
        Dropped::All => (String::new(), String::new()),
        Dropped::Port(port) => (
            format!("meta l4proto {{ tcp, udp }} th dport {port} "),
            format!("meta l4proto {{ tcp, udp }} th sport {port} "),
        ),
    };
    format!(
        "table inet cluster {{\n\
         chain incoming {{ type filter hook input priority 0; iifname eth0 {incoming}drop; }}\n\
         chain outgoing {{ type filter hook output priority 0; oifname eth0 {outgoing}drop; }}\n\
         }}\n"
    )
}

/// Rules of nftables that delete those of [`rules`], whether they exist or not.
pub(super) const NO_RULES: &str = "table inet cluster\ndelete table inet cluster\n";

/// Runs a command with this text on stdin. Returns an error with its stderr if it fails.
pub(super) fn feed(command: &mut Command, text: &str) -> Result<()> {
    command
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .stderr(Stdio::piped());
    let program = command.get_program().to_owned();
    let program = program.display();
    let mut child = command
        .spawn()
        .with_context(|| format!("cannot run `{program}`"))?;
    if let Some(mut stdin) = child.stdin.take() {
        // A program that rejects its input closes the pipe: its stderr gives the reason.
        let _ = stdin.write_all(text.as_bytes());
    }
    let output = child.wait_with_output()?;
    if !output.status.success() {
        let said = String::from_utf8_lossy(&output.stderr);
        bail!("`{program}` ended with {}: {}", output.status, said.trim());
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn commands_for_cables() {
        let plan = Plan {
            name: "a1".to_owned(),
            nodes: 2,
            slurm: false,
        };
        let node = Node::Number(2);
        let all = [
            bridge(&plan),
            cable(node, 77),
            interface(&plan, node),
            link(node, Link::Down),
        ];
        insta::assert_snapshot!(all.join("--\n"), @r"
        link set lo up
        link add br0 type bridge
        addr add 10.77.173.254/24 dev br0
        addr add fd77:ad::fe/64 dev br0 nodad
        link set br0 up
        --
        link add v2 type veth peer name eth0 netns 77
        link set v2 master br0
        link set v2 up
        --
        link set lo up
        addr add 10.77.173.2/24 dev eth0
        addr add fd77:ad::2/64 dev eth0 nodad
        link set eth0 up
        --
        link set v2 down
        ");
    }

    #[test]
    fn rules_for_packets() {
        insta::assert_snapshot!(rules(Dropped::All), @r"
        table inet cluster {
        chain incoming { type filter hook input priority 0; iifname eth0 drop; }
        chain outgoing { type filter hook output priority 0; oifname eth0 drop; }
        }
        ");
        insta::assert_snapshot!(rules(Dropped::Port(22)), @r"
        table inet cluster {
        chain incoming { type filter hook input priority 0; iifname eth0 meta l4proto { tcp, udp } th dport 22 drop; }
        chain outgoing { type filter hook output priority 0; oifname eth0 meta l4proto { tcp, udp } th sport 22 drop; }
        }
        ");
    }
}
