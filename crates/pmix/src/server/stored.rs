//! Data that processes have committed for other processes, by rank.

use std::{
    cell::OnceCell,
    collections::{BTreeMap, VecDeque},
};

use bytes::Bytes;

use crate::{
    Error,
    codec::{Format, Reader, Writer},
    keys,
    planted::{self, Bug},
    value::{Info, InfoFlags, Key, Kval, Packed, PmixRank, Proc, Scope, Value},
};

/// Bytes of data, as received, that one process may commit. A commit is accepted if its own size and the stored size of
/// both views are together at most twice this.
pub const MAX_COMMITTED: usize = 64 << 20;
/// Bytes of infos that one process has handed in for groups. Beyond it, the oldest is dropped. A get may ask for them
/// after the group has ended, so only their size bounds them.
pub const MAX_HANDED_IN: usize = 1 << 20;

/// The part of a process's data that a get may see.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum View {
    /// For processes on the same node.
    Local,
    /// For processes on other nodes.
    Remote,
}

/// Data of the ranks of one job.
#[derive(Debug, Default)]
pub(super) struct Stored {
    ranks: BTreeMap<PmixRank, Committed>,
}

/// Data of one rank.
#[derive(Debug, Default)]
pub(super) struct Committed {
    local: Data,
    remote: Data,
    /// All that a rank on another node has committed for other nodes. Its `local` and `remote` stay empty.
    received: Option<Received>,
    /// Infos handed in for groups, each with its size in bytes, the oldest first.
    handed_in: VecDeque<(Qualified, usize)>,
    handed_bytes: usize,
    /// True after the first commit. A rank without a commit may still have handed in infos for a group.
    has_committed: bool,
    /// Answers to gets, packed once per format and view.
    packed: BTreeMap<(Format, View), Bytes>,
}

/// Values by their keys.
#[derive(Debug, Default)]
struct Data {
    plain: BTreeMap<Key, Entry>,
    /// Values that share a key, distinguished by qualifiers. Each with its size in bytes.
    qualified: Vec<(Qualified, usize)>,
    bytes: usize,
}

/// Data as the server of another node has sent it. It is read when somebody asks for it: of the data that a fence brings,
/// most is never asked for on most nodes.
#[derive(Debug)]
pub(super) struct Received {
    format: Format,
    /// The KVALs, packed one after the other.
    bytes: Bytes,
    read: OnceCell<Data>,
}

/// A value and its size in bytes as received.
#[derive(Debug)]
struct Entry {
    value: Value,
    size: usize,
}

/// A value with qualifiers, and the array of both in which it is sent.
#[derive(Debug)]
struct Qualified {
    key: Key,
    qualifiers: Vec<Info>,
    array: Value,
}

/// What a get asks for: the value of one key with these qualifiers, or everything if `key` is `None`.
#[derive(Clone, Copy, Debug)]
pub(super) struct Wanted<'a> {
    pub(super) key: Option<&'a Key>,
    pub(super) qualifiers: &'a [Info],
}

/// The reason why a commit was rejected.
#[derive(Debug)]
pub(super) enum Refused {
    Malformed,
    /// The data would exceed [`MAX_COMMITTED`].
    TooMuch,
}

impl From<Error> for Refused {
    fn from(_: Error) -> Self {
        Self::Malformed
    }
}

impl Stored {
    pub(super) fn of(&self, rank: PmixRank) -> Option<&Committed> {
        self.ranks.get(&rank)
    }

    /// Returns the lowest rank that has put a key. `view` says which part of a rank's data the caller may see.
    pub(super) fn who_has(
        &self,
        wanted: Wanted<'_>,
        view: impl Fn(PmixRank) -> View,
    ) -> Option<PmixRank> {
        self.ranks
            .iter()
            .find(|(rank, data)| data.has(wanted, view(**rank)))
            .map(|(rank, _)| *rank)
    }

    /// Adds or replaces data of a rank, key by key. On an error, nothing is changed.
    pub(super) fn commit(
        &mut self,
        rank: PmixRank,
        format: Format,
        buckets: &[(Scope, Packed)],
    ) -> Result<(), Refused> {
        let mut read = Vec::new();
        for (scope, bucket) in buckets {
            if bucket.kind != format.buffer_number() {
                return Err(Refused::Malformed);
            }
            let mut reader = Reader::new(format, &bucket.bytes);
            while !reader.is_empty() {
                let before = reader.rest().len();
                let kval: Kval = reader.item()?;
                read.push((*scope, kval, before - reader.rest().len()));
            }
        }
        let committed = self.ranks.entry(rank).or_default();
        // Replaced values are counted with the new ones, so the bound may be reached early.
        let more = |not: Scope| {
            let stored = read.iter().filter(|(scope, ..)| *scope != not);
            stored.map(|(_, _, size)| size).sum::<usize>()
        };
        let local = committed.local.bytes + more(Scope::REMOTE);
        let remote = committed.remote.bytes + more(Scope::LOCAL);
        if local.max(remote) > MAX_COMMITTED {
            return Err(Refused::TooMuch);
        }
        committed.has_committed = true;
        committed.packed.clear();
        for (scope, kval, size) in read {
            match scope {
                Scope::LOCAL => committed.local.put(kval, size),
                Scope::REMOTE => committed.remote.put(kval, size),
                _ => {
                    committed.local.put(kval.clone(), size);
                    committed.remote.put(kval, size);
                }
            }
        }
        Ok(())
    }

    /// Replaces the data of a rank on another node by all that it has committed for other nodes.
    pub(super) fn replace(&mut self, rank: PmixRank, received: Received) {
        let committed = self.ranks.entry(rank).or_default();
        committed.received = Some(received);
        committed.has_committed = true;
        committed.packed.clear();
    }

    /// Stores infos that a process hands in for the members of a group. Gets find them by the group's context id.
    pub(super) fn hand_in(&mut self, rank: PmixRank, context: u64, infos: &[Info]) {
        let committed = self.ranks.entry(rank).or_default();
        committed.packed.clear();
        for info in infos {
            let Some(qualified) = Qualified::by_context(info, context) else {
                continue;
            };
            let size = qualified.size();
            committed.handed_bytes += size;
            committed.handed_in.push_back((qualified, size));
            while committed.handed_bytes > MAX_HANDED_IN {
                let Some((_, size)) = committed.handed_in.pop_front() else {
                    break;
                };
                committed.handed_bytes -= size;
            }
        }
    }

    /// Returns all data of a rank as a buffer that begins with its process; `None` if it has none.
    pub(super) fn packed(&mut self, proc: &Proc, format: Format, view: View) -> Option<Bytes> {
        let rank = match proc.rank {
            _ if planted::is(Bug::GetOfAnother) => PmixRank(0),
            rank => rank,
        };
        let committed = self.ranks.get_mut(&rank)?;
        let packed = committed.packed.get(&(format, view));
        if let Some(packed) = packed.filter(|_| rank == proc.rank) {
            return Some(packed.clone());
        }
        let mut writer = Writer::new(format);
        writer.item(proc);
        committed.write(view, &mut writer);
        let packed = Bytes::from(writer.into_bytes());
        committed.packed.insert((format, view), packed.clone());
        Some(packed)
    }
}

impl Committed {
    fn view(&self, view: View) -> &Data {
        match (view, &self.received) {
            (View::Local, _) => &self.local,
            (View::Remote, Some(received)) => received.data(),
            (View::Remote, None) => &self.remote,
        }
    }

    pub(super) const fn has_committed(&self) -> bool {
        self.has_committed
    }

    /// Returns true if the wanted data is present.
    pub(super) fn has(&self, wanted: Wanted<'_>, view: View) -> bool {
        let data = self.view(view);
        let Some(key) = wanted.key else {
            return self.has_committed;
        };
        if wanted.qualifiers.is_empty() {
            return data.plain.contains_key(key);
        }
        let qualified = data.qualified.iter().chain(&self.handed_in);
        qualified
            .map(|(qualified, _)| qualified)
            .any(|qualified| qualified.key == *key && qualified.matches(wanted.qualifiers))
    }

    /// Writes the committed data as items.
    pub(super) fn write_put(&self, view: View, writer: &mut Writer) {
        let data = self.view(view);
        // Written in parts, because a Kval would be a copy of the value.
        for (key, entry) in &data.plain {
            writer.kval(key, &entry.value);
        }
        if let Ok(key) = Key::new(keys::QUALIFIED_VALUE) {
            for (qualified, _) in &data.qualified {
                writer.kval(&key, &qualified.array);
            }
        }
    }

    /// Writes all data as items.
    pub(super) fn write(&self, view: View, writer: &mut Writer) {
        self.write_put(view, writer);
        if let Ok(key) = Key::new(keys::QUALIFIED_VALUE) {
            for (qualified, _) in &self.handed_in {
                writer.kval(&key, &qualified.array);
            }
        }
    }

    /// Returns all data as facts.
    pub(super) fn facts(&self, view: View) -> Vec<Kval> {
        let data = self.view(view);
        let plain = data.plain.iter().map(|(key, entry)| Kval {
            key: key.clone(),
            value: entry.value.clone(),
        });
        let qualified = data.qualified.iter().chain(&self.handed_in);
        let qualified = qualified.filter_map(|(qualified, _)| {
            Some(Kval {
                key: Key::new(keys::QUALIFIED_VALUE).ok()?,
                value: qualified.array.clone(),
            })
        });
        plain.chain(qualified).collect()
    }
}

impl Received {
    /// Keeps the data until somebody asks for it. If it turns out to be malformed then, the process has committed nothing.
    pub(super) const fn unread(format: Format, bytes: Bytes) -> Self {
        let read = OnceCell::new();
        Self {
            format,
            bytes,
            read,
        }
    }

    /// Reads the data immediately.
    pub(super) fn read(format: Format, bytes: Bytes) -> Result<Self, Error> {
        let read = OnceCell::from(Data::read(format, &bytes)?);
        Ok(Self {
            format,
            bytes,
            read,
        })
    }

    fn data(&self) -> &Data {
        let read = || Data::read(self.format, &self.bytes).unwrap_or_default();
        self.read.get_or_init(read)
    }
}

impl Data {
    /// Reads KVALs, packed one after the other.
    fn read(format: Format, bytes: &[u8]) -> Result<Self, Error> {
        let mut data = Self::default();
        let mut reader = Reader::new(format, bytes);
        while !reader.is_empty() {
            let before = reader.rest().len();
            let kval: Kval = reader.item()?;
            data.put(kval, before - reader.rest().len());
        }
        Ok(data)
    }

    fn put(&mut self, kval: Kval, size: usize) {
        self.bytes += size;
        if kval.key == *keys::QUALIFIED_VALUE {
            let Some(qualified) = Qualified::of(kval.value) else {
                self.bytes -= size;
                return;
            };
            let same = self.qualified.iter_mut().find(|(other, _)| {
                other.key == qualified.key
                    && other.qualifiers.len() == qualified.qualifiers.len()
                    && other.matches(&qualified.qualifiers)
            });
            match same {
                Some(same) => {
                    self.bytes -= same.1;
                    *same = (qualified, size);
                }
                None => self.qualified.push((qualified, size)),
            }
            return;
        }
        let Kval { key, value } = kval;
        if let Some(old) = self.plain.insert(key, Entry { value, size }) {
            self.bytes -= old.size;
        }
    }
}

impl Qualified {
    /// Splits an array into the value, which comes first, and its qualifiers. Returns `None` if the array is empty or
    /// malformed.
    fn of(array: Value) -> Option<Self> {
        let infos = array.as_infos()?;
        let (first, qualifiers) = infos.split_first()?;
        Some(Self {
            key: first.key.clone(),
            qualifiers: qualifiers.iter().map(|info| (*info).clone()).collect(),
            array,
        })
    }

    /// Returns a value qualified by a group's context id.
    fn by_context(info: &Info, context: u64) -> Option<Self> {
        let mut qualifier = super::info(keys::GROUP_CONTEXT_ID, Value::Size(context))?;
        qualifier.flags = InfoFlags::QUALIFIER;
        Self::of(Value::infos(vec![info.clone(), qualifier]))
    }

    /// Returns true if the value has all of these qualifiers.
    fn matches(&self, wanted: &[Info]) -> bool {
        wanted.iter().all(|wanted| {
            let mut mine = self.qualifiers.iter();
            mine.any(|mine| mine.key == wanted.key && same(&mine.value, &wanted.value))
        })
    }

    /// Returns the approximate size in bytes.
    fn size(&self) -> usize {
        super::size(&self.key, &self.array)
    }
}

/// Returns true if two values are equal. Numbers may have different widths.
fn same(one: &Value, other: &Value) -> bool {
    one == other
        || one
            .as_count()
            .is_some_and(|count| other.as_count() == Some(count))
}
