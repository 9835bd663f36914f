//! The state table of a connection: every input in every state.

use std::time::Duration;

use pmix::{
    Error,
    client::{
        Client, Config, Connector, Event, FINALIZE_WAIT, Input, Lost, MAX_OUTSTANDING, Security,
        Ticket, WELCOME_WAIT,
    },
    codec::Format,
    frame::Tag,
    handshake::{ConnectorKind, Hello, Owner, Welcome},
    message::{Answer, GroupAnswer, GroupForm, Push, Request},
    value::{Info, Key, Proc, Range, Status, Value},
};

use crate::host::{Host, NOW, OWNER, client, config, message, proc};

const COMMIT: Request = Request::Commit {
    buckets: Vec::new(),
};

fn ready() -> Host<Client> {
    let mut host = client();
    host.welcome();
    assert!(matches!(host.news()[..], [Event::Ready { .. }]));
    host
}

fn answered(ticket: Ticket, status: Status) -> Event {
    let answer = Answer::Status(status);
    Event::Answer { ticket, answer }
}

fn lost(why: Lost) -> Event {
    Event::Lost { why }
}

fn event() -> Push {
    Push::Event {
        status: Status(-1000),
        source: proc("other", 3),
        infos: Vec::new(),
        range: Some(Range::GLOBAL),
    }
}

#[test]
fn connecting() {
    let mut host = client();
    assert_eq!((host.connects, host.closes), (1, 0));
    // Bytes that arrive before the connection is open are ignored.
    host.bytes(&[0; 600]);
    let ticket = host.machine.request(&COMMIT);
    host.handle(Input::Tick);
    assert_eq!(host.news(), [answered(ticket, Status::INIT)]);
    assert_eq!(host.machine.deadline(), Some(NOW + WELCOME_WAIT));
    assert!(host.hello.is_none() && host.frames.is_empty());

    host.handle(Input::Closed);
    assert_eq!(host.news(), [lost(Lost::Closed)]);
    assert_eq!((host.closes, host.machine.deadline()), (0, None));
}

#[test]
fn no_welcome_in_time() {
    for opened in [false, true] {
        let mut host = client();
        if opened {
            host.handle(Input::Opened);
            host.bytes(&[0; 7]);
        }
        host.now = NOW + (WELCOME_WAIT - Duration::from_nanos(1));
        host.handle(Input::Tick);
        assert_eq!(host.news(), []);
        host.now = host.machine.deadline().unwrap();
        host.handle(Input::Tick);
        assert_eq!(host.news(), [lost(Lost::Silent)]);
        assert_eq!(host.closes, 1);
    }
}

#[test]
fn greeting() {
    let mut host = client();
    host.handle(Input::Opened);
    let hello = Hello::decode(&host.hello.clone().unwrap().into()).unwrap();
    assert_eq!(hello.kind, ConnectorKind::Client);
    assert_eq!(hello.proc, Some(proc("job", 1)));
    assert_eq!((&*hello.codec, &*hello.store), (c"v41", c"hash"));
    let credential = [1000_u32.to_ne_bytes(), 100_u32.to_ne_bytes()].concat();
    assert_eq!(hello.credential, credential);

    host.handle(Input::Opened);
    let ticket = host.machine.request(&COMMIT);
    let finalize = host.machine.finalize(NOW);
    host.drain();
    let expected = [
        answered(ticket, Status::INIT),
        answered(finalize, Status::INIT),
    ];
    assert_eq!(host.news(), expected);
    host.bytes(&[0, 0, 0, 0, 0, 0, 0]);
    assert_eq!(host.news(), []);
    host.bytes(&[9]);
    let me = proc("job", 1);
    let server = proc("daemon", 0);
    assert_eq!(host.news(), [Event::Ready { me, server }]);
    assert!(host.frames.is_empty());

    // The headers contain the index that the server has assigned.
    host.machine.request(&COMMIT);
    host.machine.heartbeat();
    host.drain();
    assert_eq!((host.frames[0].sender, host.frames[1].sender), (9, 9));
    assert_eq!(host.frames[1].tag, Tag::Heartbeat);
}

#[test]
fn what_comes_with_the_welcome_is_not_lost() {
    let mut host = client();
    host.handle(Input::Opened);
    let mut bytes = vec![0; 8];
    bytes.extend(message(Format::V4, Tag::Event, |writer| {
        event().encode(writer);
    }));
    host.bytes(&bytes);
    assert_eq!(host.news()[1..], [Event::Push(event())]);
}

#[test]
fn a_refusal_is_the_end() {
    let mut host = client();
    host.handle(Input::Opened);
    let status = Status::INVALID_CRED;
    host.bytes(&Welcome::Client { status, index: 0 }.encode());
    assert_eq!(host.news(), [lost(Lost::Refused(status))]);
    assert_eq!(host.closes, 1);

    let mut host = client();
    host.handle(Input::Opened);
    host.handle(Input::Closed);
    assert_eq!(host.news(), [lost(Lost::Closed)]);
}

fn tool_config(connector: Connector) -> Config {
    Config {
        connector,
        security: Security::None,
        ..config()
    }
    .describe(77, "watch --all")
}

#[test]
fn every_kind_of_tool_is_welcomed() {
    let named = proc("mine", 2);
    for (connector, kind, number) in [
        (Connector::Tool, ConnectorKind::Tool, 3),
        (
            Connector::NamedTool(named.clone()),
            ConnectorKind::NamedTool,
            4,
        ),
        (
            Connector::ClientTool(named.clone()),
            ConnectorKind::ClientTool,
            5,
        ),
        (Connector::Launcher, ConnectorKind::Launcher, 6),
        (
            Connector::NamedLauncher(named.clone()),
            ConnectorKind::NamedLauncher,
            7,
        ),
        (
            Connector::ClientLauncher(named.clone()),
            ConnectorKind::ClientLauncher,
            8,
        ),
    ] {
        let wants_name = kind.wants_name();
        let config = tool_config(connector);
        let mut host = Host::new(Client::new(NOW, config), Format::V4);
        host.handle(Input::Opened);
        let bytes = host.hello.clone().unwrap();
        // The string `none`, an empty credential, then the kind of connector.
        assert_eq!(bytes[9], number);
        let hello = Hello::decode(&bytes.into()).unwrap();
        assert_eq!((hello.kind, hello.owner), (kind, Some(OWNER)));
        let infos = hello.infos();
        let keys: Vec<_> = infos.iter().map(|info| info.key.to_string()).collect();
        assert_eq!(
            keys.join(" "),
            "pmix.ppid pmix.ruid pmix.euid pmix.rgid pmix.egid pmix.cmd.line"
        );

        let assigned = wants_name.then(|| proc("given", 5));
        let me = assigned.clone().unwrap_or_else(|| named.clone());
        let server = proc("daemon-of-another-name", 0);
        let welcome = Welcome::Tool {
            assigned,
            server: server.clone(),
            security: Status::SUCCESS,
        };
        host.bytes(&welcome.encode());
        assert_eq!(host.news(), [Event::Ready { me, server }]);
    }
}

#[test]
fn a_tool_is_refused_in_three_ways() {
    let server = proc("daemon", 0);
    let security = Status::READY_FOR_HANDSHAKE;
    let dialogue = Welcome::Tool {
        assigned: Some(proc("given", 0)),
        server,
        security,
    };
    let status = Status::NO_PERMISSIONS;
    let mut endless = vec![0; 4];
    endless.extend([b'x'; 600]);
    for (bytes, refused) in [
        (dialogue.encode(), Some(security)),
        (Welcome::Refused(status).encode(), Some(status)),
        (endless, None),
    ] {
        let config = tool_config(Connector::Tool);
        let mut host = Host::new(Client::new(NOW, config), Format::V4);
        host.handle(Input::Opened);
        host.bytes(&bytes);
        match (&host.news()[..], refused) {
            ([Event::Lost { why }], Some(status)) => assert_eq!(*why, Lost::Refused(status)),
            ([Event::Lost { why }], None) => {
                assert!(matches!(why, Lost::Broken(Error::Malformed { .. })));
            }
            other => panic!("{other:?}"),
        }
        assert_eq!(host.closes, 1);
    }
}

#[test]
fn answers_come_in_any_order() {
    let mut host = ready();
    let tickets = [0, 1, 2].map(|_| host.machine.request(&COMMIT));
    host.drain();
    let tags: Vec<_> = host.asked().iter().map(|(tag, _)| *tag).collect();
    assert_eq!(tags, [101, 102, 103]);
    for place in [2, 0, 1] {
        host.answer(tags[place], &Answer::Status(Status::EXISTS));
        assert_eq!(host.news(), [answered(tickets[place], Status::EXISTS)]);
    }
}

#[test]
fn what_means_nothing_is_left_out_and_the_next_is_as_good() {
    let mut host = ready();
    let good = message(Format::V4, Tag::Event, |writer| event().encode(writer));
    let status = Answer::Status(Status::SUCCESS);
    let twice = {
        let ticket = host.machine.request(&COMMIT);
        host.drain();
        let (tag, _) = host.asked_one();
        host.answer(tag, &status);
        assert_eq!(host.news(), [answered(ticket, Status::SUCCESS)]);
        tag
    };
    for (tag, payload) in [
        (Tag::Request(twice), &[2, 0][..]),
        (Tag::Request(0xffff_fff0), &[2, 0]),
        (Tag::Reserved(50), b"anything"),
        (Tag::Reserved(u32::MAX), b""),
        (Tag::Heartbeat, b""),
        (Tag::Event, b""),
        (Tag::Event, &[2, 1, 2, 0]),
        (Tag::Output, &[0xff; 9]),
    ] {
        let mut bytes = message(Format::V4, tag, |writer| writer.raw(payload));
        bytes.extend_from_slice(&good);
        host.bytes(&bytes);
        let news = host.news();
        let [Event::Ignored { tag: number, .. }, Event::Push(push)] = &news[..] else {
            panic!("{tag:?}: {news:?}");
        };
        assert_eq!((*number, push), (tag.number(), &event()));
    }
    assert_eq!(host.closes, 0);
}

#[test]
fn an_answer_that_cannot_be_read_fails_its_request_alone() {
    let mut host = ready();
    for (payload, status, ignored) in [
        (&b""[..], Status::UNREACH, 0),
        (&[0xff], Status::UNPACK_FAILURE, 1),
        (&[4, 0, 0], Status::UNPACK_FAILURE, 1),
    ] {
        let ticket = host.machine.request(&COMMIT);
        let other = host.machine.request(&COMMIT);
        host.drain();
        let asked = host.asked();
        host.bytes(&message(Format::V4, Tag::Request(asked[0].0), |writer| {
            writer.raw(payload);
        }));
        let news = host.news();
        assert_eq!(news.len(), 1 + ignored);
        assert_eq!(news[ignored], answered(ticket, status));
        host.answer(asked[1].0, &Answer::Status(Status::SUCCESS));
        assert_eq!(host.news(), [answered(other, Status::SUCCESS)]);
    }
}

#[test]
fn a_frame_that_is_too_long_is_the_end() {
    let mut host = ready();
    let ticket = host.machine.request(&COMMIT);
    let mut header = message(Format::V4, Tag::Event, |_| {});
    header[8] = 0x7f;
    host.bytes(&header);
    let news = host.news();
    assert_eq!(news[0], answered(ticket, Status::UNREACH));
    assert!(matches!(
        news[1],
        Event::Lost {
            why: Lost::Broken(Error::Limit { .. })
        }
    ));
    assert_eq!((news.len(), host.closes), (2, 1));
    // No input leaves the state Ended.
    host.handle(Input::Opened);
    host.bytes(&header);
    host.handle(Input::Closed);
    host.handle(Input::Tick);
    assert_eq!(host.news(), []);
    let ticket = host.machine.request(&COMMIT);
    let finalize = host.machine.finalize(NOW);
    host.machine.heartbeat();
    host.machine.close();
    host.drain();
    let expected = [
        answered(ticket, Status::UNREACH),
        answered(finalize, Status::UNREACH),
    ];
    assert_eq!(host.news(), expected);
    assert_eq!((host.frames.len(), host.closes), (1, 1));
}

#[test]
fn every_request_is_answered_before_the_end() {
    for end in [Input::Closed, Input::Tick] {
        let mut host = ready();
        let tickets: Vec<_> = (0..5).map(|_| host.machine.request(&COMMIT)).collect();
        host.drain();
        match end {
            Input::Closed => host.handle(end),
            _ => {
                host.machine.close();
                host.drain();
            }
        }
        let why = if end == Input::Closed {
            Lost::Closed
        } else {
            Lost::Left
        };
        let mut expected: Vec<_> = tickets
            .iter()
            .map(|ticket| answered(*ticket, Status::UNREACH))
            .collect();
        expected.push(lost(why));
        assert_eq!(host.news(), expected);
        assert_eq!(host.closes, usize::from(end == Input::Tick));
    }
}

#[test]
fn a_finalize_is_answered_and_then_all_is_over() {
    let mut host = ready();
    let other = host.machine.request(&COMMIT);
    let finalize = host.machine.finalize(NOW);
    let late = host.machine.request(&COMMIT);
    let again = host.machine.finalize(NOW);
    host.drain();
    let expected = [answered(late, Status::INIT), answered(again, Status::INIT)];
    assert_eq!(host.news(), expected);
    let asked = host.asked();
    assert_eq!(asked[1].1, Request::Finalize);
    // Until the answer, the client still gets pushes.
    host.push(&event());
    assert_eq!(host.news(), [Event::Push(event())]);
    host.answer(asked[1].0, &Answer::Status(Status::SUCCESS));
    let expected = [
        answered(finalize, Status::SUCCESS),
        answered(other, Status::UNREACH),
        Event::Finalized,
    ];
    assert_eq!(host.news(), expected);
    assert_eq!((host.closes, host.machine.deadline()), (1, None));
    host.handle(Input::Closed);
    assert_eq!(host.news(), []);
}

#[test]
fn a_finalize_waits_for_its_time_or_the_close() {
    let mut host = ready();
    let finalize = host.machine.finalize(NOW);
    host.drain();
    assert_eq!(host.machine.deadline(), Some(NOW + FINALIZE_WAIT));
    host.now = NOW + FINALIZE_WAIT;
    host.handle(Input::Tick);
    let expected = [answered(finalize, Status::UNREACH), lost(Lost::Silent)];
    assert_eq!(host.news(), expected);

    let mut host = ready();
    let finalize = host.machine.finalize(NOW);
    host.handle(Input::Closed);
    let expected = [answered(finalize, Status::UNREACH), lost(Lost::Closed)];
    assert_eq!(host.news(), expected);
}

#[test]
fn a_limit_answers_its_request() {
    let mut host = ready();
    let second = Duration::from_secs(1);
    let [early, late, free] = [0, 1, 2].map(|_| host.machine.request(&COMMIT));
    host.machine.limit(late, NOW + second * 3);
    host.machine.limit(early, NOW + second * 9);
    host.machine.limit(early, NOW + second);
    host.drain();
    let tags: Vec<_> = host.asked().iter().map(|(tag, _)| *tag).collect();
    assert_eq!(host.machine.deadline(), Some(NOW + second));
    host.now = NOW + second * 2;
    host.handle(Input::Tick);
    assert_eq!(host.news(), [answered(early, Status::TIMEOUT)]);
    assert_eq!(host.machine.deadline(), Some(NOW + second * 3));
    // One answer comes too late, the other in time.
    let status = Answer::Status(Status::SUCCESS);
    host.answer(tags[0], &status);
    assert!(matches!(host.news()[..], [Event::Ignored { tag, .. }] if tag == tags[0]));
    host.answer(tags[1], &status);
    assert_eq!(host.news(), [answered(late, Status::SUCCESS)]);
    assert_eq!(host.machine.deadline(), None);
    host.machine.limit(late, NOW);
    host.handle(Input::Tick);
    assert_eq!(host.news(), []);
    host.answer(tags[2], &status);
    assert_eq!(host.news(), [answered(free, Status::SUCCESS)]);
}

#[test]
fn what_has_no_answer_is_answered_here() {
    let mut host = ready();
    let codes = vec![Status::DEBUGGER_RELEASE];
    let ticket = host.machine.request(&Request::Deregister { codes });
    host.drain();
    assert_eq!(host.news(), [answered(ticket, Status::SUCCESS)]);
    assert_eq!(host.asked().len(), 1);
    let ticket = host.machine.request(&Request::Finalize);
    host.drain();
    assert_eq!(host.news(), [answered(ticket, Status::BAD_PARAM)]);
    assert_eq!(host.asked(), []);
}

#[test]
fn no_more_requests_than_the_bound() {
    let mut host = ready();
    for _ in 0..MAX_OUTSTANDING {
        host.machine.request(&COMMIT);
    }
    host.drain();
    assert_eq!(host.news(), []);
    let over = host.machine.request(&COMMIT);
    host.drain();
    assert_eq!(host.news(), [answered(over, Status::RESOURCE_BUSY)]);
    assert_eq!(host.asked().len(), MAX_OUTSTANDING);
    host.answer(101, &Answer::Status(Status::SUCCESS));
    host.machine.request(&COMMIT);
    host.drain();
    assert_eq!(host.asked().len(), 1);
}

#[test]
fn no_request_longer_than_a_message() {
    let mut host = ready();
    let value = Value::ByteObject(vec![0; 257 << 20].into());
    let infos = vec![Info::new(Key::new(c"k").unwrap(), value)];
    let ticket = host.machine.request(&Request::Publish { uid: 0, infos });
    host.drain();
    assert_eq!(host.news(), [answered(ticket, Status::OUT_OF_RESOURCE)]);
    assert!(host.frames.is_empty());
}

/// libpmix servers answer in the layout of their own version, other servers in that of the client's.
#[test]
fn the_answer_to_a_group_is_read_in_any_form() {
    for said in [None, Some([4, 2, 2]), Some([5, 0, 11]), Some([6, 1, 0])] {
        for form in [GroupForm::ContextOnly, GroupForm::Members, GroupForm::Infos] {
            let config = Config {
                server_version: said,
                ..config()
            };
            let mut host = Host::new(Client::new(NOW, config), Format::V4);
            host.welcome();
            host.news();
            let ticket = host.machine.request(&Request::GroupConstruct {
                group: Some(c"g".into()),
                procs: vec![Proc::all(proc("job", 0).nspace)],
                infos: Vec::new(),
            });
            host.drain();
            let (tag, _) = host.asked_one();
            let members = match form {
                GroupForm::ContextOnly => Vec::new(),
                _ => vec![proc("job", 0), proc("job", 1)],
            };
            let answer = Answer::Group(GroupAnswer {
                form,
                status: Status::SUCCESS,
                members,
                context: Some(u64::from(u32::MAX)),
                infos: Vec::new(),
                buffers: Vec::new(),
            });
            host.answer(tag, &answer);
            assert_eq!(host.news(), [Event::Answer { ticket, answer }], "{said:?}");
        }
    }
}

#[test]
fn the_environment_says_how_to_connect() {
    let read = |variables: &[(&str, &str)]| {
        let get = |name: &str| {
            let found = variables.iter().rev().find(|(other, _)| *other == name);
            found.map(|(_, value)| (*value).to_owned())
        };
        let owner = Owner { uid: 1, gid: 2 };
        Config::from_environment(get, owner).map_err(|error| error.to_string())
    };
    let uri = "daemon.0;tcp4://127.0.0.1:41";
    let base = [
        ("PMIX_NAMESPACE", "job"),
        ("PMIX_RANK", "3"),
        ("PMIX_SERVER_URI3", "daemon.0;tcp4://127.0.0.1:3"),
        ("PMIX_SERVER_URI21", "daemon.0;tcp4://127.0.0.1:21"),
        ("PMIX_SERVER_URI4", "daemon.0;tcp4://127.0.0.1:4"),
        ("PMIX_SERVER_URI61", "daemon.0;tcp4://127.0.0.1:61"),
        ("PMIX_SERVER_URI41", uri),
        ("PMIX_SECURITY_MODE", "munge,native"),
        ("PMIX_VERSION", "5.0.11rc1"),
        ("PMIX_HOSTNAME", "n1"),
    ];
    let config = read(&base).unwrap();
    assert_eq!(config.server.to_string(), uri);
    assert_eq!(config.connector, Connector::Client(proc("job", 3)));
    assert_eq!(config.server_version, Some([5, 0, 11]));
    assert_eq!(config.hostname.as_deref(), Some(c"n1"));
    assert_eq!(config.security, Security::Native);
    assert_eq!(config.format(), Format::V4);

    let without = |names: &[&str]| {
        let left = base.iter().filter(|(name, _)| !names.contains(name));
        left.copied().collect::<Vec<_>>()
    };
    let old = read(&without(&["PMIX_SERVER_URI41"])).unwrap();
    assert_eq!((old.server.address().port(), old.format()), (4, Format::V4));
    let older = read(&without(&["PMIX_SERVER_URI41", "PMIX_SERVER_URI4"])).unwrap();
    assert_eq!(
        (older.server.address().port(), older.format()),
        (3, Format::V3)
    );
    let described = read(
        &[
            &base[..],
            &[("PMIX_BFROP_BUFFER_TYPE", "PMIX_BFROP_BUFFER_FULLY_DESC")],
        ]
        .concat(),
    );
    assert_eq!(described.unwrap().format().buffer_number(), 2);
    let none = read(&[&base[..], &[("PMIX_SECURITY_MODE", "none")]].concat());
    assert_eq!(none.unwrap().security, Security::None);

    let mut errors = String::new();
    for variables in [
        without(&["PMIX_NAMESPACE"]),
        without(&["PMIX_RANK"]),
        without(&["PMIX_SERVER_URI41", "PMIX_SERVER_URI4", "PMIX_SERVER_URI3"]),
        [&base[..], &[("PMIX_RANK", "x")]].concat(),
        [&base[..], &[("PMIX_RANK", "4294967294")]].concat(),
        [&base[..], &[("PMIX_SERVER_URI41", "daemon")]].concat(),
        [&base[..], &[("PMIX_SECURITY_MODE", "munge")]].concat(),
    ] {
        errors += &read(&variables).unwrap_err();
        errors.push('\n');
    }
    insta::assert_snapshot!(errors, @r"
    `PMIX_NAMESPACE` is not set
    `PMIX_RANK` is not set
    `PMIX_SERVER_URI41` is not set
    `PMIX_RANK` is not the number of a rank
    `PMIX_RANK` is not the number of a rank
    `PMIX_SERVER_URI41` names no server: it is not a name, `;` and an address
    `PMIX_SECURITY_MODE` allows neither `native` nor `none`
    ");
}
