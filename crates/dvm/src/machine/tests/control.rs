//! Orders about running jobs, and what is known of them afterwards.

use std::time::Duration;

use base::{Signal, Usage};

use super::*;
use crate::spec::ResourceLimits;

impl World {
    fn signal(&mut self, id: JobId, tasks: Option<&str>, signal: Signal) -> Reply {
        let tasks = tasks.map(|tasks| tasks.parse().unwrap());
        self.ask(Ask::Signal(id, tasks, signal));
        self.reply()
    }

    fn signals(&mut self) -> Vec<String> {
        let (signals, rest) = std::mem::take(&mut self.outputs)
            .into_iter()
            .partition(|output| matches!(output, MachineOutput::Signal(..)));
        self.outputs = rest;
        let signals: VecDeque<MachineOutput> = signals;
        let shown = signals.into_iter().map(|output| match output {
            MachineOutput::Signal(run, signal) => format!("{signal} to {run}"),
            other => panic!("{other:?}"),
        });
        shown.collect()
    }
}

#[test]
fn signals_go_to_the_tasks_that_run() {
    let mut world = World::new(&[2]);
    let id = world.submitted(array(3));
    world.store();
    let runs: Vec<u32> = world.launches().iter().map(|(_, run)| run.0).collect();
    assert_eq!(runs, [1, 2]);
    assert_eq!(world.signal(id, None, Signal::USR1), Reply::Done);
    assert_eq!(world.signals(), ["SIGUSR1 to 1", "SIGUSR1 to 2"]);
    assert_eq!(world.signal(id, Some("2-3"), Signal::USR1), Reply::Done);
    assert_eq!(world.signals(), ["SIGUSR1 to 2"]);
    let refused = |why| Reply::Refused(why);
    let waits = refused(NotDone::NotRunning(id));
    assert_eq!(world.signal(id, Some("3"), Signal::USR1), waits);
    let unknown = JobId(9);
    assert_eq!(
        world.signal(unknown, None, Signal::USR1),
        refused(NotDone::NoSuchJob(unknown))
    );
    assert!(world.signals().is_empty());
}

#[test]
fn a_job_is_paused_if_all_that_runs_is() {
    let mut world = World::new(&[2]);
    let id = world.submitted(array(3));
    world.store();
    let runs = world.launches();
    world.signal(id, Some("1"), Signal::STOP);
    assert_eq!(world.record(id).state(), State::Running);
    world.signal(id, None, Signal::STOP);
    assert_eq!(world.record(id).state(), State::Paused);
    world.signal(id, Some("2"), Signal::CONT);
    assert_eq!(world.record(id).paused, "1".parse().unwrap());
    // It is over before it goes on. The next task is not paused.
    world.ends(runs[0].1, Cause::Success);
    world.store();
    assert_eq!(world.launches().len(), 1);
    assert_eq!(world.record(id).paused, RankSet::new());
    // Nor is one that is lost with the machine, and runs again.
    let mut submission = job(1);
    submission.wishes.on_node_loss = Requeue::OnNodeLoss;
    let mut world = World::new(&[1]);
    let id = world.submitted(submission);
    world.store();
    world.launches();
    world.signal(id, None, Signal::STOP);
    world.store();
    let mut world = world.restart();
    assert_eq!(world.record(id).paused, RankSet::new());
}

#[test]
fn what_runs_have_used_adds_up() {
    let mut world = World::new(&[2]);
    let id = world.submitted(array(2));
    world.store();
    for (_, run) in world.launches() {
        world.ends(run, Cause::Success);
    }
    world.store();
    let spent = world.past(id).unwrap().spent;
    assert_eq!((spent.user, spent.peak), (2 * SPENT.user, SPENT.peak));
}

/// What a run uses in these tests.
pub(super) const SPENT: Usage = Usage {
    user: Duration::from_secs(3),
    system: Duration::ZERO,
    peak: 1 << 20,
    read: 0,
    written: 0,
};

#[test]
fn what_runs_use_is_asked_of_the_controller() {
    let mut world = World::new(&[2]);
    let id = world.submitted(array(3));
    world.ask(Ask::Usage(id, None));
    assert_eq!(world.reply(), Reply::Refused(NotDone::NotRunning(id)));
    world.store();
    world.launches();
    world.ask(Ask::Usage(id, Some("2".parse().unwrap())));
    let asked = MachineOutput::Measure {
        front: FRONT,
        runs: vec![(2, JobId(2))],
    };
    assert!(world.outputs.contains(&asked));
}

/// Returns the values that `stored_values_have_a_format` had with an older [`books::FORMAT`].
fn stored(values: &str) -> BTreeMap<Key, Bytes> {
    let stored = values.lines().map(|line| {
        let (key, hex) = line.split_once(": ").unwrap();
        let key = match key {
            "Next" => Key::Next,
            "Job(JobId(1))" => Key::Job(JobId(1)),
            "Spec(JobId(1))" => Key::Spec(JobId(1)),
            other => panic!("{other}"),
        };
        let digits = hex.as_bytes().chunks(2);
        let bytes = digits.map(|two| u8::from_str_radix(str::from_utf8(two).unwrap(), 16).unwrap());
        (key, bytes.collect::<Bytes>())
    });
    stored.collect()
}

/// The fourth format lacks whether the calls of MPI of a job are recorded.
#[test]
fn the_fourth_format_is_read() {
    let stored = stored(include_str!("format-4.txt"));
    let spec = &stored[&Key::Spec(JobId(1))];
    assert_eq!(restore::spec(spec).unwrap().recorder, Recorder::Off);
    let world = World::with_store(&[2], stored);
    assert_eq!(world.machine.restored.damaged, []);
}

/// The third format lacks the process sets of a job.
#[test]
fn the_third_format_is_read() {
    let stored = stored(include_str!("format-3.txt"));
    let spec = &stored[&Key::Spec(JobId(1))];
    assert_eq!(restore::spec(spec).unwrap().sets, BTreeMap::new());
    let world = World::with_store(&[2], stored);
    assert_eq!(world.machine.restored.damaged, []);
}

/// The second format lacks the limits and the watch of a job, which are part of what it runs.
#[test]
fn the_second_format_is_read() {
    let stored = stored(include_str!("format-2.txt"));
    let spec = &stored[&Key::Spec(JobId(1))];
    let spec = restore::spec(spec).unwrap();
    assert_eq!((spec.limits, spec.watch), (ResourceLimits::default(), None));
    let mut world = World::with_store(&[2], stored);
    assert_eq!(world.machine.restored.damaged, []);
    let record = world.record(JobId(1));
    assert!(!record.spent.cpu().is_zero(), "{:?}", record.spent);
}

#[test]
fn the_first_format_is_read() {
    let stored = stored(include_str!("format-1.txt"));
    let mut world = World::with_store(&[2], stored);
    assert_eq!(world.machine.restored.damaged, []);
    let record = world.record(JobId(1));
    // Tasks 2 and 3 have run when it was written, and are lost.
    let (failed, waiting) = ("1-3".parse().unwrap(), RankSet::new());
    assert_eq!(
        (record.tasks.failed, record.tasks.waiting),
        (failed, waiting)
    );
    assert!(matches!(record.failure, Some((1, _))));
    assert_eq!(
        (record.spent, record.paused),
        (Usage::default(), RankSet::new())
    );
}

#[test]
fn limits_and_a_watch_outlive_the_machine() {
    let mut world = World::new(&[1]);
    let limits = ResourceLimits {
        memory: Some(2 << 30),
        milli_cpus: Some(500),
    };
    let watch = Some(Duration::from_secs(60));
    let mut limited = job(1);
    limited.spec.limits = limits;
    limited.spec.watch = watch;
    limited.wishes.hold = Hold::ByUser;
    let id = world.submitted(limited);
    world.store();
    let mut world = world.restart();
    world.ask(Ask::Release(id));
    world.store();
    let launched = world.outputs.iter().find_map(|output| match output {
        MachineOutput::Launch(run) => Some((run.spec.limits, run.spec.watch)),
        _ => None,
    });
    assert_eq!(launched, Some((limits, watch)));
}
