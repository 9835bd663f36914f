//! Exports the MPIR symbols, which debuggers look up by name in the dynamic symbol table of `rally`. Asks for a build id. Builds the
//! recorder of MPI calls, a library for other programs that `rally` carries along.

#![expect(
    clippy::expect_used,
    reason = "an error of a build script ends the build, with this text"
)]

use std::{
    env,
    ffi::OsString,
    fs,
    path::{Path, PathBuf},
    process::Command,
};

fn main() {
    // Nodes compare it, because a hash of the whole file takes longer than all the rest of their start.
    println!("cargo::rustc-link-arg-bins=-Wl,--build-id=sha1");
    let symbols = include_str!("../mpir/symbols.txt");
    println!("cargo::rerun-if-changed=../mpir/symbols.txt");
    for symbol in symbols.lines() {
        println!("cargo::rustc-link-arg-bin=rally=-Wl,--export-dynamic-symbol={symbol}");
    }
    recorder();
}

/// Builds the recorder from the sources of its crate and of the layout, without `std` and without a C library: it has to work in
/// programs with any. So it is no dependency that Cargo could build.
fn recorder() {
    println!("cargo::rerun-if-changed=../recorder/src");
    println!("cargo::rerun-if-changed=../calls/src");
    let out = PathBuf::from(env::var_os("OUT_DIR").expect("Cargo sets OUT_DIR"));
    let library = out.join("librally-calls.so");
    // The recorder knows the calling convention of one processor.
    let supported = env::var("CARGO_CFG_TARGET_ARCH").is_ok_and(|target| target == "x86_64")
        && cfg!(target_arch = "x86_64");
    if !supported {
        fs::write(&library, []).expect("OUT_DIR is writable");
        return;
    }
    let sources = Path::new("..");
    compile(&[
        "--crate-name=calls".into(),
        "--crate-type=rlib".into(),
        argument("--out-dir=", &out),
        sources.join("calls/src/lib.rs").into(),
    ]);
    compile(&[
        "--crate-name=recorder".into(),
        "--crate-type=cdylib".into(),
        "--cfg=preload".into(),
        argument("--extern=calls=", &out.join("libcalls.rlib")),
        "-Ccodegen-units=1".into(),
        "-Clto=fat".into(),
        // Functions of the C library are looked up when they are first called, not when a shell starts that calls none. Nothing is
        // protected after that, because each page and each system call is paid by every rank.
        "-Crelro-level=off".into(),
        "-Clink-arg=-nostdlib".into(),
        "-Clink-arg=-nostartfiles".into(),
        "-Clink-arg=-Wl,-soname,librally-calls.so".into(),
        // The ways of calls are exported because `dbgr` needs their names. Stubs still jump to them directly.
        "-Clink-arg=-Wl,-Bsymbolic-functions".into(),
        argument("-o", &library),
        sources.join("recorder/src/lib.rs").into(),
    ]);
}

fn argument(name: &str, value: &Path) -> OsString {
    let mut argument = OsString::from(name);
    argument.push(value);
    argument
}

fn compile(arguments: &[OsString]) {
    let rustc = env::var_os("RUSTC").expect("Cargo sets RUSTC");
    let done = Command::new(rustc)
        .args([
            "--edition=2024",
            "--cap-lints=allow",
            "-Copt-level=3",
            "-Cpanic=abort",
            "-Cstrip=symbols",
        ])
        .args(arguments)
        .status()
        .expect("rustc runs");
    assert!(
        done.success(),
        "the recorder of MPI calls could not be built"
    );
}
