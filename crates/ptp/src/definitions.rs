//! The attributes that the client is told of (MODEL_DEF).

use crate::{Definition, Dialect, Type};

/// Returns the definitions for a client. Those of its own attributes it knows itself.
pub(crate) fn definitions(dialect: Option<Dialect>) -> Vec<Definition> {
    let states: &[&str] = match dialect {
        Some(Dialect::V2) => &["STARTED", "RUNNING", "TERMINATED", "ERROR"],
        Some(Dialect::V4) | None => &["STARTING", "RUNNING", "SUSPENDED", "COMPLETED"],
    };
    vec![
        Definition {
            id: "jobNumProcs",
            name: "Number of processes",
            description: "How many processes the program has",
            is_shown: true,
            default: "1",
            of: Type::Integer {
                min: 1,
                max: i32::MAX,
            },
        },
        Definition {
            id: "jobState",
            name: "State",
            description: "What the job does",
            is_shown: true,
            default: states[0],
            of: Type::Enumerated(states),
        },
    ]
}
