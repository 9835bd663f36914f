//! What an allocation request says, and what its answer does. Spawn requests may say the same.
//!
//! The Standard counts CPUs. A host that counts slots takes them for the same.

use std::{
    ffi::{CStr, CString},
    time::Duration,
};

use base::HostList;

use crate::{
    keys,
    value::{Info, Key, Status, Value},
};

/// The attributes of an allocation request. `None` stands for an attribute that the caller has not given.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Wish {
    /// The name that the caller gives the request.
    pub request: Option<CString>,
    /// The name that the host has given the allocation.
    pub allocation: Option<CString>,
    pub nodes: Option<u32>,
    pub hosts: Option<HostList>,
    pub cpus: Option<u32>,
    pub time: Option<Duration>,
    pub queue: Option<CString>,
    /// Time after which the caller does not want to wait any longer.
    pub timeout: Option<Duration>,
}

impl Wish {
    /// The attributes about allocations.
    pub const KEYS: [&CStr; 7] = [
        keys::ALLOC_REQ_ID,
        keys::ALLOC_ID,
        keys::ALLOC_NUM_NODES,
        keys::ALLOC_NODE_LIST,
        keys::ALLOC_NUM_CPUS,
        keys::ALLOC_TIME,
        keys::ALLOC_QUEUE,
    ];

    /// Reads the attributes of a request. Attributes about other things are ignored.
    ///
    /// # Errors
    /// An attribute has a value of the wrong type, or one that cannot be meant: then the status is `BAD_PARAM`.
    pub fn read(infos: &[Info]) -> Result<Self, Status> {
        let mut wish = Self::default();
        for info in infos {
            let value = &info.value;
            match info.key.as_c_str() {
                key if key == keys::ALLOC_REQ_ID => wish.request = Some(text(value)?),
                key if key == keys::ALLOC_ID => wish.allocation = Some(text(value)?),
                key if key == keys::ALLOC_NUM_NODES => wish.nodes = Some(count(value)?),
                key if key == keys::ALLOC_NODE_LIST => wish.hosts = Some(hosts(value)?),
                key if key == keys::ALLOC_NUM_CPUS => wish.cpus = Some(count(value)?),
                key if key == keys::ALLOC_TIME => wish.time = Some(time(value)?),
                key if key == keys::ALLOC_QUEUE => wish.queue = Some(text(value)?),
                // The Standard gives 0 seconds the meaning of no limit.
                key if key == keys::TIMEOUT && value.as_count() == Some(0) => wish.timeout = None,
                key if key == keys::TIMEOUT => wish.timeout = Some(seconds(value)?),
                _ => {}
            }
        }
        Ok(wish)
    }

    /// Returns true if it asks for resources, and does not only name an allocation.
    #[must_use]
    pub const fn asks_for_resources(&self) -> bool {
        self.nodes.is_some()
            || self.hosts.is_some()
            || self.cpus.is_some()
            || self.time.is_some()
            || self.queue.is_some()
            || self.request.is_some()
    }
}

/// An allocation as its owner is told.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Granted {
    pub allocation: CString,
    /// The name that the caller gave the request, if any.
    pub request: Option<CString>,
    pub hosts: HostList,
    pub cpus: u32,
    /// How long it may last; `None` if that is not said.
    pub time: Option<Duration>,
}

impl Granted {
    /// Returns the infos of the answer.
    #[must_use]
    pub fn infos(&self) -> Vec<Info> {
        let text = |text: &CString| Value::String(Some(text.clone()));
        let list: Vec<&str> = self.hosts.iter().collect();
        let nodes = u64::try_from(list.len()).unwrap_or(u64::MAX);
        let infos = [
            Some((keys::ALLOC_ID, text(&self.allocation))),
            self.request
                .as_ref()
                .map(|name| (keys::ALLOC_REQ_ID, text(name))),
            Some((keys::ALLOC_NUM_NODES, Value::Uint64(nodes))),
            Some((keys::ALLOC_NODE_LIST, Value::text(&list.join(",")))),
            Some((keys::ALLOC_NUM_CPUS, Value::Uint64(self.cpus.into()))),
            self.time.map(|time| {
                let seconds = u32::try_from(time.as_secs()).unwrap_or(u32::MAX);
                (keys::ALLOC_TIME, Value::Uint32(seconds))
            }),
        ];
        let infos = infos.into_iter().flatten();
        let info = |(key, value): (&CStr, Value)| Some(Info::new(Key::new(key).ok()?, value));
        infos.filter_map(info).collect()
    }
}

fn text(value: &Value) -> Result<CString, Status> {
    let text = value.as_text().filter(|text| !text.is_empty());
    text.map(CStr::to_owned).ok_or(Status::BAD_PARAM)
}

fn count(value: &Value) -> Result<u32, Status> {
    let count = value.as_count().filter(|count| *count > 0);
    count
        .and_then(|count| u32::try_from(count).ok())
        .ok_or(Status::BAD_PARAM)
}

fn seconds(value: &Value) -> Result<Duration, Status> {
    count(value).map(|seconds| Duration::from_secs(seconds.into()))
}

/// Reads a time limit: seconds in the Standard. libpmix 5 has a text, whose parts between colons are, from right to left, seconds, minutes,
/// hours, days and months. A month has 30 days.
fn time(value: &Value) -> Result<Duration, Status> {
    const UNITS: [u64; 5] = [1, 60, 3600, 86_400, 30 * 86_400];
    let Some(text) = value.as_text() else {
        return seconds(value);
    };
    let text = text.to_str().map_err(|_| Status::BAD_PARAM)?;
    let mut units = UNITS.iter();
    let mut total: u64 = 0;
    for part in text.rsplit(':') {
        let unit = units.next().ok_or(Status::BAD_PARAM)?;
        let is_number = !part.is_empty() && part.bytes().all(|byte| byte.is_ascii_digit());
        let number = is_number.then(|| part.parse::<u64>().ok()).flatten();
        let seconds = number.and_then(|number| number.checked_mul(*unit));
        total = seconds
            .and_then(|seconds| total.checked_add(seconds))
            .ok_or(Status::BAD_PARAM)?;
    }
    // The same bounds as for a number of seconds.
    seconds(&Value::Uint64(total))
}

fn hosts(value: &Value) -> Result<HostList, Status> {
    let text = text(value)?;
    let list = text.to_str().ok().and_then(|text| text.parse().ok());
    let list: Option<HostList> = list.filter(|list: &HostList| list.iter().next().is_some());
    list.ok_or(Status::BAD_PARAM)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn info(key: &CStr, value: Value) -> Info {
        Info::new(Key::new(key).unwrap(), value)
    }

    #[test]
    fn attributes_are_read() {
        let all = [
            info(keys::ALLOC_REQ_ID, Value::text("mine")),
            info(keys::ALLOC_ID, Value::text("17")),
            info(keys::ALLOC_NUM_NODES, Value::Uint64(2)),
            info(keys::ALLOC_NODE_LIST, Value::text("n[1-2],n7")),
            info(keys::ALLOC_NUM_CPUS, Value::Uint64(8)),
            info(keys::ALLOC_TIME, Value::Uint32(60)),
            info(keys::ALLOC_QUEUE, Value::text("main")),
            info(keys::TIMEOUT, Value::Int(5)),
            info(c"pmix.of.tomorrow", Value::Bool(true)),
        ];
        let wish = Wish::read(&all).unwrap();
        let expected = Wish {
            request: Some(c"mine".to_owned()),
            allocation: Some(c"17".to_owned()),
            nodes: Some(2),
            hosts: Some(["n1", "n2", "n7"].into_iter().collect()),
            cpus: Some(8),
            time: Some(Duration::from_secs(60)),
            queue: Some(c"main".to_owned()),
            timeout: Some(Duration::from_secs(5)),
        };
        assert_eq!(wish, expected);
        assert_eq!(Wish::read(&[]), Ok(Wish::default()));
        let no_limit = [info(keys::TIMEOUT, Value::Int(0))];
        assert_eq!(Wish::read(&no_limit), Ok(Wish::default()));
    }

    #[test]
    fn a_time_may_be_a_text() {
        for (text, seconds) in [
            ("2", 2),
            ("0:90", 90),
            ("1:00", 60),
            ("1:02:03", 3723),
            ("1:00:00:00", 86_400),
            ("1:1:0:0:1", 31 * 86_400 + 1),
        ] {
            let wish = Wish::read(&[info(keys::ALLOC_TIME, Value::text(text))]).unwrap();
            assert_eq!(wish.time, Some(Duration::from_secs(seconds)), "{text}");
        }
        for text in [
            "",
            "0",
            ":",
            "1:",
            ":1",
            "-1",
            "+1",
            "1.5",
            "1h",
            "1:0:0:0:0:0",
            "99999999999999999999",
            "9999999999:0:0:0:0",
            "4294967296",
        ] {
            let read = Wish::read(&[info(keys::ALLOC_TIME, Value::text(text))]);
            assert_eq!(read, Err(Status::BAD_PARAM), "{text}");
        }
    }

    #[test]
    fn what_cannot_be_meant_is_refused() {
        for (key, value) in [
            (keys::ALLOC_REQ_ID, Value::Uint32(1)),
            (keys::ALLOC_ID, Value::text("")),
            (keys::ALLOC_NUM_NODES, Value::Uint64(0)),
            (keys::ALLOC_NUM_NODES, Value::Uint64(1 << 32)),
            (keys::ALLOC_NUM_NODES, Value::text("2")),
            (keys::ALLOC_NODE_LIST, Value::text("n[1-")),
            (keys::ALLOC_NODE_LIST, Value::text("")),
            (keys::ALLOC_NUM_CPUS, Value::Int(-1)),
            (keys::ALLOC_TIME, Value::Uint32(0)),
            (keys::ALLOC_QUEUE, Value::String(None)),
            (keys::TIMEOUT, Value::Int(-5)),
        ] {
            let info = info(key, value);
            let read = Wish::read(std::slice::from_ref(&info));
            assert_eq!(read, Err(Status::BAD_PARAM), "{info:?}");
        }
    }

    #[test]
    fn resources_are_more_than_a_name() {
        let asks = |key, value| {
            let wish = Wish::read(&[info(key, value)]).unwrap();
            wish.asks_for_resources()
        };
        assert!(!asks(keys::ALLOC_ID, Value::text("17")));
        assert!(!asks(keys::TIMEOUT, Value::Int(5)));
        assert!(asks(keys::ALLOC_NUM_NODES, Value::Uint64(1)));
        assert!(asks(keys::ALLOC_TIME, Value::Uint32(1)));
    }

    #[test]
    fn an_answer_names_what_is_granted() {
        let granted = Granted {
            allocation: c"17".to_owned(),
            request: None,
            hosts: ["n1", "n2"].into_iter().collect(),
            cpus: 8,
            time: None,
        };
        let expected = [
            info(keys::ALLOC_ID, Value::text("17")),
            info(keys::ALLOC_NUM_NODES, Value::Uint64(2)),
            info(keys::ALLOC_NODE_LIST, Value::text("n1,n2")),
            info(keys::ALLOC_NUM_CPUS, Value::Uint64(8)),
        ];
        assert_eq!(granted.infos(), expected);
        let named = Granted {
            request: Some(c"mine".to_owned()),
            ..granted
        };
        let name = info(keys::ALLOC_REQ_ID, Value::text("mine"));
        assert!(named.infos().contains(&name));
        let limited = Granted {
            time: Some(Duration::from_secs(60)),
            ..named
        };
        let time = info(keys::ALLOC_TIME, Value::Uint32(60));
        assert!(limited.infos().contains(&time));
    }
}
