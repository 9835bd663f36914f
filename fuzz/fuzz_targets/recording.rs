//! Recordings: any bytes are events or are refused, and what was decoded is encoded again, also without what is hidden.
#![no_main]

use dvm::recording::{Event, Reader, preamble};
use libfuzzer_sys::fuzz_target;

fn check(bytes: &[u8]) {
    let Ok(event) = Event::decode(bytes) else {
        return;
    };
    let again = event.encode().expect("what was decoded can be encoded");
    assert_eq!(Event::decode(&again[4..]).as_ref(), Ok(&event));
    assert!(event.is_repeated_by(&event));
    let hidden = event.hide();
    let again = hidden.encode().expect("what is hidden can be encoded");
    assert_eq!(Event::decode(&again[4..]).as_ref(), Ok(&hidden));
}

/// Takes the events of a file that is read in pieces. Returns how many there are.
fn events(file: &[u8], piece: usize) -> usize {
    let mut reader = Reader::default();
    let mut count = 0;
    for piece in file.chunks(piece) {
        reader.take(piece);
        loop {
            match reader.next_event() {
                Ok(Some(event)) => {
                    count += 1;
                    check(&event);
                }
                Ok(None) => break,
                Err(_) => return count,
            }
        }
    }
    count
}

fuzz_target!(|bytes: &[u8]| {
    check(bytes);
    let file = [&preamble(), bytes].concat();
    assert_eq!(events(&file, 7), events(&file, file.len()));
    events(bytes, 100);
});
