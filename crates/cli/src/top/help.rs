//! The list of keys, and those in the last line of the screen.

use super::layout::Pane;

/// What `?` shows.
pub(super) const TEXT: &str = "\
Everywhere
  Tab, 1, 2, 3     go to another pane: nodes, jobs, output
  arrows, j, k     move; in the output, left and right shift it
  PgUp, PgDn       move by a page
  Home, End, g, G  go to the first or the last line
  z                give the pane the whole screen, and back
  ?                show these keys
  Ctrl-L           draw the screen again
  Ctrl-Z           stop, until the shell's `fg`
  q, Ctrl-C        quit; the machine goes on

Jobs
  Enter, i         show everything about the job
  e                explain why it waits, and when it starts
  h                hold it: keep it from starting
  r                release it: let it start
  c                cancel it
  a                list the last jobs that are over too, or not
  o                keep its output on the screen, or no more

Output
  s                show standard error, or standard output
  [ ]              show the task before or after this one of an array
  End              follow the output again

Nodes
  Enter, i         show everything about the node
  d                drain it: start no more jobs there
  r                resume it: start jobs there again

Orders are confirmed with y.
";

/// A key, and what it does in a word or two.
type Hint = (&'static str, &'static str);

/// Returns the keys that matter in a pane, the most important ones first.
pub(super) const fn hints(pane: Pane) -> &'static [Hint] {
    match pane {
        Pane::Nodes => &[
            ("?", "help"),
            ("q", "quit"),
            ("Tab", "pane"),
            ("d", "drain"),
            ("r", "resume"),
            ("i", "details"),
            ("z", "zoom"),
        ],
        Pane::Jobs => &[
            ("?", "help"),
            ("q", "quit"),
            ("Tab", "pane"),
            ("e", "why"),
            ("c", "cancel"),
            ("h", "hold"),
            ("r", "release"),
            ("i", "details"),
            ("o", "keep output"),
            ("a", "ended"),
        ],
        Pane::Output => &[
            ("?", "help"),
            ("q", "quit"),
            ("Tab", "pane"),
            ("z", "zoom"),
            ("End", "follow"),
            ("s", "stderr"),
            ("[ ]", "task"),
            ("c", "cancel"),
            ("o", "keep"),
        ],
    }
}
