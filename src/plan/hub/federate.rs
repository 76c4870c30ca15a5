//! A project's WorkloadDeployment -> its copy on the hub, and the copy's status -> the project.

use std::collections::BTreeMap;

use jiff::Timestamp;
use kube::ResourceExt;
use serde_json::{Value, json};

use crate::{
    api::{
        compute::{WorkloadDeployment, WorkloadDeploymentStatus},
        meta::{annotation, condition, finalizer, label, manager, reason},
        names::{self, CityCode, ProjectName},
    },
    plan::{Hub, Kind, NamespaceFacts, Plan, Project, Step, Write, condition::Verdict, ownership},
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
    pub copy: &'a dyn Fn(&str) -> Option<std::sync::Arc<WorkloadDeployment>>,
}

/// Decides the writes for one deployment.
pub fn plan(observed: &Observed<'_>, now: Timestamp) -> Plan<Step<Project, Hub>> {
    if observed.deployment.metadata.deletion_timestamp.is_some() {
        return delete(observed);
    }
    // Always derived, never believed: whoever could name another project's namespace could write into it.
    let Some(namespace) = observed.namespace_uid.map(names::hub_namespace) else {
        return Plan::nothing(); // the namespace's own event brings us back
    };
    let deployment = observed.deployment;
    let city = match CityCode::parse(&deployment.spec.city_code) {
        Ok(city) => city,
        Err(why) => return invalid(deployment, &why, now).map(Step::Near).into_iter().collect(),
    };
    let mut steps: Vec<Step<Project, Hub>> = Vec::new();
    steps.extend(mark(deployment, &namespace).map(Step::Near));
    let facts = (observed.hub_namespace)(&namespace);
    if facts.as_ref().is_some_and(|ns| ns.terminating) {
        return Plan::writes(steps); // made anew once it is gone; its event brings us back
    }
    steps.extend(hold_namespace(observed, &namespace, facts.as_ref()).map(Step::Far));
    let copy = (observed.copy)(&namespace);
    if copy.as_ref().is_some_and(|copy| copy.metadata.deletion_timestamp.is_some()) {
        return Plan::writes(steps); // the same
    }
    steps.extend(hold_copy(deployment, &city, &namespace, copy.as_deref()).map(Step::Far));
    if let Some(copy) = copy {
        steps.extend(mirror(deployment, &copy).map(Step::Near));
    }
    Plan::writes(steps)
}

/// The copy first; our finalizer once a live read has shown that it is gone.
fn delete(observed: &Observed<'_>) -> Plan<Step<Project, Hub>> {
    let deployment = observed.deployment;
    let release = || -> Option<Write<Project>> {
        Write::release(Kind::WorkloadDeployment, manager::FEDERATOR, finalizer::FEDERATOR, deployment)
    };
    let recorded = deployment.annotations().get(annotation::FEDERATION_NAMESPACE).cloned();
    let Some(namespace) = observed.namespace_uid.map(names::hub_namespace).or(recorded) else {
        // The namespace is recorded before anything is written there, so nothing was.
        return release().map(Step::Near).into_iter().collect();
    };
    if let Some(copy) = (observed.copy)(&namespace) {
        if ownership::is_hub_copy_from(&copy, &deployment.namespace().unwrap_or_default()) {
            // On its way out already when there is no write: its event brings us back.
            return Write::delete(Kind::WorkloadDeployment, copy.as_ref()).map(Step::Far).into_iter().collect();
        }
        return release().map(Step::Near).into_iter().collect();
    }
    let Some(release) = release() else { return Plan::nothing() };
    let name = deployment.name_any();
    Plan::writes(vec![
        Step::Far(Write::confirm_absent(Kind::WorkloadDeployment, &namespace, &name)),
        Step::Near(release),
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
    let Some(delete) = Write::<Hub>::delete(Kind::WorkloadDeployment, copy) else { return Plan::nothing() };
    let confirm = Write::<Project>::confirm_absent(Kind::WorkloadDeployment, namespace, &copy.name_any());
    Plan::writes(vec![Step::Near(confirm), Step::Far(delete)])
}

/// Finalizer and hub namespace in one write, before anything is written on the hub.
fn mark(deployment: &WorkloadDeployment, namespace: &str) -> Option<Write<Project>> {
    let fields = json!({ "metadata": {
        "finalizers": [finalizer::FEDERATOR],
        "annotations": { annotation::FEDERATION_NAMESPACE: namespace },
    }});
    let own = deployment.namespace().unwrap_or_default();
    let name = deployment.name_any();
    Write::apply(Kind::WorkloadDeployment, manager::FEDERATOR, &own, &name, fields, Some(deployment))
}

fn hold_namespace(observed: &Observed<'_>, name: &str, live: Option<&NamespaceFacts>) -> Option<Write<Hub>> {
    let labels = BTreeMap::from([
        (label::UPSTREAM_CLUSTER.to_owned(), observed.project.label_value()),
        (label::UPSTREAM_NAMESPACE.to_owned(), observed.deployment.namespace().unwrap_or_default()),
    ]);
    if live.is_some_and(|live| labels.iter().all(|(key, value)| live.labels.get(key) == Some(value))) {
        return None;
    }
    let fields = json!({ "metadata": { "labels": labels } });
    Write::apply::<WorkloadDeployment>(Kind::Namespace, manager::FEDERATOR, "", name, fields, None)
}

fn hold_copy(
    deployment: &WorkloadDeployment,
    city: &CityCode,
    namespace: &str,
    live: Option<&WorkloadDeployment>,
) -> Option<Write<Hub>> {
    let mut labels: BTreeMap<String, String> = deployment
        .labels()
        .iter()
        .filter(|(key, _)| ownership::may_travel(key))
        .map(|(k, v)| (k.clone(), v.clone()))
        .collect();
    labels.insert(label::TOPOLOGY_CITY.into(), city.as_str().into());
    labels.insert(label::UPSTREAM_NAMESPACE.into(), deployment.namespace().unwrap_or_default());
    let mut annotations =
        BTreeMap::from([(annotation::SOURCE_GENERATION, deployment.metadata.generation.unwrap_or(0).to_string())]);
    if let Some(expected) = deployment.annotations().get(annotation::EXPECTED_REFERENCED_DATA) {
        annotations.insert(annotation::EXPECTED_REFERENCED_DATA, expected.clone());
    }
    let fields = json!({
        "metadata": { "labels": labels, "annotations": annotations },
        "spec": deployment.spec,
    });
    Write::apply(Kind::WorkloadDeployment, manager::FEDERATOR, namespace, &deployment.name_any(), fields, live)
}

/// The cell's report, in the project's terms: generations are those of the project's object.
fn mirror(deployment: &WorkloadDeployment, copy: &WorkloadDeployment) -> Option<Write<Project>> {
    let reported = copy.status.as_ref()?;
    let observed = reported.observed_source_generation;
    let conditions = reported
        .conditions
        .iter()
        .filter(|c| c.type_ != condition::REFERENCED_DATA_READY) // the project's own, written by another controller
        .map(|c| crate::api::compute::Condition { observed_generation: observed, ..c.clone() })
        .collect();
    let status = WorkloadDeploymentStatus {
        conditions,
        observed_generation: observed,
        observed_source_generation: None,
        ..reported.clone()
    };
    Write::apply_status(Kind::WorkloadDeployment, manager::FEDERATOR, &json!(status), deployment)
}

/// A deployment that cannot be federated, said on the deployment itself.
fn invalid(deployment: &WorkloadDeployment, why: &str, now: Timestamp) -> Option<Write<Project>> {
    let empty = WorkloadDeploymentStatus::default();
    let old = deployment.status.as_ref().unwrap_or(&empty);
    let generation = deployment.metadata.generation;
    let verdict = Verdict::no(reason::INVALID_PLACEMENT, why);
    let condition = verdict.over(&old.conditions, condition::AVAILABLE, generation, now);
    let mut status: Value = json!(WorkloadDeploymentStatus { conditions: vec![condition], ..old.clone() });
    status["observedGeneration"] = json!(generation);
    Write::apply_status(Kind::WorkloadDeployment, manager::FEDERATOR, &status, deployment)
}

#[cfg(test)]
#[path = "federate_tests.rs"]
mod tests;
