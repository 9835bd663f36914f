//! Groups: sets of processes with a name, and perhaps with a number that all members have for it.

use std::{
    collections::{BTreeMap, BTreeSet},
    ffi::{CStr, CString},
};

use base::Time;
use bytes::Bytes;

use super::{
    Event, ReplyTo, Server,
    collective::{Arrival, Kind},
    event::From,
    info, is_set,
};
use crate::{
    codec::{Size, Writer},
    keys,
    message::{Answer, GroupAnswer, GroupForm},
    value::{Info, Nspace, Proc, Range, Status, Text, Value},
};

/// The groups that there are.
#[derive(Debug)]
pub(super) struct Groups {
    by_name: BTreeMap<Bytes, BTreeSet<Proc>>,
    next_context: u64,
    step: u64,
}

impl Groups {
    pub(super) const fn new((first, step): (u64, u64)) -> Self {
        Self {
            by_name: BTreeMap::new(),
            next_context: first,
            step,
        }
    }

    pub(super) fn remove(&mut self, name: &Bytes) {
        self.by_name.remove(name);
    }

    pub(super) fn forget_job(&mut self, nspace: &Nspace) {
        self.by_name
            .retain(|_, members| members.iter().any(|member| member.nspace != *nspace));
    }

    fn context(&mut self) -> u64 {
        let context = self.next_context;
        self.next_context = context.saturating_add(self.step);
        context
    }
}

impl Server {
    pub(super) fn on_construct(
        &mut self,
        now: Time,
        reply: ReplyTo,
        from: &Proc,
        group: Text,
        procs: Vec<Proc>,
        infos: Vec<Info>,
    ) {
        let Some(name) = group else {
            return self.status(reply, Status::BAD_PARAM);
        };
        let kind = Kind::Construct(name.into_bytes().into());
        self.on_collective(now, reply, from, kind, procs, infos);
    }

    pub(super) fn on_destruct(
        &mut self,
        now: Time,
        reply: ReplyTo,
        from: &Proc,
        group: Text,
        procs: Option<Vec<Proc>>,
        infos: Vec<Info>,
    ) {
        let Some(name) = group else {
            return self.status(reply, Status::BAD_PARAM);
        };
        let name = Bytes::from(name.into_bytes());
        // The members are known from the construction; an old library does not even say them.
        let known = self.groups.by_name.get(&name);
        let procs = match (known, procs) {
            (Some(members), _) => members.iter().cloned().collect(),
            (None, Some(procs)) if !procs.is_empty() => procs,
            (None, _) => return self.status(reply, Status::NOT_FOUND),
        };
        self.on_collective(now, reply, from, Kind::Destruct(name), procs, infos);
    }

    /// Everybody is in: the group exists.
    pub(super) fn constructed(
        &mut self,
        group: Bytes,
        procs: &BTreeSet<Proc>,
        arrived: Vec<Arrival>,
    ) {
        let wanted = |arrival: &Arrival| is_set(&arrival.infos, keys::GROUP_ASSIGN_CONTEXT_ID);
        let context = arrived.iter().any(wanted).then(|| self.groups.context());
        // What the members tell each other, each under its own name.
        let told: Vec<Info> = arrived
            .iter()
            .flat_map(|arrival| &arrival.infos)
            .filter(|info| info.key == *keys::GROUP_INFO)
            .cloned()
            .collect();
        let members: Vec<Proc> = procs.iter().cloned().collect();
        let jobs: BTreeSet<Nspace> = procs.iter().map(|proc| proc.nspace.clone()).collect();
        self.groups.by_name.insert(group, procs.clone());
        for arrival in arrived {
            let form = self
                .peers
                .get(&arrival.conn())
                .and_then(|peer| peer.known())
                .map_or(GroupForm::Members, |known| known.group_form);
            let nspace = arrival.proc.nspace.clone();
            let reply = arrival.into_reply();
            if form == GroupForm::Members {
                let others = jobs.iter().filter(|job| **job != nspace);
                let head = |writer: &mut Writer| {
                    writer.list(&members);
                    writer.item(&Size(context.unwrap_or(u64::MAX)));
                };
                self.tell_jobs(reply, others, head, Writer::nested);
            } else {
                let answer = Answer::Group(GroupAnswer {
                    form,
                    status: Status::SUCCESS,
                    members: members.clone(),
                    context,
                    infos: told.clone(),
                    buffers: Vec::new(),
                });
                self.answer(reply, &answer);
            }
        }
    }

    /// A member leaves, and the others are told.
    pub(super) fn on_leave(&mut self, reply: ReplyTo, from: &Proc, group: Text) {
        let Some(name) = group else {
            return self.status(reply, Status::BAD_PARAM);
        };
        let Some(members) = self.groups.by_name.get_mut(name.as_bytes()) else {
            return self.status(reply, Status::NOT_FOUND);
        };
        let others: Vec<Proc> = members
            .iter()
            .filter(|member| *member != from)
            .cloned()
            .collect();
        members.remove(from);
        self.status(reply, Status::SUCCESS);
        let infos = [
            info(keys::EVENT_CUSTOM_RANGE, Value::procs(others)),
            info(keys::GROUP_ID, Value::String(Some(name))),
            info(
                keys::EVENT_AFFECTED_PROC,
                Value::Proc(Box::new(from.clone())),
            ),
        ];
        let event = Event {
            status: Status::GROUP_LEFT,
            source: from.clone(),
            range: Range::CUSTOM,
            infos: infos.into_iter().flatten().collect(),
        };
        self.deliver(&event, From::Peer);
    }

    /// The members of a group by its name.
    pub(super) fn members_of(&self, group: &CStr) -> Option<&BTreeSet<Proc>> {
        self.groups.by_name.get(group.to_bytes())
    }

    /// The names of all groups.
    pub(super) fn group_names(&self) -> impl Iterator<Item = CString> {
        self.groups
            .by_name
            .keys()
            .filter_map(|name| CString::new(name.to_vec()).ok())
    }
}
