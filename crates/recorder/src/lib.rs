//! The recorder of MPI calls: a library that `rally run --mpi-recorder` preloads into ranks. It comes between a program and its
//! MPI library, and writes each call into a [region](calls::layout) of shared memory, where `dbgr` reads it.
//!
//! It works with every MPI library that is a shared one, because it depends on none: it has a symbol `MPI_X` and a symbol `PMPI_X` for
//! each function that all libraries have (`stubs`). Such a symbol calls `hooks::enter`, then the library's function, then
//! `hooks::leave` if there is more to record than the end of the call. A message that repeats the last one needs no `hooks` (`message`). Fortran, C++ and Python come by the same symbols.
//!
//! **Architecture invariant:** no dependency but the layout. On the way of a call, no allocation, no lock and no system call, but
//! for the first call of a thread or of a function, those that make a communicator, and the first use of a page of a table. What is not known is not recorded: the recorder must never
//! change what a program does, so it neither reports errors nor ends the program.
//!
//! `cli` builds this crate a second time, as a shared library without `std` (`cfg(preload)`), and carries it along. As a crate of the
//! workspace it is only checked and tested.

#![cfg_attr(not(test), no_std)]
// The way of a call is written for one processor. For others, `rally` carries no recorder.
#![cfg(target_arch = "x86_64")]
#![expect(
    unsafe_code,
    reason = "the arguments of the program's calls are words on its stack, and the region is memory that another process reads"
)]
#![expect(
    clippy::cast_possible_truncation,
    reason = "words of 64 bits hold arguments of 32 bits, and indexes of small tables"
)]

mod arch;
mod communicators;
mod counters;
mod current;
mod frame;
mod hooks;
mod hot;
mod late;
mod late_stubs;
mod library;
mod message;
mod names;
mod region;
mod requests;
mod stubs;
mod system;
#[cfg(test)]
mod tests;
mod threads;

/// The library is built so that a panic ends the program at once. There is none: an index that is out of range would be a bug of
/// ours.
#[cfg(all(preload, not(test)))]
#[panic_handler]
fn panic(_: &core::panic::PanicInfo<'_>) -> ! {
    system::abort()
}
