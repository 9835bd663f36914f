//! A launcher and the bytes that tools send it.

use std::ffi::CString;

use super::*;
use crate::{
    frame::Frame,
    value::{DataArray, Elements, Key, Kval},
};

fn proc(nspace: &str) -> Proc {
    Proc {
        nspace: Nspace::from_text(nspace).unwrap(),
        rank: PmixRank(0),
    }
}

fn callback() -> (Callback, Vec<u8>) {
    let tool = "vm:3462.0;tcp4://127.0.0.1:48207".parse().unwrap();
    let owner = Owner { uid: 0, gid: 0 };
    Callback::new(tool, proc("vm:3462:1"), owner, 42, "rally run ./a")
}

fn welcome() -> Vec<u8> {
    let welcome = Welcome::Tool {
        assigned: None,
        server: proc("vm:3462"),
        security: Status::SUCCESS,
    };
    welcome.encode()
}

fn message(tag: u32, payload: Vec<u8>) -> Vec<u8> {
    let frame = Frame {
        sender: 0,
        tag: Tag::Request(tag),
        payload: payload.into(),
    };
    frame.to_bytes()
}

fn answer(facts: Vec<Kval>) -> Vec<u8> {
    let answer = Answer::JobInfo {
        nspace: Nspace::from_text("vm:3462:1").unwrap(),
        facts,
    };
    let mut writer = Writer::new(Format::V4);
    answer.encode(&mut writer);
    message(TAG, writer.into_bytes())
}

fn directive(key: &CStr) -> Info {
    Info::new(Key::new(key).unwrap(), crate::value::Value::Bool(true))
}

fn fact(key: &CStr, value: crate::value::Value) -> Kval {
    Kval {
        key: Key::new(key).unwrap(),
        value,
    }
}

#[test]
fn the_handshake_has_the_kind_and_the_name_that_the_tool_expects() {
    let (_, hello) = callback();
    let expected = [
        &b"native\0\0\0\0\x08\0\0\0\0\0\0\0\0\x04"[..],
        &[0; 8],
        b"vm:3462:1\0\0\0\0\0",
        b"5.0.0\0v41\0\x01hash\0",
    ]
    .concat();
    assert_eq!(hello[16..16 + expected.len()], expected);
}

#[test]
fn directives_and_early_requests_are_returned_however_the_bytes_come() {
    let early = message(101, vec![2, 13, 2, 5]);
    let next = message(102, vec![2, 12]);
    let infos = [directive(keys::STOP_IN_INIT), directive(keys::FWD_STDOUT)];
    let values = infos.iter().map(|info| {
        let info = Box::new(info.clone());
        crate::value::Value::Info(info)
    });
    let array = DataArray {
        kind: crate::value::DataType::INFO,
        elements: Elements::Values(values.collect()),
    };
    let facts = vec![
        fact(
            keys::LIBRARY_VERSION,
            crate::value::Value::String(Some(CString::from(c"4.2.2rc2"))),
        ),
        fact(
            keys::LAUNCH_DIRECTIVES,
            crate::value::Value::Array(Box::new(array)),
        ),
        fact(c"pmix.unknown", crate::value::Value::Bool(true)),
    ];
    let sent = [welcome(), early.clone(), answer(facts), next.clone()].concat();
    for piece in [1, 7, 300, sent.len()] {
        let (mut callback, _) = callback();
        let mut asked = Vec::new();
        let mut called = None;
        let mut late = Vec::new();
        for bytes in sent.chunks(piece) {
            if called.is_some() {
                late.extend_from_slice(bytes);
                continue;
            }
            match callback.handle(bytes).unwrap() {
                Step::Receive => {}
                Step::Send(bytes) => {
                    asked = bytes;
                    // The rest of what was received is looked at next.
                    if let Step::Called(done) = callback.handle(&[]).unwrap() {
                        called = Some(done);
                    }
                }
                Step::Called(done) => called = Some(done),
            }
        }
        assert_eq!(
            asked,
            [0, 0, 0, 0, 0x40, 0, 0, 1, 0, 0, 0, 2, 0, 0, 0, 0, 2, 0]
        );
        let called = called.unwrap();
        assert_eq!(called.tool, proc("vm:3462"));
        assert_eq!(called.me, proc("vm:3462:1"));
        assert_eq!(called.version, Some([4, 2, 2]));
        assert_eq!(called.directives, infos);
        let rest = [&called.rest[..], &late].concat();
        assert_eq!(rest, [early.clone(), next.clone()].concat());
    }
}

#[test]
fn a_refusal_and_too_many_requests_are_errors() {
    let (mut refused, _) = callback();
    let answer = Welcome::Refused(Status::NO_PERMISSIONS).encode();
    assert_eq!(
        refused.handle(&answer),
        Err(CallbackError::Refused(Status::NO_PERMISSIONS))
    );
    let (mut flooded, _) = callback();
    assert!(matches!(flooded.handle(&welcome()), Ok(Step::Send(_))));
    let flood = message(101, vec![0; EARLY_REQUESTS_MAX]);
    assert_eq!(flooded.handle(&flood), Err(CallbackError::TooEarly));
    let (mut malformed, _) = callback();
    assert!(matches!(malformed.handle(&welcome()), Ok(Step::Send(_))));
    assert!(matches!(
        malformed.handle(&message(TAG, vec![1, 2, 3])),
        Err(CallbackError::Protocol(_))
    ));
}

#[test]
fn the_environment_names_the_tool_and_the_launcher() {
    let read = |variables: &[(&str, &str)]| {
        Summons::from_environment(|name| {
            let mut found = variables.iter().filter(|(known, _)| *known == name);
            found.next().map(|(_, value)| (*value).to_owned())
        })
    };
    assert_eq!(read(&[("PMIX_SERVER_NSPACE", "x")]), Ok(None));
    let address = (ADDRESS, "vm:3462.0;tcp4://127.0.0.1:48207");
    let found = read(&[address]).unwrap().unwrap();
    assert_eq!(found.me, None);
    assert_eq!(found.tool.address().port(), 48207);
    let named = [
        address,
        ("PMIX_SERVER_NSPACE", "vm:3462:1"),
        ("PMIX_SERVER_RANK", "0"),
    ];
    assert_eq!(read(&named).unwrap().unwrap().me, Some(proc("vm:3462:1")));
    assert!(read(&[(ADDRESS, "nonsense")]).is_err());
}
