//! Messages for the user that Open MPI 4 composes and passes to its launcher for display.
//!
//! Open MPI packs them in a format of its own, and not in that of PMIx. A message has four fields: a file name, a topic
//! in that file, a one-byte flag that is zero if there is no text, and the text. Each field is preceded by a count of
//! values, which is always 1. A string is its length, which includes the terminating zero byte, and then its bytes.
//! Counts and lengths are four-byte integers in network byte order.

use bytes::Bytes;

/// Returns the text of a message; `None` if the message has no text or another format.
pub(super) fn text(message: &Bytes) -> Option<Bytes> {
    let mut rest = message.clone();
    let _file = string(&mut rest)?;
    let _topic = string(&mut rest)?;
    one(&mut rest)?;
    if take(&mut rest, 1)?.first() == Some(&0) {
        return None;
    }
    string(&mut rest)
}

fn string(rest: &mut Bytes) -> Option<Bytes> {
    one(rest)?;
    let length = usize::try_from(number(rest)?).ok()?;
    let bytes = take(rest, length)?;
    Some(bytes.slice(..length.checked_sub(1)?))
}

/// Consumes a count of values; `None` unless it is 1.
fn one(rest: &mut Bytes) -> Option<()> {
    (number(rest)? == 1).then_some(())
}

fn number(rest: &mut Bytes) -> Option<u32> {
    let bytes = take(rest, 4)?;
    Some(u32::from_be_bytes(bytes.as_ref().try_into().ok()?))
}

fn take(rest: &mut Bytes, count: usize) -> Option<Bytes> {
    (count <= rest.len()).then(|| rest.split_to(count))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A message in the packing of Debian's Open MPI 4.1.4.
    const MESSAGE: &[u8] =
        b"\0\0\0\x01\0\0\0\x06a.txt\0\0\0\0\x01\0\0\0\x03it\0\0\0\0\x01\x01\0\0\0\x01\0\0\0\x07Sorry.\0";

    #[test]
    fn the_text_is_found() {
        let message = Bytes::from_static(MESSAGE);
        assert_eq!(text(&message), Some(Bytes::from_static(b"Sorry.")));
    }

    #[test]
    fn what_is_not_such_a_message_has_no_text() {
        for end in 0..MESSAGE.len() {
            assert_eq!(text(&Bytes::from_static(&MESSAGE[..end])), None, "{end}");
        }
        let mut without = MESSAGE.to_vec();
        let at = without.iter().rposition(|byte| *byte == 7).unwrap() - 8;
        without[at] = 0;
        assert_eq!(text(&without.into()), None);
        let empty = b"\0\0\0\x01\0\0\0\0\0\0\0\x01\0\0\0\0\0\0\0\x01\x01\0\0\0\x01\0\0\0\0";
        assert_eq!(text(&Bytes::from_static(empty)), None);
    }
}
