//! Programs that load MPI for themselves, or in a way that the recorder does not see, or that have none.

use std::{fs, path::Path};

use super::{OPTIONS, built, calls, ends_with, is_not_recorded, last_call, settles};
use crate::{
    hangs::{ranks, recorded::Library, started_with, stop, verdict},
    harness::{Sandbox, compiled, testdata},
};

/// A program without MPI that loads what it is told to.
fn loader() -> String {
    let source = testdata("recorder/loads.c");
    let program = compiled(Path::new("gcc"), &source, &["-g", "-ldl"]);
    program.to_str().unwrap().to_owned()
}

fn plugin(library: Library) -> String {
    built(library, "plugin.c", &["-shared", "-fPIC"])
}

/// Whether others see the symbols of the plug-in or not. It also calls a function that some libraries lack.
#[test]
fn plug_ins_are_recorded() {
    let program = loader();
    for (library, scope) in [
        (Library::Mpich5, "local"),
        (Library::Mpich5, "global"),
        (Library::OpenMpi5, "local"),
        (Library::OpenMpi5, "global"),
    ] {
        let sandbox = Sandbox::new();
        let words = [program.as_str(), &plugin(library), scope];
        let run = started_with(&sandbox, &OPTIONS, "2", &words);
        ends_with(
            &sandbox,
            &program,
            "proved: rank 0 waits in MPI_Recv (plugin.c:16) from rank 1, tag 4, WORLD; rank 1 has sent it 1 with tag 4, and 1 with tag 3; \
             rank 1 waits in MPI_Recv (plugin.c:16) from rank 0, tag 4, WORLD; rank 0 has sent it 1 with tag 4, and 1 with tag 3",
        );
        let shown = calls(&sandbox, &run, &[]);
        let first = "MPI_Isendrecv to rank 1, tag 3, from rank 1, tag 3, WORLD (plugin.c:10)\n";
        assert!(shown.contains(first), "{library:?}, {scope}: {shown}");
        assert_eq!(
            last_call(&shown, "rank 1"),
            "MPI_Recv from rank 0, tag 4, WORLD (plugin.c:16)"
        );
        stop(run);
    }
}

/// A plug-in that prefers its own symbols never reaches the recorder.
#[test]
fn a_plug_in_with_its_own_symbols_first_is_not_recorded() {
    let program = loader();
    let sandbox = Sandbox::new();
    let words = [program.as_str(), &plugin(Library::Mpich5), "deep"];
    let run = started_with(&sandbox, &OPTIONS, "2", &words);
    is_not_recorded(&sandbox, &run);
    let said = verdict(&sandbox, "2", "300", &ranks(&sandbox, &program));
    assert!(!said.contains("proved"), "{said}");
    stop(run);
}

/// The only static library that the tests have is Debian's MPICH.
#[test]
fn static_programs_are_not_recorded() {
    let mpi = compiled(
        Path::new("gcc"),
        &testdata("hangs/mismatched_tags.c"),
        &[
            "-g",
            "-I/usr/include/x86_64-linux-gnu/mpich",
            "/usr/lib/x86_64-linux-gnu/libmpich.a",
            "-lucp",
            "-lucs",
            "-lhwloc",
            "-lm",
            "-lpthread",
        ],
    );
    let sandbox = Sandbox::new();
    let none = sandbox.file(
        "none.c",
        "#include <stdio.h>\n#include <unistd.h>\nint main(void) { puts(\"ready\"); fflush(stdout); pause(); }\n",
    );
    let program = |name: &str, options: &[&str]| {
        let path = sandbox.path(name);
        let mut command = sandbox.command("gcc");
        command.arg("-o").arg(&path).arg(&none).args(options);
        sandbox.run(&mut command).expect_code(0);
        path
    };
    let programs = [
        mpi,
        program("static", &["-static"]),
        program("dynamic", &[]),
    ];
    for program in programs {
        let run = started_with(&sandbox, &OPTIONS, "2", &[program.to_str().unwrap()]);
        is_not_recorded(&sandbox, &run);
        let directory = super::directories(&sandbox, program.to_str().unwrap());
        let files = directory.iter().flat_map(|it| fs::read_dir(it).unwrap());
        let files: Vec<_> = files.map(|it| it.unwrap().file_name()).collect();
        assert_eq!(files, ["librally-calls.so"], "{}", program.display());
        stop(run);
        assert!(directory.iter().all(|it| !it.exists()));
        sandbox.expect_clean();
    }
}

/// The plug-in by which Open MPI 4 writes files calls MPI as a program does, and that is not what the program has called.
#[test]
fn calls_of_a_plug_in_of_the_library_do_not_count() {
    let sandbox = Sandbox::new();
    let program = built(Library::OpenMpi4, "file.c", &[]);
    let file = sandbox.path("file");
    let options = [OPTIONS[0], "--mca", "io", "romio321"];
    let run = started_with(&sandbox, &options, "2", &[&program, file.to_str().unwrap()]);
    let expected = "rank 0:\n  \
                    1  MPI_Init (file.c:8)\n  \
                    2  MPI_Comm_rank on WORLD (file.c:9)\n  \
                    3  MPI_File_open on WORLD (file.c:10)\n  \
                    4  MPI_File_write_at_all (file.c:11)\n  \
                    5  MPI_Barrier on WORLD, collective operation 1 (file.c:12)\n\
                    > 6  MPI_File_close (file.c:17)\n";
    settles(|| {
        let shown = calls(&sandbox, &run, &["--ranks", "0"]);
        (shown == expected).then_some(()).ok_or(shown)
    });
    stop(run);
}

/// The recorder has symbols of MPI, so such a program believes that it has MPI. No function is there to be called.
#[test]
fn a_program_that_can_do_without_mpi_ends() {
    let source = testdata("recorder/weak.c");
    let program = compiled(Path::new("gcc"), &source, &["-g"]);
    let sandbox = Sandbox::new();
    let run = started_with(&sandbox, &OPTIONS, "1", &[program.to_str().unwrap()]);
    run.end().expect_code(0);
    sandbox.expect_clean();
}
