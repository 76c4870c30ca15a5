//! One write that is refused keeps nothing else back, and ends when its cause does.

use kube::ResourceExt;
use serde_json::{Value, json};

use crate::common::{
    RUNTIME, World, apply,
    beds::{Wish, alone, shared},
    condition, delete, deployment, eventually,
    example_app::SWEEPS,
    get, merge, ready,
    refusal::{Refusal, WebhookAway},
    template, workload,
};

const GROUP: &str = "compute.datumapis.com";

#[test]
fn a_city_that_is_refused_keeps_no_other_back() {
    RUNTIME.block_on(async {
        let visit = shared().await;
        let world = &*visit;
        let (ns, _) = world.namespace("refused").await;
        let unless = format!("object.metadata.namespace != '{ns}' || object.spec.cityCode != 'dfw'");
        let rule = Refusal { name: &ns, kind: (GROUP, "workloaddeployments"), operation: "CREATE", unless: &unless };
        rule.begin(&world.project, &deployment(&ns, "probe", "dfw")).await;
        // In the order of names the refused one comes first.
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
fn an_instance_that_a_cell_refuses_is_told_to_the_tenant() {
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
fn a_name_that_an_old_instance_holds_is_waited_for_and_keeps_nothing_else_back() {
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
        eventually("the status says who is waited for", || async {
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
        eventually("the new one is made", || async {
            let new = get(&world.dfw, "Instance", &hub, "wd-0").await.ok_or("none")?.uid();
            if new == old { Err("the old one".to_owned()) } else { Ok(()) }
        })
        .await;
        delete(&world.dfw, "Namespace", "", &hub).await;
    });
}

#[test]
fn an_instance_that_a_project_refused_is_shown_once_the_cause_has_ended() {
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

/// A webhook that is away on one plane, what is written meanwhile, and where the error is reported.
struct Away<'a> {
    client: &'a kube::Client,
    kind: (&'a str, &'a str),
    namespace: &'a str,
    /// Applied in the project while the webhook is away.
    change: Value,
    /// The object in the project that reports the error, by kind and name; the type of the condition.
    on: [&'a str; 3],
    /// The reason of the condition, and words of its message.
    says: [&'a str; 2],
}

/// The error is reported within the grace, and everything goes on once the webhook is removed.
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
    eventually(&format!("{of} {name} goes on"), || async {
        let said = said().await?;
        let left = said["message"].as_str().unwrap_or_default().contains(words);
        if said["status"] == "True" && !left { Ok(()) } else { Err(said.to_string()) }
    })
    .await;
}

/// Nothing was reported, however long it lasted: an HTTP 500 counted as an error that passes.
#[test]
fn webhook_away_on_any_plane_is_reported_where_the_user_looks() {
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
    });
}
