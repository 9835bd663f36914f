//! The constants of an MPI library. Programs that are compiled with its header pass them, so they cannot change.

/// A binary interface of MPI.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub enum Flavor {
    /// MPICH and the libraries that follow it. Handles are numbers of 32 bits.
    Mpich = 1,
    /// Open MPI. Handles are addresses.
    OpenMpi = 2,
    /// The standard's own, `libmpi_abi`. Handles have the size of addresses.
    Standard = 3,
}

impl Flavor {
    /// Returns the flavor with a number, which a region has.
    #[must_use]
    pub const fn from_number(number: u32) -> Option<Self> {
        match number {
            1 => Some(Self::Mpich),
            2 => Some(Self::OpenMpi),
            3 => Some(Self::Standard),
            _ => None,
        }
    }

    /// `MPI_PROC_NULL`: no message at all.
    #[must_use]
    pub const fn proc_null(self) -> i32 {
        match self {
            Self::Mpich => -1,
            Self::OpenMpi => -2,
            Self::Standard => -3,
        }
    }

    /// `MPI_ROOT`: the process itself is the root, for the other group of an intercommunicator.
    #[must_use]
    pub const fn root(self) -> i32 {
        match self {
            Self::Mpich => -3,
            Self::OpenMpi | Self::Standard => -4,
        }
    }

    /// `MPI_ANY_SOURCE`.
    #[must_use]
    pub const fn any_source(self) -> i32 {
        match self {
            Self::Mpich => -2,
            Self::OpenMpi | Self::Standard => -1,
        }
    }

    /// `MPI_ANY_TAG`.
    #[must_use]
    pub const fn any_tag(self) -> i32 {
        match self {
            Self::Mpich | Self::OpenMpi => -1,
            Self::Standard => -2,
        }
    }

    /// `MPI_REQUEST_NULL`; `None` if it differs from process to process.
    #[must_use]
    pub const fn request_null(self) -> Option<u64> {
        match self {
            Self::Mpich => Some(0x2c00_0000),
            Self::OpenMpi => None,
            Self::Standard => Some(0x180),
        }
    }

    /// `MPI_THREAD_SINGLE`, `FUNNELED`, `SERIALIZED` and `MULTIPLE`.
    #[must_use]
    pub const fn thread_levels(self) -> [i32; 4] {
        match self {
            Self::Mpich | Self::OpenMpi => [0, 1, 2, 3],
            Self::Standard => [0, 1024, 2048, 4096],
        }
    }

    /// The bits of an argument that are a handle.
    #[must_use]
    pub const fn handle(self, word: u64) -> u64 {
        match self {
            Self::Mpich => word & 0xffff_ffff,
            Self::OpenMpi | Self::Standard => word,
        }
    }

    /// Size of a handle in memory, in bytes.
    #[must_use]
    pub const fn handle_size(self) -> usize {
        match self {
            Self::Mpich => 4,
            Self::OpenMpi | Self::Standard => 8,
        }
    }
}
