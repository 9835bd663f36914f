//! The programs that an app may run.
//!
//! A program that is linked with Open MPI counts as the only one. Any other may start further programs. Every word that
//! names a program counts, so we need not know the options of `numactl`, `gdb --args` or `nice`.
//!
//! | source | words that are examined |
//! |---|---|
//! | the command line | all; the argument after `-c` is split into words |
//! | a script | the words of its first line; all words if a shell runs it |
//!
//! If a word changes where libraries are searched for, it is unknown what is loaded.

use std::{
    cell::OnceCell,
    collections::BTreeSet,
    ffi::{OsStr, OsString},
    fs::{self, File, Metadata},
    io::Read,
    os::unix::ffi::OsStrExt,
    path::{Path, PathBuf},
};

use dvm::spec::App;
use os::Found;

use super::{
    super::script,
    linked::{Content, Linked, linked},
};

/// Maximum number of words that are looked up in the file system.
const MAX_WORDS: usize = 512;
/// Bytes of a script that are read at most.
const MAX_SCRIPT: u64 = 64 << 10;
/// Bytes of a file that are read first. In small programs, they contain all that we look for but the dynamic section.
const HEAD: usize = 4 << 10;

/// Variables that change where a program searches for its libraries, and shell commands that may set them.
const CHANGES: [&str; 2] = ["LD_LIBRARY_PATH", "LD_PRELOAD"];
const MAY_CHANGE: [&str; 6] = [".", "source", "module", "ml", "conda", "spack"];
/// Shell keywords and builtins that may precede a command.
const BEFORE: [&str; 13] = [
    "then", "else", "elif", "do", "if", "while", "until", "!", "exec", "command", "builtin",
    "eval", "time",
];

const ELF: &[u8] = b"\x7fELF";

/// What interprets a text whose first line does not say it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Reader {
    Shell,
    Unknown,
}

struct Walk<'a> {
    directory: PathBuf,
    path: &'a OsStr,
    /// The same, made absolute once a word is searched for in it.
    search: OnceCell<OsString>,
    seen: BTreeSet<OsString>,
    programs: Vec<Program>,
    libraries: Libraries,
}

/// A program in the form that the kernel executes itself.
#[derive(Debug)]
pub(super) struct Program {
    pub(super) path: PathBuf,
    /// `None` if it is not linked with Open MPI.
    pub(super) linked: Option<Linked>,
}

/// Whether the programs search for their libraries where the environment of the app says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Libraries {
    Known,
    Unknown,
}

/// Returns the programs that an app may run. `None` if one of them may search for its libraries elsewhere.
pub(super) fn programs(app: &App, program: &Path) -> Option<Vec<Program>> {
    let directory = PathBuf::from(&app.directory);
    let mut walk = Walk {
        path: &app.search,
        search: OnceCell::new(),
        directory,
        seen: BTreeSet::new(),
        programs: Vec::new(),
        libraries: Libraries::Known,
    };
    walk.file(program, Reader::Unknown);
    if walk
        .programs
        .iter()
        .any(|first| first.linked.is_some() && first.path == program)
    {
        return Some(walk.programs);
    }
    let mut reader = reader_of(app.program.as_bytes());
    let mut is_text = false;
    for arg in &app.args {
        let bytes = arg.as_bytes();
        if is_text {
            walk.text(bytes);
        } else {
            walk.word(bytes, reader);
        }
        is_text = bytes.starts_with(b"-") && bytes.ends_with(b"c");
        if reader == Reader::Unknown {
            reader = reader_of(bytes);
        }
    }
    (walk.libraries == Libraries::Known).then_some(walk.programs)
}

/// Returns what interprets the text that follows a word.
fn reader_of(word: &[u8]) -> Reader {
    let name = word.rsplit(|byte| *byte == b'/').next().unwrap_or(word);
    if name.ends_with(b"sh") && !name.contains(&b'.') {
        Reader::Shell
    } else {
        Reader::Unknown
    }
}

/// Returns true if a shell command may change where libraries are searched for. Assignments and keywords before its name
/// are skipped.
fn may_change(command: &[u8]) -> bool {
    let mut words = command.split(u8::is_ascii_whitespace);
    let name = words.find(|word| {
        let is_before = word.is_empty() || word.contains(&b'=');
        !is_before && !BEFORE.iter().any(|known| *word == known.as_bytes())
    });
    MAY_CHANGE
        .iter()
        .any(|known| name == Some(known.as_bytes()))
}

impl Walk<'_> {
    fn text(&mut self, text: &[u8]) {
        let lines = text.split(|byte| *byte == b'\n');
        for line in lines.filter(|line| !line.trim_ascii_start().starts_with(b"#")) {
            let mut commands = line.split(|byte| b";|&(){}\"'`".contains(byte));
            if commands.any(may_change) {
                self.libraries = Libraries::Unknown;
            }
            let mut reader = Reader::Unknown;
            for word in line.split(|byte| b" \t\r;|&()<>{}\"'`=,".contains(byte)) {
                self.word(word, reader);
                if reader == Reader::Unknown {
                    reader = reader_of(word);
                }
            }
        }
    }

    /// Examines a word, which may be the name of a file.
    fn word(&mut self, word: &[u8], reader: Reader) {
        let name = word.split(|byte| *byte == b'=').next();
        if CHANGES.iter().any(|known| name == Some(known.as_bytes())) {
            self.libraries = Libraries::Unknown;
        }
        let odd = |byte: &u8| b"$*?[\0".contains(byte);
        if word.is_empty() || word.starts_with(b"-") || word.iter().any(odd) {
            return;
        }
        let word = OsStr::from_bytes(word);
        if self.seen.len() == MAX_WORDS || !self.seen.insert(word.to_owned()) {
            return;
        }
        let in_directory = self.directory.join(word);
        if word.as_bytes().contains(&b'/') {
            return self.file(&in_directory, reader);
        }
        let absolute = || os::search_path(&self.directory, self.path);
        let search = self.search.get_or_init(absolute);
        if let Found::Program(found) = os::find_program(word, search) {
            self.file(&found, reader);
        } else if reader == Reader::Shell {
            // A shell also finds a script in its working directory.
            self.file(&in_directory, reader);
        }
    }

    fn file(&mut self, path: &Path, reader: Reader) {
        // Do not open FIFOs or devices.
        let Some(metadata) = fs::metadata(path).ok().filter(Metadata::is_file) else {
            return;
        };
        let Ok(mut file) = os::open_for_reading(path).map(File::from) else {
            return;
        };
        // In one read, which a growing buffer would not be.
        let mut bytes = Vec::with_capacity(HEAD);
        let mut head = Read::by_ref(&mut file).take(HEAD as u64);
        if head.read_to_end(&mut bytes).is_err() {
            return;
        }
        if bytes.starts_with(ELF) {
            if !self.programs.iter().any(|known| known.path == path) {
                let content = Content::new(file, bytes, metadata.len());
                let program = Program {
                    path: path.to_path_buf(),
                    linked: linked(content, path),
                };
                self.programs.push(program);
            }
            return;
        }
        // A text that cannot be executed is run by a shell, as execvp(3) does.
        let is_run = || os::is_executable(path) && script::is_script(path);
        let reader = match reader {
            Reader::Unknown if is_run() => Reader::Shell,
            reader => reader,
        };
        let says_reader = bytes.starts_with(b"#!");
        let rest = MAX_SCRIPT - HEAD as u64;
        if !says_reader && reader == Reader::Unknown
            || file.take(rest).read_to_end(&mut bytes).is_err()
        {
            return;
        }
        let first = bytes.split(|byte| *byte == b'\n').next();
        let first = first.and_then(|line| line.strip_prefix(b"#!"));
        let mut reader = reader;
        if let Some(line) = first {
            self.text(line);
            let mut words = line.split(u8::is_ascii_whitespace);
            let shell = words.any(|word| reader_of(word) == Reader::Shell);
            reader = if shell {
                Reader::Shell
            } else {
                Reader::Unknown
            };
        }
        if reader == Reader::Shell {
            self.text(&bytes);
        }
    }
}

#[cfg(test)]
#[expect(
    clippy::disallowed_methods,
    reason = "tests make the files that are looked at"
)]
mod tests {
    use dvm::spec::Tracers;

    use super::*;

    /// Returns the programs that a command line may run, in a directory with some programs (`solver`, `wrap`,
    /// `python3`, `bash`, `env`) and scripts.
    fn found(words: &[&str]) -> String {
        let root = tempfile::tempdir().unwrap();
        let root = fs::canonicalize(root.path()).unwrap();
        let file = |name: &str, bytes: &[u8]| {
            use std::os::unix::fs::PermissionsExt;
            let path = root.join(name);
            fs::write(&path, bytes).unwrap();
            fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
        };
        for name in ["solver", "wrap", "python3", "bash", "env"] {
            file(name, b"\x7fELF and no more");
        }
        let here = root.display();
        file("run.sh", b"# ./wrap\nset -e\nN=1 exec ./solver \"$@\"\n");
        file(
            "run.py",
            format!("#!{here}/env python3\nimport wrap\n").as_bytes(),
        );
        file(
            "outer",
            format!("#!{here}/bash\n(./run.sh; true)\n").as_bytes(),
        );
        file("loads", b"module load openmpi\n./solver\n");
        file("itself", b"./itself; ./solver\n");
        fs::write(root.join("input"), "./solver").unwrap();
        let app = App {
            program: words[0].into(),
            args: words[1..].iter().map(Into::into).collect(),
            env: dvm::spec::Environment::default(),
            directory: root.clone().into(),
            search: ".".into(),
            elsewhere: std::sync::Arc::default(),
            umask: 0o022,
            tracers: Tracers::Ancestors,
        };
        let Some(programs) = programs(&app, &root.join(words[0])) else {
            return "nobody knows".to_owned();
        };
        let names = programs
            .iter()
            .map(|program| program.path.strip_prefix(&root).unwrap());
        let names: Vec<_> = names.map(|name| name.display().to_string()).collect();
        names.join(" ")
    }

    #[test]
    fn what_a_command_line_may_start() {
        let lines = [
            "solver",
            "wrap solver -x 3",
            "wrap -n 10 ./solver input",
            "wrap --opt=solver",
            "bash -c|cd /tmp && N=1 ./solver >out",
            "bash -lc|exec solver",
            "bash run.sh",
            "run.sh solver",
            "bash input",
            "wrap input",
            "wrap bash input",
            "run.py",
            "env X=1 wrap ./run.py",
            "outer",
            "itself",
            "loads",
            "bash -c|. ./env.sh; ./solver",
            "bash -c|if true; then X=1 module load x; fi; ./solver",
            "bash -c|find . -name module; ./solver --ml ml",
            "env LD_LIBRARY_PATH=/x ./solver",
            "wrap missing /nowhere/solver $X/solver",
        ];
        let said = lines.map(|line| {
            let (line, text) = line.split_once('|').unwrap_or((line, ""));
            let words = line.split(' ').chain((!text.is_empty()).then_some(text));
            let words: Vec<&str> = words.collect();
            format!("{}: {}", words.join(" "), found(&words))
        });
        insta::assert_snapshot!(said.join("\n"), @"
        solver: solver
        wrap solver -x 3: wrap solver
        wrap -n 10 ./solver input: wrap solver
        wrap --opt=solver: wrap
        bash -c cd /tmp && N=1 ./solver >out: bash solver
        bash -lc exec solver: bash solver
        bash run.sh: bash solver
        run.sh solver: solver
        bash input: bash solver
        wrap input: wrap
        wrap bash input: wrap bash solver
        run.py: env python3
        env X=1 wrap ./run.py: env wrap python3
        outer: bash solver
        itself: solver
        loads: nobody knows
        bash -c . ./env.sh; ./solver: nobody knows
        bash -c if true; then X=1 module load x; fi; ./solver: nobody knows
        bash -c find . -name module; ./solver --ml ml: bash solver
        env LD_LIBRARY_PATH=/x ./solver: nobody knows
        wrap missing /nowhere/solver $X/solver: wrap
        ");
    }

    #[test]
    fn nobody_opens_a_pipe() {
        assert_eq!(found(&["wrap", "/dev/null", "/proc/self/fd/0"]), "wrap");
    }
}
