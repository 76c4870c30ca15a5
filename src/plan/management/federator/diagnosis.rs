//! State of the hub -> whether a deployment has reached its cell, and if not, the cause.
//!
//! Each cause is reported by evidence that was measured (facts 29 to 41 and 49), with the object and Karmada's own message.

use kube::ResourceExt;

pub use super::delivery::{Delivery, Evidence, Karmada, Note, Repair};
use super::{
    delivery::{Brought, Gap},
    last_delivery,
};
use crate::plan::management::{
    observed::{
        facts::{self, BindingFacts, Phase},
        seen,
    },
    referenced_data::resolve,
};
use crate::{
    api::{
        meta::{annotation, label},
        names::{self, CityPolicyName},
        reason::Reason,
        referenced::DataRef,
    },
    plan::references::annotated,
};

/// Replaces Karmada's message if a cluster has not applied something, and Karmada does not say why.
const NO_WORDS: &str = "Karmada does not say why";
/// Replaces Karmada's message if it reports nothing about that cluster.
const NO_REPORT: &str = "Karmada has not reported about it";

/// True if a message only says that Karmada has no message.
pub(super) fn is_wordless(message: &str) -> bool {
    [NO_WORDS, NO_REPORT].iter().any(|words| message.ends_with(words))
}

/// True if a message replaces a text that is not repeated.
pub(super) fn is_withheld(message: &str) -> bool {
    message.contains(facts::WITHHELD)
}

/// Judges the delivery of one deployment.
pub fn diagnose(evidence: &Evidence<'_>) -> Delivery {
    let copy = evidence.copy;
    let (namespace, name) = (copy.namespace().unwrap_or_default(), copy.name_any());
    let heard = is_heard(evidence.karmada);
    let blocked = |gap: Gap| gap.of_deployment(heard);
    let own_policy = evidence.city.policy_name();
    if let Some(other) = other_policy(evidence, &own_policy) {
        let claimed = evidence.copy.annotations().get(annotation::POLICY_NAME).filter(|policy| **policy != own_policy);
        let advice = if claimed.is_some_and(|policy| CityPolicyName::parse(policy).is_some()) {
            "the operator recreates it in its city; keep the policy, which others need"
        } else {
            "remove that policy, or its selector"
        };
        let text = format!(
            "WorkloadDeployment {namespace}/{name} is claimed by {other}, not by {own_policy}: that policy decides where \
             it is sent; {advice}"
        );
        return blocked(Gap::stated(Reason::ClaimedByAnotherPolicy, text));
    }
    let binding_name = names::deployment_binding(&name);
    let karmada = evidence.karmada;
    let Some(binding) = karmada.binding.as_ref().filter(|binding| !binding.terminating) else {
        // The policy may exist: then the hub rejects the change by which it would select this deployment.
        if let Some(why) = &karmada.policy_trouble {
            let text =
                format!("PropagationPolicy {namespace}/{own_policy}, which must propagate it to its city: {why}");
            return blocked(Gap::stated(Reason::HubRefused, text));
        }
        let text = if karmada.policy_lives {
            format!("Karmada has no ResourceBinding {namespace}/{binding_name} for it")
        } else {
            format!("PropagationPolicy {namespace}/{own_policy} does not exist yet")
        };
        let lost = karmada.policy_lives.then_some(Repair::Copy);
        return blocked(Gap::silent(Reason::BindingMissing, text, lost));
    };
    let at = format!("ResourceBinding {namespace}/{binding_name}");
    if let Some(gap) = unscheduled(evidence, binding, &at) {
        return blocked(gap);
    }
    let what = format!("WorkloadDeployment {namespace}/{name}");
    let brought = Brought { what: &what, at: &at, applied: &binding.applied, suspension: &binding.suspension };
    for cluster in &*binding.clusters {
        if let Some(gap) = not_applied(evidence, &brought, cluster, Repair::Copy) {
            return blocked(gap);
        }
    }
    match diagnose_data(evidence, binding, &namespace) {
        // Karmada's report is about the state before the last change.
        Delivery::Delivered { .. } if !is_of_latest(evidence, binding) => {
            let on = binding.clusters.join(", ");
            let text = format!(
                "{what} on Cluster {on} is an earlier version: its last change is not in {at} yet, Karmada has not \
                 processed it"
            );
            blocked(Gap::silent(Reason::NotApplied, text, Some(Repair::Change)))
        }
        Delivery::Delivered { on, note: None } => {
            let waits = evidence.karmada.drain_waits.clone();
            let waits = waits.map(|message| Note::new(Reason::DrainWaiting, message));
            let note = waits.or_else(|| label_lost(evidence, &on)).or_else(|| brought.suspended(&on));
            Delivery::Delivered { on, note }
        }
        other => other,
    }
}

/// True if a cluster that answers has the deployment.
fn is_heard(karmada: &Karmada) -> bool {
    let binding = karmada.binding.as_ref().filter(|binding| !binding.terminating);
    binding.is_some_and(|binding| {
        binding.clusters.iter().any(|name| {
            let answers = karmada.clusters.get(name).is_some_and(|cluster| cluster.ready.is_ok());
            answers && binding.applied.get(name) == Some(&Ok(()))
        })
    })
}

/// Returns the policy that claims the deployment instead of its city's, by kind and name. A ClusterPropagationPolicy keeps what
/// it has claimed, even if other policies select it (fact 67).
fn other_policy(evidence: &Evidence<'_>, own_policy: &str) -> Option<String> {
    let binding = evidence.karmada.binding.as_ref();
    let on_binding = || binding.and_then(|binding| binding.cluster_policy.clone());
    let cluster_policy = facts::cluster_policy(&evidence.copy.metadata).or_else(on_binding);
    let policy = evidence.copy.annotations().get(annotation::POLICY_NAME).filter(|policy| **policy != own_policy);
    facts::claimant(policy.map(String::as_str), cluster_policy.as_deref())
}

/// Reports a cluster that has the deployment without its city's label. The guard keeps the deployment there.
fn label_lost(evidence: &Evidence<'_>, on: &[String]) -> Option<Note> {
    let strange = on.iter().find_map(|name| {
        let cluster = evidence.karmada.clusters.get(name)?;
        (cluster.city.as_ref() != Some(evidence.city)).then_some((name, &cluster.city))
    });
    let (name, label) = strange?;
    let carries = label.as_ref().map_or("is missing".to_owned(), |city| format!("is {city}"));
    let message = format!(
        "Cluster {name} has it, but its label {}, which must be {}, {carries}: restore the label, or annotate the Cluster \
         with {}=true to move the city",
        label::TOPOLOGY_CITY,
        evidence.city,
        annotation::DRAIN
    );
    Some(Note::new(Reason::CityLabelLost, message))
}

/// Judges the data that the deployment depends on.
fn diagnose_data(evidence: &Evidence<'_>, binding: &BindingFacts, namespace: &str) -> Delivery {
    let expected = annotated(evidence.copy, annotation::EXPECTED_REFERENCED_DATA);
    let needed = || diagnose_dependencies(evidence, binding, namespace, &expected);
    match evidence.karmada.phase {
        Phase::Dependencies => needed(),
        Phase::Claims => diagnose_claims(evidence, binding, namespace, &expected),
        // Data that arrived by one of the two ways is there. A gap in the other way blocks only the migration.
        Phase::Both => match (needed(), diagnose_claims(evidence, binding, namespace, &expected)) {
            (Delivery::Blocked { cause, silent, repair, .. }, Delivery::Delivered { on, .. }) => {
                let repair = repair.filter(|_| !silent);
                let note = Note { reason: Reason::DependenciesNotPropagated, message: cause.message, repair };
                Delivery::Delivered { on, note: Some(note) }
            }
            (needed, _) => needed,
        },
    }
}

/// Judges the data if companions follow the deployments that need them.
fn diagnose_dependencies(
    evidence: &Evidence<'_>,
    binding: &BindingFacts,
    namespace: &str,
    expected: &[DataRef],
) -> Delivery {
    if expected.is_empty() {
        return Delivery::Delivered { on: binding.clusters.to_vec(), note: None };
    }
    if let Some(text) = unlisted(evidence, binding, namespace, expected) {
        let gap = if is_to_come(evidence, binding) {
            let untaken = !is_of_latest(evidence, binding);
            Gap::silent(Reason::DependenciesNotPropagated, text, untaken.then_some(Repair::Change))
        } else {
            Gap::looked_at(Reason::DependenciesNotPropagated, text)
        };
        return gap.of_data();
    }
    match missing(evidence, binding, namespace, expected) {
        Some(gap) => gap.of_data(),
        None => Delivery::Delivered { on: binding.clusters.to_vec(), note: claimed_elsewhere(evidence, expected) },
    }
}

/// Picks the missing companion to report. A lost one comes first, because it is repaired once it is known. The next choice is one
/// with a reported cause, and otherwise the last one. Karmada brings companions in their order, so that another choice would
/// change the report with each arrival.
fn missing(evidence: &Evidence<'_>, binding: &BindingFacts, namespace: &str, expected: &[DataRef]) -> Option<Gap> {
    let gap = |data_ref| not_attached(evidence, binding, namespace, data_ref);
    let mut gaps: Vec<(&DataRef, Gap)> =
        expected.iter().filter_map(|data_ref| Some((data_ref, gap(data_ref)?))).collect();
    let had = |data_ref| evidence.last_delivery.is_some_and(|delivery| last_delivery::had(delivery, data_ref));
    let lost = gaps.iter().rposition(|(data_ref, gap)| gap.is_silent() && had(data_ref));
    let reported = lost.or_else(|| gaps.iter().position(|(_, gap)| !gap.is_silent()));
    let reported = reported.or(gaps.len().checked_sub(1))?;
    Some(gaps.swap_remove(reported).1)
}

/// True if Karmada has made the deployment's binding from the present copy.
fn is_of_latest(evidence: &Evidence<'_>, binding: &BindingFacts) -> bool {
    seen::is_of_latest(binding, evidence.copy, evidence.karmada.written)
}

/// True if data missing in a binding proves nothing about Karmada's settings: Karmada has not processed the copy since its last
/// write, or is known to be behind.
fn is_to_come(evidence: &Evidence<'_>, binding: &BindingFacts) -> bool {
    evidence.behind || !is_of_latest(evidence, binding)
}

/// Returns why Karmada does not know all dependencies of the deployment. `None` if it knows them.
fn unlisted(evidence: &Evidence<'_>, binding: &BindingFacts, namespace: &str, expected: &[DataRef]) -> Option<String> {
    let at = format!("ResourceBinding {namespace}/{}", parent(evidence));
    if is_to_come(evidence, binding)
        && !expected.iter().all(|data_ref| binding.dependencies.iter().flatten().any(|known| known == data_ref))
    {
        return Some(format!("{at} does not list all dependencies yet: Karmada has not processed it"));
    }
    let known = match &*binding.dependencies {
        None if !binding.distributed => {
            // Without the script, Karmada looks the same as without the feature gate.
            return Some(format!(
                "{at} is not processed by Karmada's dependency distributor: enable the feature gate PropagateDeps of \
                 karmada-controller-manager, and check that the ResourceInterpreterCustomization workloaddeployment of \
                 config/components/federation exists. Karmada retries waiting objects when karmada-controller-manager \
                 restarts, or when the operator requests it after a while"
            ));
        }
        None => &[][..],
        Some(known) => known,
    };
    let unknown: Vec<DataRef> = expected.iter().filter(|data_ref| !known.contains(data_ref)).cloned().collect();
    (!unknown.is_empty()).then(|| {
        format!(
            "{at} does not list {}: the ResourceInterpreterCustomization workloaddeployment is missing, or its \
             dependencyInterpretation fails; apply config/components/federation to the hub. Karmada retries when \
             karmada-controller-manager restarts, or when the operator requests it after a while",
            resolve::list(&unknown)
        )
    })
}

/// Returns why a companion is not where the deployment needs it, with its repair. `None` if it is there.
fn not_attached(evidence: &Evidence<'_>, binding: &BindingFacts, namespace: &str, data_ref: &DataRef) -> Option<Gap> {
    let (kind, name) = (data_ref.kind.as_str(), &data_ref.name);
    let attached_name = names::binding_name(kind, name);
    let Some(attached) = evidence.karmada.attached.get(data_ref).filter(|binding| !binding.terminating) else {
        let text = format!("Karmada has no ResourceBinding {namespace}/{attached_name} for {kind} {name}");
        return Some(Gap::silent(Reason::BindingMissing, text, Some(Repair::Companion(data_ref.clone()))));
    };
    if let Some(cluster) = binding.clusters.iter().find(|cluster| !attached.needed_on.contains(cluster)) {
        let text = format!(
            "ResourceBinding {namespace}/{attached_name} of {kind} {name} does not send it to cluster {cluster}, \
             where {} needs it",
            parent(evidence)
        );
        return Some(Gap::silent(Reason::DependenciesNotPropagated, text, None));
    }
    let (what, at) = (format!("{kind} {namespace}/{name}"), format!("ResourceBinding {namespace}/{attached_name}"));
    let brought = Brought { what: &what, at: &at, applied: &attached.applied, suspension: &attached.suspension };
    binding
        .clusters
        .iter()
        .find_map(|cluster| not_applied(evidence, &brought, cluster, Repair::Companion(data_ref.clone())))
}

/// Reports companions that another policy claims too. Claims of city policies are left out: a migration, or the clean-up after
/// one, removes them.
fn claimed_elsewhere(evidence: &Evidence<'_>, expected: &[DataRef]) -> Option<Note> {
    let claims = expected.iter().filter_map(|data_ref| {
        let companion = evidence.companions.get(data_ref)?;
        let policy = companion.policy.as_deref().filter(|policy| CityPolicyName::parse(policy).is_none());
        let claimant = facts::claimant(policy, companion.cluster_policy.as_deref())?;
        Some(format!("{} {} is also claimed by {claimant}", data_ref.kind.as_str(), data_ref.name))
    });
    let claims: Vec<String> = claims.collect();
    (!claims.is_empty()).then(|| {
        let message = format!(
            "{}, which may send it where no deployment needs it: remove that policy's selector",
            claims.join(", ")
        );
        Note::new(Reason::ClaimedByAnotherPolicy, message)
    })
}

/// Returns the name of the binding of the deployment's copy.
fn parent(evidence: &Evidence<'_>) -> String {
    names::deployment_binding(&evidence.copy.name_any())
}

/// Judges the data if each companion goes to the one city with the policy that claims it.
fn diagnose_claims(evidence: &Evidence<'_>, binding: &BindingFacts, namespace: &str, expected: &[DataRef]) -> Delivery {
    for data_ref in expected {
        let (kind, name) = (data_ref.kind.as_str(), &data_ref.name);
        let own = evidence.karmada.attached.get(data_ref);
        let missing = binding.clusters.iter().find(|cluster| own.is_none_or(|own| !own.clusters.contains(cluster)));
        let Some(cluster) = missing else { continue };
        let companion = evidence.companions.get(data_ref);
        let by = companion
            .and_then(|companion| facts::claimant(companion.policy.as_deref(), companion.cluster_policy.as_deref()));
        let by = by.unwrap_or_else(|| "no policy".to_owned());
        let text = format!(
            "{kind} {namespace}/{name} is claimed by {by} and does not reach Cluster {cluster}: while policies claim data, \
             it is sent to one city only; use a copy under another name here. To share data between cities, migrate to \
             dependencies: compute-operator migration status shows what blocks the migration"
        );
        return Gap::stated(Reason::ClaimedByAnotherPolicy, text).of_data();
    }
    Delivery::Delivered { on: binding.clusters.to_vec(), note: None }
}

/// Returns why a binding goes to no cluster.
fn unscheduled(evidence: &Evidence<'_>, binding: &BindingFacts, at: &str) -> Option<Gap> {
    let (ok, why, message) = match &*binding.scheduled {
        Some(condition) => (condition.succeeded, condition.reason.as_str(), condition.message.as_str()),
        None => (false, "", "Karmada's scheduler has not processed it"),
    };
    if ok && !binding.clusters.is_empty() {
        return None;
    }
    if binding.suspension.stops_scheduling() {
        let text = format!("spec.suspension.scheduling of {at} blocks scheduling until it is resumed");
        return Some(Gap::stated(Reason::PropagationSuspended, text));
    }
    let city = evidence.city;
    let words = [why, message].into_iter().filter(|t| !t.is_empty()).collect::<Vec<_>>().join(": ");
    let clusters = evidence.karmada.clusters.iter();
    let mut candidates = clusters.filter(|(_, cluster)| cluster.city.as_ref() == Some(city)).peekable();
    if candidates.peek().is_none() {
        let text = format!("no Cluster has the label {}={city} (Karmada: {words})", label::TOPOLOGY_CITY);
        return Some(Gap::stated(Reason::NoClusterForCity, text));
    }
    let candidates: Vec<_> = candidates.collect();
    let broken = candidates.iter().find_map(|(name, cluster)| Some((name, cluster.ready.as_ref().err()?)));
    let tainted = candidates.iter().find(|(_, cluster)| !cluster.taints.is_empty());
    match broken {
        Some((name, state)) => {
            let text = format!("Cluster {name} of city {city} is not ready: {state} (Karmada: {words})");
            Some(Gap::stated(Reason::ClusterNotReady, text))
        }
        None if binding.scheduled.is_none() => {
            Some(Gap::silent(Reason::NotScheduled, format!("Karmada: {words}"), None))
        }
        None => {
            let text = match tainted {
                Some((name, cluster)) => {
                    let going = if binding.evicting { "; Karmada removes the deployment from there" } else { "" };
                    let taints = cluster.taints.join(", ");
                    format!("Cluster {name} of city {city} has the taint {taints}{going} (Karmada: {words})")
                }
                None => format!("Karmada: {words}"),
            };
            // The scheduler does not look again when a cluster serves the kind at last (fact 66).
            // A deployment that has a cluster could lose it to a touch.
            let is_able = candidates.iter().all(|(_, cluster)| cluster.is_able().is_ok());
            let is_outdated = binding.clusters.is_empty() && !binding.evicting && is_able;
            let gap = if is_outdated { Gap::looked_at } else { Gap::stated };
            Some(gap(Reason::NotScheduled, text))
        }
    }
}

/// Returns why a cluster does not have the object of a binding. `lost` is the repair if no component reports a cause.
fn not_applied(evidence: &Evidence<'_>, brought: &Brought<'_>, cluster: &str, lost: Repair) -> Option<Gap> {
    let Brought { what, at, applied, suspension } = brought;
    let state = evidence.karmada.clusters.get(cluster).map(|facts| &facts.ready);
    let applied = applied.get(cluster);
    let silent = applied.is_none_or(|applied| applied.as_ref().is_err_and(String::is_empty));
    match (state, applied) {
        (None, _) => {
            let text = format!("{what} is assigned to Cluster {cluster}, which does not exist");
            Some(Gap::stated(Reason::ClusterNotReady, text))
        }
        (Some(Err(why)), _) => {
            let had = if applied == Some(&Ok(())) { "; all was delivered before" } else { "" };
            Some(Gap::stated(Reason::ClusterNotReady, format!("Cluster {cluster} is not ready: {why}{had}")))
        }
        (Some(Ok(())), Some(Ok(()))) => None,
        (Some(Ok(())), _) if silent && suspension.stops_dispatching(cluster) => {
            let text = format!("spec.suspension of {at} blocks {what} on Cluster {cluster} until it is resumed");
            Some(Gap::stated(Reason::PropagationSuspended, text))
        }
        (Some(Ok(())), Some(Err(why))) if !silent => {
            let where_to_read = if why == facts::WITHHELD {
                format!("; read it in the status of {at} on the hub")
            } else {
                String::new()
            };
            Some(Gap::stated(Reason::NotApplied, format!("{what} is not on Cluster {cluster}: {why}{where_to_read}")))
        }
        // The Work exists, and no agent has applied it: nothing is lost.
        (Some(Ok(())), Some(Err(_))) => {
            let text = format!("{what} is not on Cluster {cluster}: {NO_WORDS}");
            Some(Gap::silent(Reason::NotApplied, text, None))
        }
        (Some(Ok(())), None) => {
            let text = format!("{what} is not on Cluster {cluster}: {NO_REPORT}");
            Some(Gap::silent(Reason::NotApplied, text, Some(lost)))
        }
    }
}

#[cfg(test)]
#[path = "diagnosis_tests.rs"]
mod tests;
