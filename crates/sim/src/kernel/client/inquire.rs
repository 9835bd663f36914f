//! Questions that a process asks as a tool does: about process tables and other facts of jobs.

use std::ffi::CStr;

use pmix::{
    client::Ticket,
    keys,
    tool::Extent,
    value::{Info, Key, Nspace, Proc, Query, Value},
};

use super::{Ask, Client};
use crate::{
    ledger::host,
    names::NAME,
    script::{About, OF_JOBS, Patience, Question, named},
};

/// A job that no run reaches.
const NO_JOB: &str = "4000000000";

impl Client {
    /// Sends questions. Those about a job whose name the process does not know are left out.
    pub(super) fn inquire(
        &mut self,
        questions: &[(About, Question)],
        patience: Patience,
    ) -> Vec<(Ticket, Ask)> {
        let mut asked = Vec::new();
        for (about, question) in questions {
            let Some(job) = self.job_of(*about) else {
                continue;
            };
            let ticket = match question {
                Question::Table => self.tool.proc_table(&job, Extent::Job),
                Question::OwnNode => self.tool.proc_table(&job, Extent::Node),
                Question::Node(node) => {
                    let qualifiers = [of_job(&job), (keys::HOSTNAME, Value::text(&host(*node)))];
                    self.query(&[keys::QUERY_LOCAL_PROC_TABLE], qualifiers)
                }
                Question::Pid(rank) => {
                    let proc: Proc = named(&job, *rank);
                    let qualifiers = [(keys::PROC_ID, Value::Proc(Box::new(proc)))];
                    self.query(&[keys::PROC_PID], qualifiers)
                }
                Question::Facts => self.query(&OF_JOBS, [of_job(&job)]),
                Question::Jobs => self.query(&[keys::QUERY_NAMESPACES], []),
            };
            self.questions.insert(ticket);
            asked.push((ticket, Ask::Question(question.clone(), job, patience)));
        }
        asked
    }

    fn job_of(&self, about: About) -> Option<Nspace> {
        match about {
            About::Own => Some(self.me()?.nspace.clone()),
            About::Child(child) => self.children.get(&child).cloned(),
            About::Parent => Some(self.tool.as_program().job()?.parent()?.nspace.clone()),
            About::Nobody => Nspace::from_text(&format!("{NAME}@{NO_JOB}")).ok(),
        }
    }

    fn query<const N: usize>(
        &mut self,
        wanted: &[&CStr],
        qualifiers: [(&CStr, Value); N],
    ) -> Ticket {
        let qualifiers = qualifiers.into_iter();
        let qualifiers = qualifiers
            .filter_map(|(key, value)| Some(Info::new(Key::new(key).ok()?, value)))
            .collect();
        let keys = wanted.iter().map(|key| Some((*key).to_owned())).collect();
        self.tool.query(vec![Query { keys, qualifiers }])
    }
}

fn of_job(job: &Nspace) -> (&'static CStr, Value) {
    (keys::NSPACE, Value::String(Some(job.as_c_str().to_owned())))
}
