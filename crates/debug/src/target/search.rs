//! Searches for the ranks of a job: decides the order in which the ways are tried.

pub(super) mod found;
mod launchers;
mod parentage;
mod proof;
mod view;

use std::{
    cell::RefCell,
    collections::{BTreeMap, BTreeSet},
};

use base::Rank;

use super::{
    Doubt, How, NotFound, Note, Numbering, Process, System, Target, Tried,
    environment::{self, Claim, Evidence, Family, Job},
    names::{file_name, matches},
    wrappers::{is_launcher, is_proxy},
};

/// Maximum number of ancestors of a process that are looked at.
const MAX_ANCESTORS: usize = 64;

/// A search in the list of processes as it was at the beginning of the search.
pub(super) struct Search<'a> {
    system: &'a dyn System,
    processes: BTreeMap<i32, Process>,
    /// Live children by their parent's pid, in the order of their start.
    children: BTreeMap<i32, Vec<i32>>,
    /// The evidence in each environment read so far; `None` if the environment may not be read.
    evidence: RefCell<BTreeMap<i32, Option<Vec<Evidence>>>>,
    tried: Vec<Tried>,
    doubts: Vec<Doubt>,
    notes: Vec<Note>,
}

/// A row of a launcher's proc table, with the process that was identified for it.
pub(super) struct RankRow {
    rank: Rank,
    found: Found,
    /// The path of the program, as the launcher recorded it.
    program: String,
}

/// The process of a rank. `pid` is the pid in our namespace in `Here`, and the launcher's otherwise.
enum Found {
    /// The process is on this node, and was shown to belong to the job.
    Here { pid: i32 },
    /// No process has this pid.
    Gone { pid: i32 },
    /// Nothing shows that the process with this pid belongs to the job, or the pid cannot be translated to our pid namespace.
    Unproved { pid: i32 },
    /// The process is on another node.
    On { host: String, pid: i32 },
}

impl RankRow {
    const fn here(&self) -> Option<i32> {
        match self.found {
            Found::Here { pid } => Some(pid),
            Found::Gone { .. } | Found::Unproved { .. } | Found::On { .. } => None,
        }
    }
}

impl<'a> Search<'a> {
    pub(super) fn new(system: &'a dyn System) -> Self {
        let own = system.own_pid();
        let processes: BTreeMap<i32, Process> = system
            .processes()
            .into_iter()
            .filter(|process| process.pid != own)
            .map(|process| (process.pid, process))
            .collect();
        let mut order: Vec<&Process> = processes
            .values()
            .filter(|process| !is_dead(process))
            .collect();
        order.sort_by_key(|process| (process.started, process.pid));
        let mut children: BTreeMap<i32, Vec<i32>> = BTreeMap::new();
        for process in order {
            children
                .entry(process.parent)
                .or_default()
                .push(process.pid);
        }
        Self {
            system,
            processes,
            children,
            evidence: RefCell::default(),
            tried: Vec::new(),
            doubts: Vec::new(),
            notes: Vec::new(),
        }
    }

    /// Finds the job of a process.
    pub(super) fn process(mut self, pid: i32) -> Result<Target, NotFound> {
        let process = self
            .processes
            .get(&pid)
            .ok_or(NotFound::NoProcess { pid })?;
        if process.is_kernel {
            return Err(NotFound::Kernel { pid });
        }
        if is_dead(process) {
            return Err(NotFound::Ended { pid });
        }
        if self.evidence(pid).is_none() {
            return Err(NotFound::NotPermitted { pid });
        }
        if let Some((how, rows)) = self.table(pid) {
            if let How::OwnTable { launcher, .. } | How::Table { launcher, .. } = how {
                self.other_launchers(pid, Some(launcher));
            }
            return Ok(self.of_rows(pid, how, rows));
        }
        if let Some((how, rows)) = self.answer(pid) {
            return Ok(self.of_rows(pid, how, rows));
        }
        if let Some((how, job)) = self.variables(pid) {
            self.other_launchers(pid, job.launcher);
            let procs = self.of_job(job);
            return Ok(self.finish(how, procs));
        }
        self.tried.push(Tried::NoVariables { below: pid });
        let (pids, how) = match parentage::children(&self, pid) {
            Some((pids, how, notes)) => {
                self.notes.extend(notes);
                (pids, how)
            }
            None => {
                self.notes
                    .extend(parentage::left_out(&self, self.children(pid)));
                (vec![pid], How::Alone)
            }
        };
        if how == How::Alone && self.tried.iter().any(|tried| is_empty_table_of(tried, pid)) {
            self.doubts.push(Doubt::NotStarted { launcher: pid });
        }
        let procs = self.in_order(pids);
        Ok(self.finish(how, procs))
    }

    /// Finds a job by its name.
    pub(super) fn job(mut self, name: &str) -> Result<Target, NotFound> {
        let typed = name.to_owned();
        // The pid in `PID@N` may be the front's or the controller's, and only the front has a table.
        let (process, number) = name.rsplit_once('@').unwrap_or((name, ""));
        let front = process.rsplit('-').next().and_then(|pid| pid.parse().ok());
        let front = front.filter(|front| self.processes.contains_key(front));
        let mut wanted = name.to_owned();
        if let Some((front, (how, rows))) =
            front.and_then(|front| Some((front, self.table(front)?)))
            && let How::OwnTable { job: Some(job), .. } = &how
            && let Some((stem, _)) = job.rsplit_once('@')
        {
            if process.parse() == Ok(front) || process == stem {
                wanted = format!("{stem}@{number}");
            }
            if *job == wanted {
                return Ok(self.of_rows(front, how, rows));
            }
        }
        let name = wanted.as_str();
        self.tried.clear();
        self.notes.clear();
        let claims = self.claims(|_, evidence| is_called(&evidence.job, name));
        let mut jobs = environment::jobs(claims).into_iter();
        let job = jobs.next().ok_or(NotFound::NoJob { name: typed })?;
        // Several jobs can have names with the same end: pids in containers are small and recur.
        let others: Vec<Job> = jobs.filter(|other| other.name != job.name).collect();
        self.others(&others);
        let how = How::Environment {
            variables: job.family.variables(),
            below: None,
            job: Some(job.name.clone()),
        };
        let procs = self.of_job(job);
        Ok(self.finish(how, procs))
    }

    /// Finds all processes of the user whose name matches the pattern.
    pub(super) fn name(mut self, pattern: &str) -> Result<Target, NotFound> {
        let user = self.system.user();
        let pids: Vec<i32> = self
            .processes
            .values()
            .filter(|process| !is_dead(process) && self.is_named(process.pid, pattern))
            .map(|process| process.pid)
            .filter(|&pid| self.system.owner(pid) == Some(user))
            .collect();
        let pids = self.without_inherited(pids);
        if pids.is_empty() {
            return Err(NotFound::NoName {
                pattern: pattern.to_owned(),
            });
        }
        let numbered = Family::ALL.into_iter().find_map(|family| {
            let claims: Option<Vec<Claim>> =
                pids.iter().map(|&pid| self.claim(pid, family)).collect();
            let mut jobs = environment::jobs(claims?);
            let job = jobs.pop()?;
            (jobs.is_empty() && job.doubles.is_empty()).then_some(job)
        });
        let variables = numbered.as_ref().map(|job| job.family.variables());
        let job = numbered.as_ref().map(|job| job.name.clone());
        let procs = match numbered {
            Some(job) => self.of_job(job),
            None => {
                let pids = self.by_start(pids);
                self.in_order(pids)
            }
        };
        let pattern = pattern.to_owned();
        let how = How::Name {
            pattern,
            variables,
            job: job.filter(|name| !name.is_empty()),
        };
        Ok(self.finish(how, procs))
    }

    /// Leaves out the processes that have an ancestor among these with the same rank variables: a rank has forked them, such as
    /// the workers of a data loader.
    fn without_inherited(&self, pids: Vec<i32>) -> Vec<i32> {
        let all: BTreeSet<i32> = pids.iter().copied().collect();
        let is_inherited = |pid: i32| {
            let own = self.evidence(pid).filter(|own| !own.is_empty());
            let above = std::iter::successors(self.parent(pid), |&at| self.parent(at));
            // Pids that are reused meanwhile could form a circle.
            let mut above = above.take(MAX_ANCESTORS);
            own.is_some_and(|own| {
                above.any(|at| all.contains(&at) && self.evidence(at).as_ref() == Some(&own))
            })
        };
        let own = pids.into_iter().filter(|&pid| !is_inherited(pid));
        own.collect()
    }

    fn is_named(&self, pid: i32, pattern: &str) -> bool {
        let name = self.command(pid);
        let program = self.program(pid);
        if matches(pattern, name)
            || matches(pattern, file_name(&program))
            || matches(pattern, &program)
        {
            return true;
        }
        // A script runs in an interpreter: match the name of its file.
        const INTERPRETERS: [&str; 6] = ["python", "perl", "ruby", "julia", "node", "Rscript"];
        let interpreter = file_name(&program);
        if !INTERPRETERS
            .iter()
            .any(|name| interpreter.starts_with(name))
        {
            return false;
        }
        let arguments = self.system.arguments(pid).unwrap_or_default();
        let script = arguments
            .split(|&byte| byte == 0)
            .skip(1)
            .map(String::from_utf8_lossy)
            .find(|argument| !argument.starts_with('-'));
        script
            .is_some_and(|script| matches(pattern, file_name(&script)) || matches(pattern, &script))
    }

    /// Finds the ranks among the descendants of a launcher. If `pid` is a rank itself, finds the job that it belongs to.
    fn variables(&mut self, pid: i32) -> Option<(How, Job)> {
        if let Some((family, mut jobs)) = self.below(pid) {
            let job = jobs.remove(0);
            jobs.retain(|other| other.launcher == job.launcher);
            self.others(&jobs);
            let how = How::Environment {
                variables: family.variables(),
                below: Some(pid),
                job: (!job.name.is_empty()).then(|| job.name.clone()),
            };
            return Some((how, job));
        }
        for evidence in self.evidence(pid)? {
            let (family, name) = (evidence.family, evidence.job);
            let mut at = pid;
            let launcher = loop {
                let Some(parent) = self.parent(at) else {
                    break None;
                };
                let same = |theirs: Vec<Evidence>| {
                    theirs
                        .iter()
                        .any(|it| (it.family, &it.job) == (family, &name))
                };
                match self.evidence(parent) {
                    None => break None,
                    Some(theirs) if same(theirs.clone()) => at = parent,
                    Some(_) if is_proxy(self.command(parent)) => {
                        break self.parent(parent).or(Some(parent));
                    }
                    Some(_) => break Some(parent),
                }
            };
            let known = launcher.and_then(|launcher| {
                let jobs = self.below(launcher)?.1;
                Some((
                    launcher,
                    jobs.into_iter()
                        .find(|job| (job.family, &job.name) == (family, &name))?,
                ))
            });
            let (below, job) = match known {
                Some((launcher, job)) => (Some(launcher), job),
                // Without a job name, all processes of this family would match.
                None if name.is_empty() => continue,
                None => {
                    // Job names can recur in another container, except Slurm's.
                    let near = self.system.numbering(pid);
                    let is_near = |pid: i32| match &near {
                        Some(Numbering::Other(number)) if family != Family::Slurm => {
                            number(pid).is_some()
                        }
                        _ => true,
                    };
                    let claims = self.claims(|pid, evidence| {
                        (evidence.family, &evidence.job) == (family, &name) && is_near(pid)
                    });
                    (None, environment::jobs(claims).into_iter().next()?)
                }
            };
            let Some(rank) = job
                .ranks
                .values()
                .copied()
                .find(|&rank| self.belongs(rank, pid))
            else {
                continue;
            };
            let process = self.unwrap(rank);
            if self.is_above(process, pid)
                && let Some((&number, _)) = job.ranks.iter().find(|(_, of)| **of == rank)
            {
                let rank = Rank(number);
                self.doubts.push(Doubt::BelowRank { rank, pid });
            }
            if let Some(launcher) = below {
                let program = file_name(&self.program(launcher)).to_owned();
                self.notes.push(Note::Launcher {
                    pid: launcher,
                    program,
                });
            }
            let how = How::Environment {
                variables: family.variables(),
                below,
                job: (!name.is_empty()).then_some(name),
            };
            return Some((how, job));
        }
        None
    }

    /// Returns the jobs of the descendants of `root`, by the first family that identifies any. A descendant counts if its
    /// evidence differs from that of `root`; the search does not continue below it.
    fn below(&self, root: i32) -> Option<(Family, Vec<Job>)> {
        Family::ALL.into_iter().find_map(|family| {
            let jobs = self.below_of(root, family);
            (!jobs.is_empty()).then_some((family, jobs))
        })
    }

    /// Returns the jobs of [`Self::below`] according to one family.
    fn below_of(&self, root: i32, family: Family) -> Vec<Job> {
        let own = self.evidence(root).unwrap_or_default();
        let inherited = own.iter().find(|evidence| evidence.family == family);
        let (mut claims, mut alike) = (Vec::new(), Vec::new());
        let mut next = self.children(root);
        while let Some(pid) = next.pop() {
            match self.claim(pid, family) {
                Some(claim) if Some(&claim.evidence) != inherited => claims.push(claim),
                claim => {
                    alike.extend(claim);
                    next.extend(self.children(pid));
                }
            }
        }
        // A launcher that is itself rank 0 of an outer job may have started a rank 0: its evidence equals the launcher's, so the
        // comparison missed it.
        let parents: BTreeSet<Option<i32>> =
            claims.iter().map(|claim| self.parent(claim.pid)).collect();
        let missing = |claim: &Claim| {
            let same = |other: &Claim| {
                (other.evidence.rank, &other.evidence.job)
                    == (claim.evidence.rank, &claim.evidence.job)
            };
            parents.contains(&self.parent(claim.pid)) && !claims.iter().any(same)
        };
        let more: Vec<Claim> = alike.into_iter().filter(missing).collect();
        claims.extend(more);
        for claim in &mut claims {
            claim.launcher = self.launcher_of(claim.pid, root);
        }
        environment::jobs(claims)
    }

    /// Returns a claim for each live process with evidence that is `wanted`, unless its parent has the same: the outermost
    /// counts.
    pub(super) fn claims(&self, wanted: impl Fn(i32, &Evidence) -> bool) -> Vec<Claim> {
        let matching = |pid: i32| -> Option<Evidence> {
            self.evidence(pid)?
                .into_iter()
                .find(|evidence| wanted(pid, evidence))
        };
        let alive = self.processes.values().filter(|process| !is_dead(process));
        alive
            .filter_map(|process| {
                let evidence = matching(process.pid)?;
                let parent = self.parent(process.pid).and_then(matching);
                (parent.as_ref() != Some(&evidence)).then_some(Claim {
                    pid: process.pid,
                    started: process.started,
                    evidence,
                    launcher: None,
                })
            })
            .collect()
    }

    fn claim(&self, pid: i32, family: Family) -> Option<Claim> {
        let evidence = self
            .evidence(pid)?
            .into_iter()
            .find(|evidence| evidence.family == family)?;
        Some(Claim {
            pid,
            started: self.processes.get(&pid)?.started,
            evidence,
            launcher: None,
        })
    }

    /// Adds a note for each of these jobs that has a name.
    fn others(&mut self, jobs: &[Job]) {
        let named = jobs.iter().filter(|job| !job.name.is_empty());
        let others = named.map(|job| Note::OtherJob {
            job: job.name.clone(),
            ranks: job.ranks.len(),
        });
        self.notes.extend(others);
    }

    /// Adds a note for each launcher below a process, except the chosen one and those already noted.
    fn other_launchers(&mut self, root: i32, chosen: Option<i32>) {
        if chosen.is_some_and(|chosen| !self.is_above(root, chosen)) {
            return;
        }
        for family in Family::ALL {
            for job in self.below_of(root, family) {
                let is_named = |note: &Note| matches!(note, Note::OtherLauncher { pid, .. } if Some(*pid) == job.launcher);
                if job.launcher == chosen || self.notes.iter().any(is_named) {
                    continue;
                }
                if let Some(pid) = job.launcher {
                    self.notes.push(Note::OtherLauncher {
                        pid,
                        program: file_name(&self.program(pid)).to_owned(),
                        ranks: job.ranks.len(),
                    });
                }
            }
        }
    }

    /// Returns the outermost launcher on the path from a process up to its ancestor `root`, which may be the launcher itself.
    fn launcher_of(&self, pid: i32, root: i32) -> Option<i32> {
        let mut launcher = None;
        let mut at = pid;
        while at != root {
            at = self.parent(at)?;
            if is_launcher(self.command(at)) && !is_proxy(self.command(at)) {
                launcher = Some(at);
            }
        }
        launcher
    }
}

fn is_dead(process: &Process) -> bool {
    matches!(process.state, 'Z' | 'X' | 'x')
}

/// Returns true if `name` refers to this job: the full name, or for jobs of `rally` the end `PID@N`.
fn is_called(job: &str, name: &str) -> bool {
    job == name
        || (name.contains('@')
            && name.starts_with(|c: char| c.is_ascii_digit())
            && job
                .strip_suffix(name)
                .is_some_and(|before| before.ends_with('-')))
}

fn is_empty_table_of(tried: &Tried, pid: i32) -> bool {
    matches!(tried, Tried::EmptyTable { launcher, .. } if *launcher == pid)
}
