//! Kinds of message: stable ids, severities and long explanations.

/// Returns the explanation of a message id; `None` if the id never existed.
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
"A rank exited with a code other than 0, or was killed by a signal that `rally` did not send.

The first rank that fails decides the exit code of the whole run: its own code, or 128 plus the number of the signal. \
By default it also ends the job: the other ranks get SIGTERM and, when the grace is over, SIGKILL. With \
`--kill-on-bad-exit=no` they run on to their end.

Ranks that failed in the same way share one message. Ranks that ended only \
because we ended them are counted under `effect`, not reported as failures."

    MORE_FAILED: Error "job/more-failed"
"Ranks failed in more different ways than `rally` prints messages for. The first ways have a message each, and this message \
counts the rest. Look at the first message first: later failures are usually its consequences."

    ABORTED: Error "job/aborted"
"A rank aborted the job, as `MPI_Abort` does. The code that it gave is the exit code of the run, and the other ranks were \
ended: SIGTERM, the grace, SIGKILL."

    PROTOCOL: Error "job/protocol"
"A rank sent something over `PMI_FD` that the process management interface does not allow, for example a message that \
is too long, one that cannot be read or a second `init`. The rank cannot take part in the job any more, so the job was ended.

Either the MPI library speaks a version that `rally` does not, or something in the program wrote to the descriptor of the \
MPI library."

    ABSENT: Error "job/rank-absent"
"Some ranks called `MPI_Init`, which waits for all ranks of the job, but other ranks had ended with code 0 without calling it. \
Most MPI libraries notice that and fail in `MPI_Init`. Here the library had not failed after 3 s, so the job was ended.

A frequent reason is one job (`:`) with a program that uses MPI and another that does not, or a rank that exits before \
`MPI_Init`. Start the program without MPI as a job of its own. `--kill-on-bad-exit=no` lets the ranks wait."

    UNFINISHED: Warning "job/no-finalize"
"The ranks called `MPI_Init` (or `PMIx_Init`) and ended with code 0, which means success, but did not call `MPI_Finalize`. Usual \
reasons are a call of `exit` in the middle of a program, a `STOP` in Fortran, or a library that ends the process. MPI requires \
`MPI_Finalize`; without it, messages to other ranks may be lost.

These ranks count as successful, so the other ranks decide the exit code. If another rank fails because these have ended, the exit \
code is that of the other rank. If others are still at work 3 s later, the job is ended instead (`rally help job/left-alone`)."

    LEFT_ALONE: Error "job/left-alone"
"Some ranks called `MPI_Init` (or `PMIx_Init`) and ended with code 0 without `MPI_Finalize`, and 3 s later others had neither finalized \
nor ended. Collective operations of all ranks cannot complete any more, and some libraries wait for ever, so the job was ended. \
`mpirun` and Hydra's `mpiexec` end it immediately. `--kill-on-bad-exit=no` lets the others go on.

Usual reasons are a call of `exit` in the middle of a program, a `STOP` in Fortran, or a library that ends the process."

    NOT_STARTED: Error "job/not-started"
"Some ranks could not be started. `step` is the step that failed, and the headline has the kernel's error. A parallel job \
needs all its ranks, so those that had been started were ended."

    ENDED_BY_SIGNAL: Error "job/ended-by-signal"
"The launcher got a signal that asks for the end of the job, such as Ctrl-C (SIGINT), SIGTERM or the SIGHUP of a \
closed terminal. The ranks got the same signal, then SIGTERM, and SIGKILL when the grace was over.

The first Ctrl-C asks the ranks to end, the second kills them, and after the third `rally` stops waiting and lists the ranks \
that may be alive. The exit code is 128 plus the number of the signal."

    OUTPUT_LOST: Note "job/output-lost"
"The reader of the job's output has exited or closed the pipe, as in `rally run ... | head -1`. A single program would get \
SIGPIPE; the job was ended instead. The exit code is 141, as for a program that SIGPIPE ended."

    INPUT_LOST: Error "job/input-lost"
"Reading the standard input of the launcher, or the file of `--input`, has failed, for example because of an error of a disk or a \
file server. The ranks were not given an end-of-file, because they would have taken the part that they had read for the whole \
input. The exit code is 123."

    TERMINAL_LOST: Error "job/terminal-lost"
"The terminal that the launcher reads or writes has hung up: its window was closed, or the connection is gone. If it is not \
the launcher's controlling terminal, as under `setsid` or `su -c`, the launcher gets no SIGHUP; the job is ended nevertheless, \
unless `--on-hangup=continue` or `nohup` is used. The exit code is 129, as for SIGHUP."

    CANCELED: Error "job/canceled"
"`rally cancel` was called for this job, or the machine on which it ran was ended with `rally down --now`. Its ranks got SIGTERM and, \
when the grace was over, SIGKILL. The exit code is 143, as for SIGTERM."

    TIME_LIMIT: Error "job/time-limit"
"The job was still running when its time limit passed. Its ranks got SIGTERM and, when the grace was over, SIGKILL. \
The exit code is 124, as with `timeout(1)`."

    WAITED: Error "job/waited"
"`--wait` limits how long the other ranks may go on when the first one has ended, whatever its exit code. That time is over. \
The exit code is 124."

    FRONT_LOST: Error "job/front-lost"
"The process that the user started, which reads stdin and prints the output, has ended, for example by SIGKILL. The controller \
noticed and ended the job, so that no process is left behind."

    DEBUGGER_LOST: Error "job/debugger-lost"
"The ranks were held for a debugger that had attached to them or to `rally`. The debugger ended while it controlled the ranks, or \
a moment after it had released them. With `--on-debugger-loss=kill` the job is ended then, so that no rank runs on unattended."

    DEBUGGER_GONE: Warning "job/debugger-gone"
"The ranks were held for a debugger that had attached to them or to `rally`. The debugger ended while it controlled the ranks, or \
a moment after it had released them. No rank stays held without a debugger: the ranks run on. With `--on-debugger-loss=kill` the \
job would be ended instead. A debugger that was killed may have left breakpoints in a program; the program ends by SIGTRAP when it \
reaches one."

    TOOL_ENDED: Error "job/tool-ended"
"A debugger or another PMIx tool has started `rally` (`PMIX_LAUNCHER_RNDZ_URI` in its environment), and controls its job: it lets the job begin, and may hold its ranks. The tool has ended, or has closed its connection before the job could begin. Then nobody can let it go on, so that the job is ended. A tool that starts the launcher with `PMIX_LAUNCHER_RNDZ_URI` but without `PMIX_KEEPALIVE_PIPE`, or with the directive `PMIX_NOHUP`, may end while its job runs."

    TOOL_DIRECTIVE: Error "job/tool-directive"
"A debugger or another PMIx tool has started `rally`, and gives it directives for the job (`PMIX_LAUNCH_DIRECTIVES`). One of them is marked as required and `rally` does not understand it, or its value makes no sense. The tool's documentation may say how to do without it."

    WAITS_FOR_TOOL: Note "job/waits-for-tool"
"`PMIX_LAUNCHER_PAUSE_FOR_TOOL` is set, so that the job begins when a PMIx tool releases the launcher (`PMIx_Notify_event` with `PMIX_DEBUGGER_RELEASE`). Tools find the launcher by its process number. Ctrl-C ends the wait."

    SPAWNER_ENDED: Error "job/spawner-ended"
"The job was spawned by a process of another job (`PMIx_Spawn`, `MPI_Comm_spawn`), and that job has failed or \
was ended. Spawned jobs are ended with it."

    TARGET_ENDED: Note "tool/target-ended"
"Processes that `rally start-tool` has started run beside the ranks of a job, and end with it. When the last rank has ended, or the job is being ended, they get SIGTERM and, when the grace is over, SIGKILL. The exit code is 0: this is the usual end of a tool that watches a job."

    TOOL_FAILED: Warning "tool/failed"
"A tool that was to run beside the ranks of the job, because of `--tool` or because a debugger has asked for it (`MPIR_executable_path`), was not started, or one of its processes failed. The job goes on, and its own ranks decide its exit code. Ranks that are held for the tool stay held: `rally release` lets them run."

    NO_TARGET: Error "tool/no-target"
"`rally start-tool` starts processes beside the ranks of a running job. The job has to be one whose ranks have been started and have not all ended."

    SPAWNED_FAILED: Warning "job/spawned-failed"
"A process of the job has spawned another job (`PMIx_Spawn`, `MPI_Comm_spawn`), and the spawned job has failed. A \
process that registered for the event is notified. This job goes on, and its own ranks decide its exit code."

    SPAWNED_STARTED: Note "job/spawned-started"
"A process or a tool has spawned the job (`PMIx_Spawn`), or a tool has started the launcher, and wants the start to be logged \
(`PMIX_LOG_JOB_EVENTS`). All processes of the job have been started. `-q` suppresses the message."

    SPAWNED_ENDED: Note "job/spawned-ended"
"A process or a tool has spawned the job (`PMIx_Spawn`), or a tool has started the launcher, and wants the end to be logged \
(`PMIX_LOG_JOB_EVENTS`, `PMIX_LOG_COMPLETION`). \
The exit code is that of the process that decided the end of the job. `-q` suppresses the message."

    SPAWN_REFUSED: Warning "job/spawn-refused"
"A process of the job wanted to spawn another job (`PMIx_Spawn`, `MPI_Comm_spawn`) with files that are copied to its nodes first (`PMIX_PRELOAD_BIN`, `PMIX_PRELOAD_FILES`), and they cannot be copied. The files are read on the node of `rally`; relative paths begin at the working directory of the program that is spawned. The process gets the error, and this job goes on."

    NO_SCHEDULER: Note "job/no-scheduler"
"A process of the job has asked for more nodes, slots or time (`PMIx_Allocation_request`), or has spawned a job for which it \
requires an allocation (`PMIx_Spawn`). The queue of a machine (`rally help up`) answers such requests, and Slurm if the job runs \
inside an allocation of Slurm. This job runs without both, so the process gets the error NOT_SUPPORTED, and the job goes on. Inside \
a job of PBS or LSF, `rally` does not ask for more. The message is printed once for a job."

    ALLOCATION_REFUSED: Note "job/allocation-refused"
"The job runs inside an allocation of Slurm, and one of its processes has asked for another one, or has asked to change or to give \
back such an allocation (`PMIx_Allocation_request`). `rally` has passed the request to Slurm, if Slurm can do it at all. The process \
gets an error, and the job goes on. Slurm lets only operators and administrators extend the time of a running job; nobody can add nodes to one. The \
first 16 refusals of a job are printed."

    ALLOCATION_LEFT: Warning "job/allocation-left"
"A process of the job has requested an allocation of Slurm, and `rally` wanted to give it back, because the process has asked for \
that, or because the job is over. Slurm did not do it. The allocation is held until its time limit, unless somebody cancels it."

    NOT_HELD_YET: Note "job/not-held-yet"
"The ranks under `running` have not yet reached the point where they should be held: `PMIx_Init`, or `MPI_Init` of a library that \
waits there for a debugger. A program that never calls it is never held. `--stop-on-exec` holds any program at its first \
instruction. When these ranks have reached the point or ended, a message says that all are held."

    ENDED_WITH_SPAWNED: Error "job/ended-with-spawned"
"A process of the job has spawned another job by `MPI_Comm_spawn`, and a rank of the spawned job failed or aborted. With MPICH both \
jobs are one MPI program, and the remaining ranks would wait for ever for the failed one. So both jobs were ended, and the exit \
code is that of the rank that failed. With `--kill-on-bad-exit=no` only an abort ends both."

    LEAKY: Warning "job/leaky"
"The rank has exited, but another process still has its stdout or stderr open, so the end of its output was not seen. \
Usually that is a process that the rank has started in the background and that inherited both.

We wait one second after the exit for such output, then stop reading. Every byte that the rank itself wrote was passed \
on. The process that held the output is ended with the job like everything else that ranks leave behind."

    LAST_CALL: Note "rank/last-call"
"A rank of a job with `--mpi-recorder` has failed. The recorder has left the call of MPI in which it ended, or the last one from which it \
had returned, with the communicator, the other rank and the tag. On each node, the first 16 ranks that fail are described."

    LEFT_BEHIND: Warning "job/left-behind"
"When all ranks had ended, some processes that they had started were still running. This includes daemonized processes: those in \
a session of their own, or whose parent has exited. A job leaves no process behind: they got SIGTERM and, when the grace was over, \
SIGKILL."

    STUCK: Error "job/stuck"
"Processes of the job do not end although they were sent SIGKILL. Only the kernel can keep a process alive then: it waits \
in a system call that cannot be interrupted (state `D`), usually for a file server that does not answer or for a device. \
They end when that call returns; a launcher cannot end them sooner. `rally` waited 10 s for ranks, and 2 s for other processes."

    NOT_LIMITED: Warning "job/not-limited"
"`--memory-limit` and `--cpu-limit` are enforced by cgroups of version 2 of the kernel, and some nodes cannot use them. The job runs there \
without these limits.

The daemon makes a cgroup for the job below its own one, which has to be *delegated* to the user: the user may make directories in it, and it \
has the controllers `memory` and `cpu` (`cat /sys/fs/cgroup/PATH/cgroup.controllers`, with PATH from `/proc/self/cgroup`). With systemd, \
`systemd-run --user --scope -p Delegate=yes rally up` starts a machine in such a cgroup, and `rally run` likewise; other programs must not be \
in it. On other nodes it starts the daemons with `--bootstrap-command='ssh {host} systemd-run --user --scope -q -p Delegate=yes {daemon}'`. \
If users do not get a controller, an administrator writes `[Service]` and `Delegate=cpu cpuset io memory pids` to \
`/etc/systemd/system/user@.service.d/delegate.conf`. In a job of Slurm, Slurm itself limits the memory (`--mem`) and the CPUs."

    NOT_PERMITTED: Error "job/not-permitted"
"Processes of the job have become another user, for example by `sudo` or by a program with the setuid bit. Only that user and root \
may send signals to them, so they could not be ended with the job. `rally` waited 2 s for them to end by themselves, as some \
programs do when their children get SIGTERM."

    REFUSED: Warning "pmix/refused"
"Every node of a job has a port on 127.0.0.1 at which its ranks find PMIx. Any process of the machine can connect to it, but only \
processes of the job's own user are accepted: the kernel reports the user of a connection, and connections of other users are closed \
before a byte is read. A connection of a rank is closed if the rank breaks the protocol; the rank itself runs on.

Refused connections that do not belong to a rank are counted, and reported once at the end of the job. Many of them from another user \
mean that this user scans ports on the machine, or attacks the job. In a container with a user namespace, the user of a rank can \
differ from that of the job: start the launcher inside the container, too."

    MISSING: Warning "job/without"
"The system has refused something that the job can do without. The headline says what is missing, and `reason` is the system's \
error. Each kind of problem is reported once."

    BAD_PATTERN: Error "output/bad-pattern"
"The name for the ranks' output files is a pattern: `%r` is the rank, `%s` the number of ranks, `%l` the rank within its \
node, `%a` the app, `%j` the job, `%h` the host name, `%p` the launcher's process number and `%%` a percent sign. Digits \
before the letter pad with zeros: `out.%4r` makes `out.0007`."

    TOO_MANY_JOBS: Error "job/too-many-jobs"
"The number of jobs that one launcher runs simultaneously is limited, and this job was not started. The exit code is 123."

    NO_MACHINE: Error "machine/none"
"`rally submit`, `queue` and the like ask a machine, which `rally up` starts. A `rally run` without a machine answers nothing of the \
kind. The exit code is 120."

    NO_SUCH_JOB: Error "machine/no-job"
"The machine has no such job in its queue, and none in its history, which has the last 100,000 jobs. The exit code is 120."

    JOB_OVER: Error "machine/job-over"
"The job has ended, so that it cannot be held, released, canceled or moved in the queue any more. The exit code is 120."

    NOT_RUNNING: Error "machine/not-running"
"A signal, a pause or a measurement is for procs that run, and the job, or the task that was named, waits, is over, or is an allocation. The exit code is 120."

    NO_SUCH_NODE: Error "machine/no-node"
"The name is not one of the machine's nodes, as `rally nodes` lists them. The exit code is 120."

    NOT_ACCEPTED: Error "machine/not-accepted"
"The job could never run on this machine, or breaks one of its rules. The headline says which. The exit code is 122."

    NOT_STORED: Error "machine/not-stored"
"A submitted job is stored before its number is told, so that it survives everything. The file system of the machine's directory \
refuses to store it, often because it is full. Jobs that run go on, others wait until there is room; the machine tries again once a second. \
The exit code is 123."

    NOT_READ: Error "machine/not-read"
"The history of the machine cannot be read from its directory. The exit code is 123."

    GOING_DOWN: Error "machine/going-down"
"`rally down` was called: the machine ends when its running jobs have ended. The exit code is 123."

    MACHINE_BUSY: Error "machine/busy"
"`rally down` ends only a machine on which nothing runs, unless it is told what to do with the running jobs. The exit code is 123."

    NODES_BUSY: Error "machine/nodes-busy"
"`rally nodes --drop` takes only nodes out of the machine on which nothing runs, unless it is told what to do with the running jobs. The exit code is 123."

    NODE_LEAVES: Error "machine/node-leaves"
"A node that is being dropped can be added again when its last jobs and its daemon have ended. `rally nodes --resume` keeps it instead. The exit \
code is 123."

    NODE_BAD: Error "machine/node-bad"
"A bad node has no daemon, so that `rally nodes --drain` and `--resume` mean nothing for it. `rally nodes --add` starts it again. The exit code is 123."

    NODE_STAYS: Error "machine/node-stays"
"While `rally nodes --drop --wait` waited for the jobs on a node, `rally nodes --resume` took the node into use again. The exit code is 123."

    NOT_WATCHED: Warning "machine/not-watched"
"A submitted job asks for `--on-hang`, and runs without its watch: so many jobs are watched already, or `dbgr`, which is installed with `rally`, \
cannot be started on the computer where `rally up` was called. The warning is in the file for the errors of the job."

    TOO_MANY_STARTS: Error "machine/too-many-starts"
"Each start of a daemon has a number of its own as long as the machine lives. A machine whose nodes were added very often has no number left. The \
exit code is 123."

    NOT_JOINED: Error "bootstrap/not-joined"
"`rally` starts a daemon on each node of the job, and each daemon connects to `rally`. On some nodes one of the two has failed, so the job was not started. Nodes that failed for the same reason share one entry. `ssh` (or the command that was used instead) and the lines behind it are the words of that command. Try the command by hand. If ssh asks for a password there, or whether to accept a key, start `rally` on a terminal: it passes such questions on, and only there. If it works, the daemon may be unable to connect: a firewall between the nodes, or a network that the nodes do not share (`--if-include` selects one, `--port-range` the ports). The exit code is 123."

    NOT_USED: Warning "machine/nodes-failed"
"The daemons of some nodes of the machine did not start, or did not connect. The machine goes on without these nodes: no job starts there. The \
facts are those of `bootstrap/not-joined`."

    JOB_LOST: Error "job/lost-node"
"The connection to the daemon of a node was closed, or nothing was heard from it for the time of the lease (`--lease`), and it did \
not connect again. A parallel job needs all its ranks, so the job was ended. The daemon ends all processes of the job on its node when it \
loses the launcher, so nothing remains there unless the node cannot be reached and its daemon cannot run. The exit code is 125."

    LOST: Warning "node/lost"
"The connection to the daemon of a node was closed, or nothing was heard from it for the time of the lease (`--lease`), and it did \
not connect again. The daemon ends all processes of the job on its node when it loses the launcher, so nothing remains there unless the \
node cannot be reached and its daemon cannot run."

    STRANGER: Warning "node/stranger"
"Something has connected to the port that `rally` opens for its daemons on other nodes, and was refused: it does not know the secret of \
this session, is another build of `rally`, or speaks another protocol. Port scans do that. The job is not affected. Each host is reported \
once."

    NODE_LOST: Error "job/node-lost"
"The daemon on a node of the allocation ended before the job was launched, so the job was not started. The exit code is 125."

    PRELOAD_UNREADABLE: Error "preload/unreadable"
"`--preload-binary` and `--preload-files` copy files from the launcher's node to the nodes of the job before it starts. \
This file could be read when the job was submitted, and cannot be read any more, so the job was not started. The exit code is 121."

    PRELOAD_CHANGED: Error "preload/changed"
"`--preload-binary` and `--preload-files` copy files to the nodes of the job before it starts. `rally` reads each file twice: for its \
checksum, and to send it. Another process has written to this file between the two. All nodes must get the same file, so the job was \
not started. The exit code is 121."

    PRELOAD_NO_ROOM: Error "preload/no-room"
"`--preload-binary` and `--preload-files` copy files into a directory of the job on each of its nodes. The daemon of a node takes the \
first place with enough room: `$TMPDIR`, `/tmp`, `/var/tmp`, `/dev/shm`, or only the directory of `--preload-dir`. No place on this node \
has enough, and the message names the one with most. The copies of other nodes were removed. The exit code is 123."

    PRELOAD_NO_PLACE: Error "preload/no-place"
"`--preload-binary` and `--preload-files` copy files into a directory of the job on each of its nodes. The daemon of a node makes it in \
`$TMPDIR`, `/tmp`, `/var/tmp` or `/dev/shm`, or only in the directory of `--preload-dir`. No such directory can be used on this node: it \
does not exist, belongs to others, or no program may be executed in it (`noexec`). The exit code is 123."

    PRELOAD_UNWRITABLE: Error "preload/unwritable"
"A file of `--preload-binary` or `--preload-files` could not be written on a node: its file system is full, for instance. The copies of \
other nodes were removed, and the job was not started. The exit code is 123."

    OTHER_VERSION: Error "job/other-version"
"A daemon speaks another version of the protocol between the parts of `rally` than the controller: there are two versions of \
`rally` on the nodes of the job. Different versions do not work together, because they could misunderstand each other's messages. Install \
the same version on all nodes, or let all nodes share one installation. The exit code is 125."

    NOTHING_COUNTED: Error "job/nothing-counted"
"A job can ask for resources that a machine counts by name, such as licenses. The job is to run without a machine, so that nobody \
counts them. It was not started; the exit code is 122."

    TOO_FEW_GPUS: Error "job/too-few-gpus"
"`--gpus-per-proc N` gives each rank N GPUs of its own, `--gpus N` the same N to all ranks of the node. The node has fewer. \
The GPUs of a node are those that CUDA_VISIBLE_DEVICES (or ROCR_VISIBLE_DEVICES) lists, or, if it is not set, those that the driver \
shows: the device files /dev/nvidia0, /dev/nvidia1, ... of NVIDIA's, and the nodes of AMD's below /sys/class/kfd. On a machine, jobs that run at \
the same time have different GPUs."

    NO_SUCH_RANK: Error "job/no-such-rank"
"An option names a rank that the job does not have: ranks are counted from 0, so that a job of 4 has the ranks 0 to 3. \
`--stdin RANK` selects the rank that reads the input, `--pty=RANK` the rank that gets a terminal."

    NO_PROGRAM: Error "start/no-program"
"There is no such program on the node. A name without a slash is looked for in the directories of `PATH`, but not in the \
current directory; a name with a slash is a path, relative to the ranks' working directory. The exit code is \
127, as in a shell."

    NO_INTERPRETER: Error "start/no-interpreter"
"The program's file exists, but the kernel reported `no such file or directory`. The missing file is another one: the interpreter \
after `#!` in the first line of a script, or the dynamic linker of a binary.

Frequent reasons: the script was saved with Windows line ends, so that the interpreter's name ends in a carriage return; \
the interpreter is installed elsewhere on this node (`#!/usr/bin/env NAME` helps); the binary was built against another C \
library (musl and glibc) or for a 32-bit system. The exit code is 127."

    NOT_EXECUTABLE: Error "start/not-executable"
"The kernel does not allow the program to be executed: the file has no execute permission for you, a directory above it \
may not be entered, or its file system is mounted with `noexec`. The exit code is 126, as in a shell."

    IS_DIRECTORY: Error "start/is-directory"
"The name that was given as the program is a directory. The exit code is 126, as in a shell."

    WRONG_FORMAT: Error "start/wrong-format"
"The file may be executed, but the kernel does not recognize it as a program: it is a binary for another kind of processor, or an \
empty or damaged file. A text file without a `#!` line is run by `/bin/sh`, as a shell would. The exit code is 126."

    BUSY: Error "start/busy"
"The kernel does not execute a file that a process has open for writing. Usually a compiler or a copy has not finished yet. The exit code is 126."

    ARGUMENTS_TOO_LONG: Error "start/arguments-too-long"
"The program's arguments and environment together are longer than the kernel allows: a quarter of the stack's limit \
(`ulimit -s`), and 128 KiB for each single string. The exit code is 123."

    NO_DIRECTORY: Error "start/no-directory"
"The working directory of the ranks cannot be entered on their node: it does not exist there, is not a directory, or you \
may not enter it. Without `--wdir` it is the directory in which the launcher was started. The exit code is 121."

    OUTPUT_FILE: Error "start/output-file"
"The file for a rank's output cannot be opened on the rank's node. Its name comes from the pattern given; a relative name starts \
at the rank's working directory. Missing directories are created. The exit code is 121."

    NO_PIDS: Error "start/no-pids"
"The kernel refused to create another process. The limits that can cause this are the processes of one user (`ulimit -u`, which counts \
threads and all your sessions), the cgroup's `pids.max`, `kernel.pid_max` and `kernel.threads-max`. The exit code is 123."

    NO_DESCRIPTORS: Error "start/no-descriptors"
"The limit on open files is reached. The daemon of a node needs about four for each rank, and raises its own limit up to \
the hard limit (`ulimit -Hn`). If that is not enough, start fewer ranks or raise the hard limit. The exit code is 123."

    NO_MEMORY: Error "start/no-memory"
"The kernel had no memory for another process: the node, or the cgroup we run in, is full, or overcommit is off \
(`vm.overcommit_memory`). The exit code is 123."

    CANNOT_BIND: Error "start/cannot-bind"
"A rank could not be bound to the PUs that were chosen for it. They were allowed when the map was made; since then a PU went \
offline or the cpuset was changed. The exit code is 123."

    NO_TERMINAL: Error "start/no-terminal"
"A rank should get a terminal, for all of its streams (`--pty`) or for its stdout (`--line-buffered`), but none is available: \
`/dev/pts` is not mounted or all terminals are in use. The exit code is 123."

    CANNOT_TRACE: Error "start/cannot-trace"
"Holding a rank at its first instruction uses ptrace, which the system has refused. Usual reasons are a container \
without `SYS_PTRACE`, or a `kernel.yama.ptrace_scope` of 3. The exit code is 123."

    PLACE_NO_APPS: Error "place/no-apps"
"The request names no program at all."

    PLACE_NO_NODES: Error "place/no-nodes"
"There is no node to place ranks on: the hostfile, `--host` or the batch system gave an empty list."

    PLACE_NO_PROCS: Error "place/no-procs"
"An app was given with 0 procs. Every app of a job has at least one; leave the app out instead."

    PLACE_TOO_MANY_PROCS: Error "place/too-many-procs"
"More ranks were asked for than a job can have. The limit protects against typing errors."

    PLACE_NOT_ENOUGH_SLOTS: Error "place/not-enough-slots"
"You said how many slots there are (in a hostfile, with `--host a:2`, or through the batch system), and the job needs more. Give fewer ranks or more slots, or allow more ranks than slots with `--oversubscribe`.

Without a number of slots any number of ranks is accepted: more ranks than cores run unbound."

    PLACE_NOT_ENOUGH_PLACES: Error "place/not-enough-places"
"A policy such as `ppr:2:package` determines the number of ranks itself: two for each package. That is fewer than `-n` asks for. Leave `-n` out to fill every object, or choose another policy."

    PLACE_NOT_ENOUGH_CPUS: Error "place/not-enough-cpus"
"You asked for a binding, and the node has fewer cores than the ranks there need for it. Without `--bind-to` such ranks would run unbound. With it, choose what you want: `--bind-to none` to run unbound, or `:overload-allowed` to share cores."

    PLACE_NOT_ENOUGH_ROOM: Error "place/not-enough-room"
"`PE=n` gives each rank n cores (or hardware threads) of its own, and the nodes together have fewer than all ranks need. Give `-n` with the number in the message, or a smaller `PE=`. With `--oversubscribe` the ranks run unbound and share the cores."

    PLACE_OBJECT_TOO_SMALL: Error "place/object-too-small"
"`PE=n` gives each rank n cores (or hardware threads) of one object of the level that ranks are mapped by, and no such object has that many."

    PLACE_NO_CPUS: Error "place/no-cpus"
"The affinity mask, the cgroup's cpuset and `--cpu-set` have no PU in common, so nothing can run on the node."

    PLACE_UNKNOWN_HOST: Error "place/unknown-host"
"A host was named that the allocation does not have. Host names are compared as written: `n1` and `n1.example.org` are two names."

    PLACE_RANK_MISSING: Error "place/rank-missing"
"A rankfile must have a line for every rank of the job."

    PLACE_RANK_TWICE: Error "place/rank-twice"
"A rankfile may have only one line for each rank."

    PLACE_NO_SUCH_CPU: Error "place/no-such-cpu"
"A rankfile or a PE list names a core or hardware thread that the node does not have, or that we may not use. Numbers are logical: 0 is the first that we may use, whatever number the kernel gives it."

    PLACE_NO_USABLE_PUS: Error "place/no-usable-pus"
"`--bind-list`, srun's `--cpu-bind=map_cpu:` and its relatives, and `-bind-to user:` of Hydra name hardware threads (or NUMA nodes) by the kernel's numbers. None of the hardware threads of one entry may be used: the machine does not have them, or the cpuset excludes them."

    PLACE_NO_SUCH_NODE: Error "place/no-such-node"
"A host was given by number, as in `+n7`, and the allocation has fewer nodes. Numbers start at 0."

    PLACE_NOT_PER_APP: Error "place/not-per-app"
"The policies `rankfile` and `seq` number the ranks of a whole job, so they cannot be given to one app of several."

    PLACE_CONFLICT: Error "place/conflict"
"The two options exclude each other. Leave one of them out."

    PLACE_UNBOUND: Note "place/unbound"
"The job has more ranks than there are cores that we may use, so its ranks are not bound: the kernel may move them among the PUs. This happens only if no number of slots was given."

    PLACE_OVER_QUOTA: Note "place/over-quota"
"The cgroup of the job (a container, a batch job) grants less CPU time than the ranks can use (`cpu.max`). They run, but the kernel throttles them."
}
