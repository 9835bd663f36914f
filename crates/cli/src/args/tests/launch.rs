//! Launch configurations: their command lines, and the mistakes in them.

use super::*;
use crate::args::request::launch::{LaunchRequest, LaunchStep};

/// Returns the place of a launch configuration with this text.
fn place(text: &str) -> Place {
    Place::new().file("a.toml", text)
}

fn launch(text: &str, options: &str) -> LaunchRequest {
    let line = format!("rally launch a.toml {options}");
    match place(text).request(&line) {
        Ok(Request::Launch(launch)) => *launch,
        other => panic!("{text}\n{other:?}"),
    }
}

/// Returns the words of what is run, each quoted where a shell needs it.
fn line(text: &str, options: &str) -> String {
    let texts = |words: &[OsString]| -> Vec<String> {
        words
            .iter()
            .map(|word| word.display().to_string())
            .collect()
    };
    let words = match launch(text, options).step {
        LaunchStep::Rally(words, _) => texts(&words),
        LaunchStep::Debugger(own, line) => [texts(&own), texts(&line)].concat(),
        LaunchStep::Dbgr(words) => [vec!["dbgr".to_owned()], texts(&words)].concat(),
    };
    crate::quoting::joined(&words)
}

fn complaint(text: &str, options: &str) -> String {
    place(text).complaint(&format!("rally launch a.toml {options}"))
}

const ONE: &str = "version = 1\n[[app]]\nprogram = './a'\n";

#[test]
fn a_file_is_a_command_line() {
    let full = "version = 1\n\
        [[app]]\nprogram = './a'\nargs = ['-n', 'b c', '']\nnp = 2\nwdir = '/tmp'\n\
        env = { Z = 'x y', A = 2 }\nset-env = ['B', 'C=1']\nunset-env = 'D'\n\
        [[app]]\nprogram = './b'\nhost = ['n1:2', 'n2']\n\
        [job]\ntimeout = '90'\nlabel = true\nkill-on-bad-exit = false\nquiet = true\nmerge-stderr = false\npty = false\n\
        memory-limit = '1G'\ngpus-per-proc = 1\nnodes = 2\nenv = { J = 1.5 }\n";
    let cases = [
        (ONE.to_owned(), "rally run -- ./a"),
        (
            full.to_owned(),
            "rally run --timeout=90 --label --kill-on-bad-exit=no --quiet --memory-limit=1G --gpus-per-proc=1 --nodes=2 \
             --global-env=J=1.5 --np=2 --wdir=/tmp '--set-env=Z=x y' --set-env=A=2 --set-env=B --set-env=C=1 --unset-env=D \
             -- ./a -n 'b c' '' : --host=n1:2 --host=n2 -- ./b",
        ),
        (
            format!("{ONE}[queue]\npriority = -3\narray = '1-9'\nhold = true\nresource = 'x=1'\n")
                .replace("resource = 'x=1'\n", ""),
            "rally submit --priority=-3 --array=1-9 --hold -- ./a",
        ),
    ];
    for (text, expected) in cases {
        assert_eq!(line(&text, ""), expected);
    }
}

/// The translation loses nothing: the command line is the one that a user would have typed.
#[test]
fn the_command_line_of_a_file_is_that_of_a_user() {
    let text = "version = 1\n[[app]]\nprogram = 'a'\nargs = ['--np', 'x']\nnp = 3\nenv = { V = 'a,b' }\n\
        [[app]]\nprogram = 'b'\n[job]\ntimeout = '1m'\nstdin = 'all'\non-hang = 'report:9s'\n";
    let typed =
        "rally run --timeout 1m --stdin all --on-hang report:9s -n 3 --set-env V=a,b a --np x : b";
    let place = place(text);
    let Ok(Request::Launch(launch)) = place.request("rally launch a.toml") else {
        panic!("{text}");
    };
    let LaunchStep::Rally(_, args) = &launch.step else {
        panic!("{launch:?}");
    };
    let of_file = resolve(args, &place.world).unwrap();
    let of_user = place.request(typed).unwrap();
    assert_eq!(format!("{of_file:?}"), format!("{of_user:?}"));
}

#[test]
fn debuggers() {
    let with = |debugger: &str| format!("{ONE}[debugger]\n{debugger}\n");
    let gdb = "program = 'gdb'\nargs = ['-ex', 'break main']\n";
    let sources = "[sources]\ndirectories = ['s', 'my src']\nsubstitute = { '/b' = '/h' }\n";
    let cases: &[(&str, String, &str)] = &[
        ("--debug", ONE.to_owned(), "rally run --stop-on-exec -- ./a"),
        (
            "--debug",
            with("stop = 'init'"),
            "rally run --stop-in-init -- ./a",
        ),
        (
            "--debug",
            with("program = 'dbgr'\nstop = 'no'"),
            "rally run -- ./a",
        ),
        ("--attach 17", ONE.to_owned(), "dbgr stacks 17"),
        (
            "--attach 17",
            with("args = ['report', '--samples', '9']"),
            "dbgr report --samples 9 17",
        ),
        (
            "--debug",
            with(gdb),
            "gdb -ex 'break main' --args rally run -- ./a",
        ),
        (
            "--debug",
            with(&format!("{gdb}stop = 'app'")) + sources,
            "gdb -d s -d 'my src' -iex 'set substitute-path /b /h' -ex 'break main' --args rally run --stop-in-app -- ./a",
        ),
        ("--attach 17", with(gdb), "gdb -p 17"),
        (
            "--debug",
            with("program = 'ddt'\nargs = ['--start', '--source-dirs={sources}']") + sources,
            "ddt --start '--source-dirs=s:my src' rally run -- ./a",
        ),
        (
            "--attach 17",
            with("program = 'ddt'\nattach-args = ['--attach-mpi={job}']"),
            "ddt --attach-mpi=17",
        ),
        (
            "--debug",
            with("program = './server'\nargs = ['a b']\nstart = 'node'"),
            "rally run --stop-on-exec --tool=./server '--tool-arguments='\\''a b'\\''' -- ./a",
        ),
        (
            "--attach 17@2",
            with("program = './server'\nargs = ['a b']\nstart = 'node'"),
            "rally start-tool 17@2 -- ./server 'a b'",
        ),
        (
            "--attach 17",
            with(&format!("{gdb}start = 'rank'")),
            "rally start-tool --per-rank --label --stdin=all 17 -- /bin/sh -c \
             'pid=${RALLY_TOOL_RANKS##*:}; exec gdb -ex '\\''break main'\\'' -p \"$pid\"'",
        ),
        (
            "--debug",
            with("program = './t'\nargs = ['--pid={pid}']\nstart = 'rank'\nstop = 'no'"),
            "rally run --tool=/bin/sh '--tool-arguments=-c '\\''pid=${RALLY_TOOL_RANKS##*:}; exec ./t --pid=\"$pid\"'\\''' \
             --tool-per-rank -- ./a",
        ),
    ];
    for (options, text, expected) in cases {
        assert_eq!(line(text, options), *expected, "{options}\n{text}");
    }
}

/// Only a file that an action can write may be missing before it has run.
#[test]
fn actions_may_write_what_the_job_reads() {
    let late = format!("{ONE}[job]\nhostfile = 'hosts'\n[actions]\npre = ['make hosts']\n");
    assert_eq!(launch(&late, "").pre.len(), 1);
    let bad = late.replace("[job]", "[job]\nbind-to = 'x'");
    assert!(complaint(&bad, "").contains("from: a.toml:5:11\n"));
    // A running job has had its actions.
    assert_eq!(launch(&late, "--attach 17").pre.len(), 0);
}

#[test]
fn the_example_is_a_launch_configuration() {
    let text = include_str!("../../launch/example.toml");
    assert_eq!(line(text, ""), "rally run --np=2 -- ./program");
    // What it shows as comments can be written.
    let left_out = [
        "label",
        "nodes",
        "hostfile",
        "on-machine",
        "attach-args",
        "post",
    ];
    let all = text.lines().skip(2).map(|line| {
        let shown = line.strip_prefix("# ").unwrap_or(line);
        let is_example = shown.starts_with('[') || shown.contains(" = ");
        match is_example && !left_out.iter().any(|key| shown.starts_with(key)) {
            true => format!("{shown}\n"),
            false => String::new(),
        }
    });
    let all: String = all.collect();
    let all = all.replacen("args = []\n", "", 1);
    assert_eq!(
        line(&all, ""),
        "rally submit --memory-limit=4G --gpus-per-proc=1 --timeout=10m --global-env=LOG=debug --time=1h \
         --priority=5 --hold --np=2 --wdir=run --set-env=OMP_NUM_THREADS=2 '--set-env=MY_*' -- ./program"
    );
}

/// The files in the documents are launch configurations.
#[test]
fn the_files_of_the_documents() {
    let documents = [
        include_str!("../../../../../docs/formats/launch-configuration.md"),
        include_str!("../../../../../docs/user-guide.md"),
    ];
    let mut lines = Vec::new();
    for document in documents {
        let blocks = document
            .split("\n```")
            .filter_map(|block| block.strip_prefix("toml\n"));
        let blocks = blocks.filter(|block| block.starts_with("version"));
        lines.extend(blocks.map(|block| line(block, "")));
    }
    let line = "rally run --timeout=10m --memory-limit=4G --np=4 --set-env=OMP_NUM_THREADS=2 -- ./solver --steps 100";
    assert_eq!(lines, [line, line]);
    // The guide says so.
    let guide = documents[1]
        .split_whitespace()
        .collect::<Vec<_>>()
        .join(" ");
    assert!(guide.contains(&format!("`{line}`")));
}

/// Each mistake has a place, and says what to do.
#[test]
fn every_mistake_has_its_place() {
    let app = |more: &str| format!("{ONE}{more}\n");
    let cases = [
        String::new(),
        "version = 1\n".to_owned(),
        "version = 2\n".to_owned(),
        "version = '1'\n".to_owned(),
        "version = 1\nversion = 1\n".to_owned(),
        "version = 1\n[app]\nprogram = 'a'\n".to_owned(),
        "version = 1\n[[app]]\nnp = 2\n".to_owned(),
        "version = 1\n[[app]]\nprogram = ''\n".to_owned(),
        "version = 1\n[[app]]\nprogram = 3\n".to_owned(),
        app("np = 0"),
        app("np = 'two'"),
        app("np = true"),
        app("np = [1]"),
        app("  wdri = '/'"),
        app("timeout = 3"),
        app("args = 'a'"),
        app("args = ['a',\n 7]"),
        app("args = [':']"),
        app("args = [\"a\\u0000\"]"),
        app("set-env = ['=x']"),
        app("env = { 'A*' = 1 }"),
        app("env = { A = true }"),
        app("zzzzzz = 1"),
        app("[job]\nnp = 2"),
        app("[job]\ntimeuot = 2"),
        app("[job]\ntimeout = '2 fortnights'"),
        app("[job]\npty = 'x'"),
        app("[job]\nbind-to = 'x'"),
        app("[job]\nquiet = 'yes'"),
        app("[job]\npriority = 2"),
        app("[job]\ndry-run = true"),
        app("map-by = 'nonsense'"),
        app("[job]\nhostfile = 'none'"),
        app("[job]\nslurm-output = 'x'"),
        app("[job]\ntool-per-rank = true"),
        app("[queue]\npriority = 'high'"),
        app("[queue]\nafter = [1, 'x']"),
        app("[queue]\n[job]\npty = true"),
        app("[queue]\n[actions]\npre = ['a']\npost = ['b']"),
        app("[debuger]"),
        app("[debugger]\nprogramm = 'gdb'"),
        app("[debugger]\nfile = 'gdb'"),
        app("[debugger]\nstart = 'ranks'"),
        app("[debugger]\nstop = 'main'"),
        app("[debugger]\nstart = 'node'"),
        app("[debugger]\nattach-args = []"),
        app("[debugger]\nprogram = 'gdb'\nstart = 'node'"),
        app("[debugger]\nprogram = 'x'\nargs = ['{pid}']"),
        app("[debugger]\nprogram = 'x'\nstart = 'rank'\nattach-args = ['a']"),
        app("[sources]\ndirectories = 's'"),
        app("[sources]\nsubstitute = ['a=b']"),
        app("[actions]\npre = 'make'"),
        app("[actions]\npost = ['  ']"),
        app("[actions]\nbefore = ['make']"),
    ];
    let all: String = cases
        .iter()
        .map(|text| format!("{}\n{}\n", text.trim_end(), complaint(text, "")))
        .collect();
    insta::assert_snapshot!(all);
}

#[test]
fn what_the_command_line_asks_for_must_be_possible() {
    let queue = format!("{ONE}[queue]\n");
    let ddt = format!("{ONE}[debugger]\nprogram = 'ddt'\n");
    let cases = [
        complaint(&queue, "--debug"),
        complaint(&ddt, "--attach 17"),
        complaint(
            &ddt.replace("'ddt'", "'a'\nstart = 'node'"),
            "--attach solver",
        ),
        complaint(ONE, "--debug --attach 17"),
        complaint(ONE, "--new --debug"),
        Place::new().complaint("rally launch"),
        Place::new().complaint("rally launch none.toml"),
        complaint(ONE, "--dry-rnu"),
    ];
    insta::assert_snapshot!(cases.concat());
}

/// A launch configuration never makes the program panic, and what is accepted is a command line that is parsed.
mod any_text {
    use proptest::prelude::*;

    use super::*;

    fn value() -> impl Strategy<Value = String> {
        prop_oneof![
            "[0-9]{1,3}",
            "'[a-z0-9:=,{}@* -]{0,9}'",
            Just("true".to_owned()),
            Just("[]".to_owned()),
            "\\['[a-z:]{0,3}', [0-9]\\]",
            Just("{ A = 'x', B = 1 }".to_owned()),
        ]
    }

    fn key() -> impl Strategy<Value = String> {
        let command = RunOptions::define().command;
        let names = command.get_arguments().filter_map(clap::Arg::get_long);
        let own = [
            "env",
            "args",
            "start",
            "stop",
            "pre",
            "post",
            "directories",
            "substitute",
            "priority",
            "array",
            "attach-args",
        ];
        let all: Vec<String> = names.chain(own).map(str::to_owned).collect();
        proptest::sample::select(all)
    }

    fn table() -> impl Strategy<Value = String> {
        let name = proptest::sample::select(vec![
            "",
            "[job]",
            "[queue]",
            "[debugger]",
            "[sources]",
            "[actions]",
            "[[app]]\nprogram = 'b'",
        ]);
        let entries = proptest::collection::btree_map(key(), value(), 0..3);
        (name, entries).prop_map(|(name, entries)| {
            let lines = entries
                .iter()
                .map(|(key, value)| format!("{key} = {value}\n"));
            format!("{name}\n{}", lines.collect::<String>())
        })
    }

    proptest! {
        #[test]
        fn is_refused_with_a_place_or_is_a_command_line(tables in proptest::collection::vec(table(), 0..4)) {
            let text = format!("{ONE}{}", tables.concat());
            let place = place(&text);
            for options in ["", "--debug", "--attach 17"] {
                match place.request(&format!("rally launch a.toml {options}")) {
                    Ok(Request::Launch(launch)) => {
                        if let LaunchStep::Rally(words, _) = &launch.step {
                            prop_assert!(parse(words).is_ok());
                        }
                    }
                    Ok(other) => prop_assert!(false, "{other:?}"),
                    Err(error) => {
                        let message = message::text(&error.message(), MessageFormat::Text);
                        prop_assert!(message.contains("a.toml"), "{message}");
                    }
                }
            }
        }
    }
}
