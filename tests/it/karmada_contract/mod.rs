//! Behaviour of Karmada that the operator relies on, fact by fact. The tests run against the stand-in, or against real Karmada if
//! `KARMADA_BIN` and `KARMADA_CRDS` are set. Each test is named after the measured behaviour. The numbers are those of
//! `docs/karmada.md`. If one of the two cannot show a fact, the test prints the reason and is skipped. The tests watch for two
//! seconds that something does *not* happen.

mod claims;
mod dependencies;
mod groups;
mod hands;
mod operator;
mod propagation;
mod unreachable;
mod values;

use crate::common::{
    ABSENT, RUNTIME, apply, bed,
    beds::{Bed, Lender, Lent},
    condition, delete, deployment, eventually, get, list, merge, never, skipped,
};
use kube::{Client, ResourceExt, api::DynamicObject};
use serde_json::{Value, json};
use std::time::Duration;
use testbed::{Options, Testbed, karmada::StandIn};

const CITY: &str = "topology.datum.net/city-code";
const DEPENDENCIES: &str = "compute.datumapis.com/expected-referenced-data";

/// A hub with two cells and no operator.
struct Hub {
    bed: Testbed,
    hub: Client,
    dfw: Client,
    ord: Client,
}

impl Bed for Hub {
    fn bed(&self) -> &Testbed {
        &self.bed
    }
}

/// Lends the hub to one test at a time, because some tests take a cluster away.
async fn hub() -> Lent<Hub> {
    static HUBS: Lender<Hub> = Lender::new(1);
    HUBS.lend(async || {
        let bed = bed(Options { provider: false, ..Options::default() }).await;
        let client = |name: &'static str| {
            let file =
                if name == "hub" { &bed.hub } else { bed.cell(name).unwrap() }.kubeconfig(&testbed::pki::User::Admin);
            async move { testbed::control_plane::client(&file).await.unwrap() }
        };
        let (hub, dfw, ord) = (client("hub").await, client("dfw").await, client("ord").await);
        Hub { bed, hub, dfw, ord }
    })
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

    /// Creates a namespace with one deployment, `wd`, and waits until it is on dfw.
    async fn deployed(&self) -> String {
        let ns = self.namespace().await;
        self.policy(&ns, "dfw").await;
        self.template(&ns, "wd", "dfw", "").await;
        there(&self.dfw, "WorkloadDeployment", &ns, "wd").await;
        ns
    }

    /// Returns the stand-in. On real Karmada it prints that the test is skipped, and returns `None`.
    fn stand_in(&self, why: &str) -> Option<&StandIn> {
        let stand_in = self.bed.stand_in();
        if stand_in.is_none() {
            skipped(why);
        }
        stand_in
    }

    /// Creates a namespace with one deployment, `wd`, and a policy with this placement.
    async fn placed(&self, placement: &Value) -> String {
        let ns = self.namespace().await;
        apply(&self.hub, policy(&ns, "dfw", placement)).await;
        self.template(&ns, "wd", "dfw", "").await;
        ns
    }

    /// Changes the city label of a cluster.
    async fn label_cluster(&self, name: &str, city: Value) {
        merge(&self.hub, "Cluster", "", name, json!({ "metadata": { "labels": { CITY: city } } })).await;
    }

    /// Cordons or uncordons a cluster.
    async fn cordon(&self, name: &str, cordoned: bool) {
        let taint = json!([{ "key": "cordoned", "effect": "NoSchedule" }]);
        let taints = if cordoned { taint } else { Value::Null };
        merge(&self.hub, "Cluster", "", name, json!({ "spec": { "taints": taints } })).await;
    }

    /// Waits until the binding of a WorkloadDeployment satisfies `check`. Returns it.
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
    eventually(&format!("{kind} {name} is deleted"), || async {
        match get(client, kind, ns, name).await {
            None => Ok(()),
            Some(_) => Err("still there".into()),
        }
    })
    .await;
}

/// Fails if the object exists or appears.
async fn absent(client: &Client, kind: &str, ns: &str, name: &str) {
    never(&format!("{kind} {name} is not there"), || async {
        get(client, kind, ns, name).await.map(|found| format!("it is, with uid {:?}", found.uid()))
    })
    .await;
}

/// Fails if the object is deleted or recreated.
async fn kept(client: &Client, kind: &str, ns: &str, name: &str, uid: Option<&str>) {
    never(&format!("{kind} {name} stays"), || async {
        match get(client, kind, ns, name).await {
            Some(found) if found.uid().as_deref() == uid => None,
            found => Some(format!("{:?} instead of {uid:?}", found.map(|o| o.uid()))),
        }
    })
    .await;
}

/// True if the scheduler found no cluster and removed the previous ones.
fn nowhere(binding: &DynamicObject) -> bool {
    condition(binding, "Scheduled")["reason"] == "NoClusterFit"
        && binding.data["spec"]["clusters"].as_array().is_none_or(Vec::is_empty)
}

/// True if the binding is scheduled to this one cluster.
fn on(binding: &DynamicObject, cluster: &str) -> bool {
    let targets = binding.data["spec"]["clusters"].as_array().cloned().unwrap_or_default();
    condition(binding, "Scheduled")["status"] == "True" && targets.len() == 1 && targets[0]["name"] == cluster
}
