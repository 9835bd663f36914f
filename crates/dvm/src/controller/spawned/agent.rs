//! Agents that are executed in the place of the programs of a job (`PMIX_EXEC_AGENT`), to check their memory for instance.
//!
//! An agent gets the program and its arguments behind its own: `valgrind -q ./a x`. It is a rank as any other; what it does with the
//! program is its own affair. So it is the agent that is searched for, that stops on exec, and that tables of processes show.

use std::{ffi::OsStr, os::unix::ffi::OsStrExt as _};

use pmix::{
    keys,
    value::{Info, Status, Value},
};

use super::find;
use crate::spec::{App, JobSpec};

/// Lets an agent execute an app, and returns the index of the program among its arguments.
///
/// # Errors
///
/// [`Status::BAD_PARAM`] if the agent is no command line.
pub(super) fn execute(agent: &Value, app: &mut App) -> Result<u32, Status> {
    let text = agent.as_text().ok_or(Status::BAD_PARAM)?.to_bytes();
    // PRRTE knows no quotes here either.
    let words = text.split(u8::is_ascii_whitespace);
    let words = words.filter(|word| !word.is_empty());
    let mut words = words.map(|word| OsStr::from_bytes(word).to_os_string());
    let agent = words.next().ok_or(Status::BAD_PARAM)?;
    let own: Vec<_> = words.collect();
    let at = u32::try_from(own.len()).map_err(|_| Status::BAD_PARAM)?;
    let program = std::mem::replace(&mut app.program, agent);
    app.args.splice(..0, own.into_iter().chain([program]));
    Ok(at)
}

/// Lets the agent of these directives execute all apps of a job.
///
/// # Errors
///
/// As for each of them.
pub(in crate::controller) fn execute_all(infos: &[Info], spec: &mut JobSpec) -> Result<(), Status> {
    let Some(agent) = find(infos, keys::EXEC_AGENT) else {
        return Ok(());
    };
    for (index, app) in (0..).zip(&mut spec.apps) {
        let at = execute(agent, app)?;
        if let Some(preload) = &mut spec.preload {
            preload.use_of.executed_by_agent(index, at);
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::ffi::CString;

    use pmix::value::Key;

    use super::{super::tests, *};
    use crate::spec::{OnFailure, Preload, Preloaded};

    #[test]
    fn an_agent_gets_the_program_and_its_arguments() {
        let cases = [
            (Value::text("checks"), Ok("checks a x y"), 0),
            (
                Value::text(" checks  -q --as=b "),
                Ok("checks -q --as=b a x y"),
                2,
            ),
            (Value::text(""), Err(Status::BAD_PARAM), 0),
            (Value::text("  "), Err(Status::BAD_PARAM), 0),
            (Value::String(None), Err(Status::BAD_PARAM), 0),
            (Value::Bool(true), Err(Status::BAD_PARAM), 0),
        ];
        for (agent, expected, at) in cases {
            let mut app = tests::app("a");
            app.args = vec!["x".into(), "y".into()];
            let done = execute(&agent, &mut app);
            let words = std::iter::once(&app.program).chain(&app.args);
            let words: Vec<String> = words.map(|word| word.display().to_string()).collect();
            assert_eq!(
                done.map(|at| (words.join(" "), at)),
                expected.map(|line| (line.to_owned(), at))
            );
        }
    }

    #[test]
    fn a_copied_program_is_known_among_the_arguments() {
        let mut spec = tests::job(OnFailure::Continue);
        spec.apps.push(tests::app("b"));
        spec.preload = Some(Preload {
            place: None,
            files: Vec::new(),
            use_of: Preloaded {
                programs: [(1, "b".into())].into(),
                ..Preloaded::default()
            },
        });
        let text = CString::new("checks -q").unwrap();
        let key = Key::new(keys::EXEC_AGENT).unwrap();
        let infos = [Info::new(key, Value::String(Some(text)))];
        execute_all(&infos, &mut spec).unwrap();
        assert_eq!(spec.preload.unwrap().use_of.arguments, [(1, 1)].into());
        assert_eq!(spec.apps[1].args, ["-q", "b"]);
    }
}
