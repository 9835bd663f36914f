//! Requests that are passed to Slurm.

mod spawns;

use super::*;
use crate::{
    proto::AllocationRefusal,
    slurm::{News, NotDone, Tool},
};

const DESCRIPTION: &str = "JobState=RUNNING TimeLimit=00:10:00\n NodeList=n[1-2]\n NumCPUs=4\n";

/// Creates a world with a job of one rank, which runs inside of a job of Slurm.
fn in_slurm() -> World {
    let mut world = World::with(controller(8));
    let patience = Duration::from_secs(30);
    let setup = crate::slurm::Setup { job: 3, patience };
    world.handle(ControllerInput::Slurm(setup));
    world.submit(FRONT);
    world
}

impl World {
    /// Lets a command print this and end with this code.
    fn command_ends(&mut self, number: u32, printed: &str, code: u8) {
        let printed = Bytes::copy_from_slice(printed.as_bytes());
        let printed = News::Printed(printed);
        self.handle(ControllerInput::Command(number, printed));
        let ended = News::Ended(ExitStatus::Exited(code));
        self.handle(ControllerInput::Command(number, ended));
    }

    /// Lets Slurm grant the request whose command this is, with this number.
    fn grant(&mut self, number: u32, job: u32) {
        self.grant_as(number, job, DESCRIPTION);
    }

    fn grant_as(&mut self, number: u32, job: u32, description: &str) {
        let granted = format!("salloc: Granted job allocation {job}\n");
        self.command_ends(number, &granted, 0);
        self.command_ends(number + 1, description, 0);
    }

    fn last_command(&self) -> &str {
        self.commands.last().map_or("", String::as_str)
    }
}

#[test]
fn slurm_answers_requests() {
    let mut world = in_slurm();
    let asked = world.asks(1, NEW, &[nodes(2), seconds(600), request("mine")]);
    assert_eq!(
        world.last_command(),
        "0: salloc --no-shell --job-name=test --comment=rally:3:mine --nodes=2 --time=10"
    );
    assert_eq!(world.told(1, RELEASE, &[id("slurm:12")]), "NOT_FOUND");
    let twice = world.told(1, NEW, &[request("mine")]);
    assert_eq!(twice, "EXISTS");
    world.grant(0, 12);
    let held = "slurm:12: 4 on n1,n2";
    assert_eq!(world.answer(asked).as_deref(), Some(held));
    for name in [id("slurm:12"), id("12"), id("mine"), request("mine")] {
        let asked = world.asks(1, REACQUIRE, &[name]);
        assert!(
            world
                .last_command()
                .ends_with("scontrol --details show job 12")
        );
        let number = u32::try_from(world.commands.len() - 1).unwrap();
        world.command_ends(number, DESCRIPTION, 0);
        assert_eq!(world.answer(asked).as_deref(), Some(held));
    }
    let more = world.asks(1, EXTEND, &[id("12"), seconds(60)]);
    assert_eq!(
        world.last_command(),
        "6: scontrol update JobId=12 TimeLimit=+1"
    );
    assert_eq!(
        world.told(1, REACQUIRE, &[id("12")]),
        "OPERATION_IN_PROGRESS"
    );
    world.command_ends(6, "Access/permission denied for job 12\n", 1);
    assert_eq!(world.answer(more).as_deref(), Some("NO_PERMISSIONS"));
    let [Note::AllocationRefused { why, .. }] = &world.notes[..] else {
        panic!("{:?}", world.notes);
    };
    let words = "Access/permission denied for job 12".to_owned();
    let tool = Tool::Scontrol;
    let expected = AllocationRefusal::BySlurm(NotDone::Failed { tool, words });
    assert_eq!(*why, expected);
    let release = world.asks(1, RELEASE, &[id("slurm:12")]);
    assert_eq!(world.last_command(), "7: scancel 12");
    assert_eq!(world.answer(release), None);
    assert_eq!(world.told(1, RELEASE, &[id("12")]), "NOT_AVAILABLE");
    world.command_ends(7, "", 0);
    assert_eq!(world.answer(release).as_deref(), Some("done"));
    assert_eq!(world.told(1, RELEASE, &[id("12")]), "NOT_FOUND");
}

#[test]
fn what_slurm_cannot_do_is_refused_with_the_reason() {
    let mut world = in_slurm();
    world.asks(1, NEW, &[request("mine")]);
    world.grant(0, 12);
    let commands = world.commands.len();
    let refusals = [
        (EXTEND, vec![id("12"), nodes(1)], "NOT_SUPPORTED"),
        (EXTEND, vec![id("12"), cpus(1), seconds(5)], "NOT_SUPPORTED"),
        (RELEASE, vec![id("12"), nodes(1)], "NOT_SUPPORTED"),
        (EXTEND, vec![id("12")], "BAD_PARAM"),
        (RELEASE, vec![], "BAD_PARAM"),
        (NEW, vec![nodes(0)], "BAD_PARAM"),
        (EXTEND, vec![id("3"), seconds(5)], "NOT_FOUND"),
        (AllocDirective(9), vec![id("12")], "NOT_SUPPORTED"),
    ];
    for (directive, infos, expected) in refusals {
        assert_eq!(world.told(1, directive, &infos), expected, "{infos:?}");
    }
    for (infos, expected) in [
        (vec![id("nope")], "NOT_FOUND"),
        (vec![id("12"), nodes(1)], "BAD_PARAM"),
        (vec![nodes(0)], "BAD_PARAM"),
    ] {
        let spawned = world.spawns(1, 1, &infos);
        let answer = world.spawned(spawned);
        assert_eq!(answer.as_deref(), Some(expected), "{infos:?}");
    }
    let whys = world.notes.iter().map(|note| match note {
        Note::AllocationRefused { why, .. } => why.clone(),
        other => panic!("{other:?}"),
    });
    let expected = [
        AllocationRefusal::MoreNodes,
        AllocationRefusal::MoreNodes,
        AllocationRefusal::Part,
    ];
    assert_eq!(whys.collect::<Vec<_>>(), expected);
    assert_eq!(world.commands.len(), commands);
    // The front is told of so many, and no more.
    for _ in 0..20 {
        world.told(1, EXTEND, &[id("12"), nodes(1)]);
    }
    assert_eq!(world.notes.len(), 16);
}

#[test]
fn a_request_that_waits_is_given_up() {
    let mut world = in_slurm();
    let late = world.asks(1, NEW, &[info(keys::TIMEOUT, Value::Int(5))]);
    let released = world.asks(1, NEW, &[request("mine")]);
    world.wait_until(4);
    assert_eq!(world.answer(late), None);
    world.wait_until(5);
    assert_eq!(world.answer(late).as_deref(), Some("TIMEOUT"));
    assert_eq!(world.last_command(), "0: Ask");
    world.command_ends(0, "salloc: Pending job allocation 12\n", 1);
    assert_eq!(world.last_command(), "2: scancel 12");
    world.command_ends(2, "", 0);

    let release = world.asks(1, RELEASE, &[request("mine")]);
    assert_eq!(world.answer(released).as_deref(), Some("JOB_CANCELED"));
    assert_eq!(world.last_command(), "1: Ask");
    world.command_ends(1, "salloc: Job aborted due to signal\n", 1);
    assert_eq!(world.answer(release).as_deref(), Some("done"));
    assert_eq!(world.notes, []);
}

#[test]
fn allocations_of_slurm_end_with_their_owner_which_waits_for_that() {
    let mut world = in_slurm();
    world.asks(1, NEW, &[]);
    world.grant(0, 12);
    let waits = world.asks(1, NEW, &[]);
    world.ends(1, ExitStatus::SUCCESS);
    assert_eq!(world.answer(waits).as_deref(), Some("JOB_CANCELED"));
    assert_eq!(world.commands[3..], ["3: scancel 12", "2: Ask"]);
    assert!(!world.finished.contains(&FRONT));
    world.command_ends(2, "salloc: Pending job allocation 13\n", 1);
    let denied = "scancel: error: Kill job error on job id 12: Access/permission denied\n";
    world.command_ends(3, denied, 1);
    let [Note::AllocationLeft { job: 12, .. }] = &world.notes[..] else {
        panic!("{:?}", world.notes);
    };
    assert!(!world.finished.contains(&FRONT));
    assert_eq!(world.last_command(), "4: scancel 13");
    assert!(!world.controller.is_idle());
    // Slurm does not answer.
    let until = world.controller.deadline().unwrap();
    assert_eq!(until, world.now + Duration::from_secs(10));
    world.wait_until(10);
    assert_eq!(world.last_command(), "4: Kill");
    assert_eq!(world.notes.len(), 2);
    assert!(world.finished.contains(&FRONT));
    assert!(world.controller.is_idle());
}

#[test]
fn allocations_of_slurm_belong_to_the_jobs_of_one_front() {
    let mut world = in_slurm();
    world.asks(1, NEW, &[request("mine")]);
    world.grant(0, 12);
    world.submit(FrontId(6));
    assert_eq!(world.told(2, RELEASE, &[id("slurm:12")]), "NOT_FOUND");
    assert_eq!(world.told(2, RELEASE, &[request("mine")]), "NOT_FOUND");
    // A spawned job may use those of its spawner, and its own end with it.
    let spawned = world.spawns(1, 1, &[]);
    assert_eq!(world.spawned(spawned).as_deref(), Some("3: 1@n0"));
    world.asks(3, NEW, &[request("theirs")]);
    world.grant(2, 13);
    world.asks(3, REACQUIRE, &[request("mine")]);
    assert_eq!(world.last_command(), "4: scontrol --details show job 12");
    world.ends(3, ExitStatus::SUCCESS);
    assert_eq!(world.last_command(), "5: scancel 13");
    let gone = world.asks(1, RELEASE, &[request("mine")]);
    // What it has waited for is not needed any more.
    assert_eq!(world.commands[6..], ["4: Kill", "6: scancel 12"]);
    world.command_ends(6, "", 0);
    assert_eq!(world.answer(gone).as_deref(), Some("done"));
}
