//! The first process of a cluster: it makes the head and starts the nodes.
//!
//! It has pid 1 in the pid namespace of the cluster. So its death is the end of the cluster: the kernel kills all other processes
//! in that namespace, whoever started them, and removes the namespaces, interfaces and mounts that they held.
//!
//! | stream | content |
//! |---|---|
//! | stdout | `pid N` with its pid on the machine; then `up`, or an error and the end |
//! | stdin | closed at the death of the owner, and therefore the end of the cluster, unless [`STAY`] came first |

use std::{
    fs,
    io::{BufRead as _, BufReader, Read as _, Write as _, stdin, stdout},
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    thread,
    time::{Duration, Instant},
};

use anyhow::{Context as _, Result, bail};
use nix::{
    errno::Errno,
    sys::{
        signal::{SigSet, Signal},
        wait::wait,
    },
    unistd::{Uid, User, sethostname, setsid},
};

use super::{
    mounts::{self, Kept},
    network::{self, feed},
    plan::{self, FILES, HEAD, Node, Plan, RECORD},
};
use crate::env::{self, own_file, text_of};

/// Line on stdin after which the cluster remains without its owner.
pub(super) const STAY: &str = "stay";

/// Maximum time for a service to start.
const READY_MAX: Duration = Duration::from_secs(20);
/// Polling interval while a service starts.
const PAUSE: Duration = Duration::from_millis(5);
/// Maximum length of the end of a log that is part of an error.
const LOG_END_MAX: usize = 2_000;

/// Makes the cluster, and stays until its end.
pub(super) fn run(plan: &Plan, directory: &Path) -> Result<()> {
    // The signals of the terminal are not for the cluster.
    setsid()?;
    // Here `/proc` is still that of the machine.
    let pid = fs::read_link("/proc/self")?;
    say(&format!("pid {}", pid.display()))?;
    thread::spawn(end_with_owner);
    match make(plan, directory) {
        Ok(()) => say("up")?,
        Err(error) => {
            // The caller prints it.
            say(&format!("{error:#}"))?;
            return Ok(());
        }
    }
    reap()
}

fn say(line: &str) -> Result<()> {
    let mut stdout = stdout().lock();
    writeln!(stdout, "{line}")?;
    Ok(stdout.flush()?)
}

#[expect(clippy::exit, reason = "the main thread may be waiting for a program")]
fn end_with_owner() {
    let mut line = String::new();
    let read = stdin().read_line(&mut line);
    if read.is_err() || line.trim() != STAY {
        std::process::exit(1);
    }
}

/// Reaps orphans, for as long as this process lives. There may be none for a while: more may come from elsewhere.
pub(super) fn reap() -> Result<()> {
    let ended = SigSet::from(Signal::SIGCHLD);
    // A blocked signal stays pending, so an end between `wait` and `SigSet::wait` is not missed.
    ended.thread_block()?;
    loop {
        match wait() {
            Ok(_) | Err(Errno::EINTR) => {}
            Err(Errno::ECHILD) => {
                ended.wait()?;
            }
            Err(error) => return Err(error.into()),
        }
    }
}

fn make(plan: &Plan, directory: &Path) -> Result<()> {
    sethostname(HEAD)?;
    cover_head(plan, directory)?;
    feed(tool("ip").args(["-batch", "-"]), &network::bridge(plan))?;
    configure(plan)?;
    if plan.slurm {
        start_slurm(directory)?;
    }
    let mut nodes = Vec::new();
    for node in plan.nodes() {
        nodes.push((node, start_node(plan, node, directory)?));
    }
    let mut keys = Vec::new();
    for (node, mut child) in nodes {
        let key = until_up(&mut child, node, directory)?;
        keys.push((node, key));
    }
    let keys = keys.iter().map(|(node, key)| (*node, key.as_str()));
    write("ssh/ssh_known_hosts", &plan.known_hosts(keys))?;
    if plan.slurm {
        let all = plan.nodes.to_string();
        let is_idle = || {
            let idle = text_of(tool("sinfo").args(["-h", "-t", "idle", "-o", "%D"]));
            idle.is_ok_and(|idle| idle.trim() == all)
        };
        wait_for("Slurm", &log_of(directory, "slurmctld"), is_idle)?;
    }
    Ok(())
}

/// Returns a command for a program of the system, whatever the caller's environment is.
pub(super) fn tool(program: &str) -> Command {
    let mut command = Command::new(program);
    let path = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";
    command
        .env_clear()
        .env("PATH", path)
        .env("LC_ALL", "C.UTF-8");
    command.current_dir("/").stdin(Stdio::null());
    command
}

pub(super) fn log_of(directory: &Path, service: &str) -> PathBuf {
    directory.join("log").join(service)
}

/// Starts a service whose output goes to a log, and returns its pid.
pub(super) fn serve(command: &mut Command, log: &Path) -> Result<u32> {
    let file = fs::File::create(log)?;
    let child = command.stdout(file.try_clone()?).stderr(file).spawn();
    let child = child.with_context(|| format!("cannot run {}", command.get_program().display()))?;
    Ok(child.id())
}

/// Waits until a service is ready.
pub(super) fn wait_for(what: &str, log: &Path, is_ready: impl Fn() -> bool) -> Result<()> {
    let until = Instant::now() + READY_MAX;
    while !is_ready() {
        if Instant::now() > until {
            let text = fs::read_to_string(log).unwrap_or_default();
            let start = text.ceil_char_boundary(text.len().saturating_sub(LOG_END_MAX));
            let seconds = READY_MAX.as_secs();
            bail!(
                "{what} is not ready after {seconds} s; its log ends:\n{}",
                text[start..].trim()
            );
        }
        thread::sleep(PAUSE);
    }
    Ok(())
}

/// Returns the directories with the programs under test, which all nodes see.
pub(super) fn programs() -> Vec<PathBuf> {
    let own = own_file().ok();
    let own = own.and_then(|program| program.parent().map(Path::to_path_buf));
    own.into_iter()
        .chain([env::root(), env::target(), FILES.into()])
        .collect()
}

/// Returns root's home directory.
pub(super) fn home() -> Result<PathBuf> {
    let root = User::from_uid(Uid::from_raw(0))?;
    Ok(root.context("there is no user root")?.dir)
}

/// Gives the head its own `/etc`, `/run`, `/tmp`, `/var/tmp` and `/dev/shm`. The home directory is the machine's, so that the tools of the
/// developer work there; only its keys are hidden.
fn cover_head(plan: &Plan, directory: &Path) -> Result<()> {
    mounts::fresh("proc", Path::new("/proc"), "")?;
    let files = directory.join("files");
    mounts::directory(&files, 0o755)?;
    mounts::fresh("tmpfs", &files, "mode=755")?;
    let own = files.join(HEAD);
    let cluster = own.join("run/cluster");
    mounts::directory(&cluster, 0o755)?;
    mounts::bind(&files, &cluster)?;
    let home = home()?;
    let tools = [
        std::env::var_os("CARGO_HOME"),
        std::env::var_os("RUSTUP_HOME"),
    ];
    let tools = tools.into_iter().flatten().map(PathBuf::from);
    let kept = Kept::new(programs().into_iter().chain(tools).chain([home.clone()]));
    cover_volatile(&own, &kept)?;
    mounts::directory(&own.join("ssh"), 0o700)?;
    mounts::cover(&home.join(".ssh"), &own.join("ssh"), &kept)?;
    let files = Path::new(FILES);
    fs::write(files.join(RECORD), plan.record().to_string())?;
    let mut copy = tool("cp");
    copy.args(["-a", "/etc"]).arg(files);
    text_of(&mut copy)?;
    mounts::cover(Path::new("/etc"), &files.join("etc"), &kept)
}

/// Covers the directories for temporary files of a node.
pub(super) fn cover_volatile(own: &Path, kept: &Kept) -> Result<()> {
    for (target, name, mode) in [
        ("/run", "run", 0o755),
        ("/tmp", "tmp", 0o1777),
        ("/var/tmp", "var-tmp", 0o1777),
        ("/dev/shm", "shm", 0o1777),
    ] {
        mounts::directory(&own.join(name), mode)?;
        mounts::cover(Path::new(target), &own.join(name), kept)?;
    }
    for (directory, mode) in [
        ("/run/lock", 0o1777),
        ("/run/sshd", 0o755),
        ("/run/user/0", 0o700),
    ] {
        mounts::directory(Path::new(directory), mode)?;
    }
    Ok(())
}

/// Writes a file of the cluster's own `/etc`.
fn write(file: &str, text: &str) -> Result<()> {
    let path = Path::new(FILES).join("etc").join(file);
    if let Some(parent) = path.parent() {
        fs::create_dir_all(parent)?;
    }
    // A link may lead out of this directory.
    let _ = fs::remove_file(&path);
    fs::write(&path, text).with_context(|| format!("cannot write `{}`", path.display()))
}

/// Writes the configuration that all nodes share.
fn configure(plan: &Plan) -> Result<()> {
    write("hosts", &plan.hosts())?;
    // There is no name server: a name that is not in `hosts` is an error at once.
    write("resolv.conf", "nameserver 127.0.0.1\n")?;
    write("ssh/ssh_config", &plan::ssh_config())?;
    write("ssh/sshd_config", &plan::sshd_config())?;
    let shadow = Path::new(FILES).join("etc/shadow");
    let text = fs::read_to_string(&shadow)?;
    // Written in place, which keeps its mode.
    fs::write(&shadow, plan::unlocked(&text))?;
    mounts::directory(&Path::new(FILES).join("ssh"), 0o700)?;
    make_key(plan::KEY, "root")?;
    if plan.slurm {
        write("slurm/slurm.conf", &plan.slurm_conf())?;
    }
    Ok(())
}

/// Makes a pair of keys for ssh.
pub(super) fn make_key(path: &str, comment: &str) -> Result<()> {
    let mut command = tool("ssh-keygen");
    text_of(command.args(["-q", "-t", "ed25519", "-N", "", "-C", comment, "-f", path])).map(drop)
}

fn start_slurm(directory: &Path) -> Result<()> {
    let files = Path::new(FILES);
    mounts::directory(&files.join("munge"), 0o755)?;
    mounts::directory(&files.join("slurm"), 0o755)?;
    let key = files.join("munge/key");
    let mut random = [0; 128];
    fs::File::open("/dev/urandom")?.read_exact(&mut random)?;
    fs::write(&key, random)?;
    fs::set_permissions(&key, std::os::unix::fs::PermissionsExt::from_mode(0o400))?;
    let munge = |option: &str, file: &str| format!("--{option}={FILES}/munge/{file}");
    let mut munged = tool("munged");
    munged
        .arg("--foreground")
        .arg(format!("--socket={}", plan::MUNGE_SOCKET));
    munged.args([
        munge("key-file", "key"),
        munge("pid-file", "pid"),
        munge("log-file", "log"),
        munge("seed-file", "seed"),
    ]);
    let log = log_of(directory, "munged");
    serve(&mut munged, &log)?;
    wait_for("munged", &log, || Path::new(plan::MUNGE_SOCKET).exists())?;
    let mut slurmctld = tool("slurmctld");
    serve(
        slurmctld.args(["-D", "-f", plan::SLURM_CONF]),
        &log_of(directory, "slurmctld"),
    )
    .map(drop)
}

/// Returns a command that runs what follows in new namespaces: of a node or a cluster, and as `more` says.
pub(super) fn unshare(more: &[&str]) -> Command {
    let mut command = Command::new("unshare");
    command
        .args(more)
        .args(["--net", "--uts", "--mount", "--ipc"]);
    command.args(["--propagation", "private"]);
    command
}

/// Starts the holder of a node in namespaces of its own.
fn start_node(plan: &Plan, node: Node, directory: &Path) -> Result<Child> {
    let own = Path::new(FILES).join(node.name());
    mounts::directory(&own, 0o755)?;
    let mut command = unshare(&["--pid", "--fork", "--kill-child"]);
    command
        .arg(own_file()?)
        .args(super::words_for(plan, "node", directory));
    command.arg(node.name());
    let log = fs::File::create(log_of(directory, &node.name()))?;
    let child = command
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(log)
        .spawn();
    child.context("cannot run `unshare`")
}

/// Waits until a node is up, and returns its public host key.
fn until_up(child: &mut Child, node: Node, directory: &Path) -> Result<String> {
    let mut lines = BufReader::new(child.stdout.take().context("no stdout")?).lines();
    match lines.next().transpose()? {
        Some(line) if line.starts_with("ssh-") => Ok(line),
        line => {
            let more = lines.map_while(Result::ok);
            let said: Vec<String> = line.into_iter().chain(more).collect();
            let log = fs::read_to_string(log_of(directory, &node.name())).unwrap_or_default();
            bail!(
                "cannot make the node {}: {}{log}",
                node.name(),
                said.join("\n")
            )
        }
    }
}
