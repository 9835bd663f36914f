//! Every sentence that a mistake in a command line, a file or a setting is told with.

use super::*;

#[test]
fn mistakes_in_options() {
    let place = Place::new();
    insta::assert_snapshot!(place.complaints(&[
        "rally",
        "rally rnu",
        "rally ./a",
        "rally -n 4 ./a",
        "rally run",
        "rally run -n 4",
        "mpirun -n 4",
        "rally run a : -n 1 : b",
        "rally run --hostfil f a",
        "mpiexec -hostfil f a",
        "rally run --zzzzzzzz a",
        "rally run -J x a",
        "rally run -w h a",
        "rally run -n",
        "rally run --dry-run=x a",
        "rally run -n 0 a",
        "rally run -n -3 a",
        "rally run -n 1000000000 a",
        "rally run -n abc a",
        "mpirun -np 0 a",
        "rally run --timeout soon a",
        "rally run --timeout 99999999999 a",
        "rally run --stdin some a",
        "rally run --stop-in-init=few a",
        "rally run --stop-on-exec= a",
        "rally release few",
        "rally run --umask 8 a",
        "rally run --label=loud a",
        "rally run --kill-on-bad-exit=maybe a",
        "rally run --pty=x a",
        "rally run --set-env =1 a",
        "rally run --append-env A a",
        "rally run -o o.%x a",
        "rally run -o o.% a",
        "mpiexec -outfile-pattern o.%x a",
        "rally run --personality mpirum a",
        "rally demo -n 0",
        "rally demo --nn 2",
        "rally config --jsn",
        "rally __generate",
        "rally __generate ksh",
    ]), @"
    $ rally
    error: no command was given
      help: `rally run -n 4 PROGRAM`; `rally -h` for more
    [120 cli/no-command]

    $ rally rnu
    error: there is no command `rnu`
      known: run, demo, release, config, help
      help:  did you mean `run`?
    [120 cli/unknown-command]

    $ rally ./a
    error: there is no command `./a`
      known: run, demo, release, config, help
      help:  to start a program: `rally run ./a`
    [120 cli/unknown-command]

    $ rally -n 4 ./a
    error: there is no command `-n`
      known: run, demo, release, config, help
      help:  options of a job follow `run`: `rally run -n ...`
    [120 cli/unknown-command]

    $ rally run
    error: no program was given
      help: `rally run -n 4 PROGRAM`; `rally run -h` for more
    [120 cli/no-program]

    $ rally run -n 4
    error: no program was given
      help: `rally run -n 4 PROGRAM`; `rally run -h` for more
    [120 cli/no-program]

    $ mpirun -n 4
    error: no program was given
      help: `mpirun -n 4 PROGRAM`; `mpirun -h` for more
    [120 cli/no-program]

    $ rally run a : -n 1 : b
    error: no program was given
      app:  number 2 of 3
      help: `rally run -n 4 PROGRAM`; `rally run -h` for more
    [120 cli/no-program]

    $ rally run --hostfil f a
    error: there is no option `--hostfil`
      help: did you mean `--hostfile`?
    [120 cli/unknown-option]

    $ mpiexec -hostfil f a
    error: there is no option `-hostfil`
      help: did you mean `-hostfile`?
    [120 cli/unknown-option]

    $ rally run --zzzzzzzz a
    error: there is no option `--zzzzzzzz`
      help: `rally run -h` lists the options
    [120 cli/unknown-option]

    $ rally run -J x a
    error: there is no option `-J`
      srun: has an option of this name
      help: put `--personality srun` before it
    [120 cli/unknown-option]

    $ rally run -w h a
    error: there is no option `-w`
      srun: has an option of this name
      help: put `--personality srun` before it
    [120 cli/unknown-option]

    $ rally run -n
    error: `-n` needs a value
      help: give it one: `-n VALUE`
    [120 cli/missing-value]

    $ rally run --dry-run=x a
    error: `--dry-run` takes no value, but was given `x`
      help: write `--dry-run` alone
    [120 cli/unexpected-value]

    $ rally run -n 0 a
    error: `-n` cannot be `0`: a job has at least one proc
      help: leave `-n` out for one proc per slot
    [120 cli/bad-value]

    $ rally run -n -3 a
    error: `-n` cannot be `-3`: the number is below zero
    [120 cli/bad-value]

    $ rally run -n 1000000000 a
    error: `-n` cannot be `1000000000`: at most 16777216 are possible
    [120 cli/bad-value]

    $ rally run -n abc a
    error: `-n` cannot be `abc`: it is not a whole number
    [120 cli/bad-value]

    $ mpirun -np 0 a
    error: `-np` cannot be `0`: a job has at least one proc
      help: leave `-n` out for one proc per slot
    [120 cli/bad-value]

    $ rally run --timeout soon a
    error: `--timeout` cannot be `soon`: it is not a time (seconds, or a number with ms, s, m or h)
    [120 cli/bad-value]

    $ rally run --timeout 99999999999 a
    error: `--timeout` cannot be `99999999999`: a time cannot be longer than 3153600000 seconds
    [120 cli/bad-value]

    $ rally run --stdin some a
    error: `--stdin` cannot be `some`: it is neither a rank nor `all` nor `none`
    [120 cli/bad-value]

    $ rally run --stop-in-init=few a
    error: `--stop-in-init` cannot be `few`: it is neither `all` nor a list of ranks (`0,4-7`)
    [120 cli/bad-value]

    $ rally run --stop-on-exec= a
    error: `--stop-on-exec` cannot be ``: it is neither `all` nor a list of ranks (`0,4-7`)
    [120 cli/bad-value]

    $ rally release few
    error: `JOB` cannot be `few`: it is neither a process number (`123`, or `123@2` for a job spawned by it) nor a name in PMIx
    [120 cli/bad-value]

    $ rally run --umask 8 a
    error: `--umask` cannot be `8`: it is not an octal mask between 0 and 777
    [120 cli/bad-value]

    $ rally run --label=loud a
    error: `--label` cannot be `loud`: known values are `none`, `rank`, `full`
    [120 cli/bad-value]

    $ rally run --kill-on-bad-exit=maybe a
    error: `--kill-on-bad-exit` cannot be `maybe`: known values are `yes`, `no`
    [120 cli/bad-value]

    $ rally run --pty=x a
    error: `--pty` cannot be `x`: it is not a whole number
    [120 cli/bad-value]

    $ rally run --set-env =1 a
    error: `--set-env` cannot be `=1`: the name of a variable may not be empty or contain `=`
      help: `rally help environment` shows the forms
    [120 cli/bad-value]

    $ rally run --append-env A a
    error: no program was given
      help: `rally run -n 4 PROGRAM`; `rally run -h` for more
    [120 cli/no-program]

    $ rally run -o o.%x a
    error: `-o` cannot be `o.%x`: `%x` means nothing (known: %r rank, %s size, %l local rank, %a app, %j job, %h host, %p pid, %%)
      help: `rally help output` lists the letters of patterns
    [120 cli/bad-value]

    $ rally run -o o.% a
    error: `-o` cannot be `o.%`: a lone `%` ends the pattern (write `%%` for a percent sign)
      help: `rally help output` lists the letters of patterns
    [120 cli/bad-value]

    $ mpiexec -outfile-pattern o.%x a
    error: `-outfile-pattern` cannot be `o.%x`: `%x` of mpiexec has no equivalent here (known: %r %g %p %h)
      help: `rally help output` lists the letters of patterns
    [120 cli/bad-value]

    $ rally run --personality mpirum a
    error: there is no personality `mpirum`
      known: rally, mpiexec, mpirun, srun
      help:  did you mean `mpirun`?
    [120 cli/unknown-personality]

    $ rally demo -n 0
    error: `--np` cannot be `0`: a job has at least one proc
      help: leave `-n` out for one proc per slot
    [120 cli/bad-value]

    $ rally demo --nn 2
    error: there is no option `--nn`
      help: `rally demo -h` lists the options
    [120 cli/unknown-option]

    $ rally config --jsn
    error: there is no option `--jsn`
      help: did you mean `--json`?
    [120 cli/unknown-option]

    $ rally __generate
    error: `<WHAT>` needs a value
      help: give it one: `<WHAT> VALUE`
    [120 cli/missing-value]

    $ rally __generate ksh
    error: `<WHAT>` cannot be `ksh`: known values are `man`, `bash`, `zsh`, `fish`, `elvish`
    [120 cli/bad-value]
    ");
}

#[test]
fn spellings_with_two_meanings() {
    let place = Place::new();
    insta::assert_snapshot!(place.complaints(&[
        "rally run -c 2 a",
        "rally run -N 2 a",
        "rally run -x A a",
        "rally run -s all a",
        "rally run --output tag a",
    ]), @r#"
    $ rally run -c 2 a
    error: `-c` does not mean the same to everybody
      mpirun: the number of procs: here `-n N`
      srun:   CPUs for each proc: here `--map-by slot:PE=N`
      help:   say it in our words, or put `--personality mpirun` before `-c`
    [120 cli/two-meanings]

    $ rally run -N 2 a
    error: `-N` does not mean the same to everybody
      mpirun: procs on each node: here `--per-node N`
      srun:   the number of nodes: here `--host LIST`
      help:   say it in our words, or put `--personality mpirun` before `-N`
    [120 cli/two-meanings]

    $ rally run -x A a
    error: `-x` does not mean the same to everybody
      mpirun: export a variable: here `--set-env NAME[=VALUE]`
      srun:   hosts not to use: here `--host` with the others
      help:   say it in our words, or put `--personality mpirun` before `-x`
    [120 cli/two-meanings]

    $ rally run -s all a
    error: `-s` does not mean the same to everybody
      mpirun of Open MPI:   copy the program to the nodes: here not needed
      mpiexec of Intel MPI: the ranks that read stdin: here `--stdin RANK`
      help:                 say it in our words
    [120 cli/two-meanings]

    $ rally run --output tag a
    error: `--output` does not mean the same to everybody
      mpirun: directives such as `tag` and `file=`: here `--label`, `--timestamps`, `--output-file PATTERN`
      srun:   a file for stdout: here `--output-file PATTERN`
      help:   say it in our words, or put `--personality mpirun` before `--output`
    [120 cli/two-meanings]
    "#);
}

#[test]
fn options_that_are_not_offered() {
    let place = Place::new();
    insta::assert_snapshot!(place.complaints(&[
        "mpiexec -launcher alps a",
        "rally run --bootstrap ssh a",
        "mpiexec -gdb a",
        "mpiexec -rankmap 0,1 a",
        "mpiexec -prepend-pattern %r a",
        "mpirun --xml a",
        "mpirun --xterm 0 a",
        "mpirun --dvm x a",
        "mpirun --set-cwd-to-session-dir a",
        "mpirun --report-uri - a",
        "mpirun --map-by dist:span a",
        "mpirun --index-argv-by-rank a",
        "mpirun --output-proctable a",
        "mpirun --max-restarts 2 a",
        "mpiexec -membind bind:numa a",
        "mpiexec -check_mpi a",
        "srun -N 2 a",
        "srun -x localhost a",
        "srun --begin=16:00 a",
        "srun --jobid=9 a",
        "srun --uid=1 a",
        "srun --task-prolog=./p a",
        "srun --container=c a",
        "srun --mpi=x a",
        "srun --gpu-bind=closest a",
    ]), @"
    $ mpiexec -launcher alps a
    error: `-launcher alps` is not offered: this version starts daemons by `fork` only
      help: leave it out, or use `fork`
    [120 cli/not-offered]

    $ rally run --bootstrap ssh a
    error: `--bootstrap ssh` is not offered: this version starts daemons by `fork` only
      help: leave it out, or use `fork`
    [120 cli/not-offered]

    $ mpiexec -gdb a
    error: `-gdb` is not offered: debuggers are not started from here
      help: start with `--stop-on-exec`, then attach (`rally help debugging`)
    [120 cli/not-offered]

    $ mpiexec -rankmap 0,1 a
    error: `-rankmap` is not offered: the rank maps of Hydra are not read
      help: write a rankfile and use `--map-by rankfile:FILE=NAME` (`rally help placement`)
    [120 cli/not-offered]

    $ mpiexec -prepend-pattern %r a
    error: `-prepend-pattern` is not offered: labels have fixed forms
      help: use `--label` (rank) or `--label=full` (job, rank, host and stream)
    [120 cli/not-offered]

    $ mpirun --xml a
    error: `--xml` is not offered: output is text or JSON lines
      help: use `--json`
    [120 cli/not-offered]

    $ mpirun --xterm 0 a
    error: `--xterm` is not offered: no windows are opened
      help: use `--pty=RANK` for one rank, or `--output-file out.%r` for files
    [120 cli/not-offered]

    $ mpirun --dvm x a
    error: `--dvm` is not offered: there is no machine that runs on between jobs yet
      help: every `rally run` starts what it needs; name hosts with `--host`
    [120 cli/not-offered]

    $ mpirun --set-cwd-to-session-dir a
    error: `--set-cwd-to-session-dir` is not offered: ranks have no session directory
      help: name a directory with `--wdir`
    [120 cli/not-offered]

    $ mpirun --report-uri - a
    error: `--report-uri` is not offered: the launcher has no address for other programs
      help: leave it out: ranks of one job find each other without it
    [120 cli/not-offered]

    $ mpirun --map-by dist:span a
    error: `--map-by dist:span` is not offered: how far devices are is not known
      help: use `--map-by numa` or `--map-by package`
    [120 cli/not-offered]

    $ mpirun --index-argv-by-rank a
    error: `--index-argv-by-rank` is not offered: a program has the same name in all its procs
      help: programs find their number in RALLY_RANK
    [120 cli/not-offered]

    $ mpirun --output-proctable a
    error: `--output-proctable` is not offered: no table of procs is printed
      help: `dbgr` finds the procs of a running job by itself
    [120 cli/not-offered]

    $ mpirun --max-restarts 2 a
    error: `--max-restarts 2` is not offered: procs that have failed are not started again
      help: leave it out, or say 0
    [120 cli/not-offered]

    $ mpiexec -membind bind:numa a
    error: `-membind bind:numa` is not offered: memory is not bound
      help: leave it out: memory comes from where it is used first; or start `numactl` before the program
    [120 cli/not-offered]

    $ mpiexec -check_mpi a
    error: `-check_mpi` is not offered: it needs the tools of Intel MPI
      help: leave it out, or use the launcher of Intel MPI
    [120 cli/not-offered]

    $ srun -N 2 a
    error: `-N 2` is not offered: this version runs jobs on one node
      help: leave it out: all procs run on this node
    [120 cli/not-offered]

    $ srun -x localhost a
    error: `-x localhost` is not offered: this version runs jobs on one node
      help: leave it out: all procs run on this node
    [120 cli/not-offered]

    $ srun --begin=16:00 a
    error: `--begin 16:00` is not offered: jobs begin at once, for there is no queue
      help: start it when it is to run, for instance after `sleep` or by `at`
    [120 cli/not-offered]

    $ srun --jobid=9 a
    error: `--jobid 9` is not offered: procs are started here, and not in another job's allocation
      help: start it inside of that job
    [120 cli/not-offered]

    $ srun --uid=1 a
    error: `--uid` is not offered: procs run as the user who starts them
      help: put `sudo -u USER` before the whole command
    [120 cli/not-offered]

    $ srun --task-prolog=./p a
    error: `--task-prolog ./p` is not offered: nothing is run before or after the procs
      help: start a script that does it: `./before-and-after.sh PROGRAM`
    [120 cli/not-offered]

    $ srun --container=c a
    error: `--container` is not offered: procs are not put into containers
      help: start the program of the container: `apptainer exec IMAGE PROGRAM`
    [120 cli/not-offered]

    $ srun --mpi=x a
    error: `--mpi x` is not offered: ranks find PMI-1, PMI-2 and PMIx, and nothing else
      help: leave it out; `srun --mpi=list` lists the known ones
    [120 cli/not-offered]

    $ srun --gpu-bind=closest a
    error: `--gpu-bind closest` is not offered: GPUs are given out by number only
      help: use `--gpus-per-proc N`, or set CUDA_VISIBLE_DEVICES in a script
    [120 cli/not-offered]
    ");
}

#[test]
fn values_that_cannot_be() {
    let place = Place::new()
        .file("ranks", "0 ./a\n2 ./b\n")
        .file("bad", "x ./a\n")
        .file("tune", "-mca btl self\n--host x\n")
        .variable("SLURM_TASK_PROLOG", "./p")
        .variable("OMPI_MCA_hwloc_base_binding_policy", "cro");
    let mut place = place;
    place.world.gpus = || os::Gpus { nvidia: 0, amd: 0 };
    insta::assert_snapshot!(place.complaints(&[
        "srun a",
        "mpirun a",
        "mpiexec -usize many a",
        "rally run --bind-list 0,x a",
        "rally run --warn SIGFOO a",
        "rally run --gpus-per-proc 1 a",
        "rally run --multi-prog -n 3 ranks",
        "rally run --multi-prog bad",
        "rally run --tune tune a",
        "rally run --tune missing a",
    ]), @"
    $ srun a
    error: `SLURM_TASK_PROLOG ./p` is not offered: nothing is run before or after the procs
      help: start a script that does it: `./before-and-after.sh PROGRAM`
    [120 cli/not-offered]

    $ mpirun a
    error: cannot read `--bind-to cro`: `cro` is not known
      from: environment, OMPI_MCA_hwloc_base_binding_policy
      help: known are none, core, hwthread, l1cache, l2cache, l3cache, numa, package
    [120 place/bad-policy]

    $ mpiexec -usize many a
    error: `-usize` cannot be `many`: it is neither a number of procs nor `slots` nor `infinite`
    [120 cli/bad-value]

    $ rally run --bind-list 0,x a
    error: cannot read `--bind-list 0,x`: expected a number at position 0
    [120 place/bad-policy]

    $ rally run --warn SIGFOO a
    error: `--warn` cannot be `SIGFOO`: it is not `SIGNAL` or `SIGNAL@SECONDS`
    [120 cli/bad-value]

    $ rally run --gpus-per-proc 1 a
    error: `--gpus-per-proc 1` cannot be granted: no GPU was found on this node
      help: leave it out, or list them in CUDA_VISIBLE_DEVICES or ROCR_VISIBLE_DEVICES
    [122 cli/no-gpus]

    $ rally run --multi-prog -n 3 ranks
    error: cannot read the file of programs `ranks`, line 2: no line is for rank 1
      help: `rally help mpmd` shows the form
    [121 cli/bad-app-file]

    $ rally run --multi-prog bad
    error: cannot read the file of programs `bad`, line 1: a line of `--multi-prog` begins with ranks (`0,4-7`) or `*`
      help: `rally help mpmd` shows the form
    [121 cli/bad-app-file]

    $ rally run --tune tune a
    error: cannot read the file of parameters `tune`, line 2: a line is `-mca NAME VALUE`, `-x NAME=VALUE` or `NAME = VALUE`
      help: `rally help mpmd` shows the form
    [121 cli/bad-app-file]

    $ rally run --tune missing a
    error: cannot read the file of parameters `missing`: No such file or directory (os error 2)
      effect: the job was not started
    [121 cli/unreadable-file]
    ");
}

#[test]
fn contradictions() {
    let place = Place::new().file("apps", "-n 1 b\n");
    insta::assert_snapshot!(place.complaints(&[
        "rally run --timeout 5 a : --timeout 6 b",
        "rally run --bind-to core a : --bind-to none b",
        "rally run --per-node 2 --map-by core a",
        "rally run --merge-stderr -e e a",
        "rally run --pty -o o a",
        "rally run --app apps a",
    ]), @r#"
    $ rally run --timeout 5 a : --timeout 6 b
    error: `--timeout` holds for the whole job, but app 2 says `6` after another said `5`
      help: say it once, before the first program
    [120 cli/said-twice]

    $ rally run --bind-to core a : --bind-to none b
    error: `--bind-to` holds for the whole job, but app 2 says `none` after another said `core`
      help: say it once, before the first program
    [120 cli/said-twice]

    $ rally run --per-node 2 --map-by core a
    error: `--per-node` and `--map-by core` cannot be used together
      help: use `--map-by ppr:N:RESOURCE` alone, or leave one of them out
    [120 cli/options-together]

    $ rally run --merge-stderr -e e a
    error: `--merge-stderr` and `-e` cannot be used together
      help: merged, both go where stdout goes: leave one of them out
    [120 cli/options-together]

    $ rally run --pty -o o a
    error: `--pty` and `-o` cannot be used together
      help: the output of a terminal is shown here: leave one of them out
    [120 cli/options-together]

    $ rally run --app apps a
    error: `--app` and `a` cannot be used together
      help: put the program into the file, or leave the file out
    [120 cli/options-together]
    "#);
}

#[test]
fn mistakes_about_nodes_and_files() {
    let place = Place::new()
        .file("hosts", "localhost slots=two\n")
        .file("ranks", "rank zero\n")
        .file("other", "elsewhere\n")
        .file("quotes", "-n 1 a\n-n 1 'b\n")
        .file("options", "# one\n-n 1 a\n-n x b\n")
        .file("nothing", "# no apps\n")
        .file("nested", "--app nothing\n")
        .file("lonely", "-n 1\n");
    insta::assert_snapshot!(place.complaints(&[
        "rally run --hostfile absent a",
        "rally run --hostfile . a",
        "rally run --hostfile hosts a",
        "rally run --hostfile other a",
        "rally run --host n[1-3] a",
        "rally run --host a:x a",
        "rally run --map-by nonsense a",
        "rally run --map-by rankfile a",
        "rally run --map-by rankfile:FILE=absent a",
        "rally run --map-by rankfile:FILE=ranks a",
        "rally run --rank-by sloth a",
        "rally run --bind-to cores:x a",
        "rally run --input absent a",
        "rally run --input . a",
        "rally run --app absent",
        "rally run --app quotes",
        "rally run --app options",
        "rally run --app nothing",
        "rally run --app nested",
        "rally run --app lonely",
    ]), @r#"
    $ rally run --hostfile absent a
    error: cannot read the host file `absent`: No such file or directory (os error 2)
      effect: the job was not started
    [121 cli/unreadable-file]

    $ rally run --hostfile . a
    error: cannot read the host file `.`: Is a directory (os error 21)
      effect: the job was not started
    [121 cli/unreadable-file]

    $ rally run --hostfile hosts a
    error: cannot read the nodes of `hosts`, line 1: `two` is not a number of slots
    [121 alloc/bad-text]

    $ rally run --hostfile other a
    error: cannot use `elsewhere`: starting daemons on other nodes is not implemented yet
      help: leave these nodes out, or use `localhost`
    [122 alloc/remote-nodes]

    $ rally run --host n[1-3] a
    error: cannot use `n[1-3]`: starting daemons on other nodes is not implemented yet
      help: leave these nodes out, or use `localhost`
    [122 alloc/remote-nodes]

    $ rally run --host a:x a
    error: cannot read the nodes of `--host`: `x` is not a number of slots
    [120 alloc/bad-text]

    $ rally run --map-by nonsense a
    error: cannot read `--map-by nonsense`: `nonsense` is not known
      help: known are slot, node, core, hwthread, l1cache, l2cache, l3cache, numa, package, ppr, pe-list, seq, rankfile
    [120 place/bad-policy]

    $ rally run --map-by rankfile a
    error: the policy `rankfile` needs a file
      help: name it: `--map-by rankfile:FILE=NAME`
    [120 place/bad-policy]

    $ rally run --map-by rankfile:FILE=absent a
    error: cannot read the rankfile `absent`: No such file or directory (os error 2)
      effect: the job was not started
    [121 cli/unreadable-file]

    $ rally run --map-by rankfile:FILE=ranks a
    error: cannot read the ranks of `ranks`, line 1: a line is `rank N=HOST slot=CORES`
    [121 place/bad-rankfile]

    $ rally run --rank-by sloth a
    error: cannot read `--rank-by sloth`: `sloth` is not known
      help: did you mean `slot`?
    [120 place/bad-policy]

    $ rally run --bind-to cores:x a
    error: cannot read `--bind-to cores:x`: `x` is not known
      help: known are N, overload-allowed, no-overload, if-supported
    [120 place/bad-policy]

    $ rally run --input absent a
    error: cannot read the input file `DIR/absent`: No such file or directory (os error 2)
      effect: the job was not started
    [121 cli/unreadable-file]

    $ rally run --input . a
    error: cannot read the input file `DIR/.`: it is a directory
      effect: the job was not started
    [121 cli/unreadable-file]

    $ rally run --app absent
    error: cannot read the app file `absent`: No such file or directory (os error 2)
      effect: the job was not started
    [121 cli/unreadable-file]

    $ rally run --app quotes
    error: cannot read the app file `quotes`, line 2: the quote ' is never closed
      help: `rally help mpmd` shows the form
    [121 cli/bad-app-file]

    $ rally run --app options
    error: cannot read the app file `options`, line 3: `-n` cannot be `x`: it is not a whole number
    [121 cli/bad-app-file]

    $ rally run --app nothing
    error: cannot read the app file `nothing`, line 1: it names no program
      help: `rally help mpmd` shows the form
    [121 cli/bad-app-file]

    $ rally run --app nested
    error: cannot read the app file `nested`, line 1: an app file cannot name another one
      help: `rally help mpmd` shows the form
    [121 cli/bad-app-file]

    $ rally run --app lonely
    error: cannot read the app file `lonely`, line 1: it names no program
      help: `rally help mpmd` shows the form
    [121 cli/bad-app-file]
    "#);
}

#[test]
fn mistakes_in_settings() {
    let cases = [
        Place::new().file("site.toml", "grace = 5\ngrcae = 6\n"),
        Place::new().file("site.toml", "zzz = 1\n"),
        Place::new().file("site.toml", "\ngrace = 'long'\n"),
        Place::new().file("site.toml", "grace = \n"),
        Place::new().file("site.toml", "grace = [1]\n"),
        Place::new().file("site.toml", "map-by = 'nowhere'\n"),
        Place::new()
            .file("home/rally/config.toml/x", "")
            .home("home"),
        Place::new().variable("RALLY_LABEL", "loud"),
        // A mistake counts although the variable overrules it.
        Place::new()
            .file("site.toml", "label = 'loud'")
            .variable("RALLY_LABEL", "rank"),
    ];
    insta::assert_snapshot!(cases.map(|place| place.complaint("rally run a")).join("\n"), @r#"
    $ rally run a
    error: there is no setting `grcae`
      from: DIR/site.toml:2
      help: did you mean `grace`?
    [121 config/unknown-setting]

    $ rally run a
    error: there is no setting `zzz`
      from: DIR/site.toml:1
      help: `rally config` lists all settings
    [121 config/unknown-setting]

    $ rally run a
    error: the setting `grace` cannot be `long`: it is not a time (seconds, or a number with ms, s, m or h)
      from: DIR/site.toml:2
    [121 config/bad-value]

    $ rally run a
    error: the configuration file is not TOML: string values must be quoted, expected literal string
      from: DIR/site.toml:1
    [121 config/bad-file]

    $ rally run a
    error: the setting `grace` is a list, but settings are texts, numbers, and true or false
      from: DIR/site.toml:1
    [121 config/bad-value]

    $ rally run a
    error: cannot read `--map-by nowhere`: `nowhere` is not known
      from: DIR/site.toml:1
      help: known are slot, node, core, hwthread, l1cache, l2cache, l3cache, numa, package, ppr, pe-list, seq, rankfile
    [121 place/bad-policy]

    $ rally run a
    error: cannot read the configuration file: Is a directory (os error 21)
      from: DIR/home/rally/config.toml
      help: make it readable or move it away: what it says about your jobs may matter
    [121 config/bad-file]

    $ rally run a
    error: the setting `label` cannot be `loud`: known values are `none`, `rank`, `full`
      from: environment, RALLY_LABEL
    [121 config/bad-value]

    $ rally run a
    error: the setting `label` cannot be `loud`: known values are `none`, `rank`, `full`
      from: DIR/site.toml:1
    [121 config/bad-value]
    "#);
}

/// Users cannot mend the site's file, and can work without it.
#[test]
fn a_site_file_that_cannot_be_read_is_told() {
    let place = Place::new().file("site.toml/x", "");
    let shown = |text: String| text.replace(&place.directory.path().display().to_string(), "DIR");
    let run = place.run("rally run a");
    let notices = run.notices.iter();
    let text: Vec<String> = notices
        .map(|notice| report::text(&notice.message(), MessageFormat::Text))
        .collect();
    insta::assert_snapshot!(shown(text.concat()), @"
    warning: cannot read the site's configuration file
      from:   DIR/site.toml
      reason: Is a directory (os error 21)
      effect: what it says does not count
      help:   whoever looks after this machine should make it readable for all
    ");
    let Ok(Request::Config(config)) = place.request("rally config") else {
        panic!("no settings");
    };
    let text = crate::config::text(&config.layers, &config.files);
    insta::assert_snapshot!(shown(text).lines().last().unwrap(), @"DIR/site.toml: cannot be read: Is a directory (os error 21)");
    // What is there and cannot be understood is a mistake, whoever made it.
    assert!(
        Place::new()
            .file("site.toml", "\u{0}")
            .request("rally run a")
            .is_err()
    );
}

#[test]
fn a_lost_directory_is_told() {
    let mut place = Place::new();
    place.world.directory = Err(ReadProblem::Kernel(2));
    insta::assert_snapshot!(place.complaint("rally run a"), @r#"
    $ rally run a
    error: the current directory cannot be found: No such file or directory (os error 2)
      help: go to a directory that exists
    [123 cli/no-directory]
    "#);
    assert!(place.request("rally run --wdir /tmp a").is_ok());
}

#[test]
fn no_port_is_told_and_none_stands_alone() {
    let mut place = Place::new();
    place.world.unused_port = || Err(ReadProblem::Kernel(98));
    insta::assert_snapshot!(place.complaint("rally run --torch a"), @r"
    $ rally run --torch a
    error: no port is free for `--torch`: Address already in use (os error 98)
      help: choose one: `--set-env MASTER_PORT=NUMBER`
    [123 cli/no-port]
    ");
    insta::assert_snapshot!(place.complaint("rally run --env-family none,slurm a"), @r"
    $ rally run --env-family none,slurm a
    error: `--env-family none` and `--env-family slurm` cannot be used together
      help: leave one of them out
    [120 cli/options-together]
    ");
    insta::assert_snapshot!(place.complaint("rally run --env-family pbs a"), @r"
    $ rally run --env-family pbs a
    error: `--env-family` cannot be `pbs`: known values are `openmpi`, `slurm`, `torch`, `none`
    [120 cli/bad-value]
    ");
}

#[test]
fn notices_are_one_line_each() {
    let place = Place::new();
    let run = place.run(
        "mpirun --prtemca btl tcp --mca plm_x ob1 -rmk user --prtemca btl tcp -prefix /x --tmpdir t -x A -x NO -x NEITHER a",
    );
    let texts: Vec<_> = run
        .notices
        .iter()
        .map(|notice| report::text(&notice.message(), MessageFormat::Text))
        .collect();
    insta::assert_snapshot!(texts.concat(), @r"
    note: ignored, since it has no effect here: `--prtemca btl tcp`, `--mca plm_x ob1`, `-rmk user`, `-prefix /x` and 1 more
    note: cannot pass on `NEITHER`, `NO`: not set in our environment
    ");
}
