//! Messages about nodes that could not be used.

use super::*;
use crate::{
    bootstrap::{NotJoined, NotJoinedClass, Reason},
    machine::{GPU, MEMORY, NoResource, NotDone, ResourceOf, TooMuch},
};

/// A class of failures of ssh.
fn class(hosts: &str, reason: Reason, printed: &[&str]) -> NotJoinedClass {
    let first = hosts.split(',').next().unwrap_or_default();
    NotJoinedClass {
        hosts: hosts.split(',').collect(),
        reason,
        tried: Vec::new(),
        program: "ssh".to_owned(),
        check: ["ssh", first, "true"].map(str::to_owned).to_vec(),
        printed: printed.iter().map(|line| (*line).to_owned()).collect(),
        failed_at: base::HostList::default(),
    }
}

fn ssh(hosts: &str, printed: &str) -> NotJoinedClass {
    class(hosts, Reason::Exited(255), &[printed])
}

fn tried(hosts: &str, reason: Reason, tried: &[&str]) -> NotJoinedClass {
    NotJoinedClass {
        tried: tried.iter().map(|line| (*line).to_owned()).collect(),
        ..class(hosts, reason, &[])
    }
}

fn text(classes: Vec<NotJoinedClass>, joined: u32) -> String {
    let all: usize = classes.iter().map(|class| class.hosts.len()).sum();
    let failed = NotJoined {
        nodes: u32::try_from(all).unwrap() + joined,
        joined,
        classes,
    };
    shown(&crate::messages::nodes::not_joined(&failed))
}

#[test]
fn each_failure_of_ssh_says_what_to_do() {
    let lines = [
        "ssh: Could not resolve hostname n1: Name or service not known",
        "ssh: connect to host n1 port 22: No route to host",
        "ssh: connect to host n1 port 22: Connection timed out",
        "ssh: connect to host n1 port 22: Connection refused",
        "me@n1: Permission denied (publickey,password).",
        "Host key verification failed.",
        "@    WARNING: REMOTE HOST IDENTIFICATION HAS CHANGED!     @",
        "kex_exchange_identification: Connection closed by remote host",
    ];
    let all = lines.map(|line| text(vec![ssh("n1", line)], 0));
    insta::assert_snapshot!(all.join("\n"), @"
    bootstrap/not-joined Error: cannot start the daemon on `n1`: `ssh` exited with code 255
      ssh: ssh: Could not resolve hostname n1: Name or service not known
      effect: the job was not started
      help: correct the name, or make it known (`getent hosts NAME`); then try `ssh n1 true`

    bootstrap/not-joined Error: cannot start the daemon on `n1`: `ssh` exited with code 255
      ssh: ssh: connect to host n1 port 22: No route to host
      effect: the job was not started
      help: check that the node is up and on this network: `ssh n1 true`

    bootstrap/not-joined Error: cannot start the daemon on `n1`: `ssh` exited with code 255
      ssh: ssh: connect to host n1 port 22: Connection timed out
      effect: the job was not started
      help: check that the node is up and on this network: `ssh n1 true`

    bootstrap/not-joined Error: cannot start the daemon on `n1`: `ssh` exited with code 255
      ssh: ssh: connect to host n1 port 22: Connection refused
      effect: the job was not started
      help: check that sshd runs on the node: `ssh n1 true`

    bootstrap/not-joined Error: cannot start the daemon on `n1`: `ssh` exited with code 255
      ssh: me@n1: Permission denied (publickey,password)
      effect: the job was not started
      help: `rally` asks for passwords only on a terminal. Without one, load a key (`ssh-add`), and allow it on the node, until this needs no password: `ssh n1 true`

    bootstrap/not-joined Error: cannot start the daemon on `n1`: `ssh` exited with code 255
      ssh: Host key verification failed
      effect: the job was not started
      help: start `rally` on a terminal and accept the key of the host there, or accept it once by hand: `ssh n1 true`

    bootstrap/not-joined Error: cannot start the daemon on `n1`: `ssh` exited with code 255
      ssh: @    WARNING: REMOTE HOST IDENTIFICATION HAS CHANGED!     @
      effect: the job was not started
      help: the host has another key than the one that ssh knows. If the host was installed again, remove the old key (`ssh-keygen -R`) and accept the new one by hand; otherwise another computer answers under its name: `ssh n1 true`

    bootstrap/not-joined Error: cannot start the daemon on `n1`: `ssh` exited with code 255
      ssh: kex_exchange_identification: Connection closed by remote host
      effect: the job was not started
      help: try `ssh n1 true`, or leave out these nodes
    ");
}

#[test]
fn each_failure_behind_ssh_says_what_to_do() {
    let system = "Linux riscv64".to_owned();
    let missing = "`ssh` is not in PATH".to_owned();
    let cases = [
        class("n1", Reason::NotStarted(missing), &[]),
        class(
            "n1",
            Reason::Exited(127),
            &["bash: /bin/sh: No such file or directory"],
        ),
        class("n1", Reason::Killed(9), &[]),
        class(
            "n1",
            Reason::NoAnswer { seconds: 60 },
            &["Welcome! Which shell do you want?"],
        ),
        class("n1", Reason::NotTaken { seconds: 60 }, &[]),
        class("n1", Reason::Late { seconds: 60 }, &[]),
        class("n1,n2,n3", Reason::OtherSystem(system), &[]),
        tried(
            "n1",
            Reason::NoPlace,
            &[
                "/home/me: it does not exist",
                "/dev/shm/rally-1000: programs cannot be executed there (mounted noexec?)",
                "/tmp/rally-1000: no space: 20 KiB are free",
                "/var/tmp/rally-1000: it belongs to another user",
            ],
        ),
        tried(
            "n1,n2",
            Reason::CannotConnect,
            &[
                "10.0.0.1:43211: the connection was refused",
                "192.168.7.1:43211: no answer for 5 s",
            ],
        ),
        tried(
            "n1",
            Reason::CannotConnect,
            &["127.0.0.1:43211: the connection was refused"],
        ),
    ];
    let all = cases.map(|class| text(vec![class], 0));
    // The sentence names our own system.
    let all = all
        .join("\n")
        .replace(crate::bootstrap::stage::own_system(), "OURS");
    insta::assert_snapshot!(all, @"
    bootstrap/not-joined Error: cannot start the daemon on `n1`: `ssh` is not in PATH
      effect: the job was not started
      help: install it, or choose another command with `--ssh` or `--bootstrap-command`

    bootstrap/not-joined Error: cannot start the daemon on `n1`: `ssh` exited with code 127
      ssh: bash: /bin/sh: No such file or directory
      effect: the job was not started
      help: try `ssh n1 true`, or leave out these nodes

    bootstrap/not-joined Error: cannot start the daemon on `n1`: `ssh` was killed by signal 9
      effect: the job was not started
      help: try `ssh n1 true`, or leave out these nodes

    bootstrap/not-joined Error: cannot start the daemon on `n1`: its shell has not answered within 60 s
      ssh: Welcome! Which shell do you want?
      effect: the job was not started
      help: try `ssh n1 true`: it must end by itself, and login scripts must not read standard input

    bootstrap/not-joined Error: cannot start the daemon on `n1`: it has taken no more of the program for 60 s
      effect: the job was not started
      help: try `ssh n1 true`, or leave out these nodes

    bootstrap/not-joined Error: cannot start the daemon on `n1`: its daemon has not connected within 60 s
      effect: the job was not started
      help: try `ssh n1 true`, or leave out these nodes

    bootstrap/not-joined Error: cannot start the daemon on `n[1-3]`: it is `Linux riscv64`, and this program is for `OURS`
      effect: the job was not started
      help: use nodes of one architecture, or start `rally` on one of these

    bootstrap/not-joined Error: cannot start the daemon on `n1`: the program cannot be stored there
      tried: /home/me: it does not exist
    /dev/shm/rally-1000: programs cannot be executed there (mounted noexec?)
    /tmp/rally-1000: no space: 20 KiB are free
    /var/tmp/rally-1000: it belongs to another user
      effect: the job was not started
      help: make room, or set XDG_CACHE_HOME in the login scripts of the node to a directory in which programs can be executed

    bootstrap/not-joined Error: cannot start the daemon on `n[1-2]`: its daemon cannot connect to `rally`
      tried: 10.0.0.1:43211: the connection was refused
    192.168.7.1:43211: no answer for 5 s
      effect: the job was not started
      help: daemons connect to `rally`: choose a network of all nodes with `--if-include`, or ports that firewalls let through with `--port-range`

    bootstrap/not-joined Error: cannot start the daemon on `n1`: its daemon cannot connect to `rally`
      tried: 127.0.0.1:43211: the connection was refused
      effect: the job was not started
      help: the node of `rally` has no network that others can reach: connect it to one, or start `rally` on one of the nodes
    ");
}

/// A daemon that runs says itself why it cannot join.
#[test]
fn each_reason_of_a_daemon_says_what_to_do() {
    let refused = |why: &str| Reason::Refused(why.to_owned());
    let cases = [
        tried("n1", Reason::CannotConnect, &[""]),
        class(
            "n1,n2",
            refused("it has no network `ib7`: its networks are `eth0`"),
            &["rally: cannot run here: it has no network `ib7`: its networks are `eth0`"],
        ),
        class("n1", refused("no port is free in 20000-20001"), &[]),
        class(
            "n1",
            refused(
                "its program `/opt/rally` is of another build: `rally 1 (ab)`, and the launcher is `rally 1 (cd)`",
            ),
            &[],
        ),
        class(
            "n1",
            refused(
                "its copy of the program was changed after it was stored: `/home/me/.cache/rally/bin/ab/rally`",
            ),
            &[],
        ),
        class(
            "n1",
            refused("the node `x` is not among those to start: `n1`"),
            &[],
        ),
    ];
    let all = cases.map(|class| text(vec![class], 0));
    insta::assert_snapshot!(all.join("\n"), @"
    bootstrap/not-joined Error: cannot start the daemon on `n1`: its daemon cannot connect to `rally`
      effect: the job was not started
      help: daemons connect to `rally`: choose a network of all nodes with `--if-include`, or ports that firewalls let through with `--port-range`

    bootstrap/not-joined Error: cannot start the daemon on `n[1-2]`: it has no network `ib7`: its networks are `eth0`
      effect: the job was not started
      help: name networks of all nodes, by interface, address or `10.1.0.0/16`, or leave out `--if-include`

    bootstrap/not-joined Error: cannot start the daemon on `n1`: no port is free in 20000-20001
      effect: the job was not started
      help: give more ports with `--port-range`: on a node, `rally` and each daemon need one, and other jobs too

    bootstrap/not-joined Error: cannot start the daemon on `n1`: its program `/opt/rally` is of another build: `rally 1 (ab)`, and the launcher is `rally 1 (cd)`
      effect: the job was not started
      help: give all nodes the same file, or remove it there: then the node gets a copy

    bootstrap/not-joined Error: cannot start the daemon on `n1`: its copy of the program was changed after it was stored: `/home/me/.cache/rally/bin/ab/rally`
      effect: the job was not started
      help: remove it: then the node gets another one

    bootstrap/not-joined Error: cannot start the daemon on `n1`: the node `x` is not among those to start: `n1`
      effect: the job was not started
      help: leave out these nodes
    ");
}

#[test]
fn nodes_that_failed_differently_are_in_one_message() {
    let classes = vec![
        ssh(
            "n1,n2,n3",
            "ssh: connect to host HOST port 22: No route to host",
        ),
        ssh("n7", "me@n7: Permission denied (publickey)."),
    ];
    insta::assert_snapshot!(text(classes, 508), @"
    bootstrap/not-joined Error: cannot start the daemons on 4 of 512 nodes
      nodes: `n[1-3]`: `ssh` exited with code 255
      ssh: connect to host HOST port 22: No route to host
    `n7`: `ssh` exited with code 255
      me@n7: Permission denied (publickey)
      fine: 508 other nodes can be used
      effect: the job was not started
      help: check that the node is up and on this network: `ssh n1 true`
    ");
}

#[test]
fn a_node_that_a_daemon_had_tried_to_start_is_named_with_it() {
    let failed = |hosts, printed| NotJoinedClass {
        failed_at: ["n3", "n4"].into_iter().collect(),
        ..ssh(hosts, printed)
    };
    let unreachable = || {
        failed(
            "n7,n8",
            "ssh: connect to host HOST port 22: No route to host",
        )
    };
    insta::assert_snapshot!(text(vec![unreachable()], 6), @"
    bootstrap/not-joined Error: cannot start the daemon on `n[7-8]`: `ssh` exited with code 255
      from: `n[3-4]` first, then the node of `rally`
      ssh: ssh: connect to host HOST port 22: No route to host
      fine: 6 other nodes can be used
      effect: the job was not started
      help: check that the node is up and on this network: `ssh n7 true`
    ");
    let refused = ssh(
        "n9",
        "ssh: connect to host HOST port 22: Connection refused",
    );
    insta::assert_snapshot!(text(vec![unreachable(), refused], 6), @"
    bootstrap/not-joined Error: cannot start the daemons on 3 of 9 nodes
      nodes: `n[7-8]`: `ssh` exited with code 255
      from `n[3-4]` first, then the node of `rally`
      ssh: connect to host HOST port 22: No route to host
    `n9`: `ssh` exited with code 255
      ssh: connect to host HOST port 22: Connection refused
      fine: 6 other nodes can be used
      effect: the job was not started
      help: check that the node is up and on this network: `ssh n7 true`
    ");
}

#[test]
fn a_start_without_a_check_has_another_advice() {
    let failed = NotJoinedClass {
        program: "rally".to_owned(),
        check: Vec::new(),
        ..class("n1", Reason::Exited(125), &["rally: out of memory"])
    };
    insta::assert_snapshot!(text(vec![failed], 0), @"
    bootstrap/not-joined Error: cannot start the daemon on `n1`: `rally` exited with code 125
      rally: rally: out of memory
      effect: the job was not started
      help: leave out these nodes
    ");
}

/// A job that goes on without a node has said what helps when the node was lost.
#[test]
fn a_lost_node_is_explained_once() {
    let mut job = Job::wide();
    let why = "no byte has come for 10 s";
    let cause = Cause::NodeLost {
        node: NodeId(1),
        why: why.to_owned(),
    };
    let killed = ExitStatus::Signaled {
        signal: Signal::KILL,
        core_dumped: false,
    };
    let classes = [(killed, "2-3"), (ExitStatus::Exited(0), "0-1,4-7")];
    let outcome = ended(cause, &classes, "", "");
    let text = |job: &Job| {
        let messages = super::outcome(&outcome, &job.scene());
        messages.iter().map(shown).collect::<String>()
    };
    insta::assert_snapshot!(text(&job), @"
    job/lost-node Error: lost the node `n09`
      reason: no byte has come for 10 s
      lost: ranks 2-3
      effect: the other 6 ranks had ended by themselves
      help: look at the node: `rally` cannot tell whether it, its network or the daemon has failed
    ");
    job.end.on_node_loss = OnFailure::Continue;
    let lost = Note::NodeLost {
        node: NodeId(1),
        why: why.to_owned(),
    };
    let said = shown(&note(&lost, &job.scene()));
    insta::assert_snapshot!([said, text(&job)].concat(), @"
    node/lost Warning: lost the node `n09`
      reason: no byte has come for 10 s
      effect: its ranks count as killed
      help: look at the node: `rally` cannot tell whether it, its network or the daemon has failed
    job/lost-node Error: lost the node `n09`
      reason: no byte has come for 10 s
      lost: ranks 2-3
      effect: the other 6 ranks ran on to their end
    ");
}

#[test]
fn a_spawn_that_needs_a_lost_node_names_it() {
    let by = base::ProcId {
        job: JobId(1),
        rank: Rank(3),
    };
    let lost = || "n2".split(',').collect::<base::HostList>();
    let gone = Refusal::NodeLost {
        host: "n2".to_owned(),
    };
    let few = Refusal::Placement(place::Error::NotEnoughSlots {
        asked: 8,
        slots: 4,
        nodes: "n1".split(',').collect(),
        limit: place::SlotLimit::MaxSlots,
    });
    let small = Job::small();
    let shown = [gone, few].map(|why| {
        let (why, lost) = (Box::new(why), lost());
        let note = Note::SpawnNotPlaced { by, why, lost };
        shown(&super::note(&note, &small.scene()))
    });
    insta::assert_snapshot!(shown.concat(), @"
    job/spawn-refused Warning: rank 3 of job 1 cannot spawn a job: the daemon on `n2` is gone
      lost: `n2`
    job/spawn-refused Warning: rank 3 of job 1 cannot spawn a job: not enough slots: the job needs 8, there are 4
      nodes: `n1`
      lost: `n2`
    ");
}

#[test]
fn a_spawn_without_daemons_has_the_reason() {
    let class = NotJoinedClass {
        hosts: "n4".split(',').collect(),
        reason: Reason::Exited(1),
        tried: Vec::new(),
        program: "srun".to_owned(),
        check: Vec::new(),
        printed: vec!["srun: error: Unable to create step for job 17".to_owned()],
        failed_at: base::HostList::default(),
    };
    let failed = NotJoined {
        nodes: 1,
        joined: 0,
        classes: vec![class],
    };
    let by = base::ProcId {
        job: JobId(1),
        rank: Rank(3),
    };
    let note = Note::SpawnNotStarted { by, failed };
    let small = Job::small();
    insta::assert_snapshot!(shown(&super::note(&note, &small.scene())), @"
    job/spawn-refused Warning: rank 3 of job 1 cannot spawn a job: cannot start the daemon on `n4`: `srun` exited with code 1
      srun: srun: error: Unable to create step for job 17
    ");
}

#[test]
fn a_machine_says_why_nodes_do_not_come_or_go() {
    let name = || "n5".to_owned();
    let all = [
        NotDone::NodesBusy(2),
        NotDone::NodeLeaves(name()),
        NotDone::NodeEnds(name()),
        NotDone::NodeBad(name()),
        NotDone::IsAllocation(JobId(10)),
        NotDone::NodeStays(name()),
        NotDone::TooManyStarts(65_536),
    ];
    let all: Vec<String> = all.iter().map(|why| shown(&not_done(why))).collect();
    insta::assert_snapshot!(all.join("\n"), @"
    machine/nodes-busy Error: 2 tasks run on these nodes
      effect: the nodes stay in the machine
      help: `rally nodes --drop NODES --wait` drops them when the tasks have ended, `--now` ends the tasks

    machine/node-leaves Error: `n5` is about to leave the machine
      effect: no node was added
      help: add it when `rally nodes` does not list it any more, or keep it with `rally nodes --resume n5`

    machine/node-leaves Error: `n5` leaves the machine: its daemon was told to end
      effect: nothing was changed
      help: `rally nodes --add n5` adds it again when `rally nodes` does not list it any more

    machine/node-bad Error: `n5` is bad, so that it can be neither drained nor resumed
      effect: nothing was changed
      help: `rally nodes` says why; `rally nodes --add n5` starts it again, `--drop n5` forgets it

    machine/not-running Error: job 10 is an allocation, and has no ranks of its own
      help: `rally queue 10` says which job has requested it: that one has the ranks

    machine/node-stays Error: `n5` stays in the machine: it was resumed before it was idle

    machine/too-many-starts Error: the machine has started 65536 daemons, which is the maximum
      effect: no node was added
      help: end the machine with `rally down --wait`, and start it again: jobs that wait are kept
    ");
}

#[test]
fn resources_that_a_machine_lacks() {
    let there = || vec!["fpga".to_owned(), "matlab".to_owned()];
    let unknown = |there| NoResource::Unknown {
        name: "fgpa".to_owned(),
        there,
    };
    let too_much = |name: &str, needed, most, of| {
        NoResource::TooMuch(TooMuch {
            name: name.to_owned(),
            needed,
            most,
            of,
        })
    };
    let all = [
        unknown(there()),
        unknown(Vec::new()),
        NoResource::OfNodes("fpga".to_owned()),
        NoResource::OfMachine("matlab".to_owned()),
        too_much(GPU, 3, 2, ResourceOf::Node),
        too_much(MEMORY, 64 << 30, 15 << 30, ResourceOf::Node),
        too_much("fpga", 3, 2, ResourceOf::Node),
        too_much("matlab", 11, 10, ResourceOf::Machine),
    ];
    let all = all.map(|why| shown(&not_done(&NotDone::NoResource(why))));
    insta::assert_snapshot!(all.join("\n"), @"
    machine/not-accepted Error: the machine has no resource `fgpa`
      there: fpga, matlab
      help: `rally nodes` and `rally status` show what there is; `--shared-resource` and `--node-resource` of `rally up` declare more

    machine/not-accepted Error: the machine has no resource `fgpa`
      help: declare it when the machine is started: `rally up --shared-resource NAME=N` or `--node-resource NAME=N`

    machine/not-accepted Error: `fpga` is a resource of nodes
      help: ask for it by rank: `--resource-per-proc fpga=N`

    machine/not-accepted Error: `matlab` is a resource of the machine, and of no node
      help: ask for it by job: `--resource matlab=N`

    machine/not-accepted Error: the machine does not take the job: it needs 3 GPUs on a node, and no node has more than 2
      help: ask for less; `rally nodes` shows what the nodes have, `rally status` what the machine has

    machine/not-accepted Error: the machine does not take the job: it needs 64 GiB of memory on a node, and no node has more than 15 GiB
      help: ask for less; `rally nodes` shows what the nodes have, `rally status` what the machine has

    machine/not-accepted Error: the machine does not take the job: it needs 3 of `fpga` on a node, and no node has more than 2
      help: ask for less; `rally nodes` shows what the nodes have, `rally status` what the machine has

    machine/not-accepted Error: the machine does not take the job: it needs 11 of `matlab`, and the machine has 10
      help: ask for less; `rally nodes` shows what the nodes have, `rally status` what the machine has
    ");
}
