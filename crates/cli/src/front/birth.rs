//! The processes that the front starts before it knows its job: the guardian, and the controller below it.

use std::{
    fs::File,
    os::fd::{AsFd as _, OwnedFd},
};

use base::Signal;
use os::{Clock, Forked, Loop, Pid};
use runtime::{Birth, ControllingTool, Doors};

use super::{ORPHANS_MAX, children_except, inherited};
use crate::{args::MessageFormat, choices::OnLoss, exit, log, messages, surroundings};

/// The size of a slot of shared memory, in bytes. One read fills at most one slot.
const SLOT_SIZE: usize = 256 * 1024;
/// The number of slots for output, enough to fill the credit windows of stdout and stderr. Memory is committed only for slots
/// that were used.
const OUTPUT_SLOTS: u32 = 64;
const INPUT_SLOTS: u32 = 16;

/// What helpers are told of tools.
#[derive(Debug, Default)]
pub(crate) struct ForTools {
    /// A tool that controls the launcher.
    pub(crate) controlling: Option<ControllingTool>,
    pub(crate) doors: Doors,
}

/// The guardian, which outlives a lost controller and ends its job, and the controller, before they have a job. They are
/// started before anything else, and initialize while the command line is parsed.
#[derive(Debug)]
pub(crate) struct Helpers {
    /// Our end of the link. `None` once the job has taken it over.
    pub(super) socket: Option<OwnedFd>,
    pub(super) regions: Option<(os::SharedRegion, os::SharedRegion)>,
    pub(super) inherited: Vec<Pid>,
    /// What happens when the streams that the front has got from a tool are closed; `None`: what the user says.
    pub(super) on_tool_loss: Option<OnLoss>,
}

impl Helpers {
    /// Starts guardian and controller. Returns only in this process.
    ///
    /// `format` is the format of messages that the controller itself has to print on stderr.
    pub(crate) fn start(
        host: &str,
        format: MessageFormat,
        complaints: Complaints<'_>,
        tools: ForTools,
    ) -> Result<Self, os::Error> {
        let inherited = inherited();
        let descriptors = os::raise_descriptor_limit();
        os::become_subreaper()?;
        let (ours, theirs) = os::socket_pair()?;
        let output = os::SharedRegion::new(SLOT_SIZE, OUTPUT_SLOTS)?;
        let input = os::SharedRegion::new(SLOT_SIZE, INPUT_SLOTS)?;
        let front_pid = os::current_pid();
        // Its streams are pipes or terminals of the tool.
        let outlives = tools.controlling.as_ref().filter(|tool| {
            let is_started = matches!(tool, ControllingTool::Started(_));
            is_started && tool.is_outlived()
        });
        let on_tool_loss = outlives.map(|_| OnLoss::Continue);
        match os::fork()? {
            Forked::Parent(_) => {}
            Forked::Child => {
                drop(ours);
                let_go_of_standard_streams(complaints);
                let birth = Birth {
                    front_pid,
                    host: host.to_owned(),
                    build: crate::daemon::BUILD.to_owned(),
                    link: Some(theirs),
                    report_bug: match format {
                        MessageFormat::Text => messages::print_internal_as_text,
                        MessageFormat::Json => messages::print_internal_as_json,
                    },
                    log: log::filter().map(|filter| runtime::log::Elsewhere {
                        filter,
                        pass_on: log::pass_on,
                    }),
                    terminal: os::HiddenInput::open().ok(),
                    surroundings: surroundings(),
                    output: output.into_writer(),
                    input: input.into_reader(),
                    descriptors,
                    tool: tools.controlling,
                    doors: tools.doors,
                };
                os::exit_at_once(runtime::guard(birth).unwrap_or(exit::INTERNAL));
            }
        }
        drop(theirs);
        runtime::sweep_stale(&surroundings());
        Ok(Self {
            socket: Some(ours),
            regions: Some((output, input)),
            inherited,
            on_tool_loss,
        })
    }
}

impl Drop for Helpers {
    /// Closes the link of a controller that gets no job. Guardian and controller then exit by themselves, and are reaped
    /// here.
    fn drop(&mut self) {
        let Some(socket) = self.socket.take() else {
            return;
        };
        drop(socket);
        let Ok(mut events) = Loop::new(&[Signal::CHLD]) else {
            return;
        };
        let until = Clock::now() + ORPHANS_MAX;
        let mut taken = Vec::new();
        loop {
            while os::reap().is_some() {}
            let left = !children_except(&self.inherited).is_empty();
            if !left || Clock::now() >= until || events.wait(Some(until), &mut taken).is_err() {
                return;
            }
        }
    }
}

/// Where guardian and controller write what they cannot tell a front.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Complaints<'a> {
    /// To our stderr.
    Inherit,
    /// To this file, because they outlive the front: whoever waits for the end of its stderr must not wait for theirs.
    File(&'a File),
}

/// Replaces stdin and stdout of the controller, so that it does not keep the user's files or pipes open when the front is
/// gone. It keeps stderr for internal errors, unless it outlives the front.
fn let_go_of_standard_streams(complaints: Complaints<'_>) {
    if let Complaints::File(file) = complaints {
        let _ = os::replace_standard_stream(2, file.as_fd());
        // The working directory can be unmounted and removed.
        let _ = std::env::set_current_dir("/");
    }
    for number in [0, 1] {
        // Without /dev/null no job can start; the next function that needs it reports the error.
        let _ = os::let_go_of_standard_stream(number);
    }
}
