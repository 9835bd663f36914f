//! The demo's side of PMI-1, with blocking reads and writes.

use std::io::{self, Read, Write};

use pmix::pmi::{Answer, Client, Request};

/// Why a rank of the demo cannot do its part.
#[derive(Debug, thiserror::Error)]
pub(super) enum DemoError {
    #[error("`{variable}` is missing or wrong in its environment")]
    NotARank { variable: &'static str },
    #[error("descriptor {number} of `PMI_FD` cannot be used: {error}")]
    Descriptor { number: i32, error: os::Error },
    #[error("cannot {step}: {error}")]
    Io {
        step: &'static str,
        error: io::Error,
    },
    #[error("the daemon closed the connection")]
    Closed,
    #[error("{0}")]
    Protocol(#[from] pmix::pmi::Error),
    #[error("the daemon refused `{request}`: {reason}")]
    Refused {
        request: &'static str,
        reason: String,
    },
    #[error("the daemon answered something else to `{request}`")]
    Answer { request: &'static str },
    #[error("rank {right} should have read `{expected}` and has read `{got}`")]
    Ring {
        right: u32,
        expected: String,
        got: String,
    },
    #[error("`{got}` is not a value for `{key}`")]
    Value { key: String, got: String },
    #[error("cannot print: {0}")]
    Print(io::Error),
}

/// Bytes of an answer that are read at once; no answer to the demo is longer.
const READ_MAX: usize = 2048;

/// A connection after `init`.
#[derive(Debug)]
pub(super) struct Pmi<S> {
    client: Client,
    stream: S,
    kvs: String,
}

impl<S: Read + Write> Pmi<S> {
    /// Says who we are, and asks for the name of the job's key-value space.
    pub(super) fn connect(stream: S) -> Result<Self, DemoError> {
        let mut pmi = Self {
            client: Client::default(),
            stream,
            kvs: String::new(),
        };
        match pmi.ask(&Client::INIT)? {
            Answer::Init { .. } => {}
            _ => return Err(DemoError::Answer { request: "init" }),
        }
        match pmi.ask(&Request::GetKvsName)? {
            Answer::KvsName(name) => pmi.kvs = name,
            _ => {
                return Err(DemoError::Answer {
                    request: "get_my_kvsname",
                });
            }
        }
        Ok(pmi)
    }

    /// Visible to every rank after the next fence.
    pub(super) fn put(&mut self, key: &str, value: &str) -> Result<(), DemoError> {
        let request = Request::Put {
            kvs: self.kvs.clone(),
            key: key.to_owned(),
            value: value.to_owned(),
        };
        match self.ask(&request)? {
            Answer::Put => Ok(()),
            _ => Err(DemoError::Answer { request: "put" }),
        }
    }

    /// What some rank put before the last fence.
    pub(super) fn get(&mut self, key: &str) -> Result<String, DemoError> {
        match self.ask(&Request::Get {
            kvs: self.kvs.clone(),
            key: key.to_owned(),
        })? {
            Answer::Get { value } => Ok(value),
            _ => Err(DemoError::Answer { request: "get" }),
        }
    }

    /// Waits until every rank is here.
    pub(super) fn fence(&mut self) -> Result<(), DemoError> {
        match self.ask(&Request::Barrier)? {
            Answer::Barrier => Ok(()),
            _ => Err(DemoError::Answer {
                request: "barrier_in",
            }),
        }
    }

    /// Ends the connection in order.
    pub(super) fn finalize(mut self) -> Result<(), DemoError> {
        match self.ask(&Request::Finalize)? {
            Answer::Finalize => Ok(()),
            _ => Err(DemoError::Answer {
                request: "finalize",
            }),
        }
    }

    fn ask(&mut self, request: &Request) -> Result<Answer, DemoError> {
        let io = |step| move |error| DemoError::Io { step, error };
        let bytes = self.client.request(request)?;
        self.stream
            .write_all(&bytes)
            .map_err(io("write to the daemon"))?;
        let mut buffer = [0; READ_MAX];
        loop {
            let length = match self.stream.read(&mut buffer) {
                Ok(0) => return Err(DemoError::Closed),
                Ok(length) => length,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                Err(error) => return Err(io("read from the daemon")(error)),
            };
            match self
                .client
                .receive(buffer.get(..length).unwrap_or_default())?
            {
                None => {}
                Some(Answer::Refused { kind, reason, .. }) => {
                    return Err(DemoError::Refused {
                        request: kind.request(),
                        reason,
                    });
                }
                Some(answer) => return Ok(answer),
            }
        }
    }
}
