//! Single decisions of placement, and the messages about them.

use super::*;

/// Returns two packages of four cores with two threads each. Core c consists of PUs c and c + 8.
fn dual() -> Topology {
    let pu = |os_index: u32| base::Pu {
        os_index,
        core: os_index % 8,
        package: os_index % 8 / 4,
        numa: Some(os_index % 8 / 4),
        l3: Some(os_index % 8 / 4),
        l2: Some(os_index % 8),
        l1: Some(os_index % 8),
        kind: base::CoreKind::Performance,
    };
    Topology::from_pus((0..16).map(pu).collect(), (0..16).collect())
}

fn try_place(request: &Request, slots: &[Slots]) -> Result<String, String> {
    let allocation = nodes(slots);
    let map = place(request, &allocation, &Topologies::uniform(dual()))
        .map_err(|error| error.to_string())?;
    let notes = map.notes().iter().map(|note| format!("\nnote: {note}"));
    Ok(shown(&map, &allocation) + &notes.collect::<String>())
}

fn placed(request: &Request, slots: &[Slots]) -> String {
    try_place(request, slots).unwrap()
}

fn refused(request: &Request, slots: &[Slots]) -> String {
    try_place(request, slots).unwrap_err()
}

const LOCAL: [Slots; 1] = [Slots::Implicit];
const FOUR: [Slots; 2] = [Slots::Explicit(4); 2];

#[test]
fn implicit_slots_never_refuse() {
    insta::assert_snapshot!(placed(&request(None, "", "", ""), &LOCAL), @"a 0:0,8 1:1,9 2:2,10 3:3,11 4:4,12 5:5,13 6:6,14 7:7,15");
    insta::assert_snapshot!(placed(&request(Some(10), "", "", ""), &LOCAL), @"
    a 0:- 1:- 2:- 3:- 4:- 5:- 6:- 7:- 8:- 9:-
    note: 10 procs share 8 cores on `a` and are not bound
    ");
    insta::assert_snapshot!(placed(&request(Some(10), "", "", "core"), &LOCAL), @"
    a 0:- 1:- 2:- 3:- 4:- 5:- 6:- 7:- 8:- 9:-
    note: 10 procs share 8 cores on `a` and are not bound
    ");
    insta::assert_snapshot!(placed(&request(Some(10), "", "", "core:overload-allowed"), &LOCAL), @"a 0:0,8 1:0,8 2:1,9 3:1,9 4:2,10 5:3,11 6:4,12 7:5,13 8:6,14 9:7,15");
    insta::assert_snapshot!(placed(&request(Some(10), "", "", "hwthread"), &LOCAL), @"a 0:0 1:8 2:1 3:9 4:2 5:10 6:3 7:11 8:4 9:12");
    insta::assert_snapshot!(placed(&request(Some(3), "slot:PE=4", "", ""), &LOCAL), @"
    a 0:- 1:- 2:-
    note: 3 procs share 8 cores on `a` and are not bound
    ");
}

#[test]
fn whoever_counts_cores_gets_that_many() {
    insta::assert_snapshot!(placed(&request(Some(3), "package:PE=1", "", ""), &LOCAL), @"a 0:0,8 1:1,9 2:4,12");
    insta::assert_snapshot!(placed(&request(Some(2), "ppr:1:package:PE=1", "", ""), &LOCAL), @"a 0:0,8 1:4,12");
}

#[test]
fn no_proc_leaves_a_list_of_cores() {
    insta::assert_snapshot!(placed(&request(Some(3), "pe-list=1", "", ""), &LOCAL), @"a 0:1,9 1:1,9 2:1,9");
}

#[test]
fn explicit_slots_refuse() {
    insta::assert_snapshot!(refused(&request(Some(9), "", "", ""), &FOUR), @"
    not enough slots: the job needs 9, there are 8
      nodes:  `a,b`
      help:   pass `-n 8`, raise the numbers in `--host` or the hostfile, or pass `--oversubscribe`
    ");
    insta::assert_snapshot!(placed(&request(Some(9), ":OVERSUBSCRIBE", "", ""), &FOUR), @"a 0:0,8 1:1,9 2:2,10 3:3,11 4:4,12 | b 5:0,8 6:1,9 7:2,10 8:3,11");
    insta::assert_snapshot!(refused(&request(Some(9), ":NOOVERSUBSCRIBE", "", ""), &LOCAL), @"
    not enough slots: the job needs 9, there are 8
      nodes:  `a`
      help:   pass `-n 8`, or leave `NOOVERSUBSCRIBE` out
    ");
    insta::assert_snapshot!(refused(&request(Some(3), "", "", "core"), &[Slots::Explicit(0)]), @"
    not enough slots: the job needs 3, there are 0
      nodes:  `a`
      help:   raise the numbers in `--host` or the hostfile, or pass `--oversubscribe`
    ");
    insta::assert_snapshot!(refused(&request(Some(12), "", "", "core"), &[Slots::Explicit(12)]), @"
    cannot bind to core on `a`: its 12 procs need 12 cores, 8 can be used
      help:   pass `--bind-to none`, or `--bind-to core:overload-allowed` to share them
    ");
    insta::assert_snapshot!(placed(&request(Some(12), "", "", ""), &[Slots::Explicit(12)]), @"
    a 0:- 1:- 2:- 3:- 4:- 5:- 6:- 7:- 8:- 9:- 10:- 11:-
    note: 12 procs share 8 cores on `a` and are not bound
    ");
    insta::assert_snapshot!(refused(&request(Some(8), "slot:PE=3", "", ""), &[Slots::Explicit(8)]), @"
    cannot give 8 procs 3 cores each: there is room for 2
      nodes:  `a`
      help:   pass `-n 2`, a smaller `PE=`, or `--oversubscribe` to run unbound
    ");
    insta::assert_snapshot!(refused(&request(None, "ppr:5:node", "", ""), &FOUR), @"
    not enough slots: the job needs 10, there are 8
      nodes:  `a,b`
      help:   pass `-n 8`, raise the numbers in `--host` or the hostfile, or pass `--oversubscribe`
    ");
    let mut allocation = nodes(&FOUR);
    for node in &mut allocation.nodes {
        node.max_slots = Some(5);
    }
    let over = |count| {
        let request = request(Some(count), ":OVERSUBSCRIBE", "", "none");
        place(&request, &allocation, &Topologies::uniform(dual()))
            .map(|map| shown(&map, &allocation))
    };
    insta::assert_snapshot!(over(10).unwrap(), @"a 0:- 1:- 2:- 3:- 4:- | b 5:- 6:- 7:- 8:- 9:-");
    insta::assert_snapshot!(over(11).unwrap_err(), @"
    not enough slots: the job needs 11, there are 10
      nodes:  `a,b`
      help:   raise `max_slots` in the hostfile; not even `--oversubscribe` exceeds it
    ");
}

#[test]
fn counts_that_make_no_sense() {
    insta::assert_snapshot!(refused(&request(Some(0), "", "", ""), &LOCAL), @"app 0 has no proc: the number of procs must be at least 1");
    insta::assert_snapshot!(refused(&request(Some(u32::MAX), "", "", ""), &LOCAL), @"
    a job of 4294967295 procs is too large
      limit:  16777216
    ");
    insta::assert_snapshot!(refused(&request(Some(9), "ppr:2:package", "", ""), &FOUR), @"
    `ppr:2:package` makes room for 8 procs, the job has 9
      help:   pass `-n 8` or leave `-n` out
    ");
    insta::assert_snapshot!(refused(&request(Some(1), "package:PE=5", "", ""), &LOCAL), @"
    no package of `a` has 5 cores for one proc: the largest has 4
      help:   pass `PE=4` or less, or map by a wider object
    ");
    insta::assert_snapshot!(refused(&Request::default(), &LOCAL), @"the job has no program");
    insta::assert_snapshot!(refused(&request(Some(1), "", "", ""), &[]), @"the allocation has no node");
}

#[test]
fn cpu_sets_and_quotas() {
    let mut limited = request(Some(2), "", "", "");
    limited.cpus = Some("1,9,2".parse().unwrap());
    insta::assert_snapshot!(placed(&limited, &LOCAL), @"a 0:1,9 1:2");
    limited.cpus = Some("99".parse().unwrap());
    insta::assert_snapshot!(refused(&limited, &LOCAL), @"
    no CPU of `a` can be used
      help:   compare `--cpu-set` with the affinity mask and the cgroup's cpuset
    ");
    insta::assert_snapshot!(placed(&request(Some(2), "pe-list=1,5", "", ""), &LOCAL), @"a 0:1,5,9,13 1:1,5,9,13");
    insta::assert_snapshot!(placed(&request(Some(2), "pe-list=1,5:ordered", "", ""), &LOCAL), @"a 0:1,9 1:5,13");
    insta::assert_snapshot!(refused(&request(Some(2), "pe-list=1,8", "", ""), &LOCAL), @"
    `a` has no core number 8
      usable: 8 cores, numbered from 0
    ");
    let local = nodes(&LOCAL);
    let quota = Topologies::uniform(dual().with_quota(2_500));
    let place = |count| place(&request(count, "", "", ""), &local, &quota).unwrap();
    insta::assert_snapshot!(shown(&place(None), &local), @"a 0:0,8 1:1,9 2:2,10");
    insta::assert_snapshot!(place(Some(4)).notes()[0], @"4 procs on `a` share 2.5 CPUs: the cgroup (`cpu.max`) grants no more");
}

#[test]
fn several_apps() {
    let app = |count| AppRequest {
        count,
        ..AppRequest::default()
    };
    let mut two = Request {
        apps: vec![app(Some(3)), app(None)],
        ..Request::default()
    };
    insta::assert_snapshot!(placed(&two, &FOUR), @"a 0:0,8 1:1,9 2:2,10 3:3,11");
    two.apps[1] = AppRequest {
        count: Some(2),
        hosts: Some("b".parse().unwrap()),
        map_by: Some(map_by("package").unwrap()),
    };
    insta::assert_snapshot!(placed(&two, &FOUR), @"a 0:0,8 1:1,9 2:2,10 | b 3:0-3,8-11 4:4-7,12-15");
    let map = place(&two, &nodes(&FOUR), &Topologies::uniform(dual())).unwrap();
    assert_eq!(map.app_of(Rank(3)), Some((1, 0)));
    assert_eq!(map.apps()[1].policy.bind_to.to_string(), "package");
    two.apps[1].hosts = Some("bb".parse().unwrap());
    insta::assert_snapshot!(refused(&two, &FOUR), @"
    `bb` is not in the allocation
      help:   did you mean `b`?
    ");
    two.apps[1] = AppRequest {
        map_by: Some(map_by("hwthread").unwrap()),
        ..app(None)
    };
    insta::assert_snapshot!(refused(&two, &FOUR), @"`core` and `hwthread:HWTCPUS` exclude each other");
    two.apps[1].map_by = Some(map_by("seq").unwrap());
    insta::assert_snapshot!(refused(&two, &FOUR), @"
    `seq` is for a whole job, not for one of its apps
      help:   pass `--map-by seq` before the first program
    ");
}

#[test]
fn every_rank_told() {
    let listed = |count, to: MapTo| Request {
        map_by: Some(to.into()),
        ..request(count, "", "", "")
    };
    let sequence = |text: &str| MapTo::Sequence(text.parse().unwrap());
    insta::assert_snapshot!(placed(&listed(None, sequence("b,a,b,b")), &LOCAL.repeat(2)), @"a 1:0-3,8-11 | b 0:0-3,8-11 2:0-3,8-11 3:0-3,8-11");
    insta::assert_snapshot!(refused(&listed(Some(3), sequence("b,a")), &LOCAL.repeat(2)), @"
    `seq` makes room for 2 procs, the job has 3
      help:   pass `-n 2` or leave `-n` out
    ");
    let file = |text: &str| MapTo::Rankfile(rankfile(text, "`ranks`").unwrap());
    let text = "rank 0=+n1 slot=1:0\nrank 1=a slot=0-1,7 # three\nrank 2=b slot=0:*\n\nrank 3=a";
    insta::assert_snapshot!(placed(&listed(None, file(text)), &FOUR), @"a 1:0-1,7-9,15 3:- | b 0:4,12 2:0-3,8-11");
    insta::assert_snapshot!(refused(&listed(Some(5), file(text)), &FOUR), @"
    the rankfile does not say where rank 4 goes
      file:   `ranks`
      help:   add a line for it, or pass a smaller `-n`
    ");
    insta::assert_snapshot!(refused(&listed(None, file("rank 0=a slot=8")), &FOUR), @"
    `a` has no core number 8
      file:   `ranks`, line 1
      usable: 8 cores, numbered from 0
    ");
    insta::assert_snapshot!(refused(&listed(None, file("rank 0=a slot=2:0")), &FOUR), @"
    package 2 of `a` has no core number 0
      file:   `ranks`, line 1
      usable: 0 cores, numbered from 0
    ");
    insta::assert_snapshot!(refused(&listed(None, file("rank 0=+n2")), &FOUR), @"
    there is no node `+n2`: the allocation has 2
      file:   `ranks`, line 1
    ");
    insta::assert_snapshot!(refused(&listed(None, file("rank 0=a\nrank 0=b")), &FOUR), @"
    the rankfile names rank 0 twice
      file:   `ranks`, line 2
    ");
    insta::assert_snapshot!(refused(&listed(None, file("rank 0=a\n\nrank 1=c")), &FOUR), @"
    `c` is not in the allocation
      file:   `ranks`, line 3
      help:   did you mean `a`?
    ");
    let bad = |text: &str| rankfile(text, "`ranks`").unwrap_err().to_string();
    insta::assert_snapshot!(bad("rank 0=a\nrnk 1=a"), @"cannot read the ranks of `ranks`, line 2: a line is `rank N=HOST slot=CORES`");
    insta::assert_snapshot!(bad("rank x=a"), @"cannot read the ranks of `ranks`, line 1: `x` is not a rank below 16777216");
    insta::assert_snapshot!(bad("rank 0=a slot=q:1"), @"cannot read the ranks of `ranks`, line 1: `q` is not a package");
    insta::assert_snapshot!(bad("rank 0=a slot=1-"), @"cannot read the ranks of `ranks`, line 1: `1-` is not a list of cores (expected a number at position 2)");
    insta::assert_snapshot!(bad("\n# nothing\n"), @"cannot read the ranks of `ranks`: no rank is named");
}

#[test]
fn explanations() {
    let explained = |request: &Request, slots: &[Slots], topology: Topology| {
        let (allocation, topologies) = (nodes(slots), Topologies::uniform(topology));
        let map = place(request, &allocation, &topologies).unwrap();
        explain(&map, request, &allocation, &topologies)
    };
    let two = explained(&request(Some(2), "", "", ""), &LOCAL, dual());
    insta::assert_snapshot!(two, @"
    2 ranks on 1 node
    app 0: ranks 0-1
      map by core: the default
      number by fill: the default of that mapping
      bind to core: the cores are for this job alone
    a: ranks 0-1 (8 slots, not counted; 8 cores, 16 PUs)
      rank 0  [BB/../../..][../../../..]  PUs 0,8
      rank 1  [../BB/../..][../../../..]  PUs 1,9
    ");
    let restricted = dual().restricted_to(&"0-3,8-9".parse().unwrap());
    insta::assert_snapshot!(explained(&request(Some(6), "node", "", "package"), &FOUR, restricted), @"
    6 ranks on 2 nodes
    app 0: ranks 0-5
      map as asked: `--map-by node`
      number by node: the default of that mapping
      bind as asked: `--bind-to package`
    a,b: ranks 0-5 (4 slots, counted; 4 cores, 6 PUs)
      on each node, shown for the first:
      rank 0  [BB/BB/B-/B-][--/--/--/--]  PUs 0-3,8-9
      rank 2  [BB/BB/B-/B-][--/--/--/--]  PUs 0-3,8-9
      rank 4  [BB/BB/B-/B-][--/--/--/--]  PUs 0-3,8-9
    ");
    insta::assert_snapshot!(explained(&request(Some(3), "", "", ""), &LOCAL, Topology::flat(2)), @"
    3 ranks on 1 node
    app 0: ranks 0-2
      map by core: the default
      number by fill: the default of that mapping
      do not bind: too few cores
    a: ranks 0-2 (2 slots, not counted; 2 cores, 2 PUs)
      rank 0  not bound
      rank 1  not bound
      rank 2  not bound
    note: 3 procs share 2 cores on `a` and are not bound
    ");
    insta::assert_snapshot!(serde_json::to_string(&two.placed[0]).unwrap(), @r#"{"nodes":"a","slots":8,"counted":"implicit","cores":8,"pus":16,"ranks":"0-1","procs":[{"rank":0,"app":0,"cpus":"0,8","picture":"[BB/../../..][../../../..]"},{"rank":1,"app":0,"cpus":"1,9","picture":"[../BB/../..][../../../..]"}],"procs_left_out":0}"#);
}

#[test]
fn topologies_are_kept_once() {
    let many = [dual(), dual(), Topology::flat(1), dual()]
        .into_iter()
        .collect::<Topologies>();
    assert_eq!(many.kinds().len(), 2);
    let cores = |node| many.get(NodeId(node)).unwrap().cores().len();
    assert_eq!([0, 1, 2, 3, 4].map(cores), [8, 8, 1, 8, 8]);
}

/// Returns the default binding of a job, and the reason for it.
fn bound_by_default(topology: Topology, granted: Option<u32>, map: &str, bind: &str) -> String {
    let mut allocation = nodes(&LOCAL);
    allocation.nodes[0].granted = granted;
    let request = request(Some(2), map, "", bind);
    let topologies = Topologies::uniform(topology);
    let map = place(&request, &allocation, &topologies).unwrap();
    let explanation = explain(&map, &request, &allocation, &topologies);
    let why = explanation.apps[0].why.last().unwrap();
    format!("{}; {why}", shown(&map, &allocation))
}

#[test]
fn cores_that_others_may_use_are_not_bound_to() {
    let cases: &[(&str, Topology, Option<u32>)] = &[
        ("a node that anybody may use", dual(), None),
        ("granted to us as a whole", dual(), Some(16)),
        ("granted in part, nobody says which", dual(), Some(8)),
        (
            "a part of the node",
            dual().restricted_to(&"2-5".parse().unwrap()),
            None,
        ),
        (
            "granted, with another job",
            dual().with_neighbours(),
            Some(16),
        ),
        (
            "anybody's, with another job",
            dual().with_neighbours(),
            None,
        ),
    ];
    let found = cases.iter().map(|(name, topology, granted)| {
        format!(
            "{name}: {}",
            bound_by_default(topology.clone(), *granted, "", "")
        )
    });
    insta::assert_snapshot!(found.collect::<Vec<_>>().join("\n"), @"
    a node that anybody may use: a 0:- 1:-; do not bind: others may use these cores (`--bind-to core` binds nevertheless)
    granted to us as a whole: a 0:0,8 1:1,9; bind to core: the cores are for this job alone
    granted in part, nobody says which: a 0:- 1:-; do not bind: others may use these cores (`--bind-to core` binds nevertheless)
    a part of the node: a 0:2 1:3; bind to core: the cores are for this job alone
    granted, with another job: a 0:- 1:-; do not bind: another job of yours runs on these cores (`--bind-to core` binds nevertheless)
    anybody's, with another job: a 0:- 1:-; do not bind: others may use these cores (`--bind-to core` binds nevertheless)
    ");
}

#[test]
fn whoever_asks_is_bound_on_cores_that_others_may_use() {
    let cases = [
        ("", "core"),
        ("", "none"),
        ("core", ""),
        ("package", ""),
        ("slot:PE=2", ""),
        ("ppr:1:package", ""),
        ("pe-list=2-3", ""),
        ("slot", ""),
        ("node", ""),
        ("ppr:2:node", ""),
        (":OVERSUBSCRIBE", ""),
    ];
    let found = cases.map(|(map, bind)| {
        format!(
            "map `{map}` bind `{bind}`: {}",
            bound_by_default(dual().with_neighbours(), None, map, bind)
        )
    });
    insta::assert_snapshot!(found.join("\n"), @"
    map `` bind `core`: a 0:0,8 1:1,9; bind as asked: `--bind-to core`
    map `` bind `none`: a 0:- 1:-; bind as asked: `--bind-to none`
    map `core` bind ``: a 0:0,8 1:1,9; bind to core: the default of that mapping
    map `package` bind ``: a 0:0-3,8-11 1:4-7,12-15; bind to package: the default of that mapping
    map `slot:PE=2` bind ``: a 0:0-1,8-9 1:2-3,10-11; bind to core: the default of that mapping
    map `ppr:1:package` bind ``: a 0:0-3,8-11 1:4-7,12-15; bind to package: the default of that mapping
    map `pe-list=2-3` bind ``: a 0:2-3,10-11 1:2-3,10-11; bind to core: the default of that mapping
    map `slot` bind ``: a 0:- 1:-; do not bind: others may use these cores (`--bind-to core` binds nevertheless)
    map `node` bind ``: a 0:- 1:-; do not bind: others may use these cores (`--bind-to core` binds nevertheless)
    map `ppr:2:node` bind ``: a 0:- 1:-; do not bind: others may use these cores (`--bind-to core` binds nevertheless)
    map `:OVERSUBSCRIBE` bind ``: a 0:- 1:-; do not bind: others may use these cores (`--bind-to core` binds nevertheless)
    ");
}

#[test]
fn one_node_that_others_may_use_leaves_all_ranks_unbound() {
    let mut allocation = nodes(&FOUR);
    allocation.nodes[1].granted = None;
    let request = request(None, "", "", "");
    let map = place(&request, &allocation, &Topologies::uniform(dual())).unwrap();
    insta::assert_snapshot!(shown(&map, &allocation), @"a 0:- 1:- 2:- 3:- | b 4:- 5:- 6:- 7:-");
}

#[test]
fn bindings_by_list() {
    let listed = |count, text: &str| Request {
        bind_list: Some(bind_list(text).unwrap()),
        ..request(Some(count), "", "", "")
    };
    insta::assert_snapshot!(placed(&listed(3, "0+8,4"), &LOCAL), @"a 0:0,8 1:4 2:0,8");
    // A small job has a different default.
    insta::assert_snapshot!(placed(&listed(2, "3,3"), &LOCAL), @"a 0:3 1:3");
    insta::assert_snapshot!(placed(&listed(3, "each"), &LOCAL), @"a 0:0 1:1 2:2");
    insta::assert_snapshot!(placed(&listed(3, "numa:1,0"), &LOCAL), @"a 0:4-7,12-15 1:0-3,8-11 2:4-7,12-15");
    // With more procs than cores, the list still determines each binding.
    insta::assert_snapshot!(placed(&listed(9, "1-3"), &[Slots::Explicit(9)]), @"a 0:1-3 1:1-3 2:1-3 3:1-3 4:1-3 5:1-3 6:1-3 7:1-3 8:1-3");
    insta::assert_snapshot!(refused(&listed(1, "0,99"), &LOCAL), @"
    none of `99` in the list of bindings may be used on `a`
      usable: hardware threads 0-15
    ");
    insta::assert_snapshot!(bind_list("0,,1").unwrap_err(), @"cannot read `--bind-list 0,,1`: the list is empty");
    insta::assert_snapshot!(bind_list("numa:x").unwrap_err(), @"cannot read `--bind-list numa:x`: expected a number at position 0");
}

#[test]
fn numbers_by_object() {
    insta::assert_snapshot!(placed(&request(Some(4), "package", "core", "core"), &LOCAL), @"a 0:0,8 1:1,9 2:4,12 3:5,13");
    insta::assert_snapshot!(placed(&request(Some(4), "core", "package", "core"), &LOCAL), @"a 0:0,8 1:1,9 2:2,10 3:3,11");
    insta::assert_snapshot!(placed(&request(Some(6), "slot", "package", "core"), &LOCAL), @"a 0:0,8 1:4,12 2:1,9 3:5,13 4:2,10 5:3,11");
}

#[test]
fn objects_taken_together() {
    insta::assert_snapshot!(placed(&request(Some(3), "l1cache:2", "", ""), &LOCAL), @"a 0:0-1,8-9 1:2-3,10-11 2:4-5,12-13");
    insta::assert_snapshot!(placed(&request(Some(3), "numa:2", "", "core"), &LOCAL), @"a 0:0,8 1:1,9 2:2,10");
    insta::assert_snapshot!(placed(&request(Some(3), "", "", "package:2"), &LOCAL), @"a 0:0-15 1:0-15 2:0-15");
    insta::assert_snapshot!(refused(&request(Some(3), "numa:2", "", "numa:1"), &LOCAL), @"`numa:2` and `numa:1` exclude each other");
}
