//! Allocation requests: which of them the host answers, and how its answer reaches the client.

use pmix::{
    keys,
    message::{Answer, Request},
    value::{AllocDirective, Info, Status, Value},
};

use crate::world::{DESCRIBED, V3, V5, V6, World, info};

fn request(directive: AllocDirective, infos: Vec<Info>) -> Request {
    Request::Allocate { directive, infos }
}

#[test]
fn the_host_answers_an_allocation_request() {
    for tongue in [V3, V5, V6, DESCRIBED] {
        for directive in [
            AllocDirective::NEW,
            AllocDirective::EXTEND,
            AllocDirective::RELEASE,
            AllocDirective::REACQUIRE,
        ] {
            let mut world = World::new(&[("a", 1)]);
            let conn = world.connect_as("a", 0, tongue);
            let wish = vec![info(keys::ALLOC_NUM_NODES, Value::Uint64(2))];
            let asked = request(directive, wish);
            let tag = world.send(conn, &asked);
            assert_eq!(world.asks[0].request, asked);
            assert_eq!(world.answer(conn, tag), None, "the host has not answered");
            let granted = Answer::Infos {
                status: Status::SUCCESS,
                infos: vec![info(keys::ALLOC_ID, Value::text("17"))],
            };
            world.reply(granted.clone());
            assert_eq!(world.answer(conn, tag), Some(granted), "{directive:?}");
            world.assert_no_state_left();
        }
    }
}

#[test]
fn a_refusal_of_the_host_is_passed_on() {
    for status in [
        Status::OUT_OF_RESOURCE,
        Status::NOT_FOUND,
        Status::TIMEOUT,
        Status::OPERATION_IN_PROGRESS,
    ] {
        let (mut world, conns) = World::of(1);
        let tag = world.send(conns[0], &request(AllocDirective::NEW, Vec::new()));
        world.reply(Answer::Status(status));
        assert_eq!(world.status(conns[0], tag), Some(status));
        world.assert_no_state_left();
    }
}

#[test]
fn other_directives_are_refused() {
    for number in [0, 5, 127, 128, 200, 255] {
        let (mut world, conns) = World::of(1);
        let asked = request(AllocDirective(number), Vec::new());
        let status = world.status_of(conns[0], &asked);
        assert_eq!(status, Status::NOT_SUPPORTED, "{number}");
        assert!(world.asks.is_empty(), "{number}");
        world.assert_no_state_left();
    }
}
