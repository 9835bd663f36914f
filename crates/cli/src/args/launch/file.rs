//! Reads the text of a launch configuration (docs/formats/launch-configuration.md).

use std::{ops::Range, path::Path};

use toml::{
    Spanned,
    de::{DeTable, DeValue},
};

use super::{
    super::request::launch::Action,
    error::{KeyHelp, LaunchProblem, Position, Table},
    mistake::Mistake,
    options::{FileOption, Options, checked, scalar, type_of},
};

/// The keys of tables whose keys are no options.
const OF_FILE: [&str; 7] = [
    "version", "app", "job", "queue", "debugger", "sources", "actions",
];
const OF_DEBUGGER: [&str; 5] = ["program", "args", "start", "stop", "attach-args"];
const OF_SOURCES: [&str; 2] = ["directories", "substitute"];
const OF_ACTIONS: [&str; 2] = ["pre", "post"];

const STARTS: [&str; 3] = ["launcher", "node", "rank"];
const STOPS: [&str; 4] = ["exec", "init", "app", "no"];

/// The debugger that is part of this project.
pub(super) const OURS: &str = "dbgr";
/// The place of a rank's process in the arguments of a debugger.
pub(super) const PID: &str = "{pid}";
/// The place of the job in the arguments of a debugger that attaches.
pub(super) const JOB: &str = "{job}";
/// The place of the source directories.
pub(super) const SOURCES: &str = "{sources}";

type Done<T> = Result<T, Mistake>;

/// A launch configuration without mistakes that can be seen in it alone.
#[derive(Debug)]
pub(super) struct File {
    pub(super) apps: Vec<App>,
    pub(super) job: Vec<FileOption>,
    /// Options of `rally submit`, and the place of the table. `None`: the job is one of `rally run`.
    pub(super) queue: Option<(Vec<FileOption>, Range<usize>)>,
    pub(super) debugger: Debugger,
    pub(super) sources: Sources,
    pub(super) pre: Vec<Action>,
    pub(super) post: Vec<Action>,
}

#[derive(Debug)]
pub(super) struct App {
    pub(super) program: String,
    pub(super) args: Vec<String>,
    pub(super) options: Vec<FileOption>,
}

#[derive(Debug, Default)]
pub(super) struct Debugger {
    /// The place of the table. `None` if the file has none.
    pub(super) at: Option<Range<usize>>,
    /// `None` is [`OURS`].
    pub(super) program: Option<String>,
    pub(super) args: Vec<String>,
    pub(super) start: StartAs,
    pub(super) stop: Option<Stop>,
    pub(super) attach: Option<Vec<String>>,
}

/// How a debugger is started.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum StartAs {
    /// It starts the launcher.
    #[default]
    Launcher,
    /// The launcher starts one on each node.
    Node,
    /// The launcher starts one for each rank.
    Rank,
}

/// Where ranks are held for a debugger.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Stop {
    Exec,
    Init,
    App,
    No,
}

#[derive(Debug, Default)]
pub(super) struct Sources {
    pub(super) directories: Vec<String>,
    /// From the directory at compile time to that of today.
    pub(super) substitute: Vec<(String, String)>,
}

/// Reads a launch configuration.
pub(super) fn read(text: &str) -> Done<File> {
    let table = DeTable::parse(text).map_err(|error| {
        Mistake::somewhere(
            error.span(),
            LaunchProblem::Syntax(error.message().to_owned()),
        )
    })?;
    let table = table.get_ref();
    let mut options = Options::define();
    // A file of a later version has keys that this one does not know.
    check_version(table)?;
    let mut file = File {
        apps: Vec::new(),
        job: Vec::new(),
        queue: None,
        debugger: Debugger::default(),
        sources: Sources::default(),
        pre: Vec::new(),
        post: Vec::new(),
    };
    for (key, value) in in_order(table) {
        match key.get_ref().as_ref() {
            "version" => {}
            "app" => file.apps = apps(value, &mut options)?,
            "job" => {
                let table = table_of("job", value)?;
                file.job = listed(Table::Job, table, "global-env", &mut options)?;
            }
            "queue" => {
                let table = table_of("queue", value)?;
                let mut found = Vec::new();
                for (key, value) in in_order(table) {
                    found.extend(options.read(Table::Queue, key, value)?);
                }
                file.queue = Some((found, key.span()));
            }
            "debugger" => file.debugger = debugger(table_of("debugger", value)?, key.span())?,
            "sources" => file.sources = sources(table_of("sources", value)?)?,
            "actions" => {
                let table = table_of("actions", value)?;
                for (key, value) in in_order(table) {
                    match key.get_ref().as_ref() {
                        "pre" => file.pre = actions("pre", value, text)?,
                        "post" => file.post = actions("post", value, text)?,
                        _ => return Err(unknown(Table::Actions, key, &OF_ACTIONS)),
                    }
                }
            }
            _ => return Err(unknown(Table::File, key, &OF_FILE)),
        }
    }
    if file.apps.is_empty() {
        return Err(Mistake::somewhere(None, LaunchProblem::NoApp));
    }
    together(&file, table)?;
    Ok(file)
}

/// Refuses parts that exclude each other.
fn together(file: &File, table: &DeTable<'_>) -> Done<()> {
    let place = |outer: &str, inner: &str| {
        let table = table.get(outer)?.get_ref().as_table()?;
        let (key, _) = table.get_key_value(inner)?;
        Some(key.span())
    };
    let fail = |at: Option<Range<usize>>, first: &str, second: &str, why| {
        let problem = LaunchProblem::Together {
            first: format!("`{first}`"),
            second: second.to_owned(),
            why,
        };
        Mistake::somewhere(at, problem)
    };
    if file.queue.is_some() && !file.post.is_empty() {
        let why = "`rally launch` does not wait for the end of a submitted job: leave out `post` or `[queue]`";
        return Err(fail(place("actions", "post"), "post", "`[queue]`", why));
    }
    let debugger = &file.debugger;
    let is_ours = debugger.program.as_deref().is_none_or(|name| name == OURS);
    let at = |key| place("debugger", key);
    if is_ours && debugger.start != StartAs::Launcher {
        let why = "`dbgr` starts its own agents: leave `start` out";
        return Err(fail(at("start"), "start", "the debugger `dbgr`", why));
    }
    if is_ours && debugger.attach.is_some() {
        let why = "its words are those of `args`: leave `attach-args` out";
        return Err(fail(
            at("attach-args"),
            "attach-args",
            "the debugger `dbgr`",
            why,
        ));
    }
    if debugger.attach.is_some() && debugger.start != StartAs::Launcher {
        let why = "a debugger beside the ranks attaches as it is started: leave `attach-args` out";
        return Err(fail(at("attach-args"), "attach-args", "`start`", why));
    }
    let names_pid = debugger.args.iter().any(|word| word.contains(PID));
    if names_pid && debugger.start != StartAs::Rank {
        let why =
            "only a debugger of one rank has one process to attach to: add `start = \"rank\"`";
        return Err(fail(at("args"), PID, "this `start`", why));
    }
    let is_gdb = debugger.program.as_deref().is_some_and(is_gdb);
    if is_gdb && debugger.start == StartAs::Node {
        let why = "gdb attaches to one process: write `start = \"rank\"`";
        return Err(fail(at("start"), "start", "the debugger `gdb`", why));
    }
    Ok(())
}

fn check_version(table: &DeTable<'_>) -> Done<()> {
    let Some(version) = table.get("version") else {
        return Err(Mistake::somewhere(None, LaunchProblem::NoVersion));
    };
    let wrong = |problem| Err(Mistake::at(version.span(), problem));
    match version.get_ref() {
        DeValue::Integer(number) if number.to_string() == "1" => Ok(()),
        DeValue::Integer(number) => wrong(LaunchProblem::Version(number.to_string())),
        other => wrong(LaunchProblem::WrongType {
            key: "version".to_owned(),
            found: type_of(other),
            wanted: "the number 1",
        }),
    }
}

/// Returns the entries of a table in the order of the file, which for options is that of the command line.
fn in_order<'a, 'i>(
    table: &'a DeTable<'i>,
) -> Vec<(
    &'a Spanned<toml::de::DeString<'i>>,
    &'a Spanned<DeValue<'i>>,
)> {
    let mut entries: Vec<_> = table.iter().collect();
    entries.sort_by_key(|(key, _)| key.span().start);
    entries
}

fn apps(value: &Spanned<DeValue<'_>>, options: &mut Options) -> Done<Vec<App>> {
    let wanted = "written as `[[app]]`";
    let wrong = |value: &Spanned<DeValue<'_>>| wrong_type("app", value, wanted);
    let list = value.get_ref().as_array().ok_or_else(|| wrong(value))?;
    let app = |element: &Spanned<DeValue<'_>>| {
        let table = element.get_ref().as_table().ok_or_else(|| wrong(element))?;
        let Some(program) = table.get("program") else {
            return Err(Mistake::at(element.span(), LaunchProblem::NoProgram));
        };
        let program = word("program", program)?;
        let args = table.get("args").map(|value| words("args", value));
        Ok(App {
            program,
            args: args.transpose()?.unwrap_or_default(),
            options: listed(Table::App, table, "set-env", options)?,
        })
    };
    list.iter().map(app).collect()
}

/// Returns the options of a table. Variables of its `env` are the option `flag`.
fn listed(
    which: Table,
    table: &DeTable<'_>,
    flag: &str,
    options: &mut Options,
) -> Done<Vec<FileOption>> {
    let mut found = Vec::new();
    for (key, value) in in_order(table) {
        match key.get_ref().as_ref() {
            "program" | "args" if which == Table::App => {}
            "env" => {
                for (name, value) in in_order(table_of("env", value)?) {
                    found.push(variable(flag, name, value)?);
                }
            }
            _ => found.extend(options.read(which, key, value)?),
        }
    }
    Ok(found)
}

fn variable(
    flag: &str,
    name: &Spanned<toml::de::DeString<'_>>,
    value: &Spanned<DeValue<'_>>,
) -> Done<FileOption> {
    let key = name.get_ref().as_ref();
    if key.is_empty() || key.contains(['=', '*', '\0']) {
        let problem = LaunchProblem::Unusable {
            key: key.to_owned(),
            what: "is no name of a variable",
            help: "names are not empty, and have no `=` and no `*`; `set-env = [\"ABC*\"]` passes variables on",
        };
        return Err(Mistake::at(name.span(), problem));
    }
    let wrong = || wrong_type(key, value, "a text or a number");
    let text = scalar(value.get_ref()).ok_or_else(wrong)?;
    let text = checked(key, text, value.span())?;
    Ok(FileOption {
        flag: flag.to_owned(),
        value: Some(format!("{key}={text}")),
        at: name.span(),
    })
}

fn debugger(table: &DeTable<'_>, at: Range<usize>) -> Done<Debugger> {
    let mut debugger = Debugger {
        at: Some(at),
        ..Debugger::default()
    };
    for (key, value) in in_order(table) {
        match key.get_ref().as_ref() {
            "program" => debugger.program = Some(word("program", value)?),
            "args" => debugger.args = list("args", value)?,
            "attach-args" => debugger.attach = Some(list("attach-args", value)?),
            "start" => {
                debugger.start = match one_of("start", value, &STARTS)? {
                    "node" => StartAs::Node,
                    "rank" => StartAs::Rank,
                    _ => StartAs::Launcher,
                };
            }
            "stop" => {
                debugger.stop = Some(match one_of("stop", value, &STOPS)? {
                    "init" => Stop::Init,
                    "app" => Stop::App,
                    "no" => Stop::No,
                    _ => Stop::Exec,
                });
            }
            _ => return Err(unknown(Table::Debugger, key, &OF_DEBUGGER)),
        }
    }
    Ok(debugger)
}

fn sources(table: &DeTable<'_>) -> Done<Sources> {
    let mut sources = Sources::default();
    for (key, value) in in_order(table) {
        match key.get_ref().as_ref() {
            "directories" => sources.directories = list("directories", value)?,
            "substitute" => {
                for (from, to) in in_order(table_of("substitute", value)?) {
                    let name = from.get_ref().as_ref();
                    let from = checked(name, name.to_owned(), from.span())?;
                    sources.substitute.push((from, text(name, to)?));
                }
            }
            _ => return Err(unknown(Table::Sources, key, &OF_SOURCES)),
        }
    }
    Ok(sources)
}

fn actions(key: &'static str, value: &Spanned<DeValue<'_>>, whole: &str) -> Done<Vec<Action>> {
    let wrong = || wrong_type(key, value, "a list of texts");
    let list = value.get_ref().as_array().ok_or_else(wrong)?;
    let action = |element: &Spanned<DeValue<'_>>| {
        let line = text(key, element)?;
        if line.trim().is_empty() {
            let problem = LaunchProblem::Unusable {
                key: key.to_owned(),
                what: "has an empty command",
                help: "leave it out",
            };
            return Err(Mistake::at(element.span(), problem));
        }
        let at = Position::of(whole, element.span().start);
        Ok(Action { line, at })
    };
    list.iter().map(action).collect()
}

fn one_of(
    key: &'static str,
    value: &Spanned<DeValue<'_>>,
    known: &'static [&'static str],
) -> Done<&'static str> {
    let typed = text(key, value)?;
    if key == "stop" && typed == "main" {
        let problem = LaunchProblem::Unusable {
            key: key.to_owned(),
            what: "cannot be `main`: `rally` holds ranks before `main`, at their first instruction",
            help: "write `stop = \"exec\"`, and let the debugger stop there: `args = [\"-ex\", \"break main\"]` for gdb",
        };
        return Err(Mistake::at(value.span(), problem));
    }
    let found = known.iter().find(|word| **word == typed);
    found.copied().ok_or_else(|| {
        let nearest = message::nearest(&typed, known.iter().copied());
        let nearest = nearest.and_then(|near| known.iter().copied().find(|word| *word == near));
        let problem = LaunchProblem::NotOneOf {
            key: key.to_owned(),
            value: typed.clone(),
            known,
            nearest,
        };
        Mistake::at(value.span(), problem)
    })
}

/// Returns the words of a program's arguments.
fn words(key: &'static str, value: &Spanned<DeValue<'_>>) -> Done<Vec<String>> {
    let wrong = || wrong_type(key, value, "a list of texts");
    let list = value.get_ref().as_array().ok_or_else(wrong)?;
    list.iter().map(|element| argument(key, element)).collect()
}

/// Returns a list of texts.
fn list(key: &'static str, value: &Spanned<DeValue<'_>>) -> Done<Vec<String>> {
    let wrong = || wrong_type(key, value, "a list of texts");
    let list = value.get_ref().as_array().ok_or_else(wrong)?;
    list.iter().map(|element| text(key, element)).collect()
}

/// Returns a program.
fn word(key: &'static str, value: &Spanned<DeValue<'_>>) -> Done<String> {
    let typed = argument(key, value)?;
    if typed.is_empty() {
        let problem = LaunchProblem::Unusable {
            key: key.to_owned(),
            what: "is empty",
            help: "name a file, or a program of PATH",
        };
        return Err(Mistake::at(value.span(), problem));
    }
    Ok(typed)
}

/// Returns a word that the command line of a job can contain.
fn argument(key: &'static str, value: &Spanned<DeValue<'_>>) -> Done<String> {
    let typed = text(key, value)?;
    if typed == ":" {
        let problem = LaunchProblem::Unusable {
            key: key.to_owned(),
            what: "cannot be `:`, which separates the apps of a command line",
            help: "start the program by a script that adds this word",
        };
        return Err(Mistake::at(value.span(), problem));
    }
    Ok(typed)
}

fn text(key: &str, value: &Spanned<DeValue<'_>>) -> Done<String> {
    match value.get_ref() {
        DeValue::String(text) => checked(key, text.to_string(), value.span()),
        _ => Err(wrong_type(key, value, "a text")),
    }
}

fn table_of<'a, 'i>(key: &str, value: &'a Spanned<DeValue<'i>>) -> Done<&'a DeTable<'i>> {
    let wrong = || wrong_type(key, value, "a table");
    value.get_ref().as_table().ok_or_else(wrong)
}

fn wrong_type(key: &str, value: &Spanned<DeValue<'_>>, wanted: &'static str) -> Mistake {
    let problem = LaunchProblem::WrongType {
        key: key.to_owned(),
        found: type_of(value.get_ref()),
        wanted,
    };
    Mistake::at(value.span(), problem)
}

fn unknown(
    table: Table,
    key: &Spanned<toml::de::DeString<'_>>,
    known: &'static [&'static str],
) -> Mistake {
    let name = key.get_ref().to_string();
    let help = match message::nearest(&name, known.iter().copied()) {
        Some(nearest) => KeyHelp::Nearest(nearest.to_owned()),
        None => KeyHelp::Known(known.to_vec()),
    };
    let problem = LaunchProblem::UnknownKey {
        table,
        key: name,
        help,
    };
    Mistake::at(key.span(), problem)
}

/// Returns true for gdb and what is called after it: `cuda-gdb`, `x86_64-linux-gnu-gdb`.
pub(super) fn is_gdb(program: &str) -> bool {
    let name = Path::new(program)
        .file_name()
        .and_then(|name| name.to_str());
    name.is_some_and(|name| name == "gdb" || name.ends_with("-gdb"))
}
