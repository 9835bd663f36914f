//! Exports the MPIR symbols, which debuggers look up by name in the dynamic symbol table of `rally`.

fn main() {
    let symbols = include_str!("../mpir/symbols.txt");
    println!("cargo::rerun-if-changed=../mpir/symbols.txt");
    for symbol in symbols.lines() {
        println!("cargo::rustc-link-arg-bin=rally=-Wl,--export-dynamic-symbol={symbol}");
    }
}
