//! The registers of a stopped thread: the one thing here that depends on the processor architecture.
#![cfg_attr(
    target_arch = "aarch64",
    expect(
        unsafe_code,
        reason = "nix does not say how many bytes of registers a thread of a 32-bit program has"
    )
)]

pub(crate) use self::native::{begun_again, leading, read, write};

#[cfg(target_arch = "x86_64")]
mod native {
    use base::Registers;
    use libc::user_regs_struct;
    use nix::sys::ptrace;

    use crate::{error::Error, process::Pid};

    /// The general registers of a thread that we trace and that is stopped. By `PTRACE_GETREGS` a thread of a 32-bit program has
    /// those of 64 bits too; by `PTRACE_GETREGSET` it would not.
    pub(crate) fn read(tid: Pid) -> Result<user_regs_struct, Error> {
        ptrace::getregs(nix::unistd::Pid::from_raw(tid.as_raw()))
            .map_err(Error::nix("read the registers of a thread"))
    }

    /// Sets them.
    pub(crate) fn write(tid: Pid, registers: &user_regs_struct) {
        // A thread that was killed has no use for them.
        let _ = ptrace::setregs(nix::unistd::Pid::from_raw(tid.as_raw()), *registers);
    }

    /// Bytes of the instruction that enters the kernel.
    const SYSCALL_LENGTH: u64 = 2;

    /// Those that lead through the stack.
    pub(crate) const fn leading(registers: &user_regs_struct) -> Registers {
        Registers::X86_64 {
            instruction: registers.rip,
            stack: registers.rsp,
            frame: registers.rbp,
            thread: registers.fs_base,
        }
    }

    /// The registers with which a thread begins a system call again that has ended with `EINTR`; nothing where it has not, or
    /// where the call has a limit. The kernel begins most calls again by itself, but not these.
    pub(crate) fn begun_again(mut registers: user_regs_struct) -> Option<user_regs_struct> {
        let call = i64::try_from(registers.orig_rax).unwrap_or(-1);
        let without_limit = match call {
            libc::SYS_epoll_wait | libc::SYS_epoll_pwait => {
                // The limit is an int of milliseconds, and negative for none.
                registers.r10 & 0x8000_0000 != 0
            }
            libc::SYS_epoll_pwait2 | libc::SYS_semtimedop => registers.r10 == 0,
            libc::SYS_rt_sigtimedwait => registers.rdx == 0,
            libc::SYS_io_getevents => registers.r8 == 0,
            libc::SYS_semop => true,
            _ => false,
        };
        let was_interrupted = registers.rax.cast_signed() == -i64::from(libc::EINTR);
        (without_limit && was_interrupted).then(|| {
            registers.rax = registers.orig_rax;
            registers.rip -= SYSCALL_LENGTH;
            registers
        })
    }
}

#[cfg(target_arch = "aarch64")]
mod native {
    use std::mem::MaybeUninit;

    use base::Registers;
    use libc::user_regs_struct;
    use nix::errno::Errno;

    use crate::{error::Error, process::Pid};

    /// The general registers, `NT_PRSTATUS`, as a word.
    const GENERAL: usize = 1;

    /// The general registers of a thread that we trace and that stands.
    ///
    /// # Errors
    /// `ENOTSUP` for a thread of a 32-bit program, which has others.
    pub(crate) fn read(tid: Pid) -> Result<user_regs_struct, Error> {
        const WHAT: &str = "read the registers of a thread";
        let mut registers = MaybeUninit::<user_regs_struct>::uninit();
        let mut part = libc::iovec {
            iov_base: registers.as_mut_ptr().cast(),
            iov_len: size_of_val(&registers),
        };
        // SAFETY: the kernel writes no more than the length in `part`, and says there how much it has written.
        let result =
            unsafe { libc::ptrace(libc::PTRACE_GETREGSET, tid.as_raw(), GENERAL, &raw mut part) };
        if result == -1 {
            return Err(Error::last(WHAT));
        }
        if part.iov_len != size_of_val(&registers) {
            return Err(Error::nix(WHAT)(Errno::ENOTSUP));
        }
        // SAFETY: it is filled, see above.
        Ok(unsafe { registers.assume_init() })
    }

    /// Nothing: see [`begun_again`].
    pub(crate) const fn write(_: Pid, _: &user_regs_struct) {}

    /// Those that lead through the stack.
    pub(crate) const fn leading(registers: &user_regs_struct) -> Registers {
        Registers::Aarch64 {
            instruction: registers.pc,
            stack: registers.sp,
            frame: registers.regs[29],
            link: registers.regs[30],
        }
    }

    /// Nothing: the first argument of a call that has ended stands nowhere that a tracer can read, so that none can be begun
    /// again. `epoll_wait` and its kin return `EINTR` to their program, as they do for any signal.
    pub(crate) const fn begun_again(_: user_regs_struct) -> Option<user_regs_struct> {
        None
    }
}
