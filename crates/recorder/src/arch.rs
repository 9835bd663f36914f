//! The way of a call on x86-64: the System V interface, in which MPI functions have integer arguments only.
//!
//! ```text
//! rbp + 16  arguments 7 and later
//! rbp + 8   where the program goes on
//! rbp       rbp of the program
//! rbp - 48  arguments 1 to 6        <- frame
//! rbp - 56  number of the stub
//! rbp - 64  frame of the call in which this one is
//! rbp - 72  the recorded call, from 1
//! rbp - 80  what the function returned
//! rbp - 88  stub and record of the call in which this one is
//! rbp - 96  where the program goes on after that one
//! ```
//!
//! [`frame`](crate::frame) reads these words.
//!
//! The function is called, not jumped to, so that the recorder knows when it returns. If an exception or a `longjmp` leaves it,
//! nobody says so; the next call sees that its stack is above that of the call that was left.

use core::arch::{global_asm, naked_asm};

use crate::hooks::{enter, leave};

// Stubs of all functions, for those that have no symbol: 16 bytes each.
global_asm!(
    ".balign 16",
    ".hidden rally_stubs",
    ".globl rally_stubs",
    "rally_stubs:",
    ".set rally_stub, 0",
    ".rept {stubs}",
    "mov eax, offset rally_stub",
    "jmp {call}",
    ".balign 16",
    ".set rally_stub, rally_stub + 1",
    ".endr",
    stubs = const 2 * calls::COUNT,
    call = sym rally_call,
);

/// Where every stub goes, with its number in `eax` and the arguments of the program in place.
///
/// # Safety
///
/// Only for stubs: it takes what the calling convention has in registers and on the stack.
#[unsafe(naked)]
pub(crate) unsafe extern "C" fn rally_call() {
    naked_asm!(
        ".cfi_startproc",
        "push rbp",
        ".cfi_def_cfa_offset 16",
        ".cfi_offset rbp, -16",
        "mov rbp, rsp",
        ".cfi_def_cfa_register rbp",
        "push r9",
        "push r8",
        "push rcx",
        "push rdx",
        "push rsi",
        "push rdi",
        "mov esi, eax",
        "mov rdi, qword ptr [rip + rally_thread@GOTTPOFF]",
        "mov rdi, qword ptr fs:[rdi]",
        "mov rdx, rsp",
        "push rax",
        "sub rsp, 56",
        "call {enter}",
        // rax: the function. rdx: 0 to go there and forget it, 1 to call it, 2 to call it with arguments on the stack.
        "cmp edx, 1",
        "jb 4f",
        "je 2f",
        // Seven more arguments is the most that any function has.
        "sub rsp, 64",
        "mov rcx, qword ptr [rbp + 16]",
        "mov qword ptr [rsp], rcx",
        "mov rcx, qword ptr [rbp + 24]",
        "mov qword ptr [rsp + 8], rcx",
        "mov rcx, qword ptr [rbp + 32]",
        "mov qword ptr [rsp + 16], rcx",
        "mov rcx, qword ptr [rbp + 40]",
        "mov qword ptr [rsp + 24], rcx",
        "mov rcx, qword ptr [rbp + 48]",
        "mov qword ptr [rsp + 32], rcx",
        "mov rcx, qword ptr [rbp + 56]",
        "mov qword ptr [rsp + 40], rcx",
        "mov rcx, qword ptr [rbp + 64]",
        "mov qword ptr [rsp + 48], rcx",
        "2:",
        "mov rdi, qword ptr [rbp - 48]",
        "mov rsi, qword ptr [rbp - 40]",
        "mov rdx, qword ptr [rbp - 32]",
        "mov rcx, qword ptr [rbp - 24]",
        "mov r8, qword ptr [rbp - 16]",
        "mov r9, qword ptr [rbp - 8]",
        "call rax",
        "mov qword ptr [rbp - 80], rax",
        "mov rdi, qword ptr [rip + rally_thread@GOTTPOFF]",
        "mov rdi, qword ptr fs:[rdi]",
        "lea rsi, [rbp - 48]",
        "mov edx, eax",
        "call {leave}",
        "mov rax, qword ptr [rbp - 80]",
        "leave",
        ".cfi_remember_state",
        ".cfi_def_cfa rsp, 8",
        ".cfi_restore rbp",
        "ret",
        ".cfi_restore_state",
        "4:",
        "mov rdi, qword ptr [rbp - 48]",
        "mov rsi, qword ptr [rbp - 40]",
        "mov rdx, qword ptr [rbp - 32]",
        "mov rcx, qword ptr [rbp - 24]",
        "mov r8, qword ptr [rbp - 16]",
        "mov r9, qword ptr [rbp - 8]",
        "leave",
        ".cfi_def_cfa rsp, 8",
        ".cfi_restore rbp",
        "jmp rax",
        ".cfi_endproc",
        enter = sym enter,
        leave = sym leave,
    )
}
