//! Two tenants with the same names for everything, one of them hostile. No object of one appears with the other.

use std::{collections::BTreeMap, fs};

use base64::{Engine, engine::general_purpose::STANDARD};
use kube::api::{DynamicObject, Patch, PatchParams};

use super::*;

const NS: &str = "twins";
const DEPLOYMENT: &str = "web-p-dfw";

/// A text that each tenant writes into all of their objects, and that appears nowhere else.
#[derive(Clone, Copy)]
struct Mark(&'static str);

const GOOD: Mark = Mark("mark-of-alpha");
const HOSTILE: Mark = Mark("mark-of-beta");

impl Mark {
    /// Returns the value in the tenant's ConfigMap and Secret. Its prefix has nine bytes, so that the base64 form contains the
    /// encoded mark.
    fn value(self) -> String {
        format!("value-of-{}", self.0)
    }

    /// True if a text contains the mark, plain or in base64.
    fn is_in(self, text: &str) -> bool {
        text.contains(self.0) || text.contains(&STANDARD.encode(self.0))
    }

    /// Returns a Workload with a ConfigMap and a Secret, and one that waits for a missing Secret.
    fn objects(self) -> Vec<Value> {
        let mut web = workload(NS, "web", &["dfw"], 1);
        let template = &mut web["spec"]["template"];
        template["metadata"]["labels"] = json!({ "app": self.0 });
        template["spec"]["runtime"]["sandbox"]["containers"][0] = json!({
            "name": "c", "image": format!("docker.io/library/{}:1", self.0),
            "env": [{ "name": "OWNER", "value": self.0 }],
            "envFrom": [{ "configMapRef": { "name": "settings" } }, { "secretRef": { "name": "db" } }],
        });
        let mut waits = web.clone();
        waits["metadata"]["name"] = json!("waits");
        waits["spec"]["template"]["spec"]["runtime"]["sandbox"]["containers"][0]["envFrom"] =
            json!([{ "secretRef": { "name": format!("missing-{}", self.0) } }]);
        vec![
            json!({ "apiVersion": "v1", "kind": "ConfigMap", "metadata": { "name": "settings", "namespace": NS }, "data": { "owner": self.value() } }),
            json!({ "apiVersion": "v1", "kind": "Secret", "metadata": { "name": "db", "namespace": NS }, "stringData": { "owner": self.value() } }),
            web,
            waits,
        ]
    }
}

/// Returns the objects that the hostile tenant writes to reach `victim`. The tenant knows the names and uids.
fn attacks(victim: &Victim) -> Vec<Value> {
    let labels = json!({
        "meta.datumapis.com/upstream-cluster-name": "cluster-alpha", "meta.datumapis.com/upstream-namespace": NS,
        "compute.datumapis.com/workload-uid": victim.workload, "compute.datumapis.com/referenced-data": "true",
        "compute.datumapis.com/cell-uid": "stolen",
    });
    let annotations = json!({
        "compute.datumapis.com/federation-namespace": victim.hub,
        "compute.datumapis.com/expected-referenced-data": "[\"Secret/db\",\"ConfigMap/settings\"]",
        "compute.datumapis.com/referenced-by": format!("[\"{}/{DEPLOYMENT}\"]", victim.hub),
    });
    let metadata = |name: &str, namespace: &str| json!({ "name": name, "namespace": namespace, "labels": labels, "annotations": annotations });
    let mut deployment = deployment(NS, "spy", "dfw");
    deployment["metadata"] = metadata("spy", NS);
    // With this reference, the object stays when the tenant removes the finalizers.
    deployment["spec"]["workloadRef"] = json!({ "name": "web", "uid": victim.workload });
    deployment["spec"]["template"]["metadata"]["labels"] = json!({ "app": HOSTILE.0 });
    let mut instance = deployment["spec"]["template"]["spec"].clone();
    instance["runtime"]["sandbox"]["containers"][0]["image"] = json!(HOSTILE.0);
    let mut elsewhere = workload(&victim.hub, "web", &["dfw"], 1);
    elsewhere["spec"]["template"]["metadata"]["labels"] = json!({ "app": HOSTILE.0 });
    vec![
        // One namespace has the name of the victim's hub namespace, and one claims to be the victim's.
        json!({ "apiVersion": "v1", "kind": "Namespace", "metadata": { "name": victim.hub, "labels": labels, "annotations": annotations } }),
        json!({ "apiVersion": "v1", "kind": "Namespace", "metadata": { "name": NS, "labels": labels, "annotations": annotations } }),
        deployment,
        json!({ "apiVersion": "compute.datumapis.com/v1alpha", "kind": "Instance", "metadata": metadata("spy-0", NS), "spec": instance }),
        json!({ "apiVersion": "v1", "kind": "Secret", "metadata": metadata("spy", NS), "stringData": { "owner": HOSTILE.0 } }),
        json!({ "apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata("spy", &victim.hub), "data": { "owner": HOSTILE.0 } }),
        elsewhere,
    ]
}

/// Facts that the hostile tenant knows about the victim.
struct Victim {
    hub: String,
    workload: String,
}

/// Returns every object of these kinds in a namespace (in all if it is empty), by kind and name.
async fn objects(client: &Client, namespace: &str, kinds: &[&str]) -> BTreeMap<String, DynamicObject> {
    let mut found = BTreeMap::new();
    for kind in kinds {
        for object in list(client, kind, namespace).await {
            let of = object.namespace().unwrap_or_default();
            found.insert(format!("{kind} {of}/{}", object.name_any()), object);
        }
    }
    found
}

const PROJECT_KINDS: [&str; 6] = ["Workload", "WorkloadDeployment", "Instance", "ConfigMap", "Secret", "Event"];
const HUB_KINDS: [&str; 9] = [
    "Namespace",
    "WorkloadDeployment",
    "Instance",
    "ConfigMap",
    "Secret",
    "PropagationPolicy",
    "ResourceBinding",
    "Work",
    "Event",
];
const CELL_KINDS: [&str; 6] = ["Namespace", "WorkloadDeployment", "Instance", "ConfigMap", "Secret", "Event"];

/// Returns all objects of the victim, without fields that change by themselves, such as versions and field managers.
async fn standing(world: &World, victim: &Victim) -> BTreeMap<String, Value> {
    let mut standing = BTreeMap::new();
    for (place, client, namespace, kinds) in [
        ("project", &world.project, NS, &PROJECT_KINDS[..5]),
        ("hub", &world.hub, &victim.hub, &HUB_KINDS[1..7]),
        ("cell", &world.dfw, &victim.hub, &CELL_KINDS[1..5]),
    ] {
        for (name, object) in objects(client, namespace, kinds).await {
            let (meta, data) = (&object.metadata, &object.data);
            let content = ["spec", "data"].map(|part| data[part].clone());
            let said = json!([meta.uid, meta.labels, meta.annotations, meta.deletion_timestamp, content]);
            standing.insert(format!("{place}: {name}"), said);
        }
    }
    standing
}

/// Waits until the victim's objects stop changing. Returns them.
async fn quiet(world: &World, victim: &Victim) -> BTreeMap<String, Value> {
    let last = tokio::sync::Mutex::new(BTreeMap::new());
    eventually("the victim's objects are quiet", || async {
        tokio::time::sleep(Duration::from_secs(1)).await;
        let now = standing(world, victim).await;
        let before = std::mem::replace(&mut *last.lock().await, now.clone());
        if before == now { Ok(now) } else { Err("they change".to_owned()) }
    })
    .await
}

/// Fails if an object has the marks of both tenants, or is in the namespace of the other tenant.
async fn apart(world: &World, hubs: [&str; 2]) -> Result<(), String> {
    let planes = [(&world.hub, &HUB_KINDS[..]), (&world.dfw, &CELL_KINDS[..])];
    let mut seen = [0, 0];
    for (client, kinds) in planes {
        for (name, object) in objects(client, "", kinds).await {
            let text = serde_json::to_string(&object).unwrap();
            let bears = [GOOD, HOSTILE].map(|mark| mark.is_in(&text));
            if bears == [true, true] {
                return Err(format!("{name} bears the marks of both: {text}"));
            }
            for n in 0..2 {
                seen[n] += usize::from(bears[n]);
                if bears[n] && object.namespace().as_deref() == Some(hubs[1 - n]) {
                    return Err(format!("{name} is the other's: {text}"));
                }
            }
        }
    }
    // At least the deployment, its companions and its Instance on hub and cell, and their Works.
    if seen.iter().any(|seen| *seen < 8) { Err(format!("only {seen:?} of each")) } else { Ok(()) }
}

/// Asserts that logs and metrics contain tenants' names, but no content of their objects.
async fn said(world: &World) {
    for operator in &world.operators {
        let metrics = operator.metrics().await.unwrap();
        assert!(![GOOD, HOSTILE].iter().any(|mark| mark.is_in(&metrics)), "{metrics}");
        let log = fs::read_to_string(operator.process.log()).unwrap();
        for value in [GOOD, HOSTILE].map(Mark::value) {
            let told = [STANDARD.encode(&value), value].iter().any(|value| log.contains(value));
            assert!(!told, "values of ConfigMaps or Secrets in {}", operator.process.log().display());
        }
        let both = log.lines().find(|line| GOOD.is_in(line) && HOSTILE.is_in(line));
        assert!(both.is_none(), "{both:?}");
    }
}

#[test]
fn tenants_with_equal_names_are_isolated_from_a_hostile_one() {
    RUNTIME.block_on(async {
        let world = world().await;
        engaged(&world, 3.0).await;
        let (alpha, beta) = (client(&world, "alpha").await, client(&world, "beta").await);
        let hubs = [world.namespace_in(&alpha, NS).await, world.namespace_in(&beta, NS).await];
        for object in GOOD.objects() {
            apply(&alpha, object).await;
        }
        served(&alpha, NS, DEPLOYMENT).await;
        let workload = get(&alpha, "Workload", NS, "web").await.unwrap().uid().unwrap();
        let victim = Victim { hub: hubs[0].clone(), workload };
        eventually("the projection is there", || async {
            get(&alpha, "Instance", NS, "web-p-dfw-0").await.map(drop).ok_or("not yet".to_owned())
        })
        .await;
        let before = quiet(&world, &victim).await;

        for object in attacks(&victim).into_iter().chain(HOSTILE.objects()) {
            apply(&beta, object).await;
        }
        served(&beta, NS, DEPLOYMENT).await;
        served(&beta, NS, "spy").await;
        served(&beta, &victim.hub, DEPLOYMENT).await;
        eventually("everything of each is where it belongs", || apart(&world, [&hubs[0], &hubs[1]])).await;
        for (project, mark, other) in [(&alpha, GOOD, HOSTILE), (&beta, HOSTILE, GOOD)] {
            let shown = objects(project, NS, &PROJECT_KINDS).await;
            let text = serde_json::to_string(&shown.values().collect::<Vec<_>>()).unwrap();
            assert!(mark.is_in(&text) && !other.is_in(&text), "{text}");
            let waits = get(project, "Workload", NS, "waits").await.unwrap().data["status"].to_string();
            assert!(waits.contains(&format!("missing-{}", mark.0)), "each tenant sees the missing source: {waits}");
        }
        said(&world).await;

        // The hostile tenant deletes all of their objects. First they remove the finalizers of the object that names the victim.
        delete(&beta, "WorkloadDeployment", NS, "spy").await;
        // It may already be deleted.
        let release = Patch::Merge(json!({ "metadata": { "finalizers": null } }));
        let _ = api(&beta, "WorkloadDeployment", NS).patch("spy", &PatchParams::default(), &release).await;
        for namespace in [NS, &victim.hub] {
            empty(&beta, namespace).await;
        }
        eventually("no object of the hostile tenant is left", || async {
            let left = list(&world.hub, "WorkloadDeployment", &hubs[1]).await.len()
                + list(&world.dfw, "Instance", &hubs[1]).await.len();
            if left == 0 { Ok(()) } else { Err(left.to_string()) }
        })
        .await;
        let after = quiet(&world, &victim).await;
        for (name, was) in &before {
            assert_eq!(after.get(name), Some(was), "{name}");
        }
        assert_eq!(after.len(), before.len(), "{:?}", after.keys().collect::<Vec<_>>());
        for kind in ["Secret", "ConfigMap"] {
            let _ = api(&beta, kind, NS).delete("spy", &DeleteParams::default()).await;
        }
        empty(&alpha, NS).await;
    });
}
