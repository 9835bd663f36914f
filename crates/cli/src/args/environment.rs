//! The environment of the ranks: ours, changed by rules in their given order.

use std::{
    collections::BTreeMap,
    ffi::{OsStr, OsString},
    os::unix::ffi::{OsStrExt, OsStringExt},
};

use dvm::spec::{Elsewhere, NodeVariables};

use super::{
    Error,
    compat::{Canonical, split_once},
};
use crate::values::ValueError;

/// The variables that a launcher sets for its own ranks. If we inherit them from an enclosing launcher and pass them on, our
/// ranks would connect to the wrong server or take a wrong rank. A final `*` stands for any suffix.
const FOREIGN: [&str; 54] = [
    "HYDI_CONTROL_FD",
    "MPI_LOCALNRANKS",
    "MPI_LOCALRANKID",
    "OMPI_APP_CTX_NUM_PROCS",
    "OMPI_ARGV",
    "OMPI_COMMAND",
    "OMPI_COMM_WORLD_*",
    "OMPI_FILE_LOCATION",
    "OMPI_FIRST_RANKS",
    "OMPI_MCA_ess",
    "OMPI_MCA_ess_base_*",
    "OMPI_MCA_initial_wdir",
    "OMPI_MCA_mpi_oversubscribe",
    "OMPI_MCA_num_procs",
    "OMPI_MCA_orte_app_num",
    "OMPI_MCA_orte_ess_*",
    "OMPI_MCA_orte_hnp_uri",
    "OMPI_MCA_orte_jobfam_session_dir",
    "OMPI_MCA_orte_launch",
    "OMPI_MCA_orte_local_daemon_uri",
    "OMPI_MCA_orte_num_nodes",
    "OMPI_MCA_orte_precondition_transports",
    "OMPI_MCA_orte_top_session_dir",
    "OMPI_NUM_APP_CTX",
    "OMPI_UNIVERSE_SIZE",
    "OMPI_WORLD_LOCAL_SIZE",
    "OMPI_WORLD_SIZE",
    "PMIX_BFROP_BUFFER_TYPE",
    "PMIX_DSTORE_*",
    "PMIX_GDS_MODULE",
    "PMIX_HOSTNAME",
    "PMIX_ID",
    "PMIX_KEEPALIVE_PIPE",
    "PMIX_LAUNCHER_*",
    "PMIX_NAMESPACE",
    "PMIX_PTL_MODULE",
    "PMIX_RANK",
    "PMIX_SECURITY_MODE",
    "PMIX_SERVER_*",
    "PMIX_VERSION",
    "PMI_*",
    "RALLY_ARRAY_INDEX",
    "RALLY_JOB",
    "RALLY_LOCAL_*",
    "RALLY_NODE",
    "RALLY_OWNER",
    "RALLY_PRELOAD_DIR",
    "RALLY_QUEUE_JOB",
    "RALLY_RANK",
    "RALLY_SIZE",
    "RALLY_TOOL_*",
    "SLURM_LOCALID",
    "SLURM_NODEID",
    "SLURM_PROCID",
];

/// The variables that describe a host, or the user's session on it, and mean nothing on other hosts. A final `*` stands for any
/// suffix.
const OF_A_HOST: [&str; 17] = [
    "DBUS_SESSION_BUS_ADDRESS",
    "DISPLAY",
    "HOST",
    "HOSTNAME",
    "SSH_AGENT_PID",
    "SSH_AUTH_SOCK",
    "SSH_CLIENT",
    "SSH_CONNECTION",
    "SSH_TTY",
    "STY",
    "TMUX*",
    "WAYLAND_DISPLAY",
    "XAUTHORITY",
    "XDG_RUNTIME_DIR",
    "XDG_SEAT",
    "XDG_SESSION_*",
    "XDG_VTNR",
];

/// The variables that a way to start daemons sets for itself on their nodes: ranks have others, or none.
const OF_A_STARTER: [&str; 6] = ["OLDPWD", "PWD", "SHLVL", "SLURM_*", "SRUN_*", "_"];

/// Returns true for a variable that describes a host, or the user's session on it.
pub(crate) fn is_of_a_host(name: &OsStr) -> bool {
    is_any(&OF_A_HOST, name)
}

/// Returns those variables of a node that its ranks may get.
pub(crate) fn of_node(
    all: impl Iterator<Item = (OsString, OsString)>,
) -> Vec<(OsString, OsString)> {
    all.filter(|(name, _)| !is_any(&FOREIGN, name) && !is_any(&OF_A_STARTER, name))
        .collect()
}

fn is_any(patterns: &[&str], name: &OsStr) -> bool {
    let name = name.as_bytes();
    patterns
        .iter()
        .any(|pattern| match pattern.strip_suffix('*') {
            Some(prefix) => name.starts_with(prefix.as_bytes()),
            None => name == pattern.as_bytes(),
        })
}

/// Returns true for a variable that an enclosing launcher sets for its own ranks: it is not an input variable for us.
pub(super) fn is_of_an_enclosing_launcher(name: &str) -> bool {
    is_any(&FOREIGN, OsStr::new(name))
}

/// The variables of our own environment, by name.
pub(crate) type Variables = BTreeMap<OsString, OsString>;

/// The variables that the ranks inherit from us, before any rule.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) enum Inherit {
    #[default]
    All,
    None,
    Names(Vec<NamePattern>),
}

/// A name, or a prefix of names.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum NamePattern {
    Name(OsString),
    Prefix(OsString),
}

/// A change of the environment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum EnvRule {
    Set {
        name: OsString,
        value: OsString,
    },
    /// Sets a variable that is not set.
    Add {
        name: OsString,
        value: OsString,
    },
    /// Passes our value on; needed only if not everything is inherited.
    Pass(NamePattern),
    Unset(NamePattern),
    Prepend {
        name: OsString,
        separator: OsString,
        value: OsString,
    },
    Append {
        name: OsString,
        separator: OsString,
        value: OsString,
    },
}

/// All options about the environment of an app.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct EnvRules {
    pub(crate) inherit: Inherit,
    pub(crate) rules: Vec<EnvRule>,
}

impl NamePattern {
    fn new(text: &[u8]) -> Self {
        match text.strip_suffix(b"*") {
            Some(prefix) => Self::Prefix(OsString::from_vec(prefix.to_vec())),
            None => Self::Name(OsString::from_vec(text.to_vec())),
        }
    }

    /// Returns the pattern as it is written.
    fn text(&self) -> OsString {
        match self {
            Self::Name(name) => name.clone(),
            Self::Prefix(prefix) => joined(&[prefix, &OsString::from("*")]),
        }
    }

    fn matches(&self, name: &OsStr) -> bool {
        match self {
            Self::Name(wanted) => wanted == name,
            Self::Prefix(prefix) => name.as_bytes().starts_with(prefix.as_bytes()),
        }
    }
}

impl EnvRule {
    fn concerns(&self, wanted: &OsStr) -> bool {
        match self {
            Self::Set { name, .. }
            | Self::Add { name, .. }
            | Self::Prepend { name, .. }
            | Self::Append { name, .. } => name == wanted,
            Self::Pass(pattern) | Self::Unset(pattern) => pattern.matches(wanted),
        }
    }
}

impl EnvRules {
    /// Extracts the rules from the options of an app, in their order.
    pub(super) fn read(options: &[Canonical]) -> Result<Self, Error> {
        let mut all = Self::default();
        for option in options {
            let Some(value) = &option.value else { continue };
            let bad = |reason| Error::BadValue {
                option: option.typed.clone(),
                value: value.to_string_lossy().into_owned(),
                reason,
            };
            let bytes = value.as_bytes();
            match option.flag.as_str() {
                "inherit-env" => all.inherit = inherit(bytes),
                "set-env" => all.rules.push(match split_once(value, b'=') {
                    Some((name, value)) => EnvRule::Set {
                        name: checked(name).map_err(bad)?,
                        value,
                    },
                    None if bytes.is_empty() => return Err(bad(ValueError::BadVariable)),
                    None => EnvRule::Pass(NamePattern::new(bytes)),
                }),
                "add-env" => {
                    let (name, value) =
                        split_once(value, b'=').ok_or_else(|| bad(ValueError::NoAssignment))?;
                    all.rules.push(EnvRule::Add {
                        name: checked(name).map_err(bad)?,
                        value,
                    });
                }
                "unset-env" if bytes.is_empty() || bytes.contains(&b'=') => {
                    return Err(bad(ValueError::BadVariable));
                }
                "unset-env" => all.rules.push(EnvRule::Unset(NamePattern::new(bytes))),
                "prepend-env" => {
                    let (name, separator, value) = joining(value).map_err(bad)?;
                    all.rules.push(EnvRule::Prepend {
                        name,
                        separator,
                        value,
                    });
                }
                "append-env" => {
                    let (name, separator, value) = joining(value).map_err(bad)?;
                    all.rules.push(EnvRule::Append {
                        name,
                        separator,
                        value,
                    });
                }
                _ => {}
            }
        }
        Ok(all)
    }

    /// Returns the environment of the ranks. Variables of an enclosing launcher are removed first, so that a rule may still
    /// set them.
    pub(crate) fn apply(&self, ours: &Variables) -> Variables {
        let foreign = FOREIGN.map(|name| NamePattern::new(name.as_bytes()));
        let mut variables: Variables = ours
            .iter()
            .filter(|(name, _)| match &self.inherit {
                Inherit::All => true,
                Inherit::None => false,
                Inherit::Names(names) => names.iter().any(|wanted| wanted.matches(name)),
            })
            .filter(|(name, _)| !foreign.iter().any(|pattern| pattern.matches(name)))
            .map(|(name, value)| (name.clone(), value.clone()))
            .collect();
        for rule in &self.rules {
            match rule {
                EnvRule::Set { name, value } => {
                    variables.insert(name.clone(), value.clone());
                }
                EnvRule::Add { name, value } => {
                    variables
                        .entry(name.clone())
                        .or_insert_with(|| value.clone());
                }
                EnvRule::Pass(pattern) => {
                    let passed = ours.iter().filter(|(name, _)| pattern.matches(name));
                    variables.extend(passed.map(|(name, value)| (name.clone(), value.clone())));
                }
                EnvRule::Unset(pattern) => variables.retain(|name, _| !pattern.matches(name)),
                EnvRule::Prepend {
                    name,
                    separator,
                    value,
                } => match variables.get_mut(name) {
                    Some(old) => *old = joined(&[value, separator, old]),
                    None => drop(variables.insert(name.clone(), value.clone())),
                },
                EnvRule::Append {
                    name,
                    separator,
                    value,
                } => match variables.get_mut(name) {
                    Some(old) => *old = joined(&[old, separator, value]),
                    None => drop(variables.insert(name.clone(), value.clone())),
                },
            }
        }
        variables
    }

    /// Returns how the environment differs on other hosts, for the environment that [`Self::apply`] returned.
    pub(crate) fn elsewhere(&self, variables: &Variables) -> Elsewhere {
        // A display that names a host can be used from everywhere.
        let is_local = |name: &OsStr, value: &OsStr| {
            name != "DISPLAY" || {
                let host = value.as_bytes().split(|byte| *byte == b':').next();
                matches!(host, Some(b"" | b"localhost" | b"127.0.0.1" | b"unix"))
            }
        };
        // What the user has named is passed on.
        let is_ruled = |name: &OsStr| {
            matches!(self.inherit, Inherit::Names(_))
                || self.rules.iter().any(|rule| rule.concerns(name))
        };
        let own = variables
            .iter()
            .filter(|(name, value)| is_of_a_host(name) && is_local(name, value) && !is_ruled(name));
        let unset = self.rules.iter().filter_map(|rule| match rule {
            EnvRule::Unset(pattern) => Some(pattern.text()),
            _ => None,
        });
        Elsewhere {
            own: own.map(|(name, _)| name.clone()).collect(),
            more: match self.inherit {
                Inherit::All => NodeVariables::AllExcept(unset.collect()),
                Inherit::None | Inherit::Names(_) => NodeVariables::None,
            },
        }
    }

    /// Returns true if a rule concerns this name.
    pub(crate) fn names(&self, wanted: &str) -> bool {
        let wanted = OsStr::new(wanted);
        self.rules.iter().any(|rule| rule.concerns(wanted))
    }

    /// Returns the names that a rule passes on although we have no such variable.
    pub(crate) fn missing<'a>(&'a self, ours: &'a Variables) -> impl Iterator<Item = &'a OsStr> {
        self.rules.iter().filter_map(|rule| match rule {
            EnvRule::Pass(NamePattern::Name(name)) if !ours.contains_key(name) => {
                Some(name.as_os_str())
            }
            _ => None,
        })
    }
}

fn joined(parts: &[&OsString]) -> OsString {
    let mut out = OsString::new();
    for part in parts {
        out.push(part);
    }
    out
}

/// Parses `all`, `none`, or names separated by commas.
fn inherit(text: &[u8]) -> Inherit {
    match text {
        b"all" | b"ALL" => Inherit::All,
        b"none" | b"NONE" => Inherit::None,
        _ => {
            let names = text
                .split(|byte| *byte == b',')
                .filter(|name| !name.is_empty());
            Inherit::Names(names.map(NamePattern::new).collect())
        }
    }
}

/// Returns the name if a variable can have it.
fn checked(name: OsString) -> Result<OsString, ValueError> {
    if name.is_empty() || name.as_bytes().contains(&b'=') {
        Err(ValueError::BadVariable)
    } else {
        Ok(name)
    }
}

/// Parses `NAME[SEPARATOR]=VALUE`; without brackets the separator is a colon.
fn joining(text: &OsStr) -> Result<(OsString, OsString, OsString), ValueError> {
    let bytes = text.as_bytes();
    let owned = |bytes: &[u8]| OsString::from_vec(bytes.to_vec());
    let open = bytes
        .iter()
        .position(|byte| matches!(byte, b'[' | b'='))
        .ok_or(ValueError::NoSeparator)?;
    let (name, rest) = bytes.split_at(open);
    let name = checked(owned(name))?;
    if let Some(value) = rest.strip_prefix(b"=") {
        return Ok((name, OsString::from(":"), owned(value)));
    }
    // The separator itself may be a bracket or an equals sign: `]=` ends it.
    let end = rest
        .windows(2)
        .position(|pair| pair == b"]=")
        .ok_or(ValueError::NoSeparator)?;
    let separator = rest.get(1..end).ok_or(ValueError::NoSeparator)?;
    let value = rest.get(end + 2..).ok_or(ValueError::NoSeparator)?;
    Ok((name, owned(separator), owned(value)))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ours() -> Variables {
        [
            ("A", "1"),
            ("AB", "2"),
            ("PATH", "/bin"),
            ("EMPTY", ""),
            ("PMI_RANK", "7"),
            ("PMIX_RANK", "7"),
            ("PMIX_MCA_ptl_base_verbose", "5"),
            ("OMPI_COMM_WORLD_RANK", "7"),
            ("OMPI_MCA_orte_hnp_uri", "7.0"),
            ("OMPI_MCA_btl", "self"),
            ("RALLY_RANK", "7"),
            ("RALLY_GRACE", "1"),
            ("HYDI_CONTROL_FD", "9"),
        ]
        .map(|(name, value)| (name.into(), value.into()))
        .into()
    }

    fn applied(options: &[(&str, &str)]) -> String {
        let options: Vec<_> = options
            .iter()
            .map(|(flag, value)| Canonical {
                flag: (*flag).into(),
                value: Some(value.into()),
                typed: format!("--{flag}"),
            })
            .collect();
        match EnvRules::read(&options) {
            Ok(rules) => {
                let applied = rules.apply(&ours());
                applied
                    .iter()
                    .map(|(name, value)| format!("{}={}", name.display(), value.display()))
                    .collect::<Vec<_>>()
                    .join(" ")
            }
            Err(error) => error.to_string(),
        }
    }

    #[test]
    fn rules_apply_in_order() {
        let cases: &[(&[(&str, &str)], &str)] = &[
            (
                &[],
                "A=1 AB=2 EMPTY= OMPI_MCA_btl=self PATH=/bin PMIX_MCA_ptl_base_verbose=5 RALLY_GRACE=1",
            ),
            (&[("inherit-env", "none")], ""),
            (&[("inherit-env", "none"), ("set-env", "A")], "A=1"),
            (&[("inherit-env", "none"), ("set-env", "A*")], "A=1 AB=2"),
            (
                &[("inherit-env", "A,P*")],
                "A=1 PATH=/bin PMIX_MCA_ptl_base_verbose=5",
            ),
            // The inherited variables come first, wherever the option is.
            (&[("set-env", "X=y=z"), ("inherit-env", "none")], "X=y=z"),
            (
                &[
                    ("inherit-env", "PATH"),
                    ("prepend-env", "PATH[:]=/a"),
                    ("append-env", "PATH=/z"),
                ],
                "PATH=/a:/bin:/z",
            ),
            (
                &[("inherit-env", "PATH"), ("prepend-env", "PATH[]]=/a")],
                "PATH=/a]/bin",
            ),
            (
                &[("inherit-env", "none"), ("prepend-env", "NEW[;]=v")],
                "NEW=v",
            ),
            (
                &[
                    ("inherit-env", "A*"),
                    ("unset-env", "A"),
                    ("set-env", "A=3"),
                    ("unset-env", "AB*"),
                ],
                "A=3",
            ),
            (
                &[("inherit-env", "none"), ("set-env", "PMI_RANK=1")],
                "PMI_RANK=1",
            ),
            (
                &[
                    ("inherit-env", "A,EMPTY"),
                    ("add-env", "A=3"),
                    ("add-env", "EMPTY=3"),
                    ("add-env", "NEW=x=y"),
                    ("add-env", "NEW=z"),
                    ("unset-env", "A"),
                    ("add-env", "A=4"),
                ],
                "A=4 EMPTY= NEW=x=y",
            ),
            (
                &[("add-env", "A")],
                "`--add-env` cannot be `A`: it is not of the form `NAME=VALUE`",
            ),
            (
                &[("add-env", "=x")],
                "`--add-env` cannot be `=x`: the name of a variable may not be empty or contain `=`",
            ),
            (
                &[("set-env", "=x")],
                "`--set-env` cannot be `=x`: the name of a variable may not be empty or contain `=`",
            ),
            (
                &[("set-env", "")],
                "`--set-env` cannot be ``: the name of a variable may not be empty or contain `=`",
            ),
            (
                &[("unset-env", "A=1")],
                "`--unset-env` cannot be `A=1`: the name of a variable may not be empty or contain `=`",
            ),
            (
                &[("append-env", "A")],
                "`--append-env` cannot be `A`: it is not of the form `NAME[SEPARATOR]=VALUE`",
            ),
            (
                &[("append-env", "A[:")],
                "`--append-env` cannot be `A[:`: it is not of the form `NAME[SEPARATOR]=VALUE`",
            ),
        ];
        for (options, expected) in cases {
            assert_eq!(applied(options), *expected, "{options:?}");
        }
    }
}
