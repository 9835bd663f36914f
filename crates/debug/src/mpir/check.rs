//! Checks whether a starter keeps to "The MPIR Process Acquisition Interface": behaves as a debugger, and judges each
//! [`Statement`] by what it sees.
//!
//! [`Check`] decides what the debugger does next and what that says about the launcher. Its host starts processes, traces them
//! and reads them. The host carries out each [`Order`] in turn; some are answered by one [`Answer`]. The launcher is started
//! once for each [`Act`]:
//!
//! | act | step | answer | order | next step |
//! |---|---|---|---|---|
//! | launch, detach, failure, daemons | – | | start under control | starting |
//! | | starting | a program without symbols (a wrapper) | run | starting |
//! | | starting, announcing | a program with symbols | arm, run | announcing |
//! | | announcing | breakpoint, state 0 | run | announcing |
//! | | | breakpoint, state 1 | look (launch), leave (detach), kill a rank and run (failure), look for daemons (daemons) | looking, leaving, failing, requesting |
//! | | | breakpoint, another state | finish | – |
//! | launch | looking | ranks | keep one rank, or release | keeping, releasing |
//! | | keeping | done, failed | release | releasing |
//! | | releasing | ranks | let the kept rank go, run | running |
//! | | | breakpoint | release | releasing |
//! | | running | breakpoint | run | running |
//! | | | end, nothing for a while | finish | – |
//! | detach | leaving | done | await the end | ending |
//! | | ending | end | finish | – |
//! | | | nothing for a while | look | surviving |
//! | | surviving | ranks | finish | – |
//! | failure | failing | breakpoint, state 2 | run | failing |
//! | | | end, nothing for a while | finish | – |
//! | daemons | requesting | daemons | finish | – |
//! | | | breakpoint | look for daemons | requesting |
//! | attach | – | | start, read the table | reading |
//! | | reading | table, or none in time | seize | seizing |
//! | | seizing | done | look | watching |
//! | | watching | ranks | arm, write to the FIFO, run; or leave | signalling, parting |
//! | | signalling | breakpoint, nothing for a while | look for daemons | counting |
//! | | counting | daemons | the FIFO again, or leave | signalling, parting |
//! | | parting | done | await the end for a short while | parted |
//! | | parted | end, nothing for a while | finish | – |
//!
//! In every step, the end of the launcher, a failure of the host, and a breakpoint that does not come in time end the act. What
//! the act has not judged by then is *not checked*, with the reason. After *finish* the host ends what is left of the launcher.

mod facts;
mod judge;
mod order;
mod statement;

use std::{
    collections::{BTreeMap, VecDeque, btree_map::Entry},
    time::Duration,
};

use base::ExitStatus;

use self::{
    facts::ended,
    judge::{ABORTING, SPAWNED},
    statement::Statement as S,
};
pub use self::{
    facts::{Here, Linked, RankFacts, Said, SymbolFacts},
    order::{Answer, Order, Output},
    statement::{Act, Finding, Statement, Verdict},
};
use crate::mpir::{Symbol, Table};

/// The reason for what an act that is over has not judged.
const NOTHING: &str = "it did not come to that";

/// The share of the limit for which a table is awaited that may be filled on request only: one third.
const REQUEST_SHARE: u32 = 3;

/// Maximum number of calls of the breakpoint in one act; more of them end the act.
const CALLS_MAX: u32 = 1_000;

/// Maximum number of programs that the launcher executes in one act before it announces the ranks: wrappers around it.
const PROGRAMS_MAX: u32 = 100;

/// What the user has chosen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Options {
    /// The longest wait for the launcher to do what it should.
    pub limit: Duration,
    /// How long ranks are watched while they should be held.
    pub hold: Duration,
    /// How long the job may run when nothing is awaited any more.
    pub run: Duration,
    /// The number of ranks that the command line asks for, if it is known.
    pub ranks: Option<u32>,
}

/// Where an act is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Step {
    Starting,
    Announcing { ignored: u32 },
    Looking,
    Keeping { row: usize },
    Releasing { kept: Option<usize> },
    Running,
    Leaving,
    Ending,
    Surviving,
    Failing,
    Reading,
    Seizing,
    Watching,
    Signalling { time: u32 },
    Counting { time: u32, called: Called },
    Requesting,
    Parting,
    Parted,
    Finishing,
}

/// Whether `MPIR_Breakpoint` was called after a byte was written into the FIFO.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Called {
    No,
    WithTable,
    WithoutTable,
}

/// The check of one launcher.
#[derive(Debug)]
pub struct Check {
    options: Options,
    act: Act,
    step: Step,
    outputs: VecDeque<Output>,
    findings: BTreeMap<S, Finding>,
    facts: Option<SymbolFacts>,
    table: Option<Table>,
    /// The ranks while the starter was stopped by a debugger that has attached to it.
    watched: Vec<RankFacts>,
    /// The number of daemons on this node that the FIFO has led to.
    daemons: usize,
    /// How the launcher ended in the first act.
    usual: Option<ExitStatus>,
    calls: u32,
    programs: u32,
    is_over: bool,
}

impl Check {
    /// Returns a check, and its first orders.
    #[must_use]
    pub fn new(options: Options) -> Self {
        let mut this = Self {
            options,
            act: Act::Launch,
            step: Step::Starting,
            outputs: VecDeque::new(),
            findings: BTreeMap::new(),
            facts: None,
            table: None,
            watched: Vec::new(),
            daemons: 0,
            usual: None,
            calls: 0,
            programs: 0,
            is_over: false,
        };
        this.begin(Act::Launch);
        this
    }

    /// Returns the next order or finding; `None` if the host has to answer, or the check is over.
    pub fn poll(&mut self) -> Option<Output> {
        self.outputs.pop_front()
    }

    /// Returns true if there will be no further output after those that [`Self::poll`] still has.
    #[must_use]
    pub const fn is_over(&self) -> bool {
        self.is_over
    }

    /// Returns the symbols of the starter; `None` if it has none.
    #[must_use]
    pub const fn facts(&self) -> Option<&SymbolFacts> {
        self.facts.as_ref()
    }

    /// Returns all findings so far, in the order of the statements.
    pub fn findings(&self) -> impl Iterator<Item = &Finding> {
        self.findings.values()
    }

    /// Handles an answer of the host. One that does not fit ends the act.
    pub fn handle(&mut self, answer: Answer) {
        match (self.step, answer) {
            (Step::Finishing, _) => self.next_act(),
            (_, Answer::Failed(why)) => self.on_failed(&why),
            (step, Answer::Program(facts)) => self.on_program(step, facts),
            (step, Answer::Breakpoint(said)) => self.on_breakpoint(step, said),
            (step, Answer::Ranks { first, last }) => self.on_ranks(step, &first, last),
            (
                step,
                Answer::Daemons {
                    found,
                    wanted,
                    ranks,
                },
            ) => self.on_daemons(step, &found, &wanted, &ranks),
            (Step::Reading, Answer::Read(read)) => self.on_read(read),
            (step, Answer::Done) => self.on_done(step),
            (step, Answer::Ended(status)) => self.on_ended(step, status),
            (step, Answer::Late) => self.on_late(step),
            (_, Answer::Read(_) | Answer::Finished) => {
                self.finish("the answer of the host does not fit");
            }
        }
    }

    fn begin(&mut self, act: Act) {
        self.act = act;
        self.calls = 0;
        self.programs = 0;
        self.table = None;
        if act == Act::Attach {
            self.step = Step::Reading;
            self.order(Order::Start);
            let limit = self.options.limit;
            let with_fifo = self.options.limit / REQUEST_SHARE;
            return self.order(Order::Read { limit, with_fifo });
        }
        self.step = Step::Starting;
        let limit = self.options.limit;
        self.order(Order::StartControlled { limit });
    }

    fn next_act(&mut self) {
        let next = Act::ALL.into_iter().find(|act| *act > self.act);
        match next {
            // Without symbols there is nothing to do for a debugger.
            Some(Act::Daemons) if self.facts.is_some() && !self.takes_daemons() => {
                for statement in [S::Colocated, S::Arguments] {
                    let why = "it does not have MPIR_executable_path and MPIR_server_arguments";
                    self.find(Finding::new(statement, Verdict::NotApplicable, why));
                }
                self.is_over = true;
            }
            Some(act) if self.facts.is_some() => self.begin(act),
            _ => {
                for statement in S::ALL {
                    self.find(judge::unchecked(statement, "the launcher has no symbols"));
                }
                self.is_over = true;
            }
        }
    }

    /// Ends the act. What it has not judged was not checked for this reason.
    fn finish(&mut self, why: &str) {
        for statement in S::ALL {
            if statement.act() == self.act {
                self.find(judge::unchecked(statement, why));
            }
        }
        self.step = Step::Finishing;
        // Orders that have not been carried out are about a launcher that is given up.
        self.outputs
            .retain(|output| matches!(output, Output::Finding(_)));
        self.order(Order::Finish);
    }

    fn order(&mut self, order: Order) {
        self.outputs.push_back(Output::Order(order));
    }

    fn run(&mut self) {
        let limit = self.options.limit;
        self.order(Order::Run { limit });
    }

    /// Keeps the first judgement of a statement, and has it shown.
    fn find(&mut self, finding: Finding) {
        if let Entry::Vacant(place) = self.findings.entry(finding.statement) {
            place.insert(finding.clone());
            self.outputs.push_back(Output::Finding(finding));
        }
    }

    fn takes_daemons(&self) -> bool {
        self.has(Symbol::ExecutablePath) && self.has(Symbol::ServerArguments)
    }

    fn has(&self, symbol: Symbol) -> bool {
        self.facts.as_ref().is_some_and(|facts| facts.has(symbol))
    }

    fn on_program(&mut self, step: Step, facts: Option<SymbolFacts>) {
        self.programs += 1;
        if self.programs > PROGRAMS_MAX {
            return self.finish("the launcher executes too many programs");
        }
        let is_before = matches!(step, Step::Starting | Step::Announcing { .. });
        let Some(facts) = facts else {
            // A wrapper, which goes on to execute the launcher.
            return self.run();
        };
        if !is_before {
            return self.run();
        }
        for finding in judge::symbols(&facts) {
            self.find(finding);
        }
        self.facts = Some(facts);
        self.step = Step::Announcing { ignored: 0 };
        self.order(Order::Arm);
        if self.act == Act::Daemons {
            self.order(Order::Request);
        }
        self.run();
    }

    fn on_breakpoint(&mut self, step: Step, said: Said) {
        self.calls += 1;
        if self.calls > CALLS_MAX {
            return self.finish("MPIR_Breakpoint was called too often");
        }
        match step {
            Step::Announcing { ignored } if said.state == 0 => {
                self.step = Step::Announcing {
                    ignored: ignored + 1,
                };
                self.run();
            }
            Step::Announcing { ignored } => self.on_announced(&said, ignored),
            Step::Releasing { .. } | Step::Running => {
                if let (SPAWNED, Some(table)) = (said.state, &self.table) {
                    let again = judge::again(table, &said);
                    self.find(again);
                }
                if let Ok(table) = said.table {
                    self.table = Some(table);
                }
                match step {
                    Step::Releasing { .. } => self.release(),
                    _ => self.order(Order::Run {
                        limit: self.options.run,
                    }),
                }
            }
            Step::Failing => {
                if said.state == ABORTING
                    && let Some(facts) = &self.facts
                {
                    let aborted = judge::aborted(facts, Some(&said), None);
                    self.find(aborted);
                }
                self.run();
            }
            Step::Signalling { time } => {
                let called = match said.table {
                    Ok(_) => Called::WithTable,
                    Err(_) => Called::WithoutTable,
                };
                self.count(time, called);
            }
            Step::Requesting => {
                let limit = self.options.limit;
                self.order(Order::Daemons { limit });
            }
            _ => self.run(),
        }
    }

    /// Handles the first call of the breakpoint that says something.
    fn on_announced(&mut self, said: &Said, ignored: u32) {
        if self.act == Act::Launch {
            for finding in judge::spawned(said, ignored) {
                self.find(finding);
            }
        }
        if said.state != SPAWNED {
            let reason = said.reason.as_deref().unwrap_or("it gives no reason");
            return self.finish(&format!("the launcher has ended the job: {reason}"));
        }
        if self.act == Act::Launch {
            for finding in judge::table(&said.table, self.options.ranks) {
                self.find(finding);
            }
        }
        let Ok(table) = &said.table else {
            return self.finish("there is no table");
        };
        self.table = Some(table.clone());
        match self.act {
            Act::Detach => self.leave(Step::Leaving),
            Act::Failure => {
                self.step = Step::Failing;
                self.order(Order::Kill { row: 0 });
                self.run();
            }
            Act::Daemons => {
                self.step = Step::Requesting;
                let limit = self.options.limit;
                self.order(Order::Daemons { limit });
            }
            Act::Launch | Act::Attach => {
                self.step = Step::Looking;
                let between = self.options.hold;
                self.order(Order::Look { between });
            }
        }
    }

    fn on_ranks(&mut self, step: Step, first: &[RankFacts], last: Vec<RankFacts>) {
        match step {
            Step::Looking => {
                let Some(facts) = self.facts.clone() else {
                    return self.finish("the launcher has no symbols");
                };
                for finding in judge::processes(first) {
                    self.find(finding);
                }
                for finding in judge::held(&facts, first, &last, self.options.hold) {
                    self.find(finding);
                }
                self.keep_one(&last);
            }
            Step::Releasing { kept } => {
                self.find(judge::released(&last, kept));
                if let Some(row) = kept {
                    self.find(judge::partial(&last, row));
                    self.order(Order::LetGo);
                }
                self.step = Step::Running;
                let limit = self.options.run;
                self.order(Order::Run { limit });
            }
            Step::Surviving => {
                self.find(judge::detached(None, None, &last));
                self.finish(NOTHING);
            }
            Step::Watching => {
                self.watched = last;
                if self.facts.as_ref().is_some_and(|it| it.fifo.is_some()) {
                    self.order(Order::Arm);
                    if self.takes_daemons() {
                        self.order(Order::Request);
                    }
                    return self.signal(1);
                }
                self.find(Finding::new(
                    S::Fifo,
                    Verdict::NotApplicable,
                    "it has no attach FIFO",
                ));
                self.find(Finding::new(
                    S::FifoAgain,
                    Verdict::NotApplicable,
                    "it has no attach FIFO",
                ));
                self.leave(Step::Parting);
            }
            _ => self.finish("the answer of the host does not fit"),
        }
    }

    /// Attaches to one rank, if the launcher allows to keep it, and to release the others.
    fn keep_one(&mut self, ranks: &[RankFacts]) {
        if !self.has(Symbol::PartialAttachOk) {
            self.find(Finding::new(
                S::Partial,
                Verdict::NotApplicable,
                "it does not have MPIR_partial_attach_ok",
            ));
            self.step = Step::Releasing { kept: None };
            return self.release();
        }
        let is_here = |(_, rank): &(usize, &RankFacts)| matches!(rank, RankFacts::Here(_));
        let mut here = ranks.iter().enumerate().filter(is_here).rev();
        match (here.next(), here.next()) {
            (Some((row, _)), Some(_)) => {
                self.step = Step::Keeping { row };
                self.order(Order::Keep { row });
            }
            _ => {
                let why = "fewer than two ranks are on this node";
                self.find(judge::unchecked(S::Partial, why));
                self.step = Step::Releasing { kept: None };
                self.release();
            }
        }
    }

    fn release(&mut self) {
        let limit = self.options.limit;
        self.order(Order::Release { limit });
    }

    fn leave(&mut self, next: Step) {
        self.step = next;
        self.order(Order::Leave);
    }

    fn signal(&mut self, time: u32) {
        self.step = Step::Signalling { time };
        let limit = self.options.limit;
        self.order(Order::Signal { limit });
    }

    fn count(&mut self, time: u32, called: Called) {
        self.step = Step::Counting { time, called };
        let limit = Duration::ZERO;
        self.order(Order::Daemons { limit });
    }

    fn on_daemons(
        &mut self,
        step: Step,
        found: &[Vec<String>],
        wanted: &[String],
        ranks: &[RankFacts],
    ) {
        match step {
            Step::Counting { time, called } => {
                let new = found.len().saturating_sub(self.daemons);
                self.daemons = found.len();
                self.find(judge::fifo(time, called, new));
                if time == 1 {
                    self.signal(2);
                } else {
                    self.leave(Step::Parting);
                }
            }
            Step::Requesting => {
                for finding in judge::daemons(found, wanted, ranks) {
                    self.find(finding);
                }
                self.finish(NOTHING);
            }
            _ => self.finish("the answer of the host does not fit"),
        }
    }

    fn on_read(&mut self, read: Option<(SymbolFacts, Said)>) {
        let Some((facts, said)) = read else {
            return self.finish("the running launcher has no symbols");
        };
        let has_table = said.table.is_ok();
        // Where the table is filled on request, that is right too; the FIFO shows whether it is.
        if has_table || facts.fifo.is_none() {
            self.find(judge::attached(&said));
        } else {
            let why = "the table is filled when a debugger asks for it by the FIFO";
            self.find(Finding::new(S::Attached, Verdict::NotApplicable, why));
        }
        self.facts = Some(facts);
        self.table = said.table.ok();
        self.step = Step::Seizing;
        self.order(Order::Seize);
    }

    fn on_done(&mut self, step: Step) {
        match step {
            Step::Keeping { row } => {
                self.step = Step::Releasing { kept: Some(row) };
                self.release();
            }
            Step::Leaving => {
                self.step = Step::Ending;
                let limit = self.options.run;
                self.order(Order::Await { limit });
            }
            Step::Seizing => {
                self.step = Step::Watching;
                let between = Duration::ZERO;
                self.order(Order::Look { between });
            }
            Step::Parting => {
                self.step = Step::Parted;
                let limit = self.options.hold;
                self.order(Order::Await { limit });
            }
            _ => self.finish("the answer of the host does not fit"),
        }
    }

    fn on_failed(&mut self, why: &str) {
        match self.step {
            // Only the statement about this rank is lost.
            Step::Keeping { .. } => {
                self.find(judge::unchecked(S::Partial, why));
                self.step = Step::Releasing { kept: None };
                self.release();
            }
            Step::Signalling { time } => {
                let mut finding = judge::fifo(time, Called::No, 0);
                finding.seen = why.to_owned();
                self.find(finding);
                self.find(judge::unchecked(S::FifoAgain, "it could not be used"));
                self.leave(Step::Parting);
            }
            _ => self.finish(why),
        }
    }

    fn on_ended(&mut self, step: Step, status: ExitStatus) {
        let how = format!("the launcher {}", ended(status));
        match step {
            Step::Starting => {
                if self.act == Act::Launch {
                    let seen = format!(
                        "no program that it has executed has them, and it {}",
                        ended(status)
                    );
                    self.find(Finding::new(S::Symbols, Verdict::Wrong, seen));
                }
                self.finish(&how);
            }
            Step::Announcing { .. } if self.act == Act::Launch => {
                let seen = format!("it was not called, and {how}");
                self.find(Finding::new(S::Announced, Verdict::Wrong, seen));
                self.finish("MPIR_Breakpoint was not called");
            }
            Step::Releasing { kept } => {
                // It would not have ended with a rank that is held.
                let verdict = match status {
                    ExitStatus::Exited(_) => Verdict::Right,
                    _ => Verdict::Wrong,
                };
                self.find(Finding::new(S::Released, verdict, how.clone()));
                if kept.is_some() {
                    let seen = format!("{how} while a debugger kept a rank");
                    self.find(Finding::new(S::Partial, Verdict::Wrong, seen));
                }
                self.on_job_over(status);
            }
            Step::Running => self.on_job_over(status),
            Step::Ending => {
                self.find(judge::detached(Some(status), self.usual, &[]));
                self.finish(NOTHING);
            }
            Step::Failing => {
                if let Some(facts) = &self.facts {
                    let finding = judge::aborted(facts, None, Some(status));
                    self.find(finding);
                }
                self.finish(NOTHING);
            }
            Step::Parted => self.on_parted(Some(status)),
            Step::Reading | Step::Seizing | Step::Watching => {
                self.finish(&format!(
                    "{how} too early: give it a program that runs longer"
                ));
            }
            _ => self.finish(&how),
        }
    }

    /// Handles the end of the job under the debugger.
    fn on_job_over(&mut self, status: ExitStatus) {
        // An end by a signal is not one that the launcher should have without a debugger.
        self.usual = Some(status).filter(|status| matches!(status, ExitStatus::Exited(_)));
        self.nothing_came();
        self.finish(NOTHING);
    }

    fn nothing_came(&mut self) {
        let seen = "the job got no more processes, or it was not announced";
        self.find(Finding::new(S::Again, Verdict::NotApplicable, seen));
    }

    fn on_parted(&mut self, status: Option<ExitStatus>) {
        let watched = std::mem::take(&mut self.watched);
        self.find(judge::no_barrier(&watched, status));
        self.finish(NOTHING);
    }

    fn on_late(&mut self, step: Step) {
        match step {
            Step::Starting => self.finish("the launcher does not begin"),
            Step::Announcing { .. } if self.act == Act::Launch => {
                let seen = format!("not within {}", seconds(self.options.limit));
                self.find(Finding::new(S::Announced, Verdict::Wrong, seen));
                self.finish("MPIR_Breakpoint was not called");
            }
            Step::Running => {
                self.nothing_came();
                self.finish(NOTHING);
            }
            Step::Ending => {
                self.step = Step::Surviving;
                let between = Duration::ZERO;
                self.order(Order::Look { between });
            }
            Step::Failing => {
                if let Some(facts) = &self.facts {
                    let finding = judge::aborted(facts, None, None);
                    self.find(finding);
                }
                self.finish(NOTHING);
            }
            Step::Signalling { time } => {
                self.count(time, Called::No);
            }
            Step::Parted => self.on_parted(None),
            _ => {
                let limit = seconds(self.options.limit);
                self.finish(&format!("the launcher did nothing within {limit}"));
            }
        }
    }
}

/// Returns a time in seconds, for the user.
fn seconds(time: Duration) -> String {
    format!("{} s", time.as_secs_f64())
}

#[cfg(test)]
mod tests;
