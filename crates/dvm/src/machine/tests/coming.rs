//! Nodes that come and go while the machine runs.

use super::*;
use crate::bootstrap::{NotJoined, NotJoinedClass, Reason as Failed};

fn hosts(names: &[&str]) -> HostList {
    names.iter().copied().collect()
}

fn additions(names: &[&str]) -> Ask {
    let node = |name: &&str| AllocatedNode {
        name: (*name).to_owned(),
        slots: Slots::Explicit(2),
        max_slots: None,
        granted: None,
    };
    Ask::Add(Box::new(Additions {
        nodes: names.iter().map(node).collect(),
        environment: vec!["SSH_AUTH_SOCK=/new".into()],
    }))
}

impl World {
    /// Returns what the machine wants of its nodes, and forgets it.
    fn wants(&mut self) -> Vec<String> {
        let (wanted, others): (Vec<_>, Vec<_>) = self.outputs.drain(..).partition(|output| {
            matches!(
                output,
                MachineOutput::AddNodes { .. }
                    | MachineOutput::Reopen(..)
                    | MachineOutput::Leave(_)
                    | MachineOutput::Forget(_)
                    | MachineOutput::End(_)
            )
        });
        self.outputs = others.into();
        let text = |output: MachineOutput| match output {
            MachineOutput::AddNodes { nodes, .. } => {
                let nodes = nodes
                    .iter()
                    .map(|(id, node)| format!("{} as {id}", node.name));
                format!("start {}", nodes.collect::<Vec<_>>().join(" "))
            }
            MachineOutput::Reopen(id, node) => format!("reopen {} as {id}", node.name),
            MachineOutput::Leave(id) => format!("leave {id}"),
            MachineOutput::Forget(id) => format!("forget {id}"),
            MachineOutput::End(run) => format!("end {run}"),
            other => format!("{other:?}"),
        };
        wanted.into_iter().map(text).collect()
    }

    fn joins(&mut self, daemon: u32, slots: u32) {
        let said = Slots::Explicit(slots);
        self.machine.node_up(
            self.now,
            NodeId(daemon),
            (slots, said),
            &NodeResources::default(),
        );
        self.pump();
    }

    fn loses(&mut self, daemon: u32) {
        self.machine
            .node_lost(self.now, NodeId(daemon), "no answer");
        self.pump();
    }

    /// Returns the nodes: name, number, state, and free of all slots.
    fn nodes(&mut self) -> Vec<String> {
        self.ask(Ask::Nodes);
        let Reply::Nodes(nodes) = self.reply() else {
            panic!()
        };
        let text = |node: NodeLine| {
            let NodeLine {
                name,
                number,
                state,
                slots,
                free,
                ..
            } = node;
            format!("{name} {number} {state:?} {free}/{slots}")
        };
        nodes.into_iter().map(text).collect()
    }

    fn added(&mut self) -> Added {
        match self.reply() {
            Reply::Added(added) => *added,
            other => panic!("{other:?}"),
        }
    }
}

#[test]
fn an_added_node_runs_what_waits_for_room() {
    let mut world = World::new(&[1]);
    for _ in 0..2 {
        world.submitted(job(1));
        world.store();
    }
    assert_eq!(world.launches()[0].0, "1 on 1@n0");
    world.ask(additions(&["n0", "n7"]));
    assert_eq!(world.wants(), ["start n7 as 1"]);
    assert!(world.outputs.is_empty(), "told before the node has joined");
    world.joins(1, 2);
    let added = world.added();
    assert_eq!(
        (added.joined, added.there),
        (hosts(&["n7"]), hosts(&["n0"]))
    );
    world.store();
    assert_eq!(world.launches()[0].0, "2 on 1@n1");
    assert_eq!(world.nodes(), ["n0 0 Up 0/1", "n7 1 Up 1/2"]);
}

#[test]
fn a_job_that_is_too_large_fits_after_nodes_were_added() {
    let mut world = World::new(&[1]);
    world.submit(job(2));
    assert!(matches!(
        world.reply(),
        Reply::Refused(NotDone::NotAccepted(_))
    ));
    world.ask(additions(&["n1"]));
    world.joins(1, 1);
    assert_eq!(world.added().joined, hosts(&["n1"]));
    world.submitted(job(2));
    world.store();
    assert_eq!(world.launches()[0].0, "1 on 1@n0+1@n1");
}

#[test]
fn a_bad_node_comes_back_with_another_daemon() {
    let mut world = World::new(&[1, 1]);
    let mut named = job(1);
    named.spec.placement.apps[0].hosts = Some(hosts(&["n1"]));
    world.loses(1);
    world.submitted(named);
    world.store();
    assert_eq!(world.launches(), []);
    world.ask(additions(&["n1"]));
    assert_eq!(world.wants(), ["forget 1", "start n1 as 2"]);
    // News of the lost daemon mean nothing.
    world.loses(1);
    world.joins(1, 1);
    assert_eq!(world.nodes(), ["n0 0 Up 1/1", "n1 2 Starting 1/1"]);
    world.joins(2, 2);
    assert_eq!(world.added().joined, hosts(&["n1"]));
    world.store();
    assert_eq!(world.launches()[0].0, "1 on 1@n2", "it waits by name");
}

/// Found by the simulator: the job was accepted with fewer slots, as if nobody had said how many the node has.
#[test]
fn a_node_that_is_started_again_is_not_oversubscribed() {
    let mut world = World::new(&[2]);
    let refused = NotDone::NotAccepted(queue::Refusal::NeverFits { units: 3, room: 2 });
    world.loses(0);
    for _ in 0..2 {
        world.submit(job(3));
        assert_eq!(world.reply(), Reply::Refused(refused.clone()));
        // Then the same while its next daemon starts.
        world.ask(additions(&["n0"]));
    }
}

#[test]
fn a_node_that_fails_again_is_bad_and_its_failure_is_told() {
    let mut world = World::new(&[1]);
    world.ask(additions(&["n5", "n6"]));
    world.joins(1, 1);
    let class = NotJoinedClass {
        hosts: hosts(&["n6", "n9"]),
        reason: Failed::CannotConnect,
        tried: Vec::new(),
        program: "ssh".to_owned(),
        check: Vec::new(),
        printed: Vec::new(),
        failed_at: HostList::default(),
    };
    world.machine.not_joined(&NotJoined {
        classes: vec![class.clone()],
        nodes: 9,
        joined: 7,
    });
    world.loses(2);
    let added = world.added();
    assert_eq!(added.joined, hosts(&["n5"]));
    let hosts = hosts(&["n6"]);
    assert_eq!(added.failed.classes, [NotJoinedClass { hosts, ..class }]);
    assert_eq!((added.failed.nodes, added.failed.joined), (2, 1));
    let bad = r#"n6 2 Bad("no answer") 0/0"#;
    assert_eq!(world.nodes(), ["n0 0 Up 1/1", "n5 1 Up 1/1", bad]);
}

#[test]
fn a_dropped_node_leaves_when_its_last_job_has_ended() {
    let mut world = World::new(&[1, 1]);
    world.submitted(job(2));
    world.store();
    let run = world.launches()[0].1;
    world.ask(Ask::Drop(hosts(&["n1"]), Down::IfIdle));
    assert_eq!(world.reply(), Reply::Refused(NotDone::NodesBusy(1)));
    world.ask(Ask::Drop(hosts(&["n1"]), Down::WhenIdle));
    assert_eq!(world.wants(), [""; 0]);
    assert_eq!(world.nodes(), ["n0 0 Up 0/1", "n1 1 Leaving 0/1"]);
    world.ask(additions(&["n1"]));
    let leaves = NotDone::NodeLeaves("n1".to_owned());
    assert_eq!(world.reply(), Reply::Refused(leaves));
    world.ends(run, Cause::Success);
    assert_eq!(world.wants(), ["leave 1"]);
    world.submitted(job(1));
    world.store();
    assert_eq!(world.launches()[0].0, "2 on 1@n0");
    world.loses(1);
    assert_eq!(world.reply(), Reply::Done);
    assert_eq!(world.wants(), ["forget 1"]);
    assert_eq!(world.nodes(), ["n0 0 Up 0/1"]);
    world.ask(Ask::Drop(hosts(&["n1"]), Down::Now));
    let unknown = NotDone::NoSuchNode("n1".to_owned());
    assert_eq!(world.reply(), Reply::Refused(unknown));
    // It comes back, with more slots.
    world.ask(additions(&["n1"]));
    assert_eq!(world.wants(), ["forget 1", "start n1 as 2"]);
    world.joins(2, 4);
    assert_eq!(world.added().joined, hosts(&["n1"]));
    assert_eq!(world.nodes(), ["n0 0 Up 0/1", "n1 2 Up 4/4"]);
}

#[test]
fn jobs_on_nodes_that_are_dropped_now_are_ended_or_wait_again() {
    let mut world = World::new(&[1, 1]);
    let again = Submission {
        wishes: Wishes {
            on_node_loss: Requeue::OnNodeLoss,
            ..Wishes::default()
        },
        ..job(1)
    };
    let (first, second) = (world.submitted(again), world.submitted(job(1)));
    world.store();
    let runs = world.launches();
    world.ask(Ask::Drop(hosts(&["n0", "n1"]), Down::Now));
    let (one, two) = (runs[0].1, runs[1].1);
    assert_eq!(world.wants(), [format!("end {one}"), format!("end {two}")]);
    for run in [one, two] {
        world.ends(run, Cause::Ended(EndReason::Canceled));
    }
    assert_eq!(world.wants(), ["leave 0", "leave 1"]);
    // One is lost before it could end by itself, which is the same.
    world.loses(0);
    world.loses(1);
    assert_eq!(world.reply(), Reply::Done);
    world.store();
    let record = world.record(first);
    assert_eq!(record.state(), State::Waiting);
    assert_eq!(record.tasks.count(), 1, "{:?}", record.tasks);
    assert_eq!(world.record(second).state(), State::Canceled);
    assert_eq!(world.nodes(), [""; 0]);
}

/// Returns a job that waits again if it loses a node.
fn again() -> Submission {
    Submission {
        wishes: Wishes {
            on_node_loss: Requeue::OnNodeLoss,
            ..Wishes::default()
        },
        ..job(1)
    }
}

#[test]
fn a_job_that_succeeds_while_its_node_is_dropped_does_not_run_again() {
    let mut world = World::new(&[1]);
    let id = world.submitted(again());
    world.store();
    let run = world.launches()[0].1;
    world.ask(Ask::Drop(hosts(&["n0"]), Down::Now));
    world.ends(run, Cause::Success);
    assert_eq!(world.record(id).state(), State::Succeeded);
}

#[test]
fn a_job_whose_start_is_being_stored_waits_again_when_its_node_is_dropped() {
    let mut world = World::new(&[1, 1]);
    world.submit(again());
    world.ask(Ask::Drop(hosts(&["n0"]), Down::Now));
    world.store();
    assert_eq!(world.reply(), Reply::Submitted(JobId(1)));
    assert_eq!(world.launches()[0].0, "1 on 1@n1");
    assert_eq!(world.wants(), ["leave 0"]);
    assert_eq!(world.record(JobId(1)).tasks.count(), 1);
}

#[test]
fn a_node_that_comes_back_smaller_or_larger_keeps_its_slots_until_it_is_idle() {
    for slots in [1, 9] {
        let mut world = World::new(&[2]);
        let first = world.submitted(job(2));
        world.store();
        let run = world.launches()[0].1;
        world.loses(0);
        world.ask(additions(&["n0"]));
        world.joins(1, slots);
        world.added();
        assert_eq!(world.nodes(), ["n0 1 Up 0/2"]);
        world.submitted(job(1));
        world.ends(run, Cause::Success);
        assert_eq!(world.record(first).state(), State::Succeeded);
        world.store();
        assert_eq!(world.launches().len(), 1);
        let left = slots - 1;
        assert_eq!(world.nodes(), [format!("n0 1 Up {left}/{slots}")]);
    }
}

#[test]
fn a_node_that_comes_back_twice_has_what_it_said_last() {
    let mut world = World::new(&[4]);
    world.submitted(job(1));
    world.store();
    let run = world.launches()[0].1;
    for (daemon, slots) in [(1, 8), (2, 4)] {
        world.loses(daemon - 1);
        world.ask(additions(&["n0"]));
        world.joins(daemon, slots);
        world.added();
    }
    world.ends(run, Cause::Success);
    assert_eq!(world.nodes(), ["n0 2 Up 4/4"]);
}

#[test]
fn a_node_that_starts_and_is_resumed_gets_jobs_when_it_has_joined() {
    let mut world = World::new(&[1, 1]);
    world.loses(1);
    world.wants();
    // The queue knows it from its last daemon.
    world.ask(additions(&["n1"]));
    assert_eq!(world.wants(), ["forget 1", "start n1 as 2"]);
    world.ask(Ask::Drop(hosts(&["n1"]), Down::WhenIdle));
    world.ask(Ask::Resume(hosts(&["n1"])));
    assert_eq!(world.reply(), Reply::Done);
    let stays = NotDone::NodeStays("n1".to_owned());
    assert_eq!(world.reply(), Reply::Refused(stays));
    world.submitted(job(1));
    world.submitted(job(1));
    world.store();
    let names: Vec<String> = world.launches().into_iter().map(|(name, _)| name).collect();
    assert_eq!(names, ["1 on 1@n0"]);
    world.joins(2, 1);
    world.store();
    assert_eq!(world.launches()[0].0, "2 on 1@n2");
}

#[test]
fn a_bad_node_and_one_whose_daemon_ends_are_neither_drained_nor_resumed() {
    let mut world = World::new(&[1, 1]);
    world.loses(0);
    let bad = || Reply::Refused(NotDone::NodeBad("n0".to_owned()));
    world.ask(Ask::Drain(hosts(&["n1", "n0"])));
    assert_eq!(world.reply(), bad());
    assert_eq!(world.nodes()[1], "n1 1 Up 1/1", "nothing was changed");
    world.ask(Ask::Resume(hosts(&["n0"])));
    assert_eq!(world.reply(), bad());
    world.ask(Ask::Drop(hosts(&["n1"]), Down::IfIdle));
    assert_eq!(world.wants(), ["leave 1"]);
    let ends = || Reply::Refused(NotDone::NodeEnds("n1".to_owned()));
    world.ask(Ask::Resume(hosts(&["n1"])));
    assert_eq!(world.reply(), ends());
    world.ask(additions(&["n1"]));
    assert_eq!(world.reply(), ends());
}

#[test]
fn a_node_is_lost_while_its_jobs_are_ended_and_comes_back_before_they_have() {
    let mut world = World::new(&[2]);
    world.submitted(job(1));
    world.store();
    let run = world.launches()[0].1;
    world.ask(Ask::Drop(hosts(&["n0"]), Down::Now));
    world.loses(0);
    assert_eq!(world.reply(), Reply::Done);
    world.ask(additions(&["n0"]));
    world.joins(1, 4);
    assert_eq!(world.added().joined, hosts(&["n0"]));
    assert_eq!(world.nodes(), ["n0 1 Up 1/2"], "the old job has a slot");
    world.ends(run, Cause::Ended(EndReason::Canceled));
    assert_eq!(world.nodes(), ["n0 1 Up 4/4"]);
}

#[test]
fn a_dropped_bad_node_is_forgotten_when_jobs_that_go_on_without_it_have_ended() {
    let mut world = World::new(&[1, 1]);
    world.submitted(job(2));
    world.store();
    let run = world.launches()[0].1;
    world.loses(1);
    world.ask(Ask::Drop(hosts(&["n1"]), Down::IfIdle));
    assert_eq!(world.reply(), Reply::Refused(NotDone::NodesBusy(1)));
    world.ask(Ask::Drop(hosts(&["n1"]), Down::WhenIdle));
    assert_eq!(world.reply(), Reply::Done);
    assert_eq!(world.nodes(), ["n0 0 Up 0/1"]);
    world.ends(run, Cause::Success);
    world.submit(job(2));
    assert!(matches!(
        world.reply(),
        Reply::Refused(NotDone::NotAccepted(_))
    ));
}

#[test]
fn a_node_that_is_to_leave_can_stay() {
    let mut world = World::new(&[1, 1]);
    world.submitted(job(2));
    world.store();
    let run = world.launches()[0].1;
    world.ask(Ask::Drop(hosts(&["n1"]), Down::WhenIdle));
    world.ask(Ask::Resume(hosts(&["n1"])));
    let (resumed, dropped) = (world.reply(), world.reply());
    let stays = Reply::Refused(NotDone::NodeStays("n1".to_owned()));
    assert_eq!((resumed, dropped), (Reply::Done, stays));
    world.ends(run, Cause::Success);
    assert_eq!(world.wants(), [""; 0]);
    assert_eq!(world.nodes(), ["n0 0 Up 1/1", "n1 1 Up 1/1"]);
}

#[test]
fn a_node_that_is_dropped_while_it_starts_leaves_when_it_has_joined() {
    let mut world = World::new(&[1]);
    world.ask(additions(&["n1"]));
    assert_eq!(world.wants(), ["start n1 as 1"]);
    world.ask(Ask::Drop(hosts(&["n1"]), Down::IfIdle));
    world.submitted(job(1));
    world.store();
    assert_eq!(world.launches()[0].0, "1 on 1@n0");
    world.submitted(job(1));
    world.joins(1, 1);
    world.store();
    assert_eq!(world.launches(), [], "it gets no job");
    assert_eq!(world.wants(), ["leave 1"]);
    assert_eq!(world.added().joined, hosts(&["n1"]));
    world.loses(1);
    assert_eq!(world.reply(), Reply::Done);
    assert_eq!(world.nodes(), ["n0 0 Up 0/1"]);
}

#[test]
fn the_node_of_the_controller_goes_and_comes_with_its_daemon() {
    let mut world = World::new(&[]);
    world.machine = Machine::new(&Setup {
        limits: Default::default(),
        declared: Default::default(),
        name: "main".to_owned(),
        epoch: Wall(0),
        nodes: vec!["head".to_owned(), "n1".to_owned()],
        local: Some(NodeId(0)),
        stored: Vec::new(),
        model: None,
    });
    world.joins(0, 1);
    world.joins(1, 1);
    world.ask(Ask::Drop(hosts(&["head"]), Down::IfIdle));
    assert_eq!(world.reply(), Reply::Done);
    assert_eq!(world.wants(), [""; 0]);
    assert_eq!(world.nodes(), ["n1 1 Up 1/1"]);
    world.ask(additions(&["head"]));
    assert_eq!(world.wants(), ["reopen head as 0"]);
    world.joins(0, 2);
    assert_eq!(world.added().joined, hosts(&["head"]));
    assert_eq!(world.nodes(), ["head 0 Up 2/2", "n1 1 Up 1/1"]);
}

#[test]
fn a_stored_job_waits_for_a_node_that_is_added_later() {
    let mut world = World::new(&[1]);
    world.ask(additions(&["n7"]));
    world.joins(1, 1);
    assert_eq!(world.added().joined, hosts(&["n7"]));
    world.submitted(job(1));
    world.submitted(job(1));
    world.store();
    let mut named = job(1);
    named.spec.placement.apps[0].hosts = Some(hosts(&["n7"]));
    world.submitted(named);
    world.store();
    // The next machine starts with the nodes of `rally up`.
    let mut world = world.restart();
    world.store();
    world.ask(Ask::Ready);
    assert!(matches!(world.reply(), Reply::Status(status) if status.nodes == 1));
    assert_eq!(world.launches(), []);
    assert_eq!(world.nodes(), ["n0 0 Up 1/1"]);
    world.ask(additions(&["n7"]));
    world.joins(1, 1);
    world.store();
    assert_eq!(world.launches()[0].0, "3 on 1@n1");
}

#[test]
fn starts_are_bounded_and_a_machine_that_ends_starts_none() {
    let mut world = World::new(&[1]);
    world.machine.comings.next_daemon = STARTS_MAX;
    world.ask(additions(&["n1"]));
    let refused = NotDone::TooManyStarts(STARTS_MAX);
    assert_eq!(world.reply(), Reply::Refused(refused));
    world.ask(Ask::Down(Down::WhenIdle));
    assert_eq!(world.reply(), Reply::Done);
    world.ask(additions(&["n1"]));
    assert_eq!(world.reply(), Reply::Refused(NotDone::GoingDown));
}
