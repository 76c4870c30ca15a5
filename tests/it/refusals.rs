//! A refused write blocks no other write, and succeeds when its cause ends.

use kube::{
    ResourceExt,
    api::{Patch, PatchParams, PostParams},
};
use serde_json::{Value, json};

use crate::common::{
    RUNTIME, World, api, apply,
    beds::{Wish, alone, shared},
    condition, delete, deployment, eventually,
    example_app::SWEEPS,
    get, merge, ready,
    refusal::{Refusal, WebhookAway},
    template, workload,
};

const GROUP: &str = "compute.datumapis.com";

#[test]
fn refused_city_blocks_no_other() {
    RUNTIME.block_on(async {
        let visit = shared().await;
        let world = &*visit;
        let (ns, _) = world.namespace("refused").await;
        let unless = format!("object.metadata.namespace != '{ns}' || object.spec.cityCode != 'dfw'");
        let rule = Refusal { name: &ns, kind: (GROUP, "workloaddeployments"), operation: "CREATE", unless: &unless };
        rule.begin(&world.project, &deployment(&ns, "probe", "dfw")).await;
        // By name, the refused city comes first.
        apply(&world.project, workload(&ns, "web", &["dfw", "ord"], 1)).await;
        eventually("the other city runs, and the refusal is reported", || async {
            let workload = get(&world.project, "Workload", &ns, "web").await.ok_or("gone")?;
            let placement = &workload.data["status"]["placements"][0]["conditions"][0];
            let names_it = placement["message"].as_str().unwrap_or_default().contains("not while the rule stands");
            let right = condition(&workload, "Available")["status"] == "True" && names_it;
            if right && workload.data["status"]["readyReplicas"] == 1 { Ok(()) } else { Err(workload.data.to_string()) }
        })
        .await;
        assert!(get(&world.project, "WorkloadDeployment", &ns, "web-p-dfw").await.is_none());
        rule.end(&world.project).await;
        ready(world, &ns, "web", 2).await;
        delete(&world.project, "Workload", &ns, "web").await;
    });
}

#[test]
fn instance_refused_by_a_cell_is_reported_to_the_tenant() {
    RUNTIME.block_on(async {
        let visit = shared().await;
        let world = &*visit;
        let (ns, hub) = world.namespace("refused").await;
        let unless = format!("object.metadata.namespace != '{hub}' && object.metadata.name != '{hub}'");
        let rule = Refusal { name: &hub, kind: (GROUP, "instances"), operation: "CREATE", unless: &unless };
        let probe = json!({
            "apiVersion": "compute.datumapis.com/v1alpha", "kind": "Instance",
            "metadata": { "name": hub, "namespace": "default" }, "spec": template("any")["spec"],
        });
        rule.begin(&world.ord, &probe).await;
        apply(&world.project, workload(&ns, "web", &["ord"], 1)).await;
        eventually("the tenant reads why", || async {
            let workload = get(&world.project, "Workload", &ns, "web").await.ok_or("gone")?;
            let told = condition(&workload, "Available");
            let names_it = told["message"].as_str().is_some_and(|text| text.contains("not while the rule stands"));
            if told["reason"] == "InstanceRefused" && names_it { Ok(()) } else { Err(told.to_string()) }
        })
        .await;
        rule.end(&world.ord).await;
        ready(world, &ns, "web", 1).await;
        delete(&world.project, "Workload", &ns, "web").await;
    });
}

#[test]
fn instance_name_held_by_a_terminating_one_is_awaited_and_blocks_nothing_else() {
    RUNTIME.block_on(async {
        let visit = shared().await;
        let world = &*visit;
        let hub = crate::common::hub_namespace();
        let namespace = json!({ "apiVersion": "v1", "kind": "Namespace", "metadata": { "name": hub } });
        apply(&world.dfw, namespace).await;
        let held = |finalizers: Value| {
            json!({
                "apiVersion": "compute.datumapis.com/v1alpha", "kind": "Instance",
                "metadata": {
                    "name": "wd-0", "namespace": hub, "finalizers": finalizers,
                    "labels": { "compute.datumapis.com/workload-deployment-uid": "of-an-earlier-one" },
                },
                "spec": template("old")["spec"],
            })
        };
        let old = apply(&world.dfw, held(json!(["example.com/held"]))).await.uid();
        delete(&world.dfw, "Instance", &hub, "wd-0").await;
        let mut object = deployment(&hub, "wd", "dfw");
        object["metadata"]["labels"] = json!({ "meta.datumapis.com/upstream-namespace": "whatever" });
        apply(&world.dfw, object).await;
        eventually("the status names the awaited Instance", || async {
            let wd = get(&world.dfw, "WorkloadDeployment", &hub, "wd").await.ok_or("gone")?;
            let condition = condition(&wd, "ReplicasReady");
            let message = condition["message"].as_str().unwrap_or_default();
            let bound = get(&world.dfw, "NetworkBinding", &hub, "wd-net-0").await.is_some();
            if message.contains("an earlier Instance of this name") && message.contains("example.com/held") && bound {
                Ok(())
            } else {
                Err(format!("{condition}, bound: {bound}"))
            }
        })
        .await;
        merge(&world.dfw, "Instance", &hub, "wd-0", json!({ "metadata": { "finalizers": null } })).await;
        eventually("the new Instance is created", || async {
            let new = get(&world.dfw, "Instance", &hub, "wd-0").await.ok_or("none")?.uid();
            if new == old { Err("the old one".to_owned()) } else { Ok(()) }
        })
        .await;
        delete(&world.dfw, "Namespace", "", &hub).await;
    });
}

#[test]
fn instance_refused_by_a_project_is_shown_after_the_cause_ends() {
    RUNTIME.block_on(async {
        let world = alone(Wish { management: SWEEPS.into(), ..Wish::default() }).await;
        let (ns, _) = world.namespace("unshown").await;
        let unless = format!("object.metadata.namespace != '{ns}'");
        let rule = Refusal { name: &ns, kind: (GROUP, "instances"), operation: "CREATE", unless: &unless };
        let probe = json!({
            "apiVersion": "compute.datumapis.com/v1alpha", "kind": "Instance",
            "metadata": { "name": "probe", "namespace": ns }, "spec": template("i")["spec"],
        });
        rule.begin(&world.project, &probe).await;
        apply(&world.project, workload(&ns, "web", &["dfw"], 1)).await;
        eventually("it is quarantined", || async {
            let text = world.operators[0].metrics().await.map_err(|e| e.to_string())?;
            let counted = text.contains(r#"compute_federation_quarantined_objects{reason="refused"} 1"#);
            if counted { Ok(()) } else { Err("not counted".to_owned()) }
        })
        .await;
        assert!(get(&world.project, "Instance", &ns, "web-p-dfw-0").await.is_none());
        rule.end(&world.project).await;
        eventually("it is shown", || async {
            get(&world.project, "Instance", &ns, "web-p-dfw-0").await.map(drop).ok_or("not yet".to_owned())
        })
        .await;
    });
}

/// A webhook that is unavailable on one plane, the change made in the meantime, and the place of the report.
struct Away<'a> {
    client: &'a kube::Client,
    kind: (&'a str, &'a str),
    namespace: &'a str,
    /// Change in the project while the webhook is unavailable.
    change: Value,
    /// Kind and name of the project's object that reports the error, and the type of the condition.
    on: [&'a str; 3],
    /// Reason of the condition, and words of its message.
    says: [&'a str; 2],
}

/// Asserts that the error is reported within the grace period, and that everything continues after the webhook is removed.
async fn reports_a_webhook_that_is_away(world: &World, ns: &str, away: Away<'_>) {
    let Away { client, kind, namespace, change, on: [of, name, type_], says: [reason, words] } = away;
    let webhook = WebhookAway { name: ns, kind, namespace };
    let probe = match kind.1 {
        "workloaddeployments" => deployment(namespace, "probe", "dfw"),
        "secrets" => {
            json!({ "apiVersion": "v1", "kind": "Secret", "metadata": { "name": "probe", "namespace": namespace } })
        }
        _ => json!({
            "apiVersion": "compute.datumapis.com/v1alpha", "kind": "Instance",
            "metadata": { "name": "probe", "namespace": namespace }, "spec": template("i")["spec"],
        }),
    };
    webhook.begin(client, &probe).await;
    apply(&world.project, change).await;
    let said = || async {
        let object = get(&world.project, of, ns, name).await.ok_or("none")?;
        Ok::<_, String>(condition(&object, type_))
    };
    let started = std::time::Instant::now();
    eventually(&format!("{of} {name} reports {reason}"), || async {
        let said = said().await?;
        let right = said["reason"] == reason && said["message"].as_str().unwrap_or_default().contains(words);
        if right { Ok(()) } else { Err(said.to_string()) }
    })
    .await;
    eprintln!("{kind:?} in {namespace}: reported after {:.1} s", started.elapsed().as_secs_f64());
    webhook.end(client).await;
    eventually(&format!("{of} {name} continues"), || async {
        let said = said().await?;
        let left = said["message"].as_str().unwrap_or_default().contains(words);
        if said["status"] == "True" && !left { Ok(()) } else { Err(said.to_string()) }
    })
    .await;
}

/// Waits until `Federated` of this deployment has this reason and contains these words. Without a reason, waits until it is true
/// without them.
async fn federated(world: &World, ns: &str, name: &str, reason: Option<&str>, words: &str) {
    eventually(&format!("{name} reports {reason:?}: {words}"), || async {
        let said = condition(&get(&world.project, "WorkloadDeployment", ns, name).await.ok_or("none")?, "Federated");
        let contains = said["message"].as_str().unwrap_or_default().contains(words);
        let right = match reason {
            Some(reason) => contains && said["reason"] == reason,
            None => !contains && said["status"] == "True",
        };
        if right { Ok(()) } else { Err(said.to_string()) }
    })
    .await;
}

/// A ResourceQuota answers with HTTP 403, like a missing right. It was not reported.
async fn reports_a_quota_of_the_project(world: &World, ns: &str) {
    let none = json!({ "count/instances.compute.datumapis.com": "0" });
    let quota = json!({
        "apiVersion": "v1", "kind": "ResourceQuota", "metadata": { "name": "none", "namespace": ns }, "spec": { "hard": none },
    });
    apply(&world.project, quota).await;
    // The quota controller would do this.
    let quotas = api(&world.project, "ResourceQuota", ns);
    let counted = json!({ "status": { "hard": none, "used": none } });
    quotas.patch_status("none", &PatchParams::default(), &Patch::Merge(counted)).await.unwrap();
    apply(&world.project, workload(ns, "counted", &["dfw"], 1)).await;
    federated(world, ns, "counted-p-dfw", Some("InstancesNotShown"), "exceeded quota: none").await;
    delete(&world.project, "ResourceQuota", ns, "none").await;
    federated(world, ns, "counted-p-dfw", None, "exceeded quota").await;
    eventually("the Instance is shown", || async {
        get(&world.project, "Instance", ns, "counted-p-dfw-0").await.map(drop).ok_or("not yet".to_owned())
    })
    .await;
}

/// The project accepts changes of a deployment's spec but not of its metadata, so the federator's mark is refused. Later writes
/// were skipped, and nothing was reported.
async fn reports_a_mark_that_the_project_refuses(world: &World, ns: &str) {
    apply(&world.project, workload(ns, "marked", &["dfw"], 1)).await;
    ready(world, ns, "marked", 1).await;
    let unless = format!(
        "object.metadata.namespace != '{ns}' || object.metadata.name != 'marked-p-dfw' || object.spec != oldObject.spec"
    );
    let rule = Refusal { name: ns, kind: (GROUP, "workloaddeployments"), operation: "UPDATE", unless: &unless };
    let deployments = api(&world.project, "WorkloadDeployment", ns);
    let probe = json!({ "metadata": { "annotations": { "example.com/probe": "" } } });
    let params = PatchParams { dry_run: true, ..PatchParams::default() };
    let attempt = async || deployments.patch("marked-p-dfw", &params, &Patch::Merge(&probe)).await.map(drop);
    rule.begin_with(&world.project, attempt).await;
    let mut uses = workload(ns, "marked", &["dfw"], 1);
    uses["spec"]["template"]["spec"]["runtime"]["sandbox"]["containers"][0]["envFrom"] =
        json!([{ "secretRef": { "name": "of-marked" } }]);
    apply(&world.project, uses).await;
    federated(world, ns, "marked-p-dfw", Some("DeploymentDenied"), "not while the rule stands").await;
    eventually("the state of its data is reported too", || async {
        let deployment = get(&world.project, "WorkloadDeployment", ns, "marked-p-dfw").await.ok_or("none")?;
        let said = condition(&deployment, "ReferencedDataReady");
        if said["reason"] == "SourceNotFound" { Ok(()) } else { Err(said.to_string()) }
    })
    .await;
    rule.end(&world.project).await;
    federated(world, ns, "marked-p-dfw", None, "not while the rule stands").await;
}

/// Definitions of the Go operator store a duplicate variable. A server-side apply with the operator's definitions refuses it.
async fn reports_what_only_older_definitions_store(world: &World, ns: &str) {
    let name = "workloaddeployments.compute.datumapis.com";
    let ours = get(&world.project, "CustomResourceDefinition", "", name).await.unwrap();
    let mut older = ours.data.clone();
    forget_list_types(&mut older["spec"]);
    let replace = async |spec: &Value| {
        let patch = json!([{ "op": "replace", "path": "/spec", "value": spec }]);
        let patch = Patch::Json::<()>(serde_json::from_value(patch).unwrap());
        api(&world.project, "CustomResourceDefinition", "").patch(name, &PatchParams::default(), &patch).await.unwrap();
    };
    replace(&older["spec"]).await;
    let mut twice = deployment(ns, "twice", "dfw");
    twice["spec"]["template"]["spec"]["runtime"]["sandbox"]["containers"][0]["env"] =
        json!([{ "name": "A", "value": "1" }, { "name": "A", "value": "2" }]);
    let all = api(&world.project, "WorkloadDeployment", ns);
    eventually("the older definition is in force", || async {
        let object = serde_json::from_value(twice.clone()).unwrap();
        all.create(&PostParams::default(), &object).await.map(drop).map_err(|error| error.to_string())
    })
    .await;
    federated(world, ns, "twice", Some("HubRefused"), "uplicate").await;
    delete(&world.project, "WorkloadDeployment", ns, "twice").await;
    replace(&ours.data["spec"]).await;
}

fn forget_list_types(schema: &mut Value) {
    match schema {
        Value::Object(fields) => {
            fields.retain(|name, _| !name.starts_with("x-kubernetes-list-"));
            fields.values_mut().for_each(forget_list_types);
        }
        Value::Array(items) => items.iter_mut().for_each(forget_list_types),
        _ => {}
    }
}

/// HTTP 500 counted as a temporary error, so a lasting refusal was never reported.
#[test]
fn refused_write_on_any_plane_is_reported_to_the_user() {
    RUNTIME.block_on(async {
        let short = "timing:\n  errorGraceSeconds: 2\n  deliveryGraceSeconds: 1\n";
        let world = alone(Wish { management: short.into(), cell: short.into(), ..Wish::default() }).await;
        let world = &*world;
        let (ns, hub) = world.namespace("away").await;
        let secret = |value: &str| {
            json!({
                "apiVersion": "v1", "kind": "Secret", "metadata": { "name": "db", "namespace": ns },
                "stringData": { "key": value },
            })
        };
        apply(&world.project, secret("old")).await;
        let mut uses = workload(&ns, "uses", &["dfw"], 1);
        uses["spec"]["template"]["spec"]["runtime"]["sandbox"]["containers"][0]["envFrom"] =
            json!([{ "secretRef": { "name": "db" } }]);
        apply(&world.project, uses).await;
        ready(world, &ns, "uses", 1).await;
        for away in [
            Away {
                client: &world.project,
                kind: (GROUP, "workloaddeployments"),
                namespace: &ns,
                change: workload(&ns, "new", &["dfw"], 1),
                on: ["Workload", "new", "Available"],
                says: ["ProjectRefused", "HTTP 500: failed calling webhook"],
            },
            Away {
                client: &world.hub,
                kind: ("", "secrets"),
                namespace: &hub,
                change: secret("new"),
                on: ["WorkloadDeployment", "uses-p-dfw", "ReferencedDataReady"],
                says: ["Ready", "Secret/db is not copied to the hub"],
            },
            Away {
                client: &world.dfw,
                kind: (GROUP, "instances"),
                namespace: &hub,
                change: workload(&ns, "cell", &["dfw"], 1),
                on: ["Workload", "cell", "Available"],
                says: ["InstanceRefused", "HTTP 500"],
            },
            Away {
                client: &world.project,
                kind: (GROUP, "instances"),
                namespace: &ns,
                change: workload(&ns, "shown", &["dfw"], 1),
                on: ["WorkloadDeployment", "shown-p-dfw", "Federated"],
                says: ["InstancesNotShown", "HTTP 500: failed calling webhook"],
            },
        ] {
            reports_a_webhook_that_is_away(world, &ns, away).await;
        }
        ready(world, &ns, "shown", 1).await;
        eventually("the Instance is shown", || async {
            get(&world.project, "Instance", &ns, "shown-p-dfw-0").await.map(drop).ok_or("not yet".to_owned())
        })
        .await;
        reports_a_quota_of_the_project(world, &ns).await;
        reports_a_mark_that_the_project_refuses(world, &ns).await;
        reports_what_only_older_definitions_store(world, &ns).await;
    });
}
