//! Arguments.

use std::{path::PathBuf, time::Duration};

use clap::{Args, Parser, Subcommand, ValueEnum};

/// Examples and exit codes.
const AFTER_HELP: &str = "\
Examples:
  kubectl compute trace workload/hello -n demo
  kubectl compute explain NotScheduled
  kubectl compute check --hub-context hub

Exit codes:
    0  well
    1  could not ask
    2  wrong arguments
    3  a tenant has to act
    4  the platform has to act
    5  in progress
  124  timeout";

/// Explains why a Workload waits, checks an installation, and manages cells.
#[derive(Debug, Parser)]
#[command(name = "kubectl-compute", bin_name = "kubectl compute", version, after_help = AFTER_HELP)]
pub struct Flags {
    /// Control planes and output.
    #[command(flatten, next_help_heading = "Control planes and output")]
    pub global: Global,
    /// What to do.
    #[command(subcommand)]
    pub command: Command,
}

/// Flags of every command.
#[derive(Clone, Debug, Args)]
pub struct Global {
    /// Kubeconfig file. Default: the files in KUBECONFIG, else ~/.kube/config.
    #[arg(long, global = true, value_name = "FILE")]
    pub kubeconfig: Option<PathBuf>,
    /// Context of the project's control plane. Default: the current context.
    #[arg(long, global = true, value_name = "NAME")]
    pub context: Option<String>,
    /// Namespace in the project. Default: that of the context.
    #[arg(long, short, global = true, value_name = "NAME")]
    pub namespace: Option<String>,
    /// Context of the hub. Commands for cells, map and migrate need it, and the map of top. The others read only the project without it.
    #[arg(long, global = true, value_name = "NAME", env = "COMPUTE_HUB_CONTEXT")]
    pub hub_context: Option<String>,
    /// Context of a cell, by the name of its Cluster. Default: Karmada's proxy on the hub.
    #[arg(long = "cell-context", global = true, value_name = "CLUSTER=NAME", value_parser = cell_context)]
    pub cell_contexts: Vec<(String, String)>,
    /// Form of the output.
    #[arg(long, short, global = true, value_name = "FORM", default_value = "text")]
    pub output: Form,
    /// Colours in the output. `auto`: on a terminal, unless NO_COLOR is set.
    #[arg(long, global = true, value_name = "WHEN", default_value = "auto")]
    pub color: When,
}

/// Form of the output.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Form {
    /// For people.
    Text,
    /// JSON.
    Json,
    /// YAML.
    Yaml,
    /// A graph for Graphviz, of a trace.
    Dot,
}

/// When the output has colours.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum When {
    /// On a terminal.
    Auto,
    /// Always.
    Always,
    /// Never.
    Never,
}

/// A command.
#[derive(Clone, Debug, Subcommand)]
pub enum Command {
    /// Follow an object from its project to its cells, to the first broken link.
    Trace(Trace),
    /// Explain a reason of a condition or an Event: what it means, who has to act, and how.
    Explain(Explain),
    /// List what waits in all projects, one line for each cause. For the platform.
    Waiting(Waiting),
    /// Show one timeline of Events and changes over all control planes.
    Events(crate::events::Args),
    /// Show all objects of a Workload on all control planes.
    Tree(crate::tree::Args),
    /// Show cities and cells with their deployments. For the platform.
    Map,
    /// Watch what waits and where, in all projects. For the platform.
    Top(Top),
    /// Check the installation: versions, rights, webhooks, cities, credentials.
    Check(crate::check::Args),
    /// Join a cell to the hub, rotate its credentials, drain it, or declare it dead.
    Cell(crate::cell::Args),
    /// Follow the migration from the Go operator.
    Migrate(crate::migrate::Args),
    /// Write an archive for support, without the content of ConfigMaps and Secrets.
    Report(crate::report::Args),
    /// Judge a report again with this version, or decide the snapshots of a debug log again.
    Replay(crate::replay::Args),
    /// Print the completion of a shell.
    Completion(crate::generate::Completion),
    /// Write man pages.
    Man(crate::generate::Man),
}

/// Arguments of `explain`.
#[derive(Clone, Debug, Args)]
pub struct Explain {
    /// The reason, such as NotScheduled. Without it, all reasons are listed.
    #[arg(value_name = "REASON")]
    pub reason: Option<String>,
}

/// Arguments of `trace`.
#[derive(Clone, Debug, Args)]
pub struct Trace {
    /// The object: `workload/NAME`, `wd/NAME`, `instance/NAME`, `secret/NAME`, `configmap/NAME` or `cluster/NAME`, or the kind
    /// and the name as two words.
    #[arg(value_name = "KIND/NAME", num_args = 1..=2, required = true)]
    pub object: Vec<String>,
    /// Print the screen again whenever it changes, until the object is ready.
    #[arg(long, short)]
    pub watch: bool,
    /// End a watch after this time with exit code 124, such as 10m.
    #[arg(long, value_name = "DURATION", requires = "watch", value_parser = duration)]
    pub timeout: Option<Duration>,
}

/// Arguments of `waiting`.
#[derive(Clone, Debug, Args)]
pub struct Waiting {
    /// List the objects that wait for this reason.
    #[arg(value_name = "REASON")]
    pub reason: Option<String>,
    /// Only objects of this city.
    #[arg(long, value_name = "CODE")]
    pub city: Option<String>,
    /// Only objects of this project.
    #[arg(long, value_name = "NAME")]
    pub project: Option<String>,
    /// List objects, also without a reason.
    #[arg(long)]
    pub objects: bool,
    /// List all objects, not only the first hundred.
    #[arg(long)]
    pub all: bool,
    /// The manager.
    #[command(flatten)]
    pub manager: Manager,
}

/// Arguments of `top`.
#[derive(Clone, Debug, Args)]
pub struct Top {
    /// Time between two reads, such as 10s. Reads that take long are repeated less often.
    #[arg(long, value_name = "DURATION", default_value = "5s", value_parser = duration)]
    pub every: Duration,
    /// The manager.
    #[command(flatten)]
    pub manager: Manager,
}

/// The way to the manager.
#[derive(Clone, Debug, Args)]
pub struct Manager {
    /// Address of the manager's metrics port, such as https://localhost:8443. Default: a port-forward by kubectl.
    #[arg(long, value_name = "URL", env = "COMPUTE_MANAGER_URL")]
    pub manager_url: Option<String>,
    /// File with the token for the manager. Default: the token of the context.
    #[arg(long, value_name = "FILE")]
    pub token_file: Option<PathBuf>,
    /// Context of the cluster in which the manager runs. Default: the project's.
    #[arg(long, value_name = "NAME", env = "COMPUTE_MANAGER_CONTEXT")]
    pub manager_context: Option<String>,
    /// Namespace of the manager.
    #[arg(long, value_name = "NAME", default_value = "compute-system")]
    pub manager_namespace: String,
}

/// Reads a duration such as `90s`, `10m` or `1h30m`.
///
/// # Errors
/// One line for the user.
pub fn duration(text: &str) -> Result<Duration, String> {
    let parsed: Result<jiff::SignedDuration, _> = text.parse();
    let positive = parsed.ok().and_then(|parsed| Duration::try_from(parsed).ok());
    positive.ok_or_else(|| "must be a duration such as 90s, 10m or 1h30m".to_owned())
}

fn cell_context(text: &str) -> Result<(String, String), String> {
    let (cluster, context) = text.split_once('=').ok_or("must be CLUSTER=CONTEXT")?;
    if cluster.is_empty() || context.is_empty() {
        return Err("must be CLUSTER=CONTEXT".to_owned());
    }
    Ok((cluster.to_owned(), context.to_owned()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn duration_is_written_as_kubectl_takes_it() {
        let of = |text| duration(text).map(|duration| duration.as_secs());
        assert_eq!((of("90s"), of("10m"), of("1h30m")), (Ok(90), Ok(600), Ok(5400)));
        assert!(of("x").is_err() && of("-5s").is_err() && of("5").is_err());
    }
}
