//! The symbols: `MPI_X` and `PMPI_X` for each function that all libraries have. A stub loads its number and goes to
//! [`rally_mpi_call`], or to the way of its messages.
//!
//! A symbol must not exist for a function that the library lacks: programs test weak references to find out what they can use.

use core::arch::naked_asm;

use calls::FUNCTIONS;

use crate::{
    arch::{rally_mpi_call, rally_mpi_receive, rally_mpi_send},
    message::{self, Way},
};

/// Returns which way the calls of a function go: 1 for messages that it sends, 2 for those that it receives, or 0.
const fn way(function: usize) -> usize {
    match message::way(&FUNCTIONS[function]) {
        Some(Way::Send) => 1,
        Some(Way::Receive) => 2,
        None => 0,
    }
}

/// Defines the stub with a number.
macro_rules! stub {
    ($name:ident, $function:literal, $stub:expr) => {
        #[unsafe(naked)]
        #[unsafe(no_mangle)]
        unsafe extern "C" fn $name() {
            naked_asm!(
                "mov eax, {stub}",
                ".if {way} == 1",
                "jmp {send}",
                ".elseif {way} == 2",
                "jmp {receive}",
                ".else",
                "jmp {call}",
                ".endif",
                stub = const $stub,
                way = const way($function),
                send = sym rally_mpi_send,
                receive = sym rally_mpi_receive,
                call = sym rally_mpi_call,
            )
        }
    };
}

/// Defines the stubs of functions, by their number.
macro_rules! stubs {
    ($($number:literal $name:ident $profiling:ident;)*) => {$(
        stub!($name, $number, 2 * $number);
        stub!($profiling, $number, 2 * $number + 1);
    )*};
}

include!("symbols.rs");
