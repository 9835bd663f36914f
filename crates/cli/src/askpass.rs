//! `rally` as the program that ssh runs to ask the user, for a start command of our controller.
//!
//! ssh passes its question as the only argument, and reads one line of standard output. Another exit code than 0 means that there
//! is no answer. The front asks: this process connects it to ssh, through the control socket.

use std::{
    env,
    ffi::OsString,
    io::{self, Write as _},
    path::{Path, PathBuf},
    time::Duration,
};

use dvm::prompts::{Asked, Secret};
use runtime::{
    ASKPASS,
    ask::{AskError, Inquirer},
};

use zeroize::Zeroize as _;

use crate::exit;

/// The variable by which ssh says what kind of question it is.
const HINT: &str = "SSH_ASKPASS_PROMPT";
/// The longest wait for the controller to accept the connection, and to take the question.
const PATIENCE: Duration = Duration::from_secs(10);

/// A question of ssh.
#[derive(Debug)]
pub(crate) struct Question {
    socket: PathBuf,
    asked: Asked,
}

/// Returns the question, if ssh runs us to ask it. ssh passes exactly one argument.
pub(crate) fn question(first: Option<&OsString>, further: Option<&OsString>) -> Option<Question> {
    let socket = PathBuf::from(env::var_os(ASKPASS)?);
    let (Some(text), None, true) = (first, further, socket.is_absolute()) else {
        return None;
    };
    let hint = env::var(HINT).ok();
    let asked = Asked::new(text.to_string_lossy().into_owned(), hint.as_deref());
    Some(Question { socket, asked })
}

/// Asks, prints the answer for ssh, and returns the exit code.
pub(crate) fn serve(question: Question) -> u8 {
    match ask(&question.socket, question.asked) {
        Ok(Some(answer)) => {
            let mut line = answer.bytes().to_vec();
            line.push(b'\n');
            let mut stdout = io::stdout().lock();
            let printed = stdout.write_all(&line).and_then(|()| stdout.flush());
            line.zeroize();
            match printed {
                Ok(()) => exit::SUCCESS,
                Err(_) => exit::INTERNAL,
            }
        }
        Ok(None) => exit::INTERNAL,
        // The front is gone, and with it the controller.
        Err(AskError::Closed) => exit::INTERNAL,
        Err(why) => {
            // These words are evidence if the node cannot be used.
            let _ = writeln!(io::stderr(), "rally: cannot ask the user: {why}");
            exit::INTERNAL
        }
    }
}

fn ask(socket: &Path, asked: Asked) -> Result<Option<Secret>, AskError> {
    Inquirer::connect(socket, PATIENCE)?.prompt(asked)
}
