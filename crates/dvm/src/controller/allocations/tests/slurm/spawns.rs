//! Jobs that are spawned into allocations of Slurm.

use super::*;
use crate::{
    bootstrap::{NotJoined, NotJoinedClass, Reason},
    place::TopologyDigest,
    proto::VERSION,
};

/// Two nodes that are not ours: four CPUs of one, and two of the other.
const OTHERS: &str = "JobState=RUNNING TimeLimit=UNLIMITED NodeList=m[1-2] NumCPUs=6\n \
    Nodes=m1 CPU_IDs=0-3 Mem=0 GRES=\n Nodes=m2 CPU_IDs=0-1 Mem=0 GRES=\n";

impl World {
    /// Lets the daemon of a further node connect.
    fn joins(&mut self, node: u32, host: &str) {
        let node = NodeId(node);
        let hello = ToController::Hello {
            resources: Default::default(),
            version: VERSION,
            node,
            host: host.to_owned(),
            topology: TopologyDigest::of(&base::Topology::flat(8)),
        };
        self.handle(ControllerInput::Daemon(node, hello));
    }

    /// Requests an allocation of [`OTHERS`] with this name, as number 12 of Slurm.
    fn holds(&mut self, name: &str) {
        self.asks(1, NEW, &[request(name)]);
        self.grant_as(0, 12, OTHERS);
    }

    fn loses(&mut self, node: u32) {
        let lost = ControllerInput::DaemonLost(NodeId(node), "gone".to_owned());
        self.handle(lost);
    }

    fn not_joined(&mut self, hosts: &[&str]) {
        let class = NotJoinedClass {
            hosts: hosts.iter().copied().collect(),
            reason: Reason::Exited(1),
            tried: Vec::new(),
            program: "srun".to_owned(),
            check: Vec::new(),
            printed: Vec::new(),
            failed_at: HostList::default(),
        };
        self.handle(ControllerInput::NotJoined(NotJoined {
            nodes: 2,
            joined: 0,
            classes: vec![class],
        }));
    }
}

#[test]
fn the_first_job_of_an_allocation_starts_its_daemons() {
    let mut world = in_slurm();
    world.holds("mine");
    assert_eq!(world.daemons, [""; 0]);
    let first = world.spawns(1, 5, &[id("mine")]);
    let second = world.spawns(1, 1, &[id("slurm:12")]);
    assert_eq!(world.daemons, ["2=m1 3=m2 of 12"]);
    // Others are placed on the nodes of the job in which we run, and do not wait.
    let beside = world.spawns(1, 1, &[]);
    assert_eq!(world.spawned(beside).as_deref(), Some("2: 1@n0"));
    world.joins(2, "m1");
    assert_eq!(world.spawned(first), None);
    assert_eq!(world.told(1, RELEASE, &[id("mine")]), "RESOURCE_BUSY");
    world.joins(3, "m2");
    assert_eq!(world.spawned(first).as_deref(), Some("3: 4@n2+1@n3"));
    assert_eq!(world.spawned(second).as_deref(), Some("4: 1@n3"));
    let full = world.spawns(1, 1, &[id("mine")]);
    assert_eq!(world.spawned(full).as_deref(), Some("OUT_OF_RESOURCE"));
    let beside = world.spawns(1, 1, &[]);
    assert_eq!(world.spawned(beside).as_deref(), Some("5: 1@n0"));
    world.ends(3, ExitStatus::SUCCESS);
    // What a job in the allocation spawns runs there too.
    let child = world.spawns(4, 2, &[]);
    assert_eq!(world.spawned(child).as_deref(), Some("6: 2@n2"));
    assert_eq!(world.told(1, RELEASE, &[id("mine")]), "RESOURCE_BUSY");
    world.ends(4, ExitStatus::SUCCESS);
    world.ends(6, ExitStatus::SUCCESS);
    let release = world.asks(1, RELEASE, &[id("mine")]);
    assert_eq!(world.daemons[1..], ["2 leaves", "3 leaves"]);
    assert_eq!(world.last_command(), "2: scancel 12");
    world.loses(2);
    world.loses(3);
    world.command_ends(2, "", 0);
    assert_eq!(world.answer(release).as_deref(), Some("done"));
    assert_eq!(world.notes, []);
    // The end of these daemons is no loss for those that are left.
    let beside = world.spawns(1, 1, &[]);
    assert_eq!(world.spawned(beside).as_deref(), Some("7: 1@n0"));
}

#[test]
fn a_spawn_request_brings_an_allocation_along() {
    let mut world = in_slurm();
    let spawned = world.spawns(1, 3, &[seconds(60)]);
    assert_eq!(
        world.last_command(),
        "0: salloc --no-shell --job-name=test --comment=rally:3 --ntasks=3 --time=1"
    );
    world.grant_as(0, 12, OTHERS);
    world.joins(2, "m1");
    world.joins(3, "m2");
    assert_eq!(world.spawned(spawned).as_deref(), Some("2: 3@n2"));
    let refused = world.spawns(1, 1, &[nodes(1)]);
    world.command_ends(
        2,
        "salloc: error: Requested node configuration is not available\n",
        1,
    );
    assert_eq!(world.spawned(refused).as_deref(), Some("OUT_OF_RESOURCE"));
    let [Note::AllocationRefused { .. }] = &world.notes[..] else {
        panic!("{:?}", world.notes);
    };
    // It ends with the last job in it.
    world.ends(2, ExitStatus::SUCCESS);
    assert_eq!(world.daemons[1..], ["2 leaves", "3 leaves"]);
    assert_eq!(world.last_command(), "3: scancel 12");
    world.ends(1, ExitStatus::SUCCESS);
    assert!(!world.finished.contains(&FRONT));
    world.command_ends(3, "", 0);
    assert!(world.finished.contains(&FRONT));
}

#[test]
fn a_job_is_refused_if_its_daemons_do_not_start() {
    let mut world = in_slurm();
    world.holds("mine");
    let spawned = world.spawns(1, 2, &[id("mine")]);
    world.joins(2, "m1");
    world.not_joined(&["m2"]);
    assert_eq!(
        world.spawned(spawned).as_deref(),
        Some("JOB_FAILED_TO_LAUNCH")
    );
    let [Note::SpawnNotStarted { by, .. }] = &world.notes[..] else {
        panic!("{:?}", world.notes);
    };
    assert_eq!(by.job, JobId(1));
    assert_eq!(world.daemons[1..], ["2 leaves"]);
    // It is tried anew.
    let spawned = world.spawns(1, 2, &[id("mine")]);
    assert_eq!(world.daemons[2], "4=m1 5=m2 of 12");
    world.loses(2);
    world.joins(4, "m1");
    world.joins(5, "m2");
    assert_eq!(world.spawned(spawned).as_deref(), Some("2: 2@n4"));
    // Jobs elsewhere have not noticed.
    let beside = world.spawns(1, 1, &[]);
    assert_eq!(world.spawned(beside).as_deref(), Some("3: 1@n0"));
}

/// Nobody else would answer its spawner.
#[test]
fn a_job_is_refused_if_its_daemons_are_lost_before_all_have_joined() {
    let mut world = in_slurm();
    world.holds("mine");
    let spawned = world.spawns(1, 2, &[id("mine")]);
    world.joins(2, "m1");
    world.loses(2);
    assert_eq!(world.spawned(spawned), None);
    world.loses(3);
    let refused = Some("JOB_FAILED_TO_LAUNCH");
    assert_eq!(world.spawned(spawned).as_deref(), refused);
    world.spawns(1, 2, &[id("mine")]);
    assert_eq!(world.daemons[1..], ["4=m1 5=m2 of 12"]);
}

#[test]
fn a_daemon_that_joins_too_late_leaves() {
    let mut world = in_slurm();
    world.holds("mine");
    let spawned = world.spawns(1, 2, &[id("mine")]);
    world.ends(1, ExitStatus::SUCCESS);
    assert_eq!(world.spawned(spawned).as_deref(), Some("NOT_AVAILABLE"));
    assert_eq!(world.last_command(), "2: scancel 12");
    world.joins(2, "m1");
    assert_eq!(world.daemons[1..], ["2 leaves"]);
    world.loses(2);
    // The command that was to start the other one is canceled.
    world.not_joined(&["m2"]);
    assert_eq!(world.notes, []);
    world.command_ends(2, "", 0);
    assert!(world.finished.contains(&FRONT));
}

#[test]
fn the_loss_of_a_node_ends_only_the_jobs_there() {
    let mut world = in_slurm();
    world.holds("mine");
    let spawned = world.spawns(1, 5, &[id("mine")]);
    world.joins(2, "m1");
    world.joins(3, "m2");
    assert_eq!(world.spawned(spawned).as_deref(), Some("2: 4@n2+1@n3"));
    world.loses(3);
    assert!(world.ended.contains(&JobId(2)));
    assert!(!world.ended.contains(&JobId(1)));
    world.ends(2, ExitStatus::SUCCESS);
    // The rest is used, until there is none: then daemons are started again.
    let rest = world.spawns(1, 4, &[id("mine")]);
    assert_eq!(world.spawned(rest).as_deref(), Some("3: 4@n2"));
    world.loses(2);
    let again = world.spawns(1, 1, &[id("mine")]);
    assert_eq!(world.daemons[1..], ["4=m1 5=m2 of 12"]);
    world.joins(4, "m1");
    world.joins(5, "m2");
    assert_eq!(world.spawned(again).as_deref(), Some("4: 1@n4"));
}

/// Where Slurm shares nodes: there is a daemon for each allocation.
#[test]
fn allocations_may_have_the_same_nodes() {
    let mut world = in_slurm();
    world.asks(1, NEW, &[request("mine")]);
    // It has `n1`, as the job in which we run.
    world.grant(0, 12);
    let there = world.spawns(1, 4, &[id("mine")]);
    assert_eq!(world.daemons, ["2=n1 3=n2 of 12"]);
    world.joins(2, "n1");
    world.joins(3, "n2");
    let named = |host: &str| info(keys::HOST, Value::text(host));
    assert_eq!(world.spawned(there).as_deref(), Some("2: 2@n2+2@n3"));
    let own = world.spawns(1, 1, &[named("n1")]);
    assert_eq!(world.spawned(own).as_deref(), Some("3: 1@n1"));
    world.ends(2, ExitStatus::SUCCESS);
    let there = world.spawns(1, 1, &[id("mine"), named("n1")]);
    assert_eq!(world.spawned(there).as_deref(), Some("4: 1@n2"));
    world.asks(1, NEW, &[request("other")]);
    world.grant(2, 13);
    let other = world.spawns(1, 1, &[id("other"), named("n1")]);
    assert_eq!(world.daemons[1..], ["4=n1 5=n2 of 13"]);
    world.joins(4, "n1");
    world.joins(5, "n2");
    assert_eq!(world.spawned(other).as_deref(), Some("5: 1@n4"));
    // The loss of one of them is not that of the others.
    world.loses(4);
    assert_eq!(world.ended, [JobId(5)].into());
}
