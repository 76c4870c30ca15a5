//! Policies and their claims.

use std::{cmp::Reverse, sync::Arc};

use anyhow::Result;
use kube::{ResourceExt, api::DynamicObject};
use serde_json::{Map, Value, json};

use super::{
    Failures, Federation,
    bindings::{binding_name, with},
    cache::{TEMPLATES, selects_labels},
};

/// One of the two kinds of policies, with the marks of its claims on templates and bindings.
#[derive(Debug)]
pub(super) struct PolicyKind {
    pub(super) kind: &'static str,
    /// Label: the policy's id. The policy itself carries it too.
    id: &'static str,
    /// Annotation: the policy's name.
    name: &'static str,
    /// Annotation: the policy's namespace, if it has one.
    namespace: Option<&'static str>,
    finalizer: &'static str,
}

/// The kinds of policies. One of the template's namespace has precedence over one of the whole hub.
pub(super) static POLICIES: [PolicyKind; 2] = [
    PolicyKind {
        kind: "PropagationPolicy",
        id: "propagationpolicy.karmada.io/permanent-id",
        name: "propagationpolicy.karmada.io/name",
        namespace: Some("propagationpolicy.karmada.io/namespace"),
        finalizer: "karmada.io/propagation-policy-controller",
    },
    PolicyKind {
        kind: "ClusterPropagationPolicy",
        id: "clusterpropagationpolicy.karmada.io/permanent-id",
        name: "clusterpropagationpolicy.karmada.io/name",
        namespace: None,
        finalizer: "karmada.io/cluster-propagation-policy-controller",
    },
];

impl PolicyKind {
    /// Returns the labels and annotations of a claim.
    pub(super) fn claim(&self, policy: &DynamicObject) -> Value {
        let mut annotations = json!({ self.name: policy.name_any() });
        if let Some(namespace) = self.namespace {
            annotations[namespace] = json!(policy.namespace());
        }
        json!({ "labels": { self.id: policy.labels().get(self.id) }, "annotations": annotations })
    }

    /// Returns a merge patch that removes such a claim.
    fn no_claim(&self) -> Value {
        let annotations: Map<String, Value> =
            [Some(self.name), self.namespace].into_iter().flatten().map(|key| (key.to_owned(), Value::Null)).collect();
        json!({ "metadata": { "labels": { self.id: null }, "annotations": annotations } })
    }

    fn is_claimed_by(&self, object: &DynamicObject, policy: &DynamicObject) -> bool {
        let id = policy.labels().get(self.id);
        id.is_some() && object.labels().get(self.id) == id
    }

    fn is_marked(&self, policy: &DynamicObject) -> bool {
        let selectors = policy.data["spec"]["resourceSelectors"].as_array();
        let named = |selector: &Value| policy.metadata.namespace.is_none() || !selector["namespace"].is_null();
        policy.labels().contains_key(self.id)
            && policy.finalizers().iter().any(|f| f == self.finalizer)
            && selectors.into_iter().flatten().all(named)
    }
}

/// True if a policy claims the object.
pub(super) fn is_claimed(object: &DynamicObject) -> bool {
    POLICIES.iter().any(|policies| object.labels().contains_key(policies.id))
}

impl Federation {
    /// Returns the policy that claims a template, if it exists.
    pub(super) fn claimant(&self, template: &DynamicObject) -> Option<(&'static PolicyKind, Arc<DynamicObject>)> {
        let annotations = template.annotations();
        POLICIES.iter().find_map(|policies| {
            let name = annotations.get(policies.name).filter(|_| template.labels().contains_key(policies.id))?;
            let namespace = policies.namespace.map_or(Some(String::new()), |key| annotations.get(key).cloned())?;
            Some((policies, self.hub.get(policies.kind, &namespace, name)?))
        })
    }

    /// Removes the claims of terminating policies. Their objects stay on the members (fact 13).
    pub(super) async fn release_policies(&self) -> Result<()> {
        let mut failures = Failures::default();
        for policies in &POLICIES {
            for policy in self.hub.all(policies.kind) {
                if policy.metadata.deletion_timestamp.is_some() {
                    failures.note(self.release_policy(policies, &policy).await);
                }
            }
        }
        failures.result()
    }

    async fn release_policy(&self, policies: &PolicyKind, policy: &DynamicObject) -> Result<()> {
        for kind in ["ResourceBinding"].into_iter().chain(TEMPLATES) {
            for object in self.hub.all(kind) {
                if policies.is_claimed_by(&object, policy) {
                    self.hub.merge(kind, &object, &policies.no_claim()).await?;
                }
            }
        }
        self.hub.release(policies.kind, policy, policies.finalizer).await
    }

    /// Handles templates that their policy no longer selects. The claim stays (fact 24), unless nothing needs the template. In
    /// that case the binding and its copies are recreated (fact 25).
    pub(super) async fn drop_unselected(&self) -> Result<()> {
        for kind in ["ConfigMap", "Secret"] {
            for template in self.hub.all(kind) {
                let Some((policies, policy)) = self.claimant(&template) else { continue };
                if policy.metadata.deletion_timestamp.is_some() || selects(&policy, kind, &template) {
                    continue;
                }
                let namespace = template.namespace().unwrap_or_default();
                let binding_name = binding_name(kind, &template.name_any());
                let binding = self.hub.get("ResourceBinding", &namespace, &binding_name);
                let needed = |b: &DynamicObject| b.data["spec"]["requiredBy"].as_array().is_some_and(|l| !l.is_empty());
                if binding.as_ref().is_some_and(|binding| needed(binding)) {
                    continue;
                }
                self.hub.merge(kind, &template, &policies.no_claim()).await?;
                if binding.is_some() {
                    self.hub.delete("ResourceBinding", &namespace, &binding_name).await?;
                }
            }
        }
        Ok(())
    }

    /// Claims templates without a claim for the first policy that selects them (facts 1, 67). A policy gets its id and its
    /// finalizer first.
    pub(super) async fn claim_templates(&self) -> Result<()> {
        let mut failures = Failures::default();
        for policies in &POLICIES {
            let mut all = self.hub.all(policies.kind);
            all.retain(|policy| policy.metadata.deletion_timestamp.is_none());
            for policy in all.iter().filter(|policy| !policies.is_marked(policy)) {
                failures.note(self.mark(policies, policy).await);
            }
            all.retain(|policy| policies.is_marked(policy));
            all.sort_by_key(|policy| Reverse(policy.data["spec"]["priority"].as_i64().unwrap_or_default()));
            for kind in TEMPLATES {
                for template in self.hub.all(kind) {
                    if template.metadata.deletion_timestamp.is_some() || is_claimed(&template) {
                        continue;
                    }
                    let Some(policy) = all.iter().find(|policy| selects(policy, kind, &template)) else { continue };
                    // The server refuses this if another client has changed the template since.
                    let mut claim = policies.claim(policy);
                    claim["resourceVersion"] = json!(template.resource_version());
                    failures.note(self.hub.merge(kind, &template, &json!({ "metadata": claim })).await);
                }
            }
        }
        failures.result()
    }

    /// Gives a policy its id and its finalizer, and gives selectors without a namespace the policy's (fact 43). Real Karmada's
    /// webhook does that when the policy is written.
    async fn mark(&self, policies: &PolicyKind, policy: &DynamicObject) -> Result<()> {
        let mut marks = json!({ "metadata": {
            "finalizers": with(policy.finalizers().to_vec(), policies.finalizer),
            "labels": { policies.id: policy.labels().get(policies.id).cloned().or_else(|| policy.uid()) },
            "resourceVersion": policy.resource_version(),
        }});
        if let (Some(namespace), Some(selectors)) =
            (policy.namespace(), policy.data["spec"]["resourceSelectors"].as_array())
        {
            let mut selectors = selectors.clone();
            for selector in selectors.iter_mut().filter(|selector| selector["namespace"].is_null()) {
                selector["namespace"] = json!(namespace);
            }
            marks["spec"] = json!({ "resourceSelectors": selectors });
        }
        self.hub.merge(policies.kind, policy, &marks).await
    }
}

/// True if a policy selects a template.
pub(super) fn selects(policy: &DynamicObject, kind: &str, template: &DynamicObject) -> bool {
    if policy.namespace().is_some() && policy.namespace() != template.namespace() {
        return false;
    }
    let text = |selector: &Value, field: &str| selector[field].as_str().unwrap_or_default().to_owned();
    let selectors = policy.data["spec"]["resourceSelectors"].as_array();
    selectors.into_iter().flatten().any(|selector| {
        let (namespace, name) = (text(selector, "namespace"), text(selector, "name"));
        selector["kind"] == kind
            && (namespace.is_empty() || template.namespace() == Some(namespace))
            && (name.is_empty() || name == template.name_any())
            && selects_labels(&selector["labelSelector"], template.labels())
    })
}
