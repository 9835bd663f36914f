//! Facts about jobs that processes get without asking, and facts that they request.

use pmix::{
    codec::Format,
    message::{Answer, Facts, Request},
    server::Input,
    value::{Elements, Kval, PmixRank, Status, Value},
};

use crate::{
    dialogue::{Dialogue, Message},
    recording,
    world::{V3, V5, V6, V42, World, all, get, job, key, proc, text, values_of},
};

/// Returns each host name in the job info of a client, with the key of the fact that contains it.
fn places_of_hosts(format: Format, facts: &[Kval]) -> Vec<String> {
    let hname = key("pmix.hname");
    let mut places = Vec::new();
    for fact in facts {
        let said: Vec<Value> = match &fact.value {
            Value::Array(array) => match &array.elements {
                Elements::Values(values) => {
                    let infos = values.iter().filter_map(|value| match value {
                        Value::Info(info) => Some(info),
                        _ => None,
                    });
                    let named = infos.filter(|info| info.key == hname);
                    named.map(|info| info.value.clone()).collect()
                }
                _ => Vec::new(),
            },
            Value::ByteObject(bytes) if fact.key == key("pmix.pblob") => {
                let facts = Facts::<PmixRank>::decode(format, bytes).unwrap().facts;
                let named = facts.into_iter().filter(|fact| fact.key == hname);
                named.map(|fact| fact.value).collect()
            }
            value if fact.key == hname => vec![value.clone()],
            _ => Vec::new(),
        };
        for value in said {
            places.push(format!("{}: {value}", fact.key));
        }
    }
    places
}

/// libpmix 4.2.9 looks up its host name without a rank. It finds it neither in the facts of the node nor in its own.
#[test]
fn the_name_of_the_host_is_where_other_servers_say_it() {
    let is_of_it = |name: &str| name.starts_with("cli-client4.2.9-server");
    let recordings = recording::all();
    let recordings = recordings
        .iter()
        .filter(|recording| is_of_it(&recording.name));
    let mut told: Vec<Vec<String>> = Vec::new();
    for recording in recordings {
        let dialogue = Dialogue::of(recording);
        let facts = dialogue
            .entries
            .iter()
            .find_map(|entry| match &entry.message {
                Message::Answer {
                    answer: Answer::JobInfo { facts, .. },
                    ..
                } => Some(facts),
                _ => None,
            });
        told.push(places_of_hosts(dialogue.format, facts.unwrap()));
    }
    assert_eq!(told.len(), 4);
    let mut world = World::new(&[("a", 2)]);
    let conn = world.connect_as("a", 0, V42);
    let Answer::JobInfo { facts, .. } = world.ask(conn, &Request::JobInfo) else {
        panic!("no job");
    };
    let ours = places_of_hosts(world.format(conn), &facts).join("\n");
    insta::assert_snapshot!(ours, @r#"
    pmix.hname: "node"
    pmix.node.arr: "node"
    pmix.pblob: "node"
    pmix.pblob: "node"
    "#);
    for theirs in told {
        assert_eq!(theirs.join("\n").replace("vm", "node"), ours);
    }
    world.assert_no_state_left();
}

/// The spawner knows a job before the two connect. libpmix 4 requests the facts of its ranks as facts of the job.
#[test]
fn a_spawner_knows_the_job() {
    for tongue in [V3, V42, V5, V6] {
        let mut world = World::new(&[("a", 1), ("child", 2)]);
        let conn = world.connect_as("a", 0, tongue);
        let spawn = Request::Spawn {
            infos: Vec::new(),
            apps: Vec::new(),
        };
        let tag = world.send(conn, &spawn);
        world.reply(Answer::Spawned {
            status: Status::SUCCESS,
            nspace: text("child"),
            facts: Vec::new(),
        });
        let Some(Answer::Spawned { nspace, facts, .. }) = world.answer(conn, tag) else {
            panic!("it is not told that it has spawned");
        };
        assert_eq!(nspace, text("child"));
        let count = |wanted: &str| {
            let facts = facts.iter().filter(|fact| fact.key == key(wanted));
            facts.count()
        };
        let kinds = [
            "pmix.job.size",
            "pmix.node.arr",
            "pmix.app.arr",
            "pmix.pblob",
        ];
        assert_eq!(kinds.map(count), [1, 1, 1, 2]);
        // A fact of a rank, requested for the job; and a fact that does not exist.
        let answer = world.ask(conn, &get(&all("child"), "pmix.lrank", Vec::new()));
        let values = values_of(world.format(conn), &answer, &all("child"));
        assert!(values.contains_key("pmix.pdata"), "{values:?}");
        let unknown = get(&all("child"), "pmix.unknown", Vec::new());
        assert_eq!(world.status_of(conn, &unknown), Status::NOT_FOUND);
        // The client already has all facts of its own job.
        let own = get(&all("a"), "pmix.lrank", Vec::new());
        assert_eq!(world.status_of(conn, &own), Status::NOT_FOUND);
        world.assert_no_state_left();
    }
}

/// Libraries check only whether the fact exists, not its value.
#[test]
fn a_node_is_said_to_be_oversubscribed_only_where_it_is() {
    for crowded in [false, true] {
        let mut world = World::new(&[]);
        let mut one = job("a", 1);
        one.nodes[0].oversubscribed = crowded;
        one.nodes[0].procs = 3;
        world.handle(Input::Register(Box::new(one)));
        let conn = world.connect("a", 0);
        let asked = get(&all("a"), "pmix.ndosub", Vec::new());
        let answer = world.ask(conn, &asked);
        if crowded {
            let values = values_of(Format::V4, &answer, &all("a"));
            assert_eq!(values["pmix.ndosub"], Value::Bool(true));
        } else {
            assert_eq!(answer.status(), Status::NOT_FOUND);
        }
        // Processes of other jobs on the node are included.
        let answer = world.ask(conn, &get(&all("a"), "pmix.node.size", Vec::new()));
        let values = values_of(Format::V4, &answer, &all("a"));
        assert_eq!(values["pmix.node.size"], Value::Uint32(3));
        world.assert_no_state_left();
    }
}

/// Pids become facts once processes have started.
#[test]
fn pids_are_facts() {
    let (mut world, conns) = World::of(2);
    let pids_told = |world: &mut World| {
        let Answer::JobInfo { facts, .. } = world.ask(conns[0], &Request::JobInfo) else {
            panic!("no facts");
        };
        let text = format!("{facts:?}");
        text.matches("pmix.ppid").count()
    };
    assert_eq!(pids_told(&mut world), 0);
    for rank in 0..2 {
        let ask = get(&proc("a", rank), "pmix.ppid", Vec::new());
        assert_eq!(world.status_of(conns[0], &ask), Status::NOT_FOUND);
        world.handle(Input::Started {
            proc: proc("a", rank),
            pid: 70 + rank,
        });
        let answer = world.ask(conns[0], &ask);
        let values = values_of(Format::V4, &answer, &proc("a", rank));
        assert_eq!(values["pmix.ppid"], Value::Pid(70 + rank));
    }
    assert_eq!(pids_told(&mut world), 2);
    world.assert_no_state_left();
}
