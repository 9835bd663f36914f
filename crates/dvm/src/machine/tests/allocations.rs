//! Allocations: jobs of the queue without procs.

use std::time::Duration;

use super::*;
use crate::queue::{NotExtended, Refusal};

const RUN: JobId = JobId(1);

fn seconds(count: u64) -> Option<Duration> {
    Some(Duration::from_secs(count))
}

fn slots(slots: u32) -> Room {
    Room {
        slots: Some(slots),
        ..Room::default()
    }
}

fn nodes(nodes: u32) -> Room {
    Room {
        nodes: Some(nodes),
        ..Room::default()
    }
}

fn hosts(names: &[&str]) -> Room {
    Room {
        hosts: Some(names.iter().copied().collect()),
        ..Room::default()
    }
}

fn wish(room: Room, limit: Option<u64>) -> AllocationWish {
    AllocationWish {
        by: RUN,
        name: "more".to_owned(),
        room,
        time_limit: limit.and_then(seconds),
        patience: None,
    }
}

impl World {
    /// A machine on which a job of so many procs runs, whose number is 1.
    fn with_owner(slots: &[u32], procs: u32) -> Self {
        let mut world = Self::new(slots);
        world.submitted(job(procs));
        world.store();
        assert_eq!(world.launches().len(), 1);
        world
    }

    fn allocate(&mut self, wish: AllocationWish) -> Result<JobId, NotDone> {
        let id = self.machine.allocate(self.now, wish);
        self.pump();
        id
    }

    /// Returns what the machine has said about allocations.
    fn said(&mut self) -> Vec<String> {
        let mut said = Vec::new();
        self.outputs.retain(|output| {
            said.push(match output {
                MachineOutput::Granted(id, grant) => format!("{id} granted {}", shown(grant)),
                MachineOutput::NotGranted(id, why) => format!("{id} {why:?}"),
                MachineOutput::EndAllocation(id, why) => format!("end {id}: {why:?}"),
                _ => return true,
            });
            false
        });
        said
    }

    fn over(&mut self, id: JobId) {
        self.machine.allocation_over(self.now, id);
        self.pump();
        self.store();
    }

    fn extend(&mut self, id: JobId, room: &Room, time: u64) -> Result<String, NotChanged> {
        let time = seconds(time).filter(|time| !time.is_zero());
        let grant = self.machine.extend_allocation(self.now, id, room, time);
        self.pump();
        grant.map(|grant| shown(&grant))
    }

    fn shrink(&mut self, id: JobId, room: &Room, busy: &[u32]) -> Result<String, NotChanged> {
        let busy = busy.iter().copied().map(NodeId).collect();
        let rest = self.machine.shrink_allocation(self.now, id, room, &busy);
        self.pump();
        rest.map(|rest| match rest {
            Rest::Nothing => "nothing".to_owned(),
            Rest::Some(grant) => shown(&grant),
        })
    }

    fn wait_until(&mut self, seconds: u64) {
        self.now = Time::ZERO + Duration::from_secs(seconds);
        self.machine.tick(self.now);
        self.pump();
    }
}

fn shown(grant: &Grant) -> String {
    let slots = grant.slots.iter();
    let slots = slots.map(|(node, slots)| format!("{slots}@n{node}"));
    let sharing = match grant.sharing {
        Sharing::Shared => "",
        Sharing::Exclusive => " whole",
    };
    format!("{}{sharing}", slots.collect::<Vec<_>>().join("+"))
}

#[test]
fn what_is_asked_for_is_granted() {
    let cases = [
        (slots(2), "2 granted 2@n0"),
        (slots(5), "2 granted 4@n1+1@n2"),
        (nodes(2), "2 granted 4@n1+4@n2 whole"),
        (
            Room {
                slots: Some(5),
                ..nodes(2)
            },
            "2 granted 3@n0+3@n1",
        ),
        (hosts(&["n2"]), "2 granted 4@n2 whole"),
        (
            Room {
                slots: Some(2),
                ..hosts(&["n1", "n2"])
            },
            "2 granted 1@n1+1@n2",
        ),
        (
            Room {
                nodes: Some(1),
                ..hosts(&["n2", "n1"])
            },
            "2 granted 4@n1 whole",
        ),
    ];
    for (room, expected) in cases {
        let mut world = World::with_owner(&[4, 4, 4], 1);
        let wish = wish(room, None);
        assert_eq!(world.allocate(wish.clone()), Ok(JobId(2)), "{wish:?}");
        assert_eq!(world.said(), [expected], "{wish:?}");
    }
}

#[test]
fn what_can_never_be_granted_is_refused() {
    let never = |units, room| NotDone::NotAccepted(Refusal::NeverFits { units, room });
    let cases = [
        (Room::default(), NotDone::NotAccepted(Refusal::NoSlots)),
        // The caller keeps its own slots while it waits.
        (slots(4), never(4, 3)),
        (nodes(2), never(2, 1)),
        (hosts(&["n0"]), never(1, 0)),
        (hosts(&["n9"]), NotDone::NoSuchNode("n9".to_owned())),
        (
            Room {
                nodes: Some(2),
                ..hosts(&["n1"])
            },
            never(2, 1),
        ),
    ];
    for (room, expected) in cases {
        let mut world = World::with_owner(&[2, 2], 1);
        assert_eq!(world.allocate(wish(room, None)), Err(expected));
        assert_eq!(world.machine.jobs.len(), 1);
    }
    let mut world = World::with_owner(&[2, 2], 1);
    world.ask(Ask::Down(Down::WhenIdle));
    let late = world.allocate(wish(slots(1), None));
    assert_eq!(late, Err(NotDone::GoingDown));
}

#[test]
fn an_allocation_is_a_job_of_the_queue() {
    let mut world = World::with_owner(&[4], 1);
    let id = world.allocate(wish(slots(2), Some(60))).unwrap();
    let record = world.record(id);
    assert_eq!(record.state(), State::Running);
    assert_eq!((record.slots, record.time_limit), (2, seconds(60)));
    assert_eq!(record.command, "allocation of job 1");
    assert_eq!(
        (record.name.as_str(), record.hosts.to_string()),
        ("more", "n0".to_owned())
    );
    // It has no procs.
    world.ask(Ask::Signal(id, None, Signal::TERM));
    assert_eq!(world.reply(), Reply::Refused(NotDone::IsAllocation(id)));
    world.ask(Ask::Nodes);
    let Reply::Nodes(lines) = world.reply() else {
        panic!()
    };
    assert_eq!((lines[0].free, lines[0].jobs.len()), (1, 2));
    // Others wait for it.
    let next = world.submitted(job(2));
    world.store();
    assert_eq!(world.launches(), []);
    world.over(id);
    world.store();
    assert_eq!(world.launches()[0].0, format!("{next} on 2@n0"));
    assert_eq!(world.past(id).unwrap().state(), State::Succeeded);
}

#[test]
fn an_allocation_ends_at_its_time() {
    let mut world = World::with_owner(&[4], 1);
    let id = world.allocate(wish(slots(2), Some(60))).unwrap();
    world.said();
    assert_eq!(
        world.machine.deadline(),
        Some(Time::ZERO + Duration::from_secs(60))
    );
    world.wait_until(59);
    assert_eq!(world.said(), [""; 0]);
    world.wait_until(60);
    assert_eq!(world.said(), ["end 2: TimeLimit"]);
    assert_eq!(world.extend(id, &slots(1), 0), Err(NotChanged::NotHeld));
    // The controller has ended what ran there.
    world.over(id);
    let past = world.past(id).unwrap();
    assert_eq!(past.state(), State::Failed);
    let why = past.failure.map(|(_, why)| *why);
    let Some(Failure::Ended(outcome)) = why else {
        panic!("{why:?}");
    };
    assert_eq!(outcome.cause, Cause::Ended(EndReason::TimeLimit));
    assert_eq!(world.machine.deadline(), None);
}

#[test]
fn who_does_not_wait_any_longer_gets_nothing() {
    let mut world = World::with_owner(&[4], 1);
    let first = world.allocate(wish(slots(3), None)).unwrap();
    let patient = AllocationWish {
        patience: seconds(5),
        ..wish(slots(3), Some(60))
    };
    let second = world.allocate(patient.clone()).unwrap();
    world.said();
    world.wait_until(5);
    assert_eq!(world.said(), ["3 TimedOut"]);
    assert_eq!(world.record(second).state(), State::Canceled);
    // Once it is granted, patience does not matter.
    let third = world.allocate(patient).unwrap();
    world.over(first);
    assert_eq!(world.said(), ["4 granted 3@n0"]);
    world.wait_until(11);
    assert_eq!(world.said(), [""; 0]);
    world.over(third);
    assert_eq!(world.machine.deadline(), None);
}

#[test]
fn a_user_cancels_an_allocation() {
    let mut world = World::with_owner(&[4], 1);
    let held = world.allocate(wish(slots(3), None)).unwrap();
    let waiting = world.allocate(wish(slots(3), None)).unwrap();
    world.said();
    for id in [held, waiting] {
        world.ask(Ask::Cancel(id, None));
    }
    assert_eq!(world.said(), ["end 2: Canceled", "3 Canceled"]);
    world.over(held);
    assert_eq!(world.past(held).unwrap().state(), State::Canceled);
}

#[test]
fn a_machine_that_ends_grants_nothing_and_waits_for_nobody_who_waits() {
    for (down, expected) in [
        (Down::WhenIdle, vec!["3 Canceled"]),
        (Down::Now, vec!["end 2: Canceled", "3 Canceled"]),
    ] {
        let mut world = World::with_owner(&[4], 1);
        let held = world.allocate(wish(slots(3), None)).unwrap();
        world.allocate(wish(slots(3), None)).unwrap();
        world.said();
        world.ask(Ask::Down(down));
        let mut said = world.said();
        said.sort_by_key(|line| !line.starts_with("end"));
        assert_eq!(said, expected, "{down:?}");
        world.over(held);
        world.ends(RUN, Cause::Success);
        world.store();
        assert!(world.machine.is_over(), "{down:?}");
    }
}

#[test]
fn a_killed_machine_has_lost_its_allocations() {
    let mut world = World::with_owner(&[4], 1);
    let held = world.allocate(wish(slots(2), None)).unwrap();
    let waiting = world.allocate(wish(slots(3), None)).unwrap();
    world.store();
    let mut world = world.restart();
    world.store();
    assert_eq!(world.machine.restored.lost, [JobId(1), held, waiting]);
    assert_eq!(world.past(held).unwrap().state(), State::Failed);
    assert_eq!(world.past(waiting).unwrap().state(), State::Canceled);
    assert_eq!(world.machine.queue.running(), 0);
}

#[test]
fn an_allocation_gets_more() {
    let mut world = World::with_owner(&[4, 4, 4], 1);
    let some = world.allocate(wish(slots(2), Some(60))).unwrap();
    let whole = world.allocate(wish(nodes(1), Some(60))).unwrap();
    assert_eq!(world.said(), ["2 granted 2@n0", "3 granted 4@n1 whole"]);
    let no_room = NotChanged::NotExtended(NotExtended::NoRoom);
    assert_eq!(world.extend(some, &slots(6), 0), Err(no_room.clone()));
    assert_eq!(world.extend(some, &slots(1), 0), Ok("3@n0".to_owned()));
    assert_eq!(world.extend(whole, &hosts(&["n0"]), 0), Err(no_room));
    assert_eq!(
        world.extend(whole, &nodes(1), 0),
        Ok("4@n1+4@n2 whole".to_owned())
    );
    assert_eq!(world.record(whole).hosts.to_string(), "n[1-2]");
    assert_eq!(world.record(some).slots, 3);
    for (id, room) in [(some, nodes(1)), (whole, slots(1)), (some, Room::default())] {
        assert_eq!(
            world.extend(id, &room, 0),
            Err(NotChanged::Mismatch),
            "{room:?}"
        );
    }
    assert_eq!(
        world.extend(whole, &hosts(&["n9"]), 0),
        Err(NotChanged::NoSuchNode("n9".to_owned()))
    );
    assert_eq!(world.extend(RUN, &slots(1), 0), Err(NotChanged::NotHeld));
    // More time.
    world.wait_until(30);
    assert_eq!(
        world.extend(some, &Room::default(), 60),
        Ok("3@n0".to_owned())
    );
    assert_eq!(world.record(some).time_limit, seconds(120));
    world.wait_until(60);
    assert_eq!(world.said(), ["end 3: TimeLimit"]);
    world.wait_until(119);
    assert_eq!(world.said(), [""; 0]);
    world.wait_until(120);
    assert_eq!(world.said(), ["end 2: TimeLimit"]);
}

#[test]
fn an_extension_does_not_delay_the_first_one_that_waits() {
    let mut world = World::with_owner(&[4], 1);
    let id = world.allocate(wish(slots(2), Some(60))).unwrap();
    let head = world.allocate(wish(slots(3), None)).unwrap();
    let delays = NotChanged::NotExtended(NotExtended::Delays(head));
    assert_eq!(world.extend(id, &Room::default(), 1), Err(delays));
    assert_eq!(world.extend(id, &slots(1), 0), Ok("3@n0".to_owned()));
    world.over(id);
    assert_eq!(world.said(), ["2 granted 2@n0", "3 granted 3@n0"]);
}

#[test]
fn a_part_is_given_back() {
    let mut world = World::with_owner(&[1, 4, 4, 4], 1);
    let whole = world.allocate(wish(nodes(3), None)).unwrap();
    for (room, busy, expected) in [
        (nodes(1), &[1_u32][..], Ok("4@n1+4@n2 whole")),
        (nodes(1), &[1, 2], Err(NotChanged::Busy)),
        (nodes(3), &[], Err(NotChanged::Mismatch)),
        (slots(4), &[], Err(NotChanged::Mismatch)),
        (hosts(&["n3"]), &[], Err(NotChanged::NotHeld)),
        (hosts(&["n1"]), &[1], Err(NotChanged::Busy)),
        (hosts(&["n1"]), &[2], Ok("4@n2 whole")),
        (nodes(1), &[], Ok("nothing")),
    ] {
        let rest = world.shrink(whole, &room, busy);
        assert_eq!(rest, expected.map(str::to_owned), "{room:?}");
    }
    assert_eq!(world.record(whole).hosts.to_string(), "n2");
    assert_eq!(world.record(whole).slots, 1);
    world.over(whole);
    let some = world.allocate(wish(slots(6), None)).unwrap();
    world.said();
    for (room, busy, expected) in [
        (slots(7), &[][..], Err(NotChanged::Mismatch)),
        (slots(5), &[1], Err(NotChanged::Busy)),
        (slots(1), &[2], Ok("3@n1+2@n2")),
        (slots(3), &[], Ok("2@n1")),
        (slots(2), &[], Ok("nothing")),
    ] {
        let rest = world.shrink(some, &room, busy);
        assert_eq!(rest, expected.map(str::to_owned), "{room:?}");
    }
}
