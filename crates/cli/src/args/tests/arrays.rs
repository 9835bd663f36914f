//! How many procs a task of an array has.

use super::*;
use crate::args::request::machine::MachineRequest;

#[test]
fn a_task_of_an_array_has_one_proc_if_nothing_says_how_many() {
    let counts = |place: &Place, line: &str| -> Vec<Option<u32>> {
        let request = place.request(&format!("rally submit {line}"));
        let Ok(Request::Machine(MachineRequest::Submit(submitted))) = request else {
            panic!("{line}: {request:?}")
        };
        let apps = submitted.submission.spec.placement.apps.into_iter();
        apps.map(|app| app.count).collect()
    };
    let place = Place::new().file("ranks", "rank 0=node7 slot=0\n");
    let ranks = place.directory.path().join("ranks");
    let rankfile = format!("--array 1-3 --map-by rankfile:file={} ./a", ranks.display());
    for (line, expected) in [
        ("./a", &[None][..]),
        ("--array 1-3 ./a", &[Some(1)]),
        ("--array 1-3 ./a -n 3", &[Some(1)]),
        ("--array 1-3 -n 3 ./a", &[Some(3)]),
        ("--array 1-3 --map-by node:PE=2 ./a", &[Some(1)]),
        ("--array 1-3 --host n1,n2 ./a", &[Some(1)]),
        ("--array 1-3 ./a : ./b", &[Some(1), Some(1)]),
        ("--array 1-3 ./a : -n 2 ./b", &[None, Some(2)]),
        ("--array 1-3 --per-node 2 ./a", &[None]),
        ("--array 1-3 --map-by PPR:2:node ./a", &[None]),
        ("--array 1-3 --host n1:2 ./a", &[None]),
        ("--array 1-3 --nodes 2 --host n1,n2 ./a", &[None]),
        (&rankfile, &[None]),
    ] {
        assert_eq!(counts(&place, line), expected, "{line}");
    }
    let place = place.variable("RALLY_MAP_BY", "ppr:2:node");
    assert_eq!(counts(&place, "--array 1-3 ./a"), [None]);
    let other = "--array 1-3 --map-by slot ./a";
    assert_eq!(counts(&place, other), [Some(1)]);
}
