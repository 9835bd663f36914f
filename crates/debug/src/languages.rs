//! Languages whose programs block in more places than they have threads: which waits no stack shows, and how to see them.

use crate::stack::{Frame, Frames};

/// A language or library, recognized by its frames.
struct Language {
    is: fn(&Frame) -> bool,
    unseen: &'static str,
}

const LANGUAGES: [Language; 3] = [
    Language {
        is: is_go,
        unseen: "part of it is Go: a goroutine that waits has no thread and is not shown; SIGQUIT makes the program print all goroutines \
                 and ends it",
    },
    Language {
        is: is_java,
        unseen: "part of it is Java: its methods are compiled at run time and have no names here; `jstack PID` shows them",
    },
    Language {
        is: is_tokio,
        unseen: "part of it is tokio: a task that waits has no stack and is not shown; `tokio-console` shows tasks if the program is \
                 built for it",
    },
];

/// Returns one sentence for each language among these frames: what cannot be seen of the program.
#[must_use]
pub fn unseen(frames: &Frames) -> Vec<&'static str> {
    let found = LANGUAGES
        .iter()
        .filter(|language| frames.iter().any(language.is));
    found.map(|language| language.unseen).collect()
}

fn begins_with(frame: &Frame, beginnings: &[&str]) -> bool {
    let function = frame.function.as_deref();
    function.is_some_and(|name| beginnings.iter().any(|it| name.starts_with(it)))
}

fn is_go(frame: &Frame) -> bool {
    // No C function has a dot in its name, except copies made by compilers, and those have other suffixes, such as `.part.0`.
    begins_with(
        frame,
        &[
            "runtime.goexit",
            "runtime.mstart",
            "runtime.mcall",
            "runtime.gopark",
            "runtime.schedule",
            "runtime.futex",
        ],
    )
}

fn is_java(frame: &Frame) -> bool {
    let module = frame.module.as_deref();
    module.is_some_and(|module| module.starts_with("libjvm.so"))
}

fn is_tokio(frame: &Frame) -> bool {
    begins_with(frame, &["tokio::runtime::", "<tokio::runtime::"])
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::stack::FrameKind;

    #[test]
    fn by_their_frames() {
        let found = |function: &str, module: &str| {
            let mut frames = Frames::new();
            frames.intern(Frame {
                function: Some(function.into()),
                module: Some(module.into()),
                source: None,
                kind: FrameKind::Native,
            });
            let said = unseen(&frames).join("; ");
            said.split(':').next().unwrap_or_default().to_owned()
        };
        for (function, module, expected) in [
            ("runtime.mstart.abi0", "server", "part of it is Go"),
            ("os::PlatformEvent::park", "libjvm.so", "part of it is Java"),
            (
                "tokio::runtime::park::Inner::park",
                "agent",
                "part of it is tokio",
            ),
            ("runtime_init", "solver", ""),
            ("main", "solver", ""),
        ] {
            assert_eq!(found(function, module), expected, "{function}");
        }
    }

    #[test]
    fn sentences() {
        let all: Vec<&str> = LANGUAGES.iter().map(|language| language.unseen).collect();
        insta::assert_snapshot!(all.join("\n"), @r"
    part of it is Go: a goroutine that waits has no thread and is not shown; SIGQUIT makes the program print all goroutines and ends it
    part of it is Java: its methods are compiled at run time and have no names here; `jstack PID` shows them
    part of it is tokio: a task that waits has no stack and is not shown; `tokio-console` shows tasks if the program is built for it
    ");
    }
}
