//! The process with the daemon of another node.

use std::{ffi::OsString, path::PathBuf, rc::Rc};

use dvm::{
    Tools,
    bootstrap::{CANNOT_RUN, Hosting},
};
use os::{Clock, Loop};
use overlay::{node::Node, secure::Entropy};

use super::{Exit, Head, Member, MemberState, Process, root::random_bytes};
use tracing::info;

use crate::{
    IGNORED, Surroundings,
    boot::{Boot, BootError, listen, reachable_at},
    daemon::{DaemonHost, DaemonSetup},
    daemons::{DaemonTree, merge},
    guardian::{self, Failed},
    log,
    reactor::{READ_MAX, Reactor},
    record::{self, Record, topology},
    starters::{Delegate, DelegateSetup},
    tape::Tape,
    tree::TreeHost,
};

/// Size of a block of memory for output, in bytes: what one read of a stream returns at most.
const SLOT_SIZE: usize = READ_MAX;
/// Maximum number of blocks of output. What is read beyond them is copied.
const OUTPUT_SLOTS: u32 = 16;

/// What the program passes to the daemon of another node.
#[derive(Debug)]
pub struct MemberBirth {
    pub host: String,
    /// Name that the resource manager gives to this node, if it has one of its own.
    pub alias: Option<String>,
    /// Name and version of the program.
    pub build: String,
    /// The file that says what to do; `None`: standard input does.
    pub file: Option<PathBuf>,
    /// Starts a log with a filter, for the node with a name.
    pub start_log: fn(&str, &str),
    /// Prints a line for whoever started this process. It must not block.
    pub report: fn(&str),
    pub surroundings: Surroundings,
    /// The soft and hard limits of descriptors that ranks get back.
    pub descriptors: (u64, u64),
    /// The variables of this node that its ranks may get.
    pub environment: Vec<(OsString, OsString)>,
    /// The variables of the commands with which this daemon starts others: `NAME=value`.
    pub commands_environment: Vec<OsString>,
    /// Writes a line that a daemon which this one has started has logged. It must not block.
    pub pass_on_log: fn(&[u8]),
}

/// Forks the daemon and waits until nothing of it remains; see [`crate::guard`]. What the daemon has to do comes on
/// standard input.
///
/// # Errors
///
/// Errors are reported before this returns.
pub fn guard_member(birth: &MemberBirth) -> Result<u8, Failed> {
    let run = || run(birth);
    // Nobody else cleans a node on which no job is ever submitted.
    let sweep = || record::sweep_stale(&birth.surroundings);
    guardian::guard_process(&birth.surroundings, sweep, run).map_err(|error| {
        (birth.report)(&error.to_string());
        Failed
    })
}

/// Runs the daemon until the session is over.
fn run(birth: &MemberBirth) -> Result<Exit, os::Error> {
    match start(birth) {
        Ok((mut process, record)) => {
            let ended = process.run();
            drop(process);
            drop(record);
            Ok(ended)
        }
        Err(BootError::Os(error)) => Err(error),
        Err(error) => {
            (birth.report)(&format!("{CANNOT_RUN}{error}"));
            Ok(Exit::Failed)
        }
    }
}

fn start(birth: &MemberBirth) -> Result<(Process, Record), BootError> {
    os::become_subreaper()?;
    let boot = match &birth.file {
        Some(file) => Boot::read_file(file)?,
        None => Boot::read()?,
    };
    let boot = boot.of_our_build(&birth.build)?;
    // Nothing here reads or prints what ranks do: a terminal or a pipe must not stay open because of us.
    os::let_go_of_standard_stream(0)?;
    let own = boot.own(&birth.host, birth.alias.as_deref())?.clone();
    if let Some(filter) = &boot.log {
        (birth.start_log)(filter, &own.name);
    }
    info!(target: log::DAEMON, "started");
    let mut reactor = Reactor::new(Loop::new(&IGNORED)?);
    let (record, _) = Record::create(&birth.surroundings);
    let mut topology = topology(&birth.surroundings)?;
    if boot.hosting == Hosting::Shared {
        topology = topology.with_neighbours();
    }
    let delegate = Delegate::new(DelegateSetup {
        boot: boot.clone(),
        environment: birth.commands_environment.clone(),
        pass_on_log: birth.pass_on_log,
        descriptors: birth.descriptors,
    });
    let (listener, port) = listen(boot.ports)?;
    let at = reachable_at(port, &boot.interfaces, boot.hosting)?;
    let config = boot.config(own.node, at);
    let tape = boot.recording.as_deref();
    let tape = tape.map(|path| Rc::new(Tape::create_on_node(path, own.node)));
    let setup = DaemonSetup {
        node: own.node,
        host: own.name,
        topology,
        owner: record.owner().to_owned(),
        descriptors: birth.descriptors,
        service: boot.controller,
        session: record.session(),
        // The same few blocks are used again and again: fresh memory would have to be cleared for each read.
        region: os::SharedRegion::new(SLOT_SIZE, OUTPUT_SLOTS)
            .ok()
            .map(os::SharedRegion::into_writer),
        hosting: boot.hosting,
        surroundings: birth.surroundings.clone(),
        environment: match boot.hosting {
            Hosting::Alone => Some(birth.environment.clone()),
            Hosting::Shared => None,
        },
        tape: tape.clone(),
        tools: Tools::Refused,
    };
    let daemon = DaemonHost::open(setup, &mut reactor)?;
    let entropy = Entropy::new(random_bytes()?);
    let mut node = Node::member(Clock::now(), config, entropy, boot.root);
    node.merge_with(merge);
    let tree = DaemonTree::new(TreeHost::new(node, listener, &mut reactor)?);
    let member = Member {
        state: MemberState::Joining,
        report: birth.report,
    };
    let mut process = Process::new(reactor, Head::Member(member), [(own.node, daemon)]);
    process.tree = Some(tree);
    process.delegate = Some(delegate);
    process.tape = tape;
    Ok((process, record))
}
