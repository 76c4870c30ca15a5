//! The overlay for a manager outside of the cluster, used as its comment describes.

use std::{fs, time::Duration};

use base64::{Engine, engine::general_purpose::STANDARD};
use kube::Client;
use testbed::{
    control_plane::{ControlPlane, free_port},
    definitions, manifests,
    operator::Operator,
    pki::User,
};

use super::{
    Stage,
    admitted::are_asked,
    pod::{Pod, token},
    strip, with_token,
};
use crate::common::{binary, eventually, path, skipped};

/// The developer's machine, as an API server in a container addresses it.
const HOST: &str = "https://host.docker.internal:9443";

/// Applies definitions, and waits until the server serves them.
pub(super) async fn define(client: &Client, kinds: &str, served: &[&str]) {
    manifests::apply(client, kinds).await.unwrap();
    for kind in served {
        eventually(kind, || async {
            let request = http::Request::get(format!("/apis/{kind}")).body(Vec::new()).unwrap();
            client.request_text(request).await.map(drop).map_err(|e| e.to_string())
        })
        .await;
    }
}

impl Stage {
    /// Runs project and cell in one cluster. The API server calls the webhooks of a manager outside the cluster.
    pub(super) async fn dev(&self, plane: &ControlPlane, others: &[Pod]) {
        let (hub, dir) = (&self.bed.hub, self.bed.dir());
        let admin = plane.client().await.unwrap();
        let Some(kinds) = definitions::of_others().unwrap() else {
            skipped("overlay dev: Go is needed to fetch cert-manager's definitions");
            return;
        };
        strip(plane).await;
        for kind in ["issuers", "certificates"] {
            let text = &kinds[format!("cert-manager.io_{kind}.yaml").as_str()];
            define(&admin, text, &[&format!("cert-manager.io/v1/{kind}")]).await;
        }
        let (port, authority) = (free_port().unwrap(), STANDARD.encode(fs::read(dir.join("ca.crt")).unwrap()));
        let reached = |text: String| {
            let text = text.replace(HOST, &format!("https://127.0.0.1:{port}"));
            // cert-manager would add this.
            text.replace("clientConfig:\n", &format!("clientConfig:\n    caBundle: {authority}\n"))
        };
        self.apply(plane, "dev", reached).await;

        let certificates = dir.join("dev-webhook-cert");
        fs::create_dir_all(&certificates).unwrap();
        for (to, from) in [("tls.crt", "server.crt"), ("tls.key", "server.key")] {
            fs::copy(dir.join(from), certificates.join(to)).unwrap();
        }
        let own = with_token(&plane.kubeconfig(&User::Admin), &token(plane, "compute-manager", None).await);
        let there = with_token(&hub.kubeconfig(&User::Admin), &token(hub, "compute-manager", None).await);
        let (at, hub_at) = (dir.join("dev.kubeconfig"), dir.join("dev-hub.kubeconfig"));
        fs::write(&at, own).unwrap();
        fs::write(&hub_at, there).unwrap();
        let text = fs::read_to_string(path("config/overlays/dev/config.yaml")).unwrap();
        let (_, text) = text.split_once("kind: WorkloadOperator\n").unwrap();
        let text = text.replace("9443", &port.to_string());
        let text = text.replace("tmp/webhook-cert", &certificates.display().to_string());
        let flags = [
            &format!("--kubeconfig={}", at.display()),
            &format!("--federation-kubeconfig={}", hub_at.display()),
            "--enable-management-controllers",
            "--enable-cell-controllers",
        ];
        let mut dev = Operator::with_config(dir, binary(), "dev", &text, &flags).unwrap();
        dev.wait_ready().await.unwrap();
        are_asked(&admin).await;
        self.only_karmada_brings_unasked(plane).await;
        self.federates(plane, &admin, "of-dev", &[others]).await;
        assert_eq!(dev.process.stop(Duration::from_secs(10)).await, 0);
    }
}
