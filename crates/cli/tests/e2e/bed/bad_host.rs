//! One host among 16 that differs from the others. `rally` uses it if that is possible. Otherwise one message gives the evidence,
//! states that the other hosts are fine, and says what to do.

use std::{fs, path::Path};

use super::{
    expect_no_daemon,
    host::{HOME, Host, PLACES, over},
};
use crate::harness::{Finished, Sandbox, compiled, testdata};

/// The odd one of 16 hosts.
const ODD: u32 = 7;
/// A host key that no node has.
const OTHER_KEY: &str =
    "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIJdD7y3aLq454yWBdwLWbieU1ebz9/cu7/QEXn9OIeZJ";

/// One job over 16 hosts.
struct Trial {
    sandbox: Sandbox,
    host: Host,
    /// The name by which the odd host is called.
    called: String,
    options: Vec<String>,
}

impl Trial {
    fn new() -> Self {
        let host = Host::new(ODD);
        Self {
            sandbox: Sandbox::new(),
            called: host.name(),
            host,
            options: Vec::new(),
        }
    }

    fn run(&self) -> Finished {
        let hosts = format!("n[1-{}],{},n[{}-16]", ODD - 1, self.called, ODD + 1);
        let mut command = over(&self.sandbox, &hosts, &["-n", "16"]);
        command.args(&self.options).args(["--", "uname", "-n"]);
        let ended = self.sandbox.run(&mut command);
        expect_no_daemon();
        ended
    }

    /// Lets ssh know this host key of the odd host, or none.
    fn set_known_key(&mut self, key: Option<&str>) {
        let known = fs::read_to_string("/etc/ssh/ssh_known_hosts").unwrap();
        let own = format!("{},", self.called);
        let line = |line: &str| match (line.strip_prefix(&own), key) {
            (None, _) => format!("{line}\n"),
            (Some(_), None) => String::new(),
            (Some(_), Some(key)) => format!("{} {key}\n", self.called),
        };
        let text: String = known.lines().map(line).collect();
        let file = self.sandbox.file("known", text);
        let ssh = format!("ssh -o GlobalKnownHostsFile={file}");
        self.options = vec!["--ssh".to_owned(), ssh];
    }

    /// Mounts file systems with these options at all directories in which the host could store the program.
    fn spoil_places(&mut self, options: &str) {
        self.host.hide_program();
        for place in PLACES {
            self.host.mount(place, options);
        }
    }

    fn set_shell(&mut self, shell: &str) {
        self.host.hide_program();
        self.host.set_login(HOME, shell);
    }

    fn set_login_script(&mut self, script: &str) {
        self.host.hide_program();
        self.host.set_login_script(script);
    }
}

type Case = (&'static str, fn(&mut Trial));

#[test]
fn a_host_that_cannot_be_used_is_one_message() {
    let cases: &[Case] = &[
        ("no name", |trial| trial.called = "nowhere".to_owned()),
        ("no route", |trial| {
            let route = |verb: &str| {
                let each = format!("ip route {verb} unreachable ${{address%% *}}");
                format!(
                    "for database in ahostsv4 ahostsv6; do address=$(getent $database n{ODD} | head -n 1); {each}; done"
                )
            };
            trial.host.on_head(&route("add"), &route("del"));
        }),
        ("no network", |trial| trial.called = "192.0.2.1".to_owned()),
        ("unknown key", |trial| trial.set_known_key(None)),
        ("another key", |trial| trial.set_known_key(Some(OTHER_KEY))),
        ("no space", |trial| trial.spoil_places("size=8k")),
        ("noexec", |trial| trial.spoil_places("noexec")),
        ("no login", |trial| {
            trial.set_login_script("echo 'This account is currently not available.'; exit 1");
        }),
        ("no shell", |trial| trial.set_shell("/bin/no-shell")),
    ];
    let mut text = String::new();
    for (name, spoil) in cases {
        let mut trial = Trial::new();
        spoil(&mut trial);
        let ended = trial.run().expect_code(123);
        let work = trial.sandbox.work().display().to_string();
        text += &format!(
            "--- {name}\n{}",
            ended.err().replace(&work, "WORK").replace(HOME, "HOME")
        );
    }
    insta::assert_snapshot!(text, @r#"
    --- no name
    error: cannot start the daemon on `nowhere`: `ssh` exited with code 255
      ssh:    ssh: Could not resolve hostname nowhere: Temporary failure in name resolution
      fine:   15 other nodes can be used
      effect: the job was not started
      help:   correct the name, or make it known (`getent hosts NAME`); then try `ssh nowhere true`
    --- no route
    error: cannot start the daemon on `n7`: `ssh` exited with code 255
      ssh:    ssh: connect to host n7 port 22: No route to host
      fine:   15 other nodes can be used
      effect: the job was not started
      help:   check that the node is up and on this network: `ssh n7 true`
    --- no network
    error: cannot start the daemon on `192.0.2.1`: `ssh` exited with code 255
      ssh:    ssh: connect to host 192.0.2.1 port 22: Network is unreachable
      fine:   15 other nodes can be used
      effect: the job was not started
      help:   check that the node is up and on this network: `ssh 192.0.2.1 true`
    --- unknown key
    error: cannot start the daemon on `n7`: `ssh` exited with code 255
      ssh:    Host key verification failed
      fine:   15 other nodes can be used
      effect: the job was not started
      help:   start `rally` on a terminal and accept the key of the host there, or accept it once by hand: `ssh -o GlobalKnownHostsFile=WORK/known n7 true`
    --- another key
    error: cannot start the daemon on `n7`: `ssh` exited with code 255
      ssh:      remove with:
                ssh-keygen -f "WORK/known" -R "n7"
              Host key for n7 has changed and you have requested strict checking
              Host key verification failed
      fine:   15 other nodes can be used
      effect: the job was not started
      help:   the host has another key than the one that ssh knows. If the host was installed again, remove the old key (`ssh-keygen -R`) and accept the new one by hand; otherwise another computer answers under its name: `ssh -o GlobalKnownHostsFile=WORK/known n7 true`
    --- no space
    error: cannot start the daemon on `n7`: the program cannot be stored there
      tried:  HOME/.cache/rally: no space: 8 KiB are free
              /dev/shm/rally-0: no space: 8 KiB are free
              /tmp/rally-0: no space: 8 KiB are free
              /var/tmp/rally-0: no space: 8 KiB are free
      fine:   15 other nodes can be used
      effect: the job was not started
      help:   make room, or set XDG_CACHE_HOME in the login scripts of the node to a directory in which programs can be executed
    --- noexec
    error: cannot start the daemon on `n7`: the program cannot be stored there
      tried:  HOME/.cache/rally: programs cannot be executed there (mounted noexec?)
              /dev/shm/rally-0: programs cannot be executed there (mounted noexec?)
              /tmp/rally-0: programs cannot be executed there (mounted noexec?)
              /var/tmp/rally-0: programs cannot be executed there (mounted noexec?)
      fine:   15 other nodes can be used
      effect: the job was not started
      help:   make room, or set XDG_CACHE_HOME in the login scripts of the node to a directory in which programs can be executed
    --- no login
    error: cannot start the daemon on `n7`: `ssh` exited with code 1
      ssh:    This account is currently not available
      fine:   15 other nodes can be used
      effect: the job was not started
      help:   try `ssh n7 true`, or leave out these nodes
    --- no shell
    error: cannot start the daemon on `n7`: `ssh` exited with code 255
      ssh:    root@n7: Permission denied (publickey)
      fine:   15 other nodes can be used
      effect: the job was not started
      help:   `rally` asks for passwords only on a terminal. Without one, load a key (`ssh-add`), and allow it on the node, until this needs no password: `ssh n7 true`
    "#);
}

#[test]
fn a_host_that_is_only_odd_is_used() {
    let cases: &[Case] = &[
        ("missing home", |trial| {
            trial.host.hide_program();
            trial.host.set_login("/nonexistent", "/bin/bash");
        }),
        ("a clock a day off", |trial| {
            let source = testdata("preload/tomorrow.c");
            let library = compiled(Path::new("gcc"), &source, &["-shared", "-fPIC"]);
            let clock = "unshare --time --monotonic 100000 --boottime 100000 --fork --kill-child";
            trial.set_login_script(&format!(
                "exec {clock} env LD_PRELOAD={} /bin/bash \"$@\"",
                library.display()
            ));
            // The test would prove nothing if the clock were right.
            let check = format!("ssh n{ODD} 'test $(date +%s) -gt '$(($(date +%s) + 80000))");
            trial.host.on_head(&check, "true");
        }),
        ("a wrapper that prints", |trial| {
            trial.set_login_script(
                "echo '*** All is logged. ***'; printf 'no line feed'; exec /bin/bash \"$@\"",
            );
        }),
        ("csh", |trial| trial.set_shell("/bin/csh")),
        ("a chatty .bashrc", |trial| {
            trial.set_shell("/bin/bash");
            trial.host.write("$HOME/.bashrc", CHATTY);
        }),
        ("a chatty .cshrc", |trial| {
            trial.set_shell("/bin/tcsh");
            trial.host.write("$HOME/.cshrc", CHATTY);
        }),
        ("a chatty config.fish", |trial| {
            trial.set_shell("/usr/bin/fish");
            trial.host.run("mkdir -p $HOME/.config/fish");
            trial.host.write("$HOME/.config/fish/config.fish", CHATTY);
        }),
    ];
    for (name, spoil) in cases {
        let mut trial = Trial::new();
        spoil(&mut trial);
        let ended = trial.run();
        assert_eq!((ended.code(), ended.err().as_str()), (0, ""), "{name}");
        assert_eq!(ended.out().lines().count(), 16, "{name}: {ended:?}");
        assert!(
            ended.out().contains(&format!("n{ODD}\n")),
            "{name}: {ended:?}"
        );
    }
}

/// Commands of all shells that print text, some of it nearly an answer to us.
const CHATTY: &str = "echo Welcome to this computer\necho '@rally? no'\nprintf 'no line feed'\n";
