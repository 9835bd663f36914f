//! The MPIR symbols of the executable, stripped or not.

use std::{collections::BTreeMap, path::Path};

use super::{gdb, pids};
use crate::harness::{
    Elf, Sandbox,
    SymbolKind::{self, Function, Object},
    SymbolTable, rally, testdata,
};

/// Every symbol of the interface that we have. A debugger without debug information relies on the sizes.
const PRESENT: [(&str, SymbolKind, u64); 11] = [
    ("MPIR_Breakpoint", Function, 2),
    ("MPIR_being_debugged", Object, 4),
    ("MPIR_debug_abort_string", Object, 8),
    ("MPIR_debug_state", Object, 4),
    ("MPIR_executable_path", Object, 256),
    ("MPIR_i_am_starter", Object, 4),
    ("MPIR_partial_attach_ok", Object, 4),
    ("MPIR_proctable", Object, 8),
    ("MPIR_proctable_size", Object, 4),
    ("MPIR_server_arguments", Object, 4096),
    ("totalview_jobid", Object, 8),
];

/// Symbols that would promise behaviour that we do not have.
const ABSENT: [&str; 7] = [
    // Every process is stopped before `main`, in every job. Not so for ranks that already run or are held elsewhere.
    "MPIR_acquired_pre_main",
    // The table is filled only after a write to the fifo.
    "MPIR_attach_fifo",
    // The program is of a certain kind.
    "MPIR_force_to_main",
    "MPIR_ignore_queues",
    // These belong into the ranks.
    "MPIR_debug_gate",
    "MPIR_dll_name",
    // A job has no steps.
    "totalview_stepid",
];

fn of_the_interface(executable: &Path, table: SymbolTable) -> BTreeMap<String, (SymbolKind, u64)> {
    let mut symbols = Elf::read(executable).symbols(table);
    symbols.retain(|name, _| name.starts_with("MPIR_") || name.starts_with("totalview_"));
    symbols
        .into_iter()
        .map(|(name, symbol)| (name, (symbol.kind, symbol.size)))
        .collect()
}

fn present() -> BTreeMap<String, (SymbolKind, u64)> {
    PRESENT
        .iter()
        .map(|(name, kind, size)| ((*name).to_owned(), (*kind, *size)))
        .collect()
}

#[test]
fn those_that_are_true_are_there_and_no_others() {
    for table in [SymbolTable::Dynamic, SymbolTable::Full] {
        let found = of_the_interface(&rally(), table);
        assert_eq!(found, present(), "{table:?}");
        let wrong: Vec<_> = ABSENT
            .iter()
            .filter(|name| found.contains_key(**name))
            .collect();
        assert!(wrong.is_empty(), "{wrong:?} promise too much");
    }
}

#[test]
fn gdb_knows_their_types_in_c() {
    let sandbox = Sandbox::new();
    let mut command = gdb(&sandbox);
    command.args(["-ex", "set language c"]);
    for question in [
        "ptype MPIR_PROCDESC",
        "print sizeof(MPIR_PROCDESC)",
        "print &((MPIR_PROCDESC *)0)->pid",
        "whatis MPIR_proctable",
        "whatis MPIR_proctable_size",
        "whatis MPIR_being_debugged",
        "whatis MPIR_debug_state",
        "whatis MPIR_debug_abort_string",
        "whatis totalview_jobid",
        "whatis MPIR_executable_path",
        "whatis MPIR_server_arguments",
        "whatis MPIR_Breakpoint",
    ] {
        command.args(["-ex", question]);
    }
    let told = sandbox.run(command.arg(rally())).expect_code(0);
    insta::assert_snapshot!(told.out(), @r"
    type = struct {
        char *host_name;
        char *executable_name;
        int pid;
    }
    $1 = 24
    $2 = (int *) 0x10
    type = MPIR_PROCDESC *
    type = int
    type = volatile int
    type = volatile int
    type = char *
    type = char *
    type = char [256]
    type = char [4096]
    type = void (void)
    ");
}

#[test]
fn they_survive_strip() {
    let sandbox = Sandbox::new();
    let stripped = sandbox.path("stripped");
    let mut strip = sandbox.command("strip");
    strip.arg("-o").arg(&stripped).arg(rally());
    sandbox.run(&mut strip).expect_code(0);
    assert_eq!(of_the_interface(&stripped, SymbolTable::Dynamic), present());
    assert!(
        Elf::read(&stripped).symbols(SymbolTable::Full).is_empty(),
        "it was stripped"
    );

    // A debugger that has only these symbols finds the ranks held, and releases them.
    sandbox.file("go", "");
    let mut command = gdb(&sandbox);
    command
        .arg("-x")
        .arg(testdata("mpir/read-table.gdb"))
        .arg("--args")
        .arg(&stripped)
        .args(["run", "-n", "4", "echo", "ran"]);
    let run = sandbox.run(&mut command).expect_code(0);
    let out = run.out();
    assert!(out.contains("MPIR_debug_state 1\n"), "{run:?}");
    assert_eq!(pids(&out).len(), 4, "{run:?}");
    let (held, released) = out.split_once("table read\n").unwrap();
    assert!(!held.contains("ran\n"), "{run:?}");
    assert_eq!(released.matches("ran\n").count(), 4, "{run:?}");
    assert!(out.contains("exited normally"), "{run:?}");
}
