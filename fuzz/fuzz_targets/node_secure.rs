//! A connection between nodes: a peer without the secret gets nowhere, and one with it is understood or refused.
#![no_main]

use libfuzzer_sys::fuzz_target;
use overlay::secure::{Build, Entropy, RECORD_MAX, Secret, Secure, VERSION};

const SECRET: Secret = Secret::new([7; 32]);

fn ends() -> [Secure; 2] {
    let build = Build::new("fuzz");
    [
        Secure::dial(&build, &SECRET, &mut Entropy::new([1; 32])),
        Secure::accept(&build, &SECRET, &mut Entropy::new([2; 32])),
    ]
}

fn pass(from: &mut Secure, to: &mut Secure) {
    let bytes = from.outgoing().to_vec();
    from.written(bytes.len());
    to.take(&bytes);
}

fn open() -> [Secure; 2] {
    let [mut dialer, mut acceptor] = ends();
    for _ in 0..2 {
        pass(&mut dialer, &mut acceptor);
        pass(&mut acceptor, &mut dialer);
    }
    assert!(dialer.is_open() && acceptor.is_open());
    [dialer, acceptor]
}

fuzz_target!(|bytes: &[u8]| {
    // Without the secret: from the first byte, and after the preamble of the same build.
    let same_build = [b"RLYN", &VERSION.to_le_bytes()[..], b"\x04fuzz"].concat();
    for preamble in [Vec::new(), same_build] {
        for mut end in ends() {
            end.take(&preamble);
            for part in bytes.chunks(50) {
                end.take(part);
                assert!(!matches!(end.record(), Ok(Some(_))));
            }
            assert!(!end.is_open());
            assert!(end.outgoing().len() < 400);
        }
    }
    // Bytes that were not encrypted.
    for mut end in open() {
        end.take(bytes);
        while let Ok(Some(_)) = end.record() {
            panic!("it was not made with the keys");
        }
    }
    // Records of any length arrive as they were, and no longer after one changed byte.
    let [mut dialer, mut acceptor] = open();
    let (count, rest) = bytes.split_first().unwrap_or((&1, b"x"));
    let records: Vec<&[u8]> = rest
        .chunks(usize::from(*count).max(1).min(RECORD_MAX))
        .collect();
    for record in &records {
        dialer.seal(record);
    }
    let mut sealed = dialer.outgoing().to_vec();
    let changed = sealed.len().saturating_sub(1 + usize::from(*count));
    if *count % 2 == 1 && !sealed.is_empty() {
        sealed[changed] ^= 1;
    }
    acceptor.take(&sealed);
    let mut arrived = Vec::new();
    while let Ok(Some(record)) = acceptor.record() {
        arrived.push(record);
    }
    assert!(arrived.len() == records.len() || *count % 2 == 1);
    assert!(arrived.len() < records.len() || *count % 2 == 0 || records.is_empty());
    assert!(
        arrived
            .iter()
            .zip(&records)
            .all(|(one, other)| one == other)
    );
});
