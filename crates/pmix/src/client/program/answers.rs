//! Conversion of a server's answers to the results of a program's requests.

use bytes::Bytes;

use super::{Event, Program, Purpose};
use crate::{
    Error,
    client::{JobFacts, Ticket, Viewpoint},
    message::{Answer, Facts, GroupAnswer},
    value::{Info, Key, Kval, Nspace, Pdata, Proc, Status, Text, Value},
};

/// Result of a successful request.
#[derive(Clone, Debug, PartialEq)]
pub enum Done {
    /// The request has no other result.
    Nothing,
    /// The value of a get.
    Value(Value),
    /// Published data. Some of the requested keys may be missing.
    Found(Vec<Pdata>),
    /// The name of the new job.
    Spawned(Nspace),
    /// Answer to a query, an allocation, a job control or the like. The status tells whether it is complete.
    Infos {
        status: Status,
        infos: Vec<Info>,
    },
    /// The number that the server assigned to a request for output.
    Number(u64),
    Group(GroupAnswer),
    Credential {
        credential: Bytes,
        infos: Vec<Info>,
    },
    Procs(Vec<Proc>),
    /// Names of nodes, separated by commas.
    Nodes(Text),
    /// The data of one process, from the server of its own job.
    Refreshed(Vec<Kval>),
    /// Encoded buffers, for a get that was made with [`Program::request`].
    Buffers(Vec<Bytes>),
}

impl Program {
    /// Processes the answer to a request of the program.
    pub(super) fn done(&mut self, ticket: Ticket, answer: Answer) {
        let purpose = self.purposes.remove(&ticket);
        if matches!(purpose, Some(Purpose::Nothing)) {
            return;
        }
        let result = self.result(&purpose, answer);
        if result.is_err() {
            match purpose {
                Some(Purpose::Register(handler)) => {
                    self.handlers.remove(handler);
                }
                Some(Purpose::Commit(puts)) => {
                    // The next commit sends these values again, unless they have been replaced.
                    let own = &self.own;
                    let last =
                        |number, key: &Key| own.get(key).is_some_and(|put| put.number == number);
                    let puts = puts.into_iter().filter(|(number, key)| last(*number, key));
                    self.uncommitted.extend(puts);
                }
                _ => {}
            }
        }
        self.event(Event::Done { ticket, result });
    }

    fn result(&mut self, purpose: &Option<Purpose>, answer: Answer) -> Result<Done, Status> {
        let status = answer.status();
        let partly = [Status::QUERY_PARTIAL_SUCCESS, Status::PARTIAL_SUCCESS];
        match answer {
            Answer::Infos { status, infos } if partly.contains(&status) => {
                return Ok(Done::Infos { status, infos });
            }
            Answer::Found { status, data } if partly.contains(&status) => {
                return Ok(Done::Found(data));
            }
            _ if ![Status::SUCCESS, Status::OPERATION_SUCCEEDED].contains(&status) => {
                return Err(status);
            }
            _ => {}
        }
        Ok(match answer {
            Answer::Status(_) => Done::Nothing,
            Answer::JobInfo { nspace, facts } => {
                self.store(nspace, facts);
                Done::Nothing
            }
            Answer::Buffers { buffers, .. } => match purpose {
                Some(Purpose::Connect) => {
                    self.connected(&buffers);
                    Done::Nothing
                }
                _ => Done::Buffers(buffers),
            },
            Answer::Found { data, .. } => Done::Found(data),
            Answer::Spawned { nspace, facts, .. } => {
                let name = nspace.ok_or(Status::ERROR)?;
                let nspace = Nspace::new(&name).map_err(|_| Status::ERROR)?;
                self.store(nspace.clone(), facts);
                Done::Spawned(nspace)
            }
            Answer::Infos { status, infos } => Done::Infos { status, infos },
            Answer::Credential { credential, infos } => Done::Credential { credential, infos },
            Answer::Number { number, .. } => Done::Number(number),
            Answer::Group(answer) => {
                self.connected(&answer.buffers);
                Done::Group(answer)
            }
            Answer::Refreshed { facts, .. } => Done::Refreshed(facts),
            Answer::Procs { procs, .. } => Done::Procs(procs),
            Answer::Nodes { nodes, .. } => Done::Nodes(nodes),
        })
    }

    /// Processes the answer to a get that was made with [`Program::get`].
    pub(super) fn got(&mut self, proc: &Proc, request: Ticket, answer: Answer) {
        let mut status = answer.status();
        if let Answer::Buffers {
            status: Status::SUCCESS,
            buffers,
        } = answer
        {
            for buffer in &buffers {
                if let Err(why) = self.store_get(buffer) {
                    self.event(Event::Ignored { why });
                    status = Status::UNPACK_FAILURE;
                }
            }
        }
        let jobs = &self.jobs;
        let find = |key: &Key| {
            let job = jobs.get(&proc.nspace)?;
            job.find(proc.rank, key.as_c_str()).cloned()
        };
        let outcome = self.gets.answered(request, status, find);
        self.proceed(proc, outcome);
    }

    fn store_get(&mut self, buffer: &[u8]) -> Result<(), Error> {
        let format = self.config().format();
        let Facts { owner, facts } = Facts::<Proc>::decode(format, buffer)?;
        self.job_mut(owner.nspace)
            .add_rank(format, owner.rank, facts)
    }

    /// Stores the job info of other jobs, from the answer to a connect or a group construct.
    fn connected(&mut self, buffers: &[Bytes]) {
        let format = self.config().format();
        for buffer in buffers {
            match Facts::decode(format, buffer) {
                Ok(Facts { owner, facts }) => self.store(owner, facts),
                Err(why) => self.event(Event::Ignored { why }),
            }
        }
    }

    /// Stores job info. A malformed part of it does not make the request fail.
    fn store(&mut self, nspace: Nspace, facts: Vec<Kval>) {
        let format = self.config().format();
        if let Err(why) = self.job_mut(nspace).add_job(format, facts) {
            self.event(Event::Ignored { why });
        }
    }

    fn job_mut(&mut self, nspace: Nspace) -> &mut JobFacts {
        let view = Viewpoint {
            rank: None,
            hostname: self.config().hostname.clone(),
        };
        let jobs = self.jobs.entry(nspace.clone());
        jobs.or_insert_with(|| JobFacts::new(nspace, view))
    }
}
