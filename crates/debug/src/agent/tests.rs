//! Tests of the agent: the order of its questions to the host, and what it makes of the answers.

pub(crate) mod fake;

use std::collections::BTreeMap;

use base::InKernel;

use self::fake::{FakeProcess, FakeThread, Node, STARTED};
use super::{kernel::NotStopped, *};
use crate::{
    reply::{Description, Partial, PartialSample},
    stack::{Activity, Missing, Seen},
};

const A: i32 = 10;

fn proc(pid: i32) -> Proc {
    Proc {
        pid,
        started: STARTED,
    }
}

/// Returns a node where rank 0 is process [`A`].
fn node(process: FakeProcess) -> Node {
    let mut node = Node::new(0, [(A, process)]);
    node.tell(ToAgent::Follow(BTreeMap::from([(Rank(0), proc(A))])));
    node
}

fn process(at: &'static str) -> FakeProcess {
    FakeProcess::new(A, 1, "a.out", at)
}

fn order(id: u64, action: Action) -> ToAgent {
    ToAgent::Do {
        id: CommandId(id),
        ranks: RankSet::range(0..100),
        action,
    }
}

fn sample(node: &mut Node) -> PartialSample {
    node.tell(order(1, Action::Sample(Extent::Children)));
    let mut said = node.run();
    match said.pop() {
        Some(FromAgent::Done {
            part: Partial::Sample(sample),
            ..
        }) if said.is_empty() => sample,
        other => panic!("{other:?} after {said:?}"),
    }
}

/// Returns the sample of a rank in short form.
fn seen(sample: &PartialSample, rank: u32) -> String {
    match &sample.snapshot.procs[&Rank(rank)] {
        Seen::Missing(why) => format!("{why:?}"),
        Seen::Threads(threads) => {
            let thread = |thread: &crate::stack::Thread| {
                let frames = thread.stack.frames.iter();
                let names = frames.map(|&id| {
                    let function = sample.frames.get(id).function.clone();
                    function.unwrap_or_else(|| "??".into()).to_string()
                });
                let names: Vec<String> = names.collect();
                format!("{} {}", names.join(">"), thread.activity)
            };
            let threads: Vec<String> = threads.iter().map(thread).collect();
            threads.join("; ")
        }
    }
}

#[test]
fn a_process_is_read_then_stopped_thread_by_thread_then_proved() {
    let mut process = process("solve");
    process.threads.push(FakeThread::running(11, "wait"));
    let mut node = node(process);
    let first = sample(&mut node);
    assert_eq!(
        seen(&first, 0),
        "_start>main>solve running; _start>main>solve>wait running"
    );
    insta::assert_snapshot!(node.asked.join("\n"), @"
    processes
    who is 10
    mappings of 10
    threads of 10
    thread 10
    stop 10 and copy 65536
    release 10
    thread 11
    stop 11 and copy 65536
    release 11
    who is 10
    let go
    ");
    // Mappings are kept as long as the process executes the same program.
    node.asked.clear();
    sample(&mut node);
    assert!(!node.asked.iter().any(|asked| asked.starts_with("mappings")));
}

#[test]
fn who_is_another_process_now_is_not_looked_at() {
    let mut node = node(process("solve"));
    let procs = BTreeMap::from([(
        Rank(0),
        Proc {
            started: STARTED - 1,
            ..proc(A)
        },
    )]);
    node.tell(ToAgent::Follow(procs));
    assert_eq!(seen(&sample(&mut node), 0), "Gone");
    // It may have left its recorded calls.
    let asked = ["processes", "who is 10", "what 10 has left", "let go"];
    assert_eq!(node.asked, asked);
}

#[test]
fn of_a_process_whose_pid_another_one_gets_during_the_sample_nothing_is_shown() {
    for (starts, expected) in [
        (&[STARTED, STARTED][..], "_start>main running"),
        (&[STARTED, STARTED + 1], "Gone"),
    ] {
        let mut process = process("main");
        process.starts = starts.iter().copied().collect();
        let mut node = node(process);
        assert_eq!(seen(&sample(&mut node), 0), expected);
        let asked = node.asked.iter().filter(|it| it.starts_with("threads of"));
        assert_eq!(asked.count(), 1);
    }
}

#[test]
fn a_program_that_changes_is_looked_at_anew() {
    for (stacks, samples, expected) in [
        (&[5, 5][..], 1, "_start>main running"),
        (&[5, 6, 6, 6], 2, "_start>main running"),
        (&[5, 6, 6, 7, 7, 7], 3, "_start>main running"),
        (&[5, 6, 6, 7, 7, 8], 3, "Changed"),
        // It exited, and may still be listed or not.
        (&[5, 0], 1, "_start>main running"),
        (&[5], 1, "_start>main running"),
        (&[], 0, "Gone"),
    ] {
        let mut process = process("main");
        process.stacks = stacks.iter().copied().map(Some).chain([None]).collect();
        let mut node = node(process);
        assert_eq!(seen(&sample(&mut node), 0), expected, "{stacks:?}");
        let asked = node.asked.iter().filter(|it| it.starts_with("threads of"));
        assert_eq!(asked.count(), samples, "{stacks:?}");
    }
}

#[test]
fn mappings_are_read_again_where_a_stack_leads_out_of_them() {
    let mut node = node(process("main"));
    sample(&mut node);
    // The thread is at an unmapped address: the process may have loaded a library since.
    node.processes.get_mut(&A).unwrap().threads[0].at = "elsewhere";
    node.asked.clear();
    assert_eq!(seen(&sample(&mut node), 0), "?? running");
    insta::assert_snapshot!(node.asked.join("\n"), @"
    processes
    who is 10
    threads of 10
    thread 10
    stop 10 and copy 65536
    release 10
    mappings of 10
    thread 10
    stop 10 and copy 65536
    release 10
    who is 10
    let go
    ");
    // Code that was generated at run time is in no file: read the mappings only once for each sample.
    let mut mappings = node.asked.iter().filter(|it| it.starts_with("mappings"));
    assert!(mappings.next().is_some() && mappings.next().is_none());
}

#[test]
fn of_whom_nothing_is_seen_it_is_said_why() {
    let refused = |why: NotStopped, state: char, in_kernel: Option<InKernel>| FakeThread {
        refusal: Some(why),
        state,
        in_kernel,
        ..FakeThread::running(A, "main")
    };
    let asleep = Some(InKernel::Blocked {
        call: Some(0),
        arguments: [0; 6],
        stack: 0x7000,
        instruction: 0x10_2020,
    });
    let table = [
        (
            refused(NotStopped::NotPermitted, 'S', None),
            None,
            "NotPermitted",
        ),
        (
            refused(NotStopped::NotPermitted, 'S', None),
            Some(44),
            "TracedBy(44)",
        ),
        // We have already asked the thread to stop, and it has not stopped yet.
        (
            refused(NotStopped::NotPermitted, 'S', None),
            Some(fake::OWN),
            " waiting",
        ),
        (refused(NotStopped::Gone, 'R', None), None, "NotPermitted"),
        (refused(NotStopped::Late, 'D', None), None, "Unreachable"),
        // The kernel reports where it sleeps.
        (refused(NotStopped::Late, 'S', asleep), None, "main reading"),
        (
            refused(NotStopped::Late, 'D', asleep),
            None,
            "main in disk wait",
        ),
    ];
    for (thread, tracer, expected) in table {
        let said = format!("{thread:?}, traced by {tracer:?}");
        let mut process = process("main");
        process.threads = vec![thread];
        process.tracer = tracer;
        let mut node = node(process);
        assert_eq!(seen(&sample(&mut node), 0), expected, "{said}");
    }
    let mut unread = process("main");
    unread.mappings = None;
    assert_eq!(seen(&sample(&mut node(unread)), 0), "NotPermitted");
}

#[test]
fn who_sleeps_in_the_kernel_is_not_even_asked_to_stop() {
    let mut process = process("main");
    process.threads[0].state = 'D';
    process.threads[0].in_kernel = Some(InKernel::Blocked {
        call: Some(0),
        arguments: [0; 6],
        stack: 0x7000,
        instruction: 0x10_2020,
    });
    let mut node = node(process);
    sample(&mut node);
    assert!(!node.asked.iter().any(|asked| asked.starts_with("stop")));
    assert!(node.asked.contains(&"copy 0x7000".to_owned()));
}

#[test]
fn the_first_thread_that_has_ended_is_kept_and_others_are_not() {
    let mut process = process("main");
    process.threads[0].state = 'Z';
    let mut dead = FakeThread::running(11, "main");
    dead.state = 'Z';
    process.threads.push(dead);
    process.threads.push(FakeThread::running(12, "wait"));
    // If it were read through the pid, the process would seem to have exited.
    let mut node = node(process);
    assert_eq!(
        seen(&sample(&mut node), 0),
        format!(" {}; _start>main>solve>wait running", Activity::Ended)
    );
}

#[test]
fn processes_below_ranks_are_looked_at_and_those_that_ended_are_not_told() {
    let mut node = node(process("main"));
    for (pid, at) in [(20, "wait"), (21, "solve")] {
        let child = FakeProcess::new(pid, A, "worker", at);
        node.processes.insert(pid, child);
    }
    node.processes.get_mut(&21).unwrap().stacks = [None].into();
    let first = sample(&mut node);
    let children = &first.snapshot.children[&Rank(0)];
    let pids: Vec<i32> = children.iter().map(|child| child.pid).collect();
    assert_eq!(pids, [20]);
    assert!(first.snapshot.peers.0.is_empty());
    node.tell(order(2, Action::Sample(Extent::Everybody)));
    let Some(FromAgent::Done {
        part: Partial::Sample(all),
        ..
    }) = node.run().pop()
    else {
        panic!("it answers");
    };
    let below = all.snapshot.peers.below(Rank(0)).unwrap();
    assert_eq!(below.pids, [20, 21].into());
}

#[test]
fn what_another_launcher_of_the_same_user_has_started_is_a_neighbor() {
    let mut node = node(process("main"));
    for (pid, parent, name) in [(60, 1, "rally"), (61, 60, "b.out")] {
        let process = FakeProcess::new(pid, parent, name, "main");
        node.processes.insert(pid, process);
    }
    node.tell(order(1, Action::Sample(Extent::Everybody)));
    let Some(FromAgent::Done {
        part: Partial::Sample(all),
        ..
    }) = node.run().pop()
    else {
        panic!("it answers");
    };
    assert!(node.asked.contains(&"owners".to_owned()));
    // A sample without peers needs no owners: one sample does not show which processes work.
    node.asked.clear();
    sample(&mut node);
    assert!(!node.asked.contains(&"owners".to_owned()));
    let peers = &all.snapshot.peers.0[&NodeId(0)];
    assert_eq!(peers.neighbors.pids, [61].into());
}

#[test]
fn of_many_processes_below_ranks_some_are_looked_at_and_that_is_said() {
    let mut node = node(process("main"));
    let most = i32::try_from(MAX_CHILDREN).unwrap();
    for pid in 100..102 + most {
        node.processes
            .insert(pid, FakeProcess::new(pid, A, "worker", "wait"));
    }
    let sample = sample(&mut node);
    assert_eq!(sample.snapshot.children[&Rank(0)].len(), MAX_CHILDREN);
    let description = describe(&mut node);
    let doubts: Vec<String> = description.doubts().collect();
    assert_eq!(
        doubts,
        ["2 of the processes that ranks have started were not looked at"]
    );
}

fn describe(node: &mut Node) -> Description {
    node.tell(order(7, Action::Describe));
    match node.run().pop() {
        Some(FromAgent::Done {
            part: Partial::Description(description),
            ..
        }) => description,
        other => panic!("{other:?}"),
    }
}

#[test]
fn what_ranks_were_started_with_is_described() {
    let mut node = node(process("main"));
    sample(&mut node);
    let description = describe(&mut node);
    let line = &description.commands[0].line;
    assert_eq!(line, "a.out -v");
    assert_eq!(description.processors, [(Rank(0), 10)].into());
    let builds = description.builds.into_iter().map(|it| it.file.to_string());
    assert_eq!(builds.collect::<Vec<_>>(), ["a.out"]);
    // A process that reuses the pid of an exited rank may have a password among its arguments.
    let gone = Proc {
        started: STARTED - 1,
        ..proc(A)
    };
    node.tell(ToAgent::Follow([(Rank(0), gone)].into()));
    assert!(describe(&mut node).commands.is_empty());
}

#[test]
fn stacks_are_merged_where_they_are_taken() {
    let mut node = Node::new(
        3,
        [
            (A, process("wait")),
            (11, FakeProcess::new(11, 1, "a.out", "wait")),
        ],
    );
    let procs = [(Rank(4), proc(A)), (Rank(5), proc(11)), (Rank(6), proc(12))];
    node.tell(ToAgent::Follow(procs.into()));
    node.tell(order(1, Action::Stacks(Detail::Folded)));
    let Some(FromAgent::Done {
        part: Partial::Stacks(stacks),
        ..
    }) = node.run().pop()
    else {
        panic!("it answers");
    };
    let all = stacks.merged.tree.stacks(&stacks.frames);
    assert_eq!(all.len(), 1);
    assert_eq!(all[0].2.ranks().to_string(), "4-5");
    assert_eq!(stacks.missing[&Missing::Gone].to_string(), "6");
    assert_eq!(stacks.ranks().to_string(), "4-6");
}

#[test]
fn a_cancelled_sample_ends_when_nobody_stands() {
    // Wherever it is cancelled, no thread stays stopped, and only the next command is answered. The cancellation itself gets a
    // sign of life.
    for steps in 0..8 {
        for ends in [ToAgent::Cancel(CommandId(1)), ToAgent::Stop] {
            let mut node = node(process("wait"));
            node.tell(order(1, Action::Sample(Extent::Children)));
            node.steps.set(steps);
            node.run();
            node.tell(ends.clone());
            node.tell(order(2, Action::Sample(Extent::Children)));
            node.steps.set(usize::MAX);
            let said = node.run();
            assert_eq!(node.stopped, None, "{steps}");
            let said: Vec<String> = said.iter().map(short).collect();
            let expected: &[&str] = match ends {
                ToAgent::Stop => &["2 refused: Stopping", "stopped"],
                _ => &["1 working", "2 done"],
            };
            assert_eq!(said, expected, "after {steps} steps, {ends:?}");
        }
    }
}

#[test]
fn a_cancelled_sample_stops_no_further_thread() {
    let mut process = process("wait");
    process.threads.push(FakeThread::running(11, "wait"));
    for (steps, last, stops) in [
        (4, "threads of 10", 0),
        (5, "thread 10", 1),
        (6, "stop 10 and copy 65536", 1),
        (7, "release 10", 1),
    ] {
        let mut node = node(process.clone());
        node.tell(order(1, Action::Sample(Extent::Children)));
        // The command is cancelled while the next question is in progress.
        node.steps.set(steps);
        node.run();
        assert_eq!(node.asked.last().map(String::as_str), Some(last));
        let Some(Output::Ask(question)) = node.agent.poll() else {
            panic!("the agent is at work");
        };
        node.tell(ToAgent::Cancel(CommandId(1)));
        node.steps.set(usize::MAX);
        node.carry_out(question);
        node.run();
        let asked = node.asked.iter().filter(|it| it.starts_with("stop"));
        assert_eq!(asked.count(), stops, "{:?}", node.asked);
        assert_eq!(node.stopped, None);
    }
}

#[test]
fn commands_that_need_no_answer_are_all_carried_out() {
    let mut node = node(process("wait"));
    node.tell(order(1, Action::Sample(Extent::Children)));
    for id in 2..5 {
        // The agent follows none of these ranks.
        node.tell(ToAgent::Do {
            id: CommandId(id),
            ranks: RankSet::range(50..60),
            action: Action::Describe,
        });
    }
    let said: Vec<String> = node.run().iter().map(short).collect();
    assert_eq!(said, ["1 done", "2 done", "3 done", "4 done"]);
}

fn short(message: &FromAgent) -> String {
    match message {
        FromAgent::Working(id) => format!("{} working", id.0),
        FromAgent::Done { id, .. } => format!("{} done", id.0),
        FromAgent::Refused { id, why } => format!("{} refused: {why:?}", id.0),
        FromAgent::Stopped => "stopped".to_owned(),
    }
}

#[test]
fn who_works_for_long_gives_signs_of_life() {
    let mut node = node(process("wait"));
    node.step = SIGN_OF_LIFE / 2;
    node.tell(order(1, Action::Sample(Extent::Children)));
    let said: Vec<String> = node.run().iter().map(short).collect();
    let (last, signs) = said.split_last().unwrap();
    assert_eq!(last, "1 done");
    assert!(
        signs.len() >= 2 && signs.iter().all(|it| it == "1 working"),
        "{said:?}"
    );
}

#[test]
fn commands_wait_in_a_bounded_queue() {
    let mut node = node(process("wait"));
    let most = u64::try_from(MAX_ORDERS).unwrap();
    for id in 1..=most + 3 {
        node.tell(order(id, Action::Sample(Extent::Children)));
    }
    let said: Vec<String> = node.run().iter().map(short).collect();
    let refused = said.iter().filter(|it| it.ends_with("Busy")).count();
    let done = said.iter().filter(|it| it.ends_with("done")).count();
    // One command is carried out, and the others wait.
    assert_eq!((refused, done), (2, MAX_ORDERS + 1), "{said:?}");
}

#[test]
fn an_agent_without_a_session_lets_go_and_does_nothing_more() {
    let mut node = node(process("wait"));
    node.tell(order(1, Action::Sample(Extent::Children)));
    node.steps.set(6);
    node.run();
    assert_eq!(node.stopped, Some(A));
    node.agent.handle(node.now, Input::SessionLost);
    node.steps.set(usize::MAX);
    let said: Vec<String> = node.run().iter().map(short).collect();
    assert_eq!((said, node.stopped), (vec!["stopped".to_owned()], None));
}
