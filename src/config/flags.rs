//! The command line, with the Go operator's flags.

use std::{
    net::{IpAddr, SocketAddr, ToSocketAddrs},
    path::PathBuf,
};

use clap::{ArgAction, Parser, Subcommand, ValueEnum};
use tracing_subscriber::filter::Targets;

use super::Invalid;
use crate::plan::management::city_policy::policy::Propagation;

/// Federates Workloads over a Karmada hub to POP cells, and runs them there as Instances.
#[allow(clippy::struct_excessive_bools)] // switches of a command line are bools
#[derive(Clone, Debug, Parser)]
#[command(name = "compute-operator", version, args_conflicts_with_subcommands = true)]
pub struct Flags {
    /// Kubeconfig of the local cluster: the project in single mode, or the cell [default: KUBECONFIG, ~/.kube/config, in-cluster]
    #[arg(long, value_name = "FILE", value_parser = optional_path)]
    pub kubeconfig: Option<PathBuf>,
    /// Kubeconfig of the hub, the API server of Karmada
    #[arg(long, aliases = ["downstream-kubeconfig", "karmada-kubeconfig"], value_name = "FILE", value_parser = optional_path)]
    pub federation_kubeconfig: Option<PathBuf>,
    /// Context to use in the federation kubeconfig [default: its current one]
    #[arg(long, value_name = "NAME", value_parser = optional_text)]
    pub federation_context: Option<String>,
    /// Run the management controllers. They fan out Workloads, copy deployments to the hub and show Instances in the projects
    #[arg(long, value_name = "BOOL", default_value = "false", default_missing_value = "true", num_args = 0..=1, require_equals = true, action = ArgAction::Set, value_parser = boolean)]
    pub enable_management_controllers: bool,
    /// Run the cell controllers. They create Instances for the deployments of the cell
    #[arg(long, value_name = "BOOL", default_value = "false", default_missing_value = "true", num_args = 0..=1, require_equals = true, action = ArgAction::Set, value_parser = boolean)]
    pub enable_cell_controllers: bool,
    /// Reconcile only while holding the Lease
    #[arg(long, value_name = "BOOL", default_value = "false", default_missing_value = "true", num_args = 0..=1, require_equals = true, action = ArgAction::Set, value_parser = boolean)]
    pub leader_elect: bool,
    /// Namespace of the Lease [default: the pod's own, else compute-system]
    #[arg(long, value_name = "NAME", value_parser = optional_text)]
    pub leader_elect_namespace: Option<String>,
    /// Address of /healthz and /readyz. 0 disables them
    #[arg(long, value_name = "ADDRESS", default_value = ":8081")]
    pub health_probe_bind_address: String,
    /// Config file of kind WorkloadOperator. Without it, all defaults apply
    #[arg(long, value_name = "FILE", value_parser = optional_path)]
    pub server_config: Option<PathBuf>,
    /// Feature gates, as a comma-separated list of NAME=BOOL. The only gate with an effect is NetworkingIntegration
    #[arg(long, value_name = "GATES", default_value = "")]
    pub feature_gates: String,
    /// How ConfigMaps and Secrets reach the cells. `selectors` is only for a rollback to the Go operator
    #[arg(long, value_name = "WAY", default_value = "dependencies")]
    pub referenced_data_propagation: PropagationFlag,
    /// Use development defaults for the logs: console format, debug level
    #[arg(long, value_name = "BOOL", default_value = "false", default_missing_value = "true", num_args = 0..=1, require_equals = true, action = ArgAction::Set, value_parser = boolean)]
    pub zap_devel: bool,
    /// Format of the logs [default: json]
    #[arg(long, value_name = "FORM")]
    pub zap_encoder: Option<LogFormat>,
    /// Level of the logs: debug, info, warn, error, a number, or a tracing filter [default: info]
    #[arg(long, value_name = "LEVEL")]
    pub zap_log_level: Option<String>,
    /// Accepted for compatibility. It has no effect
    #[arg(long, value_name = "LEVEL", hide = true)]
    pub zap_stacktrace_level: Option<String>,
    /// Accepted for compatibility. It has no effect: times are in RFC 3339
    #[arg(long, value_name = "FORM", hide = true)]
    pub zap_time_encoding: Option<String>,
    /// Accepted for compatibility. It has no effect: this operator does not manage instance types
    #[arg(long, value_name = "DURATION", hide = true)]
    pub instance_type_deprecation_grace_period: Option<String>,
    /// Accepted for compatibility. It has no effect: this operator does not manage instance types
    #[arg(long, value_name = "NAME", hide = true)]
    pub instance_type_default: Option<String>,
    /// The subcommand. Without one, the operator runs.
    #[command(subcommand)]
    pub command: Option<Command>,
}

/// Subcommands of the binary.
#[derive(Clone, Debug, PartialEq, Eq, Subcommand)]
pub enum Command {
    /// Write the CustomResourceDefinitions of the operator to a folder
    Crds {
        /// Output folder
        #[arg(long, default_value = "crds")]
        dir: PathBuf,
    },
    /// Print the page of all reasons that conditions and Events can have, docs/reasons.md
    Reasons,
    /// Migration from the Go operator's claims to dependencies
    #[command(subcommand)]
    Migration(Migration),
}

/// Subcommands of `migration`.
#[derive(Clone, Debug, PartialEq, Eq, Subcommand)]
pub enum Migration {
    /// Print the preconditions, and the migration phase of each city policy
    Status {
        /// Kubeconfig of the hub, the API server of Karmada
        #[arg(long, value_name = "FILE")]
        federation_kubeconfig: PathBuf,
        /// Context to use in that kubeconfig [default: its current one]
        #[arg(long, value_name = "NAME")]
        federation_context: Option<String>,
    },
}

/// How ConfigMaps and Secrets reach the cells.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum PropagationFlag {
    /// Karmada delivers each one with the deployments that reference it.
    Dependencies,
    /// The policy of one city claims each one, so it reaches only that city.
    Selectors,
}

impl From<PropagationFlag> for Propagation {
    fn from(flag: PropagationFlag) -> Self {
        match flag {
            PropagationFlag::Dependencies => Self::Dependencies,
            PropagationFlag::Selectors => Self::Selectors,
        }
    }
}

/// Format of the logs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum LogFormat {
    /// Text for people.
    Console,
    /// One JSON object per line.
    Json,
}

/// Accepts any text: `--x=$(VAR)` with an empty variable means absent.
#[allow(clippy::unnecessary_wraps)] // the shape clap asks for
fn optional_path(text: &str) -> Result<PathBuf, String> {
    Ok(PathBuf::from(text))
}

#[allow(clippy::unnecessary_wraps)]
fn optional_text(text: &str) -> Result<String, String> {
    Ok(text.to_owned())
}

impl Flags {
    /// Parses the arguments of the process. Exits the process for `--help` and `--version`.
    ///
    /// # Errors
    /// One line for arguments that clap does not accept.
    pub fn from_args<I, T>(args: I) -> Result<Self, Invalid>
    where
        I: IntoIterator<Item = T>,
        T: Into<std::ffi::OsString> + Clone,
    {
        match Self::try_parse_from(args) {
            Ok(flags) => Ok(flags.without_empty()),
            Err(error) if !error.use_stderr() => error.exit(),
            Err(error) => {
                let text = error.to_string();
                let line = text.lines().take_while(|line| !line.trim().is_empty()).collect::<Vec<_>>().join(" ");
                Err(Invalid(line.trim_start_matches("error: ").to_owned()))
            }
        }
    }

    fn without_empty(mut self) -> Self {
        for path in [&mut self.kubeconfig, &mut self.federation_kubeconfig, &mut self.server_config] {
            path.take_if(|path| path.as_os_str().is_empty());
        }
        for text in [&mut self.federation_context, &mut self.leader_elect_namespace] {
            text.take_if(|text| text.is_empty());
        }
        self
    }
}

/// Parses `:8081`, `127.0.0.1:8081`, `[::1]:8081` or `localhost:8081`; empty and `0` mean not served. Without a host it is
/// `[::]`, which the servers take as both address families.
pub(super) fn bind_address(flag: &str, text: &str) -> Result<Option<SocketAddr>, Invalid> {
    if text.is_empty() || text == "0" {
        return Ok(None);
    }
    let full = if text.starts_with(':') { format!("[::]{text}") } else { text.to_owned() };
    if let Ok(at) = full.parse() {
        return Ok(Some(at));
    }
    let form = || Invalid(format!("{flag} {text:?}: want HOST:PORT, :PORT or 0"));
    let (host, port) = full.rsplit_once(':').filter(|(host, _)| !host.is_empty()).ok_or_else(form)?;
    let port: u16 = port.parse().map_err(|_| form())?;
    let ip = resolve(host).map_err(|why| Invalid(format!("{flag} {text:?}: {why}")))?;
    Ok(Some(SocketAddr::new(ip, port)))
}

/// Returns the address of a host that is given by name, as Go listens on it: the first IPv4 address, else the first.
pub(super) fn resolve(host: &str) -> Result<IpAddr, String> {
    if let Ok(ip) = host.parse() {
        return Ok(ip);
    }
    let found = (host, 0).to_socket_addrs().map_err(|e| format!("cannot resolve the host {host:?}: {e}"))?;
    let found: Vec<IpAddr> = found.map(|at| at.ip()).collect();
    let best = found.iter().find(|ip| ip.is_ipv4()).or(found.first()).copied();
    best.ok_or_else(|| format!("{host:?} has no address"))
}

/// Parses a boolean in any spelling that Go's flags accept.
fn boolean(text: &str) -> Result<bool, String> {
    match text {
        "1" | "t" | "T" | "true" | "TRUE" | "True" => Ok(true),
        "0" | "f" | "F" | "false" | "FALSE" | "False" => Ok(false),
        _ => Err("want true or false".to_owned()),
    }
}

/// Gates of later versions of the Go operator, for features that this operator does not have.
const GATES_WITHOUT_EFFECT: [&str; 4] =
    ["RuntimeClasses", "InstanceTypes", "InstanceConsoleSessions", "InternalDNSPublishing"];

/// Reads `--feature-gates`. The one gate with an effect is `NetworkingIntegration`; those of features that this operator
/// does not have are taken when they are off.
pub(super) fn networking_gate(text: &str) -> Result<bool, Invalid> {
    let mut networks = false;
    for gate in text.split(',').map(str::trim).filter(|gate| !gate.is_empty()) {
        match gate.split_once('=') {
            Some(("NetworkingIntegration", value)) => {
                networks = boolean(value).map_err(|why| Invalid(format!("--feature-gates {gate}: {why}")))?;
            }
            Some((name, value)) if GATES_WITHOUT_EFFECT.contains(&name) => {
                if boolean(value).map_err(|why| Invalid(format!("--feature-gates {gate}: {why}")))? {
                    return Err(Invalid(format!(
                        "--feature-gates {gate}: this operator does not have that feature; set it to false, or leave it out"
                    )));
                }
            }
            Some((name, _)) => {
                return Err(Invalid(format!("--feature-gates: unknown gate {name:?}; known: NetworkingIntegration")));
            }
            None => return Err(Invalid(format!("--feature-gates {gate}: want NAME=true or NAME=false"))),
        }
    }
    Ok(networks)
}

/// Returns zap's level as a tracing filter. kube's own spans only repeat our log lines.
pub(super) fn log_filter(level: Option<&str>, devel: bool) -> Result<Targets, Invalid> {
    let level = level.unwrap_or(if devel { "debug" } else { "info" });
    let level = match level {
        "panic" | "dpanic" | "fatal" => "error",
        "1" => "debug",
        digits if !digits.is_empty() && digits.bytes().all(|b| b.is_ascii_digit()) => "trace",
        other => other,
    };
    let filter =
        if level.contains('=') { level.to_owned() } else { format!("warn,compute_operator={level},kube_client=off") };
    filter.parse().map_err(|_| Invalid(format!("--zap-log-level {level:?}: want debug, info, warn, error or a number")))
}
