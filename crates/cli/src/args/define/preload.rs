//! Options about files that are copied to the nodes.

use std::ffi::OsString;

use clap::{ArgAction, Args};

/// Options of an app about files that are copied.
#[derive(Clone, Debug, Args)]
pub(crate) struct AppPreloadArgs {
    /// Copy the program to each node, and run the copy
    ///
    /// The copies are in a directory of the job, and are removed when it ends.
    #[arg(long, hide_short_help = true, help_heading = "App")]
    pub(crate) preload_binary: bool,

    /// Copy these files to each node: a,b/c
    ///
    /// The directory of the copies is in RALLY_PRELOAD_DIR. A relative name keeps its place in it. The copies are removed when
    /// the job ends.
    #[arg(long, value_name = "FILES", action = ArgAction::Append, hide_short_help = true, help_heading = "App")]
    pub(crate) preload_files: Vec<OsString>,

    /// Run in the directory of the copies
    ///
    /// What procs write there is removed when the job ends.
    #[arg(long, hide_short_help = true, help_heading = "App")]
    pub(crate) preload_wdir: bool,
}

/// Options of a job about files that are copied.
#[derive(Clone, Debug, Args)]
pub(crate) struct JobPreloadArgs {
    /// Directory on the nodes for the copies
    ///
    /// The directory of the job is made in it. [default: the first of $TMPDIR, /tmp, /var/tmp, /dev/shm with enough room]
    #[arg(
        long,
        value_name = "DIR",
        hide_short_help = true,
        help_heading = "Nodes"
    )]
    pub(crate) preload_dir: Option<OsString>,
}
