//! What the screen shows, and what keys mean. A state machine without I/O: it gets keys, answers of the machine and pieces of a file,
//! and says what to ask, what to read, and when the program is over.
//!
//! | dialog | Ctrl-C | q | Esc | y | e, i | h, r, c, d | ? | Tab, z, arrows | explanation comes |
//! |---|---|---|---|---|---|---|---|---|---|
//! | none | quit | quit | unzoom | – | ask, or text | confirm | text | pane, zoom, move | text |
//! | confirm | quit | none | none | order, none | none | none | none | none | – |
//! | text | quit | none | none | none | none | none | none | scroll; others: none | text |
//!
//! Each order is confirmed: a key that was hit by mistake changes nothing.
//!
//! A *look* is a set of questions: the machine, its nodes, its jobs, and why those jobs wait that are on the screen. The next look
//! follows after a pause that grows with the time that the machine took.

use std::{
    collections::{BTreeMap, VecDeque},
    path::PathBuf,
    time::Duration,
};

use base::{HostList, JobId, Time};
use dvm::machine::{
    Ask, Explained, NodeLine, NodeStanding, NotDone, Reason, Record, Reply, State, Status, Wall,
    Way,
};
use message::visible;
use os::WindowSize;

use super::{
    dialog, help,
    keys::{Key, Move},
    layout::{self, Pane, Panes, Zoom},
    meter::Meter,
    output::Output,
    tail::{Piece, Since},
};
use crate::machine::{Said, details_text, explained_text, pause_after, resources, standing_word};

/// Jobs that are over and that the machine is asked for.
pub(super) const OVER_MAX: u32 = 50;
/// Jobs for which a look asks why they wait.
const REASONS_MAX: usize = 40;
/// Orders and questions of the user without an answer.
const ORDERS_MAX: usize = 4;
/// How long a notice stays, unless a key is hit before.
const NOTICE_TIME: Duration = Duration::from_secs(8);
/// The clock on the screen goes on so often.
const TICK: Duration = Duration::from_secs(1);

/// What happens to the program.
#[derive(Clone, Debug)]
pub(super) enum Input {
    Key(Key),
    Resized(WindowSize),
    /// The answer to the first question that has none.
    Said(Said),
    /// The answer to the last [`Effect::Measure`].
    Measured(Said),
    Read(Piece),
    /// The load averages of this host.
    Load(Option<[String; 3]>),
    /// The time of day, so that the clocks on the screen go on.
    Tick(Wall),
}

/// What the program is to do.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Effect {
    Ask(Ask),
    /// Ask what a job uses, without keeping other questions waiting.
    Measure(JobId),
    /// Look at a file, and say what is new.
    Read(PathBuf, Since),
    /// Draw everything again.
    Redraw,
    /// Stop, as Ctrl-Z does.
    Suspend,
    Quit,
}

/// A question without an answer.
#[derive(Clone, Debug, PartialEq)]
enum Question {
    /// Part of a look.
    Look(Option<JobId>),
    Explain,
    Order(Order),
}

/// An order of the user.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Order {
    Hold(JobId),
    Release(JobId),
    /// With the number of its tasks that wait or run, if it is an array.
    Cancel(JobId, Option<usize>),
    Drain(String),
    Resume(String),
}

impl Order {
    /// Returns the question before the order.
    pub(super) fn question(&self) -> String {
        match self {
            Self::Hold(job) => format!("Keep job {job} from starting?"),
            Self::Release(job) => format!("Let job {job} start?"),
            Self::Cancel(job, None) => format!("Cancel job {job}?"),
            Self::Cancel(job, Some(tasks)) => {
                format!("Cancel job {job}, with {tasks} tasks that wait or run?")
            }
            Self::Drain(node) => format!("Start no more jobs on node {node}?"),
            Self::Resume(node) => format!("Start jobs on node {node} again?"),
        }
    }

    /// Returns what is said once the machine has obeyed.
    fn done(&self) -> String {
        match self {
            Self::Hold(job) => format!("job {job} is held"),
            Self::Release(job) => format!("job {job} is released"),
            Self::Cancel(job, _) => format!("job {job} is being canceled"),
            Self::Drain(node) => format!("no more jobs start on node {node}"),
            Self::Resume(node) => format!("jobs start on node {node} again"),
        }
    }

    fn ask(&self) -> Ask {
        let hosts = |node: &String| HostList::from_iter([node.clone()]);
        match self {
            Self::Hold(job) => Ask::Hold(*job),
            Self::Release(job) => Ask::Release(*job),
            Self::Cancel(job, _) => Ask::Cancel(*job, None),
            Self::Drain(node) => Ask::Drain(hosts(node)),
            Self::Resume(node) => Ask::Resume(hosts(node)),
        }
    }
}

/// What covers the panes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Dialog {
    None,
    Confirm(Order),
    Text {
        title: String,
        lines: Vec<String>,
        /// Lines above the first one that is shown.
        scrolled: usize,
    },
}

/// What the last line says instead of the keys.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Notice {
    pub(super) text: String,
    pub(super) tone: Tone,
    until: Time,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Tone {
    Done,
    Failed,
}

/// A place in a list.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Cursor {
    pub(super) index: usize,
    /// The first entry on the screen.
    pub(super) top: usize,
}

impl Cursor {
    /// Keeps the cursor in the list, and on the screen.
    fn settle(&mut self, length: usize, rows: usize) {
        let rows = rows.max(1);
        self.index = self.index.min(length.saturating_sub(1));
        self.top = self.top.min(self.index).min(length.saturating_sub(rows));
        if self.index >= self.top + rows {
            self.top = self.index + 1 - rows;
        }
    }

    fn go(&mut self, way: Move, rows: usize) {
        let page = rows.saturating_sub(1).max(1);
        self.index = match way {
            Move::Up => self.index.saturating_sub(1),
            Move::Down => self.index + 1,
            Move::PageUp => self.index.saturating_sub(page),
            Move::PageDown => self.index + page,
            Move::Home => 0,
            Move::End => usize::MAX,
        };
    }
}

/// Which jobs are listed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Listed {
    /// Those in the queue, and the one whose output is shown.
    Queue,
    /// The last ones that are over, too.
    OverToo,
}

/// The screen. See the module documentation.
#[derive(Debug)]
pub(super) struct Top {
    pub(super) name: String,
    pub(super) size: WindowSize,
    pub(super) status: Option<Status>,
    pub(super) nodes: Vec<NodeLine>,
    /// All jobs that the machine has listed, in the order of the screen.
    jobs: Vec<Record>,
    /// Indexes of the jobs on the list.
    listed: Vec<usize>,
    pub(super) reasons: BTreeMap<JobId, Reason>,
    pub(super) meter: Meter,
    pub(super) load: Option<[String; 3]>,
    /// The time of day at the last tick.
    pub(super) wall: Wall,
    pub(super) focus: Pane,
    pub(super) zoom: Zoom,
    pub(super) node: Cursor,
    pub(super) job: Cursor,
    /// The job under the cursor, which it follows when the list changes.
    selected: Option<JobId>,
    /// The job whose output is shown, wherever the cursor is.
    pub(super) pinned: Option<JobId>,
    pub(super) which: Listed,
    pub(super) output: Output,
    pub(super) dialog: Dialog,
    pub(super) notice: Option<Notice>,
    questions: VecDeque<Question>,
    /// When the machine said something last, or when the first question without an answer was asked.
    heard: Time,
    look: Look,
    effects: VecDeque<Effect>,
    is_stale: bool,
}

/// Where the program is between two looks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Look {
    Due(Time),
    /// Since then, with so many questions that have no answer.
    Asked(Time, usize),
}

impl Top {
    pub(super) fn new(now: Time, name: &str, size: WindowSize) -> Self {
        let mut top = Self {
            name: name.to_owned(),
            size,
            status: None,
            nodes: Vec::new(),
            jobs: Vec::new(),
            listed: Vec::new(),
            reasons: BTreeMap::new(),
            meter: Meter::default(),
            load: None,
            wall: Wall::default(),
            focus: Pane::Jobs,
            zoom: Zoom::Off,
            node: Cursor::default(),
            job: Cursor::default(),
            selected: None,
            pinned: None,
            which: Listed::Queue,
            output: Output::default(),
            dialog: Dialog::None,
            notice: None,
            questions: VecDeque::new(),
            heard: now,
            look: Look::Due(now),
            effects: VecDeque::new(),
            is_stale: true,
        };
        top.settle(now);
        top
    }

    pub(super) fn handle(&mut self, now: Time, input: Input) {
        let is_news = match input {
            Input::Key(key) => {
                self.notice = None;
                self.on_key(now, key);
                true
            }
            Input::Resized(size) => {
                self.size = size;
                true
            }
            Input::Said(said) => {
                self.on_said(now, said);
                true
            }
            Input::Measured(said) => {
                self.meter.said(now, said);
                true
            }
            Input::Read(piece) => self.output.read(now, piece),
            Input::Load(load) => {
                self.load = load;
                true
            }
            Input::Tick(wall) => {
                self.wall = wall;
                true
            }
        };
        self.is_stale |= is_news;
        self.settle(now);
    }

    /// Returns what to do next. Call it after every other call.
    pub(super) fn poll(&mut self) -> Option<Effect> {
        self.effects.pop_front()
    }

    /// Returns when to call [`Self::handle`] again at the latest.
    pub(super) fn deadline(&self, now: Time) -> Time {
        let mut next = now + TICK;
        if let Look::Due(at) = self.look {
            next = next.min(at);
        }
        if let Some(at) = self.output.due() {
            next = next.min(at);
        }
        next
    }

    /// Returns true if the screen has changed since the last call.
    pub(super) fn take_stale(&mut self) -> bool {
        std::mem::take(&mut self.is_stale)
    }

    /// Returns how long the machine has not answered.
    pub(super) fn silence(&self, now: Time) -> Duration {
        if self.questions.is_empty() {
            Duration::ZERO
        } else {
            now.since(self.heard)
        }
    }

    /// Returns where the panes are.
    pub(super) fn panes(&self) -> Panes {
        layout::panes(
            self.size,
            self.focus,
            self.zoom,
            self.nodes.len(),
            self.listed.len(),
        )
    }

    /// Returns the jobs on the list.
    pub(super) fn listed(&self) -> impl ExactSizeIterator<Item = &Record> {
        self.listed.iter().map(|index| &self.jobs[*index])
    }

    /// Returns the jobs on the screen.
    pub(super) fn shown(&self) -> impl Iterator<Item = &Record> {
        let rows = self.panes().job_rows();
        self.listed().skip(self.job.top).take(rows)
    }

    /// Returns the number of held jobs.
    pub(super) fn held(&self) -> u64 {
        let is_held = |record: &&Record| record.state() == State::Held;
        self.jobs.iter().filter(is_held).count() as u64
    }

    /// Returns the job under the cursor.
    fn selected(&self) -> Option<&Record> {
        self.listed
            .get(self.job.index)
            .map(|index| &self.jobs[*index])
    }

    /// Returns the job whose output is shown.
    pub(super) fn target(&self) -> Option<&Record> {
        let pinned = self.pinned.and_then(|id| self.record(id));
        pinned.or_else(|| self.selected())
    }

    /// Returns the job that keys are about.
    fn subject(&self) -> Option<&Record> {
        match self.focus {
            Pane::Jobs => self.selected(),
            Pane::Output => self.target(),
            Pane::Nodes => None,
        }
    }

    fn record(&self, id: JobId) -> Option<&Record> {
        self.jobs.iter().find(|record| record.id == id)
    }

    // What the machine says.

    fn on_said(&mut self, now: Time, said: Said) {
        self.heard = now;
        let Some(question) = self.questions.pop_front() else {
            return;
        };
        match question {
            Question::Look(about) => {
                // The answer may be that a job is over: the next look shows it.
                if let Ok(reply) = said {
                    self.on_look(about, reply);
                }
                if let Look::Asked(since, left) = self.look {
                    self.look = match left.saturating_sub(1) {
                        0 => Look::Due(now + pause_after(now.since(since))),
                        left => Look::Asked(since, left),
                    };
                }
            }
            Question::Explain => match said {
                Ok(Reply::Explained(explained)) => self.explain(&explained),
                Ok(_) => {}
                Err(why) => self.refuse(now, &why),
            },
            Question::Order(order) => {
                match said {
                    Ok(_) => self.say(now, order.done(), Tone::Done),
                    Err(why) => self.refuse(now, &why),
                }
                if let Look::Due(_) = self.look {
                    self.look = Look::Due(now);
                }
            }
        }
    }

    fn on_look(&mut self, about: Option<JobId>, reply: Reply) {
        match reply {
            Reply::Status(status) => self.status = Some(status),
            Reply::Nodes(nodes) => self.nodes = nodes,
            Reply::Jobs { records: jobs, .. } => {
                self.jobs = jobs;
                self.arrange();
                let waits =
                    |record: &&Record| record.ended.is_none() && !record.tasks.waiting.is_empty();
                let waiting: Vec<JobId> = self
                    .shown()
                    .filter(waits)
                    .map(|record| record.id)
                    .take(REASONS_MAX)
                    .collect();
                self.reasons.retain(|id, _| waiting.contains(id));
                for id in waiting {
                    self.ask(Question::Look(Some(id)), Ask::Explain(id));
                    if let Look::Asked(_, left) = &mut self.look {
                        *left += 1;
                    }
                }
            }
            Reply::Explained(explained) => {
                if let Some(id) = about {
                    self.reasons.insert(id, explained.why);
                }
            }
            _ => {}
        }
    }

    fn explain(&mut self, explained: &Explained) {
        let text = explained_text(explained, self.wall);
        self.show(format!("Job {}, explained", explained.record.id), &text);
    }

    fn refuse(&mut self, now: Time, why: &NotDone) {
        self.say(now, dvm::messages::not_done(why).headline, Tone::Failed);
    }

    fn say(&mut self, now: Time, text: String, tone: Tone) {
        self.notice = Some(Notice {
            text,
            tone,
            until: now + NOTICE_TIME,
        });
    }

    fn show(&mut self, title: String, text: &str) {
        self.dialog = Dialog::Text {
            title,
            lines: text.lines().map(str::to_owned).collect(),
            scrolled: 0,
        };
    }

    fn ask(&mut self, question: Question, ask: Ask) {
        self.questions.push_back(question);
        self.effects.push_back(Effect::Ask(ask));
    }

    /// Sorts the jobs, and finds the one under the cursor again.
    fn arrange(&mut self) {
        let which = self.which;
        self.jobs.sort_by_cached_key(|record| place(record, which));
        let kept = [self.selected, self.pinned];
        let is_listed = |record: &Record| {
            record.ended.is_none() || which == Listed::OverToo || kept.contains(&Some(record.id))
        };
        let all = (0..).zip(&self.jobs);
        self.listed = all
            .filter(|(_, record)| is_listed(record))
            .map(|(index, _)| index)
            .collect();
        if self.pinned.is_some_and(|id| self.record(id).is_none()) {
            self.pinned = None;
        }
        let found = self
            .selected
            .and_then(|id| self.listed().position(|record| record.id == id));
        if let Some(index) = found {
            self.job.index = index;
        }
    }

    /// Brings everything in line with what has happened.
    fn settle(&mut self, now: Time) {
        if let Look::Due(at) = self.look
            && now >= at
        {
            let asks = [
                Ask::Status,
                Ask::Nodes,
                Ask::Jobs {
                    over: OVER_MAX,
                    before: None,
                },
            ];
            self.look = Look::Asked(now, asks.len());
            if self.questions.is_empty() {
                self.heard = now;
            }
            for ask in asks {
                self.ask(Question::Look(None), ask);
            }
        }
        if self
            .notice
            .as_ref()
            .is_some_and(|notice| now >= notice.until)
        {
            self.notice = None;
            self.is_stale = true;
        }
        let panes = self.panes();
        self.node.settle(self.nodes.len(), panes.node_rows());
        self.job.settle(self.listed.len(), panes.job_rows());
        self.selected = self.selected().map(|record| record.id);
        let target = self.target().cloned();
        self.is_stale |= self.output.aim(now, target.as_ref());
        let used: Vec<JobId> = self
            .shown()
            .filter(|record| uses_something(record))
            .map(|record| record.id)
            .collect();
        if let Some(job) = self.meter.wish(now, used) {
            self.effects.push_back(Effect::Measure(job));
        }
        if let Some((path, since)) = self.output.wish(now) {
            self.effects.push_back(Effect::Read(path, since));
        }
    }

    // What keys mean.

    fn on_key(&mut self, now: Time, key: Key) {
        match key {
            Key::Ctrl('c') => return self.effects.push_back(Effect::Quit),
            Key::Ctrl('l') => return self.effects.push_back(Effect::Redraw),
            Key::Ctrl('z') => return self.effects.push_back(Effect::Suspend),
            _ => {}
        }
        match std::mem::replace(&mut self.dialog, Dialog::None) {
            Dialog::None => self.on_browse(now, key),
            Dialog::Confirm(order) => {
                if key == Key::Char('y') || key == Key::Char('Y') {
                    self.order(now, order);
                }
            }
            Dialog::Text {
                title,
                lines,
                scrolled,
            } => {
                let rows = layout::dialog_rows(self.size);
                let last = dialog::wrapped(&lines, self.size)
                    .len()
                    .saturating_sub(rows);
                let scrolled = match Move::of(key) {
                    None => return,
                    Some(Move::Up) => scrolled.saturating_sub(1),
                    Some(Move::Down) => scrolled + 1,
                    Some(Move::PageUp) => scrolled.saturating_sub(rows),
                    Some(Move::PageDown) => scrolled + rows,
                    Some(Move::Home) => 0,
                    Some(Move::End) => last,
                };
                self.dialog = Dialog::Text {
                    title,
                    lines,
                    scrolled: scrolled.min(last),
                };
            }
        }
    }

    fn on_browse(&mut self, now: Time, key: Key) {
        if let Some(way) = Move::of(key) {
            return self.go(way);
        }
        match key {
            Key::Char('q') => self.effects.push_back(Effect::Quit),
            Key::Char('?') => self.show("Keys".to_owned(), help::TEXT),
            Key::Tab => self.focus = self.focus.next(),
            Key::BackTab => self.focus = self.focus.next().next(),
            Key::Char('1') => self.focus = Pane::Nodes,
            Key::Char('2') => self.focus = Pane::Jobs,
            Key::Char('3') => self.focus = Pane::Output,
            Key::Char('z') => self.zoom = self.zoom.other(),
            Key::Esc => self.zoom = Zoom::Off,
            Key::Char('a') => {
                self.which = match self.which {
                    Listed::Queue => Listed::OverToo,
                    Listed::OverToo => Listed::Queue,
                };
                self.arrange();
            }
            Key::Left => self.output.shift(Move::Up),
            Key::Right => self.output.shift(Move::Down),
            Key::Char('s') => self.output.turn(),
            Key::Char('[') => self.step(Move::Up),
            Key::Char(']') => self.step(Move::Down),
            _ if self.focus == Pane::Nodes => self.on_node_key(now, key),
            _ => self.on_job_key(now, key),
        }
    }

    fn on_node_key(&mut self, now: Time, key: Key) {
        let node = self.nodes.get(self.node.index);
        let order = match (key, node) {
            (Key::Char('d'), Some(node)) => Order::Drain(node.name.clone()),
            (Key::Char('r'), Some(node)) => Order::Resume(node.name.clone()),
            (Key::Enter | Key::Char('i'), Some(node)) => {
                let text = node_text(node);
                return self.show(format!("Node {}", node.name), &text);
            }
            (Key::Char(key @ ('e' | 'h' | 'c' | 'o')), _) => {
                let text = format!("{key} is about jobs: Tab goes to them");
                return self.say(now, text, Tone::Failed);
            }
            _ => return,
        };
        self.dialog = Dialog::Confirm(order);
    }

    fn on_job_key(&mut self, now: Time, key: Key) {
        if key == Key::Char('d') {
            let text = "d is about nodes: Tab goes to them".to_owned();
            return self.say(now, text, Tone::Failed);
        }
        let Some(record) = self.subject() else {
            return;
        };
        let id = record.id;
        let left = record.tasks.waiting.len() + record.tasks.running.len();
        let tasks = record.is_array().then_some(left);
        let order = match key {
            Key::Char('e') if record.ended.is_some() => {
                let text = format!("job {id} is over: i shows how it ended");
                return self.say(now, text, Tone::Failed);
            }
            Key::Char('e') if self.user_questions() >= ORDERS_MAX => return self.wait(now),
            Key::Char('e') => return self.ask(Question::Explain, Ask::Explain(id)),
            Key::Enter | Key::Char('i') => {
                let text = details_text(record, self.wall);
                return self.show(format!("Job {id}"), &text);
            }
            Key::Char('o') => {
                self.pinned = if self.pinned == Some(id) {
                    None
                } else {
                    Some(id)
                };
                return self.arrange();
            }
            Key::Char('h') => Order::Hold(id),
            Key::Char('r') => Order::Release(id),
            Key::Char('c') => Order::Cancel(id, tasks),
            _ => return,
        };
        self.dialog = Dialog::Confirm(order);
    }

    fn user_questions(&self) -> usize {
        let is_own = |question: &&Question| !matches!(question, Question::Look(_));
        self.questions.iter().filter(is_own).count()
    }

    fn wait(&mut self, now: Time) {
        let text = "the machine has not answered yet".to_owned();
        self.say(now, text, Tone::Failed);
    }

    fn order(&mut self, now: Time, order: Order) {
        if self.user_questions() >= ORDERS_MAX {
            return self.wait(now);
        }
        if self.questions.is_empty() {
            self.heard = now;
        }
        let ask = order.ask();
        self.ask(Question::Order(order), ask);
    }

    fn go(&mut self, way: Move) {
        let panes = self.panes();
        match self.focus {
            Pane::Nodes => self.node.go(way, panes.node_rows()),
            Pane::Jobs => self.job.go(way, panes.job_rows()),
            Pane::Output => self.output.go(way, panes.output_rows()),
        }
        // `settle` takes the job that is now under the cursor.
        self.node.settle(self.nodes.len(), panes.node_rows());
        self.job.settle(self.listed.len(), panes.job_rows());
    }

    /// Shows the output of another task of the array.
    fn step(&mut self, way: Move) {
        let target = self.target().cloned();
        if let Some(record) = target {
            self.output.step(&record, way);
        }
    }
}

/// Returns the place of a job on the list: jobs that run, then those that wait in the order in which they start, then held ones. A job that
/// is over is at the end, or, if it is there only because the user looks at it, near those that run.
fn place(record: &Record, which: Listed) -> (u8, i64, JobId) {
    let (class, order) = match (record.state(), which) {
        (State::Running | State::Paused, _) => (0, 0),
        (State::Waiting, _) => (2, -i64::from(record.wishes.priority)),
        (State::Held, _) => (3, 0),
        (State::Succeeded | State::Failed | State::Canceled, Listed::Queue) => (1, 0),
        (State::Succeeded | State::Failed | State::Canceled, Listed::OverToo) => {
            let ended = record.ended.map_or(0, |(at, _)| at.0);
            (4, -i64::try_from(ended).unwrap_or(i64::MAX))
        }
    };
    (class, order, record.id)
}

/// Returns true for jobs with procs. Those in an allocation belong to the jobs that run in it.
pub(super) fn uses_something(record: &Record) -> bool {
    record.way != Way::Allocation && !record.tasks.running.is_empty()
}

/// Returns everything about a node.
fn node_text(node: &NodeLine) -> String {
    let jobs: Vec<String> = node.jobs.iter().map(ToString::to_string).collect();
    let jobs = if jobs.is_empty() {
        "none".to_owned()
    } else {
        jobs.join(", ")
    };
    let mut text = format!(
        "state: {}\nslots: {} of {} free\njobs: {jobs}\n",
        standing_word(&node.state),
        node.free,
        node.slots,
    );
    if !node.resources.is_empty() {
        text += &format!("free: {}\n", resources(&node.resources));
    }
    if let NodeStanding::Bad(why) = &node.state {
        text += &format!("reason: {}\n", visible::line(why));
    }
    text
}

#[cfg(test)]
mod tests;
