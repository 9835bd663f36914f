//! Tools that use the profiling interface: whether they come before the recorder or after it, no call is lost or counted twice.

use super::{OPTIONS, built, calls, last_call};
use crate::{
    hangs::{SETTLED_WITHIN, ranks, recorded::Library, started_with, stop, verdict},
    harness::{Sandbox, Stream, eventually},
};

/// How a tool gets between the program and the MPI library.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Tool {
    None,
    /// The user preloads it, so it comes after the recorder.
    Preloaded,
    /// The job's own script preloads it, so it comes before.
    Before,
    Linked,
    /// The program has functions with the names of MPI.
    Own,
}

/// Without the places of calls, which are in the tool if it comes first.
fn without_places(text: &str) -> String {
    text.split(" (")
        .map(|part| match part.split_once(')') {
            Some((place, rest)) if place.contains(".c:") => rest.to_owned(),
            _ => part.to_owned(),
        })
        .collect()
}

struct Seen {
    calls: String,
    verdict: String,
}

/// Runs a program with a tool until it hangs.
#[track_caller]
fn seen(library: Library, tool: Tool, options: &[&str]) -> Seen {
    let sandbox = Sandbox::new();
    let shared = [&["-shared", "-fPIC"], options].concat();
    let wrapper = built(library, "tool.c", &shared);
    let program = match tool {
        Tool::Linked => built(library, "counted.c", &[&wrapper]),
        Tool::Own => built(library, "counted.c", &["-DOWN"]),
        _ => built(library, "counted.c", &[]),
    };
    let setting = format!("--set-env=LD_PRELOAD={wrapper}");
    let script = format!("LD_PRELOAD={wrapper}:$LD_PRELOAD exec {program}");
    let mut words = OPTIONS.to_vec();
    if tool == Tool::Preloaded {
        words.push(&setting);
    }
    let command = match tool {
        Tool::Before => vec!["sh", "-c", &script],
        _ => vec![program.as_str()],
    };
    let run = started_with(&sandbox, &words, "2", &command);
    if matches!(tool, Tool::Preloaded | Tool::Before | Tool::Linked) {
        // What the tool itself has counted in rank 0.
        run.expect(Stream::Stdout, "ready 13\n");
    }
    let mut said = String::new();
    let settled = eventually(SETTLED_WITHIN, || {
        said = calls(&sandbox, &run, &["--last", "63"]);
        let is_last = |rank: &str, call: &str| last_call(&said, rank).starts_with(call);
        (is_last("rank 0", "MPI_Recv") && is_last("rank 1", "MPI_Allreduce")).then_some(())
    });
    assert!(settled.is_some(), "{library:?}, {tool:?}: {said}");
    let verdict = verdict(&sandbox, "2", "500", &ranks(&sandbox, &program));
    stop(run);
    Seen {
        calls: without_places(&said),
        verdict: without_places(verdict.lines().last().unwrap_or_default()),
    }
}

#[track_caller]
fn counts_are_the_same(library: Library) {
    let alone = seen(library, Tool::None, &[]);
    assert_eq!(
        alone.verdict,
        "proved: rank 0 waits in MPI_Recv from rank 1, tag 4, WORLD#1; rank 1 has sent it 3 with tag 4; \
         rank 1 waits in MPI_Allreduce on WORLD, collective operation 2; rank 0 has begun 1"
    );
    assert!(alone.calls.contains("> 16  MPI_Recv"), "{}", alone.calls);
    for tool in [Tool::Preloaded, Tool::Before, Tool::Linked, Tool::Own] {
        let with = seen(library, tool, &[]);
        assert_eq!(with.calls, alone.calls, "{library:?}, {tool:?}");
        assert_eq!(with.verdict, alone.verdict, "{library:?}, {tool:?}");
    }
}

#[test]
fn counts_are_the_same_with_mpich() {
    counts_are_the_same(Library::Mpich5);
}

#[test]
fn counts_are_the_same_with_open_mpi() {
    counts_are_the_same(Library::OpenMpi5);
}

/// A tool that uses MPI in `MPI_Init`, and sends by another function than the program. Before the recorder, it is all that the library
/// sees. After it, both functions are counted, so nothing is proved from messages, but all have their right names.
#[test]
fn a_tool_that_replaces_calls() {
    let before = seen(Library::Mpich5, Tool::Before, &["-DREPLACES"]);
    assert_eq!(
        before.verdict,
        "proved: rank 0 waits in MPI_Recv from rank 1, tag 4, WORLD#2; rank 1 has sent it 3 with tag 4; \
         rank 1 waits in MPI_Allreduce on WORLD, collective operation 3; rank 0 has begun 2"
    );
    let after = seen(Library::Mpich5, Tool::Preloaded, &["-DREPLACES"]);
    assert!(!after.verdict.contains("proved"), "{}", after.verdict);
    for call in [
        "MPI_Comm_dup on WORLD, collective operation 1, inside another call\n",
        "MPI_Send to rank 1, tag 4, WORLD#2\n",
        "MPI_Isend to rank 1, tag 4, WORLD#2, inside another call\n",
    ] {
        assert!(after.calls.contains(call), "{call}{}", after.calls);
    }
}
