//! Policies of other owners that claim companions. No watch brings them, so each sweep checks if they still exist.
//!
//! The companion controller uses the last answer. Without an answer the policy counts as alive.

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
        management::{collector::table::Sweep, referenced_data::foreign_claim::ForeignClaim},
    },
};

/// Reads each policy once, for all of its claims. A policy that cannot be read counts as alive.
pub(crate) async fn read(hub: &HubCache, sweep: Sweep) -> Result<(), Error> {
    let mut policies: BTreeMap<Object, ForeignClaims> = BTreeMap::new();
    for (namespace, claim) in claims(hub, sweep) {
        policies.entry(claim.policy(&namespace)).or_default().insert((namespace, claim));
    }
    let (mut abandoned, mut failed) = (ForeignClaims::new(), Vec::new());
    for (policy, claims) in policies {
        match hub.plane.read_metadata(&policy).await {
            Ok(found) => abandoned.extend(claims.into_iter().filter(|(_, claim)| claim.is_abandoned(found.as_ref()))),
            Err(error) => {
                let ends = is_silence(&error);
                failed.push(error);
                if ends {
                    break;
                }
            }
        }
    }
    hub.set_abandoned_claims(abandoned);
    worst(failed).map_or(Ok(()), Err)
}

/// Returns the claims of such policies on companions and their bindings. Namespaces with paused sweeps are left out.
fn claims(hub: &HubCache, sweep: Sweep) -> ForeignClaims {
    let mut found = ForeignClaims::new();
    let mut note = |key: &ObjectKey, claims: Option<Vec<ForeignClaim>>| {
        let namespace = hub.namespaces.get(&ObjectKey::new("", &key.namespace));
        if !sweep.is_paused(namespace.as_deref()) {
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
        controllers::management::{Context, fixtures},
        io::store::Incoming,
        plan::management::observed::facts::BindingFacts,
    };

    #[tokio::test]
    async fn policy_with_a_failed_read_counts_as_alive() {
        let ctx = Context::of_tests();
        let hub = &ctx.hub;
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
        let found = claims(hub, Sweep::default());
        let (namespace, claim) = found.first().expect("it is claimed").clone();
        assert_eq!((found.len(), &*namespace, &*claim.name), (1, "ns-u", "theirs"));
        assert!(
            claims(hub, Sweep { paused: true, ..Sweep::default() }).is_empty(),
            "a sweep that is paused asks for nothing"
        );
        hub.set_abandoned_claims(found);
        assert!(hub.is_abandoned("ns-u", &claim) && !hub.is_abandoned("ns-v", &claim));
        read(hub, Sweep::default()).await.expect_err("nobody answers");
        assert!(!hub.is_abandoned("ns-u", &claim), "what was known before is no answer");
    }
}
