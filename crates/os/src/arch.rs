//! The registers of a stopped thread. Nothing else in this crate depends on the processor architecture.
#![cfg_attr(
    target_arch = "aarch64",
    expect(
        unsafe_code,
        reason = "nix does not say how many bytes of registers a thread of a 32-bit program has"
    )
)]

pub(crate) use self::native::{BREAKPOINT, before_breakpoint, begun_again, leading, read, write};

#[cfg(target_arch = "x86_64")]
mod native {
    use base::Registers;
    use libc::user_regs_struct;
    use nix::sys::ptrace;

    use crate::{error::Error, process::Pid};

    /// Reads the general registers of a stopped thread that we trace. `PTRACE_GETREGS` returns 64-bit registers even for a
    /// thread of a 32-bit program; `PTRACE_GETREGSET` would not.
    pub(crate) fn read(tid: Pid) -> Result<user_regs_struct, Error> {
        ptrace::getregs(nix::unistd::Pid::from_raw(tid.as_raw()))
            .map_err(Error::nix("read the registers of a thread"))
    }

    /// Writes the general registers of a stopped thread that we trace.
    pub(crate) fn write(tid: Pid, registers: &user_regs_struct) {
        // An error means that the thread was killed.
        let _ = ptrace::setregs(nix::unistd::Pid::from_raw(tid.as_raw()), *registers);
    }

    /// The instruction that stops a traced thread: `int3`.
    pub(crate) const BREAKPOINT: [u8; 1] = [0xcc];

    /// Returns the registers with which a thread that has executed the breakpoint at an address executes what was there before.
    /// `None` if it has not.
    pub(crate) const fn before_breakpoint(
        mut registers: user_regs_struct,
        address: u64,
    ) -> Option<user_regs_struct> {
        if registers.rip != address.wrapping_add(BREAKPOINT.len() as u64) {
            return None;
        }
        registers.rip = address;
        Some(registers)
    }

    /// Length of the `syscall` instruction in bytes.
    const SYSCALL_LENGTH: u64 = 2;

    /// Returns the registers from which the stack is unwound.
    pub(crate) const fn leading(registers: &user_regs_struct) -> Registers {
        Registers::X86_64 {
            instruction: registers.rip,
            stack: registers.rsp,
            frame: registers.rbp,
            thread: registers.fs_base,
        }
    }

    /// Returns the registers with which a thread restarts a system call that returned `EINTR`. `None` if it did not, or if
    /// the call has a timeout. The kernel restarts most calls itself, but not these.
    pub(crate) fn begun_again(mut registers: user_regs_struct) -> Option<user_regs_struct> {
        let call = i64::try_from(registers.orig_rax).unwrap_or(-1);
        let without_limit = match call {
            libc::SYS_epoll_wait | libc::SYS_epoll_pwait => {
                // The timeout is an int in milliseconds; negative means none.
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

    /// The set of general registers, `NT_PRSTATUS`, as a word.
    const GENERAL: usize = 1;

    /// Reads the general registers of a stopped thread that we trace.
    ///
    /// # Errors
    /// `ENOTSUP` for a thread of a 32-bit program, whose registers differ.
    pub(crate) fn read(tid: Pid) -> Result<user_regs_struct, Error> {
        const WHAT: &str = "read the registers of a thread";
        let mut registers = MaybeUninit::<user_regs_struct>::uninit();
        let mut part = libc::iovec {
            iov_base: registers.as_mut_ptr().cast(),
            iov_len: size_of_val(&registers),
        };
        // SAFETY: the kernel writes no more than the length in `part`, and puts there how much it has written.
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

    /// Does nothing: see [`begun_again`] and [`before_breakpoint`].
    pub(crate) const fn write(_: Pid, _: &user_regs_struct) {}

    /// The instruction that stops a traced thread: `brk #0`.
    pub(crate) const BREAKPOINT: [u8; 4] = 0xd420_0000_u32.to_le_bytes();

    /// Returns the registers of a thread that has stopped at the breakpoint at an address. The processor has not moved it behind the
    /// breakpoint. `None` if it is not there.
    pub(crate) fn before_breakpoint(
        registers: user_regs_struct,
        address: u64,
    ) -> Option<user_regs_struct> {
        (registers.pc == address).then_some(registers)
    }

    /// Returns the registers from which the stack is unwound.
    pub(crate) const fn leading(registers: &user_regs_struct) -> Registers {
        Registers::Aarch64 {
            instruction: registers.pc,
            stack: registers.sp,
            frame: registers.regs[29],
            link: registers.regs[30],
        }
    }

    /// Returns `None`: a tracer cannot read the first argument of a call that has returned, so it cannot restart the call.
    /// `epoll_wait` and similar calls return `EINTR` to their program, as they do for any signal.
    pub(crate) const fn begun_again(_: user_regs_struct) -> Option<user_regs_struct> {
        None
    }
}
