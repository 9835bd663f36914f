//! What a call needs to know about its function, in one line of the processor's cache.

use calls::{COUNT, Class, FUNCTIONS, Role};

use crate::{frame::word_of_argument, message};

/// The words of a frame that are arguments. A function that has no argument with a role has any word there: who reads the record
/// knows which roles a function has.
#[derive(Clone, Copy)]
#[repr(C, align(32))]
pub(crate) struct Hot {
    pub(crate) class: Class,
    /// How the function is called: 1, or 2 if it has arguments on the stack.
    pub(crate) manner: u8,
    /// Whether a repetition from the same place is only counted.
    pub(crate) plain: bool,
    pub(crate) after: After,
    pub(crate) has_communicator: bool,
    /// Whether one of the arguments `object`, `source`, `source_tag` and `root` has a role.
    pub(crate) has_seldom: bool,
    pub(crate) counts: Counts,
    pub(crate) makes_request: bool,
    /// Whether it has an array of requests, and their number as `count`.
    pub(crate) has_requests: bool,
    /// Whether messages have a way of their own ([`message`]).
    pub(crate) is_message: bool,
    pub(crate) count: u8,
    pub(crate) peer: u8,
    pub(crate) tag: u8,
    pub(crate) source: u8,
    pub(crate) source_tag: u8,
    pub(crate) root: u8,
    /// Communicator, window or file.
    pub(crate) handle: u8,
    /// Address of requests, of what is made or freed, of a message, of a name.
    pub(crate) object: u8,
    /// Address of a flag or of a number of what was found.
    pub(crate) found: u8,
    /// A group.
    pub(crate) group: u8,
    /// Of what is made besides a request: a communicator.
    pub(crate) made: u8,
}

/// What there is to do when a call has returned.
#[derive(Clone, Copy)]
pub(crate) enum After {
    Nothing,
    /// To look whether it has found something.
    Poll,
    Hook,
}

/// What a call counts when it begins.
#[derive(Clone, Copy)]
pub(crate) enum Counts {
    Nothing,
    /// A message to the peer.
    Sent,
    /// A message from the peer.
    Received,
    /// Anything else.
    More,
}

/// By number of the function.
pub(crate) static HOT: [Hot; COUNT] = table();

/// Returns what a function does. The number comes from the region, where another process may have written.
pub(crate) fn class(number: u32) -> Option<Class> {
    HOT.get(number as usize).map(|hot| hot.class)
}

/// Roles of which a function has one at most, and which are addresses.
const OBJECTS: [Role; 8] = [
    Role::NewRequest,
    Role::Request,
    Role::Requests,
    Role::NewCommunicator,
    Role::NewWindow,
    Role::Freed,
    Role::Message,
    Role::Name,
];

const fn has(function: &calls::Function, roles: &[Role]) -> bool {
    let mut at = 0;
    while at < roles.len() {
        if function.argument(roles[at]).is_some() {
            return true;
        }
        at += 1;
    }
    false
}

const fn word(function: &calls::Function, roles: &[Role]) -> u8 {
    let mut at = 0;
    while at < roles.len() {
        if let Some(index) = function.argument(roles[at]) {
            return word_of_argument(index) as u8;
        }
        at += 1;
    }
    0
}

const fn table() -> [Hot; COUNT] {
    let mut table = [hot(&FUNCTIONS[0]); COUNT];
    let mut at = 0;
    while at < COUNT {
        table[at] = hot(&FUNCTIONS[at]);
        at += 1;
    }
    table
}

const fn hot(function: &calls::Function) -> Hot {
    Hot {
        class: function.class,
        manner: if function.arguments > 6 { 2 } else { 1 },
        plain: matches!(function.class, Class::Local | Class::Poll)
            && function.argument(Role::NewRequest).is_none(),
        after: match function.class {
            // Its handle no longer stands for what it did before.
            _ if function.argument(Role::NewRequest).is_some() => After::Hook,
            Class::Local
            | Class::Send
            | Class::Receive
            | Class::SendReceive
            | Class::Probe
            | Class::Start
            | Class::Wait
            | Class::Cancel
            | Class::FreeRequest
            | Class::Collective
            | Class::Epoch
            | Class::Access
            | Class::FileCollective
            | Class::Label => After::Nothing,
            Class::Poll => After::Poll,
            _ => After::Hook,
        },
        has_communicator: has(function, &[Role::Communicator, Role::Window]),
        has_seldom: has(function, &OBJECTS)
            || has(function, &[Role::Source, Role::SourceTag, Role::Root]),
        counts: match function.class {
            Class::Local
            | Class::Poll
            | Class::Probe
            | Class::Wait
            | Class::FreeRequest
            | Class::Access
            | Class::PrepareSend
            | Class::PrepareReceive => Counts::Nothing,
            Class::Send | Class::StartSend => Counts::Sent,
            Class::Receive | Class::StartReceive => Counts::Received,
            _ => Counts::More,
        },
        makes_request: function.argument(Role::NewRequest).is_some(),
        has_requests: function.argument(Role::Requests).is_some(),
        is_message: message::way(function).is_some(),
        count: word(function, &[Role::Count]),
        peer: word(function, &[Role::Peer]),
        tag: word(function, &[Role::Tag]),
        source: word(function, &[Role::Source]),
        source_tag: word(function, &[Role::SourceTag]),
        root: word(function, &[Role::Root]),
        handle: word(function, &[Role::Communicator, Role::Window, Role::File]),
        object: word(function, &OBJECTS),
        group: word(function, &[Role::Group]),
        found: word(function, &[Role::Flag, Role::Found]),
        made: word(function, &[Role::NewCommunicator, Role::NewWindow]),
    }
}
