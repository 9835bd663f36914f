//! PMI-1 and PMI-2: programs that spawn, publish and fail. They use third-party libraries (MPICH 5 for PMI-1, Slurm's
//! libpmi2 for PMI-2), and a PMI-1 client in shell for messages that no library sends.

use std::{
    fs,
    os::unix::fs::{PermissionsExt as _, symlink},
    path::{Path, PathBuf},
    process::Command,
};

use crate::{
    harness::{CLEAN_WITHIN, Finished, Sandbox, compiled, eventually, rally, testdata, venv},
    nodes::{OVER_NODES, node_name},
};

/// Options of jobs on one node, and over three nodes with one rank on each in turn.
const PLACES: [&[&str]; 2] = [&[], &OVER_NODES];

/// Returns a program compiled for MPICH 5.
fn mpich(name: &str) -> String {
    let compiler = venv("mpich").join("bin/mpicc");
    text(&compiled(&compiler, &source(name), &[]))
}

/// Returns a program for libpmi2. Debian has this library without a header, and without the name that a linker looks for.
fn two(name: &str) -> String {
    let program = compiled(Path::new("gcc"), &source(name), &["-l:libpmi2.so.0"]);
    text(&program)
}

fn source(name: &str) -> PathBuf {
    testdata(&format!("pmi/{name}.c"))
}

fn text(path: &Path) -> String {
    path.to_str().unwrap().to_owned()
}

/// Runs an MPICH program without a launcher, which finds us under the name of its own launcher.
fn alone(sandbox: &Sandbox, program: &str, arguments: &[&str]) -> Finished {
    let bin = sandbox.path("bin");
    fs::create_dir(&bin).unwrap();
    symlink(rally(), sandbox.path("mpiexec")).unwrap();
    // This script is called while the program runs, and records its shared memory.
    let script = format!(
        "#!/bin/sh\ngrep -o '/dev/shm/[^ ]*' /proc/$PPID/maps >{}\nexec {} \"$@\"\n",
        sandbox.path("shared").display(),
        sandbox.path("mpiexec").display(),
    );
    let caller = bin.join("mpiexec");
    fs::write(&caller, script).unwrap();
    fs::set_permissions(&caller, fs::Permissions::from_mode(0o755)).unwrap();
    let mut command = sandbox.command(program);
    let path = format!("{}:/usr/bin:/bin", bin.display());
    command.args(arguments).env("PATH", path);
    let run = sandbox.run(&mut command);
    let shared = sandbox.read("shared");
    assert!(!shared.is_empty());
    let is_left = |path: &&str| Path::new(path).exists();
    let left = || shared.lines().filter(is_left).collect::<Vec<_>>();
    let gone = eventually(CLEAN_WITHIN, || left().is_empty().then_some(()));
    assert!(gone.is_some(), "{:?}", left());
    run
}

/// Writes a script that uses PMI-1.
fn one(sandbox: &Sandbox, name: &str, script: &str) -> String {
    let client = testdata("pmi/one.sh");
    sandbox.file(name, format!("source {}\n{script}", client.display()))
}

/// Returns the command of a job at one of the [`PLACES`].
fn job(sandbox: &Sandbox, place: &[&str], words: &[&str]) -> Command {
    let mut command = sandbox.rally(&["run"]);
    command.args(place).args(words);
    command
}

/// Returns the output of a script that runs as the only rank.
fn say(script: &str) -> String {
    let sandbox = Sandbox::new();
    let script = one(&sandbox, "script", script);
    let run = sandbox.run_rally(&["run", "-n", "1", "bash", &script]);
    run.expect_code(0).out()
}

mod mpich_5 {
    use super::*;

    #[test]
    fn four_hundred_children() {
        let sandbox = Sandbox::new();
        let mut command = sandbox.rally(&["run", "-n", "1", &mpich("spawn_many")]);
        // Its transport with the fastest start.
        command
            .env("MPIR_CVAR_CH4_NETMOD", "ofi")
            .env("FI_PROVIDER", "tcp");
        sandbox
            .run(&mut command)
            .expect_code(0)
            .expect_quiet()
            .expect_out("100 lots of 4 came and went\n");
    }

    fn child(how: &str) -> Finished {
        let sandbox = Sandbox::new();
        let program = mpich("child_ends");
        sandbox.run_rally(&["run", "-n", "2", &program, how])
    }

    #[test]
    fn a_child_that_aborts_ends_all() {
        child("aborts").expect_code(42).expect_out("").expect_err(&[
            "error: job 2, which a rank spawned, failed, and this job was ended with it: its rank 1 aborted it with code 42",
            "both ranks were ended",
        ]);
    }

    #[test]
    fn a_child_that_crashes_ends_all() {
        child("crashes")
            .expect_code(134)
            .expect_out("")
            .expect_err(&["this job was ended with it: its rank 1 was killed by SIGABRT"]);
    }

    #[test]
    fn a_child_that_fails_ends_all() {
        child("exits")
            .expect_code(9)
            .expect_out("")
            .expect_err(&["this job was ended with it: its rank 1 exited with code 9"]);
    }

    #[test]
    fn a_program_that_nobody_has_launched_spawns() {
        let sandbox = Sandbox::new();
        alone(&sandbox, &mpich("spawn_many"), &["2"])
            .expect_code(0)
            .expect_quiet()
            .expect_out("2 lots of 4 came and went\n");
        sandbox.expect_clean();
    }

    #[test]
    fn a_program_that_nobody_has_launched_is_ended_with_its_children() {
        let sandbox = Sandbox::new();
        alone(&sandbox, &mpich("child_ends"), &["aborts"])
            // The code of SIGTERM.
            .expect_code(143)
            .expect_out("")
            .expect_err(&["its rank 1 aborted it with code 42"]);
        sandbox.expect_clean();
    }
}

mod two {
    use super::*;

    #[test]
    fn all_that_there_is() {
        let sandbox = Sandbox::new();
        let program = two("two");
        for (place, ranks) in [(0, "1"), (0, "2"), (0, "3"), (1, "3"), (1, "5")] {
            let mut command = job(&sandbox, PLACES[place], &["-n", ranks, &program]);
            let run = sandbox.run(&mut command).expect_code(0);
            let run = run.expect_err(&["cannot start `/nowhere/nothing`: there is no such file"]);
            assert_eq!(run.sorted(), "child 0 of 3\nchild 1 of 3\nchild 2 of 3");
        }
    }

    #[test]
    fn a_rank_may_end_all() {
        for place in PLACES {
            let sandbox = Sandbox::new();
            let program = two("two_aborts");
            let run = sandbox.run(&mut job(&sandbox, place, &["-n", "3", &program]));
            run.expect_code(1).expect_err(&[
                "rank 1 on",
                "aborted the job with code 1",
                "the ice is thin",
            ]);
        }
    }
}

#[test]
fn what_is_wrong_is_answered() {
    let said = say(r#"
        ask 'cmd=dance'
        ask 'cmd=put kvsname=nobodys key=a value=b'
        ask "cmd=put kvsname=$kvs value=b"
        ask "cmd=put key=$(printf '%065d' 0) value=b"
        ask "cmd=put key=a value=$(printf '%01025d' 0)"
        ask 'cmd=put key=PMI_a value=b'
        ask 'cmd=get key=a'
        ask 'cmd=unpublish_name service=nobodys'
        ask 'cmd=lookup_name service=nobodys'
        ask 'cmd=publish_name service=pmix.range port=x'
        ask 'cmd=barrier_in group=0,7'
        ask $'mcmd=spawn\nnprocs=1\nendcmd'
        ask $'mcmd=spawn\nnprocs=1\nexecname=/\ntotspawns=1\nspawnssofar=1\nendcmd'
        ask $'mcmd=spawn\nnprocs=1\nexecname=true\ntotspawns=1\nspawnssofar=1\ninfo_num=1\ninfo_key_0=wdir\ninfo_val_0=/nowhere\nendcmd'
        ask $'mcmd=spawn\nnprocs=1\nexecname=true\ntotspawns=1\nspawnssofar=1\ninfo_num=1\ninfo_key_0=host\ninfo_val_0=nowhere\nendcmd'
        ask 'cmd=get_appnum'
        ask 'cmd=finalize'
    "#);
    insta::assert_snapshot!(said, @"
    cmd=dance_result rc=1 msg=unknown_command
    cmd=put_result rc=1 msg=kvs_not_found
    cmd=put_result rc=1 msg=missing_argument_key
    cmd=put_result rc=1 msg=key_too_long
    cmd=put_result rc=1 msg=value_too_long
    cmd=put_result rc=1 msg=reserved_key
    cmd=get_result rc=1 msg=key_not_found
    cmd=unpublish_result rc=1 msg=service_not_found
    cmd=lookup_result rc=1 msg=service_not_found
    cmd=publish_result rc=1 msg=reserved_name
    cmd=barrier_out rc=1 msg=no_such_rank
    cmd=spawn_result rc=1 errmsg=missing_argument_totspawns
    cmd=spawn_result rc=1 errmsg=program_not_found
    cmd=spawn_result rc=1 errmsg=directory_not_found
    cmd=spawn_result rc=1 errmsg=cannot_be_placed
    cmd=appnum rc=0 appnum=0
    cmd=finalize_ack rc=0
    ");
}

/// The exit code is that of the rank that fails later; the rank that left is not a success by itself.
#[test]
fn a_rank_leaves_and_another_fails_for_it() {
    let sandbox = Sandbox::new();
    let pid = sandbox.path("pid").display().to_string();
    let script = r#"
        if [ "$PMI_RANK" = 0 ]; then echo $$ >"$1"; exit; fi
        until [ -s "$1" ] && ! kill -0 "$(cat "$1")"; do :; done 2>/dev/null
        exit 3
        "#;
    let script = one(&sandbox, "script", script);
    let run = sandbox.run_rally(&["run", "-n", "2", "bash", &script, &pid]);
    run.expect_code(3).expect_err(&[
        "warning: rank 0 on ",
        " ended with code 0, but without `MPI_Finalize`",
        "effect: other ranks may have waited or failed because of it",
        "error: rank 1 on ",
        " exited with code 3",
    ]);
}

#[test]
fn a_spawn_has_several_programs_and_arguments_of_several_lines() {
    let sandbox = Sandbox::new();
    let child = one(
        &sandbox,
        "child",
        r#"
        echo "rank $PMI_RANK of $PMI_SIZE, app $(ask cmd=get_appnum | grep -o '[0-9]*$'), in $PWD: $1"
        ask "cmd=get kvsname=$kvs key=PORT"
        echo "spawned: $PMI_SPAWNED"
        quietly cmd=finalize
        "#,
    );
    let script = r#"
        echo "spawned: ${PMI_SPAWNED-no}"
        part() {
            printf 'mcmd=spawn\nnprocs=%s\nexecname=bash\ntotspawns=2\nspawnssofar=%s\n' "$1" "$2" >&$PMI_FD
            printf 'argcnt=2\narg1=CHILD\narg2=%s\n' "$3" >&$PMI_FD
        }
        part 1 1 $'x = 1\nprint(x == y)'
        printf 'preput_num=1\npreput_key_0=PORT\npreput_val_0=tag#0$\n' >&$PMI_FD
        printf 'info_num=2\ninfo_key_0=wdir\ninfo_val_0=/\ninfo_key_1=host\ninfo_val_1=localhost\nendcmd\n' >&$PMI_FD
        part 2 2 'y z'
        ask $'info_num=1\ninfo_key_0=wdir\ninfo_val_0=/usr\nendcmd'
        quietly cmd=finalize
        "#;
    let script = one(&sandbox, "script", &script.replace("CHILD", &child));
    let run = sandbox
        .run_rally(&["run", "-n", "1", "bash", &script])
        .expect_code(0)
        .expect_quiet();
    insta::assert_snapshot!(run.sorted(), @"
    cmd=get_result rc=0 value=tag#0$
    cmd=get_result rc=0 value=tag#0$
    cmd=get_result rc=0 value=tag#0$
    cmd=spawn_result rc=0
    print(x == y)
    rank 0 of 3, app 0, in /: x = 1
    rank 1 of 3, app 1, in /usr: y z
    rank 2 of 3, app 1, in /usr: y z
    spawned: 1
    spawned: 1
    spawned: 1
    spawned: no
    ");
}

#[test]
fn a_spawn_looks_in_the_path_that_it_names() {
    let sandbox = Sandbox::new();
    let bin = sandbox.path("bin");
    fs::create_dir(&bin).unwrap();
    fs::copy("/bin/echo", bin.join("an-echo")).unwrap();
    let script = format!(
        "ask $'mcmd=spawn\\nnprocs=1\\nexecname=an-echo\\ntotspawns=1\\nspawnssofar=1\\nargcnt=1\\narg1=found\\n\
         info_num=1\\ninfo_key_0=path\\ninfo_val_0=/nowhere:{}\\nendcmd'",
        bin.display()
    );
    let script = one(&sandbox, "script", &script);
    let run = sandbox.run_rally(&["run", "-n", "1", "bash", &script]);
    assert_eq!(run.expect_code(0).sorted(), "cmd=spawn_result rc=0\nfound");
}

#[test]
fn names_of_one_interface_are_found_by_the_other() {
    let sandbox = Sandbox::new();
    let script = one(
        &sandbox,
        "script",
        r#"
        quietly 'cmd=publish_name service=of-pmi port=a port of PMI'
        until ask 'cmd=lookup_name service=of-pmix' | grep ' rc=0 '; do :; done
        "#,
    );
    let program = text(&crate::pmix::compiled_from(&source("names")));
    for place in PLACES {
        let mut command = job(&sandbox, place, &["-n", "1", "bash", &script, ":"]);
        if *place == OVER_NODES {
            command.args(["--host", &node_name(&sandbox, 2)]);
        }
        command.args(["-n", "1", &program]);
        let run = sandbox.run(&mut command).expect_code(0);
        assert_eq!(
            run.sorted(),
            "PMIx found: a port of PMI\ncmd=lookup_result rc=0 port=a port of PMIx"
        );
    }
}

#[test]
fn ranks_have_barriers_of_their_own() {
    let sandbox = Sandbox::new();
    let script = one(
        &sandbox,
        "script",
        r#"
        case $PMI_RANK in
        0 | 2)
            quietly "cmd=put key=of-$PMI_RANK value=here"
            ask 'cmd=barrier_in group=0,2:7'
            ask "cmd=get key=of-$((2 - PMI_RANK))"
            ;;
        esac
        quietly 'cmd=barrier_in'
        "#,
    );
    for place in PLACES {
        let mut command = job(&sandbox, place, &["-n", "4", "bash", &script]);
        let run = sandbox.run(&mut command).expect_code(0);
        assert_eq!(
            run.sorted(),
            "cmd=barrier_out rc=0 tag=7\ncmd=barrier_out rc=0 tag=7\ncmd=get_result rc=0 value=here\ncmd=get_result rc=0 value=here"
        );
    }
}

/// MPICH derives the names of its shared memory from the job's name, and this memory remains if the program is killed.
#[test]
fn the_name_of_a_job_does_not_come_again_with_its_pid() {
    let names = [(), ()].map(|()| {
        let sandbox = Sandbox::new();
        let run = sandbox.run_rally(&["run", "-n", "1", "sh", "-c", "echo $PMIX_NAMESPACE"]);
        let name = run.expect_code(0).out();
        name.rsplit_once('-').unwrap().0.to_owned()
    });
    assert_ne!(names[0], names[1]);
}

#[test]
fn where_no_program_listens_nobody_is_served() {
    let sandbox = Sandbox::new();
    let script = "ln -s $RALLY mpiexec && ./mpiexec -pmi_args 1 default_interface default_key 1";
    sandbox
        .run(&mut sandbox.shell(script))
        .expect_code(125)
        .expect_err(&[
            "a program that called `mpiexec` is not served: cannot connect to 127.0.0.1:1",
        ]);
}
