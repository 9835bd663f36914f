//! From a submission of the client to the job of `rally run`: what is wrong with it is said before anything is started, each fault in its own
//! words (P-09).

use std::{
    ffi::{OsStr, OsString},
    os::unix::ffi::{OsStrExt as _, OsStringExt as _},
    path::{Path, PathBuf},
};

use dvm::spec::{JobSpec, StdinTarget};
use ptp::{Dialect, Fault, Procs, Program, Submission, code};

use crate::args::{Request, World, parse, request::proxy::Debuggers, resolve};

/// The search path for programs if nobody says another one: the default of shells.
const SEARCH: &str = "/usr/local/bin:/usr/bin:/bin";
/// The file in the working directory in which debuggers find each other.
pub(super) const ROUTES: &str = "routing_file";

/// A submission without faults.
#[derive(Debug)]
pub(super) struct Checked {
    pub(super) spec: Box<JobSpec>,
    /// Processes of the program, as the client sees them.
    pub(super) procs: u32,
    pub(super) debugged: Option<Debugged>,
    /// What attaches to the program when it runs.
    pub(super) attaches: Option<Attachment>,
}

/// Arguments of `dbgr`, which attaches to a job.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Attachment(pub(super) Vec<String>);

/// A job of debuggers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Debugged {
    /// The file that the proxy writes when it knows where the debuggers are.
    pub(super) routes: Option<PathBuf>,
}

/// What the proxy knows of a client.
#[derive(Clone, Copy, Debug)]
pub(super) struct Terms {
    pub(super) dialect: Dialect,
    pub(super) debuggers: Debuggers,
    /// The number that the program of a debugged job has.
    pub(super) app: u64,
}

fn fault(text: String) -> Fault {
    let code = code::SUBMIT;
    Fault { code, text }
}

/// Longest piece of a client's text that a fault repeats, in bytes.
const SHOWN_MAX: usize = 256;

fn shown(bytes: &[u8]) -> String {
    let cut = bytes.get(..SHOWN_MAX);
    let text = message::visible::line(&String::from_utf8_lossy(cut.unwrap_or(bytes))).into_owned();
    match cut {
        Some(cut) if cut.len() < bytes.len() => text + "...",
        _ => text,
    }
}

/// Checks a submission, and returns its job.
pub(super) fn check(
    submission: &Submission,
    terms: Terms,
    world: &World,
) -> Result<Checked, Fault> {
    let variables = variables(submission)?;
    let directory = directory(submission, world)?;
    let procs = match &submission.procs {
        Procs::Number(number) => *number,
        // The session has refused what is no number.
        Procs::Unsaid | Procs::Invalid(_) => 1,
    };
    let of_client = variables.iter().rev().find(|(name, _)| name == "PATH");
    let path = match of_client {
        Some((_, path)) => path.as_os_str(),
        None => match world.variables.get(OsStr::new("PATH")) {
            Some(path) => path.as_os_str(),
            None => OsStr::new(SEARCH),
        },
    };
    let place = Place {
        directory: &directory,
        path,
    };
    let app = place.find(&submission.program, What::Program)?;
    let attaches = match &submission.debugger {
        Some(debugger) if debugger.attaches => Some(attachment(&debugger.program)?),
        Some(_) | None => None,
    };
    let starts = submission.debugger.as_ref().filter(|it| !it.attaches);
    let mut debugged = None;
    let (program, mut args, started) = match starts {
        None => (app, submission.program.args.clone(), procs),
        Some(debugger) => {
            let found = place.find(&debugger.program, What::Debugger)?;
            let (started, routes) = match terms.debuggers {
                Debuggers::Servers => (procs, None),
                Debuggers::WithMaster => (procs.saturating_add(1), Some(directory.join(ROUTES))),
            };
            debugged = Some(Debugged { routes });
            (found, debugger.program.args.clone(), started)
        }
    };
    if debugged.is_some() && terms.dialect == Dialect::V2 {
        args.push(format!("--jobid={}", terms.app).into_bytes());
    }
    let args = args.into_iter().map(|arg| passable(arg, "an argument"));
    let args = args.collect::<Result<Vec<_>, _>>()?;
    let mut spec = job(started, &directory, debugged.is_some(), world)?;
    for app in &mut spec.apps {
        app.program.clone_from(&program.clone().into_os_string());
        app.args.clone_from(&args);
        for (name, value) in &variables {
            app.env.set(name, value);
        }
        app.search = os::search_path(&directory, path);
    }
    // The last step: a submission that is refused leaves the file of another job.
    if debugged.is_some() {
        remove_routes(&directory.join(ROUTES))?;
    }
    Ok(Checked {
        spec,
        procs,
        debugged,
        attaches,
    })
}

/// The debugger that can attach.
const ATTACHES: &str = "dbgr";

/// Returns what attaches to a job: no debugger of PTP can.
fn attachment(debugger: &Program) -> Result<Attachment, Fault> {
    let name = debugger.name.clone().unwrap_or_default();
    let file = name.rsplit(|byte| *byte == b'/').next();
    if file != Some(ATTACHES.as_bytes()) {
        return Err(fault(format!(
            "the debugger `{}` cannot attach to a program that runs, as no `sdm` of PTP can: `{ATTACHES}` can",
            shown(&name)
        )));
    }
    let args = debugger.args.iter();
    let args = args.map(|arg| passable(arg.clone(), "an argument of the debugger"));
    let args = args.map(|arg| Ok(arg?.to_string_lossy().into_owned()));
    Ok(Attachment(args.collect::<Result<_, Fault>>()?))
}

/// Returns the job of `rally run` with so many processes, whose program, arguments and variables follow: a client is not to choose settings of `rally`,
/// and a word of it is no option.
fn job(
    procs: u32,
    directory: &Path,
    is_debugged: bool,
    world: &World,
) -> Result<Box<JobSpec>, Fault> {
    let mut words = ["rally", "run", "--stdin=none"]
        .map(OsString::from)
        .to_vec();
    if is_debugged {
        // Debuggers of PTP look for their rank in variables of Open MPI, or of PMI, which are always there.
        words.push("--env-family=openmpi".into());
    }
    words.extend(["-n".into(), procs.to_string().into()]);
    words.extend(["--wdir".into(), directory.into()]);
    words.extend(["--".into(), "true".into()]);
    let mut world = world.clone();
    world.argv.clone_from(&words);
    let request = parse(&words).and_then(|args| resolve(&args, &world));
    match request {
        Ok(Request::Run(request)) => {
            let mut spec = request.spec;
            spec.stdin = StdinTarget::None;
            Ok(Box::new(spec))
        }
        Ok(other) => unreachable!("`rally run` is {other:?}"),
        Err(error) => Err(fault(error.message().headline)),
    }
}

/// Returns the variables of the submission.
fn variables(submission: &Submission) -> Result<Vec<(OsString, OsString)>, Fault> {
    let split = |variable: &Vec<u8>| {
        let at = variable.iter().position(|byte| *byte == b'=');
        let Some(at) = at.filter(|at| *at > 0) else {
            let text = shown(variable);
            return Err(fault(format!(
                "`env` is `{text}`, and not of the form `NAME=VALUE`"
            )));
        };
        let name = passable(variable[..at].to_vec(), "the name of a variable")?;
        let value = passable(variable[at + 1..].to_vec(), "the value of a variable")?;
        Ok((name, value))
    };
    submission.env.iter().map(split).collect()
}

/// The system ends texts at a zero byte.
fn passable(bytes: Vec<u8>, what: &str) -> Result<OsString, Fault> {
    if bytes.contains(&0) {
        let text = shown(&bytes);
        return Err(fault(format!(
            "{what} has a zero byte, which no program can get: `{text}`"
        )));
    }
    Ok(OsString::from_vec(bytes))
}

fn directory(submission: &Submission, world: &World) -> Result<PathBuf, Fault> {
    let Some(directory) = &submission.working_dir else {
        return Err(fault("the submission has no `workingDir`".to_owned()));
    };
    let text = shown(directory);
    let directory = PathBuf::from(passable(directory.clone(), "`workingDir`")?);
    let directory = world
        .absolute(&directory)
        .map_err(|error| fault(error.message().headline))?;
    match std::fs::metadata(&directory) {
        Ok(found) if found.is_dir() => Ok(directory),
        Ok(_) => Err(fault(format!(
            "the working directory `{text}` is no directory"
        ))),
        Err(why) => Err(fault(format!("the working directory `{text}`: {why}"))),
    }
}

/// What a program is for.
#[derive(Clone, Copy)]
enum What {
    Program,
    Debugger,
}

/// Where programs are searched for.
struct Place<'a> {
    directory: &'a Path,
    path: &'a OsStr,
}

impl Place<'_> {
    /// Finds a program. Without a directory, and a slash in its name, it is searched for in the PATH of the submission.
    fn find(&self, program: &Program, what: What) -> Result<PathBuf, Fault> {
        let (what, key) = match what {
            What::Program => ("program", "execName"),
            What::Debugger => ("debugger", "debugExecName"),
        };
        // The session has refused a submission without it.
        let name = program.name.clone().unwrap_or_default();
        let name = passable(name, &format!("`{key}`"))?;
        let path = match &program.directory {
            Some(place) => {
                let place = PathBuf::from(passable(place.clone(), "the directory of a program")?);
                Some(self.directory.join(place).join(&name))
            }
            None if name.as_bytes().contains(&b'/') => Some(self.directory.join(&name)),
            None => None,
        };
        let shown = |path: &Path| shown(path.as_os_str().as_bytes());
        if let Some(path) = path {
            return match std::fs::metadata(&path) {
                Err(why) => Err(fault(format!("the {what} `{}`: {why}", shown(&path)))),
                Ok(_) if os::is_executable(&path) => Ok(path),
                Ok(_) => Err(not_executable(what, &shown(&path))),
            };
        }
        match os::find_program(&name, &os::search_path(self.directory, self.path)) {
            os::Found::Program(path) => Ok(path),
            os::Found::NotExecutable(path) => Err(not_executable(what, &shown(&path))),
            os::Found::Missing => Err(fault(format!(
                "the {what} `{}` is in no directory of PATH, which is `{}`",
                shown(Path::new(&name)),
                shown(Path::new(self.path))
            ))),
        }
    }
}

fn not_executable(what: &str, path: &str) -> Fault {
    fault(format!(
        "the {what} `{path}` is no file that may be executed"
    ))
}

/// Removes the file of an earlier job, which would lead debuggers astray.
fn remove_routes(file: &Path) -> Result<(), Fault> {
    match std::fs::remove_file(file) {
        Err(why) if why.kind() != std::io::ErrorKind::NotFound => Err(fault(format!(
            "cannot remove `{}` of an earlier job: {why}",
            shown(file.as_os_str().as_bytes())
        ))),
        _ => Ok(()),
    }
}
