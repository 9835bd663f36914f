use super::{topics::topic_names, *};
use crate::{args, generate, kinds};

const TABLES: &[&[&Kind]] = &[kinds::KINDS, dvm::messages::KINDS];

fn page(asked: &HelpTopic) -> String {
    text(asked, TABLES).unwrap()
}

#[test]
fn short_help_of_rally() {
    insta::assert_snapshot!(page(&HelpTopic::Short), @"
    Start programs in parallel, and never lose one

    Usage: rally <COMMAND>

    Commands:
      run         Start a program in parallel
      launch      Start what a launch configuration describes
      up          Start a machine: nodes and a queue that stay
      down        End a machine
      submit      Put a job into the queue of a machine, or of Slurm
      queue       List the jobs of a machine, and those given to Slurm
      explain     Say why a job waits, and when it starts
      hold        Keep jobs that wait from starting, also in Slurm (slurm:JOB)
      release     Let held jobs start, also in Slurm, or release the held ranks of a
                  running job
      start-tool  Start processes of a tool beside the ranks of a running job
      cancel      Cancel jobs of the queue, or of Slurm
      signal      Send a signal to running jobs of the queue
      pause       Stop running jobs of the queue for a while
      resume      Let paused jobs go on
      usage       Show what running jobs of the queue use: CPU time, memory, I/O
      priority    Move jobs of the queue before or behind others
      wait        Wait until jobs of the queue, or of Slurm, are over
      output      Show what a job of the queue, or of Slurm, has printed
      nodes       List, add, drop, open and close the nodes of a machine
      page        Show a machine in a browser on this computer
      status      Show what a machine is and does
      top         Watch and steer a machine on the whole terminal
      demo        Run a built-in parallel program to check the installation
      mpir-check  Check what another launcher does for debuggers that use MPIR
      ptp-proxy   Let an Eclipse with PTP 2 to 6 use a machine
      config      Show the settings in force and where each comes from
      help        Explain a topic or an error

    Options:
      -h, --help     Print help
      -V, --version  Print version

    Called mpiexec, mpirun or srun, it is `rally run` with the habits of that name.

    Topics of `rally help`: placement, output, input, signals, exit-codes,
    environment, personalities, mpmd, nodes, debugging, errors; or the id of an
    error.
    ");
}

#[test]
fn short_help_of_run() {
    insta::assert_snapshot!(page(&HelpTopic::RunShort), @"
    Start a program in parallel

    Usage: rally run [OPTIONS] PROGRAM [ARGS]... [: [OPTIONS] PROGRAM [ARGS]...]...
           rally run [OPTIONS] --app FILE

    App:
      -n, --np <N>                  Number of procs [default: one per slot]
          --wdir <DIR>              Working directory of the procs
          --set-env <NAME[=VALUE]>  Set or pass on a variable for the procs

    Placement:
          --host <HOSTS>              Hosts to use, with slots: a:4,b
          --map-by <POLICY>           Map by slot, node, core, package, ppr:2:numa
          --per-node <N>              Procs on each node
          --rank-by <POLICY>          Number ranks by slot, node, fill or span
          --bind-to <RESOURCE>        Bind to none, hwthread, core, numa, package
          --hostfile <FILE>           Hosts and slots from a file
          --oversubscribe[=<yes|no>]  Allow more procs than slots
          --display <WHAT>            Show map, bindings or allocation first
          --dry-run                   Print what would run where; start nothing
          --explain                   Print what would run where, and why

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
          --grace <SECONDS>              Time from SIGTERM to SIGKILL [default: 5]
          --kill-on-bad-exit[=<yes|no>]  End the job if a rank fails
          --stop-on-exec[=<RANKS>]       Hold ranks before they run anything

    General:
      -q, --quiet       Print no messages except errors
      -v, --verbose...  Print more messages
      -h, --help        Print help: -h on one screen, --help in full
      -V, --version     Print the version

    The exit code is that of the ranks (128+n for signal n); 120-127 are our own.
    More: `rally run --help`; `rally help TOPIC` (placement, output, mpmd, ...).
    ");
}

#[test]
#[expect(clippy::too_many_lines, reason = "a page of help")]
fn full_help_of_run() {
    insta::assert_snapshot!(page(&HelpTopic::RunFull), @r#"
    Start a program in parallel

    Usage: rally run [OPTIONS] PROGRAM [ARGS]... [: [OPTIONS] PROGRAM [ARGS]...]...
           rally run [OPTIONS] --app FILE

    App:
      -n, --np <N>
              Number of procs [default: one per slot]

          --wdir <DIR>
              Working directory of the procs

          --path <DIRS>
              Directories in which to look for the program

              Separated by colons, and searched before those of PATH.

          --set-env <NAME[=VALUE]>
              Set or pass on a variable for the procs

              Without a value, the launcher's variable is passed on. `ABC*` passes
              on all variables whose names begin with ABC.

          --add-env <NAME=VALUE>
              Set a variable for the procs unless it is set already

              It is set already if the launcher's environment, as far as the procs
              inherit it, or an option before this one sets it.

          --unset-env <NAME>
              Remove a variable; `ABC*` removes all whose names begin with ABC

          --prepend-env <NAME[C]=VALUE>
              Put a value before that of a variable

              The separator is given in brackets: `--prepend-env
              'PATH[:]=/opt/bin'`. Without brackets it is a colon.

          --append-env <NAME[C]=VALUE>
              Put a value after that of a variable

          --inherit-env <all|none|NAMES>
              Variables that the procs inherit: all, none, or names

              Names are separated by commas, with an optional trailing `*`. The
              other environment options are applied after this one, in the order
              given.

          --preload-binary
              Copy the program to each node, and run the copy

              The copies are in a directory of the job, and are removed when it
              ends.

          --preload-files <FILES>
              Copy these files to each node: a,b/c

              The directory of the copies is in RALLY_PRELOAD_DIR. A relative name
              keeps its place in it. The copies are removed when the job ends.

          --preload-wdir
              Run in the directory of the copies

              What procs write there is removed when the job ends.

          --pset <NAME>
              Name of the process set to which the procs belong

              PMIx programs and tools can ask for the sets and their members. Apps
              with one name are one set.

          --umask <MASK>
              File mode creation mask of the procs, in octal

    Placement:
          --host <HOSTS>
              Hosts to use, with slots: a:4,b

              A host without a number has as many slots as cores, and accepts more
              procs than that.

          --map-by <POLICY>
              Map by slot, node, core, package, ppr:2:numa

              slot, node, hwthread, core, l1cache, l2cache, l3cache, numa, package,
              ppr:N:RESOURCE, seq, rankfile, pe-list=LIST; qualifiers follow after
              colons: `core:PE=2`. See `rally help placement`.

          --per-node <N>
              Procs on each node

          --rank-by <POLICY>
              Number ranks by slot, node, fill or span

          --bind-to <RESOURCE>
              Bind to none, hwthread, core, numa, package

              Also l1cache, l2cache, l3cache; `:overload-allowed` lets procs share
              cores. [default: what procs are mapped by, if the cores belong to this
              job alone or --map-by names them; otherwise, and with more procs than
              cores, none]

          --bind-list <LIST>
              Bind local ranks to these PUs in turn, by the kernel's numbers

              `0,2`, `0+1,2+3`; `numa:0,1` for NUMA nodes; `each` for every PU that
              may be used.

          --hostfile <FILE>
              Hosts and slots from a file

          --gpus <N>
              Number of GPUs that all ranks of a node share

              Ranks find their numbers in CUDA_VISIBLE_DEVICES or
              ROCR_VISIBLE_DEVICES.

          --gpus-per-proc <N>
              Number of GPUs for each proc, which no other proc gets

          --resource <NAME=N>
              Amount of a resource that the machine counts, for the whole job; can
              be repeated

              `matlab=2`. The machine has what was declared with --shared-resource
              when it was started.

          --resource-per-proc <NAME=N>
              Amount of a resource of its node for each proc; can be repeated

              `fpga=1`. Nodes have what was declared with --node-resource when the
              machine was started.

          --universe <N>
              MPI universe size that the ranks see: N, slots, infinite

          --oversubscribe[=<yes|no>]
              Allow more procs than slots

          --display <WHAT>
              Show map, bindings or allocation first

          --dry-run
              Print what would run where; start nothing

              Other nodes are assumed to have the processors of this one; --explain
              alone asks them.

          --explain
              Print what would run where, and why

              No rank is started. Daemons are started on other nodes to learn their
              processors, and ended; with --dry-run, they are not.

    Nodes:
          --bootstrap <HOW>
              How daemons get onto nodes: ssh, slurm, lsf, pbs, fork

              `slurm`, `lsf` and `pbs` use the starters of these resource managers
              (`srun`, `blaunch`, `pbsdsh`), inside of their allocations. With
              `fork` and --nodes, this machine stands for the nodes. [default: auto,
              which is the resource manager's if all nodes belong to its allocation,
              else ssh; that of PBS also needs the program and the cache on a
              network file system]

          --ssh <COMMAND>
              ssh, or a command like it, with its options [default: ssh]

              It is called with the node's name and a command. Its stdin must reach
              that command.

          --bootstrap-command <TEMPLATE>
              A command instead of ssh: kubectl exec -i {host} -- {daemon}

              With a word `{file}` behind `{daemon}`, it needs no stdin, and the
              nodes need the same files.

          --tree-start <N|on|off>
              From how many nodes on daemons start others [default: 128]

              With ssh only. `on` is for any number, and with `off` this node starts
              all. A node that a daemon cannot start is started from this one.

          --if-include <NAME,...>
              Networks for connections between nodes, by interface or address

          --port-range <LOW-HIGH>
              Ports for connections between nodes

          --radix <N>
              Most daemons that connect to one daemon [default: 32]

          --lease <TIME>
              Silence after which a node counts as lost [default: 10s]

          --preload-dir <DIR>
              Directory on the nodes for the copies

              The directory of the job is made in it. [default: the first of
              $TMPDIR, /tmp, /var/tmp, /dev/shm with enough room]

          --on-machine <NAME>
              Run on this machine, which `rally up` has started; `none`: on none

              [default: the one that was started with `rally up --default`, if there
              is one]

    Output and input:
      -l, --label[=<rank|full>]
              Start each line of output with its rank

              `full` adds the job, the host name and the stream.

          --timestamps[=<yes|no>]
              Start each line of output with the time

          --line-buffered[=<WHEN>]
              Make ranks write each line immediately: auto, yes, no

              Ranks get a terminal as stdout, because most programs flush each line
              only there. [default: auto, which is yes if stdout of `rally` is a
              terminal]

      -o, --output-file <PATTERN>
              stdout to a file per rank, e.g. out.%r

              %r rank, %s job size, %l local rank, %a app, %j job, %h host, %p pid
              of rally, %% percent; `%4r` pads with zeros. `none` discards the
              output.

      -e, --error-file <PATTERN>
              stderr to a file per rank

          --open-mode <append|truncate>
              Append to existing output files, or truncate them

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
              Format of messages of `rally`

    Life of the job:
          --timeout <SECONDS>
              End the job after this time

              Seconds, or a number with ms, s, m or h: `90`, `1.5h`.

          --memory-limit <SIZE>
              Most memory of all ranks on a node together

              A number with K, M, G or T: `512M`, `1.5G`. The kernel kills the ranks
              of a node that need more. Where the kernel does not let us enforce it,
              a warning says so, and the job runs.

          --cpu-limit <N>
              Most CPU time of all ranks on a node together, in CPUs

              `2` or `0.5`. The kernel lets the ranks of a node wait that need more.
              Where the kernel does not let us enforce it, a warning says so, and
              the job runs.

          --warn <SIGNAL[@SECONDS]>
              Send the ranks a signal before the time limit

              `USR1@90` sends SIGUSR1 90 seconds before the limit. Without a time it
              is 60 seconds.

          --wait <SECONDS>
              End the job this long after its first rank has ended

          --grace <SECONDS>
              Time from SIGTERM to SIGKILL [default: 5]

          --kill-on-bad-exit[=<yes|no>]
              End the job if a rank fails

              [default: yes]

          --on-node-loss <abort|continue>
              If a node is lost: end the job (abort), or let the ranks of other
              nodes continue

              [default: abort, or continue with `--kill-on-bad-exit=no`]

          --on-debugger-loss <kill|release>
              If the debugger of held ranks is lost: end the job (kill) or release
              them

              [default: release]

          --on-hang <ACTION>
              Report where the ranks are if the job makes no progress

              `report:60s`: after 60 s in which no rank moves or writes, and shortly
              before the time limit, `dbgr watch` prints the stacks of all ranks and
              writes them into rally-PID-hang.html. See `rally help debugging`.

          --mpi-recorder
              Record the calls of MPI, for `dbgr` to show and to compare

              Works with any MPI library that is a shared one, without compiling
              anything again. A call takes about 10 ns longer. See `rally help
              debugging`.

          --on-hangup <end|continue>
              If the terminal is lost (SIGHUP): end the job or let it continue

          --on-output-closed <end|continue>
              If the reader of the output exits: end the job or let it continue

          --stop-on-exec[=<RANKS>]
              Hold ranks before they run anything

              At the first instruction, for a debugger: all ranks, or those of a
              list (`0,4-7`). See `rally help debugging`.

          --stop-in-init[=<RANKS>]
              Hold ranks in PMIx_Init

              All ranks, or those of a list. Programs that do not use PMIx run on.

          --stop-in-app[=<RANKS>]
              Hold ranks where their MPI library waits for a debugger

              Open MPI 5 waits at the end of MPI_Init. All ranks, or those of a
              list. Programs whose library does not wait run on.

          --tool <PROGRAM>
              Start this tool on each node, beside the ranks

              When the ranks exist, and before held ones are released. It gets their
              environment and RALLY_TOOL_RANKS, and ends with the job. See `rally
              help debugging`.

          --tool-arguments <WORDS>
              Arguments of the tool, quoted as in a shell

              Words are separated by blanks. `'...'`, `"..."` and `\` quote as in a
              shell, and nothing is substituted.

          --tool-per-rank
              Start the tool once for each rank

          --tool-files[=<FILES>]
              Copy the tool, its shared libraries and these files to each node:
              a,b,@LIST

              The tool runs from the copies: their directory is the first in its
              PATH and LD_LIBRARY_PATH, and in RALLY_PRELOAD_DIR. It is on a local
              file system with enough room, and removed when the tool ends.
              Libraries in directories of the system are not copied. `@LIST` is a
              file with names of files.

    Environment:
          --global-env <NAME[=VALUE]>
              Set a variable of the procs of all apps

              Like --set-env, but applied before it.

          --env-family <LAUNCHERS>
              Launchers whose rank variables are set too: openmpi, slurm, torch

              A list separated by commas, or `none`. RALLY_RANK and the variables
              that MPI libraries need are always set. See `rally help environment`.
              [default: openmpi; under srun: slurm]

          --torch
              Set RANK, LOCAL_RANK, WORLD_SIZE, MASTER_ADDR, MASTER_PORT, ...

              The variables that torch reads, in addition to the others.

    General:
          --app <FILE>
              Read the apps from a file, one per line

          --tune <FILES>
              Read MCA parameters and variables from Open MPI's tune files

          --report-pid <FILE>
              Write the launcher's process number to a file, stdout (-) or stderr
              (+)

          --record <FILE>
              Record what the controller and the daemons do, for a bug report

              The file can be replayed (docs/formats/recording.md). Daemons on other
              nodes write FILE.N there. It holds no values of variables and no text
              of ranks, but what they exchange by PMI and PMIx, and preloaded files.

          --print-exit-codes
              Print the exit codes of all ranks at the end

          --personality <NAME>
              Follow the habits of rally, mpiexec, mpirun or srun

              Applies to the options after it.

      -q, --quiet
              Print no messages except errors

      -v, --verbose...
              Print more messages

      -h, --help
              Print help: -h on one screen, --help in full

      -V, --version
              Print the version

    Options end at the program's name. What follows belongs to the program, until a
    `:` that starts the next app. Options under `App`, --host, --map-by and
    --per-node apply to the program that follows them, all others to the whole job:
    see `rally help mpmd`.

    Spellings of Open MPI, MPICH and Slurm are understood too: see
    `rally help personalities`.

    The exit code is that of the ranks (128+n for signal n); 120-127 are our own:
    see `rally help exit-codes`.
    "#);
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
      topics: placement, output, input, signals, exit-codes, environment, personalities, mpmd, nodes, debugging, errors
      help:   did you mean `placement`?
    error: there is no help on `zzz`
      topics: placement, output, input, signals, exit-codes, environment, personalities, mpmd, nodes, debugging, errors
    error: there is no help on `cli/no-progam`
      topics: placement, output, input, signals, exit-codes, environment, personalities, mpmd, nodes, debugging, errors
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
        // `--args` is an option of gdb, `--attach` and `--debug` are options of `rally launch`, `--ranks` one of `rally release`, `--per-rank` one of `rally start-tool`, and `--hostfil` the guide's
        // example of a mistake.
        let words = text
            .split(|c: char| !(c.is_ascii_alphanumeric() || c == '-'))
            .filter(|word| {
                word.starts_with("--")
                    && word.trim_matches('-').len() > 1
                    && !matches!(
                        *word,
                        "--args" | "--attach" | "--debug" | "--ranks" | "--per-rank" | "--hostfil"
                    )
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
