//! Programs under control as a debugger has them.

use std::{os::fd::AsFd, time::Duration};

use base::{ExitStatus, Signal};
use os::{Debuggee, Forked, Happened, ReadOutcome, SpawnSpec};

use crate::{
    Test,
    world::{World, spec, strings},
};

pub(crate) const TESTS: &[Test] = &[
    (
        "debuggee::it_stops_at_the_breakpoint_as_often_as_it_gets_there",
        it_stops_at_the_breakpoint_as_often_as_it_gets_there,
    ),
    (
        "debuggee::its_children_run_untraced_and_without_the_breakpoint",
        its_children_run_untraced_and_without_the_breakpoint,
    ),
    (
        "debuggee::children_of_the_last_moment_are_let_go_too",
        children_of_the_last_moment_are_let_go_too,
    ),
    (
        "debuggee::it_gets_its_signals_and_goes_on_when_it_is_let_go",
        it_gets_its_signals_and_goes_on_when_it_is_let_go,
    ),
    (
        "debuggee::threads_are_stopped_together",
        threads_are_stopped_together,
    ),
    ("debuggee::it_dies_with_us", it_dies_with_us),
];

const LIMIT: Duration = Duration::from_secs(60);

fn started(world: &mut World, program: &std::ffi::CStr, words: &[&str]) -> Debuggee {
    let argv = strings(words);
    let started = Debuggee::start(&mut world.spawner, spec(program, &argv));
    started.unwrap().unwrap()
}

fn it_stops_at_the_breakpoint_as_often_as_it_gets_there() {
    let mut world = World::new();
    // Each shell but the last executes the next one.
    let script = "exec sh -c 'exec sh -c \"exit 7\"'";
    let mut debuggee = started(&mut world, c"/bin/sh", &["sh", "-c", script]);
    assert_eq!(os::tracer(debuggee.pid()).unwrap(), Some(os::current_pid()));
    for round in 0..3 {
        let entry = os::entry_point(debuggee.pid()).unwrap();
        debuggee.set_breakpoint(entry).unwrap();
        let happened = debuggee.run(LIMIT, &[]).unwrap();
        assert_eq!(happened, Happened::Breakpoint, "{round}");
        assert_eq!(os::inspect(debuggee.pid()).unwrap().state, 't');
        // The breakpoint stays, and does not stand in the way.
        let happened = debuggee.run(LIMIT, &[]).unwrap();
        if round < 2 {
            assert_eq!(happened, Happened::Executed);
        } else {
            assert_eq!(happened, Happened::Ended(ExitStatus::Exited(7)));
        }
    }
    assert_eq!(
        debuggee.run(LIMIT, &[]).unwrap(),
        Happened::Ended(ExitStatus::Exited(7))
    );
    assert!(!os::has_children());
}

/// Loads the C library, prints the address of one of its functions, and goes on when there is input.
const PREFACE: &str = "\
import os, signal, sys, ctypes, threading
reach = ctypes.CDLL(None).gnu_get_libc_version
print(ctypes.cast(reach, ctypes.c_void_p).value, flush=True)
sys.stdin.readline()
";

/// Starts Python with this program behind [`PREFACE`], and puts the breakpoint on the function.
fn python(world: &mut World, program: &str) -> Debuggee {
    let (reader, writer) = os::pipe().unwrap();
    let (input, go) = os::pipe().unwrap();
    let argv = strings(&["python3", "-c", &format!("{PREFACE}{program}")]);
    let fds = [(input.as_fd(), 0), (writer.as_fd(), 1)];
    let spec = SpawnSpec {
        fds: &fds,
        ..spec(c"/usr/bin/python3", &argv)
    };
    let mut debuggee = Debuggee::start(&mut world.spawner, spec).unwrap().unwrap();
    os::set_nonblocking(reader.as_fd()).unwrap();
    let mut text = String::new();
    while !text.ends_with('\n') {
        let happened = debuggee.run(Duration::from_millis(10), &[]).unwrap();
        assert_eq!(happened, Happened::Nothing);
        let mut part = [0; 64];
        if let ReadOutcome::Bytes(length) = os::read(reader.as_fd(), &mut part).unwrap() {
            text.push_str(std::str::from_utf8(&part[..length]).unwrap());
        }
    }
    debuggee
        .set_breakpoint(text.trim().parse().unwrap())
        .unwrap();
    os::write(go.as_fd(), b"\n").unwrap();
    debuggee
}

fn its_children_run_untraced_and_without_the_breakpoint() {
    let mut world = World::new();
    let program = "\
reach()
for round in range(3):
    child = os.fork()
    if child == 0:
        reach()
        traced = [line for line in open('/proc/self/status') if line.startswith('TracerPid')]
        os._exit(0 if traced[0].split()[1] == '0' else 3)
    if os.waitpid(child, 0)[1] != 0:
        sys.exit(1)
if os.system('exit 5') != 5 << 8:
    sys.exit(2)
reach()
";
    let mut debuggee = python(&mut world, program);
    for _ in 0..2 {
        let happened = debuggee.run(LIMIT, &[]).unwrap();
        assert_eq!(happened, Happened::Breakpoint);
    }
    let happened = debuggee.run(LIMIT, &[]).unwrap();
    assert_eq!(happened, Happened::Ended(ExitStatus::SUCCESS));
}

fn children_of_the_last_moment_are_let_go_too() {
    let mut world = World::new();
    let program = "\
for round in range(30):
    child = os.fork()
    if child == 0:
        os._exit(0)
    reach()
    os.waitpid(child, 0)
sys.exit(8)
";
    let mut debuggee = python(&mut world, program);
    let pid = debuggee.pid();
    let address = debuggee.breakpoint().unwrap();
    loop {
        match debuggee.run(LIMIT, &[]).unwrap() {
            Happened::Breakpoint => {}
            happened => {
                assert_eq!(happened, Happened::Ended(ExitStatus::Exited(8)));
                return;
            }
        }
        // The child was forked a moment ago.
        debuggee.detach();
        debuggee = match Debuggee::attach(pid) {
            Ok(debuggee) => debuggee,
            // It has made all its rounds.
            Err(_) => return assert_eq!(world.exit_of(pid), ExitStatus::Exited(8)),
        };
        if let Err(error) = debuggee.set_breakpoint(address) {
            // It has made all its rounds and ends: its memory is gone already, and the next run tells how it ended.
            assert_eq!(error.errno(), libc::ESRCH);
        }
    }
}

fn threads_are_stopped_together() {
    let mut world = World::new();
    let program = "\
def work():
    for round in range(10):
        reach()
threads = [threading.Thread(target=work) for _ in range(4)]
[thread.start() for thread in threads]
[thread.join() for thread in threads]
sys.exit(4)
";
    let mut debuggee = python(&mut world, program);
    for round in 0..40 {
        let happened = debuggee.run(LIMIT, &[]).unwrap();
        assert_eq!(happened, Happened::Breakpoint, "{round}");
        for tid in os::threads_of(debuggee.pid()) {
            let thread = os::inspect_thread(debuggee.pid(), tid);
            assert!(thread.is_none_or(|thread| thread.state == 't'), "{round}");
        }
    }
    let happened = debuggee.run(LIMIT, &[]).unwrap();
    assert_eq!(happened, Happened::Ended(ExitStatus::Exited(4)));
}

fn it_gets_its_signals_and_goes_on_when_it_is_let_go() {
    let mut world = World::new();
    let program = "\
signal.signal(signal.SIGUSR1, lambda *_: sys.exit(6))
reach()
reach()
while True:
    signal.pause()
";
    let mut debuggee = python(&mut world, program);
    let pid = debuggee.pid();
    let happened = debuggee.run(LIMIT, &[]).unwrap();
    assert_eq!(happened, Happened::Breakpoint);
    // It is let go at the breakpoint, which must not kill it the second time.
    debuggee.detach();
    assert_eq!(os::tracer(pid).unwrap(), None);
    let mut debuggee = Debuggee::attach(pid).unwrap();
    assert_eq!(os::tracer(pid).unwrap(), Some(os::current_pid()));
    os::kill(pid, Signal::USR1).unwrap();
    let happened = debuggee.run(LIMIT, &[]).unwrap();
    let ended = Happened::Ended(ExitStatus::Exited(6));
    assert_eq!(happened, ended);
}

fn it_dies_with_us() {
    os::become_subreaper().unwrap();
    let mut world = World::new();
    let Forked::Parent(child) = os::fork().unwrap() else {
        let mut spawner = os::Spawner::new().unwrap();
        let argv = strings(&["sleep", "1000"]);
        let debuggee = Debuggee::start(&mut spawner, spec(c"/bin/sleep", &argv));
        let mut debuggee = debuggee.unwrap().unwrap();
        debuggee.run(Duration::from_millis(10), &[]).unwrap();
        os::kill(os::current_pid(), Signal::KILL).unwrap();
        return;
    };
    // We adopt the program, which is killed.
    let mut ends = [world.next(), world.next()].map(|event| match event {
        os::ChildEvent::Exited { pid, status, .. } => (pid == child, status),
        other => panic!("{other:?}"),
    });
    ends.sort_by_key(|(is_child, _)| *is_child);
    let killed = ExitStatus::Signaled {
        signal: Signal::KILL,
        core_dumped: false,
    };
    assert_eq!(ends, [(false, killed), (true, killed)]);
}
