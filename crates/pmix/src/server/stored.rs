//! What processes put for others to get, by rank.

use std::collections::{BTreeMap, VecDeque};

use bytes::Bytes;

use crate::{
    Error,
    codec::{Format, Reader, Writer},
    keys,
    planted::{self, Bug},
    value::{Info, InfoFlags, Key, Kval, Packed, PmixRank, Proc, Scope, Value},
};

/// Bytes of data that one process may have committed, as they came.
pub const MAX_COMMITTED: usize = 64 << 20;
/// Bytes of what one process has handed in for groups and can be had; beyond that the oldest is forgotten. It may be
/// asked for after the group has ended, so that only its amount bounds it.
pub const MAX_HANDED_IN: usize = 1 << 20;

/// Which of a process's data somebody may see.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum View {
    /// From the same node.
    Local,
    /// From another node.
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
    local: Data,
    remote: Data,
    /// By size, the oldest first.
    handed_in: VecDeque<(Qualified, usize)>,
    handed_bytes: usize,
    /// Whether it has committed at all: it may also have handed something in for a group.
    has_committed: bool,
    /// Packed for those who ask, once for all who write alike.
    packed: BTreeMap<(Format, View), Bytes>,
}

/// Values by their keys.
#[derive(Debug, Default)]
struct Data {
    plain: BTreeMap<Key, Entry>,
    /// Values of which several have the same key: qualifiers tell them apart.
    qualified: Vec<(Qualified, usize)>,
    bytes: usize,
}

/// A value and how many bytes it came in.
#[derive(Debug)]
struct Entry {
    value: Value,
    size: usize,
}

/// A value with qualifiers, and the array of both as it travels.
#[derive(Debug)]
struct Qualified {
    key: Key,
    qualifiers: Vec<Info>,
    array: Value,
}

/// What a get asks for: one key, or all that there is; and of several values of a key those with these qualifiers.
#[derive(Clone, Copy, Debug)]
pub(super) struct Wanted<'a> {
    pub(super) key: Option<&'a Key>,
    pub(super) qualifiers: &'a [Info],
}

/// Why a commit was not taken.
#[derive(Debug)]
pub(super) enum Refused {
    Malformed,
    /// It would be more than [`MAX_COMMITTED`].
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

    /// The rank that has put a key, as far as those may know it who see so much of each.
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

    /// Replaces and adds what a rank has put, key by key. All of it or nothing.
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
        // What it replaces is counted twice: a bound that is reached early is one too.
        let more: usize = read.iter().map(|(_, _, size)| size).sum();
        if committed.local.bytes + committed.remote.bytes + more > 2 * MAX_COMMITTED {
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

    /// All that a rank of another node has committed for others, as its server tells it.
    pub(super) fn replace(
        &mut self,
        rank: PmixRank,
        format: Format,
        bytes: &[u8],
    ) -> Result<(), Error> {
        let mut remote = Data::default();
        let mut reader = Reader::new(format, bytes);
        while !reader.is_empty() {
            let before = reader.rest().len();
            let kval: Kval = reader.item()?;
            remote.put(kval, before - reader.rest().len());
        }
        let committed = self.ranks.entry(rank).or_default();
        committed.remote = remote;
        committed.has_committed = true;
        committed.packed.clear();
        Ok(())
    }

    /// What a process hands in for the members of a group: to be had by those who name the group's number.
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

    /// Everything that a rank has put, as a buffer that names the rank first.
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
    const fn view(&self, view: View) -> &Data {
        match view {
            View::Local => &self.local,
            View::Remote => &self.remote,
        }
    }

    pub(super) const fn has_committed(&self) -> bool {
        self.has_committed
    }

    /// Whether what is asked for is there.
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

    /// What was committed, as items.
    pub(super) fn write_put(&self, view: View, writer: &mut Writer) {
        let data = self.view(view);
        // By their parts: a Kval would be a copy of the value.
        for (key, entry) in &data.plain {
            writer.kval(key, &entry.value);
        }
        if let Ok(key) = Key::new(keys::QUALIFIED_VALUE) {
            for (qualified, _) in &data.qualified {
                writer.kval(&key, &qualified.array);
            }
        }
    }

    /// Everything, as items.
    pub(super) fn write(&self, view: View, writer: &mut Writer) {
        self.write_put(view, writer);
        if let Ok(key) = Key::new(keys::QUALIFIED_VALUE) {
            for (qualified, _) in &self.handed_in {
                writer.kval(&key, &qualified.array);
            }
        }
    }

    /// Everything, as facts.
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

impl Data {
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
    /// Takes an array apart: the value first, then its qualifiers.
    fn of(array: Value) -> Option<Self> {
        let infos = array.as_infos()?;
        let (first, qualifiers) = infos.split_first()?;
        Some(Self {
            key: first.key.clone(),
            qualifiers: qualifiers.iter().map(|info| (*info).clone()).collect(),
            array,
        })
    }

    /// A value that is qualified by the number of a group.
    fn by_context(info: &Info, context: u64) -> Option<Self> {
        let mut qualifier = super::info(keys::GROUP_CONTEXT_ID, Value::Size(context))?;
        qualifier.flags = InfoFlags::QUALIFIER;
        Self::of(Value::infos(vec![info.clone(), qualifier]))
    }

    /// Whether it has all of these qualifiers.
    fn matches(&self, wanted: &[Info]) -> bool {
        wanted.iter().all(|wanted| {
            let mut mine = self.qualifiers.iter();
            mine.any(|mine| mine.key == wanted.key && same(&mine.value, &wanted.value))
        })
    }

    /// Bytes of it, about.
    fn size(&self) -> usize {
        super::size(&self.key, &self.array)
    }
}

/// Whether two values say the same; a number may come in different widths.
fn same(one: &Value, other: &Value) -> bool {
    one == other
        || one
            .as_count()
            .is_some_and(|count| other.as_count() == Some(count))
}
