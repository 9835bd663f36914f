//! The cluster on which other tests run, tested itself: what it offers, and that it leaves nothing behind.

use std::{
    fs,
    path::PathBuf,
    process::Command,
    time::{Duration, Instant},
};

use anyhow::{Context as _, Result, ensure};

use crate::{
    cluster,
    env::{own_file, target, text_of, works},
    steps::{self, Steps},
};

const STEP: &str = "test bed";
/// A name of its own, so that the cluster of the developer remains.
const NAME: &str = "test-bed";
const LIMIT: Duration = Duration::from_secs(120);
/// Time for the kernel to end the processes of a cluster.
const GONE_WITHIN: Duration = Duration::from_secs(10);

pub(super) fn step(steps: &mut Steps) {
    if let Err(why) = cluster::is_possible() {
        return steps.skip(STEP, &format!("{why:#}"));
    }
    steps.run(STEP, |_| {
        // The remains of a run that was interrupted.
        down()?;
        let checked = check();
        down()?;
        checked?;
        owned()?;
        let left = traces()?;
        ensure!(left.is_empty(), "left behind: {left}");
        Ok(())
    });
}

fn cluster(words: &[&str]) -> Result<Command> {
    let mut command = Command::new(own_file()?);
    command.args(["cluster", "--name", NAME]).args(words);
    Ok(command)
}

fn down() -> Result<()> {
    steps::execute(&mut cluster(&["down"])?, LIMIT)
}

fn on(node: &str, words: &[&str]) -> Result<Command> {
    let mut command = cluster(&["exec", node, "--"])?;
    command.args(words);
    Ok(command)
}

fn check() -> Result<()> {
    steps::execute(&mut cluster(&["up", "3", "--slurm"])?, LIMIT)?;
    ensure!(
        !works(&mut cluster(&["up", "3"])?),
        "a second `up` removed or doubled the cluster"
    );
    for node in ["n1", "n2", "n3"] {
        // From the head, and from another node.
        for way in [vec!["ssh", node], vec!["ssh", "n2", "ssh", node]] {
            let said = text_of(on("head", &way)?.arg("hostname; ls -A; ls -A /tmp"))?;
            ensure!(said == format!("{node}\n.ssh"), "{way:?} printed {said:?}");
        }
    }
    let names = text_of(&mut on("head", &["srun", "-N3", "hostname"])?)?;
    let mut names: Vec<&str> = names.lines().collect();
    names.sort_unstable();
    ensure!(names == ["n1", "n2", "n3"], "srun ran on {names:?}");
    let code = on("n1", &["sh", "-c", "exit 7"])?.status()?.code();
    ensure!(code == Some(7), "the exit code 7 became {code:?}");
    disturb()?;
    // Processes that have detached themselves, on the head and through ssh.
    let detached = "setsid sleep 66 >/dev/null 2>&1 </dev/null &";
    steps::execute(&mut on("head", &["sh", "-c", detached])?, LIMIT)?;
    steps::execute(&mut on("head", &["ssh", "n3", detached])?, LIMIT)?;
    ensure!(
        !traces()?.is_empty(),
        "the search for remains does not see the cluster"
    );
    Ok(())
}

/// Disconnects a node in each way, and reconnects it.
fn disturb() -> Result<()> {
    let reach = || on("head", &["ssh", "-o", "ConnectTimeout=1", "n2", "true"]);
    for way in [
        &["cut", "n2"][..],
        &["drop", "n2", "--all"],
        &["drop", "n2", "--port", "22"],
    ] {
        steps::execute(&mut cluster(way)?, LIMIT)?;
        ensure!(!works(&mut reach()?), "{way:?} did not disconnect the node");
        steps::execute(&mut cluster(&["restore", "n2"])?, LIMIT)?;
        // Several attempts, because the first packets wait until the address is resolved again.
        let attempts = ["-o", "ConnectionAttempts=20", "n2", "true"];
        steps::execute(on("head", &["ssh"])?.args(attempts), LIMIT)?;
    }
    Ok(())
}

/// Checks that a cluster ends with the process that owns it.
fn owned() -> Result<()> {
    // SIGKILL, so that the owner itself cannot do anything.
    let script = "mkfifo \"$1\"; \"$0\" cluster --name \"$2\" with 2 -- sh -c 'setsid sleep 66 & echo up; wait' >\"$1\" & \
                  read -r line <\"$1\"; rm \"$1\"; kill -9 $!; [ \"$line\" = up ]";
    let pipe = target().join("test-bed.pipe");
    let mut command = Command::new("sh");
    command
        .args(["-c", script])
        .arg(own_file()?)
        .arg(&pipe)
        .arg(NAME);
    steps::execute(&mut command, LIMIT)?;
    let until = Instant::now() + GONE_WITHIN;
    while !processes()?.is_empty() {
        ensure!(Instant::now() < until, "the cluster outlived its owner");
        std::thread::yield_now();
    }
    // The directory of the cluster remains until the next `up` or `down`.
    down()
}

/// Returns the directory of the cluster.
fn directory() -> PathBuf {
    target().join("cluster").join(NAME)
}

/// Returns all traces of the cluster on the machine.
fn traces() -> Result<String> {
    let mounts = fs::read_to_string("/proc/self/mountinfo")?;
    let directory = directory();
    let place = directory.display().to_string();
    let mounts = mounts.lines().filter(|line| line.contains(&place)).count();
    let mut text = processes()?;
    if mounts > 0 {
        text += &format!("{mounts} mounts\n");
    }
    if directory.exists() {
        text += &format!("{}\n", directory.display());
    }
    Ok(text)
}

/// Returns the processes in the pid namespace of the cluster.
fn processes() -> Result<String> {
    let mut text = String::new();
    let own = fs::read_link("/proc/self/ns/pid")?;
    let place = directory().join("files").display().to_string();
    for entry in fs::read_dir("/proc").context("no /proc")?.flatten() {
        let path = entry.path();
        // Other processes come and go while we read.
        let Ok(namespace) = fs::read_link(path.join("ns/pid")) else {
            continue;
        };
        let mounts = fs::read_to_string(path.join("mountinfo")).unwrap_or_default();
        if namespace != own && mounts.contains(&place) {
            let line = fs::read_to_string(path.join("cmdline")).unwrap_or_default();
            text += &format!(
                "{} {}\n",
                entry.file_name().display(),
                line.replace('\0', " ")
            );
        }
    }
    Ok(text)
}
