//! The exported symbols, and the only code that accesses them.

use std::{
    ffi::{CString, c_char, c_int},
    ptr,
    sync::{Mutex, PoisonError},
};

use crate::{ARGUMENTS_SIZE, ContainsNul, Entry, PATH_SIZE, Server, State};

/// A row of the table as a debugger reads it. A debugger without debug information assumes this layout.
#[repr(C)]
pub(crate) struct MPIR_PROCDESC {
    host_name: *const c_char,
    executable_name: *const c_char,
    pid: c_int,
}

#[cfg(target_pointer_width = "64")]
const _: () = {
    assert!(size_of::<MPIR_PROCDESC>() == 24);
    assert!(std::mem::offset_of!(MPIR_PROCDESC, executable_name) == 8);
    assert!(std::mem::offset_of!(MPIR_PROCDESC, pid) == 16);
};

// SAFETY: the names start with `MPIR_`, a prefix that the interface reserves, so that nothing else in the executable has
// them. The same holds for every symbol below.
#[unsafe(no_mangle)]
static mut MPIR_proctable: *const MPIR_PROCDESC = ptr::null();
// SAFETY: the prefix is reserved, see above.
#[unsafe(no_mangle)]
static mut MPIR_proctable_size: c_int = 0;
// SAFETY: the prefix is reserved, see above.
#[unsafe(no_mangle)]
static mut MPIR_being_debugged: c_int = 0;
// SAFETY: the prefix is reserved, see above.
#[unsafe(no_mangle)]
static mut MPIR_debug_state: c_int = 0;
// SAFETY: the prefix is reserved, see above.
#[unsafe(no_mangle)]
static mut MPIR_debug_abort_string: *const c_char = ptr::null();
// SAFETY: the prefix is reserved, see above.
#[unsafe(no_mangle)]
static mut MPIR_i_am_starter: c_int = 1;
// SAFETY: the prefix is reserved, see above.
#[unsafe(no_mangle)]
static mut MPIR_partial_attach_ok: c_int = 1;
// SAFETY: the name is one that debuggers look up, and nothing else in the executable has it.
#[unsafe(no_mangle)]
static mut totalview_jobid: *const c_char = ptr::null();

// SAFETY: the prefix is reserved, see above.
#[unsafe(no_mangle)]
static mut MPIR_executable_path: [u8; PATH_SIZE] = [0; PATH_SIZE];
// SAFETY: the prefix is reserved, see above.
#[unsafe(no_mangle)]
static mut MPIR_server_arguments: [u8; ARGUMENTS_SIZE] = [0; ARGUMENTS_SIZE];

// It is in assembly for two reasons. A compiler must not know that it does nothing. And the frame in which a debugger stops
// decides which language the debugger uses.
std::arch::global_asm!(include_str!("symbols.s"));

// SAFETY: it is defined there: it takes nothing, returns nothing and does nothing.
unsafe extern "C" {
    /// The function on which a debugger puts its breakpoint.
    safe fn MPIR_Breakpoint();
}

/// What the exported pointers point to. Only the holder of the lock may write the exported symbols.
struct Memory {
    table: Vec<MPIR_PROCDESC>,
    texts: Vec<CString>,
    job: Option<CString>,
    reason: Option<CString>,
}

// SAFETY: the pointers in `table` point into `texts` of the same value, which is only read.
unsafe impl Send for Memory {}

static MEMORY: Mutex<Memory> = Mutex::new(Memory {
    table: Vec::new(),
    texts: Vec::new(),
    job: None,
    reason: None,
});

/// Returns true if a debugger has set `MPIR_being_debugged`. It may set or clear it at any time, so call this again
/// whenever the answer matters.
#[must_use]
pub fn being_debugged() -> bool {
    // SAFETY: the static is an aligned integer that no code of this process writes; the debugger writes it while we are
    // stopped. The read is volatile because the compiler cannot see that.
    unsafe { (&raw const MPIR_being_debugged).read_volatile() != 0 }
}

/// Returns the server that the debugger wants on each node; `None` if it wants none. It may write the symbols at any time that it stops
/// us, so call this again whenever the answer matters.
#[must_use]
pub fn server() -> Option<Server> {
    // SAFETY: the statics are arrays of bytes that no code of this process writes; the debugger writes them while we are stopped. The
    // reads are volatile because the compiler cannot see that.
    let (path, arguments) = unsafe {
        (
            (&raw const MPIR_executable_path).read_volatile(),
            (&raw const MPIR_server_arguments).read_volatile(),
        )
    };
    Server::read(&path, &arguments)
}

/// Replaces the contents of the table. A debugger that reads without stopping us sees the old table, none, or the new one.
///
/// # Errors
///
/// [`ContainsNul`] if a name cannot be a C string; the table is unchanged then.
pub fn publish(table: Vec<Entry>) -> Result<(), ContainsNul> {
    let mut texts: Vec<CString> = Vec::new();
    let mut rows = Vec::with_capacity(table.len());
    for Entry {
        host,
        executable,
        pid,
    } in table
    {
        // Consecutive ranks mostly share a node and an executable: reuse the text of the previous row.
        let mut intern = |text: String, back: usize| match texts
            .iter()
            .rev()
            .take(back)
            .find(|old| old.as_bytes() == text.as_bytes())
        {
            Some(old) => Ok(old.as_ptr()),
            None => {
                let text = CString::new(text).map_err(|_| ContainsNul)?;
                // The characters are on the heap and do not move when `texts` grows.
                let pointer = text.as_ptr();
                texts.push(text);
                Ok(pointer)
            }
        };
        rows.push(MPIR_PROCDESC {
            host_name: intern(host, 4)?,
            executable_name: intern(executable, 4)?,
            pid,
        });
    }
    let size = c_int::try_from(rows.len()).unwrap_or(c_int::MAX);

    let mut memory = MEMORY.lock().unwrap_or_else(PoisonError::into_inner);
    // The size is set to 0 before the pointer changes, and set to its value afterwards: it never covers rows that do not
    // exist.
    // SAFETY: the lock makes this the only writer, and each write is one aligned volatile store.
    unsafe {
        (&raw mut MPIR_proctable_size).write_volatile(0);
        (&raw mut MPIR_proctable).write_volatile(ptr::null());
    }
    memory.table = rows;
    memory.texts = texts;
    // SAFETY: as above; the rows and their texts live in a static until the next call, which clears the pointer first.
    unsafe {
        (&raw mut MPIR_proctable).write_volatile(memory.table.as_ptr());
        (&raw mut MPIR_proctable_size).write_volatile(size);
    }
    Ok(())
}

/// Sets the name under which the launcher's tools know the job.
///
/// # Errors
///
/// [`ContainsNul`] if the name cannot be a C string; the symbol is unchanged then.
pub fn name_job(name: &str) -> Result<(), ContainsNul> {
    let name = CString::new(name).map_err(|_| ContainsNul)?;
    let mut memory = MEMORY.lock().unwrap_or_else(PoisonError::into_inner);
    // SAFETY: the lock makes this the only writer, and each write is one aligned volatile store. The characters are on the
    // heap and live until the next call, which clears the pointer first.
    unsafe {
        (&raw mut totalview_jobid).write_volatile(ptr::null());
        let name = memory.job.insert(name);
        (&raw mut totalview_jobid).write_volatile(name.as_ptr());
    }
    Ok(())
}

/// Sets the state that a debugger sees at the next [`breakpoint`].
///
/// # Errors
///
/// [`ContainsNul`] if the reason of an abort cannot be a C string; the symbols are unchanged then.
pub fn set_state(state: State<'_>) -> Result<(), ContainsNul> {
    let (value, reason) = match state {
        State::Null => (0, None),
        State::Spawned => (1, None),
        State::Aborting { reason } => (2, Some(CString::new(reason).map_err(|_| ContainsNul)?)),
    };
    let mut memory = MEMORY.lock().unwrap_or_else(PoisonError::into_inner);
    // SAFETY: the lock makes this the only writer, and each write is one aligned volatile store. The characters of the
    // reason are on the heap and live until the next call, which clears the pointer first. The state is written last, so a
    // debugger that sees it also sees the reason.
    unsafe {
        (&raw mut MPIR_debug_abort_string).write_volatile(ptr::null());
        memory.reason = reason;
        if let Some(reason) = &memory.reason {
            (&raw mut MPIR_debug_abort_string).write_volatile(reason.as_ptr());
        }
        (&raw mut MPIR_debug_state).write_volatile(value);
    }
    Ok(())
}

/// Calls `MPIR_Breakpoint`. A debugger with a breakpoint there stops this process until it has read the symbols. Without
/// one, this returns immediately.
pub fn breakpoint() {
    // This makes the linker keep the symbols whose presence alone is meaningful.
    // SAFETY: the statics are aligned integers that no code of this process writes.
    unsafe {
        std::hint::black_box((&raw const MPIR_i_am_starter).read_volatile());
        std::hint::black_box((&raw const MPIR_partial_attach_ok).read_volatile());
    }
    MPIR_Breakpoint();
}

#[cfg(test)]
mod tests {
    use std::{collections::BTreeSet, ffi::CStr};

    use super::*;

    /// If a new symbol is missing in the list, the linker drops it silently.
    #[test]
    fn the_list_names_every_symbol_of_this_file() {
        let code = include_str!("exported.rs");
        let word = |rest: &'static str| {
            rest.split(|c: char| !c.is_alphanumeric() && c != '_')
                .next()
        };
        let defined: BTreeSet<_> = ["static mut ", "safe fn "]
            .iter()
            .flat_map(|start| code.split(start).skip(1).filter_map(word))
            .filter(|name| name.starts_with("MPIR_") || name.starts_with("totalview_"))
            .collect();
        assert_eq!(crate::symbols().collect::<BTreeSet<_>>(), defined);
        assert_eq!(defined.len(), crate::symbols().count());
        // The debug information in `symbols.s` must describe the same variables.
        let typed: BTreeSet<_> = include_str!("symbols.s")
            .lines()
            .filter_map(|line| {
                line.trim()
                    .strip_prefix("mpir_variable ")?
                    .split(',')
                    .next()
            })
            .chain(["MPIR_Breakpoint"])
            .collect();
        assert_eq!(typed, defined);
    }

    /// A debugger that has only the symbol table assumes these sizes.
    #[test]
    fn the_symbols_have_the_sizes_of_the_interface() {
        // SAFETY: no test writes these symbols as anything but whole values, and only their sizes are used here.
        let sizes = unsafe {
            [
                size_of_val(&(&raw const MPIR_proctable).read_volatile()),
                size_of_val(&(&raw const MPIR_proctable_size).read_volatile()),
                size_of_val(&(&raw const MPIR_being_debugged).read_volatile()),
                size_of_val(&(&raw const MPIR_debug_state).read_volatile()),
                size_of_val(&(&raw const MPIR_debug_abort_string).read_volatile()),
                size_of_val(&(&raw const totalview_jobid).read_volatile()),
                size_of_val(&(&raw const MPIR_executable_path).read_volatile()),
                size_of_val(&(&raw const MPIR_server_arguments).read_volatile()),
            ]
        };
        let pointer = size_of::<usize>();
        assert_eq!(sizes, [pointer, 4, 4, 4, pointer, pointer, 256, 4096]);
    }

    fn entry(host: &str, executable: &str, pid: i32) -> Entry {
        Entry {
            host: host.to_owned(),
            executable: executable.to_owned(),
            pid,
        }
    }

    /// Reads the table as a debugger does: size and pointer from the symbols, then the rows and their texts.
    fn read() -> Vec<Entry> {
        // SAFETY: no other thread replaces the table meanwhile, because a single test does all that touches it.
        unsafe {
            let size = usize::try_from((&raw const MPIR_proctable_size).read_volatile()).unwrap();
            let table = (&raw const MPIR_proctable).read_volatile();
            let text = |pointer| CStr::from_ptr(pointer).to_str().unwrap().to_owned();
            (0..size)
                .map(|rank| {
                    let row = &*table.add(rank);
                    Entry {
                        host: text(row.host_name),
                        executable: text(row.executable_name),
                        pid: row.pid,
                    }
                })
                .collect()
        }
    }

    /// One test for everything, because the symbols exist once per process and tests share a process.
    #[test]
    fn the_symbols_say_what_was_set() {
        assert_eq!(read(), []);
        let first: Vec<_> = (0..100)
            .map(|rank| {
                entry(
                    &format!("n{}", rank / 3),
                    if rank % 2 == 0 { "/a" } else { "/b" },
                    rank,
                )
            })
            .collect();
        publish(first.clone()).unwrap();
        assert_eq!(read(), first);

        assert_eq!(publish(vec![entry("n\0", "/a", 1)]), Err(ContainsNul));
        assert_eq!(read(), first);

        publish(vec![entry("n", "/c", 7)]).unwrap();
        assert_eq!(read(), [entry("n", "/c", 7)]);
        publish(Vec::new()).unwrap();
        assert_eq!(read(), []);

        assert!(!being_debugged());
        // SAFETY: this test, which plays the debugger, is the only code that touches the symbol.
        unsafe { (&raw mut MPIR_being_debugged).write_volatile(1) };
        assert!(being_debugged());

        let text = |pointer: *const c_char| {
            // SAFETY: the pointers are those of the symbols, whose texts live until they are replaced.
            let text = (!pointer.is_null()).then(|| unsafe { CStr::from_ptr(pointer) });
            text.map(|text| text.to_str().unwrap())
        };
        // SAFETY: this test is the only code that touches the symbols.
        let state = || unsafe {
            let reason = (&raw const MPIR_debug_abort_string).read_volatile();
            ((&raw const MPIR_debug_state).read_volatile(), text(reason))
        };
        let aborting = |reason| State::Aborting { reason };
        for (set, expected) in [
            (State::Spawned, (1, None)),
            (
                aborting("rank 3 was killed"),
                (2, Some("rank 3 was killed")),
            ),
            (aborting("rank 4 as well"), (2, Some("rank 4 as well"))),
            (State::Null, (0, None)),
        ] {
            set_state(set).unwrap();
            assert_eq!(state(), expected);
        }
        assert_eq!(set_state(aborting("a\0b")), Err(ContainsNul));
        assert_eq!(state(), (0, None));

        // SAFETY: as above.
        let job = || text(unsafe { (&raw const totalview_jobid).read_volatile() });
        assert_eq!(job(), None);
        name_job("rally-n1-77@1").unwrap();
        assert_eq!(name_job("\0"), Err(ContainsNul));
        assert_eq!(job(), Some("rally-n1-77@1"));

        breakpoint();
    }
}
