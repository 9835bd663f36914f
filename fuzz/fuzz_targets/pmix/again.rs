//! What is read is written in a form that reads as the same.

use std::fmt::Debug;

use pmix::codec::{Format, Writer};

/// Bytes of an input that are looked at.
const INPUT_MAX: usize = 32 << 10;

/// The format, what else the first byte chooses, and the rest of an input.
pub(crate) fn choice(input: &[u8]) -> Option<(Format, usize, &[u8])> {
    let (choice, rest) = input.split_first()?;
    let format = crate::choice::FORMATS[usize::from(choice & 3)];
    let rest = &rest[..rest.len().min(INPUT_MAX)];
    Some((format, usize::from(choice >> 2), rest))
}

/// Reads, writes, reads, writes: what was read is the same both times, but for numbers that travel as text, which lose
/// digits the first time; and what was written is the same without exception.
pub(crate) fn check<T: Debug + PartialEq>(
    format: Format,
    bytes: &[u8],
    read: impl Fn(&[u8]) -> Result<T, pmix::Error>,
    write: impl Fn(&T, &mut Writer),
) -> Option<T> {
    let value = read(bytes).ok()?;
    let packed = |value: &T| {
        let mut writer = Writer::new(format);
        write(value, &mut writer);
        writer.into_bytes()
    };
    let once = packed(&value);
    let again = read(&once).expect("what was written can be read");
    assert_eq!(packed(&again), once, "what was written is read as the same");
    if value != again {
        let text = format!("{value:?}");
        let rounded = text.contains("Float(") || text.contains("Double(");
        assert!(rounded, "{text} is read again as {again:?}");
    }
    Some(again)
}
