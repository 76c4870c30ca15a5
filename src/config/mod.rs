//! Flags and file -> one plain [`Config`]. Every error is one clear line, before any connection is opened.

mod file;
mod flags;
mod serving;

use std::{collections::BTreeSet, fmt, net::SocketAddr, path::PathBuf};

pub use flags::{Command, Flags, LogFormat, Migration};
use tracing_subscriber::filter::Targets;

use crate::{
    io::{credentials::Source, server::Files},
    plan::{
        cell::claim::{Names, UNNAMED},
        management::{
            city_policy::{migration::karmada_version::KarmadaVersion, policy::Propagation},
            collector::table::Sweep,
            federator::repair,
            referenced_data::resolve::Limits,
        },
    },
    timing::Timing,
};

/// The checked configuration of the process. Tests and overlays build the same struct.
#[derive(Clone, Debug, PartialEq)]
#[allow(clippy::struct_excessive_bools)] // independent switches of the contract
pub struct Config {
    /// The cluster the process runs in: the one project of single mode, or the cell.
    pub kubeconfig: Source,
    /// The hub; required for the management controllers.
    pub federation: Option<Source>,
    /// True if the management controllers run.
    pub management: bool,
    /// True if the cell controllers run.
    pub cell: bool,
    /// The `NetworkingIntegration` feature gate: Workloads wait until their Networks exist, Instances until theirs are ready.
    pub networks: bool,
    /// True if Instances of a cell wait for their referenced data.
    pub data: bool,
    /// Limits of the tenant data that the management controllers copy.
    pub limits: Limits,
    /// The configured way of companions to the cells.
    pub propagation: Propagation,
    /// True if deployments stay on a cluster that loses the city's label.
    pub city_guard: bool,
    /// The least version of Karmada on the hub, as the platform declares it.
    pub karmada: KarmadaVersion,
    /// Settings of the sweep for unneeded objects.
    pub sweep: Sweep,
    /// Rate of repairs on the hub.
    pub repair: repair::Limits,
    /// Periods; other than the defaults only in tests.
    pub timing: Timing,
    /// Source of the management controllers' projects.
    pub discovery: Discovery,
    /// The quota that Instances of a cell wait for.
    pub quota: Option<Quota>,
    /// Without quota: true if Instances that have a ResourceClaim are released nevertheless.
    pub abandon_claims: bool,
    /// Namespace of the Lease, if leader election is on.
    pub leader_election: Option<String>,
    /// Address of `/healthz` and `/readyz`.
    pub health: Option<SocketAddr>,
    /// Endpoint of `/metrics`; `None` if it is off.
    pub metrics: Option<Metrics>,
    /// Endpoint of the admission webhooks; `None` if they are off.
    pub webhook: Option<Webhook>,
    /// Settings without effect, one line each, logged at the start.
    pub warnings: Vec<String>,
    /// Format of the logs.
    pub log_format: LogFormat,
    /// Filter of the logs.
    pub log_filter: Targets,
}

/// Source of projects.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Discovery {
    /// One project: the cluster that the process runs in.
    Single,
    /// The projects of Milo.
    Milo {
        /// The API server that lists them.
        discovery: Source,
        /// Credentials for every project's control plane, and its host unless discovery is internal.
        projects: Source,
        /// Domain of the cluster that has the `ProjectControlPlane`s. Each one is reached by its service's name.
        internal: Option<String>,
    },
}

/// Source of quota.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Quota {
    /// Credentials for every project's control plane, and its host unless discovery is internal.
    pub projects: Source,
    /// Domain of the cluster in which each project is reached by its service's name.
    pub internal: Option<String>,
    /// Current and former names of this cell on its ResourceClaims.
    pub names: Names,
}

/// Endpoint of `/metrics`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Metrics {
    /// Address to serve on.
    pub at: SocketAddr,
    /// Callers and transport.
    pub serving: Serving,
}

/// Callers and transport of an endpoint.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Serving {
    /// To every client, as plain HTTP.
    Plain,
    /// To callers that the API server permits, over TLS: with a certificate from files, or a self-signed one.
    Secure(Option<Files>),
}

/// Endpoint of the admission webhooks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Webhook {
    /// Address to serve on.
    pub at: SocketAddr,
    /// Files of the serving certificate.
    pub files: Files,
    /// User names, besides the operator's own, that may write `expected-referenced-data`.
    pub resolvers: BTreeSet<String>,
}

/// An error in flags or file: one line with the problem, its place, and the fix.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Invalid(pub String);

impl fmt::Display for Invalid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for Invalid {}

impl Config {
    /// Checks the flags and the text of the file that `--server-config` names (`None` if it names none).
    ///
    /// # Errors
    /// The first error.
    pub fn new(flags: Flags, file: Option<&str>) -> Result<Self, Invalid> {
        check_sides(&flags)?;
        // Destructured completely, so that a flag without a use does not compile.
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
            referenced_data_propagation,
            zap_devel,
            zap_encoder,
            zap_log_level,
            zap_stacktrace_level: _,
            zap_time_encoding: _,
            instance_type_deprecation_grace_period,
            instance_type_default,
            command: _,
        } = flags;
        let file = file::parse(server_config.as_deref(), file)?;
        let without_effect = [
            (instance_type_deprecation_grace_period, "--instance-type-deprecation-grace-period"),
            (instance_type_default, "--instance-type-default"),
        ];
        let without_effect = without_effect.into_iter().filter_map(|(given, flag)| ignored(given.as_deref(), flag));
        let local = Source { path: kubeconfig, context: None };
        let files = [&local.path, &federation_kubeconfig, &file.discovery_kubeconfig, &file.project_kubeconfig];
        check_files(files.into_iter().chain([&file.quota_kubeconfig]).flatten())?;
        let networks = flags::networking_gate(&feature_gates)?;
        let at = |path: PathBuf| Source { path: Some(path), context: None };
        let or_local = |path: Option<PathBuf>| path.map_or_else(|| local.clone(), at);
        let unnamed = file.cluster_name.is_none() && cell && !management;
        let quota = match file.quota_kubeconfig.or_else(|| file.project_kubeconfig.clone()).filter(|_| cell) {
            None => None,
            Some(path) => Some(Quota {
                projects: or_local(Some(path)),
                internal: file.internal.clone(),
                names: Names { current: cluster_name(file.cluster_name, file.milo)?, former: file.former_names },
            }),
        };
        let discovery = if file.milo {
            Discovery::Milo {
                discovery: or_local(file.discovery_kubeconfig),
                projects: or_local(file.project_kubeconfig),
                internal: file.internal,
            }
        } else {
            Discovery::Single
        };
        Ok(Self {
            kubeconfig: local,
            federation: federation_kubeconfig.map(|path| Source { path: Some(path), context: federation_context }),
            management,
            cell,
            networks,
            data: file.data,
            limits: file.limits,
            propagation: referenced_data_propagation.into(),
            city_guard: file.city_guard,
            karmada: file.karmada,
            sweep: file.sweep,
            repair: file.repair,
            timing: file.timing,
            discovery,
            abandon_claims: file.abandon_claims,
            warnings: without_effect.chain(file.warnings).chain(without_name(unnamed && quota.is_some())).collect(),
            quota,
            leader_election: leader_elect.then(|| lease_namespace(leader_elect_namespace)),
            health: flags::bind_address("--health-probe-bind-address", &health_probe_bind_address)?,
            metrics: file.metrics,
            webhook: file.webhook,
            log_format: zap_encoder.unwrap_or(if zap_devel { LogFormat::Console } else { LogFormat::Json }),
            log_filter: flags::log_filter(zap_log_level.as_deref(), zap_devel)?,
        })
    }
}

/// Returns the warning for a given flag without effect.
fn ignored(given: Option<&str>, flag: &str) -> Option<String> {
    given.filter(|text| !text.is_empty())?;
    Some(format!("{flag} has no effect: this operator keeps no instance types; leave it out"))
}

/// Returns the warning for a cell that claims quota under a name that others have as well.
fn without_name(unnamed: bool) -> Option<String> {
    unnamed.then(|| {
        "discovery.clusterName is not set: the ResourceClaims of this cell have the name single, like those of every other \
         unnamed cell; each cell finds its own by its uid, but people cannot tell them apart: set a name for each cell"
            .to_owned()
    })
}

/// Refuses flags that leave nothing to run, or too little to run it.
fn check_sides(flags: &Flags) -> Result<(), Invalid> {
    let (management, hub) = (flags.enable_management_controllers, flags.federation_kubeconfig.is_some());
    let problem = if !management && !flags.enable_cell_controllers {
        "nothing to run: set --enable-management-controllers, --enable-cell-controllers or both"
    } else if management && !hub {
        "--enable-management-controllers needs the hub: set --federation-kubeconfig"
    } else if flags.federation_context.is_some() && !hub {
        "--federation-context has no effect without --federation-kubeconfig"
    } else {
        return Ok(());
    };
    Err(Invalid(problem.into()))
}

/// Refuses a missing kubeconfig.
fn check_files<'a>(mut files: impl Iterator<Item = &'a std::path::PathBuf>) -> Result<(), Invalid> {
    let absent = files.find(|path| !path.is_file());
    absent.map_or(Ok(()), |path| Err(Invalid(format!("kubeconfig {}: no such file", path.display()))))
}

/// Returns the cell's name on its claims. In single mode there is no other cell. In milo mode claims must name their cell.
fn cluster_name(given: Option<String>, milo: bool) -> Result<String, Invalid> {
    given.or_else(|| (!milo).then(|| UNNAMED.to_owned())).ok_or_else(|| {
        Invalid("discovery.clusterName is required for quota in milo mode: set a unique name for this cell".into())
    })
}

/// Returns the given namespace, else the pod's own, else the one in the manifests.
fn lease_namespace(given: Option<String>) -> String {
    const POD: &str = "/var/run/secrets/kubernetes.io/serviceaccount/namespace";
    let own = || std::fs::read_to_string(POD).ok().map(|ns| ns.trim().to_owned()).filter(|ns| !ns.is_empty());
    given.or_else(own).unwrap_or_else(|| "compute-system".into())
}

#[cfg(test)]
mod tests;
