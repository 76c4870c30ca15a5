//! The claims of policies that are not ours, on companions and their bindings, and whether the policy behind one is gone.
//!
//! A policy that goes gives back what it has claimed, as far as Karmada finds it then: by the kinds that it still selects, and by
//! the mark on the object. What was missed, or is written back afterwards from what was read before (fact 58), stays for ever and
//! names a policy that is gone. These policies are others', and nobody here watches them: a live read says whether one is there.

use kube::core::ObjectMeta;
use serde::{Deserialize, Serialize};

use crate::{
    api::{karmada::PropagationPolicy, meta::label, names::CityPolicyName},
    plan::{Kind, Object},
};

/// The ids of the policies that claim an object, beside their names.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ClaimIds {
    /// Of the PropagationPolicy.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub policy: Option<String>,
    /// Of the ClusterPropagationPolicy.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cluster_policy: Option<String>,
}

impl ClaimIds {
    /// Those on an object; nothing where there are none.
    pub fn of(meta: &ObjectMeta) -> Option<Box<Self>> {
        let id = |key: &str| meta.labels.as_ref()?.get(key).cloned();
        let ids = Self { policy: id(label::KARMADA_CLAIM), cluster_policy: id(label::KARMADA_CLUSTER_CLAIM) };
        (ids != Self::default()).then(|| Box::new(ids))
    }
}

/// Where a policy counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Scope {
    /// In its namespace: a PropagationPolicy.
    Namespace,
    /// Everywhere: a ClusterPropagationPolicy.
    Hub,
}

/// The claim of a policy that is not a city's.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct ForeignClaim {
    /// Where the policy counts.
    pub scope: Scope,
    /// The policy's name.
    pub name: String,
    /// Its id, where the claim says it.
    pub id: Option<String>,
}

impl ForeignClaim {
    /// The policy that it names, of a claim on what is in this namespace.
    pub fn policy(&self, namespace: &str) -> Object {
        match self.scope {
            Scope::Namespace => Object::named::<PropagationPolicy>(namespace, &self.name),
            Scope::Hub => {
                Object { kind: Kind::ClusterPropagationPolicy, namespace: String::new(), name: self.name.clone() }
            }
        }
    }

    /// True if its policy is gone, by what a live read has found under that name: nothing, or one of another id, which has come
    /// after it. Where either says no id they may be the same.
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

/// The claims on an object of policies that are not a city's, by the names that it gives for its policies and their ids;
/// `None` where one names no policy, so that nobody can look for it.
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
            return None; // the id stands where no name does
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

    /// Metadata with these names and ids of policies.
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
    fn a_claim_names_its_policy_or_nobody_can_look_for_it() {
        let theirs = |id| claim(Scope::Namespace, "theirs", id);
        let wide = |id| claim(Scope::Hub, "wide", id);
        for (what, meta, expected) in [
            ("nobody's", claimed(&[]), Some(vec![])),
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
            ("that beside another", claimed(&[(PP, Some("theirs"), Some("1")), (CPP, None, Some("2"))]), None),
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
    fn a_policy_is_gone_when_nothing_is_found_or_one_of_another_id() {
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
            assert!(!nameless.is_abandoned(Some(&found(Some("2")))), "nobody knows which it is");
        }
    }

    #[test]
    fn a_claim_leads_to_the_policy_of_its_scope() {
        let of = |scope| claim(scope, "theirs", None).policy("ns-1").to_string();
        assert_eq!(of(Scope::Namespace), "PropagationPolicy ns-1/theirs");
        assert_eq!(of(Scope::Hub), "ClusterPropagationPolicy theirs");
    }
}
