//! Options that Slurm cannot carry out, and what to do instead.

/// An option that Slurm cannot carry out.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct NotForSlurm {
    /// The option as typed.
    pub(crate) option: String,
    pub(crate) why: WhyNot,
}

/// Why Slurm cannot carry out an option.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum WhyNot {
    /// A file of hosts.
    Hostfile,
    /// It chooses from an allocation that exists.
    Allocated,
    OnMachine,
    Fork,
    /// The way of another resource manager to start daemons.
    OtherManager,
    Explain,
    Terminal,
    /// CPU time is limited by whole CPUs.
    CpuTime,
    /// Slurm has no one word for what a node has.
    RankResource,
    Raised,
    Relative,
    UnevenSlots,
    Backslash,
    Control,
    /// Procs are counted by nodes whose number is not known.
    NoCount,
    /// Procs are counted by objects whose number is not known.
    Objects,
    /// The programs count their procs differently.
    Mixed,
    /// Several jobs.
    Several,
    /// An option of ours means the same.
    Ours(&'static str),
    Disturbing,
    /// The next option would become the value of this one.
    NoValue,
}

impl WhyNot {
    #[cfg(test)]
    pub(crate) const ALL: [Self; 21] = [
        Self::Hostfile,
        Self::Allocated,
        Self::OnMachine,
        Self::Fork,
        Self::OtherManager,
        Self::Explain,
        Self::Terminal,
        Self::CpuTime,
        Self::RankResource,
        Self::Raised,
        Self::Relative,
        Self::UnevenSlots,
        Self::Backslash,
        Self::Control,
        Self::NoCount,
        Self::Objects,
        Self::Mixed,
        Self::Several,
        Self::Ours("--time"),
        Self::Disturbing,
        Self::NoValue,
    ];

    pub(crate) const fn reason(self) -> &'static str {
        match self {
            Self::Hostfile => {
                "Slurm knows its nodes and their slots, and chooses among them itself"
            }
            Self::Allocated => {
                "it is about nodes that are allocated already, and Slurm chooses new ones"
            }
            Self::OnMachine => "the job runs in an allocation of its own, and on no machine",
            Self::Fork => {
                "the job runs on nodes of Slurm, and not on nodes for which this one stands"
            }
            Self::OtherManager => "the job runs in an allocation of Slurm",
            Self::Explain => "the nodes are not known before the job starts",
            Self::Terminal => "a submitted job has no terminal",
            Self::CpuTime => "Slurm gives a job whole CPUs, and itself keeps the job on these",
            Self::RankResource => "Slurm names what its nodes have in its own way",
            Self::Raised => "only administrators of Slurm may put a job before those of others",
            Self::Relative => {
                "it counts nodes of an allocation that exists, and Slurm makes a new one"
            }
            Self::UnevenSlots => "Slurm gives the same number of slots on every node",
            Self::Backslash => "Slurm takes no patterns in a name with a backslash",
            Self::Control => "Slurm's listings have one line for each job",
            Self::NoCount => "Slurm has to know the number of procs or of nodes beforehand",
            Self::Objects => "the number of these objects is not known before the job starts",
            Self::Mixed => "Slurm has one such number for all programs of a job",
            Self::Several => "each line would be a job of its own, and Slurm has arrays for many",
            Self::Ours(_) => "`rally` translates its own option into this one",
            Self::Disturbing => "it would change what `rally` submits, or what `sbatch` answers",
            Self::NoValue => "it has no value, and `sbatch` might take the next option for one",
        }
    }

    pub(crate) fn help(self) -> String {
        match self {
            Self::Hostfile | Self::Relative => {
                "name the nodes with `--host`, or only say how many: `--nodes N`".to_owned()
            }
            Self::Allocated | Self::OnMachine | Self::Fork | Self::OtherManager => "leave it out".to_owned(),
            Self::Explain => "`--dry-run` shows what would be submitted".to_owned(),
            Self::Terminal => "leave it out, or use `rally run` under `salloc`".to_owned(),
            Self::CpuTime => "leave it out, or say how many CPUs each proc gets: `--map-by slot:PE=N`".to_owned(),
            Self::RankResource => {
                "name it as Slurm does: `--slurm-option=tres-per-task=gres/NAME:N`".to_owned()
            }
            Self::Raised => {
                "a priority below 0 lets others go first; `--slurm-option=qos=NAME` chooses a class of jobs".to_owned()
            }
            Self::UnevenSlots => "give the number of procs: `-n N`".to_owned(),
            Self::Backslash | Self::Control => "choose another name".to_owned(),
            Self::NoCount => "add `-n N` for each program, or `--nodes N`".to_owned(),
            Self::Objects => "add `-n N` and `--nodes N`, or use `--per-node N`".to_owned(),
            Self::Mixed => "submit the programs as jobs of their own, or give `-n N` alone".to_owned(),
            Self::Several => "use `--array`, and choose the line by RALLY_ARRAY_INDEX".to_owned(),
            Self::Ours(option) => format!("use `{option}`"),
            Self::Disturbing => "leave it out".to_owned(),
            Self::NoValue => "give the value in the same word: `--slurm-option NAME=VALUE`".to_owned(),
        }
    }
}
