//! Tests of the framing: known bytes, splits, and false headers.

use proptest::{collection::vec, prelude::*};

use super::*;

fn frames(parts: &[&[u8]]) -> (Vec<Frame>, usize) {
    let mut framer = Framer::default();
    let mut frames = Vec::new();
    for part in parts {
        framer.push(part);
        while let Some(frame) = framer.next_frame().unwrap() {
            frames.push(frame);
        }
    }
    (frames, framer.pending())
}

fn frame() -> impl Strategy<Value = Frame> {
    let tag = prop_oneof![0..4_u32, 98..103_u32, Just(u32::MAX), any::<u32>()];
    (any::<u32>(), tag, vec(any::<u8>(), 0..40)).prop_map(|(sender, tag, payload)| Frame {
        sender,
        tag: Tag::from_number(tag),
        payload: payload.into(),
    })
}

#[test]
fn a_header_is_three_words_with_the_highest_byte_first_and_four_bytes_of_nothing() {
    let frame = Frame {
        sender: 1,
        tag: Tag::Request(102),
        payload: Bytes::from_static(b"\x02\x00"),
    };
    let bytes = frame.to_bytes();
    assert_eq!(
        bytes,
        [0, 0, 0, 1, 0, 0, 0, 102, 0, 0, 0, 2, 0, 0, 0, 0, 2, 0]
    );
    // Receivers ignore the last four bytes of the header.
    let mut garbage = bytes.clone();
    garbage[12..16].copy_from_slice(&[1, 2, 3, 4]);
    assert_eq!(frames(&[&bytes, &garbage]), (vec![frame.clone(), frame], 0));
}

#[test]
fn tags_are_kept_apart_by_their_numbers() {
    for (number, tag) in [
        (0, Tag::Event),
        (1, Tag::Heartbeat),
        (2, Tag::Output),
        (3, Tag::Reserved(3)),
        (99, Tag::Reserved(99)),
        (100, Tag::Request(100)),
        (u32::MAX - 1, Tag::Request(u32::MAX - 1)),
        (u32::MAX, Tag::Reserved(u32::MAX)),
    ] {
        assert_eq!(Tag::from_number(number), tag);
        assert_eq!(tag.number(), number);
    }
}

#[test]
fn a_handshake_has_a_header_of_its_own() {
    let bytes = handshake(b"abc");
    let length = 3_u32.to_ne_bytes();
    assert_eq!(bytes[..8], [0xff; 8]);
    assert_eq!(bytes[8..12], length);
    assert_eq!(bytes[12..], *b"\0\0\0\0abc");
    let mut framer = Framer::default();
    for (at, byte) in bytes.iter().enumerate() {
        assert_eq!(framer.next_handshake(), Ok(None), "at {at}");
        framer.push(&[*byte]);
    }
    assert_eq!(
        framer.next_handshake(),
        Ok(Some(Bytes::from_static(b"abc")))
    );
    assert_eq!(framer.pending(), 0);
}

#[test]
fn what_does_not_begin_like_a_handshake_is_none() {
    for at in 0..8 {
        let mut bytes = handshake(b"abc");
        bytes[at] = 0;
        let mut framer = Framer::default();
        framer.push(&bytes);
        let refused = Err(Error::malformed(Malformed::NoHandshake));
        assert_eq!(framer.next_handshake(), refused, "at {at}");
    }
}

#[test]
fn a_length_above_its_bound_is_refused_before_it_has_come() {
    for (length, fits) in [
        (0, true),
        (MAX_MESSAGE, true),
        (MAX_MESSAGE + 1, false),
        (u64::from(u32::MAX), false),
    ] {
        let mut header = [0; HEADER];
        header[8..12].copy_from_slice(&u32::try_from(length).unwrap().to_be_bytes());
        let mut framer = Framer::default();
        framer.push(&header);
        let refused = framer.next_frame().err();
        let expected = Error::Limit {
            which: Bound::Message,
            value: length,
        };
        assert_eq!(refused, (!fits).then_some(expected));
    }
    let largest = crate::handshake::MAX_HANDSHAKE;
    for (length, fits) in [(largest, true), (largest + 1, false)] {
        let mut header = [0xff; HEADER];
        header[8..12].copy_from_slice(&u32::try_from(length).unwrap().to_ne_bytes());
        let mut framer = Framer::default();
        framer.push(&header);
        let refused = framer.next_handshake().err();
        let expected = Error::Limit {
            which: Bound::Handshake,
            value: length,
        };
        assert_eq!(refused, (!fits).then_some(expected));
    }
}

#[test]
fn a_message_that_is_begun_takes_no_room_for_what_has_not_come() {
    let mut framer = Framer::default();
    let mut header = [0; HEADER];
    header[8..12].copy_from_slice(&u32::try_from(MAX_MESSAGE).unwrap().to_be_bytes());
    framer.push(&header);
    for _ in 0..100 {
        assert_eq!(framer.next_frame(), Ok(None));
        framer.push(&[0; 10]);
    }
    assert_eq!(framer.pending(), HEADER + 1_000);
    assert!(framer.bytes.capacity() < 10_000);
}

proptest! {
    #[test]
    fn a_stream_is_the_same_frames_wherever_it_is_cut(
        sent in vec(frame(), 0..6),
        cuts in vec(0..300_usize, 0..12),
        left in vec(any::<u8>(), 0..HEADER),
    ) {
        let mut stream: Vec<u8> = sent.iter().flat_map(Frame::to_bytes).collect();
        stream.extend_from_slice(&left);
        let mut cuts: Vec<usize> = cuts.into_iter().map(|cut| cut.min(stream.len())).collect();
        cuts.extend([0, stream.len()]);
        cuts.sort_unstable();
        let parts: Vec<&[u8]> = cuts.windows(2).map(|cut| &stream[cut[0]..cut[1]]).collect();
        prop_assert_eq!(frames(&parts), (sent.clone(), left.len()));
        let bytes: Vec<&[u8]> = stream.chunks(1).collect();
        prop_assert_eq!(frames(&bytes), (sent, left.len()));
    }

    #[test]
    fn a_message_written_behind_its_header_is_the_same(frame in frame()) {
        let mut message = start(frame.sender);
        message.extend_from_slice(&frame.payload);
        prop_assert_eq!(finish(message, frame.tag), frame.to_bytes());
    }
}
