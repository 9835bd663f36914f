//! The process with the controller.

use std::{
    net::{Ipv4Addr, SocketAddr},
    os::{fd::AsFd, unix::ffi::OsStrExt as _},
    path::{Path, PathBuf},
    rc::Rc,
    time::Duration,
};

use base::{NodeId, Time};
use dvm::{
    Control, ControllerInput, Tools,
    alloc::Allocation,
    bootstrap::{DaemonPlan, Hosting, stage::Program},
    machine::Setup,
    proto::CannotRun,
};
use os::{Clock, Interest, Loop};
use overlay::{
    Shape,
    node::{Config, Node, Timing},
    secure::{Build, Entropy, Secret},
};

use pmix::{
    client::ServerUri,
    codec::{Format, Writer},
    value::{Nspace, PmixRank, Proc},
};
use tracing::{info, warn};

use super::{Exit, Head, LOCAL, Process};

use crate::{
    Birth, IGNORED,
    boot::{Boot, BootError, listen, reachable_at},
    callback::{ControllingTool, StartedBy},
    control,
    controller::{BesideController, ControllerHost, ControllerSetup, broken_link},
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
    reactor::{Reactor, Source},
    record::{Record, topology},
    rendezvous::{Found, RendezvousFiles},
    slurm::{SlurmCommands, SlurmPlan},
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
        slurm,
    } = opening;
    let tape = recording.as_deref().map(Tape::create).map(Rc::new);
    info!(target: log::CONTROLLER, nodes = allocation.nodes.len(), name, "started");
    let local = plan.as_ref().map_or(Some(LOCAL), |plan| plan.local);
    let (node, host) = own_node(&allocation, plan.as_ref(), birth);
    let setup = DaemonSetup {
        node,
        host,
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
        tools: Tools::Admitted,
    };
    let mut daemon = DaemonHost::open(setup, &mut reactor)?;
    let Some(socket) = birth.link.take() else {
        return Ok(Exit::Clean);
    };
    os::set_nonblocking(socket.as_fd())?;
    let fail = |why| {
        link::send_failure(socket.as_fd(), why);
        Ok(Exit::Failed)
    };
    let prompts = PromptHost::new(plan.as_ref(), &allocation, birth.terminal.take());
    let session = record.session();
    let control = take_control(birth.tool.take(), &mut daemon, &mut reactor)?;
    let machine = open_machine(machine, &allocation, local, &mut reactor);
    let (machine, tools) = match machine.map_err(CannotRun::from).and_then(|machine| {
        let tools = announce(birth, &record, &name, &daemon, machine.is_some())?;
        Ok((machine, tools))
    }) {
        Ok(opened) => opened,
        Err(why) => return fail(why),
    };
    let now = Clock::now();
    let ground = plan.map(|plan| Ground {
        plan,
        hosts: names(&allocation),
        controller: name.clone(),
        build: birth.build.clone(),
        log: birth.log.clone(),
        recording,
        prompts: prompts_socket(machine.as_ref(), session.as_deref(), birth),
        descriptors: birth.descriptors,
        session: session.clone(),
        is_machine: machine.is_some(),
    });
    let needed = ground.as_ref().filter(|ground| ground.is_needed_now());
    let tree = match needed.map(|ground| ground.open(now, &mut reactor)) {
        Some(Err(BootError::Os(error))) => return Err(error),
        Some(Err(error)) => return fail(CannotRun::System(error.to_string())),
        opened => opened.transpose().ok().flatten(),
    };
    let slurm = open_slurm(slurm, birth, session.as_deref(), &name)?;
    let state = ControllerMachine::new(allocation, name, tape.clone());
    let (state, machine) = with_machine(now, state, machine);
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
            slurm,
            tools,
            control,
            beside: BesideController::of(local),
        },
        &mut reactor,
    )?;
    controller.take_messages(now, STARTER, &mut reactor);
    let head = Head::Controller(Box::new(controller));
    let process = Process::new(reactor, head, [(node, daemon)]);
    Ok(run_with(process, tree, ground, tape))
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
    tape: Option<Rc<Tape>>,
) -> Exit {
    process.tape = tape;
    let ground = ground.filter(|ground| ground.plan.late.is_some());
    process.ground = ground.map(Box::new);
    if let Some((mut tree, starters)) = tree {
        tree.wait_at_most(PARENT_MAX);
        process.admit_fronts();
        process.tree = Some(DaemonTree::new(tree));
        process.starters = Some(starters);
    }
    process.run()
}

/// Returns number and name of the daemon in this process. If its host is no node of the allocation, it only serves tools, and has the
/// number behind those of all nodes ([`ControllerInput::Door`]).
fn own_node(allocation: &Allocation, plan: Option<&DaemonPlan>, birth: &Birth) -> (NodeId, String) {
    let behind = || NodeId(u32::try_from(allocation.nodes.len()).unwrap_or(u32::MAX));
    let local = plan.map_or(Some(LOCAL), |plan| plan.local);
    let host = plan.and_then(|plan| name_of(allocation, plan.local?));
    (
        local.unwrap_or_else(behind),
        host.unwrap_or_else(|| birth.host.clone()),
    )
}

/// Tells the controller of its machine, if this is one.
fn with_machine(
    now: Time,
    mut state: ControllerMachine,
    machine: Option<(MachineHost, Setup)>,
) -> (ControllerMachine, Option<MachineHost>) {
    let machine = machine.map(|(machine, setup)| {
        state.handle(now, ControllerInput::Machine(Box::new(setup)));
        machine
    });
    (state, machine)
}

/// Serves the tool that controls this launcher, if there is one, and returns how it does.
fn take_control(
    tool: Option<ControllingTool>,
    daemon: &mut DaemonHost,
    reactor: &mut Reactor,
) -> Result<Option<Control>, os::Error> {
    let started = match tool {
        None => return Ok(None),
        Some(ControllingTool::Pause) => return Ok(Some(Control::Pause)),
        Some(ControllingTool::Started(started)) => *started,
    };
    let StartedBy {
        connection,
        called,
        keepalive,
    } = started;
    let mut writer = Writer::new(Format::V4);
    writer.list(&called.directives);
    let directives = writer.into_bytes().into();
    daemon.call(Clock::now(), connection, called, reactor)?;
    if let Some(pipe) = keepalive {
        reactor.add(pipe, Interest::HangUp, Source::Keepalive)?;
    }
    Ok(Some(Control::Started { directives }))
}

/// Lets tools find the PMIx server of this process. Without its files they cannot, and the job runs all the same.
fn announce(
    birth: &Birth,
    record: &Record,
    name: &str,
    daemon: &DaemonHost,
    is_machine: bool,
) -> Result<Option<RendezvousFiles>, CannotRun> {
    let server = Nspace::from_text(name).ok().map(|nspace| Proc {
        nspace,
        rank: PmixRank(0),
    });
    let address = SocketAddr::from((Ipv4Addr::LOCALHOST, daemon.port()));
    let Some(uri) = server.and_then(|server| ServerUri::new(server, address).ok()) else {
        return Ok(None);
    };
    let found = Found {
        host: &birth.host,
        uri,
        // Whoever has started a machine leaves.
        pid: match is_machine {
            true => os::current_pid(),
            false => birth.front_pid,
        },
    };
    match RendezvousFiles::create(&birth.surroundings, &found) {
        Ok(mut files) => {
            record.note(files.directory());
            // The ways that the environment asks for: who asks waits for them.
            files.open(&birth.doors).map_err(|why| {
                CannotRun::ToolFile(format!("tools cannot find the launcher: {why}"))
            })?;
            Ok(Some(files))
        }
        Err(error) => {
            warn!(target: log::CONTROLLER, "tools cannot find this process: {error}");
            Ok(None)
        }
    }
}

/// Prepares for commands of Slurm, if there may be any.
fn open_slurm(
    plan: Option<SlurmPlan>,
    birth: &Birth,
    session: Option<&Path>,
    controller: &str,
) -> Result<Option<SlurmCommands>, os::Error> {
    let opened = plan.map(|plan| SlurmCommands::new(plan, birth.descriptors, session, controller));
    opened.transpose()
}

/// Returns the socket to which the prompts of commands go.
fn prompts_socket(
    machine: Option<&(MachineHost, Setup)>,
    session: Option<&Path>,
    birth: &Birth,
) -> Option<PathBuf> {
    match machine {
        Some((machine, _)) => Some(machine.control()),
        None => session.map(|session| control::path(session, birth.front_pid)),
    }
}

/// Opens the directory of the machine, if this is to be one.
fn open_machine(
    plan: Option<MachinePlan>,
    allocation: &Allocation,
    local: Option<NodeId>,
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
        let position = shape.position(NodeId(index));
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

fn name_of(allocation: &Allocation, node: NodeId) -> Option<String> {
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
