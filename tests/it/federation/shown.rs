//! The return path of Instances: written back to the hub, shown in the project, and quarantined if they belong nowhere.

use compute_operator::api::compute::Instance;
use kube::{ResourceExt, api::DynamicObject};
use serde_json::{Value, json};
use testbed::audit::{Audit, Request};

use super::costs::ours;
use crate::common::{
    RUNTIME, World, apply, beds::shared, condition, delete, deployment, eventually, get, list, merge, ready, template,
    workload,
};

/// Waits until the hub and the project show the same Instance as its cell. The hub's deployment owns the copy, and the
/// project's deployment owns the projection.
pub async fn shown_as_it_is(world: &World, ns: &str, hub: &str, city: &str, name: &str) {
    let cell = if city == "dfw" { &world.dfw } else { &world.ord };
    eventually(&format!("{name} is shown"), || async {
        let source = get(cell, "Instance", hub, name).await.ok_or("no Instance")?;
        let copy = get(&world.hub, "Instance", hub, name).await.ok_or("no write-back")?;
        let shown = get(&world.project, "Instance", ns, name).await.ok_or("no projection")?;
        for (place, object) in [("hub", &copy), ("project", &shown)] {
            // The comparison uses types, because an empty list equals a missing one.
            let typed = |object: &kube::api::DynamicObject| -> Instance {
                serde_json::from_value(serde_json::to_value(object).unwrap()).unwrap()
            };
            let (is, wanted) = (typed(object), typed(&source));
            if (&is.spec, &is.status) != (&wanted.spec, &wanted.status) {
                return Err(format!("{place}: {} is not {}", object.data, source.data));
            }
            if condition(object, "Ready")["status"] != "True" {
                return Err(format!("{place}: {}", condition(object, "Ready")));
            }
            assert_eq!(object.labels()["meta.datumapis.com/upstream-cluster-name"], "cluster-single");
            assert_eq!(object.labels()["meta.datumapis.com/upstream-namespace"], ns);
        }
        let deployment = &source.labels()["compute.datumapis.com/workload-deployment-name"];
        let owner = get(&world.hub, "WorkloadDeployment", hub, deployment).await.ok_or("no hub deployment")?;
        assert_eq!(
            (copy.owner_references()[0].uid.clone(), copy.owner_references()[0].controller),
            (owner.uid().unwrap(), Some(true))
        );
        let owner = get(&world.project, "WorkloadDeployment", ns, deployment).await.ok_or("no deployment")?;
        assert_eq!(
            (shown.owner_references()[0].uid.clone(), shown.owner_references()[0].controller),
            (owner.uid().unwrap(), None)
        );
        Ok(())
    })
    .await;
}

#[test]
fn projection_edited_is_restored_and_deleted_with_its_source() {
    RUNTIME.block_on(async {
        let visit = shared().await;
        let world = &*visit;
        let (ns, hub) = world.namespace("shown").await;
        apply(&world.project, workload(&ns, "web", &["dfw"], 2)).await;
        ready(world, &ns, "web", 2).await;
        shown_as_it_is(world, &ns, &hub, "dfw", "web-p-dfw-0").await;
        shown_as_it_is(world, &ns, &hub, "dfw", "web-p-dfw-1").await;
        let uid = get(&world.project, "Instance", &ns, "web-p-dfw-0").await.unwrap().uid();
        // The projection is changed, extended, unlabelled, and gets a forged status. It is restored and stays the same object.
        let edit = json!({
            "metadata": { "labels": { "meta.datumapis.com/upstream-cluster-name": null } },
            "spec": { "runtime": { "resources": { "instanceType": "mine" } }, "volumes": [{ "name": "mine", "configMap": { "name": "x" } }] },
        });
        merge(&world.project, "Instance", &ns, "web-p-dfw-0", edit).await;
        shown_as_it_is(world, &ns, &hub, "dfw", "web-p-dfw-0").await;
        // The same edit on the hub, where the cell restores the copy.
        let edit = json!({ "spec": { "location": { "name": "the moon" } }, "metadata": { "labels": { "app": "mine" } } });
        merge(&world.hub, "Instance", &hub, "web-p-dfw-0", edit).await;
        shown_as_it_is(world, &ns, &hub, "dfw", "web-p-dfw-0").await;
        let shown = get(&world.project, "Instance", &ns, "web-p-dfw-0").await.unwrap();
        assert_eq!((shown.uid(), shown.labels()["app"].as_str()), (uid, "test"));
        delete(&world.project, "Instance", &ns, "web-p-dfw-0").await;
        shown_as_it_is(world, &ns, &hub, "dfw", "web-p-dfw-0").await;
        delete(&world.hub, "Instance", &hub, "web-p-dfw-1").await;
        shown_as_it_is(world, &ns, &hub, "dfw", "web-p-dfw-1").await;
        // After scaling down, the Instance is deleted everywhere.
        apply(&world.project, workload(&ns, "web", &["dfw"], 1)).await;
        for (client, namespace) in [(&world.dfw, &hub), (&world.hub, &hub), (&world.project, &ns)] {
            eventually("the Instance is deleted", || async {
                let left = get(client, "Instance", namespace, "web-p-dfw-1").await;
                if left.is_none() { Ok(()) } else { Err("still there".into()) }
            })
            .await;
        }
        shown_as_it_is(world, &ns, &hub, "dfw", "web-p-dfw-0").await;
        delete(&world.project, "Workload", &ns, "web").await;
        eventually("nothing is left", || world.is_clean(&ns, &hub)).await;
    });
}

#[test]
fn instance_copy_of_the_go_operator_is_adopted() {
    RUNTIME.block_on(async {
        let visit = shared().await;
        let world = &*visit;
        let (ns, hub) = world.namespace("adopted").await;
        apply(&world.hub, json!({ "apiVersion": "v1", "kind": "Namespace", "metadata": { "name": hub } })).await;
        let old = json!({
            "apiVersion": "compute.datumapis.com/v1alpha", "kind": "Instance",
            "metadata": { "name": "web-p-dfw-0", "namespace": hub }, "spec": template("docker.io/library/old:1")["spec"],
        });
        let old = apply(&world.hub, old).await;
        apply(&world.project, workload(&ns, "web", &["dfw"], 1)).await;
        ready(world, &ns, "web", 1).await;
        shown_as_it_is(world, &ns, &hub, "dfw", "web-p-dfw-0").await;
        let copy = get(&world.hub, "Instance", &hub, "web-p-dfw-0").await.unwrap();
        assert_eq!(copy.uid(), old.uid(), "the same object, now ours");
        delete(&world.project, "Workload", &ns, "web").await;
        eventually("nothing is left", || world.is_clean(&ns, &hub)).await;
    });
}

/// Returns the value of the quarantine gauge for a reason.
async fn quarantined(world: &World, reason: &str) -> u32 {
    let text = world.operators[0].metrics().await.unwrap();
    let line = format!("compute_federation_quarantined_objects{{reason=\"{reason}\"}} ");
    text.lines().find_map(|l| l.strip_prefix(&line)).map_or(0, |value| value.parse().unwrap())
}

/// Returns labels of Instances that belong nowhere, by the reason.
fn misplaced(ns: &str) -> [(&'static str, serde_json::Value); 5] {
    let cluster = "meta.datumapis.com/upstream-cluster-name";
    let namespace = "meta.datumapis.com/upstream-namespace";
    let owner = "compute.datumapis.com/workload-deployment-name";
    let all = json!({ cluster: "cluster-single", namespace: ns, owner: "known" });
    let with = |key: &str, value: serde_json::Value| {
        let mut labels = all.clone();
        labels[key] = value;
        labels
    };
    [
        ("unidentifiable", with(cluster, json!(null))),
        ("missing_namespace_label", with(namespace, json!(null))),
        ("missing_deployment_name", with(owner, json!(null))),
        ("project_absent", with(cluster, json!("cluster-nobody"))),
        ("deployment_absent", with(owner, json!("unknown"))),
    ]
}

#[test]
fn unattributable_hub_instance_is_quarantined_and_reported_once() {
    RUNTIME.block_on(async {
        let visit = shared().await;
        let world = &*visit;
        let (ns, hub) = world.namespace("aside").await;
        apply(&world.project, deployment(&ns, "known", "lhr")).await; // no cell serves it, and only its name matters here
        apply(&world.hub, json!({ "apiVersion": "v1", "kind": "Namespace", "metadata": { "name": hub } })).await;
        let cases = misplaced(&ns);
        let audits = [Audit::mark(&world.bed.project), Audit::mark(&world.bed.hub)];
        for (reason, labels) in &cases {
            let before = quarantined(world, reason).await;
            let name = reason.replace('_', "-");
            apply(
                &world.hub,
                json!({
                    "apiVersion": "compute.datumapis.com/v1alpha", "kind": "Instance",
                    "metadata": { "name": name, "namespace": hub, "labels": labels }, "spec": template("i")["spec"],
                }),
            )
            .await;
            eventually(&format!("{reason} is counted"), || async {
                if quarantined(world, reason).await == before + 1 { Ok(()) } else { Err(String::new()) }
            })
            .await;
        }
        let events = eventually("each one is reported", || async {
            let mut events = list(&world.hub, "Event", &hub).await;
            // Karmada writes Events there too.
            events.retain(|event| event.data["reason"] == "Quarantined");
            if events.len() >= cases.len() { Ok(events) } else { Err(events.len().to_string()) }
        })
        .await;
        assert_eq!(events.len(), cases.len(), "one Event each");
        assert!(events.iter().all(|event| event.data["type"] == "Warning"));
        // Each of them costs one Event and no other request.
        let counted = [ns.as_str(), hub.as_str()];
        let is_about_them = |r: &Request| {
            r.resource != "workloaddeployments"
                && r.resource != "workloaddeployments/status"
                && r.resource != "namespaces"
                && r.resource != "propagationpolicies"
                // The first reference of another test, and Events about the deployment without a city.
                && r.verb != "list"
                && !r.name.starts_with("known.")
        };
        let asked: Vec<Request> = audits.iter().flat_map(|audit| ours(audit, &counted)).filter(is_about_them).collect();
        assert_eq!(
            asked.iter().filter(|r| r.verb == "create" && r.resource == "events").count(),
            cases.len(),
            "{asked:?}"
        );
        assert_eq!(asked.len(), cases.len(), "{asked:?}");
        // The missing deployment is created. The Instance is shown, and leaves the quarantine.
        let before = quarantined(world, "deployment_absent").await;
        apply(&world.project, deployment(&ns, "unknown", "lhr")).await;
        eventually("it is shown", || async {
            get(&world.project, "Instance", &ns, "deployment-absent").await.ok_or("not yet".into())
        })
        .await;
        eventually("it is counted no more", || async {
            if quarantined(world, "deployment_absent").await == before - 1 { Ok(()) } else { Err(String::new()) }
        })
        .await;
        for (reason, _) in &cases {
            delete(&world.hub, "Instance", &hub, &reason.replace('_', "-")).await;
        }
        eventually("it is deleted with its source", || async {
            let left = get(&world.project, "Instance", &ns, "deployment-absent").await;
            if left.is_none() { Ok(()) } else { Err("still there".into()) }
        })
        .await;
        eventually("none is aside", || async {
            if quarantined(world, "project_absent").await == 0 { Ok(()) } else { Err(String::new()) }
        })
        .await;
    });
}

#[test]
fn hub_instance_naming_a_foreign_project_is_quarantined() {
    RUNTIME.block_on(async {
        let visit = shared().await;
        let world = &*visit;
        let (ns, _) = world.namespace("named").await;
        let (_, elsewhere) = world.namespace("elsewhere").await;
        apply(&world.project, deployment(&ns, "known", "lhr")).await;
        apply(&world.hub, json!({ "apiVersion": "v1", "kind": "Namespace", "metadata": { "name": elsewhere } })).await;
        let labels = json!({
            "meta.datumapis.com/upstream-cluster-name": "cluster-single", "meta.datumapis.com/upstream-namespace": ns,
            "compute.datumapis.com/workload-deployment-name": "known",
        });
        let stranger = json!({
            "apiVersion": "compute.datumapis.com/v1alpha", "kind": "Instance",
            "metadata": { "name": "known-0", "namespace": elsewhere, "labels": labels }, "spec": template("i")["spec"],
        });
        apply(&world.hub, stranger).await;
        eventually("it is reported", || async {
            let events = list(&world.hub, "Event", &elsewhere).await;
            if events.iter().any(|event| event.data["reason"] == "Quarantined") { Ok(()) } else { Err(String::new()) }
        })
        .await;
        assert!(get(&world.project, "Instance", &ns, "known-0").await.is_none());
        delete(&world.hub, "Instance", &elsewhere, "known-0").await;
    });
}

/// The projection overwrote an Instance that a tenant had created in the project.
#[test]
fn tenant_instance_in_place_of_a_projection_is_kept_and_reported() {
    RUNTIME.block_on(async {
        let visit = shared().await;
        let world = &*visit;
        let (ns, hub) = world.namespace("own").await;
        apply(&world.project, deployment(&ns, "known", "lhr")).await;
        apply(&world.hub, json!({ "apiVersion": "v1", "kind": "Namespace", "metadata": { "name": hub } })).await;
        let instance = |namespace: &str, labels: Value, image: &str| {
            json!({
                "apiVersion": "compute.datumapis.com/v1alpha", "kind": "Instance",
                "metadata": { "name": "known-0", "namespace": namespace, "labels": labels }, "spec": template(image)["spec"],
            })
        };
        apply(&world.project, instance(&ns, json!({ "app": "mine" }), "mine")).await;
        let labels = json!({
            "meta.datumapis.com/upstream-cluster-name": "cluster-single", "meta.datumapis.com/upstream-namespace": ns,
            "compute.datumapis.com/workload-deployment-name": "known",
        });
        apply(&world.hub, instance(&hub, labels, "theirs")).await;
        eventually("the tenant gets an Event", || async {
            let events = list(&world.project, "Event", &ns).await;
            if events.iter().any(|event| event.data["reason"] == "PlaceTaken") { Ok(()) } else { Err(String::new()) }
        })
        .await;
        let image = |shown: &DynamicObject| shown.data["spec"]["runtime"]["sandbox"]["containers"][0]["image"].clone();
        let mine = get(&world.project, "Instance", &ns, "known-0").await.unwrap();
        assert_eq!((image(&mine), mine.labels().len()), (json!("mine"), 1), "it is left as it is");
        delete(&world.project, "Instance", &ns, "known-0").await;
        // A label triggers this sooner than the next sweep.
        merge(&world.hub, "Instance", &hub, "known-0", json!({ "metadata": { "labels": { "app": "again" } } })).await;
        eventually("the hub's Instance is shown after the deletion", || async {
            let shown = get(&world.project, "Instance", &ns, "known-0").await.ok_or("not yet")?;
            if image(&shown) == "theirs" { Ok(()) } else { Err(image(&shown).to_string()) }
        })
        .await;
        delete(&world.hub, "Instance", &hub, "known-0").await;
        delete(&world.project, "WorkloadDeployment", &ns, "known").await;
    });
}

/// The cache keeps 16 MiB of large specs per writer. The projector quarantined later Instances, also those of other tenants.
#[test]
fn instances_beyond_the_cache_limit_of_one_writer_are_shown() {
    const COUNT: usize = 80;
    RUNTIME.block_on(async {
        let visit = shared().await;
        let world = &*visit;
        let (ns, hub) = world.namespace("large").await;
        apply(&world.project, deployment(&ns, "large", "lhr")).await; // no cell serves it
        apply(&world.hub, json!({ "apiVersion": "v1", "kind": "Namespace", "metadata": { "name": hub } })).await;
        let labels = json!({
            "meta.datumapis.com/upstream-cluster-name": "cluster-single", "meta.datumapis.com/upstream-namespace": ns,
            "compute.datumapis.com/workload-deployment-name": "large",
        });
        let source = |n: usize, image: &str| {
            let mut spec = template(image)["spec"].clone();
            let value = format!("{n}{}", "y".repeat(230 << 10));
            spec["runtime"]["sandbox"]["containers"][0]["env"] = json!([{ "name": "A", "value": value }]);
            json!({
                "apiVersion": "compute.datumapis.com/v1alpha", "kind": "Instance", "spec": spec,
                "metadata": { "name": format!("large-{n}"), "namespace": hub, "labels": labels },
            })
        };
        let shown = async |n: usize, image: &str| {
            let runtime = source(n, image)["spec"]["runtime"].clone();
            eventually(&format!("large-{n} is shown with {image}"), || async {
                let object = get(&world.project, "Instance", &ns, &format!("large-{n}")).await.ok_or("not there")?;
                let is: Value = object.data["spec"]["runtime"].clone();
                if is == runtime { Ok(()) } else { Err(format!("{} bytes", is.to_string().len())) }
            })
            .await;
        };
        for n in 0..COUNT {
            apply(&world.hub, source(n, "one")).await;
        }
        for n in 0..COUNT {
            shown(n, "one").await;
        }
        for n in [0, COUNT - 1] {
            apply(&world.hub, source(n, "two")).await;
            shown(n, "two").await;
            // The edit is undone, although the cache does not keep the content.
            let edit = json!({ "spec": { "runtime": { "resources": { "instanceType": "edited" } } } });
            merge(&world.project, "Instance", &ns, &format!("large-{n}"), edit).await;
            shown(n, "two").await;
        }
        assert_eq!(quarantined(world, "too_large").await, 0);
        for n in 0..COUNT {
            delete(&world.hub, "Instance", &hub, &format!("large-{n}")).await;
        }
        eventually("they go with their sources", || async {
            let left = list(&world.project, "Instance", &ns).await.len();
            if left == 0 { Ok(()) } else { Err(left.to_string()) }
        })
        .await;
    });
}
