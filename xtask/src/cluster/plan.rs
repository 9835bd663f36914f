//! What a cluster is made of, as text: names, addresses and configuration files. Nothing here touches the machine.

use std::{fmt::Write as _, path::Path};

use anyhow::{Result, bail};
use serde_json::{Value, json};

/// Name of the node on which commands are started.
pub(super) const HEAD: &str = "head";

/// Maximum number of nodes: the addresses of one subnet, without that of the head.
pub(super) const NODES_MAX: u32 = 200;

/// Maximum length of the name of a cluster.
const NAME_MAX: usize = 32;

/// Last number in the addresses of the head.
const HEAD_NUMBER: u32 = 254;

/// Files of the cluster, as its own processes see them. The path is short, because it contains sockets.
pub(super) const FILES: &str = "/run/cluster";

/// Name of the file that records a cluster, among its files and in its directory on the machine.
pub(super) const RECORD: &str = "bed.json";

/// Number of CPUs that each node reports to Slurm.
const CPUS: u32 = 4;

/// A node of a cluster.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Node {
    Head,
    /// Number from 1.
    Number(u32),
}

impl Node {
    /// Returns the node with this name.
    pub(super) fn named(name: &str) -> Result<Self> {
        if name == HEAD {
            return Ok(Self::Head);
        }
        let number = name
            .strip_prefix('n')
            .and_then(|digits| digits.parse().ok());
        match number {
            // A second spelling of a name, such as n01, is an error.
            Some(number) if Self::Number(number).name() == name => Ok(Self::Number(number)),
            _ => bail!("`{name}` is not a node: nodes are named `n1`, `n2`, ..., and `{HEAD}`"),
        }
    }

    pub(super) fn name(self) -> String {
        match self {
            Self::Head => HEAD.to_owned(),
            Self::Number(number) => format!("n{number}"),
        }
    }

    /// Returns the last number of the node's addresses.
    const fn number(self) -> u32 {
        match self {
            Self::Head => HEAD_NUMBER,
            Self::Number(number) => number,
        }
    }
}

/// Returns the default name for the cluster of a checkout: its directory's name and a hash of its path.
pub(super) fn default_name(checkout: &Path) -> String {
    let directory = checkout.file_name().unwrap_or_default().to_string_lossy();
    let plain: String = directory
        .chars()
        .filter(char::is_ascii_alphanumeric)
        .take(16)
        .collect();
    format!(
        "{}-{:04x}",
        plain.to_ascii_lowercase(),
        hash(checkout.as_os_str().as_encoded_bytes()) % 0x1_0000
    )
}

/// Checks the name of a cluster, which becomes the name of a directory.
pub(super) fn check_name(name: &str) -> Result<()> {
    let permitted = |one: char| one.is_ascii_alphanumeric() || one == '-';
    if name.is_empty() || name.len() > NAME_MAX || !name.chars().all(permitted) {
        bail!("`{name}` is not a name of a cluster: 1 to {NAME_MAX} letters, digits and hyphens");
    }
    Ok(())
}

/// Returns the FNV-1a hash, which is the same in every run.
fn hash(bytes: &[u8]) -> u64 {
    bytes.iter().fold(0xcbf2_9ce4_8422_2325, |hash, byte| {
        (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3)
    })
}

/// The nodes of a cluster, and what runs on them.
#[derive(Clone, Debug)]
pub(super) struct Plan {
    pub(super) name: String,
    pub(super) nodes: u32,
    pub(super) slurm: bool,
}

impl Plan {
    /// Returns what [`Plan::recorded`] reads.
    pub(super) fn record(&self) -> Value {
        let Self { name, nodes, slurm } = self;
        json!({ "name": name, "nodes": nodes, "slurm": slurm })
    }

    pub(super) fn recorded(record: &Value) -> Option<Self> {
        Some(Self {
            name: record["name"].as_str()?.to_owned(),
            nodes: u32::try_from(record["nodes"].as_u64()?).ok()?,
            slurm: record["slurm"].as_bool()?,
        })
    }

    /// Returns the nodes without the head.
    pub(super) fn nodes(&self) -> impl Iterator<Item = Node> + use<> {
        (1..=self.nodes).map(Node::Number)
    }

    /// Returns a number that is part of the subnet of this cluster. Clusters do not see each other, so two of them may have the
    /// same subnet; different subnets are easier to distinguish in a log.
    fn subnet(&self) -> u64 {
        hash(self.name.as_bytes()) % 250
    }

    pub(super) fn ipv4(&self, node: Node) -> String {
        format!("10.77.{}.{}", self.subnet(), node.number())
    }

    pub(super) fn ipv6(&self, node: Node) -> String {
        format!("fd77:{:x}::{:x}", self.subnet(), node.number())
    }

    pub(super) fn hosts(&self) -> String {
        let mut text = "127.0.0.1 localhost\n::1 localhost\n".to_owned();
        for node in self.nodes().chain([Node::Head]) {
            let name = node.name();
            let _ = writeln!(
                text,
                "{} {name}\n{} {name}",
                self.ipv4(node),
                self.ipv6(node)
            );
        }
        text
    }

    /// Returns the lines of a file of known hosts, from the public host keys of the nodes.
    pub(super) fn known_hosts<'a>(&self, keys: impl Iterator<Item = (Node, &'a str)>) -> String {
        let mut text = String::new();
        for (node, key) in keys {
            // Without the comment behind the key.
            let key: Vec<&str> = key.split_whitespace().take(2).collect();
            let (ipv4, ipv6) = (self.ipv4(node), self.ipv6(node));
            let _ = writeln!(text, "{},{ipv4},{ipv6} {}", node.name(), key.join(" "));
        }
        text
    }

    pub(super) fn slurm_conf(&self) -> String {
        let nodes = self.nodes;
        let state = format!("{FILES}/slurm");
        format!(
            "ClusterName=rally\n\
             SlurmctldHost={HEAD}\n\
             SlurmUser=root\n\
             SlurmdUser=root\n\
             AuthType=auth/munge\n\
             AuthInfo=socket={MUNGE_SOCKET}\n\
             CredType=cred/munge\n\
             SlurmctldPidFile=/run/slurmctld.pid\n\
             SlurmdPidFile=/run/slurmd.pid\n\
             SlurmdSpoolDir={state}/%n\n\
             StateSaveLocation={state}\n\
             ProctrackType=proctrack/linuxproc\n\
             TaskPlugin=task/none\n\
             JobAcctGatherType=jobacct_gather/none\n\
             SelectType=select/cons_tres\n\
             SelectTypeParameters=CR_CPU\n\
             PreemptType=preempt/partition_prio\n\
             PreemptMode=REQUEUE\n\
             MpiDefault=none\n\
             ReturnToService=2\n\
             SlurmdParameters=config_overrides\n\
             NodeName=n[1-{nodes}] CPUs={CPUS} Boards=1 SocketsPerBoard=1 CoresPerSocket={CPUS} ThreadsPerCore=1 \
             RealMemory=2000 State=UNKNOWN\n\
             PartitionName=all Nodes=ALL Default=YES MaxTime=INFINITE State=UP OverSubscribe=YES\n\
             PartitionName=urgent Nodes=ALL MaxTime=INFINITE State=UP PriorityTier=2\n"
        )
    }
}

/// Path of the file with the private key of root on all nodes.
pub(super) const KEY: &str = "/run/cluster/ssh/key";
/// Path of the host key of a node. Each node has its own `/run`.
pub(super) const HOST_KEY: &str = "/run/sshd/host_key";
pub(super) const SSHD_PID: &str = "/run/sshd/pid";
pub(super) const MUNGE_SOCKET: &str = "/run/cluster/munge/socket";
/// Slurm's default path, so that a command needs no environment variable to find it.
pub(super) const SLURM_CONF: &str = "/etc/slurm/slurm.conf";

/// Returns the configuration of all sshds. Without PAM and DNS a login takes only the time of the key exchange. A test may remove the
/// home of a node, so the key is permitted elsewhere too.
pub(super) fn sshd_config() -> String {
    format!(
        "HostKey {HOST_KEY}\n\
         PidFile {SSHD_PID}\n\
         AuthenticationMethods publickey\n\
         AuthorizedKeysFile .ssh/authorized_keys {KEY}.pub\n\
         PermitRootLogin prohibit-password\n\
         UsePAM no\n\
         UseDNS no\n\
         PrintMotd no\n\
         PrintLastLog no\n\
         MaxStartups 1000\n\
         MaxSessions 1000\n\
         Subsystem sftp internal-sftp\n"
    )
}

/// Returns the configuration of ssh on all nodes. The key exchange is the fastest one: the default, which also resists quantum
/// computers, takes several times as much CPU time.
pub(super) fn ssh_config() -> String {
    format!(
        "Host *\n\
         IdentityFile {KEY}\n\
         IdentitiesOnly yes\n\
         IdentityAgent none\n\
         UserKnownHostsFile none\n\
         StrictHostKeyChecking yes\n\
         UpdateHostKeys no\n\
         PreferredAuthentications publickey\n\
         GSSAPIAuthentication no\n\
         KexAlgorithms curve25519-sha256\n"
    )
}

/// Returns `/etc/shadow` with root's account unlocked: without PAM, sshd rejects a locked account even with the right key.
pub(super) fn unlocked(shadow: &str) -> String {
    let line = |line: &str| match line.strip_prefix("root:!") {
        Some(rest) => format!(
            "root:*{}\n",
            rest.find(':').map_or("", |colon| &rest[colon..])
        ),
        None => format!("{line}\n"),
    };
    shadow.lines().map(line).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn plan(nodes: u32) -> Plan {
        Plan {
            name: "a1".to_owned(),
            nodes,
            slurm: true,
        }
    }

    #[test]
    fn names_of_nodes() {
        for name in ["head", "n1", "n200"] {
            assert_eq!(Node::named(name).unwrap().name(), name);
        }
        for name in ["", "n", "n01", "n+1", "m1", "n1x", "HEAD", "n99999999999"] {
            assert!(Node::named(name).is_err(), "{name}");
        }
    }

    #[test]
    fn names_of_clusters() {
        let name = default_name(Path::new("/home/user/My checkout, copied to a long name"));
        insta::assert_snapshot!(name, @"mycheckoutcopied-4cc3");
        check_name(&name).unwrap();
        assert_ne!(
            default_name(Path::new("/a/main")),
            default_name(Path::new("/b/main"))
        );
        for name in ["", "..", "a/b", "a b", "thirty-three-letters-in-this-name"] {
            assert!(check_name(name).is_err(), "{name}");
        }
    }

    #[test]
    fn files_of_the_nodes() {
        insta::assert_snapshot!(plan(2).hosts(), @r"
        127.0.0.1 localhost
        ::1 localhost
        10.77.173.1 n1
        fd77:ad::1 n1
        10.77.173.2 n2
        fd77:ad::2 n2
        10.77.173.254 head
        fd77:ad::fe head
        ");
        let keys = [
            (Node::Number(1), "ssh-ed25519 AAAA root@n1\n"),
            (Node::Number(2), "ssh-ed25519 BBBB root@n2\n"),
        ];
        insta::assert_snapshot!(plan(2).known_hosts(keys.into_iter()), @r"
        n1,10.77.173.1,fd77:ad::1 ssh-ed25519 AAAA
        n2,10.77.173.2,fd77:ad::2 ssh-ed25519 BBBB
        ");
    }

    #[test]
    fn configuration_of_ssh() {
        insta::assert_snapshot!(sshd_config(), @r"
        HostKey /run/sshd/host_key
        PidFile /run/sshd/pid
        AuthenticationMethods publickey
        AuthorizedKeysFile .ssh/authorized_keys /run/cluster/ssh/key.pub
        PermitRootLogin prohibit-password
        UsePAM no
        UseDNS no
        PrintMotd no
        PrintLastLog no
        MaxStartups 1000
        MaxSessions 1000
        Subsystem sftp internal-sftp
        ");
        insta::assert_snapshot!(ssh_config(), @r"
        Host *
        IdentityFile /run/cluster/ssh/key
        IdentitiesOnly yes
        IdentityAgent none
        UserKnownHostsFile none
        StrictHostKeyChecking yes
        UpdateHostKeys no
        PreferredAuthentications publickey
        GSSAPIAuthentication no
        KexAlgorithms curve25519-sha256
        ");
    }

    #[test]
    fn configuration_of_slurm() {
        insta::assert_snapshot!(plan(3).slurm_conf(), @r"
        ClusterName=rally
        SlurmctldHost=head
        SlurmUser=root
        SlurmdUser=root
        AuthType=auth/munge
        AuthInfo=socket=/run/cluster/munge/socket
        CredType=cred/munge
        SlurmctldPidFile=/run/slurmctld.pid
        SlurmdPidFile=/run/slurmd.pid
        SlurmdSpoolDir=/run/cluster/slurm/%n
        StateSaveLocation=/run/cluster/slurm
        ProctrackType=proctrack/linuxproc
        TaskPlugin=task/none
        JobAcctGatherType=jobacct_gather/none
        SelectType=select/cons_tres
        SelectTypeParameters=CR_CPU
        PreemptType=preempt/partition_prio
        PreemptMode=REQUEUE
        MpiDefault=none
        ReturnToService=2
        SlurmdParameters=config_overrides
        NodeName=n[1-3] CPUs=4 Boards=1 SocketsPerBoard=1 CoresPerSocket=4 ThreadsPerCore=1 RealMemory=2000 State=UNKNOWN
        PartitionName=all Nodes=ALL Default=YES MaxTime=INFINITE State=UP OverSubscribe=YES
        PartitionName=urgent Nodes=ALL MaxTime=INFINITE State=UP PriorityTier=2
        ");
    }

    #[test]
    fn root_is_unlocked_and_others_are_not() {
        let text = "root:!$6$x:1:0:99999:7:::\nuser:!:1::::::\n";
        assert_eq!(unlocked(text), "root:*:1:0:99999:7:::\nuser:!:1::::::\n");
        assert_eq!(unlocked("root:!\n"), "root:*\n");
        let unchanged = "root:*:1::::::\nroot2:!:1::::::\n";
        assert_eq!(unlocked(unchanged), unchanged);
    }
}
