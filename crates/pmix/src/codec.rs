//! How values look as bytes.
//!
//! Sections are those of `docs/formats/pmix.md`. There are two families: libpmix 4 and later squeeze integers (`v4`,
//! `v41`, `v51`, `v61`: one codec, section 5.2), libpmix 3 writes them with a fixed width (`v3`, section 5.7). Either
//! may say the type of every item (section 5.3), which builds for debugging do. A connection's [`Format`] is settled
//! once, by its handshake.
//!
//! A *top-level* value is an item: it has a count before it. A value inside a structure has none. So [`Writer::item`],
//! [`Writer::items`] and [`Reader::item`], [`Reader::items`] are for the former, and the [`Wire`] trait is the latter.
//!
//! ```
//! use pmix::{codec::{Format, Reader, Writer}, value::Status};
//! let mut writer = Writer::new(Format::V4);
//! writer.item(&Status(-200));
//! assert_eq!(writer.as_bytes(), [0x02, 0x8f, 0x03]);
//! let mut reader = Reader::new(Format::V4, writer.as_bytes());
//! assert_eq!(reader.item::<Status>().unwrap(), Status(-200));
//! ```
//!
//! Nothing is allocated for a length before as many bytes have come, so that a message of n bytes never takes more than
//! 40 n; twice that for a moment, where a list grows.

mod integer;
pub mod layout;
mod structure;
#[cfg(test)]
mod tests;
mod value;

use std::ffi::CStr;

use bytes::Bytes;

pub use crate::bound::MAX_DEPTH;
use crate::{
    Bound, Error, Malformed,
    value::{DataType, Nspace, Text},
};

/// Elements of an array for which room is made before they are read.
const ROOM: usize = 64;

/// How integers are written.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Family {
    /// libpmix 3: a fixed width, the highest byte first.
    Fixed,
    /// libpmix 4 and later: seven bits to a byte, the lowest first.
    Flex,
}

/// Whether items say their type.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Items {
    Plain,
    Described,
}

/// Everything that decides how a value looks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Format {
    pub family: Family,
    pub items: Items,
}

impl Format {
    /// What nearly everybody speaks.
    pub const V4: Self = Self {
        family: Family::Flex,
        items: Items::Plain,
    };
    /// What libpmix 3 speaks.
    pub const V3: Self = Self {
        family: Family::Fixed,
        items: Items::Plain,
    };

    /// The format that a handshake asks for by the name of its codec and the number of its buffers, when it is one.
    #[must_use]
    pub fn by_name(codec: &[u8], buffer: u8) -> Option<Self> {
        let family = match codec {
            b"v3" => Family::Fixed,
            b"v4" | b"v41" | b"v51" | b"v61" => Family::Flex,
            _ => return None,
        };
        let items = match buffer {
            1 => Items::Plain,
            2 => Items::Described,
            _ => return None,
        };
        Some(Self { family, items })
    }

    /// The name of the codec as we announce it: the one that every server of this family knows.
    #[must_use]
    pub const fn codec_name(self) -> &'static CStr {
        match self.family {
            Family::Fixed => c"v3",
            Family::Flex => c"v41",
        }
    }

    /// The number of its buffers.
    #[must_use]
    pub const fn buffer_number(self) -> u8 {
        match self.items {
            Items::Plain => 1,
            Items::Described => 2,
        }
    }
}

/// A kind of data with its form as a field of a structure.
pub trait Wire: Sized {
    /// The kind, as a described item says it.
    const KIND: DataType;

    /// Appends the value.
    fn write(&self, writer: &mut Writer);

    /// Takes a value off the front.
    ///
    /// # Errors
    /// The bytes are no value of this kind.
    fn read(reader: &mut Reader<'_>) -> Result<Self, Error>;
}

/// Builds a buffer.
#[derive(Clone, Debug)]
pub struct Writer {
    format: Format,
    bytes: Vec<u8>,
}

impl Writer {
    /// An empty buffer.
    #[must_use]
    pub const fn new(format: Format) -> Self {
        Self {
            format,
            bytes: Vec::new(),
        }
    }

    /// A buffer behind bytes that are there already, so that a frame and its payload are one allocation.
    #[must_use]
    pub const fn behind(format: Format, bytes: Vec<u8>) -> Self {
        Self { format, bytes }
    }

    /// The format of this buffer, which nested ones must share.
    #[must_use]
    pub const fn format(&self) -> Format {
        self.format
    }

    /// What was written.
    #[must_use]
    pub fn as_bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// What was written.
    #[must_use]
    pub fn into_bytes(self) -> Vec<u8> {
        self.bytes
    }

    /// Appends one value as an item.
    pub fn item<T: Wire>(&mut self, value: &T) {
        self.item_head(T::KIND, 1);
        value.write(self);
    }

    /// Appends several values as one item. No item at all when there are none, as libpmix does.
    pub fn items<T: Wire>(&mut self, values: &[T]) {
        if values.is_empty() {
            return;
        }
        self.item_head(T::KIND, values.len());
        for value in values {
            value.write(self);
        }
    }

    /// Appends values as an item each.
    pub fn each<T: Wire>(&mut self, values: &[T]) {
        for value in values {
            self.item(value);
        }
    }

    /// Appends how many there are, and then the values as one item.
    pub fn list<T: Wire>(&mut self, values: &[T]) {
        self.item(&Size(values.len() as u64));
        self.items(values);
    }

    /// Appends what was packed already.
    pub fn raw(&mut self, bytes: &[u8]) {
        self.bytes.extend_from_slice(bytes);
    }

    /// Appends a byte object that contains a buffer packed already, as an item.
    pub fn nested(&mut self, bytes: &[u8]) {
        self.item_head(DataType::BYTE_OBJECT, 1);
        self.byte_object(bytes);
    }

    fn item_head(&mut self, kind: DataType, count: usize) {
        let described = self.format.items == Items::Described;
        if described {
            DataType::INT32.write(self);
        }
        self.length(count);
        if described {
            kind.write(self);
        }
    }

    /// A count or the length of a string, which travel as INT32. Longer than that is nothing here: a message is
    /// shorter.
    fn length(&mut self, length: usize) {
        i32::try_from(length).unwrap_or(i32::MAX).write(self);
    }

    fn byte_object(&mut self, bytes: &[u8]) {
        Size(bytes.len() as u64).write(self);
        self.bytes.extend_from_slice(bytes);
    }
}

/// Takes a buffer apart.
#[derive(Clone, Debug)]
pub struct Reader<'a> {
    format: Format,
    rest: &'a [u8],
    depth: u64,
    /// The last namespace of a process: lists mostly name processes of one, which then share its name.
    nspace: Option<Nspace>,
}

impl<'a> Reader<'a> {
    /// Reads from the start of a buffer.
    #[must_use]
    pub const fn new(format: Format, bytes: &'a [u8]) -> Self {
        Self {
            format,
            rest: bytes,
            depth: 0,
            nspace: None,
        }
    }

    /// Whether all was read.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.rest.is_empty()
    }

    /// What is still to be read.
    #[must_use]
    pub const fn rest(&self) -> &'a [u8] {
        self.rest
    }

    /// The format of this buffer, which nested ones share.
    #[must_use]
    pub const fn format(&self) -> Format {
        self.format
    }

    /// Takes one item of one value.
    ///
    /// # Errors
    /// The bytes are no such item, or are one of several values.
    pub fn item<T: Wire>(&mut self) -> Result<T, Error> {
        if self.item_head(T::KIND)? == 1 {
            T::read(self)
        } else {
            Err(Error::malformed(Malformed::NotOne))
        }
    }

    /// Takes one item of any number of values.
    ///
    /// # Errors
    /// The bytes are no such item.
    pub fn items<T: Wire>(&mut self) -> Result<Vec<T>, Error> {
        let count = self.item_head(T::KIND)?;
        self.values(count)
    }

    /// Takes items of one value each until the end.
    ///
    /// # Errors
    /// The bytes are no such items.
    pub fn each<T: Wire>(&mut self) -> Result<Vec<T>, Error> {
        let mut values = Vec::new();
        while !self.is_empty() {
            values.push(self.item()?);
        }
        Ok(values)
    }

    /// Takes a SIZE n and, unless it is 0, an item of n values.
    ///
    /// # Errors
    /// The bytes are no such items, or the numbers differ.
    pub fn list<T: Wire>(&mut self) -> Result<Vec<T>, Error> {
        let Size(count) = self.item()?;
        self.exactly(count)
    }

    /// Takes an item of so many values, or nothing when it is 0.
    ///
    /// # Errors
    /// The bytes are no such item, or the numbers differ.
    pub fn exactly<T: Wire>(&mut self, count: u64) -> Result<Vec<T>, Error> {
        if count == 0 {
            return Ok(Vec::new());
        }
        let head = self.item_head(T::KIND)?;
        if head as u64 != count {
            return Err(Error::malformed(Malformed::NotOne));
        }
        self.values(head)
    }

    fn values<T: Wire>(&mut self, count: usize) -> Result<Vec<T>, Error> {
        let mut values = Vec::with_capacity(count.min(ROOM));
        for _ in 0..count {
            values.push(T::read(self)?);
        }
        Ok(values)
    }

    /// Reads the head of an item of this kind; gives its count.
    fn item_head(&mut self, kind: DataType) -> Result<usize, Error> {
        let described = self.format.items == Items::Described;
        if described {
            self.expect_kind(DataType::INT32)?;
        }
        let count = self.length()?;
        if described {
            self.expect_kind(kind)?;
        }
        Ok(count)
    }

    fn expect_kind(&mut self, expected: DataType) -> Result<(), Error> {
        let got = DataType::read(self)?;
        if got == expected {
            Ok(())
        } else {
            Err(Error::malformed(Malformed::WrongKind { expected, got }))
        }
    }

    fn length(&mut self) -> Result<usize, Error> {
        let length = i32::read(self)?;
        let length =
            usize::try_from(length).map_err(|_| Error::malformed(Malformed::NegativeCount))?;
        // Every value has at least one byte, so that this is also the bound of a count.
        self.within(length as u64)
    }

    /// A count or length is not more than the bytes that are left.
    fn within(&self, count: u64) -> Result<usize, Error> {
        usize::try_from(count)
            .ok()
            .filter(|count| *count <= self.rest.len())
            .ok_or(Error::malformed(Malformed::Truncated))
    }

    fn take(&mut self, count: usize) -> Result<&'a [u8], Error> {
        let (taken, rest) = self
            .rest
            .split_at_checked(count)
            .ok_or(Error::malformed(Malformed::Truncated))?;
        self.rest = rest;
        Ok(taken)
    }

    fn byte(&mut self) -> Result<u8, Error> {
        let (first, rest) = self
            .rest
            .split_first()
            .ok_or(Error::malformed(Malformed::Truncated))?;
        self.rest = rest;
        Ok(*first)
    }

    /// The bytes of a string, as a field, with the NUL that should be at their end.
    fn text_bytes(&mut self) -> Result<&'a [u8], Error> {
        let length = self.length()?;
        self.take(length)
    }

    /// A string, as a field, where it lies.
    fn text(&mut self) -> Result<Option<&'a CStr>, Error> {
        text_of(self.text_bytes()?)
    }

    /// The name of a process's namespace.
    fn nspace(&mut self) -> Result<Nspace, Error> {
        let bytes = self.text_bytes()?;
        if let Some(last) = &self.nspace
            && last.as_c_str().to_bytes_with_nul() == bytes
        {
            return Ok(last.clone());
        }
        // A range of an event may contain a process without a name: libpmix 5 sends one by mistake (section 8.3 of
        // docs/formats/pmix.md). An absent name is an empty one, then.
        let nspace = Nspace::new(text_of(bytes)?.unwrap_or_default())?;
        self.nspace = Some(nspace.clone());
        Ok(nspace)
    }

    fn byte_object(&mut self) -> Result<&'a [u8], Error> {
        let Size(length) = Size::read(self)?;
        let length = self.within(length)?;
        self.take(length)
    }

    /// Reads something that may contain itself.
    fn deeper<T>(&mut self, read: impl FnOnce(&mut Self) -> Result<T, Error>) -> Result<T, Error> {
        self.depth += 1;
        if self.depth > MAX_DEPTH {
            return Err(Error::Limit {
                which: Bound::Depth,
                value: self.depth,
            });
        }
        let result = read(self);
        self.depth -= 1;
        result
    }
}

/// The string of these bytes; none at all is an absent one.
fn text_of(bytes: &[u8]) -> Result<Option<&CStr>, Error> {
    match bytes.last() {
        None => Ok(None),
        Some(0) => CStr::from_bytes_with_nul(bytes)
            .map(Some)
            .map_err(|_| Error::malformed(Malformed::InnerNul)),
        Some(_) => Err(Error::malformed(Malformed::NoNul)),
    }
}

/// A SIZE: a count or a length.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Size(pub u64);

/// An INT, which version 3 writes otherwise than an INT32.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Int(pub i32);

/// A PID.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pid(pub u32);

/// A TIME: seconds since 1970.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Time(pub u64);

/// A COMMAND by its number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CommandNumber(pub u8);

impl Wire for Text {
    const KIND: DataType = DataType::STRING;

    fn write(&self, writer: &mut Writer) {
        match self {
            None => writer.length(0),
            Some(text) => {
                let bytes = text.as_bytes_with_nul();
                writer.length(bytes.len());
                writer.bytes.extend_from_slice(bytes);
            }
        }
    }

    fn read(reader: &mut Reader<'_>) -> Result<Self, Error> {
        Ok(reader.text()?.map(CStr::to_owned))
    }
}

impl Wire for Bytes {
    const KIND: DataType = DataType::BYTE_OBJECT;

    fn write(&self, writer: &mut Writer) {
        writer.byte_object(self);
    }

    fn read(reader: &mut Reader<'_>) -> Result<Self, Error> {
        reader.byte_object().map(Self::copy_from_slice)
    }
}
