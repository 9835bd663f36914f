//! The holder of a node: it sets up the namespaces in which it was started, and starts the services of the node in them.
//!
//! It has pid 1 in the pid namespace of the node. The namespaces exist as long as this process, even if a test kills the services.

use std::{fs, path::Path};

use anyhow::Result;
use nix::unistd::sethostname;

use super::{
    init::{cover_volatile, home, log_of, make_key, programs, reap, serve, tool, wait_for},
    mounts::{self, Kept},
    network::{self, feed},
    plan::{FILES, HOST_KEY, KEY, MUNGE_SOCKET, Node, Plan, SLURM_CONF, SSHD_PID},
};

/// sshd starts itself again for each connection, and so requires an absolute path.
const SSHD: &str = "/usr/sbin/sshd";

/// Makes the node, prints its public host key or an error, and stays until the end.
#[expect(
    clippy::print_stdout,
    reason = "the first process of the cluster reads it"
)]
pub(super) fn run(plan: &Plan, node: Node, directory: &Path) -> Result<()> {
    match make(plan, node, directory) {
        Ok(key) => println!("{}", key.trim()),
        Err(error) => {
            println!("{error:#}");
            return Ok(());
        }
    }
    reap()
}

fn make(plan: &Plan, node: Node, directory: &Path) -> Result<String> {
    let name = node.name();
    sethostname(&name)?;
    let own = Path::new(FILES).join(&name);
    // Here `/proc` is still that of the head, and its process 1 is the head's.
    let holder = fs::read_link("/proc/self")?;
    fs::write(own.join("holder"), holder.display().to_string())?;
    cover(&own)?;
    let mut on_head = tool("nsenter");
    on_head.args(["--target", "1", "--net", "ip", "-batch", "-"]);
    // `ip` is in our pid namespace.
    feed(&mut on_head, &network::cable(node, std::process::id()))?;
    mounts::fresh("proc", Path::new("/proc"), "")?;
    feed(
        tool("ip").args(["-batch", "-"]),
        &network::interface(plan, node),
    )?;
    make_key(HOST_KEY, &name)?;
    let log = log_of(directory, &format!("sshd-{name}"));
    let sshd = serve(
        tool(SSHD).args(["-D", "-e", "-f", "/etc/ssh/sshd_config"]),
        &log,
    )?;
    let mut services = format!("sshd {sshd}\n");
    if plan.slurm {
        let log = log_of(directory, &format!("slurmd-{name}"));
        wait_for("munged", &log, || Path::new(MUNGE_SOCKET).exists())?;
        mounts::directory(&Path::new(FILES).join("slurm").join(&name), 0o755)?;
        let slurmd = serve(tool("slurmd").args(["-D", "-f", SLURM_CONF]), &log)?;
        services += &format!("slurmd {slurmd}\n");
    }
    fs::write(own.join("services"), services)?;
    // sshd writes this file once it accepts connections.
    wait_for("sshd", &log, || Path::new(SSHD_PID).exists())?;
    Ok(fs::read_to_string(format!("{HOST_KEY}.pub"))?)
}

/// Gives the node its own `/run`, `/tmp`, `/var/tmp`, `/dev/shm`, and an empty home directory. `/etc` is that of the cluster.
fn cover(own: &Path) -> Result<()> {
    let kept = Kept::new(programs());
    let cluster = own.join("run");
    mounts::directory(&cluster, 0o755)?;
    cover_volatile(own, &kept)?;
    let ssh = own.join("home/.ssh");
    mounts::directory(&own.join("home"), 0o700)?;
    mounts::directory(&ssh, 0o700)?;
    fs::copy(format!("{KEY}.pub"), ssh.join("authorized_keys"))?;
    mounts::cover(&home()?, &own.join("home"), &kept)
}
