//! Published data: its range, its persistence, and lookups that wait for it.

use std::time::Duration;

use base::Time;
use pmix::{
    keys,
    server::{FoundFor, MAX_LOOKUPS, MAX_PUBLISHED, MAX_PUBLISHED_BYTES, PublishedData},
    value::{Info, Key, Persistence, Proc, Range, Status, Value},
};

use crate::world::{flag, info, key, nspace, proc, seconds};

fn data(name: &str, number: u32) -> Info {
    Info::new(key(name), Value::Uint32(number))
}

fn range(range: Range) -> Info {
    info(keys::RANGE, Value::Range(range))
}

fn persistence(persistence: Persistence) -> Info {
    info(keys::PERSISTENCE, Value::Persistence(persistence))
}

fn wanted(names: &[&str]) -> Vec<Key> {
    names.iter().map(|name| key(name)).collect()
}

/// Looks up data that is already published.
fn find(published: &mut PublishedData<u32>, from: &Proc, names: &[&str]) -> Vec<Value> {
    let found = published
        .lookup(Time::ZERO, 0, from, wanted(names), &[])
        .unwrap();
    found.data.into_iter().map(|data| data.value).collect()
}

fn publish(published: &mut PublishedData<u32>, from: &Proc, infos: Vec<Info>) -> Status {
    let (status, served) = published.publish(from, infos);
    assert!(served.is_empty());
    status
}

/// Data of `a:0` in each range, looked up by `a:0`, `a:1` and `b:0`.
#[test]
fn ranges() {
    for (within, expected) in [
        (Range::SESSION, [true, true, true]),
        (Range::GLOBAL, [true, true, true]),
        (Range::LOCAL, [true, true, true]),
        (Range::NAMESPACE, [true, true, false]),
        (Range::PROC_LOCAL, [true, false, false]),
        (Range::RM, [false, false, false]),
    ] {
        let mut published = PublishedData::default();
        let infos = vec![range(within), data("name", 1)];
        publish(&mut published, &proc("a", 0), infos);
        let seen = [proc("a", 0), proc("a", 1), proc("b", 0)]
            .map(|who| !find(&mut published, &who, &["name"]).is_empty());
        assert_eq!(seen, expected, "{within:?}");
    }
}

#[test]
fn a_name_is_taken_once_in_a_range() {
    let mut published = PublishedData::default();
    let me = proc("a", 0);
    assert_eq!(
        publish(&mut published, &me, vec![data("name", 1)]),
        Status::SUCCESS
    );
    // Either all data is published or none.
    let both = vec![data("other", 1), data("name", 2)];
    assert_eq!(publish(&mut published, &me, both), Status::DUPLICATE_KEY);
    assert_eq!(find(&mut published, &me, &["other"]), []);
    // Data with the same key differs by range, by job in the range NAMESPACE, and by process in the range PROC_LOCAL.
    for (who, within, expected) in [
        (proc("a", 0), Range::NAMESPACE, Status::SUCCESS),
        (proc("a", 1), Range::NAMESPACE, Status::DUPLICATE_KEY),
        (proc("b", 0), Range::NAMESPACE, Status::SUCCESS),
        (proc("a", 0), Range::PROC_LOCAL, Status::SUCCESS),
        (proc("a", 1), Range::PROC_LOCAL, Status::SUCCESS),
        (proc("a", 1), Range::PROC_LOCAL, Status::DUPLICATE_KEY),
    ] {
        let infos = vec![range(within), data("name", 3)];
        assert_eq!(publish(&mut published, &who, infos), expected, "{who}");
    }
}

#[test]
fn data_lives_as_long_as_it_is_to() {
    for (lives, after_read, after_proc, after_job) in [
        (Persistence::FIRST_READ, false, true, true),
        (Persistence::PROC, true, false, false),
        (Persistence::APP, true, true, false),
        (Persistence::SESSION, true, true, true),
    ] {
        let reader = proc("b", 0);
        let fresh = || {
            let mut published = PublishedData::default();
            let infos = vec![persistence(lives), data("name", 1)];
            publish(&mut published, &proc("a", 0), infos);
            published
        };
        let lives_on =
            |published: &mut PublishedData<u32>| !find(published, &reader, &["name"]).is_empty();
        let mut published = fresh();
        assert!(lives_on(&mut published));
        assert_eq!(lives_on(&mut published), after_read, "{lives:?}");
        let mut published = fresh();
        published.proc_ended(&proc("a", 1));
        published.proc_ended(&proc("a", 0));
        assert_eq!(lives_on(&mut published), after_proc, "{lives:?}");
        let mut published = fresh();
        published.job_ended(&nspace("b"));
        published.job_ended(&nspace("a"));
        assert_eq!(lives_on(&mut published), after_job, "{lives:?}");
    }
}

#[test]
fn who_waits_is_served() {
    let mut published = PublishedData::default();
    let wait = |value: Value| vec![info(keys::WAIT, value)];
    let ask = |published: &mut PublishedData<u32>, token, infos: &[Info]| {
        let keys = wanted(&["one", "two", "three"]);
        published.lookup(Time::ZERO, token, &proc("b", token), keys, infos)
    };
    // Lookups that wait for all keys, for two of them, and for none.
    assert_eq!(ask(&mut published, 1, &[flag(keys::WAIT)]), None);
    assert_eq!(ask(&mut published, 2, &wait(Value::Int(2))), None);
    assert_eq!(ask(&mut published, 3, &wait(Value::Int(0))), None);
    let at_once = ask(&mut published, 4, &wait(Value::Bool(false))).unwrap();
    assert_eq!(at_once.status, Status::NOT_FOUND);

    let me = proc("a", 0);
    let tokens = |served: Vec<FoundFor<u32>>| -> Vec<(u32, usize)> {
        served
            .into_iter()
            .map(|found| (found.token, found.data.len()))
            .collect()
    };
    let (_, served) = published.publish(&me, vec![data("three", 3)]);
    assert_eq!(tokens(served), []);
    let (_, served) = published.publish(&me, vec![data("other", 4), data("one", 1)]);
    assert_eq!(tokens(served), [(2, 2)]);
    let (_, served) = published.publish(&me, vec![data("two", 2)]);
    assert_eq!(tokens(served), [(1, 3), (3, 3)]);
    assert_eq!(published.deadline(), None);
}

#[test]
fn the_first_who_waits_reads_first() {
    let mut published = PublishedData::default();
    let infos = [flag(keys::WAIT)];
    for token in [5, 6] {
        let from = proc("b", token);
        let waits = published.lookup(Time::ZERO, token, &from, wanted(&["name"]), &infos);
        assert_eq!(waits, None);
    }
    let once = vec![persistence(Persistence::FIRST_READ), data("name", 1)];
    for token in [5, 6] {
        let (_, served) = published.publish(&proc("a", 0), once.clone());
        assert_eq!(served.len(), 1);
        assert_eq!(served[0].token, token);
    }
    assert_eq!(find(&mut published, &proc("b", 0), &["name"]), []);
}

#[test]
fn waiting_has_an_end() {
    let mut published: PublishedData<u32> = PublishedData::default();
    let start = Time::from_nanos(1_000);
    for (token, timeout) in [(1, 3), (2, 1), (3, 0)] {
        let infos = [flag(keys::WAIT), seconds(timeout)];
        let from = proc("b", token);
        let waits = published.lookup(start, token, &from, wanted(&["name"]), &infos);
        assert_eq!(waits, None);
    }
    let after = |seconds| start + Duration::from_secs(seconds);
    assert_eq!(published.deadline(), Some(after(1)));
    assert!(published.expire(start).is_empty());
    let expired = published.expire(after(1));
    assert_eq!((expired[0].token, expired[0].status), (2, Status::TIMEOUT));
    assert_eq!(published.deadline(), Some(after(3)));
    // A lookup of a process that has ended is dropped.
    published.proc_ended(&proc("b", 1));
    assert_eq!(published.deadline(), None);
    published.job_ended(&nspace("b"));
    let (_, served) = published.publish(&proc("a", 0), vec![data("name", 1)]);
    assert!(served.is_empty());
}

#[test]
fn only_the_owner_takes_it_back() {
    let mut published = PublishedData::default();
    let me = proc("a", 0);
    publish(&mut published, &me, vec![data("one", 1), data("two", 2)]);
    publish(
        &mut published,
        &me,
        vec![range(Range::NAMESPACE), data("three", 3)],
    );
    let all = ["one", "two", "three"];
    let left = |published: &mut PublishedData<u32>| find(published, &proc("a", 1), &all).len();
    let status = published.unpublish(&proc("a", 1), &wanted(&all), &[]);
    assert_eq!((left(&mut published), status), (3, Status::NOT_FOUND));
    let status = published.unpublish(&me, &wanted(&["one"]), &[]);
    assert_eq!((left(&mut published), status), (2, Status::SUCCESS));
    let status = published.unpublish(&me, &wanted(&["one"]), &[]);
    assert_eq!((left(&mut published), status), (2, Status::NOT_FOUND));
    let status = published.unpublish(&me, &[], &[range(Range::NAMESPACE)]);
    assert_eq!((left(&mut published), status), (1, Status::SUCCESS));
    let status = published.unpublish(&me, &[], &[]);
    assert_eq!((left(&mut published), status), (0, Status::SUCCESS));
    let status = published.unpublish(&me, &[], &[]);
    assert_eq!(status, Status::SUCCESS, "all of nothing");
}

#[test]
fn it_is_bounded() {
    // By entries.
    let mut published = PublishedData::default();
    let me = proc("a", 0);
    let many =
        |from: usize, to: usize| (from..to).map(|at| data(&format!("key {at}"), 0)).collect();
    let status = publish(&mut published, &me, many(0, MAX_PUBLISHED - 1));
    assert_eq!(status, Status::SUCCESS);
    let full = publish(&mut published, &me, many(MAX_PUBLISHED, MAX_PUBLISHED + 2));
    assert_eq!(full, Status::OUT_OF_RESOURCE);
    assert_eq!(
        publish(&mut published, &me, vec![data("last", 1)]),
        Status::SUCCESS
    );
    // Unpublished data frees its room.
    published.unpublish(&me, &wanted(&["last"]), &[]);
    assert_eq!(
        publish(&mut published, &me, vec![data("another", 1)]),
        Status::SUCCESS
    );
    // By bytes.
    let mut published = PublishedData::default();
    let large = Value::ByteObject(vec![0; MAX_PUBLISHED_BYTES / 4].into());
    let entry = |at: u32| vec![Info::new(key(&format!("key {at}")), large.clone())];
    let statuses: Vec<Status> = (0..4)
        .map(|at| publish(&mut published, &me, entry(at)))
        .collect();
    assert_eq!(statuses[..3], [Status::SUCCESS; 3]);
    assert_eq!(statuses[3], Status::OUT_OF_RESOURCE);
    // By lookups that wait.
    let mut published: PublishedData<u32> = PublishedData::default();
    let infos = [flag(keys::WAIT)];
    for token in 0..u32::try_from(MAX_LOOKUPS).unwrap() {
        let waits = published.lookup(Time::ZERO, token, &me, wanted(&["name"]), &infos);
        assert_eq!(waits, None);
    }
    let full = published.lookup(Time::ZERO, 0, &me, wanted(&["name"]), &infos);
    assert_eq!(full.unwrap().status, Status::OUT_OF_RESOURCE);
}
