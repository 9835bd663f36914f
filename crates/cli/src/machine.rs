//! The commands about a machine, except `rally up`, which is a front: they connect, ask, and show the answer.

mod asker;
mod find;
mod job;
mod list;
mod messages;
mod output;
mod row;
mod usage;
mod watch;

use std::{collections::BTreeSet, ffi::OsString, path::Path, time::Duration};

use base::JobId;
use dvm::{
    machine::{Ask, NotDone, Record, Reply, State, Submission},
    proto::{FromFront, ToFront},
    spec::JobSpec,
};
use message::Message;
use runtime::{
    FoundMachine,
    ask::{AskError, Inquirer},
};

pub(crate) use self::{
    asker::{Asker, Said},
    find::{
        controls, for_run, has_used_slurm, is_told, make_default, none_runs, note_use_of_slurm,
        open_log, plan, select,
    },
    job::{ExplainedRow, details_text, explained_text, why},
    list::{NodeRow, StatusRow, resources, standing_word, table},
    messages::{KINDS, gone, lost, no_screen, not_started, runs_on, silent, up, waits},
    output::Follower,
    row::{Row, clock, elapsed, end_of, lines, state_word},
    watch::{SILENCE, pause_after},
};
use self::{messages::canceled_code, watch::Listing};
use crate::{
    args::{
        MessageFormat, Show, World,
        request::machine::{
            JobFile, MachineRequest, Naming, NodesRequest, QueueRequest, SubmitRequest, Watching,
            Which,
        },
    },
    exit::{self, ExitCode},
    print, say,
    values::Tasks,
};

/// Submissions on their way at the same time.
const UNANSWERED_MAX: usize = 256;
/// The longest wait for an answer, except those that take as long as jobs do. A machine is never busy for long.
const PATIENCE: Duration = Duration::from_secs(30);
/// Pause between two looks at the lock of a machine that ends.
const ENDING_PAUSE: Duration = Duration::from_millis(2);
/// How long a machine whose connections are closed may take to end: its last writes may be slow.
const ENDING_MAX: Duration = Duration::from_secs(10);

/// A message that ends a command, and its exit code.
pub(crate) type Failure = (Message, ExitCode);

/// A connection to a machine.
#[derive(Debug)]
pub(crate) struct Connection {
    inquirer: Inquirer,
    name: String,
}

impl Connection {
    /// Connects to a machine.
    pub(crate) fn to(machine: &FoundMachine) -> Result<Self, Failure> {
        let name = machine.name.clone();
        match Inquirer::connect(&machine.control(), PATIENCE) {
            Ok(inquirer) => Ok(Self { inquirer, name }),
            Err(error) => Err(lost(&name, &error)),
        }
    }

    /// Asks, and returns the answer. An order that is not carried out is an error.
    pub(crate) fn ask(&mut self, ask: Ask) -> Result<Reply, Failure> {
        self.ask_for(ask, Some(PATIENCE))
    }

    /// Sends a question, whose answer [`Self::hear`] returns.
    fn tell(&mut self, ask: Ask) -> Result<(), Failure> {
        let question = FromFront::Ask(Box::new(ask));
        let told = self.inquirer.tell(question);
        told.map_err(|error| lost(&self.name, &error))
    }

    fn hear(&mut self) -> Result<Reply, Failure> {
        let heard = self.inquirer.hear();
        self.reply_of(heard)
    }

    /// Asks a question whose answer may take any time.
    fn ask_patiently(&mut self, ask: Ask) -> Result<Reply, Failure> {
        self.ask_for(ask, None)
    }

    fn ask_for(&mut self, ask: Ask, patience: Option<Duration>) -> Result<Reply, Failure> {
        self.said(ask, patience)?.map_err(|why| not_done(&why))
    }

    /// Asks a question whose answer may take any time. A refusal is no failure.
    fn consult(&mut self, ask: Ask) -> Result<Said, Failure> {
        self.said(ask, None)
    }

    /// Asks. A refusal is no failure: every failure is one of the connection.
    pub(crate) fn ask_plainly(&mut self, ask: Ask) -> Result<Said, Failure> {
        self.said(ask, Some(PATIENCE))
    }

    /// Asks, and returns the whole answer: a long list of jobs comes in several, the last ones first.
    fn said(&mut self, ask: Ask, patience: Option<Duration>) -> Result<Said, Failure> {
        let Ask::Jobs { mut over, .. } = ask else {
            return self.said_once(ask, patience);
        };
        let mut pages = Vec::new();
        let mut before = None;
        loop {
            let (records, rest) = match self.said_once(Ask::Jobs { over, before }, patience)? {
                Ok(Reply::Jobs { records, before }) => (records, before),
                other => return Ok(other),
            };
            let told = records.iter().filter(|record| record.ended.is_some());
            over = over.saturating_sub(u32::try_from(told.count()).unwrap_or(u32::MAX));
            pages.push(records);
            // Each page is about earlier jobs than the one before, so this ends.
            if rest.is_none() || before.is_some_and(|last| rest >= Some(last)) {
                break;
            }
            before = rest;
        }
        Ok(Ok(Reply::Jobs {
            records: pages.into_iter().rev().flatten().collect(),
            before: None,
        }))
    }

    fn said_once(&mut self, ask: Ask, patience: Option<Duration>) -> Result<Said, Failure> {
        let question = FromFront::Ask(Box::new(ask));
        let heard = self.inquirer.ask_within(question, patience);
        self.heard(heard)
    }

    fn reply_of(&self, heard: Result<ToFront, AskError>) -> Result<Reply, Failure> {
        self.heard(heard)?.map_err(|why| not_done(&why))
    }

    fn heard(&self, heard: Result<ToFront, AskError>) -> Result<Said, Failure> {
        match heard {
            Ok(ToFront::Reply(reply)) => Ok(match *reply {
                Reply::Refused(why) => Err(why),
                reply => Ok(reply),
            }),
            Ok(_) => Err(messages::odd(&self.name)),
            Err(error) => Err(lost(&self.name, &error)),
        }
    }

    /// Returns the names of the machine's nodes, by their numbers. Numbers of nodes that are gone have no name.
    pub(crate) fn nodes(&mut self) -> Result<Vec<String>, Failure> {
        let reply = self.ask(Ask::Nodes)?;
        self.names(reply)
    }

    /// Submits a job, and gives it back with the names of the nodes. The job does not wait for the question about these, but its
    /// messages come after the answer.
    pub(crate) fn submit(
        &mut self,
        spec: Box<JobSpec>,
    ) -> Result<(Box<JobSpec>, Vec<String>), Failure> {
        let question = FromFront::Ask(Box::new(Ask::Nodes));
        let submitted = self.inquirer.submit(question, spec);
        let spec = submitted.map_err(|error| lost(&self.name, &error))?;
        let reply = self.hear()?;
        Ok((spec, self.names(reply)?))
    }

    fn names(&self, reply: Reply) -> Result<Vec<String>, Failure> {
        let Reply::Nodes(nodes) = reply else {
            return Err(messages::odd(&self.name));
        };
        let last = nodes.iter().map(|node| node.number.0).max();
        let mut names = vec![String::new(); last.map_or(0, |last| last as usize + 1)];
        for node in nodes {
            if let Some(name) = names.get_mut(node.number.0 as usize) {
                *name = node.name;
            }
        }
        Ok(names)
    }

    /// Gives the connection to a front.
    pub(crate) fn into_inquirer(self) -> Inquirer {
        self.inquirer
    }

    /// Waits until the machine closes the connection.
    fn wait_for_end(self) {
        self.inquirer.wait_for_end();
    }
}

/// Returns the failure of an order that was not carried out.
fn not_done(why: &NotDone) -> Failure {
    (dvm::messages::not_done(why), exit::not_done(why))
}

/// Says why a command that goes on has ended: if the connection was lost because the machine has ended as it was told, that is no failure.
pub(crate) fn ended(
    found: &FoundMachine,
    failure: Failure,
    format: MessageFormat,
) -> Result<u8, Failure> {
    if failure.0.id != messages::LOST.id {
        return Err(failure);
    }
    if !ended_as_told(found) {
        return Err(failure);
    }
    say(&messages::ended(&found.name), format);
    Ok(exit::SUCCESS)
}

/// Returns false if a machine whose connection was lost was killed, or goes on.
pub(crate) fn ended_as_told(found: &FoundMachine) -> bool {
    let until = os::Clock::now() + ENDING_MAX;
    while found.runs() && os::Clock::now() < until {
        os::sleep(ENDING_PAUSE);
    }
    // A machine that was killed leaves its socket.
    !found.runs() && !found.control().exists()
}

/// Carries out a command, and returns the exit code.
pub(crate) fn carry_out(request: MachineRequest, world: &World) -> u8 {
    let format = format_of(&request);
    match act(request, world) {
        Ok(code) => code,
        Err((message, code)) => {
            say(&message, format);
            code.code()
        }
    }
}

fn format_of(request: &MachineRequest) -> MessageFormat {
    match request {
        MachineRequest::Up(up) => up.run.front.message_format,
        MachineRequest::Submit(submit) => submit.which.format,
        MachineRequest::Down(which, _)
        | MachineRequest::Status(which, _)
        | MachineRequest::Top(which)
        | MachineRequest::Queue(which, _)
        | MachineRequest::Explain(which, _)
        | MachineRequest::Hold(which, _)
        | MachineRequest::Cancel(which, _)
        | MachineRequest::Signal(which, ..)
        | MachineRequest::Usage(which, _)
        | MachineRequest::Priority(which, ..)
        | MachineRequest::Wait(which, _)
        | MachineRequest::Output(which, _)
        | MachineRequest::Nodes(which, _)
        | MachineRequest::Page(which, _) => which.format,
    }
}

fn connect(which: &Which, world: &World) -> Result<Connection, Failure> {
    Connection::to(&select(world, which.machine.as_deref())?)
}

fn act(request: MachineRequest, world: &World) -> Result<u8, Failure> {
    match request {
        // The caller carries these out.
        MachineRequest::Up(_) | MachineRequest::Top(_) | MachineRequest::Page(..) => {
            Ok(exit::INTERNAL)
        }
        MachineRequest::Submit(request) => submit(*request, world),
        MachineRequest::Down(which, down) => {
            let found = select(world, which.machine.as_deref())?;
            let mut machine = Connection::to(&found)?;
            machine.ask(Ask::Down(down))?;
            machine.wait_for_end();
            // Its store may still be written.
            while found.runs() {
                os::sleep(ENDING_PAUSE);
            }
            Ok(exit::SUCCESS)
        }
        MachineRequest::Status(which, watching) => {
            let found = select(world, which.machine.as_deref())?;
            if watching == Watching::GoesOn {
                let listing = Listing::Status(found.directory.clone());
                return watch::watch(&found, &listing, which.format);
            }
            let reply = Connection::to(&found)?.ask(Ask::Status)?;
            let Reply::Status(status) = reply else {
                return Err(messages::odd(&found.name));
            };
            let text = list::status(&status, &found.directory, now(), which.format);
            Ok(print(&text, which.format))
        }
        MachineRequest::Queue(which, request) => queue(&which, &request, world),
        MachineRequest::Explain(which, job) => {
            let mut machine = connect(&which, world)?;
            let Reply::Explained(explained) = machine.ask(Ask::Explain(job))? else {
                return Err(messages::odd(&machine.name));
            };
            let text = job::explained(&explained, now(), which.format);
            Ok(print(&text, which.format))
        }
        MachineRequest::Hold(which, jobs) => order_each(&which, jobs, Ask::Hold, world),
        MachineRequest::Priority(which, jobs, priority) => {
            order_each(&which, jobs, |job| Ask::Prioritize(job, priority), world)
        }
        MachineRequest::Cancel(which, jobs) => {
            let order = |tasks: Tasks| Ask::Cancel(tasks.job, tasks.indexes);
            order_each(&which, jobs, order, world)
        }
        MachineRequest::Signal(which, jobs, signal) => {
            let order = |tasks: Tasks| Ask::Signal(tasks.job, tasks.indexes, signal);
            order_each(&which, jobs, order, world)
        }
        MachineRequest::Usage(which, tasks) => {
            let mut machine = connect(&which, world)?;
            let id = tasks.job;
            let Reply::Usage(report) = machine.ask(Ask::Usage(id, tasks.indexes))? else {
                return Err(messages::odd(&machine.name));
            };
            let text = usage::report(id, &report, which.format);
            Ok(print(&text, which.format))
        }
        MachineRequest::Wait(which, jobs) => wait(&which, jobs, world),
        MachineRequest::Output(which, request) => output::show(&which, &request, world),
        MachineRequest::Nodes(which, request) => nodes(&which, request, world),
    }
}

/// Keeps the first failure as the result, and says the others at once.
fn later(
    result: Result<u8, Failure>,
    failure: Failure,
    format: MessageFormat,
) -> Result<u8, Failure> {
    match result {
        Ok(_) => Err(failure),
        Err(first) => {
            say(&failure.0, format);
            Err(first)
        }
    }
}

/// Gives an order about each of these jobs, whatever happens to the others.
fn order_each<T>(
    which: &Which,
    jobs: Vec<T>,
    order: impl Fn(T) -> Ask,
    world: &World,
) -> Result<u8, Failure> {
    let mut machine = connect(which, world)?;
    let mut result = Ok(exit::SUCCESS);
    for job in jobs {
        if let Err(failure) = machine.ask(order(job)) {
            result = later(result, failure, which.format);
        }
    }
    result
}

/// Releases a held job of the queue. `told` is the machine that the command line names. Returns false if no other machine has the job.
///
/// # Errors
///
/// The named machine does not release it, or it is not clear which machine is meant.
pub(crate) fn release(job: JobId, told: Option<&str>, world: &World) -> Result<bool, Failure> {
    if told.is_none() && none_runs(world) {
        return Ok(false);
    }
    let mut machine = Connection::to(&select(world, told)?)?;
    if told.is_none() {
        // The number may also be the pid of a front whose ranks are held.
        match machine.ask_plainly(Ask::Job(job))? {
            Ok(Reply::Job(record)) if record.is_held() => {}
            Ok(_) | Err(_) => return Ok(false),
        }
    }
    machine.ask(Ask::Release(job)).map(|_| true)
}

fn submit(request: SubmitRequest, world: &World) -> Result<u8, Failure> {
    let SubmitRequest {
        which,
        mut submission,
        from,
        is_parsable,
        run,
    } = request;
    for notice in &run.notices {
        say(&notice.message(), which.format);
    }
    if !matches!(run.show, Show::Run) {
        return Ok(crate::dry_run(&run));
    }
    restrict(&mut submission, &run);
    let mut machine = connect(&which, world)?;
    let output = submission.output.stdout.clone();
    let name = machine.name.clone();
    let tell = |job: JobId| {
        let text = if is_parsable {
            format!("{job}\n")
        } else {
            list::submitted(job, &name, Path::new(&output), which.format)
        };
        print(&text, which.format)
    };
    if let Some(file) = from {
        return submit_all(&mut machine, &submission, file, which.format, tell);
    }
    let Reply::Submitted(job) = machine.ask(Ask::Submit(Box::new(submission)))? else {
        return Err(messages::odd(&machine.name));
    };
    Ok(tell(job))
}

/// Submits a job for each program, without waiting for one answer before the next job.
fn submit_all(
    machine: &mut Connection,
    common: &Submission,
    file: JobFile,
    format: MessageFormat,
    tell: impl Fn(JobId) -> u8,
) -> Result<u8, Failure> {
    let mut code = exit::SUCCESS;
    let mut result = Ok(());
    let mut unanswered = 0;
    let mut rest = file.programs.into_iter().peekable();
    while rest.peek().is_some() || unanswered > 0 {
        if unanswered < UNANSWERED_MAX
            && let Some(words) = rest.next()
        {
            machine.tell(Ask::Submit(Box::new(of_program(
                common,
                words,
                file.naming,
            ))))?;
            unanswered += 1;
            continue;
        }
        unanswered -= 1;
        match machine.hear() {
            Ok(Reply::Submitted(job)) => code = code.max(tell(job)),
            Ok(_) => return Err(messages::odd(&machine.name)),
            Err(failure) => result = later(result.map(|()| 0), failure, format).map(drop),
        }
    }
    result.map(|()| code)
}

/// Returns the submission of one program.
fn of_program(common: &Submission, words: Vec<OsString>, naming: Naming) -> Submission {
    let mut submission = common.clone();
    let shown = words.iter().map(|word| word.to_string_lossy());
    submission.command = shown.collect::<Vec<_>>().join(" ");
    let mut words = words.into_iter();
    let program = words.next().unwrap_or_default();
    if naming == Naming::OfProgram {
        let name = program.to_string_lossy();
        submission.name = name.rsplit('/').next().unwrap_or_default().to_owned();
    }
    for app in &mut submission.spec.apps {
        app.program.clone_from(&program);
        app.args = words.by_ref().collect();
    }
    submission
}

/// Limits a job to the hosts that the command line names.
fn restrict(submission: &mut Submission, run: &crate::args::RunRequest) {
    for app in &mut submission.spec.placement.apps {
        if app.hosts.is_none() {
            app.hosts.clone_from(&run.hosts);
        }
    }
}

fn queue(which: &Which, request: &QueueRequest, world: &World) -> Result<u8, Failure> {
    let found = select(world, which.machine.as_deref())?;
    if request.watching == Watching::GoesOn {
        let over = request.over;
        return watch::watch(&found, &Listing::Jobs { over }, which.format);
    }
    let mut machine = Connection::to(&found)?;
    if !request.jobs.is_empty() {
        let mut result = Ok(exit::SUCCESS);
        for id in &request.jobs {
            match machine.ask(Ask::Job(*id)) {
                Ok(Reply::Job(record)) => {
                    let code = print(&job::details(&record, now(), which.format), which.format);
                    if code != exit::SUCCESS {
                        return Ok(code);
                    }
                }
                Ok(_) => return Err(messages::odd(&machine.name)),
                Err(failure) => result = later(result, failure, which.format),
            }
        }
        return result;
    }
    let Reply::Jobs { records, .. } = machine.ask(Ask::Jobs {
        over: request.over,
        before: None,
    })?
    else {
        return Err(messages::odd(&machine.name));
    };
    Ok(print(
        &list::jobs(&records, now(), which.format),
        which.format,
    ))
}

/// Waits for jobs. The exit code is that of the first one in the order of the command line that has not succeeded.
fn wait(which: &Which, jobs: Vec<JobId>, world: &World) -> Result<u8, Failure> {
    let mut machine = connect(which, world)?;
    let order: Vec<JobId> = jobs.clone();
    let Reply::Over(records) = machine.ask_patiently(Ask::Wait(jobs))? else {
        return Err(messages::odd(&machine.name));
    };
    let mut code = exit::SUCCESS;
    let mut told = BTreeSet::new();
    for id in order {
        let record = records.iter().find(|record| record.id == id);
        let Some(record) = record.filter(|_| told.insert(id)) else {
            continue;
        };
        if which.format == MessageFormat::Json {
            print(&job::details(record, now(), which.format), which.format);
        }
        if record.state() != State::Succeeded {
            if which.format == MessageFormat::Text {
                say(&messages::not_succeeded(record), which.format);
            }
            if code == exit::SUCCESS {
                code = exit_code(record);
            }
        }
    }
    Ok(code)
}

/// Returns the exit code of a job that is over.
fn exit_code(record: &Record) -> u8 {
    use dvm::machine::Failure;
    match (record.state(), &record.failure) {
        (State::Succeeded, _) => exit::SUCCESS,
        (_, Some((_, failure))) => match &**failure {
            Failure::Ended(outcome) => exit::code_of(outcome),
            Failure::Refused(_) => ExitCode::Placement.code(),
            Failure::MachineLost => exit::INTERNAL,
            Failure::OutputLost(_) => ExitCode::BadFile.code(),
        },
        (_, None) => canceled_code(),
    }
}

fn nodes(which: &Which, request: NodesRequest, world: &World) -> Result<u8, Failure> {
    let found = select(world, which.machine.as_deref())?;
    if request.watching == Watching::GoesOn {
        return watch::watch(&found, &Listing::Nodes, which.format);
    }
    let mut machine = Connection::to(&found)?;
    if let Some(additions) = request.add {
        // Each step of a start has its deadline at the machine.
        let added = machine.ask_patiently(Ask::Add(Box::new(additions)))?;
        let Reply::Added(added) = added else {
            return Err(messages::odd(&machine.name));
        };
        let (messages, code) = messages::added(&added, &machine.name);
        for message in messages {
            say(&message, which.format);
        }
        return Ok(code);
    }
    if let Some((hosts, down)) = request.drop {
        machine.ask_patiently(Ask::Drop(hosts, down))?;
        return Ok(exit::SUCCESS);
    }
    if request.drain.is_some() || request.resume.is_some() {
        if let Some(hosts) = request.drain {
            machine.ask(Ask::Drain(hosts))?;
        }
        if let Some(hosts) = request.resume {
            machine.ask(Ask::Resume(hosts))?;
        }
        return Ok(exit::SUCCESS);
    }
    let Reply::Nodes(nodes) = machine.ask(Ask::Nodes)? else {
        return Err(messages::odd(&machine.name));
    };
    let code = print(&list::nodes(&nodes, which.format), which.format);
    if let Some(message) = messages::bad_nodes(&nodes)
        && which.format == MessageFormat::Text
    {
        say(&message, which.format);
    }
    Ok(code)
}

/// Returns the time of day, in milliseconds since 1970.
pub(crate) fn now() -> dvm::machine::Wall {
    let (seconds, nanos) = os::wall_clock();
    let millis = u64::try_from(seconds).unwrap_or_default() * 1000 + u64::from(nanos) / 1_000_000;
    dvm::machine::Wall(millis)
}
