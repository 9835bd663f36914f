//! A debug session, the agent of this node in the same process, and those of other nodes. This file passes their messages.

use std::{
    collections::{BTreeMap, BTreeSet},
    env,
    time::Duration,
};

use base::{HostList, NodeId, Rank, Time};
use debug::{
    proto::{Action, CommandId, Extent, Search},
    reply::{Description, Partial, PartialSample},
    report::Detail,
    session::{self, Place, Reply, Session},
    stack::Missing,
    target::{self, Doubt, How, NotFound, OnNode, Target, Wish},
};
use os::Clock;

use super::{
    host::{self, AgentHost},
    messages,
    nodes::{ENDING, Event, Nodes, NotReached, SIGNAL_CHECK},
};
use crate::args::{AgentArgs, SLURM_NODE, Starter};

/// The node that `dbgr` runs on.
pub(super) const HERE: NodeId = NodeId(0);
/// How long a command may wait for other nodes after a signal that ends the wait.
const INTERRUPTED_MAX: Duration = Duration::from_secs(2);

/// The result of one step.
#[derive(Debug)]
enum Step {
    Done,
    /// A command is over.
    Reply(Box<Reply>),
    /// Neither the session nor the agent of this node has an output.
    Idle,
}

/// A session over the processes of this node and of others.
#[derive(Debug)]
pub(super) struct Local {
    session: Session,
    agent: AgentHost,
    detail: Detail,
    /// `None` until a rank is on another node.
    nodes: Option<Nodes>,
    /// The other nodes whose agents the session knows.
    joined: BTreeSet<NodeId>,
    patience: Patience,
}

/// Whether a command waits until all nodes have answered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Patience {
    /// It does, with the limits of the session.
    Full,
    /// The user waits for what there is: a command may take [`INTERRUPTED_MAX`].
    Interrupted,
}

impl Local {
    /// Creates a session without ranks.
    pub(super) fn new(detail: Detail) -> Self {
        Self::with_agent(AgentHost::new(HERE, detail), detail)
    }

    /// Creates a session with a given agent of this node.
    pub(super) fn with_agent(agent: AgentHost, detail: Detail) -> Self {
        let mut session = Session::new();
        let host = os::host_name();
        let node = HERE;
        session.handle(Clock::now(), session::Input::Joined { node, host });
        Self {
            session,
            agent,
            detail,
            nodes: None,
            joined: BTreeSet::new(),
            patience: Patience::Full,
        }
    }

    /// Starts agents on the other nodes of the target, and has them identify its ranks there. Ranks on nodes that do not
    /// answer stay where they are, and will be missing.
    ///
    /// # Errors
    /// See [`NotReached`].
    pub(super) fn reach(
        &mut self,
        target: &mut Target,
        agents: &AgentArgs,
    ) -> Result<(), NotReached> {
        let elsewhere = target.elsewhere();
        if elsewhere.is_empty() {
            return Ok(());
        }
        let hosts = elsewhere.keys().cloned().collect();
        let search = |host: &str| Search::Ranks(elsewhere.get(host).cloned().unwrap_or_default());
        let starter = agents.starter(starter_of(target));
        for (host, found) in self.search(hosts, (agents, starter), search)? {
            target.place(&host, &found);
        }
        Ok(())
    }

    /// Searches other nodes, and this one if it is among them, for what the user asked for.
    ///
    /// # Errors
    /// See [`NotReached`]; or no process was found.
    pub(super) fn find(
        &mut self,
        wish: &Wish,
        (hosts, agents): (&HostList, &AgentArgs),
        here: impl FnOnce() -> Result<Target, NotFound>,
    ) -> Result<Result<Target, NotFound>, NotReached> {
        if let Wish::Process(pid) = *wish {
            return Ok(Err(NotFound::PidOnNodes { pid }));
        }
        let own = os::host_name();
        let names = dvm::alloc::LocalNames::new(&own).with_alias(env::var(SLURM_NODE).ok());
        let (local, others): (Vec<String>, Vec<String>) = hosts
            .clone()
            .into_iter()
            .partition(|host| names.contains(host));
        let mut unique = BTreeSet::new();
        let others: Vec<String> = others
            .into_iter()
            .filter(|host| unique.insert(host.clone()))
            .collect();
        let mut found = if others.is_empty() {
            BTreeMap::new()
        } else {
            let of_job = match wish {
                Wish::Job(name) => slurm_job(name).map(Starter::Slurm),
                Wish::Process(_) | Wish::Name(_) => None,
            };
            let starter = agents.starter(of_job);
            self.search(others.clone(), (agents, starter), |_| {
                Search::Wish(wish.clone())
            })?
        };
        let local = local.first().map(|host| {
            let part = here().map_or_else(|_| OnNode::default(), |target| OnNode::of(&target));
            (host.clone(), part)
        });
        let own = local.as_ref().map(|(host, _)| host.clone());
        // The processes of a node must not be there twice.
        let here = local.as_ref().and_then(|_| os::node_identity());
        let twins = self.nodes.as_ref().map(|nodes| nodes.twins(here));
        let twins = twins.unwrap_or_default();
        let others = others
            .into_iter()
            .filter(|host| !twins.contains(host))
            .filter_map(|host| found.remove_entry(&host));
        let parts: Vec<(String, OnNode)> = local.into_iter().chain(others).collect();
        let mut result = target::over_nodes(wish, &parts, own.as_deref());
        let mut silent: BTreeMap<String, HostList> = BTreeMap::new();
        for (host, state) in self.nodes.iter().flat_map(Nodes::by_name) {
            if let Err(why) = state {
                let why = match why {
                    Missing::NotStarted { why, .. } => why,
                    _ => "its agent did not answer".to_owned(),
                };
                silent.entry(why).or_default().push(host);
            }
        }
        let doubts = silent
            .into_iter()
            .map(|(why, nodes)| Doubt::NotSearched { nodes, why });
        match &mut result {
            Ok(target) => target.doubts.extend(doubts),
            Err(NotFound::Nodes { doubts: known, .. }) => known.extend(doubts),
            Err(_) => {}
        }
        Ok(result)
    }

    /// Has other nodes search for something, and returns what they have found. The agents are started at the first search, by
    /// this starter, if there is one. If it cannot, they are started by our own command.
    fn search(
        &mut self,
        hosts: Vec<String>,
        (agents, starter): (&AgentArgs, Option<Starter>),
        search: impl Fn(&str) -> Search,
    ) -> Result<BTreeMap<String, OnNode>, NotReached> {
        let is_first = self.nodes.is_none();
        let nodes = match &mut self.nodes {
            Some(nodes) => nodes,
            None => {
                let nodes = Nodes::start(hosts.clone(), agents, starter.as_ref(), self.detail)?;
                self.nodes.insert(nodes)
            }
        };
        let mut found = nodes.find(&search);
        if is_first
            && let Some(starter) = &starter
            && let Some(why) = nodes.why_none()
        {
            super::say(&messages::not_in_job(starter, why));
            *nodes = Nodes::start(hosts, agents, None, self.detail)?;
            found = nodes.find(search);
        }
        let up: Vec<(NodeId, String)> = nodes
            .up()
            .map(|(node, host)| (node, host.clone()))
            .collect();
        let mut named = BTreeMap::new();
        for (node, host) in up {
            if self.joined.insert(node) {
                let host = host.clone();
                let joined = session::Input::Joined { node, host };
                self.session.handle(Clock::now(), joined);
            }
            if let Some(found) = found.remove(&node) {
                named.insert(host, found);
            }
        }
        Ok(named)
    }

    /// Follows the ranks of this target from now on, instead of earlier ones.
    pub(super) fn follow(&mut self, target: &Target) {
        let nodes = self.nodes.as_ref().map(Nodes::by_name);
        let places = Place::of_target(target, HERE, &nodes.unwrap_or_default());
        self.follow_places(places);
    }

    /// Follows ranks whose places are known.
    pub(super) fn follow_places(&mut self, places: BTreeMap<Rank, Place>) {
        self.session.follow(places);
    }

    /// Takes a sample of every rank.
    pub(super) fn sample(&mut self, extent: Extent) -> PartialSample {
        match self.carry_out(Action::Sample(extent)) {
            Some(Partial::Sample(sample)) => sample,
            Some(Partial::Stacks(_) | Partial::Description(_)) | None => PartialSample::default(),
        }
    }

    /// Returns what is known about the ranks apart from their samples.
    pub(super) fn describe(&mut self) -> Description {
        match self.carry_out(Action::Describe) {
            Some(Partial::Description(description)) => description,
            Some(Partial::Sample(_) | Partial::Stacks(_)) | None => Description::default(),
        }
    }

    /// Notes that the user has asked for an early end.
    pub(super) const fn interrupt(&mut self) {
        self.patience = Patience::Interrupted;
    }

    /// Returns true if a signal has cancelled a command, so that its result lacks the nodes that had not answered.
    pub(super) fn is_interrupted(&self) -> bool {
        self.patience == Patience::Interrupted
    }

    /// Returns the time that the agent of this node has spent on reading files and mappings.
    pub(super) const fn reading(&self) -> Duration {
        self.agent.kernel.reading
    }

    /// Carries out a command for every rank. The session accepts it, because it has one command at a time.
    fn carry_out(&mut self, action: Action) -> Option<Partial> {
        let ranks = self.session.ranks();
        let id = self.session.command(Clock::now(), &ranks, action).ok()?;
        self.run(id)
    }

    /// Passes messages until the command is over and the agent of this node is idle. The answer may come before that, if the
    /// session has given up on the agent: the agent then still has to release a stopped thread.
    fn run(&mut self, id: CommandId) -> Option<Partial> {
        let mut answer = None;
        let begin = Clock::now();
        loop {
            match self.step() {
                Step::Reply(reply) if reply.id == id => answer = Some(reply.answer),
                Step::Reply(_) | Step::Done => {}
                Step::Idle => {
                    let deadline = self.session.deadline();
                    if answer.is_some() || deadline.is_none() {
                        return answer;
                    }
                    // Another node has not answered yet.
                    if self.has_waited_enough(begin) {
                        let cancel = session::Input::Cancel(id);
                        self.session.handle(Clock::now(), cancel);
                        continue;
                    }
                    let slice = Clock::now() + SIGNAL_CHECK;
                    if !self.hear(deadline.map(|deadline| deadline.min(slice))) {
                        self.session.handle(Clock::now(), session::Input::Tick);
                    }
                }
            }
        }
    }

    /// Returns true if a command that began then is to end without the nodes that have not answered.
    fn has_waited_enough(&mut self, begin: Time) -> bool {
        if os::pending_signal(&ENDING).is_some() {
            self.interrupt();
            return true;
        }
        self.is_interrupted() && Clock::now().since(begin) > INTERRUPTED_MAX
    }

    /// Handles news of another node. Returns false if there is none until `until`.
    fn hear(&mut self, until: Option<Time>) -> bool {
        let Some(nodes) = &mut self.nodes else {
            return false;
        };
        let input = match nodes.next(until) {
            Some((node, Event::Message(message))) => session::Input::Message(node, message),
            Some((node, Event::Lost)) => session::Input::Lost(node),
            Some((_, Event::Answers { nodes, id, answers })) => {
                session::Input::Answers { nodes, id, answers }
            }
            None => return false,
        };
        self.session.handle(Clock::now(), input);
        true
    }

    /// Carries out the next output of the session or, if there is none, that of the agent of this node.
    fn step(&mut self) -> Step {
        // What has come meanwhile counts before the time that has passed.
        if self.hear(Some(Time::ZERO)) {
            return Step::Done;
        }
        if let Some(output) = self.session.poll() {
            match output {
                session::Output::Send(HERE, message) => self.agent.handle(message),
                session::Output::Send(node, message) => {
                    if let Some(nodes) = &mut self.nodes {
                        nodes.send(node, message);
                    }
                }
                session::Output::Reply(reply) => {
                    if let Some(nodes) = &mut self.nodes {
                        nodes.end(reply.id);
                    }
                    return Step::Reply(Box::new(reply));
                }
                session::Output::Close(node, _) => {
                    if let Some(nodes) = &mut self.nodes {
                        nodes.close(node);
                    }
                }
                session::Output::Dropped { .. } => {}
            }
            return Step::Done;
        }
        if let Some(nodes) = &mut self.nodes {
            nodes.ask_agents();
        }
        match self.agent.step() {
            host::Step::Done => Step::Done,
            host::Step::Sent(message) => {
                let message = session::Input::Message(HERE, message);
                self.session.handle(Clock::now(), message);
                Step::Done
            }
            host::Step::Idle => Step::Idle,
        }
    }
}

/// Returns who can start agents on the nodes of this job: its daemons, if it is a job of `rally` of this user on this node, or
/// `srun`, if it is a job of Slurm.
fn starter_of(target: &Target) -> Option<Starter> {
    match &target.how {
        How::OwnTable { launcher, .. } => {
            let jobs = runtime::controls(&crate::surroundings()).into_iter();
            let mut sockets = jobs.filter(|(_, front, _)| front == launcher);
            sockets
                .next()
                .map(|(_, _, socket)| Starter::Daemons(socket))
        }
        How::Table {
            program,
            job: Some(job),
            ..
        } if program == "srun" => slurm_job(job).map(Starter::Slurm),
        _ => None,
    }
}

/// Returns the number of the allocation in the name of a step of Slurm.
fn slurm_job(name: &str) -> Option<String> {
    let (job, step) = name.split_once('.')?;
    let is_number = |text: &str| !text.is_empty() && text.bytes().all(|it| it.is_ascii_digit());
    (is_number(job) && is_number(step)).then(|| job.to_owned())
}

#[cfg(test)]
mod tests {
    use base::Signal;
    use debug::proto::Proc;

    use super::{super::live::tests::Running, *};

    #[test]
    fn no_thread_is_stopped_once_there_is_a_reply() {
        let running = Running::start("sleep", &["1000"]);
        let pid = running.pid();
        let (pid, started) = (pid.as_raw(), os::start_time(pid).unwrap());
        let mut local = Local::new(Detail::Folded);
        local.follow_places([(Rank(0), Place::At(HERE, Proc { pid, started }))].into());
        let ranks = local.session.ranks();
        let action = Action::Sample(Extent::Children);
        let id = local.session.command(Clock::now(), &ranks, action).unwrap();
        while local.agent.kernel.stopped.is_none() {
            assert!(matches!(local.step(), Step::Done));
        }
        // The session gives up on the agent, as it does with an agent that does not answer.
        local
            .session
            .handle(Clock::now(), session::Input::Cancel(id));
        assert!(local.run(id).is_some());
        assert!(local.agent.kernel.stopped.is_none());
    }

    #[test]
    fn an_interrupt_ends_the_wait_for_a_silent_node() {
        const SILENT: NodeId = NodeId(1);
        let mut local = Local::new(Detail::Folded);
        let (node, host) = (SILENT, "n1".to_owned());
        let joined = session::Input::Joined { node, host };
        local.session.handle(Clock::now(), joined);
        let proc = Proc { pid: 1, started: 1 };
        local.follow_places([(Rank(0), Place::At(SILENT, proc))].into());
        // The signal stays blocked, as it does in a wait between two samples.
        let events = os::Loop::new(&[Signal::INT]).unwrap();
        nix::sys::signal::raise(nix::sys::signal::Signal::SIGINT).unwrap();
        for _ in 0..2 {
            let sample = local.sample(Extent::Everybody);
            let seen = &sample.snapshot.procs[&Rank(0)];
            let debug::stack::Seen::Missing(why) = seen else {
                panic!("{seen:?}");
            };
            assert_eq!(*why, Missing::AgentSilent("n1".to_owned()));
            assert!(local.is_interrupted());
        }
        drop(events);
    }
}
