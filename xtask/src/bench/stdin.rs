//! Checks that input arrives completely, including EOF, and measures how fast.

use std::{
    fmt::Write as _,
    fs::File,
    io::Write as _,
    path::Path,
    process::{Command, Stdio},
    thread,
    time::{Duration, Instant},
};

use anyhow::{Context as _, Result, bail};
use mischief::Digest;

use super::{
    Bench,
    report::{contestant_cell, ratio_cell},
    sample::{Contestant, rounds},
};

/// Number of bytes, number of rounds, and whether the speed has a target.
const CASES: [(u64, usize, bool); 4] = [
    (0, 15, false),
    (1, 15, false),
    (64 << 10, 15, false),
    (1 << 30, 5, true),
];

/// Options without which Open MPI refuses to run as root or with more ranks than cores.
const OPEN_MPI: [&str; 2] = ["--allow-run-as-root", "--oversubscribe"];

#[derive(Clone, Copy, Debug)]
enum Source {
    File,
    Pipe,
}

pub(super) fn measure(bench: &Bench) -> Result<String> {
    let mut text = String::from(
        "| bytes | from | `rally run -n 1` | `cat` | `cat`'s time / rally's | target | Hydra | Open MPI |\n\
         |---|---|---|---|---|---|---|---|\n",
    );
    let mut hangs = false;
    for (bytes, enough, has_target) in CASES {
        let file = bench.path("input");
        let digest = fill(&file, bytes)?;
        for source in [Source::File, Source::Pipe] {
            let reader = bench.mischief.to_string_lossy().into_owned();
            let launch = |program: &Path, before: &[&str]| {
                let mut command = Command::new(program);
                command
                    .args(before)
                    .args(["-n", "1", &reader, "echo-stdin-digest"]);
                command
            };
            let plain = "cat | \"$0\" echo-stdin-digest";
            let mut contestants: Vec<Contestant<'_>> = vec![
                (
                    "rally",
                    Box::new(|| fed(&mut launch(&bench.rally, &["run"]), &file, source, digest)),
                ),
                (
                    "cat",
                    Box::new(|| {
                        fed(
                            Command::new("/bin/sh").args(["-c", plain, &reader]),
                            &file,
                            source,
                            digest,
                        )
                    }),
                ),
            ];
            // With more input the other launchers hang or lose data, so they are measured only up to this size.
            if bytes <= 64 << 10 {
                contestants.push((
                    "Hydra",
                    Box::new(|| fed(&mut launch(&bench.hydra, &[]), &file, source, digest)),
                ));
            }
            if bytes <= 64 << 10 && !hangs {
                contestants.push((
                    "Open MPI",
                    Box::new(|| {
                        fed(
                            &mut launch(&bench.openmpi, &OPEN_MPI),
                            &file,
                            source,
                            digest,
                        )
                    }),
                ));
            }
            let all = rounds(bench.rounds(enough), contestants);
            let of = |name: &str| all.iter().find(|samples| samples.name == name);
            // Do not run Open MPI again after a case in which every run failed.
            hangs |= of("Open MPI").is_some_and(|samples| samples.median().is_none());
            let ratio = of("cat")
                .zip(of("rally"))
                .and_then(|(cat, rally)| cat.over(rally));
            writeln!(
                text,
                "| {bytes} | {} | {} | {} | {} | {} | {} | {} |",
                match source {
                    Source::File => "file",
                    Source::Pipe => "pipe",
                },
                contestant_cell(of("rally")),
                contestant_cell(of("cat")),
                ratio_cell(ratio),
                if has_target { "≥ 0.5" } else { "-" },
                contestant_cell(of("Hydra")),
                contestant_cell(of("Open MPI")),
            )?;
        }
        std::fs::remove_file(&file)?;
    }
    writeln!(
        text,
        "\nMedians in milliseconds of whole runs; rank 0 reads to the end of file and its checksum is compared with the \
         sender's. `cat` is `cat | reader`, with the same reader. A run that lost, doubled or changed a byte, or that was \
         not over after {} s, counts as failed.",
        HANG_PEER.as_secs()
    )?;
    Ok(text)
}

/// Time after which a run counts as hanging. Other launchers hang here in half of the runs, so a longer limit would take hours.
const HANG_PEER: Duration = Duration::from_secs(20);

fn fill(path: &Path, bytes: u64) -> Result<Digest> {
    let mut state = 88_172_645_463_325_252_u64;
    let block = (0..1 << 17)
        .flat_map(|_| {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            state.to_le_bytes()
        })
        .collect::<Vec<_>>();
    let mut file = File::create(path)?;
    let mut digest = Digest::new();
    let mut left = usize::try_from(bytes)?;
    while left > 0 {
        let part = block.get(..left.min(block.len())).unwrap_or_default();
        file.write_all(part)?;
        digest.update(part);
        left -= part.len();
    }
    Ok(digest)
}

fn fed(command: &mut Command, file: &Path, source: Source, digest: Digest) -> Result<Duration> {
    command.stdout(Stdio::piped()).stderr(Stdio::null());
    let input = File::open(file)?;
    let feeding = matches!(source, Source::Pipe);
    command.stdin(if feeding {
        Stdio::piped()
    } else {
        Stdio::from(input.try_clone()?)
    });
    let started = Instant::now();
    let mut child = command.spawn().with_context(|| format!("{command:?}"))?;
    let feeder = child.stdin.take().map(|mut pipe| {
        let mut input = input;
        // If the reader closes the pipe early, the checksum shows it.
        thread::spawn(move || std::io::copy(&mut input, &mut pipe).is_ok())
    });
    let pid = nix::unistd::Pid::from_raw(i32::try_from(child.id())?);
    let (sender, ended) = std::sync::mpsc::channel();
    thread::spawn(move || {
        // After a hang there is no receiver any more.
        let _ = sender.send(child.wait_with_output());
    });
    let Ok(output) = ended.recv_timeout(HANG_PEER) else {
        nix::sys::signal::kill(pid, nix::sys::signal::Signal::SIGKILL)?;
        bail!("hung");
    };
    let output = output?;
    let time = started.elapsed();
    if let Some(feeder) = feeder {
        let _ = feeder.join();
    }
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    if !output.status.success() || !said.contains(&digest.to_string()) {
        bail!("{}: {}", output.status, said.trim());
    }
    Ok(time)
}
