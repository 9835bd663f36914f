//! The start of daemons on other nodes: the commands that the process with the controller runs, and those that the process of a
//! daemon runs for it.

use base::{ExitStatus, HostList, Time};
use dvm::{
    bootstrap::{Addition, CommandId, NotJoined, NotJoinedClass, Reason},
    proto::{ToController, ToDaemon},
};

use super::{Head, MemberState, Process};
use crate::{daemons::DaemonTree, starters::News};

impl Process {
    /// Starts the daemons of further nodes. The first ones need the port for other nodes.
    pub(super) fn add_nodes(&mut self, now: Time, addition: Addition) {
        if let (None, Some(ground)) = (&self.starters, &self.ground) {
            match ground.open(now, &mut self.reactor) {
                Ok((tree, starters)) => {
                    self.tree = Some(DaemonTree::new(tree));
                    self.starters = Some(starters);
                }
                Err(error) => return self.cannot_add(now, &addition, error.to_string()),
            }
        }
        let (Some(tree), Some(starters)) = (&mut self.tree, &mut self.starters) else {
            let why = "this job was not prepared for other nodes".to_owned();
            return self.cannot_add(now, &addition, why);
        };
        for (node, _) in &addition.nodes {
            tree.expect(*node);
        }
        starters.add(now, addition);
    }

    fn cannot_add(&mut self, now: Time, addition: &Addition, why: String) {
        let Head::Controller(controller) = &mut self.head else {
            return;
        };
        let hosts = addition.nodes.iter().map(|(_, host)| host.as_str());
        let hosts: HostList = hosts.collect();
        let failed = NotJoined {
            nodes: u32::try_from(hosts.len()).unwrap_or(u32::MAX),
            joined: 0,
            classes: vec![NotJoinedClass {
                hosts,
                reason: Reason::NotStarted(why),
                tried: Vec::new(),
                program: String::new(),
                check: Vec::new(),
                printed: Vec::new(),
                failed_at: HostList::default(),
            }],
        };
        controller.on_not_joined(now, failed);
    }

    /// Reads what a command has printed.
    pub(super) fn on_printed(&mut self, now: Time, command: CommandId) {
        let reactor = &mut self.reactor;
        if let Some(starters) = &mut self.starters {
            starters.on_readable(now, command, reactor);
        } else if let Some(delegate) = &mut self.delegate {
            delegate.on_readable(command, reactor);
        }
    }

    pub(super) fn on_command_writable(&mut self, now: Time, command: CommandId) {
        let reactor = &mut self.reactor;
        if let Some(starters) = &mut self.starters {
            starters.on_writable(now, command, reactor);
        } else if let Some(delegate) = &mut self.delegate {
            delegate.on_writable(now, command, reactor);
        }
    }

    pub(super) fn on_command_exited(&mut self, now: Time, command: CommandId, status: ExitStatus) {
        let reactor = &mut self.reactor;
        if let Some(starters) = &mut self.starters {
            starters.on_exited(now, command, status, reactor);
        } else if let Some(delegate) = &mut self.delegate {
            delegate.on_exited(command, status, reactor);
        }
    }

    /// Carries out one step of the start. Returns false if there is none.
    pub(super) fn step_starters(&mut self, now: Time) -> bool {
        let Some(starters) = &mut self.starters else {
            return false;
        };
        match (starters.step(now, &mut self.reactor), &mut self.head) {
            (Some(News::GiveUp(node)), _) => {
                if let Some(tree) = &mut self.tree {
                    tree.give_up(now, node);
                }
                true
            }
            (Some(News::Failed(failed)), Head::Controller(controller)) => {
                controller.on_not_joined(now, failed);
                true
            }
            (Some(News::Order(node, order)), Head::Controller(controller)) => {
                if let Some(tree) = &mut self.tree
                    && let Err((nodes, error)) = tree.cast(now, node, ToDaemon::Starter(order))
                {
                    controller.on_unsendable(now, nodes, &error);
                }
                true
            }
            (Some(News::Copying(_)), _) => true,
            (Some(News::Failed(_) | News::Order(..)) | None, _) => false,
        }
    }

    /// Sends news of a command that this process runs for the head. Returns false if there is none.
    pub(super) fn step_delegate(&mut self, now: Time) -> bool {
        let (Some(delegate), Some(tree), Head::Member(member)) =
            (&mut self.delegate, &mut self.tree, &mut self.head)
        else {
            return false;
        };
        // Nobody hears a daemon that has lost the controller, or whose session is over.
        let is_heard = !matches!(member.state, MemberState::Ending(..));
        if is_heard && !tree.has_room() {
            return false;
        }
        let Some(news) = delegate.news() else {
            return false;
        };
        if is_heard && let Err(error) = tree.send(now, &ToController::Starter(news)) {
            (member.report)(&error.to_string());
        }
        true
    }
}
