//! Gets about processes on other nodes: this server sends questions to their servers, and answers theirs.
//!
//! | what waits | what ends the wait |
//! |---|---|
//! | a client's get, for another node | the node's answer; data that a fence brings; `pmix.timeout` |
//! | a client's get, for another node | the close of its connection; the end of the target's job |
//! | a sent question | its answer, which the host gives if the node is lost; the end of the target's job |
//! | a sent question | no get waits for it any more: the other node gets [`Output::NoLongerAsked`] |
//! | a question of another node | a commit of the target; its death; the end of its job; [`super::MISSING_KEY_DELAY`] |
//! | a question of another node | [`super::Input::NoLongerAsked`] |
//!
//! Several gets for the same data of a process share one question. Its wait on the other node may time out for a get
//! that joined later. For that get, the question is sent once more. Whatever the key, the answer is all data that the
//! process has committed for other nodes. It is stored, so later gets find it here.
//!
//! A question exists only while requests wait for it, so a client causes at most [`super::MAX_WAITING`] of them.

use std::collections::BTreeMap;

use base::Time;
use bytes::Bytes;

use super::{
    Asker, Conn, Output, QuestionTicket, ReplyTo, Server,
    collective::Caller,
    question::{GetQuestion, Patience, Question},
    share::FORMAT,
    stored::{Received, View},
};
use crate::{
    message::Answer,
    value::{Info, Key, Nspace, Proc, Status},
};

/// Unanswered questions of a server. A client that needs one more gets OUT_OF_RESOURCE.
pub const MAX_QUESTIONS: usize = 16_384;
/// Unanswered questions about one process. A client that needs one more gets OUT_OF_RESOURCE.
pub const MAX_QUESTIONS_ABOUT: usize = 1024;
/// Bytes of one question: the process, the key and its qualifiers. A client that needs a longer one gets
/// OUT_OF_RESOURCE.
pub const MAX_QUESTION: usize = 4096;

/// Questions that were sent and not answered.
#[derive(Debug, Default)]
pub(super) struct Questions {
    sent: BTreeMap<QuestionTicket, Sent>,
    /// Questions that gets share, by their encoding.
    by_text: BTreeMap<Bytes, QuestionTicket>,
    /// Number of questions about each process.
    about: BTreeMap<Proc, usize>,
    next: u64,
}

#[derive(Debug)]
struct Sent {
    at: Time,
    node: u32,
    target: Proc,
    text: Bytes,
    /// The client that waits for fresh data (RefreshCache); `None` if gets wait for the answer.
    refresh: Option<ReplyTo>,
}

impl Questions {
    fn remove(&mut self, ticket: QuestionTicket) -> Option<Sent> {
        let sent = self.sent.remove(&ticket)?;
        if self.by_text.get(&sent.text) == Some(&ticket) {
            self.by_text.remove(&sent.text);
        }
        if let Some(count) = self.about.get_mut(&sent.target) {
            *count -= 1;
            if *count == 0 {
                self.about.remove(&sent.target);
            }
        }
        Some(sent)
    }

    /// Returns a new ticket.
    pub(super) const fn ticket(&mut self) -> QuestionTicket {
        let ticket = QuestionTicket(self.next);
        self.next += 1;
        ticket
    }

    fn has_room(&self, target: &Proc) -> bool {
        let about = self.about.get(target).copied().unwrap_or(0);
        self.sent.len() < MAX_QUESTIONS && about < MAX_QUESTIONS_ABOUT
    }

    /// Returns the questions sent for refresh requests of a connection.
    fn refreshes_of(&self, conn: Conn) -> Vec<QuestionTicket> {
        let asks = |sent: &Sent| sent.refresh.as_ref().is_some_and(|to| to.conn == conn);
        let sent = self.sent.iter().filter(|(_, sent)| asks(sent));
        sent.map(|(ticket, _)| *ticket).collect()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.sent.is_empty() && self.by_text.is_empty() && self.about.is_empty()
    }
}

impl Server {
    /// Sends a question about a process to its node, or returns the ticket of the same question that was sent before.
    pub(super) fn ask_node(
        &mut self,
        now: Time,
        node: u32,
        target: &Proc,
        key: Option<&Key>,
        qualifiers: &[Info],
    ) -> Result<QuestionTicket, Status> {
        let text = Question::Get(GetQuestion {
            target: target.clone(),
            patience: Patience::Waits,
            key: key.cloned(),
            qualifiers: qualifiers.to_vec(),
        });
        let text = text.encode();
        if let Some(ticket) = self.questions.by_text.get(&text) {
            return Ok(*ticket);
        }
        let ticket = self.send_question(now, node, target.clone(), text.clone(), None)?;
        self.questions.by_text.insert(text, ticket);
        Ok(ticket)
    }

    fn send_question(
        &mut self,
        now: Time,
        node: u32,
        target: Proc,
        text: Bytes,
        refresh: Option<ReplyTo>,
    ) -> Result<QuestionTicket, Status> {
        if text.len() > MAX_QUESTION || !self.questions.has_room(&target) {
            if let Some(reply) = refresh {
                self.status(reply, Status::OUT_OF_RESOURCE);
            }
            return Err(Status::OUT_OF_RESOURCE);
        }
        let ticket = self.questions.ticket();
        self.out.push_back(Output::Question {
            ticket,
            node,
            question: text.clone(),
        });
        *self.questions.about.entry(target.clone()).or_default() += 1;
        let sent = Sent {
            at: now,
            node,
            target,
            text,
            refresh,
        };
        self.questions.sent.insert(ticket, sent);
        Ok(ticket)
    }

    /// Fetches the data of a process on another node, for a client that wants fresh data.
    pub(super) fn refresh_from(&mut self, now: Time, node: u32, reply: ReplyTo, target: Proc) {
        let text = Question::Get(GetQuestion {
            target: target.clone(),
            patience: Patience::AtOnce,
            key: None,
            qualifiers: Vec::new(),
        });
        let text = text.encode();
        // On an error, the client was answered already.
        let _ = self.send_question(now, node, target, text, Some(reply));
    }

    /// Handles the answer of another node: stores the data, and answers the requests that waited for it.
    pub(super) fn on_question_answered(
        &mut self,
        now: Time,
        ticket: QuestionTicket,
        result: Result<&[u8], Status>,
    ) {
        if self.on_coordinated(ticket, result) {
            return;
        }
        let Some(sent) = self.questions.remove(ticket) else {
            return;
        };
        let target = sent.target;
        let stored = result.and_then(|data| {
            let read = Received::read(FORMAT, Bytes::copy_from_slice(data));
            let read = read.map_err(|_| Status::UNPACK_FAILURE)?;
            self.store_from(sent.node, &target, read)
        });
        let status = match stored {
            Ok(()) => Status::SUCCESS,
            Err(status) => status,
        };
        if let Some(reply) = sent.refresh {
            self.tell_refreshed(reply, &target, status);
        }
        if status == Status::SUCCESS {
            self.retry_gets_about(now, &[target]);
        }
        // The remaining gets asked for data that should be in the answer. It will never come.
        let status = match status {
            Status::SUCCESS => Status::NOT_FOUND,
            status => status,
        };
        self.fail_gets_of_question(now, ticket, sent.at, status);
    }

    fn tell_refreshed(&mut self, reply: ReplyTo, target: &Proc, status: Status) {
        let data = self.jobs.get(&target.nspace);
        let data = data.and_then(|job| job.stored.of(target.rank));
        let answer = match data.filter(|_| status == Status::SUCCESS) {
            Some(data) => Answer::Refreshed {
                status,
                facts: data.facts(View::Remote),
            },
            None if status == Status::SUCCESS => Answer::Status(Status::NOT_FOUND),
            None => Answer::Status(status),
        };
        self.answer(reply, &answer);
    }

    /// Drops the questions about processes of a job that has ended.
    pub(super) fn forget_questions_about(&mut self, nspace: &Nspace) {
        let over: Vec<QuestionTicket> = self
            .questions
            .sent
            .iter()
            .filter(|(_, sent)| sent.target.nspace == *nspace)
            .map(|(ticket, _)| *ticket)
            .collect();
        for ticket in over {
            if let Some(reply) = self.questions.remove(ticket).and_then(|sent| sent.refresh) {
                self.status(reply, Status::NOT_FOUND);
            }
        }
    }

    /// Drops the questions that only a closed connection waited for.
    pub(super) fn forget_questions_of(&mut self, conn: Conn, of_gets: Vec<QuestionTicket>) {
        for ticket in of_gets {
            self.forget_unless_awaited(ticket);
        }
        for ticket in self.questions.refreshes_of(conn) {
            self.forget_question(ticket);
        }
    }

    /// Drops a question if no get waits for it any more.
    pub(super) fn forget_unless_awaited(&mut self, ticket: QuestionTicket) {
        if !self.gets.awaits(ticket) {
            self.forget_question(ticket);
        }
    }

    fn forget_question(&mut self, ticket: QuestionTicket) {
        if let Some(sent) = self.questions.remove(ticket) {
            let node = sent.node;
            self.out.push_back(Output::NoLongerAsked { ticket, node });
        }
    }

    /// Answers a question of another node, or lets it wait.
    pub(super) fn on_question(
        &mut self,
        now: Time,
        node: u32,
        ticket: QuestionTicket,
        question: &[u8],
    ) {
        let asker = Asker::Node { node, ticket };
        match Question::decode(question) {
            Ok(Question::Get(question)) => self.get_for_node(now, asker, question),
            // Without callers, nobody could get the answer.
            Ok(Question::Construct(call)) if call.callers.is_empty() => {
                self.answer_get(asker, Err(Status::BAD_PARAM));
            }
            Ok(Question::Construct(call)) => {
                let replies = call.callers.iter();
                let replies = replies.map(|_| Some(Caller::Node { node, ticket }));
                self.coordinate(now, replies.collect(), call);
            }
            Ok(Question::Loss(procs)) => self.on_loss_question(node, ticket, procs),
            Err(_) => self.answer_get(asker, Err(Status::UNPACK_FAILURE)),
        }
    }
}
