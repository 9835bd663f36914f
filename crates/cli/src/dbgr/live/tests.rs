//! Processes that exit, and whose pids are reused, between two samples.

mod python;

use std::{
    fs,
    path::PathBuf,
    process::{Child, Command},
};

use base::{InKernel, Rank};
use debug::{
    agent::Agent,
    proto::{Extent, Proc},
    report, samples,
    session::Place,
    snapshot::Snapshot,
    stack::{Frames, Missing, Seen},
    target::{self, Wish},
};

use super::*;
use crate::dbgr::{
    host::AgentHost,
    local::{HERE, Local},
    machine::{Ask, Machine},
};

/// Takes samples of one process after another.
pub(super) struct Sampler {
    pub(super) local: Local,
    pub(super) frames: Frames,
}

impl Sampler {
    pub(super) fn new(detail: report::Detail) -> Self {
        Self {
            local: Local::new(detail),
            frames: Frames::new(),
        }
    }

    pub(super) fn sample(&mut self, pid: Pid, started: u64) -> Seen {
        let pid = pid.as_raw();
        let place = Place::At(HERE, Proc { pid, started });
        self.local.follow_places([(Rank(0), place)].into());
        let sample = self.local.sample(Extent::Children);
        let mut snapshot = sample
            .snapshot
            .with_frames_in(sample.frames, &mut self.frames);
        snapshot.procs.remove(&Rank(0)).unwrap()
    }
}

/// A process that is killed on drop.
pub(in crate::dbgr) struct Running(Child);

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

impl Running {
    pub(in crate::dbgr) fn start(program: &str, arguments: &[&str]) -> Self {
        Self(Command::new(program).args(arguments).spawn().unwrap())
    }

    pub(in crate::dbgr) fn pid(&self) -> Pid {
        Pid::from_raw(i32::try_from(self.0.id()).unwrap())
    }

    fn started(&self) -> u64 {
        os::start_time(self.pid()).unwrap()
    }
}

#[test]
fn who_has_the_number_of_a_process_now_is_not_looked_at() {
    let running = Running::start("sleep", &["1000"]);
    let mut sampler = Sampler::new(report::Detail::Folded);
    let (pid, started) = (running.pid(), running.started());
    assert!(matches!(sampler.sample(pid, started), Seen::Threads(_)));
    // As if the process had exited, and this one had reused its pid.
    let seen = sampler.sample(pid, started - 1);
    assert!(matches!(seen, Seen::Missing(Missing::Gone)), "{seen:?}");
    assert!(sampler.local.describe().builds.is_empty());
}

/// A directory that is removed on drop.
struct Directory(PathBuf);

impl Directory {
    fn new(name: &str) -> Self {
        let path = std::env::temp_dir().join(format!("{name}-{}", os::current_pid()));
        fs::create_dir_all(&path).unwrap();
        Self(path)
    }

    /// Compiles a program.
    fn compile(&self, name: &str, source: &str, flags: &[&str]) -> String {
        let program = self.0.join(name);
        let file = self.0.join(format!("{name}.c"));
        fs::write(&file, source).unwrap();
        let mut compiler = Command::new("cc");
        compiler.arg("-o").arg(&program).arg(&file).args(flags);
        assert!(compiler.status().unwrap().success());
        program.into_os_string().into_string().unwrap()
    }
}

impl Drop for Directory {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// Waits up to 60 s for a condition.
fn until(what: impl Fn() -> bool) {
    let deadline = Instant::now() + Duration::from_secs(60);
    while !what() {
        assert!(Instant::now() < deadline);
        std::thread::yield_now();
    }
}

/// Returns true if the first thread of a process waits in pause(2).
fn pauses(running: &Running) -> bool {
    let call = os::in_kernel(running.pid(), running.pid());
    matches!(call, Some(InKernel::Blocked { call: Some(34), .. }))
}

/// Returns the functions of the first thread, outermost first.
fn functions(sampler: &mut Sampler, running: &Running) -> Vec<String> {
    let seen = sampler.sample(running.pid(), running.started());
    let Seen::Threads(threads) = seen else {
        panic!("{seen:?}")
    };
    let frames = threads[0].stack.frames.iter();
    let names = frames.map(|&id| sampler.frames.get(id).function.clone());
    names
        .map(|name| name.as_deref().unwrap_or("??").to_owned())
        .collect()
}

#[test]
fn a_program_in_the_place_of_another_is_not_taken_for_it() {
    // Both programs are mapped at the same addresses, so that every address of one is also valid in the other.
    let source = |name: &str, then: &str| {
        format!(
            "#include <signal.h>\n#include <unistd.h>\n\
             static void go(int s) {{ }}\n\
             static void {name}(void) {{ pause(); }}\n\
             int main(int count, char **words) {{ signal(SIGUSR1, go); {name}(); {then} }}\n"
        )
    };
    let directory = Directory::new("dbgr-exec");
    let flags = ["-static", "-no-pie", "-fno-pie"];
    let then = "execv(words[1], words); return 0;";
    let first = directory.compile("first", &source("before", then), &flags);
    let second = directory.compile("second", &source("afterwards", then), &flags);
    let running = Running::start(&first, &[&second]);
    let mut sampler = Sampler::new(report::Detail::Folded);
    until(|| pauses(&running));
    let names = functions(&mut sampler, &running);
    assert!(names.contains(&"before".to_owned()), "{names:?}");
    os::kill(running.pid(), base::Signal(10)).unwrap();
    let program = || os::program_of(running.pid()).is_some_and(|it| it.ends_with("second"));
    until(|| program() && pauses(&running));
    let names = functions(&mut sampler, &running);
    assert!(names.contains(&"afterwards".to_owned()), "{names:?}");
}

#[test]
fn a_library_that_came_between_two_looks_is_known() {
    let directory = Directory::new("dbgr-library");
    let library = "#include <unistd.h>\nvoid deep(void) { pause(); }\n";
    let library = directory.compile("library.so", library, &["-shared", "-fPIC"]);
    let source = "#include <dlfcn.h>\n#include <signal.h>\n#include <unistd.h>\n\
         static void go(int s) { }\n\
         int main(int count, char **words) {\n\
         signal(SIGUSR1, go); pause();\n\
         void (*deep)(void) = (void (*)(void))dlsym(dlopen(words[1], RTLD_NOW), \"deep\");\n\
         deep(); return 0; }\n";
    let program = directory.compile("program", source, &["-fno-omit-frame-pointer", "-ldl"]);
    let running = Running::start(&program, &[&library]);
    let mut sampler = Sampler::new(report::Detail::Folded);
    until(|| pauses(&running));
    let names = functions(&mut sampler, &running);
    assert!(names.contains(&"main".to_owned()), "{names:?}");
    os::kill(running.pid(), base::Signal(10)).unwrap();
    let loaded = || {
        let maps = os::mappings(running.pid()).unwrap_or_default();
        String::from_utf8_lossy(&maps).contains("library.so")
    };
    until(|| loaded() && pauses(&running));
    let names = functions(&mut sampler, &running);
    assert!(names.contains(&"deep".to_owned()), "{names:?}");
}

/// A longer one would make the whole answer of an agent invalid.
#[test]
fn the_path_of_a_source_file_is_bounded() {
    let directory = Directory::new("dbgr-path");
    let path = format!("/start/{}", "x".repeat(100_000));
    let source = format!(
        "#include <unistd.h>\n#line 7 \"{path}\"\nint main(void) {{ for (;;) pause(); }}\n"
    );
    let program = directory.compile("program", &source, &["-g"]);
    let running = Running::start(&program, &[]);
    let mut sampler = Sampler::new(report::Detail::Folded);
    until(|| pauses(&running));
    let names = functions(&mut sampler, &running);
    assert!(names.contains(&"main".to_owned()), "{names:?}");
    let sources = sampler.frames.iter().filter_map(|it| it.source.as_ref());
    let mut ours = sources.filter(|source| path.starts_with(&*source.file));
    let length = ours.next().map(|source| source.file.len());
    assert_eq!(length, Some(4096));
}

#[test]
fn of_very_many_threads_some_are_looked_at_and_that_is_said() {
    let directory = Directory::new("dbgr-threads");
    let source = "#include <pthread.h>\n#include <unistd.h>\n\
         static void *work(void *none) { pause(); return none; }\n\
         int main(void) { pthread_t thread; for (int at = 0; at < 4; at++)\n\
         pthread_create(&thread, 0, work, 0); pause(); }\n";
    let program = directory.compile("program", source, &["-pthread"]);
    let running = Running::start(&program, &[]);
    until(|| os::threads_of(running.pid()).len() == 5);
    let mut doubts = Vec::new();
    for (most, sampled) in [(5, 5), (3, 3)] {
        let own = os::current_pid().as_raw();
        let agent = Agent::new(HERE, own, report::Detail::Folded).with_max_threads(most);
        let mut sampler = Sampler {
            local: Local::with_agent(AgentHost::of(agent), report::Detail::Folded),
            frames: Frames::new(),
        };
        let seen = sampler.sample(running.pid(), running.started());
        assert!(matches!(seen, Seen::Threads(threads) if threads.len() == sampled));
        doubts = sampler.local.describe().doubts().collect();
        assert_eq!(doubts.len(), usize::from(most == 3));
    }
    let pid = running.pid();
    assert_eq!(
        doubts,
        [format!(
            "process {pid} has 5 threads; only 3 of them were looked at"
        )]
    );
}

#[test]
fn a_process_lives_on_when_its_first_thread_has_ended() {
    let directory = Directory::new("dbgr-leader");
    let source = "#include <pthread.h>\n#include <unistd.h>\n\
         static void *work(void *none) { pause(); return none; }\n\
         int main(void) { pthread_t thread; pthread_create(&thread, 0, work, 0); pthread_exit(0); }\n";
    let program = directory.compile("program", source, &["-pthread"]);
    let running = Running::start(&program, &[]);
    let pid = running.pid();
    until(|| {
        let thread = os::living_thread_of(pid);
        let call = os::in_kernel(pid, thread);
        thread != pid && matches!(call, Some(InKernel::Blocked { call: Some(34), .. }))
    });
    let machine = Machine { ask: Ask::Nobody };
    let target = target::find(&machine, &Wish::Process(pid.as_raw())).unwrap();
    let proc = &target.procs[&Rank(0)];
    assert_eq!((proc.pid, &*proc.program), (pid.as_raw(), &*program));
    let mut sampler = Sampler::new(report::Detail::Folded);
    let seen = sampler.sample(pid, running.started());
    let procs = [(Rank(0), seen)].into_iter().collect();
    let recording = samples::Recording {
        frames: sampler.frames,
        samples: vec![samples::Sample {
            at: Duration::ZERO,
            snapshot: Snapshot {
                procs,
                ..Snapshot::default()
            },
        }],
    };
    let report = report::Report::of(recording, report::Detail::Folded);
    let look = report::Layout {
        width: 80,
        detail: report::Detail::Folded,
        colour: report::Colour::Never,
        guides: report::Guides::Ascii,
    };
    let text = report::text(&report, &look);
    let text = text.lines().skip(2).collect::<Vec<_>>().join("\n");
    insta::assert_snapshot!(text, @r"
    1 [0] work > pause - waiting for a signal
    1 [0] 1 thread: the first one, which has ended
    ");
}

#[test]
fn programs_and_mpi_are_named_with_their_builds() {
    let directory = Directory::new("dbgr-builds");
    let id = |digits: &str| format!("-Wl,--build-id=0x{digits}");
    let library = "#include <unistd.h>\nint MPI_Finalize(void) { return pause(); }\n";
    let flags = [
        "-shared",
        "-fPIC",
        "-Wl,-soname,libmpi.so.40",
        &id("0102ff"),
    ];
    let library = directory.compile("libmpi.so.40", library, &flags);
    let source = "int MPI_Finalize(void); int main(void) { return MPI_Finalize(); }\n";
    let path = format!("-Wl,-rpath,{}", directory.0.display());
    let program = directory.compile("program", source, &[&library, &path, &id("abcd")]);
    let running = Running::start(&program, &[]);
    until(|| {
        let call = os::in_kernel(running.pid(), running.pid());
        matches!(call, Some(InKernel::Blocked { call: Some(34), .. }))
    });
    let mut sampler = Sampler::new(report::Detail::Folded);
    let _ = sampler.sample(running.pid(), running.started());
    let builds = sampler.local.describe().builds.into_iter();
    let versions: Vec<_> = builds
        .map(|it| (it.file.to_string(), it.to_string()))
        .collect();
    let named = |of: &str, version: &str| (of.to_owned(), version.to_owned());
    assert_eq!(
        versions,
        [
            named("libmpi.so.40", "build id 0102ff"),
            named("program", "build id abcd"),
        ]
    );
}
