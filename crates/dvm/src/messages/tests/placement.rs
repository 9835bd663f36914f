//! Messages about jobs that cannot be placed, and notes about jobs that were placed.

use super::*;

/// Returns one error of each kind.
fn place_errors() -> Vec<place::Error> {
    use place::{CpuUnit, Error, SlotLimit};
    let nodes = || "n[1-2]".parse::<base::HostList>().unwrap();
    let node = || "n1".to_owned();
    let unit = CpuUnit::Core;
    vec![
        Error::NoApps,
        Error::NoNodes,
        Error::NoProcs { app: 1 },
        Error::TooManyProcs { asked: 1 << 40 },
        Error::NotEnoughSlots {
            asked: 9,
            slots: 4,
            nodes: nodes(),
            limit: SlotLimit::Slots,
        },
        Error::NotEnoughSlots {
            asked: 9,
            slots: 4,
            nodes: nodes(),
            limit: SlotLimit::MaxSlots,
        },
        Error::NotEnoughPlaces {
            asked: 9,
            places: 4,
            policy: "ppr:2:package".to_owned(),
        },
        Error::NotEnoughCpus {
            node: node(),
            procs: 9,
            each: 2,
            available: 8,
            unit,
            bind: "core".to_owned(),
        },
        Error::NotEnoughRoom {
            nodes: nodes(),
            procs: 9,
            each: 2,
            room: 8,
            unit,
        },
        Error::ObjectTooSmall {
            node: node(),
            level: Some(base::Level::Numa),
            each: 9,
            largest: 4,
            unit,
        },
        Error::NoCpus { node: node() },
        Error::UnknownHost {
            name: "n3".to_owned(),
            nearest: Some(node()),
        },
        Error::UnknownHost {
            name: "login".to_owned(),
            nearest: None,
        },
        Error::RankMissing { rank: Rank(3) },
        Error::RankTwice { rank: Rank(3) },
        Error::InFile {
            file: "`ranks`".to_owned(),
            line: Some(4),
            error: Box::new(Error::NoSuchNode {
                number: 2,
                nodes: 1,
            }),
        },
        Error::InFile {
            file: "`ranks`".to_owned(),
            line: None,
            error: Box::new(Error::RankMissing { rank: Rank(3) }),
        },
        Error::NoSuchCpu {
            node: node(),
            number: 9,
            package: Some(1),
            available: 4,
            unit,
        },
        Error::NoUsablePus {
            node: node(),
            wanted: "99".to_owned(),
            usable: "0-3".to_owned(),
        },
        Error::NoSuchNode {
            number: 7,
            nodes: 2,
        },
        Error::NotPerApp {
            policy: "seq".to_owned(),
        },
        Error::Conflict {
            first: "seq".to_owned(),
            second: "PE=2".to_owned(),
        },
    ]
}

/// Reads the ids from the source, so that this test covers every new one.
#[test]
fn every_way_to_fail_is_explained() {
    let source = include_str!("../../place/error.rs");
    let ids = source
        .split('"')
        .filter(|text| text.starts_with("place/"))
        .collect::<Vec<_>>();
    assert!(ids.len() > 18, "{ids:?}");
    for id in &ids {
        assert!(explain(id).is_some(), "{id}");
    }
    // Each id is an error or a note, and no kind has an id that was removed.
    for error in place_errors() {
        assert!(ids.contains(&error.id()), "{}", error.id());
    }
    for kind in KINDS.iter().filter(|kind| kind.id.starts_with("place/")) {
        assert!(ids.contains(&kind.id), "{}", kind.id);
    }
}

#[test]
fn jobs_that_cannot_be_placed() {
    let text = place_errors()
        .into_iter()
        .map(|error| shown(&refused(&Refusal::Placement(error))))
        .collect::<String>();
    insta::assert_snapshot!(text, @"
    place/no-apps Error: the job has no program
      effect: the job was not started
    place/no-nodes Error: the allocation has no node
      effect: the job was not started
    place/no-procs Error: app 1 has no proc: the number of procs must be at least 1
      effect: the job was not started
    place/too-many-procs Error: a job of 1099511627776 procs is too large
      limit: 16777216
      effect: the job was not started
    place/not-enough-slots Error: not enough slots: the job needs 9, there are 4
      nodes: `n[1-2]`
      effect: the job was not started
      help: pass `-n 4`, raise the numbers in `--host` or the hostfile, or pass `--oversubscribe`
    place/not-enough-slots Error: not enough slots: the job needs 9, there are 4
      nodes: `n[1-2]`
      effect: the job was not started
      help: raise `max_slots` in the hostfile; not even `--oversubscribe` exceeds it
    place/not-enough-places Error: `ppr:2:package` makes room for 4 procs, the job has 9
      effect: the job was not started
      help: pass `-n 4` or leave `-n` out
    place/not-enough-cpus Error: cannot bind to core on `n1`: its 9 procs need 18 cores, 8 can be used
      effect: the job was not started
      help: pass `--bind-to none`, or `--bind-to core:overload-allowed` to share them
    place/not-enough-room Error: cannot give 9 procs 2 cores each: there is room for 8
      nodes: `n[1-2]`
      effect: the job was not started
      help: pass `-n 8`, a smaller `PE=`, or `--oversubscribe` to run unbound
    place/object-too-small Error: no numa of `n1` has 9 cores for one proc: the largest has 4
      effect: the job was not started
      help: pass `PE=4` or less, or map by a wider object
    place/no-cpus Error: no CPU of `n1` can be used
      effect: the job was not started
      help: compare `--cpu-set` with the affinity mask and the cgroup's cpuset
    place/unknown-host Error: `n3` is not in the allocation
      effect: the job was not started
      help: did you mean `n1`?
    place/unknown-host Error: `login` is not in the allocation
      effect: the job was not started
    place/rank-missing Error: the rankfile does not say where rank 3 goes
      effect: the job was not started
      help: add a line for it, or pass a smaller `-n`
    place/rank-twice Error: the rankfile names rank 3 twice
      effect: the job was not started
    place/no-such-node Error: there is no node `+n2`: the allocation has 1
      file: `ranks`, line 4
      effect: the job was not started
    place/rank-missing Error: the rankfile does not say where rank 3 goes
      file: `ranks`
      effect: the job was not started
      help: add a line for it, or pass a smaller `-n`
    place/no-such-cpu Error: package 1 of `n1` has no core number 9
      usable: 4 cores, numbered from 0
      effect: the job was not started
    place/no-usable-pus Error: none of `99` in the list of bindings may be used on `n1`
      usable: hardware threads 0-3
      effect: the job was not started
    place/no-such-node Error: there is no node `+n7`: the allocation has 2
      effect: the job was not started
    place/not-per-app Error: `seq` is for a whole job, not for one of its apps
      effect: the job was not started
      help: pass `--map-by seq` before the first program
    place/conflict Error: `seq` and `PE=2` exclude each other
      effect: the job was not started
    ");
}

#[test]
fn notes_on_placement() {
    let nodes = || "n[1-2]".parse::<base::HostList>().unwrap();
    let unit = place::CpuUnit::Core;
    let notes = [
        place::Note::Unbound {
            nodes: nodes(),
            procs: 9,
            cpus: 8,
            unit,
        },
        place::Note::OverQuota {
            nodes: nodes(),
            procs: 9,
            millis: 1500,
        },
    ];
    let job = Job::small();
    let text = notes.map(|note| shown(&super::note(&Note::Placement(note), &job.scene())));
    insta::assert_snapshot!(text.concat(), @"
    place/unbound Note: 9 procs share 8 cores on `n[1-2]` and are not bound
    place/over-quota Note: 9 procs on `n[1-2]` share 1.5 CPUs: the cgroup (`cpu.max`) grants no more
    ");
}

#[test]
fn ranks_that_a_job_does_not_have() {
    let choices = [
        RankChoice::Input,
        RankChoice::Output,
        RankChoice::Terminal,
        RankChoice::Held,
    ];
    let text = choices.map(|what| {
        let rank = Rank(5);
        shown(&refused(&Refusal::NoSuchRank {
            what,
            rank,
            size: 2,
        }))
    });
    insta::assert_snapshot!(text.concat(), @"
    job/no-such-rank Error: there is no rank 5 to read the input
      ranks: 0-1
      effect: the job was not started
    job/no-such-rank Error: there is no rank 5 whose output could be shown
      ranks: 0-1
      effect: the job was not started
    job/no-such-rank Error: there is no rank 5 to have a terminal
      ranks: 0-1
      effect: the job was not started
    job/no-such-rank Error: there is no rank 5 to be held
      ranks: 0-1
      effect: the job was not started
    ");
}
