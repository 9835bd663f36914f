//! Tests with the Python of this node. They also make the recordings of other versions.

use std::{
    cell::RefCell,
    collections::BTreeMap,
    fs,
    io::{BufRead, BufReader},
    process::{Child, Command, Stdio},
};

use debug::{
    image, maps,
    python::{Codes, PythonStack, Runtimes},
    report,
    stack::{End, FrameKind, Seen, Thread},
    unwind::Images,
};

use super::Sampler;
use crate::dbgr::live::*;

/// How long a Python may take to print where its threads are.
const PATIENCE: Duration = Duration::from_secs(60);

/// A Python process that is killed on drop.
struct Running {
    child: Child,
    /// The lines that it has printed.
    said: Vec<String>,
}

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Running {
    fn pid(&self) -> Pid {
        Pid::from_raw(i32::try_from(self.child.id()).unwrap())
    }

    /// Returns the frames of each thread by tid, innermost first, as `name|file|line`.
    fn threads(&self) -> BTreeMap<i32, Vec<String>> {
        let mut threads = BTreeMap::new();
        let mut thread = 0;
        for line in &self.said {
            match line.strip_prefix("thread ") {
                Some(words) => {
                    thread = words.split(' ').nth(1).unwrap().parse().unwrap();
                }
                None => threads
                    .entry(thread)
                    .or_insert_with(Vec::new)
                    .push(line.trim().to_owned()),
            }
        }
        threads
    }
}

/// Runs the program under `testdata`, until it prints that all its threads wait.
fn run(words: &[&str]) -> Running {
    let program = concat!(
        env!("CARGO_MANIFEST_DIR"),
        "/../../testdata/python/program.py"
    );
    let mut python = Command::new("python3");
    python.arg(program).args(words);
    start(python)
}

fn start(mut python: Command) -> Running {
    let mut child = python.stdout(Stdio::piped()).spawn().unwrap();
    let output = child.stdout.take().unwrap();
    let mut running = Running {
        child,
        said: Vec::new(),
    };
    let (sender, lines) = std::sync::mpsc::channel();
    std::thread::spawn(move || {
        for line in BufReader::new(output).lines().map_while(Result::ok) {
            let _ = sender.send(line);
        }
    });
    let until = Instant::now() + PATIENCE;
    loop {
        let left = until.saturating_duration_since(Instant::now());
        let line = lines.recv_timeout(left).unwrap();
        if line == "ready" {
            return running;
        }
        running.said.push(line);
    }
}

fn shown(sampler: &Sampler, thread: &Thread, kind: FrameKind) -> Vec<String> {
    let frames = thread.stack.frames.iter().rev();
    frames
        .map(|frame| sampler.frames.get(*frame))
        .filter(|frame| frame.kind == kind)
        .map(|frame| {
            let source = frame.source.as_ref();
            format!(
                "{}|{}|{}",
                frame.function.as_deref().unwrap_or("?"),
                source.map_or("?", |source| &*source.file),
                source.map_or(0, |source| source.line)
            )
        })
        .collect()
}

fn sample(sampler: &mut Sampler, running: &Running) -> Seen {
    sampler.sample(running.pid(), os::start_time(running.pid()).unwrap())
}

fn threads_of(seen: Seen) -> Vec<Thread> {
    match seen {
        Seen::Threads(threads) => threads,
        Seen::Missing(missing) => panic!("{missing:?}"),
    }
}

#[test]
fn every_thread_is_where_python_says_that_it_is() {
    let running = run(&["0.5"]);
    let mut sampler = Sampler::new(report::Detail::Folded);
    let expected = running.threads();
    for _ in 0..2 {
        let threads = threads_of(sample(&mut sampler, &running));
        let found: BTreeMap<i32, Vec<String>> = threads
            .iter()
            .map(|thread| (thread.tid, shown(&sampler, thread, FrameKind::Python)))
            .filter(|(tid, _)| expected.contains_key(tid))
            .collect();
        assert_eq!(found, expected);
        assert_eq!(expected.len(), 12);
    }
}

#[test]
fn python_stands_where_the_loop_of_the_interpreter_did() {
    let running = run(&["0.5", "sleeping"]);
    let names = |sampler: &Sampler, thread: &Thread| -> Vec<String> {
        let frames = thread.stack.frames.iter();
        frames
            .map(|frame| {
                sampler
                    .frames
                    .get(*frame)
                    .function
                    .as_deref()
                    .unwrap_or("?")
                    .to_owned()
            })
            .collect()
    };
    let sleeps = |threads: &[Thread], sampler: &Sampler| {
        let all = threads.iter().map(|thread| names(sampler, thread));
        all.into_iter()
            .find(|names| names.iter().any(|name| name == "sleeping"))
            .unwrap()
    };
    // Before 3.11 Python sleeps in `select`.
    let is_wait = |name: &String| name.contains("nanosleep") || name.contains("select");
    let mut sampler = Sampler::new(report::Detail::Folded);
    let threads = threads_of(sample(&mut sampler, &running));
    let short = sleeps(&threads, &sampler);
    // Before 3.11 the name of a method has no class in front.
    let plain = |name: &String| name.trim_start_matches("Thread.").to_owned();
    let outer: Vec<String> = short.iter().take(4).map(plain).collect();
    let python = ["_bootstrap", "_bootstrap_inner", "run", "sleeping"];
    assert_eq!(outer, python, "{short:?}");
    assert!(is_wait(short.last().unwrap()), "{short:?}");
    assert!(
        !short.iter().any(|name| name.starts_with("_Py")),
        "{short:?}"
    );
    assert!(threads.iter().all(|thread| thread.stack.end == End::Start));

    let mut sampler = Sampler::new(report::Detail::Full);
    let threads = threads_of(sample(&mut sampler, &running));
    let full = sleeps(&threads, &sampler);
    let at = |word: &str| full.iter().position(|name| name.contains(word)).unwrap();
    assert!(at("clone") < at("_PyEval_EvalFrameDefault"), "{full:?}");
    assert!(
        at("_PyEval_EvalFrameDefault") < at("_bootstrap_inner"),
        "{full:?}"
    );
    assert!(
        at("sleeping") < full.iter().position(is_wait).unwrap(),
        "{full:?}"
    );
}

/// Memory that records everything that is read from it.
struct Recorder {
    memory: LiveMemory,
    read: RefCell<BTreeMap<u64, Vec<u8>>>,
}

impl Memory for Recorder {
    fn read(&self, address: u64, buffer: &mut [u8]) -> Result<(), Unreadable> {
        self.memory.read(address, buffer)?;
        let mut read = self.read.borrow_mut();
        let known = read.entry(address).or_default();
        if known.len() < buffer.len() {
            *known = buffer.to_vec();
        }
        Ok(())
    }
}

/// Checks that a recording of a process is read like the process itself.
///
/// This test also makes the files under `testdata/python`. `RECORD_COMMAND` starts another Python, and must exec it, not
/// fork. `RECORD_TO` is the file to write, which is compressed afterwards.
#[test]
fn what_is_recorded_reads_as_the_process_does() {
    let running = match std::env::var("RECORD_COMMAND") {
        Ok(words) => {
            let mut words = words.split(' ');
            let mut command = Command::new(words.next().unwrap());
            command.args(words);
            start(command)
        }
        Err(_) => run(&["0.5"]),
    };
    let pid = running.pid();
    let memory = Recorder {
        memory: LiveMemory(pid),
        read: RefCell::default(),
    };
    let mut images = Images::new(base::Arch::NATIVE, image::Reading::default());
    let maps = maps::parse(&os::mappings(pid).unwrap());
    let code = images.code(&maps, &LiveFiles(pid), &memory.memory);
    let interpreter = Runtimes::new().find(&images, &code, &memory).unwrap();
    let idents = running.said.iter().filter_map(|line| {
        let words = line.strip_prefix("thread ")?;
        words.split(' ').next()?.parse::<u64>().ok()
    });
    let idents: Vec<u64> = idents.collect();
    let read = |memory: &dyn Memory| -> Vec<PythonStack> {
        let threads = interpreter.threads(memory);
        let stacks = idents.iter().map(|&ident| {
            let thread = threads
                .iter()
                .find(|thread| thread.is_of(Some(ident), 0))
                .unwrap();
            let chain = interpreter.chain(thread, memory).unwrap();
            Codes::new().read(&interpreter, &chain, memory)
        });
        stacks.collect()
    };
    let live = read(&memory);
    // Reads that overlap or touch become one part.
    let mut parts: Vec<(u64, Vec<u8>)> = Vec::new();
    for (address, bytes) in memory.read.into_inner() {
        match parts.last_mut() {
            Some((start, part)) if address <= *start + part.len() as u64 => {
                let from = *start + part.len() as u64 - address;
                let new = bytes.get(usize::try_from(from).unwrap()..);
                part.extend_from_slice(new.unwrap_or_default());
            }
            _ => parts.push((address, bytes)),
        }
    }
    assert_eq!(read(&Parts(&parts)), live);
    let Ok(file) = std::env::var("RECORD_TO") else {
        return;
    };
    let version = interpreter.version().0;
    let mut text = format!("python {version} {:x}\n", interpreter.runtime());
    for line in &running.said {
        text.push_str(line);
        text.push('\n');
    }
    text.push_str("ready\n");
    let mut bytes = text.into_bytes();
    for (address, part) in parts {
        bytes.extend_from_slice(&address.to_le_bytes());
        bytes.extend_from_slice(&(part.len() as u64).to_le_bytes());
        bytes.extend_from_slice(&part);
    }
    fs::write(file, bytes).unwrap();
}

/// Parts of a process's memory, in ascending order of addresses.
struct Parts<'a>(&'a [(u64, Vec<u8>)]);

impl Memory for Parts<'_> {
    fn read(&self, address: u64, buffer: &mut [u8]) -> Result<(), Unreadable> {
        let after = self.0.partition_point(|(start, _)| *start <= address);
        let read = || {
            let (start, part) = self.0.get(after.checked_sub(1)?)?;
            let at = usize::try_from(address - start).ok()?;
            part.get(at..at.checked_add(buffer.len())?)
        };
        buffer.copy_from_slice(read().ok_or(Unreadable { address })?);
        Ok(())
    }
}
