//! The operations of a program, with a scripted server.

use std::time::Duration;

use pmix::{
    Error,
    client::{
        Collect, Done, FACTS_WAIT, FINALIZE_WAIT, HandlerId, Input, Lost, MAX_HANDLERS, Program,
        ProgramEvent, PutError, Search, Ticket,
    },
    codec::{Format, Reader},
    keys,
    message::{Answer, Facts, Push, Request},
    value::{Info, IofChannels, Key, Kval, Nspace, PmixRank, Proc, Range, Scope, Status, Value},
};

use crate::host::{Host, NOW, config, fact, key, proc, program, started};

fn job() -> Nspace {
    proc("job", 0).nspace
}

fn done(ticket: Ticket, result: Result<Done, Status>) -> ProgramEvent {
    ProgramEvent::Done { ticket, result }
}

fn info(key: &std::ffi::CStr, value: Value) -> Info {
    Info::new(Key::new(key).unwrap(), value)
}

fn raise(status: Status, infos: Vec<Info>) -> Push {
    Push::Event {
        status,
        source: proc("daemon", 0),
        infos,
        range: None,
    }
}

fn release() -> Push {
    raise(Status::DEBUGGER_RELEASE, Vec::new())
}

fn ok() -> Answer {
    Answer::Status(Status::SUCCESS)
}

fn gave_up(host: &mut Host<Program>, why: Lost) {
    assert_eq!(host.news(), [ProgramEvent::Lost { why }]);
    assert_eq!(host.closes, 1);
}

fn ready() -> ProgramEvent {
    ProgramEvent::Ready {
        me: proc("job", 1),
        server: proc("daemon", 0),
    }
}

/// Creates a program whose job info has `wish` under the key that holds it in its init.
fn told_to_stop(wish: Value) -> Host<Program> {
    let mut host = program();
    host.welcome();
    let (tag, _) = host.asked_one();
    let facts = vec![Kval {
        key: Key::new(keys::STOP_IN_INIT).unwrap(),
        value: wish,
    }];
    let nspace = job();
    host.answer(tag, &Answer::JobInfo { nspace, facts });
    host
}

#[test]
fn nothing_is_asked_before_the_start() {
    let mut host = program();
    let commit = host.machine.commit();
    host.welcome();
    let get = host.machine.get(proc("job", 1), key("k"), Search::Anywhere);
    let fence = host.machine.fence(Vec::new(), Collect::Data);
    let (_, register) = host.machine.register(Vec::new(), Vec::new());
    let finalize = host.machine.finalize(NOW);
    host.drain();
    let refused = [commit, get, fence, register, finalize];
    let expected = refused.map(|ticket| done(ticket, Err(Status::INIT)));
    assert_eq!(host.news(), expected);
    assert_eq!(host.asked_one().1, Request::JobInfo);
    // A put needs no connection.
    assert_eq!(
        host.machine.put(Scope::GLOBAL, key("k"), Value::Undef),
        Ok(())
    );
}

#[test]
fn without_its_facts_a_program_does_not_start() {
    let mut host = program();
    host.welcome();
    let (tag, _) = host.asked_one();
    host.answer(
        tag,
        &Answer::JobInfo {
            nspace: proc("other", 0).nspace,
            facts: Vec::new(),
        },
    );
    let news = host.news();
    assert!(matches!(
        news[..],
        [ProgramEvent::Lost {
            why: Lost::Broken(Error::PeerMisbehaved { .. })
        }]
    ));

    let mut host = program();
    host.welcome();
    let (tag, _) = host.asked_one();
    let facts = vec![fact("pmix.node.arr", Value::Undef)];
    let nspace = job();
    host.answer(tag, &Answer::JobInfo { nspace, facts });
    let news = host.news();
    assert!(matches!(
        news[..],
        [ProgramEvent::Lost {
            why: Lost::Broken(Error::Malformed { .. })
        }]
    ));

    let mut host = program();
    host.welcome();
    host.now = host.machine.deadline().unwrap();
    assert_eq!(host.now, NOW + FACTS_WAIT);
    host.handle(Input::Tick);
    gave_up(&mut host, Lost::NotStarted(Status::TIMEOUT));

    let mut host = program();
    host.welcome();
    host.handle(Input::Closed);
    let why = Lost::Closed;
    assert_eq!(host.news(), [ProgramEvent::Lost { why }]);
}

#[test]
fn a_debugger_stops_a_program_in_its_start() {
    for wish in [
        Value::Bool(true),
        Value::Undef,
        Value::Rank(PmixRank(1)),
        Value::Rank(PmixRank::WILDCARD),
    ] {
        let mut host = told_to_stop(wish);
        let (tag, request) = host.asked_one();
        let codes = vec![Status::DEBUGGER_RELEASE];
        let infos = Vec::new();
        assert_eq!(request, Request::Register { codes, infos });
        host.answer(tag, &ok());
        let (tag, request) = host.asked_one();
        let Request::Notify {
            status,
            range,
            infos,
        } = request
        else {
            panic!("{request:?}");
        };
        assert_eq!((status, range), (Status::READY_FOR_DEBUG, Range::RM));
        let set = |key, value| infos.contains(&info(key, value));
        assert!(set(keys::EVENT_NON_DEFAULT, Value::Bool(true)));
        assert!(set(keys::BREAKPOINT, Value::text("pmix-init")));
        assert_eq!(host.news(), []);
        host.answer(tag, &ok());
        assert_eq!(host.news(), [ProgramEvent::Held]);

        // It waits without a deadline, and for no other event.
        assert_eq!(host.machine.deadline(), None);
        host.push(&raise(Status::EVENT_JOB_END, Vec::new()));
        let ticket = host.machine.commit();
        host.drain();
        assert_eq!(host.news(), [done(ticket, Err(Status::INIT))]);

        host.push(&release());
        assert_eq!(host.news(), [ready()]);
        let codes = vec![Status::DEBUGGER_RELEASE];
        assert_eq!(host.asked_one().1, Request::Deregister { codes });
        // A second release has no effect.
        host.push(&release());
        assert_eq!(host.news(), []);
    }
}

#[test]
fn a_release_may_come_before_it_is_waited_for() {
    for early in [0, 1] {
        let mut host = told_to_stop(Value::Bool(true));
        let (tag, _) = host.asked_one();
        if early == 0 {
            host.push(&release());
        }
        host.answer(tag, &ok());
        let (tag, request) = host.asked_one();
        assert!(matches!(request, Request::Notify { .. }));
        if early == 1 {
            host.push(&release());
        }
        assert_eq!(host.news(), []);
        host.answer(tag, &ok());
        assert_eq!(host.news(), [ready()]);
        assert_eq!(host.asked().len(), 1);
    }
}

#[test]
fn others_are_not_stopped() {
    for wish in [Value::Bool(false), Value::Rank(PmixRank(0))] {
        let mut host = told_to_stop(wish);
        assert_eq!(host.news(), [ready()]);
        assert_eq!(host.asked(), []);
    }
}

/// It may be meant for others, or for this one.
#[test]
fn a_wish_to_stop_that_is_none_is_an_error() {
    for wish in [
        Value::text("all"),
        Value::Uint32(1),
        Value::procs(Vec::new()),
    ] {
        let mut host = told_to_stop(wish);
        gave_up(&mut host, Lost::NotStarted(Status::BAD_PARAM));
    }
}

#[test]
fn a_program_that_cannot_be_released_does_not_start() {
    let mut host = told_to_stop(Value::Bool(true));
    let (tag, _) = host.asked_one();
    host.answer(tag, &Answer::Status(Status::SERVER_FAILED_REQUEST));
    gave_up(&mut host, Lost::NotStarted(Status::SERVER_FAILED_REQUEST));

    let mut host = told_to_stop(Value::Bool(true));
    let (tag, _) = host.asked_one();
    host.answer(tag, &ok());
    let (tag, _) = host.asked_one();
    host.answer(tag, &Answer::Status(Status::NOT_SUPPORTED));
    gave_up(&mut host, Lost::NotStarted(Status::NOT_SUPPORTED));
}

/// Returns the keys and values in a commit, by scope.
fn buckets(request: &Request) -> Vec<(Scope, Vec<String>)> {
    let Request::Commit { buckets } = request else {
        panic!("{request:?}");
    };
    let read = |bytes: &[u8]| {
        let facts: Vec<Kval> = Reader::new(Format::V4, bytes).each().unwrap();
        facts.iter().map(|fact| fact.key.to_string()).collect()
    };
    buckets
        .iter()
        .map(|(scope, packed)| (*scope, read(&packed.bytes)))
        .collect()
}

#[test]
fn a_commit_contains_what_is_new_by_scope() {
    let mut host = started(Vec::new());
    let put = |host: &mut Host<Program>, scope, name| {
        host.machine.put(scope, key(name), Value::Undef).unwrap();
    };
    put(&mut host, Scope::LOCAL, "l");
    put(&mut host, Scope::REMOTE, "r");
    put(&mut host, Scope::GLOBAL, "g");
    put(&mut host, Scope::INTERNAL, "i");
    put(&mut host, Scope::LOCAL, "l");
    let names = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect();
    let first = host.machine.commit();
    host.drain();
    let (tag, request) = host.asked_one();
    assert_eq!(
        buckets(&request),
        [
            (Scope::LOCAL, names(&["g", "l"])),
            (Scope::REMOTE, names(&["r", "g"]))
        ]
    );
    // The next commit contains new puts and those of the failed commit, except for replaced values.
    put(&mut host, Scope::REMOTE, "new");
    put(&mut host, Scope::REMOTE, "g");
    host.answer(tag, &Answer::Status(Status::OUT_OF_RESOURCE));
    assert_eq!(host.news(), [done(first, Err(Status::OUT_OF_RESOURCE))]);
    let second = host.machine.commit();
    host.drain();
    let (tag, request) = host.asked_one();
    assert_eq!(
        buckets(&request),
        [
            (Scope::LOCAL, names(&["l"])),
            (Scope::REMOTE, names(&["r", "new", "g"]))
        ]
    );
    host.answer(tag, &ok());
    assert_eq!(host.news(), [done(second, Ok(Done::Nothing))]);
    // Without new puts, a commit sends nothing.
    let third = host.machine.commit();
    host.drain();
    assert_eq!(host.news(), [done(third, Ok(Done::Nothing))]);
    assert_eq!(host.asked(), []);
}

#[test]
fn not_everything_can_be_put() {
    let mut host = started(Vec::new());
    for (scope, name, error) in [
        (Scope::GLOBAL, "pmix.rank", PutError::Reserved),
        (Scope::UNDEF, "k", PutError::Scope),
        (Scope(5), "k", PutError::Scope),
    ] {
        let result = host.machine.put(scope, key(name), Value::Undef);
        assert_eq!(result, Err(error));
    }
    assert_eq!(host.machine.find(&proc("job", 1), &key("k")), None);
}

fn data(proc: Proc, facts: Vec<Kval>) -> Answer {
    let owner = proc;
    let buffers = vec![Facts { owner, facts }.encode(Format::V4)];
    Answer::Buffers {
        status: Status::SUCCESS,
        buffers,
    }
}

fn asked_for(request: &Request) -> (String, bool) {
    match request {
        Request::Get {
            nspace,
            rank,
            infos,
            key: Some(key),
        } => {
            let immediate = vec![info(keys::IMMEDIATE, Value::Bool(true))];
            assert!(infos.is_empty() || *infos == immediate);
            (format!("{nspace}:{rank} {key}"), !infos.is_empty())
        }
        other => panic!("{other:?}"),
    }
}

#[test]
fn what_is_known_is_not_asked_for() {
    let mut host = started(vec![fact("pmix.job.size", Value::Uint32(4))]);
    host.machine
        .put(Scope::REMOTE, key("k"), Value::Bool(true))
        .unwrap();
    let all = Proc::all(job());
    let mine = host.machine.get(proc("job", 1), key("k"), Search::Anywhere);
    let size = host
        .machine
        .get(all.clone(), key("pmix.job.size"), Search::Known);
    let none = host.machine.get(all, key("k"), Search::Known);
    host.drain();
    let expected = [
        done(mine, Ok(Done::Value(Value::Bool(true)))),
        done(size, Ok(Done::Value(Value::Uint32(4)))),
        done(none, Err(Status::NOT_FOUND)),
    ];
    assert_eq!(host.news(), expected);
    assert_eq!(host.asked(), []);
}

#[test]
fn one_get_of_a_process_is_outstanding_and_the_others_wait() {
    let mut host = started(Vec::new());
    let other = proc("job", 0);
    let mut get = |name: &str, search| host.machine.get(other.clone(), key(name), search);
    let a = get("a", Search::Anywhere);
    let b = get("b", Search::Anywhere);
    let c = get("c", Search::Immediate);
    let again = get("a", Search::Anywhere);
    let reserved = get("pmix.cpuset", Search::Anywhere);
    let elsewhere = host
        .machine
        .get(proc("job", 2), key("a"), Search::Immediate);
    host.drain();
    let asked = host.asked();
    let names: Vec<_> = asked
        .iter()
        .map(|(_, request)| asked_for(request))
        .collect();
    assert_eq!(names, [("job:0 a".into(), false), ("job:2 a".into(), true)]);

    host.answer(
        asked[1].0,
        &Answer::Buffers {
            status: Status::NOT_FOUND,
            buffers: Vec::new(),
        },
    );
    assert_eq!(host.news(), [done(elsewhere, Err(Status::NOT_FOUND))]);

    // The answer contains all data of the process. Only a missing key leads to another request.
    let value = Value::Uint32(7);
    let facts = vec![fact("a", value.clone()), fact("x", Value::Undef)];
    host.answer(asked[0].0, &data(other.clone(), facts));
    let value = Done::Value(value);
    let expected = [done(a, Ok(value.clone())), done(again, Ok(value))];
    assert_eq!(host.news(), expected);
    let (tag, request) = host.asked_one();
    assert_eq!(asked_for(&request), ("job:0 b".into(), false));

    // An error applies to the requested key only.
    let refusal = |status| Answer::Buffers {
        status,
        buffers: Vec::new(),
    };
    host.answer(tag, &refusal(Status::TIMEOUT));
    assert_eq!(host.news(), [done(b, Err(Status::TIMEOUT))]);
    let (tag, request) = host.asked_one();
    assert_eq!(asked_for(&request), ("job:0 c".into(), true));
    host.answer(tag, &data(other.clone(), Vec::new()));
    assert_eq!(host.news(), [done(c, Err(Status::NOT_FOUND))]);
    // Reserved keys are requested with `IMMEDIATE`.
    let (tag, request) = host.asked_one();
    assert_eq!(asked_for(&request), ("job:0 pmix.cpuset".into(), true));
    host.answer(tag, &refusal(Status::NOT_FOUND));
    assert_eq!(host.news(), [done(reserved, Err(Status::NOT_FOUND))]);
    assert_eq!(host.asked(), []);

    // Other values from the answer are cached.
    let x = host.machine.get(other, key("x"), Search::Known);
    host.drain();
    assert_eq!(host.news(), [done(x, Ok(Done::Value(Value::Undef)))]);
}

#[test]
fn a_get_that_does_not_wait_is_not_one_that_does() {
    let mut host = started(Vec::new());
    let other = proc("job", 0);
    let hasty = host.machine.get(other.clone(), key("a"), Search::Immediate);
    let patient = host.machine.get(other.clone(), key("a"), Search::Anywhere);
    host.drain();
    let (tag, _) = host.asked_one();
    host.answer(
        tag,
        &Answer::Buffers {
            status: Status::NOT_FOUND,
            buffers: Vec::new(),
        },
    );
    assert_eq!(host.news(), [done(hasty, Err(Status::NOT_FOUND))]);
    let (tag, request) = host.asked_one();
    assert_eq!(asked_for(&request), ("job:0 a".into(), false));
    host.answer(tag, &data(other, vec![fact("a", Value::Undef)]));
    assert_eq!(host.news(), [done(patient, Ok(Done::Value(Value::Undef)))]);
}

#[test]
fn a_get_can_be_given_up_without_the_others() {
    let second = Duration::from_secs(1);
    let other = proc("job", 0);
    let mut host = started(Vec::new());
    let first = host.machine.get(other.clone(), key("a"), Search::Anywhere);
    let waiting = host.machine.get(other.clone(), key("b"), Search::Anywhere);
    let same = host.machine.get(other.clone(), key("b"), Search::Anywhere);
    host.machine.limit(waiting, NOW + second * 2);
    host.machine.limit(first, NOW + second * 5);
    host.machine.limit(first, NOW + second);
    host.drain();
    let (first_tag, _) = host.asked_one();
    assert_eq!(host.machine.deadline(), Some(NOW + second));
    host.now = NOW + second;
    host.handle(Input::Tick);
    assert_eq!(host.news(), [done(first, Err(Status::TIMEOUT))]);
    // No get waits for `a` any more, so that `b` is requested immediately.
    let (tag, request) = host.asked_one();
    assert_eq!(asked_for(&request), ("job:0 b".into(), false));
    host.now = NOW + second * 2;
    host.handle(Input::Tick);
    assert_eq!(host.news(), [done(waiting, Err(Status::TIMEOUT))]);
    assert_eq!((host.asked(), host.machine.deadline()), (Vec::new(), None));
    // A late answer to the dropped request is ignored.
    let value = Value::Bool(true);
    host.answer(first_tag, &data(other.clone(), Vec::new()));
    assert!(matches!(host.news()[..], [ProgramEvent::Ignored { .. }]));
    host.answer(tag, &data(other, vec![fact("b", value.clone())]));
    assert_eq!(host.news(), [done(same, Ok(Done::Value(value)))]);
}

/// After the finalize, the next get for a process fails immediately. It must not be answered again when it expires in the same
/// tick.
#[test]
fn gets_that_expire_together_are_each_answered_once() {
    let other = proc("job", 0);
    let mut host = started(Vec::new());
    let first = host.machine.get(other.clone(), key("a"), Search::Anywhere);
    let second = host.machine.get(other, key("b"), Search::Anywhere);
    for ticket in [first, second] {
        host.machine.limit(ticket, NOW);
    }
    host.machine.finalize(NOW);
    host.drain();
    host.handle(Input::Tick);
    let expected = [
        done(first, Err(Status::TIMEOUT)),
        done(second, Err(Status::INIT)),
    ];
    assert_eq!(host.news(), expected);
}

#[test]
fn a_get_that_cannot_be_read_fails() {
    let mut host = started(Vec::new());
    let ticket = host.machine.get(proc("job", 0), key("a"), Search::Anywhere);
    host.drain();
    let (tag, _) = host.asked_one();
    let buffers = vec![b"\x02\xff".as_slice().into()];
    let status = Status::SUCCESS;
    host.answer(tag, &Answer::Buffers { status, buffers });
    let news = host.news();
    assert!(matches!(news[0], ProgramEvent::Ignored { .. }));
    assert_eq!(news[1..], [done(ticket, Err(Status::UNPACK_FAILURE))]);
}

#[test]
fn waiting_gets_end_with_the_connection() {
    let mut host = started(Vec::new());
    let other = proc("job", 0);
    let a = host.machine.get(other.clone(), key("a"), Search::Anywhere);
    let b = host.machine.get(other.clone(), key("b"), Search::Anywhere);
    let fence = host.machine.fence(Vec::new(), Collect::Nothing);
    host.handle(Input::Closed);
    let end = |ticket| done(ticket, Err(Status::UNREACH));
    let why = Lost::Closed;
    let expected = [end(a), end(b), end(fence), ProgramEvent::Lost { why }];
    assert_eq!(host.news(), expected);
    let late = host.machine.get(other, key("a"), Search::Anywhere);
    let later = host.machine.commit();
    host.drain();
    assert_eq!(host.news(), [end(late), done(later, Err(Status::UNREACH))]);
}

#[test]
fn the_facts_of_other_jobs_come_with_them() {
    let mut host = started(Vec::new());
    let spawn = host.machine.spawn(Vec::new(), Vec::new());
    host.drain();
    let (tag, _) = host.asked_one();
    let child = proc("child", 0).nspace;
    host.answer(
        tag,
        &Answer::Spawned {
            status: Status::SUCCESS,
            nspace: Some(child.as_c_str().to_owned()),
            facts: vec![fact("pmix.job.size", Value::Uint32(3))],
        },
    );
    assert_eq!(host.news(), [done(spawn, Ok(Done::Spawned(child.clone())))]);
    assert_eq!(host.machine.job_named(&child).unwrap().size(), Some(3));

    let connect = host.machine.connect(
        vec![Proc::all(job()), Proc::all(proc("friend", 0).nspace)],
        Vec::new(),
    );
    host.drain();
    let (tag, _) = host.asked_one();
    let owner = proc("friend", 0).nspace;
    let facts = vec![fact("pmix.job.size", Value::Uint32(5))];
    let friend = Facts {
        owner: owner.clone(),
        facts,
    };
    // A malformed part of the answer does not make the connect fail.
    let buffers = vec![b"\xff".as_slice().into(), friend.encode(Format::V4)];
    let status = Status::SUCCESS;
    host.answer(tag, &Answer::Buffers { status, buffers });
    let news = host.news();
    assert!(matches!(news[0], ProgramEvent::Ignored { .. }));
    assert_eq!(news[1..], [done(connect, Ok(Done::Nothing))]);
    assert_eq!(host.machine.job_named(&owner).unwrap().size(), Some(5));

    // A failed spawn, in both forms that servers use.
    for answer in [
        Answer::Status(Status::JOB_FAILED_TO_MAP),
        Answer::Spawned {
            status: Status::JOB_FAILED_TO_MAP,
            nspace: None,
            facts: Vec::new(),
        },
    ] {
        let spawn = host.machine.spawn(Vec::new(), Vec::new());
        host.drain();
        let (tag, _) = host.asked_one();
        host.answer(tag, &answer);
        let failed = done(spawn, Err(Status::JOB_FAILED_TO_MAP));
        assert_eq!(host.news(), [failed]);
    }
}

#[test]
fn part_of_an_answer_is_an_answer() {
    let mut host = started(Vec::new());
    let infos = vec![info(c"k", Value::Undef)];
    for (status, result) in [
        (Status::SUCCESS, Ok(())),
        (Status::QUERY_PARTIAL_SUCCESS, Ok(())),
        (Status::NOT_FOUND, Err(Status::NOT_FOUND)),
    ] {
        let queries = Vec::new();
        let ticket = host.machine.request(&Request::Query { queries });
        host.drain();
        let (tag, _) = host.asked_one();
        let infos = infos.clone();
        host.answer(
            tag,
            &Answer::Infos {
                status,
                infos: infos.clone(),
            },
        );
        let result = result.map(|()| Done::Infos { status, infos });
        assert_eq!(host.news(), [done(ticket, result)]);
    }
}

fn heard(host: &mut Host<Program>) -> Vec<(Status, Vec<HandlerId>)> {
    let notices = host.news().into_iter().map(|event| match event {
        ProgramEvent::Notice { handlers, notice } => (notice.status, handlers),
        other => panic!("{other:?}"),
    });
    notices.collect()
}

#[test]
fn events_come_to_those_who_asked_for_them() {
    let mut host = started(Vec::new());
    let [one, two, three] = [-1001, -1002, -1003].map(Status);
    let about = |proc: Proc| info(keys::EVENT_AFFECTED_PROC, Value::Proc(Box::new(proc)));
    let mut register = |codes: &[Status], infos| {
        let (handler, _) = host.machine.register(codes.to_vec(), infos);
        host.drain();
        let (tag, request) = host.asked_one();
        assert!(matches!(request, Request::Register { .. }));
        host.answer(tag, &ok());
        assert!(matches!(host.news()[..], [ProgramEvent::Done { .. }]));
        handler
    };
    let first = register(&[one, two], Vec::new());
    let second = register(&[two], vec![about(proc("job", 0))]);
    let default = register(&[], Vec::new());

    host.push(&raise(one, Vec::new()));
    host.push(&raise(two, Vec::new()));
    host.push(&raise(two, vec![about(proc("job", 0))]));
    host.push(&raise(two, vec![about(Proc::all(job()))]));
    host.push(&raise(two, vec![about(proc("job", 3))]));
    host.push(&raise(three, Vec::new()));
    let expected = [
        (one, vec![first]),
        (two, vec![first, second]),
        (two, vec![first, second]),
        (two, vec![first, second]),
        (two, vec![first]),
        (three, vec![default]),
    ];
    assert_eq!(heard(&mut host), expected);
    // Default handlers do not get a non-default event: only a handler for its code does.
    let non_default = vec![info(keys::EVENT_NON_DEFAULT, Value::Bool(true))];
    host.push(&raise(three, non_default.clone()));
    host.push(&raise(one, non_default));
    assert_eq!(heard(&mut host), [(one, vec![first])]);

    // A code that another handler needs stays registered.
    host.machine.deregister(first);
    host.drain();
    assert_eq!(host.asked_one().1, Request::Deregister { codes: vec![one] });
    host.machine.deregister(first);
    host.machine.deregister(default);
    host.drain();
    let codes = vec![Status::DEFAULT_HANDLER];
    assert_eq!(host.asked_one().1, Request::Deregister { codes });
    assert_eq!(host.news(), []);
    host.push(&raise(one, Vec::new()));
    host.push(&raise(two, Vec::new()));
    assert_eq!(heard(&mut host), [(two, vec![second])]);
}

#[test]
fn a_registration_that_fails_is_none() {
    let mut host = started(Vec::new());
    let code = Status(-1001);
    let (handler, ticket) = host.machine.register(vec![code], Vec::new());
    host.drain();
    // Events may arrive before the registration is answered.
    host.push(&raise(code, Vec::new()));
    assert_eq!(heard(&mut host), [(code, vec![handler])]);
    let (tag, _) = host.asked_one();
    let status = Status::SERVER_FAILED_REQUEST;
    host.answer(tag, &Answer::Status(status));
    host.push(&raise(code, Vec::new()));
    assert_eq!(host.news(), [done(ticket, Err(status))]);

    for _ in 0..MAX_HANDLERS {
        host.machine.register(vec![code], Vec::new());
    }
    host.drain();
    host.news();
    let (_, over) = host.machine.register(vec![code], Vec::new());
    host.drain();
    assert_eq!(host.news(), [done(over, Err(Status::RESOURCE_BUSY))]);
    assert_eq!(host.asked().len(), MAX_HANDLERS);
}

/// The program has computed for long, and no input has told it the time.
#[test]
fn a_finalize_has_its_whole_time() {
    let mut host = started(Vec::new());
    let now = NOW + 2 * FINALIZE_WAIT;
    host.machine.finalize(now);
    host.drain();
    assert_eq!(host.machine.deadline(), Some(now + FINALIZE_WAIT));
}

#[test]
fn output_and_a_finish() {
    let mut host = started(Vec::new());
    host.push(&Push::Output {
        source: proc("child", 0),
        channels: IofChannels::STDERR,
        id: 0,
        infos: Vec::new(),
        bytes: b"text".as_slice().into(),
    });
    let news = host.news();
    assert!(matches!(&news[..], [ProgramEvent::Stdio(piece)] if &piece.bytes[..] == b"text"));
    let finalize = host.machine.finalize(NOW);
    let late = host.machine.commit();
    host.machine
        .put(Scope::GLOBAL, key("k"), Value::Undef)
        .unwrap();
    let later = host.machine.commit();
    host.drain();
    let (tag, request) = host.asked_one();
    assert_eq!(request, Request::Finalize);
    let expected = [
        done(late, Ok(Done::Nothing)),
        done(later, Err(Status::INIT)),
    ];
    assert_eq!(host.news(), expected);
    host.answer(tag, &ok());
    let expected = [done(finalize, Ok(Done::Nothing)), ProgramEvent::Finalized];
    assert_eq!(host.news(), expected);
    assert_eq!(host.closes, 1);

    // Another init needs another state machine.
    let mut next = Host::new(Program::new(host.now, config()), Format::V4);
    next.welcome();
    assert_eq!(next.asked_one().1, Request::JobInfo);
}
