//! The report, as text and as JSON.

use debug::mpir::{
    RowType,
    check::{Answer, Options, Output},
};

use super::*;

/// Feeds a check these answers until it is over. Returns what is printed.
fn printed(format: MessageFormat) -> String {
    let options = Options {
        limit: std::time::Duration::from_secs(2),
        hold: std::time::Duration::ZERO,
        run: std::time::Duration::ZERO,
        ranks: None,
    };
    let facts = SymbolFacts {
        file: "libopen-rte.so.40".into(),
        sizes: [(Symbol::Proctable, 8), (Symbol::IAmStarter, 4)].into(),
        row_type: RowType::Absent,
        being_debugged: 0,
        fifo: None,
    };
    let words = ["mpirun", "-n", "2", "./a"].map(OsString::from);
    let mut report = Report::new(&words, format);
    let mut check = Check::new(options);
    let mut text = String::new();
    let mut facts = Some(facts);
    loop {
        match check.poll() {
            Some(Output::Finding(finding)) => text += &report.text(&finding, check.facts()),
            Some(Output::Order(_)) => {}
            None if check.is_over() => break,
            None => match facts.take() {
                Some(facts) => check.handle(Answer::Program(Some(facts))),
                None => check.handle(Answer::Failed("the system forbids it".into())),
            },
        }
    }
    match format {
        MessageFormat::Text => text,
        MessageFormat::Json => {
            let summary = Summary::of(check.findings());
            report.json(check.facts(), check.findings(), summary)
        }
    }
}

#[test]
fn for_people() {
    insta::assert_snapshot!(printed(MessageFormat::Text), @"
    MPIR of `mpirun -n 2 ./a`
      optional symbols: MPIR_i_am_starter

    a debugger starts the launcher
      WRONG           symbols      it has the five symbols that a debugger needs (4.1)
                                   there is no MPIR_proctable_size; there is no MPIR_being_debugged; there is no MPIR_debug_state; there is no MPIR_Breakpoint
      right           sizes        they have the sizes of their types (9.3-9.6)
                                   as the types have
      WRONG           row-type     its debug information describes the type of the rows (4.1, 9.2)
                                   MPIR_PROCDESC is not described, so debuggers assume the layout of C
      right           starter      MPIR_i_am_starter says that it is no rank itself (9.10)
                                   it is there
      right           unset        MPIR_being_debugged is 0 until a debugger sets it (9.3)
                                   it is 0 when the program begins
      not applicable  daemons      it has both variables for daemons of a debugger, or neither (9.15, 9.16)
                                   it has neither
      not checked     announced    it calls MPIR_Breakpoint when the ranks are started (9.9)
                                   the system forbids it
      not checked     spawned      MPIR_debug_state is MPIR_DEBUG_SPAWNED (1) then (9.6)
                                   the system forbids it
      not checked     table        the table has a row with host, program and pid for each rank (9.2-9.5)
                                   the system forbids it
      not checked     strings      equal names in the table are one string in memory (9.2)
                                   the system forbids it
      not checked     processes    each row of this node is a living process of that program (9.2)
                                   the system forbids it
      not checked     order        row n of the table is rank n (9.4)
                                   the system forbids it
      not checked     held         no rank passes MPI_Init before the debugger continues the starter (6.2)
                                   the system forbids it
      not checked     pre-main     the ranks are stopped before main, as MPIR_acquired_pre_main says (9.11)
                                   the system forbids it
      not checked     partial      a rank with a debugger of its own stays stopped when the others are released (9.13)
                                   the system forbids it
      not checked     released     the ranks go on when the debugger continues the starter (6.2)
                                   the system forbids it
      not checked     again        it calls MPIR_Breakpoint again when the table has got more processes (9.6)
                                   the system forbids it

    a debugger detaches while the ranks are held
      not checked     detached     starter and ranks go on when the debugger detaches (4.2, 9.3)
                                   the system forbids it

    a debugger attaches to a running launcher
      not checked     attached     the table is filled without a debugger (6.1)
                                   the system forbids it
      not checked     no-barrier   ranks and starter go on when a debugger attaches to the starter and detaches (6.1)
                                   the system forbids it
      not checked     fifo         a byte in MPIR_attach_fifo makes it start the daemons of a debugger, or call MPIR_Breakpoint (7.2, 9.17)
                                   the system forbids it
      not checked     fifo-again   the FIFO can be used again (7.2, 9.17)
                                   the system forbids it

    a rank is killed
      not checked     aborted      it announces that the job is ended, with the reason in MPIR_debug_abort_string (9.6, 9.7)
                                   the system forbids it

    a debugger asks for its daemons
      not applicable  colocated    it starts the program that MPIR_executable_path names, once on each node (7.1, 9.15)
                                   it does not have MPIR_executable_path and MPIR_server_arguments
      not applicable  arguments    this program gets the arguments in MPIR_server_arguments (7.1, 9.16)
                                   it does not have MPIR_executable_path and MPIR_server_arguments
    ");
}

#[test]
fn for_programs() {
    let text = printed(MessageFormat::Json);
    let whole: serde_json::Value = serde_json::from_str(&text).unwrap();
    assert_eq!(whole["findings"].as_array().unwrap().len(), 25);
    assert_eq!(whole["launcher"], "mpirun -n 2 ./a");
    assert_eq!(whole["promises"], serde_json::json!(["MPIR_i_am_starter"]));
    insta::assert_snapshot!(whole["findings"][2], @r#"
    {"act":"launch","id":"row-type","sections":"4.1, 9.2","seen":"MPIR_PROCDESC is not described, so debuggers assume the layout of C","statement":"its debug information describes the type of the rows","verdict":"wrong"}
    "#);
    insta::assert_snapshot!(whole["summary"], @r#"
    {"not-applicable":3,"not-checked":17,"right":3,"wrong":2}
    "#);
}
