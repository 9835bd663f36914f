//! The state machine in virtual time, with what Slurm 22.05 prints.

use base::Signal;

use super::{text::Said, *};

const PATIENCE: Duration = Duration::from_secs(30);
const OK: ExitStatus = ExitStatus::SUCCESS;
const FAILED: ExitStatus = ExitStatus::Exited(1);
const TERMINATED: ExitStatus = ExitStatus::Signaled {
    signal: Signal::TERM,
    core_dumped: false,
};

const RUNNING: &str = "\
JobId=12 JobName=mine
   UserId=root(0) GroupId=root(0) MCS_label=N/A
   Priority=4294901759 Nice=0 Account=(null) QOS=(null)
   JobState=RUNNING Reason=None Dependency=(null)
   RunTime=00:00:00 TimeLimit=00:05:00 TimeMin=N/A
   Partition=all AllocNode:Sid=head:0
   ReqNodeList=(null) ExcNodeList=(null)
   NodeList=n[1-2]
   BatchHost=n1
   NumNodes=2 NumCPUs=4 NumTasks=2 CPUs/Task=1 ReqB:S:C:T=0:0:*:*
   WorkDir=/home/u/NodeList=n9
";

/// An allocation and the time. Outputs are shown as text, one in a line.
struct World {
    held: Held,
    now: base::Time,
}

impl World {
    fn new(timeout: Option<u64>) -> Self {
        let wanted = Wanted {
            name: job_name("rally-n1-7"),
            cpus: Some(2),
            ..Wanted::default()
        };
        let now = base::Time::ZERO;
        let timeout = timeout.map(Duration::from_secs);
        Self {
            held: Held::new(now, &wanted, timeout, PATIENCE),
            now,
        }
    }

    /// Creates an allocation that is held.
    fn held() -> Self {
        let mut world = Self::new(None);
        world.prints("salloc: Granted job allocation 12\n");
        world.handle(Input::Ended(OK));
        world.prints(RUNNING);
        world.handle(Input::Ended(OK));
        world
    }

    fn outputs(&mut self) -> String {
        let mut shown = Vec::new();
        while let Some(output) = self.held.poll() {
            shown.push(match output {
                Output::Run(words) => words.join(" "),
                Output::Granted(what) => {
                    let seconds = what.time.map(|time| time.as_secs());
                    format!("granted {} on {} for {seconds:?}", what.cpus, what.hosts)
                }
                Output::Refused(why) => format!("refused {:?}: {why:?}", why.status()),
                other => format!("{other:?}"),
            });
        }
        shown.join("; ")
    }

    fn handle(&mut self, input: Input) -> String {
        self.held.handle(self.now, input);
        self.outputs()
    }

    fn prints(&mut self, text: &str) -> String {
        self.handle(Input::Printed(Bytes::copy_from_slice(text.as_bytes())))
    }

    /// Lets the time pass that the allocation waits for.
    fn waits(&mut self) -> String {
        self.now = self.held.deadline().expect("nothing is waited for");
        self.handle(Input::Tick)
    }
}

#[test]
fn an_allocation_is_granted_extended_and_given_back() {
    let mut world = World::new(None);
    assert_eq!(
        world.outputs(),
        "salloc --no-shell --job-name=rally-n1-7 --comment=rally:0 --ntasks=2"
    );
    assert_eq!(world.held.deadline(), None);
    world.prints("salloc: Pending job alloca");
    assert_eq!(world.held.job(), None);
    world.prints("tion 12\nsalloc: job 12 queued and waiting for resources\n");
    assert_eq!(world.held.job(), Some(12));
    world.prints("salloc: Granted job allocation 12\n");
    assert_eq!(
        world.handle(Input::Ended(OK)),
        "scontrol --details show job 12"
    );
    assert!(!world.held.is_held());
    world.prints(RUNNING);
    assert_eq!(
        world.handle(Input::Ended(OK)),
        "granted 4 on n[1-2] for Some(300)"
    );
    assert!(world.held.is_held());
    assert_eq!(world.held.deadline(), None);
    let more = Input::Extend(Duration::from_secs(61));
    assert_eq!(world.handle(more), "scontrol update JobId=12 TimeLimit=+2");
    assert_eq!(
        world.handle(Input::Ended(OK)),
        "scontrol --details show job 12"
    );
    world.prints(&RUNNING.replace("00:05:00", "1-00:07:00"));
    assert_eq!(
        world.handle(Input::Ended(OK)),
        "granted 4 on n[1-2] for Some(86820)"
    );
    assert_eq!(world.handle(Input::Cancel), "scancel 12");
    assert!(world.held.is_ending());
    assert_eq!(world.handle(Input::Cancel), "");
    assert_eq!(world.handle(Input::Ended(OK)), "Over");
}

#[test]
fn what_is_refused_before_it_is_held() {
    let mut world = World::new(None);
    world.outputs();
    world.prints("salloc: error: Job submit/allocate failed: Invalid node name specified\n");
    insta::assert_snapshot!(world.handle(Input::Ended(FAILED)), @r#"refused NOT_FOUND: BySlurm(Failed { tool: Salloc, words: "Job submit/allocate failed: Invalid node name specified" }); Over"#);

    let mut world = World::new(None);
    world.outputs();
    let why = "it is not in PATH".to_owned();
    insta::assert_snapshot!(world.handle(Input::NotRun(why)), @r#"refused NOT_SUPPORTED: BySlurm(NotRun { tool: Salloc, why: "it is not in PATH" }); Over"#);

    // Somebody has canceled it with `scancel`.
    let mut world = World::new(None);
    world.outputs();
    world.prints("salloc: Pending job allocation 3\nsalloc: Job has been cancelled\n");
    world.prints(
        "salloc: error: Job submit/allocate failed: Job/step already completing or completed\n",
    );
    let told = world.handle(Input::Ended(FAILED));
    assert!(told.starts_with("refused JOB_CANCELED"), "{told}");

    let mut world = World::new(None);
    world.outputs();
    insta::assert_snapshot!(world.handle(Input::Ended(OK)), @"refused ERROR: BySlurm(Unclear { tool: Salloc }); Over");
}

#[test]
fn a_request_times_out_and_is_withdrawn() {
    let mut world = World::new(Some(5));
    world.outputs();
    world.prints("salloc: Pending job allocation 12\n");
    assert_eq!(world.waits(), "refused TIMEOUT: TimedOut; End(Ask)");
    assert_eq!(world.now, base::Time::ZERO + Duration::from_secs(5));
    // It may have been granted in the last moment.
    assert_eq!(world.handle(Input::Ended(TERMINATED)), "scancel 12");
    assert_eq!(world.handle(Input::Ended(OK)), "Over");

    // `salloc` hangs, and has said nothing.
    let mut world = World::new(None);
    world.outputs();
    assert_eq!(world.handle(Input::Cancel), "End(Ask)");
    assert_eq!(world.waits(), "End(Kill); Over");
}

#[test]
fn what_is_not_described_is_given_back() {
    let steps = |after: Input| {
        let mut world = World::new(None);
        world.outputs();
        world.prints("salloc: Granted job allocation 12\n");
        world.handle(Input::Ended(OK));
        let told = world.handle(after);
        (world, told)
    };
    let (mut world, told) = steps(Input::Ended(FAILED));
    insta::assert_snapshot!(told, @r#"refused ERROR: BySlurm(Failed { tool: Scontrol, words: "" }); scancel 12"#);
    assert_eq!(world.handle(Input::Ended(OK)), "Over");
    let (_, told) = steps(Input::Ended(OK));
    insta::assert_snapshot!(told, @"refused ERROR: BySlurm(Unclear { tool: Scontrol }); scancel 12");
    let (mut world, _) = steps(Input::Tick);
    insta::assert_snapshot!(world.waits(), @"End(Kill); refused NOT_AVAILABLE: BySlurm(Silent { tool: Scontrol, patience: 30s }); scancel 12");
    let (_, told) = steps(Input::Cancel);
    assert_eq!(told, "End(Kill); scancel 12");
}

#[test]
fn a_held_allocation_stays_if_a_change_fails() {
    let mut world = World::held();
    world.outputs();
    world.handle(Input::Extend(Duration::from_secs(60)));
    world.prints("Access/permission denied for job 12\n");
    insta::assert_snapshot!(world.handle(Input::Ended(FAILED)), @r#"refused NO_PERMISSIONS: BySlurm(Failed { tool: Scontrol, words: "Access/permission denied for job 12" })"#);
    assert!(world.held.is_held());
    world.handle(Input::Describe);
    insta::assert_snapshot!(world.waits(), @"End(Kill); refused NOT_AVAILABLE: BySlurm(Silent { tool: Scontrol, patience: 30s })");
    assert!(world.held.is_held());

    // Its time was over, or somebody has canceled it.
    world.handle(Input::Describe);
    world.prints(&RUNNING.replace("RUNNING", "TIMEOUT"));
    assert_eq!(
        world.handle(Input::Ended(OK)),
        "refused NOT_FOUND: Gone; Over"
    );
    let mut forgotten = World::held();
    forgotten.outputs();
    forgotten.handle(Input::Describe);
    forgotten.prints("slurm_load_jobs error: Invalid job id specified\n");
    assert_eq!(
        forgotten.handle(Input::Ended(FAILED)),
        "refused NOT_FOUND: Gone; Over"
    );
}

#[test]
fn what_cannot_be_given_back_is_told() {
    let ends = |printed: &str, input: Input| {
        let mut world = World::held();
        world.handle(Input::Cancel);
        world.prints(printed);
        world.handle(input)
    };
    let denied = "scancel: error: Kill job error on job id 12: Access/permission denied\n";
    insta::assert_snapshot!(ends(denied, Input::Ended(FAILED)), @r#"Left(Failed { tool: Scancel, words: "Kill job error on job id 12: Access/permission denied" }); Over"#);
    let over = "scancel: error: Kill job error on job id 12: Invalid job id specified\n";
    assert_eq!(ends(over, Input::Ended(FAILED)), "Over");
    let mut world = World::held();
    world.handle(Input::Cancel);
    let began = world.now;
    insta::assert_snapshot!(world.waits(), @"End(Kill); Left(Silent { tool: Scancel, patience: 30s }); Over");
    assert_eq!(world.now, began + CANCEL_MAX);
}

#[test]
fn the_words_of_a_request() {
    let hosts = ["n1", "n2"].into_iter().collect();
    let cases = [
        (Wanted::default(), "--job-name= --comment=rally:0"),
        (
            Wanted {
                owner: 17,
                name: job_name("rally-ü JobState=RUNNING"),
                request: Some("a JobState=RUNNING -x\n".to_owned()),
                nodes: Some(2),
                cpus: Some(8),
                hosts: Some(hosts),
                time: Some(Duration::from_secs(90)),
                partition: Some("--uid=0".to_owned()),
            },
            "--job-name=rally-__JobState_RUNNING --comment=rally:17:a_JobState_RUNNING_-x_ --nodes=2 --ntasks=8 --nodelist=n[1-2] --time=2 --partition=--uid=0",
        ),
    ];
    for (wanted, expected) in cases {
        let words = text::salloc(&wanted).join(" ");
        assert_eq!(words, format!("salloc --no-shell {expected}"));
    }
}

#[test]
fn a_comment_says_who_has_requested_an_allocation() {
    let origin = |job, request: Option<&str>| {
        let request = request.map(str::to_owned);
        Some(Origin { job, request })
    };
    for (comment, expected) in [
        ("rally:17", origin(17, None)),
        ("rally:17:more_nodes", origin(17, Some("more_nodes"))),
        // Submitted jobs, and those of others.
        ("rally", None),
        ("rally:", None),
        ("rally:mine", None),
        ("more", None),
        ("(null)", None),
    ] {
        assert_eq!(Origin::of(comment), expected, "{comment}");
    }
}

#[test]
fn descriptions_are_read() {
    let with = |from: &str, to: &str| text::describe(RUNNING.replace(from, to).as_bytes());
    let runs = |cpus, time: Option<u64>| {
        Said::Runs(Described {
            hosts: ["n1", "n2"].into_iter().collect(),
            slots: [("n1", 2), ("n2", 2)]
                .map(|(host, slots)| (host.to_owned(), slots))
                .into(),
            cpus,
            time: time.map(Duration::from_secs),
        })
    };
    assert_eq!(with("", ""), runs(4, Some(300)));
    assert_eq!(
        with("TimeLimit=00:05:00", "TimeLimit=UNLIMITED"),
        runs(4, None)
    );
    assert_eq!(with("00:05:00", "2-01:00:01"), runs(4, Some(176_401)));
    assert_eq!(with("RUNNING", "CONFIGURING"), runs(4, Some(300)));
    assert_eq!(with("RUNNING", "CANCELLED"), Said::Over);
    assert_eq!(with("RUNNING", "COMPLETING"), Said::Over);
    for (from, to) in [
        ("JobState=RUNNING", ""),
        ("NumCPUs=4", "NumCPUs=4K"),
        ("NodeList=n[1-2]", "NodeList=n[1-"),
        ("00:05:00", "Partition_Limit"),
        ("00:05:00", "05:00"),
        ("00:05:00", "99999999999999999-00:00:00"),
    ] {
        assert_eq!(with(from, to), Said::Unclear, "{to}");
    }
    assert_eq!(text::describe(&[0xff; 9]), Said::Unclear);
}

#[test]
fn the_cpus_of_each_node_are_read() {
    let slots = |cpus: &str, details: &str| {
        let text = RUNNING.replace("NumCPUs=4", cpus);
        match text::describe(format!("{text}{details}").as_bytes()) {
            Said::Runs(described) => described.slots,
            other => panic!("{other:?}"),
        }
    };
    let expected = |first: u32, second: u32| {
        [("n1", first), ("n2", second)].map(|(host, slots)| (host.to_owned(), slots))
    };
    let details = "     JOB_GRES=(null)\n       Nodes=n1 CPU_IDs=0-2,8 Mem=0 GRES=\n       Nodes=n2 CPU_IDs=5 Mem=0 GRES=\n";
    assert_eq!(slots("NumCPUs=5", details), expected(4, 1));
    let equal = "  Nodes=n[1-2] CPU_IDs=0-1 Mem=0 GRES=\n";
    assert_eq!(slots("NumCPUs=4", equal), expected(2, 2));
    // Without them, or if they do not name all nodes, the CPUs are shared out.
    for unclear in [
        "",
        "Nodes=n1 CPU_IDs=0-2",
        "Nodes=n[1 CPU_IDs=0",
        "Nodes=n[1-2] CPU_IDs=x",
    ] {
        assert_eq!(slots("NumCPUs=5", unclear), expected(3, 2), "{unclear}");
    }
    assert_eq!(slots("NumCPUs=1", ""), expected(1, 1));
}

#[test]
fn refusals_have_statuses() {
    let salloc = Tool::Salloc;
    for (tool, printed, status) in [
        (
            salloc,
            "salloc: error: invalid partition specified: nope\nsalloc: error: Job submit/allocate failed: Invalid partition name specified\n",
            Status::NOT_FOUND,
        ),
        (
            salloc,
            "salloc: error: Job submit/allocate failed: Invalid node name specified\n",
            Status::NOT_FOUND,
        ),
        (
            salloc,
            "salloc: error: Job submit/allocate failed: Requested node configuration is not available\n",
            Status::OUT_OF_RESOURCE,
        ),
        (
            salloc,
            "salloc: error: Job submit/allocate failed: Invalid account or account/partition combination specified\n",
            Status::NO_PERMISSIONS,
        ),
        (
            salloc,
            "salloc: error: Job submit/allocate failed: Unable to contact slurm controller (connect failure)\n",
            Status::NOT_AVAILABLE,
        ),
        (
            Tool::Scontrol,
            "Access/permission denied for job 12\n",
            Status::NO_PERMISSIONS,
        ),
        (
            Tool::Scontrol,
            "Invalid user id for job 1\n",
            Status::NO_PERMISSIONS,
        ),
        (
            Tool::Scontrol,
            "scontrol: error: Could not load state information for job 99: Invalid job id specified\n",
            Status::NOT_FOUND,
        ),
        (
            Tool::Scancel,
            "scancel: error: what is that?\n",
            Status::ERROR,
        ),
    ] {
        let words = text::words(tool, printed.as_bytes());
        assert!(!words.contains("error:"), "{words}");
        assert_eq!(text::status(tool, &words), status, "{words}");
    }
    let long = "é".repeat(WORDS_MAX);
    assert_eq!(text::words(salloc, long.as_bytes()).len(), WORDS_MAX);
}

/// No order of events stops an allocation that nobody needs from ending, and a wait always has a deadline or a command.
#[test]
fn an_allocation_ends_from_every_state() {
    let inputs = [
        Input::Ended(OK),
        Input::Ended(FAILED),
        Input::NotRun(String::new()),
        Input::Extend(PATIENCE),
        Input::Describe,
        Input::Cancel,
        Input::Printed(Bytes::from_static(b"salloc: Pending job allocation 7\n")),
        Input::Printed(Bytes::from_static(RUNNING.as_bytes())),
    ];
    for number in 0..8_usize.pow(5) {
        let mut world = World::new(Some(1));
        let mut said = world.outputs();
        let mut rest = number;
        for _ in 0..5 {
            said.push_str(&world.handle(inputs[rest % 8].clone()));
            rest /= 8;
        }
        said.push_str(&world.handle(Input::Cancel));
        for _ in 0..3 {
            if world.held.deadline().is_some() {
                said.push_str(&world.waits());
            }
        }
        assert_eq!(world.held.deadline(), None, "{number}: {said}");
        assert!(said.ends_with("Over"), "{number}: {said}");
    }
}
