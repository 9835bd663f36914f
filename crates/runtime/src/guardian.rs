//! The process between front and controller. It waits until its child, the controller, is gone, and then kills the
//! processes that the controller left.
//!
//! The kernel kills a rank whose parent dies, but not the processes that the rank has started. The process that adopts
//! those must outlive the controller. If only the controller is lost, the front could do that. The guardian is there for
//! the case that front and controller are killed together.
//!
//! | who dies | who ends the ranks and their descendants |
//! |---|---|
//! | front | controller |
//! | controller | guardian |
//! | guardian | no one has to: the job goes on, and the front adopts the controller |
//! | front and controller | guardian |
//! | front and guardian | controller |
//! | controller and guardian | front |
//! | front, guardian and controller | the kernel kills the ranks; the next start kills their descendants ([`crate::sweep_stale`]) |

use std::{cell::RefCell, time::Duration};

use base::{ExitStatus, Signal};
use os::{ChildEvent, Clock, Forked, Loop};

use tracing::{debug, info};

use crate::{
    Birth, IGNORED, Surroundings, log,
    process::{self, Exit},
    record,
};

/// How long the guardian waits for processes that it has sent SIGKILL before it exits itself.
const ORPHANS_MAX: Duration = Duration::from_secs(2);

/// EPERM of Linux, with the same value on every architecture that we build for.
const EPERM: i32 = 1;
/// Exit code of a controller that has ended well.
const SUCCESS: u8 = 0;
/// Exit code of a process that has failed and has reported why: that of internal errors (`docs/exit-codes.md`).
const FAILURE: u8 = 125;

/// A failure that was already reported.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Failed;

/// Forks the controller and waits until nothing of it remains. Returns in both processes, with the exit code of the
/// respective one. If that fails, the front gets the reason.
pub fn guard(birth: Birth) -> Result<u8, Failed> {
    let birth = RefCell::new(birth);
    let surroundings = birth.borrow().surroundings.clone();
    // The guardian drops its copy of the link, so that the front sees its end when the controller dies. It needs no terminal.
    let let_go = || {
        let mut birth = birth.borrow_mut();
        drop((birth.link.take(), birth.terminal.take(), birth.tool.take()));
    };
    let run = || process::run(&mut birth.borrow_mut());
    guard_process(&surroundings, let_go, run).map_err(|error| {
        birth.borrow().fail(&error);
        Failed
    })
}

/// Forks a process that executes `run`, and waits until nothing of it remains. Returns in both processes, with the exit code
/// of the respective one. The parent calls `at_first` before it waits.
pub(crate) fn guard_process(
    surroundings: &Surroundings,
    at_first: impl FnOnce(),
    run: impl FnOnce() -> Result<Exit, os::Error>,
) -> Result<u8, os::Error> {
    prepare()?;
    match os::fork()? {
        Forked::Child => Ok(match run()? {
            Exit::Clean => SUCCESS,
            Exit::Failed => FAILURE,
        }),
        Forked::Parent(child) => match Loop::new(&IGNORED) {
            Ok(events) => {
                at_first();
                watch(child, events, surroundings)
            }
            Err(error) => {
                // Without an event loop, the guardian could not end the processes that its child leaves.
                let _ = os::kill(child, Signal::KILL);
                Err(error)
            }
        },
    }
}

fn prepare() -> Result<(), os::Error> {
    // The process that started us may have set SIGCHLD to be ignored. Then we would miss the exit of a controller that
    // fails immediately.
    os::default_signal(Signal::CHLD)?;
    os::become_subreaper()?;
    match os::new_session() {
        // The daemon of another node may be started as the leader of a process group.
        Err(error) if error.errno() == EPERM => Ok(()),
        made => made,
    }
}

fn watch(
    controller: os::Pid,
    mut events: Loop,
    surroundings: &Surroundings,
) -> Result<u8, os::Error> {
    let mut taken = Vec::new();
    let mut code = None;
    let mut until = None;
    let mut died = false;
    debug!(target: log::GUARDIAN, pid = controller.as_raw(), "guards a process");
    loop {
        while let Some(event) = os::reap() {
            if let ChildEvent::Exited { pid, status, .. } = event
                && pid == controller
            {
                info!(target: log::GUARDIAN, pid = pid.as_raw(), "the process has ended: {status}");
                code = Some(status.code());
                died = !matches!(status, ExitStatus::Exited(_));
                until = Some(Clock::now() + ORPHANS_MAX);
            }
        }
        if let Some(code) = code {
            // Usually nothing is left. Check for children first: looking at every process is by far the most expensive
            // step.
            if !os::has_children() || until.is_some_and(|until| until <= Clock::now()) {
                if died {
                    crate::sweep_stale(surroundings);
                    record::remove_empty_places(surroundings);
                }
                return Ok(code);
            }
            let mut waits = false;
            for pid in os::descendants(os::current_pid()) {
                debug!(target: log::GUARDIAN, pid = pid.as_raw(), "kills a process that is left");
                // An error means that the process has ended meanwhile.
                let _ = os::kill(pid, Signal::KILL);
                waits |= os::may_signal(pid);
            }
            if !waits {
                // All remaining processes run as another user; the controller has reported their pids.
                until = Some(Clock::now());
            }
        }
        events.wait(until, &mut taken)?;
    }
}
