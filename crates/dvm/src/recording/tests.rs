use base::{JobId, ProcId, Rank};
use pmix::server::{Conn, PeerOwner};
use proptest::prelude::*;

use super::*;
use crate::proto::{Chunk, ChunkEnd, FrontId, Stream};

const PROC: ProcId = ProcId {
    job: JobId(1),
    rank: Rank(2),
};

fn app(env: &[(&str, &str)]) -> App {
    App {
        program: "./a".into(),
        args: vec!["-v".into()],
        env: env.iter().copied().collect(),
        directory: "/home".into(),
        search: "/secret/bin".into(),
        umask: 0o022,
        elsewhere: Arc::default(),
        tracers: crate::spec::Tracers::Ancestors,
    }
}

fn examples() -> Vec<Event<'static>> {
    let node = NodeId(3);
    let time = Time::from_nanos(77);
    let stdout = Stream::Stdout;
    let bytes = Bytes::from_static(b"secret\nsecret");
    let chunk = Chunk {
        job: JobId(1),
        rank: Rank(2),
        stream: stdout,
        bytes: bytes.clone(),
        end: ChunkEnd::Partial,
    };
    let input = |input| Event::DaemonGets(node, time, Box::new(input));
    let output = |output| Event::DaemonSends(node, Box::new(output));
    let gets = |input| Event::ControllerGets(time, Box::new(input));
    let sends = |output| Event::ControllerSends(Box::new(output));
    let report = ToController::Output {
        job: JobId(1),
        chunk: chunk.clone(),
    };
    let stdin = ToDaemon::Stdin {
        job: JobId(1),
        bytes: bytes.clone(),
    };
    vec![
        Event::Controller {
            allocation: Allocation::default(),
            name: "rally-n1".to_owned(),
        },
        input(Input::ClientAccepted {
            conn: Conn(7),
            owner: PeerOwner::Uid(1000),
        }),
        input(Input::ClientBytes {
            conn: Conn(7),
            bytes: b"hello",
        }),
        input(Input::Output {
            proc: PROC,
            stream: stdout,
            bytes: bytes.clone(),
        }),
        input(Input::Message(stdin.clone())),
        Event::DaemonLoses(node, time),
        output(Output::Prepare {
            recorder: crate::spec::Recorder::Off,
            limits: Default::default(),
            beside: None,
            job: JobId(1),
            apps: vec![app(&[("A", "secret"), ("B", "")])],
        }),
        output(Output::WriteStdin {
            proc: PROC,
            bytes: bytes.clone(),
        }),
        output(Output::Send(report.clone())),
        output(Output::ClientSend {
            conn: Conn(7),
            bytes: Bytes::from_static(b"hello"),
        }),
        Event::DaemonIdle(node, Some(time)),
        gets(ControllerInput::Front(FrontId(0), FromFront::Stdin(bytes))),
        gets(ControllerInput::Daemon(node, report)),
        sends(ControllerOutput::Front(
            FrontId(0),
            ToFront::Output { node, chunk },
        )),
        sends(ControllerOutput::Daemon(node, stdin)),
        Event::ControllerIdle(None),
    ]
}

#[test]
fn events_survive_the_file_however_it_is_cut() {
    let mut file = preamble();
    for event in examples() {
        file.extend(event.encode().unwrap());
    }
    for cut in [1, 3, 50, 100_000] {
        let mut reader = Reader::default();
        let mut events = Vec::new();
        assert!(reader.is_cut());
        for piece in file.chunks(cut) {
            reader.take(piece);
            while let Some(bytes) = reader.next_event().unwrap() {
                events.push(bytes);
            }
        }
        assert!(!reader.is_cut());
        let events: Vec<_> = events
            .iter()
            .map(|bytes| Event::decode(bytes).unwrap())
            .collect();
        assert_eq!(events, examples(), "{cut}");
    }
    let mut reader = Reader::default();
    reader.take(&file[..file.len() - 1]);
    while reader.next_event().unwrap().is_some() {}
    assert!(reader.is_cut());
}

#[test]
fn no_secret_is_recorded() {
    for event in examples() {
        let hidden = event.clone().hide();
        let bytes = hidden.encode().unwrap();
        let has = |text: &[u8]| bytes.windows(text.len()).any(|window| window == text);
        assert!(!has(b"secret"), "{hidden:?}");
        // Hiding twice changes nothing, so that what a replay does with hidden input can be compared.
        assert_eq!(hidden.clone().hide(), hidden);
    }
}

#[test]
fn output_on_its_way_to_a_client_may_be_hidden_in_the_replay() {
    let event = |conn, bytes: &'static [u8]| {
        let bytes = Bytes::from_static(bytes);
        Event::DaemonSends(NodeId(0), Box::new(Output::ClientSend { conn, bytes }))
    };
    let recorded = event(Conn(1), b"7:hello");
    for (replayed, is_same) in [
        (event(Conn(1), b"7:hello"), true),
        (event(Conn(1), b"7:xxxxx"), true),
        (event(Conn(1), b"7:hallo"), false),
        (event(Conn(1), b"7:hell"), false),
        (event(Conn(2), b"7:hello"), false),
        (Event::DaemonIdle(NodeId(0), None), false),
    ] {
        assert_eq!(recorded.is_repeated_by(&replayed), is_same, "{replayed:?}");
    }
    assert!(!event(Conn(1), b"xx").is_repeated_by(&event(Conn(1), b"ab")));
}

#[test]
fn other_files_are_refused() {
    let refused = |bytes: &[u8]| {
        let mut reader = Reader::default();
        reader.take(bytes);
        reader.next_event().unwrap_err().to_string()
    };
    let with = |length: u32| [preamble(), length.to_le_bytes().to_vec()].concat();
    let said = [
        refused(b"#!/bin/sh"),
        refused(b"RX"),
        refused(&[&MAGIC[..], &[9, 0, 0, 0], &proto::VERSION.to_le_bytes()].concat())
            .replace(&format!(".{}", proto::VERSION), ".N"),
        refused(&with(0)),
        refused(&with(u32::MAX)),
        Event::decode(&[200]).unwrap_err().to_string(),
        Event::decode(&[5, 0, 0, 0]).unwrap_err().to_string(),
    ];
    insta::assert_snapshot!(said.join("\n"), @"
    this is no recording of `rally run --record`
    this is no recording of `rally run --record`
    the recording has version 9.N, and this program reads 2.N: use the sources of the `rally` that wrote it
    an event of 0 bytes is longer than 68157440, or empty
    an event of 4294967295 bytes is longer than 68157440, or empty
    an event does not decode
    an event does not decode
    ");
}

/// The state machines compute digests of the contents that they get.
#[test]
fn contents_of_preloaded_files_stay_in_inputs_alone() {
    let job = JobId(1);
    let bytes = Bytes::from_static(b"of a file");
    let chunk = ToDaemon::Preload {
        job,
        what: ToPreload::Chunk {
            number: 0,
            bytes: bytes.clone(),
        },
    };
    let input = Input::Message(chunk.clone());
    let read = ControllerInput::FileRead {
        job,
        result: Ok(bytes.clone()),
    };
    for event in [
        Event::DaemonGets(NodeId(3), Time::ZERO, Box::new(input)),
        Event::ControllerGets(Time::ZERO, Box::new(read)),
    ] {
        assert_eq!(event.clone().hide(), event);
    }
    let write = |bytes: &Bytes| {
        let act = FileAct::Write {
            bytes: bytes.clone(),
        };
        Event::DaemonSends(NodeId(3), Box::new(Output::Files { job, act })).hide()
    };
    let sent = Event::ControllerSends(Box::new(ControllerOutput::Daemon(NodeId(3), chunk)));
    for event in [write(&bytes), sent.hide()] {
        let encoded = event.encode().unwrap();
        let has = |text: &[u8]| encoded.windows(text.len()).any(|window| window == text);
        assert!(!has(&bytes) && has(&Sha256::digest(&bytes)), "{event:?}");
    }
    assert!(!write(&bytes).is_repeated_by(&write(&Bytes::from_static(b"of a fill"))));
}

proptest! {
    #[test]
    fn text_keeps_its_lines(text in prop::collection::vec(prop::sample::select(b"ab\nx\r".to_vec()), 0..40)) {
        let mut bytes = Bytes::from(text.clone());
        blank(&mut bytes);
        prop_assert_eq!(bytes.len(), text.len());
        for (one, other) in bytes.iter().zip(&text) {
            prop_assert_eq!(*one == b'\n', *other == b'\n');
            prop_assert!(*one == b'\n' || *one == BLANK);
        }
    }
}
