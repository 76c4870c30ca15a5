//! "Is it ours": the only place that may answer.

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

/// Labels by which every Instance says of itself what it belongs to. Without them it cannot be copied.
pub const OF_AN_INSTANCE: [&str; 7] = [
    label::WORKLOAD_UID,
    label::WORKLOAD_DEPLOYMENT_UID,
    label::WORKLOAD_DEPLOYMENT_NAME,
    label::INSTANCE_INDEX,
    label::CITY_CODE,
    label::WORKLOAD_NAME,
    label::PLACEMENT_NAME,
];

/// The owner that controls `object`.
pub fn controller_of<K: Resource>(object: &K) -> Option<&OwnerReference> {
    object.owner_references().iter().find(|owner| owner.controller == Some(true))
}

/// Whether `owner` controls `object`: by uid, so that a namesake of a deleted owner does not.
pub fn is_controlled_by<K: Resource, O: Resource>(object: &K, owner: &O) -> bool {
    owner.meta().uid.is_some() && controller_of(object).map(|o| &o.uid) == owner.meta().uid.as_ref()
}

/// Whether a Workload may take up a deployment that it does not control: one that says that it is a part of a Workload of that
/// name, and that nobody controls. Such a one was left by `--cascade=orphan`, or restored without its owner references.
pub fn may_adopt(workload: &Workload, deployment: &WorkloadDeployment) -> bool {
    controller_of(deployment).is_none()
        && deployment.metadata.deletion_timestamp.is_none()
        && deployment.spec.workload_ref.name == workload.name_any()
}

/// A controller reference to `owner`, as JSON for an apply.
pub fn controller_reference<O: Resource<DynamicType = ()>>(owner: &O) -> Value {
    json!([{
        "apiVersion": O::api_version(&()), "kind": O::kind(&()),
        "name": owner.name_any(), "uid": owner.uid(),
        "controller": true, "blockOwnerDeletion": true,
    }])
}

/// An owner reference to `owner` that controls nothing: it goes with its owner, and that is all.
pub fn reference<O: Resource<DynamicType = ()>>(owner: &O) -> Value {
    json!([{
        "apiVersion": O::api_version(&()), "kind": O::kind(&()),
        "name": owner.name_any(), "uid": owner.uid(),
    }])
}

/// Whether a copy in the hub namespace that mirrors this project namespace is ours: it says so, or somebody has changed what it
/// says, and it was we who wrote it.
pub fn is_hub_copy_from(copy: &WorkloadDeployment, project_namespace: &str) -> bool {
    says_it_mirrors(&copy.metadata, project_namespace) || is_written_as_copy(&copy.metadata)
}

/// Whether a deployment in the hub namespace that mirrors this project namespace is a copy of ours that does not say so any more.
pub fn is_unlabelled_copy(meta: &ObjectMeta, project_namespace: &str) -> bool {
    !says_it_mirrors(meta, project_namespace) && is_written_as_copy(meta)
}

fn says_it_mirrors(meta: &ObjectMeta, project_namespace: &str) -> bool {
    let labels = meta.labels.as_ref();
    labels.and_then(|labels| labels.get(label::UPSTREAM_NAMESPACE)).is_some_and(|of| of == project_namespace)
}

/// Whether a federator has written this deployment, and not as an original, which says where its copy is.
fn is_written_as_copy(meta: &ObjectMeta) -> bool {
    let is_original = meta.annotations.iter().flatten().any(|(key, _)| key == annotation::FEDERATION_NAMESPACE);
    let mut writers = meta.managed_fields.iter().flatten().filter(|entry| entry.subresource.is_none());
    !is_original && writers.any(|entry| entry.manager.as_deref() == Some(manager::FEDERATOR))
}

/// Whether we made this object on the hub (policies carry our label).
pub fn is_managed<K: Resource>(object: &K) -> bool {
    object.labels().get(label::MANAGED_BY).is_some_and(|by| by == meta::MANAGED_BY)
}

/// Whether this policy of a hub namespace is a city's: one that we made or took over, or one exactly as the Go operator writes
/// them, which carries no label. A policy that has the name and selects anything else is somebody else's.
pub fn is_city_policy(policy: &PropagationPolicy) -> bool {
    is_managed(policy) || is_city_policy_of_go(policy)
}

fn is_city_policy_of_go(policy: &PropagationPolicy) -> bool {
    let Some(city) = CityPolicyName::parse(&policy.name_any()) else { return false };
    let selects = |selector: &ResourceSelector, key: &str| {
        let labels = selector.label_selector.as_ref().filter(|labels| labels.match_expressions.is_empty())?;
        let one = labels.match_labels.first_key_value().filter(|_| labels.match_labels.len() == 1)?;
        // Go leaves the namespace out, and Karmada's webhook fills it in (fact 43).
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

/// Whether this is a companion: on the hub or a cell, an object of its name without our label is somebody else's.
pub fn is_companion(meta: &ObjectMeta) -> bool {
    meta.labels.as_ref().is_some_and(|labels| labels.get(label::REFERENCED_DATA).is_some_and(|value| value == "true"))
}

/// Whether this is a companion that we made, and that has lost its label: it says who uses it, and that it was we who wrote that.
pub fn is_unlabelled_companion(meta: &ObjectMeta) -> bool {
    let mut managers = meta.managed_fields.iter().flatten().filter_map(|entry| entry.manager.as_deref());
    may_be_unlabelled_companion(meta) && managers.any(|name| name == manager::COMPANION)
}

/// Whether this may be such a one, where nothing is known of who has written it.
pub fn may_be_unlabelled_companion(meta: &ObjectMeta) -> bool {
    let says = |key: &str| meta.annotations.as_ref().is_some_and(|annotations| annotations.contains_key(key));
    !is_companion(meta) && says(annotation::REFERENCED_BY)
}

/// Whether a binding is one of a companion of ours: claimed by a city policy, or attached to deployments of ours alone.
/// `parents` are the bindings that need it, by name; without them nobody knows whose it is.
pub fn is_binding_of_companion(policy: Option<&str>, attached: bool, parents: Option<&[String]>) -> bool {
    match (policy, parents) {
        (Some(policy), _) => CityPolicyName::parse(policy).is_some(),
        (None, Some(parents)) => attached && parents.iter().all(|by| Template::of_binding(by).is_deployment()),
        (None, None) => false,
    }
}

/// Whether a binding of a deployment is one of a copy of ours: a city policy claims it, or did before that went (`of_city`).
pub fn is_binding_of_deployment(policy: Option<&str>, of_city: bool) -> bool {
    policy.map_or(of_city, |policy| CityPolicyName::parse(policy).is_some())
}

/// Whether we made this Instance in a project: it says where it comes from, and a deployment owns it without control.
pub fn is_projection(instance: &Instance) -> bool {
    let owned = |owner: &OwnerReference| owner.kind == "WorkloadDeployment" && owner.controller != Some(true);
    is_copy(instance) && instance.owner_references().iter().any(owned)
}

/// Whether an Instance in a project was made to show one of this deployment, whatever somebody has taken off it since.
pub fn is_projection_of(instance: &Instance, deployment: &WorkloadDeployment) -> bool {
    let owned = |owner: &OwnerReference| Some(&owner.uid) == deployment.metadata.uid.as_ref();
    instance.owner_references().iter().any(|owner| owned(owner) && owner.controller != Some(true))
}

/// Whether an Instance shows another one: it says of itself which project that belongs to.
pub fn is_copy(instance: &Instance) -> bool {
    instance.labels().contains_key(label::UPSTREAM_CLUSTER)
}

/// Whose an object is that cells make outside of themselves, as one cell sees it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Holder {
    /// It carries this cell's uid.
    ThisCell,
    /// It carries no uid: made by the Go operator, on this cell or another.
    Unmarked,
    /// Another's.
    Other,
}

/// The uid of the cell that made an object; none on what the Go operator made.
pub fn cell_of<K: Resource>(object: &K) -> Option<&String> {
    object.labels().get(label::CELL_UID)
}

/// The uid of the cell that asks for an object which another one holds.
pub fn asking_cell<K: Resource>(object: &K) -> Option<&String> {
    object.annotations().get(annotation::CLAIMED_BY_CELL)
}

/// Whose an object is, as the cell with this uid sees it.
pub fn holder<K: Resource>(object: &K, cell: &str) -> Holder {
    match cell_of(object) {
        Some(uid) if uid == cell => Holder::ThisCell,
        Some(_) => Holder::Other,
        None => Holder::Unmarked,
    }
}

/// Whether a WorkloadDeployment is a project's original that a federator takes care of, not a copy for a cell. Its label
/// alone does not tell, since where one cluster is project and cell at once, whoever writes originals may write labels too;
/// nor does the name of its namespace, which a project may choose as well. A copy has both, and Karmada's mark stands in for
/// the label while somebody has taken that away.
pub fn is_federated_original(deployment: &WorkloadDeployment) -> bool {
    let namespace = deployment.metadata.namespace.as_deref().unwrap_or_default();
    let is_brought = deployment.labels().contains_key(label::UPSTREAM_NAMESPACE)
        || deployment.annotations().contains_key(annotation::TEMPLATE_UID);
    !HubNamespace::is_form_of(namespace)
        || !is_brought
        || deployment.annotations().contains_key(annotation::FEDERATION_NAMESPACE)
}

/// Whether this label of an Instance is the operator's, or Karmada's, to write: from a template it is not taken.
pub fn is_reserved_on_instances(key: &str) -> bool {
    let ours = [label::UPSTREAM_CLUSTER, label::UPSTREAM_NAMESPACE, label::CELL_UID];
    OF_AN_INSTANCE.contains(&key) || ours.contains(&key) || !may_travel(key)
}

/// Whether a tenant's label may travel to the hub: Karmada steers by its own, so those may not.
pub fn may_travel(key: &str) -> bool {
    let domain = key.split_once('/').map_or("", |(domain, _)| domain);
    domain != "karmada.io" && !domain.ends_with(".karmada.io")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn karmadas_own_labels_do_not_travel() {
        assert!(may_travel("app") && may_travel("example.com/app") && may_travel("notkarmada.io/x"));
        assert!(!may_travel("karmada.io/managed") && !may_travel("propagationpolicy.karmada.io/permanent-id"));
    }

    /// Found by reading: in one cluster that is project and cell, an original with this label was nobody's.
    #[test]
    fn an_original_is_told_by_where_it_is_and_not_by_a_label() {
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
    fn whose_a_binding_is() {
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
    fn whose_an_object_of_a_cell_is() {
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
