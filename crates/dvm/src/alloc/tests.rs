//! Host lists and host files as users write them.

use proptest::prelude::*;

use super::*;

fn names() -> LocalNames {
    LocalNames::new("login1.site")
}

/// Returns, for example, `a:4/8 b:?`: the slots and the maximum of each node, with `?` for implicit slots.
fn shown(allocation: &Allocation) -> String {
    let node = |node: &AllocatedNode| {
        let slots = match node.slots {
            Slots::Implicit => "?".to_owned(),
            Slots::Explicit(count) => count.to_string(),
        };
        let max = node
            .max_slots
            .map_or_else(String::new, |max| format!("/{max}"));
        format!("{}:{slots}{max}", node.name)
    };
    allocation
        .nodes
        .iter()
        .map(node)
        .collect::<Vec<_>>()
        .join(" ")
}

#[test]
fn host_files() {
    let read = |text: &str| shown(&hostfile(text, "`hosts`", &names(), Base::default()).unwrap());
    insta::assert_snapshot!(read("a slots=4 max_slots=8\nb:4\n\nc # nothing said\n# all\nd slots = 2"), @"a:4/8 b:4 c:? d:2");
    insta::assert_snapshot!(read("n[08-10]:2\nn09 slots=1 max-slots=5"), @"n08:2 n09:3/5 n10:2");
    insta::assert_snapshot!(read("a\na\nb slots=2\nb\nc\r\n"), @"a:2 b:3 c:?");
    insta::assert_snapshot!(read("localhost slots=2\nlogin1\n127.0.0.1 slots=1\nlogin1.site"), @"login1.site:5");
    insta::assert_snapshot!(read("fd00::1 slots=2\n[fd00::2]:4\n[fd00::3] # one\nfd00::1"), @"fd00::1:3 fd00::2:4 fd00::3:?");
    insta::assert_snapshot!(read("a:4 binding=user:0+1 user=me"), @"a:4");
    let list = sequence("b\na:2\nb\nlocalhost", "`hosts`", &names(), Base::default()).unwrap();
    assert_eq!(
        list.iter().collect::<Vec<_>>(),
        ["b", "a", "a", "b", "login1.site"]
    );
}

#[test]
fn bad_host_files_name_the_line() {
    let error = |text: &str| {
        hostfile(text, "`hosts`", &names(), Base::default())
            .unwrap_err()
            .to_string()
    };
    insta::assert_snapshot!(error("a\n\nb slot=2"), @"
    cannot read the nodes of `hosts`, line 3: `slot` is not known
      help:   did you mean `slots`?
    ");
    insta::assert_snapshot!(error("a 4"), @"
    cannot read the nodes of `hosts`, line 1: `4` is not `key=value`
      help:   a line is `name`, `name:4` or `name slots=4 max_slots=8`
    ");
    insta::assert_snapshot!(error("a gpus=4"), @"
    cannot read the nodes of `hosts`, line 1: `gpus` is not known
      help:   a line is `name`, `name:4` or `name slots=4 max_slots=8`
    ");
    insta::assert_snapshot!(error("a slots=many"), @"cannot read the nodes of `hosts`, line 1: `many` is not a number of slots");
    insta::assert_snapshot!(error("a slots=0"), @"cannot read the nodes of `hosts`, line 1: `0` names no slot: leave the node out instead");
    insta::assert_snapshot!(error("a slots=-1"), @"cannot read the nodes of `hosts`, line 1: `-1` is not a number of slots");
    insta::assert_snapshot!(error("a:2 slots=2"), @"cannot read the nodes of `hosts`, line 1: `slots` is given twice");
    insta::assert_snapshot!(error("a slots=4 max_slots=2"), @"cannot read the nodes of `hosts`, line 1: max_slots=2 is less than slots=4");
    insta::assert_snapshot!(error("n[1-"), @"cannot read the nodes of `hosts`, line 1: the `[` at position 1 is never closed");
    insta::assert_snapshot!(error("# nothing"), @"cannot read the nodes of `hosts`: no node is named");
    insta::assert_snapshot!(error("n[1-2000000]"), @"cannot read the nodes of `hosts`, line 1: the host list has more than 1048576 names");
}

#[test]
fn host_options() {
    let read = |text: &str| {
        hosts(text, "`--host`", &names(), Base::default()).map(|allocation| shown(&allocation))
    };
    insta::assert_snapshot!(read("a:2,b").unwrap(), @"a:2 b:?");
    insta::assert_snapshot!(read("n[1-2,4]:3,localhost").unwrap(), @"n1:3 n2:3 n4:3 login1.site:?");
    insta::assert_snapshot!(read("a,a,b:2,a:3").unwrap(), @"a:5 b:2");
    insta::assert_snapshot!(read("::1").unwrap(), @"login1.site:?");
    insta::assert_snapshot!(read("fd00::1,[fd00::2],[fd00::a]:2,[::1]:3,fe80::1%eth0").unwrap(), @"fd00::1:? fd00::2:? fd00::a:2 login1.site:3 fe80::1%eth0:?");
    insta::assert_snapshot!(read("fd00:0::1,[fd00::1]:3").unwrap(), @"fd00::1:4");
    insta::assert_snapshot!(read("fd00::1::2").unwrap_err(), @"cannot read the nodes of `--host`: `:1::2` is not a number of slots");
    insta::assert_snapshot!(read("[fd00::1]:x").unwrap_err(), @"cannot read the nodes of `--host`: `x` is not a number of slots");
    insta::assert_snapshot!(read("a,,b").unwrap_err(), @"cannot read the nodes of `--host`: no node is named");
    insta::assert_snapshot!(read("a:x").unwrap_err(), @"cannot read the nodes of `--host`: `x` is not a number of slots");
    insta::assert_snapshot!(read("a:0").unwrap_err(), @"cannot read the nodes of `--host`: `0` names no slot: leave the node out instead");
    insta::assert_snapshot!(read("a b").unwrap_err(), @"cannot read the nodes of `--host`: ` ` at position 1 cannot be part of a host name");
}

#[test]
fn relative_names_count_nodes_of_the_base() {
    let nodes = hosts("n[0-3]:4,localhost", "base", &names(), Base::default()).unwrap();
    let used = ["n0".to_owned()];
    let base = Base {
        nodes: Some(&nodes.nodes),
        used: &used,
    };
    let read = |text: &str| match hosts(text, "`--host`", &names(), base) {
        Ok(allocation) => shown(&allocation),
        Err(error) => error.to_string(),
    };
    insta::assert_snapshot!(read("+n1,+n3:2,n0"), @"n1:? n3:2 n0:?");
    insta::assert_snapshot!(read("+n1,+e:2"), @"n1:? n2:? n3:?");
    insta::assert_snapshot!(read("+e2,+e"), @"n1:? n2:? n3:? login1.site:?");
    insta::assert_snapshot!(read("+e:5"), @"cannot read the nodes of `--host`: `+e:5` asks for more unused nodes than there are: 4");
    insta::assert_snapshot!(read("+n5"), @"cannot read the nodes of `--host`: there is no node `+n5`: the nodes are `+n0` to `+n4`");
    insta::assert_snapshot!(read("+x1"), @"cannot read the nodes of `--host`: `+x1` is neither `+nN` nor `+e:N`");
    insta::assert_snapshot!(hosts("+n1", "`--host`", &names(), Base::default()).unwrap_err(), @"cannot read the nodes of `--host`: `+n1` refers to the nodes of an allocation or a host file, and there is neither");
    insta::assert_snapshot!(shown(&hostfile("+n1 slots=2\nn2", "`hosts`", &names(), base).unwrap()), @"n1:2 n2:?");
    let list = sequence("+n2\n+n0:2", "`hosts`", &names(), base).unwrap();
    assert_eq!(list.to_string(), "n[2,0,0]");
}

#[test]
fn a_list_narrows_an_allocation() {
    let all = hosts("n[0-3]:4", "base", &names(), Base::default()).unwrap();
    let narrowed = |text: &str| {
        let wanted = hostfile(text, "x", &names(), Base::default()).unwrap();
        all.narrowed(&wanted).map(|nodes| shown(&nodes))
    };
    assert_eq!(narrowed("n2\nn0 slots=1").as_deref(), Some("n0:1 n2:4"));
    assert_eq!(narrowed("n1 max_slots=9").as_deref(), Some("n1:4/9"));
    assert_eq!(narrowed("n1\nn4"), None);
}

#[test]
fn allocations_of_lsf() {
    let text = |text| Text {
        text,
        origin: "`LSB_MCPU_HOSTS`",
    };
    let pairs = |words| match lsf_pairs(&text(words), &names()) {
        Ok(allocation) => shown(&allocation),
        Err(error) => error.to_string(),
    };
    insta::assert_snapshot!(pairs("n1 8 login1 4 n1 1"), @"n1:9 login1.site:4");
    insta::assert_snapshot!(pairs("n1 8 n2"), @"cannot read the nodes of `LSB_MCPU_HOSTS`: `` is not a number of slots");
    insta::assert_snapshot!(pairs(" "), @"cannot read the nodes of `LSB_MCPU_HOSTS`: no node is named");
    let repeated = lsf_hosts(&text("n1 n1 n2"), &names()).unwrap();
    assert_eq!(shown(&repeated), "n1:2 n2:1");
    assert_eq!(repeated.nodes[0].granted, Some(2));
}

#[test]
fn names_of_this_machine() {
    for (host, name, local) in [
        ("login1.site", "login1", true),
        ("login1.site", "login1.site", true),
        ("login1.site", "login1.other", false),
        ("login1.site", "login", false),
        ("vm", "vm.site", true),
        ("vm", "localhost", true),
        ("vm", "127.0.0.1", true),
        ("vm", "127.0.0.2", false),
        ("127", "127.0.0.2", false),
    ] {
        assert_eq!(
            LocalNames::new(host).contains(name),
            local,
            "{name} on {host}"
        );
    }
}

proptest! {
    #[test]
    fn any_text_is_read_or_refused(text in "[an1:=,\\[\\]# \nslotmax_-]{0,40}") {
        let _ = hosts(&text, "x", &names(), Base::default());
        if let Ok(allocation) = hostfile(&text, "x", &names(), Base::default()) {
            prop_assert!(!allocation.nodes.is_empty());
        }
    }
}
