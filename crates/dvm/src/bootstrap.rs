//! Starting the daemons of other nodes: which commands run, how many simultaneously, and what it means when one fails.
//!
//! A *start command* starts the daemons of one node or of several (`srun`). It runs as long as its daemons do, so its end
//! before they have joined is a failure, and what it has printed is the evidence. The job needs every node, so one failure
//! is enough to refuse it; but the other commands get [`FAILURES_DELAY`] to fail or to join, so that one message names all
//! failures, and how many nodes are fine. A debugger uses the nodes that it gets ([`Bootstrap::with_those_that_join`]): it is
//! told each failure by itself. So does a machine ([`Bootstrap::of_machine`]), which is told the failures of [`FAILURES_DELAY`] together,
//! and adds nodes while it runs (`growth`).
//!
//! Most commands give us a shell on the node (`ssh`). It gets a script, which looks for our program: first at the path that it
//! has here, then in a cache by the hash of its content. The script asks for the hash, and for the program if it is missing.
//! Then it becomes the daemon; see [`stage`]. Nothing else is installed on nodes. The daemon reads what it has to do (its
//! *boot frame*) from the same standard input.
//!
//! The nodes of one `srun` share its standard input, so none of them can be sent the program. They only look at the path that it
//! has here. Each one that does not have it (`absent`) becomes the node of a new command, which gives us a shell there.
//!
//! | state of a command | started | `which` | `have` | `need` | `none` | `absent` | exited | all its daemons joined | deadline | session over |
//! |---|---|---|---|---|---|---|---|---|---|---|
//! | `Waiting` | direct, checked: sends the frame → `Joining`; staged: sends the script → `Asking` | – | – | – | – | – | – | – | – | `Over` |
//! | `Asking` | – | sends the hash, once | sends the frame → `Joining` | sends the program → `Sending`; another architecture: → `Failed`, killed | → `Failed` | – | → `Failed` | → `Joined` | → `Failed`, killed | killed → `Over` |
//! | `Sending` | – | sends the hash, once | sends the frame → `Joining` | sends the program again, for the next directory | → `Failed` | – | → `Failed` | → `Joined` | → `Failed`, killed | killed → `Over` |
//! | `Joining` | – | – | – | – | – | checked: a new command in `Waiting` for this node; the last node: → `Joined` | → `Failed` | → `Joined` | → `Failed`, killed; or → `Joined` without the late nodes | killed → `Over` |
//! | `Joined` | – | – | – | – | – | – | → `Over` | – | – | killed after [`EXIT_MAX`] → `Over` |
//! | `Leaving` | – | – | – | – | – | – | → `Over` | – | killed → `Over` | the same |
//! | `Failed` | – | – | – | – | – | – | – | – | – | – |
//!
//! A command at the head is `Leaving` when all its daemons are lost: it has [`EXIT_MAX`] to exit by itself.
//!
//! The deadline of a command does not run while it waits for an answer of the user; afterwards it begins again. The front that
//! has the terminal owns that wait.
//!
//! A deadline does not end a command of several nodes if the nodes that have joined are used without the others.
//!
//! Commands run at the head, which is the process of this state machine. For a long list of nodes, daemons that have joined run
//! commands too (*tree start*), so that no node runs ssh for all others (`places` decides where). A command may run at a daemon
//! if it gives us a shell on one node. Its first failure there does not count, because ssh between two nodes may be forbidden:
//! the head starts the same node once more, and the outcome of that counts.
//!
//! | place of a command | the daemon is joined | would become `Failed` | the daemon of its place is lost | session over |
//! |---|---|---|---|---|
//! | none: `Waiting` | → `Over` (it was started in spite of a failure) | – | – | → `Over` |
//! | head | → `Joined`; the new daemon runs commands too | → `Failed` | – | as above |
//! | daemon | → `Joined`; the new daemon runs commands too | killed unless exited; → `Waiting` for the head; the daemon of its place gets no more commands | → `Waiting` for the head; from `Joined` → `Over` | → `Over`: each daemon ends its own commands |

mod failures;
mod growth;
mod places;
mod plan;
mod printed;
pub mod stage;
#[cfg(test)]
mod tests;

use std::{
    collections::{BTreeSet, VecDeque},
    num::NonZeroU32,
    time::Duration,
};

use base::{ExitStatus, NodeId, Time};
use serde::{Deserialize, Serialize};

pub use self::{
    failures::{NO_PORT, NotJoined, NotJoinedClass, Reason},
    places::{BAD_DAEMONS_MAX, DAEMON_COMMANDS_MAX, DAEMON_PARALLEL, Place},
    plan::{
        Addition, DaemonPlan, Delivery, Hosting, LateStart, Prompting, StartCommand,
        TREE_START_MIN, TreeStart,
    },
    printed::EVIDENCE_MAX,
};
use self::{
    places::Places,
    printed::Printed,
    stage::{Answer, PLACES_MAX},
};

/// Default maximum number of children of a daemon.
pub const RADIX: NonZeroU32 = NonZeroU32::new(32).unwrap();
/// Default time of silence after which a link counts as lost.
pub const LEASE: Duration = Duration::from_secs(10);
/// Time in which a link can be resumed after silence.
pub const WINDOW: Duration = Duration::from_secs(2);
/// Maximum number of start commands at the head whose daemons have not joined yet. In a tree start, the maximum number of children
/// of a daemon bounds it too.
pub const PARALLEL: NonZeroU32 = NonZeroU32::new(64).unwrap();
/// Time in which the shell of a node has to answer after its command was started.
pub const ANSWER_MAX: Duration = Duration::from_secs(60);
/// Time in which a node has to take more of the program.
pub const SEND_MAX: Duration = Duration::from_secs(60);
/// The same two times at a daemon: then the head starts the node. They are longer than ssh tries to connect, and short enough that the
/// daemons below that node in the tree, which wait for it, are not late.
pub const DAEMON_STEP_MAX: Duration = Duration::from_secs(20);
/// Time in which the daemon of a node has to join after it was told what to do.
pub const JOIN_MAX: Duration = Duration::from_secs(60);
/// Time that other commands have, after the first failure, to fail too, or for their daemons to join.
pub const FAILURES_DELAY: Duration = Duration::from_secs(3);
/// Time in which a command has to exit by itself when its daemons have ended.
pub const EXIT_MAX: Duration = Duration::from_secs(1);
/// The words with which a daemon says that it cannot connect. The addresses that it tried follow, each with the
/// result, separated by semicolons.
pub const CANNOT_CONNECT: &str = "cannot connect to the launcher: ";
/// The words with which a daemon says that it cannot run on its node. The reason follows.
pub const CANNOT_RUN: &str = "cannot run here: ";

/// Part of a word of [`Delivery::Checked`] that stands for the name of a node.
pub const HOST_WORD: &str = "{host}";
/// Parts of words of [`LateStart::OfSlurm`].
pub const JOB_WORD: &str = "{job}";
pub const COUNT_WORD: &str = "{count}";
pub const HOSTS_WORD: &str = "{hosts}";

/// Bytes for the standard input of a command.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Part {
    Script,
    /// The hash of the program's content, in a line.
    Hash,
    Program,
    /// The boot frame. Nothing follows.
    Frame,
}

/// Index of a command in [`DaemonPlan::commands`].
pub type CommandId = u32;

/// An event that the caller reports.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Input {
    /// Answers [`Output::Start`]: the command could not be executed.
    NotStarted { command: CommandId, why: String },
    /// A command has taken bytes from its standard input.
    Taken(CommandId),
    /// Bytes that a command has printed.
    Printed { command: CommandId, bytes: Vec<u8> },
    /// A command has exited, and its output was read.
    Exited {
        command: CommandId,
        status: ExitStatus,
    },
    /// A command waits for an answer of the user.
    Asks(CommandId),
    /// A command waits for no answer any more.
    GoesOn(CommandId),
    /// The daemon of a node has joined the tree.
    Joined(NodeId),
    /// The daemon of a node is lost, and with it the commands that it ran.
    Lost(NodeId),
    /// The session is over: commands are about to exit.
    Over,
    /// The time that [`Bootstrap::deadline`] returned has passed.
    Tick,
}

/// An action for the caller to carry out.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Output {
    Start(Place, CommandId),
    /// Send this to the standard input of a command, after what was sent before.
    Send(Place, CommandId, Part),
    /// Kill the process of a command.
    Kill(Place, CommandId),
    /// Do not expect the daemon of this node any more.
    GiveUp(NodeId),
    /// Nodes cannot be used. This is the last output before [`Input::Over`], unless the other nodes are used
    /// ([`Bootstrap::with_those_that_join`]).
    Failed(NotJoined),
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum State {
    Waiting,
    Asking { until: Time },
    Sending { until: Time },
    Joining { until: Time },
    Joined,
    Leaving { until: Time },
    Failed(Reason),
    Over,
}

impl State {
    /// Returns the deadline of a command whose daemons have not all joined.
    const fn until(&self) -> Option<Time> {
        match self {
            Self::Asking { until } | Self::Sending { until } | Self::Joining { until } => {
                Some(*until)
            }
            Self::Waiting | Self::Joined | Self::Leaving { .. } | Self::Failed(_) | Self::Over => {
                None
            }
        }
    }

    const fn is_starting(&self) -> bool {
        self.until().is_some()
    }

    /// Returns true if the command has a process.
    const fn is_running(&self) -> bool {
        self.is_starting() || matches!(self, Self::Joined | Self::Leaving { .. })
    }

    /// Gives the node its whole time again.
    fn begin_again(&mut self, now: Time) {
        match self {
            Self::Asking { until } => *until = now + ANSWER_MAX,
            Self::Sending { until } => *until = now + SEND_MAX,
            Self::Joining { until } => *until = now + JOIN_MAX,
            Self::Waiting | Self::Joined | Self::Leaving { .. } | Self::Failed(_) | Self::Over => {}
        }
    }
}

#[derive(Debug)]
struct Command {
    state: State,
    /// Where it runs, or has run last.
    place: Place,
    /// The daemon where it has failed before.
    failed_at: Option<NodeId>,
    /// Nodes whose daemons have not joined.
    missing: BTreeSet<NodeId>,
    printed: Printed,
    /// Directories in which the node could not store the program, with reasons; or addresses that its daemon has tried.
    tried: Vec<String>,
    /// Number of times that the program was sent.
    sent: usize,
    /// Whether the hash of the program was sent.
    is_hash_sent: bool,
    waits_for: WaitsFor,
}

/// Who has to do something before a command goes on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum WaitsFor {
    /// The node, until the deadline of the state.
    Node,
    /// The user, who has no deadline.
    Answer,
}

impl Command {
    fn waiting(plan: &StartCommand) -> Self {
        Self {
            state: State::Waiting,
            place: Place::Head,
            failed_at: None,
            missing: plan.nodes.iter().copied().collect(),
            printed: Printed::default(),
            tried: Vec::new(),
            sent: 0,
            is_hash_sent: false,
            waits_for: WaitsFor::Node,
        }
    }

    /// Returns the deadline that runs now.
    fn deadline(&self) -> Option<Time> {
        let until = self.state.until();
        until.filter(|_| self.waits_for == WaitsFor::Node)
    }
}

/// What the failure of one command means for the others.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum OnFailure {
    /// No other command is started, and one report names all failures.
    ReportAll,
    /// The others go on, and each failure has a report of its own.
    GoOn,
    /// The others go on, and one report names the failures that are close to each other in time.
    GoOnTogether,
}

/// The state machine of a start.
#[derive(Debug)]
pub struct Bootstrap {
    plan: DaemonPlan,
    hosts: Vec<String>,
    commands: Vec<Command>,
    places: Places,
    /// Commands in `Waiting` that may run anywhere, and those that the head runs because they have failed elsewhere. Commands that
    /// have another state by now are skipped.
    waiting: VecDeque<CommandId>,
    for_head: VecDeque<CommandId>,
    /// Nodes whose daemons were lost.
    lost: BTreeSet<NodeId>,
    /// When the failures so far are reported.
    report_at: Option<Time>,
    /// Failures that the next report names, with [`OnFailure::GoOnTogether`].
    unreported: Vec<CommandId>,
    is_reported: bool,
    /// When commands that have not exited by themselves are killed.
    kill_at: Option<Time>,
    on_failure: OnFailure,
    outputs: VecDeque<Output>,
}

impl Bootstrap {
    /// Begins to start the daemons. `hosts` are the names of the nodes by their number.
    #[must_use]
    pub fn new(now: Time, plan: DaemonPlan, hosts: Vec<String>) -> Self {
        let commands: Vec<Command> = plan.commands.iter().map(Command::waiting).collect();
        let mut bootstrap = Self {
            places: match plan.starts_in_tree() {
                true => Places::tree(plan.radix),
                false => Places::head_only(),
            },
            waiting: (0..).zip(&commands).map(|(id, _)| id).collect(),
            for_head: VecDeque::new(),
            commands,
            plan,
            hosts,
            lost: BTreeSet::new(),
            report_at: None,
            unreported: Vec::new(),
            is_reported: false,
            kill_at: None,
            on_failure: OnFailure::ReportAll,
            outputs: VecDeque::new(),
        };
        bootstrap.start_more(now);
        bootstrap
    }

    /// Uses the nodes that join, and reports each failure by itself.
    #[must_use]
    pub fn with_those_that_join(mut self) -> Self {
        self.on_failure = OnFailure::GoOn;
        self
    }

    /// Uses the nodes that join, and reports failures that are close to each other in time together.
    #[must_use]
    pub fn of_machine(mut self) -> Self {
        self.on_failure = OnFailure::GoOnTogether;
        self
    }

    /// Returns the plan.
    #[must_use]
    pub const fn plan(&self) -> &DaemonPlan {
        &self.plan
    }

    /// Handles an event of a command that a daemon runs. It has no effect if the command does not run there any more.
    pub fn handle_from(&mut self, now: Time, node: NodeId, input: Input) {
        let id = match &input {
            Input::Taken(command)
            | Input::NotStarted { command, .. }
            | Input::Printed { command, .. }
            | Input::Exited { command, .. } => *command,
            // Daemons run only commands that ask nothing.
            Input::Asks(_)
            | Input::GoesOn(_)
            | Input::Joined(_)
            | Input::Lost(_)
            | Input::Over
            | Input::Tick => return,
        };
        let place = Place::Daemon(node);
        let command = self.commands.get(id as usize);
        let runs = |command: &Command| command.state.is_running() && command.place == place;
        if command.is_some_and(runs) {
            self.handle(now, input);
        }
    }

    /// Handles one event.
    pub fn handle(&mut self, now: Time, input: Input) {
        match input {
            Input::NotStarted { command, why } => self.fail(now, command, Reason::NotStarted(why)),
            Input::Taken(command) => {
                if let Some(Command {
                    state: State::Sending { until },
                    place,
                    ..
                }) = self.command(command)
                {
                    *until = now + place.step_max(SEND_MAX);
                }
                return;
            }
            Input::Printed { command, bytes } => self.on_printed(now, command, &bytes),
            Input::Exited { command, status } => self.on_exited(now, command, status),
            Input::Asks(command) => {
                if let Some(command) = self.command(command) {
                    command.waits_for = WaitsFor::Answer;
                }
            }
            Input::GoesOn(command) => {
                if let Some(command) = self.command(command) {
                    command.waits_for = WaitsFor::Node;
                    command.state.begin_again(now);
                }
            }
            Input::Joined(node) => self.on_joined(node),
            Input::Lost(node) => self.on_lost(now, node),
            Input::Over => self.on_over(now),
            Input::Tick => self.on_tick(now),
        }
        self.start_more(now);
    }

    fn on_joined(&mut self, node: NodeId) {
        let ids = 0..u32::try_from(self.commands.len()).unwrap_or(u32::MAX);
        for id in ids {
            let Some(command) = self.command(id) else {
                continue;
            };
            if !command.missing.remove(&node) || !command.missing.is_empty() {
                continue;
            }
            if command.state.is_starting() {
                let place = command.place;
                command.printed.forget();
                self.set(id, State::Joined);
                if let Place::Daemon(_) = place {
                    self.places.worked();
                }
            } else if command.state == State::Waiting {
                self.set(id, State::Over);
            }
        }
        self.places.open(node);
        if self.report_at.is_some() {
            self.report_if_complete();
        }
    }

    fn on_over(&mut self, now: Time) {
        self.report_at = None;
        self.kill_at = Some(now + EXIT_MAX);
        for command in &mut self.commands {
            let is_elsewhere = command.state.is_running() && command.place != Place::Head;
            if command.state == State::Waiting || is_elsewhere {
                command.state = State::Over;
            }
        }
    }

    /// Returns the next action. Call it after every [`Self::handle`] until it returns `None`.
    pub fn poll(&mut self) -> Option<Output> {
        self.outputs.pop_front()
    }

    /// Returns the time at which [`Input::Tick`] is due.
    #[must_use]
    pub fn deadline(&self) -> Option<Time> {
        let commands = self.commands.iter();
        let commands = commands.filter_map(Command::deadline);
        let kill = self.kill_at.filter(|_| !self.is_over());
        let leaving = self.leaving().map(|(_, until)| until);
        commands
            .chain(leaving)
            .chain(self.report_at)
            .chain(kill)
            .min()
    }

    /// Returns true if no command runs any more.
    #[must_use]
    pub fn is_over(&self) -> bool {
        !self
            .commands
            .iter()
            .any(|command| command.state.is_running())
    }

    fn command(&mut self, id: CommandId) -> Option<&mut Command> {
        self.commands.get_mut(id as usize)
    }

    fn set(&mut self, id: CommandId, state: State) {
        if let Some(command) = self.commands.get_mut(id as usize) {
            let before = std::mem::replace(&mut command.state, state);
            if before.is_starting() && !command.state.is_starting() {
                self.places.give_back(command.place);
            }
        }
    }

    /// Lets the head start a node whose command has failed at a daemon, or is lost with it.
    fn start_again(&mut self, id: CommandId, node: NodeId) {
        self.set(id, State::Waiting);
        let planned = self.plan.commands.get(id as usize);
        if let (Some(command), Some(planned)) = (self.commands.get_mut(id as usize), planned) {
            *command = Command {
                failed_at: Some(node),
                ..Command::waiting(planned)
            };
            self.for_head.push_back(id);
        }
    }

    /// Starts waiting commands, as many as may run.
    fn start_more(&mut self, now: Time) {
        // After a failure, no more are started: the job is refused in any case.
        let is_refused = self.report_at.is_some() && self.on_failure == OnFailure::ReportAll;
        if is_refused || self.is_reported || self.kill_at.is_some() {
            return;
        }
        while let Some((id, place)) = self.next_start() {
            let Some(delivery) = self
                .plan
                .commands
                .get(id as usize)
                .map(|plan| &plan.delivery)
            else {
                continue;
            };
            let (state, first) = match delivery {
                Delivery::Staged => {
                    let until = now + place.step_max(ANSWER_MAX);
                    (State::Asking { until }, Some(Part::Script))
                }
                Delivery::Direct | Delivery::Checked { .. } => {
                    let until = now + JOIN_MAX;
                    (State::Joining { until }, Some(Part::Frame))
                }
                Delivery::File => {
                    let until = now + JOIN_MAX;
                    (State::Joining { until }, None)
                }
            };
            if let Some(command) = self.command(id) {
                command.state = state;
                command.place = place;
            }
            self.outputs.push_back(Output::Start(place, id));
            let first = first.map(|part| Output::Send(place, id, part));
            self.outputs.extend(first);
        }
    }

    /// Returns the next command to start, and takes a place for it.
    fn next_start(&mut self) -> Option<(CommandId, Place)> {
        let commands = &self.commands;
        let waits = |id: &CommandId| {
            let command = commands.get(*id as usize);
            command.is_some_and(|command| command.state == State::Waiting)
        };
        while self.for_head.pop_front_if(|id| !waits(id)).is_some() {}
        while self.waiting.pop_front_if(|id| !waits(id)).is_some() {}
        if !self.for_head.is_empty() && self.in_dialogue_at_head() < self.places.head_max() {
            return Some((self.for_head.pop_front()?, self.places.take_again()));
        }
        if self.waiting.is_empty() {
            return None;
        }
        let place = self.places.take_any()?;
        Some((self.waiting.pop_front()?, place))
    }

    /// Returns the number of commands at the head whose nodes have not yet got their frames.
    fn in_dialogue_at_head(&self) -> usize {
        let commands = self.commands.iter();
        let commands = commands.filter(|command| {
            let is_asked = matches!(command.state, State::Asking { .. } | State::Sending { .. });
            is_asked && command.place == Place::Head
        });
        commands.count()
    }

    fn on_printed(&mut self, now: Time, id: CommandId, bytes: &[u8]) {
        let Some(command) = self.command(id) else {
            return;
        };
        for line in command.printed.take(bytes) {
            let answer = stage::answer(&line);
            if let Some(Answer::Absent(host)) = &answer
                && let Some(node) = self.without_program(id, host)
            {
                self.start_alone(id, node);
                continue;
            }
            let Some(command) = self.command(id) else {
                return;
            };
            let is_asked = matches!(command.state, State::Asking { .. } | State::Sending { .. });
            match answer.filter(|_| is_asked) {
                Some(answer) => self.on_answer(now, id, answer),
                None => command.printed.keep(line),
            }
        }
    }

    /// Returns the node of this name, if it waits for a daemon of this command and can get one from another command.
    fn without_program(&self, id: CommandId, host: &str) -> Option<NodeId> {
        let (command, plan) = self
            .commands
            .get(id as usize)
            .zip(self.plan.commands.get(id as usize))?;
        let (State::Joining { .. }, Delivery::Checked { .. }) = (&command.state, &plan.delivery)
        else {
            return None;
        };
        let mut missing = command.missing.iter().copied();
        missing.find(|node| self.hosts.get(node.0 as usize).map(String::as_str) == Some(host))
    }

    /// Starts a command of its own for a node that does not have the program.
    fn start_alone(&mut self, id: CommandId, node: NodeId) {
        let host = self.hosts.get(node.0 as usize).map_or("", String::as_str);
        let at = id as usize;
        let (Some(command), Some(plan)) =
            (self.commands.get_mut(at), self.plan.commands.get_mut(at))
        else {
            return;
        };
        let Delivery::Checked { shell } = &plan.delivery else {
            return;
        };
        let words = shell
            .iter()
            .map(|word| word.replace(HOST_WORD, host).into());
        let alone = StartCommand {
            argv: words.collect(),
            nodes: vec![node],
            delivery: Delivery::Staged,
            check: plan.check.clone(),
            prompting: Prompting::Never,
            elsewhere: None,
        };
        plan.nodes.retain(|other| *other != node);
        command.missing.remove(&node);
        let is_last = command.missing.is_empty();
        if is_last {
            self.set(id, State::Joined);
        }
        let number = u32::try_from(self.commands.len()).unwrap_or(u32::MAX);
        self.waiting.push_back(number);
        self.commands.push(Command::waiting(&alone));
        self.plan.commands.push(alone);
    }

    fn on_answer(&mut self, now: Time, id: CommandId, answer: Answer) {
        let Some(command) = self.command(id) else {
            return;
        };
        let place = command.place;
        match answer {
            Answer::Have => {
                command.tried.clear();
                let until = now + JOIN_MAX;
                command.state = State::Joining { until };
                self.outputs.push_back(Output::Send(place, id, Part::Frame));
            }
            Answer::Which => {
                // A line of a login script may look like the question.
                if !std::mem::replace(&mut command.is_hash_sent, true) {
                    self.outputs.push_back(Output::Send(place, id, Part::Hash));
                }
            }
            Answer::Need { system } if !stage::is_ours(&system) => {
                self.outputs.push_back(Output::Kill(place, id));
                self.fail(now, id, Reason::OtherSystem(system));
            }
            Answer::Need { .. } if command.sent < PLACES_MAX => {
                command.sent += 1;
                let until = now + place.step_max(SEND_MAX);
                command.state = State::Sending { until };
                self.outputs
                    .push_back(Output::Send(place, id, Part::Program));
            }
            Answer::Skip(place) => {
                if command.tried.len() < PLACES_MAX {
                    command.tried.push(place);
                }
            }
            Answer::Need { .. } | Answer::None => {
                self.outputs.push_back(Output::Kill(place, id));
                self.fail(now, id, Reason::NoPlace);
            }
            // Only nodes that share a command say this.
            Answer::Absent(_) => {}
        }
    }

    fn on_exited(&mut self, now: Time, id: CommandId, status: ExitStatus) {
        let Some(command) = self.command(id) else {
            return;
        };
        command.printed.end();
        if !command.state.is_starting() {
            if command.state.is_running() {
                command.state = State::Over;
            }
            return;
        }
        let reason = match command.printed.after(CANNOT_CONNECT) {
            Some(tried) => {
                command.tried = tried.split("; ").map(str::to_owned).collect();
                Reason::CannotConnect
            }
            None if let Some(why) = command.printed.after(CANNOT_RUN) => Reason::Refused(why),
            None => match status {
                ExitStatus::Exited(code) => Reason::Exited(code),
                ExitStatus::Signaled { signal, .. } => Reason::Killed(signal.0),
                ExitStatus::OutOfMemory { .. } => Reason::Killed(base::Signal::KILL.0),
            },
        };
        self.fail(now, id, reason);
    }

    /// Gives up the nodes of a command that have not joined in time.
    fn on_late(&mut self, now: Time, id: CommandId, reason: Reason) {
        let planned = self.plan.commands.get(id as usize);
        let planned = planned.map_or(0, |plan| plan.nodes.len());
        let is_used = self.on_failure != OnFailure::ReportAll
            && self
                .command(id)
                .is_some_and(|command| command.missing.len() < planned);
        if !is_used && let Some(place) = self.command(id).map(|command| command.place) {
            self.outputs.push_back(Output::Kill(place, id));
        }
        self.fail(now, id, reason);
        if is_used {
            if self.report_at.is_some() {
                // Now, as the report takes the reason from the state.
                self.report();
            }
            // The others have joined, and their daemons end with the command.
            self.set(id, State::Joined);
        }
    }

    fn fail(&mut self, now: Time, id: CommandId, reason: Reason) {
        if let Some(Place::Daemon(node)) = self.command(id).map(|command| command.place) {
            self.places.failed(node);
            self.start_again(id, node);
            if self.report_at.is_some() {
                self.report_if_complete();
            }
            return;
        }
        self.set(id, State::Failed(reason));
        if self.is_reported || self.kill_at.is_some() {
            return;
        }
        let missing = self.command(id).map(|command| command.missing.clone());
        let given_up = missing.into_iter().flatten().map(Output::GiveUp);
        self.outputs.extend(given_up);
        if self.on_failure == OnFailure::GoOn {
            let failed = self.failures([id]);
            self.outputs.push_back(Output::Failed(failed));
            return;
        }
        if self.on_failure == OnFailure::GoOnTogether {
            self.unreported.push(id);
        }
        self.report_at.get_or_insert(now + FAILURES_DELAY);
        self.report_if_complete();
    }

    fn on_tick(&mut self, now: Time) {
        let late = (0..).zip(&self.commands).filter_map(|(id, command)| {
            command.deadline().filter(|until| *until <= now)?;
            let reason = match command.state {
                State::Asking { .. } => Reason::NoAnswer {
                    seconds: ANSWER_MAX.as_secs(),
                },
                State::Sending { .. } => Reason::NotTaken {
                    seconds: SEND_MAX.as_secs(),
                },
                State::Joining { .. } => Reason::Late {
                    seconds: JOIN_MAX.as_secs(),
                },
                _ => return None,
            };
            Some((id, reason))
        });
        for (id, reason) in late.collect::<Vec<(CommandId, _)>>() {
            self.on_late(now, id, reason);
        }
        self.kill_leaving(now);
        if self.report_at.is_some_and(|time| time <= now) {
            self.report();
        }
        if self.kill_at.is_some_and(|time| time <= now) {
            self.kill_all();
        }
    }

    /// Kills the commands that run.
    fn kill_all(&mut self) {
        for (id, command) in (0..).zip(&mut self.commands) {
            if command.state.is_running() {
                self.outputs.push_back(Output::Kill(command.place, id));
                command.state = State::Over;
            }
        }
    }
}
