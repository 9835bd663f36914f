//! The secret of a session: no process shows it in its arguments or variables, and no file keeps it.

use std::{
    collections::BTreeSet,
    fs,
    path::Path,
    sync::atomic::{AtomicBool, Ordering},
    thread,
};

use nix::{
    sys::signal::{self, Signal},
    unistd::Pid,
};

use super::{
    expect_no_daemon,
    host::over,
    starters::{SAY, with_program},
};
use crate::harness::{CLEAN_WITHIN, Finished, Sandbox, Stream, eventually, rally};

/// Bytes of a secret.
const LENGTH: usize = 32;

/// Returns the secret in a boot frame: the bytes before the name of the launcher's build, which has its length before it.
fn secret_in(frame: &[u8]) -> Vec<u8> {
    let build = concat!("rally ", env!("CARGO_PKG_VERSION"), " (").as_bytes();
    let at = frame
        .windows(build.len())
        .position(|window| window == build);
    let end = at.expect("a boot frame names the build") - 1;
    frame[end - LENGTH..end].to_vec()
}

fn contains(bytes: &[u8], part: &[u8]) -> bool {
    bytes.windows(part.len()).any(|window| window == part)
}

/// Runs a function, and returns the arguments and variables that all processes of the cluster have meanwhile.
fn watched(run: impl FnOnce() -> Finished) -> (Finished, BTreeSet<Vec<u8>>) {
    let is_over = AtomicBool::new(false);
    thread::scope(|scope| {
        let watcher = scope.spawn(|| {
            let mut seen = BTreeSet::new();
            while !is_over.load(Ordering::Relaxed) {
                for entry in fs::read_dir("/proc").unwrap().flatten() {
                    for file in ["cmdline", "environ"] {
                        seen.extend(fs::read(entry.path().join(file)));
                    }
                }
            }
            seen
        });
        let ended = run();
        is_over.store(true, Ordering::Relaxed);
        (ended, watcher.join().unwrap())
    })
}

fn expect_hidden(frame: &[u8], seen: &BTreeSet<Vec<u8>>) {
    let secret = secret_in(frame);
    let digits: String = secret.iter().map(|byte| format!("{byte:02x}")).collect();
    // The watcher has seen processes of the start on the nodes.
    let is_daemon = |text: &&Vec<u8>| contains(text, b"__daemon");
    assert!(seen.iter().any(|text| is_daemon(&text)));
    // Parts would be of use too.
    for part in secret
        .chunks(LENGTH / 2)
        .chain(digits.as_bytes().chunks(LENGTH))
    {
        let shown = seen.iter().find(|text| contains(text, part));
        assert!(
            shown.is_none(),
            "{:?}",
            shown.map(|text| String::from_utf8_lossy(text))
        );
    }
}

#[test]
fn no_process_shows_the_secret_that_ssh_carries() {
    let sandbox = Sandbox::new();
    let saved = sandbox.path("stdin");
    let keep = format!("#!/bin/sh\ntee {} | ssh \"$@\"\n", saved.display());
    let args = [&["-n", "1", "--ssh", "keeping-ssh"], &SAY[..]].concat();
    let mut command = over(&sandbox, "n1", &args);
    with_program(&sandbox, &mut command, "keeping-ssh", &keep);
    let (ended, seen) = watched(|| sandbox.run(&mut command));
    ended.expect_code(0).expect_out("on n1\n");
    expect_hidden(&fs::read(saved).unwrap(), &seen);
    expect_no_daemon();
}

/// A starter without standard input, which keeps the file that it was given, and says who may read it.
fn keeping(saved: &Path, then: &str) -> String {
    let saved = saved.display();
    format!(
        "#!/bin/sh\nhost=$1; shift\nfor file do :; done\ncp \"$file\" {saved}.new && mv {saved}.new {saved}\n\
         stat -c %a \"$file\" \"${{file%/*}}\" >{saved}.modes\n{then}\n"
    )
}

const TEMPLATE: &str = "keeping {host} {daemon} {file}";

/// Each node has its own /tmp; the directory of the build is shared.
fn shared_directory() -> tempfile::TempDir {
    tempfile::tempdir_in(rally().parent().unwrap()).unwrap()
}

#[test]
fn no_process_shows_the_secret_that_a_file_carries() {
    let sandbox = Sandbox::new();
    let shared = shared_directory();
    let saved = sandbox.path("frame");
    let start = keeping(
        &saved,
        "exec ssh -oBatchMode=yes \"$host\" \"exec $*\" </dev/null",
    );
    let args = [&["-n", "1", "--bootstrap-command", TEMPLATE], &SAY[..]].concat();
    let mut command = over(&sandbox, "n1", &args);
    with_program(&sandbox, &mut command, "keeping", &start);
    command.env("XDG_CACHE_HOME", shared.path());
    let (ended, seen) = watched(|| sandbox.run(&mut command));
    ended.expect_code(0).expect_out("on n1\n");
    expect_hidden(&fs::read(&saved).unwrap(), &seen);
    let modes = sandbox.read("frame.modes");
    assert_eq!(modes, "600\n700\n");
    expect_no_daemon();
}

/// All processes of the launcher are killed before the daemon has read the file. The next start removes it.
#[test]
fn a_file_with_a_secret_does_not_outlive_a_killed_launcher() {
    let sandbox = Sandbox::new();
    let shared = shared_directory();
    let saved = sandbox.path("frame");
    let start = keeping(&saved, "exec sleep 77");
    let mut command = over(
        &sandbox,
        "n1",
        &["-n", "1", "--bootstrap-command", TEMPLATE, "true"],
    );
    with_program(&sandbox, &mut command, "keeping", &start);
    command.env("XDG_CACHE_HOME", shared.path());
    let job = sandbox.start(&mut command);
    let is_saved = eventually(CLEAN_WITHIN, || {
        sandbox.path("frame.modes").exists().then_some(())
    });
    assert!(is_saved.is_some(), "{}", job.so_far(Stream::Stderr));
    let files = || fs::read_dir(shared.path().join("rally")).unwrap().count();
    assert_eq!(files(), 1);
    let words = rally().display().to_string();
    let ours = || {
        let mut all = sandbox.alive();
        all.retain(|one| one.args.starts_with(&words) || one.args.starts_with("sleep 77"));
        all
    };
    for process in ours() {
        let _ = signal::kill(Pid::from_raw(process.pid), Signal::SIGKILL);
    }
    job.end();
    let gone = eventually(CLEAN_WITHIN, || ours().is_empty().then_some(()));
    assert!(gone.is_some(), "{:?}", ours());
    sandbox
        .run(&mut sandbox.rally(&["run", "-n", "1", "true"]))
        .expect_code(0);
    assert_eq!(files(), 0);
}
