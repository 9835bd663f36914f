use std::time::Duration;

use base::Rank;

use super::{Boundary, Motion, Recording, script::looks};

const SECOND: Duration = Duration::from_secs(1);

fn motion(texts: &[&str]) -> Motion {
    let recording = looks(SECOND, texts);
    let all = recording.observe(Boundary::Known);
    all.ranks[&Rank(0)].main.as_ref().unwrap().motion
}

#[test]
fn one_look_says_nothing_of_motion() {
    assert_eq!(motion(&["0: main > f = running 100"]), Motion::Unknown);
}

#[test]
fn what_a_library_does_below_a_wait_does_not_count() {
    let texts = [
        "0: main@a.c:1 > MPI_Recv!libmpi.so > progress!libmpi.so = running 100",
        "0: main@a.c:1 > MPI_Recv!libmpi.so > poll!libc.so.6 = poll 100",
    ];
    assert_eq!(motion(&texts), Motion::Spinning);
    let recording = looks(SECOND, &texts);
    let full = recording.observe(Boundary::Full);
    assert_eq!(
        full.ranks[&Rank(0)].main.as_ref().unwrap().frames().len(),
        3
    );
}

#[test]
fn a_wait_without_processor_time_is_stuck() {
    let text = "0: main@a.c:1 > read!libc.so.6 = read 0";
    assert_eq!(motion(&[text; 3]), Motion::Stuck);
}

#[test]
fn a_call_from_another_line_is_another_wait() {
    let texts = [
        "0: main@a.c:1 > MPI_Recv!libmpi.so = running 100",
        "0: main@a.c:2 > MPI_Recv!libmpi.so = running 100",
    ];
    assert_eq!(motion(&texts), Motion::Looping);
    let texts = [
        "0: main@a.c:1 > f@a.c:9 > MPI_Recv!libmpi.so = running 100",
        "0: main@a.c:2 > f@a.c:9 > MPI_Recv!libmpi.so = running 100",
    ];
    assert_eq!(motion(&texts), Motion::Moving);
}

#[test]
fn other_lines_of_one_function_are_a_loop() {
    let texts = [
        "0: main@a.c:1 > spin@a.c:5 = running 100",
        "0: main@a.c:1 > spin@a.c:6 > sin!libm.so.6 = running 100",
        "0: main@a.c:1 > spin@a.c:6 > inl:square@a.c:2 = running 100",
    ];
    assert_eq!(motion(&texts), Motion::Looping);
    let recording = looks(SECOND, &texts);
    let classes = recording
        .observe(Boundary::Known)
        .classes(&recording.frames);
    assert_eq!(classes[0].lines, [2, 5, 6]);
}

#[test]
fn recursion_and_cycles_fold() {
    let deep = "0: main > walk@a.c:1 > walk@a.c:1 > walk@a.c:1 > leaf = running 100";
    let flat = "0: main > walk@a.c:1 > leaf = running 100";
    assert_eq!(motion(&[deep, flat]), Motion::Looping);
    let cycle = |times| {
        let cycle = "a@a.c:1 > b@a.c:2 > c@a.c:3 > d@a.c:4 > ".repeat(times);
        format!("0: main > {cycle}leaf = running 100")
    };
    assert_eq!(motion(&[&cycle(7), &cycle(2)]), Motion::Looping);
}

#[test]
fn ranks_in_the_same_wait_are_one_class_and_helpers_are_counted() {
    let recording = looks(
        SECOND,
        &["0-998,1000: main@a.c:1 > MPI_Barrier!libmpi.so > a!libmpi.so = running 100
           999: main@a.c:1 > PMPI_Barrier!libmpi.so > b!libmpi.so = poll 100
           0-999/pmix: clone > progress_engine!libpmix.so = poll 0
           1001: gone"; 2],
    );
    let all = recording.observe(Boundary::Known);
    let classes = all.classes(&recording.frames);
    let ranks: Vec<String> = classes
        .iter()
        .map(|class| class.ranks.to_string())
        .collect();
    assert_eq!(ranks, ["0-1000", "1001"]);
    assert_eq!(all.ranks[&Rank(0)].helpers["progress"], 1);
}

#[test]
fn a_rank_that_was_awake_by_chance_is_in_the_class_of_the_others() {
    let classes = |polling: &str| -> Vec<String> {
        let text = format!(
            "0-2,4-7: main@a.c:1 > MPI_Barrier!libmpi.so > a!libmpi.so = poll 0.9
             3: main@a.c:1 > MPI_Barrier!libmpi.so > b!libmpi.so = running 0.4
             8: main@a.c:1 > MPI_Barrier!libmpi.so > a!libmpi.so = poll {polling}"
        );
        let recording = looks(SECOND, &[text.as_str(); 4]);
        let all = recording.observe(Boundary::Known);
        let classes = all.classes(&recording.frames).into_iter();
        classes
            .map(|class| format!("{} {:?}", class.ranks, class.motion))
            .collect()
    };
    assert_eq!(classes("7"), ["0-8 Stuck"]);
    assert_eq!(classes("98"), ["0-7 Stuck", "8 Spinning"]);
}

#[test]
fn a_recording_comes_back_from_text() {
    let recording = looks(SECOND, &["0: main > f@a.c:3 = disk 0\n1: zombie"; 2]);
    let text = serde_json::to_string(&recording).unwrap();
    let back: Recording = serde_json::from_str(&text).unwrap();
    assert!(back.is_whole());
    assert_eq!(serde_json::to_string(&back).unwrap(), text);
    let wild: Recording =
        serde_json::from_str(&text.replace("\"frames\":[0,1]", "\"frames\":[9]")).unwrap();
    assert!(!wild.is_whole());
}
