//! Tests with a daemon and one client of it; a second job runs on another node.

use std::sync::Arc;

use pmix::{
    client::{self, Client, Connector},
    handshake::Owner,
    value::{Key, Range, Value},
};

use super::*;
use crate::{
    daemon::{
        Daemon, Input as DaemonInput,
        tests::{daemon_of, launch_of},
    },
    proto::ToDaemon,
};

const NOW: Time = Time::ZERO;
const CONN: Conn = Conn(1);

/// The daemon of a node that has job 1; job 2 is on another node.
struct World {
    daemon: Daemon,
    client: Client,
    said: Vec<ToController>,
    answers: Vec<Answer>,
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
                    _ => {}
                }
            }
            if is_done {
                return;
            }
        }
    }
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
