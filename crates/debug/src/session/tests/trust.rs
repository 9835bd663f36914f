//! Answers that violate the protocol, and answers that leave out ranks.

use super::*;

#[test]
fn who_answers_what_was_not_asked_is_not_trusted() {
    let sample = |rank: u32| {
        let mut part = PartialSample::default();
        let seen = Seen::Threads(Vec::new());
        part.snapshot.procs.insert(Rank(rank), seen);
        Partial::Sample(part)
    };
    let description = Partial::Description(Description::default());
    let mut many_threads = Description::default();
    let (threads, sampled) = (9, 3);
    let much = crate::reply::ManyThreads { threads, sampled };
    many_threads.many_threads.insert((A, 7), much);
    let mut below = PartialSample::default();
    below.snapshot.children.insert(Rank(0), Vec::new());
    let mut with_many_threads = PartialSample::default();
    let thread = |tid| crate::stack::Thread {
        tid,
        name: "".into(),
        stack: crate::stack::Stack {
            frames: [].into(),
            end: crate::stack::End::Lost,
        },
        activity: crate::stack::Activity::Running,
        cpu: Duration::ZERO,
        stopped: Duration::ZERO,
    };
    let threads = (0..=crate::reply::MAX_THREADS).map(|_| thread(1)).collect();
    let threads = Seen::Threads(threads);
    with_many_threads.snapshot.procs.insert(Rank(4), threads);
    for (ahead, part, fault) in [
        (0, Partial::Description(many_threads), "OtherNode"),
        (0, Partial::Sample(below), "OtherRanks"),
        (0, Partial::Sample(with_many_threads), "TooMuch"),
        (0, sample(3), "OtherRanks"),
        (0, sample(9), "OtherRanks"),
        (0, description, "OtherAnswer"),
        (1, sample(4), "UnknownCommand"),
    ] {
        let mut pair = Pair::new();
        let CommandId(id) = pair.command(Action::Sample(Extent::Everybody));
        pair.send();
        pair.held.remove(&B);
        let id = CommandId(id + ahead);
        pair.tell(Input::Message(B, FromAgent::Done { id, part }));
        pair.send();
        assert_eq!(pair.said, [format!("close 1: {fault}")]);
        pair.deliver(A);
        let reply = pair.reply();
        assert_eq!(missing(&reply), ["8: Unproved", "4-7: AgentLost(\"n2\")"]);
        let Partial::Sample(sample) = reply.answer else {
            panic!("samples were asked for");
        };
        // The entries for the agent's own ranks are not used either.
        let wrong = Rank(4);
        let seen = &sample.snapshot.procs[&wrong];
        assert!(matches!(seen, Seen::Missing(Missing::AgentLost(_))));
    }
}

#[test]
fn of_ranks_that_an_agent_leaves_out_it_was_silent() {
    let mut pair = Pair::new();
    let id = pair.command(Action::Sample(Extent::Children));
    pair.send();
    pair.held.remove(&B);
    let mut part = PartialSample::default();
    let seen = Seen::Threads(Vec::new());
    part.snapshot.procs.insert(Rank(5), seen);
    let part = Partial::Sample(part);
    pair.tell(Input::Message(B, FromAgent::Done { id, part }));
    pair.deliver(A);
    let reply = pair.reply();
    assert_eq!(
        missing(&reply),
        ["8: Unproved", "4,6-7: AgentSilent(\"n2\")"]
    );
    assert_eq!(reply.answer.ranks().to_string(), "0-8");
}
