//! The examples in the documents print what the documents show.

use std::path::Path;

use crate::harness::{Sandbox, rally};

/// The documents with sessions, which have `$ ` in front of each command.
const DOCUMENTS: [(&str, &str); 2] = [
    ("README.md", include_str!("../../../../README.md")),
    (
        "docs/user-guide.md",
        include_str!("../../../../docs/user-guide.md"),
    ),
];

/// A session: its commands, and their whole output.
struct Session {
    commands: Vec<String>,
    prints: Vec<String>,
}

/// Returns the sessions that begin with `rally run`. Others need a compiler or a debugger.
fn sessions(document: &str) -> Vec<Session> {
    let blocks = document.split("\n```\n").skip(1).step_by(2);
    blocks
        .filter(|block| block.starts_with("$ rally run"))
        .map(|block| {
            let (commands, prints): (Vec<&str>, Vec<&str>) =
                block.lines().partition(|line| line.starts_with("$ "));
            Session {
                commands: commands.iter().map(|line| line[2..].to_owned()).collect(),
                prints: prints.into_iter().map(ToOwned::to_owned).collect(),
            }
        })
        .collect()
}

/// The sessions were recorded on a node with two cores, named `vm`.
#[test]
fn sessions_of_the_documents() {
    let topology = os::read_topology(Path::new("/")).unwrap();
    let cores = topology.cores();
    let first = |core: &base::CpuSet| core.iter().next();
    let [Some(one), Some(other)] = [0, 1].map(|index| cores.get(index).and_then(first)) else {
        println!("there is one core, and the examples have two");
        return;
    };
    let host = os::host_name();
    let mut tried = 0;
    for (name, document) in DOCUMENTS {
        for session in sessions(document) {
            // A map shows all hardware of the node.
            let is_picture = session
                .commands
                .iter()
                .any(|line| line.contains("--dry-run"));
            if is_picture && topology.pus().len() != 2 {
                continue;
            }
            let sandbox = Sandbox::new();
            let words = session
                .commands
                .join("\n")
                .replace("vm:", &format!("{host}:"));
            let place = rally().parent().unwrap().display().to_string();
            let script = format!("PATH={place}:$PATH\nexec 2>&1\n{words}");
            let mut command = sandbox.command("taskset");
            command.args(["-c", &format!("{one},{other}"), "sh", "-c", &script]);
            let run = sandbox.run(&mut command);
            let out = run.out();
            let mut said: Vec<String> = out
                .lines()
                .map(|line| line.replace(&format!("`{host}`"), "`vm`"))
                .map(|line| line.replace(&format!("{host}: "), "vm: "))
                .collect();
            // The order of ranks and of our streams is random.
            let mut expected = session.prints;
            said.sort();
            expected.sort();
            assert_eq!(said, expected, "{name}: {words}");
            tried += 1;
        }
    }
    assert!(tried >= 6, "{tried} sessions were found");
}
