//! The screen, driven by hand: keys and answers go in, and pictures come out.

use base::{Rank, RankSet};
use dvm::{
    machine::{Failure, OutputFiles, Restored, Start, Tasks, UsageReport, Way, Wishes},
    queue::{Array, Hold, Over, TaskId},
};
use ratatui::{Terminal, backend::TestBackend};

use super::*;
use crate::top::{
    draw::{Colors, draw},
    keys::Key,
    tail::News,
};

/// The time of day of all pictures.
const WALL: Wall = Wall(10_000_000);

fn job(id: u32, name: &str) -> Record {
    Record {
        needs: Default::default(),
        id: JobId(id),
        way: Way::Detached,
        name: name.to_owned(),
        command: name.to_owned(),
        wishes: Wishes::default(),
        slots: 4,
        time_limit: None,
        submitted: Wall(9_000_000),
        started: None,
        ended: None,
        tasks: Tasks {
            waiting: RankSet::single(Rank(0)),
            ..Tasks::default()
        },
        hosts: HostList::default(),
        output: Some(OutputFiles {
            stdout: "/w/rally-%j.out".into(),
            stderr: None,
        }),
        failure: None,
        requeued: RankSet::new(),
        paused: RankSet::new(),
        spent: base::Usage::default(),
        requeues: BTreeMap::new(),
    }
}

fn running(id: u32, name: &str) -> Record {
    let mut record = job(id, name);
    record.tasks.running = std::mem::take(&mut record.tasks.waiting);
    record.started = Some(Wall(WALL.0 - 83_000));
    record.time_limit = Some(Duration::from_secs(600));
    record.hosts = HostList::from_iter(["n1", "n2"]);
    record
}

fn held(id: u32, name: &str) -> Record {
    let mut record = job(id, name);
    record.wishes.hold = Hold::ByUser;
    record
}

fn failed(id: u32, name: &str) -> Record {
    let mut record = running(id, name);
    record.tasks.failed = std::mem::take(&mut record.tasks.running);
    record.ended = Some((Wall(WALL.0 - 1000), Over::Failed));
    record.failure = Some((0, Box::new(Failure::MachineLost)));
    record
}

fn node(name: &str, state: NodeStanding, free: u32) -> NodeLine {
    NodeLine {
        resources: Default::default(),
        name: name.to_owned(),
        number: base::NodeId(0),
        state,
        slots: 8,
        free,
        jobs: if free < 8 {
            vec![JobId(1), JobId(2)]
        } else {
            Vec::new()
        },
    }
}

/// A screen, and a machine that answers at once unless it is told to be silent.
struct Rig {
    top: Top,
    now: Time,
    jobs: Vec<Record>,
    nodes: Vec<NodeLine>,
    /// What the machine was told.
    orders: Vec<Ask>,
    /// What was asked and has no answer.
    asked: VecDeque<Ask>,
    /// What each job uses: milliseconds of CPU time, and bytes of memory.
    used: BTreeMap<JobId, (u64, u64)>,
    reads: Vec<PathBuf>,
    /// How many of these have an answer.
    read: usize,
    effects: Vec<Effect>,
    is_silent: bool,
}

impl Rig {
    fn new(rows: u16, columns: u16, jobs: Vec<Record>) -> Self {
        let size = WindowSize { rows, columns };
        let now = Time::ZERO;
        let nodes = vec![
            node("n1", NodeStanding::Up, 2),
            node("n2", NodeStanding::Drained, 8),
            node("n3", NodeStanding::Bad("its daemon was lost".to_owned()), 8),
        ];
        let mut rig = Self {
            top: Top::new(now, "main", size),
            now,
            jobs,
            nodes,
            orders: Vec::new(),
            asked: VecDeque::new(),
            used: BTreeMap::new(),
            reads: Vec::new(),
            read: 0,
            effects: Vec::new(),
            is_silent: false,
        };
        rig.top.handle(
            now,
            Input::Load(Some(["0.52", "1.48", "12.40"].map(str::to_owned))),
        );
        rig.pump();
        rig.tick(0);
        rig
    }

    fn pump(&mut self) {
        loop {
            while let Some(effect) = self.top.poll() {
                match effect {
                    Effect::Ask(ask) => self.asked.push_back(ask),
                    Effect::Measure(job) => self.measure(job),
                    Effect::Read(path, _) => self.reads.push(path),
                    effect => self.effects.push(effect),
                }
            }
            if self.is_silent {
                return;
            }
            let Some(ask) = self.asked.pop_front() else {
                return;
            };
            let said = self.answer(ask);
            self.top.handle(self.now, Input::Said(said));
        }
    }

    /// Says what a job uses, if that is known.
    fn measure(&mut self, job: JobId) {
        let Some((millis, resident)) = self.used.get(&job).copied() else {
            return;
        };
        let report = UsageReport {
            total: base::Usage {
                user: Duration::from_millis(millis),
                ..base::Usage::default()
            },
            resident,
            ..UsageReport::default()
        };
        let said = Ok(Reply::Usage(Box::new(report)));
        self.top.handle(self.now, Input::Measured(said));
    }

    fn answer(&mut self, ask: Ask) -> Said {
        let find = |id| self.jobs.iter().find(|record| record.id == id);
        Ok(match ask {
            Ask::Status => {
                let of = |state| self.jobs.iter().filter(|job| job.state() == state).count();
                let count = |state| u32::try_from(of(state)).unwrap();
                Reply::Status(Status {
                    resources: Default::default(),
                    name: "main".to_owned(),
                    since: Wall(WALL.0 - 3_723_000),
                    nodes: 3,
                    usable: 1,
                    slots: 8,
                    free: 2,
                    waiting: count(State::Waiting) + count(State::Held),
                    running: count(State::Running),
                    trouble: None,
                    is_going_down: false,
                    restored: Restored::default(),
                })
            }
            Ask::Nodes => Reply::Nodes(self.nodes.clone()),
            Ask::Jobs { .. } => Reply::Jobs {
                records: self.jobs.clone(),
                before: None,
            },
            Ask::Explain(id) => {
                let record = find(id).cloned().ok_or(NotDone::NoSuchJob(id))?;
                let task = TaskId {
                    job: JobId(1),
                    index: None,
                };
                let why = match record.state() {
                    State::Held => Reason::Held(Hold::ByUser),
                    _ => Reason::Head {
                        waits_for: vec![task],
                    },
                };
                Reply::Explained(Box::new(Explained {
                    record,
                    why,
                    ahead: Vec::new(),
                    ahead_count: 0,
                    start: Start::AfterUnlimited(task),
                    sooner: Vec::new(),
                }))
            }
            Ask::Hold(id) if find(id).is_none_or(|record| record.ended.is_some()) => {
                return Err(NotDone::IsOver(id));
            }
            order => {
                self.orders.push(order);
                Reply::Done
            }
        })
    }

    fn tick(&mut self, seconds: u64) {
        self.now = self.now + Duration::from_secs(seconds);
        self.top.handle(self.now, Input::Tick(WALL));
        self.pump();
    }

    fn press(&mut self, keys: &str) {
        for key in keys.chars() {
            self.key(Key::Char(key));
        }
    }

    fn key(&mut self, key: Key) {
        self.top.handle(self.now, Input::Key(key));
        self.pump();
    }

    /// Answers all looks at files.
    fn prints(&mut self, text: &[u8]) {
        while let Some(path) = self.reads.get(self.read).cloned() {
            self.read += 1;
            let news = News::Begins(text.to_vec());
            self.top.handle(self.now, Input::Read(Piece { path, news }));
            self.pump();
        }
    }

    fn terminal(&self) -> Terminal<TestBackend> {
        let WindowSize { rows, columns } = self.top.size;
        let mut terminal = Terminal::new(TestBackend::new(columns, rows)).unwrap();
        let draw = |frame: &mut ratatui::Frame<'_>| {
            draw(frame, &self.top, self.now, Colors::Used);
        };
        terminal.draw(draw).unwrap();
        terminal
    }

    /// Returns what is on the screen, without the blanks at the ends of lines.
    fn picture(&self) -> String {
        let terminal = self.terminal();
        let buffer = terminal.backend().buffer();
        let mut picture = String::new();
        for y in 0..buffer.area.height {
            let row = (0..buffer.area.width).map(|x| buffer[(x, y)].symbol());
            picture += row.collect::<String>().trim_end();
            picture.push('\n');
        }
        picture
    }
}

fn usual() -> Vec<Record> {
    let mut urgent = job(4, "urgent");
    urgent.wishes.priority = 5;
    let mut array = job(6, "sweep.sh");
    let indexes: RankSet = "1-100".parse().unwrap();
    array.wishes.array = Some(Array {
        indexes,
        running_max: None,
    });
    array.output.as_mut().unwrap().stdout = "/w/rally-%j-%i.out".into();
    array.started = Some(Wall(WALL.0 - 5000));
    array.tasks = Tasks {
        waiting: "21-100".parse().unwrap(),
        running: "19-20".parse().unwrap(),
        succeeded: "1-17".parse().unwrap(),
        failed: "18".parse().unwrap(),
        canceled: RankSet::new(),
    };
    array.hosts = HostList::from_iter(["n1"]);
    vec![
        running(1, "solver"),
        failed(2, "broken"),
        job(3, "a-program-with-a-rather-long-name"),
        urgent,
        held(5, "later"),
        array,
    ]
}

#[test]
fn the_usual_screen() {
    let mut rig = Rig::new(24, 80, usual());
    rig.prints(b"step 1\nstep 2\n");
    insta::assert_snapshot!(rig.picture(), @"
     main   up 1:02:03  load 0.52 1.48 12.40
     slots ███████████████░░░░░ 6/8  nodes 1/3  running 2  waiting 2  held 1
     Nodes 1/3 ─────────────────────────────────────────────────────────────────────
    NODE STATE               SLOTS JOBS
    n1   up       ████████░░   6/8 1,2
    n2   drained  ░░░░░░░░░░   0/8
    n3   bad      ░░░░░░░░░░   0/8 its daemon was lost
    ▶Jobs 1/5 ──────────────────────────────────────────────────────────────────────
    JOB NAME                  STATE   SLOTS TASKS    CPU TIME LIMIT NODES, REASON
      1 solver                running     4 -          - 1:23 10:00 n[1-2]
      6 sweep.sh              running     4 18/100     - 0:05     - n1, 1 failed
      4 urgent                waiting     4 -          -    -     - next, after 1
      3 a-program-with-a-rat… waiting     4 -          -    -     - next, after 1
      5 later                 held        4 -          -    -     - held by its user
     Output of job 1  /w/rally-1.out ───────────────────────────────────────────────
    step 1
    step 2






      ? help  q quit  Tab pane  e why  c cancel  h hold  r release  i details
    ");
    rig.press("a");
    rig.key(Key::End);
    rig.tick(2);
    insta::assert_snapshot!(rig.picture(), @"
     main   up 1:02:03  load 0.52 1.48 12.40
     slots ███████████████░░░░░ 6/8  nodes 1/3  running 2  waiting 2  held 1
     Nodes 1/3 ─────────────────────────────────────────────────────────────────────
    NODE STATE               SLOTS JOBS
    n1   up       ████████░░   6/8 1,2
    n2   drained  ░░░░░░░░░░   0/8
    n3   bad      ░░░░░░░░░░   0/8 its daemon was lost
    ▶Jobs 6/6, with those that are over ────────────────────────────────────────────
    JOB NAME              STATE   SLOTS TASKS  TIME LIMIT NODES, REASON
      1 solver            running     4 -      1:23 10:00 n[1-2]
      6 sweep.sh          running     4 18/100 0:05     - n1, 1 failed
      4 urgent            waiting     4 -         -     - next, after 1
      3 a-program-with-a… waiting     4 -         -     - next, after 1
      5 later             held        4 -         -     - held by its user
      2 broken            failed      4 -      1:22 10:00 the machine ended while it
     Output of job 2  /w/rally-2.out ───────────────────────────────────────────────







      ? help  q quit  Tab pane  e why  c cancel  h hold  r release  i details
    ");
}

#[test]
fn what_running_jobs_use_is_shown_where_there_is_room() {
    let mut rig = Rig::new(24, 100, Vec::new());
    rig.jobs = usual();
    let mut allocation = running(7, "allocation");
    allocation.way = Way::Allocation;
    rig.jobs.push(allocation);
    rig.used.insert(JobId(1), (1000, 300 << 20));
    rig.used.insert(JobId(6), (0, 5 << 40));
    rig.tick(2);
    rig.used.insert(JobId(1), (9000, 310 << 20));
    rig.tick(2);
    insta::assert_snapshot!(rig.picture(), @"
     main   up 1:02:03  load 0.52 1.48 12.40
     slots ███████████████░░░░░ 6/8  nodes 1/3  running 3  waiting 2  held 1
     Nodes 1/3 ─────────────────────────────────────────────────────────────────────────────────────────
    NODE STATE               SLOTS JOBS
    n1   up       ████████░░   6/8 1,2
    n2   drained  ░░░░░░░░░░   0/8
    n3   bad      ░░░░░░░░░░   0/8 its daemon was lost
    ▶Jobs 1/6 ──────────────────────────────────────────────────────────────────────────────────────────
    JOB NAME                     STATE   SLOTS TASKS    CPU   MEMORY TIME LIMIT NODES, REASON
      1 solver                   running     4 -        4.0  310 MiB 1:23 10:00 n[1-2]
      6 sweep.sh                 running     4 18/100   0.0 5120 GiB 0:05     - n1, 1 failed
      7 allocation               running     4 -          -        - 1:23 10:00 n[1-2]
      4 urgent                   waiting     4 -          -        -    -     - next, after 1
      3 a-program-with-a-rather… waiting     4 -          -        -    -     - next, after 1
      5 later                    held        4 -          -        -    -     - held by its user
     Output of job 1  /w/rally-1.out ───────────────────────────────────────────────────────────────────







      ? help  q quit  Tab pane  e why  c cancel  h hold  r release  i details  o keep output  a ended
    ");
    let columns = |rig: &mut Rig, columns| {
        let size = WindowSize { rows: 24, columns };
        rig.top.handle(rig.now, Input::Resized(size));
        let picture = rig.picture();
        let head = picture.lines().find(|line| line.starts_with("JOB"));
        head.unwrap().to_owned()
    };
    let heads: Vec<String> = [90, 85, 80, 75, 70, 60, 40]
        .into_iter()
        .map(|width| columns(&mut rig, width))
        .collect();
    insta::assert_snapshot!(heads.join("\n"), @"
    JOB NAME                   STATE   SLOTS TASKS    CPU   MEMORY TIME LIMIT NODES, REASON
    JOB NAME              STATE   SLOTS TASKS    CPU   MEMORY TIME LIMIT NODES, REASON
    JOB NAME                  STATE   SLOTS TASKS    CPU TIME LIMIT NODES, REASON
    JOB NAME             STATE   SLOTS TASKS    CPU TIME LIMIT NODES, REASON
    JOB NAME              STATE   SLOTS TASKS  TIME LIMIT NODES, REASON
    JOB NAME     STATE   SLOTS TASKS  TIME NODES, REASON
    JOB NAME     STATE   NODES, REASON
    ");
    // Nothing runs.
    rig.jobs.retain(|job| job.tasks.running.is_empty());
    rig.tick(2);
    assert!(!columns(&mut rig, 100).contains("CPU"));
}

/// A node that does not say what a job uses keeps nothing waiting.
#[test]
fn a_measurement_that_does_not_come_holds_nothing_up() {
    let mut rig = Rig::new(24, 100, usual());
    rig.jobs[0].name = "renamed".to_owned();
    for _ in 0..40 {
        rig.tick(1);
    }
    let picture = rig.picture();
    assert!(picture.contains("renamed"), "{picture}");
    assert!(!picture.contains("has not answered for"), "{picture}");
}

#[test]
fn a_small_screen_shows_one_pane() {
    let mut rig = Rig::new(12, 40, usual());
    insta::assert_snapshot!(rig.picture(), @"
     main   up 1:02:03  load 0.52 1.48 12.40
     slots ████████░░ 6/8  nodes 1/3  runnin
    ▶Jobs 1/5 ──────────────────────────────
    JOB NAME     STATE   NODES, REASON
      1 solver   running n[1-2]
      6 sweep.sh running n1, 1 failed
      4 urgent   waiting next, after 1
      3 a-progr… waiting next, after 1
      5 later    held    held by its user


      ? help  q quit  Tab pane  e why
    ");
    rig.press("1");
    insta::assert_snapshot!(rig.picture(), @"
     main   up 1:02:03  load 0.52 1.48 12.40
     slots ████████░░ 6/8  nodes 1/3  runnin
    ▶Nodes 1/3 ─────────────────────────────
    NODE STATE               SLOTS JOBS
    n1   up       ████████░░   6/8 1,2
    n2   drained  ░░░░░░░░░░   0/8
    n3   bad      ░░░░░░░░░░   0/8 its daemo




      ? help  q quit  Tab pane  d drain
    ");
    rig.press("3");
    rig.prints(b"step 1\n");
    insta::assert_snapshot!(rig.picture(), @"
     main   up 1:02:03  load 0.52 1.48 12.40
     slots ████████░░ 6/8  nodes 1/3  runnin
    ▶Output of job 1  /w/rally-1.out ───────
    step 1







      ? help  q quit  Tab pane  z zoom
    ");
    for (rows, columns) in [(1, 1), (2, 3), (3, 80), (4, 10), (5, 200), (24, 2)] {
        let size = WindowSize { rows, columns };
        rig.top.handle(rig.now, Input::Resized(size));
        rig.picture();
        rig.press("?");
        rig.picture();
        rig.key(Key::Esc);
    }
}

#[test]
fn a_wide_screen_with_many_jobs() {
    let mut jobs: Vec<Record> = (1..=10).map(|id| running(id, "solver")).collect();
    jobs.extend((11..=10_000).map(|id| job(id, &format!("job-{id}"))));
    let mut rig = Rig::new(50, 200, jobs);
    let text: String = (0..100).map(|line| format!("line {line}\n")).collect();
    rig.prints(text.as_bytes());
    for _ in 0..20 {
        rig.key(Key::PageDown);
    }
    rig.tick(2);
    insta::assert_snapshot!(rig.picture(), @"
     main   up 1:02:03  load 0.52 1.48 12.40
     slots ███████████████░░░░░ 6/8  nodes 1/3  running 10  waiting 9990
     Nodes 1/3 ─────────────────────────────────────────────────────────────────────────────────────────────────────────────────────────────────────────────────────────────────────────────────────────────
    NODE STATE               SLOTS JOBS
    n1   up       ████████░░   6/8 1,2
    n2   drained  ░░░░░░░░░░   0/8
    n3   bad      ░░░░░░░░░░   0/8 its daemon was lost
    ▶Jobs 781/10000 ────────────────────────────────────────────────────────────────────────────────────  Output ───────────────────────────────────────────────────────────────────────────────────────────
    JOB NAME     STATE   SLOTS TIME LIMIT NODES, REASON                                                   job 781 has not started
    742 job-742  waiting     4    -     - next, after 1
    743 job-743  waiting     4    -     - next, after 1
    744 job-744  waiting     4    -     - next, after 1
    745 job-745  waiting     4    -     - next, after 1
    746 job-746  waiting     4    -     - next, after 1
    747 job-747  waiting     4    -     - next, after 1
    748 job-748  waiting     4    -     - next, after 1
    749 job-749  waiting     4    -     - next, after 1
    750 job-750  waiting     4    -     - next, after 1
    751 job-751  waiting     4    -     - next, after 1
    752 job-752  waiting     4    -     - next, after 1
    753 job-753  waiting     4    -     - next, after 1
    754 job-754  waiting     4    -     - next, after 1
    755 job-755  waiting     4    -     - next, after 1
    756 job-756  waiting     4    -     - next, after 1
    757 job-757  waiting     4    -     - next, after 1
    758 job-758  waiting     4    -     - next, after 1
    759 job-759  waiting     4    -     - next, after 1
    760 job-760  waiting     4    -     - next, after 1
    761 job-761  waiting     4    -     - next, after 1
    762 job-762  waiting     4    -     - next, after 1
    763 job-763  waiting     4    -     - next, after 1
    764 job-764  waiting     4    -     - next, after 1
    765 job-765  waiting     4    -     - next, after 1
    766 job-766  waiting     4    -     - next, after 1
    767 job-767  waiting     4    -     - next, after 1
    768 job-768  waiting     4    -     - next, after 1
    769 job-769  waiting     4    -     - next, after 1
    770 job-770  waiting     4    -     - next, after 1
    771 job-771  waiting     4    -     - next, after 1
    772 job-772  waiting     4    -     - next, after 1
    773 job-773  waiting     4    -     - next, after 1
    774 job-774  waiting     4    -     - next, after 1
    775 job-775  waiting     4    -     - next, after 1
    776 job-776  waiting     4    -     - next, after 1
    777 job-777  waiting     4    -     - next, after 1
    778 job-778  waiting     4    -     - next, after 1
    779 job-779  waiting     4    -     - next, after 1
    780 job-780  waiting     4    -     - next, after 1
    781 job-781  waiting     4    -     - next, after 1
      ? help  q quit  Tab pane  e why  c cancel  h hold  r release  i details  o keep output  a ended
    ");
    let explained = rig.top.reasons.len();
    assert!((1..=REASONS_MAX).contains(&explained), "{explained}");
    rig.key(Key::End);
    assert!(rig.picture().contains("job-10000"));
    assert!(rig.picture().contains("Jobs 10000/10000"));
    rig.key(Key::Home);
    assert!(rig.picture().contains("Jobs 1/10000"));
}

/// Nothing that others have named or printed reaches the terminal but as text.
#[test]
fn hostile_names_and_output_are_text() {
    let hostile = "\u{1b}[2J\u{1b}]0;title\u{7}\r\n\t\u{202e}evil\u{9b}31m漢字🙂e\u{301}";
    let mut record = running(1, &hostile.repeat(20));
    record.hosts = HostList::from_iter([hostile]);
    record.command = hostile.to_owned();
    record.output.as_mut().unwrap().stdout = hostile.into();
    let mut broken = failed(2, hostile);
    broken.failure = Some((0, Box::new(Failure::Refused(hostile.to_owned()))));
    let mut rig = Rig::new(24, 120, vec![record, broken]);
    rig.nodes = vec![
        node(hostile, NodeStanding::Up, 0),
        node("n2", NodeStanding::Bad(hostile.to_owned()), 0),
    ];
    rig.press("a");
    rig.tick(2);
    rig.prints(hostile.repeat(30).as_bytes());
    let check = |rig: &Rig| {
        let terminal = rig.terminal();
        for cell in terminal.backend().buffer().content() {
            let is_harmful = |character: char| {
                character.is_control() || ('\u{202a}'..='\u{202e}').contains(&character)
            };
            assert!(!cell.symbol().contains(is_harmful), "{cell:?}");
        }
    };
    check(&rig);
    let escaped = r"\u{1b}[2J\u{1b}]0;title";
    assert_eq!(
        rig.picture().matches(escaped).count(),
        7,
        "{}",
        rig.picture()
    );
    rig.press("i");
    check(&rig);
    assert!(rig.picture().contains("name:") && rig.picture().contains(escaped));
    rig.key(Key::Esc);
    rig.press("1d");
    check(&rig);
    rig.press("n");
    rig.press("i");
    check(&rig);
}

#[test]
fn orders_are_confirmed() {
    let mut rig = Rig::new(24, 80, usual());
    rig.press("c");
    insta::assert_snapshot!(rig.picture(), @"
     main   up 1:02:03  load 0.52 1.48 12.40
     slots ███████████████░░░░░ 6/8  nodes 1/3  running 2  waiting 2  held 1
     Nodes 1/3 ─────────────────────────────────────────────────────────────────────
    NODE STATE               SLOTS JOBS
    n1   up       ████████░░   6/8 1,2
    n2   drained  ░░░░░░░░░░   0/8
    n3   bad      ░░░░░░░░░░   0/8 its daemon was lost
    ▶Jobs 1/5 ──────────────────────────────────────────────────────────────────────
    JOB NAME                  STATE   SLOTS TASKS    CPU TIME LIMIT NODES, REASON
      1 solver               ┌ Sure? ─────────────────────┐23 10:00 n[1-2]
      6 sweep.sh             │ Cancel job 1?              │05     - n1, 1 failed
      4 urgent               │                            │ -     - next, after 1
      3 a-program-with-a-rat…│ y: yes   any other key: no │ -     - next, after 1
      5 later                └────────────────────────────┘ -     - held by its user
     Output of job 1  /w/rally-1.out ───────────────────────────────────────────────








      ? help  q quit  Tab pane  e why  c cancel  h hold  r release  i details
    ");
    for key in [
        Key::Char('n'),
        Key::Char('q'),
        Key::Esc,
        Key::Enter,
        Key::Down,
    ] {
        rig.press("c");
        rig.key(key);
        assert_eq!(rig.top.dialog, Dialog::None);
    }
    assert_eq!(
        (rig.orders.as_slice(), rig.effects.as_slice()),
        (&[][..], &[][..])
    );
    rig.press("cy");
    assert!(rig.picture().contains(" job 1 is being canceled"));
    // The array, with the tasks that are left.
    rig.key(Key::Down);
    rig.press("c");
    assert!(
        rig.picture()
            .contains("Cancel job 6, with 82 tasks that wait or run?")
    );
    rig.press("Y");
    rig.press("hyry");
    rig.press("1dy");
    rig.key(Key::Down);
    rig.press("ry");
    let nodes = |name: &str| HostList::from_iter([name]);
    assert_eq!(
        rig.orders,
        [
            Ask::Cancel(JobId(1), None),
            Ask::Cancel(JobId(6), None),
            Ask::Hold(JobId(6)),
            Ask::Release(JobId(6)),
            Ask::Drain(nodes("n1")),
            Ask::Resume(nodes("n2")),
        ]
    );
    // What the machine refuses is said.
    rig.press("2a");
    rig.tick(2);
    rig.key(Key::End);
    rig.press("hy");
    assert!(rig.picture().contains(" job 2 is over"));
    // Keys of the other pane say where they work.
    rig.press("d");
    assert!(
        rig.picture()
            .contains(" d is about nodes: Tab goes to them")
    );
    rig.press("1c");
    assert!(rig.picture().contains(" c is about jobs: Tab goes to them"));
    rig.tick(10);
    assert!(rig.top.notice.is_none());
}

#[test]
fn a_text_of_long_lines_is_scrolled_to_its_end() {
    let mut jobs = usual();
    for job in &mut jobs {
        job.command = "word ".repeat(400);
    }
    let mut rig = Rig::new(24, 80, jobs);
    rig.press("i");
    assert!(rig.picture().contains("more"));
    rig.key(Key::End);
    let end = rig.picture();
    assert!(
        end.contains("output: /w/") && !end.contains("more"),
        "{end}"
    );
}

#[test]
fn texts_are_shown_and_scrolled() {
    let mut rig = Rig::new(24, 80, usual());
    rig.key(Key::Down);
    rig.key(Key::Down);
    rig.press("e");
    insta::assert_snapshot!(rig.picture(), @"
     main   up 1:02:03  load 0.52 1.48 12.40
     slots ███████████████░░░░░ 6/8  nodes 1/3  running 2  waiting 2  held 1
     Nodes 1/3 ─────────────────────────────────────────────────────────────────────
    NODE STATE               SLOTS JOBS
    n1   up       ████████░░   6/8 1,2
    n2   drained  ░░░░░░░░░░   0/8
    n3   bad      ░░░░░░░░░░   0/8 its daemon was lost
    ▶Jobs 3/5 ──────────────────────────────────────────────────────────────────────
    JOB NAME                  STATE   SLOTS TASKS    CPU TIME LIMIT NODES, REASON
      1 sol┌ Job 4, explained ──────────────────────────────────────────────┐
      6 swe│ job 4, waiting: it is the next one, and waits for the end of 1 │led
      4 urg│   ahead: no job                                                │er 1
      3 a-p│   start: after job 1, which has no time limit                  │er 1
      5 lat└────────────────────────────────────────────────────────────────┘ts user
     Output ────────────────────────────────────────────────────────────────────────
     job 4 has not started







      ? help  q quit  Tab pane  e why  c cancel  h hold  r release  i details
    ");
    rig.key(Key::Esc);
    rig.press("i");
    insta::assert_snapshot!(rig.picture(), @"
     main   up 1:02:03  load 0.52 1.48 12.40
     slots ███████████████░░░░░ 6/8  nodes 1/3  running 2  waiting 2  held 1
     Nodes 1/3 ─────────────────────────────────────────────────────────────────────
    NODE STATE               SLOTS JOBS
    n1   up       ████████░░   6/8 1,2
    n2   drained  ░░░░░░░░░░   0/8
    n3   bad      ░░░░░░░░░░   0/8 its daemon was lost
    ▶Jobs 3/5 ────────────────┌ Job 4 ───────────────────┐──────────────────────────
    JOB NAME                  │ job 4, waiting           │IME LIMIT NODES, REASON
      1 solver                │   name: urgent           │:23 10:00 n[1-2]
      6 sweep.sh              │   command: urgent        │:05     - n1, 1 failed
      4 urgent                │   slots: 4               │  -     - next, after 1
      3 a-program-with-a-rat… │   priority: 5            │  -     - next, after 1
      5 later                 │   submitted: 16 min ago  │  -     - held by its user
     Output ──────────────────│   output: /w/rally-4.out │──────────────────────────
     job 4 has not started    └──────────────────────────┘







      ? help  q quit  Tab pane  e why  c cancel  h hold  r release  i details
    ");
    rig.press("q?");
    insta::assert_snapshot!(rig.picture(), @"
     main   up 1:02:03  load 0.52 1.48 12.40
     sl┌ Keys ─────────────────────────────────────────────────────────────────┐
     No│ Everywhere                                                            │────
    NOD│   Tab, 1, 2, 3     go to another pane: nodes, jobs, output            │
    n1 │   arrows, j, k     move; in the output, left and right shift it       │
    n2 │   PgUp, PgDn       move by a page                                     │
    n3 │   Home, End, g, G  go to the first or the last line                   │
    ▶Jo│   z                give the pane the whole screen, and back           │────
    JOB│   ?                show these keys                                    │N
      1│   Ctrl-L           draw the screen again                              │
      6│   Ctrl-Z           stop, until the shell's `fg`                       │
      4│   q, Ctrl-C        quit; the machine goes on                          │1
      3│                                                                       │1
      5│ Jobs                                                                  │user
     Ou│   Enter, i         show everything about the job                      │────
     jo│   e                explain why it waits, and when it starts           │
       │   h                hold it: keep it from starting                     │
       │   r                release it: let it start                           │
       │   c                cancel it                                          │
       │   a                list the last jobs that are over too, or not       │
       │   o                keep its output on the screen, or no more          │
       └ ↓ more ───────────────────────────────────────────────────────────────┘

      ? help  q quit  Tab pane  e why  c cancel  h hold  r release  i details
    ");
    rig.key(Key::End);
    assert!(rig.picture().contains("Orders are confirmed with y."));
    rig.key(Key::Esc);
    assert_eq!(rig.effects, []);
    rig.press("1i");
    assert!(rig.picture().contains("slots: 2 of 8 free"));
    rig.key(Key::Ctrl('c'));
    assert_eq!(rig.effects, [Effect::Quit]);
}

#[test]
fn the_cursor_stays_on_its_job() {
    let mut rig = Rig::new(24, 80, usual());
    rig.key(Key::Down);
    rig.key(Key::Down);
    assert_eq!(rig.top.selected, Some(JobId(4)));
    // Others come and go, and the job itself starts and ends.
    rig.jobs.insert(0, running(9, "new"));
    rig.tick(2);
    assert_eq!(rig.top.selected, Some(JobId(4)));
    let at = rig.jobs.iter().position(|job| job.id == JobId(4)).unwrap();
    rig.jobs[at] = failed(4, "urgent");
    rig.tick(2);
    assert_eq!(rig.top.selected, Some(JobId(4)));
    assert!(rig.picture().contains("failed    ") && rig.picture().contains("the machine ended"));
    rig.key(Key::Down);
    rig.tick(2);
    assert!(!rig.top.listed().any(|job| job.id == JobId(4)));
    // The machine has forgotten the job under the cursor, and then all.
    let id = rig.top.selected.unwrap();
    rig.jobs.retain(|job| job.id != id);
    rig.tick(2);
    assert_ne!(rig.top.selected, Some(id));
    rig.jobs.clear();
    rig.tick(2);
    assert_eq!(rig.top.selected, None);
    assert!(rig.picture().contains(" no jobs"));
    rig.press("ehrcoi[]sa");
    assert_eq!(rig.orders, []);
}

#[test]
fn the_output_is_that_of_the_chosen_job_and_task() {
    let mut jobs = usual();
    jobs[0].output.as_mut().unwrap().stderr = Some("/w/errors".into());
    let mut attached = running(7, "front");
    attached.output = None;
    jobs.push(attached);
    let mut rig = Rig::new(24, 80, jobs);
    let last = |rig: &Rig| rig.reads.last().unwrap().display().to_string();
    assert_eq!(last(&rig), "/w/rally-1.out");
    rig.prints(b"");
    assert!(rig.picture().contains(" nothing yet"));
    rig.press("s");
    rig.prints(b"");
    assert_eq!(last(&rig), "/w/errors");
    rig.press("s");
    rig.prints(b"");
    // A task that runs; then the ones before and after it.
    rig.key(Key::Down);
    rig.prints(b"");
    assert_eq!(last(&rig), "/w/rally-6-19.out");
    rig.press("[");
    rig.prints(b"");
    assert_eq!(last(&rig), "/w/rally-6-18.out");
    rig.press("]]]]");
    rig.prints(b"");
    assert_eq!(last(&rig), "/w/rally-6-20.out");
    // The job of a front has no file. It is the last one that runs.
    rig.key(Key::Down);
    assert!(
        rig.picture()
            .contains("job 7 prints to the terminal of its `rally run`")
    );
    rig.key(Key::Down);
    assert!(rig.picture().contains("job 4 has not started"));
    // One job is kept, wherever the cursor is.
    rig.key(Key::Home);
    rig.press("o");
    rig.key(Key::Down);
    rig.tick(1);
    rig.prints(b"");
    assert_eq!(last(&rig), "/w/rally-1.out");
    assert!(rig.picture().contains("Output of job 1, kept"));
    let path = PathBuf::from("/w/rally-1.out");
    let news = News::Unreadable("Permission denied".to_owned());
    rig.top.handle(rig.now, Input::Read(Piece { path, news }));
    assert!(
        rig.picture()
            .contains(" the file cannot be read: Permission denied")
    );
}

#[test]
fn a_silent_machine_is_told_and_holds_nothing_up() {
    let mut rig = Rig::new(24, 80, usual());
    rig.is_silent = true;
    rig.tick(2);
    rig.press("cy");
    for _ in 0..20 {
        rig.tick(1);
    }
    let picture = rig.picture();
    assert!(
        picture.contains("machine `main` has not answered for 20 s"),
        "{picture}"
    );
    // One look, and as many orders as there may be.
    for _ in 0..10 {
        rig.press("cy");
    }
    assert_eq!(rig.asked.len(), 3 + ORDERS_MAX);
    assert!(rig.picture().contains(" the machine has not answered yet"));
    rig.key(Key::Down);
    assert_eq!(rig.top.selected, Some(JobId(6)));
    rig.is_silent = false;
    rig.pump();
    assert!(!rig.picture().contains("has not answered for"));
    assert_eq!(rig.orders.len(), ORDERS_MAX);
    // The machine was slow: it is asked less often.
    rig.is_silent = true;
    rig.tick(4);
    assert_eq!(rig.asked.len(), 0);
    rig.press("q");
    assert_eq!(rig.effects, [Effect::Quit]);
}

#[test]
fn nothing_depends_on_colors() {
    let rig = Rig::new(24, 80, usual());
    let mut terminal = Terminal::new(TestBackend::new(80, 24)).unwrap();
    let draw = |frame: &mut ratatui::Frame<'_>| draw(frame, &rig.top, rig.now, Colors::None);
    terminal.draw(draw).unwrap();
    for cell in terminal.backend().buffer().content() {
        let colors = (cell.fg, cell.bg);
        let none = ratatui::style::Color::Reset;
        assert_eq!(colors, (none, none), "{cell:?}");
    }
}
