//! Lines of the front about the starts and ends of jobs, for spawners that ask for them, and for the tool that controls the launcher
//! (LOG_JOB_EVENTS, LOG_COMPLETION).

use base::JobId;

use super::exit_code;
use crate::{
    controller::{Controller, Job, Origin, job::LoggedNews},
    proto::{Cause, FrontId, JobNews, Note, ToFront},
};

impl Controller {
    /// Lets the front print that a job has started, if its spawner or its tool wants that.
    pub(in crate::controller) fn log_start(&mut self, id: JobId) {
        let Some(job) = self.jobs.get(&id) else {
            return;
        };
        // Where a proc has not started, the job ends, and its end is logged.
        if logged(job) == LoggedNews::StartAndEnd && job.failures.is_empty() {
            let (front, news) = (job.front, JobNews::Started { ranks: job.size });
            self.log_news(front, id, news);
        }
    }

    /// Lets the front print that a job has ended, if its spawner or its tool wants that.
    pub(in crate::controller) fn log_end(&mut self, job: &Job, cause: &Cause) {
        if logged(job) != LoggedNews::Nothing {
            let news = JobNews::Ended {
                code: exit_code(cause),
                cause: Box::new(cause.clone()),
            };
            self.log_news(job.front, job.id, news);
        }
    }

    fn log_news(&mut self, front: FrontId, job: JobId, news: JobNews) {
        let at = self.clock.seconds();
        self.tell(front, ToFront::Note(Note::Logged { job, news, at }));
    }
}

const fn logged(job: &Job) -> LoggedNews {
    match &job.origin {
        Origin::Spawned { log, .. } | Origin::Controlled { log, .. } => *log,
        Origin::Front | Origin::Beside => LoggedNews::Nothing,
    }
}
