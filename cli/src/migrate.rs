//! `migrate status`: the migration from the Go operator, as the hub shows it.

use std::{fmt::Write as _, io::Write, time::Duration};

use clap::{Args as ClapArgs, Subcommand};
use compute_operator::{io::clients::Connection, migration::Progress};

use crate::{
    exit::Exit,
    flags::{self, duration},
    output::Output,
    planes::Planes,
    screen::{Mark, Screen},
    seen::words,
};

/// Time between two reads of a wait.
const PERIOD: Duration = Duration::from_secs(5);

/// Arguments of `migrate`.
#[derive(Clone, Debug, ClapArgs)]
pub struct Args {
    /// What to do.
    #[command(subcommand)]
    pub command: Command,
}

/// A command about the migration.
#[derive(Clone, Debug, Subcommand)]
pub enum Command {
    /// Show the progress of each city's policy from claims to dependencies.
    Status(Status),
}

/// Arguments of `migrate status`.
#[derive(Clone, Debug, ClapArgs)]
pub struct Status {
    /// Wait until all policies are done.
    #[arg(long)]
    pub wait: bool,
    /// End the wait after this time with exit code 124, such as 30m.
    #[arg(long, value_name = "DURATION", requires = "wait", value_parser = duration)]
    pub timeout: Option<Duration>,
}

/// Runs the command.
///
/// # Errors
/// One line, with the exit code.
pub async fn run(
    global: &flags::Global,
    args: &Args,
    output: Output,
    out: &mut dyn Write,
) -> Result<Exit, (Exit, String)> {
    let Command::Status(args) = &args.command;
    let could_not = |error: String| (Exit::CouldNotAsk, error);
    let planes = Planes::of(global).await?;
    let config = planes.hub_config();
    let config = config.ok_or_else(|| (Exit::Usage, "the hub is read: give --hub-context".to_owned()))?;
    let hub = Connection::new(config).map_err(could_not)?;
    let read = async || Progress::read(&hub).await.map_err(|error| could_not(words(&error)));
    let mut progress = read().await?;
    if args.wait && !progress.is_complete() {
        let wait = async {
            while !progress.is_complete() {
                tokio::time::sleep(PERIOD).await;
                progress = read().await?;
            }
            Ok(())
        };
        let waited = match args.timeout {
            Some(timeout) => tokio::time::timeout(timeout, wait).await,
            None => Ok(wait.await),
        };
        let Ok(done) = waited else {
            show(&progress, output, out)?;
            return Err((Exit::Timeout, "the migration is not complete".to_owned()));
        };
        done?;
    }
    show(&progress, output, out)?;
    Ok(if progress.is_complete() { Exit::Well } else { Exit::InProgress })
}

fn show(progress: &Progress, output: Output, out: &mut dyn Write) -> Result<(), (Exit, String)> {
    output.print(out, progress, |screen| text(progress, screen))
}

fn text(progress: &Progress, screen: Screen) -> String {
    let mut text = progress.preconditions.clone();
    if !progress.policies.is_empty() {
        let mut rows = vec![["", "NAMESPACE", "POLICY", "PHASE", "MANAGED", "CLAIMED"].map(str::to_owned).to_vec()];
        for row in &progress.policies {
            let mark = if row.is_done() { Mark::Well } else { Mark::Later };
            let managed = if row.ours { "yes" } else { "not yet" };
            let cells =
                [mark.sign(), &row.namespace, &row.policy, row.phase.label(), managed, &row.claimed.to_string()];
            rows.push(cells.map(str::to_owned).to_vec());
        }
        text.push_str(&screen.table(&rows));
    }
    let _ = writeln!(text, "{} of {} policies are done", progress.done(), progress.policies.len());
    let _ = writeln!(text, "{}{}\n{}", progress.residue, progress.verdict, progress.assumed);
    text
}

#[cfg(test)]
mod tests {
    use compute_operator::{migration::Row, plan::management::observed::phase::Phase};

    use super::*;

    #[test]
    fn progress_is_a_table_and_json_with_the_phases_of_the_metric() {
        let row = |policy: &str, phase, claimed| Row {
            namespace: "ns-1".to_owned(),
            policy: policy.to_owned(),
            phase,
            ours: phase != Phase::Claims,
            claimed,
        };
        let mut progress = Progress {
            preconditions: String::new(),
            policies: vec![row("city-dfw", Phase::Dependencies, 0), row("city-ord", Phase::Claims, 2)],
            residue: String::new(),
            verdict: "Karmada propagates dependencies".to_owned(),
            assumed: "Assumed: none".to_owned(),
        };
        let expected = "\x20  NAMESPACE  POLICY    PHASE         MANAGED  CLAIMED
✔  ns-1       city-dfw  dependencies  yes      0
·  ns-1       city-ord  claims        not yet  2
1 of 2 policies are done
Karmada propagates dependencies
Assumed: none
";
        assert_eq!(text(&progress, Screen::PLAIN), expected);
        assert!(!progress.is_complete());
        let json = serde_json::to_value(&progress).unwrap();
        assert_eq!((&json["policies"][1]["phase"], &json["policies"][1]["managed"]), (&"claims".into(), &false.into()));
        progress.policies.truncate(1);
        assert!(progress.is_complete());
    }
}
