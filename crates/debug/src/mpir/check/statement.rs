//! The statements about a starter that the check judges, with their places in "The MPIR Process Acquisition Interface", version 1.0.
//! Version 1.1 has the same chapters.

use std::fmt;

use serde::{Serialize, Serializer};

/// One start of the launcher, in which some statements are judged.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Act {
    /// A debugger starts the launcher, reads the table, keeps one rank, and lets the rest go.
    Launch,
    /// A debugger starts the launcher, and detaches when the ranks are held.
    Detach,
    /// A debugger attaches to a launcher that was started without it.
    Attach,
    /// A debugger starts the launcher, and a rank is killed.
    Failure,
    /// A debugger starts the launcher, and asks for its daemons.
    Daemons,
}

impl Act {
    /// All acts, in their order.
    pub const ALL: [Self; 5] = [
        Self::Launch,
        Self::Detach,
        Self::Attach,
        Self::Failure,
        Self::Daemons,
    ];

    /// Returns what happens, for the user.
    #[must_use]
    pub const fn title(self) -> &'static str {
        match self {
            Self::Launch => "a debugger starts the launcher",
            Self::Detach => "a debugger detaches while the ranks are held",
            Self::Attach => "a debugger attaches to a running launcher",
            Self::Failure => "a rank is killed",
            Self::Daemons => "a debugger asks for its daemons",
        }
    }
}

/// Declares the statements: the act, the id, the sections, and the sentence.
macro_rules! statements {
    ($($statement:ident $act:ident $id:literal $sections:literal $text:literal)*) => {
        /// A statement about a starter.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
        pub enum Statement {
            $(#[doc = $text] $statement,)*
        }

        impl Statement {
            /// All statements, in the order of the acts.
            pub const ALL: [Self; [$($id),*].len()] = [$(Self::$statement),*];

            /// Returns the stable id.
            #[must_use]
            pub const fn id(self) -> &'static str {
                match self {
                    $(Self::$statement => $id,)*
                }
            }

            /// Returns the sections of the document.
            #[must_use]
            pub const fn sections(self) -> &'static str {
                match self {
                    $(Self::$statement => $sections,)*
                }
            }

            /// Returns the sentence.
            #[must_use]
            pub const fn text(self) -> &'static str {
                match self {
                    $(Self::$statement => $text,)*
                }
            }

            /// Returns the act in which it is judged.
            #[must_use]
            pub const fn act(self) -> Act {
                match self {
                    $(Self::$statement => Act::$act,)*
                }
            }
        }
    };
}

statements! {
    Symbols Launch "symbols" "4.1" "it has the five symbols that a debugger needs"
    Sizes Launch "sizes" "9.3-9.6" "they have the sizes of their types"
    RowType Launch "row-type" "4.1, 9.2" "its debug information describes the type of the rows"
    Starter Launch "starter" "9.10" "MPIR_i_am_starter says that it is no rank itself"
    Unset Launch "unset" "9.3" "MPIR_being_debugged is 0 until a debugger sets it"
    DaemonSymbols Launch "daemons" "9.15, 9.16" "it has both variables for daemons of a debugger, or neither"
    Announced Launch "announced" "9.9" "it calls MPIR_Breakpoint when the ranks are started"
    Spawned Launch "spawned" "9.6" "MPIR_debug_state is MPIR_DEBUG_SPAWNED (1) then"
    Table Launch "table" "9.2-9.5" "the table has a row with host, program and pid for each rank"
    Strings Launch "strings" "9.2" "equal names in the table are one string in memory"
    Processes Launch "processes" "9.2" "each row of this node is a living process of that program"
    Order Launch "order" "9.4" "row n of the table is rank n"
    Held Launch "held" "6.2" "no rank passes MPI_Init before the debugger continues the starter"
    PreMain Launch "pre-main" "9.11" "the ranks are stopped before main, as MPIR_acquired_pre_main says"
    Partial Launch "partial" "9.13" "a rank with a debugger of its own stays stopped when the others are released"
    Released Launch "released" "6.2" "the ranks go on when the debugger continues the starter"
    Again Launch "again" "9.6" "it calls MPIR_Breakpoint again when the table has got more processes"
    Detached Detach "detached" "4.2, 9.3" "starter and ranks go on when the debugger detaches"
    Attached Attach "attached" "6.1" "the table is filled without a debugger"
    NoBarrier Attach "no-barrier" "6.1" "ranks and starter go on when a debugger attaches to the starter and detaches"
    Fifo Attach "fifo" "7.2, 9.17" "a byte in MPIR_attach_fifo makes it start the daemons of a debugger, or call MPIR_Breakpoint"
    FifoAgain Attach "fifo-again" "7.2, 9.17" "the FIFO can be used again"
    Aborted Failure "aborted" "9.6, 9.7" "it announces that the job is ended, with the reason in MPIR_debug_abort_string"
    Colocated Daemons "colocated" "7.1, 9.15" "it starts the program that MPIR_executable_path names, once on each node"
    Arguments Daemons "arguments" "7.1, 9.16" "this program gets the arguments in MPIR_server_arguments"
}

impl fmt::Display for Statement {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.text())
    }
}

impl Serialize for Statement {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(self.id())
    }
}

/// Whether a statement is true.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Verdict {
    /// It is true.
    Right,
    /// It is false.
    Wrong,
    /// The launcher does not have the optional part that it is about.
    NotApplicable,
    /// It could not be judged.
    NotChecked,
}

/// The judgement of a statement.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Finding {
    /// The statement.
    #[serde(rename = "id")]
    pub statement: Statement,
    /// The judgement.
    pub verdict: Verdict,
    /// What was seen.
    pub seen: String,
}

impl Finding {
    pub(super) fn new(statement: Statement, verdict: Verdict, seen: impl Into<String>) -> Self {
        Self {
            statement,
            verdict,
            seen: seen.into(),
        }
    }
}
