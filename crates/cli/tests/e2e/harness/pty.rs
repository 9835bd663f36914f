//! A pseudoterminal for tests.

use std::{
    fs::File,
    io::Write,
    os::fd::OwnedFd,
    process::{Command, Stdio},
};

use nix::pty::{Winsize, openpty};

use super::{Running, Sandbox, running::Capture};

/// The master side of a pseudoterminal, with keyboard and screen.
#[derive(Debug)]
pub(crate) struct Terminal {
    keyboard: File,
}

impl Terminal {
    pub(crate) const ROWS: u16 = 33;
    pub(crate) const COLUMNS: u16 = 101;

    /// Runs a shell script with job control, in a new session on a new terminal. The script finds `$RALLY` and `$MISCHIEF`.
    /// All output appears as the run's stdout, with carriage returns.
    pub(crate) fn run(sandbox: &Sandbox, script: &str) -> (Self, Running) {
        Self::run_sized(sandbox, script, Self::ROWS, Self::COLUMNS)
    }

    /// Like [`Self::run`], in a window of this size.
    pub(crate) fn run_sized(
        sandbox: &Sandbox,
        script: &str,
        rows: u16,
        columns: u16,
    ) -> (Self, Running) {
        let size = Winsize {
            ws_row: rows,
            ws_col: columns,
            ws_xpixel: 0,
            ws_ypixel: 0,
        };
        let pair = openpty(&size, None).unwrap();
        let user = |fd: &OwnedFd| Stdio::from(fd.try_clone().unwrap());
        // The kernel gives a controlling terminal only to the leader of a new session, which `setsid --ctty` is.
        let mut command: Command = sandbox.command("setsid");
        command
            .args(["--ctty", "/bin/sh", "-c", script])
            .env("TERM", "dumb")
            .stdin(user(&pair.slave))
            .stdout(user(&pair.slave))
            .stderr(user(&pair.slave));
        drop(pair.slave);
        let screen = Capture::default();
        let running = Running::spawn(
            &mut command,
            sandbox.marker(),
            [screen.clone(), Capture::default()],
        );
        // The command holds the slave side. It must be closed for the program's exit to be visible.
        drop(command);
        let keyboard = File::from(pair.master);
        screen.read(keyboard.try_clone().unwrap());
        (Self { keyboard }, running)
    }

    /// Resizes the window.
    pub(crate) fn resize(&self, rows: u16, columns: u16) {
        let text = format!("rows {rows} columns {columns}");
        let mut command = Command::new("stty");
        command
            .args(text.split(' '))
            .stdin(self.keyboard.try_clone().unwrap());
        assert!(command.status().unwrap().success());
    }

    /// Types text, including control characters.
    pub(crate) fn type_in(&mut self, text: &str) {
        self.keyboard.write_all(text.as_bytes()).unwrap();
    }
}
