//! The config file, `apiserver.config.datumapis.com/v1alpha1` WorkloadOperator. Strict: what it does not know is an error.

use std::{net::SocketAddr, path::Path};

use serde::Deserialize;

use super::{Invalid, flags};

/// What the file comes to.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct File {
    pub(super) metrics: Option<SocketAddr>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
struct WorkloadOperator {
    api_version: String,
    kind: String,
    metrics_server: MetricsServer,
    webhook_server: Option<serde_json::Value>,
    discovery: Discovery,
    feature_flags: FeatureFlags,
    // Read for its strictness alone, until there is a resolver with limits.
    #[allow(dead_code)]
    referenced_data: ReferencedData,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
struct MetricsServer {
    secure_serving: bool,
    bind_address: String,
    tls: Option<serde_json::Value>,
}

impl Default for MetricsServer {
    fn default() -> Self {
        Self { secure_serving: true, bind_address: "0".into(), tls: None }
    }
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
struct Discovery {
    mode: String,
    internal_service_discovery: bool,
    discovery_kubeconfig_path: String,
    project_kubeconfig_path: String,
    // Stamped on quota claims alone, so that it has no effect without quota.
    #[allow(dead_code)]
    cluster_name: String,
    quota_kubeconfig_path: String,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
struct FeatureFlags {
    enable_referenced_data_gate: bool,
}

// Limits of a resolver that this version does not have yet; harmless to set.
#[allow(dead_code)]
#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
struct ReferencedData {
    per_object_limit_bytes: u64,
    aggregate_limit_bytes: u64,
}

/// Reads the text of the file at `path`. An empty text means all defaults.
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
            "it is a {:?} {:?}; want apiVersion {} and kind {}",
            file.api_version, file.kind, wanted.0, wanted.1
        ));
    }
    match file.discovery.mode.as_str() {
        "" | "single" => {}
        "milo" => return Err("discovery.mode milo: this version works on a single project; leave it out".into()),
        other => return Err(format!("discovery.mode {other:?}: want single")),
    }
    // Each of these would be a promise that this version does not keep; better no start than half an operator.
    let discovery = &file.discovery;
    let unsupported = [
        (file.webhook_server.is_some(), "webhookServer: this version serves no admission webhooks"),
        (discovery.internal_service_discovery, "discovery.internalServiceDiscovery: this version has no milo mode"),
        (
            !discovery.discovery_kubeconfig_path.is_empty(),
            "discovery.discoveryKubeconfigPath: this version has no milo mode",
        ),
        (
            !discovery.project_kubeconfig_path.is_empty(),
            "discovery.projectKubeconfigPath: this version has no milo mode",
        ),
        (
            !discovery.quota_kubeconfig_path.is_empty(),
            "discovery.quotaKubeconfigPath: this version has no quota controller",
        ),
        (
            file.feature_flags.enable_referenced_data_gate,
            "featureFlags.enableReferencedDataGate: this version has no referenced data gate",
        ),
    ];
    if let Some((_, what)) = unsupported.iter().find(|(set, _)| *set) {
        return Err(format!("{what} yet; leave it out"));
    }
    let metrics =
        flags::bind_address("metricsServer.bindAddress", &file.metrics_server.bind_address).map_err(|e| e.0)?;
    if metrics.is_some() && file.metrics_server.secure_serving {
        return Err("metricsServer.secureServing: this version serves plain HTTP; set it to false and guard the port with a NetworkPolicy".into());
    }
    if file.metrics_server.tls.is_some() {
        return Err("metricsServer.tls: this version serves plain HTTP; leave it out".into());
    }
    Ok(File { metrics })
}
