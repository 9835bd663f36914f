//! Answers to requests.
//!
//! An answer does not name its request: the requester finds the request by the tag, and decodes the answer by the [`Shape`] for
//! its command. Section numbers refer to `docs/formats/pmix.md`.

use bytes::Bytes;

use super::Command;
use crate::{
    Error,
    codec::{Format, Reader, Size, Writer},
    value::{Info, Kval, Nspace, Pdata, Proc, Status, Text},
};

/// Answer to a request.
#[derive(Clone, Debug, PartialEq)]
pub enum Answer {
    /// Job info. Each entry is a single fact of the job, or an array of facts of one class (section 6.2).
    JobInfo {
        nspace: Nspace,
        facts: Vec<Kval>,
    },
    /// Success or an error. Any request but `JobInfo` may be answered by a status alone.
    Status(Status),
    /// Encoded buffers, in the answer to a get (section 6.5) or a connect (section 7.11).
    Buffers {
        status: Status,
        buffers: Vec<Bytes>,
    },
    /// Published data that a lookup found.
    Found {
        status: Status,
        data: Vec<Pdata>,
    },
    /// The new job and its job info; `nspace` is `None` if no job was started.
    Spawned {
        status: Status,
        nspace: Text,
        facts: Vec<Kval>,
    },
    Infos {
        status: Status,
        infos: Vec<Info>,
    },
    Credential {
        credential: Bytes,
        infos: Vec<Info>,
    },
    /// The number that the server assigned to a request for output.
    Number {
        status: Status,
        number: u64,
    },
    Group(GroupAnswer),
    /// Current data of one process.
    Refreshed {
        status: Status,
        facts: Vec<Kval>,
    },
    Procs {
        status: Status,
        procs: Vec<Proc>,
    },
    Nodes {
        status: Status,
        nodes: Text,
    },
}

/// Answer to a group construct, which has three forms.
#[derive(Clone, Debug, PartialEq)]
pub struct GroupAnswer {
    pub form: GroupForm,
    pub status: Status,
    pub members: Vec<Proc>,
    /// The context id of the group; `None` if no member asked for one.
    pub context: Option<u64>,
    /// Infos that the members exchanged, as far as the form has them.
    pub infos: Vec<Info>,
    /// Encoded job info of other jobs.
    pub buffers: Vec<Bytes>,
}

/// Layout of the answer to a group construct, which depends on the client's library (section 7.24).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum GroupForm {
    /// Up to 4.2.3: the context id only.
    ContextOnly,
    /// From 4.2.4 and in 5: members, context id, buffers.
    Members,
    /// From 6: members, a flag for the context id, infos.
    Infos,
}

impl GroupForm {
    /// Returns the form that a library of this version expects.
    #[must_use]
    pub const fn of_version(version: [u32; 3]) -> Self {
        let [major, minor, release] = version;
        match (major, minor, release) {
            (6.., _, _) => Self::Infos,
            (5, _, _) | (4, 3.., _) | (4, 2, 4..) => Self::Members,
            _ => Self::ContextOnly,
        }
    }
}

/// Form of the names of functions in an answer, which depends on the library of the asker.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum NamesForm {
    /// Up to 4.2: a result with the key of the level. `pattrs` reads it in this form.
    Bare,
    /// From 5: a result with the key of the query. Its value is an array, whose only element has the key of the level.
    Nested,
}

impl NamesForm {
    /// Returns the form that a library of this version expects.
    pub(crate) const fn of_version([major, ..]: [u32; 3]) -> Self {
        match major {
            5.. => Self::Nested,
            _ => Self::Bare,
        }
    }
}

/// Layout of an answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Shape {
    JobInfo,
    Status,
    Buffers,
    Found,
    Spawned,
    Infos,
    Credential,
    Number,
    Group(GroupForm),
    Refreshed,
    Procs,
    Nodes,
    /// The command has no answer.
    Nothing,
}

impl Shape {
    /// Returns the shape of the answer to a command, for a library with this form of group answers.
    #[must_use]
    pub const fn of(command: Command, group: GroupForm) -> Self {
        match command {
            Command::JobInfo => Self::JobInfo,
            Command::Get | Command::Connect => Self::Buffers,
            Command::Lookup => Self::Found,
            Command::Spawn => Self::Spawned,
            Command::Query
            | Command::Allocate
            | Command::JobControl
            | Command::Monitor
            | Command::ValidateCredential
            | Command::FabricRegister
            | Command::FabricUpdate
            | Command::SessionControl => Self::Infos,
            Command::GetCredential => Self::Credential,
            Command::IofPull => Self::Number,
            Command::GroupConstruct => Self::Group(group),
            Command::RefreshCache => Self::Refreshed,
            Command::ResolvePeers => Self::Procs,
            Command::ResolveNode => Self::Nodes,
            Command::Deregister => Self::Nothing,
            Command::Abort
            | Command::Commit
            | Command::Fence
            | Command::Finalize
            | Command::Publish
            | Command::Unpublish
            | Command::Disconnect
            | Command::Notify
            | Command::Register
            | Command::Log
            | Command::IofPush
            | Command::IofDeregister
            | Command::GroupJoin
            | Command::GroupInvite
            | Command::GroupLeave
            | Command::GroupDestruct
            | Command::DeviceDistances
            | Command::ResourceBlock
            | Command::SystemInfo => Self::Status,
        }
    }
}

impl Shape {
    /// Returns true if an answer with an error status has no other fields.
    const fn has_fields_only_on_success(self) -> bool {
        matches!(
            self,
            Self::Credential | Self::Number | Self::Group(_) | Self::Procs | Self::Nodes
        )
    }
}

impl Answer {
    /// Encodes the payload.
    pub fn encode(&self, writer: &mut Writer) {
        match self {
            Self::JobInfo { nspace, facts } => {
                writer.item(nspace);
                writer.each(facts);
            }
            Self::Status(status) => writer.item(status),
            Self::Buffers { status, buffers } => {
                writer.item(status);
                writer.each(buffers);
            }
            Self::Found { status, data } => {
                writer.item(status);
                if *status == Status::SUCCESS || !data.is_empty() {
                    writer.list(data);
                }
            }
            Self::Spawned {
                status,
                nspace,
                facts,
            } => {
                writer.item(status);
                writer.item(nspace);
                writer.each(facts);
            }
            Self::Infos { status, infos } => {
                writer.item(status);
                writer.list(infos);
            }
            Self::Credential { credential, infos } => {
                writer.item(&Status::SUCCESS);
                writer.item(credential);
                writer.list(infos);
            }
            Self::Number { status, number } => {
                writer.item(status);
                if *status == Status::SUCCESS {
                    writer.item(&Size(*number));
                }
            }
            Self::Group(answer) => answer.encode(writer),
            Self::Refreshed { status, facts } => {
                writer.item(status);
                writer.each(facts);
            }
            Self::Procs { status, procs } => {
                writer.item(status);
                if *status == Status::SUCCESS {
                    writer.list(procs);
                }
            }
            Self::Nodes { status, nodes } => {
                writer.item(status);
                if *status == Status::SUCCESS {
                    writer.item(nodes);
                }
            }
        }
    }

    /// Decodes the payload of an answer of this shape. [`Shape::Nothing`] is decoded as a status.
    ///
    /// # Errors
    /// The payload is not such an answer.
    pub fn decode(format: Format, shape: Shape, payload: &[u8]) -> Result<Self, Error> {
        let reader = &mut Reader::new(format, payload);
        if shape == Shape::JobInfo {
            return Ok(Self::JobInfo {
                nspace: reader.item()?,
                facts: reader.each()?,
            });
        }
        let status: Status = reader.item()?;
        // A refusal may end after its status. Fields that exist only on success are not decoded in a refusal.
        let refused = status != Status::SUCCESS && shape.has_fields_only_on_success();
        if refused || (reader.is_empty() && shape != Shape::Buffers) {
            return Ok(Self::Status(status));
        }
        Ok(match shape {
            Shape::JobInfo | Shape::Status | Shape::Nothing => Self::Status(status),
            Shape::Buffers => Self::Buffers {
                status,
                buffers: reader.each()?,
            },
            Shape::Found => {
                let data: Vec<Pdata> = reader.list()?;
                // Some data may come with an error status; without data it is a plain refusal.
                if data.is_empty() && status != Status::SUCCESS {
                    Self::Status(status)
                } else {
                    Self::Found { status, data }
                }
            }
            Shape::Spawned => Self::Spawned {
                status,
                nspace: reader.item()?,
                facts: reader.each()?,
            },
            Shape::Infos => Self::Infos {
                status,
                infos: reader.list()?,
            },
            Shape::Credential => Self::Credential {
                credential: reader.item()?,
                infos: reader.list()?,
            },
            Shape::Number => Self::Number {
                status,
                number: reader.item::<Size>()?.0,
            },
            Shape::Group(form) => Self::Group(GroupAnswer::decode(form, status, reader)?),
            Shape::Refreshed => Self::Refreshed {
                status,
                facts: reader.each()?,
            },
            Shape::Procs => Self::Procs {
                status,
                procs: reader.list()?,
            },
            Shape::Nodes => Self::Nodes {
                status,
                nodes: reader.item()?,
            },
        })
    }

    /// Returns the status of the answer.
    #[must_use]
    pub const fn status(&self) -> Status {
        match self {
            Self::JobInfo { .. } | Self::Credential { .. } => Status::SUCCESS,
            Self::Status(status)
            | Self::Buffers { status, .. }
            | Self::Found { status, .. }
            | Self::Spawned { status, .. }
            | Self::Infos { status, .. }
            | Self::Number { status, .. }
            | Self::Group(GroupAnswer { status, .. })
            | Self::Refreshed { status, .. }
            | Self::Procs { status, .. }
            | Self::Nodes { status, .. } => *status,
        }
    }
}

impl GroupAnswer {
    fn encode(&self, writer: &mut Writer) {
        writer.item(&self.status);
        if self.status != Status::SUCCESS {
            return;
        }
        let context = Size(self.context.unwrap_or(u64::MAX));
        match self.form {
            GroupForm::ContextOnly => writer.item(&context),
            GroupForm::Members => {
                writer.list(&self.members);
                writer.item(&context);
                writer.each(&self.buffers);
            }
            GroupForm::Infos => {
                writer.list(&self.members);
                writer.item(&self.context.is_some());
                if self.context.is_some() {
                    writer.item(&context);
                }
                writer.item(&Size(self.infos.len() as u64));
                writer.each(&self.infos);
            }
        }
    }

    fn decode(form: GroupForm, status: Status, reader: &mut Reader<'_>) -> Result<Self, Error> {
        let mut answer = Self {
            form,
            status,
            members: Vec::new(),
            context: None,
            infos: Vec::new(),
            buffers: Vec::new(),
        };
        let some = |Size(context)| (context != u64::MAX).then_some(context);
        match form {
            GroupForm::ContextOnly => answer.context = some(reader.item()?),
            GroupForm::Members => {
                answer.members = reader.list()?;
                answer.context = some(reader.item()?);
                answer.buffers = reader.each()?;
            }
            GroupForm::Infos => {
                answer.members = reader.list()?;
                if reader.item()? {
                    answer.context = some(reader.item()?);
                }
                let Size(count) = reader.item()?;
                for _ in 0..count {
                    answer.infos.push(reader.item()?);
                }
            }
        }
        Ok(answer)
    }
}
