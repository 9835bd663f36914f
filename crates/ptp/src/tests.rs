//! Tests of both framings: what real clients and proxies send, what is refused, and that nothing panics.

mod contents;
mod golden;
mod session;

use proptest::{collection::vec, prelude::*};

use crate::{Bound, Decoder, Framing, MAX_PACKET, Malformed, Packet, encode};

/// Decodes the bytes of a connection, which come in pieces of this length.
fn decode(bytes: &[u8], piece: usize) -> Result<Vec<Packet>, Malformed> {
    let mut decoder = Decoder::new();
    let mut packets = Vec::new();
    for piece in bytes.chunks(piece) {
        decoder.push(piece);
        while let Some(packet) = decoder.next_packet()? {
            packets.push(packet);
        }
    }
    assert!(!decoder.is_within_packet(), "{decoder:?}");
    Ok(packets)
}

fn packet(id: u32, transaction: u32, args: &[&str]) -> Packet {
    Packet {
        id,
        transaction,
        args: args.iter().map(|arg| Vec::from(*arg)).collect(),
    }
}

/// Returns bytes that are written as text: hexadecimal digits, and blanks for the eye.
fn hex(text: &str) -> Vec<u8> {
    let digits: Vec<u8> = text.bytes().filter(u8::is_ascii_hexdigit).collect();
    let byte = |pair: &[u8]| u8::from_str_radix(std::str::from_utf8(pair).unwrap(), 16).unwrap();
    digits.chunks(2).map(byte).collect()
}

/// What a client of each generation sends first, and the answer.
/// `docs/ptp.md`: points 2 and 7.
#[test]
fn the_first_packets_of_real_clients() {
    let init = packet(1, 0, &["version=2.0", "baseId=1000"]);
    let ok = packet(0, 0, &[]);
    let start = packet(3, 0, &[]);
    let ascii = "00000041 0001:00000000:00000002 0000000b:version=2.0 0000000b:baseId=1000";
    let binary =
        hex("0000001e 00 01 00 02 00 07 76657273696f6e 03 322e30 00 06 626173654964 04 31303030");
    for (framing, expected, bytes) in [
        (Framing::Ascii, &init, Vec::from(ascii)),
        (
            Framing::Ascii,
            &ok,
            Vec::from("00000017 0000:00000000:00000000"),
        ),
        (Framing::Binary, &init, binary),
        (Framing::Binary, &ok, hex("00000004 00 00 00 00")),
        (Framing::Binary, &start, hex("00000004 00 03 00 00")),
    ] {
        assert_eq!(decode(&bytes, 1000).as_ref(), Ok(&vec![expected.clone()]));
        assert_eq!(encode(expected, framing).unwrap(), bytes);
    }
}

/// The vectors were made by another implementation of the code, in Python. The comment of each says what it shows.
/// `docs/ptp.md`: point 4.
#[test]
fn compressed_packets() {
    let text = include_str!("../../../testdata/ptp/compressed.txt");
    let lines = text
        .lines()
        .filter(|line| !line.starts_with('#') && !line.is_empty());
    let bytes: Vec<u8> = lines.flat_map(hex).collect();
    let expected = [
        packet(
            5,
            1,
            &[
                "jobSubId=JOB_1",
                "execName=hello",
                "progArgs=a=b",
                "env=X=",
                "alone",
            ],
        ),
        packet(6, 2, &["jobId=1004"]),
        packet(5, 300, &["execName=zzzzzzzzzzzzzzzzzzzz\u{e9}", ""]),
        packet(3, 0, &[]),
    ];
    for piece in [1, 7, bytes.len()] {
        assert_eq!(decode(&bytes, piece).as_deref(), Ok(&expected[..]));
    }
}

/// `docs/ptp.md`: points 2 and 3.
#[test]
fn what_is_no_packet_is_refused() {
    let ascii = |text: &str| Vec::from(text);
    let long = format!("{:08x}", MAX_PACKET + 1);
    let cases: &[(&str, Vec<u8>)] = &[
        ("no framing", ascii("<html>")),
        ("too long", ascii(&long)),
        ("too long", hex("00400001")),
        ("no length", ascii("0000001g")),
        ("no blank", ascii("00000017_0000:00000000:00000000")),
        ("no colon", ascii("00000017 0000;00000000:00000000")),
        ("empty", ascii("00000000")),
        ("short head", ascii("00000005 0000")),
        ("missing argument", ascii("00000017 0000:00000000:00000001")),
        ("many arguments", ascii("00000017 0000:00000000:ffffffff")),
        (
            "argument of another packet",
            ascii("00000022 0000:00000000:00000001 0000000b:x"),
        ),
        ("trailing", ascii("00000018 0000:00000000:00000000 ")),
        ("empty", hex("00000000")),
        ("short head", hex("00000003 00 00 00")),
        ("long number", hex("00000008 00 ffffffff1f 00 00")),
        ("longer number", hex("00000009 00 808080808000 00 00")),
        ("many arguments", hex("00000006 00 00 00 818004")),
        ("unknown flag", hex("00000004 01 00 00 00")),
        (
            "frequencies without compression",
            hex("00000004 10 00 00 00"),
        ),
        ("unknown type", hex("00000007 00 00 00 01 01 00 00")),
        ("missing argument", hex("00000005 00 00 00 01 00")),
        (
            "argument that is too long",
            hex("0000000b 00 00 00 01 00 00 ffffffff0f"),
        ),
        ("trailing zero", hex("00000005 00 00 00 00 00")),
        ("endless bits", hex("00000006 40 7fffffff 00")),
        ("bits that end", hex("00000006 40 00000003 00")),
        ("half a table", hex("00000009 50 00000001 00000001")),
    ];
    let mut said = String::new();
    for (what, bytes) in cases {
        let malformed = decode(bytes, 3).unwrap_err();
        said += &format!("{what}: {malformed}\n");
    }
    insta::assert_snapshot!(said);
}

/// The connection ends with the first error, and holds nothing then.
#[test]
fn nothing_follows_an_error() {
    let mut decoder = Decoder::new();
    decoder.push(&hex("00000004 01 00 00 00 00000004 00 00 00 00"));
    assert_eq!(decoder.next_packet(), Err(Malformed::Flags(1)));
    decoder.push(&hex("00000004 00 00 00 00"));
    assert_eq!(decoder.next_packet(), Err(Malformed::Flags(1)));
    assert!(!decoder.is_within_packet());
}

/// Frequencies of zeros make a deep tree, but a code; sums that overflow make none.
/// `docs/ptp.md`: points 3 and 4.
#[test]
fn tables_of_any_frequencies() {
    let with = |frequency: u32| {
        let mut bytes = hex("50 00000003");
        bytes.extend(frequency.to_be_bytes().repeat(256));
        bytes.extend([0; 200]);
        let length = u32::try_from(bytes.len()).unwrap();
        [&length.to_be_bytes()[..], &bytes].concat()
    };
    let zeros = decode(&with(0), 100);
    assert!(zeros.is_ok() || zeros == Err(Malformed::Short), "{zeros:?}");
    for frequency in [u32::MAX, 1 << 31, 1 << 30, 1 << 23] {
        assert_eq!(decode(&with(frequency), 100), Err(Malformed::Frequencies));
    }
}

/// What scripts write, and what is wrong with a line.
#[test]
fn lines_are_packets() {
    let text = "INIT 0 version=2.0 baseId=0\r\n\n\
                SUBMIT_JOB  7 execName=a\\x20b\\x3dc \\e \\x0a=\\x5c\nFLY 1\n";
    let expected = vec![
        packet(1, 0, &["version=2.0", "baseId=0"]),
        packet(5, 7, &["execName=a b=c", "", "\n=\\"]),
        packet(0xffff, 1, &["there is no command `FLY`"]),
    ];
    for piece in [1, 3, 1000] {
        assert_eq!(decode(text.as_bytes(), piece), Ok(expected.clone()));
    }
    let mut said = String::new();
    for line in [
        "INIT\n",
        "INIT x\n",
        "INIT -1\n",
        "INIT 4294967296\n",
        "INIT 0 a\\\n",
        "INIT 0 \\xg0\n",
        "INIT 0 \\x0\n",
        "INIT 0 a\\e\n",
        "GET / HTTP/1.1\n",
    ] {
        let packets = decode(line.as_bytes(), 100).unwrap();
        said += &format!("{line}  {:?}\n", packets[0]);
    }
    insta::assert_snapshot!(said);
    let endless = vec![b'A'; MAX_PACKET + 1];
    assert_eq!(
        decode(&endless, 65_536),
        Err(Malformed::TooLarge(Bound::Packet))
    );
    let many = format!("INIT 0{}\n", " x".repeat(crate::MAX_ARGS + 1));
    assert_eq!(
        decode(many.as_bytes(), 65_536),
        Err(Malformed::TooLarge(Bound::Args))
    );
    let event = packet(233, 0, &["1004", "", "processStdout=a b\\\n"]);
    let line = encode(&event, Framing::Lines).unwrap();
    assert_eq!(
        String::from_utf8(line).unwrap(),
        "PROCESS_CHANGE 0 1004 \\e processStdout=a\\x20b\\x5c\\x0a\n"
    );
}

/// `docs/ptp.md`: point 3.
#[test]
fn what_is_too_large_is_not_sent() {
    let mut large = packet(233, 0, &[]);
    large.args.push(vec![b'x'; MAX_PACKET]);
    let many = packet(233, 0, &["x"; crate::MAX_ARGS + 1]);
    for framing in [Framing::Ascii, Framing::Binary, Framing::Lines] {
        assert_eq!(encode(&large, framing), Err(Bound::Packet));
        assert_eq!(encode(&many, framing), Err(Bound::Args));
    }
}

/// `docs/ptp.md`: point 5.
#[test]
#[should_panic(expected = "processStdout=")]
fn an_empty_value_is_not_sent_to_a_client_that_misreads_it() {
    let _ = encode(&packet(233, 0, &["processStdout="]), Framing::Binary);
}

fn packets() -> impl Strategy<Value = Packet> {
    let arg = vec(any::<u8>(), 0..40).prop_map(|mut arg: Vec<u8>| {
        if arg.first() == Some(&b'=') {
            arg[0] = b'-';
        }
        if arg
            .iter()
            .position(|byte| *byte == b'=')
            .is_some_and(|at| at + 1 == arg.len())
        {
            arg.push(b'.');
        }
        arg
    });
    (0..0x1_0000_u32, any::<u32>(), vec(arg, 0..20)).prop_map(|(id, transaction, args)| Packet {
        id,
        transaction,
        args,
    })
}

proptest! {
    #[test]
    fn packets_are_what_they_were(all in vec(packets(), 1..5), piece in 1..100_usize, is_ascii: bool) {
        let framing = if is_ascii { Framing::Ascii } else { Framing::Binary };
        let bytes: Vec<u8> = all.iter().flat_map(|packet| encode(packet, framing).unwrap()).collect();
        prop_assert_eq!(decode(&bytes, piece), Ok(all));
    }

    #[test]
    fn nothing_panics(bytes in vec(any::<u8>(), 0..300), flags in prop::sample::select(vec![0_u8, 0x40, 0x50])) {
        let length = u32::try_from(bytes.len() + 1).unwrap();
        let framed = [&length.to_be_bytes()[..], &[flags], &bytes].concat();
        for bytes in [bytes, framed] {
            let mut decoder = Decoder::new();
            decoder.push(&bytes);
            while let Ok(Some(_)) = decoder.next_packet() {}
        }
    }
}
