//! Output that is kept for tools that come later.

use bytes::Bytes;
use pmix::{
    keys,
    message::{Push, Request},
    server::{
        Conn, Input, KEPT_DEFAULT, Keeping, MAX_KEPT, MAX_KEPT_BYTES, MAX_KEPT_JOBS, Overflow,
    },
    value::{Info, IofChannels, Proc, Status, Value},
};

use crate::{
    tools::connect,
    world::{V5, World, all, flag, info, job, nspace, proc},
};

const OUT: IofChannels = IofChannels::STDOUT;
const ERR: IofChannels = IofChannels::STDERR;

fn tool(world: &mut World, name: &str) -> Conn {
    connect(world, name, V5)
}

fn keeping(bytes: u32, overflow: Overflow) -> Option<Keeping> {
    Some(Keeping { bytes, overflow })
}

/// Registers a job that the tool `t` has spawned.
fn spawned(world: &mut World, name: &str, keep: Option<Keeping>) {
    let mut child = job(name, 2);
    child.parent = Some(proc("t", 0));
    child.keep = keep;
    world.handle(Input::Register(Box::new(child)));
}

fn prints(world: &mut World, of: Proc, channels: IofChannels, bytes: impl Into<Bytes>) {
    let bytes = bytes.into();
    world.handle(Input::Output {
        proc: of,
        channels,
        bytes,
    });
}

fn pull(of: Proc, channels: IofChannels, infos: Vec<Info>) -> Request {
    Request::IofPull {
        procs: vec![of],
        infos,
        channels,
        id: 9,
    }
}

/// Lets a tool pull both channels, and returns what it gets with the answer: each piece with its source and channel; EOF as `.`.
fn pulled(world: &mut World, conn: Conn, of: Proc) -> String {
    let both = pull(of, OUT.with(ERR), Vec::new());
    assert_eq!(world.status_of(conn, &both), Status::SUCCESS);
    let pushes = world.pushes(conn).into_iter().map(|push| match push {
        Push::Output {
            source,
            channels,
            id: 9,
            bytes,
            infos,
        } => {
            let stream = if channels == OUT { "out" } else { "err" };
            assert_eq!(infos.is_empty(), !bytes.is_empty());
            let text = match bytes.is_empty() {
                true => ".",
                false => str::from_utf8(&bytes).unwrap(),
            };
            format!("{stream} {}: {text}", source.rank.0)
        }
        other => panic!("{other:?} is no output"),
    });
    pushes.collect::<Vec<_>>().join(" | ")
}

/// The host forgets what is wanted of a job that it does not know.
#[test]
fn who_pulls_before_a_job_exists_gets_its_output() {
    let mut world = World::with_door();
    let first = tool(&mut world, "t");
    assert_eq!(pulled(&mut world, first, all("b")), "");
    world.wanted.clear();
    world.handle(Input::Register(Box::new(job("b", 2))));
    assert_eq!(world.wanted, [(nspace("b"), OUT.with(ERR))]);
    prints(&mut world, proc("b", 0), OUT, "one");
    assert_eq!(world.pushes(first).len(), 1);
}

#[test]
fn who_pulls_late_gets_what_was_before() {
    let mut world = World::with_door();
    let first = tool(&mut world, "t");
    spawned(&mut world, "b", Some(Keeping::DEFAULT));
    assert_eq!(world.wanted, [(nspace("b"), OUT.with(ERR))]);
    prints(&mut world, proc("b", 0), OUT, "one ");
    prints(&mut world, proc("b", 0), OUT, "two");
    prints(&mut world, proc("b", 1), ERR, "three");
    prints(&mut world, proc("b", 0), OUT, "four");
    prints(&mut world, proc("b", 1), ERR, "");
    // Nothing is kept of a job for which nobody has asked.
    prints(&mut world, proc("a", 0), OUT, "gone");
    let second = tool(&mut world, "u");
    let kept = "out 0: one twofour | err 1: three | err 1: .";
    assert_eq!(pulled(&mut world, second, all("b")), kept);
    assert_eq!(pulled(&mut world, second, all("a")), "");
    // Every tool gets it, and may choose.
    assert_eq!(
        pulled(&mut world, first, proc("b", 1)),
        "err 1: three | err 1: ."
    );
    // Then comes what follows.
    prints(&mut world, proc("b", 1), OUT, "five");
    assert_eq!(world.pushes(first).len(), 1);
    // When a job was short, its tool still gets it.
    world.handle(Input::Deregister(nspace("b")));
    assert!(pulled(&mut world, second, all("b")).ends_with("out 1: five | err 1: ."));
    world.close(first);
    assert_eq!(pulled(&mut world, second, all("b")), "");
    world.close(second);
    world.assert_no_state_left();
}

#[test]
fn the_oldest_or_the_newest_is_dropped() {
    let text = ["one ", "two ", "three ", "four"];
    for (bytes, overflow, kept) in [
        (9, Overflow::DropNewest, "out 0: one two t"),
        (9, Overflow::DropOldest, "out 0: hree four"),
        (3, Overflow::DropNewest, "out 0: one"),
        (3, Overflow::DropOldest, "out 0: our"),
        (0, Overflow::DropNewest, ""),
        (0, Overflow::DropOldest, ""),
    ] {
        let mut world = World::with_door();
        let conn = tool(&mut world, "t");
        spawned(&mut world, "b", keeping(bytes, overflow));
        for part in text {
            prints(&mut world, proc("b", 0), OUT, part);
        }
        assert_eq!(
            pulled(&mut world, conn, all("b")),
            kept,
            "{bytes} {overflow:?}"
        );
        world.close(conn);
        world.handle(Input::Deregister(nspace("b")));
        world.assert_no_state_left();
    }
    // Each channel has its own room, and pieces of several processes count together.
    let mut world = World::with_door();
    let conn = tool(&mut world, "t");
    spawned(&mut world, "b", keeping(4, Overflow::DropOldest));
    for (rank, channels, text) in [
        (0, OUT, "abc"),
        (1, OUT, "de"),
        (0, ERR, "fghi"),
        (0, OUT, "j"),
    ] {
        prints(&mut world, proc("b", rank), channels, text);
    }
    let kept = "out 0: c | out 1: de | err 0: fghi | out 0: j";
    assert_eq!(pulled(&mut world, conn, all("b")), kept);
}

#[test]
fn a_tool_asks_for_it_when_it_pulls() {
    let mut world = World::with_door();
    let conn = tool(&mut world, "t");
    let size = |bytes| info(keys::IOF_CACHE_SIZE, Value::Uint32(bytes));
    let both = vec![flag(keys::IOF_DROP_OLDEST), flag(keys::IOF_DROP_NEWEST)];
    for (infos, status) in [
        (both, Status::BAD_PARAM),
        (
            vec![info(keys::IOF_CACHE_SIZE, Value::text("1"))],
            Status::BAD_PARAM,
        ),
        (vec![size(4)], Status::SUCCESS),
    ] {
        assert_eq!(world.status_of(conn, &pull(all("a"), OUT, infos)), status);
    }
    prints(&mut world, proc("a", 0), OUT, "hello");
    prints(&mut world, proc("a", 0), ERR, "bye");
    world.close(conn);
    // It is kept while the job runs, whoever has asked for it; a rank does not get it.
    let other = tool(&mut world, "u");
    assert_eq!(pulled(&mut world, other, all("a")), "out 0: hell");
    world.close(other);
    let rank = world.connect("a", 0);
    assert_eq!(pulled(&mut world, rank, all("a")), "");
    world.close(rank);
    world.handle(Input::Deregister(nspace("a")));
    world.assert_no_state_left();
}

#[test]
fn what_is_kept_is_bounded() {
    let mut world = World::with_door();
    let conn = tool(&mut world, "t");
    let size = MAX_KEPT as usize;
    let jobs = MAX_KEPT_BYTES / size;
    // Jobs that run do not take the room from each other; those that have ended give theirs.
    for number in 0..=jobs {
        let name = format!("j{number}");
        spawned(&mut world, &name, keeping(MAX_KEPT, Overflow::DropNewest));
        prints(&mut world, proc(&name, 0), OUT, vec![b'x'; size / 2]);
        prints(&mut world, proc(&name, 0), OUT, vec![b'y'; size / 2]);
    }
    let length = |world: &mut World, name: &str| pulled(world, conn, all(name)).len();
    assert!(length(&mut world, "j0") > size);
    assert_eq!(length(&mut world, &format!("j{jobs}")), 0);
    world.handle(Input::Deregister(nspace("j0")));
    assert!(length(&mut world, "j0") > size);
    spawned(&mut world, "next", keeping(MAX_KEPT, Overflow::DropOldest));
    prints(&mut world, proc("next", 0), OUT, vec![b'z'; size]);
    assert!(length(&mut world, "next") > size);
    assert_eq!(length(&mut world, "j0"), 0);
    world.close(conn);
}

#[test]
fn so_many_jobs_that_have_ended_are_remembered() {
    let mut world = World::with_door();
    let conn = tool(&mut world, "t");
    for number in 0..=MAX_KEPT_JOBS {
        let name = format!("j{number}");
        spawned(
            &mut world,
            &name,
            keeping(KEPT_DEFAULT, Overflow::DropNewest),
        );
        prints(&mut world, proc(&name, 0), OUT, "text");
        world.handle(Input::Deregister(nspace(&name)));
    }
    assert_eq!(pulled(&mut world, conn, all("j0")), "");
    assert_eq!(pulled(&mut world, conn, all("j1")), "out 0: text");
    world.close(conn);
    world.handle(Input::Deregister(nspace("a")));
    world.assert_no_state_left();
}

/// One read of a tool has many pulls, and each gets all that is kept: what is made before the host sends it is bounded.
#[test]
fn many_pulls_in_one_read_are_refused() {
    let mut world = World::with_door();
    let conn = tool(&mut world, "t");
    let size = MAX_KEPT as usize;
    let names: Vec<String> = (0..MAX_KEPT_BYTES / size - 1)
        .map(|number| format!("j{number}"))
        .collect();
    for name in &names {
        spawned(&mut world, name, keeping(MAX_KEPT, Overflow::DropNewest));
        prints(&mut world, proc(name, 0), OUT, vec![b'x'; size]);
    }
    let everything = Request::IofPull {
        procs: names.iter().map(|name| all(name)).collect(),
        infos: Vec::new(),
        channels: OUT,
        id: 9,
    };
    let read: Vec<u8> = (0..10)
        .flat_map(|_| world.message(conn, &everything))
        .collect();
    world.bytes(conn, &read);
    let answers = world.answers(conn);
    let is_refused = |status: &Status| *status == Status::OUT_OF_RESOURCE;
    let statuses: Vec<Status> = answers.values().map(|answer| answer.status()).collect();
    assert_eq!(statuses.len(), 10);
    assert_eq!(
        statuses.iter().filter(|status| is_refused(status)).count(),
        8,
        "{statuses:?}"
    );
    world.pushes(conn);
    // Later there is room again.
    assert_eq!(world.status_of(conn, &everything), Status::SUCCESS);
    world.close(conn);
}

/// Who asks first decides what is dropped; ends of streams count.
#[test]
fn a_second_tool_changes_nothing_of_what_the_first_has_asked() {
    let mut world = World::with_door();
    let first = tool(&mut world, "t");
    spawned(&mut world, "b", keeping(4, Overflow::DropOldest));
    prints(&mut world, proc("b", 0), OUT, "beginning");
    let second = tool(&mut world, "u");
    let newest = vec![
        flag(keys::IOF_DROP_NEWEST),
        info(keys::IOF_CACHE_SIZE, Value::Size(1)),
    ];
    assert_eq!(
        world.status_of(second, &pull(all("b"), OUT, newest)),
        Status::SUCCESS
    );
    world.pushes(second);
    prints(&mut world, proc("b", 0), OUT, "end");
    prints(&mut world, proc("b", 0), OUT, "");
    prints(&mut world, proc("b", 0), OUT, "");
    world.pushes(second);
    assert_eq!(
        pulled(&mut world, first, all("b")),
        "out 0: gend | out 0: ."
    );
    world.close(first);
    world.close(second);
    world.handle(Input::Deregister(nspace("b")));
    world.handle(Input::Deregister(nspace("a")));
    world.assert_no_state_left();
}
