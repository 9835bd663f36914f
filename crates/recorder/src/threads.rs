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

use crate::{current, region, system};

/// Bytes of a line of the processor's cache.
const LINE: usize = 64;

/// A recorded thread. Only the thread itself changes it.
#[derive(Debug)]
pub(crate) struct Recorded {
    /// The id of the thread, or 0.
    owner: AtomicU32,
    /// Its entry in the region, or null.
    entry: AtomicPtr<Thread>,
    /// The [`Call`] that was begun last, from 1, or 0.
    pub(crate) last: AtomicU32,
    /// Number of the call that was begun last.
    pub(crate) sequence: AtomicU64,
    /// Stack of the innermost recorded call that has not returned, or 0. Calls with a lower stack are inside it.
    pub(crate) frame: AtomicU64,
    /// Number of the stub and the record of that call, as its stack has them too. Without such a call, anything.
    pub(crate) innermost: AtomicU64,
    /// Where the program goes on after it.
    pub(crate) innermost_site: AtomicU64,
    /// The communicator that was looked up last.
    pub(crate) cached: AtomicU64,
    /// The counters that were used last, of messages sent and of messages received; or null.
    pub(crate) counters: [AtomicPtr<Counter>; 2],
    /// The last call, if its repetition is only counted: function from 1, return address, stack.
    pub(crate) repeated: AtomicU64,
    pub(crate) repeated_site: AtomicU64,
    pub(crate) repeated_frame: AtomicU64,
}

impl Recorded {
    /// `frame` is the stack of the call in which all calls seem to be, or 0.
    const fn new(frame: u64) -> Self {
        Self {
            owner: AtomicU32::new(0),
            entry: AtomicPtr::new(ptr::null_mut()),
            last: AtomicU32::new(0),
            sequence: AtomicU64::new(0),
            frame: AtomicU64::new(frame),
            innermost: AtomicU64::new(0),
            innermost_site: AtomicU64::new(0),
            cached: AtomicU64::new(0),
            counters: [const { AtomicPtr::new(ptr::null_mut()) }; 2],
            repeated: AtomicU64::new(0),
            repeated_site: AtomicU64::new(0),
            repeated_frame: AtomicU64::new(0),
        }
    }

    /// Returns a record of the thread, from 1.
    #[inline(always)]
    pub(crate) fn call(&self, record: u32) -> &'static Call {
        debug_assert!((1..=layout::CALLS_MAX).contains(&(record as usize)));
        let first = self.entry.load(Relaxed).wrapping_add(1).cast::<Call>();
        // SAFETY: a recorded thread has an entry, and the records follow it. All their fields are atomic. The number is one that
        // the hooks have made, between 1 and CALLS_MAX.
        unsafe { &*first.add(record as usize - 1) }
    }

    /// Has the processor fetch a record that will be written next: the ring is larger than what stays in the fastest cache.
    #[inline(always)]
    pub(crate) fn prefetch(&self, record: u32) {
        let record = ptr::from_ref(self.call(record)).cast::<i8>();
        // SAFETY: a prefetch changes no memory and reads none; the address is that of a record.
        unsafe {
            _mm_prefetch::<_MM_HINT_T0>(record);
            _mm_prefetch::<_MM_HINT_T0>(record.wrapping_add(LINE));
        }
    }
}

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
        let offset = THREADS + index * THREAD_SIZE;
        if owner == 0 && !region::reserve_bytes(offset, THREAD_SIZE) {
            thread.owner.store(0, Relaxed);
            break;
        }
        thread
            .entry
            .store(region::at(offset).cast_mut().cast::<Thread>(), Relaxed);
        begin(thread, own);
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

/// Forgets what the thread that had this entry did.
fn begin(thread: &Recorded, own: u32) {
    for record in 1..=layout::CALLS_MAX {
        let call = thread.call(record as u32);
        call.state.store(0, Relaxed);
        call.seal.store(0, Relaxed);
        call.sequence.store(0, Relaxed);
    }
    thread.frame.store(0, Relaxed);
    thread.repeated.store(0, Relaxed);
    thread.last.store(0, Relaxed);
    thread.sequence.store(0, Relaxed);
    // SAFETY: a recorded thread has an entry, whose fields are atomic.
    let entry = unsafe { &*thread.entry.load(Relaxed) };
    entry.thread.store(own, Release);
}
