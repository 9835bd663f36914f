//! A debug session with the one agent of this machine, in one process: what one says is handed to the other.

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

/// The node that we are on.
pub(super) const HERE: NodeId = NodeId(0);

/// A session that looks at processes of this machine.
#[derive(Debug)]
pub(super) struct Local {
    session: Session,
    agent: Agent,
    kernel: Kernel,
}

impl Local {
    /// Follows nobody yet.
    pub(super) fn new(detail: Detail) -> Self {
        let agent = Agent::new(HERE, os::current_pid().as_raw(), detail);
        Self::with_agent(agent)
    }

    /// With this agent.
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

    /// Follows the ranks of this target from now on.
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

    /// What is known of the ranks beside their samples.
    pub(super) fn describe(&mut self) -> Description {
        match self.carry_out(Action::Describe) {
            Some(Partial::Description(description)) => description,
            Some(Partial::Sample(_) | Partial::Stacks(_)) | None => Description::default(),
        }
    }

    /// The time that reading files and mappings has taken.
    pub(super) const fn reading(&self) -> Duration {
        self.kernel.reading
    }

    /// Carries out a command for every rank. The session has one command at a time, so it takes it.
    fn carry_out(&mut self, action: Action) -> Option<Partial> {
        let ranks = self.session.ranks();
        let id = self.session.command(Clock::now(), &ranks, action).ok()?;
        self.run(id)
    }

    /// Hands on what session and agent say until a command is over.
    fn run(&mut self, id: CommandId) -> Option<Partial> {
        loop {
            if let Some(output) = self.session.poll() {
                match output {
                    session::Output::Send(_, message) => {
                        self.agent
                            .handle(Clock::now(), agent::Input::Message(message));
                    }
                    session::Output::Reply(Reply { id: of, answer, .. }) if of == id => {
                        return Some(answer);
                    }
                    session::Output::Reply(_)
                    | session::Output::Close(..)
                    | session::Output::Dropped { .. } => {}
                }
                continue;
            }
            match self.agent.poll()? {
                agent::Output::Ask(question) => self.ask(question),
                agent::Output::Send(message) => {
                    let message = session::Input::Message(HERE, message);
                    self.session.handle(Clock::now(), message);
                }
                agent::Output::LetGo => os::sleep_and_detach_late(Duration::ZERO),
            }
        }
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
        // With the mappings the agent reads the files that are new.
        if is_reading {
            self.kernel.reading += begin.elapsed();
        }
    }
}
