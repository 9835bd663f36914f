//! Data of processes: what they put, by rank, and what they publish, for everybody.

use std::collections::BTreeMap;

use base::Time;
use bytes::Bytes;

use super::{find, is_set, timeout};
use crate::{
    Error,
    codec::{Format, Reader, Writer},
    keys,
    value::{
        Info, Key, Kval, Packed, Pdata, Persistence, PmixRank, Proc, Range, Scope, Status, Value,
    },
};

/// Which of a process's data somebody may see.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum View {
    /// From the same node.
    Local,
    /// From another node.
    #[expect(
        dead_code,
        reason = "the nodes of a machine exchange data from the next step on"
    )]
    Remote,
}

/// What the ranks of one job have committed.
#[derive(Debug, Default)]
pub(super) struct Stored {
    ranks: BTreeMap<PmixRank, Committed>,
}

/// What one rank has committed.
#[derive(Debug, Default)]
pub(super) struct Committed {
    local: BTreeMap<Key, Value>,
    remote: BTreeMap<Key, Value>,
    /// Packed for those who ask, once for all who write alike.
    packed: BTreeMap<(Format, View), Bytes>,
}

impl Stored {
    pub(super) fn of(&self, rank: PmixRank) -> Option<&Committed> {
        self.ranks.get(&rank)
    }

    /// The rank that has put a key.
    pub(super) fn who_has(&self, key: &Key, view: View) -> Option<PmixRank> {
        self.ranks
            .iter()
            .find(|(_, data)| data.view(view).contains_key(key))
            .map(|(rank, _)| *rank)
    }

    /// Replaces and adds what a rank has put, key by key.
    pub(super) fn commit(
        &mut self,
        rank: PmixRank,
        format: Format,
        buckets: Vec<(Scope, Packed)>,
    ) -> Result<(), Error> {
        let committed = self.ranks.entry(rank).or_default();
        committed.packed.clear();
        for (scope, bucket) in buckets {
            if bucket.kind != format.buffer_number() {
                return Err(Error::malformed(crate::Malformed::OtherBuffer(bucket.kind)));
            }
            let mut reader = Reader::new(format, &bucket.bytes);
            while !reader.is_empty() {
                let Kval { key, value } = reader.item()?;
                match scope {
                    Scope::LOCAL => {
                        committed.local.insert(key, value);
                    }
                    Scope::REMOTE => {
                        committed.remote.insert(key, value);
                    }
                    _ => {
                        committed.local.insert(key.clone(), value.clone());
                        committed.remote.insert(key, value);
                    }
                }
            }
        }
        Ok(())
    }

    /// Everything that a rank has put, as a buffer that names the rank first.
    pub(super) fn packed(&mut self, proc: &Proc, format: Format, view: View) -> Option<Bytes> {
        let committed = self.ranks.get_mut(&proc.rank)?;
        if let Some(packed) = committed.packed.get(&(format, view)) {
            return Some(packed.clone());
        }
        let mut writer = Writer::new(format);
        writer.item(proc);
        for (key, value) in committed.view(view) {
            // Written by its parts: a Kval would be a copy of the value.
            writer.kval(key, value);
        }
        let packed = Bytes::from(writer.into_bytes());
        committed.packed.insert((format, view), packed.clone());
        Some(packed)
    }
}

impl Committed {
    pub(super) const fn view(&self, view: View) -> &BTreeMap<Key, Value> {
        match view {
            View::Local => &self.local,
            View::Remote => &self.remote,
        }
    }
}

/// Published data entries of a machine.
pub const MAX_PUBLISHED: usize = 65_536;

/// What processes publish and look up: one for a machine, beside its controller. `T` names who asks.
#[derive(Debug)]
pub struct Exchange<T> {
    published: Vec<Published>,
    waiting: Vec<Waiting<T>>,
}

#[derive(Debug)]
struct Published {
    owner: Proc,
    key: Key,
    value: Value,
    range: Range,
    persistence: Persistence,
}

#[derive(Debug)]
struct Waiting<T> {
    token: T,
    from: Proc,
    range: Range,
    keys: Vec<Key>,
    /// So many of the keys are enough.
    enough: usize,
    deadline: Option<Time>,
}

/// The result of a look-up, for the one that asked.
#[derive(Debug, PartialEq)]
pub struct FoundFor<T> {
    pub token: T,
    pub status: Status,
    pub data: Vec<Pdata>,
}

impl<T> Default for Exchange<T> {
    fn default() -> Self {
        Self {
            published: Vec::new(),
            waiting: Vec::new(),
        }
    }
}

impl<T> Exchange<T> {
    /// Keeps data of a process; gives the result, and those who have waited for it.
    pub fn publish(&mut self, owner: &Proc, infos: Vec<Info>) -> (Status, Vec<FoundFor<T>>) {
        let range = range_of(&infos);
        let persistence = match find(&infos, keys::PERSISTENCE) {
            Some(Value::Persistence(persistence)) => *persistence,
            _ => Persistence::APP,
        };
        let data: Vec<Info> = infos
            .into_iter()
            .filter(|info| !is_directive(info))
            .collect();
        let taken = |info: &Info| {
            self.published.iter().any(|entry| {
                entry.key == info.key
                    && entry.range == range
                    && (range != Range::NAMESPACE || entry.owner.nspace == owner.nspace)
                    && (range != Range::PROC_LOCAL || entry.owner == *owner)
            })
        };
        if data.iter().any(taken) {
            return (Status::DUPLICATE_KEY, Vec::new());
        }
        if self.published.len() + data.len() > MAX_PUBLISHED {
            return (Status::OUT_OF_RESOURCE, Vec::new());
        }
        self.published
            .extend(data.into_iter().map(|info| Published {
                owner: owner.clone(),
                key: info.key,
                value: info.value,
                range,
                persistence,
            }));
        (Status::SUCCESS, self.serve())
    }

    /// Looks data up: gives what there is, or keeps the token until there is enough, when the request says `pmix.wait`.
    pub fn lookup(
        &mut self,
        now: Time,
        token: T,
        from: &Proc,
        keys: Vec<Key>,
        infos: &[Info],
    ) -> Option<FoundFor<T>> {
        let waiting = Waiting {
            token,
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
            deadline: timeout(now, infos),
        };
        if self.count(&waiting) >= waiting.enough {
            return Some(self.take(waiting));
        }
        self.waiting.push(waiting);
        None
    }

    /// Removes data that a process has published: these keys, or all.
    pub fn unpublish(&mut self, owner: &Proc, keys: &[Key], infos: &[Info]) -> Status {
        let range = find(infos, keys::RANGE).map(|_| range_of(infos));
        self.published.retain(|entry| {
            entry.owner != *owner
                || !(keys.is_empty() || keys.contains(&entry.key))
                || range.is_some_and(|range| range != entry.range)
        });
        Status::SUCCESS
    }

    /// A process has ended: what lives as long as it is gone.
    pub fn proc_ended(&mut self, proc: &Proc) {
        self.published
            .retain(|entry| entry.owner != *proc || entry.persistence != Persistence::PROC);
        self.waiting.retain(|waiting| waiting.from != *proc);
    }

    /// A job has ended: what lives as long as it is gone.
    pub fn job_ended(&mut self, nspace: &crate::value::Nspace) {
        self.published.retain(|entry| {
            entry.owner.nspace != *nspace
                || !matches!(entry.persistence, Persistence::PROC | Persistence::APP)
        });
    }

    /// When [`Self::expire`] is due.
    #[must_use]
    pub fn deadline(&self) -> Option<Time> {
        self.waiting
            .iter()
            .filter_map(|waiting| waiting.deadline)
            .min()
    }

    /// Those whose time is over.
    pub fn expire(&mut self, now: Time) -> Vec<FoundFor<T>> {
        self.waiting
            .extract_if(.., |waiting| waiting.deadline.is_some_and(|at| at <= now))
            .map(|waiting| FoundFor {
                token: waiting.token,
                status: Status::TIMEOUT,
                data: Vec::new(),
            })
            .collect()
    }

    fn count(&self, waiting: &Waiting<T>) -> usize {
        waiting
            .keys
            .iter()
            .filter(|key| self.position(waiting, key).is_some())
            .count()
    }

    fn position(&self, waiting: &Waiting<T>, key: &Key) -> Option<usize> {
        self.published.iter().position(|entry| {
            entry.key == *key && reaches(entry, &waiting.from) && within(waiting, entry)
        })
    }

    fn take(&mut self, waiting: Waiting<T>) -> FoundFor<T> {
        let mut data = Vec::new();
        for key in &waiting.keys {
            let Some(at) = self.position(&waiting, key) else {
                continue;
            };
            let entry = &self.published[at];
            data.push(Pdata {
                proc: entry.owner.clone(),
                key: entry.key.clone(),
                value: entry.value.clone(),
            });
            if entry.persistence == Persistence::FIRST_READ {
                self.published.remove(at);
            }
        }
        FoundFor {
            token: waiting.token,
            status: if data.is_empty() {
                Status::NOT_FOUND
            } else {
                Status::SUCCESS
            },
            data,
        }
    }

    fn serve(&mut self) -> Vec<FoundFor<T>> {
        let mut served = Vec::new();
        let mut at = 0;
        while at < self.waiting.len() {
            if self.count(&self.waiting[at]) >= self.waiting[at].enough {
                let waiting = self.waiting.remove(at);
                served.push(self.take(waiting));
            } else {
                at += 1;
            }
        }
        served
    }
}

/// Whether published data may be seen by a process.
fn reaches(entry: &Published, by: &Proc) -> bool {
    match entry.range {
        Range::NAMESPACE => entry.owner.nspace == by.nspace,
        Range::PROC_LOCAL => entry.owner == *by,
        Range::RM => false,
        _ => true,
    }
}

/// Whether a process that looks for data within a range means this.
fn within<T>(waiting: &Waiting<T>, entry: &Published) -> bool {
    match waiting.range {
        Range::NAMESPACE => entry.owner.nspace == waiting.from.nspace,
        Range::PROC_LOCAL => entry.owner == waiting.from,
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

/// Whether a get is content with what is there.
pub(super) fn is_immediate(infos: &[Info]) -> bool {
    is_set(infos, keys::IMMEDIATE)
}
