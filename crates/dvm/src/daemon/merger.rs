//! Merging of messages about procs that did the same.
//!
//! The daemon's host passes it all events of one iteration of the event loop, and takes the outputs afterwards. If 64
//! procs exit simultaneously, the output queue holds 64 ends. They are sent as one message, with one rank set per
//! distinct end. Procs that reach their holding point are merged in the same way.
//!
//! No message is delayed by a timer, and the order changes only where the receiver cannot notice. The merged message
//! goes before the next message that is neither output nor stdin credit, and at the latest when the queue is empty.

use std::collections::BTreeMap;

use base::{JobId, RankSet};

use super::Output;
use crate::{
    planted::{self, Bug},
    proto::{EndClass, PmiState, ToController},
};

/// The merged messages that are being collected.
#[derive(Debug, Default)]
pub(super) struct MessageMerger {
    pending: Option<Pending>,
    /// Ranks that have exited with code 0, see [`ToController::ExitedEarly`].
    exited_early: BTreeMap<(JobId, PmiState), RankSet>,
}

#[derive(Debug)]
enum Pending {
    Ended(JobId, Vec<EndClass>),
    Held(JobId, RankSet),
}

/// The decision about an output from the queue.
#[derive(Debug)]
pub(super) enum Passed {
    /// Send this output immediately.
    On(Output),
    /// The output was kept, to be merged with others.
    Kept,
    /// Send the first output, then pass the second one again.
    After(Output, Output),
}

impl MessageMerger {
    /// Classifies the next output of the queue.
    pub(super) fn pass(&mut self, output: Output) -> Passed {
        match output {
            Output::Send(ToController::Ended { job, classes }) => {
                if let Some(Pending::Ended(same, all)) = &mut self.pending
                    && *same == job
                {
                    classes.into_iter().for_each(|class| add(all, class));
                    return Passed::Kept;
                }
                self.begin(Pending::Ended(job, classes))
            }
            Output::Send(ToController::Held { job, ranks }) => {
                if let Some(Pending::Held(same, all)) = &mut self.pending
                    && *same == job
                {
                    all.append(&ranks);
                    return Passed::Kept;
                }
                self.begin(Pending::Held(job, ranks))
            }
            Output::Send(ToController::ExitedEarly { job, state, ranks }) => {
                let all = self.exited_early.entry((job, state)).or_default();
                all.append(&ranks);
                Passed::Kept
            }
            // These messages mean the same before and after an end or a hold.
            Output::Send(
                ToController::Output { .. }
                | ToController::StdinCredit { .. }
                | ToController::StdinClosed { .. },
            ) => Passed::On(output),
            Output::Send(_) => match self.take() {
                Some(first) => Passed::After(first, output),
                None => Passed::On(output),
            },
            other => Passed::On(other),
        }
    }

    /// Returns the collected message, if any, and clears it.
    pub(super) fn take(&mut self) -> Option<Output> {
        let pending = self.pending.take().map(Pending::output);
        pending.or_else(|| {
            let ((job, state), ranks) = self.exited_early.pop_first()?;
            Some(Output::Send(ToController::ExitedEarly {
                job,
                state,
                ranks,
            }))
        })
    }

    fn begin(&mut self, pending: Pending) -> Passed {
        let before = self.pending.replace(pending);
        before.map_or(Passed::Kept, |before| Passed::On(before.output()))
    }
}

impl Pending {
    fn output(self) -> Output {
        Output::Send(match self {
            Self::Ended(job, classes) => ToController::Ended { job, classes },
            Self::Held(job, ranks) => ToController::Held { job, ranks },
        })
    }
}

fn add(classes: &mut Vec<EndClass>, class: EndClass) {
    let alike =
        |other: &&mut EndClass| other.status == class.status && other.drained == class.drained;
    match classes.iter_mut().find(alike) {
        Some(_) if planted::is(Bug::ClassForgetsRanks) => {}
        // Merging into one set would hide that a rank ended twice.
        Some(_) if planted::is(Bug::EndedTwice) => classes.push(class),
        Some(same) => same.ranks.append(&class.ranks),
        None => classes.push(class),
    }
}

#[cfg(test)]
mod tests {
    use base::{ExitStatus, Rank};

    use super::*;
    use crate::proto::{Drained, Missing, Note};

    const JOB: JobId = JobId(1);

    fn ended(rank: u32, code: u8, drained: Drained) -> Output {
        let class = EndClass {
            status: ExitStatus::Exited(code),
            drained,
            ranks: RankSet::single(Rank(rank)),
        };
        Output::Send(ToController::Ended {
            job: JOB,
            classes: vec![class],
        })
    }

    fn held(rank: u32) -> Output {
        Output::Send(ToController::Held {
            job: JOB,
            ranks: RankSet::single(Rank(rank)),
        })
    }

    fn note() -> Output {
        let note = Note::Missing {
            node: Some(base::NodeId(0)),
            what: Missing::Room,
            why: String::new(),
        };
        Output::Send(ToController::Note { job: JOB, note })
    }

    fn credit() -> Output {
        Output::Send(ToController::StdinCredit { job: JOB, bytes: 1 })
    }

    /// Passes a queue of outputs through [`MessageMerger`], and formats what is sent.
    fn sent(queue: impl IntoIterator<Item = Output>) -> String {
        let mut merger = MessageMerger::default();
        let mut sent = Vec::new();
        for output in queue {
            let mut next = Some(output);
            while let Some(output) = next.take() {
                match merger.pass(output) {
                    Passed::On(output) => sent.push(output),
                    Passed::Kept => {}
                    Passed::After(first, output) => {
                        sent.push(first);
                        next = Some(output);
                    }
                }
            }
        }
        sent.extend(merger.take());
        let said = |output: &Output| match output {
            Output::Send(ToController::Ended { classes, .. }) => {
                let classes = classes
                    .iter()
                    .map(|class| format!("{} {:?} {}", class.ranks, class.drained, class.status));
                classes.collect::<Vec<_>>().join("; ")
            }
            Output::Send(ToController::Held { ranks, .. }) => format!("{ranks} held"),
            Output::Send(ToController::StdinCredit { .. }) => "credit".to_owned(),
            _ => "another".to_owned(),
        };
        sent.iter().map(said).collect::<Vec<_>>().join("\n")
    }

    #[test]
    fn what_ranks_did_alike_is_one_class() {
        let all = [
            ended(3, 0, Drained::Whole),
            credit(),
            ended(0, 0, Drained::Whole),
            ended(1, 0, Drained::Leaky),
            ended(2, 7, Drained::Whole),
            ended(4, 0, Drained::Whole),
        ];
        insta::assert_snapshot!(sent(all), @"
        credit
        0,3-4 Whole exited with code 0; 1 Leaky exited with code 0; 2 Whole exited with code 7
        ");
        insta::assert_snapshot!(sent([held(2), held(0), held(1)]), @"0-2 held");
    }

    #[test]
    fn nothing_overtakes_it() {
        let all = [
            ended(0, 0, Drained::Whole),
            note(),
            ended(1, 0, Drained::Whole),
            held(2),
            ended(3, 0, Drained::Whole),
        ];
        insta::assert_snapshot!(sent(all), @"
        0 Whole exited with code 0
        another
        1 Whole exited with code 0
        2 held
        3 Whole exited with code 0
        ");
    }
}
