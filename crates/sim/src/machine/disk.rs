//! The store, which carries out its orders one after another. It may be slow, full, or unreadable.

use std::{collections::VecDeque, ops::Bound, time::Duration};

use base::{JobId, Time};
use bytes::Bytes;
use dvm::{
    machine::{Batch, HISTORY_MAX, Key, RETRY, STORE_MAX, Write},
    proto::FrontId,
};

use super::{Call, Event, World, check::Stored, model::Model, questions::Asked};
use crate::rng::Rng;

/// How late a batch may be tried again.
const SLACK: Duration = Duration::from_millis(1);

#[derive(Debug)]
enum Order {
    /// A batch, what the store contains with it, and the model at that time.
    Batch(Stored, Box<Model>),
    Fetch {
        front: FrontId,
        /// The call with the question.
        asked_at: u64,
        before: JobId,
        most: u32,
    },
}

#[derive(Debug)]
pub(super) struct Disk {
    pub(super) stored: Stored,
    /// The model when the last stored batch was made.
    pub(super) committed: Model,
    orders: VecDeque<Order>,
    pub(super) is_full: bool,
    /// The last batch was not stored.
    pub(super) has_failed: bool,
    /// When the batch that was not stored has to be tried again.
    again_at: Option<Time>,
    /// The call that has led to the last batch, and its time.
    last_batch: u64,
    last_batch_at: Time,
    /// The first number that was not given when the batch under way was made.
    pub(super) batch_next: u32,
    /// Reads out of a hundred that fail, and the longest time that an order takes.
    broken: u64,
    slowness: Duration,
}

impl Default for Disk {
    fn default() -> Self {
        Self {
            stored: Stored::new(),
            committed: Model::new(),
            orders: VecDeque::new(),
            is_full: false,
            has_failed: false,
            again_at: None,
            last_batch: 0,
            last_batch_at: Time::ZERO,
            batch_next: 0,
            broken: 0,
            slowness: Duration::ZERO,
        }
    }
}

impl Disk {
    pub(super) fn plan(&mut self, rng: &mut Rng) {
        self.broken = rng.pick([0, 0, 20]);
        self.slowness = Duration::from_millis(rng.pick([1, 20, 200, 3_000]));
    }

    pub(super) const fn calm(&mut self) {
        self.is_full = false;
        self.broken = 0;
    }

    /// Notes that a machine starts.
    pub(super) const fn start(&mut self) {
        self.has_failed = false;
        self.again_at = None;
        self.last_batch = self.committed.call;
    }

    pub(super) fn is_writing(&self) -> bool {
        let mut orders = self.orders.iter();
        orders.any(|order| matches!(order, Order::Batch(..)))
    }

    /// Returns true if a batch takes longer than a machine waits that ends.
    pub(super) fn hangs(&self, now: Time) -> bool {
        self.is_writing() && self.last_batch_at + STORE_MAX <= now
    }

    /// Stores the batch under way, if there is one.
    pub(super) fn commit(&mut self) {
        for order in std::mem::take(&mut self.orders) {
            if let Order::Batch(stored, model) = order {
                self.stored = stored;
                self.committed = *model;
            }
        }
    }

    pub(super) fn die(&mut self) {
        self.orders.clear();
    }

    /// Acts as if so many jobs had been over that the first ones are forgotten soon.
    pub(super) fn skip_numbers(&mut self, rng: &mut Rng) {
        let next = self.committed.next;
        if next > HISTORY_MAX {
            return;
        }
        let next = next.max(HISTORY_MAX + rng.number(0, next));
        self.committed.next = next;
        // The version of the format, and the number in groups of seven bits.
        let mut value = vec![1];
        let mut rest = next;
        while rest >= 0x80 {
            value.push(u8::try_from(rest & 0x7f).unwrap_or(0) | 0x80);
            rest >>= 7;
        }
        value.push(u8::try_from(rest).unwrap_or(0));
        self.stored.insert(Key::Next, Bytes::from(value));
    }
}

impl World {
    pub(super) fn on_store(&mut self, batch: Batch) {
        let now = self.agenda.now;
        if self.disk.is_writing() {
            return self.fault(Some("two batches are written at the same time".to_owned()));
        }
        if let Some(due) = self.disk.again_at.take() {
            let wrong = format!("a batch was to be tried again at {due}");
            self.fault((now < due || now > due + SLACK).then_some(wrong));
        }
        let mut stored = self.disk.stored.clone();
        for Write { key, value } in batch.0 {
            match value {
                Some(value) => drop(stored.insert(key, value)),
                None => drop(stored.remove(&key)),
            }
        }
        let wrong = self.model.check_batch(self.disk.last_batch, &stored);
        self.fault(wrong);
        self.disk.last_batch = self.model.call;
        self.disk.last_batch_at = now;
        self.disk.batch_next = self.model.next;
        let mut copy = Box::new(self.model.clone());
        copy.start_recorded();
        self.order(Order::Batch(stored, copy));
        // What happens while a batch is written is of most interest.
        let event = match self.rng.below(100) {
            _ if self.is_calm => return,
            0..3 if self.deaths < 3 => Event::Killed,
            3..5 => Event::EndAll,
            5..15 => Event::Act,
            _ => return,
        };
        let wait = self.rng.micros(0, 1_500);
        self.later(wait, event);
    }

    pub(super) fn on_fetch(&mut self, call: Call, before: JobId, most: u32) {
        let (Call::Asked(front) | Call::Read(front, _)) = call else {
            return self.fault(Some("the store is read, and nobody has asked".to_owned()));
        };
        let asked_at = self.fronts.get(&front).map_or(0, |front| front.asked_at);
        let order = Order::Fetch {
            front,
            asked_at,
            before,
            most,
        };
        self.order(order);
    }

    fn order(&mut self, order: Order) {
        self.disk.orders.push_back(order);
        if self.disk.orders.len() == 1 {
            self.start_order();
        }
    }

    fn start_order(&mut self) {
        let most = u64::try_from(self.disk.slowness.as_micros()).unwrap_or(0);
        let wait = match self.rng.below(4) {
            0 => self.rng.micros(0, most),
            _ => self.rng.micros(0, most / 20),
        };
        self.later(wait, Event::Answer);
    }

    /// Returns true if a question of this front waits for the store.
    pub(super) fn is_reading_for(&self, wanted: FrontId) -> bool {
        let mut orders = self.disk.orders.iter();
        orders.any(|order| matches!(order, Order::Fetch { front, .. } if *front == wanted))
    }

    pub(super) fn answer_order(&mut self) {
        let now = self.agenda.now;
        let Some(order) = self.disk.orders.pop_front() else {
            return;
        };
        if !self.disk.orders.is_empty() {
            self.start_order();
        }
        self.model.call += 1;
        match order {
            Order::Batch(..) if self.disk.is_full => {
                self.note(|| "the batch is not stored".to_owned());
                self.disk.has_failed = true;
                self.disk.again_at = Some(now + RETRY);
                self.refuse_batch();
                self.call(Call::Stored(false), |machine| {
                    machine.stored(now, Err("no space".to_owned()));
                });
            }
            Order::Batch(stored, model) => {
                self.note(|| "the batch is stored".to_owned());
                self.disk.has_failed = false;
                self.disk.stored = stored;
                self.disk.committed = *model;
                self.call(Call::Stored(true), |machine| machine.stored(now, Ok(())));
            }
            Order::Fetch {
                front,
                asked_at,
                before,
                most,
            } => {
                let is_broken = self.rng.chance(self.disk.broken);
                let range = (Bound::Unbounded, Bound::Excluded(Key::Past(before)));
                let past = self.disk.stored.range::<Key, _>(range).rev();
                let past = past.filter(|(key, _)| matches!(key, Key::Past(_)));
                let found: Vec<Bytes> = past
                    .take(most as usize)
                    .map(|(_, value)| value.clone())
                    .collect();
                self.note(|| {
                    let count = found.len();
                    format!("{count} records are read for {front:?}; it fails: {is_broken}")
                });
                let result = if is_broken {
                    Err("broken".to_owned())
                } else {
                    Ok(found)
                };
                let asked = self.fronts.get(&front);
                let is_current = asked.is_some_and(|front| front.asked_at == asked_at);
                let call = if is_current {
                    Call::Read(front, !is_broken)
                } else {
                    // The question was answered before, and the front has asked another one.
                    Call::Other
                };
                self.call(call, |machine| {
                    machine.fetched(now, result);
                });
            }
        }
    }

    /// Notes that the jobs that were to be stored with a batch are refused.
    fn refuse_batch(&mut self) {
        let submitted = self.fronts.values().filter_map(|front| match front.asked {
            Some(Asked::Submit(_, _, Some(id))) if id.0 < self.disk.batch_next => Some(id),
            _ => None,
        });
        let mut submitted: Vec<JobId> = submitted.collect();
        submitted.sort_unstable();
        for id in &submitted {
            self.model.cancel(*id);
        }
        for id in submitted {
            if let Some(job) = self.model.past.get_mut(&id)
                && !job.over.contains(&dvm::queue::Over::Canceled)
            {
                // It may have been canceled before the job on which it depends was over.
                job.over.push(dvm::queue::Over::Canceled);
            }
        }
    }
}
