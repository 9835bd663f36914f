//! The start of daemons by commands, at the head and at other daemons: shells that answer or not, nodes that need the program, commands
//! that fail at any step, hang or never exit, and daemons that are lost with the commands that they run.

use std::{
    collections::{BTreeMap, BTreeSet},
    num::NonZeroU32,
    time::Duration,
};

use base::{ExitStatus, NodeId, Signal, Time};
use dvm::bootstrap::{
    Bootstrap, CommandId, DAEMON_PARALLEL, DaemonPlan, Delivery, EXIT_MAX, Hosting, Input, LEASE,
    NotJoined, Output, PARALLEL, Part, Place, Prompting, RADIX, StartCommand, TreeStart, WINDOW,
};

use super::{LATENCY_MS, Record, Wrong};
use crate::{agenda::Agenda, rng::Rng};

/// Beyond this, something waits for nobody: a command may use up several limits of a minute, and others wait for its turn.
const HORIZON: Duration = Duration::from_secs(3_600);

/// What becomes of a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fate {
    /// Its daemon joins.
    Joins,
    /// The command cannot be executed.
    NotStarted,
    /// The command exits without an answer, as ssh does if nobody answers.
    Exits,
    /// The command does not answer.
    Hangs,
    /// No directory takes the program.
    NoPlace,
    /// The node is of another architecture.
    OtherSystem,
    /// The daemon exits before it has joined.
    DaemonExits,
    /// The daemon never joins.
    DaemonHangs,
}

const BAD: [Fate; 7] = [
    Fate::NotStarted,
    Fate::Exits,
    Fate::Hangs,
    Fate::NoPlace,
    Fate::OtherSystem,
    Fate::DaemonExits,
    Fate::DaemonHangs,
];

/// A command at a place. It may be started again at another one.
type Run = (Place, CommandId);

#[derive(Clone, Debug)]
enum Event {
    Prints(Run, &'static str),
    Taken(Run),
    Exits(Run, ExitStatus),
    Joins(NodeId, Run),
    Lost(NodeId),
    Over,
    Tick,
}

#[derive(Debug)]
struct Process {
    node: NodeId,
    fate: Fate,
    /// What was sent to it.
    sent: Vec<Part>,
    /// Number of directories that do not take the program.
    full: u32,
    joined: bool,
    /// Whether its kill is on the way.
    killed: bool,
}

struct World<'a> {
    rng: &'a mut Rng,
    agenda: Agenda<Event>,
    bootstrap: Bootstrap,
    fates: Vec<Fate>,
    /// Daemons from which ssh leads nowhere.
    walled: BTreeSet<NodeId>,
    alive: BTreeMap<Run, Process>,
    /// Where each command runs.
    places: BTreeMap<CommandId, Place>,
    joined: BTreeSet<NodeId>,
    lost: BTreeSet<NodeId>,
    reports: Vec<NotJoined>,
    goes_on: bool,
    over_at: Option<Time>,
    is_interrupted: bool,
}

pub(super) fn play(rng: &mut Rng, record: &mut Record) -> Result<Time, Wrong> {
    let nodes = if rng.chance(10) {
        rng.number(60, 200)
    } else {
        rng.number(1, 14)
    };
    let bad = rng.pick([0, 0, 5, 40]);
    let fates: Vec<Fate> = (0..nodes)
        .map(|_| {
            if rng.chance(bad) {
                rng.pick(BAD)
            } else {
                Fate::Joins
            }
        })
        .collect();
    let hosts = (0..nodes).map(|node| format!("n{node}")).collect();
    let tree_start = rng.pick([TreeStart::Never, TreeStart::From(2), TreeStart::From(100)]);
    // With a small one, few nodes are enough for daemons that start others.
    let radix = rng.pick([1, 2, 3, 32]);
    let radix = NonZeroU32::new(radix).unwrap_or(RADIX);
    let bootstrap = Bootstrap::new(Time::ZERO, plan(nodes, tree_start, radix), hosts);
    let goes_on = rng.chance(30);
    let wall = rng.pick([0, 0, 20, 100]);
    let walled = (0..nodes)
        .map(NodeId)
        .filter(|_| rng.chance(wall))
        .collect();
    let mut world = World {
        bootstrap: if goes_on {
            bootstrap.with_those_that_join()
        } else {
            bootstrap
        },
        rng,
        agenda: Agenda::new(),
        fates,
        walled,
        alive: BTreeMap::new(),
        places: BTreeMap::new(),
        joined: BTreeSet::new(),
        lost: BTreeSet::new(),
        reports: Vec::new(),
        goes_on,
        over_at: None,
        is_interrupted: false,
    };
    if world.rng.chance(10) {
        world.is_interrupted = true;
        let when = Time::ZERO + world.rng.millis(0, 90_000);
        world.agenda.at(when, Event::Over);
    }
    world.run(record)
}

fn plan(nodes: u32, tree_start: TreeStart, radix: NonZeroU32) -> DaemonPlan {
    let command = |node: u32| StartCommand {
        argv: vec!["ssh".into(), format!("n{node}").into()],
        nodes: vec![NodeId(node)],
        delivery: Delivery::Staged,
        check: Vec::new(),
        prompting: Prompting::Never,
        elsewhere: Some(vec!["ssh".into()]),
    };
    DaemonPlan {
        local: None,
        commands: (0..nodes).map(command).collect(),
        program: "/rally".into(),
        argument: "__daemon".to_owned(),
        environment: Vec::new(),
        radix,
        ports: None,
        interfaces: Vec::new(),
        hosting: Hosting::Alone,
        lease: LEASE,
        window: WINDOW,
        tree_start,
        late: None,
    }
}

impl World<'_> {
    fn run(&mut self, record: &mut Record) -> Result<Time, Wrong> {
        loop {
            self.carry_out(record)?;
            self.agenda.tick_at(self.bootstrap.deadline(), Event::Tick);
            let Some(event) = self.agenda.next() else {
                self.check_end(record)?;
                return Ok(self.agenda.now);
            };
            let now = self.agenda.now;
            record.require(now < Time::ZERO + HORIZON, || {
                "the start waits for nobody".to_owned()
            })?;
            record.note(now, || format!("{event:?}"));
            self.on_event(now, event);
            let late = EXIT_MAX + Duration::from_millis(2 * LATENCY_MS);
            let is_late = self.over_at.is_some_and(|over| now > over + late);
            record.require(!is_late || self.alive.is_empty(), || {
                format!("commands outlive the session: {:?}", self.alive.keys())
            })?;
        }
    }

    fn soon(&mut self) -> Time {
        self.agenda.now + self.rng.millis(0, LATENCY_MS)
    }

    fn on_event(&mut self, now: Time, event: Event) {
        match event {
            Event::Prints(run, line) => {
                if self.alive.contains_key(&run) {
                    let command = run.1;
                    let bytes = format!("Last login: today\n{line}\n").into_bytes();
                    self.tell(run, Input::Printed { command, bytes });
                }
            }
            Event::Taken(run) => {
                if self.alive.contains_key(&run) {
                    self.tell(run, Input::Taken(run.1));
                }
            }
            Event::Exits(run, status) => {
                if self.alive.remove(&run).is_some() {
                    let command = run.1;
                    self.tell(run, Input::Exited { command, status });
                }
            }
            Event::Joins(node, run) => self.on_joined(now, node, run),
            Event::Lost(node) => {
                self.lost.insert(node);
                self.end_commands_of(node);
                self.bootstrap.handle(now, Input::Lost(node));
                if !self.goes_on {
                    // The job needs every node.
                    self.is_interrupted = true;
                    let when = self.soon();
                    self.agenda.at(when, Event::Over);
                }
            }
            Event::Over if self.over_at.is_none() => {
                self.over_at = Some(now);
                self.bootstrap.handle(now, Input::Over);
                // Each daemon ends what it runs, and itself.
                for node in self.joined.clone() {
                    self.end_commands_of(node);
                }
                let ends: Vec<Run> = self.alive.keys().copied().collect();
                for run in ends {
                    if self.rng.chance(70) {
                        let when = now + self.rng.millis(0, 900);
                        self.agenda.at(when, Event::Exits(run, ExitStatus::SUCCESS));
                    }
                }
            }
            Event::Over => {}
            Event::Tick => self.bootstrap.handle(now, Input::Tick),
        }
    }

    /// Tells the head about a command. What a daemon says of one that runs elsewhere meanwhile has no effect.
    fn tell(&mut self, run: Run, input: Input) {
        match run.0 {
            Place::Head => self.bootstrap.handle(self.agenda.now, input),
            Place::Daemon(node) => self.bootstrap.handle_from(self.agenda.now, node, input),
        }
    }

    fn end_commands_of(&mut self, node: NodeId) {
        self.alive
            .retain(|(place, _), _| *place != Place::Daemon(node));
    }

    fn on_joined(&mut self, now: Time, node: NodeId, run: Run) {
        let Some(process) = self.alive.get_mut(&run) else {
            return;
        };
        if self.over_at.is_some() || !self.joined.insert(node) {
            return;
        }
        process.joined = true;
        self.bootstrap.handle(now, Input::Joined(node));
        if self.rng.chance(3) {
            let when = now + self.rng.millis(0, 3_000);
            self.agenda.at(when, Event::Lost(node));
        }
        self.end_if_settled(now);
    }

    /// Ends the session some time after every node has joined or was reported.
    fn end_if_settled(&mut self, now: Time) {
        let reported = self.reports.iter().flat_map(|report| &report.classes);
        let reported: usize = reported.map(|class| class.hosts.len()).sum();
        let is_settled = match self.goes_on {
            true => self.joined.len() + reported >= self.fates.len(),
            false => self.joined.len() == self.fates.len() || !self.reports.is_empty(),
        };
        if is_settled {
            let when = now + self.rng.millis(0, 3_000);
            self.agenda.at(when, Event::Over);
        }
    }

    fn carry_out(&mut self, record: &mut Record) -> Result<(), Wrong> {
        while let Some(output) = self.bootstrap.poll() {
            let now = self.agenda.now;
            record.note(now, || format!("bootstrap -> {output:?}"));
            match output {
                Output::Start(place, id) => self.start(record, (place, id))?,
                Output::Send(place, id, part) => self.send(record, (place, id), part)?,
                Output::Kill(place, id) => {
                    if let Some(process) = self.alive.get_mut(&(place, id)) {
                        process.killed = true;
                    }
                    let when = self.soon();
                    let signal = Signal::KILL;
                    let status = ExitStatus::Signaled {
                        signal,
                        core_dumped: false,
                    };
                    self.agenda.at(when, Event::Exits((place, id), status));
                }
                Output::GiveUp(node) => {
                    record.require(!self.joined.contains(&node), || {
                        format!("{node:?} is given up although it has joined")
                    })?;
                }
                Output::Failed(report) => {
                    self.reports.push(report);
                    self.end_if_settled(now);
                }
            }
        }
        Ok(())
    }

    fn start(&mut self, record: &mut Record, run: Run) -> Result<(), Wrong> {
        let (place, id) = run;
        let may = self.over_at.is_none() && (self.goes_on || self.reports.is_empty());
        record.require(may, || format!("{run:?} is started after the end"))?;
        let node = NodeId(id);
        let is_twice = self.alive.contains_key(&run) || self.joined.contains(&node);
        record.require(!is_twice, || format!("{run:?} is started twice"))?;
        if let Place::Daemon(daemon) = place {
            let is_there = self.joined.contains(&daemon) && !self.lost.contains(&daemon);
            record.require(is_there, || {
                format!("{run:?} is started where no daemon is")
            })?;
        }
        let at_place = self.alive.iter();
        let at_place = at_place.filter(|((at, other), process)| {
            *at == place && self.places.get(other) == Some(at) && !process.killed
        });
        // A node that failed elsewhere does not wait for those that join: they may wait for it.
        let open = at_place.filter(|(_, process)| match place {
            Place::Head => !process.sent.contains(&Part::Frame),
            Place::Daemon(_) => !process.joined,
        });
        let most = match place {
            Place::Head => PARALLEL,
            Place::Daemon(_) => DAEMON_PARALLEL,
        };
        let has_room = open.count() < most.get() as usize;
        record.require(has_room, || format!("{run:?} is one too many"))?;
        let fate = self.fates.get(id as usize).copied().unwrap_or(Fate::Exits);
        let fate = match place {
            Place::Daemon(daemon) if self.walled.contains(&daemon) => {
                self.rng.pick([Fate::NotStarted, Fate::Exits, Fate::Hangs])
            }
            _ => fate,
        };
        self.places.insert(id, place);
        if fate == Fate::NotStarted {
            let why = "no such file".to_owned();
            self.tell(run, Input::NotStarted { command: id, why });
            return Ok(());
        }
        let full = self.rng.number(0, 2);
        let process = Process {
            node,
            fate,
            sent: Vec::new(),
            full,
            joined: false,
            killed: false,
        };
        self.alive.insert(run, process);
        Ok(())
    }

    /// Sends a part to a command, and schedules what its node does with it.
    fn send(&mut self, record: &mut Record, run: Run, part: Part) -> Result<(), Wrong> {
        let when = self.soon();
        let Some(process) = self.alive.get_mut(&run) else {
            // It has exited, and nobody knows yet.
            return Ok(());
        };
        let sent = &mut process.sent;
        let is_right = match part {
            Part::Script => sent.is_empty(),
            Part::Hash => sent.as_slice() == [Part::Script],
            Part::Program => sent.contains(&Part::Hash) && !sent.contains(&Part::Frame),
            Part::Frame => !sent.is_empty() && !sent.contains(&Part::Frame),
        };
        sent.push(part);
        let (fate, node) = (process.fate, process.node);
        record.require(is_right, || {
            format!("{run:?} gets {part:?} at a wrong moment")
        })?;
        let exit = |code| Event::Exits(run, ExitStatus::Exited(code));
        let next = match (part, fate) {
            (Part::Script | Part::Hash, Fate::Hangs) => return Ok(()),
            (Part::Script, Fate::Exits) => exit(255),
            (Part::Script, Fate::NoPlace | Fate::OtherSystem) => Event::Prints(run, "@rally which"),
            (Part::Script, _) if self.rng.chance(50) => Event::Prints(run, "@rally which"),
            (Part::Hash, Fate::OtherSystem) => Event::Prints(run, "@rally need Plan9 mips"),
            (Part::Hash, Fate::NoPlace) => Event::Prints(run, "@rally none"),
            (Part::Hash, _) if self.rng.chance(50) => Event::Prints(run, NEED),
            (Part::Program, _) => return self.take_program(run),
            (Part::Script | Part::Hash, _) => Event::Prints(run, "@rally have /rally"),
            (Part::Frame, Fate::DaemonExits) => exit(1),
            (Part::Frame, Fate::DaemonHangs) => return Ok(()),
            (Part::Frame, _) => Event::Joins(node, run),
        };
        self.agenda.at(when, next);
        Ok(())
    }

    /// A node takes the program slowly, and may find at the end that its directory is full.
    fn take_program(&mut self, run: Run) -> Result<(), Wrong> {
        let mut when = self.agenda.now;
        for _ in 0..self.rng.number(1, 3) {
            when = when + self.rng.millis(0, 7_000);
            self.agenda.at(when, Event::Taken(run));
        }
        let is_full = self.alive.get_mut(&run).is_some_and(|process| {
            let is_full = process.full > 0;
            process.full = process.full.saturating_sub(1);
            is_full
        });
        if is_full {
            self.agenda
                .at(when, Event::Prints(run, "@rally skip /tmp: full"));
            self.agenda.at(when, Event::Prints(run, NEED));
        } else {
            self.agenda
                .at(when, Event::Prints(run, "@rally have /cache/rally"));
        }
        Ok(())
    }

    fn check_end(&self, record: &mut Record) -> Result<(), Wrong> {
        record.require(self.alive.is_empty(), || {
            format!("commands remain: {:?}", self.alive.keys())
        })?;
        let mut named = BTreeSet::new();
        for class in self.reports.iter().flat_map(|report| &report.classes) {
            for host in class.hosts.iter() {
                let node = host.strip_prefix('n').and_then(|node| node.parse().ok());
                let node: u32 = node.unwrap_or(u32::MAX);
                let is_bad = self.fates.get(node as usize) != Some(&Fate::Joins);
                record.require(is_bad, || format!("`{host}` is blamed, and is fine"))?;
                record.require(named.insert(node), || format!("`{host}` is blamed twice"))?;
            }
        }
        let most = if self.goes_on { usize::MAX } else { 1 };
        record.require(self.reports.len() <= most, || {
            "there are two reports".to_owned()
        })?;
        if self.is_interrupted {
            return Ok(());
        }
        for (node, fate) in (0..).map(NodeId).zip(&self.fates) {
            let joins = *fate == Fate::Joins;
            let (joined, blamed) = (self.joined.contains(&node), named.contains(&node.0));
            let is_right = match self.goes_on {
                true => joined == joins && blamed != joins,
                false if self.reports.is_empty() => joins && joined,
                false => !joins || !blamed,
            };
            record.require(is_right, || {
                format!("{node:?}, {fate:?}: joined {joined}, blamed {blamed}")
            })?;
        }
        Ok(())
    }
}

/// What a node says that needs the program, as this architecture does.
const NEED: &str = if cfg!(target_arch = "aarch64") {
    "@rally need Linux aarch64"
} else {
    "@rally need Linux x86_64"
};
