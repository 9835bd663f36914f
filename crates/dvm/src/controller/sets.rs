//! Process sets that processes define while their job runs.

use std::collections::BTreeSet;

use base::{JobId, RankSet};
use pmix::{message::Answer, value::Status};

use super::{Controller, asks::Asker};
use crate::{proto::ToServer, spec::SetName};

/// Most sets that are defined of a job while it runs: every server keeps them until the end of the job.
const DEFINED_SETS_MAX: usize = 256;

/// Names of the sets of a job that were defined while it runs.
#[derive(Debug, Default)]
pub(super) struct DefinedSets(BTreeSet<String>);

impl Controller {
    /// Defines a set, tells all servers of it, and then answers the process.
    pub(super) fn define_set(&mut self, asker: Asker, id: JobId, name: &SetName, ranks: &RankSet) {
        let status = self.add_set(id, name);
        if status == Status::SUCCESS {
            for node in self.nodes.keys().copied().collect::<Vec<_>>() {
                let defined = ToServer::SetDefined {
                    job: id,
                    name: name.clone(),
                    ranks: ranks.clone(),
                };
                self.tell_server(node, defined);
            }
        }
        let infos = Vec::new();
        self.answer(asker, &Answer::Infos { status, infos });
    }

    fn add_set(&mut self, id: JobId, name: &SetName) -> Status {
        let Some(job) = self.jobs.get_mut(&id) else {
            return Status::NOT_FOUND;
        };
        let DefinedSets(defined) = &mut job.defined_sets;
        if job.spec.sets.values().any(|one| one == name) || defined.contains(name.as_str()) {
            return Status::EXISTS;
        }
        if defined.len() >= DEFINED_SETS_MAX {
            return Status::OUT_OF_RESOURCE;
        }
        defined.insert(name.as_str().to_owned());
        Status::SUCCESS
    }
}

#[cfg(test)]
mod tests {
    use base::{NodeId, Rank};
    use pmix::{
        codec::Format,
        message::{Command, GroupForm, Shape},
    };

    use super::*;
    use crate::{
        controller::{
            ControllerOutput,
            tests::{JOB, NODES, World},
        },
        proto::{AskId, ToController, ToDaemon},
    };

    /// Asks for a set, and returns the nodes that are told of it and the status, in this order.
    fn defines(world: &mut World, job: JobId, name: &str) -> (Vec<NodeId>, Status) {
        let (asked, ranks) = (AskId::Pmix(7), RankSet::single(Rank(1)));
        let name = SetName::try_from(name.to_owned()).unwrap();
        let outputs = world.says(
            1,
            ToController::DefineSet {
                ticket: asked,
                job,
                name: name.clone(),
                ranks: ranks.clone(),
            },
        );
        let mut told = Vec::new();
        for output in outputs {
            match output {
                ControllerOutput::Daemon(node, ToDaemon::Server(message)) => {
                    let (name, ranks) = (name.clone(), ranks.clone());
                    assert_eq!(*message, ToServer::SetDefined { job, name, ranks });
                    told.push(node);
                }
                ControllerOutput::Daemon(node, ToDaemon::Answer { ticket, answer }) => {
                    assert_eq!((node, ticket), (NodeId(1), asked));
                    let shape = Shape::of(Command::JobControl, GroupForm::Infos);
                    let answer = Answer::decode(Format::V4, shape, &answer).unwrap();
                    return (told, answer.status());
                }
                output => panic!("{output:?}"),
            }
        }
        panic!("no answer")
    }

    #[test]
    fn all_servers_are_told_of_a_set_before_its_definition_is_answered() {
        let mut world = World::new();
        let all: Vec<NodeId> = (0..NODES).map(NodeId).collect();
        let none = Vec::new;
        for (job, name, expected) in [
            (JOB, "ocean", (all.clone(), Status::SUCCESS)),
            (JOB, "ocean", (none(), Status::EXISTS)),
            (JobId(9), "air", (none(), Status::NOT_FOUND)),
            (JOB, "air", (all, Status::SUCCESS)),
        ] {
            assert_eq!(defines(&mut world, job, name), expected, "{name}");
        }
        for number in 2..DEFINED_SETS_MAX {
            let (_, status) = defines(&mut world, JOB, &number.to_string());
            assert_eq!(status, Status::SUCCESS);
        }
        let full = (none(), Status::OUT_OF_RESOURCE);
        assert_eq!(defines(&mut world, JOB, "one more"), full);
    }
}
