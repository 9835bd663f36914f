//! Inserts Python frames into the native stack, in place of the interpreter's loop.

use super::{Interpreter, PythonFrame, PythonStack};
use crate::stack::{End, Frame, FrameId, FrameKind, Frames, Stack};

/// How much of the interpreter itself is shown.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Plumbing {
    /// What a Python programmer has called: Python functions, extension modules, and the interpreter function that it waits in.
    #[default]
    Hidden,
    /// All native frames.
    Shown,
}

/// The function that executes Python code.
const LOOP: &str = "_PyEval_EvalFrameDefault";
/// Name prefix of its parts, in builds of functions that jump into each other (3.14).
const LOOP_PART: &str = "_TAIL_CALL_";
/// The function where a thread waits for the interpreter's lock (GIL). Most builds have no symbol for it.
const TAKE_LOCK: &str = "take_gil";
/// A function that only `take_gil` calls in the interpreter.
const TAKE_LOCK_CALLS: &str = "pthread_cond_timedwait";
/// Name prefixes of interpreter functions that mean nothing to Python programmers.
const PLUMBING: [&str; 20] = [
    "_Py",
    "Py",
    "_TAIL_CALL_",
    "builtin_",
    "bounded_lru_cache",
    "call_",
    "cfunction_",
    "coro_",
    "do_call_core",
    "function_code_fastcall",
    "gen_",
    "import_",
    "method_",
    "object_",
    "partial_",
    "slot_",
    "thread_",
    "type_",
    "vectorcall_",
    "wrap",
];
/// Functions of the C library and of the program `python` that come before the first one of the interpreter.
const STARTS: [&str; 10] = [
    "_start",
    "main",
    "__libc_start_main",
    "__libc_start_main_impl",
    "__libc_start_call_main",
    "clone",
    "clone3",
    "__clone",
    "__clone3",
    "start_thread",
];

/// A call of the interpreter's loop: its Python frames, outermost first.
type Call = Vec<FrameId>;

/// Inserts the Python frames of a thread into its native stack. Native frames of the interpreter are left out, unless `plumbing`
/// is [`Plumbing::Shown`].
///
/// Calls of the loop are matched from the outermost, because the innermost call may have no Python frame yet or any more. If
/// outer frames of either stack are missing, they are matched from the innermost.
#[must_use]
pub fn merge(
    native: &Stack,
    python: &PythonStack,
    interpreter: &Interpreter,
    plumbing: Plumbing,
    frames: &mut Frames,
) -> Stack {
    if python.frames.is_empty() {
        return native.clone();
    }
    let parts: Vec<Part> = parts(native, interpreter, frames);
    let loops = parts.iter().filter(|part| **part == Part::Loop).count();
    let mut calls = calls(&python.frames, frames);
    let from_outermost = native.end == End::Start && python.is_whole;
    if loops > calls.len() && !from_outermost {
        let missing = loops - calls.len();
        calls.splice(0..0, std::iter::repeat_n(Call::new(), missing));
    }
    if calls.len() > loops {
        // Surplus calls are joined: with the outermost loop if outer native frames are missing, otherwise with the innermost.
        let more = calls.len() - loops.max(1);
        let at = if from_outermost { loops.max(1) - 1 } else { 0 };
        let joined = calls.splice(at..=at + more, []).flatten().collect();
        calls.insert(at, joined);
    }
    let mut calls = calls.into_iter();
    let last_loop = parts.iter().rposition(|part| *part == Part::Loop);
    // Without a visible loop, insert the Python frames after the interpreter's native frames: nothing more precise is known.
    let inside = last_loop
        .or_else(|| parts.iter().rposition(|part| *part == Part::Interpreter))
        .map_or(0, |at| at + 1);
    let starts_here = parts
        .iter()
        .zip(&*native.frames)
        .position(|(part, frame)| *part == Part::Foreign && !is_start(frames.get(*frame)));
    let first_loop = parts.iter().position(|part| *part == Part::Loop);
    let is_program = starts_here.is_none_or(|at| first_loop.is_some_and(|first| at > first));
    let mut merged = Vec::with_capacity(native.frames.len() + python.frames.len());
    for (at, (part, &frame)) in parts.iter().zip(&*native.frames).enumerate() {
        if at == inside && last_loop.is_none() {
            merged.extend(calls.by_ref().flatten());
        }
        let is_kept = match part {
            _ if plumbing == Plumbing::Shown => true,
            Part::Loop | Part::Inside => false,
            Part::Interpreter => {
                let leads_out = parts[at..].contains(&Part::Foreign);
                at >= inside && leads_out && is_telling(frames.get(frame))
            }
            Part::Foreign => {
                let is_outer = first_loop.is_none_or(|first| at < first) && at < inside;
                !(is_outer && is_program)
            }
            Part::Lock => true,
        };
        if *part == Part::Lock && frames.get(frame).function.is_none() {
            let named = Frame {
                function: Some(TAKE_LOCK.into()),
                ..Frame::clone(frames.get(frame))
            };
            merged.push(frames.intern(named));
        } else if is_kept {
            merged.push(frame);
        }
        if *part == Part::Loop {
            merged.extend(calls.next().into_iter().flatten());
        }
    }
    merged.extend(calls.flatten());
    Stack {
        frames: merged.into(),
        end: native.end.clone(),
    }
}

/// The role of a native frame for the interpreter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Part {
    /// A call of its loop.
    Loop,
    /// A further part of such a call, or a function inlined into it.
    Inside,
    /// A wait for the interpreter's lock (GIL).
    Lock,
    /// Another function in the interpreter's file.
    Interpreter,
    /// A function of another file.
    Foreign,
}

fn parts(native: &Stack, interpreter: &Interpreter, frames: &Frames) -> Vec<Part> {
    let mut parts = Vec::with_capacity(native.frames.len());
    for (at, frame) in native.frames.iter().enumerate() {
        let frame = frames.get(*frame);
        let name = frame.function.as_deref();
        let in_loop = matches!(parts.last(), Some(Part::Loop | Part::Inside));
        parts.push(if frame.module.as_ref() != Some(&interpreter.module) {
            Part::Foreign
        } else if name.is_some_and(|name| name.starts_with(LOOP)) {
            Part::Loop
        } else if name.is_some_and(|name| name.starts_with(LOOP_PART)) {
            if in_loop { Part::Inside } else { Part::Loop }
        } else if in_loop && frame.kind == FrameKind::Inlined {
            Part::Inside
        } else if waits_for_lock(name, native.frames.get(at + 1), frames) {
            Part::Lock
        } else {
            Part::Interpreter
        });
    }
    parts
}

fn waits_for_lock(name: Option<&str>, callee: Option<&FrameId>, frames: &Frames) -> bool {
    name.map_or_else(
        || {
            callee
                .and_then(|callee| frames.get(*callee).function.as_deref())
                .is_some_and(|callee| callee.contains(TAKE_LOCK_CALLS))
        },
        |name| name.starts_with(TAKE_LOCK),
    )
}

/// Groups Python frames into calls of the loop, outermost first.
fn calls(python: &[PythonFrame], frames: &mut Frames) -> Vec<Call> {
    let mut calls: Vec<Call> = Vec::new();
    for frame in python.iter().rev() {
        let id = frames.intern(frame.frame.clone());
        match calls.last_mut() {
            Some(call) if !frame.is_entry => call.push(id),
            _ => calls.push(vec![id]),
        }
    }
    calls
}

/// Returns true if the name of an interpreter function is worth showing.
fn is_telling(frame: &Frame) -> bool {
    frame
        .function
        .as_deref()
        .is_some_and(|name| !PLUMBING.iter().any(|start| name.starts_with(start)))
}

fn is_start(frame: &Frame) -> bool {
    frame
        .function
        .as_deref()
        .is_none_or(|name| STARTS.contains(&name))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::python::Version;

    const LOOP_AT: &str = "_PyEval_EvalFrameDefault@python3.11";

    /// Merges native frames with Python frames. Native frames are `function@module`, outermost first. Python frames are innermost
    /// first; a `-` precedes the outermost of each call.
    fn check(
        native: &[&str],
        end: End,
        python: &[&str],
        is_whole: bool,
        plumbing: Plumbing,
    ) -> String {
        let mut frames = Frames::new();
        let interpreter = Interpreter::for_test(Version(11), "python3.11");
        let native = Stack {
            frames: native
                .iter()
                .map(|text| {
                    let (name, module) = text.split_once('@').unwrap();
                    frames.intern(Frame {
                        function: (name != "?").then(|| name.into()),
                        module: Some(module.into()),
                        source: None,
                        kind: FrameKind::Native,
                    })
                })
                .collect(),
            end,
        };
        let python = PythonStack {
            frames: python
                .iter()
                .map(|name| PythonFrame {
                    frame: Frame {
                        function: Some(name.trim_start_matches('-').into()),
                        module: None,
                        source: None,
                        kind: FrameKind::Python,
                    },
                    is_entry: name.starts_with('-'),
                })
                .collect(),
            is_whole,
        };
        let merged = merge(&native, &python, &interpreter, plumbing, &mut frames);
        assert_eq!(merged.end, native.end);
        let names = merged.frames.iter().map(|frame| frames.get(*frame));
        let names = names.map(|frame| frame.function.as_deref().unwrap_or("?"));
        names.collect::<Vec<_>>().join(" ")
    }

    fn short(native: &[&str], python: &[&str]) -> String {
        check(native, End::Start, python, true, Plumbing::Hidden)
    }

    #[test]
    fn calls_of_the_loop_are_replaced_and_what_is_between_stays() {
        let native = [
            "_start@python3.11",
            "__libc_start_call_main@libc.so.6",
            "Py_BytesMain@python3.11",
            LOOP_AT,
            "cfunction_call@python3.11",
            "?@python3.11",
            "solve@fast.so",
            "PyObject_Call@python3.11",
            LOOP_AT,
            "?@python3.11",
            "time_sleep@python3.11",
            "clock_nanosleep@libc.so.6",
        ];
        let python = ["c", "-b", "a", "-module"];
        assert_eq!(
            short(&native, &python),
            "module a solve b c time_sleep clock_nanosleep"
        );
        assert_eq!(
            check(&native, End::Start, &python, true, Plumbing::Shown),
            "_start __libc_start_call_main Py_BytesMain _PyEval_EvalFrameDefault module a \
             cfunction_call ? solve PyObject_Call _PyEval_EvalFrameDefault b c ? time_sleep clock_nanosleep"
        );
    }

    #[test]
    fn a_program_that_has_python_inside_stays() {
        let native = [
            "_start@app",
            "__libc_start_call_main@libc.so.6",
            "main@app",
            "script@app",
            "PyRun_SimpleString@python3.11",
            LOOP_AT,
            "poll@libc.so.6",
        ];
        assert_eq!(
            short(&native, &["-module"]),
            "_start __libc_start_call_main main script module poll"
        );
    }

    #[test]
    fn the_innermost_call_may_have_no_frame() {
        let native = [
            "clone3@libc.so.6",
            "start_thread@libc.so.6",
            LOOP_AT,
            "f@x.so",
            LOOP_AT,
        ];
        assert_eq!(short(&native, &["a", "-b"]), "b a f");
    }

    #[test]
    fn what_is_missing_outside_does_not_move_what_is_inside() {
        let native = ["f@x.so", LOOP_AT, "g@x.so", LOOP_AT, "poll@libc.so.6"];
        let python = ["-d", "-c", "-b", "-a"];
        let lost = check(&native, End::Lost, &python, true, Plumbing::Hidden);
        assert_eq!(lost, "f a b c g d poll");
        let broken = check(&native, End::Start, &python[..1], false, Plumbing::Hidden);
        assert_eq!(broken, "f g d poll");
    }

    #[test]
    fn more_calls_than_loops_go_into_the_last() {
        let native = ["f@x.so", LOOP_AT, "g@x.so", LOOP_AT, "poll@libc.so.6"];
        assert_eq!(
            short(&native, &["-d", "-c", "-b", "-a"]),
            "f a g b c d poll"
        );
    }

    #[test]
    fn where_no_loop_is_seen_they_come_after_the_interpreter() {
        let native = ["?@python3.11", "?@python3.11", "poll@libc.so.6"];
        assert_eq!(short(&native, &["-b", "-a"]), "a b poll");
        assert_eq!(short(&["poll@libc.so.6"], &["-a"]), "a poll");
    }

    #[test]
    fn the_wait_for_the_lock_has_its_name() {
        let wait = "pthread_cond_timedwait@libc.so.6";
        let unnamed = ["clone3@libc.so.6", LOOP_AT, "?@python3.11", wait];
        assert_eq!(
            short(&unnamed, &["-a"]),
            "a take_gil pthread_cond_timedwait"
        );
        let named = ["clone3@libc.so.6", LOOP_AT, "take_gil@python3.11", wait];
        assert_eq!(short(&named, &["-a"]), "a take_gil pthread_cond_timedwait");
        let other = ["clone3@libc.so.6", LOOP_AT, "?@x.so", wait];
        assert_eq!(short(&other, &["-a"]), "a ? pthread_cond_timedwait");
    }

    #[test]
    fn what_the_interpreter_does_by_itself_is_not_shown() {
        let native = ["clone3@libc.so.6", LOOP_AT, "binary_op1@python3.11"];
        assert_eq!(short(&native, &["-a"]), "a");
        let native = [
            "clone3@libc.so.6",
            LOOP_AT,
            "select_poll@python3.11",
            "poll@libc.so.6",
        ];
        assert_eq!(short(&native, &["-a"]), "a select_poll poll");
    }

    #[test]
    fn parts_of_a_loop_are_one_call() {
        let native = [
            LOOP_AT,
            "_TAIL_CALL_CALL@python3.11",
            "f@x.so",
            "_TAIL_CALL_X@python3.11",
        ];
        assert_eq!(short(&native, &["-b", "-a"]), "a f b");
    }

    #[test]
    fn a_thread_without_python_is_left_alone() {
        assert_eq!(
            short(&["clone3@libc.so.6", "progress@x.so"], &[]),
            "clone3 progress"
        );
    }
}
