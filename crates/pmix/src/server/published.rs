//! What processes publish and look up, for everybody.

use std::collections::{BTreeMap, BTreeSet};

use base::Time;

use super::{find, size, timeout};
use crate::{
    keys,
    value::{Info, Key, Nspace, Pdata, Persistence, Proc, Range, Status, Value},
};

/// Published data entries of a controller.
pub const MAX_PUBLISHED: usize = 65_536;
/// Bytes of published data of a controller.
pub const MAX_PUBLISHED_BYTES: usize = 64 << 20;
/// Look-ups that wait at once.
pub const MAX_LOOKUPS: usize = 65_536;

/// What processes publish and look up: one beside the controller. `T` names who asks.
#[derive(Debug)]
pub struct PublishedData<T> {
    published: BTreeMap<Key, Vec<Entry>>,
    count: usize,
    bytes: usize,
    /// Look-ups that wait, by number.
    waiting: BTreeMap<u64, Waiting<T>>,
    /// Their numbers, by what they wait for.
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

/// What somebody looks up.
#[derive(Debug)]
struct Wish {
    from: Proc,
    range: Range,
    keys: Vec<Key>,
    /// So many of the keys are enough.
    enough: usize,
}

/// The result of a look-up, for the one that asked.
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
    /// Keeps data of a process; gives the result, and those who have waited for it. More than [`MAX_PUBLISHED`] entries or
    /// [`MAX_PUBLISHED_BYTES`] bytes are OUT_OF_RESOURCE.
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

    /// Looks data up: gives what there is, or keeps the token until there is enough, when the request says `pmix.wait`.
    /// When [`MAX_LOOKUPS`] wait already, it is OUT_OF_RESOURCE.
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
                // A number is how many; 0 and a flag are all.
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

    /// Removes data that a process has published: these keys, or all. To name keys of which it has published none is
    /// NOT_FOUND.
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

    /// A process has ended: what lives as long as it is gone.
    pub fn proc_ended(&mut self, proc: &Proc) {
        self.forget(|_, entry| entry.owner == *proc && entry.persistence == Persistence::PROC);
        self.forget_lookups(|wish| wish.from == *proc);
    }

    /// A job has ended: what lives as long as it is gone.
    pub fn job_ended(&mut self, nspace: &Nspace) {
        self.forget(|_, entry| {
            entry.owner.nspace == *nspace
                && matches!(entry.persistence, Persistence::PROC | Persistence::APP)
        });
        self.forget_lookups(|wish| wish.from.nspace == *nspace);
    }

    /// When [`Self::expire`] is due.
    #[must_use]
    pub fn deadline(&self) -> Option<Time> {
        self.due.first().map(|(at, _)| *at)
    }

    /// Those whose time is over.
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

    /// Those who have waited for some of these keys, and have enough now.
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

/// Whether published data may be seen by a process.
fn reaches(entry: &Entry, by: &Proc) -> bool {
    match entry.range {
        Range::NAMESPACE => entry.owner.nspace == by.nspace,
        Range::PROC_LOCAL => entry.owner == *by,
        Range::RM => false,
        _ => true,
    }
}

/// Whether a process that looks for data within a range means this.
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

/// Whether an info says how to publish rather than what.
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
