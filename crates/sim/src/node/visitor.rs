//! Tools that connect to the server of a node. None of them is a process of a job. The server refuses each once, tells that, and
//! lets nobody else feel it.

use base::{Rank, Time};
use dvm::proto::{Note, Refused, ToController};
use pmix::{
    client::{Config, Connector, Input, Lost, Output, ProgramEvent, Ticket, WELCOME_WAIT},
    server::Refusal,
    tool::{Event as Said, Extent, Tool},
    value::{Nspace, Proc, Status},
};

use super::Node;
use crate::{
    kernel::{ClientId, GARBAGE, OWNER},
    names::NAME,
    scenario::{Guise, Manner, Visit},
    script::named,
    world::{Event, World},
};

/// A rank that no job has.
const NO_RANK: Rank = Rank(1_000_000);
/// The number of reasons from which on a daemon only counts further ones.
const REASONS_MAX: usize = 4;

/// A tool, and what it has heard.
#[derive(Debug)]
pub(super) struct Visitor {
    tool: Tool,
    visit: Visit,
    opened: Time,
    /// What it asked before it was connected, which cannot be answered.
    early: Option<Ticket>,
    /// What it asked when its connection had ended.
    late: Option<Ticket>,
    is_refused: bool,
}

/// Tools that were refused on a node and are still to be told.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Untold {
    /// Number of visitors that came while no job was there. They are told with the next job.
    idle: u64,
    /// Number of those that were refused because they are tools, at any time.
    tools: u64,
}

impl Visitor {
    /// Handles what the tool says. Returns what it sends, or a description of an error.
    fn hear(&mut self, now: Time, stops: std::time::Duration) -> Result<Vec<Vec<u8>>, String> {
        let mut sent = Vec::new();
        while let Some(output) = self.tool.poll() {
            let said = match output {
                Output::Send(bytes) => {
                    sent.push(bytes);
                    continue;
                }
                Output::Connect(_) | Output::Close => continue,
                Output::Event(said) => said,
            };
            let asked = |ticket: &Ticket| (self.early == Some(*ticket), self.late == Some(*ticket));
            match &said {
                Said::Table {
                    ticket,
                    result: Err(Status::INIT),
                } if asked(ticket).0 => self.early = None,
                Said::Table {
                    ticket,
                    result: Err(Status::UNREACH),
                } if asked(ticket).1 => self.late = None,
                Said::Program(ProgramEvent::Lost { why }) if !self.is_refused => {
                    let may_be_silent = stops >= WELCOME_WAIT;
                    let is_right = *why == Lost::Closed || *why == Lost::Silent && may_be_silent;
                    if !is_right {
                        return Err(format!("{:?} is refused so: {why}", self.visit));
                    }
                    self.is_refused = true;
                    let nspace = Nspace::from_text(&format!("{NAME}@1")).unwrap_or_default();
                    self.late = Some(self.tool.proc_table(&nspace, Extent::Job));
                }
                _ => return Err(format!("at {now} {:?} hears {said:?}", self.visit)),
            }
        }
        Ok(sent)
    }
}

impl Node {
    /// Lets a tool connect.
    pub(crate) fn visit(&mut self, world: &mut World, visit: Visit) {
        if !self.on {
            return;
        }
        let Some(config) = self.visiting_card(visit.guise) else {
            return world.fault("a tool has no address to connect to".to_owned());
        };
        let (id, now) = (self.kernel.new_client(), world.now);
        let mut tool = Tool::new(now, config);
        let nspace = Nspace::from_text(&format!("{NAME}@1")).unwrap_or_default();
        let early = tool.proc_table(&nspace, Extent::Job);
        tool.handle(now, Input::Opened);
        let mut visitor = Visitor {
            tool,
            visit,
            opened: now,
            early: Some(early),
            late: None,
            is_refused: false,
        };
        let heard = visitor.hear(now, world.ledger.stops);
        self.client_opened(world, id, self.port, OWNER.uid);
        match heard {
            Ok(sent) => {
                for mut bytes in sent {
                    if visit.manner == Manner::Dies {
                        let most = bytes.len().saturating_sub(1);
                        bytes.truncate(world.rng.length(0, most));
                    }
                    self.client_sent(world, id, bytes);
                }
            }
            Err(wrong) => world.fault(wrong),
        }
        self.visitors.insert(id, visitor);
        match visit.manner {
            Manner::Waits => {}
            Manner::Babbles => self.client_sent(world, id, GARBAGE.to_vec()),
            Manner::Leaves | Manner::Dies => return self.client_closed(world, id),
        }
        let node = self.id;
        world.at(now + WELCOME_WAIT, Event::VisitorTick { node, id });
    }

    /// Returns how a tool finds the server, and what it says it is.
    fn visiting_card(&self, guise: Guise) -> Option<Config> {
        let server = format!("{NAME}-{}.0;tcp4://127.0.0.1:{}", self.id, self.port);
        let job = Nspace::from_text(&format!("{NAME}@1")).ok()?;
        let other = Proc {
            nspace: Nspace::from_text("launcher").ok()?,
            ..named(&job, Rank(0))
        };
        let connector = match guise {
            Guise::Tool => Connector::Tool,
            Guise::Launcher => Connector::Launcher,
            Guise::NamesakeOfRank => Connector::NamedTool(named(&job, Rank(0))),
            Guise::NamedLauncher => Connector::NamedLauncher(other),
            Guise::UnknownRank => Connector::ClientTool(named(&job, NO_RANK)),
        };
        let config = Config::new(server.parse().ok()?, connector, OWNER);
        Some(config.describe(4242, "watch"))
    }

    pub(super) fn is_visitor(&self, id: ClientId) -> bool {
        self.visitors.contains_key(&id)
    }

    /// Tells a tool what its connection has brought.
    pub(super) fn tell_visitor(&mut self, world: &mut World, id: ClientId, input: Input<'_>) {
        let Some(visitor) = self.visitors.get_mut(&id) else {
            return;
        };
        if matches!(visitor.visit.manner, Manner::Leaves | Manner::Dies) {
            return;
        }
        visitor.tool.handle(world.now, input);
        let heard = visitor.hear(world.now, world.ledger.stops);
        let sent = heard
            .map_err(|wrong| world.fault(wrong))
            .unwrap_or_default();
        let visit = visitor.visit;
        world.require(sent.is_empty(), || format!("{visit:?} goes on"));
        if !visitor.is_refused {
            return;
        }
        let late = visitor.opened + world.ledger.slack + super::VISIT_MAX;
        let (now, unanswered) = (world.now, visitor.early.or(visitor.late));
        world.require(now <= late || world.ledger.stops >= WELCOME_WAIT, || {
            format!("{visit:?} is refused only at {now}")
        });
        world.require(unanswered.is_none(), || {
            format!("{visit:?} gets no answer to {unanswered:?}")
        });
    }

    /// Wakes a tool that has waited for its welcome.
    pub(super) fn tick_visitor(&mut self, world: &mut World, id: ClientId) {
        let waits = self.visitors.get(&id).is_some_and(|one| !one.is_refused);
        if waits {
            self.tell_visitor(world, id, Input::Tick);
        }
    }

    /// Records that the daemon has closed a connection.
    pub(super) fn on_refused(&mut self, world: &mut World, id: ClientId) {
        if self.is_guest(id) {
            // It is no process of a job, whose user could be told.
            return;
        }
        let visitor = self.visitors.get(&id);
        let is_tool = visitor.is_some_and(|one| one.visit.guise.is_tool());
        self.untold.tools += u64::from(is_tool);
        if !self.daemon.is_idle() {
            world.ledger.pmix.refused += 1;
        } else if visitor.is_some() {
            self.untold.idle += 1;
        }
    }

    /// Records that a job begins on the node: at its end, the tools that came before it are told, too.
    pub(super) fn tools_are_due(&mut self, world: &mut World) {
        world.ledger.pmix.refused += std::mem::take(&mut self.untold.idle);
    }

    /// Checks what the daemon says of the tools that it has refused.
    pub(super) fn check_refused(&mut self, world: &mut World, message: &ToController) {
        let ToController::Note {
            note:
                Note::Refused(Refused {
                    ranks: None,
                    reasons,
                    ..
                }),
            ..
        } = message
        else {
            return;
        };
        let tools = std::mem::take(&mut self.untold.tools);
        let name = Refusal::Tool.to_string();
        let told = reasons.iter().find(|(why, _)| *why == name);
        let told = told.map_or(0, |(_, count)| *count);
        let is_full = told == 0 && reasons.len() == REASONS_MAX;
        world.require(told == tools || is_full, || {
            format!("{tools} tools were refused, told are {told}: {reasons:?}")
        });
    }
}
