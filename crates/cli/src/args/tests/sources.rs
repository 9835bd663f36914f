//! Files and settings that add to a command line, and the precedence of sources.

use super::*;

#[test]
fn app_files_are_command_lines() {
    let place = Place::new().file(
        "apps",
        "# two programs\n-n 2 -env B 1 echo a\n-n 1 \\\n  -genv C 2 echo 'b c'\n",
    );
    for line in [
        "rally run -l -genv D 3 -configfile apps",
        "mpirun --app apps -x D=3 -l",
        "mpiexec -l -env D 3 -file apps",
    ] {
        let run = place.run(line);
        let apps: Vec<_> = run
            .spec
            .apps
            .iter()
            .map(|app| {
                let env = app
                    .env
                    .iter()
                    .filter(|(name, _)| !matches!(name.to_str(), Some("A" | "PATH")));
                let env: Vec<_> = env
                    .map(|(name, value)| format!("{}={}", name.display(), value.display()))
                    .collect();
                format!("{} {} {:?}", env.join(" "), app.program.display(), app.args)
            })
            .collect();
        assert_eq!(
            apps,
            [r#"B=1 C=2 D=3 echo ["a"]"#, r#"C=2 D=3 echo ["b c"]"#],
            "{line}"
        );
        assert_eq!(run.front.label, Label::Rank, "{line}");
        let counts: Vec<_> = run
            .spec
            .placement
            .apps
            .iter()
            .map(|app| app.count)
            .collect();
        assert_eq!(counts, [Some(2), Some(1)], "{line}");
    }
}

#[test]
fn the_stronger_source_decides() {
    let place = Place::new()
        .file(
            "site.toml",
            "grace = 1\nlabel = 'rank'\nquiet = true\ntimeout = '1m'\n",
        )
        .file(
            "home/rally/config.toml",
            "grace = 2\non_hangup = 'continue'\n",
        )
        .variable("RALLY_LABEL", "full")
        .variable("MPIEXEC_TIMEOUT", "7")
        .variable("RALLY_MAP_BY", "node");
    let place = place.home("home");
    let Ok(Request::Config(config)) = place.request("rally config") else {
        panic!()
    };
    let text = crate::config::text(&config.layers, &config.files);
    insta::assert_snapshot!(text.replace(&place.directory.path().display().to_string(), "DIR"), @"
    bind-to            (none)    built-in
    bootstrap-command  (none)    built-in
    grace              2         DIR/home/rally/config.toml:1
    hostfile           (none)    built-in
    kill-on-bad-exit   yes       built-in
    label              full      environment, RALLY_LABEL
    line-buffered      auto      built-in
    map-by             node      environment, RALLY_MAP_BY
    on-debugger-loss   release   built-in
    on-hang            nothing   built-in
    on-hangup          continue  DIR/home/rally/config.toml:2
    on-machine         (none)    built-in
    on-node-loss       (none)    built-in
    on-output-closed   end       built-in
    oversubscribe      auto      built-in
    quiet              yes       DIR/site.toml:3
    rank-by            (none)    built-in
    ssh                ssh       built-in
    timeout            7         environment, MPIEXEC_TIMEOUT
    timestamps         no        built-in
    tree-start         128       built-in

    DIR/site.toml: read
    DIR/home/rally/config.toml: read
    ");
    let json: serde_json::Value =
        serde_json::from_str(&crate::config::json(&config.layers, &config.files)).unwrap();
    assert_eq!(json["settings"]["grace"]["value"], "2");
    assert_eq!(
        json["settings"]["label"]["source"],
        "environment, RALLY_LABEL"
    );

    let run = place.run("rally run a");
    assert_eq!(run.spec.end.grace, Duration::from_secs(2));
    assert_eq!(run.spec.end.time_limit, Some(Duration::from_secs(7)));
    assert_eq!(run.front.label, Label::Full);
    assert_eq!(run.front.verbosity, Verbosity::Quiet);
    assert_eq!(run.front.on_hangup, OnLoss::Continue);
    assert_eq!(
        run.spec.placement.map_by.as_ref().unwrap().to_string(),
        "node"
    );
    let run = place.run("rally run --grace 3 -l --map-by core --timeout 0 -v a");
    assert_eq!(run.spec.end.grace, Duration::from_secs(3));
    assert_eq!(run.spec.end.time_limit, None);
    assert_eq!(run.front.label, Label::Rank);
    assert_eq!(run.front.verbosity, Verbosity::Verbose);
    assert_eq!(
        run.spec.placement.map_by.as_ref().unwrap().to_string(),
        "core"
    );
}

#[test]
fn what_is_shown_first() {
    let place = Place::new();
    let show = |line: &str| place.run(line).show;
    assert_eq!(show("rally run a"), Show::Run);
    assert_eq!(
        show("mpirun --report-bindings --display map a"),
        Show::RunAndReport([Report::Map, Report::Bindings].into())
    );
    assert_eq!(
        show("rally run --dry-run --display=allocation a"),
        Show::DryRun {
            detail: Detail::Map,
            reports: [Report::Allocation].into()
        }
    );
    assert_eq!(show("rally run --explain a"), Show::Explain([].into()));
    assert_eq!(
        show("rally run --dry-run --explain a"),
        Show::DryRun {
            detail: Detail::Reasons,
            reports: [].into()
        }
    );
    assert_eq!(
        show("mpirun --rtos donotlaunch a"),
        Show::DryRun {
            detail: Detail::Map,
            reports: [].into()
        }
    );
}
