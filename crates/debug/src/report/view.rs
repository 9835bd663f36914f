//! A tree as people read it: their own functions, and of those of others where these were entered and where they end.
//!
//! A program and its MPI say in six frames where it is. Executors, interpreters and the beginnings of threads take forty
//! more for the same, of which no two builds have the same ones.

use crate::{
    known::{self, Owner},
    stack::{Frame, FrameId, FrameKind, Frames, Source},
    tree::Tree,
};

/// Stacks with frames of their own.
pub(super) struct View {
    pub(super) tree: Tree,
    pub(super) frames: Frames,
}

/// What stands for frames that are not shown.
pub(super) const GAP: &str = "…";
/// Frames of others that are left out at least: one says more than that it is left out.
const MIN_GAP: usize = 2;

/// What is known of one frame.
#[derive(Clone, Copy, Debug)]
struct Fact {
    /// As it is shown.
    shown: FrameId,
    owner: Owner,
    role: Role,
}

/// What a frame is in its stack, besides somebody's function.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Role {
    Function,
    /// A function of Python.
    Python,
    /// What the interpreter does for a function of Python.
    Interpreter,
    /// It stands between the kernel and the program.
    Prologue,
    /// The function that the C library calls, in whatever language the program is.
    Main,
    /// With which the runtime of Rust begins: then the function before it is not the user's.
    Runtime,
    /// A signal handler was called.
    Signal,
}

impl View {
    pub(super) fn of(tree: &Tree, frames: &Frames) -> Self {
        let mut own = Frames::new();
        let gap = own.intern(Frame {
            function: Some(GAP.into()),
            module: None,
            source: None,
            kind: FrameKind::Native,
        });
        let mut facts: Vec<Option<Fact>> = vec![None; frames.len()];
        let tree = tree.mapped(|stack| {
            let facts: Vec<Fact> = stack
                .iter()
                .map(|&id| *facts[id.index()].get_or_insert_with(|| fact(frames.get(id), &mut own)))
                .collect();
            short(&facts, gap)
        });
        Self { tree, frames: own }
    }
}

fn fact(frame: &Frame, own: &mut Frames) -> Fact {
    let name = frame.function.as_deref().unwrap_or_default();
    let role = match name {
        _ if frame.kind == FrameKind::Signal => Role::Signal,
        _ if frame.kind == FrameKind::Python => Role::Python,
        _ if known::is_interpreter(frame) && !known::is_prologue(frame) && name != "main" => {
            Role::Interpreter
        }
        "main" if frame.kind == FrameKind::Native => Role::Main,
        _ if name.starts_with("std::rt::lang_start") => Role::Runtime,
        _ if known::is_prologue(frame) => Role::Prologue,
        _ => Role::Function,
    };
    // What looks the same is the same: a module is not shown where there is a function, nor are directories.
    let shown = Frame {
        function: frame.function.clone(),
        module: frame.module.clone().filter(|_| frame.function.is_none()),
        source: frame.source.as_ref().map(|source| Source {
            file: source.name().into(),
            line: source.line,
        }),
        kind: frame.kind,
    };
    Fact {
        shown: own.intern(shown),
        owner: known::owner(frame),
        role,
    }
}

/// A stack without what the interpreter does between a function of Python and what comes inside of it.
fn without_interpreter(stack: &[Fact]) -> Vec<Fact> {
    let is_python = |fact: &Fact| fact.role == Role::Python;
    let python = stack.iter().position(is_python).unwrap_or(stack.len());
    let facts = stack.iter().enumerate();
    // Where a stack ends says most, whatever that is.
    let shown = facts.filter(|&(at, fact)| {
        at < python || fact.role != Role::Interpreter || at + 1 == stack.len()
    });
    shown.map(|(_, fact)| *fact).collect()
}

/// The frames of a stack that are shown, outermost first.
fn short(stack: &[Fact], gap: FrameId) -> Vec<FrameId> {
    let stack = without_interpreter(stack);
    let best = stack.iter().map(|fact| fact.owner).max();
    let best = best.filter(|&best| best > Owner::System);
    let is_own = |at: usize| {
        let fact = stack[at];
        let runtime = stack.get(at + 1).map(|next| next.role);
        let is_entry = fact.role == Role::Main && runtime == Some(Role::Runtime);
        fact.role == Role::Signal
            || Some(fact.owner) == best && fact.role != Role::Prologue && !is_entry
    };
    let places = 0..stack.len();
    let first = places.clone().find(|&at| is_own(at)).or_else(|| {
        let mut places = places;
        places.find(|&at| stack[at].role != Role::Prologue)
    });
    let mut short = Vec::new();
    let mut at = first.unwrap_or(0);
    while at < stack.len() {
        if is_own(at) {
            short.push(stack[at].shown);
            at += 1;
            continue;
        }
        let end = (at..stack.len())
            .find(|&at| is_own(at))
            .unwrap_or(stack.len());
        let mut run: Vec<FrameId> = stack[at..end].iter().map(|fact| fact.shown).collect();
        // What a wrapper and the function in it have in common is said once.
        run.dedup();
        // Where others were entered says what was asked of them, and where they stand how far that has come.
        let kept = 1 + usize::from(end == stack.len() && run.len() > 1);
        if run.len() >= kept + MIN_GAP {
            let last = run.len() - (kept - 1);
            run.splice(1..last, [gap]);
        }
        short.append(&mut run);
        at = end;
    }
    short
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The frames that are shown of a stack, by the names of the functions; `py:` stands before those of Python, with their
    /// files after `@`.
    fn shown(stack: &str) -> String {
        let mut frames = Frames::new();
        let stack: Vec<FrameId> = stack
            .split(" > ")
            .map(|word| {
                let (kind, word) = match word.strip_prefix("py:") {
                    Some(word) => (FrameKind::Python, word),
                    None => (FrameKind::Native, word),
                };
                let (word, module) = word.split_once('!').unwrap_or((word, "heat"));
                let (function, file) = word.split_once('@').unwrap_or((word, ""));
                frames.intern(Frame {
                    function: Some(function.into()),
                    module: (kind == FrameKind::Native).then(|| module.into()),
                    source: (!file.is_empty()).then(|| Source {
                        file: file.into(),
                        line: 7,
                    }),
                    kind,
                })
            })
            .collect();
        let facts: Vec<Fact> = {
            let mut own = Frames::new();
            let gap = own.intern(frames.get(stack[0]).clone());
            assert_eq!(gap.index(), 0);
            stack
                .iter()
                .map(|&id| Fact {
                    shown: id,
                    ..fact(frames.get(id), &mut own)
                })
                .collect()
        };
        let gap = frames.intern(Frame {
            function: Some(GAP.into()),
            module: None,
            source: None,
            kind: FrameKind::Native,
        });
        let names = short(&facts, gap).into_iter();
        let names = names.map(|id| frames.get(id).function.clone().unwrap_or_default());
        names.collect::<Vec<_>>().join(" > ")
    }

    #[test]
    fn of_the_frames_of_others_the_ends_are_shown() {
        for (stack, expected) in [
            (
                "_start > __libc_start_main!libc.so.6 > main@a.c > solve@a.c > MPI_Recv!libmpi.so",
                "main > solve > MPI_Recv",
            ),
            (
                "_start > main > std::rt::lang_start > std::rt::lang_start_internal > core::ops::function::FnOnce::call_once \
                 > heat::main > tokio::runtime::Runtime::block_on > tokio::runtime::park::block_on > <core::pin::Pin<P> as \
                 core::future::Future>::poll > heat::serve::{{closure}} > tokio::net::TcpStream::read > mio::poll::Poll::poll \
                 > std::sys::poll > epoll_wait!libc.so.6",
                "heat::main > tokio::runtime::Runtime::block_on > … > heat::serve::{{closure}} > tokio::net::TcpStream::read \
                 > … > epoll_wait",
            ),
            (
                "clone3!libc.so.6 > start_thread!libc.so.6 > std::sys::thread::thread_start > <alloc::boxed::Box<F,A> as \
                 core::ops::function::FnOnce<Args>>::call_once > std::sys::backtrace::__rust_begin_short_backtrace > \
                 heat::worker > std::sync::Mutex::lock > std::sys::futex_wait > syscall!libc.so.6",
                "heat::worker > std::sync::Mutex::lock > std::sys::futex_wait > syscall",
            ),
            (
                "clone3!libc.so.6 > start_thread!libc.so.6 > std::sys::thread::thread_start > tokio::runtime::blocking::run > \
                 tokio::runtime::worker::run > tokio::runtime::park::park > std::sys::futex_wait > syscall!libc.so.6",
                "tokio::runtime::blocking::run > tokio::runtime::worker::run > tokio::runtime::park::park > std::sys::futex_wait > syscall",
            ),
            (
                "py:_run_module@<frozen runpy> > py:_run_code@<frozen runpy> > py:main@/home/u/train.py > \
                 py:__call__@/v/site-packages/torch/module.py > py:_call_impl@/v/site-packages/torch/module.py > \
                 py:forward@/v/site-packages/torch/module.py > py:loss@/home/u/train.py > py:wait@/usr/lib/python3.11/threading.py",
                "main > __call__ > … > loss > wait",
            ),
            (
                "py:<module>@/home/u/train.py > py:nap@/home/u/train.py > time_sleep!libpython3.12.so.1.0 > \
                 pysleep!libpython3.12.so.1.0 > clock_nanosleep!libc.so.6",
                "<module> > nap > clock_nanosleep",
            ),
            (
                "py:<module>@/home/u/train.py > py:add@/home/u/train.py > list_sort!python3.12 > apply!numpy.so > \
                 list_next!python3.12 > take_gil!python3.12",
                "<module> > add > apply > take_gil",
            ),
            // A program that has an interpreter, and one whose calls of Python are not known.
            (
                "_start > main@a.c > run@a.c > PyRun_String!libpython3.12.so > py:f@/home/u/f.py > os_read!libpython3.12.so \
                 > read!libc.so.6",
                "main > run > PyRun_String > f > read",
            ),
            (
                "_start > main!python3.7 > Py_Main!libpython3.7m.so > run!libpython3.7m.so > time_sleep!libpython3.7m.so > \
                 select!libc.so.6",
                "main > … > select",
            ),
            (
                "clone3!libc.so.6 > start_thread!libc.so.6 > ??!libucs.so.0 > ucs_event_set_wait!libucs.so.0 > epoll_wait!libc.so.6",
                "?? > ucs_event_set_wait > epoll_wait",
            ),
        ] {
            assert_eq!(shown(stack), expected, "{stack}");
        }
    }
}
