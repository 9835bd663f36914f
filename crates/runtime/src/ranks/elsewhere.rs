//! The environment of ranks on other hosts than the launcher's.

use std::{
    collections::BTreeMap,
    ffi::{OsStr, OsString},
    os::unix::ffi::OsStrExt,
};

use dvm::spec::{App, Environment, NodeVariables};

/// Variables that hold the name of the host, in different shells.
const HOST_NAMES: [&str; 2] = ["HOST", "HOSTNAME"];

/// Returns the environment of an app on this host, whose name and variables are given.
pub(super) fn environment(app: &App, host: &str, node: &[(OsString, OsString)]) -> Environment {
    let is_own = |name: &OsStr| app.elsewhere.own.iter().any(|own| own == name);
    let of_node = node.iter().filter(|(name, _)| {
        is_own(name)
            || match &app.elsewhere.more {
                NodeVariables::None => false,
                NodeVariables::AllExcept(patterns) => {
                    !patterns.iter().any(|pattern| matches(pattern, name))
                }
            }
    });
    let of_node = of_node.map(|(name, value)| (name.as_os_str(), value.as_os_str()));
    let mut variables: BTreeMap<&OsStr, &OsStr> = of_node.collect();
    variables.extend(app.env.iter().filter(|(name, _)| !is_own(name)));
    for name in HOST_NAMES.map(OsStr::new) {
        if is_own(name) {
            variables.insert(name, OsStr::new(host));
        }
    }
    variables.into_iter().collect()
}

fn matches(pattern: &OsStr, name: &OsStr) -> bool {
    match pattern.as_bytes().strip_suffix(b"*") {
        Some(prefix) => name.as_bytes().starts_with(prefix),
        None => pattern == name,
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use dvm::spec::{Elsewhere, Tracers};

    use super::*;

    fn variables(text: &str) -> Vec<(OsString, OsString)> {
        let words = text.split_whitespace();
        words
            .filter_map(|word| word.split_once('='))
            .map(|(name, value)| (name.into(), value.into()))
            .collect()
    }

    #[test]
    fn what_ranks_on_other_hosts_get() {
        let names = |text: &str| text.split_whitespace().map(OsString::from).collect();
        let run = |env: &str, own: &str, except: Option<&str>, node: &str| {
            let app = App {
                program: "a".into(),
                args: Vec::new(),
                env: variables(env).into_iter().collect(),
                elsewhere: Arc::new(Elsewhere {
                    own: names(own),
                    more: match except {
                        Some(except) => NodeVariables::AllExcept(names(except)),
                        None => NodeVariables::None,
                    },
                }),
                directory: "/".into(),
                search: "/bin".into(),
                umask: 0o022,
                tracers: Tracers::Ancestors,
            };
            let found = environment(&app, "n2", &variables(node));
            let text = found
                .iter()
                .map(|(name, value)| format!("{}={}", name.display(), value.display()));
            text.collect::<Vec<_>>().join(" ")
        };
        let all = Some("");
        // The launcher's variables, those that are its own, which the node does not add, and the node's.
        assert_eq!(run("A=1", "", all, "A=2 B=3"), "A=1 B=3");
        assert_eq!(run("A=1", "", None, "A=2 B=3"), "A=1");
        assert_eq!(run("A=1 X=1", "X", all, "X=2"), "A=1 X=2");
        assert_eq!(run("A=1 X=1", "X", None, "X=2"), "A=1 X=2");
        assert_eq!(run("A=1 X=1", "X", all, ""), "A=1");
        assert_eq!(
            run("HOSTNAME=n1", "HOSTNAME", all, "HOSTNAME=x"),
            "HOSTNAME=n2"
        );
        assert_eq!(run("HOSTNAME=mine", "", all, ""), "HOSTNAME=mine");
        assert_eq!(run("", "", Some("B C*"), "B=1 BB=2 C=3 CC=4"), "BB=2");
    }
}
