//! The way of a call on x86-64: the System V interface, in which MPI functions have integer arguments only.
//!
//! ```text
//! rbp + 16  arguments 7 and later
//! rbp + 8   where the program goes on
//! rbp       rbp of the program
//! rbp - 48  arguments 1 to 6        <- frame
//! rbp - 56  number of the stub
//! rbp - 64  frame of the call in which this one is, if it does not end plainly
//! rbp - 72  the record of the call
//! rbp - 80  what the function returned
//! rbp - 88  the record of the call in which this one is
//! rbp - 96  where the program goes on after that one
//! rbp - 104 the thread, if the call ends plainly: it is in no other one, and its end is all that there is to record when it returns
//!           without an error; otherwise 1
//! ```
//!
//! [`frame`](crate::frame) reads these words.
//!
//! The function is called, not jumped to, so that the recorder knows when it returns. If an exception or a `longjmp` leaves it,
//! nobody says so; the next call sees that its stack is above that of the call that was left.

use core::{
    arch::{global_asm, naked_asm},
    mem::offset_of,
};

use calls::layout::{Call, Counter};

use crate::{
    counters::Direction,
    hooks::{enter, leave},
    late_stubs::{LATE_STUBS, NUMBERS},
    message::Message,
    threads::Recorded,
};

// The stubs that have no symbol. They are not aligned, because the library is written into memory for each job.
global_asm!(
    ".hidden rally_stubs",
    ".globl rally_stubs",
    "rally_stubs:",
    ".set rally_place, 0",
    ".rept {stubs}",
    "mov eax, offset rally_place",
    // With an address of 32 bits, so that all stubs have the same size.
    "{{disp32}} jmp {late}",
    ".set rally_place, rally_place + 1",
    ".endr",
    stubs = const LATE_STUBS,
    late = sym rally_late,
);

/// Where the stubs go that have no symbol, with their place in `eax`.
///
/// # Safety
///
/// Only for stubs.
#[unsafe(naked)]
unsafe extern "C" fn rally_late() {
    naked_asm!(
        "lea r11, [rip + {numbers}]",
        "movzx eax, word ptr [r11 + 2 * rax]",
        "jmp {call}",
        numbers = sym NUMBERS,
        call = sym rally_mpi_call,
    )
}

/// Where every stub goes, with its number in `eax` and the arguments of the program in place.
///
/// # Safety
///
/// Only for stubs: it takes what the calling convention has in registers and on the stack.
#[unsafe(naked)]
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn rally_mpi_call() {
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
        "jmp {end}",
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
        // The section gets this alignment, and begins with the function: the way of each call begins with a line of the cache.
        ".balign 64",
        enter = sym enter,
        end = sym rally_mpi_end,
    )
}

/// Where a call goes when the function has returned, with the result in `rax`.
///
/// # Safety
///
/// Only for [`rally_mpi_call`] and the ways of messages: it takes their stack.
#[unsafe(naked)]
#[unsafe(no_mangle)]
unsafe extern "C" fn rally_mpi_end() {
    naked_asm!(
        ".cfi_startproc",
        ".cfi_def_cfa rbp, 16",
        ".cfi_offset rbp, -16",
        "mov rdi, qword ptr [rip + rally_thread@GOTTPOFF]",
        "mov rdi, qword ptr fs:[rdi]",
        "cmp rdi, qword ptr [rbp - 104]",
        "jne 2f",
        "test eax, eax",
        "jne 2f",
        "mov rcx, qword ptr [rbp - 72]",
        // If there were more calls inside than the ring has room for, the record is another's.
        "lea rdx, [rbp - 48]",
        "cmp rdx, qword ptr [rcx + {record_frame}]",
        "jne 2f",
        "mov dword ptr [rcx + {state}], 0",
        "mov qword ptr [rdi + {frame}], 0",
        "leave",
        ".cfi_remember_state",
        ".cfi_def_cfa rsp, 8",
        ".cfi_restore rbp",
        "ret",
        ".cfi_restore_state",
        "2:",
        "mov qword ptr [rbp - 80], rax",
        "lea rsi, [rbp - 48]",
        "mov edx, eax",
        "call {leave}",
        "mov rax, qword ptr [rbp - 80]",
        "leave",
        ".cfi_def_cfa rsp, 8",
        ".cfi_restore rbp",
        "ret",
        ".cfi_endproc",
        ".balign 64",
        record_frame = const offset_of!(Call, frame),
        state = const offset_of!(Call, state),
        frame = const offset_of!(Recorded, frame),
        leave = sym leave,
    )
}

/// Returns where a thread has its last message in one direction.
const fn place_of_message(direction: Direction) -> usize {
    offset_of!(Recorded, messages) + direction.place() * size_of::<Message>()
}

/// Defines the way of messages in one direction. A message that does not repeat the thread's last one goes on to [`rally_mpi_call`]. It
/// writes what `hooks::begin` writes into a record: the sequence first, the seal last.
macro_rules! way_of_messages {
    ($name:ident, $direction:expr) => {
        #[doc = concat!("As [`rally_mpi_call`], for messages in one direction.\n\n# Safety\n\nOnly for stubs.")]
        #[unsafe(naked)]
        #[unsafe(no_mangle)]
        pub(crate) unsafe extern "C" fn $name() {
            naked_asm!(
                ".cfi_startproc",
                "mov r10, qword ptr [rip + rally_thread@GOTTPOFF]",
                "mov r10, qword ptr fs:[r10]",
                "test r10, r10",
                "je {call}",
                "cmp qword ptr [r10 + {thread_frame}], 0",
                "jne {call}",
                "cmp eax, dword ptr [r10 + {message} + {stub}]",
                "jne {call}",
                "cmp ecx, dword ptr [r10 + {message} + {message_peer}]",
                "jne {call}",
                "cmp r8d, dword ptr [r10 + {message} + {message_tag}]",
                "jne {call}",
                "cmp r9, qword ptr [r10 + {message} + {communicator}]",
                "jne {call}",
                "push rbp",
                ".cfi_def_cfa_offset 16",
                ".cfi_offset rbp, -16",
                "mov rbp, rsp",
                ".cfi_def_cfa_register rbp",
                // A receive has a seventh argument.
                ".if {message} == {received}",
                "sub rsp, 120",
                "push qword ptr [rbp + 16]",
                ".else",
                "sub rsp, 112",
                ".endif",
                "mov qword ptr [rbp - 56], rax",
                "mov qword ptr [rbp - 104], r10",
                "lea rax, [rbp - 48]",
                "mov qword ptr [r10 + {thread_frame}], rax",
                // r11: the record.
                "mov r11, qword ptr [r10 + {next}]",
                "mov qword ptr [rbp - 72], r11",
                "mov qword ptr [r10 + {innermost}], r11",
                "lea rax, [r11 + {record_size}]",
                "cmp rax, qword ptr [r10 + {ring_end}]",
                "cmove rax, qword ptr [r10 + {ring_first}]",
                "mov qword ptr [r10 + {next}], rax",
                "inc qword ptr [r10 + {thread_sequence}]",
                "mov rax, qword ptr [r10 + {thread_sequence}]",
                "mov qword ptr [r11 + {sequence}], rax",
                "lea rax, [rbp - 48]",
                "mov qword ptr [r11 + {frame}], rax",
                "mov qword ptr [r11 + {count}], rsi",
                "mov rax, qword ptr [r10 + {message} + {message_handle}]",
                "mov qword ptr [r11 + {handle}], rax",
                "movups xmm0, xmmword ptr [r10 + {message} + {function_to_peer}]",
                "movups xmmword ptr [r11 + {function}], xmm0",
                "mov dword ptr [r11 + {tag}], r8d",
                "mov qword ptr [r11 + {repeated}], 0",
                "mov rax, qword ptr [rbp + 8]",
                "mov qword ptr [r11 + {site}], rax",
                "mov qword ptr [r10 + {innermost_site}], rax",
                // r11: the counter.
                "mov r11, qword ptr [r10 + {message} + {counter}]",
                "mov qword ptr [r11 + {counter_site}], rax",
                "inc qword ptr [r11 + {counted}]",
                "mov rax, qword ptr [r11 + {counted}]",
                "mov r11, qword ptr [rbp - 72]",
                "mov qword ptr [r11 + {ordinal}], rax",
                "mov rax, qword ptr [r10 + {thread_sequence}]",
                "mov qword ptr [r11 + {seal}], rax",
                "mov qword ptr [r10 + {thread_repeated}], 0",
                "call qword ptr [r10 + {message} + {message_function}]",
                "jmp {end}",
                ".cfi_endproc",
                ".balign 64",
                call = sym rally_mpi_call,
                end = sym rally_mpi_end,
                message = const place_of_message($direction),
                received = const place_of_message(Direction::Receive),
                stub = const offset_of!(Message, stub),
                message_peer = const offset_of!(Message, peer),
                message_tag = const offset_of!(Message, tag),
                communicator = const offset_of!(Message, communicator),
                message_handle = const offset_of!(Message, handle),
                function_to_peer = const offset_of!(Message, function_to_peer),
                counter = const offset_of!(Message, counter),
                message_function = const offset_of!(Message, function),
                thread_frame = const offset_of!(Recorded, frame),
                innermost = const offset_of!(Recorded, innermost),
                innermost_site = const offset_of!(Recorded, innermost_site),
                next = const offset_of!(Recorded, next),
                ring_first = const offset_of!(Recorded, first),
                ring_end = const offset_of!(Recorded, end),
                thread_sequence = const offset_of!(Recorded, sequence),
                thread_repeated = const offset_of!(Recorded, repeated),
                record_size = const size_of::<Call>(),
                seal = const offset_of!(Call, seal),
                sequence = const offset_of!(Call, sequence),
                frame = const offset_of!(Call, frame),
                site = const offset_of!(Call, site),
                count = const offset_of!(Call, count),
                handle = const offset_of!(Call, handle),
                ordinal = const offset_of!(Call, ordinal),
                function = const offset_of!(Call, function),
                tag = const offset_of!(Call, tag),
                repeated = const offset_of!(Call, repeated),
                counter_site = const offset_of!(Counter, site),
                counted = const offset_of!(Counter, count),
            )
        }
    };
}

way_of_messages!(rally_mpi_send, Direction::Send);
way_of_messages!(rally_mpi_receive, Direction::Receive);
