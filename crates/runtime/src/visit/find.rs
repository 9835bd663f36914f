//! The search for a server, by the rules of docs/formats/pmix.md, section 4.2. `pmix::tool` decides, and this module looks.

use std::{
    io,
    path::{Path, PathBuf},
    time::Duration,
};

use base::Time;
use os::{Clock, Pid};
use pmix::{
    client::{Codec, Config, Connector, ServerUri},
    handshake::Owner,
    tool::{
        Found, Life, MAX_RENDEZVOUS, NotChosen, Pattern, Place, Rendezvous, Several, Step, Wish,
        candidates, choose, plan,
    },
    value::Proc,
};

use super::{Failed, Visit};

/// Directories that a scan looks into.
const DIRECTORIES_MAX: usize = 4096;
/// Entries of one directory that a scan looks at.
const ENTRIES_MAX: usize = 65_536;
/// Levels of directories that a scan goes down.
const DEPTH_MAX: usize = 8;
/// Files that a scan reads.
const FILES_MAX: usize = 1024;

/// A search.
#[derive(Debug)]
pub struct Search<'a> {
    pub wish: Wish,
    /// The name of the tool; the server gives it one if `None`.
    pub name: Option<Proc>,
    /// What the server shows of the tool.
    pub command_line: &'a str,
    /// Limit for all of it.
    pub patience: Duration,
}

/// The environment, in which the caller looks up variables.
pub struct Seen<'a>(pub &'a dyn Fn(&str) -> Option<String>);

impl std::fmt::Debug for Seen<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Seen")
    }
}

impl Seen<'_> {
    fn get(&self, name: &str) -> Option<String> {
        (self.0)(name)
    }

    /// Returns the directory in which servers have their files, or their directories.
    fn system_dir(&self) -> String {
        let names = ["PMIX_SYSTEM_TMPDIR", "TMPDIR", "TEMP", "TMP"];
        let found = names.into_iter().find_map(|name| self.get(name));
        found.unwrap_or_else(|| "/tmp".to_owned())
    }

    fn host(&self) -> String {
        self.get("PMIX_HOSTNAME").unwrap_or_else(os::host_name)
    }
}

/// Finds a server and connects to it.
///
/// # Errors
/// Why no server was found, or why the one that was chosen has not accepted the tool.
pub fn find(search: &Search<'_>, seen: &Seen<'_>) -> Result<Visit, Failed> {
    let until = Clock::now() + search.patience;
    let retry = search.wish.retry;
    let mut tries = 0;
    loop {
        match once(search, seen, until) {
            Err(why) if is_absence(&why) && tries < retry.times => {
                let pause = retry.delay.min(Clock::until(until));
                if pause.is_zero() {
                    return Err(why);
                }
                os::sleep(pause);
                tries += 1;
            }
            other => return other,
        }
    }
}

/// Returns true if a server may be there a moment later.
fn is_absence(why: &Failed) -> bool {
    match why {
        Failed::Unreadable { why, .. } => why.kind() == io::ErrorKind::NotFound,
        Failed::NotChosen(why) => *why == NotChosen::Nothing,
        _ => false,
    }
}

fn once(search: &Search<'_>, seen: &Seen<'_>, until: Time) -> Result<Visit, Failed> {
    let (host, system_dir) = (seen.host(), seen.system_dir());
    let environment = Config::server_from_environment(|name| seen.get(name))?;
    let place = Place {
        host: &host,
        system_dir: &system_dir,
        environment: environment.map(|(server, _)| server),
    };
    let steps = plan(&search.wish, &place)?;
    let last = steps.len().saturating_sub(1);
    let mut failed = Failed::NotChosen(NotChosen::Nothing);
    for (number, step) in steps.into_iter().enumerate() {
        match carry_out(search, seen, step, until) {
            Ok(visit) => return Ok(visit),
            // The servers that are tried first may be missing.
            Err(why) if number < last => failed = why,
            Err(why) => return Err(why),
        }
    }
    Err(failed)
}

fn carry_out(
    search: &Search<'_>,
    seen: &Seen<'_>,
    step: Step,
    until: Time,
) -> Result<Visit, Failed> {
    let to = |server, version| connect(search, server, version, until);
    match step {
        Step::Connect(server) => to(server, None),
        Step::ConnectAsClient(_) => {
            let client = Config::from_environment(|name| seen.get(name), owner())?;
            let connector = match client.connector.clone() {
                Connector::Client(proc) => Connector::ClientTool(proc),
                other => other,
            };
            let config = Config {
                connector,
                ..client
            };
            Visit::open(described(config, search), Clock::until(until))
        }
        Step::Read { path } => {
            let file = read(Path::new(&path))?;
            let uid = file.uid;
            if uid != os::effective_uid() && uid != 0 {
                return Err(Failed::Distrusted { path: path.into() });
            }
            let version = file.server.version_numbers();
            to(file.server.uri, version)
        }
        Step::Scan { directory, pattern } => {
            let found = scan(Path::new(&directory), &pattern);
            let uid = os::effective_uid();
            match search.wish.several {
                Several::Refuse => {
                    let only = &choose(&found, uid)?.server;
                    to(only.uri.clone(), only.version_numbers())
                }
                Several::TryEach => {
                    let mut failed = Failed::NotChosen(NotChosen::Nothing);
                    for file in candidates(&found, uid) {
                        match to(file.server.uri.clone(), file.server.version_numbers()) {
                            Ok(visit) => return Ok(visit),
                            Err(why) => failed = why,
                        }
                    }
                    Err(failed)
                }
            }
        }
    }
}

fn connect(
    search: &Search<'_>,
    server: ServerUri,
    version: Option<[u32; 3]>,
    until: Time,
) -> Result<Visit, Failed> {
    let connector = match &search.name {
        Some(name) => Connector::NamedTool(name.clone()),
        None => Connector::Tool,
    };
    let codec = match version {
        Some([..=3, _, _]) => Codec::V3,
        Some([4, 0, _]) => Codec::V4,
        _ => Codec::V41,
    };
    let config = Config {
        server_version: version,
        codec,
        ..Config::new(server, connector, owner())
    };
    Visit::open(described(config, search), Clock::until(until))
}

fn described(config: Config, search: &Search<'_>) -> Config {
    let pid = os::current_pid().as_raw().unsigned_abs();
    config.describe(pid, search.command_line)
}

fn owner() -> Owner {
    Owner {
        uid: os::effective_uid(),
        gid: os::effective_gid(),
    }
}

fn read(path: &Path) -> Result<Found, Failed> {
    let (content, uid) = os::read_owned(path).map_err(|error| Failed::Unreadable {
        path: path.to_owned(),
        why: io::Error::from_raw_os_error(error.errno()),
    })?;
    let server = Rendezvous::parse(&content).map_err(|why| Failed::Malformed {
        path: path.to_owned(),
        why,
    })?;
    Ok(Found {
        life: life(&server),
        path: path.display().to_string(),
        server,
        uid,
    })
}

fn life(server: &Rendezvous) -> Life {
    match server.pid.map(i32::try_from) {
        None => Life::Unknown,
        Some(Ok(pid)) if os::inspect(Pid::from_raw(pid)).is_some() => Life::Running,
        Some(_) => Life::Gone,
    }
}

/// Returns the files below a directory whose names match. What cannot be read is left out: a directory of another user, and a file
/// that a server writes at this moment.
fn scan(root: &Path, pattern: &Pattern) -> Vec<Found> {
    let mut found = Vec::new();
    let mut level = vec![root.to_owned()];
    let mut left = DIRECTORIES_MAX;
    for _ in 0..=DEPTH_MAX {
        let mut below: Vec<PathBuf> = Vec::new();
        for directory in level {
            let Some(rest) = left.checked_sub(1) else {
                return found;
            };
            left = rest;
            let mut entries = os::entries(&directory, ENTRIES_MAX);
            entries.sort_unstable();
            for path in entries {
                // A link could lead round in a circle.
                let Ok(metadata) = path.symlink_metadata() else {
                    continue;
                };
                let name = path.file_name().unwrap_or_default().to_string_lossy();
                if metadata.is_dir() {
                    below.push(path);
                } else if pattern.matches(&name)
                    && metadata.len() <= MAX_RENDEZVOUS as u64
                    && found.len() < FILES_MAX
                {
                    found.extend(read(&path));
                }
            }
        }
        level = below;
    }
    found
}

#[cfg(test)]
mod tests {
    use std::{collections::BTreeMap, ffi::OsStr, os::fd::OwnedFd};

    use pmix::tool::{After, Retry, WellKnown};

    use super::*;

    /// A directory for temporary files with files of servers that have ended. An error tells which one a search leads to.
    struct Site {
        directory: tempfile::TempDir,
        /// Ports on which nobody listens while this value lives.
        ports: Vec<(OwnedFd, u16)>,
    }

    impl Site {
        fn new() -> Self {
            Self {
                directory: tempfile::tempdir().unwrap(),
                ports: Vec::new(),
            }
        }

        fn path(&self, name: &str) -> PathBuf {
            self.directory.path().join(name)
        }

        /// Writes the file of a server in a directory below, and returns its port.
        fn server(&mut self, below: &str, name: &str) -> u16 {
            let (socket, port) = os::listen_loopback().unwrap();
            let directory = self.path(below);
            os::make_private_dirs(&directory).unwrap();
            let pid = os::current_pid();
            let content = format!("s{port}.0;tcp4://127.0.0.1:{port}\n5.0.11\n{pid}\n");
            os::write_private_file(&directory, OsStr::new(name), content.as_bytes()).unwrap();
            self.ports.push((socket, port));
            port
        }

        fn find(&self, wish: Wish, more: &[(&str, String)]) -> Failed {
            let mut variables: BTreeMap<&str, String> = more.iter().cloned().collect();
            variables.insert("TMPDIR", self.directory.path().display().to_string());
            variables.insert("PMIX_HOSTNAME", "n1.cluster".to_owned());
            let search = Search {
                wish,
                name: None,
                command_line: "test",
                // The servers accept connections and say nothing.
                patience: Duration::from_millis(50),
            };
            find(&search, &Seen(&|name| variables.get(name).cloned())).unwrap_err()
        }
    }

    /// Returns the ports to which a connection was made.
    fn visited(site: &Site) -> Vec<u16> {
        let mut owners = os::SocketOwners::new().unwrap();
        let mut visited = Vec::new();
        for (socket, port) in &site.ports {
            use std::os::fd::AsFd as _;
            if let os::AcceptOutcome::Connection(_) =
                os::accept(socket.as_fd(), &mut owners).unwrap()
            {
                visited.push(*port);
            }
        }
        visited
    }

    /// A wish, variables of the environment, and the port that they lead to.
    type Case<'a> = (Wish, &'a [(&'a str, String)], u16);

    #[test]
    fn each_rule_leads_to_its_server() {
        let mut site = Site::new();
        let by_pid = site.server("a/b", "pmix.n1.tool.12");
        let by_name = site.server("c", "pmix.n1.tool.machine");
        let longer = site.server("d", "pmix.n1.tool.123");
        let system = site.server("", "pmix.sys.n1");
        let file = site.server("e", "uri");
        let wish = Wish::default;
        let path = site.path("e/uri").display().to_string();
        let environment = [
            ("PMIX_NAMESPACE", "job".to_owned()),
            ("PMIX_RANK", "0".to_owned()),
            (
                "PMIX_SERVER_URI41",
                format!("s.0;tcp4://127.0.0.1:{longer}"),
            ),
        ];
        let cases: [Case<'_>; 7] = [
            (
                Wish {
                    pid: Some(12),
                    ..wish()
                },
                &environment,
                by_pid,
            ),
            (
                Wish {
                    nspace: Some("machine".to_owned()),
                    ..wish()
                },
                &[],
                by_name,
            ),
            (
                Wish {
                    order: vec![WellKnown::Scheduler, WellKnown::System],
                    after: After::Stop,
                    ..wish()
                },
                &[],
                system,
            ),
            (
                Wish {
                    uri: Some(format!("file:{path}")),
                    pid: Some(12),
                    ..wish()
                },
                &[],
                file,
            ),
            (
                Wish {
                    uri: Some(format!("s.0;tcp4://127.0.0.1:{by_name}")),
                    ..wish()
                },
                &[],
                by_name,
            ),
            (
                Wish {
                    attach: Some(path),
                    pid: Some(12),
                    ..wish()
                },
                &[],
                file,
            ),
            (wish(), &environment, longer),
        ];
        for (wish, variables, port) in cases {
            let what = format!("{wish:?}");
            let why = site.find(wish, variables);
            assert!(matches!(why, Failed::Silent), "{what}: {why}");
            assert_eq!(visited(&site), [port], "{what}");
        }
        let why = site.find(wish(), &[]);
        assert!(
            matches!(&why, Failed::NotChosen(NotChosen::Several { paths }) if paths.len() == 3),
            "{why}"
        );
        let each = Wish {
            several: Several::TryEach,
            ..wish()
        };
        let why = site.find(each, &[]);
        assert!(matches!(why, Failed::Silent), "{why}");
        assert!(visited(&site).contains(&by_pid));
        let missing = Wish {
            pid: Some(1),
            ..wish()
        };
        let why = site.find(missing, &[]);
        assert!(
            matches!(why, Failed::NotChosen(NotChosen::Nothing)),
            "{why}"
        );
    }

    #[test]
    fn a_search_is_repeated() {
        let site = Site::new();
        let path = site.path("later");
        let wish = Wish {
            attach: Some(path.display().to_string()),
            retry: Retry {
                times: 1_000,
                delay: Duration::from_millis(1),
            },
            ..Wish::default()
        };
        let begun = Clock::now();
        let why = site.find(wish, &[]);
        // It has gone on until its patience was over.
        assert!(Clock::now().since(begun) >= Duration::from_millis(50));
        assert!(
            matches!(&why, Failed::Unreadable { path: tried, .. } if *tried == path),
            "{why}"
        );
    }

    #[test]
    fn what_is_no_file_of_a_server_is_named() {
        let site = Site::new();
        os::write_private_file(site.directory.path(), OsStr::new("no"), b"nothing\n").unwrap();
        let wish = Wish {
            attach: Some(site.path("no").display().to_string()),
            ..Wish::default()
        };
        let why = site.find(wish, &[]).to_string();
        let name = site.path("no").display().to_string();
        assert_eq!(
            why.replace(&name, "FILE"),
            "`FILE` does not say where a server is: its first line names no server: it is not a name, `;` and an address"
        );
    }
}
