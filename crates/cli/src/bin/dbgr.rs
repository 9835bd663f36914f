//! The parallel debugger.

fn main() -> std::process::ExitCode {
    cli::dbgr()
}
