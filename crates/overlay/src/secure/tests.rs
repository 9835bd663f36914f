use proptest::prelude::*;

use super::*;

const SECRET: Secret = Secret::new([7; 32]);

fn entropy(seed: u8) -> Entropy {
    Entropy::new([seed; 32])
}

fn dialer(build: &str, secret: &Secret) -> Secure {
    Secure::dial(&Build::new(build), secret, &mut entropy(1))
}

fn acceptor(build: &str, secret: &Secret) -> Secure {
    Secure::accept(&Build::new(build), secret, &mut entropy(2))
}

/// Passes bytes between two ends, at most `cut` at a time, until neither has more. Returns all that the first one sent.
fn carry(one: &mut Secure, other: &mut Secure, cut: usize) -> Vec<u8> {
    let mut sent = Vec::new();
    loop {
        let bytes: Vec<u8> = one.outgoing().iter().copied().take(cut).collect();
        one.written(bytes.len());
        other.take(&bytes);
        let back: Vec<u8> = other.outgoing().iter().copied().take(cut).collect();
        other.written(back.len());
        one.take(&back);
        sent.extend_from_slice(&bytes);
        if bytes.is_empty() && back.is_empty() {
            return sent;
        }
    }
}

fn records(end: &mut Secure) -> Vec<Vec<u8>> {
    std::iter::from_fn(|| end.record().unwrap())
        .map(|record| record.to_vec())
        .collect()
}

#[test]
fn a_peer_of_another_kind_is_refused_and_named() {
    let meet = |mut one: Secure, mut other: Secure| {
        carry(&mut one, &mut other, 1000);
        let text = |end: &mut Secure| match end.record() {
            Ok(_) => "it waits".to_owned(),
            Err(error) => error.to_string(),
        };
        format!("dialer: {}; acceptor: {}", text(&mut one), text(&mut other))
    };
    let said = [
        meet(dialer("rally 1", &SECRET), acceptor("rally 2", &SECRET)),
        meet(
            dialer("rally 1", &Secret::new([8; 32])),
            acceptor("rally 1", &SECRET),
        ),
    ];
    insta::assert_snapshot!(said.join("\n"), @"
    dialer: the peer is `rally 2`, and we are `rally 1`; acceptor: the peer is `rally 1`, and we are `rally 2`
    dialer: it waits; acceptor: the peer does not know the secret of this session
    ");
    let hear = |bytes: &[u8]| {
        let mut end = acceptor("rally 1", &SECRET);
        end.take(bytes);
        (end.record().unwrap_err().to_string(), end.outgoing().len())
    };
    insta::assert_debug_snapshot!([
        hear(b"GET / HTTP/1.1"),
        hear(b"RLYN\x09\x00\x07rally 3"),
        hear(b"RLYN\x01\x00\xffrally 3"),
        hear(b"RLYN\x01\x00\x01\n"),
    ], @r#"
    [
        (
            "the peer speaks another protocol",
            0,
        ),
        (
            "the peer speaks version 9 of the protocol of nodes, and we speak 7; it is `rally 3`",
            14,
        ),
        (
            "the peer speaks another protocol",
            0,
        ),
        (
            "the peer speaks another protocol",
            0,
        ),
    ]
    "#);
}

#[test]
fn a_handshake_that_was_recorded_is_worth_nothing_later() {
    let (mut one, mut other) = (dialer("b", &SECRET), acceptor("b", &SECRET));
    let recorded = carry(&mut one, &mut other, 1000);
    one.seal(b"let me in");
    let record = one.outgoing().to_vec();
    // The acceptor has another key this time.
    let mut later = Secure::accept(&Build::new("b"), &SECRET, &mut entropy(3));
    later.take(&recorded);
    later.take(&record);
    assert_eq!(later.record(), Err(SecureError::Record));
}

#[test]
fn a_changed_record_ends_the_connection() {
    let (mut one, mut other) = (dialer("b", &SECRET), acceptor("b", &SECRET));
    carry(&mut one, &mut other, 1000);
    one.seal(b"first");
    one.seal(b"second");
    let mut bytes = one.outgoing().to_vec();
    let last = bytes.len() - 1;
    bytes[last] ^= 1;
    other.take(&bytes);
    assert_eq!(other.record(), Ok(Some(Bytes::from_static(b"first"))));
    assert_eq!(other.record(), Err(SecureError::Record));
    other.take(b"more");
    assert_eq!(other.record(), Err(SecureError::Record));
    for length in [0_u16, 16, 0xffff] {
        let mut end = acceptor("b", &SECRET);
        carry(&mut dialer("b", &SECRET), &mut end, 1000);
        end.take(&length.to_le_bytes());
        let length = usize::from(length);
        assert_eq!(end.record(), Err(SecureError::Length { length }));
    }
}

#[test]
fn a_secret_is_never_shown() {
    assert_eq!(
        format!("{SECRET:?} {:?}", entropy(1)),
        "Secret(..) Entropy(..)"
    );
    assert_ne!(entropy(1).next(), entropy(2).next());
    let mut source = entropy(1);
    assert_ne!(source.next(), source.next());
}

proptest! {
    #[test]
    fn records_arrive_whole_however_they_are_cut(
        there in prop::collection::vec(prop::collection::vec(any::<u8>(), 1..200), 0..8),
        back in prop::collection::vec(prop::collection::vec(any::<u8>(), 1..200), 0..8),
        cut in 1_usize..300,
    ) {
        let (mut one, mut other) = (dialer("b", &SECRET), acceptor("b", &SECRET));
        carry(&mut one, &mut other, cut);
        prop_assert!(one.is_open() && other.is_open());
        for plain in &there {
            one.seal(plain);
        }
        for plain in &back {
            other.seal(plain);
        }
        carry(&mut one, &mut other, cut);
        prop_assert_eq!(records(&mut other), there);
        prop_assert_eq!(records(&mut one), back);
    }

    #[test]
    fn garbage_is_an_error_and_never_a_panic(bytes in prop::collection::vec(any::<u8>(), 0..400)) {
        for mut end in [dialer("b", &SECRET), acceptor("b", &SECRET)] {
            end.take(b"RLYN\x01\x00\x01b");
            end.take(&bytes);
            prop_assert!(!matches!(end.record(), Ok(Some(_))));
        }
    }
}

#[test]
fn the_seed_of_the_fuzz_target_passes_the_preamble() {
    let seed = include_bytes!("../../../../fuzz/seeds/node_secure/preamble");
    let mut end = acceptor("fuzz", &SECRET);
    end.take(seed);
    assert!(matches!(end.record(), Ok(None)), "write it again");
}
