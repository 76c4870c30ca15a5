//! A project's WorkloadDeployment -> its copy on the hub, and the copy's status -> the project.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use jiff::Timestamp;
use k8s_openapi::api::core::v1::Namespace;
use kube::ResourceExt;
use serde_json::{Value, json};

use super::{
    diagnosis::{self, DELIVERY_GRACE, Delivery, Evidence, Repair},
    facts::{BindingFacts, ClusterFacts, CompanionFacts, Phase},
    federation_status as status,
    resolve::{self, Data},
};
use crate::{
    api::{
        compute::{WorkloadDeployment, WorkloadDeploymentStatus},
        meta::{self, annotation, condition, finalizer, label, manager},
        names::{self, CityCode, ProjectName},
        reason::Reason,
        referenced::{self, Token},
    },
    plan::{
        Hub, NamespaceFacts, Next, Object, ObjectVersion, Plan, Project, Step, Write,
        condition::Verdict,
        event::{self, Note, Severity},
        ownership,
    },
};

/// Everything that is known about one deployment of a project.
pub struct Observed<'a> {
    /// The project it lives in.
    pub project: &'a ProjectName,
    /// The deployment.
    pub deployment: &'a WorkloadDeployment,
    /// Uid of its namespace; `None` when the namespace is gone.
    pub namespace_uid: Option<&'a str>,
    /// A namespace of the hub by name.
    pub hub_namespace: &'a dyn Fn(&str) -> Option<NamespaceFacts>,
    /// The copy in a namespace of the hub.
    pub copy: &'a dyn Fn(&str) -> Option<Arc<WorkloadDeployment>>,
    /// What it refers to.
    pub data: resolve::View<'a>,
    /// What Karmada made of it; absent while that is not known.
    pub karmada: Option<Karmada<'a>>,
    /// What it has been blocked_since, as [`Decision::lack`] said, and for how long.
    pub blocked_since: Option<(&'a str, Duration)>,
    /// Whether what is lacking may be repaired now, see [`diagnosis::Repair`].
    pub may_repair: bool,
}

/// What Karmada made of the objects in the deployment's hub namespace.
pub struct Karmada<'a> {
    /// Whether a policy of this name is there.
    pub policy_lives: &'a dyn Fn(&str) -> bool,
    /// How the policy of this name brings companions.
    pub phase: &'a dyn Fn(&str) -> Phase,
    /// A binding by name.
    pub binding: &'a dyn Fn(&str) -> Option<Arc<BindingFacts>>,
    /// A companion.
    pub companion: &'a dyn Fn(&Token) -> Option<Arc<CompanionFacts>>,
    /// A member cluster by name.
    pub cluster: &'a dyn Fn(&str) -> Option<Arc<ClusterFacts>>,
    /// The clusters that carry a city's label.
    pub clusters_of: &'a dyn Fn(&CityCode) -> Vec<String>,
}

/// What is to be done for one deployment.
#[derive(Debug)]
pub struct Decision {
    /// The writes.
    pub plan: Plan<Step<Project, Hub>>,
    /// What is blocked_since, in one word.
    pub blocker: Option<String>,
    /// Whether something is repaired, so that Karmada makes anew what was removed.
    pub repairs: bool,
}

impl From<Plan<Step<Project, Hub>>> for Decision {
    fn from(plan: Plan<Step<Project, Hub>>) -> Self {
        Self { plan, blocker: None, repairs: false }
    }
}

/// Decides the writes for one deployment.
pub fn plan(observed: &Observed<'_>, now: Timestamp) -> Decision {
    if observed.deployment.metadata.deletion_timestamp.is_some() {
        return delete(observed).into();
    }
    // Always derived, never believed: whoever could name another project's namespace could write into it.
    let Some(namespace) = observed.namespace_uid.map(names::hub_namespace) else {
        return Plan::nothing().into(); // the namespace's own event brings us back
    };
    let deployment = observed.deployment;
    let city = match CityCode::parse(&deployment.spec.city_code) {
        Ok(city) => city,
        Err(why) => return invalid(deployment, &why, now).map(Step::Local).into_iter().collect::<Plan<_>>().into(),
    };
    let mut steps: Vec<Step<Project, Hub>> = Vec::new();
    let data = resolve::data(deployment, &observed.data);
    steps.extend(mark(deployment, &namespace, &data).map(Step::Local));
    let facts = (observed.hub_namespace)(&namespace);
    if facts.as_ref().is_some_and(|ns| ns.terminating) {
        return Plan::writes(steps).into(); // made anew once it is gone; its event brings us back
    }
    steps.extend(ensure_namespace(observed, &namespace, facts.as_ref()).map(Step::Remote));
    let copy = (observed.copy)(&namespace);
    if copy.as_ref().is_some_and(|copy| copy.metadata.deletion_timestamp.is_some()) {
        return Plan::writes(steps).into(); // the same
    }
    let finding = copy.as_deref().zip(observed.karmada.as_ref()).map(|(copy, karmada)| {
        diagnosis::diagnose(&Evidence {
            copy,
            city: &city,
            policy_lives: (karmada.policy_lives)(&city.policy_name()),
            phase: (karmada.phase)(&city.policy_name()),
            binding: karmada.binding,
            companion: karmada.companion,
            cluster: karmada.cluster,
            clusters_of: karmada.clusters_of,
        })
    });
    let blocker = status::blocker(deployment, copy.as_deref(), &data, finding.as_ref());
    // Each cause has a grace of its own: on the way back to health others pass by.
    let lasts = observed.blocked_since.filter(|(what, _)| blocker.as_deref() == Some(what));
    let elapsed = lasts.map_or(Duration::ZERO, |(_, since)| since);
    let reported = blocker.is_some() && elapsed >= DELIVERY_GRACE;
    let hint = hint(&data, finding.as_ref()).filter(|_| reported);
    let annotations = data_annotations(&data, hint.as_deref());
    steps.extend(ensure_copy(deployment, &city, &namespace, copy.as_deref(), annotations).map(Step::Remote));
    let status = status::plan(deployment, copy.as_deref(), &data, finding.as_ref(), reported, now);
    steps.extend(status.into_iter().map(Step::Local));
    let mut next =
        if blocker.is_none() || reported { Next::Await } else { Next::After(DELIVERY_GRACE.saturating_sub(elapsed)) };
    let lost = match &finding {
        Some(Delivery::Blocked { repair: Some(repair), .. }) if reported => Some(repair),
        _ => None,
    };
    let repair = lost.filter(|_| observed.may_repair).map(|lost| repair(observed, copy.as_deref(), lost, now));
    let repairs = repair.as_ref().is_some_and(|steps| !steps.is_empty());
    if lost.is_some() {
        next = Next::After(DELIVERY_GRACE); // no event reports that it did not help
    }
    steps.extend(repair.into_iter().flatten());
    Decision { plan: Plan::until(steps, next), blocker, repairs }
}

/// The copy first; our finalizer once a live read has shown that it is gone.
fn delete(observed: &Observed<'_>) -> Plan<Step<Project, Hub>> {
    let deployment = observed.deployment;
    // The Go operator held one more; what it stood for, the claims on companions, is given up without it.
    let leftover = Write::release(manager::FEDERATOR, finalizer::REFERENCED_DATA, deployment);
    if let Some(leftover) = leftover {
        return Plan::writes(vec![Step::Local(leftover)]);
    }
    let release = || -> Option<Write<Project>> { Write::release(manager::FEDERATOR, finalizer::FEDERATOR, deployment) };
    let recorded = deployment.annotations().get(annotation::FEDERATION_NAMESPACE).cloned();
    let Some(namespace) = observed.namespace_uid.map(names::hub_namespace).or(recorded) else {
        // The namespace is recorded before anything is written there, so nothing was.
        return release().map(Step::Local).into_iter().collect();
    };
    if let Some(copy) = (observed.copy)(&namespace) {
        if ownership::is_hub_copy_from(&copy, &deployment.namespace().unwrap_or_default()) {
            // On its way out already when there is no write: its event brings us back.
            return Write::delete(copy.as_ref()).map(Step::Remote).into_iter().collect();
        }
        return release().map(Step::Local).into_iter().collect();
    }
    let Some(release) = release() else { return Plan::nothing() };
    let name = deployment.name_any();
    Plan::writes(vec![
        Step::Remote(Write::confirm_absent(Object::named::<WorkloadDeployment>(&namespace, &name))),
        Step::Local(release),
    ])
}

/// A copy whose original is gone: a request of ours that was under way while the original was let go has made it anew.
///
/// Only within a project namespace that still is the very one the hub namespace was named after: of another one (a
/// project rebuilt, a kubeconfig gone astray) the absence of an original says nothing. The live read comes first.
pub fn plan_orphan(namespace: &str, namespace_uid: &str, copy: &WorkloadDeployment) -> Plan<Step<Project, Hub>> {
    let same = copy.namespace().as_deref() == Some(&*names::hub_namespace(namespace_uid));
    if !same || !ownership::is_hub_copy_from(copy, namespace) {
        return Plan::nothing();
    }
    let Some(delete) = Write::<Hub>::delete(copy) else { return Plan::nothing() };
    let confirm = Write::<Project>::confirm_absent(Object::named::<WorkloadDeployment>(namespace, &copy.name_any()));
    Plan::writes(vec![Step::Local(confirm), Step::Remote(delete)])
}

/// Touches what Karmada has lost the binding or Work of; a deletion that is under way is left alone.
fn repair(
    observed: &Observed<'_>,
    copy: Option<&WorkloadDeployment>,
    lost: &Repair,
    now: Timestamp,
) -> Vec<Step<Project, Hub>> {
    let Some(copy) = copy else { return Vec::new() };
    let patch = json!({ "metadata": { "annotations": { annotation::REPAIRED: now.as_second().to_string() } } });
    let (repair, what): (Write<Hub>, String) = match lost {
        Repair::Copy => {
            let what = format!("WorkloadDeployment {}", copy.name_any());
            (Write::amend(manager::REPAIR, patch, copy), what)
        }
        Repair::Companion(token) => {
            let companion = (observed.data.companion)(token).filter(|companion| !companion.terminating);
            let Some(companion) = companion else { return Vec::new() };
            let object = Object {
                kind: token.kind.into(),
                namespace: copy.namespace().unwrap_or_default(),
                name: token.name.clone(),
            };
            let version = ObjectVersion::new(&companion.uid, &companion.version);
            (Write::amend_version(manager::REPAIR, object, patch, &version), token.to_string())
        }
    };
    let text = format!("{what} lost what Karmada had made of it on the hub, and was touched to have it made anew");
    let note = Note { severity: Severity::Warning, reason: Reason::Repaired, action: "Repairing", text: &text };
    let controller = "workload-deployment-federator";
    let event = event::on(observed.deployment, controller, &note, now);
    vec![Step::Remote(repair), Step::Local(event)]
}

/// Finalizer and hub namespace in one write, before anything is written on the hub; and what is known of its data.
fn mark(deployment: &WorkloadDeployment, namespace: &str, data: &Data) -> Option<Write<Project>> {
    let mut annotations = data_annotations(data, None);
    let stale = stale(deployment, &annotations);
    annotations.insert(annotation::FEDERATION_NAMESPACE, namespace.to_owned());
    let fields = json!({ "metadata": { "finalizers": [finalizer::FEDERATOR], "annotations": annotations }});
    Write::ensure_fields(manager::FEDERATOR, fields, deployment).or(stale)
}

/// The annotations that say which data a deployment needs; on the hub they decide what Karmada brings to the cell.
fn data_annotations(data: &Data, hint: Option<&str>) -> BTreeMap<&'static str, String> {
    let mut annotations = BTreeMap::new();
    if let Some(expected) = &data.expected {
        annotations.insert(annotation::EXPECTED_REFERENCED_DATA, referenced::to_annotation(expected));
    }
    if !data.skipped.is_empty() {
        annotations.insert(annotation::SKIPPED_REFERENCED_DATA, referenced::to_annotation(&data.skipped));
    }
    if let Some(error) = data.refusal.as_ref().map(resolve::Refusal::to_annotation).or(hint.map(str::to_owned)) {
        annotations.insert(annotation::REFERENCED_DATA_ERROR, error);
    }
    annotations
}

/// Removes such an annotation that somebody else wrote: an apply takes back only what was ours.
fn stale<P>(live: &WorkloadDeployment, wanted: &BTreeMap<&'static str, String>) -> Option<Write<P>> {
    let ours =
        [annotation::EXPECTED_REFERENCED_DATA, annotation::SKIPPED_REFERENCED_DATA, annotation::REFERENCED_DATA_ERROR];
    let surplus = ours.into_iter().filter(|key| live.annotations().contains_key(*key) && !wanted.contains_key(key));
    let surplus: serde_json::Map<String, Value> = surplus.map(|key| (key.to_owned(), Value::Null)).collect();
    if surplus.is_empty() {
        return None;
    }
    let patch = json!({ "metadata": { "annotations": surplus } });
    Some(Write::amend(manager::FEDERATOR, patch, live))
}

/// Why data does not arrive although all of it is on the hub: the cell cannot know, and its Instances are to say it.
fn hint(data: &Data, finding: Option<&Delivery>) -> Option<String> {
    match finding {
        Some(Delivery::Blocked { cause, data: true, .. }) if data.trouble.is_none() => {
            Some(json!({ "reason": cause.reason, "message": cause.message }).to_string())
        }
        _ => None,
    }
}

fn ensure_namespace(observed: &Observed<'_>, name: &str, live: Option<&NamespaceFacts>) -> Option<Write<Hub>> {
    let labels = BTreeMap::from([
        (label::UPSTREAM_CLUSTER.to_owned(), observed.project.label_value()),
        (label::UPSTREAM_NAMESPACE.to_owned(), observed.deployment.namespace().unwrap_or_default()),
        (label::DELETION_PROTECTED.to_owned(), meta::PROTECTED.to_owned()),
    ]);
    if live.is_some_and(|live| labels.iter().all(|(key, value)| live.labels.get(key) == Some(value))) {
        return None;
    }
    let fields = json!({ "metadata": { "labels": labels } });
    Write::ensure::<Namespace>(manager::FEDERATOR, "", name, fields, None)
}

fn ensure_copy(
    deployment: &WorkloadDeployment,
    city: &CityCode,
    namespace: &str,
    live: Option<&WorkloadDeployment>,
    mut annotations: BTreeMap<&'static str, String>,
) -> Option<Write<Hub>> {
    let stale = live.and_then(|live| stale(live, &annotations));
    let mut labels: BTreeMap<String, String> = deployment
        .labels()
        .iter()
        .filter(|(key, _)| ownership::may_travel(key))
        .map(|(k, v)| (k.clone(), v.clone()))
        .collect();
    labels.insert(label::TOPOLOGY_CITY.into(), city.as_str().into());
    labels.insert(label::UPSTREAM_NAMESPACE.into(), deployment.namespace().unwrap_or_default());
    annotations.insert(annotation::SOURCE_GENERATION, deployment.metadata.generation.unwrap_or(0).to_string());
    let fields = json!({
        "metadata": { "labels": labels, "annotations": annotations },
        "spec": deployment.spec,
    });
    Write::ensure(manager::FEDERATOR, namespace, &deployment.name_any(), fields, live).or(stale)
}

/// A deployment that cannot be federated, said on the deployment itself.
fn invalid(deployment: &WorkloadDeployment, why: &str, now: Timestamp) -> Option<Write<Project>> {
    let empty = WorkloadDeploymentStatus::default();
    let old = deployment.status.as_ref().unwrap_or(&empty);
    let generation = deployment.metadata.generation;
    let verdict = Verdict::no(Reason::InvalidPlacement, why);
    let condition = verdict.into_condition(&old.conditions, condition::AVAILABLE, generation, now);
    let mut status: Value = json!(WorkloadDeploymentStatus { conditions: vec![condition], ..old.clone() });
    status["observedGeneration"] = json!(generation);
    Write::status(manager::FEDERATOR, &status, deployment)
}

#[cfg(test)]
#[path = "federate_tests.rs"]
mod tests;
