//! Questions to the host: published names, and the delivery of each answer to the rank that asked.

use base::Rank;
use pmix::pmi::{Answer, Ask, Dialect, Event, IfAbsent, Kind, MAX_WAITING, Reply, Request};

use super::pair::Pair;

fn refusal(answer: Answer, kind: Kind) -> String {
    match answer {
        Answer::Refused {
            kind: refused,
            rc: 1,
            reason,
        } if refused == kind => reason,
        other => panic!("{other:?}"),
    }
}

#[test]
fn names_are_for_the_host() {
    for dialect in Dialect::ALL {
        let mut pair = Pair::initialized(2, dialect);
        let service = || "ocean svc".to_owned();
        let port = || "tag=0 $x".to_owned();
        pair.send(
            0,
            &Request::Publish {
                service: service(),
                port: port(),
            },
        );
        let (ticket, ask) = pair.asked();
        let expected = Ask::Publish {
            service: service(),
            port: port(),
        };
        assert_eq!(ask, expected);
        assert!(pair.answers.is_empty());
        pair.reply(ticket, Reply::Done);
        assert_eq!(pair.answer(0), Answer::Published);
        pair.reply(ticket, Reply::Done);
        assert!(pair.answers.is_empty(), "it is answered once");

        pair.send(1, &Request::Lookup { service: service() });
        let (ticket, _) = pair.asked();
        pair.reply(ticket, Reply::Port(port()));
        assert_eq!(pair.answer(1), Answer::Lookup { port: port() });

        pair.send(1, &Request::Unpublish { service: service() });
        let (ticket, ask) = pair.asked();
        assert_eq!(ask.kind(), Kind::Unpublish);
        pair.reply(ticket, Reply::Refused("service_not_found"));
        assert_eq!(
            refusal(pair.answer(1), Kind::Unpublish),
            "service_not_found"
        );
    }
}

#[test]
fn a_name_that_is_too_long_is_nobodys_question() {
    for dialect in Dialect::ALL {
        let mut pair = Pair::initialized(1, dialect);
        let publish = |service: usize, port: usize| Request::Publish {
            service: "s".repeat(service),
            port: "p".repeat(port),
        };
        let answer = pair.ask(0, &publish(512, 1));
        assert_eq!(refusal(answer, Kind::Publish), "service_too_long");
        let answer = pair.ask(0, &publish(1, 1025));
        assert_eq!(refusal(answer, Kind::Publish), "value_too_long");
        assert_eq!(pair.events(), []);
        pair.send(0, &publish(511, 1024));
        assert_eq!(pair.asked().1.kind(), Kind::Publish);
    }
}

#[test]
fn whoever_ends_gets_no_answer_any_more() {
    let mut pair = Pair::initialized(2, Dialect::One);
    let lookup = Request::Lookup {
        service: "x".to_owned(),
    };
    pair.send(0, &lookup);
    let (ticket, _) = pair.asked();
    pair.close(0);
    assert_eq!(pair.events(), [Event::Lost { client: Rank(0) }]);
    pair.reply(ticket, Reply::Port("y".to_owned()));
    assert!(pair.answers.is_empty() && pair.closed.is_empty());
}

#[test]
fn threads_of_a_rank_get_their_own_answers() {
    let mut pair = Pair::initialized(1, Dialect::Two);
    let ask = |name: &str, thread: &str| {
        let text = format!("cmd=name-lookup;name={name};thrid={thread};");
        format!("{:<6}{text}", text.len())
    };
    let mut tickets = Vec::new();
    for (name, thread) in [("a", "0x1"), ("b", "0x2")] {
        pair.raw(0, ask(name, thread).as_bytes());
        tickets.push(pair.asked().0);
    }
    for (ticket, port) in tickets.into_iter().rev().zip(["of b", "of a"]) {
        pair.reply(ticket, Reply::Port(port.to_owned()));
    }
    assert_eq!(
        pair.said(0),
        "    61cmd=name-lookup-response;thrid=0x2;rc=0;port=of b;value=of b;    \
         61cmd=name-lookup-response;thrid=0x1;rc=0;port=of a;value=of a;"
    );
}

#[test]
fn questions_that_wait_are_counted() {
    let mut pair = Pair::initialized(1, Dialect::Two);
    let request = Request::NodeAttribute {
        key: "never".to_owned(),
        absent: IfAbsent::Wait,
    };
    let bytes = request.message(Dialect::Two).encode().unwrap();
    for _ in 0..MAX_WAITING {
        pair.raw(0, &bytes);
    }
    assert_eq!(pair.said(0), "");
    pair.raw(0, &bytes);
    assert!(pair.said(0).contains("rc=1;errmsg=too_many_requests;"));
    assert!(pair.closed.is_empty());
}

#[test]
fn an_attribute_of_the_node_comes_to_all_who_wait() {
    let mut pair = Pair::initialized(3, Dialect::Two);
    let wanted = |absent| Request::NodeAttribute {
        key: "shm".to_owned(),
        absent,
    };
    let none = Answer::NodeAttribute { value: None };
    assert_eq!(pair.ask(0, &wanted(IfAbsent::Say)), none);
    pair.send(0, &wanted(IfAbsent::Wait));
    pair.send(1, &wanted(IfAbsent::Wait));
    assert!(pair.answers.is_empty());
    let put = Request::PutNodeAttribute {
        key: "shm".to_owned(),
        value: "a;b=c".to_owned(),
    };
    pair.send(2, &put);
    let some = Answer::NodeAttribute {
        value: Some("a;b=c".to_owned()),
    };
    assert_eq!(pair.answer(2), Answer::PutNodeAttribute);
    assert_eq!(pair.answer(0), some);
    assert_eq!(pair.answer(1), some);
    assert_eq!(pair.ask(2, &wanted(IfAbsent::Wait)), some);
    assert_eq!(pair.get(0, "shm"), None, "it is the node's, not the job's");
}
