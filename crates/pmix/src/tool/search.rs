//! The search of a tool for its server (docs/formats/pmix.md, section 4.2).
//!
//! This module decides, and the caller does the I/O. [`plan`] returns the steps in order. For a [`Step::Scan`] the caller lists a
//! directory, passes each name to [`Pattern::matches`], reads the matching files, and calls [`choose`].
//!
//! libpmix compares only the beginnings of names, so that pid 12 also finds the server with pid 123. It also counts the files of
//! dead servers, so that one such file makes the search fail. Here a name must match as a whole, and a file counts only while its
//! server runs. The file must also belong to the user or to root, because any user can write a file into `/tmp`.

use std::{fmt, time::Duration};

use super::Rendezvous;
use crate::client::{ServerUri, UriError};

/// Instructions for the search. The default is to take the only server there is.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Wish {
    /// Address of the server, or `file:PATH` (`PMIX_SERVER_URI`, `PMIX_TCP_URI`).
    pub uri: Option<String>,
    /// Path of a file with the address (`PMIX_TOOL_ATTACHMENT_FILE`).
    pub attach: Option<String>,
    /// Servers to try first, in this order (`PMIX_CONNECT_TO_SYSTEM` and the like, `PMIX_CONNECTION_ORDER`).
    pub order: Vec<WellKnown>,
    /// What follows when none of `order` was found.
    pub after: After,
    /// Pid of the server (`PMIX_SERVER_PIDINFO`).
    pub pid: Option<u32>,
    /// Namespace of the server (`PMIX_SERVER_NSPACE`).
    pub nspace: Option<String>,
    /// What happens if a scan finds several servers.
    pub several: Several,
    /// How long to wait for a server that is not there yet.
    pub retry: Retry,
}

/// Server that has one file on each node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WellKnown {
    System,
    Scheduler,
    SystemController,
}

impl WellKnown {
    const fn prefix(self) -> &'static str {
        match self {
            Self::System => "pmix.sys",
            Self::Scheduler => "pmix.sched",
            Self::SystemController => "pmix.sysctrlr",
        }
    }
}

/// What follows when no server of [`Wish::order`] was found.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum After {
    /// The search for others.
    #[default]
    Search,
    /// The end of the search.
    Stop,
}

/// What happens if a scan finds several servers. Any of them may accept the tool, so that the choice is the user's.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Several {
    /// The search fails, as in libpmix.
    #[default]
    Refuse,
    /// They are tried until one accepts the tool, as the PMIx Standard says.
    TryEach,
}

/// How often, and how long apart, a search is repeated that has found no file (`PMIX_CONNECT_MAX_RETRIES`,
/// `PMIX_CONNECT_RETRY_DELAY`). The default is not to repeat it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Retry {
    pub times: u32,
    pub delay: Duration,
}

/// Environment of the tool.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Place<'a> {
    /// Name of the node; the part from the first `.` is ignored.
    pub host: &'a str,
    /// Directory of `PMIX_SYSTEM_TMPDIR`, or `TMPDIR`, `TEMP`, `TMP`, or `/tmp`.
    pub system_dir: &'a str,
    /// Server in the environment, if the tool is a process of a job: [`crate::client::Config::server_from_environment`].
    pub environment: Option<ServerUri>,
}

/// Step of the search.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Step {
    /// Connect to this server.
    Connect(ServerUri),
    /// Connect to this server as a process of a job: [`crate::client::Connector::ClientTool`].
    ConnectAsClient(ServerUri),
    /// Read this file, and connect to the server it names.
    Read { path: String },
    /// Examine every file below this directory.
    Scan { directory: String, pattern: Pattern },
}

/// Returns the steps of the search in order.
///
/// # Errors
/// The address in `wish` is invalid.
pub fn plan(wish: &Wish, place: &Place<'_>) -> Result<Vec<Step>, UriError> {
    if let Some(uri) = &wish.uri {
        return Ok(vec![match uri.strip_prefix("file:") {
            Some(path) => Step::Read { path: path.into() },
            None => Step::Connect(uri.parse()?),
        }]);
    }
    if let Some(path) = &wish.attach {
        return Ok(vec![Step::Read { path: path.clone() }]);
    }
    let host = place.host.split('.').next().unwrap_or_default();
    let scan = |suffix| Step::Scan {
        directory: place.system_dir.into(),
        pattern: Pattern {
            stem: format!("pmix.{host}.tool"),
            suffix,
        },
    };
    let directory = place.system_dir.trim_end_matches('/');
    let known = wish.order.iter().map(|server| Step::Read {
        path: format!("{directory}/{}.{host}", server.prefix()),
    });
    let mut steps: Vec<Step> = known.collect();
    if wish.after == After::Stop {
        return Ok(steps);
    }
    steps.push(if let Some(pid) = wish.pid {
        scan(Suffix::This(pid.to_string()))
    } else if let Some(nspace) = &wish.nspace {
        scan(Suffix::This(nspace.clone()))
    } else if let Some(server) = &place.environment {
        Step::ConnectAsClient(server.clone())
    } else {
        scan(Suffix::Any)
    });
    Ok(steps)
}

/// Pattern for the names of a server's files.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Pattern {
    stem: String,
    suffix: Suffix,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Suffix {
    Any,
    This(String),
}

impl Pattern {
    /// Returns true if a file with this name, without its directory, must be read.
    #[must_use]
    pub fn matches(&self, name: &str) -> bool {
        let Some(rest) = name.strip_prefix(&self.stem) else {
            return false;
        };
        match &self.suffix {
            Suffix::Any => rest.is_empty() || rest.starts_with('.'),
            Suffix::This(suffix) => rest.strip_prefix('.') == Some(suffix),
        }
    }
}

/// File that matched.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Found {
    pub path: String,
    pub server: Rendezvous,
    /// Owner of the file.
    pub uid: u32,
    pub life: Life,
}

/// State of the process named in a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Life {
    Running,
    Gone,
    /// The file contains no pid.
    Unknown,
}

/// Reason why no server was chosen.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NotChosen {
    /// No file owned by the user or root names a running server.
    #[error("no server was found")]
    Nothing,
    /// Several servers are suitable; the paths are one file of each.
    #[error("several servers were found: {}", List(paths))]
    Several { paths: Vec<String> },
}

struct List<'a>(&'a [String]);

impl fmt::Display for List<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (place, path) in self.0.iter().enumerate() {
            let comma = if place == 0 { "" } else { ", " };
            write!(f, "{comma}`{path}`")?;
        }
        Ok(())
    }
}

/// Returns one file of each server that a scan has found and the user `uid` may trust. A server usually has several files.
#[must_use]
pub fn candidates(found: &[Found], uid: u32) -> Vec<&Found> {
    let mut chosen: Vec<&Found> = Vec::new();
    for file in found {
        let trusted = file.uid == uid || file.uid == 0;
        let known = chosen
            .iter()
            .any(|other| other.server.uri == file.server.uri);
        if trusted && file.life != Life::Gone && !known {
            chosen.push(file);
        }
    }
    chosen
}

/// Chooses the only server among the files found by a scan, for the user `uid`.
///
/// # Errors
/// No server is suitable, or more than one.
pub fn choose(found: &[Found], uid: u32) -> Result<&Found, NotChosen> {
    match &candidates(found, uid)[..] {
        [] => Err(NotChosen::Nothing),
        [only] => Ok(only),
        several => Err(NotChosen::Several {
            paths: several.iter().map(|file| file.path.clone()).collect(),
        }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn place<'a>() -> Place<'a> {
        Place {
            host: "n1.cluster.example",
            system_dir: "/tmp/",
            environment: None,
        }
    }

    fn pattern(wish: &Wish) -> Pattern {
        match plan(wish, &place()).unwrap().pop() {
            Some(Step::Scan { directory, pattern }) => {
                assert_eq!(directory, "/tmp/");
                pattern
            }
            other => panic!("{other:?}"),
        }
    }

    fn uri(text: &str) -> ServerUri {
        text.parse().unwrap()
    }

    #[test]
    fn the_most_definite_wish_decides() {
        let address = "daemon-n1.0;tcp4://127.0.0.1:4711";
        let all = Wish {
            uri: Some(address.into()),
            attach: Some("/a".into()),
            order: vec![WellKnown::System, WellKnown::Scheduler],
            pid: Some(7),
            nspace: Some("daemon".into()),
            ..Wish::default()
        };
        let read = |path: &str| Step::Read { path: path.into() };
        let steps = |wish: &Wish| plan(wish, &place()).unwrap();
        assert_eq!(steps(&all), [Step::Connect(uri(address))]);
        let file = Wish {
            uri: Some("file:/u".into()),
            ..all.clone()
        };
        assert_eq!(steps(&file), [read("/u")]);
        let attach = Wish {
            uri: None,
            ..all.clone()
        };
        assert_eq!(steps(&attach), [read("/a")]);
        let first = Wish {
            attach: None,
            ..attach
        };
        assert_eq!(steps(&first)[0], read("/tmp/pmix.sys.n1"));
        assert_eq!(steps(&first)[1], read("/tmp/pmix.sched.n1"));
        assert!(matches!(steps(&first)[2], Step::Scan { .. }));
        assert_eq!(steps(&first).len(), 3);
        let only = Wish {
            order: vec![WellKnown::SystemController],
            after: After::Stop,
            ..first
        };
        assert_eq!(steps(&only), [read("/tmp/pmix.sysctrlr.n1")]);
        let wrong = Wish {
            uri: Some("daemon-n1".into()),
            ..Wish::default()
        };
        assert_eq!(plan(&wrong, &place()), Err(UriError::Parts));
    }

    #[test]
    fn the_environment_counts_when_nothing_is_wished() {
        let server = uri("daemon-n1.0;tcp4://127.0.0.1:4711");
        let place = Place {
            environment: Some(server.clone()),
            ..place()
        };
        let steps = plan(&Wish::default(), &place).unwrap();
        assert_eq!(steps, [Step::ConnectAsClient(server)]);
        let wish = Wish {
            pid: Some(12),
            ..Wish::default()
        };
        let steps = plan(&wish, &place).unwrap();
        assert!(matches!(steps[..], [Step::Scan { .. }]));
    }

    #[test]
    fn names_match_as_a_whole() {
        let pid = pattern(&Wish {
            pid: Some(12),
            ..Wish::default()
        });
        let nspace = pattern(&Wish {
            nspace: Some("prte-n1-1".into()),
            ..Wish::default()
        });
        let any = pattern(&Wish::default());
        for (name, by_pid, by_nspace, by_any) in [
            ("pmix.n1.tool", false, false, true),
            ("pmix.n1.tool.12", true, false, true),
            ("pmix.n1.tool.123", false, false, true),
            ("pmix.n1.tool.1", false, false, true),
            ("pmix.n1.tool.prte-n1-1", false, true, true),
            ("pmix.n1.tool.prte-n1-12", false, false, true),
            ("pmix.n1.toolbox", false, false, false),
            ("pmix.n12.tool.12", false, false, false),
            ("pmix.sys.n1", false, false, false),
            ("xpmix.n1.tool.12", false, false, false),
        ] {
            assert_eq!(pid.matches(name), by_pid, "{name} by process");
            assert_eq!(nspace.matches(name), by_nspace, "{name} by namespace");
            assert_eq!(any.matches(name), by_any, "{name}");
        }
    }

    #[test]
    fn one_server_is_chosen_among_its_files_and_the_dead() {
        let found = |path: &str, port: u16, uid, life| Found {
            path: path.into(),
            server: Rendezvous::parse(format!("d.0;tcp4://127.0.0.1:{port}").as_bytes()).unwrap(),
            uid,
            life,
        };
        let mine = [
            found("/tmp/a/pmix.n1.tool.9", 1, 1000, Life::Gone),
            found("/tmp/b/pmix.n1.tool", 2, 1000, Life::Running),
            found("/tmp/b/pmix.n1.tool.7", 2, 1000, Life::Running),
            found("/tmp/c/pmix.n1.tool", 3, 1001, Life::Running),
        ];
        assert_eq!(choose(&mine, 1000).unwrap().path, "/tmp/b/pmix.n1.tool");
        assert_eq!(choose(&mine[..1], 1000), Err(NotChosen::Nothing));
        assert_eq!(choose(&mine[3..], 1000), Err(NotChosen::Nothing));
        let two = [
            found("/tmp/x", 4, 0, Life::Unknown),
            found("/tmp/y", 5, 1000, Life::Running),
        ];
        assert_eq!(candidates(&two, 1000).len(), 2);
        assert_eq!(
            choose(&two, 1000).unwrap_err().to_string(),
            "several servers were found: `/tmp/x`, `/tmp/y`"
        );
    }
}
