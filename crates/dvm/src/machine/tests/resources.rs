//! Counted resources: GPUs and memory of nodes, and those that the user has declared.

use super::*;
use crate::{
    queue::Refusal,
    spec::{GpuKind, NodeGpus},
};

/// What is declared in these tests: ten licenses, and two FPGAs on the node `n1`.
fn declared() -> Declared {
    Declared {
        shared: BTreeMap::from([("matlab".to_owned(), 10)]),
        of_nodes: vec![NodeShare {
            name: "fpga".to_owned(),
            count: 2,
            hosts: Some(["n1"].into_iter().collect()),
        }],
    }
}

fn found(gpus: &[&str], memory: u64) -> NodeResources {
    NodeResources {
        gpus: (!gpus.is_empty()).then(|| NodeGpus {
            kind: GpuKind::Nvidia,
            names: gpus.iter().map(|&name| name.to_owned()).collect(),
        }),
        memory,
    }
}

impl World {
    /// Starts a machine whose nodes have four slots each, and these resources.
    fn with_resources(nodes: &[NodeResources]) -> Self {
        let mut world = Self::new(&[]);
        world.machine = Machine::new(&Setup {
            limits: Default::default(),
            declared: declared(),
            name: "main".to_owned(),
            epoch: Wall(1_000_000),
            nodes: (0..nodes.len()).map(|node| format!("n{node}")).collect(),
            local: None,
            stored: Vec::new(),
            model: None,
        });
        for (node, found) in (0..).zip(nodes) {
            world.up(node, found);
        }
        world
    }

    fn up(&mut self, node: u32, found: &NodeResources) {
        let said = (4, Slots::Explicit(4));
        self.machine.node_up(self.now, NodeId(node), said, found);
        self.pump();
    }

    /// Launches what is to be launched, and returns the GPUs of each run.
    fn gpus(&mut self) -> Vec<(JobId, String)> {
        let mut all = Vec::new();
        let mut others = VecDeque::new();
        while let Some(output) = self.outputs.pop_front() {
            let MachineOutput::Launch(run) = output else {
                others.push_back(output);
                continue;
            };
            let id = JobId(self.next_run);
            self.next_run += 1;
            self.machine.launched(self.now, run.task, id);
            let gpus = run.grant.gpus.iter();
            let gpus = gpus.map(|(node, gpus)| format!("{}@n{node}", gpus.names.join(",")));
            all.push((
                id,
                format!("{}: {}", run.task, gpus.collect::<Vec<_>>().join(" ")),
            ));
            self.pump();
        }
        self.outputs.append(&mut others);
        all
    }

    /// Loses the daemon of the first node, and adds the node again.
    fn lose_and_add(&mut self) {
        self.machine.node_lost(self.now, NodeId(0), "no answer");
        self.pump();
        let node = AllocatedNode {
            name: "n0".to_owned(),
            slots: Slots::Explicit(4),
            max_slots: None,
            granted: None,
        };
        self.ask(Ask::Add(Box::new(Additions {
            nodes: vec![node],
            environment: Vec::new(),
        })));
    }

    fn refused(&mut self, submission: Submission) -> NotDone {
        self.submit(submission);
        match self.reply() {
            Reply::Refused(why) => why,
            other => panic!("{other:?}"),
        }
    }

    fn resources(&mut self, node: usize) -> BTreeMap<String, (u64, u64)> {
        self.ask(Ask::Nodes);
        match self.reply() {
            Reply::Nodes(lines) => lines[node].resources.clone(),
            other => panic!("{other:?}"),
        }
    }
}

fn with_gpus(procs: u32, share: GpuShare) -> Submission {
    let mut job = job(procs);
    job.spec.gpus = Some(GpuPlan {
        kind: GpuKind::Nvidia,
        available: Vec::new(),
        share,
    });
    job
}

fn with_memory(procs: u32, memory: u64) -> Submission {
    let mut job = job(procs);
    job.spec.limits.memory = Some(memory);
    job
}

/// A job that needs this much of a resource, for itself and for each proc.
fn with_resource(job_needs: Option<(&str, u64)>, proc_needs: Option<(&str, u64)>) -> Submission {
    let mut job = job(1);
    let one = |need: Option<(&str, u64)>| {
        let need = need.map(|(name, count)| (name.to_owned(), count));
        need.into_iter().collect()
    };
    job.spec.needs = crate::spec::ResourceNeeds {
        job: one(job_needs),
        proc: one(proc_needs),
    };
    job
}

#[test]
fn jobs_on_a_node_have_different_gpus() {
    let mut world = World::with_resources(&[found(&["3", "GPU-ab", "5"], 0)]);
    for _ in 0..3 {
        world.submitted(with_gpus(1, GpuShare::Each(1)));
    }
    world.submitted(with_gpus(1, GpuShare::Each(1)));
    world.store();
    let runs = world.gpus();
    let shown: Vec<&str> = runs.iter().map(|(_, shown)| shown.as_str()).collect();
    assert_eq!(shown, ["1: 3@n0", "2: GPU-ab@n0", "3: 5@n0"]);
    assert_eq!(world.resources(0)["gpu"], (3, 0));
    // The fourth gets what the second had.
    world.ends(runs[1].0, Cause::Success);
    world.store();
    assert_eq!(world.gpus()[0].1, "4: GPU-ab@n0");
}

#[test]
fn gpus_of_a_node_are_for_all_procs_or_for_each() {
    let gpus = found(&["0", "1", "2", "3"], 0);
    let mut world = World::with_resources(&[gpus.clone(), gpus]);
    // Two procs share two GPUs; two procs have one each.
    world.submitted(with_gpus(2, GpuShare::Together(2)));
    world.submitted(with_gpus(2, GpuShare::Each(1)));
    world.store();
    let shown: Vec<String> = world.gpus().into_iter().map(|(_, shown)| shown).collect();
    assert_eq!(shown, ["1: 0,1@n0", "2: 2,3@n0"]);
    // On each of two nodes.
    world.submitted(with_gpus(4, GpuShare::Together(2)));
    world.store();
    assert_eq!(world.gpus()[0].1, "3: 0,1@n1");
}

#[test]
fn a_node_that_comes_back_keeps_what_its_tasks_have() {
    let mut world = World::with_resources(&[found(&["0", "1"], 0), found(&["0"], 0)]);
    let mut everywhere = with_gpus(2, GpuShare::Together(1));
    everywhere.spec.placement.map_by = Some(place::map_by("ppr:1:node").unwrap());
    world.submitted(everywhere);
    world.store();
    let run = world.gpus()[0].0;
    world.lose_and_add();
    // The names are other ones: nothing can start there with the old ones, also if the user opens the node.
    world.up(2, &found(&["5", "6", "7"], 0));
    assert!(matches!(world.reply(), Reply::Added(_)));
    assert_eq!(world.resources(0)["gpu"], (2, 1));
    world.submitted(on(with_gpus(1, GpuShare::Each(1)), "n0"));
    world.store();
    world.ask(Ask::Resume(["n0"].into_iter().collect()));
    assert_eq!(world.reply(), Reply::Done);
    assert_eq!(world.gpus(), []);
    world.ends(run, Cause::Success);
    world.store();
    assert_eq!(world.gpus()[0].1, "2: 5@n2");
    assert_eq!(world.resources(0)["gpu"], (3, 2));
}

/// Returns a job for this node.
fn on(mut submission: Submission, node: &str) -> Submission {
    submission.spec.placement.apps[0].hosts = Some([node].into_iter().collect());
    submission
}

/// A task that goes on without a lost daemon keeps its GPU when the node is back with the same ones.
#[test]
fn a_gpu_of_a_task_without_its_daemon_is_not_given_out() {
    let both = found(&["0", "1"], 0);
    let mut world = World::with_resources(&[both.clone(), both.clone()]);
    let mut everywhere = with_gpus(2, GpuShare::Each(1));
    everywhere.spec.placement.map_by = Some(place::map_by("ppr:1:node").unwrap());
    world.submitted(everywhere);
    world.store();
    let run = world.gpus()[0].0;
    world.lose_and_add();
    world.up(2, &both);
    assert!(matches!(world.reply(), Reply::Added(_)));
    for _ in 0..2 {
        world.submitted(on(with_gpus(1, GpuShare::Each(1)), "n0"));
    }
    world.store();
    assert_eq!(world.gpus()[0].1, "2: 1@n2");
    world.ends(run, Cause::Success);
    world.store();
    assert_eq!(world.gpus()[0].1, "3: 0@n2");
}

/// Procs may share slots where nobody has said how many there are. They share nothing else.
#[test]
fn procs_that_share_slots_share_no_resources() {
    let mut world = World::with_resources(&[]);
    world.machine = Machine::new(&Setup {
        limits: Default::default(),
        declared: declared(),
        name: "main".to_owned(),
        epoch: Wall(1_000_000),
        nodes: vec!["n0".to_owned(), "n1".to_owned()],
        local: None,
        stored: Vec::new(),
        model: None,
    });
    let gpus = found(&["0", "1", "2", "3"], 0);
    for node in [0, 1] {
        let slots = (2, Slots::Implicit);
        let found = if node == 0 {
            &gpus
        } else {
            &NodeResources::default()
        };
        world.machine.node_up(world.now, NodeId(node), slots, found);
    }
    world.pump();
    world.submitted(on(with_gpus(4, GpuShare::Each(1)), "n0"));
    world.store();
    assert_eq!(world.gpus()[0].1, "1: 0,1,2,3@n0");
    let two = NotDone::NoResource(NoResource::TooMuch(TooMuch {
        name: "fpga".to_owned(),
        needed: 4,
        most: 2,
        of: ResourceOf::Node,
    }));
    let mut eight = on(with_resource(None, Some(("fpga", 1))), "n1");
    eight.spec.placement.apps[0].count = Some(8);
    assert_eq!(world.refused(eight), two);
}

/// A job that takes all nodes takes those that have what its procs need.
#[test]
fn nodes_without_a_resource_do_not_count() {
    let mut world = World::with_resources(&[found(&[], 0), found(&["0"], 0)]);
    for map in ["ppr:1:node", "ppr:1:numa"] {
        let mut job = with_gpus(1, GpuShare::Each(1));
        job.spec.placement.apps[0].count = None;
        job.spec.placement.map_by = Some(place::map_by(map).unwrap());
        world.submitted(job);
        world.store();
        let (run, shown) = world.gpus()[0].clone();
        assert!(shown.ends_with(": 0@n1"), "{map}: {shown}");
        world.ends(run, Cause::Success);
        world.store();
    }
}

#[test]
fn memory_is_counted_once_on_each_node() {
    let mut world = World::with_resources(&[found(&[], 100 << 20)]);
    world.submitted(with_memory(2, 60 << 20));
    world.submitted(with_memory(1, 60 << 20));
    // A job without a limit may use what it finds.
    world.submitted(job(1));
    world.store();
    let launches = world.launches();
    let tasks: Vec<&str> = launches.iter().map(|(task, _)| task.as_str()).collect();
    assert_eq!(tasks, ["1 on 2@n0", "3 on 1@n0"]);
    assert_eq!(world.resources(0)["memory"], (100 << 20, 40 << 20));
    let explained = world.machine.explained(world.now, JobId(2)).unwrap();
    assert!(
        matches!(explained.why, Reason::Head { .. }),
        "{explained:?}"
    );
    world.ends(launches[0].1, Cause::Success);
    world.store();
    assert_eq!(world.launches()[0].0, "2 on 1@n0");
}

#[test]
fn declared_resources_are_counted() {
    let mut world = World::with_resources(&[found(&[], 0), found(&[], 0)]);
    world.submitted(with_resource(Some(("matlab", 6)), None));
    world.submitted(with_resource(Some(("matlab", 6)), None));
    world.submitted(with_resource(Some(("matlab", 4)), None));
    world.submitted(with_resource(None, Some(("fpga", 2))));
    world.submitted(with_resource(None, Some(("fpga", 1))));
    world.store();
    let started: Vec<String> = world.launches().into_iter().map(|(task, _)| task).collect();
    assert_eq!(started, ["1 on 1@n0", "3 on 1@n0", "4 on 1@n1"]);
    assert_eq!(world.resources(1)["fpga"], (2, 0));
    assert_eq!(world.resources(0).get("fpga"), None);
    assert_eq!(world.machine.status().resources["matlab"], (10, 0));
}

#[test]
fn what_cannot_be_is_refused() {
    let mut world = World::with_resources(&[found(&["0", "1"], 64 << 20), found(&[], 0)]);
    let too_much = |name: &str, needed, most, of| {
        NotDone::NoResource(NoResource::TooMuch(TooMuch {
            name: name.to_owned(),
            needed,
            most,
            of,
        }))
    };
    let there = vec!["fpga".to_owned(), "matlab".to_owned()];
    let unknown = |name: &str| {
        NotDone::NoResource(NoResource::Unknown {
            name: name.to_owned(),
            there: there.clone(),
        })
    };
    let cases = [
        (
            with_gpus(1, GpuShare::Each(3)),
            too_much(GPU, 3, 2, ResourceOf::Node),
        ),
        (
            with_gpus(3, GpuShare::Each(1)),
            NotDone::NotAccepted(Refusal::NeverFits { units: 3, room: 2 }),
        ),
        (
            with_resource(Some(("matlab", 11)), None),
            too_much("matlab", 11, 10, ResourceOf::Machine),
        ),
        (
            with_resource(None, Some(("fpga", 3))),
            too_much("fpga", 3, 2, ResourceOf::Node),
        ),
        (with_resource(Some(("x", 1)), None), unknown("x")),
        (with_resource(None, Some(("y", 1))), unknown("y")),
        (
            with_resource(Some(("fpga", 1)), None),
            NotDone::NoResource(NoResource::OfNodes("fpga".to_owned())),
        ),
        (
            with_resource(None, Some(("matlab", 1))),
            NotDone::NoResource(NoResource::OfMachine("matlab".to_owned())),
        ),
    ];
    for (submission, expected) in cases {
        assert_eq!(world.refused(submission), expected);
    }
}

/// What a job needs is kept in the store, and a machine that does not have it any more lets the job wait.
#[test]
fn needs_outlive_the_machine() {
    let mut world = World::with_resources(&[found(&["0"], 0), found(&[], 0)]);
    world.submitted(with_gpus(1, GpuShare::Each(1)));
    let mut held = with_resource(Some(("matlab", 1)), None);
    held.wishes.hold = Hold::ByUser;
    let id = world.submitted(held);
    world.slots = vec![4];
    let mut world = world.restart();
    world.ask(Ask::Release(id));
    assert_eq!(world.reply(), Reply::Done);
    world.store();
    assert!(world.launches().is_empty());
    let explained = world.machine.explained(world.now, id).unwrap();
    let needs = explained.record.needs.unwrap();
    assert_eq!(needs.resources.job["matlab"], 1);
    let lacks = TooMuch {
        name: "matlab".to_owned(),
        needed: 1,
        most: 0,
        of: ResourceOf::Machine,
    };
    assert_eq!(explained.why, Reason::TooMuch(lacks));
}

/// A job whose procs share slots needs the same of the next machine, which does not know the slots of its nodes when it starts.
#[test]
fn procs_that_share_slots_have_as_much_after_a_restart() {
    let gpus = found(&["0", "1", "2", "3"], 0);
    let setup = |stored: &BTreeMap<Key, Bytes>| Setup {
        declared: declared(),
        limits: Limits::default(),
        name: "main".to_owned(),
        epoch: Wall(1_000_000),
        nodes: vec!["n0".to_owned()],
        local: None,
        stored: stored
            .iter()
            .map(|(key, value)| (*key, value.clone()))
            .collect(),
        model: None,
    };
    let mut world = World::with_resources(&[]);
    for (released, expected) in [(false, vec![]), (true, vec!["1: 0,1,2,3@n0".to_owned()])] {
        world.machine = Machine::new(&setup(&world.stored));
        let slots = (2, Slots::Implicit);
        world.machine.node_up(world.now, NodeId(0), slots, &gpus);
        world.pump();
        if released {
            world.ask(Ask::Release(JobId(1)));
            assert_eq!(world.reply(), Reply::Done);
        } else {
            let mut held = with_gpus(4, GpuShare::Each(1));
            held.wishes.hold = Hold::ByUser;
            world.submitted(held);
        }
        world.store();
        let shown: Vec<String> = world.gpus().into_iter().map(|(_, shown)| shown).collect();
        assert_eq!(shown, expected);
    }
}
