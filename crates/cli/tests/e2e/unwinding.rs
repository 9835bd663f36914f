//! Compares `dbgr stacks` with gdb: both find the same calls, whatever the compiler generated.

use std::{
    path::{Path, PathBuf},
    process::{Command, Stdio},
};

use crate::harness::{
    DEADLINE, Running, Sandbox, Stream, compiled, dbgr, eventually, mischief, testdata,
};

/// The functions of the test programs. Calls inside the C library are not compared, because gdb also reads the debug
/// information of the system.
const OWN: [&str; 25] = [
    "main",
    "outer",
    "middle",
    "leaf",
    "inlined",
    "compute",
    "handler",
    "holder",
    "waiter",
    "listener",
    "starter",
    "inner",
    "routine",
    "plugin",
    "within",
    "refine",
    "~Guard",
    "operator()",
    "exchange",
    "heat",
    "step",
    "prompt",
    "gather",
    "finish",
    "leave",
];
const SIGNAL: &str = "<signal handler called>";

/// Starts a program, and waits until it prints that it is in its final state.
fn start(sandbox: &Sandbox, program: &Path, args: &[&str]) -> Running {
    let mut command = sandbox.command(program);
    command.args(args);
    let running = sandbox.start(&mut command);
    running.expect(Stream::Stdout, "ready");
    running
}

/// Returns the calls of each thread, outermost first, without those of libraries.
fn ours(sandbox: &Sandbox, pid: i32) -> Vec<Vec<String>> {
    let mut command = sandbox.command(dbgr());
    command.args(["stacks", "--full", "--folded", &pid.to_string()]);
    let text = sandbox.run(&mut command).expect_code(0).out();
    let mut stacks: Vec<_> = text
        .lines()
        .map(|line| own(line.rsplit_once(' ').unwrap().0.split(';')))
        .collect();
    stacks.sort();
    stacks
}

fn gdbs(sandbox: &Sandbox, pid: i32) -> Vec<Vec<String>> {
    let mut command = sandbox.command("gdb");
    let options = ["-batch", "-nx", "-ex", "set print frame-arguments none"];
    command.args(["-p", &pid.to_string()]).args(options);
    command.args([
        "-ex",
        "set backtrace past-main on",
        "-ex",
        "thread apply all bt",
    ]);
    let text = sandbox.run(&mut command).out();
    let mut stacks: Vec<Vec<&str>> = Vec::new();
    for line in text.lines() {
        if line.starts_with("Thread ") {
            stacks.push(Vec::new());
        }
        let Some(frame) = line.strip_prefix('#') else {
            continue;
        };
        let frame = frame.split_once(' ').unwrap().1.trim_start();
        let frame = match frame.split_once(" in ") {
            Some((address, rest)) if address.starts_with("0x") => rest,
            _ => frame,
        };
        let name = if frame.starts_with(SIGNAL) {
            SIGNAL
        } else {
            frame.split_once(" (").map_or(frame, |(name, _)| name)
        };
        stacks.last_mut().unwrap().insert(0, name);
    }
    let mut stacks: Vec<_> = stacks
        .into_iter()
        .map(|frames| own(frames.into_iter()))
        .collect();
    stacks.sort();
    stacks
}

/// Returns the program's own functions, without the decoration that languages add to names.
fn own<'a>(names: impl Iterator<Item = &'a str>) -> Vec<String> {
    names
        .filter_map(|name| {
            if name == SIGNAL {
                return Some(name.to_owned());
            }
            // Flame graph tools expect this suffix for inlined functions.
            let name = name.strip_suffix("_[i]").unwrap_or(name);
            let name = name.split(".isra").next()?.split(".constprop").next()?;
            let name = name.rsplit("::").next()?.rsplit("_MOD_").next()?;
            let name = name.split('<').next()?.trim_end_matches('_');
            OWN.contains(&name).then(|| name.to_owned())
        })
        .collect()
}

/// Checks that both find the same calls, and this many of them.
fn agree(program: &Path, args: &[&str], frames: usize) {
    let sandbox = Sandbox::new();
    let running = start(&sandbox, program, args);
    let (ours, gdbs) = (ours(&sandbox, running.pid), gdbs(&sandbox, running.pid));
    assert_eq!(ours, gdbs);
    assert_eq!(ours.iter().map(Vec::len).sum::<usize>(), frames, "{ours:?}");
    // The program does not notice that it was sampled.
    let asleep = || (state(running.pid) == 'S').then_some(());
    assert!(eventually(DEADLINE, asleep).is_some());
    end(running);
}

fn end(running: Running) {
    running.signal(nix::sys::signal::Signal::SIGKILL);
    running.end();
}

fn state(pid: i32) -> char {
    let status = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap();
    status.rsplit(") ").next().unwrap().chars().next().unwrap()
}

fn c(source: &str, options: &[&str]) -> PathBuf {
    compiled(
        Path::new("gcc"),
        &testdata(&format!("stacks/{source}")),
        options,
    )
}

macro_rules! calls {
    ($($name:ident: $options:expr, $frames:expr;)*) => {$(
        #[test]
        fn $name() {
            agree(&c("calls.c", &$options), &["2"], $frames);
        }
    )*};
}

calls! {
    without_optimization: ["-g", "-O0"], 7;
    optimized: ["-g", "-O2", "-fno-optimize-sibling-calls"], 7;
    without_frame_pointers: ["-g", "-O1", "-fomit-frame-pointer"], 7;
    with_frame_pointers: ["-g", "-O1", "-fno-omit-frame-pointer"], 7;
    by_frame_pointers_alone: ["-g", "-O0", "-fno-asynchronous-unwind-tables", "-fno-unwind-tables"], 7;
    without_lines: ["-O1"], 6;
    by_the_linker: ["-g", "-O1", "-flto"], 7;
    of_a_static_program: ["-g", "-O1", "-static"], 7;
    of_a_static_program_anywhere: ["-g", "-O1", "-static-pie"], 7;
    of_a_program_at_a_fixed_address: ["-g", "-O1", "-no-pie"], 7;
    with_compressed_lines: ["-g", "-O1", "-gz"], 7;
    with_older_lines: ["-gdwarf-4", "-O1"], 7;
}

#[test]
fn ten_thousand_calls() {
    agree(&c("calls.c", &["-g", "-O1"]), &["10000"], 10_005);
}

#[test]
fn in_a_signal_handler() {
    for args in [&[][..], &["on a stack of its own"]] {
        agree(&c("signals.c", &["-g", "-O2"]), args, 4);
        agree(&c("signals.c", &["-g", "-O0"]), args, 4);
    }
}

#[test]
fn in_threads() {
    agree(&c("threads.c", &["-g", "-O2", "-pthread"]), &[], 4);
}

#[test]
fn on_a_stack_made_by_hand() {
    agree(&c("coroutine.c", &["-g", "-O1"]), &[], 2);
}

#[test]
fn in_a_library_that_was_loaded_late() {
    let library = c("plugin.c", &["-g", "-O1", "-shared", "-fPIC", "-DPLUGIN"]);
    agree(
        &c("plugin.c", &["-g", "-O1"]),
        &[library.to_str().unwrap()],
        3,
    );
}

#[test]
fn in_a_destructor_because_of_an_exception() {
    let source = testdata("stacks/exceptions.cpp");
    for (options, frames) in [(["-g", "-O0"], 3), (["-g", "-O1"], 3)] {
        agree(&compiled(Path::new("g++"), &source, &options), &[], frames);
    }
}

/// Names are shown as written in the source, and not as the compiler mangles them (`MAIN__`, `__solver_MOD_step`).
#[test]
fn in_fortran() {
    let source = testdata("stacks/heat.f90");
    for options in [["-g", "-O0"], ["-g", "-O1"]] {
        let program = compiled(Path::new("gfortran"), &source, &options);
        agree(&program, &[], 4);
        let sandbox = Sandbox::new();
        let running = start(&sandbox, &program, &[]);
        let mut command = sandbox.command(dbgr());
        command.args(["stacks", &running.pid.to_string()]);
        let text = sandbox.run(&mut command).expect_code(0).out();
        for name in [
            "heat (heat.f90:22",
            "exchange (heat.f90:17",
            "solver::step (heat.f90:9",
        ] {
            assert!(text.contains(name), "{name}: {text}");
        }
        end(running);
    }
}

#[test]
fn in_rust() {
    let sandbox = Sandbox::new();
    let mut command = sandbox.command(mischief());
    command.arg("prompt").stdin(Stdio::piped());
    let running = sandbox.start(&mut command);
    running.expect(Stream::Stdout, "name? ");
    let mut found = [ours(&sandbox, running.pid), gdbs(&sandbox, running.pid)];
    // A Rust program has two functions named `main`, of which gdb shows one or both.
    found.iter_mut().flatten().for_each(Vec::dedup);
    let [ours, gdbs] = found;
    assert_eq!(ours, gdbs);
    assert_eq!(ours[0].last().unwrap(), "prompt");
    end(running);
}

/// gdb would wait until the child has exited.
#[test]
fn who_waits_for_a_child_that_has_its_stack() {
    let sandbox = Sandbox::new();
    let running = start(&sandbox, &c("vfork.c", &["-g", "-O1"]), &[]);
    // The child is found as a descendant, and is in the same calls.
    assert_eq!(ours(&sandbox, running.pid), [["main", "starter"]; 2]);
    end(running);
}

/// Debug information that was split off is found next to the program.
#[test]
fn stripped_and_with_its_lines_beside_it() {
    let sandbox = Sandbox::new();
    let whole = c("calls.c", &["-g", "-O1"]);
    let (program, lines) = (sandbox.path("calls"), sandbox.path("calls.debug"));
    let objcopy = |args: &[&std::ffi::OsStr]| {
        assert!(
            Command::new("objcopy")
                .args(args)
                .status()
                .unwrap()
                .success()
        );
    };
    objcopy(&["--only-keep-debug".as_ref(), whole.as_ref(), lines.as_ref()]);
    objcopy(&["--strip-all".as_ref(), whole.as_ref(), program.as_ref()]);
    let running = start(&sandbox, &program, &["2"]);
    assert_eq!(ours(&sandbox, running.pid), [[""; 0]]);
    // No function has a name, but all frames are found.
    let mut command = sandbox.command(dbgr());
    command.args(["stacks", &running.pid.to_string()]);
    let text = sandbox.run(&mut command).expect_code(0).out();
    assert!(!text.contains("incomplete"), "{text}");
    end(running);
    let link = format!("--add-gnu-debuglink={}", lines.display());
    objcopy(&[link.as_ref(), program.as_ref()]);
    agree(&program, &["2"], 7);
}

/// A part of a function without its own symbol gets the name of the called function, which jumped there.
#[test]
fn jumped_to_is_named_by_what_was_called() {
    let sandbox = Sandbox::new();
    let whole = c("jump.c", &["-O2", "-rdynamic"]);
    let program = sandbox.path("jump");
    let stripped = Command::new("strip")
        .args(["-o".as_ref(), program.as_os_str(), whole.as_os_str()])
        .status();
    assert!(stripped.unwrap().success());
    let running = start(&sandbox, &program, &[]);
    assert_eq!(ours(&sandbox, running.pid), [["main", "outer", "inner"]]);
    end(running);
}

/// A function of a library is named by its call, whatever stub leads to it. This also holds if it was left by a jump, and
/// then with the line of that jump, if the program has lines.
#[test]
fn called_through_a_stub_and_left_by_a_jump() {
    let sandbox = Sandbox::new();
    let library = sandbox.path("libstubs.so");
    let strip = |from: &Path, to: &Path| {
        let words = ["-o".as_ref(), to.as_os_str(), from.as_os_str()];
        assert!(
            Command::new("strip")
                .args(words)
                .status()
                .unwrap()
                .success()
        );
    };
    let options = ["-O2", "-shared", "-fPIC", "-DLIBRARY"];
    strip(&c("stubs.c", &options), &library);
    let directory = library.parent().unwrap().to_str().unwrap();
    let (search, found_there) = (format!("-L{directory}"), format!("-Wl,-rpath,{directory}"));
    for how in [
        &["-Wl,-z,lazy"][..],
        &["-Wl,-z,now"],
        &["-fno-plt"],
        &["-fcf-protection", "-Wl,-z,ibtplt"],
        &["-no-pie", "-Wl,-z,lazy"],
    ] {
        let mut options = vec!["-g", "-O2", &search, &found_there, "-lstubs"];
        options.extend(how);
        let whole = c("stubs.c", &options);
        let stripped = sandbox.path("stripped");
        strip(&whole, &stripped);
        for (program, args, calls, lines) in [
            (
                &whole,
                &[][..],
                &["main", "finish", "exchange", "gather"][..],
                &["finish (stubs.c:37)", "exchange (stubs.c:31)"][..],
            ),
            (
                &whole,
                &["leave"],
                &["main", "leave", "gather"],
                &["leave (stubs.c:43)"],
            ),
            (&stripped, &[], &["gather"], &[]),
        ] {
            let running = start(&sandbox, program, args);
            assert_eq!(ours(&sandbox, running.pid), [calls], "{how:?}");
            let mut command = sandbox.command(dbgr());
            command.args(["stacks", "--full", &running.pid.to_string()]);
            let text = sandbox.run(&mut command).expect_code(0).out();
            for line in lines {
                assert!(text.contains(line), "{how:?} {line}: {text}");
            }
            // Where there is no symbol, that of another address is not used.
            assert!(!text.contains("_init"), "{how:?}: {text}");
            end(running);
        }
    }
}
