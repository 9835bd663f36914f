//! The proxy for Eclipse PTP: output through it, and many submissions in one session.

use std::{
    fmt::Write as _,
    fs,
    io::{Read as _, Write as _},
    net::{TcpListener, TcpStream},
    process::Child,
    time::{Duration, Instant},
};

use anyhow::{Context as _, Result, bail, ensure};

use super::{Bench, machine::Machine, sample::median};

const ROUNDS: usize = 15;
/// Lines of a job, in a round.
const LINES: u32 = 10_000;
/// Lines of the long job.
const MANY_LINES: u32 = 2_000_000;
/// Submissions of the session, and after how many the memory is measured first.
const SUBMISSIONS: u32 = 100_000;
const WARM: u32 = 1_000;
/// Submissions without an answer.
const UNDER_WAY: u32 = 32;
/// The longest silence of the proxy.
const SILENCE: Duration = Duration::from_secs(60);

/// A client that reads as fast as it can, in the ASCII framing.
struct Client {
    socket: TcpStream,
    proxy: Child,
    bytes: Vec<u8>,
    begin: usize,
}

/// What a benchmark wants to know of a packet.
struct Event {
    id: u32,
    /// Everything behind the header.
    args: Vec<u8>,
}

impl Event {
    fn has(&self, text: &str) -> bool {
        self.args
            .windows(text.len())
            .any(|window| window == text.as_bytes())
    }

    fn lines(&self) -> u32 {
        let lines = self.args.iter().filter(|byte| **byte == b'\n').count();
        u32::try_from(lines).unwrap_or(u32::MAX)
    }
}

impl Client {
    fn start(machine: &Machine<'_>) -> Result<Self> {
        let listener = TcpListener::bind("127.0.0.1:0")?;
        let port = listener.local_addr()?.port().to_string();
        let mut command = machine.rally(&["ptp-proxy", "--host=127.0.0.1", "--port", &port]);
        let proxy = command.spawn()?;
        let (socket, _) = listener.accept()?;
        socket.set_read_timeout(Some(SILENCE))?;
        socket.set_nodelay(true)?;
        let mut client = Self {
            socket,
            proxy,
            bytes: Vec::new(),
            begin: 0,
        };
        client.command(1, &["version=2.0", "baseId=0"])?;
        client.until(|event| event.id == 0)?;
        client.command(3, &[])?;
        client.until(|event| event.id == 224)?;
        Ok(client)
    }

    fn command(&mut self, id: u32, args: &[&str]) -> Result<()> {
        let mut body = format!(" {id:04x}:00000000:{:08x}", args.len());
        for arg in args {
            write!(body, " {:08x}:{arg}", arg.len())?;
        }
        let packet = format!("{:08x}{body}", body.len());
        Ok(self.socket.write_all(packet.as_bytes())?)
    }

    fn next(&mut self) -> Result<Event> {
        loop {
            let rest = &self.bytes[self.begin..];
            if let Some(head) = rest.get(..8) {
                let length = usize::from_str_radix(std::str::from_utf8(head)?, 16)?;
                if let Some(body) = rest.get(8..8 + length) {
                    let id = body.get(1..5).context("a packet without an id")?;
                    let id = u32::from_str_radix(std::str::from_utf8(id)?, 16)?;
                    let args = body[5..].to_vec();
                    self.begin += 8 + length;
                    return Ok(Event { id, args });
                }
            }
            self.bytes.drain(..self.begin);
            self.begin = 0;
            let mut buffer = [0; 65_536];
            let count = self.socket.read(&mut buffer)?;
            ensure!(count > 0, "the proxy has closed the connection");
            self.bytes.extend_from_slice(&buffer[..count]);
        }
    }

    fn until(&mut self, mut is_it: impl FnMut(&Event) -> bool) -> Result<()> {
        loop {
            let event = self.next()?;
            if matches!(event.id, 5 | 211) {
                bail!("{}", String::from_utf8_lossy(&event.args));
            }
            if is_it(&event) {
                return Ok(());
            }
        }
    }

    fn submit(&mut self, script: &[&str]) -> Result<()> {
        let args: Vec<String> = script[1..]
            .iter()
            .map(|arg| format!("progArgs={arg}"))
            .collect();
        let program = format!("execName={}", script[0]);
        let mut words = vec!["jobSubId=J", "jobNumProcs=1", "workingDir=/tmp", &program];
        words.extend(args.iter().map(String::as_str));
        self.command(5, &words)
    }

    /// Returns the resident memory of the proxy that is its own, in KiB.
    fn memory(&self) -> Result<i64> {
        let status = fs::read_to_string(format!("/proc/{}/status", self.proxy.id()))?;
        let line = status.lines().find(|line| line.starts_with("RssAnon"));
        let words = line.and_then(|line| line.split_whitespace().nth(1));
        words.context("no memory")?.parse().context("no number")
    }

    fn quit(mut self) -> Result<()> {
        self.command(0, &[])?;
        self.until(|event| event.id == 6)?;
        drop(self.socket);
        ensure!(self.proxy.wait()?.success(), "the proxy has failed");
        Ok(())
    }
}

pub(super) fn measure(bench: &Bench) -> Result<String> {
    let machine = Machine::up(bench, "state-ptp")?;
    let mut text = String::from("| work | measured | target |\n|---|---|---|\n");
    output(bench, &machine, &mut text)?;
    submissions(&machine, &mut text)?;
    writeln!(
        text,
        "\nA machine of eight slots on this computer. Medians of {} rounds; the long session is measured once.",
        bench.rounds(ROUNDS)
    )?;
    Ok(text)
}

/// Returns the lines per second of a job, from its submission to its end.
fn lines_per_second(client: &mut Client, lines: u32) -> Result<f64> {
    let started = Instant::now();
    client.submit(&["seq", &lines.to_string()])?;
    let mut seen = 0;
    client.until(|event| {
        if event.has("processStdout=") {
            seen += event.lines();
        }
        event.id == 230 && event.has("jobState=COMPLETED")
    })?;
    ensure!(seen == lines, "{seen} lines of {lines}");
    Ok(f64::from(lines) / started.elapsed().as_secs_f64())
}

fn output(bench: &Bench, machine: &Machine<'_>, text: &mut String) -> Result<()> {
    let mut client = Client::start(machine)?;
    for lines in [LINES, MANY_LINES] {
        let mut rates = Vec::new();
        for _ in 0..bench.rounds(ROUNDS) {
            rates.push(lines_per_second(&mut client, lines)?);
        }
        let rate = median(rates).context("no rounds")?;
        let target = match lines {
            LINES => "≥ 20,000",
            _ => "",
        };
        writeln!(
            text,
            "| a job with {lines} lines of output, from SUBMIT_JOB to its end | {rate:.0} lines per second | {target} |"
        )?;
    }
    client.quit()
}

fn submissions(machine: &Machine<'_>, text: &mut String) -> Result<()> {
    let mut client = Client::start(machine)?;
    let started = Instant::now();
    let mut before = None;
    let (mut sent, mut over) = (0, 0);
    while over < SUBMISSIONS {
        while sent < SUBMISSIONS && sent - over < UNDER_WAY {
            client.submit(&["/bin/true"])?;
            sent += 1;
        }
        client.until(|event| event.id == 230 && event.has("jobState=COMPLETED"))?;
        over += 1;
        if over == WARM {
            before = Some(client.memory()?);
        }
    }
    let seconds = started.elapsed().as_secs_f64();
    let after = client.memory()?;
    let grown = after - before.context("no memory")?;
    writeln!(
        text,
        "| memory of the proxy after {SUBMISSIONS} submissions of `true` in one session, compared with that after {WARM} | {grown:+} KiB ({after} KiB) | no growth |"
    )?;
    writeln!(
        text,
        "| these submissions, {UNDER_WAY} at the same time | {:.0} per second | |",
        f64::from(SUBMISSIONS) / seconds
    )?;
    client.quit()
}
