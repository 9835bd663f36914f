//! The private environment of one test.

use std::{
    fs,
    os::unix::fs::PermissionsExt,
    path::{Path, PathBuf},
    process::{Command, Stdio},
    sync::{
        OnceLock,
        atomic::{AtomicU32, Ordering},
    },
};

use nix::{
    sys::signal::{self, Signal},
    unistd::Pid,
};

use mischief::{Proc, marked_procs};

use super::{CLEAN_WITHIN, Finished, Running, eventually, mischief, rally};

static NEXT: AtomicU32 = AtomicU32::new(0);

/// Private directories, and a marker in the environment of every process started here.
///
/// On drop it fails the test if a marked process is alive or a file is left. Either way, the leftovers are removed.
#[derive(Debug)]
pub(crate) struct Sandbox {
    directory: tempfile::TempDir,
    marker: String,
    /// The words before each command: a program that runs it elsewhere.
    through: Vec<String>,
}

/// Returns a command that ignores no signal, even if the caller of the tests ignores some, as `nohup` and many other
/// launchers of programs do.
fn with_default_signals(program: &Path) -> Command {
    static IGNORED: OnceLock<bool> = OnceLock::new();
    let any = *IGNORED.get_or_init(|| {
        // Every Rust program ignores SIGPIPE, but resets it for its children.
        (1..=31)
            .map(base::Signal)
            .any(|signal| signal != base::Signal::PIPE && os::is_ignored(signal))
    });
    if !any {
        return Command::new(program);
    }
    // `env` execs the program, so that both have the same pid.
    let mut command = Command::new("/usr/bin/env");
    command.arg("--default-signal").arg(program);
    command
}

impl Sandbox {
    const MARKER: &str = "RALLY_STRESS";

    pub(crate) fn new() -> Self {
        let directory = tempfile::Builder::new()
            .prefix("rally-e2e-")
            .tempdir()
            .unwrap();
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let name = directory
            .path()
            .file_name()
            .unwrap()
            .to_string_lossy()
            .into_owned();
        let sandbox = Self {
            marker: format!("{}={name}-{number}", Self::MARKER),
            directory,
            through: Vec::new(),
        };
        for private in ["run", "tmp", "work"] {
            let path = sandbox.directory.path().join(private);
            fs::create_dir(&path).unwrap();
            fs::set_permissions(&path, fs::Permissions::from_mode(0o700)).unwrap();
        }
        sandbox
    }

    /// Returns the working directory of runs. Files in it are no leftovers.
    pub(crate) fn work(&self) -> PathBuf {
        self.directory.path().join("work")
    }

    /// Returns the path of a file in the working directory.
    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.work().join(name)
    }

    /// Writes a file in the working directory, and returns its path as text.
    pub(crate) fn file(&self, name: &str, contents: impl AsRef<[u8]>) -> String {
        let path = self.path(name);
        fs::write(&path, contents).unwrap();
        path.to_str().unwrap().to_owned()
    }

    pub(crate) fn read(&self, name: &str) -> String {
        let path = self.path(name);
        fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
    }

    /// Returns a command for any program, with only this sandbox's environment.
    pub(crate) fn command(&self, program: impl AsRef<Path>) -> Command {
        let (name, value) = self.marker.split_once('=').unwrap();
        let mut command = match self.through.split_first() {
            None => with_default_signals(program.as_ref()),
            Some((first, rest)) => {
                let mut command = with_default_signals(first.as_ref());
                command.args(rest).arg(program.as_ref());
                command
            }
        };
        command
            .env_clear()
            .env("PATH", "/usr/local/bin:/usr/bin:/bin:/usr/sbin:/sbin")
            .env("LC_ALL", "C")
            .env("HOME", self.work())
            .env("TMPDIR", self.directory.path().join("tmp"))
            .env("XDG_RUNTIME_DIR", self.directory.path().join("run"))
            .env("RALLY", rally())
            .env("MISCHIEF", mischief())
            .env(name, value)
            .current_dir(self.work())
            .stdin(Stdio::null());
        command
    }

    /// Runs all further commands through this program.
    pub(crate) fn run_through(&mut self, words: &[&str]) {
        self.through = words.iter().map(|&word| word.to_owned()).collect();
    }

    /// Returns a command for `rally` with these arguments. A word `mischief` is replaced by the path of the helper.
    pub(crate) fn rally(&self, args: &[&str]) -> Command {
        self.face(&rally(), args)
    }

    /// Like [`Sandbox::rally`], under another program name.
    pub(crate) fn face(&self, program: &Path, args: &[&str]) -> Command {
        let mut command = self.command(program);
        for arg in args {
            if *arg == "mischief" {
                command.arg(mischief());
            } else {
                command.arg(arg);
            }
        }
        command
    }

    /// Returns a command for a shell script, which finds the binaries in `$RALLY` and `$MISCHIEF`.
    pub(crate) fn shell(&self, script: &str) -> Command {
        let mut command = self.command("/bin/sh");
        command.args(["-c", script]);
        command
    }

    pub(crate) fn start(&self, command: &mut Command) -> Running {
        Running::start(command, &self.marker)
    }

    /// Runs a command until it exits.
    pub(crate) fn run(&self, command: &mut Command) -> Finished {
        self.start(command).end()
    }

    /// Runs `rally` until it exits, with an empty stdin.
    pub(crate) fn run_rally(&self, args: &[&str]) -> Finished {
        self.run(&mut self.rally(args))
    }

    pub(crate) fn marker(&self) -> &str {
        &self.marker
    }

    /// Returns every living process that was started in this sandbox.
    pub(crate) fn alive(&self) -> Vec<Proc> {
        marked_procs(&self.marker)
    }

    /// Returns living processes whose arguments contain `text`, except those of the launcher, by pid.
    pub(crate) fn find(&self, text: &str) -> Vec<Proc> {
        let mut found = self.alive();
        found.retain(|process| process.args.contains(text) && !process.runs(&rally()));
        found.sort_by_key(|process| process.pid);
        found
    }

    /// Fails unless all our processes and files are gone within the promised time.
    pub(crate) fn expect_clean(&self) {
        self.expect_no_process();
        let left = eventually(CLEAN_WITHIN, || self.files().is_empty().then_some(()));
        assert!(left.is_some(), "files left behind: {:?}", self.files());
    }

    pub(crate) fn expect_no_process(&self) {
        if eventually(CLEAN_WITHIN, || self.alive().is_empty().then_some(())).is_none() {
            let left = self.alive();
            let list = left
                .iter()
                .map(|process| format!("  {process}\n"))
                .collect::<String>();
            kill_all(&self.marker);
            panic!("processes left behind:\n{list}");
        }
    }

    /// Returns all files in the directories for temporary and runtime files.
    fn files(&self) -> Vec<PathBuf> {
        let mut found = Vec::new();
        let mut open = vec![
            self.directory.path().join("run"),
            self.directory.path().join("tmp"),
        ];
        while let Some(directory) = open.pop() {
            for entry in fs::read_dir(directory).into_iter().flatten().flatten() {
                found.push(entry.path());
                if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
                    open.push(entry.path());
                }
            }
        }
        found
    }
}

impl Drop for Sandbox {
    fn drop(&mut self) {
        if std::thread::panicking() {
            kill_all(&self.marker);
        } else {
            self.expect_clean();
        }
    }
}

/// Kills all processes with the marker, so that a failed test does not disturb the next.
pub(super) fn kill_all(marker: &str) {
    let _ = eventually(CLEAN_WITHIN, || {
        let found = marked_procs(marker);
        for process in &found {
            let _ = signal::kill(Pid::from_raw(process.pid), Signal::SIGKILL);
        }
        found.is_empty().then_some(())
    });
}
