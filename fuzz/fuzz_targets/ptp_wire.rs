//! Any bytes are packets of PTP or refused, however they are cut; and a packet is the same when it is sent again.
#![no_main]

use libfuzzer_sys::fuzz_target;
use ptp::{Decoder, Framing, Malformed, Packet, encode};

fn decode(bytes: &[u8], piece: usize) -> (Vec<Packet>, Option<Malformed>) {
    let mut decoder = Decoder::new();
    let mut packets = Vec::new();
    for piece in bytes.chunks(piece) {
        decoder.push(piece);
        loop {
            match decoder.next_packet() {
                Ok(Some(packet)) => packets.push(packet),
                Ok(None) => break,
                Err(malformed) => return (packets, Some(malformed)),
            }
        }
    }
    (packets, None)
}

/// True if a client would not misread it.
fn is_sent(packet: &Packet, framing: Framing) -> bool {
    let is_read = |arg: &Vec<u8>| match arg.iter().position(|byte| *byte == b'=') {
        Some(0) => false,
        Some(at) => framing != Framing::Binary || at + 1 < arg.len(),
        None => true,
    };
    packet.args.iter().all(is_read)
}

fuzz_target!(|input: (u8, &[u8])| {
    let (piece, bytes) = input;
    let (packets, malformed) = decode(bytes, bytes.len().max(1));
    assert_eq!(
        decode(bytes, usize::from(piece) + 1),
        (packets.clone(), malformed)
    );
    for packet in packets {
        if is_sent(&packet, Framing::Lines) && matches!(packet.id, 0 | 1 | 220) {
            // A line may be longer than the packet was.
            if let Ok(line) = encode(&packet, Framing::Lines) {
                assert_eq!(decode(&line, 1000), (vec![packet.clone()], None));
            }
        }
        for framing in [Framing::Ascii, Framing::Binary] {
            if is_sent(&packet, framing) && packet.id <= 0xffff {
                let bytes = encode(&packet, framing).expect("it is no longer than it was");
                assert_eq!(decode(&bytes, 1000), (vec![packet.clone()], None));
            }
        }
    }
});
