//! A machine for proxies alone: it ends with the last proxy that uses it.

use std::{
    io,
    process::{Command, Stdio},
};

use runtime::FoundMachine;

use super::messages;
use crate::{
    args::{World, request::proxy::ProxyRequest},
    machine::{Failure, none_runs, select},
};

/// Its name. It is found again under it, with its history.
pub(super) const NAME: &str = "ptp";

/// Returns the machine for the jobs of the client: the one that is named, one that runs, or one of our own.
pub(super) fn machine(request: &ProxyRequest, world: &World) -> Result<FoundMachine, Failure> {
    let named = request.which.machine.as_deref();
    if named.is_none() && (!request.up.is_empty() || none_runs(world)) {
        start(request, world)?;
        return select(world, Some(NAME));
    }
    select(world, named)
}

/// Starts it as `rally up` does, whose messages the user gets.
fn start(request: &ProxyRequest, world: &World) -> Result<(), Failure> {
    let mut command = Command::new(&world.executable);
    command.args(["up", "--name", NAME]).args(&request.up);
    // What we print ourselves is the address on which we listen, and nothing else.
    command.stdin(Stdio::null()).stdout(io::stderr());
    match command.status() {
        Ok(status) if status.success() => Ok(()),
        Ok(status) => Err(messages::no_machine(&status.to_string())),
        Err(error) => Err(messages::no_machine(&error.to_string())),
    }
}
