//! Output as JSON lines: one object for each line that a rank wrote.

use base::{JobId, Rank};
use bytes::{BufMut, BytesMut};
use dvm::proto::Stream;

use super::{
    stream_name,
    tags::{WallClock, rfc3339},
};

/// The facts that every line of a chunk shares.
#[derive(Debug)]
pub(super) struct Subject<'a> {
    /// The job. `None` unless labels are full.
    pub(super) job: Option<JobId>,
    pub(super) rank: Rank,
    /// The host. `None` if unknown, or unless labels are full.
    pub(super) host: Option<&'a str>,
    pub(super) stream: Stream,
    pub(super) now: WallClock,
}

/// The fields of an object, in this order.
#[derive(serde::Serialize)]
struct Line<'a> {
    #[serde(skip_serializing_if = "Option::is_none")]
    job: Option<JobId>,
    rank: Rank,
    #[serde(skip_serializing_if = "Option::is_none")]
    host: Option<&'a str>,
    stream: &'static str,
    time: &'a str,
    /// The line without its line feed. `None` if it is not UTF-8.
    #[serde(skip_serializing_if = "Option::is_none")]
    text: Option<&'a str>,
    /// The line in base64. `None` if it is UTF-8.
    #[serde(skip_serializing_if = "Option::is_none")]
    base64: Option<String>,
    /// Whether the line feed is missing. If so, the next bytes of this rank and stream belong to the same line.
    #[serde(skip_serializing_if = "is_whole")]
    partial: Partial,
}

/// Whether a piece ends without a line feed; `true` in JSON.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Partial {
    No,
    Yes,
}

fn is_whole(partial: &Partial) -> bool {
    *partial == Partial::No
}

impl serde::Serialize for Partial {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_bool(*self == Self::Yes)
    }
}

/// Appends one object per line of `bytes`.
pub(super) fn render(subject: &Subject<'_>, bytes: &[u8], out: &mut BytesMut) {
    let time = rfc3339(subject.now);
    let time = std::str::from_utf8(&time).unwrap_or_default();
    let mut rest = bytes;
    while !rest.is_empty() {
        let (line, partial, after) = match memchr::memchr(b'\n', rest) {
            Some(at) => {
                let (line, after) = rest.split_at(at);
                (line, Partial::No, after.get(1..).unwrap_or_default())
            }
            None => (rest, Partial::Yes, [].as_slice()),
        };
        let text = std::str::from_utf8(line).ok();
        let object = Line {
            job: subject.job,
            rank: subject.rank,
            host: subject.host,
            stream: stream_name(subject.stream),
            time,
            text,
            base64: text.is_none().then(|| base64(line)),
            partial,
        };
        // Writing to memory cannot fail, and neither can serializing this object.
        let _ = serde_json::to_writer(out.writer(), &object);
        out.put_u8(b'\n');
        rest = after;
    }
}

const ALPHABET: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";

/// Encodes bytes as in RFC 4648 section 4, with padding.
fn base64(bytes: &[u8]) -> String {
    let mut text = String::with_capacity(bytes.len().div_ceil(3) * 4);
    for group in bytes.chunks(3) {
        let byte = |index: usize| u32::from(group.get(index).copied().unwrap_or(0));
        let bits = byte(0) << 16 | byte(1) << 8 | byte(2);
        for place in 0..4 {
            let index = bits >> (18 - 6 * place) & 63;
            text.push(match ALPHABET.get(index as usize) {
                Some(letter) if place as usize <= group.len() => char::from(*letter),
                _ => '=',
            });
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn base64_is_that_of_the_rfc() {
        let cases = [
            ("", ""),
            ("f", "Zg=="),
            ("fo", "Zm8="),
            ("foo", "Zm9v"),
            ("foob", "Zm9vYg=="),
            ("fooba", "Zm9vYmE="),
            ("foobar", "Zm9vYmFy"),
        ];
        for (bytes, text) in cases {
            assert_eq!(base64(bytes.as_bytes()), text);
        }
        assert_eq!(base64(&[0xfb, 0xff, 0xfe]), "+//+");
    }
}
