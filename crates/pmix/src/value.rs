//! The data of PMIx: typed values, and the structures that carry them.
//!
//! The types cover what any version from 3 to 6 can send, independent of the encoding, which is in [`crate::codec`]. Strings are
//! C strings, because a peer's strings need not be UTF-8 and cannot contain a NUL. An absent string differs from an empty one.

mod kind;
pub(crate) mod print;
mod status;

use std::{
    borrow::Borrow,
    collections::BTreeSet,
    ffi::{CStr, CString},
    fmt,
    sync::Arc,
};

use bytes::Bytes;

pub use self::{
    kind::{
        AllocDirective, DataType, InfoFlags, IofChannels, JobState, Persistence, PmixRank,
        ProcState, Range, Scope,
    },
    status::Status,
};
use crate::{Bound, Error};

/// String that may be absent.
pub type Text = Option<CString>;

/// Declares a name type: a C string with a maximum length.
macro_rules! name {
    ($(#[$doc:meta])* $name:ident, $bound:expr) => {
        $(#[$doc])*
        #[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub struct $name(Arc<CStr>);

        impl $name {
            /// Creates a name.
            ///
            /// # Errors
            /// [`Error::Limit`] when it is too long.
            pub fn new(name: &CStr) -> Result<Self, Error> {
                $bound.check(name.count_bytes())?;
                Ok(Self(name.into()))
            }

            /// Creates a name from text.
            ///
            /// # Errors
            /// The text is too long, or contains a NUL.
            pub fn from_text(name: &str) -> Result<Self, Error> {
                let name = CString::new(name).map_err(|_| Error::malformed(crate::Malformed::InnerNul))?;
                Self::new(&name)
            }

            /// Returns the name as a C string.
            #[must_use]
            pub fn as_c_str(&self) -> &CStr {
                &self.0
            }

            /// Returns the name without its NUL.
            #[must_use]
            pub fn as_bytes(&self) -> &[u8] {
                self.0.to_bytes()
            }
        }

        impl Borrow<CStr> for $name {
            fn borrow(&self) -> &CStr {
                &self.0
            }
        }

        impl PartialEq<CStr> for $name {
            fn eq(&self, other: &CStr) -> bool {
                *self.0 == *other
            }
        }

        /// Prints the name with control characters escaped, so that it cannot move a cursor or break a line.
        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                print::harmless(f, self.as_bytes())
            }
        }

        impl fmt::Debug for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                fmt::Debug::fmt(&self.0, f)
            }
        }
    };
}

name! {
    /// Name of a namespace: of a job, a tool or a server. At most 255 bytes.
    Nspace, Bound::Nspace
}
name! {
    /// Key of an attribute or of a value that a process puts. At most 511 bytes.
    Key, Bound::PmixKey
}

impl Default for Nspace {
    /// Returns the empty name, which no namespace has.
    fn default() -> Self {
        Self(c"".into())
    }
}

/// One process, or all of a namespace if the rank is a wildcard.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Proc {
    pub nspace: Nspace,
    pub rank: PmixRank,
}

impl Proc {
    /// Returns the wildcard for all processes of a namespace.
    #[must_use]
    pub const fn all(nspace: Nspace) -> Self {
        Self {
            nspace,
            rank: PmixRank::WILDCARD,
        }
    }

    /// Returns true if `other` equals this process or is covered by its wildcard.
    #[must_use]
    pub fn covers(&self, other: &Self) -> bool {
        self.nspace == other.nspace && (self.rank == other.rank || self.rank == PmixRank::WILDCARD)
    }
}

impl fmt::Display for Proc {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.nspace, self.rank)
    }
}

impl fmt::Debug for Proc {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// Value of any type.
#[derive(Clone, Debug, PartialEq)]
pub enum Value {
    Undef,
    Bool(bool),
    Byte(u8),
    String(Text),
    Size(u64),
    Pid(u32),
    Int(i32),
    Int8(i8),
    Int16(i16),
    Int32(i32),
    Int64(i64),
    Uint(u32),
    Uint8(u8),
    Uint16(u16),
    Uint32(u32),
    Uint64(u64),
    /// Encoded as decimal text with six places after the point: small differences are lost.
    Float(f32),
    /// Encoded as decimal text with six places after the point: small differences are lost.
    Double(f64),
    Timeval(Timeval),
    /// Seconds since 1970.
    Time(u64),
    Status(Status),
    Value(Box<Self>),
    Proc(Box<Proc>),
    App(Box<App>),
    Info(Box<Info>),
    Pdata(Box<Pdata>),
    Buffer(Packed),
    ByteObject(Bytes),
    Kval(Box<Kval>),
    Persistence(Persistence),
    /// Address in the sender, meaningless to the receiver.
    Pointer(u8),
    Scope(Scope),
    Range(Range),
    Command(u8),
    InfoFlags(InfoFlags),
    DataType(DataType),
    ProcState(ProcState),
    ProcInfo(Box<ProcInfo>),
    Array(Box<DataArray>),
    Rank(PmixRank),
    Query(Box<Query>),
    /// zlib data after a length, see section 5.4 of `docs/formats/pmix.md`. Forwarded without decompression.
    CompressedString(Bytes),
    AllocDirective(AllocDirective),
    IofChannels(IofChannels),
    Envar(Box<Envar>),
    /// List of nodes or ranks in one of several compressed forms (section 5.6), each with its own end.
    Regex(Bytes),
    JobState(JobState),
    LinkState(u8),
    /// CPUs in hwloc's list form; `None` when not bound.
    Cpuset(Text),
    Topology(Box<Topology>),
    Devtype(u64),
    Loctype(u16),
    CompressedByteObject(Bytes),
    Nspace(Text),
    DataBuffer(Bytes),
    StorMedium(u64),
    StorAccess(u64),
    StorPersist(u64),
    StorAccessType(u16),
    ResblockDirective(u8),
    /// Structure that is not interpreted: its fields in the order of [`crate::codec::layout`].
    Record(Box<Record>),
}

/// Time in seconds and microseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Timeval {
    pub sec: i64,
    pub usec: i64,
}

/// Encoded buffer inside a message.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Packed {
    /// Kind of buffer in the sender's numbering: 1 without item types, 2 with them.
    pub kind: u8,
    pub bytes: Bytes,
}

/// Key with a value and flags: a directive in a request, or a fact in an answer.
#[derive(Clone, Debug, PartialEq)]
pub struct Info {
    pub key: Key,
    pub flags: InfoFlags,
    pub value: Value,
}

/// Key with a value.
#[derive(Clone, Debug, PartialEq)]
pub struct Kval {
    pub key: Key,
    pub value: Value,
}

/// Published data: its publisher, its key and its value.
#[derive(Clone, Debug, PartialEq)]
pub struct Pdata {
    pub proc: Proc,
    pub key: Key,
    pub value: Value,
}

/// Program to start.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct App {
    pub command: Text,
    pub argv: Vec<Text>,
    /// `NAME=value` strings, in addition to the environment that the launcher sets.
    pub env: Vec<Text>,
    pub cwd: Text,
    pub maxprocs: i32,
    pub info: Vec<Info>,
}

impl App {
    /// Creates an app of so many processes of a program with its arguments.
    #[must_use]
    pub fn new(words: Vec<CString>, maxprocs: i32) -> Self {
        Self {
            command: words.first().cloned(),
            argv: words.into_iter().map(Some).collect(),
            maxprocs,
            ..Self::default()
        }
    }
}

/// Row of a process table. The exit code in the C structure is never transmitted.
#[derive(Clone, Debug, PartialEq)]
pub struct ProcInfo {
    pub proc: Proc,
    pub hostname: Text,
    pub executable: Text,
    pub pid: u32,
    pub state: ProcState,
}

/// Query: keys, and qualifiers that restrict it.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Query {
    pub keys: Vec<Text>,
    pub qualifiers: Vec<Info>,
}

impl Query {
    /// Returns the keys in their order, each once: a key is short, and its result may be long.
    pub fn distinct_keys(&self) -> impl Iterator<Item = &CStr> {
        let mut seen = BTreeSet::new();
        let keys = self.keys.iter().flatten().map(|key| key.as_c_str());
        keys.filter(move |key| seen.insert(*key))
    }
}

/// Directive about an environment variable: to set it, add to it, or remove it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Envar {
    pub name: Text,
    pub value: Text,
    /// Separator between the values of a list.
    pub separator: u8,
}

/// Array of values of one type.
#[derive(Clone, Debug, PartialEq)]
pub struct DataArray {
    pub kind: DataType,
    pub elements: Elements,
}

/// Elements of an array.
#[derive(Clone, Debug, PartialEq)]
pub enum Elements {
    /// Elements of a one-byte type, stored compactly so that a large array takes no more memory than its bytes.
    Bytes(Bytes),
    Values(Vec<Value>),
    /// Number of elements of a type without any bytes, [`DataType::UNDEF`]. Only version 3 can encode a number other than 0.
    Nothing(u64),
    /// Absent array of [`DataType::UNDEF`]. libpmix 6 encodes a null pointer like this, and no other version can decode it. In
    /// version 3 it is encoded as an array of nothing.
    Absent,
}

/// hwloc's topology as text, and its support structures, whose layout depends on the peer's hwloc.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Topology {
    pub xml: Text,
    pub support: Bytes,
}

/// Structure as a list of its fields.
#[derive(Clone, Debug, PartialEq)]
pub struct Record {
    pub kind: DataType,
    pub fields: Vec<Value>,
}

impl Info {
    /// Creates an info without flags.
    #[must_use]
    pub fn new(key: Key, value: Value) -> Self {
        Self {
            key,
            flags: InfoFlags::default(),
            value,
        }
    }
}

impl Value {
    /// Creates a string value. Text after a NUL, which a C string cannot contain, is cut off.
    #[must_use]
    pub fn text(text: &str) -> Self {
        let end = text.find('\0').unwrap_or(text.len());
        Self::String(CString::new(&text[..end]).ok())
    }

    /// Creates an array of infos.
    #[must_use]
    pub fn infos(infos: Vec<Info>) -> Self {
        let infos = infos.into_iter().map(|info| Self::Info(Box::new(info)));
        Self::array(DataType::INFO, infos.collect())
    }

    /// Creates an array of processes.
    #[must_use]
    pub fn procs(procs: Vec<Proc>) -> Self {
        let procs = procs.into_iter().map(|proc| Self::Proc(Box::new(proc)));
        Self::array(DataType::PROC, procs.collect())
    }

    /// Creates an array of values of one type, which must not be a one-byte type.
    #[must_use]
    pub fn array(kind: DataType, values: Vec<Self>) -> Self {
        Self::Array(Box::new(DataArray {
            kind,
            elements: Elements::Values(values),
        }))
    }

    /// Returns the type of the value.
    #[must_use]
    pub fn kind(&self) -> DataType {
        match self {
            Self::Undef => DataType::UNDEF,
            Self::Bool(_) => DataType::BOOL,
            Self::Byte(_) => DataType::BYTE,
            Self::String(_) => DataType::STRING,
            Self::Size(_) => DataType::SIZE,
            Self::Pid(_) => DataType::PID,
            Self::Int(_) => DataType::INT,
            Self::Int8(_) => DataType::INT8,
            Self::Int16(_) => DataType::INT16,
            Self::Int32(_) => DataType::INT32,
            Self::Int64(_) => DataType::INT64,
            Self::Uint(_) => DataType::UINT,
            Self::Uint8(_) => DataType::UINT8,
            Self::Uint16(_) => DataType::UINT16,
            Self::Uint32(_) => DataType::UINT32,
            Self::Uint64(_) => DataType::UINT64,
            Self::Float(_) => DataType::FLOAT,
            Self::Double(_) => DataType::DOUBLE,
            Self::Timeval(_) => DataType::TIMEVAL,
            Self::Time(_) => DataType::TIME,
            Self::Status(_) => DataType::STATUS,
            Self::Value(_) => DataType::VALUE,
            Self::Proc(_) => DataType::PROC,
            Self::App(_) => DataType::APP,
            Self::Info(_) => DataType::INFO,
            Self::Pdata(_) => DataType::PDATA,
            Self::Buffer(_) => DataType::BUFFER,
            Self::ByteObject(_) => DataType::BYTE_OBJECT,
            Self::Kval(_) => DataType::KVAL,
            Self::Persistence(_) => DataType::PERSISTENCE,
            Self::Pointer(_) => DataType::POINTER,
            Self::Scope(_) => DataType::SCOPE,
            Self::Range(_) => DataType::RANGE,
            Self::Command(_) => DataType::COMMAND,
            Self::InfoFlags(_) => DataType::INFO_FLAGS,
            Self::DataType(_) => DataType::DATA_TYPE,
            Self::ProcState(_) => DataType::PROC_STATE,
            Self::ProcInfo(_) => DataType::PROC_INFO,
            Self::Array(_) => DataType::DATA_ARRAY,
            Self::Rank(_) => DataType::PROC_RANK,
            Self::Query(_) => DataType::QUERY,
            Self::CompressedString(_) => DataType::COMPRESSED_STRING,
            Self::AllocDirective(_) => DataType::ALLOC_DIRECTIVE,
            Self::IofChannels(_) => DataType::IOF_CHANNEL,
            Self::Envar(_) => DataType::ENVAR,
            Self::Regex(_) => DataType::REGEX,
            Self::JobState(_) => DataType::JOB_STATE,
            Self::LinkState(_) => DataType::LINK_STATE,
            Self::Cpuset(_) => DataType::PROC_CPUSET,
            Self::Topology(_) => DataType::TOPO,
            Self::Devtype(_) => DataType::DEVTYPE,
            Self::Loctype(_) => DataType::LOCTYPE,
            Self::CompressedByteObject(_) => DataType::COMPRESSED_BYTE_OBJECT,
            Self::Nspace(_) => DataType::PROC_NSPACE,
            Self::DataBuffer(_) => DataType::DATA_BUFFER,
            Self::StorMedium(_) => DataType::STOR_MEDIUM,
            Self::StorAccess(_) => DataType::STOR_ACCESS,
            Self::StorPersist(_) => DataType::STOR_PERSIST,
            Self::StorAccessType(_) => DataType::STOR_ACCESS_TYPE,
            Self::ResblockDirective(_) => DataType::RESBLOCK_DIRECTIVE,
            Self::Record(record) => record.kind,
        }
    }

    /// Returns the value as a flag. Only `false` clears a flag: an attribute with no value or a non-boolean one counts as set.
    #[must_use]
    pub const fn is_set(&self) -> bool {
        !matches!(self, Self::Bool(false))
    }

    /// Returns the value as a number, if it is an integer of any type and not negative.
    #[must_use]
    pub fn as_count(&self) -> Option<u64> {
        match *self {
            Self::Byte(value) | Self::Uint8(value) => Some(value.into()),
            Self::Uint16(value) => Some(value.into()),
            Self::Uint32(value) | Self::Uint(value) | Self::Pid(value) => Some(value.into()),
            Self::Rank(PmixRank(value)) => Some(value.into()),
            Self::Uint64(value) | Self::Size(value) | Self::Time(value) => Some(value),
            Self::Int8(value) => u64::try_from(value).ok(),
            Self::Int16(value) => u64::try_from(value).ok(),
            Self::Int32(value) | Self::Int(value) => u64::try_from(value).ok(),
            Self::Int64(value) => u64::try_from(value).ok(),
            _ => None,
        }
    }

    /// Returns the value as a number, also if it is a text of decimal digits. The command `pquery` gives every qualifier as a text.
    #[must_use]
    pub fn as_written_count(&self) -> Option<u64> {
        self.as_count().or_else(|| {
            let digits = self.as_text()?.to_str().ok()?;
            let is_number = digits.bytes().all(|byte| byte.is_ascii_digit());
            is_number.then(|| digits.parse().ok()).flatten()
        })
    }

    /// Returns the string, if the value is a string and not absent.
    #[must_use]
    pub fn as_text(&self) -> Option<&CStr> {
        match self {
            Self::String(Some(text)) => Some(text),
            _ => None,
        }
    }

    /// Returns the namespace, if the value is one: as a string, as a namespace, or as an array of them (its first
    /// element).
    #[must_use]
    pub fn as_nspace(&self) -> Option<Nspace> {
        match self {
            Self::String(Some(name)) | Self::Nspace(Some(name)) => Nspace::new(name).ok(),
            Self::Array(array) => match &array.elements {
                Elements::Values(values) => values.first()?.as_nspace(),
                _ => None,
            },
            _ => None,
        }
    }

    /// Returns the processes in the value: one, or an array of them.
    #[must_use]
    pub fn as_procs(&self) -> Option<Vec<&Proc>> {
        match self {
            Self::Proc(proc) => Some(vec![proc]),
            Self::Array(array) => match &array.elements {
                Elements::Values(values) => values
                    .iter()
                    .map(|value| match value {
                        Self::Proc(proc) => Some(&**proc),
                        _ => None,
                    })
                    .collect(),
                _ => None,
            },
            _ => None,
        }
    }

    /// Returns the infos of an array of infos.
    #[must_use]
    pub fn as_infos(&self) -> Option<Vec<&Info>> {
        let Self::Array(array) = self else {
            return None;
        };
        match &array.elements {
            Elements::Values(values) => values
                .iter()
                .map(|value| match value {
                    Self::Info(info) => Some(&**info),
                    _ => None,
                })
                .collect(),
            _ => None,
        }
    }
}
