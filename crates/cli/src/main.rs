mod args;
mod config;
mod generate;
mod help;

fn main() {}
