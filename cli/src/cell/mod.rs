//! `cell`: joins a cell to the hub, rotates its credentials, drains it, and declares it dead.

mod access;
mod dead;
mod drain;
mod join;
mod rotate;

use std::{io::Write, time::Duration};

use kube::Client;

use crate::{check, exit::Exit, flags::Global, output::Output, planes::Planes};

/// Field manager of what the command writes.
const FIELD_MANAGER: &str = "kubectl-compute";

/// Secret of a cell with its kubeconfig for the hub.
const SECRET: &str = "compute-cell-federation-kubeconfig";

/// Arguments of `cell`.
#[derive(Clone, Debug, clap::Args)]
pub struct Args {
    /// What to do.
    #[command(subcommand)]
    pub verb: Verb,
}

/// What to do with a cell.
#[derive(Clone, Debug, clap::Subcommand)]
pub enum Verb {
    /// Give a cell its user on the hub, its city, and its credentials. Prints each step first.
    Join(Join),
    /// Give a cell a new token for the hub.
    Rotate(Rotate),
    /// Move the city of a Cluster to another Cluster, and show how far it is.
    Drain(Drain),
    /// Declare a cell dead: nothing runs there any more, and what it holds is given away.
    Dead(Dead),
}

/// Arguments of `cell join`.
#[derive(Clone, Debug, clap::Args)]
pub struct Join {
    /// Name of the cell's Cluster on the hub.
    #[arg(value_name = "NAME")]
    pub name: String,
    /// Code of its city.
    #[arg(long, value_name = "CODE")]
    pub city: String,
    /// Print the steps, and write nothing.
    #[arg(long)]
    pub dry_run: bool,
    /// The hub trusts the tokens of the cell's own cluster, which the kubelet renews. Without it, the cell gets a token of the hub
    /// for 30 days.
    #[arg(long)]
    pub trust_issuer: bool,
    /// Address of the hub for the cell. Default: that of the hub's context.
    #[arg(long, value_name = "URL")]
    pub hub_server: Option<String>,
}

/// Arguments of `cell rotate`.
#[derive(Clone, Debug, clap::Args)]
pub struct Rotate {
    /// Name of the cell's Cluster on the hub.
    #[arg(value_name = "NAME", required_unless_present = "all", conflicts_with = "all")]
    pub name: Option<String>,
    /// All Clusters of the hub.
    #[arg(long)]
    pub all: bool,
    /// Print what would be done, and write nothing.
    #[arg(long)]
    pub dry_run: bool,
    /// Address of the hub in the kubeconfig of the cell. Default: that of the hub's context.
    #[arg(long, value_name = "URL")]
    pub hub_server: Option<String>,
}

/// Arguments of `cell drain`.
#[derive(Clone, Debug, clap::Args)]
pub struct Drain {
    /// Name of the Cluster on the hub.
    #[arg(value_name = "NAME")]
    pub name: String,
    /// Go on until nothing of any city is left on the Cluster.
    #[arg(long)]
    pub watch: bool,
    /// With --watch: end after this time with exit code 124.
    #[arg(long, value_name = "DURATION", value_parser = check::duration, requires = "watch")]
    pub timeout: Option<Duration>,
}

/// Arguments of `cell dead`.
#[derive(Clone, Debug, clap::Args)]
pub struct Dead {
    /// Name of the Cluster on the hub.
    #[arg(value_name = "NAME")]
    pub name: String,
    /// Nothing runs on the cell any more: do it.
    #[arg(long)]
    pub yes: bool,
}

/// Runs the command.
///
/// # Errors
/// One line, with the exit code.
pub async fn run(global: &Global, args: &Args, output: Output, out: &mut dyn Write) -> Result<Exit, (Exit, String)> {
    let Some(context) = global.hub_context.as_deref() else {
        return Err((Exit::Usage, "the hub is not known: give --hub-context".to_owned()));
    };
    let planes = Planes::of(global).await?;
    let Some(hub) = planes.hub.clone() else {
        return Err((Exit::Usage, "the hub is not known: give --hub-context".to_owned()));
    };
    match &args.verb {
        Verb::Join(join) => join::run(global, (&planes, &hub, context), join, output, out).await,
        Verb::Rotate(rotate) => rotate::run(global, (&planes, &hub, context), rotate, output, out).await,
        Verb::Drain(drain) => drain::run(&hub, drain, output, out).await,
        Verb::Dead(dead) => dead::run(&hub, dead, output, out).await,
    }
}

/// Returns the client of a cell.
fn cell_client(planes: &Planes, name: &str) -> Result<Client, String> {
    planes.cell(name).ok_or_else(|| format!("the cell is not known: give --cell-context {name}=CONTEXT"))
}
