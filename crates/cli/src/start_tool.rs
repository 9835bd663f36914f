//! `rally start-tool`: processes of a tool beside the ranks of a running job.
//!
//! This process is a front of the controller that runs the job, and the tool is its job: output, input, signals and the end are handled
//! as for any other.

use std::{path::Path, time::Duration};

use base::{JobId, RankSet};
use dvm::{
    machine::{Ask, Reply},
    proto::{FromFront, JobRef, NotReleased, ToFront},
    queue::TaskId,
};
use message::{Kind, Message, Severity};
use runtime::{
    ask::{AskError, Inquirer},
    link::LinkError,
};

use crate::{
    args::{World, request::StartToolRequest},
    exit::{self, ExitCode},
    front::{self, Errand, Site},
    log,
    machine::{self, Failure},
    messages, say, surroundings, tool,
    values::JobName,
};

/// The longest wait for a controller's answer. A controller is never busy for long.
const PATIENCE: Duration = Duration::from_secs(10);

const NO_JOB: Kind = Kind {
    id: "tool/no-job",
    severity: Severity::Error,
    explanation: "`rally start-tool` finds your running jobs on this computer. A job is named by the process number of its `rally`, by its \
PMIx namespace (`rally-HOST-NUMBER@JOB`, which debuggers read in `totalview_jobid`), or by its number in the queue of a machine. \
`NUMBER@JOB` is a job that another job has spawned. On another computer, call it there: `ssh HOST rally start-tool ...`.",
};

/// All kinds of messages in this file, for `rally help ID`.
pub(crate) const KINDS: &[&Kind] = &[&NO_JOB, &tool::LOST];

/// A controller, and its job that is meant.
struct Target {
    controller: Inquirer,
    job: JobRef,
}

/// Runs a tool to its end, and returns the exit code.
pub(crate) fn run(request: StartToolRequest, world: &World) -> u8 {
    let format = request.front.message_format;
    let target = match find(&request, world) {
        Ok(target) => target,
        Err((message, code)) => {
            say(&message, format);
            return code.code();
        }
    };
    if let Err(error) = log::start(world) {
        say(&error.message(), format);
        return error.exit().code();
    }
    let site = Site::Beside(target.controller);
    let errand = Errand::Tool(target.job, request.one_per);
    match front::run(Box::new(request.spec), errand, site, request.front, None) {
        Ok(code) => code,
        Err(error) => {
            say(&messages::system(&error), format);
            ExitCode::Resources.code()
        }
    }
}

fn find(request: &StartToolRequest, world: &World) -> Result<Target, Failure> {
    let name = &request.job;
    let number = name.typed.parse().ok().map(JobId);
    if let Some(number) = number
        && let Some(target) = in_queue(number, request.machine.as_deref(), world)?
    {
        return Ok(target);
    }
    let mut strange = None;
    for (socket, job) in candidates(name, world) {
        match probe(&socket, job) {
            Ok(Some(controller)) => return Ok(Target { controller, job }),
            Ok(None) => {}
            // A controller that has just exited, or one of another version.
            Err(error) => strange = Some(error),
        }
    }
    match strange {
        Some(error @ AskError::Link(LinkError::Wire(_))) => {
            Err((lost(&name.typed, &error.to_string()), ExitCode::Internal))
        }
        Some(_) | None => Err((no_job(name, &world.host), ExitCode::Usage)),
    }
}

/// Returns a job of the queue of a machine that runs; `None` if there is no machine, unless one was named, or no such job.
fn in_queue(
    number: JobId,
    machine: Option<&str>,
    world: &World,
) -> Result<Option<Target>, Failure> {
    let found = match (machine::select(world, machine), machine) {
        (Ok(found), _) => found,
        (Err(failure), Some(_)) => return Err(failure),
        (Err(_), None) => return Ok(None),
    };
    let task = TaskId {
        job: number,
        index: None,
    };
    let said = machine::Connection::to(&found)?.ask_plainly(Ask::Run(task))?;
    let run = match said {
        Ok(Reply::Run(Some(run))) => JobName::read(&run.nspace).and_then(|name| name.job),
        Ok(_) => None,
        Err(why) if machine.is_some() => {
            return Err((dvm::messages::not_done(&why), exit::not_done(&why)));
        }
        Err(_) => None,
    };
    let Some(run) = run else {
        return Ok(None);
    };
    let job = JobRef::Number(run);
    let controller = Inquirer::connect(&found.control(), PATIENCE);
    match controller {
        Ok(controller) => Ok(Some(Target { controller, job })),
        Err(error) => Err((
            lost(&number.to_string(), &error.to_string()),
            ExitCode::Internal,
        )),
    }
}

/// Returns the controllers that may have a job of this name, and how they know it, the most likely ones first. The front of a job that
/// runs on a machine has no controller of its own.
fn candidates(name: &JobName, world: &World) -> Vec<(std::path::PathBuf, JobRef)> {
    let mut found = Vec::new();
    let mut others = Vec::new();
    for (controller, front, socket) in runtime::controls(&surroundings()) {
        let is_named = [controller, front].contains(&name.pid);
        match (name.job, u32::try_from(front)) {
            (Some(job), _) if is_named => found.push((socket, JobRef::Number(job))),
            (None, Ok(front)) if is_named => found.push((socket, JobRef::OfFront(front))),
            _ => others.push(socket),
        }
    }
    others.extend(machine::controls(world));
    if let (None, Ok(pid)) = (name.job, u32::try_from(name.pid)) {
        found.extend(
            others
                .into_iter()
                .map(|socket| (socket, JobRef::OfFront(pid))),
        );
    }
    found
}

/// Returns a connection to a controller if it has this job. Releasing no ranks changes nothing, and the answer says whether the job exists.
fn probe(socket: &Path, job: JobRef) -> Result<Option<Inquirer>, AskError> {
    let mut controller = Inquirer::connect(socket, PATIENCE)?;
    let question = FromFront::Release {
        job,
        ranks: Some(RankSet::new()),
    };
    Ok(match controller.ask(question)? {
        ToFront::NotReleased(NotReleased::NoSuchJob) => None,
        _ => Some(controller),
    })
}

/// Returns the host in the name of a job, `rally-HOST-NUMBER-PID@JOB`, unless it is ours.
fn other_host<'a>(name: &'a JobName, ours: &str) -> Option<&'a str> {
    let (process, _) = name.typed.rsplit_once('@')?;
    let (rest, _) = process.strip_prefix("rally-")?.rsplit_once('-')?;
    let host = rest.rsplit_once('-').map_or(rest, |(host, _)| host);
    (host != ours && !host.is_empty()).then_some(host)
}

fn no_job(name: &JobName, ours: &str) -> Message {
    let message = Message::new(
        &NO_JOB,
        format!(
            "no running job of yours on this computer is called `{}`",
            name.typed
        ),
    );
    match other_host(name, ours) {
        Some(host) => message.with_help(format!(
            "it is called after a job of `{host}`: `ssh {host} rally start-tool ...`"
        )),
        None => message.with_help(
            "the number is that of the `rally` process that runs the job, or that of `rally queue`",
        ),
    }
}

fn lost(name: &str, why: &str) -> Message {
    Message::new(&tool::LOST, format!("job {name} does not answer"))
        .fact("reason", why.to_owned())
        .with_help("if another version of `rally` started it, use that version")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::args::MessageFormat;

    #[test]
    fn the_host_is_in_the_name() {
        let host = |typed: &str| {
            let name = JobName::read(typed).unwrap();
            other_host(&name, "login1").map(str::to_owned)
        };
        assert_eq!(host("rally-n-7-e68e2a20-7039@1").as_deref(), Some("n-7"));
        assert_eq!(host("rally-login1-e68e2a20-7039@1"), None);
        assert_eq!(host("7039@1"), None);
        assert_eq!(host("7039"), None);
    }

    #[test]
    fn every_sentence() {
        let name = |typed: &str| JobName::read(typed).unwrap();
        let all = [
            no_job(&name("17"), "here"),
            no_job(&name("rally-n7-e68e2a20-7039@1"), "here"),
            lost("17", "it closed the connection"),
            tool::gone(),
        ];
        let mut text = Vec::new();
        for message in all {
            message::print(&message, MessageFormat::Text, &mut text).unwrap();
        }
        insta::assert_snapshot!(String::from_utf8(text).unwrap());
    }
}
