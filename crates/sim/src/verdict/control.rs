//! What is expected of a launcher that waits for a tool: whether its job may start, may have to be refused, or has to end.

use base::{JobId, Time};
use dvm::{
    Control, ControllerInput,
    proto::{Door, FromFront, FromServer, FrontId, ToController, ToDaemon, ToServer},
};

/// How far the tool has come, as far as the controller knows.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum State {
    /// No tool has started the launcher, and it waits for none.
    #[default]
    Nobody,
    Awaited,
    Released,
    /// The tool has gone before it has released the launcher, or has died.
    Gone,
}

/// The tool for which the launcher waits.
#[derive(Debug, Default)]
pub(crate) struct ControlVerdict {
    state: State,
    /// True if the job goes on when the tool has died.
    goes_on: bool,
    /// The connection of the tool that has started the launcher.
    conn: Option<u64>,
    /// Its number.
    tool: Option<JobId>,
    /// The front whose job waits: the first one.
    front: Option<FrontId>,
    /// Time from which its job has nothing to wait for but its nodes.
    released: Option<Time>,
}

/// What an input means for the job that a tool controls.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Consequence {
    Nothing,
    /// Its time begins.
    Begins,
    Ends,
}

impl ControlVerdict {
    /// Notes that the job goes on when its tool has died.
    pub(crate) const fn goes_on(&mut self) {
        self.goes_on = true;
    }

    pub(super) fn on_submit(&mut self, front: FrontId) {
        self.front.get_or_insert(front);
    }

    /// Takes what the controller is about to hear, and returns what follows for the job.
    pub(super) fn on_input(&mut self, now: Time, input: &ControllerInput) -> Consequence {
        match input {
            ControllerInput::Controlled(Control::Started { .. } | Control::Pause) => {
                self.state = State::Awaited;
            }
            ControllerInput::ControllingToolDied => {
                let before = self.state;
                let is_over = before == State::Nobody || before == State::Released && self.goes_on;
                if !is_over {
                    self.state = State::Gone;
                }
                if before == State::Released && !self.goes_on {
                    return Consequence::Ends;
                }
            }
            ControllerInput::Front(_, FromFront::Submit(_)) if self.released.is_some() => {
                self.released = Some(now);
            }
            ControllerInput::Daemon(_, ToController::Server(message)) => match **message {
                FromServer::ToolConnects { conn, ref visitor } if visitor.door == Door::Theirs => {
                    self.conn = Some(conn);
                }
                FromServer::ToolLeft { tool }
                    if self.state == State::Awaited && self.tool == Some(tool) =>
                {
                    self.state = State::Gone;
                }
                FromServer::LauncherReleased { .. } if self.state == State::Awaited => {
                    self.state = State::Released;
                    self.released = Some(now);
                    return Consequence::Begins;
                }
                _ => {}
            },
            _ => {}
        }
        Consequence::Nothing
    }

    /// Takes a message of the controller, which tells the number of the tool.
    pub(crate) fn on_told(&mut self, message: &ToDaemon) {
        if let ToDaemon::Server(message) = message
            && let ToServer::ToolAdmitted {
                conn,
                result: Ok(named),
            } = &**message
            && self.conn == Some(*conn)
        {
            self.tool = Some(named.tool);
        }
    }

    /// Returns the number of the tool that has started the launcher.
    pub(crate) const fn tool(&self) -> Option<JobId> {
        self.tool
    }

    pub(crate) const fn front(&self) -> Option<FrontId> {
        self.front
    }

    /// Returns true if a job waits for the tool.
    pub(crate) fn waits(&self) -> bool {
        self.state == State::Awaited
    }

    /// Returns true if the job of a front may start.
    pub(crate) fn lets_start(&self, front: FrontId) -> bool {
        self.front != Some(front) || matches!(self.state, State::Nobody | State::Released)
    }

    /// Returns the time from which the job has had nothing to wait for but its nodes.
    pub(crate) fn released(&self) -> Option<Time> {
        self.released.filter(|_| self.state == State::Released)
    }

    /// Returns true if the job of the front has to be refused.
    pub(crate) fn is_gone(&self) -> bool {
        self.state == State::Gone
    }
}
