//! Communicators and windows: their handles, what they are called on all ranks, and their collective operations.
//!
//! Handles differ between ranks, and the order in which ranks use communicators may be the very mistake that somebody looks for. So
//! the id of a communicator is a digest of its parent's id, the number of the parent's collective operation that made it, and its members
//! as ranks of `MPI_COMM_WORLD`. All members compute the same id without a message. What has no such origin has the id 0.

use core::{
    ffi::{c_int, c_void},
    ptr,
    sync::atomic::{
        AtomicU64,
        Ordering::{AcqRel, Acquire, Relaxed, Release},
        fence,
    },
};

use calls::{
    Class,
    layout::{
        self, COMMUNICATORS, COMMUNICATORS_MAX, Call, Communicator, CommunicatorView, MEMBERS,
        MEMBERS_MAX, PAGE, RING_SIZE, flags,
    },
};

use crate::{
    counters::{self, Direction},
    hot::Hot,
    late::{self, Loader},
    library,
    region::{self, Table},
    system,
    threads::{self, Recorded},
};

/// Its first page is there as long as the region.
static TABLE: Table = Table::new(COMMUNICATORS, CommunicatorView::SIZE, PAGE);

/// The handles of all entries, close together for the search. 0 is a free entry.
static HANDLES: [AtomicU64; COMMUNICATORS_MAX] = [const { AtomicU64::new(0) }; COMMUNICATORS_MAX];
/// Stands in `HANDLES` while an entry is filled.
const FILLING: u64 = u64::MAX;

/// An entry of the table.
#[derive(Clone, Copy)]
pub(crate) struct Entry(&'static Communicator);

impl Entry {
    fn at(index: usize) -> Self {
        // SAFETY: the table has COMMUNICATORS_MAX entries, all fields are atomic, and who has an index has reserved its memory.
        Self(unsafe {
            &*region::at(COMMUNICATORS + index * CommunicatorView::SIZE).cast::<Communicator>()
        })
    }

    #[inline(always)]
    pub(crate) fn serial(self) -> u32 {
        self.0.serial.load(Relaxed)
    }

    /// Counts a collective operation, and returns its number.
    #[inline(always)]
    pub(crate) fn collective(self, hot: &Hot, call: &Call) -> u64 {
        let ordinal = self.0.collectives.fetch_add(1, Relaxed) + 1;
        let function = call.function.load(Relaxed);
        let root = if hot.root == 0 {
            0
        } else {
            call.root.load(Relaxed).cast_unsigned()
        };
        self.0.ring[ordinal as usize % RING_SIZE]
            .store(layout::operation(ordinal, function, root), Relaxed);
        ordinal
    }

    /// Sets flags.
    #[inline(always)]
    pub(crate) fn flag(self, flags: u32) {
        if self.0.flags.load(Relaxed) & flags != flags {
            self.0.flags.fetch_or(flags, Relaxed);
        }
    }

    /// Copies the beginning of a name.
    pub(crate) fn set_name(self, address: u64) {
        let mut name = [0_u8; 32];
        if address == 0 {
            return;
        }
        for (at, letter) in name[..31].iter_mut().enumerate() {
            // SAFETY: the program passes the address of a text that ends with a 0, and no byte after that is read.
            *letter = unsafe { *(address as *const u8).add(at) };
            if *letter == 0 {
                break;
            }
        }
        for (word, letters) in self.0.name.iter().zip(name.as_chunks().0) {
            word.store(u64::from_ne_bytes(*letters), Relaxed);
        }
    }
}

/// Returns the entry with a handle if the thread has used it last.
#[inline(always)]
pub(crate) fn cached(thread: &Recorded, handle: u64) -> Option<Entry> {
    let cached = thread.cached.load(Relaxed) as usize;
    let known = HANDLES.get(cached)?;
    (known.load(Acquire) == handle).then(|| Entry::at(cached))
}

/// Returns the entry with a handle. A handle that is not known gets one, but nobody can say which communicator it is on other ranks.
#[inline(always)]
pub(crate) fn of_handle(thread: &Recorded, handle: u64) -> Option<Entry> {
    cached(thread, handle).or_else(|| searched(thread, handle))
}

#[inline(never)]
fn searched(thread: &Recorded, handle: u64) -> Option<Entry> {
    if handle == 0 || handle == library::null() {
        return None;
    }
    let known = HANDLES[..used()]
        .iter()
        .position(|known| known.load(Acquire) == handle);
    let index = match known {
        Some(index) => index,
        None => system::keeping_errno(|| {
            add(&New {
                handle,
                ..New::default()
            })
        })?,
    };
    thread.cached.store(index as u64, Relaxed);
    Some(Entry::at(index))
}

/// Returns the entry with a serial number, most probably the one that the thread has used last.
pub(crate) fn of_serial(thread: &Recorded, serial: u32) -> Option<Entry> {
    let cached = thread.cached.load(Relaxed) as usize;
    if serial != 0 && cached < used() {
        let entry = Entry::at(cached);
        if entry.serial() == serial {
            return Some(entry);
        }
    }
    with_serial(serial)
}

/// Returns the entry with a serial number.
pub(crate) fn with_serial(serial: u32) -> Option<Entry> {
    if serial == 0 {
        return None;
    }
    (0..used())
        .map(Entry::at)
        .find(|entry| entry.serial() == serial)
}

/// Returns the number of entries from the beginning of the table that may be in use.
fn used() -> usize {
    (region::header().communicators.load(Relaxed) as usize).min(COMMUNICATORS_MAX)
}

/// A communicator that is to get an entry.
#[derive(Clone, Copy)]
struct New {
    handle: u64,
    id: u64,
    parent: u64,
    number: u64,
    rank: u32,
    members: Members,
}

impl Default for New {
    fn default() -> Self {
        Self {
            handle: 0,
            id: 0,
            parent: 0,
            number: 0,
            rank: 0,
            members: Members::UNKNOWN,
        }
    }
}

/// Finds a place for a communicator and fills it.
fn add(new: &New) -> Option<usize> {
    let header = region::header();
    // The library uses a handle again once it is free, whoever has freed it.
    let index = (0..COMMUNICATORS_MAX)
        .find(|index| claim(*index, new.handle))
        .or_else(|| (0..COMMUNICATORS_MAX).find(|index| claim(*index, 0)));
    threads::forget_messages();
    let index = index.filter(|index| {
        let is_there = TABLE.reserve(*index);
        if !is_there {
            HANDLES[*index].store(0, Release);
        }
        is_there
    });
    let Some(index) = index else {
        header.communicators_lost.fetch_add(1, Relaxed);
        return None;
    };
    header.communicators.fetch_max(index as u32 + 1, Relaxed);
    let serial = header.serial.fetch_add(1, Relaxed) + 1;
    let entry = Entry::at(index).0;
    let sequence = entry.sequence.load(Relaxed) + 1;
    entry.sequence.store(sequence, Relaxed);
    fence(Release);
    entry.handle.store(new.handle, Relaxed);
    entry.id.store(new.id, Relaxed);
    entry.parent.store(new.parent, Relaxed);
    entry.number.store(new.number, Relaxed);
    entry.collectives.store(0, Relaxed);
    for slot in entry.ring.iter().chain(&entry.name) {
        slot.store(0, Relaxed);
    }
    entry.serial.store(serial, Relaxed);
    entry.rank.store(new.rank, Relaxed);
    entry.size.store(new.members.size, Relaxed);
    entry.first.store(new.members.first, Relaxed);
    entry.stride.store(new.members.stride, Relaxed);
    entry.flags.store(new.members.flags, Relaxed);
    entry.seal.store(sequence, Release);
    HANDLES[index].store(new.handle, Release);
    Some(index)
}

/// Takes an entry that has this handle.
fn claim(index: usize, handle: u64) -> bool {
    HANDLES[index].load(Relaxed) == handle
        && HANDLES[index]
            .compare_exchange(handle, FILLING, AcqRel, Relaxed)
            .is_ok()
}

/// `MPI_Init` has returned.
pub(crate) fn begin() {
    late::patch(Loader::Library);
    let header = region::header();
    let own = rank_in(library::world());
    let size = size_of_communicator(library::world());
    header.rank.store(own, Relaxed);
    header.size.store(size, Relaxed);
    let level = thread_level();
    header.level.store(level, Relaxed);
    if (1..=3).contains(&level) {
        counters::one_at_a_time();
    }
    add(&New {
        handle: library::world(),
        id: digest(&[0x0057_4f52_4c44, u64::from(size)]),
        rank: own,
        members: Members::series(0, 1, size),
        ..New::default()
    });
    add(&New {
        handle: library::own(),
        id: digest(&[0x5345_4c46, u64::from(own)]),
        members: Members::series(own, 1, 1),
        ..New::default()
    });
}

/// A call has made a communicator or a window.
pub(crate) fn created(thread: &Recorded, class: Class, call: &Call, address: u64) {
    late::patch(Loader::Any);
    let handle = library::read_handle(address);
    if handle == 0 || handle == library::null() {
        return;
    }
    let parent = of_serial(thread, call.communicator.load(Relaxed)).map(|parent| parent.0);
    let (parent_id, serial) = parent.map_or((0, 0), |parent| {
        (parent.id.load(Relaxed), parent.serial.load(Relaxed))
    });
    let ordinal = call.ordinal.load(Relaxed);
    let tag = u64::from(call.tag.load(Relaxed).cast_unsigned());
    let (rank, members, origin) = match (class, parent) {
        // `MPI_Comm_get_parent` returns the same one again and again.
        (Class::CreateForeign, _) if is_known_between(handle) => return,
        (Class::CreateForeign, _) => {
            let mut members = Members::UNKNOWN;
            members.flags |= flags::BETWEEN;
            return fill(handle, rank_in(handle), members, 0, 0, None);
        }
        // The communicator may not be usable yet, so nobody asks the library about it.
        (Class::StartCreate, Some(parent)) => (
            parent.rank.load(Relaxed),
            Members::of(parent),
            Some(ordinal),
        ),
        (Class::CreateWindow, Some(parent)) => {
            let mut members = Members::of(parent);
            members.flags |= flags::WINDOW;
            (parent.rank.load(Relaxed), members, Some(ordinal))
        }
        (Class::CreateOfGroup, _) => {
            let members = Members::ask(handle);
            let with = digest(&[members.digest, tag]);
            (rank_in(handle), members, nth(serial, with))
        }
        (Class::CreateBetween, _) => {
            let mut members = Members::ask(handle);
            let local = Members::ask_local(handle);
            // Both sides compute the same, whichever is theirs.
            members.digest ^= local.digest;
            let with = digest(&[members.digest, tag]);
            // The two groups have different parents.
            return fill(
                handle,
                rank_in(handle),
                members,
                0,
                0,
                // Both sides count the same ones, whichever of their communicators they have used.
                Some(digest(&[with, nth(0, with).unwrap_or(0)])),
            );
        }
        _ => (rank_in(handle), Members::ask(handle), Some(ordinal)),
    };
    let id = origin.filter(|_| parent_id != 0).map(|origin| {
        digest(&[
            parent_id,
            origin,
            members.digest,
            u64::from(members.flags & flags::WINDOW),
        ])
    });
    fill(handle, rank, members, parent_id, origin.unwrap_or(0), id);
}

/// Returns whether an entry is a communicator with another job, which has this handle.
fn is_known_between(handle: u64) -> bool {
    let known = HANDLES[..used()]
        .iter()
        .position(|known| known.load(Acquire) == handle);
    let both = flags::UNKNOWN | flags::BETWEEN;
    known.is_some_and(|index| Entry::at(index).0.flags.load(Relaxed) & both == both)
}

/// Adds what `created` has found out.
fn fill(handle: u64, rank: u32, members: Members, parent: u64, number: u64, id: Option<u64>) {
    let known = members.flags & flags::UNKNOWN == 0;
    add(&New {
        handle,
        id: id.filter(|_| known).unwrap_or(0),
        parent,
        number,
        rank,
        members,
    });
}

/// Counts what the members of a group make together, which is no collective operation of the parent.
fn nth(serial: u32, with: u64) -> Option<u64> {
    let (high, low) = ((with >> 32) as u32, with as u32);
    Some(counters::add(
        serial,
        Direction::Group,
        high.cast_signed(),
        low.cast_signed(),
        0,
    ))
}

/// A call has freed the communicator or window that it has found at its beginning.
pub(crate) fn freed(thread: &Recorded, call: &Call) {
    let handle = call.handle.load(Relaxed);
    let serial = call.communicator.load(Relaxed);
    if let Some(entry) = of_serial(thread, serial)
        && let Some(index) = HANDLES
            .iter()
            .position(|known| known.load(Relaxed) == handle)
    {
        entry.0.handle.store(0, Relaxed);
        HANDLES[index].store(0, Release);
        threads::forget_messages();
    }
}

/// The members of a communicator; of the remote group, if it has two.
#[derive(Clone, Copy)]
struct Members {
    size: u32,
    first: u32,
    stride: i32,
    flags: u32,
    /// Of their ranks in `MPI_COMM_WORLD`, in their order.
    digest: u64,
}

impl Members {
    const UNKNOWN: Self = Self {
        size: 0,
        first: 0,
        stride: 0,
        flags: flags::UNKNOWN,
        digest: 0,
    };

    fn series(first: u32, stride: i32, size: u32) -> Self {
        let ranks =
            (0..size).map(|at| first.wrapping_add_signed(stride.wrapping_mul(at.cast_signed())));
        Self {
            size,
            first,
            stride,
            flags: 0,
            digest: digest_of(ranks),
        }
    }

    /// The members of a known communicator.
    fn of(known: &Communicator) -> Self {
        Self {
            size: known.size.load(Relaxed),
            first: known.first.load(Relaxed),
            stride: known.stride.load(Relaxed),
            flags: known.flags.load(Relaxed) & (flags::LISTED | flags::UNKNOWN | flags::BETWEEN),
            // The id of the parent stands for its members.
            digest: 0,
        }
    }

    /// Asks the library about a communicator that it has just made.
    fn ask(handle: u64) -> Self {
        let between = is_between(handle);
        let name = if between { REMOTE_GROUP } else { GROUP };
        let mut members = Self::of_group(group_of(handle, name));
        if between {
            members.flags |= flags::BETWEEN;
        }
        members
    }

    fn ask_local(handle: u64) -> Self {
        Self::of_group(group_of(handle, GROUP))
    }

    /// Translates a group into ranks of `MPI_COMM_WORLD`, and frees it.
    fn of_group(group: Option<u64>) -> Self {
        let Some(group) = group else {
            return Self::UNKNOWN;
        };
        let world = (region::header().phase.load(Relaxed) == layout::phase::INITIALIZED)
            .then(|| group_of(library::world(), GROUP))
            .flatten();
        let members = world.map_or(Self::UNKNOWN, |world| {
            let members = translated(group, world, Self::of_ranks).unwrap_or(Self::UNKNOWN);
            free_group(world);
            members
        });
        free_group(group);
        members
    }

    /// Describes ranks: as a series if they are one, else in the table of members.
    fn of_ranks(ranks: &[i32]) -> Option<Self> {
        if ranks.iter().any(|rank| *rank < 0) {
            return None;
        }
        let size = ranks.len() as u32;
        let first = *ranks.first()?;
        let stride = ranks.get(1).map_or(1, |second| second - first);
        let digest = digest_of(ranks.iter().map(|rank| rank.cast_unsigned()));
        let series = ranks.windows(2).all(|pair| pair[1] - pair[0] == stride);
        if series {
            return Some(Self {
                size,
                first: first.cast_unsigned(),
                stride,
                flags: 0,
                digest,
            });
        }
        let header = region::header();
        let begin = header.members.fetch_add(size, Relaxed);
        if begin as usize + ranks.len() > MEMBERS_MAX
            || !region::reserve_bytes(MEMBERS + 4 * begin as usize, 4 * ranks.len())
        {
            header.communicators_lost.fetch_add(1, Relaxed);
            return Some(Self {
                size,
                digest,
                ..Self::UNKNOWN
            });
        }
        let table = region::at(MEMBERS + 4 * begin as usize)
            .cast_mut()
            .cast::<i32>();
        // SAFETY: the table has room for these, their memory was reserved, and nobody else got these places.
        unsafe { ptr::copy_nonoverlapping(ranks.as_ptr(), table, ranks.len()) };
        Some(Self {
            size,
            first: begin,
            stride: 0,
            flags: flags::LISTED,
            digest,
        })
    }
}

const GROUP: u32 = library::number("MPI_Comm_group");
const REMOTE_GROUP: u32 = library::number("MPI_Comm_remote_group");

/// A function of the library that takes a handle and an address.
type Ask = unsafe extern "C" fn(u64, *mut c_void) -> c_int;

/// Calls a function of the library that writes a number or a handle.
fn ask(number: u32, handle: u64, answer: *mut c_void) -> Option<()> {
    let function = library::profiling(number);
    if function.is_null() {
        return None;
    }
    // SAFETY: the callers name functions with a handle and an address as arguments, and pass an address with room for the answer. A
    // handle of 32 bits is the lower half of the register.
    let result = unsafe {
        let function = core::mem::transmute::<*const c_void, Ask>(function);
        function(handle, answer)
    };
    (result == 0).then_some(())
}

fn ask_number(number: u32, handle: u64) -> u32 {
    let mut answer: c_int = 0;
    match ask(number, handle, (&raw mut answer).cast()) {
        Some(()) => answer.cast_unsigned(),
        None => 0,
    }
}

fn rank_in(handle: u64) -> u32 {
    ask_number(const { library::number("MPI_Comm_rank") }, handle)
}

fn size_of_communicator(handle: u64) -> u32 {
    ask_number(const { library::number("MPI_Comm_size") }, handle)
}

/// Returns what `MPI_Query_thread` says, plus 1; 0 if it says nothing.
fn thread_level() -> u32 {
    let mut level: c_int = 0;
    let function = library::profiling(const { library::number("MPI_Query_thread") });
    if function.is_null() {
        return 0;
    }
    // SAFETY: the function takes the address of a number.
    let result = unsafe {
        core::mem::transmute::<*const c_void, unsafe extern "C" fn(*mut c_int) -> c_int>(function)(
            &raw mut level,
        )
    };
    let order = library::flavor().thread_levels();
    match order.iter().position(|known| *known == level) {
        Some(level) if result == 0 => level as u32 + 1,
        _ => 0,
    }
}

fn is_between(handle: u64) -> bool {
    ask_number(const { library::number("MPI_Comm_test_inter") }, handle) != 0
}

fn group_of(handle: u64, number: u32) -> Option<u64> {
    let mut group = 0_u64;
    ask(number, handle, (&raw mut group).cast())?;
    Some(library::handle(group))
}

fn free_group(group: u64) {
    let mut group = group;
    let function = library::profiling(const { library::number("MPI_Group_free") });
    if !function.is_null() {
        // SAFETY: the function takes the address of a group, which `group_of` has returned.
        unsafe {
            core::mem::transmute::<*const c_void, unsafe extern "C" fn(*mut u64) -> c_int>(
                function,
            )(&raw mut group);
        }
    }
}

/// `MPI_Group_translate_ranks`.
type Translate = unsafe extern "C" fn(u64, c_int, *const c_int, u64, *mut c_int) -> c_int;

/// Calls `each` with each member of a group, as a rank of `MPI_COMM_WORLD`; `None` if one of them is in another one.
pub(crate) fn each_of_group(group: u64, each: impl FnMut(u32)) -> Option<()> {
    let world = group_of(library::world(), GROUP)?;
    let done = translated(group, world, |ranks| {
        if ranks.iter().any(|rank| *rank < 0) {
            return None;
        }
        ranks.iter().map(|rank| rank.cast_unsigned()).for_each(each);
        Some(())
    });
    free_group(world);
    done
}

/// Translates the members of a group to ranks of another one, and returns what `then` makes of them.
fn translated<T>(group: u64, world: u64, then: impl FnOnce(&[c_int]) -> Option<T>) -> Option<T> {
    let size = ask_number(const { library::number("MPI_Group_size") }, group) as usize;
    let function = library::profiling(const { library::number("MPI_Group_translate_ranks") });
    if size == 0 || size > c_int::MAX as usize / 8 || function.is_null() {
        return None;
    }
    let bytes = 2 * size * size_of::<c_int>();
    // SAFETY: memory of our own, for two arrays of `size` numbers each; unmapped below, when nobody uses it any more.
    unsafe {
        let memory = system::mmap(
            ptr::null_mut(),
            bytes,
            system::PROT_READ_WRITE,
            system::MAP_PRIVATE_ANONYMOUS,
            -1,
            0,
        );
        if memory as isize == -1 {
            return None;
        }
        let numbers = core::slice::from_raw_parts_mut(memory.cast::<c_int>(), 2 * size);
        let (from, to) = numbers.split_at_mut(size);
        for (at, rank) in from.iter_mut().enumerate() {
            *rank = at as c_int;
        }
        let translate = core::mem::transmute::<*const c_void, Translate>(function);
        let result = translate(group, size as c_int, from.as_ptr(), world, to.as_mut_ptr());
        let made = (result == 0).then(|| then(to)).flatten();
        system::munmap(memory, bytes);
        made
    }
}

fn digest_of(ranks: impl Iterator<Item = u32>) -> u64 {
    ranks.fold(1, |digest, rank| mix(digest ^ u64::from(rank)))
}

/// Mixes numbers into one that is not 0.
fn digest(numbers: &[u64]) -> u64 {
    numbers
        .iter()
        .fold(2, |digest, number| mix(digest ^ number))
        .max(1)
}

/// One step of a digest: every bit of the number changes half of the bits of the result.
const fn mix(number: u64) -> u64 {
    let number = number.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let number = (number ^ (number >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let number = (number ^ (number >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    number ^ (number >> 31)
}
