//! What is to be written to the store, and what waits for it.

use std::{
    borrow::Cow,
    collections::{BTreeMap, BTreeSet, VecDeque},
    time::Duration,
};

use base::{JobId, Time};
use bytes::Bytes;
use serde::{Deserialize, Serialize};

use super::{
    HISTORY_MAX,
    planted::{self, Bug},
    record::Record,
};
use crate::spec::{Environment, JobSpec};

/// Time between a failed write and the next try.
pub const RETRY: Duration = Duration::from_secs(1);

/// Time after which a machine that ends no longer waits for a batch.
pub const STORE_MAX: Duration = Duration::from_secs(5);

/// Version of the stored values: their first byte.
pub(super) const FORMAT: u8 = 5;
/// The oldest version that is read.
pub(super) const FIRST: u8 = 1;

/// Key of a stored value.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub enum Key {
    /// The number of the next job.
    Next,
    /// Record of a job in the queue.
    Job(JobId),
    /// What a detached job in the queue runs.
    Spec(JobId),
    /// Record of a job that is over.
    Past(JobId),
}

/// Change of a stored value; `None` deletes it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Write {
    pub key: Key,
    pub value: Option<Bytes>,
}

/// Changes that are stored together, or not at all.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Batch(pub Vec<Write>);

#[derive(Debug)]
pub(super) struct Books<E> {
    /// Jobs whose record has changed.
    touched: BTreeSet<JobId>,
    /// Other changes, the last one of each key.
    writes: BTreeMap<Key, Option<Bytes>>,
    /// What happens when the changes are stored.
    effects: Vec<E>,
    state: State<E>,
    /// Why the last batch was not stored.
    trouble: Option<String>,
    next: u32,
    /// Jobs that were over when their numbers were too old for the history, and the number with which they are deleted.
    old: VecDeque<(u32, JobId)>,
}

#[derive(Debug)]
enum State<E> {
    Idle,
    Writing {
        since: Time,
        writes: BTreeMap<Key, Option<Bytes>>,
        effects: Vec<E>,
    },
    /// The store hangs, and the machine has ended. Nothing is written any more.
    GivenUp,
    Failing {
        retry_at: Time,
    },
}

impl<E> Default for Books<E> {
    fn default() -> Self {
        Self {
            touched: BTreeSet::new(),
            writes: BTreeMap::new(),
            effects: Vec::new(),
            state: State::Idle,
            trouble: None,
            next: 0,
            old: VecDeque::new(),
        }
    }
}

impl<E> Books<E> {
    /// Notes that the record of a job has changed.
    pub(super) fn touch(&mut self, id: JobId) {
        self.touched.insert(id);
    }

    pub(super) fn put_spec(&mut self, id: JobId, spec: &JobSpec) {
        self.writes.insert(Key::Spec(id), Some(encode(spec)));
    }

    /// Notes that something happens once all changes until now are stored.
    pub(super) fn after(&mut self, effect: E) {
        self.effects.push(effect);
    }

    /// Moves a job to the history.
    pub(super) fn over(&mut self, id: JobId, record: &Record, had_spec: bool) {
        self.touched.remove(&id);
        // It may be over before it is written for the first time.
        self.count(id);
        self.writes.insert(Key::Job(id), None);
        if had_spec {
            self.writes.insert(Key::Spec(id), None);
        }
        self.writes.insert(Key::Past(id), Some(encode(record)));
        if let Some(old) = id.0.checked_sub(HISTORY_MAX) {
            self.writes.insert(Key::Past(JobId(old)), None);
        }
        self.keep_if_old(id);
        while let Some((_, old)) = self.old.pop_front_if(|(at, _)| *at <= self.next) {
            self.writes.insert(Key::Past(old), None);
        }
    }

    /// Notes that the history has a job. If the job is so old that no later one deletes it, it goes after as many numbers as the
    /// history has.
    pub(super) fn keep_if_old(&mut self, id: JobId) {
        if id.0.saturating_add(HISTORY_MAX) < self.next {
            self.old
                .push_back((self.next.saturating_add(HISTORY_MAX), id));
        }
    }

    /// Notes that this number is used.
    fn count(&mut self, id: JobId) {
        if id.0 >= self.next {
            self.next = id.0.saturating_add(1);
            if planted::is(Bug::NextNotStored) {
                return;
            }
            self.writes.insert(Key::Next, Some(encode(&self.next)));
        }
    }

    /// Returns the changes to write now, if there are any and no others are being written.
    pub(super) fn write<'a>(
        &mut self,
        now: Time,
        record: impl Fn(JobId) -> Option<Cow<'a, Record>>,
    ) -> Option<Batch> {
        let is_free = match self.state {
            State::Idle => true,
            State::Writing { .. } => planted::is(Bug::TwoBatches),
            State::Failing { retry_at } => retry_at <= now,
            State::GivenUp => false,
        };
        if !is_free {
            return None;
        }
        for id in std::mem::take(&mut self.touched) {
            if let Some(record) = record(id) {
                let value = encode(&*record);
                self.count(id);
                self.writes.insert(Key::Job(id), Some(value));
            }
        }
        if self.writes.is_empty() && self.effects.is_empty() {
            self.state = State::Idle;
            return None;
        }
        let writes = std::mem::take(&mut self.writes);
        let batch = writes.iter().map(|(key, value)| Write {
            key: *key,
            value: value.clone(),
        });
        let batch = Batch(batch.collect());
        self.state = State::Writing {
            since: now,
            writes,
            effects: std::mem::take(&mut self.effects),
        };
        Some(batch)
    }

    /// Returns what happens now: the batch is stored.
    pub(super) fn stored(&mut self) -> Vec<E> {
        self.trouble = None;
        match std::mem::replace(&mut self.state, State::Idle) {
            State::Writing { effects, .. } => effects,
            State::Idle | State::Failing { .. } | State::GivenUp => Vec::new(),
        }
    }

    /// Keeps the changes of a batch that was not stored, and returns what was to happen.
    pub(super) fn failed(&mut self, now: Time, why: &str) -> Vec<E> {
        self.trouble = Some(why.to_owned());
        let failing = State::Failing {
            retry_at: now + RETRY,
        };
        match std::mem::replace(&mut self.state, failing) {
            State::Writing {
                mut writes,
                effects,
                ..
            } => {
                if planted::is(Bug::FailedBatchForgotten) {
                    writes.clear();
                }
                // Later changes of the same keys replace these.
                writes.append(&mut self.writes);
                self.writes = writes;
                effects
            }
            State::Idle | State::Failing { .. } | State::GivenUp => Vec::new(),
        }
    }

    /// Returns true if the end of a job is not stored yet.
    pub(super) fn is_unstored(&self, id: JobId) -> bool {
        let past = Key::Past(id);
        let is_written = match &self.state {
            State::Writing { writes, .. } => writes.contains_key(&past),
            State::Idle | State::Failing { .. } | State::GivenUp => false,
        };
        is_written || self.writes.contains_key(&past)
    }

    pub(super) fn retry_at(&self) -> Option<Time> {
        match self.state {
            State::Failing { .. } if planted::is(Bug::RetryForgotten) => None,
            State::Failing { retry_at } => Some(retry_at),
            State::Idle | State::Writing { .. } | State::GivenUp => None,
        }
    }

    pub(super) fn trouble(&self) -> Option<&str> {
        self.trouble.as_deref()
    }

    /// Returns true if nothing waits to be written, or cannot be.
    pub(super) fn is_settled(&self) -> bool {
        match self.state {
            State::Idle => self.touched.is_empty() && self.writes.is_empty(),
            State::Writing { .. } => false,
            State::Failing { .. } | State::GivenUp => true,
        }
    }

    /// Returns when a machine that has nothing else to wait for gives the batch up.
    pub(super) fn give_up_at(&self) -> Option<Time> {
        match self.state {
            State::Writing { since, .. } => Some(since + STORE_MAX),
            State::Idle | State::Failing { .. } | State::GivenUp => None,
        }
    }

    pub(super) fn give_up(&mut self) {
        let seconds = STORE_MAX.as_secs();
        self.trouble = Some(format!("it has not answered for {seconds} s"));
        self.state = State::GivenUp;
    }

    pub(super) const fn set_next(&mut self, next: u32) {
        self.next = next;
    }
}

/// What a job in the queue runs. A queue may be long, and a [`JobSpec`] is several times as large in memory as it is encoded. The
/// environments of its apps are most of it, and they are mostly those of the job before.
#[derive(Clone, Debug)]
pub(super) struct Packed {
    /// The job without them, encoded.
    rest: Bytes,
    environments: Box<[Environment]>,
}

impl Packed {
    /// Packs a job. `last` is the environment of the last app that was packed, and then of this job's last one.
    pub(super) fn of(mut spec: JobSpec, last: &mut Environment) -> Self {
        let apps = spec.apps.iter_mut();
        let environments = apps.map(|app| {
            let mut own = std::mem::take(&mut app.env);
            own.share(last);
            last.clone_from(&own);
            own
        });
        let environments = environments.collect();
        Self {
            rest: encode(&spec),
            environments,
        }
    }

    pub(super) fn open(&self) -> JobSpec {
        let (_, value) = self.rest.split_at(size_of_val(&FORMAT));
        let mut spec: JobSpec = match postcard::from_bytes(value) {
            Ok(spec) => spec,
            Err(error) => unreachable!("this process has encoded it: {error}"),
        };
        for (app, env) in spec.apps.iter_mut().zip(&self.environments) {
            app.env.clone_from(env);
        }
        spec
    }
}

/// Encodes a value, with its version.
fn encode<T: Serialize>(value: &T) -> Bytes {
    match postcard::to_extend(value, vec![FORMAT]) {
        // It may stay for days, and is half empty after it has grown.
        Ok(encoded) => Bytes::from(encoded.into_boxed_slice()),
        Err(error) => unreachable!("values of the store can be encoded: {error}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::machine::tests::spec;

    #[test]
    fn jobs_with_the_same_environment_share_it() {
        let mut last = Environment::default();
        let job = |value: &str| {
            let mut spec = *spec(2);
            spec.apps.push(spec.apps[0].clone());
            for app in &mut spec.apps {
                app.env = [("PATH", "/bin"), ("A", value)].into_iter().collect();
            }
            spec
        };
        let [first, second, third] = ["1", "1", "2"].map(|value| {
            let spec = job(value);
            let packed = Packed::of(spec.clone(), &mut last);
            assert_eq!(packed.open(), spec);
            packed
        });
        for packed in [&first, &second, &third] {
            let [one, other] = &*packed.environments else {
                panic!("{packed:?}")
            };
            assert!(one.is_shared_with(other));
        }
        assert!(first.environments[0].is_shared_with(&second.environments[0]));
        assert!(!first.environments[0].is_shared_with(&third.environments[0]));
        // What is changed of one is not changed of others.
        let mut open = first.open();
        open.apps[0].env.set("A", "3");
        assert_eq!(second.open(), job("1"));
    }
}
