//! Exports the MPIR symbols, which debuggers look up by name in the dynamic symbol table of `rally`. Asks for a build id.

fn main() {
    // Nodes compare it, because a hash of the whole file takes longer than all the rest of their start.
    println!("cargo::rustc-link-arg-bins=-Wl,--build-id=sha1");
    let symbols = include_str!("../mpir/symbols.txt");
    println!("cargo::rerun-if-changed=../mpir/symbols.txt");
    for symbol in symbols.lines() {
        println!("cargo::rustc-link-arg-bin=rally=-Wl,--export-dynamic-symbol={symbol}");
    }
}
