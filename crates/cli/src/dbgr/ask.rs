//! Asks a launcher that is a PMIx server (Open MPI 5, PRRTE) for its processes.
//!
//! Such a launcher writes its address into a file of its session directory. A tool connects to this address and sends its
//! queries. One deadline covers all of it: a launcher that does not answer must not block `dbgr`.

use std::{
    ffi::CStr,
    io,
    path::{Path, PathBuf},
    time::Duration,
};

use base::Time;
use debug::target::{JobTable, NoAnswer, Row};
use os::{Clock, Pid};
use pmix::{
    client::{Config, Connector, Done, Lost},
    handshake::Owner,
    keys,
    tool::{Extent, Rendezvous},
    value::{Nspace, ProcInfo, Query, Status},
};
use runtime::visit::{Failed, Visit};

/// The deadline of the whole conversation. A launcher on this node answers within a few milliseconds.
const PATIENCE: Duration = Duration::from_secs(2);
/// The most directories that are searched for the file.
const MAX_DIRECTORIES: usize = 4096;
/// The most jobs whose processes are queried.
const MAX_JOBS: usize = 64;

/// Returns the jobs of a launcher.
///
/// # Errors
/// See [`NoAnswer`].
pub(super) fn tables(pid: Pid) -> Result<Vec<JobTable>, NoAnswer> {
    // In another network namespace, the launcher's loopback address would lead to another process.
    if !os::shares_network(pid) {
        return Err(NoAnswer::OtherNetwork);
    }
    let server = rendezvous(pid)?;
    let owner = Owner {
        uid: os::effective_uid(),
        gid: os::effective_gid(),
    };
    let config = Config {
        server_version: server.version_numbers(),
        ..Config::new(server.uri, Connector::Tool, owner)
            .describe(os::current_pid().as_raw().unsigned_abs(), "dbgr")
    };
    let until = Clock::now() + PATIENCE;
    let mut visit = Visit::open(config, PATIENCE).map_err(failed)?;
    let tables = tables_of(&mut visit, until);
    // The tables are already complete.
    let _ = visit.finalize(Some(until), &mut drop);
    tables
}

/// Returns the contents of a launcher's contact file: `pmix.HOST.tool.PID`, in a directory below its directory for temporary
/// files.
fn rendezvous(pid: Pid) -> Result<Rendezvous, NoAnswer> {
    let host = os::host_name();
    let short = host.split('.').next().unwrap_or_default();
    // The name contains the pid in the launcher's own pid namespace, which in a container differs from the pid that we see.
    let number = os::own_number(pid).ok_or(NoAnswer::NoFile)?;
    let names = [
        format!("pmix.{short}.tool.{number}"),
        format!("pmix.{host}.tool.{number}"),
    ];
    let root = PathBuf::from(format!("/proc/{pid}/root"));
    let path = directories(pid)
        .iter()
        .map(|directory| root.join(directory.strip_prefix("/").unwrap_or(directory)))
        .flat_map(|directory| {
            let below = os::entries(&directory, MAX_DIRECTORIES);
            [directory].into_iter().chain(below).collect::<Vec<_>>()
        })
        .flat_map(|directory| names.iter().map(move |name| directory.join(name)))
        .find(|path| path.is_file())
        .ok_or(NoAnswer::NoFile)?;
    let file = path.display().to_string();
    let read = os::read_owned(&path);
    let (content, owner) = match read {
        Ok(read) => read,
        Err(error) => {
            let why = io::Error::from_raw_os_error(error.errno()).kind();
            return Err(NoAnswer::Unreadable { file, why });
        }
    };
    if owner != 0 && Some(owner) != os::owner_of(pid) {
        return Err(NoAnswer::Distrusted { file });
    }
    Rendezvous::parse(&content).map_err(|_| NoAnswer::Malformed { file })
}

/// Returns the directories that may contain the launcher's session directory: those that its environment names, and `/tmp`.
fn directories(pid: Pid) -> Vec<PathBuf> {
    const VARIABLES: [&[u8]; 6] = [
        b"PRTE_MCA_prte_tmpdir_base=",
        b"PRTE_MCA_prte_local_tmpdir_base=",
        b"PMIX_SYSTEM_TMPDIR=",
        b"TMPDIR=",
        b"TEMP=",
        b"TMP=",
    ];
    let environment = os::environment_of(pid).unwrap_or_default();
    let mut found: Vec<PathBuf> = VARIABLES
        .iter()
        .filter_map(|name| {
            let value = environment
                .split(|&byte| byte == 0)
                .find_map(|variable| variable.strip_prefix(*name))?;
            let path = Path::new(std::str::from_utf8(value).ok()?);
            path.is_absolute().then(|| path.to_owned())
        })
        .collect();
    found.push("/tmp".into());
    found
}

/// Returns the process tables of all jobs.
fn tables_of(visit: &mut Visit, until: Time) -> Result<Vec<JobTable>, NoAnswer> {
    let mut tables = Vec::new();
    for job in jobs(visit, until)?.into_iter().take(MAX_JOBS) {
        let Ok(nspace) = Nspace::from_text(&job) else {
            continue;
        };
        let asked = visit.tool().proc_table(&nspace, Extent::Job);
        match visit.table(asked, Some(until), &mut drop) {
            Ok(rows) => {
                let rows = rows.iter().filter_map(row).collect();
                tables.push(JobTable { job, rows });
            }
            // The launcher itself is listed as a job, but has no processes to list.
            Err(Failed::Refused(_)) => {}
            Err(why) => return Err(failed(why)),
        }
    }
    Ok(tables)
}

/// Returns the names of the launcher's jobs, in the order of their start.
fn jobs(visit: &mut Visit, until: Time) -> Result<Vec<String>, NoAnswer> {
    let asked = visit.tool().query(vec![Query {
        keys: vec![Some(keys::QUERY_NAMESPACES.to_owned())],
        qualifiers: Vec::new(),
    }]);
    let result = visit.wait(asked, Some(until), &mut drop);
    let Done::Infos { infos, .. } = result.map_err(failed)? else {
        return Err(failed(Failed::OtherAnswer));
    };
    let names = infos.iter().find_map(|info| info.value.as_text());
    let names = names.map(CStr::to_string_lossy).unwrap_or_default();
    let mut jobs: Vec<String> = names
        .split(',')
        .filter(|name| !name.is_empty())
        .map(str::to_owned)
        .collect();
    jobs.sort_by_key(|name| (number(name), name.clone()));
    Ok(jobs)
}

fn failed(why: Failed) -> NoAnswer {
    match why {
        Failed::Silent | Failed::Lost(Lost::Silent) => NoAnswer::Silent,
        Failed::Socket { step, address, why } => NoAnswer::Socket {
            step,
            address,
            why: why.kind(),
        },
        Failed::Refused(status) | Failed::Lost(Lost::Refused(status)) => {
            NoAnswer::Refused { status: status.0 }
        }
        Failed::OtherAnswer => NoAnswer::Refused {
            status: Status::NOT_FOUND.0,
        },
        _ => NoAnswer::Lost,
    }
}

/// Returns the number after the last `@`. Jobs are numbered in the order of their start; 0 is the launcher. `u32::MAX`
/// without a number.
fn number(name: &str) -> u32 {
    let number = name.rsplit_once('@').map(|(_, number)| number.parse());
    number.and_then(Result::ok).unwrap_or(u32::MAX)
}

fn row(info: &ProcInfo) -> Option<Row> {
    let text = |text: &Option<std::ffi::CString>| {
        let text = text.as_deref().map(CStr::to_string_lossy);
        text.unwrap_or_default().into_owned()
    };
    Some(Row {
        rank: info.proc.rank.0,
        host: text(&info.hostname),
        pid: i32::try_from(info.pid).ok().filter(|pid| *pid > 0)?,
        program: text(&info.executable),
    })
}

#[cfg(test)]
mod tests {
    use std::net::TcpListener;

    use super::*;

    #[test]
    fn who_does_not_answer_is_not_waited_for() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        let uri = format!("prterun-n1-7@0.0;tcp4://127.0.0.1:{port}");
        let owner = Owner { uid: 0, gid: 0 };
        let config = || Config::new(uri.parse().unwrap(), Connector::Tool, owner);
        let soon = Duration::from_millis(20);
        let why = failed(Visit::open(config(), soon).unwrap_err());
        assert!(matches!(why, NoAnswer::Silent), "{why}");
        drop(listener);
        let why = failed(Visit::open(config(), soon).unwrap_err());
        assert!(matches!(why, NoAnswer::Socket { .. }), "{why}");
    }

    #[test]
    fn jobs_come_in_their_order() {
        let mut jobs = ["p@10", "p@2", "p", "p@0"];
        jobs.sort_by_key(|name| number(name));
        assert_eq!(jobs, ["p@0", "p@2", "p@10", "p"]);
    }
}
