//! A city policy that nobody needs any more -> its end, and what it waits for.
//!
//! A policy that goes before its last deployment would leave the deployment on the cell (fact 13), and so it would with a
//! companion that it claims: it first selects such no more, and waits until what it claims is released. A wait that is
//! given up leaves nothing for ever, since what a claim has left is taken off whoever left it
//! ([`residue`](crate::plan::management::referenced_data::residue)).

use std::{
    convert::identity,
    time::{Duration, Instant},
};

use jiff::Timestamp;
use serde_json::json;

use super::city::{Decided, Observed, Propagation, Signal, step};
use crate::plan::management::observed::facts::{Phase, selects_companions};
use crate::{
    api::{
        karmada::PropagationPolicy,
        meta::{self, label, manager},
        reason::Reason,
    },
    plan::{
        Hub, Next, Plan, Proof, Write,
        event::{self, Note, Severity},
        ownership,
    },
};

/// Since when nobody has needed a policy, as far as is remembered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Unneeded {
    since: Instant,
    reported: bool,
}

impl Unneeded {
    /// What is to be remembered from now on; nothing once somebody needs the policy, or it is gone.
    pub fn look(before: Option<Self>, unneeded: bool, now: Instant) -> Option<Self> {
        unneeded.then(|| before.unwrap_or(Self { since: now, reported: false }))
    }

    /// The same, once it has been reported why the policy stays.
    #[must_use]
    pub fn reported(self) -> Self {
        Self { reported: true, ..self }
    }

    /// For how long nobody has needed it, and whether it has been reported why it stays.
    pub fn at(self, now: Instant) -> (Duration, bool) {
        (now.saturating_duration_since(self.since), self.reported)
    }
}

/// Whether nobody needs the policy of a city: known to be so, not merely not known otherwise. No living deployment of the
/// project is in the city (`wanted`), no copy of one is on the hub (`copies`), and that is all there is (`complete`).
pub fn is_unneeded(wanted: bool, copies: usize, complete: bool) -> bool {
    !wanted && copies == 0 && complete
}

/// Decides about the policy of a city that has no deployment, as far as is known.
pub(super) fn plan(observed: &Observed, now: Timestamp) -> Decided {
    let is_unneeded = is_unneeded(observed.wanted, observed.copies, observed.complete);
    let ours = observed.policy.as_deref().filter(|policy| is_unneeded && ownership::is_city_policy(policy));
    let Some(policy) = ours else { return Plan::nothing() };
    // Karmada keeps on the cell what a policy has delivered (fact 13), and the policy of a city that is needed after all is
    // recreated.
    let removal = Proof::not_needed().delete(policy, identity);
    if removal.is_empty() {
        return Plan::nothing();
    }
    if observed.claimed == 0 {
        // The Go operator writes the policy first: whoever wrote this one may be about to write its first deployment.
        let grace = observed.timing.policy_claim_release;
        let left =
            grace.checked_sub(observed.unneeded_for).filter(|left| !left.is_zero() && !ownership::is_managed(policy));
        return left.map_or_else(|| removal.into_iter().collect(), |left| Plan::until(Vec::new(), Next::After(left)));
    }
    if let Some(selects_no_more) = drop_selectors(observed, policy) {
        return Plan::writes(vec![selects_no_more, step(observed, policy, Phase::Dependencies, now)]);
    }
    if observed.unneeded_for < observed.timing.policy_claim_release {
        if observed.wait_is_reported || observed.unneeded_for < observed.timing.policy_poll {
            return Plan::until(Vec::new(), Next::After(observed.timing.policy_poll));
        }
        return Plan::until(vec![wait(observed, policy, now)], Next::After(observed.timing.policy_poll))
            .with([Signal::Waits]);
    }
    let text = format!(
        "the last deployment of {} has gone {} s ago, and {} companion(s) are still claimed by this policy: it goes all \
         the same; they stay on the city's cluster until every deployment that needs them has them by its need",
        observed.city,
        observed.unneeded_for.as_secs(),
        observed.claimed
    );
    let note =
        Note { severity: Severity::Warning, reason: Reason::CompanionsStillClaimed, action: "Deleting", text: &text };
    let event = event::on(policy, "city-policy", &note, now);
    Plan::writes([event].into_iter().chain(removal).collect()).with([Signal::GaveUp])
}

/// The patch by which a policy that nobody needs selects companions no more, so that what it claims can be released
/// (fact 24). On the way back to claims its claims pass to another policy when it goes.
fn drop_selectors(observed: &Observed, policy: &PropagationPolicy) -> Option<Write<Hub>> {
    if observed.propagation == Propagation::Selectors || !selects_companions(&policy.spec) {
        return None;
    }
    let mut kept = policy.spec.resource_selectors.clone();
    kept.retain(|selector| selector.kind == "WorkloadDeployment");
    // By its label it is known as ours, when it does not look like one of the Go operator's any more.
    let patch = json!({
        "metadata": { "labels": { label::MANAGED_BY: meta::MANAGED_BY } },
        "spec": { "resourceSelectors": kept, "propagateDeps": true },
    });
    (!kept.is_empty()).then(|| Write::amend(manager::CITY_POLICY, patch, policy))
}

/// Says what a policy that nobody needs waits for.
fn wait(observed: &Observed, policy: &PropagationPolicy, now: Timestamp) -> Write<Hub> {
    let text = format!(
        "the last deployment of {} has gone; {} companion(s) are still claimed by this policy, which goes once they are \
         released, or {} s after the deployment",
        observed.city,
        observed.claimed,
        observed.timing.policy_claim_release.as_secs()
    );
    let note = Note { severity: Severity::Normal, reason: Reason::AwaitingCompanions, action: "Deleting", text: &text };
    event::on(policy, "city-policy", &note, now)
}
