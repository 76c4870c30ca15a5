//! A hub that trusts the tokens of management's cluster, as `config/components/hub-access` sets it up with tokens that the
//! kubelet renews. The cluster is the issuer and serves its keys, and the audience is that of the manifests.

use kube::{
    Client, Config,
    config::{KubeConfigOptions, Kubeconfig},
};
use serde_json::json;
use testbed::{
    Testbed,
    control_plane::{ControlPlane, http_get},
};

use super::{
    HUB, Stage,
    pod::{NS, token},
    with_token,
};
use crate::common::{apply, eventually};

async fn restart(plane: &mut ControlPlane) {
    plane.stop_api_server();
    plane.start_api_server().unwrap();
    plane.wait_ready().await.unwrap();
}

/// Gives the project's cluster its own token issuer, and makes the hub trust it.
pub(super) async fn trust(bed: &mut Testbed) {
    bed.project.issue_as("https://project.example");
    restart(&mut bed.project).await;
    // The hub fetches the keys without credentials.
    let rbac = "rbac.authorization.k8s.io";
    apply(&bed.project.client().await.unwrap(), json!({
        "apiVersion": format!("{rbac}/v1"), "kind": "ClusterRoleBinding", "metadata": { "name": "keys-are-for-everybody" },
        "roleRef": { "apiGroup": rbac, "kind": "ClusterRole", "name": "system:service-account-issuer-discovery" },
        "subjects": [{ "apiGroup": rbac, "kind": "Group", "name": "system:unauthenticated" }],
    }))
    .await;
    bed.hub.trust(&bed.project, HUB).unwrap();
    restart(&mut bed.hub).await;
}

impl Stage {
    /// Asserts that the hub accepts a token of this cluster for its own audience, and refuses one for another audience.
    pub(super) async fn is_believed(&self, plane: &ControlPlane) {
        let ask = async |audience: &str| {
            let text = with_token(self.door.kubeconfig(), &token(plane, "compute-manager", Some(audience)).await);
            let file: Kubeconfig = serde_json::from_str(&text).unwrap();
            let config = Config::from_custom_kubeconfig(file, &KubeConfigOptions::default()).await.unwrap();
            let client = Client::try_from(config).unwrap();
            client
                .request_text(http_get(&format!("/api/v1/namespaces/{NS}")).unwrap())
                .await
                .map_err(|why| why.to_string())
        };
        eventually("the hub believes its tokens", || ask(HUB)).await;
        let refused = ask("https://elsewhere.example").await.unwrap_err();
        assert!(refused.contains("Unauthorized"), "{refused}");
    }
}
