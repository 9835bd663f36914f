//! Running tasks that get more, or give some back. The head of the queue keeps its promise: the model checks that at rest.

use std::time::Duration;

use base::NodeId;
use dvm::queue::{More, NotExtended, Outcome, Sharing, TaskId, Units};

use super::{Event, World};

/// Seconds by which a time limit grows.
const TIME_MAX: u64 = 100;

impl World {
    /// Changes what one of the running tasks has.
    pub(super) fn change_task(&mut self) {
        let count = u64::try_from(self.starts.len()).unwrap_or(u64::MAX);
        if count == 0 {
            return;
        }
        let place = usize::try_from(self.rng.below(count)).unwrap_or(0);
        let Some(task) = self.starts.keys().nth(place).copied() else {
            return;
        };
        let units = self.queue.units(task).cloned().unwrap_or_default();
        if self.rng.chance(30) {
            self.give_back(task, &units);
        } else {
            self.extend(task, &units);
        }
    }

    fn give_back(&mut self, task: TaskId, units: &Units) {
        let mut less = Units::new();
        for (id, count) in units {
            let count = self.rng.number(0, *count);
            less.extend((count > 0).then_some((*id, count)));
        }
        let sum = |units: &Units| units.iter().map(|(_, count)| *count).sum::<u32>();
        let (all, given) = (sum(units), sum(&less));
        self.note(|| format!("{task} gives back {less:?} of {units:?}"));
        let did = self.queue.give_back(task, &less);
        let job = self.model.jobs.get(&task.job);
        let is_alone =
            job.is_some_and(|job| job.request.demand.sharing == Sharing::Exclusive || job.once > 0);
        let is_whole = |(id, count): &(NodeId, u32)| units.contains(&(*id, *count));
        let is_right = given < all && (!is_alone || less.iter().all(is_whole));
        self.fault((did != is_right).then(|| format!("{task}: the queue says {did}")));
        if did {
            self.changed(task, all - given);
        }
    }

    fn extend(&mut self, task: TaskId, units: &Units) {
        let time = self
            .rng
            .chance(50)
            .then(|| Duration::from_secs(self.rng.between(1, TIME_MAX)));
        let more = More {
            time,
            units: self.rng.number(0, 2),
            only: None,
        };
        let now = self.agenda.now;
        let result = self.queue.extend(now, task, &more);
        self.note(|| format!("{task} is extended by {more:?}: {result:?}"));
        let has_head = self.queue.head().is_some();
        let wrong = match result {
            Err(NotExtended::Delays(_)) => !has_head,
            Err(NotExtended::NoRoom) => more.units == 0,
            Ok(()) | Err(NotExtended::NotRunning | NotExtended::Limit) => false,
        };
        self.fault(wrong.then(|| format!("{task} is refused {more:?}")));
        if result.is_err() {
            return;
        }
        let before: u32 = units.iter().map(|(_, count)| *count).sum();
        self.changed(task, before + more.units);
        if let (Some(time), Some(end)) = (time, self.limits.get_mut(&task)) {
            *end = *end + time;
            let end = *end;
            self.runs_until(task, end);
        }
    }

    /// Lets the model check what a task has now.
    fn changed(&mut self, task: TaskId, count: u32) {
        let units = self.queue.units(task).cloned().unwrap_or_default();
        let wrong = self.model.on_changed(task, &units, count);
        self.fault(wrong);
    }

    /// Lets a task run until its time limit, whenever it was to end before.
    fn runs_until(&mut self, task: TaskId, end: base::Time) {
        self.last_start += 1;
        let start = self.last_start;
        self.starts.insert(task, start);
        let outcome = Outcome::Succeeded;
        let event = Event::End {
            task,
            start,
            outcome,
        };
        self.agenda.at(end, event);
    }
}
