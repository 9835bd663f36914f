//! What a node cannot answer alone, and how the same is asked in PMIx: a name that was published by PMI is found by PMIx,
//! and the other way round.

use std::ffi::{CStr, CString};

use bytes::Bytes;

use crate::{
    codec::{Format, Writer},
    keys,
    message::{Answer as PmixAnswer, Command, GroupForm, Request as PmixRequest, Shape},
    pmi::{Answer, Kind, Spawn, SpawnApp},
    value::{App, Info, Key, Status, Value},
};

/// Beginning of the names that PMIx has for itself: as services they would be directives.
const RESERVED: &str = "pmix.";

/// What a rank asks of the controller.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Ask {
    Publish { service: String, port: String },
    Unpublish { service: String },
    Lookup { service: String },
    Spawn(Spawn),
}

/// What the controller answers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Reply {
    /// It was published, or is published no more.
    Done,
    /// It was found.
    Port(String),
    /// The name of the job that was started.
    Job(String),
    /// Why it was not done, in one word.
    Refused(&'static str),
}

/// Why a question cannot be asked in PMIx, in one word.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct NotAsked(pub &'static str);

impl Ask {
    /// The kind of request that it is.
    #[must_use]
    pub const fn kind(&self) -> Kind {
        match self {
            Self::Publish { .. } => Kind::Publish,
            Self::Unpublish { .. } => Kind::Unpublish,
            Self::Lookup { .. } => Kind::Lookup,
            Self::Spawn(_) => Kind::Spawn,
        }
    }

    /// The same question in PMIx, as bytes of the fourth format.
    ///
    /// # Errors
    ///
    /// As [`Self::to_pmix`].
    pub fn encode(&self) -> Result<Bytes, NotAsked> {
        let mut writer = Writer::new(Format::V4);
        self.to_pmix()?.encode(&mut writer);
        Ok(writer.into_bytes().into())
    }

    /// The same question in PMIx.
    ///
    /// A spawn says by [`keys::PMI_PREPUT`] that its ranks were spawned by PMI, and what their key-value space begins with.
    ///
    /// # Errors
    ///
    /// A name is no name in PMIx.
    pub fn to_pmix(&self) -> Result<PmixRequest, NotAsked> {
        Ok(match self {
            Self::Publish { service, port } => PmixRequest::Publish {
                uid: 0,
                infos: vec![Info::new(service_key(service)?, Value::text(port))],
            },
            Self::Unpublish { service } => PmixRequest::Unpublish {
                uid: 0,
                keys: vec![service_key(service)?],
                infos: Vec::new(),
            },
            Self::Lookup { service } => PmixRequest::Lookup {
                uid: 0,
                keys: vec![service_key(service)?],
                infos: Vec::new(),
            },
            Self::Spawn(spawn) => {
                let preput = spawn.preput.iter();
                let preput: Result<Vec<Info>, NotAsked> = preput
                    .map(|(key, value)| info(key, Value::text(value)))
                    .collect();
                PmixRequest::Spawn {
                    infos: vec![named(keys::PMI_PREPUT, Value::infos(preput?))?],
                    apps: spawn.apps.iter().map(app).collect::<Result<_, _>>()?,
                }
            }
        })
    }
}

impl Reply {
    /// What an answer in PMIx, as bytes of the fourth format, means for the kind of request that was asked.
    #[must_use]
    pub fn decode(kind: Kind, answer: &[u8]) -> Self {
        let command = match kind {
            Kind::Publish => Command::Publish,
            Kind::Unpublish => Command::Unpublish,
            Kind::Lookup => Command::Lookup,
            _ => Command::Spawn,
        };
        let shape = Shape::of(command, GroupForm::Members);
        PmixAnswer::decode(Format::V4, shape, answer)
            .map_or(Self::Refused("not_understood"), |answer| {
                Self::from_pmix(kind, answer)
            })
    }

    /// What an answer in PMIx means for the kind of request that was asked.
    #[must_use]
    pub fn from_pmix(kind: Kind, answer: PmixAnswer) -> Self {
        match (kind, answer) {
            (Kind::Lookup, PmixAnswer::Found { data, .. }) => {
                let text = data.into_iter().next().map(|data| data.value);
                match text.as_ref().and_then(Value::as_text).map(CStr::to_str) {
                    Some(Ok(port)) => Self::Port(port.to_owned()),
                    _ => Self::Refused("service_not_found"),
                }
            }
            (
                Kind::Spawn,
                PmixAnswer::Spawned {
                    status: Status::SUCCESS,
                    nspace,
                    ..
                },
            ) => match nspace.and_then(|nspace| nspace.into_string().ok()) {
                Some(job) => Self::Job(job),
                None => Self::Refused("spawn_failed"),
            },
            (Kind::Publish | Kind::Unpublish, PmixAnswer::Status(Status::SUCCESS)) => Self::Done,
            (kind, PmixAnswer::Status(status) | PmixAnswer::Spawned { status, .. }) => {
                Self::Refused(reason(kind, status))
            }
            _ => Self::Refused("not_understood"),
        }
    }

    /// The answer to a request of this kind.
    pub(super) fn answer(self, kind: Kind) -> Answer {
        match (kind, self) {
            (Kind::Publish, Self::Done) => Answer::Published,
            (Kind::Unpublish, Self::Done) => Answer::Unpublished,
            (Kind::Lookup, Self::Port(port)) => Answer::Lookup { port },
            (Kind::Spawn, Self::Job(job)) => Answer::Spawned { job: Some(job) },
            (kind, Self::Refused(reason)) => Answer::refused(kind, reason),
            (kind, _) => Answer::refused(kind, "not_understood"),
        }
    }
}

/// Why something was not done, in one word that a user may read in the error of an MPI library.
const fn reason(kind: Kind, status: Status) -> &'static str {
    match (kind, status) {
        (Kind::Unpublish | Kind::Lookup, Status::NOT_FOUND) => "service_not_found",
        (Kind::Publish, Status::DUPLICATE_KEY) => "already_published",
        (_, Status::OUT_OF_RESOURCE) => "out_of_resources",
        (_, Status::NO_PERMISSIONS) => "not_permitted",
        (_, Status::BAD_PARAM) => "bad_argument",
        (_, Status::NOT_SUPPORTED) => "not_supported",
        (Kind::Spawn, Status::NOT_AVAILABLE) => "job_is_ending",
        (Kind::Spawn, Status::JOB_FAILED_TO_MAP) => "cannot_be_placed",
        (Kind::Spawn, Status::JOB_EXE_NOT_FOUND) => "program_not_found",
        (Kind::Spawn, Status::JOB_APP_NOT_EXECUTABLE) => "program_not_executable",
        (Kind::Spawn, Status::JOB_WDIR_NOT_FOUND) => "directory_not_found",
        (Kind::Spawn, _) => "spawn_failed",
        _ => "failed",
    }
}

fn key(text: &str) -> Result<Key, NotAsked> {
    CString::new(text)
        .ok()
        .and_then(|text| Key::new(&text).ok())
        .ok_or(NotAsked("name_too_long"))
}

fn service_key(service: &str) -> Result<Key, NotAsked> {
    if service.starts_with(RESERVED) {
        return Err(NotAsked("reserved_name"));
    }
    key(service)
}

fn info(name: &str, value: Value) -> Result<Info, NotAsked> {
    Ok(Info::new(key(name)?, value))
}

fn named(name: &CStr, value: Value) -> Result<Info, NotAsked> {
    let key = Key::new(name).map_err(|_| NotAsked("name_too_long"))?;
    Ok(Info::new(key, value))
}

/// One program. Of what its caller says beside that, MPI names `wdir`, `path`, `host` and others; what is not known is
/// ignored, as MPI wants it.
fn app(app: &SpawnApp) -> Result<App, NotAsked> {
    let text = |text: &String| CString::new(text.as_str()).ok();
    let mut infos = Vec::new();
    for (key, value) in &app.infos {
        let key = match key.as_str() {
            "wdir" => keys::WORKING_DIR,
            "path" => keys::SPAWN_PATH,
            "host" | "hosts" => keys::HOST,
            _ => continue,
        };
        infos.push(named(key, Value::text(value))?);
    }
    let program = text(&app.program);
    let mut argv = vec![program.clone()];
    argv.extend(app.args.iter().map(text));
    Ok(App {
        command: program,
        argv,
        env: Vec::new(),
        cwd: None,
        maxprocs: i32::try_from(app.count).map_err(|_| NotAsked("too_many_processes"))?,
        info: infos,
    })
}
