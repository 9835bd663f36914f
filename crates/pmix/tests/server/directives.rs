//! Unknown directives, required and optional.

use bytes::Bytes;
use pmix::{
    codec::Format,
    keys,
    message::{Answer, Request},
    value::{AllocDirective, App, Info, InfoFlags, IofChannels, Query, Range, Status, Value},
};

use crate::world::{UID, World, all, info, key, nspace, proc, text, values_of};

fn required(mut info: Info) -> Info {
    info.flags = InfoFlags::REQUIRED;
    info
}

/// Returns a request of each kind that accepts directives, with this directive.
#[expect(clippy::too_many_lines, reason = "a table of requests")]
fn saying(directive: &Info) -> Vec<Request> {
    let me = || vec![proc("a", 0)];
    let infos = || vec![directive.clone()];
    let beside = |other: Info| vec![other, directive.clone()];
    let spawn = |infos, of_app| Request::Spawn {
        infos,
        apps: vec![App {
            command: text("program"),
            maxprocs: 1,
            info: of_app,
            ..App::default()
        }],
    };
    let log = |data: Option<Info>, directives| Request::Log {
        time: 1,
        data: [info(keys::LOG_STDERR, Value::text("text"))]
            .into_iter()
            .chain(data)
            .collect(),
        directives,
    };
    vec![
        Request::Fence {
            procs: me(),
            infos: infos(),
        },
        Request::Get {
            nspace: nspace("a"),
            rank: pmix::value::PmixRank::WILDCARD,
            infos: infos(),
            key: Some(key("pmix.job.size")),
        },
        Request::Publish {
            uid: UID,
            infos: beside(info(c"name", Value::Uint32(1))),
        },
        Request::Lookup {
            uid: UID,
            keys: vec![key("name")],
            infos: infos(),
        },
        Request::Unpublish {
            uid: UID,
            keys: vec![key("name")],
            infos: infos(),
        },
        spawn(infos(), Vec::new()),
        spawn(Vec::new(), infos()),
        Request::Connect {
            procs: me(),
            infos: infos(),
            data: Vec::new(),
        },
        Request::Disconnect {
            procs: me(),
            infos: infos(),
        },
        Request::Register {
            codes: vec![Status(-3000)],
            infos: infos(),
        },
        Request::Query {
            queries: vec![Query {
                keys: vec![text("pmix.qry.ns")],
                qualifiers: infos(),
            }],
        },
        log(None, infos()),
        log(Some(directive.clone()), Vec::new()),
        Request::JobControl {
            targets: Vec::new(),
            infos: beside(info(keys::JOB_CTRL_KILL, Value::Bool(true))),
        },
        Request::Monitor {
            monitor: info(keys::MONITOR_HEARTBEAT, Value::Bool(true)),
            error: Status::SUCCESS,
            infos: beside(info(keys::MONITOR_HEARTBEAT_TIME, Value::Uint32(60))),
        },
        Request::GetCredential { infos: infos() },
        Request::ValidateCredential {
            credential: Bytes::from([UID.to_ne_bytes(), UID.to_ne_bytes()].concat()),
            infos: infos(),
        },
        Request::IofPull {
            procs: me(),
            infos: infos(),
            channels: IofChannels::STDOUT,
            id: 1,
        },
        Request::IofPush {
            procs: me(),
            infos: infos(),
            bytes: None,
        },
        Request::GroupConstruct {
            group: text("group"),
            procs: me(),
            infos: infos(),
        },
        Request::GroupLeave {
            group: text("group"),
            infos: infos(),
        },
        Request::GroupDestruct {
            group: text("group"),
            procs: Some(me()),
            infos: infos(),
        },
        Request::IofDeregister {
            infos: infos(),
            id: 1,
        },
        Request::Allocate {
            directive: AllocDirective::NEW,
            infos: infos(),
        },
    ]
}

#[test]
fn what_is_required_and_not_understood_is_refused() {
    let unknown = info(c"pmix.of.tomorrow", Value::Bool(true));
    let mut done = unknown.clone();
    done.flags = InfoFlags(InfoFlags::REQUIRED.0 | InfoFlags::REQUIRED_PROCESSED.0);
    for request in saying(&required(unknown.clone())) {
        let (mut world, conns) = World::of(1);
        let status = world.status_of(conns[0], &request);
        assert_eq!(status, Status::NOT_SUPPORTED, "{request:?}");
        // The request had no effect.
        assert!(world.asks.is_empty() && world.log.is_empty(), "{request:?}");
        assert!(world.stdin.is_empty() && world.wanted.is_empty());
        world.assert_no_state_left();
    }
    // The directive is optional, or the client's library has already processed it.
    for directive in [unknown, done] {
        for request in saying(&directive) {
            let (mut world, conns) = World::of(1);
            let tag = world.send(conns[0], &request);
            let status = world.status(conns[0], tag);
            assert_ne!(status, Some(Status::NOT_SUPPORTED), "{request:?}");
        }
    }
}

#[test]
fn what_is_required_and_understood_is_done() {
    let (mut world, conns) = World::of(1);
    let fence = |infos| Request::Fence {
        procs: vec![all("a")],
        infos,
    };
    let collect = required(info(keys::COLLECT_DATA, Value::Bool(true)));
    assert_eq!(
        world.status_of(conns[0], &fence(vec![collect])),
        Status::SUCCESS
    );
    let credential = |kinds: &str| Request::GetCredential {
        infos: vec![required(info(keys::CRED_TYPE, Value::text(kinds)))],
    };
    for (kinds, status) in [
        ("native", Status::SUCCESS),
        ("munge,native", Status::SUCCESS),
        ("munge", Status::NOT_SUPPORTED),
    ] {
        assert_eq!(
            world.status_of(conns[0], &credential(kinds)),
            status,
            "{kinds}"
        );
    }
    // Published data is not a directive, even if it has the flag.
    let publish = Request::Publish {
        uid: UID,
        infos: vec![required(info(c"name", Value::Uint32(1)))],
    };
    world.send(conns[0], &publish);
    assert_eq!(world.asks.len(), 1);
    // Neither is the data of an event.
    let notify = Request::Notify {
        status: Status(-3000),
        range: Range::NAMESPACE,
        infos: vec![required(info(c"what", Value::Uint32(1)))],
    };
    assert_eq!(world.status_of(conns[0], &notify), Status::SUCCESS);
    // Neither is the qualifier of a value.
    let mut qualifier = info(c"pmix.of.tomorrow", Value::Uint32(1));
    qualifier.flags = InfoFlags(InfoFlags::REQUIRED.0 | InfoFlags::QUALIFIER.0);
    let get = Request::Get {
        nspace: nspace("a"),
        rank: pmix::value::PmixRank::WILDCARD,
        infos: vec![qualifier],
        key: Some(key("pmix.job.size")),
    };
    let answer = world.ask(conns[0], &get);
    let values = values_of(Format::V4, &answer, &all("a"));
    assert_eq!(values["pmix.job.size"], Value::Uint32(1));
}

/// A query may name a process by a single `PROC_ID`, or by its rank: the command `pquery` gives every qualifier as a text.
#[test]
fn a_query_names_a_process() {
    let (mut world, conns) = World::of(2);
    let whose = Value::Proc(Box::new(proc("a", 1)));
    let rank = |value| vec![info(keys::RANK, value)];
    for qualifiers in [
        vec![required(info(keys::PROC_ID, whose))],
        rank(Value::Rank(pmix::value::PmixRank(1))),
        rank(Value::Uint32(1)),
        rank(Value::text("1")),
    ] {
        let query = Request::Query {
            queries: vec![Query {
                keys: vec![text("pmix.lrank")],
                qualifiers,
            }],
        };
        let Answer::Infos { infos, .. } = world.ask(conns[0], &query) else {
            panic!("no infos");
        };
        assert_eq!(infos[0].value, Value::Uint16(1));
    }
    // A query about an unknown process returns nothing, not even for keys that do not depend on the process.
    let whose = Value::Proc(Box::new(proc("elsewhere", 1)));
    for key in ["pmix.lrank", "pmix.qry.ns", "pmix.qry.spawn"] {
        let query = Request::Query {
            queries: vec![Query {
                keys: vec![text(key)],
                qualifiers: vec![info(keys::PROC_ID, whose.clone())],
            }],
        };
        assert_eq!(
            world.status_of(conns[0], &query),
            Status::NOT_FOUND,
            "{key}"
        );
    }
    world.assert_no_state_left();
}
