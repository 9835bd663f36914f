//! Properties that hold for any split of the bytes and any end of the connection.

use std::{collections::BTreeMap, sync::OnceLock, time::Duration};

use pmix::{
    client::{
        Client, Collect, Config, Connector, Event, Input, Program, ProgramEvent, Search, Ticket,
    },
    codec::Format,
    frame::Tag,
    handshake::Welcome,
    message::{Answer, Facts, Push, Request},
    tool::{self, Control, Extent, Tool},
    value::{IofChannels, Proc, Range, Scope, Status, Value},
};
use proptest::prelude::*;

use crate::{
    host::{Host, Machine, NOW, config, fact, key, message, proc},
    replay::{Script, Step},
};

/// Returns some recordings of each kind: both codecs, both servers, a client, and a tool with events and output.
fn scripts() -> &'static [Script] {
    static SCRIPTS: OnceLock<Vec<Script>> = OnceLock::new();
    SCRIPTS.get_or_init(|| {
        let mut scripts = Script::all();
        scripts.retain(|script| {
            [
                "cli-client3.2.3-server6.1.0-rank0-0",
                "cli-client5.0.11-server5.0.11-rank1-0",
                "g2-client3.2.3-server5.0.11-rank0-0",
                "grp-client6.1.0-server6.1.0-rank2-0",
                "tool-stop-tool6.1.0-server6.1.0-0",
                "tool-stdin-tool5.0.11-server5.0.11-0",
            ]
            .contains(&script.name.as_str())
        });
        assert_eq!(scripts.len(), 6);
        scripts
    })
}

/// Returns the bytes of the server: its welcome, and the rest.
fn sent(script: &Script) -> (Vec<u8>, Vec<u8>) {
    let mut bytes: Vec<u8> = Vec::new();
    for step in &script.steps {
        if let Step::Sent(part) = step {
            bytes.extend(part);
        }
    }
    let kind = script.hello.kind;
    let (_, used) = Welcome::decode(kind, &bytes).unwrap().unwrap();
    let rest = bytes.split_off(used);
    (bytes, rest)
}

/// Feeds the bytes in pieces, split at `cuts`.
fn feed<M: Machine>(host: &mut Host<M>, bytes: &[u8], cuts: &[usize]) {
    let mut cuts: Vec<_> = cuts.iter().map(|cut| cut % (bytes.len() + 1)).collect();
    cuts.sort_unstable();
    let mut from = 0;
    for cut in cuts {
        host.bytes(&bytes[from..cut]);
        from = cut;
    }
    host.bytes(&bytes[from..]);
}

/// Returns what a client sends and reports when the server's bytes are split at `cuts`, and `ask` makes all requests at once.
fn said<M: Machine>(
    script: &Script,
    machine: M,
    cuts: [&[usize]; 2],
    ask: impl FnOnce(&mut M),
) -> (Vec<M::Event>, Vec<pmix::frame::Frame>) {
    let mut host = Host::new(machine, script.config.format());
    host.handle(Input::Opened);
    let (welcome, rest) = sent(script);
    feed(&mut host, &welcome, cuts[0]);
    ask(&mut host.machine);
    host.drain();
    feed(&mut host, &rest, cuts[1]);
    (host.events, host.frames)
}

fn client_said(script: &Script, cuts: [&[usize]; 2]) -> Vec<Event> {
    let client = Client::new(NOW, script.config.clone());
    let (events, _) = said(script, client, cuts, |client| {
        for step in &script.steps {
            match step {
                Step::Asked(_, Request::Finalize) => {
                    client.finalize(NOW);
                }
                Step::Asked(_, request) => {
                    client.request(request);
                }
                Step::Sent(_) => {}
            }
        }
    });
    events
}

#[test]
fn one_byte_at_a_time() {
    for script in scripts() {
        let (welcome, rest) = sent(script);
        let every = |bytes: &[u8]| (0..bytes.len()).collect::<Vec<_>>();
        let single = client_said(script, [&every(&welcome), &every(&rest)]);
        assert_eq!(single, client_said(script, [&[], &[]]), "{}", script.name);
        assert!(single.len() > 4, "{}", script.name);
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(96))]

    #[test]
    fn cuts_change_nothing(
        at in 0..6_usize,
        first in prop::collection::vec(any::<usize>(), 0..4),
        second in prop::collection::vec(any::<usize>(), 0..40),
    ) {
        let script = &scripts()[at];
        let cuts = [&first[..], &second[..]];
        prop_assert_eq!(client_said(script, cuts), client_said(script, [&[], &[]]));
        let program = |cuts| {
            let program = Program::new(NOW, script.config.clone());
            said(script, program, cuts, |_| {})
        };
        prop_assert_eq!(program(cuts), program([&[], &[]]));
        let tool = |cuts| {
            let tool = Tool::new(NOW, script.config.clone());
            said(script, tool, cuts, |_| {})
        };
        prop_assert_eq!(tool(cuts), tool([&[], &[]]));
    }
}

/// Step of a trial.
#[derive(Clone, Debug)]
enum Act {
    /// The client makes a request, chosen by number.
    Ask(usize),
    /// One of the tickets gets a time limit in milliseconds.
    Limit(usize, u64),
    /// The server answers one of its outstanding requests.
    Answer(usize, Reply),
    Push(usize),
    /// The server sends invalid bytes.
    Junk(Vec<u8>),
    /// Time passes, in milliseconds.
    Pass(u64),
    Finalize,
    Close,
    Leave,
}

#[derive(Clone, Copy, Debug)]
enum Reply {
    Right,
    Refusal,
    Empty,
    Garbage,
    /// Two answers: the second one answers no request.
    Double,
}

fn acts() -> impl Strategy<Value = Vec<Act>> {
    let reply = prop_oneof![
        4 => Just(Reply::Right),
        2 => Just(Reply::Refusal),
        1 => Just(Reply::Empty),
        1 => Just(Reply::Garbage),
        1 => Just(Reply::Double),
    ];
    let act = prop_oneof![
        30 => any::<usize>().prop_map(Act::Ask),
        6 => (any::<usize>(), 0..50_u64).prop_map(|(ticket, ms)| Act::Limit(ticket, ms)),
        24 => (any::<usize>(), reply).prop_map(|(at, reply)| Act::Answer(at, reply)),
        5 => any::<usize>().prop_map(Act::Push),
        5 => (0..30_u64).prop_map(Act::Pass),
        1 => prop::collection::vec(any::<u8>(), 0..40).prop_map(Act::Junk),
        1 => Just(Act::Finalize),
        1 => Just(Act::Close),
        1 => Just(Act::Leave),
    ];
    prop::collection::vec(act, 0..120)
}

/// Interface that the clients share in these trials.
trait Trial: Machine {
    /// Makes a request, chosen by number, and returns its tickets.
    fn ask(&mut self, which: usize) -> Vec<Ticket>;
    fn finalize(&mut self) -> Ticket;
    fn limit(&mut self, ticket: Ticket, until: base::Time);
    fn leave(&mut self);
    /// Returns the ticket that an event answers.
    fn answered(event: &Self::Event) -> Option<Ticket>;
    fn is_end(event: &Self::Event) -> bool;
}

impl Trial for Client {
    fn ask(&mut self, which: usize) -> Vec<Ticket> {
        let requests = [
            Request::JobInfo,
            Request::Commit {
                buckets: Vec::new(),
            },
            Request::Get {
                nspace: proc("job", 0).nspace,
                rank: proc("job", 0).rank,
                infos: Vec::new(),
                key: None,
            },
            Request::Deregister { codes: Vec::new() },
            Request::Query {
                queries: Vec::new(),
            },
            Request::Finalize,
        ];
        vec![self.request(&requests[which % requests.len()])]
    }

    fn finalize(&mut self) -> Ticket {
        Self::finalize(self, NOW)
    }

    fn limit(&mut self, ticket: Ticket, until: base::Time) {
        Self::limit(self, ticket, until);
    }

    fn leave(&mut self) {
        self.close();
    }

    fn answered(event: &Event) -> Option<Ticket> {
        match event {
            Event::Answer { ticket, .. } => Some(*ticket),
            _ => None,
        }
    }

    fn is_end(event: &Event) -> bool {
        matches!(event, Event::Finalized | Event::Lost { .. })
    }
}

impl Trial for Tool {
    fn ask(&mut self, which: usize) -> Vec<Ticket> {
        let target = proc("job", u32::try_from(which / 64 % 2).unwrap());
        let name = key(["a", "b", "c", "pmix.x"][which / 16 % 4]);
        let search = [Search::Anywhere, Search::Immediate, Search::Known][which / 128 % 3];
        let nspace = proc("job", 0).nspace;
        let program = self.program();
        vec![match which % 16 {
            0..8 => program.get(target, name, search),
            8 => {
                // A reserved key cannot be put. The result does not matter here.
                let _refused = program.put(Scope::GLOBAL, name, Value::Undef);
                program.commit()
            }
            9 => program.fence(Vec::new(), Collect::Data),
            10 => program.register(vec![Status(-1000)], Vec::new()).1,
            11 => program.connect(Vec::new(), Vec::new()),
            12 => self.spawn(Vec::new(), Vec::new()),
            13 => self.proc_table(&nspace, Extent::Job),
            14 => {
                let channels = IofChannels::STDOUT;
                let (pull, ticket) = self.pull(Vec::new(), channels, Vec::new());
                return vec![ticket, self.stop_pull(pull)];
            }
            _ => {
                let control = self.control(Vec::new(), Control::Kill);
                return vec![control, self.close_stdin(Vec::new())];
            }
        }]
    }

    fn finalize(&mut self) -> Ticket {
        self.program().finalize(NOW)
    }

    fn limit(&mut self, ticket: Ticket, until: base::Time) {
        self.program().limit(ticket, until);
    }

    fn leave(&mut self) {
        self.program().close();
    }

    fn answered(event: &tool::Event) -> Option<Ticket> {
        match event {
            tool::Event::Program(ProgramEvent::Done { ticket, .. })
            | tool::Event::Table { ticket, .. } => Some(*ticket),
            _ => None,
        }
    }

    fn is_end(event: &tool::Event) -> bool {
        matches!(
            event,
            tool::Event::Program(ProgramEvent::Finalized | ProgramEvent::Lost { .. })
        )
    }
}

/// Returns an answer of the type that the request needs.
fn right(request: &Request) -> Answer {
    let status = Status::SUCCESS;
    match request {
        Request::JobInfo => Answer::JobInfo {
            nspace: proc("tool", 0).nspace,
            facts: Vec::new(),
        },
        Request::Get {
            nspace,
            rank,
            key: Some(key),
            ..
        } => {
            let owner = Proc {
                nspace: nspace.clone(),
                rank: *rank,
            };
            // Half of the keys exist.
            let there = key.as_bytes()[0] % 2 == 1;
            let facts = there.then(|| fact(&key.to_string(), Value::Undef));
            let facts = facts.into_iter().collect();
            let buffers = vec![Facts { owner, facts }.encode(Format::V4)];
            Answer::Buffers { status, buffers }
        }
        Request::Spawn { .. } => Answer::Spawned {
            status,
            nspace: Some(c"child".into()),
            facts: Vec::new(),
        },
        Request::Query { .. } => Answer::Infos {
            status,
            infos: Vec::new(),
        },
        Request::IofPull { .. } => Answer::Number { status, number: 5 },
        _ => Answer::Status(status),
    }
}

fn attempt<M: Trial>(mut host: Host<M>, acts: &[Act]) {
    let mut tickets: Vec<Ticket> = Vec::new();
    let mut pending: Vec<(u32, Request)> = Vec::new();
    let mut answers: BTreeMap<Ticket, usize> = BTreeMap::new();
    let mut over = false;
    for act in acts.iter().chain([&Act::Close]) {
        let before = tickets.len();
        match act {
            Act::Ask(which) => tickets.extend(host.machine.ask(*which)),
            Act::Finalize => tickets.push(host.machine.finalize()),
            Act::Leave => host.machine.leave(),
            Act::Limit(..) if tickets.is_empty() => {}
            Act::Limit(at, ms) => {
                let ticket = tickets[at % tickets.len()];
                let until = host.now + Duration::from_millis(*ms);
                host.machine.limit(ticket, until);
            }
            Act::Answer(..) if pending.is_empty() => {}
            Act::Answer(at, reply) => {
                let (tag, request) = pending.remove(at % pending.len());
                let answer = match reply {
                    Reply::Refusal => Answer::Status(Status::NOT_SUPPORTED),
                    _ => right(&request),
                };
                let bytes = message(Format::V4, Tag::Request(tag), |writer| match reply {
                    Reply::Empty => {}
                    Reply::Garbage => writer.raw(&[7; 9]),
                    _ => answer.encode(writer),
                });
                let times = if matches!(reply, Reply::Double) { 2 } else { 1 };
                host.bytes(&bytes.repeat(times));
            }
            Act::Push(which) => {
                let status = [Status(-1000), Status::EVENT_JOB_END][which % 2];
                host.push(&Push::Event {
                    status,
                    source: proc("child", 0),
                    infos: Vec::new(),
                    range: Some(Range::GLOBAL),
                });
            }
            Act::Junk(bytes) => host.bytes(bytes),
            Act::Pass(ms) => {
                host.now = host.now + Duration::from_millis(*ms);
                host.handle(Input::Tick);
            }
            Act::Close => host.handle(Input::Closed),
        }
        host.drain();
        pending.extend(host.asked());
        for event in host.news() {
            if let Some(ticket) = M::answered(&event) {
                assert!(tickets.contains(&ticket), "nobody has asked");
                *answers.entry(ticket).or_default() += 1;
            }
            if M::is_end(&event) {
                assert!(!over, "it ends once");
                over = true;
                // All requests made before the end are answered before it.
                for ticket in &tickets[..before] {
                    assert_eq!(answers.get(ticket), Some(&1), "{ticket:?}");
                }
            }
        }
        if over {
            pending.clear();
        }
    }
    assert!(over);
    for ticket in &tickets {
        assert_eq!(answers.get(ticket), Some(&1), "{ticket:?}");
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]

    #[test]
    fn every_ticket_of_a_client_is_answered_once(acts in acts(), welcome in any::<bool>()) {
        let mut host = Host::new(Client::new(NOW, config()), Format::V4);
        if welcome {
            host.welcome();
        }
        attempt(host, &acts);
    }

    #[test]
    fn every_ticket_of_a_tool_is_answered_once(acts in acts(), welcome in any::<bool>()) {
        let config = Config { connector: Connector::Tool, ..config() };
        let mut host = Host::new(Tool::new(NOW, config), Format::V4);
        host.handle(Input::Opened);
        if welcome {
            let welcome = Welcome::Tool {
                assigned: Some(proc("tool", 0)),
                server: proc("daemon", 0),
                security: Status::SUCCESS,
            };
            host.bytes(&welcome.encode());
            let (tag, request) = host.asked_one();
            host.answer(tag, &right(&request));
        }
        attempt(host, &acts);
    }

    #[test]
    fn bytes_of_any_kind_do_no_harm(
        kind in 0..2_usize,
        parts in prop::collection::vec(prop::collection::vec(any::<u8>(), 0..64), 0..12),
        tags in prop::collection::vec(0..104_u32, 0..12),
    ) {
        let connector = [config().connector, Connector::Tool][kind].clone();
        let config = Config { connector, ..config() };
        let mut host = Host::new(Tool::new(NOW, config), Format::V4);
        host.handle(Input::Opened);
        if kind == 0 {
            host.bytes(&[0; 8]);
        }
        for (bytes, tag) in parts.iter().zip(tags) {
            host.machine.ask(bytes.len());
            let tag = match tag {
                0 => Tag::Event,
                2 => Tag::Output,
                1..100 => Tag::Heartbeat,
                tag => Tag::Request(tag),
            };
            let message = message(Format::V4, tag, |writer| writer.raw(bytes));
            host.bytes(&message);
        }
        for bytes in &parts {
            host.bytes(bytes);
        }
    }
}
