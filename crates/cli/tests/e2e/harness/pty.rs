//! A terminal of our own.

use std::{
    fs::File,
    io::Write,
    os::fd::OwnedFd,
    process::{Command, Stdio},
};

use nix::pty::{Winsize, openpty};

use super::{Running, Sandbox, running::Capture};

/// The side of a pseudo terminal where the keyboard and the screen are.
#[derive(Debug)]
pub(crate) struct Terminal {
    keyboard: File,
}

impl Terminal {
    pub(crate) const ROWS: u16 = 33;
    pub(crate) const COLUMNS: u16 = 101;

    /// Runs a shell script with job control in a session of its own on a new terminal. The script finds `$RALLY` and
    /// `$MISCHIEF`; all that is written appears as the run's stdout, with carriage returns.
    pub(crate) fn run(sandbox: &Sandbox, script: &str) -> (Self, Running) {
        let size = Winsize {
            ws_row: Self::ROWS,
            ws_col: Self::COLUMNS,
            ws_xpixel: 0,
            ws_ypixel: 0,
        };
        let pair = openpty(&size, None).unwrap();
        let user = |fd: &OwnedFd| Stdio::from(fd.try_clone().unwrap());
        // The kernel gives a controlling terminal only to the leader of a new session: `setsid --ctty` is one.
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
        // The command holds the terminal's other side; its end must be seen when the program ends.
        drop(command);
        let keyboard = File::from(pair.master);
        screen.read(keyboard.try_clone().unwrap());
        (Self { keyboard }, running)
    }

    /// The window gets another size.
    pub(crate) fn resize(&self, rows: u16, columns: u16) {
        let text = format!("rows {rows} columns {columns}");
        let mut command = Command::new("stty");
        command
            .args(text.split(' '))
            .stdin(self.keyboard.try_clone().unwrap());
        assert!(command.status().unwrap().success());
    }

    /// Types, control characters included.
    pub(crate) fn type_in(&mut self, text: &str) {
        self.keyboard.write_all(text.as_bytes()).unwrap();
    }
}
