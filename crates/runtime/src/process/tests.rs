//! A controller and two daemons in one process, with real ranks: a node must behave the same whoever shares its process.

mod fronts;
mod nodes;

use std::{
    cell::RefCell,
    ffi::OsString,
    os::fd::{AsFd, OwnedFd},
    path::PathBuf,
    sync::{Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use base::{Rank, Topology};
use dvm::{
    alloc::{AllocatedNode, Allocation, Slots},
    place::{self, AppRequest},
    proto::{Cause, FromFront, Note, Outcome, ToFront},
    spec::{App, EndPolicy, HoldPlan, JobSpec, Recorder, StdinTarget, StdioPlan, Tracers},
};

use os::Loop;

use super::*;
use crate::{
    IGNORED,
    controller::{BesideController, ControllerSetup},
    daemon::DaemonSetup,
    link::{ControllerLink, FrontLink, Received},
    machines::ControllerMachine,
    missing::MissingReports,
    place::Surroundings,
    prompts::PromptHost,
};

/// How long a job may take before the test fails.
const PATIENCE: Duration = Duration::from_secs(30);
/// Maximum time of one turn of the process before the front has its turn.
const TURN: Duration = Duration::from_millis(10);

/// What the front has received about a job.
#[derive(Debug, Default)]
struct Heard {
    /// Lines of all ranks, sorted.
    lines: Vec<String>,
    hosts: Vec<String>,
    notes: Vec<Note>,
    is_held: bool,
    /// Number of answers to questions.
    answers: usize,
    outcome: Option<Outcome>,
}

impl Heard {
    fn hear(&mut self, message: ToFront, output: &mut Vec<u8>) {
        match message {
            ToFront::Output { chunk, .. } => output.extend_from_slice(&chunk.bytes),
            ToFront::Launched { table, .. } => {
                self.hosts = table.into_iter().map(|row| row.host).collect();
            }
            ToFront::AllHeld { .. } => self.is_held = true,
            ToFront::Holding(_) => self.answers += 1,
            ToFront::Note(note) => self.notes.push(note),
            ToFront::Ended(outcome) => self.outcome = Some(outcome),
            ToFront::Failed(why) => panic!("{why}"),
            ToFront::Internal(why) => panic!("{why}"),
            ToFront::Refused(refusal) => panic!("{refusal:?}"),
            _ => {}
        }
    }

    fn cause(&self) -> &Cause {
        &self.outcome.as_ref().expect("the job has ended").cause
    }
}

/// Returns a job of four ranks that run a shell script, two on each of two nodes.
fn job(script: &str) -> JobSpec {
    JobSpec {
        needs: Default::default(),
        sets: Default::default(),
        recorder: Recorder::Off,
        limits: Default::default(),
        map: dvm::spec::MapFor::Launch,
        watch: None,
        preload: None,
        apps: vec![App {
            program: "/bin/sh".into(),
            args: ["-c", script].map(OsString::from).into(),
            env: [("PATH", "/usr/bin:/bin")].into_iter().collect(),
            directory: "/".into(),
            search: "/usr/bin:/bin".into(),
            elsewhere: std::sync::Arc::default(),
            umask: 0o022,
            tracers: Tracers::Ancestors,
        }],
        placement: place::Request {
            apps: vec![AppRequest {
                count: Some(4),
                ..AppRequest::default()
            }],
            ..place::Request::default()
        },
        universe: None,
        stdin: StdinTarget::None,
        stdio: StdioPlan::default(),
        end: EndPolicy::default(),
        hold: HoldPlan::NOWHERE,
        variables: std::collections::BTreeSet::new(),
        gpus: None,
    }
}

/// A front played by the test.
struct TestFront {
    link: FrontLink,
    socket: OwnedFd,
    output: Vec<u8>,
    heard: Heard,
    /// Set when the controller has closed the connection.
    is_closed: bool,
}

impl TestFront {
    fn new(socket: OwnedFd) -> Self {
        os::set_nonblocking(socket.as_fd()).unwrap();
        Self {
            // No shared memory: output and input travel in the frames.
            link: FrontLink::inline(),
            socket,
            output: Vec::new(),
            heard: Heard::default(),
            is_closed: false,
        }
    }

    /// Writes queued messages and receives what has arrived.
    fn turn(&mut self) {
        if self.is_closed {
            return;
        }
        self.link.flush(self.socket.as_fd()).unwrap();
        let mut received = Received::Open;
        while received == Received::Open {
            received = self.link.link.receive(self.socket.as_fd()).unwrap();
            while let Some(message) = self.link.next_message().unwrap() {
                self.heard.hear(message, &mut self.output);
            }
        }
        self.is_closed = received == Received::Closed;
    }

    /// Returns what was received, once the job is over.
    fn end(mut self) -> Heard {
        assert!(self.is_closed, "the controller closes the connection");
        let lines = String::from_utf8(self.output).unwrap();
        self.heard.lines = lines.lines().map(str::to_owned).collect();
        self.heard.lines.sort();
        self.heard
    }
}

/// Processes of these tests reap all children of this process and end all its descendants. So there is only one at a time, also
/// where tests are threads of one process.
static ALONE: Mutex<()> = Mutex::new(());

thread_local! {
    /// The lock of the test that runs in this thread, until its end.
    static LOCKED: RefCell<Option<MutexGuard<'static, ()>>> = const { RefCell::new(None) };
}

fn be_alone() {
    LOCKED.with_borrow_mut(|locked| {
        if locked.is_none() {
            *locked = Some(ALONE.lock().unwrap_or_else(PoisonError::into_inner));
        }
    });
}

/// Makes a process with a controller and two daemons, whose nodes have `slots` slots each, and its first front.
fn open(slots: u32, session: Option<PathBuf>) -> (Process, TestFront) {
    be_alone();
    os::become_subreaper().unwrap();
    let mut reactor = Reactor::new(Loop::new(&IGNORED).unwrap());
    let (ours, theirs) = os::socket_pair().unwrap();
    os::set_nonblocking(theirs.as_fd()).unwrap();
    let names = ["n0", "n1"];
    let allocation = Allocation {
        nodes: names
            .map(|name| AllocatedNode {
                name: name.to_owned(),
                slots: Slots::Explicit(slots),
                max_slots: None,
                granted: None,
            })
            .into(),
    };
    let name = format!("rally-test-{}", os::current_pid());
    let controller = ControllerHost::open(
        Clock::now(),
        ControllerMachine::new(allocation, name.clone(), None),
        ControllerLink::inline(),
        theirs,
        ControllerSetup {
            machine: None,
            slurm: None,
            prompts: PromptHost::new(None, &Allocation { nodes: Vec::new() }, None),
            front_pid: os::current_pid(),
            session,
            report_bug: |what| panic!("{what}"),
            missing_reports: MissingReports::default(),
            tools: None,
            beside: BesideController::Node,
            control: None,
        },
        &mut reactor,
    )
    .unwrap();
    let daemons: Vec<(NodeId, DaemonHost)> = (0..)
        .map(NodeId)
        .zip(names)
        .map(|(node, host)| {
            let setup = DaemonSetup {
                node,
                host: host.to_owned(),
                topology: Topology::flat(2),
                owner: "1.1".to_owned(),
                descriptors: os::limit(os::Resource::Descriptors),
                service: name.clone(),
                session: None,
                region: None,
                hosting: dvm::bootstrap::Hosting::Alone,
                surroundings: Surroundings::default(),
                environment: None,
                tape: None,
                tools: dvm::Tools::Refused,
            };
            (node, DaemonHost::open(setup, &mut reactor).unwrap())
        })
        .collect();
    let process = Process::new(reactor, Head::Controller(Box::new(controller)), daemons);
    (process, TestFront::new(ours))
}

/// Runs the process and its fronts until a condition holds.
fn until(
    process: &mut Process,
    fronts: &mut [&mut TestFront],
    mut holds: impl FnMut(&[&mut TestFront]) -> bool,
) {
    let end = Clock::now() + PATIENCE;
    while !holds(fronts) {
        let heard: Vec<&Heard> = fronts.iter().map(|front| &front.heard).collect();
        assert!(Clock::now() < end, "it takes too long: {heard:?}");
        process.turn(Some(Clock::now() + TURN)).unwrap();
        // The test runs in a thread, and another thread may have got the SIGCHLD.
        process.reap(Clock::now());
        for front in &mut *fronts {
            front.turn();
        }
    }
}

/// Runs a job on two daemons of one process, with its front.
fn run(spec: JobSpec) -> Heard {
    run_on(2, spec)
}

/// Runs a job on nodes of `slots` slots.
fn run_on(slots: u32, spec: JobSpec) -> Heard {
    let (mut process, mut front) = open(slots, None);
    front.link.send(FromFront::Submit(Box::new(spec)));
    until(&mut process, &mut [&mut front], |fronts| {
        fronts.iter().all(|front| front.is_closed)
    });
    let over = process.turn(Some(Time::ZERO)).unwrap();
    assert_eq!(over, Turn::Over(Exit::Clean));
    front.end()
}

#[test]
fn each_daemon_has_the_ranks_of_its_node() {
    let heard = run(job(
        "echo rank $RALLY_RANK: $RALLY_LOCAL_RANK of $RALLY_LOCAL_SIZE on $RALLY_NODE",
    ));
    assert_eq!(*heard.cause(), Cause::Success);
    assert_eq!(heard.hosts, ["n0", "n0", "n1", "n1"]);
    assert_eq!(heard.notes, []);
    insta::assert_snapshot!(heard.lines.join("\n"), @"
    rank 0: 0 of 2 on 0
    rank 1: 1 of 2 on 0
    rank 2: 0 of 2 on 1
    rank 3: 1 of 2 on 1
    ");
}

#[test]
fn a_rank_that_fails_ends_those_of_the_other_daemon() {
    let heard = run(job("[ $RALLY_RANK = 3 ] && exit 7; exec sleep 1000"));
    let Cause::Failed { rank, status } = heard.cause() else {
        panic!("{heard:?}");
    };
    assert_eq!((*rank, status.code()), (Rank(3), 7));
}

/// A fence of PMI-1, spoken by a shell: a value put on one node is read on the other.
#[test]
fn a_fence_joins_the_daemons() {
    let heard = run(job(r#"
        ask() { printf '%s\n' "$1" >&3; read -r answer <&3; }
        ask 'cmd=init pmi_version=1 pmi_subversion=1'
        ask 'cmd=get_my_kvsname'
        space=${answer##*kvsname=}
        ask "cmd=put kvsname=${space%% *} key=k$RALLY_RANK value=from-$RALLY_RANK"
        ask 'cmd=barrier_in'
        ask "cmd=get kvsname=${space%% *} key=k$(( (RALLY_RANK + 2) % 4 ))"
        echo "rank $RALLY_RANK: $answer"
        ask 'cmd=finalize'
    "#));
    assert_eq!(*heard.cause(), Cause::Success);
    insta::assert_snapshot!(heard.lines.join("\n"), @"
    rank 0: cmd=get_result rc=0 value=from-2
    rank 1: cmd=get_result rc=0 value=from-3
    rank 2: cmd=get_result rc=0 value=from-0
    rank 3: cmd=get_result rc=0 value=from-1
    ");
}

/// The daemons share a process, and so all descendants; each must end only those that ranks of its own node have left.
#[test]
fn a_node_that_is_done_leaves_the_processes_of_the_other_alone() {
    let heard = run(job(r"
        case $RALLY_RANK in
            0|1) exit 0 ;;
            2) sleep 1 & wait $!; echo the child of rank 2 has ended with $? ;;
            3) setsid sleep 1000 >/dev/null 2>&1 & ;;
        esac
    "));
    assert_eq!(*heard.cause(), Cause::Success);
    insta::assert_snapshot!(heard.lines.join("\n"), @"the child of rank 2 has ended with 0");
    let left = Note::LeftBehind {
        node: NodeId(1),
        count: 1,
    };
    assert_eq!(heard.notes, [left]);
}
