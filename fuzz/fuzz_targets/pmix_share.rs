//! What servers of different nodes say to each other: any bytes are a share, a question or a name, or are refused; and a
//! server that gets them answers whoever waits.
#![no_main]

use std::fmt::Debug;

use base::Time;
use bytes::Bytes;
use libfuzzer_sys::fuzz_target;
use pmix::{
    codec::{Format, Writer},
    frame::{self, Tag},
    handshake::{ConnectorKind, Hello},
    keys,
    message::Request,
    server::{
        AppFacts, Config, Conn, Constructed, GatherId, GatherNumber, Input, Job, NodeFacts, Output,
        PeerOwner, Question, QuestionTicket, RankFacts, Server, Share, Tools,
    },
    value::{Info, Key, Nspace, PmixRank, Proc, Value},
};

const UID: u32 = 1000;
const CONN: Conn = Conn(0);

fuzz_target!(|input: &[u8]| {
    let Some((choice, bytes)) = input.split_first() else {
        return;
    };
    match choice % 5 {
        0 => check(bytes, Share::decode, Share::encode),
        1 => {
            check(bytes, Question::decode, Question::encode);
            check(bytes, Constructed::decode, Constructed::encode);
        }
        2 => {
            let mut server = server();
            server.handle(
                Time::ZERO,
                Input::Question {
                    node: 1,
                    ticket: QuestionTicket(0),
                    question: bytes,
                },
            );
            // It may wait for the process that is asked about.
            server.handle(Time::ZERO, Input::Deregister(name()));
            let answers = drain(&mut server)
                .filter(|output| matches!(output, Output::QuestionAnswered { .. }));
            assert_eq!(answers.count(), 1, "one answer");
        }
        3 => {
            let mut server = server();
            server.handle(
                Time::ZERO,
                Input::Awaited {
                    id: GatherId(Bytes::copy_from_slice(bytes)),
                    number: GatherNumber(0),
                },
            );
            assert!(drain(&mut server).count() <= 1, "one answer, or none");
        }
        _ => gathered(bytes),
    }
});

/// What was read is written in a form that reads as the same.
fn check<T: Debug>(
    bytes: &[u8],
    read: impl Fn(&[u8]) -> Result<T, pmix::Error>,
    write: impl Fn(&T) -> Bytes,
) {
    if let Ok(value) = read(bytes) {
        // Numbers that travel as text lose digits the first time.
        let once = write(&value);
        let again = read(&once).expect("what was written can be read");
        assert_eq!(write(&again), once, "what was written is read as the same");
    }
}

/// A rank here waits in a fence with data or in a construction, and the other node brings this.
fn gathered(bytes: &[u8]) {
    let info = |key: &std::ffi::CStr| Info::new(Key::new(key).unwrap(), Value::Bool(true));
    let procs = vec![Proc::all(name())];
    let requests = [
        Request::Fence {
            procs: procs.clone(),
            infos: vec![info(keys::COLLECT_DATA)],
        },
        Request::GroupConstruct {
            group: Some(c"group".to_owned()),
            procs: procs.clone(),
            infos: vec![info(keys::GROUP_ASSIGN_CONTEXT_ID)],
        },
        Request::Connect {
            procs,
            infos: Vec::new(),
            data: Vec::new(),
        },
    ];
    for request in requests {
        let mut server = server();
        let mut writer = Writer::appending_to(Format::V4, frame::start(0));
        request.encode(&mut writer);
        let message = frame::finish(writer.into_bytes(), Tag::Request(101));
        server.handle(
            Time::ZERO,
            Input::Bytes {
                conn: CONN,
                bytes: &message,
            },
        );
        let sent = drain(&mut server).find_map(|output| match output {
            Output::Gather { ticket, share, .. } => Some((ticket, share)),
            _ => None,
        });
        let (ticket, share) = sent.expect("it leaves the node");
        let shares = [(0, share), (1, Bytes::copy_from_slice(bytes))];
        server.handle(
            Time::ZERO,
            Input::Gathered {
                ticket,
                result: Ok(&shares),
            },
        );
        let answers = drain(&mut server).filter(|output| matches!(output, Output::Send { .. }));
        assert_eq!(answers.count(), 1, "one answer");
    }
}

fn drain(server: &mut Server) -> impl Iterator<Item = Output> {
    std::iter::from_fn(|| server.poll())
}

fn name() -> Nspace {
    Nspace::from_text("a").unwrap()
}

/// A server of node 0, where rank 0 of two is connected.
fn server() -> Server {
    let mut server = Server::new(Config {
        identity: Proc {
            nspace: Nspace::from_text("server").unwrap(),
            rank: PmixRank(0),
        },
        uid: UID,
        gid: UID,
        port: 5000,
        context: (1, 2),
        tools: Tools::Refused,
    });
    let node = |id: u32| NodeFacts {
        name: c"node".to_owned(),
        id,
        procs: 1,
        oversubscribed: false,
    };
    let rank = |rank: u32| RankFacts {
        app_rank: rank,
        node: rank,
        ..RankFacts::default()
    };
    let job = Job {
        nspace: name(),
        session: 1,
        universe: 2,
        offset: 0,
        apps: vec![AppFacts::default()],
        nodes: vec![node(0), node(1)],
        ranks: vec![rank(0), rank(1)],
        here: 0,
        parent: None,
        forward: None,
        keep: None,
        map_by: None,
        rank_by: None,
        bind_to: None,
        session_dir: None,
        job_dir: None,
        stop: None,
        extra: Vec::new(),
    };
    let hello = Hello {
        security: c"native".to_owned(),
        credential: Bytes::from_static(&[0; 8]),
        kind: ConnectorKind::Client,
        owner: None,
        proc: Some(Proc {
            nspace: name(),
            rank: PmixRank(0),
        }),
        version: c"5.0.11".to_owned(),
        codec: c"v41".to_owned(),
        buffer: 1,
        store: c"hash".to_owned(),
        rest: Bytes::new(),
    };
    server.handle(Time::ZERO, Input::Register(Box::new(job)));
    let owner = PeerOwner::Uid(UID);
    server.handle(Time::ZERO, Input::Accepted { conn: CONN, owner });
    let bytes = frame::handshake(&hello.encode());
    server.handle(
        Time::ZERO,
        Input::Bytes {
            conn: CONN,
            bytes: &bytes,
        },
    );
    drain(&mut server).for_each(drop);
    server
}
