//! Where the job of a front runs, and what a front does that starts a machine.

use std::path::PathBuf;

use dvm::{
    machine::{Ask, Down, Reply},
    proto::FromFront,
};
use runtime::{ask::Inquirer, link::Opening};

use super::{Ending, Front, State, birth::Helpers};
use crate::messages;

/// Where the job of a front runs.
#[derive(Debug)]
pub(crate) enum Site {
    /// On a controller of its own.
    Own(Helpers, Opening),
    /// On a machine with these nodes.
    Machine(Inquirer, Vec<String>),
}

/// What a front is for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Errand {
    Run,
    /// The controller becomes a machine, whose directory this is, and the front ends.
    Up(PathBuf),
}

impl Front {
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
