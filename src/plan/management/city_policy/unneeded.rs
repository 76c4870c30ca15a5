//! The deletion of a city policy without deployments.
//!
//! After a policy is deleted, the objects that it claimed stay on the cell (fact 13). So a policy is deleted after its last
//! deployment. If it claims companions, it first drops their selectors and waits until they are released. If that takes too
//! long, the policy is deleted anyway, and the residue of its claims is removed later
//! ([`residue`](crate::plan::management::referenced_data::residue)).

use std::{convert::identity, time::Duration};

use jiff::Timestamp;
use kube::ResourceExt;
use serde_json::{Value, json};

use super::city::{ClaimsGivenUp, Decided, Observed, Propagation, step};
use crate::plan::management::observed::facts::{Phase, selects_companions};
use crate::{
    api::{
        karmada::PropagationPolicy,
        meta::{self, annotation, label, manager},
        reason::Reason,
    },
    plan::{
        Hub, Next, Plan, Proof, Write,
        event::{self, Note, Severity},
        ownership,
    },
};

/// True if the policy of a city is known to be unneeded. The project has no deployment in the city (`wanted`), the hub has no
/// copy (`copies`), and all of them can be read (`complete`).
pub fn is_unneeded(wanted: bool, copies: usize, complete: bool) -> bool {
    !wanted && copies == 0 && complete
}

/// Decides about the policy of a city without a known deployment.
pub(super) fn plan(observed: &Observed, now: Timestamp) -> Decided {
    let is_unneeded = is_unneeded(observed.wanted, observed.copies, observed.complete);
    let ours = observed.policy.as_deref().filter(|policy| is_unneeded && ownership::is_city_policy(policy));
    let Some(policy) = ours else { return Plan::nothing() };
    // After a policy is deleted, Karmada keeps its objects on the cell (fact 13). The policy of a city that is needed again is
    // recreated.
    let removal = Proof::not_needed().delete(policy, identity);
    if removal.is_empty() {
        return Plan::nothing();
    }
    let since = policy.annotations().get(annotation::UNNEEDED_SINCE).and_then(|text| text.parse::<Timestamp>().ok());
    let elapsed = |since: Timestamp| now.duration_since(since).unsigned_abs();
    let release = observed.timing.deletion_patience;
    if observed.claimed == 0 {
        // The Go operator writes the policy first: its first deployment may follow.
        let created = policy.metadata.creation_timestamp.as_ref().filter(|_| !ownership::is_managed(policy));
        let left = created.and_then(|created| release.checked_sub(elapsed(created.0))).filter(|left| !left.is_zero());
        return left.map_or_else(|| removal.into_iter().collect(), |left| Plan::until(Vec::new(), Next::After(left)));
    }
    let poll = Next::After(observed.timing.poll);
    let kept = kept_selectors(observed, policy);
    let steps = kept.is_some().then(|| step(observed, policy, Phase::Dependencies, now));
    match since {
        None => {
            let wait = wait(observed, policy, kept, now);
            Plan::until([wait].into_iter().chain(steps).collect(), poll)
        }
        Some(_) if let Some(kept) = kept => {
            let amend = Write::amend(manager::CITY_POLICY, json!({ "spec": kept }), policy);
            Plan::until([amend].into_iter().chain(steps).collect(), poll)
        }
        Some(since) if elapsed(since) < release => Plan::until(Vec::new(), poll),
        Some(since) => give_up(observed, policy, elapsed(since), removal, now),
    }
}

/// Deletes a policy that still has claims after its timeout.
fn give_up(
    observed: &Observed,
    policy: &PropagationPolicy,
    waited: Duration,
    removal: Proof<Write<Hub>>,
    now: Timestamp,
) -> Decided {
    let text = format!(
        "the last deployment of {} was deleted {} s ago, and this policy still claims {} companion(s). The policy is \
         deleted now. The companions stay on the city's cluster until each deployment that needs them has them as \
         dependencies",
        observed.city,
        waited.as_secs(),
        observed.claimed
    );
    let note =
        Note { severity: Severity::Warning, reason: Reason::CompanionsStillClaimed, action: "Deleting", text: &text };
    let event = event::on(policy, "city-policy", &note, now);
    Plan::writes([event].into_iter().chain(removal).collect()).with([ClaimsGivenUp])
}

/// The fields of an unneeded policy without selectors of companions, so that its claims can be released (fact 24). `None` if it
/// selects no companions. On the rollback, its claims pass to another policy when it is deleted.
fn kept_selectors(observed: &Observed, policy: &PropagationPolicy) -> Option<Value> {
    if observed.propagation == Propagation::Selectors || !selects_companions(&policy.spec) {
        return None;
    }
    let mut kept = policy.spec.resource_selectors.clone();
    kept.retain(|selector| selector.kind == "WorkloadDeployment");
    (!kept.is_empty()).then(|| json!({ "resourceSelectors": kept, "propagateDeps": true }))
}

/// Records that an unneeded policy waits, and reports the claims that it waits for.
fn wait(observed: &Observed, policy: &PropagationPolicy, kept: Option<Value>, now: Timestamp) -> Write<Hub> {
    let text = format!(
        "the last deployment of {} was deleted, and this policy still claims {} companion(s). The policy is deleted when \
         they are released, or {} s after the deployment",
        observed.city,
        observed.claimed,
        observed.timing.deletion_patience.as_secs()
    );
    let note = Note { severity: Severity::Normal, reason: Reason::AwaitingCompanions, action: "Deleting", text: &text };
    // The label marks it as ours once it no longer looks like a policy of the Go operator.
    let mut patch = json!({ "metadata": {
        "labels": { label::MANAGED_BY: meta::MANAGED_BY },
        "annotations": { annotation::UNNEEDED_SINCE: now.to_string() },
    } });
    if let Some(kept) = kept {
        patch["spec"] = kept;
    }
    Write::amend(manager::CITY_POLICY, patch, policy).telling(event::on(policy, "city-policy", &note, now))
}
