//! Deployments of a city in a hub namespace -> the city's PropagationPolicy there.
//!
//! A policy of the Go operator also selects companions, and would claim each for its city alone (fact 21). It is led to
//! dependencies in steps that take no copy away (facts 23, 24; the naive single step does, fact 25): first
//! `propagateDeps` with the selectors kept; once every companion is brought to every consumer by its need, the selectors
//! go. Before any of it, one policy alone asks whether Karmada brings dependencies at all, and the others wait for the
//! answer ([`Probe`]). What the claims leave behind, the companions' own plan heals (fact 27). Each step is read off what
//! stands, so it may be cut anywhere.

use std::collections::{BTreeMap, BTreeSet};

use jiff::Timestamp;
use kube::ResourceExt;
use serde_json::{Value, json};

pub use super::city::{Decided, Observed, OthersWaiting, Propagation, Questions, RollbackWait, Signal, named};
use super::{
    city::step,
    guard::{self, Guarded},
    probe::Probe,
    unneeded,
};
use crate::plan::management::observed::facts::Phase;
use crate::{
    api::{
        karmada::{LabelSelector, PropagationPolicy, PropagationPolicySpec, ResourceSelector},
        meta::{self, GROUP, VERSION, annotation, label, manager},
        reason::Reason,
        referenced::SourceKind,
    },
    plan::{
        Hub, Next, Op, Plan, Write, diff,
        event::{self, Note, Severity},
    },
};

/// How many companions an Event names; the others are counted.
const MAX_NAMED: usize = 5;

/// Decides the writes for one city.
pub fn plan(observed: &Observed, now: Timestamp) -> Decided {
    if observed.wanted || observed.copies > 0 {
        return if observed.namespace_lives { ensure(observed, now) } else { Plan::nothing() };
    }
    unneeded::plan(observed, now)
}

fn ensure(observed: &Observed, now: Timestamp) -> Decided {
    let live = observed.policy.as_deref();
    if live.is_some_and(|p| p.metadata.deletion_timestamp.is_some()) {
        return Plan::nothing(); // it is made anew when it is gone, and its event enqueues the city
    }
    let before = live.map(|policy| Phase::of(&policy.spec));
    let phase = match (observed.propagation, before) {
        (Propagation::Dependencies, None | Some(Phase::Dependencies)) => Phase::Dependencies,
        (Propagation::Dependencies, Some(Phase::Both))
            if observed.delivered_by_dependency && observed.probe == Probe::Passed =>
        {
            Phase::Dependencies
        }
        (Propagation::Dependencies, Some(Phase::Claims))
            if matches!(observed.probe, Probe::Elsewhere | Probe::Nobody { .. }) =>
        {
            Phase::Claims
        }
        (Propagation::Dependencies, _) | (Propagation::Selectors, Some(Phase::Dependencies)) => Phase::Both,
        (Propagation::Selectors, None | Some(Phase::Claims)) => Phase::Claims,
        (Propagation::Selectors, Some(Phase::Both)) => match rollback(observed, now) {
            Ok(phase) => phase,
            Err(wait) => return wait,
        },
    };
    let Some(guarded) = place(observed, live) else { return Plan::nothing() };
    let deployments = ResourceSelector {
        api_version: format!("{GROUP}/{VERSION}"),
        kind: "WorkloadDeployment".into(),
        namespace: Some(observed.namespace.clone()),
        label_selector: Some(LabelSelector::one_of(label::TOPOLOGY_CITY, &spellings(observed))),
    };
    let spec = PropagationPolicySpec {
        resource_selectors: [deployments].into_iter().chain(companions(observed, phase)).collect(),
        propagate_deps: phase != Phase::Claims,
        placement: guarded.placement.clone(),
        ..PropagationPolicySpec::default()
    };
    let mut steps = write(observed, live, &spec, now);
    if !steps.is_empty() {
        steps.extend(notes(observed, live, &spec, guarded.note.as_deref(), now));
    }
    let writes = steps.iter().any(|write| matches!(write.op, Op::Apply { .. }));
    if let Some(live) = live.filter(|_| writes && before != Some(phase)) {
        steps.push(step(observed, live, phase, now));
    }
    let waits = observed.propagation == Propagation::Dependencies && phase != Phase::Dependencies;
    // How far all companions are on their way it sees in memory, by itself: it is not called by each of them.
    let again = if phase == Phase::Both { Next::After(observed.timing.policy_poll) } else { Next::Await };
    let decided = match (observed.probe, live) {
        (Probe::Here { unanswered_for, reported: false, misses_later }, Some(live))
            if waits && unanswered_for >= observed.timing.probe_timeout =>
        {
            steps.push(refuse(observed, live, misses_later, now));
            Plan::until(steps, Next::After(observed.timing.policy_poll)).with([Signal::Refused])
        }
        (Probe::Nobody { waited_for, reported: false }, Some(live))
            if waits && waited_for >= observed.timing.probe_timeout =>
        {
            steps.push(nobody_to_ask(observed, live, now));
            Plan::until(steps, Next::After(observed.timing.policy_poll)).with([Signal::NobodyToAsk])
        }
        // In memory alone: what is looked at is whose turn it is, and whether there is an answer.
        (Probe::Here { .. } | Probe::Elsewhere | Probe::Nobody { .. }, _) if waits => {
            Plan::until(steps, Next::After(observed.timing.policy_poll))
        }
        _ => rollback_wait(observed, live, steps, now),
    };
    Plan { next: decided.next.or_sooner(again), ..decided }
}

/// What keeps the rollback to claims from going on, told where it lasts: once for all policies that wait by then.
fn rollback_wait(
    observed: &Observed,
    live: Option<&PropagationPolicy>,
    mut steps: Vec<Write<Hub>>,
    now: Timestamp,
) -> Decided {
    let (Some(wait), Some(live)) = (observed.rollback_wait.as_ref().filter(|wait| !wait.reported), live) else {
        return Plan::writes(steps);
    };
    let patience = observed.timing.probe_timeout;
    if wait.lasted < patience {
        return Plan::until(steps, Next::After(patience.saturating_sub(wait.lasted)));
    }
    let OthersWaiting { count, first } = &wait.others;
    let here =
        format!("{}/{} for {}", observed.namespace, observed.city.policy_name(), named(&wait.companions, MAX_NAMED));
    let all: Vec<&str> = [here.as_str()].into_iter().chain(first.iter().map(String::as_str)).collect();
    let more = match count.saturating_sub(first.len()) {
        0 => String::new(),
        more => format!(" | and {more} more policies"),
    };
    let text = format!(
        "for {} s, the way back to claims has waited at {} of the hub's city policies. They go on bringing data both ways until \
         each companion is there and claimed by a policy, for whoever has none would lose it; condition \
         ReferencedDataReady of the deployments says why a companion is not there. Waiting: {}{more}",
        wait.lasted.as_secs(),
        count + 1,
        all.join(" | "),
    );
    let note = Note { severity: Severity::Warning, reason: Reason::MigrationWaits, action: "Migrating", text: &text };
    steps.push(event::on(live, "city-policy", &note, now));
    Plan::writes(steps).with([Signal::RollbackWaits])
}

/// The last step back to claims, or the wait before it: what some city loses by it is reported, and stands for a while.
fn rollback(observed: &Observed, now: Timestamp) -> Result<Phase, Decided> {
    match &observed.rollback_impact {
        None => Ok(Phase::Both),
        Some((rollback_impact, _)) if rollback_impact.is_empty() => Ok(Phase::Claims),
        Some((rollback_impact, None)) => Err(warn(observed, rollback_impact, now)),
        Some((_, Some(reported))) if *reported >= observed.timing.rollback_warning => Ok(Phase::Claims),
        Some((_, Some(reported))) => {
            let next = Next::After(observed.timing.rollback_warning.saturating_sub(*reported));
            Err(Plan::until(Vec::new(), next))
        }
    }
}

/// Says that the way to dependencies is not taken. The policy that asked goes on asking, which changes nothing (fact 37).
fn refuse(observed: &Observed, live: &PropagationPolicy, misses_later: bool, now: Timestamp) -> Write<Hub> {
    let missed = format!(
        "Karmada on this hub does not bring what comes later: for {} s, a companion of some deployment has been on the hub \
         that is not the first of its kind, and is not brought to it. Policies stay with their claims until it is: Karmada \
         is away, or it is older than 1.15.3 and hears of the first of a kind alone (its issue 6924); condition Federated \
         of the deployments names the companion",
        observed.timing.probe_timeout.as_secs(),
    );
    let silent = format!(
        "Karmada on this hub does not bring dependencies: asked {} s ago, no deployment of {} in {} has got all of its \
         own by its need. Policies stay with their claims until it does: enable the feature gate PropagateDeps of \
         karmada-controller-manager (1.15.6, 1.16.3, 1.17.0 or later), and apply config/components/federation to the hub",
        observed.timing.probe_timeout.as_secs(),
        observed.city,
        observed.namespace
    );
    let text = if misses_later { missed } else { silent };
    let note = Note { severity: Severity::Warning, reason: Reason::MigrationRefused, action: "Migrating", text: &text };
    event::on(live, "city-policy", &note, now)
}

/// Says that the way to dependencies waits, because Karmada cannot answer anybody.
fn nobody_to_ask(observed: &Observed, live: &PropagationPolicy, now: Timestamp) -> Write<Hub> {
    let text = format!(
        "for {} s, Karmada on this hub could not be asked whether it brings dependencies: no policy that is on its way has \
         a deployment that it claims, that is scheduled to a cluster, and whose companions are on the hub. Policies stay as \
         they are until one has; condition Federated of the deployments says what is lacking",
        observed.timing.probe_timeout.as_secs(),
    );
    let note = Note { severity: Severity::Warning, reason: Reason::MigrationWaits, action: "Migrating", text: &text };
    event::on(live, "city-policy", &note, now)
}

/// The selectors of companions: those that stand, or the Go operator's.
fn companions(observed: &Observed, phase: Phase) -> Vec<ResourceSelector> {
    if phase == Phase::Dependencies {
        return Vec::new();
    }
    let live = observed.policy.iter().flat_map(|policy| &policy.spec.resource_selectors);
    let kept: Vec<ResourceSelector> = live.filter(|selector| selector.kind != "WorkloadDeployment").cloned().collect();
    if !kept.is_empty() {
        return kept;
    }
    let labels = LabelSelector::one_of(label::REFERENCED_DATA, &["true".to_owned()].into());
    let selector = |kind: SourceKind| ResourceSelector {
        api_version: "v1".into(),
        kind: kind.as_str().into(),
        namespace: Some(observed.namespace.clone()),
        label_selector: Some(labels.clone()),
    };
    SourceKind::ALL.map(selector).into()
}

/// Says what some city will lose, before it does (fact 28).
fn warn(observed: &Observed, rollback_impact: &[String], now: Timestamp) -> Decided {
    let Some(live) = observed.policy.as_deref() else { return Plan::nothing() };
    let text = format!(
        "in {} s, by --referenced-data-propagation=selectors, data is taken away: {}; to keep it, go back to dependencies",
        observed.timing.rollback_warning.as_secs(),
        rollback_impact.join("; ")
    );
    let note = Note { severity: Severity::Warning, reason: Reason::DataWillBeLost, action: "Migrating", text: &text };
    let event = event::on(live, "city-policy", &note, now);
    Plan::until(vec![event], Next::After(observed.timing.rollback_warning)).with([Signal::Warned])
}

/// Where the policy is to send the city; nothing while it is not known where the city is and nothing stands: a policy
/// without its guard would be obeyed at once. What is on its way is not crossed by another word.
fn place(observed: &Observed, live: Option<&PropagationPolicy>) -> Option<Guarded> {
    let standing = live.map(|policy| policy.spec.placement.without_tolerations());
    let standing = standing.as_ref();
    let is_crossed = |place: &guard::Observed, placement| observed.guard && guard::is_revoked(placement, place);
    match (&observed.place, standing) {
        (Some(place), Some(standing)) if place.under_way && !is_crossed(place, standing) => {
            Some(Guarded { placement: standing.clone(), note: None })
        }
        (Some(place), _) if observed.guard => Some(guard::decide(&observed.city, &observed.spellings, standing, place)),
        (Some(place), _) => {
            let placement = guard::plain(&observed.city, &observed.spellings, &place.clusters);
            Some(Guarded { placement, note: None })
        }
        (None, Some(standing)) => Some(Guarded { placement: standing.clone(), note: None }),
        (None, None) => None,
    }
}

/// The spellings that the policy's deployments have; the canonical one while there are none.
fn spellings(observed: &Observed) -> BTreeSet<String> {
    if observed.spellings.is_empty() {
        return [observed.city.as_str().to_owned()].into();
    }
    observed.spellings.clone()
}

/// The writes that give the policy this spec. The spec is ours as a whole, but for tolerations and a suspension: what else
/// stands there goes, whoever wrote it, which an apply cannot do, so that a patch comes first; with it goes what is said of a
/// drain that failed. The apply does not wait for the patch: what somebody else puts back each time holds up nothing of ours.
fn write(
    observed: &Observed,
    live: Option<&PropagationPolicy>,
    spec: &PropagationPolicySpec,
    now: Timestamp,
) -> Vec<Write<Hub>> {
    let labels = json!({ label::MANAGED_BY: meta::MANAGED_BY });
    let patched = live.and_then(|live| patch(observed, live, spec, &labels, now));
    let live = patched.as_ref().map(|(_, live)| live).or(live);
    let fields = json!({ "metadata": { "labels": labels }, "spec": spec });
    let name = observed.city.policy_name();
    let apply = Write::ensure(manager::CITY_POLICY, &observed.namespace, &name, fields, live);
    patched.iter().map(|(patch, _)| patch.clone()).chain(apply).collect()
}

/// The patch that takes away what is somebody else's, and the policy as it stands after it.
fn patch(
    observed: &Observed,
    live: &PropagationPolicy,
    spec: &PropagationPolicySpec,
    labels: &Value,
    now: Timestamp,
) -> Option<(Write<Hub>, PropagationPolicy)> {
    let failed = observed.place.as_ref().map(|place| place.failed.as_ref());
    let failed = failed.filter(|failed| live.annotations().get(annotation::DRAIN_FAILED) != *failed);
    let standing = live.spec.placement.without_tolerations();
    let foreign = &live.spec.others;
    if standing == spec.placement && foreign.is_empty() && failed.is_none() {
        return None;
    }
    let mut patch = json!({ "metadata": { "labels": labels } });
    if standing != spec.placement {
        patch["spec"]["placement"] = diff::merge_patch(&json!(standing), &json!(spec.placement));
    }
    for field in foreign.keys() {
        patch["spec"][field] = Value::Null;
    }
    if let Some(failed) = failed {
        patch["metadata"]["annotations"] = json!({ annotation::DRAIN_FAILED: failed });
    }
    let mut patched = live.clone();
    patched.labels_mut().insert(label::MANAGED_BY.into(), meta::MANAGED_BY.into());
    patched.spec = PropagationPolicySpec { placement: spec.placement.clone(), others: BTreeMap::new(), ..patched.spec };
    let write = Write::amend(manager::CITY_POLICY, patch, live);
    let told = (!foreign.is_empty()).then(|| removed(live, now));
    Some((told.map_or(write.clone(), |told| write.telling(told)), patched))
}

/// Says that what somebody else wrote into a policy is removed.
fn removed(live: &PropagationPolicy, now: Timestamp) -> Write<Hub> {
    let fields: Vec<String> = live.spec.others.keys().map(|field| format!("spec.{field}")).collect();
    let text = format!(
        "somebody else set {}, and this operator removed it again: the field decides over what the policy brings to its \
         city, as whether it is deleted there with its deployment. Change no field of the spec of this policy but \
         placement.clusterTolerations and suspension",
        fields.join(", ")
    );
    let note =
        Note { severity: Severity::Warning, reason: Reason::PolicyFieldsRemoved, action: "Removing", text: &text };
    event::on(live, "city-policy", &note, now)
}

/// What is said on the policy about a placement or selector that is written now.
fn notes(
    observed: &Observed,
    live: Option<&PropagationPolicy>,
    spec: &PropagationPolicySpec,
    several: Option<&str>,
    now: Timestamp,
) -> Vec<Write<Hub>> {
    let name = observed.city.policy_name();
    let mut policy = PropagationPolicy::new(&name, PropagationPolicySpec::default());
    policy.metadata.namespace = Some(observed.namespace.clone());
    let policy = live.unwrap_or(&policy);
    let event = |reason: Reason, text: &str| {
        let note = Note { severity: Severity::Warning, reason, action: "Guarding", text };
        event::on(policy, "city-policy", &note, now)
    };
    let mut events: Vec<Write<Hub>> = several.map(|text| event(Reason::SeveralClusters, text)).into_iter().collect();
    let is_new = |live: &PropagationPolicy| {
        let spelt = |spec: &PropagationPolicySpec| spec.spellings_of(label::TOPOLOGY_CITY);
        spelt(&live.spec) != spelt(spec)
    };
    let clusters = observed.place.iter().flat_map(|place| guard::labels(&observed.city, &place.clusters));
    let all: BTreeSet<&str> = clusters.chain(&observed.spellings).map(String::as_str).collect();
    if all.len() > 1 && live.is_none_or(is_new) {
        let all: Vec<&str> = all.into_iter().collect();
        let text = format!(
            "{} is spelt {} by its deployments and Clusters: all of them count, and the label {} should have one spelling",
            observed.city,
            all.join(", "),
            label::TOPOLOGY_CITY
        );
        events.push(event(Reason::SeveralSpellings, &text));
    }
    events
}

#[cfg(test)]
#[path = "policy_tests.rs"]
mod tests;
