//! Deployments of a city in a hub namespace -> the city's PropagationPolicy there.
//!
//! A policy of the Go operator also selects companions, and would claim each for its city alone (fact 21). It moves to
//! dependencies in steps that remove no copy (facts 23, 24; a single step does, fact 25). First it gets `propagateDeps` and keeps
//! its selectors. Once Karmada brings every companion to every consumer as a dependency, the selectors are dropped. Before that,
//! a few policies ask if Karmada brings dependencies, and the others wait ([`Probe`]). The plan of the companions removes
//! the residue of the claims (fact 27). Each step is read off the hub, so the migration may stop anywhere.

use std::collections::{BTreeMap, BTreeSet};

use jiff::Timestamp;
use kube::ResourceExt;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};

pub use super::city::{ClaimsGivenUp, Decided, Observed, Propagation, Questions, covers};
use super::{
    city::step,
    guard::{self, Guarded},
    migration::probe::{Probe, Problem},
    unneeded,
};
use crate::plan::management::{
    drain::{
        placement_status::{PlacementStatus, Transfer},
        transfer::{self, Stage},
    },
    observed::facts::{Phase, written},
};
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
        hash,
        text::named,
    },
};

/// Companions that an Event names; the others are counted.
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
        return Plan::nothing(); // it is recreated after its deletion, and that event enqueues the city
    }
    let before = live.map(|policy| Phase::of(&policy.spec));
    let phase = match (observed.propagation, before) {
        (Propagation::Dependencies, None | Some(Phase::Dependencies)) => Phase::Dependencies,
        (Propagation::Dependencies, Some(Phase::Both))
            if observed.delivered_by_dependency && observed.probe == Probe::Passed =>
        {
            Phase::Dependencies
        }
        (Propagation::Dependencies, Some(Phase::Claims)) if observed.probe == Probe::Wait => Phase::Claims,
        (Propagation::Dependencies, _) | (Propagation::Selectors, Some(Phase::Dependencies)) => Phase::Both,
        (Propagation::Selectors, None | Some(Phase::Claims)) => Phase::Claims,
        (Propagation::Selectors, Some(Phase::Both)) => match rollback(observed, now) {
            Ok(phase) => phase,
            Err(wait) => return wait,
        },
    };
    let Some(Placed { guarded, is_transfer, record }) = place(observed, live, now) else { return Plan::nothing() };
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
    let mut steps = write(observed, live, &spec, record.as_ref(), now);
    if !steps.is_empty() {
        steps.extend(notes(observed, live, &spec, guarded.note.as_deref(), now));
    }
    let writes = steps.iter().any(|write| matches!(write.op, Op::Apply { .. }));
    if let Some(live) = live.filter(|_| writes && before != Some(phase)) {
        steps.push(step(observed, live, phase, now));
    }
    if let Some(live) = live.filter(|_| steps.is_empty()) {
        steps.extend(report_problem(observed, live, now));
    }
    // The turn, and the progress of all companions, are in memory. No event of theirs enqueues the policy.
    let waits = observed.propagation == Propagation::Dependencies && phase != Phase::Dependencies;
    let is_polled = waits || phase == Phase::Both || is_transfer;
    Plan::until(steps, if is_polled { Next::After(observed.timing.poll) } else { Next::Await })
}

/// The last step back to claims, or the wait before it. The losses of each city are reported, and the policy keeps the warning
/// for a while.
fn rollback(observed: &Observed, now: Timestamp) -> Result<Phase, Decided> {
    let (Some(impact), Some(live)) = (&observed.rollback_impact, observed.policy.as_deref()) else {
        return Ok(Phase::Both);
    };
    if impact.is_empty() {
        return Ok(Phase::Claims);
    }
    let warning = observed.timing.migration_step;
    let text = format!(
        "in {} s, --referenced-data-propagation=selectors removes data from cities: {}. To keep the data, set \
         --referenced-data-propagation=dependencies",
        warning.as_secs(),
        impact.join("; ")
    );
    let note = Note { severity: Severity::Warning, reason: Reason::DataWillBeLost, action: "Migrating", text: &text };
    match report(live, &note, &json!(impact), now) {
        Ok(write) => Err(Plan::until(vec![write], Next::After(warning))),
        Err(reported) => match warning.checked_sub(now.duration_since(reported.at).unsigned_abs()) {
            Some(left) if !left.is_zero() => Err(Plan::until(Vec::new(), Next::After(left))),
            _ => Ok(Phase::Claims),
        },
    }
}

/// Reports the problem that keeps the policy between claims and dependencies. After a recent write of the policy, Karmada still
/// has time.
fn report_problem(observed: &Observed, live: &PropagationPolicy, now: Timestamp) -> Option<Write<Hub>> {
    let Observed { namespace, city, rollback_waits, timing, .. } = observed;
    let timeout = timing.migration_step.as_secs();
    let is_settled =
        written(&live.metadata, None).is_none_or(|at| now.duration_since(at).unsigned_abs() >= timing.migration_step);
    let (reason, text) = match observed.problem {
        Some(Problem::MissesLater) => (
            Reason::MigrationRefused,
            format!(
                "Karmada on this hub does not deliver later companions: after {timeout} s, a companion that is not the \
                 first of its kind is still missing. Policies keep their claims until it arrives. Either Karmada is down, or \
                 it is older than 1.15.3 (Karmada issue 6924). Condition Federated of the deployments names the companion"
            ),
        ),
        Some(Problem::Unanswered) => (
            Reason::MigrationRefused,
            format!(
                "Karmada on this hub does not propagate dependencies: {timeout} s after the request, no deployment of \
                 {city} in {namespace} has all its companions. Policies keep their claims until it does. \
                 Enable the feature gate PropagateDeps of karmada-controller-manager (1.15.6, 1.16.3, 1.17.0 or later), \
                 and apply config/components/federation to the hub"
            ),
        ),
        Some(Problem::NobodyToAsk) if is_settled => (
            Reason::MigrationWaits,
            format!(
                "for {timeout} s, the operator could not test if Karmada on this hub propagates dependencies. The test \
                 needs a deployment that its policy claims, that is scheduled to a cluster, and whose companions are on \
                 the hub. Policies are not changed until one exists. Condition Federated of the deployments says what is \
                 missing"
            ),
        ),
        None if is_settled && !rollback_waits.is_empty() => (
            Reason::MigrationWaits,
            format!(
                "the rollback to claims has waited {timeout} s for {}. Until each companion exists and a policy claims \
                 it, this policy delivers data both ways, because an unclaimed companion would be lost. Condition \
                 ReferencedDataReady of the deployments says why a companion is missing",
                named(rollback_waits, MAX_NAMED)
            ),
        ),
        Some(Problem::NobodyToAsk) | None => return None,
    };
    let note = Note { severity: Severity::Warning, reason, action: "Migrating", text: &text };
    report(live, &note, &json!(observed.problem), now).ok()
}

/// The last report about the migration, as a policy records it.
#[derive(Serialize, Deserialize)]
struct Reported {
    at: Timestamp,
    reason: String,
    /// Digest of the reason and the subject.
    digest: String,
}

/// Reports something about the migration on a policy, and records that there.
///
/// # Errors
/// The record, if this report was the last one.
fn report(live: &PropagationPolicy, note: &Note<'_>, subject: &Value, now: Timestamp) -> Result<Write<Hub>, Reported> {
    let digest = hash::digest(&json!([note.reason.as_str(), subject]));
    let last = live.annotations().get(annotation::MIGRATION_REPORTED);
    let last: Option<Reported> = last.and_then(|text| serde_json::from_str(text).ok());
    if let Some(last) = last.filter(|last| last.digest == digest) {
        return Err(last);
    }
    let record = json!(Reported { at: now, reason: note.reason.as_str().to_owned(), digest }).to_string();
    let patch = json!({ "metadata": { "annotations": { annotation::MIGRATION_REPORTED: record } } });
    Ok(Write::amend(manager::CITY_POLICY, patch, live).telling(event::on(live, "city-policy", note, now)))
}

/// The selectors of companions: the present ones, or the Go operator's.
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

/// Target of a policy's city, and the record of its transfer.
struct Placed {
    guarded: Guarded,
    /// True if the policy asks for a transfer, which also depends on time.
    is_transfer: bool,
    /// The record of the transfer. `None` if it does not change.
    record: Option<transfer::Next>,
}

/// Returns the target of the policy's city. `None` if the place of the city is unknown and the policy does not exist: Karmada
/// would obey a policy without its guard at once. Until the scheduler has done what the policy asks for, the target only
/// changes if nothing has moved yet.
fn place(observed: &Observed, live: Option<&PropagationPolicy>, now: Timestamp) -> Option<Placed> {
    let standing = live.map(|policy| policy.spec.placement.without_tolerations());
    let kept = |placement| {
        let is_transfer = live.is_some_and(|policy| Transfer::of(policy, now).is_some());
        Placed { guarded: Guarded { placement, note: None }, is_transfer, record: None }
    };
    let Some(place) = &observed.place else { return standing.map(kept) };
    let status = live.map(|policy| PlacementStatus::of_policy(policy, now)).unwrap_or_default();
    let status = PlacementStatus { on: place.shares.clone(), ..status };
    let (namespace, city, timing) = (observed.namespace.as_str(), &observed.city, &observed.timing);
    let (clusters, instruction) = (&place.clusters, &place.instruction);
    let context = transfer::Context { namespace, city, clusters, instruction, timing, now };
    let interrupted = if live.is_none() && observed.guard { transfer::interrupted(&status, &context) } else { None };
    let status = PlacementStatus { transfer: status.transfer.or(interrupted), ..status };
    let next = observed.guard.then(|| transfer::next(&status, &context));
    let asks = |next: &transfer::Next| next.transfer.as_ref().map(|of| of.route.clone());
    let is_recalled = next.as_ref().is_some_and(|next| {
        let stands = status.transfer.as_ref().map(|of| of.route.clone());
        status.stage() == Stage::Requested && !place.on.is_empty() && asks(next) != stands
    });
    match (next, standing) {
        (_, Some(standing)) if place.under_way && !is_recalled => {
            Some(Placed { record: transfer::waiting(&status, &context), ..kept(standing) })
        }
        (Some(next), standing) => {
            let transfer = next.transfer.as_ref();
            let guarded = guard::decide(city, &observed.spellings, standing.as_ref(), place, transfer);
            Some(Placed { guarded, is_transfer: transfer.is_some(), record: Some(next) })
        }
        (None, _) => {
            let placement = guard::plain(city, &observed.spellings, clusters);
            let record = transfer::Next { transfer: None, failed: BTreeMap::new() };
            Some(Placed { guarded: Guarded { placement, note: None }, is_transfer: false, record: Some(record) })
        }
    }
}

/// The spellings of the policy's deployments; the canonical one if there are no deployments.
fn spellings(observed: &Observed) -> BTreeSet<String> {
    if observed.spellings.is_empty() {
        return [observed.city.as_str().to_owned()].into();
    }
    observed.spellings.clone()
}

/// The writes that give the policy this spec. The operator owns the whole spec, except for tolerations and a suspension. An apply
/// cannot remove foreign fields, so a patch comes first. It also updates the annotations. The apply does not wait for the patch: a
/// field that another client restores each time does not block it.
fn write(
    observed: &Observed,
    live: Option<&PropagationPolicy>,
    spec: &PropagationPolicySpec,
    record: Option<&transfer::Next>,
    now: Timestamp,
) -> Vec<Write<Hub>> {
    let labels = json!({ label::MANAGED_BY: meta::MANAGED_BY });
    let patched = live.and_then(|live| patch(observed, live, spec, record, now));
    let live = patched.as_ref().map(|(_, live)| live).or(live);
    let fields = json!({ "metadata": { "labels": labels }, "spec": spec });
    let name = observed.city.policy_name();
    let apply = Write::ensure(manager::CITY_POLICY, &observed.namespace, &name, fields, live);
    patched.iter().map(|(patch, _)| patch.clone()).chain(apply).collect()
}

/// The patch that removes foreign fields and updates annotations, and the policy after it.
fn patch(
    observed: &Observed,
    live: &PropagationPolicy,
    spec: &PropagationPolicySpec,
    record: Option<&transfer::Next>,
    now: Timestamp,
) -> Option<(Write<Hub>, PropagationPolicy)> {
    let annotations = changed_annotations(observed, live, spec, record);
    let standing = live.spec.placement.without_tolerations();
    let foreign = &live.spec.others;
    if standing == spec.placement && foreign.is_empty() && annotations.is_empty() {
        return None;
    }
    let mut patch = json!({ "metadata": { "labels": { label::MANAGED_BY: meta::MANAGED_BY } } });
    if standing != spec.placement {
        patch["spec"]["placement"] = diff::merge_patch(&json!(standing), &json!(spec.placement));
    }
    for field in foreign.keys() {
        patch["spec"][field] = Value::Null;
    }
    if !annotations.is_empty() {
        patch["metadata"]["annotations"] = annotations.into();
    }
    let mut patched = live.clone();
    patched.labels_mut().insert(label::MANAGED_BY.into(), meta::MANAGED_BY.into());
    patched.spec = PropagationPolicySpec { placement: spec.placement.clone(), others: BTreeMap::new(), ..patched.spec };
    let write = Write::amend(manager::CITY_POLICY, patch, live);
    let told = (!foreign.is_empty()).then(|| removed(live, now));
    Some((told.map_or(write.clone(), |told| write.telling(told)), patched))
}

/// Our annotations that have to change: records of transfers, and of waits that are over.
fn changed_annotations(
    observed: &Observed,
    live: &PropagationPolicy,
    spec: &PropagationPolicySpec,
    record: Option<&transfer::Next>,
) -> Map<String, Value> {
    let of_transfer = record.map(|record| {
        let failed = (!record.failed.is_empty()).then(|| json!(record.failed).to_string());
        let transfer = record.transfer.as_ref().map(Transfer::recorded);
        [(annotation::DRAIN_FAILED, failed), (annotation::DRAIN_TRANSFER, transfer)]
    });
    let end = match observed.propagation {
        Propagation::Dependencies => Phase::Dependencies,
        Propagation::Selectors => Phase::Claims,
    };
    // A warning of lost data ends with the rollback: another rollback warns again.
    let reported = live.annotations().get(annotation::MIGRATION_REPORTED);
    let reported: Option<Reported> = reported.and_then(|text| serde_json::from_str(text).ok());
    let is_called_off = observed.propagation == Propagation::Dependencies
        && reported.is_some_and(|last| Reason::DataWillBeLost.as_str() == last.reason);
    let is_over = Phase::of(spec) == end || is_called_off;
    let is_at_end = is_over.then_some((annotation::MIGRATION_REPORTED, None));
    let wanted = of_transfer.into_iter().flatten().chain(is_at_end).chain([(annotation::UNNEEDED_SINCE, None)]);
    let changed = wanted.filter(|(key, value)| live.annotations().get(*key) != value.as_ref());
    changed.map(|(key, value)| (key.to_owned(), json!(value))).collect()
}

/// Reports that a foreign field of a policy is removed.
fn removed(live: &PropagationPolicy, now: Timestamp) -> Write<Hub> {
    let fields: Vec<String> = live.spec.others.keys().map(|field| format!("spec.{field}")).collect();
    let text = format!(
        "this operator removed {}, set by another client. The field changes what the policy propagates, or what is \
         deleted in the city. In the spec of this policy, change only placement.clusterTolerations and suspension",
        fields.join(", ")
    );
    let note =
        Note { severity: Severity::Warning, reason: Reason::PolicyFieldsRemoved, action: "Removing", text: &text };
    event::on(live, "city-policy", &note, now)
}

/// Events about a placement or selector that is written now.
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
            "the city {} has the spellings {} on its deployments and Clusters. All of them count. Use one spelling for \
             the label {}",
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
