//! Admission rules of others: one that refuses what the operator writes, and a webhook that is away.

use kube::{
    Client,
    api::{Patch, PatchParams},
};
use serde_json::{Value, json};

use super::{api, apply, delete, eventually};

/// What it answers with.
const MESSAGE: &str = "not while the rule stands";

/// What is refused.
pub struct Refusal<'a> {
    /// Name of the rule.
    pub name: &'a str,
    /// The group and the plural of the kind.
    pub kind: (&'a str, &'a str),
    /// `CREATE`, `DELETE`, or `*`.
    pub operation: &'a str,
    /// What is let through, in CEL.
    pub unless: &'a str,
}

impl Refusal<'_> {
    /// Has the API server refuse it, from when it refuses to apply `probe` on, which is never made: it is a dry run.
    pub async fn begin(&self, client: &Client, probe: &Value) {
        let text = |at: &str| probe.pointer(at).and_then(Value::as_str).unwrap_or_default().to_owned();
        let api = api(client, &text("/kind"), &text("/metadata/namespace"));
        let params = PatchParams { dry_run: true, ..PatchParams::apply("test").force() };
        let name = text("/metadata/name");
        self.begin_with(client, || async { api.patch(&name, &params, &Patch::Apply(probe)).await.map(drop) }).await;
    }

    /// Has the API server refuse it, from when `attempt` is refused on; it must change nothing when it is not.
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

    /// Ends it.
    pub async fn end(&self, client: &Client) {
        delete(client, "ValidatingAdmissionPolicyBinding", "", self.name).await;
        delete(client, "ValidatingAdmissionPolicy", "", self.name).await;
    }
}

/// A webhook without an endpoint. Every write that it guards fails with HTTP 500.
pub struct WebhookAway<'a> {
    /// Its name; a domain is added.
    pub name: &'a str,
    /// The group and the plural of the kind.
    pub kind: (&'a str, &'a str),
    /// The namespace that it guards.
    pub namespace: &'a str,
}

impl WebhookAway<'_> {
    /// Registers it, and waits until a write of `probe` fails, which is never made: it is a dry run.
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
