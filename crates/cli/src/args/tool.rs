//! Tools beside the ranks of a job, from the command line.

use std::{
    ffi::{OsStr, OsString},
    os::unix::ffi::OsStrExt as _,
    path::Path,
};

use clap::ValueEnum as _;
use dvm::proto::OnePer;

use super::{
    Args, Error, JobLine, RunLine, RunRequest, World, define::StartToolArgs, parse,
    request::StartToolRequest, tool_files,
};
use crate::{
    quoting,
    tool::{self, ToolCommand, Tools},
    values::ValueError,
};

/// Returns the tool for the ranks of a job, and what tools that a debugger asks for get.
pub(super) fn of_job(job: &JobLine, world: &World) -> Result<Tools, Error> {
    let args = &job.args.tool;
    let given = match &args.tool {
        Some(program) => Some(ToolCommand {
            program: program_of(program, world)?,
            args: match &args.tool_arguments {
                Some(text) => words(text).map_err(|reason| Error::BadValue {
                    option: job.typed("tool-arguments"),
                    value: text.to_string_lossy().into_owned(),
                    reason,
                })?,
                None => Vec::new(),
            },
            one_per: one_per(args.tool_per_rank),
        }),
        None => None,
    };
    let preload = match (&given, &args.tool_files) {
        (Some(tool), Some(list)) => {
            let typed = job.typed("tool-files");
            Some(tool_files::resolve(&tool.program, list, &typed, world)?)
        }
        _ => None,
    };
    Ok(Tools {
        given,
        env: tool::linker_variables(world.variables.iter()),
        preload,
    })
}

/// Splits the arguments of a tool: as a shell does, but nothing is substituted, and a line feed is a blank.
fn words(text: &OsStr) -> Result<Vec<OsString>, ValueError> {
    let lines = quoting::lines(text.as_bytes()).map_err(|(_, open)| ValueError::Open(open))?;
    Ok(lines.into_iter().flat_map(|line| line.words).collect())
}

const fn one_per(is_per_rank: bool) -> OnePer {
    if is_per_rank {
        OnePer::Rank
    } else {
        OnePer::Node
    }
}

/// Returns the program of a tool. A name with a slash is meant from here, as in a shell, and not from the directory of the ranks.
fn program_of(typed: &OsStr, world: &World) -> Result<OsString, Error> {
    if !typed.as_bytes().contains(&b'/') {
        return Ok(typed.to_owned());
    }
    Ok(world.absolute(Path::new(typed))?.into_os_string())
}

/// Returns the request of `rally start-tool`. `run` resolves the command line of a job.
pub(super) fn start(
    args: &StartToolArgs,
    world: &World,
    run: fn(&RunLine, &World) -> Result<RunRequest, Error>,
) -> Result<StartToolRequest, Error> {
    let mut line: Vec<OsString> = vec!["rally".into(), "run".into()];
    let mut option = |name: &str, value: Option<&OsStr>| {
        let mut word = OsString::from(name);
        if let Some(value) = value {
            word.push("=");
            word.push(value);
        }
        line.push(word);
    };
    if let Some(label) = args.label {
        let label = label.to_possible_value();
        let label = label.as_ref().map(|label| OsStr::new(label.get_name()));
        option("--label", label);
    }
    if let Some(stdin) = &args.stdin {
        option("--stdin", Some(stdin));
    }
    if let Some(grace) = &args.grace {
        option("--grace", Some(grace));
    }
    if args.quiet {
        option("--quiet", None);
    }
    if args.wants_json() {
        option("--message-format", Some(OsStr::new("json")));
    }
    line.push("--".into());
    line.extend(args.command.iter().cloned());
    // Settings of the user are about jobs of the user.
    let mut own = world.clone();
    let is_ours = |name: &OsStr| name.as_bytes().starts_with(b"RALLY_");
    own.variables.retain(|name, _| !is_ours(name));
    let mut request = match parse(&line)? {
        Args::Run(line) => run(&line, &own)?,
        _ => return Err(Error::NoCommand),
    };
    let mut command = args.command.iter();
    let program = command.next().map(OsString::as_os_str).unwrap_or_default();
    let env = tool::linker_variables(world.variables.iter());
    request.spec.apps = vec![tool::app(
        program_of(program, world)?,
        command.cloned().collect(),
        env,
    )];
    if let Some(list) = &args.tool_files {
        let program = request.spec.apps.first().map(|app| app.program.clone());
        let program = program.unwrap_or_default();
        let preload = tool_files::resolve(&program, list, "--tool-files", world)?;
        request.spec.preload = Some(preload);
    }
    request.spec.end = tool::end(request.spec.end);
    request.front.on_hang = crate::choices::OnHang::Nothing;
    Ok(StartToolRequest {
        job: args.job.clone(),
        machine: args.which.machine.clone(),
        one_per: one_per(args.per_rank),
        spec: request.spec,
        front: request.front,
    })
}
