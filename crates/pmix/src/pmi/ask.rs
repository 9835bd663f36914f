//! Requests that a node cannot answer alone, expressed in PMIx, so that PMI and PMIx ranks share one set of published names.

use std::ffi::{CStr, CString};

use bytes::Bytes;

use crate::{
    codec::{Format, Writer},
    keys,
    message::{Answer as PmixAnswer, Command, GroupForm, Request as PmixRequest, Shape},
    pmi::{Answer, Kind, Spawn, SpawnApp},
    value::{App, Info, Key, Status, Value},
};

/// Prefix of names reserved by PMIx: as names of services they would be taken for directives.
const RESERVED: &str = "pmix.";

/// A rank's request to the controller.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Ask {
    Publish { service: String, port: String },
    Unpublish { service: String },
    Lookup { service: String },
    Spawn(Spawn),
}

/// The controller's answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Reply {
    /// The service was published or unpublished.
    Done,
    /// The port of the service that was looked up.
    Port(String),
    /// The name of the job that was started.
    Job(String),
    /// Reason for a refusal, in one word.
    Refused(&'static str),
}

/// Reason why a request cannot be expressed in PMIx, in one word.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct NotRepresentable(pub &'static str);

impl Ask {
    /// Returns the kind of the request.
    #[must_use]
    pub const fn kind(&self) -> Kind {
        match self {
            Self::Publish { .. } => Kind::Publish,
            Self::Unpublish { .. } => Kind::Unpublish,
            Self::Lookup { .. } => Kind::Lookup,
            Self::Spawn(_) => Kind::Spawn,
        }
    }

    /// Encodes the request as a PMIx message in [`Format::V4`].
    ///
    /// # Errors
    ///
    /// As [`Self::to_pmix`].
    pub fn encode(&self) -> Result<Bytes, NotRepresentable> {
        let mut writer = Writer::new(Format::V4);
        self.to_pmix()?.encode(&mut writer);
        Ok(writer.into_bytes().into())
    }

    /// Converts the request to PMIx.
    ///
    /// A spawn has the directive [`keys::PMI_PREPUT`]: it marks its ranks as spawned by PMI, and contains the initial entries of
    /// their key-value space.
    ///
    /// # Errors
    ///
    /// A name or value is not valid in PMIx.
    pub fn to_pmix(&self) -> Result<PmixRequest, NotRepresentable> {
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
                let preput: Result<Vec<Info>, NotRepresentable> = preput
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
    /// Decodes a PMIx answer in [`Format::V4`] to a request of this kind.
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

    /// Converts a PMIx answer to a request of this kind.
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

    /// Converts the reply to the answer to a request of this kind.
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

/// Returns the reason for a refusal in one word, which a user may read in an error of an MPI library.
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

fn key(text: &str) -> Result<Key, NotRepresentable> {
    CString::new(text)
        .ok()
        .and_then(|text| Key::new(&text).ok())
        .ok_or(NotRepresentable("name_too_long"))
}

fn service_key(service: &str) -> Result<Key, NotRepresentable> {
    if service.starts_with(RESERVED) {
        return Err(NotRepresentable("reserved_name"));
    }
    key(service)
}

fn info(name: &str, value: Value) -> Result<Info, NotRepresentable> {
    Ok(Info::new(key(name)?, value))
}

fn named(name: &CStr, value: Value) -> Result<Info, NotRepresentable> {
    let key = Key::new(name).map_err(|_| NotRepresentable("name_too_long"))?;
    Ok(Info::new(key, value))
}

/// Converts one program. MPI defines the info keys `wdir`, `path`, `host` and others; unknown keys are ignored, as MPI requires.
fn app(app: &SpawnApp) -> Result<App, NotRepresentable> {
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
        maxprocs: i32::try_from(app.count).map_err(|_| NotRepresentable("too_many_processes"))?,
        info: infos,
    })
}
