use super::*;

fn variables(all: &[(&str, &str)]) -> Variables {
    let all = all.iter();
    all.map(|(name, value)| (name.into(), value.into()))
        .collect()
}

fn names(program: &str, all: &[(&str, &str)]) -> Vec<String> {
    let environment = environment(program, &variables(all)).unwrap();
    let texts = environment.iter().map(|text| text.to_str().unwrap());
    let names = texts.map(|text| text.split('=').next().unwrap_or_default().to_owned());
    names.collect()
}

#[test]
fn variables_that_misdirect_commands_are_left_out() {
    let all = [
        ("A", "1"),
        ("SBATCH_ARRAY_INX", "1-9"),
        ("SBATCH_CLUSTERS", "other"),
        ("SBATCH_DEBUG", "1"),
        ("SBATCH_ERROR", "x"),
        ("SBATCH_INPUT", "x"),
        ("SBATCH_PARTITION", "debug"),
        ("SBATCH_TIMELIMIT", "5"),
        ("SBATCH_WAIT", "1"),
        ("SCANCEL_INTERACTIVE", "1"),
        ("SCANCEL_NAME", "other"),
        ("SCONTROL_FUTURE", "1"),
        ("SLURM_CLUSTERS", "other"),
        ("SLURM_CONF", "/x"),
        ("SLURM_DEBUG_FLAGS", "all"),
        ("SLURM_EXIT_ERROR", "0"),
        ("SQUEUE_FORMAT", "%i"),
        ("SQUEUE_SORT", "i"),
        ("TMUX", "x"),
    ];
    // A job gets what is about itself, or about what the user reads there.
    let of_job = [
        "A",
        "SBATCH_PARTITION",
        "SBATCH_TIMELIMIT",
        "SCONTROL_FUTURE",
        "SLURM_CONF",
        "SQUEUE_FORMAT",
        "SQUEUE_SORT",
    ];
    assert_eq!(names("sbatch", &all), of_job);
    for program in ["scancel", "squeue", "scontrol"] {
        let expected = [
            "A",
            "SBATCH_PARTITION",
            "SBATCH_TIMELIMIT",
            "SLURM_CONF",
            "SLURM_BITSTR_LEN",
            "SLURM_TIME_FORMAT",
        ];
        assert_eq!(names(program, &all), expected, "{program}");
    }
}

#[test]
fn a_job_gets_nothing_of_an_enclosing_allocation() {
    let all = [
        ("SLURM_CLUSTERS", "other"),
        ("SLURM_CONF", "/x"),
        ("SLURM_JOB_ID", "7"),
        ("SLURM_NTASKS", "2"),
    ];
    assert_eq!(names("sbatch", &all), ["SLURM_CONF"]);
    assert_eq!(
        names("sbatch", &all[3..]),
        ["SLURM_NTASKS"],
        "outside of one"
    );
}

#[test]
fn a_command_that_prints_too_much_is_not_heard_to_its_end() {
    let heard = |out: &[u8], err: &[u8]| {
        let streams = [out, err].map(|text| {
            let (ours, theirs) = os::pipe().unwrap();
            os::set_nonblocking(ours.as_fd()).unwrap();
            os::write(theirs.as_fd(), text).unwrap();
            Stream::new(ours, 4)
        });
        let [out, err] = streams;
        let mut talk = Talk {
            input: None,
            left: &[],
            out,
            err,
        };
        let ended = talk.until_closed(Clock::now() + Duration::from_secs(60));
        (ended, talk.out.text, talk.err.text)
    };
    let all = (Talked::Closed, b"1234".to_vec(), b"5678".to_vec());
    assert_eq!(heard(b"1234", b"5678"), all);
    assert_eq!(heard(b"12345", b"").0, Talked::TooLong);
    assert_eq!(heard(b"", b"12345").0, Talked::TooLong);
}

#[test]
fn requests_have_the_defaults_of_the_user_and_nothing_of_the_job() {
    let all = [
        ("A", "1"),
        ("PATH", "/bin"),
        ("SALLOC_ACCOUNT", "physics"),
        ("SALLOC_BELL", "1"),
        ("SALLOC_CLUSTERS", "other"),
        ("SALLOC_DEBUG", "9"),
        ("SCANCEL_STATE", "PENDING"),
        ("SCONTROL_ALL", "1"),
        ("SLURM_CLUSTERS", "other"),
        ("SLURM_CONF", "/x"),
        ("SLURM_JOB_ID", "17"),
        ("SLURM_NNODES", "4"),
        ("TMUX", "x"),
    ];
    let entries = variables_of_requests(&variables(&all));
    let expected = [
        "A=1",
        "PATH=/bin",
        "SALLOC_ACCOUNT=physics",
        "SLURM_CONF=/x",
    ];
    assert_eq!(entries, expected.map(OsString::from));
}
