//! Tools beside the ranks of a job: what a front asks the controller for.

pub(crate) mod libraries;

use std::{collections::BTreeSet, ffi::OsString, os::unix::ffi::OsStrExt as _};

use dvm::{
    place,
    proto::{JobRef, OnePer, ToolRequest},
    spec::{
        App, EndPolicy, Environment, HoldPlan, JobSpec, MapFor, OnFailure, Preload, Recorder,
        ResourceLimits, ResourceNeeds, StdinTarget, StdioPlan, Tracers,
    },
};
use message::{Kind, Message, Severity};

pub(crate) const LOST: Kind = Kind {
    id: "tool/lost",
    severity: Severity::Error,
    explanation: "The job was found, but its controller did not answer, or is gone: the job has ended, or was killed. The processes of the \
tool have ended with it.",
};

/// A tool that is started beside the ranks of a front's own job.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ToolCommand {
    pub(crate) program: OsString,
    pub(crate) args: Vec<OsString>,
    pub(crate) one_per: OnePer,
}

/// What a front knows of tools for its job.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Tools {
    /// The tool of the command line.
    pub(crate) given: Option<ToolCommand>,
    /// Variables that tools get in place of those of the ranks.
    pub(crate) env: Environment,
    /// Files that are copied to the nodes for the tool of the command line.
    pub(crate) preload: Option<Preload>,
}

impl Tools {
    /// Returns the request for a tool beside the front's own job.
    pub(crate) fn request(&self, tool: ToolCommand, preload: Option<Preload>) -> ToolRequest {
        let ToolCommand {
            program,
            args,
            one_per,
        } = tool;
        let spec = JobSpec {
            apps: vec![app(program, args, self.env.clone())],
            placement: place::Request::default(),
            universe: None,
            stdin: StdinTarget::None,
            stdio: StdioPlan::default(),
            end: end(EndPolicy::default()),
            hold: HoldPlan::NOWHERE,
            variables: BTreeSet::new(),
            gpus: None,
            preload,
            map: MapFor::Launch,
            limits: ResourceLimits::default(),
            watch: None,
            needs: ResourceNeeds::default(),
            sets: Default::default(),
            recorder: Recorder::Off,
        };
        ToolRequest {
            target: JobRef::Own,
            one_per,
            spec: Box::new(spec),
        }
    }
}

/// Returns the variables of the dynamic linker that are ours: what users change in those of the ranks is not meant for tools. Those that
/// load code into every process are never passed on.
pub(crate) fn linker_variables<'a>(
    ours: impl Iterator<Item = (&'a OsString, &'a OsString)>,
) -> Environment {
    let is_passed = |name: &OsString| {
        name.as_bytes().starts_with(b"LD_") && name != "LD_PRELOAD" && name != "LD_AUDIT"
    };
    ours.filter(|(name, _)| is_passed(name)).collect()
}

/// Returns a tool. The controller adds what it gets from the app of its ranks.
pub(crate) fn app(program: OsString, args: Vec<OsString>, env: Environment) -> App {
    App {
        program,
        args,
        env,
        directory: OsString::new(),
        search: OsString::new(),
        elsewhere: std::sync::Arc::default(),
        umask: 0,
        tracers: Tracers::Ancestors,
    }
}

/// Returns how a tool ends: its processes do not end each other.
pub(crate) const fn end(said: EndPolicy) -> EndPolicy {
    EndPolicy {
        on_failure: OnFailure::Continue,
        on_node_loss: OnFailure::Continue,
        time_limit: None,
        warning: None,
        wait: None,
        ..said
    }
}

/// Returns the message about the loss of the controller while the tool ran.
pub(crate) fn gone() -> Message {
    Message::new(
        &LOST,
        "the launcher of the job is gone, and the tool with it",
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_loaded_into_ranks_is_not_loaded_into_tools() {
        let ours = [
            ("HOME", "/home/u"),
            ("LD_AUDIT", "/a.so"),
            ("LD_BIND_NOW", "1"),
            ("LD_LIBRARY_PATH", "/opt/lib"),
            ("LD_PRELOAD", "/b.so"),
        ];
        let ours = ours.map(|(name, value)| (OsString::from(name), OsString::from(value)));
        let passed = linker_variables(ours.iter().map(|(name, value)| (name, value)));
        let passed: Vec<String> = passed
            .iter()
            .map(|(name, value)| format!("{}={}", name.display(), value.display()))
            .collect();
        assert_eq!(passed, ["LD_BIND_NOW=1", "LD_LIBRARY_PATH=/opt/lib"]);
    }
}
