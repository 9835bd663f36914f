//! Nodes that come and go while jobs run: further commands, and the ends of those whose daemons are lost.

use base::{NodeId, Time};

use super::{
    Addition, Bootstrap, Command, CommandId, EXIT_MAX, LateStart, OnFailure, Output, Place, State,
};

impl Bootstrap {
    /// Starts the daemons of further nodes, as the plan says for late ones. A plan that does not say it gets none.
    pub fn add(&mut self, now: Time, addition: Addition) {
        let Some(late) = self.plan.late.clone() else {
            return;
        };
        if self.on_failure == OnFailure::ReportAll {
            // Jobs run, and go on without nodes that fail now.
            self.on_failure = OnFailure::GoOnTogether;
        }
        let commands = late.commands_for(&addition);
        if let LateStart::OfSlurm { environment, .. } = *late {
            // All other commands were started before.
            self.plan.environment = environment;
        }
        self.plan.renew_environment(addition.environment);
        for (node, host) in addition.nodes {
            self.hosts.resize(node.0 as usize, String::new());
            self.hosts.push(host);
        }
        for command in commands {
            let number = u32::try_from(self.commands.len()).unwrap_or(u32::MAX);
            self.commands.push(Command::waiting(&command));
            self.plan.commands.push(command);
            // The head starts them: the user may have added them because daemons could not.
            self.for_head.push_back(number);
        }
        self.start_more(now);
    }

    pub(super) fn on_lost(&mut self, now: Time, node: NodeId) {
        self.places.close(node);
        let ids = 0..u32::try_from(self.commands.len()).unwrap_or(u32::MAX);
        for id in ids {
            let Some(command) = self.command(id) else {
                continue;
            };
            if command.place != Place::Daemon(node) {
                continue;
            }
            if command.state.is_starting() {
                self.start_again(id, node);
            } else if command.state == State::Joined {
                self.set(id, State::Over);
            }
        }
        self.leave(now, node);
        if self.report_at.is_some() {
            self.report_if_complete();
        }
    }

    /// Lets the command at the head exit that has started this daemon, if it has no other one.
    fn leave(&mut self, now: Time, node: NodeId) {
        self.lost.insert(node);
        let lost = &self.lost;
        for (command, plan) in self.commands.iter_mut().zip(&self.plan.commands) {
            if command.state == State::Joined
                && command.place == Place::Head
                && plan.nodes.contains(&node)
                && plan.nodes.iter().all(|node| lost.contains(node))
            {
                let until = now + EXIT_MAX;
                command.state = State::Leaving { until };
            }
        }
    }

    /// Returns the commands whose daemons are lost, and until when they may run.
    pub(super) fn leaving(&self) -> impl Iterator<Item = (CommandId, Time)> {
        let commands = (0..).zip(&self.commands);
        commands.filter_map(|(id, command)| match command.state {
            State::Leaving { until } => Some((id, until)),
            _ => None,
        })
    }

    /// Kills commands that have not exited after their daemons.
    pub(super) fn kill_leaving(&mut self, now: Time) {
        let late = self.leaving().filter(|(_, until)| *until <= now);
        for (id, _) in late.collect::<Vec<_>>() {
            self.outputs.push_back(Output::Kill(Place::Head, id));
            self.set(id, State::Over);
        }
    }
}
