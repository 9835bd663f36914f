//! The spellings of other launchers, and their translations.

mod launchers;
mod srun;

use super::{
    Emit, Error, Given, Personality,
    Takes::{self, None as Nothing, Number, One, Pair},
    rewrite,
};
use crate::args::error::{Meaning, NotOffered};

/// A foreign spelling.
#[derive(Debug)]
pub(crate) struct Spelling {
    /// The names, each a letter or a word, without hyphens. One or two hyphens are accepted before each.
    pub(super) names: &'static [&'static str],
    pub(super) who: &'static [Personality],
    pub(super) takes: Takes,
    pub(super) means: Means,
}

/// A function that translates an option, and calls [`Emit`] for each resulting flag.
type Rewrite = fn(&Given<'_>, &mut Emit<'_>) -> Result<(), Error>;

/// The translation of a foreign spelling.
#[derive(Debug)]
pub(super) enum Means {
    /// This flag of ours, with the value unchanged.
    Same(&'static str),
    /// This flag of ours, with this value.
    Fixed(&'static str, &'static str),
    /// This flag of ours, without a value.
    Plain(&'static str),
    Each(Rewrite),
    /// Accepted without effect. One note names all such options.
    Ignored,
    /// Accepted without a note: it requests what we always do.
    Silent,
    /// With one of these values it requests what we always do; any other value is refused.
    Only(&'static [&'static str], NotOffered),
    /// Refused, because it has different meanings in different launchers.
    Conflict(&'static [Meaning]),
    /// Refused, because a job that ignores it would differ from what the user requested.
    Refused(NotOffered),
}

impl Spelling {
    /// Returns true if this spelling has the name, and applies under the personality.
    pub(super) fn is(&self, name: &str, personality: Personality) -> bool {
        self.names.contains(&name) && self.under(personality)
    }

    /// Returns true if this spelling applies under a personality.
    pub(super) fn under(&self, personality: Personality) -> bool {
        self.who.contains(&personality)
    }

    /// Returns true if this spelling has an effect, so that error messages may suggest it.
    pub(super) const fn is_offered(&self) -> bool {
        !matches!(
            self.means,
            Means::Ignored | Means::Conflict(_) | Means::Refused(_)
        )
    }

    /// Returns the translation for an error message.
    pub(super) fn meaning(&self) -> Option<String> {
        match self.means {
            Means::Same(flag) | Means::Plain(flag) => Some(format!("`--{flag}`")),
            Means::Fixed(flag, value) => Some(format!("`--{flag}={value}`")),
            Means::Each(_)
            | Means::Ignored
            | Means::Silent
            | Means::Only(..)
            | Means::Conflict(_)
            | Means::Refused(_) => None,
        }
    }
}

const ALL: &[Personality] = &Personality::ALL;
const PLAIN: &[Personality] = &[Personality::Rally];
const MPI: &[Personality] = &[Personality::Mpiexec, Personality::Mpirun];
const SRUN: &[Personality] = &[Personality::Srun];
const NOT_SRUN: &[Personality] = &[
    Personality::Rally,
    Personality::Mpiexec,
    Personality::Mpirun,
];

const fn row(
    who: &'static [Personality],
    names: &'static [&'static str],
    takes: Takes,
    means: Means,
) -> Spelling {
    Spelling {
        names,
        who,
        takes,
        means,
    }
}

const fn meaning(whose: &'static str, what: &'static str, ours: &'static str) -> Meaning {
    Meaning { whose, what, ours }
}

/// Returns all foreign spellings. The first matching row decides, and rows precede our own flags.
pub(super) fn spellings() -> impl Iterator<Item = &'static Spelling> {
    COMMON.iter().chain(launchers::ROWS).chain(srun::ROWS)
}

/// The spellings that several launchers share.
static COMMON: &[Spelling] = &[
    // Numbers of procs.
    row(ALL, &["ntasks"], One, Means::Same("np")),
    row(
        PLAIN,
        &["c"],
        One,
        Means::Conflict(&[
            meaning("mpirun", "the number of procs", "`-n N`"),
            meaning("srun", "CPUs for each proc", "`--map-by slot:PE=N`"),
        ]),
    ),
    // A set of acceptable numbers of procs. The largest one, which `-n` gives, is always acceptable.
    row(ALL, &["soft"], One, Means::Silent),
    row(
        PLAIN,
        &["N"],
        One,
        Means::Conflict(&[
            meaning("mpirun", "procs on each node", "`--per-node N`"),
            meaning("srun", "the number of nodes", "`--host LIST`"),
        ]),
    ),
    row(
        ALL,
        &["npernode", "ntasks-per-node"],
        One,
        Means::Same("per-node"),
    ),
    // When every node has its share, Hydra and Intel MPI continue with the first node.
    row(ALL, &["ppn", "perhost", "grr"], One, Means::Same("deal")),
    row(
        ALL,
        &["npersocket", "ntasks-per-socket"],
        One,
        Means::Each(rewrite::per_package),
    ),
    row(
        ALL,
        &["ntasks-per-core"],
        One,
        Means::Each(rewrite::per_core),
    ),
    row(ALL, &["arch"], One, Means::Ignored),
    // The program.
    row(ALL, &["wd"], One, Means::Same("wdir")),
    row(
        ALL,
        &["configfile", "file", "appfile"],
        One,
        Means::Same("app"),
    ),
    row(
        PLAIN,
        &["x"],
        One,
        Means::Conflict(&[
            meaning("mpirun", "export a variable", "`--set-env NAME[=VALUE]`"),
            meaning("srun", "hosts not to use", "`--host` with the others"),
        ]),
    ),
    row(
        ALL,
        &["prepend-env", "prepend-envar"],
        Pair,
        Means::Each(rewrite::prepend),
    ),
    row(
        ALL,
        &["append-env", "append-envar"],
        Pair,
        Means::Each(rewrite::append),
    ),
    row(ALL, &["unset-envar"], One, Means::Same("unset-env")),
    row(
        ALL,
        &["O", "overcommit"],
        Nothing,
        Means::Fixed("oversubscribe", "yes"),
    ),
    row(
        ALL,
        &["nooversubscribe", "no-oversubscribe"],
        Nothing,
        Means::Fixed("oversubscribe", "no"),
    ),
    row(ALL, &["display"], One, Means::Each(rewrite::display)),
    row(
        ALL,
        &["report-bindings"],
        Nothing,
        Means::Fixed("display", "bindings"),
    ),
    row(
        ALL,
        &[
            "display-map",
            "display-devel-map",
            "display-diffable-map",
            "print-rank-map",
        ],
        Nothing,
        Means::Fixed("display", "map"),
    ),
    row(
        ALL,
        &["display-topo"],
        Nothing,
        Means::Fixed("display", "map,bindings"),
    ),
    row(
        ALL,
        &["display-allocation", "display-devel-allocation"],
        Nothing,
        Means::Fixed("display", "allocation"),
    ),
    row(
        ALL,
        &["rtos", "runtime-options"],
        One,
        Means::Each(rewrite::runtime_options),
    ),
    row(
        ALL,
        &["do-not-launch", "donotlaunch", "test-only"],
        Nothing,
        Means::Plain("dry-run"),
    ),
    // Output and input.
    row(
        ALL,
        &["tag-output", "prepend-rank"],
        Nothing,
        Means::Fixed("label", "rank"),
    ),
    row(
        ALL,
        &["timestamp-output"],
        Nothing,
        Means::Fixed("timestamps", "yes"),
    ),
    row(
        ALL,
        &["merge-stderr-to-stdout"],
        Nothing,
        Means::Plain("merge-stderr"),
    ),
    row(
        PLAIN,
        &["output"],
        One,
        Means::Conflict(&[
            meaning(
                "mpirun",
                "directives such as `tag` and `file=`",
                "`--label`, `--timestamps`, `--output-file PATTERN`",
            ),
            meaning("srun", "a file for stdout", "`--output-file PATTERN`"),
        ]),
    ),
    row(ALL, &["pty"], Number, Means::Same("pty")),
    // Tuning options, which are common in scripts.
    row(
        ALL,
        &["mca", "omca", "gmca", "prtemca", "gprtemca", "orte-mca"],
        Pair,
        Means::Each(rewrite::mca),
    ),
    row(ALL, &["pmixmca", "gpmixmca"], Pair, Means::Ignored),
    // Without effect here: running as root needs no permission from the launcher.
    row(ALL, &["allow-run-as-root"], Nothing, Means::Silent),
];
