//! `dbgr __agent`: the agent of another node. `dbgr` starts it and says on its standard input, or in a file, what to do.

use std::{
    collections::{BTreeMap, BTreeSet},
    env,
    io::{self, Write as _},
    path::PathBuf,
};

use base::{NodeId, Time};
use bytes::Bytes;
use debug::{
    proto::{Answers, CommandId, FromAgent, FromNode, Search, ToAgent, ToNode},
    target, wire,
};
use dvm::bootstrap::CANNOT_RUN;
use runtime::relay::{self, Birth, JoinError, LinkError, News, Question, Received, Relay, Side};

use super::{
    host::{self, AgentHost, Step},
    machine::{Ask, Machine},
};
use crate::{args::SLURM_NODE, exit};

/// The argument that makes a process the agent of a node.
pub(super) const AGENT_ARGUMENT: &str = "__agent";
/// Name of this build. `dbgr` and its agents must be of the same one.
pub(super) const BUILD: &str = concat!("dbgr ", env!("CARGO_PKG_VERSION"));

/// Why an agent has ended before its session.
#[derive(Debug, thiserror::Error)]
enum Ended {
    #[error("{CANNOT_RUN}{0}")]
    Join(#[from] JoinError),
    #[error(transparent)]
    Link(#[from] LinkError),
    #[error(transparent)]
    Wire(#[from] wire::Error),
    #[error("cannot connect to `dbgr`: {0}")]
    Failed(String),
}

/// Runs the agent until the session is over, and returns the exit code. `file` says what to do; without it standard input
/// does.
pub(super) fn serve(file: Option<PathBuf>) -> u8 {
    run(file).unwrap_or_else(|why| {
        // `dbgr` shows the last line if this agent does not connect.
        let _ = writeln!(io::stderr(), "dbgr: {why}");
        exit::INTERNAL
    })
}

fn run(file: Option<PathBuf>) -> Result<u8, Ended> {
    let birth = Birth {
        host: os::host_name(),
        alias: env::var(SLURM_NODE).ok(),
        build: BUILD.to_owned(),
        merge: debug::gathered::merge,
        file,
    };
    let mut relay = match relay::member(&birth)? {
        Side::Program((relay, _)) => relay,
        Side::Relay(code) => return Ok(code),
    };
    let mut agent: Option<AgentHost> = None;
    let mut questions = BTreeMap::new();
    let mut own = NodeId(0);
    loop {
        let step = agent.as_mut().map_or(Step::Idle, AgentHost::step);
        let until = match step {
            Step::Idle => None,
            Step::Done => Some(Time::ZERO),
            Step::Sent(message) => {
                send(&mut relay, own, &mut questions, message)?;
                Some(Time::ZERO)
            }
        };
        let received = host::wait_and_release_late(until, |until| relay.next(until))?;
        match received {
            Some(Received::Body(_, body)) => match wire::decode(&body)? {
                ToNode::Begin { node, detail } => {
                    own = node;
                    agent = Some(AgentHost::new(node, detail));
                }
                ToNode::Find(search) => {
                    let found = FromNode::Found {
                        identity: os::node_identity(),
                        found: find(&search),
                    };
                    relay.send(Bytes::from(wire::encode(&found)?))?;
                }
                ToNode::Agent(message) => {
                    if let ToAgent::Cancel(id) = &message {
                        questions.remove(id);
                    }
                    if let Some(agent) = &mut agent {
                        agent.handle(message);
                    }
                }
            },
            Some(Received::Asked(question, body)) => {
                let message: ToAgent = wire::decode(&body)?;
                if let (ToAgent::Do { id, .. }, Some(agent)) = (&message, &mut agent) {
                    questions.insert(*id, question);
                    agent.handle(message);
                }
            }
            Some(Received::Part(..)) => {}
            Some(Received::News(News::Ended)) => return Ok(exit::SUCCESS),
            Some(Received::News(News::Failed(why))) => return Err(Ended::Failed(why)),
            Some(Received::News(_)) | None => {}
        }
    }
}

/// Sends a message of the agent. Answers to a question are merged with those of other nodes on their way.
fn send(
    relay: &mut Relay,
    own: NodeId,
    questions: &mut BTreeMap<CommandId, Question>,
    message: FromAgent,
) -> Result<(), Ended> {
    let refusal = || Answers {
        part: None,
        refused: [own].into(),
    };
    let (id, answers) = match message {
        FromAgent::Done { id, part } => {
            let (part, refused) = (Some(part), BTreeSet::new());
            (id, Answers { part, refused })
        }
        FromAgent::Refused { id, .. } => (id, refusal()),
        FromAgent::Working(_) | FromAgent::Stopped => {
            let body = wire::encode(&FromNode::Agent(message))?;
            return Ok(relay.send(Bytes::from(body))?);
        }
    };
    // Without a question the command was cancelled.
    let Some(question) = questions.remove(&id) else {
        return Ok(());
    };
    let body = match wire::encode(&answers) {
        Err(wire::Error::TooLong { .. }) => wire::encode(&refusal())?,
        encoded => encoded?,
    };
    Ok(relay.answer(question, Bytes::from(body))?)
}

fn find(search: &Search) -> target::OnNode {
    let machine = Machine { ask: Ask::Nobody };
    match search {
        Search::Ranks(claims) => target::identify(&machine, claims),
        Search::Wish(wish) => target::on_node(&machine, wish),
    }
}
