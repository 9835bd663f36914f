//! The command line of `dbgr`.

use std::{
    ffi::OsString,
    path::{Path, PathBuf},
    time::Duration,
};

use base::{HostList, RankSet};
use clap::{Args, Parser, Subcommand, ValueEnum};
use debug::{
    session::{MAX_SAMPLES, Plan, Samples},
    target::Wish,
};

use super::machine::Ask;
use crate::{
    args::AgentArgs,
    values::{idle, time},
};

/// The width of help texts in columns, whatever the terminal's width.
const HELP_WIDTH: usize = 80;

/// The whole command line.
#[derive(Clone, Debug, Parser)]
#[command(
    name = "dbgr",
    version,
    about = "Show where the processes of a parallel job are",
    after_help = "`dbgr PID` is `dbgr stacks PID`.",
    term_width = HELP_WIDTH,
    arg_required_else_help = true
)]
pub(super) struct CommandLine {
    #[command(subcommand)]
    pub(super) command: Command,
}

/// Returns the words of the command line, with `stacks` inserted if no command is given: `dbgr 4711`, `dbgr --name solver`.
pub(super) fn words(words: impl Iterator<Item = OsString>) -> Vec<OsString> {
    let mut words: Vec<OsString> = words.collect();
    let first = words.get(1).and_then(|word| word.to_str()).unwrap_or("");
    let asks = matches!(first, "-h" | "--help" | "-V" | "--version");
    let is_job = first.starts_with(|letter: char| letter.is_ascii_digit()) || first.contains('@');
    if is_job || (first.starts_with('-') && !asks) {
        words.insert(1, "stacks".into());
    }
    words
}

/// Returns the word that is neither a command nor a job, and a command with a similar name. `None` for any other error.
pub(super) fn no_target(error: &clap::Error) -> Option<(String, Option<String>)> {
    use clap::error::{ContextKind, ContextValue, ErrorKind};
    if error.kind() != ErrorKind::InvalidSubcommand {
        return None;
    }
    let ContextValue::String(word) = error.get(ContextKind::InvalidSubcommand)? else {
        return None;
    };
    let similar = match error.get(ContextKind::SuggestedSubcommand) {
        Some(ContextValue::Strings(names)) => names.first().cloned(),
        Some(ContextValue::String(name)) => Some(name.clone()),
        _ => None,
    };
    Some((word.clone(), similar))
}

/// The commands of `dbgr`.
#[derive(Clone, Debug, Subcommand)]
pub(super) enum Command {
    /// Show the stacks of all ranks as one tree
    Stacks(Stacks),
    /// Take samples of the given processes, and print their classes and verdicts
    #[command(hide = true)]
    Verdict(super::sampling::Args),
    /// Write stacks, samples and verdicts into one HTML page, for example to send to a colleague
    Report(Report),
    /// List the last calls of MPI of each rank, if `rally run --mpi-recorder` has started them
    Calls(Calls),
    /// Follow a job until it ends, and report where its ranks are when it makes no progress
    Watch(Watch),
}

/// `dbgr stacks`.
#[derive(Clone, Debug, Args)]
pub(super) struct Stacks {
    #[command(flatten)]
    pub(super) target: TargetArgs,
    /// Print how the job was found; take no sample
    #[arg(long)]
    pub(super) explain: bool,
    #[command(flatten)]
    pub(super) samples: Sampling,
    #[command(flatten)]
    pub(super) output: Output,
}

/// `dbgr calls`.
#[derive(Clone, Debug, Args)]
pub(super) struct Calls {
    #[command(flatten)]
    pub(super) target: TargetArgs,
    /// Only these ranks: 3,7 or 0-15
    #[arg(long, value_name = "RANKS")]
    pub(super) ranks: Option<RankSet>,
    /// How many calls of each thread to list, at most 63
    #[arg(long, value_name = "N", default_value_t = 20, value_parser = clap::value_parser!(u8).range(1..=63))]
    pub(super) last: u8,
}

/// `dbgr report`.
#[derive(Clone, Debug, Args)]
pub(super) struct Report {
    #[command(flatten)]
    pub(super) target: TargetArgs,
    #[command(flatten)]
    pub(super) samples: Sampling,
    /// The HTML file to write, which needs no other file and no network; - for stdout. By default it is named after the
    /// target, and no existing file is overwritten
    #[arg(short, long, value_name = "FILE")]
    output: Option<PathBuf>,
}

/// The destination of a page.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Destination {
    /// Standard output, which then gets nothing but the page.
    Stdout,
    /// This file.
    File(PathBuf),
}

impl Destination {
    /// Returns the destination that the value of `-o` names.
    pub(super) fn of(path: &Path) -> Self {
        if path == Path::new("-") {
            Self::Stdout
        } else {
            Self::File(path.to_owned())
        }
    }
}

impl Report {
    /// Returns the destination of the page. Without `-o`, the first unused name of `dbgr-4711.html`, `dbgr-4711-2.html` and
    /// so on.
    pub(super) fn destination(&self, is_free: impl Fn(&Path) -> bool) -> Destination {
        if let Some(output) = &self.output {
            return Destination::of(output);
        }
        let first = PathBuf::from(format!("dbgr-{}.html", self.target.label()));
        let mut names = (1..=MAX_NAMES).map(|number| numbered(&first, number));
        Destination::File(names.find(|name| is_free(name)).unwrap_or(first))
    }
}

/// The most names that are tried for a page.
const MAX_NAMES: u32 = 1000;

/// Returns the name of the page with this number: `hang.html`, `hang-2.html`, and so on.
pub(super) fn numbered(first: &Path, number: u32) -> PathBuf {
    if number == 1 {
        return first.to_owned();
    }
    let mut name = first.file_stem().unwrap_or_default().to_owned();
    name.push(format!("-{number}"));
    if let Some(ending) = first.extension() {
        name.push(".");
        name.push(ending);
    }
    first.with_file_name(name)
}

/// `dbgr watch`.
#[derive(Clone, Debug, Args)]
pub(super) struct Watch {
    #[command(flatten)]
    pub(super) target: TargetArgs,
    /// Report if for this time no thread of any rank has moved and no rank has written output. Seconds, or a number with ms,
    /// s, m or h, at least 1s
    #[arg(long, value_name = "TIME", default_value = "60s", value_parser = idle)]
    pub(super) idle: Duration,
    /// Time from now until something ends the job, such as `timeout`: report shortly before. Seconds, or a number with ms, s,
    /// m or h. Slurm's time limit is found without this option
    #[arg(long, value_name = "TIME", value_parser = time)]
    pub(super) limit: Option<Duration>,
    /// Write each report as a page too: the first to this file, the second to FILE-2 with the same extension, and so on; with
    /// - the pages go to stdout instead of the stacks
    #[arg(short, long, value_name = "FILE")]
    pub(super) output: Option<PathBuf>,
    /// Format of the messages on stderr; with json nothing else is printed unless --json asks for the stacks
    #[arg(long, value_enum, value_name = "FORM", default_value_t = MessageForm::Text)]
    pub(super) message_format: MessageForm,
    #[command(flatten)]
    pub(super) shown: Output,
}

/// The form of messages.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(super) enum MessageForm {
    /// For people
    Text,
    /// One JSON object a line
    Json,
}

/// The number of samples, and the time between them.
#[derive(Clone, Copy, Debug, Args)]
pub(super) struct Sampling {
    /// How many samples to take, at most 1000. By default, `stacks` takes one, and `report` takes as many as a verdict needs:
    /// for 2 s, or for up to 15 s if that may lead to a verdict. Two samples or more also show what moves, what is stuck and
    /// what may be wrong
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=i64::from(MAX_SAMPLES)))]
    samples: Option<u32>,
    /// Time from one sample to the next: seconds, or a number with ms, s, m or h. By default 1s, and for `report` the time
    /// that suits a verdict
    #[arg(long, value_name = "TIME", value_parser = time)]
    every: Option<Duration>,
}

impl Sampling {
    /// Returns the plan for the samples. `usual` applies if the user gave no number.
    pub(super) fn plan(self, usual: Samples) -> Plan {
        Plan {
            samples: self.samples.map_or(usual, Samples::Exactly),
            every: self.every,
        }
    }
}

/// How stacks are shown.
#[derive(Clone, Debug, Args)]
pub(super) struct Output {
    /// Show every frame and every stack, including those inside libraries
    #[arg(long)]
    pub(super) full: bool,
    /// Print one JSON object (docs/formats/stacks.md)
    #[arg(long, conflicts_with = "folded")]
    pub(super) json: bool,
    /// Print one line for each stack, for programs that draw flame graphs
    #[arg(long)]
    pub(super) folded: bool,
    /// Use colours
    #[arg(long, value_enum, value_name = "WHEN", default_value_t = When::Auto)]
    pub(super) color: When,
    /// Width of the output in columns, instead of the terminal's
    #[arg(long, value_name = "COLUMNS")]
    pub(super) width: Option<usize>,
    /// Print how long threads were stopped, and how long each step took
    #[arg(long)]
    pub(super) timing: bool,
}

/// When to use colours.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(super) enum When {
    /// On a terminal, unless NO_COLOR is set
    Auto,
    /// Always
    Always,
    /// Never
    Never,
}

/// The processes to inspect.
#[derive(Clone, Debug, Args)]
pub(super) struct TargetArgs {
    /// Process number of a launcher, of a script that starts one, or of a rank; or the name of a job: `PID@JOB` for a job
    /// of `rally`, JOB.STEP for Slurm, otherwise the PMIX_NAMESPACE of its ranks
    #[arg(
        value_name = "PID|JOB",
        required_unless_present = "name",
        conflicts_with = "name"
    )]
    target: Option<String>,
    /// All your processes with this program, script or command name; `*` and `?` match any text and any character
    #[arg(long, value_name = "PATTERN")]
    name: Option<String>,
    /// Search these nodes, whatever has started the processes: names separated by commas, with ranges in brackets, such as
    /// gpu[1-8]. `dbgr` starts an agent on each
    #[arg(long, value_name = "HOSTS")]
    pub(super) hosts: Option<HostList>,
    /// Stay on this node: ranks on other nodes are listed as missing
    #[arg(long, conflicts_with = "hosts")]
    pub(super) local: bool,
    /// Ask a launcher that serves PMIx tools (Open MPI 5, PRRTE) for its ranks, including those on other nodes. PRRTE 5.0 may
    /// then fail to exit after its job: without this option `dbgr` does not connect to launchers
    #[arg(long)]
    ask_launcher: bool,
    #[command(flatten)]
    pub(super) agents: AgentArgs,
}

impl TargetArgs {
    /// Returns which processes we may connect to.
    pub(super) const fn ask(&self) -> Ask {
        if self.ask_launcher {
            Ask::Launcher
        } else {
            Ask::Nobody
        }
    }

    /// Returns the target as part of a file name: other characters than letters, digits, `@`, `.` and `_` are replaced.
    fn label(&self) -> String {
        let named = self.target.as_ref().or(self.name.as_ref());
        let letters = named.map_or("", String::as_str).chars().map(|letter| {
            let harmless = letter.is_ascii_alphanumeric() || matches!(letter, '@' | '.' | '_');
            if harmless { letter } else { '-' }
        });
        letters
            .collect::<String>()
            .trim_matches(['-', '.'])
            .to_owned()
    }

    /// Returns what to search for.
    pub(super) fn wish(&self) -> Wish {
        match (&self.target, &self.name) {
            (Some(target), _) => match target.parse() {
                Ok(pid) => Wish::Process(pid),
                Err(_) => Wish::Job(target.clone()),
            },
            (None, name) => Wish::Name(name.clone().unwrap_or_default()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn wish(line: &str) -> Result<Wish, clap::error::ErrorKind> {
        let words = format!("dbgr stacks {line}");
        let parsed = CommandLine::try_parse_from(words.split_ascii_whitespace());
        match parsed.map_err(|error| error.kind())?.command {
            Command::Stacks(stacks) => Ok(stacks.target.wish()),
            Command::Report(report) => Ok(report.target.wish()),
            Command::Watch(watch) => Ok(watch.target.wish()),
            Command::Calls(calls) => Ok(calls.target.wish()),
            Command::Verdict(_) => panic!("it has no target"),
        }
    }

    #[test]
    fn targets() {
        assert_eq!(wish("4711"), Ok(Wish::Process(4711)));
        assert_eq!(wish("4711@2"), Ok(Wish::Job("4711@2".into())));
        assert_eq!(wish("12.0 --explain"), Ok(Wish::Job("12.0".into())));
        assert_eq!(wish("--name *.py"), Ok(Wish::Name("*.py".into())));
        assert!(wish("").is_err());
        let same = |line: &str| {
            let given = line.split_ascii_whitespace().map(OsString::from);
            let given = ["dbgr".into()].into_iter().chain(given);
            let words: Vec<String> = words(given)
                .into_iter()
                .map(|word| word.into_string().unwrap())
                .collect();
            words[1..].join(" ")
        };
        for (line, expected) in [
            ("4711 --full", "stacks 4711 --full"),
            ("4711@2", "stacks 4711@2"),
            ("prterun-n1-7@1", "stacks prterun-n1-7@1"),
            ("--name a", "stacks --name a"),
            ("stacks 7", "stacks 7"),
            ("--help", "--help"),
            ("-V", "-V"),
            ("stakcs 7", "stakcs 7"),
            ("", ""),
        ] {
            assert_eq!(same(line), expected, "{line}");
        }
        assert!(wish("--name a 7").is_err());
    }

    #[test]
    fn what_is_no_command() {
        let parsed = |line: &str| {
            let words = line.split_ascii_whitespace();
            let error = CommandLine::try_parse_from(words).unwrap_err();
            no_target(&error)
        };
        assert_eq!(parsed("dbgr abc"), Some(("abc".into(), None)));
        let similar = Some(("stakcs".into(), Some("stacks".into())));
        assert_eq!(parsed("dbgr stakcs 7"), similar);
        assert_eq!(parsed("dbgr stacks --no-such"), None);
    }

    #[test]
    fn pages_are_named() {
        let name = |line: &str, taken: &[&str]| {
            let words = format!("dbgr report {line}");
            let parsed = CommandLine::try_parse_from(words.split_ascii_whitespace());
            let Command::Report(report) = parsed.unwrap().command else {
                panic!("{line}");
            };
            let is_free = |path: &Path| !taken.contains(&path.to_str().unwrap());
            match report.destination(is_free) {
                Destination::Stdout => "-".to_owned(),
                Destination::File(path) => path.display().to_string(),
            }
        };
        assert_eq!(name("4711", &[]), "dbgr-4711.html");
        let taken = ["dbgr-4711.html", "dbgr-4711-2.html"];
        assert_eq!(name("4711", &taken), "dbgr-4711-3.html");
        assert_eq!(name("7@2", &[]), "dbgr-7@2.html");
        assert_eq!(name("--name ../tra*n.py", &[]), "dbgr-tra-n.py.html");
        assert_eq!(name("7 -o a/b.html", &[]), "a/b.html");
        assert_eq!(name("7 -o -", &[]), "-");
    }

    #[test]
    fn pages_are_numbered() {
        let name = |first: &str, number| numbered(Path::new(first), number);
        assert_eq!(name("hang.html", 1), Path::new("hang.html"));
        assert_eq!(name("a/hang.html", 2), Path::new("a/hang-2.html"));
        assert_eq!(name("hang", 10), Path::new("hang-10"));
    }

    #[test]
    fn help() {
        use clap::CommandFactory as _;
        let mut command = CommandLine::command();
        let stacks = command.find_subcommand_mut("stacks").unwrap();
        insta::assert_snapshot!(stacks.render_long_help().to_string(), @r#"
    Show the stacks of all ranks as one tree

    Usage: stacks [OPTIONS] [PID|JOB]

    Arguments:
      [PID|JOB]
              Process number of a launcher, of a script that starts one, or of a rank; or the name of a
              job: `PID@JOB` for a job of `rally`, JOB.STEP for Slurm, otherwise the PMIX_NAMESPACE of
              its ranks

    Options:
          --name <PATTERN>
              All your processes with this program, script or command name; `*` and `?` match any text
              and any character

          --hosts <HOSTS>
              Search these nodes, whatever has started the processes: names separated by commas, with
              ranges in brackets, such as gpu[1-8]. `dbgr` starts an agent on each

          --local
              Stay on this node: ranks on other nodes are listed as missing

          --ask-launcher
              Ask a launcher that serves PMIx tools (Open MPI 5, PRRTE) for its ranks, including those
              on other nodes. PRRTE 5.0 may then fail to exit after its job: without this option `dbgr`
              does not connect to launchers

          --bootstrap <HOW>
              How agents get onto other nodes: ssh, slurm, lsf, pbs. By default by the starter of the
              resource manager if all nodes belong to the allocation in which `dbgr` runs, otherwise by
              ssh

          --ssh <COMMAND>
              ssh, or a command like it, with its options. It is called with the node's name and a
              command

          --bootstrap-command <TEMPLATE>
              A command instead of ssh: kubectl exec -i {host} -- {daemon}

          --if-include <NAME,...>
              Networks for connections between nodes, by interface or address

          --port-range <LOW-HIGH>
              Ports for connections between nodes

          --radix <N>
              The most agents that connect to one process; the answers of the others are merged on their
              way

          --jobid <JOB>
              The number of a Slurm job: `srun --overlap --jobid` starts the agents on its nodes. Found
              without this option for the process number of an `srun`, and for JOB.STEP

          --explain
              Print how the job was found; take no sample

          --samples <N>
              How many samples to take, at most 1000. By default, `stacks` takes one, and `report` takes
              as many as a verdict needs: for 2 s, or for up to 15 s if that may lead to a verdict. Two
              samples or more also show what moves, what is stuck and what may be wrong

          --every <TIME>
              Time from one sample to the next: seconds, or a number with ms, s, m or h. By default 1s,
              and for `report` the time that suits a verdict

          --full
              Show every frame and every stack, including those inside libraries

          --json
              Print one JSON object (docs/formats/stacks.md)

          --folded
              Print one line for each stack, for programs that draw flame graphs

          --color <WHEN>
              Use colours

              Possible values:
              - auto:   On a terminal, unless NO_COLOR is set
              - always: Always
              - never:  Never
              
              [default: auto]

          --width <COLUMNS>
              Width of the output in columns, instead of the terminal's

          --timing
              Print how long threads were stopped, and how long each step took

      -h, --help
              Print help (see a summary with '-h')
    "#);
    }
}
