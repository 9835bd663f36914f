//! What processes log to a syslog, line by line in their order.
//!
//! | the next line is for | it goes to | and if there is no syslog |
//! |---|---|---|
//! | this node | this node | it has failed |
//! | all | the controller's host | it has failed |
//! | either | the controller's host | this node |

use std::collections::VecDeque;

use base::Time;
use pmix::{
    message::{Answer, Command},
    server::{Syslog, SyslogPlace, Ticket},
    value::{Proc, Status},
};

use super::Service;
use crate::{
    daemon::Output,
    proto::{AskId, ToController},
    syslog::{SyslogFailure, SyslogLine},
};

/// A log request whose lines are not all in a syslog yet.
#[derive(Debug, Default)]
pub(super) struct Logging {
    /// The first one is on its way.
    lines: VecDeque<(SyslogPlace, Result<SyslogLine, SyslogFailure>)>,
    logged: usize,
    /// Why the first line that is not in a syslog is not there.
    failed: Option<Status>,
}

impl Logging {
    const fn status(&self) -> Status {
        match self.failed {
            None => Status::SUCCESS,
            Some(status) if self.logged == 0 => status,
            Some(_) => Status::PARTIAL_SUCCESS,
        }
    }
}

impl SyslogFailure {
    pub(crate) const fn status(self) -> Status {
        match self {
            Self::Absent => Status::NOT_FOUND,
            Self::Busy => Status::RESOURCE_BUSY,
            Self::NotPermitted => Status::NO_PERMISSIONS,
            Self::TooLong => Status::OUT_OF_RESOURCE,
            Self::Other => Status::ERROR,
        }
    }
}

impl Service {
    pub(super) fn on_log(&mut self, now: Time, ticket: Ticket, from: &Proc, log: &Syslog) {
        let source = format!("{}:{}", from.nspace.as_c_str().to_string_lossy(), from.rank);
        let line = |text: &[u8]| SyslogLine::new(log.priority, &source, log.time, text);
        let texts = log.texts.iter();
        let logging = Logging {
            lines: texts.map(|(place, text)| (*place, line(text))).collect(),
            ..Logging::default()
        };
        self.logging.insert(ticket.0, logging);
        self.log_next(now, ticket.0);
    }

    /// Handles the answer to [`Output::Syslog`].
    pub(in crate::daemon) fn on_logged(
        &mut self,
        now: Time,
        ticket: u64,
        result: Result<(), SyslogFailure>,
    ) {
        let status = result.map_or_else(SyslogFailure::status, |()| Status::SUCCESS);
        self.on_log_answer(now, ticket, status);
    }

    /// Handles what has become of the first line of a log request, if there is such a request.
    pub(super) fn on_log_answer(&mut self, now: Time, ticket: u64, status: Status) {
        let Some(logging) = self.logging.get_mut(&ticket) else {
            return;
        };
        match logging.lines.front_mut() {
            Some((place @ SyslogPlace::Either, _)) if status == Status::NOT_FOUND => {
                *place = SyslogPlace::Local;
            }
            _ => {
                logging.lines.pop_front();
                match status {
                    Status::SUCCESS => logging.logged += 1,
                    failed => {
                        logging.failed.get_or_insert(failed);
                    }
                }
            }
        }
        self.log_next(now, ticket);
    }

    /// Sends the first line of a log request, or answers the request if none is left.
    fn log_next(&mut self, now: Time, ticket: u64) {
        let Some(logging) = self.logging.get_mut(&ticket) else {
            return;
        };
        while let Some((_, Err(failure))) = logging.lines.front() {
            logging.failed.get_or_insert_with(|| failure.status());
            logging.lines.pop_front();
        }
        match logging.lines.front() {
            Some((SyslogPlace::Local, Ok(line))) => {
                let line = line.clone();
                self.effects.push_back(Output::Syslog { ticket, line });
            }
            Some((SyslogPlace::Global | SyslogPlace::Either, Ok(line))) => {
                let line = line.clone();
                self.asked.insert(ticket, Command::Log);
                let ticket = AskId::Pmix(ticket);
                let line = ToController::Syslog { ticket, line };
                self.effects.push_back(Output::Send(line));
            }
            Some((_, Err(_))) | None => {
                let status = logging.status();
                self.logging.remove(&ticket);
                self.reply(now, Ticket(ticket), Answer::Status(status));
            }
        }
    }
}
