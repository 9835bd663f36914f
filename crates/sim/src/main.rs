//! Plays one or more seeds of one family or of all: `sim [--family NAME] [--seed N | --seeds COUNT [--from N]]`. Or measures
//! one job on many nodes: `sim --scale NODES`. Or lets somebody else time the passes of a queue: `sim --queue JOBS NODES`. With
//! `sim --replay`, replays the recording of a real run on standard input.
//!
//! Prints a line for each failed seed and for each family, and at the end the first failure with its record. Exits with 0
//! if no seed failed, with 1 if one did, and with 2 if the arguments are wrong.

use std::{
    io::{IsTerminal as _, Read, Write},
    process::ExitCode,
};

use sim::{
    Failure, Family,
    queue::load::Load,
    replay::{Replay, ReplayError, Replayed},
    scale::NODES_MAX,
};

/// Returns the default number of seeds to play of a family.
const fn seeds(family: Family) -> u64 {
    match family {
        Family::Crowd | Family::Thousand => 10,
        _ => 1_000,
    }
}

/// Number of faults of a run that counts as rough.
const ROUGH: u32 = 3;

/// Number of ranks of each node with `--scale`.
const EACH: u32 = 10;

struct Args {
    /// Measure one job on this number of nodes instead.
    scale: Option<u32>,
    families: Vec<Family>,
    from: u64,
    /// Number of seeds of each family.
    count: Option<u64>,
}

fn main() -> ExitCode {
    let mut out = std::io::stdout().lock();
    if std::env::args().skip(1).eq(["--replay"]) {
        return replay(&mut out);
    }
    if std::env::args().nth(1).as_deref() == Some("--queue") {
        return queue(&mut out, std::env::args().skip(2));
    }
    let args = match parse(std::env::args().skip(1)) {
        Ok(args) => args,
        Err(what) => {
            let _ = writeln!(
                out,
                "error: {what}\nusage: sim [--family NAME] [--seed N | --seeds COUNT [--from N]]\n       sim --scale NODES\n       sim --queue JOBS NODES\n       sim --replay < RECORDING"
            );
            return ExitCode::from(2);
        }
    };
    if let Some(nodes) = args.scale {
        return scale(&mut out, nodes);
    }
    let mut failures: Vec<Box<Failure>> = Vec::new();
    for family in args.families {
        let (mut events, mut rough, mut failed) = (0, 0, 0);
        let count = args.count.unwrap_or_else(|| seeds(family));
        for seed in args.from..args.from.saturating_add(count) {
            match sim::run(family, seed) {
                Ok(report) => {
                    events += report.events;
                    rough += u64::from(report.faults >= ROUGH);
                }
                Err(failure) => {
                    let _ = writeln!(
                        out,
                        "seed={seed} family={}: {}",
                        family.name(),
                        failure.what
                    );
                    failures.push(failure);
                    failed += 1;
                }
            }
        }
        let _ = writeln!(
            out,
            "{:<7} {count:>8} seeds {events:>12} events {failed:>6} failures {rough:>8} seeds with {ROUGH} faults or more",
            family.name(),
        );
    }
    let Some(first) = failures.into_iter().next() else {
        return ExitCode::SUCCESS;
    };
    let _ = writeln!(out, "\n{first}");
    ExitCode::FAILURE
}

/// Prints what a job on this number of nodes shows, and waits for the end of input unless that is a terminal: whoever reads
/// the line can look at our memory.
fn scale(out: &mut impl Write, nodes: u32) -> ExitCode {
    match sim::scale::measure(nodes, EACH) {
        Ok(measured) => {
            let _ = writeln!(out, "{measured:?}");
            let _ = out.flush();
            if !std::io::stdin().is_terminal() {
                let _ = std::io::copy(&mut std::io::stdin(), &mut std::io::sink());
            }
            ExitCode::SUCCESS
        }
        Err(what) => {
            let _ = writeln!(out, "error: {what}");
            ExitCode::FAILURE
        }
    }
}

/// Makes a pass of the queue of a large machine for each line of input, and prints a line when it is done. Between passes, a task
/// ends, and a job is submitted.
fn queue(out: &mut impl Write, mut words: impl Iterator<Item = String>) -> ExitCode {
    let mut number = || words.next()?.parse::<u32>().ok();
    let (Some(jobs), Some(nodes @ 1..=QUEUE_NODES_MAX)) = (number(), number()) else {
        let _ = writeln!(
            out,
            "error: `--queue` needs a number of jobs and one of nodes, at most {QUEUE_NODES_MAX}"
        );
        return ExitCode::from(2);
    };
    let mut load = Load::new(jobs, nodes);
    let _ = writeln!(out, "ready");
    for _ in std::io::stdin().lines().map_while(Result::ok) {
        load.pass();
        // What follows is not part of the pass.
        let _ = writeln!(out, "passed");
        let _ = writeln!(out, "{:?}", load.carry_out());
        load.advance();
        let _ = writeln!(out, "ready");
    }
    ExitCode::SUCCESS
}

/// Most nodes of a machine whose queue is timed.
const QUEUE_NODES_MAX: u32 = 1_000_000;

/// Bytes of a recording that are read at a time.
const READ_SIZE: usize = 1 << 20;

/// Replays standard input. Exits with 0 without a difference, with 1 with one, and with 2 if it is no recording.
fn replay(out: &mut impl Write) -> ExitCode {
    let (said, code) = match replay_stdin() {
        Ok(Ok(replayed)) => (replayed.to_string(), 0),
        Ok(Err(error @ ReplayError::Differs(_))) => (error.to_string(), 1),
        Ok(Err(error)) => (format!("error: {error}"), 2),
        Err(error) => (format!("error: cannot read standard input: {error}"), 2),
    };
    let _ = writeln!(out, "{said}");
    ExitCode::from(code)
}

fn replay_stdin() -> Result<Result<Replayed, ReplayError>, std::io::Error> {
    let mut replay = Replay::default();
    let mut input = std::io::stdin().lock();
    let mut buffer = vec![0; READ_SIZE];
    loop {
        let read = input.read(&mut buffer)?;
        if read == 0 {
            return Ok(replay.end());
        }
        if let Err(error) = replay.take(&buffer[..read]) {
            return Ok(Err(error));
        }
    }
}

fn parse(mut words: impl Iterator<Item = String>) -> Result<Args, String> {
    let mut args = Args {
        scale: None,
        families: Family::ALL.to_vec(),
        from: 0,
        count: None,
    };
    let mut is_played = false;
    while let Some(word) = words.next() {
        is_played |= word != "--scale";
        let mut value = || {
            words
                .next()
                .ok_or_else(|| format!("`{word}` needs a value"))
        };
        let number = |text: String| {
            text.parse::<u64>()
                .map_err(|_| format!("`{text}` is no number"))
        };
        match word.as_str() {
            "--family" => {
                let name = value()?;
                let family =
                    Family::parse(&name).ok_or_else(|| format!("there is no family `{name}`"))?;
                args.families = vec![family];
            }
            "--seed" => (args.from, args.count) = (number(value()?)?, Some(1)),
            "--scale" => {
                let nodes = u32::try_from(number(value()?)?).ok();
                let nodes = nodes.filter(|nodes| (1..=NODES_MAX).contains(nodes));
                let wrong = || format!("`--scale` needs a number of nodes from 1 to {NODES_MAX}");
                args.scale = Some(nodes.ok_or_else(wrong)?);
            }
            "--seeds" => args.count = Some(number(value()?)?),
            "--from" => args.from = number(value()?)?,
            _ => return Err(format!("unknown argument `{word}`")),
        }
    }
    if args.scale.is_some() && is_played {
        return Err("`--scale` goes with no other option".to_owned());
    }
    Ok(args)
}
