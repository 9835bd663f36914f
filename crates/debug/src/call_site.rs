//! The call of MPI that a rank without a recorder is in: the arguments that the code of its caller makes known.
//!
//! Before a call, a program puts the arguments into registers. The instructions that do so remain, and so do the registers that they
//! have read, if a function preserves them. So constants and many variables can be read afterwards ([`arguments`]). Nothing is guessed:
//! what is not certain is unknown. Of the variables in memory it is only known what they are now, which is said
//! ([`Origin::Memory`]). Nothing is proved from such a call: it has no counts, and its communicator has no identity.

use std::{cell::Cell, collections::BTreeMap, fmt::Write as _, ops::Range, sync::Arc};

use base::{Rank, RankSet};
use calls::{COUNT, Class, FUNCTIONS, Flavor, Function, Role};
use serde::{Deserialize, Serialize};

use crate::{
    arch::{Block, STEPS_MAX, Slice},
    image::Exceptions,
    memory::Memory,
    recorded::words::way,
};

pub use crate::arch::{Origin, Value};

/// Maximum length of file and line of a call, in bytes: names in frames are no longer.
pub const PLACE_MAX: usize = 64 << 10;

/// A call of MPI, as far as its caller tells.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CallSite {
    /// Number of its function.
    function: u32,
    /// The other rank, in the communicator of the call.
    pub peer: Option<Partner>,
    /// The tag.
    pub tag: Option<Tag>,
    /// The rank of which a call receives that also sends.
    pub source: Option<Partner>,
    /// The tag that it receives.
    pub source_tag: Option<Tag>,
    /// The root.
    pub root: Option<u32>,
    /// The number of requests for which it waits.
    pub count: Option<u32>,
    /// The communicator, if it is one that every process has.
    pub on: Option<Predefined>,
    /// File and line of the call, or the function with it.
    pub place: Option<Arc<str>>,
    /// Where the least certain of these arguments comes from.
    pub origin: Origin,
}

/// The other rank of a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Partner {
    /// A rank of the communicator of the call.
    Rank(u32),
    /// `MPI_ANY_SOURCE`.
    Any,
    /// `MPI_PROC_NULL`.
    Nobody,
}

/// The tag of a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Tag {
    /// A number.
    Number(u32),
    /// `MPI_ANY_TAG`.
    Any,
}

/// A communicator that every process has.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Predefined {
    /// `MPI_COMM_WORLD`.
    World,
    /// `MPI_COMM_SELF`.
    Own,
}

/// The handles of the communicators that every process has; `None` if they are not known.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Handles {
    pub(crate) world: Option<u64>,
    pub(crate) own: Option<u64>,
}

impl Handles {
    /// Returns the handles of a library of this flavor; `None` if they differ from process to process.
    pub(crate) const fn of(flavor: Flavor) -> Option<Self> {
        let (world, own) = match flavor {
            Flavor::Mpich => (0x4400_0000, 0x4400_0001),
            Flavor::Standard => (0x101, 0x102),
            Flavor::OpenMpi => return None,
        };
        Some(Self {
            world: Some(world),
            own: Some(own),
        })
    }
}

/// Returns the number of a function of MPI whose calls are shown. `name` is its name in C, also in the profiling interface.
pub(crate) fn shown(name: &str) -> Option<u32> {
    let name = name.strip_prefix('P').unwrap_or(name);
    let at = FUNCTIONS.binary_search_by(|function| function.name.cmp(name));
    let at = at.ok()?;
    let is_shown = !matches!(FUNCTIONS[at].class, Class::Local | Class::Label);
    u32::try_from(at).ok().filter(|_| is_shown)
}

impl CallSite {
    /// Returns what is known of a call of a function by its number; `None` if no argument is known that would be shown. `argument`
    /// returns an argument by its index, and its size in bytes.
    pub(crate) fn read(
        number: u32,
        flavor: Flavor,
        handles: Handles,
        argument: impl Fn(usize, u64) -> Option<Value>,
    ) -> Option<Self> {
        let function = FUNCTIONS.get(number as usize)?;
        let origin = Cell::new(Origin::Code);
        let used = |value: Value| {
            origin.set(origin.get().max(value.origin));
            value.word
        };
        let int = |role| {
            let value = argument(function.argument(role)?, 4)?;
            let word = u32::try_from(value.word).ok()?.cast_signed();
            Some((word, value))
        };
        let natural = |role| {
            let (word, value) = int(role)?;
            let natural = u32::try_from(word).ok()?;
            used(value);
            Some(natural)
        };
        let partner = |role| {
            let (word, value) = int(role)?;
            let partner = match u32::try_from(word) {
                Ok(rank) => Partner::Rank(rank),
                Err(_) if word == flavor.any_source() => Partner::Any,
                Err(_) if word == flavor.proc_null() => Partner::Nobody,
                Err(_) => return None,
            };
            used(value);
            Some(partner)
        };
        let tag = |role| {
            let (word, value) = int(role)?;
            let tag = match u32::try_from(word) {
                Ok(tag) => Tag::Number(tag),
                Err(_) if word == flavor.any_tag() => Tag::Any,
                Err(_) => return None,
            };
            used(value);
            Some(tag)
        };
        let on = || {
            let at = function.argument(Role::Communicator)?;
            let value = argument(at, flavor.handle_size() as u64)?;
            let on = match Some(flavor.handle(value.word)) {
                handle if handle == handles.world => Predefined::World,
                handle if handle == handles.own => Predefined::Own,
                _ => return None,
            };
            used(value);
            Some(on)
        };
        let site = Self {
            function: number,
            peer: partner(Role::Peer),
            tag: tag(Role::Tag),
            source: partner(Role::Source),
            source_tag: tag(Role::SourceTag),
            root: natural(Role::Root),
            count: (function.class == Class::Wait)
                .then(|| natural(Role::Count))
                .flatten(),
            on: on(),
            place: None,
            origin: origin.get(),
        };
        site.says_something().then_some(site)
    }

    fn says_something(&self) -> bool {
        self.peer.is_some()
            || self.tag.is_some()
            || self.source.is_some()
            || self.source_tag.is_some()
            || self.root.is_some()
            || self.count.is_some()
            || self.on.is_some()
    }

    /// Returns true if the function exists and no text is too long.
    pub(crate) fn is_bounded(&self) -> bool {
        let place = self.place.as_deref().unwrap_or_default();
        (self.function as usize) < COUNT && place.len() <= PLACE_MAX
    }

    /// Returns the function.
    #[must_use]
    pub fn function(&self) -> &'static Function {
        // The number was checked when it was decoded.
        FUNCTIONS
            .get(self.function as usize)
            .unwrap_or(&FUNCTIONS[0])
    }

    /// Describes the call: `MPI_Recv from rank 1, tag 7, WORLD (a.c:4), read from the code`.
    #[must_use]
    pub fn sentence(&self) -> String {
        let function = self.function();
        let mut parts: Vec<String> = Vec::new();
        let has = |role| function.argument(role).is_some();
        if matches!(function.class, Class::SendReceive | Class::StartSendReceive) {
            parts.push(format!("to {}", partner(self.peer)));
            parts.push(format!("tag {}", tag(self.tag)));
            parts.push(format!("from {}", partner(self.source)));
            parts.push(format!("tag {}", tag(self.source_tag)));
        } else if has(Role::Peer) {
            let way = way(function);
            parts.push(format!("{way} {}", partner(self.peer)));
            if has(Role::Tag) {
                parts.push(format!("tag {}", tag(self.tag)));
            }
        }
        if has(Role::Root) {
            let root = self.root.map_or_else(unknown, |root| root.to_string());
            parts.push(format!("root {root}"));
        }
        if let Some(count) = self.count {
            parts.push(format!("of {count} requests"));
        }
        let on = self.on.map(|on| match on {
            Predefined::World => "WORLD",
            Predefined::Own => "SELF",
        });
        if let Some(on) = on {
            let joined = if parts.is_empty() { "on " } else { "" };
            parts.push(format!("{joined}{on}"));
        }
        let mut said = format!("{} {}", function.name, parts.join(", "));
        if let Some(place) = &self.place {
            let _ = write!(said, " ({place})");
        }
        said.push_str(match self.origin {
            Origin::Code => ", read from the code",
            Origin::Memory => ", read from the code and from variables as they are now",
        });
        said
    }
}

fn unknown() -> String {
    "?".to_owned()
}

fn partner(partner: Option<Partner>) -> String {
    match partner {
        Some(Partner::Rank(rank)) => format!("rank {rank}"),
        Some(Partner::Any) => "any rank".to_owned(),
        Some(Partner::Nobody) => "nobody".to_owned(),
        None => "rank ?".to_owned(),
    }
}

fn tag(tag: Option<Tag>) -> String {
    match tag {
        Some(Tag::Number(number)) => number.to_string(),
        Some(Tag::Any) => "any".to_owned(),
        None => unknown(),
    }
}

/// Describes the calls of ranks: sentences with the ranks that they are about, the largest set first.
#[must_use]
pub fn sentences(sites: &BTreeMap<Rank, CallSite>) -> Vec<(RankSet, String)> {
    let mut said: BTreeMap<String, RankSet> = BTreeMap::new();
    for (rank, site) in sites {
        said.entry(site.sentence()).or_default().insert(*rank);
    }
    let said = said.into_iter();
    let mut said: Vec<(RankSet, String)> = said.map(|(text, ranks)| (ranks, text)).collect();
    said.sort_by_key(|(ranks, _)| (std::cmp::Reverse(ranks.len()), ranks.first()));
    said
}

/// A function whose caller is at a call, for [`arguments`].
#[derive(Clone, Debug)]
pub struct Caller<'a> {
    /// The machine code of the function with the call.
    pub code: &'a [u8],
    /// Its address, as in the file.
    pub start: u64,
    /// The address to which the call returns, as in the file.
    pub back: u64,
    /// The difference between mapped addresses and those in the file.
    pub bias: u64,
    /// The general registers directly before the call, by the number of the processor, of those that the callee preserves.
    pub registers: [Option<u64>; 16],
    /// The memory of the callee, which has changed since the call.
    pub changed: Range<u64>,
}

/// Returns the first eight integer arguments of a call on x86-64, with eight bytes of each.
pub fn arguments(
    caller: &Caller<'_>,
    memory: &dyn Memory,
    is_writable: &dyn Fn(u64) -> bool,
) -> [Option<Value>; 8] {
    let block = Block::before(caller.code, caller.start, caller.back, Exceptions::Leave);
    let Some(block) = block else {
        return [None; 8];
    };
    let slice = Slice {
        block: &block,
        bias: caller.bias,
        registers: caller.registers,
        changed: caller.changed.clone(),
        memory,
        is_writable,
        left: Cell::new(STEPS_MAX),
    };
    std::array::from_fn(|index| slice.argument(index, 8))
}

#[cfg(test)]
mod tests;
