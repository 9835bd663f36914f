//! Makes a description for the session: what the agent knows besides stacks, and the command lines of ranks.

use std::collections::{BTreeMap, VecDeque};

use base::{Rank, RankSet};

use super::{
    Agent, Order, State,
    kernel::{Answer, Question},
};
use crate::{
    proto::{FromAgent, Proc},
    reply::{Description, MAX_COMMAND, MAX_COMMANDS, ManyThreads, Partial},
    report::Command,
};

/// The current description.
#[derive(Debug)]
pub(super) struct Describing {
    /// The ranks whose command lines are still to be read; the first one is being read.
    commands: VecDeque<(Rank, Proc)>,
    /// The threads whose processors are still to be read; the first one is being read.
    processors: VecDeque<(Rank, i32)>,
    made: Description,
}

impl Agent {
    /// Begins a description with what the agent knows without a question.
    pub(super) fn description(&self, ranks: &RankSet) -> Describing {
        let procs = self.chosen(ranks);
        let node = self.node;
        let (many_threads, most) = (self.reader.many_threads.iter(), self.reader.max_threads);
        let left_out = (self.left_out > 0).then_some((node, self.left_out as u64));
        let first_threads = self.first_threads.iter();
        let first_threads = first_threads.filter(|(rank, _)| procs.contains_key(rank));
        Describing {
            processors: first_threads.map(|(&rank, &tid)| (rank, tid)).collect(),
            made: Description {
                ranks: procs.keys().copied().collect(),
                hosts: BTreeMap::new(),
                many_threads: many_threads
                    .map(|(&pid, &threads)| {
                        let (threads, sampled) = (threads as u64, most as u64);
                        ((node, pid), ManyThreads { threads, sampled })
                    })
                    .collect(),
                left_out: left_out.into_iter().collect(),
                builds: self.reader.builds(),
                commands: Vec::new(),
                processors: BTreeMap::new(),
            },
            commands: procs.into_iter().take(MAX_COMMANDS).collect(),
        }
    }

    pub(super) fn describe(&mut self, order: Order, describing: Describing) {
        let question = match (describing.commands.front(), describing.processors.front()) {
            (Some(&(_, Proc { pid, .. })), _) => Question::Arguments { pid },
            (None, Some(&(_, tid))) => Question::Processor { tid },
            (None, None) => {
                self.send(FromAgent::Done {
                    id: order.id,
                    part: Partial::Description(describing.made),
                });
                return;
            }
        };
        self.ask(question);
        self.state = State::Describing(order, describing);
    }

    /// Takes in the answer to the last question of a description.
    pub(super) fn described(&mut self, order: Order, mut describing: Describing, answer: Answer) {
        match answer {
            Answer::Arguments(arguments, started) => {
                if let Some((rank, proc)) = describing.commands.pop_front()
                    // A process that reuses the pid of a rank may have a password in its command line.
                    && started == Some(proc.started)
                    && let Some(line) = arguments.as_deref().and_then(command_line)
                {
                    describing.made.merge(Description {
                        commands: vec![Command {
                            ranks: RankSet::single(rank),
                            line,
                        }],
                        ..Description::default()
                    });
                }
            }
            Answer::Processor(processor) => {
                if let Some(((rank, _), processor)) =
                    describing.processors.pop_front().zip(processor)
                {
                    describing.made.processors.insert(rank, processor);
                }
            }
            // Asking again would repeat the same question forever.
            answer => panic!("{answer:?} is no answer to a description"),
        }
        self.describe(order, describing);
    }
}

/// Returns the words of a command line, joined by spaces and cut to [`MAX_COMMAND`] characters; `None` if there are no words.
fn command_line(arguments: &[u8]) -> Option<String> {
    let words = String::from_utf8_lossy(arguments);
    let words: Vec<&str> = words.trim_end_matches('\0').split('\0').collect();
    let line: String = words.join(" ").chars().take(MAX_COMMAND).collect();
    (!line.is_empty()).then_some(line)
}
