//! Integers, and the types that are encoded as integers.

use super::{CommandNumber, Family, Int, Pid, Reader, Size, Time, Wire, Writer};
use crate::{
    Error, Malformed,
    value::{
        AllocDirective, DataType, InfoFlags, IofChannels, JobState, Persistence, PmixRank,
        ProcState, Range, Scope, Status,
    },
};

/// Maximum number of bytes in a variable-length integer. The last byte carries eight bits, so that nine suffice for 64.
const FLEX_MAX: u32 = 9;

impl Writer {
    /// Appends seven bits per byte, lowest first.
    pub(super) fn flex(&mut self, mut value: u64) {
        for _ in 1..FLEX_MAX {
            let [low, ..] = value.to_le_bytes();
            value >>= 7;
            if value == 0 {
                self.bytes.push(low);
                return;
            }
            self.bytes.push(low | 0x80);
        }
        let [low, ..] = value.to_le_bytes();
        self.bytes.push(low);
    }
}

impl Reader<'_> {
    fn flex(&mut self) -> Result<u64, Error> {
        let mut value = 0;
        for place in 0..FLEX_MAX {
            let byte = self.byte()?;
            let last = place + 1 == FLEX_MAX;
            let bits = if last { byte } else { byte & 0x7f };
            value |= u64::from(bits) << (7 * place);
            if last || byte & 0x80 == 0 {
                break;
            }
        }
        Ok(value)
    }
}

/// Maps negative numbers to odd ones, so that small numbers of either sign are short.
const fn zigzag(value: i64) -> u64 {
    (value << 1 ^ value >> 63).cast_unsigned()
}

const fn unzigzag(value: u64) -> i64 {
    (value >> 1).cast_signed() ^ -((value & 1).cast_signed())
}

fn too_large<E>(_: E) -> Error {
    Error::malformed(Malformed::NumberTooLarge)
}

macro_rules! unsigned {
    ($($number:ty => $kind:expr),*) => {$(
        impl Wire for $number {
            const KIND: DataType = $kind;

            fn write(&self, writer: &mut Writer) {
                match writer.format.family {
                    Family::Flex => writer.flex(u64::from(*self)),
                    Family::Fixed => writer.bytes.extend_from_slice(&self.to_be_bytes()),
                }
            }

            fn read(reader: &mut Reader<'_>) -> Result<Self, Error> {
                match reader.format.family {
                    Family::Flex => Self::try_from(reader.flex()?).map_err(too_large),
                    Family::Fixed => fixed(reader).map(Self::from_be_bytes),
                }
            }
        }
    )*};
}

macro_rules! signed {
    ($($number:ty => $kind:expr),*) => {$(
        impl Wire for $number {
            const KIND: DataType = $kind;

            fn write(&self, writer: &mut Writer) {
                match writer.format.family {
                    Family::Flex => writer.flex(zigzag(i64::from(*self))),
                    Family::Fixed => writer.bytes.extend_from_slice(&self.to_be_bytes()),
                }
            }

            fn read(reader: &mut Reader<'_>) -> Result<Self, Error> {
                match reader.format.family {
                    Family::Flex => Self::try_from(unzigzag(reader.flex()?)).map_err(too_large),
                    Family::Fixed => fixed(reader).map(Self::from_be_bytes),
                }
            }
        }
    )*};
}

unsigned!(u16 => DataType::UINT16, u32 => DataType::UINT32, u64 => DataType::UINT64);
signed!(i16 => DataType::INT16, i32 => DataType::INT32, i64 => DataType::INT64);

fn fixed<const N: usize>(reader: &mut Reader<'_>) -> Result<[u8; N], Error> {
    let mut bytes = [0; N];
    bytes.copy_from_slice(reader.take(N)?);
    Ok(bytes)
}

/// Implements [`Wire`] for types that are encoded as another type.
macro_rules! travels_as {
    ($($set:ident($number:ty) => $kind:expr),*) => {$(
        impl Wire for $set {
            const KIND: DataType = $kind;

            fn write(&self, writer: &mut Writer) {
                self.0.write(writer);
            }

            fn read(reader: &mut Reader<'_>) -> Result<Self, Error> {
                <$number>::read(reader).map(Self)
            }
        }
    )*};
}

travels_as!(
    DataType(u16) => DataType::DATA_TYPE,
    Status(i32) => DataType::STATUS,
    PmixRank(u32) => DataType::PROC_RANK,
    InfoFlags(u32) => DataType::INFO_FLAGS,
    IofChannels(u16) => DataType::IOF_CHANNEL,
    Time(u64) => DataType::TIME,
    Scope(u8) => DataType::SCOPE,
    Range(u8) => DataType::RANGE,
    Persistence(u8) => DataType::PERSISTENCE,
    ProcState(u8) => DataType::PROC_STATE,
    JobState(u8) => DataType::JOB_STATE,
    AllocDirective(u8) => DataType::ALLOC_DIRECTIVE,
    CommandNumber(u8) => DataType::COMMAND
);

impl Wire for u8 {
    const KIND: DataType = DataType::UINT8;

    fn write(&self, writer: &mut Writer) {
        writer.bytes.push(*self);
    }

    fn read(reader: &mut Reader<'_>) -> Result<Self, Error> {
        reader.byte()
    }
}

impl Wire for bool {
    const KIND: DataType = DataType::BOOL;

    fn write(&self, writer: &mut Writer) {
        writer.bytes.push(u8::from(*self));
    }

    fn read(reader: &mut Reader<'_>) -> Result<Self, Error> {
        reader.byte().map(|byte| byte != 0)
    }
}

/// Implements [`Wire`] for types whose C size depends on the processor. Version 3 writes their actual type before them; a PID has
/// it in every version.
macro_rules! tagged {
    ($($set:ident($number:ty), $kind:expr, always $always:expr;)*) => {$(
        impl Wire for $set {
            const KIND: DataType = $kind;

            fn write(&self, writer: &mut Writer) {
                if $always || writer.format.family == Family::Fixed {
                    <$number>::KIND.write(writer);
                }
                self.0.write(writer);
            }

            fn read(reader: &mut Reader<'_>) -> Result<Self, Error> {
                if !$always && reader.format.family == Family::Flex {
                    return <$number>::read(reader).map(Self);
                }
                let kind = DataType::read(reader)?;
                let value = any_integer(reader, kind)?;
                <$number>::try_from(value).map(Self).map_err(too_large)
            }
        }
    )*};
}

tagged! {
    Size(u64), DataType::SIZE, always false;
    Int(i32), DataType::INT, always false;
    Pid(u32), DataType::PID, always true;
}

fn any_integer(reader: &mut Reader<'_>, kind: DataType) -> Result<i128, Error> {
    Ok(match kind {
        DataType::INT8 => i8::from_ne_bytes([reader.byte()?]).into(),
        DataType::UINT8 => reader.byte()?.into(),
        DataType::INT16 => i16::read(reader)?.into(),
        DataType::UINT16 => u16::read(reader)?.into(),
        DataType::INT32 => i32::read(reader)?.into(),
        DataType::UINT32 => u32::read(reader)?.into(),
        DataType::INT64 => i64::read(reader)?.into(),
        DataType::UINT64 => u64::read(reader)?.into(),
        got => {
            return Err(Error::malformed(Malformed::WrongKind {
                expected: DataType::INT64,
                got,
            }));
        }
    })
}
