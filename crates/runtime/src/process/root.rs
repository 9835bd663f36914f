//! The process with the controller.

use std::{
    os::{fd::AsFd, unix::ffi::OsStrExt as _},
    path::PathBuf,
    rc::Rc,
    time::Duration,
};

use base::Time;
use dvm::{
    ControllerInput,
    alloc::Allocation,
    bootstrap::{DaemonPlan, Hosting, stage::Program},
    machine::Setup,
    proto::CannotRun,
};
use os::{Clock, Loop};
use overlay::{
    Shape,
    node::{Config, Node, Timing},
    secure::{Build, Entropy, Secret},
};

use super::{Exit, Head, LOCAL, Process};
use tracing::info;

use crate::{
    Birth, IGNORED,
    boot::{Boot, BootError, listen, reachable_at},
    control,
    controller::{ControllerHost, ControllerSetup, broken_link},
    daemon::{DaemonHost, DaemonSetup},
    daemons::{DaemonTree, address_of},
    fronts::STARTER,
    link::{self, ControllerLink, Opening},
    log,
    machine::{MachineError, MachineHost, MachinePlan},
    machines::ControllerMachine,
    missing::MissingReports,
    program::OwnFile,
    prompts::PromptHost,
    reactor::Reactor,
    record::{Record, topology},
    starters::Starters,
    tape::Tape,
    tree::TreeHost,
};

/// Maximum length of the host name within the name of a PMIx server, in characters.
const SERVICE_HOST_MAX: usize = 64;
/// How long a daemon waits for the one above it in the tree. Daemons that wait are still being started, and only so many are
/// started simultaneously; if those above them had to wait for their turn, none would ever join.
const PARENT_MAX: Duration = Duration::from_secs(10);

/// Runs the job of the front at the other end of `birth.link`, and returns when the job and its processes are gone.
pub(crate) fn run(birth: &mut Birth) -> Result<Exit, os::Error> {
    os::become_subreaper()?;
    let mut reactor = Reactor::new(Loop::new(&IGNORED)?);
    // `record` is dropped when this function returns: its file is removed when all hosts are gone.
    let (record, missing) = Record::create(&birth.surroundings);
    let name = service_name(&birth.host, os::random_number()?);
    let topology = topology(&birth.surroundings)?;
    // Everything above runs while the front still parses its command line.
    let (opening, link) = match receive_opening(birth) {
        Ok(opening) => opening,
        Err(exit) => return Ok(exit),
    };
    let Opening {
        allocation,
        daemons: plan,
        recording,
        machine,
    } = opening;
    let tape = recording.as_deref().map(Tape::create).map(Rc::new);
    info!(target: log::CONTROLLER, nodes = allocation.nodes.len(), name, "started");
    let local = plan.as_ref().map_or(Some(LOCAL), |plan| plan.local);
    let named = local.filter(|_| plan.is_some());
    let host = named.and_then(|node| name_of(&allocation, node));
    let setup = local.map(|node| DaemonSetup {
        node,
        host: host.unwrap_or_else(|| birth.host.clone()),
        topology,
        owner: record.owner().to_owned(),
        descriptors: birth.descriptors,
        service: name.clone(),
        session: record.session(),
        region: Some(birth.output.clone()),
        hosting: plan.as_ref().map_or(Hosting::Alone, |plan| plan.hosting),
        surroundings: birth.surroundings.clone(),
        environment: None,
        tape: tape.clone(),
    });
    let daemon = setup.map(|setup| Ok((setup.node, DaemonHost::open(setup, &mut reactor)?)));
    let daemon = daemon.transpose()?;
    let Some(socket) = birth.link.take() else {
        return Ok(Exit::Clean);
    };
    os::set_nonblocking(socket.as_fd())?;
    let machine = match open_machine(machine, &allocation, local, &mut reactor) {
        Ok(machine) => machine,
        Err(error) => {
            link::send_failure(socket.as_fd(), error.into());
            return Ok(Exit::Failed);
        }
    };
    let prompts = PromptHost::new(plan.as_ref(), &allocation, birth.terminal.take());
    let session = record.session();
    let now = Clock::now();
    let ground = plan.map(|plan| Ground {
        plan,
        hosts: names(&allocation),
        controller: name.clone(),
        build: birth.build.clone(),
        log: birth.log.clone(),
        recording,
        prompts: match (&machine, &session) {
            (Some((machine, _)), _) => Some(machine.control()),
            (None, Some(session)) => Some(control::path(session, birth.front_pid)),
            (None, None) => None,
        },
        descriptors: birth.descriptors,
        session: session.clone(),
        is_machine: machine.is_some(),
    });
    let needed = ground.as_ref().filter(|ground| ground.is_needed_now());
    let tree = match needed.map(|ground| ground.open(now, &mut reactor)) {
        Some(Err(BootError::Os(error))) => return Err(error),
        Some(Err(error)) => {
            let why = CannotRun::System(error.to_string());
            link::send_failure(socket.as_fd(), why);
            return Ok(Exit::Failed);
        }
        opened => opened.transpose().ok().flatten(),
    };
    let mut state = ControllerMachine::new(allocation, name, tape.clone());
    let machine = machine.map(|(machine, setup)| {
        state.handle(now, ControllerInput::Machine(Box::new(setup)));
        machine
    });
    let mut controller = ControllerHost::open(
        now,
        state,
        ControllerLink::new(link, birth.output.clone(), birth.input.clone()),
        socket,
        ControllerSetup {
            front_pid: birth.front_pid,
            session,
            report_bug: birth.report_bug,
            missing_reports: MissingReports::of(missing),
            prompts,
            machine,
        },
        &mut reactor,
    )?;
    controller.take_messages(now, STARTER, &mut reactor);
    let mut process = Process::new(reactor, Head::Controller(Box::new(controller)), daemon);
    process.tape = tape;
    Ok(run_with(process, tree, ground))
}

/// What is needed to open the port for other nodes, and to start their daemons.
pub(super) struct Ground {
    plan: DaemonPlan,
    /// The names of all nodes of the plan.
    hosts: Vec<String>,
    controller: String,
    build: String,
    log: Option<log::Elsewhere>,
    recording: Option<PathBuf>,
    /// The socket to which the prompts of commands go.
    prompts: Option<PathBuf>,
    descriptors: (u64, u64),
    session: Option<PathBuf>,
    is_machine: bool,
}

impl Ground {
    /// Returns false if there is no other node. Then there is no port for them, until nodes are added.
    const fn is_needed_now(&self) -> bool {
        !self.plan.commands.is_empty()
    }

    /// Opens the port, and begins to start the daemons of the plan.
    pub(super) fn open(
        &self,
        now: Time,
        reactor: &mut Reactor,
    ) -> Result<(TreeHost, Starters), BootError> {
        let (plan, hosts) = (self.plan.clone(), self.hosts.clone());
        let (build, log) = (&self.build, self.log.as_ref());
        let (tree, starters) = open_tree(now, plan, hosts, &self.controller, build, log, reactor)?;
        let starters = starters
            .with_recording(self.recording.clone())
            .with_prompts(self.prompts.clone())
            .with_descriptors(self.descriptors)
            .with_session(self.session.clone());
        let starters = match self.is_machine {
            true => starters.of_machine(),
            false => starters,
        };
        Ok((tree, starters))
    }
}

/// Runs the process with its place in the tree, if it has one.
fn run_with(
    mut process: Process,
    tree: Option<(TreeHost, Starters)>,
    ground: Option<Ground>,
) -> Exit {
    let ground = ground.filter(|ground| ground.is_machine);
    process.ground = ground.map(Box::new);
    if let Some((mut tree, starters)) = tree {
        tree.wait_at_most(PARENT_MAX);
        process.admit_fronts();
        process.tree = Some(DaemonTree::new(tree));
        process.starters = Some(starters);
    }
    process.run()
}

/// Opens the directory of the machine, if this is to be one.
fn open_machine(
    plan: Option<MachinePlan>,
    allocation: &Allocation,
    local: Option<base::NodeId>,
    reactor: &mut Reactor,
) -> Result<Option<(MachineHost, Setup)>, MachineError> {
    let opened = plan.map(|plan| MachineHost::open(&plan, names(allocation), local, reactor));
    opened.transpose()
}

fn names(allocation: &Allocation) -> Vec<String> {
    let names = allocation.nodes.iter().map(|node| node.name.clone());
    names.collect()
}

/// Waits for the first message of the front. Without one, returns how the process ends.
fn receive_opening(birth: &Birth) -> Result<(Opening, link::Link), Exit> {
    let opening = match &birth.link {
        Some(link) => link::receive_opening(link.as_fd()),
        None => Ok(None),
    };
    match opening {
        Ok(Some(opening)) => Ok(opening),
        // The front closed the link: there is no job.
        Ok(None) => Err(Exit::Clean),
        Err(error) => {
            (birth.report_bug)(&broken_link(&error));
            Err(Exit::Failed)
        }
    }
}

/// Opens the port for other nodes, and begins to start their daemons. `hosts` are the names of all nodes.
pub(crate) fn open_tree(
    now: Time,
    plan: DaemonPlan,
    hosts: Vec<String>,
    controller: &str,
    build: &str,
    log: Option<&log::Elsewhere>,
    reactor: &mut Reactor,
) -> Result<(TreeHost, Starters), BootError> {
    let (listener, port) = listen(plan.ports)?;
    let hosting = plan.hosting;
    // On one host, all daemons run the file that is ours.
    let program = match hosting {
        Hosting::Alone => Some(OwnFile::open()?),
        Hosting::Shared => None,
    };
    let build = match &program {
        Some(program) => program.build(build),
        None => build.to_owned(),
    };
    let root = reachable_at(port, &plan.interfaces, hosting)?;
    let secret = random_bytes()?;
    let config = Config {
        me: overlay::Address::ROOT,
        build: Build::new(&build),
        secret: Secret::new(secret),
        timing: Timing {
            lease: plan.lease,
            window: plan.window,
        },
        at: root.clone(),
    };
    // The root is the first of the tree; the other nodes follow in the order of the allocation.
    let nodes = plan.commands.iter().flat_map(|command| &command.nodes);
    let mut members: Vec<_> = nodes.copied().map(address_of).collect();
    members.sort_unstable();
    let count = u32::try_from(members.len()).unwrap_or(u32::MAX);
    let shape = Shape::new(count.saturating_add(1), plan.radix);
    let parent_of = |index: u32| {
        let position = shape.position(base::NodeId(index));
        let parent = position.and_then(|position| position.parent());
        match parent.map_or(0, |parent| parent.0).checked_sub(1) {
            Some(above) => members.get(above as usize).copied(),
            None => Some(overlay::Address::ROOT),
        }
    };
    let parents = (1..)
        .zip(&members)
        .filter_map(|(index, member)| Some((*member, parent_of(index)?)));
    let node = Node::root(config, Entropy::new(random_bytes()?), parents);
    let tree = TreeHost::new(node, listener, reactor)?;
    let boot = Boot {
        nodes: Vec::new(),
        root,
        secret,
        build,
        lease: plan.lease,
        window: plan.window,
        ports: plan.ports,
        interfaces: plan.interfaces.clone(),
        controller: controller.to_owned(),
        hosting,
        log: log.map(|log| log.filter.clone()),
        recording: None,
        program: Program {
            size: program.as_ref().map_or(0, OwnFile::size),
            modified: program.as_ref().and_then(OwnFile::modified),
            path: plan.program.as_bytes().to_vec(),
            argument: plan.argument.clone(),
        },
    };
    let starters = Starters::new(now, plan, hosts, boot, program, log)?;
    Ok((tree, starters))
}

/// Returns bytes that nobody can guess.
pub(crate) fn random_bytes() -> Result<[u8; 32], os::Error> {
    let mut bytes = [0; 32];
    for part in bytes.as_chunks_mut::<8>().0 {
        *part = os::random_number()?.to_ne_bytes();
    }
    Ok(bytes)
}

fn name_of(allocation: &Allocation, node: base::NodeId) -> Option<String> {
    Some(allocation.nodes.get(node.0 as usize)?.name.clone())
}

/// Returns the name of the PMIx server of this process. PMIx puts a dot and a semicolon behind it, so it must contain
/// neither.
///
/// The server's jobs are named after it, and MPICH derives the names of its shared memory from the job's name alone. Killed
/// programs leave such memory behind. The name is therefore random in part: it must not repeat when a pid is reused.
fn service_name(host: &str, unique: u64) -> String {
    let host: String = host
        .chars()
        .take_while(|character| *character != '.')
        .filter(|character| !matches!(character, ';' | '@'))
        .take(SERVICE_HOST_MAX)
        .collect();
    let pid = os::current_pid().as_raw();
    format!("rally-{host}-{:08x}-{pid}", unique & 0xffff_ffff)
}
