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
    let read = |text: &str| shown(&hostfile(text, "`hosts`", &names()).unwrap());
    insta::assert_snapshot!(read("a slots=4 max_slots=8\nb:4\n\nc # nothing said\n# all\nd slots = 2"), @"a:4/8 b:4 c:? d:2");
    insta::assert_snapshot!(read("n[08-10]:2\nn09 slots=1 max-slots=5"), @"n08:2 n09:3/5 n10:2");
    insta::assert_snapshot!(read("a\na\nb slots=2\nb\nc\r\n"), @"a:2 b:3 c:?");
    insta::assert_snapshot!(read("localhost slots=2\nlogin1\n127.0.0.1 slots=1\nlogin1.site"), @"login1.site:5");
    insta::assert_snapshot!(read("a:4 binding=user:0+1 user=me"), @"a:4");
    let list = sequence("b\na:2\nb\nlocalhost", "`hosts`", &names()).unwrap();
    assert_eq!(
        list.iter().collect::<Vec<_>>(),
        ["b", "a", "a", "b", "login1.site"]
    );
}

#[test]
fn bad_host_files_name_the_line() {
    let error = |text: &str| hostfile(text, "`hosts`", &names()).unwrap_err().to_string();
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
    let read = |text: &str| hosts(text, "`--host`", &names()).map(|allocation| shown(&allocation));
    insta::assert_snapshot!(read("a:2,b").unwrap(), @"a:2 b:?");
    insta::assert_snapshot!(read("n[1-2,4]:3,localhost").unwrap(), @"n1:3 n2:3 n4:3 login1.site:?");
    insta::assert_snapshot!(read("a,a,b:2,a:3").unwrap(), @"a:5 b:2");
    insta::assert_snapshot!(read("::1").unwrap(), @"login1.site:?");
    insta::assert_snapshot!(read("a,,b").unwrap_err(), @"cannot read the nodes of `--host`: no node is named");
    insta::assert_snapshot!(read("a:x").unwrap_err(), @"cannot read the nodes of `--host`: `x` is not a number of slots");
    insta::assert_snapshot!(read("a:0").unwrap_err(), @"cannot read the nodes of `--host`: `0` names no slot: leave the node out instead");
    insta::assert_snapshot!(read("a b").unwrap_err(), @"cannot read the nodes of `--host`: ` ` at position 1 cannot be part of a host name");
}

#[test]
fn other_machines_are_refused_for_now() {
    let remote = hosts("n[0417-0420],localhost,x", "`--host`", &names()).unwrap();
    insta::assert_snapshot!(remote.refuse_remote(&names()).unwrap_err(), @"
    cannot use `n[0417-0420],x`: starting daemons on other nodes is not implemented yet
      help:   leave these nodes out, or use `localhost`
    ");
    assert_eq!(Allocation::local(&names()).refuse_remote(&names()), Ok(()));
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
        let _ = hosts(&text, "x", &names());
        if let Ok(allocation) = hostfile(&text, "x", &names()) {
            prop_assert!(!allocation.nodes.is_empty());
        }
    }
}
