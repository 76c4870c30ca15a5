//! The config file, `apiserver.config.datumapis.com/v1alpha1` WorkloadOperator. It is strict: an unknown key is an error.

use std::{
    collections::{BTreeMap, BTreeSet},
    path::{Path, PathBuf},
    time::Duration,
};

use serde::Deserialize;

use super::{
    Invalid, Metrics, Webhook,
    serving::{MetricsServer, WebhookServer},
};
use crate::{
    plan::management::{
        city_policy::migration::karmada_version::KarmadaVersion, collector::table::Sweep, federator::repair,
        referenced_data::resolve::Limits,
    },
    timing::Timing,
};

/// Default domain of a cluster, which the Go operator takes for granted.
const CLUSTER_DOMAIN: &str = "cluster.local";

/// Largest object in etcd, in Kubernetes' default configuration.
const MAX_OBJECT: u64 = 1 << 20;

/// The checked content of the file.
#[derive(Debug, PartialEq, Eq)]
#[allow(clippy::struct_excessive_bools)] // independent switches of the contract
pub(super) struct File {
    pub(super) metrics: Option<Metrics>,
    pub(super) milo: bool,
    pub(super) internal: Option<String>,
    pub(super) discovery_kubeconfig: Option<PathBuf>,
    pub(super) project_kubeconfig: Option<PathBuf>,
    pub(super) quota_kubeconfig: Option<PathBuf>,
    pub(super) abandon_claims: bool,
    pub(super) cluster_name: Option<String>,
    pub(super) former_names: BTreeSet<String>,
    pub(super) data: bool,
    pub(super) limits: Limits,
    pub(super) city_guard: bool,
    pub(super) karmada: KarmadaVersion,
    pub(super) sweep: Sweep,
    pub(super) repair: repair::Limits,
    pub(super) timing: Timing,
    pub(super) webhook: Option<Webhook>,
    /// Keys without effect, one line each.
    pub(super) warnings: Vec<String>,
}

impl Default for File {
    fn default() -> Self {
        Self {
            metrics: None,
            milo: false,
            internal: None,
            discovery_kubeconfig: None,
            project_kubeconfig: None,
            quota_kubeconfig: None,
            abandon_claims: false,
            cluster_name: None,
            former_names: BTreeSet::new(),
            data: false,
            limits: Limits::default(),
            city_guard: true,
            karmada: KarmadaVersion::DEFAULT,
            sweep: Sweep::default(),
            repair: repair::Limits::default(),
            timing: Timing::default(),
            webhook: None,
            warnings: Vec::new(),
        }
    }
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
struct WorkloadOperator {
    api_version: String,
    kind: String,
    metrics_server: MetricsServer,
    webhook_server: Option<WebhookServer>,
    discovery: Discovery,
    feature_flags: FeatureFlags,
    referenced_data: ReferencedData,
    city_guard: Option<bool>,
    karmada: Karmada,
    cleanup: Cleanup,
    repair: Repair,
    /// Later key of the Go operator: the source of a cell's city. Here the APIs that the cell serves decide.
    location_source: LocationSource,
    /// Seconds by the keys of [`Timing`], for tests.
    timing: BTreeMap<String, f64>,
}

#[derive(Debug, Default, Deserialize, PartialEq, Eq)]
enum LocationSource {
    #[default]
    #[serde(rename = "")]
    Unset,
    NetworkServices,
    Locations,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
struct Cleanup {
    sweep_interval_seconds: Option<u64>,
    max_bindings_per_sweep: Option<usize>,
    stranded_grace_seconds: Option<u64>,
    pause: bool,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
struct Repair {
    per_minute: Option<u32>,
    burst: Option<u32>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
struct Karmada {
    minimum_version: Option<String>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
struct Discovery {
    mode: String,
    internal_service_discovery: bool,
    cluster_domain: String,
    discovery_kubeconfig_path: String,
    project_kubeconfig_path: String,
    cluster_name: String,
    former_cluster_names: BTreeSet<String>,
    quota_kubeconfig_path: String,
    abandon_claims: bool,
    consumer_scoped_projection: Option<serde_json::Value>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
struct FeatureFlags {
    enable_referenced_data_gate: bool,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
struct ReferencedData {
    per_object_limit_bytes: u64,
    aggregate_limit_bytes: u64,
    resolver_usernames: Vec<String>,
}

/// Parses the text of the file at `path`. An empty text means all defaults.
pub(super) fn parse(path: Option<&Path>, text: Option<&str>) -> Result<File, Invalid> {
    let (Some(path), Some(text)) = (path, text) else { return Ok(File::default()) };
    let at = |why: String| Invalid(format!("config file {}: {why}", path.display()));
    if text.lines().all(|line| line.trim().is_empty() || line.trim_start().starts_with('#')) {
        return Ok(File::default());
    }
    let file: WorkloadOperator =
        serde_saphyr::from_str(text).map_err(|e| at(e.to_string().lines().next().unwrap_or_default().to_owned()))?;
    check(&file).map_err(at)
}

fn check(file: &WorkloadOperator) -> Result<File, String> {
    let wanted = ("apiserver.config.datumapis.com/v1alpha1", "WorkloadOperator");
    if (file.api_version.as_str(), file.kind.as_str()) != wanted {
        return Err(format!(
            "apiVersion is {:?} and kind {:?}; want apiVersion {} and kind {}",
            file.api_version, file.kind, wanted.0, wanted.1
        ));
    }
    let milo = match file.discovery.mode.as_str() {
        "" | "single" => false,
        "milo" => true,
        other => return Err(format!("discovery.mode {other:?}: want single or milo")),
    };
    let discovery = &file.discovery;
    for (set, key) in [
        (discovery.internal_service_discovery, "internalServiceDiscovery"),
        (!discovery.discovery_kubeconfig_path.is_empty(), "discoveryKubeconfigPath"),
    ] {
        if set && !milo {
            return Err(format!("discovery.{key}: has no effect without discovery.mode milo; leave it out"));
        }
    }
    if discovery.consumer_scoped_projection.is_some() {
        return Err(
            "discovery.consumerScopedProjection: this operator works on every project that Milo knows; leave it out"
                .into(),
        );
    }
    let domain = discovery.cluster_domain.as_str();
    if !domain.is_empty() && !is_domain(domain) {
        return Err(format!("discovery.clusterDomain {domain:?}: want a domain, such as cluster.local"));
    }
    let domain = if domain.is_empty() { CLUSTER_DOMAIN } else { domain };
    let limits = limits(&file.referenced_data)?;
    let metrics = file.metrics_server.checked()?;
    let names = [("clusterName", &discovery.cluster_name)].into_iter();
    let former = discovery.former_cluster_names.iter().map(|name| ("formerClusterNames", name));
    for (key, name) in names.chain(former) {
        if !label_value(name) || name.is_empty() && key != "clusterName" {
            return Err(format!(
                "discovery.{key} {name:?}: it is a label's value; want at most 63 letters, digits, '-', '_' and '.'"
            ));
        }
    }
    let path = |text: &String| (!text.is_empty()).then(|| PathBuf::from(text));
    Ok(File {
        metrics,
        milo,
        internal: discovery.internal_service_discovery.then(|| domain.to_owned()),
        discovery_kubeconfig: path(&discovery.discovery_kubeconfig_path),
        project_kubeconfig: path(&discovery.project_kubeconfig_path),
        quota_kubeconfig: path(&discovery.quota_kubeconfig_path),
        abandon_claims: discovery.abandon_claims,
        former_names: discovery.former_cluster_names.clone(),
        cluster_name: (!discovery.cluster_name.is_empty()).then(|| discovery.cluster_name.clone()),
        data: file.feature_flags.enable_referenced_data_gate,
        limits,
        city_guard: file.city_guard.unwrap_or(true),
        karmada: karmada(&file.karmada)?,
        sweep: sweep(&file.cleanup)?,
        repair: repairs(&file.repair),
        timing: Timing::with(&file.timing)?,
        webhook: file
            .webhook_server
            .as_ref()
            .map(|given| given.checked(&file.referenced_data.resolver_usernames))
            .transpose()?,
        warnings: warnings(file),
    })
}

/// Returns a warning for each accepted key without effect.
fn warnings(file: &WorkloadOperator) -> Vec<String> {
    let mut warnings = Vec::new();
    if !file.discovery.cluster_domain.is_empty() && !file.discovery.internal_service_discovery {
        warnings.push("discovery.clusterDomain has no effect without discovery.internalServiceDiscovery".to_owned());
    }
    if !file.referenced_data.resolver_usernames.is_empty() && file.webhook_server.is_none() {
        warnings.push(
            "referencedData.resolverUsernames has no effect: only webhookServer checks who writes the annotation; leave it \
             out, or serve the webhooks"
                .to_owned(),
        );
    }
    if file.location_source != LocationSource::Unset {
        warnings.push(
            "locationSource has no effect: the operator reads Locations or LocationBindings, as the cell serves them; \
             leave it out"
                .to_owned(),
        );
    }
    warnings
}

fn sweep(given: &Cleanup) -> Result<Sweep, String> {
    let default = Sweep::default();
    if given.sweep_interval_seconds == Some(0) {
        return Err("cleanup.sweepIntervalSeconds 0: want at least 1; pause: true stops every deletion".into());
    }
    Ok(Sweep {
        interval: given.sweep_interval_seconds.map_or(default.interval, Duration::from_secs),
        max_bindings: given.max_bindings_per_sweep.unwrap_or(default.max_bindings),
        stranded_grace: match given.stranded_grace_seconds {
            None => default.stranded_grace,
            Some(0) => None, // reported but not deleted
            Some(seconds) => Some(Duration::from_secs(seconds)),
        },
        paused: given.pause,
    })
}

/// Returns the least version of Karmada on the hub: one without the bugs that cannot be detected beforehand.
fn karmada(given: &Karmada) -> Result<KarmadaVersion, String> {
    let Some(text) = &given.minimum_version else { return Ok(KarmadaVersion::DEFAULT) };
    let version = KarmadaVersion::parse(text)
        .ok_or_else(|| format!("karmada.minimumVersion: {text:?} is not a released version such as v1.17.0"))?;
    match version.bugs().first() {
        None => Ok(version),
        Some(bug) => Err(format!(
            "karmada.minimumVersion: {version} has these bugs: {}; upgrade Karmada to v1.15.6, v1.16.3, v1.17.0 or later",
            bug.text()
        )),
    }
}

fn repairs(given: &Repair) -> repair::Limits {
    let default = repair::Limits::default();
    repair::Limits {
        per_minute: given.per_minute.unwrap_or(default.per_minute),
        burst: given.burst.unwrap_or(default.burst),
    }
}

/// 0 means the default, as in the Go operator.
fn limits(given: &ReferencedData) -> Result<Limits, String> {
    let default = Limits::default();
    let or = |given: u64, default: u64| if given == 0 { default } else { given };
    let per_object = or(given.per_object_limit_bytes, default.per_object);
    let aggregate = or(given.aggregate_limit_bytes, default.aggregate);
    if per_object > MAX_OBJECT {
        return Err(format!(
            "referencedData.perObjectLimitBytes {per_object}: API servers reject objects of more than {MAX_OBJECT} bytes"
        ));
    }
    if aggregate < per_object {
        return Err(format!(
            "referencedData.aggregateLimitBytes {aggregate}: it is less than perObjectLimitBytes, {per_object}"
        ));
    }
    Ok(Limits { per_object, aggregate })
}

/// True if a text may be the value of a label.
fn label_value(text: &str) -> bool {
    let edge = |c: Option<char>| c.is_none_or(|c| c.is_ascii_alphanumeric());
    text.len() <= 63
        && text.chars().all(|c| c.is_ascii_alphanumeric() || "-_.".contains(c))
        && edge(text.chars().next())
        && edge(text.chars().last())
}
/// True if a text is a DNS name.
fn is_domain(text: &str) -> bool {
    let plain = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-';
    let is_label = |label: &str| {
        (1..=63).contains(&label.len()) && label.chars().all(plain) && !label.starts_with('-') && !label.ends_with('-')
    };
    text.len() <= 253 && text.split('.').all(is_label)
}
