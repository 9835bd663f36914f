//! What was read is written again, and means the same.

use pmix::pmi::{
    Answer, Dialect, Error, Request,
    wire::{Form, Framer, Message},
};

fn read<'a>(
    mut framer: Framer,
    parts: impl Iterator<Item = &'a [u8]>,
) -> (Vec<Message>, Option<Error>) {
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

pub fn check(framer: impl Fn() -> Framer, bytes: &[u8], cut: Option<usize>) {
    let whole = read(framer(), std::iter::once(bytes));
    if let Some(cut) = cut {
        assert_eq!(whole, read(framer(), bytes.chunks(cut)));
    }
    for message in whole.0 {
        let again = message.encode().expect("what was read can be written");
        assert_eq!(
            read(framer(), std::iter::once(again.as_slice())),
            (vec![message.clone()], None)
        );
        let dialect = match message.form() {
            Form::Line | Form::Multi => Dialect::One,
            Form::Counted => Dialect::Two,
        };
        if let Ok(request) = Request::decode(&message) {
            let again = request.message(dialect);
            assert_eq!(
                Request::decode(&again).expect("what was understood is understood again"),
                request
            );
        }
        if let Ok(answer) = Answer::decode(&message) {
            let again = answer.message(dialect, message.field("thrid"));
            let again = Answer::decode(&again).expect("what was understood is understood again");
            assert_eq!(again.kind(), answer.kind());
        }
    }
}
