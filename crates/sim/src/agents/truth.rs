//! The truth about the nodes: the life of each rank, and the answers of a node's kernel to the agent.

use std::{collections::BTreeMap, path::Path, time::Duration};

use base::{InKernel, NodeId, Rank, Time};
use bytes::Bytes;
use debug::{
    agent::kernel::{Answer, Group, Identity, Lent, NotStopped, Process, Question, ThreadFacts},
    image::Files,
    maps::Mapping,
    memory::{Memory, Unreadable},
    target::{FoundProc, OnNode},
};

use super::program;

/// Start time of the process of a rank, in ticks since boot.
pub(super) const STARTED: u64 = 7;
/// Start time of a process that reuses the pid of a rank.
const LATER: u64 = 8;
/// Pid of the agents.
pub(super) const OWN: i32 = 99;
/// Name of the job.
const JOB: &str = "job";
const NAME: &str = "a.out";

/// The life of a rank.
#[derive(Clone, Debug)]
pub(super) struct Life {
    pub(super) node: NodeId,
    pub(super) pid: i32,
    /// The phases by their begin. The first one begins at time zero.
    pub(super) phases: Vec<(Time, u32)>,
    pub(super) ends: Option<Time>,
    /// The fate of the pid when the rank has exited.
    pub(super) after: After,
}

/// The fate of the pid of a rank that has exited.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum After {
    Nothing,
    /// A process that is no rank reuses it.
    Reused,
}

impl Life {
    fn lives(&self, now: Time) -> bool {
        self.ends.is_none_or(|ends| now < ends)
    }

    /// Returns the phase of the process with the pid; `None` if there is no such process.
    fn phase(&self, now: Time) -> Option<u32> {
        if !self.lives(now) {
            return (self.after == After::Reused).then_some(program::STRANGE);
        }
        let begun = self.phases.iter().rev().find(|(at, _)| *at <= now);
        begun.map(|(_, phase)| *phase)
    }

    fn started(&self, now: Time) -> u64 {
        if self.lives(now) { STARTED } else { LATER }
    }

    /// Returns true if the rank was in a phase at some time of a period.
    fn was_in(&self, phase: u32, from: Time, to: Time) -> bool {
        let ends = self.phases.iter().skip(1).map(|(at, _)| Some(*at));
        let phases = self.phases.iter().zip(ends.chain([None]));
        phases.into_iter().any(|((begin, one), end)| {
            let is_over = [end, self.ends]
                .into_iter()
                .flatten()
                .any(|end| end <= from);
            *one == phase && *begin <= to && !is_over
        })
    }
}

/// All ranks.
#[derive(Debug)]
pub(super) struct Truth {
    pub(super) lives: BTreeMap<Rank, Life>,
    file: Bytes,
}

/// Memory that contains only zeros.
struct Zeros;

impl Memory for Zeros {
    fn read(&self, _: u64, buffer: &mut [u8]) -> Result<(), Unreadable> {
        buffer.fill(0);
        Ok(())
    }
}

struct OneFile(Bytes);

impl Files for OneFile {
    fn open(&self, _: &Path) -> Option<Bytes> {
        None
    }

    fn open_mapped(&self, _: &Mapping) -> Option<Bytes> {
        Some(self.0.clone())
    }
}

impl Truth {
    pub(super) fn new(lives: BTreeMap<Rank, Life>) -> Self {
        let file = program::file();
        Self { lives, file }
    }

    /// Lends the process that an answer is about.
    pub(super) fn lend<T>(&self, use_it: impl FnOnce(Lent<'_>) -> T) -> T {
        let (memory, files) = (Zeros, OneFile(self.file.clone()));
        use_it(Lent {
            memory: &memory,
            files: &files,
        })
    }

    /// Returns true if a rank had this stack at some time of a period.
    pub(super) fn had(&self, rank: Rank, stack: &[String], from: Time, to: Time) -> bool {
        let life = self.lives.get(&rank);
        let phase = program::phase(stack);
        life.zip(phase)
            .is_some_and(|(life, phase)| life.was_in(phase, from, to))
    }

    /// Returns true if a rank has exited by then.
    pub(super) fn has_ended(&self, rank: Rank, by: Time) -> bool {
        self.lives.get(&rank).is_none_or(|life| !life.lives(by))
    }

    /// Returns the ranks that a search finds on a node.
    pub(super) fn search(&self, node: NodeId, now: Time) -> OnNode {
        let here = self.lives.iter();
        let here = here.filter(|(_, life)| life.node == node && life.lives(now));
        let found = |life: &Life| FoundProc::There {
            pid: life.pid,
            started: STARTED,
            program: NAME.to_owned(),
        };
        OnNode {
            procs: here.map(|(rank, life)| (*rank, found(life))).collect(),
            variables: Some("PMIX_RANK".to_owned()),
            job: Some(JOB.to_owned()),
            size: Some(self.lives.len()),
        }
    }

    /// Answers a question of the agent of a node. A thread has the id of its process.
    pub(super) fn answer(&self, node: NodeId, now: Time, question: Question) -> Answer {
        let of = |pid: i32| {
            let mut lives = self.lives.values();
            let life = lives.find(|life| life.node == node && life.pid == pid)?;
            Some((life, life.phase(now)?))
        };
        match question {
            Question::Processes => {
                let here = self.lives.values().filter(|life| life.node == node);
                let here = here.filter(|life| life.phase(now).is_some());
                Answer::Processes(here.map(|life| process(life, now)).collect())
            }
            Question::Owners { pids } => Answer::Owners(vec![Some(1000); pids.len()]),
            Question::Identity { pid, .. } => Answer::Identity(of(pid).map(|(life, _)| {
                let (started, code) = (life.started(now), 1);
                let identity = Identity {
                    started,
                    code,
                    stack: started,
                };
                (pid, identity)
            })),
            Question::Mappings { through } => {
                Answer::Mappings(of(through).map(|_| program::mappings()), Some(through))
            }
            Question::Threads { pid, .. } => {
                Answer::Threads(of(pid).map(|_| pid).into_iter().collect(), Group::Runs)
            }
            Question::Thread { tid, .. } => {
                let facts = of(tid).map(|_| ThreadFacts {
                    state: 'R',
                    cpu: Duration::ZERO,
                    name: NAME.to_owned(),
                });
                let in_kernel = facts.as_ref().map(|_| InKernel::Running);
                Answer::Thread(facts, in_kernel)
            }
            Question::Stop { tid, .. } => match of(tid) {
                Some((_, phase)) => {
                    let (registers, stack) = program::stopped(phase);
                    Answer::Stopped(registers, stack)
                }
                None => Answer::NotStopped(NotStopped::Gone),
            },
            Question::Release { .. } => Answer::Released(Duration::from_micros(9)),
            Question::Copy { .. } => Answer::Copied(vec![0; 64]),
            Question::Tracer { .. } => Answer::Tracer(None),
            Question::Remains { pid } => Answer::Remains(of(pid).map(|_| ('R', 1))),
            Question::Left { .. } => Answer::Left(Vec::new()),
            Question::Arguments { pid } => {
                let life = of(pid).map(|(life, _)| life);
                let words = life.map(|_| format!("{NAME}\0-v\0").into_bytes());
                Answer::Arguments(words, life.map(|life| life.started(now)))
            }
            Question::Processor { tid } => {
                let processor = of(tid).and_then(|_| u32::try_from(tid).ok());
                Answer::Processor(processor)
            }
        }
    }
}

fn process(life: &Life, now: Time) -> Process {
    Process {
        pid: life.pid,
        parent: 1,
        name: NAME.to_owned(),
        state: 'R',
        started: life.started(now),
        cpu: Duration::ZERO,
    }
}
