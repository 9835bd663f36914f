//! A debug session and the agent of this node in one process. This file passes their messages, and is the host of both.

use std::{
    collections::BTreeMap,
    time::{Duration, Instant},
};

use base::{NodeId, Rank};
use debug::{
    agent::{
        self, Agent,
        kernel::{Lent, Question},
    },
    proto::{Action, CommandId, Extent},
    reply::{Description, Partial, PartialSample},
    report::Detail,
    session::{self, Place, Reply, Session},
    target::Target,
};
use os::Clock;

use super::live::{Kernel, LiveFiles, LiveMemory};

/// The node that `dbgr` runs on.
pub(super) const HERE: NodeId = NodeId(0);

/// The result of one step.
#[derive(Debug)]
enum Step {
    Done,
    /// A command is over.
    Reply(Reply),
    /// Neither the session nor the agent has an output.
    Idle,
}

/// A session over the processes of this node.
#[derive(Debug)]
pub(super) struct Local {
    session: Session,
    agent: Agent,
    kernel: Kernel,
}

impl Local {
    /// Creates a session without ranks.
    pub(super) fn new(detail: Detail) -> Self {
        let agent = Agent::new(HERE, os::current_pid().as_raw(), detail);
        Self::with_agent(agent)
    }

    /// Creates a session with a given agent.
    pub(super) fn with_agent(agent: Agent) -> Self {
        let mut session = Session::new();
        let host = os::host_name();
        let node = HERE;
        session.handle(Clock::now(), session::Input::Joined { node, host });
        let kernel = Kernel::new();
        Self {
            session,
            agent,
            kernel,
        }
    }

    /// Follows the ranks of this target from now on, instead of earlier ones.
    pub(super) fn follow(&mut self, target: &Target) {
        self.follow_places(Place::of_target(target, HERE));
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

    /// Returns the time that the agent has spent on reading files and mappings.
    pub(super) const fn reading(&self) -> Duration {
        self.kernel.reading
    }

    /// Carries out a command for every rank. The session accepts it, because it has one command at a time.
    fn carry_out(&mut self, action: Action) -> Option<Partial> {
        let ranks = self.session.ranks();
        let id = self.session.command(Clock::now(), &ranks, action).ok()?;
        self.run(id)
    }

    /// Passes messages between session and agent until both are idle, and returns the answer to a command. The answer may
    /// come earlier, if the session has given up on the agent: the agent then still has to release a stopped thread.
    fn run(&mut self, id: CommandId) -> Option<Partial> {
        let mut answer = None;
        loop {
            match self.step() {
                Step::Reply(reply) if reply.id == id => answer = Some(reply.answer),
                Step::Reply(_) | Step::Done => {}
                Step::Idle => return answer,
            }
        }
    }

    /// Carries out the next output of the session or, if there is none, that of the agent.
    fn step(&mut self) -> Step {
        if let Some(output) = self.session.poll() {
            match output {
                session::Output::Send(_, message) => {
                    self.agent
                        .handle(Clock::now(), agent::Input::Message(message));
                }
                session::Output::Reply(reply) => return Step::Reply(reply),
                session::Output::Close(..) | session::Output::Dropped { .. } => {}
            }
            return Step::Done;
        }
        match self.agent.poll() {
            Some(agent::Output::Ask(question)) => self.ask(question),
            Some(agent::Output::Send(message)) => {
                let message = session::Input::Message(HERE, message);
                self.session.handle(Clock::now(), message);
            }
            Some(agent::Output::ReleaseLate) => os::sleep_and_detach_late(Duration::ZERO),
            None => return Step::Idle,
        }
        Step::Done
    }

    fn ask(&mut self, question: Question) {
        let is_reading = matches!(question, Question::Mappings { .. });
        let (answer, through) = self.kernel.answer(question);
        let (memory, files) = (LiveMemory(through), LiveFiles(through));
        let lent = Lent {
            memory: &memory,
            files: &files,
        };
        let begin = Instant::now();
        self.agent
            .handle(Clock::now(), agent::Input::Answer(answer, lent));
        // With the answer about mappings, the agent also reads files that are new to it.
        if is_reading {
            self.kernel.reading += begin.elapsed();
        }
    }
}

#[cfg(test)]
mod tests {
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
        while local.kernel.stopped.is_none() {
            assert!(matches!(local.step(), Step::Done));
        }
        // The session gives up on the agent, as it does with an agent that does not answer.
        local
            .session
            .handle(Clock::now(), session::Input::Cancel(id));
        assert!(local.run(id).is_some());
        assert!(local.kernel.stopped.is_none());
    }
}
