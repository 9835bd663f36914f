//! Jobs over several nodes: which daemons are started, and by which commands.

use dvm::bootstrap::Prompting;

use super::*;

/// Shows the nodes of a job, which of them is ours, and the commands that start the daemons of the others.
fn plans(place: &Place, lines: &[&str]) -> String {
    let plan = |line: &&str| {
        let run = place.run(line);
        let names = run.allocation.names();
        let mut text = format!("$ {line}\n{names}\n");
        if let Some(plan) = run.daemons {
            let local = plan
                .local
                .map_or_else(|| "-".to_owned(), |node| node.to_string());
            text += &format!(
                "local: {local}, radix {}, lease {:?}, ports {:?}, interfaces {:?}\n",
                plan.radix, plan.lease, plan.ports, plan.interfaces
            );
            for command in plan.commands {
                let words: Vec<_> = command
                    .argv
                    .iter()
                    .map(|word| word.display().to_string())
                    .collect();
                let nodes: Vec<_> = command.nodes.iter().map(ToString::to_string).collect();
                text += &format!("{}: {}\n", nodes.join(","), words.join(" "));
            }
        }
        text
    };
    lines.iter().map(plan).collect::<Vec<_>>().join("\n")
}

#[test]
fn each_other_node_gets_a_daemon() {
    let place = Place::new().file("hosts", "n1 slots=2\nlocalhost\nn[2-3]\n");
    insta::assert_snapshot!(plans(&place, &[
        "rally run a",
        "rally run --host node7 a",
        "rally run --host n1,n2:4 a",
        "mpirun --hostfile hosts a",
        "rally run --bootstrap fork a",
        "rally run --bootstrap fork --nodes 3 a",
        "rally run --bootstrap fork --nodes 2 --if-include eth0,10.1.2.3 --port-range 5000-5010 --radix 2 --lease 300ms a",
    ]), @r#"
    $ rally run a
    node7.cluster

    $ rally run --host node7 a
    node7.cluster

    $ rally run --host n1,n2:4 a
    n[1-2]
    local: -, radix 32, lease 10s, ports None, interfaces []
    0: ssh -x -oForwardAgent=no -T -oBatchMode=yes -oControlMaster=no -oConnectTimeout=15 n1 exec /bin/sh
    1: ssh -x -oForwardAgent=no -T -oBatchMode=yes -oControlMaster=no -oConnectTimeout=15 n2 exec /bin/sh

    $ mpirun --hostfile hosts a
    n1,node7.cluster,n[2-3]
    local: 1, radix 32, lease 10s, ports None, interfaces []
    0: ssh -x -oForwardAgent=no -T -oBatchMode=yes -oControlMaster=no -oConnectTimeout=15 n1 exec /bin/sh
    2: ssh -x -oForwardAgent=no -T -oBatchMode=yes -oControlMaster=no -oConnectTimeout=15 n2 exec /bin/sh
    3: ssh -x -oForwardAgent=no -T -oBatchMode=yes -oControlMaster=no -oConnectTimeout=15 n3 exec /bin/sh

    $ rally run --bootstrap fork a
    node7.cluster

    $ rally run --bootstrap fork --nodes 3 a
    node7-n[0-2]
    local: 0, radix 32, lease 10s, ports None, interfaces []
    1: /opt/bin/rally __daemon
    2: /opt/bin/rally __daemon

    $ rally run --bootstrap fork --nodes 2 --if-include eth0,10.1.2.3 --port-range 5000-5010 --radix 2 --lease 300ms a
    node7-n[0-1]
    local: 0, radix 2, lease 300ms, ports Some((5000, 5010)), interfaces ["eth0", "10.1.2.3"]
    1: /opt/bin/rally __daemon
    "#);
}

#[test]
fn networks_that_this_node_does_not_have_are_refused() {
    let place = Place::new();
    for networks in ["ib0", "10.2.0.0/16", "fd00::/64,ib7", "10.9.9.9,10.1.2.3"] {
        place.run(&format!("rally run --host n1 --if-include {networks} a"));
    }
    // Without other nodes there is no connection.
    place.run("rally run --if-include ib7 a");
    place.run("rally run --bootstrap fork --nodes 2 --if-include ib7 a");
    insta::assert_snapshot!(place.complaints(&[
        "rally run --host n1 --if-include ib7 a",
        "rally run --host n1 --if-include ib7 --if-include 10.3.0.0/16 a",
    ]), @"
    $ rally run --host n1 --if-include ib7 a
    error: this node has no network `ib7`
      option: `--if-include`
      there:  `eth0` (10.1.2.3, fd00::3), `ib0` (10.2.2.3)
      help:   name an interface, an address or a network (`10.1.0.0/16`) of this node
    [120 cli/no-network]

    $ rally run --host n1 --if-include ib7 --if-include 10.3.0.0/16 a
    error: this node has no network `ib7,10.3.0.0/16`
      option: `--if-include`
      there:  `eth0` (10.1.2.3, fd00::3), `ib0` (10.2.2.3)
      help:   name an interface, an address or a network (`10.1.0.0/16`) of this node
    [120 cli/no-network]
    ");
}

/// Returns a place inside of an allocation of Slurm, whose second node we are.
fn in_slurm(variables: &[(&str, &str)]) -> Place {
    let all = [
        ("SLURM_JOB_ID", "7"),
        ("SLURM_JOB_NODELIST", "n[6-9]"),
        ("SLURM_TASKS_PER_NODE", "2(x3),1"),
        ("SLURM_JOB_CPUS_PER_NODE", "4(x4)"),
        ("SLURM_NNODES", "4"),
        ("SLURM_NTASKS", "7"),
        ("SLURM_CONF", "/etc/own.conf"),
    ];
    let all = all.iter().chain(variables);
    all.fold(Place::new(), |place, (name, value)| {
        place.variable(name, value)
    })
}

/// The variables of a heterogeneous job of Slurm have the numbers of its components.
#[test]
fn all_components_of_a_heterogeneous_job_are_used() {
    let mut place = Place::new();
    for (name, value) in [
        ("SLURM_JOB_ID", "7"),
        ("SLURM_HET_SIZE", "2"),
        // The first component's, in a batch script.
        ("SLURM_JOB_NODELIST", "n1"),
        ("SLURM_JOB_NODELIST_HET_GROUP_0", "n1"),
        ("SLURM_TASKS_PER_NODE_HET_GROUP_0", "1"),
        ("SLURM_JOB_CPUS_PER_NODE_HET_GROUP_0", "8"),
        ("SLURM_JOB_NODELIST_HET_GROUP_1", "n[2-3]"),
        ("SLURM_TASKS_PER_NODE_HET_GROUP_1", "2(x2)"),
        ("SLURM_JOB_CPUS_PER_NODE_HET_GROUP_1", "4(x2)"),
    ] {
        place = place.variable(name, value);
    }
    insta::assert_snapshot!(plans(&place, &["rally run a", "rally run --host n3 a"]), @"
    $ rally run a
    n[1-3]
    local: -, radix 32, lease 10s, ports None, interfaces []
    0: srun --overlap --nodes=1 --ntasks=1 --ntasks-per-node=1 --nodelist=n1 --chdir=/ --mpi=none --cpu-bind=none --kill-on-bad-exit=0 --no-kill --wait=0 --input=all --het-group=0
    1,2: srun --overlap --nodes=2 --ntasks=2 --ntasks-per-node=1 --nodelist=n[2-3] --chdir=/ --mpi=none --cpu-bind=none --kill-on-bad-exit=0 --no-kill --wait=0 --input=all --het-group=1

    $ rally run --host n3 a
    n3
    local: -, radix 32, lease 10s, ports None, interfaces []
    0: srun --overlap --nodes=1 --ntasks=1 --ntasks-per-node=1 --nodelist=n3 --chdir=/ --mpi=none --cpu-bind=none --kill-on-bad-exit=0 --no-kill --wait=0 --input=all --het-group=1
    ");
    let slots = |line| {
        let nodes = place.run(line).allocation.nodes;
        nodes.iter().map(|node| node.slots).collect::<Vec<_>>()
    };
    assert_eq!(slots("rally run a"), [1, 2, 2].map(Slots::Explicit));
    let granted = place.run("rally run a").allocation.nodes;
    let granted: Vec<_> = granted.iter().map(|node| node.granted).collect();
    assert_eq!(granted, [8, 4, 4].map(Some));
    // A component whose nodes are not known is not left out.
    let bad = place.variable("SLURM_HET_SIZE", "3");
    let error = bad.complaint("rally run a");
    assert!(error.contains("SLURM_JOB_NODELIST_HET_GROUP_2"), "{error}");
}

#[test]
fn an_allocation_of_slurm_is_used_as_a_whole() {
    let place = in_slurm(&[("SLURMD_NODENAME", "n7")]).file("hosts", "+n0\nn7\nn8 slots=1\n");
    insta::assert_snapshot!(plans(&place, &[
        "rally run a",
        "mpirun -np 2 --host n6,n7 a",
        "mpirun --hostfile hosts a",
        "mpirun --hostfile hosts --host n8 a",
        "mpirun --host n6,elsewhere a",
        "mpirun --host +n3 a : --host +e:2 b",
        "rally run --bootstrap ssh --host n6 a",
        "mpiexec -launcher fork a",
        "srun -N2 a",
        "srun -r 2 -n 9 a",
        "srun -x n[6-7] a",
        "srun -w n9,n6 a",
        "mpirun --nolocal a",
    ]), @"
    $ rally run a
    n6,node7.cluster,n[8-9]
    local: 1, radix 32, lease 10s, ports None, interfaces []
    0,2,3: srun --overlap --nodes=3 --ntasks=3 --ntasks-per-node=1 --nodelist=n[6,8-9] --chdir=/ --mpi=none --cpu-bind=none --kill-on-bad-exit=0 --no-kill --wait=0 --input=all

    $ mpirun -np 2 --host n6,n7 a
    n6,node7.cluster
    local: 1, radix 32, lease 10s, ports None, interfaces []
    0: srun --overlap --nodes=1 --ntasks=1 --ntasks-per-node=1 --nodelist=n6 --chdir=/ --mpi=none --cpu-bind=none --kill-on-bad-exit=0 --no-kill --wait=0 --input=all

    $ mpirun --hostfile hosts a
    n6,node7.cluster,n8
    local: 1, radix 32, lease 10s, ports None, interfaces []
    0,2: srun --overlap --nodes=2 --ntasks=2 --ntasks-per-node=1 --nodelist=n[6,8] --chdir=/ --mpi=none --cpu-bind=none --kill-on-bad-exit=0 --no-kill --wait=0 --input=all

    $ mpirun --hostfile hosts --host n8 a
    n8
    local: -, radix 32, lease 10s, ports None, interfaces []
    0: srun --overlap --nodes=1 --ntasks=1 --ntasks-per-node=1 --nodelist=n8 --chdir=/ --mpi=none --cpu-bind=none --kill-on-bad-exit=0 --no-kill --wait=0 --input=all

    $ mpirun --host n6,elsewhere a
    n6,elsewhere
    local: -, radix 32, lease 10s, ports None, interfaces []
    0: ssh -x -oForwardAgent=no -T -oBatchMode=yes -oControlMaster=no -oConnectTimeout=15 n6 exec /bin/sh
    1: ssh -x -oForwardAgent=no -T -oBatchMode=yes -oControlMaster=no -oConnectTimeout=15 elsewhere exec /bin/sh

    $ mpirun --host +n3 a : --host +e:2 b
    n6,node7.cluster,n9
    local: 1, radix 32, lease 10s, ports None, interfaces []
    0,2: srun --overlap --nodes=2 --ntasks=2 --ntasks-per-node=1 --nodelist=n[6,9] --chdir=/ --mpi=none --cpu-bind=none --kill-on-bad-exit=0 --no-kill --wait=0 --input=all

    $ rally run --bootstrap ssh --host n6 a
    n6
    local: -, radix 32, lease 10s, ports None, interfaces []
    0: ssh -x -oForwardAgent=no -T -oBatchMode=yes -oControlMaster=no -oConnectTimeout=15 n6 exec /bin/sh

    $ mpiexec -launcher fork a
    node7.cluster
    local: 0, radix 32, lease 10s, ports None, interfaces []

    $ srun -N2 a
    n6,node7.cluster
    local: 1, radix 32, lease 10s, ports None, interfaces []
    0: srun --overlap --nodes=1 --ntasks=1 --ntasks-per-node=1 --nodelist=n6 --chdir=/ --mpi=none --cpu-bind=none --kill-on-bad-exit=0 --no-kill --wait=0 --input=all

    $ srun -r 2 -n 9 a
    n[8-9]
    local: -, radix 32, lease 10s, ports None, interfaces []
    0,1: srun --overlap --nodes=2 --ntasks=2 --ntasks-per-node=1 --nodelist=n[8-9] --chdir=/ --mpi=none --cpu-bind=none --kill-on-bad-exit=0 --no-kill --wait=0 --input=all

    $ srun -x n[6-7] a
    n[8-9]
    local: -, radix 32, lease 10s, ports None, interfaces []
    0,1: srun --overlap --nodes=2 --ntasks=2 --ntasks-per-node=1 --nodelist=n[8-9] --chdir=/ --mpi=none --cpu-bind=none --kill-on-bad-exit=0 --no-kill --wait=0 --input=all

    $ srun -w n9,n6 a
    n[6,9]
    local: -, radix 32, lease 10s, ports None, interfaces []
    0,1: srun --overlap --nodes=2 --ntasks=2 --ntasks-per-node=1 --nodelist=n[6,9] --chdir=/ --mpi=none --cpu-bind=none --kill-on-bad-exit=0 --no-kill --wait=0 --input=all

    $ mpirun --nolocal a
    n[6,8-9]
    local: -, radix 32, lease 10s, ports None, interfaces []
    0,1,2: srun --overlap --nodes=3 --ntasks=3 --ntasks-per-node=1 --nodelist=n[6,8-9] --chdir=/ --mpi=none --cpu-bind=none --kill-on-bad-exit=0 --no-kill --wait=0 --input=all
    ");
    let run = place.run("rally run a");
    let environment = run.daemons.unwrap().environment;
    let of_slurm = environment.iter().filter_map(|entry| entry.to_str());
    let of_slurm: Vec<_> = of_slurm
        .filter(|entry| entry.starts_with("SLURM"))
        .collect();
    assert_eq!(
        of_slurm,
        [
            "SLURM_CONF=/etc/own.conf",
            "SLURM_JOB_ID=7",
            "SLURM_EXTERNAL_LAUNCHER=1"
        ]
    );
}

#[test]
fn a_login_node_is_not_a_node_of_the_allocation() {
    insta::assert_snapshot!(plans(&in_slurm(&[]), &["rally run a"]), @"
    $ rally run a
    n[6-9]
    local: -, radix 32, lease 10s, ports None, interfaces []
    0,1,2,3: srun --overlap --nodes=4 --ntasks=4 --ntasks-per-node=1 --nodelist=n[6-9] --chdir=/ --mpi=none --cpu-bind=none --kill-on-bad-exit=0 --no-kill --wait=0 --input=all
    ");
}

#[test]
fn counts_of_srun_depend_on_the_nodes() {
    let place = in_slurm(&[]);
    let counts = |line: &str| {
        let run = place.run(line);
        let slots =
            |node: &dvm::alloc::AllocatedNode| format!("{:?}/{:?}", node.slots, node.max_slots);
        let nodes: Vec<_> = run.allocation.nodes.iter().map(slots).collect();
        format!(
            "{:?} on {}",
            run.spec.placement.apps[0].count,
            nodes.join(" ")
        )
    };
    insta::assert_snapshot!(counts("srun a"), @"Some(7) on Explicit(2)/None Explicit(2)/None Explicit(2)/None Explicit(1)/None");
    insta::assert_snapshot!(counts("srun -N3 -n 8 -m block a"), @"Some(8) on Explicit(3)/None Explicit(3)/None Explicit(2)/None");
    insta::assert_snapshot!(counts("srun -n 17 a"), @"Some(17) on Explicit(4)/None Explicit(4)/None Explicit(4)/None Explicit(4)/None");
    insta::assert_snapshot!(counts("srun -w n6,elsewhere -n 3 a"), @"Some(3) on Explicit(2)/None Explicit(1)/None");
    insta::assert_snapshot!(counts("srun -N2 -n2 a"), @"Some(2) on Explicit(1)/None Explicit(1)/None");
    insta::assert_snapshot!(counts("srun -n 2 a"), @"Some(2) on Explicit(1)/None Explicit(1)/None");
    insta::assert_snapshot!(counts("srun -N3 --ntasks-per-node=2 a"), @"Some(6) on Explicit(2)/Some(2) Explicit(2)/Some(2) Explicit(2)/Some(2)");
    insta::assert_snapshot!(place.complaints(&[
        "srun -N2 -n9 --ntasks-per-node=4 a",
        "srun -N5 a",
        "srun -N3-2 a",
        "srun -x n[6-9] a",
        "srun -r 4 a",
    ]), @"
    $ srun -N2 -n9 --ntasks-per-node=4 a
    error: `-n 9` and `--ntasks-per-node 4` cannot be used together
      help: start fewer procs, or use more nodes, or more procs on each
    [120 cli/options-together]

    $ srun -N5 a
    error: `-N 5` needs 5 nodes, but the job has only `n[6-9]`
      help: name more with `--host`, or start it inside of a larger allocation
    [122 alloc/too-few-nodes]

    $ srun -N3-2 a
    error: `-N` cannot be `3-2`: the larger number comes first
    [120 cli/bad-value]

    $ srun -x n[6-9] a
    error: `-x n[6-9]` leaves no node of `n[6-9]`
      help: name other nodes with `--host`, or leave the option out
    [122 alloc/no-node-left]

    $ srun -r 4 a
    error: `-r 4` leaves no node of `n[6-9]`
      help: name other nodes with `--host`, or leave the option out
    [122 alloc/no-node-left]
    ");
}

#[test]
fn hosts_without_a_number_are_dealt_procs_by_mpiexec() {
    let place = Place::new();
    let request = |line: &str| {
        let run = place.run(line);
        let slots = run.allocation.nodes.iter().map(|node| node.slots);
        let map = run.spec.placement.map_by.map(|map| map.to_string());
        let over = run.spec.placement.oversubscribe;
        format!("{:?} {map:?} {over:?}", slots.collect::<Vec<_>>())
    };
    insta::assert_snapshot!(request("mpiexec -hosts n1,n2 -n 4 a"), @r#"[Explicit(1), Explicit(1)] Some("node") Allow"#);
    insta::assert_snapshot!(request("mpiexec -hosts n1,n2 -map-by core -n 4 a"), @r#"[Explicit(1), Explicit(1)] Some("core") Allow"#);
    insta::assert_snapshot!(request("mpiexec -hosts n1,n2 -ppn 2 -n 4 a"), @r#"[Explicit(1), Explicit(1)] Some("ppr:2:node") Allow"#);
    insta::assert_snapshot!(request("mpirun --host n1,n2 -n 2 a"), @"[Explicit(1), Explicit(1)] None WhereImplicit");
    insta::assert_snapshot!(request("rally run --host n1,n2 -n 2 a"), @"[Implicit, Implicit] None WhereImplicit");
    insta::assert_snapshot!(request("mpiexec -hosts node7 -n 2 a"), @"[Implicit] None WhereImplicit");
}

#[test]
fn allocations_of_lsf_and_pbs() {
    let lsf = Place::new()
        .variable("LSB_JOBID", "9")
        .variable("LSB_MCPU_HOSTS", "node7 2 n1 4");
    let pbs = Place::new().file("nodes", "n1\nn1\nnode7.cluster\n");
    let file = pbs.directory.path().join("nodes").display().to_string();
    let pbs = pbs
        .variable("PBS_JOBID", "9.server")
        .variable("PBS_NODEFILE", &file);
    insta::assert_snapshot!(plans(&lsf, &["mpirun a"]), @"
    $ mpirun a
    node7.cluster,n1
    local: 0, radix 32, lease 10s, ports None, interfaces []
    1: blaunch -no-shell n1 /bin/sh
    ");
    insta::assert_snapshot!(plans(&pbs, &["mpirun a"]), @"
    $ mpirun a
    n1,node7.cluster
    local: 1, radix 32, lease 10s, ports None, interfaces []
    0: ssh -x -oForwardAgent=no -T -oBatchMode=yes -oControlMaster=no -oConnectTimeout=15 n1 exec /bin/sh
    ");
    insta::assert_snapshot!(plans(&pbs, &["rally run --bootstrap pbs a"]), @"
    $ rally run --bootstrap pbs a
    n1,node7.cluster
    local: 1, radix 32, lease 10s, ports None, interfaces []
    0: pbsdsh -n 0 -- /opt/bin/rally __daemon {file}
    ");
    insta::assert_snapshot!(pbs.complaints(&[
        "rally run --bootstrap slurm a",
        "mpirun --mca plm lsf a",
        "mpirun --bootstrap x a",
    ]), @"
    $ rally run --bootstrap slurm a
    error: `--bootstrap slurm` is not supported: the nodes do not belong to an allocation of it
      help: leave it out, or use `ssh`
    [120 cli/not-offered]

    $ mpirun --mca plm lsf a
    error: `--bootstrap lsf` is not supported: the nodes do not belong to an allocation of it
      help: leave it out, or use `ssh`
    [120 cli/not-offered]

    $ mpirun --bootstrap x a
    error: `--bootstrap x` is not supported: this version does not start daemons in this way
      help: leave it out, or use `ssh`, `slurm`, `pbs`, `lsf` or `fork`
    [120 cli/not-offered]
    ");
}

/// The starter of PBS is used if it probably works, and the explanation says why.
#[test]
fn pbs_starts_daemons_where_files_are_shared() {
    let place = || {
        let place = Place::new()
            .file("nodes", "n1\nn1\nnode7.cluster\nn2\n")
            .file("bin/pbsdsh", "");
        let bin = place.directory.path().join("bin");
        let program = bin.join("pbsdsh");
        let executable = <fs::Permissions as std::os::unix::fs::PermissionsExt>::from_mode(0o755);
        fs::set_permissions(program, executable).unwrap();
        let file = place.directory.path().join("nodes").display().to_string();
        place
            .variable("PBS_JOBID", "9.server")
            .variable("PBS_NODEFILE", &file)
            .variable("PATH", &bin.display().to_string())
            .variable("HOME", "/shared/me")
    };
    let elsewhere = |mut place: Place| {
        place.world.executable = "/usr/local/bin/rally".into();
        place
    };
    let cases = [
        ("shared", place(), "rally run a"),
        ("auto", place(), "rally run --bootstrap auto a"),
        ("asked for ssh", place(), "rally run --bootstrap ssh a"),
        ("some nodes", place(), "rally run --host n2 a"),
        ("another node", place(), "rally run --host n2,other a"),
        (
            "no pbsdsh",
            place().variable("PATH", "/nonexistent"),
            "rally run a",
        ),
        (
            "local cache",
            place().variable("XDG_CACHE_HOME", "/tmp"),
            "rally run a",
        ),
        ("local program", elsewhere(place()), "rally run a"),
        (
            "asked for pbs",
            elsewhere(place()),
            "rally run --bootstrap pbs a",
        ),
    ];
    let rows = cases.map(|(name, place, line)| {
        let run = place.run(line);
        let commands = run.daemons.map(|plan| plan.commands).unwrap_or_default();
        let words = commands.iter().map(|command| {
            let words = command.argv.join(OsStr::new(" "));
            match &command.delivery {
                dvm::bootstrap::Delivery::File => words.display().to_string(),
                _ => command.argv[0].display().to_string(),
            }
        });
        let words: Vec<_> = words.collect();
        format!(
            "{name}: {}\n  {}",
            words.join("; "),
            run.started_by.unwrap_or_else(|| "-".to_owned())
        )
    });
    insta::assert_snapshot!(rows.join("\n"), @"
    shared: pbsdsh -n 0 -- /opt/bin/rally __daemon {file}; pbsdsh -n 3 -- /opt/bin/rally __daemon {file}
      by `pbsdsh`: the nodes belong to a job of PBS
    auto: pbsdsh -n 0 -- /opt/bin/rally __daemon {file}; pbsdsh -n 3 -- /opt/bin/rally __daemon {file}
      by `pbsdsh`: the nodes belong to a job of PBS
    asked for ssh: ssh; ssh
      by ssh, as asked
    some nodes: pbsdsh -n 3 -- /opt/bin/rally __daemon {file}
      by `pbsdsh`: the nodes belong to a job of PBS
    another node: ssh; ssh
      -
    no pbsdsh: ssh; ssh
      by ssh: `pbsdsh` is not in PATH
    local cache: ssh; ssh
      by ssh: `pbsdsh` needs the same files on all nodes, and `/tmp/rally` is not on a network file system
    local program: ssh; ssh
      by ssh: `pbsdsh` needs the same files on all nodes, and `/usr/local/bin/rally` is not on a network file system
    asked for pbs: pbsdsh -n 0 -- /usr/local/bin/rally __daemon {file}; pbsdsh -n 3 -- /usr/local/bin/rally __daemon {file}
      by `pbsdsh`: the nodes belong to a job of PBS
    ");
}

/// Older variables, and those of other forms of jobs: the nodes with their slots.
#[test]
fn each_form_of_an_allocation_is_read() {
    let place = Place::new().file("hosts", "n1\nn1\nn2\nn1\n");
    let file = place.directory.path().join("hosts").display().to_string();
    let file = file.as_str();
    let cases: &[&[(&str, &str)]] = &[
        &[
            ("SLURM_JOBID", "7"),
            ("SLURM_NODELIST", "n[1-2]"),
            ("SLURM_TASKS_PER_NODE", "2,1"),
        ],
        &[
            ("SLURM_JOBID", "7"),
            ("SLURM_JOB_NODELIST", "n[3-4]"),
            ("SLURM_NODELIST", "n[1-2]"),
        ],
        &[("SLURM_JOB_ID", "7"), ("SLURM_NODELIST", "n1")],
        // Without the number of a job, the list of nodes is that of something else.
        &[("SLURM_NODELIST", "n[1-2]")],
        &[
            ("LSB_JOBID", "9"),
            ("LSB_MCPU_HOSTS", "n1 3 n2 1"),
            ("LSB_HOSTS", "n7 n8"),
        ],
        &[
            ("LSB_JOBID", "9"),
            ("LSB_DJOB_HOSTFILE", file),
            ("LSB_HOSTS", "n7 n8"),
        ],
        &[("LSB_JOBID", "9"), ("LSB_HOSTS", "n1 n1 n2 n1")],
        &[("LSB_HOSTS", "n1 n1 n2 n1")],
        &[("PBS_JOBID", "9.server"), ("PBS_NODEFILE", file)],
        &[("PBS_NODEFILE", file)],
        // The first manager of the list that has nodes: an allocation in another one is that of a nested job.
        &[
            ("SLURM_JOB_ID", "7"),
            ("LSB_JOBID", "9"),
            ("LSB_HOSTS", "n1"),
        ],
    ];
    let rows = cases.iter().map(|variables| {
        let mut place = Place::new();
        for (name, value) in *variables {
            place = place.variable(name, value);
        }
        let run = place.run("rally run a");
        let nodes = run.allocation.nodes.iter();
        let nodes: Vec<_> = nodes
            .map(|node| format!("{} {:?}", node.name, node.slots))
            .collect();
        let starter = run
            .daemons
            .and_then(|plan| Some(plan.commands.first()?.argv.first()?.clone()));
        let starter =
            starter.map_or_else(|| "nothing".to_owned(), |word| word.display().to_string());
        let names: Vec<_> = variables.iter().map(|(name, _)| *name).collect();
        format!("{}: {} by {starter}", names.join(" "), nodes.join(", "))
    });
    insta::assert_snapshot!(rows.collect::<Vec<_>>().join("\n"), @"
    SLURM_JOBID SLURM_NODELIST SLURM_TASKS_PER_NODE: n1 Explicit(2), n2 Explicit(1) by srun
    SLURM_JOBID SLURM_JOB_NODELIST SLURM_NODELIST: n3 Implicit, n4 Implicit by srun
    SLURM_JOB_ID SLURM_NODELIST: n1 Implicit by srun
    SLURM_NODELIST: node7.cluster Implicit by nothing
    LSB_JOBID LSB_MCPU_HOSTS LSB_HOSTS: n1 Explicit(3), n2 Explicit(1) by blaunch
    LSB_JOBID LSB_DJOB_HOSTFILE LSB_HOSTS: n1 Explicit(3), n2 Explicit(1) by blaunch
    LSB_JOBID LSB_HOSTS: n1 Explicit(3), n2 Explicit(1) by blaunch
    LSB_HOSTS: node7.cluster Implicit by nothing
    PBS_JOBID PBS_NODEFILE: n1 Explicit(3), n2 Explicit(1) by ssh
    PBS_NODEFILE: node7.cluster Implicit by nothing
    SLURM_JOB_ID LSB_JOBID LSB_HOSTS: n1 Explicit(1) by blaunch
    ");
}

#[test]
fn sequences_and_rankfiles_name_their_nodes() {
    let place = Place::new()
        .file("hosts", "# ours\nlocalhost\nn[1-3]:2\n")
        .file("ranks", "rank 0=n1 slot=0\nrank 1=localhost\n");
    insta::assert_snapshot!(plans(&place, &[
        "mpirun --map-by seq:FILE=hosts -n 1 a",
        "mpirun --map-by seq:FILE=hosts -n 3 a",
        "mpirun -rf ranks a",
    ]), @"
    $ mpirun --map-by seq:FILE=hosts -n 1 a
    node7.cluster

    $ mpirun --map-by seq:FILE=hosts -n 3 a
    node7.cluster,n1
    local: 0, radix 32, lease 10s, ports None, interfaces []
    1: ssh -x -oForwardAgent=no -T -oBatchMode=yes -oControlMaster=no -oConnectTimeout=15 n1 exec /bin/sh

    $ mpirun -rf ranks a
    n1,node7.cluster
    local: 1, radix 32, lease 10s, ports None, interfaces []
    0: ssh -x -oForwardAgent=no -T -oBatchMode=yes -oControlMaster=no -oConnectTimeout=15 n1 exec /bin/sh
    ");
}

#[test]
fn other_commands_than_ssh_reach_nodes() {
    let cases = [
        ("RALLY_SSH", "/opt/ssh -p 22", "rally run --host n1 a"),
        (
            "RALLY_SSH",
            "/opt/ssh -p 22",
            "rally run --ssh rsh --host n1 a",
        ),
        ("HYDRA_LAUNCHER_EXEC", "qrsh -V", "mpiexec -host n1 a"),
        (
            "RALLY_BOOTSTRAP_COMMAND",
            "kubectl exec -i {host} -- {daemon}",
            "rally run --host n1 a",
        ),
        (
            "RALLY_BOOTSTRAP_COMMAND",
            "pbsdsh -h {host} {daemon} {file}",
            "rally run --host n1 a",
        ),
        (
            "RALLY_BOOTSTRAP_COMMAND",
            "sh -c 'on-{host} {daemon}'",
            "rally run --host n1 a",
        ),
    ];
    let text = cases.map(|(name, value, line)| {
        let place = Place::new().variable(name, value);
        let daemons = place.run(line).daemons.unwrap();
        let words = |words: &[OsString]| {
            let words = words.iter().map(|word| word.display().to_string());
            words.collect::<Vec<_>>().join(" ")
        };
        let command = &daemons.commands[0];
        let delivery = &command.delivery;
        let (argv, check) = (words(&command.argv), words(&command.check));
        format!("$ {name}={value} {line}\n{delivery:?}: {argv}\ncheck: {check}\n")
    });
    insta::assert_snapshot!(text.join("\n"), @"
    $ RALLY_SSH=/opt/ssh -p 22 rally run --host n1 a
    Staged: /opt/ssh -p 22 -x -oForwardAgent=no -T -oBatchMode=yes -oControlMaster=no -oConnectTimeout=15 n1 exec /bin/sh
    check: /opt/ssh -p 22 n1 true

    $ RALLY_SSH=/opt/ssh -p 22 rally run --ssh rsh --host n1 a
    Staged: rsh n1 exec /bin/sh
    check: rsh n1 true

    $ HYDRA_LAUNCHER_EXEC=qrsh -V mpiexec -host n1 a
    Staged: qrsh -V n1 exec /bin/sh
    check: qrsh -V n1 true

    $ RALLY_BOOTSTRAP_COMMAND=kubectl exec -i {host} -- {daemon} rally run --host n1 a
    Staged: kubectl exec -i n1 -- /bin/sh
    check: kubectl exec -i n1 -- true

    $ RALLY_BOOTSTRAP_COMMAND=pbsdsh -h {host} {daemon} {file} rally run --host n1 a
    File: pbsdsh -h n1 /opt/bin/rally __daemon {file}
    check: pbsdsh -h n1 true

    $ RALLY_BOOTSTRAP_COMMAND=sh -c 'on-{host} {daemon}' rally run --host n1 a
    Staged: sh -c on-n1 /bin/sh
    check: sh -c on-n1 true
    ");
    let error = |name, value| {
        let place = Place::new().variable(name, value);
        match place.request("rally run --host n1 a") {
            Err(error) => error.to_string(),
            Ok(_) => panic!("{name}={value} was accepted"),
        }
    };
    insta::assert_snapshot!(error("RALLY_SSH", "ssh 'a"), @"the setting `ssh` cannot be `ssh 'a`: the quote ' is never closed");
    insta::assert_snapshot!(error("RALLY_BOOTSTRAP_COMMAND", "ssh {host}"), @"the setting `bootstrap-command` cannot be `ssh {host}`: it has no place for the node and the program (`{host}`, `{daemon}`)");
}

/// On a terminal ssh may ask, and our program asks for it. Other commands do not know how.
#[test]
fn on_a_terminal_ssh_may_ask() {
    let mut place = Place::new();
    place.world.prompting = Prompting::OnTerminal;
    for (line, words, prompting) in [
        (
            "rally run --host n1 a",
            "ssh -x -oForwardAgent=no -T -oControlMaster=no -oConnectTimeout=15 n1 exec /bin/sh",
            Prompting::OnTerminal,
        ),
        (
            "rally run --ssh rsh --host n1 a",
            "rsh n1 exec /bin/sh",
            Prompting::Never,
        ),
        (
            "rally run --ssh /opt/ssh --host n1 a",
            "/opt/ssh -x -oForwardAgent=no -T -oControlMaster=no -oConnectTimeout=15 n1 exec /bin/sh",
            Prompting::OnTerminal,
        ),
    ] {
        let plan = place.run(line).daemons.unwrap();
        let command = &plan.commands[0];
        let argv: Vec<_> = command.argv.iter().map(|it| it.to_string_lossy()).collect();
        assert_eq!(
            (argv.join(" ").as_str(), command.prompting),
            (words, prompting)
        );
    }
}

/// Daemons that start others have nobody who answers, whatever the options of the user say, and options of the user win otherwise.
#[test]
fn commands_of_daemons_ask_no_questions() {
    let elsewhere = |(setting, line): (&str, &str)| {
        let (name, value) = setting.split_once('=').unwrap_or(("RALLY_SSH", "ssh"));
        let plan = Place::new()
            .variable(name, value)
            .run(line)
            .daemons
            .unwrap();
        let words = plan.commands[0].elsewhere.clone();
        let words = words.map(|words| words.join(OsStr::new(" ")).display().to_string());
        format!(
            "$ {setting} {line}\n{}\n{}\n",
            words.unwrap_or_else(|| "-".to_owned()),
            described(&plan),
        )
    };
    let ssh = "RALLY_SSH=/opt/ssh -A -oBatchMode=no";
    let template = "RALLY_BOOTSTRAP_COMMAND=k {host} {daemon}";
    let file = "RALLY_BOOTSTRAP_COMMAND=k {host} {daemon} {file}";
    let text: Vec<_> = [
        ("", "rally run --host n1 a"),
        ("", "rally run --host n1,n2 a"),
        (ssh, "rally run --tree-start on --host n1,n2 a"),
        ("", "rally run --tree-start 3 --host n1,n2 a"),
        ("", "rally run --tree-start 3 --radix 2 --host n1,n2,n3 a"),
        ("", "rally run --host n[1-127] a"),
        ("", "rally run --host n[1-128] a"),
        ("RALLY_TREE_START=off", "rally run --host n[1-128] a"),
        ("", "rally run --on-node-loss=continue --host n[1-128] a"),
        (
            "RALLY_TREE_START=on",
            "rally run --on-node-loss=continue --host n1,n2 a",
        ),
        (template, "rally run --host n[1-128] a"),
        (file, "rally run --host n[1-128] a"),
        ("", "rally run --bootstrap fork --nodes 128 a"),
    ]
    .map(elsewhere)
    .into();
    insta::assert_snapshot!(text.join("\n"), @"
    $  rally run --host n1 a
    ssh -oBatchMode=yes -x -oForwardAgent=no -T -oBatchMode=yes -oControlMaster=no -oConnectTimeout=15 n1 exec /bin/sh
    start 1 daemon by `ssh`

    $  rally run --host n1,n2 a
    ssh -oBatchMode=yes -x -oForwardAgent=no -T -oBatchMode=yes -oControlMaster=no -oConnectTimeout=15 n1 exec /bin/sh
    start 2 daemons by `ssh`, 64 at a time from this node

    $ RALLY_SSH=/opt/ssh -A -oBatchMode=no rally run --tree-start on --host n1,n2 a
    /opt/ssh -oBatchMode=yes -A -oBatchMode=no -x -oForwardAgent=no -T -oBatchMode=yes -oControlMaster=no -oConnectTimeout=15 n1 exec /bin/sh
    start 2 daemons by `ssh`: 32 at a time from this node, and 8 at a time from each daemon that runs

    $  rally run --tree-start 3 --host n1,n2 a
    ssh -oBatchMode=yes -x -oForwardAgent=no -T -oBatchMode=yes -oControlMaster=no -oConnectTimeout=15 n1 exec /bin/sh
    start 2 daemons by `ssh`, 64 at a time from this node

    $  rally run --tree-start 3 --radix 2 --host n1,n2,n3 a
    ssh -oBatchMode=yes -x -oForwardAgent=no -T -oBatchMode=yes -oControlMaster=no -oConnectTimeout=15 n1 exec /bin/sh
    start 3 daemons by `ssh`: 2 at a time from this node, and 2 at a time from each daemon that runs

    $  rally run --host n[1-127] a
    ssh -oBatchMode=yes -x -oForwardAgent=no -T -oBatchMode=yes -oControlMaster=no -oConnectTimeout=15 n1 exec /bin/sh
    start 127 daemons by `ssh`, 64 at a time from this node

    $  rally run --host n[1-128] a
    ssh -oBatchMode=yes -x -oForwardAgent=no -T -oBatchMode=yes -oControlMaster=no -oConnectTimeout=15 n1 exec /bin/sh
    start 128 daemons by `ssh`: 32 at a time from this node, and 8 at a time from each daemon that runs

    $ RALLY_TREE_START=off rally run --host n[1-128] a
    ssh -oBatchMode=yes -x -oForwardAgent=no -T -oBatchMode=yes -oControlMaster=no -oConnectTimeout=15 n1 exec /bin/sh
    start 128 daemons by `ssh`, 64 at a time from this node

    $  rally run --on-node-loss=continue --host n[1-128] a
    ssh -oBatchMode=yes -x -oForwardAgent=no -T -oBatchMode=yes -oControlMaster=no -oConnectTimeout=15 n1 exec /bin/sh
    start 128 daemons by `ssh`, 64 at a time from this node

    $ RALLY_TREE_START=on rally run --on-node-loss=continue --host n1,n2 a
    ssh -oBatchMode=yes -x -oForwardAgent=no -T -oBatchMode=yes -oControlMaster=no -oConnectTimeout=15 n1 exec /bin/sh
    start 2 daemons by `ssh`: 32 at a time from this node, and 8 at a time from each daemon that runs

    $ RALLY_BOOTSTRAP_COMMAND=k {host} {daemon} rally run --host n[1-128] a
    k n1 /bin/sh
    start 128 daemons by `k`: 32 at a time from this node, and 8 at a time from each daemon that runs

    $ RALLY_BOOTSTRAP_COMMAND=k {host} {daemon} {file} rally run --host n[1-128] a
    -
    start 128 daemons by `k`, 64 at a time from this node

    $  rally run --bootstrap fork --nodes 128 a
    -
    start 127 daemons by `rally`, 64 at a time from this node
    ");
}
