//! Limits on the resources of a peer, and what happens beyond them. The limits on events, output, groups and published data are
//! tested with those features.

use pmix::{
    message::Request,
    server::{MAX_CONNECTED_SETS, MAX_GROUPS, MAX_WAITING, MAX_WAITING_BYTES, Refusal},
    value::{Status, Value},
};

use crate::world::{World, all, fence, get, info, proc, text};

#[test]
fn requests_that_wait() {
    let (mut world, conns) = World::of(2);
    let request = get(&proc("a", 1), "never", Vec::new());
    for _ in 0..MAX_WAITING {
        world.send(conns[0], &request);
    }
    assert!(world.is_open(conns[0]));
    world.send(conns[0], &request);
    assert!(!world.is_open(conns[0]));
    assert_eq!(world.refusals, [Refusal::TooManyRequests]);
    // The other client is not affected.
    assert_eq!(
        world.status_of(conns[1], &fence(&[proc("a", 1)])),
        Status::SUCCESS
    );
    world.assert_no_state_left();
}

#[test]
fn bytes_of_requests_that_wait() {
    let (mut world, conns) = World::of(2);
    let large = Value::ByteObject(vec![0; MAX_WAITING_BYTES / 3].into());
    let request = Request::GroupConstruct {
        group: text("group"),
        procs: vec![all("a")],
        infos: vec![info(pmix::keys::GROUP_INFO, large)],
    };
    for _ in 0..2 {
        world.send(conns[0], &request);
        assert!(world.is_open(conns[0]));
    }
    world.send(conns[0], &request);
    assert!(!world.is_open(conns[0]));
    assert_eq!(world.refusals, [Refusal::TooManyRequests]);
    world.assert_no_state_left();
}

#[test]
fn one_request_may_be_larger() {
    let (mut world, conns) = World::of(2);
    let large = Value::ByteObject(vec![0; MAX_WAITING_BYTES + 1].into());
    let request = Request::Fence {
        procs: vec![all("a")],
        infos: vec![info(c"large", large)],
    };
    world.send(conns[0], &request);
    assert!(world.is_open(conns[0]));
    // A second request exceeds the limit.
    world.send(conns[0], &request);
    assert!(!world.is_open(conns[0]));
    world.assert_no_state_left();
}

#[test]
fn groups() {
    let (mut world, conns) = World::of(1);
    let construct = |at: usize| Request::GroupConstruct {
        group: text(&format!("group {at}")),
        procs: vec![proc("a", 0)],
        infos: Vec::new(),
    };
    for at in 0..MAX_GROUPS {
        assert_eq!(world.status_of(conns[0], &construct(at)), Status::SUCCESS);
    }
    let full = world.status_of(conns[0], &construct(MAX_GROUPS));
    assert_eq!(full, Status::OUT_OF_RESOURCE);
    let end = Request::GroupDestruct {
        group: text("group 7"),
        procs: None,
        infos: Vec::new(),
    };
    assert_eq!(world.status_of(conns[0], &end), Status::SUCCESS);
    assert_eq!(
        world.status_of(conns[0], &construct(MAX_GROUPS)),
        Status::SUCCESS
    );
    world.assert_no_state_left();
}

#[test]
fn connected_sets() {
    let (mut world, conns) = World::of(1);
    let procs = vec![proc("a", 0)];
    let connect = Request::Connect {
        procs: procs.clone(),
        infos: Vec::new(),
        data: Vec::new(),
    };
    for _ in 0..MAX_CONNECTED_SETS {
        assert_eq!(world.status_of(conns[0], &connect), Status::SUCCESS);
    }
    assert_eq!(world.status_of(conns[0], &connect), Status::OUT_OF_RESOURCE);
    let disconnect = Request::Disconnect {
        procs,
        infos: Vec::new(),
    };
    assert_eq!(world.status_of(conns[0], &disconnect), Status::SUCCESS);
    assert_eq!(world.status_of(conns[0], &connect), Status::SUCCESS);
    world.assert_no_state_left();
}

#[test]
fn what_a_peer_leaves_behind_it_does_not_leave_twice() {
    // A client repeatedly starts collectives that no other process joins. None remains after its connection closes.
    let mut world = World::new(&[("a", 3)]);
    for _ in 0..50 {
        let conn = world.connect("a", 0);
        for rank in [1, 2] {
            world.send(conn, &fence(&[proc("a", 0), proc("a", rank)]));
        }
        world.send(conn, &get(&proc("a", 1), "never", Vec::new()));
        world.register(conn, &[Status(-3000)]);
        world.close(conn);
    }
    world.assert_no_state_left();
}
