//! Asks the user on the terminal what start commands ask, one prompt at a time.
//!
//! | state | prompt | line | end of file, terminal gone | withdrawn, refused | Ctrl-Z | foreground again |
//! |---|---|---|---|---|---|---|
//! | `Idle` | in the foreground: prints it, changes the mode → `Asking`; otherwise → `Background` | – | – | – | – | – |
//! | `Asking` | – | answer → `Idle` | no answer → `Idle` | → `Idle` | → `Background` | – |
//! | `Background` | – | – | – | → `Idle` | – | prints it, changes the mode → `Asking` |
//!
//! The mode of the terminal is restored whenever `Asking` is left. A shell that moves us to the foreground sends no signal, so
//! `Background` checks periodically. After a signal that ends the start, no prompt is answered.

use std::{fmt::Write as _, os::fd::AsFd as _, time::Duration};

use base::Time;
use dvm::{
    prompts::{self, Prompt, PromptId, PromptKind, Secret},
    proto::FromFront,
};
use message::visible;
use os::{Clock, Echo, Interest, LineMode, Loop, ReadOutcome, Standing, Token, WriteOutcome};
use zeroize::Zeroize as _;

/// How often to check whether we are back in the foreground of the terminal.
const BACKGROUND_DELAY: Duration = Duration::from_millis(250);
/// Bytes that a terminal passes on at a time: a line, at most.
const READ_MAX: usize = 4096;

/// A prompt that the user sees.
#[derive(Debug)]
struct Open {
    prompt: Prompt,
    token: Token,
    /// What the user has typed without ending the line.
    line: Vec<u8>,
    /// What the terminal has not taken.
    unprinted: Vec<u8>,
    /// Restored with this value.
    _mode: LineMode,
}

#[derive(Debug)]
enum State {
    Idle,
    Asking(Open),
    /// We are not in the foreground. `until` is the time of the next check.
    Background {
        prompt: Prompt,
        until: Time,
    },
}

/// Whether prompts are answered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Policy {
    Ask,
    /// The user has ended the start.
    Refuse,
}

/// The prompts of start commands.
#[derive(Debug)]
pub(super) struct Prompter {
    state: State,
    policy: Policy,
}

impl Drop for Open {
    fn drop(&mut self) {
        self.line.zeroize();
    }
}

impl Prompter {
    pub(super) const fn new() -> Self {
        Self {
            state: State::Idle,
            policy: Policy::Ask,
        }
    }

    pub(super) fn is(&self, token: Token) -> bool {
        matches!(&self.state, State::Asking(open) if open.token == token)
    }

    /// Returns true if what the user types is an answer.
    pub(super) const fn is_asking(&self) -> bool {
        matches!(self.state, State::Asking(_))
    }

    /// Returns when to call [`Self::on_tick`].
    pub(super) const fn deadline(&self) -> Option<Time> {
        match &self.state {
            State::Background { until, .. } => Some(*until),
            State::Idle | State::Asking(_) => None,
        }
    }

    /// Shows a prompt. Returns the answer if there is none to wait for.
    pub(super) fn show(&mut self, events: &mut Loop, prompt: Prompt) -> Option<FromFront> {
        let id = prompt.id;
        if self.policy == Policy::Refuse {
            return Some(FromFront::Answer(id, None));
        }
        let terminal = os::controlling_terminal();
        let Ok(terminal) = terminal else {
            return Some(FromFront::Answer(id, None));
        };
        match os::standing(terminal.as_fd()) {
            Standing::Foreground => {}
            Standing::Background => {
                let until = Clock::now() + BACKGROUND_DELAY;
                self.state = State::Background { prompt, until };
                return None;
            }
            // It has hung up.
            Standing::Elsewhere => return Some(FromFront::Answer(id, None)),
        }
        let echo = match prompt.asked.kind {
            PromptKind::Hidden => Echo::Hidden,
            PromptKind::Shown | PromptKind::Confirm | PromptKind::Notice => Echo::Shown,
        };
        let unprinted = words(&prompt).into_bytes();
        if prompt.asked.kind == PromptKind::Notice {
            // If the terminal takes no more now, the notice is not worth a wait.
            let _ = os::write(terminal.as_fd(), &unprinted);
            return Some(FromFront::Answer(id, None));
        }
        let opened = terminal.try_clone().ok().and_then(|copy| {
            let mode = LineMode::enter(copy, echo).ok()?;
            let token = events.add(terminal, Interest::ReadWrite).ok()?;
            Some((mode, token))
        });
        let Some((mode, token)) = opened else {
            return Some(FromFront::Answer(id, None));
        };
        self.state = State::Asking(Open {
            prompt,
            token,
            line: Vec::new(),
            unprinted,
            _mode: mode,
        });
        self.print(events);
        None
    }

    /// Handles an event of the terminal. Returns the answer once the user has given it.
    pub(super) fn on_ready(&mut self, events: &mut Loop) -> Option<FromFront> {
        self.print(events);
        let State::Asking(open) = &mut self.state else {
            return None;
        };
        let fd = events.fd(open.token)?;
        if os::standing(fd) == Standing::Background {
            self.suspend(events);
            return None;
        }
        let mut buffer = [0; READ_MAX];
        let read = os::read(fd, &mut buffer);
        let (line, is_over) = match read {
            Ok(ReadOutcome::WouldBlock) => return None,
            Ok(ReadOutcome::Bytes(count)) => {
                let bytes = &buffer[..count];
                let end = bytes.iter().position(|byte| *byte == b'\n');
                open.line.extend(&bytes[..end.unwrap_or(count)]);
                let is_long = open.line.len() > prompts::ANSWER_MAX;
                (
                    end.is_some().then(|| std::mem::take(&mut open.line)),
                    is_long,
                )
            }
            Ok(ReadOutcome::Closed) | Err(_) => (None, true),
        };
        buffer.zeroize();
        if line.is_none() && !is_over {
            return None;
        }
        let (id, kind) = (open.prompt.id, open.prompt.asked.kind);
        let is_echoed = line.is_some() && kind != PromptKind::Hidden;
        self.close(events, if is_echoed { "" } else { "\n" });
        Some(FromFront::Answer(
            id,
            line.and_then(|line| answer(kind, line)),
        ))
    }

    pub(super) fn on_tick(&mut self, events: &mut Loop, now: Time) -> Option<FromFront> {
        self.deadline().filter(|until| *until <= now)?;
        self.try_again(events)
    }

    /// Shows the prompt that waits for the foreground, if we are there.
    pub(super) fn try_again(&mut self, events: &mut Loop) -> Option<FromFront> {
        let State::Background { .. } = self.state else {
            return None;
        };
        let State::Background { prompt, .. } = std::mem::replace(&mut self.state, State::Idle)
        else {
            return None;
        };
        self.show(events, prompt)
    }

    /// Restores the mode of the terminal before we are stopped.
    pub(super) fn suspend(&mut self, events: &mut Loop) {
        if let State::Asking(open) = &self.state {
            let prompt = open.prompt.clone();
            self.close(events, "\n");
            let until = Clock::now();
            self.state = State::Background { prompt, until };
        }
    }

    /// Withdraws a prompt: nobody waits for the answer any more.
    pub(super) fn withdraw(&mut self, events: &mut Loop, id: PromptId) {
        if self.id() == Some(id) {
            self.close(events, "\n");
        }
    }

    /// Answers no prompt any more. Returns what to say about the one that is open.
    pub(super) fn refuse(&mut self, events: &mut Loop) -> Option<FromFront> {
        self.policy = Policy::Refuse;
        let id = self.id()?;
        self.close(events, "\n");
        Some(FromFront::Answer(id, None))
    }

    const fn id(&self) -> Option<PromptId> {
        match &self.state {
            State::Idle => None,
            State::Asking(Open { prompt, .. }) | State::Background { prompt, .. } => {
                Some(prompt.id)
            }
        }
    }

    /// Prints what the terminal has not taken so far.
    fn print(&mut self, events: &mut Loop) {
        let State::Asking(open) = &mut self.state else {
            return;
        };
        if let Some(fd) = events.fd(open.token)
            && !open.unprinted.is_empty()
        {
            match os::write(fd, &open.unprinted) {
                Ok(WriteOutcome::Bytes(count)) => drop(open.unprinted.drain(..count)),
                Ok(WriteOutcome::WouldBlock) => return,
                // The read reports the end.
                Ok(WriteOutcome::Closed) | Err(_) => open.unprinted.clear(),
            }
        }
        if open.unprinted.is_empty() {
            let _ = events.set_interest(open.token, Interest::Read);
        }
    }

    /// Prints the end of the line, and restores the terminal.
    fn close(&mut self, events: &mut Loop, end: &str) {
        if let State::Asking(open) = std::mem::replace(&mut self.state, State::Idle)
            && let Some(terminal) = events.remove(open.token)
            && !end.is_empty()
        {
            let _ = os::write(terminal.as_fd(), end.as_bytes());
        }
    }
}

/// Returns what the user sees: the words of the command, with the name of the node if they do not contain it.
fn words(prompt: &Prompt) -> String {
    let asked = &prompt.asked;
    let text = visible::lines(&asked.text);
    let mut words = String::new();
    if !text.contains(&prompt.host) {
        let _ = write!(words, "{}: ", visible::line(&prompt.host));
    }
    words += &text;
    match asked.kind {
        PromptKind::Hidden | PromptKind::Shown => {}
        PromptKind::Confirm => words += " (yes/no) ",
        PromptKind::Notice => words += "\n",
    }
    words
}

/// Returns the answer of a line.
fn answer(kind: PromptKind, mut line: Vec<u8>) -> Option<Secret> {
    if kind == PromptKind::Confirm {
        let word = line.trim_ascii().to_ascii_lowercase();
        let is_yes = word == b"yes" || word == b"y";
        line.zeroize();
        line = is_yes.then(|| b"yes".to_vec())?;
    }
    Secret::new(line)
}

#[cfg(test)]
mod tests {
    use dvm::prompts::Asked;

    use super::*;

    fn prompt(text: &str, hint: Option<&str>) -> Prompt {
        Prompt {
            id: PromptId(1),
            host: "n1".to_owned(),
            asked: Asked::new(text.to_owned(), hint),
        }
    }

    #[test]
    fn every_prompt_names_its_node() {
        for (text, hint, expected) in [
            ("me@n1's password: ", None, "me@n1's password: "),
            (
                "Enter passphrase for key 'k': ",
                None,
                "n1: Enter passphrase for key 'k': ",
            ),
            ("Touch it", Some("none"), "n1: Touch it\n"),
            ("Allow n1?", Some("confirm"), "Allow n1? (yes/no) "),
            ("n1\x1b[2Jevil: ", None, "n1\\u{1b}[2Jevil: "),
        ] {
            assert_eq!(words(&prompt(text, hint)), expected);
        }
    }

    #[test]
    fn a_line_is_an_answer_and_only_yes_confirms() {
        let said = |kind, line: &str| {
            let answer = answer(kind, line.as_bytes().to_vec());
            answer.map(|answer| String::from_utf8(answer.bytes().to_vec()).unwrap())
        };
        use PromptKind::{Confirm, Hidden, Shown};
        assert_eq!(said(Hidden, " a b "), Some(" a b ".to_owned()));
        assert_eq!(said(Shown, ""), Some(String::new()));
        assert_eq!(said(Confirm, "Yes "), Some("yes".to_owned()));
        assert_eq!(said(Confirm, ""), None);
        assert_eq!(said(Confirm, "yesterday"), None);
        assert_eq!(said(Hidden, &"x".repeat(prompts::ANSWER_MAX + 1)), None);
    }

    /// Without a terminal, such as here if no terminal controls the tests, nothing is asked after the user has ended the start.
    #[test]
    fn after_the_end_of_the_start_no_prompt_is_answered() {
        let mut events = Loop::new(&[]).unwrap();
        let mut prompter = Prompter::new();
        assert_eq!(prompter.refuse(&mut events), None);
        let answer = prompter.show(&mut events, prompt("Password: ", None));
        assert_eq!(answer, Some(FromFront::Answer(PromptId(1), None)));
    }
}
