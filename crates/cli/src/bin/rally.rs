//! The launcher.

fn main() -> std::process::ExitCode {
    cli::rally()
}
