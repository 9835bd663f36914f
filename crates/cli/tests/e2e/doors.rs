//! Ranks that are held, and released through each door, on one large node and over many.

use nix::sys::signal::Signal;

use crate::{
    debugger::at_the_breakpoint,
    harness::{Running, Stream},
    tools::{LIBRARIES, Site},
};

/// The ranks of each layout, and the options that make it.
const LAYOUTS: [(usize, &[&str]); 2] = [
    (1000, &["-n", "1000"]),
    (
        64,
        &[
            "-n",
            "64",
            "--bootstrap",
            "fork",
            "--nodes",
            "16",
            "--map-by",
            "node",
        ],
    ),
];

/// What each rank runs. It prints nothing before it is released.
const PROGRAM: [&str; 2] = ["echo", "ran"];

/// Starts ranks that are held, and returns when all of them are.
fn held(site: &Site, ranks: usize, options: &[&str]) -> Running {
    let mut command = site.sandbox.rally(&["run", "--stop-on-exec"]);
    command.env("XDG_RUNTIME_DIR", site.sandbox.work());
    command.args(options).args(PROGRAM);
    let run = site.sandbox.start(&mut command);
    run.expect(Stream::Stderr, &format!("{ranks} ranks held"));
    assert_eq!(run.so_far(Stream::Stdout), "");
    run
}

/// Expects that each rank runs once, and that nothing is left.
fn expect_all(site: &Site, ranks: usize, run: Running) {
    let run = run.end().expect_code(0);
    assert_eq!(
        run.out().lines().filter(|line| *line == "ran").count(),
        ranks
    );
    site.sandbox.expect_clean();
}

/// By the command, by a signal to the launcher, and by the event of a PMIx tool.
#[test]
fn many_ranks_are_released_by_each_of_them() {
    for (ranks, options) in LAYOUTS {
        let doors: [fn(&Site, &Running); 3] = [
            |site, run| {
                let mut command = site.sandbox.rally(&["release", &run.pid.to_string()]);
                command.env("XDG_RUNTIME_DIR", site.sandbox.work());
                site.sandbox.run(&mut command).expect_code(0);
            },
            |_, run| run.signal(Signal::SIGCONT),
            |site, run| drop(site.attach(run.pid, &["release"]).expect_code(0)),
        ];
        for open in doors {
            let site = Site::new(LIBRARIES[1]);
            let run = held(&site, ranks, options);
            open(&site, &run);
            expect_all(&site, ranks, run);
        }
    }
}

/// By a debugger that has started the launcher and lets it go on.
#[test]
fn many_ranks_are_released_by_mpir() {
    for (ranks, options) in LAYOUTS {
        let site = Site::new(LIBRARIES[1]);
        let args = [&["run"], options, &PROGRAM].concat();
        let (run, table) = at_the_breakpoint(&site.sandbox, &args);
        assert_eq!(table.len(), ranks);
        assert!(!run.so_far(Stream::Stdout).contains("ran\n"));
        site.sandbox.file("go", "");
        let run = run.end();
        assert_eq!(run.out().matches("ran\n").count(), ranks, "{run:?}");
        site.sandbox.expect_clean();
    }
}
