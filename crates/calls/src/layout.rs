//! The layout of a region: one file of shared memory for each process that calls MPI.
//!
//! ```text
//! Header                     1 page
//! Thread  + 63 × Call        2 pages, 64 times: a thread's last calls, in a ring
//! Communicator             256 times, windows too
//! Counter  4096 times, found by an index: messages for each (communicator, direction, peer, tag)
//! Request  4096 times, found by an index: which operation a handle is
//! members                  64 Ki ranks, of communicators whose members are no arithmetic series
//! ```
//!
//! Only what is used is touched, so a process with few threads and communicators needs less than 100 KiB of memory. Every table
//! is filled from its beginning. All numbers have the order of bytes of the processor.
//!
//! **Seals.** A thread that changes an entry writes `sequence` (the last field), then the other fields, then `seal` (the first).
//! A reader copies an entry from its beginning to its end; it is whole if both numbers are equal.

use core::{
    mem::size_of,
    sync::atomic::{AtomicI32, AtomicI64, AtomicU16, AtomicU32, AtomicU64},
};

/// Begins every region: `rallympi`.
pub const MAGIC: u64 = u64::from_le_bytes(*b"rallympi");
/// Version of the layout. A reader refuses all others.
pub const VERSION: u32 = 2;
/// Names of files begin with this; the pid follows, as the process knows it.
pub const FILE_PREFIX: &str = "rally-calls.";
/// The environment variable that names the directory of the files. Without it, nothing is recorded.
pub const DIRECTORY_VARIABLE: &str = "RALLY_MPI_RECORD";
/// Bytes of a page.
pub const PAGE: usize = 4096;

/// Threads that are recorded at a time.
pub const THREADS_MAX: usize = 64;
/// Calls that are kept for each thread.
pub const CALLS_MAX: usize = 63;
/// Communicators and windows at a time.
pub const COMMUNICATORS_MAX: usize = 256;
/// Combinations of communicator, direction, peer and tag.
pub const COUNTERS_MAX: usize = 4096;
/// Handles of requests. Libraries use them again, so this many can be active.
pub const REQUESTS_MAX: usize = 4096;
/// Ranks in [`MEMBERS`].
pub const MEMBERS_MAX: usize = 65_536;
/// Entries of each index. It is never full, because it is twice as large as its table.
pub const INDEX_SIZE: usize = 8192;
/// Collective operations of a communicator whose function and root are kept.
pub const RING_SIZE: usize = 16;

/// A number that several processes see.
pub trait Number {
    /// Its value.
    type Value: Copy;
    /// Bytes.
    const SIZE: usize;
    /// Decodes the first [`SIZE`](Self::SIZE) bytes.
    fn decode(bytes: &[u8]) -> Self::Value;
}

macro_rules! number {
    ($($atomic:ty: $value:ty),*) => {$(
        impl Number for $atomic {
            type Value = $value;
            const SIZE: usize = size_of::<$value>();

            fn decode(bytes: &[u8]) -> $value {
                let mut array = [0; size_of::<$value>()];
                array.copy_from_slice(&bytes[..Self::SIZE]);
                <$value>::from_ne_bytes(array)
            }
        }
    )*};
}

number!(AtomicI32: i32, AtomicI64: i64, AtomicU16: u16, AtomicU32: u32, AtomicU64: u64);

impl<const N: usize> Number for [AtomicU64; N] {
    type Value = [u64; N];
    const SIZE: usize = N * size_of::<u64>();

    fn decode(bytes: &[u8]) -> Self::Value {
        core::array::from_fn(|at| AtomicU64::decode(&bytes[8 * at..]))
    }
}

macro_rules! entry {
    ($(#[$doc:meta])* $name:ident, $view:ident, $size:expr; $($(#[$field_doc:meta])* $field:ident: $kind:ty,)*) => {
        $(#[$doc])*
        #[derive(Debug)]
        #[repr(C)]
        pub struct $name {
            $($(#[$field_doc])* pub $field: $kind,)*
        }

        #[doc = concat!("A copy of a [`", stringify!($name), "`].")]
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub struct $view {
            $($(#[$field_doc])* pub $field: <$kind as Number>::Value,)*
        }

        const _: () = assert!(size_of::<$name>() == $size && 0 $(+ <$kind as Number>::SIZE)* == $size);

        impl $view {
            /// Bytes of an entry.
            pub const SIZE: usize = $size;

            /// Decodes an entry. Any bytes are one.
            #[must_use]
            pub fn decode(bytes: &[u8; $size]) -> Self {
                let mut at = 0;
                $(
                    let $field = <$kind as Number>::decode(&bytes[at..]);
                    at += <$kind as Number>::SIZE;
                )*
                debug_assert_eq!(at, $size);
                Self { $($field,)* }
            }
        }
    };
}

entry! {
    /// The beginning of a region.
    Header, HeaderView, 104;
    /// [`MAGIC`]; written last, so that a region that has it is complete.
    magic: AtomicU64,
    /// [`VERSION`].
    version: AtomicU32,
    /// Number of functions, by which a recorder with another table shows.
    functions: AtomicU32,
    /// The [`Flavor`](crate::Flavor), or 0 before it is known.
    flavor: AtomicU32,
    /// Pid of the process, as it sees it.
    pid: AtomicU32,
    /// The [phase](phase) of the process.
    phase: AtomicU32,
    /// Rank in `MPI_COMM_WORLD`, after `MPI_Init`.
    rank: AtomicU32,
    /// Size of `MPI_COMM_WORLD`, after `MPI_Init`.
    size: AtomicU32,
    /// Threads that found no free [`Thread`]: their calls are not recorded, and not counted.
    threads_lost: AtomicU32,
    /// Communicators for which there was no room.
    communicators_lost: AtomicU32,
    /// Messages for which there was no room.
    counters_lost: AtomicU32,
    /// Requests for which there was no room.
    requests_lost: AtomicU32,
    /// Calls whose effect on the counts is not known.
    doubts: AtomicU32,
    /// Communicators in use, from the beginning of their table.
    communicators: AtomicU32,
    /// Counters in use.
    counters: AtomicU32,
    /// Requests in use.
    requests: AtomicU32,
    /// Members in use.
    members: AtomicU32,
    /// Serial number of the communicator that was made last.
    serial: AtomicU32,
    spare: AtomicU32,
    /// Polls that found that something had happened.
    progress: AtomicU64,
    /// Nanoseconds of `CLOCK_BOOTTIME` at the beginning, which show whether a dead process of this pid has made the region.
    began: AtomicU64,
    /// Entries of [`Thread`] in use, from the beginning of their table.
    threads: AtomicU32,
    /// The level of threads, from 1 (`MPI_THREAD_SINGLE`) to 4 (`MPI_THREAD_MULTIPLE`), after `MPI_Init`; 0 if it is not known.
    level: AtomicU32,
}

/// Values of [`Header::phase`].
pub mod phase {
    /// `MPI_Init` has returned.
    pub const INITIALIZED: u32 = 1;
    /// `MPI_Finalize` has returned.
    pub const FINALIZED: u32 = 2;
}

entry! {
    /// A thread. The ring of its calls follows.
    Thread, ThreadView, 128;
    /// The id of the thread, as the process sees it, or 0 if no thread uses this entry.
    thread: AtomicU32,
    unused: AtomicU32,
    spare: [AtomicU64; 15],
}

entry! {
    /// A call.
    Call, CallView, 128;
    seal: AtomicU64,
    /// The address to which the call returns.
    site: AtomicU64,
    /// Stack of the call.
    frame: AtomicU64,
    /// Argument: the count, of elements or requests.
    count: AtomicI64,
    /// Argument: the communicator, or the window or file if the function has no communicator.
    handle: AtomicU64,
    /// Argument: the address of a request, an array of them, a message, or what the call makes. Of a call that sends and receives,
    /// the number of the message that it sends, as [`ordinal`](Self::ordinal).
    object: AtomicU64,
    /// Number of this collective operation in its communicator, or of this message among those with the same peer and tag, from 1.
    ordinal: AtomicU64,
    /// Number of the function.
    function: AtomicU32,
    /// The [state](state) of the call.
    state: AtomicU32,
    /// Serial number of the communicator, or 0.
    communicator: AtomicU32,
    /// Argument: the other rank.
    peer: AtomicI32,
    /// Argument: the tag.
    tag: AtomicI32,
    /// Argument: the rank of which the call receives too.
    source: AtomicI32,
    /// Argument: the tag that it receives too.
    source_tag: AtomicI32,
    /// Argument: the root.
    root: AtomicI32,
    /// How often the call was repeated after the first time.
    repeated: AtomicU32,
    /// What the call returned.
    result: AtomicI32,
    spare: [AtomicU64; 3],
    sequence: AtomicU64,
}

/// Bits of [`Call::state`].
pub mod state {
    /// The call has not returned.
    pub const IN_PROGRESS: u32 = 1;
    /// The call is inside another recorded call: in a callback, or in a tool between program and library.
    pub const NESTED: u32 = 2;
}

entry! {
    /// A communicator or a window.
    Communicator, CommunicatorView, 256;
    seal: AtomicU64,
    /// The library's handle, or 0 if it was freed.
    handle: AtomicU64,
    /// A number that all its members agree on, or 0 if they cannot.
    id: AtomicU64,
    /// The id of the communicator from which it was made.
    parent: AtomicU64,
    /// The number of the collective operation of the parent that made it.
    number: AtomicU64,
    /// Collective operations that were begun.
    collectives: AtomicU64,
    /// The last of them, at the remainder of their number, as [`operation`] makes them.
    ring: [AtomicU64; RING_SIZE],
    /// A number that no other communicator of this process has, from 1.
    serial: AtomicU32,
    /// Number of its members, of the remote group if it has two.
    size: AtomicU32,
    /// The process's own rank.
    rank: AtomicU32,
    /// [Flags](flags).
    flags: AtomicU32,
    /// Members: rank in `MPI_COMM_WORLD` of the first, and the difference from each to the next; or, with
    /// [`flags::LISTED`], the place of the first in the table of members.
    first: AtomicU32,
    stride: AtomicI32,
    /// The name that the program has given it, or its beginning.
    name: [AtomicU64; 4],
    spare: [AtomicU64; 2],
    sequence: AtomicU64,
}

/// Bits of [`Communicator::flags`].
pub mod flags {
    /// The members are in the table of members.
    pub const LISTED: u32 = 1;
    /// The members are not known.
    pub const UNKNOWN: u32 = 2;
    /// It has two groups.
    pub const BETWEEN: u32 = 4;
    /// It is a window.
    pub const WINDOW: u32 = 8;
    /// A matched probe took a message.
    pub const MATCHED: u32 = 16;
    /// A request was cancelled.
    pub const CANCELLED: u32 = 32;
    /// A call failed, or a tool has replaced it by another one.
    pub const FAILED: u32 = 64;
    /// A receive was started or prepared, so a receive that was counted may still wait for its message.
    pub const STARTED: u32 = 128;
}

/// Returns a collective operation as one number: the lower bits of its ordinal, by which a reader sees that the number is not that of
/// an earlier operation, the number of its function, and its root.
#[must_use]
pub const fn operation(ordinal: u64, function: u32, root: u32) -> u64 {
    (ordinal & 0xffff) << 48 | (function as u64 & 0xffff) << 32 | root as u64
}

/// Returns the function and the root of a collective operation; `None` if the number is not that of the operation with this ordinal.
#[must_use]
pub const fn function_and_root(operation: u64, ordinal: u64) -> Option<(u32, i32)> {
    if operation >> 48 != ordinal & 0xffff {
        return None;
    }
    let [_, _, a, b, c, d, e, f] = operation.to_be_bytes();
    Some((
        u32::from_be_bytes([0, 0, a, b]),
        i32::from_be_bytes([c, d, e, f]),
    ))
}

entry! {
    /// Messages that were sent or received with one peer and one tag. The key never changes.
    Counter, CounterView, 32;
    /// Serial number of the communicator in the upper half; [direction](direction) in the lower. 0 if the entry is not used.
    communicator: AtomicU64,
    /// Peer in the upper half, tag in the lower.
    peer: AtomicU64,
    /// Messages: begun, whether they have arrived or not.
    count: AtomicU64,
    /// The address to which the last of these calls returns.
    site: AtomicU64,
}

/// Lower half of [`Counter::communicator`].
pub mod direction {
    /// The process sends.
    pub const SEND: u32 = 1;
    /// The process receives.
    pub const RECEIVE: u32 = 2;
    /// The process makes communicators together with some members of this one: peer and tag are a digest of them and of their tag.
    pub const GROUP: u32 = 3;
    /// The process begins to access the window of another one, which is a rank of `MPI_COMM_WORLD`; the tag is 0.
    pub const START: u32 = 4;
    /// The process exposes its window to another one.
    pub const POST: u32 = 5;
    /// The process has accessed the window of another one.
    pub const COMPLETE: u32 = 6;
    /// The process locks the window of another one, which is a rank of the window; the tag is 0. With the tag 1 it locks those of all.
    pub const LOCK: u32 = 7;
    /// The process begins to unlock them.
    pub const UNLOCK: u32 = 8;
}

entry! {
    /// What the handle of a request stands for.
    Request, RequestView, 72;
    seal: AtomicU64,
    /// The library's handle, or 0.
    handle: AtomicU64,
    /// The address to which the call returned that made it.
    site: AtomicU64,
    /// As [`Call::ordinal`]; of a persistent request, that of its last start, or 0.
    ordinal: AtomicU64,
    /// Number of the function that made it.
    function: AtomicU32,
    /// Serial number of the communicator.
    communicator: AtomicU32,
    peer: AtomicI32,
    tag: AtomicI32,
    source: AtomicI32,
    source_tag: AtomicI32,
    root: AtomicI32,
    spare: AtomicU32,
    sequence: AtomicU64,
}

const fn table(begin: usize, count: usize, size: usize) -> usize {
    (begin + count * size).next_multiple_of(PAGE)
}

/// Bytes of a thread with its calls.
pub const THREAD_SIZE: usize = ThreadView::SIZE + CALLS_MAX * CallView::SIZE;
/// Offset of the threads.
pub const THREADS: usize = PAGE;
/// Offset of the communicators.
pub const COMMUNICATORS: usize = table(THREADS, THREADS_MAX, THREAD_SIZE);
/// Offset of the index of counters: numbers of 16 bits, an entry of the table from 1.
pub const COUNTER_INDEX: usize = table(COMMUNICATORS, COMMUNICATORS_MAX, CommunicatorView::SIZE);
/// Offset of the counters.
pub const COUNTERS: usize = table(COUNTER_INDEX, INDEX_SIZE, 2);
/// Offset of the index of requests.
pub const REQUEST_INDEX: usize = table(COUNTERS, COUNTERS_MAX, CounterView::SIZE);
/// Offset of the requests.
pub const REQUESTS: usize = table(REQUEST_INDEX, INDEX_SIZE, 2);
/// Offset of the members: ranks of 32 bits.
pub const MEMBERS: usize = table(REQUESTS, REQUESTS_MAX, RequestView::SIZE);
/// Bytes of a region.
pub const SIZE: usize = table(MEMBERS, MEMBERS_MAX, 4);

const _: () = assert!(THREAD_SIZE == 2 * PAGE);
