//! The protocol between Eclipse PTP, versions 2 to 6, and the proxy of a resource manager.
//!
//! The client, an Eclipse, sends commands. The proxy, which we are, answers each one with an event and sends further events about
//! machines, nodes, queues, jobs and processes. Every message is a [`Packet`] in one of three framings, which the first byte of a
//! connection tells apart. `docs/formats/ptp.md` describes them; its sections are named here.
//!
//! [`Session`] is the proxy's side of a connection. [`Decoder`] and [`encode`] are for both sides.
//!
//! **Architecture invariant:** nothing here does I/O or reads a clock, and nothing knows what runs the jobs: a host passes the bytes of the
//! client and the answers of a platform to the session, and does what it says.

mod ascii;
mod binary;
mod command;
mod definitions;
mod event;
mod huffman;
mod lines;
mod model;
mod packet;
mod session;
mod stream;
mod submission;
#[cfg(test)]
mod tests;

pub use self::{
    command::{Command, Filters, NoCommand},
    event::{
        Attribute, Charset, Definition, Dialect, Elements, Event, JobState, Kind, Level,
        ProcessState, Type,
    },
    model::{ENDED_MAX, JobKey, NodeFacts, ProcessFacts, RankState},
    packet::{Bound, Framing, MAX_ARGS, MAX_PACKET, Malformed, Packet},
    session::{
        ANSWERS_MAX, ASKED_BYTES_MAX, ASKED_MAX, Config, FAULT_MAX, Fault, Input, LEAVE, NEWS_MAX,
        Output, Over, SUB_ID_MAX, Session, Stream, TEXT_MAX, Taken, Ticket, code,
    },
    stream::{Decoder, encode},
    submission::{Debugger, Procs, Program, Submission},
};
