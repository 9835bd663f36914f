//! Checks of made-up launchers.

use base::Signal;

use super::*;
use crate::mpir::{Miss, Row, RowType};

const OPTIONS: Options = Options {
    limit: Duration::from_secs(30),
    hold: Duration::from_millis(500),
    run: Duration::from_secs(5),
    ranks: Some(3),
};

/// A launcher, and how it behaves. The default is right in everything, and has every optional part.
#[derive(Clone)]
struct Launcher {
    /// What its programs have, one after another.
    programs: Vec<Option<SymbolFacts>>,
    said: Said,
    /// What it says after a rank was killed.
    abort: Option<Said>,
    /// What it says when there is no breakpoint: the answer to [`Order::Run`] before it has announced the ranks.
    instead: Option<Answer>,
    /// The ranks while they are held, and later.
    held: Vec<RankFacts>,
    later: Vec<RankFacts>,
    /// The ranks in a job without a debugger.
    running: Vec<RankFacts>,
    /// The answers to these orders.
    keep: Answer,
    signal: Answer,
    daemons: Vec<Vec<String>>,
    end: Option<ExitStatus>,
    /// The orders that it was given, in this act.
    given: Vec<Order>,
}

fn facts(symbols: &[(Symbol, u64)]) -> SymbolFacts {
    SymbolFacts {
        file: "srun".into(),
        sizes: symbols.iter().copied().collect(),
        row_type: RowType::Described,
        being_debugged: 0,
        fifo: None,
    }
}

const NEEDED: [(Symbol, u64); 5] = [
    (Symbol::Proctable, 8),
    (Symbol::ProctableSize, 4),
    (Symbol::BeingDebugged, 4),
    (Symbol::DebugState, 4),
    (Symbol::Breakpoint, 2),
];

const OPTIONAL: [(Symbol, u64); 7] = [
    (Symbol::DebugAbortString, 8),
    (Symbol::IAmStarter, 4),
    (Symbol::AcquiredPreMain, 4),
    (Symbol::PartialAttachOk, 4),
    (Symbol::ExecutablePath, 256),
    (Symbol::ServerArguments, 4096),
    (Symbol::AttachFifo, 256),
];

fn table(pids: &[i32]) -> Table {
    let row = |pid: &i32| Row {
        host: "n1".into(),
        program: "/bin/a".into(),
        pid: *pid,
    };
    Table {
        rows: pids.iter().map(row).collect(),
        texts: 2,
    }
}

fn rank(rank: u32, state: char, linked: Linked) -> RankFacts {
    RankFacts::Here(Here {
        state,
        cpu: Duration::ZERO,
        program: "/bin/a".into(),
        is_named: Some(true),
        rank: Some(rank),
        linked,
    })
}

fn ranks(state: char, linked: Linked) -> Vec<RankFacts> {
    (0..3).map(|number| rank(number, state, linked)).collect()
}

fn words() -> Vec<String> {
    ["daemon", "two words"].map(str::to_owned).to_vec()
}

impl Default for Launcher {
    fn default() -> Self {
        let symbols = [NEEDED.as_slice(), &OPTIONAL].concat();
        let said = Said {
            state: 1,
            table: Ok(table(&[10, 11, 12])),
            reason: None,
        };
        let mut later = ranks('S', Linked::WithMpi);
        later[2] = rank(2, 't', Linked::NotYet);
        Self {
            programs: vec![
                // A shell that executes the launcher.
                None,
                Some(SymbolFacts {
                    fifo: Some("/tmp/fifo".into()),
                    ..facts(&symbols)
                }),
            ],
            abort: Some(Said {
                state: 2,
                reason: Some("rank 0 was killed".into()),
                ..said.clone()
            }),
            said: said.clone(),
            instead: None,
            held: ranks('T', Linked::NotYet),
            later,
            running: ranks('S', Linked::WithMpi),
            keep: Answer::Done,
            signal: Answer::Breakpoint(said),
            daemons: vec![words()],
            end: Some(ExitStatus::SUCCESS),
            given: Vec::new(),
        }
    }
}

impl Launcher {
    fn was_given(&self, what: impl Fn(&Order) -> bool) -> usize {
        self.given.iter().filter(|order| what(order)).count()
    }

    fn end(&self) -> Answer {
        self.end.map_or(Answer::Late, Answer::Ended)
    }

    fn carry_out(&mut self, order: Order) -> Option<Answer> {
        self.given.push(order.clone());
        match order {
            Order::StartControlled { .. } => Some(Answer::Program(self.programs[0].clone())),
            Order::Run { .. } => {
                let runs = self.was_given(|order| matches!(order, Order::Run { .. }));
                let killed = self.was_given(|order| matches!(order, Order::Kill { .. }));
                if let Some(program) = self.programs.get(runs) {
                    Some(Answer::Program(program.clone()))
                } else if runs == self.programs.len() {
                    let said = Answer::Breakpoint(self.said.clone());
                    Some(self.instead.clone().unwrap_or(said))
                } else if runs == self.programs.len() + 1 && killed > 0 {
                    let killed = ExitStatus::Signaled {
                        signal: Signal::KILL,
                        core_dumped: false,
                    };
                    Some(match &self.abort {
                        Some(said) => Answer::Breakpoint(said.clone()),
                        None => Answer::Ended(killed),
                    })
                } else {
                    Some(self.end())
                }
            }
            Order::Look { .. } => {
                let ranks = if self.was_given(|it| matches!(it, Order::Seize | Order::Leave)) > 0 {
                    &self.running
                } else {
                    &self.held
                };
                let ranks = ranks.clone();
                Some(Answer::Ranks {
                    first: ranks.clone(),
                    last: ranks,
                })
            }
            Order::Keep { .. } => Some(self.keep.clone()),
            Order::Release { .. } => Some(Answer::Ranks {
                first: self.later.clone(),
                last: self.later.clone(),
            }),
            Order::Start | Order::Arm | Order::Request | Order::LetGo | Order::Kill { .. } => None,
            Order::Leave | Order::Seize => Some(Answer::Done),
            Order::Await { .. } => Some(self.end()),
            Order::Read { .. } => {
                let facts = self.programs.last().cloned().flatten();
                Some(Answer::Read(facts.map(|facts| (facts, self.said.clone()))))
            }
            Order::Signal { .. } => Some(self.signal.clone()),
            Order::Daemons { .. } => {
                let signals = self.was_given(|order| matches!(order, Order::Signal { .. }));
                Some(Answer::Daemons {
                    found: vec![self.daemons.clone(); signals.max(1)].concat(),
                    wanted: words(),
                    ranks: self.held.clone(),
                })
            }
            Order::Finish => {
                self.given.clear();
                Some(Answer::Finished)
            }
        }
    }

    /// Checks the launcher. Returns a line for each finding, in the order in which they are made.
    fn checked(mut self) -> String {
        let mut check = Check::new(OPTIONS);
        let mut text = String::new();
        let mut turns = 0;
        while !check.is_over() || !check.outputs.is_empty() {
            turns += 1;
            assert!(turns < 10_000, "it does not end");
            match check.poll() {
                Some(Output::Finding(finding)) => {
                    let Finding {
                        statement,
                        verdict,
                        seen,
                    } = finding;
                    text += &format!("{verdict:?} {}: {seen}\n", statement.id());
                }
                Some(Output::Order(order)) => {
                    if let Some(answer) = self.carry_out(order) {
                        check.handle(answer);
                    }
                }
                None => panic!("nothing is ordered in {:?}", check.step),
            }
        }
        assert_eq!(check.findings().count(), S::ALL.len(), "{text}");
        text
    }
}

#[test]
fn a_launcher_that_does_everything() {
    insta::assert_snapshot!(Launcher::default().checked(), @"
    Right symbols: all are there, in `srun`
    Right sizes: as the types have; MPIR_executable_path[256], MPIR_server_arguments[4096], MPIR_attach_fifo[256]
    Right row-type: MPIR_PROCDESC is described
    Right starter: it is there
    Right unset: it is 0 when the program begins
    Right daemons: MPIR_executable_path and MPIR_server_arguments are there
    Right announced: it was called
    Right spawned: it is 1
    Right table: 3 rows on 1 host
    Right strings: 2 strings for 2 names
    Right processes: 3 processes live on this node
    Right order: so say the environments of 3 processes
    Right held: 3 of 3 ranks stopped
    Right pre-main: 3 of 3 ranks stopped
    Right released: 2 run, 0 have ended
    Right partial: row 2 stayed stopped
    NotApplicable again: the job got no more processes, or it was not announced
    Right detached: the launcher ended with code 0
    Right attached: 3 rows, MPIR_debug_state is 1
    Right fifo: MPIR_Breakpoint was called, 1 daemon was started
    Right fifo-again: MPIR_Breakpoint was called, 1 daemon was started
    Right no-barrier: the launcher ended with code 0 later
    Right aborted: state 2: rank 0 was killed
    Right colocated: it runs on this node
    Right arguments: `daemon` `two words`
    ");
}

#[test]
fn a_launcher_that_does_only_what_it_must() {
    let launcher = Launcher {
        programs: vec![Some(facts(&NEEDED))],
        held: ranks('S', Linked::WithMpi),
        later: ranks('S', Linked::WithMpi),
        abort: None,
        // The job runs longer than anybody waits.
        end: None,
        ..Launcher::default()
    };
    insta::assert_snapshot!(launcher.checked(), @"
    Right symbols: all are there, in `srun`
    Right sizes: as the types have
    Right row-type: MPIR_PROCDESC is described
    NotApplicable starter: it is not there, so debuggers take the launcher for rank 0
    Right unset: it is 0 when the program begins
    NotApplicable daemons: it has neither
    Right announced: it was called
    Right spawned: it is 1
    Right table: 3 rows on 1 host
    Right strings: 2 strings for 2 names
    Right processes: 3 processes live on this node
    Right order: so say the environments of 3 processes
    Right held: 0 of 3 ranks stopped; the others wait, in MPI_Init or before
    NotApplicable pre-main: it does not have MPIR_acquired_pre_main
    NotApplicable partial: it does not have MPIR_partial_attach_ok
    Right released: 3 run, 0 have ended
    NotApplicable again: the job got no more processes, or it was not announced
    Right detached: the launcher and its ranks run
    Right attached: 3 rows, MPIR_debug_state is 1
    NotApplicable fifo: it has no attach FIFO
    NotApplicable fifo-again: it has no attach FIFO
    Right no-barrier: the launcher and its ranks run
    NotApplicable aborted: it does not have MPIR_debug_abort_string; the launcher was ended by SIGKILL
    NotApplicable colocated: it does not have MPIR_executable_path and MPIR_server_arguments
    NotApplicable arguments: it does not have MPIR_executable_path and MPIR_server_arguments
    ");
}

#[test]
fn a_launcher_that_does_everything_wrong() {
    let default = Launcher::default();
    let mut symbols = facts(&[
        (Symbol::Proctable, 4),
        (Symbol::ProctableSize, 8),
        (Symbol::Breakpoint, 0),
        (Symbol::BeingDebugged, 4),
        (Symbol::AcquiredPreMain, 1),
        (Symbol::PartialAttachOk, 1),
        (Symbol::ExecutablePath, 64),
        (Symbol::DebugAbortString, 8),
    ]);
    symbols.row_type = RowType::Absent;
    symbols.being_debugged = 1;
    symbols.fifo = Some("/tmp/fifo".into());
    let mut wrong = table(&[10, 10, 0, 13]);
    wrong.texts = 8;
    wrong.rows[3].host.clear();
    wrong.rows[3].program.clear();
    let said = Said {
        state: 1,
        table: Ok(wrong),
        reason: None,
    };
    let mut held = ranks('R', Linked::Loaded);
    held[0] = rank(1, 'T', Linked::Loaded);
    held[1] = RankFacts::Gone;
    let launcher = Launcher {
        programs: vec![Some(symbols)],
        abort: Some(Said {
            state: 2,
            ..said.clone()
        }),
        said,
        later: vec![
            rank(0, 'T', Linked::NotYet),
            RankFacts::Gone,
            rank(2, 'S', Linked::Loaded),
        ],
        held,
        running: ranks('T', Linked::Loaded),
        signal: Answer::Late,
        daemons: Vec::new(),
        end: Some(ExitStatus::Signaled {
            signal: Signal::SEGV,
            core_dumped: false,
        }),
        ..default
    };
    insta::assert_snapshot!(launcher.checked(), @"
    Wrong symbols: there is no MPIR_debug_state
    Wrong sizes: MPIR_proctable has 4 bytes instead of 8; MPIR_proctable_size has 8 bytes instead of 4; MPIR_executable_path has 64 bytes instead of 256
    Wrong row-type: MPIR_PROCDESC is not described, so debuggers assume the layout of C
    NotApplicable starter: it is not there, so debuggers take the launcher for rank 0
    Wrong unset: it is 1 when the program begins
    Wrong daemons: there is no MPIR_server_arguments
    Right announced: it was called
    Right spawned: it is 1
    Wrong table: row 3: no host; row 3: no program; row 2: no pid; row 1: the process of an earlier row; 4 rows instead of 3
    Wrong strings: 8 strings for 3 names
    Wrong processes: row 1: there is no such process
    Wrong order: row 0 is rank 1
    Wrong held: row 2: not stopped, and without an MPI library in which it could wait
    Wrong pre-main: rows 0,2: not stopped, or with libraries that are loaded before main
    Wrong released: row 0: still stopped
    Wrong partial: row 2 went on
    NotApplicable again: the job got no more processes, or it was not announced
    Wrong detached: the launcher was ended by SIGSEGV
    Right attached: 4 rows, MPIR_debug_state is 1
    Wrong fifo: MPIR_Breakpoint was not called, no daemon was started
    Wrong fifo-again: MPIR_Breakpoint was not called, no daemon was started
    Wrong no-barrier: rows 0-2: stopped
    Wrong aborted: state 2 without a reason
    NotApplicable colocated: it does not have MPIR_executable_path and MPIR_server_arguments
    NotApplicable arguments: it does not have MPIR_executable_path and MPIR_server_arguments
    ");
}

#[test]
fn what_the_host_cannot_do_is_not_held_against_the_launcher() {
    let why = "cannot attach to rank 2: the system does not let us trace it";
    let launcher = Launcher {
        keep: Answer::Failed(why.into()),
        signal: Answer::Failed("cannot open the FIFO `/tmp/fifo`: no such file".into()),
        held: vec![RankFacts::Elsewhere; 3],
        later: vec![RankFacts::Elsewhere; 3],
        running: vec![RankFacts::Elsewhere; 3],
        ..Launcher::default()
    };
    insta::assert_snapshot!(launcher.checked(), @"
    Right symbols: all are there, in `srun`
    Right sizes: as the types have; MPIR_executable_path[256], MPIR_server_arguments[4096], MPIR_attach_fifo[256]
    Right row-type: MPIR_PROCDESC is described
    Right starter: it is there
    Right unset: it is 0 when the program begins
    Right daemons: MPIR_executable_path and MPIR_server_arguments are there
    Right announced: it was called
    Right spawned: it is 1
    Right table: 3 rows on 1 host
    Right strings: 2 strings for 2 names
    NotChecked processes: no rank is on this node; run the check on a node of the job
    NotChecked order: no rank is on this node; run the check on a node of the job
    NotChecked held: no rank is on this node; run the check on a node of the job
    NotChecked pre-main: no rank is on this node; run the check on a node of the job
    NotChecked partial: fewer than two ranks are on this node
    NotChecked released: no rank is on this node; run the check on a node of the job
    NotApplicable again: the job got no more processes, or it was not announced
    Right detached: the launcher ended with code 0
    Right attached: 3 rows, MPIR_debug_state is 1
    Wrong fifo: cannot open the FIFO `/tmp/fifo`: no such file
    NotChecked fifo-again: it could not be used
    Right no-barrier: the launcher ended with code 0 later
    Right aborted: state 2: rank 0 was killed
    NotChecked colocated: no rank is on this node; run the check on a node of the job
    NotChecked arguments: no rank is on this node; run the check on a node of the job
    ");
    let launcher = Launcher {
        keep: Answer::Failed(why.into()),
        later: ranks('S', Linked::Loaded),
        ..Launcher::default()
    };
    let text = launcher.checked();
    assert!(
        text.contains(&format!("NotChecked partial: {why}\n")),
        "{text}"
    );
    assert!(text.contains("Right released"), "{text}");
}

/// What makes a check impossible ends it early, and each statement says so.
#[test]
fn launchers_that_do_not_come_so_far() {
    let ended = |code| Some(Answer::Ended(ExitStatus::Exited(code)));
    let of = |launcher: Launcher, ids: &[&str]| {
        let text = launcher.checked();
        let wanted = |line: &&str| {
            let id = line.split([' ', ':']).nth(1).unwrap();
            ids.contains(&id)
        };
        text.lines().filter(wanted).collect::<Vec<_>>().join("\n")
    };
    let ids = [
        "symbols",
        "announced",
        "spawned",
        "table",
        "attached",
        "aborted",
    ];
    let cases = [
        // A program that is no launcher.
        Launcher {
            programs: vec![None, None],
            instead: ended(0),
            ..Launcher::default()
        },
        Launcher {
            instead: ended(7),
            ..Launcher::default()
        },
        Launcher {
            instead: Some(Answer::Late),
            ..Launcher::default()
        },
        Launcher {
            instead: Some(Answer::Failed(
                "cannot trace a process: no such process".into(),
            )),
            ..Launcher::default()
        },
        // The job is refused.
        Launcher {
            instead: Some(Answer::Breakpoint(Said {
                state: 2,
                table: Err(Miss::Empty { state: 2 }),
                reason: Some("no such program".into()),
            })),
            ..Launcher::default()
        },
        // A table that cannot be read.
        Launcher {
            said: Said {
                state: 1,
                table: Err(Miss::Broken),
                reason: None,
            },
            ..Launcher::default()
        },
    ];
    let texts = cases.map(|launcher| of(launcher, &ids));
    insta::assert_snapshot!(texts.join("\n\n"), @"
    Wrong symbols: no program that it has executed has them, and it ended with code 0
    NotChecked announced: the launcher ended with code 0
    NotChecked spawned: the launcher ended with code 0
    NotChecked table: the launcher ended with code 0
    NotChecked attached: the launcher has no symbols
    NotChecked aborted: the launcher has no symbols

    Right symbols: all are there, in `srun`
    Wrong announced: it was not called, and the launcher ended with code 7
    NotChecked spawned: MPIR_Breakpoint was not called
    NotChecked table: MPIR_Breakpoint was not called
    Right attached: 3 rows, MPIR_debug_state is 1
    NotChecked aborted: the launcher ended with code 7

    Right symbols: all are there, in `srun`
    Wrong announced: not within 30 s
    NotChecked spawned: MPIR_Breakpoint was not called
    NotChecked table: MPIR_Breakpoint was not called
    Right attached: 3 rows, MPIR_debug_state is 1
    NotChecked aborted: the launcher did nothing within 30 s

    Right symbols: all are there, in `srun`
    NotChecked announced: cannot trace a process: no such process
    NotChecked spawned: cannot trace a process: no such process
    NotChecked table: cannot trace a process: no such process
    Right attached: 3 rows, MPIR_debug_state is 1
    NotChecked aborted: cannot trace a process: no such process

    Right symbols: all are there, in `srun`
    Right announced: it was called
    Wrong spawned: it is 2
    NotChecked table: the launcher has ended the job: no such program
    Right attached: 3 rows, MPIR_debug_state is 1
    NotChecked aborted: the launcher has ended the job: no such program

    Right symbols: all are there, in `srun`
    Right announced: it was called
    Right spawned: it is 1
    Wrong table: its size or its pointers are broken
    NotApplicable attached: the table is filled when a debugger asks for it by the FIFO
    NotChecked aborted: there is no table
    ");
}

#[test]
fn calls_without_a_meaning_are_passed_over_and_not_for_ever() {
    let null = Said {
        state: 0,
        table: Err(Miss::Empty { state: 0 }),
        reason: None,
    };
    let mut check = Check::new(OPTIONS);
    while check.poll().is_some() {}
    check.handle(Answer::Program(Some(facts(&NEEDED))));
    for _ in 0..CALLS_MAX {
        while check.poll().is_some() {}
        check.handle(Answer::Breakpoint(null.clone()));
        assert!(matches!(check.step, Step::Announcing { .. }));
    }
    check.handle(Answer::Breakpoint(null));
    assert_eq!(check.step, Step::Finishing);
}

#[test]
fn more_processes_are_announced_by_a_further_call() {
    for (pids, expected) in [
        (
            &[10, 11, 12, 20][..],
            "Right again: it was called with 4 rows after 3",
        ),
        (
            &[10, 11, 12],
            "Wrong again: it was called with the same table",
        ),
    ] {
        let mut check = Check::new(OPTIONS);
        let mut launcher = Launcher::default();
        let mut seen = None;
        while seen.is_none() {
            match check.poll() {
                Some(Output::Finding(finding)) if finding.statement == S::Again => {
                    seen = Some(format!("{:?} again: {}", finding.verdict, finding.seen));
                }
                Some(Output::Finding(_)) => {}
                // The call comes while the ranks are released.
                Some(Output::Order(Order::Release { .. })) => {
                    check.handle(Answer::Breakpoint(Said {
                        table: Ok(table(pids)),
                        ..launcher.said.clone()
                    }));
                }
                Some(Output::Order(order)) => {
                    if let Some(answer) = launcher.carry_out(order) {
                        check.handle(answer);
                    }
                }
                None => panic!("nothing is ordered"),
            }
        }
        assert_eq!(seen.as_deref(), Some(expected));
    }
}

/// An answer that comes at the wrong time ends an act, and never the program.
#[test]
fn any_answer_in_any_step_leads_to_the_end() {
    let launcher = Launcher::default();
    let ranks = || Answer::Ranks {
        first: Vec::new(),
        last: Vec::new(),
    };
    let answers = [
        Answer::Program(None),
        Answer::Program(launcher.programs[1].clone()),
        Answer::Breakpoint(launcher.said.clone()),
        ranks(),
        Answer::Daemons {
            found: Vec::new(),
            wanted: Vec::new(),
            ranks: Vec::new(),
        },
        Answer::Read(None),
        Answer::Done,
        Answer::Failed("x".into()),
        Answer::Ended(ExitStatus::SUCCESS),
        Answer::Late,
        Answer::Finished,
    ];
    // Each sequence of three answers, repeated.
    for first in &answers {
        for second in &answers {
            for third in &answers {
                let mut check = Check::new(OPTIONS);
                let mut turns = 0;
                let mut given = [first, second, third].into_iter().cycle();
                while !check.is_over() && turns < 10_000 {
                    turns += 1;
                    while check.poll().is_some() {}
                    if let Some(answer) = given.next() {
                        check.handle(answer.clone());
                    }
                }
                assert!(check.is_over(), "{first:?} {second:?} {third:?}");
            }
        }
    }
}

#[test]
fn a_launcher_ends_without_a_debugger_as_it_ends_with_one() {
    let signal = |signal| ExitStatus::Signaled {
        signal,
        core_dumped: false,
    };
    let (well, badly) = (ExitStatus::SUCCESS, ExitStatus::Exited(3));
    let killed = signal(Signal::KILL);
    for (status, expected, verdict) in [
        (well, Some(well), Verdict::Right),
        (badly, Some(badly), Verdict::Right),
        (badly, None, Verdict::Right),
        (killed, Some(killed), Verdict::Right),
        (badly, Some(well), Verdict::Wrong),
        (killed, None, Verdict::Wrong),
        (signal(Signal::TRAP), Some(well), Verdict::Wrong),
    ] {
        let finding = judge::detached(Some(status), expected, &[]);
        assert_eq!(finding.verdict, verdict, "{status:?} {expected:?}");
    }
}

#[test]
fn every_statement_has_its_own_id() {
    let ids: std::collections::BTreeSet<&str> = S::ALL.iter().map(|it| it.id()).collect();
    assert_eq!(ids.len(), S::ALL.len());
    // They are in the order of their acts.
    assert!(S::ALL.is_sorted_by_key(|statement| statement.act()));
}

#[test]
fn how_far_a_rank_is_is_in_its_mappings() {
    let mapped = |paths: &[&str]| {
        let mapping = |path: &&str| crate::maps::Mapping {
            range: 0..1,
            readable: true,
            writable: false,
            executable: true,
            offset: 0,
            file: Some(crate::maps::FileId {
                device: (0, 0),
                inode: 1,
            }),
            path: (*path).to_owned(),
            deleted: false,
        };
        let mappings: Vec<_> = paths.iter().map(mapping).collect();
        Linked::of(&mappings, "/bin/a")
    };
    let linker = "/lib64/ld-linux-x86-64.so.2";
    assert_eq!(mapped(&["/bin/a"]), Linked::Unknown);
    assert_eq!(mapped(&["/bin/a", linker]), Linked::NotYet);
    assert_eq!(
        mapped(&["/bin/a", "/lib/libc.so.6", linker]),
        Linked::Loaded
    );
    for library in [
        "/lib/libmpi.so.40",
        "/lib/libpmix.so.2",
        "/lib/libpmi2.so.0",
    ] {
        assert_eq!(mapped(&["/bin/a", library, linker]), Linked::WithMpi);
    }
}
