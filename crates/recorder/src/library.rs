//! The MPI library of the process: its functions, its constants, and where its code is.

use core::{
    ffi::{CStr, c_char, c_int, c_void},
    ptr,
    sync::atomic::{
        AtomicPtr, AtomicU32, AtomicU64, AtomicUsize,
        Ordering::{Acquire, Relaxed, Release},
    },
};

use calls::{COUNT, FUNCTIONS, Flavor};

use crate::{
    names,
    system::{self, LoadedObject},
};

/// The library's functions: `MPI_X` at twice the number of the function, `PMPI_X` after it.
static ADDRESSES: [AtomicPtr<c_void>; 2 * COUNT] =
    [const { AtomicPtr::new(ptr::null_mut()) }; 2 * COUNT];
/// How `dlsym` finds the library, if it does not by search order: what Python has loaded, for example.
static HANDLE: AtomicPtr<c_void> = AtomicPtr::new(ptr::null_mut());
static FLAVOR: AtomicU32 = AtomicU32::new(0);
/// The bits of a word that are a handle.
static HANDLE_BITS: AtomicU64 = AtomicU64::new(u64::MAX);
/// The handles of `MPI_COMM_WORLD` and `MPI_COMM_SELF`.
static WORLD: AtomicU64 = AtomicU64::new(0);
static SELF: AtomicU64 = AtomicU64::new(0);
static NULL: AtomicU64 = AtomicU64::new(0);
/// First and last address of the library's code and data.
static BEGIN: AtomicUsize = AtomicUsize::new(0);
static END: AtomicUsize = AtomicUsize::new(0);

/// Longest name of a function, with a `P` and a 0.
const NAME_MAX: usize = 64;

/// Returns the library's function that a stub stands for, or null if it was not looked up yet.
#[inline(always)]
pub(crate) fn function(stub: u32) -> *const c_void {
    ADDRESSES[stub as usize].load(Relaxed)
}

/// Returns the library's function that a stub stands for.
pub(crate) fn find(stub: u32) -> *const c_void {
    let known = function(stub);
    if !known.is_null() {
        return known;
    }
    if FLAVOR.load(Relaxed) == 0 {
        discover();
    }
    let mut found = look_up(stub);
    if found.is_null() {
        found = no_library as *mut c_void;
    }
    ADDRESSES[stub as usize].store(found, Relaxed);
    found
}

/// Stands for a function that no library has. Only a program without MPI calls it, because it has found our symbol.
extern "C" fn no_library() -> c_int {
    /// Any error will do: no program knows the numbers of a library that it does not have.
    const ERROR: c_int = 1;
    ERROR
}

/// Returns whether the library has a function.
pub(crate) fn has(stub: u32) -> bool {
    find(stub) != no_library as *const c_void
}

/// Returns whether the program calls the library if it calls a function, and not a tool that is part of it.
pub(crate) fn is_default(stub: u32) -> bool {
    let buffer = name_of(stub);
    // SAFETY: the name ends with a 0.
    let default = unsafe { system::dlsym(system::RTLD_DEFAULT, buffer.as_ptr().cast()) };
    default.is_null() || default.cast_const() == find(stub)
}

/// Returns the name of the function of a stub, which ends with a 0.
fn name_of(stub: u32) -> [u8; NAME_MAX] {
    let name = names::name(stub as usize / 2);
    let mut buffer = [0_u8; NAME_MAX];
    let profiling = usize::from(stub % 2 == 1);
    let begin = profiling + names::PREFIX.len();
    buffer[0] = b'P';
    buffer[profiling..begin].copy_from_slice(names::PREFIX);
    buffer[begin..begin + name.len()].copy_from_slice(name);
    buffer
}

fn look_up(stub: u32) -> *mut c_void {
    let buffer = name_of(stub);
    let name = buffer.as_ptr().cast::<c_char>();
    let handle = HANDLE.load(Relaxed);
    // SAFETY: the name ends with a 0. The functions search what is loaded and change nothing.
    unsafe {
        let next = system::dlsym(system::RTLD_NEXT, name);
        // Without a handle, the search would find our own symbol, which would call itself.
        if next.is_null() && !handle.is_null() {
            system::dlsym(handle, name)
        } else {
            next
        }
    }
}

/// Finds the library, and what kind of library it is.
fn discover() {
    // SAFETY: the name ends with a 0.
    let mut init = unsafe { system::dlsym(system::RTLD_NEXT, c"PMPI_Init".as_ptr()) };
    if init.is_null() {
        init = search();
    }
    let range = Range::around(init as usize);
    BEGIN.store(range.begin, Relaxed);
    END.store(range.end, Relaxed);
    let world = symbol(c"ompi_mpi_comm_world");
    let flavor = if !world.is_null() {
        WORLD.store(world as u64, Relaxed);
        SELF.store(symbol(c"ompi_mpi_comm_self") as u64, Relaxed);
        NULL.store(symbol(c"ompi_mpi_comm_null") as u64, Relaxed);
        Flavor::OpenMpi
    } else if range.standard {
        WORLD.store(0x101, Relaxed);
        SELF.store(0x102, Relaxed);
        NULL.store(0x100, Relaxed);
        Flavor::Standard
    } else {
        WORLD.store(0x4400_0000, Relaxed);
        SELF.store(0x4400_0001, Relaxed);
        NULL.store(0x0400_0000, Relaxed);
        Flavor::Mpich
    };
    HANDLE_BITS.store(flavor.handle(u64::MAX), Relaxed);
    FLAVOR.store(flavor as u32, Relaxed);
}

/// Returns the address of a variable of the library. A program may have a copy of it, which is then the one that counts, so the
/// search begins at the program.
fn symbol(name: &CStr) -> *const c_void {
    // SAFETY: the name ends with a 0.
    unsafe {
        let found = system::dlsym(system::RTLD_DEFAULT, name.as_ptr());
        let handle = HANDLE.load(Relaxed);
        if found.is_null() && !handle.is_null() {
            system::dlsym(handle, name.as_ptr())
        } else {
            found
        }
    }
}

/// Objects that are looked at for a library which the search order does not have.
const OBJECTS_MAX: usize = 1024;

/// End of the name of this library, which has a symbol `PMPI_Init` of its own.
const OWN_NAME: &[u8] = b"librally-calls.so";

struct Objects {
    names: [*const c_char; OBJECTS_MAX],
    count: usize,
}

unsafe extern "C" fn collect(object: *const LoadedObject, _: usize, data: *mut c_void) -> c_int {
    // SAFETY: `search` passes the address of an `Objects`, and the C library that of an object.
    let (objects, object) = unsafe { (&mut *data.cast::<Objects>(), &*object) };
    // SAFETY: the name of an object is never null, and ends with a 0.
    let name = unsafe { CStr::from_ptr(object.name) }.to_bytes();
    if objects.count < OBJECTS_MAX && !name.is_empty() && !name.ends_with(OWN_NAME) {
        objects.names[objects.count] = object.name;
        objects.count += 1;
    }
    0
}

/// Finds `PMPI_Init` in an object that was loaded for itself (`RTLD_LOCAL`), and remembers how to find more in it.
fn search() -> *mut c_void {
    let mut objects = Objects {
        names: [ptr::null(); OBJECTS_MAX],
        count: 0,
    };
    // SAFETY: `collect` gets the address of `objects`, which outlives the call. The search itself comes after it, because the
    // function holds a lock of the loader.
    unsafe { system::dl_iterate_phdr(collect, (&raw mut objects).cast()) };
    for name in &objects.names[..objects.count] {
        // SAFETY: the names are those of loaded objects, and nothing is loaded (`RTLD_NOLOAD`).
        let found = unsafe {
            let handle = system::dlopen(*name, system::RTLD_LAZY | system::RTLD_NOLOAD);
            if handle.is_null() {
                continue;
            }
            HANDLE.store(handle, Relaxed);
            system::dlsym(handle, c"PMPI_Init".as_ptr())
        };
        if !found.is_null() {
            return found;
        }
    }
    HANDLE.store(ptr::null_mut(), Relaxed);
    ptr::null_mut()
}

/// Where a loaded object is, and what its name says.
struct Range {
    address: usize,
    begin: usize,
    end: usize,
    /// It has the standard's binary interface.
    standard: bool,
    plugin: bool,
}

impl Range {
    /// Returns the object that contains an address.
    fn around(address: usize) -> Self {
        let mut range = Self {
            address,
            begin: 0,
            end: 0,
            standard: false,
            plugin: false,
        };
        // SAFETY: `contains_address` gets the address of `range`, which outlives the call.
        unsafe { system::dl_iterate_phdr(contains_address, (&raw mut range).cast()) };
        range
    }
}

unsafe extern "C" fn contains_address(
    object: *const LoadedObject,
    _: usize,
    data: *mut c_void,
) -> c_int {
    // SAFETY: `discover` passes the address of a `Range`, and the C library that of an object.
    let (range, object) = unsafe { (&mut *data.cast::<Range>(), &*object) };
    let (mut begin, mut end) = (usize::MAX, 0);
    for at in 0..usize::from(object.count) {
        // SAFETY: an object has `count` headers.
        let header = unsafe { &*object.headers.add(at) };
        if header.kind == system::PT_LOAD {
            let address = object.address + header.address as usize;
            begin = begin.min(address);
            end = end.max(address + header.memory_size as usize);
        }
    }
    if !(begin..end).contains(&range.address) {
        return 0;
    }
    (range.begin, range.end) = (begin, end);
    // SAFETY: the name of an object is never null, and ends with a 0.
    let name = unsafe { CStr::from_ptr(object.name) }.to_bytes();
    range.standard = name.windows(10).any(|part| part == b"libmpi_abi");
    let file = name.rsplit(|letter| *letter == b'/').next();
    range.plugin =
        file.is_some_and(|file| file.starts_with(b"mca_") || file.starts_with(b"libmca_"));
    1
}

/// Objects that were looked at for plug-ins: the first address, and the last one, which is odd for a plug-in. They are never changed.
static SEEN: [(AtomicUsize, AtomicUsize); 16] =
    [const { (AtomicUsize::new(0), AtomicUsize::new(0)) }; 16];
static SEEN_COUNT: AtomicUsize = AtomicUsize::new(0);

/// Returns whether an address is in a plug-in of the library. Those of Open MPI 4 call MPI as programs do, to read and write files.
pub(crate) fn is_in_plugin(address: u64) -> bool {
    let address = address as usize;
    let known = SEEN.iter().find_map(|(begin, last)| {
        let (begin, last) = (begin.load(Acquire), last.load(Relaxed));
        (begin != 0 && (begin..=last).contains(&address)).then_some(last % 2 == 1)
    });
    known.unwrap_or_else(|| {
        let range = Range::around(address);
        let place = SEEN.get(SEEN_COUNT.fetch_add(1, Relaxed).min(SEEN.len()));
        if let Some((begin, last)) = place.filter(|_| range.begin != 0) {
            last.store(range.end / 2 * 2 + usize::from(range.plugin), Relaxed);
            begin.store(range.begin, Release);
        }
        range.plugin
    })
}

/// Returns whether an address is in the library.
pub(crate) fn contains(address: u64) -> bool {
    (BEGIN.load(Relaxed)..END.load(Relaxed)).contains(&(address as usize))
}

/// Returns the kind of the library. Before the first call is looked up, it is any.
#[inline(always)]
pub(crate) fn flavor() -> Flavor {
    match FLAVOR.load(Relaxed) {
        2 => Flavor::OpenMpi,
        3 => Flavor::Standard,
        _ => Flavor::Mpich,
    }
}

/// Returns the bits of an argument that are a handle.
#[inline(always)]
pub(crate) fn handle(word: u64) -> u64 {
    word & HANDLE_BITS.load(Relaxed)
}

/// Reads the handle at an address that the program has passed to a function which reads it too.
pub(crate) fn read_handle(address: u64) -> u64 {
    nth_handle(address, 0)
}

/// Reads a handle of an array.
pub(crate) fn nth_handle(address: u64, index: usize) -> u64 {
    if address == 0 {
        return 0;
    }
    // SAFETY: the program says that handles are there, and the library has read or written them, or is about to.
    unsafe {
        if flavor().handle_size() == 4 {
            u64::from((address as *const u32).add(index).read_unaligned())
        } else {
            (address as *const u64).add(index).read_unaligned()
        }
    }
}

/// Reads what a poll has found, at an address where the library has written it.
pub(crate) fn found_something(address: u64) -> bool {
    /// `MPI_UNDEFINED`, with every library.
    const UNDEFINED: i32 = -32766;
    if address == 0 {
        return false;
    }
    // SAFETY: the library has just written a number there, without an error.
    let found = unsafe { (address as *const i32).read_unaligned() };
    found != 0 && found != UNDEFINED
}

/// Returns the handle of `MPI_COMM_WORLD`.
pub(crate) fn world() -> u64 {
    WORLD.load(Relaxed)
}

/// Returns the handle of `MPI_COMM_NULL`.
pub(crate) fn null() -> u64 {
    NULL.load(Relaxed)
}

/// Returns the handle of `MPI_COMM_SELF`.
pub(crate) fn own() -> u64 {
    SELF.load(Relaxed)
}

/// Returns the number of a function. In a constant, this costs nothing.
pub(crate) const fn number(name: &str) -> u32 {
    let mut at = 0;
    while at < COUNT {
        if equal(FUNCTIONS[at].name, name) {
            return at as u32;
        }
        at += 1;
    }
    panic!("no such function");
}

const fn equal(one: &str, other: &str) -> bool {
    let (one, other) = (one.as_bytes(), other.as_bytes());
    if one.len() != other.len() {
        return false;
    }
    let mut at = 0;
    while at < one.len() {
        if one[at] != other[at] {
            return false;
        }
        at += 1;
    }
    true
}

/// Returns the library's own function, which is not recorded.
pub(crate) fn profiling(number: u32) -> *const c_void {
    find(2 * number + 1)
}

/// Returns whether the function is `MPI_Win_fence`, the only call about an epoch that is collective.
pub(crate) fn is_fence(function: u32) -> bool {
    const FENCE: u32 = number("MPI_Win_fence");
    function == FENCE
}

/// Returns whether what a function returns is an address, and not whether it has succeeded.
pub(crate) fn returns_address(function: u32) -> bool {
    const ADD: u32 = number("MPI_Aint_add");
    const DIFF: u32 = number("MPI_Aint_diff");
    matches!(function, ADD | DIFF)
}
