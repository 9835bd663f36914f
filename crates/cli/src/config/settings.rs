//! The settings, and the precedence of their sources.

use std::{collections::BTreeMap, fmt, path::PathBuf, time::Duration};

use clap::ValueEnum;
use dvm::{bootstrap::TreeStart, spec::OnFailure};

use crate::{
    choices::{
        DebuggerLoss, LabelChoice, LineBuffered, NodeLoss, OnHang, OnLoss, Oversubscribe, Switch,
    },
    remote::{self, Words},
    values::{self, ValueError},
};

/// The name of a setting. It is the key in files, and with `RALLY_` and underscores the variable.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Key {
    BindTo,
    BootstrapCommand,
    Grace,
    Hostfile,
    KillOnBadExit,
    Label,
    LineBuffered,
    MapBy,
    OnDebuggerLoss,
    OnHang,
    OnHangup,
    OnMachine,
    OnNodeLoss,
    OnOutputClosed,
    Oversubscribe,
    Quiet,
    RankBy,
    Ssh,
    Timeout,
    Timestamps,
    TreeStart,
}

impl Key {
    /// All keys, in the order of their names.
    pub(crate) const ALL: [Self; 21] = [
        Self::BindTo,
        Self::BootstrapCommand,
        Self::Grace,
        Self::Hostfile,
        Self::KillOnBadExit,
        Self::Label,
        Self::LineBuffered,
        Self::MapBy,
        Self::OnDebuggerLoss,
        Self::OnHang,
        Self::OnHangup,
        Self::OnMachine,
        Self::OnNodeLoss,
        Self::OnOutputClosed,
        Self::Oversubscribe,
        Self::Quiet,
        Self::RankBy,
        Self::Ssh,
        Self::Timeout,
        Self::Timestamps,
        Self::TreeStart,
    ];

    /// Returns the name in files and, after two hyphens, on the command line.
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::BindTo => "bind-to",
            Self::BootstrapCommand => "bootstrap-command",
            Self::Grace => "grace",
            Self::Hostfile => "hostfile",
            Self::KillOnBadExit => "kill-on-bad-exit",
            Self::Label => "label",
            Self::LineBuffered => "line-buffered",
            Self::MapBy => "map-by",
            Self::OnDebuggerLoss => "on-debugger-loss",
            Self::OnHang => "on-hang",
            Self::OnHangup => "on-hangup",
            Self::OnMachine => "on-machine",
            Self::OnNodeLoss => "on-node-loss",
            Self::OnOutputClosed => "on-output-closed",
            Self::Oversubscribe => "oversubscribe",
            Self::Quiet => "quiet",
            Self::RankBy => "rank-by",
            Self::Ssh => "ssh",
            Self::Timeout => "timeout",
            Self::Timestamps => "timestamps",
            Self::TreeStart => "tree-start",
        }
    }

    pub(crate) fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|key| key.name() == name)
    }

    /// Returns the environment variables that set this key, in ascending order of precedence.
    pub(crate) const fn variables(self) -> &'static [&'static str] {
        match self {
            Self::BindTo => &["RALLY_BIND_TO"],
            Self::BootstrapCommand => &["RALLY_BOOTSTRAP_COMMAND"],
            Self::Grace => &["RALLY_GRACE"],
            Self::Hostfile => &["RALLY_HOSTFILE"],
            Self::KillOnBadExit => &["RALLY_KILL_ON_BAD_EXIT"],
            Self::Label => &["RALLY_LABEL"],
            Self::LineBuffered => &["RALLY_LINE_BUFFERED"],
            Self::MapBy => &["RALLY_MAP_BY"],
            Self::OnDebuggerLoss => &["RALLY_ON_DEBUGGER_LOSS"],
            Self::OnHang => &["RALLY_ON_HANG"],
            Self::OnHangup => &["RALLY_ON_HANGUP"],
            Self::OnMachine => &["RALLY_MACHINE"],
            Self::OnNodeLoss => &["RALLY_ON_NODE_LOSS"],
            Self::OnOutputClosed => &["RALLY_ON_OUTPUT_CLOSED"],
            Self::Oversubscribe => &["RALLY_OVERSUBSCRIBE"],
            Self::Quiet => &["RALLY_QUIET"],
            Self::RankBy => &["RALLY_RANK_BY"],
            Self::Ssh => &["RALLY_SSH"],
            // `MPIEXEC_TIMEOUT` is the MPI implementations' own variable, which scripts for them set.
            Self::Timeout => &["MPIEXEC_TIMEOUT", "RALLY_TIMEOUT"],
            Self::Timestamps => &["RALLY_TIMESTAMPS"],
            Self::TreeStart => &["RALLY_TREE_START"],
        }
    }

    /// Returns the default value as text; empty if there is none.
    const fn built_in(self) -> &'static str {
        match self {
            Self::BindTo
            | Self::BootstrapCommand
            | Self::Hostfile
            | Self::MapBy
            | Self::OnMachine
            | Self::OnNodeLoss
            | Self::RankBy
            | Self::Timeout => "",
            Self::Grace => "5",
            Self::KillOnBadExit => "yes",
            Self::Label => "none",
            Self::OnDebuggerLoss => "release",
            Self::OnHang => "nothing",
            Self::OnHangup | Self::OnOutputClosed => "end",
            Self::LineBuffered | Self::Oversubscribe => "auto",
            Self::Quiet | Self::Timestamps => "no",
            Self::Ssh => "ssh",
            Self::TreeStart => values::TREE_START,
        }
    }
}

/// The source of a value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Source {
    BuiltIn,
    File {
        path: PathBuf,
        line: usize,
    },
    Environment(&'static str),
    /// An option, as typed.
    CommandLine(String),
}

impl fmt::Display for Source {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::BuiltIn => f.write_str("built-in"),
            Self::File { path, line } => write!(f, "{}:{line}", path.display()),
            Self::Environment(name) => write!(f, "environment, {name}"),
            Self::CommandLine(option) => write!(f, "command line, {option}"),
        }
    }
}

/// A value and its source.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Setting<T> {
    pub(crate) value: T,
    pub(crate) source: Source,
}

/// All settings, with their final values.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Settings {
    pub(crate) bind_to: Setting<Option<String>>,
    pub(crate) bootstrap_command: Setting<Option<Words>>,
    pub(crate) grace: Setting<Duration>,
    pub(crate) hostfile: Setting<Option<PathBuf>>,
    pub(crate) kill_on_bad_exit: Setting<Switch>,
    pub(crate) label: Setting<LabelChoice>,
    pub(crate) line_buffered: Setting<LineBuffered>,
    pub(crate) map_by: Setting<Option<String>>,
    pub(crate) on_debugger_loss: Setting<DebuggerLoss>,
    pub(crate) on_hang: Setting<OnHang>,
    pub(crate) on_hangup: Setting<OnLoss>,
    pub(crate) on_machine: Setting<Option<String>>,
    /// `None`: as [`Self::kill_on_bad_exit`].
    pub(crate) on_node_loss: Setting<Option<NodeLoss>>,
    pub(crate) on_output_closed: Setting<OnLoss>,
    pub(crate) oversubscribe: Setting<Oversubscribe>,
    pub(crate) quiet: Setting<Switch>,
    pub(crate) rank_by: Setting<Option<String>>,
    pub(crate) ssh: Setting<Words>,
    pub(crate) timeout: Setting<Option<Duration>>,
    pub(crate) timestamps: Setting<Switch>,
    pub(crate) tree_start: Setting<TreeStart>,
}

impl Settings {
    /// Returns what happens when a node is lost.
    pub(crate) const fn node_loss(&self) -> OnFailure {
        match (self.on_node_loss.value, self.kill_on_bad_exit.value) {
            (Some(NodeLoss::Abort), _) | (None, Switch::Yes) => OnFailure::EndJob,
            (Some(NodeLoss::Continue), _) | (None, Switch::No) => OnFailure::Continue,
        }
    }

    /// Returns when daemons start others. A daemon that others have started can end with them: when their ssh ends, some systems
    /// kill all processes of the login. So a job that goes on without lost nodes has tree starts only if the user asks.
    pub(crate) fn tree_start(&self) -> TreeStart {
        match (&self.tree_start.source, self.node_loss()) {
            (Source::BuiltIn, OnFailure::Continue) => TreeStart::Never,
            _ => self.tree_start.value,
        }
    }
}

/// The value of each setting as text, from the source with the highest precedence so far.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Layers {
    values: BTreeMap<Key, (String, Source)>,
}

/// A value that its setting does not accept.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct BadSetting {
    pub(crate) key: Key,
    pub(crate) value: String,
    pub(crate) source: Source,
    pub(crate) reason: ValueError,
}

impl Layers {
    /// Returns the built-in values.
    pub(crate) fn built_in() -> Self {
        Self {
            values: Key::ALL
                .map(|key| (key, (key.built_in().to_owned(), Source::BuiltIn)))
                .into(),
        }
    }

    /// Overrides the value of one setting.
    pub(crate) fn set(&mut self, key: Key, value: impl Into<String>, source: Source) {
        self.values.insert(key, (value.into(), source));
    }

    /// Overrides settings by the variables of an environment. An empty variable has no effect.
    pub(crate) fn environment<'a>(&mut self, lookup: impl Fn(&str) -> Option<&'a str>) {
        for key in Key::ALL {
            for name in key.variables() {
                if let Some(value) = lookup(name).filter(|value| !value.is_empty()) {
                    self.set(key, value, Source::Environment(name));
                }
            }
        }
    }

    /// Returns the value of each key, as text, and its source, in the order of the keys.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (Key, &str, &Source)> {
        self.values
            .iter()
            .map(|(key, (value, source))| (*key, value.as_str(), source))
    }

    /// Parses all values.
    pub(crate) fn parse(&self) -> Result<Settings, BadSetting> {
        Ok(Settings {
            bind_to: self.read(Key::BindTo, word)?,
            bootstrap_command: self.read(Key::BootstrapCommand, remote::template)?,
            grace: self.read(Key::Grace, values::time)?,
            hostfile: self.read(Key::Hostfile, |text| Ok(word(text)?.map(PathBuf::from)))?,
            kill_on_bad_exit: self.read(Key::KillOnBadExit, choice)?,
            label: self.read(Key::Label, choice)?,
            line_buffered: self.read(Key::LineBuffered, choice)?,
            map_by: self.read(Key::MapBy, word)?,
            on_debugger_loss: self.read(Key::OnDebuggerLoss, choice)?,
            on_hang: self.read(Key::OnHang, values::on_hang)?,
            on_hangup: self.read(Key::OnHangup, choice)?,
            on_machine: self.read(Key::OnMachine, |text| {
                word(text)?.map(|text| values::machine(&text)).transpose()
            })?,
            on_node_loss: self.read(Key::OnNodeLoss, |text| {
                word(text)?.map(|text| choice(&text)).transpose()
            })?,
            on_output_closed: self.read(Key::OnOutputClosed, choice)?,
            oversubscribe: self.read(Key::Oversubscribe, choice)?,
            quiet: self.read(Key::Quiet, choice)?,
            rank_by: self.read(Key::RankBy, word)?,
            ssh: self.read(Key::Ssh, remote::ssh)?,
            timeout: self.read(Key::Timeout, |text| {
                word(text)?.map(|text| values::time(&text)).transpose()
            })?,
            timestamps: self.read(Key::Timestamps, choice)?,
            tree_start: self.read(Key::TreeStart, values::tree_start)?,
        })
    }

    fn read<T>(
        &self,
        key: Key,
        parse: impl FnOnce(&str) -> Result<T, ValueError>,
    ) -> Result<Setting<T>, BadSetting> {
        let (text, source) = match self.values.get(&key) {
            Some((text, source)) => (text.as_str(), source.clone()),
            None => (key.built_in(), Source::BuiltIn),
        };
        match parse(text) {
            Ok(value) => Ok(Setting { value, source }),
            Err(reason) => Err(BadSetting {
                key,
                value: text.to_owned(),
                source,
                reason,
            }),
        }
    }
}

/// Returns the text, or `None` if it is empty.
#[expect(
    clippy::unnecessary_wraps,
    reason = "it stands where other readers of settings stand, which can fail"
)]
fn word(text: &str) -> Result<Option<String>, ValueError> {
    Ok(if text.is_empty() {
        None
    } else {
        Some(text.to_owned())
    })
}

/// Parses a value of an enumeration.
pub(crate) fn choice<T: ValueEnum>(text: &str) -> Result<T, ValueError> {
    let names = || {
        T::value_variants()
            .iter()
            .filter_map(ValueEnum::to_possible_value)
    };
    T::from_str(text, true)
        .map_err(|_| ValueError::NotOneOf(names().map(|name| name.get_name().to_owned()).collect()))
}
