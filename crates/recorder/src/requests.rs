//! What the handle of a request stands for. Programs copy handles, so their address says nothing; the handle is looked up when the
//! call that made it has returned. Libraries use handles again: the newest operation counts.

use core::sync::atomic::{
    Ordering::{AcqRel, Acquire, Relaxed, Release},
    fence,
};

use calls::{
    Class,
    layout::{
        Call, INDEX_SIZE, REQUEST_INDEX, REQUESTS, REQUESTS_MAX, Request, RequestView, flags,
    },
};

use crate::{
    communicators,
    counters::{self, Direction},
    hot, library,
    region::{self, Index, Table},
};

static INDEX: Index = Index::new(REQUEST_INDEX);
static TABLE: Table = Table::new(REQUESTS, RequestView::SIZE, 0);

/// Requests that one call may start. More make the counts doubtful.
const STARTS_MAX: i32 = 1 << 20;

/// A call has made the request at an address.
pub(crate) fn add(address: u64, call: &Call) {
    let handle = library::read_handle(address);
    if handle == 0 {
        return;
    }
    let Some(request) = find(handle).or_else(|| insert(handle)) else {
        region::header().requests_lost.fetch_add(1, Relaxed);
        return;
    };
    let sequence = request.sequence.load(Relaxed) + 1;
    request.sequence.store(sequence, Relaxed);
    fence(Release);
    request.site.store(call.site.load(Relaxed), Relaxed);
    request.ordinal.store(call.ordinal.load(Relaxed), Relaxed);
    request.function.store(call.function.load(Relaxed), Relaxed);
    request
        .communicator
        .store(call.communicator.load(Relaxed), Relaxed);
    request.peer.store(call.peer.load(Relaxed), Relaxed);
    request.tag.store(call.tag.load(Relaxed), Relaxed);
    request.source.store(call.source.load(Relaxed), Relaxed);
    request
        .source_tag
        .store(call.source_tag.load(Relaxed), Relaxed);
    request.root.store(call.root.load(Relaxed), Relaxed);
    request.seal.store(sequence, Release);
}

/// A call starts persistent requests.
pub(crate) fn start(address: u64, count: i32, site: u64) {
    if count > STARTS_MAX {
        region::doubt();
    }
    for index in 0..count.clamp(0, STARTS_MAX) {
        let handle = library::nth_handle(address, index.unsigned_abs() as usize);
        let Some(request) = find(handle) else {
            region::doubt();
            continue;
        };
        let direction = match hot::class(request.function.load(Relaxed)) {
            Some(Class::PrepareSend) => Direction::Send,
            Some(Class::PrepareReceive) => Direction::Receive,
            // Their messages match only each other, or they are collective.
            _ => continue,
        };
        let serial = request.communicator.load(Relaxed);
        let (peer, tag) = (request.peer.load(Relaxed), request.tag.load(Relaxed));
        if peer == library::flavor().proc_null() {
            continue;
        }
        let ordinal = counters::add(serial, direction, peer, tag, site);
        let sequence = request.sequence.load(Relaxed) + 1;
        request.sequence.store(sequence, Relaxed);
        fence(Release);
        request.ordinal.store(ordinal, Relaxed);
        request.site.store(site, Relaxed);
        request.seal.store(sequence, Release);
    }
}

/// A call cancels a request: nobody can say whether its message counts.
pub(crate) fn cancel(address: u64) {
    match find(library::read_handle(address)) {
        Some(request) => flag(request.communicator.load(Relaxed), flags::CANCELLED),
        None => region::doubt(),
    }
}

fn flag(serial: u32, flags: u32) {
    match communicators::with_serial(serial) {
        Some(on) => on.flag(flags),
        None => region::doubt(),
    }
}

fn place(handle: u64) -> usize {
    (handle.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 51) as usize % INDEX_SIZE
}

/// Returns the request with a number of the index, from 1.
fn request(number: u16) -> Option<&'static Request> {
    let index = usize::from(number).checked_sub(1)?;
    // SAFETY: the table has REQUESTS_MAX entries, and the memory of this one is there.
    (index < REQUESTS_MAX && TABLE.has(index))
        .then(|| unsafe { &*region::at(REQUESTS + index * RequestView::SIZE).cast::<Request>() })
}

fn find(handle: u64) -> Option<&'static Request> {
    if !INDEX.is_there() {
        return None;
    }
    let mut at = place(handle);
    // The index is never full, so the search ends at a free place, unless somebody has written into it.
    for _ in 0..INDEX_SIZE {
        let number = INDEX.slot(at).load(Acquire);
        if number == 0 {
            return None;
        }
        let request = request(number)?;
        if request.handle.load(Relaxed) == handle {
            return Some(request);
        }
        at = (at + 1) % INDEX_SIZE;
    }
    None
}

#[cold]
fn insert(handle: u64) -> Option<&'static Request> {
    let header = region::header();
    let taken = header.requests.load(Relaxed) as usize;
    // `dbgr` reads all entries that are counted, so the memory comes first.
    if taken >= REQUESTS_MAX || !INDEX.reserve() || !TABLE.reserve(taken) {
        return None;
    }
    let index = header.requests.fetch_add(1, Relaxed) as usize;
    if index >= REQUESTS_MAX || !TABLE.reserve(index) {
        return None;
    }
    let request = request(index as u16 + 1)?;
    request.handle.store(handle, Relaxed);
    let mut at = place(handle);
    // Two threads never add the same handle: only one of them has it.
    for _ in 0..INDEX_SIZE {
        if INDEX
            .slot(at)
            .compare_exchange(0, index as u16 + 1, AcqRel, Acquire)
            .is_ok()
        {
            return Some(request);
        }
        at = (at + 1) % INDEX_SIZE;
    }
    None
}
