//! The options of `rally run` as clap defines them, for all that reads them.
//!
//! Defining them takes longer than reading a command line, so this is done once, and one parser serves the job and all apps.

use clap::{Arg, ArgAction, Args as _, Command};

use super::{
    compat::Native,
    define::{AppArgs, InfoArgs, JobArgs},
};

/// The options of `rally run`.
#[derive(Debug)]
pub(crate) struct RunOptions {
    pub(super) command: Command,
    native: Native,
    /// Names of the options of the job, without hyphens. Those of an app are not among them.
    of_job: Vec<(String, Repeats)>,
}

/// Whether an option may be repeated with different values.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Repeats {
    No,
    Yes,
}

impl RunOptions {
    pub(crate) fn define() -> Self {
        let command = AppArgs::augment_args(super::parser());
        let apps = command.get_arguments().count();
        let command = JobArgs::augment_args(command);
        let of_job = command.get_arguments().skip(apps);
        let of_job = of_job.filter_map(|arg| Some((arg.get_long()?.to_owned(), repeats(arg))));
        let of_job = of_job.collect();
        let mut command = super::without_extras(InfoArgs::augment_args(command));
        Self {
            native: Native::of(&mut command),
            command,
            of_job,
        }
    }

    /// Returns what [`super::compat`] has to know of them.
    pub(crate) const fn native(&self) -> &Native {
        &self.native
    }

    /// Returns whether an option of the job may be repeated; `None` if it is one of an app.
    pub(super) fn in_job(&self, flag: &str) -> Option<Repeats> {
        let found = self.of_job.iter().find(|(known, _)| known == flag);
        found.map(|(_, repeats)| *repeats)
    }
}

fn repeats(arg: &Arg) -> Repeats {
    match arg.get_action() {
        ArgAction::Set | ArgAction::SetTrue => Repeats::No,
        _ => Repeats::Yes,
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;
    use crate::args::define::RunArgs;

    /// `RunArgs` is what help and manual pages show.
    #[test]
    fn they_are_those_of_the_help() {
        let names = |command: &Command| -> BTreeSet<String> {
            let longs = command.get_arguments().filter_map(Arg::get_long);
            longs.map(str::to_owned).collect()
        };
        let options = RunOptions::define();
        let shown = RunArgs::augment_args(Command::new("run"));
        assert_eq!(names(&options.command), names(&shown));
    }

    #[test]
    fn of_the_job_or_of_an_app() {
        let options = RunOptions::define();
        let cases = [
            ("np", None),
            ("wdir", None),
            ("quiet", Some(Repeats::No)),
            ("stdin", Some(Repeats::No)),
            ("help", None),
        ];
        for (flag, expected) in cases {
            assert_eq!(options.in_job(flag), expected, "{flag}");
        }
        let count = options.of_job.len();
        let alone = JobArgs::augment_args(Command::new("run"));
        assert_eq!(
            count,
            alone.get_arguments().filter_map(Arg::get_long).count()
        );
    }
}
