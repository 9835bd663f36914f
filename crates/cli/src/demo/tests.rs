//! Ranks of the demo against the real server, each on its own thread, and against servers that fail them.

use std::{
    collections::BTreeMap,
    ffi::CString,
    io::Read,
    net::{Ipv4Addr, Shutdown, SocketAddr, TcpListener, TcpStream},
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, Ordering},
    },
    thread,
    time::Duration,
};

use ::pmix::{
    server::{
        AppFacts, Config as ServerConfig, Conn, Input, Job, LOST_DELAY, NodeFacts, Output,
        PeerOwner, RankFacts, Server, Tools, environment,
    },
    value::{Nspace, PmixRank, Proc},
};
use base::Time;

use super::*;

const OWNER: Owner = Owner {
    uid: 1000,
    gid: 1000,
};

/// The server of one job, and its connections.
struct Host {
    server: Server,
    streams: BTreeMap<Conn, TcpStream>,
    /// The time, which advances only when a connection is lost, so that no rank waits for it.
    now: Time,
}

impl Host {
    fn new(size: u32) -> Self {
        let mut server = Server::new(ServerConfig {
            identity: proc("server", 0),
            uid: OWNER.uid,
            gid: OWNER.gid,
            port: 5000,
            context: (1, 1),
            tools: Tools::Refused,
        });
        server.handle(Time::ZERO, Input::Register(Box::new(job(size))));
        Self {
            server,
            streams: BTreeMap::new(),
            now: Time::ZERO,
        }
    }

    fn handle(&mut self, input: Input<'_>) {
        self.server.handle(self.now, input);
        while let Some(output) = self.server.poll() {
            match output {
                Output::Send { conn, bytes } => {
                    // A rank that has failed reads no more.
                    let _ = (&self.streams[&conn]).write_all(&bytes);
                }
                Output::Close { .. } => panic!("a rank broke the rules"),
                Output::Refused { proc, error } => panic!("{proc:?} was refused: {error}"),
                _ => {}
            }
        }
    }

    fn closed(&mut self, conn: Conn) {
        self.handle(Input::Closed { conn });
        self.streams.remove(&conn);
        self.now = self.now + LOST_DELAY;
        self.handle(Input::Tick);
    }
}

/// A server that listens until it is dropped.
struct Listening {
    host: Arc<Mutex<Host>>,
    address: SocketAddr,
    is_over: Arc<AtomicBool>,
    acceptor: Option<thread::JoinHandle<()>>,
}

impl Listening {
    fn new(size: u32) -> Self {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let address = listener.local_addr().unwrap();
        let host = Arc::new(Mutex::new(Host::new(size)));
        let is_over = Arc::new(AtomicBool::new(false));
        let acceptor = thread::spawn({
            let (host, is_over) = (Arc::clone(&host), Arc::clone(&is_over));
            move || {
                let mut readers = Vec::new();
                for number in 1.. {
                    let (stream, _) = listener.accept().unwrap();
                    if is_over.load(Ordering::SeqCst) {
                        break;
                    }
                    let host = Arc::clone(&host);
                    readers.push(thread::spawn(move || serve(&host, Conn(number), stream)));
                }
                readers
                    .into_iter()
                    .for_each(|reader| reader.join().unwrap());
            }
        });
        Self {
            host,
            address,
            is_over,
            acceptor: Some(acceptor),
        }
    }

    /// Returns the configuration of a rank of the job.
    fn config(&self, rank: u32) -> Config {
        config(self.address, rank)
    }
}

impl Drop for Listening {
    fn drop(&mut self) {
        self.is_over.store(true, Ordering::SeqCst);
        // The acceptor checks `is_over` only after it has accepted a connection.
        let woken = TcpStream::connect(self.address);
        let ended = self.acceptor.take().map(thread::JoinHandle::join);
        if !thread::panicking() {
            woken.unwrap();
            ended.unwrap().unwrap();
        }
    }
}

fn serve(host: &Mutex<Host>, conn: Conn, mut stream: TcpStream) {
    {
        let mut host = host.lock().unwrap();
        host.streams.insert(conn, stream.try_clone().unwrap());
        let owner = PeerOwner::Uid(OWNER.uid);
        host.handle(Input::Accepted { conn, owner });
    }
    let mut buffer = [0; 512];
    while let Ok(length @ 1..) = stream.read(&mut buffer) {
        let bytes = &buffer[..length];
        host.lock().unwrap().handle(Input::Bytes { conn, bytes });
    }
    host.lock().unwrap().closed(conn);
}

fn proc(nspace: &str, rank: u32) -> Proc {
    Proc {
        nspace: Nspace::from_text(nspace).unwrap(),
        rank: PmixRank(rank),
    }
}

/// Returns a job with all ranks on one node.
fn job(size: u32) -> Job {
    let rank = |rank| RankFacts {
        app_rank: rank,
        local_rank: u16::try_from(rank).unwrap(),
        node_rank: u16::try_from(rank).unwrap(),
        ..RankFacts::default()
    };
    Job {
        nspace: proc("job-1", 0).nspace,
        session: 1,
        universe: size,
        offset: 0,
        apps: vec![AppFacts {
            size,
            ..AppFacts::default()
        }],
        nodes: vec![NodeFacts {
            name: CString::from(c"here"),
            id: 0,
            procs: size,
            oversubscribed: false,
        }],
        ranks: (0..size).map(rank).collect(),
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
    }
}

/// Returns the configuration of a rank. Each pair of ranks has its own host name, so that cards differ in both parts.
fn config(server: SocketAddr, rank: u32) -> Config {
    let host = format!("n{}", rank / 2);
    let variables = environment(
        &proc("server", 0),
        server.port(),
        &proc("job-1", rank),
        &host,
    );
    let variable = |name: &str| {
        let mut variables = variables.iter();
        let found = variables.find(|(variable, _)| *variable == name);
        found.map(|(_, value)| value.to_str().unwrap().to_owned())
    };
    Config::from_environment(variable, OWNER).unwrap()
}

/// A wrong value that a rank puts.
struct Lie {
    rank: u32,
    key: &'static str,
    value: Value,
}

/// Runs the demo on `size` ranks. Returns the output of each, or its message.
fn demo(size: u32, lie: Option<Lie>) -> Vec<String> {
    let server = Listening::new(size);
    thread::scope(|scope| {
        let running = (0..size)
            .map(|number| {
                let config = server.config(number);
                let lie = lie.as_ref().filter(|lie| lie.rank == number);
                scope.spawn(move || {
                    let mut out = Vec::new();
                    let result = match lie {
                        Some(lie) => lying_rank(config, lie),
                        None => rank(config, 100 + number, &mut out),
                    };
                    let mut text = String::from_utf8(out).unwrap();
                    if let Err(error) = result {
                        text.push_str(&message::text(&message(&error), MessageFormat::Text));
                    }
                    text
                })
            })
            .collect::<Vec<_>>();
        running
            .into_iter()
            .map(|rank| rank.join().unwrap())
            .collect()
    })
}

/// Behaves towards other ranks like a rank of the demo, but puts one wrong value.
fn lying_rank(config: Config, lie: &Lie) -> Result<(), DemoError> {
    let mut pmix = Pmix::init(config, ANSWER_WAIT)?;
    let put = |pmix: &mut Pmix, key, value| {
        let value = if key == lie.key {
            lie.value.clone()
        } else {
            value
        };
        pmix.put(key, value)
    };
    put(&mut pmix, CARD, Value::text("a card"))?;
    put(&mut pmix, PART, Value::Uint64(0))?;
    pmix.commit()?;
    pmix.fence()?;
    let left = (lie.rank + pmix.size() - 1) % pmix.size();
    let seen = pmix.get(left, CARD)?;
    put(&mut pmix, SEEN, seen)?;
    pmix.commit()?;
    pmix.fence()?;
    pmix.fence()?;
    pmix.finalize()
}

#[test]
fn four_ranks_compute_pi() {
    insta::assert_snapshot!(demo(4, None).concat(), @"
    rank 0 of 4 is process 100 on n0, reads from 3, is read by 1, adds 0.7853983422
    4 ranks closed the ring, the sum of their numbers is 6
    4 ranks computed pi: 3.1415926536, wrong by 3e-15
    rank 1 of 4 is process 101 on n0, reads from 0, is read by 2, adds 0.7853982230
    rank 2 of 4 is process 102 on n1, reads from 1, is read by 3, adds 0.7853981038
    rank 3 of 4 is process 103 on n1, reads from 2, is read by 0, adds 0.7853979846
    ");
}

#[test]
fn one_rank_is_its_own_neighbour() {
    insta::assert_snapshot!(demo(1, None).concat(), @"
    rank 0 of 1 is process 100 on n0, reads from 0, is read by 0, adds 3.1415926536
    1 rank closed the ring, the sum of their numbers is 0
    1 rank computed pi: 3.1415926536, wrong by 3e-13
    ");
}

#[test]
fn many_ranks_agree() {
    let lines = demo(33, None);
    assert!(lines[0].contains("33 ranks closed the ring, the sum of their numbers is 528\n"));
    assert!(lines[0].contains("pi: 3.1415926536,"));
    assert!(lines.iter().all(|line| !line.contains("error")));
}

#[test]
fn a_wrong_neighbour_is_noticed() {
    let text = demo(
        3,
        Some(Lie {
            rank: 1,
            key: SEEN,
            value: Value::text("n7:666"),
        }),
    );
    insta::assert_snapshot!(text[0], @"error: the demo's rank failed: rank 1 should have read `n0:100` and has read `n7:666`");
    // The server reports the loss of rank 0 to the other ranks.
    insta::assert_snapshot!(text[2], @"
    rank 2 of 3 is process 102 on n1, reads from 1, is read by 0, adds 1.0471972333
    error: the demo's rank failed: the server refused `fence`: LOST_CONNECTION (-61)
    ");
}

#[test]
fn a_damaged_value_is_noticed() {
    let text = |key, value| {
        let rank = 1;
        demo(2, Some(Lie { rank, key, value })).remove(0)
    };
    insta::assert_snapshot!(text(PART, Value::text("pi")), @r#"
    rank 0 of 2 is process 100 on n0, reads from 1, is read by 1, adds 1.5707964460
    error: the demo's rank failed: "pi" is not a value for `part` of rank 1
    "#);
    insta::assert_snapshot!(text(SEEN, Value::Uint64(666)), @"error: the demo's rank failed: 666:UINT64 is not a value for `seen` of rank 1");
}

#[test]
fn outside_a_job_it_says_how_to_start_it() {
    let cases: [&[(&str, &str)]; 4] = [
        &[],
        &[("PMIX_NAMESPACE", "job-1"), ("PMIX_RANK", "x")],
        &[("PMIX_NAMESPACE", "job-1"), ("PMIX_RANK", "0")],
        &[
            ("PMIX_NAMESPACE", "job-1"),
            ("PMIX_RANK", "0"),
            ("PMIX_SERVER_URI41", "server"),
        ],
    ];
    let text = cases.map(|variables| {
        let environment = |name: &str| {
            let found = variables.iter().find(|(variable, _)| *variable == name);
            found.map(|(_, value)| (*value).to_owned())
        };
        let error = Config::from_environment(environment, OWNER).unwrap_err();
        message::text(&message(&error.into()), MessageFormat::Text)
    });
    insta::assert_snapshot!(text.concat(), @"
    error: the demo's rank failed: its environment is not that of a rank: `PMIX_NAMESPACE` is not set
      help: start it with `rally demo`
    error: the demo's rank failed: its environment is not that of a rank: `PMIX_RANK` is not the number of a rank
      help: start it with `rally demo`
    error: the demo's rank failed: its environment is not that of a rank: `PMIX_SERVER_URI41` is not set
      help: start it with `rally demo`
    error: the demo's rank failed: its environment is not that of a rank: `PMIX_SERVER_URI41` names no server: it is not a name, `;` and an address
      help: start it with `rally demo`
    ");
}

#[test]
fn a_rank_that_does_not_come_is_not_waited_for_without_end() {
    let server = Listening::new(2);
    let mut pmix = Pmix::init(server.config(0), Duration::from_millis(50)).unwrap();
    let error = pmix.fence().unwrap_err();
    insta::assert_snapshot!(error, @"the server did not answer `fence` in time");
}

#[test]
fn the_servers_end_is_noticed() {
    let server = Listening::new(2);
    let mut pmix = Pmix::init(server.config(0), ANSWER_WAIT).unwrap();
    let connections = std::mem::take(&mut server.host.lock().unwrap().streams);
    for stream in connections.values() {
        stream.shutdown(Shutdown::Both).unwrap();
    }
    insta::assert_snapshot!(pmix.fence().unwrap_err(), @"the server closed the connection");
}

#[test]
fn nobody_at_the_address_is_noticed() {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    let address = listener.local_addr().unwrap();
    drop(listener);
    let error = rank(config(address, 0), 1, &mut Vec::new()).unwrap_err();
    assert_eq!(
        error.to_string(),
        format!("cannot connect to the server at {address}: Connection refused (os error 111)")
    );
}

/// Returns the error of rank 5 if the server sends these answers, one for each message, and then closes the connection.
fn answered_by(answers: &[&[u8]]) -> String {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    let config = config(listener.local_addr().unwrap(), 5);
    thread::scope(|scope| {
        let running = scope.spawn(|| rank(config, 1, &mut Vec::new()).unwrap_err().to_string());
        let (mut stream, _) = listener.accept().unwrap();
        for answer in answers {
            assert!(stream.read(&mut [0; 512]).unwrap() > 0);
            stream.write_all(answer).unwrap();
        }
        let _ = stream.read(&mut [0; 512]);
        drop(stream);
        running.join().unwrap()
    })
}

#[test]
fn wrong_answers_are_noticed() {
    const WELCOME: &[u8] = &[0; 8];
    // Tag 101, 26 bytes: success, the job's name, and one item of job info: the size is 2.
    const FACTS: &[u8] =
        b"\0\0\0\0\0\0\0\x65\0\0\0\x1a\0\0\0\0\x02\x0cjob-1\0\x02\x1cpmix.job.size\0\x0e\x02";
    insta::assert_snapshot!(answered_by(&[]), @"the server closed the connection");
    insta::assert_snapshot!(answered_by(&[&[0xff; 8]]), @"the server refused the connection: ERROR (-1)");
    insta::assert_snapshot!(answered_by(&[WELCOME]), @"the server closed the connection");
    insta::assert_snapshot!(answered_by(&[WELCOME, &[0xff; 16]]), @"the server broke the protocol: the length of a message exceeds its bound: 4294967295 is more than 134217728");
    insta::assert_snapshot!(answered_by(&[WELCOME, FACTS]), @"the server says that this is rank 5 of 2");
}

#[test]
fn strips_add_up_whatever_the_number_of_ranks() {
    for size in [1, 2, 7, 64] {
        let pi = (0..size).map(|rank| integrate(rank, size)).sum::<f64>();
        assert!((pi - std::f64::consts::PI).abs() < 1e-11, "{size}: {pi}");
    }
    // With more ranks than strips, the last rank has nothing to do.
    assert_eq!(integrate(STRIPS, STRIPS + 1), 0.0);
}
