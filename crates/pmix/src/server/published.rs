//! Publish and look-up of data, for all processes of a dvm.

use std::collections::{BTreeMap, BTreeSet};

use base::Time;

use super::{find, size, timeout};
use crate::{
    keys,
    value::{Info, Key, Nspace, Pdata, Persistence, Proc, Range, Status, Value},
};

/// Published entries that a controller keeps.
pub const MAX_PUBLISHED: usize = 65_536;
/// Bytes of published data that a controller keeps.
pub const MAX_PUBLISHED_BYTES: usize = 64 << 20;
/// Look-ups that may wait at the same time.
pub const MAX_LOOKUPS: usize = 65_536;

/// Published data and waiting look-ups of a dvm: one instance, in the controller. `T` identifies the sender of a
/// look-up.
#[derive(Debug)]
pub struct PublishedData<T> {
    published: BTreeMap<Key, Vec<Entry>>,
    count: usize,
    bytes: usize,
    /// Waiting look-ups by id.
    waiting: BTreeMap<u64, Waiting<T>>,
    /// Ids of waiting look-ups, by each key that they ask for.
    by_key: BTreeMap<Key, BTreeSet<u64>>,
    due: BTreeSet<(Time, u64)>,
    next: u64,
}

#[derive(Debug)]
struct Entry {
    owner: Proc,
    value: Value,
    size: usize,
    range: Range,
    persistence: Persistence,
}

#[derive(Debug)]
struct Waiting<T> {
    token: T,
    wish: Wish,
    deadline: Option<Time>,
}

/// The data that a look-up asks for.
#[derive(Debug)]
struct Wish {
    from: Proc,
    range: Range,
    keys: Vec<Key>,
    /// Number of keys that must be found before the look-up is answered; 0 to answer immediately.
    enough: usize,
}

/// The result of a look-up, with the token of its sender.
#[derive(Debug, PartialEq)]
pub struct FoundFor<T> {
    pub token: T,
    pub status: Status,
    pub data: Vec<Pdata>,
}

impl<T> Default for PublishedData<T> {
    fn default() -> Self {
        Self {
            published: BTreeMap::new(),
            count: 0,
            bytes: 0,
            waiting: BTreeMap::new(),
            by_key: BTreeMap::new(),
            due: BTreeSet::new(),
            next: 0,
        }
    }
}

impl<T> PublishedData<T> {
    /// Publishes data of a process. Returns the status, and results for the look-ups that waited for this data. Beyond
    /// [`MAX_PUBLISHED`] entries or [`MAX_PUBLISHED_BYTES`] bytes the status is OUT_OF_RESOURCE.
    pub fn publish(&mut self, owner: &Proc, infos: Vec<Info>) -> (Status, Vec<FoundFor<T>>) {
        let range = range_of(&infos);
        let persistence = match find(&infos, keys::PERSISTENCE) {
            Some(Value::Persistence(persistence)) => *persistence,
            _ => Persistence::APP,
        };
        let data: Vec<(Info, usize)> = infos
            .into_iter()
            .filter(|info| !is_directive(info))
            .map(|info| {
                let size = size(&info.key, &info.value);
                (info, size)
            })
            .collect();
        let taken = |(info, _): &(Info, usize)| {
            let mut same = self.published.get(&info.key).into_iter().flatten();
            same.any(|entry| {
                entry.range == range
                    && (range != Range::NAMESPACE || entry.owner.nspace == owner.nspace)
                    && (range != Range::PROC_LOCAL || entry.owner == *owner)
            })
        };
        if data.iter().any(taken) {
            return (Status::DUPLICATE_KEY, Vec::new());
        }
        let bytes: usize = data.iter().map(|(_, size)| size).sum();
        if self.count + data.len() > MAX_PUBLISHED || self.bytes + bytes > MAX_PUBLISHED_BYTES {
            return (Status::OUT_OF_RESOURCE, Vec::new());
        }
        let mut keys = Vec::with_capacity(data.len());
        for (info, size) in data {
            let Info { key, value, .. } = info;
            keys.push(key.clone());
            self.published.entry(key).or_default().push(Entry {
                owner: owner.clone(),
                value,
                size,
                range,
                persistence,
            });
            self.count += 1;
            self.bytes += size;
        }
        (Status::SUCCESS, self.serve(&keys))
    }

    /// Looks data up. Returns the result, or `None` if the request has `pmix.wait` and too few keys are published yet.
    /// In that case the token is kept until enough are. If [`MAX_LOOKUPS`] look-ups wait already, the result is
    /// OUT_OF_RESOURCE.
    pub fn lookup(
        &mut self,
        now: Time,
        token: T,
        from: &Proc,
        keys: Vec<Key>,
        infos: &[Info],
    ) -> Option<FoundFor<T>> {
        let wish = Wish {
            from: from.clone(),
            range: range_of(infos),
            enough: match find(infos, keys::WAIT) {
                None | Some(Value::Bool(false)) => 0,
                // A number says how many keys to wait for; 0 and a true flag mean all of them.
                Some(value) => match value.as_count() {
                    None | Some(0) => keys.len(),
                    Some(count) => usize::try_from(count).unwrap_or(usize::MAX).min(keys.len()),
                },
            },
            keys,
        };
        if self.has_enough(&wish) {
            return Some(self.take(token, &wish));
        }
        if self.waiting.len() >= MAX_LOOKUPS {
            return Some(FoundFor {
                token,
                status: Status::OUT_OF_RESOURCE,
                data: Vec::new(),
            });
        }
        let number = self.next;
        self.next += 1;
        for key in &wish.keys {
            self.by_key.entry(key.clone()).or_default().insert(number);
        }
        let deadline = timeout(now, infos);
        self.due.extend(deadline.map(|at| (at, number)));
        self.waiting.insert(
            number,
            Waiting {
                token,
                wish,
                deadline,
            },
        );
        None
    }

    /// Removes data that a process has published: under these keys, or all of it if `keys` is empty. Returns NOT_FOUND
    /// if keys are named and none of them was published by the process.
    pub fn unpublish(&mut self, owner: &Proc, keys: &[Key], infos: &[Info]) -> Status {
        let range = find(infos, keys::RANGE).map(|_| range_of(infos));
        let before = self.count;
        self.forget(|key, entry| {
            entry.owner == *owner
                && (keys.is_empty() || keys.contains(key))
                && range.is_none_or(|range| range == entry.range)
        });
        if self.count == before && !keys.is_empty() {
            return Status::NOT_FOUND;
        }
        Status::SUCCESS
    }

    /// Removes data whose persistence ends with the process, and the look-ups of the process.
    pub fn proc_ended(&mut self, proc: &Proc) {
        self.forget(|_, entry| entry.owner == *proc && entry.persistence == Persistence::PROC);
        self.forget_lookups(|wish| wish.from == *proc);
    }

    /// Removes data whose persistence ends with the job, and the look-ups of its processes.
    pub fn job_ended(&mut self, nspace: &Nspace) {
        self.forget(|_, entry| {
            entry.owner.nspace == *nspace
                && matches!(entry.persistence, Persistence::PROC | Persistence::APP)
        });
        self.forget_lookups(|wish| wish.from.nspace == *nspace);
    }

    /// Returns the time at which [`Self::expire`] is due; `None` if no waiting look-up has a time-out.
    #[must_use]
    pub fn deadline(&self) -> Option<Time> {
        self.due.first().map(|(at, _)| *at)
    }

    /// Removes the look-ups whose time-out has passed, and returns their results, with TIMEOUT.
    pub fn expire(&mut self, now: Time) -> Vec<FoundFor<T>> {
        let mut expired = Vec::new();
        while let Some((at, number)) = self.due.first().copied() {
            if at > now {
                break;
            }
            let Some(waiting) = self.stop_waiting(number) else {
                self.due.pop_first();
                continue;
            };
            expired.push(FoundFor {
                token: waiting.token,
                status: Status::TIMEOUT,
                data: Vec::new(),
            });
        }
        expired
    }

    fn forget(&mut self, test: impl Fn(&Key, &Entry) -> bool) {
        let (count, bytes) = (&mut self.count, &mut self.bytes);
        self.published.retain(|key, entries| {
            entries.retain(|entry| {
                let forgotten = test(key, entry);
                if forgotten {
                    *count -= 1;
                    *bytes -= entry.size;
                }
                !forgotten
            });
            !entries.is_empty()
        });
    }

    fn forget_lookups(&mut self, test: impl Fn(&Wish) -> bool) {
        let numbers: Vec<u64> = self
            .waiting
            .iter()
            .filter(|(_, waiting)| test(&waiting.wish))
            .map(|(number, _)| *number)
            .collect();
        for number in numbers {
            self.stop_waiting(number);
        }
    }

    fn stop_waiting(&mut self, number: u64) -> Option<Waiting<T>> {
        let waiting = self.waiting.remove(&number)?;
        for key in &waiting.wish.keys {
            if let Some(numbers) = self.by_key.get_mut(key) {
                numbers.remove(&number);
                if numbers.is_empty() {
                    self.by_key.remove(key);
                }
            }
        }
        if let Some(at) = waiting.deadline {
            self.due.remove(&(at, number));
        }
        Some(waiting)
    }

    fn has_enough(&self, wish: &Wish) -> bool {
        let there = wish
            .keys
            .iter()
            .filter(|key| self.position(wish, key).is_some());
        wish.enough == 0 || there.take(wish.enough).count() == wish.enough
    }

    fn position(&self, wish: &Wish, key: &Key) -> Option<usize> {
        self.published
            .get(key)?
            .iter()
            .position(|entry| reaches(entry, &wish.from) && within(wish, entry))
    }

    fn take(&mut self, token: T, wish: &Wish) -> FoundFor<T> {
        let mut data = Vec::new();
        for key in &wish.keys {
            let Some(at) = self.position(wish, key) else {
                continue;
            };
            let Some(entries) = self.published.get_mut(key) else {
                continue;
            };
            let entry = &entries[at];
            data.push(Pdata {
                proc: entry.owner.clone(),
                key: key.clone(),
                value: entry.value.clone(),
            });
            if entry.persistence == Persistence::FIRST_READ {
                let entry = entries.remove(at);
                self.count -= 1;
                self.bytes -= entry.size;
                if entries.is_empty() {
                    self.published.remove(key);
                }
            }
        }
        FoundFor {
            token,
            status: if data.is_empty() {
                Status::NOT_FOUND
            } else {
                Status::SUCCESS
            },
            data,
        }
    }

    /// Returns results for look-ups that waited for one of these keys and now have enough.
    fn serve(&mut self, keys: &[Key]) -> Vec<FoundFor<T>> {
        let numbers: BTreeSet<u64> = keys
            .iter()
            .filter_map(|key| self.by_key.get(key))
            .flatten()
            .copied()
            .collect();
        let mut served = Vec::new();
        for number in numbers {
            let enough = self
                .waiting
                .get(&number)
                .is_some_and(|waiting| self.has_enough(&waiting.wish));
            if enough && let Some(waiting) = self.stop_waiting(number) {
                served.push(self.take(waiting.token, &waiting.wish));
            }
        }
        served
    }
}

/// Returns true if the range of an entry lets a process see it.
fn reaches(entry: &Entry, by: &Proc) -> bool {
    match entry.range {
        Range::NAMESPACE => entry.owner.nspace == by.nspace,
        Range::PROC_LOCAL => entry.owner == *by,
        Range::RM => false,
        _ => true,
    }
}

/// Returns true if an entry is within the range that a look-up asks for.
fn within(wish: &Wish, entry: &Entry) -> bool {
    match wish.range {
        Range::NAMESPACE => entry.owner.nspace == wish.from.nspace,
        Range::PROC_LOCAL => entry.owner == wish.from,
        _ => true,
    }
}

fn range_of(infos: &[Info]) -> Range {
    match find(infos, keys::RANGE) {
        Some(Value::Range(range)) => *range,
        _ => Range::SESSION,
    }
}

/// Returns true if an info is a directive and not data to publish.
fn is_directive(info: &Info) -> bool {
    let directives = [
        keys::RANGE,
        keys::PERSISTENCE,
        keys::TIMEOUT,
        keys::WAIT,
        keys::USER_ID,
        keys::GROUP_USER_ID,
        keys::IMMEDIATE,
    ];
    directives.iter().any(|key| info.key == **key)
}
