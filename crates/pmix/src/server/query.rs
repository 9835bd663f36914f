//! Queries (PMIx_Query_info) about jobs, nodes and supported features.

use std::ffi::CStr;

use super::{ReplyTo, Server, directive, facts::joined, find, info};
use crate::{
    keys,
    message::Answer,
    value::{DataType, Elements, Info, Nspace, PmixRank, Proc, Query, Status, Value},
};

impl Server {
    pub(super) fn on_query(&mut self, reply: ReplyTo, from: &Proc, queries: &[Query]) {
        let mut infos = Vec::new();
        for query in queries {
            for key in query.keys.iter().flatten() {
                let value = self.fact_for(from, key, &query.qualifiers);
                infos.extend(value.and_then(|value| info(key, value)));
            }
        }
        // A partial result is reported as SUCCESS: libraries drop results that come with QUERY_PARTIAL_SUCCESS, and the
        // caller sees which keys are missing.
        let status = if infos.is_empty() {
            Status::NOT_FOUND
        } else {
            Status::SUCCESS
        };
        self.answer(reply, &Answer::Infos { status, infos });
    }

    fn fact_for(&self, from: &Proc, key: &CStr, qualifiers: &[Info]) -> Option<Value> {
        let whose = match find(qualifiers, keys::PROC_ID) {
            Some(Value::Proc(proc)) => Some(&**proc),
            _ => None,
        };
        let named = find(qualifiers, keys::NSPACE)
            .and_then(name_of)
            .or_else(|| Some(whose?.nspace.clone()));
        // A query about an unknown job has no result, whatever its key.
        if named.as_ref().is_some_and(|name| !self.knows(name)) {
            return None;
        }
        let nspace = named.unwrap_or_else(|| from.nspace.clone());
        let job = self.jobs.get(&nspace);
        if key == keys::QUERY_NAMESPACES {
            let names = self.jobs.keys().map(Nspace::as_c_str);
            return Some(Value::String(joined(names, b',')));
        }
        if key == keys::QUERY_NAMESPACE_INFO {
            let all = self.jobs.values().map(|job| {
                let facts = job
                    .job_facts()
                    .into_iter()
                    .map(|fact| Info::new(fact.key, fact.value));
                Some(Value::Info(Box::new(info(
                    keys::JOB_ARRAY,
                    Value::infos(facts.collect()),
                )?)))
            });
            return Some(Value::array(DataType::INFO, all.flatten().collect()));
        }
        if key == keys::QUERY_PROC_TABLE || key == keys::QUERY_LOCAL_PROC_TABLE {
            return Some(Value::array(DataType::PROC_INFO, job?.table()));
        }
        if key == keys::QUERY_SPAWN_SUPPORT {
            return Some(Value::String(joined(directive::OF_SPAWN, b',')));
        }
        if key == keys::QUERY_DEBUG_SUPPORT {
            return Some(Value::String(joined(directive::OF_HOLD, b',')));
        }
        // Process sets cannot be defined here, so there are none.
        if key == keys::QUERY_NUM_PSETS {
            return Some(Value::Size(0));
        }
        if key == keys::QUERY_PSET_NAMES {
            return Some(Value::text(""));
        }
        if key == keys::QUERY_GROUP_NAMES {
            let names = self
                .group_names()
                .map(|name| Value::String(Some(name.as_c_str().to_owned())))
                .collect();
            return Some(Value::array(DataType::STRING, names));
        }
        if key == keys::QUERY_GROUP_MEMBERSHIP {
            let group = find(qualifiers, keys::GROUP_ID)?.as_text()?;
            return Some(Value::procs(self.members_of(group)?.to_vec()));
        }
        let job = job?;
        let rank = find(qualifiers, keys::RANK).and_then(|value| match value {
            Value::Rank(rank) => Some(*rank),
            value => value
                .as_count()
                .and_then(|rank| u32::try_from(rank).ok())
                .map(PmixRank),
        });
        let rank = rank.or_else(|| Some(whose?.rank));
        let fact = match rank {
            Some(rank) if rank.is_number() => job.rank_fact(rank, key),
            _ => job.job_fact(key),
        };
        fact.or_else(|| job.class_fact(rank.unwrap_or(from.rank), key))
    }

    pub(super) fn on_resolve_peers(
        &mut self,
        reply: ReplyTo,
        node: Option<&CStr>,
        nspace: Option<&CStr>,
    ) {
        let mut procs = Vec::new();
        for (name, job) in &self.jobs {
            if nspace.is_some_and(|wanted| *name != *wanted) {
                continue;
            }
            let at = match node {
                None => Some(job.job.here),
                Some(node) => (0..)
                    .zip(&job.job.nodes)
                    .find(|(_, facts)| facts.name.as_c_str() == node)
                    .map(|(index, _)| index),
            };
            let ranks = at.into_iter().flat_map(|at| job.ranks_on(at));
            procs.extend(ranks.map(|rank| Proc {
                nspace: name.clone(),
                rank: PmixRank(*rank),
            }));
        }
        let status = if procs.is_empty() {
            Status::NOT_FOUND
        } else {
            Status::SUCCESS
        };
        self.answer(reply, &Answer::Procs { status, procs });
    }

    pub(super) fn on_resolve_node(&mut self, reply: ReplyTo, nspace: Option<&CStr>) {
        let mut nodes: Vec<&CStr> = Vec::new();
        for (name, job) in &self.jobs {
            if nspace.is_none_or(|wanted| *name == *wanted) {
                for node in &job.job.nodes {
                    if !nodes.contains(&node.name.as_c_str()) {
                        nodes.push(&node.name);
                    }
                }
            }
        }
        let answer = if nodes.is_empty() {
            Answer::Status(Status::NOT_FOUND)
        } else {
            Answer::Nodes {
                status: Status::SUCCESS,
                nodes: joined(nodes, b','),
            }
        };
        self.answer(reply, &answer);
    }
}

/// Returns a namespace that is given as a string, as a namespace, or as an array of them (its first element).
fn name_of(value: &Value) -> Option<Nspace> {
    match value {
        Value::String(Some(name)) | Value::Nspace(Some(name)) => Nspace::new(name).ok(),
        Value::Array(array) => match &array.elements {
            Elements::Values(values) => values.first().and_then(name_of),
            _ => None,
        },
        _ => None,
    }
}
