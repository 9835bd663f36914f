//! `rally top`: a machine on the whole terminal. The state machine of the screen is in [`model`], and [`draw`] draws it; here are the terminal,
//! the machine, and the file whose end is shown.

mod dialog;
mod draw;
mod help;
mod keys;
mod layout;
mod lines;
mod meter;
mod model;
mod output;
mod reason;
mod tail;

use std::{
    any::Any,
    os::fd::AsFd as _,
    panic::{self, AssertUnwindSafe},
    path::PathBuf,
    sync::{Arc, Mutex, PoisonError},
};

use base::Time;
use dvm::machine::Ask;
use message::Message;
use os::{Clock, Token, Worker};
use runtime::FoundMachine;

use self::{
    draw::Colors,
    keys::Keyboard,
    model::{Effect, Input, Top},
    tail::{Piece, Since, Tail},
};
use crate::{
    args::{World, request::machine::Which},
    exit::{self, ExitCode},
    machine::{self, Asker, Connection, Failure, no_screen},
    say,
    screen::{Happening, Screen},
};

message::kinds! {
    /// All kinds of messages about the screen.
    pub(crate) const KINDS;

    NO_TERMINAL: Error "top/no-terminal"
"`rally top` needs a terminal for input and output, on which the cursor can be moved (TERM is not `dumb`). Without one, `rally queue --watch`, `rally nodes --watch` and \
`rally status --watch` print what changes. The exit code is 123."
}

/// Shows a machine until the user quits, and returns the exit code.
pub(crate) fn run(which: &Which, world: &World) -> u8 {
    let shown = machine::select(world, which.machine.as_deref()).and_then(|found| {
        guarded(|| show(&found, world))
            .or_else(|failure| machine::ended(&found, failure, which.format))
    });
    match shown {
        Ok(code) => code,
        Err((message, code)) => {
            say(&message, which.format);
            code.code()
        }
    }
}

fn no_terminal(why: &str) -> Failure {
    let message = Message::new(&NO_TERMINAL, format!("`rally top` needs a terminal: {why}"))
        .with_help("`rally queue --watch` and `rally nodes --watch` need none");
    (message, ExitCode::Resources)
}

/// Runs something that has the terminal. What a panic says is printed when the terminal was given back.
fn guarded<T>(run: impl FnOnce() -> T) -> T {
    let said = Arc::new(Mutex::new(None));
    let theirs = Arc::clone(&said);
    let before = panic::take_hook();
    panic::set_hook(Box::new(move |info| {
        *theirs.lock().unwrap_or_else(PoisonError::into_inner) = Some(info.to_string());
    }));
    let result = panic::catch_unwind(AssertUnwindSafe(run));
    panic::set_hook(before);
    result.unwrap_or_else(|payload: Box<dyn Any + Send>| {
        let said = said.lock().unwrap_or_else(PoisonError::into_inner).take();
        crate::complain(&said.unwrap_or_default());
        panic::resume_unwind(payload)
    })
}

fn show(found: &FoundMachine, world: &World) -> Result<u8, Failure> {
    let [input, output, _] = os::standard_streams().map_err(|error| no_screen(&error))?;
    let is_terminal = |fd: &std::os::fd::OwnedFd| os::is_terminal(fd.as_fd());
    let input = input.filter(is_terminal);
    let Some(output) = output.filter(is_terminal) else {
        return Err(no_terminal("its output goes elsewhere"));
    };
    if input.is_none() {
        return Err(no_terminal("its input comes from elsewhere"));
    }
    if world.variable("TERM").is_none_or(|term| term == "dumb") {
        return Err(no_terminal("the cursor of this one cannot be moved (TERM)"));
    }
    let colors = match world.variable("NO_COLOR") {
        Some(value) if !value.is_empty() => Colors::None,
        Some(_) | None => Colors::Used,
    };
    let (asker, answers) = Asker::start(Connection::to(found)?)?;
    let (measurer, measured) = Asker::start(Connection::to(found)?)?;
    let mut tail = Tail::default();
    let look = move |(path, since): (PathBuf, Since)| tail.look(path, since);
    let (reader, pieces) = Worker::start("reader", look).map_err(|error| no_screen(&error))?;
    let mut screen = Screen::enter(input, output).map_err(|error| no_screen(&error))?;
    let answers = screen.add(answers).map_err(|error| no_screen(&error))?;
    let measured = screen.add(measured).map_err(|error| no_screen(&error))?;
    let pieces = screen.add(pieces).map_err(|error| no_screen(&error))?;
    let top = Top::new(Clock::now(), &found.name, screen.size());
    let program = Program {
        screen,
        asker,
        answers,
        measurer,
        measured,
        reader,
        pieces,
        keyboard: Keyboard::default(),
        top,
        colors,
    };
    program.run()
}

/// What the state machine of the screen is connected to.
#[derive(Debug)]
struct Program {
    screen: Screen,
    asker: Asker,
    answers: Token,
    /// Asks what jobs use.
    measurer: Asker,
    measured: Token,
    reader: Worker<(PathBuf, Since), Piece>,
    pieces: Token,
    keyboard: Keyboard,
    top: Top,
    colors: Colors,
}

impl Program {
    fn run(mut self) -> Result<u8, Failure> {
        loop {
            self.top.handle(Clock::now(), Input::Tick(machine::now()));
            if self.carry_out() {
                return Ok(exit::SUCCESS);
            }
            let now = Clock::now();
            if self.top.take_stale() {
                let (top, colors) = (&self.top, self.colors);
                self.screen
                    .draw(|frame| draw::draw(frame, top, now, colors));
            }
            let deadline = self.top.deadline(now);
            let deadline = self
                .keyboard
                .deadline()
                .map_or(deadline, |key| key.min(deadline));
            let happened = self.screen.wait(Some(deadline));
            for happening in happened.map_err(|error| no_screen(&error))? {
                if let Some(code) = self.on(Clock::now(), happening)? {
                    return Ok(code);
                }
            }
            for key in self.keyboard.late(Clock::now()) {
                self.top.handle(Clock::now(), Input::Key(key));
            }
        }
    }

    /// Passes on what has happened. Returns an exit code if the program is over.
    fn on(&mut self, now: Time, happening: Happening) -> Result<Option<u8>, Failure> {
        match happening {
            Happening::End(code) => return Ok(Some(code)),
            Happening::Typed(bytes) => {
                for key in self.keyboard.typed(now, &bytes) {
                    self.top.handle(now, Input::Key(key));
                }
            }
            Happening::Redraw => self.top.handle(now, Input::Resized(self.screen.size())),
            Happening::Readable(token) if token == self.answers => {
                for said in self.asker.answers() {
                    self.top.handle(now, Input::Said(said?));
                }
                self.top.handle(now, Input::Load(os::load_average()));
            }
            Happening::Readable(token) if token == self.measured => {
                // A machine that is gone is noticed by the other connection.
                for said in self.measurer.answers().into_iter().flatten() {
                    self.top.handle(now, Input::Measured(said));
                }
            }
            Happening::Readable(token) if token == self.pieces => {
                for piece in self.reader.answers() {
                    self.top.handle(now, Input::Read(piece));
                }
            }
            Happening::Readable(_) | Happening::Deadline => {}
        }
        Ok(None)
    }

    /// Does what the screen wants. Returns true if it wants to end.
    fn carry_out(&mut self) -> bool {
        while let Some(effect) = self.top.poll() {
            match effect {
                Effect::Ask(ask) => self.asker.ask(ask),
                Effect::Measure(job) => self.measurer.ask(Ask::Usage(job, None)),
                Effect::Read(path, since) => self.reader.order((path, since)),
                Effect::Redraw => self.screen.redraw(),
                Effect::Suspend => {
                    self.screen.suspend();
                    let size = self.screen.size();
                    self.top.handle(Clock::now(), Input::Resized(size));
                }
                Effect::Quit => return true,
            }
        }
        false
    }
}
