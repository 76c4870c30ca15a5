//! Ownership of objects. Only this module decides if an object is ours.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, OwnerReference};
use kube::{Resource, ResourceExt};
use serde_json::{Value, json};

use crate::api::{
    compute::{Instance, Workload, WorkloadDeployment},
    karmada::{PropagationPolicy, ResourceSelector},
    meta::{self, annotation, label, manager},
    names::{CityCode, CityPolicyName, HubNamespace, Template},
    referenced::SourceKind,
};

/// Labels that name the owners of an Instance. An Instance without them cannot be copied.
pub const OF_AN_INSTANCE: [&str; 7] = [
    label::WORKLOAD_UID,
    label::WORKLOAD_DEPLOYMENT_UID,
    label::WORKLOAD_DEPLOYMENT_NAME,
    label::INSTANCE_INDEX,
    label::CITY_CODE,
    label::WORKLOAD_NAME,
    label::PLACEMENT_NAME,
];

/// Returns the owner that controls `object`.
pub fn controller_of<K: Resource>(object: &K) -> Option<&OwnerReference> {
    object.owner_references().iter().find(|owner| owner.controller == Some(true))
}

/// True if `owner` controls `object`. The uid is compared, so a deleted owner of the same name does not count.
pub fn is_controlled_by<K: Resource, O: Resource>(object: &K, owner: &O) -> bool {
    owner.meta().uid.is_some() && controller_of(object).map(|o| &o.uid) == owner.meta().uid.as_ref()
}

/// True if a Workload may adopt a deployment: its spec names a Workload of this name, it has no controller, and it is not
/// terminating. Such a deployment was left by `--cascade=orphan`, or restored without its owner references.
pub fn may_adopt(workload: &Workload, deployment: &WorkloadDeployment) -> bool {
    controller_of(deployment).is_none()
        && deployment.metadata.deletion_timestamp.is_none()
        && deployment.spec.workload_ref.name == workload.name_any()
}

/// Returns a controller reference to `owner`, as JSON for an apply.
pub fn controller_reference<O: Resource<DynamicType = ()>>(owner: &O) -> Value {
    json!([{
        "apiVersion": O::api_version(&()), "kind": O::kind(&()),
        "name": owner.name_any(), "uid": owner.uid(),
        "controller": true, "blockOwnerDeletion": true,
    }])
}

/// Returns an owner reference to `owner` without control. It only causes garbage collection.
pub fn reference<O: Resource<DynamicType = ()>>(owner: &O) -> Value {
    json!([{
        "apiVersion": O::api_version(&()), "kind": O::kind(&()),
        "name": owner.name_any(), "uid": owner.uid(),
    }])
}

/// True if a deployment in the hub namespace of this project namespace is our copy. It has the label of a copy, or we wrote it
/// and another client changed the label.
pub fn is_hub_copy_from(copy: &WorkloadDeployment, project_namespace: &str) -> bool {
    says_it_mirrors(&copy.metadata, project_namespace) || is_written_as_copy(&copy.metadata)
}

/// True if a deployment in the hub namespace of this project namespace is our copy without its label.
pub fn is_unlabelled_copy(meta: &ObjectMeta, project_namespace: &str) -> bool {
    !says_it_mirrors(meta, project_namespace) && is_written_as_copy(meta)
}

fn says_it_mirrors(meta: &ObjectMeta, project_namespace: &str) -> bool {
    let labels = meta.labels.as_ref();
    labels.and_then(|labels| labels.get(label::UPSTREAM_NAMESPACE)).is_some_and(|of| of == project_namespace)
}

/// True if a federator wrote this deployment as a copy. An original has an annotation with the namespace of its copy.
fn is_written_as_copy(meta: &ObjectMeta) -> bool {
    let is_original = meta.annotations.iter().flatten().any(|(key, _)| key == annotation::FEDERATION_NAMESPACE);
    let mut writers = meta.managed_fields.iter().flatten().filter(|entry| entry.subresource.is_none());
    !is_original && writers.any(|entry| entry.manager.as_deref() == Some(manager::FEDERATOR))
}

/// True if we created this object on the hub. Policies carry our label.
pub fn is_managed<K: Resource>(object: &K) -> bool {
    object.labels().get(label::MANAGED_BY).is_some_and(|by| by == meta::MANAGED_BY)
}

/// True if this policy of a hub namespace is a city policy. We created it or took it over, or it is exactly as the Go operator
/// writes city policies, which have no label. A policy of that name with any other selector belongs to another owner.
pub fn is_city_policy(policy: &PropagationPolicy) -> bool {
    is_managed(policy) || is_city_policy_of_go(policy)
}

fn is_city_policy_of_go(policy: &PropagationPolicy) -> bool {
    let Some(city) = CityPolicyName::parse(&policy.name_any()) else { return false };
    let selects = |selector: &ResourceSelector, key: &str| {
        let labels = selector.label_selector.as_ref().filter(|labels| labels.match_expressions.is_empty())?;
        let one = labels.match_labels.first_key_value().filter(|_| labels.match_labels.len() == 1)?;
        // Go omits the namespace, and Karmada's webhook adds it (fact 43).
        let is_here = selector.namespace.is_none() || selector.namespace == policy.namespace();
        (is_here && one.0 == key).then(|| one.1.clone())
    };
    let is_of_deployments = |selector: &ResourceSelector| {
        let spelling = selects(selector, label::TOPOLOGY_CITY).filter(|_| selector.kind == "WorkloadDeployment");
        spelling.is_some_and(|spelling| CityCode::parse(&spelling).is_ok_and(|of| of == city))
    };
    let is_of_companions = |selector: &ResourceSelector| {
        let is_source = SourceKind::ALL.iter().any(|kind| kind.as_str() == selector.kind);
        is_source && selects(selector, label::REFERENCED_DATA).is_some()
    };
    let selectors = &policy.spec.resource_selectors;
    let has_both = selectors.iter().any(is_of_deployments) && selectors.iter().any(is_of_companions);
    let is_known = |selector: &ResourceSelector| is_of_deployments(selector) || is_of_companions(selector);
    has_both && selectors.iter().all(is_known) && !policy.spec.propagate_deps
}

/// True if this is a companion. On the hub or a cell, an object of its name without our label belongs to another owner.
pub fn is_companion(meta: &ObjectMeta) -> bool {
    meta.labels.as_ref().is_some_and(|labels| labels.get(label::REFERENCED_DATA).is_some_and(|value| value == "true"))
}

/// True if this is a companion of ours that lost its label. It has our annotation about its users, and our field manager wrote
/// it.
pub fn is_unlabelled_companion(meta: &ObjectMeta) -> bool {
    let mut managers = meta.managed_fields.iter().flatten().filter_map(|entry| entry.manager.as_deref());
    may_be_unlabelled_companion(meta) && managers.any(|name| name == manager::COMPANION)
}

/// True if this may be a companion that lost its label, if its field managers are unknown.
pub fn may_be_unlabelled_companion(meta: &ObjectMeta) -> bool {
    let says = |key: &str| meta.annotations.as_ref().is_some_and(|annotations| annotations.contains_key(key));
    !is_companion(meta) && says(annotation::REFERENCED_BY)
}

/// True if a binding belongs to a companion of ours: a city policy claims it, or only our deployments need it. `parents` are the
/// names of the bindings that need it. If they are `None`, its owner is unknown.
pub fn is_binding_of_companion(policy: Option<&str>, attached: bool, parents: Option<&[String]>) -> bool {
    match (policy, parents) {
        (Some(policy), _) => CityPolicyName::parse(policy).is_some(),
        (None, Some(parents)) => attached && parents.iter().all(|by| Template::of_binding(by).is_deployment()),
        (None, None) => false,
    }
}

/// True if a binding belongs to our copy of a deployment: a city policy claims it, or claimed it before it was deleted
/// (`of_city`).
pub fn is_binding_of_deployment(policy: Option<&str>, of_city: bool) -> bool {
    policy.map_or(of_city, |policy| CityPolicyName::parse(policy).is_some())
}

/// True if we created this Instance in a project: its label names its source, and a deployment owns it without control.
pub fn is_projection(instance: &Instance) -> bool {
    let owned = |owner: &OwnerReference| owner.kind == "WorkloadDeployment" && owner.controller != Some(true);
    is_copy(instance) && instance.owner_references().iter().any(owned)
}

/// True if an Instance in a project was created as a projection for this deployment, even if its labels were removed.
pub fn is_projection_of(instance: &Instance, deployment: &WorkloadDeployment) -> bool {
    let owned = |owner: &OwnerReference| Some(&owner.uid) == deployment.metadata.uid.as_ref();
    instance.owner_references().iter().any(|owner| owned(owner) && owner.controller != Some(true))
}

/// True if an Instance is a copy of another one: its label names the project of the source.
pub fn is_copy(instance: &Instance) -> bool {
    instance.labels().contains_key(label::UPSTREAM_CLUSTER)
}

/// The owner of an object that cells create outside of themselves, as one cell sees it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Holder {
    /// The object carries this cell's uid.
    ThisCell,
    /// The object carries no uid. The Go operator created it, on this cell or another.
    Unmarked,
    /// Another owner.
    Other,
}

/// Returns the uid of the cell that created an object. `None` for objects of the Go operator.
pub fn cell_of<K: Resource>(object: &K) -> Option<&String> {
    object.labels().get(label::CELL_UID)
}

/// Returns the uid of the cell that requests an object of another cell.
pub fn asking_cell<K: Resource>(object: &K) -> Option<&String> {
    object.annotations().get(annotation::CLAIMED_BY_CELL)
}

/// Returns the owner of an object, as the cell with this uid sees it.
pub fn holder<K: Resource>(object: &K, cell: &str) -> Holder {
    match cell_of(object) {
        Some(uid) if uid == cell => Holder::ThisCell,
        Some(_) => Holder::Other,
        None => Holder::Unmarked,
    }
}

/// True if a WorkloadDeployment is a project's original that a federator handles, and not a copy for a cell. The label alone is
/// not enough: if one cluster is project and cell, authors of originals may write labels too. The namespace's name is not enough
/// either, because a project may choose it. A copy has both. Karmada's annotation replaces a label that was removed.
pub fn is_federated_original(deployment: &WorkloadDeployment) -> bool {
    let namespace = deployment.metadata.namespace.as_deref().unwrap_or_default();
    let is_brought = deployment.labels().contains_key(label::UPSTREAM_NAMESPACE)
        || deployment.annotations().contains_key(annotation::TEMPLATE_UID);
    !HubNamespace::is_form_of(namespace)
        || !is_brought
        || deployment.annotations().contains_key(annotation::FEDERATION_NAMESPACE)
}

/// True if only the operator or Karmada may write this label of an Instance. It is not copied from a template.
pub fn is_reserved_on_instances(key: &str) -> bool {
    let ours = [label::UPSTREAM_CLUSTER, label::UPSTREAM_NAMESPACE, label::CELL_UID];
    OF_AN_INSTANCE.contains(&key) || ours.contains(&key) || !may_travel(key)
}

/// True if a tenant's label may be copied to the hub. Karmada acts on its own labels, so they are not copied.
pub fn may_travel(key: &str) -> bool {
    let domain = key.split_once('/').map_or("", |(domain, _)| domain);
    domain != "karmada.io" && !domain.ends_with(".karmada.io")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn labels_of_karmada_do_not_travel() {
        assert!(may_travel("app") && may_travel("example.com/app") && may_travel("notkarmada.io/x"));
        assert!(!may_travel("karmada.io/managed") && !may_travel("propagationpolicy.karmada.io/permanent-id"));
    }

    /// If one cluster was project and cell, no controller handled an original with this label.
    #[test]
    fn original_is_recognized_by_namespace_not_by_label() {
        let mirror = "ns-0b0f9a3e-6f0e-4b39-9a57-0d8f7f6f3b11";
        let mark = json!({ label::UPSTREAM_NAMESPACE: "shop" });
        let recorded = json!({ annotation::FEDERATION_NAMESPACE: mirror });
        for (namespace, labels, annotations, expected) in [
            ("shop", json!({}), json!({}), true),
            ("shop", mark.clone(), json!({}), true),
            ("ns-shop", mark.clone(), json!({}), true),
            ("shop", mark.clone(), recorded.clone(), true),
            (mirror, mark.clone(), json!({}), false),
            (mirror, mark, recorded, true),
            (mirror, json!({}), json!({ annotation::TEMPLATE_UID: "u" }), false),
            (mirror, json!({}), json!({}), true),
        ] {
            let mut deployment = WorkloadDeployment::new("web", crate::api::compute::WorkloadDeploymentSpec::default());
            deployment.metadata.namespace = Some(namespace.into());
            deployment.metadata.labels = serde_json::from_value(labels.clone()).unwrap();
            deployment.metadata.annotations = serde_json::from_value(annotations).unwrap();
            assert_eq!(is_federated_original(&deployment), expected, "{namespace} {labels}");
        }
    }

    #[test]
    fn binding_of_companion_is_recognized_by_policy_or_parents() {
        let ours = ["web-workloaddeployment".to_owned()];
        let mixed = ["web-workloaddeployment".to_owned(), "theirs-deployment".to_owned()];
        for (policy, attached, parents, expected) in [
            (Some("city-dfw"), false, None, true),
            (Some("theirs"), true, Some(&ours[..]), false),
            (None, true, Some(&ours[..]), true),
            (None, false, Some(&ours[..]), false),
            (None, true, Some(&mixed[..]), false),
            (None, true, None, false),
        ] {
            let is_ours = is_binding_of_companion(policy, attached, parents);
            assert_eq!(is_ours, expected, "{policy:?}, attached: {attached}, {parents:?}");
        }
    }

    #[test]
    fn holder_is_read_from_cell_uid_label() {
        let of = |labels: Value| -> Instance {
            serde_json::from_value(json!({
                "metadata": { "name": "web-0", "labels": labels },
                "spec": { "runtime": { "resources": { "instanceType": "t" } }, "networkInterfaces": [] },
            }))
            .unwrap()
        };
        for (labels, expected) in [
            (json!({ label::CELL_UID: "here" }), Holder::ThisCell),
            (json!({ label::CELL_UID: "there" }), Holder::Other),
            (json!({ label::CELL_UID: "" }), Holder::Other),
            (json!({}), Holder::Unmarked),
        ] {
            assert_eq!(holder(&of(labels.clone()), "here"), expected, "{labels}");
        }
    }
}
