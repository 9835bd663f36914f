//! Requests and answers, line by line, as in `docs/formats/pmi-1.md` and `docs/formats/pmi-2.md`.

use pmix::pmi::{Config, Dialect, Event, Reply};

use super::pair::{Pair, config, spawned};

/// Returns the answers to the lines of a rank. Each question to the host is answered with the next reply.
fn dialogue(pair: &mut Pair, lines: &[Vec<u8>], replies: &[Reply]) -> String {
    let mut replies = replies.iter().cloned();
    let mut text = String::new();
    for line in lines {
        pair.raw(0, line);
        for event in pair.events() {
            if let Event::Ask { ticket, ask, .. } = event {
                text.push_str(&format!("  ask {ask:?}\n"));
                if let Some(reply) = replies.next() {
                    pair.reply(ticket, reply);
                }
            }
        }
        text.push_str(&format!("> {}\n", String::from_utf8_lossy(line).trim_end()));
        text.push_str(&format!("< {}\n", pair.said(0).trim_end()));
    }
    for (_, why) in &pair.closed {
        text.push_str(&format!("closed: {why}\n"));
    }
    text
}

fn lines(lines: &[&str]) -> Vec<Vec<u8>> {
    lines
        .iter()
        .map(|line| format!("{line}\n").into_bytes())
        .collect()
}

/// Encodes counted commands.
fn counted(commands: &[&str]) -> Vec<Vec<u8>> {
    commands
        .iter()
        .map(|command| format!("{:<6}{command}", command.len()).into_bytes())
        .collect()
}

#[test]
fn pmi_1() {
    let mut pair = Pair::of(
        spawned(&[("PARENT_ROOT_PORT_NAME", "tag#0$")]),
        Dialect::One,
    );
    let said = dialogue(
        &mut pair,
        &lines(&[
            "cmd=init pmi_version=1 pmi_subversion=1",
            "cmd=get_maxes",
            "cmd=get_appnum",
            "cmd=get_my_kvsname",
            "cmd=get_universe_size",
            "cmd=get kvsname=job-1 key=PMI_process_mapping",
            "cmd=get kvsname=job-1 key=PARENT_ROOT_PORT_NAME",
            "cmd=put kvsname=job-1 key=a value=b",
            "cmd=put kvsname=job-1 key=a value=c",
            "cmd=get kvsname=job-1 key=a",
            "cmd=get key=a",
            "cmd=publish_name service=ocean port=tag#0$",
            "cmd=publish_name service=ocean port=tag#1$",
            "cmd=lookup_name service=ocean",
            "cmd=lookup_name service=nobody",
            "cmd=unpublish_name service=ocean",
            "mcmd=spawn\nnprocs=1\nexecname=./a\ntotspawns=1\nspawnssofar=1\nargcnt=0\nendcmd",
            "cmd=finalize",
        ]),
        &[
            Reply::Done,
            Reply::Refused("already_published"),
            Reply::Port("tag#0$".to_owned()),
            Reply::Refused("service_not_found"),
            Reply::Done,
            Reply::Job("job-2".to_owned()),
        ],
    );
    insta::assert_snapshot!(said, @r#"
    > cmd=init pmi_version=1 pmi_subversion=1
    < cmd=response_to_init rc=0 pmi_version=1 pmi_subversion=2
    > cmd=get_maxes
    < cmd=maxes rc=0 kvsname_max=256 keylen_max=64 vallen_max=1024
    > cmd=get_appnum
    < cmd=appnum rc=0 appnum=0
    > cmd=get_my_kvsname
    < cmd=my_kvsname rc=0 kvsname=job-1
    > cmd=get_universe_size
    < cmd=universe_size rc=0 size=9
    > cmd=get kvsname=job-1 key=PMI_process_mapping
    < cmd=get_result rc=0 value=(vector,(0,1,4))
    > cmd=get kvsname=job-1 key=PARENT_ROOT_PORT_NAME
    < cmd=get_result rc=0 value=tag#0$
    > cmd=put kvsname=job-1 key=a value=b
    < cmd=put_result rc=0 msg=success
    > cmd=put kvsname=job-1 key=a value=c
    < cmd=put_result rc=0 msg=success
    > cmd=get kvsname=job-1 key=a
    < cmd=get_result rc=0 value=c
    > cmd=get key=a
    < cmd=get_result rc=0 value=c
      ask Publish { service: "ocean", port: "tag#0$" }
    > cmd=publish_name service=ocean port=tag#0$
    < cmd=publish_result rc=0
      ask Publish { service: "ocean", port: "tag#1$" }
    > cmd=publish_name service=ocean port=tag#1$
    < cmd=publish_result rc=1 msg=already_published
      ask Lookup { service: "ocean" }
    > cmd=lookup_name service=ocean
    < cmd=lookup_result rc=0 port=tag#0$
      ask Lookup { service: "nobody" }
    > cmd=lookup_name service=nobody
    < cmd=lookup_result rc=1 msg=service_not_found
      ask Unpublish { service: "ocean" }
    > cmd=unpublish_name service=ocean
    < cmd=unpublish_result rc=0
      ask Spawn(Spawn { apps: [SpawnApp { program: "./a", args: [], count: 1, infos: [] }], preput: [] })
    > mcmd=spawn
    nprocs=1
    execname=./a
    totspawns=1
    spawnssofar=1
    argcnt=0
    endcmd
    < cmd=spawn_result rc=0
    > cmd=finalize
    < cmd=finalize_ack rc=0
    "#);
}

#[test]
fn errors_of_pmi_1() {
    let mut pair = Pair::initialized(2, Dialect::One);
    let said = dialogue(
        &mut pair,
        &lines(&[
            "cmd=dance",
            "cmd=",
            "mcmd=dance\nendcmd",
            "mcmd=get\nkey=a\nendcmd",
            "cmd=barrier_out rc=0",
            "cmd=put kvsname=job-2 key=a value=b",
            "cmd=put kvsname=job-1 value=b",
            "cmd=put kvsname=job-1 key=a",
            "cmd=put key=PMI_process_mapping value=x",
            "cmd=get kvsname=job-2 key=a",
            "cmd=get kvsname=job-1",
            "cmd=get kvsname=job-1 key=nothing",
            "cmd=publish_name service=ocean",
            "cmd=publish_name port=x",
            "cmd=unpublish_name",
            "cmd=lookup_name",
            "mcmd=spawn\nnprocs=1\nendcmd",
            "mcmd=spawn\nnprocs=one\nexecname=a\ntotspawns=1\nspawnssofar=1\nendcmd",
            "mcmd=spawn\nnprocs=1\nexecname=a\nargcnt=2\narg1=x\ntotspawns=1\nspawnssofar=1\nendcmd",
            "mcmd=spawn\nnprocs=1\nexecname=a\ntotspawns=1\nspawnssofar=1\nendcmd",
        ]),
        &[Reply::Refused("program_not_found")],
    );
    insta::assert_snapshot!(said, @r#"
    > cmd=dance
    < cmd=dance_result rc=1 msg=unknown_command
    > cmd=
    < cmd=_result rc=1 msg=unknown_command
    > mcmd=dance
    endcmd
    < cmd=dance_result rc=1 msg=unknown_command
    > mcmd=get
    key=a
    endcmd
    < cmd=get_result rc=1 msg=unknown_command
    > cmd=barrier_out rc=0
    < cmd=barrier_out_result rc=1 msg=unknown_command
    > cmd=put kvsname=job-2 key=a value=b
    < cmd=put_result rc=1 msg=kvs_not_found
    > cmd=put kvsname=job-1 value=b
    < cmd=put_result rc=1 msg=missing_argument_key
    > cmd=put kvsname=job-1 key=a
    < cmd=put_result rc=1 msg=missing_argument_value
    > cmd=put key=PMI_process_mapping value=x
    < cmd=put_result rc=1 msg=reserved_key
    > cmd=get kvsname=job-2 key=a
    < cmd=get_result rc=1 msg=kvs_not_found
    > cmd=get kvsname=job-1
    < cmd=get_result rc=1 msg=missing_argument_key
    > cmd=get kvsname=job-1 key=nothing
    < cmd=get_result rc=1 msg=key_not_found
    > cmd=publish_name service=ocean
    < cmd=publish_result rc=1 msg=missing_argument_port
    > cmd=publish_name port=x
    < cmd=publish_result rc=1 msg=missing_argument_service
    > cmd=unpublish_name
    < cmd=unpublish_result rc=1 msg=missing_argument_service
    > cmd=lookup_name
    < cmd=lookup_result rc=1 msg=missing_argument_service
    > mcmd=spawn
    nprocs=1
    endcmd
    < cmd=spawn_result rc=1 errmsg=missing_argument_totspawns
    > mcmd=spawn
    nprocs=one
    execname=a
    totspawns=1
    spawnssofar=1
    endcmd
    < cmd=spawn_result rc=1 errmsg=bad_argument_nprocs
    > mcmd=spawn
    nprocs=1
    execname=a
    argcnt=2
    arg1=x
    totspawns=1
    spawnssofar=1
    endcmd
    < cmd=spawn_result rc=1 errmsg=bad_argument_argcnt
      ask Spawn(Spawn { apps: [SpawnApp { program: "a", args: [], count: 1, infos: [] }], preput: [] })
    > mcmd=spawn
    nprocs=1
    execname=a
    totspawns=1
    spawnssofar=1
    endcmd
    < cmd=spawn_result rc=1 errmsg=program_not_found
    "#);
}

#[test]
fn pmi_2() {
    let mut pair = Pair::of(
        spawned(&[("PARENT_ROOT_PORT_NAME", "tag#0$")]),
        Dialect::Two,
    );
    let mut commands = lines(&["cmd=init pmi_version=2 pmi_subversion=0"]);
    commands.extend(counted(&[
        "cmd=fullinit;pmijobid=x;pmirank=0;threaded=FALSE;",
        "cmd=job-getid;",
        "cmd=job-getid;thrid=0x7ffd;",
        "cmd=info-getjobattr;key=PMI_process_mapping;",
        "cmd=info-getjobattr;key=universeSize;",
        "cmd=info-getjobattr;key=mpi_reserved_ports;",
        "cmd=kvs-put;key=a;value=b;;c;",
        "cmd=kvs-get;jobid=job-1;srcid=-1;key=a;",
        "cmd=kvs-get;jobid=job-1;srcid=0;key=PARENT_ROOT_PORT_NAME;",
        "cmd=kvs-get;jobid=job-1;srcid=0;key=nothing;",
        "cmd=info-getnodeattr;key=x;wait=FALSE;",
        "cmd=info-putnodeattr;key=x;value=1,2,3;",
        "cmd=info-getnodeattr;key=x;wait=TRUE;",
        "cmd=name-publish;name=ocean;port=tag#0$;infokeycount=0;",
        "cmd=name-publish;name=ocean;port=tag#1$;infokeycount=0;",
        "cmd=name-lookup;name=ocean;infokeycount=0;thrid=7;",
        "cmd=name-unpublish;name=ocean;infokeycount=0;",
        "cmd=spawn;ncmds=1;preputcount=0;subcmd=./a;maxprocs=1;argc=1;argv0=x;;y;infokeycount=0;",
        "cmd=finalize;",
    ]));
    let said = dialogue(
        &mut pair,
        &commands,
        &[
            Reply::Done,
            Reply::Refused("already_published"),
            Reply::Port("tag#0$".to_owned()),
            Reply::Done,
            Reply::Job("job-2".to_owned()),
        ],
    );
    insta::assert_snapshot!(said, @r#"
    > cmd=init pmi_version=2 pmi_subversion=0
    < cmd=response_to_init rc=0 pmi_version=2 pmi_subversion=0
    > 49    cmd=fullinit;pmijobid=x;pmirank=0;threaded=FALSE;
    <    134cmd=fullinit-response;rc=0;pmi-version=2;pmi-subversion=0;rank=0;size=2;appnum=0;spawner-jobid=parent;debugged=FALSE;pmiverbose=FALSE;
    > 14    cmd=job-getid;
    <     40cmd=job-getid-response;rc=0;jobid=job-1;
    > 27    cmd=job-getid;thrid=0x7ffd;
    <     53cmd=job-getid-response;thrid=0x7ffd;rc=0;jobid=job-1;
    > 44    cmd=info-getjobattr;key=PMI_process_mapping;
    <     68cmd=info-getjobattr-response;rc=0;found=TRUE;value=(vector,(0,1,4));
    > 37    cmd=info-getjobattr;key=universeSize;
    <     53cmd=info-getjobattr-response;rc=0;found=TRUE;value=9;
    > 43    cmd=info-getjobattr;key=mpi_reserved_ports;
    <     46cmd=info-getjobattr-response;rc=0;found=FALSE;
    > 29    cmd=kvs-put;key=a;value=b;;c;
    <     26cmd=kvs-put-response;rc=0;
    > 39    cmd=kvs-get;jobid=job-1;srcid=-1;key=a;
    <     48cmd=kvs-get-response;rc=0;found=TRUE;value=b;;c;
    > 58    cmd=kvs-get;jobid=job-1;srcid=0;key=PARENT_ROOT_PORT_NAME;
    <     50cmd=kvs-get-response;rc=0;found=TRUE;value=tag#0$;
    > 44    cmd=kvs-get;jobid=job-1;srcid=0;key=nothing;
    <     38cmd=kvs-get-response;rc=0;found=FALSE;
    > 38    cmd=info-getnodeattr;key=x;wait=FALSE;
    <     47cmd=info-getnodeattr-response;rc=0;found=FALSE;
    > 39    cmd=info-putnodeattr;key=x;value=1,2,3;
    <     35cmd=info-putnodeattr-response;rc=0;
    > 37    cmd=info-getnodeattr;key=x;wait=TRUE;
    <     58cmd=info-getnodeattr-response;rc=0;found=TRUE;value=1,2,3;
      ask Publish { service: "ocean", port: "tag#0$" }
    > 55    cmd=name-publish;name=ocean;port=tag#0$;infokeycount=0;
    <     31cmd=name-publish-response;rc=0;
      ask Publish { service: "ocean", port: "tag#1$" }
    > 55    cmd=name-publish;name=ocean;port=tag#1$;infokeycount=0;
    <     56cmd=name-publish-response;rc=1;errmsg=already_published;
      ask Lookup { service: "ocean" }
    > 50    cmd=name-lookup;name=ocean;infokeycount=0;thrid=7;
    <     63cmd=name-lookup-response;thrid=7;rc=0;port=tag#0$;value=tag#0$;
      ask Unpublish { service: "ocean" }
    > 45    cmd=name-unpublish;name=ocean;infokeycount=0;
    <     33cmd=name-unpublish-response;rc=0;
      ask Spawn(Spawn { apps: [SpawnApp { program: "./a", args: ["x;y"], count: 1, infos: [] }], preput: [] })
    > 87    cmd=spawn;ncmds=1;preputcount=0;subcmd=./a;maxprocs=1;argc=1;argv0=x;;y;infokeycount=0;
    <     36cmd=spawn-response;rc=0;jobid=job-2;
    > 13    cmd=finalize;
    <     27cmd=finalize-response;rc=0;
    "#);
}

#[test]
fn errors_of_pmi_2() {
    let mut pair = Pair::initialized(2, Dialect::Two);
    let said = dialogue(
        &mut pair,
        &counted(&[
            "cmd=ring;count=1;left=a;right=b;thrid=3;",
            "cmd=get_maxes;",
            "cmd=;",
            "cmd=kvs-put;value=b;",
            "cmd=kvs-put;key=a;thrid=4;",
            "cmd=kvs-put;key=PMI_x;value=y;",
            "cmd=kvs-get;jobid=job-2;key=a;",
            "cmd=kvs-get;jobid=job-1;",
            "cmd=info-getjobattr;",
            "cmd=info-getnodeattr;key=x;wait=maybe;",
            "cmd=info-putnodeattr;key=x;",
            "cmd=name-publish;name=x;",
            "cmd=name-lookup;port=x;",
            "cmd=job-connect;jobid=job-1;",
            "cmd=job-connect;",
            "cmd=job-disconnect;jobid=job-1;",
            "cmd=spawn;",
            "cmd=spawn;ncmds=2;preputcount=0;subcmd=a;maxprocs=1;argc=0;",
            "cmd=spawn;ncmds=1;preputcount=1;subcmd=a;maxprocs=1;argc=0;",
            "cmd=spawn;ncmds=1;subcmd=a;maxprocs=1;argc=0;",
        ]),
        &[Reply::Refused("program_not_found")],
    );
    insta::assert_snapshot!(said, @r#"
    > 40    cmd=ring;count=1;left=a;right=b;thrid=3;
    <     54cmd=ring-response;thrid=3;rc=1;errmsg=unknown_command;
    > 14    cmd=get_maxes;
    <     51cmd=get_maxes-response;rc=1;errmsg=unknown_command;
    > 5     cmd=;
    <     42cmd=-response;rc=1;errmsg=unknown_command;
    > 20    cmd=kvs-put;value=b;
    <     54cmd=kvs-put-response;rc=1;errmsg=missing_argument_key;
    > 26    cmd=kvs-put;key=a;thrid=4;
    <     64cmd=kvs-put-response;thrid=4;rc=1;errmsg=missing_argument_value;
    > 30    cmd=kvs-put;key=PMI_x;value=y;
    <     46cmd=kvs-put-response;rc=1;errmsg=reserved_key;
    > 30    cmd=kvs-get;jobid=job-2;key=a;
    <     47cmd=kvs-get-response;rc=1;errmsg=kvs_not_found;
    > 24    cmd=kvs-get;jobid=job-1;
    <     54cmd=kvs-get-response;rc=1;errmsg=missing_argument_key;
    > 20    cmd=info-getjobattr;
    <     62cmd=info-getjobattr-response;rc=1;errmsg=missing_argument_key;
    > 38    cmd=info-getnodeattr;key=x;wait=maybe;
    <     60cmd=info-getnodeattr-response;rc=1;errmsg=bad_argument_wait;
    > 27    cmd=info-putnodeattr;key=x;
    <     65cmd=info-putnodeattr-response;rc=1;errmsg=missing_argument_value;
    > 24    cmd=name-publish;name=x;
    <     60cmd=name-publish-response;rc=1;errmsg=missing_argument_port;
    > 23    cmd=name-lookup;port=x;
    <     59cmd=name-lookup-response;rc=1;errmsg=missing_argument_name;
    > 28    cmd=job-connect;jobid=job-1;
    <     51cmd=job-connect-response;rc=1;errmsg=not_supported;
    > 16    cmd=job-connect;
    <     60cmd=job-connect-response;rc=1;errmsg=missing_argument_jobid;
    > 31    cmd=job-disconnect;jobid=job-1;
    <     54cmd=job-disconnect-response;rc=1;errmsg=not_supported;
    > 10    cmd=spawn;
    <     54cmd=spawn-response;rc=1;errmsg=missing_argument_ncmds;
    > 59    cmd=spawn;ncmds=2;preputcount=0;subcmd=a;maxprocs=1;argc=0;
    <     50cmd=spawn-response;rc=1;errmsg=bad_argument_ncmds;
    > 59    cmd=spawn;ncmds=1;preputcount=1;subcmd=a;maxprocs=1;argc=0;
    <     56cmd=spawn-response;rc=1;errmsg=bad_argument_preputcount;
      ask Spawn(Spawn { apps: [SpawnApp { program: "a", args: [], count: 1, infos: [] }], preput: [] })
    > 45    cmd=spawn;ncmds=1;subcmd=a;maxprocs=1;argc=0;
    <     49cmd=spawn-response;rc=1;errmsg=program_not_found;
    "#);
}

#[test]
fn a_job_that_nobody_has_spawned_says_so() {
    let mut pair = Pair::of(config(0..1, 1), Dialect::Two);
    let mut commands = lines(&["cmd=init pmi_version=2 pmi_subversion=0"]);
    commands.extend(counted(&["cmd=fullinit;pmirank=0;threaded=TRUE;"]));
    let said = dialogue(&mut pair, &commands, &[]);
    insta::assert_snapshot!(said, @"
    > cmd=init pmi_version=2 pmi_subversion=0
    < cmd=response_to_init rc=0 pmi_version=2 pmi_subversion=0
    > 37    cmd=fullinit;pmirank=0;threaded=TRUE;
    <    113cmd=fullinit-response;rc=0;pmi-version=2;pmi-subversion=0;rank=0;size=1;appnum=0;debugged=FALSE;pmiverbose=FALSE;
    ");
}

/// An unknown universe size: in PMI-1 answered as by Hydra, so that a program may spawn any number; in PMI-2 as by Slurm.
#[test]
fn a_universe_of_which_nobody_has_said_the_size() {
    let unknown = || Config {
        universe: None,
        ..config(0..1, 1)
    };
    let mut pair = Pair::of(unknown(), Dialect::One);
    let one = dialogue(
        &mut pair,
        &lines(&[
            "cmd=init pmi_version=1 pmi_subversion=1",
            "cmd=get_universe_size",
        ]),
        &[],
    );
    let mut pair = Pair::of(unknown(), Dialect::Two);
    pair.raw(0, b"cmd=init pmi_version=2 pmi_subversion=0\n");
    pair.said(0);
    let two = dialogue(
        &mut pair,
        &counted(&[
            "cmd=fullinit;pmijobid=x;pmirank=0;threaded=FALSE;",
            "cmd=info-getjobattr;key=universeSize;",
        ]),
        &[],
    );
    insta::assert_snapshot!(one + &two, @"
    > cmd=init pmi_version=1 pmi_subversion=1
    < cmd=response_to_init rc=0 pmi_version=1 pmi_subversion=2
    > cmd=get_universe_size
    < cmd=universe_size rc=0 size=-1
    > 49    cmd=fullinit;pmijobid=x;pmirank=0;threaded=FALSE;
    <    113cmd=fullinit-response;rc=0;pmi-version=2;pmi-subversion=0;rank=0;size=1;appnum=0;debugged=FALSE;pmiverbose=FALSE;
    > 37    cmd=info-getjobattr;key=universeSize;
    <     53cmd=info-getjobattr-response;rc=0;found=TRUE;value=1;
    ");
}
