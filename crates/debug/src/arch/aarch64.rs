//! 64-bit ARM: system calls, call and jump instructions, and signal frames.

use base::Registers;

use super::{Call, Target, beyond};
use crate::{image::Image, stack::Wait};

/// The number of `restart_syscall`.
pub(super) const RESTART_SYSCALL: u64 = 128;

/// `mov x8, #139; svc #0`.
pub(super) const SIGNAL_RETURN: [u8; 8] = [0x68, 0x11, 0x80, 0xd2, 0x01, 0, 0, 0xd4];

/// Returns what the system call with this number waits for; `None` if it is not known to wait.
pub(super) const fn call_of(number: u64) -> Option<Call> {
    Some(match number {
        98 => Call::Futex,
        // pselect6, ppoll, epoll_pwait, io_getevents, io_pgetevents
        72 | 73 | 22 | 4 | 292 => Call::Waits(Wait::Poll),
        // read, readv, pread64, preadv, accept, recvfrom, recvmsg, accept4, recvmmsg, preadv2
        63 | 65 | 67 | 69 | 202 | 207 | 212 | 242 | 243 | 286 => Call::Waits(Wait::Read),
        // write, writev, pwrite64, pwritev, fsync, fdatasync, connect, sendto, sendmsg, msync, sendmmsg
        64 | 66 | 68 | 70 | 82 | 83 | 203 | 206 | 211 | 227 | 269 => Call::Waits(Wait::Write),
        // nanosleep, clock_nanosleep
        101 | 115 => Call::Waits(Wait::Sleep),
        // waitid, wait4
        95 | 260 => Call::Waits(Wait::Child),
        // fcntl, flock
        25 | 32 => Call::Waits(Wait::FileLock),
        // rt_sigsuspend, rt_sigtimedwait
        133 | 137 => Call::Waits(Wait::Signal),
        _ => return None,
    })
}

/// Reads the kernel's `struct rt_sigframe`: 128 bytes of `siginfo`, 176 bytes of `ucontext` before the fault address, then the
/// fault address, `x0` to `x30`, `sp` and `pc`.
pub(super) fn interrupted(word: impl Fn(u64) -> Option<u64>) -> Option<Registers> {
    const X0: u64 = 128 + 176 + 8;
    Some(Registers::Aarch64 {
        frame: word(X0 + 29 * 8)?,
        link: word(X0 + 30 * 8)?,
        stack: word(X0 + 31 * 8)?,
        instruction: word(X0 + 32 * 8)?,
    })
}

/// Returns the target of the `bl` that returns to `back`. The target of a `blr` cannot be found afterwards.
pub(super) fn call_before(image: &Image, back: u64) -> Option<Target> {
    let at = back.checked_sub(4)?;
    let word = instruction(image, at)?;
    (word >> 26 == 0b10_0101).then_some(())?;
    Some(Target::Address(beyond(at, distance(word, 0, 26))?))
}

/// Returns the target of a `b`, or of the stub for a library function, which loads the address from a slot:
/// `adrp x16, page; ldr x17, [x16, #slot]; add x16, x16, #slot; br x17`.
pub(super) fn jump_at(image: &Image, mut at: u64) -> Option<Target> {
    /// `bti c`, which marks a valid target of indirect jumps for processors that check that.
    const BTI_C: u32 = 0xd503_245f;
    if instruction(image, at)? == BTI_C {
        at = at.checked_add(4)?;
    }
    let first = instruction(image, at)?;
    if first >> 26 == 0b00_0101 {
        return Some(Target::Address(beyond(at, distance(first, 0, 26))?));
    }
    let second = instruction(image, at.checked_add(4)?)?;
    let is_stub = first & 0x9f00_001f == 0x9000_0010 && second & 0xffc0_03ff == 0xf940_0211;
    if !is_stub {
        return None;
    }
    let pages = (distance(first, 5, 19) << 2) | i64::from(first >> 29 & 0b11);
    let page = beyond(at & !0xfff, pages << 12)?;
    let slot = u64::from(second >> 10 & 0xfff) * 8;
    Some(Target::Slot(page.checked_add(slot)?))
}

/// Returns the jumps in code that begins at `start`: `b`, `b.cond`, `cbz` and `cbnz`, `tbz` and `tbnz`.
pub(super) fn jumps_in(code: &[u8], start: u64) -> Vec<(u64, Target)> {
    let words = code.chunks_exact(4).zip((start..).step_by(4));
    let found = words.filter_map(|(word, at)| {
        let word = u32::from_le_bytes(word.try_into().ok()?);
        let distance = if word >> 26 == 0b00_0101 {
            distance(word, 0, 26)
        } else if word & 0xff00_0010 == 0x5400_0000 || word & 0x7e00_0000 == 0x3400_0000 {
            distance(word, 5, 19)
        } else if word & 0x7e00_0000 == 0x3600_0000 {
            distance(word, 5, 14)
        } else {
            return None;
        };
        Some((at, Target::Address(beyond(at, distance)?)))
    });
    found.collect()
}

fn instruction(image: &Image, at: u64) -> Option<u32> {
    image.code(at).map(u32::from_le_bytes)
}

/// Returns the distance in bytes that a bit field of an instruction encodes as a signed number of instructions.
const fn distance(word: u32, lowest: u32, bits: u32) -> i64 {
    let unused = 32 - bits;
    let number = (word >> lowest << unused).cast_signed() >> unused;
    number as i64 * 4
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::image::{Image, tests::made::Program};

    #[test]
    fn instructions_that_lead_on() {
        let code: [u32; 10] = [
            0x9400_0004, // 1000: bl 1010
            0x9400_0000, // 1004: bl 1004
            0xd63f_0000, // 1008: blr x0
            0x0000_0000, // 100c
            0xb000_0010, // 1010: adrp x16, 2000
            0xf940_0611, // 1014: ldr x17, [x16, #8]
            0x9100_2210, // 1018: add x16, x16, #8
            0xd61f_0220, // 101c: br x17
            0xd503_245f, // 1020: bti c
            0x17ff_fff7, // 1024: b 1000
        ];
        let bytes: Vec<u8> = code.into_iter().flat_map(u32::to_le_bytes).collect();
        let mut program = Program::new();
        program.function("f", 0x1000, 0x100);
        program.put(0x1000, &bytes);
        let image = Image::parse("/program", program.build()).unwrap();
        let calls = [0x1004, 0x1008, 0x100c].map(|back| call_before(&image, back));
        let address = |at| Some(Target::Address(at));
        assert_eq!(calls, [address(0x1010), address(0x1004), None]);
        let jumps = [0x1010, 0x1020, 0x1024, 0x1000].map(|at| jump_at(&image, at));
        let slot = Some(Target::Slot(0x2008));
        assert_eq!(jumps, [slot, address(0x1000), address(0x1000), None]);
    }

    #[test]
    fn jumps_in_a_function() {
        let code: [u32; 6] = [
            0x1400_0010, // 0: b 40
            0x5400_0041, // 4: b.ne c
            0x36ff_ffc0, // 8: tbz w0, #31, 0
            0xb500_0060, // c: cbnz x0, 18
            0x9400_0004, // 10: bl 20
            0xd65f_03c0, // 14: ret
        ];
        let bytes: Vec<u8> = code.into_iter().flat_map(u32::to_le_bytes).collect();
        let found = jumps_in(&bytes, 0x1000);
        let expected = [(0x0, 0x40), (0x4, 0xc), (0x8, 0x0), (0xc, 0x18)];
        let expected = expected.map(|(at, to)| (0x1000 + at, Target::Address(0x1000 + to)));
        assert_eq!(found, expected);
    }
}
