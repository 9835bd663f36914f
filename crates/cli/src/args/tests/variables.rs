//! Families of variables, and variables for all apps.

use dvm::spec::{App, Family, GpuKind, NodeVariables};

use super::*;

fn families(line: &str) -> Vec<Family> {
    Place::new().run(line).spec.variables.into_iter().collect()
}

/// Returns the value of a variable in each app.
fn of_apps(place: &Place, line: &str, name: &str) -> Vec<Option<String>> {
    let run = place.run(line);
    let value = |app: &App| {
        let found = app.env.get(name);
        found.map(|value| value.to_str().unwrap().to_owned())
    };
    run.spec.apps.iter().map(value).collect()
}

fn given(place: &mut Place, name: &str, value: &str) {
    place.world.variables.insert(name.into(), value.into());
}

#[test]
fn the_name_or_an_option_chooses_the_words() {
    use Family::{OpenMpi, Slurm, Torch};
    let cases: [(&str, &[Family]); 8] = [
        ("rally run a", &[OpenMpi]),
        ("mpirun a", &[OpenMpi]),
        ("srun a", &[Slurm]),
        ("srun --torch a", &[Slurm, Torch]),
        ("rally run --torch a", &[OpenMpi, Torch]),
        ("rally run --env-family slurm,torch a", &[Slurm, Torch]),
        ("rally run --env-family slurm --torch a", &[Slurm, Torch]),
        ("srun --env-family none a", &[]),
    ];
    for (line, expected) in cases {
        assert_eq!(families(line), expected, "{line}");
    }
}

#[test]
fn what_describes_a_host_stays_there_unless_the_user_says_otherwise() {
    let mut place = Place::new();
    for (name, value) in [
        ("DISPLAY", ":0"),
        ("HOSTNAME", "n1"),
        ("SSH_AUTH_SOCK", "/tmp/a"),
        ("TMPDIR", "/scratch"),
        ("XDG_SESSION_ID", "3"),
    ] {
        given(&mut place, name, value);
    }
    let own = |place: &Place, line: &str| {
        let elsewhere = place.run(line).spec.apps[0].elsewhere.clone();
        let own = elsewhere.own.join(OsStr::new(" "));
        let own = own.into_string().unwrap();
        let more = match &elsewhere.more {
            NodeVariables::None => "nothing".to_owned(),
            NodeVariables::AllExcept(names) => format!("all except {names:?}"),
        };
        format!("{own}; {more}")
    };
    let cases = [
        "rally run a",
        "rally run --set-env DISPLAY --unset-env HOSTNAME a",
        "rally run --set-env SSH_AUTH_SOCK=/b --unset-env XDG_* a",
        "rally run --inherit-env none a",
        "rally run --inherit-env DISPLAY,TMPDIR a",
    ];
    let all: Vec<_> = cases
        .iter()
        .map(|line| format!("{line}: {}", own(&place, line)))
        .collect();
    insta::assert_snapshot!(all.join("\n"), @r#"
    rally run a: DISPLAY HOSTNAME SSH_AUTH_SOCK XDG_SESSION_ID; all except []
    rally run --set-env DISPLAY --unset-env HOSTNAME a: SSH_AUTH_SOCK XDG_SESSION_ID; all except ["HOSTNAME"]
    rally run --set-env SSH_AUTH_SOCK=/b --unset-env XDG_* a: DISPLAY HOSTNAME; all except ["XDG_*"]
    rally run --inherit-env none a: ; nothing
    rally run --inherit-env DISPLAY,TMPDIR a: ; nothing
    "#);
    for value in ["n1:0", "10.0.0.1:0.0"] {
        given(&mut place, "DISPLAY", value);
        assert!(!own(&place, "rally run a").contains("DISPLAY"), "{value}");
    }
    given(&mut place, "DISPLAY", "localhost:10.0");
    assert!(own(&place, "rally run a").contains("DISPLAY"));
}

#[test]
fn torch_gets_one_place_to_meet() {
    let mut place = Place::new();
    let some = |text: &str| Some(text.to_owned());
    let line = "rally run --torch -n 1 a : -n 1 b";
    assert_eq!(
        of_apps(&place, line, "MASTER_PORT"),
        [some("20001"), some("20001")]
    );
    assert_eq!(
        of_apps(&place, line, "MASTER_ADDR"),
        [some("127.0.0.1"), some("127.0.0.1")]
    );
    assert_eq!(of_apps(&place, "rally run a", "MASTER_PORT"), [None]);
    // A value set by the user takes precedence.
    let own = "rally run --torch --set-env MASTER_PORT=7 a";
    assert_eq!(of_apps(&place, own, "MASTER_PORT"), [some("7")]);
    given(&mut place, "MASTER_PORT", "9");
    assert_eq!(of_apps(&place, line, "MASTER_PORT"), [some("9"), some("9")]);
    assert_eq!(of_apps(&place, "rally run a", "MASTER_PORT"), [some("9")]);
    // A value from an enclosing job does not, unless an option passes it on.
    given(&mut place, "RALLY_OWNER", "1.2");
    assert_eq!(
        of_apps(&place, line, "MASTER_PORT"),
        [some("20001"), some("20001")]
    );
    let passed = "rally run --torch --set-env MASTER_PORT a";
    assert_eq!(of_apps(&place, passed, "MASTER_PORT"), [some("9")]);
}

#[test]
fn one_option_at_the_start_covers_all_apps() {
    let place = Place::new();
    let lines = [
        "rally run --global-env B=2 -n 1 a : -n 2 b",
        "rally run -genv B 2 -n 1 a : -n 2 b",
        "mpirun -x B=2 -n 1 a : -n 2 b",
        // `--global-env` may be in any segment.
        "rally run -n 1 a : --global-env B=2 -n 2 b",
    ];
    for line in lines {
        let both = vec![Some("2".to_owned()); 2];
        assert_eq!(of_apps(&place, line, "B"), both, "{line}");
    }
    // Options of one app come after it.
    let line = "rally run --global-env A=2 -n 1 a : --set-env A=3 -n 1 b : --unset-env A -n 1 c";
    let some = |text: &str| Some(text.to_owned());
    assert_eq!(of_apps(&place, line, "A"), [some("2"), some("3"), None]);
}

#[test]
fn gpus_that_we_find_hidden_are_not_given_out() {
    use GpuKind::{Amd, Nvidia};
    let nvidia = || os::Gpus { nvidia: 2, amd: 0 };
    let amd = || os::Gpus { nvidia: 0, amd: 2 };
    let none = || os::Gpus { nvidia: 0, amd: 0 };
    type Case = (
        fn() -> os::Gpus,
        &'static [(&'static str, &'static str)],
        GpuKind,
        &'static [&'static str],
    );
    let cases: [Case; 10] = [
        // Each node has its own.
        (nvidia, &[], Nvidia, &[]),
        (amd, &[], Nvidia, &[]),
        (nvidia, &[("CUDA_VISIBLE_DEVICES", "")], Nvidia, &[]),
        (nvidia, &[("CUDA_VISIBLE_DEVICES", "1")], Nvidia, &["1"]),
        (none, &[("CUDA_VISIBLE_DEVICES", "1,-1,2")], Nvidia, &["1"]),
        (amd, &[("ROCR_VISIBLE_DEVICES", "")], Amd, &[]),
        (none, &[("ROCR_VISIBLE_DEVICES", "1")], Amd, &["1"]),
        (
            amd,
            &[("CUDA_VISIBLE_DEVICES", "0"), ("ROCR_VISIBLE_DEVICES", "1")],
            Amd,
            &["1"],
        ),
        (
            nvidia,
            &[("CUDA_VISIBLE_DEVICES", "0"), ("ROCR_VISIBLE_DEVICES", "1")],
            Nvidia,
            &["0"],
        ),
        (
            none,
            &[("CUDA_VISIBLE_DEVICES", "0"), ("ROCR_VISIBLE_DEVICES", "1")],
            Nvidia,
            &["0"],
        ),
    ];
    for (gpus, variables, kind, available) in cases {
        let mut place = Place::new();
        place.world.gpus = gpus;
        for (name, value) in variables {
            given(&mut place, name, value);
        }
        let plan = place.run("rally run --gpus 1 a").spec.gpus.unwrap();
        let found = (plan.kind, plan.available);
        let expected = (kind, available.iter().map(ToString::to_string).collect());
        assert_eq!(found, expected, "{variables:?}");
    }
}
