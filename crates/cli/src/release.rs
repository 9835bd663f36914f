//! `rally release`: lets the held ranks of a running job go.

use std::{path::PathBuf, time::Duration};

use base::{JobId, RankSet};
use dvm::control::{MAX_LINE, Reply, Request};

use message::{Kind, Message, Severity};
use serde::Serialize;

use crate::{
    args::{MessageFormat, ReleaseRequest},
    surroundings,
    values::JobName,
};

/// How long a controller may take for its answer: it is never busy for long.
const PATIENCE: Duration = Duration::from_secs(10);
/// The number of a front's own job.
const FIRST: JobId = dvm::FIRST_JOB;

const NO_JOB: Kind = Kind {
    id: "release/no-job",
    severity: Severity::Error,
    explanation: "`rally release` finds the running jobs of your user on this machine that hold ranks, or were to hold some. A job is \
named by the process number of its `rally`, which the message that ranks are held says, or by its name in PMIx \
(`rally-HOST-NUMBER@JOB`); `NUMBER@JOB` is a job that another one has spawned.",
};
const SEVERAL: Kind = Kind {
    id: "release/several",
    severity: Severity::Error,
    explanation: "More than one of your running jobs holds ranks, so `rally release` has to be told which one it shall let go.",
};
const NOTHING_HELD: Kind = Kind {
    id: "release/nothing-held",
    severity: Severity::Error,
    explanation: "None of the ranks that were named is held: they were let go before, have ended, or were never to be held.",
};
const LOST: Kind = Kind {
    id: "release/lost",
    severity: Severity::Error,
    explanation: "The job was found, but its controller did not answer: it ended at that moment, or something has stopped it.",
};

/// Every kind of message here, for `rally help ID`.
pub(crate) const KINDS: &[&Kind] = &[&NO_JOB, &SEVERAL, &NOTHING_HELD, &LOST];

/// Who was let go, and who is still held.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(crate) struct Released {
    job: String,
    let_go: Ranks,
    held: Ranks,
}

/// So many ranks; which ones, where there are not too many to say it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
struct Ranks {
    count: usize,
    ranks: Option<RankSet>,
}

impl Ranks {
    fn of(ranks: RankSet) -> Self {
        Self {
            count: ranks.len(),
            ranks: Some(ranks),
        }
    }

    fn text(&self) -> String {
        match (&self.ranks, self.count) {
            (Some(ranks), _) => list(ranks),
            (None, 1) => "1 rank".to_owned(),
            (None, count) => format!("{count} ranks"),
        }
    }
}

impl Released {
    /// A sentence, or an object in one line.
    pub(crate) fn shown(&self, format: MessageFormat) -> String {
        let line = match format {
            // Every key is text, and nothing in it can fail to be.
            MessageFormat::Json => serde_json::to_string(self).unwrap_or_default(),
            MessageFormat::Text => {
                let (job, let_go) = (&self.job, self.let_go.text());
                let still = match self.held.count {
                    0 => String::new(),
                    _ => format!(", still held {}", self.held.text()),
                };
                format!("job {job}: let go {let_go}{still}")
            }
        };
        line + "\n"
    }
}

/// Where a job can be asked: the pid of its controller, that of its front, and the socket.
type Place = (i32, i32, PathBuf);

/// Lets ranks go, and says which.
///
/// # Errors
/// What is wrong, as it is to be told.
pub(crate) fn release(request: &ReleaseRequest) -> Result<Released, Message> {
    let (place, job) = match &request.job {
        Some(name) => (find(name, runtime::controls(&surroundings()))?, name.job),
        None => only(runtime::controls(&surroundings()))?,
    };
    let name = name_of(place.1, job);
    let line = Request::Release {
        job,
        ranks: request.ranks.clone(),
    }
    .to_string();
    if line.len() >= MAX_LINE {
        return Err(too_many(line.len()));
    }
    match ask(&place, &line).map_err(|error| lost(&name, &error.to_string()))? {
        Some(Reply::Released { ranks, held }) => Ok(Released {
            job: name,
            let_go: Ranks::of(ranks),
            held: Ranks::of(held),
        }),
        Some(Reply::ReleasedMany { ranks, held }) => {
            let of = |count| Ranks { count, ranks: None };
            Ok(Released {
                job: name,
                let_go: of(ranks),
                held: of(held),
            })
        }
        Some(Reply::NothingHeld) => Err(nothing_held(&name, request.ranks.as_ref())),
        Some(Reply::NoSuchJob) => Err(no_job(&name)),
        Some(Reply::Unreadable | Reply::Held(_)) | None => {
            Err(lost(&name, "it did not understand the question"))
        }
    }
}

/// What a controller says; nothing when that is no reply.
fn ask(place: &Place, line: &str) -> Result<Option<Reply>, os::Error> {
    let reply = os::ask_at(&place.2, line, PATIENCE, MAX_LINE as u64)?;
    Ok(reply.parse().ok())
}

fn find(name: &JobName, mut places: Vec<Place>) -> Result<Place, Message> {
    places.retain(|(controller, front, _)| [*controller, *front].contains(&name.pid));
    places.pop().ok_or_else(|| no_job(&name.typed))
}

/// The only job that holds ranks, or will.
fn only(places: Vec<Place>) -> Result<(Place, JobId), Message> {
    let question = Request::Held.to_string();
    let held = places.into_iter().flat_map(|place| {
        // Who does not answer is gone, or holds nobody whom we could let go.
        let jobs = match ask(&place, &question) {
            Ok(Some(Reply::Held(jobs))) => jobs,
            _ => Vec::new(),
        };
        jobs.into_iter().map(move |job| (place.clone(), job))
    });
    one_of(held.collect())
}

fn one_of(mut held: Vec<(Place, JobId)>) -> Result<(Place, JobId), Message> {
    match held.len() {
        0 | 1 => held.pop().ok_or_else(none_held),
        _ => Err(several(&held)),
    }
}

fn name_of(front: i32, job: JobId) -> String {
    if job == FIRST {
        front.to_string()
    } else {
        format!("{front}@{job}")
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
    .with_help("the message that ranks are held says the number; `rally release` alone takes the only such job")
}

fn none_held() -> Message {
    Message::new(&NO_JOB, "no running job of yours holds ranks".to_owned()).with_help(
        "start one with `--stop-on-exec`, `--stop-in-init` or `--stop-in-app` (`rally help debugging`)",
    )
}

fn several(held: &[(Place, JobId)]) -> Message {
    let names: Vec<String> = held
        .iter()
        .map(|(place, job)| name_of(place.1, *job))
        .collect();
    Message::new(&SEVERAL, format!("{} running jobs hold ranks", held.len()))
        .fact("jobs", names.join(", "))
        .with_help("say which: `rally release JOB`")
}

fn too_many(length: usize) -> Message {
    Message::new(
        &NOTHING_HELD,
        format!("the list of ranks is too long: {length} characters"),
    )
    .with_help("let them go in several steps, or all at once without `--ranks`")
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
    Message::new(&LOST, format!("job {name} does not answer")).fact("reason", why.to_owned())
}

#[cfg(test)]
mod tests {
    use base::Rank;

    use super::*;

    #[test]
    fn jobs_have_several_names() {
        for (text, expected) in [
            ("123", Some((123, 1))),
            ("123@2", Some((123, 2))),
            ("rally-node-7-00c0ffee-123@1", Some((123, 1))),
            ("rally-node", None),
            ("", None),
            ("123@x", None),
            ("x@1", None),
        ] {
            let read = JobName::read(text).map(|name| (name.pid, name.job.0));
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
        let job = |front, job| (place(front + 1, front), JobId(job));
        assert_eq!(one_of(vec![job(3, 2)]).unwrap(), job(3, 2));
        assert!(one_of(vec![job(3, 1), job(3, 2)]).is_err());
    }

    #[test]
    fn who_is_let_go_is_said() {
        let many = |count| Ranks { count, ranks: None };
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
            said(many(70_000), many(1)),
        ];
        insta::assert_snapshot!(all.concat(), @r#"
        job 17: let go ranks 0,2
        {"job":"17","let_go":{"count":2,"ranks":"0,2"},"held":{"count":0,"ranks":""}}
        job 17: let go rank 1, still held rank 1
        {"job":"17","let_go":{"count":1,"ranks":"1"},"held":{"count":1,"ranks":"1"}}
        job 17: let go 70000 ranks, still held 1 rank
        {"job":"17","let_go":{"count":70000,"ranks":null},"held":{"count":1,"ranks":null}}
        "#);
    }

    #[test]
    fn every_sentence() {
        let ranks: RankSet = [Rank(0), Rank(2)].into_iter().collect();
        let all = [
            no_job("17"),
            none_held(),
            several(&[
                ((1, 2, PathBuf::new()), JobId(1)),
                ((3, 4, PathBuf::new()), JobId(2)),
            ]),
            too_many(70_000),
            nothing_held("17", None),
            nothing_held("17@2", Some(&ranks)),
            nothing_held("17", Some(&RankSet::single(Rank(3)))),
            lost("17", "cannot ask at a path: Connection refused"),
        ];
        let mut text = Vec::new();
        for message in all {
            message::print(&message, MessageFormat::Text, &mut text).unwrap();
        }
        insta::assert_snapshot!(String::from_utf8(text).unwrap());
    }
}
