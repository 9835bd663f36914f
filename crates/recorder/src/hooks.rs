//! Before and after each call.

use core::{
    ffi::c_void,
    ptr,
    sync::atomic::{
        Ordering::{Relaxed, Release},
        fence,
    },
};

use calls::{
    COUNT, Class,
    layout::{Call, flags, phase, state},
};

use crate::{
    communicators::{self, Entry},
    counters::{self, Direction},
    frame::{Frame, NUMBER, OUTER, OUTER_CALL, OUTER_SITE, PLAIN, RECORD},
    hot::{self, After, Counts, HOT, Hot},
    late::{self, Loader},
    library::{self, found_something},
    region, requests, system,
    threads::{self, Recorded},
};

/// What the way of a call does next; in the registers `rax` and `rdx`.
#[repr(C)]
pub(crate) struct Next {
    function: *const c_void,
    manner: usize,
}

/// Go to the function and forget the call.
const FORGET: usize = 0;

const fn forget(function: *const c_void) -> Next {
    Next {
        function,
        manner: FORGET,
    }
}

/// Begins a call.
pub(crate) extern "C" fn enter(thread: *const Recorded, stub: u32, frame: *mut u64) -> Next {
    let function = library::function(stub);
    let frame = Frame::at(frame);
    // SAFETY: `rally_thread` is 0 or the address of a recorded thread, which is static.
    let (Some(thread), false) = (unsafe { thread.as_ref() }, function.is_null()) else {
        return first(thread, stub, frame);
    };
    let outer = thread.frame.load(Relaxed);
    if outer != 0 {
        return during(thread, function, stub, frame, outer);
    }
    again(thread, function, stub, frame).unwrap_or_else(|| begin(thread, function, stub, frame, 0))
}

/// Begins a call that repeats the last one, which is only counted. Returns `None` if it does not.
#[inline(always)]
fn again(thread: &Recorded, function: *const c_void, stub: u32, frame: Frame) -> Option<Next> {
    let number = stub / 2;
    if thread.repeated.load(Relaxed) != u64::from(number) + 1
        || thread.repeated_site.load(Relaxed) != frame.site()
        || thread.repeated_frame.load(Relaxed) != frame.address()
    {
        return None;
    }
    // The thread is in no call, and the last one was in none either, or it could not be repeated.
    let call = thread.innermost()?;
    call.repeated
        .store(call.repeated.load(Relaxed).wrapping_add(1), Relaxed);
    call.state.store(state::IN_PROGRESS, Relaxed);
    thread.frame.store(frame.address(), Relaxed);
    let hot = &HOT[number as usize];
    frame.set_below(OUTER, 0);
    frame.set_below(RECORD, address(call));
    frame.set_below(PLAIN, plain_end(thread, hot, 0));
    Some(Next {
        function,
        manner: usize::from(hot.manner),
    })
}

/// The first call of a thread, or of this function.
#[cold]
fn first(thread: *const Recorded, stub: u32, frame: Frame) -> Next {
    system::keeping_errno(|| {
        let function = library::find(stub);
        // SAFETY: as in `enter`.
        let thread = unsafe { thread.as_ref() }.unwrap_or_else(threads::admit);
        if threads::is_recorded(thread) {
            late::patch(Loader::Any);
        }
        match thread.frame.load(Relaxed) {
            0 => begin(thread, function, stub, frame, 0),
            outer => during(thread, function, stub, frame, outer),
        }
    })
}

/// Returns the address of a record as a word of a frame.
#[inline(always)]
fn address(call: &Call) -> u64 {
    ptr::from_ref(call) as u64
}

/// The word of a call that does not end plainly ([`arch`](crate::arch)): neither 0 nor the address of a thread.
const NOT_PLAIN: u64 = 1;

/// Returns the word that says whether a call ends plainly.
#[inline(always)]
fn plain_end(thread: &Recorded, hot: &Hot, outer: u64) -> u64 {
    if matches!(hot.after, After::Nothing) && outer == 0 {
        ptr::from_ref(thread) as u64
    } else {
        NOT_PLAIN
    }
}

/// A call while another one has not returned: it is inside that one, or an exception or a `longjmp` has left that one. Then the stack of
/// that one is below ours, or the program has used it for something else.
#[cold]
extern "C" fn during(
    thread: &Recorded,
    function: *const c_void,
    stub: u32,
    frame: Frame,
    outer: u64,
) -> Next {
    if !threads::is_recorded(thread) {
        return forget(function);
    }
    if let Some(call) = thread.innermost() {
        let around = Frame::at(outer as *mut u64);
        let is_there = |around: Frame| {
            around.below(RECORD) == address(call)
                && around.site() == thread.innermost_site.load(Relaxed)
        };
        if frame.address() < outer && is_there(around) {
            return inside(thread, function, stub, frame, around, call);
        }
        left(thread, call, outer);
    }
    begin(thread, function, stub, frame, 0)
}

/// A call was left without having returned: whether it has done its work is not known. `frame` is its stack.
fn left(thread: &Recorded, call: &Call, frame: u64) {
    // If there were more calls inside than the ring has room for, the record is another's. Perhaps the call around it was left too.
    let is_its = call.frame.load(Relaxed) == frame;
    if !is_its || call.state.load(Relaxed) & state::NESTED != 0 {
        region::doubt();
    }
    let class = hot::class(call.function.load(Relaxed));
    if !matches!(class, Some(Class::Local | Class::Poll)) {
        failed(thread, call);
    }
}

/// A call inside another one. It counts if it comes from a callback of the program, or from another tool, and not if the library
/// or a plug-in of it uses its own functions, or if a tool passes the same call on.
///
/// A tool may also send or receive by another function than the program. Both calls are counted then, so the messages of the program's
/// communicator are too many.
#[cold]
fn inside(
    thread: &Recorded,
    function: *const c_void,
    stub: u32,
    frame: Frame,
    outer: Frame,
    call: &Call,
) -> Next {
    if library::contains(frame.site()) {
        return forget(function);
    }
    let hot = &HOT[stub as usize / 2];
    let around = outer.below(NUMBER) as u32 / 2 % COUNT as u32;
    if around == stub / 2 {
        if !matches!(hot.class, Class::Init) {
            return forget(function);
        }
        // The tool may use MPI before the program's call returns, so this one is called with the record of that.
        keep_outer(thread, frame);
        frame.set_below(OUTER, outer.address());
        frame.set_below(RECORD, address(call));
        frame.set_below(PLAIN, NOT_PLAIN);
        return Next {
            function,
            manner: usize::from(hot.manner),
        };
    }
    if library::is_in_plugin(frame.site()) {
        return forget(function);
    }
    if is_message(hot.class) && is_message(HOT[around as usize].class) {
        match communicators::of_serial(thread, call.communicator.load(Relaxed)) {
            Some(on) if call.frame.load(Relaxed) == outer.address() => on.flag(flags::FAILED),
            _ => region::doubt(),
        }
    }
    begin(thread, function, stub, frame, outer.address())
}

/// Returns whether a function sends or receives.
fn is_message(class: Class) -> bool {
    matches!(
        class,
        Class::Send
            | Class::StartSend
            | Class::Receive
            | Class::StartReceive
            | Class::SendReceive
            | Class::StartSendReceive
    )
}

/// Records a call. It is not part of [`enter`], which saves no registers where a call repeats.
#[inline(never)]
extern "C" fn begin(
    thread: &Recorded,
    function: *const c_void,
    stub: u32,
    frame: Frame,
    outer: u64,
) -> Next {
    let number = stub / 2;
    let hot = &HOT[number as usize];
    if outer != 0 {
        keep_outer(thread, frame);
    }
    frame.set_below(OUTER, outer);
    frame.set_below(PLAIN, plain_end(thread, hot, outer));
    thread.frame.store(frame.address(), Relaxed);
    let call = thread.take();
    let sequence = thread.sequence.load(Relaxed) + 1;
    thread.sequence.store(sequence, Relaxed);
    call.sequence.store(sequence, Relaxed);
    fence(Release);
    call.site.store(frame.site(), Relaxed);
    call.frame.store(frame.address(), Relaxed);
    call.count.store(frame.word(hot.count) as i64, Relaxed);
    let handle = library::handle(frame.word(hot.handle));
    call.handle.store(handle, Relaxed);
    call.ordinal.store(0, Relaxed);
    call.function.store(number, Relaxed);
    let nested = if outer == 0 { 0 } else { state::NESTED };
    call.state.store(state::IN_PROGRESS | nested, Relaxed);
    call.peer.store(frame.number(hot.peer), Relaxed);
    call.tag.store(frame.number(hot.tag), Relaxed);
    if hot.has_seldom {
        call.object.store(frame.word(hot.object), Relaxed);
        call.source.store(frame.number(hot.source), Relaxed);
        call.source_tag.store(frame.number(hot.source_tag), Relaxed);
        call.root.store(frame.number(hot.root), Relaxed);
    }
    call.repeated.store(0, Relaxed);
    call.result.store(0, Relaxed);
    frame.set_below(RECORD, address(call));
    thread
        .innermost
        .store(ptr::from_ref(call).cast_mut(), Relaxed);
    thread.innermost_site.store(frame.site(), Relaxed);
    // What follows is fast if the communicator and the counter are those of the last call.
    let serial = if hot.has_communicator {
        match communicators::cached(thread, handle) {
            Some(on) => on.serial(),
            None => return begin_slowly(thread, function, stub, frame),
        }
    } else {
        0
    };
    call.communicator.store(serial, Relaxed);
    let direction = match hot.counts {
        Counts::Nothing => return publish(thread, call, function, hot, frame),
        Counts::Sent => Direction::Send,
        Counts::Received => Direction::Receive,
        Counts::More => return begin_slowly(thread, function, stub, frame),
    };
    let (peer, tag) = (frame.number(hot.peer), frame.number(hot.tag));
    if peer != library::flavor().proc_null() {
        let Some(counter) = counters::cached(thread, serial, direction, peer, tag) else {
            return begin_slowly(thread, function, stub, frame);
        };
        let ordinal = counters::count(counter, frame.site());
        call.ordinal.store(ordinal, Relaxed);
        // The next one like it takes its own way.
        if hot.is_message && counters::is_one_at_a_time() {
            let communicator = frame.word(hot.handle);
            thread.messages[direction.place()].remember(
                stub,
                call,
                communicator,
                counter,
                function,
            );
        }
    }
    publish(thread, call, function, hot, frame)
}

/// Ends what [`begin`] does not do itself, so that it needs few registers.
#[inline(never)]
extern "C" fn begin_slowly(
    thread: &Recorded,
    function: *const c_void,
    stub: u32,
    frame: Frame,
) -> Next {
    let hot = &HOT[stub as usize / 2];
    let call = record(frame);
    call.communicator.store(0, Relaxed);
    count(thread, hot, call, frame);
    publish(thread, call, function, hot, frame)
}

/// Returns the record of a call that was begun.
#[inline(always)]
fn record(frame: Frame) -> &'static Call {
    // SAFETY: whoever has begun the call has written the address, and nobody else gets its stack before it ends.
    unsafe { &*(frame.below(RECORD) as *const Call) }
}

/// Makes the record one that a reader takes for whole.
#[inline(always)]
fn publish(
    thread: &Recorded,
    call: &Call,
    function: *const c_void,
    hot: &Hot,
    frame: Frame,
) -> Next {
    let sequence = call.sequence.load(Relaxed);
    call.seal.store(sequence, Release);
    let repeats = hot.plain && frame.below(OUTER) == 0;
    if repeats {
        thread.repeated_site.store(frame.site(), Relaxed);
        thread.repeated_frame.store(frame.address(), Relaxed);
    }
    let number = u64::from(call.function.load(Relaxed));
    let repeated = if repeats { number + 1 } else { 0 };
    thread.repeated.store(repeated, Relaxed);
    Next {
        function,
        manner: usize::from(hot.manner),
    }
}

/// Counts what the call begins.
fn count(thread: &Recorded, hot: &Hot, call: &Call, frame: Frame) {
    let communicator = hot
        .has_communicator
        .then(|| communicators::of_handle(thread, call.handle.load(Relaxed)))
        .flatten();
    if let Some(entry) = communicator {
        call.communicator.store(entry.serial(), Relaxed);
    }
    match (hot.class, communicator) {
        (Class::Local | Class::Poll | Class::PrepareSend | Class::PrepareReceive, _) => {}
        (Class::Send | Class::StartSend, Some(on)) => {
            let ordinal = message(thread, on, Direction::Send, frame, (hot.peer, hot.tag));
            call.ordinal.store(ordinal, Relaxed);
        }
        (Class::Receive | Class::StartReceive, Some(on)) => {
            let ordinal = message(thread, on, Direction::Receive, frame, (hot.peer, hot.tag));
            call.ordinal.store(ordinal, Relaxed);
        }
        (Class::SendReceive | Class::StartSendReceive, Some(on)) => {
            let sent = message(thread, on, Direction::Send, frame, (hot.peer, hot.tag));
            let received = (hot.source, hot.source_tag);
            let ordinal = message(thread, on, Direction::Receive, frame, received);
            call.ordinal.store(ordinal, Relaxed);
            if matches!(hot.class, Class::SendReceive) {
                call.object.store(sent, Relaxed);
            }
        }
        (Class::MatchedProbe, Some(on)) => on.flag(flags::MATCHED),
        (
            Class::Collective
            | Class::StartCollective
            | Class::PrepareCollective
            | Class::Create
            | Class::StartCreate
            | Class::CreateWindow,
            Some(on),
        ) => call.ordinal.store(on.collective(hot, call), Relaxed),
        (Class::Epoch, Some(on)) if library::is_fence(call.function.load(Relaxed)) => {
            call.ordinal.store(on.collective(hot, call), Relaxed);
        }
        (Class::Epoch, Some(on)) => epoch(on, hot, call, frame),
        (Class::Label, Some(on)) => on.set_name(frame.word(hot.object)),
        _ => seldom(thread, hot, call, frame),
    }
}

/// Counts a message, whose peer and tag are these words of the frame.
fn message(
    thread: &Recorded,
    on: Entry,
    direction: Direction,
    frame: Frame,
    (peer, tag): (u8, u8),
) -> u64 {
    let (peer, tag) = (frame.number(peer), frame.number(tag));
    if peer == library::flavor().proc_null() {
        return 0;
    }
    // What takes any source or tag is counted as such.
    counters::add_message(thread, on.serial(), direction, peer, tag, frame.site())
}

/// Counts the epochs of a window: between groups of processes, and locks.
#[cold]
fn epoch(on: Entry, hot: &Hot, call: &Call, frame: Frame) {
    const START: u32 = library::number("MPI_Win_start");
    const POST: u32 = library::number("MPI_Win_post");
    const COMPLETE: u32 = library::number("MPI_Win_complete");
    const LOCK: u32 = library::number("MPI_Win_lock");
    const LOCK_ALL: u32 = library::number("MPI_Win_lock_all");
    const UNLOCK: u32 = library::number("MPI_Win_unlock");
    const UNLOCK_ALL: u32 = library::number("MPI_Win_unlock_all");
    let lock = |direction, (rank, all)| {
        counters::add(on.serial(), direction, rank, all, frame.site());
    };
    let direction = match call.function.load(Relaxed) {
        START => Direction::Start,
        POST => Direction::Post,
        COMPLETE => return counters::complete(on.serial(), frame.site()),
        LOCK => return lock(Direction::Lock, (frame.number(hot.peer), 0)),
        LOCK_ALL => return lock(Direction::Lock, (0, 1)),
        UNLOCK => return lock(Direction::Unlock, (frame.number(hot.peer), 0)),
        UNLOCK_ALL => return lock(Direction::Unlock, (0, 1)),
        _ => return,
    };
    let count = |rank: u32| {
        counters::add(on.serial(), direction, rank.cast_signed(), 0, frame.site());
    };
    let group = library::handle(frame.word(hot.group));
    if system::keeping_errno(|| communicators::each_of_group(group, count)).is_none() {
        region::doubt();
    }
}

/// What is seldom called, or has no communicator of its own.
fn seldom(thread: &Recorded, hot: &Hot, call: &Call, frame: Frame) {
    match hot.class {
        Class::Start => {
            let count = if hot.has_requests {
                frame.number(hot.count)
            } else {
                1
            };
            requests::start(frame.word(hot.object), count, frame.site());
        }
        Class::Cancel => requests::cancel(frame.word(hot.object)),
        Class::Finalize => {
            if let Some(world) = communicators::of_handle(thread, library::world()) {
                call.communicator.store(world.serial(), Relaxed);
                call.ordinal.store(world.collective(hot, call), Relaxed);
            }
        }
        Class::FreeCommunicator | Class::FreeWindow => {
            let handle = library::read_handle(frame.word(hot.object));
            call.handle.store(handle, Relaxed);
            if let Some(on) = communicators::of_handle(thread, handle) {
                call.communicator.store(on.serial(), Relaxed);
                if matches!(hot.class, Class::FreeWindow) {
                    call.ordinal.store(on.collective(hot, call), Relaxed);
                }
            }
        }
        _ => {}
    }
}

/// Ends a call.
pub(crate) extern "C" fn leave(thread: *const Recorded, frame: *mut u64, result: i32) {
    // SAFETY: it is 0 or the address of a recorded thread, which is static. In the child of a fork it is another one than at the
    // beginning of the call; and a library may have moved its caller to a thread that has none.
    let Some(thread) = (unsafe { thread.as_ref() }) else {
        return;
    };
    if !threads::is_recorded(thread) {
        return;
    }
    let frame = Frame::at(frame);
    let hot = &HOT[frame.below(NUMBER) as usize / 2];
    match hot.after {
        After::Nothing => {
            // A call that would have ended plainly is in no other one, and its way may not have written the word.
            let is_plain = frame.below(PLAIN) != NOT_PLAIN;
            let outer = if is_plain { 0 } else { frame.below(OUTER) };
            end(thread, hot, frame, outer, result);
        }
        After::Poll => {
            if result == 0 && found_something(frame.word(hot.found)) {
                region::progress();
            }
            end(thread, hot, frame, frame.below(OUTER), result);
        }
        After::Hook => leave_with_hook(thread, hot, frame, result),
    }
}

/// Ends a call after which there is more to do. It is not part of [`leave`], which saves no registers for the others.
#[inline(never)]
extern "C" fn leave_with_hook(thread: &Recorded, hot: &Hot, frame: Frame, result: i32) {
    let call = record(frame);
    if call.frame.load(Relaxed) == frame.address() || matches!(hot.class, Class::Init) {
        // The functions of the library that the hook calls must not be recorded, so the frame is still that of this call.
        with_hook(thread, hot, call, frame, result);
    }
    end(thread, hot, frame, frame.below(OUTER), result);
}

/// Ends a call that is in the one whose frame is `outer`, if that is not 0.
#[inline(always)]
fn end(thread: &Recorded, hot: &Hot, frame: Frame, outer: u64, result: i32) {
    let call = record(frame);
    // If there were more calls inside than the ring has room for, this one's record is another's.
    if call.frame.load(Relaxed) == frame.address() {
        call.result.store(result, Relaxed);
        let nested = call.state.load(Relaxed) & state::NESTED;
        call.state.store(nested, Release);
    }
    thread.frame.store(outer, Relaxed);
    if outer != 0 {
        return_to_outer(thread, frame);
    }
    if result != 0 && !library::returns_address(frame.below(NUMBER) as u32 / 2) {
        // The next one may succeed, so it does not repeat this one.
        thread.repeated.store(0, Relaxed);
        if !matches!(hot.class, Class::Local | Class::Poll) {
            failed(thread, call);
        }
    }
}

/// A call begins inside the innermost one.
#[cold]
extern "C" fn keep_outer(thread: &Recorded, frame: Frame) {
    frame.set_below(OUTER_CALL, thread.innermost.load(Relaxed) as u64);
    frame.set_below(OUTER_SITE, thread.innermost_site.load(Relaxed));
}

/// A call ends that is inside another one, which is the innermost now.
#[cold]
extern "C" fn return_to_outer(thread: &Recorded, frame: Frame) {
    thread.repeated.store(0, Relaxed);
    thread
        .innermost
        .store(frame.below(OUTER_CALL) as *mut Call, Relaxed);
    thread
        .innermost_site
        .store(frame.below(OUTER_SITE), Relaxed);
}

/// Notes that what a call has counted may not have happened.
#[cold]
extern "C" fn failed(thread: &Recorded, call: &Call) {
    match communicators::of_serial(thread, call.communicator.load(Relaxed)) {
        Some(on) => on.flag(flags::FAILED),
        None => region::doubt(),
    }
}

fn with_hook(thread: &Recorded, hot: &Hot, call: &Call, frame: Frame, result: i32) {
    if matches!(hot.class, Class::Finalize) {
        region::set_phase(phase::FINALIZED);
    }
    if result != 0 {
        return;
    }
    match hot.class {
        Class::Create
        | Class::CreateOfGroup
        | Class::CreateBetween
        | Class::CreateForeign
        | Class::CreateWindow
        | Class::StartCreate => {
            if hot.makes_request {
                requests::add(frame.word(hot.object), call);
            }
            system::keeping_errno(|| {
                communicators::created(thread, hot.class, call, frame.word(hot.made));
            });
        }
        Class::FreeCommunicator | Class::FreeWindow => communicators::freed(thread, call),
        // A tool may call one function in the other one.
        Class::Init if !region::is_initialized() => {
            system::keeping_errno(communicators::begin);
            region::set_phase(phase::INITIALIZED);
        }
        _ if hot.makes_request => {
            if matches!(
                hot.class,
                Class::StartReceive | Class::PrepareReceive | Class::StartSendReceive
            ) && let Some(on) = communicators::of_serial(thread, call.communicator.load(Relaxed))
            {
                on.flag(flags::STARTED);
            }
            requests::add(frame.word(hot.object), call);
        }
        _ => {}
    }
}
