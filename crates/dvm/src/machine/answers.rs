//! What fronts ask, and the answers.

use std::collections::{BTreeMap, BTreeSet};

use base::{JobId, Rank, RankSet, Time};
use bytes::Bytes;

use super::{
    Effect, Machine, MachineOutput, PAGE_BYTES, PAGE_RECORDS, Question, Stage, WAITED_MAX, Waiter,
    planted::{self, Bug},
    record::{Record, Submission},
    restore,
    submit::is_met,
    talk::{Ask, Down, NotDone, Reply, Status},
};
use crate::{
    proto::FrontId,
    queue::{Hold, JobState, NodeState, TaskId},
};

impl Machine {
    /// Handles a question or an order.
    pub fn ask(&mut self, now: Time, front: FrontId, ask: Ask) {
        match self.answer(now, front, ask) {
            Ok(Some(reply)) => self.reply(front, reply),
            Ok(None) => {}
            Err(why) => self.reply(front, Reply::Refused(why)),
        }
        self.settle(now);
    }

    /// Returns the answer; `None` if it comes later.
    fn answer(&mut self, now: Time, front: FrontId, ask: Ask) -> Result<Option<Reply>, NotDone> {
        let reply = match ask {
            Ask::Status => Reply::Status(self.status()),
            Ask::Ready => {
                self.wait_for_nodes.insert(front);
                return Ok(None);
            }
            Ask::Submit(submission) => return self.submit(now, front, *submission),
            Ask::Jobs { over, before } => {
                let before = before.unwrap_or(JobId(u32::MAX));
                return Ok(self.list(front, over, before));
            }
            Ask::Nodes => Reply::Nodes(self.node_lines()),
            Ask::Explain(id) => {
                if !self.jobs.contains_key(&id) {
                    return Err(self.missing(id));
                }
                Reply::Explained(Box::new(
                    self.explained(now, id).ok_or(NotDone::NoSuchJob(id))?,
                ))
            }
            Ask::Job(id) => match self.known(id) {
                Some(record) => Reply::Job(Box::new(record.clone())),
                None => {
                    self.fetch(Question::Job(front, id), JobId(id.0.saturating_add(1)), 1);
                    return Ok(None);
                }
            },
            Ask::Run(task) => match self.run_of(task)? {
                Some(run) => {
                    let show = MachineOutput::ShowRun(front, run);
                    self.outputs.push_back(show);
                    return Ok(None);
                }
                None => Reply::Run(None),
            },
            Ask::Hold(id) => {
                let Some(entry) = self.jobs.get_mut(&id) else {
                    return Err(self.missing(id));
                };
                entry.record.wishes.hold = Hold::ByUser;
                self.queue.hold(id);
                self.books.touch(id);
                Reply::Done
            }
            Ask::Release(id) => {
                let Some(entry) = self.jobs.get_mut(&id) else {
                    return Err(self.missing(id));
                };
                entry.record.wishes.hold = Hold::No;
                self.queue.release(id);
                self.books.touch(id);
                Reply::Done
            }
            Ask::Prioritize(id, priority) => {
                let Some(entry) = self.jobs.get_mut(&id) else {
                    return Err(self.missing(id));
                };
                entry.record.wishes.priority = priority;
                self.queue.set_priority(id, priority);
                self.books.touch(id);
                Reply::Done
            }
            Ask::Cancel(id, tasks) => self.cancel(id, tasks)?,
            Ask::Signal(id, tasks, signal) => self.signal(id, tasks.as_ref(), signal)?,
            Ask::Usage(id, tasks) => return self.measure(front, id, tasks.as_ref()),
            Ask::Wait(jobs) => return self.wait(front, jobs),
            Ask::Drain(hosts) => self.set_nodes(&hosts, NodeState::Closed)?,
            Ask::Resume(hosts) => self.set_nodes(&hosts, NodeState::Up)?,
            Ask::Down(down) => self.go_down(down)?,
            Ask::Add(additions) => return self.add_nodes(front, *additions),
            Ask::Drop(hosts, down) => return self.drop_nodes(front, &hosts, down),
            Ask::EndWithFront => {
                self.owners.insert(front);
                Reply::Done
            }
        };
        Ok(Some(reply))
    }

    /// Returns the number of the run of a task; `None` if it does not run.
    fn run_of(&self, task: TaskId) -> Result<Option<JobId>, NotDone> {
        let entry = self.jobs.get(&task.job);
        let entry = entry.ok_or_else(|| self.missing(task.job))?;
        Ok(match entry.runs.get(&task.index) {
            Some(Stage::Runs(run)) => Some(*run),
            Some(Stage::Storing(_) | Stage::Ordered | Stage::Revoked | Stage::Held) | None => None,
        })
    }

    fn submit(
        &mut self,
        now: Time,
        front: FrontId,
        submission: Submission,
    ) -> Result<Option<Reply>, NotDone> {
        let forgotten = submission.wishes.after.iter().find(|dependency| {
            !self.jobs.contains_key(&dependency.on) && self.known(dependency.on).is_none()
        });
        if let Some(forgotten) = forgotten {
            let on = forgotten.on;
            let question = Question::Dependency(front, Box::new(submission), on);
            self.fetch(question, JobId(on.0.saturating_add(1)), 1);
            return Ok(None);
        }
        let effect = match self.add(now, None, submission) {
            Ok(id) if planted::is(Bug::ToldBeforeStored) => {
                return Ok(Some(Reply::Submitted(id)));
            }
            Ok(id) => Effect::Submitted(front, id),
            Err(why) if self.submitting.contains_key(&front) => Effect::Refused(front, why),
            Err(why) => return Err(why),
        };
        *self.submitting.entry(front).or_default() += 1;
        self.books.after(effect);
        Ok(None)
    }

    fn cancel(&mut self, id: JobId, tasks: Option<RankSet>) -> Result<Reply, NotDone> {
        if !self.jobs.contains_key(&id) {
            return Err(self.missing(id));
        }
        match tasks {
            None => self.cancel_all(id),
            Some(tasks) => self.cancel_some(id, &tasks),
        }
        self.books.touch(id);
        Ok(Reply::Done)
    }

    /// Cancels a job. What waits is canceled at once, also for the next machine.
    pub(super) fn cancel_all(&mut self, id: JobId) {
        if let Some(entry) = self.jobs.get_mut(&id) {
            let tasks = &mut entry.record.tasks;
            let waiting = std::mem::take(&mut tasks.waiting);
            tasks.canceled = tasks.canceled.union(&waiting);
            entry.ending = tasks.running.clone();
        }
        self.queue.cancel(id);
    }

    /// Cancels tasks of a job. Those that it does not have, or that are over, are ignored.
    pub(super) fn cancel_some(&mut self, id: JobId, tasks: &RankSet) {
        let Some(entry) = self.jobs.get_mut(&id) else {
            return;
        };
        if !entry.record.is_array() {
            if tasks.contains(Rank(0)) {
                self.cancel_all(id);
            }
            return;
        }
        let waiting = entry.record.tasks.waiting.intersection(tasks);
        let running = entry.record.tasks.running.intersection(tasks);
        entry.ending = entry.ending.union(&running);
        for index in waiting.iter() {
            let tasks = &mut entry.record.tasks;
            tasks.put(index.0, |tasks| &mut tasks.canceled);
        }
        for index in waiting.union(&running).iter() {
            let index = Some(index.0);
            self.queue.cancel_task(TaskId { job: id, index });
        }
    }

    fn wait(&mut self, front: FrontId, jobs: Vec<JobId>) -> Result<Option<Reply>, NotDone> {
        self.last_wait += 1;
        let number = self.last_wait;
        let mut waiter = Waiter {
            number,
            jobs: BTreeSet::new(),
            over: Vec::new(),
        };
        let mut unknown = Vec::new();
        for id in jobs.into_iter().take(WAITED_MAX) {
            match self.known(id) {
                Some(record) if record.ended.is_some() => waiter.over.push(record.clone()),
                Some(_) => drop(waiter.jobs.insert(id)),
                None if id.0 >= self.next => return Err(NotDone::NoSuchJob(id)),
                None => {
                    waiter.jobs.insert(id);
                    unknown.push(id);
                }
            }
        }
        if waiter.jobs.is_empty() {
            return Ok(Some(Reply::Over(waiter.over)));
        }
        self.waiters.insert(front, waiter);
        for id in unknown {
            self.fetch(
                Question::Waited(front, id, number),
                JobId(id.0.saturating_add(1)),
                1,
            );
        }
        Ok(None)
    }

    fn go_down(&mut self, down: Down) -> Result<Reply, NotDone> {
        let running = self.queue.running();
        if down == Down::IfIdle && running > 0 {
            return Err(NotDone::Busy(running));
        }
        if down == Down::Now {
            self.end_all();
        }
        self.refuse_allocations();
        // Who wants it to end later does not change that it ends now.
        if self.down != Some(Down::Now) {
            self.down = Some(down);
        }
        Ok(Reply::Done)
    }

    fn fetch(&mut self, question: Question, before: JobId, most: u32) {
        self.questions.push_back(question);
        self.outputs
            .push_back(MachineOutput::Fetch { before, most });
    }

    /// Handles records that were read.
    pub fn fetched(&mut self, now: Time, result: Result<Vec<Bytes>, String>) {
        let Some(question) = self.questions.pop_front() else {
            return;
        };
        let records = result.map_err(NotDone::NotRead).map(|all| {
            let decoded = all.iter().filter_map(|one| restore::record(one).ok());
            decoded.collect::<Vec<Record>>()
        });
        self.on_records(now, question, records);
        self.settle(now);
    }

    fn on_records(&mut self, now: Time, question: Question, found: Result<Vec<Record>, NotDone>) {
        let one = |id: JobId, found: Result<Vec<Record>, NotDone>| {
            let mut found = found?.into_iter();
            found
                .find(|record| record.id == id)
                .ok_or(NotDone::NoSuchJob(id))
        };
        match question {
            Question::Jobs {
                front,
                over,
                before,
            } => {
                let reply = match found {
                    Ok(records) => {
                        let (past, from) = self.with_recent(records, over, before);
                        self.page(&past, from, before)
                    }
                    Err(why) => Reply::Refused(why),
                };
                self.reply(front, reply);
            }
            Question::Job(front, id) => {
                let reply = match one(id, found) {
                    Ok(record) => Reply::Job(Box::new(record)),
                    Err(why) => Reply::Refused(why),
                };
                self.reply(front, reply);
            }
            Question::Waited(front, id, number) => match one(id, found) {
                Ok(_) if planted::is(Bug::WaitInStoreForgotten) => {}
                Ok(record) => self.tell_waiters(&record),
                Err(why) => {
                    let waiter = self.waiters.get(&front);
                    if waiter.is_some_and(|waiter| waiter.number == number) {
                        self.waiters.remove(&front);
                        self.reply(front, Reply::Refused(why));
                    }
                }
            },
            Question::Dependency(front, mut submission, on) => {
                let answer = one(on, found).and_then(|record| {
                    let mut after = std::mem::take(&mut submission.wishes.after);
                    for dependency in after.iter().filter(|one| one.on == on) {
                        is_met(*dependency, &record)?;
                    }
                    after.retain(|one| one.on != on);
                    submission.wishes.after = after;
                    self.submit(now, front, *submission)
                });
                if let Err(why) = answer {
                    self.reply(front, Reply::Refused(why));
                }
            }
        }
    }

    pub(crate) fn status(&self) -> Status {
        let states = self.nodes.keys().filter_map(|id| self.queue.node(*id));
        let up = states.filter(|(_, _, state)| *state == NodeState::Up);
        let (slots, free, usable) = up.fold((0, 0, 0), |(slots, free, count), (all, left, _)| {
            (
                slots + u64::from(all.slots),
                free + u64::from(left.slots),
                count + 1,
            )
        });
        let waits = |state| !matches!(state, JobState::Running | JobState::Ending);
        let waiting = self
            .queue
            .jobs()
            .filter(|(_, _, state)| waits(*state))
            .count();
        let listed = self.nodes.values().filter(|node| node.is_listed());
        Status {
            name: self.name.clone(),
            since: self.epoch,
            nodes: u32::try_from(listed.count()).unwrap_or(u32::MAX),
            usable,
            resources: self.resources_of(self.queue.shared(), self.queue.shared_free()),
            slots,
            free,
            waiting: u32::try_from(waiting).unwrap_or(u32::MAX),
            running: u32::try_from(self.queue.running()).unwrap_or(u32::MAX),
            trouble: self.books.trouble().map(str::to_owned),
            is_going_down: self.down.is_some(),
            restored: self.restored.clone(),
        }
    }

    /// Answers with the jobs in the queue and the last `over` ones, of those before this job, or reads those first.
    fn list(&mut self, front: FrontId, over: u32, before: JobId) -> Option<Reply> {
        let known = self.recent.iter().filter(|record| record.id < before);
        let count = known.clone().count();
        if over as usize <= count {
            let last = known.skip(count - over as usize);
            let mut past: Vec<Record> = last.cloned().collect();
            past.sort_by_key(|record| record.id);
            return Some(self.page(&past, None, before));
        }
        let question = Question::Jobs {
            front,
            over,
            before,
        };
        let most = over.min(PAGE_RECORDS);
        self.fetch(question, before.min(JobId(self.next)), most);
        None
    }

    /// Returns the last ones of the jobs that are over, in the order of their numbers, of those in the store and in memory: the last
    /// ones may not be stored yet. The second value is the first of them if there may be others before.
    fn with_recent(
        &self,
        stored: Vec<Record>,
        over: u32,
        before: JobId,
    ) -> (Vec<Record>, Option<JobId>) {
        let most = over.min(PAGE_RECORDS) as usize;
        let recent = self.recent.iter().filter(|record| record.id < before);
        let all = recent.cloned().chain(stored);
        let all: BTreeMap<JobId, Record> = all.map(|record| (record.id, record)).collect();
        let surplus = all.len().saturating_sub(most);
        let past: Vec<Record> = all.into_values().skip(surplus).collect();
        let is_cut = past.len() == most && over > PAGE_RECORDS;
        let first = past.first().filter(|_| is_cut).map(|record| record.id);
        (past, first)
    }

    /// Returns an answer with these jobs that are over and those in the queue, from one number to before another, or the last ones
    /// of them.
    fn page(&self, past: &[Record], from: Option<JobId>, before: JobId) -> Reply {
        let live = self.jobs.range(from.unwrap_or(JobId(0))..before);
        let mut live = live.rev().map(|(_, entry)| &entry.record).peekable();
        let mut past = past.iter().rev().peekable();
        let mut records: Vec<Record> = Vec::new();
        let mut bytes = 0;
        let before = loop {
            let id = |record: &&&Record| record.id;
            let next = if past.peek().as_ref().map(id) > live.peek().as_ref().map(id) {
                past.next()
            } else {
                live.next()
            };
            let Some(record) = next else {
                break from;
            };
            bytes += size(record);
            if let Some(last) = records.last()
                && bytes > PAGE_BYTES
            {
                break Some(last.id);
            }
            records.push(record.clone());
        };
        records.reverse();
        Reply::Jobs { records, before }
    }
}

/// Returns the number of bytes of a record in a message.
fn size(record: &Record) -> usize {
    let size = postcard::serialize_with_flavor(record, postcard::ser_flavors::Size::default());
    size.unwrap_or(PAGE_BYTES)
}
