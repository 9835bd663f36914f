//! The process between front and controller: it does nothing until its child is gone, and then ends what that left.
//!
//! The kernel ends a rank whose parent dies, but not what the rank has started. Whoever adopts those must outlive the
//! controller. For the loss of the controller alone that could be the front; the guardian is there for the moment when
//! both are killed at once.
//!
//! | dies | who ends the ranks and their descendants |
//! |---|---|
//! | front | controller |
//! | controller | guardian |
//! | guardian | nobody has to: the job goes on, the front adopts the controller |
//! | front and controller | guardian |
//! | front and guardian | controller |
//! | controller and guardian | front |
//! | all three | the kernel ends the ranks; the next start ends what they left ([`crate::sweep_stale`]) |

use std::time::Duration;

use base::{ExitStatus, Signal};
use os::{ChildEvent, Clock, Forked, Loop};

use crate::{
    Birth, IGNORED, Surroundings,
    process::{self, Ended},
};

/// How long what the controller left may take to die of SIGKILL before the guardian goes as well.
const ORPHANS_MAX: Duration = Duration::from_secs(2);

/// The code with which a controller exits that has ended well.
const SUCCESS: u8 = 0;

/// What this process could not do was said.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Failed;

/// Forks the controller and keeps it, until nothing is left; the exit code of this process, whichever of the two it is.
/// The front is told why it could not be done.
pub fn guard(mut birth: Birth) -> Result<u8, Failed> {
    let forked = prepare().and_then(|()| os::fork());
    let ended = match forked {
        Ok(Forked::Child) => match process::run(&mut birth) {
            Ok(Ended::Well) => Ok(SUCCESS),
            Ok(Ended::Badly) => return Err(Failed),
            Err(error) => Err(error),
        },
        Ok(Forked::Parent(controller)) => match Loop::new(&IGNORED) {
            Ok(events) => {
                // The front must see the end of the link when the controller dies.
                drop(birth.link.take());
                watch(controller, events, &birth.surroundings)
            }
            Err(error) => {
                // Nobody would end what it leaves.
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
    // Whoever started us may ignore it, and then the end of a controller that fails at once would be lost.
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
            // Usually the controller has left nothing, and a look at every process is the dearest thing we could do.
            if !os::has_children() || until.is_some_and(|until| until <= Clock::now()) {
                if died {
                    crate::sweep_stale(surroundings);
                }
                return Ok(code);
            }
            let mut waits = false;
            for pid in os::descendants(os::current_pid()) {
                // It may have ended meanwhile; that is what we want.
                let _ = os::kill(pid, Signal::KILL);
                waits |= os::may_signal(pid);
            }
            if !waits {
                // All of it belongs to another user, and was named.
                until = Some(Clock::now());
            }
        }
        events.wait(until, &mut taken)?;
    }
}
