//! Names of attributes, as they travel. The names in C are in the comments of the standard.

use std::ffi::CStr;

macro_rules! keys {
    ($($name:ident = $text:literal,)*) => {
        $(pub const $name: &CStr = $text;)*
    };
}

keys! {
    // Facts of a job.
    JOB_ID = c"pmix.jobid",
    JOB_SIZE = c"pmix.job.size",
    JOB_NUM_APPS = c"pmix.job.napps",
    MAX_PROCS = c"pmix.max.size",
    NUM_NODES = c"pmix.num.nodes",
    NODE_LIST = c"pmix.nlist",
    NSPACE_DIR = c"pmix.nsdir",
    RANK_OFFSET = c"pmix.offset",
    MAP_BY = c"pmix.mapby",
    RANK_BY = c"pmix.rankby",
    BIND_TO = c"pmix.bindto",
    HWLOC_XML = c"pmix.hwlocxml2",
    // Facts of a session.
    SESSION_ARRAY = c"pmix.ssn.arr",
    SESSION_ID = c"pmix.session.id",
    UNIVERSE_SIZE = c"pmix.univ.size",
    TMPDIR = c"pmix.tmpdir",
    HOSTNAME_KEEP_FQDN = c"pmix.fqdn",
    // Facts of a node.
    NODE_ARRAY = c"pmix.node.arr",
    HOSTNAME = c"pmix.hname",
    NODE_ID = c"pmix.nodeid",
    LOCAL_PEERS = c"pmix.lpeers",
    LOCAL_PROCS = c"pmix.lprocs",
    LOCAL_SIZE = c"pmix.local.size",
    NODE_SIZE = c"pmix.node.size",
    OVERSUBSCRIBED = c"pmix.ndosub",
    LOCAL_LEADER = c"pmix.lldr",
    LOCAL_CPUSETS = c"pmix.lcpus",
    // Facts of an app.
    APP_ARRAY = c"pmix.app.arr",
    APP_NUMBER = c"pmix.appnum",
    APP_SIZE = c"pmix.app.size",
    APP_LEADER = c"pmix.aldr",
    APP_ARGV = c"pmix.app.argv",
    WORKING_DIR = c"pmix.wdir",
    // What is spawned.
    HOST = c"pmix.host",
    // Ours: where to look for a program before anywhere else; and of a job that was spawned by PMI, what its key-value
    // space begins with.
    SPAWN_PATH = c"rally.path",
    PMI_PREPUT = c"rally.preput",
    // Facts of a process.
    PROC_BLOB = c"pmix.pblob",
    PROC_DATA = c"pmix.pdata",
    RANK = c"pmix.rank",
    PROC_ID = c"pmix.procid",
    GLOBAL_RANK = c"pmix.grank",
    APP_RANK = c"pmix.apprank",
    LOCAL_RANK = c"pmix.lrank",
    NODE_RANK = c"pmix.nrank",
    LOCALITY = c"pmix.locstr",
    CPUSET = c"pmix.cpuset",
    PROC_DIR = c"pmix.pdir",
    REINCARNATION = c"pmix.reinc",
    PROC_PID = c"pmix.ppid",
    PARENT_ID = c"pmix.parent",
    // Directives.
    COLLECT_DATA = c"pmix.collect",
    TIMEOUT = c"pmix.timeout",
    IMMEDIATE = c"pmix.immediate",
    WAIT = c"pmix.wait",
    RANGE = c"pmix.range",
    PERSISTENCE = c"pmix.persist",
    DATA_SCOPE = c"pmix.scope",
    QUALIFIED_VALUE = c"pmix.qual.val",
    USER_ID = c"pmix.euid",
    GROUP_USER_ID = c"pmix.egid",
    // Events.
    EVENT_NON_DEFAULT = c"pmix.evnondef",
    EVENT_CUSTOM_RANGE = c"pmix.evrange",
    EVENT_AFFECTED_PROC = c"pmix.evproc",
    EVENT_AFFECTED_PROCS = c"pmix.evaffected",
    EVENT_DO_NOT_CACHE = c"pmix.evnocache",
    EVENT_TIMESTAMP = c"pmix.evtstamp",
    EVENT_TEXT = c"pmix.evtext",
    SERVER_INTERNAL_NOTIFY = c"pmix.srvr.internal.notify",
    JOB_TERM_STATUS = c"pmix.job.term.status",
    STDIN_TARGET = c"pmix.stdin",
    FWD_STDIN = c"pmix.fwd.stdin",
    FWD_STDOUT = c"pmix.fwd.stdout",
    FWD_STDERR = c"pmix.fwd.stderr",
    PROC_TERM_STATUS = c"pmix.proc.term.status",
    EXIT_CODE = c"pmix.exit.code",
    // Groups.
    GROUP_ID = c"pmix.grp.id",
    GROUP_ASSIGN_CONTEXT_ID = c"pmix.grp.actxid",
    GROUP_CONTEXT_ID = c"pmix.grp.ctxid",
    GROUP_LOCAL_CID = c"pmix.grp.lclid",
    GROUP_MEMBERSHIP = c"pmix.grp.mbrs",
    GROUP_OPTIONAL = c"pmix.grp.opt",
    GROUP_NOTIFY_TERMINATION = c"pmix.grp.notterm",
    GROUP_INFO = c"pmix.grp.info",
    GROUP_INFO_ARRAY = c"pmix.grp.infoarray",
    GROUP_BOOTSTRAP = c"pmix.grp.btstrp",
    GROUP_ADD_MEMBERS = c"pmix.grp.add",
    GROUP_FINAL_ORDER = c"pmix.grp.finord",
    // Queries.
    QUERY_NAMESPACES = c"pmix.qry.ns",
    QUERY_NAMESPACE_INFO = c"pmix.qry.nsinfo",
    QUERY_PROC_TABLE = c"pmix.qry.ptable",
    QUERY_LOCAL_PROC_TABLE = c"pmix.qry.lptable",
    QUERY_SPAWN_SUPPORT = c"pmix.qry.spawn",
    QUERY_DEBUG_SUPPORT = c"pmix.qry.debug",
    QUERY_JOB_STATUS = c"pmix.qry.jst",
    QUERY_NUM_PSETS = c"pmix.qry.psetnum",
    QUERY_PSET_NAMES = c"pmix.qry.psets",
    QUERY_GROUP_NAMES = c"pmix.qry.pgrp",
    QUERY_GROUP_MEMBERSHIP = c"pmix.qry.pgrpmems",
    NSPACE = c"pmix.nspace",
    COMMAND_LINE = c"pmix.cmd.line",
    JOB_ARRAY = c"pmix.job.arr",
    // Log.
    LOG_MESSAGE = c"pmix.log.msg",
    LOG_STDERR = c"pmix.log.stderr",
    LOG_STDOUT = c"pmix.log.stdout",
    // Job control.
    JOB_CTRL_KILL = c"pmix.jctrl.kill",
    JOB_CTRL_SIGNAL = c"pmix.jctrl.sig",
    JOB_CTRL_TERMINATE = c"pmix.jctrl.term",
    JOB_CTRL_PAUSE = c"pmix.jctrl.pause",
    JOB_CTRL_RESUME = c"pmix.jctrl.resume",
    REGISTER_CLEANUP = c"pmix.reg.cleanup",
    REGISTER_CLEANUP_DIR = c"pmix.reg.cleanupdir",
    // Monitoring.
    MONITOR_HEARTBEAT = c"pmix.monitor.mbeat",
    MONITOR_HEARTBEAT_TIME = c"pmix.monitor.btime",
    MONITOR_HEARTBEAT_DROPS = c"pmix.monitor.bdrop",
    MONITOR_CANCEL = c"pmix.monitor.cancel",
    MONITOR_ID = c"pmix.monitor.id",
    // Credentials.
    CRED_TYPE = c"pmix.sec.ctype",
    // Output.
    IOF_COMPLETE = c"pmix.iof.cmp",
    // Holding.
    STOP_IN_INIT = c"pmix.dbg.init",
    STOP_IN_APP = c"pmix.dbg.notify",
    STOP_ON_EXEC = c"pmix.dbg.exec",
    BREAKPOINT = c"pmix.brkpnt",
}
