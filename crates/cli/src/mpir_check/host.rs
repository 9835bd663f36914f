//! Carries out the orders of a check: starts, traces and reads the launcher, and looks at its ranks.

use std::{
    ffi::OsStr,
    fs,
    io::Read,
    os::{
        fd::{AsFd, OwnedFd},
        unix::{ffi::OsStrExt, fs::MetadataExt},
    },
    path::{Path, PathBuf},
    time::Duration,
};

use base::{ExitStatus, Signal, Time};
use debug::{
    maps::{self, Mapping},
    mpir::{
        Finder, Located, Reader, Row, Symbol, Table,
        check::{Answer, Here, Linked, Order, RankFacts, Said, SymbolFacts},
    },
    target,
};
use message::Message;
use os::{
    ChildEvent, Clock, Debuggee, Happened, Pid, SpawnError, SpawnSpec, SpawnStep, Spawner,
    StoppedThread,
};

use super::{Command, ENDING, keeper, messages};
use crate::{
    args::MPIR_DAEMON_ARGUMENT,
    dbgr::live::{LiveFiles, LiveMemory},
    exit::ExitCode,
};

/// How often to look at what gives no sign of a change: the ranks, the table of a running launcher, the reader of a FIFO.
const LOOK_EVERY: Duration = Duration::from_millis(20);
/// The time that a launcher has to end after SIGTERM.
const TERM_MAX: Duration = Duration::from_secs(5);
/// The longest wait for a rank to stop.
const KEEP_MAX: Duration = Duration::from_secs(5);

/// Why an order was not carried out.
pub(super) enum Stopped {
    /// The launcher could not be started; the check ends with this exit code.
    NotStarted(Message, ExitCode),
    /// The system or the launcher refused it.
    Refused(String),
    /// A signal ends the check.
    Interrupted(Signal),
}

impl From<os::Error> for Stopped {
    fn from(error: os::Error) -> Self {
        Self::Refused(error.to_string())
    }
}

/// The result of an order; `None` if it has no answer.
type Carried = Result<Option<Answer>, Stopped>;

/// The launcher, as far as it has been started.
pub(super) struct Host<'a> {
    command: &'a Command,
    spawner: Spawner,
    /// /dev/null, the input of the launcher.
    input: OwnedFd,
    /// Our stderr, the output of the launcher: our stdout has the report.
    output: OwnedFd,
    finder: Finder,
    host: String,
    debuggee: Option<Debuggee>,
    launcher: Option<Pid>,
    status: Option<ExitStatus>,
    starter: Option<Located>,
    table: Option<Table>,
    kept: Option<(Pid, StoppedThread)>,
}

impl<'a> Host<'a> {
    pub(super) fn new(command: &'a Command) -> Result<Self, os::Error> {
        os::block_signals(&[Signal::CHLD])?;
        let [_, _, error] = os::standard_streams()?;
        Ok(Self {
            command,
            spawner: Spawner::new()?,
            input: os::dev_null()?,
            output: error.map_or_else(os::dev_null, Ok)?,
            finder: Finder::default(),
            host: os::host_name(),
            debuggee: None,
            launcher: None,
            status: None,
            starter: None,
            table: None,
            kept: None,
        })
    }

    pub(super) fn carry_out(&mut self, order: Order) -> Carried {
        match order {
            Order::StartControlled { limit } => self.start_controlled(limit),
            Order::Start => self.start(),
            Order::Arm => self.arm(),
            Order::Request => self.request(),
            Order::Daemons { limit } => self.daemons(limit),
            Order::Run { limit } => self.run(limit),
            Order::Look { between } => self.look(between),
            Order::Keep { row } => self.keep(row),
            Order::Release { limit } => self.release(limit),
            Order::LetGo => {
                self.let_go();
                Ok(None)
            }
            Order::Kill { row } => {
                os::kill(self.rank(row)?, Signal::KILL)?;
                Ok(None)
            }
            Order::Leave => self.leave(),
            Order::Await { limit } => self.wait_for_end(limit),
            Order::Read { limit, with_fifo } => self.read(limit, with_fifo),
            Order::Seize => self.seize(),
            Order::Signal { limit } => self.signal(limit),
            Order::Finish => self.finish(),
        }
    }

    fn start_controlled(&mut self, limit: Duration) -> Carried {
        let fds = [(&self.input, 0), (&self.output, 1), (&self.output, 2)];
        let fds = fds.map(|(fd, number)| (fd.as_fd(), number));
        let spec = spec(self.command, &fds);
        let debuggee = Debuggee::start(&mut self.spawner, spec).map_err(not_started)?;
        let debuggee = debuggee.map_err(|error| {
            let message = messages::refused(&error.to_string());
            Stopped::NotStarted(message, ExitCode::Resources)
        })?;
        self.launcher = Some(debuggee.pid());
        self.debuggee = Some(debuggee);
        self.run_to_entry(limit)
    }

    fn start(&mut self) -> Carried {
        let fds = [(&self.input, 0), (&self.output, 1), (&self.output, 2)];
        let fds = fds.map(|(fd, number)| (fd.as_fd(), number));
        let spec = spec(self.command, &fds);
        self.launcher = Some(self.spawner.spawn(&spec).map_err(not_started)?);
        Ok(None)
    }

    /// Lets a program that has just been executed run to its entry point, where its libraries are loaded.
    fn run_to_entry(&mut self, limit: Duration) -> Carried {
        let debuggee = traced(&mut self.debuggee)?;
        let Some(entry) = os::entry_point(debuggee.pid()) else {
            let why = "the launcher executes a program that cannot be inspected";
            return Err(Stopped::Refused(why.to_owned()));
        };
        debuggee.set_breakpoint(entry)?;
        match debuggee.run(limit, &ENDING)? {
            Happened::Breakpoint => {
                debuggee.remove_breakpoint();
                self.starter = None;
                let facts = self.facts();
                Ok(Some(Answer::Program(facts)))
            }
            Happened::Executed => self.run_to_entry(limit),
            other => self.answer(other),
        }
    }

    /// Locates the symbols of the starter, and returns what it has of them.
    fn facts(&mut self) -> Option<SymbolFacts> {
        let pid = self.launcher?;
        let mappings = mappings(pid);
        let located = self.finder.locate(&mappings, &LiveFiles(pid))?;
        let row_type = located.row_type(&mappings, &LiveFiles(pid));
        let memory = LiveMemory(pid);
        let facts = SymbolFacts::read(&located, &Reader::new(&memory, &located), row_type);
        self.starter = Some(located);
        Some(facts)
    }

    fn said(&mut self) -> Result<Said, Stopped> {
        let (pid, located) = self.located()?;
        let memory = LiveMemory(pid);
        let said = Said::read(&Reader::new(&memory, located));
        if let Ok(table) = &said.table {
            self.table = Some(table.clone());
        }
        Ok(said)
    }

    fn located(&self) -> Result<(Pid, &Located), Stopped> {
        let located = self.launcher.zip(self.starter.as_ref());
        located.ok_or_else(|| Stopped::Refused("the launcher has no symbols".to_owned()))
    }

    fn arm(&mut self) -> Carried {
        self.mark(1)?;
        let (_, located) = self.located()?;
        let Some(place) = located.place(Symbol::Breakpoint) else {
            let why = "the launcher has no MPIR_Breakpoint";
            return Err(Stopped::Refused(why.to_owned()));
        };
        let debuggee = traced(&mut self.debuggee)?;
        debuggee.set_breakpoint(place.address)?;
        Ok(None)
    }

    /// Names a daemon of ours, which does nothing.
    fn request(&self) -> Carried {
        let (pid, located) = self.located()?;
        let program = self.command.own.as_bytes_with_nul().to_vec();
        let arguments: Vec<u8> = self
            .daemon_arguments()
            .iter()
            .flat_map(|word| [word.as_bytes(), &[0]].concat())
            .chain([0])
            .collect();
        for (symbol, text) in [
            (Symbol::ExecutablePath, program),
            (Symbol::ServerArguments, arguments),
        ] {
            let Some(place) = located.place(symbol) else {
                return Err(Stopped::Refused(format!("there is no {}", symbol.name())));
            };
            if u64::try_from(text.len()).unwrap_or(u64::MAX) > place.size {
                let why = format!("{} has no room for the daemon", symbol.name());
                return Err(Stopped::Refused(why));
            }
            os::write_memory(pid, place.address, &text)?;
        }
        Ok(None)
    }

    /// Returns the arguments of our daemon. They are unlike those of any other process.
    fn daemon_arguments(&self) -> [String; 3] {
        [
            MPIR_DAEMON_ARGUMENT.to_owned(),
            format!("of-{}", os::current_pid()),
            "two words".to_owned(),
        ]
    }

    fn daemons(&mut self, limit: Duration) -> Carried {
        let wanted = self.daemon_arguments();
        let mut found = daemons_of(&wanted);
        if found.is_empty() && !limit.is_zero() {
            let debuggee = traced(&mut self.debuggee)?;
            let happened = debuggee.run_until(limit, &ENDING, LOOK_EVERY, || {
                found = daemons_of(&wanted);
                !found.is_empty()
            })?;
            if happened != Happened::Nothing {
                return self.answer(happened);
            }
        }
        Ok(Some(Answer::Daemons {
            found,
            wanted: wanted.to_vec(),
            ranks: self.ranks(),
        }))
    }

    /// Sets `MPIR_being_debugged`.
    fn mark(&self, value: i32) -> Result<(), Stopped> {
        let (pid, located) = self.located()?;
        match located.place(Symbol::BeingDebugged) {
            Some(place) => Ok(os::write_memory(pid, place.address, &value.to_le_bytes())?),
            None => Ok(()),
        }
    }

    fn run(&mut self, limit: Duration) -> Carried {
        let debuggee = traced(&mut self.debuggee)?;
        match debuggee.run(limit, &ENDING)? {
            Happened::Executed => self.run_to_entry(limit),
            other => self.answer(other),
        }
    }

    fn answer(&mut self, happened: Happened) -> Carried {
        match happened {
            Happened::Breakpoint => Ok(Some(Answer::Breakpoint(self.said()?))),
            Happened::Executed => Ok(Some(Answer::Program(None))),
            Happened::Ended(status) => {
                self.debuggee = None;
                self.status = Some(status);
                Ok(Some(Answer::Ended(status)))
            }
            Happened::Nothing => Ok(Some(Answer::Late)),
            Happened::Interrupted(signal) => Err(Stopped::Interrupted(signal)),
        }
    }

    fn look(&self, between: Duration) -> Carried {
        let first = self.ranks();
        if between.is_zero() {
            let last = first.clone();
            return Ok(Some(Answer::Ranks { first, last }));
        }
        if let Some(signal) = os::wait_for_signal(&ENDING, between) {
            return Err(Stopped::Interrupted(signal));
        }
        let last = self.ranks();
        Ok(Some(Answer::Ranks { first, last }))
    }

    fn ranks(&self) -> Vec<RankFacts> {
        let rows = self.table.iter().flat_map(|table| &table.rows);
        rows.map(|row| rank_facts(row, &self.host)).collect()
    }

    /// Returns the process of a row, if it is on this node.
    fn rank(&self, row: usize) -> Result<Pid, Stopped> {
        let found = self.table.as_ref().and_then(|table| table.rows.get(row));
        found
            .filter(|row| target::is_here(&row.host, &self.host) && row.pid > 0)
            .map(|row| Pid::from_raw(row.pid))
            .ok_or_else(|| Stopped::Refused(format!("rank {row} is on another node")))
    }

    fn keep(&mut self, row: usize) -> Carried {
        let pid = self.rank(row)?;
        let thread = StoppedThread::stop(pid, KEEP_MAX).map_err(|why| {
            let why = match why {
                os::NotStopped::Gone => "it has ended",
                os::NotStopped::NotPermitted => "the system does not let us trace it",
                os::NotStopped::Late | os::NotStopped::Refused(_) => "it does not stop",
            };
            Stopped::Refused(format!("cannot attach to rank {row}: {why}"))
        })?;
        self.kept = Some((pid, thread));
        Ok(Some(Answer::Done))
    }

    fn release(&mut self, limit: Duration) -> Carried {
        let rows = self.table.clone().unwrap_or(Table {
            rows: Vec::new(),
            texts: 0,
        });
        let host = self.host.clone();
        let kept = self.kept.as_ref().map(|(pid, _)| pid.as_raw());
        let mut stopped: Vec<&Row> = rows
            .rows
            .iter()
            .filter(|row| target::is_here(&row.host, &host) && Some(row.pid) != kept)
            .collect();
        let mut is_enough = false;
        let debuggee = traced(&mut self.debuggee)?;
        let happened = debuggee.run_until(limit, &ENDING, LOOK_EVERY, || {
            stopped.retain(|row| is_stopped(row.pid));
            is_enough = stopped.is_empty();
            is_enough
        })?;
        match happened {
            Happened::Nothing => {
                let first = self.ranks();
                let last = first.clone();
                Ok(Some(Answer::Ranks { first, last }))
            }
            other => self.answer(other),
        }
    }

    fn let_go(&mut self) {
        if let Some((pid, thread)) = self.kept.take() {
            drop(thread);
            // It may have been stopped before we attached, and nobody else continues it now.
            let _ = os::kill(pid, Signal::CONT);
            let _ = os::sleep_and_detach_late(Duration::ZERO);
        }
    }

    fn leave(&mut self) -> Carried {
        self.mark(0)?;
        if let Some(debuggee) = self.debuggee.take() {
            debuggee.detach();
        }
        Ok(Some(Answer::Done))
    }

    /// Waits for the end of an untraced launcher. Returns false when the time is over.
    fn has_ended_by(&mut self, deadline: Time) -> Result<bool, Stopped> {
        let awaited = [ENDING.as_slice(), &[Signal::CHLD]].concat();
        loop {
            self.reap();
            if self.status.is_some() || self.launcher.is_none() {
                return Ok(true);
            }
            let left = deadline.since(Clock::now());
            if left.is_zero() {
                return Ok(false);
            }
            match os::wait_for_signal(&awaited, left) {
                Some(Signal::CHLD) | None => {}
                Some(signal) => return Err(Stopped::Interrupted(signal)),
            }
        }
    }

    /// Reaps children, the launcher and processes that we have adopted.
    fn reap(&mut self) {
        while let Some(event) = os::reap() {
            if let ChildEvent::Exited { pid, status, .. } = event
                && Some(pid) == self.launcher
            {
                self.status = Some(status);
            }
        }
    }

    fn wait_for_end(&mut self, limit: Duration) -> Carried {
        let has_ended = self.has_ended_by(Clock::now() + limit)?;
        let status = self.status.filter(|_| has_ended);
        Ok(Some(status.map_or(Answer::Late, Answer::Ended)))
    }

    fn read(&mut self, limit: Duration, with_fifo: Duration) -> Carried {
        let begin = Clock::now();
        let mut found: Option<SymbolFacts> = None;
        loop {
            if self.has_ended_by(Clock::now() + LOOK_EVERY)? {
                let status = self.status.unwrap_or(ExitStatus::SUCCESS);
                return Ok(Some(Answer::Ended(status)));
            }
            let waited = Clock::now().since(begin);
            if found.is_none() {
                found = self.facts();
            }
            let Some(facts) = &mut found else {
                if waited > limit {
                    return Ok(Some(Answer::Read(None)));
                }
                continue;
            };
            let (pid, located) = self.located()?;
            // The path is there when the launcher has made the FIFO.
            facts.fifo = Reader::new(&LiveMemory(pid), located).array(Symbol::AttachFifo);
            let limit = facts.fifo.as_ref().map_or(limit, |_| with_fifo);
            let said = self.said()?;
            // A table can grow while its state is 0.
            if (said.table.is_ok() && said.state != 0) || waited > limit {
                return Ok(Some(Answer::Read(Some((facts.clone(), said)))));
            }
        }
    }

    fn seize(&mut self) -> Carried {
        let (pid, _) = self.located()?;
        self.debuggee = Some(Debuggee::attach(pid)?);
        Ok(Some(Answer::Done))
    }

    fn signal(&mut self, limit: Duration) -> Carried {
        let (pid, located) = self.located()?;
        let memory = LiveMemory(pid);
        let path = Reader::new(&memory, located).array(Symbol::AttachFifo);
        let path = PathBuf::from(path.unwrap_or_default());
        let debuggee = traced(&mut self.debuggee)?;
        let mut written = Err("it was not tried".to_owned());
        let happened = debuggee.run_until(limit, &ENDING, LOOK_EVERY, || {
            if written.is_err() {
                written = write_byte(&path);
            }
            false
        })?;
        match (happened, written) {
            (Happened::Nothing, Err(why)) => Err(Stopped::Refused(why)),
            (other, _) => self.answer(other),
        }
    }

    /// Ends the launcher as a user would, and then what it has left.
    fn finish(&mut self) -> Carried {
        self.let_go();
        if self.debuggee.is_some() {
            // A launcher that is gone cannot be left.
            let _ = self.leave();
        }
        if let Some(launcher) = self.launcher
            && self.status.is_none()
        {
            let _ = os::kill(launcher, Signal::TERM);
            let deadline = Clock::now() + TERM_MAX;
            // A signal has ended the check already, or ends it after this.
            while let Err(Stopped::Interrupted(_)) = self.has_ended_by(deadline) {}
            if self.status.is_none() {
                let _ = os::kill(launcher, Signal::KILL);
            }
        }
        keeper::end_descendants();
        self.launcher = None;
        self.status = None;
        self.starter = None;
        self.table = None;
        Ok(Some(Answer::Finished))
    }
}

fn spec<'a>(command: &'a Command, fds: &'a [(std::os::fd::BorrowedFd<'a>, i32)]) -> SpawnSpec<'a> {
    SpawnSpec {
        fds,
        ..SpawnSpec::new(&command.program, &command.argv, &command.envp)
    }
}

fn not_started(error: SpawnError) -> Stopped {
    if error.step == SpawnStep::Exec {
        let message = messages::not_executable(&error.to_string());
        return Stopped::NotStarted(message, ExitCode::NotExecutable);
    }
    Stopped::NotStarted(messages::refused(&error.to_string()), ExitCode::Resources)
}

fn traced(debuggee: &mut Option<Debuggee>) -> Result<&mut Debuggee, Stopped> {
    let traced = debuggee.as_mut();
    traced.ok_or_else(|| Stopped::Refused("the launcher is not traced".to_owned()))
}

fn mappings(pid: Pid) -> Vec<Mapping> {
    os::mappings(pid).map_or_else(Vec::new, |text| maps::parse(&text))
}

/// Returns the arguments of each daemon of ours on this node, without the name of the program.
fn daemons_of(wanted: &[String; 3]) -> Vec<Vec<String>> {
    let all = os::all_processes().into_iter().filter_map(|pid| {
        let arguments = os::arguments_of(pid)?;
        let words = arguments.split(|&byte| byte == 0);
        let mut words: Vec<String> = words
            .map(|word| String::from_utf8_lossy(word).into_owned())
            .collect();
        // Each word is ended by a zero byte.
        words.pop();
        words.drain(..1.min(words.len()));
        let [first, mark, _] = wanted;
        // Whatever a launcher makes of the words: ours are among them. A launcher of its own process that is about to execute it
        // has another program.
        let text = words.join(" ");
        let is_ours = text.starts_with(first.as_str()) && text.contains(mark.as_str());
        is_ours.then_some(words)
    });
    all.collect()
}

fn is_stopped(pid: i32) -> bool {
    let info = os::inspect(Pid::from_raw(pid));
    info.is_some_and(|info| matches!(info.state, 'T' | 't'))
}

fn rank_facts(row: &Row, own: &str) -> RankFacts {
    if !target::is_here(&row.host, own) {
        return RankFacts::Elsewhere;
    }
    let pid = Pid::from_raw(row.pid);
    let Some(info) = os::inspect(pid).filter(|info| !matches!(info.state, 'Z' | 'X')) else {
        return RankFacts::Gone;
    };
    let program = os::program_of(pid).unwrap_or_default();
    let environment = os::environment_of(pid).unwrap_or_default();
    RankFacts::Here(Here {
        state: info.state,
        cpu: info.cpu,
        is_named: is_program(pid, &row.program),
        rank: target::rank_in(&environment),
        linked: Linked::of(&mappings(pid), &program.to_string_lossy()),
        program: program.to_string_lossy().into_owned(),
    })
}

/// Returns whether a process executes the program of a name. `None` if that cannot be found out: the name is that of a script, whose
/// interpreter is executed.
fn is_program(pid: Pid, name: &str) -> Option<bool> {
    let name = Path::new(OsStr::from_bytes(name.as_bytes()));
    let place = match name.strip_prefix("/") {
        Ok(inside) => PathBuf::from(format!("/proc/{pid}/root")).join(inside),
        Err(_) => PathBuf::from(format!("/proc/{pid}/cwd")).join(name),
    };
    let named = fs::metadata(&place).ok()?;
    let executed = fs::metadata(format!("/proc/{pid}/exe")).ok()?;
    let is_same = (named.dev(), named.ino()) == (executed.dev(), executed.ino());
    let is_script = || {
        let mut start = [0; 2];
        let read = fs::File::open(&place).and_then(|mut file| file.read_exact(&mut start));
        read.is_ok() && &start == b"#!"
    };
    if !is_same && is_script() {
        return None;
    }
    Some(is_same)
}

/// Writes one byte into a FIFO that somebody reads.
fn write_byte(path: &Path) -> Result<(), String> {
    let fifo = os::open_fifo(path).map_err(|error| error.to_string())?;
    match os::write(fifo.as_fd(), &[1]) {
        Ok(os::WriteOutcome::Bytes(_)) => Ok(()),
        Ok(_) => Err(format!("the FIFO `{}` takes no byte", path.display())),
        Err(error) => Err(error.to_string()),
    }
}
