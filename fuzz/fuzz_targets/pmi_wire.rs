//! Any bytes are read as PMI-1 or refused; what was read is written back as the same commands, however it is cut.
#![no_main]

use libfuzzer_sys::fuzz_target;
use pmix::pmi::{
    Answer, Error, Request,
    wire::{Framer, MAX_COMMAND, Message},
};

fn read<'a>(parts: impl Iterator<Item = &'a [u8]>) -> (Vec<Message>, Option<Error>) {
    let mut framer = Framer::default();
    let mut messages = Vec::new();
    for part in parts {
        framer.push(part);
        loop {
            match framer.next() {
                Ok(Some(message)) => messages.push(message),
                Ok(None) => break,
                Err(error) => return (messages, Some(error)),
            }
        }
    }
    (messages, None)
}

fuzz_target!(|input: (u8, &[u8])| {
    let (cut, bytes) = input;
    let whole = read(std::iter::once(bytes));
    // Where a line is too long may be seen earlier when it comes in parts; all else is the same.
    if bytes.len() < MAX_COMMAND {
        assert_eq!(whole, read(bytes.chunks(usize::from(cut) + 1)));
    }
    for message in whole.0 {
        let again = message.encode().expect("what was read can be written");
        assert_eq!(read(std::iter::once(again.as_slice())), (vec![message.clone()], None));
        if let Ok(request) = Request::decode(&message) {
            let again = request.message();
            assert_eq!(Request::decode(&again).expect("what was understood is understood again"), request);
        }
        if let Ok(answer) = Answer::decode(&message) {
            let again = Answer::decode(&answer.message()).expect("what was understood is understood again");
            assert_eq!(again.kind(), answer.kind());
        }
    }
});
