//! One thread: what it does, and what is copied of it while it stands.

use std::time::Duration;

use base::{Arch, Registers};
use debug::{
    arch, python,
    stack::{Activity, Wait},
    unwind::Capture,
};
use os::{InKernel, NotStopped, Pid, StoppedThread, ThreadInfo};

use super::LiveMemory;

/// How long a thread may take to stop: far longer than any takes that can.
const PATIENCE: Duration = Duration::from_millis(500);

/// What the control group of a process lets it do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Group {
    /// It runs.
    Runs,
    /// None of its threads runs, whatever is asked of them.
    Frozen,
}

/// Takes what is needed of a thread, and how long it has stood for that.
pub(super) fn capture(
    tid: Pid,
    (info, group): (&ThreadInfo, Group),
    in_kernel: Option<InKernel>,
    room: Vec<u8>,
    limit: usize,
    chain_of: impl Fn(Option<u64>) -> Option<python::Chain>,
) -> Result<(Capture, Option<python::Chain>, Duration), NotStopped> {
    // No signal and no debugger reaches it: it is not even asked.
    let is_blocked = matches!(in_kernel, Some(InKernel::Blocked { .. }));
    if info.state == 'D' && (is_blocked || group == Group::Frozen) {
        return Err(NotStopped::Late);
    }
    let thread = StoppedThread::stop(tid, PATIENCE)?;
    let registers = thread.registers().map_err(|_| NotStopped::Gone)?;
    let bytes = stack_of(tid, registers.stack(), room, limit);
    let chain = chain_of(registers.pthread());
    let stopped = thread.release();
    let capture = Capture { registers, bytes };
    Ok((capture, chain, stopped))
}

/// What can be had of a thread that does not stop for us: the kernel says where it has entered the kernel, without the frame pointer.
pub(super) fn from_outside(
    in_kernel: Option<InKernel>,
    memory: &LiveMemory,
    limit: usize,
) -> Option<Capture> {
    let Some(InKernel::Blocked {
        stack, instruction, ..
    }) = in_kernel
    else {
        return None;
    };
    Some(Capture {
        registers: Registers::of_blocked(instruction, stack),
        bytes: stack_of(memory.0, stack, Vec::new(), limit),
    })
}

/// What stands on the stack, as far as it reaches but not beyond `limit`.
fn stack_of(pid: Pid, stack: u64, mut room: Vec<u8>, limit: usize) -> Vec<u8> {
    room.resize(limit, 0);
    let read = os::read_memory(pid, stack, &mut room).unwrap_or(0);
    room.truncate(read);
    room
}

/// What a thread does; nothing when it has ended.
pub(super) fn activity(
    info: &ThreadInfo,
    in_kernel: Option<InKernel>,
    group: Group,
) -> Option<Activity> {
    let wait = match in_kernel {
        Some(InKernel::Blocked {
            call: Some(call),
            arguments,
            ..
        }) => Wait::of_call(call, &arguments),
        _ => Wait::Other,
    };
    Some(match info.state {
        'Z' | 'X' | 'x' => return None,
        // Whatever it did before.
        _ if group == Group::Frozen => Activity::Frozen,
        'R' => Activity::Running,
        // Who has called vfork waits for its child as others wait for a disk.
        'D' if wait == Wait::Child => Activity::Waiting(Wait::Child),
        'D' => Activity::Disk,
        'T' => Activity::Stopped,
        't' => Activity::Traced,
        _ => Activity::Waiting(wait),
    })
}

/// For what a thread sleeps by the function that it is in, where its system call does not say.
pub(super) fn wait_in(function: Option<&str>, in_kernel: Option<InKernel>) -> Wait {
    let wait = function.map_or(Wait::Other, Wait::of_function);
    match in_kernel {
        Some(InKernel::Blocked {
            call: Some(call), ..
        }) if arch::is_restart(Arch::NATIVE, call) => wait.resumed(),
        _ => wait,
    }
}

/// Whether we have asked a thread to stop already, and it has not yet.
pub(super) fn is_ours(tid: Pid) -> bool {
    os::tracer(tid).is_ok_and(|tracer| tracer == Some(os::current_pid()))
}
