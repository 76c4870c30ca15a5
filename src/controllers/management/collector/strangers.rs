//! Policies of others that have claimed companions: whether they are still there, which each sweep asks.
//!
//! Nobody here watches them. A look at a companion goes by the last answer, and without one the policy counts as alive.

use std::collections::BTreeMap;

use crate::controllers::management::{
    hub::hub_cache::{ForeignClaims, HubCache},
    wiring::index::Index,
};
use crate::{
    api::referenced::SourceKind,
    controllers::{is_silence, worst},
    io::{Error, store::ObjectKey},
    plan::{
        Object,
        management::{collector::sweep, referenced_data::foreign_claim::ForeignClaim},
    },
};

/// Asks for each policy once, whatever it has claimed. One that cannot be read counts as alive.
pub(crate) async fn look(hub: &HubCache, paused: bool) -> Result<(), Error> {
    let mut policies: BTreeMap<Object, ForeignClaims> = BTreeMap::new();
    for (namespace, claim) in claims(hub, paused) {
        policies.entry(claim.policy(&namespace)).or_default().insert((namespace, claim));
    }
    let (mut of_nobody, mut failed) = (ForeignClaims::new(), Vec::new());
    for (policy, claims) in policies {
        match hub.plane.read_metadata(&policy).await {
            Ok(found) => of_nobody.extend(claims.into_iter().filter(|(_, claim)| claim.is_of_nobody(found.as_ref()))),
            Err(error) => {
                let ends = is_silence(&error);
                failed.push(error);
                if ends {
                    break;
                }
            }
        }
    }
    hub.note_of_nobody(of_nobody);
    worst(failed).map_or(Ok(()), Err)
}

/// What policies of others have claimed of companions and their bindings, where sweeps do anything.
fn claims(hub: &HubCache, paused: bool) -> ForeignClaims {
    let mut found = ForeignClaims::new();
    let mut note = |key: &ObjectKey, claims: Option<Vec<ForeignClaim>>| {
        let namespace = hub.namespaces.get(&ObjectKey::new("", &key.namespace));
        if !sweep::is_paused(namespace.as_deref(), paused) {
            found.extend(claims.into_iter().flatten().map(|claim| (key.namespace.to_string(), claim)));
        }
    };
    for kind in SourceKind::ALL {
        for (key, companion) in hub.companions(kind).entries_by_index(&Index::ClaimedByOthers) {
            note(&key, companion.foreign_claims());
        }
    }
    for (key, binding) in hub.bindings.entries_by_index(&Index::ClaimedByOthers) {
        note(&key, binding.foreign_claims());
    }
    found
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use serde_json::json;

    use super::*;
    use crate::{
        api::meta::label,
        controllers::management::{Parts, fixtures},
        io::store::Incoming,
        plan::management::observed::facts::BindingFacts,
    };

    #[tokio::test]
    async fn a_policy_that_cannot_be_asked_for_counts_as_alive_from_then_on() {
        let parts = Parts::of_tests();
        let hub = &parts.hub;
        let named = [(label::UPSTREAM_CLUSTER, "cluster-shop"), (label::UPSTREAM_NAMESPACE, "web")];
        hub.namespaces.replace(vec![fixtures::namespace("ns-u", "h", &named)], 1);
        let binding = BindingFacts::of(
            serde_json::from_value(json!({
                "metadata": {
                    "name": "db-secret", "namespace": "ns-u", "uid": "b", "resourceVersion": "3",
                    "annotations": { "propagationpolicy.karmada.io/name": "theirs" },
                },
                "spec": { "resource": { "kind": "Secret", "name": "db" }, "clusters": [{ "name": "cell-dfw" }] },
            }))
            .unwrap(),
        );
        let key = ObjectKey::new("ns-u", "db-secret");
        hub.bindings.replace(vec![Incoming { key, uid: "b".into(), version: 3, value: Some(Arc::new(binding)) }], 3);
        let found = claims(hub, false);
        let (namespace, claim) = found.first().expect("it is claimed").clone();
        assert_eq!((found.len(), &*namespace, &*claim.name), (1, "ns-u", "theirs"));
        assert!(claims(hub, true).is_empty(), "a sweep that is paused asks for nothing");
        hub.note_of_nobody(found);
        assert!(hub.is_of_nobody("ns-u", &claim) && !hub.is_of_nobody("ns-v", &claim));
        look(hub, false).await.expect_err("nobody answers");
        assert!(!hub.is_of_nobody("ns-u", &claim), "what was known before is no answer");
    }
}
