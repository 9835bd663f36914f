//! The functions of the C library that the recorder needs. The `libc` crate is not used: this library is built without Cargo.

use core::ffi::{c_char, c_int, c_long, c_void};

pub(crate) const RTLD_DEFAULT: *mut c_void = core::ptr::null_mut();
pub(crate) const RTLD_NEXT: *mut c_void = -1_isize as *mut c_void;
pub(crate) const RTLD_LAZY: c_int = 1;
pub(crate) const RTLD_NOLOAD: c_int = 4;
/// A signal has interrupted the function.
pub(crate) const EINTR: c_int = 4;
pub(crate) const O_RDWR: c_int = 2;
pub(crate) const O_CREAT: c_int = 0o100;
pub(crate) const O_EXCL: c_int = 0o200;
pub(crate) const O_NOFOLLOW: c_int = 0o400_000;
pub(crate) const O_CLOEXEC: c_int = 0o2_000_000;
pub(crate) const PROT_READ: c_int = 1;
pub(crate) const PROT_READ_WRITE: c_int = 3;
pub(crate) const MAP_SHARED: c_int = 1;
pub(crate) const MAP_PRIVATE_ANONYMOUS: c_int = 0x22;
pub(crate) const CLOCK_BOOTTIME: c_int = 7;

#[repr(C)]
pub(crate) struct Timespec {
    pub(crate) seconds: i64,
    pub(crate) nanoseconds: c_long,
}

/// The beginning of `struct dl_phdr_info`. The last two are there if the size that comes with it says so.
#[repr(C)]
pub(crate) struct LoadedObject {
    pub(crate) address: usize,
    pub(crate) name: *const c_char,
    pub(crate) headers: *const ProgramHeader,
    pub(crate) count: u16,
    /// Number of objects that were ever loaded.
    pub(crate) loads: u64,
    /// Number of objects that were ever unloaded.
    pub(crate) unloads: u64,
}

/// `Elf64_Phdr`.
#[repr(C)]
pub(crate) struct ProgramHeader {
    pub(crate) kind: u32,
    pub(crate) flags: u32,
    pub(crate) offset: u64,
    pub(crate) address: u64,
    pub(crate) physical: u64,
    pub(crate) file_size: u64,
    pub(crate) memory_size: u64,
    pub(crate) alignment: u64,
}

pub(crate) const PT_LOAD: u32 = 1;
pub(crate) const PT_DYNAMIC: u32 = 2;
pub(crate) const PT_GNU_RELRO: u32 = 0x6474_e552;

unsafe extern "C" {
    #[cfg(all(preload, not(test)))]
    pub(crate) safe fn abort() -> !;
    pub(crate) fn dlsym(handle: *mut c_void, name: *const c_char) -> *mut c_void;
    pub(crate) fn dlopen(name: *const c_char, flags: c_int) -> *mut c_void;
    pub(crate) fn dl_iterate_phdr(
        each: unsafe extern "C" fn(*const LoadedObject, usize, *mut c_void) -> c_int,
        data: *mut c_void,
    ) -> c_int;
    pub(crate) fn getenv(name: *const c_char) -> *const c_char;
    pub(crate) fn open(path: *const c_char, flags: c_int, ...) -> c_int;
    pub(crate) fn unlink(path: *const c_char) -> c_int;
    pub(crate) fn ftruncate(file: c_int, size: i64) -> c_int;
    pub(crate) fn fallocate(file: c_int, mode: c_int, offset: i64, size: i64) -> c_int;
    pub(crate) fn close(file: c_int) -> c_int;
    pub(crate) fn mmap(
        address: *mut c_void,
        size: usize,
        protection: c_int,
        flags: c_int,
        file: c_int,
        offset: i64,
    ) -> *mut c_void;
    pub(crate) fn mprotect(address: *mut c_void, size: usize, protection: c_int) -> c_int;
    pub(crate) fn munmap(address: *mut c_void, size: usize) -> c_int;
    pub(crate) fn clock_gettime(clock: c_int, time: *mut Timespec) -> c_int;
    pub(crate) safe fn getpid() -> c_int;
    fn syscall(number: c_long, ...) -> c_long;
    pub(crate) safe fn tgkill(process: c_int, thread: c_int, signal: c_int) -> c_int;
    pub(crate) safe fn sched_yield() -> c_int;
    pub(crate) fn pthread_atfork(
        prepare: Option<extern "C" fn()>,
        parent: Option<extern "C" fn()>,
        child: Option<extern "C" fn()>,
    ) -> c_int;
    pub(crate) safe fn __errno_location() -> *mut c_int;
}

/// Returns the id of the calling thread. Old C libraries have no function for it.
pub(crate) fn thread_id() -> c_int {
    const GETTID: c_long = 186;
    // SAFETY: the call takes no arguments.
    unsafe { syscall(GETTID) as c_int }
}

/// Returns the time in nanoseconds since the system was started, as start times of processes are given.
pub(crate) fn since_boot() -> u64 {
    let mut time = Timespec {
        seconds: 0,
        nanoseconds: 0,
    };
    // SAFETY: the structure is the one that the function writes.
    unsafe { clock_gettime(CLOCK_BOOTTIME, &raw mut time) };
    (time.seconds as u64)
        .wrapping_mul(1_000_000_000)
        .wrapping_add(time.nanoseconds as u64)
}

/// Returns the error of the last function that has failed.
pub(crate) fn errno() -> c_int {
    // SAFETY: the function returns the address of a variable of the calling thread.
    unsafe { *__errno_location() }
}

/// Runs `work` and leaves `errno` as it was: the program may look at it after a call that did not change it.
pub(crate) fn keeping_errno<T>(work: impl FnOnce() -> T) -> T {
    let errno = __errno_location();
    // SAFETY: the address is that of a number that belongs to this thread.
    let before = unsafe { *errno };
    let done = work();
    // SAFETY: as above.
    unsafe { *errno = before };
    done
}
