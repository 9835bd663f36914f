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
    error: `-c` means different things to different launchers
      mpirun: the number of procs: here `-n N`
      srun:   CPUs for each proc: here `--map-by slot:PE=N`
      help:   use a spelling named above, or put `--personality mpirun` before `-c`
    [120 cli/two-meanings]

    $ rally run -N 2 a
    error: `-N` means different things to different launchers
      mpirun: procs on each node: here `--per-node N`
      srun:   the number of nodes: here `--host LIST`
      help:   use a spelling named above, or put `--personality mpirun` before `-N`
    [120 cli/two-meanings]

    $ rally run -x A a
    error: `-x` means different things to different launchers
      mpirun: export a variable: here `--set-env NAME[=VALUE]`
      srun:   hosts not to use: here `--host` with the others
      help:   use a spelling named above, or put `--personality mpirun` before `-x`
    [120 cli/two-meanings]

    $ rally run -s all a
    error: `-s` means different things to different launchers
      mpirun of Open MPI:   copy the program to the nodes: here `--preload-binary`
      mpiexec of Intel MPI: the ranks that read stdin: here `--stdin RANK`
      help:                 use a spelling named above
    [120 cli/two-meanings]

    $ rally run --output tag a
    error: `--output` means different things to different launchers
      mpirun: directives such as `tag` and `file=`: here `--label`, `--timestamps`, `--output-file PATTERN`
      srun:   a file for stdout: here `--output-file PATTERN`
      help:   use a spelling named above, or put `--personality mpirun` before `--output`
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
        "mpiexec -gdb a",
        "mpiexec -rankmap 0,1 a",
        "mpiexec -prepend-pattern %r a",
        "mpirun --xml a",
        "mpirun --xterm 0 a",
        "mpirun --dvm x a",
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
    error: `-launcher alps` is not supported: this version does not start daemons in this way
      help: leave it out, or use `ssh`, `slurm`, `pbs`, `lsf` or `fork`
    [120 cli/not-offered]

    $ mpiexec -gdb a
    error: `-gdb` is not supported: debuggers are not started from here
      help: start with `--stop-on-exec`, then attach (`rally help debugging`)
    [120 cli/not-offered]

    $ mpiexec -rankmap 0,1 a
    error: `-rankmap` is not supported: the rank maps of Hydra are not read
      help: write a rankfile and use `--map-by rankfile:FILE=NAME` (`rally help placement`)
    [120 cli/not-offered]

    $ mpiexec -prepend-pattern %r a
    error: `-prepend-pattern` is not supported: labels have fixed forms
      help: use `--label` (rank) or `--label=full` (job, rank, host and stream)
    [120 cli/not-offered]

    $ mpirun --xml a
    error: `--xml` is not supported: output is text or JSON lines
      help: use `--json`
    [120 cli/not-offered]

    $ mpirun --xterm 0 a
    error: `--xterm` is not supported: no windows are opened
      help: use `--pty=RANK` for one rank, or `--output-file out.%r` for files
    [120 cli/not-offered]

    $ mpirun --dvm x a
    error: `--dvm` is not supported: a persistent launcher is not found by its address
      help: `rally up` starts one, and `--on-machine` uses it (docs/machine.md)
    [120 cli/not-offered]

    $ mpirun --report-uri - a
    error: `--report-uri` is not supported: the launcher has no address for other programs
      help: leave it out: ranks of one job find each other without it
    [120 cli/not-offered]

    $ mpirun --map-by dist:span a
    error: `--map-by dist:span` is not supported: the distance to devices is not known
      help: use `--map-by numa` or `--map-by package`
    [120 cli/not-offered]

    $ mpirun --index-argv-by-rank a
    error: `--index-argv-by-rank` is not supported: a program has the same name in all its procs
      help: programs find their number in RALLY_RANK
    [120 cli/not-offered]

    $ mpirun --output-proctable a
    error: `--output-proctable` is not supported: no table of procs is printed
      help: `dbgr` finds the procs of a running job by itself
    [120 cli/not-offered]

    $ mpirun --max-restarts 2 a
    error: `--max-restarts 2` is not supported: procs that have failed are not started again
      help: leave it out, or give 0
    [120 cli/not-offered]

    $ mpiexec -membind bind:numa a
    error: `-membind bind:numa` is not supported: memory is not bound
      help: leave it out: memory is allocated where it is first used; or start the program with `numactl`
    [120 cli/not-offered]

    $ mpiexec -check_mpi a
    error: `-check_mpi` is not supported: it needs the tools of Intel MPI
      help: leave it out, or use the launcher of Intel MPI
    [120 cli/not-offered]

    $ srun -N 2 a
    error: `-N 2` needs 2 nodes, but the job has only `node7.cluster`
      help: name more with `--host`, or start it inside of a larger allocation
    [122 alloc/too-few-nodes]

    $ srun -x localhost a
    error: `-x localhost` leaves no node of `node7.cluster`
      help: name other nodes with `--host`, or leave the option out
    [122 alloc/no-node-left]

    $ srun --begin=16:00 a
    error: `--begin 16:00` is not supported: jobs of `rally run` start immediately
      help: use `rally submit` on a machine (docs/machine.md)
    [120 cli/not-offered]

    $ srun --jobid=9 a
    error: `--jobid 9` is not supported: procs are started on this node, and not in another job's allocation
      help: start it inside of that job
    [120 cli/not-offered]

    $ srun --uid=1 a
    error: `--uid` is not supported: procs run as the user who starts them
      help: put `sudo -u USER` before the whole command
    [120 cli/not-offered]

    $ srun --task-prolog=./p a
    error: `--task-prolog ./p` is not supported: nothing is run before or after the procs
      help: start a script that does it: `./before-and-after.sh PROGRAM`
    [120 cli/not-offered]

    $ srun --container=c a
    error: `--container` is not supported: procs are not put into containers
      help: start the program of the container: `apptainer exec IMAGE PROGRAM`
    [120 cli/not-offered]

    $ srun --mpi=x a
    error: `--mpi x` is not supported: ranks can use PMI-1, PMI-2 and PMIx only
      help: leave it out; `srun --mpi=list` lists the known ones
    [120 cli/not-offered]

    $ srun --gpu-bind=closest a
    error: `--gpu-bind closest` is not supported: GPUs are assigned by number only
      help: use `--gpus-per-proc N`, or set CUDA_VISIBLE_DEVICES in a script
    [120 cli/not-offered]
    ");
}

#[test]
fn what_is_not_done_on_one_node_is_refused() {
    let place = Place::new();
    insta::assert_snapshot!(place.complaints(&[
        "mpirun --preload-files /data/a,b a",
        "srun --hint=fast a",
        "srun --bcast=/tmp/a a",
    ]), @"
    $ mpirun --preload-files /data/a,b a
    error: cannot read the file to copy `/data/a`: No such file or directory (os error 2)
      effect: the job was not started
    [121 cli/unreadable-file]

    $ srun --hint=fast a
    error: `--hint` cannot be `fast`: known values are `compute_bound`, `memory_bound`, `multithread`, `nomultithread`
    [120 cli/bad-value]

    $ srun --bcast=/tmp/a a
    error: `--bcast /tmp/a` is not supported: a program is copied into a directory of the job, not to a name of yours
      help: name a directory, with a slash at its end: `--bcast=/tmp/`; or leave the path out
    [120 cli/not-offered]
    ");
}
