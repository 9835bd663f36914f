//! The connection of a launcher to the tool that has started it: docs/formats/indirect-launch.md, sections 4 to 6.

use bytes::Bytes;
use pmix::{
    client::{Done, Input, Lost, ProgramEvent, Terms, WELCOME_WAIT},
    codec::{Format, Reader},
    frame::{self, Framer, Tag},
    handshake::{ConnectorKind, Hello, Welcome},
    keys,
    message::{Answer, Push, Request, Shape},
    tool::{Event, Follow, LogTo, Stage, Tool, launcher_name, launcher_variables, tool_name},
    value::{Info, Key, Kval, PmixRank, Proc, Range, Status, Value},
};

use proptest::prelude::*;

use crate::host::{NOW, OWNER, message, proc};

/// Tags of requests of a tool, which are those of libpmix 6.1.
const FIRST_TAG: u32 = 2_147_483_699;

fn terms() -> Terms {
    Terms {
        uri: "vm:3462.0;tcp4://127.0.0.1:48207".parse().unwrap(),
        launcher: Some(launcher()),
        directives: vec![Info::new(
            Key::new(keys::STOP_IN_INIT).unwrap(),
            Value::Bool(true),
        )],
        owner: OWNER,
    }
}

fn launcher() -> Proc {
    launcher_name(&tool_name("vm.cluster.example", 3462), 1)
}

fn hello() -> Hello {
    Hello {
        security: c"native".to_owned(),
        credential: Bytes::from_static(&[0; 8]),
        kind: ConnectorKind::NamedTool,
        owner: Some(OWNER),
        proc: Some(launcher()),
        version: c"5.0.11rc1".to_owned(),
        codec: c"v41".to_owned(),
        buffer: 1,
        store: c"hash".to_owned(),
        rest: Bytes::new(),
    }
}

/// A tool, and the launcher's view of the connection.
struct Link {
    tool: Tool,
    events: Vec<Event>,
    sent: Vec<u8>,
    framer: Framer,
    closed: bool,
}

impl Link {
    fn new() -> Self {
        let mut link = Self {
            tool: Tool::accept(NOW, terms()),
            events: Vec::new(),
            sent: Vec::new(),
            framer: Framer::default(),
            closed: false,
        };
        link.drain();
        link
    }

    fn hear(&mut self, bytes: &[u8]) {
        self.tool.handle(NOW, Input::Bytes(bytes));
        self.drain();
    }

    fn drain(&mut self) {
        while let Some(output) = self.tool.poll() {
            match output {
                pmix::client::Output::Send(bytes) => self.sent.extend(bytes),
                pmix::client::Output::Event(event) => self.events.push(event),
                pmix::client::Output::Close => self.closed = true,
                pmix::client::Output::Connect(_) => panic!("the launcher connects"),
            }
        }
    }

    /// Returns what the tool has sent since the last call, as messages.
    fn frames(&mut self) -> Vec<(u32, Bytes)> {
        self.framer.push(&std::mem::take(&mut self.sent));
        let mut frames = Vec::new();
        while let Some(frame) = self.framer.next_frame().unwrap() {
            frames.push((frame.tag.number(), frame.payload));
        }
        frames
    }

    fn ask(&mut self, tag: u32, request: &Request) {
        let bytes = message(Format::V4, Tag::Request(tag), |writer| {
            request.encode(writer);
        });
        self.hear(&bytes);
    }

    fn answer(&mut self, tag: u32, answer: &Answer) {
        let bytes = message(Format::V4, Tag::Request(tag), |writer| {
            answer.encode(writer);
        });
        self.hear(&bytes);
    }

    fn news(&mut self) -> Vec<Event> {
        std::mem::take(&mut self.events)
    }

    /// Connects, in pieces, and gets the directives.
    fn connect(&mut self) {
        let handshake = frame::handshake(&hello().encode());
        let (first, rest) = handshake.split_at(20);
        self.hear(first);
        assert!(self.sent.is_empty());
        self.hear(rest);
        let welcome = Welcome::decode(ConnectorKind::NamedTool, &self.sent).unwrap();
        let expected = Welcome::Tool {
            assigned: None,
            server: proc("vm:3462", 0),
            security: Status::SUCCESS,
        };
        assert_eq!(welcome, Some((expected, self.sent.len())));
        self.sent.clear();
        assert_eq!(self.events, []);
        self.ask(101, &Request::JobInfo);
        let ready = ProgramEvent::Ready {
            me: proc("vm:3462", 0),
            server: launcher(),
        };
        assert_eq!(self.news(), [Event::Program(ready)]);
    }
}

#[test]
fn a_launcher_gets_its_directives_and_is_released() {
    let mut link = Link::new();
    link.connect();
    let [(101, payload)] = &link.frames()[..] else {
        panic!("no answer");
    };
    let answer = Answer::decode(Format::V4, Shape::JobInfo, payload).unwrap();
    let Answer::JobInfo { nspace, facts } = answer else {
        panic!("{answer:?}");
    };
    assert_eq!(nspace, launcher().nspace);
    let fact = |key: &std::ffi::CStr| {
        let found = facts.iter().find(|fact: &&Kval| fact.key == *key);
        found.map(|fact| fact.value.clone()).unwrap()
    };
    assert_eq!(
        fact(keys::LAUNCH_DIRECTIVES),
        Value::infos(terms().directives)
    );
    let tool = Value::Proc(Box::new(proc("vm:3462", 0)));
    assert_eq!(fact(keys::PARENT_ID), tool);
    let own = Proc {
        nspace: launcher().nspace,
        rank: PmixRank::UNDEF,
    };
    assert_eq!(fact(keys::JOB_ID), Value::Proc(Box::new(own)));

    // Requests of the tool have tags that no request of the launcher has.
    link.tool.follow(Follow::All);
    let released = link.tool.release(vec![launcher()]);
    link.drain();
    let frames = link.frames();
    let tags: Vec<u32> = frames.iter().map(|(tag, _)| *tag).collect();
    assert_eq!(tags, [FIRST_TAG, FIRST_TAG + 1, FIRST_TAG + 2]);
    let Ok(Request::Notify {
        status,
        range,
        infos,
    }) = Request::decode(Format::V4, &frames[2].1)
    else {
        panic!("no release");
    };
    assert_eq!((status, range), (Status::DEBUGGER_RELEASE, Range::CUSTOM));
    let custom = infos
        .iter()
        .find(|info| info.key == *keys::EVENT_CUSTOM_RANGE);
    let named = custom.and_then(|info| info.value.as_procs()).unwrap();
    assert_eq!(named, [&launcher()]);
    for tag in tags {
        link.answer(tag, &Answer::Status(Status::SUCCESS));
    }
    let done = Event::Program(ProgramEvent::Done {
        ticket: released,
        result: Ok(Done::Nothing),
    });
    assert!(link.news().contains(&done));

    // The launcher reports its job.
    let push = Push::Event {
        status: Status::READY_FOR_DEBUG,
        source: launcher(),
        infos: vec![Info::new(
            Key::new(keys::NSPACE).unwrap(),
            Value::text("job"),
        )],
        range: Some(Range::CUSTOM),
    };
    link.hear(&message(Format::V4, push.tag(), |writer| {
        push.encode(writer);
    }));
    let ready = Event::JobStage {
        nspace: proc("job", 0).nspace,
        stage: Stage::ReadyForDebug,
    };
    assert_eq!(link.news(), [ready]);
    link.tool.handle(NOW, Input::Closed);
    link.drain();
    let lost = ProgramEvent::Lost { why: Lost::Closed };
    assert_eq!(link.news(), [Event::Program(lost)]);
}

/// A launcher may use the tool as a server. Both sides count tags, and neither mistakes the other's request for an answer.
#[test]
fn requests_of_a_launcher_are_answered() {
    let mut link = Link::new();
    link.connect();
    link.frames();
    link.tool.follow(Follow::All);
    link.drain();
    link.frames();
    let notify = Request::Notify {
        status: Status::LAUNCHER_READY,
        range: Range::RM,
        infos: Vec::new(),
    };
    for (tag, request, expected) in [
        (
            102,
            Request::Query {
                queries: Vec::new(),
            },
            Some(Status::NOT_SUPPORTED),
        ),
        (103, Request::Deregister { codes: Vec::new() }, None),
        (104, notify, Some(Status::SUCCESS)),
        (0x4000_0001, Request::Finalize, Some(Status::SUCCESS)),
    ] {
        link.ask(tag, &request);
        let answers: Vec<(u32, Status)> = link
            .frames()
            .iter()
            .map(|(tag, payload)| (*tag, Reader::new(Format::V4, payload).item().unwrap()))
            .collect();
        let expected: Vec<_> = expected.map(|status| (tag, status)).into_iter().collect();
        assert_eq!(answers, expected, "{request:?}");
    }
    assert_eq!(link.news(), []);
}

#[test]
fn nobody_else_is_welcome() {
    let other = Hello {
        proc: Some(proc("vm:3462:2", 0)),
        ..hello()
    };
    let client = Hello {
        kind: ConnectorKind::Client,
        owner: None,
        ..hello()
    };
    let unknown = Hello {
        codec: c"v99".to_owned(),
        ..hello()
    };
    for hello in [other, client, unknown] {
        let mut link = Link::new();
        link.hear(&frame::handshake(&hello.encode()));
        let refused = Welcome::Refused(Status::NOT_SUPPORTED).encode();
        assert_eq!(link.sent, refused, "{hello:?}");
        let [
            Event::Program(ProgramEvent::Lost {
                why: Lost::Broken(_),
            }),
        ] = &link.events[..]
        else {
            panic!("{:?}", link.events);
        };
        assert!(link.closed);
    }
    // Who says nothing, or does not ask for its directives, is not waited for.
    for speaks in [false, true] {
        let mut link = Link::new();
        if speaks {
            link.hear(&frame::handshake(&hello().encode()));
        }
        let due = link.tool.deadline().unwrap();
        assert_eq!(due, NOW + WELCOME_WAIT);
        link.tool.handle(due, Input::Tick);
        link.drain();
        let lost = ProgramEvent::Lost { why: Lost::Silent };
        assert_eq!(link.news(), [Event::Program(lost)]);
    }
}

#[test]
fn variables_of_a_launcher() {
    let uri = terms().uri;
    let variables =
        launcher_variables(&uri, &launcher(), 9).map(|(name, value)| format!("{name}={value}"));
    insta::assert_snapshot!(variables.join("\n"), @r"
    PMIX_LAUNCHER_RNDZ_URI=vm:3462.0;tcp4://127.0.0.1:48207
    PMIX_SERVER_NSPACE=vm:3462:1
    PMIX_SERVER_RANK=0
    PMIX_NAMESPACE=vm:3462:1
    PMIX_RANK=0
    PMIX_KEEPALIVE_PIPE=9
    PMIX_VERSION=5.0.11
    PMIX_SECURITY_MODE=native
    PMIX_BFROP_BUFFER_TYPE=PMIX_BFROP_BUFFER_NON_DESC
    ");
}

#[test]
fn a_tool_lets_its_launcher_show_a_text() {
    let mut link = Link::new();
    link.connect();
    link.frames();
    link.tool.log(LogTo::Stderr, "ready");
    link.drain();
    let [(_, payload)] = &link.frames()[..] else {
        panic!("one request");
    };
    let Request::Log { data, .. } = Request::decode(Format::V4, payload).unwrap() else {
        panic!("no text");
    };
    let text = Info::new(Key::new(keys::LOG_STDERR).unwrap(), Value::text("ready"));
    assert_eq!(data, [text]);
}

proptest! {
    #[test]
    fn a_launcher_may_send_anything(
        is_known: bool,
        parts in prop::collection::vec(prop::collection::vec(any::<u8>(), 0..64), 0..12),
        tags in prop::collection::vec(0..104_u32, 0..12),
    ) {
        let mut link = Link::new();
        if is_known {
            link.connect();
            link.tool.follow(Follow::All);
        }
        for (bytes, tag) in parts.iter().zip(tags) {
            let tag = match tag {
                0 => Tag::Event,
                2 => Tag::Output,
                1..100 => Tag::Request(FIRST_TAG),
                tag => Tag::Request(tag),
            };
            link.hear(&message(Format::V4, tag, |writer| writer.raw(bytes)));
        }
        for bytes in &parts {
            link.hear(bytes);
        }
        link.tool.handle(NOW, Input::Closed);
        link.drain();
        let is_over = |event: &Event| matches!(event, Event::Program(ProgramEvent::Lost { .. }));
        prop_assert_eq!(link.events.iter().filter(|event| is_over(event)).count(), 1);
    }
}
