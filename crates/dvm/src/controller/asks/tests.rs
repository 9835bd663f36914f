//! Tests of what the controller answers itself.

use base::{ExitStatus, Rank, RankSet};
use pmix::{
    message::{GroupForm, Shape},
    value::{Elements, ProcInfo},
};

use pmix::{
    keys,
    value::{Info, Key, Query, Value},
};

use super::*;
use crate::{
    controller::tests::{JOB, World},
    proto::{Drained, EndClass, Started, ToController},
};

fn query(nspace: &str) -> Request {
    let nspace = Value::text(nspace);
    let info = Info::new(Key::new(keys::NSPACE).unwrap(), nspace);
    Request::Query {
        queries: vec![Query {
            keys: vec![Some(keys::QUERY_PROC_TABLE.to_owned())],
            qualifiers: vec![info],
        }],
    }
}

/// Asks from rank 0 of the job, and returns the answer.
fn asked(world: &mut World, request: &Request) -> Answer {
    let mut writer = Writer::new(Format::V4);
    request.encode(&mut writer);
    let ask = ToController::Ask {
        proc: ProcId {
            job: JOB,
            rank: Rank(0),
        },
        ticket: AskId::Pmix(7),
        request: writer.into_bytes().into(),
    };
    let shape = Shape::of(request.command(), GroupForm::Members);
    let mut outputs = world.says(0, ask).into_iter();
    match (outputs.next(), outputs.next()) {
        (Some(ControllerOutput::Daemon(NodeId(0), ToDaemon::Answer { ticket, answer })), None) => {
            assert_eq!(ticket, AskId::Pmix(7));
            Answer::decode(Format::V4, shape, &answer).unwrap()
        }
        other => panic!("{other:?} is not the answer"),
    }
}

/// Formats the rows of the process table of the job.
fn table(world: &mut World) -> String {
    let Answer::Infos { infos, .. } = asked(world, &query("test@1")) else {
        panic!("no infos");
    };
    let Value::Array(array) = &infos[0].value else {
        panic!("no array");
    };
    let Elements::Values(rows) = &array.elements else {
        panic!("no values");
    };
    let rows = rows.iter().map(|row| match row {
        Value::ProcInfo(row) => {
            let ProcInfo {
                proc, pid, state, ..
            } = &**row;
            format!("{proc}: {pid}, {state:?}")
        }
        row => panic!("{row:?} is no row"),
    });
    rows.collect::<Vec<_>>().join("\n")
}

fn launched(world: &mut World, node: u32) {
    world.says(
        node,
        ToController::Launched {
            unenforced: Vec::new(),
            job: JOB,
            started: vec![Started {
                executable: "/bin/a".into(),
                pids: vec![(Rank(node), 100 + i32::try_from(node).unwrap())],
            }],
            failures: Vec::new(),
        },
    );
}

fn ended(world: &mut World, node: u32, status: ExitStatus) {
    let class = EndClass {
        status,
        drained: Drained::Whole,
        ranks: RankSet::single(Rank(node)),
    };
    let classes = vec![class];
    world.says(node, ToController::Ended { job: JOB, classes });
}

#[test]
fn the_table_has_all_ranks_from_their_start_to_after_their_end() {
    let mut world = World::new();
    launched(&mut world, 0);
    insta::assert_snapshot!(table(&mut world), @"
    test@1:0: 100, RUNNING
    test@1:1: 0, PREPPED
    test@1:2: 0, PREPPED
    ");
    launched(&mut world, 1);
    launched(&mut world, 2);
    ended(&mut world, 1, ExitStatus::Exited(0));
    insta::assert_snapshot!(table(&mut world), @"
    test@1:0: 100, RUNNING
    test@1:1: 101, TERMINATED
    test@1:2: 102, RUNNING
    ");
    world.lose(2);
    insta::assert_snapshot!(table(&mut world), @"
    test@1:0: 100, RUNNING
    test@1:1: 101, TERMINATED
    test@1:2: 102, ABORTED_BY_SIG
    ");
}

#[test]
fn a_job_that_there_is_not_has_no_table() {
    let mut world = World::new();
    let answer = asked(&mut world, &query("test@2"));
    assert_eq!(answer.status(), Status::NOT_FOUND);
}

/// An answer that does not fit into one message is a status.
#[test]
fn an_answer_that_is_too_long() {
    let mut world = World::new();
    let key = || Key::new(c"large").unwrap();
    let value = Value::ByteObject(vec![7; MAX_CARRIED].into());
    let publish = Request::Publish {
        uid: 0,
        infos: vec![Info::new(key(), value)],
    };
    assert_eq!(asked(&mut world, &publish).status(), Status::SUCCESS);
    let lookup = Request::Lookup {
        uid: 0,
        keys: vec![key()],
        infos: Vec::new(),
    };
    assert_eq!(asked(&mut world, &lookup).status(), Status::OUT_OF_RESOURCE);
}
