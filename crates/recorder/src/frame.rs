//! The words of a call on the stack, which [`rally_mpi_call`](crate::arch::rally_mpi_call) draws. Argument *i* is the word *i*, or *i* + 2 from
//! the seventh on, and the word 7 is the address to which the call returns.

/// The word of a frame that is the address to which the call returns.
const SITE: usize = 7;

/// Returns the word of a frame that is an argument.
pub(crate) const fn word_of_argument(index: usize) -> usize {
    if index < 6 { index } else { index + 2 }
}

/// Words below a frame, which `arch` draws.
pub(crate) const NUMBER: usize = 1;
pub(crate) const OUTER: usize = 2;
pub(crate) const RECORD: usize = 3;
pub(crate) const OUTER_CALL: usize = 5;
pub(crate) const OUTER_SITE: usize = 6;
pub(crate) const PLAIN: usize = 7;

/// The arguments of a call, which are words of its stack.
#[derive(Clone, Copy)]
#[repr(transparent)]
pub(crate) struct Frame(*mut u64);

impl Frame {
    /// Takes the address of a frame that `rally_mpi_call` has made.
    pub(crate) const fn at(address: *mut u64) -> Self {
        Self(address)
    }

    /// Returns a word at or above the frame.
    #[inline(always)]
    pub(crate) fn word(self, index: u8) -> u64 {
        // SAFETY: the words up to the arguments on the stack belong to the call, which `rally_mpi_call` has got. A table names the words.
        unsafe { *self.0.add(usize::from(index)) }
    }

    #[inline(always)]
    pub(crate) fn number(self, index: u8) -> i32 {
        self.word(index) as i32
    }

    #[inline(always)]
    pub(crate) fn site(self) -> u64 {
        self.word(SITE as u8)
    }

    #[inline(always)]
    pub(crate) fn address(self) -> u64 {
        self.0 as u64
    }

    #[inline(always)]
    pub(crate) fn below(self, words: usize) -> u64 {
        // SAFETY: the way of the call has made room for eight words below its frame.
        unsafe { *self.0.sub(words) }
    }

    #[inline(always)]
    pub(crate) fn set_below(self, words: usize, value: u64) {
        // SAFETY: as above, and nobody else uses them.
        unsafe { *self.0.sub(words) = value };
    }
}
