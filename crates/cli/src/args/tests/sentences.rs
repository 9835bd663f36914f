//! All messages about errors in a command line, a file or a setting.

use super::*;

#[test]
#[expect(
    clippy::too_many_lines,
    reason = "a table of cases, and what is said of them"
)]
fn mistakes_in_options() {
    let place = Place::new();
    insta::assert_snapshot!(place.complaints(&[
        "rally",
        "rally rnu",
        "rally ./a",
        "rally -n 4 ./a",
        "rally run",
        "rally run -n 4",
        "rally submit",
        "mpirun -n 4",
        "rally run a : -n 1 : b",
        "rally run --hostfil f a",
        "mpiexec -hostfil f a",
        "rally run --zzzzzzzz a",
        "rally run -J x a",
        "rally run -w h a",
        "srun --pmix-prefix x a",
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
        "rally run --pset a,b a",
        "rally run --label=loud a",
        "rally run --kill-on-bad-exit=maybe a",
        "rally run --pty=x a",
        "rally run --set-env =1 a",
        "rally run --add-env A a",
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
      known: run, launch, up, down, submit, queue, explain, hold, release, start-tool, cancel, signal, pause, resume, usage, priority, wait, output, nodes, page, status, top, demo, mpir-check, ptp-proxy, config, help
      help:  did you mean `run`?
    [120 cli/unknown-command]

    $ rally ./a
    error: there is no command `./a`
      known: run, launch, up, down, submit, queue, explain, hold, release, start-tool, cancel, signal, pause, resume, usage, priority, wait, output, nodes, page, status, top, demo, mpir-check, ptp-proxy, config, help
      help:  to start a program: `rally run ./a`
    [120 cli/unknown-command]

    $ rally -n 4 ./a
    error: there is no command `-n`
      known: run, launch, up, down, submit, queue, explain, hold, release, start-tool, cancel, signal, pause, resume, usage, priority, wait, output, nodes, page, status, top, demo, mpir-check, ptp-proxy, config, help
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

    $ rally submit
    error: no program was given
      help: `rally submit -n 4 PROGRAM`; `rally submit -h` for more
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
      srun: there it means `--job-name`
      help: use `--job-name`, or `--personality srun` before it
    [120 cli/unknown-option]

    $ rally run -w h a
    error: there is no option `-w`
      srun: has an option of this name
      help: put `--personality srun` before it
    [120 cli/unknown-option]

    $ srun --pmix-prefix x a
    error: there is no option `--pmix-prefix`
      help: `srun -h` lists the options
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
      help: give 1 or more, or leave `-n` out
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
      help: give 1 or more, or leave `-np` out
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
    error: `JOB` cannot be `few`: it is neither a process number (`123`, or `123@2` for a job spawned by it) nor a PMIx namespace
    [120 cli/bad-value]

    $ rally run --umask 8 a
    error: `--umask` cannot be `8`: it is not an octal mask between 0 and 777
    [120 cli/bad-value]

    $ rally run --pset a,b a
    error: `--pset` cannot be `a,b`: it contains a comma, which separates names in lists
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

    $ rally run --add-env A a
    error: `--add-env` cannot be `A`: it is not of the form `NAME=VALUE`
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
      help: give 1 or more, or leave `--np` out
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
    error: `WHAT` needs a value
      help: give it one: `WHAT VALUE`
    [120 cli/missing-value]

    $ rally __generate ksh
    error: `WHAT` cannot be `ksh`: known values are `man`, `bash`, `zsh`, `fish`, `elvish`
    [120 cli/bad-value]
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
    insta::assert_snapshot!(place.complaints(&[
        "srun a",
        "mpirun a",
        "mpiexec -usize many a",
        "rally run --bind-list 0,x a",
        "rally run --warn SIGFOO a",
        "rally run --multi-prog -n 3 ranks",
        "rally run --multi-prog bad",
        "rally run --tune tune a",
        "rally run --tune missing a",
    ]), @"
    $ srun a
    error: `SLURM_TASK_PROLOG ./p` is not supported: nothing is run before or after the procs
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
    error: `--warn` cannot be `SIGFOO`: `SIGFOO` is not a signal (give a name such as `USR1`, or a number from 1 to 64)
    [120 cli/bad-value]

    $ rally run --multi-prog -n 3 ranks
    error: cannot read the file of programs `ranks`, line 2: there is no line for rank 1
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
    error: `--timeout` applies to the whole job, but app 2 has `6` and an earlier app has `5`
      help: give it once, before the first program
    [120 cli/said-twice]

    $ rally run --bind-to core a : --bind-to none b
    error: `--bind-to` applies to the whole job, but app 2 has `none` and an earlier app has `core`
      help: give it once, before the first program
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
      help: the output of a terminal is always shown: leave one of them out
    [120 cli/options-together]

    $ rally run --app apps a
    error: `--app` and `a` cannot be used together
      help: put the program into the file, or leave the file out
    [120 cli/options-together]
    "#);
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
        .map(|notice| message::text(&notice.message(), MessageFormat::Text))
        .collect();
    insta::assert_snapshot!(texts.concat(), @r"
    note: ignored, since it has no effect here: `--prtemca btl tcp`, `--mca plm_x ob1`, `-rmk user`, `-prefix /x` and 1 more
    note: cannot pass on `NEITHER`, `NO`: not set in our environment
    ");
}

#[test]
fn the_option_that_is_wrong_is_the_one_that_is_named() {
    let place = Place::new();
    insta::assert_snapshot!(place.complaints(&[
        "srun -n 1 -N 0 a",
        "srun -c 0 a",
        "srun --ntasks-per-node=0 a",
        "mpiexec -ppn 0 a",
        "srun --signal=NOSIG@5 a",
        "srun --signal=@5 a",
    ]), @"
    $ srun -n 1 -N 0 a
    error: `-N` cannot be `0`: a job runs on at least one node
      help: give 1 or more, or leave `-N` out
    [120 cli/bad-value]

    $ srun -c 0 a
    error: `-c` cannot be `0`: a proc has at least one CPU
      help: give 1 or more, or leave `-c` out
    [120 cli/bad-value]

    $ srun --ntasks-per-node=0 a
    error: `--ntasks-per-node` cannot be `0`: a job has at least one proc
      help: give 1 or more, or leave `--ntasks-per-node` out
    [120 cli/bad-value]

    $ mpiexec -ppn 0 a
    error: `-ppn` cannot be `0`: a job has at least one proc
      help: give 1 or more, or leave `-ppn` out
    [120 cli/bad-value]

    $ srun --signal=NOSIG@5 a
    error: `--signal` cannot be `NOSIG@5`: `NOSIG` is not a signal (give a name such as `USR1`, or a number from 1 to 64)
    [120 cli/bad-value]

    $ srun --signal=@5 a
    error: `--signal` cannot be `@5`: it is not `SIGNAL` or `SIGNAL@SECONDS`
    [120 cli/bad-value]
    ");
    let place = place.variable("SLURM_NTASKS", "0");
    insta::assert_snapshot!(place.complaint("srun a"), @"
    $ srun a
    error: `SLURM_NTASKS` cannot be `0`: a job has at least one proc
      help: give 1 or more, or unset SLURM_NTASKS
    [120 cli/bad-value]
    ");
}
