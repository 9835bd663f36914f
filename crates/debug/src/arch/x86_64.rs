//! 64-bit x86: system calls, call and jump instructions, signal frames, and the arguments of calls.

mod block;
mod slice;

use base::Registers;

use super::{Call, Target, beyond};
use crate::{image::Image, stack::Wait};

pub(crate) use self::{
    block::Block,
    slice::{STEPS_MAX, Slice},
};

/// Maximum length of a function in which the instructions before a call are looked for, in bytes.
const FUNCTION_MAX: usize = 1 << 18;
/// Maximum number of bytes of code of one file that are searched for jumps into a function.
const SEARCHED_MAX: usize = 64 << 20;

/// Maximum number of jumps into the instructions before a call.
const ENTRIES_MAX: usize = 64;

/// The general registers that a function preserves, besides the stack pointer: by the number of the processor, and by that of DWARF.
pub(super) const PRESERVED: [(usize, u16); 6] =
    [(3, 3), (5, 6), (12, 12), (13, 13), (14, 14), (15, 15)];
/// The number of the stack pointer.
pub(super) const STACK_POINTER: usize = 4;
/// The number of `rbp`.
pub(super) const FRAME_POINTER: usize = 5;

/// The number of `restart_syscall`.
pub(super) const RESTART_SYSCALL: u64 = 219;

/// `mov $15, %rax; syscall`.
pub(super) const SIGNAL_RETURN: [u8; 9] = [0x48, 0xc7, 0xc0, 0x0f, 0, 0, 0, 0x0f, 0x05];

/// Returns what the system call with this number waits for; `None` if it is not known to wait.
pub(super) const fn call_of(number: u64) -> Option<Call> {
    Some(match number {
        202 => Call::Futex,
        // poll, select, pselect6, ppoll, epoll_wait, epoll_pwait, io_getevents, io_pgetevents
        7 | 23 | 270 | 271 | 232 | 281 | 208 | 333 => Call::Waits(Wait::Poll),
        // read, pread64, readv, accept, recvfrom, recvmsg, preadv, accept4, recvmmsg, preadv2
        0 | 17 | 19 | 43 | 45 | 47 | 295 | 288 | 299 | 327 => Call::Waits(Wait::Read),
        // write, pwrite64, writev, connect, sendto, sendmsg, fsync, fdatasync, msync, pwritev, sendmmsg
        1 | 18 | 20 | 42 | 44 | 46 | 74 | 75 | 26 | 296 | 307 => Call::Waits(Wait::Write),
        // nanosleep, clock_nanosleep
        35 | 230 => Call::Waits(Wait::Sleep),
        // wait4, waitid, vfork
        61 | 247 | 58 => Call::Waits(Wait::Child),
        // flock, fcntl
        73 | 72 => Call::Waits(Wait::FileLock),
        // pause, rt_sigtimedwait, rt_sigsuspend
        34 | 128 | 130 => Call::Waits(Wait::Signal),
        _ => return None,
    })
}

/// Reads the kernel's `struct ucontext`, whose registers begin at offset 40.
pub(super) fn interrupted(word: impl Fn(u64) -> Option<u64>) -> Option<Registers> {
    Some(Registers::X86_64 {
        frame: word(120)?,
        stack: word(160)?,
        instruction: word(168)?,
        thread: 0,
    })
}

/// Returns the target of the call that returns to `back`; `None` if its target was in a register.
pub(super) fn call_before(image: &Image, back: u64) -> Option<Target> {
    if let Some([0xe8, distance @ ..]) = image.code::<5>(back.checked_sub(5)?) {
        return Some(Target::Address(relative(back, distance)?));
    }
    if let Some([0xff, 0x15, distance @ ..]) = image.code::<6>(back.checked_sub(6)?) {
        return Some(Target::Slot(relative(back, distance)?));
    }
    None
}

/// Returns the instructions before the call that returns to `back`, an address in the file.
pub(super) fn block_before(image: &Image, back: u64) -> Option<Block> {
    let range = image.whole_function(back.checked_sub(1)?)?;
    let length = usize::try_from(range.end - range.start).ok()?;
    (length <= FUNCTION_MAX).then_some(())?;
    let code = image.code_in(range.clone(), length)?;
    let exceptions = image.exceptions(range.start);
    let block = Block::before(code, range.start, back, exceptions)?;
    let all = || image.all_code();
    let searched = all().map(|(_, code)| code.len());
    (searched.fold(0, usize::saturating_add) <= SEARCHED_MAX).then_some(())?;
    let entries = all().flat_map(|(address, code)| block.entries_from(code, address));
    let entries: Vec<u64> = entries.take(ENTRIES_MAX + 1).collect();
    (entries.len() <= ENTRIES_MAX).then_some(())?;
    block.after(entries.into_iter())
}

/// Returns the target of the jump at `at`; `None` if there is none.
pub(super) fn jump_at(image: &Image, mut at: u64) -> Option<Target> {
    /// Marks a valid target of indirect jumps, for processors that check that.
    const ENDBR64: [u8; 4] = [0xf3, 0x0f, 0x1e, 0xfa];
    if image.code(at) == Some(ENDBR64) {
        at = at.checked_add(4)?;
    }
    // The prefixes `bnd` and `notrack` do not change the target.
    if let Some([0xf2 | 0x3e]) = image.code(at) {
        at = at.checked_add(1)?;
    }
    if let Some([0xe9, distance @ ..]) = image.code::<5>(at) {
        return Some(Target::Address(relative(at.checked_add(5)?, distance)?));
    }
    if let Some([0xff, 0x25, distance @ ..]) = image.code::<6>(at) {
        return Some(Target::Slot(relative(at.checked_add(6)?, distance)?));
    }
    None
}

/// Returns everything that looks like a jump in code that begins at `start`.
pub(super) fn jumps_in(code: &[u8], start: u64) -> Vec<(u64, Target)> {
    let distance = |at: usize| code.get(at..at + 4)?.try_into().ok();
    let found = (0..code.len()).filter_map(|at| {
        let start = start.checked_add(at as u64)?;
        let target = match (code[at], code.get(at + 1)) {
            (0xeb, Some(&distance)) => {
                let end = start.checked_add(2)?;
                Target::Address(beyond(end, distance.cast_signed().into())?)
            }
            (0xe9, _) => Target::Address(relative(start.checked_add(5)?, distance(at + 1)?)?),
            (0x0f, Some(0x80..=0x8f)) => {
                Target::Address(relative(start.checked_add(6)?, distance(at + 2)?)?)
            }
            (0xff, Some(0x25)) => Target::Slot(relative(start.checked_add(6)?, distance(at + 2)?)?),
            _ => return None,
        };
        Some((start, target))
    });
    found.collect()
}

/// Returns the address at a distance from `end`, the end of an instruction.
fn relative(end: u64, distance: [u8; 4]) -> Option<u64> {
    beyond(end, i32::from_le_bytes(distance).into())
}
