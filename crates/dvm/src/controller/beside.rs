//! Tools beside the ranks of a job: jobs whose procs a front has requested, and that belong to no application.
//!
//! | a front requests a tool for | the tool is | its output | its end |
//! |---|---|---|---|
//! | its own job ([`Origin::Beside`]) | a further job of the front, which does not end before it | goes to the front | [`ToFront::Tool`] |
//! | another job ([`Origin::Front`]) | the job of the front | goes to the front | [`ToFront::Ended`] |
//!
//! The target lends its environment, its nodes and its allocation. A tool uses no slots, has no ranks for PMI and PMIx, and ends, with
//! its grace, when its target is ended or has no rank left. The target does not notice it.

#[cfg(test)]
mod tests;

use std::{collections::BTreeMap, ffi::OsStr, os::unix::ffi::OsStrExt as _, sync::Arc};

use base::{HostList, JobId, NodeId, Rank, RankSet, Time};

use super::{Controller, Job, MAX_JOBS, Origin, Phase, job::NewJob};
use crate::{
    place::{self, AppRequest, BindTarget, MapBy, MapTo, Oversubscribe},
    proto::{
        Beside, Cause, EndReason, FrontId, JobRef, NoTarget, OnePer, Outcome, Refusal, ToFront,
        ToolNews, ToolRequest,
    },
    spec::{
        App, HoldPlan, JobSpec, MapFor, NodeVariables, Recorder, ResourceLimits, ResourceNeeds,
    },
};

/// Variables by which users change what the dynamic linker of the ranks does begin like this.
const LINKER: &[u8] = b"LD_";
/// Variables that load code into each process: what is meant for ranks must not get into a tool.
const INTO_RANKS: [&str; 2] = ["LD_PRELOAD", "LD_AUDIT"];

impl Controller {
    /// Handles the request for a tool. `own` is the job of the front.
    pub(super) fn on_start_tool(
        &mut self,
        now: Time,
        front: FrontId,
        own: Option<JobId>,
        request: ToolRequest,
    ) {
        let refusal = match self.tool_job(front, own, request) {
            Ok(job) => {
                let id = job.id;
                if own.is_none() {
                    if let Some(front) = self.fronts.get_mut(&front) {
                        front.job = Some(id);
                    }
                    self.tell(front, ToFront::Accepted(id));
                }
                return self.insert(now, job);
            }
            Err(refusal) => refusal,
        };
        match own {
            Some(_) => self.tell_of_tool(front, ToolNews::Refused(refusal)),
            None => {
                self.tell(front, ToFront::Refused(refusal));
                self.finish_front(front);
            }
        }
    }

    fn tell_of_tool(&mut self, front: FrontId, news: ToolNews) {
        self.tell(front, ToFront::Tool(Box::new(news)));
    }

    /// Returns the job of a tool.
    fn tool_job(
        &self,
        front: FrontId,
        own: Option<JobId>,
        request: ToolRequest,
    ) -> Result<NewJob, Refusal> {
        if self.jobs.len() >= MAX_JOBS {
            return Err(Refusal::TooManyJobs { most: MAX_JOBS });
        }
        let ToolRequest {
            target,
            one_per,
            spec,
        } = request;
        let target = self.job_meant(own, target);
        let target = target.and_then(|id| self.jobs.get(&id));
        let target = target
            .filter(|job| !job.is_ending())
            .ok_or(Refusal::NoTarget(NoTarget::NoSuchJob))?;
        let refused = match target.phase {
            _ if target.beside.is_some() => Some(NoTarget::IsTool),
            Phase::Waiting => Some(NoTarget::NotStarted),
            _ if target.has_no_rank_left() => Some(NoTarget::NoSuchJob),
            _ => None,
        };
        if let Some(why) = refused {
            return Err(Refusal::NoTarget(why));
        }
        let ranks = RankSet::range(0..target.size).difference(&target.settled);
        let places = self.places_beside(target, &ranks, one_per);
        if places.is_empty() {
            // Its nodes are lost.
            return Err(Refusal::NoTarget(NoTarget::NoSuchJob));
        }
        let spec = spec_beside(target, *spec, places)?;
        let id = JobId(self.next_job);
        Ok(NewJob {
            id,
            spec: Box::new(spec),
            origin: match own {
                Some(_) => Origin::Beside,
                None => Origin::Front,
            },
            front,
            root: own.unwrap_or(id),
            nspace: self.nspace(id),
            grant: target.grant.clone(),
            beside: Some(Beside {
                target: target.id,
                nspace: target.nspace.clone(),
                one_per,
                ranks,
            }),
        })
    }

    /// Returns the names of the nodes on which processes of the tool run, one for each process, by the app of the target whose
    /// environment they get: that of their rank, or of the first rank on their node.
    fn places_beside(
        &self,
        target: &Job,
        ranks: &RankSet,
        one_per: OnePer,
    ) -> BTreeMap<u32, Vec<&str>> {
        let app_of = |rank: Rank| {
            let launch = target.launch.as_ref();
            let app = launch.and_then(|launch| launch.map.app_of(rank));
            app.map_or(0, |(app, _)| app)
        };
        let living = target.shares.iter().filter_map(|(node, share)| {
            let here = share.ranks.intersection(ranks);
            self.nodes.contains_key(node).then_some((*node, here))
        });
        let mut of_node: Vec<(Rank, NodeId)> = Vec::new();
        for (node, here) in living {
            match one_per {
                OnePer::Node => of_node.extend(here.first().map(|rank| (rank, node))),
                OnePer::Rank => of_node.extend(here.iter().map(|rank| (rank, node))),
            }
        }
        of_node.sort_unstable();
        let mut places: BTreeMap<u32, Vec<&str>> = BTreeMap::new();
        for (rank, node) in of_node {
            let names = places.entry(app_of(rank)).or_default();
            names.push(self.name_of(node));
        }
        places
    }

    /// Returns true if a tool waits until all ranks of its target have been started: their processes have to be known where it starts.
    pub(super) fn waits_for_target(&self, job: &Job) -> bool {
        let target = job.beside.as_ref().map(|beside| beside.target);
        let target = target.and_then(|target| self.jobs.get(&target));
        target.is_some_and(|target| target.phase < Phase::Running)
    }

    fn tools_of(&self, target: JobId) -> Vec<JobId> {
        let is_its = |job: &&Job| {
            let beside = job.beside.as_ref();
            beside.is_some_and(|beside| beside.target == target)
        };
        let tools = self.jobs.values().filter(is_its);
        tools.map(|job| job.id).collect()
    }

    /// Starts the tools that have waited for the ranks of a job.
    pub(super) fn launch_tools_of(&mut self, target: JobId) {
        if self.jobs.get(&target).map(|job| job.phase) == Some(Phase::Running) {
            for tool in self.tools_of(target) {
                self.launch_if_ready(tool);
            }
        }
    }

    /// Ends the tools beside a job.
    pub(super) fn end_tools_of(&mut self, target: JobId) {
        for tool in self.tools_of(target) {
            let cause = Cause::Ended(EndReason::TargetEnded);
            self.with(tool, |job| job.end(cause));
        }
    }

    /// Ends the tools beside a job that has no rank left.
    pub(super) fn end_tools_of_empty(&mut self, target: JobId) {
        if self.jobs.get(&target).is_some_and(Job::has_no_rank_left) {
            self.end_tools_of(target);
        }
    }

    /// Tells the front that all processes of its tool run, unless some could not be started: the end of the tool says why.
    pub(super) fn tell_tool_runs(&mut self, id: JobId) {
        let job = self.jobs.get(&id);
        if let Some(job) = job.filter(|job| job.origin == Origin::Beside && job.failures.is_empty())
        {
            self.tell_of_tool(job.front, ToolNews::Started(id));
        }
    }

    pub(super) fn tool_refused(&mut self, front: FrontId, refusal: Refusal) {
        self.tell_of_tool(front, ToolNews::Refused(refusal));
    }

    pub(super) fn tool_ended(&mut self, front: FrontId, job: JobId, outcome: Outcome) {
        let cause = outcome.cause;
        self.tell_of_tool(front, ToolNews::Ended { job, cause });
    }

    /// Returns the job that a front means.
    pub(super) fn job_meant(&self, own: Option<JobId>, job: JobRef) -> Option<JobId> {
        match job {
            JobRef::Own => own,
            JobRef::Number(id) => Some(id),
            JobRef::OfFront(pid) => self.job_of_front(pid),
        }
    }
}

/// Returns the specification of the tool's job, from what its front says and what its target has.
fn spec_beside(
    target: &Job,
    said: JobSpec,
    places: BTreeMap<u32, Vec<&str>>,
) -> Result<JobSpec, Refusal> {
    let too_many = || Refusal::NoTarget(NoTarget::TooMany);
    if places.values().map(Vec::len).fold(0, usize::saturating_add) > base::MAX_HOSTS {
        return Err(too_many());
    }
    let tool = said.apps.first();
    let tool = tool.ok_or(Refusal::NoTarget(NoTarget::NoSuchJob))?.clone();
    let mut sequence = HostList::new();
    let mut request = place::Request {
        oversubscribe: Oversubscribe::Allow,
        bind_to: Some(BindTarget::None.into()),
        ..place::Request::default()
    };
    let mut apps = Vec::with_capacity(places.len());
    for (app, names) in places {
        request.apps.push(AppRequest {
            count: Some(u32::try_from(names.len()).map_err(|_| too_many())?),
            hosts: Some(names.iter().copied().collect()),
            ..AppRequest::default()
        });
        for name in names {
            sequence.push(name);
        }
        if let Some(base) = target.spec.apps.get(app as usize) {
            apps.push(app_beside(base, &tool));
        }
    }
    // The ranks have the slots.
    request.map_by = Some(MapBy {
        oversubscribe: Some(Oversubscribe::Allow),
        ..MapBy::from(MapTo::Sequence(sequence))
    });
    let preload = said.preload.map(|mut preload| {
        // All apps are the same program.
        let programs = &mut preload.use_of.programs;
        if let Some(name) = programs.get(&0).cloned() {
            programs.extend((0..).take(apps.len()).map(|app| (app, name.clone())));
        }
        preload
    });
    Ok(JobSpec {
        apps,
        placement: request,
        preload,
        universe: None,
        hold: HoldPlan::NOWHERE,
        variables: std::collections::BTreeSet::new(),
        gpus: None,
        map: MapFor::Launch,
        limits: ResourceLimits::default(),
        watch: None,
        needs: ResourceNeeds::default(),
        sets: BTreeMap::new(),
        recorder: Recorder::Off,
        stdin: said.stdin,
        stdio: said.stdio,
        end: said.end,
    })
}

/// Returns a tool as it runs beside an app.
fn app_beside(base: &App, tool: &App) -> App {
    let mut env = base.env.clone();
    let of_linker: Vec<_> = env
        .iter()
        .map(|(name, _)| name.to_owned())
        .filter(|name| name.as_bytes().starts_with(LINKER))
        .collect();
    for name in of_linker {
        env.remove(&name);
    }
    for (name, value) in tool.env.iter() {
        env.set(name, value);
    }
    let mut elsewhere = base.elsewhere.clone();
    if let NodeVariables::AllExcept(names) = &elsewhere.more {
        let missing = INTO_RANKS
            .iter()
            .map(OsStr::new)
            .filter(|name| !names.iter().any(|one| one == name));
        let missing: Vec<_> = missing.map(OsStr::to_owned).collect();
        if let NodeVariables::AllExcept(names) = &mut Arc::make_mut(&mut elsewhere).more {
            names.extend(missing);
        }
    }
    App {
        program: tool.program.clone(),
        args: tool.args.clone(),
        env,
        directory: base.directory.clone(),
        search: base.search.clone(),
        elsewhere,
        umask: base.umask,
        tracers: base.tracers,
    }
}
