//! Tools that start `rally`, or for which it is to wait, as the environment says: variables of the PMIx Standard's chapter on tools.

use std::{
    ffi::OsStr,
    os::fd::OwnedFd,
    path::{Path, PathBuf},
};

use message::{Message, visible};
use pmix::launcher::{self, Summons};
use runtime::{ControllingTool, Doors, call_back};

use crate::{
    args::{World, request::machine::ServerOf},
    exit::ExitCode,
};

message::kinds! {
    /// All kinds of messages about tools that start the launcher.
    pub(crate) const KINDS;

    TOOL_NOT_SERVED: Error "tool/not-served"
"`PMIX_LAUNCHER_RNDZ_URI` is set: a debugger or another PMIx tool has started `rally`, and waits for its connection at this address, \
to give it directives for the job and to let it begin. `rally` cannot connect, or the tool does not answer as PMIx tools do. No job is started, \
because nobody could let it begin. A variable that is left from an earlier session can be removed: `env -u PMIX_LAUNCHER_RNDZ_URI rally …`."

    TOOLS_NOT_SERVED: Error "tool/no-server"
"Tools are to find this launcher by a file (`PMIX_LAUNCHER_RENDEZVOUS_FILE`, `PMIX_LAUNCHER_RNDZ_FILE`, `rally up --system-server`), and the file cannot be written. It must not exist, unless a server that has ended has left it. Who asks for this waits for it, so that nothing is started without it."

    TOOL_AND_MACHINE: Error "tool/on-machine"
"The environment says that a tool controls this launcher (`PMIX_LAUNCHER_RNDZ_URI`, `PMIX_LAUNCHER_PAUSE_FOR_TOOL`). It can control only jobs of the launcher itself. A machine serves tools that connect to it."
}

/// The variable that asks a launcher to wait for a tool.
const PAUSE: &str = "PMIX_LAUNCHER_PAUSE_FOR_TOOL";
/// Variables with a file to which a launcher writes its address: the name of the library, and that of the Standard.
const FILES: [&str; 2] = ["PMIX_LAUNCHER_RENDEZVOUS_FILE", "PMIX_LAUNCHER_RNDZ_FILE"];
/// Variables with the directory for the file of a system server, the first one first.
const SYSTEM: [&str; 4] = ["PMIX_SYSTEM_TMPDIR", "TMPDIR", "TEMP", "TMP"];
/// The variable with the number of a descriptor whose other end a tool holds open as long as it lives.
const KEEPALIVE: &str = "PMIX_KEEPALIVE_PIPE";
/// Variables with the name of this process in a job, if another launcher has started it.
const NAMES: [&str; 2] = ["PMIX_SERVER_NSPACE", "PMIX_NAMESPACE"];

/// Connects to the tool that has started this launcher. `None` if no tool controls it.
///
/// # Errors
/// The tool cannot be served.
pub(crate) fn controlling_tool(
    world: &World,
) -> Result<Option<ControllingTool>, (Message, ExitCode)> {
    let text = |name: &str| world.variable(name).map(str::to_owned);
    let failed = |why: String| {
        let address = text(launcher::ADDRESS).unwrap_or_default();
        let message = Message::new(
            &TOOL_NOT_SERVED,
            format!("cannot serve the tool that has started `rally`: {why}"),
        );
        let message = message
            .fact(launcher::ADDRESS, visible::line(&address))
            .fact("effect", "no job was started");
        (message, ExitCode::Resources)
    };
    let summons = Summons::from_environment(text).map_err(|why| failed(why.to_string()))?;
    if let Some(summons) = summons {
        let words = world.argv.iter().map(|word| word.to_string_lossy());
        let command_line = words.collect::<Vec<_>>().join(" ");
        let started = call_back(summons, &world.host, &command_line, keepalive(world));
        return match started {
            Ok(started) => Ok(Some(ControllingTool::Started(Box::new(started)))),
            Err(why) => Err(failed(why.to_string())),
        };
    }
    let pauses = world.variable(PAUSE).is_some_and(is_on);
    Ok(pauses.then_some(ControllingTool::Pause))
}

/// Returns whether a tool controls this launcher.
pub(crate) fn is_controlled(world: &World) -> bool {
    world.variable(launcher::ADDRESS).is_some() || world.variable(PAUSE).is_some_and(is_on)
}

/// The error for a launcher that tools cannot find.
pub(crate) fn not_served(why: &str) -> Message {
    Message::new(&TOOLS_NOT_SERVED, why)
        .fact("effect", "nothing was started")
        .with_help("remove the file if no launcher of yours uses it, or name another one")
}

/// The error for a job that a tool is to control on a machine.
pub(crate) fn not_on_machine(name: &str) -> (Message, ExitCode) {
    let message = Message::new(
        &TOOL_AND_MACHINE,
        format!(
            "a tool controls this launcher, and the job is to run on the machine `{}`",
            &visible::line(name)
        ),
    );
    let message = message.with_help(
        "run it without the machine, or let the tool connect to the machine and spawn the job there",
    );
    (message, ExitCode::Usage)
}

/// Returns further ways for tools to find this launcher.
pub(crate) fn doors(world: &World) -> Doors {
    let names = NAMES.iter().filter_map(|name| world.variable(name));
    // A name becomes a part of a file name.
    let names = names.filter(|name| !name.contains('/'));
    let mut names: Vec<String> = names.map(str::to_owned).collect();
    names.dedup();
    let files = FILES
        .iter()
        .map(|name| world.variables.get(OsStr::new(name)));
    let files = files.flatten().filter(|file| !file.is_empty());
    let mut files: Vec<PathBuf> = files.map(PathBuf::from).collect();
    files.dedup();
    Doors { names, files }
}

/// Returns further ways for tools to find a machine: as the system server of this host (`docs/formats/pmix.md`, section 4.1).
pub(crate) fn doors_of_machine(server: ServerOf, world: &World) -> Doors {
    let file = || {
        let directory = SYSTEM.iter().find_map(|name| world.variable(name));
        let host = world.host.split('.').next().unwrap_or_default();
        Path::new(directory.unwrap_or("/tmp")).join(format!("pmix.sys.{host}"))
    };
    Doors {
        names: Vec::new(),
        files: match server {
            ServerOf::User => Vec::new(),
            ServerOf::System => vec![file()],
        },
    }
}

/// Returns our copy of the pipe; `None` if there is none, so that the job outlives the tool.
fn keepalive(world: &World) -> Option<OwnedFd> {
    let number = world.variable(KEEPALIVE)?.parse().ok()?;
    os::duplicate_inherited(number).ok()
}

/// Returns whether a variable with this value is set in the sense of PMIx: 0 and false switch it off.
fn is_on(value: &str) -> bool {
    let off = ["0", "f", "false", "n", "no"];
    let value = value.trim().to_ascii_lowercase();
    !off.contains(&value.as_str())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn launchers_that_tools_cannot_use() {
        let file = "tools cannot find the launcher: /x exists, and is no file for tools";
        let text = message::text(&not_served(file), message::Format::Text);
        insta::assert_snapshot!(text, @r"
        error: tools cannot find the launcher: /x exists, and is no file for tools
          effect: nothing was started
          help:   remove the file if no launcher of yours uses it, or name another one
        ");
    }
}
