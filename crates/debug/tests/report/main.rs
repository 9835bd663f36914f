//! Tests of reports as text, JSON, folded stacks and HTML.

mod made;

use std::time::Duration;

use base::RankSet;
use debug::{
    report::{
        Colour, Detail, Guides, Layout, Phases, Report, bracketed, clean, folded, from_json, html,
        json, text,
    },
    samples::Motion,
    stack::{Activity, End, Missing, Wait},
    tree::{Ending, Which},
};
use made::{add, four, helped, look, many, set, stack, threads};

const PLAIN: Layout = Layout {
    width: 80,
    detail: Detail::Folded,
    colour: Colour::Never,
    guides: Guides::Unicode,
};

fn shown(report: &Report, width: usize) -> String {
    let said = text(report, &Layout { width, ..PLAIN });
    for line in said.lines() {
        assert!(line.chars().count() <= width.max(40), "{line}");
    }
    said
}

#[test]
fn one_rank() {
    let report = look(&[(
        "0",
        Activity::Waiting(Wait::Sleep),
        "_start __libc_start_main main@a.c:5 nap@a.c:2 nanosleep",
    )]);
    insta::assert_snapshot!(shown(&report, 80), @r#"
    mpirun ./solver (pid 4711): 1 rank

    1 [0] main (a.c:5) > nap (a.c:2) > nanosleep · sleeping
    "#);
}

#[test]
fn who_runs_in_circles_says_on_which_lines() {
    let mut report = four();
    report.classes[0].motion = Motion::Looping;
    for (lines, said) in [
        (vec![88, 90], "looping on lines 88, 90,"),
        ((1..9).collect(), "looping on lines 1, 2, 3, 4, 5, 6, …,"),
        (vec![88], "looping,"),
    ] {
        report.classes[0].lines = lines;
        let text = shown(&report, 200);
        assert!(text.contains(said), "{text}");
        let page = html(&report);
        assert!(page.contains(&format!("<td>{}<td class=set>", said.trim_end_matches(','))));
    }
    // For a stuck class the lines are not shown.
    report.classes[0].motion = Motion::Stuck;
    report.classes[0].lines = vec![88, 90];
    assert!(!shown(&report, 200).contains("on lines"));
}

#[test]
fn where_the_time_went() {
    let phases = Phases {
        finding: Duration::from_micros(3_140),
        reading: Duration::from_millis(12),
        sampling: Duration::from_micros(20_360),
        merging: Duration::from_micros(90),
    };
    insta::assert_snapshot!(phases, @"finding the ranks took 3.1 ms, reading their programs 12.0 ms, sampling 20.4 ms, merging and drawing 0.1 ms");
}

#[test]
fn the_number_of_ranks_is_said_once() {
    let mut report = look(&[("0-2", Activity::Running, "main@a.c:5")]);
    let first_lines = [
        ("job `x`: 3 ranks of `sleep`", "job `x`: 3 ranks of `sleep`"),
        ("3 ranks", "3 ranks"),
        // The number in the title is another one.
        ("13 ranks of `sleep`", "13 ranks of `sleep`: 3 ranks"),
        ("3 ranksmen", "3 ranksmen: 3 ranks"),
    ];
    for (title, said) in first_lines {
        report.title = title.to_owned();
        let text = shown(&report, 80);
        assert_eq!(text.lines().next(), Some(said));
    }
    let mut report = four();
    report.title = "4 ranks of `solver`".to_owned();
    let text = shown(&report, 80);
    let first = text.lines().next();
    assert_eq!(first, Some("4 ranks of `solver`, 3 samples in 2.0 s"));
}

#[test]
fn four_ranks_in_two_classes() {
    insta::assert_snapshot!(shown(&four(), 80), @r#"
    mpirun ./solver (pid 4711): 4 ranks, 3 samples in 2.0 s
    likely: 3 ranks wait in MPI_Allreduce (solver.c:88); rank 3 is in read_block
      (io.c:41), in disk wait in 3 of 3 samples

    3 [0-2] polling, 98% cpu: MPI_Allreduce < solve (solver.c:88)
    1 [3] in disk wait, stuck, 0% cpu: read < read_block (io.c:41)

    4 [0-3] main (solver.c:120)
    ├─ 3 [0-2] run (solver.c:99) > advance (step.h:31, inlined)
    │      > solve (solver.c:88) > MPI_Allreduce · polling
    └─ 1 [3] run (solver.c:97) > load (io.c:12) > read_block (io.c:41) > read
           · in disk wait ◀ 1 of 4
    4 [0-3] 2 threads: PMIx progress
    "#);
    let ascii = Layout {
        guides: Guides::Ascii,
        width: 50,
        ..PLAIN
    };
    insta::assert_snapshot!(text(&four(), &ascii), @r#"
    mpirun ./solver (pid 4711): 4 ranks, 3 samples in
      2.0 s
    likely: 3 ranks wait in MPI_Allreduce
      (solver.c:88); rank 3 is in read_block
      (io.c:41), in disk wait in 3 of 3 samples

    3 [0-2] polling, 98% cpu: MPI_Allreduce
      < solve (solver.c:88)
    1 [3] in disk wait, stuck, 0% cpu: read
      < read_block (io.c:41)

    4 [0-3] main (solver.c:120)
    |- 3 [0-2] run (solver.c:99)
    |      > advance (step.h:31, inlined)
    |      > solve (solver.c:88) > MPI_Allreduce
    |      - polling
    `- 1 [3] run (solver.c:97) > load (io.c:12)
           > read_block (io.c:41) > read
           - in disk wait <- 1 of 4
    4 [0-3] 2 threads: PMIx progress
    "#);
    let full = Layout {
        detail: Detail::Full,
        ..PLAIN
    };
    insta::assert_snapshot!(text(&four(), &full), @r#"
    mpirun ./solver (pid 4711): 4 ranks, 3 samples in 2.0 s
    likely: 3 ranks wait in MPI_Allreduce (solver.c:88); rank 3 is in read_block (io.c:41), in disk wait in 3 of 3 samples

    3 [0-2] polling, 98% cpu: MPI_Allreduce < solve (solver.c:88)
    1 [3] in disk wait, stuck, 0% cpu: read < read_block (io.c:41)

    4 [0-3] _start in solver
    │   main (solver.c:120) in solver
    ├─ 3 [0-2] run (solver.c:99) in solver
    │      advance (step.h:31, inlined)
    │      solve (solver.c:88) in solver
    │      MPI_Allreduce in solver · polling
    └─ 1 [3] run (solver.c:97) in solver
           load (io.c:12) in solver
           read_block (io.c:41) in solver
           read in solver · in disk wait ◀ 1 of 4
    4 [0-3] 2 threads: PMIx progress
    "#);
    let coloured = text(
        &four(),
        &Layout {
            colour: Colour::Ansi,
            ..PLAIN
        },
    );
    insta::assert_snapshot!(coloured.replace('\u{1b}', "^"), @r#"
    mpirun ./solver (pid 4711): 4 ranks, 3 samples in 2.0 s
    ^[1;31mlikely:^[0m 3 ranks wait in MPI_Allreduce (solver.c:88); rank 3 is in read_block
      (io.c:41), in disk wait in 3 of 3 samples

    ^[1m3^[0m ^[36m[0-2]^[0m ^[33mpolling,^[0m ^[33m98% cpu:^[0m MPI_Allreduce < solve (solver.c:88)
    ^[1m1^[0m ^[36m[3]^[0m ^[33min disk wait,^[0m ^[33mstuck,^[0m ^[33m0% cpu:^[0m read < read_block (io.c:41)

    ^[1m4^[0m ^[36m[0-3]^[0m main^[2m (solver.c:120)^[0m
    ^[2m├─ ^[0m^[1m3^[0m ^[36m[0-2]^[0m run^[2m (solver.c:99)^[0m ^[2m> ^[0madvance^[2m (step.h:31, inlined)^[0m
    ^[2m│      ^[0m^[2m> ^[0msolve^[2m (solver.c:88)^[0m ^[2m> ^[0mMPI_Allreduce ^[2m·^[0m ^[33mpolling^[0m
    ^[2m└─ ^[0m^[1m1^[0m ^[36m[3]^[0m run^[2m (solver.c:97)^[0m ^[2m> ^[0mload^[2m (io.c:12)^[0m ^[2m> ^[0mread_block^[2m (io.c:41)^[0m ^[2m> ^[0mread
           ^[2m·^[0m ^[33min disk wait^[0m ^[1;31m◀ 1 of 4^[0m
    ^[1m4^[0m ^[36m[0-3]^[0m 2 threads: PMIx progress
    "#);
    insta::assert_snapshot!(four().timing.sentence(), @"12 threads were stopped for 0.05 ms at the median, 0.31 ms at most; 2048 ms in all");
}

#[test]
fn ten_thousand_ranks() {
    let mut three = many(3);
    three.classes.clear();
    insta::assert_snapshot!(shown(&three, 80), @r#"
    srun ./solver (job 400901.0): 10000 ranks on 157 hosts, 3 samples in 2.0 s
    no verdict: the samples do not distinguish a program that hangs from a slow one

    9935 [0-639,704-9000,9002-9999] main (solver.c:120)
    ├─ 9322 [0-14,16-18,20-30,32-37,…] run (solver.c:99)
    │      > advance (step.h:31, inlined) > solve (solver.c:88) > MPI_Allreduce
    │      · polling
    └─  613 [15,19,31,38-39,75,80,…] run (solver.c:97) > load (io.c:2)
           > read_block (io.c:41) > read · in disk wait
    9935 [0-639,704-9000,9002-9999] 2 threads: PMIx progress
    missing: 64 [640-703] on host n0010, where no agent was started
    missing: 1 [9001] ended
    "#);
    let mut report = many(200);
    report.samples.truncate(1);
    insta::assert_snapshot!(shown(&report, 80), @r#"
    srun ./solver (job 400901.0): 10000 ranks on 157 hosts

    9935 [0-639,704-9000,9002-9999] main (solver.c:120)
    ├─ 9322 [0-14,16-18,20-30,32-37,…] run (solver.c:99)
    │      > advance (step.h:31, inlined) > solve (solver.c:88) > MPI_Allreduce
    │      · polling
    ├─  211 [31,38-39,80,93,100,179,…] run (solver.c:97)
    │  ├─ 10 [312,495,1523,1773,3147,…] load (io.c:182) > read_block (io.c:41)
    │  │      > read · in disk wait
    │  ├─  9 [499,932,1229,1491,2268,…] load (io.c:32) > read_block (io.c:41) > read
    │  │      · in disk wait
    │  ├─  9 [1140,1787,2361,2997,…] load (io.c:92) > read_block (io.c:41) > read
    │  │      · in disk wait
    │  ├─  9 [2814,4582,6419,6482,…] load (io.c:122) > read_block (io.c:41) > read
    │  │      · in disk wait
    │  ├─  8 [924,3280,3918,5123,…] load (io.c:107) > read_block (io.c:41) > read
    │  │      · in disk wait
    │  ├─  8 [2490,3562,4198,4839,…] load (io.c:152) > read_block (io.c:41) > read
    │  │      · in disk wait
    │  ├─  8 [318,753,2851,3536,4446,…] load (io.c:197) > read_block (io.c:41)
    │  │      > read · in disk wait
    │  ├─  7 [2094,3349,3644,4496,…] load (io.c:167) > read_block (io.c:41) > read
    │  │      · in disk wait
    │  └─ … 41 more classes, 143 ranks: --full
    ├─   79 [15,267,313,422,451,547,…] run (solver.c:82)
    │  ├─ 9 [1185,1943,5794,6088,…]
    │  │      solver::Kernel<double,37>::apply (kernel.hpp:137) · running
    │  ├─ 8 [422,3946,5182,5390,…]
    │  │      solver::Kernel<double,112>::apply (kernel.hpp:212) · running
    │  ├─ 7 [313,547,838,1028,1400,…]
    │  │      solver::Kernel<double,142>::apply (kernel.hpp:242) · running
    │  ├─ 7 [1860,2071,3464,4159,…]
    │  │      solver::Kernel<double,52>::apply (kernel.hpp:152) · running
    │  ├─ 7 [451,3739,4348,7835,…] solver::Kernel<double,67>::apply (kernel.hpp:167)
    │  │      · running
    │  └─ … 8 more classes, 41 ranks: --full
    ├─   57 [75,384,794,886,898,…] run (solver.c:90)
    │  ├─ 11 [384,886,898,2484,3663,…] exchange (halo.c:152) > MPI_Wait · poll
    │  ├─  9 [75,1129,1776,2184,2430,…] exchange (halo.c:92) > MPI_Wait · poll
    │  └─ … 11 more classes, 37 ranks: --full
    ├─   48 [120,274,394,724,1191,…] run (solver.c:84)
    │  ├─ 8 [1575,2499,3138,3508,…]
    │  │      solver::Kernel<double,64>::apply (kernel.hpp:164) · running
    │  ├─ 7 [274,2343,3076,5402,…]
    │  │      solver::Kernel<double,109>::apply (kernel.hpp:209) · running
    │  └─ … 12 more classes, 33 ranks: --full
    ├─   46 [723,1950,1984,2371,…] run (solver.c:91)
    │  ├─ 11 [2371,2410,5698,6837,…] exchange (halo.c:197) > MPI_Wait · poll
    │  └─ … 11 more classes, 35 ranks: --full
    ├─   46 [287,337,571,735,890,…] run (solver.c:93)
    │  ├─ 9 [1520,2574,3840,4849,…] exchange (halo.c:47) > MPI_Wait · poll
    │  └─ … 13 more classes, 37 ranks: --full
    └─ … 38 more classes, 126 ranks: --full
    9935 [0-639,704-9000,9002-9999] 2 threads: PMIx progress
    missing: 64 [640-703] on host n0010, where no agent was started
    missing: 1 [9001] ended
    "#);
    let full = text(
        &report,
        &Layout {
            detail: Detail::Full,
            ..PLAIN
        },
    );
    assert!(full.lines().count() > 200 && !full.contains("--full"));
}

#[test]
fn recursion_is_counted() {
    let deep = format!("main@a.c:9 {}leaf@a.c:3", "fib@a.c:5 ".repeat(9_998));
    let turns = format!("main@a.c:9 {}", "even@a.c:1 odd@a.c:2 ".repeat(500));
    let report = look(&[
        ("0", Activity::Running, &deep),
        ("1-3", Activity::Running, &turns),
    ]);
    insta::assert_snapshot!(shown(&report, 80), @r#"
    mpirun ./solver (pid 4711): 4 ranks

    4 [0-3] main (a.c:9)
    ├─ 3 [1-3] (even (a.c:1) > odd (a.c:2)) ×500 · running
    └─ 1 [0] fib (a.c:5) ×9998 > leaf (a.c:3) · running ◀ 1 of 4
    "#);
}

#[test]
fn every_rank_at_another_depth() {
    let mut report = look(&[]);
    for rank in 0..300_u32 {
        let words = format!("main@a.c:9 {}", "fib@a.c:5 ".repeat(rank as usize + 1));
        let words = if rank % 2 == 0 {
            format!("{words} leaf@a.c:3")
        } else {
            words
        };
        add(
            &mut report,
            0,
            &RankSet::range(rank..rank + 1),
            Activity::Running,
            End::Start,
            &words,
        );
    }
    let said = shown(&report, 60);
    assert!(said.lines().count() < 4 * 40, "{said}");
    let full = text(
        &report,
        &Layout {
            detail: Detail::Full,
            ..PLAIN
        },
    );
    assert!(full.contains("299"));
}

#[test]
fn long_names_are_cut() {
    let name = format!(
        "solver::Apply<std::vector<std::pair<{0},{0}>>,boost::mpl::list<{0}>>::operator()",
        "very::long::Name<int,double,std::allocator<char>>,".repeat(3)
    );
    assert!(name.len() > 400);
    let report = look(&[(
        "0-3",
        Activity::Running,
        &format!("main@a.cpp:1 {name}@kernel.hpp:77 f"),
    )]);
    insta::assert_snapshot!(shown(&report, 80), @r#"
    mpirun ./solver (pid 4711): 4 ranks

    4 [0-3] main (a.cpp:1) > solver::Apply<…>::operator() (kernel.hpp:77) > f
        · running
    "#);
    let plain = look(&[(
        "0-3",
        Activity::Running,
        &format!("main@a.cpp:1 {}end@b.cpp:2", "x".repeat(400)),
    )]);
    insta::assert_snapshot!(shown(&plain, 40), @r#"
    mpirun ./solver (pid 4711): 4 ranks

    4 [0-3] main (a.cpp:1)
        > xxxxxxx…xxxxxxxxxxxxxend (b.cpp:2)
        · running
    "#);
    let full = text(
        &report,
        &Layout {
            detail: Detail::Full,
            ..PLAIN
        },
    );
    assert!(full.contains(&name));
}

#[test]
fn a_narrow_terminal() {
    insta::assert_snapshot!(shown(&four(), 40), @r#"
    mpirun ./solver (pid 4711): 4 ranks, 3
      samples in 2.0 s
    likely: 3 ranks wait in MPI_Allreduce
      (solver.c:88); rank 3 is in read_block
      (io.c:41), in disk wait in 3 of 3
      samples

    3 [0-2] polling, 98% cpu: MPI_Allreduce
      < solve (solver.c:88)
    1 [3] in disk wait, stuck, 0% cpu: read
      < read_block (io.c:41)

    4 [0-3] main (solver.c:120)
    ├─ 3 [0-2] run (solver.c:99)
    │      > advance (step.h:31, inlined)
    │      > solve (solver.c:88)
    │      > MPI_Allreduce · polling
    └─ 1 [3] run (solver.c:97)
           > load (io.c:12)
           > read_block (io.c:41) > read
           · in disk wait ◀ 1 of 4
    4 [0-3] 2 threads: PMIx progress
    "#);
}

#[test]
fn what_is_not_plain_is_marked() {
    let mut report = look(&[(
        "0",
        Activity::Running,
        "main@a.c:9 =twice@a.h:3 work@a.c:4 ! handler@a.c:1",
    )]);
    add(
        &mut report,
        0,
        &set("1"),
        Activity::Traced,
        End::Lost,
        "inner@b.c:2 read",
    );
    add(
        &mut report,
        0,
        &set("2"),
        Activity::Running,
        End::Bound,
        "again@b.c:2",
    );
    add(
        &mut report,
        0,
        &set("0"),
        Activity::Running,
        End::Start,
        "main@a.c:9",
    );
    report.samples[0].tree.add(
        &stack(&mut report.frames, "main@a.c:9 train@loop.py:31 matmul"),
        Ending {
            thread: Which::First,
            activity: Activity::Running,
            end: End::Start,
        },
        &threads(4, &set("3-5")),
    );
    report.missing.push(debug::report::Absent {
        ranks: set("7"),
        why: Missing::TracedBy(99),
    });
    report
        .doubts
        .push("two processes say that they are rank 3".to_owned());
    insta::assert_snapshot!(shown(&report, 80), @r#"
    mpirun ./solver (pid 4711): 7 ranks
    unsure: two processes say that they are rank 3

    4 [0,3-5] (14 threads) main (a.c:9) · running 1 [0]
    ├─ 3 [3-5] (4 threads each) train (loop.py:31) > matmul · running
    └─ 1 [0] twice (a.h:3, inlined) > work (a.c:4) > <signal> > handler (a.c:1)
           · running ◀ 1 of 6
    1 [2] again (b.c:2) · running (incomplete: too deep) ◀ 1 of 6
    1 [1] inner (b.c:2) > read · stopped by a debugger (incomplete) ◀ 1 of 6
    missing: 1 [7] process 99 debugs it
    "#);
}

/// Threads of libraries are listed after those of the program, and equal ones share a line.
#[test]
fn first_threads_come_first() {
    let mut report = look(&[(
        "3",
        Activity::Waiting(Wait::Read),
        "_start main@a.c:9 load@io.c:4 read",
    )]);
    for (ranks, activity, file, thread) in [
        ("0-2", Activity::Waiting(Wait::Futex), "a.c", Which::First),
        ("0-3", Activity::Waiting(Wait::Futex), "w.c", Which::Other),
        (
            "0-3",
            Activity::Waiting(Wait::Poll),
            "old/w.c",
            Which::Other,
        ),
    ] {
        let words = match thread {
            Which::First => format!("_start main@{file}:7 pthread_join"),
            Which::Other => format!("clone3 start_thread worker@{file}:3 take"),
        };
        let frames = stack(&mut report.frames, &words);
        let ending = Ending {
            thread,
            activity,
            end: End::Start,
        };
        let threads = threads(2, &set(ranks));
        report.samples[0].tree.add(&frames, ending, &threads);
    }
    insta::assert_snapshot!(shown(&report, 80), @r#"
    mpirun ./solver (pid 4711): 4 ranks

    3 [0-2] (2 threads each) main (a.c:7) > pthread_join · futex
    1 [3] main (a.c:9) > load (io.c:4) > read · reading ◀ 1 of 4
    4 [0-3] (4 threads each) worker (w.c:3) > take · futex 8 [0-3], poll 8 [0-3]
    "#);
}

/// A page shows at its top what runs where, and lists threads of libraries after those of the program. It has a line of text for
/// each box that is too narrow for its own.
#[test]
fn a_page_says_what_its_boxes_cannot() {
    let mut report = four();
    let ranks = set("0-3");
    let frames = stack(&mut report.frames, "clone3 start_thread worker@w.c:3 take");
    let ending = Ending {
        thread: Which::Other,
        activity: Activity::Waiting(Wait::Futex),
        end: End::Start,
    };
    report.samples[2]
        .tree
        .add(&frames, ending, &threads(2, &ranks));
    let page = html(&report);
    let at = |part: &str| {
        page.find(part)
            .unwrap_or_else(|| panic!("no {part}: {page}"))
    };
    assert!(at("<code>./solver --grid 512") < at("</header>"));
    assert!(at("pids [0-3] 40211-40214") < at("</header>"));
    assert!(at("<b>MPI_Allreduce</b>") < at("other threads of these processes"));
    assert!(at("other threads of these processes") < at("<b>worker <i>w.c:3</i></b>"));
    assert!(page.contains("<td class=f>MPI_Allreduce &lt; solve (solver.c:88)"));
    assert!(!page.contains("class=labels"));
    let page = html(&many(50));
    assert_eq!(page.matches("<b class=l>").count(), 9);
    assert_eq!(page.matches("<li value=").count(), 9);
}

/// The page draws processes below the rank that has started them, and a cite shows which of them it refers to.
#[test]
fn a_page_shows_processes_below_their_ranks() {
    let mut report = helped();
    let page = html(&report);
    let at = |part: &str| {
        page.find(part)
            .unwrap_or_else(|| panic!("no {part}: {page}"))
    };
    assert!(page.contains(
        "<li>process 4712 below 1 rank [3] in samples 1, 2, 3: <code>lock &lt; main (cp.c:9)</code>"
    ));
    // First those of ranks 0 to 2, then those of rank 3, each below the innermost frame of these ranks.
    assert!(at("<b>MPI_Allreduce</b>") < at("<b>6 processes of worker</b>"));
    assert!(at("<b>6 processes of worker</b>") < at("<b>read</b><div class=\"k hs\">"));
    assert!(at("<b>cp (4712)</b>") < at("<b>lock</b>"));
    assert!(at("<b>sh (4711)</b>") < at("<b>2 processes of worker</b>"));
    assert!(page.contains(r#"title="1 process of `cp` below this rank: 4712""#));
    assert!(page.contains(r#"title="below 1 rank of 1 [3], futex""#));
    assert!(page.contains("dotted: processes that the ranks above them have started"));
    assert!(!page.contains("below other ranks"));
    assert!(!html(&four()).contains("dotted: "));
    // A rank that has exited has no box.
    for sample in &mut report.samples {
        let children = sample.children.get_mut("cp").unwrap();
        children.procs[0].rank = base::Rank(9);
    }
    let page = html(&report);
    assert!(page.contains("<p class=note>processes that other ranks have started</p>"));
    for page in [page, html(&helped()), html(&made::hostile())] {
        let picture = page.split_once("id=picture>").unwrap().1;
        let picture = picture.split_once("<p class=panel").unwrap().0;
        let opened = picture.matches("<div").count();
        assert_eq!(opened + 1, picture.matches("</div>").count(), "{picture}");
    }
}

/// A rank whose stack has no frames has no box.
#[test]
fn a_page_shows_processes_below_ranks_without_frames() {
    let mut report = helped();
    add(&mut report, 2, &set("4"), Activity::Running, End::Lost, "");
    let children = report.samples[2].children.get_mut("cp").unwrap();
    children.procs[0].rank = base::Rank(4);
    let page = html(&report);
    let picture = page.split_once("id=picture>").unwrap().1;
    let (_, others) = picture
        .split_once("<p class=note>processes that other ranks have started</p>")
        .unwrap_or_else(|| panic!("{picture}"));
    assert!(others.contains("<b>cp (4712)</b>"), "{others}");
}

/// The page stays small even with very many processes.
#[test]
fn a_page_with_many_processes_is_small() {
    let mut report = helped();
    let worker = report.samples[2].children["worker"].clone();
    for name in 0..500 {
        let children = &mut report.samples[2].children;
        children.insert(format!("worker{name}"), worker.clone());
    }
    let page = html(&report);
    let picture = page.split_once("id=picture>").unwrap().1;
    let picture = picture.split_once("</section>").unwrap().0;
    assert!(picture.len() < 40_000, "{} bytes", picture.len());
    assert!(
        picture.contains("not drawn: 3856 processes below ranks"),
        "{picture}"
    );
}

#[test]
fn names_cannot_command_the_terminal() {
    let report = look(&[("0", Activity::Running, "main\u{1b}[2J\u{202e}x@a\u{7}.c:1")]);
    let said = text(&report, &PLAIN);
    assert!(!said.contains(['\u{1b}', '\u{202e}', '\u{7}']), "{said:?}");
    assert_eq!(clean("a\nb"), "a\u{fffd}b");
}

#[test]
fn sets_of_ranks_are_cut_between_items() {
    for (ranks, width, expected) in [
        ("0-1022", 20, "[0-1022]"),
        ("0-7,9,11,13-20,25,30,35-90", 16, "[0-7,9-13/2,…]"),
        ("0-7,9,11,13-20,25,30,35-90", 3, "[0-7,…]"),
        ("1000000-2000000", 5, "[1000000-2000000]"),
        ("", 5, "[]"),
    ] {
        assert_eq!(bracketed(&set(ranks), width, "…"), expected);
    }
}

#[test]
fn json_is_read_back() {
    let report = four();
    insta::assert_snapshot!(json(&look(&[("0-2", Activity::Running, "main@a.c:1 f")])), @r#"{"format":"dbgr.stacks","version":1,"title":"mpirun ./solver (pid 4711)","found":[],"doubts":[],"host":"","date":"","versions":[],"commands":[],"placement":[],"frames":[{"function":"f","module":"solver","source":null,"kind":"native"},{"function":"main","module":"solver","source":{"file":"/src/a.c","line":1},"kind":"native"}],"samples":[{"at_us":0,"stacks":[{"frames":[1,0],"thread":"first","activity":"running","end":"start","threads":[{"each":1,"ranks":"0-2"}]}],"helpers":[],"children":[]}],"classes":[],"missing":[],"verdicts":[],"undecided":"","timing":{"total_us":0,"stops":0,"stopped_median_us":0,"stopped_longest_us":0}}"#);
    for report in [report, many(50), look(&[]), helped()] {
        let said = json(&report);
        let read = from_json(&said).unwrap();
        assert_eq!(json(&read), said);
        assert_eq!(text(&read, &PLAIN), text(&report, &PLAIN));
    }
    let said = json(&helped());
    let cite = r#"{"ranks":"3","processes":[4712],"samples":[0,1,2],"#;
    assert!(said.contains(cite), "{said}");
    // Earlier builds did not write this field.
    let old = said.replace(r#""processes":[4712],"samples""#, r#""samples""#);
    let cites = &from_json(&old).unwrap().verdicts[0].cites;
    assert!(cites.iter().all(|cite| cite.processes.is_empty()));
}

#[test]
fn json_does_not_depend_on_the_order() {
    let (a, b) = (
        ("0", Activity::Running, "main f"),
        ("1", Activity::Disk, "main g"),
    );
    assert_eq!(json(&look(&[a, b])), json(&look(&[b, a])));
}

#[test]
fn what_is_no_report_is_refused() {
    let good = json(&look(&[("0", Activity::Running, "main")]));
    let error = |text: &str| from_json(text).unwrap_err().to_string();
    insta::assert_snapshot!(error("{}"), @"not a report: missing field `format` at line 1 column 2");
    insta::assert_snapshot!(error(&good.replace("\"version\":1", "\"version\":9")), @"a report of format `dbgr.stacks`, version 9: this program reads `dbgr.stacks`, version 1");
    insta::assert_snapshot!(error(&good.replace("\"frames\":[0]", "\"frames\":[7]")), @"there is no frame 7");
    assert!(from_json(&good.replace("\"ranks\":\"0\"", "\"ranks\":\"9-1\"")).is_err());
}

#[test]
fn folded_stacks() {
    let mut report = look(&[
        (
            "0-1022",
            Activity::Running,
            "main@a.c:1 solve MPI_Allreduce",
        ),
        ("1023", Activity::Disk, "main =operator;@a.c:3"),
    ]);
    add(&mut report, 0, &set("0"), Activity::Disk, End::Start, "");
    insta::assert_snapshot!(folded(&report), @r#"
    ?? 1
    main;operator,_[i] 1
    main;solve;MPI_Allreduce 1023
    "#);
}

#[test]
fn a_page_of_ten_thousand_ranks_is_small() {
    for (classes, most) in [(3, 60_000), (200, 150 << 10)] {
        let page = html(&many(classes));
        assert!(page.len() <= most, "{classes}: {}", page.len());
    }
}

/// Text from outside appears in the page only as text.
#[test]
fn a_page_runs_nothing_that_it_was_given() {
    let page = html(&made::hostile());
    for bad in [
        "<script>document",
        "<b>.c",
        "<img",
        "\"onmouse",
        "</title><",
        "\u{202e}",
    ] {
        assert!(!page.contains(bad), "{bad}");
    }
    assert_eq!(page.matches("<script").count(), 1);
    assert_eq!(page.matches("</style>").count(), 1);
    assert!(page.contains("&lt;script&gt;document.title=&#39;owned&#39;"));
    assert!(!page.contains("http:") && !page.contains("https:") && !page.contains(" src="));
}

#[test]
fn a_page_says_what_it_must() {
    let page = html(&four());
    for said in [
        "<title>mpirun ./solver (pid 4711): stacks</title>",
        "<em>likely</em> <strong>3 ranks wait in MPI_Allreduce (solver.c:88); rank 3 is in read_block (io.c:41)",
        "1 rank [3] in samples 1, 2, 3: <code>read &lt; read_block (io.c:41)</code>",
        "title=\"1 rank of 4 [3], in disk wait\"",
        "no rank moved",
        "<td>n0000<td class=set>0-3<td class=set>40211-40214<td class=set>0-3",
        "8 threads (PMIx progress) in 4 ranks",
        "build id 3f1c7be09a",
    ] {
        assert!(page.contains(said), "{said}");
    }
    let page = html(&many(200));
    for said in [
        "no verdict: the samples do not distinguish",
        "64 ranks not seen: on host n0010, where no agent was started <span class=set>[640-703]</span>",
        "137 ranks moved",
    ] {
        assert!(page.contains(said), "{said}");
    }
}
