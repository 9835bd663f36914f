//! `rally release`: releases the held ranks of a running job.

use std::{path::PathBuf, time::Duration};

use base::{JobId, RankSet};
use dvm::proto::{FromFront, HoldingJob, JobRef, NotReleased, ToFront};
use message::{Kind, Message, Severity};
use runtime::{
    ask::{AskError, Inquirer},
    link::LinkError,
};
use serde::Serialize;

use crate::{
    args::{MessageFormat, ReleaseRequest},
    surroundings,
    values::JobName,
};

/// The longest wait for a controller's answer. A controller is never busy for long.
const PATIENCE: Duration = Duration::from_secs(10);

const NO_JOB: Kind = Kind {
    id: "release/no-job",
    severity: Severity::Error,
    explanation: "`rally release` finds your running jobs on this machine that hold ranks, or are going to hold some. A job is named by the \
process number of its `rally`, which the message that ranks are held contains, or by its PMIx namespace (`rally-HOST-NUMBER@JOB`). \
`NUMBER@JOB` is a job that another job has spawned.",
};
const SEVERAL: Kind = Kind {
    id: "release/several",
    severity: Severity::Error,
    explanation: "More than one of your running jobs holds ranks. Give the name of the job whose ranks should be released.",
};
const NOTHING_HELD: Kind = Kind {
    id: "release/nothing-held",
    severity: Severity::Error,
    explanation: "None of the given ranks is held: they were released before, have ended, or were not selected to be held.",
};
const LOST: Kind = Kind {
    id: "release/lost",
    severity: Severity::Error,
    explanation: "The job was found, but its controller did not answer: it has just ended, or it is stopped.",
};

/// All kinds of messages in this file, for `rally help ID`.
pub(crate) const KINDS: &[&Kind] = &[&NO_JOB, &SEVERAL, &NOTHING_HELD, &LOST];

/// The released ranks, and those that are still held.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(crate) struct Released {
    job: String,
    let_go: Ranks,
    held: Ranks,
}

/// A set of ranks, and its size.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
struct Ranks {
    count: usize,
    ranks: RankSet,
}

impl Ranks {
    fn of(ranks: RankSet) -> Self {
        Self {
            count: ranks.len(),
            ranks,
        }
    }
}

impl Released {
    /// Returns the answer as a sentence, or as a JSON object in one line.
    pub(crate) fn shown(&self, format: MessageFormat) -> String {
        let line = match format {
            // All keys are strings, so that serialization cannot fail.
            MessageFormat::Json => serde_json::to_string(self).unwrap_or_default(),
            MessageFormat::Text => {
                let (job, let_go) = (&self.job, list(&self.let_go.ranks));
                let still = match self.held.count {
                    0 => String::new(),
                    _ => format!(", still held {}", list(&self.held.ranks)),
                };
                format!("job {job}: released {let_go}{still}")
            }
        };
        line + "\n"
    }
}

/// The address of a controller: its pid, the pid of its front, and its socket.
type Place = (i32, i32, PathBuf);

/// Releases ranks, and returns which.
///
/// # Errors
/// The message to print.
pub(crate) fn release(request: &ReleaseRequest) -> Result<Released, Message> {
    let places = runtime::controls(&surroundings());
    let (place, job) = match &request.job {
        Some(name) => (find(name, places)?, name.job),
        None => only(places)?,
    };
    let name = name_of(place.1, job);
    let question = FromFront::Release {
        job: match (job, u32::try_from(place.1)) {
            (Some(job), _) => JobRef::Number(job),
            (None, Ok(front)) => JobRef::OfFront(front),
            (None, Err(_)) => return Err(no_job(&name)),
        },
        ranks: request.ranks.clone(),
    };
    match ask(&place, question).map_err(|error| lost(&name, &error.to_string()))? {
        ToFront::Released { ranks, held, .. } => Ok(Released {
            job: name,
            let_go: Ranks::of(ranks),
            held: Ranks::of(held),
        }),
        ToFront::NotReleased(NotReleased::NothingHeld) => {
            Err(nothing_held(&name, request.ranks.as_ref()))
        }
        ToFront::NotReleased(NotReleased::NoSuchJob) => Err(no_job(&name)),
        _ => Err(lost(&name, "the answer does not match the request")),
    }
}

fn ask(place: &Place, question: FromFront) -> Result<ToFront, AskError> {
    Inquirer::connect(&place.2, PATIENCE)?.ask(question)
}

fn find(name: &JobName, mut places: Vec<Place>) -> Result<Place, Message> {
    places.retain(|(controller, front, _)| [*controller, *front].contains(&name.pid));
    places.pop().ok_or_else(|| no_job(&name.typed))
}

/// The id of a job. `None` means the job that the front has submitted.
type Number = Option<JobId>;

/// Returns the only job that holds ranks or is going to hold some.
fn only(places: Vec<Place>) -> Result<(Place, Number), Message> {
    let mut strange = None;
    let held = places.into_iter().flat_map(|place| {
        // A controller without an answer has exited, or holds no ranks that we may release.
        let jobs = match ask(&place, FromFront::Holds) {
            Ok(ToFront::Holding(jobs)) => jobs,
            // The controller is of another version, and may hold ranks.
            Err(error @ AskError::Link(LinkError::Wire(_))) => {
                strange = Some(lost(&name_of(place.1, None), &error.to_string()));
                Vec::new()
            }
            _ => Vec::new(),
        };
        let number = move |HoldingJob { job, front }| match front.map(i32::try_from) {
            Some(Ok(front)) if front == place.1 => (place.clone(), None),
            _ => (place.clone(), Some(job)),
        };
        jobs.into_iter().map(number)
    });
    let held: Vec<(Place, Number)> = held.collect();
    match strange {
        Some(strange) if held.is_empty() => Err(strange),
        Some(_) | None => one_of(held),
    }
}

fn one_of(mut held: Vec<(Place, Number)>) -> Result<(Place, Number), Message> {
    match held.len() {
        0 | 1 => held.pop().ok_or_else(none_held),
        _ => Err(several(&held)),
    }
}

fn name_of(front: i32, job: Number) -> String {
    match job {
        None => front.to_string(),
        Some(job) => format!("{front}@{job}"),
    }
}

fn list(ranks: &RankSet) -> String {
    let word = if ranks.len() == 1 { "rank" } else { "ranks" };
    format!("{word} {ranks}")
}

fn no_job(name: &str) -> Message {
    Message::new(
        &NO_JOB,
        format!("no running job of yours that holds ranks is called `{name}`"),
    )
    .with_help("the message that ranks are held contains the number; `rally release` without a name takes the only such job")
}

fn none_held() -> Message {
    Message::new(&NO_JOB, "no running job of yours holds ranks".to_owned()).with_help(
        "start one with `--stop-on-exec`, `--stop-in-init` or `--stop-in-app` (`rally help debugging`)",
    )
}

fn several(held: &[(Place, Number)]) -> Message {
    let names: Vec<String> = held
        .iter()
        .map(|(place, job)| name_of(place.1, *job))
        .collect();
    Message::new(&SEVERAL, format!("{} running jobs hold ranks", held.len()))
        .fact("jobs", names.join(", "))
        .with_help("name one: `rally release JOB`")
}

fn nothing_held(name: &str, ranks: Option<&RankSet>) -> Message {
    let what = match ranks {
        None => format!("no rank of job {name} is held"),
        Some(ranks) if ranks.len() == 1 => format!("{} of job {name} is not held", list(ranks)),
        Some(ranks) => format!("none of {} of job {name} is held", list(ranks)),
    };
    Message::new(&NOTHING_HELD, what)
}

fn lost(name: &str, why: &str) -> Message {
    Message::new(&LOST, format!("job {name} does not answer"))
        .fact("reason", why.to_owned())
        .with_help("if another version of `rally` started it, release it with that version")
}

#[cfg(test)]
mod tests {
    use base::Rank;

    use super::*;

    #[test]
    fn jobs_have_several_names() {
        for (text, expected) in [
            ("123", Some((123, None))),
            ("123@2", Some((123, Some(2)))),
            ("rally-node-7-00c0ffee-123@1", Some((123, Some(1)))),
            ("rally-node", None),
            ("", None),
            ("123@x", None),
            ("x@1", None),
        ] {
            let read = JobName::read(text).map(|name| (name.pid, name.job.map(|job| job.0)));
            assert_eq!(read, expected, "{text}");
        }
    }

    #[test]
    fn the_job_is_found_or_the_way_to_it_is_said() {
        let place = |controller, front| (controller, front, PathBuf::new());
        let two = || vec![place(10, 9), place(11, 8)];
        let found = |text: &str| find(&JobName::read(text).unwrap(), two()).map(|place| place.1);
        assert_eq!(found("11").unwrap(), 8);
        assert_eq!(found("9").unwrap(), 9);
        assert!(found("12").is_err());
        assert!(one_of(Vec::new()).is_err());
        let job = |front, job: u32| (place(front + 1, front), Some(JobId(job)));
        assert_eq!(one_of(vec![job(3, 2)]).unwrap(), job(3, 2));
        assert!(one_of(vec![job(3, 1), job(3, 2)]).is_err());
    }

    #[test]
    fn who_is_let_go_is_said() {
        let said = |let_go, held| {
            let released = Released {
                job: "17".to_owned(),
                let_go,
                held,
            };
            let formats = [MessageFormat::Text, MessageFormat::Json];
            formats.map(|format| released.shown(format)).concat()
        };
        let two: RankSet = [Rank(0), Rank(2)].into_iter().collect();
        let one = RankSet::single(Rank(1));
        let all = [
            said(Ranks::of(two), Ranks::of(RankSet::new())),
            said(Ranks::of(one.clone()), Ranks::of(one)),
        ];
        insta::assert_snapshot!(all.concat(), @r#"
        job 17: released ranks 0,2
        {"job":"17","let_go":{"count":2,"ranks":"0,2"},"held":{"count":0,"ranks":""}}
        job 17: released rank 1, still held rank 1
        {"job":"17","let_go":{"count":1,"ranks":"1"},"held":{"count":1,"ranks":"1"}}
        "#);
    }

    #[test]
    fn every_sentence() {
        let ranks: RankSet = [Rank(0), Rank(2)].into_iter().collect();
        let all = [
            no_job("17"),
            none_held(),
            several(&[
                ((1, 2, PathBuf::new()), None),
                ((3, 4, PathBuf::new()), Some(JobId(2))),
            ]),
            nothing_held("17", None),
            nothing_held("17@2", Some(&ranks)),
            nothing_held("17", Some(&RankSet::single(Rank(3)))),
            lost("17", "cannot connect to a path: Connection refused"),
        ];
        let mut text = Vec::new();
        for message in all {
            message::print(&message, MessageFormat::Text, &mut text).unwrap();
        }
        insta::assert_snapshot!(String::from_utf8(text).unwrap());
    }
}
