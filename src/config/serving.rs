//! The sections of the config file about serving metrics and webhooks.

use std::{
    collections::BTreeSet,
    net::{IpAddr, Ipv6Addr, SocketAddr},
    path::PathBuf,
};

use serde::Deserialize;

use super::{Metrics, Serving, Webhook, flags};
use crate::io::server::Files;

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub(super) struct MetricsServer {
    secure_serving: bool,
    bind_address: String,
    tls: Option<ServingFiles>,
}

impl Default for MetricsServer {
    fn default() -> Self {
        Self { secure_serving: true, bind_address: "0".into(), tls: None }
    }
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub(super) struct WebhookServer {
    host: String,
    port: u16,
    tls: ServingFiles,
    #[serde(rename = "clientCAName")]
    client_ca_name: String,
}

impl Default for WebhookServer {
    fn default() -> Self {
        Self { host: String::new(), port: 9443, tls: ServingFiles::default(), client_ca_name: String::new() }
    }
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
struct ServingFiles {
    secret_ref: Option<serde_json::Value>,
    cert_dir: String,
    cert_name: String,
    key_name: String,
}

impl Default for ServingFiles {
    fn default() -> Self {
        Self { secret_ref: None, cert_dir: String::new(), cert_name: "tls.crt".into(), key_name: "tls.key".into() }
    }
}

impl ServingFiles {
    /// Returns the files of the server under this key. `folder` is their default location.
    fn checked(&self, key: &str, folder: &str) -> Result<Files, String> {
        if self.secret_ref.is_some() {
            return Err(format!(
                "{key}.tls.secretRef: certificates are read from files, not from Secrets; mount the Secret as a volume, \
                 and set its folder as {key}.tls.certDir instead"
            ));
        }
        for (part, name) in [("certName", &self.cert_name), ("keyName", &self.key_name)] {
            if name.contains('/') || name.is_empty() {
                return Err(format!("{key}.tls.{part} {name:?}: want the name of a file in certDir"));
            }
        }
        let dir = match self.cert_dir.as_str() {
            "" => std::env::temp_dir().join(folder).join("serving-certs"),
            dir => PathBuf::from(dir),
        };
        Ok(Files { certificate: dir.join(&self.cert_name), key: dir.join(&self.key_name), client_ca: None })
    }
}

impl MetricsServer {
    /// Returns address and transport; `None` if metrics are not served.
    pub(super) fn checked(&self) -> Result<Option<Metrics>, String> {
        let at = flags::bind_address("metricsServer.bindAddress", &self.bind_address).map_err(|e| e.0)?;
        let files = self.tls.as_ref().map(|tls| tls.checked("metricsServer", "k8s-metrics-server")).transpose()?;
        if files.is_some() && !self.secure_serving {
            return Err("metricsServer.tls: has no effect with secureServing: false; leave one of them out".into());
        }
        let serving = if self.secure_serving { Serving::Secure(files) } else { Serving::Plain };
        Ok(at.map(|at| Metrics { at, serving }))
    }
}

impl WebhookServer {
    /// Returns the settings. `resolvers` may write the fields otherwise reserved for the operator.
    pub(super) fn checked(&self, resolvers: &[String]) -> Result<Webhook, String> {
        let files = self.tls.checked("webhookServer", "k8s-webhook-server")?;
        let name = &self.client_ca_name;
        if name.contains('/') {
            return Err(format!("webhookServer.clientCAName {name:?}: want the name of a file in certDir"));
        }
        let host: IpAddr = match self.host.as_str() {
            "" => Ipv6Addr::UNSPECIFIED.into(),
            text => flags::resolve(text).map_err(|why| {
                format!("webhookServer.host: {why}; want an IP address or a name, or an empty text for all")
            })?,
        };
        let client_ca = (!name.is_empty()).then(|| files.certificate.with_file_name(name));
        let resolvers: BTreeSet<String> = resolvers.iter().cloned().collect();
        Ok(Webhook { at: SocketAddr::new(host, self.port), files: Files { client_ca, ..files }, resolvers })
    }
}
