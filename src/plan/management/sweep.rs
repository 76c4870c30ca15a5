//! What is left behind on the hub: which bindings may be removed, and which namespaces belong to nobody.

use std::{collections::BTreeMap, time::Duration};

use kube::core::ObjectMeta;

use super::facts::BindingFacts;
use crate::{
    api::{
        karmada::ResourceBinding,
        meta::annotation,
        referenced::{SourceKind, Token},
    },
    plan::{Hub, Object, ObjectVersion, Write},
};

/// How what is left behind is found, and what becomes of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sweep {
    /// How often to look.
    pub interval: Duration,
    /// How many bindings one sweep may remove.
    pub max_bindings: usize,
    /// How long the hub namespaces of a project that is gone are kept; for ever when there is none.
    pub stranded_grace: Option<Duration>,
    /// Whether sweeps delete nothing at all.
    pub paused: bool,
}

impl Default for Sweep {
    fn default() -> Self {
        Self {
            interval: Duration::from_mins(5),
            max_bindings: 100,
            stranded_grace: Some(Duration::from_hours(24)),
            paused: false,
        }
    }
}

/// The companion that a binding's name speaks of.
pub fn companion_of(binding: &str) -> Option<Token> {
    SourceKind::ALL.into_iter().find_map(|kind| {
        let suffix = format!("-{}", kind.as_str().to_lowercase());
        let token = Token { kind, name: binding.strip_suffix(&suffix)?.to_owned() };
        token.is_valid().then_some(token)
    })
}

/// Whether a binding is one of a companion of ours: claimed by a city policy, or attached to deployments of ours.
/// `facts`: what the watch knows of its content.
pub fn is_of_companion(meta: &ObjectMeta, facts: Option<&BindingFacts>) -> bool {
    let empty = BTreeMap::new();
    let policy = meta.annotations.as_ref().unwrap_or(&empty).get(annotation::POLICY_NAME);
    if let Some(policy) = policy {
        return policy.starts_with("city-");
    }
    let attached = meta.labels.iter().flatten().any(|(key, _)| key.starts_with(annotation::DEPENDED_BY));
    let parents = facts.map(|facts| &facts.required_by);
    attached && parents.is_some_and(|parents| parents.iter().all(|by| by.name.ends_with("-workloaddeployment")))
}

/// The writes that remove a binding without its companion: the live read that finds no companion comes first.
pub fn reap(namespace: &str, binding: &ObjectMeta, companion: &Token) -> [Write<Hub>; 2] {
    let object = Object::named::<ResourceBinding>(namespace, binding.name.as_deref().unwrap_or_default());
    [
        Write::confirm_absent(Object {
            kind: companion.kind.into(),
            namespace: namespace.into(),
            name: companion.name.clone(),
        }),
        Write::delete_version(object, ObjectVersion::of(binding)),
    ]
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::api::karmada::BindingSnapshot;

    #[test]
    fn only_bindings_of_companions_are_in_scope() {
        assert_eq!(companion_of("db-secret"), Some(Token::secret("db")));
        assert_eq!(companion_of("settings-configmap"), Some(Token::config_map("settings")));
        assert_eq!(companion_of("web-p-dfw-workloaddeployment"), None);
        assert_eq!(companion_of("-secret"), None);
        let meta = |value: serde_json::Value| -> ObjectMeta { serde_json::from_value(value).unwrap() };
        let by = |policy: &str| meta(json!({ "annotations": { annotation::POLICY_NAME: policy } }));
        assert!(is_of_companion(&by("city-dfw"), None) && !is_of_companion(&by("theirs"), None));
        let attached = meta(json!({ "labels": { "resourcebinding.karmada.io/depended-by-abc": "x" } }));
        let facts = |parent: &str| BindingFacts {
            required_by: vec![BindingSnapshot { name: parent.into(), clusters: vec![] }],
            ..BindingFacts::default()
        };
        assert!(is_of_companion(&attached, Some(&facts("wd-workloaddeployment"))));
        assert!(is_of_companion(&attached, Some(&BindingFacts::default())), "the last parent has gone");
        assert!(!is_of_companion(&attached, Some(&facts("theirs-deployment"))));
        assert!(!is_of_companion(&attached, None), "unknown");
        assert!(!is_of_companion(&meta(json!({})), Some(&BindingFacts::default())));
    }
}
