//! Admission rules of other controllers: a policy that refuses the operator's writes, and a webhook without an endpoint.

use kube::{
    Client,
    api::{Patch, PatchParams},
};
use serde_json::{Value, json};

use super::{api, apply, delete, eventually};

/// Message of the refusal.
const MESSAGE: &str = "not while the rule stands";

/// A policy that refuses some writes.
pub struct Refusal<'a> {
    /// Name of the rule.
    pub name: &'a str,
    /// The group and the plural of the kind.
    pub kind: (&'a str, &'a str),
    /// The refused operation: `CREATE`, `DELETE`, or `*`.
    pub operation: &'a str,
    /// Condition of the allowed writes, in CEL.
    pub unless: &'a str,
}

impl Refusal<'_> {
    /// Installs the policy, and waits until the API server refuses to apply `probe`. The probe is a dry run and creates nothing.
    pub async fn begin(&self, client: &Client, probe: &Value) {
        let text = |at: &str| probe.pointer(at).and_then(Value::as_str).unwrap_or_default().to_owned();
        let api = api(client, &text("/kind"), &text("/metadata/namespace"));
        let params = PatchParams { dry_run: true, ..PatchParams::apply("test").force() };
        let name = text("/metadata/name");
        self.begin_with(client, || async { api.patch(&name, &params, &Patch::Apply(probe)).await.map(drop) }).await;
    }

    /// Installs the policy, and waits until `attempt` is refused. `attempt` must change nothing if it is accepted.
    pub async fn begin_with(&self, client: &Client, attempt: impl AsyncFn() -> kube::Result<()>) {
        let policy = json!({
            "apiVersion": "admissionregistration.k8s.io/v1", "kind": "ValidatingAdmissionPolicy",
            "metadata": { "name": self.name },
            "spec": {
                "failurePolicy": "Fail",
                "matchConstraints": { "resourceRules": [{
                    "apiGroups": [self.kind.0], "apiVersions": ["*"], "operations": [self.operation],
                    "resources": [self.kind.1],
                }] },
                "validations": [{ "expression": self.unless, "message": MESSAGE }],
            },
        });
        let binding = json!({
            "apiVersion": "admissionregistration.k8s.io/v1", "kind": "ValidatingAdmissionPolicyBinding",
            "metadata": { "name": self.name }, "spec": { "policyName": self.name, "validationActions": ["Deny"] },
        });
        apply(client, policy).await;
        apply(client, binding).await;
        eventually("the rule is in force", || async {
            match attempt().await {
                Err(error) if error.to_string().contains(MESSAGE) => Ok(()),
                other => Err(format!("{other:?}")),
            }
        })
        .await;
    }

    /// Removes the policy.
    pub async fn end(&self, client: &Client) {
        delete(client, "ValidatingAdmissionPolicyBinding", "", self.name).await;
        delete(client, "ValidatingAdmissionPolicy", "", self.name).await;
    }
}

/// A webhook without an endpoint. Every write that it guards fails with HTTP 500.
pub struct WebhookAway<'a> {
    /// Its name, without the domain.
    pub name: &'a str,
    /// The group and the plural of the kind.
    pub kind: (&'a str, &'a str),
    /// The namespace that it guards.
    pub namespace: &'a str,
}

impl WebhookAway<'_> {
    /// Registers the webhook, and waits until a dry run of `probe` fails.
    pub async fn begin(&self, client: &Client, probe: &Value) {
        let configuration = json!({
            "apiVersion": "admissionregistration.k8s.io/v1", "kind": "ValidatingWebhookConfiguration",
            "metadata": { "name": self.name },
            "webhooks": [{
                "name": format!("{}.example.com", self.name), "failurePolicy": "Fail", "sideEffects": "None",
                "timeoutSeconds": 1, "admissionReviewVersions": ["v1"],
                // A port that nothing listens on.
                "clientConfig": { "url": "https://127.0.0.1:9/" },
                "namespaceSelector": { "matchLabels": { "kubernetes.io/metadata.name": self.namespace } },
                "rules": [{
                    "apiGroups": [self.kind.0], "apiVersions": ["*"], "operations": ["CREATE", "UPDATE"],
                    "resources": [self.kind.1],
                }],
            }],
        });
        apply(client, configuration).await;
        let text = |at: &str| probe.pointer(at).and_then(Value::as_str).unwrap_or_default().to_owned();
        let api = api(client, &text("/kind"), self.namespace);
        let params = PatchParams { dry_run: true, ..PatchParams::apply("test").force() };
        eventually("the webhook is asked", || async {
            match api.patch(&text("/metadata/name"), &params, &Patch::Apply(probe)).await {
                Err(error) if error.to_string().contains("failed calling webhook") => Ok(()),
                other => Err(format!("{other:?}")),
            }
        })
        .await;
    }

    /// Removes it.
    pub async fn end(&self, client: &Client) {
        delete(client, "ValidatingWebhookConfiguration", "", self.name).await;
    }
}
