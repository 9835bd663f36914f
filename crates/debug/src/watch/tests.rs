//! Watches in virtual time: scripted jobs, and the actions that the watch asks of its host.

use super::*;
use crate::samples::tests::script::recording;

const IDLE: Duration = Duration::from_secs(12);
const WAITS: &str = "0-3: main@a.c:1 > MPI_Barrier!libmpi.so > poll!libc.so.6 = running 100";
const REFUSED: &str = "0-3: not permitted";

/// A scripted job, its watch and its clock.
struct World {
    watch: Watch,
    now: Time,
    /// Whether a search finds the job.
    job: Job,
    /// Pid of a living process of the job; `None` if there is none.
    living: Option<i32>,
    /// The samples to come. The last one is repeated.
    samples: VecDeque<&'static str>,
    /// Bytes that the ranks write from one sample to the next.
    writes: u64,
    written: u64,
    /// How long a sample takes.
    takes: Duration,
    /// The actions that the watch asked for, each with its time in seconds.
    asked: Vec<String>,
    end: Option<End>,
}

impl World {
    fn new(limit: Option<u64>, samples: &[&'static str]) -> Self {
        let options = WatchOptions {
            idle: IDLE,
            limit: limit.map(Duration::from_secs),
            pid: Some(7),
        };
        Self {
            watch: Watch::new(options, Time::ZERO),
            now: Time::ZERO,
            job: Job::Found,
            living: Some(10),
            samples: samples.iter().copied().collect(),
            writes: 0,
            written: 0,
            takes: Duration::ZERO,
            asked: Vec::new(),
            end: None,
        }
    }

    fn log(&mut self, what: &str) {
        let seconds = self.now.since(Time::ZERO).as_secs_f64();
        self.asked.push(format!("{seconds} {what}"));
    }

    fn handle(&mut self, input: Input) {
        self.watch.handle(self.now, input);
        while let Some(output) = self.watch.poll() {
            match output {
                Output::Find(search) => {
                    self.log(&format!("find {search:?}"));
                    let (job, living) = (self.job, self.living);
                    self.watch.handle(self.now, Input::Found { job, living });
                }
                Output::WatchExit(pid) => self.log(&format!("watch {pid}")),
                Output::Sample => {
                    self.log("sample");
                    let sample = self.sample();
                    self.watch.handle(self.now, sample);
                }
                Output::Report { occasion, number } => {
                    self.log(&format!("report {number}: {occasion:?}"));
                }
                Output::Unseen(unseen) => self.log(&format!("warn of {unseen:?}")),
                Output::End(end) => {
                    self.log(&format!("{end:?}"));
                    assert_eq!(self.end.replace(end), None);
                }
            }
        }
    }

    fn sample(&mut self) -> Input {
        let text = match self.samples.len() {
            1 => self.samples.front().copied(),
            _ => self.samples.pop_front(),
        };
        let mut recording = recording(Duration::ZERO, &[text.unwrap()]);
        let began = self.now;
        self.now = self.now + self.takes;
        self.written += self.writes;
        let progress = Progress {
            written: self.written,
        };
        Input::Sampled {
            began,
            frames: recording.frames,
            snapshot: Box::new(recording.samples.remove(0).snapshot),
            progress: [(Rank(0), progress)].into(),
        }
    }

    /// Advances the clock to this second.
    fn until(&mut self, second: impl Into<f64>) {
        let end = Time::ZERO + Duration::from_secs_f64(second.into());
        while let Some(next) = self.watch.deadline().filter(|&next| next < end) {
            self.now = self.now.max(next);
            self.handle(Input::Tick);
        }
        self.now = self.now.max(end);
    }

    /// Takes the actions asked for since the last call.
    fn asked(&mut self) -> String {
        std::mem::take(&mut self.asked).join("\n")
    }

    fn count(&self, what: &str) -> usize {
        self.asked.iter().filter(|it| it.contains(what)).count()
    }
}

#[test]
fn the_job_is_found_before_each_sample() {
    let mut world = World::new(None, &[WAITS]);
    world.until(2);
    insta::assert_snapshot!(world.asked(), @"
    0 find Job
    0 watch 7
    0 sample
    1 find Job
    1 watch 7
    1 sample
    ");
    // The next sample is due a twelfth of the idle time after the end of the previous one.
    world.takes = Duration::from_millis(500);
    world.until(5);
    let samples: Vec<String> = std::mem::take(&mut world.asked);
    let samples: Vec<&String> = samples.iter().filter(|it| it.ends_with("sample")).collect();
    assert_eq!(samples, ["2 sample", "3.5 sample"]);
}

#[test]
fn a_hang_is_reported_once_until_the_job_moves() {
    let mut world = World::new(None, &[WAITS]);
    world.until(40);
    assert_eq!(world.count("report"), 1);
    assert!(world.asked.contains(&"12 report 1: Idle(12s)".to_owned()));
    // The job writes for a while, and then hangs again.
    world.writes = 1;
    world.until(50);
    world.writes = 0;
    world.until(80);
    assert_eq!(world.count("report"), 2);
    assert_eq!(world.count("report 2"), 1);
}

#[test]
fn reports_of_one_job_are_bounded_except_the_last() {
    let mut world = World::new(Some(1000), &[WAITS]);
    for hang in 0_u32..30 {
        world.writes = 1;
        world.until(30 * hang + 5);
        world.writes = 0;
        world.until(30 * hang + 30);
    }
    let most = usize::try_from(MAX_REPORTS).unwrap();
    assert_eq!(world.count("report"), most);
    world.until(1000);
    assert_eq!(world.count("report"), most + 1);
    assert_eq!(world.count("report 11: Limit"), 1);
}

#[test]
fn before_the_limit_a_few_samples_come_with_a_report() {
    // These samples are reported even if the job moves.
    for (limit, expected) in [
        (
            // They begin five seconds before the limit, and are a quarter of those five seconds apart.
            100_u32,
            &[
                "95 sample",
                "96.25 sample",
                "97.5 sample",
                "97.5 report 1: Limit(2.5s)",
            ][..],
        ),
        (
            // They begin after half of a short limit.
            4,
            &[
                "2 sample",
                "2.5 sample",
                "3 sample",
                "3 report 1: Limit(1s)",
            ],
        ),
    ] {
        let mut world = World::new(Some(limit.into()), &[WAITS]);
        world.writes = 1;
        world.until(f64::from(limit) - 0.5);
        let from = world.asked.iter().position(|it| it == expected[0]);
        let asked = world.asked.split_off(from.unwrap());
        let of_note = |it: &&String| it.contains("sample") || it.contains("report");
        let asked: Vec<&String> = asked.iter().filter(of_note).collect();
        assert_eq!(asked[..expected.len()], *expected, "{limit}");
        // A job that outlives its limit is still watched.
        world.asked.clear();
        world.until(f64::from(limit) + 20.0);
        assert!(world.count("sample") > 10 && world.count("report") == 0);
    }
}

#[test]
fn an_exit_leads_to_a_search_and_to_no_sample() {
    let mut world = World::new(None, &[WAITS]);
    world.until(1.5);
    world.asked.clear();
    // The launcher has exited; a rank is still alive.
    world.job = Job::NotFound;
    world.handle(Input::Exited);
    insta::assert_snapshot!(world.asked(), @"
    1.5 find Job
    1.5 watch 10
    ");
    world.until(2.5);
    insta::assert_snapshot!(world.asked(), @"
    2 find Ranks
    2 watch 10
    2 sample
    ");
    // The pid that the user named may have been reused, so the watch does not search for it again.
    world.job = Job::Found;
    world.living = None;
    world.handle(Input::Exited);
    insta::assert_snapshot!(world.asked(), @"
    2.5 find Ranks
    2.5 Gone
    ");
    assert_eq!((world.end, world.watch.deadline()), (Some(End::Gone), None));
}

#[test]
fn a_watch_of_nothing_ends() {
    let mut world = World::new(None, &[WAITS]);
    (world.job, world.living) = (Job::NotFound, None);
    world.until(9);
    insta::assert_snapshot!(world.asked(), @"
    0 find Job
    0 NotFound
    ");
}

#[test]
fn a_launcher_without_ranks_is_waited_for() {
    let mut world = World::new(None, &[""]);
    world.living = None;
    world.until(30);
    assert_eq!((world.count("watch 7"), world.end), (30, None));
}

#[test]
fn a_signal_ends_a_watch_in_every_state() {
    let mut world = World::new(None, &[WAITS]);
    world.until(3);
    world.handle(Input::Signal(15));
    assert_eq!(world.end, Some(End::Signal(15)));
    world.asked.clear();
    // Later events have no effect.
    world.handle(Input::Exited);
    world.handle(Input::Signal(2));
    world.until(30);
    assert!(world.asked.is_empty());
    for answers in 0..2 {
        let mut world = World::new(None, &[WAITS]);
        world.watch.handle(Time::ZERO, Input::Tick);
        if answers > 0 {
            let (job, living) = (Job::Found, Some(10));
            world.watch.handle(Time::ZERO, Input::Found { job, living });
        }
        while world.watch.poll().is_some() {}
        world.handle(Input::Signal(1));
        assert_eq!(world.end, Some(End::Signal(1)), "{answers}");
    }
}

#[test]
fn a_watch_without_access_ends_after_two_samples() {
    let mut world = World::new(None, &[REFUSED, WAITS, REFUSED, WAITS]);
    world.until(9);
    assert_eq!(world.end, None, "a process that exits looks like that once");
    let mut world = World::new(None, &[WAITS, REFUSED]);
    world.until(9);
    let unseen = [(Missing::NotPermitted, RankSet::range(0..4))].into();
    assert_eq!(world.end, Some(End::NoAccess { unseen }));
    assert_eq!(world.count("sample"), 3);
    let mut world = World::new(None, &["0-3: unproved"]);
    world.until(9);
    let unseen = [(Missing::Unproved, RankSet::range(0..4))].into();
    assert_eq!(world.end, Some(End::NoAccess { unseen }));
    assert_eq!(world.count("sample"), 2);
}

#[test]
fn a_watch_of_nodes_that_cannot_be_reached_ends() {
    for (text, ends) in [
        ("0-1: not started\n2-3: lost", true),
        ("0-1: gone\n2-3: lost", true),
        ("0-1: gone\n2-3: not found", true),
        ("0-1: main@a.c:1 > f@a.c:2 = poll 0\n2-3: lost", false),
        ("0-1: silent\n2-3: lost", false),
    ] {
        let mut world = World::new(None, &[text]);
        world.until(9);
        assert_eq!(world.end.is_some(), ends, "{text}");
        // The end has the reasons.
        assert_eq!(world.count("warn") == 0, ends, "{text}");
    }
}

/// A job with ranks that are out of sight is never idle, so the user has to know.
#[test]
fn ranks_that_stay_unseen_are_warned_of_once() {
    let seen = "0-2: main@a.c:1 > MPI_Barrier!libmpi.so = running 100\n";
    let lost = &*format!("{seen}3: lost").leak();
    let more = &*format!("{seen}3: lost\n4: not permitted").leak();
    let gone = &*format!("{seen}3: gone").leak();
    let mut world = World::new(
        None,
        &[lost, gone, lost, lost, lost, more, more, lost, lost],
    );
    world.until(30);
    let warnings: Vec<&String> = world
        .asked
        .iter()
        .filter(|it| it.contains("warn"))
        .collect();
    insta::assert_debug_snapshot!(warnings, @r#"
    [
        "3 warn of {AgentLost(\"n2\"): RankSet(3)}",
        "6 warn of {NotPermitted: RankSet(4)}",
    ]
    "#);
}
