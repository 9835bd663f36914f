//! The recorded thread of each thread: the address of its [`Recorded`](crate::threads::Recorded), or 0.
//!
//! It is in the static part of thread-local storage, which a library has that is loaded with the program; so reading it needs no call.

use core::arch::{asm, global_asm};

global_asm!(
    ".pushsection .tbss,\"awT\",@nobits",
    ".hidden rally_thread",
    ".globl rally_thread",
    ".type rally_thread, @object",
    ".size rally_thread, 8",
    ".balign 8",
    "rally_thread:",
    ".zero 8",
    ".popsection",
);

/// Sets the recorded thread of the calling thread.
pub(crate) fn set_thread<T>(thread: *const T) {
    // SAFETY: writes the eight bytes of this thread's own variable.
    unsafe {
        asm!(
            "mov {offset}, qword ptr [rip + rally_thread@GOTTPOFF]",
            "mov qword ptr fs:[{offset}], {thread}",
            offset = out(reg) _,
            thread = in(reg) thread,
            options(nostack, preserves_flags),
        );
    }
}
