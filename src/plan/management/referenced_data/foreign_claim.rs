//! Claims of foreign policies on companions and their bindings, and the check that the policy of a claim is gone.
//!
//! When a policy is deleted, Karmada removes its claims. It finds them by the kinds that the policy still selects and by the mark
//! on the object. Claims that Karmada misses stay for ever and name a policy that is gone. So do claims that are written back
//! from an old read (fact 58). The operator does not watch foreign policies. A live read shows whether one exists.

use kube::core::ObjectMeta;
use serde::{Deserialize, Serialize};

use crate::{
    api::{karmada::PropagationPolicy, meta::label, names::CityPolicyName},
    plan::{Kind, Object},
};

/// Ids of the policies that claim an object.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ClaimIds {
    /// Id of the PropagationPolicy.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub policy: Option<String>,
    /// Id of the ClusterPropagationPolicy.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cluster_policy: Option<String>,
}

impl ClaimIds {
    /// Returns the ids on an object. `None` if it has none.
    pub fn of(meta: &ObjectMeta) -> Option<Box<Self>> {
        let id = |key: &str| meta.labels.as_ref()?.get(key).cloned();
        let ids = Self { policy: id(label::KARMADA_CLAIM), cluster_policy: id(label::KARMADA_CLUSTER_CLAIM) };
        (ids != Self::default()).then(|| Box::new(ids))
    }
}

/// Scope of a policy.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Scope {
    /// The policy's namespace: a PropagationPolicy.
    Namespace,
    /// The whole hub: a ClusterPropagationPolicy.
    Hub,
}

/// Claim of a policy that is not the policy of a city.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct ForeignClaim {
    /// Scope of the policy.
    pub scope: Scope,
    /// Name of the policy.
    pub name: String,
    /// Id of the policy. `None` if the claim has none.
    pub id: Option<String>,
}

impl ForeignClaim {
    /// Returns the policy of a claim on an object in this namespace.
    pub fn policy(&self, namespace: &str) -> Object {
        match self.scope {
            Scope::Namespace => Object::named::<PropagationPolicy>(namespace, &self.name),
            Scope::Hub => {
                Object { kind: Kind::ClusterPropagationPolicy, namespace: String::new(), name: self.name.clone() }
            }
        }
    }

    /// True if the policy is gone. `found` is the result of a live read under its name: nothing, or a policy with another id,
    /// which was created later. If one of the two has no id, they may be the same.
    pub fn is_abandoned(&self, found: Option<&ObjectMeta>) -> bool {
        let Some(found) = found else { return true };
        let ids = ClaimIds::of(found).unwrap_or_default();
        let found = match self.scope {
            Scope::Namespace => ids.policy,
            Scope::Hub => ids.cluster_policy,
        };
        self.id.as_ref().zip(found.as_ref()).is_some_and(|(id, found)| id != found)
    }
}

/// Returns the claims of policies that are not the policy of a city. The arguments are the names and ids on the object.
/// `None` if a claim names no policy: then no live read can look for it.
pub(crate) fn all(
    policy: Option<&str>,
    cluster_policy: Option<&str>,
    ids: Option<&ClaimIds>,
) -> Option<Vec<ForeignClaim>> {
    let id = |of: fn(&ClaimIds) -> &Option<String>| ids.and_then(|ids| of(ids).clone());
    let mut claims = Vec::new();
    if let Some(name) = policy.filter(|name| CityPolicyName::parse(name).is_none()) {
        claims.push(ForeignClaim { scope: Scope::Namespace, name: name.to_owned(), id: id(|ids| &ids.policy) });
    }
    if let Some(name) = cluster_policy {
        let id = id(|ids| &ids.cluster_policy);
        if id.as_deref() == Some(name) {
            return None; // a claim without a name has its id in place of the name
        }
        claims.push(ForeignClaim { scope: Scope::Hub, name: name.to_owned(), id });
    }
    Some(claims)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;
    use crate::{
        api::{
            karmada::{ResourceBinding, ResourceBindingSpec},
            meta::annotation,
        },
        plan::management::observed::facts::{BindingFacts, CompanionFacts},
    };

    const PP: [&str; 2] = [annotation::POLICY_NAME, label::KARMADA_CLAIM];
    const CPP: [&str; 2] = [annotation::CLUSTER_POLICY_NAME, label::KARMADA_CLUSTER_CLAIM];

    /// Returns metadata with these names and ids of policies.
    fn claimed(claims: &[([&str; 2], Option<&str>, Option<&str>)]) -> ObjectMeta {
        let (mut annotations, mut labels) = (BTreeMap::new(), BTreeMap::new());
        for ([name_key, id_key], name, id) in claims {
            annotations.extend(name.map(|name| ((*name_key).to_owned(), name.to_owned())));
            labels.extend(id.map(|id| ((*id_key).to_owned(), id.to_owned())));
        }
        ObjectMeta { annotations: Some(annotations), labels: Some(labels), ..ObjectMeta::default() }
    }

    fn claim(scope: Scope, name: &str, id: Option<&str>) -> ForeignClaim {
        ForeignClaim { scope, name: name.into(), id: id.map(Into::into) }
    }

    #[test]
    fn foreign_claims_without_policy_name_are_none() {
        let theirs = |id| claim(Scope::Namespace, "theirs", id);
        let wide = |id| claim(Scope::Hub, "wide", id);
        for (what, meta, expected) in [
            ("no policy's", claimed(&[]), Some(vec![])),
            ("a city's", claimed(&[(PP, Some("city-dfw"), Some("1"))]), Some(vec![])),
            ("theirs", claimed(&[(PP, Some("theirs"), Some("1"))]), Some(vec![theirs(Some("1"))])),
            ("of the whole hub", claimed(&[(CPP, Some("wide"), Some("2"))]), Some(vec![wide(Some("2"))])),
            (
                "of both",
                claimed(&[(PP, Some("theirs"), Some("1")), (CPP, Some("wide"), Some("2"))]),
                Some(vec![theirs(Some("1")), wide(Some("2"))]),
            ),
            ("of the whole hub, without its id", claimed(&[(CPP, Some("wide"), None)]), Some(vec![wide(None)])),
            ("of the whole hub, without its name", claimed(&[(CPP, None, Some("2"))]), None),
            ("that and another", claimed(&[(PP, Some("theirs"), Some("1")), (CPP, None, Some("2"))]), None),
        ] {
            assert_eq!(CompanionFacts::of(&meta).foreign_claims(), expected, "{what}");
            let mut binding = ResourceBinding::new("db-secret", ResourceBindingSpec::default());
            binding.spec.resource.kind = "Secret".into();
            binding.spec.resource.name = "db".into();
            binding.metadata = meta;
            assert_eq!(BindingFacts::of(binding).foreign_claims(), expected, "{what}");
        }
    }

    #[test]
    fn foreign_claim_is_abandoned_if_policy_is_absent_or_has_another_id() {
        for (scope, keys, others) in [(Scope::Namespace, PP, CPP), (Scope::Hub, CPP, PP)] {
            let found = |id| claimed(&[(keys, None, id)]);
            let named = claim(scope, "theirs", Some("1"));
            assert!(named.is_abandoned(None));
            assert!(named.is_abandoned(Some(&found(Some("2")))), "another of its name");
            assert!(!named.is_abandoned(Some(&found(Some("1")))));
            assert!(!named.is_abandoned(Some(&found(None))), "Karmada has given it none yet");
            assert!(!named.is_abandoned(Some(&claimed(&[(others, None, Some("2"))]))), "an id of the other kind");
            let nameless = claim(scope, "theirs", None);
            assert!(nameless.is_abandoned(None));
            assert!(!nameless.is_abandoned(Some(&found(Some("2")))), "the claim does not say which it is");
        }
    }

    #[test]
    fn foreign_claim_policy_has_kind_of_its_scope() {
        let policy = |scope| claim(scope, "theirs", None).policy("ns-1").to_string();
        assert_eq!(policy(Scope::Namespace), "PropagationPolicy ns-1/theirs");
        assert_eq!(policy(Scope::Hub), "ClusterPropagationPolicy theirs");
    }
}
