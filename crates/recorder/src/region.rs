//! The region of this process: a file of shared memory that it makes with its first call.
//!
//! Memory of a file can vanish under a program that writes to it: when the file system is full, the kernel sends SIGBUS. So the
//! recorder asks for each page before its first use ([`Table`]), and does without what it does not get.

use core::{
    ffi::{CStr, c_char, c_int, c_void},
    mem::size_of,
    ptr,
    sync::atomic::{
        AtomicBool, AtomicPtr, AtomicU16, AtomicU32, AtomicUsize,
        Ordering::{AcqRel, Acquire, Relaxed, Release},
    },
};

use calls::layout::{self, Header, INDEX_SIZE, PAGE};

use crate::{library, system};

/// The region, or null.
static REGION: AtomicPtr<u8> = AtomicPtr::new(ptr::null_mut());
/// Whether there is a region: one of the constants below.
static STATE: AtomicU32 = AtomicU32::new(NONE);
/// Nobody has called MPI.
const NONE: u32 = 0;
/// A thread is making the region.
const MAKING: u32 = 1;
/// The region is there.
const THERE: u32 = 2;
/// There will be no region.
const NEVER: u32 = 3;

/// How often a thread yields until another one has made the region, which takes microseconds.
const YIELDS_MAX: usize = 100_000;
/// How often memory is asked for if signals interrupt that.
const INTERRUPTIONS_MAX: usize = 100;
/// Bytes of the header and of the first entry of a thread.
const FIRST: usize = layout::THREADS + layout::THREAD_SIZE;
/// Longest path of a region.
const PATH_MAX: usize = 512;
/// The path, with a 0.
static mut PATH: [u8; PATH_MAX] = [0; PATH_MAX];

/// Returns the address of an offset.
#[inline(always)]
pub(crate) fn at(offset: usize) -> *const u8 {
    debug_assert!(offset < layout::SIZE);
    REGION.load(Relaxed).wrapping_add(offset).cast_const()
}

/// Returns the header.
///
/// # Panics
///
/// If there is no region: only recorded calls may ask.
pub(crate) fn header() -> &'static Header {
    let region = REGION.load(Relaxed);
    assert!(!region.is_null());
    // SAFETY: the region begins with a header, is never unmapped, and all its fields are atomic.
    unsafe { &*region.cast::<Header>() }
}

/// Returns whether there is a region, and makes it at the first call.
/// `in_child` is called in the child of a fork.
pub(crate) fn is_there(in_child: extern "C" fn()) -> bool {
    for _ in 0..YIELDS_MAX {
        match STATE.load(Acquire) {
            THERE => return true,
            NEVER => return false,
            MAKING => {
                // Another thread is making it, which takes microseconds. Without it, a call of this one would not be counted.
                system::sched_yield();
            }
            _ => {
                if STATE
                    .compare_exchange(NONE, MAKING, AcqRel, Relaxed)
                    .is_ok()
                {
                    let made = make(in_child);
                    STATE.store(if made.is_some() { THERE } else { NEVER }, Release);
                }
            }
        }
    }
    // The child of a fork, whose parent was making it at that moment: its thread does not exist here.
    false
}

/// There is no region for this process any more: it is the child of the one that has made it.
pub(crate) fn abandon() {
    STATE.store(NEVER, Relaxed);
}

fn make(in_child: extern "C" fn()) -> Option<()> {
    let mut directory = [0_u8; 64];
    let name = layout::DIRECTORY_VARIABLE.as_bytes();
    directory.get_mut(..name.len())?.copy_from_slice(name);
    // SAFETY: the name ends with a 0, and so does what the function returns.
    let directory = unsafe {
        let value = system::getenv(directory.as_ptr().cast());
        if value.is_null() {
            return None;
        }
        CStr::from_ptr(value)
    };
    // SAFETY: only the thread that makes the region is here, and nobody reads the path before it is done.
    let path = unsafe { (&raw mut PATH).as_mut() }?;
    let mut writer = Writer { path, used: 0 };
    writer.put(directory.to_bytes())?;
    writer.put(b"/")?;
    writer.put(layout::FILE_PREFIX.as_bytes())?;
    writer.number(system::getpid().unsigned_abs())?;
    writer.put(b"\0")?;
    let path = writer.path.as_ptr().cast::<c_char>();
    // SAFETY: the path ends with a 0. A file with this name is that of a program which this process was before `exec`, or of a
    // process whose pid was used again.
    let region = unsafe {
        system::unlink(path);
        let flags = system::O_RDWR
            | system::O_CREAT
            | system::O_EXCL
            | system::O_NOFOLLOW
            | system::O_CLOEXEC;
        let file = system::open(path, flags, 0o600);
        if file < 0 {
            return None;
        }
        // The pages that are written first are asked for before the region can be seen.
        let reserved = system::ftruncate(file, layout::SIZE as i64) == 0
            && allocate(file, 0, FIRST)
            && allocate(file, layout::COMMUNICATORS, PAGE);
        let region = if reserved {
            system::mmap(
                ptr::null_mut(),
                layout::SIZE,
                system::PROT_READ_WRITE,
                system::MAP_SHARED,
                file,
                0,
            )
        } else {
            -1_isize as *mut c_void
        };
        system::close(file);
        if region as isize == -1 {
            system::unlink(path);
            return None;
        }
        system::pthread_atfork(None, None, Some(in_child));
        region
    };
    REGION.store(region.cast(), Relaxed);
    let header = header();
    header.version.store(layout::VERSION, Relaxed);
    header.functions.store(calls::COUNT as u32, Relaxed);
    header.flavor.store(library::flavor() as u32, Relaxed);
    header.pid.store(system::getpid().unsigned_abs(), Relaxed);
    header.began.store(system::since_boot(), Relaxed);
    header.magic.store(layout::MAGIC, Release);
    Some(())
}

/// A table of the region, whose memory is asked for as its entries are used, in their order. After one refusal, nobody asks again.
pub(crate) struct Table {
    /// Offset in the region, a multiple of the size of a page.
    begin: usize,
    /// Size of an entry.
    entry: usize,
    /// Bytes from the beginning of the table whose memory is there.
    reserved: AtomicUsize,
    is_refused: AtomicBool,
}

impl Table {
    /// Describes a table, of which some bytes are there as long as the region.
    pub(crate) const fn new(begin: usize, entry: usize, reserved: usize) -> Self {
        Self {
            begin,
            entry,
            reserved: AtomicUsize::new(reserved),
            is_refused: AtomicBool::new(false),
        }
    }

    /// Returns whether the memory of an entry is there. Without it, the entry must not even be read.
    #[inline(always)]
    pub(crate) fn has(&self, number: usize) -> bool {
        (number + 1) * self.entry <= self.reserved.load(Acquire)
    }

    /// Makes sure that the memory of an entry and of all before it is there. Several threads may do it at the same time.
    pub(crate) fn reserve(&self, number: usize) -> bool {
        if self.has(number) {
            return true;
        }
        if self.is_refused.load(Relaxed) {
            return false;
        }
        let reserved = self.reserved.load(Acquire);
        let end = ((number + 1) * self.entry).next_multiple_of(PAGE);
        // Another thread may have reserved more meanwhile.
        let size = end.saturating_sub(reserved);
        if system::keeping_errno(|| reserve_bytes(self.begin + reserved, size)) {
            self.reserved.fetch_max(end, Release);
        } else {
            self.is_refused.store(true, Relaxed);
        }
        self.has(number)
    }
}

/// An index of a table: numbers at places that the keys of its entries say. A rank that only begins needs none, so it gets its memory
/// when the first number is added.
pub(crate) struct Index(Table);

impl Index {
    pub(crate) const fn new(begin: usize) -> Self {
        Self(Table::new(begin, size_of::<AtomicU16>(), 0))
    }

    /// Returns whether there may be numbers in the index. Otherwise it must not be read.
    #[inline(always)]
    pub(crate) fn is_there(&self) -> bool {
        self.0.has(INDEX_SIZE - 1)
    }

    /// Makes sure that the memory of the index is there.
    pub(crate) fn reserve(&self) -> bool {
        self.0.reserve(INDEX_SIZE - 1)
    }

    /// Returns a place of the index.
    #[inline(always)]
    pub(crate) fn slot(&self, place: usize) -> &'static AtomicU16 {
        let offset = self.0.begin + self.0.entry * (place % INDEX_SIZE);
        // SAFETY: an index has INDEX_SIZE places, which are atomic, and whoever reads it knows that its memory is there.
        unsafe { &*at(offset).cast::<AtomicU16>() }
    }
}

/// Makes sure that the memory for some bytes is there.
pub(crate) fn reserve_bytes(begin: usize, size: usize) -> bool {
    if size == 0 {
        return true;
    }
    // The file is opened again: a descriptor that stays open could become another file, if the program closes all.
    // SAFETY: the path ends with a 0, and is not written any more.
    unsafe {
        let file = system::open(
            (&raw const PATH).cast(),
            system::O_RDWR | system::O_NOFOLLOW | system::O_CLOEXEC,
        );
        if file < 0 {
            return false;
        }
        let reserved = allocate(file, begin, size);
        system::close(file);
        reserved
    }
}

/// Asks for the memory of some bytes of a file, again if a signal interrupts that.
fn allocate(file: c_int, begin: usize, size: usize) -> bool {
    for _ in 0..INTERRUPTIONS_MAX {
        // SAFETY: the function changes nothing but a file of ours.
        if unsafe { system::fallocate(file, 0, begin as i64, size as i64) } == 0 {
            return true;
        }
        if system::errno() != system::EINTR {
            return false;
        }
    }
    false
}

/// A path in the making.
struct Writer<'a> {
    path: &'a mut [u8; PATH_MAX],
    used: usize,
}

impl Writer<'_> {
    fn put(&mut self, bytes: &[u8]) -> Option<()> {
        let end = self.used + bytes.len();
        self.path.get_mut(self.used..end)?.copy_from_slice(bytes);
        self.used = end;
        Some(())
    }

    fn number(&mut self, number: u32) -> Option<()> {
        let mut digits = [0_u8; 10];
        let (mut at, mut rest) = (digits.len(), number);
        loop {
            at -= 1;
            digits[at] = b'0' + (rest % 10) as u8;
            rest /= 10;
            if rest == 0 {
                return self.put(&digits[at..]);
            }
        }
    }
}

/// Notes that a poll has found something.
pub(crate) fn progress() {
    header().progress.fetch_add(1, Relaxed);
}

/// Notes that a call may have had an effect that was not counted.
pub(crate) fn doubt() {
    header().doubts.fetch_add(1, Relaxed);
}

/// Returns whether `MPI_Init` has returned.
pub(crate) fn is_initialized() -> bool {
    header().phase.load(Relaxed) != 0
}

/// Notes how far the process is.
pub(crate) fn set_phase(phase: u32) {
    header().phase.store(phase, Release);
}
