//! Policies of others that have claimed companions: whether they are still there, which each sweep asks.
//!
//! Nobody here watches them. A look at a companion goes by the last answer, and without one the policy counts as alive.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::{Mutex, PoisonError},
};

use super::{hub_cache::HubCache, index::Index};
use crate::{
    api::referenced::SourceKind,
    controllers::{is_silence, worst},
    io::{Error, store::ObjectKey},
    plan::{
        Object,
        management::{foreign_claim::ForeignClaim, sweep},
    },
};

/// Claims by hub namespace.
type Claims = BTreeSet<(String, ForeignClaim)>;

/// What the last sweep has found.
#[derive(Default)]
pub(super) struct Strangers {
    /// Claims whose policy is gone.
    of_nobody: Mutex<Claims>,
}

impl Strangers {
    /// Whether the policy is known to be gone that has claimed something in a hub namespace.
    pub(super) fn is_of_nobody(&self, namespace: &str, claim: &ForeignClaim) -> bool {
        let of_nobody = self.of_nobody.lock().unwrap_or_else(PoisonError::into_inner);
        of_nobody.contains(&(namespace.to_owned(), claim.clone()))
    }

    fn note(&self, of_nobody: Claims) {
        *self.of_nobody.lock().unwrap_or_else(PoisonError::into_inner) = of_nobody;
    }
}

/// Asks for each policy once, whatever it has claimed. One that cannot be read counts as alive.
pub(super) async fn look(hub: &HubCache, paused: bool) -> Result<(), Error> {
    let mut policies: BTreeMap<Object, Claims> = BTreeMap::new();
    for (namespace, claim) in claims(hub, paused) {
        policies.entry(claim.policy(&namespace)).or_default().insert((namespace, claim));
    }
    let (mut of_nobody, mut failed) = (Claims::new(), Vec::new());
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
    hub.strangers.note(of_nobody);
    worst(failed).map_or(Ok(()), Err)
}

/// What policies of others have claimed of companions and their bindings, where sweeps do anything.
fn claims(hub: &HubCache, paused: bool) -> Claims {
    let mut found = Claims::new();
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
