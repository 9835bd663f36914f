use base::RankSet;

use super::{
    super::{
        Doubt,
        overview::{Inexact, Overview},
    },
    *,
};
use crate::report::{Colour, Detail, Guides, Layout, Merged, Report, from_json, html, json, text};

/// Rank 2 is one collective operation behind and has ended; the others wait for it.
fn report() -> Report {
    let enters = |of: u32| rank(of, 3).in_collective("MPI_Bcast", 1);
    let mut dead = rank(2, 3).in_call(call("MPI_Recv", 0, 5, 1));
    dead.ended = true;
    dead.threads[0].calls[0].place = None;
    Report {
        recorded: Overview::of(&job([enters(0), enters(1), dead])),
        samples: vec![Merged::default()],
        ..Report::default()
    }
}

#[test]
fn calls_and_who_is_behind_are_shown() {
    let layout = Layout {
        width: 100,
        detail: Detail::Folded,
        colour: Colour::Never,
        guides: Guides::Unicode,
    };
    let said = text(&report(), &layout);
    let lines: Vec<&str> = said
        .lines()
        .filter(|line| line.starts_with("in:") || line.starts_with("behind:"))
        .collect();
    insta::assert_snapshot!(lines.join("\n"), @"
    in: 2 [0-1] MPI_Bcast root 1, WORLD, collective operation 1 (a.c:1)
    in: 1 [2] MPI_Recv from rank 0, tag 5, WORLD, where it has ended
    behind: 1 [2] on WORLD: 0 of 1 collective operations
    ");
}

#[test]
fn calls_and_communicators_are_data() {
    let report = report();
    let written = json(&report);
    let value: serde_json::Value = serde_json::from_str(&written).unwrap();
    insta::assert_snapshot!(value["calls"].to_string(), @r#"[{"call":"MPI_Bcast root 1, WORLD, collective operation 1 (a.c:1)","communicator":"WORLD","function":"MPI_Bcast","operation":1,"place":"a.c:1","ranks":"0-1","root":1,"state":"in"},{"call":"MPI_Recv from rank 0, tag 5, WORLD, where it has ended","communicator":"WORLD","function":"MPI_Recv","peer":0,"ranks":"2","state":"ended-in","tag":5}]"#);
    insta::assert_snapshot!(value["communicators"].to_string(), @r#"[{"begun":[{"operations":1,"ranks":"0-1"},{"operations":0,"ranks":"2"}],"members":3,"name":"WORLD"}]"#);
    assert_eq!(from_json(&written).unwrap().recorded, report.recorded);
}

#[test]
fn the_page_has_tables_of_both() {
    let page = html(&report());
    let begin = page.find("<section><h2>Calls of MPI").unwrap();
    let end = page.find("<section><h2>How it").unwrap();
    insta::assert_snapshot!(&page[begin..end], @r#"
    <section><h2>Calls of MPI <small>recorded, in the last sample</small></h2>
    <div class=wide><table><tr><th class=n>ranks<th>function<th>on<th class=n>peer<th class=n>tag<th class=n>root<th class=n>operation<th>line<th>who
    <tr title="MPI_Bcast root 1, WORLD, collective operation 1 (a.c:1)"><td class=n>2<td class=f>MPI_Bcast<td>WORLD<td class=n>–<td class=n>–<td class=n>1<td class=n>1<td>a.c:1<td class=set>[0-1]
    <tr title="MPI_Recv from rank 0, tag 5, WORLD, where it has ended"><td class=n>1<td class=f>MPI_Recv (ended in it)<td>WORLD<td class=n>0<td class=n>5<td class=n>–<td class=n>–<td>–<td class=set>[2]</table></div>
    </section>
    <section><h2>Communicators <small>collective operations that were begun</small></h2>
    <div class=wide><table><tr><th>name<th class=n>members<th class=n>operations<th>behind
    <tr class=o><td>WORLD<td class=n>3<td class=n>1<td class=set>0: [2]</table></div>
    </section>
    "#);
}

#[test]
fn the_numbers_of_another_job_are_not_compared() {
    let mut stranger = rank(1, 2);
    stranger.rank = Some(0);
    stranger.communicators[0].collectives = 7;
    let overview = Overview::of(&job([rank(0, 2), stranger]));
    assert_eq!(overview.communicators.len(), 1);
    assert!(overview.communicators[0].behind().is_empty());
}

#[test]
fn locks_that_are_not_unlocked_are_told() {
    let locks = |locked: u64, unlocked: u64| {
        rank(1, 3)
            .with(Direction::Locked, 2, 0, locked)
            .with(Direction::Unlocked, 2, 0, unlocked)
            .with(Direction::Locked, 0, 1, 1)
            // A region with a wrong rank.
            .with(Direction::Locked, 9, 0, 1)
    };
    let said = |calls| {
        let overview = Overview::of(&job([rank(0, 3), calls]));
        let locks = overview.locks.iter();
        locks
            .map(|it| (it.window.clone(), it.target, it.ranks.to_string()))
            .collect::<Vec<_>>()
    };
    let lock = |target| ("WORLD".to_owned(), target, "1".to_owned());
    assert_eq!(said(locks(3, 2)), [lock(None), lock(Some(2))]);
    assert_eq!(said(locks(3, 3)), [lock(None)]);
    // It waits for its last one.
    let waits = locks(3, 2).in_call(call("MPI_Win_lock", 2, 0, 0));
    assert_eq!(said(waits), [lock(None)]);
}

#[test]
fn ranks_whose_calls_are_not_readable_are_named() {
    let mut report = report();
    report.recorded.unreadable = RankSet::from_iter([Rank(3), Rank(4)]);
    let layout = Layout {
        width: 100,
        detail: Detail::Folded,
        colour: Colour::Never,
        guides: Guides::Unicode,
    };
    let said = text(&report, &layout);
    assert!(said.contains("\nnot readable: 2 [3-4] what the recorder has written there\n"));
    assert_eq!(from_json(&json(&report)).unwrap().recorded, report.recorded);
    let words = "<p>What the recorder has written in 2 ranks is not readable: [3-4]</p>";
    assert!(html(&report).contains(words));
    report.recorded.inexact = vec![Inexact {
        ranks: RankSet::from_iter([Rank(0)]),
        why: Doubt::Messages,
    }];
    let why = "some messages had no room and are not counted";
    let said = text(&report, &layout);
    assert!(said.contains(&format!("\nnot exact: 1 [0] {why}: no proof\n")));
    assert_eq!(from_json(&json(&report)).unwrap().recorded, report.recorded);
    assert!(html(&report).contains(why));
    // Nothing else is recorded.
    report.recorded.calls.clear();
    assert!(text(&report, &layout).contains("\nnot readable: 2 [3-4]"));
    assert!(html(&report).contains(words));
}

/// What a wait for one request waits for is told; of several, their number.
#[test]
fn a_wait_tells_its_request() {
    let waits = |name: &str, requests: &[Pending]| {
        let mut call = call(name, 0, 0, 0);
        (call.communicator, call.count) = (0, requests.len().try_into().unwrap());
        call.pending = requests.to_vec();
        let overview = Overview::of(&job([rank(0, 2).in_call(call)]));
        overview.calls[0].call.clone()
    };
    let mut receive = pending("MPI_Irecv", 1, 7, 1);
    receive.place = Some("b.c:3".into());
    let barrier = pending("MPI_Ibarrier", 0, 0, 1);
    let said = [
        waits("MPI_Wait", std::slice::from_ref(&receive)),
        waits("MPI_Wait", std::slice::from_ref(&barrier)),
        waits("MPI_Waitall", &[receive, barrier]),
    ];
    insta::assert_snapshot!(said.join("\n"), @"
    MPI_Wait for MPI_Irecv (b.c:3) from rank 1, tag 7, WORLD (a.c:1)
    MPI_Wait for MPI_Ibarrier on WORLD (a.c:1)
    MPI_Waitall of 2 requests (a.c:1)
    ");
}
