//! Submissions in Slurm's terms.

use super::{
    super::{
        request::slurm::{Batch, SlurmAsk},
        slurm_batch::WhyNot,
    },
    *,
};

fn batch(place: &Place, line: &str) -> Batch {
    match place.request(line) {
        Ok(Request::Slurm(request)) => match request.ask {
            SlurmAsk::Submit(submit) => submit.batch,
            other => panic!("{line}: {other:?}"),
        },
        other => panic!("{line}: {other:?}"),
    }
}

/// Returns the options that are not the same for all jobs, and the arguments of `rally run`.
fn translated(line: &str) -> (String, String) {
    const OF_ALL: [&str; 7] = [
        "--parsable",
        "--comment=rally",
        "--export=ALL",
        "--chdir=DIR",
        "--job-name=a",
        "--output=DIR/rally-%j.out",
        "--open-mode=append",
    ];
    let place = Place::new().file("in", "");
    let directory = place.directory.path().display().to_string();
    let batch = batch(&place, &format!("rally submit --to slurm {line}"));
    let words = |words: &[OsString]| {
        let texts = words
            .iter()
            .map(|word| word.to_string_lossy().replace(&directory, "DIR"));
        texts.collect::<Vec<_>>()
    };
    let mut options = words(&batch.options);
    options.retain(|option| !OF_ALL.contains(&option.as_str()) && option != "--no-requeue");
    let command = words(&batch.command);
    assert!(matches!(parse(&batch.command), Ok(Args::Run(_))), "{line}");
    let start = ["/opt/bin/rally", "run", "--on-machine=none"];
    assert_eq!(command[..3], start);
    (options.join(" "), command[3..].join(" "))
}

#[test]
#[expect(clippy::too_many_lines, reason = "a table")]
fn jobs_are_translated() {
    // What Slurm gets, and what `rally run` gets.
    let cases = [
        ("./a x", "", "SET -- ./a x"),
        ("-n 4 ./a", "--ntasks=4", "SET --np=4 -- ./a"),
        ("-N 2 ./a", "--nodes=2", "SET -- ./a"),
        (
            "--nodes 2-4 -n 8 ./a",
            "--nodes=2-4 --ntasks=8",
            "SET --np=8 -- ./a",
        ),
        (
            "-N 2 --per-node 3 ./a",
            "--nodes=2 --ntasks-per-node=3",
            "SET --per-node=3 -- ./a",
        ),
        (
            "-n 7 --per-node 3 ./a",
            "--nodes=3 --ntasks=7 --ntasks-per-node=3",
            "SET --np=7 --per-node=3 -- ./a",
        ),
        (
            "-N 2 --map-by ppr:2:node:PE=3 ./a",
            "--nodes=2 --ntasks-per-node=2 --cpus-per-task=3",
            "SET --map-by=ppr:2:node:PE=3 -- ./a",
        ),
        (
            "-n 2 --map-by ppr:1:numa ./a",
            "--ntasks=2",
            "SET --np=2 --map-by=ppr:1:numa -- ./a",
        ),
        (
            "-n 2 ./a : -n 3 --map-by slot:PE=2 ./b : -n 1 ./c",
            "--ntasks=6 --cpus-per-task=2",
            "SET --np=2 -- ./a : SET --np=3 --map-by=slot:PE=2 -- ./b : SET --np=1 -- ./c",
        ),
        (
            "--host n1,n2 -n 4 ./a",
            "--nodes=2 --ntasks=4 --nodelist=n[1-2]",
            "SET --host=n1,n2 --np=4 -- ./a",
        ),
        (
            "--host n[1-3]:4 ./a",
            "--nodes=3 --ntasks-per-node=4 --nodelist=n[1-3]",
            "SET --host=n[1-3]:4 -- ./a",
        ),
        // Names as Slurm knows them, also that of the computer on which we are.
        (
            "--host localhost,node7 -n 2 ./a",
            "--nodes=2 --ntasks=2 --nodelist=localhost,node7",
            "SET --host=localhost,node7 --np=2 -- ./a",
        ),
        // A name twice is one node with two slots.
        (
            "--host n1,n1 --host n2:2 ./a",
            "--nodes=2 --ntasks-per-node=2 --nodelist=n[1-2]",
            "SET --host=n1,n1 --host=n2:2 -- ./a",
        ),
        (
            "--host n1,n2 -n 2 ./a : --host n2,n3 -n 2 ./b",
            "--nodes=3 --ntasks=4 --nodelist=n[1-3]",
            "SET --host=n1,n2 --np=2 -- ./a : SET --host=n2,n3 --np=2 -- ./b",
        ),
        (
            "--exclude n3 --exclude n[5-6] ./a",
            "--exclude=n[3,5-6]",
            "SET -- ./a",
        ),
        ("--gpus 4 ./a", "--gpus-per-node=4", "--gpus=4 SET -- ./a"),
        (
            "-n 2 --gpus-per-proc 1 ./a",
            "--ntasks=2 --gpus-per-task=1",
            "--gpus-per-proc=1 SET --np=2 -- ./a",
        ),
        (
            "-n 2 --resource matlab=2 --resource idl=1 ./a",
            "--ntasks=2 --licenses=matlab:2,idl:1",
            "SET --np=2 -- ./a",
        ),
        (
            "--exclusive -N 3 ./a",
            "--nodes=3 --exclusive",
            "SET -- ./a",
        ),
        // Slurm enforces it, so that `rally run` does not.
        ("--memory-limit 1.5G ./a", "--mem=1536M", "SET -- ./a"),
        ("--memory-limit 1025K ./a", "--mem=2M", "SET -- ./a"),
        (
            "--time 90 ./a",
            "--time=0-00:01:30",
            "--timeout=90000ms SET -- ./a",
        ),
        (
            "--timeout 36h ./a",
            "--time=1-12:00:00",
            "--timeout=129600000ms SET -- ./a",
        ),
        (
            "--time 1.5 --timeout 9 ./a",
            "--time=0-00:00:02",
            "--timeout=1500ms SET -- ./a",
        ),
        ("--timeout 0 ./a", "", "SET -- ./a"),
        (
            "--after 3 --after any:4 --after start:5 ./a",
            "--dependency=afterok:3,afterany:4,after:5 --kill-on-invalid-dep=yes",
            "SET -- ./a",
        ),
        ("--hold --requeue ./a", "--hold --requeue", "SET -- ./a"),
        ("--priority -5 ./a", "--nice=5", "SET -- ./a"),
        ("--priority 0 ./a", "", "SET -- ./a"),
        (
            "--slurm-option partition=gpu --slurm-option=--qos=low --slurm-option=-Aacct --slurm-option=contig --slurm-option=-Osplow ./a",
            "--partition=gpu --qos=low -Aacct --contig -Osplow",
            "SET -- ./a",
        ),
        (
            "--label --grace 2 --wdir /tmp --set-env X=1 --input in ./a",
            "",
            "--label --grace=2 --input=in SET --wdir=/tmp --set-env=X=1 -- ./a",
        ),
        (
            "--personality srun --mpi pmix -n 2 ./a",
            "--ntasks=2",
            "SET --np=2 -- ./a",
        ),
    ];
    for (line, options, run) in cases {
        let expected = (
            options.to_owned(),
            run.replace("SET", "--set-env=RALLY_QUEUE_JOB"),
        );
        assert_eq!(translated(line), expected, "{line}");
    }
}

#[test]
fn files_and_arrays_are_translated() {
    let place = Place::new();
    let directory = place.directory.path().display().to_string();
    let output = |line: &str| {
        let batch = batch(&place, &format!("rally submit --to slurm {line} ./a"));
        let output = batch.output.to_string_lossy().replace(&directory, "DIR");
        let option = format!("--output={}", batch.output.display());
        assert!(batch.options.contains(&option.into()), "{line}");
        output
    };
    let cases = [
        ("", "DIR/rally-%j.out"),
        ("--array 1-3", "DIR/rally-%A-%a.out"),
        ("--output-to /x/%j-%i.%%.%N.%5j.%", "/x/%j-0.%%.%%N.%%5j.%%"),
        ("--array 1-3 --output-to %i/%j", "DIR/%a/%A"),
    ];
    for (line, expected) in cases {
        assert_eq!(output(line), expected, "{line}");
    }
    let all = batch(
        &place,
        "rally submit --to slurm --array 0-30/10 --max-running 2 --errors-to e%i --inherit-env none ./a",
    );
    let errors = format!("--error={directory}/e%a");
    for option in ["--array=0-30:10%2", &errors] {
        assert!(all.options.contains(&option.into()), "{all:?}");
    }
    assert_eq!(
        all.array.as_ref().map(ToString::to_string).as_deref(),
        Some("0-30/10")
    );
    let words: Vec<_> = all
        .command
        .iter()
        .map(|word| word.to_string_lossy())
        .collect();
    assert!(
        words.contains(&"--set-env=RALLY_ARRAY_INDEX".into()),
        "{words:?}"
    );
}

/// The directory is a name and no pattern.
#[test]
fn the_directory_may_have_a_percent_sign() {
    let mut place = Place::new();
    let directory = place.directory.path().join("50%j");
    fs::create_dir(&directory).unwrap();
    place.world.directory = Ok(directory);
    let output = batch(&place, "rally submit --to slurm ./a").output;
    let output = output.to_string_lossy().into_owned();
    assert!(output.ends_with("/50%%j/rally-%j.out"), "{output}");
}

#[test]
#[expect(clippy::too_many_lines, reason = "a table")]
fn what_slurm_cannot_do_is_refused() {
    let place = Place::new().file("hosts", "n1\n");
    let lines = [
        "--hostfile hosts -n 1 ./a",
        "--nolocal ./a",
        "--relative 1 ./a",
        "--on-machine main ./a",
        "--bootstrap fork ./a",
        "--bootstrap pbs ./a",
        "--explain ./a",
        "--from hosts",
        "--pty ./a",
        "--cpu-limit 2 ./a",
        "--slurm-option mem=5G ./a",
        "--host +n1 ./a",
        "--host n1:2,n2:3 ./a",
        "--output-to a\\b ./a",
        "--per-node 2 ./a",
        "--map-by ppr:2:numa -N 2 ./a",
        "-n 2 ./a : ./b",
        "-n 2 --per-node 1 ./a : -n 2 ./b",
        "--slurm-option time=5 ./a",
        "--slurm-option=-t5 ./a",
        "--slurm-option=--wra=x ./a",
        "--slurm-option=-W ./a",
        "--slurm-option=-OW ./a",
        "--slurm-option= ./a",
        "--slurm-option partition ./a",
        "--slurm-option=-p ./a",
        "--slurm-option=-Op ./a",
        "--max-running 2 ./a",
        "--map-by nonsense ./a",
    ];
    let said = lines.map(|line| {
        let line = format!("rally submit --to slurm {line}");
        format!("{}\n", place.complaint(&line))
    });
    insta::assert_snapshot!(said.concat(), @r"
    $ rally submit --to slurm --hostfile hosts -n 1 ./a
    error: `--hostfile` cannot be translated for Slurm
      reason: Slurm knows its nodes and their slots, and chooses among them itself
      help:   name the nodes with `--host`, or only say how many: `--nodes N`
    [120 slurm/not-translated]

    $ rally submit --to slurm --nolocal ./a
    error: `--nolocal` cannot be translated for Slurm
      reason: it is about nodes that are allocated already, and Slurm chooses new ones
      help:   leave it out
    [120 slurm/not-translated]

    $ rally submit --to slurm --relative 1 ./a
    error: `--relative` cannot be translated for Slurm
      reason: it is about nodes that are allocated already, and Slurm chooses new ones
      help:   leave it out
    [120 slurm/not-translated]

    $ rally submit --to slurm --on-machine main ./a
    error: `--on-machine` cannot be translated for Slurm
      reason: the job runs in an allocation of its own, and on no machine
      help:   leave it out
    [120 slurm/not-translated]

    $ rally submit --to slurm --bootstrap fork ./a
    error: `--bootstrap` cannot be translated for Slurm
      reason: the job runs on nodes of Slurm, and not on nodes for which this one stands
      help:   leave it out
    [120 slurm/not-translated]

    $ rally submit --to slurm --bootstrap pbs ./a
    error: `--bootstrap` cannot be translated for Slurm
      reason: the job runs in an allocation of Slurm
      help:   leave it out
    [120 slurm/not-translated]

    $ rally submit --to slurm --explain ./a
    error: `--explain` cannot be translated for Slurm
      reason: the nodes are not known before the job starts
      help:   `--dry-run` shows what would be submitted
    [120 slurm/not-translated]

    $ rally submit --to slurm --from hosts
    error: `--from` cannot be translated for Slurm
      reason: each line would be a job of its own, and Slurm has arrays for many
      help:   use `--array`, and choose the line by RALLY_ARRAY_INDEX
    [120 slurm/not-translated]

    $ rally submit --to slurm --pty ./a
    error: `--pty` cannot be translated for Slurm
      reason: a submitted job has no terminal
      help:   leave it out, or use `rally run` under `salloc`
    [120 slurm/not-translated]

    $ rally submit --to slurm --cpu-limit 2 ./a
    error: `--cpu-limit` cannot be translated for Slurm
      reason: Slurm gives a job whole CPUs, and itself keeps the job on these
      help:   leave it out, or say how many CPUs each proc gets: `--map-by slot:PE=N`
    [120 slurm/not-translated]

    $ rally submit --to slurm --slurm-option mem=5G ./a
    error: `--slurm-option=--mem=5G` cannot be translated for Slurm
      reason: `rally` translates its own option into this one
      help:   use `--memory-limit`
    [120 slurm/not-translated]

    $ rally submit --to slurm --host +n1 ./a
    error: `--host` cannot be translated for Slurm
      reason: it counts nodes of an allocation that exists, and Slurm makes a new one
      help:   name the nodes with `--host`, or only say how many: `--nodes N`
    [120 slurm/not-translated]

    $ rally submit --to slurm --host n1:2,n2:3 ./a
    error: `--host` cannot be translated for Slurm
      reason: Slurm gives the same number of slots on every node
      help:   give the number of procs: `-n N`
    [120 slurm/not-translated]

    $ rally submit --to slurm --output-to a\b ./a
    error: `--output-to` cannot be translated for Slurm
      reason: Slurm takes no patterns in a name with a backslash
      help:   choose another name
    [120 slurm/not-translated]

    $ rally submit --to slurm --per-node 2 ./a
    error: `--per-node` cannot be translated for Slurm
      reason: Slurm has to know the number of procs or of nodes beforehand
      help:   add `-n N` for each program, or `--nodes N`
    [120 slurm/not-translated]

    $ rally submit --to slurm --map-by ppr:2:numa -N 2 ./a
    error: `--map-by` cannot be translated for Slurm
      reason: the number of these objects is not known before the job starts
      help:   add `-n N` and `--nodes N`, or use `--per-node N`
    [120 slurm/not-translated]

    $ rally submit --to slurm -n 2 ./a : ./b
    error: `./b` cannot be translated for Slurm
      reason: Slurm has to know the number of procs or of nodes beforehand
      help:   add `-n N` for each program, or `--nodes N`
    [120 slurm/not-translated]

    $ rally submit --to slurm -n 2 --per-node 1 ./a : -n 2 ./b
    error: `--per-node` cannot be translated for Slurm
      reason: Slurm has one such number for all programs of a job
      help:   submit the programs as jobs of their own, or give `-n N` alone
    [120 slurm/not-translated]

    $ rally submit --to slurm --slurm-option time=5 ./a
    error: `--slurm-option=--time=5` cannot be translated for Slurm
      reason: `rally` translates its own option into this one
      help:   use `--time`
    [120 slurm/not-translated]

    $ rally submit --to slurm --slurm-option=-t5 ./a
    error: `--slurm-option=-t5` cannot be translated for Slurm
      reason: `rally` translates its own option into this one
      help:   use `--time`
    [120 slurm/not-translated]

    $ rally submit --to slurm --slurm-option=--wra=x ./a
    error: `--slurm-option=--wra=x` cannot be translated for Slurm
      reason: it would change what `rally` submits, or what `sbatch` answers
      help:   leave it out
    [120 slurm/not-translated]

    $ rally submit --to slurm --slurm-option=-W ./a
    error: `--slurm-option=-W` cannot be translated for Slurm
      reason: it would change what `rally` submits, or what `sbatch` answers
      help:   leave it out
    [120 slurm/not-translated]

    $ rally submit --to slurm --slurm-option=-OW ./a
    error: `--slurm-option=-OW` cannot be translated for Slurm
      reason: it would change what `rally` submits, or what `sbatch` answers
      help:   leave it out
    [120 slurm/not-translated]

    $ rally submit --to slurm --slurm-option= ./a
    error: `--slurm-option` cannot be ``: it is no option of sbatch (`partition=NAME`, `--qos=NAME`)
    [120 cli/bad-value]

    $ rally submit --to slurm --slurm-option partition ./a
    error: `--slurm-option=--partition` cannot be translated for Slurm
      reason: it has no value, and `sbatch` might take the next option for one
      help:   give the value in the same word: `--slurm-option NAME=VALUE`
    [120 slurm/not-translated]

    $ rally submit --to slurm --slurm-option=-p ./a
    error: `--slurm-option=-p` cannot be translated for Slurm
      reason: it has no value, and `sbatch` might take the next option for one
      help:   give the value in the same word: `--slurm-option NAME=VALUE`
    [120 slurm/not-translated]

    $ rally submit --to slurm --slurm-option=-Op ./a
    error: `--slurm-option=-Op` cannot be translated for Slurm
      reason: it has no value, and `sbatch` might take the next option for one
      help:   give the value in the same word: `--slurm-option NAME=VALUE`
    [120 slurm/not-translated]

    $ rally submit --to slurm --max-running 2 ./a
    error: `--max-running` and `no --array` cannot be used together
      help: only the tasks of an array are counted
    [120 cli/options-together]

    $ rally submit --to slurm --map-by nonsense ./a
    error: cannot read `--map-by nonsense`: `nonsense` is not known
      help: known are slot, node, core, hwthread, l1cache, l2cache, l3cache, numa, package, ppr, pe-list, seq, rankfile
    [120 place/bad-policy]
    ");
    // Administrators may do it.
    let raised = place.request("rally submit --to slurm --priority 5 ./a");
    assert_eq!(raised.is_err(), os::effective_uid() != 0);
}

#[test]
fn every_reason_says_what_to_do() {
    let all = WhyNot::ALL.map(|why| format!("{}: {}\n", why.reason(), why.help()));
    insta::assert_snapshot!(all.concat(), @"
    Slurm knows its nodes and their slots, and chooses among them itself: name the nodes with `--host`, or only say how many: `--nodes N`
    it is about nodes that are allocated already, and Slurm chooses new ones: leave it out
    the job runs in an allocation of its own, and on no machine: leave it out
    the job runs on nodes of Slurm, and not on nodes for which this one stands: leave it out
    the job runs in an allocation of Slurm: leave it out
    the nodes are not known before the job starts: `--dry-run` shows what would be submitted
    a submitted job has no terminal: leave it out, or use `rally run` under `salloc`
    Slurm gives a job whole CPUs, and itself keeps the job on these: leave it out, or say how many CPUs each proc gets: `--map-by slot:PE=N`
    Slurm names what its nodes have in its own way: name it as Slurm does: `--slurm-option=tres-per-task=gres/NAME:N`
    only administrators of Slurm may put a job before those of others: a priority below 0 lets others go first; `--slurm-option=qos=NAME` chooses a class of jobs
    it counts nodes of an allocation that exists, and Slurm makes a new one: name the nodes with `--host`, or only say how many: `--nodes N`
    Slurm gives the same number of slots on every node: give the number of procs: `-n N`
    Slurm takes no patterns in a name with a backslash: choose another name
    Slurm's listings have one line for each job: choose another name
    Slurm has to know the number of procs or of nodes beforehand: add `-n N` for each program, or `--nodes N`
    the number of these objects is not known before the job starts: add `-n N` and `--nodes N`, or use `--per-node N`
    Slurm has one such number for all programs of a job: submit the programs as jobs of their own, or give `-n N` alone
    each line would be a job of its own, and Slurm has arrays for many: use `--array`, and choose the line by RALLY_ARRAY_INDEX
    `rally` translates its own option into this one: use `--time`
    it would change what `rally` submits, or what `sbatch` answers: leave it out
    it has no value, and `sbatch` might take the next option for one: give the value in the same word: `--slurm-option NAME=VALUE`
    ");
}

#[test]
#[expect(clippy::too_many_lines, reason = "a table")]
fn jobs_of_slurm_are_named() {
    let place = Place::new();
    let is_slurm = |line: &str| matches!(place.request(line), Ok(Request::Slurm(_)));
    for line in [
        "rally queue slurm:3",
        "rally queue --to slurm",
        "rally wait slurm:3 slurm:4",
        "rally output -f slurm:3[2]",
        "rally cancel slurm:3[2-5]",
        "rally hold slurm:3",
        "rally release slurm:3",
    ] {
        assert!(is_slurm(line), "{line}");
    }
    for line in [
        "rally queue",
        "rally queue 3",
        "rally queue --to machine",
        "rally release 3",
        "rally submit ./a --to slurm",
    ] {
        assert!(
            matches!(
                place.request(line),
                Ok(Request::Machine(_) | Request::Release(_))
            ),
            "{line}"
        );
    }
    let said = [
        "rally wait slurm:3 4",
        "rally wait slurm:x",
        "rally wait --on-machine main slurm:3",
        "rally release slurm:3 --ranks 1",
        "rally release slurm:3 --on-machine main",
        "rally release slurm:3[1]",
        "rally release slurm:rally-n1-7@2",
        "rally hold slurm:3[1-2]",
        "rally release 3[1]",
        "rally release --on-machine main",
        "rally release --on-machine main --ranks 1 3",
        "rally release --on-machine main rally-n1-7@2",
        "rally submit --slurm-option qos=x ./a",
        "rally submit --to moon ./a",
        "rally submit -N 2 ./a",
        "rally submit -N 2 ./a --to slurm",
    ];
    let said = said.map(|line| format!("{}\n", place.complaint(line)));
    insta::assert_snapshot!(said.concat(), @"
    $ rally wait slurm:3 4
    error: `slurm:JOB` and `a job of a machine` cannot be used together
      help: use two commands
    [120 cli/options-together]

    $ rally wait slurm:x
    error: `JOB` cannot be `slurm:x`: it is no number of a job (`17`, or `17[3-5]` for tasks of an array where they are possible)
    [120 cli/bad-value]

    $ rally wait --on-machine main slurm:3
    error: `--on-machine` and `slurm` cannot be used together
      help: Slurm's jobs are on no machine
    [120 cli/options-together]

    $ rally release slurm:3 --ranks 1
    error: `--ranks` and `slurm:JOB` cannot be used together
      help: a held job of Slurm has no ranks yet
    [120 cli/options-together]

    $ rally release slurm:3 --on-machine main
    error: `--on-machine` and `slurm` cannot be used together
      help: Slurm's jobs are on no machine
    [120 cli/options-together]

    $ rally release slurm:3[1]
    error: `JOB` cannot be `slurm:3[1]`: it names tasks of an array, and only a whole job can be meant here
    [120 cli/bad-value]

    $ rally release slurm:rally-n1-7@2
    error: `JOB` cannot be `slurm:rally-n1-7@2`: it is no number of a job (`17`, or `17[3-5]` for tasks of an array where they are possible)
    [120 cli/bad-value]

    $ rally hold slurm:3[1-2]
    error: `JOB` cannot be `slurm:3[1-2]`: it names tasks of an array, and only a whole job can be meant here
    [120 cli/bad-value]

    $ rally release 3[1]
    error: `JOB` cannot be `3[1]`: it names tasks of an array, and only a whole job can be meant here
    [120 cli/bad-value]

    $ rally release --on-machine main
    error: `--on-machine` and `no JOB` cannot be used together
      help: give the number of the held job
    [120 cli/options-together]

    $ rally release --on-machine main --ranks 1 3
    error: `--on-machine` and `--ranks` cannot be used together
      help: a held job of the queue has no ranks yet
    [120 cli/options-together]

    $ rally release --on-machine main rally-n1-7@2
    error: `JOB` cannot be `rally-n1-7@2`: it is no number of a job (`17`, or `17[3-5]` for tasks of an array where they are possible)
    [120 cli/bad-value]

    $ rally submit --slurm-option qos=x ./a
    error: `--slurm-option` and `no --to slurm` cannot be used together
      help: only Slurm reads it: add `--to slurm`, or leave it out
    [120 cli/options-together]

    $ rally submit --to moon ./a
    error: `--to` cannot be `moon`: known values are `machine`, `slurm`
    [120 cli/bad-value]

    $ rally submit -N 2 ./a
    error: `-N` means different things to different launchers
      mpirun: procs on each node: here `--per-node N`
      srun:   the number of nodes: here `--host LIST`
      help:   use a spelling named above, or put `--personality mpirun` before `-N`
    [120 cli/two-meanings]

    $ rally submit -N 2 ./a --to slurm
    error: `-N` means different things to different launchers
      mpirun: procs on each node: here `--per-node N`
      srun:   the number of nodes: here `--host LIST`
      help:   use a spelling named above, or put `--personality mpirun` before `-N`
    [120 cli/two-meanings]
    ");
}

/// No option of `sbatch` takes the next one for its value.
#[test]
fn values_that_are_empty_are_refused() {
    let place = Place::new();
    let complaint = |words: &[&str]| {
        let line = ["rally", "submit", "--to", "slurm"].iter().chain(words);
        let words: Vec<OsString> = line.map(OsString::from).collect();
        let args = parse(&words);
        match args.and_then(|args| resolve(&args, &place.world)) {
            Ok(request) => format!("{request:?}\n"),
            Err(error) => message::text(&error.message(), MessageFormat::Text),
        }
    };
    // Neither is a name of several lines, whoever gives it.
    let said = [
        ["--job-name", ""],
        ["--job-name", "a\nb"],
        ["--wdir", "/"],
        ["--output-to", ""],
        ["--errors-to", ""],
        ["--host", ""],
        ["--exclude", ""],
        ["--nodes", ""],
        ["--nodes", "0"],
        ["--slurm-option", ""],
    ]
    .map(|[option, value]| {
        let program = if option == "--wdir" { "./a\nb" } else { "./a" };
        complaint(&[option, value, "-n", "1", program])
    });
    insta::assert_snapshot!(said.concat(), @"
    error: `--job-name` cannot be ``: it is empty
    error: `--job-name` cannot be translated for Slurm
      reason: Slurm's listings have one line for each job
      help:   choose another name
    error: `--job-name` cannot be translated for Slurm
      reason: Slurm's listings have one line for each job
      help:   choose another name
    error: `--output-to` cannot be ``: it is empty
    error: `--errors-to` cannot be ``: it is empty
    error: cannot read the nodes of `--host`: no node is named
    error: cannot read the nodes of `--exclude`: no node is named
    error: `--nodes` cannot be ``: it is not a whole number
    error: `--nodes` cannot be `0`: a job runs on at least one node
      help: give 1 or more, or leave `--nodes` out
    error: `--slurm-option` cannot be ``: it is no option of sbatch (`partition=NAME`, `--qos=NAME`)
    ");
    // A program whose path ends with a slash gives a job no name.
    let named = batch(&place, "rally submit --to slurm -n 1 ./a/");
    let named = named.options.iter().map(|word| word.to_string_lossy());
    let named: Vec<_> = named.filter(|word| word.contains("job-name")).collect();
    assert!(named.is_empty(), "{named:?}");
}

/// Otherwise such a job would wait for its turn, and then fail.
#[test]
#[expect(clippy::too_many_lines, reason = "a table")]
fn what_does_not_depend_on_nodes_is_checked_at_submission() {
    let place = Place::new()
        .file("ranks", "rank 0=n1 slot=x\n")
        .file("tune", "nonsense\n")
        .file("programs", "0-1 ./a\n1 ./b\n")
        .variable("RALLY_RANK_BY", "colour");
    let lines = [
        "--rank-by slot --bind-to nonsense ./a",
        "--rank-by slot --bind-list 0-x ./a",
        "--rank-by nonsense ./a",
        "./a",
        "--rank-by slot -n 2 ./a : -n 1 --map-by nonsense ./b",
        "--rank-by slot -N 2 --per-node 2 --map-by core ./a",
        "--rank-by slot --map-by rankfile:file=ranks ./a",
        "--rank-by slot --map-by rankfile:file=missing ./a",
        "--rank-by slot --map-by rankfile ./a",
        "--rank-by slot --output-file out.%x ./a",
        "--rank-by slot --merge-stderr --error-file err ./a",
        "--rank-by slot --input missing ./a",
        "--rank-by slot --env-family none,slurm ./a",
        "--rank-by slot --preload-files missing ./a",
        "--rank-by slot --tune tune ./a",
        "--rank-by slot --personality srun --multi-prog -n 2 programs",
        "--rank-by slot --host n[1-2 ./a",
        "--rank-by slot --host n1:x ./a",
        "--rank-by slot --exclude n[ ./a",
        "--rank-by slot --nodes 4-2 ./a",
    ];
    let said = lines.map(|line| {
        let line = format!("rally submit --to slurm {line}");
        format!("{}\n", place.complaint(&line))
    });
    insta::assert_snapshot!(said.concat(), @"
    $ rally submit --to slurm --rank-by slot --bind-to nonsense ./a
    error: cannot read `--bind-to nonsense`: `nonsense` is not known
      help: known are none, core, hwthread, l1cache, l2cache, l3cache, numa, package
    [120 place/bad-policy]

    $ rally submit --to slurm --rank-by slot --bind-list 0-x ./a
    error: cannot read `--bind-list 0-x`: expected a number at position 2
    [120 place/bad-policy]

    $ rally submit --to slurm --rank-by nonsense ./a
    error: cannot read `--rank-by nonsense`: `nonsense` is not known
      help: known are slot, node, fill, span, core, hwthread, l1cache, l2cache, l3cache, numa, package
    [120 place/bad-policy]

    $ rally submit --to slurm ./a
    error: cannot read `--rank-by colour`: `colour` is not known
      from: environment, RALLY_RANK_BY
      help: known are slot, node, fill, span, core, hwthread, l1cache, l2cache, l3cache, numa, package
    [120 place/bad-policy]

    $ rally submit --to slurm --rank-by slot -n 2 ./a : -n 1 --map-by nonsense ./b
    error: cannot read `--map-by nonsense`: `nonsense` is not known
      help: known are slot, node, core, hwthread, l1cache, l2cache, l3cache, numa, package, ppr, pe-list, seq, rankfile
    [120 place/bad-policy]

    $ rally submit --to slurm --rank-by slot -N 2 --per-node 2 --map-by core ./a
    error: `--per-node` and `--map-by core` cannot be used together
      help: use `--map-by ppr:N:RESOURCE` alone, or leave one of them out
    [120 cli/options-together]

    $ rally submit --to slurm --rank-by slot --map-by rankfile:file=ranks ./a
    error: cannot read the ranks of `ranks`, line 1: `x` is not a list of cores (expected a number at position 0)
    [121 place/bad-rankfile]

    $ rally submit --to slurm --rank-by slot --map-by rankfile:file=missing ./a
    error: cannot read the rankfile `missing`: No such file or directory (os error 2)
      effect: the job was not started
    [121 cli/unreadable-file]

    $ rally submit --to slurm --rank-by slot --map-by rankfile ./a
    error: the policy `rankfile` needs a file
      help: name it: `--map-by rankfile:FILE=NAME`
    [120 place/bad-policy]

    $ rally submit --to slurm --rank-by slot --output-file out.%x ./a
    error: `--output-file` cannot be `out.%x`: `%x` means nothing (known: %r rank, %s size, %l local rank, %a app, %j job, %h host, %p pid, %%)
      help: `rally help output` lists the letters of patterns
    [120 cli/bad-value]

    $ rally submit --to slurm --rank-by slot --merge-stderr --error-file err ./a
    error: `--merge-stderr` and `--error-file` cannot be used together
      help: merged, both go where stdout goes: leave one of them out
    [120 cli/options-together]

    $ rally submit --to slurm --rank-by slot --input missing ./a
    error: cannot read the input file `DIR/missing`: No such file or directory (os error 2)
      effect: the job was not started
    [121 cli/unreadable-file]

    $ rally submit --to slurm --rank-by slot --env-family none,slurm ./a
    error: `--env-family none` and `--env-family slurm` cannot be used together
      help: leave one of them out
    [120 cli/options-together]

    $ rally submit --to slurm --rank-by slot --preload-files missing ./a
    error: cannot read the file to copy `missing`: No such file or directory (os error 2)
      effect: the job was not started
    [121 cli/unreadable-file]

    $ rally submit --to slurm --rank-by slot --tune tune ./a
    error: cannot read the file of parameters `tune`, line 1: a line is `-mca NAME VALUE`, `-x NAME=VALUE` or `NAME = VALUE`
      help: `rally help mpmd` shows the form
    [121 cli/bad-app-file]

    $ rally submit --to slurm --rank-by slot --personality srun --multi-prog -n 2 programs
    error: cannot read the file of programs `programs`, line 2: there is another line for rank 1
      help: `rally help mpmd` shows the form
    [121 cli/bad-app-file]

    $ rally submit --to slurm --rank-by slot --host n[1-2 ./a
    error: cannot read the nodes of `--host`: the `[` at position 1 is never closed
    [120 alloc/bad-text]

    $ rally submit --to slurm --rank-by slot --host n1:x ./a
    error: cannot read the nodes of `--host`: `x` is not a number of slots
    [120 alloc/bad-text]

    $ rally submit --to slurm --rank-by slot --exclude n[ ./a
    error: cannot read the nodes of `--exclude`: the `[` at position 1 is never closed
    [120 alloc/bad-text]

    $ rally submit --to slurm --rank-by slot --nodes 4-2 ./a
    error: `--nodes` cannot be `4-2`: the larger number comes first
    [120 cli/bad-value]
    ");
    // Another job may write a file before this one starts.
    for option in ["--after 3", "--hold"] {
        for what in ["--input missing", "--map-by rankfile:file=missing"] {
            let line = format!("rally submit --to slurm --rank-by slot {option} {what} ./a");
            assert!(place.request(&line).is_ok(), "{line}");
        }
    }
    // What depends on the nodes is left to the job.
    for line in [
        "--gpus 99",
        "--host n1,n2",
        "--nodes 5",
        "--exclude node7",
        "--map-by seq:file=hosts",
        "--bootstrap slurm",
    ] {
        let line = format!("rally submit --to slurm --rank-by slot -n 5 {line} ./a");
        assert!(place.request(&line).is_ok(), "{}", place.complaint(&line));
    }
}
