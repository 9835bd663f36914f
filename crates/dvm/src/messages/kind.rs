//! The kinds of message: stable ids, severities and long explanations.

/// The explanation of a message id, absent for an id that we never had.
#[must_use]
pub fn explain(id: &str) -> Option<&'static str> {
    KINDS
        .iter()
        .find(|kind| kind.id == id)
        .map(|kind| kind.explanation)
}

message::kinds! {
    /// Every kind of message of this crate.
    pub const KINDS;

    RANK_FAILED: Error "job/rank-failed"
"A rank ended with a code other than 0, or a signal ended it, and nobody had asked for that.

The first rank that fails decides the exit code of the whole run: its own code, or 128 plus the number of the signal. \
By default it also ends the job: the other ranks get SIGTERM and, when the grace is over, SIGKILL. With \
`--kill-on-bad-exit=no` they run on to their end.

Ranks that failed alike share one message; ranks that failed otherwise have one of their own. Ranks that ended only \
because we ended them are counted under `effect`, not reported as failures."

    MORE_FAILED: Error "job/more-failed"
"Ranks failed in more different ways than get a message each. The first ways are told in full, and this message counts \
the rest. Look at the first message first: later failures are usually its consequences."

    ABORTED: Error "job/aborted"
"A rank asked for the end of the job, as `MPI_Abort` does. The code that it gave is the exit code of the run, and the \
other ranks were ended: SIGTERM, the grace, SIGKILL."

    PROTOCOL: Error "job/protocol"
"A rank sent something over `PMI_FD` that the process management interface does not allow, for example a message that \
is too long, one that cannot be read or a second `init`. The rank cannot take part in the job any more, so the job was ended.

Either the MPI library speaks a version that we do not, or something in the program wrote to a descriptor that is not \
its own."

    ABSENT: Error "job/rank-absent"
"Some ranks called `MPI_Init`, which waits for all ranks of the job, and others had ended without having called it. They had \
ended with code 0, so by themselves they were no failure. Most MPI libraries find out and fail in `MPI_Init`; where one had \
not done so after 3 s, the job was ended.

A program without MPI beside one with MPI, in one job (`:`), is a frequent reason, or a rank that leaves before `MPI_Init`. \
Start the other program as a job of its own. `--kill-on-bad-exit=no` lets the ranks wait."

    UNFINISHED: Warning "job/no-finalize"
"The ranks called `MPI_Init` (or `PMIx_Init`), did not call `MPI_Finalize`, and ended with code 0, which says that all is well. A \
call of `exit` in the midst of a program does that, a `STOP` in Fortran, or a library that ends the process. MPI requires \
`MPI_Finalize`; without it, what other ranks were to get may be missing.

These ranks count as successful, and the exit code is what the others say. Where one of those fails because these have left, it is \
that one's. Where others were still at work 3 s later, the job is ended instead (`rally help job/left-alone`)."

    LEFT_ALONE: Error "job/left-alone"
"Some ranks called `MPI_Init` (or `PMIx_Init`) and ended with code 0 without `MPI_Finalize`, and 3 s later others had neither finalized \
nor ended. What concerns all ranks cannot be finished any more, and some libraries wait for ever, so the job was ended. \
`mpirun` and Hydra's `mpiexec` do so at once. `--kill-on-bad-exit=no` lets the others go on.

A call of `exit` in the midst of a program does that, a `STOP` in Fortran, or a library that ends the process."

    NOT_STARTED: Error "job/not-started"
"Some ranks could not be started. `step` says how far we came and the headline what the kernel answered. A parallel \
job needs all its ranks, so those that had been started were ended."

    ENDED_BY_SIGNAL: Error "job/ended-by-signal"
"The launcher got a signal that asks for the end of the job, such as Ctrl-C (SIGINT), SIGTERM or the SIGHUP of a \
closed terminal. The ranks got the same signal, then SIGTERM, and SIGKILL when the grace was over.

Ctrl-C once asks the ranks to end, twice kills them, three times gives up waiting and says what may be left. The exit \
code is 128 plus the number of the signal."

    OUTPUT_LOST: Note "job/output-lost"
"Whoever read the job's output has gone, as in `rally run ... | head -1`. A program by itself would get SIGPIPE; the job \
was ended in its stead. The exit code is 141, as for a program that SIGPIPE ended."

    INPUT_LOST: Error "job/input-lost"
"Reading the standard input of the launcher, or the file of `--input`, has failed: a disk or a file server does not answer as it \
should. The ranks have not seen the end of the input, for they would take what they have read for the whole of it. The exit \
code is 123."

    TERMINAL_LOST: Error "job/terminal-lost"
"The terminal that the launcher reads or writes has hung up: its window was closed, or the connection is gone. No signal tells \
of it where the terminal is not the launcher's controlling terminal, as under `setsid` or `su -c`; the job is ended all the \
same, unless `--on-hangup=continue` or `nohup` says otherwise. The exit code is 129, as for SIGHUP."

    TIME_LIMIT: Error "job/time-limit"
"The job was still running when its time limit passed. Its ranks got SIGTERM and, when the grace was over, SIGKILL. \
The exit code is 124, as with `timeout(1)`."

    WAITED: Error "job/waited"
"`--wait` says how long the other ranks may go on when the first one has ended, whatever its exit code. They have had that \
time. The exit code is 124."

    FRONT_LOST: Error "job/front-lost"
"The process that the user had started, which reads stdin and prints the output, is gone, for example by SIGKILL. The \
controller noticed and ended the job, so that nothing is left behind."

    DEBUGGER_LOST: Error "job/debugger-lost"
"The ranks were held for a debugger that had attached to them or to `rally`, and that is gone while they were in its hands, or a \
moment after it had let go of them. `--on-debugger-loss=kill` ends the job then, so that nothing runs on that nobody looks after."

    DEBUGGER_GONE: Warning "job/debugger-gone"
"The ranks were held for a debugger that had attached to them or to `rally`, and that is gone while they were in its hands, or a \
moment after it had let go of them. Nothing is held for ever: they run on, which `--on-debugger-loss=kill` would change to an end of the job. A debugger that was \
killed may have left breakpoints in a program, which end it by SIGTRAP when it comes to them."

    SPAWNER_ENDED: Error "job/spawner-ended"
"The job was spawned by a process of another job (`PMIx_Spawn`, `MPI_Comm_spawn`), and that job has ended: it failed, or \
somebody ended it. Spawned jobs do not outlive it then."

    SPAWNED_FAILED: Warning "job/spawned-failed"
"A process of the job has spawned another job (`PMIx_Spawn`, `MPI_Comm_spawn`), and that one has failed. The process is \
told the end of it, if it wants to know; what becomes of its own job is its decision, and so is the exit code."

    NOT_HELD_YET: Note "job/not-held-yet"
"The ranks that are named run, and have not come to the point where they were to be held: `PMIx_Init` or `MPI_Init`, of a library \
that waits there for a debugger. A program that never calls it is never held. `--stop-on-exec` holds any program, before it has run \
anything. When the ranks come there after all, or end, it is said that all are held."

    ENDED_WITH_SPAWNED: Error "job/ended-with-spawned"
"A process of the job has spawned another job by `MPI_Comm_spawn`, and a rank of that one failed or aborted. With MPICH both \
are one MPI program: what is left of it would wait for ever for the rank that is gone. So all of it was ended, and the exit \
code is that of the rank that failed. With `--kill-on-bad-exit=no` only an abort does so."

    LEAKY: Warning "job/leaky"
"The rank has exited, but another process still has its stdout or stderr open, so the end of its output was not seen. \
Mostly that is a process that the rank has started in the background and that inherited both.

We wait one second after the exit for such output, then stop reading. Every byte that the rank itself wrote was passed \
on. The process that held the output is ended with the job like everything else that ranks leave behind."

    LEFT_BEHIND: Warning "job/left-behind"
"When all ranks had ended there were still processes that they had started, also such that had put themselves into a \
session of their own or whose parent had gone. A job leaves nothing behind: they got SIGTERM and, when the grace was \
over, SIGKILL."

    STUCK: Error "job/stuck"
"Processes of the job do not end although they were sent SIGKILL. Only the kernel can keep a process alive then: it waits \
in a system call that cannot be interrupted (state `D`), mostly for a file server that does not answer or for a device. \
They end when that call returns. Nothing that a launcher can do ends them sooner. Ranks got 10 s, other processes 2 s."

    NOT_PERMITTED: Error "job/not-permitted"
"Processes of the job have become another user, for example by `sudo` or by a program with the setuid bit. Only that user and root \
may send signals to them, so that they could not be ended with the job. They got 2 s to end by themselves: some programs pass on \
the SIGTERM that their own children get."

    REFUSED: Warning "pmix/refused"
"Every node of a job has a port on 127.0.0.1 at which its ranks find PMIx. Any process of the machine can connect to it, but only \
processes of the job's own user are heard: the kernel says whose a connection is, and others are closed before a byte is read. A \
connection of a rank is closed when what comes over it breaks the protocol, and the rank lives on.

Connections of nobody in the job are counted, and told once when it is over. Many of them, of another user, mean that somebody \
looks for open ports on the machine or disturbs on purpose. In a container with a user namespace the user of a rank can be another \
one than that of the job: start the launcher inside, too."

    MISSING: Warning "job/without"
"The system has refused something that the job can do without: `reason` is what it said, and the headline what is missing now. Each \
such thing is told once."

    BAD_PATTERN: Error "output/bad-pattern"
"The name for the ranks' output files is a pattern: `%r` is the rank, `%s` the number of ranks, `%l` the rank within its \
node, `%a` the app, `%j` the job, `%h` the host name, `%p` the launcher's process number and `%%` a percent sign. Digits \
before the letter fill up with zeros: `out.%4r` makes `out.0007`."

    TOO_MANY_JOBS: Error "job/too-many-jobs"
"A launcher holds a bounded number of jobs at once, and this one was not started. The exit code is 123."

    NODE_LOST: Error "job/node-lost"
"The daemon on a node of the allocation ended before the job was launched, so the job was not started. The exit code is 125."

    OTHER_VERSION: Error "job/other-version"
"A daemon speaks another version of the protocol between the parts of `rally` than the controller: there are two versions of \
`rally` on the nodes of the job. They do not talk to each other, because each could misunderstand the other. Install the same \
version on all nodes, or let all nodes share one installation. The exit code is 125."

    TOO_FEW_GPUS: Error "job/too-few-gpus"
"`--gpus-per-proc N` gives each rank N GPUs of its own, `--gpus N` the same N to all ranks of the node. The node has fewer: \
those that CUDA_VISIBLE_DEVICES (or ROCR_VISIBLE_DEVICES) lists where it is set, else those that the driver shows."

    NO_SUCH_RANK: Error "job/no-such-rank"
"An option names a rank that the job does not have: ranks are counted from 0, so that a job of 4 has the ranks 0 to 3. \
`--stdin RANK` says who reads the input, `--pty=RANK` who gets a terminal."

    NO_PROGRAM: Error "start/no-program"
"There is no such program on the node. A name without a slash is looked for in the directories of `PATH`, the current \
directory is not one of them; a name with a slash is a path, relative to the ranks' working directory. The exit code is \
127, as in a shell."

    NO_INTERPRETER: Error "start/no-interpreter"
"The program's file is there, and yet the kernel said `no such file or directory`. It means another file: the interpreter \
after `#!` in the first line of a script, or the dynamic linker of a binary.

Frequent reasons: the script was saved with Windows line ends, so that the interpreter's name ends in a carriage return; \
the interpreter is installed elsewhere on this node (`#!/usr/bin/env NAME` helps); the binary was built against another C \
library (musl and glibc) or for a 32-bit system. The exit code is 127."

    NOT_EXECUTABLE: Error "start/not-executable"
"The kernel does not allow the program to be executed: the file has no execute permission for you, a directory above it \
may not be entered, or its file system is mounted with `noexec`. The exit code is 126, as in a shell."

    IS_DIRECTORY: Error "start/is-directory"
"What was given as program is a directory. The exit code is 126, as in a shell."

    WRONG_FORMAT: Error "start/wrong-format"
"The file may be executed but is no program that the kernel knows: a binary for another kind of processor, or an empty or \
damaged file. A text without a `#!` line is run by `/bin/sh`, as a shell would. The exit code is 126."

    BUSY: Error "start/busy"
"The kernel does not execute a file that somebody has open for writing. Mostly a compiler or a copy has not finished \
yet. The exit code is 126."

    ARGUMENTS_TOO_LONG: Error "start/arguments-too-long"
"The program's arguments and environment together are longer than the kernel takes: a quarter of the stack's limit \
(`ulimit -s`), and 128 KiB for each single string. The exit code is 123."

    NO_DIRECTORY: Error "start/no-directory"
"The working directory of the ranks cannot be entered on their node: it does not exist there, is not a directory, or you \
may not enter it. Without `--wdir` it is the directory in which the launcher was started. The exit code is 121."

    OUTPUT_FILE: Error "start/output-file"
"The file that should take a rank's output cannot be opened on the rank's node. Its name comes from the pattern given; a \
relative name starts at the rank's working directory. Directories that do not exist are made. The exit code is 121."

    NO_PIDS: Error "start/no-pids"
"The kernel has refused another process. Limits that can be the reason: processes of one user (`ulimit -u`, which counts \
threads and all your sessions), the cgroup's `pids.max`, `kernel.pid_max` and `kernel.threads-max`. The exit code is 123."

    NO_DESCRIPTORS: Error "start/no-descriptors"
"There are no more descriptors. The daemon of a node needs about four for each rank, and raises its own limit as far as \
it may (the hard limit, `ulimit -Hn`). Beyond that, only fewer ranks or a higher hard limit help. The exit code is 123."

    NO_MEMORY: Error "start/no-memory"
"The kernel had no memory for another process: the node, or the cgroup we run in, is full, or overcommit is off \
(`vm.overcommit_memory`). The exit code is 123."

    CANNOT_BIND: Error "start/cannot-bind"
"A rank could not be bound to the PUs that were chosen for it. They were allowed when the map was made: in between, a \
PU went offline or the cpuset was changed. The exit code is 123."

    NO_TERMINAL: Error "start/no-terminal"
"A rank was to get a terminal, for all of its streams (`--pty`) or for its stdout (`--line-buffered`), and there is none: \
`/dev/pts` is not mounted or all terminals are in use. The exit code is 123."

    CANNOT_TRACE: Error "start/cannot-trace"
"Holding a rank at its first instruction uses ptrace, which the system has refused. Containers without `SYS_PTRACE` and \
`kernel.yama.ptrace_scope` of 3 do that. The exit code is 123."

    PLACE_NO_APPS: Error "place/no-apps"
"The request names no program at all."

    PLACE_NO_NODES: Error "place/no-nodes"
"There is no node to place ranks on: the hostfile, `--host` or the batch system gave an empty list."

    PLACE_NO_PROCS: Error "place/no-procs"
"An app was given with 0 procs. Every app of a job has at least one; leave the app out instead."

    PLACE_TOO_MANY_PROCS: Error "place/too-many-procs"
"More ranks were asked for than a job can have. The limit protects against slips of the keyboard; no machine that exists runs so many."

    PLACE_NOT_ENOUGH_SLOTS: Error "place/not-enough-slots"
"You said how many slots there are (in a hostfile, with `--host a:2`, or through the batch system), and the job needs more. Give fewer ranks or more slots, or allow more ranks than slots with `--oversubscribe`.

Slots that nobody has counted never refuse: without a number more ranks than cores run unbound."

    PLACE_NOT_ENOUGH_PLACES: Error "place/not-enough-places"
"A policy such as `ppr:2:package` says itself how many ranks there are: so many for each object. It makes fewer than `-n` asks for. Leave `-n` out to fill every object, or choose another policy."

    PLACE_NOT_ENOUGH_CPUS: Error "place/not-enough-cpus"
"You asked for a binding, and the node has fewer cores than the ranks there need for it. Without `--bind-to` such ranks would run unbound; with it we do not guess which of the two you want. `--bind-to none` or `:overload-allowed` decide."

    PLACE_NOT_ENOUGH_ROOM: Error "place/not-enough-room"
"`PE=n` gives each rank n cores (or hardware threads) of its own, and the nodes together have fewer than all ranks need. `-n` with the number given, or a smaller `PE=`, makes them fit. With `--oversubscribe` the ranks run unbound and share what there is."

    PLACE_OBJECT_TOO_SMALL: Error "place/object-too-small"
"`PE=n` gives each rank n cores (or hardware threads) of one object of the level that ranks are mapped by, and no object has so many."

    PLACE_NO_CPUS: Error "place/no-cpus"
"The affinity mask, the cgroup's cpuset and `--cpu-set` have no PU in common, so nothing can run on the node."

    PLACE_UNKNOWN_HOST: Error "place/unknown-host"
"A host was named that the allocation does not have. Host names are compared as they are written: `n1` and `n1.example.org` are two names."

    PLACE_RANK_MISSING: Error "place/rank-missing"
"A rankfile must have a line for every rank of the job."

    PLACE_RANK_TWICE: Error "place/rank-twice"
"A rankfile may have only one line for each rank."

    PLACE_NO_SUCH_CPU: Error "place/no-such-cpu"
"A rankfile or a PE list names a core or hardware thread that the node does not have, or that we may not use. Numbers are logical: 0 is the first that we may use, whatever number the kernel gives it."

    PLACE_NO_USABLE_PUS: Error "place/no-usable-pus"
"`--bind-list`, srun's `--cpu-bind=map_cpu:` and its relatives, and `-bind-to user:` of Hydra name hardware threads (or NUMA nodes) by the kernel's numbers. One of the entries has none that we may use: the machine does not have it, or the cpuset leaves it out."

    PLACE_NO_SUCH_NODE: Error "place/no-such-node"
"A host was given by number, as in `+n7`, and the allocation has fewer nodes. Numbers begin with 0."

    PLACE_NOT_PER_APP: Error "place/not-per-app"
"The policies `rankfile` and `seq` number the ranks of a whole job, so they cannot be given to one app of several."

    PLACE_CONFLICT: Error "place/conflict"
"Two options ask for things that cannot both be done. Leave one of them out."

    PLACE_UNBOUND: Note "place/unbound"
"The job has more ranks than there are cores that we may use, so its ranks are not bound: the kernel moves them among the PUs as it sees fit. This happens only where nobody has said a number of slots."

    PLACE_OVER_QUOTA: Note "place/over-quota"
"The cgroup that we run in (a container, a batch job) grants less processor time than the ranks can use: `cpu.max` counts. They run, and the kernel makes them wait."
}
