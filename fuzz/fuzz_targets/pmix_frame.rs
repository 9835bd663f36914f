//! Any bytes are a handshake and frames or are refused, however they are cut; what was understood is written as it came.
#![no_main]

use bytes::Bytes;
use libfuzzer_sys::fuzz_target;
use pmix::{
    Error,
    frame::{self, Frame, Framer, HEADER},
    handshake::{ConnectorKind, Hello, Welcome},
};

/// A handshake, the frames behind it, the error that ends them, and how many bytes are left. What is no handshake may
/// be frames all the same.
type Stream = (
    Option<Result<Bytes, Error>>,
    Vec<Frame>,
    Option<Error>,
    usize,
);

fn read<'a>(parts: impl Iterator<Item = &'a [u8]>) -> Stream {
    let mut framer = Framer::default();
    let mut first = None;
    let mut frames = Vec::new();
    for part in parts {
        framer.push(part);
        if first.is_none() {
            first = framer.next_handshake().transpose();
        }
        if first.is_none() {
            continue;
        }
        loop {
            match framer.next_frame() {
                Ok(Some(frame)) => frames.push(frame),
                Ok(None) => break,
                Err(error) => return (first, frames, Some(error), 0),
            }
        }
    }
    (first, frames, None, framer.pending())
}

fuzz_target!(|input: &[u8]| {
    let Some((cut, bytes)) = input.split_first() else {
        return;
    };
    let whole = read(std::iter::once(bytes));
    assert_eq!(whole, read(bytes.chunks(usize::from(*cut) + 1)));
    let (first, frames, error, left) = whole;
    if error.is_none() {
        let parts = frames.iter().map(|frame| HEADER + frame.payload.len());
        let behind: usize = parts.sum();
        let handshake = match &first {
            Some(Ok(payload)) => HEADER + payload.len(),
            Some(Err(_)) | None => 0,
        };
        assert_eq!(handshake + behind + left, bytes.len(), "no byte is lost");
    }
    for frame in &frames {
        assert_eq!(read_one(&frame.to_bytes()).as_ref(), Some(frame));
    }
    let framed = first.and_then(Result::ok);
    for payload in framed.into_iter().chain([Bytes::copy_from_slice(bytes)]) {
        if let Ok(hello) = Hello::decode(&payload) {
            assert_eq!(hello.encode(), payload);
            let _ = (
                hello.format(),
                hello.infos(),
                hello.version_numbers(),
                hello.to_string(),
            );
            let framed = frame::handshake(&payload);
            let mut framer = Framer::default();
            framer.push(&framed);
            let again = framer.next_handshake();
            if payload.len() as u64 <= pmix::handshake::MAX_HANDSHAKE {
                assert_eq!(again, Ok(Some(payload)));
            }
        }
    }
    for kind in [
        ConnectorKind::Client,
        ConnectorKind::Tool,
        ConnectorKind::NamedTool,
    ] {
        if let Ok(Some((welcome, used))) = Welcome::decode(kind, bytes) {
            assert!(used <= bytes.len() && !welcome.to_string().is_empty());
            let again = welcome.encode();
            assert_eq!(
                Welcome::decode(kind, &again),
                Ok(Some((welcome, again.len())))
            );
        }
    }
});

fn read_one(bytes: &[u8]) -> Option<Frame> {
    let mut framer = Framer::default();
    framer.push(bytes);
    framer.next_frame().ok().flatten()
}
