//! Details of srun: names of jobs, numbers that are file names, the exit code of errors.

use super::*;

#[test]
fn the_name_of_a_job() {
    let of = |variables: &str, line: &str| {
        let run = place(variables).run(line);
        let of_app = |app: &dvm::spec::App| {
            let found = app.env.get("SLURM_JOB_NAME");
            found.map_or_else(|| "-".to_owned(), |name| name.display().to_string())
        };
        let mut shown: Vec<_> = run.spec.apps.iter().map(of_app).collect();
        if let Destination::File(pattern) = &run.spec.stdio.stdout {
            let path = PathBuf::from(&pattern.0);
            shown.push(path.file_name().unwrap().display().to_string());
        }
        shown.join(" ")
    };
    let inside = "SLURM_JOB_ID=7 SLURM_JOB_NAME=batch";
    let cases = [
        ("", "srun -o %x ./a : /bin/b", "a a a"),
        ("", "srun -J my -o %x a : b", "my my my"),
        ("", "srun --job-name=my%t -o %x a", "my%t my%%t"),
        ("SLURM_JOB_NAME=env", "srun -o %x a", "env env"),
        ("SLURM_JOB_NAME=env", "srun -J my -o %x a", "my my"),
        (inside, "srun -o %x a", "batch batch"),
        // The name of the step, and file names with the name of its allocation.
        (inside, "srun -J my -o %x a", "my batch"),
        ("SLURM_JOB_ID=7", "srun -o %x a", "a a"),
        ("", "srun -J my --export=ALL,SLURM_JOB_NAME=x a", "x"),
        ("", "srun --env-family none a", "-"),
        ("", "rally run --env-family slurm a", "-"),
        ("", "rally run --job-name my a", "my"),
    ];
    for (variables, line, expected) in cases {
        assert_eq!(of(variables, line), expected, "{variables}: {line}");
    }
}

#[test]
fn a_number_that_no_rank_has_is_a_file_of_srun() {
    let place = Place::new().file("5", "").file("2", "");
    let shown = |line: &str| {
        let run = place.run(line);
        let name = |destination: &Destination| match destination {
            Destination::File(pattern) => {
                let path = PathBuf::from(&pattern.0);
                path.file_name().unwrap().display().to_string()
            }
            other => format!("{other:?}"),
        };
        let input = match &run.front.input {
            InputSource::File(path) => path.file_name().unwrap().display().to_string(),
            other => format!("{other:?}"),
        };
        let stdio = &run.spec.stdio;
        let (stdout, stderr) = (name(&stdio.stdout), name(&stdio.stderr));
        format!("{stdout} {stderr} {:?} {input}", run.spec.stdin)
    };
    let one = "ForwardOnly(Rank(1))";
    let cases = [
        (
            "srun -n 2 -o 1 -i 1 a",
            format!("{one} {one} Rank(Rank(1)) Inherit"),
        ),
        ("srun -n 2 -o 01 a", format!("{one} {one} All Inherit")),
        ("srun -n 2 -o 2 -i 2 a", "2 WithStdout All 2".to_owned()),
        ("srun -n 2 -e 5 a", "Forward 5 All Inherit".to_owned()),
        ("srun -n 1 -e 1 a : b", format!("Forward {one} All Inherit")),
        (
            "srun -o 99999999999 a",
            "99999999999 WithStdout All Inherit".to_owned(),
        ),
    ];
    for (line, expected) in cases {
        assert_eq!(shown(line), expected, "{line}");
    }
    insta::assert_snapshot!(place.complaint("srun -n 2 -i 7 a"), @"
    $ srun -n 2 -i 7 a
    error: cannot read the input file `DIR/7`: No such file or directory (os error 2)
      effect: the job was not started
    [121 cli/unreadable-file]
    ");
}

#[test]
fn errors_of_srun_have_the_code_that_was_said() {
    let said = |variables: &str, line: &str| {
        let mut place = place(variables);
        place.world.argv = words(line);
        match place.request(line) {
            Ok(Request::Run(run)) => format!("{:?}", run.front.exit_error),
            Ok(_) => String::new(),
            Err(error) => format!("{error} [{}]", code_of(&error, &place.world)),
        }
    };
    let cases = [
        (
            "",
            "srun -n x a",
            "`-n` cannot be `x`: it is not a whole number [120]",
        ),
        (
            "SLURM_EXIT_ERROR=9",
            "srun -n x a",
            "`-n` cannot be `x`: it is not a whole number [9]",
        ),
        (
            "SLURM_EXIT_ERROR=9",
            "srun -F missing a",
            "cannot read the host file `missing`: No such file or directory (os error 2) [9]",
        ),
        (
            "SLURM_EXIT_ERROR=9",
            "mpirun -n x a",
            "`-n` cannot be `x`: it is not a whole number [120]",
        ),
        ("SLURM_EXIT_ERROR=9", "srun a", "Some(9)"),
        ("SLURM_EXIT_ERROR=9", "mpirun a", "None"),
        ("SLURM_EXIT_ERROR=0", "srun a", "None"),
        (
            "SLURM_EXIT_ERROR=x",
            "srun -n x a",
            "`-n` cannot be `x`: it is not a whole number [120]",
        ),
    ];
    for (variables, line, expected) in cases {
        assert_eq!(said(variables, line), expected, "{variables}: {line}");
    }
}
