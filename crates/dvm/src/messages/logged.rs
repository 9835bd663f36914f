//! Messages about the start and the end of spawned jobs, each of which is one line.

use base::JobId;
use message::{Message, date};

use super::{count, kind as k, spawned_end};
use crate::proto::{Cause, JobNews};

pub(super) fn news(job: JobId, news: &JobNews, at: Option<u64>) -> Message {
    let time = match at {
        Some(seconds) => {
            let seconds = i64::try_from(seconds).unwrap_or(i64::MAX);
            format!(" at {}", date((seconds, 0)))
        }
        None => String::new(),
    };
    match news {
        JobNews::Started { ranks } => {
            let ranks = count(u64::from(*ranks), "rank", "ranks");
            let headline = format!("job {job} started{time} with {ranks}");
            Message::new(&k::SPAWNED_STARTED, headline)
        }
        JobNews::Ended { code, cause } => {
            let why = match **cause {
                Cause::Success => String::new(),
                _ => format!(": {}", spawned_end(cause)),
            };
            let headline = format!("job {job} ended{time} with exit code {code}{why}");
            Message::new(&k::SPAWNED_ENDED, headline)
        }
    }
}
