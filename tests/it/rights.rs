//! Least privilege: every right of `config/` is used, and none is missing.

use std::collections::BTreeSet;

use kube::{
    ResourceExt,
    api::{DynamicObject, PostParams},
};
use serde_json::{Value, json};
use testbed::{admission::role, control_plane::ControlPlane};

use crate::common::{
    RUNTIME, World, api, apply,
    beds::{Wish, alone},
    delete, eventually,
    example_app::SWEEPS,
    get, merge, network, path, ready,
    rights::{Role, SELDOM, UNLOGGED, impersonating},
    workload,
};

/// Returns a Workload that uses a Secret and a ConfigMap.
fn using(ns: &str, cities: &[&str], replicas: u32, image: &str) -> Value {
    let mut object = workload(ns, "web", cities, replicas);
    let container = &mut object["spec"]["template"]["spec"]["runtime"]["sandbox"]["containers"][0];
    container["image"] = json!(image);
    container["envFrom"] = json!([{ "secretRef": { "name": "db" } }, { "configMapRef": { "name": "settings" } }]);
    object
}

/// Creates an Instance that has no place among those of its deployment, and waits until it is deleted.
async fn makes_a_stray(world: &World, hub: &str) {
    let first = get(&world.dfw, "Instance", hub, "web-p-dfw-0").await.unwrap();
    let stray = json!({
        "apiVersion": "compute.datumapis.com/v1alpha", "kind": "Instance",
        "metadata": {
            "namespace": hub, "name": "stray", "labels": first.labels(), "ownerReferences": first.owner_references(),
        },
        "spec": first.data["spec"],
    });
    apply(&world.dfw, stray).await;
    eventually("the stray Instance is deleted", || async {
        let left = get(&world.dfw, "Instance", hub, "stray").await;
        if left.is_none() { Ok(()) } else { Err("still there".to_owned()) }
    })
    .await;
}

/// Runs a Workload through all frequent events and some rare ones.
async fn run_workload(world: &World) {
    let (ns, hub) = world.namespace("rights").await;
    for (kind, name) in [("Secret", "db"), ("ConfigMap", "settings")] {
        apply(&world.project, json!({
            "apiVersion": "v1", "kind": kind, "metadata": { "namespace": ns, "name": name }, "data": { "a": "YQ==" },
        }))
        .await;
    }
    // Later, the template no longer names this network.
    apply(&world.project, network(&ns, "second")).await;
    let mut first = using(&ns, &["dfw", "ord"], 2, "docker.io/library/nginx:1");
    let interface = |name: &str| json!({ "network": { "name": name } });
    first["spec"]["template"]["spec"]["networkInterfaces"] = json!([interface("default"), interface("second")]);
    apply(&world.project, first).await;
    ready(world, &ns, "web", 4).await;
    makes_a_stray(world, &hub).await;
    for (kind, name) in [("Secret", "db"), ("ConfigMap", "settings")] {
        merge(&world.project, kind, &ns, name, json!({ "data": { "a": "Yg==" } })).await;
    }
    apply(&world.project, using(&ns, &["dfw"], 1, "docker.io/library/nginx:2")).await;
    ready(world, &ns, "web", 1).await;
    // A binding of unknown origin.
    apply(
        &world.hub,
        json!({
            "apiVersion": "work.karmada.io/v1alpha2", "kind": "ResourceBinding",
            "metadata": {
                "namespace": hub, "name": "lost-configmap",
                "annotations": { "propagationpolicy.karmada.io/name": "city-dfw" },
            },
            "spec": { "resource": { "apiVersion": "v1", "kind": "ConfigMap", "namespace": hub, "name": "lost" } },
        }),
    )
    .await;
    eventually("the lost binding is deleted", || async {
        let left = get(&world.hub, "ResourceBinding", &hub, "lost-configmap").await;
        if left.is_none() { Ok(()) } else { Err("still there".to_owned()) }
    })
    .await;
    delete(&world.project, "Workload", &ns, "web").await;
    eventually("nothing is left", || world.is_clean(&ns, &hub)).await;
}

#[test]
fn role_rights_are_all_used_and_none_is_missing() {
    RUNTIME.block_on(async {
        let wish = Wish { management: SWEEPS.into(), networks_and_quota: true, ..Wish::default() };
        let mut world = alone(wish).await;
        run_workload(&world).await;
        // The audit log shows a watch only after its end.
        world.operators.clear();
        eventually("the audit logs show every right", || async {
            let mut wrong = Vec::new();
            for role in Role::ALL {
                let (used, lacked) = role.used(&world, world.since());
                let seldom = SELDOM.iter().filter(|row| row.0 == role).map(|row| row.1);
                let elsewhere: BTreeSet<String> = seldom
                    .chain(UNLOGGED.iter().filter(|row| row.0 == role).map(|row| row.1))
                    .map(str::to_owned)
                    .collect();
                let rights = role.rights();
                let unused: Vec<_> =
                    rights.iter().filter(|right| !used.contains(*right) && !elsewhere.contains(*right)).collect();
                let unknown: Vec<_> = elsewhere.difference(&rights).collect();
                for (what, found) in
                    [("is not used", unused), ("is not granted", unknown), ("is missing", lacked.iter().collect())]
                {
                    wrong.extend(found.iter().map(|right| format!("{role:?}: {right} {what}")));
                }
            }
            if wrong.is_empty() { Ok(()) } else { Err(wrong.join("\n")) }
        })
        .await;
    });
}

/// A right that no audit log shows: its role, a write that needs it, and the words of the refusal without it.
struct Unlogged {
    role: Role,
    right: &'static str,
    /// An additional right of the writer, so that nothing else refuses the write.
    more: Option<&'static str>,
    write: Value,
    words: &'static str,
}

/// Returns the object under another name, with an owner reference that blocks the owner's deletion.
fn again(object: &DynamicObject, kind: &str, workload: Option<&DynamicObject>) -> Value {
    let mut own = serde_json::to_value(object).unwrap();
    own["apiVersion"] = json!("compute.datumapis.com/v1alpha");
    own["kind"] = json!(kind);
    let metadata = own["metadata"].as_object_mut().unwrap();
    for field in ["uid", "resourceVersion", "managedFields", "creationTimestamp", "generation", "finalizers"] {
        metadata.remove(field);
    }
    metadata.insert("name".into(), json!("again-0"));
    if let Some(of) = workload {
        let owner = json!({
            "apiVersion": "compute.datumapis.com/v1alpha", "kind": "Workload", "name": of.name_any(), "uid": of.uid(),
        });
        metadata.insert("ownerReferences".into(), json!([owner]));
    }
    own["metadata"]["ownerReferences"][0]["blockOwnerDeletion"] = json!(true);
    own["metadata"]["ownerReferences"][0]["controller"] = json!(true);
    own
}

impl Unlogged {
    /// Asserts that the write is refused without the right and accepted with it. Both are dry runs.
    async fn is_needed(&self, plane: &ControlPlane) {
        let admin = plane.client().await.unwrap();
        let writer = impersonating(plane, WRITER).await;
        let (kind, namespace) =
            (self.write["kind"].as_str().unwrap(), self.write["metadata"]["namespace"].as_str().unwrap());
        for lacking in [Some(self.right), None] {
            let rules = self.role.rules_without(lacking, self.more);
            for object in role(WRITER, namespace, &rules) {
                testbed::manifests::apply_value(&admin, in_all_namespaces(object)).await.unwrap();
            }
            eventually(&format!("{:?}: {} without {lacking:?}", self.role, self.right), || async {
                let dry = PostParams { dry_run: true, ..PostParams::default() };
                let object = serde_json::from_value(self.write.clone()).unwrap();
                let made =
                    api(&writer, kind, namespace).create(&dry, &object).await.map(drop).map_err(|e| e.to_string());
                match (lacking, made) {
                    (None, Ok(())) => Ok(()),
                    (Some(_), Err(why)) if why.contains(self.words) => Ok(()),
                    (_, other) => Err(format!("{other:?}")),
                }
            })
            .await;
        }
        for kind in ["ClusterRole", "ClusterRoleBinding"] {
            delete(&admin, kind, "", WRITER).await;
        }
    }
}

const WRITER: &str = "lacks-one-right";

/// Turns a role or its binding into a cluster-wide one.
fn in_all_namespaces(mut object: Value) -> Value {
    object["metadata"].as_object_mut().unwrap().remove("namespace");
    object["kind"] = json!(format!("Cluster{}", object["kind"].as_str().unwrap()));
    if object["roleRef"].is_object() {
        object["roleRef"]["kind"] = json!("ClusterRole");
    }
    object
}

/// Admission checks the rights that no audit log shows. A refusal without the right proves each of them.
#[test]
fn write_without_an_unlogged_right_is_refused() {
    RUNTIME.block_on(async {
        let world = alone(Wish::default()).await;
        let (ns, hub) = world.namespace("unlogged").await;
        apply(&world.project, workload(&ns, "web", &["dfw"], 1)).await;
        ready(&world, &ns, "web", 1).await;
        let owner = get(&world.project, "Workload", &ns, "web").await.unwrap();
        let deployment = get(&world.project, "WorkloadDeployment", &ns, "web-p-dfw").await.unwrap();
        let on_hub = eventually("it is written back", || async {
            get(&world.hub, "Instance", &hub, "web-p-dfw-0").await.ok_or("not yet".to_owned())
        })
        .await;
        let on_cell = get(&world.dfw, "Instance", &hub, "web-p-dfw-0").await.unwrap();
        let blocks = "cannot set blockOwnerDeletion";
        let (workloads, deployments) = (
            "compute.datumapis.com/workloads/finalizers update",
            "compute.datumapis.com/workloaddeployments/finalizers update",
        );
        let hold = "compute.datumapis.com/cells hold";
        let create = "compute.datumapis.com/instances create";
        let all = [
            (
                &world.bed.project,
                Unlogged {
                    role: Role::Project,
                    right: workloads,
                    more: None,
                    words: blocks,
                    write: again(&deployment, "WorkloadDeployment", Some(&owner)),
                },
            ),
            (
                &world.bed.hub,
                Unlogged {
                    role: Role::CellOnHub,
                    right: deployments,
                    more: Some(hold),
                    words: blocks,
                    write: again(&on_hub, "Instance", None),
                },
            ),
            (
                world.bed.cell("dfw").unwrap(),
                Unlogged {
                    role: Role::Cell,
                    right: deployments,
                    more: None,
                    words: blocks,
                    write: again(&on_cell, "Instance", None),
                },
            ),
            (
                &world.bed.hub,
                Unlogged {
                    role: Role::Hub,
                    right: hold,
                    more: Some(create),
                    words: "lacks-one-right may not write for cell",
                    write: {
                        let mut free = again(&on_hub, "Instance", None);
                        free["metadata"]["ownerReferences"][0].as_object_mut().unwrap().remove("blockOwnerDeletion");
                        free
                    },
                },
            ),
        ];
        let shown: BTreeSet<_> = all.iter().map(|(_, one)| (one.role, one.right)).collect();
        assert_eq!(shown, BTreeSet::from(UNLOGGED), "each of them is shown here");
        for (plane, one) in &all {
            one.is_needed(plane).await;
        }
        delete(&world.project, "Workload", &ns, "web").await;
        eventually("nothing is left", || world.is_clean(&ns, &hub)).await;
    });
}

#[test]
fn rarely_used_rights_are_proved_by_the_named_tests() {
    let (mut texts, mut folders) = (Vec::new(), vec![path("tests/it"), path("tests/long")]);
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(folder).unwrap() {
            let file = entry.unwrap().path();
            if file.is_dir() { folders.push(file) } else { texts.push(std::fs::read_to_string(file).unwrap()) }
        }
    }
    for (role, right, test) in SELDOM {
        let home = texts.iter().find(|text| text.contains(&format!("fn {test}()")));
        let home = home.unwrap_or_else(|| panic!("{role:?}: {right}: test {test} does not exist"));
        let shows = home.contains("rights::shown(") && home.contains(&format!("\"{test}\""));
        assert!(shows, "{test} does not show it");
    }
}
