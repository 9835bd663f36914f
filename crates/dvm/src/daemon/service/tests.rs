//! Tests with a daemon and one client of it; a second job runs on another node.

use std::sync::Arc;

use pmix::{
    client::{self, Client, Connector},
    handshake::Owner,
    keys,
    value::{Info, Key, Range, Value},
};

use super::*;
use crate::{
    daemon::{
        Daemon, Input as DaemonInput,
        tests::{daemon_of, launch_of},
    },
    proto::ToDaemon,
    syslog::{SYSLOG_TEXT_MAX, SyslogFailure, SyslogLine},
};

const NOW: Time = Time::ZERO;
const CONN: Conn = Conn(1);

/// The daemon of a node that has job 1; job 2 is on another node.
struct World {
    daemon: Daemon,
    client: Client,
    said: Vec<ToController>,
    answers: Vec<Answer>,
    /// What becomes of lines for the syslog of the node.
    syslog: Result<(), SyslogFailure>,
    /// What went to the syslog of the node.
    logged: Vec<SyslogLine>,
}

impl World {
    /// Creates the daemon, and connects the only rank of job 1.
    fn new() -> Self {
        let mut daemon = daemon_of(0, "n0");
        let here = Arc::new(launch_of(1, &[1], &["n0", ""]));
        let elsewhere = Arc::new(launch_of(2, &[3], &["", "n1"]));
        for message in [
            ToDaemon::Launch(here),
            ToDaemon::LaunchedElsewhere(elsewhere),
        ] {
            daemon.handle(NOW, DaemonInput::Message(message));
        }
        let server = "rally-node-77.0;tcp4://127.0.0.1:1234".parse().unwrap();
        let me = Proc {
            nspace: name("rally-node-77@1"),
            rank: PmixRank(0),
        };
        let owner = Owner {
            uid: 1000,
            gid: 1000,
        };
        let config = client::Config::new(server, Connector::Client(me), owner);
        let mut world = Self {
            daemon,
            client: Client::new(NOW, config),
            said: Vec::new(),
            answers: Vec::new(),
            syslog: Ok(()),
            logged: Vec::new(),
        };
        let owner = PeerOwner::Uid(1000);
        let accepted = DaemonInput::ClientAccepted { conn: CONN, owner };
        world.daemon.handle(NOW, accepted);
        world.client.handle(NOW, client::Input::Opened);
        world.settle();
        world
    }

    /// Delivers messages between client and daemon until neither has more to send.
    fn settle(&mut self) {
        loop {
            let mut is_done = true;
            while let Some(output) = self.client.poll() {
                is_done = false;
                match output {
                    client::Output::Send(bytes) => {
                        let conn = CONN;
                        let bytes = &bytes;
                        let input = DaemonInput::ClientBytes { conn, bytes };
                        self.daemon.handle(NOW, input);
                    }
                    client::Output::Event(client::Event::Answer { answer, .. }) => {
                        self.answers.push(answer);
                    }
                    _ => {}
                }
            }
            while let Some(output) = self.daemon.poll() {
                is_done = false;
                match output {
                    Output::ClientSend { bytes, .. } => {
                        self.client.handle(NOW, client::Input::Bytes(&bytes));
                    }
                    Output::Send(message) => self.said.push(message),
                    Output::Syslog { ticket, line } => {
                        self.logged.push(line);
                        let result = self.syslog;
                        self.daemon
                            .handle(NOW, DaemonInput::Syslogged { ticket, result });
                    }
                    _ => {}
                }
            }
            if is_done {
                return;
            }
        }
    }
}

impl World {
    /// Takes a line for the syslog of the controller's host.
    fn line_to_host(&mut self) -> Option<(AskId, SyslogLine)> {
        let is_line = |message: &ToController| matches!(message, ToController::Syslog { .. });
        let at = self.said.iter().position(is_line)?;
        match self.said.swap_remove(at) {
            ToController::Syslog { ticket, line } => Some((ticket, line)),
            _ => None,
        }
    }

    fn is_answered(&mut self, ticket: AskId, status: Status) {
        let mut writer = Writer::new(Format::V4);
        Answer::Status(status).encode(&mut writer);
        let answer = Bytes::from(writer.into_bytes());
        let answer = ToDaemon::Answer { ticket, answer };
        self.daemon.handle(NOW, DaemonInput::Message(answer));
        self.settle();
    }
}

fn texts(lines: &[SyslogLine]) -> String {
    let texts = lines.iter().map(|line| {
        let line = String::from_utf8(line.datagram(0)).unwrap();
        let (_, text) = line.split_once("rally-node-77@1:0: ").unwrap();
        text.to_owned()
    });
    texts.collect::<Vec<_>>().join(" ")
}

/// A tool can release procs without knowing on which nodes they are.
#[test]
fn held_procs_of_another_node_are_let_go() {
    let mut world = World::new();
    world.said.clear();
    let job = Proc::all(name("rally-node-77@2"));
    let range = Key::new(keys::EVENT_CUSTOM_RANGE).unwrap();
    world.client.request(&Request::Notify {
        status: Status::DEBUGGER_RELEASE,
        range: Range::CUSTOM,
        infos: vec![Info::new(range, Value::procs(vec![job]))],
    });
    world.settle();
    let released = ToController::Released {
        job: JobId(2),
        ranks: RankSet::range(0..3),
    };
    assert!(world.said.contains(&released), "{:?}", world.said);
}

/// A proc that got an earlier answer could exit, and others could abort because of that before the controller knows the code.
#[test]
fn an_abort_is_answered_when_the_job_is_ended() {
    let mut world = World::new();
    let abort = Request::Abort {
        status: Status(42),
        message: None,
        procs: Vec::new(),
    };
    let done = || Answer::Status(Status::SUCCESS);
    world.said.clear();
    world.answers.clear();
    world.client.request(&abort);
    world.settle();
    let is_asked = |message: &ToController| matches!(message, ToController::Abort { code: 42, .. });
    assert!(world.said.iter().any(is_asked), "{:?}", world.said);
    assert_eq!(world.answers, []);
    let end = ToDaemon::End {
        job: JobId(1),
        grace: std::time::Duration::from_secs(1),
    };
    world.daemon.handle(NOW, DaemonInput::Message(end));
    world.settle();
    assert_eq!(world.answers, [done()]);
    // Another one has nothing to wait for.
    world.client.request(&abort);
    world.settle();
    assert_eq!(world.answers, [done(), done()]);
}

/// A line goes to the syslog of the controller's host, or to that of the node, and the process hears of it when the last one is there.
#[test]
fn lines_for_the_syslog_go_where_they_are_meant_to_go() {
    use SyslogFailure::{Absent, Busy};
    let long = "x".repeat(SYSLOG_TEXT_MAX);
    let (either, local, global) = (
        (keys::LOG_SYSLOG, "either"),
        (keys::LOG_LOCAL_SYSLOG, "local"),
        (keys::LOG_GLOBAL_SYSLOG, "global"),
    );
    let cases = [
        // What is logged, the results at the host and at the node; the lines there, and the answer.
        (vec![either], Ok(()), Ok(()), "either", "", Status::SUCCESS),
        (
            vec![either],
            Err(Absent),
            Ok(()),
            "either",
            "either",
            Status::SUCCESS,
        ),
        (
            vec![either],
            Err(Absent),
            Err(Absent),
            "either",
            "either",
            Status::NOT_FOUND,
        ),
        (
            vec![either],
            Err(Busy),
            Ok(()),
            "either",
            "",
            Status::RESOURCE_BUSY,
        ),
        (
            vec![global],
            Err(Absent),
            Ok(()),
            "global",
            "",
            Status::NOT_FOUND,
        ),
        (
            vec![local],
            Ok(()),
            Err(Busy),
            "",
            "local",
            Status::RESOURCE_BUSY,
        ),
        (
            vec![local, global],
            Err(Absent),
            Ok(()),
            "global",
            "local",
            Status::PARTIAL_SUCCESS,
        ),
        (
            vec![global, (keys::LOG_LOCAL_SYSLOG, &long), either],
            Ok(()),
            Ok(()),
            "global either",
            "",
            Status::PARTIAL_SUCCESS,
        ),
    ];
    for (number, (log, at_host, at_node, host, node, status)) in cases.into_iter().enumerate() {
        let mut world = World::new();
        world.syslog = at_node;
        world.said.clear();
        world.answers.clear();
        let data = log.iter().map(|(key, text)| {
            let key = Key::new(key).unwrap();
            Info::new(key, Value::text(text))
        });
        world.client.request(&Request::Log {
            time: 0,
            data: data.collect(),
            directives: Vec::new(),
        });
        world.settle();
        let mut to_host = Vec::new();
        while let Some((ticket, line)) = world.line_to_host() {
            assert_eq!(world.answers, [], "case {number}");
            to_host.push(line);
            let status = at_host.map_or_else(SyslogFailure::status, |()| Status::SUCCESS);
            world.is_answered(ticket, status);
        }
        assert_eq!(texts(&to_host), host, "case {number}");
        assert_eq!(texts(&world.logged), node, "case {number}");
        assert_eq!(world.answers, [Answer::Status(status)], "case {number}");
    }
}

/// A rank defines sets of procs of its own job. What the controller says of a set is the answer.
#[test]
fn a_rank_asks_the_controller_for_a_set() {
    let proc = |job: &str, rank| Proc {
        nspace: name(job),
        rank,
    };
    let (own, other) = ("rally-node-77@1", "rally-node-77@2");
    let set = |name: &str| (keys::JOB_CTRL_DEFINE_PSET, Value::text(name));
    let kill = (keys::JOB_CTRL_KILL, Value::Bool(true));
    let id = (keys::JOB_CTRL_ID, Value::text("x"));
    let all = || vec![proc(own, PmixRank::WILDCARD)];
    for (targets, infos, expected) in [
        (vec![], vec![set("ocean")], Ok(())),
        (all(), vec![id, set("ocean")], Ok(())),
        (vec![proc(own, PmixRank(0))], vec![set("ocean")], Ok(())),
        (all(), vec![set("a,b")], Err(Status::BAD_PARAM)),
        (
            all(),
            vec![(keys::JOB_CTRL_DEFINE_PSET, Value::Int(1))],
            Err(Status::BAD_PARAM),
        ),
        (all(), vec![set("ocean"), kill], Err(Status::NOT_SUPPORTED)),
        (
            vec![proc(own, PmixRank(1))],
            vec![set("ocean")],
            Err(Status::NOT_FOUND),
        ),
        (
            vec![proc(other, PmixRank(0))],
            vec![set("ocean")],
            Err(Status::NO_PERMISSIONS),
        ),
    ] {
        let mut world = World::new();
        world.said.clear();
        world.answers.clear();
        let infos = infos.into_iter();
        let infos = infos.map(|(key, value)| Info::new(Key::new(key).unwrap(), value));
        let request = Request::JobControl {
            targets,
            infos: infos.collect(),
        };
        world.client.request(&request);
        world.settle();
        if let Err(status) = expected {
            assert_eq!(world.answers[0].status(), status, "{request:?}");
            assert_eq!(world.said, [], "{request:?}");
            continue;
        }
        let [
            ToController::DefineSet {
                ticket,
                job,
                name,
                ranks,
            },
        ] = &world.said[..]
        else {
            panic!("{request:?}: {:?}", world.said);
        };
        assert_eq!((job, name.as_str()), (&JobId(1), "ocean"));
        assert_eq!(*ranks, RankSet::single(Rank(0)));
        assert_eq!(world.answers, []);
        let ticket = *ticket;
        let mut writer = Writer::new(Format::V4);
        let (status, infos) = (Status::EXISTS, Vec::new());
        Answer::Infos { status, infos }.encode(&mut writer);
        let answer = Bytes::from(writer.into_bytes());
        let answer = ToDaemon::Answer { ticket, answer };
        world.daemon.handle(NOW, DaemonInput::Message(answer));
        world.settle();
        assert_eq!(world.answers[0].status(), Status::EXISTS);
    }
}
