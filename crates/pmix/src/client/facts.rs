//! Cache of the job info that a server sends, by class (docs/formats/pmix.md, section 6.2).
//!
//! A fact belongs to the job, its session, a node, an app or a process. A server packs facts in several ways: singly, in an array
//! per node or app, or in a buffer per process. A query names a process and a key. The key determines whether it refers to the
//! process itself, or to its node, app, job or session. [`JobFacts`] hides both.

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

/// Key of the rank in a [`keys::PROC_DATA`] of version 6, instead of [`keys::RANK`].
const PROC_ID: &CStr = c"pmix.procid";
/// Key of the ranks on each node: another form of [`keys::LOCAL_PEERS`].
const MAP_BLOB: &CStr = c"pmix.mblob";
const HOSTNAME_ALIASES: &CStr = c"pmix.alias";

/// Class of facts that a key belongs to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Class {
    Session,
    Node,
    App,
    /// A fact of the process in the query, or of the job.
    Other,
}

impl Class {
    /// Returns the class of a key. The lists are those built into libpmix; a server uses the same ones.
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

/// Observer of the facts, which determines the meaning of "this node" and "this app".
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Viewpoint {
    /// Rank of the observer; `None` if it does not belong to the job.
    pub rank: Option<PmixRank>,
    /// Node of the observer, if known.
    pub hostname: Option<CString>,
}

type Facts = BTreeMap<Key, Value>;

/// Facts of one job, and the data of its processes.
#[derive(Clone, Debug, PartialEq)]
pub struct JobFacts {
    nspace: Nspace,
    view: Viewpoint,
    job: Facts,
    session: Facts,
    nodes: Vec<Facts>,
    /// Indices in `nodes` by name.
    names: BTreeMap<CString, usize>,
    /// Indices in `nodes` by alias. All nodes of a job may have the alias localhost: it refers to the first one.
    aliases: BTreeMap<CString, usize>,
    /// Indices in `nodes` by node id.
    numbers: BTreeMap<u64, usize>,
    /// Node facts that came without a node: they describe the observer's node.
    here: Facts,
    apps: BTreeMap<u64, Facts>,
    /// App facts that came without an app: they describe the only app.
    sole_app: Facts,
    procs: BTreeMap<PmixRank, Facts>,
}

impl JobFacts {
    /// Creates an empty cache.
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

    /// Adds facts that a server sent about the job, in answer to a request for job info, a spawn or a connect. They replace known
    /// facts.
    ///
    /// # Errors
    /// A part is malformed. The parts before it have been added.
    pub fn add_job(
        &mut self,
        format: Format,
        facts: impl IntoIterator<Item = Kval>,
    ) -> Result<(), Error> {
        facts
            .into_iter()
            .try_for_each(|Kval { key, value }| self.job_fact(format, key, value))
    }

    /// Adds facts that a server sent in answer to a get, about one process or, with the wildcard, about the job.
    ///
    /// # Errors
    /// A part is malformed. The parts before it have been added.
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

    /// Returns the namespace of the job.
    #[must_use]
    pub const fn nspace(&self) -> &Nspace {
        &self.nspace
    }

    /// Returns the number of processes in the job.
    #[must_use]
    pub fn size(&self) -> Option<u64> {
        self.job.get(keys::JOB_SIZE)?.as_count()
    }

    /// Returns the ranks of the job on the observer's node, in ascending order.
    #[must_use]
    pub fn local_peers(&self) -> Option<Vec<PmixRank>> {
        let text = self
            .find(PmixRank::WILDCARD, keys::LOCAL_PEERS)?
            .as_text()?;
        let text = text.to_str().ok()?;
        let ranks = text.split(',').filter(|rank| !rank.is_empty());
        ranks.map(|rank| rank.parse().ok().map(PmixRank)).collect()
    }

    /// Returns the process that spawned the job; `None` if no process did.
    #[must_use]
    pub fn parent(&self) -> Option<&Proc> {
        let rank = self.view.rank.unwrap_or(PmixRank(0));
        match self.find(rank, keys::PARENT_ID)? {
            Value::Proc(proc) => Some(proc),
            _ => None,
        }
    }

    /// Returns a fact or put value of a process, if known. [`PmixRank::WILDCARD`] refers to the job, the observer's node and the
    /// observer's app. [`PmixRank::UNDEF`] refers to a key that only one process has put.
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

    /// Returns a fact of a node, by the name of the node.
    #[must_use]
    pub fn of_node(&self, hostname: &CStr, key: &CStr) -> Option<&Value> {
        self.node_named(hostname)?.get(key)
    }

    /// Returns a fact of an app, by the number of the app.
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
            // A fact of the job also holds for its processes, but a value that a program puts belongs to one process only.
            Class::Other if is_reserved(key) => self.job.get(key),
            Class::Other => None,
        }
    }

    /// Returns the node of a process, according to its facts.
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

    /// Adds a fact from the buffer of one process. Buffers nested in it are stored as plain values, so that a server cannot cause
    /// unbounded recursion.
    fn rank_fact(&mut self, rank: PmixRank, key: Key, value: Value) -> Result<(), Error> {
        if !self.class_array(&key, &value)? {
            self.procs.entry(rank).or_default().insert(key, value);
        }
        Ok(())
    }

    /// Adds the facts of an array for a session, a node or an app; returns false if the value is not such an array.
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

/// Returns true if a key is reserved for the standard.
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
