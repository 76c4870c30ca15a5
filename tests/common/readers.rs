//! Accounts that read metrics.

use kube::Client;
use serde_json::{Value, json};
use testbed::manifests;

const NS: &str = "compute-system";

/// Creates a ServiceAccount in the operator's namespace. Returns a token for it.
pub async fn account(client: &Client, name: &str) -> String {
    let object = json!({ "apiVersion": "v1", "kind": "ServiceAccount", "metadata": { "name": name, "namespace": NS } });
    manifests::apply_value(client, object).await.unwrap();
    let body = json!({ "apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": { "audiences": [] } });
    let request = http::Request::post(format!("/api/v1/namespaces/{NS}/serviceaccounts/{name}/token"));
    let request = request.header("content-type", "application/json").body(body.to_string().into_bytes()).unwrap();
    let made: Value = client.request(request).await.unwrap();
    made["status"]["token"].as_str().unwrap().to_owned()
}

/// Grants the account the right to read metrics.
pub async fn allow(client: &Client, name: &str) {
    let binding = json!({
        "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRoleBinding", "metadata": { "name": name },
        "roleRef": { "apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "compute-metrics-reader" },
        "subjects": [{ "kind": "ServiceAccount", "name": name, "namespace": NS }],
    });
    manifests::apply_value(client, binding).await.unwrap();
}
