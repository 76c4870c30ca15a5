//! What the hub shows of a deployment on its way to the cell -> whether it is there, and if not, why not.
//!
//! Each cause is reported by evidence that was measured (karmada-behaviour, facts 29 to 41 and 49), with the object and
//! Karmada's own words.

use std::collections::BTreeMap;

use kube::ResourceExt;
use serde::{Deserialize, Serialize};

use super::{
    cluster::ClusterFacts,
    facts::{self, AttachedBinding, BindingFacts, Phase, SharedCompanion},
    resolve,
};
use crate::{
    api::{
        compute::WorkloadDeployment,
        meta::{annotation, label},
        names::{self, CityCode, CityPolicyName},
        reason::Reason,
        referenced::Token,
    },
    plan::{condition::Verdict, references::annotated},
};

/// What Karmada made of a deployment's copy, and of the companions that the copy expects.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Karmada {
    /// Whether the city's policy is there, and ours.
    pub policy_lives: bool,
    /// How companions are brought to the city.
    pub phase: Phase,
    /// The copy's binding.
    pub binding: Option<BindingFacts>,
    /// The bindings of the companions that the copy expects.
    pub attached: BTreeMap<Token, AttachedBinding>,
    /// The clusters that the copy goes to, as far as they are there, and all that carry the city's label.
    pub clusters: BTreeMap<String, ClusterFacts>,
    /// What keeps the city from leaving a cluster that the copy goes to, in words; nothing when it is not to leave, or does.
    pub drain_waits: Option<String>,
}

/// What the hub shows of one deployment.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct Evidence<'a> {
    /// Its copy on the hub.
    pub copy: &'a WorkloadDeployment,
    /// Its city.
    pub city: &'a CityCode,
    /// What Karmada made of it.
    pub karmada: &'a Karmada,
    /// The companions that the copy expects.
    pub companions: &'a BTreeMap<Token, SharedCompanion>,
}

/// What the evidence comes to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Delivery {
    /// The cell has what the hub was given.
    Delivered {
        /// The clusters that have it.
        on: Vec<String>,
        /// What is to be reported all the same.
        note: Option<Note>,
    },
    /// Something is not there: the cause.
    Blocked {
        /// Why.
        cause: Verdict,
        /// Whether it is the data that is missing, not the deployment itself.
        data: bool,
        /// What Karmada makes anew once it is repaired, when something was removed that it does not miss by itself.
        repair: Option<Repair>,
    },
}

/// Something that harms nobody yet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Note {
    /// The condition's reason.
    pub reason: Reason,
    /// What, and how to mend it.
    pub message: String,
}

/// A template whose binding or Work was removed (facts 49, 50, 55).
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Repair {
    /// The deployment's copy.
    Copy,
    /// A companion.
    Companion(Token),
}

/// Judges one deployment.
pub fn diagnose(evidence: &Evidence<'_>) -> Delivery {
    let copy = evidence.copy;
    let (namespace, name) = (copy.namespace().unwrap_or_default(), copy.name_any());
    let deployment = |reason: Reason, text: String, repair: Option<Repair>| Delivery::Blocked {
        cause: Verdict::no(reason, text),
        data: false,
        repair,
    };
    let own_policy = evidence.city.policy_name();
    if let Some(other) = other_policy(evidence, &own_policy) {
        let text = format!(
            "WorkloadDeployment {namespace}/{name} is claimed by {other}, not by {own_policy}: it goes where that policy \
             sends it; remove that policy, or its selector"
        );
        return deployment(Reason::ClaimedByAnotherPolicy, text, None);
    }
    let binding_name = names::binding_name("WorkloadDeployment", &name);
    let karmada = evidence.karmada;
    let Some(binding) = karmada.binding.as_ref().filter(|binding| !binding.terminating) else {
        let text = if karmada.policy_lives {
            format!("Karmada has no ResourceBinding {namespace}/{binding_name} for it")
        } else {
            format!("PropagationPolicy {namespace}/{own_policy} is not there yet")
        };
        return deployment(Reason::BindingMissing, text, karmada.policy_lives.then_some(Repair::Copy));
    };
    if let Some(cause) = unscheduled(evidence, binding) {
        return Delivery::Blocked { cause, data: false, repair: None };
    }
    let what = format!("WorkloadDeployment {namespace}/{name}");
    for cluster in &binding.clusters {
        if let Some((cause, lost)) = not_applied(evidence, &binding.applied, cluster, &what) {
            return Delivery::Blocked { cause, data: false, repair: lost.then_some(Repair::Copy) };
        }
    }
    match diagnose_data(evidence, binding, &namespace) {
        Delivery::Delivered { on, note: None } => {
            let waits = evidence.karmada.drain_waits.clone();
            let waits = waits.map(|message| Note { reason: Reason::DrainWaiting, message });
            let note = waits.or_else(|| label_lost(evidence, &on));
            Delivery::Delivered { on, note }
        }
        other => other,
    }
}

/// The policy that claims the deployment in the place of its city's, by kind and name. A ClusterPropagationPolicy that has
/// claimed it keeps it, whatever else selects it (fact 67).
fn other_policy(evidence: &Evidence<'_>, own_policy: &str) -> Option<String> {
    let binding = evidence.karmada.binding.as_ref();
    let on_binding = || binding.and_then(|binding| binding.cluster_policy.clone());
    let cluster_policy = facts::cluster_policy(&evidence.copy.metadata).or_else(on_binding);
    let policy = evidence.copy.annotations().get(annotation::POLICY_NAME).filter(|policy| **policy != own_policy);
    facts::claimant(policy.map(String::as_str), cluster_policy.as_deref())
}

/// A cluster that has the deployment without carrying its city's label: the guard holds it there.
fn label_lost(evidence: &Evidence<'_>, on: &[String]) -> Option<Note> {
    let strange = on.iter().find_map(|name| {
        let cluster = evidence.karmada.clusters.get(name)?;
        (cluster.city.as_ref() != Some(evidence.city)).then_some((name, &cluster.city))
    });
    let (name, label) = strange?;
    let carries = label.as_ref().map_or("does not carry it".to_owned(), |city| format!("says {city}"));
    let message = format!(
        "Cluster {name} has it, but its label {}, which should be {}, {carries}: put the label back, or annotate the \
         Cluster with {}=true to move the city",
        label::TOPOLOGY_CITY,
        evidence.city,
        annotation::DRAIN
    );
    Some(Note { reason: Reason::CityLabelLost, message })
}

/// Judges what the deployment depends on.
fn diagnose_data(evidence: &Evidence<'_>, binding: &BindingFacts, namespace: &str) -> Delivery {
    let expected = annotated(evidence.copy, annotation::EXPECTED_REFERENCED_DATA);
    let needed = || diagnose_dependencies(evidence, binding, namespace, &expected);
    match evidence.karmada.phase {
        Phase::Dependencies => needed(),
        Phase::Claims => diagnose_claims(evidence, binding, namespace, &expected),
        // What is there by either way is there; that the other one missing something holds up the migration alone.
        Phase::Both => match (needed(), diagnose_claims(evidence, binding, namespace, &expected)) {
            (Delivery::Blocked { cause, .. }, Delivery::Delivered { on, .. }) => {
                let note = Note { reason: Reason::DependenciesNotPropagated, message: cause.message };
                Delivery::Delivered { on, note: Some(note) }
            }
            (needed, _) => needed,
        },
    }
}

/// Judges its data where companions follow the deployments that need them.
fn diagnose_dependencies(
    evidence: &Evidence<'_>,
    binding: &BindingFacts,
    namespace: &str,
    expected: &[Token],
) -> Delivery {
    if expected.is_empty() {
        return Delivery::Delivered { on: binding.clusters.clone(), note: None };
    }
    if let Some(text) = unlisted(evidence, binding, namespace, expected) {
        let cause = Verdict::no(Reason::DependenciesNotPropagated, text);
        return Delivery::Blocked { cause, data: true, repair: None };
    }
    for token in expected {
        if let Some((cause, repair)) = not_attached(evidence, binding, namespace, token) {
            return Delivery::Blocked { cause, data: true, repair };
        }
    }
    Delivery::Delivered { on: binding.clusters.clone(), note: claimed_elsewhere(evidence, expected) }
}

/// Why Karmada does not know all that the deployment depends on; nothing when it does.
fn unlisted(evidence: &Evidence<'_>, binding: &BindingFacts, namespace: &str, expected: &[Token]) -> Option<String> {
    let at = format!("ResourceBinding {namespace}/{}", parent(evidence));
    let known = match &binding.dependencies {
        None if !binding.distributed => {
            return Some(format!(
                "{at} is not taken up by Karmada's dependency distributor: enable the feature gate PropagateDeps of \
                 karmada-controller-manager"
            ));
        }
        None => &[][..],
        Some(known) => known,
    };
    let unknown: Vec<Token> = expected.iter().filter(|token| !known.contains(token)).cloned().collect();
    (!unknown.is_empty()).then(|| {
        format!(
            "{at} does not list {}: the ResourceInterpreterCustomization workloaddeployment is missing, or its \
             dependencyInterpretation fails; apply config/components/federation to the hub",
            resolve::list(&unknown)
        )
    })
}

/// Why one companion is not where the deployment needs it, and what is to be repaired; nothing when it is.
fn not_attached(
    evidence: &Evidence<'_>,
    binding: &BindingFacts,
    namespace: &str,
    token: &Token,
) -> Option<(Verdict, Option<Repair>)> {
    let (kind, name) = (token.kind.as_str(), &token.name);
    let attached_name = names::binding_name(kind, name);
    let Some(attached) = evidence.karmada.attached.get(token).filter(|binding| !binding.terminating) else {
        let text = format!("Karmada has no ResourceBinding {namespace}/{attached_name} for {kind} {name}");
        return Some((Verdict::no(Reason::BindingMissing, text), Some(Repair::Companion(token.clone()))));
    };
    if let Some(cluster) = binding.clusters.iter().find(|cluster| !attached.needed_on.contains(cluster)) {
        let text = format!(
            "ResourceBinding {namespace}/{attached_name} of {kind} {name} does not send it to cluster {cluster}, \
             where {} needs it",
            parent(evidence)
        );
        return Some((Verdict::no(Reason::DependenciesNotPropagated, text), None));
    }
    let what = format!("{kind} {namespace}/{name}");
    let missing_on = |cluster: &String| not_applied(evidence, &attached.applied, cluster, &what);
    let (cause, lost) = binding.clusters.iter().find_map(missing_on)?;
    Some((cause, lost.then(|| Repair::Companion(token.clone()))))
}

/// Companions that a policy claims beside bringing them along. Those of city policies are on their way out: a migration,
/// or what one has left, which is undone.
fn claimed_elsewhere(evidence: &Evidence<'_>, expected: &[Token]) -> Option<Note> {
    let claims = expected.iter().filter_map(|token| {
        let companion = evidence.companions.get(token)?;
        let policy = companion.policy.as_deref().filter(|policy| CityPolicyName::parse(policy).is_none());
        let claimant = facts::claimant(policy, companion.cluster_policy.as_deref())?;
        Some(format!("{} {} is also claimed by {claimant}", token.kind.as_str(), token.name))
    });
    let claims: Vec<String> = claims.collect();
    (!claims.is_empty()).then(|| Note {
        reason: Reason::ClaimedByAnotherPolicy,
        message: format!(
            "{}, which may send it where no deployment needs it: remove that policy's selector",
            claims.join(", ")
        ),
    })
}

/// Name of the binding of the deployment's copy.
fn parent(evidence: &Evidence<'_>) -> String {
    names::binding_name("WorkloadDeployment", &evidence.copy.name_any())
}

/// Judges its data where each companion goes to the one city whose policy claims it.
fn diagnose_claims(evidence: &Evidence<'_>, binding: &BindingFacts, namespace: &str, expected: &[Token]) -> Delivery {
    for token in expected {
        let (kind, name) = (token.kind.as_str(), &token.name);
        let own = evidence.karmada.attached.get(token);
        let missing = binding.clusters.iter().find(|cluster| own.is_none_or(|own| !own.clusters.contains(cluster)));
        let Some(cluster) = missing else { continue };
        let companion = evidence.companions.get(token);
        let by = companion.and_then(|of| facts::claimant(of.policy.as_deref(), of.cluster_policy.as_deref()));
        let by = by.unwrap_or_else(|| "no policy".to_owned());
        let text = format!(
            "{kind} {namespace}/{name} is claimed by {by} and does not reach Cluster {cluster}: data shared by several \
             cities has to follow its deployments: compute-operator migration status says what keeps it from that"
        );
        let cause = Verdict::no(Reason::ClaimedByAnotherPolicy, text);
        return Delivery::Blocked { cause, data: true, repair: None };
    }
    Delivery::Delivered { on: binding.clusters.clone(), note: None }
}

fn unscheduled(evidence: &Evidence<'_>, binding: &BindingFacts) -> Option<Verdict> {
    let (ok, why, message) = match &binding.scheduled {
        Some(said) => (said.succeeded, said.reason.as_str(), said.message.as_str()),
        None => (false, "", "Karmada's scheduler has not looked at it"),
    };
    if ok && !binding.clusters.is_empty() {
        return None;
    }
    let city = evidence.city;
    let words = [why, message].into_iter().filter(|t| !t.is_empty()).collect::<Vec<_>>().join(": ");
    let clusters = evidence.karmada.clusters.iter();
    let mut candidates = clusters.filter(|(_, cluster)| cluster.city.as_ref() == Some(city)).peekable();
    if candidates.peek().is_none() {
        let text = format!("no Cluster carries the label {}={city} (Karmada: {words})", label::TOPOLOGY_CITY);
        return Some(Verdict::no(Reason::NoClusterForCity, text));
    }
    let broken = candidates.find_map(|(name, cluster)| Some((name, cluster.ready.as_ref().err()?)));
    match broken {
        Some((name, state)) => {
            let text = format!("Cluster {name} of city {city} is not ready: {state} (Karmada: {words})");
            Some(Verdict::no(Reason::ClusterNotReady, text))
        }
        None => Some(Verdict::no(Reason::NotScheduled, format!("Karmada: {words}"))),
    }
}

/// Why one cluster does not have what one binding brings, of which `applied` is what the clusters took; and whether its
/// Work may have been removed.
fn not_applied(
    evidence: &Evidence<'_>,
    applied: &BTreeMap<String, Result<(), String>>,
    cluster: &str,
    what: &str,
) -> Option<(Verdict, bool)> {
    let state = evidence.karmada.clusters.get(cluster).map(|facts| &facts.ready);
    let applied = applied.get(cluster);
    match (state, applied) {
        (None, _) => {
            let text = format!("{what} is to go to Cluster {cluster}, which is not there any more");
            Some((Verdict::no(Reason::ClusterNotReady, text), false))
        }
        (Some(Err(why)), _) => {
            let had = if applied == Some(&Ok(())) { "; it had all before" } else { "" };
            let text = format!("Cluster {cluster} is not ready: {why}{had}");
            Some((Verdict::no(Reason::ClusterNotReady, text), false))
        }
        (Some(Ok(())), Some(Ok(()))) => None,
        (Some(Ok(())), Some(Err(why))) => {
            let why = if why.is_empty() { "Karmada does not say why" } else { why };
            Some((Verdict::no(Reason::NotApplied, format!("{what} is not on Cluster {cluster}: {why}")), false))
        }
        (Some(Ok(())), None) => {
            let text = format!("{what} is not on Cluster {cluster}: Karmada has not reported about it");
            Some((Verdict::no(Reason::NotApplied, text), true))
        }
    }
}

#[cfg(test)]
#[path = "diagnosis_tests.rs"]
mod tests;
