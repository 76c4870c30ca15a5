//! References of an Instance to ConfigMaps and Secrets, and the fields that contain them.

use std::collections::BTreeMap;

use kube::ResourceExt;

use super::text;
use crate::api::{
    compute::{InstanceSpec, SandboxContainer, WorkloadDeployment},
    referenced::{self, DataRef, MAX_SOURCE_NAME, SourceKind},
};

/// Maximum number of fields that are named for one object. There may be thousands.
const MAX_ASKING: usize = 3;

/// One ConfigMap or Secret that an Instance references.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Reference {
    /// The referenced object.
    pub data_ref: DataRef,
    /// True if all fields that reference it are optional.
    pub optional: bool,
    /// The first fields that reference it, for users: `container web: env DB_PASSWORD`.
    pub asked_by: Vec<String>,
    /// The number of further fields.
    pub asked_by_more: usize,
}

impl Reference {
    /// Returns the fields that reference it, as text.
    pub fn asking(&self) -> String {
        let named = self.asked_by.join(", ");
        if self.asked_by_more == 0 { named } else { format!("{named} and {} more fields", self.asked_by_more) }
    }
}

/// One field that references a ConfigMap or Secret.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Use {
    /// The referenced object.
    pub data_ref: DataRef,
    /// True if the reference is optional.
    pub optional: bool,
    /// The field, for users: `container web: env DB_PASSWORD`.
    pub asked_by: String,
    /// The path of the field in the Instance's spec: `runtime.sandbox.containers[0].env[1].valueFrom.secretKeyRef.name`.
    pub field: String,
}

/// Reasons why a name cannot be the name of a source.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NameFlaw {
    /// The name is too long. The name of its companion has a suffix, and must still be valid.
    TooLong {
        /// Maximum number of characters.
        limit: usize,
    },
    /// The name is invalid for every API server.
    NoName,
    /// Every cluster writes an object of this name into every namespace, with its own content. A copy would conflict with it, and
    /// the cell's object is not the project's.
    InEveryNamespace,
}

/// The ConfigMap that Kubernetes writes into every namespace. It has the certificates of the cluster's own API server.
const ROOT_CA: &str = "kube-root-ca.crt";

/// Returns why a name is invalid for a source, whether that source exists or not.
pub fn name_flaw(data_ref: &DataRef) -> Option<NameFlaw> {
    if data_ref.name.len() > MAX_SOURCE_NAME {
        Some(NameFlaw::TooLong { limit: MAX_SOURCE_NAME })
    } else if data_ref.kind == SourceKind::ConfigMap && data_ref.name == ROOT_CA {
        Some(NameFlaw::InEveryNamespace)
    } else {
        (!data_ref.is_valid()).then_some(NameFlaw::NoName)
    }
}

/// Returns all fields of an Instance's spec that reference a ConfigMap or Secret, in the order of the spec.
pub fn uses(spec: &InstanceSpec) -> Vec<Use> {
    let mut found = Vec::new();
    if let Some(sandbox) = &spec.runtime.sandbox {
        for (index, container) in sandbox.containers.iter().enumerate() {
            uses_of_container(container, &format!("runtime.sandbox.containers[{index}]"), &mut found);
        }
        for (index, secret) in sandbox.image_pull_secrets.iter().flatten().enumerate() {
            found.push(Use {
                data_ref: DataRef::secret(&secret.name),
                optional: false,
                asked_by: "imagePullSecrets".into(),
                field: format!("runtime.sandbox.imagePullSecrets[{index}].name"),
            });
        }
    }
    for (index, volume) in spec.volumes.iter().flatten().enumerate() {
        let mut add = |data_ref, optional: Option<bool>, field: &str| {
            found.push(Use {
                data_ref,
                optional: optional == Some(true),
                asked_by: format!("volume {}", volume.name),
                field: format!("volumes[{index}].{field}"),
            });
        };
        if let Some(source) = &volume.config_map {
            add(DataRef::config_map(&source.name), source.optional, "configMap.name");
        }
        if let Some(source) = &volume.secret {
            let name = source.secret_name.as_deref().unwrap_or_default();
            add(DataRef::secret(name), source.optional, "secret.secretName");
        }
    }
    found
}

fn uses_of_container(container: &SandboxContainer, path: &str, found: &mut Vec<Use>) {
    let name = &container.name;
    for (index, env) in container.env.iter().flatten().enumerate() {
        let mut add = |data_ref, optional: Option<bool>, field: &str| {
            found.push(Use {
                data_ref,
                optional: optional == Some(true),
                asked_by: format!("container {name}: env {}", env.name),
                field: format!("{path}.env[{index}].valueFrom.{field}.name"),
            });
        };
        let Some(from) = &env.value_from else { continue };
        if let Some(key) = &from.config_map_key_ref {
            add(DataRef::config_map(&key.name), key.optional, "configMapKeyRef");
        }
        if let Some(key) = &from.secret_key_ref {
            add(DataRef::secret(&key.name), key.optional, "secretKeyRef");
        }
    }
    for (index, source) in container.env_from.iter().flatten().enumerate() {
        let mut add = |data_ref, optional: Option<bool>, field: &str| {
            found.push(Use {
                data_ref,
                optional: optional == Some(true),
                asked_by: format!("container {name}: envFrom"),
                field: format!("{path}.envFrom[{index}].{field}.name"),
            });
        };
        if let Some(map) = &source.config_map_ref {
            add(DataRef::config_map(&map.name), map.optional, "configMapRef");
        }
        if let Some(secret) = &source.secret_ref {
            add(DataRef::secret(&secret.name), secret.optional, "secretRef");
        }
    }
}

/// Returns the distinct references of an Instance's spec: ConfigMaps first, sorted by name.
pub fn references(spec: &InstanceSpec) -> Vec<Reference> {
    let mut found: BTreeMap<DataRef, Reference> = BTreeMap::new();
    for Use { data_ref, optional, asked_by, .. } in uses(spec) {
        let known = found.entry(data_ref.clone());
        let known =
            known.or_insert_with(|| Reference { data_ref, optional: true, asked_by: Vec::new(), asked_by_more: 0 });
        known.optional &= optional;
        if known.asked_by.len() < MAX_ASKING {
            known.asked_by.push(text::name(&asked_by));
        } else {
            known.asked_by_more += 1;
        }
    }
    found.into_values().collect()
}

/// Returns the references in one annotation of a deployment.
pub fn annotated(deployment: &WorkloadDeployment, key: &str) -> Vec<DataRef> {
    deployment.annotations().get(key).map(|text| referenced::from_annotation(text)).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn references_are_read_from_all_fields() {
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
        let shown: Vec<(String, bool, String)> =
            references(&spec).into_iter().map(|r| (r.data_ref.to_string(), r.optional, r.asking())).collect();
        let expected = [
            ("ConfigMap/db", false, "volume files"),
            ("ConfigMap/more", true, "container web: envFrom"),
            // One of the two fields is optional, the other is required.
            ("ConfigMap/settings", false, "container web: env A, container side: envFrom"),
            ("Secret/", false, "volume none"),
            ("Secret/db", false, "container web: env P, container web: envFrom"),
            ("Secret/registry", false, "imagePullSecrets"),
            ("Secret/tls", true, "volume keys"),
        ];
        let expected: Vec<_> = expected.iter().map(|(t, o, f)| ((*t).to_owned(), *o, (*f).to_owned())).collect();
        assert_eq!(shown, expected);
        let more: Vec<usize> = references(&spec).into_iter().map(|r| r.asked_by_more).collect();
        assert_eq!(more, [0; 7]);
        let fields: Vec<String> = uses(&spec).into_iter().map(|used| used.field).collect();
        let expected = [
            "runtime.sandbox.containers[0].env[1].valueFrom.configMapKeyRef.name",
            "runtime.sandbox.containers[0].env[2].valueFrom.secretKeyRef.name",
            "runtime.sandbox.containers[0].envFrom[0].configMapRef.name",
            "runtime.sandbox.containers[0].envFrom[1].secretRef.name",
            "runtime.sandbox.containers[1].envFrom[0].configMapRef.name",
            "runtime.sandbox.imagePullSecrets[0].name",
            "volumes[0].configMap.name",
            "volumes[1].secret.secretName",
            "volumes[2].secret.secretName",
        ];
        assert_eq!(fields, expected);
    }
}
