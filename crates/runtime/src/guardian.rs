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

use std::time::Duration;

use base::{ExitStatus, Signal};
use os::{ChildEvent, Clock, Forked, Loop};

use crate::{
    Birth, IGNORED, Surroundings,
    process::{self, Exit},
};

/// How long the guardian waits for processes that it has sent SIGKILL before it exits itself.
const ORPHANS_MAX: Duration = Duration::from_secs(2);

/// Exit code of a controller that has ended well.
const SUCCESS: u8 = 0;

/// A failure that was already reported.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Failed;

/// Forks the controller and waits until nothing of it remains. Returns in both processes, with the exit code of the
/// respective one. If that fails, the front gets the reason.
pub fn guard(mut birth: Birth) -> Result<u8, Failed> {
    let forked = prepare().and_then(|()| os::fork());
    let ended = match forked {
        Ok(Forked::Child) => match process::run(&mut birth) {
            Ok(Exit::Clean) => Ok(SUCCESS),
            Ok(Exit::Failed) => return Err(Failed),
            Err(error) => Err(error),
        },
        Ok(Forked::Parent(controller)) => match Loop::new(&IGNORED) {
            Ok(events) => {
                // Drop our copy of the link, so that the front sees its end when the controller dies.
                drop(birth.link.take());
                watch(controller, events, &birth.surroundings)
            }
            Err(error) => {
                // Without an event loop, the guardian could not end the processes that the controller leaves.
                let _ = os::kill(controller, Signal::KILL);
                Err(error)
            }
        },
        Err(error) => Err(error),
    };
    ended.map_err(|error| {
        birth.fail(&error);
        Failed
    })
}

fn prepare() -> Result<(), os::Error> {
    // The process that started us may have set SIGCHLD to be ignored. Then we would miss the exit of a controller that
    // fails immediately.
    os::default_signal(Signal::CHLD)?;
    os::become_subreaper()?;
    os::new_session()
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
    loop {
        while let Some(event) = os::reap() {
            if let ChildEvent::Exited { pid, status } = event
                && pid == controller
            {
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
                }
                return Ok(code);
            }
            let mut waits = false;
            for pid in os::descendants(os::current_pid()) {
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
