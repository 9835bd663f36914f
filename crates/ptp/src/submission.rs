//! What a client submits (section 8).

use crate::packet::number;

/// A job, as a client describes it. Nothing of it is checked.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Submission {
    /// Name that the client has given the submission. Errors and the new job repeat it.
    pub sub_id: Option<Vec<u8>>,
    /// The program: its name, and its directory if the client knows it.
    pub program: Program,
    pub working_dir: Option<Vec<u8>>,
    /// Variables of the form `NAME=VALUE`, in their order.
    pub env: Vec<Vec<u8>>,
    pub procs: Procs,
    pub queue: Option<Vec<u8>>,
    /// The debugger that is started in place of the program.
    pub debugger: Option<Debugger>,
    /// Attributes that the client has beside these, in their order.
    pub others: Vec<(Vec<u8>, Vec<u8>)>,
}

/// A program with its arguments.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Program {
    pub name: Option<Vec<u8>>,
    pub directory: Option<Vec<u8>>,
    pub args: Vec<Vec<u8>>,
}

/// How many processes the program has.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Procs {
    /// The client does not say.
    #[default]
    Unsaid,
    Number(u32),
    /// What the client says is no number above 0.
    Invalid(Vec<u8>),
}

/// A debugger, which starts the program itself, or attaches to it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Debugger {
    /// The debugger: [`Program::args`] are passed on in their order.
    pub program: Program,
    pub stops_in_main: bool,
    /// The program is started as without a debugger, and the debugger attaches to it.
    pub attaches: bool,
}

impl Submission {
    /// Reads attributes of the form `key=value`. Of an attribute that may be given once, the last one counts.
    pub(crate) fn decode(args: &[Vec<u8>]) -> Self {
        let mut submission = Self::default();
        let mut debugger = Debugger::default();
        let mut is_debugged = false;
        for arg in args {
            let split = arg.iter().position(|byte| *byte == b'=');
            // Clients in Java send an empty value without its `=`.
            let (key, value) = split.map_or((&arg[..], &[][..]), |at| (&arg[..at], &arg[at + 1..]));
            let text = (!value.is_empty()).then(|| value.to_vec());
            match key {
                b"jobSubId" => submission.sub_id = text,
                b"execName" => submission.program.name = text,
                b"execPath" => submission.program.directory = text,
                b"progArgs" => submission.program.args.push(value.to_vec()),
                b"workingDir" => submission.working_dir = text,
                b"env" => submission.env.push(value.to_vec()),
                b"jobNumProcs" => submission.procs = procs(value),
                b"queueId" => submission.queue = text,
                b"debug" => is_debugged = is_true(value),
                b"debugArgs" => debugger.program.args.push(value.to_vec()),
                b"debugExecName" => debugger.program.name = text,
                b"debugExecPath" => debugger.program.directory = text,
                b"debugAttach" => debugger.attaches = is_true(value),
                b"debugStopInMain" => debugger.stops_in_main = is_true(value),
                _ => submission.others.push((key.to_vec(), value.to_vec())),
            }
        }
        submission.debugger = is_debugged.then_some(debugger);
        submission
    }
}

fn is_true(value: &[u8]) -> bool {
    value.eq_ignore_ascii_case(b"true")
}

fn procs(value: &[u8]) -> Procs {
    match number(value) {
        Some(number @ 1..) => Procs::Number(number),
        _ => Procs::Invalid(value.to_vec()),
    }
}
