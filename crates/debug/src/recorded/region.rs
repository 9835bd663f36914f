//! Reads the region of a rank, in the memory of its process or in the file that a dead one has left.

use std::{
    collections::BTreeSet,
    path::{Path, PathBuf},
    sync::Arc,
};

use calls::{
    COUNT, Class, FUNCTIONS, Flavor, Role,
    layout::{
        self, CALLS_MAX, COMMUNICATORS, COMMUNICATORS_MAX, COUNTERS, COUNTERS_MAX, CallView,
        CommunicatorView, CounterView, HeaderView, MAGIC, MEMBERS, MEMBERS_MAX, REQUESTS,
        REQUESTS_MAX, RING_SIZE, RequestView, THREAD_SIZE, THREADS, THREADS_MAX, ThreadView,
        VERSION, direction, flags, phase, state,
    },
};

use super::{
    Call, Communicator, Direction, Doubt, Members, Messages, Pending, RankCalls, ThreadCalls,
    Threading,
};
use crate::{
    maps::Mapping,
    memory::{Memory, Unreadable},
};

/// File name of the recorder's library, whose frames are not shown.
pub const LIBRARY: &str = "librally-calls.so";
/// Names of the recorder's functions through which calls go.
pub(crate) const WAYS: [&str; 4] = [
    "rally_mpi_call",
    "rally_mpi_send",
    "rally_mpi_receive",
    "rally_mpi_end",
];
/// Where they have the number of its stub: bytes below the stack of its caller.
pub(crate) const STUB_BELOW_CALLER: u64 = 72;
/// Bytes of a region.
pub const BYTES: u64 = layout::SIZE as u64;
/// Requests for which the calls of one rank wait and which are read.
pub const PENDING_MAX: usize = 4096;
/// Messages, by peer and tag, of one rank in an answer.
pub const MESSAGES_MAX: usize = 1024;
/// Members of communicators of one rank in an answer that are no arithmetic series.
pub const LISTED_MAX: usize = 4096;

/// Finds where a process has mapped its region. `pid` is that of the process as it sees it, if it is known.
#[must_use]
pub fn find(maps: &[Mapping], pid: Option<i32>) -> Found {
    let named = |start: &'static str| {
        move |mapping: &&Mapping| {
            let name = mapping.path.rsplit('/').next().unwrap_or_default();
            name.starts_with(start)
        }
    };
    let region = maps
        .iter()
        .filter(named(layout::FILE_PREFIX))
        .find(|mapping| {
            let size = mapping.range.end.saturating_sub(mapping.range.start);
            mapping.readable && mapping.offset == 0 && size >= layout::SIZE as u64
        });
    match region {
        Some(region) => Found::At(Region {
            address: region.range.start,
            pid,
        }),
        None if maps.iter().any(|mapping| named(LIBRARY)(&mapping)) => Found::Later,
        None => Found::Never,
    }
}

/// Returns the file of the region of a process in a directory.
#[must_use]
pub fn file_of(directory: &Path, pid: i32) -> PathBuf {
    directory.join(format!("{}{pid}", layout::FILE_PREFIX))
}

/// Where a region is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Found {
    /// There.
    At(Region),
    /// The process has not called MPI yet, or what it calls is not recorded.
    Later,
    /// The process has no recorder.
    Never,
}

/// A region in the memory of a process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Region {
    /// Its address.
    pub address: u64,
    /// The pid of the process, as the process sees it, if it is known. A region of another process is not read.
    pub pid: Option<i32>,
}

/// What a region has.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Content {
    /// These calls.
    Calls(Box<RankCalls>),
    /// The process has not called MPI yet.
    Nothing,
    /// It cannot be read, or it is that of another process, of another version, or no region: something has overwritten, cut or
    /// replaced it.
    Unreadable,
}

/// How many calls of each thread are read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Extent {
    /// The last one, and those that have not returned.
    Current,
    /// At most this many.
    Last(usize),
}

/// Reads a region. `place` names the file and line of an address of code.
pub fn read(
    memory: &dyn Memory,
    region: Region,
    extent: Extent,
    place: &mut dyn FnMut(u64) -> Option<Arc<str>>,
) -> Content {
    let Some(header) = array(memory, region.address, 0) else {
        return Content::Unreadable;
    };
    let header = HeaderView::decode(&header);
    // It is being made.
    if (header.magic, header.version, header.pid) == (0, 0, 0) {
        return Content::Nothing;
    }
    let is_own = |pid: i32| header.pid == pid.cast_unsigned();
    if header.magic != MAGIC
        || header.version != VERSION
        || header.functions as usize != COUNT
        || !region.pid.is_none_or(is_own)
    {
        return Content::Unreadable;
    }
    // The library is known with the first call.
    if header.flavor == 0 {
        return Content::Nothing;
    }
    calls(memory, region.address, header, extent, place)
        .map_or(Content::Unreadable, |calls| Content::Calls(Box::new(calls)))
}

/// Returns the calls of a region; `None` if a part of it cannot be read. What is missing must not seem not to have happened.
fn calls(
    memory: &dyn Memory,
    region: u64,
    header: HeaderView,
    extent: Extent,
    place: &mut dyn FnMut(u64) -> Option<Arc<str>>,
) -> Option<RankCalls> {
    let reader = Reader {
        memory,
        region,
        flavor: Flavor::from_number(header.flavor)?,
        header,
    };
    let mut doubts = reader.doubts();
    let threads = reader.threads(extent, place)?;
    let communicators = reader.communicators(&mut doubts)?;
    let messages = reader.messages(&mut doubts)?;
    let initialized = matches!(header.phase, phase::INITIALIZED | phase::FINALIZED);
    Some(RankCalls {
        flavor: reader.flavor,
        rank: initialized.then_some(header.rank),
        finalized: header.phase == phase::FINALIZED,
        ended: false,
        threading: match header.level {
            1 | 2 => Threading::Main,
            _ => Threading::Any,
        },
        doubts,
        progress: header.progress,
        threads,
        communicators,
        messages,
    })
}

/// Ticks in which the kernel tells when a process was started, in one second.
const TICKS: u64 = 100;

/// Reads the region that a process has left, as [`read`] does. `regions` are those of its pid, `started` is when it started, in ticks since
/// boot, if that is known. Lines of code are not known: the addresses were those of the process.
#[must_use]
pub fn read_left(regions: &[Vec<u8>], started: Option<u64>, extent: Extent) -> Content {
    let began = |region: &[u8]| Some(HeaderView::decode(region.first_chunk()?).began);
    // Both clocks have steps.
    let started = started.map(|ticks| {
        ticks
            .saturating_sub(2)
            .saturating_mul(1_000_000_000 / TICKS)
    });
    let candidates = regions
        .iter()
        .filter_map(|region| Some((began(region)?, region)));
    // An earlier process of this pid began before, and a later one after this one.
    let found = match started {
        Some(started) => candidates.filter(|(began, _)| *began >= started).min(),
        None if regions.len() == 1 => candidates.min(),
        None => None,
    };
    let Some((_, bytes)) = found else {
        return Content::Nothing;
    };
    let region = Region {
        address: LEFT,
        pid: None,
    };
    match read(&Left(bytes), region, extent, &mut |_| None) {
        Content::Calls(mut calls) => {
            calls.ended = true;
            Content::Calls(calls)
        }
        other => other,
    }
}

/// Where the bytes of a file are read: no process has memory there, so only a damaged region has an address of itself.
const LEFT: u64 = 1 << 63;

/// The memory of a process that is gone: its region.
struct Left<'a>(&'a [u8]);

impl Memory for Left<'_> {
    fn read(&self, address: u64, buffer: &mut [u8]) -> Result<(), Unreadable> {
        let found = address
            .checked_sub(LEFT)
            .and_then(|at| usize::try_from(at).ok())
            .and_then(|at| self.0.get(at..at.checked_add(buffer.len())?));
        buffer.copy_from_slice(found.ok_or(Unreadable { address })?);
        Ok(())
    }
}

/// The requests of a rank, and how many may still be read.
struct Requests {
    known: Option<Vec<RequestView>>,
    room: usize,
}

struct Reader<'a> {
    memory: &'a dyn Memory,
    region: u64,
    flavor: Flavor,
    header: HeaderView,
}

impl Reader<'_> {
    fn doubts(&self) -> BTreeSet<Doubt> {
        [
            (self.header.threads_lost, Doubt::Threads),
            (self.header.communicators_lost, Doubt::Communicators),
            (self.header.counters_lost, Doubt::Messages),
            (self.header.requests_lost, Doubt::Requests),
            (self.header.doubts, Doubt::Calls),
        ]
        .into_iter()
        .filter(|(count, _)| *count != 0)
        .map(|(_, doubt)| doubt)
        .collect()
    }

    /// Returns the entries of a table that are in use; `None` if they cannot be read.
    fn table<const N: usize>(&self, begin: usize, count: u32, most: usize) -> Option<Vec<[u8; N]>> {
        let count = (count as usize).min(most);
        let begin = self.region.wrapping_add(begin as u64);
        let bytes = self.memory.bytes(begin, count * N).ok()?;
        Some(bytes.as_chunks().0.to_vec())
    }

    fn threads(
        &self,
        extent: Extent,
        place: &mut dyn FnMut(u64) -> Option<Arc<str>>,
    ) -> Option<Vec<ThreadCalls>> {
        let mut requests = Requests {
            known: None,
            room: PENDING_MAX,
        };
        let entries = self.table::<THREAD_SIZE>(THREADS, self.header.threads, THREADS_MAX)?;
        let threads = entries
            .iter()
            .filter_map(|entry| {
                let (head, records) = entry.split_first_chunk::<{ ThreadView::SIZE }>()?;
                let thread = ThreadView::decode(head);
                let mut calls: Vec<CallView> = records
                    .as_chunks()
                    .0
                    .iter()
                    .take(CALLS_MAX)
                    .map(CallView::decode)
                    .filter(|call| {
                        call.seal != 0
                            && call.seal == call.sequence
                            && (call.function as usize) < COUNT
                    })
                    .collect();
                calls.sort_by_key(|call| call.sequence);
                // A call that is inside no other one shows that all earlier ones are over: an exception or `longjmp` has left them.
                let is_outer = |call: &CallView| call.state & state::NESTED == 0;
                if let Some(outer) = calls.iter().rposition(is_outer) {
                    for left in &mut calls[..outer] {
                        left.state &= !state::IN_PROGRESS;
                    }
                }
                let keep = match extent {
                    Extent::Current => 1,
                    Extent::Last(most) => most,
                };
                let first = calls.len().saturating_sub(keep);
                let mut index = 0;
                calls.retain(|call| {
                    index += 1;
                    index > first || call.state & state::IN_PROGRESS != 0
                });
                if thread.thread == 0 || calls.is_empty() {
                    return None;
                }
                Some(ThreadCalls {
                    is_first: thread.thread == self.header.pid,
                    tid: thread.thread,
                    calls: calls
                        .iter()
                        .map(|call| self.call(call, &mut requests, place))
                        .collect(),
                })
            })
            .collect();
        Some(threads)
    }

    fn call(
        &self,
        call: &CallView,
        requests: &mut Requests,
        place: &mut dyn FnMut(u64) -> Option<Arc<str>>,
    ) -> Call {
        let function = &FUNCTIONS[call.function as usize];
        let has = |role| function.argument(role).is_some();
        let number = |role: Role, value: i32| if has(role) { value } else { 0 };
        let in_progress = call.state & state::IN_PROGRESS != 0;
        let count = match (has(Role::Count), function.name.ends_with("_c")) {
            (false, _) => 0,
            (true, true) => call.count,
            #[expect(
                clippy::cast_possible_truncation,
                reason = "an int is the lower half of the word"
            )]
            (true, false) => i64::from(call.count as i32),
        };
        let (pending, unknown) = if in_progress && function.class == Class::Wait {
            let count = if has(Role::Requests) { count } else { 1 };
            self.pending(call.object, count, requests, place)
        } else {
            (Vec::new(), 0)
        };
        Call {
            number: call.sequence,
            function: call.function,
            in_progress,
            nested: call.state & state::NESTED != 0,
            communicator: call.communicator,
            peer: number(Role::Peer, call.peer),
            tag: number(Role::Tag, call.tag),
            source: number(Role::Source, call.source),
            source_tag: number(Role::SourceTag, call.source_tag),
            root: number(Role::Root, call.root),
            count,
            ordinal: call.ordinal,
            sent: if function.class == Class::SendReceive {
                call.object
            } else {
                0
            },
            repeated: call.repeated,
            result: call.result,
            place: place(call.site),
            pending,
            unknown,
        }
    }

    /// Returns the requests. One that cannot be read is one that is not known.
    fn requests(&self) -> Vec<RequestView> {
        let entries = self.table(REQUESTS, self.header.requests, REQUESTS_MAX);
        let entries = entries.unwrap_or_default();
        let mut requests: Vec<RequestView> = entries
            .iter()
            .map(RequestView::decode)
            .filter(|it| it.handle != 0 && it.seal == it.sequence && (it.function as usize) < COUNT)
            .collect();
        requests.sort_by_key(|it| it.handle);
        requests
    }

    /// Returns the requests for which a call waits, and the number of those that are not known.
    fn pending(
        &self,
        array: u64,
        count: i64,
        requests: &mut Requests,
        place: &mut dyn FnMut(u64) -> Option<Arc<str>>,
    ) -> (Vec<Pending>, u32) {
        let count = usize::try_from(count).unwrap_or(0);
        let known = requests.known.get_or_insert_with(|| self.requests());
        let read = count.min(requests.room);
        let size = self.flavor.handle_size();
        let Ok(bytes) = self.memory.bytes(array, read * size) else {
            return (Vec::new(), u32::try_from(count).unwrap_or(u32::MAX));
        };
        requests.room -= read;
        let mut pending = Vec::new();
        let mut unknown = count - read;
        for (index, handle) in (0_u32..).zip(bytes.chunks_exact(size)) {
            let mut word = [0; 8];
            word[..size].copy_from_slice(handle);
            let handle = u64::from_le_bytes(word);
            let Ok(at) = known.binary_search_by_key(&handle, |it| it.handle) else {
                unknown += usize::from(Some(handle) != self.flavor.request_null());
                continue;
            };
            let request = &known[at];
            let function = &FUNCTIONS[request.function as usize];
            let root = function.argument(Role::Root).map_or(0, |_| request.root);
            pending.push(Pending {
                index,
                function: request.function,
                communicator: request.communicator,
                peer: request.peer,
                tag: request.tag,
                root,
                ordinal: request.ordinal,
                place: place(request.site),
            });
        }
        (pending, u32::try_from(unknown).unwrap_or(u32::MAX))
    }

    fn communicators(&self, doubts: &mut BTreeSet<Doubt>) -> Option<Vec<Communicator>> {
        let entries = self.table(COMMUNICATORS, self.header.communicators, COMMUNICATORS_MAX)?;
        let mut room = LISTED_MAX;
        let communicators = entries
            .iter()
            .map(CommunicatorView::decode)
            .filter(|it| it.serial != 0 && it.handle != 0 && it.seal == it.sequence)
            .map(|it| {
                let members = self.members(&it, &mut room);
                if members.is_empty() && it.flags & flags::UNKNOWN == 0 {
                    doubts.insert(Doubt::Shortened);
                }
                Communicator {
                    serial: it.serial,
                    id: Some(it.id).filter(|id| *id != 0 && !members.is_empty()),
                    parent: Some(it.parent).filter(|id| *id != 0),
                    origin: it.number,
                    rank: it.rank,
                    members,
                    collectives: it.collectives,
                    last: last(&it),
                    flags: it.flags,
                    name: name(&it),
                }
            })
            .collect();
        Some(communicators)
    }

    fn members(&self, it: &CommunicatorView, room: &mut usize) -> Members {
        let size = it.size as usize;
        let is_known = it.flags & flags::UNKNOWN == 0 && (1..=MEMBERS_MAX).contains(&size);
        if !is_known || it.size > self.header.size {
            return Members::Unknown;
        }
        if it.flags & flags::LISTED == 0 {
            return series(it, self.header.size).unwrap_or(Members::Unknown);
        }
        let begin = it.first as usize;
        if size > *room || begin.saturating_add(size) > MEMBERS_MAX {
            return Members::Unknown;
        }
        *room -= size;
        let at = self.region.wrapping_add((MEMBERS + 4 * begin) as u64);
        let Ok(bytes) = self.memory.bytes(at, 4 * size) else {
            return Members::Unknown;
        };
        let members = bytes.as_chunks().0.iter();
        let members: Vec<u32> = members.map(|it| u32::from_le_bytes(*it)).collect();
        let different: BTreeSet<&u32> = members.iter().collect();
        if different.len() < members.len() {
            return Members::Unknown;
        }
        Members::List(members)
    }

    fn messages(&self, doubts: &mut BTreeSet<Doubt>) -> Option<Vec<Messages>> {
        let entries = self.table(COUNTERS, self.header.counters, COUNTERS_MAX);
        // Those that have got no memory are among the number.
        let was_full = self.header.counters_lost != 0;
        let entries = entries.or_else(|| was_full.then(Vec::new))?;
        let mut messages: Vec<Messages> = entries
            .iter()
            .map(CounterView::decode)
            .filter_map(|it| {
                let halves = |word: u64| {
                    let [a, b, c, d, e, f, g, h] = word.to_be_bytes();
                    ([a, b, c, d], [e, f, g, h])
                };
                let (serial, kind) = halves(it.communicator);
                let (peer, tag) = halves(it.peer);
                Some(Messages {
                    communicator: u32::from_be_bytes(serial),
                    direction: match u32::from_be_bytes(kind) {
                        direction::SEND => Direction::Sent,
                        direction::RECEIVE => Direction::Received,
                        direction::START => Direction::Started,
                        direction::POST => Direction::Posted,
                        direction::COMPLETE => Direction::Completed,
                        direction::LOCK => Direction::Locked,
                        direction::UNLOCK => Direction::Unlocked,
                        _ => return None,
                    },
                    peer: i32::from_be_bytes(peer),
                    tag: i32::from_be_bytes(tag),
                    count: it.count,
                })
            })
            .collect();
        if messages.len() > MESSAGES_MAX {
            messages.truncate(MESSAGES_MAX);
            doubts.insert(Doubt::Shortened);
        }
        Some(messages)
    }
}

/// Returns members that are a series of different ranks of a job of this size.
fn series(it: &CommunicatorView, job: u32) -> Option<Members> {
    let (first, stride, size) = (it.first, it.stride, it.size);
    let steps = i64::from(size) - 1;
    let last = i64::from(first) + steps * i64::from(stride);
    let are_ranks = [i64::from(first), last]
        .iter()
        .all(|rank| (0..i64::from(job)).contains(rank));
    (are_ranks && (stride != 0 || steps == 0)).then_some(Members::Series {
        first,
        stride,
        size,
    })
}

fn array<const N: usize>(memory: &dyn Memory, region: u64, offset: usize) -> Option<[u8; N]> {
    let mut bytes = [0; N];
    memory
        .read(region.checked_add(offset as u64)?, &mut bytes)
        .ok()?;
    Some(bytes)
}

/// Returns the last collective operations, oldest first. The rank may begin others while its region is read, so some may not be known.
fn last(it: &CommunicatorView) -> Vec<Option<(u32, i32)>> {
    let first = it.collectives.saturating_sub(RING_SIZE as u64);
    (first + 1..=it.collectives)
        .map(|ordinal| {
            let entry = it.ring[usize::try_from(ordinal % RING_SIZE as u64).unwrap_or(0)];
            let operation = layout::function_and_root(entry, ordinal);
            operation.filter(|(function, _)| (*function as usize) < COUNT)
        })
        .collect()
}

fn name(it: &CommunicatorView) -> Option<Arc<str>> {
    let bytes: Vec<u8> = it.name.iter().flat_map(|word| word.to_ne_bytes()).collect();
    let end = bytes
        .iter()
        .position(|byte| *byte == 0)
        .unwrap_or(bytes.len());
    let name = String::from_utf8_lossy(&bytes[..end]);
    (!name.is_empty()).then(|| name.as_ref().into())
}
