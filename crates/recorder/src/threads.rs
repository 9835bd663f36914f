//! The recorded threads. A thread gets an entry with its first call. When it has exited, another thread takes the entry.
//!
//! The addresses and indexes that the recorder relies on are in its own memory ([`Recorded`]), and not in the region: the program, or
//! another process of its user, may write anything there.

use core::{
    arch::x86_64::{_MM_HINT_T0, _mm_prefetch},
    ptr,
    sync::atomic::{
        AtomicPtr, AtomicU32, AtomicU64,
        Ordering::{AcqRel, Relaxed, Release},
    },
};

use calls::layout::{self, Call, Counter, THREAD_SIZE, THREADS, THREADS_MAX, Thread};

use crate::{
    current,
    message::Message,
    region::{self, Table},
    system,
};

/// Bytes of a line of the processor's cache.
const LINE: usize = 64;

/// A recorded thread. Only the thread itself changes it, but for messages that others forget.
#[derive(Debug)]
#[repr(C, align(64))]
pub(crate) struct Recorded {
    /// Stack of the innermost recorded call that has not returned, or 0. Calls with a lower stack are inside it.
    pub(crate) frame: AtomicU64,
    /// The record of that call. Without such a call, that of the last one that was in none, or null.
    pub(crate) innermost: AtomicPtr<Call>,
    /// Where the program goes on after it.
    pub(crate) innermost_site: AtomicU64,
    /// The record of the next call.
    pub(crate) next: AtomicPtr<Call>,
    /// Number of the call that was begun last.
    pub(crate) sequence: AtomicU64,
    /// The last call, if its repetition is only counted: function from 1, return address, stack.
    pub(crate) repeated: AtomicU64,
    pub(crate) repeated_site: AtomicU64,
    pub(crate) repeated_frame: AtomicU64,
    /// Messages that were sent and received last, by [`Direction`](crate::counters::Direction).
    pub(crate) messages: [Message; 2],
    /// First record of the ring.
    pub(crate) first: AtomicPtr<Call>,
    /// End of the ring.
    pub(crate) end: AtomicPtr<Call>,
    /// The communicator that was looked up last.
    pub(crate) cached: AtomicU64,
    /// The counters that were used last, of messages sent and of messages received; or null.
    pub(crate) counters: [AtomicPtr<Counter>; 2],
    /// The id of the thread, or 0.
    owner: AtomicU32,
}

impl Recorded {
    /// `frame` is the stack of the call in which all calls seem to be, or 0.
    const fn new(frame: u64) -> Self {
        Self {
            frame: AtomicU64::new(frame),
            innermost: AtomicPtr::new(ptr::null_mut()),
            innermost_site: AtomicU64::new(0),
            next: AtomicPtr::new(ptr::null_mut()),
            sequence: AtomicU64::new(0),
            repeated: AtomicU64::new(0),
            repeated_site: AtomicU64::new(0),
            repeated_frame: AtomicU64::new(0),
            messages: [const { Message::none() }; 2],
            first: AtomicPtr::new(ptr::null_mut()),
            end: AtomicPtr::new(ptr::null_mut()),
            cached: AtomicU64::new(0),
            counters: [const { AtomicPtr::new(ptr::null_mut()) }; 2],
            owner: AtomicU32::new(0),
        }
    }

    /// Takes the record of the next call, and has the processor fetch the one after it: the ring is larger than what stays in the
    /// fastest cache.
    #[inline(always)]
    pub(crate) fn take(&self) -> &'static Call {
        let call = self.next.load(Relaxed);
        let mut next = call.wrapping_add(1);
        if next == self.end.load(Relaxed) {
            next = self.first.load(Relaxed);
        }
        self.next.store(next, Relaxed);
        let bytes = next.cast_const().cast::<i8>();
        // SAFETY: a prefetch changes no memory and reads none. A recorded thread has records, whose fields are all atomic.
        unsafe {
            _mm_prefetch::<_MM_HINT_T0>(bytes);
            _mm_prefetch::<_MM_HINT_T0>(bytes.wrapping_add(LINE));
            &*call
        }
    }

    /// Returns the record of the innermost call, or of the last one.
    #[inline(always)]
    pub(crate) fn innermost(&self) -> Option<&'static Call> {
        // SAFETY: it is null or the record of a call, whose fields are all atomic.
        unsafe { self.innermost.load(Relaxed).as_ref() }
    }
}

/// Its first entry is there as long as the region.
static TABLE: Table = Table::new(THREADS, THREAD_SIZE, THREAD_SIZE);
static RECORDED: [Recorded; THREADS_MAX] = [const { Recorded::new(0) }; THREADS_MAX];

/// The entry of threads that are not recorded. Every call seems to be inside another one, so this costs recorded threads nothing.
static UNRECORDED: Recorded = Recorded::new(u64::MAX);

/// Returns whether a thread is recorded.
#[inline(always)]
pub(crate) fn is_recorded(thread: &Recorded) -> bool {
    !ptr::eq(thread, &raw const UNRECORDED)
}

/// The process is the child of one that is recorded: it must not write into its parent's region.
extern "C" fn forked() {
    region::abandon();
    current::set_thread(&raw const UNRECORDED);
}

/// Gives the calling thread an entry.
pub(crate) fn admit() -> &'static Recorded {
    let thread = entry().unwrap_or(&UNRECORDED);
    current::set_thread(thread);
    thread
}

fn entry() -> Option<&'static Recorded> {
    if !region::is_there(forked) {
        return None;
    }
    let own = system::thread_id().unsigned_abs();
    for (index, thread) in RECORDED.iter().enumerate() {
        let owner = thread.owner.load(Relaxed);
        if owner != 0 && owner != own && lives(owner) {
            continue;
        }
        if thread
            .owner
            .compare_exchange(owner, own, AcqRel, Relaxed)
            .is_err()
        {
            continue;
        }
        if !TABLE.reserve(index) {
            thread.owner.store(0, Relaxed);
            break;
        }
        let offset = THREADS + index * THREAD_SIZE;
        begin(thread, own, region::at(offset).cast::<Thread>());
        region::header()
            .threads
            .fetch_max(index as u32 + 1, Relaxed);
        return Some(thread);
    }
    region::header().threads_lost.fetch_add(1, Relaxed);
    None
}

fn lives(thread: u32) -> bool {
    system::tgkill(system::getpid(), thread.cast_signed(), 0) == 0
}

/// Gives an entry to a thread, and forgets what the thread that had it did.
fn begin(thread: &Recorded, own: u32, entry: *const Thread) {
    let first = entry.wrapping_add(1).cast::<Call>().cast_mut();
    for at in 0..layout::CALLS_MAX {
        // SAFETY: the memory of the entry was reserved, the records follow it, and all their fields are atomic.
        let call = unsafe { &*first.add(at) };
        call.state.store(0, Relaxed);
        call.seal.store(0, Relaxed);
        call.sequence.store(0, Relaxed);
    }
    thread.first.store(first, Relaxed);
    thread
        .end
        .store(first.wrapping_add(layout::CALLS_MAX), Relaxed);
    thread.next.store(first, Relaxed);
    thread.innermost.store(ptr::null_mut(), Relaxed);
    thread.frame.store(0, Relaxed);
    thread.repeated.store(0, Relaxed);
    thread.sequence.store(0, Relaxed);
    for message in &thread.messages {
        message.forget();
    }
    // SAFETY: a recorded thread has an entry, whose fields are atomic.
    let entry = unsafe { &*entry };
    entry.thread.store(own, Release);
}

/// Forgets the messages of all threads: a communicator was freed, and another one may get its handle.
pub(crate) fn forget_messages() {
    for message in RECORDED.iter().flat_map(|thread| &thread.messages) {
        message.forget();
    }
}
