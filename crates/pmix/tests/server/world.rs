//! A server with scripted peers, and all outputs.

use std::{
    collections::{BTreeMap, VecDeque},
    ffi::CString,
    time::Duration,
};

use base::{ExitStatus, Signal, Time};
use bytes::Bytes;
use pmix::{
    codec::{Format, Writer},
    frame::{self, Framer, Tag},
    handshake::{ConnectorKind, Hello, Welcome},
    message::{Answer, Command, Facts, GroupForm, Push, Request, Shape},
    server::{
        AppFacts, Ask, Config, Conn, Elsewhere, Event, Input, Job, NodeFacts, Output, PeerOwner,
        RankFacts, Redirected, Refusal, Server, Syslog, Ticket, Tools, Visitor,
    },
    value::{Info, IofChannels, Key, Kval, Nspace, Packed, PmixRank, Proc, Scope, Status, Value},
};

/// The user who runs the jobs.
pub(crate) const UID: u32 = 1000;

/// Server, its peers, and its outputs for the host.
pub(crate) struct World {
    pub(crate) server: Server,
    pub(crate) now: Time,
    links: BTreeMap<Conn, Link>,
    next: u64,
    pub(crate) asks: Vec<Ask>,
    pub(crate) events: Vec<Event>,
    pub(crate) refusals: Vec<Refusal>,
    pub(crate) lost: Vec<Proc>,
    /// Processes that wait for a debugger.
    pub(crate) ready: Vec<Proc>,
    pub(crate) wanted: Vec<(Nspace, IofChannels)>,
    pub(crate) redirected: Vec<(Nspace, Redirected)>,
    pub(crate) stdin: Vec<(Ticket, Vec<Proc>, Bytes, bool)>,
    pub(crate) log: Vec<Bytes>,
    pub(crate) syslog: Vec<(Ticket, Proc, Syslog)>,
    /// Tools that wait to be admitted.
    pub(crate) visitors: Vec<(Conn, Visitor)>,
    /// Tools whose connections have ended.
    pub(crate) left: Vec<Proc>,
    /// Outputs for other nodes.
    pub(crate) away: VecDeque<Output>,
}

/// Library version and format of a peer.
#[derive(Clone, Copy)]
pub(crate) struct Tongue {
    pub(crate) version: &'static str,
    pub(crate) codec: &'static str,
    pub(crate) buffer: u8,
}

pub(crate) const V3: Tongue = Tongue {
    version: "3.2.3",
    codec: "v3",
    buffer: 1,
};
pub(crate) const V42: Tongue = Tongue {
    version: "4.2.2",
    codec: "v41",
    buffer: 1,
};
pub(crate) const V5: Tongue = Tongue {
    version: "5.0.11",
    codec: "v41",
    buffer: 1,
};
pub(crate) const V6: Tongue = Tongue {
    version: "6.1.0",
    codec: "v61",
    buffer: 1,
};
/// Debug build of a library: every item includes its type.
pub(crate) const DESCRIBED: Tongue = Tongue {
    version: "5.0.11",
    codec: "v41",
    buffer: 2,
};

/// Peer's end of a connection.
struct Link {
    format: Format,
    form: GroupForm,
    kind: ConnectorKind,
    welcome: Vec<u8>,
    welcomed: bool,
    framer: Framer,
    asked: BTreeMap<u32, Command>,
    answers: BTreeMap<u32, Answer>,
    pushes: Vec<Push>,
    next_tag: u32,
    is_open: bool,
    /// Received bytes if the peer does not decode them, otherwise `None`.
    heard: Option<Vec<u8>>,
}

pub(crate) fn nspace(name: &str) -> Nspace {
    Nspace::from_text(name).unwrap()
}

pub(crate) fn proc(name: &str, rank: u32) -> Proc {
    Proc {
        nspace: nspace(name),
        rank: PmixRank(rank),
    }
}

pub(crate) fn all(name: &str) -> Proc {
    Proc::all(nspace(name))
}

pub(crate) fn key(text: &str) -> Key {
    Key::from_text(text).unwrap()
}

pub(crate) fn info(text: &std::ffi::CStr, value: Value) -> Info {
    Info::new(Key::new(text).unwrap(), value)
}

pub(crate) fn flag(text: &std::ffi::CStr) -> Info {
    info(text, Value::Bool(true))
}

pub(crate) fn seconds(count: i32) -> Info {
    info(pmix::keys::TIMEOUT, Value::Int(count))
}

pub(crate) fn text(text: &str) -> Option<CString> {
    CString::new(text).ok()
}

pub(crate) const KILLED: ExitStatus = ExitStatus::Signaled {
    signal: Signal::KILL,
    core_dumped: false,
};

/// Creates the facts of a job with all ranks on one node.
pub(crate) fn job(name: &str, ranks: u32) -> Job {
    Job {
        nspace: nspace(name),
        session: 1,
        universe: ranks,
        offset: 0,
        apps: vec![AppFacts {
            argv: text("program argument"),
            wdir: text("/work"),
            size: ranks,
            leader: 0,
            set: None,
        }],
        nodes: vec![NodeFacts {
            name: CString::new("node").unwrap(),
            id: 0,
            procs: ranks,
            oversubscribed: false,
        }],
        ranks: (0..ranks)
            .map(|rank| RankFacts {
                app_rank: rank,
                local_rank: rank.try_into().unwrap(),
                node_rank: rank.try_into().unwrap(),
                ..RankFacts::default()
            })
            .collect(),
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

/// Creates a commit of these keys, each with its number.
pub(crate) fn commit(format: Format, scope: Scope, values: &[(&str, u32)]) -> Request {
    let kvals = values.iter().map(|(text, number)| Kval {
        key: key(text),
        value: Value::Uint32(*number),
    });
    commit_of(format, scope, &kvals.collect::<Vec<_>>())
}

pub(crate) fn commit_of(format: Format, scope: Scope, kvals: &[Kval]) -> Request {
    let mut writer = Writer::new(format);
    writer.each(kvals);
    Request::Commit {
        buckets: vec![(
            scope,
            Packed {
                kind: format.buffer_number(),
                bytes: writer.into_bytes().into(),
            },
        )],
    }
}

pub(crate) fn get(of: &Proc, key: &str, infos: Vec<Info>) -> Request {
    Request::Get {
        nspace: of.nspace.clone(),
        rank: of.rank,
        infos,
        key: Some(self::key(key)),
    }
}

pub(crate) fn fence(procs: &[Proc]) -> Request {
    Request::Fence {
        procs: procs.to_vec(),
        infos: Vec::new(),
    }
}

impl World {
    /// Creates a server with these jobs.
    pub(crate) fn new(jobs: &[(&str, u32)]) -> Self {
        let mut world = Self::on(0, (1, 1));
        for (name, ranks) in jobs {
            world.handle(Input::Register(Box::new(job(name, *ranks))));
        }
        world
    }

    /// Creates the server of a node. It assigns these context ids to groups.
    pub(crate) fn on(node: u32, context: (u64, u64)) -> Self {
        Self::with(node, context, Tools::Refused)
    }

    /// Creates a server with one job `a` of two ranks, which admits tools.
    pub(crate) fn with_door() -> Self {
        let mut world = Self::with(0, (1, 1), Tools::Admitted);
        world.handle(Input::Register(Box::new(job("a", 2))));
        world
    }

    fn with(node: u32, context: (u64, u64), tools: Tools) -> Self {
        let server = Server::new(Config {
            identity: proc("server", node),
            uid: UID,
            gid: UID,
            port: 5000,
            context,
            tools,
        });
        Self {
            server,
            now: Time::ZERO,
            links: BTreeMap::new(),
            next: 0,
            asks: Vec::new(),
            events: Vec::new(),
            refusals: Vec::new(),
            lost: Vec::new(),
            ready: Vec::new(),
            wanted: Vec::new(),
            redirected: Vec::new(),
            stdin: Vec::new(),
            log: Vec::new(),
            syslog: Vec::new(),
            visitors: Vec::new(),
            left: Vec::new(),
            away: VecDeque::new(),
        }
    }

    /// Creates a server with one job `a` whose ranks are all connected.
    pub(crate) fn of(ranks: u32) -> (Self, Vec<Conn>) {
        let mut world = Self::new(&[("a", ranks)]);
        let conns = (0..ranks).map(|rank| world.connect("a", rank)).collect();
        (world, conns)
    }

    /// Processes an input, and sorts the outputs.
    pub(crate) fn handle(&mut self, input: Input<'_>) {
        self.server.handle(self.now, input);
        while let Some(output) = self.server.poll() {
            match output {
                Output::Send { conn, bytes } => self.links.get_mut(&conn).unwrap().take(&bytes),
                Output::Close { conn } => {
                    let link = self.links.get_mut(&conn).unwrap();
                    assert!(link.is_open, "it is closed twice");
                    link.is_open = false;
                }
                Output::Ask(ask) => self.asks.push(*ask),
                Output::Event { event, elsewhere } => {
                    if elsewhere != Elsewhere::Nowhere {
                        let event = event.clone();
                        self.away.push_back(Output::Event { event, elsewhere });
                    }
                    self.events.push(*event);
                }
                Output::Refused { error, .. } => self.refusals.push(error),
                Output::Lost { proc } => self.lost.push(proc),
                Output::Ready { proc } => self.ready.push(proc),
                Output::Wanted { nspace, channels } => self.wanted.push((nspace, channels)),
                Output::Redirected { nspace, redirected } => {
                    self.redirected.push((nspace, redirected));
                }
                Output::Stdin {
                    ticket,
                    to,
                    bytes,
                    is_last,
                    ..
                } => self.stdin.push((ticket, to, bytes, is_last)),
                Output::Log { text, .. } => self.log.push(text),
                Output::Syslog { ticket, from, log } => self.syslog.push((ticket, from, *log)),
                Output::ToolConnects { conn, visitor } => self.visitors.push((conn, visitor)),
                Output::ToolLeft { tool } => self.left.push(tool),
                Output::Connected { .. } | Output::Finalized { .. } => {}
                output @ (Output::Gather { .. }
                | Output::Waits { .. }
                | Output::Forgotten { .. }
                | Output::NoShare { .. }
                | Output::Withdrawn { .. }
                | Output::MembersGone
                | Output::Declined { .. }
                | Output::Question { .. }
                | Output::NoLongerAsked { .. }
                | Output::QuestionAnswered { .. }) => self.away.push_back(output),
            }
        }
    }

    /// Returns the answer to the handshake.
    pub(crate) fn welcome(&self, conn: Conn) -> Option<Welcome> {
        let link = &self.links[&conn];
        let decoded = Welcome::decode(link.kind, &link.welcome).unwrap();
        decoded.map(|(welcome, _)| welcome)
    }

    /// Creates a connection without a handshake.
    pub(crate) fn accept(&mut self, owner: PeerOwner) -> Conn {
        let conn = self.link(false);
        self.handle(Input::Accepted { conn, owner });
        conn
    }

    /// Creates a connection to a tool that has started the launcher.
    pub(crate) fn call(&mut self, tool: Proc) -> Conn {
        let conn = self.link(true);
        let version = Some([5, 0, 0]);
        self.handle(Input::Called {
            conn,
            tool,
            version,
        });
        conn
    }

    fn link(&mut self, welcomed: bool) -> Conn {
        let conn = Conn(self.next);
        self.next += 1;
        self.links.insert(
            conn,
            Link {
                format: Format::V4,
                form: GroupForm::Members,
                kind: ConnectorKind::Client,
                welcome: Vec::new(),
                welcomed,
                framer: Framer::default(),
                asked: BTreeMap::new(),
                answers: BTreeMap::new(),
                pushes: Vec::new(),
                next_tag: 101,
                is_open: true,
                heard: None,
            },
        );
        conn
    }

    /// Makes a peer keep received bytes instead of decoding them, because it sends data that the test does not decode.
    pub(crate) fn deaf(&mut self, conn: Conn) {
        self.links.get_mut(&conn).unwrap().heard = Some(Vec::new());
    }

    /// Returns the bytes that were sent to a deaf peer.
    pub(crate) fn heard(&mut self, conn: Conn) -> Vec<u8> {
        let heard = &mut self.links.get_mut(&conn).unwrap().heard;
        std::mem::take(heard.as_mut().unwrap())
    }

    /// Sends the handshake on a connection.
    pub(crate) fn hello(&mut self, conn: Conn, hello: &Hello) {
        let link = self.links.get_mut(&conn).unwrap();
        link.kind = hello.kind;
        if let Ok(format) = hello.format() {
            link.format = format;
        }
        link.form = GroupForm::of_version(hello.version_numbers());
        self.bytes(conn, &frame::handshake(&hello.encode()));
    }

    /// Connects a process.
    pub(crate) fn connect_as(&mut self, name: &str, rank: u32, tongue: Tongue) -> Conn {
        let conn = self.accept(PeerOwner::Uid(UID));
        self.hello(conn, &hello(name, rank, tongue));
        assert!(self.links[&conn].welcomed, "{name}:{rank} is not welcome");
        conn
    }

    pub(crate) fn connect(&mut self, name: &str, rank: u32) -> Conn {
        self.connect_as(name, rank, V5)
    }

    pub(crate) fn bytes(&mut self, conn: Conn, bytes: &[u8]) {
        self.handle(Input::Bytes { conn, bytes });
    }

    /// Sends a request and returns its tag.
    pub(crate) fn send(&mut self, conn: Conn, request: &Request) -> u32 {
        let bytes = self.message(conn, request);
        let tag = self.links[&conn].next_tag - 1;
        self.bytes(conn, &bytes);
        tag
    }

    /// Encodes a request without sending it.
    pub(crate) fn message(&mut self, conn: Conn, request: &Request) -> Vec<u8> {
        let link = self.links.get_mut(&conn).unwrap();
        let tag = link.next_tag;
        link.next_tag += 1;
        if Shape::of(request.command(), link.form) != Shape::Nothing {
            link.asked.insert(tag, request.command());
        }
        let mut writer = Writer::appending_to(link.format, frame::start(0));
        request.encode(&mut writer);
        frame::finish(writer.into_bytes(), Tag::Request(tag))
    }

    /// Records a request that the test has sent as bytes.
    pub(crate) fn expect_answer(&mut self, conn: Conn, tag: u32, command: Command) {
        let link = self.links.get_mut(&conn).unwrap();
        link.asked.insert(tag, command);
    }

    /// Returns the answer to a request, if it has arrived.
    pub(crate) fn answer(&mut self, conn: Conn, tag: u32) -> Option<Answer> {
        self.links.get_mut(&conn).unwrap().answers.remove(&tag)
    }

    /// Returns all answers that have arrived, by tag.
    pub(crate) fn answers(&mut self, conn: Conn) -> BTreeMap<u32, Answer> {
        std::mem::take(&mut self.links.get_mut(&conn).unwrap().answers)
    }

    /// Returns the requests without an answer, by tag.
    pub(crate) fn unanswered(&self, conn: Conn) -> &BTreeMap<u32, Command> {
        &self.links[&conn].asked
    }

    /// Returns the status of the answer to a request, if it has arrived.
    pub(crate) fn status(&mut self, conn: Conn, tag: u32) -> Option<Status> {
        self.answer(conn, tag).map(|answer| answer.status())
    }

    /// Sends a request that must be answered immediately.
    pub(crate) fn ask(&mut self, conn: Conn, request: &Request) -> Answer {
        let tag = self.send(conn, request);
        self.answer(conn, tag)
            .unwrap_or_else(|| panic!("{request:?} is not answered at once"))
    }

    /// Sends a request that must be answered immediately, and returns the status.
    pub(crate) fn status_of(&mut self, conn: Conn, request: &Request) -> Status {
        self.ask(conn, request).status()
    }

    pub(crate) fn pushes(&mut self, conn: Conn) -> Vec<Push> {
        std::mem::take(&mut self.links.get_mut(&conn).unwrap().pushes)
    }

    /// Returns the codes of the pushed events.
    pub(crate) fn codes(&mut self, conn: Conn) -> Vec<Status> {
        let pushes = self.pushes(conn);
        pushes
            .iter()
            .filter_map(|push| match push {
                Push::Event { status, .. } => Some(*status),
                Push::Output { .. } => None,
            })
            .collect()
    }

    pub(crate) fn format(&self, conn: Conn) -> Format {
        self.links[&conn].format
    }

    pub(crate) fn is_open(&self, conn: Conn) -> bool {
        self.links[&conn].is_open
    }

    /// Closes the connection from the peer's side.
    pub(crate) fn close(&mut self, conn: Conn) {
        self.links.get_mut(&conn).unwrap().is_open = false;
        self.handle(Input::Closed { conn });
    }

    pub(crate) fn finalize(&mut self, conn: Conn) {
        assert_eq!(self.status_of(conn, &Request::Finalize), Status::SUCCESS);
        self.close(conn);
    }

    pub(crate) fn end(&mut self, name: &str, rank: u32, status: ExitStatus) {
        let proc = proc(name, rank);
        self.handle(Input::Ended { proc, status });
    }

    /// Lets time pass, and runs all timers that expire.
    pub(crate) fn pass(&mut self, duration: Duration) {
        let until = self.now + duration;
        while let Some(at) = self.server.deadline().filter(|at| *at <= until) {
            self.now = self.now.max(at);
            self.handle(Input::Tick);
        }
        self.now = until;
    }

    /// Commits numbers under keys, and checks for success.
    pub(crate) fn put(&mut self, conn: Conn, values: &[(&str, u32)]) {
        let request = commit(self.format(conn), Scope::GLOBAL, values);
        assert_eq!(self.status_of(conn, &request), Status::SUCCESS);
    }

    /// Answers the only request that the host has got.
    pub(crate) fn reply(&mut self, answer: Answer) {
        let ask = self.asks.pop().unwrap();
        assert!(self.asks.is_empty());
        let ticket = ask.ticket;
        self.handle(Input::Answer { ticket, answer });
    }

    pub(crate) fn register(&mut self, conn: Conn, codes: &[Status]) {
        let request = Request::Register {
            codes: codes.to_vec(),
            infos: Vec::new(),
        };
        assert_eq!(self.status_of(conn, &request), Status::SUCCESS);
    }

    /// Closes all connections, and checks that no state remains.
    pub(crate) fn assert_no_state_left(mut self) {
        let open: Vec<Conn> = self.links.keys().copied().collect();
        for conn in open {
            self.handle(Input::Closed { conn });
        }
        self.pass(Duration::from_secs(10));
        assert!(self.server.is_quiet(), "something waits: {:?}", self.server);
        assert_eq!(self.server.deadline(), None);
    }
}

pub(crate) fn hello(name: &str, rank: u32, tongue: Tongue) -> Hello {
    let c_string = |text: &str| CString::new(text).unwrap();
    Hello {
        security: c_string("native"),
        credential: Bytes::from_static(&[0; 8]),
        kind: ConnectorKind::Client,
        owner: None,
        proc: Some(proc(name, rank)),
        version: c_string(tongue.version),
        codec: c_string(tongue.codec),
        buffer: tongue.buffer,
        store: c_string("hash"),
        rest: Bytes::new(),
    }
}

impl Link {
    fn take(&mut self, bytes: &[u8]) {
        if let Some(heard) = &mut self.heard {
            heard.extend_from_slice(bytes);
            return;
        }
        if self.welcomed {
            self.framer.push(bytes);
        } else {
            self.welcome.extend_from_slice(bytes);
            let Some((welcome, length)) = Welcome::decode(self.kind, &self.welcome).unwrap() else {
                return;
            };
            if matches!(welcome, Welcome::Refused(_)) {
                return;
            }
            self.welcomed = true;
            self.framer.push(&self.welcome[length..]);
        }
        while let Some(frame) = self.framer.next_frame().unwrap() {
            if let Some(push) = Push::decode(self.format, frame.tag, &frame.payload).unwrap() {
                self.pushes.push(push);
                continue;
            }
            let Tag::Request(tag) = frame.tag else {
                panic!("{:?} from a server", frame.tag);
            };
            let command = self.asked.remove(&tag);
            let command = command.unwrap_or_else(|| panic!("nobody has asked {tag}, or not twice"));
            let shape = Shape::of(command, self.form);
            let answer = Answer::decode(self.format, shape, &frame.payload).unwrap();
            assert!(self.answers.insert(tag, answer).is_none());
        }
    }
}

/// Returns the values of a process in the answer to a get.
pub(crate) fn values_of(format: Format, answer: &Answer, of: &Proc) -> BTreeMap<String, Value> {
    let Answer::Buffers { status, buffers } = answer else {
        panic!("{answer:?} has no buffers");
    };
    assert_eq!(*status, Status::SUCCESS);
    let facts = buffers
        .iter()
        .map(|buffer| Facts::<Proc>::decode(format, buffer).unwrap())
        .find(|facts| facts.owner == *of)
        .unwrap();
    facts
        .facts
        .into_iter()
        .map(|kval| (kval.key.to_string(), kval.value))
        .collect()
}
