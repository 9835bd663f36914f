//! The Python package: its wheel, installed as a user installs it, its types, its tests, and the examples in its documents.

use std::{
    path::{Path, PathBuf},
    process::Command,
    time::Duration,
};

use anyhow::{Result, ensure};

use crate::{
    env::{Wheel, python, root, target},
    release::{BINARIES, released},
    steps::{self, Steps, Tally},
    wheel,
};

const NAME: &str = "python package";
const LIMIT: Duration = Duration::from_secs(5 * 60);

pub(super) fn step(steps: &mut Steps) {
    steps.run(NAME, |tally| {
        for needed in [
            Wheel::Pip,
            Wheel::Pytest,
            Wheel::Mypy,
            Wheel::Mpi4py,
            Wheel::Mpich,
        ] {
            needed.install()?;
        }
        types()?;
        let place = tempfile::Builder::new().prefix("rally-python-").tempdir()?;
        let file = wheel::pack(binaries(), &place.path().join("wheel"))?;
        let python = installed(&file, &place.path().join("venv"))?;
        tests(&python, &file, &place.path().join("tests"), tally)
    });
}

/// Returns the programs of the release build, which is what the wheel ships, or else of the build for tests.
fn binaries() -> [PathBuf; BINARIES.len()] {
    if let [Ok(rally), Ok(dbgr)] = BINARIES.map(released) {
        return [rally, dbgr];
    }
    println!(
        "the wheel has the binaries of the build for tests: `cargo xtask build` makes static ones"
    );
    BINARIES.map(|name| target().join("debug").join(name))
}

fn types() -> Result<()> {
    let mut mypy = Command::new(python()?);
    mypy.args(["-m", "mypy", "--strict", "src", "tests"]);
    mypy.arg(format!(
        "--cache-dir={}",
        target().join("mypy-cache").display()
    ));
    mypy.current_dir(root().join("python"))
        .env("MYPYPATH", "src")
        .env("PYTHONPATH", paths(&[Wheel::Mypy, Wheel::Pytest]));
    steps::execute(&mut mypy, LIMIT)
}

/// Installs the wheel into an empty environment, without a network, and returns the path of its Python.
fn installed(file: &Path, home: &Path) -> Result<PathBuf> {
    let mut environment = Command::new(python()?);
    environment.args(["-m", "venv", "--without-pip"]).arg(home);
    steps::execute(&mut environment, LIMIT)?;
    let python = home.join("bin/python3");
    let mut pip = Command::new(Wheel::Pip.binary());
    pip.arg("--python").arg(&python);
    pip.args(["install", "--quiet", "--no-index"]).arg(file);
    steps::execute(&mut pip, LIMIT)?;
    Ok(python)
}

fn tests(python: &Path, file: &Path, temporary: &Path, tally: &mut Tally) -> Result<()> {
    let mut pytest = Command::new(python);
    pytest.args(["-m", "pytest", "--basetemp"]).arg(temporary);
    pytest
        .current_dir(root().join("python"))
        .env("PYTHONPATH", paths(&[Wheel::Pytest]))
        .env("PYTHONDONTWRITEBYTECODE", "1")
        .env("RALLY_TEST_WHEEL", file)
        .env("RALLY_TEST_MPI4PY", Wheel::Mpi4py.packages())
        .env(
            "RALLY_TEST_LIBMPI",
            Wheel::Mpich.home().join("lib/libmpi.so.12"),
        );
    steps::execute_tests(&mut pytest, LIMIT, tally)?;
    ensure!(tally.passed > 0, "no test has run");
    Ok(())
}

/// Returns the search path for the modules of these wheels.
fn paths(wheels: &[Wheel]) -> String {
    let paths: Vec<String> = wheels
        .iter()
        .map(|wheel| wheel.packages().display().to_string())
        .collect();
    paths.join(":")
}
