//! The status codes of PMIx: results of requests, and event codes.

use std::fmt;

/// Result of a request, or code of an event. Zero is success; errors and events are negative. Programs may define their own
/// events, so that every number is possible (section 5.5 of `docs/formats/pmix.md`).
#[derive(Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Status(pub i32);

macro_rules! statuses {
    ($($(#[$doc:meta])* $name:ident = $number:expr,)*) => {
        impl Status {
            $($(#[$doc])* pub const $name: Self = Self($number);)*

            /// Returns the name in the standard without its prefix, if the code is known.
            #[must_use]
            pub const fn name(self) -> Option<&'static str> {
                match self {
                    $(Self::$name => Some(stringify!($name)),)*
                    _ => None,
                }
            }
        }
    };
}

statuses! {
    SUCCESS = 0,
    ERROR = -1,
    /// Event: the debugger releases the processes.
    DEBUGGER_RELEASE = -3,
    PROC_ABORTED = -7,
    PROC_REQUESTED_ABORT = -8,
    SERVER_FAILED_REQUEST = -10,
    EXISTS = -11,
    INVALID_CRED = -12,
    READY_FOR_HANDSHAKE = -14,
    WOULD_BLOCK = -15,
    UNPACK_FAILURE = -20,
    NO_PERMISSIONS = -23,
    TIMEOUT = -24,
    UNREACH = -25,
    BAD_PARAM = -27,
    RESOURCE_BUSY = -28,
    OUT_OF_RESOURCE = -29,
    DATA_VALUE_NOT_FOUND = -30,
    INIT = -31,
    NOMEM = -32,
    /// Participants of a collective have passed contradictory arguments.
    INVALID_ARG = -33,
    NOT_FOUND = -46,
    NOT_SUPPORTED = -47,
    COMM_FAILURE = -49,
    READ_PAST_END = -50,
    PARTIAL_SUCCESS = -52,
    DUPLICATE_KEY = -53,
    /// Event: a process set was defined.
    PROCESS_SET_DEFINE = -55,
    /// Event: a process waits for the debugger.
    READY_FOR_DEBUG = -58,
    EMPTY = -60,
    LOST_CONNECTION = -61,
    EXISTS_OUTSIDE_SCOPE = -62,
    NOT_AVAILABLE = -64,
    QUERY_PARTIAL_SUCCESS = -104,
    MONITOR_HEARTBEAT_ALERT = -109,
    MONITOR_FILE_ALERT = -110,
    PROC_TERMINATED = -111,
    EVENT_JOB_END = -145,
    MODEL_DECLARED = -147,
    LAUNCHER_READY = -155,
    OPERATION_IN_PROGRESS = -156,
    OPERATION_SUCCEEDED = -157,
    INVALID_OPERATION = -158,
    GROUP_INVITED = -159,
    GROUP_LEFT = -160,
    GROUP_INVITE_ACCEPTED = -161,
    GROUP_INVITE_DECLINED = -162,
    GROUP_INVITE_FAILED = -163,
    GROUP_MEMBERSHIP_UPDATE = -164,
    GROUP_CONSTRUCT_ABORT = -165,
    GROUP_CONSTRUCT_COMPLETE = -166,
    GROUP_LEADER_SELECTED = -167,
    GROUP_LEADER_FAILED = -168,
    GROUP_CONTEXT_ID_ASSIGNED = -169,
    GROUP_MEMBER_FAILED = -170,
    REPEAT_ATTR_REGISTRATION = -171,
    IOF_FAILURE = -172,
    IOF_COMPLETE = -173,
    LAUNCH_COMPLETE = -174,
    FABRIC_UPDATED = -175,
    JOB_APP_NOT_EXECUTABLE = -177,
    JOB_NO_EXE_SPECIFIED = -178,
    JOB_FAILED_TO_MAP = -179,
    JOB_CANCELED = -180,
    JOB_FAILED_TO_LAUNCH = -181,
    JOB_ABORTED = -182,
    JOB_KILLED_BY_CMD = -183,
    JOB_ABORTED_BY_SIG = -184,
    JOB_TERM_WO_SYNC = -185,
    JOB_SENSOR_BOUND_EXCEEDED = -186,
    JOB_NON_ZERO_TERM = -187,
    JOB_ALLOC_FAILED = -188,
    JOB_ABORTED_BY_SYS_EVENT = -189,
    JOB_EXE_NOT_FOUND = -190,
    JOB_WDIR_NOT_FOUND = -233,
    JOB_INSUFFICIENT_RESOURCES = -234,
    JOB_SYS_OP_FAILED = -235,
    EVENT_JOB_START = -191,
    EVENT_SESSION_START = -192,
    EVENT_SESSION_END = -193,
    PROC_TERM_WO_SYNC = -200,
    EVENT_PROC_TERMINATED = -201,
    EVENT_NO_ACTION_TAKEN = -331,
    EVENT_PARTIAL_ACTION_TAKEN = -332,
    EVENT_ACTION_DEFERRED = -333,
    EVENT_ACTION_COMPLETE = -334,
    PROC_KILLED_BY_CMD = -400,
    PROC_FAILED_TO_START = -401,
    PROC_ABORTED_BY_SIG = -402,
    EXIT_NONZERO_TERM = -404,
    TEMP_UNAVAILABLE = -1367,
    /// In registrations: a handler for every event without another handler.
    DEFAULT_HANDLER = i32::MIN,
}

impl fmt::Display for Status {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.name() {
            Some(name) => write!(f, "{name} ({})", self.0),
            None => write!(f, "{}", self.0),
        }
    }
}

impl fmt::Debug for Status {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.name() {
            Some(name) => f.write_str(name),
            None => write!(f, "Status({})", self.0),
        }
    }
}
