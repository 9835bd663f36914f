//! Output as JSON lines: one object for each line that a rank wrote.

use base::{JobId, Rank};
use bytes::{BufMut, BytesMut};
use data_encoding::BASE64;
use dvm::proto::Stream;
use message::{WallClock, rfc3339};

use super::stream_name;

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
            base64: text.is_none().then(|| BASE64.encode(line)),
            partial,
        };
        // Writing to memory cannot fail, and neither can serializing this object.
        let _ = serde_json::to_writer(out.writer(), &object);
        out.put_u8(b'\n');
        rest = after;
    }
}
