//! PMIx over two nodes, with real servers, sockets and processes.
//!
//! The ranks run this test program: started by a launcher, [`a_rank`] plays a rank.

use std::{
    collections::{BTreeMap, VecDeque},
    ffi::{CStr, CString},
    io::Write,
};

use pmix::{
    client::{
        Collect, Config, ConfigError, Done, Input, Output, Program, ProgramEvent, Search, Stdio,
        Ticket,
    },
    handshake::Owner,
    keys,
    message::Request,
    value::{App, Info, Key, PmixRank, Proc, Range, Scope, Status, Value},
};

use super::*;

/// Full name of the test [`a_rank`].
const RANK: &str = "process::tests::nodes::a_rank";
/// Prefix of the lines that ranks print; the test harness prints lines of its own.
const MARK: &str = "rank: ";
/// An event code of the ranks' own.
const NEWS: Status = Status(-3001);
/// Ranks of the first job; the second half is on the second node.
const RANKS: u32 = 8;

/// One rank.
struct Rank {
    program: Program,
    server: os::Conversation,
    me: Proc,
    heard: VecDeque<Proc>,
    /// The output of the processes that it has spawned.
    stdio: VecDeque<Stdio>,
}

impl Rank {
    fn start(config: Config) -> Self {
        let server = os::Conversation::open(config.server.address(), PATIENCE).unwrap();
        let me = config.connector.proc().unwrap().clone();
        let mut program = Program::new(Clock::now(), config);
        program.handle(Clock::now(), Input::Opened);
        let mut rank = Self {
            program,
            server,
            me,
            heard: VecDeque::new(),
            stdio: VecDeque::new(),
        };
        while !matches!(rank.next(), ProgramEvent::Ready { .. }) {}
        rank
    }

    /// Waits for the next event.
    fn next(&mut self) -> ProgramEvent {
        loop {
            match self.program.poll() {
                Some(Output::Event(ProgramEvent::Lost { why })) => panic!("{}: {why}", self.me),
                Some(Output::Event(event)) => return event,
                Some(Output::Send(bytes)) => self.server.send(&bytes).unwrap(),
                Some(Output::Close) => self.server.close(),
                Some(Output::Connect(_)) => {}
                None => {
                    let mut buffer = [0; 4096];
                    let bytes = self.server.receive(&mut buffer).unwrap();
                    let input = if bytes.is_empty() {
                        Input::Closed
                    } else {
                        Input::Bytes(bytes)
                    };
                    self.program.handle(Clock::now(), input);
                }
            }
        }
    }

    fn hear(&mut self, event: ProgramEvent) -> Option<(Ticket, Done)> {
        match event {
            ProgramEvent::Done { ticket, result } => match result {
                Ok(done) => return Some((ticket, done)),
                Err(status) => panic!("{} is told {status}", self.me),
            },
            ProgramEvent::Notice { notice, .. } => {
                assert_eq!(notice.status, NEWS);
                self.heard.push_back(notice.source);
            }
            ProgramEvent::Stdio(stdio) => self.stdio.push_back(stdio),
            _ => {}
        }
        None
    }

    /// Waits for the answer to a request.
    fn done(&mut self, ticket: Ticket) -> Done {
        loop {
            let event = self.next();
            if let Some((of, done)) = self.hear(event)
                && of == ticket
            {
                return done;
            }
        }
    }

    /// Waits for one more notification, and returns its source.
    fn notice(&mut self) -> Proc {
        loop {
            if let Some(source) = self.heard.pop_front() {
                return source;
            }
            let event = self.next();
            self.hear(event);
        }
    }

    fn peer(&self, rank: u32) -> Proc {
        Proc {
            nspace: self.me.nspace.clone(),
            rank: PmixRank(rank),
        }
    }

    fn put(&mut self, key: &str, value: u32) {
        let key = Key::from_text(key).unwrap();
        let value = Value::Uint32(value);
        self.program.put(Scope::GLOBAL, key, value).unwrap();
        let ticket = self.program.commit();
        self.done(ticket);
    }

    fn get(&mut self, proc: Proc, key: &str) -> u64 {
        let key = Key::from_text(key).unwrap();
        let ticket = self.program.get(proc, key, Search::Anywhere);
        match self.done(ticket) {
            Done::Value(value) => value.as_count().unwrap(),
            other => panic!("{other:?} is no value"),
        }
    }

    fn fence(&mut self, collect: Collect) {
        let ticket = self.program.fence(Vec::new(), collect);
        self.done(ticket);
    }

    /// Connects processes, which may belong to different jobs.
    fn connect(&mut self, procs: Vec<Proc>) {
        let ticket = self.program.connect(procs, Vec::new());
        self.done(ticket);
    }

    /// Returns a job info value as a number.
    fn fact(&self, rank: PmixRank, key: &CStr) -> u64 {
        let fact = self.program.job().unwrap().find(rank, key);
        let number = fact.and_then(Value::as_count);
        number.unwrap_or_else(|| panic!("{key:?} of {rank}: {fact:?}"))
    }

    /// Returns a job info value of every rank of the job, in order of rank.
    fn facts(&self, key: &CStr) -> String {
        let size = u32::try_from(self.program.job().unwrap().size().unwrap()).unwrap();
        let facts = (0..size).map(|rank| self.fact(PmixRank(rank), key).to_string());
        facts.collect::<Vec<_>>().join(" ")
    }

    /// Returns a text with its rank and its neighbours.
    fn place(&self) -> String {
        let job = self.program.job().unwrap();
        let own = |key: &CStr| self.fact(self.me.rank, key);
        let all = |key: &CStr| self.fact(PmixRank::WILDCARD, key);
        let peers: Vec<String> = job
            .local_peers()
            .unwrap()
            .iter()
            .map(|rank| rank.0.to_string())
            .collect();
        let host = job.find(self.me.rank, keys::HOSTNAME);
        format!(
            "{} of {}: local rank {} of {}, node rank {}, node {} ({}), {} nodes, peers {}",
            self.me.rank.0,
            job.size().unwrap(),
            own(keys::LOCAL_RANK),
            all(keys::LOCAL_SIZE),
            own(keys::NODE_RANK),
            own(keys::NODE_ID),
            host.and_then(Value::as_text).unwrap().to_string_lossy(),
            all(keys::NUM_NODES),
            peers.join(" "),
        )
    }

    fn finalize(mut self) {
        self.program.finalize(Clock::now());
        while self.next() != ProgramEvent::Finalized {}
    }
}

fn say(words: &str) {
    // The harness prints before it without a line feed.
    let line = format!("\n{MARK}{words}\n");
    std::io::stdout().write_all(line.as_bytes()).unwrap();
}

/// Plays a rank of the first job.
fn first_job(mut rank: Rank) {
    let me = rank.me.rank.0;
    let across = (me + RANKS / 2) % RANKS;
    say(&rank.place());
    let all = [
        keys::NODE_ID,
        keys::LOCAL_RANK,
        keys::NODE_RANK,
        keys::APP_RANK,
    ];
    let all = all.map(|key| rank.facts(key)).join(", ");
    say(&format!("all: {all}"));

    let (_, registered) = rank.program.register(vec![NEWS], Vec::new());
    rank.done(registered);
    rank.put("fenced", 100 + me);
    rank.fence(Collect::Data);
    let fenced: Vec<String> = (0..RANKS)
        .map(|of| {
            let proc = rank.peer(of);
            rank.get(proc, "fenced").to_string()
        })
        .collect();
    say(&format!("in the fence: {}", fenced.join(" ")));

    rank.put("asked for", 200 + me);
    let asked = rank.get(rank.peer(across), "asked for");
    say(&format!("{me} asks {across}: {asked}"));

    // Once on each node.
    if me == 1 || me == RANKS - 1 {
        let ticket = rank.program.notify(NEWS, Range::NAMESPACE, Vec::new());
        rank.done(ticket);
    }
    let told_by = if me == 1 || me == RANKS - 1 { 1 } else { 2 };
    let mut heard: Vec<u32> = (0..told_by).map(|_| rank.notice().rank.0).collect();
    heard.sort_unstable();
    say(&format!("{me} hears of {heard:?}"));

    group(&mut rank);
    if me == 0 {
        spawn(&mut rank);
        feed(&mut rank);
    }
    rank.fence(Collect::Nothing);
    rank.finalize();
}

/// Spawns two more processes, on the other node, and connects to them.
fn spawn(rank: &mut Rank) {
    let program = std::env::current_exe().unwrap();
    let words = [program.to_str().unwrap(), "--exact", RANK, "--nocapture"];
    let text = |text: &str| Some(CString::new(text).unwrap());
    let app = App {
        command: text(words[0]),
        argv: words.map(text).into(),
        env: Vec::new(),
        cwd: None,
        maxprocs: 2,
        info: vec![Info::new(Key::new(keys::HOST).unwrap(), Value::text("n1"))],
    };
    let ticket = rank.program.spawn(Vec::new(), vec![app]);
    let Done::Spawned(nspace) = rank.done(ticket) else {
        panic!("nothing is spawned");
    };
    let child = Proc {
        nspace: nspace.clone(),
        rank: PmixRank(1),
    };
    let told = rank.get(child, "of a child");
    say(&format!("its child has put {told}"));
    rank.connect(vec![rank.me.clone(), Proc::all(nspace)]);
}

/// Ranks of both nodes construct a group. They name each other, and one of them adds two more, which name no members.
fn group(rank: &mut Rank) {
    let named: Vec<Proc> = [2, 6].map(|rank_of| rank.peer(rank_of)).into();
    let added: Vec<Proc> = [3, 7].map(|rank_of| rank.peer(rank_of)).into();
    let adds = Info::new(
        Key::new(keys::GROUP_ADD_MEMBERS).unwrap(),
        Value::procs(added),
    );
    let (procs, infos) = match rank.me.rank.0 {
        2 => (named, Vec::new()),
        6 => (named, vec![adds]),
        3 | 7 => (Vec::new(), Vec::new()),
        _ => return,
    };
    let name = Some(CString::new("some").unwrap());
    let ticket = rank.program.group_construct(name.clone(), procs, infos);
    let Done::Group(answer) = rank.done(ticket) else {
        panic!("no group");
    };
    let members: Vec<String> = answer
        .members
        .iter()
        .map(|one| one.rank.0.to_string())
        .collect();
    say(&format!("the group has {}", members.join(" ")));
    let ticket = rank
        .program
        .group_destruct(name, answer.members, Vec::new());
    rank.done(ticket);
}

/// Spawns two programs that repeat their input, one on each node, pushes input to them and collects their output.
fn feed(rank: &mut Rank) {
    let text = |text: &str| Some(CString::new(text).unwrap());
    let wanted = |key: &CStr| Info::new(Key::new(key).unwrap(), Value::Bool(true));
    let app = App {
        command: text("cat"),
        argv: vec![text("cat")],
        env: Vec::new(),
        cwd: None,
        maxprocs: 2,
        info: vec![
            Info::new(Key::new(keys::HOST).unwrap(), Value::text("n0,n1")),
            Info::new(Key::new(keys::MAP_BY).unwrap(), Value::text("ppr:1:node")),
        ],
    };
    let everybody = Info::new(
        Key::new(keys::STDIN_TARGET).unwrap(),
        Value::Uint32(PmixRank::WILDCARD.0),
    );
    let infos = vec![everybody, wanted(keys::FWD_STDOUT)];
    let ticket = rank.program.spawn(infos, vec![app]);
    let Done::Spawned(nspace) = rank.done(ticket) else {
        panic!("nothing is spawned");
    };
    for words in ["over nodes", ""] {
        let request = Request::IofPush {
            procs: vec![Proc::all(nspace.clone())],
            infos: Vec::new(),
            bytes: Some(words.into()),
        };
        let ticket = rank.program.request(&request);
        rank.done(ticket);
    }
    let (mut repeated, mut ended) = (BTreeMap::<u32, Vec<u8>>::new(), 0);
    while ended < 2 {
        let Some(stdio) = rank.stdio.pop_front() else {
            let event = rank.next();
            rank.hear(event);
            continue;
        };
        if stdio.bytes.is_empty() {
            ended += 1;
        }
        repeated
            .entry(stdio.source.rank.0)
            .or_default()
            .extend(stdio.bytes);
    }
    for (of, bytes) in repeated {
        say(&format!(
            "{of} repeats: {}",
            String::from_utf8_lossy(&bytes)
        ));
    }
}

/// Plays a rank of the spawned job.
fn second_job(mut rank: Rank, parent: Proc) {
    let me = rank.me.rank.0;
    say(&format!("child {}", rank.place()));
    rank.put("of a child", 300 + me);
    let told = rank.get(parent.clone(), "fenced");
    say(&format!("child {me} of {}: {told}", parent.rank));
    let both = vec![parent, Proc::all(rank.me.nspace.clone())];
    rank.connect(both);
    rank.finalize();
}

#[test]
#[expect(
    clippy::disallowed_methods,
    reason = "as a rank it is a program of a user, which reads its environment"
)]
fn a_rank() {
    let owner = Owner {
        uid: os::effective_uid(),
        gid: os::effective_gid(),
    };
    match Config::from_environment(|name| std::env::var(name).ok(), owner) {
        Ok(config) => {
            let rank = Rank::start(config);
            match rank.program.job().unwrap().parent().cloned() {
                None => first_job(rank),
                Some(parent) => second_job(rank, parent),
            }
        }
        // No launcher has started it.
        Err(error) => {
            let variable = "PMIX_NAMESPACE";
            assert_eq!(error, ConfigError::Missing { variable });
        }
    }
}

/// Everything that crosses nodes: job info of all, a fence with data, a get, events, a spawn, two jobs that connect,
/// and the input and output of spawned processes.
#[test]
fn ranks_of_two_nodes_speak_pmix() {
    let mut spec = job("");
    let program = std::env::current_exe().unwrap();
    spec.apps[0].program = program.into();
    spec.apps[0].args = ["--exact", RANK, "--nocapture"].map(OsString::from).into();
    spec.placement.apps[0].count = Some(RANKS);
    spec.placement.map_by = Some(place::map_by("ppr:4:node").unwrap());
    let heard = run_on(6, spec);
    assert_eq!(*heard.cause(), Cause::Success, "{heard:?}");
    let mut lines: BTreeMap<&str, u32> = BTreeMap::new();
    for line in &heard.lines {
        if let Some(line) = line.strip_prefix(MARK) {
            *lines.entry(line).or_default() += 1;
        }
    }
    let lines = lines.into_iter().map(|(line, count)| match count {
        1 => line.to_owned(),
        _ => format!("{count} times {line}"),
    });
    insta::assert_snapshot!(lines.collect::<Vec<_>>().join("\n"), @"
    0 asks 4: 204
    0 hears of [1, 7]
    0 of 8: local rank 0 of 4, node rank 0, node 0 (n0), 2 nodes, peers 0 1 2 3
    0 repeats: over nodes
    1 asks 5: 205
    1 hears of [7]
    1 of 8: local rank 1 of 4, node rank 1, node 0 (n0), 2 nodes, peers 0 1 2 3
    1 repeats: over nodes
    2 asks 6: 206
    2 hears of [1, 7]
    2 of 8: local rank 2 of 4, node rank 2, node 0 (n0), 2 nodes, peers 0 1 2 3
    3 asks 7: 207
    3 hears of [1, 7]
    3 of 8: local rank 3 of 4, node rank 3, node 0 (n0), 2 nodes, peers 0 1 2 3
    4 asks 0: 200
    4 hears of [1, 7]
    4 of 8: local rank 0 of 4, node rank 0, node 1 (n1), 2 nodes, peers 4 5 6 7
    5 asks 1: 201
    5 hears of [1, 7]
    5 of 8: local rank 1 of 4, node rank 1, node 1 (n1), 2 nodes, peers 4 5 6 7
    6 asks 2: 202
    6 hears of [1, 7]
    6 of 8: local rank 2 of 4, node rank 2, node 1 (n1), 2 nodes, peers 4 5 6 7
    7 asks 3: 203
    7 hears of [1]
    7 of 8: local rank 3 of 4, node rank 3, node 1 (n1), 2 nodes, peers 4 5 6 7
    8 times all: 0 0 0 0 1 1 1 1, 0 1 2 3 0 1 2 3, 0 1 2 3 0 1 2 3, 0 1 2 3 4 5 6 7
    child 0 of 0: 100
    child 0 of 2: local rank 0 of 2, node rank 4, node 1 (n1), 1 nodes, peers 0 1
    child 1 of 0: 100
    child 1 of 2: local rank 1 of 2, node rank 5, node 1 (n1), 1 nodes, peers 0 1
    8 times in the fence: 100 101 102 103 104 105 106 107
    its child has put 301
    4 times the group has 2 3 6 7
    ");
}
