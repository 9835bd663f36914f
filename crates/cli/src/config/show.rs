//! The settings in force, for `rally config`.

use std::fmt::Write;

use super::{
    file::{ConfigFile, Found},
    settings::Layers,
};

/// Returns the settings as a table for people.
pub(crate) fn text(layers: &Layers, files: &[ConfigFile]) -> String {
    let rows: Vec<_> = layers
        .iter()
        .map(|(key, value, source)| (key.name(), shown(value), source.to_string()))
        .collect();
    let width = |column: fn(&(&'static str, String, String)) -> usize| {
        rows.iter().map(column).max().unwrap_or(0)
    };
    let (keys, values) = (width(|row| row.0.len()), width(|row| row.1.len()));
    let mut out = String::new();
    for (key, value, source) in &rows {
        // Writing to a string cannot fail.
        let _ = writeln!(out, "{key:keys$}  {value:values$}  {source}");
    }
    out.push('\n');
    for file in files {
        let found = match file.found {
            Found::Yes => "read".to_owned(),
            Found::No => "not there".to_owned(),
            Found::Unreadable(problem) => format!("cannot be read: {problem}"),
        };
        let _ = writeln!(out, "{}: {found}", file.path.display());
    }
    out
}

fn shown(value: &str) -> String {
    if value.is_empty() {
        "(none)".to_owned()
    } else {
        value.to_owned()
    }
}

/// Returns one JSON object: each setting with its value and its source, and the files.
pub(crate) fn json(layers: &Layers, files: &[ConfigFile]) -> String {
    let settings: serde_json::Map<_, _> = layers
        .iter()
        .map(|(key, value, source)| {
            let value = if value.is_empty() {
                serde_json::Value::Null
            } else {
                value.into()
            };
            (
                key.name().to_owned(),
                serde_json::json!({ "value": value, "source": source.to_string() }),
            )
        })
        .collect();
    let files: Vec<_> = files
        .iter()
        .map(|file| serde_json::json!({ "path": file.path.display().to_string(), "read": file.found == Found::Yes }))
        .collect();
    format!(
        "{}\n",
        serde_json::json!({ "settings": settings, "files": files })
    )
}
