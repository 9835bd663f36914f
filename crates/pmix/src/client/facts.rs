//! What a server tells of a job, by classes (docs/formats/pmix.md, section 6.2).
//!
//! A fact belongs to the job, to its session, to a node, to an app, or to a process, and a server sends them packed in
//! several ways: by itself, in an array for each node and app, in a buffer for each process. Whoever asks for a fact
//! names a process and a key; the key decides whether the fact of the process, of its node, of its app, of the job or
//! of the session is meant. [`JobFacts`] hides both.

use std::{
    collections::BTreeMap,
    ffi::{CStr, CString},
};

use crate::{
    Error, Malformed,
    codec::{Format, Reader, Size},
    keys,
    message::Facts as Packed,
    value::{DataType, Info, Key, Kval, Nspace, PmixRank, Proc, Value},
};

/// In a [`keys::PROC_DATA`] of version 6, in place of [`keys::RANK`].
const PROC_ID: &CStr = c"pmix.procid";
/// Where the processes are, by node: another form of [`keys::LOCAL_PEERS`].
const MAP_BLOB: &CStr = c"pmix.mblob";
const HOSTNAME_ALIASES: &CStr = c"pmix.alias";

/// Whose fact a key names.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Class {
    Session,
    Node,
    App,
    /// Of the process that is asked about, or of the job.
    Other,
}

impl Class {
    /// The lists are those that libpmix has built in; a server sorts by the same.
    fn of(key: &CStr) -> Self {
        match key.to_bytes() {
            b"pmix.session.id" | b"pmix.clid" | b"pmix.univ.size" | b"pmix.tmpdir"
            | b"pmix.tdir.rmclean" | b"pmix.fqdn" | b"pmix.rm.name" | b"pmix.rm.version" => {
                Self::Session
            }
            b"pmix.hname" | b"pmix.alias" | b"pmix.nodeid" | b"pmix.pmem" | b"pmix.lpeers"
            | b"pmix.lprocs" | b"pmix.lcpus" | b"pmix.local.size" | b"pmix.node.size"
            | b"pmix.lldr" | b"pmix.ndosub" | b"pmix.fab.devs" | b"pmix.fab.coord" => Self::Node,
            b"pmix.app.size" | b"pmix.aldr" | b"pmix.app.argv" | b"pmix.wdir" | b"pmix.pset.nm"
            | b"pmix.pset.mems" | b"pmix.apmap.type" | b"pmix.apmap.regex" => Self::App,
            bytes if bytes.starts_with(b"pmix.fabdev") => Self::Node,
            _ => Self::Other,
        }
    }
}

/// Who looks at the facts, which decides what "this node" and "this app" mean.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Viewpoint {
    /// Its rank, when it belongs to the job.
    pub rank: Option<PmixRank>,
    /// Its node, when that is known.
    pub hostname: Option<CString>,
}

type Facts = BTreeMap<Key, Value>;

/// The facts of one job, and the data of its processes.
#[derive(Clone, Debug, PartialEq)]
pub struct JobFacts {
    nspace: Nspace,
    view: Viewpoint,
    job: Facts,
    session: Facts,
    nodes: Vec<Facts>,
    /// Places in `nodes` by name.
    names: BTreeMap<CString, usize>,
    /// Places in `nodes` by other names. Every node of a job may call itself localhost: the first one has it.
    aliases: BTreeMap<CString, usize>,
    /// Places in `nodes` by number.
    numbers: BTreeMap<u64, usize>,
    /// Facts of a node that came without one: they are of the node of the viewer.
    here: Facts,
    apps: BTreeMap<u64, Facts>,
    /// Facts of an app that came without one: they are of the only one.
    sole_app: Facts,
    procs: BTreeMap<PmixRank, Facts>,
}

impl JobFacts {
    /// Nothing is known yet.
    #[must_use]
    pub const fn new(nspace: Nspace, view: Viewpoint) -> Self {
        Self {
            nspace,
            view,
            job: Facts::new(),
            session: Facts::new(),
            nodes: Vec::new(),
            names: BTreeMap::new(),
            aliases: BTreeMap::new(),
            numbers: BTreeMap::new(),
            here: Facts::new(),
            apps: BTreeMap::new(),
            sole_app: Facts::new(),
            procs: BTreeMap::new(),
        }
    }

    /// Adds what a server says about the job, in answer to a request for job information, a spawn or a connect. What
    /// is known already is replaced.
    ///
    /// # Errors
    /// A part of it cannot be read. The parts before it are there.
    pub fn add_job(
        &mut self,
        format: Format,
        facts: impl IntoIterator<Item = Kval>,
    ) -> Result<(), Error> {
        facts
            .into_iter()
            .try_for_each(|Kval { key, value }| self.job_fact(format, key, value))
    }

    /// Adds what a server says about one process, or with the wildcard about the job, in answer to a get.
    ///
    /// # Errors
    /// A part of it cannot be read. The parts before it are there.
    pub fn add_rank(
        &mut self,
        format: Format,
        rank: PmixRank,
        facts: impl IntoIterator<Item = Kval>,
    ) -> Result<(), Error> {
        if rank == PmixRank::WILDCARD {
            return self.add_job(format, facts);
        }
        for Kval { key, value } in facts {
            self.rank_fact(rank, key, value)?;
        }
        Ok(())
    }

    /// Whose facts they are.
    #[must_use]
    pub const fn nspace(&self) -> &Nspace {
        &self.nspace
    }

    /// The number of processes of the job.
    #[must_use]
    pub fn size(&self) -> Option<u64> {
        self.job.get(keys::JOB_SIZE)?.as_count()
    }

    /// The ranks of the job on the viewer's node, in order.
    #[must_use]
    pub fn local_peers(&self) -> Option<Vec<PmixRank>> {
        let text = self
            .find(PmixRank::WILDCARD, keys::LOCAL_PEERS)?
            .as_text()?;
        let text = text.to_str().ok()?;
        let ranks = text.split(',').filter(|rank| !rank.is_empty());
        ranks.map(|rank| rank.parse().ok().map(PmixRank)).collect()
    }

    /// Who has spawned the job, when it was a process.
    #[must_use]
    pub fn parent(&self) -> Option<&Proc> {
        let rank = self.view.rank.unwrap_or(PmixRank(0));
        match self.find(rank, keys::PARENT_ID)? {
            Value::Proc(proc) => Some(proc),
            _ => None,
        }
    }

    /// The fact or datum that a process and a key name, when it is known. [`PmixRank::WILDCARD`] asks about the job,
    /// the viewer's node and the viewer's app; [`PmixRank::UNDEF`] asks for a key that only one process has put.
    #[must_use]
    pub fn find(&self, rank: PmixRank, key: &CStr) -> Option<&Value> {
        if rank.is_number() {
            self.of_rank(rank, key)
        } else if rank == PmixRank::UNDEF {
            let put = self.procs.values().find_map(|facts| facts.get(key));
            put.or_else(|| self.of_job(key))
        } else {
            self.of_job(key)
        }
    }

    /// A fact of a node by its name.
    #[must_use]
    pub fn of_node(&self, hostname: &CStr, key: &CStr) -> Option<&Value> {
        self.node_named(hostname)?.get(key)
    }

    /// A fact of an app by its number.
    #[must_use]
    pub fn of_app(&self, number: u32, key: &CStr) -> Option<&Value> {
        self.apps.get(&u64::from(number))?.get(key)
    }

    fn of_job(&self, key: &CStr) -> Option<&Value> {
        match Class::of(key) {
            Class::Session => self.session.get(key),
            Class::Node => {
                let node = self.own_node().and_then(|node| node.get(key));
                node.or_else(|| self.here.get(key))
            }
            Class::App => {
                let me = self.view.rank;
                self.app_fact(me, key)
            }
            Class::Other => self.job.get(key),
        }
    }

    fn of_rank(&self, rank: PmixRank, key: &CStr) -> Option<&Value> {
        if let Some(value) = self.procs.get(&rank).and_then(|facts| facts.get(key)) {
            return Some(value);
        }
        match Class::of(key) {
            Class::Node if self.view.rank == Some(rank) => self.of_job(key),
            Class::Node => self.node_of(rank)?.get(key),
            Class::App => self.app_fact(Some(rank), key),
            Class::Session => self.session.get(key),
            // What holds for the job holds for its processes, but what a program puts is only its own.
            Class::Other if is_reserved(key) => self.job.get(key),
            Class::Other => None,
        }
    }

    /// The node that the facts of a process name.
    fn node_of(&self, rank: PmixRank) -> Option<&Facts> {
        let facts = self.procs.get(&rank)?;
        let by_name = || self.node_named(facts.get(keys::HOSTNAME)?.as_text()?);
        let by_number = || {
            let place = self.numbers.get(&facts.get(keys::NODE_ID)?.as_count()?)?;
            self.nodes.get(*place)
        };
        by_name().or_else(by_number)
    }

    fn node_named(&self, name: &CStr) -> Option<&Facts> {
        let place = self.names.get(name).or_else(|| self.aliases.get(name))?;
        self.nodes.get(*place)
    }

    fn own_node(&self) -> Option<&Facts> {
        let by_rank = || self.node_of(self.view.rank?);
        let by_name = || {
            let said = self.here.get(keys::HOSTNAME).and_then(Value::as_text);
            self.node_named(self.view.hostname.as_deref().or(said)?)
        };
        by_rank().or_else(by_name).or(match &self.nodes[..] {
            [node] => Some(node),
            _ => None,
        })
    }

    fn app_fact(&self, rank: Option<PmixRank>, key: &CStr) -> Option<&Value> {
        let number = rank
            .and_then(|rank| self.procs.get(&rank)?.get(keys::APP_NUMBER))
            .and_then(Value::as_count);
        let app = match number {
            Some(number) => self.apps.get(&number),
            None if self.apps.len() == 1 => self.apps.values().next(),
            None => None,
        };
        app.and_then(|app| app.get(key))
            .or_else(|| self.sole_app.get(key))
    }

    fn job_fact(&mut self, format: Format, key: Key, value: Value) -> Result<(), Error> {
        if key == *keys::PROC_BLOB {
            self.blob(format, &bytes(&value)?)
        } else if key == *MAP_BLOB {
            self.map(format, &bytes(&value)?)
        } else if key == *keys::PROC_DATA {
            self.proc_array(array(&value)?)
        } else if key == *keys::JOB_ARRAY {
            let facts = array(&value)?.into_iter();
            facts
                .cloned()
                .try_for_each(|info| self.job_fact(format, info.key, info.value))
        } else if !self.class_array(&key, &value)? {
            let facts = match Class::of(key.as_c_str()) {
                Class::Session => &mut self.session,
                Class::Node => &mut self.here,
                Class::App => &mut self.sole_app,
                Class::Other => &mut self.job,
            };
            facts.insert(key, value);
            Ok(())
        } else {
            Ok(())
        }
    }

    /// A fact in a buffer of one process. What is nested again is a value like others, so that a server cannot make
    /// this side descend for ever.
    fn rank_fact(&mut self, rank: PmixRank, key: Key, value: Value) -> Result<(), Error> {
        if !self.class_array(&key, &value)? {
            self.procs.entry(rank).or_default().insert(key, value);
        }
        Ok(())
    }

    /// Takes the array of a session, a node or an app; tells whether it was one.
    fn class_array(&mut self, key: &Key, value: &Value) -> Result<bool, Error> {
        if *key == *keys::SESSION_ARRAY {
            self.session.extend(facts(array(value)?));
        } else if *key == *keys::NODE_ARRAY {
            self.node_array(facts(array(value)?));
        } else if *key == *keys::APP_ARRAY {
            let app = facts(array(value)?);
            let number = app.get(keys::APP_NUMBER).and_then(Value::as_count);
            match number {
                Some(number) => self.apps.entry(number).or_default().extend(app),
                None => self.sole_app.extend(app),
            }
        } else {
            return Ok(false);
        }
        Ok(true)
    }

    fn node_array(&mut self, facts: Facts) {
        let name = facts.get(keys::HOSTNAME).and_then(Value::as_text);
        let name = name.map(CStr::to_owned);
        let number = facts.get(keys::NODE_ID).and_then(Value::as_count);
        let known = name
            .as_ref()
            .and_then(|name| self.names.get(name))
            .or_else(|| self.numbers.get(&number?))
            .copied();
        let place = known.unwrap_or(self.nodes.len());
        let aliases = facts.get(HOSTNAME_ALIASES).and_then(Value::as_text);
        let aliases = aliases.map(CStr::to_bytes).unwrap_or_default();
        for alias in aliases.split(|byte| *byte == b',') {
            if let Ok(alias) = CString::new(alias) {
                self.aliases.entry(alias).or_insert(place);
            }
        }
        if let Some(name) = name {
            self.names.insert(name, place);
        }
        if let Some(number) = number {
            self.numbers.insert(number, place);
        }
        match self.nodes.get_mut(place) {
            Some(node) => node.extend(facts),
            None => self.nodes.push(facts),
        }
    }

    fn blob(&mut self, format: Format, bytes: &[u8]) -> Result<(), Error> {
        let Packed { owner, facts } = Packed::decode(format, bytes)?;
        for Kval { key, value } in facts {
            self.rank_fact(owner, key, value)?;
        }
        Ok(())
    }

    fn proc_array(&mut self, infos: Vec<&Info>) -> Result<(), Error> {
        let rank = infos.iter().find_map(|info| match &info.value {
            Value::Rank(rank) if info.key == *keys::RANK => Some(*rank),
            Value::Proc(proc) if info.key == *PROC_ID => Some(proc.rank),
            _ => None,
        });
        let rank = rank.ok_or(Error::malformed(Malformed::NoName))?;
        for info in infos {
            self.rank_fact(rank, info.key.clone(), info.value.clone())?;
        }
        Ok(())
    }

    fn map(&mut self, format: Format, bytes: &[u8]) -> Result<(), Error> {
        let reader = &mut Reader::new(format, bytes);
        let Size(_nodes) = reader.item()?;
        let mut names = Vec::new();
        for Kval { key, value } in reader.each()? {
            names.push(key.as_bytes().to_vec());
            let name = Value::String(Some(key.as_c_str().to_owned()));
            let pairs = [(keys::HOSTNAME, name), (keys::LOCAL_PEERS, value)];
            self.node_array(super::infos(pairs).into_iter().map(pair).collect());
        }
        let list = Value::String(CString::new(names.join(&b',')).ok());
        let pairs = super::infos([(keys::NODE_LIST, list)]);
        self.job.extend(pairs.into_iter().map(pair));
        Ok(())
    }
}

/// Whether a key is the standard's and not a program's.
pub(super) fn is_reserved(key: &CStr) -> bool {
    key.to_bytes().starts_with(b"pmix")
}

fn facts(infos: Vec<&Info>) -> Facts {
    infos.into_iter().cloned().map(pair).collect()
}

fn pair(info: Info) -> (Key, Value) {
    (info.key, info.value)
}

fn array(value: &Value) -> Result<Vec<&Info>, Error> {
    value
        .as_infos()
        .ok_or_else(|| wrong_kind(DataType::DATA_ARRAY, value))
}

fn bytes(value: &Value) -> Result<bytes::Bytes, Error> {
    match value {
        Value::ByteObject(bytes) => Ok(bytes.clone()),
        _ => Err(wrong_kind(DataType::BYTE_OBJECT, value)),
    }
}

fn wrong_kind(expected: DataType, value: &Value) -> Error {
    Error::malformed(Malformed::WrongKind {
        expected,
        got: value.kind(),
    })
}
