//! Recorded requests of real libraries, made again by our client, and answered with the recorded bytes of real servers.

use std::collections::BTreeMap;

use bytes::Bytes;
use pmix::{
    client::{
        Client, Codec, Collect, Config, Connector, Done, Event, Input, Program, ProgramEvent,
        Search, Ticket,
    },
    frame::{Frame, Framer},
    handshake::{ConnectorKind, Hello},
    keys,
    message::{Answer, Request},
    tool::{self, Control, Extent, JobEnd, Tool},
    value::{
        DataType, IofChannels, Key, Kval, Nspace, Pdata, PmixRank, Proc, ProcState, Scope, Status,
        Value,
    },
};

use crate::{
    host::{Host, Machine, NOW, proc},
    recording::{self, Recording, Side},
};

/// Recording with decoded requests of the client.
pub(crate) struct Script {
    pub(crate) name: String,
    pub(crate) hello: Hello,
    pub(crate) config: Config,
    pub(crate) steps: Vec<Step>,
}

pub(crate) enum Step {
    /// Request of the client.
    Asked(Frame, Request),
    /// Bytes from the server.
    Sent(Vec<u8>),
}

impl Script {
    pub(crate) fn of(recording: &Recording) -> Self {
        let mut framer = Framer::default();
        framer.push(&recording.sent_by(Side::Client));
        let hello = Hello::decode(&framer.next_handshake().unwrap().unwrap()).unwrap();
        let connector = match hello.kind {
            ConnectorKind::Client => Connector::Client(hello.proc.clone().unwrap()),
            ConnectorKind::Tool => Connector::Tool,
            other => panic!("{other:?}"),
        };
        let server = "server.0;tcp4://127.0.0.1:4711".parse().unwrap();
        let owner = pmix::handshake::Owner { uid: 0, gid: 0 };
        let config = Config {
            codec: if &*hello.codec == c"v3" {
                Codec::V3
            } else {
                Codec::V41
            },
            ..Config::new(server, connector, owner)
        };

        let mut framer = Framer::default();
        let mut greeted = false;
        let mut steps = Vec::new();
        for (side, bytes) in &recording.parts {
            if *side == Side::Server {
                steps.push(Step::Sent(bytes.clone()));
                continue;
            }
            framer.push(bytes);
            if !greeted {
                greeted = framer.next_handshake().unwrap().is_some();
            }
            while let Some(frame) = framer.next_frame().unwrap() {
                let request = Request::decode(config.format(), &frame.payload).unwrap();
                steps.push(Step::Asked(frame, request));
            }
        }
        Self {
            name: recording.name.clone(),
            hello,
            config,
            steps,
        }
    }

    pub(crate) fn all() -> Vec<Self> {
        recording::all().iter().map(Self::of).collect()
    }

    fn host<M: Machine>(&self, machine: M) -> Host<M> {
        let mut host = Host::new(machine, self.config.format());
        host.handle(Input::Opened);
        host
    }

    fn frames(&self) -> Vec<&Frame> {
        let asked = self.steps.iter().filter_map(|step| match step {
            Step::Asked(frame, _) => Some(frame),
            Step::Sent(_) => None,
        });
        asked.collect()
    }
}

/// Returns true for a recording in which a real server answers one get in a codec that the client does not speak.
fn in_the_wrong_codec(name: &str) -> bool {
    name.starts_with("g2-client3.2.3") && name.contains("rank0")
}

#[test]
fn every_recorded_dialogue_is_held_again() {
    let scripts = Script::all();
    assert_eq!(scripts.len(), 107);
    for script in scripts {
        let name = &script.name;
        let mut host = script.host(Client::new(NOW, script.config.clone()));
        let hello = Hello::decode(&host.hello.clone().unwrap().into()).unwrap();
        assert_eq!(hello.security, script.hello.security, "{name}");
        assert_eq!(hello.credential, script.hello.credential, "{name}");
        assert_eq!(hello.kind, script.hello.kind, "{name}");
        assert_eq!(hello.owner, script.hello.owner, "{name}");
        assert_eq!(hello.proc, script.hello.proc, "{name}");
        assert_eq!(hello.buffer, script.hello.buffer, "{name}");
        assert_eq!(hello.store, script.hello.store, "{name}");

        let mut tickets = Vec::new();
        for step in &script.steps {
            match step {
                Step::Asked(_, Request::Finalize) => tickets.push(host.machine.finalize(NOW)),
                Step::Asked(_, request) => tickets.push(host.machine.request(request)),
                Step::Sent(bytes) => host.bytes(bytes),
            }
            host.drain();
        }
        // Headers and payloads equal those of the library.
        let sent: Vec<_> = host.frames.iter().collect();
        assert_eq!(sent, script.frames(), "{name}");

        let (mut answered, mut unread, mut ended) = (Vec::new(), 0, 0);
        for event in host.news() {
            match event {
                Event::Ready { .. } => assert!(answered.is_empty()),
                Event::Answer { ticket, answer } => {
                    answered.push(ticket);
                    unread += usize::from(answer.status() == Status::UNPACK_FAILURE);
                    let refused = matches!(answer.status(), Status::UNREACH | Status::INIT);
                    assert!(!refused, "{name}: {answer:?}");
                }
                Event::Push(_) => {}
                Event::Ignored { .. } => assert!(in_the_wrong_codec(name), "{name}"),
                Event::Finalized => ended += 1,
                Event::Lost { why } => panic!("{name}: {why}"),
            }
        }
        answered.sort();
        assert_eq!(answered, tickets, "{name}");
        assert_eq!(unread, usize::from(in_the_wrong_codec(name)), "{name}");
        let finalized = matches!(
            script
                .steps
                .iter()
                .rfind(|step| matches!(step, Step::Asked(..))),
            Some(Step::Asked(_, Request::Finalize))
        );
        assert_eq!(ended, usize::from(finalized), "{name}");
    }
}

/// Makes a recorded request of a library with the methods of a program.
fn ask(program: &mut Program, script: &Script, request: &Request) -> Ticket {
    match request.clone() {
        Request::Commit { buckets } => {
            let read = |bucket: &Bytes| -> Vec<Kval> {
                let mut reader = pmix::codec::Reader::new(script.config.format(), bucket);
                reader.each().unwrap()
            };
            let local = read(&buckets[0].1.bytes);
            let remote = read(&buckets[1].1.bytes);
            let mut put =
                |scope, Kval { key, value }: Kval| program.put(scope, key, value).unwrap();
            for fact in &local {
                if !remote.contains(fact) {
                    put(Scope::LOCAL, fact.clone());
                }
            }
            for fact in remote {
                let scope = if local.contains(&fact) {
                    Scope::GLOBAL
                } else {
                    Scope::REMOTE
                };
                put(scope, fact);
            }
            put(
                Scope::INTERNAL,
                Kval {
                    key: Key::new(c"mine").unwrap(),
                    value: Value::Undef,
                },
            );
            program.commit()
        }
        Request::Fence { procs, infos } => {
            let collect = if infos.is_empty() {
                Collect::Nothing
            } else {
                Collect::Data
            };
            assert_eq!(procs, [Proc::all(program.me().unwrap().nspace.clone())]);
            program.fence(Vec::new(), collect)
        }
        Request::Get {
            nspace,
            rank,
            infos,
            key,
        } => {
            let search = if infos.is_empty() {
                Search::Anywhere
            } else {
                Search::Immediate
            };
            program.get(Proc { nspace, rank }, key.unwrap(), search)
        }
        Request::Publish { infos, .. } => program.publish(infos),
        Request::Lookup { keys, infos, .. } => program.lookup(keys, infos),
        Request::Connect { procs, infos, .. } => program.connect(procs, infos),
        Request::Disconnect { procs, infos } => program.disconnect(procs, infos),
        Request::Spawn { infos, apps } => program.spawn(infos, apps),
        Request::GroupConstruct {
            group,
            procs,
            infos,
        } => program.group_construct(group, procs, infos),
        Request::Finalize => program.finalize(NOW),
        other => panic!("{other:?}"),
    }
}

/// Replays a script with a program, and returns the result of each kind of request.
fn run(script: &Script) -> (Host<Program>, BTreeMap<String, Result<Done, Status>>) {
    let mut host = script.host(Program::new(NOW, script.config.clone()));
    let mut asked = BTreeMap::new();
    for step in &script.steps {
        match step {
            Step::Asked(_, Request::JobInfo) => {}
            Step::Asked(_, request) => {
                let ticket = ask(&mut host.machine, script, request);
                let name = match request {
                    Request::Get { key: Some(key), .. } => format!("get {key}"),
                    other => format!("{:?}", other.command()),
                };
                asked.insert(ticket, name);
            }
            Step::Sent(bytes) => host.bytes(bytes),
        }
        host.drain();
    }
    let mut results = BTreeMap::new();
    for event in &host.events {
        if let ProgramEvent::Done { ticket, result } = event {
            let name = asked.remove(ticket).unwrap();
            results.insert(name, result.clone());
        }
    }
    assert_eq!(asked, BTreeMap::new(), "{}", script.name);
    (host, results)
}

fn text(text: &str) -> Value {
    Value::text(text)
}

#[test]
fn a_program_asks_as_libpmix_does_and_gets_what_it_got() {
    let scripts = Script::all();
    let scripts = scripts
        .iter()
        .filter(|script| script.name.starts_with("cli-"));
    let mut count = 0;
    for script in scripts {
        count += 1;
        let name = &script.name;
        let (host, mut results) = run(script);
        // libpmix 6 appends its own data to a connect, which no server needs.
        if !name.starts_with("cli-client6") {
            let sent: Vec<_> = host.frames.iter().collect();
            assert_eq!(sent, script.frames(), "{name}");
        }
        assert_eq!(host.events.last(), Some(&ProgramEvent::Finalized), "{name}");

        let me = host.machine.me().unwrap().clone();
        let other = 1 - me.rank.0;
        let got = results.remove("get k0");
        let expected = Done::Value(text(&format!("val-0-{other}")));
        assert_eq!(got, Some(Ok(expected)), "{name}");
        let none = results.remove("get nokey");
        assert_eq!(none, Some(Err(Status::NOT_FOUND)), "{name}");
        let found = Pdata {
            proc: Proc {
                nspace: me.nspace.clone(),
                rank: PmixRank(other),
            },
            key: Key::from_text(&format!("pub{other}")).unwrap(),
            value: text("pubval"),
        };
        let result = results.remove("Lookup");
        assert_eq!(result, Some(Ok(Done::Found(vec![found]))), "{name}");
        if let Some(result) = results.remove("Spawn") {
            let Ok(Done::Spawned(nspace)) = result else {
                panic!("{name}: {result:?}");
            };
            let job = host.machine.job_named(&nspace).unwrap();
            assert_eq!(job.size(), Some(1), "{name}");
        }
        for (what, result) in results {
            assert_eq!(result, Ok(Done::Nothing), "{name}: {what}");
        }

        // The values from the answer to the get are cached now; the program's own puts always were.
        let known = |rank: u32, key: &str| {
            let nspace = me.nspace.clone();
            let rank = PmixRank(rank);
            let key = Key::from_text(key).unwrap();
            host.machine.find(&Proc { nspace, rank }, &key).cloned()
        };
        assert_eq!(known(other, "u64"), Some(Value::Uint64(u64::MAX)));
        assert_eq!(known(other, "k2"), Some(text(&format!("val-2-{other}"))));
        assert_eq!(known(other, "k1"), None, "not for processes of this node");
        assert_eq!(
            known(me.rank.0, "k1"),
            Some(text(&format!("val-1-{}", me.rank)))
        );
        assert_eq!(known(me.rank.0, "mine"), Some(Value::Undef));
    }
    assert_eq!(count, 20);
}

/// The job info of a job with two processes, as in the recordings.
#[test]
fn the_facts_of_a_job_are_what_the_server_said() {
    let mut seen = BTreeMap::new();
    for script in Script::all() {
        let name = &script.name;
        if !name.starts_with("cli-") {
            continue;
        }
        let host = {
            let mut host = script.host(Program::new(NOW, script.config.clone()));
            for step in &script.steps {
                if let Step::Sent(bytes) = step {
                    host.bytes(bytes);
                }
                if host.machine.job().is_some_and(|job| job.size().is_some()) {
                    break;
                }
            }
            host
        };
        let me = host.machine.me().unwrap();
        let job = host.machine.job().unwrap();
        let launcher = me.nspace.to_string();
        let pid = launcher
            .strip_prefix("prterun-vm-")
            .and_then(|rest| rest.strip_suffix("@1"))
            .unwrap();
        let dir = format!("/tmp/tr/tmp/prtrn.{pid}");

        let all = PmixRank::WILDCARD;
        let zero = PmixRank(0);
        let one = PmixRank(1);
        for (rank, key, value) in [
            (all, keys::JOB_ID, text(&launcher)),
            (all, keys::JOB_SIZE, Value::Uint32(2)),
            (all, keys::JOB_NUM_APPS, Value::Uint32(1)),
            (all, keys::MAX_PROCS, Value::Uint32(16)),
            (all, keys::RANK_OFFSET, Value::Rank(PmixRank(0))),
            (all, keys::BIND_TO, text("NONE")),
            (all, keys::NSPACE_DIR, text(&format!("{dir}/1"))),
            (all, keys::NODE_LIST, text("vm")),
            // A fact of the job also holds for its processes.
            (one, keys::JOB_SIZE, Value::Uint32(2)),
            // Session facts, which version 3 gets as single facts.
            (all, keys::UNIVERSE_SIZE, Value::Uint32(16)),
            (one, keys::UNIVERSE_SIZE, Value::Uint32(16)),
            (all, keys::TMPDIR, text(&dir)),
            (all, keys::HOSTNAME_KEEP_FQDN, Value::Bool(false)),
            // Node facts.
            (all, keys::HOSTNAME, text("vm")),
            (all, keys::LOCAL_PEERS, text("0,1")),
            (one, keys::LOCAL_SIZE, Value::Uint32(2)),
            (all, keys::NODE_SIZE, Value::Uint32(2)),
            (zero, keys::LOCAL_LEADER, Value::Rank(PmixRank(0))),
            (zero, keys::NODE_ID, Value::Uint32(0)),
            // App facts.
            (all, keys::APP_SIZE, Value::Uint32(2)),
            (one, keys::APP_LEADER, Value::Rank(PmixRank(0))),
            (one, keys::WORKING_DIR, text("/tmp/tr")),
            // Process facts.
            (zero, keys::LOCAL_RANK, Value::Uint16(0)),
            (one, keys::LOCAL_RANK, Value::Uint16(1)),
            (one, keys::NODE_RANK, Value::Uint16(1)),
            (one, keys::GLOBAL_RANK, Value::Rank(one)),
            (one, keys::APP_NUMBER, Value::Uint32(0)),
            (one, keys::HOSTNAME, text("vm")),
            (one, keys::LOCALITY, Value::String(None)),
            (one, keys::PROC_DIR, text(&format!("{dir}/1/1"))),
            (one, keys::REINCARNATION, Value::Uint32(0)),
        ] {
            assert_eq!(job.find(rank, key), Some(&value), "{name}: {rank} {key:?}");
        }
        assert_eq!(job.local_peers(), Some(vec![zero, one]), "{name}");
        assert_eq!(job.parent(), None, "{name}");
        assert_eq!(job.find(PmixRank(2), keys::LOCAL_RANK), None, "{name}");
        assert_eq!(job.find(all, keys::LOCAL_RANK), None, "{name}");
        let alias = job.of_node(c"192.0.2.2", keys::NODE_ID);
        assert_eq!(alias, Some(&Value::Uint32(0)), "{name}");
        let memory = job.find(all, c"pmix.pmem").map(Value::kind);
        assert_eq!(memory, Some(DataType::UINT64), "{name}");
        let argv = job.of_app(0, keys::APP_ARGV).and_then(Value::as_text);
        assert!(argv.unwrap().to_bytes().starts_with(b"sh -c"), "{name}");

        let codec = script.config.codec;
        let (_, server) = name.split_once("-server").unwrap();
        let server = server.split('-').next().unwrap().to_owned();
        *seen.entry((codec, server)).or_insert(0) += 1;
    }
    let both = |codec, server: &str| ((codec, server.to_owned()), 0);
    for ((codec, server), _) in [
        both(Codec::V3, "5.0.11"),
        both(Codec::V3, "6.1.0"),
        both(Codec::V41, "5.0.11"),
        both(Codec::V41, "6.1.0"),
    ] {
        assert!(
            seen.contains_key(&(codec, server.clone())),
            "{codec:?} {server}"
        );
    }
}

/// The context id and the members of a group of four processes, from every server.
#[test]
fn a_program_makes_a_group() {
    for script in Script::all() {
        let name = &script.name;
        if !name.starts_with("grp-") || name.starts_with("grp-client4.2.2") {
            continue;
        }
        let mut host = script.host(Program::new(NOW, script.config.clone()));
        let mut construct = None;
        for step in &script.steps {
            match step {
                Step::Asked(_, request @ Request::GroupConstruct { .. }) => {
                    construct = Some(ask(&mut host.machine, &script, request));
                }
                Step::Asked(..) => {}
                Step::Sent(bytes) => host.bytes(bytes),
            }
            host.drain();
        }
        let done = host.events.iter().find_map(|event| match event {
            ProgramEvent::Done { ticket, result } if Some(*ticket) == construct => Some(result),
            _ => None,
        });
        let Some(Ok(Done::Group(group))) = done else {
            panic!("{name}: {done:?}");
        };
        let nspace = host.machine.me().unwrap().nspace.clone();
        assert_eq!(group.members, [Proc::all(nspace)], "{name}");
        assert_eq!(group.context, Some(u64::from(u32::MAX)), "{name}");
    }
}

/// Makes a recorded request of a tool. `next` is the request that follows it in the recording.
fn ask_as_tool(tool: &mut Tool, request: &Request, next: Option<&Request>) -> Option<Ticket> {
    Some(match request.clone() {
        // Our tool requests its job info by itself.
        Request::JobInfo => return None,
        // Our tool registers for job ends by itself when it spawns.
        Request::Register { codes, .. } => {
            assert_eq!(codes, [Status::EVENT_JOB_END]);
            let Some(Request::Spawn { infos, apps }) = next.cloned() else {
                panic!("{next:?}");
            };
            tool.spawn(infos, apps)
        }
        Request::Spawn { .. } => return None,
        Request::Query { queries } => {
            let key = queries[0].keys[0].clone().unwrap();
            let extent = match key.to_bytes() {
                b"pmix.qry.ptable" => Extent::Job,
                b"pmix.qry.lptable" => Extent::Node,
                _ => return Some(tool.query(queries)),
            };
            let nspace = queries[0].qualifiers[0].value.as_text().unwrap();
            tool.proc_table(&Nspace::new(nspace).unwrap(), extent)
        }
        Request::IofPull {
            procs,
            infos,
            channels,
            ..
        } => tool.pull(procs, channels, infos).1,
        Request::IofPush { procs, bytes, .. } => match bytes.filter(|bytes| !bytes.is_empty()) {
            Some(bytes) => tool.push_stdin(procs, bytes),
            None => tool.close_stdin(procs),
        },
        Request::JobControl { targets, .. } => tool.control(targets, Control::Kill),
        Request::Notify { infos, .. } => {
            let procs = infos[0].value.as_procs().unwrap();
            tool.release(procs.into_iter().cloned().collect())
        }
        Request::Finalize => tool.program().finalize(NOW),
        other => panic!("{other:?}"),
    })
}

#[test]
fn a_tool_asks_as_libpmix_does_and_hears_of_its_job_alone() {
    let mut scenarios = BTreeMap::new();
    for script in Script::all() {
        let name = &script.name;
        if script.hello.kind != ConnectorKind::Tool {
            continue;
        }
        let scenario = name.split('-').nth(1).unwrap().to_owned();
        let mut host = script.host(Tool::new(NOW, script.config.clone()));
        let requests: Vec<_> = script
            .steps
            .iter()
            .filter_map(|step| match step {
                Step::Asked(_, request) => Some(request),
                Step::Sent(_) => None,
            })
            .collect();
        let mut at = 0;
        for step in &script.steps {
            match step {
                Step::Asked(_, request) => {
                    at += 1;
                    let next = requests.get(at).copied();
                    ask_as_tool(&mut host.machine, request, next);
                }
                Step::Sent(bytes) => host.bytes(bytes),
            }
            host.drain();
        }
        let sent: Vec<_> = host.frames.iter().collect();
        assert_eq!(sent, script.frames(), "{name}");

        let mut spawned = None;
        let mut ends = Vec::new();
        let mut output: BTreeMap<u64, Vec<u8>> = BTreeMap::new();
        let mut tables = Vec::new();
        for event in host.news() {
            match event {
                tool::Event::Program(ProgramEvent::Done {
                    result: Ok(Done::Spawned(nspace)),
                    ..
                }) => spawned = Some(nspace),
                tool::Event::Program(ProgramEvent::Done { result, .. }) => {
                    let after_the_end = result == Err(Status::NOT_FOUND);
                    assert!(result.is_ok() || after_the_end, "{name}: {result:?}");
                }
                tool::Event::Program(ProgramEvent::Stdio(piece)) => {
                    assert_eq!(piece.channels, IofChannels::STDOUT);
                    output.entry(piece.id).or_default().extend(piece.bytes);
                }
                tool::Event::Program(ProgramEvent::Ready { .. } | ProgramEvent::Finalized) => {}
                tool::Event::JobEnded { nspace, end } => ends.push((nspace, end)),
                tool::Event::Table { result, .. } => tables.push(result),
                other => panic!("{name}: {other:?}"),
            }
        }
        let spawned = spawned.unwrap();
        let end = JobEnd {
            status: Some(Status::SUCCESS),
            exit_code: None,
            failed: None,
        };
        // Some recorded tools disconnected before they ended the input of their job, so that it did not end.
        let ended = requests.iter().any(|request| match request {
            Request::IofPush { bytes, .. } => bytes.as_ref().is_some_and(Bytes::is_empty),
            _ => scenario != "stdin",
        });
        let expected = ended.then(|| (spawned.clone(), end));
        assert_eq!(ends, Vec::from_iter(expected), "{name}");

        let table = tables.first().unwrap();
        match (scenario.as_str(), table) {
            ("kill" | "stdin" | "stop", Ok(rows)) => {
                assert_eq!(rows.len(), 2, "{name}");
                assert_eq!(rows[1].proc, proc(&spawned.to_string(), 1), "{name}");
                assert_eq!(rows[0].hostname.as_deref(), Some(c"vm"), "{name}");
                assert!(rows.iter().all(|row| row.pid > 20_000), "{name}");
                let held = rows[0].state == ProcState::CONNECTED;
                assert_eq!(held, scenario == "stop", "{name}");
            }
            // The job may already have ended.
            ("plain" | "iof", Ok(_) | Err(Status::NOT_FOUND)) => {}
            other => panic!("{name}: {other:?}"),
        }
        let heard = |id| output.get(&id).map(|bytes| String::from_utf8_lossy(bytes));
        match scenario.as_str() {
            "plain" | "iof" => assert_eq!(heard(0).unwrap(), "hi\nhi\n", "{name}"),
            "stdin" => {
                assert_eq!(heard(0).unwrap(), "hello-stdin\n", "{name}");
                assert_eq!(heard(1).unwrap(), "hello-stdin\n", "{name}");
            }
            "stop" => assert!(heard(0).unwrap().starts_with("[0] cb a"), "{name}"),
            _ => assert_eq!(heard(0), None, "{name}"),
        }
        *scenarios.entry(scenario).or_insert(0) += 1;
    }
    let names: Vec<_> = scenarios.keys().map(String::as_str).collect();
    assert_eq!(names, ["iof", "kill", "plain", "stdin", "stop"]);
    assert!(scenarios.values().all(|count| *count == 7));
}

/// A get fails if a server answers it in another codec; all other requests succeed.
#[test]
fn an_answer_in_the_wrong_codec_fails_its_get() {
    for script in Script::all() {
        if !in_the_wrong_codec(&script.name) {
            continue;
        }
        let mut host = script.host(Client::new(NOW, script.config.clone()));
        let mut failed = 0;
        for step in &script.steps {
            match step {
                Step::Asked(_, Request::Finalize) => {
                    host.machine.finalize(NOW);
                }
                Step::Asked(_, request) => {
                    host.machine.request(request);
                }
                Step::Sent(bytes) => host.bytes(bytes),
            }
            host.drain();
        }
        for event in host.news() {
            if let Event::Answer { answer, .. } = event
                && answer == Answer::Status(Status::UNPACK_FAILURE)
            {
                failed += 1;
            }
        }
        assert_eq!(failed, 1, "{}", script.name);
    }
}
