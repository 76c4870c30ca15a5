//! Deployments of a city in a hub namespace -> the city's PropagationPolicy there.
//!
//! A policy of the Go operator also selects companions, and would claim each for its city alone (fact 21). It is led to
//! dependencies in steps that take no copy away (facts 23, 24; the naive single step does, fact 25): first
//! `propagateDeps` with the selectors kept; once every companion is brought to every consumer by its need, the selectors
//! go. Before any of it, one policy alone asks whether Karmada brings dependencies at all, and the others wait for the
//! answer ([`Probe`]). What the claims leave behind, the companions' own plan heals (fact 27). Each step is read off what
//! stands, so it may be cut anywhere.

use std::{
    collections::BTreeMap,
    time::{Duration, Instant},
};

use jiff::Timestamp;
use serde_json::{Map, Value, json};

use super::{
    facts::{Phase, selects_companions},
    guard::{self, Clusters},
    probe::Probe,
};
use crate::{
    api::{
        karmada::{MatchLabels, PolicyPlacement, PropagationPolicy, PropagationPolicySpec, ResourceSelector},
        meta::{self, GROUP, VERSION, label, manager},
        names::CityCode,
        reason::Reason,
        referenced::SourceKind,
    },
    plan::{
        Hub, Next, Op, Plan, Write,
        event::{self, Note, Severity},
        ownership,
    },
    timing::Timing,
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

/// Everything that is known about one city in one hub namespace.
#[allow(clippy::struct_excessive_bools)] // facts, each its own
pub struct Observed<'a> {
    /// The hub namespace.
    pub namespace: &'a str,
    /// The city.
    pub city: &'a CityCode,
    /// Deployments of the city that the hub holds there, also those on their way out.
    pub copies: usize,
    /// Whether a living deployment of a project is to be copied there.
    pub wanted: bool,
    /// Whether that is all: every project's deployments have been seen.
    pub complete: bool,
    /// Whether the namespace is there, and stays.
    pub namespace_lives: bool,
    /// The policy of the city's name.
    pub policy: Option<&'a PropagationPolicy>,
    /// Where the city's deployments are, with the city guard; nothing without it, or while that is not known.
    pub clusters: Option<Clusters<'a>>,
    /// Whether the city guard is on.
    pub guard: bool,
    /// Whether every companion in the namespace is known to be brought to all its consumers by their need.
    pub delivered_by_dependency: bool,
    /// Companions, and bindings of such, that the policy claims.
    pub claimed: usize,
    /// How long nobody has needed it.
    pub unneeded_for: Duration,
    /// Whether it has been reported that it waits for those companions.
    pub wait_is_reported: bool,
    /// How companions are to be brought to the cells.
    pub propagation: Propagation,
    /// Whether Karmada brings dependencies at all; only asked on the way there.
    pub probe: Probe,
    /// On the rollback to claims: what some city will lose by it, in words, and how long ago that was reported. Nothing while
    /// it is not known.
    pub rollback_impact: Option<(Vec<String>, Option<Duration>)>,
    /// How long to wait for what.
    pub timing: Timing,
}

/// How companions are brought to the cells.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Propagation {
    /// They follow the deployments that need them.
    #[default]
    Dependencies,
    /// The Go operator's way, for going back to it: each is claimed by one city's policy, and reaches that city alone.
    Selectors,
}

/// What is to be done about one policy.
#[derive(Debug)]
pub struct Decision {
    /// The writes.
    pub plan: Plan<Write<Hub>>,
    /// What these writes report, to be remembered or counted.
    pub news: Option<News>,
}

/// What is reported about a policy, once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum News {
    /// Nobody needs it, and it waits for companions that it claims.
    Waits,
    /// It goes although companions are still claimed by it.
    GaveUp,
    /// Going back to claims will take data away.
    Warned,
    /// Karmada does not bring dependencies.
    Refused,
}

impl Decision {
    fn reporting(news: News, steps: Vec<Write<Hub>>, next: Next) -> Self {
        Self { plan: Plan::until(steps, next), news: Some(news) }
    }
}

impl From<Plan<Write<Hub>>> for Decision {
    fn from(plan: Plan<Write<Hub>>) -> Self {
        Self { plan, news: None }
    }
}

/// Whether nobody needs the policy: known to be so, not merely not known otherwise.
pub fn is_unneeded(observed: &Observed<'_>) -> bool {
    !observed.wanted && observed.copies == 0 && observed.complete
}

/// Decides the writes for one city.
///
/// A policy that goes before its last deployment would leave the deployment on the cell (fact 13), and so it would with a
/// companion that it claims: it first selects such no more, and waits until what it claims is released. A wait that is
/// given up leaves nothing for ever, since what a claim has left is taken off whoever left it
/// ([`residue`](super::residue)).
pub fn plan(observed: &Observed<'_>, now: Timestamp) -> Decision {
    if observed.wanted || observed.copies > 0 {
        return if observed.namespace_lives { ensure(observed, now) } else { Plan::nothing().into() };
    }
    let ours = observed.policy.filter(|policy| is_unneeded(observed) && ownership::is_managed(*policy));
    let Some(policy) = ours else { return Plan::nothing().into() };
    let Some(delete) = Write::delete(policy) else { return Plan::nothing().into() };
    if observed.claimed == 0 {
        return Plan::writes(vec![delete]).into();
    }
    if let Some(selects_no_more) = drop_selectors(observed, policy) {
        return Plan::writes(vec![selects_no_more, step(observed, policy, Phase::Dependencies, now)]).into();
    }
    if observed.unneeded_for < observed.timing.policy_claim_release {
        if observed.wait_is_reported || observed.unneeded_for < observed.timing.policy_poll {
            return Plan::until(Vec::new(), Next::After(observed.timing.policy_poll)).into();
        }
        return Decision::reporting(
            News::Waits,
            vec![wait(observed, policy, now)],
            Next::After(observed.timing.policy_poll),
        );
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
    Decision::reporting(News::GaveUp, vec![event, delete], Next::Await)
}

/// The patch by which a policy that nobody needs selects companions no more, so that what it claims can be released
/// (fact 24). On the way back to claims its claims pass to another policy when it goes.
fn drop_selectors(observed: &Observed<'_>, policy: &PropagationPolicy) -> Option<Write<Hub>> {
    if observed.propagation == Propagation::Selectors || !selects_companions(&policy.spec) {
        return None;
    }
    let mut kept = policy.spec.resource_selectors.clone();
    kept.retain(|selector| selector.kind == "WorkloadDeployment");
    let patch = json!({ "spec": { "resourceSelectors": kept, "propagateDeps": true } });
    (!kept.is_empty()).then(|| Write::amend(manager::CITY_POLICY, patch, policy))
}

/// Says how far a policy gets with this look.
fn step(observed: &Observed<'_>, policy: &PropagationPolicy, phase: Phase, now: Timestamp) -> Write<Hub> {
    let before = Phase::of(&policy.spec);
    let text = format!("companions of {}: from {} to {}", observed.city, before.label(), phase.label());
    let note = Note { severity: Severity::Normal, reason: Reason::MigrationStep, action: "Migrating", text: &text };
    event::on(policy, "city-policy", &note, now)
}

/// Says what a policy that nobody needs waits for.
fn wait(observed: &Observed<'_>, policy: &PropagationPolicy, now: Timestamp) -> Write<Hub> {
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

fn ensure(observed: &Observed<'_>, now: Timestamp) -> Decision {
    let live = observed.policy;
    if live.is_some_and(|p| p.metadata.deletion_timestamp.is_some()) {
        return Plan::nothing().into(); // made anew when it is gone; its event brings us back
    }
    let before = live.map(|policy| Phase::of(&policy.spec));
    let phase = match (observed.propagation, before) {
        (Propagation::Dependencies, None | Some(Phase::Dependencies)) => Phase::Dependencies,
        (Propagation::Dependencies, Some(Phase::Both))
            if observed.delivered_by_dependency && observed.probe == Probe::Passed =>
        {
            Phase::Dependencies
        }
        (Propagation::Dependencies, Some(Phase::Claims)) if observed.probe == Probe::Elsewhere => Phase::Claims,
        (Propagation::Dependencies, _) | (Propagation::Selectors, Some(Phase::Dependencies)) => Phase::Both,
        (Propagation::Selectors, None | Some(Phase::Claims)) => Phase::Claims,
        (Propagation::Selectors, Some(Phase::Both)) => match rollback(observed, now) {
            Ok(phase) => phase,
            Err(wait) => return wait,
        },
    };
    let standing = live.map(|policy| &policy.spec.placement);
    let placement = match (&observed.clusters, standing) {
        (Some(clusters), _) => guard::placement(observed.city, standing, clusters),
        // Nobody knows where the city is: what guards it stays as it is.
        (None, Some(standing)) if observed.guard => standing.clone(),
        (None, _) => guard::plain(observed.city),
    };
    let city = MatchLabels {
        match_labels: BTreeMap::from([(label::TOPOLOGY_CITY.to_owned(), observed.city.as_str().to_owned())]),
    };
    let deployments = ResourceSelector {
        api_version: format!("{GROUP}/{VERSION}"),
        kind: "WorkloadDeployment".into(),
        namespace: Some(observed.namespace.into()),
        label_selector: Some(city),
    };
    let spec = PropagationPolicySpec {
        resource_selectors: [deployments].into_iter().chain(companions(observed, phase)).collect(),
        propagate_deps: phase != Phase::Claims,
        placement,
    };
    let mut steps: Vec<Write<Hub>> = Vec::new();
    let form = live.and_then(|live| change_of_form(live, &spec.placement));
    let fields = json!({ "metadata": { "labels": { label::MANAGED_BY: meta::MANAGED_BY } }, "spec": spec });
    let name = observed.city.policy_name();
    match form {
        // One form excludes the other, and whoever wrote the old one holds on to it: the next look applies the rest.
        Some(form) => steps.push(form),
        None => steps.extend(Write::ensure(manager::CITY_POLICY, observed.namespace, &name, fields, live)),
    }
    let writes = steps.iter().any(|write| matches!(write.op, Op::Apply { .. }));
    if let Some(live) = live.filter(|_| writes && before != Some(phase)) {
        steps.push(step(observed, live, phase, now));
    }
    let waits = observed.propagation == Propagation::Dependencies && phase != Phase::Dependencies;
    match (observed.probe, live) {
        (Probe::Here { unanswered_for, reported: false }, Some(live))
            if waits && unanswered_for >= observed.timing.probe_timeout =>
        {
            steps.push(refuse(observed, live, now));
            Decision::reporting(News::Refused, steps, Next::After(observed.timing.policy_poll))
        }
        // In memory alone: what is looked at is whose turn it is, and whether there is an answer.
        (Probe::Here { .. } | Probe::Elsewhere, _) if waits => {
            Plan::until(steps, Next::After(observed.timing.policy_poll)).into()
        }
        _ => Plan::writes(steps).into(),
    }
}

/// The last step back to claims, or the wait before it: what some city loses by it is reported, and stands for a while.
fn rollback(observed: &Observed<'_>, now: Timestamp) -> Result<Phase, Decision> {
    match &observed.rollback_impact {
        None => Ok(Phase::Both),
        Some((rollback_impact, _)) if rollback_impact.is_empty() => Ok(Phase::Claims),
        Some((rollback_impact, None)) => Err(warn(observed, rollback_impact, now)),
        Some((_, Some(reported))) if *reported >= observed.timing.rollback_warning => Ok(Phase::Claims),
        Some((_, Some(reported))) => {
            let next = Next::After(observed.timing.rollback_warning.saturating_sub(*reported));
            Err(Plan::until(Vec::new(), next).into())
        }
    }
}

/// Says that the way to dependencies is not conflicting. The policy that asked goes on asking, which changes nothing (fact 37).
fn refuse(observed: &Observed<'_>, live: &PropagationPolicy, now: Timestamp) -> Write<Hub> {
    let text = format!(
        "Karmada on this hub does not bring dependencies: asked {} s ago, no ResourceBinding of {} in {} lists any. \
         Policies stay with their claims until it does: enable the feature gate PropagateDeps of \
         karmada-controller-manager (1.15.6, 1.16.3, 1.17.0 or later), and apply config/components/federation to the hub",
        observed.timing.probe_timeout.as_secs(),
        observed.city,
        observed.namespace
    );
    let note = Note { severity: Severity::Warning, reason: Reason::MigrationRefused, action: "Migrating", text: &text };
    event::on(live, "city-policy", &note, now)
}

/// The selectors of companions: those that stand, or the Go operator's.
fn companions(observed: &Observed<'_>, phase: Phase) -> Vec<ResourceSelector> {
    if phase == Phase::Dependencies {
        return Vec::new();
    }
    let live = observed.policy.into_iter().flat_map(|policy| &policy.spec.resource_selectors);
    let kept: Vec<ResourceSelector> = live.filter(|selector| selector.kind != "WorkloadDeployment").cloned().collect();
    if !kept.is_empty() {
        return kept;
    }
    let labels = MatchLabels { match_labels: [(label::REFERENCED_DATA.to_owned(), "true".to_owned())].into() };
    let selector = |kind: SourceKind| ResourceSelector {
        api_version: "v1".into(),
        kind: kind.as_str().into(),
        namespace: Some(observed.namespace.into()),
        label_selector: Some(labels.clone()),
    };
    SourceKind::ALL.map(selector).into()
}

/// Says what some city will lose, before it does (fact 28).
fn warn(observed: &Observed<'_>, rollback_impact: &[String], now: Timestamp) -> Decision {
    let Some(live) = observed.policy else { return Plan::nothing().into() };
    let text = format!(
        "in {} s, by --referenced-data-propagation=selectors, data is taken away: {}; to keep it, go back to dependencies",
        observed.timing.rollback_warning.as_secs(),
        rollback_impact.join("; ")
    );
    let note = Note { severity: Severity::Warning, reason: Reason::DataWillBeLost, action: "Migrating", text: &text };
    let event = event::on(live, "city-policy", &note, now);
    Decision::reporting(News::Warned, vec![event], Next::After(observed.timing.rollback_warning))
}

/// The patch that turns a placement of one form into the other (fact 47: nothing moves by it).
fn change_of_form(live: &PropagationPolicy, wanted: &PolicyPlacement) -> Option<Write<Hub>> {
    let standing = &live.spec.placement;
    let mut placement = Map::new();
    if standing.cluster_affinity.is_some() && wanted.cluster_affinities.is_some() {
        placement.insert("clusterAffinity".into(), Value::Null);
        placement.insert("clusterAffinities".into(), json!(wanted.cluster_affinities));
    }
    if standing.cluster_affinities.is_some() && wanted.cluster_affinity.is_some() {
        placement.insert("clusterAffinities".into(), Value::Null);
        placement.insert("clusterAffinity".into(), json!(wanted.cluster_affinity));
    }
    if placement.is_empty() {
        return None;
    }
    let patch = json!({ "spec": { "placement": placement } });
    Some(Write::amend(manager::CITY_POLICY, patch, live))
}

#[cfg(test)]
#[path = "policy_tests.rs"]
mod tests;
