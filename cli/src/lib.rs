//! `kubectl compute`: says why a Workload waits, over project, hub and cells.
//!
//! A command reads the control planes ([`planes`], [`seen`]), judges what it saw by a pure function, and prints the result
//! ([`output`], [`screen`]). It decides nothing itself: the operator's library does.

pub mod cell;
pub mod check;
pub mod exit;
pub mod explain;
pub mod flags;
pub mod output;
pub mod planes;
pub mod screen;
pub mod seen;
pub mod trace;
pub mod waiting;

use std::{ffi::OsString, io::Write};

use clap::Parser;

use self::{
    exit::Exit,
    flags::{Command, Flags},
    output::Output,
};

/// Runs the command that the arguments name, and returns its exit code.
pub fn start(args: impl IntoIterator<Item = OsString>, out: &mut dyn Write, problems: &mut dyn Write) -> Exit {
    let flags = match Flags::try_parse_from(args) {
        Ok(flags) => flags,
        Err(error) if error.use_stderr() => return end(problems, Exit::Usage, &error.render().to_string()),
        Err(help) => return end(out, Exit::Well, &help.render().to_string()),
    };
    let runtime = match tokio::runtime::Builder::new_current_thread().enable_all().build() {
        Ok(runtime) => runtime,
        Err(error) => return end(problems, Exit::CouldNotAsk, &format!("error: {error}\n")),
    };
    match runtime.block_on(run(&flags, out)) {
        Ok(exit) => exit,
        Err((exit, error)) => end(problems, exit, &format!("error: {error}\n")),
    }
}

async fn run(flags: &Flags, out: &mut dyn Write) -> Result<Exit, (Exit, String)> {
    let output = Output::of(&flags.global);
    match &flags.command {
        Command::Cell(args) => cell::run(&flags.global, args, output, out).await,
        Command::Check(args) => check::run(&flags.global, args, output, out).await,
        Command::Trace(args) => trace::run(&flags.global, args, output, out).await,
        Command::Waiting(args) => waiting::run(&flags.global, args, output, out).await,
        Command::Explain(args) => explain::run(args, output, out),
    }
}

fn end(to: &mut dyn Write, exit: Exit, text: &str) -> Exit {
    // Nothing can be reported about a stream that cannot be written.
    let _ = to.write_all(text.as_bytes());
    exit
}
