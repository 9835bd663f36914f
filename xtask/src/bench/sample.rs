//! Interleaved samples of several contestants, and their statistics.

use std::{
    ffi::OsStr,
    fmt,
    process::{Command, Stdio},
    sync::mpsc,
    thread,
    time::{Duration, Instant},
};

use anyhow::{Context as _, Result, anyhow, bail};
use nix::{
    sys::signal::{self, Signal},
    unistd::Pid,
};

/// Time after which a run counts as hanging. Other launchers sometimes hang, which is also a result.
pub(super) const HANG: Duration = Duration::from_secs(20);

/// Number of failed runs after which a contestant is not run any more, so that its hangs do not delay the measurement.
const BAD_MAX: usize = 3;

/// Number of draws of the bootstrap.
const DRAWS: usize = 2_000;

/// Returns a command with an empty stdin and discarded output.
pub(super) fn silent(program: impl AsRef<OsStr>, args: &[&str]) -> Command {
    let mut command = Command::new(program);
    command
        .args(args)
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null());
    command
}

/// The samples of one contestant in seconds; `None` for a run that hung or failed.
#[derive(Clone, Debug)]
pub(super) struct Samples {
    pub(super) name: &'static str,
    pub(super) seconds: Vec<Option<f64>>,
}

impl Samples {
    pub(super) fn good(&self) -> Vec<f64> {
        self.seconds.iter().copied().flatten().collect()
    }

    pub(super) fn median(&self) -> Option<f64> {
        median(self.good())
    }

    pub(super) fn failed(&self) -> usize {
        self.seconds
            .iter()
            .filter(|sample| sample.is_none())
            .count()
    }

    /// Returns the ratio of medians over the rounds in which both contestants succeeded, with its interval.
    pub(super) fn over(&self, other: &Self) -> Option<Ratio> {
        let pairs = self
            .seconds
            .iter()
            .zip(&other.seconds)
            .filter_map(|(own, other)| Some(((*own)?, (*other)?)))
            .collect::<Vec<_>>();
        Ratio::of(&pairs)
    }
}

/// A ratio of medians, and the interval that contains 95% of the bootstrap draws.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Ratio {
    pub(super) value: f64,
    pub(super) low: f64,
    pub(super) high: f64,
}

impl Ratio {
    fn of(pairs: &[(f64, f64)]) -> Option<Self> {
        let of = |pairs: &[(f64, f64)]| {
            let own = median(pairs.iter().map(|pair| pair.0).collect())?;
            let other = median(pairs.iter().map(|pair| pair.1).collect())?;
            Some(own / other)
        };
        let value = of(pairs)?;
        // A fixed seed: the same samples give the same interval.
        let mut state = 0x2545_f491_4f6c_dd1d_u64;
        let mut draws = Vec::with_capacity(DRAWS);
        for _ in 0..DRAWS {
            let mut drawn = Vec::with_capacity(pairs.len());
            for _ in pairs {
                state ^= state << 13;
                state ^= state >> 7;
                state ^= state << 17;
                let chosen = usize::try_from(state % pairs.len() as u64).unwrap_or(0);
                drawn.extend(pairs.get(chosen));
            }
            draws.extend(of(&drawn));
        }
        draws.sort_by(f64::total_cmp);
        let low = draws.get(draws.len() * 25 / 1_000).copied()?;
        let high = draws
            .get((draws.len() * 975 / 1_000).min(draws.len() - 1))
            .copied()?;
        Some(Self { value, low, high })
    }

    /// Returns the inverse ratio, which compares rates instead of times.
    pub(super) fn inverse(self) -> Self {
        Self {
            value: 1.0 / self.value,
            low: 1.0 / self.high,
            high: 1.0 / self.low,
        }
    }
}

impl fmt::Display for Ratio {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:.2} ({:.2} to {:.2})", self.value, self.low, self.high)
    }
}

pub(super) fn median(mut values: Vec<f64>) -> Option<f64> {
    values.sort_by(f64::total_cmp);
    let middle = values.len() / 2;
    let upper = values.get(middle).copied()?;
    if values.len() % 2 == 1 {
        return Some(upper);
    }
    Some((values.get(middle - 1).copied()? + upper) / 2.0)
}

/// The name of a contestant, and a function that runs it once and returns the time.
pub(super) type Contestant<'a> = (&'static str, Box<dyn FnMut() -> Result<Duration> + 'a>);

/// Runs the contestants interleaved, after one warm-up round that does not count.
pub(super) fn rounds(count: usize, contestants: Vec<Contestant<'_>>) -> Vec<Samples> {
    let (mut all, mut runs) = (Vec::new(), Vec::new());
    for (name, run) in contestants {
        all.push(Samples {
            name,
            seconds: Vec::new(),
        });
        runs.push(run);
    }
    for round in 0..=count {
        for (samples, run) in all.iter_mut().zip(&mut runs) {
            let result = if samples.failed() < BAD_MAX {
                run()
            } else {
                Err(anyhow!("no more turns"))
            };
            if round == 0 {
                continue;
            }
            if let Err(error) = &result
                && samples.failed() < BAD_MAX
            {
                println!("{}: {error:#}", samples.name);
            }
            samples
                .seconds
                .push(result.ok().map(|time| time.as_secs_f64()));
        }
    }
    all
}

/// Returns the time from before the start of a command to after its end. The command must succeed.
pub(super) fn timed(command: &mut Command) -> Result<Duration> {
    timed_within(HANG, command)
}

/// Measures like [`timed`], with a different time limit.
pub(super) fn timed_within(limit: Duration, command: &mut Command) -> Result<Duration> {
    let started = Instant::now();
    let child = command.spawn().with_context(|| format!("{command:?}"))?;
    finish_within(limit, child, command)?;
    Ok(started.elapsed())
}

/// Waits for a child to succeed; kills it if it hangs.
pub(super) fn finish(child: std::process::Child, command: &Command) -> Result<()> {
    finish_within(HANG, child, command)
}

/// Waits like [`finish`], with a different time limit.
pub(super) fn finish_within(
    limit: Duration,
    mut child: std::process::Child,
    command: &Command,
) -> Result<()> {
    let status = watched(limit, &mut child, |child| Ok(child.wait()?))
        .with_context(|| format!("{command:?}"))?;
    if !status.success() {
        bail!("{command:?}: {status}");
    }
    Ok(())
}

/// Does something with a child, which is killed if that takes longer than the limit.
pub(super) fn watched<T>(
    limit: Duration,
    child: &mut std::process::Child,
    act: impl FnOnce(&mut std::process::Child) -> Result<T>,
) -> Result<T> {
    let pid = Pid::from_raw(i32::try_from(child.id())?);
    // The watchdog thread starts before the wait and ends after it; its cost is the same for every contestant.
    let (done, watched) = mpsc::channel::<()>();
    let watchman = thread::spawn(move || {
        let hung = watched.recv_timeout(limit) == Err(mpsc::RecvTimeoutError::Timeout);
        if hung {
            // An error means that the process is exiting at this moment.
            let _ = signal::kill(pid, Signal::SIGKILL);
        }
        hung
    });
    let result = act(child);
    drop(done);
    if watchman.join().unwrap_or(false) {
        bail!("it hung for {} s", limit.as_secs());
    }
    result
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn medians_and_ratios() {
        assert_eq!(median(vec![3.0, 1.0, 2.0]), Some(2.0));
        assert_eq!(median(vec![4.0, 1.0, 2.0, 3.0]), Some(2.5));
        assert_eq!(median(Vec::new()), None);
        let samples = |seconds: &[f64]| Samples {
            name: "x",
            seconds: seconds
                .iter()
                .map(|value| (*value > 0.0).then_some(*value))
                .collect(),
        };
        let ratio = samples(&[1.0, 2.0, 3.0, 0.0])
            .over(&samples(&[2.0, 4.0, 6.0, 9.0]))
            .unwrap();
        assert!(
            (ratio.value - 0.5).abs() < 1e-9 && ratio.low <= 0.5 && ratio.high >= 0.5,
            "{ratio}"
        );
        assert!((ratio.inverse().value - 2.0).abs() < 1e-9);
        assert_eq!(samples(&[0.0]).over(&samples(&[1.0])), None);
    }
}
