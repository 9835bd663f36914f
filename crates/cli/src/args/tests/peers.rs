//! Messages about options of other launchers that are refused.

use super::*;

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
#[expect(
    clippy::too_many_lines,
    reason = "a table of cases, and what is said of them"
)]
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
fn what_is_not_done_on_one_node_is_refused() {
    let place = Place::new();
    insta::assert_snapshot!(place.complaints(&[
        "mpirun --pset mine a",
        "mpirun --preload-files /data/a,b a",
        "srun --hint=fast a",
        "srun --bcast=/tmp/a a",
    ]), @"
    $ mpirun --pset mine a
    error: `--pset` is not offered: process sets of PMIx have no names here
      help: leave it out; programs may make groups of their own (PMIx_Group_construct)
    [120 cli/not-offered]

    $ mpirun --preload-files /data/a,b a
    error: `--preload-files /data/a,b` is not offered: files are not copied, and procs find those of the directory where they begin
      help: copy the file to where the procs begin, or name it by its path in the program
    [120 cli/not-offered]

    $ srun --hint=fast a
    error: `--hint` cannot be `fast`: known values are `compute_bound`, `memory_bound`, `multithread`, `nomultithread`
    [120 cli/bad-value]

    $ srun --bcast=/tmp/a a
    error: `--bcast /tmp/a` is not offered: programs run from where they are, and nothing is copied
      help: leave it out: procs find the program on this node; or copy it, and name the copy
    [120 cli/not-offered]
    ");
}
