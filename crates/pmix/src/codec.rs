//! The encoding of values.
//!
//! Section numbers refer to `docs/formats/pmix.md`. There are two families: libpmix 4 and later write integers with a variable
//! length (`v4`, `v41`, `v51`, `v61`: one codec, section 5.2), libpmix 3 with a fixed width (`v3`, section 5.7). Either may
//! include the type of every item (section 5.3), as debug builds do. The handshake determines the [`Format`] of a connection.
//!
//! A *top-level* value is an item: it has a count before it. A value inside a structure has no count. [`Writer::item`],
//! [`Writer::items`], [`Reader::item`] and [`Reader::items`] are for items, and the [`Wire`] trait for values inside structures.
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
//! A decoder never allocates for an announced length before that many bytes have arrived. Decoding n bytes therefore takes at
//! most 40 n bytes of memory, or twice that for a moment while a list grows.

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

/// Maximum number of elements of an array for which capacity is reserved before they are read.
const ROOM: usize = 64;

/// Encoding of integers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Family {
    /// libpmix 3: fixed width, big-endian.
    Fixed,
    /// libpmix 4 and later: seven bits per byte, lowest first.
    Flex,
}

/// Form of items: without or with their type.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Items {
    Plain,
    Described,
}

/// Parameters that determine the encoding of a value.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Format {
    pub family: Family,
    pub items: Items,
}

impl Format {
    /// The format of nearly all peers.
    pub const V4: Self = Self {
        family: Family::Flex,
        items: Items::Plain,
    };
    /// The format of libpmix 3.
    pub const V3: Self = Self {
        family: Family::Fixed,
        items: Items::Plain,
    };

    /// Returns the format for the codec name and buffer number in a handshake; `None` if unknown.
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

    /// Returns the codec name that we announce: the one that all servers of this family know.
    #[must_use]
    pub const fn codec_name(self) -> &'static CStr {
        match self.family {
            Family::Fixed => c"v3",
            Family::Flex => c"v41",
        }
    }

    /// Returns the buffer number in the handshake.
    #[must_use]
    pub const fn buffer_number(self) -> u8 {
        match self.items {
            Items::Plain => 1,
            Items::Described => 2,
        }
    }
}

/// A type that can be a field of a structure.
pub trait Wire: Sized {
    /// Type number that a described item contains.
    const KIND: DataType;

    /// Appends the value.
    fn write(&self, writer: &mut Writer);

    /// Decodes a value and consumes its bytes.
    ///
    /// # Errors
    /// The bytes are not a value of this type.
    fn read(reader: &mut Reader<'_>) -> Result<Self, Error>;
}

/// Encoder that appends to a buffer.
#[derive(Clone, Debug)]
pub struct Writer {
    format: Format,
    bytes: Vec<u8>,
}

impl Writer {
    /// Creates an empty buffer.
    #[must_use]
    pub const fn new(format: Format) -> Self {
        Self {
            format,
            bytes: Vec::new(),
        }
    }

    /// Creates a writer that appends to existing bytes, so that a frame and its payload share one allocation.
    #[must_use]
    pub const fn appending_to(format: Format, bytes: Vec<u8>) -> Self {
        Self { format, bytes }
    }

    /// Returns the format of this buffer, which nested buffers must share.
    #[must_use]
    pub const fn format(&self) -> Format {
        self.format
    }

    /// Returns the encoded bytes.
    #[must_use]
    pub fn as_bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// Returns the encoded bytes.
    #[must_use]
    pub fn into_bytes(self) -> Vec<u8> {
        self.bytes
    }

    /// Appends one value as an item.
    pub fn item<T: Wire>(&mut self, value: &T) {
        self.item_head(T::KIND, 1);
        value.write(self);
    }

    /// Appends several values as one item. Without values it appends nothing, as libpmix does.
    pub fn items<T: Wire>(&mut self, values: &[T]) {
        if values.is_empty() {
            return;
        }
        self.item_head(T::KIND, values.len());
        for value in values {
            value.write(self);
        }
    }

    /// Appends each value as an item of its own.
    pub fn each<T: Wire>(&mut self, values: &[T]) {
        for value in values {
            self.item(value);
        }
    }

    /// Appends the number of values, then the values as one item.
    pub fn list<T: Wire>(&mut self, values: &[T]) {
        self.item(&Size(values.len() as u64));
        self.items(values);
    }

    /// Appends bytes that are already encoded.
    pub fn raw(&mut self, bytes: &[u8]) {
        self.bytes.extend_from_slice(bytes);
    }

    /// Appends an encoded buffer as an item: a byte object.
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

    /// Appends a count or the length of a string as an INT32. Messages are too short for greater lengths.
    fn length(&mut self, length: usize) {
        i32::try_from(length).unwrap_or(i32::MAX).write(self);
    }

    fn byte_object(&mut self, bytes: &[u8]) {
        Size(bytes.len() as u64).write(self);
        self.bytes.extend_from_slice(bytes);
    }
}

/// Decoder of a buffer.
#[derive(Clone, Debug)]
pub struct Reader<'a> {
    format: Format,
    rest: &'a [u8],
    depth: u64,
    /// The last decoded namespace. Most lists name processes of a single namespace, which then share its name.
    nspace: Option<Nspace>,
}

impl<'a> Reader<'a> {
    /// Creates a reader at the start of a buffer.
    #[must_use]
    pub const fn new(format: Format, bytes: &'a [u8]) -> Self {
        Self {
            format,
            rest: bytes,
            depth: 0,
            nspace: None,
        }
    }

    /// Returns true if the whole buffer was read.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.rest.is_empty()
    }

    /// Returns the unread bytes.
    #[must_use]
    pub const fn rest(&self) -> &'a [u8] {
        self.rest
    }

    /// Returns the format of this buffer, which nested buffers share.
    #[must_use]
    pub const fn format(&self) -> Format {
        self.format
    }

    /// Decodes an item of one value.
    ///
    /// # Errors
    /// The bytes are not such an item, or the item has several values.
    pub fn item<T: Wire>(&mut self) -> Result<T, Error> {
        if self.item_head(T::KIND)? == 1 {
            T::read(self)
        } else {
            Err(Error::malformed(Malformed::WrongCount))
        }
    }

    /// Decodes an item of any number of values.
    ///
    /// # Errors
    /// The bytes are not such an item.
    pub fn items<T: Wire>(&mut self) -> Result<Vec<T>, Error> {
        let count = self.item_head(T::KIND)?;
        self.values(count)
    }

    /// Decodes items of one value each, up to the end of the buffer.
    ///
    /// # Errors
    /// The bytes are not such items.
    pub fn each<T: Wire>(&mut self) -> Result<Vec<T>, Error> {
        let mut values = Vec::new();
        while !self.is_empty() {
            values.push(self.item()?);
        }
        Ok(values)
    }

    /// Decodes a SIZE n and, unless it is 0, an item of n values.
    ///
    /// # Errors
    /// The bytes are not such items, or the two counts differ.
    pub fn list<T: Wire>(&mut self) -> Result<Vec<T>, Error> {
        let Size(count) = self.item()?;
        self.exactly(count)
    }

    /// Decodes an item of exactly `count` values, or nothing if `count` is 0.
    ///
    /// # Errors
    /// The bytes are not such an item, or the counts differ.
    pub fn exactly<T: Wire>(&mut self, count: u64) -> Result<Vec<T>, Error> {
        if count == 0 {
            return Ok(Vec::new());
        }
        let head = self.item_head(T::KIND)?;
        if head as u64 != count {
            return Err(Error::malformed(Malformed::WrongCount));
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

    /// Decodes the head of an item of this type and returns its count.
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
        // Every value has at least one byte, so that the number of unread bytes also bounds a count.
        self.within(length as u64)
    }

    /// Checks that a count or length does not exceed the number of unread bytes.
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

    /// Decodes a string field and returns its bytes, including the NUL expected at their end.
    fn text_bytes(&mut self) -> Result<&'a [u8], Error> {
        let length = self.length()?;
        self.take(length)
    }

    /// Decodes a string field without copying it.
    fn text(&mut self) -> Result<Option<&'a CStr>, Error> {
        text_of(self.text_bytes()?)
    }

    /// Decodes the namespace of a process.
    fn nspace(&mut self) -> Result<Nspace, Error> {
        let bytes = self.text_bytes()?;
        if let Some(last) = &self.nspace
            && last.as_c_str().to_bytes_with_nul() == bytes
        {
            return Ok(last.clone());
        }
        // The range of an event may contain a process without a name: libpmix 5 sends one by mistake (section 8.3 of
        // docs/formats/pmix.md). An absent name becomes an empty one.
        let nspace = Nspace::new(text_of(bytes)?.unwrap_or_default())?;
        self.nspace = Some(nspace.clone());
        Ok(nspace)
    }

    fn byte_object(&mut self) -> Result<&'a [u8], Error> {
        let Size(length) = Size::read(self)?;
        let length = self.within(length)?;
        self.take(length)
    }

    /// Decodes a value that may contain itself, with a limit on the depth.
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

/// Returns the string in these bytes; no bytes at all mean an absent string.
fn text_of(bytes: &[u8]) -> Result<Option<&CStr>, Error> {
    match bytes.last() {
        None => Ok(None),
        Some(0) => CStr::from_bytes_with_nul(bytes)
            .map(Some)
            .map_err(|_| Error::malformed(Malformed::InnerNul)),
        Some(_) => Err(Error::malformed(Malformed::NoNul)),
    }
}

/// SIZE value: a count or a length.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Size(pub u64);

/// INT value, which version 3 encodes differently from an INT32.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Int(pub i32);

/// PID value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pid(pub u32);

/// TIME value: seconds since 1970.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Time(pub u64);

/// COMMAND value, by its number.
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
