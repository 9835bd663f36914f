//! Process sets: named sets of the processes of a job, which exist as long as the job.
//!
//! A set consists of the processes of all apps that have its name, or of those for which it is defined while the job runs. Sets of two jobs
//! may have the same name. Where a process uses that name, it means the set of its own job.

use std::{
    collections::BTreeSet,
    ffi::{CStr, CString},
};

use base::{Rank, RankSet};

use super::{Event, Server, event::From, facts::joined, find, info, job::Namespace, query::named};
use crate::{
    keys,
    value::{Info, Nspace, PmixRank, Proc, Range, Status, Value},
};

impl Namespace {
    /// Returns the names of the sets, each once, in the order of the apps, and then of the definitions.
    fn set_names(&self) -> Vec<&CStr> {
        let mut seen = BTreeSet::new();
        let names = self.job.apps.iter().filter_map(|app| app.set.as_deref());
        let defined = self.defined_sets.iter().map(|(name, _)| name.as_c_str());
        names
            .chain(defined)
            .filter(|name| seen.insert(*name))
            .collect()
    }

    /// Returns the members of a set, in the order of their ranks; `None` if the job has no such set.
    pub(super) fn set_members(&self, name: &CStr) -> Option<Vec<Proc>> {
        let mut defined = self.defined_sets.iter();
        let defined = defined.find(|(one, _)| one.as_c_str() == name);
        let is_in = |rank: u32, app: u32| match defined {
            Some((_, ranks)) => ranks.contains(Rank(rank)),
            None => self.set_of_app(app) == Some(name),
        };
        let members = (0..).zip(&self.job.ranks);
        let members = members.filter(|(rank, facts)| is_in(*rank, facts.app));
        let members: Vec<Proc> = members
            .map(|(rank, _)| Proc {
                nspace: self.job.nspace.clone(),
                rank: PmixRank(rank),
            })
            .collect();
        (!members.is_empty()).then_some(members)
    }

    /// Returns the name of the set to which the processes of an app belong; `None` if they belong to none.
    pub(super) fn set_of_app(&self, app: u32) -> Option<&CStr> {
        self.job.apps.get(app as usize)?.set.as_deref()
    }
}

impl Server {
    /// Sends the events by which local processes and tools learn of the sets of a new job.
    pub(super) fn announce_sets(&mut self, nspace: &Nspace) {
        let names = self.jobs.get(nspace).map(Namespace::set_names);
        let names: Vec<CString> = names.into_iter().flatten().map(CStr::to_owned).collect();
        for name in names {
            self.announce_set(nspace, &name);
        }
    }

    /// Adds a set to a job that runs.
    pub(super) fn define_set(&mut self, nspace: &Nspace, name: CString, ranks: RankSet) {
        if let Some(job) = self.jobs.get_mut(nspace) {
            job.defined_sets.push((name.clone(), ranks));
            self.announce_set(nspace, &name);
        }
    }

    fn announce_set(&mut self, nspace: &Nspace, name: &CStr) {
        let job = self.jobs.get(nspace);
        let Some(members) = job.and_then(|job| job.set_members(name)) else {
            return;
        };
        let infos = [
            info(keys::EVENT_NON_DEFAULT, Value::Bool(true)),
            info(keys::PSET_NAME, Value::String(Some(name.to_owned()))),
            info(keys::PSET_MEMBERS, Value::procs(members)),
        ];
        let event = Event {
            status: Status::PROCESS_SET_DEFINE,
            source: self.config.identity.clone(),
            range: Range::LOCAL,
            infos: infos.into_iter().flatten().collect(),
        };
        // Every server knows the job, and sends the event to its own processes.
        self.deliver(&event, From::Host);
    }

    /// Answers a query about sets: of the job that it names, or of all jobs. Returns `None` for other keys, and for the members of an
    /// unknown set.
    pub(super) fn set_fact(&self, from: &Proc, key: &CStr, qualifiers: &[Info]) -> Option<Value> {
        let of_job = named(qualifiers);
        // In the order of their starts.
        let jobs = self.names.values();
        let jobs = jobs.filter(|nspace| of_job.as_ref().is_none_or(|wanted| wanted == *nspace));
        let jobs = jobs.filter_map(|nspace| self.jobs.get(nspace));
        if key == keys::QUERY_PSET_MEMBERSHIP {
            let name = find(qualifiers, keys::PSET_NAME)?.as_text()?;
            let own = self.jobs.get(&from.nspace).filter(|_| of_job.is_none());
            let mut found = own.into_iter().chain(jobs);
            return Some(Value::procs(found.find_map(|job| job.set_members(name))?));
        }
        let mut seen = BTreeSet::new();
        let names = jobs.flat_map(Namespace::set_names);
        let names: Vec<&CStr> = names.filter(|name| seen.insert(*name)).collect();
        match key {
            _ if key == keys::QUERY_NUM_PSETS => u64::try_from(names.len()).ok().map(Value::Size),
            _ if key == keys::QUERY_PSET_NAMES => Some(Value::String(joined(names, b','))),
            _ => None,
        }
    }
}
