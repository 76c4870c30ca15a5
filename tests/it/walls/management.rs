//! Limits of management's credentials on the hub: the writes that a policy refuses, and the reads that no policy can refuse.

use kube::{
    ResourceExt,
    api::{DeleteParams, DynamicObject, Patch, PatchParams, PostParams},
};
use serde_json::{Value, json};
use testbed::{control_plane::client, pki::User};

use super::refusal;
use crate::common::{RUNTIME, api, apply, beds::shared, delete, eventually, get, list, rights};

/// Namespace in which Karmada keeps the credentials of its members. Fact 72, read in Karmada v1.18.2 (`pkg/util/credential.go`,
/// `pkg/util/membercluster_client.go`): joining a member creates a ServiceAccount with every verb on every resource. Its token is
/// in a Secret of this namespace, named by `spec.secretRef`, next to one that allows impersonation. An agent in pull mode does
/// the same, unless it starts with `--report-secrets=None` (`cmd/agent/app/options/options.go`).
pub(super) const MEMBERS: &str = "karmada-cluster";

/// Returns a ConfigMap or Secret.
pub(super) fn content(kind: &str, namespace: &str, name: &str) -> Value {
    json!({ "apiVersion": "v1", "kind": kind, "metadata": { "namespace": namespace, "name": name }, "data": { "a": "YQ==" } })
}

/// Asserts that a write was refused because of its namespace.
fn is_refused<T>(what: &str, namespace: &str, result: kube::Result<T>) {
    let refused = refusal(result);
    let words = format!("named ns-<uid>: '{namespace}' is not one");
    assert!(refused.as_ref().is_some_and(|why| why.contains(&words)), "{what} {namespace}: {refused:?}");
}

/// A holder of management's credentials could create or delete Secrets among Karmada's credentials for every cell, and delete any
/// namespace.
#[test]
fn management_credentials_write_only_project_objects_on_the_hub() {
    RUNTIME.block_on(async {
        let visit = shared().await;
        let management = client(&visit.bed.hub.kubeconfig(&User::Operator)).await.unwrap();
        let post = PostParams { dry_run: true, ..PostParams::default() };
        let params = PatchParams { dry_run: true, ..PatchParams::default() };
        let gone = DeleteParams { dry_run: true, ..DeleteParams::default() };
        let label = Patch::Merge(json!({ "metadata": { "labels": { "a": "b" } } }));
        for (kind, namespace) in
            [("Secret", MEMBERS), ("ConfigMap", MEMBERS), ("Secret", "default"), ("ConfigMap", "kube-system")]
        {
            let object = serde_json::from_value(content(kind, namespace, "planted")).unwrap();
            is_refused(kind, namespace, api(&management, kind, namespace).create(&post, &object).await);
        }
        // No policy can refuse reads (docs/security.md).
        let members = list(&management, "Secret", MEMBERS).await;
        assert!(members.iter().any(|secret| secret.data["data"]["token"].is_string()), "the hub has members");
        for member in members {
            let secrets = api(&management, "Secret", MEMBERS);
            is_refused("changes", MEMBERS, secrets.patch(&member.name_any(), &params, &label).await);
            is_refused("deletes", MEMBERS, secrets.delete(&member.name_any(), &gone).await);
        }
        let namespaces = api(&management, "Namespace", "");
        for name in [MEMBERS, "compute-system", "default"] {
            is_refused("changes", name, namespaces.patch(name, &params, &label).await);
            // Kubernetes protects this namespace before any policy.
            let deleted = namespaces.delete(name, &gone).await;
            if name == "default" { assert!(refusal(deleted).is_some()) } else { is_refused("deletes", name, deleted) }
        }
        let of = |name: &str| -> DynamicObject {
            serde_json::from_value(json!({ "apiVersion": "v1", "kind": "Namespace", "metadata": { "name": name } })).unwrap()
        };
        for name in ["mine", "ns-shop", "ns-0b0f9a3e-6f0e-4b39-9a57-0d8f7f6f3b1g", "a-ns-0b0f9a3e-6f0e-4b39-9a57-0d8f7f6f3b11"] {
            is_refused("makes", name, namespaces.create(&post, &of(name)).await);
        }

        // In a namespace that mirrors one of a project, all writes are allowed.
        let own = format!("ns-{}", get(&visit.hub, "Namespace", "", MEMBERS).await.unwrap().uid().unwrap());
        namespaces.create(&PostParams::default(), &of(&own)).await.unwrap();
        for kind in ["ConfigMap", "Secret"] {
            let here = api(&management, kind, &own);
            here.create(&PostParams::default(), &serde_json::from_value(content(kind, &own, "kept")).unwrap()).await.unwrap();
            here.patch("kept", &PatchParams::default(), &label).await.unwrap();
            delete(&management, kind, &own, "kept").await;
        }
        namespaces.patch(&own, &PatchParams::default(), &label).await.unwrap();
        delete(&management, "Namespace", "", &own).await;

        // A user who may delete the policy is not bound by it. Such a user controls every cell anyway.
        let binding = json!({
            "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRoleBinding", "metadata": { "name": "platform" },
            "roleRef": { "apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "cluster-admin" },
            "subjects": [{ "apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": "platform" }],
        });
        apply(&visit.hub, binding).await;
        let platform = api(&rights::impersonating(&visit.bed.hub, "platform").await, "Secret", MEMBERS);
        let object = serde_json::from_value(content("Secret", MEMBERS, "joined")).unwrap();
        eventually("the installing user is admitted", || async {
            platform.create(&post, &object).await.map(drop).map_err(|why| why.to_string())
        })
        .await;
        delete(&visit.hub, "ClusterRoleBinding", "", "platform").await;
    });
}
