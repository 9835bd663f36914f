//! All encodings and their bounds.

use proptest::prelude::*;

use super::*;

fn parse(form: Form, bytes: &[u8]) -> Result<Vec<Message>, Error> {
    let mut framer = framer(form);
    framer.push(bytes);
    let mut messages = Vec::new();
    while let Some(message) = framer.next()? {
        messages.push(message);
    }
    Ok(messages)
}

fn framer(form: Form) -> Framer {
    match form {
        Form::Line | Form::Multi => Framer::default(),
        Form::Counted => Framer::counted(),
    }
}

/// Returns the decoded fields of a message, one word each.
fn fields(form: Form, text: &str) -> String {
    match parse(form, text.as_bytes()) {
        Err(error) => error.to_string(),
        Ok(messages) => messages
            .iter()
            .map(|message| {
                let fields: Vec<_> = message
                    .fields
                    .iter()
                    .map(|(key, value)| format!("{key}=[{value}]"))
                    .collect();
                format!("{}: {}", message.name, fields.join(" "))
            })
            .collect::<Vec<_>>()
            .join(" | "),
    }
}

#[test]
fn lines_mean_what_peers_mean_by_them() {
    for (line, expected) in [
        ("cmd=get_maxes", "get_maxes: "),
        (" cmd=get_maxes  ", "get_maxes: "),
        ("cmd=get  kvsname=a key=b ", "get: kvsname=[a] key=[b]"),
        ("cmd=put value=segments=9", "put: value=[segments=9]"),
        (
            "cmd=get_result rc=1 msg=no such key a=b",
            "get_result: rc=[1] msg=[no such key a=b]",
        ),
        (
            "cmd=lookup_name service=ocean  svc x=1",
            "lookup_name: service=[ocean  svc] x=[1]",
        ),
        ("cmd=put value=", "put: value=[]"),
        ("", ""),
        ("mcmd=spawn\narg1=a b=c \nendcmd", "spawn: arg1=[a b=c ]"),
        (
            "mcmd=spawn\narg1=for i\n\n do\nendcmd",
            "spawn: arg1=[for i\n\n do]",
        ),
        (
            "cmd",
            "malformed message: the command does not start with `cmd=` or `mcmd=`",
        ),
        (
            "mcmd=spawn\nx\nendcmd",
            "malformed message: a field has no key",
        ),
    ] {
        assert_eq!(
            fields(Form::Line, &format!("{line}\n")),
            expected,
            "{line:?}"
        );
    }
}

#[test]
fn counted_commands_mean_what_peers_mean_by_them() {
    for (text, expected) in [
        ("    14cmd=job-getid;", "job-getid: "),
        ("14    cmd=job-getid;", "job-getid: "),
        ("  14  cmd=job-getid;", "job-getid: "),
        ("000014cmd=job-getid;", "job-getid: "),
        // The last separator is missing.
        ("    13cmd=job-getid", "job-getid: "),
        (
            "    26cmd=kvs-put;key=a;value=b;",
            "kvs-put: key=[a] value=[b]",
        ),
        (
            "    29cmd=kvs-put;key=a;value=b;;c;",
            "kvs-put: key=[a] value=[b;c]",
        ),
        // As MPICH 4.1 and later write it.
        (
            "    28cmd=kvs-put;key=a;value=b;c;",
            "kvs-put: key=[a] value=[b;c]",
        ),
        ("    21cmd=x;a=;b=;;;c= d =;", "x: a=[] b=[;] c=[ d =]"),
        (
            "    14cmd=job-getid;    14cmd=job-getid;",
            "job-getid:  | job-getid: ",
        ),
        // The last character has not arrived.
        ("    15cmd=job-getid;", ""),
        (
            "-    5cmd=x;",
            "malformed message: the command does not start with its length",
        ),
        (
            "cmd=finalize\n",
            "malformed message: the command does not start with its length",
        ),
        (
            "     0",
            "malformed message: the command does not start with `cmd=` or `mcmd=`",
        ),
        ("     9cmd=x;y;;", "malformed message: a field has no key"),
        ("    10cmd=x;=y;z", "malformed message: a field has no key"),
    ] {
        assert_eq!(fields(Form::Counted, text), expected, "{text:?}");
    }
}

#[test]
fn the_count_has_six_digits() {
    let of = |length: usize| Message::new(Form::Counted, "x").with("a", "b".repeat(length));
    let bytes = of(MAX_COUNTED - 9).encode().unwrap();
    assert!(bytes.starts_with(b"999999cmd=x;a=b"));
    assert!(matches!(
        of(MAX_COUNTED - 8).encode(),
        Err(Error::Limit {
            which: Bound::Counted,
            value: 1_000_000
        })
    ));
}

#[test]
fn what_cannot_be_read_back_is_not_written() {
    for value in ["a\nb", " a", "a ", "x a=b", "a\0b"] {
        let message = Message::new(Form::Line, "put")
            .with("value", value)
            .with("z", 1);
        let written = message.encode();
        let free = value == " a";
        assert_eq!(written.is_ok(), free, "{value:?}");
    }
    for (value, free) in [
        ("a\nb", true),
        ("a\nb=c", false),
        ("a\nendcmd", false),
        (" a ", true),
    ] {
        let message = Message::new(Form::Multi, "spawn").with("arg1", value);
        assert_eq!(message.encode().is_ok(), free, "{value:?}");
    }
    for (value, free) in [
        (";", true),
        (";;a;", true),
        ("a\n b=c ", true),
        ("\0", false),
    ] {
        let message = Message::new(Form::Counted, "kvs-put").with("value", value);
        assert_eq!(message.encode().is_ok(), free, "{value:?}");
    }
    for key in ["a=b", "a;b", ""] {
        assert!(
            Message::new(Form::Counted, "x")
                .with(key, 1)
                .encode()
                .is_err()
        );
    }
    let long = Message::new(Form::Line, "put")
        .with("value", "x".repeat(MAX_COMMAND))
        .encode();
    assert!(matches!(
        long,
        Err(Error::Limit {
            which: Bound::Command,
            ..
        })
    ));
}

fn message() -> impl Strategy<Value = Message> {
    let key = "[a-z][a-zA-Z0-9_]{0,8}";
    let value = "[!-~]{0,20}( [!-<>-~]{1,5}){0,2}";
    (
        prop_oneof![Just(Form::Line), Just(Form::Multi)],
        "[a-z_]{1,12}",
        prop::collection::vec((key, value), 0..6),
    )
        .prop_map(|(form, name, fields)| {
            fields
                .iter()
                .filter(|(key, _)| !["msg", "message", "errmsg"].contains(&key.as_str()))
                .fold(Message::new(form, &name), |message, (key, value)| {
                    message.with(key, value)
                })
        })
}

/// Generates commands whose values are any text, with more separators than usual.
fn counted() -> impl Strategy<Value = Message> {
    let key = "[a-zA-Z][a-zA-Z0-9_-]{0,8}";
    let value = "([;= \n]|[^\0]){0,20}";
    ("[a-z-]{1,12}", prop::collection::vec((key, value), 0..6)).prop_map(|(name, fields)| {
        fields.iter().fold(
            Message::new(Form::Counted, &name),
            |message, (key, value)| message.with(key, value),
        )
    })
}

fn messages() -> impl Strategy<Value = (Form, Vec<Message>)> {
    prop_oneof![
        (Just(Form::Line), prop::collection::vec(message(), 1..5)),
        (Just(Form::Counted), prop::collection::vec(counted(), 1..5)),
    ]
}

proptest! {
    #[test]
    fn what_is_written_is_read((form, messages) in messages()) {
        let bytes: Vec<u8> = messages.iter().flat_map(|message| message.encode().unwrap()).collect();
        prop_assert_eq!(parse(form, &bytes).unwrap(), messages);
    }

    #[test]
    fn the_cuts_of_a_stream_do_not_matter((form, messages) in messages(), cut in 1_usize..9) {
        let bytes: Vec<u8> = messages.iter().flat_map(|message| message.encode().unwrap()).collect();
        let mut framer = framer(form);
        let mut read = Vec::new();
        for part in bytes.chunks(cut) {
            framer.push(part);
            while let Some(message) = framer.next().unwrap() {
                read.push(message);
            }
        }
        prop_assert_eq!(read, messages);
        prop_assert!(framer.is_empty());
    }

    #[test]
    fn any_bytes_are_read_or_refused(bytes in prop::collection::vec(any::<u8>(), 0..300)) {
        for form in [Form::Line, Form::Counted] {
            let _ = parse(form, &bytes);
        }
    }

    #[test]
    fn what_was_read_can_be_written_again(text in "(cmd=[ a-z=]{0,30}\n|mcmd=x\n([a-z= ]{0,9}\n){0,3}endcmd\n){1,3}") {
        if let Ok(messages) = parse(Form::Line, text.as_bytes()) {
            for message in messages {
                let again = parse(Form::Line, &message.encode().unwrap()).unwrap();
                prop_assert_eq!(again, vec![message]);
            }
        }
    }

    #[test]
    fn what_was_counted_can_be_written_again(text in "cmd=[a;=]{0,6}[a-c;= \n]{0,30}") {
        let bytes = format!("{:<6}{text}", text.len());
        if let Ok(messages) = parse(Form::Counted, bytes.as_bytes()) {
            for message in messages {
                let again = parse(Form::Counted, &message.encode().unwrap()).unwrap();
                prop_assert_eq!(again, vec![message]);
            }
        }
    }
}
