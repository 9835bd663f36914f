mod any;
mod behaviour;
mod placement;

use super::*;

fn words(line: &str) -> Vec<OsString> {
    line.split_whitespace().map(OsString::from).collect()
}

/// Returns the segments in our own spelling, then the ignored options.
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
        (M, "--nolocal a", "--nolocal a"),
        (
            M,
            "--add-host h a",
            "error: `--add-host` is not supported: a persistent launcher is not found by its address",
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
        (R, "--pset x a : --pset y b", "--pset=x a : --pset=y b"),
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
        // Open MPI applies the `-x` of the first app to all apps (measured with 5.0.11), but that of another app only to
        // itself.
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
            "error: `-c` means different things to different launchers",
        ),
        (
            R,
            "-c2 a",
            "error: `-c` means different things to different launchers",
        ),
        (
            R,
            "-N 2 a",
            "error: `-N` means different things to different launchers",
        ),
        (
            R,
            "-x A a",
            "error: `-x` means different things to different launchers",
        ),
        (
            R,
            "-s all a",
            "error: `-s` means different things to different launchers",
        ),
        (M, "-s a", "--preload-binary a"),
        (E, "-s all a", "--stdin=all a"),
        (E, "-s 1 a", "--stdin=1 a"),
        (
            R,
            "--output tag a",
            "error: `--output` means different things to different launchers",
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

/// Each option of each manual page has a row: its translation, or why it is refused.
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
        let changed = rows.lines().map(|before| (before, row(before)));
        let changed: Vec<_> = changed.filter(|(before, now)| before != now).collect();
        assert!(
            changed.is_empty(),
            "testdata/options/{page}.txt: {changed:#?}"
        );
    }
}
