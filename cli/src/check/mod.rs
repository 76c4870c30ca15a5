//! `check`: whether project, hub and cells fit each other and this version.

mod cities;
pub mod credentials;
pub mod definitions;
pub mod facts;
pub mod foreign;
pub mod judge;
pub mod read;
pub mod roles;
mod text;

use std::{
    io::Write,
    time::{Duration, Instant},
};

use jiff::{SignedDuration, Timestamp};
use kube::Client;

use self::judge::Report;
use crate::{
    exit::Exit,
    flags::Global,
    output::Output,
    planes::{self, Planes},
};

/// Time between two checks while the command waits.
const PAUSE: Duration = Duration::from_secs(3);

/// Arguments of `check`.
#[derive(Clone, Debug, clap::Args)]
pub struct Args {
    /// Before the install: check versions, Karmada, interpreters, webhooks of others, your rights to install, and the cities.
    #[arg(long)]
    pub pre: bool,
    /// Repeat until nothing is red and all answer, at most for this time, such as 2m. Exit code 124 after it.
    #[arg(long, value_name = "DURATION", value_parser = duration)]
    pub wait: Option<Duration>,
    /// Context of the cluster in which the manager runs. Default: the project's.
    #[arg(long, value_name = "NAME", env = "COMPUTE_MANAGER_CONTEXT")]
    pub manager_context: Option<String>,
    /// User of the manager in the project and on the hub.
    #[arg(long, value_name = "NAME", default_value = "system:serviceaccount:compute-system:compute-manager")]
    pub manager_user: String,
    /// Context of the cluster in which Karmada runs, to read its version. Default: the manager's.
    #[arg(long, value_name = "NAME")]
    pub karmada_context: Option<String>,
}

/// Reads a duration such as `90s` or `2m`.
///
/// # Errors
/// One line for the user.
pub fn duration(text: &str) -> Result<Duration, String> {
    let parsed: SignedDuration = text.parse().map_err(|_| "must be a duration, such as 90s or 2m".to_owned())?;
    Duration::try_from(parsed).map_err(|_| "must not be negative".to_owned())
}

/// Runs the command.
///
/// # Errors
/// One line, with the exit code.
pub async fn run(global: &Global, args: &Args, output: Output, out: &mut dyn Write) -> Result<Exit, (Exit, String)> {
    let failed = |error| (Exit::CouldNotAsk, error);
    let planes = Planes::of(global).await?;
    let manager = match &args.manager_context {
        Some(name) => Some((name.clone(), client(global, name).await.map_err(failed)?)),
        None => None,
    };
    let karmada = match (&args.karmada_context, &manager) {
        (Some(name), _) => client(global, name).await.map_err(failed)?,
        (None, Some((_, manager))) => manager.clone(),
        (None, None) => planes.project.clone(),
    };
    let settings = read::Settings {
        pre: args.pre,
        user: &args.manager_user,
        manager,
        karmada,
        cell_contexts: &global.cell_contexts,
        hub_context: global.hub_context.as_deref(),
    };
    let began = Instant::now();
    loop {
        let report = Report::of(&Box::pin(read::facts(&planes, &settings, Timestamp::now())).await);
        let exit = report.exit();
        let time_is_over = args.wait.is_none_or(|wait| began.elapsed() + PAUSE > wait);
        if exit == Exit::Well || time_is_over {
            output.print(out, &report, |screen| text::text(&report, screen))?;
            return Ok(if exit != Exit::Well && args.wait.is_some() { Exit::Timeout } else { exit });
        }
        tokio::time::sleep(PAUSE).await;
    }
}

/// Returns a client of a context.
async fn client(global: &Global, context: &str) -> Result<Client, String> {
    let kubeconfig = planes::kubeconfig(global.kubeconfig.as_deref())?;
    planes::client(planes::config(&kubeconfig, Some(context)).await?)
}

#[cfg(test)]
#[path = "tests.rs"]
mod tests;
