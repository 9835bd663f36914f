//! A machine for proxies alone: it ends with the last proxy that uses it.

use std::{
    io,
    process::{Command, Stdio},
    time::Duration,
};

use dvm::machine::Ask;
use os::Clock;
use runtime::FoundMachine;

use super::messages;
use crate::{
    args::{World, request::proxy::ProxyRequest},
    machine::{Connection, Failure, none_runs, select},
    say,
};

/// Its name. It is found again under it, with its history.
const NAME: &str = "ptp-proxy";
/// How long another one may take to end, which ends with another proxy.
const ENDING_MAX: Duration = Duration::from_secs(10);
/// Pause between two looks at one that ends or begins.
const PAUSE: Duration = Duration::from_millis(20);

/// Connects to the machine for the jobs of the client: the one that is named, one that runs, or one of our own.
pub(super) fn connect(
    request: &ProxyRequest,
    world: &World,
) -> Result<(FoundMachine, Connection), Failure> {
    let named = request.which.machine.as_deref();
    let own = || select(world, Some(NAME)).ok();
    if named.is_some() || request.up.is_empty() && !none_runs(world) && own().is_none() {
        let machine = select(world, named)?;
        let connection = Connection::to(&machine)?;
        return Ok((machine, connection));
    }
    let until = Clock::now() + ENDING_MAX;
    let mut is_started = false;
    loop {
        let Some(machine) = own() else {
            match start(request, world) {
                Ok(()) => is_started = true,
                // Another proxy may have started it at the same time.
                Err(failure) if own().is_none() || until <= Clock::now() => return Err(failure),
                Err(_) => {}
            }
            continue;
        };
        match claim(&machine) {
            Ok(connection) => {
                if !is_started && !request.up.is_empty() {
                    say(&messages::runs_already(NAME), request.which.format);
                }
                return Ok((machine, connection));
            }
            Err(failure) if until <= Clock::now() => return Err(failure),
            // It ends with another proxy, and the next one is ours.
            Err(_) => os::sleep(PAUSE),
        }
    }
}

/// Connects to the machine for proxies, which does not end before this connection.
fn claim(machine: &FoundMachine) -> Result<Connection, Failure> {
    let mut connection = Connection::to(machine)?;
    connection.ask(Ask::EndWithFront)?;
    Ok(connection)
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
