//! Human-readable values on one line.
//!
//! Long texts and long lists are shortened; `{:#}` prints them in full. The type follows a value unless its form makes it clear:
//! `2:UINT32`, `"text"`, `name:3` (a process).

use std::{
    ffi::CStr,
    fmt::{self, Display, Formatter, Write},
};

use super::{
    App, DataArray, DataType, Elements, Envar, Info, InfoFlags, IofChannels, Kval, Packed, Pdata,
    ProcInfo, Query, Record, Text, Timeval, Topology, Value,
};

/// Maximum number of bytes printed of a text or of opaque data.
const BYTES_MAX: usize = 40;
/// Maximum number of elements printed of a list.
const LIST_MAX: usize = 32;

/// List in brackets.
pub(crate) struct List<'a, T>(pub(crate) &'a [T]);

impl<T: Display> Display for List<'_, T> {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        f.write_char('[')?;
        for (index, element) in self.0.iter().enumerate() {
            if index > 0 {
                f.write_str(", ")?;
            }
            if index == LIST_MAX && !f.alternate() {
                write!(f, "and {} more", self.0.len() - index)?;
                break;
            }
            element.fmt(f)?;
        }
        f.write_char(']')
    }
}

/// Text in quotes; it may be absent.
pub(crate) struct Quoted<'a>(pub(crate) &'a Text);

impl Display for Quoted<'_> {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        match self.0 {
            Some(text) => quoted(f, text),
            None => f.write_str("null"),
        }
    }
}

/// Bytes in quotes.
pub(crate) struct Opaque<'a>(pub(crate) &'a [u8]);

impl Display for Opaque<'_> {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        f.write_char('b')?;
        shortened(f, self.0, |f, bytes| write!(f, "{}", bytes.escape_ascii()))
    }
}

/// Text from a peer, without quotes.
pub(crate) struct Plain<'a>(pub(crate) &'a CStr);

impl Display for Plain<'_> {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        harmless(f, self.0.to_bytes())
    }
}

/// Prints bytes as text with control characters escaped.
pub(super) fn harmless(f: &mut Formatter<'_>, bytes: &[u8]) -> fmt::Result {
    for character in String::from_utf8_lossy(bytes).chars() {
        if character.is_control() {
            write!(f, "{}", character.escape_default())?;
        } else {
            f.write_char(character)?;
        }
    }
    Ok(())
}

fn quoted(f: &mut Formatter<'_>, text: &CStr) -> fmt::Result {
    shortened(f, text.to_bytes(), |f, bytes| {
        write!(f, "{}", String::from_utf8_lossy(bytes).escape_debug())
    })
}

fn shortened(
    f: &mut Formatter<'_>,
    bytes: &[u8],
    print: impl FnOnce(&mut Formatter<'_>, &[u8]) -> fmt::Result,
) -> fmt::Result {
    f.write_char('"')?;
    match bytes.get(..BYTES_MAX) {
        Some(start) if bytes.len() > BYTES_MAX && !f.alternate() => {
            print(f, start)?;
            write!(f, "\"...({} bytes)", bytes.len())
        }
        _ => {
            print(f, bytes)?;
            f.write_char('"')
        }
    }
}

/// Value without its type, which precedes it in the output.
struct Bare<'a>(&'a Value);

impl Display for Bare<'_> {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        match self.0 {
            Value::Undef => f.write_str("undef"),
            Value::Bool(value) => value.fmt(f),
            Value::String(text) | Value::Cpuset(text) | Value::Nspace(text) => Quoted(text).fmt(f),
            Value::Byte(value)
            | Value::Uint8(value)
            | Value::Pointer(value)
            | Value::Command(value)
            | Value::LinkState(value)
            | Value::ResblockDirective(value) => write!(f, "{value}"),
            Value::Int8(value) => write!(f, "{value}"),
            Value::Int16(value) => write!(f, "{value}"),
            Value::Int(value) | Value::Int32(value) => write!(f, "{value}"),
            Value::Int64(value) => write!(f, "{value}"),
            Value::Uint16(value) | Value::Loctype(value) | Value::StorAccessType(value) => {
                write!(f, "{value}")
            }
            Value::Pid(value) | Value::Uint(value) | Value::Uint32(value) => write!(f, "{value}"),
            Value::Size(value)
            | Value::Uint64(value)
            | Value::Time(value)
            | Value::Devtype(value)
            | Value::StorMedium(value)
            | Value::StorAccess(value)
            | Value::StorPersist(value) => write!(f, "{value}"),
            Value::Float(value) => write!(f, "{value}"),
            Value::Double(value) => write!(f, "{value}"),
            Value::Timeval(Timeval { sec, usec }) => write!(f, "{sec}s+{usec}us"),
            Value::Status(status) => status.fmt(f),
            Value::Value(value) => write!(f, "({value})"),
            Value::Proc(proc) => proc.fmt(f),
            Value::App(app) => app.fmt(f),
            Value::Info(info) => info.fmt(f),
            Value::Pdata(pdata) => pdata.fmt(f),
            Value::Kval(kval) => kval.fmt(f),
            Value::Query(query) => query.fmt(f),
            Value::ProcInfo(row) => row.fmt(f),
            Value::Envar(envar) => envar.fmt(f),
            Value::Buffer(buffer) => buffer.fmt(f),
            Value::ByteObject(bytes)
            | Value::CompressedString(bytes)
            | Value::CompressedByteObject(bytes)
            | Value::DataBuffer(bytes)
            | Value::Regex(bytes) => Opaque(bytes).fmt(f),
            Value::Persistence(value) => write!(f, "{value:?}"),
            Value::Scope(value) => write!(f, "{value:?}"),
            Value::Range(value) => write!(f, "{value:?}"),
            Value::InfoFlags(value) => value.fmt(f),
            Value::DataType(value) => write!(f, "{value:?}"),
            Value::ProcState(value) => write!(f, "{value:?}"),
            Value::AllocDirective(value) => write!(f, "{value:?}"),
            Value::JobState(value) => write!(f, "{value:?}"),
            Value::Array(array) => array.fmt(f),
            Value::Rank(rank) => rank.fmt(f),
            Value::IofChannels(channels) => channels.fmt(f),
            Value::Topology(topology) => topology.fmt(f),
            Value::Record(record) => record.fmt(f),
        }
    }
}

impl Display for Value {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        Bare(self).fmt(f)?;
        match self {
            // Their form makes the type clear.
            Self::Undef
            | Self::Bool(_)
            | Self::String(_)
            | Self::Status(_)
            | Self::Value(_)
            | Self::Proc(_)
            | Self::App(_)
            | Self::Info(_)
            | Self::Pdata(_)
            | Self::Kval(_)
            | Self::Query(_)
            | Self::ByteObject(_)
            | Self::Array(_)
            | Self::Topology(_)
            | Self::Record(_) => Ok(()),
            other => write!(f, ":{:?}", other.kind()),
        }
    }
}

impl Display for DataArray {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        match &self.elements {
            Elements::Bytes(bytes) => {
                write!(f, "{:?} ", self.kind).and_then(|()| Opaque(bytes).fmt(f))
            }
            Elements::Values(values) => {
                // The form of these elements makes the type clear.
                if !matches!(
                    self.kind,
                    DataType::INFO | DataType::STRING | DataType::PROC
                ) {
                    write!(f, "{:?}", self.kind)?;
                }
                let bare: Vec<Bare<'_>> = values.iter().map(Bare).collect();
                List(&bare).fmt(f)
            }
            Elements::Nothing(count) => write!(f, "{count} of nothing"),
            Elements::Absent => f.write_str("no array"),
        }
    }
}

impl Display for Record {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}", self.kind)?;
        List(&self.fields).fmt(f)
    }
}

impl Display for Info {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.key)?;
        if self.flags != InfoFlags::default() {
            write!(f, "({})", self.flags)?;
        }
        f.write_char('=')?;
        self.value.fmt(f)
    }
}

impl Display for Kval {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        write!(f, "{}=", self.key)?;
        self.value.fmt(f)
    }
}

impl Display for Pdata {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}=", self.proc, self.key)?;
        self.value.fmt(f)
    }
}

impl Display for App {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        write!(f, "{} x ", self.maxprocs)?;
        Quoted(&self.command).fmt(f)?;
        for (name, texts) in [(" argv ", &self.argv), (" env ", &self.env)] {
            f.write_str(name)?;
            let texts: Vec<Quoted<'_>> = texts.iter().map(Quoted).collect();
            List(&texts).fmt(f)?;
        }
        f.write_str(" cwd ")?;
        Quoted(&self.cwd).fmt(f)?;
        f.write_char(' ')?;
        List(&self.info).fmt(f)
    }
}

impl Display for Query {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let keys: Vec<Quoted<'_>> = self.keys.iter().map(Quoted).collect();
        List(&keys).fmt(f)?;
        if !self.qualifiers.is_empty() {
            f.write_str(" where ")?;
            List(&self.qualifiers).fmt(f)?;
        }
        Ok(())
    }
}

impl Display for ProcInfo {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        write!(f, "{} {:?} pid {} ", self.proc, self.state, self.pid)?;
        Quoted(&self.executable).fmt(f)?;
        f.write_str(" on ")?;
        Quoted(&self.hostname).fmt(f)
    }
}

impl Display for Envar {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        Quoted(&self.name).fmt(f)?;
        f.write_char('=')?;
        Quoted(&self.value).fmt(f)?;
        match self.separator {
            0 => Ok(()),
            separator => write!(f, " by '{}'", separator.escape_ascii()),
        }
    }
}

impl Display for Packed {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        Opaque(&self.bytes).fmt(f)
    }
}

impl Display for Topology {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        f.write_str("topology ")?;
        Quoted(&self.xml).fmt(f)
    }
}

/// Declares how a set of bits is printed: the names of known bits, then the number of the others.
macro_rules! bits {
    ($($set:ident { $($name:ident),* })*) => {$(
        impl Display for $set {
            fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
                let mut rest = self.0;
                let mut between = "";
                $(
                    if rest & Self::$name.0 != 0 {
                        rest &= !Self::$name.0;
                        write!(f, "{between}{}", stringify!($name))?;
                        between = "+";
                    }
                )*
                if rest != 0 || between.is_empty() {
                    write!(f, "{between}{rest}")?;
                }
                Ok(())
            }
        }
    )*};
}

bits! {
    IofChannels { STDIN, STDOUT, STDERR, STDDIAG }
    InfoFlags { REQUIRED, ARRAY_END, REQUIRED_PROCESSED, QUALIFIER, PERSISTENT }
}
