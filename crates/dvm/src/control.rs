//! What other processes of the user may ask of a running job's controller, as `docs/formats/control.md` has it: one line
//! each way.

use std::{fmt, str::FromStr};

use base::{JobId, RankSet};

/// Bytes of the longest request or reply, its line feed included. A socket to which nothing was written takes as much.
pub const MAX_LINE: usize = 64 * 1024;

/// A request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Request {
    /// Which jobs have ranks that are held, or will be.
    Held,
    /// Let held ranks go, and do not hold those that have not come to their holding point. `None`: all of the job.
    Release { job: JobId, ranks: Option<RankSet> },
}

/// What the controller says to it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Reply {
    /// These ranks were let go, and these are still held, or will be.
    Released {
        ranks: RankSet,
        held: RankSet,
    },
    /// The same where the sets do not fit into a line: how many.
    ReleasedMany {
        ranks: usize,
        held: usize,
    },
    /// The jobs that have ranks that are held, or will be.
    Held(Vec<JobId>),
    /// None of the ranks that were named is held, or was to be.
    NothingHeld,
    NoSuchJob,
    /// The request was no request.
    Unreadable,
}

/// A line that says nothing that is known here.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("it is no line of this protocol")]
pub struct Unknown;

impl Reply {
    /// The line that says it, its line feed included; never longer than [`MAX_LINE`].
    #[must_use]
    pub fn line(&self) -> String {
        let line = format!("{self}\n");
        match self {
            Self::Released { ranks, held } if line.len() > MAX_LINE => {
                let (ranks, held) = (ranks.len(), held.len());
                format!("{}\n", Self::ReleasedMany { ranks, held })
            }
            _ => line,
        }
    }
}

impl fmt::Display for Request {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Held => f.write_str("held"),
            Self::Release { job, ranks: None } => write!(f, "release {job} all"),
            Self::Release {
                job,
                ranks: Some(ranks),
            } => write!(f, "release {job} {ranks}"),
        }
    }
}

impl FromStr for Request {
    type Err = Unknown;

    fn from_str(line: &str) -> Result<Self, Unknown> {
        let words: Vec<&str> = line.split(' ').collect();
        let (job, ranks) = match words.as_slice() {
            ["held"] => return Ok(Self::Held),
            ["release", job, ranks] => (job, ranks),
            _ => return Err(Unknown),
        };
        let job = JobId(job.parse().map_err(|_| Unknown)?);
        let ranks = match *ranks {
            "all" => None,
            ranks => Some(ranks.parse().map_err(|_| Unknown)?),
        };
        Ok(Self::Release { job, ranks })
    }
}

impl fmt::Display for Reply {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Released { ranks, held } => write!(f, "released {ranks} held {held}"),
            Self::ReleasedMany { ranks, held } => write!(f, "released-many {ranks} held {held}"),
            Self::Held(jobs) => {
                f.write_str("held")?;
                jobs.iter().try_for_each(|job| write!(f, " {job}"))
            }
            Self::NothingHeld => f.write_str("nothing-held"),
            Self::NoSuchJob => f.write_str("no-such-job"),
            Self::Unreadable => f.write_str("unreadable"),
        }
    }
}

impl FromStr for Reply {
    type Err = Unknown;

    fn from_str(line: &str) -> Result<Self, Unknown> {
        let set = |text: &str| text.parse::<RankSet>().map_err(|_| Unknown);
        let words: Vec<&str> = line.split(' ').collect();
        match words.as_slice() {
            ["released", ranks, "held", held] => Ok(Self::Released {
                ranks: set(ranks)?,
                held: set(held)?,
            }),
            ["released-many", ranks, "held", held] => Ok(Self::ReleasedMany {
                ranks: ranks.parse().map_err(|_| Unknown)?,
                held: held.parse().map_err(|_| Unknown)?,
            }),
            ["held", jobs @ ..] => {
                let jobs = jobs.iter().map(|job| job.parse().map(JobId));
                let jobs: Result<_, _> = jobs.collect();
                Ok(Self::Held(jobs.map_err(|_| Unknown)?))
            }
            ["nothing-held"] => Ok(Self::NothingHeld),
            ["no-such-job"] => Ok(Self::NoSuchJob),
            ["unreadable"] => Ok(Self::Unreadable),
            _ => Err(Unknown),
        }
    }
}

#[cfg(test)]
mod tests {
    use base::Rank;
    use proptest::prelude::*;

    use super::*;

    fn set(ranks: &[u32]) -> RankSet {
        ranks.iter().copied().map(Rank).collect()
    }

    #[test]
    fn lines_are_read_as_they_are_written() {
        let requests = [
            Request::Held,
            Request::Release {
                job: JobId(1),
                ranks: None,
            },
            Request::Release {
                job: JobId(7),
                ranks: Some(set(&[0, 4, 5, 6])),
            },
        ];
        for request in requests {
            assert_eq!(request.to_string().parse(), Ok(request));
        }
        let replies = [
            Reply::Released {
                ranks: set(&[1]),
                held: RankSet::new(),
            },
            Reply::Released {
                ranks: set(&[1, 2]),
                held: set(&[0, 9]),
            },
            Reply::ReleasedMany {
                ranks: 70_000,
                held: 3,
            },
            Reply::Held(Vec::new()),
            Reply::Held(vec![JobId(1), JobId(12)]),
            Reply::NothingHeld,
            Reply::NoSuchJob,
            Reply::Unreadable,
        ];
        for reply in replies {
            assert_eq!(reply.to_string().parse(), Ok(reply));
        }
    }

    #[test]
    fn no_line_is_too_long() {
        let odd: RankSet = (0..40_000).map(|n| Rank(n * n % 1_000_003)).collect();
        let reply = Reply::Released {
            ranks: odd.clone(),
            held: RankSet::new(),
        };
        assert!(reply.to_string().len() > MAX_LINE);
        assert_eq!(
            reply.line(),
            format!("released-many {} held 0\n", odd.len())
        );
        assert_eq!(Reply::NoSuchJob.line(), "no-such-job\n");
    }

    proptest! {
        #[test]
        fn any_line_is_read_or_refused(line in ".{0,60}") {
            if let Ok(request) = line.parse::<Request>() {
                prop_assert_eq!(request.to_string().parse(), Ok(request));
            }
            if let Ok(reply) = line.parse::<Reply>() {
                prop_assert_eq!(reply.to_string().parse(), Ok(reply));
            }
        }
    }
}
