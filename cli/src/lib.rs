//! `kubectl compute`: says why a Workload waits, over project, hub and cells.
//!
//! A command reads the control planes ([`planes`], [`seen`]), judges what it saw by a pure function, and prints the result
//! ([`output`], [`screen`]). It decides nothing itself: the operator's library does.

pub mod cell;
pub mod check;
pub mod complete;
pub mod events;
pub mod exit;
pub mod explain;
pub mod flags;
pub mod generate;
pub mod hub;
pub mod inventory;
#[cfg(test)]
mod inventory_samples;
pub mod manager;
pub mod map;
pub mod migrate;
pub mod output;
pub mod planes;
pub mod redact;
pub mod replay;
pub mod report;
pub mod screen;
pub mod seen;
pub mod target;
pub mod top;
pub mod trace;
pub mod tree;
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
    let args: Vec<OsString> = args.into_iter().collect();
    if let Some(exit) = complete::run(&args, out) {
        return exit;
    }
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
    // Before anything is written: a command for cells would act first and fail then.
    if output.form() == flags::Form::Dot && !matches!(flags.command, Command::Trace(_)) {
        return Err((Exit::Usage, "only a trace has the form dot".to_owned()));
    }
    match &flags.command {
        Command::Cell(args) => cell::run(&flags.global, args, output, out).await,
        Command::Check(args) => check::run(&flags.global, args, output, out).await,
        Command::Trace(args) => trace::run(&flags.global, args, output, out).await,
        Command::Waiting(args) => waiting::run(&flags.global, args, output, out).await,
        Command::Explain(args) => explain::run(args, output, out),
        Command::Events(args) => events::run(&flags.global, args, output, out).await,
        Command::Tree(args) => tree::run(&flags.global, args, output, out).await,
        Command::Top(args) => top::run(&flags.global, args, output).await,
        Command::Map => map::run(&flags.global, output, out).await,
        Command::Report(args) => report::run(&flags.global, args, output, out).await,
        Command::Replay(args) => replay::run(args, output, out),
        Command::Migrate(args) => migrate::run(&flags.global, args, output, out).await,
        Command::Completion(args) => generate::completion(args, out),
        Command::Man(args) => generate::man(args, out),
    }
}

fn end(to: &mut dyn Write, exit: Exit, text: &str) -> Exit {
    // Nothing can be reported about a stream that cannot be written.
    let _ = to.write_all(text.as_bytes());
    exit
}
