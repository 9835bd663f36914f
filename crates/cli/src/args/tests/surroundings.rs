//! Messages about problems with files, settings or the node.

use super::*;
use crate::files::ReadProblem;

#[test]
fn mistakes_about_nodes_and_files() {
    let place = Place::new()
        .file("hosts", "localhost slots=two\n")
        .file("ranks", "rank zero\n")
        .file("quotes", "-n 1 a\n-n 1 'b\n")
        .file("options", "# one\n-n 1 a\n-n x b\n")
        .file("nothing", "# no apps\n")
        .file("nested", "--app nothing\n")
        .file("lonely", "-n 1\n");
    insta::assert_snapshot!(place.complaints(&[
        "rally run --hostfile absent a",
        "rally run --hostfile . a",
        "rally run --hostfile hosts a",
        "rally run --host a:x a",
        "rally run --map-by nonsense a",
        "rally run --map-by rankfile a",
        "rally run --map-by rankfile:FILE=absent a",
        "rally run --map-by rankfile:FILE=ranks a",
        "rally run --rank-by sloth a",
        "rally run --bind-to cores:x a",
        "rally run --input absent a",
        "rally run --input . a",
        "rally run --app absent",
        "rally run --app quotes",
        "rally run --app options",
        "rally run --app nothing",
        "rally run --app nested",
        "rally run --app lonely",
    ]), @r#"
    $ rally run --hostfile absent a
    error: cannot read the host file `absent`: No such file or directory (os error 2)
      effect: the job was not started
    [121 cli/unreadable-file]

    $ rally run --hostfile . a
    error: cannot read the host file `.`: Is a directory (os error 21)
      effect: the job was not started
    [121 cli/unreadable-file]

    $ rally run --hostfile hosts a
    error: cannot read the nodes of `hosts`, line 1: `two` is not a number of slots
    [121 alloc/bad-text]

    $ rally run --host a:x a
    error: cannot read the nodes of `--host`: `x` is not a number of slots
    [120 alloc/bad-text]

    $ rally run --map-by nonsense a
    error: cannot read `--map-by nonsense`: `nonsense` is not known
      help: known are slot, node, core, hwthread, l1cache, l2cache, l3cache, numa, package, ppr, pe-list, seq, rankfile
    [120 place/bad-policy]

    $ rally run --map-by rankfile a
    error: the policy `rankfile` needs a file
      help: name it: `--map-by rankfile:FILE=NAME`
    [120 place/bad-policy]

    $ rally run --map-by rankfile:FILE=absent a
    error: cannot read the rankfile `absent`: No such file or directory (os error 2)
      effect: the job was not started
    [121 cli/unreadable-file]

    $ rally run --map-by rankfile:FILE=ranks a
    error: cannot read the ranks of `ranks`, line 1: a line is `rank N=HOST slot=CORES`
    [121 place/bad-rankfile]

    $ rally run --rank-by sloth a
    error: cannot read `--rank-by sloth`: `sloth` is not known
      help: did you mean `slot`?
    [120 place/bad-policy]

    $ rally run --bind-to cores:x a
    error: cannot read `--bind-to cores:x`: `x` is not known
      help: known are N, overload-allowed, no-overload, if-supported
    [120 place/bad-policy]

    $ rally run --input absent a
    error: cannot read the input file `DIR/absent`: No such file or directory (os error 2)
      effect: the job was not started
    [121 cli/unreadable-file]

    $ rally run --input . a
    error: cannot read the input file `DIR/.`: it is a directory
      effect: the job was not started
    [121 cli/unreadable-file]

    $ rally run --app absent
    error: cannot read the app file `absent`: No such file or directory (os error 2)
      effect: the job was not started
    [121 cli/unreadable-file]

    $ rally run --app quotes
    error: cannot read the app file `quotes`, line 2: the quote ' is never closed
      help: `rally help mpmd` shows the form
    [121 cli/bad-app-file]

    $ rally run --app options
    error: cannot read the app file `options`, line 3: `-n` cannot be `x`: it is not a whole number
    [121 cli/bad-app-file]

    $ rally run --app nothing
    error: cannot read the app file `nothing`, line 1: it names no program
      help: `rally help mpmd` shows the form
    [121 cli/bad-app-file]

    $ rally run --app nested
    error: cannot read the app file `nested`, line 1: an app file cannot name another one
      help: `rally help mpmd` shows the form
    [121 cli/bad-app-file]

    $ rally run --app lonely
    error: cannot read the app file `lonely`, line 1: it names no program
      help: `rally help mpmd` shows the form
    [121 cli/bad-app-file]
    "#);
}

#[test]
fn mistakes_in_settings() {
    let cases = [
        Place::new().file("site.toml", "grace = 5\ngrcae = 6\n"),
        Place::new().file("site.toml", "zzz = 1\n"),
        Place::new().file("site.toml", "\ngrace = 'long'\n"),
        Place::new().file("site.toml", "grace = \n"),
        Place::new().file("site.toml", "grace = [1]\n"),
        Place::new().file("site.toml", "map-by = 'nowhere'\n"),
        Place::new()
            .file("home/rally/config.toml/x", "")
            .home("home"),
        Place::new().variable("RALLY_LABEL", "loud"),
        // An error counts even if a variable overrides the setting.
        Place::new()
            .file("site.toml", "label = 'loud'")
            .variable("RALLY_LABEL", "rank"),
    ];
    insta::assert_snapshot!(cases.map(|place| place.complaint("rally run a")).join("\n"), @r#"
    $ rally run a
    error: there is no setting `grcae`
      from: DIR/site.toml:2
      help: did you mean `grace`?
    [121 config/unknown-setting]

    $ rally run a
    error: there is no setting `zzz`
      from: DIR/site.toml:1
      help: `rally config` lists all settings
    [121 config/unknown-setting]

    $ rally run a
    error: the setting `grace` cannot be `long`: it is not a time (seconds, or a number with ms, s, m or h)
      from: DIR/site.toml:2
    [121 config/bad-value]

    $ rally run a
    error: the configuration file is not TOML: string values must be quoted, expected literal string
      from: DIR/site.toml:1
    [121 config/bad-file]

    $ rally run a
    error: the setting `grace` is a list, but settings are strings, numbers, and true or false
      from: DIR/site.toml:1
    [121 config/bad-value]

    $ rally run a
    error: cannot read `--map-by nowhere`: `nowhere` is not known
      from: DIR/site.toml:1
      help: known are slot, node, core, hwthread, l1cache, l2cache, l3cache, numa, package, ppr, pe-list, seq, rankfile
    [121 place/bad-policy]

    $ rally run a
    error: cannot read the configuration file: Is a directory (os error 21)
      from: DIR/home/rally/config.toml
      help: make it readable or move it away: it may contain settings that your jobs need
    [121 config/bad-file]

    $ rally run a
    error: the setting `label` cannot be `loud`: known values are `none`, `rank`, `full`
      from: environment, RALLY_LABEL
    [121 config/bad-value]

    $ rally run a
    error: the setting `label` cannot be `loud`: known values are `none`, `rank`, `full`
      from: DIR/site.toml:1
    [121 config/bad-value]
    "#);
}

/// Users cannot correct the site's file, and can work without it.
#[test]
fn a_site_file_that_cannot_be_read_is_told() {
    let place = Place::new().file("site.toml/x", "");
    let shown = |text: String| text.replace(&place.directory.path().display().to_string(), "DIR");
    let run = place.run("rally run a");
    let notices = run.notices.iter();
    let text: Vec<String> = notices
        .map(|notice| message::text(&notice.message(), MessageFormat::Text))
        .collect();
    insta::assert_snapshot!(shown(text.concat()), @"
    warning: cannot read the site's configuration file
      from:   DIR/site.toml
      reason: Is a directory (os error 21)
      effect: its settings are ignored
      help:   ask the administrator of this machine to make it readable for all users
    ");
    let Ok(Request::Config(config)) = place.request("rally config") else {
        panic!("no settings");
    };
    let text = crate::config::text(&config.layers, &config.files);
    insta::assert_snapshot!(shown(text).lines().last().unwrap(), @"DIR/site.toml: cannot be read: Is a directory (os error 21)");
    // A file that can be read but not parsed is an error, even the site's.
    assert!(
        Place::new()
            .file("site.toml", "\u{0}")
            .request("rally run a")
            .is_err()
    );
}

#[test]
fn a_lost_directory_is_told() {
    let mut place = Place::new();
    place.world.directory = Err(ReadProblem::Kernel(2));
    insta::assert_snapshot!(place.complaint("rally run a"), @r#"
    $ rally run a
    error: the current directory cannot be found: No such file or directory (os error 2)
      help: change to a directory that exists
    [123 cli/no-directory]
    "#);
    assert!(place.request("rally run --wdir /tmp a").is_ok());
}

#[test]
fn no_port_is_told_and_none_stands_alone() {
    let mut place = Place::new();
    place.world.unused_port = || Err(ReadProblem::Kernel(98));
    insta::assert_snapshot!(place.complaint("rally run --torch a"), @r"
    $ rally run --torch a
    error: no port is free for `--torch`: Address already in use (os error 98)
      help: choose one: `--set-env MASTER_PORT=NUMBER`
    [123 cli/no-port]
    ");
    insta::assert_snapshot!(place.complaint("rally run --env-family none,slurm a"), @r"
    $ rally run --env-family none,slurm a
    error: `--env-family none` and `--env-family slurm` cannot be used together
      help: leave one of them out
    [120 cli/options-together]
    ");
    insta::assert_snapshot!(place.complaint("rally run --env-family pbs a"), @r"
    $ rally run --env-family pbs a
    error: `--env-family` cannot be `pbs`: known values are `openmpi`, `slurm`, `torch`, `none`
    [120 cli/bad-value]
    ");
}

#[test]
fn the_line_of_a_bad_rank_is_named() {
    let place = Place::new().file("ranks", "rank 0=localhost\nrank x=localhost\n");
    insta::assert_snapshot!(place.complaint("mpirun -rf ranks a"), @"
    $ mpirun -rf ranks a
    error: cannot read the ranks of `ranks`, line 2: `x` is not a rank below 16777216
    [121 place/bad-rankfile]
    ");
}
