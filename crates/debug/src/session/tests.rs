//! A session with two scripted agents on two nodes: replies merge, and no rank is lost.

mod merging;
mod trust;

use base::NodeId;

use super::*;
use crate::{
    agent::{
        SIGN_OF_LIFE,
        tests::fake::{FakeProcess, Node, OWN, STARTED},
    },
    proto::Refusal,
    report::Detail,
    samples::{Boundary, Recording},
    stack::Seen,
};

const A: NodeId = NodeId(0);
const B: NodeId = NodeId(1);

/// A session over two nodes: ranks 0 to 3 are on the first node, 4 to 7 on the second, and rank 8 is on neither.
struct Pair {
    session: Session,
    nodes: BTreeMap<NodeId, Node>,
    now: Time,
    /// Messages that an agent has sent, but that have not arrived at the session yet.
    held: BTreeMap<NodeId, VecDeque<FromAgent>>,
    replies: Vec<Reply>,
    /// Outputs of the session except messages and replies, as text.
    said: Vec<String>,
}

fn pid(rank: u32) -> i32 {
    100 + i32::try_from(rank).unwrap()
}

impl Pair {
    fn new() -> Self {
        let node = |node: NodeId, at: [&'static str; 4]| {
            let ranks = (node.0 * 4..).zip(at);
            let processes = ranks.map(|(rank, at)| {
                let process = FakeProcess::new(pid(rank), 1, "a.out", at);
                (pid(rank), process)
            });
            (node, Node::new(node.0, processes))
        };
        let mut pair = Self {
            session: Session::new(),
            nodes: [
                node(A, ["wait", "wait", "solve", "wait"]),
                node(B, ["wait", "main", "wait", "wait"]),
            ]
            .into(),
            now: Time::ZERO,
            held: BTreeMap::new(),
            replies: Vec::new(),
            said: Vec::new(),
        };
        for (node, host) in [(A, "n1"), (B, "n2")] {
            let host = host.to_owned();
            pair.tell(Input::Joined { node, host });
        }
        let place = |rank: u32| {
            let started = STARTED;
            let pid = pid(rank);
            let place = match rank {
                8 => Place::Nowhere(Missing::Unproved),
                _ => Place::At(NodeId(rank / 4), Proc { pid, started }),
            };
            (Rank(rank), place)
        };
        pair.session.follow((0..9).map(place).collect());
        pair
    }

    fn tell(&mut self, input: Input) {
        self.session.handle(self.now, input);
    }

    fn command(&mut self, action: Action) -> CommandId {
        let ranks = self.session.ranks();
        self.session.command(self.now, &ranks, action).unwrap()
    }

    /// Delivers the messages of the session to the nodes. The answers of the agents are held back.
    fn send(&mut self) {
        while let Some(output) = self.session.poll() {
            match output {
                Output::Send(node, message) => {
                    if let Some(there) = self.nodes.get_mut(&node) {
                        there.tell(message);
                    }
                }
                Output::Reply(reply) => self.replies.push(reply),
                Output::Close(node, fault) => self.said.push(format!("close {node}: {fault:?}")),
                Output::Dropped { node, id, why } => {
                    self.said
                        .push(format!("dropped of {node}, {}: {why:?}", id.0));
                }
            }
        }
        for (&node, there) in &mut self.nodes {
            self.held.entry(node).or_default().extend(there.run());
        }
    }

    /// Delivers the messages that the agent of a node has sent.
    fn deliver(&mut self, node: NodeId) {
        for message in self.held.remove(&node).unwrap_or_default() {
            self.tell(Input::Message(node, message));
        }
        self.send();
    }

    fn reply(&mut self) -> Reply {
        assert_eq!(self.replies.len(), 1, "one reply to one command");
        self.replies.remove(0)
    }

    /// Advances the clock to the deadline of the session, and ticks.
    fn wait(&mut self) {
        self.now = self.session.deadline().unwrap();
        self.tell(Input::Tick);
        self.send();
    }
}

fn missing(reply: &Reply) -> Vec<String> {
    let missing = reply.missing.iter();
    missing
        .map(|(why, ranks)| format!("{ranks}: {why:?}"))
        .collect()
}

/// Returns the stacks with their ranks: `0-1: _start>main`.
fn stacks(reply: &Reply) -> Vec<String> {
    let Partial::Stacks(stacks) = &reply.answer else {
        panic!("{reply:?}");
    };
    let all = stacks.merged.tree.stacks(&stacks.frames).into_iter();
    let mut all: Vec<String> = all
        .map(|(frames, _, threads)| {
            let names: Vec<_> = frames
                .iter()
                .filter_map(|it| it.function.as_deref())
                .collect();
            format!("{}: {}", threads.ranks(), names.join(">"))
        })
        .collect();
    all.sort();
    all
}

const STACKS: Action = Action::Stacks(Detail::Full);

#[test]
fn replies_merge_in_whatever_order_they_come() {
    for order in [[A, B], [B, A]] {
        let mut pair = Pair::new();
        pair.command(STACKS);
        pair.send();
        assert!(pair.replies.is_empty());
        pair.deliver(order[0]);
        assert!(pair.replies.is_empty(), "the other one is waited for");
        pair.deliver(order[1]);
        let reply = pair.reply();
        assert_eq!(
            stacks(&reply),
            [
                "0-1,3-4,6-7: _start>main>solve>wait",
                "2: _start>main>solve",
                "5: _start>main"
            ]
        );
        assert_eq!(missing(&reply), ["8: Unproved"]);
        assert_eq!(reply.answer.ranks().to_string(), "0-8");
        assert_eq!(pair.session.deadline(), None);
        assert!(pair.said.is_empty(), "{:?}", pair.said);
    }
}

/// Returns the answers that the agents have sent, merged as processes between them and the session merge them.
fn merged(pair: &mut Pair, nodes: &[NodeId]) -> Answers {
    let mut bodies = Vec::new();
    for node in nodes {
        for message in pair.held.remove(node).unwrap_or_default() {
            let (part, refused) = match message {
                FromAgent::Done { part, .. } => (Some(part), BTreeSet::new()),
                FromAgent::Refused { .. } => (None, [*node].into()),
                FromAgent::Working(_) | FromAgent::Stopped => continue,
            };
            let answers = Answers { part, refused };
            bodies.push(crate::wire::encode(&answers).unwrap().into());
        }
    }
    crate::wire::decode(&crate::gathered::merge(&bodies).unwrap()).unwrap()
}

#[test]
fn answers_that_were_merged_on_their_way_are_the_same() {
    for action in [STACKS, Action::Sample(Extent::Everybody), Action::Describe] {
        let mut texts = Vec::new();
        for together in [false, true] {
            let mut pair = Pair::new();
            let id = pair.command(action);
            pair.send();
            if together {
                let answers = merged(&mut pair, &[B, A]);
                let nodes = [A, B].into();
                pair.tell(Input::Answers { nodes, id, answers });
                pair.send();
            } else {
                pair.deliver(A);
                pair.deliver(B);
            }
            let reply = pair.reply();
            assert_eq!(missing(&reply), ["8: Unproved"]);
            texts.push(match &reply.answer {
                Partial::Stacks(_) => stacks(&reply),
                Partial::Sample(part) => {
                    let hosts = part
                        .snapshot
                        .peers
                        .0
                        .values()
                        .map(|peers| peers.host.clone());
                    hosts.chain([part.ranks().to_string()]).collect()
                }
                Partial::Description(part) => vec![format!("{part:?}")],
            });
        }
        assert_eq!(texts[0], texts[1], "{action:?}");
    }
}

#[test]
fn a_merged_answer_counts_also_for_an_agent_that_was_given_up() {
    let mut pair = Pair::new();
    let id = pair.command(STACKS);
    pair.send();
    pair.tell(Input::Lost(B));
    let answers = merged(&mut pair, &[A, B]);
    let nodes = [A, B].into();
    pair.tell(Input::Answers { nodes, id, answers });
    pair.send();
    let reply = pair.reply();
    assert_eq!(missing(&reply), ["8: Unproved"]);
    assert_eq!(reply.answer.ranks().to_string(), "0-8");
}

#[test]
fn merged_answers_about_other_ranks_are_refused() {
    let mut pair = Pair::new();
    let id = pair.command(STACKS);
    pair.send();
    let answers = merged(&mut pair, &[A, B]);
    // The part has the ranks of the other node too.
    let nodes = [A].into();
    pair.tell(Input::Answers { nodes, id, answers });
    pair.send();
    assert_eq!(pair.said, ["close 0: OtherRanks"]);
    let answers = Answers {
        part: None,
        refused: [B].into(),
    };
    let nodes = [B].into();
    pair.tell(Input::Answers { nodes, id, answers });
    pair.send();
    assert_eq!(
        missing(&pair.reply()),
        [
            "8: Unproved",
            "0-3: AgentLost(\"n1\")",
            "4-7: AgentRefused(\"n2\")"
        ]
    );
    let nodes = [B].into();
    let answers = Answers::default();
    pair.tell(Input::Answers { nodes, id, answers });
    pair.send();
    assert_eq!(pair.said[1..], [format!("dropped of 1, {}: Over", id.0)]);
}

/// Nothing shows whose answer it was.
#[test]
fn a_fault_in_merged_answers_costs_one_command() {
    let mut pair = Pair::new();
    let id = pair.command(STACKS);
    pair.send();
    let mut answers = merged(&mut pair, &[A, B]);
    let Some(Partial::Stacks(part)) = &mut answers.part else {
        panic!("{answers:?}");
    };
    part.missing.insert(Missing::Gone, RankSet::single(Rank(8)));
    let nodes = [A, B].into();
    pair.tell(Input::Answers { nodes, id, answers });
    pair.send();
    let dropped = [0, 1].map(|node| format!("dropped of {node}, {}: Faulty", id.0));
    assert_eq!(pair.said, dropped);
    let silent = [
        "8: Unproved",
        "0-3: AgentSilent(\"n1\")",
        "4-7: AgentSilent(\"n2\")",
    ];
    assert_eq!(missing(&pair.reply()), silent);
    // The agents are asked again.
    pair.command(STACKS);
    pair.send();
    pair.deliver(A);
    pair.deliver(B);
    assert_eq!(missing(&pair.reply()), ["8: Unproved"]);
}

#[test]
fn the_ranks_of_a_lost_agent_are_missing_by_name() {
    let mut pair = Pair::new();
    pair.command(STACKS);
    pair.send();
    pair.deliver(A);
    pair.tell(Input::Lost(B));
    pair.send();
    let reply = pair.reply();
    assert_eq!(missing(&reply), ["8: Unproved", "4-7: AgentLost(\"n2\")"]);
    assert_eq!(stacks(&reply).len(), 2);
    assert_eq!(reply.answer.ranks().to_string(), "0-8");
    // Messages from before the loss are ignored, and the next command does not go to the lost agent.
    pair.deliver(B);
    let id = pair.command(STACKS);
    pair.send();
    pair.deliver(A);
    let reply = pair.reply();
    assert_eq!(reply.id, id);
    assert_eq!(missing(&reply), ["8: Unproved", "4-7: AgentLost(\"n2\")"]);
    // The session sends the ranks to the replacement agent.
    let (node, host) = (B, "n2".to_owned());
    pair.tell(Input::Joined { node, host });
    pair.command(STACKS);
    pair.send();
    pair.deliver(A);
    pair.deliver(B);
    assert_eq!(missing(&pair.reply()), ["8: Unproved"]);
}

#[test]
fn a_report_names_the_host_of_a_lost_agent() {
    let mut pair = Pair::new();
    pair.command(Action::Sample(Extent::Children));
    pair.send();
    pair.deliver(A);
    pair.tell(Input::Lost(B));
    pair.send();
    let mut recording = Recording::default();
    match pair.reply().answer {
        Partial::Sample(sample) => recording.push(Duration::ZERO, sample.frames, sample.snapshot),
        other => panic!("{other:?}"),
    }
    let report = crate::report::Report::of(recording, Detail::Folded);
    let look = crate::report::Layout {
        width: 80,
        detail: Detail::Folded,
        colour: crate::report::Colour::Never,
        guides: crate::report::Guides::Ascii,
    };
    let text = crate::report::text(&report, &look);
    let text = text.split_once("\n\n").unwrap().1;
    insta::assert_snapshot!(text, @"
    4 [0-3] main > solve - running 1 [2]
    `- 3 [0-1,3] wait - running
    missing: 4 [4-7] the agent on host n2 was lost
    missing: 1 [8] nothing shows which process it is
    ");
}

#[test]
fn who_is_silent_for_too_long_is_missing_and_its_late_reply_is_dropped() {
    let mut pair = Pair::new();
    let id = pair.command(STACKS);
    pair.send();
    pair.deliver(A);
    assert_eq!(pair.session.deadline(), Some(Time::ZERO + SILENCE));
    pair.wait();
    let reply = pair.reply();
    assert_eq!(missing(&reply), ["8: Unproved", "4-7: AgentSilent(\"n2\")"]);
    pair.deliver(B);
    assert_eq!(pair.said, [format!("dropped of 1, {}: Over", id.0)]);
    // The agent was heard again: the next command goes to it.
    pair.command(STACKS);
    pair.send();
    pair.deliver(B);
    pair.deliver(A);
    assert_eq!(missing(&pair.reply()), ["8: Unproved"]);
}

#[test]
fn a_silent_agent_is_waited_for_once_until_it_is_heard_again() {
    let mut pair = Pair::new();
    pair.send();
    let silent = ["8: Unproved", "4-7: AgentSilent(\"n2\")"];
    // The agent of the second node gets no message.
    let mut node = pair.nodes.remove(&B).unwrap();
    let mut stuck = Vec::new();
    let mut send = |pair: &mut Pair| {
        while let Some(output) = pair.session.poll() {
            match output {
                Output::Send(B, message) => stuck.push(message),
                Output::Send(_, message) => pair.nodes.get_mut(&A).unwrap().tell(message),
                Output::Reply(reply) => pair.replies.push(reply),
                other => panic!("{other:?}"),
            }
        }
        let said = pair.nodes.get_mut(&A).unwrap().run();
        said.into_iter()
            .for_each(|it| pair.tell(Input::Message(A, it)));
    };
    // Two commands are active when the agent is given up, in both.
    pair.command(STACKS);
    pair.now = pair.now + SILENCE / 2;
    pair.command(STACKS);
    send(&mut pair);
    pair.now = pair.session.deadline().unwrap();
    assert_eq!(pair.now, Time::ZERO + SILENCE);
    pair.tell(Input::Tick);
    send(&mut pair);
    let replies = mem::take(&mut pair.replies);
    assert_eq!(
        replies.iter().map(missing).collect::<Vec<_>>(),
        [silent, silent]
    );
    // No further command waits for it, and it gets none, although the ranks change.
    let places = pair.session.places.clone();
    for _ in 0..3 {
        pair.session.follow(places.clone());
        pair.command(STACKS);
        send(&mut pair);
        send(&mut pair);
        assert_eq!(missing(&pair.reply()), silent);
        assert_eq!(pair.session.deadline(), None);
    }
    let fewer = |message: &ToAgent| match message {
        ToAgent::Do { id, .. } => format!("do {}", id.0),
        ToAgent::Cancel(id) => format!("cancel {}", id.0),
        other => format!("{other:?}"),
    };
    let got: Vec<String> = stuck.iter().map(fewer).collect();
    assert_eq!(got, ["do 1", "do 2", "cancel 1", "cancel 2"]);
    // It answers the cancellations, and is asked again.
    stuck.into_iter().for_each(|message| node.tell(message));
    let said = node.run();
    assert!(!said.is_empty());
    said.into_iter()
        .for_each(|it| pair.tell(Input::Message(B, it)));
    pair.nodes.insert(B, node);
    pair.send();
    pair.command(STACKS);
    pair.send();
    pair.deliver(A);
    pair.deliver(B);
    assert_eq!(missing(&pair.reply()), ["8: Unproved"]);
}

#[test]
fn a_late_reply_is_dropped_while_others_are_waited_for() {
    let mut pair = Pair::new();
    let id = pair.command(STACKS);
    pair.send();
    // The first node sends signs of life, the second node sends none.
    pair.now = pair.now + SILENCE / 2;
    pair.tell(Input::Message(A, FromAgent::Working(id)));
    pair.wait();
    assert!(pair.replies.is_empty());
    pair.deliver(B);
    assert_eq!(pair.said, [format!("dropped of 1, {}: Late", id.0)]);
    pair.deliver(A);
    assert_eq!(
        missing(&pair.reply()),
        ["8: Unproved", "4-7: AgentSilent(\"n2\")"]
    );
}

#[test]
fn a_sign_of_life_counts_for_every_command_of_the_agent() {
    let mut pair = Pair::new();
    let first = pair.command(STACKS);
    let second = pair.command(STACKS);
    pair.send();
    pair.deliver(A);
    // The agent carries out the first command, while the second one is queued there.
    let from = pair.now;
    pair.now = from + SILENCE / 2;
    pair.tell(Input::Message(B, FromAgent::Working(first)));
    pair.send();
    assert_eq!(pair.session.deadline(), Some(pair.now + SILENCE));
    pair.now = from + SILENCE;
    pair.tell(Input::Tick);
    pair.send();
    assert!(pair.replies.is_empty(), "{:?}", pair.replies);
    // The answer to the first command is also a sign of life for the second.
    let answers = pair.held.remove(&B).unwrap();
    let (one, other): (Vec<_>, Vec<_>) = answers
        .into_iter()
        .partition(|it| matches!(it, FromAgent::Done { id, .. } if *id == first));
    pair.held.insert(B, one.into());
    pair.deliver(B);
    assert_eq!(missing(&pair.reply()), ["8: Unproved"]);
    assert_eq!(pair.session.deadline(), Some(pair.now + SILENCE));
    pair.held.insert(B, other.into());
    pair.deliver(B);
    let reply = pair.reply();
    assert_eq!(
        (reply.id, missing(&reply)),
        (second, vec!["8: Unproved".to_owned()])
    );
}

#[test]
fn nobody_is_waited_for_for_ever_whatever_signs_of_life_come() {
    let mut pair = Pair::new();
    let id = pair.command(STACKS);
    pair.send();
    let mut times = 0;
    while pair.replies.is_empty() {
        pair.now = pair.now + SIGN_OF_LIFE;
        for node in [A, B] {
            pair.tell(Input::Message(node, FromAgent::Working(id)));
        }
        while let Some(output) = pair.session.poll() {
            if let Output::Reply(reply) = output {
                pair.replies.push(reply);
            }
        }
        times += 1;
        assert!(SIGN_OF_LIFE * times <= LONGEST + SIGN_OF_LIFE);
    }
    assert_eq!(
        missing(&pair.reply()),
        [
            "8: Unproved",
            "0-3: AgentSilent(\"n1\")",
            "4-7: AgentSilent(\"n2\")"
        ]
    );
}

#[test]
fn a_cancelled_command_ends_with_what_there_is() {
    let mut pair = Pair::new();
    let id = pair.command(STACKS);
    pair.send();
    pair.deliver(B);
    pair.tell(Input::Cancel(id));
    pair.send();
    let reply = pair.reply();
    assert_eq!(missing(&reply), ["8: Unproved", "0-3: AgentSilent(\"n1\")"]);
    assert_eq!(stacks(&reply).len(), 2);
    pair.deliver(A);
    assert_eq!(pair.said, [format!("dropped of 0, {}: Over", id.0)]);
}

#[test]
fn a_refusal_is_told() {
    let mut pair = Pair::new();
    let id = pair.command(STACKS);
    pair.send();
    pair.held.clear();
    let why = Refusal::Busy;
    pair.tell(Input::Message(B, FromAgent::Refused { id, why }));
    pair.tell(Input::Lost(A));
    pair.send();
    assert_eq!(
        missing(&pair.reply()),
        [
            "8: Unproved",
            "0-3: AgentLost(\"n1\")",
            "4-7: AgentRefused(\"n2\")"
        ]
    );
}

#[test]
fn commands_are_bounded_and_independent() {
    let mut pair = Pair::new();
    let ids: Vec<CommandId> = (0..MAX_COMMANDS).map(|_| pair.command(STACKS)).collect();
    let ranks = pair.session.ranks();
    let refused = pair.session.command(pair.now, &ranks, STACKS);
    assert_eq!(refused, Err(Refused::Full));
    pair.tell(Input::Lost(B));
    pair.send();
    pair.deliver(A);
    let over: Vec<CommandId> = pair.replies.iter().map(|reply| reply.id).collect();
    assert_eq!(over.len(), ids.len());
    assert!(pair.session.command(pair.now, &ranks, STACKS).is_ok());
}

#[test]
fn a_verdict_over_two_nodes_sees_the_peers_of_each() {
    let mut pair = Pair::new();
    let mut recording = Recording::default();
    for at in 0..3 {
        pair.command(Action::Sample(Extent::Everybody));
        pair.send();
        pair.deliver(B);
        pair.deliver(A);
        let Partial::Sample(sample) = pair.reply().answer else {
            panic!("samples were asked for");
        };
        assert_eq!(sample.snapshot.peers.0.len(), 2);
        recording.push(Duration::from_secs(at), sample.frames, sample.snapshot);
    }
    let all = recording.observe(Boundary::Known);
    assert_eq!(all.ranks.len(), 9);
    assert!(recording.is_whole());
}

#[test]
fn what_is_seen_of_several_nodes_names_their_hosts() {
    let mut pair = Pair::new();
    for (&node, there) in &mut pair.nodes {
        let agent = crate::agent::Agent::new(node, OWN, Detail::Folded);
        there.agent = agent.with_max_threads(0);
    }
    for (node, host) in [(A, "n1"), (B, "n2")] {
        let host = host.to_owned();
        pair.tell(Input::Joined { node, host });
    }
    let worker = FakeProcess::new(200, pid(5), "worker", "main");
    let node = pair.nodes.get_mut(&B).unwrap();
    node.processes.insert(200, worker);
    let mut ask = |action| {
        pair.command(action);
        pair.send();
        pair.deliver(B);
        pair.deliver(A);
        pair.reply().answer
    };
    let Partial::Sample(sample) = ask(Action::Sample(Extent::Everybody)) else {
        panic!("samples were asked for");
    };
    let peers = serde_json::to_value(&sample.snapshot.peers).unwrap();
    assert_eq!(
        (&peers["0"]["host"], &peers["0"]["ranks"]),
        (&"n1".into(), &"0-3".into())
    );
    assert_eq!(
        (&peers["1"]["host"], &peers["1"]["ranks"]),
        (&"n2".into(), &"4-7".into())
    );
    assert_eq!(peers["1"]["below"]["5"]["pids"], serde_json::json!([200]));
    let Partial::Description(description) = ask(Action::Describe) else {
        panic!("a description was asked for");
    };
    let doubts: Vec<String> = description.doubts().collect();
    let [first, .., last] = &doubts[..] else {
        panic!("{doubts:?}");
    };
    insta::assert_snapshot!(format!("{first}\n{last}"), @"
    process 100 on host n1 has 1 threads; only 0 of them were looked at
    process 200 on host n2 has 1 threads; only 0 of them were looked at
    ");
}

#[test]
fn ranks_are_where_the_agent_of_their_node_has_found_them() {
    use crate::target::{How, Proc as Found};

    let there = |host: &str| Whereabouts::There {
        host: host.to_owned(),
        started: 7,
    };
    let late = Missing::NotStarted {
        host: "n3".to_owned(),
        why: "late".to_owned(),
    };
    let nodes = BTreeMap::from([
        ("n2".to_owned(), Ok(B)),
        ("n3".to_owned(), Err(late.clone())),
    ]);
    let at = |node, started| Place::At(node, Proc { pid: 9, started });
    let gone = |host: &str| Whereabouts::Gone {
        host: Some(host.to_owned()),
    };
    let cases = [
        (Whereabouts::Here { started: 7 }, at(A, 7)),
        (there("n2"), at(B, 7)),
        // The agent has found the process, and was lost since.
        (there("n3"), Place::Nowhere(late.clone())),
        (Whereabouts::On("n3".to_owned()), Place::Nowhere(late)),
        (
            Whereabouts::On("n2".to_owned()),
            Place::Nowhere(Missing::AgentSilent("n2".to_owned())),
        ),
        (
            Whereabouts::On("n4".to_owned()),
            Place::Nowhere(Missing::Elsewhere("n4".to_owned())),
        ),
        (Whereabouts::Gone { host: None }, at(A, Proc::EXITED)),
        (gone("n2"), at(B, Proc::EXITED)),
        (gone("n3"), Place::Nowhere(Missing::Gone)),
        (
            Whereabouts::NotFound,
            Place::Nowhere(Missing::NotFound("n3".into())),
        ),
    ];
    let procs = (0..).map(Rank).zip(&cases).map(|(rank, (place, _))| {
        let (place, program) = (place.clone(), String::new());
        let pid = 9;
        (
            rank,
            Found {
                pid,
                place,
                program,
            },
        )
    });
    let target = Target {
        title: String::new(),
        how: How::Alone,
        procs: procs.collect(),
        tried: Vec::new(),
        doubts: Vec::new(),
        notes: Vec::new(),
    };
    let places = Place::of_target(&target, A, &nodes);
    let expected = (0..).map(Rank).zip(cases.map(|(_, place)| place));
    assert_eq!(places, expected.collect());
}
