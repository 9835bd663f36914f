//! Where the job of a front runs, and what a front does that starts a machine.

use std::path::PathBuf;

use dvm::{
    machine::{Ask, Down, Reply},
    proto::{CannotRun, FromFront, JobRef, OnePer},
};
use message::Message;
use os::Pid;
use runtime::{ask::Inquirer, link::Opening};

use super::{Ending, Front, State, birth::Helpers};
use crate::{
    machine::{self, Connection},
    messages, summons, tool,
};

/// Where the job of a front runs.
#[derive(Debug)]
pub(crate) enum Site {
    /// On a controller of its own.
    Own(Helpers, Box<Opening>),
    Machine(Connection),
    /// Beside another job, on the controller of that.
    Beside(Inquirer),
}

/// What a front is for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Errand {
    Run,
    /// The same, on a machine.
    RunOnMachine,
    /// The controller becomes a machine, whose directory this is, and the front ends.
    Up(PathBuf),
    /// Processes of a tool beside the ranks of a job.
    Tool(JobRef, OnePer),
}

impl Front {
    /// Returns the message for a controller that is gone without a word, or has said why.
    pub(super) fn lost_controller(&self) -> Message {
        match (&self.failed_controller, &self.errand) {
            (Some(CannotRun::System(why)), _) => messages::controller_failed(why),
            (Some(CannotRun::ToolFile(why)), _) => summons::not_served(why),
            (Some(why), _) => machine::not_started(why),
            (None, Errand::RunOnMachine) => machine::gone(),
            (None, Errand::Tool(..)) => tool::gone(),
            (None, _) => match self.escalation.stopped_controller() {
                Some(pid) => messages::controller_stopped(Pid::from_raw(pid)),
                None => messages::controller_lost(),
            },
        }
    }

    /// Handles an answer of the controller that was to become a machine.
    pub(super) fn on_reply(&mut self, reply: Reply) {
        match (reply, &self.errand) {
            (Reply::Status(status), Errand::Up(_)) => {
                self.end_prompts();
                if status.usable == 0 {
                    let end = Ask::Down(Down::Now);
                    self.link.send(FromFront::Ask(Box::new(end)));
                }
                self.state = State::Ended(Ending::Up(Box::new(status)));
            }
            (Reply::Refused(why), Errand::Up(_)) => {
                self.state = State::Ended(Ending::NotUp(why));
            }
            _ => self.say(&messages::internal("an answer to no question")),
        }
    }
}
