//! The data types of PMIx, and those of them that are small open sets of numbers.

use std::fmt;

/// Type of a value. The numbers are those of `pmix_common.h` and equal in every version from 3 to 6 (section 5.4 of
/// `docs/formats/pmix.md`). A peer may use numbers that are not listed here.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct DataType(pub u16);

/// Declares an open set of numbers: named constants, and a `Debug` that prints the name.
macro_rules! open_set {
    ($(#[$doc:meta])* $set:ident($number:ty) { $($(#[$each:meta])* $name:ident = $value:expr,)* }) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub struct $set(pub $number);

        impl $set {
            $($(#[$each])* pub const $name: Self = Self($value);)*
        }

        impl fmt::Debug for $set {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                match *self {
                    $(Self::$name => f.write_str(stringify!($name)),)*
                    Self(other) => write!(f, "{}({other})", stringify!($set)),
                }
            }
        }
    };
}

macro_rules! data_types {
    ($($(#[$doc:meta])* $name:ident = $number:expr,)*) => {
        impl DataType {
            $($(#[$doc])* pub const $name: Self = Self($number);)*

            /// Returns the name of the number, if it is known.
            #[must_use]
            pub const fn name(self) -> Option<&'static str> {
                match self {
                    $(Self::$name => Some(stringify!($name)),)*
                    _ => None,
                }
            }
        }
    };
}

data_types! {
    /// No value.
    UNDEF = 0,
    BOOL = 1,
    BYTE = 2,
    STRING = 3,
    SIZE = 4,
    PID = 5,
    INT = 6,
    INT8 = 7,
    INT16 = 8,
    INT32 = 9,
    INT64 = 10,
    UINT = 11,
    UINT8 = 12,
    UINT16 = 13,
    UINT32 = 14,
    UINT64 = 15,
    FLOAT = 16,
    DOUBLE = 17,
    TIMEVAL = 18,
    TIME = 19,
    STATUS = 20,
    VALUE = 21,
    PROC = 22,
    APP = 23,
    INFO = 24,
    PDATA = 25,
    BUFFER = 26,
    BYTE_OBJECT = 27,
    KVAL = 28,
    /// Retired: data exchanged between processes, later a byte object. Version 3 can still send it.
    MODEX = 29,
    PERSISTENCE = 30,
    POINTER = 31,
    SCOPE = 32,
    RANGE = 33,
    COMMAND = 34,
    INFO_FLAGS = 35,
    DATA_TYPE = 36,
    PROC_STATE = 37,
    PROC_INFO = 38,
    DATA_ARRAY = 39,
    PROC_RANK = 40,
    QUERY = 41,
    COMPRESSED_STRING = 42,
    ALLOC_DIRECTIVE = 43,
    /// Retired: array of infos, later an array of any type. Version 3 can still send it.
    INFO_ARRAY = 44,
    IOF_CHANNEL = 45,
    ENVAR = 46,
    COORD = 47,
    REGATTR = 48,
    REGEX = 49,
    JOB_STATE = 50,
    LINK_STATE = 51,
    PROC_CPUSET = 52,
    GEOMETRY = 53,
    DEVICE_DIST = 54,
    ENDPOINT = 55,
    TOPO = 56,
    DEVTYPE = 57,
    LOCTYPE = 58,
    COMPRESSED_BYTE_OBJECT = 59,
    PROC_NSPACE = 60,
    PROC_STATS = 61,
    DISK_STATS = 62,
    NET_STATS = 63,
    NODE_STATS = 64,
    DATA_BUFFER = 65,
    STOR_MEDIUM = 66,
    STOR_ACCESS = 67,
    STOR_PERSIST = 68,
    STOR_ACCESS_TYPE = 69,
    DEVICE = 70,
    RESBLOCK_DIRECTIVE = 71,
    RESOURCE_UNIT = 72,
    NODE_PID = 73,
}

impl fmt::Debug for DataType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.name() {
            Some(name) => f.write_str(name),
            None => write!(f, "DataType({})", self.0),
        }
    }
}

open_set! {
    /// Visibility of the data that a process puts.
    Scope(u8) {
        UNDEF = 0,
        /// Processes on the same node.
        LOCAL = 1,
        /// Processes on other nodes.
        REMOTE = 2,
        /// Processes on all nodes.
        GLOBAL = 3,
        /// The process itself only.
        INTERNAL = 4,
    }
}

open_set! {
    /// Reach of an event or of published data.
    Range(u8) {
        UNDEF = 0,
        /// The host environment only.
        RM = 1,
        /// Processes on the same node.
        LOCAL = 2,
        /// Processes of the same namespace.
        NAMESPACE = 3,
        /// Processes of the same session.
        SESSION = 4,
        /// All processes.
        GLOBAL = 5,
        /// The processes listed in the event.
        CUSTOM = 6,
        /// The process itself only.
        PROC_LOCAL = 7,
    }
}

open_set! {
    /// Lifetime of published data.
    Persistence(u8) {
        /// Until it is unpublished.
        INDEF = 0,
        /// Until the first lookup.
        FIRST_READ = 1,
        /// Until the process that published it ends.
        PROC = 2,
        /// Until the app of that process ends.
        APP = 3,
        /// Until the session ends.
        SESSION = 4,
    }
}

open_set! {
    /// State of a process.
    ProcState(u8) {
        UNDEF = 0,
        PREPPED = 1,
        LAUNCH_UNDERWAY = 2,
        RESTART = 3,
        TERMINATE = 4,
        RUNNING = 5,
        CONNECTED = 6,
        UNTERMINATED = 15,
        TERMINATED = 20,
        ERROR = 50,
        KILLED_BY_CMD = 51,
        ABORTED = 52,
        FAILED_TO_START = 53,
        ABORTED_BY_SIG = 54,
        TERM_WO_SYNC = 55,
        CALLED_ABORT = 58,
    }
}

open_set! {
    /// What to do with an allocation.
    AllocDirective(u8) {
        NEW = 1,
        EXTEND = 2,
        RELEASE = 3,
        REACQUIRE = 4,
        /// The first one that a resource manager defines by itself.
        EXTERNAL = 128,
    }
}

open_set! {
    /// State of a job.
    JobState(u8) {
        UNDEF = 0,
        AWAITING_ALLOC = 1,
        LAUNCH_UNDERWAY = 2,
        RUNNING = 3,
        SUSPENDED = 4,
        CONNECTED = 5,
        UNTERMINATED = 15,
        TERMINATED = 20,
        TERMINATED_WITH_ERROR = 50,
    }
}

/// Set of standard streams of a process, as bits.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct IofChannels(pub u16);

impl IofChannels {
    pub const STDIN: Self = Self(1);
    pub const STDOUT: Self = Self(2);
    pub const STDERR: Self = Self(4);
    /// Diagnostics of the launcher.
    pub const STDDIAG: Self = Self(8);

    /// Returns true if the sets have a common bit.
    #[must_use]
    pub const fn meets(self, other: Self) -> bool {
        self.0 & other.0 != 0
    }

    /// Returns the union of the sets.
    #[must_use]
    pub const fn with(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }
}

/// Flags that the sender of an info sets, as bits.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct InfoFlags(pub u32);

impl InfoFlags {
    /// The receiver must act on the info or fail.
    pub const REQUIRED: Self = Self(1);
    /// End of an array in C, meaningless on the wire.
    pub const ARRAY_END: Self = Self(2);
    pub const REQUIRED_PROCESSED: Self = Self(4);
    pub const QUALIFIER: Self = Self(8);
    pub const PERSISTENT: Self = Self(16);

    /// Returns true if all bits of `other` are set.
    #[must_use]
    pub const fn has(self, other: Self) -> bool {
        self.0 & other.0 == other.0
    }
}

/// Rank in PMIx: the number of a process, or a special value for a set of ranks.
#[derive(Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PmixRank(pub u32);

impl PmixRank {
    /// No particular rank: refers to a key that only one process has put.
    pub const UNDEF: Self = Self(0xffff_ffff);
    /// All ranks of the namespace, or the job as a whole.
    pub const WILDCARD: Self = Self(0xffff_fffe);
    pub const LOCAL_NODE: Self = Self(0xffff_fffd);
    pub const INVALID: Self = Self(0xffff_fffc);
    pub const LOCAL_PEERS: Self = Self(0xffff_fffb);
    /// The largest number of a process.
    pub const LARGEST: Self = Self(0xffff_ffcd);

    /// Returns true if this is the number of one process.
    #[must_use]
    pub const fn is_number(self) -> bool {
        self.0 <= Self::LARGEST.0
    }
}

impl fmt::Display for PmixRank {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Self::UNDEF => f.write_str("undef"),
            Self::WILDCARD => f.write_str("*"),
            Self::LOCAL_NODE => f.write_str("local-node"),
            Self::INVALID => f.write_str("invalid"),
            Self::LOCAL_PEERS => f.write_str("local-peers"),
            Self(number) => write!(f, "{number}"),
        }
    }
}

impl fmt::Debug for PmixRank {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl From<base::Rank> for PmixRank {
    fn from(rank: base::Rank) -> Self {
        Self(rank.0)
    }
}
