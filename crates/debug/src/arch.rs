//! What depends on the processor architecture of the process that is looked at.
//!
//! Everything else in this crate is the same for all of them. The architecture is a value and not a condition of compiling,
//! so that a recording, and later a core file, of another processor can be read.
//!
//! | | x86-64 | aarch64 |
//! |---|---|---|
//! | registers that lead on | `rip`, `rsp`, `rbp` | `pc`, `sp`, `x29`, `x30` |
//! | a call | pushes its return address | leaves it in `x30`, perhaps signed |
//! | instructions | of 1 to 15 bytes | of 4 bytes |
//! | who a call has called | `call`, `call *slot`, stubs | `bl`, stubs |
//! | the frame of a signal | `mov $15, %rax; syscall` | `mov x8, #139; svc #0` |
//! | system calls | numbers of their own | the numbers that all new architectures share |
//!
//! The layouts of Python ([`crate::python`]) are the same on all of them: 64 bits, little-endian.

mod aarch64;
mod unwinder;
mod x86_64;

use std::ops::Range;

use base::{Arch, Registers};

pub(crate) use self::unwinder::{Caches, State, Unwinder};
use crate::{
    image::Image,
    memory::{Memory, Unreadable},
    stack::Wait,
};

/// Where a call or a jump leads, in the numbering of the file that it stands in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Target {
    /// To an address of the same file.
    Address(u64),
    /// To the address that stands here.
    Slot(u64),
}

/// What a system call waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Call {
    /// What its arguments say: `futex`.
    Futex,
    /// A futex, for a limited time if this argument, counted from 0, is not null.
    FutexUntil(usize),
    /// Always the same.
    Waits(Wait),
}

/// For what a thread sleeps that is in a system call with this number and these arguments.
pub(crate) fn wait_in(arch: Arch, number: u64, arguments: &[u64; 6]) -> Wait {
    // Calls that are younger than both architectures have the same numbers in both.
    let young = match number {
        441 => Some(Call::Waits(Wait::Poll)),
        449 => Some(Call::FutexUntil(3)),
        455 => Some(Call::FutexUntil(4)),
        454 | 456 => Some(Call::Waits(Wait::Futex)),
        _ => None,
    };
    let call = young.or_else(|| match arch {
        Arch::X86_64 => x86_64::call_of(number),
        Arch::Aarch64 => aarch64::call_of(number),
    });
    match call {
        Some(Call::Futex) => Wait::of_futex(arguments),
        Some(Call::FutexUntil(at)) if arguments[at] != 0 => Wait::Timed,
        Some(Call::FutexUntil(_)) => Wait::Futex,
        Some(Call::Waits(wait)) => wait,
        None => Wait::Other,
    }
}

/// Whether a system call is the one that goes on with another one that was interrupted: its arguments say nothing.
#[must_use]
pub fn is_restart(arch: Arch, number: u64) -> bool {
    number
        == match arch {
            Arch::X86_64 => x86_64::RESTART_SYSCALL,
            Arch::Aarch64 => aarch64::RESTART_SYSCALL,
        }
}

/// Where the call leads that returns to `back`.
pub(crate) fn call_before(arch: Arch, image: &Image, back: u64) -> Option<Target> {
    match arch {
        Arch::X86_64 => x86_64::call_before(image, back),
        Arch::Aarch64 => aarch64::call_before(image, back),
    }
}

/// Where the jump leads that the code at an address begins with.
pub(crate) fn jump_at(arch: Arch, image: &Image, at: u64) -> Option<Target> {
    match arch {
        Arch::X86_64 => x86_64::jump_at(image, at),
        Arch::Aarch64 => aarch64::jump_at(image, at),
    }
}

/// The jumps in a function that lead out of it, as far as its bytes look like jumps, each with its address.
pub(crate) fn jumps_in(arch: Arch, code: &[u8], range: &Range<u64>) -> Vec<(u64, Target)> {
    let mut jumps = match arch {
        Arch::X86_64 => x86_64::jumps_in(code, range.start),
        Arch::Aarch64 => aarch64::jumps_in(code, range.start),
    };
    jumps.retain(
        |(_, target)| !matches!(target, Target::Address(address) if range.contains(address)),
    );
    jumps
}

/// Whether the code at a return address asks the kernel to undo a signal, by which every debugger knows the frame of one: its
/// symbol begins too late, and its rules are missing in some C libraries.
pub(crate) fn is_signal_return(
    arch: Arch,
    memory: &dyn Memory,
    address: u64,
) -> Result<bool, Unreadable> {
    match arch {
        Arch::X86_64 => stands(memory, address, x86_64::SIGNAL_RETURN),
        Arch::Aarch64 => stands(memory, address, aarch64::SIGNAL_RETURN),
    }
}

/// Whether these bytes stand at an address.
fn stands<const N: usize>(
    memory: &dyn Memory,
    address: u64,
    bytes: [u8; N],
) -> Result<bool, Unreadable> {
    let mut found = [0; N];
    memory.read(address, &mut found)?;
    Ok(found == bytes)
}

/// The registers of what a signal has interrupted. The kernel has put them above the stack pointer that the handler
/// returns with.
pub(crate) fn interrupted(arch: Arch, memory: &dyn Memory, stack: u64) -> Option<Registers> {
    let word = |at: u64| memory.word(stack.checked_add(at)?).ok();
    match arch {
        Arch::X86_64 => x86_64::interrupted(word),
        Arch::Aarch64 => aarch64::interrupted(word),
    }
}

/// An address by its distance from another one.
fn beyond(from: u64, distance: i64) -> Option<u64> {
    from.checked_add_signed(distance)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_same_call_has_its_number_on_each_architecture() {
        let quiet = [0; 6];
        let timed = [1, 0, 0, 1, 1, 0];
        let cases: [(&str, u64, u64, &[u64; 6], Wait); 15] = [
            ("read", 0, 63, &quiet, Wait::Read),
            ("recvmsg", 47, 212, &quiet, Wait::Read),
            ("writev", 20, 66, &quiet, Wait::Write),
            ("ppoll", 271, 73, &quiet, Wait::Poll),
            ("epoll_pwait", 281, 22, &quiet, Wait::Poll),
            ("epoll_pwait2", 441, 441, &quiet, Wait::Poll),
            ("clock_nanosleep", 230, 115, &quiet, Wait::Sleep),
            ("wait4", 61, 260, &quiet, Wait::Child),
            ("flock", 73, 32, &quiet, Wait::FileLock),
            ("rt_sigtimedwait", 128, 137, &quiet, Wait::Signal),
            ("futex of several processes", 202, 98, &quiet, Wait::Shared),
            ("futex with a limit", 202, 98, &timed, Wait::Timed),
            ("futex_waitv", 449, 449, &quiet, Wait::Futex),
            ("futex_wait with a limit", 455, 455, &timed, Wait::Timed),
            ("mmap", 9, 222, &quiet, Wait::Other),
        ];
        for (name, x86_64, aarch64, arguments, wait) in cases {
            assert_eq!(wait_in(Arch::X86_64, x86_64, arguments), wait, "{name}");
            assert_eq!(wait_in(Arch::Aarch64, aarch64, arguments), wait, "{name}");
        }
        assert!(is_restart(Arch::X86_64, 219) && !is_restart(Arch::X86_64, 128));
        assert!(is_restart(Arch::Aarch64, 128) && !is_restart(Arch::Aarch64, 219));
    }
}
