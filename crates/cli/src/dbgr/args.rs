//! The command line of `dbgr`.

use clap::{Args, Parser, Subcommand};
use debug::target::Wish;

use super::machine::Ask;

/// Columns that help is wrapped to, whatever the terminal's width.
const HELP_WIDTH: usize = 80;

/// The whole command line.
#[derive(Clone, Debug, Parser)]
#[command(
    name = "dbgr",
    version,
    about = "Says where the processes of a parallel job are",
    term_width = HELP_WIDTH,
    arg_required_else_help = true
)]
pub(super) struct CommandLine {
    #[command(subcommand)]
    pub(super) command: Command,
}

/// What to do.
#[derive(Clone, Debug, Subcommand)]
pub(super) enum Command {
    /// Shows the stacks of all ranks as one tree
    Stacks(Stacks),
    /// Looks several times at processes that are named one by one, and says classes and verdicts
    #[command(hide = true)]
    Verdict(super::looks::Args),
}

/// `dbgr stacks`.
#[derive(Clone, Debug, Args)]
pub(super) struct Stacks {
    #[command(flatten)]
    pub(super) target: TargetArgs,
    /// Say how the job was found, and look at nothing
    #[arg(long)]
    pub(super) explain: bool,
}

/// Which processes are meant.
#[derive(Clone, Debug, Args)]
pub(super) struct TargetArgs {
    /// Process number of a launcher, of a script that starts one, or of a rank; or the name of a job: `PID@JOB` for one of
    /// `rally`, otherwise what its ranks have in PMIX_NAMESPACE, or JOB.STEP of Slurm
    #[arg(
        value_name = "PID|JOB",
        required_unless_present = "name",
        conflicts_with = "name"
    )]
    target: Option<String>,
    /// All your processes with this program, script or command name; `*` and `?` match any text and any character
    #[arg(long, value_name = "PATTERN")]
    name: Option<String>,
    /// Ask a launcher that serves PMIx tools (Open MPI 5, PRRTE) for its ranks, those on other nodes among them. PRRTE 5.0
    /// may not end after its job then: without this option nothing is asked, and nobody is disturbed
    #[arg(long)]
    ask_launcher: bool,
}

impl TargetArgs {
    /// Whom we may connect to.
    pub(super) const fn ask(&self) -> Ask {
        if self.ask_launcher {
            Ask::Launcher
        } else {
            Ask::Nobody
        }
    }

    /// What the user has named.
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
        let Command::Stacks(stacks) = parsed.map_err(|error| error.kind())?.command else {
            panic!("not `stacks`");
        };
        Ok(stacks.target.wish())
    }

    #[test]
    fn targets() {
        assert_eq!(wish("4711"), Ok(Wish::Process(4711)));
        assert_eq!(wish("4711@2"), Ok(Wish::Job("4711@2".into())));
        assert_eq!(wish("12.0 --explain"), Ok(Wish::Job("12.0".into())));
        assert_eq!(wish("--name *.py"), Ok(Wish::Name("*.py".into())));
        assert!(wish("").is_err());
        assert!(wish("--name a 7").is_err());
    }

    #[test]
    fn help() {
        use clap::CommandFactory as _;
        let mut command = CommandLine::command();
        let stacks = command.find_subcommand_mut("stacks").unwrap();
        insta::assert_snapshot!(stacks.render_long_help().to_string(), @r"
    Shows the stacks of all ranks as one tree

    Usage: stacks [OPTIONS] [PID|JOB]

    Arguments:
      [PID|JOB]
              Process number of a launcher, of a script that starts one, or of a rank; or the name of a
              job: `PID@JOB` for one of `rally`, otherwise what its ranks have in PMIX_NAMESPACE, or
              JOB.STEP of Slurm

    Options:
          --name <PATTERN>
              All your processes with this program, script or command name; `*` and `?` match any text
              and any character

          --ask-launcher
              Ask a launcher that serves PMIx tools (Open MPI 5, PRRTE) for its ranks, those on other
              nodes among them. PRRTE 5.0 may not end after its job then: without this option nothing is
              asked, and nobody is disturbed

          --explain
              Say how the job was found, and look at nothing

      -h, --help
              Print help
");
    }
}
