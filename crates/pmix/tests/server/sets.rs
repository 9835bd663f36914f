//! Process sets: named sets of the processes of a job.

use std::ffi::{CStr, CString};

use base::Rank;
use pmix::{
    keys,
    message::{Answer, Push},
    server::{AppFacts, Conn, Input, Job},
    value::{Info, Proc, Status, Value},
};

use crate::{
    tools::{ask_for, connect},
    world::{V5, V42, World, all, get, info, job, proc, text, values_of},
};

/// Creates a job with one rank for each app, whose process sets these are.
fn of_sets(name: &str, sets: &[Option<&str>]) -> Job {
    let mut job = job(name, sets.len().try_into().unwrap());
    let apps = (0..).zip(sets).map(|(leader, set)| AppFacts {
        size: 1,
        leader,
        set: set.and_then(text),
        ..AppFacts::default()
    });
    job.apps = apps.collect();
    for (app, facts) in (0..).zip(&mut job.ranks) {
        (facts.app, facts.app_rank) = (app, 0);
    }
    job
}

fn register(world: &mut World, name: &str, sets: &[Option<&str>]) {
    world.handle(Input::Register(Box::new(of_sets(name, sets))));
}

/// Returns the result of a query of one key; `None` if there is none.
fn asked(world: &mut World, conn: Conn, key: &CStr, qualifiers: Vec<Info>) -> Option<Value> {
    match world.ask(conn, &ask_for(&[key], qualifiers)) {
        Answer::Infos { infos, .. } => infos.first().map(|info| info.value.clone()),
        answer => panic!("{answer:?}"),
    }
}

fn called(name: &str) -> Info {
    info(keys::PSET_NAME, Value::text(name))
}

fn of_job(name: &str) -> Info {
    info(keys::NSPACE, Value::text(name))
}

fn members(procs: &[Proc]) -> Option<Value> {
    Some(Value::procs(procs.to_vec()))
}

#[test]
fn sets_can_be_asked_for() {
    let mut world = World::with_door();
    register(
        &mut world,
        "c",
        &[Some("ocean"), None, Some("air"), Some("ocean")],
    );
    register(&mut world, "b", &[Some("ice"), Some("ocean")]);
    let tool = connect(&mut world, "tool", V42);
    let (in_a, in_b) = (world.connect("a", 0), world.connect("b", 0));
    for conn in [tool, in_a, in_b] {
        for (qualifiers, names) in [
            (vec![], "ocean,air,ice"),
            (vec![of_job("a")], ""),
            (vec![of_job("b")], "ice,ocean"),
        ] {
            let count = names.split(',').filter(|name| !name.is_empty()).count();
            let count = Value::Size(count.try_into().unwrap());
            let found = asked(&mut world, conn, keys::QUERY_PSET_NAMES, qualifiers.clone());
            assert_eq!(found, Some(Value::text(names)));
            let found = asked(&mut world, conn, keys::QUERY_NUM_PSETS, qualifiers);
            assert_eq!(found, Some(count), "{names}");
        }
    }
    // Apps with one name are one set. A process means that of its own job, others that of the first one.
    let of_c = members(&[proc("c", 0), proc("c", 3)]);
    let of_b = members(&[proc("b", 1)]);
    for (conn, qualifiers, expected) in [
        (tool, vec![called("ocean")], of_c.clone()),
        (in_a, vec![called("ocean")], of_c.clone()),
        (in_b, vec![called("ocean")], of_b.clone()),
        (in_b, vec![called("air")], members(&[proc("c", 2)])),
        (tool, vec![called("ocean"), of_job("b")], of_b),
        (in_b, vec![called("ocean"), of_job("c")], of_c),
        (in_b, vec![called("ocean"), of_job("a")], None),
        (in_b, vec![called("oceans")], None),
        (in_b, vec![], None),
    ] {
        let found = asked(&mut world, conn, keys::QUERY_PSET_MEMBERSHIP, qualifiers);
        assert_eq!(found, expected);
    }
    // They end with their job.
    world.handle(Input::Deregister(proc("c", 0).nspace));
    let found = asked(&mut world, tool, keys::QUERY_PSET_NAMES, Vec::new());
    assert_eq!(found, Some(Value::text("ice,ocean")));
    world.assert_no_state_left();
}

#[test]
fn a_process_knows_its_set() {
    let mut world = World::new(&[]);
    register(&mut world, "a", &[None, Some("ocean"), Some("ocean")]);
    let conn = world.connect("a", 0);
    for key in [keys::PSET_NAME, keys::PSET_NAMES] {
        let key = key.to_str().unwrap();
        let without = world.status_of(conn, &get(&proc("a", 0), key, Vec::new()));
        assert_eq!(without, Status::NOT_FOUND);
        let answer = world.ask(conn, &get(&proc("a", 2), key, Vec::new()));
        let values = values_of(world.format(conn), &answer, &proc("a", 2));
        assert_eq!(values[key], Value::text("ocean"));
    }
    let key = keys::PSET_MEMBERS.to_str().unwrap();
    let answer = world.ask(conn, &get(&proc("a", 2), key, Vec::new()));
    let values = values_of(world.format(conn), &answer, &proc("a", 2));
    assert_eq!(values[key], Value::procs(vec![proc("a", 1), proc("a", 2)]));
    world.assert_no_state_left();
}

/// Returns the sets of the events that a connection has received.
fn heard(world: &mut World, conn: Conn) -> Vec<(Value, Value)> {
    let pushes = world.pushes(conn);
    let sets = pushes.iter().map(|push| match push {
        Push::Event { status, infos, .. } if *status == Status::PROCESS_SET_DEFINE => {
            let value = |key: &CStr| {
                infos
                    .iter()
                    .find(|info| info.key == *key)
                    .unwrap()
                    .value
                    .clone()
            };
            (value(keys::PSET_NAME), value(keys::PSET_MEMBERS))
        }
        push => panic!("{push:?}"),
    });
    sets.collect()
}

/// Members of the set get the event when they register for it, because they start after its definition.
#[test]
fn a_set_is_announced() {
    let mut world = World::with_door();
    let (early, deaf) = (world.connect("a", 0), world.connect("a", 1));
    world.register(early, &[Status::PROCESS_SET_DEFINE]);
    world.register(deaf, &[]);
    register(
        &mut world,
        "b",
        &[Some("ocean"), Some("air"), Some("ocean")],
    );
    let member = world.connect("b", 0);
    world.register(member, &[Status::PROCESS_SET_DEFINE]);
    let tool = connect(&mut world, "tool", V5);
    world.register(tool, &[Status::PROCESS_SET_DEFINE]);
    let expected = [
        (
            Value::text("ocean"),
            Value::procs(vec![proc("b", 0), proc("b", 2)]),
        ),
        (Value::text("air"), Value::procs(vec![proc("b", 1)])),
    ];
    for conn in [early, member, tool] {
        assert_eq!(heard(&mut world, conn), expected);
    }
    assert_eq!(heard(&mut world, deaf), []);
    // A later tool hears only of sets that exist.
    world.handle(Input::Deregister(all("b").nspace));
    let late = connect(&mut world, "late", V5);
    world.register(late, &[Status::PROCESS_SET_DEFINE]);
    assert_eq!(heard(&mut world, late), []);
    world.assert_no_state_left();
}

/// A set that is defined while the job runs is like those of apps, and ends with the job.
#[test]
fn a_set_can_be_defined_later() {
    let mut world = World::with_door();
    register(&mut world, "b", &[Some("ocean"), None, None]);
    let conn = world.connect("b", 0);
    world.register(conn, &[Status::PROCESS_SET_DEFINE]);
    heard(&mut world, conn);
    let define = |job: &str, name: &str, ranks: &[u32]| Input::DefineSet {
        nspace: all(job).nspace,
        name: CString::new(name).unwrap(),
        ranks: ranks.iter().copied().map(Rank).collect(),
    };
    world.handle(define("b", "air", &[0, 2]));
    world.handle(define("nope", "air", &[0]));
    let expected = vec![proc("b", 0), proc("b", 2)];
    let event = (Value::text("air"), Value::procs(expected.clone()));
    assert_eq!(heard(&mut world, conn), std::slice::from_ref(&event));
    let tool = connect(&mut world, "tool", V5);
    let names = asked(&mut world, tool, keys::QUERY_PSET_NAMES, vec![]);
    assert_eq!(names, Some(Value::text("ocean,air")));
    let found = asked(
        &mut world,
        tool,
        keys::QUERY_PSET_MEMBERSHIP,
        vec![called("air")],
    );
    assert_eq!(found, members(&expected));
    world.register(tool, &[Status::PROCESS_SET_DEFINE]);
    assert_eq!(heard(&mut world, tool).last(), Some(&event));
    world.handle(Input::Deregister(all("b").nspace));
    let names = asked(&mut world, tool, keys::QUERY_PSET_NAMES, vec![]);
    assert_eq!(names, Some(Value::text("")));
    world.assert_no_state_left();
}
