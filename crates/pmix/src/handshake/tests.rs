//! Tests of the handshake: every kind of connector, the additions of libraries, and malformed input.

use proptest::{collection::vec, prelude::*};

use super::*;
use crate::{
    Bound,
    codec::{Family, Items, Writer},
    tests::strategy,
    value::Value,
};

fn proc(name: &str, rank: u32) -> Proc {
    Proc {
        nspace: Nspace::from_text(name).unwrap(),
        rank: PmixRank(rank),
    }
}

/// Creates a handshake with the fields of this kind.
fn hello(kind: ConnectorKind) -> Hello {
    Hello {
        security: c"native".to_owned(),
        credential: Bytes::from_static(&[0, 0, 0, 0, 1, 0, 0, 0]),
        kind,
        owner: kind.has_owner().then_some(Owner { uid: 1000, gid: 2 }),
        proc: kind.has_name().then(|| proc("job@1", 3)),
        version: c"5.0.11rc1".to_owned(),
        codec: c"v41".to_owned(),
        buffer: 1,
        store: c"hash".to_owned(),
        rest: Bytes::new(),
    }
}

#[test]
fn a_client_says_who_it_is() {
    let bytes = [
        &b"native\0"[..],
        &[0, 0, 0, 8, 0, 0, 0, 0, 1, 0, 0, 0],
        &[0],
        b"job@1\0",
        &[0, 0, 0, 3],
        b"5.0.11rc1\0",
        b"v41\0",
        &[1],
        b"hash\0",
    ]
    .concat();
    assert_eq!(hello(ConnectorKind::Client).encode(), bytes);
}

#[test]
fn every_kind_of_connector_reads_back_as_it_was_written() {
    // Section 3.1: which kinds send their user, and which send their name.
    for (number, has) in [
        (0_u8, "name"),
        (1, "user"),
        (2, "user"),
        (3, "user"),
        (4, "user, name"),
        (5, "user, name"),
        (6, "user"),
        (7, "user, name"),
        (8, "user, name"),
        (9, "user, name"),
        (10, "user, name"),
    ] {
        let kind = ConnectorKind::ALL[usize::from(number)];
        let sent = hello(kind);
        let bytes = Bytes::from(sent.encode());
        assert_eq!(bytes[19], number);
        assert_eq!(Hello::decode(&bytes), Ok(sent.clone()), "{kind:?}");
        let fields = [
            ("user", sent.owner.is_some()),
            ("name", sent.proc.is_some()),
        ];
        let fields: Vec<&str> = fields
            .iter()
            .filter(|field| field.1)
            .map(|field| field.0)
            .collect();
        assert_eq!(fields.join(", "), has, "{kind:?}");
    }
    let mut bytes = hello(ConnectorKind::Client).encode();
    bytes[19] = 11;
    let unknown = Error::Unsupported {
        what: Unsupported::Connector(11),
    };
    assert_eq!(Hello::decode(&bytes.into()), Err(unknown));
}

#[test]
fn the_stray_nul_of_version_4_is_kept_and_means_nothing() {
    let mut bytes = hello(ConnectorKind::Client).encode();
    bytes.push(0);
    let bytes = Bytes::from(bytes);
    let read = Hello::decode(&bytes).unwrap();
    assert_eq!((&read.rest[..], read.infos()), (&[0][..], Vec::new()));
    assert_eq!(read.encode(), bytes);
    // A tool sends the stray NUL after its infos.
    let infos = vec![Info::new(strategy::named(c"pmix.ppid"), Value::Pid(7))];
    let mut writer = Writer::new(Format::V4);
    writer.list(&infos);
    for stray in [&[][..], &[0], &[0, 0, 0]] {
        let mut tool = hello(ConnectorKind::Tool);
        tool.rest = [writer.as_bytes(), stray].concat().into();
        let read = Hello::decode(&tool.encode().into()).unwrap();
        assert_eq!(read.infos(), infos);
    }
}

#[test]
fn infos_that_cannot_be_read_are_left_out() {
    let mut tool = hello(ConnectorKind::Tool);
    tool.rest = Bytes::from_static(b"\x02\x02\x02\xff");
    assert_eq!(tool.infos(), []);
    tool.codec = c"v12".to_owned();
    assert_eq!(tool.infos(), []);
}

#[test]
fn the_codec_is_settled_by_its_name_and_the_kind_of_its_buffers() {
    for (codec, buffer, expected) in [
        (c"v41", 1, Some(Format::V4)),
        (c"v4", 1, Some(Format::V4)),
        (c"v51", 1, Some(Format::V4)),
        (c"v61", 1, Some(Format::V4)),
        (c"v3", 1, Some(Format::V3)),
        (
            c"v61",
            2,
            Some(Format {
                family: Family::Flex,
                items: Items::Described,
            }),
        ),
        (
            c"v3",
            2,
            Some(Format {
                family: Family::Fixed,
                items: Items::Described,
            }),
        ),
        (c"v41", 0, None),
        (c"v41", 3, None),
        (c"v12", 1, None),
        (c"v20", 1, None),
        (c"v21", 1, None),
        (c"", 1, None),
    ] {
        let mut client = hello(ConnectorKind::Client);
        client.codec = codec.to_owned();
        client.buffer = buffer;
        assert_eq!(client.format().ok(), expected, "{codec:?} {buffer}");
        if let Some(format) = expected {
            assert_eq!(format.buffer_number(), buffer);
            assert_eq!(
                Format::by_name(format.codec_name().to_bytes(), buffer),
                expected
            );
        }
    }
    let mut client = hello(ConnectorKind::Client);
    client.codec = CString::new("v".repeat(1_000)).unwrap();
    let theirs = "v".repeat(THEIRS_MAX);
    assert_eq!(client.format(), Err(Error::PeerIncompatible { theirs }));
}

#[test]
fn versions_are_their_leading_numbers() {
    for (text, numbers) in [
        (c"5.0.11rc1", [5, 0, 11]),
        (c"6.1.0", [6, 1, 0]),
        (c"4.2.2rc2", [4, 2, 2]),
        (c"3.2.3rc1", [3, 2, 3]),
        (c"7", [7, 0, 0]),
        (c"4.x.1", [4, 0, 1]),
        (c"", [0, 0, 0]),
        (c"99999999999.1.2", [0, 1, 2]),
        (c"v5.0.1", [0, 0, 1]),
    ] {
        let mut client = hello(ConnectorKind::Client);
        client.version = text.to_owned();
        assert_eq!(client.version_numbers(), numbers, "{text:?}");
    }
}

#[test]
fn a_handshake_prints_in_one_line_whatever_is_in_it() {
    let mut tool = hello(ConnectorKind::NamedTool);
    tool.proc = Some(proc("a\nb", 1));
    for text in [
        &mut tool.version,
        &mut tool.codec,
        &mut tool.store,
        &mut tool.security,
    ] {
        *text = c"\n\x1b[2J".to_owned();
    }
    insta::assert_snapshot!(tool, @r"hello from NamedTool a\nb:1 uid 1000 gid 2 version \n\u{1b}[2J codec \n\u{1b}[2J/1 store \n\u{1b}[2J security \n\u{1b}[2J []");
}

#[test]
fn what_is_cut_anywhere_is_no_handshake() {
    for kind in ConnectorKind::ALL {
        let whole = hello(kind).encode();
        for end in 0..whole.len() {
            let cut = Bytes::copy_from_slice(&whole[..end]);
            let refused = Hello::decode(&cut);
            assert!(
                matches!(
                    refused,
                    Err(Error::Malformed {
                        what: Malformed::Truncated | Malformed::NoNul
                    })
                ),
                "{kind:?} at {end}: {refused:?}"
            );
        }
    }
}

#[test]
fn lengths_that_lie_are_refused() {
    let mut bytes = hello(ConnectorKind::Client).encode();
    bytes[7..11].copy_from_slice(&u32::MAX.to_be_bytes());
    let truncated = Err(Error::malformed(Malformed::Truncated));
    assert_eq!(Hello::decode(&bytes.into()), truncated);
    let mut client = hello(ConnectorKind::Client);
    let long = Nspace::from_text(&"n".repeat(255)).unwrap();
    client.proc = Some(Proc {
        nspace: long,
        rank: PmixRank(0),
    });
    let bytes = client.encode();
    assert_eq!(Hello::decode(&bytes.clone().into()), Ok(client));
    // One byte more in the name.
    let mut longer = bytes;
    longer.insert(20, b'n');
    let refused = Err(Error::Limit {
        which: Bound::Nspace,
        value: 256,
    });
    assert_eq!(Hello::decode(&longer.into()), refused);
}

/// Returns the possible answers to a connector of this kind.
fn welcomes(kind: ConnectorKind) -> Vec<Welcome> {
    let server = || proc("server-host-1", 0);
    match kind {
        ConnectorKind::Client | ConnectorKind::Singleton => vec![
            Welcome::Client {
                status: Status::SUCCESS,
                index: 3,
            },
            Welcome::Client {
                status: Status::UNREACH,
                index: 0,
            },
        ],
        kind => vec![
            Welcome::Tool {
                assigned: kind.wants_name().then(|| proc("tool@7", 0)),
                server: server(),
                security: Status::SUCCESS,
            },
            Welcome::Refused(Status::NOT_SUPPORTED),
        ],
    }
}

#[test]
fn every_answer_reads_back_as_it_was_written_and_waits_until_it_is_there() {
    for kind in ConnectorKind::ALL {
        for welcome in welcomes(kind) {
            let bytes = welcome.encode();
            let used = bytes.len();
            let mut more = bytes.clone();
            more.extend_from_slice(b"the first message");
            assert_eq!(
                Welcome::decode(kind, &more),
                Ok(Some((welcome.clone(), used)))
            );
            for end in 0..used {
                assert_eq!(
                    Welcome::decode(kind, &bytes[..end]),
                    Ok(None),
                    "{kind:?} at {end}"
                );
            }
        }
    }
    // Sections 3.3 and 3.4.
    let lengths: Vec<usize> = [
        ConnectorKind::Client,
        ConnectorKind::Tool,
        ConnectorKind::NamedTool,
    ]
    .iter()
    .map(|kind| welcomes(*kind)[0].encode().len())
    .collect();
    assert_eq!(lengths, [8, 4 + 260 + 260 + 4, 4 + 260 + 4]);
}

#[test]
fn a_name_that_fills_its_field_has_no_end() {
    let welcome = &welcomes(ConnectorKind::NamedTool)[0];
    let mut bytes = welcome.encode();
    bytes[4..260].fill(b'n');
    let refused = Err(Error::malformed(Malformed::NoNul));
    assert_eq!(Welcome::decode(ConnectorKind::NamedTool, &bytes), refused);
}

proptest! {
    #[test]
    fn any_bytes_are_read_or_refused(bytes in vec(any::<u8>(), 0..200), kind in 0..11_usize) {
        let kind = ConnectorKind::ALL[kind];
        let _ = Welcome::decode(kind, &bytes);
        // Bytes after a valid start.
        let mut begun = b"native\0\0\0\0\0".to_vec();
        begun.extend_from_slice(&bytes);
        for bytes in [Bytes::from(bytes), Bytes::from(begun)] {
            if let Ok(hello) = Hello::decode(&bytes) {
                let _ = (hello.format(), hello.infos(), hello.version_numbers());
                prop_assert!(!hello.to_string().contains('\n'));
                prop_assert_eq!(hello.encode(), bytes);
            }
        }
    }
}
