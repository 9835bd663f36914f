//! Searches on several nodes.

use super::*;

fn claims(job: Option<&str>, ranks: &[(u32, i32)]) -> Claims {
    Claims {
        job: job.map(str::to_owned),
        ranks: ranks.iter().map(|&(rank, pid)| (Rank(rank), pid)).collect(),
    }
}

fn there(pid: i32, program: &str) -> FoundProc {
    FoundProc::There {
        pid,
        started: u64::try_from(pid).unwrap(),
        program: program.to_owned(),
    }
}

fn on_node(variables: Option<&str>, procs: &[(u32, i32)]) -> OnNode {
    OnNode {
        procs: procs
            .iter()
            .map(|&(rank, pid)| (Rank(rank), there(pid, "/bin/a")))
            .collect(),
        variables: variables.map(str::to_owned),
        job: None,
        size: None,
    }
}

#[test]
fn ranks_of_a_launcher_on_another_node_are_identified() {
    let mut world = World::default();
    let rank = |job: &str, rank: u32| format!("PMIX_NAMESPACE={job} PMIX_RANK={rank}");
    world.add(100, 1, "/bin/a", &rank("j@1", 3));
    world.add(101, 1, "/bin/b", &rank("other@1", 4));
    world.add(102, 1, "/bin/a", &rank("j@1", 5));
    world.add(103, 1, "/bin/sh", "");
    // Rank 5 has another pid here than for its launcher, which runs in a container.
    let claims = claims(Some("j@1"), &[(3, 100), (4, 101), (5, 103), (6, 104)]);
    let found = identify(&world, &claims);
    let expected = [
        (3, there(100, "/bin/a")),
        (4, FoundProc::Unproved),
        (5, there(102, "/bin/a")),
        (6, FoundProc::Gone),
    ];
    assert_eq!(
        found.procs,
        expected.map(|(rank, found)| (Rank(rank), found)).into()
    );
}

#[test]
fn without_a_name_of_the_job_the_rank_has_to_be_right() {
    let mut world = World::default();
    world.add(100, 1, "/bin/a", "PMI_RANK=0");
    world.add(101, 1, "/bin/a", "PMI_RANK=0");
    let found = identify(&world, &claims(None, &[(0, 100), (1, 101)]));
    let expected = [(0, there(100, "/bin/a")), (1, FoundProc::Unproved)];
    assert_eq!(
        found.procs,
        expected.map(|(rank, found)| (Rank(rank), found)).into()
    );
}

#[test]
fn an_agent_places_only_the_ranks_of_its_node() {
    let mut world = World::default();
    let rows = [
        ("n1", "/home/u/solver", 100),
        ("n2", "/home/u/solver", 500),
        ("n3", "/home/u/solver", 500),
    ];
    give_table(world.add(11, 1, "/usr/bin/orterun", ""), Some("j"), &rows);
    world.add(100, 11, "/home/u/solver", "OMPI_COMM_WORLD_RANK=0");
    let mut target = find(&world, &Wish::Process(11)).unwrap();
    let elsewhere = target.elsewhere();
    assert_eq!(elsewhere.keys().collect::<Vec<_>>(), ["n2", "n3"]);
    assert_eq!(elsewhere["n2"], claims(Some("j"), &[(1, 500)]));
    // The agent of n2 may not speak for the other nodes.
    target.place("n2", &on_node(None, &[(0, 7), (1, 501), (2, 7), (9, 7)]));
    let places: Vec<(i32, &Whereabouts)> = target
        .procs
        .values()
        .map(|proc| (proc.pid, &proc.place))
        .collect();
    let host = "n2".to_owned();
    assert_eq!(
        places,
        [
            (100, &Whereabouts::Here { started: 100 }),
            (501, &Whereabouts::There { host, started: 501 }),
            (500, &Whereabouts::On("n3".to_owned())),
        ]
    );
}

#[test]
fn several_nodes_make_one_target() {
    let wish = Wish::Name("a".to_owned());
    let found = |parts: &[(&str, OnNode)]| {
        let parts: Vec<(String, OnNode)> = parts
            .iter()
            .map(|(host, part)| ((*host).to_owned(), part.clone()))
            .collect();
        match over_nodes(&wish, &parts, Some("n1")) {
            Ok(target) => target.to_string(),
            Err(why) => format!("{why:?}"),
        }
    };
    let rank = Some("`RANK` and `WORLD_SIZE`");
    insta::assert_snapshot!(
        found(&[("n1", on_node(rank, &[(2, 7)])), ("n2", on_node(rank, &[(0, 7), (1, 8)]))]),
        @r"
    3 ranks of `a`
    found by:
      + a search for `a` on 2 nodes, numbered by `RANK` and `WORLD_SIZE`
    ranks:
      0: process 7 on `n2`, `/bin/a`
      1: process 8 on `n2`, `/bin/a`
      2: process 7, `/bin/a`
    "
    );
    // Two nodes with the same rank, and nodes that are numbered in different ways.
    insta::assert_snapshot!(
        found(&[("n2", on_node(rank, &[(0, 7)])), ("n3", on_node(rank, &[(0, 9)]))]),
        @r"
    2 ranks of `a`
    found by:
      + a search for `a` on 2 nodes; `dbgr` numbered the processes node by node, in the order of their start
    ranks:
      0: process 7 on `n2`, `/bin/a`
      1: process 9 on `n3`, `/bin/a`
    "
    );
    insta::assert_snapshot!(
        found(&[("n2", on_node(rank, &[(5, 7)])), ("n3", on_node(None, &[(0, 9)]))]),
        @r"
    2 ranks of `a`
    found by:
      + a search for `a` on 2 nodes; `dbgr` numbered the processes node by node, in the order of their start
    ranks:
      0: process 7 on `n2`, `/bin/a`
      1: process 9 on `n3`, `/bin/a`
    "
    );
    insta::assert_snapshot!(found(&[("n2", OnNode::default())]), @r#"Nodes { wish: "a", nodes: HostList { names: ["n2"] }, doubts: [] }"#);
}

/// A conclusion from the ranks that were found would be one from a part of the job.
#[test]
fn ranks_of_nodes_that_were_not_searched_are_not_found() {
    let part = |ranks: &[u32], size: u32| {
        let mut world = World::default();
        for rank in ranks {
            let pid = 100 + i32::try_from(*rank).unwrap();
            let environment = format!("PMI_RANK={rank} PMI_SIZE={size}");
            world.add(pid, 1, "/bin/a", &environment);
        }
        super::super::on_node(&world, &Wish::Name("a".to_owned()))
    };
    let over = |parts: &[(&str, OnNode)]| {
        let parts = parts.iter();
        let parts: Vec<(String, OnNode)> = parts
            .map(|(host, part)| ((*host).to_owned(), part.clone()))
            .collect();
        over_nodes(&Wish::Name("a".to_owned()), &parts, Some("n1")).unwrap()
    };
    let (first, second) = (part(&[0, 1], 5), part(&[3], 5));
    assert_eq!((first.size, second.size), (Some(5), Some(5)));
    assert_eq!(part(&[0, 1], 2).size, None, "all are here");
    insta::assert_snapshot!(over(&[("n1", first.clone()), ("n2", second.clone())]), @"
    5 ranks of `a`
    found by:
      + a search for `a` on 2 nodes, numbered by `PMI_RANK`
    ranks:
      0: process 100, `/bin/a`
      1: process 101, `/bin/a`
      2: no process was found
      3: process 103 on `n2`, `/bin/a`
      4: no process was found
    ");
    let third = part(&[2, 4], 5);
    let whole = over(&[("n1", first), ("n2", second), ("n3", third)]);
    let is_found = |proc: &Proc| proc.place != Whereabouts::NotFound;
    assert!(whole.procs.len() == 5 && whole.procs.values().all(is_found));
    // A size that cannot be that of this job.
    let inherited = over(&[("n1", part(&[7], 3))]);
    assert_eq!(inherited.procs.len(), 1);
    let most = over(&[("n1", part(&[0], u32::MAX))]);
    assert_eq!(most.procs.len(), MAX_RANKS);
}

/// Returns the target of a search on three nodes, of which `silent` did not answer.
fn over(parts: &[(&str, OnNode)], silent: &[&str]) -> Result<Target, NotFound> {
    let all: Vec<(String, OnNode)> = parts
        .iter()
        .map(|(host, part)| ((*host).to_owned(), part.clone()))
        .collect();
    let mut found = over_nodes(&Wish::Name("a".to_owned()), &all, None);
    let doubts = (!silent.is_empty()).then(|| Doubt::NotSearched {
        nodes: silent.iter().copied().collect(),
        why: "late".to_owned(),
    });
    match &mut found {
        Ok(target) => target.doubts.extend(doubts),
        Err(NotFound::Nodes { doubts: known, .. }) => known.extend(doubts),
        Err(_) => {}
    }
    found
}

#[test]
fn a_node_that_is_silent_once_keeps_its_ranks() {
    let place = |target: &Target, rank| target.procs[&Rank(rank)].host().cloned();
    for variables in [Some("`PMI_RANK`"), None] {
        let part = |procs| on_node(variables, procs);
        let parts = [("n1", part(&[(0, 7)])), ("n2", part(&[(1, 8)]))];
        let first = over(&parts, &[]).unwrap();
        let after = later(over(&parts[1..], &["n1"]), &first).unwrap();
        assert_eq!(after.procs, first.procs, "{variables:?}");
        // The other nodes have nothing any more, and n1 may have.
        let empty = [("n2", OnNode::default())];
        let after = later(over(&empty, &["n1"]), &first).unwrap();
        assert_eq!(after.procs, first.procs, "{variables:?}");
        assert!(later(over(&empty, &[]), &first).is_err());
        // A node without a known rank that never answers.
        assert!(later(over(&empty, &["n9"]), &first).is_err());
        // All have answered, so the rank of n1 is no longer there.
        let after = later(over(&parts[1..], &[]), &first).unwrap();
        assert_eq!(after.procs.len(), 1);
        // n3 never had a rank.
        assert!(later(over(&empty, &["n3"]), &first).is_err());
        // A new rank of a node that was silent before.
        let before = over(&parts[1..], &["n1"]).unwrap();
        assert_eq!(later(over(&parts, &[]), &before), Ok(first));
    }
    // A rank that the job has and that is not found any more has exited. Who samples it finds that out.
    let of_three = |procs| OnNode {
        size: Some(3),
        ..on_node(Some("`PMI_RANK`"), procs)
    };
    let first = over(&[("n1", of_three(&[(0, 7), (1, 8)]))], &[]).unwrap();
    let after = later(over(&[("n1", of_three(&[(1, 8)]))], &[]), &first).unwrap();
    assert_eq!(after.procs, first.procs);
    assert_eq!(
        (place(&after, 0), place(&after, 2)),
        (Some("n1".to_owned()), None)
    );
    // Another job has the same numbers, and not the same processes.
    let other = |procs| OnNode {
        job: Some("j@2".to_owned()),
        ..of_three(procs)
    };
    let after = later(over(&[("n1", other(&[(1, 8)]))], &[]), &first).unwrap();
    assert_eq!(place(&after, 0), None);
}

#[test]
fn ranks_of_two_jobs_are_not_mixed() {
    let part = |job: &str, ranks: [u32; 2]| {
        let mut world = World::default();
        for rank in ranks {
            let pid = 100 + i32::try_from(rank).unwrap();
            let environment =
                format!("RANK={rank} WORLD_SIZE=4 MASTER_ADDR={job} MASTER_PORT=29500");
            world.add(pid, 1, "/bin/a", &environment);
        }
        super::super::on_node(&world, &Wish::Name("a".to_owned()))
    };
    let one = [("n1", part("n1", [0, 1])), ("n2", part("n1", [2, 3]))];
    let target = over(&one, &[]).unwrap();
    assert_eq!(target.title, "job `n1:29500`: 4 ranks of `a`");
    let two = [
        ("n1", part("n1", [0, 1])),
        ("n2", part("n1", [2, 3])),
        ("n3", part("n3", [0, 1])),
    ];
    let why = over(&two, &[]).unwrap_err();
    let hosts = |names: &[&str]| names.iter().copied().collect::<base::HostList>();
    let jobs = [
        ("n1:29500".to_owned(), hosts(&["n1", "n2"])),
        ("n3:29500".to_owned(), hosts(&["n3"])),
    ];
    let wish = "a".to_owned();
    assert_eq!(
        why,
        NotFound::SeveralJobs {
            wish,
            jobs: jobs.into()
        }
    );
}
