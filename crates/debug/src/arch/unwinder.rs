//! One interface for the unwinders of all architectures.

use base::{Arch, Registers};
use bytes::Bytes;
use framehop::{
    FrameAddress, Module, Unwinder as _,
    aarch64::{CacheAarch64, PtrAuthMask, UnwindRegsAarch64, UnwinderAarch64},
    x86_64::{CacheX86_64, UnwindRegsX86_64, UnwinderX86_64},
};

/// The address bits of a return address. On aarch64 the higher bits may contain a pointer authentication signature. Programs get
/// 48-bit addresses unless they request more.
const ADDRESS: u64 = (1 << 48) - 1;

/// The unwinding rules of all code that a process has mapped.
pub(crate) enum Unwinder {
    X86_64(UnwinderX86_64<Bytes>),
    Aarch64(UnwinderAarch64<Bytes>),
}

/// Caches of unwinding rules, shared by all processes.
#[derive(Default)]
pub(crate) struct Caches {
    x86_64: CacheX86_64,
    aarch64: CacheAarch64,
}

/// The registers of the current frame while a stack is unwound.
pub(crate) enum State {
    X86_64(UnwindRegsX86_64),
    Aarch64(UnwindRegsAarch64),
}

impl Unwinder {
    pub(crate) fn new(arch: Arch) -> Self {
        match arch {
            Arch::X86_64 => Self::X86_64(UnwinderX86_64::new()),
            Arch::Aarch64 => Self::Aarch64(UnwinderAarch64::new()),
        }
    }

    pub(crate) fn add(&mut self, module: Module<Bytes>) {
        match self {
            Self::X86_64(unwinder) => unwinder.add_module(module),
            Self::Aarch64(unwinder) => unwinder.add_module(module),
        }
    }

    /// Returns the return address of the function at `at`. `Ok(None)`: according to the rules it is the outermost function.
    pub(crate) fn caller(
        &self,
        at: FrameAddress,
        state: &mut State,
        caches: &mut Caches,
        mut read: impl FnMut(u64) -> Result<u64, ()>,
    ) -> Result<Option<u64>, Lost> {
        let caller = match (self, state) {
            (Self::X86_64(unwinder), State::X86_64(registers)) => {
                unwinder.unwind_frame(at, registers, &mut caches.x86_64, &mut read)
            }
            (Self::Aarch64(unwinder), State::Aarch64(registers)) => {
                unwinder.unwind_frame(at, registers, &mut caches.aarch64, &mut read)
            }
            // The registers are of another architecture than the code.
            (Self::X86_64(_), State::Aarch64(_)) | (Self::Aarch64(_), State::X86_64(_)) => {
                return Err(Lost);
            }
        };
        caller.map_err(|_| Lost)
    }
}

/// The error if no rule finds the caller.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Lost;

impl State {
    pub(crate) fn stack(&self) -> u64 {
        match self {
            Self::X86_64(registers) => registers.sp(),
            Self::Aarch64(registers) => registers.sp(),
        }
    }
}

impl From<&Registers> for State {
    fn from(registers: &Registers) -> Self {
        match *registers {
            Registers::X86_64 {
                instruction,
                stack,
                frame,
                ..
            } => Self::X86_64(UnwindRegsX86_64::new(instruction, stack, frame)),
            Registers::Aarch64 {
                stack, frame, link, ..
            } => Self::Aarch64(UnwindRegsAarch64::new_with_ptr_auth_mask(
                PtrAuthMask(ADDRESS),
                link,
                stack,
                frame,
            )),
        }
    }
}
