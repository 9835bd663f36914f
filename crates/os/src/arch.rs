//! The registers of a stopped thread: the one thing here that depends on the processor architecture.

pub(crate) use self::native::{begun_again, leading};

#[cfg(target_arch = "x86_64")]
mod native {
    use base::Registers;
    use libc::user_regs_struct;

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
    use base::Registers;
    use libc::user_regs_struct;

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
