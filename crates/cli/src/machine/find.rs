//! Which machine a command means.
//!
//! The directories of the machines on this host are in `STATE/HOST`, where `STATE` is `$RALLY_STATE_DIR`, else
//! `$XDG_STATE_HOME/rally`, else `~/.local/state/rally`. A machine within an allocation of a resource manager is meant only by
//! commands in the same allocation, and one outside only by commands outside, unless they name it.

use std::{
    ffi::OsString,
    fs::{self, File},
    path::PathBuf,
};

use dvm::{machine::Declared, queue::Limits};
use runtime::{FoundMachine, MachineLife, MachinePlan, machine_named, machines};

use super::{Failure, messages};
use crate::{
    args::{World, request::machine::NONE},
    beside,
};

/// The option and the variable that name a machine.
const OPTION: &str = "--on-machine";
const VARIABLE: &str = "RALLY_MACHINE";

/// The file in a machine's directory with what its processes cannot tell anybody.
const LOG: &str = "log";

/// The file with the name of the machine that `rally run` uses without being told.
const DEFAULT: &str = "default";

/// The file that exists once a job was submitted to Slurm. No host has a name that begins with a dot.
const SLURM: &str = ".slurm";

/// Variables in which resource managers tell the number of the allocation, and the manager.
const ORIGINS: &[(&str, &str)] = &[
    ("SLURM_JOB_ID", "Slurm job"),
    ("PBS_JOBID", "PBS job"),
    ("LSB_JOBID", "LSF job"),
];

/// Returns the directory of the machines on this host; `None` if the environment names no place for it.
fn parent(world: &World) -> Option<PathBuf> {
    Some(state(world)?.join(&world.host))
}

/// Returns our directory for what survives; `None` if the environment names no place for it.
fn state(world: &World) -> Option<PathBuf> {
    let absolute = |name| {
        let path = PathBuf::from(world.variable(name)?);
        path.is_absolute().then_some(path)
    };
    if world.variable("RALLY_STATE_DIR").is_some() {
        return absolute("RALLY_STATE_DIR");
    }
    absolute("XDG_STATE_HOME")
        .map(|path| path.join("rally"))
        .or_else(|| Some(absolute("HOME")?.join(".local/state/rally")))
}

/// Returns true if a job was submitted to Slurm from a computer with this directory. Elsewhere Slurm's commands might only be slow.
pub(crate) fn has_used_slurm(world: &World) -> bool {
    state(world).is_some_and(|state| state.join(SLURM).exists())
}

/// Notes that a job was submitted to Slurm. Without the note, `rally queue` shows only the jobs of machines.
pub(crate) fn note_use_of_slurm(world: &World) {
    if let Some(state) = state(world) {
        let _ = os::make_private_dirs(&state);
        let _ = os::publish(&state.join(SLURM), b"");
    }
}

/// Returns the allocation of a resource manager in which we are; empty if in none.
fn origin(world: &World) -> String {
    let mut known = ORIGINS.iter();
    let found = known.find_map(|(variable, words)| {
        let number = world.variable(variable)?;
        Some(format!("{words} {number}"))
    });
    found.unwrap_or_default()
}

/// Returns what a new machine needs to know about itself. `reach` are the options with which `dbgr` reaches its nodes.
pub(crate) fn plan(name: &str, reach: &[String], world: &World) -> Result<MachinePlan, Failure> {
    if [NONE, DEFAULT].contains(&name) {
        return Err(messages::bad_name(name));
    }
    let parent = parent(world).ok_or_else(|| messages::no_state(world))?;
    Ok(MachinePlan {
        name: name.to_owned(),
        directory: parent.join(name),
        origin: origin(world),
        debugger: beside::debugger(reach),
        model: None,
        declared: Declared::default(),
        limits: Limits::default(),
    })
}

/// Opens the file to which the processes of a machine write what they cannot tell anybody.
pub(crate) fn open_log(plan: &MachinePlan) -> Result<File, Failure> {
    let path = plan.directory.join(LOG);
    let made = os::make_private_dirs(&plan.directory).map_err(|error| error.to_string());
    made.and_then(|()| os::append_to(&path).map_err(|error| error.to_string()))
        .map_err(|why| messages::no_directory(&plan.directory, &why))
}

/// Lets `rally run` use this machine without being told.
pub(crate) fn make_default(plan: &MachinePlan) -> Result<(), Failure> {
    let path = plan.directory.with_file_name(DEFAULT);
    os::publish(&path, format!("{}\n", plan.name).as_bytes())
        .map_err(|why| messages::no_default(&path, &why.to_string()))
}

fn default_of(world: &World) -> Option<String> {
    let text = fs::read_to_string(parent(world)?.join(DEFAULT)).ok()?;
    let name = text.lines().next()?.trim();
    (!name.is_empty()).then(|| name.to_owned())
}

/// Returns true if no machine runs here, or the environment says that none is meant. A machine that it names counts as one that runs.
pub(crate) fn none_runs(world: &World) -> bool {
    let origin = origin(world);
    let runs =
        |machine: &FoundMachine| machine.life == MachineLife::Runs && machine.origin == origin;
    match world.variable(VARIABLE) {
        Some(name) => name == NONE,
        None => parent(world).is_none_or(|parent| !machines(&parent).iter().any(runs)),
    }
}

/// Returns the control sockets of the machines that run here.
pub(crate) fn controls(world: &World) -> Vec<PathBuf> {
    let all = parent(world).map_or_else(Vec::new, |parent| machines(&parent));
    let running = all
        .iter()
        .filter(|machine| machine.life == MachineLife::Runs);
    running.map(FoundMachine::control).collect()
}

/// Returns the machine that a command is about.
pub(crate) fn select(world: &World, name: Option<&str>) -> Result<FoundMachine, Failure> {
    let parent = parent(world).ok_or_else(|| messages::no_state(world))?;
    let said = match name {
        Some(name) => Some((name, OPTION)),
        None => world.variable(VARIABLE).map(|name| (name, VARIABLE)),
    };
    if let Some((NONE, by)) = said {
        return Err(messages::none_meant(by));
    }
    if let Some((name, _)) = said {
        return match machine_named(&parent, name) {
            Some(machine) if machine.life == MachineLife::Runs => Ok(machine),
            found => {
                let all = machines(&parent);
                Err(messages::does_not_run(name, found.is_some(), &all))
            }
        };
    }
    let all = machines(&parent);
    let origin = origin(world);
    let runs =
        |machine: &&FoundMachine| machine.life == MachineLife::Runs && machine.origin == origin;
    let mut running: Vec<FoundMachine> = all.iter().filter(runs).cloned().collect();
    let default = default_of(world);
    match running.len() {
        0 => Err(messages::none_runs(&origin, &all)),
        1 => Ok(running.remove(0)),
        _ => {
            let of_default = running
                .iter()
                .find(|machine| Some(&machine.name) == default.as_ref());
            of_default
                .cloned()
                .ok_or_else(|| messages::several(&running))
        }
    }
}

/// Returns true if a job may go to a machine without being told on the command line. Cheap: this precedes everything else.
pub(crate) fn is_told(world: &World) -> bool {
    let names = |word: &OsString| word.as_encoded_bytes().starts_with(OPTION.as_bytes());
    world.variable(VARIABLE).is_some()
        || world.argv.iter().any(names)
        || parent(world).is_some_and(|parent| parent.join(DEFAULT).exists())
}

/// Returns the machine on which `rally run` runs its job; `None` if on none. `told` is what the command line or a setting says.
pub(crate) fn for_run(world: &World, told: Option<&str>) -> Result<Option<FoundMachine>, Failure> {
    match told {
        Some(NONE) => Ok(None),
        Some(name) => select(world, Some(name)).map(Some),
        None => {
            let (Some(default), Some(parent)) = (default_of(world), parent(world)) else {
                return Ok(None);
            };
            let origin = origin(world);
            let found = machine_named(&parent, &default);
            Ok(found
                .filter(|machine| machine.life == MachineLife::Runs && machine.origin == origin))
        }
    }
}
