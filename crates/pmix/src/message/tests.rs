//! Tests of the messages: each decodes to what was encoded, and any input is decoded or refused.

use std::fmt::Debug;

use proptest::{collection::vec, option, prelude::*};

use super::{Answer, Command, Facts, GroupAnswer, GroupForm, Push, Request, Shape};
use crate::{
    Error, Malformed,
    codec::{Family, Format, Items, Reader, Size, Wire, Writer},
    error::Unsupported,
    frame::Tag,
    tests::strategy::{
        app, info, key, kval, named, nspace, opaque, packed, pdata, process, query, rank, some,
        status, text,
    },
    value::{
        AllocDirective, Info, IofChannels, Kval, PmixRank, Proc, Range, Scope, Status, Text, Value,
    },
};

const FORMATS: [Format; 4] = [
    Format::V4,
    Format::V3,
    Format {
        family: Family::Flex,
        items: Items::Described,
    },
    Format {
        family: Family::Fixed,
        items: Items::Described,
    },
];

/// All shapes of answers.
const SHAPES: [Shape; 15] = [
    Shape::JobInfo,
    Shape::Status,
    Shape::Buffers,
    Shape::Found,
    Shape::Spawned,
    Shape::Infos,
    Shape::Credential,
    Shape::Number,
    Shape::Group(GroupForm::ContextOnly),
    Shape::Group(GroupForm::Members),
    Shape::Group(GroupForm::Infos),
    Shape::Refreshed,
    Shape::Procs,
    Shape::Nodes,
    Shape::Nothing,
];

fn infos() -> impl Strategy<Value = Vec<Info>> {
    some(info())
}

fn procs() -> impl Strategy<Value = Vec<Proc>> {
    some(process())
}

/// Generates requests of all commands.
fn request() -> impl Strategy<Value = Request> {
    prop_oneof![collective(), data(), job(), event(), output()]
}

fn collective() -> impl Strategy<Value = Request> {
    prop_oneof![
        (procs(), infos()).prop_map(|(procs, infos)| Request::Fence { procs, infos }),
        (procs(), infos(), infos()).prop_map(|(procs, infos, data)| Request::Connect {
            procs,
            infos,
            data
        }),
        (procs(), infos()).prop_map(|(procs, infos)| Request::Disconnect { procs, infos }),
        (text(), procs(), infos()).prop_map(|(group, procs, infos)| Request::GroupConstruct {
            group,
            procs,
            infos
        }),
        (text(), vec(process(), 1..3), infos()).prop_map(|(group, procs, infos)| {
            Request::GroupDestruct {
                group,
                procs: Some(procs),
                infos,
            }
        }),
        text().prop_map(|group| Request::GroupDestruct {
            group,
            procs: None,
            infos: Vec::new()
        }),
        (text(), infos()).prop_map(|(group, infos)| Request::GroupLeave { group, infos }),
    ]
}

fn data() -> impl Strategy<Value = Request> {
    let bucket = (any::<u8>().prop_map(Scope), packed());
    prop_oneof![
        vec(bucket, 0..3).prop_map(|buckets| Request::Commit { buckets }),
        (nspace(), rank(), infos(), option::of(key())).prop_map(|(nspace, rank, infos, key)| {
            Request::Get {
                nspace,
                rank,
                infos,
                key,
            }
        }),
        (any::<u32>(), infos()).prop_map(|(uid, infos)| Request::Publish { uid, infos }),
        (any::<u32>(), some(key()), infos()).prop_map(|(uid, keys, infos)| Request::Lookup {
            uid,
            keys,
            infos
        }),
        (any::<u32>(), some(key()), infos()).prop_map(|(uid, keys, infos)| Request::Unpublish {
            uid,
            keys,
            infos
        }),
        (nspace(), rank()).prop_map(|(nspace, rank)| Request::RefreshCache { nspace, rank }),
        (text(), text()).prop_map(|(node, nspace)| Request::ResolvePeers { node, nspace }),
        text().prop_map(|nspace| Request::ResolveNode { nspace }),
        infos().prop_map(|infos| Request::FabricRegister { infos }),
        any::<u64>().prop_map(|index| Request::FabricUpdate { index }),
    ]
}

fn job() -> impl Strategy<Value = Request> {
    prop_oneof![
        Just(Request::JobInfo),
        Just(Request::Finalize),
        (status(), text(), procs()).prop_map(|(status, message, procs)| Request::Abort {
            status,
            message,
            procs
        }),
        (infos(), some(app())).prop_map(|(infos, apps)| Request::Spawn { infos, apps }),
        (any::<u8>(), infos()).prop_map(|(directive, infos)| Request::Allocate {
            directive: AllocDirective(directive),
            infos
        }),
        (procs(), infos()).prop_map(|(targets, infos)| Request::JobControl { targets, infos }),
        (info(), status(), infos()).prop_map(|(monitor, error, infos)| Request::Monitor {
            monitor,
            error,
            infos
        }),
        infos().prop_map(|infos| Request::GetCredential { infos }),
        (opaque(), infos())
            .prop_map(|(credential, infos)| Request::ValidateCredential { credential, infos }),
        (any::<u32>(), infos())
            .prop_map(|(session, infos)| Request::SessionControl { session, infos }),
        (
            proptest::sample::select(&[25_u8, 26, 32, 34, 36][..]),
            opaque()
        )
            .prop_map(|(number, payload)| Request::Opaque {
                command: Command::from_number(number).unwrap(),
                payload,
            }),
    ]
}

fn event() -> impl Strategy<Value = Request> {
    prop_oneof![
        (status(), any::<u8>(), infos()).prop_map(|(status, range, infos)| Request::Notify {
            status,
            range: Range(range),
            infos
        }),
        (some(status()), infos()).prop_map(|(codes, infos)| Request::Register { codes, infos }),
        some(status()).prop_map(|codes| Request::Deregister { codes }),
        some(query()).prop_map(|queries| Request::Query { queries }),
        (any::<u64>(), infos(), infos()).prop_map(|(time, data, directives)| Request::Log {
            time,
            data,
            directives
        }),
    ]
}

fn output() -> impl Strategy<Value = Request> {
    prop_oneof![
        (procs(), infos(), any::<u16>(), any::<u64>()).prop_map(|(procs, infos, channels, id)| {
            Request::IofPull {
                procs,
                infos,
                channels: IofChannels(channels),
                id,
            }
        }),
        (procs(), infos(), option::of(opaque())).prop_map(|(procs, infos, bytes)| {
            Request::IofPush {
                procs,
                infos,
                bytes,
            }
        }),
        (infos(), any::<u64>()).prop_map(|(infos, id)| Request::IofDeregister { infos, id }),
    ]
}

/// Generates answers with their shapes.
fn answer() -> impl Strategy<Value = (Shape, Answer)> {
    let facts = || some(kval());
    let good = || Just(Status::SUCCESS);
    prop_oneof![
        (nspace(), facts())
            .prop_map(|(nspace, facts)| (Shape::JobInfo, Answer::JobInfo { nspace, facts })),
        refused(),
        (status(), some(opaque()))
            .prop_map(|(status, buffers)| (Shape::Buffers, Answer::Buffers { status, buffers })),
        (good(), some(pdata()))
            .prop_map(|(status, data)| (Shape::Found, Answer::Found { status, data })),
        (status(), text(), facts()).prop_map(|(status, nspace, facts)| {
            let answer = Answer::Spawned {
                status,
                nspace,
                facts,
            };
            (Shape::Spawned, answer)
        }),
        (status(), infos())
            .prop_map(|(status, infos)| (Shape::Infos, Answer::Infos { status, infos })),
        (opaque(), infos()).prop_map(|(credential, infos)| {
            (Shape::Credential, Answer::Credential { credential, infos })
        }),
        (good(), any::<u64>())
            .prop_map(|(status, number)| (Shape::Number, Answer::Number { status, number })),
        group(),
        (status(), vec(kval(), 1..3))
            .prop_map(|(status, facts)| (Shape::Refreshed, Answer::Refreshed { status, facts })),
        (good(), procs())
            .prop_map(|(status, procs)| (Shape::Procs, Answer::Procs { status, procs })),
        (good(), text())
            .prop_map(|(status, nodes)| (Shape::Nodes, Answer::Nodes { status, nodes })),
    ]
}

/// Generates a bare status with a shape. A `JobInfo` cannot be a bare status, and `Buffers` decodes it to an empty list.
fn refused() -> impl Strategy<Value = (Shape, Answer)> {
    let others = SHAPES.into_iter();
    let others = others.filter(|shape| !matches!(shape, Shape::JobInfo | Shape::Buffers));
    let shape = proptest::sample::select(others.collect::<Vec<_>>());
    (shape, status()).prop_map(|(shape, status)| (shape, Answer::Status(status)))
}

fn group() -> impl Strategy<Value = (Shape, Answer)> {
    let form = proptest::sample::select(
        &[GroupForm::ContextOnly, GroupForm::Members, GroupForm::Infos][..],
    );
    let context = option::of(0..u64::MAX);
    (form, procs(), context, infos(), some(opaque())).prop_map(
        |(form, members, context, infos, buffers)| {
            let mut answer = GroupAnswer {
                form,
                status: Status::SUCCESS,
                members,
                context,
                infos,
                buffers,
            };
            // Each form lacks some fields.
            match form {
                GroupForm::ContextOnly => {
                    answer.members.clear();
                    answer.infos.clear();
                    answer.buffers.clear();
                }
                GroupForm::Members => answer.infos.clear(),
                GroupForm::Infos => answer.buffers.clear(),
            }
            (Shape::Group(form), Answer::Group(answer))
        },
    )
}

fn push() -> impl Strategy<Value = Push> {
    let range = option::of(any::<u8>().prop_map(Range));
    prop_oneof![
        (status(), process(), infos(), range).prop_map(|(status, source, infos, range)| {
            Push::Event {
                status,
                source,
                infos,
                range,
            }
        }),
        (process(), any::<u16>(), any::<u64>(), infos(), opaque()).prop_map(
            |(source, channels, id, infos, bytes)| Push::Output {
                source,
                channels: IofChannels(channels),
                id,
                infos,
                bytes,
            }
        ),
    ]
}

fn packed_by(format: Format, encode: impl Fn(&mut Writer)) -> Vec<u8> {
    let mut writer = Writer::new(format);
    encode(&mut writer);
    writer.into_bytes()
}

/// Decodes every prefix of a payload, to check that the decoder returns.
fn cut<T: Debug>(payload: &[u8], read: impl Fn(&[u8]) -> T) {
    for end in 0..payload.len() {
        let _ = read(&payload[..end]);
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(128))]

    #[test]
    fn requests_read_back_as_they_were_written(sent in request()) {
        for format in FORMATS {
            let payload = packed_by(format, |writer| sent.encode(writer));
            prop_assert_eq!(&Request::decode(format, &payload).unwrap(), &sent);
            cut(&payload, |part| Request::decode(format, part));
            prop_assert!(!sent.display(format).to_string().contains('\n'));
        }
    }

    #[test]
    fn answers_read_back_as_they_were_written((shape, sent) in answer()) {
        for format in FORMATS {
            let payload = packed_by(format, |writer| sent.encode(writer));
            let read = Answer::decode(format, shape, &payload).unwrap();
            prop_assert_eq!(read.status(), sent.status());
            prop_assert_eq!(&read, &sent);
            cut(&payload, |part| Answer::decode(format, shape, part));
            prop_assert!(!sent.display(format).to_string().contains('\n'));
        }
    }

    #[test]
    fn pushes_read_back_as_they_were_written(sent in push()) {
        for format in FORMATS {
            let payload = packed_by(format, |writer| sent.encode(writer));
            let read = Push::decode(format, sent.tag(), &payload).unwrap();
            prop_assert_eq!(read.as_ref(), Some(&sent));
            cut(&payload, |part| Push::decode(format, sent.tag(), part));
            prop_assert!(!sent.display(format).to_string().contains('\n'));
        }
    }

    #[test]
    fn facts_read_back_as_they_were_written(
        proc in process(), rank in rank(), nspace in nspace(), facts in some(kval())
    ) {
        fn check<Owner: Wire + Clone + PartialEq + Debug>(owner: &Owner, facts: &[Kval]) {
            for format in FORMATS {
                let sent = Facts { owner: owner.clone(), facts: facts.to_vec() };
                let bytes = sent.encode(format);
                assert_eq!(Facts::decode(format, &bytes), Ok(sent));
            }
        }
        check(&proc, &facts);
        check(&rank, &facts);
        check(&nspace, &facts);
    }

    #[test]
    fn any_payload_is_read_or_refused(bytes in vec(any::<u8>(), 0..120)) {
        for format in FORMATS {
            for number in 0..40 {
                let mut writer = Writer::new(format);
                writer.item(&crate::codec::CommandNumber(number));
                writer.raw(&bytes);
                let _ = Request::decode(format, writer.as_bytes());
            }
            for shape in SHAPES {
                let _ = Answer::decode(format, shape, &bytes);
                let mut writer = Writer::new(format);
                writer.item(&Status::SUCCESS);
                writer.raw(&bytes);
                let _ = Answer::decode(format, shape, writer.as_bytes());
            }
            for tag in [Tag::Event, Tag::Output, Tag::Heartbeat, Tag::Request(101)] {
                let _ = Push::decode(format, tag, &bytes);
            }
        }
    }
}

#[test]
fn commands_have_the_numbers_of_the_wire() {
    for number in 0..=38 {
        assert_eq!(Command::from_number(number).unwrap().number(), number);
    }
    assert_eq!(Command::from_number(39), None);
    let payload = [2, 39];
    let unknown = Error::Unsupported {
        what: Unsupported::Command(39),
    };
    assert_eq!(Request::decode(Format::V4, &payload), Err(unknown));
}

#[test]
fn what_later_versions_append_is_ignored() {
    let request = Request::Fence {
        procs: Vec::new(),
        infos: Vec::new(),
    };
    let mut payload = packed_by(Format::V4, |writer| request.encode(writer));
    payload.extend_from_slice(b"\x02\x00more");
    assert_eq!(Request::decode(Format::V4, &payload), Ok(request));
    let mut payload = packed_by(Format::V4, |writer| writer.item(&Status::SUCCESS));
    payload.extend_from_slice(b"\x02\x00more");
    let answer = Answer::decode(Format::V4, Shape::Status, &payload);
    assert_eq!(answer, Ok(Answer::Status(Status::SUCCESS)));
}

#[test]
fn the_end_of_input_is_absent_or_empty() {
    for bytes in [None, Some(bytes::Bytes::new())] {
        let request = Request::IofPush {
            procs: Vec::new(),
            infos: Vec::new(),
            bytes,
        };
        let payload = packed_by(Format::V4, |writer| request.encode(writer));
        assert_eq!(Request::decode(Format::V4, &payload), Ok(request));
    }
}

#[test]
fn a_group_is_destructed_with_its_members_or_without() {
    let infos = vec![Info::new(named(c"pmix.timeout"), Value::Int(3))];
    let group: Text = Some(c"g".to_owned());
    for procs in [
        None,
        Some(vec![Proc::all(
            crate::value::Nspace::from_text("j").unwrap(),
        )]),
    ] {
        for format in FORMATS {
            let request = Request::GroupDestruct {
                group: group.clone(),
                procs: procs.clone(),
                infos: infos.clone(),
            };
            let payload = packed_by(format, |writer| request.encode(writer));
            assert_eq!(Request::decode(format, &payload), Ok(request));
        }
    }
}

#[test]
fn the_form_of_an_answer_to_a_group_follows_the_version_of_the_library() {
    for (version, form) in [
        ([3, 2, 3], GroupForm::ContextOnly),
        ([4, 1, 3], GroupForm::ContextOnly),
        ([4, 2, 2], GroupForm::ContextOnly),
        ([4, 2, 3], GroupForm::ContextOnly),
        ([4, 2, 4], GroupForm::Members),
        ([4, 2, 9], GroupForm::Members),
        ([5, 0, 0], GroupForm::Members),
        ([5, 0, 11], GroupForm::Members),
        ([6, 0, 0], GroupForm::Infos),
        ([6, 1, 0], GroupForm::Infos),
        ([7, 0, 0], GroupForm::Infos),
    ] {
        assert_eq!(GroupForm::of_version(version), form, "{version:?}");
    }
}

#[test]
fn a_group_that_was_refused_is_answered_by_its_status_alone() {
    let answer = Answer::Group(GroupAnswer {
        form: GroupForm::Members,
        status: Status::TIMEOUT,
        members: vec![Proc {
            nspace: crate::value::Nspace::from_text("j").unwrap(),
            rank: PmixRank(0),
        }],
        context: Some(1),
        infos: Vec::new(),
        buffers: Vec::new(),
    });
    let payload = packed_by(Format::V4, |writer| answer.encode(writer));
    let mut reader = Reader::new(Format::V4, &payload);
    assert_eq!(reader.item(), Ok(Status::TIMEOUT));
    assert!(reader.is_empty());
}

#[test]
fn a_refusal_is_no_success_whatever_follows_it() {
    for shape in SHAPES {
        let mut writer = Writer::new(Format::V4);
        writer.item(&Status::NO_PERMISSIONS);
        // If these bytes were decoded as on success, the result would be a credential, group members, or a node list.
        writer.item(&bytes::Bytes::from_static(b"\x02\x00"));
        writer.list::<Info>(&[]);
        if shape == Shape::JobInfo {
            continue;
        }
        if let Ok(answer) = Answer::decode(Format::V4, shape, writer.as_bytes()) {
            assert_eq!(answer.status(), Status::NO_PERMISSIONS, "{shape:?}");
        }
    }
    // Found by the fuzzer: a lookup that found nothing, with an error status and an empty list.
    let mut writer = Writer::new(Format::V4);
    writer.item(&Status::NOT_FOUND);
    writer.list::<Info>(&[]);
    let answer = Answer::decode(Format::V4, Shape::Found, writer.as_bytes());
    assert_eq!(answer, Ok(Answer::Status(Status::NOT_FOUND)));
    let mut writer = Writer::new(Format::V4);
    writer.item(&Status::NO_PERMISSIONS);
    writer.item(&bytes::Bytes::new());
    writer.list::<Info>(&[]);
    let answer = Answer::decode(Format::V4, Shape::Credential, writer.as_bytes());
    assert_eq!(answer, Ok(Answer::Status(Status::NO_PERMISSIONS)));
}

#[test]
fn pushes_come_under_two_tags() {
    for tag in [Tag::Heartbeat, Tag::Request(101), Tag::Reserved(7)] {
        assert_eq!(Push::decode(Format::V4, tag, b"anything"), Ok(None));
    }
    // Only the notify command is an event.
    let payload = packed_by(Format::V4, |writer| {
        writer.item(&crate::codec::CommandNumber(3));
    });
    assert!(matches!(
        Push::decode(Format::V4, Tag::Event, &payload),
        Err(Error::Malformed {
            what: Malformed::WrongKind { .. }
        })
    ));
}

#[test]
fn the_end_of_output_may_be_left_away() {
    let source = Proc::all(crate::value::Nspace::from_text("j").unwrap());
    let payload = packed_by(Format::V4, |writer| {
        writer.item(&source);
        writer.item(&IofChannels::STDOUT);
        writer.item(&Size(3));
        writer.list::<Info>(&[]);
    });
    let push = Push::decode(Format::V4, Tag::Output, &payload).unwrap();
    assert!(matches!(push, Some(Push::Output { id: 3, bytes, .. }) if bytes.is_empty()));
}
