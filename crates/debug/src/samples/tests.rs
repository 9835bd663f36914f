pub(crate) mod script;

use std::time::Duration;

use base::Rank;

use self::script::recording;
use super::{Boundary, Motion, Recording, ThreadSet};

const SECOND: Duration = Duration::from_secs(1);

fn motion(texts: &[&str]) -> Motion {
    let recording = recording(SECOND, texts);
    let all = recording.observe(Boundary::Known);
    all.ranks[&Rank(0)].main.as_ref().unwrap().motion
}

#[test]
fn one_look_says_nothing_of_motion() {
    assert_eq!(motion(&["0: main > f = running 100"]), Motion::Unknown);
}

#[test]
fn a_thread_that_reuses_an_id_is_another_one() {
    for (percents, expected) in [
        ([100, 100, 100], ThreadSet::Same),
        ([100, 0, 0], ThreadSet::Same),
        // As if the second thread had used less CPU time than the first one.
        ([100, -50, 100], ThreadSet::Changed),
    ] {
        let texts = percents.map(|percent| format!("0: main@a.c:1 > f@a.c:2 = running {percent}"));
        let recording = recording(SECOND, &texts.each_ref().map(String::as_str));
        let all = recording.observe(Boundary::Known);
        assert_eq!(all.ranks[&Rank(0)].threads, expected, "{percents:?}");
    }
}

#[test]
fn what_a_library_does_below_a_wait_does_not_count() {
    let texts = [
        "0: main@a.c:1 > MPI_Recv!libmpi.so > progress!libmpi.so = running 100",
        "0: main@a.c:1 > MPI_Recv!libmpi.so > poll!libc.so.6 = poll 100",
    ];
    assert_eq!(motion(&texts), Motion::Spinning);
    let recording = recording(SECOND, &texts);
    let full = recording.observe(Boundary::Full);
    assert_eq!(
        full.ranks[&Rank(0)].main.as_ref().unwrap().frames().len(),
        3
    );
}

#[test]
fn a_function_of_the_user_below_a_call_is_what_counts() {
    let wait = |stack: &str| {
        let recording = recording(SECOND, &[format!("0: {stack} = running 100").as_str(); 2]);
        let all = recording.observe(Boundary::Known);
        let main = all.ranks[&Rank(0)].main.clone().unwrap();
        let wait = main.wait().map_or("none", |wait| &wait.name).to_owned();
        let cited = main.seen[0].0.cited_frame(&recording.frames).unwrap();
        let cited = recording.frames.get(cited).function.clone().unwrap();
        format!("{wait} from {cited}, {:?}", main.motion)
    };
    let reduce = "main@a.c:1 > MPI_Reduce!libmpi.so.12 > MPIR_Reduce_impl!libmpi.so.12";
    let python = "py:train@t.py:1 > __pyx_pw_6mpi4py_3MPI_4Comm_9reduce!MPI.abi3.so > PMPI_Reduce!libmpi.so.12";
    let table = [
        // The operation of a reduction: also in a program without line numbers, in a library, and where it calls other
        // functions.
        (format!("{reduce} > add@a.c:5"), "none from add, Looping"),
        (format!("{reduce} > add"), "none from main, Looping"),
        (format!("{reduce} > add@s.c:4!libsolver.so > memcpy!libc.so.6"), "none from add, Looping"),
        (format!("{python} > op_user_call!MPI.abi3.so > py:add@t.py:7"), "none from add, Looping"),
        // A wait in such a callback is the wait of the rank.
        (format!("{reduce} > add@a.c:5 > fsync!libc.so.6"), "fsync from add, Spinning"),
        ("main@a.c:1 > MPI_Send!libmpi.so > complain@a.c:5 > PMPI_Barrier!libmpi.so > progress!libmpi.so".to_owned(),
            "MPI_Barrier from complain, Spinning"),
        // Signal handlers, and the calls that they have interrupted.
        (format!("{reduce} > poll!libc.so.6 > <signal handler called> > save@a.c:8"), "none from save, Looping"),
        ("main@a.c:1 > pthread_cond_wait!libc.so.6 > <signal handler called> > save@a.c:8 > MPI_Barrier!libmpi.so".to_owned(),
            "MPI_Barrier from save, Spinning"),
        ("main@a.c:1 > pthread_once!libc.so.6 > begin@a.c:8 > MPI_Barrier!libmpi.so".to_owned(),
            "MPI_Barrier from begin, Spinning"),
        ("main@a.c:1 > pthread_once!libc.so.6 > begin@a.c:8".to_owned(), "none from begin, Looping"),
        // Internals of libraries, including wrappers that tools put in front of MPI and the C library.
        (format!("{reduce} > MPID_Progress!libmpi.so.12 > fi_cq_read!libtcp-fi.so > __interceptor_poll!libasan.so.8"),
            "MPI_Reduce from main, Spinning"),
        (format!("{reduce} > progress!mca_btl_sm.so > poll!libwrapped.so"), "MPI_Reduce from main, Spinning"),
        ("main@a.c:1 > MPI_Reduce!libtool.so > enter!libtool.so > real!libtrace.so > PMPI_Reduce!libmpi.so > progress!libmpi.so".to_owned(),
            "MPI_Reduce from main, Spinning"),
        ("main@a.c:1 > MPI_Reduce!libtool.so > real!libtrace.so > PMPI_Reduce!libmpi.so > progress!libmpi.so > add@a.c:5".to_owned(),
            "none from add, Looping"),
        ("main@a.c:1 > MPI_Reduce@w.c:3 > PMPI_Reduce!libmpi.so > progress!libmpi.so > add@a.c:5".to_owned(), "none from add, Looping"),
        // MPI linked statically into the program.
        ("main@a.c:1 > MPI_Reduce > MPIR_Reduce > uct_iface_progress > smr_poll".to_owned(), "MPI_Reduce from main, Spinning"),
        ("main@a.c:1 > MPI_Reduce > MPIR_Reduce > add@a.c:5".to_owned(), "none from add, Looping"),
    ];
    for (stack, expected) in table {
        assert_eq!(wait(&stack), expected, "{stack}");
    }
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
    let recording = recording(SECOND, &texts);
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
    let recording = recording(
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
        let recording = recording(SECOND, &[text.as_str(); 4]);
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
    let recording = recording(SECOND, &["0: main > f@a.c:3 = disk 0\n1: zombie"; 2]);
    let text = serde_json::to_string(&recording).unwrap();
    let back: Recording = serde_json::from_str(&text).unwrap();
    assert!(back.is_whole());
    assert_eq!(serde_json::to_string(&back).unwrap(), text);
    let wild: Recording =
        serde_json::from_str(&text.replace("\"frames\":[0,1]", "\"frames\":[9]")).unwrap();
    assert!(!wild.is_whole());
}
