//! Messages about files that could not be copied to the nodes.

use base::{HostList, ProcId};
use message::Message;

use super::{
    NOT_STARTED, kind as k,
    words::{count, plain, quoted},
};
use crate::proto::{NotPreloaded, PreloadFailure};

/// Says why files could not be copied, and to which nodes.
pub(super) fn not_preloaded(failed: &NotPreloaded) -> Message {
    let mut hosts = failed.hosts.iter();
    let on = hosts
        .next()
        .map_or_else(String::new, |host| format!(" on {}", quoted(host.as_ref())));
    let message = match &failed.failure {
        PreloadFailure::Unreadable { path, why } => Message::new(
            &k::PRELOAD_UNREADABLE,
            format!("cannot read {}: {}", quoted(path), plain(why)),
        ),
        PreloadFailure::Changed { name } => Message::new(
            &k::PRELOAD_CHANGED,
            format!(
                "{} has changed while it was copied to the nodes",
                quoted(name)
            ),
        ),
        PreloadFailure::NoRoom {
            directory,
            needed,
            free,
        } => Message::new(
            &k::PRELOAD_NO_ROOM,
            format!(
                "no room for the preloaded files{on}: {} has {}, and they need {}",
                quoted(directory),
                size(*free),
                size(*needed)
            ),
        ),
        PreloadFailure::NoPlace(tried) => {
            let lines: Vec<String> = tried
                .iter()
                .map(|(directory, why)| format!("{}: {}", quoted(directory), plain(why)))
                .collect();
            let message = Message::new(
                &k::PRELOAD_NO_PLACE,
                format!("no directory{on} can hold the preloaded files"),
            );
            message.maybe("tried", (!lines.is_empty()).then(|| lines.join("\n")))
        }
        PreloadFailure::Unwritable { path, why } => Message::new(
            &k::PRELOAD_UNWRITABLE,
            format!(
                "cannot write the preloaded files{on}: {}: {}",
                quoted(path),
                plain(why)
            ),
        ),
    };
    let also: HostList = hosts.map(String::as_str).collect();
    let also = (failed.hosts.len() > 1).then(|| format!("`{also}`"));
    let fine = (!failed.hosts.is_empty() && failed.others > 0).then(|| {
        let fine = count(failed.others as u64, "other node", "other nodes");
        format!("{fine} can store them")
    });
    let message = message
        .maybe("also", also)
        .maybe("fine", fine)
        .fact("effect", NOT_STARTED);
    match failed.failure {
        PreloadFailure::Unreadable { .. } => message,
        PreloadFailure::Changed { .. } => {
            message.with_help("start the job again when the file is complete")
        }
        PreloadFailure::NoRoom { .. } | PreloadFailure::Unwritable { .. } => {
            message.with_help("make room there, or name another directory with `--preload-dir DIR`")
        }
        PreloadFailure::NoPlace(_) => {
            message.with_help("name a directory that every node has with `--preload-dir DIR`")
        }
    }
}

/// Says why a job that a rank wanted to spawn was not started.
pub(super) fn spawn_refused(by: ProcId, failed: &NotPreloaded) -> Message {
    let why = not_preloaded(failed);
    let ProcId { job, rank } = by;
    let mut message = Message::new(
        &k::SPAWN_REFUSED,
        format!(
            "rank {rank} of job {job} cannot spawn a job: {}",
            why.headline
        ),
    );
    message.facts = why.facts;
    message.facts.retain(|(name, _)| *name != "effect");
    message
}

/// Returns a number of bytes in the largest unit of which there are ten or more.
#[must_use]
pub fn size(bytes: u64) -> String {
    let units = ["bytes", "KiB", "MiB", "GiB", "TiB"];
    let mut number = bytes;
    let mut unit = 0;
    while number >= 10 * 1024 && unit + 1 < units.len() {
        number /= 1024;
        unit += 1;
    }
    format!("{number} {}", units[unit])
}

#[cfg(test)]
mod tests {
    use base::{JobId, Rank};

    use super::{super::tests::shown, *};

    #[test]
    fn why_files_were_not_copied() {
        let failures = [
            PreloadFailure::Unreadable {
                path: "/home/me/in".into(),
                why: "Permission denied".to_owned(),
            },
            PreloadFailure::Changed { name: "in".into() },
            PreloadFailure::NoRoom {
                directory: "/tmp".into(),
                needed: 512 << 20,
                free: 100 << 20,
            },
            PreloadFailure::NoPlace(vec![
                ("/tmp".into(), "no program may be executed in it".to_owned()),
                ("/scratch".into(), "No such file or directory".to_owned()),
            ]),
            PreloadFailure::Unwritable {
                path: "/tmp/rally-preload.1/in".into(),
                why: "No space left on device".to_owned(),
            },
        ];
        let shown: Vec<String> = failures
            .into_iter()
            .map(|failure| {
                let hosts = match failure {
                    PreloadFailure::Unreadable { .. } | PreloadFailure::Changed { .. } => &[][..],
                    PreloadFailure::NoPlace(_) => &["n1"],
                    _ => &["n3", "n4", "n5"],
                };
                let message = not_preloaded(&NotPreloaded {
                    hosts: hosts.iter().map(|host| (*host).to_owned()).collect(),
                    others: 13,
                    failure,
                });
                shown(&message)
            })
            .collect();
        insta::assert_snapshot!(shown.join("\n"), @"
        preload/unreadable Error: cannot read `/home/me/in`: Permission denied
          effect: the job was not started

        preload/changed Error: `in` has changed while it was copied to the nodes
          effect: the job was not started
          help: start the job again when the file is complete

        preload/no-room Error: no room for the preloaded files on `n3`: `/tmp` has 100 MiB, and they need 512 MiB
          also: `n[4-5]`
          fine: 13 other nodes can store them
          effect: the job was not started
          help: make room there, or name another directory with `--preload-dir DIR`

        preload/no-place Error: no directory on `n1` can hold the preloaded files
          tried: `/tmp`: no program may be executed in it
        `/scratch`: No such file or directory
          fine: 13 other nodes can store them
          effect: the job was not started
          help: name a directory that every node has with `--preload-dir DIR`

        preload/unwritable Error: cannot write the preloaded files on `n3`: `/tmp/rally-preload.1/in`: No space left on device
          also: `n[4-5]`
          fine: 13 other nodes can store them
          effect: the job was not started
          help: make room there, or name another directory with `--preload-dir DIR`
        ");
    }

    #[test]
    fn why_a_job_was_not_spawned() {
        let by = ProcId {
            job: JobId(1),
            rank: Rank(3),
        };
        let failures = [
            PreloadFailure::Unreadable {
                path: "/home/me/in".into(),
                why: "No such file or directory".to_owned(),
            },
            PreloadFailure::NoRoom {
                directory: "/tmp".into(),
                needed: 512 << 20,
                free: 100 << 20,
            },
        ];
        let shown = failures.map(|failure| {
            let is_ours = matches!(failure, PreloadFailure::Unreadable { .. });
            let hosts: &[&str] = if is_ours { &[] } else { &["n3", "n4"] };
            let why = NotPreloaded {
                hosts: hosts.iter().map(|host| (*host).to_owned()).collect(),
                others: 2,
                failure,
            };
            shown(&spawn_refused(by, &why))
        });
        insta::assert_snapshot!(shown.join("\n"), @"
        job/spawn-refused Warning: rank 3 of job 1 cannot spawn a job: cannot read `/home/me/in`: No such file or directory

        job/spawn-refused Warning: rank 3 of job 1 cannot spawn a job: no room for the preloaded files on `n3`: `/tmp` has 100 MiB, and they need 512 MiB
          also: `n4`
          fine: 2 other nodes can store them
        ");
    }

    #[test]
    fn sizes_have_two_digits_or_more() {
        let shown = [0, 10 * 1024 - 1, 10 * 1024, 5 << 30, 12 << 30].map(size);
        assert_eq!(
            shown,
            ["0 bytes", "10239 bytes", "10 KiB", "5120 MiB", "12 GiB"]
        );
    }
}
