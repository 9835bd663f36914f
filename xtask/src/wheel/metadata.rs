//! The metadata of the package, from pyproject.toml to the form of installed packages.

use std::{fmt::Write as _, fs, path::Path};

use anyhow::{Context as _, Result, ensure};
use toml::{Table, Value};

/// The table `project` of pyproject.toml, and the text that it names.
#[derive(Debug)]
pub(crate) struct Project {
    table: Table,
    readme: String,
}

impl Project {
    pub(crate) fn read(root: &Path) -> Result<Self> {
        let directory = root.join("python");
        let read = |name: &str| {
            let path = directory.join(name);
            fs::read_to_string(&path).with_context(|| path.display().to_string())
        };
        let all: Table = read("pyproject.toml")?.parse()?;
        let table = all.get("project").and_then(Value::as_table).cloned();
        let mut project = Self {
            table: table.context("pyproject.toml has no table `project`")?,
            readme: String::new(),
        };
        project.readme = read(project.text("readme")?)?;
        Ok(project)
    }

    fn text(&self, key: &str) -> Result<&str> {
        let value = self.table.get(key).and_then(Value::as_str);
        value.with_context(|| format!("pyproject.toml has no text `project.{key}`"))
    }

    fn texts(&self, key: &str) -> Vec<&str> {
        let list = self.table.get(key).and_then(Value::as_array);
        list.into_iter()
            .flatten()
            .filter_map(Value::as_str)
            .collect()
    }

    pub(crate) fn name(&self) -> Result<&str> {
        self.text("name")
    }

    pub(crate) fn version(&self) -> Result<&str> {
        self.text("version")
    }

    /// Returns an error unless the package has the version of the binaries.
    pub(crate) fn check_version(&self) -> Result<()> {
        let (ours, cargo) = (self.version()?, env!("CARGO_PKG_VERSION"));
        ensure!(
            ours == cargo,
            "python/pyproject.toml has version {ours}, and Cargo.toml {cargo}"
        );
        Ok(())
    }

    /// Returns the content of METADATA.
    pub(super) fn metadata(&self, licences: &[&str]) -> Result<String> {
        let mut text = String::from("Metadata-Version: 2.4\n");
        for (field, key) in [
            ("Name", "name"),
            ("Version", "version"),
            ("Summary", "description"),
            ("License-Expression", "license"),
            ("Requires-Python", "requires-python"),
        ] {
            writeln!(text, "{field}: {}", self.text(key)?)?;
        }
        for licence in licences {
            writeln!(text, "License-File: {licence}")?;
        }
        writeln!(text, "Keywords: {}", self.texts("keywords").join(","))?;
        for classifier in self.texts("classifiers") {
            writeln!(text, "Classifier: {classifier}")?;
        }
        writeln!(text, "Description-Content-Type: text/markdown")?;
        write!(text, "\n{}", self.readme)?;
        Ok(text)
    }
}

/// Returns the content of WHEEL.
pub(super) fn wheel(tags: &[String]) -> String {
    let mut text =
        String::from("Wheel-Version: 1.0\nGenerator: cargo-xtask\nRoot-Is-Purelib: false\n");
    for tag in tags {
        text += &format!("Tag: py3-none-{tag}\n");
    }
    text
}
