//! The only crate that touches the kernel: event loop, processes, pipes, sockets, terminals, memory, topology.
//!
//! **Architecture invariant:** primitives only. Nothing here knows a protocol, a job or a rank, and nothing decides what
//! should happen; `runtime` maps the state machines' requests onto these calls. `unsafe` is allowed here and in `mpir`.

mod abandoned;
mod affinity;
mod arch;
mod cgroup;
mod clock;
mod conversation;
mod copies;
mod debuggee;
mod error;
mod event;
mod files;
mod foreign;
mod freezer;
mod gpus;
mod load;
mod lock;
mod mailbox;
mod memory;
mod namespace;
mod permission;
mod pipe;
mod private;
mod process;
mod publish;
mod reap;
mod resource;
mod shared;
mod shared_files;
mod signal;
mod socket;
mod spawn;
mod syslog;
mod terminal;
mod thread;
mod topology;
mod usage;
mod worker;

pub use abandoned::{Abandoned, abandoned_files, files_held_by};
pub use affinity::allowed_cpus;
pub use cgroup::{Cgroup, CgroupLimits, CgroupTree, CgroupUsage, Controller, NoCgroup, cpu_quota};
pub use clock::{Clock, local_date, local_seconds, sleep, wall_clock};
pub use conversation::Conversation;
pub use copies::{Copies, Room, SourceFile, room};
pub use debuggee::{Debuggee, Happened, entry_point, write_memory};
pub use error::{Error, describe_errno};
pub use event::{Event, Interest, Loop, SignalInfo, SignalOrigin, Token};
pub use files::{
    Found, Mapped, entries, find_program, is_executable, make_private_dirs, make_private_file,
    open_for_reading, read_own_file, read_owned, remove_files, remove_tree, search_path,
    sync_directory,
};
pub use foreign::{
    LATE_STEP, NotStopped, StoppedThread, ThreadInfo, arguments_of, in_kernel, inspect_thread,
    living_thread_of, map_deleted_file_of, map_file_of, mappings, owner_of, program_of,
    read_memory, sleep_and_detach_late, threads_of,
};
pub use freezer::Freezers;
pub use gpus::{Gpus, gpus};
pub use load::load_average;
pub use lock::{create_locked, is_locked, take_lock};
pub use memory::memory;
pub use namespace::{PidNamespace, node_identity, own_number, sees_own_processes, shares_network};
pub use permission::{
    hides_processes, is_contained, is_guarded, kernel_release, may_trace_all, ptrace_scope,
};
pub use pipe::{
    Direction, MAX_SLICES, ReadOutcome, Start, WriteOutcome, append_to, dev_null, duplicate,
    duplicate_inherited, is_readable, is_regular_or_null, is_same_file, let_go_of_standard_stream,
    open_fifo, open_output, pipe, read, reopen_nonblocking, replace_standard_stream,
    request_pipe_size, set_nonblocking, socket_pair, standard_streams, unreadable_input,
    wait_readable, write, write_if_room, write_vectored,
};
pub use private::{
    Appender, Links, is_private_dir, make_private_dir, random_number, remove_private_dir,
    write_private_file,
};
pub use process::{
    Forked, Loaded, Pid, ProcessInfo, all_processes, become_subreaper, bytes_written, children,
    close_from, close_on_exec_from, current_pid, descendants, descendants_without_those_below,
    effective_gid, effective_uid, end_of, environment_of, exit_at_once, fork, host_name, inspect,
    kill, kill_group, leaves_to_default, limit, listed_descendants, may_signal, new_session,
    raise_descriptor_limit, signal_at_parents_death, start_time, tracer,
};
pub use publish::{NotWritten, publish};
pub use reap::{ChildEvent, has_children, inject, leave_stopped, reap};
pub use resource::{Resource, give_back_memory, umask};
pub use shared::{MAX_SLOTS, SharedRegion, Slot, SlotReader, SlotView, SlotWriter};
pub use shared_files::is_on_shared_files;
pub use signal::{
    Suspended, block_signals, default_signal, is_ignored, pending_signal, suspend, unblock_signal,
    wait_for_signal,
};
pub use socket::{
    AcceptOutcome, Accepted, ConnectOutcome, InterfaceAddress, Peer, PeerIdentity, RemoteOutcome,
    SocketOwners, UnknownPeer, accept, accept_at, accept_remote, connect_at, connect_loopback,
    connect_outcome, connect_remote, interface_addresses, listen_anywhere, listen_at,
    listen_at_address, listen_loopback, listen_loopback_on, unused_port,
};
pub use spawn::{Orphan, Session, SpawnError, SpawnSpec, SpawnStep, Spawner, Trace, Tracers};
pub use syslog::{NotLogged, log_to_syslog};
pub use terminal::{
    Echo, HiddenInput, LineMode, RawMode, Standing, WindowSize, controlling_terminal, has_hung_up,
    is_terminal, open_output_pty, open_pty, set_window_size, standing, window_size,
};
pub use thread::{BlockingWriter, Full, MAX_QUEUED_CHUNKS};
pub use topology::read_topology;
pub use usage::{Load, own_memory, usage_below};
pub use worker::Worker;
