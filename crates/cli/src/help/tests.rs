use super::{topics::topic_names, *};
use crate::{args, generate, kinds};

const TABLES: &[&[&Kind]] = &[kinds::KINDS, dvm::messages::KINDS];

fn page(asked: &HelpTopic) -> String {
    text(asked, TABLES).unwrap()
}

#[test]
fn short_help_of_rally() {
    insta::assert_snapshot!(page(&HelpTopic::Short), @r#"
    Start programs in parallel, and never lose one

    Usage: rally <COMMAND>

    Commands:
      run      Start a program in parallel
      demo     Run a built-in parallel program, to see that all works
      release  Let the held ranks of a running job go
      config   Show the settings in force and where each comes from
      help     Explain a topic or an error

    Options:
      -h, --help     Print help
      -V, --version  Print version

    Called mpiexec, mpirun or srun, it is `rally run` with the habits of that name.

    Topics of `rally help`: placement, output, input, signals, exit-codes,
    environment, personalities, mpmd, debugging, errors; or the id of an error.
    "#);
}

#[test]
fn short_help_of_run() {
    insta::assert_snapshot!(page(&HelpTopic::RunShort), @r#"
    Start a program in parallel

    Usage: rally run [OPTIONS] PROGRAM [ARGS]... [: [OPTIONS] PROGRAM [ARGS]...]...
           rally run [OPTIONS] --app FILE

    App:
      -n, --np <N>                  Number of procs [default: one per slot]
          --wdir <DIR>              Working directory of the procs
          --set-env <NAME[=VALUE]>  Set a variable of the procs, or pass ours on

    Placement:
          --host <HOSTS>              Hosts to use, with slots: a:4,b
          --map-by <POLICY>           By slot, node, core, package, ppr:2:numa
          --per-node <N>              Procs on each node
          --rank-by <POLICY>          Number ranks by slot, node, fill or span
          --bind-to <RESOURCE>        To none, hwthread, core, numa, package
          --hostfile <FILE>           Hosts and slots from a file
          --oversubscribe[=<yes|no>]  Allow more procs than slots
          --display <WHAT>            Show map, bindings, allocation first
          --dry-run                   Say what would run where; start nothing
          --explain                   Say why as well; start nothing

    Output and input:
      -l, --label[=<rank|full>]    Start each line of output with its rank
          --timestamps[=<yes|no>]  Start each line of output with the time
      -o, --output-file <PATTERN>  stdout to a file per rank, e.g. out.%r
      -e, --error-file <PATTERN>   stderr to a file per rank
          --stdin <RANK>           The rank that reads stdin, or all, none
          --input <FILE>           Read stdin from a file
          --pty[=<RANK>]           Give one rank a terminal (rank 0)
          --json                   Output and messages as JSON lines

    Life of the job:
          --timeout <SECONDS>            End the job after this time
          --grace <SECONDS>              From SIGTERM to SIGKILL [default: 5]
          --kill-on-bad-exit[=<yes|no>]  End the job at the first failure
          --stop-on-exec[=<RANKS>]       Hold ranks before they run anything

    General:
      -q, --quiet       Print nothing of our own but errors
      -v, --verbose...  Say more about what happens
      -h, --help        Print help: -h on one screen, --help in full
      -V, --version     Print the version

    The exit code is that of the ranks (128+n for signal n); 120-127 are our own.
    More: `rally run --help`; `rally help TOPIC` (placement, output, mpmd, ...).
    "#);
}

#[test]
#[expect(clippy::too_many_lines, reason = "a page of help")]
fn full_help_of_run() {
    insta::assert_snapshot!(page(&HelpTopic::RunFull), @"
    Start a program in parallel

    Usage: rally run [OPTIONS] PROGRAM [ARGS]... [: [OPTIONS] PROGRAM [ARGS]...]...
           rally run [OPTIONS] --app FILE

    App:
      -n, --np <N>
              Number of procs [default: one per slot]

          --wdir <DIR>
              Working directory of the procs

          --path <DIRS>
              Directories to look for the program in

              Separated by colons; looked at before those of PATH.

          --set-env <NAME[=VALUE]>
              Set a variable of the procs, or pass ours on

              `NAME*` passes on all that begin so.

          --unset-env <NAME>
              Remove a variable; `NAME*` removes all that begin so

          --prepend-env <NAME[C]=VALUE>
              Put a value before that of a variable

              The separator stands in brackets: `--prepend-env 'PATH[:]=/opt/bin'`;
              without brackets it is a colon.

          --append-env <NAME[C]=VALUE>
              Put a value after that of a variable

          --inherit-env <all|none|NAMES>
              Which of our variables the procs start with: all, none, or names

              Names are separated by commas, with an optional trailing `*`. The
              other environment options come after it, in the order given.

          --umask <MASK>
              File mode creation mask of the procs, in octal

    Placement:
          --host <HOSTS>
              Hosts to use, with slots: a:4,b

              A host without a number has as many slots as cores, and never refuses.

          --map-by <POLICY>
              By slot, node, core, package, ppr:2:numa

              slot, node, hwthread, core, l1cache, l2cache, l3cache, numa, package,
              ppr:N:RESOURCE, seq, rankfile, pe-list=LIST; qualifiers follow after
              colons: `core:PE=2`. See `rally help placement`.

          --per-node <N>
              Procs on each node

          --rank-by <POLICY>
              Number ranks by slot, node, fill or span

          --bind-to <RESOURCE>
              To none, hwthread, core, numa, package

              Also l1cache, l2cache, l3cache; `:overload-allowed` lets procs share
              cores. [default: what they are mapped by, where the cores are this
              job's alone or the mapping names them; none elsewhere, and with more
              procs than cores]

          --bind-list <LIST>
              Bind local ranks to these PUs in turn, by the kernel's numbers

              `0,2`, `0+1,2+3`; `numa:0,1` for NUMA nodes; `each` for every PU that
              may be used.

          --hostfile <FILE>
              Hosts and slots from a file

          --gpus <N>
              GPUs that the ranks of the job see

              They find them in CUDA_VISIBLE_DEVICES or ROCR_VISIBLE_DEVICES.

          --gpus-per-proc <N>
              GPUs for each proc, and for no other

          --universe <N>
              Procs that the job is told it can grow to: N, slots, infinite

          --oversubscribe[=<yes|no>]
              Allow more procs than slots

          --display <WHAT>
              Show map, bindings, allocation first

          --dry-run
              Say what would run where; start nothing

          --explain
              Say why as well; start nothing

          --bootstrap <HOW>
              How daemons get onto nodes: fork (this node only)

    Output and input:
      -l, --label[=<rank|full>]
              Start each line of output with its rank

              `full` adds the job, the host name and the stream.

          --timestamps[=<yes|no>]
              Start each line of output with the time

          --line-buffered[=<WHEN>]
              Ranks write every line at once: auto, yes, no

              Programs do so where their stdout is a terminal, so they get one for
              it. [default: auto, where our stdout is one]

      -o, --output-file <PATTERN>
              stdout to a file per rank, e.g. out.%r

              %r rank, %s job size, %l local rank, %a app, %j job, %h host, %p pid
              of rally, %% percent; `%4r` pads with zeros. `none` throws the output
              away.

      -e, --error-file <PATTERN>
              stderr to a file per rank

          --open-mode <append|truncate>
              Whether files of output are written anew or added to

              [default: append; under srun: truncate]

          --only-from <RANK>
              Show the output of one rank only

          --merge-stderr
              Send stderr where stdout goes

          --stdin <RANK>
              The rank that reads stdin, or all, none

              [default: 0; under srun: all]

          --input <FILE>
              Read stdin from a file

          --pty[=<RANK>]
              Give one rank a terminal (rank 0)

          --json
              Output and messages as JSON lines

          --message-format <text|json>
              Form of our own messages

    Life of the job:
          --timeout <SECONDS>
              End the job after this time

              Seconds, or a number with ms, s, m or h: `90`, `1.5h`.

          --warn <SIGNAL[@SECONDS]>
              Send the ranks a signal before the time limit

              `USR1@90`: 90 seconds before it; 60 where no time is said.

          --wait <SECONDS>
              End the job this long after its first rank has ended

          --grace <SECONDS>
              From SIGTERM to SIGKILL [default: 5]

          --kill-on-bad-exit[=<yes|no>]
              End the job at the first failure

              [default: yes]

          --on-debugger-loss <kill|release>
              What the loss of the debugger for which ranks are held does to them

              [default: release]

          --on-hang <ACTION>
              Report where the ranks are when nothing moves

              `report:60s`: after 60 s in which no rank moves or writes, and shortly
              before the time limit, `dbgr watch` prints the stacks of all ranks and
              writes them into rally-PID-hang.html. See `rally help debugging`.

          --on-hangup <end|continue>
              What the loss of the terminal (SIGHUP) does to the job

          --on-output-closed <end|continue>
              What it does to the job when nobody reads its output any more

          --stop-on-exec[=<RANKS>]
              Hold ranks before they run anything

              At the first instruction, for a debugger: all ranks, or those of a
              list (`0,4-7`). See `rally help debugging`.

          --stop-in-init[=<RANKS>]
              Hold ranks in PMIx_Init

              All ranks, or those of a list. Programs that do not use PMIx run on.

          --stop-in-app[=<RANKS>]
              Hold ranks where their MPI library waits for a debugger

              Open MPI 5 does at the end of MPI_Init. All ranks, or those of a list;
              others run on.

    Environment:
          --global-env <NAME[=VALUE]>
              Set a variable of the procs of all apps

              As --set-env, which comes after it.

          --env-family <LAUNCHERS>
              In whose words procs are told their rank: openmpi, slurm, torch

              Several with commas between them, or none; RALLY_RANK and what MPI
              needs are always there. See `rally help environment`. [default:
              openmpi; under srun: slurm]

          --torch
              Set RANK, LOCAL_RANK, WORLD_SIZE, MASTER_ADDR, MASTER_PORT, ...

              As torch wants them, beside the others.

    General:
          --app <FILE>
              Read the apps from a file, one per line

          --tune <FILES>
              MCA parameters and variables from files of Open MPI

          --report-pid <FILE>
              Write our process number to a file, to stdout (-) or stderr (+)

          --print-exit-codes
              Print the exit codes of all ranks at the end

          --personality <NAME>
              Follow the habits of rally, mpiexec, mpirun or srun

              Holds for the options after it.

      -q, --quiet
              Print nothing of our own but errors

      -v, --verbose...
              Say more about what happens

      -h, --help
              Print help: -h on one screen, --help in full

      -V, --version
              Print the version

    Options end at the program's name. What follows belongs to the program, until a
    `:` that starts the next app. Options under `App`, --host, --map-by and
    --per-node hold for the program that follows them, all others for the whole
    job: see `rally help mpmd`.

    Spellings of Open MPI, MPICH and Slurm are understood too: see
    `rally help personalities`.

    The exit code is that of the ranks (128+n for signal n); 120-127 are our own:
    see `rally help exit-codes`.
    ");
}

#[test]
fn short_help_fits_a_screen() {
    let lines = page(&HelpTopic::RunShort).lines().count();
    assert!(lines <= 50, "{lines} lines");
}

#[test]
fn no_page_is_wider_than_80_columns() {
    let pages = [
        HelpTopic::Short,
        HelpTopic::Full,
        HelpTopic::RunShort,
        HelpTopic::RunFull,
    ];
    let commands = COMMANDS.map(HelpTopic::from_subject);
    let topics = topic_names().into_iter().map(HelpTopic::from_subject);
    let messages = TABLES
        .iter()
        .flat_map(|table| table.iter())
        .map(|kind| HelpTopic::Subject(kind.id.to_owned()));
    for asked in pages
        .into_iter()
        .chain(commands)
        .chain(topics)
        .chain(messages)
    {
        let page = page(&asked);
        assert!(page.ends_with('\n') && page.len() > 40, "{asked:?}");
        for line in page.lines() {
            assert!(line.chars().count() <= WIDTH, "{asked:?}: {line}");
        }
    }
}

#[test]
fn unknown_subjects_are_refused() {
    let text = |subject: &str| match text(&HelpTopic::from_subject(subject), TABLES) {
        Ok(page) => page,
        Err(error) => message::text(&error.message(), args::MessageFormat::Text),
    };
    insta::assert_snapshot!([text("placment"), text("zzz"), text("cli/no-progam")].concat(), @r#"
    error: there is no help on `placment`
      topics: placement, output, input, signals, exit-codes, environment, personalities, mpmd, debugging, errors
      help:   did you mean `placement`?
    error: there is no help on `zzz`
      topics: placement, output, input, signals, exit-codes, environment, personalities, mpmd, debugging, errors
    error: there is no help on `cli/no-progam`
      topics: placement, output, input, signals, exit-codes, environment, personalities, mpmd, debugging, errors
      help:   did you mean `cli/no-program`?
    "#);
}

#[test]
fn every_option_that_texts_name_exists() {
    let guide = (
        "command-line.md",
        include_str!("../../../../docs/command-line.md"),
    );
    let native = args::compat::Native::of_run();
    for (name, text) in TOPICS
        .iter()
        .map(|topic| (topic.name, topic.text))
        .chain([guide])
    {
        // `--args` is an option of gdb, `--ranks` one of `rally release`, and `--hostfil` the guide's example of a mistake.
        let words = text
            .split(|c: char| !(c.is_ascii_alphanumeric() || c == '-'))
            .filter(|word| {
                word.starts_with("--")
                    && word.trim_matches('-').len() > 1
                    && !matches!(*word, "--args" | "--ranks" | "--hostfil")
            });
        for word in words {
            let known = args::Personality::ALL.into_iter().any(|personality| {
                let line = [word.into(), "1".into()];
                !matches!(
                    args::compat::translate(&line, personality, &native),
                    Err(Error::UnknownOption { .. })
                )
            });
            assert!(known, "{name} names {word}");
        }
    }
}

#[test]
fn packaging_gets_its_files() {
    use args::Generated;
    for (what, part) in [
        (Generated::Man, ".TH rally 1"),
        (Generated::Bash, "_rally()"),
        (Generated::Zsh, "#compdef rally"),
        (Generated::Fish, "complete -c rally"),
        (Generated::Elvish, "edit:completion"),
    ] {
        let mut out = Vec::new();
        generate::write(what, &mut out).unwrap();
        let text = String::from_utf8(out).unwrap();
        assert!(
            text.contains(part) && text.replace('\\', "").contains("stop-on-exec"),
            "{what:?}: {text}"
        );
        assert!(!text.contains("__generate") || what != Generated::Man);
    }
}

/// Guide and help agree on what is read ahead from stdin.
#[test]
fn guide_and_help_agree_on_input() {
    let words = |text: &str| text.split_whitespace().collect::<Vec<_>>().join(" ");
    let guide = words(include_str!("../../../../docs/user-guide.md")).replace('`', "");
    let help = words(include_str!("topics/input.txt")).replace('`', "");
    let ahead = dvm::stdio::STDIN_WINDOW / (1024 * 1024);
    for sentence in [
        &format!("We read ahead of ranks that read, {ahead} MiB at most;"),
        "of what they do not read we take two pipes full (128 KiB).",
        "That is more than most lists, so a loop such as while read line; do rally run",
        "ended with code 123",
    ] {
        assert!(guide.contains(sentence), "the guide lacks: {sentence}");
        assert!(help.contains(sentence), "the help lacks: {sentence}");
    }
}
