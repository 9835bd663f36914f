//! What a real ssh asks, on a terminal.

use std::{fs, process::Command};

use super::{expect_no_daemon, host::Host};
use crate::harness::{Sandbox, Stream, Terminal};

const PASSPHRASE: &str = "open sesame";

/// The host has an unknown key, and that of the user has a passphrase. A wrong one is asked for again.
#[test]
fn ssh_asks_about_the_key_of_a_host_and_for_a_passphrase() {
    let sandbox = Sandbox::new();
    let key = sandbox.path("key").display().to_string();
    let mut generate = Command::new("ssh-keygen");
    generate.args(["-q", "-t", "ed25519", "-N", PASSPHRASE, "-f", &key]);
    assert!(generate.status().unwrap().success());
    let public = fs::read_to_string(format!("{key}.pub")).unwrap();
    let mut host = Host::new(3);
    host.run(&format!(
        "cp $HOME/.ssh/authorized_keys /run/authorized && echo '{}' >>$HOME/.ssh/authorized_keys",
        public.trim()
    ));
    host.undo("mv /run/authorized $HOME/.ssh/authorized_keys");
    let known = sandbox.path("known").display().to_string();
    let ssh = format!(
        "ssh -F none -oUserKnownHostsFile={known} -oGlobalKnownHostsFile=/dev/null -oIdentitiesOnly=yes -i {key}"
    );
    let script = format!(
        r#"export RALLY_LOG=trace RALLY_LOG_FILE=log
        "$RALLY" run --record tape --ssh '{ssh}' --wdir / --host n3 -n 1 sh -c 'echo on $(uname -n)'; echo "code $?"
        stty -a | grep -o -e '-*echo ' | sed 's/^/terminal: /'"#
    );
    let (mut terminal, run) = Terminal::run(&sandbox, &script);
    run.expect(Stream::Stdout, "The authenticity of host 'n3");
    run.expect(Stream::Stdout, "(yes/no/[fingerprint])? ");
    terminal.type_in("yes\n");
    let question = format!("n3: Enter passphrase for key '{key}': ");
    run.expect_times(Stream::Stdout, &question, 1);
    terminal.type_in("wrong words\n");
    run.expect_times(Stream::Stdout, &question, 2);
    terminal.type_in(&format!("{PASSPHRASE}\n"));
    for words in ["on n3", "code 0", "terminal: echo"] {
        run.expect(Stream::Stdout, words);
    }
    let run = run.end();
    assert!(run.out().contains("? yes"), "{run:?}");
    for secret in ["wrong words", PASSPHRASE] {
        assert!(!run.out().contains(secret), "{run:?}");
        for file in ["log", "tape"] {
            let bytes = fs::read(sandbox.path(file)).unwrap();
            assert!(!String::from_utf8_lossy(&bytes).contains(secret), "{file}");
        }
    }
    assert!(fs::read_to_string(&known).unwrap().starts_with("n3"));
    expect_no_daemon();
}
