//! The command that gives a node its daemon: ssh, a command like it, or the user's template.

use std::ffi::OsString;

use dvm::bootstrap::{Delivery, Prompting};

use crate::{
    config::Settings,
    remote::{DAEMON, FILE, HOST, Words},
};

/// Options of ssh: no questions, unless the user can answer them; no forwarding, which daemons do not need; no connection that
/// outlives the job. Those of the user come first, and ssh takes the first value of an option. So the user can ask for the agent with
/// `-A`: unlike `ForwardAgent=no`, the option `-a` would win.
const SSH_OPTIONS: [&str; 6] = [
    "-x",
    "-oForwardAgent=no",
    "-T",
    NO_QUESTIONS,
    "-oControlMaster=no",
    "-oConnectTimeout=15",
];
/// A daemon that starts others has nobody who could answer, whatever the user's options say.
const NO_QUESTIONS: &str = "-oBatchMode=yes";
/// The program that has these options.
const SSH: &str = "ssh";
/// A program that does nothing.
const CHECK: &str = "true";
/// The shell that reads our script, whatever the login shell is. All login shells understand `exec`.
const SHELL: &str = "/bin/sh";

/// A command for a node.
#[derive(Debug)]
pub(super) struct Command {
    pub(super) argv: Vec<OsString>,
    pub(super) delivery: Delivery,
    /// A command that checks whether the node is reachable.
    pub(super) check: Vec<OsString>,
    pub(super) prompting: Prompting,
    /// The command at a daemon that starts others; `None` if only the head can run it.
    pub(super) elsewhere: Option<Vec<OsString>>,
}

/// Returns the command for a node that the settings ask for. `own` starts our program where it has our path. Only ssh asks the user,
/// if `prompting` permits it.
pub(super) fn of_settings(
    host: &str,
    settings: &Settings,
    own: &[OsString],
    prompting: Prompting,
) -> Command {
    let Some(template) = &settings.bootstrap_command.value else {
        return command(host, &settings.ssh.value, prompting);
    };
    let words = template.0.as_slice();
    let (daemon, delivery) = if words.iter().any(|word| word.contains(FILE)) {
        (own.to_vec(), Delivery::File)
    } else {
        (vec![SHELL.into()], Delivery::Staged)
    };
    let with = |daemon: &[OsString]| -> Vec<OsString> {
        let words = words.iter();
        words.flat_map(|word| filled(word, host, daemon)).collect()
    };
    let mut check = with(&[CHECK.into()]);
    check.retain(|word| word != FILE);
    let argv = with(&daemon);
    Command {
        elsewhere: (delivery == Delivery::Staged).then(|| argv.clone()),
        argv,
        delivery,
        check,
        prompting: Prompting::Never,
    }
}

/// Returns the command that gives us a shell on a node, by ssh or a command like it.
fn command(host: &str, ssh: &Words, prompting: Prompting) -> Command {
    let words = ssh.0.as_slice();
    let mut argv: Vec<OsString> = words.iter().map(OsString::from).collect();
    let program = words.first().and_then(|word| word.rsplit('/').next());
    let mut may_ask = Prompting::Never;
    if program == Some(SSH) {
        may_ask = prompting;
        let is_given = |option: &&str| *option != NO_QUESTIONS || may_ask == Prompting::Never;
        let options = SSH_OPTIONS.into_iter().filter(is_given);
        argv.extend(options.map(OsString::from));
    }
    argv.extend([host.into(), format!("exec {SHELL}").into()]);
    let mut elsewhere = argv.clone();
    if program == Some(SSH) {
        // Before the options of the user.
        elsewhere.insert(1, NO_QUESTIONS.into());
    }
    let check = words.iter().map(String::as_str).chain([host, CHECK]);
    Command {
        argv,
        delivery: Delivery::Staged,
        check: check.map(OsString::from).collect(),
        prompting: may_ask,
        elsewhere: Some(elsewhere),
    }
}

/// Replaces the parts of a template's word that stand for something.
fn filled(word: &str, host: &str, daemon: &[OsString]) -> Vec<OsString> {
    if word == DAEMON {
        return daemon.to_vec();
    }
    let word = word.replace(HOST, host);
    let mut filled = OsString::new();
    for (number, piece) in word.split(DAEMON).enumerate() {
        if number > 0 {
            filled.push(daemon.join(" ".as_ref()));
        }
        filled.push(piece);
    }
    vec![filled]
}
