//! Processor architectures, the registers needed to unwind a stack, and what a thread does in the kernel.

use std::fmt;

/// An architecture that Rallypoint supports.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Arch {
    /// 64-bit x86.
    X86_64,
    /// 64-bit ARM, little-endian.
    Aarch64,
}

impl Arch {
    /// All architectures.
    pub const ALL: [Self; 2] = [Self::X86_64, Self::Aarch64];

    /// The architecture that this program was compiled for, and so that of every process that it can trace.
    #[cfg(target_arch = "x86_64")]
    pub const NATIVE: Self = Self::X86_64;
    /// The architecture that this program was compiled for, and so that of every process that it can trace.
    #[cfg(target_arch = "aarch64")]
    pub const NATIVE: Self = Self::Aarch64;
}

#[cfg(not(all(
    any(target_arch = "x86_64", target_arch = "aarch64"),
    target_endian = "little"
)))]
compile_error!(
    "Rallypoint knows x86_64 and little-endian aarch64 only: a port begins in crates/base/src/arch.rs, and continues where \
     the compiler then asks for it (docs/decisions/0019-architectures.md)"
);

impl fmt::Display for Arch {
    /// Writes the name that `uname -m` prints.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::X86_64 => "x86_64",
            Self::Aarch64 => "aarch64",
        })
    }
}

/// The registers of a stopped thread that are needed to unwind its stack.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Registers {
    /// Registers of x86-64.
    X86_64 {
        /// The instruction pointer, `rip`.
        instruction: u64,
        /// The stack pointer, `rsp`.
        stack: u64,
        /// `rbp`, which is the frame pointer in code that keeps one.
        frame: u64,
        /// `fs_base`, where glibc and musl keep what `pthread_self` returns.
        thread: u64,
    },
    /// Registers of aarch64.
    Aarch64 {
        /// The program counter, `pc`.
        instruction: u64,
        /// The stack pointer, `sp`.
        stack: u64,
        /// The frame pointer, `x29`.
        frame: u64,
        /// The link register, `x30`: the return address of a function that has not saved it.
        link: u64,
    },
}

impl Registers {
    /// Returns the address of the next instruction.
    #[must_use]
    pub const fn instruction(&self) -> u64 {
        match self {
            Self::X86_64 { instruction, .. } | Self::Aarch64 { instruction, .. } => *instruction,
        }
    }

    /// Returns the stack pointer.
    #[must_use]
    pub const fn stack(&self) -> u64 {
        match self {
            Self::X86_64 { stack, .. } | Self::Aarch64 { stack, .. } => *stack,
        }
    }

    /// Returns what `pthread_self` returns in this thread, if a register holds it. On aarch64 that value is below the
    /// thread pointer, at a distance that differs between C libraries.
    #[must_use]
    pub const fn pthread(&self) -> Option<u64> {
        match self {
            Self::X86_64 { thread, .. } => Some(*thread),
            Self::Aarch64 { .. } => None,
        }
    }

    /// Makes registers from what the kernel reports of a thread that is blocked and not stopped: its instruction pointer
    /// and stack pointer.
    #[must_use]
    pub const fn of_blocked(instruction: u64, stack: u64) -> Self {
        match Arch::NATIVE {
            Arch::X86_64 => Self::X86_64 {
                instruction,
                stack,
                frame: 0,
                thread: 0,
            },
            Arch::Aarch64 => Self::Aarch64 {
                instruction,
                stack,
                frame: 0,
                link: 0,
            },
        }
    }
}

/// What a thread does in the kernel, as `/proc/PID/task/TID/syscall` says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum InKernel {
    /// The thread is not blocked.
    Running,
    /// The thread is blocked: in a system call or, if `call` is `None`, in a fault or an interrupt.
    Blocked {
        /// The number of the system call.
        call: Option<u64>,
        /// The arguments of the system call.
        arguments: [u64; 6],
        /// The stack pointer.
        stack: u64,
        /// The address of the next instruction.
        instruction: u64,
    },
}
