mod arrays;
mod inputs;
mod launch;
mod multi_prog;
mod nodes;
mod peers;
mod sentences;
mod slurm;
mod sources;
mod surroundings;
mod variables;

use std::{fs, path::PathBuf, time::Duration};

use base::Rank;
use dvm::{
    alloc::Slots,
    place::MapTo,
    spec::{
        Destination, HoldAt, HoldPlan, OnDebuggerLoss, OnFailure, StdinTarget, Tracers, WindowSize,
    },
};

use super::{environment::Variables, *};
use crate::choices::{OnHang, OnLoss};

fn words(line: &str) -> Vec<OsString> {
    line.split_whitespace().map(OsString::from).collect()
}

/// A world with its own directory, and without settings.
struct Place {
    directory: tempfile::TempDir,
    world: World,
}

impl Place {
    fn new() -> Self {
        let directory = tempfile::tempdir().unwrap();
        let variables: Variables = [("PATH", "/usr/bin"), ("A", "1"), ("PMI_RANK", "3")]
            .map(|(name, value)| (name.into(), value.into()))
            .into();
        let world = World {
            umask: 0o022,
            argv: Vec::new(),
            variables,
            directory: Ok(directory.path().to_owned()),
            host: "node7.cluster".to_owned(),
            executable: PathBuf::from("/opt/bin/rally"),
            window: WindowSize {
                rows: 30,
                columns: 100,
            },
            screen: None,
            prompting: dvm::bootstrap::Prompting::Never,
            input: dvm::spec::FrontInput::Readable,
            site_config: directory.path().join("site.toml"),
            gpus: || os::Gpus { nvidia: 2, amd: 0 },
            is_shared: |path| path.starts_with("/opt") || path.starts_with("/shared"),
            addresses: || {
                let of = |interface: &str, address: &str| os::InterfaceAddress {
                    interface: interface.to_owned(),
                    address: address.parse().unwrap(),
                };
                Ok(vec![
                    of("lo", "127.0.0.1"),
                    of("eth0", "10.1.2.3"),
                    of("eth0", "fd00::3"),
                    of("ib0", "10.2.2.3"),
                ])
            },
            unused_port: || Ok(20_001),
        };
        Self { directory, world }
    }

    fn file(self, name: &str, text: &str) -> Self {
        let path = self.directory.path().join(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
        self
    }

    /// Sets the directory of the user's settings to one below this place.
    fn home(self, name: &str) -> Self {
        let home = self.directory.path().join(name).display().to_string();
        self.variable("XDG_CONFIG_HOME", &home)
    }

    fn variable(mut self, name: &str, value: &str) -> Self {
        self.world.variables.insert(name.into(), value.into());
        self
    }

    fn request(&self, line: &str) -> Result<Request, Error> {
        resolve(&parse(&words(line))?, &self.world)
    }

    fn run(&self, line: &str) -> RunRequest {
        match self.request(line) {
            Ok(Request::Run(run)) => *run,
            other => panic!("{line}: {other:?}"),
        }
    }

    /// Returns the output for the user. This place's directory is replaced by `DIR`.
    fn complaint(&self, line: &str) -> String {
        match self.request(line) {
            Ok(request) => format!("no error: {request:?}"),
            Err(error) => {
                let text = message::text(&error.message(), MessageFormat::Text);
                let text = text.replace(&self.directory.path().display().to_string(), "DIR");
                format!(
                    "$ {line}\n{text}[{} {}]\n",
                    error.exit().code(),
                    error.message().id
                )
            }
        }
    }

    fn complaints(&self, lines: &[&str]) -> String {
        lines
            .iter()
            .map(|line| self.complaint(line))
            .collect::<Vec<_>>()
            .join("\n")
    }
}

#[test]
fn a_plain_job() {
    let place = Place::new();
    let run = place.run("rally run -n 4 ./a -n 5");
    let app = &run.spec.apps[0];
    assert_eq!(app.program, "./a");
    assert_eq!(app.args, ["-n", "5"]);
    assert_eq!(app.directory, place.directory.path());
    assert_eq!(app.search, "/usr/bin");
    assert_eq!(
        app.env,
        [("A", "1"), ("PATH", "/usr/bin")].into_iter().collect()
    );
    assert_eq!(run.spec.placement.apps[0].count, Some(4));
    assert_eq!(run.spec.stdin, StdinTarget::Rank(Rank(0)));
    assert_eq!(run.spec.stdio.stdout, Destination::Forward);
    assert_eq!(run.spec.end.grace, Duration::from_secs(5));
    assert_eq!(run.spec.end.on_failure, OnFailure::EndJob);
    assert_eq!(run.spec.hold, HoldPlan::NOWHERE);
    assert_eq!(run.allocation.nodes[0].name, "node7.cluster");
    assert_eq!(run.allocation.nodes[0].slots, Slots::Implicit);
    assert_eq!(run.show, Show::Run);
    assert_eq!(run.front.input, InputSource::Inherit);
    assert!(run.notices.is_empty());
}

#[test]
fn apps_have_their_own() {
    let place = Place::new().file("hosts", "localhost slots=4\n");
    let run = place.run(
        "rally run -l --hostfile hosts -n 1 --wdir /x --set-env B=2 a : --path /y --umask 077 --wdir sub b : c",
    );
    let [a, b, c] = &run.spec.apps[..] else {
        panic!("{run:?}")
    };
    assert_eq!(
        (a.program.as_os_str(), a.directory.as_os_str()),
        (OsStr::new("a"), OsStr::new("/x"))
    );
    assert_eq!(a.env.get("B"), Some(OsStr::new("2")));
    assert_eq!(b.env.get("B"), None);
    assert_eq!(b.search, "/y:/usr/bin");
    assert_eq!((a.umask, b.umask, c.umask), (0o22, 0o77, 0o22));
    assert_eq!(b.directory, place.directory.path().join("sub"));
    assert_eq!(c.directory, place.directory.path());
    assert_eq!(run.allocation.nodes[0].slots, Slots::Explicit(4));
    assert_eq!(run.front.label, Label::Rank);
}

#[test]
fn every_option_arrives() {
    let place = Place::new().file("in", "");
    let run = place.run(
        "mpirun --stop-on-exec --timeout 1.5 --grace 250ms --kill-on-bad-exit=no --on-hangup continue --on-hang=report:90s \
         --on-debugger-loss kill --on-node-loss abort --on-output-closed=continue --stdin 2 -i in -o o.%r --merge-stderr -l --timestamps --json -v \
         --bootstrap ssh --ssh rsh --if-include ib0,10.1.2.3 --port-range 20000-20100 a",
    );
    assert_eq!(run.spec.hold, HoldPlan::all(HoldAt::Exec));
    assert_eq!(run.spec.end.time_limit, Some(Duration::from_millis(1500)));
    assert_eq!(run.spec.end.grace, Duration::from_millis(250));
    assert_eq!(run.spec.end.on_failure, OnFailure::Continue);
    assert_eq!(run.spec.end.on_node_loss, OnFailure::EndJob);
    assert_eq!(run.spec.end.on_debugger_loss, OnDebuggerLoss::Kill);
    assert_eq!(run.spec.apps[0].tracers, Tracers::SameUser);
    assert_eq!(run.spec.stdin, StdinTarget::Rank(Rank(2)));
    assert_eq!(run.spec.stdio.stderr, Destination::WithStdout);
    assert!(matches!(&run.spec.stdio.stdout, Destination::File(pattern) if pattern.0 == "o.%r"));
    assert_eq!(
        run.front,
        FrontOptions {
            input: InputSource::File(place.directory.path().join("in")),
            label: Label::Rank,
            timestamps: Timestamps::On,
            format: Format::JsonLines,
            on_hang: OnHang::Report(Duration::from_secs(90)),
            watch: "--bootstrap ssh --ssh 'rsh' --if-include ib0 --if-include 10.1.2.3 --port-range 20000-20100"
                .split(' ')
                .map(str::to_owned)
                .collect(),
            on_hangup: OnLoss::Continue,
            on_output_closed: OnLoss::Continue,
            verbosity: Verbosity::Verbose,
            message_format: MessageFormat::Json,
            report_pid: None,
            record: None,
            exit_codes: ExitCodes::Kept,
            exit_error: None,
            tools: crate::tool::Tools::default(),
        }
    );
}

#[test]
fn placements_are_put_together() {
    let place = Place::new()
        .file("hosts", "localhost:2\n")
        .file("ranks", "rank 0=localhost slot=0\n");
    let map = |line: &str| {
        place
            .run(line)
            .spec
            .placement
            .map_by
            .map(|map| map.to_string())
            .unwrap_or_default()
    };
    let cases = [
        ("rally run a", ""),
        ("rally run --map-by core a", "core"),
        ("rally run --map-by core --map-by :PE=2 a", "core:PE=2"),
        ("srun -c 2 a", ":PE=2"),
        ("mpirun -N 2 a", "ppr:2:node"),
        ("mpirun -N 1 --map-by node a", "ppr:1:node"),
        (
            "mpirun -N 1 --map-by slot:OVERSUBSCRIBE a",
            "ppr:1:node:OVERSUBSCRIBE",
        ),
        (
            "mpirun --rankfile ranks --map-by :OVERSUBSCRIBE a",
            "rankfile:OVERSUBSCRIBE",
        ),
        ("mpirun --map-by seq --hostfile hosts a", "seq"),
        ("mpirun --mca rmaps_base_mapping_policy node a", "node"),
    ];
    for (line, expected) in cases {
        assert_eq!(map(line), expected, "{line}");
    }
    let run = place.run("rally run --map-by node --host localhost:2 a : --map-by core b : -n 3 c");
    let placement = &run.spec.placement;
    assert_eq!(
        placement.map_by.as_ref().and_then(|map| map.to.clone()),
        Some(MapTo::Node)
    );
    assert!(placement.apps[0].map_by.is_none() && placement.apps[2].map_by.is_none());
    assert_eq!(
        placement.apps[1].map_by.as_ref().unwrap().to_string(),
        "core"
    );
    assert!(placement.apps[0].hosts.is_some() && placement.apps[1].hosts.is_none());
    assert_eq!(run.allocation.nodes[0].slots, Slots::Explicit(2));
}

#[test]
fn names_have_habits() {
    let place = Place::new();
    let of = |line: &str| {
        let run = place.run(line);
        (run.spec.placement.apps[0].count, run.spec.stdin)
    };
    assert_eq!(of("mpirun a"), (None, StdinTarget::Rank(Rank(0))));
    assert_eq!(of("mpiexec.rally a"), (None, StdinTarget::Rank(Rank(0))));
    assert_eq!(of("srun a"), (Some(1), StdinTarget::All));
    assert_eq!(of("srun -i none a"), (Some(1), StdinTarget::None));
    assert_eq!(
        of("rally run --personality srun a"),
        (Some(1), StdinTarget::All)
    );
    assert_eq!(
        of("rally run --pty=1 -n 2 a"),
        (Some(2), StdinTarget::Rank(Rank(1)))
    );
}

#[test]
fn ranks_get_terminals_where_our_stdout_is_one() {
    use dvm::spec::{LineTerminal, WithoutTerminal};
    let ours = WindowSize {
        rows: 50,
        columns: 170,
    };
    let mut shown = Place::new();
    shown.world.screen = Some(ours);
    let hidden = Place::new();
    let keyboard = hidden.world.window;
    let lines = |size, without| Some(LineTerminal { size, without });
    let cases = [
        (&shown, "", lines(ours, WithoutTerminal::Pipe)),
        (
            &shown,
            "--line-buffered=auto",
            lines(ours, WithoutTerminal::Pipe),
        ),
        (
            &shown,
            "--line-buffered",
            lines(ours, WithoutTerminal::Fail),
        ),
        (&shown, "--line-buffered=no", None),
        (&hidden, "", None),
        (
            &hidden,
            "--line-buffered=yes",
            lines(keyboard, WithoutTerminal::Fail),
        ),
    ];
    for (place, option, expected) in cases {
        let run = place.run(&format!("rally run {option} a"));
        assert_eq!(run.spec.stdio.lines, expected, "{option}");
    }
    let place = Place::new().variable("RALLY_LINE_BUFFERED", "yes");
    assert!(place.run("rally run a").spec.stdio.lines.is_some());
    assert!(place.run("srun -u a").spec.stdio.lines.is_some());
}

#[test]
fn a_program_without_launcher_calls_one() {
    let place = Place::new();
    for line in [
        "mpiexec -pmi_args 4711 default_interface default_key 99",
        "/usr/bin/mpirun -v -pmi_args 4711 default_interface default_key 99",
    ] {
        let Ok(Request::Singleton(request, 99)) = place.request(line) else {
            panic!("{line}")
        };
        assert_eq!(request.spec.apps[0].program, "/opt/bin/rally");
        assert_eq!(request.spec.apps[0].args, [SINGLETON_ARGUMENT, "4711"]);
        assert_eq!(request.spec.placement.apps[0].count, Some(1));
        assert_eq!(request.spec.stdin, StdinTarget::None);
        assert_eq!(request.front.verbosity, Verbosity::Quiet);
    }
    for line in [
        "mpiexec -pmi_args",
        "mpiexec -pmi_args port a b 1",
        "mpiexec -pmi_args 65536 a b 1",
        "mpiexec -pmi_args 1 a b c",
        "mpiexec -n 2 -pmi_args 1 a b 1",
        "rally -pmi_args 1 a b 1",
    ] {
        assert!(
            !matches!(place.request(line), Ok(Request::Singleton(..))),
            "{line}"
        );
    }
}

#[test]
fn other_commands() {
    let place = Place::new();
    let Ok(Request::Demo(demo)) = place.request("rally demo -n 3") else {
        panic!()
    };
    assert_eq!(demo.spec.apps[0].program, "/opt/bin/rally");
    assert_eq!(demo.spec.apps[0].args, [DEMO_ARGUMENT]);
    assert_eq!(demo.spec.placement.apps[0].count, Some(3));
    assert!(matches!(
        place.request("rally --version"),
        Ok(Request::Version)
    ));
    assert!(matches!(place.request("mpirun -V"), Ok(Request::Version)));
    assert!(matches!(
        place.request("rally __generate man"),
        Ok(Request::Generate(Generated::Man))
    ));
    let help = |line: &str| match place.request(line) {
        Ok(Request::Help(topic)) => topic,
        other => panic!("{line}: {other:?}"),
    };
    assert_eq!(help("rally -h"), HelpTopic::Short);
    assert_eq!(help("rally help"), HelpTopic::Full);
    assert_eq!(help("rally run -h"), HelpTopic::RunShort);
    assert_eq!(help("mpirun --help"), HelpTopic::RunFull);
    assert_eq!(help("rally help run"), HelpTopic::RunFull);
    assert_eq!(help("rally demo --help"), HelpTopic::Command("demo"));
    assert_eq!(
        help("rally help cli/no-program"),
        HelpTopic::Subject("cli/no-program".to_owned())
    );
    assert!(matches!(help("rally help mpmd"), HelpTopic::Topic(topic) if topic.name == "mpmd"));
    assert!(matches!(help("mpirun --help mpmd"), HelpTopic::Topic(topic) if topic.name == "mpmd"));
}

#[test]
fn mistakes_are_told_in_the_form_asked_for() {
    let cases = [
        ("rally run --json --zzz", MessageFormat::Json),
        (
            "rally run -n x --message-format=json a",
            MessageFormat::Json,
        ),
        (
            "rally run --message-format json -n x a",
            MessageFormat::Json,
        ),
        ("mpirun -json -n x a", MessageFormat::Json),
        ("rally run -n x a --json", MessageFormat::Text),
        ("rally config --json --zzz", MessageFormat::Json),
        ("rally run -n x a b --json", MessageFormat::Text),
        ("rally", MessageFormat::Text),
    ];
    for (line, expected) in cases {
        assert_eq!(message_format(&words(line)), expected, "{line}");
    }
}

#[test]
fn bytes_that_are_not_text() {
    use std::os::unix::ffi::OsStringExt;
    let raw = OsString::from_vec(b"\xff".to_vec());
    let line = |option: &str| -> Vec<OsString> {
        vec![
            "rally".into(),
            "run".into(),
            option.into(),
            raw.clone(),
            "a".into(),
        ]
    };
    let place = Place::new();
    for option in ["--wdir", "--set-env", "--path"] {
        assert!(
            resolve(&parse(&line(option)).unwrap(), &place.world).is_ok(),
            "{option}"
        );
    }
    for option in [
        "-n",
        "--host",
        "--map-by",
        "--personality",
        "--display",
        "--label",
    ] {
        assert!(
            parse(&line(option)).is_err() || option == "--label",
            "{option}"
        );
    }
    let run = vec!["rally".into(), "run".into(), raw.clone(), raw.clone()];
    let Ok(Request::Run(run)) = resolve(&parse(&run).unwrap(), &place.world) else {
        panic!()
    };
    assert_eq!(run.spec.apps[0].program, raw);
    assert_eq!(run.spec.apps[0].args, [raw]);
}

#[test]
fn every_message_has_an_explanation_of_its_own() {
    let mut ids: Vec<_> = crate::kinds::KINDS.iter().map(|kind| kind.id).collect();
    ids.sort_unstable();
    let count = ids.len();
    ids.dedup();
    assert_eq!(ids.len(), count);
}

#[test]
fn a_tool_beside_ranks() {
    let place = Place::new();
    let tools = |options: &[&str]| {
        let words = [&["rally", "run"], options, &["a"]].concat();
        let words: Vec<OsString> = words.into_iter().map(OsString::from).collect();
        match resolve(&parse(&words).unwrap(), &place.world) {
            Ok(Request::Run(run)) => run.front.tools.given,
            other => panic!("{other:?}"),
        }
    };
    assert_eq!(tools(&[]), None);
    let arguments = "--tool-arguments=-p 7 \"a b\"";
    let given = tools(&["--tool", "t", arguments, "--tool-per-rank"]).unwrap();
    assert_eq!(given.program, "t");
    assert_eq!(given.args, ["-p", "7", "a b"]);
    assert_eq!(given.one_per, dvm::proto::OnePer::Rank);
    // A path is meant from here, as in a shell.
    let here = place.directory.path().join("./t");
    assert_eq!(tools(&["--tool", "./t"]).unwrap().program, here);
    for line in [
        "rally start-tool 17 -- t -x",
        "/opt/bin/start_tool 17 -- t -x",
    ] {
        let words: Vec<OsString> = line.split(' ').map(OsString::from).collect();
        let Ok(Args::StartTool(args)) = parse(&words) else {
            panic!("{line}");
        };
        assert_eq!((args.job.pid, args.per_rank), (17, false));
        assert_eq!(args.command, ["t", "-x"]);
    }
}
