//! Made-up reports, of few and of many ranks.

use std::{collections::BTreeMap, time::Duration};

use base::{Rank, RankSet};
use debug::{
    report::{
        Absent, ChildPlace, Children, Command, Merged, Part, Place, Report, SeenClass, Timing,
    },
    samples::Motion,
    stack::{Activity, End, Frame, FrameId, FrameKind, Frames, Missing, Source, Wait},
    tree::{Ending, Threads, Which},
    verdict::{Cite, Confidence, RuleId, Verdict},
};

/// Returns frames from words: `name`, `name@file:line`, `=name@file:line` for an inlined function, `!` for a signal.
pub(crate) fn stack(frames: &mut Frames, words: &str) -> Vec<FrameId> {
    let frame = |word: &str| {
        let (kind, word) = match (word.strip_prefix('='), word) {
            (Some(rest), _) => (FrameKind::Inlined, rest),
            (None, "!") => (FrameKind::Signal, ""),
            (None, word) if word.contains(".py:") => (FrameKind::Python, word),
            (None, word) => (FrameKind::Native, word),
        };
        let (name, source) = match word.split_once('@') {
            Some((name, place)) => (name, place.rsplit_once(':')),
            None => (word, None),
        };
        Frame {
            function: (!name.is_empty()).then(|| name.into()),
            module: (kind == FrameKind::Native).then(|| "solver".into()),
            source: source.map(|(file, line)| Source {
                file: format!("/src/{file}").into(),
                line: line.parse().unwrap_or(0),
            }),
            kind,
        }
    };
    words
        .split_whitespace()
        .map(|word| frames.intern(frame(word)))
        .collect()
}

pub(crate) fn set(text: &str) -> RankSet {
    text.parse()
        .unwrap_or_else(|error| panic!("{text}: {error}"))
}

pub(crate) fn threads(each: u32, ranks: &RankSet) -> Threads {
    let mut threads = Threads::default();
    threads.add(each, ranks);
    threads
}

/// Returns a report of one sample, from rank sets, activities and stacks.
pub(crate) fn look(said: &[(&str, Activity, &str)]) -> Report {
    let mut report = Report {
        title: "mpirun ./solver (pid 4711)".to_owned(),
        samples: vec![Merged::default()],
        ..Report::default()
    };
    for (ranks, activity, words) in said {
        add(&mut report, 0, &set(ranks), *activity, End::Start, words);
    }
    report
}

pub(crate) fn add(
    report: &mut Report,
    sample: usize,
    ranks: &RankSet,
    activity: Activity,
    end: End,
    words: &str,
) -> Vec<FrameId> {
    let frames = stack(&mut report.frames, words);
    let thread = Which::First;
    let ending = Ending {
        thread,
        activity,
        end,
    };
    report.samples[sample]
        .tree
        .add(&frames, ending, &threads(1, ranks));
    frames
}

fn placed(ranks: u32, of_host: u32) -> BTreeMap<Rank, Place> {
    let place = |rank: u32| Place {
        host: format!("n{:04}", rank / of_host),
        pid: 40_211 + i32::try_from(rank % of_host).unwrap_or(0),
        cpu: Some(rank % of_host),
    };
    (0..ranks).map(|rank| (Rank(rank), place(rank))).collect()
}

fn base(title: &str, ranks: u32, of_host: u32) -> Report {
    let version = |of: &str, version: &str| Part {
        of: of.to_owned(),
        version: version.to_owned(),
    };
    Report {
        title: title.to_owned(),
        found: vec!["pid 4711 is `mpirun`: it has MPIR symbols in libopen-rte.so.40, and they name all ranks".to_owned()],
        host: "login2".to_owned(),
        date: "2026-11-22 01:20:07 UTC".to_owned(),
        versions: vec![
            version("dbgr", "0.1.0"),
            version("Linux", "6.18.44"),
            version("solver", "build id 3f1c7be09a"),
        ],
        commands: vec![Command {
            ranks: RankSet::range(0..ranks.min(64)),
            line: "./solver --grid 512 --steps 1000 input.toml".to_owned(),
        }],
        placement: placed(ranks, of_host),
        samples: (0..3)
            .map(|sample| Merged {
                at: Duration::from_secs(sample),
                ..Merged::default()
            })
            .collect(),
        timing: Timing {
            total: Duration::from_millis(2_048),
            stops: 3 * u64::from(ranks),
            stopped_median: Duration::from_micros(52),
            stopped_longest: Duration::from_micros(310),
            phases: None,
        },
        ..Report::default()
    }
}

const WAIT: &str =
    "_start main@solver.c:120 run@solver.c:99 =advance@step.h:31 solve@solver.c:88 MPI_Allreduce";
const READ: &str = "_start main@solver.c:120 run@solver.c:97 load@io.c:12 read_block@io.c:41 read";

/// Returns a report of four ranks, one of which does not reach the collective.
pub(crate) fn four() -> Report {
    let mut report = base("mpirun ./solver (pid 4711)", 4, 4);
    let (most, odd) = (set("0-2"), set("3"));
    let mut cites = Vec::new();
    let mut classes = Vec::new();
    for sample in 0..3 {
        let waits = add(
            &mut report,
            sample,
            &most,
            Activity::Running,
            End::Start,
            WAIT,
        );
        let reads = add(&mut report, sample, &odd, Activity::Disk, End::Start, READ);
        report.samples[sample]
            .helpers
            .insert("PMIx progress".to_owned(), threads(2, &set("0-3")));
        classes = vec![
            (&most, waits, Activity::Running),
            (&odd, reads, Activity::Disk),
        ];
        cites = classes
            .iter()
            .map(|(ranks, frames, activity)| Cite {
                ranks: RankSet::clone(ranks),
                processes: Vec::new(),
                samples: vec![0, 1, 2],
                frames: frames.clone(),
                activity: Some(*activity),
            })
            .collect();
    }
    report.classes = classes
        .into_iter()
        .map(|(ranks, frames, activity)| SeenClass {
            ranks: ranks.clone(),
            frames,
            activity,
            motion: if activity == Activity::Disk {
                Motion::Stuck
            } else {
                Motion::Spinning
            },
            cpu: if activity == Activity::Disk {
                Duration::ZERO
            } else {
                Duration::from_millis(5_900)
            },
            lines: Vec::new(),
        })
        .collect();
    report.verdicts.push(Verdict {
        rule: RuleId::DiskWait,
        sentence: "3 ranks wait in MPI_Allreduce (solver.c:88); rank 3 is in read_block (io.c:41), in disk wait in 3 of 3 samples".to_owned(),
        confidence: Confidence::Likely,
        cites,
    });
    report
}

/// Returns a report of four ranks, one of which waits for a child process; all of them have a worker.
pub(crate) fn helped() -> Report {
    let mut report = four();
    let sh = stack(&mut report.frames, "_start main@sh.c:3 waitpid");
    let cp = stack(&mut report.frames, "_start main@cp.c:9 lock");
    let worker = stack(&mut report.frames, "worker@pool.py:7 read");
    let procs = |ranks: &[u32], first: i32| -> Vec<ChildPlace> {
        let places = (first..).zip(ranks).map(|(pid, &rank)| ChildPlace {
            rank: Rank(rank),
            pid,
            parent: 7,
        });
        places.collect()
    };
    let below = [
        ("sh", procs(&[3], 4_711), Wait::Child, &sh),
        ("cp", procs(&[3], 4_712), Wait::Futex, &cp),
        (
            "worker",
            procs(&[0, 0, 1, 1, 2, 2, 3, 3], 4_720),
            Wait::Read,
            &worker,
        ),
    ];
    for sample in &mut report.samples {
        for (name, procs, wait, frames) in &below {
            let mut children = Children {
                procs: procs.clone(),
                ..Children::default()
            };
            let ending = Ending {
                thread: Which::First,
                activity: Activity::Waiting(*wait),
                end: End::Start,
            };
            let each = if procs.len() == 1 { 1 } else { 2 };
            let threads = threads(each, &children.ranks());
            children.tree.add(frames, ending, &threads);
            sample.children.insert((*name).to_owned(), children);
        }
    }
    report.verdicts[0].cites.push(Cite {
        ranks: set("3"),
        processes: vec![4_712],
        samples: vec![0, 1, 2],
        frames: cp,
        activity: Some(Activity::Waiting(Wait::Futex)),
    });
    report
}

/// Returns a pseudorandom number that depends only on the argument.
fn mixed(number: u32) -> u32 {
    let mixed = (number ^ 0x9e37_79b9).wrapping_mul(2_654_435_761);
    (mixed ^ (mixed >> 15)).wrapping_mul(2_246_822_519) >> 7
}

/// Returns a report of 10,000 ranks: most wait, and the others are distributed over this many classes.
pub(crate) fn many(classes: u32) -> Report {
    let ranks = 10_000;
    let mut report = base("srun ./solver (job 400901.0)", ranks, 64);
    report.missing = vec![
        Absent {
            ranks: set("640-703"),
            why: Missing::Elsewhere("n0010".to_owned()),
        },
        Absent {
            ranks: set("9001"),
            why: Missing::Gone,
        },
    ];
    let gone = set("640-703,9001");
    for sample in 0..3_u32 {
        let mut members = vec![RankSet::new(); classes as usize];
        for rank in (0..ranks).filter(|&rank| !gone.contains(Rank(rank))) {
            let odd = mixed(rank).is_multiple_of(16);
            let class = if odd {
                1 + mixed(rank + 7) % (classes - 1).max(1)
            } else {
                0
            };
            // Some ranks are elsewhere in the next sample.
            let moves = odd && class % 5 == 1;
            let class = if moves {
                1 + (class + sample) % (classes - 1)
            } else {
                class
            };
            members[class as usize].insert(Rank(rank));
        }
        let index = sample as usize;
        report.classes.clear();
        for (class, ranks) in (0_u32..)
            .zip(&members)
            .filter(|(_, ranks)| !ranks.is_empty())
        {
            let (activity, words) = match (class, class % 3) {
                (0, _) => (Activity::Running, WAIT.to_owned()),
                (_, 0) => (
                    Activity::Waiting(Wait::Poll),
                    format!(
                        "_start main@solver.c:120 run@solver.c:{} exchange@halo.c:{} MPI_Wait",
                        90 + class % 4,
                        20 + class
                    ),
                ),
                (_, 1) => (
                    Activity::Running,
                    format!(
                        "_start main@solver.c:120 run@solver.c:{} solver::Kernel<double,{class}>::apply@kernel.hpp:{}",
                        80 + class % 5,
                        100 + class
                    ),
                ),
                _ => (
                    Activity::Disk,
                    format!(
                        "_start main@solver.c:120 run@solver.c:97 load@io.c:{class} read_block@io.c:41 read"
                    ),
                ),
            };
            let frames = add(&mut report, index, ranks, activity, End::Start, &words);
            let motion = match class % 5 {
                0 => Motion::Spinning,
                1 => Motion::Moving,
                2 => Motion::Looping,
                _ => Motion::Stuck,
            };
            let cpu = u64::try_from(ranks.len()).unwrap_or(0) * u64::from(class % 3 * 900);
            report.classes.push(SeenClass {
                ranks: ranks.clone(),
                frames,
                activity,
                motion,
                cpu: Duration::from_millis(cpu),
                lines: Vec::new(),
            });
        }
        report
            .classes
            .sort_by_key(|class| std::cmp::Reverse(class.ranks.len()));
        report.samples[index].helpers.insert(
            "PMIx progress".to_owned(),
            threads(2, &set("0-9999").difference(&gone)),
        );
    }
    report
}

/// Returns a report with names that are markup in HTML.
pub(crate) fn hostile() -> Report {
    let mut report = look(&[(
        "0-2",
        Activity::Running,
        "main@</style><b>.c:1 <script>document.title='owned'</script>@\"onmouseover=alert(1).c:2 &lt;\u{202e}x",
    )]);
    report.title = "</title><script>document.title='owned'</script>'\"".to_owned();
    report.host = "<img/src=x/onerror=alert(1)>".to_owned();
    report.commands.push(Command {
        ranks: set("0-2"),
        line: "</p><script>document.title='owned'</script>\u{1b}[2J".to_owned(),
    });
    report.samples[0]
        .helpers
        .insert("</div><script>".to_owned(), threads(1, &set("0")));
    let children = Children {
        procs: vec![ChildPlace {
            rank: Rank(1),
            pid: 7,
            parent: 6,
        }],
        unseen: 1,
        ..Children::default()
    };
    let name = "</b></div><script>document.title='owned'</script>\"\u{1b}[2J";
    report.samples[0].children.insert(name.to_owned(), children);
    report
}
