//! Turns a rank's output into the bytes that we print.
//!
//! Without labels and timestamps, the bytes of a chunk are passed on unchanged and uncopied. With them every line starts
//! with a tag:
//!
//! | options | a line of rank 3 on stderr |
//! |---|---|
//! | none | `text` |
//! | label rank | `[ 3] text` (as wide as the largest rank) |
//! | label full | `[1.3@n1:stderr] text` (job, rank, host, stream) |
//! | timestamps | `2026-11-21T11:35:48.123Z [ 3] text` |
//! | JSON lines | `{"rank":3,"stream":"stderr","time":"2026-…Z","text":"text"}` |
//!
//! With tags, each of our two streams (or both as one, if they are the same file) is in one of two states:
//!
//! | state | chunk of the same rank and stream | chunk of another rank or stream |
//! |---|---|---|
//! | at the start of a line | print tag, text | print tag, text |
//! | within a line | print text, without a tag | print line feed, tag, text |
//!
//! A printed line thus never contains bytes of two ranks. When the interrupted rank continues, its text gets a new tag: the
//! break is visible. No byte of the rank is lost, and only the line feed is added. Except for line feeds the bytes are not
//! interpreted: carriage returns, NULs and invalid UTF-8 pass through. In JSON, lines that are not UTF-8 are encoded in
//! base64.

mod json;
mod tags;

#[cfg(test)]
mod tests;

use base::{JobId, Rank};
use bytes::{BufMut, Bytes, BytesMut};
use dvm::proto::{Chunk, Stream, TableRow};
use message::{WallClock, rfc3339};

use self::tags::{Hosts, digits, push_number};
use crate::args::{Format, FrontOptions, Label, Timestamps};

/// The form of printed output.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Look {
    label: Label,
    /// Whether tags have the time. JSON lines always have it.
    timestamps: Timestamps,
    format: Format,
}

/// Whether our two streams are the same file, as after `2>&1`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Streams {
    Apart,
    Together,
}

/// The room for the tags of a chunk, in bytes, before the buffer must grow.
const TAG_ROOM: usize = 1024;

/// Turns chunks into bytes to print.
#[derive(Debug)]
pub(crate) struct Renderer {
    look: Look,
    job: JobId,
    /// The number of digits of the largest rank.
    width: usize,
    hosts: Hosts,
    streams: Streams,
    /// The rank whose line is incomplete, on stdout and on stderr. If both are the same file, only the first is used.
    open: [Option<(JobId, Rank, Stream)>; 2],
    /// The memory of rendered bytes. They are split off here, so that it can be reused once they are printed.
    buffer: BytesMut,
    tag: Vec<u8>,
}

impl Renderer {
    /// Returns a renderer without knowledge of job and hosts, which [`Renderer::learn`] adds.
    pub(crate) fn new(options: &FrontOptions, streams: Streams) -> Self {
        let look = Look {
            label: options.label,
            timestamps: options.timestamps,
            format: options.format,
        };
        Self::with_look(look, streams)
    }

    fn with_look(look: Look, streams: Streams) -> Self {
        Self {
            look,
            streams,
            job: JobId(1),
            width: 1,
            hosts: Hosts::default(),
            open: [None; 2],
            buffer: BytesMut::new(),
            tag: Vec::new(),
        }
    }

    /// Stores what labels contain: a job of `size` ranks, on the hosts of the table (which may lack ranks).
    pub(crate) fn learn(&mut self, job: JobId, size: u32, table: &[TableRow]) {
        self.job = job;
        self.width = digits(size.saturating_sub(1));
        self.hosts = Hosts::from_table(table);
    }

    /// Returns the bytes to print for a chunk, on our stream of the same name.
    pub(crate) fn render(&mut self, chunk: &Chunk, now: WallClock) -> Bytes {
        match self.look {
            Look {
                format: Format::JsonLines,
                ..
            } => self.render_json(chunk, now),
            Look {
                label: Label::None,
                timestamps: Timestamps::Off,
                ..
            } => chunk.bytes.clone(),
            _ => self.render_tagged(chunk, now),
        }
    }

    /// Returns the line feed that completes an open line. Needed before a message of our own, and at the end of the output.
    pub(crate) const fn close_line(&mut self, stream: Stream) -> &'static [u8] {
        match self.open_line(stream).take() {
            Some(_) => b"\n",
            None => b"",
        }
    }

    const fn open_line(&mut self, stream: Stream) -> &mut Option<(JobId, Rank, Stream)> {
        let [stdout, stderr] = &mut self.open;
        match (stream, self.streams) {
            (Stream::Stderr, Streams::Apart) => stderr,
            (Stream::Stdout, _) | (Stream::Stderr, Streams::Together) => stdout,
        }
    }

    fn render_tagged(&mut self, chunk: &Chunk, now: WallClock) -> Bytes {
        if chunk.bytes.is_empty() {
            return Bytes::new();
        }
        self.make_tag(chunk, now);
        self.buffer.reserve(chunk.bytes.len() + TAG_ROOM);
        let mut tagged = match *self.open_line(chunk.stream) {
            Some(writer) if writer == (chunk.job, chunk.rank, chunk.stream) => true,
            Some(_) => {
                self.buffer.put_u8(b'\n');
                false
            }
            None => false,
        };
        let mut rest = chunk.bytes.as_ref();
        while !rest.is_empty() {
            let end = memchr::memchr(b'\n', rest).map_or(rest.len(), |at| at + 1);
            let (line, after) = rest.split_at(end);
            if !tagged {
                self.buffer.put_slice(&self.tag);
            }
            self.buffer.put_slice(line);
            tagged = false;
            rest = after;
        }
        *self.open_line(chunk.stream) =
            (chunk.bytes.last() != Some(&b'\n')).then_some((chunk.job, chunk.rank, chunk.stream));
        self.buffer.split().freeze()
    }

    fn make_tag(&mut self, chunk: &Chunk, now: WallClock) {
        let tag = &mut self.tag;
        tag.clear();
        if self.look.timestamps == Timestamps::On {
            tag.extend_from_slice(&rfc3339(now));
            tag.push(b' ');
        }
        match self.look.label {
            Label::None => {}
            Label::Rank => {
                tag.push(b'[');
                if chunk.job == self.job {
                    let padding = self.width.saturating_sub(digits(chunk.rank.0));
                    tag.extend(std::iter::repeat_n(b' ', padding));
                } else {
                    // The job id distinguishes a rank of a spawned job from one of ours.
                    push_number(tag, chunk.job.0);
                    tag.push(b'.');
                }
                push_number(tag, chunk.rank.0);
                tag.extend_from_slice(b"] ");
            }
            Label::Full => {
                tag.push(b'[');
                push_number(tag, chunk.job.0);
                tag.push(b'.');
                push_number(tag, chunk.rank.0);
                tag.push(b'@');
                tag.extend_from_slice(self.hosts.name(chunk.rank).unwrap_or("?").as_bytes());
                tag.push(b':');
                tag.extend_from_slice(stream_name(chunk.stream).as_bytes());
                tag.extend_from_slice(b"] ");
            }
        }
    }

    fn render_json(&mut self, chunk: &Chunk, now: WallClock) -> Bytes {
        let full = self.look.label == Label::Full;
        let job = (full || chunk.job != self.job).then_some(chunk.job);
        let subject = json::Subject {
            job,
            rank: chunk.rank,
            host: job.and_then(|_| self.hosts.name(chunk.rank)),
            stream: chunk.stream,
            now,
        };
        self.buffer.reserve(chunk.bytes.len() + TAG_ROOM);
        json::render(&subject, &chunk.bytes, &mut self.buffer);
        self.buffer.split().freeze()
    }
}

const fn stream_name(stream: Stream) -> &'static str {
    match stream {
        Stream::Stdout => "stdout",
        Stream::Stderr => "stderr",
    }
}
