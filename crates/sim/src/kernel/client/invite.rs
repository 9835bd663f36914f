//! Groups by invitation: what libpmix does in the processes that take part.

use std::{collections::BTreeMap, ffi::CString};

use base::Time;
use pmix::{
    client::{Notice, Ticket},
    keys,
    message::Request,
    value::{Proc, Status, Value},
};

use super::{Ask, Client, Together};
use crate::script::{Invitation, Notify, Party, Reach, Reply, Step};

/// What a process has heard about a group that is made by invitation.
#[derive(Debug, Default)]
pub(super) struct Heard {
    is_invited: bool,
    replies: BTreeMap<Proc, Reply>,
    /// The members, once the group exists.
    members: Option<Vec<Proc>>,
    has_left: bool,
}

impl Client {
    /// Takes note of an event about an invitation, or about the death of a process.
    pub(super) fn hear_of_group(&mut self, notice: &Notice) {
        if notice.status == Status::PROC_TERMINATED {
            self.dead.extend(notice.affected().into_iter().cloned());
            return;
        }
        let name = notice.attribute(keys::GROUP_ID).and_then(Value::as_text);
        let Some(name) = name.and_then(|name| name.to_str().ok()) else {
            return;
        };
        let source = notice.source.clone();
        let heard = self.heard.entry(name.to_owned()).or_default();
        match notice.status {
            Status::GROUP_INVITED => heard.is_invited = true,
            Status::GROUP_INVITE_ACCEPTED => {
                heard.replies.insert(source, Reply::Accepts);
            }
            Status::GROUP_INVITE_DECLINED => {
                heard.replies.insert(source, Reply::Declines);
            }
            Status::GROUP_CONSTRUCT_COMPLETE => {
                let members = notice.attribute(keys::GROUP_MEMBERSHIP);
                let members = members.and_then(Value::as_procs);
                heard.members = members.map(|members| members.into_iter().cloned().collect());
            }
            _ => {}
        }
    }

    /// Begins a step. Returns its requests; `None` if there is nothing to do or to wait for.
    pub(super) fn begin_step(
        &mut self,
        now: Time,
        invitation: &Invitation,
        step: Step,
    ) -> Option<Vec<(Ticket, Ask)>> {
        let name = &invitation.name;
        match step {
            Step::AwaitReplies => {
                self.until = Some(now + invitation.patience);
                Some(Vec::new())
            }
            Step::AwaitInvitation | Step::AwaitGroup => {
                self.until = Some(now + 2 * invitation.patience);
                Some(Vec::new())
            }
            Step::Invite => {
                let guests = invitation.guests.iter().map(|guest| guest.rank).collect();
                let (number, code) = (invitation.invites, Status::GROUP_INVITED);
                self.tell(name, number, code, guests)
            }
            Step::Reply => {
                let me = self.me()?.clone();
                let mut guests = invitation.guests.iter();
                let guest = guests.find(|guest| guest.rank.0 == me.rank.0)?;
                self.heard.get(name).filter(|heard| heard.is_invited)?;
                let code = match guest.reply {
                    Reply::Accepts => Status::GROUP_INVITE_ACCEPTED,
                    Reply::Declines => Status::GROUP_INVITE_DECLINED,
                    Reply::IsSilent => return None,
                };
                self.tell(name, guest.number, code, vec![invitation.leader])
            }
            Step::Complete => self.complete(invitation),
            Step::Leave => {
                let heard = self.heard.get_mut(name)?;
                let members = heard.members.clone()?;
                heard.has_left = true;
                let ticket = self.program().request(&Request::GroupLeave {
                    group: CString::new(name.clone()).ok(),
                    infos: Vec::new(),
                });
                Some(vec![(ticket, Ask::Leave(members))])
            }
            Step::Dissolve => {
                let heard = self.heard.get(name).filter(|heard| !heard.has_left)?;
                let members = heard.members.clone()?;
                let group = CString::new(name.clone()).ok();
                let ticket = self.program().group_destruct(group, Vec::new(), Vec::new());
                Some(vec![(ticket, Ask::Together(Together::Destruct, members))])
            }
        }
    }

    /// Tells those who have accepted that the group exists.
    fn complete(&mut self, invitation: &Invitation) -> Option<Vec<(Ticket, Ask)>> {
        let me = self.me()?.clone();
        let heard = self.heard.entry(invitation.name.clone()).or_default();
        let replies = &heard.replies;
        let guests = invitation.guests.iter();
        let accepted = guests.map(|guest| guest.rank).filter(|rank| {
            let guest = crate::script::named(&me.nspace, *rank);
            replies.get(&guest) == Some(&Reply::Accepts) && !self.dead.contains(&guest)
        });
        let accepted: Vec<_> = accepted.collect();
        if accepted.is_empty() {
            return None;
        }
        let (number, code) = (invitation.completes, Status::GROUP_CONSTRUCT_COMPLETE);
        let members = self.resolve_all(&parties(&accepted))?;
        let mut members: Vec<Proc> = members.into_iter().chain([me]).collect();
        members.sort();
        self.heard.get_mut(&invitation.name)?.members = Some(members.clone());
        let notify = Notify {
            number,
            code,
            reach: Reach::Some(accepted),
            group: Some(invitation.name.clone()),
            members: invitation.names_members.then_some(members),
        };
        let ticket = self.notify(&notify)?;
        Some(vec![(ticket, Ask::Notify(notify))])
    }

    /// Sends an event about a group.
    fn tell(
        &mut self,
        group: &str,
        number: u64,
        code: Status,
        to: Vec<base::Rank>,
    ) -> Option<Vec<(Ticket, Ask)>> {
        let notify = Notify {
            number,
            code,
            reach: Reach::Some(to),
            group: Some(group.to_owned()),
            members: None,
        };
        let ticket = self.notify(&notify)?;
        Some(vec![(ticket, Ask::Notify(notify))])
    }

    /// Returns true if a step waits for nothing any more.
    pub(super) fn is_through(&self, now: Time, invitation: &Invitation, step: Step) -> bool {
        let is_late = self.until.is_none_or(|until| until <= now);
        let heard = self.heard.get(&invitation.name);
        let is_dead = |rank| {
            let proc = self.resolve(Party::Rank(rank));
            proc.is_some_and(|proc| self.dead.contains(&proc))
        };
        let has_replied = |rank| {
            let proc = self.resolve(Party::Rank(rank));
            let reply = heard
                .zip(proc)
                .and_then(|(heard, proc)| heard.replies.get(&proc));
            reply.is_some()
        };
        let has_come = match step {
            Step::AwaitReplies => {
                let mut guests = invitation.guests.iter().map(|guest| guest.rank);
                guests.all(|rank| has_replied(rank) || is_dead(rank))
            }
            Step::AwaitInvitation => {
                heard.is_some_and(|heard| heard.is_invited) || is_dead(invitation.leader)
            }
            Step::AwaitGroup => {
                heard.is_none_or(|heard| !heard.is_invited)
                    || heard.is_some_and(|heard| heard.members.is_some())
                    || is_dead(invitation.leader)
                    || self.has_declined(invitation)
            }
            _ => true,
        };
        is_late || has_come
    }

    /// Returns true if this process is a guest that does not accept.
    fn has_declined(&self, invitation: &Invitation) -> bool {
        let me = self.me().map(|me| me.rank.0);
        let mut guests = invitation.guests.iter();
        guests.any(|guest| Some(guest.rank.0) == me && guest.reply != Reply::Accepts)
    }
}

fn parties(ranks: &[base::Rank]) -> Vec<Party> {
    ranks.iter().copied().map(Party::Rank).collect()
}
