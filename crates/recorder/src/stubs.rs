//! The symbols: `MPI_X` and `PMPI_X` for each function that all libraries have. A stub loads its number and goes to
//! [`rally_call`].
//!
//! A symbol must not exist for a function that the library lacks: programs test weak references to find out what they can use.

use core::arch::naked_asm;

use crate::arch::rally_call;

/// Defines the stubs of functions, by their number.
macro_rules! stubs {
    ($($number:literal $name:ident $profiling:ident;)*) => {$(
        #[unsafe(naked)]
        #[unsafe(no_mangle)]
        unsafe extern "C" fn $name() {
            naked_asm!("mov eax, {stub}", "jmp {call}", stub = const 2 * $number, call = sym rally_call)
        }

        #[unsafe(naked)]
        #[unsafe(no_mangle)]
        unsafe extern "C" fn $profiling() {
            naked_asm!("mov eax, {stub}", "jmp {call}", stub = const 2 * $number + 1, call = sym rally_call)
        }
    )*};
}

include!("symbols.rs");
