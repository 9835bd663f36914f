//! The recordings in `testdata/traces`, as bytes.

use std::io::Read;

use flate2::read::GzDecoder;

/// The compressed files, one per program.
const FILES: [&[u8]; 8] = [
    include_bytes!("../../testdata/traces/cli.gz"),
    include_bytes!("../../testdata/traces/g2.gz"),
    include_bytes!("../../testdata/traces/grp.gz"),
    include_bytes!("../../testdata/traces/tool-plain.gz"),
    include_bytes!("../../testdata/traces/tool-stop.gz"),
    include_bytes!("../../testdata/traces/tool-iof.gz"),
    include_bytes!("../../testdata/traces/tool-stdin.gz"),
    include_bytes!("../../testdata/traces/tool-kill.gz"),
];

/// Sender of bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Side {
    Client,
    Server,
}

/// Recording of a connection.
#[derive(Clone, Debug)]
pub(crate) struct Recording {
    /// Program, versions of both sides, and rank, as explained in `testdata/traces/README.md`.
    pub(crate) name: String,
    /// Bytes with their senders, in the order of transmission.
    pub(crate) parts: Vec<(Side, Vec<u8>)>,
}

impl Recording {
    /// Returns the bytes that one side sent.
    pub(crate) fn sent_by(&self, side: Side) -> Vec<u8> {
        let parts = self.parts.iter().filter(|(sender, _)| *sender == side);
        parts.flat_map(|(_, bytes)| bytes.iter().copied()).collect()
    }

    /// Returns the major version of the server's library.
    pub(crate) fn server_major(&self) -> u32 {
        let (_, version) = self.name.split_once("-server").unwrap();
        version.split('.').next().unwrap().parse().unwrap()
    }
}

/// Returns all recordings.
pub(crate) fn all() -> Vec<Recording> {
    FILES.iter().flat_map(|file| read(file)).collect()
}

fn read(file: &[u8]) -> Vec<Recording> {
    let mut text = String::new();
    GzDecoder::new(file).read_to_string(&mut text).unwrap();
    let mut recordings: Vec<Recording> = Vec::new();
    for line in text.lines() {
        let (mark, rest) = line.split_once(' ').unwrap();
        let side = match mark {
            "#" => {
                recordings.push(Recording {
                    name: rest.to_owned(),
                    parts: Vec::new(),
                });
                continue;
            }
            "C" => Side::Client,
            "S" => Side::Server,
            other => panic!("a line begins with {other}"),
        };
        let recording = recordings.last_mut().unwrap();
        recording.parts.push((side, bytes(rest)));
    }
    recordings
}

fn bytes(digits: &str) -> Vec<u8> {
    let pairs = digits.as_bytes().chunks_exact(2);
    pairs
        .map(|pair| u8::from_str_radix(str::from_utf8(pair).unwrap(), 16).unwrap())
        .collect()
}
