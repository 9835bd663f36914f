//! Messages about tools beside the ranks of a job.

use message::Message;

use super::{NOT_STARTED, kind as k, refused, spawned_end, spawned_text};
use crate::proto::{Cause, NoTarget, Refusal, ToolNews};

/// Returns the message for a tool that cannot be started, because of its target.
pub(super) fn no_target(why: NoTarget) -> Message {
    let what = format!("cannot start a tool: {}", reason(why));
    let message = Message::new(&k::NO_TARGET, what);
    match why {
        NoTarget::TooMany => message.with_help("start one process on each node"),
        NoTarget::NotStarted => message.with_help("start the tool when the job runs"),
        NoTarget::NoSuchJob | NoTarget::IsTool => message,
    }
}

const fn reason(why: NoTarget) -> &'static str {
    match why {
        NoTarget::NoSuchJob => "there is no such job, or it has ended",
        NoTarget::NotStarted => "the job has not started yet",
        NoTarget::IsTool => "the job is a tool itself",
        NoTarget::TooMany => "the job has too many ranks for a process beside each",
    }
}

/// Returns the message for news of the tool that a front has started beside its own job; `None` if all is well.
#[must_use]
pub fn tool(news: &ToolNews) -> Option<Message> {
    let effect = "the job goes on without it";
    match news {
        ToolNews::Started(_) => None,
        ToolNews::Refused(refusal) => Some(not_started(refusal).fact("effect", effect)),
        ToolNews::Ended { cause, .. } => match cause {
            Cause::Success | Cause::Ended(_) => None,
            Cause::NotStarted(_) => {
                let what = format!("the tool was not started: {}", spawned_end(cause));
                Some(Message::new(&k::TOOL_FAILED, what).fact("effect", effect))
            }
            _ => {
                let end = spawned_end(cause).replacen("its rank", "its process", 1);
                let message = Message::new(&k::TOOL_FAILED, format!("the tool failed: {end}"));
                Some(message.maybe("message", spawned_text(cause)))
            }
        },
    }
}

/// Returns why a tool is refused, as a warning: its job runs.
fn not_started(refusal: &Refusal) -> Message {
    let mut message = refused(refusal);
    message
        .facts
        .retain(|(_, text)| text.as_str() != NOT_STARTED);
    let why = match refusal {
        Refusal::NoTarget(why) => reason(*why),
        _ => message.headline.as_str(),
    };
    let mut whole = Message::new(&k::TOOL_FAILED, format!("the tool was not started: {why}"));
    whole.facts = message.facts;
    whole.help = message.help;
    whole
}

#[cfg(test)]
mod tests {
    use base::{ExitStatus, JobId, Rank, RankSet, Signal};

    use super::*;
    use crate::proto::{StartFailure, StartStep};

    #[test]
    fn every_sentence() {
        let job = JobId(2);
        let ended = |cause| ToolNews::Ended { job, cause };
        let failure = StartFailure {
            step: StartStep::Find,
            errno: 2,
            subject: Some("/opt/tool".into()),
        };
        let news = [
            ToolNews::Started(job),
            ended(Cause::Success),
            ended(Cause::Ended(crate::proto::EndReason::TargetEnded)),
            ToolNews::Refused(Refusal::NoTarget(NoTarget::TooMany)),
            ToolNews::Refused(Refusal::TooManyJobs { most: 4096 }),
            ended(Cause::NotStarted(vec![(failure, RankSet::range(0..2))])),
            ended(Cause::Failed {
                rank: Rank(1),
                status: ExitStatus::Signaled {
                    signal: Signal::SEGV,
                    core_dumped: false,
                },
            }),
        ];
        let refusals = [
            NoTarget::NoSuchJob,
            NoTarget::NotStarted,
            NoTarget::IsTool,
            NoTarget::TooMany,
        ];
        let messages = news.iter().filter_map(tool);
        let messages = messages.chain(refusals.map(no_target));
        let mut text = Vec::new();
        for message in messages {
            message::print(&message, message::Format::Text, &mut text).unwrap();
        }
        insta::assert_snapshot!(String::from_utf8(text).unwrap(), @"
        warning: the tool was not started: the job has too many ranks for a process beside each
          effect: the job goes on without it
          help:   start one process on each node
        warning: the tool was not started: this launcher already runs 4096 jobs, and cannot run more
          effect: the job goes on without it
          help:   wait until one of them has ended
        warning: the tool was not started: cannot start `/opt/tool`: there is no such file
          effect: the job goes on without it
        warning: the tool failed: its process 1 was killed by SIGSEGV
        error: cannot start a tool: there is no such job, or it has ended
        error: cannot start a tool: the job has not started yet
          help: start the tool when the job runs
        error: cannot start a tool: the job is a tool itself
        error: cannot start a tool: the job has too many ranks for a process beside each
          help: start one process on each node
        ");
    }
}
