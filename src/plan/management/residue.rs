//! What former claims have left on a companion and on its binding -> whether it is residue, and may be taken off.
//!
//! A companion follows the deployments that need it: its binding has neither clusters nor a placement of its own (fact 15).
//! Where it has, and no living policy stands behind that, the companion stays in a city after its last user there has left
//! (facts 13, 24, 26), or is sent anywhere once the labels of a Cluster change (fact 69). Residue is therefore what the
//! binding *is*, whoever left it and whenever: Karmada may write it back after it was taken off (fact 58), and the policy
//! whose claim it was may be gone.
//!
//! Judged are the claims of city policies, and bindings that nobody claims. Whether another policy lives is not known
//! here: Karmada takes its claims off when it goes (fact 13), and from then on nobody claims what it has left.

use serde_json::json;

use crate::{
    api::{
        karmada::ResourceBinding,
        meta::{annotation, label, manager},
        names::{self, CityPolicyName, Template},
        referenced::DataRef,
    },
    plan::{
        Hub, Object, ObjectVersion, Write,
        management::facts::{BindingFacts, CompanionFacts},
    },
};

/// Where residue is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Residue {
    /// Whether the companion carries a claim.
    pub on_companion: bool,
    /// Whether its binding carries a claim, clusters or a placement.
    pub on_binding: bool,
}

/// The residue on a companion and its binding; `None` where there is none, or where somebody may stand behind it.
/// `lives` says of a city policy by name whether it selects such companions, or may.
pub fn of(companion: &CompanionFacts, binding: &BindingFacts, lives: impl Fn(&str) -> bool) -> Option<Residue> {
    let is_companions = matches!(binding.template, Template::Companion(_));
    let claimed_for_the_hub = companion.cluster_policy.is_some() || binding.cluster_policy.is_some();
    if !is_companions || claimed_for_the_hub || companion.terminating || binding.terminating {
        return None;
    }
    let mut policies = companion.policy.as_deref().into_iter().chain(binding.policy.as_deref());
    if policies.any(|policy| CityPolicyName::parse(policy).is_none() || lives(policy)) {
        return None;
    }
    let residue = Residue {
        on_companion: companion.policy.is_some(),
        on_binding: binding.policy.is_some() || binding.placed || !binding.clusters.is_empty(),
    };
    (residue.on_companion || residue.on_binding).then_some(residue)
}

/// Whether a deployment whose copy expects the companion goes without it when the residue is taken off: it is, or may be,
/// somewhere, and the companion is not brought there by its need. `parent` is the name of the deployment's binding,
/// `goes_to` what that says; `None` while there is none.
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

/// Takes from a companion's binding what a former claim has left there.
pub(super) fn release(hub_namespace: &str, data_ref: &DataRef, version: &ObjectVersion) -> Write<Hub> {
    let patch = json!({
        "metadata": {
            "labels": { label::KARMADA_CLAIM: null },
            "annotations": {
                annotation::POLICY_NAME: null,
                annotation::POLICY_NAMESPACE: null,
                annotation::APPLIED_PLACEMENT: null,
            },
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
    use crate::api::{
        karmada::{BindingSnapshot, TargetCluster},
        referenced::DataRef,
    };

    /// A policy that may stand behind a claim. `city-dfw` selects companions, `city-ord` does not or is gone.
    const CLAIMS: [Option<&str>; 4] = [None, Some("city-dfw"), Some("city-ord"), Some("theirs")];

    fn lives(policy: &str) -> bool {
        policy == "city-dfw"
    }

    fn target(name: &str) -> TargetCluster {
        TargetCluster { name: name.into() }
    }

    /// Every companion with every binding that it may have.
    fn all() -> impl Iterator<Item = (CompanionFacts, BindingFacts)> {
        let templates =
            [Template::Companion(DataRef::secret("db")), Template::Deployment("web".into()), Template::Foreign];
        let bits = move |bits: u32| {
            let is = |bit: u32| bits & (1 << bit) != 0;
            let claim = |at: u32| CLAIMS[(bits >> at) as usize & 3].map(str::to_owned);
            let companion = CompanionFacts {
                policy: claim(0),
                cluster_policy: is(4).then(|| "wide".to_owned()),
                terminating: is(5),
                ..CompanionFacts::default()
            };
            let binding = BindingFacts {
                policy: claim(2).map(Into::into),
                cluster_policy: is(6).then(|| "wide".to_owned()),
                terminating: is(7),
                placed: is(8),
                clusters: if is(9) { vec!["cell-dfw".to_owned()] } else { vec![] }.into(),
                ..BindingFacts::default()
            };
            (companion, binding)
        };
        let pairs = move |template: Template| {
            (0..1 << 10).map(bits).map(move |(companion, binding)| {
                let template = template.clone();
                (companion, BindingFacts { template, ..binding })
            })
        };
        templates.into_iter().flat_map(pairs)
    }

    #[test]
    fn what_somebody_may_stand_behind_is_no_residue() {
        let mut judged = 0;
        for (companion, binding) in all() {
            let somebody = |policy: Option<&str>| policy.is_some_and(|name| name != "city-ord");
            let kept = somebody(companion.policy.as_deref())
                || somebody(binding.policy.as_deref())
                || companion.cluster_policy.is_some()
                || binding.cluster_policy.is_some()
                || companion.terminating
                || binding.terminating
                || !matches!(binding.template, Template::Companion(_));
            if kept {
                assert_eq!(of(&companion, &binding, lives), None, "{companion:?} {binding:?}");
                judged += 1;
            }
        }
        assert!(judged > 2000, "{judged}");
    }

    #[test]
    fn whatever_a_companion_would_not_have_by_need_alone_is_residue() {
        let companions = |template: &Template| matches!(template, Template::Companion(_));
        let former = |policy: Option<&str>| policy.is_none_or(|name| name == "city-ord");
        let mut found = 0;
        for (companion, binding) in all() {
            let nobody = former(companion.policy.as_deref())
                && former(binding.policy.as_deref())
                && companion.cluster_policy.is_none()
                && binding.cluster_policy.is_none();
            if !nobody || companion.terminating || binding.terminating || !companions(&binding.template) {
                continue;
            }
            let attached = CompanionFacts { policy: None, ..companion.clone() } == companion
                && BindingFacts { policy: None, placed: false, clusters: vec![].into(), ..binding.clone() } == binding;
            let residue = of(&companion, &binding, lives);
            assert_eq!(residue.is_none(), attached, "{companion:?} {binding:?}");
            found += usize::from(residue.is_some());
        }
        assert_eq!(found, 15, "two claims, placement and clusters, but for none of them");
    }

    #[test]
    fn only_who_has_it_by_need_wherever_it_goes_can_do_without_the_residue() {
        let by = |name: &str, clusters: &[&str]| BindingSnapshot {
            name: name.into(),
            clusters: clusters.iter().map(|name| target(name)).collect(),
        };
        let companions = |required_by: Vec<BindingSnapshot>| BindingFacts { required_by, ..BindingFacts::default() };
        let on = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect::<Vec<_>>();
        for (what, required_by, goes_to, expected) in [
            ("nobody brings it", vec![], Some(on(&["a"])), true),
            ("another brings it", vec![by("other", &["a"])], Some(on(&["a"])), true),
            ("it is brought", vec![by("web", &["a"])], Some(on(&["a"])), false),
            ("it is brought to where the deployment was", vec![by("web", &["a"])], Some(on(&["b"])), true),
            ("it is brought to one of two", vec![by("web", &["a"])], Some(on(&["a", "b"])), true),
            ("the deployment goes nowhere", vec![], Some(on(&[])), false),
            ("nobody knows where the deployment goes", vec![], None, true),
            ("nor that, but it is brought along", vec![by("web", &["a"])], None, false),
        ] {
            assert_eq!(is_needed(&companions(required_by), "web", goes_to.as_deref()), expected, "{what}");
        }
    }
}
