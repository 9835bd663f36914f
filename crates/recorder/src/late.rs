//! Functions that some MPI libraries lack. The recorder must not have symbols for them, so it changes the pointers by which loaded
//! objects call them: the slots of their relocations. That is done at the first call of each function, and when `MPI_Init` or a
//! call that makes a communicator has returned, if objects were loaded since.
//!
//! Objects have tens of thousands of relocations, and their symbols are fewer. So the symbols say first whether an object has such a
//! pointer.

use core::{
    ffi::{CStr, c_char, c_int, c_void},
    ops::Range,
    ptr,
    sync::atomic::{AtomicPtr, AtomicU8, AtomicU64, AtomicUsize, Ordering::Relaxed},
};

use calls::{COUNT, Class};

use crate::{
    hot::HOT,
    late_stubs, library, names, region,
    system::{self, LoadedObject, PT_DYNAMIC, PT_GNU_RELRO, ProgramHeader},
};

/// Number of objects that were ever loaded, when the pointers were changed last.
static LOADED: AtomicU64 = AtomicU64::new(0);
/// Number of objects that were ever unloaded, then.
static UNLOADED: AtomicU64 = AtomicU64::new(0);
/// Number of objects that there were, then. Those that are loaded later come after them, unless one was unloaded.
static THERE: AtomicUsize = AtomicUsize::new(0);

/// Entries of a dynamic section that are looked at.
const ENTRIES_MAX: usize = 1024;

/// What is known of each stub: whether an object calls its function, and whether the pointers are to be changed.
static STUBS: [AtomicU8; 2 * COUNT] = [const { AtomicU8::new(UNSEEN) }; 2 * COUNT];
const UNSEEN: u8 = 0;
const SEEN: u8 = 1;
const KEPT: u8 = 2;
const CHANGED: u8 = 3;

/// Who has loaded the objects that are new.
#[derive(Clone, Copy)]
pub(crate) enum Loader {
    /// Anybody.
    Any,
    /// The library, in `MPI_Init`: its transports and plug-ins, of which those that call MPI say that they need it.
    Library,
}

/// A walk over the pointers of all objects.
enum Walk {
    /// Finds the functions that are called. Begins with the objects that are new.
    Look {
        loader: Loader,
        known: usize,
        at: usize,
    },
    /// Changes the pointers. The flag is set if there was one to a function that counts something.
    Change(bool),
}

/// Changes the pointers of objects that were loaded since the last time.
pub(crate) fn patch(loader: Loader) {
    let mut loaded = 0_u64;
    // SAFETY: the function gets the address of a number, which outlives the call.
    unsafe { system::dl_iterate_phdr(count_loads, (&raw mut loaded).cast()) };
    if LOADED.load(Relaxed) == loaded {
        return;
    }
    walk(&mut Walk::Look {
        loader,
        known: 0,
        at: 0,
    });
    // Not during a walk: it holds a lock of the loader, and the search for a symbol takes another one.
    for (stub, state) in STUBS.iter().enumerate() {
        if state.load(Relaxed) == SEEN {
            state.store(decide(stub as u32), Relaxed);
        }
    }
    if !(0..2 * COUNT as u32).any(is_changed) {
        return;
    }
    let mut change = Walk::Change(false);
    walk(&mut change);
    // These objects may have called such functions since they were loaded.
    if matches!(change, Walk::Change(true)) && region::is_initialized() {
        region::doubt();
    }
}

fn walk(walk: &mut Walk) {
    // SAFETY: the function gets the address of a walk, which outlives the call.
    unsafe { system::dl_iterate_phdr(visit_object, ptr::from_mut(walk).cast()) };
}

/// Returns whether the pointers to a function are changed: if the library has it, and no tool that is part of the program has it too.
fn decide(stub: u32) -> u8 {
    if !library::has(stub) {
        return KEPT;
    }
    if library::is_default(stub) {
        return CHANGED;
    }
    if counts(stub) {
        region::doubt();
    }
    KEPT
}

/// Returns whether calls of a function are counted, or end such calls.
fn counts(stub: u32) -> bool {
    !matches!(HOT[stub as usize / 2].class, Class::Local | Class::Poll)
}

unsafe extern "C" fn count_loads(
    object: *const LoadedObject,
    size: usize,
    data: *mut c_void,
) -> c_int {
    if size >= size_of::<LoadedObject>() {
        // SAFETY: the C library says that it has written that much, and `patch` passes the address of a number.
        unsafe { *data.cast::<u64>() = (*object).loads };
    }
    1
}

/// `Elf64_Dyn`.
#[repr(C)]
struct Dynamic {
    tag: i64,
    value: u64,
}

/// `Elf64_Rela`.
#[repr(C)]
struct Relocation {
    offset: u64,
    info: u64,
    addend: i64,
}

impl Relocation {
    const fn symbol(&self) -> usize {
        (self.info >> 32) as usize
    }
}

/// `Elf64_Sym`.
#[repr(C)]
struct Symbol {
    name: u32,
    info: u8,
    other: u8,
    section: u16,
    value: u64,
    size: u64,
}

const DT_NEEDED: i64 = 1;
const DT_PLTRELSZ: i64 = 2;
const DT_HASH: i64 = 4;
const DT_STRTAB: i64 = 5;
const DT_SYMTAB: i64 = 6;
const DT_RELA: i64 = 7;
const DT_RELASZ: i64 = 8;
const DT_JMPREL: i64 = 23;
const DT_GNU_HASH: i64 = 0x6fff_fef5;

/// What the dynamic section of an object says.
#[derive(Default)]
struct Tables {
    names: u64,
    symbols: u64,
    /// How many symbols from the beginning include all undefined ones; less than two if it is not known.
    count: usize,
    plain: (u64, u64),
    of_calls: (u64, u64),
}

unsafe extern "C" fn visit_object(
    object: *const LoadedObject,
    size: usize,
    data: *mut c_void,
) -> c_int {
    // SAFETY: the C library passes the address of an object, and `walk` that of a walk.
    let (object, walk) = unsafe { (&*object, &mut *data.cast::<Walk>()) };
    if let Walk::Look { known, at, .. } = walk {
        if *at == 0 && size >= size_of::<LoadedObject>() {
            *known = known_objects(object);
        }
        *at += 1;
        THERE.store(*at, Relaxed);
        if *at <= *known {
            return 0;
        }
    }
    let headers = (0..usize::from(object.count)).map(|at| {
        // SAFETY: an object has `count` headers.
        unsafe { &*object.headers.add(at) }
    });
    let (mut dynamic, mut protected) = (None, 0..0);
    for header in headers {
        match header.kind {
            PT_DYNAMIC => dynamic = Some(object.address as u64 + header.address),
            PT_GNU_RELRO => protected = range(object, header),
            _ => {}
        }
    }
    // The library's own calls are not those of the program.
    let Some(dynamic) = dynamic.filter(|dynamic| !library::contains(*dynamic)) else {
        return 0;
    };
    let tables = tables(object, dynamic);
    if tables.names == 0 || tables.symbols == 0 {
        return 0;
    }
    match &mut *walk {
        Walk::Look {
            loader: Loader::Library,
            ..
        } if !needs_mpi(&tables, dynamic) => {}
        Walk::Look { .. } => {
            for stub in tables.undefined() {
                let state = &STUBS[stub as usize];
                if state.load(Relaxed) == UNSEEN {
                    state.store(SEEN, Relaxed);
                }
            }
        }
        Walk::Change(counting) => {
            if tables.undefined().any(is_changed) {
                *counting |= change(object, &tables, &protected);
            }
        }
    }
    0
}

fn is_changed(stub: u32) -> bool {
    STUBS[stub as usize].load(Relaxed) == CHANGED
}

/// Changes the pointers of an object. Returns whether there was one to a function that counts something.
fn change(object: &LoadedObject, tables: &Tables, protected: &Range<u64>) -> bool {
    let mut counting = false;
    for relocation in tables.relocations() {
        if is_pointer_to_function(relocation.info as u32)
            && let Some(stub) = tables.stub_of(relocation.symbol())
            && is_changed(stub)
        {
            let slot = object.address as u64 + relocation.offset;
            let is_new = patch_slot(slot, stub, protected.contains(&slot));
            counting |= is_new && counts(stub);
        }
    }
    counting
}

fn range(object: &LoadedObject, header: &ProgramHeader) -> Range<u64> {
    let begin = object.address as u64 + header.address;
    begin..begin + header.memory_size
}

fn tables(object: &LoadedObject, dynamic: u64) -> Tables {
    let mut tables = Tables::default();
    // Some C libraries have made addresses of these offsets, others have not.
    let address = |value: u64| {
        let base = object.address as u64;
        if value < base { base + value } else { value }
    };
    for entry in entries(dynamic) {
        match entry.tag {
            DT_STRTAB => tables.names = address(entry.value),
            DT_SYMTAB => tables.symbols = address(entry.value),
            DT_RELA => tables.plain.0 = address(entry.value),
            DT_RELASZ => tables.plain.1 = entry.value,
            DT_GNU_HASH => {
                let table = GnuHash(address(entry.value) as *const u32);
                tables.count = if is_program(object) {
                    table.end()
                } else {
                    table.first()
                };
            }
            // The second number: all symbols.
            DT_HASH if tables.count == 0 => {
                // SAFETY: such a table begins with two numbers.
                tables.count = unsafe { *(address(entry.value) as *const u32).add(1) } as usize;
            }
            DT_JMPREL => tables.of_calls.0 = address(entry.value),
            DT_PLTRELSZ => tables.of_calls.1 = entry.value,
            _ => {}
        }
    }
    tables
}

/// Returns how many objects at the beginning of a walk were looked at, and notes that now all are. The C library lets nobody load
/// or unload objects during a walk.
fn known_objects(first: &LoadedObject) -> usize {
    let there = THERE.load(Relaxed);
    LOADED.store(first.loads, Relaxed);
    if UNLOADED.swap(first.unloads, Relaxed) == first.unloads {
        there
    } else {
        0
    }
}

/// Returns whether an object says that it needs an MPI library, or a library of one language for it.
fn needs_mpi(tables: &Tables, dynamic: u64) -> bool {
    let needed = entries(dynamic).filter(|entry| entry.tag == DT_NEEDED);
    needed.into_iter().any(|entry| {
        // SAFETY: the dynamic section has the offset of a name that ends with a 0.
        let name = unsafe { CStr::from_ptr((tables.names + entry.value) as *const c_char) };
        name.to_bytes().starts_with(b"libmpi")
    })
}

/// Returns the entries of a dynamic section.
fn entries(dynamic: u64) -> impl Iterator<Item = &'static Dynamic> {
    (0..ENTRIES_MAX)
        // SAFETY: a dynamic section ends with an entry whose tag is 0, and none is looked at after it.
        .map(move |at| unsafe { &*(dynamic as *const Dynamic).add(at) })
        .take_while(|entry| entry.tag != 0)
}

/// Returns whether an object may be the program itself, which has no name for most C libraries, and which alone can have fixed
/// addresses.
fn is_program(object: &LoadedObject) -> bool {
    // SAFETY: the name of an object is never null, and ends with a 0.
    object.address == 0 || unsafe { *object.name == 0 }
}

/// The hash table of an object. It has the symbols from a first one on.
struct GnuHash(*const u32);

impl GnuHash {
    fn word(&self, at: usize) -> u32 {
        // SAFETY: the table has four numbers, a filter of words of 64 bits, the buckets, and the chains, of which the last one ends
        // with an odd number.
        unsafe { *self.0.add(at) }
    }

    /// Returns the number of the first symbol. Those before it are the undefined ones of an object that is not the program.
    fn first(&self) -> usize {
        self.word(1) as usize
    }

    /// Returns the number of symbols, or the number of the first one if the table is empty. In a program, the table may also have
    /// undefined symbols: those whose address it takes.
    fn end(&self) -> usize {
        let (buckets, filter) = (self.word(0) as usize, self.word(2) as usize);
        let begin = 4 + 2 * filter;
        let highest = (begin..begin + buckets).map(|at| self.word(at)).max();
        // Without one, GNU ld writes that the first is 1, and others the number of all symbols.
        let highest = highest.filter(|it| *it as usize >= self.first() && *it != 0);
        let Some(mut at) = highest.map(|it| it as usize) else {
            return self.first();
        };
        while self
            .word(begin + buckets + at - self.first())
            .is_multiple_of(2)
        {
            at += 1;
        }
        at + 1
    }
}

impl Tables {
    /// Returns the stubs of the functions that the object calls and that some libraries lack.
    fn undefined(&self) -> impl Iterator<Item = u32> {
        let count = if self.count > 1 {
            self.count
        } else {
            let last = self.relocations().map(Relocation::symbol).max();
            last.map_or(0, |last| last + 1)
        };
        (1..count).filter_map(|symbol| self.stub_of(symbol))
    }

    fn relocations(&self) -> impl Iterator<Item = &'static Relocation> {
        [self.plain, self.of_calls]
            .into_iter()
            .flat_map(|(begin, size)| {
                let count = size as usize / size_of::<Relocation>();
                // SAFETY: the dynamic section says that these relocations are there; the dynamic linker has used them. Objects of the
                // program stay while the recorder looks at them.
                (0..count).map(move |at| unsafe { &*(begin as *const Relocation).add(at) })
            })
    }

    /// Returns the stub for an undefined symbol, if it is a function that some libraries lack.
    fn stub_of(&self, symbol: usize) -> Option<u32> {
        // SAFETY: a relocation has the number of a symbol, or it is less than the number of symbols; and the symbol has the offset of
        // a name that ends with a 0.
        let name = unsafe {
            let symbol = &*(self.symbols as *const Symbol).add(symbol);
            let name = (self.names + u64::from(symbol.name)) as *const u8;
            // Most names are others, whose ends are not worth a search.
            if symbol.section != 0 || !matches!(*name, b'M' | b'P') {
                return None;
            }
            CStr::from_ptr(name.cast())
        };
        let name = name.to_bytes();
        let profiling = name.first() == Some(&b'P');
        let plain = &name[usize::from(profiling)..];
        let number = names::find(plain.strip_prefix(names::PREFIX)?)?;
        let stub = 2 * number as u32 + u32::from(profiling);
        late_stubs::address(stub).map(|_| stub)
    }
}

/// Lets a slot point to a stub, and returns whether it did not. An empty one stays empty: it is a weak reference which the program
/// tests.
fn patch_slot(slot: u64, stub: u32, protected: bool) -> bool {
    let page = (slot / 4096 * 4096) as *mut c_void;
    let Some(to) = late_stubs::address(stub).map(<*const c_void>::cast_mut) else {
        return false;
    };
    // SAFETY: the slot is memory of the object that holds the address of a function, and is aligned. Other threads read it while
    // they call the function, and see either address.
    unsafe {
        let slot = &*(slot as *const AtomicPtr<c_void>);
        let now = slot.load(Relaxed);
        if now.is_null() || now == to {
            return false;
        }
        if protected && system::mprotect(page, 4096, system::PROT_READ_WRITE) != 0 {
            return false;
        }
        slot.store(to, Relaxed);
        if protected {
            system::mprotect(page, 4096, system::PROT_READ);
        }
    }
    true
}

/// Returns whether a relocation of this type writes the address of a function: R_X86_64_64, GLOB_DAT or JUMP_SLOT.
const fn is_pointer_to_function(kind: u32) -> bool {
    matches!(kind, 1 | 6 | 7)
}
