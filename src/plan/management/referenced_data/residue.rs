//! Finds residue of former claims on a companion and on its binding, and decides whether the operator may remove it.
//!
//! A companion follows the deployments that need it. Its binding has neither clusters nor a placement of its own (fact 15).
//! Without a living policy, a binding with them keeps the companion in a city after its last user there has left (facts 13, 24,
//! 26). Such a binding also sends the companion to any cluster once the labels of a Cluster change (fact 69). So the present
//! state of the binding decides, not its origin. Karmada may write residue back after it was removed (fact 58), and the policy of
//! the claim may be gone.
//!
//! Karmada removes a policy's claims when the policy is deleted (fact 13). The rest is then unclaimed. A claim that remains
//! counts while its policy may exist. For the policy of a city the hub's caches show that. For another policy each sweep reads it
//! ([`foreign_claim`](super::foreign_claim)).

use serde_json::{Value, json};

use crate::{
    api::{
        karmada::ResourceBinding,
        meta::{annotation, label, manager},
        names::{self, CityPolicyName, Template},
        referenced::DataRef,
    },
    plan::{
        Hub, Object, ObjectVersion, Write,
        management::{
            observed::facts::{BindingFacts, CompanionFacts},
            referenced_data::foreign_claim::ForeignClaim,
        },
    },
};

/// Places of residue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Residue {
    /// True if the companion carries a claim.
    pub on_companion: bool,
    /// True if its binding carries a claim, clusters or a placement.
    pub on_binding: bool,
}

/// Returns the residue on a companion and its binding. `None` if there is none, or if a living policy may have caused it. `lives`
/// returns true if the city policy of that name selects such companions, or may select them. `is_abandoned` returns true if the
/// policy of another owner's claim is known to be gone.
pub fn of(
    companion: &CompanionFacts,
    binding: &BindingFacts,
    lives: impl Fn(&str) -> bool,
    is_abandoned: impl Fn(&ForeignClaim) -> bool,
) -> Option<Residue> {
    let is_companions = matches!(binding.template, Template::Companion(_));
    if !is_companions || companion.terminating || binding.terminating {
        return None;
    }
    let policies = companion.policy.as_deref().into_iter().chain(binding.policy.as_deref());
    if policies.filter(|policy| CityPolicyName::parse(policy).is_some()).any(lives) {
        return None;
    }
    let (mine, bindings) = (companion.foreign_claims()?, binding.foreign_claims()?);
    if !mine.iter().chain(&bindings).all(is_abandoned) {
        return None;
    }
    let residue = Residue { on_companion: companion.is_claimed(), on_binding: binding.has_own_place() };
    (residue.on_companion || residue.on_binding).then_some(residue)
}

/// True if a deployment whose copy expects the companion would lose it when the residue is removed. That is so if the deployment
/// is or may be on a cluster to which its own dependency does not bring the companion. `parent` is the name of the deployment's
/// binding. `goes_to` is the clusters of that binding, `None` while there is no binding.
pub fn is_needed(companions: &BindingFacts, parent: &str, goes_to: Option<&[String]>) -> bool {
    let needed = companions.needed_by(parent);
    match (goes_to, needed) {
        (Some([]), _) | (None, Some(_)) => false,
        (_, None) => true,
        (Some(clusters), Some(by)) => {
            clusters.iter().any(|cluster| by.clusters.iter().all(|brought| brought.name != *cluster))
        }
    }
}

/// Merge patch of the labels that removes the claims of policies.
pub(super) fn no_claim_labels() -> Value {
    json!({ label::KARMADA_CLAIM: null, label::KARMADA_CLUSTER_CLAIM: null })
}

/// Merge patch of the annotations that removes the claims of policies.
pub(super) fn no_claim_annotations() -> Value {
    json!({
        annotation::POLICY_NAME: null,
        annotation::POLICY_NAMESPACE: null,
        annotation::CLUSTER_POLICY_NAME: null,
    })
}

/// Removes the residue of a former claim from a companion's binding.
pub(super) fn release(hub_namespace: &str, data_ref: &DataRef, version: &ObjectVersion) -> Write<Hub> {
    let mut annotations = no_claim_annotations();
    annotations[annotation::APPLIED_PLACEMENT] = Value::Null;
    let patch = json!({
        "metadata": {
            "labels": no_claim_labels(),
            "annotations": annotations,
        },
        "spec": { "clusters": null, "placement": null },
    });
    let name = names::binding_name(data_ref.kind.as_str(), &data_ref.name);
    let object = Object::named::<ResourceBinding>(hub_namespace, &name);
    Write::amend_version(manager::COMPANION, object, patch, version)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        api::karmada::{BindingSnapshot, TargetCluster},
        plan::management::referenced_data::foreign_claim::{ClaimIds, Scope},
    };

    /// Policies of claims. `city-dfw` selects companions. `city-ord` does not, or is gone. `theirs` exists, and `gone` is gone.
    const CLAIMS: [Option<&str>; 5] = [None, Some("city-dfw"), Some("city-ord"), Some("theirs"), Some("gone")];
    /// Cluster-wide policies of claims. Of the last one only the id is known.
    const WIDE: [Option<&str>; 4] = [None, Some("wide"), Some("gone"), Some("id")];

    fn lives(policy: &str) -> bool {
        policy == "city-dfw"
    }

    fn is_abandoned(claim: &ForeignClaim) -> bool {
        claim.name == "gone" && claim.id.as_deref() == Some(if claim.scope == Scope::Hub { "id" } else { "own" })
    }

    /// True if no living policy is behind claims of these policies.
    fn are_abandoned(policy: Option<&str>, wide: Option<&str>) -> bool {
        policy.is_none_or(|name| ["city-ord", "gone"].contains(&name)) && wide.is_none_or(|name| name == "gone")
    }

    fn target(name: &str) -> TargetCluster {
        TargetCluster { name: name.into() }
    }

    /// Returns every companion with every binding that it may have.
    fn all() -> impl Iterator<Item = (CompanionFacts, BindingFacts)> {
        let templates =
            [Template::Companion(DataRef::secret("db")), Template::Deployment("web".into()), Template::Foreign];
        let claims = CLAIMS.into_iter().flat_map(|policy| WIDE.map(|wide| (policy, wide)));
        let both =
            claims.clone().flat_map(move |of_companion| claims.clone().map(move |claims| (of_companion, claims)));
        let pair = |(companions, bindings): ((Option<&str>, Option<&str>), _), bits: u32, template: &Template| {
            let is = |bit: u32| bits & (1 << bit) != 0;
            let ids = Some(Box::new(ClaimIds { policy: Some("own".into()), cluster_policy: Some("id".into()) }));
            let companion = CompanionFacts {
                policy: companions.0.map(Into::into),
                cluster_policy: companions.1.map(Into::into),
                claim_ids: ids.clone(),
                terminating: is(0),
                ..CompanionFacts::default()
            };
            let (policy, wide): (Option<&str>, Option<&str>) = bindings;
            let binding = BindingFacts {
                template: template.clone(),
                policy: policy.map(Into::into),
                cluster_policy: wide.map(Into::into),
                claim_ids: ids,
                terminating: is(1),
                placed: is(2),
                clusters: if is(3) { vec!["cell-dfw".to_owned()] } else { vec![] }.into(),
                ..BindingFacts::default()
            };
            (companion, binding)
        };
        let with_bits = both.flat_map(|claims| (0..1 << 4).map(move |bits| (claims, bits)));
        let pairs = with_bits.collect::<Vec<_>>();
        templates.into_iter().flat_map(move |template| {
            pairs.iter().map(|(claims, bits)| pair(*claims, *bits, &template)).collect::<Vec<_>>()
        })
    }

    /// True if no living policy is behind the claims here.
    fn is_left(companion: &CompanionFacts, binding: &BindingFacts) -> bool {
        are_abandoned(companion.policy.as_deref(), companion.cluster_policy.as_deref())
            && are_abandoned(binding.policy.as_deref(), binding.cluster_policy.as_deref())
            && !companion.terminating
            && !binding.terminating
            && matches!(binding.template, Template::Companion(_))
    }

    #[test]
    fn residue_of_policy_that_may_live_is_none() {
        let mut judged = 0;
        for (companion, binding) in all().filter(|(companion, binding)| !is_left(companion, binding)) {
            assert_eq!(of(&companion, &binding, lives, is_abandoned), None, "{companion:?} {binding:?}");
            judged += 1;
        }
        assert!(judged > 15_000, "{judged}");
    }

    #[test]
    fn residue_without_living_policy_is_all_that_dependencies_do_not_bring() {
        let mut found = 0;
        for (companion, binding) in all().filter(|(companion, binding)| is_left(companion, binding)) {
            let on_companion = companion.policy.is_some() || companion.cluster_policy.is_some();
            let claimed = binding.policy.is_some() || binding.cluster_policy.is_some();
            let on_binding = claimed || binding.placed || !binding.clusters.is_empty();
            let expected = (on_companion || on_binding).then_some(Residue { on_companion, on_binding });
            assert_eq!(of(&companion, &binding, lives, is_abandoned), expected, "{companion:?} {binding:?}");
            found += usize::from(expected.is_some());
        }
        assert_eq!(found, 6 * 6 * 4 - 1, "the claims of each, placement and clusters, but for none of them");
    }

    #[test]
    fn release_of_binding_removes_every_mark_of_a_claim() {
        let write = release("ns-1", &DataRef::secret("db"), &ObjectVersion::new("u", "7"));
        let crate::plan::Op::Merge { body, .. } = write.op else { panic!("{write:?}") };
        let gone = |part: &Value| {
            let keys = part.as_object().unwrap().iter().inspect(|(key, value)| assert!(value.is_null(), "{key}"));
            keys.map(|(key, _)| key.clone()).collect::<Vec<_>>()
        };
        assert_eq!(gone(&body["metadata"]["labels"]), [label::KARMADA_CLUSTER_CLAIM, label::KARMADA_CLAIM]);
        let annotations = [
            annotation::CLUSTER_POLICY_NAME,
            annotation::APPLIED_PLACEMENT,
            annotation::POLICY_NAME,
            annotation::POLICY_NAMESPACE,
        ];
        assert_eq!(gone(&body["metadata"]["annotations"]), annotations);
        assert_eq!(gone(&body["spec"]), ["clusters", "placement"]);
    }

    #[test]
    fn residue_is_needed_unless_dependency_brings_companion_to_every_cluster() {
        let by = |name: &str, clusters: &[&str]| BindingSnapshot {
            name: name.into(),
            clusters: clusters.iter().map(|name| target(name)).collect(),
        };
        let companions = |required_by: Vec<BindingSnapshot>| BindingFacts { required_by, ..BindingFacts::default() };
        let on = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect::<Vec<_>>();
        for (what, required_by, goes_to, expected) in [
            ("no dependency brings it", vec![], Some(on(&["a"])), true),
            ("another brings it", vec![by("other", &["a"])], Some(on(&["a"])), true),
            ("it is brought", vec![by("web", &["a"])], Some(on(&["a"])), false),
            ("it is brought to where the deployment was", vec![by("web", &["a"])], Some(on(&["b"])), true),
            ("it is brought to one of two", vec![by("web", &["a"])], Some(on(&["a", "b"])), true),
            ("the deployment goes nowhere", vec![], Some(on(&[])), false),
            ("the deployment's clusters are unknown", vec![], None, true),
            ("they are unknown, but it is brought along", vec![by("web", &["a"])], None, false),
        ] {
            assert_eq!(is_needed(&companions(required_by), "web", goes_to.as_deref()), expected, "{what}");
        }
    }
}
