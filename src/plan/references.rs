//! Which ConfigMaps and Secrets an Instance uses, and which of its fields ask for them.

use std::collections::BTreeMap;

use kube::ResourceExt;

use super::text;
use crate::api::{
    compute::{InstanceSpec, SandboxContainer, WorkloadDeployment},
    referenced::{self, DataRef, MAX_SOURCE_NAME, SourceKind},
};

/// Fields that are named of those that ask for one object; thousands may.
const MAX_ASKING: usize = 3;

/// One ConfigMap or Secret that an Instance uses.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Reference {
    /// Which.
    pub data_ref: DataRef,
    /// Whether every field that asks for it can do without.
    pub optional: bool,
    /// The first fields that ask, for people: `container web: env DB_PASSWORD`.
    pub asked_by: Vec<String>,
    /// How many more ask.
    pub asked_by_more: usize,
}

impl Reference {
    /// The fields that ask, in words.
    pub fn asking(&self) -> String {
        let named = self.asked_by.join(", ");
        if self.asked_by_more == 0 { named } else { format!("{named} and {} more fields", self.asked_by_more) }
    }
}

/// One field that asks for a ConfigMap or Secret.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Use {
    /// What it asks for.
    pub data_ref: DataRef,
    /// Whether it can do without.
    pub optional: bool,
    /// The field, for people: `container web: env DB_PASSWORD`.
    pub asked_by: String,
    /// The field within the Instance's spec: `runtime.sandbox.containers[0].env[1].valueFrom.secretKeyRef.name`.
    pub field: String,
}

/// Why a name can be no source's.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NameFlaw {
    /// On its way to the cells the name gets an ending, and must still be one.
    TooLong {
        /// The most characters that it may have.
        limit: usize,
    },
    /// No API server takes it.
    NoName,
    /// Every cluster writes an object of this name into every namespace, each with a content of its own: a copy would be
    /// fought over, and what the cell has already is not what the project has.
    InEveryNamespace,
}

/// ConfigMap that Kubernetes writes into every namespace: the certificates of the cluster's own API server.
const ROOT_CA: &str = "kube-root-ca.crt";

/// What is wrong with the name of a source, whether there is one or not.
pub fn name_flaw(data_ref: &DataRef) -> Option<NameFlaw> {
    if data_ref.name.len() > MAX_SOURCE_NAME {
        Some(NameFlaw::TooLong { limit: MAX_SOURCE_NAME })
    } else if data_ref.kind == SourceKind::ConfigMap && data_ref.name == ROOT_CA {
        Some(NameFlaw::InEveryNamespace)
    } else {
        (!data_ref.is_valid()).then_some(NameFlaw::NoName)
    }
}

/// Every field of an Instance's spec that asks for a ConfigMap or Secret, in the order of the spec.
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

/// What an Instance with this spec uses: distinct, ConfigMaps first, by name.
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

/// The references to data in one of a deployment's annotations.
pub fn annotated(deployment: &WorkloadDeployment, key: &str) -> Vec<DataRef> {
    deployment.annotations().get(key).map(|text| referenced::from_annotation(text)).unwrap_or_default()
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
        let shown: Vec<(String, bool, String)> =
            references(&spec).into_iter().map(|r| (r.data_ref.to_string(), r.optional, r.asking())).collect();
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
