//! What to execute: a program with its arguments and environment.

use std::{
    collections::BTreeSet,
    ffi::{CString, OsStr, OsString},
    os::unix::ffi::{OsStrExt, OsStringExt},
    path::Path,
};

use dvm::{
    proto::StartFailure,
    spec::{App, Environment, Tracers},
};

use super::{elsewhere, find::find, relocated};
use crate::recorder;

/// One app, ready to be executed many times.
#[derive(Debug)]
pub(super) struct Prepared {
    /// The file that was found, or why the search failed.
    pub(super) program: Result<CString, StartFailure>,
    pub(super) argv: Vec<CString>,
    /// Arguments for a shell that runs the program: set once exec has failed with ENOEXEC and the file is a script.
    pub(super) shell: Option<Vec<CString>>,
    pub(super) env: Environment,
    /// More variables, which depend on the program.
    pub(super) more: Vec<CString>,
    /// Whether the variables that each rank has its own value of were removed.
    has_own: bool,
    pub(super) directory: CString,
    pub(super) umask: u32,
    pub(super) tracers: os::Tracers,
}

impl Prepared {
    /// `node` are the variables of this node, if it is on another host than the launcher. `calls` is the directory for recorded
    /// calls.
    pub(super) fn new(
        app: &App,
        node: Option<&[(OsString, OsString)]>,
        calls: Option<&Path>,
    ) -> Self {
        let adapted;
        let app = match node {
            Some(node) => {
                adapted = App {
                    env: elsewhere::environment(app, &os::host_name(), node),
                    ..app.clone()
                };
                &adapted
            }
            None => app,
        };
        let mut argv = vec![c_string(app.program.as_bytes().to_vec())];
        argv.extend(app.args.iter().map(|arg| c_string(arg.as_bytes().to_vec())));
        let program = find(app).map(|program| c_string(program.into_vec()));
        let mut more = Vec::new();
        if let Ok(program) = &program {
            let program = Path::new(OsStr::from_bytes(program.to_bytes()));
            let place = Path::new(&app.directory).join(program);
            let variables = relocated::variables(app, &place);
            let variables = variables.iter();
            more.extend(variables.map(|(name, value)| variable(name.as_ref(), value.as_os_str())));
        }
        let mut env = app.env.clone();
        if let Some(calls) = calls {
            for (name, value) in recorder::variables(&app.env, calls) {
                env.remove(OsStr::new(name));
                more.push(variable(name.as_ref(), &value));
            }
        }
        Self {
            program,
            argv,
            shell: None,
            env,
            more,
            has_own: false,
            directory: c_string(app.directory.as_bytes().to_vec()),
            umask: app.umask,
            tracers: match app.tracers {
                Tracers::Ancestors => os::Tracers::Ancestors,
                Tracers::SameUser => os::Tracers::SameUser,
            },
        }
    }
}

impl Prepared {
    /// Removes the variables that each rank has its own value of: a shell and a program would take different ones of two
    /// entries with the same name. The names are the same for all ranks of an app, so this is done once.
    pub(super) fn leave_out(&mut self, own: &[(String, OsString)]) {
        if std::mem::replace(&mut self.has_own, true) {
            return;
        }
        let names: BTreeSet<&[u8]> = own.iter().map(|(name, _)| name.as_bytes()).collect();
        self.env.retain(|name| !names.contains(name.as_bytes()));
        self.more.retain(|variable| {
            let name = variable.as_bytes().split(|byte| *byte == b'=').next();
            !names.contains(name.unwrap_or_default())
        });
    }
}

/// Makes a C string, cut at the first NUL byte. Arguments come from argv, a file or the environment, which cannot contain
/// NUL in Linux; a program would not see what follows one anyway.
pub(super) fn c_string(mut bytes: Vec<u8>) -> CString {
    if let Some(at) = bytes.iter().position(|byte| *byte == 0) {
        bytes.truncate(at);
    }
    CString::new(bytes).unwrap_or_default()
}

pub(super) fn variable(name: &OsStr, value: &OsStr) -> CString {
    let mut bytes = name.as_bytes().to_vec();
    bytes.push(b'=');
    bytes.extend_from_slice(value.as_bytes());
    c_string(bytes)
}
