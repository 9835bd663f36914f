//! Jobs that are over, in memory and in the store, and listings.

use super::*;

impl World {
    /// Runs a job until it has succeeded. The end is not stored.
    fn run(&mut self, submission: Submission) -> JobId {
        let id = self.submitted(submission);
        self.store();
        let run = self.launches()[0].1;
        self.ends(run, Cause::Success);
        id
    }

    /// Asks for jobs, and reads what the machine wants from the store.
    fn list(&mut self, over: u32, before: Option<JobId>) -> (Vec<Record>, Option<JobId>) {
        self.ask(Ask::Jobs { over, before });
        while let Some(MachineOutput::Fetch { before, most }) = self.outputs.front().cloned() {
            self.outputs.pop_front();
            let past = self.stored.iter().rev().filter_map(|(key, value)| {
                let Key::Past(id) = key else { return None };
                (*id < before).then(|| value.clone())
            });
            let found = past.take(most as usize).collect();
            self.machine.fetched(self.now, Ok(found));
            self.pump();
        }
        match self.reply() {
            Reply::Jobs { records, before } => (records, before),
            other => panic!("{other:?}"),
        }
    }
}

fn held(name: &str) -> Submission {
    Submission {
        name: name.to_owned(),
        wishes: Wishes {
            hold: Hold::ByUser,
            ..Wishes::default()
        },
        ..job(1)
    }
}

#[test]
fn jobs_that_are_over_are_known_until_they_are_stored() {
    let mut world = World::new(&[1]);
    let first = world.submitted(job(1));
    world.store();
    let run = world.launches()[0].1;
    // Their ends come into one batch, while another one is being written.
    world.submit(held("a"));
    world.ends(run, Cause::Success);
    let most = u32::try_from(RECENT_MAX).unwrap() + 10;
    for front in 0..most {
        let front = FrontId(100 + front);
        world.machine.attach(world.now, front, spec(1));
        world.pump();
        let run = world.launches()[0].1;
        world.ends(run, Cause::Success);
    }
    assert_eq!(world.record(first).state(), State::Succeeded);
    world.store();
    assert!(world.past(first).is_some());
    assert_eq!(world.machine.recent.len(), RECENT_MAX);
}

#[test]
fn old_jobs_do_not_stay_in_the_history_for_ever() {
    let mut world = World::new(&[1]);
    let first = world.submitted(held("first"));
    // Many jobs later, it ends.
    let skip = |world: &mut World, next: u32| {
        let mut value = vec![books::FORMAT];
        value.extend(postcard::to_allocvec(&next).unwrap());
        world.store();
        world.stored.insert(Key::Next, value.into());
    };
    skip(&mut world, HISTORY_MAX + 100);
    let mut world = world.restart();
    world.ask(Ask::Cancel(first, None));
    assert_eq!(world.reply(), Reply::Done);
    let last = world.run(job(1));
    world.store();
    assert_eq!(last, JobId(HISTORY_MAX + 100));
    assert!(world.past(first).is_some(), "its user may look for it");
    // It stays as long as the others that have ended at that time, also over a restart.
    skip(&mut world, 2 * HISTORY_MAX);
    let mut world = world.restart_with_old();
    world.run(job(1));
    world.store();
    assert!(world.past(first).is_some());
    skip(&mut world, 3 * HISTORY_MAX);
    world.machine.next = 3 * HISTORY_MAX;
    world.run(job(1));
    world.store();
    assert!(world.past(first).is_none());
}

#[test]
fn long_lists_come_in_pages() {
    let mut world = World::new(&[1]);
    // Each record is a third of a page, or more.
    let name = "x".repeat(PAGE_BYTES / 3);
    let mut expected = Vec::new();
    for _ in 0..4 {
        expected.push(world.run(Submission {
            name: name.clone(),
            ..job(1)
        }));
        expected.push(world.submitted(held(&name)));
    }
    world.store();
    expected.push(world.submitted(held(&"x".repeat(2 * PAGE_BYTES))));
    world.store();
    // The last jobs are in memory, or have to be read.
    for _ in 0..2 {
        for (over, skipped) in [(1000, 0), (4, 0), (3, 1)] {
            let (mut over, mut before) = (over, None);
            let mut pages = Vec::new();
            loop {
                let (records, rest) = world.list(over, before);
                let sizes = records.iter().map(|record| record.name.len());
                assert!(sizes.sum::<usize>() <= PAGE_BYTES || records.len() == 1);
                let told = records.iter().filter(|record| record.ended.is_some());
                over -= u32::try_from(told.count()).unwrap();
                let ids = records.iter().map(|record| record.id);
                pages.push(ids.collect::<Vec<_>>());
                before = rest;
                if rest.is_none() {
                    break;
                }
            }
            assert!(pages.len() > 3, "{pages:?}");
            let told: Vec<JobId> = pages.into_iter().rev().flatten().collect();
            assert_eq!(told, expected[skipped..]);
        }
        world.machine.recent.clear();
    }
}

#[test]
fn many_jobs_that_are_over_come_in_pages_too() {
    let mut world = World::new(&[1]);
    let waiting = world.submitted(held("a"));
    let id = world.run(job(1));
    world.store();
    let last = world.record(id);
    world.machine.recent.clear();
    let most = PAGE_RECORDS + 10;
    for number in 0..most {
        let id = JobId(10 + number);
        let record = Record { id, ..last.clone() };
        let mut value = vec![books::FORMAT];
        value.extend(postcard::to_allocvec(&record).unwrap());
        world.stored.insert(Key::Past(id), value.into());
    }
    world.machine.next = 10 + most;
    let (first, before) = world.list(u32::MAX, None);
    assert_eq!(first.len(), PAGE_RECORDS as usize);
    assert_eq!(before, Some(JobId(20)));
    let (second, before) = world.list(u32::MAX - PAGE_RECORDS, before);
    let ids: Vec<u32> = second.iter().map(|record| record.id.0).collect();
    assert_eq!(ids[..4], [waiting.0, id.0, 10, 11]);
    assert_eq!((ids.len(), before), (12, None));
}
