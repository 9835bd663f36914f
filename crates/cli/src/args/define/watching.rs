//! Options about a job that hangs.

use clap::Args;
use dvm::spec::Recorder;

use crate::{choices::OnHang, values};

/// Options of a job by which its user learns why it hangs.
#[derive(Clone, Debug, Args)]
pub(crate) struct WatchingArgs {
    /// Report where the ranks are if the job makes no progress
    ///
    /// `report:60s`: after 60 s in which no rank moves or writes, and shortly before the time limit, `dbgr watch` prints
    /// the stacks of all ranks and writes them into rally-PID-hang.html. See `rally help debugging`.
    #[arg(long, value_name = "ACTION", value_parser = values::on_hang, hide_short_help = true, help_heading = "Life of the job")]
    pub(crate) on_hang: Option<OnHang>,

    /// Record the calls of MPI, for `dbgr` to show and to compare
    ///
    /// Works with any MPI library that is a shared one, without compiling anything again. A call takes about 10 ns longer. See
    /// `rally help debugging`.
    #[arg(long, hide_short_help = true, help_heading = "Life of the job")]
    pub(crate) mpi_recorder: bool,
}

impl WatchingArgs {
    /// Returns whether calls of MPI are recorded.
    pub(crate) const fn recorder(&self) -> Recorder {
        if self.mpi_recorder {
            Recorder::On
        } else {
            Recorder::Off
        }
    }
}
