//! Programs held at their first instruction.

use std::{collections::BTreeSet, fs, os::fd::AsFd};

use base::{ExitStatus, Signal};
use os::{ChildEvent, Forked, Pid, SpawnSpec, Trace};

use crate::{
    Test,
    world::{World, read_to_end, spec, strings},
};

pub(crate) const TESTS: &[Test] = &[
    (
        "hold::a_program_stops_at_its_first_instruction_and_goes_on_when_told",
        a_program_stops_at_its_first_instruction_and_goes_on_when_told,
    ),
    (
        "hold::other_stops_of_a_traced_program_can_be_passed_on",
        other_stops_of_a_traced_program_can_be_passed_on,
    ),
    (
        "hold::many_are_held_at_once_and_die_with_us",
        many_are_held_at_once_and_die_with_us,
    ),
];

fn a_program_stops_at_its_first_instruction_and_goes_on_when_told() {
    let mut world = World::new();
    let (reader, writer) = os::pipe().unwrap();
    let argv = strings(&["echo", "ran"]);
    let fds = [(writer.as_fd(), 1)];
    let spec = SpawnSpec {
        fds: &fds,
        trace: Trace::StopOnExec,
        ..spec(c"/bin/echo", &argv)
    };
    let pid = world.spawner.spawn(&spec).unwrap();
    drop(writer);
    assert_eq!(
        world.next(),
        ChildEvent::Stopped {
            pid,
            signal: Signal::TRAP
        }
    );
    assert_eq!(os::inspect(pid).unwrap().state, 't');
    assert_eq!(os::tracer(pid).unwrap(), Some(os::current_pid()));
    os::leave_stopped(pid).unwrap();
    // Detaching wakes the program for the injected SIGSTOP, which takes effect a moment later.
    assert_eq!(
        world.next(),
        ChildEvent::Stopped {
            pid,
            signal: Signal::STOP
        }
    );
    assert_eq!(os::inspect(pid).unwrap().state, 'T');
    assert_eq!(os::tracer(pid).unwrap(), None);
    // It is at ld.so's first instruction: the last system call is still the exec.
    let call = fs::read_to_string(format!("/proc/{pid}/syscall")).unwrap();
    assert_eq!(
        call.split(' ').next(),
        Some(libc::SYS_execve.to_string().as_str())
    );
    assert_eq!(os::reap(), None);
    assert_eq!(os::leave_stopped(pid).unwrap_err().errno(), libc::ESRCH);
    os::kill(pid, Signal::CONT).unwrap();
    assert_eq!(read_to_end(&reader), "ran\n");
    assert_eq!(world.exit_of(pid), ExitStatus::SUCCESS);
}

fn other_stops_of_a_traced_program_can_be_passed_on() {
    let mut world = World::new();
    let argv = strings(&["sh", "-c", "trap 'exit 9' USR1; kill -USR1 $$; exit 1"]);
    let spec = SpawnSpec {
        trace: Trace::StopOnExec,
        ..spec(c"/bin/sh", &argv)
    };
    let pid = world.spawner.spawn(&spec).unwrap();
    assert_eq!(
        world.next(),
        ChildEvent::Stopped {
            pid,
            signal: Signal::TRAP
        }
    );
    os::inject(pid, Signal(0)).unwrap();
    assert_eq!(
        world.next(),
        ChildEvent::Stopped {
            pid,
            signal: Signal::USR1
        }
    );
    os::inject(pid, Signal::USR1).unwrap();
    assert_eq!(world.exit_of(pid), ExitStatus::Exited(9));
}

fn many_are_held_at_once_and_die_with_us() {
    const CHILDREN: usize = 64;
    // The holder is a child of ours, and we adopt its orphans.
    os::become_subreaper().unwrap();
    let (reader, writer) = os::pipe().unwrap();
    let holder = match os::fork().unwrap() {
        Forked::Parent(holder) => holder,
        Forked::Child => {
            hold_many(CHILDREN);
            os::write(writer.as_fd(), b"held").unwrap();
            os::kill(os::current_pid(), Signal::KILL).unwrap();
            unreachable!("killed");
        }
    };
    drop(writer);
    let mut world = World::new();
    assert_eq!(read_to_end(&reader), "held");
    let mut ended = Vec::new();
    while ended.len() <= CHILDREN {
        ended.push(world.next());
    }
    let killed = ExitStatus::Signaled {
        signal: Signal::KILL,
        core_dumped: false,
    };
    assert!(
        ended
            .iter()
            .all(|event| matches!(event, ChildEvent::Exited { status, .. } if *status == killed))
    );
    assert!(
        ended
            .iter()
            .any(|event| matches!(event, ChildEvent::Exited { pid, .. } if *pid == holder))
    );
    assert!(!os::has_children());
}

fn hold_many(count: usize) {
    let mut world = World::new();
    let argv = strings(&["sleep", "1000"]);
    let spec = SpawnSpec {
        trace: Trace::StopOnExec,
        ..spec(c"/bin/sleep", &argv)
    };
    let started: BTreeSet<Pid> = (0..count)
        .map(|_| world.spawner.spawn(&spec).unwrap())
        .collect();
    let mut held = BTreeSet::new();
    while held.len() < count {
        match world.next() {
            ChildEvent::Stopped { pid, signal } if signal == Signal::TRAP => {
                os::leave_stopped(pid).unwrap();
            }
            ChildEvent::Stopped { pid, signal } if signal == Signal::STOP => {
                assert_eq!(os::inspect(pid).unwrap().state, 'T');
                held.insert(pid);
            }
            event => panic!("{event:?}"),
        }
    }
    assert_eq!(started, held);
}
