//! Forks, sessions, descendants and shared memory.

use std::os::fd::AsFd;

use base::{ExitStatus, Signal};
use os::{ChildEvent, Forked, Pid, ReadOutcome, SharedRegion};

use crate::{
    Test,
    world::{World, read_to_end, spec, strings},
};

pub(crate) const TESTS: &[Test] = &[
    (
        "fork::children_end_with_the_one_who_started_them",
        children_end_with_the_one_who_started_them,
    ),
    (
        "fork::descendants_with_sessions_of_their_own_are_found",
        descendants_with_sessions_of_their_own_are_found,
    ),
    (
        "fork::memory_is_shared_with_a_forked_child",
        memory_is_shared_with_a_forked_child,
    ),
    ("fork::a_session_is_left_behind", a_session_is_left_behind),
];

fn children_end_with_the_one_who_started_them() {
    os::become_subreaper().unwrap();
    let (reader, writer) = os::pipe().unwrap();
    let (mut world, argv) = (World::new(), strings(&["sleep", "1000"]));
    let launcher = match os::fork().unwrap() {
        Forked::Parent(launcher) => launcher,
        Forked::Child => {
            let mut world = World::new();
            let rank = world.spawner.spawn(&spec(c"/bin/sleep", &argv)).unwrap();
            os::write(writer.as_fd(), rank.to_string().as_bytes()).unwrap();
            return;
        }
    };
    drop(writer);
    let rank = Pid::from_raw(read_to_end(&reader).parse().unwrap());
    let mut ended = [world.next(), world.next()];
    ended.sort_by_key(|event| matches!(event, ChildEvent::Exited { pid, .. } if *pid == rank));
    let killed = ExitStatus::Signaled {
        signal: Signal::KILL,
        core_dumped: false,
    };
    let ended = ended.map(|event| match event {
        ChildEvent::Exited { pid, status, .. } => Some((pid, status)),
        ChildEvent::Stopped { .. } => None,
    });
    assert_eq!(
        ended,
        [Some((launcher, ExitStatus::SUCCESS)), Some((rank, killed))]
    );
}

fn descendants_with_sessions_of_their_own_are_found() {
    os::become_subreaper().unwrap();
    let argv = strings(&["sleep", "1000"]);
    let (reader, writer) = os::pipe().unwrap();
    // A child, a grandchild in a session of its own, and a program below that.
    let child = match os::fork().unwrap() {
        Forked::Parent(child) => child,
        Forked::Child => {
            let grandchild = match os::fork().unwrap() {
                Forked::Parent(grandchild) => grandchild,
                Forked::Child => {
                    os::new_session().unwrap();
                    let mut world = World::new();
                    let program = world.spawner.spawn(&spec(c"/bin/sleep", &argv)).unwrap();
                    os::write(
                        writer.as_fd(),
                        format!(" {} {program}", os::current_pid()).as_bytes(),
                    )
                    .unwrap();
                    drop(writer);
                    world.exit_of(program);
                    return;
                }
            };
            drop(writer);
            World::new().exit_of(grandchild);
            return;
        }
    };
    drop(writer);
    let below: Vec<Pid> = read_to_end(&reader)
        .split_whitespace()
        .map(|pid| Pid::from_raw(pid.parse().unwrap()))
        .collect();
    let mut world = World::new();
    let all = [child, below[0], below[1]];
    assert_eq!(os::descendants(os::current_pid()), all);
    assert_eq!(os::listed_descendants(os::current_pid()), all);
    let above = os::descendants_without_those_below(os::current_pid(), |pid| pid == all[0]);
    assert_eq!(above, all[..1]);
    assert!(os::listed_descendants(all[2]).is_empty());
    assert_eq!(os::children(), [child]);
    // Killed from the top: we adopt each orphan; the last one is killed by its parent-death signal.
    for (index, &pid) in all[..2].iter().enumerate() {
        assert_eq!(os::children(), [pid], "{index}");
        os::kill(pid, Signal::KILL).unwrap();
        let killed = ExitStatus::Signaled {
            signal: Signal::KILL,
            core_dumped: false,
        };
        assert_eq!(world.exit_of(pid), killed);
    }
    world.exit_of(below[1]);
    assert!(!os::has_children() && os::children().is_empty());
}

fn memory_is_shared_with_a_forked_child() {
    let region = SharedRegion::new(1 << 16, 4).unwrap();
    let (reader, writer) = os::pipe().unwrap();
    let child = match os::fork().unwrap() {
        Forked::Parent(child) => child,
        Forked::Child => {
            // The controller's side: a rank's output is read directly into a slot.
            let (output_reader, output) = os::pipe().unwrap();
            os::write(output.as_fd(), b"from a rank").unwrap();
            let slots = region.into_writer();
            let first = slots.take().unwrap();
            let mut slot = slots.take().unwrap();
            let ReadOutcome::Bytes(size) = os::read(output_reader.as_fd(), slot.as_mut()).unwrap()
            else {
                panic!("nothing to read");
            };
            let slot = slot.truncated(size);
            assert_eq!(slot.as_ref(), b"from a rank");
            os::write(
                writer.as_fd(),
                format!("{} {size}", slot.index()).as_bytes(),
            )
            .unwrap();
            drop(first);
            return;
        }
    };
    drop(writer);
    let slots = region.into_reader();
    assert_eq!(read_to_end(&reader), "1 11");
    assert_eq!(slots.slice(1, 5, 6), Some(b"a rank".as_slice()));
    let view = slots.view(1, 0, 11).unwrap();
    drop(slots);
    assert_eq!(view.as_ref(), b"from a rank");
    assert_eq!(World::new().exit_of(child), ExitStatus::SUCCESS);
}

fn a_session_is_left_behind() {
    let child = match os::fork().unwrap() {
        Forked::Parent(child) => child,
        Forked::Child => {
            os::new_session().unwrap();
            let own = os::inspect(os::current_pid()).unwrap();
            assert_eq!((own.session, own.pgrp), (own.pid, own.pid));
            // A process group leader cannot do it again.
            assert_eq!(os::new_session().unwrap_err().errno(), libc::EPERM);
            return;
        }
    };
    assert_eq!(World::new().exit_of(child), ExitStatus::SUCCESS);
}
