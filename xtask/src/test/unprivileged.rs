//! Runs the end-to-end tests again, with the release build, as an unprivileged user.
//!
//! As root, the tests miss errors, because root may exceed limits, read all files and signal all processes. The unprivileged
//! user cannot write to the checkout and may be unable to read it, so everything is copied.

use std::{
    fs,
    os::unix::fs::{PermissionsExt, chown},
    path::Path,
    process::Command,
    time::Duration,
};

use anyhow::{Context as _, Result, bail};
use nix::unistd::geteuid;

use super::e2e_binary;
use crate::release::released;
use crate::{
    env::{Wheel, root, target, which},
    steps::{self, Steps},
};

/// Uid and gid of Debian's `nobody` and `nogroup`.
const NOBODY: u32 = 65_534;

const LIMIT: Duration = Duration::from_secs(15 * 60);

pub(super) fn step(steps: &mut Steps) {
    if geteuid().is_root() && which("setpriv").is_none() {
        steps.skip("release, unprivileged", "there is no `setpriv`");
        return;
    }
    steps.run("release, unprivileged", |tally| {
        let place = tempfile::Builder::new()
            .prefix("rally-unprivileged-")
            .tempdir()?;
        let mut command = prepare(place.path())?;
        steps::execute_tests(&mut command, LIMIT, tally)
    });
}

/// Copies everything that the tests use to `place`, and returns the command that runs the tests.
fn prepare(place: &Path) -> Result<Command> {
    let temporary = place.join("tmp");
    fs::create_dir(&temporary)?;
    open(place)?;
    for name in ["rally", "dbgr", "mischief"] {
        fs::copy(released(name)?, place.join(name))?;
    }
    fs::copy(e2e_binary()?, place.join("e2e"))?;
    fs::create_dir(place.join("examples"))?;
    for name in ["tool_attach", "tool_daemon", "tool_direct", "tool_indirect"] {
        let built = target().join("debug/examples").join(name);
        fs::copy(built, place.join("examples").join(name))?;
    }
    open(&place.join("examples"))?;
    copy_tree(&root().join("testdata"), &place.join("testdata"))?;
    copy_tree(&Wheel::homes(), &place.join("venv"))?;
    for programs in ["pmix", "tool"] {
        copy_tree(
            &root().join("crates/cli/tests").join(programs),
            &place.join(programs),
        )?;
    }
    let mut command = if geteuid().is_root() {
        chown(&temporary, Some(NOBODY), Some(NOBODY))?;
        let mut command = Command::new("setpriv");
        command.args([
            "--reuid=65534",
            "--regid=65534",
            "--clear-groups",
            "--no-new-privs",
            "--inh-caps=-all",
        ]);
        command.arg(place.join("e2e"));
        command
    } else {
        Command::new(place.join("e2e"))
    };
    command
        .args(["--test-threads", "2"])
        // The verdict on a healthy program, or on one in an endless loop, does not depend on the user.
        .args(["--skip", "bed::"])
        .args(["--skip", "hangs::corpus::"])
        .args(["--skip", "hangs::zoo::endless_loop"])
        .args(["--skip", "hangs::zoo::more::"])
        .args(["--skip", "hangs::zoo::open_mpi_5::more::"])
        // Nor does what the recorder makes of the calls of a program, once it has a region.
        .args(["--skip", "hangs::recorder::between::"])
        .args(["--skip", "hangs::recorder::partitioned::"])
        .args(["--skip", "hangs::recorder::repeats::"])
        .args(["--skip", "hangs::recorder::threads::"])
        .args(["--skip", "hangs::recorder::tools::"])
        .current_dir(place)
        .env("HOME", &temporary)
        .env("TMPDIR", &temporary)
        .env("RALLY_BIN", place.join("rally"))
        .env("RALLY_EXAMPLES", place.join("examples"))
        .env("RALLY_PMIX_PROGRAMS", place.join("pmix"))
        .env("RALLY_SCRATCH", &temporary)
        .env("RALLY_TESTDATA", place.join("testdata"))
        .env("RALLY_VENV", place.join("venv"));
    Ok(command)
}

fn open(path: &Path) -> Result<()> {
    fs::set_permissions(path, fs::Permissions::from_mode(0o755))
        .with_context(|| path.display().to_string())
}

/// Copies a tree with `cp`, which keeps modes and links, then makes it readable for all users.
fn copy_tree(from: &Path, to: &Path) -> Result<()> {
    if !from.exists() {
        bail!("{} is missing", from.display());
    }
    steps::execute(Command::new("cp").arg("-a").arg(from).arg(to), LIMIT)?;
    steps::execute(Command::new("chmod").args(["-R", "a+rX"]).arg(to), LIMIT)
}
