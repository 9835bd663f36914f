//! The kinds of messages about command lines and settings: stable ids and long explanations.

message::kinds! {
    /// All kinds of messages about the command line.
    pub(crate) const KINDS;

    UNKNOWN_OPTION: Error "cli/unknown-option"
"The word begins with a hyphen and stands before the program's name, but it is neither an option of `rally` nor a known option of \
Open MPI, MPICH or Slurm. Options of the program itself follow its name.

Some options exist only under one name of the launcher: `-J` belongs to srun. To use such an option, put \
`--personality srun` before it, or call the launcher by that name (`rally help personalities`)."

    MISSING_VALUE: Error "cli/missing-value"
"The option wants a value, and none follows: the command line ends, or another option comes next. A value that begins \
with a hyphen can be attached: `--wdir=-x`."

    UNEXPECTED_VALUE: Error "cli/unexpected-value"
"The option switches something on and takes no value."

    BAD_VALUE: Error "cli/bad-value"
"The value that follows the option is not valid. The message says which values are."

    TWO_MEANINGS: Error "cli/two-meanings"
"Open MPI, MPICH and Slurm use this spelling for different things. Under the names mpiexec, mpirun and srun the launcher \
follows the habits of that name. `rally run` does not guess: it refuses, and names the unambiguous spellings. \
`--personality NAME` makes the options after it follow a name (`rally help personalities`)."

    NOT_OFFERED: Error "cli/not-offered"
"Another launcher has this option, and we know what it asks for, but `rally` cannot do it. Options that only tune \
another launcher are ignored with a note. This one is refused, because without it the job would not be the one that was asked for."

    UNKNOWN_PERSONALITY: Error "cli/unknown-personality"
"`--personality` takes the names that the launcher can be called by: rally, mpiexec, mpirun, srun. The names that Open \
MPI and PRRTE use (ompi, prte, mpich, hydra, slurm) are understood too."

    NO_COMMAND: Error "cli/no-command"
"`rally` was called without arguments. To start a program: `rally run -n 4 PROGRAM`."

    UNKNOWN_COMMAND: Error "cli/unknown-command"
"The first word after `rally` is a command. To start a program it is `run`: `rally run -n 4 ./a`."

    NO_PROGRAM: Error "cli/no-program"
"The command line, or a part of it between two `:`, has options but names no program. An option that took the program's \
name for its value is a frequent reason: `-n ./a` lacks the number."

    TOGETHER: Error "cli/options-together"
"The two options exclude each other."

    SAID_TWICE: Error "cli/said-twice"
"The option applies to the whole job, not to one app of it, and two apps of the command line give it different values. Give options \
of the job once, before the first program."

    TOO_MANY_APPS: Error "cli/too-many-apps"
"A job has at most 65,536 apps."

    NO_SUCH_TOPIC: Error "cli/no-such-topic"
"`rally help` knows its topics, the commands, and the ids of all messages, such as `cli/unknown-option`."

    UNREADABLE: Error "cli/unreadable-file"
"A file that the command line or a setting names could not be opened or read on the node where the launcher runs. \
Relative names start at the current directory, not at that of `--wdir`."

    SAME_NAME: Error "cli/same-name"
"`--preload-binary` and `--preload-files` copy files into one directory of the job on each node. A relative name keeps its place there, \
without a leading `..`; an absolute one keeps its whole path, without the slash at its start; a program that was found in `PATH` has its last component. \
Two different files would get the same name in this way."

    UNWRITABLE: Error "cli/unwritable-file"
"`--report-pid FILE` writes the process number of the launcher to a file before the job starts, and that file cannot be \
written."

    NOT_RECORDED: Error "cli/not-recorded"
"`--record FILE` writes what the controller and the daemons of the job receive and send to a file, so that a run can be replayed. The \
file cannot be created. On other nodes the file is FILE.N, where N is the number of the node; a node that cannot create its \
file is reported, and the job runs."

    BAD_APP_FILE: Error "cli/bad-app-file"
"Each line of an app file holds what would stand between two `:` of a command line: options, a program, its arguments. \
`#` begins a comment, `\\` at the end of a line joins the next one, quotes work as in a shell, and nothing is \
substituted (`rally help mpmd`)."

    NO_DIRECTORY: Error "cli/no-directory"
"The directory in which the launcher was started does not exist any more or cannot be accessed, so relative names cannot be \
resolved."

    NO_PORT: Error "cli/no-port"
"With `--torch` the ranks find in MASTER_PORT a TCP port at which their first rank can listen. No port of this node outside the \
kernel's range of ephemeral ports is free, or no socket can be created. A MASTER_PORT that is set already is kept."

    BAD_CONFIG: Error "config/bad-file"
"Settings are read from the site's file, /etc/rally/config.toml, and from the user's, \
$XDG_CONFIG_HOME/rally/config.toml or ~/.config/rally/config.toml. They are TOML: `grace = 5`. A file with a mistake is \
refused as a whole, because the faulty setting may matter. `rally config` shows what is in force."

    SITE_CONFIG: Warning "config/site-unreadable"
"The site's settings, /etc/rally/config.toml, are for all users, but the file is not readable for you, or is not a regular file. The \
job runs without them. If the file can be read but contains a mistake, that is an error. So is a configuration file of your own that \
cannot be read. `rally config` shows what is in force."

    BAD_SETTING: Error "config/bad-value"
"A setting has an invalid value. The message says whether the value came from a file or from an environment variable: the variable of \
the setting `on-hangup` is RALLY_ON_HANGUP. `rally config` shows what is in force."

    UNKNOWN_SETTING: Error "config/unknown-setting"
"A configuration file has a key that is not a setting. `rally config` lists them all."

    BAD_NODES: Error "alloc/bad-text"
"A host file or the value of `--host` cannot be read. A line of a host file is `name`, `name:4` or \
`name slots=4 max_slots=8`; names may be lists such as `n[1-4]`; `#` begins a comment."

    TOO_FEW_NODES: Error "alloc/too-few-nodes"
"`--nodes` (`-N` of srun) asks for more nodes than the job has. Its nodes are those of `--host`, of the host file, or of the \
allocation of Slurm, PBS or LSF in which it is started; without any of these it is this node alone. `rally run` does not ask a \
resource manager for an allocation."

    NO_NODE_LEFT: Error "alloc/no-node-left"
"Options such as `--exclude`, `--nolocal` and `--relative` take nodes away from those of `--host`, of the host file or of the \
allocation. Here nothing is left."

    NOT_FOR_SLURM: Error "slurm/not-translated"
"`rally submit --to slurm` translates the options of a job into those of `sbatch`, or passes them on to the `rally run` that the job \
runs. This one can be neither: Slurm has nothing that means the same. It is refused, because without it the job would not be the one that \
was asked for. The message says what to use instead. The exit code is 120."

    NO_NETWORK: Error "cli/no-network"
"`--if-include` names the networks for connections between nodes: interfaces (`ib0`), addresses, or networks with the number of their \
bits (`10.1.0.0/16`, `fd00::/64`). It is for all nodes, and each of them must have at least one address on one of these networks. The \
node of `rally` has none; `there` lists what it has."

    BAD_POLICY: Error "place/bad-policy"
"The value of `--map-by`, `--rank-by` or `--bind-to` is not understood. `rally help placement` lists the policies and \
their qualifiers."

    BAD_RANKFILE: Error "place/bad-rankfile"
"A rankfile has one line for each rank: `rank 0=localhost slot=0-1` (`rally help placement`)."

    IGNORED: Note "cli/ignored-options"
"These options tune another launcher. Scripts are full of them, so they are accepted; they change nothing here."

    NOT_SET: Note "cli/variable-not-set"
"An option passes on a variable from the launcher's environment, but the variable is not set there. The ranks do not have it \
either."
}
