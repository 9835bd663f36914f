use message::Format;

use super::*;

#[test]
fn sentences() {
    let failures = [
        none_meant("RALLY_MACHINE"),
        none_meant("--on-machine"),
        no_output(JobId(17), "it has printed nothing"),
    ];
    let mut text = String::new();
    for (message, code) in failures {
        text += &format!("{}: {}", code.code(), message::text(&message, Format::Text));
    }
    for why in [
        CannotRun::MachineRuns("main".to_owned()),
        CannotRun::NoMachine("cannot use the store `/x`: it is damaged".to_owned()),
        // The reason alone decides nothing.
        CannotRun::NoMachine("cannot use `/x runs already`".to_owned()),
    ] {
        text += &message::text(&not_started(&why), Format::Text);
    }
    insta::assert_snapshot!(text, @r"
    120: error: `RALLY_MACHINE` says `none`, which is no machine
      effect: nothing was done: this command is about a machine
      help:   name one with `--on-machine NAME`; only `rally run` can do without one
    120: error: `--on-machine` says `none`, which is no machine
      effect: nothing was done: this command is about a machine
      help:   name one with `--on-machine NAME`; only `rally run` can do without one
    121: error: there is no output of job 17
      reason: it has printed nothing
    error: the machine `main` runs already
      help: `rally status` shows it; `--name` starts another one
    error: cannot use the store `/x`: it is damaged
      help: the directory of the machine is in RALLY_STATE_DIR, else in ~/.local/state/rally
    error: cannot use `/x runs already`
      help: the directory of the machine is in RALLY_STATE_DIR, else in ~/.local/state/rally
    ");
}
