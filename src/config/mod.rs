//! Flags and file -> one plain [`Config`]. Whatever is wrong is one clear line, before any connection is made.

mod file;
mod flags;

use std::{fmt, net::SocketAddr};

pub use flags::{Command, Flags, LogFormat};

use crate::{io::clients::Source, plan::cell::Features};

/// Everything the process needs to know, checked. Tests and overlays build the same struct.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Config {
    /// The cluster the process runs in: the one project of single mode, or the cell.
    pub kubeconfig: Source,
    /// The hub; always there with the management controllers.
    pub federation: Option<Source>,
    /// Whether to run the management controllers.
    pub management: bool,
    /// Whether to run the cell controllers, and what they gate on.
    pub cell: Option<Features>,
    /// Namespace of the Lease, when leader election is on.
    pub leader_election: Option<String>,
    /// Where `/healthz` and `/readyz` are served.
    pub health: Option<SocketAddr>,
    /// Where `/metrics` is served.
    pub metrics: Option<SocketAddr>,
    /// Form of the logs.
    pub log_format: LogFormat,
    /// Filter of the logs.
    pub log_filter: String,
}

/// What is wrong with flags or file: one line that says what, where and how to mend it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Invalid(pub String);

impl fmt::Display for Invalid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for Invalid {}

impl Config {
    /// Checks flags and the text of the file that `--server-config` names (`None` when none is named).
    ///
    /// # Errors
    /// The first thing that is wrong.
    pub fn new(flags: Flags, file: Option<&str>) -> Result<Self, Invalid> {
        // Taken apart completely, so that a flag nobody uses does not compile.
        let Flags {
            kubeconfig,
            federation_kubeconfig,
            federation_context,
            enable_management_controllers: management,
            enable_cell_controllers: cell,
            leader_elect,
            leader_elect_namespace,
            health_probe_bind_address,
            server_config,
            feature_gates,
            zap_devel,
            zap_encoder,
            zap_log_level,
            zap_stacktrace_level: _,
            zap_time_encoding: _,
            command: _,
        } = flags;
        let file = file::parse(server_config.as_deref(), file)?;
        if !management && !cell {
            return Err(Invalid(
                "nothing to run: give --enable-management-controllers, --enable-cell-controllers or both".into(),
            ));
        }
        if management && federation_kubeconfig.is_none() {
            return Err(Invalid("--enable-management-controllers needs the hub: give --federation-kubeconfig".into()));
        }
        if federation_context.is_some() && federation_kubeconfig.is_none() {
            return Err(Invalid("--federation-context is given without --federation-kubeconfig".into()));
        }
        for path in [&kubeconfig, &federation_kubeconfig].into_iter().flatten() {
            if !path.is_file() {
                return Err(Invalid(format!("kubeconfig {}: no such file", path.display())));
            }
        }
        let networks = flags::networking_gate(&feature_gates)?;
        if networks {
            return Err(Invalid(
                "--feature-gates NetworkingIntegration=true: this version has no network controller yet; leave the gate off".into(),
            ));
        }
        Ok(Self {
            kubeconfig: Source { path: kubeconfig, context: None },
            federation: federation_kubeconfig.map(|path| Source { path: Some(path), context: federation_context }),
            management,
            cell: cell.then_some(Features { networks, quota: false }),
            leader_election: leader_elect.then(|| lease_namespace(leader_elect_namespace)),
            health: flags::bind_address("--health-probe-bind-address", &health_probe_bind_address)?,
            metrics: file.metrics,
            log_format: zap_encoder.unwrap_or(if zap_devel { LogFormat::Console } else { LogFormat::Json }),
            log_filter: flags::log_filter(zap_log_level.as_deref(), zap_devel)?,
        })
    }
}

/// The namespace given, else the pod's own, else the one that the manifests use.
fn lease_namespace(given: Option<String>) -> String {
    const POD: &str = "/var/run/secrets/kubernetes.io/serviceaccount/namespace";
    let own = || std::fs::read_to_string(POD).ok().map(|ns| ns.trim().to_owned()).filter(|ns| !ns.is_empty());
    given.or_else(own).unwrap_or_else(|| "compute-system".into())
}

#[cfg(test)]
mod tests;
