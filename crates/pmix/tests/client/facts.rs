//! Job info of a job with two nodes and two apps, in every form that servers use.

use std::ffi::CStr;

use pmix::{
    client::{JobFacts, Viewpoint},
    codec::{Format, Size, Writer},
    keys,
    message::Facts,
    value::{DataType, Info, Key, Kval, PmixRank, Value},
};

use crate::host::{fact, proc};

const FORMAT: Format = Format::V4;
const ALL: PmixRank = PmixRank::WILDCARD;

fn infos(pairs: &[(&CStr, Value)]) -> Value {
    let infos = pairs
        .iter()
        .map(|(key, value)| Info::new(Key::new(key).unwrap(), value.clone()));
    Value::infos(infos.collect())
}

fn kval(key: &CStr, value: Value) -> Kval {
    let key = Key::new(key).unwrap();
    Kval { key, value }
}

fn text(text: &str) -> Value {
    Value::text(text)
}

fn node(name: &str, number: u32, peers: &str, alias: &str) -> Kval {
    kval(
        keys::NODE_ARRAY,
        infos(&[
            (keys::HOSTNAME, text(name)),
            (keys::NODE_ID, Value::Uint32(number)),
            (keys::LOCAL_PEERS, text(peers)),
            (c"pmix.alias", text(alias)),
        ]),
    )
}

fn app(number: u32, size: u32) -> Kval {
    kval(
        keys::APP_ARRAY,
        infos(&[
            (keys::APP_NUMBER, Value::Uint32(number)),
            (keys::APP_SIZE, Value::Uint32(size)),
        ]),
    )
}

fn blob(rank: u32, facts: Vec<Kval>) -> Kval {
    let owner = PmixRank(rank);
    let bytes = Facts { owner, facts }.encode(FORMAT);
    kval(keys::PROC_BLOB, Value::ByteObject(bytes))
}

/// Ranks 0 and 1 are on n0, rank 2 is on n1; ranks 1 and 2 belong to the second app. The facts of rank 2 come as an array.
fn job() -> Vec<Kval> {
    let on = |host: &str, app: u32| {
        vec![
            kval(keys::HOSTNAME, text(host)),
            kval(keys::APP_NUMBER, Value::Uint32(app)),
        ]
    };
    vec![
        kval(keys::JOB_SIZE, Value::Uint32(3)),
        kval(
            keys::SESSION_ARRAY,
            infos(&[
                (keys::SESSION_ID, Value::Uint32(9)),
                (keys::UNIVERSE_SIZE, Value::Uint32(64)),
            ]),
        ),
        node("n0", 0, "0,1", "localhost,10.0.0.1"),
        node("n1", 1, "2", "localhost,10.0.0.2"),
        app(0, 1),
        app(1, 2),
        blob(0, on("n0", 0)),
        blob(1, on("n0", 1)),
        kval(
            keys::PROC_DATA,
            infos(&[
                (keys::RANK, Value::Rank(PmixRank(2))),
                (keys::NODE_ID, Value::Uint32(1)),
                (keys::APP_NUMBER, Value::Uint32(1)),
            ]),
        ),
    ]
}

fn seen_from(rank: Option<u32>, hostname: Option<&CStr>) -> JobFacts {
    let view = Viewpoint {
        rank: rank.map(PmixRank),
        hostname: hostname.map(CStr::to_owned),
    };
    JobFacts::new(proc("job", 0).nspace, view)
}

fn of(facts: &JobFacts, rank: PmixRank, key: &CStr) -> String {
    match facts.find(rank, key) {
        None => "-".to_owned(),
        Some(Value::String(Some(text))) => text.to_string_lossy().into_owned(),
        Some(value) => value.as_count().unwrap().to_string(),
    }
}

#[test]
fn a_key_decides_whose_fact_is_meant() {
    let mut table = String::new();
    for (who, rank, host) in [
        ("rank 0", Some(0), None),
        ("rank 2", Some(2), None),
        ("a tool on n1", None, Some(c"n1")),
        ("a tool on 10.0.0.2", None, Some(c"10.0.0.2")),
        ("nobody", None, None),
    ] {
        let mut facts = seen_from(rank, host);
        facts.add_job(FORMAT, job()).unwrap();
        let line = |rank| {
            [
                keys::JOB_SIZE,
                keys::UNIVERSE_SIZE,
                keys::LOCAL_PEERS,
                keys::APP_SIZE,
                keys::APP_NUMBER,
            ]
            .map(|key| of(&facts, rank, key))
            .join(" ")
        };
        table += &format!("{who}:");
        for rank in [ALL, PmixRank(0), PmixRank(1), PmixRank(2), PmixRank(3)] {
            table += &format!(" | {}", line(rank));
        }
        table.push('\n');
    }
    // Columns: size of the job, size of the session, ranks on the node, size and number of the app; for the job and for ranks 0
    // to 3.
    insta::assert_snapshot!(table, @r"
    rank 0: | 3 64 0,1 1 - | 3 64 0,1 1 0 | 3 64 0,1 2 1 | 3 64 2 2 1 | 3 64 - - -
    rank 2: | 3 64 2 2 - | 3 64 0,1 1 0 | 3 64 0,1 2 1 | 3 64 2 2 1 | 3 64 - - -
    a tool on n1: | 3 64 2 - - | 3 64 0,1 1 0 | 3 64 0,1 2 1 | 3 64 2 2 1 | 3 64 - - -
    a tool on 10.0.0.2: | 3 64 2 - - | 3 64 0,1 1 0 | 3 64 0,1 2 1 | 3 64 2 2 1 | 3 64 - - -
    nobody: | 3 64 - - - | 3 64 0,1 1 0 | 3 64 0,1 2 1 | 3 64 2 2 1 | 3 64 - - -
    ");
}

#[test]
fn nodes_are_found_by_name_before_alias() {
    let mut facts = seen_from(None, None);
    facts.add_job(FORMAT, job()).unwrap();
    let id = |name| facts.of_node(name, keys::NODE_ID).and_then(Value::as_count);
    assert_eq!((id(c"n0"), id(c"n1")), (Some(0), Some(1)));
    assert_eq!((id(c"localhost"), id(c"10.0.0.2")), (Some(0), Some(1)));
    assert_eq!((id(c"n2"), id(c"")), (None, None));

    // An alias does not hide a node with that name.
    let aliased = node("n5", 5, "3", "n6");
    let named = node("n6", 6, "4", "");
    facts.add_job(FORMAT, [aliased, named]).unwrap();
    let id = |name| facts.of_node(name, keys::NODE_ID).and_then(Value::as_count);
    assert_eq!((id(c"n5"), id(c"n6")), (Some(5), Some(6)));
}

#[test]
fn what_comes_later_replaces_what_is_known() {
    let mut facts = seen_from(Some(0), None);
    facts.add_job(FORMAT, job()).unwrap();
    facts
        .add_job(FORMAT, [node("n0", 0, "0", ""), app(1, 7)])
        .unwrap();
    assert_eq!(of(&facts, ALL, keys::LOCAL_PEERS), "0");
    assert_eq!(facts.local_peers(), Some(vec![PmixRank(0)]));
    assert_eq!(of(&facts, PmixRank(2), keys::APP_SIZE), "7");
    assert_eq!(of(&facts, PmixRank(0), keys::APP_SIZE), "1");
}

#[test]
fn facts_without_a_node_or_an_app_are_of_ones_own() {
    let mut facts = seen_from(Some(0), None);
    let plain = vec![
        kval(keys::JOB_SIZE, Value::Uint32(1)),
        kval(keys::LOCAL_PEERS, text("0")),
        kval(keys::APP_SIZE, Value::Uint32(1)),
        kval(keys::UNIVERSE_SIZE, Value::Uint32(8)),
    ];
    facts.add_job(FORMAT, plain).unwrap();
    for rank in [ALL, PmixRank(0)] {
        assert_eq!(of(&facts, rank, keys::LOCAL_PEERS), "0");
        assert_eq!(of(&facts, rank, keys::APP_SIZE), "1");
        assert_eq!(of(&facts, rank, keys::UNIVERSE_SIZE), "8");
    }
    // Another process may be on another node.
    assert_eq!(of(&facts, PmixRank(1), keys::LOCAL_PEERS), "-");
}

#[test]
fn a_map_says_who_is_where() {
    let mut writer = Writer::new(FORMAT);
    writer.item(&Size(2));
    writer.item(&fact("n0", text("0,2")));
    writer.item(&fact("n1", text("1")));
    let map = kval(c"pmix.mblob", Value::ByteObject(writer.into_bytes().into()));
    let mut facts = seen_from(None, Some(c"n1"));
    facts.add_job(FORMAT, [map]).unwrap();
    assert_eq!(facts.local_peers(), Some(vec![PmixRank(1)]));
    assert_eq!(of(&facts, ALL, keys::NODE_LIST), "n0,n1");
    let peers = facts.of_node(c"n0", keys::LOCAL_PEERS);
    assert_eq!(peers, Some(&text("0,2")));
}

#[test]
fn what_a_process_has_put_is_its_own() {
    let mut facts = seen_from(Some(0), None);
    facts.add_job(FORMAT, job()).unwrap();
    let data = vec![fact("port", Value::Uint32(17)), node("n7", 7, "9", "")];
    facts.add_rank(FORMAT, PmixRank(2), data).unwrap();
    assert_eq!(of(&facts, PmixRank(2), c"port"), "17");
    assert_eq!(of(&facts, PmixRank(1), c"port"), "-");
    assert_eq!(of(&facts, ALL, c"port"), "-");
    assert_eq!(of(&facts, PmixRank::UNDEF, c"port"), "17");
    // The answer to a get may contain facts of nodes.
    let peers = facts.of_node(c"n7", keys::LOCAL_PEERS);
    assert_eq!(peers, Some(&text("9")));
    // A get for the wildcard returns facts of the job.
    let more = vec![kval(keys::MAX_PROCS, Value::Uint32(5)), app(3, 4)];
    facts.add_rank(FORMAT, ALL, more).unwrap();
    assert_eq!(of(&facts, PmixRank(1), keys::MAX_PROCS), "5");
    assert_eq!(facts.of_app(3, keys::APP_SIZE), Some(&Value::Uint32(4)));
}

#[test]
fn libpmix_6_packs_the_facts_of_a_job_once_more() {
    let parent = proc("mother", 4);
    let array = infos(&[
        (keys::JOB_SIZE, Value::Uint32(2)),
        (
            keys::PROC_DATA,
            infos(&[
                (c"pmix.procid", Value::Proc(Box::new(proc("job", 1)))),
                (keys::PARENT_ID, Value::Proc(Box::new(parent.clone()))),
            ]),
        ),
    ]);
    let mut facts = seen_from(Some(1), None);
    facts
        .add_job(FORMAT, [kval(keys::JOB_ARRAY, array)])
        .unwrap();
    assert_eq!(facts.size(), Some(2));
    assert_eq!(facts.parent(), Some(&parent));
}

#[test]
fn facts_of_the_wrong_kind_are_refused_and_no_more() {
    let wrong = [
        kval(keys::NODE_ARRAY, Value::Uint32(1)),
        kval(keys::APP_ARRAY, Value::procs(vec![proc("a", 0)])),
        kval(keys::SESSION_ARRAY, text("session")),
        kval(keys::JOB_ARRAY, Value::Undef),
        kval(keys::PROC_BLOB, text("blob")),
        kval(
            keys::PROC_BLOB,
            Value::ByteObject(b"\x02".as_slice().into()),
        ),
        kval(c"pmix.mblob", Value::ByteObject(b"\xff".as_slice().into())),
        kval(
            keys::PROC_DATA,
            infos(&[(keys::LOCAL_RANK, Value::Uint16(1))]),
        ),
    ];
    for wrong in wrong {
        let mut facts = seen_from(Some(0), None);
        let good = kval(keys::JOB_SIZE, Value::Uint32(1));
        let both = [good, wrong.clone()];
        assert!(facts.add_job(FORMAT, both).is_err(), "{wrong:?}");
        assert_eq!(facts.size(), Some(1));
    }
    // Valid facts with little content: a node without a name, an app without a number, an empty list.
    let mut facts = seen_from(Some(0), None);
    let little = [
        kval(keys::NODE_ARRAY, infos(&[])),
        kval(keys::APP_ARRAY, infos(&[])),
        kval(keys::LOCAL_PEERS, text("")),
        kval(keys::NODE_ARRAY, Value::array(DataType::INFO, Vec::new())),
    ];
    facts.add_job(FORMAT, little).unwrap();
    assert_eq!(facts.local_peers(), Some(Vec::new()));
    let mut facts = seen_from(Some(0), None);
    let peers = kval(keys::LOCAL_PEERS, text("0,x"));
    facts.add_job(FORMAT, [peers]).unwrap();
    assert_eq!(facts.local_peers(), None);
}

/// A hostile server nests buffers in buffers. Only the outermost is decoded.
#[test]
fn nested_buffers_are_not_followed() {
    let mut inner = blob(1, vec![fact("deep", Value::Undef)]);
    for _ in 0..1000 {
        inner = blob(1, vec![inner]);
    }
    let mut facts = seen_from(Some(0), None);
    facts.add_job(FORMAT, [inner]).unwrap();
    assert_eq!(facts.find(PmixRank(1), c"deep"), None);
    let found = facts.find(PmixRank(1), keys::PROC_BLOB);
    assert!(matches!(found, Some(Value::ByteObject(_))));
}
