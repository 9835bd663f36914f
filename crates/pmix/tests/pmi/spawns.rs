//! Spawn requests of ranks.

use pmix::pmi::{Answer, Ask, Dialect, Kind, MAX_APPS, Reply, Request, Spawn, SpawnApp};

use super::pair::{Pair, pairs};

fn app(program: &str, args: &[&str], count: u32) -> SpawnApp {
    SpawnApp {
        program: program.to_owned(),
        args: args.iter().map(|&arg| arg.to_owned()).collect(),
        count,
        infos: pairs(&[("wdir", "/tmp"), ("host", "a,b")]),
    }
}

#[test]
fn a_spawn_is_for_the_host_whole() {
    for dialect in Dialect::ALL {
        let mut pair = Pair::initialized(1, dialect);
        let spawn = Spawn {
            apps: vec![
                app(
                    "./ocean",
                    &["x", "y z", "a=b", "", "1;2;;3", "two\n\nlines"],
                    2,
                ),
                app("./ice", &[], 3),
            ],
            preput: pairs(&[("PARENT_ROOT_PORT_NAME", "tag#0$connentry#20BB$")]),
        };
        let requests = Request::spawn(spawn.clone(), dialect);
        pair.send_all(0, &requests);
        assert!(pair.answers.is_empty());
        let (ticket, ask) = pair.asked();
        assert_eq!(ask, Ask::Spawn(spawn));
        pair.reply(ticket, Reply::Job("job-2".to_owned()));
        let job = (dialect == Dialect::Two).then(|| "job-2".to_owned());
        assert_eq!(pair.answer(0), Answer::Spawned { job });
        // A second spawn.
        pair.send_all(0, &requests);
        let (ticket, _) = pair.asked();
        pair.reply(ticket, Reply::Refused("program_not_found"));
        let refused = Answer::Refused {
            kind: Kind::Spawn,
            rc: 1,
            reason: "program_not_found".to_owned(),
        };
        assert_eq!(pair.answer(0), refused);
    }
}

#[test]
fn lines_of_an_argument_are_told_from_fields() {
    let mut pair = Pair::initialized(1, Dialect::One);
    let program = "x=1\nprint(x)\n\nprint(x == 2)";
    let text = format!(
        "mcmd=spawn\nnprocs=1\nexecname=python3\ntotspawns=1\nspawnssofar=1\nargcnt=3\narg1=-c\narg2={program}\narg3=z\n\
         preput_num=0\ninfo_num=0\nendcmd\n"
    );
    pair.raw(0, text.as_bytes());
    let (_, ask) = pair.asked();
    let Ask::Spawn(spawn) = ask else {
        panic!("{ask:?}");
    };
    assert_eq!(spawn.apps[0].args, ["-c", program, "z"]);
}

#[test]
fn a_wrong_part_is_answered_after_the_last_one() {
    let part = |number: u32, rest: &str| {
        format!("mcmd=spawn\n{rest}totspawns=3\nspawnssofar={number}\nendcmd\n")
    };
    let right = "nprocs=1\nexecname=a\n";
    let cases = [
        (["nprocs=1\n", right, right], "missing_argument_execname"),
        (
            [right, "execname=a\nnprocs=-1\n", right],
            "bad_argument_nprocs",
        ),
        (
            [
                right,
                right,
                "nprocs=1\nexecname=a\ninfo_num=1\ninfo_key_0=x\n",
            ],
            "bad_argument_info_num",
        ),
        (
            [
                "nprocs=1\nexecname=a\npreput_num=1\npreput_key_0=a b\npreput_val_0=a\n",
                right,
                right,
            ],
            "",
        ),
        (
            [
                "nprocs=1\nexecname=a\npreput_num=1\npreput_key_0=a b=\npreput_val_0=a\n",
                right,
                right,
            ],
            "value_not_representable",
        ),
    ];
    for (parts, expected) in cases {
        let mut pair = Pair::initialized(1, Dialect::One);
        for (number, text) in (1..).zip(parts) {
            assert_eq!(pair.said(0), "");
            pair.raw(0, part(number, text).as_bytes());
        }
        assert!(pair.closed.is_empty());
        if expected.is_empty() {
            assert_eq!(pair.asked().1.kind(), Kind::Spawn);
        } else {
            let answer = format!("cmd=spawn_result rc=1 errmsg={expected}\n");
            assert_eq!(pair.said(0), answer);
        }
    }
}

#[test]
fn parts_come_in_their_order() {
    let mut pair = Pair::initialized(1, Dialect::One);
    for number in [2, 2] {
        let text = format!(
            "mcmd=spawn\nnprocs=1\nexecname=a\ntotspawns=2\nspawnssofar={number}\nendcmd\n"
        );
        pair.raw(0, text.as_bytes());
        let refused = "cmd=spawn_result rc=1 errmsg=bad_argument_spawnssofar\n";
        assert_eq!(pair.said(0), refused);
    }
}

#[test]
fn programs_are_counted() {
    for dialect in Dialect::ALL {
        let mut pair = Pair::initialized(1, dialect);
        for (count, expected) in [(MAX_APPS, true), (MAX_APPS + 1, false)] {
            let spawn = Spawn {
                apps: vec![
                    SpawnApp {
                        program: "a".to_owned(),
                        count: 1,
                        ..SpawnApp::default()
                    };
                    count
                ],
                preput: Vec::new(),
            };
            let mut bytes = Vec::new();
            for request in Request::spawn(spawn, dialect) {
                // A part with more fields than a reader accepts is not encoded.
                if let Ok(part) = request.message(dialect).encode() {
                    bytes.extend(part);
                }
            }
            pair.raw(0, &bytes);
            let asked = !pair.events().is_empty();
            let fits = dialect == Dialect::One;
            assert_eq!(asked, expected && fits, "{dialect:?} {count}");
            assert_eq!(
                pair.said(0).contains("too_many_programs"),
                !expected && fits,
                "{dialect:?} {count}"
            );
        }
    }
}

#[test]
#[expect(
    clippy::too_many_lines,
    reason = "a table of cases, and what is said of them"
)]
fn a_spawn_speaks_pmix() {
    let spawn = Spawn {
        apps: vec![SpawnApp {
            program: "./ocean".to_owned(),
            args: vec!["x".to_owned()],
            count: 2,
            infos: pairs(&[
                ("wdir", "/tmp"),
                ("path", "/opt/bin"),
                ("host", "a,b"),
                ("soft", "1:2"),
            ]),
        }],
        preput: pairs(&[("PARENT_ROOT_PORT_NAME", "tag#0$")]),
    };
    let asked = Ask::Spawn(spawn).to_pmix().unwrap();
    insta::assert_snapshot!(format!("{asked:#?}"), @r#"
    Spawn {
        infos: [
            Info {
                key: "rally.preput",
                flags: InfoFlags(
                    0,
                ),
                value: Array(
                    DataArray {
                        kind: INFO,
                        elements: Values(
                            [
                                Info(
                                    Info {
                                        key: "PARENT_ROOT_PORT_NAME",
                                        flags: InfoFlags(
                                            0,
                                        ),
                                        value: String(
                                            Some(
                                                "tag#0$",
                                            ),
                                        ),
                                    },
                                ),
                            ],
                        ),
                    },
                ),
            },
        ],
        apps: [
            App {
                command: Some(
                    "./ocean",
                ),
                argv: [
                    Some(
                        "./ocean",
                    ),
                    Some(
                        "x",
                    ),
                ],
                env: [],
                cwd: None,
                maxprocs: 2,
                info: [
                    Info {
                        key: "pmix.wdir",
                        flags: InfoFlags(
                            0,
                        ),
                        value: String(
                            Some(
                                "/tmp",
                            ),
                        ),
                    },
                    Info {
                        key: "rally.path",
                        flags: InfoFlags(
                            0,
                        ),
                        value: String(
                            Some(
                                "/opt/bin",
                            ),
                        ),
                    },
                    Info {
                        key: "pmix.host",
                        flags: InfoFlags(
                            0,
                        ),
                        value: String(
                            Some(
                                "a,b",
                            ),
                        ),
                    },
                ],
            },
        ],
    }
    "#);
    for (service, expected) in [
        ("pmix.range", "reserved_name"),
        (&"s".repeat(512), "name_too_long"),
    ] {
        let lookup = Ask::Lookup {
            service: service.to_owned(),
        };
        assert_eq!(lookup.to_pmix().unwrap_err().0, expected);
    }
}
