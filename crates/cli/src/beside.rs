//! Starts `dbgr`, which is installed beside `rally`.

use std::{
    env,
    ffi::{CString, OsString},
    os::{
        fd::{AsFd as _, BorrowedFd},
        unix::ffi::{OsStrExt as _, OsStringExt as _},
    },
    path::{Path, PathBuf},
};

use os::{Pid, SpawnSpec, Spawner};
use runtime::Debugger;

use crate::messages::NoDbgr;

/// The program.
const PROGRAM: &str = "dbgr";

/// Starts `dbgr` with these arguments, and an empty stdin. The kernel kills it when our thread ends.
pub(crate) fn start_dbgr(
    words: Vec<String>,
    stdout: BorrowedFd<'_>,
    stderr: BorrowedFd<'_>,
) -> Result<Pid, NoDbgr> {
    let program = program().ok_or(NoDbgr::NoProgram)?;
    let null = os::dev_null()?;
    let argv: Vec<CString> = std::iter::once(program.clone().into_os_string())
        .chain(words.into_iter().map(OsString::from))
        .map(|word| CString::new(word.into_vec()))
        .collect::<Result<_, _>>()?;
    let envp: Vec<CString> = env::vars_os()
        .map(|(name, value)| CString::new([name.as_bytes(), b"=", value.as_bytes()].concat()))
        .collect::<Result<_, _>>()?;
    let program = CString::new(program.into_os_string().into_vec())?;
    let spec = SpawnSpec {
        fds: &[(null.as_fd(), 0), (stdout, 1), (stderr, 2)],
        ..SpawnSpec::new(&program, &argv, &envp)
    };
    Ok(Spawner::new()?.spawn(&spec)?)
}

/// Returns how a machine starts `dbgr`, which reaches its nodes with these options; `None` if there is no `dbgr`.
pub(crate) fn debugger(options: &[String]) -> Option<Debugger> {
    let environment = env::vars_os().map(|(mut entry, value)| {
        entry.push("=");
        entry.push(value);
        entry
    });
    Some(Debugger {
        program: program()?,
        options: options.to_vec(),
        environment: environment.collect(),
    })
}

/// Returns the path of `dbgr`: next to our own executable, otherwise in PATH.
pub(crate) fn program() -> Option<PathBuf> {
    let ours = os::program_of(os::current_pid());
    let beside = ours.as_deref().and_then(Path::parent).map(Path::to_owned);
    let path = env::var_os("PATH").unwrap_or_default();
    beside
        .into_iter()
        .chain(env::split_paths(&path))
        .filter(|directory| directory.is_absolute())
        .map(|directory| directory.join(PROGRAM))
        .find(|file| os::is_executable(file))
}
