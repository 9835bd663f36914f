//! What is drawn for a run.

use std::{fmt, time::Duration};

use crate::stress::random::Random;

/// A process, a cable or a node that fails.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Fault {
    Front,
    Controller,
    Daemon(u32),
    /// The parent of a daemon.
    Guardian(u32),
    Rank(u32),
    /// The process of `dbgr` that examines a node.
    Agent(u32),
    /// The cable of a node is pulled, and plugged in again after a time; `None`: after the end of the job.
    Cut(u32, Option<Duration>),
    /// All processes of a node are stopped, and continued after a time; `None`: after the end of the job.
    Stop(u32, Option<Duration>),
}

/// When the fault happens.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Moment {
    /// This long after the start of the front. The job may not run yet.
    Starting(Duration),
    /// When all ranks have said something.
    Running,
}

/// What the job does without a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Policy {
    Abort,
    Continue,
}

/// One run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Plan {
    pub(super) fault: Fault,
    pub(super) moment: Moment,
    pub(super) policy: Policy,
    pub(super) radix: u32,
    /// For an agent: the time from its start to the fault.
    pub(super) delay: Duration,
}

/// Latest moment of a fault while a job starts.
const START_MAX: u32 = 1500;
/// Latest moment of a fault of an agent. The samples take longer.
const AGENT_MAX: u32 = 1000;
/// Longest short interruption. It exceeds the lease, the reconnect window, and their sum.
const SHORT_MAX: u32 = 3500;

const fn ms(number: u32) -> Duration {
    Duration::from_millis(number as u64)
}

impl Plan {
    /// Returns the plan of a run. Each number has its own random numbers, so that a run can be repeated alone.
    pub(super) fn draw(seed: u64, number: u32, nodes: u32) -> Self {
        let mut random = Random::new(seed.wrapping_mul(0x1_0000_0001) ^ (u64::from(number) << 20));
        let node = 1 + random.below(nodes);
        let short = (random.below(3) > 0).then(|| ms(random.below(SHORT_MAX)));
        let fault = match random.below(12) {
            0 => Fault::Front,
            1 => Fault::Controller,
            2 | 3 => Fault::Daemon(node),
            4 => Fault::Guardian(node),
            5 | 6 => Fault::Rank(node),
            7 => Fault::Agent(node),
            8 | 9 => Fault::Cut(node, short),
            _ => Fault::Stop(node, short),
        };
        let moment = match random.below(3) {
            0 if !matches!(fault, Fault::Agent(_)) => Moment::Starting(ms(random.below(START_MAX))),
            _ => Moment::Running,
        };
        Self {
            fault,
            moment,
            policy: [Policy::Abort, Policy::Continue][random.below(2) as usize],
            radix: [2, 32][random.below(2) as usize],
            delay: ms(random.below(AGENT_MAX)),
        }
    }
}

impl Fault {
    /// Returns the node that fails, unless it is the head.
    pub(super) const fn node(self) -> Option<u32> {
        match self {
            Self::Front | Self::Controller => None,
            Self::Daemon(node)
            | Self::Guardian(node)
            | Self::Rank(node)
            | Self::Agent(node)
            | Self::Cut(node, _)
            | Self::Stop(node, _) => Some(node),
        }
    }
}

impl fmt::Display for Plan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let time = |time: Option<Duration>| match time {
            Some(time) => format!("for {time:?}"),
            None => "for good".to_owned(),
        };
        match self.fault {
            Fault::Front => write!(f, "kill the front")?,
            Fault::Controller => write!(f, "kill the controller")?,
            Fault::Daemon(node) => write!(f, "kill the daemon of n{node}")?,
            Fault::Guardian(node) => write!(f, "kill the guardian of n{node}")?,
            Fault::Rank(node) => write!(f, "kill a rank of n{node}")?,
            Fault::Agent(node) => write!(f, "kill the agent of n{node} after {:?}", self.delay)?,
            Fault::Cut(node, long) => write!(f, "cut n{node} {}", time(long))?,
            Fault::Stop(node, long) => write!(f, "stop n{node} {}", time(long))?,
        }
        match self.moment {
            Moment::Starting(after) => write!(f, ", {after:?} after the start")?,
            Moment::Running => {}
        }
        let policy = match self.policy {
            Policy::Abort => "abort",
            Policy::Continue => "continue",
        };
        write!(f, ", {policy}, radix {}", self.radix)
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn a_seed_repeats_its_runs_and_all_kinds_occur() {
        let draw = |seed| (0..300).map(move |number| Plan::draw(seed, number, 8));
        assert!(draw(7).eq(draw(7)));
        assert!(!draw(7).eq(draw(8)));
        let word = |plan: Plan| {
            let text = plan.to_string();
            text.split([' ', ','])
                .filter(|word| !word.starts_with('n'))
                .take(3)
                .collect::<Vec<_>>()
                .join(" ")
        };
        let kinds: BTreeSet<String> = draw(7).map(word).collect();
        for kind in [
            "kill the front",
            "kill the controller",
            "kill the daemon",
            "kill the guardian",
            "kill a rank",
            "kill the agent",
        ] {
            assert!(kinds.contains(kind), "{kinds:?}");
        }
        let nodes: BTreeSet<u32> = draw(7).filter_map(|plan| plan.fault.node()).collect();
        assert_eq!(nodes, (1..=8).collect());
    }
}
