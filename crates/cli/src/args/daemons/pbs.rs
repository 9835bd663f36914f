//! Daemons started by PBS: one `pbsdsh` for each node.
//!
//! `pbsdsh -n INDEX -- PROGRAM` runs a program on a node of the job, which is named by the number of a line of `PBS_NODEFILE`, from
//! 0. The manuals and programs of OpenPBS and Torque agree on this; other options differ (`-h`, `-o`). The program gets no standard
//! input, and what it prints goes to the output of the job.

use std::{
    ffi::{OsStr, OsString},
    path::PathBuf,
};

use crate::args::World;

const PBSDSH: &str = "pbsdsh";
/// What stands for the path of the file with the boot frame.
const FILE: &str = "{file}";

/// Returns the command that runs our program on the node with the first line of this number.
pub(super) fn command(line: usize, own: &[OsString]) -> Vec<OsString> {
    let mut argv = start(line);
    argv.extend(own.iter().cloned());
    argv.push(FILE.into());
    argv
}

/// Returns a command that checks whether the node can be used.
pub(super) fn check(line: usize) -> Vec<OsString> {
    let mut argv = start(line);
    argv.push("true".into());
    argv
}

fn start(line: usize) -> Vec<OsString> {
    [PBSDSH, "-n", &line.to_string(), "--"]
        .map(OsString::from)
        .to_vec()
}

/// Returns why `pbsdsh` would probably not do, although all nodes belong to the job: nodes must have our program at our path, and
/// see the file that says what to do. `None` if it should.
pub(super) fn why_not(world: &World) -> Option<String> {
    let path = world.variables.get(OsStr::new("PATH"));
    let path = path.map_or_else(Default::default, OsString::as_os_str);
    if !matches!(
        os::find_program(OsStr::new(PBSDSH), path),
        os::Found::Program(_)
    ) {
        return Some("`pbsdsh` is not in PATH".to_owned());
    }
    let Some(cache) = cache(world) else {
        return Some("HOME is not set, and `pbsdsh` needs a directory of all nodes".to_owned());
    };
    let needed = [&world.executable, &cache];
    let apart = needed.into_iter().find(|path| !(world.is_shared)(path))?;
    Some(format!(
        "`pbsdsh` needs the same files on all nodes, and `{}` is not on a network file system",
        apart.display()
    ))
}

/// Returns the directory of the files that say what to do (`runtime::starters`).
fn cache(world: &World) -> Option<PathBuf> {
    let base = match (world.variable("XDG_CACHE_HOME"), world.variable("HOME")) {
        (Some(cache), _) => PathBuf::from(cache),
        (None, Some(home)) => PathBuf::from(home).join(".cache"),
        (None, None) => return None,
    };
    Some(base.join("rally"))
}
