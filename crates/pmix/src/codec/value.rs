//! Values of any type, when the type is already known.

use bytes::Bytes;

use super::{
    CommandNumber, Family, Int, Pid, Reader, Size, Time, Wire, Writer,
    layout::{Field, layout},
};
use crate::{
    Error, Malformed,
    error::Unsupported,
    value::{
        AllocDirective, App, DataArray, DataType, Elements, Envar, Info, InfoFlags, IofChannels,
        JobState, Kval, Packed, Pdata, Persistence, PmixRank, Proc, ProcInfo, ProcState, Query,
        Range, Record, Scope, Status, Text, Timeval, Topology, Value,
    },
};

impl Writer {
    /// Appends the value without its type.
    pub(super) fn value(&mut self, value: &Value) {
        match value {
            Value::Undef => {}
            Value::Bool(value) => value.write(self),
            Value::Byte(value)
            | Value::Uint8(value)
            | Value::Pointer(value)
            | Value::Command(value)
            | Value::LinkState(value)
            | Value::ResblockDirective(value) => value.write(self),
            Value::Int8(value) => self.bytes.extend(value.to_ne_bytes()),
            Value::String(value) | Value::Cpuset(value) | Value::Nspace(value) => value.write(self),
            Value::Size(value) => Size(*value).write(self),
            Value::Pid(value) => Pid(*value).write(self),
            Value::Int(value) => Int(*value).write(self),
            // libpmix encodes a UINT with its routine for INT.
            Value::Uint(value) => Int(value.cast_signed()).write(self),
            Value::Int16(value) => value.write(self),
            Value::Int32(value) => value.write(self),
            Value::Int64(value) => value.write(self),
            Value::Uint16(value) | Value::Loctype(value) | Value::StorAccessType(value) => {
                value.write(self)
            }
            Value::Uint32(value) => value.write(self),
            Value::Uint64(value)
            | Value::Devtype(value)
            | Value::StorMedium(value)
            | Value::StorAccess(value)
            | Value::StorPersist(value) => value.write(self),
            Value::Float(value) => decimal(f64::from(*value)).write(self),
            Value::Double(value) => decimal(*value).write(self),
            Value::Timeval(value) => value.write(self),
            Value::Time(value) => Time(*value).write(self),
            Value::Status(value) => value.write(self),
            Value::Value(value) => value.write(self),
            Value::Proc(value) => value.write(self),
            Value::App(value) => value.write(self),
            Value::Info(value) => value.write(self),
            Value::Pdata(value) => value.write(self),
            Value::Buffer(value) => value.write(self),
            Value::ByteObject(value)
            | Value::CompressedString(value)
            | Value::CompressedByteObject(value)
            | Value::DataBuffer(value) => value.write(self),
            Value::Kval(value) => value.write(self),
            Value::Persistence(value) => value.write(self),
            Value::Scope(value) => value.write(self),
            Value::Range(value) => value.write(self),
            Value::InfoFlags(value) => value.write(self),
            Value::DataType(value) => value.write(self),
            Value::ProcState(value) => value.write(self),
            Value::ProcInfo(value) => value.write(self),
            Value::Array(value) => value.write(self),
            Value::Rank(value) => value.write(self),
            Value::Query(value) => value.write(self),
            Value::IofChannels(value) => value.write(self),
            Value::Envar(value) => value.write(self),
            Value::Regex(value) => self.raw(value),
            Value::AllocDirective(value) => value.write(self),
            Value::JobState(value) => value.write(self),
            Value::Topology(value) => value.write(self),
            Value::Record(record) => self.record(record),
        }
    }

    fn record(&mut self, record: &Record) {
        let fields = layout(record.kind).unwrap_or_default();
        for (field, value) in fields.iter().zip(&record.fields) {
            match (field, value) {
                (Field::One(_), value) => self.value(value),
                (Field::Sized(_), Value::Array(array)) => {
                    Size(array.elements.count()).write(self);
                    self.elements(&array.elements);
                }
                (Field::Counted(_), Value::Array(array)) => {
                    i32::try_from(array.elements.count())
                        .unwrap_or(i32::MAX)
                        .write(self);
                    self.elements(&array.elements);
                }
                // The fields are public: a value of the wrong form is encoded as an empty array.
                (Field::Sized(_), _) => Size(0).write(self),
                (Field::Counted(_), _) => 0_i32.write(self),
            }
        }
    }

    fn elements(&mut self, elements: &Elements) {
        match elements {
            Elements::Bytes(bytes) => self.raw(bytes),
            Elements::Values(values) => {
                for value in values {
                    self.value(value);
                }
            }
            Elements::Nothing(_) | Elements::Absent => {}
        }
    }
}

impl Reader<'_> {
    /// Decodes a value of this type.
    pub(super) fn value(&mut self, kind: DataType) -> Result<Value, Error> {
        Ok(match kind {
            DataType::UNDEF => Value::Undef,
            DataType::BOOL => Value::Bool(bool::read(self)?),
            DataType::BYTE => Value::Byte(u8::read(self)?),
            DataType::STRING => Value::String(Text::read(self)?),
            DataType::SIZE => Value::Size(Size::read(self)?.0),
            DataType::PID => Value::Pid(Pid::read(self)?.0),
            DataType::INT => Value::Int(Int::read(self)?.0),
            DataType::INT8 => Value::Int8(i8::from_ne_bytes([u8::read(self)?])),
            DataType::INT16 => Value::Int16(i16::read(self)?),
            DataType::INT32 => Value::Int32(i32::read(self)?),
            DataType::INT64 => Value::Int64(i64::read(self)?),
            DataType::UINT => Value::Uint(Int::read(self)?.0.cast_unsigned()),
            DataType::UINT8 => Value::Uint8(u8::read(self)?),
            DataType::UINT16 => Value::Uint16(u16::read(self)?),
            DataType::UINT32 => Value::Uint32(u32::read(self)?),
            DataType::UINT64 => Value::Uint64(u64::read(self)?),
            DataType::FLOAT => Value::Float(number(Text::read(self)?)?),
            DataType::DOUBLE => Value::Double(number(Text::read(self)?)?),
            DataType::TIMEVAL => Value::Timeval(Timeval::read(self)?),
            DataType::TIME => Value::Time(Time::read(self)?.0),
            DataType::STATUS => Value::Status(Status::read(self)?),
            DataType::VALUE => Value::Value(self.deeper(boxed)?),
            DataType::PROC => Value::Proc(boxed::<Proc>(self)?),
            DataType::APP => Value::App(self.deeper(boxed::<App>)?),
            DataType::INFO => Value::Info(self.deeper(boxed::<Info>)?),
            DataType::PDATA => Value::Pdata(self.deeper(boxed::<Pdata>)?),
            DataType::BUFFER => Value::Buffer(Packed::read(self)?),
            DataType::BYTE_OBJECT => Value::ByteObject(Bytes::read(self)?),
            DataType::KVAL => Value::Kval(self.deeper(boxed::<Kval>)?),
            DataType::PERSISTENCE => Value::Persistence(Persistence::read(self)?),
            DataType::POINTER => Value::Pointer(u8::read(self)?),
            DataType::SCOPE => Value::Scope(Scope::read(self)?),
            DataType::RANGE => Value::Range(Range::read(self)?),
            DataType::COMMAND => Value::Command(CommandNumber::read(self)?.0),
            DataType::INFO_FLAGS => Value::InfoFlags(InfoFlags::read(self)?),
            DataType::DATA_TYPE => Value::DataType(DataType::read(self)?),
            DataType::PROC_STATE => Value::ProcState(ProcState::read(self)?),
            DataType::PROC_INFO => Value::ProcInfo(boxed::<ProcInfo>(self)?),
            DataType::DATA_ARRAY => Value::Array(self.deeper(boxed::<DataArray>)?),
            DataType::PROC_RANK => Value::Rank(PmixRank::read(self)?),
            DataType::QUERY => Value::Query(self.deeper(boxed::<Query>)?),
            DataType::COMPRESSED_STRING => Value::CompressedString(Bytes::read(self)?),
            DataType::ALLOC_DIRECTIVE => Value::AllocDirective(AllocDirective::read(self)?),
            DataType::IOF_CHANNEL => Value::IofChannels(IofChannels::read(self)?),
            DataType::ENVAR => Value::Envar(boxed::<Envar>(self)?),
            DataType::REGEX => Value::Regex(self.regex()?),
            DataType::JOB_STATE => Value::JobState(JobState::read(self)?),
            DataType::LINK_STATE => Value::LinkState(u8::read(self)?),
            DataType::PROC_CPUSET => Value::Cpuset(Text::read(self)?),
            DataType::TOPO => Value::Topology(boxed::<Topology>(self)?),
            DataType::DEVTYPE => Value::Devtype(u64::read(self)?),
            DataType::LOCTYPE => Value::Loctype(u16::read(self)?),
            DataType::COMPRESSED_BYTE_OBJECT => Value::CompressedByteObject(Bytes::read(self)?),
            DataType::PROC_NSPACE => Value::Nspace(Text::read(self)?),
            DataType::DATA_BUFFER => Value::DataBuffer(Bytes::read(self)?),
            DataType::STOR_MEDIUM => Value::StorMedium(u64::read(self)?),
            DataType::STOR_ACCESS => Value::StorAccess(u64::read(self)?),
            DataType::STOR_PERSIST => Value::StorPersist(u64::read(self)?),
            DataType::STOR_ACCESS_TYPE => Value::StorAccessType(u16::read(self)?),
            DataType::RESBLOCK_DIRECTIVE => Value::ResblockDirective(u8::read(self)?),
            kind => Value::Record(self.deeper(|reader| reader.record(kind))?),
        })
    }

    fn record(&mut self, kind: DataType) -> Result<Box<Record>, Error> {
        let layout = layout(kind).ok_or(Error::Unsupported {
            what: Unsupported::Kind(kind),
        })?;
        let mut fields = Vec::with_capacity(layout.len());
        for field in layout {
            let (kind, count) = match *field {
                Field::One(kind) => {
                    fields.push(self.value(kind)?);
                    continue;
                }
                Field::Sized(kind) => (kind, Size::read(self)?.0),
                Field::Counted(kind) => (
                    kind,
                    u64::try_from(i32::read(self)?)
                        .map_err(|_| Error::malformed(Malformed::NegativeCount))?,
                ),
            };
            let elements = self.elements(kind, count)?;
            fields.push(Value::Array(Box::new(DataArray { kind, elements })));
        }
        Ok(Box::new(Record { kind, fields }))
    }

    fn elements(&mut self, kind: DataType, count: u64) -> Result<Elements, Error> {
        match kind {
            DataType::UNDEF => Ok(Elements::Nothing(count)),
            DataType::BYTE | DataType::UINT8 => {
                let count = self.within(count)?;
                self.take(count)
                    .map(|bytes| Elements::Bytes(Bytes::copy_from_slice(bytes)))
            }
            kind => {
                let count = self.within(count)?;
                let mut values = Vec::with_capacity(count.min(super::ROOM));
                for _ in 0..count {
                    values.push(self.value(kind)?);
                }
                Ok(Elements::Values(values))
            }
        }
    }

    /// Decodes a compressed list, whose form determines its end: `docs/formats/pmix.md`, section 5.6.
    fn regex(&mut self) -> Result<Bytes, Error> {
        const BLOB: &[u8] = b"blob:\0";
        const SIZE: &[u8] = b"size=";
        let no_end = || Error::malformed(Malformed::NoRegexEnd);
        let mut length = end_of_string(self.rest, 0).ok_or_else(no_end)?;
        if self.rest.starts_with(BLOB) {
            // `component=NAME:`, then `size=N:`, each with a NUL.
            let component = end_of_string(self.rest, length).ok_or_else(no_end)?;
            length = end_of_string(self.rest, component).ok_or_else(no_end)?;
            let size = self.rest[component..length]
                .strip_prefix(SIZE)
                .and_then(|rest| rest.strip_suffix(b":\0"))
                .and_then(|digits| std::str::from_utf8(digits).ok())
                .and_then(|digits| digits.parse::<usize>().ok())
                .ok_or_else(no_end)?;
            length = length.checked_add(size).ok_or_else(no_end)?;
        }
        self.take(length).map(Bytes::copy_from_slice)
    }
}

impl Elements {
    /// Returns the number of elements.
    #[must_use]
    pub const fn count(&self) -> u64 {
        match self {
            Self::Bytes(bytes) => bytes.len() as u64,
            Self::Values(values) => values.len() as u64,
            Self::Nothing(count) => *count,
            Self::Absent => 0,
        }
    }
}

impl Wire for DataArray {
    const KIND: DataType = DataType::DATA_ARRAY;

    fn write(&self, writer: &mut Writer) {
        self.kind.write(writer);
        let of_nothing = self.kind == DataType::UNDEF;
        let count = match (&self.elements, writer.format.family) {
            (Elements::Absent, Family::Flex) if of_nothing => return,
            (Elements::Nothing(count), Family::Fixed) if of_nothing => *count,
            (Elements::Nothing(_) | Elements::Absent, _) => 0,
            (Elements::Bytes(_) | Elements::Values(_), _) => self.elements.count(),
        };
        Size(count).write(writer);
        writer.elements(&self.elements);
    }

    fn read(reader: &mut Reader<'_>) -> Result<Self, Error> {
        let kind = DataType::read(reader)?;
        if kind == DataType::UNDEF && reader.format.family == Family::Flex {
            // libpmix 4 and 5 write the count of an array of nothing, which is 0. libpmix 6 writes an absent array as its type
            // alone. The bytes that can follow it (a key, a process, the head of an item) never begin with 0.
            let mut behind = reader.clone();
            let elements = match Size::read(&mut behind) {
                Ok(Size(0)) => {
                    *reader = behind;
                    Elements::Nothing(0)
                }
                _ => Elements::Absent,
            };
            return Ok(Self { kind, elements });
        }
        let Size(count) = Size::read(reader)?;
        let elements = reader.elements(kind, count)?;
        Ok(Self { kind, elements })
    }
}

fn boxed<T: Wire>(reader: &mut Reader<'_>) -> Result<Box<T>, Error> {
    T::read(reader).map(Box::new)
}

fn end_of_string(bytes: &[u8], from: usize) -> Option<usize> {
    let rest = bytes.get(from..)?;
    let nul = rest.iter().position(|byte| *byte == 0)?;
    Some(from + nul + 1)
}

/// Formats a number like C's `%f`.
fn decimal(value: f64) -> Text {
    let text = if value.is_nan() {
        "nan".to_owned()
    } else {
        format!("{value:.6}")
    };
    std::ffi::CString::new(text).ok()
}

fn number<T: std::str::FromStr>(text: Text) -> Result<T, Error> {
    text.and_then(|text| text.to_str().ok()?.trim().parse().ok())
        .ok_or(Error::malformed(Malformed::NotANumber))
}
