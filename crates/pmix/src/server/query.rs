//! Queries (PMIx_Query_info) about jobs, nodes and supported features.
//!
//! The server knows the process numbers and states only of local processes. It asks the host for those of other nodes, and for what only
//! the host knows ([`support::OF_HOST`]), and answers the query afterwards.

use std::{
    collections::{BTreeMap, BTreeSet},
    ffi::{CStr, CString},
};

use super::{
    Ask, Output, ReplyTo, Server, Ticket,
    environment::address,
    facts::joined,
    find, info,
    job::{Namespace, Remote},
    support,
};
use crate::{
    keys,
    message::{Answer, NamesForm, Request},
    planted::{self, Bug},
    value::{DataType, Elements, Info, Nspace, PmixRank, Proc, Query, Status, Text, Value},
};

/// A query that waits for the host's part of the answer.
#[derive(Debug)]
pub(super) struct AskedQuery {
    reply: ReplyTo,
    from: Proc,
    queries: Vec<Query>,
}

/// What the host has answered.
#[derive(Debug, Default)]
struct Away {
    /// Process numbers and states of processes on other nodes, by job.
    procs: BTreeMap<Nspace, Remote>,
    /// Results of the query that only the host knows.
    beside: Vec<Info>,
}

/// The job, rank and node that the qualifiers of a query select.
struct Subject<'a> {
    job: &'a Namespace,
    rank: Option<PmixRank>,
    /// The index of the node; `None` without a qualifier for it.
    node: Option<u32>,
}

impl Away {
    /// Reads the host's answer.
    fn of(answer: &Answer) -> Self {
        let mut away = Self::default();
        let Answer::Infos { infos, .. } = answer else {
            return away;
        };
        for info in infos {
            if info.key != *keys::QUERY_PROC_TABLE {
                away.beside.push(info.clone());
                continue;
            }
            let Value::Array(array) = &info.value else {
                continue;
            };
            let Elements::Values(rows) = &array.elements else {
                continue;
            };
            for row in rows {
                if let Value::ProcInfo(row) = row {
                    let of_job = away.procs.entry(row.proc.nspace.clone()).or_default();
                    of_job.insert(row.proc.rank.0, (row.pid, row.state));
                }
            }
        }
        away
    }

    fn about(&self, job: &Namespace) -> &Remote {
        const NONE: &Remote = &Remote::new();
        self.procs.get(&job.job.nspace).unwrap_or(NONE)
    }
}

impl Server {
    pub(super) fn on_query(&mut self, reply: ReplyTo, from: &Proc, queries: Vec<Query>) {
        let is_known = |query: &Query| self.subject(from, &query.qualifiers).is_some();
        if planted::is(Bug::UnknownJobNotAnswered) && !queries.iter().all(is_known) {
            return;
        }
        let away = self.away_jobs(from, &queries);
        let for_host = self.for_host(from, &queries);
        if away.is_empty() && for_host.is_empty() {
            return self.answer_query(reply, from, &queries, &Away::default());
        }
        let about = |nspace: &Nspace| Query {
            keys: vec![Text::Some(keys::QUERY_PROC_TABLE.to_owned())],
            qualifiers: info(keys::NSPACE, Value::String(Some(nspace.as_c_str().into())))
                .into_iter()
                .collect(),
        };
        let request = Request::Query {
            queries: away.iter().map(about).chain(for_host).collect(),
        };
        let ticket = Ticket(self.next_ticket);
        self.next_ticket += 1;
        let asked = AskedQuery {
            reply,
            from: from.clone(),
            queries,
        };
        self.queries.insert(ticket, asked);
        self.out.push_back(Output::Ask(Box::new(Ask {
            ticket,
            from: from.clone(),
            request,
        })));
    }

    /// Answers a query with the host's part. Without it, the result has only what this server knows.
    pub(super) fn on_query_asked(&mut self, asked: AskedQuery, answer: &Answer) {
        let AskedQuery {
            mut reply,
            from,
            queries,
        } = asked;
        if planted::is(Bug::AnswerToSuccessor) && !self.peers.contains_key(&reply.conn) {
            let mut waiting = self.peers.iter();
            let successor = waiting.find_map(|(conn, peer)| Some((*conn, peer.waits_for()?)));
            if let Some((conn, tag)) = successor {
                reply = ReplyTo { conn, tag };
            }
        }
        self.answer_query(reply, &from, &queries, &Away::of(answer));
    }

    /// Drops the waiting queries of a closed connection.
    pub(super) fn forget_queries(&mut self, conn: super::Conn) {
        if planted::is(Bug::AnswerToSuccessor) {
            return;
        }
        self.queries.retain(|_, asked| asked.reply.conn != conn);
    }

    fn answer_query(&mut self, reply: ReplyTo, from: &Proc, queries: &[Query], away: &Away) {
        let known = self.peers.get(&reply.conn).and_then(|peer| peer.known());
        let form = known.map_or(NamesForm::Nested, |known| known.names_form);
        let mut infos = Vec::new();
        for query in queries {
            for key in query.distinct_keys() {
                if key == keys::QUERY_ATTRIBUTE_SUPPORT {
                    infos.extend(support::supported(&query.qualifiers, form));
                    continue;
                }
                let value = self.fact_for(from, key, &query.qualifiers, away);
                infos.extend(value.and_then(|value| info(key, value)));
            }
        }
        infos.extend(away.beside.iter().cloned());
        // A partial result is reported as SUCCESS: libraries drop results that come with QUERY_PARTIAL_SUCCESS, and the
        // caller sees which keys are missing.
        let status = if infos.is_empty() {
            Status::NOT_FOUND
        } else {
            Status::SUCCESS
        };
        self.answer(reply, &Answer::Infos { status, infos });
    }

    /// Returns the part of queries that only the host can answer. Without a qualifier, it is about the job of the caller.
    fn for_host(&self, from: &Proc, queries: &[Query]) -> Vec<Query> {
        let of_host = |key: &&CString| support::OF_HOST.contains(&key.as_c_str());
        let part = |query: &Query| {
            let keys: Vec<_> = query.keys.iter().flatten().filter(of_host).collect();
            let name = named(&query.qualifiers).unwrap_or_else(|| from.nspace.clone());
            let job = info(keys::NSPACE, Value::String(Some(name.as_c_str().into())));
            let others = query
                .qualifiers
                .iter()
                .filter(|info| info.key != *keys::NSPACE);
            (!keys.is_empty()).then(|| Query {
                keys: keys.into_iter().cloned().map(Text::Some).collect(),
                qualifiers: others.cloned().chain(job).collect(),
            })
        };
        queries.iter().filter_map(part).collect()
    }

    /// Returns the jobs whose processes on other nodes must be known for these queries.
    fn away_jobs(&self, from: &Proc, queries: &[Query]) -> BTreeSet<Nspace> {
        let mut jobs = BTreeSet::new();
        for query in queries {
            let Some(Subject { job, rank, node }) = self.subject(from, &query.qualifiers) else {
                continue;
            };
            let needs = |key: &CStr| {
                if planted::is(Bug::TableOfOneNode) {
                    false
                } else if key == keys::QUERY_PROC_TABLE {
                    !job.away().is_empty()
                } else if key == keys::QUERY_LOCAL_PROC_TABLE {
                    node.is_some_and(|node| node != job.job.here && !job.ranks_on(node).is_empty())
                } else {
                    key == keys::PROC_PID
                        && rank.is_some_and(|rank| job.rank(rank).is_some() && !job.is_local(rank))
                }
            };
            if query.keys.iter().flatten().any(|key| needs(key)) {
                jobs.insert(job.job.nspace.clone());
            }
        }
        jobs
    }

    /// Returns the subject of a query; `None` if its job is unknown. By default, the job is that of the caller.
    fn subject(&self, from: &Proc, qualifiers: &[Info]) -> Option<Subject<'_>> {
        let whose = whose(qualifiers);
        let nspace = named(qualifiers);
        let job = self.jobs.get(nspace.as_ref().unwrap_or(&from.nspace))?;
        let rank = find(qualifiers, keys::RANK).and_then(|value| match value {
            Value::Rank(rank) => Some(*rank),
            value => count_of(value).map(PmixRank),
        });
        let name = find(qualifiers, keys::HOSTNAME).and_then(Value::as_text);
        let id = find(qualifiers, keys::NODE_ID).and_then(count_of);
        let is_meant = |node: &super::NodeFacts| match name {
            Some(name) => node.name.as_c_str() == name,
            None => Some(node.id) == id,
        };
        let node = (name.is_some() || id.is_some()).then(|| {
            let found = job.job.nodes.iter().position(is_meant);
            found.and_then(|index| u32::try_from(index).ok())
        });
        Some(Subject {
            job,
            rank: rank.or_else(|| Some(whose?.rank)),
            // A node that the job does not use has no facts.
            node: node.map(|found| found.unwrap_or(u32::MAX)),
        })
    }

    fn fact_for(&self, from: &Proc, key: &CStr, qualifiers: &[Info], away: &Away) -> Option<Value> {
        // A query about an unknown job has no result, whatever its key. Tools name the server to ask it for its jobs.
        let is_known = |name: Nspace| self.knows(&name) || name == self.config.identity.nspace;
        if named(qualifiers).is_some_and(|name| !is_known(name)) {
            return None;
        }
        if let Some(value) = support::answer(key) {
            return Some(value);
        }
        if key == keys::SERVER_URI {
            let node = find(qualifiers, keys::HOSTNAME).and_then(Value::as_text);
            let is_here = node.is_none_or(|node| self.is_called(node));
            let uri = address(&self.config.identity, self.config.port);
            return is_here.then(|| Value::text(&uri));
        }
        if key == keys::QUERY_NAMESPACES {
            // In the order of their starts.
            let names = self.names.values().map(Nspace::as_c_str);
            return Some(Value::String(joined(names, b',')));
        }
        if key == keys::QUERY_NAMESPACE_INFO {
            return Some(self.namespace_info(named(qualifiers).as_ref()));
        }
        let subject = self.subject(from, qualifiers);
        if key == keys::QUERY_PROC_TABLE {
            let job = subject?.job;
            let all = 0..job.size();
            return Some(Value::array(
                DataType::PROC_INFO,
                job.table(all, away.about(job)),
            ));
        }
        if key == keys::QUERY_LOCAL_PROC_TABLE {
            let Subject { job, node, .. } = subject?;
            let there = job.ranks_on(node.unwrap_or(job.job.here)).iter().copied();
            return Some(Value::array(
                DataType::PROC_INFO,
                job.table(there, away.about(job)),
            ));
        }
        if let Some(value) = self.set_fact(from, key, qualifiers) {
            return Some(value);
        }
        if key == keys::QUERY_NUM_GROUPS {
            return u64::try_from(self.group_names().count())
                .ok()
                .map(Value::Size);
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
        let Subject { job, rank, node } = subject?;
        if key == keys::PROC_PID
            && let Some((pid, _)) = rank.and_then(|rank| away.about(job).get(&rank.0))
        {
            return (*pid != 0).then_some(Value::Pid(*pid));
        }
        let fact = match rank {
            Some(rank) if rank.is_number() => job.rank_fact(rank, key),
            _ => job.job_fact(key),
        };
        match node {
            Some(node) if Namespace::is_of_nodes(key) => job.node_fact(node, key),
            _ => fact.or_else(|| job.class_fact(rank.unwrap_or(from.rank), key)),
        }
    }

    /// Returns name and command line of each job, in the order of their starts; only of one job if its name is given. These two are what
    /// the Standard demands: there are tools that take whatever is in these arrays for texts.
    fn namespace_info(&self, of: Option<&Nspace>) -> Value {
        let is_meant = |name: &&Nspace| of.is_none_or(|of| !self.knows(of) || of == *name);
        let names = self.names.values().filter(is_meant);
        let all = names.filter_map(|name| {
            let apps = &self.jobs.get(name)?.job.apps;
            let programs = apps.iter().filter_map(|app| app.argv.as_deref());
            let programs: Vec<&[u8]> = programs.map(CStr::to_bytes).collect();
            let command = CString::new(programs.join(&b" : "[..])).ok();
            let facts = [
                info(keys::NSPACE, Value::String(Some(name.as_c_str().into()))),
                info(keys::COMMAND_LINE, Value::String(command)),
            ];
            let facts = Value::infos(facts.into_iter().flatten().collect());
            Some(Value::Info(Box::new(info(keys::JOB_ARRAY, facts)?)))
        });
        Value::array(DataType::INFO, all.collect())
    }

    /// Returns true if this node has the name, as far as a job on it says.
    fn is_called(&self, name: &CStr) -> bool {
        let mut jobs = self.jobs.values();
        jobs.any(|job| job.node_name(job.job.here) == Some(name))
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

/// Returns the process that a query names; `None` if it names none.
fn whose(qualifiers: &[Info]) -> Option<&Proc> {
    match find(qualifiers, keys::PROC_ID) {
        Some(Value::Proc(proc)) => Some(proc),
        _ => None,
    }
}

/// Returns the job that a query names; `None` if it names none.
pub(super) fn named(qualifiers: &[Info]) -> Option<Nspace> {
    let name = find(qualifiers, keys::NSPACE).and_then(Value::as_nspace);
    name.or_else(|| Some(whose(qualifiers)?.nspace.clone()))
}

/// Returns a value that is a number of 32 bits.
fn count_of(value: &Value) -> Option<u32> {
    value
        .as_written_count()
        .and_then(|number| u32::try_from(number).ok())
}
