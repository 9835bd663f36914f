//! The PMIx server with three jobs, against well-behaved clients of every version, raw bytes, and a host with bad
//! timing: whatever happens, no question is answered twice, nothing is sent to who is not there, and when all have gone
//! nothing waits.
#![no_main]

use std::{
    collections::{BTreeMap, BTreeSet},
    ffi::CString,
    time::Duration,
};

use arbitrary::Arbitrary;
use base::{ExitStatus, Signal, Time};
use bytes::Bytes;
use libfuzzer_sys::fuzz_target;
use pmix::{
    codec::{Format, Writer},
    frame::{self, Framer, Tag},
    handshake::{ConnectorKind, Hello, Owner, Welcome},
    keys,
    message::{Answer, Command, GroupForm, Push, Request, Shape},
    server::{
        AppFacts, Config, Conn, Event, Input, Job, Keeping, MAX_CACHED_EVENTS, NodeFacts, Output,
        PeerOwner, RankFacts, Server, Ticket, Tools,
    },
    value::{
        Info, InfoFlags, IofChannels, Key, Kval, Nspace, Packed, PmixRank, Proc, Query, Range,
        Scope, Status, Value,
    },
};

const JOBS: u8 = 3;
const RANKS: u8 = 3;
const UID: u32 = 1000;
/// What the bytes of an input can describe is looked at no further.
const OPS_MAX: usize = 256;

#[derive(Arbitrary, Debug)]
enum Op<'a> {
    Connect {
        job: u8,
        rank: u8,
        tongue: u8,
        kind: u8,
    },
    Stranger,
    Ask {
        conn: u8,
        ask: Ask,
    },
    /// What no library would say; from then on the connection is held to nothing.
    Raw {
        conn: u8,
        bytes: &'a [u8],
    },
    Heartbeat(u8),
    Close(u8),
    Ended {
        job: u8,
        rank: u8,
        status: u8,
    },
    Ending(u8),
    Deregister(u8),
    Register {
        job: u8,
        parent: Option<u8>,
        forward: Option<u8>,
    },
    Pass(u8),
    /// The host answers one of its questions, or one that it was not asked.
    Answer {
        which: u8,
        how: u8,
    },
    HostEvent {
        code: u8,
        range: u8,
    },
    Output {
        job: u8,
        rank: u8,
        channels: u8,
        length: u8,
    },
}

/// A question, in which small numbers stand for names, processes and directives, so that they meet.
#[derive(Arbitrary, Debug)]
enum Ask {
    JobInfo,
    Abort,
    Commit {
        scope: u8,
        key: u8,
        value: u16,
        qualified: bool,
    },
    Get {
        of: u8,
        key: u8,
        with: u16,
    },
    Fence {
        procs: u16,
        with: u16,
    },
    Connect {
        procs: u16,
        with: u16,
    },
    Disconnect {
        procs: u16,
        with: u16,
    },
    Construct {
        group: u8,
        procs: u16,
        with: u16,
        added: u16,
    },
    Destruct {
        group: u8,
        procs: Option<u16>,
    },
    Leave(u8),
    Publish,
    Lookup,
    Notify {
        code: u8,
        range: u8,
        with: u16,
        to: u16,
    },
    Register {
        codes: u8,
        about: u16,
    },
    Deregister(u8),
    Query {
        key: u8,
        of: u8,
    },
    Monitor {
        seconds: u8,
        cancel: bool,
    },
    Pull {
        procs: u16,
        channels: u8,
        id: u8,
    },
    StopPulling(u8),
    Push {
        bytes: u8,
        with: u16,
    },
    Refresh(u8),
    ResolvePeers(u8),
    ResolveNode(u8),
    Log,
    Credential,
    Opaque,
    Finalize,
}

fn nspace(job: u8) -> Nspace {
    Nspace::from_text(&format!("job-{}", job % JOBS)).unwrap()
}

fn group(number: u8) -> CString {
    CString::new(format!("group {}", number % 3)).unwrap()
}

fn key(number: u8) -> Key {
    let keys = [
        "key",
        "other",
        "pmix.job.size",
        "pmix.lrank",
        "pmix.hname",
        "pmix.grp.lclid",
        "pmix.no.such.fact",
    ];
    Key::from_text(keys[usize::from(number) % keys.len()]).unwrap()
}

/// The one process of a number: of a job or a group, or all of it, or none that there is.
fn proc(number: u8) -> Proc {
    let ranks = [
        0,
        1,
        2,
        RANKS.into(),
        PmixRank::WILDCARD.0,
        PmixRank::UNDEF.0,
        PmixRank::LOCAL_PEERS.0,
    ];
    let rank = PmixRank(ranks[usize::from(number / 7) % ranks.len()]);
    let name = number % 7;
    if name < JOBS {
        Proc {
            nspace: nspace(name),
            rank,
        }
    } else {
        Proc {
            nspace: Nspace::new(&group(name)).unwrap(),
            rank,
        }
    }
}

/// The processes of a set of bits.
fn procs(bits: u16) -> Vec<Proc> {
    let mut procs = Vec::new();
    for bit in 0..16_u8 {
        if bits & (1 << bit) == 0 {
            continue;
        }
        procs.push(match bit {
            0..9 => Proc {
                nspace: nspace(bit / RANKS),
                rank: PmixRank((bit % RANKS).into()),
            },
            9..12 => Proc::all(nspace(bit - 9)),
            12..15 => Proc::all(Nspace::new(&group(bit - 12)).unwrap()),
            _ => proc(21),
        });
    }
    procs
}

fn info(key: &std::ffi::CStr, value: Value) -> Info {
    Info::new(Key::new(key).unwrap(), value)
}

/// The directives of a set of bits.
fn infos(bits: u16) -> Vec<Info> {
    let qualifier = || {
        let mut qualifier = info(keys::GROUP_CONTEXT_ID, Value::Size(1));
        qualifier.flags = InfoFlags::QUALIFIER;
        qualifier
    };
    let handed = || Value::infos(vec![info(c"key", Value::Uint32(1))]);
    let order = || Value::procs(procs(0b1_1100_0000));
    let all: [&dyn Fn() -> Info; 16] = [
        &|| info(keys::TIMEOUT, Value::Int(1)),
        &|| info(keys::TIMEOUT, Value::Int(-1)),
        &|| info(keys::COLLECT_DATA, Value::Bool(true)),
        &|| info(keys::IMMEDIATE, Value::Undef),
        &|| info(keys::GROUP_ASSIGN_CONTEXT_ID, Value::Bool(true)),
        &|| info(keys::GROUP_OPTIONAL, Value::Bool(true)),
        &|| info(keys::GROUP_NOTIFY_TERMINATION, Value::Bool(true)),
        &|| info(keys::GROUP_BOOTSTRAP, Value::Size(2)),
        &|| info(keys::GROUP_INFO, handed()),
        &|| info(keys::GROUP_FINAL_ORDER, order()),
        &qualifier,
        &|| info(keys::EVENT_NON_DEFAULT, Value::Bool(true)),
        &|| info(keys::EVENT_DO_NOT_CACHE, Value::Bool(true)),
        &|| info(keys::EVENT_AFFECTED_PROC, Value::Proc(Box::new(proc(0)))),
        &|| info(keys::GROUP_ID, Value::String(Some(group(0)))),
        &|| info(keys::IOF_COMPLETE, Value::Bool(true)),
    ];
    let set = all
        .iter()
        .enumerate()
        .filter(|(bit, _)| bits & (1 << bit) != 0);
    set.map(|(_, make)| make()).collect()
}

fn code(number: u8) -> Status {
    let codes = [
        Status(-3000),
        Status(-3001),
        Status::GROUP_CONSTRUCT_COMPLETE,
        Status::PROC_ABORTED_BY_SIG,
        Status::PROC_TERM_WO_SYNC,
        Status::GROUP_MEMBER_FAILED,
        Status::DEFAULT_HANDLER,
    ];
    codes[usize::from(number) % codes.len()]
}

/// The codes of a set of bits.
fn codes(bits: u8) -> Vec<Status> {
    (0..8)
        .filter(|bit| bits & (1 << bit) != 0)
        .map(code)
        .collect()
}

impl Ask {
    fn request(&self, format: Format) -> Request {
        match self {
            Self::JobInfo => Request::JobInfo,
            Self::Abort => Request::Abort {
                status: Status(1),
                message: None,
                procs: Vec::new(),
            },
            Self::Commit {
                scope,
                key: name,
                value,
                qualified,
            } => {
                let mut kval = Kval {
                    key: key(*name),
                    value: Value::Uint16(*value),
                };
                if *qualified {
                    let infos = vec![Info::new(kval.key, kval.value), infos(1 << 10).remove(0)];
                    let key = Key::new(keys::QUALIFIED_VALUE).unwrap();
                    kval = Kval {
                        key,
                        value: Value::infos(infos),
                    };
                }
                let mut writer = Writer::new(format);
                writer.item(&kval);
                let packed = Packed {
                    kind: format.buffer_number(),
                    bytes: writer.into_bytes().into(),
                };
                Request::Commit {
                    buckets: vec![(Scope(scope % 5), packed)],
                }
            }
            Self::Get {
                of,
                key: name,
                with,
            } => {
                let Proc { nspace, rank } = proc(*of);
                let key = (name % 8 != 7).then(|| key(*name));
                Request::Get {
                    nspace,
                    rank,
                    infos: infos(*with),
                    key,
                }
            }
            Self::Fence { procs: set, with } => Request::Fence {
                procs: procs(*set),
                infos: infos(*with),
            },
            Self::Connect { procs: set, with } => Request::Connect {
                procs: procs(*set),
                infos: infos(*with),
                data: Vec::new(),
            },
            Self::Disconnect { procs: set, with } => Request::Disconnect {
                procs: procs(*set),
                infos: infos(*with),
            },
            Self::Construct {
                group: name,
                procs: set,
                with,
                added,
            } => {
                let mut infos = infos(*with);
                if *added != 0 {
                    infos.push(info(keys::GROUP_ADD_MEMBERS, Value::procs(procs(*added))));
                }
                Request::GroupConstruct {
                    group: Some(group(*name)),
                    procs: procs(*set),
                    infos,
                }
            }
            Self::Destruct {
                group: name,
                procs: set,
            } => Request::GroupDestruct {
                group: Some(group(*name)),
                procs: set.map(procs),
                infos: Vec::new(),
            },
            Self::Leave(name) => Request::GroupLeave {
                group: Some(group(*name)),
                infos: Vec::new(),
            },
            Self::Publish => Request::Publish {
                uid: UID,
                infos: Vec::new(),
            },
            Self::Lookup => Request::Lookup {
                uid: UID,
                keys: vec![key(0)],
                infos: Vec::new(),
            },
            Self::Notify {
                code: number,
                range,
                with,
                to,
            } => {
                let mut infos = infos(*with);
                if *to != 0 {
                    infos.push(info(keys::EVENT_CUSTOM_RANGE, Value::procs(procs(*to))));
                }
                Request::Notify {
                    status: code(*number),
                    range: Range(range % 8),
                    infos,
                }
            }
            Self::Register { codes: bits, about } => {
                let mut infos = Vec::new();
                if *about != 0 {
                    infos.push(info(
                        keys::EVENT_AFFECTED_PROCS,
                        Value::procs(procs(*about)),
                    ));
                }
                Request::Register {
                    codes: codes(*bits),
                    infos,
                }
            }
            Self::Deregister(bits) => Request::Deregister {
                codes: codes(*bits),
            },
            Self::Query { key: number, of } => {
                let keys = [
                    keys::QUERY_NAMESPACES,
                    keys::QUERY_NAMESPACE_INFO,
                    keys::QUERY_PROC_TABLE,
                    keys::QUERY_GROUP_NAMES,
                    keys::QUERY_GROUP_MEMBERSHIP,
                    keys::JOB_SIZE,
                    keys::HOSTNAME,
                ];
                let name = Value::String(Some(nspace(*of).as_c_str().to_owned()));
                let query = Query {
                    keys: vec![
                        Some(keys[usize::from(*number) % keys.len()].to_owned()),
                        None,
                    ],
                    qualifiers: vec![
                        info(keys::NSPACE, name),
                        info(keys::GROUP_ID, Value::String(Some(group(*of)))),
                        info(keys::RANK, Value::Rank(proc(*of).rank)),
                    ],
                };
                Request::Query {
                    queries: vec![query],
                }
            }
            Self::Monitor { seconds, cancel } => Request::Monitor {
                monitor: info(
                    if *cancel {
                        keys::MONITOR_CANCEL
                    } else {
                        keys::MONITOR_HEARTBEAT
                    },
                    Value::Undef,
                ),
                error: Status::SUCCESS,
                infos: vec![info(keys::MONITOR_HEARTBEAT_TIME, Value::Uint8(*seconds))],
            },
            Self::Pull {
                procs: set,
                channels,
                id,
            } => Request::IofPull {
                procs: procs(*set),
                infos: Vec::new(),
                channels: IofChannels((*channels).into()),
                id: (*id).into(),
            },
            Self::StopPulling(id) => Request::IofDeregister {
                infos: Vec::new(),
                id: (*id).into(),
            },
            Self::Push { bytes, with } => Request::IofPush {
                procs: procs(1),
                infos: infos(*with),
                bytes: Some(vec![0; (*bytes).into()].into()),
            },
            Self::Refresh(of) => {
                let Proc { nspace, rank } = proc(*of);
                Request::RefreshCache { nspace, rank }
            }
            Self::ResolvePeers(of) => Request::ResolvePeers {
                node: None,
                nspace: Some(proc(*of).nspace.as_c_str().to_owned()),
            },
            Self::ResolveNode(of) => Request::ResolveNode {
                nspace: Some(proc(*of).nspace.as_c_str().to_owned()),
            },
            Self::Log => Request::Log {
                time: 0,
                data: vec![info(keys::LOG_STDERR, Value::text("x"))],
                directives: Vec::new(),
            },
            Self::Credential => Request::GetCredential { infos: Vec::new() },
            Self::Opaque => Request::Opaque {
                command: Command::ResourceBlock,
                payload: Bytes::new(),
            },
            Self::Finalize => Request::Finalize,
        }
    }
}

struct Link {
    format: Format,
    form: GroupForm,
    kind: ConnectorKind,
    framer: Framer,
    welcome: Vec<u8>,
    welcomed: bool,
    /// It has never sent what no library would say: what comes back is looked at.
    honest: bool,
    open: bool,
    asked: BTreeMap<u32, Command>,
    next_tag: u32,
}

struct World {
    server: Server,
    now: Time,
    links: BTreeMap<Conn, Link>,
    tickets: BTreeSet<Ticket>,
    /// Namespaces of the tools that were admitted.
    tools: BTreeSet<Nspace>,
}

fn job(number: u8) -> Job {
    Job {
        nspace: nspace(number),
        session: 1,
        universe: RANKS.into(),
        offset: 0,
        apps: vec![AppFacts {
            size: RANKS.into(),
            ..AppFacts::default()
        }],
        nodes: vec![NodeFacts {
            name: c"node".to_owned(),
            id: 0,
            procs: RANKS.into(),
            oversubscribed: false,
        }],
        ranks: (0..RANKS)
            .map(|rank| RankFacts {
                app_rank: rank.into(),
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

impl World {
    fn new() -> Self {
        let server = Server::new(Config {
            identity: Proc {
                nspace: Nspace::from_text("server").unwrap(),
                rank: PmixRank(0),
            },
            uid: UID,
            gid: UID,
            port: 5000,
            context: (1, 1),
            tools: Tools::Admitted,
        });
        let mut world = Self {
            server,
            now: Time::ZERO,
            links: BTreeMap::new(),
            tickets: BTreeSet::new(),
            tools: BTreeSet::new(),
        };
        for number in 0..JOBS {
            world.handle(Input::Register(Box::new(job(number))));
        }
        world
    }

    fn handle(&mut self, input: Input<'_>) {
        self.server.handle(self.now, input);
        let asked: usize = self.links.values().map(|link| link.asked.len()).sum();
        // Everybody's questions, and all that is kept for each.
        let most = 64 + asked + self.links.len() * (MAX_CACHED_EVENTS + 8);
        let mut count = 0;
        while let Some(output) = self.server.poll() {
            count += 1;
            assert!(count <= most, "{count} outputs of one input");
            match output {
                Output::Send { conn, bytes } => {
                    let link = self
                        .links
                        .get_mut(&conn)
                        .expect("a connection that there is");
                    assert!(
                        link.open,
                        "something is sent to a connection that is closed"
                    );
                    link.take(&bytes);
                }
                Output::Close { conn } => {
                    let link = self
                        .links
                        .get_mut(&conn)
                        .expect("a connection that there is");
                    assert!(link.open, "a connection is closed twice");
                    link.open = false;
                }
                Output::Ask(ask) => assert!(self.tickets.insert(ask.ticket)),
                Output::Stdin { ticket, .. } | Output::Syslog { ticket, .. } => {
                    assert!(self.tickets.insert(ticket));
                }
                Output::ToolConnects { conn, visitor } => {
                    let name = visitor.name.unwrap_or_else(|| {
                        let nspace = Nspace::from_text(&format!("server@{}", conn.0)).unwrap();
                        Proc {
                            nspace,
                            rank: PmixRank(0),
                        }
                    });
                    assert!(
                        self.tools.insert(name.nspace.clone()),
                        "two tools have a name"
                    );
                    let admitted = Input::ToolAdmitted {
                        conn,
                        name: Ok(name),
                    };
                    self.server.handle(self.now, admitted);
                }
                Output::ToolLeft { tool } => {
                    assert!(self.tools.remove(&tool.nspace), "a tool leaves twice");
                }
                Output::Connected { .. }
                | Output::Finalized { .. }
                | Output::Lost { .. }
                | Output::Event { .. }
                | Output::Wanted { .. }
                | Output::Redirected { .. }
                | Output::Ready { .. }
                | Output::Log { .. }
                | Output::Refused { .. } => {}
                Output::Gather { .. }
                | Output::Waits { .. }
                | Output::Forgotten { .. }
                | Output::NoShare { .. }
                | Output::Withdrawn { .. }
                | Output::MembersGone
                | Output::Declined { .. }
                | Output::Question { .. }
                | Output::NoLongerAsked { .. }
                | Output::QuestionAnswered { .. } => panic!("this job has one node"),
            }
        }
    }

    fn accept(&mut self, owner: PeerOwner) -> Conn {
        let conn = Conn(self.links.len() as u64);
        let link = Link {
            format: Format::V4,
            form: GroupForm::Members,
            kind: ConnectorKind::Client,
            framer: Framer::default(),
            welcome: Vec::new(),
            welcomed: false,
            honest: true,
            open: true,
            asked: BTreeMap::new(),
            next_tag: 101,
        };
        self.links.insert(conn, link);
        self.handle(Input::Accepted { conn, owner });
        conn
    }

    fn connect(&mut self, job: u8, rank: u8, tongue: u8, kind: u8) {
        let tongues = [
            (c"5.0.11", c"v41", 1),
            (c"3.2.3", c"v3", 1),
            (c"4.2.2", c"v41", 1),
            (c"6.1.0", c"v61", 1),
            (c"5.0.11", c"v41", 2),
            (c"4.2.9", c"v4", 1),
        ];
        let (version, codec, buffer) = tongues[usize::from(tongue) % tongues.len()];
        let kind = match kind {
            0..200 => ConnectorKind::Client,
            200..220 => ConnectorKind::ClientTool,
            220..230 => ConnectorKind::Tool,
            _ => ConnectorKind::NamedTool,
        };
        let name = Proc {
            nspace: match kind {
                ConnectorKind::NamedTool => Nspace::from_text(&format!("tool-{job}")).unwrap(),
                _ => nspace(job),
            },
            rank: PmixRank((rank % (RANKS + 1)).into()),
        };
        let hello = Hello {
            security: c"native".to_owned(),
            credential: Bytes::from_static(&[0; 8]),
            kind,
            owner: (kind != ConnectorKind::Client).then_some(Owner { uid: UID, gid: UID }),
            proc: (kind != ConnectorKind::Tool).then_some(name),
            version: version.to_owned(),
            codec: codec.to_owned(),
            buffer,
            store: c"hash".to_owned(),
            rest: Bytes::new(),
        };
        let conn = self.accept(PeerOwner::Uid(UID));
        let link = self.links.get_mut(&conn).unwrap();
        link.kind = kind;
        link.format = hello.format().unwrap();
        link.form = GroupForm::of_version(hello.version_numbers());
        let bytes = frame::handshake(&hello.encode());
        self.handle(Input::Bytes {
            conn,
            bytes: &bytes,
        });
    }

    fn ask(&mut self, conn: Conn, ask: &Ask) {
        let link = self.links.get_mut(&conn).unwrap();
        if !link.open || !link.welcomed {
            return;
        }
        let request = ask.request(link.format);
        let tag = link.next_tag;
        link.next_tag += 1;
        if Shape::of(request.command(), link.form) != Shape::Nothing || !link.honest {
            link.asked.insert(tag, request.command());
        }
        let mut writer = Writer::appending_to(link.format, frame::start(0));
        request.encode(&mut writer);
        let bytes = frame::finish(writer.into_bytes(), Tag::Request(tag));
        self.handle(Input::Bytes {
            conn,
            bytes: &bytes,
        });
    }

    fn close(&mut self, conn: Conn) {
        let link = self.links.get_mut(&conn).unwrap();
        link.open = false;
        self.handle(Input::Closed { conn });
    }

    fn pass(&mut self, duration: Duration) {
        let until = self.now + duration;
        let mut ticks = 0;
        while let Some(at) = self.server.deadline().filter(|at| *at <= until) {
            self.now = self.now.max(at);
            self.handle(Input::Tick);
            ticks += 1;
            assert!(ticks < 10_000, "time does not pass");
        }
        self.now = until;
    }

    fn carry_out(&mut self, op: &Op<'_>) {
        let count = self.links.len();
        let conn = |number: u8| (count > 0).then(|| Conn(u64::from(number) % count.max(1) as u64));
        let proc = |job: u8, rank: u8| Proc {
            nspace: nspace(job),
            rank: PmixRank((rank % (RANKS + 1)).into()),
        };
        match op {
            Op::Connect {
                job,
                rank,
                tongue,
                kind,
            } => self.connect(*job, *rank, *tongue, *kind),
            Op::Stranger => {
                self.accept(PeerOwner::Unknown);
            }
            Op::Ask { conn: number, ask } => {
                if let Some(conn) = conn(*number) {
                    self.ask(conn, ask);
                }
            }
            Op::Raw {
                conn: number,
                bytes,
            } => {
                if let Some(conn) = conn(*number) {
                    let link = self.links.get_mut(&conn).unwrap();
                    link.honest = false;
                    if link.open {
                        self.handle(Input::Bytes { conn, bytes });
                    }
                }
            }
            Op::Heartbeat(number) => {
                if let Some(conn) = conn(*number)
                    && self.links[&conn].welcomed
                    && self.links[&conn].open
                {
                    let bytes = frame::finish(frame::start(0), Tag::Heartbeat);
                    self.handle(Input::Bytes {
                        conn,
                        bytes: &bytes,
                    });
                }
            }
            Op::Close(number) => {
                if let Some(conn) = conn(*number) {
                    self.close(conn);
                }
            }
            Op::Ended { job, rank, status } => {
                let status = match status % 3 {
                    0 => ExitStatus::SUCCESS,
                    1 => ExitStatus::Exited(3),
                    _ => ExitStatus::Signaled {
                        signal: Signal::KILL,
                        core_dumped: false,
                    },
                };
                self.handle(Input::Ended {
                    proc: proc(*job, *rank),
                    status,
                });
            }
            Op::Ending(job) => self.handle(Input::Ending(nspace(*job))),
            Op::Deregister(job) => self.handle(Input::Deregister(nspace(*job))),
            Op::Register {
                job: number,
                parent,
                forward,
            } => {
                let mut again = job(*number);
                again.parent = parent.map(|parent| proc(parent, 0));
                again.forward = forward.map(|to| (proc(to, to), IofChannels(6)));
                again.keep = forward.map(|_| Keeping::DEFAULT);
                self.handle(Input::Register(Box::new(again)));
            }
            Op::Pass(seconds) => self.pass(Duration::from_millis(u64::from(*seconds) * 100)),
            Op::Answer { which, how } => {
                let ticket = self.tickets.iter().nth(usize::from(*which)).copied();
                let ticket = ticket.unwrap_or(Ticket(u64::from(*which)));
                self.tickets.remove(&ticket);
                let answer = match how % 2 {
                    0 => Answer::Status(Status::SUCCESS),
                    _ => Answer::Status(Status::NOT_FOUND),
                };
                self.handle(Input::Answer { ticket, answer });
            }
            Op::HostEvent {
                code: number,
                range,
            } => {
                let event = Event {
                    status: code(*number),
                    source: proc(0, 0),
                    range: Range(range % 8),
                    infos: Vec::new(),
                };
                self.handle(Input::Event(Box::new(event)));
            }
            Op::Output {
                job,
                rank,
                channels,
                length,
            } => self.handle(Input::Output {
                proc: proc(*job, *rank),
                channels: IofChannels((*channels).into()),
                bytes: vec![0; (*length).into()].into(),
            }),
        }
    }

    /// All tools and jobs go, and time passes.
    fn end(mut self) {
        for conn in self.links.keys().copied().collect::<Vec<_>>() {
            self.close(conn);
        }
        // A registered job may keep its output.
        for job in 0..JOBS {
            self.handle(Input::Deregister(nspace(job)));
        }
        self.pass(Duration::from_secs(1000));
        assert!(self.server.is_quiet(), "something waits: {:?}", self.server);
    }
}

impl Link {
    fn take(&mut self, bytes: &[u8]) {
        if !self.honest {
            return;
        }
        if self.welcomed {
            self.framer.push(bytes);
        } else {
            self.welcome.extend_from_slice(bytes);
            let Some((_, length)) = Welcome::decode(self.kind, &self.welcome).unwrap() else {
                return;
            };
            self.welcomed = true;
            self.framer.push(&self.welcome[length..]);
        }
        while let Some(frame) = self.framer.next_frame().unwrap() {
            if Push::decode(self.format, frame.tag, &frame.payload)
                .unwrap()
                .is_some()
            {
                continue;
            }
            let Tag::Request(tag) = frame.tag else {
                panic!("{:?} from a server", frame.tag);
            };
            let command = self
                .asked
                .remove(&tag)
                .expect("an answer to a question that waits");
            Answer::decode(self.format, Shape::of(command, self.form), &frame.payload).unwrap();
        }
    }
}

fuzz_target!(|ops: Vec<Op<'_>>| {
    let mut world = World::new();
    for op in ops.iter().take(OPS_MAX) {
        world.carry_out(op);
    }
    world.end();
});
