//! What we rely on in Karmada, fact by fact, against the stand-in, or against real Karmada when `KARMADA_BIN` and
//! `KARMADA_CRDS` are set. Each test is named after what was measured; the numbers are those of the list of facts that
//! the stand-in's documentation claims.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, missing_docs)]

#[path = "../common/mod.rs"]
mod common;

mod claims;
mod dependencies;
mod hands;
mod propagation;

use common::{RUNTIME, apply, bed, condition, delete, deployment, eventually, get, list, merge};
use kube::{Client, ResourceExt, api::DynamicObject};
use serde_json::{Value, json};
use testbed::{Options, Testbed};
use tokio::sync::{Mutex, MutexGuard, OnceCell};

const CITY: &str = "topology.datum.net/city-code";
const DEPENDENCIES: &str = "compute.datumapis.com/expected-referenced-data";

/// A hub with two cells, and nobody else at work on it.
struct Hub {
    bed: Testbed,
    hub: Client,
    dfw: Client,
    ord: Client,
}

/// One test at a time: some take a cluster away.
async fn hub() -> MutexGuard<'static, Hub> {
    static HUB: OnceCell<Mutex<Hub>> = OnceCell::const_new();
    HUB.get_or_init(|| async {
        let bed = bed(Options { provider: false, ..Options::default() }).await;
        let client = |name: &'static str| {
            let file =
                if name == "hub" { &bed.hub } else { bed.cell(name).unwrap() }.kubeconfig(testbed::pki::User::Admin);
            async move { testbed::control_plane::client(&file).await.unwrap() }
        };
        let (hub, dfw, ord) = (client("hub").await, client("dfw").await, client("ord").await);
        Mutex::new(Hub { bed, hub, dfw, ord })
    })
    .await
    .lock()
    .await
}

impl Hub {
    async fn namespace(&self) -> String {
        let name = format!("fact-{:06x}", fastrand::u32(..0x0100_0000));
        apply(&self.hub, json!({ "apiVersion": "v1", "kind": "Namespace", "metadata": { "name": name } })).await;
        name
    }

    async fn template(&self, ns: &str, name: &str, city: &str, needs: &str) {
        let mut object = deployment(ns, name, city);
        object["metadata"]["labels"] = json!({ CITY: city });
        if !needs.is_empty() {
            object["metadata"]["annotations"] = json!({ DEPENDENCIES: needs });
        }
        apply(&self.hub, object).await;
    }

    async fn policy(&self, ns: &str, city: &str) {
        let labels = json!({ "matchLabels": { CITY: city } });
        apply(&self.hub, policy(ns, city, &json!({ "clusterAffinity": { "labelSelector": labels } }))).await;
    }

    /// A namespace with one deployment, `wd`, that goes to dfw, and has arrived there.
    async fn deployed(&self) -> String {
        let ns = self.namespace().await;
        self.policy(&ns, "dfw").await;
        self.template(&ns, "wd", "dfw", "").await;
        there(&self.dfw, "WorkloadDeployment", &ns, "wd").await;
        ns
    }

    /// The binding of a WorkloadDeployment, once it satisfies `check`.
    async fn binding(&self, ns: &str, name: &str, what: &str, check: impl Fn(&DynamicObject) -> bool) -> DynamicObject {
        eventually(what, || async {
            let found = get(&self.hub, "ResourceBinding", ns, name).await.ok_or("no binding")?;
            if check(&found) { Ok(found) } else { Err(serde_json::to_string(&found).unwrap()) }
        })
        .await
    }

    async fn config(&self, ns: &str, name: &str, value: &str) {
        apply(&self.hub, json!({ "apiVersion": "v1", "kind": "ConfigMap", "metadata": { "name": name, "namespace": ns }, "data": { "k": value } })).await;
    }
}

fn policy(ns: &str, city: &str, placement: &Value) -> Value {
    json!({
        "apiVersion": "policy.karmada.io/v1alpha1", "kind": "PropagationPolicy",
        "metadata": { "name": format!("city-{city}"), "namespace": ns },
        "spec": {
            "propagateDeps": true, "placement": placement,
            "resourceSelectors": [{
                "apiVersion": "compute.datumapis.com/v1alpha", "kind": "WorkloadDeployment", "namespace": ns,
                "labelSelector": { "matchLabels": { CITY: city } },
            }],
        },
    })
}

async fn there(client: &Client, kind: &str, ns: &str, name: &str) -> DynamicObject {
    eventually(&format!("{kind} {name} is there"), || async {
        get(client, kind, ns, name).await.ok_or("not there".into())
    })
    .await
}

async fn gone(client: &Client, kind: &str, ns: &str, name: &str) {
    eventually(&format!("{kind} {name} is gone"), || async {
        match get(client, kind, ns, name).await {
            None => Ok(()),
            Some(_) => Err("still there".into()),
        }
    })
    .await;
}
