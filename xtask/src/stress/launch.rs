//! One launch of 64 short programs. It must not hang, must return the right exit code and all output, and must leave no
//! process or file.

use anyhow::{Result, bail};
use mischief::check_lines;

use super::{
    Place,
    job::{Job, code},
    random::Random,
};

const RANKS: u32 = 64;

/// Number of ranks of a forking job that leave an orphan. With an orphan of every rank, the run would mostly test fork.
const LEAVING: u32 = 8;

#[derive(Clone, Copy, Debug)]
enum Program {
    True,
    /// One rank exits with 3. The others exit immediately or, with `others_live`, would run for ever.
    Failing {
        others_live: bool,
    },
    Crashing {
        others_live: bool,
    },
    Leaving,
    Printing,
}

const ROTATION: [Program; 7] = [
    Program::True,
    Program::Failing { others_live: false },
    Program::Crashing { others_live: true },
    Program::Leaving,
    Program::Printing,
    Program::Failing { others_live: true },
    Program::Crashing { others_live: false },
];

pub(super) fn once(place: &Place, number: u32, random: &mut Random) -> Result<()> {
    let program = ROTATION[number as usize % ROTATION.len()];
    let (args, expected) = arguments(program, random);
    let args = args.iter().map(String::as_str).collect::<Vec<_>>();
    let job = Job::start(
        place,
        &format!("{}-launch-{number}", std::process::id()),
        &args,
    )?;
    let output = job.end()?;
    let got = code(output.status);
    if got != expected {
        return Err(job.wrong(&format!("code {got} instead of {expected}"), &output));
    }
    if matches!(program, Program::Printing) {
        if let Err(error) = check_lines(&output.stdout, RANKS, 1) {
            return Err(job.wrong(&format!("output is not whole: {error:?}"), &output));
        }
    } else if !output.stdout.is_empty() {
        return Err(job.wrong("output that nobody wrote", &output));
    }
    if let Some(left) = place.leftovers(&job.marker) {
        job.kill_all();
        bail!("{:?}: {left}", program);
    }
    Ok(())
}

/// Returns the arguments of `rally run`, and the expected exit code.
fn arguments(program: Program, random: &mut Random) -> (Vec<String>, i32) {
    // A random rank behaves differently from the others.
    let mut odd = |odd: &[&str], others_live: bool| {
        let others: &[&str] = if others_live {
            &["sleep", "1000"]
        } else {
            &["/bin/true"]
        };
        let before = random.below(RANKS);
        let parts = [(before, others), (1, odd), (RANKS - 1 - before, others)];
        let mut args = Vec::new();
        for (count, program) in parts {
            if count > 0 {
                if !args.is_empty() {
                    args.push(":".to_owned());
                }
                args.extend(["-n".to_owned(), count.to_string()]);
                args.extend(program.iter().map(|word| (*word).to_owned()));
            }
        }
        args
    };
    let words = |text: &str| text.split(' ').map(str::to_owned).collect::<Vec<_>>();
    match program {
        Program::True => (words(&format!("-n {RANKS} /bin/true")), 0),
        Program::Failing { others_live } => (odd(&["mischief", "exit", "3"], others_live), 3),
        Program::Crashing { others_live } => (odd(&["mischief", "crash"], others_live), 139),
        Program::Leaving => {
            let others = RANKS - LEAVING;
            (
                words(&format!(
                    "-n {LEAVING} mischief double-fork : -n {others} /bin/true"
                )),
                0,
            )
        }
        Program::Printing => (words(&format!("-n {RANKS} mischief lines 1 60")), 0),
    }
}
