use std::ffi::OsStr;

use proptest::prelude::*;

use super::*;

fn words(line: &str) -> Vec<OsString> {
    line.split_whitespace().map(OsString::from).collect()
}

/// Segments in our own spelling, then what is ignored.
fn translated(personality: Personality, line: &str) -> String {
    match translate(&words(line), personality, &Native::of_run()) {
        Ok(translation) => shown(&translation),
        Err(error) => format!("error: {error}"),
    }
}

fn shown(translation: &Translation) -> String {
    let segment = |segment: &Segment| {
        let options = segment
            .options
            .iter()
            .map(|option| option.argument().display().to_string());
        let program = segment
            .program
            .iter()
            .map(|word| word.display().to_string());
        options.chain(program).collect::<Vec<_>>().join(" ")
    };
    let mut text = translation
        .segments
        .iter()
        .map(segment)
        .collect::<Vec<_>>()
        .join(" : ");
    if !translation.ignored.is_empty() {
        text.push_str(&format!(" [ignored: {}]", translation.ignored.join(", ")));
    }
    if let Some(asks) = &translation.asks {
        text.push_str(&format!("{asks:?}"));
    }
    text
}

const R: Personality = Personality::Rally;
const E: Personality = Personality::Mpiexec;
const M: Personality = Personality::Mpirun;
const S: Personality = Personality::Srun;

fn check(cases: &[(Personality, &str, &str)]) {
    for (personality, line, expected) in cases {
        assert_eq!(
            translated(*personality, line),
            *expected,
            "{} {line}",
            personality.command()
        );
    }
}

#[test]
fn counts() {
    check(&[
        (R, "-n 4 a", "--np=4 a"),
        (R, "-np 4 a", "--np=4 a"),
        (R, "--np 4 a", "--np=4 a"),
        (R, "--np=4 a", "--np=4 a"),
        (R, "-n=4 a", "--np=4 a"),
        (R, "-n4 a", "--np=4 a"),
        (R, "--n 4 a", "--np=4 a"),
        (R, "--ntasks=4 a", "--np=4 a"),
        (R, "-n -3 a", "--np=-3 a"),
        (M, "-c 4 a", "--np=4 a"),
        (E, "-c 4 a", "--np=4 a"),
        (S, "-n4 -c2 a", "--np=4 --map-by=:PE=2 a"),
        (S, "--cpus-per-task=2 a", "--map-by=:PE=2 a"),
        (R, "-soft 1:4:2 a", "a"),
        (M, "-N 2 a", "--per-node=2 a"),
        (E, "-ppn 2 a", "--deal=2 a"),
        (E, "-perhost 2 a", "--deal=2 a"),
        (E, "-ppn2 a", "--deal=2 a"),
        (M, "-np2 a", "--np=2 a"),
        (M, "-npx a", "error: there is no option `-npx`"),
        (M, "-npernode 2 a", "--per-node=2 a"),
        (M, "--npernode 2 a", "--per-node=2 a"),
        (M, "-pernode a", "--per-node=1 a"),
        (S, "--ntasks-per-node=2 a", "--per-node=2 a"),
        (M, "-npersocket 2 a", "--map-by=ppr:2:package a"),
        (S, "--ntasks-per-core=1 a", "--map-by=ppr:1:core a"),
        (S, "-N1 -n4 a", "--nodes=1 --np=4 a"),
        (S, "-N 1-4 a", "--nodes=1-4 a"),
        (
            S,
            "-c x a",
            "error: `-c` cannot be `x`: it is not a whole number",
        ),
    ]);
}

#[test]
fn hosts() {
    check(&[
        (R, "-host h1 a", "--host=h1 a"),
        (R, "--host h1:4,h2 a", "--host=h1:4,h2 a"),
        (M, "-H h1 a", "--host=h1 a"),
        (E, "-hosts h1,h2:4 a", "--host=h1,h2:4 a"),
        (S, "-w n[1-4] a", "--host=n[1-4] a"),
        (S, "--nodelist=n1 a", "--host=n1 a"),
        (R, "-arch x86 a", "a [ignored: -arch x86]"),
        (R, "--hostfile f a", "--hostfile=f a"),
        (R, "-machinefile f a", "--hostfile=f a"),
        (E, "-f f a", "--hostfile=f a"),
        (R, "-f f a", "--hostfile=f a"),
        (S, "-F f a", "--hostfile=f a"),
        (S, "-x h1 a", "--exclude=h1 a"),
        (S, "-w ./list a", "--hostfile=./list a"),
        (
            M,
            "--nolocal a",
            "error: `--nolocal` is not offered: this version runs jobs on one node",
        ),
        (
            M,
            "--add-host h a",
            "error: `--add-host` is not offered: there is no machine that runs on between jobs yet",
        ),
    ]);
}

#[test]
fn programs() {
    check(&[
        (R, "-wdir d a", "--wdir=d a"),
        (R, "-wd d a", "--wdir=d a"),
        (R, "--wdir d a", "--wdir=d a"),
        (S, "-D d a", "--wdir=d a"),
        (S, "--chdir=d a", "--wdir=d a"),
        (R, "-path p a", "--path=p a"),
        (R, "-file f", "--app=f"),
        (R, "-configfile f", "--app=f"),
        (R, "--app f", "--app=f"),
        (R, "--umask 022 a", "--umask=022 a"),
        (R, "-n 2 a -n 3 --foo -- x", "--np=2 a -n 3 --foo -- x"),
        (R, "-n 2 -- -a -n 3", "--np=2 -a -n 3"),
        (R, "-n 2 a x : -n 1 b : c", "--np=2 a x : --np=1 b : c"),
        (R, "- x", "- x"),
        (R, "-n 1 a :", "--np=1 a : "),
        (S, "--multi-prog f", "--multi-prog f"),
    ]);
}

#[test]
fn environments() {
    check(&[
        // Open MPI gives the `-x` of the first app to all (measured with 5.0.11), that of another only to it.
        (
            M,
            "-x A=1 -n 1 a : -n 1 b",
            "--set-env=A=1 --np=1 a : --set-env=A=1 --np=1 b",
        ),
        (M, "-n 1 a : -x A=1 b", "--np=1 a : --set-env=A=1 b"),
        (E, "-x A a", "--set-env=A a"),
        (M, "-x A* a", "--set-env=A* a"),
        (
            R,
            "-genv A 1 -n 1 a : b",
            "--set-env=A=1 --np=1 a : --set-env=A=1 b",
        ),
        (R, "-genv A=1 a", "--set-env=A=1 a"),
        (R, "-genv FLAGS -n a", "--set-env=FLAGS=-n a"),
        (R, "-genv A : a", "--set-env=A=: a"),
        (R, "-n 1 -env A 1 a : b", "--np=1 --set-env=A=1 a : b"),
        (R, "--env A=1 a", "--set-env=A=1 a"),
        (R, "--env=A=1 a", "--set-env=A=1 a"),
        (
            E,
            "-genvlist A,B a : b",
            "--inherit-env=A,B a : --inherit-env=A,B b",
        ),
        (E, "-genvall a", "--inherit-env=all a"),
        (E, "-genvnone a", "--inherit-env=none a"),
        (E, "-envlist A,B a : b", "--inherit-env=A,B a : b"),
        (E, "-envall a", "--inherit-env=all a"),
        (E, "-envnone a : b", "--inherit-env=none a : b"),
        (E, "-genvexcl A,B a", "--unset-env=A --unset-env=B a"),
        (S, "--export=ALL a", "--inherit-env=all a"),
        (S, "--export=NONE a", "--inherit-env=none a"),
        (
            S,
            "--export=ALL,A=1,B a",
            "--inherit-env=all --set-env=A=1 a",
        ),
        (S, "--export=A=1,B,C a", "--inherit-env=B,C --set-env=A=1 a"),
        (S, "--export A=1 a", "--inherit-env=none --set-env=A=1 a"),
        (M, "--prepend-env P[:] /x a", "--prepend-env=P[:]=/x a"),
        (M, "--append-env P[:] /x a", "--append-env=P[:]=/x a"),
        (R, "--append-env P=/x a", "--append-env=P=/x a"),
        (R, "--append-env=P=/x a", "--append-env=P=/x a"),
        (M, "--unset-env A* a", "--unset-env=A* a"),
        (R, "--set-env A=1 a", "--set-env=A=1 a"),
    ]);
}

#[test]
fn placement() {
    check(&[
        (R, "--map-by ppr:2:package a", "--map-by=ppr:2:package a"),
        (R, "--map-by=core a", "--map-by=core a"),
        (E, "-map-by socket a", "--map-by=socket a"),
        (E, "-bind-to core:2 a", "--bind-to=core:2 a"),
        (R, "--rank-by node a", "--rank-by=node a"),
        (M, "--bynode a", "--map-by=node a"),
        (M, "--bind-to-core a", "--bind-to=core a"),
        (M, "--use-hwthread-cpus a", "--map-by=:HWTCPUS a"),
        (M, "--rankfile f a", "--map-by=rankfile:FILE=f a"),
        (M, "--cpu-set 0,2 a", "--map-by=pe-list=0,2 a"),
        (M, "--oversubscribe a", "--oversubscribe a"),
        (M, "--nooversubscribe a", "--oversubscribe=no a"),
        (S, "-O a", "--oversubscribe=yes a"),
        (S, "--overcommit a", "--oversubscribe=yes a"),
        (M, "--report-bindings a", "--display=bindings a"),
        (M, "--display-map a", "--display=map a"),
        (
            M,
            "--display map,bind,alloc a",
            "--display=map --display=bindings --display=allocation a",
        ),
        (M, "--display MAP-DEVEL a", "--display=map a"),
        (
            M,
            "--display x a",
            "error: `--display` cannot be `x`: known values are `map`, `bindings`, `allocation`",
        ),
        (
            S,
            "--cpu-bind=v,cores a",
            "--display=bindings --bind-to=core a",
        ),
        (S, "--cpu-bind=none a", "--bind-to=none a"),
        (S, "--cpu-bind=map_cpu:0,2 a", "--bind-list=0,2 a"),
        (
            S,
            "--cpu-bind=v,mask_cpu:0x3,c*2 a",
            "--display=bindings --bind-list=0+1,2+3,2+3 a",
        ),
        (S, "--cpu-bind=map_ldom:1*2,0 a", "--bind-list=numa:1,1,0 a"),
        (
            S,
            "--cpu-bind=map_cpu:0,x a",
            "error: `--cpu-bind` cannot be `map_cpu:0,x`: it is not a list of PUs for each rank (`0,2`, `0+1,2+3`, `numa:0,1`, or `each`)",
        ),
        (
            S,
            "--cpu-bind=corse a",
            "error: `--cpu-bind` cannot be `corse`: known values are `none`, `cores`, `threads`, `sockets`, `ldoms`, `rank`, `map_cpu:LIST`, `mask_cpu:LIST`, `map_ldom:LIST`, `mask_ldom:LIST`, `verbose`, `quiet`",
        ),
        (E, "-bind-to rr a", "--bind-list=each a"),
        (E, "-bind-to user:0+2,1,3 a", "--bind-list=0+2,1,3 a"),
        (
            M,
            "--bind-to core:REPORT a",
            "--display=bindings --bind-to=core a",
        ),
        (
            M,
            "--map-by core:PE=2:NOLOCAL a",
            "error: `--map-by core:PE=2:NOLOCAL` is not offered: this version runs jobs on one node",
        ),
        (
            M,
            "--map-by slot:DISPLAY:donotlaunch a",
            "--display=map --dry-run --map-by=slot a",
        ),
        (
            M,
            "--map-by dist:span a",
            "error: `--map-by dist:span` is not offered: how far devices are is not known",
        ),
        (
            M,
            "--map-by rankfile:file=/a:DISPLAY a",
            "--map-by=rankfile:file=/a:DISPLAY a",
        ),
        (M, "--rank-by core a", "--rank-by=core a"),
        (M, "--rank-by package:SPAN a", "--rank-by=package a"),
        (S, "-m cyclic a", "--map-by=node a"),
        (S, "-m block:cyclic a", "--map-by=package a"),
        (S, "-m block a", "--map-by=slot a"),
        (S, "-m plane=2 a", "--map-by=slot a"),
        (M, "--rtos donotlaunch a", "--dry-run a"),
        (
            M,
            "--runtime-options donotlaunch,recoverable a",
            "--dry-run --kill-on-bad-exit=no a",
        ),
        (
            M,
            "--rtos error-nonzero-status=0 a",
            "--kill-on-bad-exit=no a",
        ),
        (
            M,
            "--rtos show-progress a",
            "a [ignored: --rtos show-progress]",
        ),
        (
            M,
            "--rtos x a",
            "error: `--rtos` cannot be `x`: known values are `donotlaunch`, `error-nonzero-status=BOOL`, `recoverable`, `continuous`, `stop-on-exec`, `stop-in-init`, `stop-in-app`",
        ),
        (M, "--do-not-launch a", "--dry-run a"),
        (S, "--test-only a", "--dry-run a"),
        (R, "--dry-run --explain a", "--dry-run --explain a"),
        (
            E,
            "-rankmap 0,1 a",
            "error: `-rankmap` is not offered: the rank maps of Hydra are not read",
        ),
    ]);
}

#[test]
fn output_and_input() {
    check(&[
        (R, "-l a", "--label a"),
        (M, "--tag-output a", "--label=rank a"),
        (E, "-prepend-rank a", "--label=rank a"),
        (S, "--label a", "--label a"),
        (M, "--timestamp-output a", "--timestamps=yes a"),
        (M, "--merge-stderr-to-stdout a", "--merge-stderr a"),
        (
            M,
            "--output tag,timestamp,merge a",
            "--label=rank --timestamps=yes --merge-stderr a",
        ),
        (M, "--output TAG-DETAILED a", "--label=full a"),
        (
            M,
            "--output file=out%:nocopy a",
            "--output-file=out%%.%r.out --error-file=out%%.%r.err a",
        ),
        (
            M,
            "--output dir=d a",
            "--output-file=d/%j/rank.%r/stdout --error-file=d/%j/rank.%r/stderr a",
        ),
        (
            M,
            "--output x a",
            "error: `--output` cannot be `x`: known values are `tag`, `tag-detailed`, `tag-fullname`, `timestamp`, `merge-stderr-to-stdout`, `dir=NAME`, `file=NAME`",
        ),
        (
            M,
            "--output-filename o a",
            "--output-file=o.%r.out --error-file=o.%r.err a",
        ),
        (E, "-outfile-pattern o.%r.%h a", "--output-file=o.%r.%h a"),
        (E, "-errfile-pattern e.%3r.%g a", "--error-file=e.%3r.%j a"),
        (E, "-outfile-pattern o.%p a", "--output-file=o.0 a"),
        (
            E,
            "-outfile-pattern o.% a",
            "error: `-outfile-pattern` cannot be `o.%`: a lone `%` ends the pattern (write `%%` for a percent sign)",
        ),
        (
            S,
            "-o out.%t.%N -e none a",
            "--slurm-output=out.%t.%N --slurm-error=none a",
        ),
        (S, "-o all a", "--slurm-output=all a"),
        (S, "--output=o.%s a", "--slurm-output=o.%s a"),
        (
            R,
            "-o out.%r -e err.%r a",
            "--output-file=out.%r --error-file=err.%r a",
        ),
        (R, "--stdin all a", "--stdin=all a"),
        (R, "-stdin none a", "--stdin=none a"),
        (S, "-i none a", "--stdin=none a"),
        (S, "-i 3 a", "--stdin=3 a"),
        (S, "--input=f a", "--input=f a"),
        (R, "-i f a", "--input=f a"),
        (R, "--input all a", "--input=all a"),
        (R, "--pty a", "--pty a"),
        (R, "--pty 1 a", "--pty=1 a"),
        (R, "--pty=1 a", "--pty=1 a"),
        (S, "-u a", "--line-buffered=yes a"),
        (R, "--json a", "--json a"),
        (
            M,
            "--xml a",
            "error: `--xml` is not offered: output is text or JSON lines",
        ),
        (
            M,
            "--xterm 0 a",
            "error: `--xterm` is not offered: no windows are opened",
        ),
        (
            E,
            "-prepend-pattern %r a",
            "error: `-prepend-pattern` is not offered: labels have fixed forms",
        ),
    ]);
}

#[test]
fn life_and_tools() {
    check(&[
        (M, "--timeout 10 a", "--timeout=10 a"),
        (S, "-t 1:30 a", "--timeout=90 a"),
        (S, "-t 0 a", "--timeout=0 a"),
        (
            S,
            "-t x a",
            "error: `-t` cannot be `x`: it is not a time of srun's forms (minutes, minutes:seconds, hours:minutes:seconds, days-hours)",
        ),
        (R, "--grace 2 a", "--grace=2 a"),
        (R, "--kill-on-bad-exit=no a", "--kill-on-bad-exit=no a"),
        (S, "-K a", "--kill-on-bad-exit a"),
        (S, "-K0 a", "--kill-on-bad-exit=0 a"),
        (M, "-K a", "--kill-on-bad-exit=yes a"),
        (E, "-disable-auto-cleanup a", "--kill-on-bad-exit=no a"),
        (M, "--enable-recovery a", "--kill-on-bad-exit=no a"),
        (R, "--stop-on-exec a", "--stop-on-exec a"),
        (
            E,
            "-gtool x a",
            "error: `-gtool` is not offered: debuggers are not started from here",
        ),
        (
            E,
            "-gdb a",
            "error: `-gdb` is not offered: debuggers are not started from here",
        ),
        (
            M,
            "--debug a",
            "error: `--debug` is not offered: debuggers are not started from here",
        ),
        (
            M,
            "-tv a",
            "error: `-tv` is not offered: debuggers are not started from here",
        ),
        (E, "-launcher fork a", "a"),
        (E, "-bootstrap ssh a", "a"),
        (R, "--bootstrap ssh a", "--bootstrap=ssh a"),
        (
            E,
            "-launcher-exec x -rmk user a",
            "a [ignored: -launcher-exec x, -rmk user]",
        ),
        (R, "-qv a", "--quiet --verbose a"),
        (R, "-vvv a", "--verbose --verbose --verbose a"),
        (M, "--allow-run-as-root a", "a"),
        (M, "-prefix /opt a", "a [ignored: -prefix /opt]"),
        (
            M,
            "--mca btl tcp,self a",
            "--set-env=OMPI_MCA_btl=tcp,self a",
        ),
        (
            M,
            "--mca btl self a : --mca pml ob1 b : --gmca x y c",
            "--set-env=OMPI_MCA_btl=self a : --set-env=OMPI_MCA_btl=self --set-env=OMPI_MCA_pml=ob1 b : \
             --set-env=OMPI_MCA_btl=self --set-env=OMPI_MCA_x=y c",
        ),
        (M, "--prtemca btl self a", "a [ignored: --prtemca btl self]"),
        (
            M,
            "--mca plm_base_verbose 5 a",
            "a [ignored: --mca plm_base_verbose 5]",
        ),
        (
            M,
            "--with-ft ulfm a",
            "--set-env=OMPI_MCA_mpi_ft_enable=1 --kill-on-bad-exit=no a",
        ),
        (M, "--with-ft no a", "a"),
        (M, "--with-ft magic a", "a [ignored: --with-ft magic]"),
        (
            M,
            "--mca btl ^openib -pmixmca k v a",
            "--set-env=OMPI_MCA_btl=^openib a [ignored: -pmixmca k v]",
        ),
        (
            M,
            "--mca rmaps_base_mapping_policy node a",
            "--map-by=node a",
        ),
        (
            M,
            "--mca hwloc_base_binding_policy none a",
            "--bind-to=none a",
        ),
        (
            M,
            "--mca rmaps_base_oversubscribe 1 a",
            "--oversubscribe=yes a",
        ),
        (M, "--mca orte_tag_output 1 a", "--label=rank a"),
        (M, "--mca orte_tag_output 0 a", "--label=none a"),
        (
            S,
            "-p debug -J x --mpi=pmix --exclusive a",
            "a [ignored: -p debug, -J x, --exclusive]",
        ),
        (R, "--personality srun -c 2 a", "--map-by=:PE=2 a"),
        (R, "--personality ompi -c 2 a", "--np=2 a"),
        (R, "--personality x a", "error: there is no personality `x`"),
    ]);
}

#[test]
fn questions() {
    check(&[
        (R, "-h", "ShortHelp"),
        (R, "--help", "FullHelp"),
        (M, "-help", "FullHelp"),
        (M, "--help placement", "Topic(\"placement\")"),
        (M, "--help ./a", "FullHelp"),
        (R, "-n 4 -V", "--np=4Version"),
        (R, "--version", "Version"),
        (E, "-info", "Version"),
        (R, "a -h", "a -h"),
    ]);
}

#[test]
fn mistakes() {
    check(&[
        (R, "--hostfil f a", "error: there is no option `--hostfil`"),
        (
            R,
            "-output-fil f a",
            "error: there is no option `-output-fil`",
        ),
        (R, "-nfoo a", "error: there is no option `-nfoo`"),
        (R, "-n", "error: `-n` needs a value"),
        (R, "-n --host h a", "error: `-n` needs a value"),
        (R, "-n : a", "error: `-n` needs a value"),
        (R, "-genv A", "error: `-genv` needs a value"),
        (
            R,
            "--dry-run=yes a",
            "error: `--dry-run` takes no value, but was given `yes`",
        ),
        (
            R,
            "-c 2 a",
            "error: `-c` does not mean the same to everybody",
        ),
        (
            R,
            "-c2 a",
            "error: `-c` does not mean the same to everybody",
        ),
        (
            R,
            "-N 2 a",
            "error: `-N` does not mean the same to everybody",
        ),
        (
            R,
            "-x A a",
            "error: `-x` does not mean the same to everybody",
        ),
        (
            R,
            "-s all a",
            "error: `-s` does not mean the same to everybody",
        ),
        (M, "-s a", "a"),
        (E, "-s all a", "--stdin=all a"),
        (E, "-s 1 a", "--stdin=1 a"),
        (
            R,
            "--output tag a",
            "error: `--output` does not mean the same to everybody",
        ),
    ]);
}

#[test]
fn the_table_is_sound() {
    let native = Native::of_run();
    for personality in Personality::ALL {
        let mut seen = std::collections::BTreeSet::new();
        for spelling in spellings().filter(|spelling| spelling.under(personality)) {
            for name in spelling.names {
                assert!(
                    seen.insert(*name),
                    "{name} stands twice under {personality:?}"
                );
            }
            if let Means::Same(flag) | Means::Fixed(flag, _) | Means::Plain(flag) = spelling.means {
                assert!(native.find(flag).is_some(), "{flag} is not ours");
            }
        }
    }
}

/// Names of all options, ours and others', with a few that are none.
fn any_word() -> impl Strategy<Value = String> {
    let names: Vec<&'static str> = spellings()
        .flat_map(|spelling| spelling.names.iter().copied())
        .collect();
    let ours: Vec<String> = Native::of_run().names().map(str::to_owned).collect();
    prop_oneof![
        proptest::sample::select(names).prop_map(|name| format!("-{name}")),
        proptest::sample::select(ours.clone()).prop_map(|name| format!("--{name}")),
        proptest::sample::select(ours).prop_map(|name| format!("-{name}=x")),
        "-{0,2}[a-zA-Z:=,0-9%*]{0,6}",
        Just(":".to_owned()),
        Just("--".to_owned()),
    ]
}

fn any_personality() -> impl Strategy<Value = Personality> {
    proptest::sample::select(Personality::ALL.to_vec())
}

proptest! {
    #[test]
    fn nothing_makes_it_panic(
        personality in any_personality(),
        words in proptest::collection::vec(any_word(), 0..12),
        raw in proptest::collection::vec(any::<u8>(), 0..8),
    ) {
        let mut words: Vec<OsString> = words.into_iter().map(OsString::from).collect();
        words.push(OsString::from_vec(raw));
        if let Ok(translation) = translate(&words, personality, &Native::of_run()) {
            prop_assert!(!translation.segments.is_empty());
        }
    }

    #[test]
    fn arguments_of_the_program_are_never_touched(
        personality in any_personality(),
        arguments in proptest::collection::vec(any_word(), 0..12),
    ) {
        let mut words = words("-n 2 ./program");
        words.extend(arguments.iter().map(OsString::from));
        // Segments after the first may hold anything, also mistakes: they are another app's options.
        let end = words.iter().position(|word| word == ":").unwrap_or(words.len());
        let first: Vec<_> = words.drain(..end).collect();
        let translation = translate(&first, personality, &Native::of_run()).unwrap();
        prop_assert_eq!(&translation.segments[0].program[..], &first[2..]);
        prop_assert_eq!(translation.segments.len(), 1);
        prop_assert_eq!(translation.segments[0].program[0].as_os_str(), OsStr::new("./program"));
    }
}

/// Each option of each manual page has a row: what it becomes, or why it is refused.
#[test]
fn every_option_of_the_manual_pages() {
    let pages = [
        (
            S,
            "srun",
            include_str!("../../../../../testdata/options/srun.txt"),
        ),
        (
            M,
            "mpirun",
            include_str!("../../../../../testdata/options/mpirun.txt"),
        ),
        (
            M,
            "openmpi5",
            include_str!("../../../../../testdata/options/openmpi5.txt"),
        ),
        (
            E,
            "hydra",
            include_str!("../../../../../testdata/options/hydra.txt"),
        ),
    ];
    for (personality, page, rows) in pages {
        let row = |row: &str| match row.split_once(" => ") {
            Some((line, _)) => format!("{line} => {}", translated(personality, line)),
            None => row.to_owned(),
        };
        let now: Vec<_> = rows.lines().map(row).collect();
        let before: Vec<_> = rows.lines().collect();
        for (now, before) in now.iter().zip(&before) {
            assert_eq!(now, before, "testdata/options/{page}.txt");
        }
    }
}
