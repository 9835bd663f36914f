//! The event loop with real descriptors, signals and clocks.
#![expect(
    unsafe_code,
    reason = "a timer that the standard library does not have"
)]

use std::{
    fs::File,
    os::fd::{AsFd, OwnedFd},
    time::Duration,
};

use base::{ExitStatus, Signal, Time};
use os::{
    ChildEvent, Clock, Event, Forked, Interest, Loop, ReadOutcome, SignalInfo, SignalOrigin,
    SpawnSpec, WriteOutcome,
};

use crate::{
    Test,
    world::{PATIENCE, World, cpu_time, eventually, spec, strings},
};

/// Long enough to see what is ready; short enough to spend in vain.
const SHORT: Duration = Duration::from_millis(5);
/// Long enough to distinguish sleeping from spinning by CPU time.
const LONG: Duration = Duration::from_millis(60);

pub(crate) const TESTS: &[Test] = &[
    (
        "loops::a_hang_up_alone_can_be_waited_for",
        a_hang_up_alone_can_be_waited_for,
    ),
    (
        "loops::hundreds_of_children_come_and_go_while_their_pipes_are_watched",
        hundreds_of_children_come_and_go_while_their_pipes_are_watched,
    ),
    (
        "loops::a_descriptor_is_reported_while_it_is_ready_and_wanted",
        a_descriptor_is_reported_while_it_is_ready_and_wanted,
    ),
    (
        "loops::writers_hear_of_room_and_of_readers_that_left",
        writers_hear_of_room_and_of_readers_that_left,
    ),
    (
        "loops::regular_files_and_the_null_device_are_always_ready",
        regular_files_and_the_null_device_are_always_ready,
    ),
    (
        "loops::a_removed_descriptor_is_silent_although_another_process_holds_it",
        a_removed_descriptor_is_silent_although_another_process_holds_it,
    ),
    (
        "loops::short_deadlines_are_kept_without_spinning",
        short_deadlines_are_kept_without_spinning,
    ),
    (
        "loops::signals_say_who_sent_them",
        signals_say_who_sent_them,
    ),
    (
        "loops::children_are_heard_of_although_our_caller_ignores_them",
        children_are_heard_of_although_our_caller_ignores_them,
    ),
    (
        "loops::what_would_wait_for_room_is_not_written",
        what_would_wait_for_room_is_not_written,
    ),
    (
        "loops::the_loop_sleeps_through_a_stop",
        the_loop_sleeps_through_a_stop,
    ),
];

fn hundreds_of_children_come_and_go_while_their_pipes_are_watched() {
    const CHILDREN: usize = 300;
    let mut world = World::new();
    let argv = strings(&["echo", "x"]);
    let mut events = Vec::new();
    let (mut started, mut exited, mut ended, mut bytes) = (0, 0, 0, 0);
    let deadline = Clock::now() + PATIENCE;
    while exited < CHILDREN || ended < CHILDREN {
        if started < CHILDREN {
            let (reader, writer) = os::pipe().unwrap();
            os::set_nonblocking(reader.as_fd()).unwrap();
            let fds = [(writer.as_fd(), 1)];
            world
                .spawner
                .spawn(&SpawnSpec {
                    fds: &fds,
                    ..spec(c"/bin/echo", &argv)
                })
                .unwrap();
            world.events.add(reader, Interest::Read).unwrap();
            started += 1;
        }
        // While more children are to be started, only poll; afterwards sleep.
        let until = if started < CHILDREN {
            Clock::now()
        } else {
            deadline
        };
        world.events.wait(Some(until), &mut events).unwrap();
        for event in &events {
            let Event::Readable(token) = *event else {
                continue;
            };
            let mut buffer = [0; 64];
            match os::read(world.events.fd(token).unwrap(), &mut buffer).unwrap() {
                ReadOutcome::Bytes(size) => bytes += size,
                ReadOutcome::WouldBlock => {}
                ReadOutcome::Closed => {
                    drop(world.events.remove(token));
                    ended += 1;
                }
            }
        }
        while let Some(event) = os::reap() {
            assert!(
                matches!(
                    event,
                    ChildEvent::Exited {
                        status: ExitStatus::SUCCESS,
                        ..
                    }
                ),
                "{event:?}"
            );
            exited += 1;
        }
        assert!(
            Clock::now() < deadline,
            "started {started}, exited {exited}, ended {ended}"
        );
    }
    assert_eq!((bytes, world.events.len()), (2 * CHILDREN, 0));
}

/// Returns all events within `wait`, and the CPU time spent on them.
fn events_until(events: &mut Loop, wait: Duration) -> (Vec<Event>, Duration) {
    let before = cpu_time();
    let deadline = Clock::now() + wait;
    let mut buffer = Vec::new();
    events.wait(Some(deadline), &mut buffer).unwrap();
    (buffer, cpu_time() - before)
}

fn a_descriptor_is_reported_while_it_is_ready_and_wanted() {
    let mut events = Loop::new(&[]).unwrap();
    let (reader, writer) = os::pipe().unwrap();
    let token = events.add(reader, Interest::Read).unwrap();
    assert_eq!(events_until(&mut events, SHORT).0, [Event::Deadline]);
    os::write(writer.as_fd(), b"x").unwrap();
    let mut buffer = Vec::new();
    for _ in 0..2 {
        events.wait(None, &mut buffer).unwrap();
        assert_eq!(buffer, [Event::Readable(token)]);
    }
    events.set_interest(token, Interest::None).unwrap();
    assert_eq!(events_until(&mut events, SHORT).0, [Event::Deadline]);
    // Without an interest, not even a hang-up is reported: level-triggered, it would be reported for ever.
    drop(writer);
    let (seen, spent) = events_until(&mut events, LONG);
    assert_eq!(seen, [Event::Deadline]);
    assert!(spent < LONG / 2, "spent {spent:?}");
    events.set_interest(token, Interest::Read).unwrap();
    events.wait(None, &mut buffer).unwrap();
    assert_eq!(buffer, [Event::Readable(token)]);
    assert_eq!(
        (events.len(), events.interest(token)),
        (1, Some(Interest::Read))
    );
}

fn a_hang_up_alone_can_be_waited_for() {
    let mut events = Loop::new(&[]).unwrap();
    let (master, slave) = os::open_pty().unwrap();
    let token = events.add(slave, Interest::HangUp).unwrap();
    os::write(master.as_fd(), b"typed\n").unwrap();
    assert_eq!(events_until(&mut events, SHORT).0, [Event::Deadline]);
    drop(master);
    assert_eq!(
        events_until(&mut events, PATIENCE).0,
        [Event::Readable(token)]
    );
}

fn writers_hear_of_room_and_of_readers_that_left() {
    let mut events = Loop::new(&[]).unwrap();
    let (reader, writer) = os::pipe().unwrap();
    os::set_nonblocking(writer.as_fd()).unwrap();
    let token = events.add(writer, Interest::Write).unwrap();
    let mut buffer = Vec::new();
    events.wait(None, &mut buffer).unwrap();
    assert_eq!(buffer, [Event::Writable(token)]);
    let full = loop {
        match os::write(events.fd(token).unwrap(), &[0; 4096]).unwrap() {
            WriteOutcome::Bytes(_) => {}
            other => break other,
        }
    };
    assert_eq!(full, WriteOutcome::WouldBlock);
    assert_eq!(events_until(&mut events, SHORT).0, [Event::Deadline]);
    drop(reader);
    events.wait(None, &mut buffer).unwrap();
    assert_eq!(buffer, [Event::Writable(token)]);
    assert_eq!(
        os::write(events.fd(token).unwrap(), b"x").unwrap(),
        WriteOutcome::Closed
    );
}

fn regular_files_and_the_null_device_are_always_ready() {
    let mut events = Loop::new(&[]).unwrap();
    let file = OwnedFd::from(File::open("/proc/self/exe").unwrap());
    let null = os::dev_null().unwrap();
    assert!(os::is_regular_or_null(file.as_fd()) && os::is_regular_or_null(null.as_fd()));
    assert!(!os::is_regular_or_null(os::pipe().unwrap().0.as_fd()));
    let file = events.add(file, Interest::Read).unwrap();
    // Added without an interest, it is recognized once it has one.
    let null = events.add(null, Interest::None).unwrap();
    let mut buffer = Vec::new();
    events.wait(None, &mut buffer).unwrap();
    assert_eq!(buffer, [Event::Readable(file)]);
    events.set_interest(null, Interest::ReadWrite).unwrap();
    events.wait(None, &mut buffer).unwrap();
    assert_eq!(
        buffer,
        [
            Event::Readable(file),
            Event::Readable(null),
            Event::Writable(null)
        ]
    );
    // They do not hide other events.
    let (reader, writer) = os::pipe().unwrap();
    let pipe = events.add(reader, Interest::Read).unwrap();
    os::write(writer.as_fd(), b"x").unwrap();
    events.wait(None, &mut buffer).unwrap();
    assert!(buffer.contains(&Event::Readable(pipe)) && buffer.contains(&Event::Readable(file)));
    drop(events.remove(pipe));
    events.set_interest(file, Interest::None).unwrap();
    drop(events.remove(null));
    // Nor do they hang up: who waits only for that sleeps.
    let null = events
        .add(os::dev_null().unwrap(), Interest::HangUp)
        .unwrap();
    events.set_interest(null, Interest::Read).unwrap();
    events.set_interest(null, Interest::HangUp).unwrap();
    let (seen, spent) = events_until(&mut events, LONG);
    assert_eq!(seen, [Event::Deadline]);
    assert!(spent < LONG / 2, "spent {spent:?}");
}

fn a_removed_descriptor_is_silent_although_another_process_holds_it() {
    let mut events = Loop::new(&[]).unwrap();
    let (reader, writer) = os::pipe().unwrap();
    // A duplicate, as a child between clone and exec has.
    let held = os::duplicate(reader.as_fd()).unwrap();
    let old = events.add(reader, Interest::Read).unwrap();
    drop(events.remove(old));
    os::write(writer.as_fd(), b"x").unwrap();
    let (seen, spent) = events_until(&mut events, LONG);
    assert_eq!(seen, [Event::Deadline]);
    assert!(spent < LONG / 2, "spent {spent:?}");
    // The next descriptor has the same number and the same slot, but another token.
    let (second, _writer) = os::pipe().unwrap();
    let new = events.add(second, Interest::Read).unwrap();
    assert_ne!(old, new);
    assert!(
        events.fd(old).is_none() && events.remove(old).is_none() && events.interest(old).is_none()
    );
    events.set_interest(old, Interest::ReadWrite).unwrap();
    assert_eq!(events.interest(new), Some(Interest::Read));
    assert_eq!(events.len(), 1);
    drop(held);
}

fn short_deadlines_are_kept_without_spinning() {
    let mut events = Loop::new(&[]).unwrap();
    let mut buffer = Vec::new();
    let (start, before) = (Clock::now(), cpu_time());
    const WAITS: u32 = 200;
    const EACH: Duration = Duration::from_micros(400);
    for _ in 0..WAITS {
        let deadline = Clock::now() + EACH;
        events.wait(Some(deadline), &mut buffer).unwrap();
        assert_eq!(buffer, [Event::Deadline]);
        assert!(Clock::now() >= deadline);
    }
    let (wall, cpu) = (Clock::now() - start, cpu_time() - before);
    assert!(wall >= EACH * WAITS);
    assert!(cpu < EACH * WAITS / 2, "{cpu:?} of {wall:?}");
    // A deadline that has passed is reported immediately, and together with other events.
    let (reader, writer) = os::pipe().unwrap();
    let token = events.add(reader, Interest::Read).unwrap();
    os::write(writer.as_fd(), b"x").unwrap();
    events.wait(Some(Time::ZERO), &mut buffer).unwrap();
    assert_eq!(buffer, [Event::Readable(token), Event::Deadline]);
}

fn signals_say_who_sent_them() {
    let mut events = Loop::new(&[Signal::USR1, Signal::ALRM, Signal(40)]).unwrap();
    let mut buffer = Vec::new();
    let us = SignalOrigin::User {
        pid: os::current_pid().as_raw(),
        // SAFETY: only returns a number.
        uid: unsafe { libc::getuid() },
    };
    for signal in [Signal::USR1, Signal(40)] {
        os::kill(os::current_pid(), signal).unwrap();
        events.wait(None, &mut buffer).unwrap();
        assert_eq!(buffer, [Event::Signal(SignalInfo { signal, origin: us })]);
    }
    let soon = libc::itimerval {
        it_interval: libc::timeval {
            tv_sec: 0,
            tv_usec: 0,
        },
        it_value: libc::timeval {
            tv_sec: 0,
            tv_usec: 1,
        },
    };
    // SAFETY: reads an owned struct.
    unsafe { libc::setitimer(libc::ITIMER_REAL, &raw const soon, std::ptr::null_mut()) };
    events.wait(None, &mut buffer).unwrap();
    assert_eq!(
        buffer,
        [Event::Signal(SignalInfo {
            signal: Signal::ALRM,
            origin: SignalOrigin::Kernel
        })]
    );
    // More than one read takes: real-time signals are queued, so each one counts.
    for _ in 0..40 {
        os::kill(os::current_pid(), Signal(40)).unwrap();
    }
    events.wait(None, &mut buffer).unwrap();
    assert_eq!(buffer.len(), 40);
}

fn the_loop_sleeps_through_a_stop() {
    os::become_subreaper().unwrap();
    let (reader, writer) = os::pipe().unwrap();
    let child = match os::fork().unwrap() {
        Forked::Parent(child) => child,
        Forked::Child => {
            let mut events = Loop::new(&[]).unwrap();
            let token = events.add(reader, Interest::Read).unwrap();
            let mut buffer = Vec::new();
            events.wait(None, &mut buffer).unwrap();
            assert_eq!(buffer, [Event::Readable(token)]);
            return;
        }
    };
    let state = |wanted: char| {
        eventually("it changes state", || {
            os::inspect(child).is_some_and(|i| i.state == wanted)
        })
    };
    state('S');
    os::kill(child, Signal::STOP).unwrap();
    state('T');
    os::kill(child, Signal::CONT).unwrap();
    state('S');
    os::write(writer.as_fd(), b"x").unwrap();
    assert_eq!(World::new().exit_of(child), ExitStatus::SUCCESS);
}

/// Ignoring SIGCHLD is inherited by programs, and makes the kernel discard the exit status of children.
fn children_are_heard_of_although_our_caller_ignores_them() {
    // SAFETY: SIG_IGN is no function.
    unsafe { libc::signal(libc::SIGCHLD, libc::SIG_IGN) };
    let mut world = World::new();
    let (text, status) = world.shell("grep SigIgn /proc/self/status; exit 3", |_| {});
    let ignored = u64::from_str_radix(text.trim_start_matches("SigIgn:").trim(), 16).unwrap();
    assert_eq!(ignored & (1 << (libc::SIGCHLD - 1)), 0, "{text}");
    assert_eq!(status, ExitStatus::Exited(3));
}

fn what_would_wait_for_room_is_not_written() {
    let (reader, writer) = os::pipe().unwrap();
    let long = [b'x'; 10_000];
    // The pipe is blocking, because in practice it is shared with other processes.
    let write = || os::write_if_room(&writer, &long).unwrap();
    assert_eq!(write(), WriteOutcome::Bytes(4096));
    let more = (0..1000)
        .take_while(|_| write() != WriteOutcome::WouldBlock)
        .count();
    assert!((1..1000).contains(&more), "{more}");
    drop(reader);
    assert_eq!(write(), WriteOutcome::Closed);
}
