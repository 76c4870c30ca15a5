//! Bindings of claimed templates: created, updated and deleted.

use std::{
    collections::{BTreeSet, HashMap},
    sync::Arc,
};

use anyhow::Result;
use kube::{ResourceExt, api::DynamicObject};
use serde_json::{Value, json};

use super::{
    Failures, Federation,
    cache::{TEMPLATES, hash, resource},
    claims::selects,
    distributor::{Attached, DEPENDENCIES_FINALIZER},
};

pub(super) const BINDING_FINALIZER: &str = "karmada.io/binding-controller";
/// Annotation of a namespace's Work, which has no binding: a slash and the namespace.
const MADE_OF_NAMESPACE: &str = "stand-in/binding";
/// Annotations of a Work: namespace and name of its binding.
const MADE_OF: [&str; 2] = ["resourcebinding.karmada.io/namespace", "resourcebinding.karmada.io/name"];

/// Returns the origin of a Work, in the form of [`of`].
pub(super) fn made_of(work: &DynamicObject) -> Option<String> {
    let annotation = |key: &str| work.annotations().get(key);
    let binding = || Some(format!("{}/{}", annotation(MADE_OF[0])?, annotation(MADE_OF[1])?));
    annotation(MADE_OF_NAMESPACE).cloned().or_else(binding)
}

/// Returns the annotations for this origin.
pub(super) fn marks(of: &str) -> Value {
    match of.split_once('/') {
        Some(("", _)) | None => json!({ MADE_OF_NAMESPACE: of }),
        Some((namespace, name)) => json!({ MADE_OF[0]: namespace, MADE_OF[1]: name }),
    }
}
/// Label with the permanent id of a binding.
pub(super) const BINDING_ID: &str = "resourcebinding.karmada.io/permanent-id";

/// Returns the name of a template's binding (fact 2).
pub(super) fn binding_name(kind: &str, name: &str) -> String {
    format!("{name}-{}", kind.to_lowercase())
}

/// Returns the names in a `clusters` list.
pub(super) fn clusters(list: &Value) -> Vec<String> {
    list.as_array().into_iter().flatten().filter_map(|c| Some(c["name"].as_str()?.to_owned())).collect()
}

/// The state that a binding was last made from.
pub(super) struct Bound {
    /// Number of changes of the template by then.
    template: u64,
    policy: String,
}

impl Federation {
    /// Creates one binding for each claimed template. Updates it when the template or the policy changes. A deleted binding is
    /// only recreated when its template is touched (fact 49).
    ///
    /// A template that its policy no longer selects keeps the claim, and is no longer updated (fact 52).
    pub(super) async fn bind_templates(&mut self) -> Result<()> {
        let mut failures = Failures::default();
        let mut present = BTreeSet::new();
        // This is read before the templates, so that a change in between is handled in the next pass.
        let changes = self.hub.changes();
        for kind in TEMPLATES {
            for template in self.hub.all(kind) {
                let uid = template.uid().unwrap_or_default();
                present.insert(uid.clone());
                let Some((policies, policy)) = self.claimant(&template) else { continue };
                let going = [&template.metadata, &policy.metadata].iter().any(|meta| meta.deletion_timestamp.is_some());
                if going || !selects(&policy, kind, &template) {
                    continue;
                }
                let now = Bound {
                    template: changes.get(&uid).copied().unwrap_or_default(),
                    policy: hash(&format!("{:?}{}", policy.uid(), policy.data["spec"])),
                };
                let namespace = template.namespace().unwrap_or_default();
                let binding = self.hub.get("ResourceBinding", &namespace, &binding_name(kind, &template.name_any()));
                let due = match self.bound.get(&uid) {
                    None => true,
                    // A lazy policy that changes waits for the template (fact 79).
                    Some(before) => {
                        let renews = before.policy != now.policy && binding.is_some();
                        before.template != now.template
                            || renews && policy.data["spec"]["activationPreference"] != "Lazy"
                    }
                };
                if due {
                    let done = self.bind(kind, &template, policies.claim(&policy), &policy, binding.as_deref()).await;
                    if done.is_ok() {
                        self.bound.insert(uid, now);
                    }
                    failures.note(done);
                }
            }
        }
        self.bound.retain(|uid, _| present.contains(uid));
        failures.result()
    }

    async fn bind(
        &self,
        kind: &str,
        template: &DynamicObject,
        claim: Value,
        policy: &DynamicObject,
        binding: Option<&DynamicObject>,
    ) -> Result<()> {
        if let Some(binding) = binding {
            wait_for_collection(binding, template)?;
        }
        let known = binding.map(|binding| binding.finalizers().to_vec()).unwrap_or_default();
        let id = binding.and_then(|binding| binding.labels().get(BINDING_ID).cloned()).or_else(|| template.uid());
        let spec = &policy.data["spec"];
        let mut meta = claim;
        let mut finalizers = with(known, BINDING_FINALIZER);
        // Karmada's distributor adds this finalizer after the first answer of the script, so without a script it is missing. Here
        // it comes with the binding. The operator distinguishes facts 37 and 38 by it.
        if policy.data["spec"]["propagateDeps"] == true && self.controls.distributes() {
            finalizers = with(finalizers, DEPENDENCIES_FINALIZER);
        }
        meta["finalizers"] = json!(finalizers);
        meta["ownerReferences"] = owner(kind, template);
        meta["labels"][BINDING_ID] = json!(id);
        let body = json!({
            "metadata": meta,
            "spec": {
                "resource": reference(kind, template),
                "propagateDeps": spec["propagateDeps"] == true,
                "placement": spec["placement"],
                "conflictResolution": spec["conflictResolution"],
                "schedulerName": spec["schedulerName"],
                "suspension": suspension(binding, &spec["suspension"]),
                "preserveResourcesOnDeletion": spec["preserveResourcesOnDeletion"],
            },
        });
        self.hold_binding(kind, template, binding, body).await
    }

    /// Creates the binding of a template, or replaces the fields of `body` in the existing one.
    pub(super) async fn hold_binding(
        &self,
        kind: &str,
        template: &DynamicObject,
        binding: Option<&DynamicObject>,
        body: Value,
    ) -> Result<()> {
        if let Some(binding) = binding {
            return self.hub.replace("ResourceBinding", &renewed(binding, &body)?).await;
        }
        let namespace = template.namespace().unwrap_or_default();
        self.hub.create("ResourceBinding", &namespace, &binding_name(kind, &template.name_any()), body).await
    }

    pub(super) async fn set_condition(&self, binding: &DynamicObject, condition: Value) -> Result<()> {
        // This is read from the server, because a pass changes several conditions and the cache may be behind.
        let api = self.hub.api("ResourceBinding", &binding.namespace().unwrap_or_default());
        let known = binding.data["status"]["conditions"].as_array().cloned().unwrap_or_default();
        let same = |c: &Value| ["type", "status", "reason", "message"].iter().all(|f| c[*f] == condition[*f]);
        if known.iter().any(same) {
            return Ok(());
        }
        let Some(fresh) = api.get_opt(&binding.name_any()).await? else { return Ok(()) };
        let mut conditions = fresh.data["status"]["conditions"].as_array().cloned().unwrap_or_default();
        conditions.retain(|c| c["type"] != condition["type"]);
        let mut condition = condition;
        condition["lastTransitionTime"] = json!("2026-01-01T00:00:00Z");
        conditions.push(condition);
        self.hub.merge_status("ResourceBinding", &fresh, &json!({ "conditions": conditions })).await
    }

    /// Deletes the Works of terminating bindings, and their entries in the bindings of dependencies. It does not wait for the end
    /// of the Works (facts 12, 32).
    pub(super) async fn release_bindings(&mut self) -> Result<()> {
        let mut failures = Failures::default();
        let mut known = None;
        for binding in self.hub.all("ResourceBinding") {
            if binding.metadata.deletion_timestamp.is_some() {
                let (works, attached) = known.get_or_insert_with(|| (self.works(), self.attached()));
                let own = works.remove(&of(&binding)).unwrap_or_default();
                failures.note(self.release_binding(&binding, &own, attached).await);
            }
        }
        failures.result()
    }

    async fn release_binding(
        &self,
        binding: &DynamicObject,
        works: &[Arc<DynamicObject>],
        attached: &Attached,
    ) -> Result<()> {
        for work in works.iter().filter(|work| work.metadata.deletion_timestamp.is_none()) {
            self.hub.delete("Work", &work.namespace().unwrap_or_default(), &work.name_any()).await?;
        }
        if binding.finalizers().iter().any(|f| f == DEPENDENCIES_FINALIZER) {
            self.detach_all(binding, attached).await?;
        }
        let mut left = binding.finalizers().to_vec();
        left.retain(|f| f != BINDING_FINALIZER && f != DEPENDENCIES_FINALIZER);
        if left.len() < binding.finalizers().len() {
            self.hub.merge("ResourceBinding", binding, &json!({ "metadata": { "finalizers": left } })).await?;
        }
        Ok(())
    }

    /// Returns the Works of each binding, by the name from [`of`].
    pub(super) fn works(&self) -> HashMap<String, Vec<Arc<DynamicObject>>> {
        let mut works: HashMap<String, Vec<Arc<DynamicObject>>> = HashMap::new();
        for work in self.hub.all("Work") {
            if let Some(of) = made_of(&work) {
                works.entry(of).or_default().push(work);
            }
        }
        works
    }
}

/// Returns the suspension of a binding: that of the policy, plus the scheduling part that a user has set on the binding (fact
/// 71).
fn suspension(binding: Option<&DynamicObject>, policy: &Value) -> Value {
    let mut suspension = policy.as_object().cloned().unwrap_or_default();
    let scheduling = binding.map_or(&Value::Null, |binding| &binding.data["spec"]["suspension"]["scheduling"]);
    if !scheduling.is_null() {
        suspension.insert("scheduling".into(), scheduling.clone());
    }
    if suspension.is_empty() { Value::Null } else { json!(suspension) }
}

/// Returns a binding with the fields of `body`. Labels and annotations are merged, all other fields are replaced.
fn renewed(binding: &DynamicObject, body: &Value) -> Result<DynamicObject> {
    let mut object = serde_json::to_value(binding)?;
    for (field, value) in body["spec"].as_object().into_iter().flatten() {
        object["spec"][field] = value.clone();
    }
    for (field, value) in body["metadata"].as_object().into_iter().flatten() {
        if ["labels", "annotations"].contains(&field.as_str()) {
            for (key, value) in value.as_object().into_iter().flatten() {
                object["metadata"][field][key] = value.clone();
            }
        } else {
            object["metadata"][field] = value.clone();
        }
    }
    Ok(serde_json::from_value(object)?)
}

/// Returns the name of a binding in its Works.
pub(super) fn of(binding: &DynamicObject) -> String {
    format!("{}/{}", binding.namespace().unwrap_or_default(), binding.name_any())
}

/// Fails while the binding of an earlier template with the same name still exists.
pub(super) fn wait_for_collection(binding: &DynamicObject, template: &DynamicObject) -> Result<()> {
    let owner = binding.owner_references().iter().find(|owner| owner.controller == Some(true));
    let theirs = owner.is_some_and(|owner| Some(&owner.uid) != template.uid().as_ref());
    let going = binding.metadata.deletion_timestamp.is_some();
    anyhow::ensure!(!theirs && !going, "the binding {} of another object is not collected yet", of(binding));
    Ok(())
}

/// Returns `finalizers` with this one included.
pub(super) fn with(mut finalizers: Vec<String>, finalizer: &str) -> Vec<String> {
    if !finalizers.iter().any(|f| f == finalizer) {
        finalizers.push(finalizer.into());
    }
    finalizers
}

pub(super) fn owner(kind: &str, template: &DynamicObject) -> Value {
    json!([{
        "apiVersion": resource(kind).api_version, "kind": kind, "name": template.name_any(), "uid": template.uid(),
        "controller": true, "blockOwnerDeletion": true,
    }])
}

/// Returns a binding's reference to its template. It has the version, so that each change of the template changes the binding.
pub(super) fn reference(kind: &str, template: &DynamicObject) -> Value {
    json!({
        "apiVersion": resource(kind).api_version, "kind": kind, "namespace": template.namespace(),
        "name": template.name_any(), "uid": template.uid(), "resourceVersion": template.resource_version(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn renewed_binding_replaces_the_placement_and_keeps_other_fields() {
        let binding = json!({
            "metadata": { "name": "b", "labels": { "a": "1" } },
            "spec": { "clusters": [{ "name": "x" }], "placement": { "clusterAffinity": { "clusterNames": ["x"] } } },
        });
        let body =
            json!({ "metadata": { "labels": { "b": "2" } }, "spec": { "placement": { "clusterAffinity": {} } } });
        let renewed = renewed(&serde_json::from_value(binding).unwrap(), &body).unwrap();
        assert_eq!(
            renewed.data["spec"],
            json!({ "clusters": [{ "name": "x" }], "placement": { "clusterAffinity": {} } })
        );
        assert_eq!(renewed.labels().len(), 2);
    }
}
