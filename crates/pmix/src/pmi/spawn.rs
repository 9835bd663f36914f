//! The spawn request of a rank.

use crate::pmi::{
    Bound, Dialect, Error, Malformed,
    wire::{Form, Message},
};

/// Programs to be started as one job.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Spawn {
    pub apps: Vec<SpawnApp>,
    /// Initial entries of the new job's key-value space: MPICH puts the address of the spawner there.
    pub preput: Vec<(String, String)>,
}

/// One program of a spawn.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SpawnApp {
    pub program: String,
    /// The arguments after the program's name.
    pub args: Vec<String>,
    pub count: u32,
    /// Info keys and values from the caller of `MPI_Comm_spawn`, such as `wdir`.
    pub infos: Vec<(String, String)>,
}

/// Contents of one spawn command: one program in PMI-1, all programs in PMI-2.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Part {
    /// Number of programs in the whole spawn.
    pub total: u32,
    /// Number of this part, counted from 1. In PMI-2 it equals `total`.
    pub number: u32,
    pub spawn: Spawn,
}

impl Spawn {
    /// Splits the spawn into the commands of a dialect.
    #[must_use]
    pub fn parts(self, dialect: Dialect) -> Vec<Part> {
        let total = u32::try_from(self.apps.len()).unwrap_or(u32::MAX);
        match dialect {
            Dialect::Two => vec![Part {
                total,
                number: total,
                spawn: self,
            }],
            Dialect::One => {
                let mut preput = self.preput;
                (1..)
                    .zip(self.apps)
                    .map(|(number, app)| Part {
                        total,
                        number,
                        spawn: Self {
                            apps: vec![app],
                            preput: std::mem::take(&mut preput),
                        },
                    })
                    .collect()
            }
        }
    }
}

impl Part {
    pub(super) fn decode(message: &Message) -> Result<Self, Error> {
        match message.form() {
            Form::Counted => decode_counted(message),
            Form::Line | Form::Multi => decode_lines(message),
        }
    }

    pub(super) fn write(&self, message: Message) -> Message {
        match message.form() {
            Form::Counted => self.write_counted(message),
            Form::Line | Form::Multi => self.write_lines(message),
        }
    }

    fn write_lines(&self, message: Message) -> Message {
        let none = SpawnApp::default();
        let app = self.spawn.apps.first().unwrap_or(&none);
        let message = message
            .with("nprocs", app.count)
            .with("execname", &app.program)
            .with("totspawns", self.total)
            .with("spawnssofar", self.number)
            .with("argcnt", app.args.len());
        let message = (1..)
            .zip(&app.args)
            .fold(message, |message, (number, arg)| {
                message.with(&format!("arg{number}"), arg)
            });
        // The spawner sends facts about the whole spawn only once, in the first part.
        let message = if self.number == 1 || !self.spawn.preput.is_empty() {
            let message = message.with("preput_num", self.spawn.preput.len());
            pairs(message, "preput_key_", "preput_val_", &self.spawn.preput)
        } else {
            message
        };
        let message = message.with("info_num", app.infos.len());
        pairs(message, "info_key_", "info_val_", &app.infos)
    }

    fn write_counted(&self, message: Message) -> Message {
        let message = message
            .with("ncmds", self.spawn.apps.len())
            .with("preputcount", self.spawn.preput.len());
        let message = pairs(message, "ppkey", "ppval", &self.spawn.preput);
        self.spawn.apps.iter().fold(message, |message, app| {
            let message = message
                .with("subcmd", &app.program)
                .with("maxprocs", app.count)
                .with("argc", app.args.len());
            let message = (0..)
                .zip(&app.args)
                .fold(message, |message, (number, arg): (u32, _)| {
                    message.with(&format!("argv{number}"), arg)
                });
            let message = message.with("infokeycount", app.infos.len());
            pairs(message, "infokey", "infoval", &app.infos)
        })
    }
}

fn pairs(message: Message, key: &str, value: &str, pairs: &[(String, String)]) -> Message {
    (0..)
        .zip(pairs)
        .fold(message, |message, (number, pair): (u32, _)| {
            message
                .with(&format!("{key}{number}"), &pair.0)
                .with(&format!("{value}{number}"), &pair.1)
        })
}

/// Items whose number a command announces. They arrive in the order of their numbers.
#[derive(Default)]
struct Counted {
    said: usize,
    keys: Vec<String>,
    values: Vec<String>,
}

impl Counted {
    fn say(&mut self, field: &'static str, text: &str) -> Result<(), Error> {
        self.said = number(field, text)?;
        Ok(())
    }

    fn list(self, field: &'static str) -> Result<Vec<String>, Error> {
        if self.values.len() == self.said {
            Ok(self.values)
        } else {
            Err(Error::Malformed(Malformed::WrongCount(field)))
        }
    }

    fn pairs(self, field: &'static str) -> Result<Vec<(String, String)>, Error> {
        if self.values.len() == self.said && self.keys.len() == self.said {
            Ok(self.keys.into_iter().zip(self.values).collect())
        } else {
            Err(Error::Malformed(Malformed::WrongCount(field)))
        }
    }
}

/// A program whose fields are still being read.
#[derive(Default)]
struct Draft {
    program: Option<String>,
    count: Option<u32>,
    args: Counted,
    infos: Counted,
}

impl Draft {
    fn finish(self, [program, count, args, infos]: [&'static str; 4]) -> Result<SpawnApp, Error> {
        let missing = |field| Error::Malformed(Malformed::Missing(field));
        Ok(SpawnApp {
            program: self.program.ok_or_else(|| missing(program))?,
            count: self.count.ok_or_else(|| missing(count))?,
            args: self.args.list(args)?,
            infos: self.infos.pairs(infos)?,
        })
    }
}

fn number<T: std::str::FromStr>(field: &'static str, text: &str) -> Result<T, Error> {
    text.parse()
        .map_err(|_| Error::Malformed(Malformed::NotANumber(field)))
}

/// Returns a key without the number at its end; `None` if it has no number.
fn numbered(key: &str) -> Option<&str> {
    let name = key.trim_end_matches(|c: char| c.is_ascii_digit());
    (name.len() < key.len()).then_some(name)
}

/// Decodes one part in PMI-1.
///
/// The arguments of a program may contain line feeds, which the client does not escape. Therefore a line that is not a field of a
/// spawn continues the value before it.
fn decode_lines(message: &Message) -> Result<Part, Error> {
    let mut draft = Draft::default();
    let mut preput = Counted::default();
    let (mut total, mut so_far) = (None, None);
    let mut last: Option<Last> = None;
    for (key, value) in message.fields() {
        let text = || value.clone();
        last = match (key.as_str(), numbered(key)) {
            ("nprocs", _) => {
                draft.count = Some(number("nprocs", value)?);
                None
            }
            ("totspawns", _) => {
                total = Some(number("totspawns", value)?);
                None
            }
            ("spawnssofar", _) => {
                so_far = Some(number("spawnssofar", value)?);
                None
            }
            ("argcnt", _) => {
                draft.args.say("argcnt", value)?;
                None
            }
            ("preput_num", _) => {
                preput.say("preput_num", value)?;
                None
            }
            ("info_num", _) => {
                draft.infos.say("info_num", value)?;
                None
            }
            ("execname", _) => {
                draft.program = Some(text());
                Some(Last::Program)
            }
            (_, Some("arg")) => {
                draft.args.values.push(text());
                Some(Last::Argument)
            }
            (_, Some("preput_key_")) => {
                preput.keys.push(text());
                None
            }
            (_, Some("preput_val_")) => {
                preput.values.push(text());
                None
            }
            (_, Some("info_key_")) => {
                draft.infos.keys.push(text());
                None
            }
            (_, Some("info_val_")) => {
                draft.infos.values.push(text());
                Some(Last::Info)
            }
            _ => {
                let before = match last {
                    Some(Last::Program) => draft.program.as_mut(),
                    Some(Last::Argument) => draft.args.values.last_mut(),
                    Some(Last::Info) => draft.infos.values.last_mut(),
                    None => None,
                };
                if let Some(before) = before {
                    before.push_str(&format!("\n{key}={value}"));
                }
                last
            }
        };
    }
    let missing = |field| Error::Malformed(Malformed::Missing(field));
    Ok(Part {
        total: total.ok_or_else(|| missing("totspawns"))?,
        number: so_far.ok_or_else(|| missing("spawnssofar"))?,
        spawn: Spawn {
            apps: vec![draft.finish(["execname", "nprocs", "argcnt", "info_num"])?],
            preput: preput.pairs("preput_num")?,
        },
    })
}

/// The value that a line without a known key continues.
#[derive(Clone, Copy)]
enum Last {
    Program,
    Argument,
    Info,
}

/// Decodes a whole spawn in PMI-2.
fn decode_counted(message: &Message) -> Result<Part, Error> {
    const FIELDS: [&str; 4] = ["subcmd", "maxprocs", "argc", "infokeycount"];
    let total: u32 = message.number("ncmds")?;
    let mut apps = Vec::new();
    let mut draft: Option<Draft> = None;
    let mut preput = Counted::default();
    for (key, value) in message.fields() {
        if key == "subcmd" {
            if let Some(before) = draft.take() {
                apps.push(before.finish(FIELDS)?);
            }
            draft = Some(Draft {
                program: Some(value.clone()),
                ..Draft::default()
            });
            Bound::Apps.check(apps.len() + 1)?;
            continue;
        }
        let text = || value.clone();
        match (key.as_str(), numbered(key), &mut draft) {
            ("preputcount", _, None) => preput.say("preputcount", value)?,
            (_, Some("ppkey"), None) => preput.keys.push(text()),
            (_, Some("ppval"), None) => preput.values.push(text()),
            ("maxprocs", _, Some(app)) => app.count = Some(number("maxprocs", value)?),
            ("argc", _, Some(app)) => app.args.say("argc", value)?,
            (_, Some("argv"), Some(app)) => app.args.values.push(text()),
            ("infokeycount", _, Some(app)) => app.infos.say("infokeycount", value)?,
            (_, Some("infokey"), Some(app)) => app.infos.keys.push(text()),
            (_, Some("infoval"), Some(app)) => app.infos.values.push(text()),
            _ => {}
        }
    }
    if let Some(last) = draft {
        apps.push(last.finish(FIELDS)?);
    }
    if usize::try_from(total) != Ok(apps.len()) {
        return Err(Error::Malformed(Malformed::WrongCount("ncmds")));
    }
    Ok(Part {
        total,
        number: total,
        spawn: Spawn {
            apps,
            preput: preput.pairs("preputcount")?,
        },
    })
}

/// Returns the number of parts of a spawn and the number of this part; `None` in PMI-2 or if a number is invalid.
fn place(message: &Message) -> Option<(u32, u32)> {
    match message.form() {
        Form::Counted => None,
        Form::Line | Form::Multi => Some((
            message.number("totspawns").ok()?,
            message.number("spawnssofar").ok()?,
        )),
    }
}

/// A spawn whose parts are being received one after the other. The parts are in a box, because few clients spawn.
#[derive(Debug, Default)]
pub(super) struct Gathering(Option<Box<Parts>>);

#[derive(Debug, Default)]
struct Parts {
    spawn: Spawn,
    /// The first error in a part. It is reported after the last part, when the client waits for the answer.
    wrong: Option<Error>,
    count: u32,
}

/// Result of adding a part.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Gathered {
    More,
    Whole(Spawn),
    Wrong(Error),
}

impl Gathering {
    /// Adds the next part, or the error in it.
    pub(super) fn add(&mut self, message: &Message, part: Result<Part, Error>) -> Gathered {
        let parts = self.0.get_or_insert_default();
        parts.count += 1;
        // A part without valid numbers is taken as the last one, because the client may wait for an answer.
        let last = place(message).is_none_or(|(total, number)| number >= total);
        match part {
            Ok(part) => {
                // PMI-2 sends the whole spawn in one part.
                let expected = if message.form() == Form::Counted {
                    part.total
                } else {
                    parts.count
                };
                if part.number != expected {
                    parts.note(Error::Malformed(Malformed::WrongCount("spawnssofar")));
                }
                match Bound::Apps.check(parts.spawn.apps.len() + part.spawn.apps.len()) {
                    Ok(()) => {
                        parts.spawn.apps.extend(part.spawn.apps);
                        parts.spawn.preput.extend(part.spawn.preput);
                    }
                    Err(error) => parts.note(error),
                }
            }
            Err(error) => parts.note(error),
        }
        if !last {
            return Gathered::More;
        }
        let Parts { spawn, wrong, .. } = *self.0.take().unwrap_or_default();
        match wrong {
            None if spawn.apps.is_empty() => {
                Gathered::Wrong(Error::Malformed(Malformed::Missing("execname")))
            }
            None => Gathered::Whole(spawn),
            Some(error) => Gathered::Wrong(error),
        }
    }

    /// Returns true if a part has arrived and the last one has not.
    pub(super) const fn is_open(&self) -> bool {
        self.0.is_some()
    }
}

impl Parts {
    fn note(&mut self, error: Error) {
        if self.wrong.is_none() {
            self.wrong = Some(error);
        }
    }
}
