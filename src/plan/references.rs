//! Which ConfigMaps and Secrets an Instance uses, and which of its fields ask for them.

use std::collections::BTreeMap;

use kube::ResourceExt;

use crate::api::{
    compute::{InstanceSpec, SandboxContainer, WorkloadDeployment},
    referenced::{self, DataRef},
};

/// One ConfigMap or Secret that an Instance uses.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Reference {
    /// Which.
    pub data_ref: DataRef,
    /// Whether every field that asks for it can do without.
    pub optional: bool,
    /// The fields that ask, for people: `container web: env DB_PASSWORD`.
    pub asked_by: Vec<String>,
}

/// What an Instance with this spec uses: distinct, ConfigMaps first, by name.
pub fn references(spec: &InstanceSpec) -> Vec<Reference> {
    let mut found = Found::default();
    if let Some(sandbox) = &spec.runtime.sandbox {
        for container in &sandbox.containers {
            found.container(container);
        }
        for secret in sandbox.image_pull_secrets.iter().flatten() {
            found.add(DataRef::secret(&secret.name), None, "imagePullSecrets".into());
        }
    }
    for volume in spec.volumes.iter().flatten() {
        if let Some(source) = &volume.config_map {
            found.add(DataRef::config_map(&source.name), source.optional, format!("volume {}", volume.name));
        }
        if let Some(source) = &volume.secret {
            let name = source.secret_name.as_deref().unwrap_or_default();
            found.add(DataRef::secret(name), source.optional, format!("volume {}", volume.name));
        }
    }
    found.0.into_values().collect()
}

/// The references to data in one of a deployment's annotations.
pub fn annotated(deployment: &WorkloadDeployment, key: &str) -> Vec<DataRef> {
    deployment.annotations().get(key).map(|text| referenced::from_annotation(text)).unwrap_or_default()
}

#[derive(Default)]
struct Found(BTreeMap<DataRef, Reference>);

impl Found {
    fn add(&mut self, data_ref: DataRef, optional: Option<bool>, field: String) {
        let optional = optional == Some(true);
        let known = self.0.entry(data_ref.clone()).or_insert_with(|| Reference {
            data_ref,
            optional: true,
            asked_by: Vec::new(),
        });
        known.optional &= optional;
        known.asked_by.push(field);
    }

    fn container(&mut self, container: &SandboxContainer) {
        let name = &container.name;
        for env in container.env.iter().flatten() {
            let field = || format!("container {name}: env {}", env.name);
            let Some(from) = &env.value_from else { continue };
            if let Some(key) = &from.config_map_key_ref {
                self.add(DataRef::config_map(&key.name), key.optional, field());
            }
            if let Some(key) = &from.secret_key_ref {
                self.add(DataRef::secret(&key.name), key.optional, field());
            }
        }
        for source in container.env_from.iter().flatten() {
            let field = || format!("container {name}: envFrom");
            if let Some(map) = &source.config_map_ref {
                self.add(DataRef::config_map(&map.name), map.optional, field());
            }
            if let Some(secret) = &source.secret_ref {
                self.add(DataRef::secret(&secret.name), secret.optional, field());
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn every_field_that_can_refer_is_read() {
        let spec: InstanceSpec = serde_json::from_value(json!({
            "runtime": { "resources": { "instanceType": "t" }, "sandbox": {
                "containers": [
                    { "name": "web", "image": "i",
                      "env": [
                        { "name": "PLAIN", "value": "x" },
                        { "name": "A", "valueFrom": { "configMapKeyRef": { "name": "settings", "key": "a" } } },
                        { "name": "P", "valueFrom": { "secretKeyRef": { "name": "db", "key": "p", "optional": true } } },
                      ],
                      "envFrom": [{ "configMapRef": { "name": "more", "optional": true } }, { "secretRef": { "name": "db" } }] },
                    { "name": "side", "image": "i", "envFrom": [{ "configMapRef": { "name": "settings", "optional": true } }] },
                ],
                "imagePullSecrets": [{ "name": "registry" }],
            }},
            "networkInterfaces": [],
            "volumes": [
                { "name": "files", "configMap": { "name": "db" } },
                { "name": "keys", "secret": { "secretName": "tls", "optional": true } },
                { "name": "none", "secret": {} },
            ],
        }))
        .unwrap();
        let shown: Vec<(String, bool, String)> = references(&spec)
            .into_iter()
            .map(|r| (r.data_ref.to_string(), r.optional, r.asked_by.join(", ")))
            .collect();
        let expected = [
            ("ConfigMap/db", false, "volume files"),
            ("ConfigMap/more", true, "container web: envFrom"),
            // One field can do without, the other cannot.
            ("ConfigMap/settings", false, "container web: env A, container side: envFrom"),
            ("Secret/", false, "volume none"),
            ("Secret/db", false, "container web: env P, container web: envFrom"),
            ("Secret/registry", false, "imagePullSecrets"),
            ("Secret/tls", true, "volume keys"),
        ];
        let expected: Vec<_> = expected.iter().map(|(t, o, f)| ((*t).to_owned(), *o, (*f).to_owned())).collect();
        assert_eq!(shown, expected);
    }
}
