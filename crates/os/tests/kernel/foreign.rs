//! Threads of other processes, stopped for a moment.

use std::{os::fd::AsFd, time::Duration};

use base::{InKernel, Signal};
use nix::sys::epoll::{Epoll, EpollCreateFlags, EpollEvent, EpollTimeout};
use os::{ChildEvent, Forked, NotStopped, Pid, ReadOutcome, StoppedThread, Trace};

use crate::{
    Test,
    world::{PATIENCE, World, spec, strings},
};

pub(crate) const TESTS: &[Test] = &[
    (
        "foreign::a_thread_is_looked_at_and_goes_on",
        a_thread_is_looked_at_and_goes_on,
    ),
    #[cfg(target_arch = "x86_64")]
    (
        "foreign::a_thread_of_a_32_bit_program_has_registers",
        a_thread_of_a_32_bit_program_has_registers,
    ),
    (
        "foreign::a_call_without_a_limit_waits_on",
        a_call_without_a_limit_waits_on,
    ),
    (
        "foreign::what_is_stopped_stays_stopped",
        what_is_stopped_stays_stopped,
    ),
    (
        "foreign::who_is_late_is_let_go_later",
        who_is_late_is_let_go_later,
    ),
    (
        "foreign::what_cannot_be_stopped_is_said",
        what_cannot_be_stopped_is_said,
    ),
];

fn sleeper(world: &mut World) -> Pid {
    let argv = strings(&["sleep", "1000"]);
    world.spawner.spawn(&spec(c"/bin/sleep", &argv)).unwrap()
}

/// Waits until a process sleeps in a system call. After a call with a timeout was interrupted, the kernel shows it as
/// another one, `restart_syscall`.
fn until_in(pid: Pid, call: libc::c_long) {
    let deadline = os::Clock::now() + PATIENCE;
    let wanted = [call, libc::SYS_restart_syscall].map(|call| u64::try_from(call).unwrap());
    loop {
        if let Some(InKernel::Blocked {
            call: Some(call), ..
        }) = os::in_kernel(pid, pid)
            && wanted.contains(&call)
        {
            return;
        }
        assert!(os::Clock::now() < deadline, "{:?}", os::in_kernel(pid, pid));
        std::thread::yield_now();
    }
}

fn stop(pid: Pid) -> Result<StoppedThread, NotStopped> {
    StoppedThread::stop(pid, PATIENCE)
}

fn a_thread_is_looked_at_and_goes_on() {
    let mut world = World::new();
    let pid = sleeper(&mut world);
    until_in(pid, libc::SYS_clock_nanosleep);
    let outside = os::in_kernel(pid, pid);
    for _ in 0..100 {
        let thread = stop(pid).unwrap();
        let registers = thread.registers().unwrap();
        let mut top = [0; 64];
        let read = os::read_memory(pid, registers.stack(), &mut top).unwrap();
        assert_eq!(read, top.len());
        let Some(InKernel::Blocked {
            stack, instruction, ..
        }) = outside
        else {
            panic!("{outside:?}");
        };
        assert_eq!(registers.stack(), stack);
        // The kernel may go back to the calling instruction, of two bytes, to restart the call.
        assert!([instruction, instruction - 2].contains(&registers.instruction()));
        assert!(thread.release() > Duration::ZERO);
        until_in(pid, libc::SYS_clock_nanosleep);
    }
    // No stop and no exit was reported to its parent, which is this process.
    assert_eq!(os::reap(), None);
    assert_eq!(os::tracer(pid).unwrap(), None);
    assert_eq!(os::threads_of(pid), [pid]);
    let info = os::inspect_thread(pid, pid).unwrap();
    assert_eq!((info.name.as_str(), info.state), ("sleep", 'S'));
    assert!(os::mappings(pid).unwrap().ends_with(b"\n"));
    assert_eq!(os::arguments_of(pid).unwrap(), b"sleep\x001000\0");
    assert_eq!(os::owner_of(pid), Some(os::effective_uid()));
    let program = os::program_of(pid).unwrap();
    let file = os::map_file_of(pid, &program).unwrap();
    assert!(file.as_ref().starts_with(b"\x7fELF"));
    let nowhere = os::read_memory(pid, 8, &mut [0; 8]).unwrap_err();
    assert_eq!(nowhere.errno(), libc::EFAULT);
    os::kill(pid, Signal::KILL).unwrap();
    world.exit_of(pid);
}

/// A 32-bit program that waits for a signal: `mov $29, %eax; int $0x80; jmp .-7`, behind the two headers of its file.
#[cfg(target_arch = "x86_64")]
fn program_of_32_bits() -> Vec<u8> {
    const BASE: u32 = 0x0804_8000;
    const CODE: [u8; 9] = [0xb8, 0x1d, 0, 0, 0, 0xcd, 0x80, 0xeb, 0xf7];
    const HEADERS: u32 = 52 + 32;
    let length = HEADERS + u32::try_from(CODE.len()).unwrap();
    let mut file = b"\x7fELF\x01\x01\x01".to_vec();
    file.resize(16, 0);
    // An executable for i386, of version 1.
    file.extend([2, 0, 3, 0, 1, 0, 0, 0]);
    for word in [BASE + HEADERS, 52, 0, 0] {
        file.extend(word.to_le_bytes());
    }
    // Sizes of the headers, one of a segment, none of a section.
    for half in [52_u16, 32, 1, 40, 0, 0] {
        file.extend(half.to_le_bytes());
    }
    // The segment: loaded from the beginning of the file, readable and executable.
    for word in [1, 0, BASE, BASE, length, length, 5, 0x1000] {
        file.extend(word.to_le_bytes());
    }
    file.extend(CODE);
    file
}

#[cfg(target_arch = "x86_64")]
fn a_thread_of_a_32_bit_program_has_registers() {
    let mut world = World::new();
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("waits");
    std::fs::write(&path, program_of_32_bits()).unwrap();
    let runs = std::os::unix::fs::PermissionsExt::from_mode(0o755);
    std::fs::set_permissions(&path, runs).unwrap();
    let program = std::ffi::CString::new(path.to_str().unwrap()).unwrap();
    let argv = strings(&["waits"]);
    let pid = match world.spawner.spawn(&spec(&program, &argv)) {
        Ok(pid) => pid,
        // Some kernels do not run such programs, so there is nothing to test.
        Err(error) => return assert_eq!(error.errno, libc::ENOEXEC),
    };
    // `pause` has another number in 32-bit programs.
    until_in(pid, 29);
    let registers = stop(pid).unwrap().registers().unwrap();
    let code = 0x0804_8054..0x0804_805d;
    assert!(code.contains(&registers.instruction()), "{registers:x?}");
    os::kill(pid, Signal::KILL).unwrap();
    world.exit_of(pid);
}

fn a_call_without_a_limit_waits_on() {
    let mut world = World::new();
    let (reader, writer) = os::pipe().unwrap();
    let pid = match os::fork().unwrap() {
        Forked::Parent(pid) => pid,
        Forked::Child => {
            let epoll = Epoll::new(EpollCreateFlags::empty()).unwrap();
            let end = epoll.wait(&mut [EpollEvent::empty()], EpollTimeout::NONE);
            os::write(writer.as_fd(), format!("{end:?}").as_bytes()).unwrap();
            return;
        }
    };
    for _ in 0..100 {
        until_in(pid, libc::SYS_epoll_wait);
        drop(stop(pid).unwrap());
    }
    until_in(pid, libc::SYS_epoll_wait);
    os::set_nonblocking(reader.as_fd()).unwrap();
    assert!(matches!(
        os::read(reader.as_fd(), &mut [0; 64]),
        Ok(ReadOutcome::WouldBlock)
    ));
    os::kill(pid, Signal::KILL).unwrap();
    world.exit_of(pid);
}

fn what_is_stopped_stays_stopped() {
    let mut world = World::new();
    let pid = sleeper(&mut world);
    until_in(pid, libc::SYS_clock_nanosleep);
    os::kill(pid, Signal::STOP).unwrap();
    let stopped = ChildEvent::Stopped {
        pid,
        signal: Signal::STOP,
    };
    assert_eq!(world.next(), stopped);
    for _ in 0..100 {
        drop(stop(pid).unwrap());
        let deadline = os::Clock::now() + PATIENCE;
        while os::inspect(pid).unwrap().state != 'T' {
            assert!(os::Clock::now() < deadline);
            std::thread::yield_now();
        }
    }
    assert_eq!(os::reap(), None);
    os::kill(pid, Signal::CONT).unwrap();
    until_in(pid, libc::SYS_clock_nanosleep);
    os::kill(pid, Signal::KILL).unwrap();
    world.exit_of(pid);
}

fn who_is_late_is_let_go_later() {
    let mut world = World::new();
    let argv = strings(&["sh", "-c", "while :; do :; done"]);
    let pid = world.spawner.spawn(&spec(c"/bin/sh", &argv)).unwrap();
    let deadline = os::Clock::now() + PATIENCE;
    // Without any patience, the call nearly always comes before the stop.
    while StoppedThread::stop(pid, Duration::ZERO).map(drop) != Err(NotStopped::Late) {
        assert!(os::Clock::now() < deadline);
    }
    assert_eq!(os::tracer(pid).unwrap(), Some(os::current_pid()));
    let mut left = 1;
    while left > 0 {
        assert_eq!(os::tracer(pid).unwrap(), Some(os::current_pid()));
        left = os::sleep_and_detach_late(Duration::from_millis(1));
        assert!(os::Clock::now() < deadline);
    }
    assert_eq!(os::tracer(pid).unwrap(), None);
    // It runs, or waits for memory or for a file, but is not stopped.
    let state = os::inspect(pid).unwrap().state;
    assert!(!['t', 'T'].contains(&state), "{state}");
    os::kill(pid, Signal::KILL).unwrap();
    world.exit_of(pid);
}

fn what_cannot_be_stopped_is_said() {
    let mut world = World::new();
    let argv = strings(&["sleep", "1000"]);
    let mut traced = spec(c"/bin/sleep", &argv);
    traced.trace = Trace::StopOnExec;
    let pid = world.spawner.spawn(&traced).unwrap();
    assert!(matches!(world.next(), ChildEvent::Stopped { .. }));
    assert_eq!(stop(pid).unwrap_err(), NotStopped::NotPermitted);
    os::kill(pid, Signal::KILL).unwrap();
    world.exit_of(pid);
    assert_eq!(stop(pid).unwrap_err(), NotStopped::Gone);
    assert_eq!(os::threads_of(pid), []);
    assert_eq!(os::mappings(pid), None);
}
