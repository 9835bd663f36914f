//! What jobs need of the nodes, and where they are placed.

use super::*;

fn whole(submission: Submission, map: &str) -> Submission {
    Submission {
        spec: spec_of(None, Some(map)),
        ..submission
    }
}

fn lost(node: u32) -> Cause {
    Cause::NodeLost {
        node: NodeId(node),
        why: "no answer".to_owned(),
    }
}

impl World {
    fn lose(&mut self, node: u32) {
        self.machine.node_lost(self.now, NodeId(node), "no answer");
        self.pump();
    }
}

#[test]
fn a_job_that_wants_all_nodes_does_not_wait_for_lost_ones() {
    let mut world = World::new(&[2, 2, 2]);
    let first = world.submitted(Submission {
        wishes: Wishes {
            on_node_loss: Requeue::OnNodeLoss,
            ..Wishes::default()
        },
        ..whole(job(1), "ppr:1:numa")
    });
    let second = world.submitted(whole(job(1), "ppr:1:node"));
    let third = world.submitted(whole(job(1), "slot"));
    world.store();
    let run = world.launches()[0].1;
    world.lose(1);
    world.ends(run, lost(1));
    world.store();
    // It waits again, for the other nodes.
    let launches = world.launches();
    assert_eq!(launches[0].0, format!("{first} on 2@n0+2@n2"));
    world.ends(launches[0].1, Cause::Success);
    world.store();
    let launches = world.launches();
    assert_eq!(launches[0].0, format!("{second} on 1@n0+1@n2"));
    world.ends(launches[0].1, Cause::Success);
    world.store();
    let launches = world.launches();
    assert_eq!(launches[0].0, format!("{third} on 2@n0+2@n2"));
    assert_eq!(world.record(third).slots, 4);
    // A later one does not count the lost node either.
    world.ends(launches[0].1, Cause::Success);
    let fourth = world.submitted(whole(job(1), "ppr:1:numa"));
    world.store();
    assert_eq!(world.launches()[0].0, format!("{fourth} on 2@n0+2@n2"));
}

#[test]
fn a_job_that_wants_all_nodes_does_not_wait_for_those_that_the_next_machine_lacks() {
    let mut world = World::new(&[2, 2]);
    let held = |submission| Submission {
        wishes: Wishes {
            hold: Hold::ByUser,
            ..Wishes::default()
        },
        ..submission
    };
    let all = world.submitted(held(whole(job(1), "ppr:1:numa")));
    let three = world.submitted(held(job(3)));
    world.store();
    let setup = Setup {
        limits: Default::default(),
        declared: Default::default(),
        name: "main".to_owned(),
        epoch: Wall(0),
        nodes: vec!["n0".to_owned(), "n1".to_owned()],
        local: None,
        stored: world.stored.clone().into_iter().collect(),
        model: None,
    };
    world.machine = Machine::new(&setup);
    let said = Slots::Explicit(2);
    world
        .machine
        .node_up(world.now, NodeId(0), (2, said), &NodeResources::default());
    assert_eq!(world.record(all).slots, 2, "the other node may join");
    world.lose(1);
    assert_eq!(world.record(all).slots, 1, "one whole node");
    for id in [all, three] {
        world.ask(Ask::Release(id));
        assert_eq!(world.reply(), Reply::Done);
    }
    world.store();
    assert_eq!(world.launches()[0].0, format!("{all} on 2@n0"));
    // An amount that the user has named is not changed.
    assert_eq!(world.record(three).slots, 3);
}

#[test]
fn a_job_whose_nodes_are_all_lost_waits_for_what_they_had() {
    let mut world = World::new(&[2, 4]);
    let named = |count: Option<u32>, map: Option<&str>| {
        let mut named = Submission {
            spec: spec_of(count, map),
            ..job(1)
        };
        let hosts = ["n1"].into_iter().collect();
        named.spec.placement.apps[0].hosts = Some(hosts);
        named
    };
    let blocker = world.submitted(named(None, None));
    let before = world.submitted(named(None, None));
    let eight = named(Some(8), Some("slot:oversubscribe"));
    let shared = world.submitted(eight);
    world.store();
    let run = world.launches()[0].1;
    world.lose(1);
    world.ends(run, lost(1));
    assert_eq!(world.record(blocker).state(), State::Failed);
    let after = world.submitted(named(None, None));
    let objects = world.submitted(named(None, Some("ppr:1:node")));
    let slots =
        |world: &mut World| [before, shared, after, objects].map(|id| world.record(id).slots);
    assert_eq!(slots(&mut world), [4, 4, 4, 1]);
    world.store();
    assert_eq!(world.launches(), []);
    world.ask(Ask::Drop(["n1"].into_iter().collect(), Down::IfIdle));
    assert_eq!(world.reply(), Reply::Done);
    assert_eq!(slots(&mut world), [4, 4, 4, 1]);
    let said = Slots::Explicit(4);
    let added = Additions {
        nodes: vec![AllocatedNode {
            name: "n1".to_owned(),
            slots: said,
            max_slots: None,
            granted: None,
        }],
        environment: Vec::new(),
    };
    world.ask(Ask::Add(Box::new(added)));
    world
        .machine
        .node_up(world.now, NodeId(2), (4, said), &NodeResources::default());
    world.pump();
    assert!(matches!(world.reply(), Reply::Added(_)));
    assert_eq!(slots(&mut world), [4, 4, 4, 1]);
    world.store();
    assert_eq!(world.launches()[0].0, format!("{before} on 4@n2"));
}

#[test]
fn no_more_tasks_run_than_the_controller_takes() {
    let most = RUNNING_MAX;
    let mut world = World::new(&[most + 2]);
    world.submitted(array(most + 1));
    let last = world.submitted(job(1));
    world.store();
    let launches = world.launches();
    assert_eq!(launches.len(), most as usize);
    world.ask(Ask::Explain(last));
    let Reply::Explained(explained) = world.reply() else {
        panic!()
    };
    let limit = queue::LimitHit::Running(most);
    assert_eq!(explained.why, Reason::Limit(limit));
    for (_, run) in launches.iter().take(2) {
        world.ends(*run, Cause::Success);
    }
    world.store();
    let launches = world.launches();
    assert_eq!(launches.len(), 2);
    assert_eq!(launches[1].0, format!("{last} on 1@n0"));
}

#[test]
fn apps_that_are_placed_by_different_rules_get_whole_nodes() {
    let mut world = World::new(&[4, 4, 4]);
    let hosts = |names: &[&str]| Some(names.iter().copied().collect::<HostList>());
    let app = |hosts: Option<HostList>, map: Option<&str>| place::AppRequest {
        count: Some(1),
        hosts,
        map_by: map.map(|map| place::map_by(map).unwrap()),
    };
    let cases = [
        // The same rule for all: slots are enough.
        (vec![app(None, None), app(None, None)], "2@n0"),
        (
            vec![app(None, Some("node:PE=2")), app(None, Some("node:PE=2"))],
            "4@n0",
        ),
        (
            vec![app(hosts(&["n1"]), None), app(hosts(&["n1"]), None)],
            "2@n1",
        ),
        // Different hosts, or a rule of one app.
        (
            vec![app(hosts(&["n1"]), None), app(hosts(&["n2"]), None)],
            "4@n1+4@n2",
        ),
        (
            vec![app(hosts(&["n1"]), None), app(None, None)],
            "4@n0+4@n1+4@n2",
        ),
        (
            vec![app(None, None), app(None, Some("slot:PE=3"))],
            "4@n0+4@n1+4@n2",
        ),
        (
            vec![app(None, Some("ppr:1:node")), app(None, Some("ppr:1:node"))],
            "4@n0+4@n1+4@n2",
        ),
    ];
    for (apps, expected) in cases {
        let mut submission = job(1);
        submission.spec.apps = vec![submission.spec.apps[0].clone(); apps.len()];
        submission.spec.placement.apps = apps.clone();
        let id = world.submitted(submission);
        world.store();
        let launches = world.launches();
        assert_eq!(launches[0].0, format!("{id} on {expected}"), "{apps:?}");
        world.ends(launches[0].1, Cause::Success);
        world.store();
    }
}
