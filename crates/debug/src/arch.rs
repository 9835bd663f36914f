//! Everything that depends on the processor architecture of the sampled process.
//!
//! The other modules of this crate are the same for all architectures. The architecture is a value at run time, not a condition
//! at compile time: so a recording, and later a core file, of another architecture can be read.
//!
//! | | x86-64 | aarch64 |
//! |---|---|---|
//! | registers for unwinding | `rip`, `rsp`, `rbp` | `pc`, `sp`, `x29`, `x30` |
//! | return address of a call | pushed on the stack | in `x30`, possibly signed |
//! | length of an instruction | 1 to 15 bytes | 4 bytes |
//! | instructions with a known callee | `call`, `call *slot`, stubs | `bl`, stubs |
//! | signal trampoline | `mov $15, %rax; syscall` | `mov x8, #139; svc #0` |
//! | system call numbers | specific to x86-64 | shared by all recent architectures |
//! | arguments of a call, from the code before it | as far as it tells | not yet |
//!
//! The layouts of Python ([`crate::python`]) are the same on both: 64 bits, little-endian.

mod aarch64;
mod unwinder;
mod x86_64;

use std::ops::Range;

use base::{Arch, Registers};

pub(crate) use self::{
    unwinder::{Caches, State, Unwinder},
    x86_64::{Block, STEPS_MAX, Slice},
};
use crate::{
    image::{Image, Saved},
    memory::{Memory, Unreadable},
    stack::Wait,
};

/// The target of a call or jump. Addresses are those in the file that contains the instruction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Target {
    /// An address in the same file.
    Address(u64),
    /// The pointer stored at this address.
    Slot(u64),
}

/// A value of a stopped thread.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Value {
    /// The value, in as many of the lowest bits as it has.
    pub word: u64,
    /// Where it comes from.
    pub origin: Origin,
}

/// Where a value comes from.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, serde::Serialize, serde::Deserialize,
)]
#[serde(rename_all = "kebab-case")]
pub enum Origin {
    /// Constants of the code and registers that are preserved, so it has not changed.
    Code,
    /// Variables in memory, which may have changed since.
    Memory,
}

impl Value {
    /// Returns a value of the code.
    const fn code(word: u64) -> Self {
        Self {
            word,
            origin: Origin::Code,
        }
    }

    /// Returns the lowest bytes.
    fn cut(self, size: u64) -> Self {
        let word = match 64 - size.min(8) * 8 {
            64 => 0,
            unused => self.word << unused >> unused,
        };
        Self { word, ..self }
    }

    /// Returns the number with a sign that the lowest bytes are.
    fn extended(self, size: u64) -> Self {
        let word = match 64 - size.min(8) * 8 {
            64 => 0,
            unused => (self.word << unused).cast_signed() >> unused,
        };
        Self {
            word: word.cast_unsigned(),
            ..self
        }
    }

    /// Returns what an operation makes of this value and another one.
    fn with(self, other: Self, operation: fn(u64, u64) -> u64) -> Self {
        Self {
            word: operation(self.word, other.word),
            origin: self.origin.max(other.origin),
        }
    }

    /// Returns the value, which depends on another one of this origin.
    fn from(self, origin: Origin) -> Self {
        let origin = self.origin.max(origin);
        Self { origin, ..self }
    }
}

/// The general registers of a frame that are known, by their number.
pub(crate) type Known = [Option<u64>; 16];

/// The way in which a system call waits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Call {
    /// A `futex` operation, according to its arguments.
    Futex,
    /// A futex, with a timeout if the argument with this index, from 0, is not null.
    FutexUntil(usize),
    /// Always the same.
    Waits(Wait),
}

/// Returns what a thread waits for that sleeps in a system call with this number and these arguments.
pub(crate) fn wait_in(arch: Arch, number: u64, arguments: &[u64; 6]) -> Wait {
    // Recent system calls have the same numbers on both architectures.
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

/// Returns true if the system call is `restart_syscall`, which resumes an interrupted call: its arguments do not say which.
#[must_use]
pub fn is_restart(arch: Arch, number: u64) -> bool {
    number
        == match arch {
            Arch::X86_64 => x86_64::RESTART_SYSCALL,
            Arch::Aarch64 => aarch64::RESTART_SYSCALL,
        }
}

/// Returns the target of the call that returns to `back`; `None` if there is no such call, or its target is in a register.
pub(crate) fn call_before(arch: Arch, image: &Image, back: u64) -> Option<Target> {
    match arch {
        Arch::X86_64 => x86_64::call_before(image, back),
        Arch::Aarch64 => aarch64::call_before(image, back),
    }
}

/// Returns the instructions before the call that returns to `back`, an address in the file.
pub(crate) fn block_before(arch: Arch, image: &Image, back: u64) -> Option<Block> {
    match arch {
        Arch::X86_64 => x86_64::block_before(image, back),
        Arch::Aarch64 => None,
    }
}

/// Returns the registers of a stopped thread that functions preserve.
pub(crate) fn known(registers: &Registers) -> Known {
    let mut known = Known::default();
    if let Registers::X86_64 { frame, .. } = *registers {
        // Of a thread that could not be stopped, the register is not known, and given as 0.
        known[x86_64::FRAME_POINTER] = (frame != 0).then_some(frame);
    }
    known
}

/// Returns the registers of a caller that functions preserve. `inner` are those of its callee, and `stack` is its stack pointer.
/// `rule` says where the callee has saved a register, by its number in DWARF.
pub(crate) fn preserved(
    arch: Arch,
    inner: &Known,
    stack: u64,
    rule: impl Fn(u16) -> Saved,
    read: impl Fn(u64) -> Option<u64>,
) -> Known {
    let mut outer = Known::default();
    if arch == Arch::X86_64 {
        outer[x86_64::STACK_POINTER] = Some(stack);
        for (number, dwarf) in x86_64::PRESERVED {
            outer[number] = match rule(dwarf) {
                Saved::Nowhere => inner[number],
                Saved::At(distance) => beyond(stack, distance).and_then(&read),
                Saved::Unknown => None,
            };
        }
    }
    outer
}

/// Returns the target of the jump at `at`; `None` if there is none.
pub(crate) fn jump_at(arch: Arch, image: &Image, at: u64) -> Option<Target> {
    match arch {
        Arch::X86_64 => x86_64::jump_at(image, at),
        Arch::Aarch64 => aarch64::jump_at(image, at),
    }
}

/// Returns the jumps in a function that lead out of it, each with its address. Bytes that only look like a jump are included.
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

/// Returns true if the code at a return address calls `rt_sigreturn`. All debuggers recognize a signal frame by these
/// instructions: the trampoline's symbol begins too late, and some C libraries have no unwinding rules for it.
pub(crate) fn is_signal_return(
    arch: Arch,
    memory: &dyn Memory,
    address: u64,
) -> Result<bool, Unreadable> {
    match arch {
        Arch::X86_64 => matches_at(memory, address, x86_64::SIGNAL_RETURN),
        Arch::Aarch64 => matches_at(memory, address, aarch64::SIGNAL_RETURN),
    }
}

/// Returns true if the memory at an address contains these bytes.
fn matches_at<const N: usize>(
    memory: &dyn Memory,
    address: u64,
    bytes: [u8; N],
) -> Result<bool, Unreadable> {
    let mut found = [0; N];
    memory.read(address, &mut found)?;
    Ok(found == bytes)
}

/// Returns the registers of the code that a signal has interrupted. The kernel has saved them above `stack`, the stack pointer
/// with which the handler returns.
pub(crate) fn interrupted(arch: Arch, memory: &dyn Memory, stack: u64) -> Option<Registers> {
    let word = |at: u64| memory.word(stack.checked_add(at)?).ok();
    match arch {
        Arch::X86_64 => x86_64::interrupted(word),
        Arch::Aarch64 => aarch64::interrupted(word),
    }
}

/// Returns an address at a distance from another one; `None` on overflow.
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
    #[test]
    fn registers_of_a_caller_are_where_its_callee_has_put_them() {
        let mut inner = Known::default();
        inner[3] = Some(33);
        inner[5] = Some(55);
        inner[12] = Some(12);
        let rule = |register| match register {
            6 => Saved::At(-16),
            13 => Saved::At(-24),
            12 => Saved::Unknown,
            _ => Saved::Nowhere,
        };
        let read = |address| (address == 0x70f0).then_some(7);
        let outer = preserved(Arch::X86_64, &inner, 0x7100, rule, read);
        let mut expected = Known::default();
        // rbx, rsp, rbp; r12 and r13 are not known, nor is what a function does not preserve.
        (expected[3], expected[4], expected[5]) = (Some(33), Some(0x7100), Some(7));
        assert_eq!(outer, expected);
        let outer = preserved(Arch::Aarch64, &inner, 0x7100, rule, read);
        assert_eq!(outer, Known::default());
    }
}
