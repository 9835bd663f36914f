//! Counts of messages, by communicator, direction, peer and tag. Threads share them.

use core::{
    ptr,
    sync::atomic::{
        AtomicBool, AtomicPtr,
        Ordering::{AcqRel, Acquire, Relaxed},
    },
};

use calls::layout::{
    COUNTER_INDEX, COUNTERS, COUNTERS_MAX, Counter, CounterView, INDEX_SIZE, direction,
};

use crate::{
    region::{self, Index, Table},
    threads::Recorded,
};

static INDEX: Index = Index::new(COUNTER_INDEX);
static TABLE: Table = Table::new(COUNTERS, CounterView::SIZE, 0);

/// What is counted.
#[derive(Clone, Copy)]
#[repr(u32)]
pub(crate) enum Direction {
    Send = direction::SEND,
    Receive = direction::RECEIVE,
    /// Communicators that some members of this one have made.
    Group = direction::GROUP,
    /// Epochs in which the process accesses the window of another one.
    Start = direction::START,
    /// Epochs in which it exposes its own.
    Post = direction::POST,
    /// Ends of the former.
    Complete = direction::COMPLETE,
    /// Locks of windows.
    Lock = direction::LOCK,
    /// Ends of these.
    Unlock = direction::UNLOCK,
}

impl Direction {
    /// Returns where messages in this direction are in what a thread keeps of both.
    pub(crate) const fn place(self) -> usize {
        matches!(self, Self::Receive) as usize
    }
}

/// Whether only one thread counts at a time, as the level of threads says.
static ONE_AT_A_TIME: AtomicBool = AtomicBool::new(false);

/// Returns whether only one thread calls MPI at a time.
pub(crate) fn is_one_at_a_time() -> bool {
    ONE_AT_A_TIME.load(Relaxed)
}

/// Notes that only one thread calls MPI at a time.
pub(crate) fn one_at_a_time() {
    ONE_AT_A_TIME.store(true, Relaxed);
}

fn key_of(serial: u32, direction: Direction, peer: i32, tag: i32) -> (u64, u64) {
    (
        u64::from(serial) << 32 | direction as u64,
        u64::from(peer.cast_unsigned()) << 32 | u64::from(tag.cast_unsigned()),
    )
}

/// Returns the counter that a thread has used last for messages in this direction, if it is this one.
#[inline(always)]
pub(crate) fn cached(
    thread: &Recorded,
    serial: u32,
    direction: Direction,
    peer: i32,
    tag: i32,
) -> Option<&'static Counter> {
    // SAFETY: it is null or the address of an entry of the table, which stays.
    let counter = unsafe { last(thread, direction).load(Relaxed).as_ref() }?;
    is(counter, key_of(serial, direction, peer, tag)).then_some(counter)
}

#[inline(always)]
fn last(thread: &Recorded, direction: Direction) -> &AtomicPtr<Counter> {
    &thread.counters[direction.place()]
}

/// As [`add`], for a message. The next one of the thread most probably has the same peer and tag.
pub(crate) fn add_message(
    thread: &Recorded,
    serial: u32,
    direction: Direction,
    peer: i32,
    tag: i32,
    site: u64,
) -> u64 {
    if let Some(counter) = cached(thread, serial, direction, peer, tag) {
        return count(counter, site);
    }
    let ordinal = add(serial, direction, peer, tag, site);
    if let Some(counter) = found(key_of(serial, direction, peer, tag)) {
        last(thread, direction).store(ptr::from_ref(counter).cast_mut(), Relaxed);
    }
    ordinal
}

/// Returns the counter with a key.
fn found(key: (u64, u64)) -> Option<&'static Counter> {
    if !INDEX.is_there() {
        return None;
    }
    let mut at = place(key);
    for _ in 0..INDEX_SIZE {
        let number = INDEX.slot(at).load(Acquire);
        if number == 0 {
            return None;
        }
        let known = counter(number).filter(|counter| is(counter, key));
        if known.is_some() {
            return known;
        }
        at = (at + 1) % INDEX_SIZE;
    }
    None
}

#[inline(always)]
fn is(counter: &Counter, key: (u64, u64)) -> bool {
    counter.communicator.load(Relaxed) == key.0 && counter.peer.load(Relaxed) == key.1
}

/// Counts one, and returns the number so far; 0 if there is no room.
pub(crate) fn add(serial: u32, direction: Direction, peer: i32, tag: i32, site: u64) -> u64 {
    let key = key_of(serial, direction, peer, tag);
    if !INDEX.reserve() {
        return lost();
    }
    let mut at = place(key);
    // The index is never full, so the search ends at a free place, unless somebody has written into it.
    for _ in 0..INDEX_SIZE {
        let number = INDEX.slot(at).load(Acquire);
        if number == 0 {
            return insert(key, at, site);
        }
        if let Some(counter) = counter(number)
            && counter.communicator.load(Relaxed) == key.0
            && counter.peer.load(Relaxed) == key.1
        {
            return count(counter, site);
        }
        at = (at + 1) % INDEX_SIZE;
    }
    lost()
}

#[cold]
fn lost() -> u64 {
    region::header().counters_lost.fetch_add(1, Relaxed);
    0
}

/// Counts one, and returns the number so far.
#[inline(always)]
pub(crate) fn count(counter: &Counter, site: u64) -> u64 {
    counter.site.store(site, Relaxed);
    if ONE_AT_A_TIME.load(Relaxed) {
        let counted = counter.count.load(Relaxed) + 1;
        counter.count.store(counted, Relaxed);
        return counted;
    }
    counter.count.fetch_add(1, Relaxed) + 1
}

fn place(key: (u64, u64)) -> usize {
    let mixed = (key.0.rotate_left(17) ^ key.1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    (mixed >> 51) as usize % INDEX_SIZE
}

/// Returns the counter with a number of the index, from 1.
fn counter(number: u16) -> Option<&'static Counter> {
    let index = usize::from(number).checked_sub(1)?;
    // SAFETY: the table has COUNTERS_MAX entries, and the memory of this one is there.
    (index < COUNTERS_MAX && TABLE.has(index))
        .then(|| unsafe { &*region::at(COUNTERS + index * CounterView::SIZE).cast::<Counter>() })
}

/// Adds a counter at the first free place of the index from `at` on.
#[cold]
fn insert(key: (u64, u64), at: usize, site: u64) -> u64 {
    let header = region::header();
    let taken = header.counters.load(Relaxed) as usize;
    // Several threads may be here, so the table ends before the index is full. `dbgr` reads all entries that are counted, so the memory
    // comes first.
    let index = if taken < COUNTERS_MAX && TABLE.reserve(taken) {
        header.counters.fetch_add(1, Relaxed) as usize
    } else {
        COUNTERS_MAX
    };
    let is_there = index < COUNTERS_MAX && TABLE.reserve(index);
    let Some(counter) = is_there.then(|| counter(index as u16 + 1)).flatten() else {
        return lost();
    };
    counter.communicator.store(key.0, Relaxed);
    counter.peer.store(key.1, Relaxed);
    let mut at = at;
    for _ in 0..INDEX_SIZE {
        match INDEX
            .slot(at)
            .compare_exchange(0, index as u16 + 1, AcqRel, Acquire)
        {
            Ok(_) => return count(counter, site),
            Err(other) => {
                // Another thread has added the same counter: this entry stays unused.
                if let Some(same) = self::counter(other)
                    && same.communicator.load(Relaxed) == key.0
                    && same.peer.load(Relaxed) == key.1
                {
                    counter.communicator.store(0, Relaxed);
                    return count(same, site);
                }
                at = (at + 1) % INDEX_SIZE;
            }
        }
    }
    lost()
}

/// Ends all epochs of access to a window: counts as many ends as beginnings, for each process.
pub(crate) fn complete(serial: u32, site: u64) {
    let used = region::header().counters.load(Relaxed);
    for number in 1..=used.min(COUNTERS_MAX as u32) {
        let Some(begun) = counter(number as u16) else {
            return;
        };
        if begun.communicator.load(Relaxed) != u64::from(serial) << 32 | Direction::Start as u64 {
            continue;
        }
        let peer = (begun.peer.load(Relaxed) >> 32) as u32;
        let target = begun.count.load(Relaxed);
        while add(serial, Direction::Complete, peer.cast_signed(), 0, site) < target {
            // Without room for another counter, none is counted.
            if region::header().counters_lost.load(Relaxed) != 0 {
                return;
            }
        }
    }
}
