//! Tests of the codec: known bytes, properties, and hostile input.

mod hostile;
mod properties;
mod vectors;

use super::{Family, Format, Items, Reader, Wire, Writer};
use crate::Error;

/// All formats.
const FORMATS: [Format; 4] = [
    Format::V4,
    Format::V3,
    Format {
        family: Family::Flex,
        items: Items::Described,
    },
    Format {
        family: Family::Fixed,
        items: Items::Described,
    },
];

fn written<T: Wire>(format: Format, value: &T) -> Vec<u8> {
    let mut writer = Writer::new(format);
    writer.item(value);
    writer.into_bytes()
}

/// Decodes a single item and checks that no bytes follow it.
fn read<T: Wire>(format: Format, bytes: &[u8]) -> Result<T, Error> {
    let mut reader = Reader::new(format, bytes);
    let value = reader.item()?;
    assert!(reader.is_empty(), "{:02x?} are left", reader.rest());
    Ok(value)
}
