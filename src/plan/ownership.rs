//! "Is it ours": the only place that may answer.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use kube::{Resource, ResourceExt};
use serde_json::{Value, json};

use crate::api::{
    compute::WorkloadDeployment,
    meta::{self, annotation, label},
};

/// The owner that controls `object`.
pub fn controller_of<K: Resource>(object: &K) -> Option<&OwnerReference> {
    object.owner_references().iter().find(|owner| owner.controller == Some(true))
}

/// Whether `owner` controls `object`: by uid, so that a namesake of a deleted owner does not.
pub fn is_controlled_by<K: Resource, O: Resource>(object: &K, owner: &O) -> bool {
    owner.meta().uid.is_some() && controller_of(object).map(|o| &o.uid) == owner.meta().uid.as_ref()
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

/// Whether a hub copy was made from this project namespace.
pub fn is_hub_copy_from(copy: &WorkloadDeployment, project_namespace: &str) -> bool {
    copy.labels().get(label::UPSTREAM_NAMESPACE).is_some_and(|ns| ns == project_namespace)
}

/// Whether we made this object on the hub (policies carry our label).
pub fn is_managed<K: Resource>(object: &K) -> bool {
    object.labels().get(label::MANAGED_BY).is_some_and(|by| by == meta::MANAGED_BY)
}

/// Whether a WorkloadDeployment is a project's original that a federator takes care of, not a copy for a cell.
pub fn is_federated_original(deployment: &WorkloadDeployment) -> bool {
    deployment.annotations().contains_key(annotation::FEDERATION_NAMESPACE)
        || !deployment.labels().contains_key(label::UPSTREAM_NAMESPACE)
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
}
