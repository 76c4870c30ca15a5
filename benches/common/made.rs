//! The results of Karmada and of a cell for a deployment's copy, written again for other copies.

use compute_operator::api::names::deployment_binding;
use kube::{
    Api, Client,
    api::{DynamicObject, ObjectMeta, Patch, PatchParams, PostParams},
};
use serde_json::{Value, json};

use super::{report, resource};

/// The field manager of real Karmada's controllers.
const CONTROLLERS: &str = "controller-manager";

/// The results for one copy.
pub struct Made {
    copies: Api<DynamicObject>,
    bindings: Api<DynamicObject>,
    /// The labels and annotations that Karmada added.
    marks: Value,
    binding: Value,
    status: Value,
}

impl Made {
    /// Returns the results for the copy of this name, which refers to data. `None` until it is delivered.
    pub async fn of(hub: &Client, namespace: &str, name: &str) -> Option<Self> {
        let api = |kind| Api::<DynamicObject>::namespaced_with(hub.clone(), namespace, &resource(kind));
        let (copies, bindings) = (api("WorkloadDeployment"), api("ResourceBinding"));
        let copy = serde_json::to_value(copies.get(name).await.ok()?).unwrap();
        let binding = serde_json::to_value(bindings.get(&deployment_binding(name)).await.ok()?).unwrap();
        if binding["status"]["aggregatedStatus"][0]["applied"] != true {
            return None;
        }
        let of_karmada = |field: &str| -> Value {
            let all = copy["metadata"][field].as_object().into_iter().flatten();
            all.filter(|(key, _)| key.contains("karmada.io/"))
                .map(|(key, value)| (key.clone(), value.clone()))
                .collect()
        };
        let marks = json!({ "labels": of_karmada("labels"), "annotations": of_karmada("annotations") });
        let (old, mut status) = (&binding["metadata"], binding["status"].clone());
        status["aggregatedStatus"][0]["status"] = report();
        let mut metadata = json!({ "namespace": namespace });
        for field in ["labels", "annotations", "finalizers", "ownerReferences"] {
            metadata[field] = old[field].clone();
        }
        metadata["annotations"]["resourcebinding.karmada.io/dependencies"] = json!("[]");
        let binding = json!({
            "apiVersion": binding["apiVersion"], "kind": binding["kind"], "metadata": metadata, "spec": binding["spec"],
        });
        Some(Self { copies, bindings, marks, binding, status })
    }

    /// Writes the same results for another copy, which refers to no data.
    pub async fn again(&self, copy: ObjectMeta) {
        let (name, params) =
            (copy.name.unwrap(), PatchParams { field_manager: Some(CONTROLLERS.into()), ..PatchParams::default() });
        let marks = Patch::Merge(json!({ "metadata": self.marks }));
        let copy = self.copies.patch(&name, &params, &marks).await.unwrap().metadata;
        let mut binding = self.binding.clone();
        binding["metadata"]["name"] = json!(deployment_binding(&name));
        for reference in ["/metadata/ownerReferences/0", "/spec/resource"] {
            let reference = binding.pointer_mut(reference).unwrap();
            (reference["name"], reference["uid"]) = (json!(name), json!(copy.uid));
        }
        binding["spec"]["resource"]["resourceVersion"] = json!(copy.resource_version);
        let post = PostParams { field_manager: params.field_manager.clone(), ..PostParams::default() };
        self.bindings.create(&post, &serde_json::from_value(binding).unwrap()).await.unwrap();
        let status = Patch::Merge(json!({ "status": self.status }));
        self.bindings.patch_status(&deployment_binding(&name), &params, &status).await.unwrap();
        let report = Patch::Merge(json!({ "status": report() }));
        self.copies.patch_status(&name, &params, &report).await.unwrap();
    }
}
