//! The operator's webhooks with a certificate of the testbed, and the configuration by which API servers call them.

use std::path::PathBuf;

use anyhow::{Context, Result};
use base64::{Engine, engine::general_purpose::STANDARD};
use kube::{
    Api, Client,
    api::{ApiResource, DeleteParams, DynamicObject, GroupVersionKind},
};
use serde_json::{Value, json};

use crate::{Testbed, binaries, control_plane::free_port, manifests};

/// The address and the certificate of a manager's webhooks.
#[derive(Debug)]
pub struct Webhooks {
    port: u16,
    bed: PathBuf,
    certificates: PathBuf,
}

impl Webhooks {
    /// Reserves a free port, and creates a folder with a certificate for it.
    pub fn new(bed: &Testbed) -> Result<Self> {
        let certificates = bed.dir().join("admission");
        std::fs::create_dir_all(&certificates)?;
        let this = Self { port: free_port()?, bed: bed.dir().into(), certificates };
        this.serve_under("server")?;
        Ok(this)
    }

    /// Returns the port on 127.0.0.1.
    pub fn port(&self) -> u16 {
        self.port
    }

    /// Returns the webhook section of the manager's config file, in YAML.
    pub fn config(&self) -> String {
        let dir = self.certificates.display();
        format!("webhookServer:\n  host: 127.0.0.1\n  port: {}\n  tls:\n    certDir: {dir}\n", self.port)
    }

    /// Replaces the certificate by another one of the testbed (`server`, `front-proxy`).
    pub fn serve_under(&self, name: &str) -> Result<()> {
        for (ending, file) in [("key", "tls.key"), ("crt", "tls.crt")] {
            let beside = self.certificates.join(format!("{file}.new"));
            std::fs::copy(self.bed.join(format!("{name}.{ending}")), &beside)?;
            std::fs::rename(beside, self.certificates.join(file))?;
        }
        Ok(())
    }

    /// Configures this project's API server to call the webhooks: the configuration of `config/`, at their address.
    pub async fn ask_from(&self, project: &Client) -> Result<()> {
        let text = std::fs::read_to_string(binaries::root().join("config/base/webhook/validating.yaml"))?;
        let mut configuration = manifests::documents(&text)?.into_iter().next().context("no configuration")?;
        let authority = STANDARD.encode(std::fs::read(self.bed.join("ca.crt"))?);
        for webhook in configuration["webhooks"].as_array_mut().context("no webhooks")? {
            let path = webhook["clientConfig"]["service"]["path"].as_str().context("no path")?.to_owned();
            let url = format!("https://127.0.0.1:{}{path}", self.port);
            webhook["clientConfig"] = json!({ "url": url, "caBundle": authority });
        }
        manifests::apply_value(project, configuration).await?;
        Ok(())
    }

    /// Removes the configuration from this project's API server.
    pub async fn leave(&self, project: &Client) -> Result<()> {
        let kind = GroupVersionKind::gvk("admissionregistration.k8s.io", "v1", "ValidatingWebhookConfiguration");
        let all: Api<DynamicObject> = Api::all_with(project.clone(), &ApiResource::from_gvk(&kind));
        all.delete("compute-validating", &DeleteParams::default()).await?;
        Ok(())
    }
}

/// Returns a role with these rules, bound to a user in a namespace.
pub fn role(user: &str, namespace: &str, rules: &Value) -> [Value; 2] {
    const GROUP: &str = "rbac.authorization.k8s.io";
    let metadata = json!({ "name": user, "namespace": namespace });
    [
        json!({ "apiVersion": format!("{GROUP}/v1"), "kind": "Role", "metadata": metadata, "rules": rules }),
        json!({
            "apiVersion": format!("{GROUP}/v1"), "kind": "RoleBinding", "metadata": metadata,
            "roleRef": { "apiGroup": GROUP, "kind": "Role", "name": user },
            "subjects": [{ "apiGroup": GROUP, "kind": "User", "name": user }],
        }),
    ]
}

/// Returns one rule of a role. It covers every name if `names` is empty.
pub fn rule(group: &str, resources: &[&str], verbs: &[&str], names: &[&str]) -> Value {
    json!({ "apiGroups": [group], "resources": resources, "verbs": verbs, "resourceNames": names })
}
