//! Policies and what they claim.

use anyhow::Result;
use kube::{ResourceExt, api::DynamicObject};
use serde_json::{Value, json};

use super::{
    Federation,
    bindings::binding_name,
    cache::{TEMPLATES, matches},
};

pub(super) const POLICY_ID: &str = "propagationpolicy.karmada.io/permanent-id";
pub(super) const POLICY_NAME: &str = "propagationpolicy.karmada.io/name";
pub(super) const POLICY_NAMESPACE: &str = "propagationpolicy.karmada.io/namespace";
const POLICY_FINALIZER: &str = "karmada.io/propagation-policy-controller";

impl Federation {
    /// A policy that goes gives its claims back; what it brought to the members stays there (fact 13).
    pub(super) async fn release_policies(&self) -> Result<()> {
        for policy in self.hub.all("PropagationPolicy") {
            if policy.metadata.deletion_timestamp.is_none() {
                continue;
            }
            let unclaim = json!({ "metadata": {
                "labels": { POLICY_ID: null },
                "annotations": { POLICY_NAME: null, POLICY_NAMESPACE: null },
            }});
            for kind in TEMPLATES.into_iter().chain(["ResourceBinding"]) {
                for object in self.hub.all(kind) {
                    if is_claimed_by(&object, &policy) {
                        self.hub.merge(kind, &object, &unclaim).await?;
                    }
                }
            }
            self.hub.release("PropagationPolicy", &policy, POLICY_FINALIZER).await?;
        }
        Ok(())
    }

    /// A template that its policy selects no more: the claim stays with it (fact 24), unless nothing needs the template
    /// by then. Its binding is then made anew, and what it brought with it (fact 25).
    pub(super) async fn drop_unselected(&self) -> Result<()> {
        for kind in ["ConfigMap", "Secret"] {
            for template in self.hub.all(kind) {
                let annotations = template.annotations();
                let (Some(name), Some(namespace)) = (annotations.get(POLICY_NAME), annotations.get(POLICY_NAMESPACE))
                else {
                    continue;
                };
                let Some(policy) = self.hub.get("PropagationPolicy", namespace, name) else { continue };
                if policy.metadata.deletion_timestamp.is_some() || selects(&policy, kind, &template) {
                    continue;
                }
                let binding_name = binding_name(kind, &template.name_any());
                let binding = self.hub.get("ResourceBinding", namespace, &binding_name);
                let needed = |b: &DynamicObject| b.data["spec"]["requiredBy"].as_array().is_some_and(|l| !l.is_empty());
                if binding.as_ref().is_some_and(|binding| needed(binding)) {
                    continue;
                }
                let unclaim = json!({ "metadata": {
                    "labels": { POLICY_ID: null }, "annotations": { POLICY_NAME: null, POLICY_NAMESPACE: null },
                }});
                self.hub.merge(kind, &template, &unclaim).await?;
                if binding.is_some() {
                    self.hub.delete("ResourceBinding", namespace, &binding_name).await?;
                }
            }
        }
        Ok(())
    }

    /// Templates that no policy has claimed go to the first that selects them (fact 1).
    pub(super) async fn claim_templates(&self) -> Result<()> {
        let mut policies = self.hub.all("PropagationPolicy");
        policies.retain(|policy| policy.metadata.deletion_timestamp.is_none());
        for policy in &policies {
            if !policy.finalizers().iter().any(|f| f == POLICY_FINALIZER) {
                let mut finalizers = policy.finalizers().to_vec();
                finalizers.push(POLICY_FINALIZER.into());
                let marks = json!({ "metadata": {
                    "finalizers": finalizers, "labels": { POLICY_ID: policy.uid() }, "resourceVersion": policy.resource_version(),
                }});
                self.hub.merge("PropagationPolicy", policy, &marks).await?;
            }
        }
        for kind in TEMPLATES {
            for template in self.hub.all(kind) {
                if template.metadata.deletion_timestamp.is_some() || template.labels().contains_key(POLICY_ID) {
                    continue;
                }
                let Some(policy) = policies.iter().find(|policy| selects(policy, kind, &template)) else { continue };
                let claim = json!({ "metadata": {
                    "labels": { POLICY_ID: policy.uid() },
                    "annotations": { POLICY_NAME: policy.name_any(), POLICY_NAMESPACE: policy.namespace() },
                }});
                self.hub.merge(kind, &template, &claim).await?;
            }
        }
        Ok(())
    }
}

fn is_claimed_by(object: &DynamicObject, policy: &DynamicObject) -> bool {
    object.labels().get(POLICY_ID).is_some() && object.labels().get(POLICY_ID) == policy.uid().as_ref()
}

fn selects(policy: &DynamicObject, kind: &str, template: &DynamicObject) -> bool {
    if policy.namespace() != template.namespace() {
        return false;
    }
    let selectors = policy.data["spec"]["resourceSelectors"].as_array();
    selectors.into_iter().flatten().any(|selector| {
        selector["kind"] == kind
            && selector.get("name").and_then(Value::as_str).is_none_or(|name| name == template.name_any())
            && matches(template, selector["labelSelector"].get("matchLabels"))
    })
}
