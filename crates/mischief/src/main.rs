//! A program with many bad habits; the first argument selects one: `rally run -n 4 mischief HABIT ...`.
//!
//! It prints plain lines, so that a test can wait for them. A habit during which a test must act prints `ready` first.

use std::{
    env,
    error::Error,
    fs,
    io::{self, BufRead, Read, Write},
    os::{
        fd::{AsFd, AsRawFd, OwnedFd},
        unix::process::CommandExt,
    },
    process::{Command, ExitCode, Stdio},
    thread,
    time::Duration,
};

use mischief::{Digest, line};
use nix::{
    sys::signal::{self, SigSet, Signal},
    unistd,
};

type Outcome = Result<ExitCode, Box<dyn Error>>;

/// Bytes per write in habits that produce much output.
const BLOCK: usize = 1 << 20;

const HABITS: &str = "\
exit CODE                    exits
crash                        dies of SIGSEGV
live [MS]                    does nothing, for ever or for so long
ignore SIGNAL...             prints `ready` and lives on whatever of these comes
trap COUNT CODE SIGNAL...    prints `ready`, then each of these signals that comes, and exits with CODE after COUNT
leak-pipe [MS]               exits at once; a child keeps its output open
double-fork                  exits at once; a grandchild in a session of its own lives on
leave-and-live               a grandchild in a session of its own lives on, and so do we
fork-storm N                 exits at once; N children in sessions of their own live on
grab-foreground              makes its own process group the terminal's foreground group
stop-itself                  stops by SIGSTOP; says `continued` when it runs again
long-line BYTES              one line of so many bytes
close-stdout-then-live [MS]  closes its stdout and goes on
fill                         writes to stdout until that fails, and says on stderr why
lines COUNT LENGTH [stderr]  lines that check themselves
blast BYTES                  so many bytes of `x` in large writes, no line feed
cat                          copies stdin to stdout
echo-stdin-digest            reads stdin to its end and says what it was
print-environment            every variable, sorted
print-self                   pid, ppid, pgid, sid, directory, umask, affinity
print-limits                 its resource limits
prompt                       a line without its end, then reads a line
exec-other PROGRAM ARGS...   becomes another program
touch FILE                   makes an empty file";

fn main() -> ExitCode {
    let mut args = env::args().skip(1);
    let habit = args.next().unwrap_or_default();
    match perform(&habit, &args.collect::<Vec<_>>()) {
        Ok(code) => code,
        Err(error) => {
            // An error on stderr cannot be reported anywhere.
            let _ = writeln!(io::stderr(), "mischief {habit}: {error}");
            ExitCode::from(99)
        }
    }
}

fn perform(habit: &str, args: &[String]) -> Outcome {
    let first = args.first().map(String::as_str);
    match habit {
        "exit" => return Ok(ExitCode::from(first.unwrap_or("0").parse::<u8>()?)),
        "crash" => return crash(),
        "live" => live(first)?,
        "ignore" => {
            set(args)?.thread_block()?;
            say("ready")?;
            live(None)?;
        }
        "trap" => return trap(args),
        "leak-pipe" => {
            myself(&["live", first.unwrap_or("600000")])
                .stdin(Stdio::null())
                .spawn()?;
        }
        "double-fork" => {
            myself(&["__leave"]).status()?;
        }
        "__leave" => {
            unistd::setsid()?;
            quiet(&mut myself(&["live", "600000"])).spawn()?;
        }
        "leave-and-live" => {
            myself(&["__leave"]).status()?;
            live(None)?;
        }
        "fork-storm" => {
            for _ in 0..first.unwrap_or("1").parse::<u32>()? {
                myself(&["__leave"]).status()?;
            }
        }
        "grab-foreground" => grab_foreground()?,
        "stop-itself" => {
            signal::raise(Signal::SIGSTOP)?;
            say("continued")?;
        }
        "long-line" => {
            let mut text = vec![b'x'; first.unwrap_or("1").parse::<usize>()?];
            text.push(b'\n');
            io::stdout().write_all(&text)?;
        }
        "close-stdout-then-live" => {
            unistd::close(io::stdout().as_raw_fd())?;
            live(first)?;
        }
        "fill" => {
            let error = fill();
            writeln!(io::stderr(), "{}", error.raw_os_error().unwrap_or(0))?;
        }
        "lines" => lines(args)?,
        "blast" => blast(first.unwrap_or("0").parse()?)?,
        "cat" => {
            io::copy(&mut io::stdin().lock(), &mut io::stdout().lock())?;
        }
        "echo-stdin-digest" => {
            let digest = read_to_end()?;
            say(&format!("rank {}: {digest}", rank()))?;
        }
        "print-environment" => {
            let mut all = env::vars_os()
                .map(|(name, value)| format!("{}={}", name.display(), value.display()))
                .collect::<Vec<_>>();
            all.sort();
            say(&all.join("\n"))?;
        }
        "print-self" => print_self()?,
        "print-limits" => say(fs::read_to_string("/proc/self/limits")?.trim_end())?,
        "prompt" => prompt()?,
        "exec-other" => {
            let (program, rest) = args.split_first().ok_or("exec-other needs a program")?;
            return Err(Command::new(program).args(rest).exec().into());
        }
        "touch" => fs::write(first.ok_or("touch needs a file")?, "")?,
        _ => return Err(format!("unknown habit `{habit}`; there are:\n{HABITS}").into()),
    }
    Ok(ExitCode::SUCCESS)
}

/// Writes one line and flushes it.
fn say(text: &str) -> io::Result<()> {
    let mut out = io::stdout().lock();
    out.write_all(format!("{text}\n").as_bytes())?;
    out.flush()
}

/// Returns a command that runs this program again.
fn myself(args: &[&str]) -> Command {
    let mut command = Command::new("/proc/self/exe");
    command.args(args);
    command
}

fn quiet(command: &mut Command) -> &mut Command {
    command
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
}

/// Returns the rank from `PMI_RANK`, which MPICH programs read; 0 without a launcher.
fn rank() -> u32 {
    env::var("PMI_RANK")
        .ok()
        .and_then(|text| text.parse().ok())
        .unwrap_or(0)
}

fn live(millis: Option<&str>) -> Result<(), Box<dyn Error>> {
    if let Some(millis) = millis {
        thread::sleep(Duration::from_millis(millis.parse()?));
        return Ok(());
    }
    loop {
        unistd::pause();
    }
}

/// Raises SIGSEGV twice, because Rust's handler for stack overflows swallows the first signal without an address. The second
/// one kills the process.
fn crash() -> Outcome {
    for _ in 0..2 {
        signal::raise(Signal::SIGSEGV)?;
    }
    Err("SIGSEGV did not kill".into())
}

fn set(names: &[String]) -> Result<SigSet, Box<dyn Error>> {
    let mut set = SigSet::empty();
    for name in names {
        set.add(name.parse()?);
    }
    Ok(set)
}

/// Waits for blocked signals instead of installing a handler, which would need unsafe code. The sender sees no difference.
fn trap(args: &[String]) -> Outcome {
    let [count, code, signals @ ..] = args else {
        return Err("trap needs COUNT CODE SIGNAL...".into());
    };
    let set = set(signals)?;
    set.thread_block()?;
    say("ready")?;
    for _ in 0..count.parse::<u32>()? {
        say(set.wait()?.as_str())?;
    }
    Ok(ExitCode::from(code.parse::<u8>()?))
}

fn grab_foreground() -> Result<(), Box<dyn Error>> {
    // If SIGTTOU were not blocked, the call would stop a process in the background.
    SigSet::from(Signal::SIGTTOU).thread_block()?;
    let terminal: OwnedFd = fs::File::options()
        .read(true)
        .write(true)
        .open("/dev/tty")?
        .into();
    unistd::tcsetpgrp(&terminal, unistd::getpgrp())?;
    say("grabbed")?;
    Ok(())
}

fn fill() -> io::Error {
    let block = vec![b'x'; BLOCK];
    loop {
        if let Err(error) = io::stdout()
            .write_all(&block)
            .and_then(|()| io::stdout().flush())
        {
            return error;
        }
    }
}

fn lines(args: &[String]) -> Result<(), Box<dyn Error>> {
    let [count, length, rest @ ..] = args else {
        return Err("lines needs COUNT LENGTH".into());
    };
    let mut out: Box<dyn Write> = if rest.is_empty() {
        Box::new(io::stdout())
    } else {
        Box::new(io::stderr())
    };
    let length = length.parse()?;
    let mut text = Vec::with_capacity(BLOCK + length);
    for index in 0..count.parse()? {
        text.extend(line(rank(), index, length));
        text.push(b'\n');
        if text.len() >= BLOCK {
            out.write_all(&text)?;
            text.clear();
        }
    }
    out.write_all(&text)?;
    Ok(())
}

fn blast(mut bytes: usize) -> io::Result<()> {
    // Bypasses `Stdout`, whose search for line feeds would cost more than the write.
    let mut out = fs::File::from(io::stdout().as_fd().try_clone_to_owned()?);
    let block = vec![b'x'; BLOCK];
    while bytes > 0 {
        let part = bytes.min(BLOCK);
        out.write_all(block.get(..part).unwrap_or_default())?;
        bytes -= part;
    }
    Ok(())
}

fn read_to_end() -> io::Result<Digest> {
    let mut digest = Digest::new();
    let mut block = vec![0; BLOCK];
    let mut stdin = io::stdin().lock();
    loop {
        let got = stdin.read(&mut block)?;
        if got == 0 {
            return Ok(digest);
        }
        digest.update(block.get(..got).unwrap_or_default());
    }
}

fn print_self() -> Result<(), Box<dyn Error>> {
    let status = fs::read_to_string("/proc/self/status")?;
    let field = |name: &str| {
        status
            .lines()
            .find_map(|line| line.strip_prefix(name)?.strip_prefix(':'))
            .map_or("?", str::trim)
    };
    say(&format!(
        "rank={} pid={} ppid={} pgid={} sid={} directory={} umask={} affinity={} blocked={} ignored={}",
        rank(),
        unistd::getpid(),
        unistd::getppid(),
        unistd::getpgrp(),
        unistd::getsid(None)?,
        env::current_dir()?.display(),
        field("Umask"),
        field("Cpus_allowed_list"),
        field("SigBlk"),
        field("SigIgn"),
    ))?;
    Ok(())
}

fn prompt() -> io::Result<()> {
    let mut out = io::stdout().lock();
    out.write_all(b"name? ")?;
    out.flush()?;
    let mut name = String::new();
    io::stdin().lock().read_line(&mut name)?;
    out.write_all(format!("hello {}\n", name.trim_end()).as_bytes())?;
    out.flush()
}
