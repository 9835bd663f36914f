//! What a function of MPI does, as far as it matters to who looks at a hanging program.

/// What a call does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Class {
    /// Nothing that involves other processes, or nothing that is counted.
    Local,
    /// Asks whether something has happened, and returns at once.
    Poll,
    /// `MPI_Init`, `MPI_Init_thread`.
    Init,
    /// `MPI_Finalize`.
    Finalize,
    /// Sends a message.
    Send,
    /// Sends a message, and returns a request.
    StartSend,
    /// Makes a persistent request that sends.
    PrepareSend,
    /// Receives a message.
    Receive,
    /// Receives a message, and returns a request.
    StartReceive,
    /// Makes a persistent request that receives.
    PrepareReceive,
    /// Makes a partitioned request. Its messages match only those of such requests.
    PreparePartitioned,
    /// Sends one message and receives another.
    SendReceive,
    /// As [`SendReceive`](Self::SendReceive), and returns a request.
    StartSendReceive,
    /// Waits for a message and leaves it.
    Probe,
    /// Takes a message out of the order of the receives.
    MatchedProbe,
    /// Receives a message that a matched probe has taken.
    MatchedReceive,
    /// Starts persistent requests.
    Start,
    /// Waits for requests.
    Wait,
    /// Cancels a request.
    Cancel,
    /// Frees a request, which goes on.
    FreeRequest,
    /// A collective operation of a communicator.
    Collective,
    /// A collective operation that returns a request.
    StartCollective,
    /// Makes a persistent request for a collective operation; collective itself.
    PrepareCollective,
    /// Makes a communicator; collective over its parent.
    Create,
    /// As [`Create`](Self::Create), and returns a request.
    StartCreate,
    /// Makes a communicator; collective over its future members.
    CreateOfGroup,
    /// Makes a communicator between two groups.
    CreateBetween,
    /// Makes a communicator with processes of another `MPI_COMM_WORLD`.
    CreateForeign,
    /// Frees a communicator.
    FreeCommunicator,
    /// Makes a window; collective.
    CreateWindow,
    /// Frees a window; collective over it.
    FreeWindow,
    /// Begins or ends an epoch of a window.
    Epoch,
    /// Accesses the window of another process.
    Access,
    /// A collective operation on a file.
    FileCollective,
    /// Gives a communicator or window a name.
    Label,
}

impl Class {
    /// Returns whether all members of a communicator or window call such a function in the same order, so that its calls have numbers.
    #[must_use]
    pub const fn is_collective(self) -> bool {
        matches!(
            self,
            Self::Collective
                | Self::StartCollective
                | Self::PrepareCollective
                | Self::Create
                | Self::StartCreate
                | Self::CreateWindow
                | Self::FreeWindow
                | Self::Finalize
        )
    }
}

/// What an argument is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Role {
    /// Nothing that is recorded.
    Other,
    /// The first buffer.
    Buffer,
    /// The count of the first buffer, or of the requests.
    Count,
    /// The first data type.
    Datatype,
    /// The other rank: of a message, of an access, of the leader of a group.
    Peer,
    /// The tag; of what is sent, if the call sends and receives.
    Tag,
    /// The rank of which a call receives that also sends.
    Source,
    /// The tag of what a call receives that also sends.
    SourceTag,
    /// The communicator; the first of several.
    Communicator,
    /// Address of a communicator that the call makes.
    NewCommunicator,
    /// Address of a communicator or window that the call frees.
    Freed,
    /// The root of a collective operation.
    Root,
    /// The operation of a reduction.
    Operation,
    /// Address of one request.
    Request,
    /// Address of an array of requests.
    Requests,
    /// Address of a request that the call makes.
    NewRequest,
    /// Address of a number that is not 0 if something has happened.
    Flag,
    /// Address of a number that is an index or a count if something has happened.
    Found,
    /// A window.
    Window,
    /// Address of a window that the call makes.
    NewWindow,
    /// A file.
    File,
    /// A group.
    Group,
    /// Address of a message that a matched probe has taken.
    Message,
    /// Address of a name.
    Name,
}

/// Number of roles.
const ROLES: usize = Role::Name as usize + 1;

/// How the recorder gets between a program and a function.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Provision {
    /// Every library has the function, so the recorder has a symbol of its name.
    Symbol,
    /// Some libraries lack the function: the recorder changes the pointers of loaded objects.
    Late,
}

/// One function.
#[derive(Clone, Copy, Debug)]
pub struct Function {
    /// Its name, `MPI_Send`.
    pub name: &'static str,
    pub class: Class,
    pub provision: Provision,
    /// Number of arguments.
    pub arguments: u8,
    /// The argument with each role, counted from 1; 0 if there is none.
    positions: [u8; ROLES],
}

impl Function {
    /// Returns the index of the argument with `role`.
    #[must_use]
    pub const fn argument(&self, role: Role) -> Option<usize> {
        match self.positions[role as usize] {
            0 => None,
            position => Some(position as usize - 1),
        }
    }
}

/// A row of the table.
pub(crate) const fn function(
    name: &'static str,
    class: Class,
    provision: Provision,
    roles: &[Role],
) -> Function {
    let mut positions = [0; ROLES];
    let mut at = 0;
    let mut arguments = 0;
    while at < roles.len() {
        arguments += 1;
        if !matches!(roles[at], Role::Other) {
            positions[roles[at] as usize] = arguments;
        }
        at += 1;
    }
    Function {
        name,
        class,
        provision,
        arguments,
        positions,
    }
}
