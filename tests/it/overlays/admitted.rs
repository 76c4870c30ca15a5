//! Overlays with webhooks that the cluster's own API server calls. If one cluster is project and cell, the webhooks check
//! everything except Karmada's deliveries.

use std::{fs, time::Duration};

use base64::{Engine, engine::general_purpose::STANDARD};
use kube::{
    Client, ResourceExt,
    api::{Patch, PatchParams, PostParams},
};
use serde_json::{Value, json};
use testbed::{
    admission::{role, rule},
    audit::Audit,
    control_plane::ControlPlane,
    manifests,
};

use super::{
    super::metrics_access::{Trust, scrape},
    Stage, as_it_is, end,
    pod::{Pod, token},
    supply,
};
use crate::common::{
    admission::template_of, api, apply, delete, eventually, get, list, rights::impersonating, try_apply, workload,
};

/// How the cluster's API server reaches the webhooks if Services have addresses.
const SERVICE: &str = "    service:\n      name: compute-webhook\n      namespace: compute-system\n      path: /";
/// A tenant of the cluster, without read access to Secrets.
const TENANT: &str = "grace";
/// The account that Karmada gets when a cluster joins.
const KARMADA: &str = "system:serviceaccount:karmada-cluster:karmada-dfw";

/// Waits until an API server calls the webhooks.
pub(super) async fn are_asked(tenant: &Client) {
    eventually("the webhooks are asked", || async {
        match try_apply(tenant, workload("default", "wrong", &["nowhere"], 1)).await {
            Err(refused) if refused.to_string().contains("kb.io") => Ok(()),
            other => Err(format!("{other:?}")),
        }
    })
    .await;
}

/// Adds the label of Karmada's deliveries to every deployment of a project, again and again.
pub(super) async fn mark_as_copies(client: Client) {
    let label = json!({ "metadata": { "labels": { "meta.datumapis.com/upstream-namespace": "theirs" } } });
    loop {
        for deployment in list(&client, "WorkloadDeployment", "").await {
            let namespace = deployment.namespace().unwrap_or_default();
            if !namespace.starts_with("ns-") {
                let here = api(&client, "WorkloadDeployment", &namespace);
                let _ = here.patch(&deployment.name_any(), &PatchParams::default(), &Patch::Merge(&label)).await;
            }
        }
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
}

/// Returns a manual deployment with the marks of Karmada's deliveries. It refers to a Secret.
fn marked(namespace: &str) -> Value {
    json!({
        "apiVersion": "compute.datumapis.com/v1alpha", "kind": "WorkloadDeployment",
        "metadata": {
            "name": "by-hand", "namespace": namespace,
            "labels": { "meta.datumapis.com/upstream-namespace": "theirs" },
            "annotations": { "resourcetemplate.karmada.io/uid": "u" },
        },
        "spec": {
            "workloadRef": { "name": "web", "uid": "u" }, "placementName": "p", "cityCode": "dfw",
            "scaleSettings": { "minReplicas": 1 }, "template": template_of("hidden"),
        },
    })
}

/// Returns the result of a dry-run creation by this client.
async fn tried(client: &Client, object: Value) -> Result<(), String> {
    let dry = PostParams { dry_run: true, ..PostParams::default() };
    let namespace = object["metadata"]["namespace"].as_str().unwrap().to_owned();
    let made =
        api(client, "WorkloadDeployment", &namespace).create(&dry, &serde_json::from_value(object).unwrap()).await;
    made.map(drop).map_err(|why| why.to_string())
}

impl Stage {
    /// Starts the managers of an overlay with webhooks, and waits until the cluster's own API server calls them.
    pub(super) async fn admitted(&self, plane: &ControlPlane, overlay: &str) -> Vec<Pod> {
        self.apply(plane, overlay, as_it_is).await;
        let pods = self.start(plane, overlay, &self.bed.hub).await;
        assert_eq!(pods.len(), 2, "without a serving webhook, writes are refused");
        let authority = STANDARD.encode(fs::read(self.bed.dir().join("ca.crt")).unwrap());
        let here = format!("    caBundle: {authority}\n    url: https://127.0.0.1:{}/", pods[0].ports[&9443]);
        self.apply(plane, overlay, |text| text.replace(SERVICE, &here)).await;
        are_asked(&plane.client().await.unwrap()).await;
        pods
    }

    /// Asserts that only the cell with the component `networking` has bound networks.
    pub(super) fn bound_networks(&self, one: &str) {
        for (city, cell) in &self.bed.cells {
            let uses = Audit::uses(cell, self.since.get()).unwrap();
            let bound =
                uses.iter().any(|one| one.resource.ends_with("/networkbindings") && one.verb == "create" && one.had);
            assert_eq!(bound, city == one, "{city}");
        }
    }

    /// Starts management with a verifiable certificate for metrics. The platform's config.yaml names its folder.
    pub(super) async fn with_a_certificate_for_metrics(&self, plane: &ControlPlane) -> Vec<Pod> {
        let (bind, overlay) = ("bindAddress: \":8443\"\n", "single-project with csi-metrics-cert");
        let there = format!("{bind}      tls: {{ certDir: /etc/metrics-cert }}\n");
        self.apply(plane, overlay, |text| text.replace(bind, &there)).await;
        let pods = self.start(plane, "single-project-metrics", &self.bed.hub).await;
        let scraper = token(plane, "prometheus", None).await;
        let authority = self.bed.dir().join("ca.crt");
        let told = scrape(pods[0].ports[&8443], &scraper, &Trust::Authority(&authority)).await.unwrap();
        assert!(told.contains("leader_election_master_status"), "{told}");
        pods
    }

    /// Creates the Secret that `e2e/kind/up` creates.
    pub(super) async fn supply_certificate(&self, plane: &ControlPlane) {
        let read = |ending: &str| fs::read_to_string(self.bed.dir().join(format!("server.{ending}"))).unwrap();
        supply(plane, "compute-webhook-cert", &[("tls.crt", &read("crt")), ("tls.key", &read("key"))]).await;
    }

    /// Stops the managers, and removes the webhooks from the API server.
    pub(super) async fn end_admission(&self, plane: &ControlPlane, pods: Vec<Pod>) {
        let admin = plane.client().await.unwrap();
        delete(&admin, "ValidatingWebhookConfiguration", "", "compute-validating").await;
        end(pods).await;
    }

    /// A user who could label or name a namespace like one of Karmada's bypassed the review of manual objects in it.
    pub(super) async fn only_karmada_brings_unasked(&self, plane: &ControlPlane) {
        let admin = plane.client().await.unwrap();
        let uid = get(&admin, "Namespace", "", "default").await.unwrap().uid().unwrap();
        let mirror = format!("ns-{uid}");
        let all = ["*"];
        let rules =
            json!([rule("compute.datumapis.com", &all, &all, &[]), rule("networking.datumapis.com", &all, &all, &[])]);
        for name in ["labelled", &mirror] {
            let labels = json!({ "meta.datumapis.com/upstream-namespace": "theirs" });
            apply(
                &admin,
                json!({ "apiVersion": "v1", "kind": "Namespace", "metadata": { "name": name, "labels": labels } }),
            )
            .await;
            for object in role(TENANT, name, &rules) {
                manifests::apply_value(&admin, object).await.unwrap();
            }
        }
        let tenant = impersonating(plane, TENANT).await;
        for namespace in ["labelled", &mirror] {
            eventually(&format!("{namespace}: the tenant's own objects give no read access"), || async {
                match tried(&tenant, marked(namespace)).await {
                    Err(why) if why.contains("vworkloaddeployment.kb.io") && why.contains("hidden") => Ok(()),
                    // The tenant's role is not in force yet.
                    Err(why) if why.contains("cannot create resource") => Err(why),
                    other => panic!("{namespace}: {other:?}"),
                }
            })
            .await;
        }

        // Karmada has every verb on every resource. Its deliveries are not reviewed, even if they set an annotation of power.
        let rbac = "rbac.authorization.k8s.io";
        let mut everything =
            role("karmada-dfw", "", &json!([{ "apiGroups": ["*"], "resources": ["*"], "verbs": ["*"] }]));
        for object in &mut everything {
            object["metadata"].as_object_mut().unwrap().remove("namespace");
            object["kind"] = json!(format!("Cluster{}", object["kind"].as_str().unwrap()));
        }
        everything[1]["roleRef"]["kind"] = json!("ClusterRole");
        everything[1]["subjects"] = json!([{ "apiGroup": rbac, "kind": "User", "name": KARMADA }]);
        for object in everything {
            manifests::apply_value(&admin, object).await.unwrap();
        }
        let karmada = impersonating(plane, KARMADA).await;
        let with = |namespace: &str, key: &str| {
            let mut object = marked(namespace);
            object["metadata"]["annotations"][key] = json!("[]");
            object
        };
        let expected = "compute.datumapis.com/expected-referenced-data";
        eventually("Karmada may write the copies", || tried(&karmada, with(&mirror, expected))).await;
        for (namespace, key) in [("labelled", expected), (&mirror, "compute.datumapis.com/federation-namespace")] {
            let refused = tried(&karmada, with(namespace, key)).await.unwrap_err();
            assert!(refused.contains("vworkloaddeployment.kb.io"), "an original of {namespace}: {refused}");
        }
        for kind in ["ClusterRole", "ClusterRoleBinding"] {
            delete(&admin, kind, "", "karmada-dfw").await;
        }
        for name in ["labelled", &mirror] {
            delete(&admin, "Namespace", "", name).await;
            eventually(&format!("{name} is deleted"), || async {
                get(&admin, "Namespace", "", name).await.map_or(Ok(()), |_| Err("not yet".to_owned()))
            })
            .await;
        }
    }
}
