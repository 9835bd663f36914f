//! Kills of the controller at random moments. RALLY_KILLS sets how often, and RALLY_KILLS_SEED repeats the moments, as far as the
//! kernel lets them be repeated.

use std::{
    collections::BTreeSet,
    time::{Duration, SystemTime, UNIX_EPOCH},
};

use super::*;

/// Kills without RALLY_KILLS: one in each scene. Each run has another seed.
const KILLS: u64 = 5;
/// Processes that submit at the same time.
const SUBMITTERS: usize = 3;
/// Jobs that one `rally wait` waits for: it has to end within the deadline of a command.
const WAITED: usize = 16;

/// What a job does: it says which one it is when it starts, and when it ends.
const SAY: &str = "me=${FRONT:-$RALLY_QUEUE_JOB ${RALLY_ARRAY_INDEX:-0}}; echo start $me >> log; sleep 0.01; echo end $me >> log";

/// Random numbers (splitmix64).
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }
}

fn number(variable: &str) -> Option<u64> {
    let text = std::env::var(variable).ok()?;
    Some(text.parse().expect("a number"))
}

/// What happens while the controller is killed, apart from jobs that run.
#[derive(Clone, Copy, Debug)]
enum Scene {
    /// Nothing else.
    Jobs,
    Submits,
    Down(&'static str),
    Front,
}

impl Scene {
    const ALL: [Self; 5] = [
        Self::Submits,
        Self::Front,
        Self::Down("--now"),
        Self::Jobs,
        Self::Down("--wait"),
    ];
}

/// A `rally run` that was on the machine, with the name that its job says.
struct Front {
    name: String,
    ended: Finished,
}

/// The jobs that the test knows of.
#[derive(Default)]
struct Known {
    /// Arrays of eight tasks that may run once.
    once: BTreeSet<String>,
    /// Arrays that may run again.
    again: BTreeSet<String>,
    /// Jobs of the submitters whose numbers were told.
    told: BTreeSet<String>,
    fronts: Vec<Front>,
    /// The most jobs that may be there besides: of fronts, and of submitters that were not told the number.
    others: usize,
}

impl Known {
    fn all(&self) -> BTreeSet<&String> {
        let arrays = self.once.iter().chain(&self.again);
        arrays.chain(&self.told).collect()
    }
}

/// How often each task has started and ended, by `JOB INDEX`, or by the name of its front.
#[derive(Debug, Default)]
struct Log {
    starts: BTreeMap<String, u32>,
    ends: BTreeMap<String, u32>,
}

impl Log {
    fn read(sandbox: &Sandbox) -> Self {
        let mut log = Self::default();
        for line in sandbox.read("log").lines() {
            let (what, who) = line.split_once(' ').unwrap();
            let counts = match what {
                "start" => &mut log.starts,
                _ => &mut log.ends,
            };
            *counts.entry(who.to_owned()).or_default() += 1;
        }
        log
    }

    fn starts(&self, who: &str) -> u32 {
        self.starts.get(who).copied().unwrap_or(0)
    }

    fn ends(&self, who: &str) -> u32 {
        self.ends.get(who).copied().unwrap_or(0)
    }
}

/// Submits arrays, and kills the controller at a random moment of a scene.
fn round(machine: Machine<'_>, scene: Scene, pause: Duration, known: &mut Known) {
    let sandbox = machine.0;
    let submit = |options: &[&str]| {
        let common = ["-n", "1", "--output-to", "/dev/null", "--array", "1-8"];
        machine.submit(&[&common, options, &["sh", "-c", SAY]].concat())
    };
    known.once.insert(submit(&[]));
    known.again.insert(submit(&["--requeue"]));
    known.once.insert(submit(&["--max-running", "1"]));
    let controller = Pid::from_raw(machine.controller());
    let mut meanwhile = Vec::new();
    let mut front = None;
    match scene {
        Scene::Jobs => {}
        Scene::Submits => {
            // The first submission that fails is the last one, and its job may be there or not.
            known.others += SUBMITTERS;
            let script = format!(
                "while number=$(\"$RALLY\" submit --parsable -n 1 --output-to /dev/null sh -c '{SAY}'); do echo $number >> told; done"
            );
            let start = |_| sandbox.start(&mut sandbox.shell(&script));
            meanwhile.extend((0..SUBMITTERS).map(start));
        }
        Scene::Down(how) => meanwhile.push(sandbox.start(&mut sandbox.rally(&["down", how]))),
        Scene::Front => {
            known.others += 1;
            let name = format!("front{}", known.fronts.len());
            let args = ["run", "-q", "--on-machine", "main", "-n", "1"];
            let mut command = sandbox.rally(&args);
            command.args(["sh", "-c", SAY]).env("FRONT", &name);
            front = Some((name, sandbox.start(&mut command)));
        }
    }
    std::thread::park_timeout(pause);
    // A machine that was told to end may have ended before.
    let killed = signal::kill(controller, Signal::SIGKILL);
    assert!(
        killed.is_ok() || matches!(scene, Scene::Down(_)),
        "{killed:?}"
    );
    for process in meanwhile {
        process.end();
    }
    let ended = front.map(|(name, running)| Front {
        name,
        ended: running.end(),
    });
    known.fronts.extend(ended);
    sandbox.expect_no_process();
}

/// Returns the JSON rows of all jobs, by number.
fn rows(machine: &Machine<'_>) -> BTreeMap<String, serde_json::Value> {
    let listed = machine.out(&["queue", "--over=100000", "--message-format=json"]);
    let rows = listed.lines().map(|line| {
        let row: serde_json::Value = serde_json::from_str(line).unwrap();
        (row["job"].to_string(), row)
    });
    rows.collect()
}

/// Checks a job of the test with its row: nothing is forgotten, and nothing has run twice that may not.
fn check(job: &str, row: &serde_json::Value, known: &Known, log: &Log) {
    let may_again = known.again.contains(job);
    if known.told.contains(job) {
        let state = row["state"].as_str().unwrap();
        assert!(
            ["succeeded", "failed", "canceled"].contains(&state),
            "{row}"
        );
        let task = format!("{job} 0");
        assert!(log.starts(&task) <= 1, "{job} has run twice: {row}");
        assert!(
            state != "succeeded" || log.ends(&task) == 1,
            "{job} has not run: {row}"
        );
        return;
    }
    let of = |state: &str| row["tasks"][state].as_u64().unwrap();
    let (failed, canceled) = (of("failed"), of("canceled"));
    assert_eq!(of("succeeded") + failed + canceled, 8, "{row}");
    assert!(
        !may_again || failed + canceled == 0,
        "tasks are lost: {row}"
    );
    let indexes = 1..=8;
    let tasks = indexes.map(|index| format!("{job} {index}"));
    let mut ended = 0;
    for task in tasks {
        assert!(
            may_again || log.starts(&task) <= 1,
            "{task} has run twice: {row}"
        );
        ended += u64::from(log.ends(&task) > 0);
    }
    // One that was killed after its last word has failed all the same.
    assert!(ended >= of("succeeded"), "{ended} tasks have run: {row}");
}

#[test]
fn kills_at_any_moment_lose_no_job_and_run_none_twice() {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap();
    let seed = number("RALLY_KILLS_SEED").unwrap_or_else(|| u64::from(now.subsec_nanos()));
    let kills = number("RALLY_KILLS").unwrap_or(KILLS);
    // A test that fails shows it.
    println!("RALLY_KILLS={kills} RALLY_KILLS_SEED={seed}");
    let mut random = Random(seed);
    let sandbox = Sandbox::new();
    let nodes = ["--host", "localhost:4"];
    let mut machine = Machine::up(&sandbox, &nodes);
    let mut known = Known::default();
    for turn in 0..kills {
        let scene = Scene::ALL[usize::try_from(turn).unwrap() % Scene::ALL.len()];
        let pause = Duration::from_micros(random.next() % 100_000);
        println!("{turn}: {scene:?}, {pause:?}");
        round(machine, scene, pause, &mut known);
        machine = Machine::up(&sandbox, &nodes);
    }
    let told = fs::read_to_string(sandbox.path("told")).unwrap_or_default();
    for job in told.lines() {
        let is_new = !known.all().contains(&job.to_owned()) && known.told.insert(job.to_owned());
        assert!(is_new, "the number {job} was told twice");
    }
    let all = rows(&machine);
    for job in known.all() {
        assert!(all.contains_key(job), "job {job} is forgotten");
    }
    let all: Vec<&str> = all.keys().map(String::as_str).collect();
    for some in all.chunks(WAITED) {
        machine.run(&[&["wait"][..], some].concat());
    }
    let log = Log::read(&sandbox);
    let all = rows(&machine);
    let ours = known.all();
    for job in &ours {
        check(job, &all[*job], &known, &log);
    }
    let others = all.len() - ours.len();
    assert!(others <= known.others, "{others} jobs are of nobody");
    for Front { name, ended } in &known.fronts {
        assert!(log.starts(name) <= 1, "{name} has run twice: {ended:?}");
        let right = match ended.code() {
            0 => log.ends(name) == 1,
            // It came too late.
            120 => log.starts(name) == 0,
            code => code == 125,
        };
        assert!(right, "{name}: {ended:?}");
    }
    println!(
        "{} jobs, of which {} were told while the machine was killed",
        all.len(),
        known.told.len()
    );
    machine.down();
}
