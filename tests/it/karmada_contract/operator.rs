//! Reactions of the operator to Karmada's behaviour.

use std::time::Instant;

use testbed::{audit::Audit, operator::Operator, pki::User};

use super::*;
use crate::common::{World, binary, ready, workload};

#[test]
fn fact_43_defaults_of_a_live_policy_cause_no_write() {
    RUNTIME.block_on(async {
        let hub = hub().await;
        let project = testbed::control_plane::client(&hub.bed.project.kubeconfig(&User::Admin)).await.unwrap();
        let name = format!("fact-{:06x}", fastrand::u32(..0x0100_0000));
        let made =
            apply(&project, json!({ "apiVersion": "v1", "kind": "Namespace", "metadata": { "name": name } })).await;
        let ns = format!("ns-{}", made.uid().unwrap());
        apply(&project, workload(&name, "web", &["dfw"], 1)).await;
        let start = || async {
            let mut operator = Operator::management(&hub.bed, binary(), "operator-fact-43", &[]).unwrap();
            operator.wait_ready().await.unwrap();
            operator
        };
        let mut operator = start().await;
        there(&hub.dfw, "WorkloadDeployment", &ns, "web-p-dfw").await;
        // The guard names the cluster of the city as soon as the binding does. That is the last write of the policy.
        let settled = || async {
            let policy = get(&hub.hub, "PropagationPolicy", &ns, "city-dfw").await.ok_or("no policy")?;
            let spec = &policy.data["spec"];
            let defaulted = spec["conflictResolution"] == "Abort" && spec["schedulerName"] == "default-scheduler";
            let guarded = spec["placement"]["clusterAffinities"][1]["clusterNames"] == json!(["cell-dfw"]);
            if defaulted && guarded { Ok(policy) } else { Err(spec.to_string()) }
        };
        let before = eventually("the policy has its defaults and its guard", settled).await;
        operator.process.kill();
        let (audit, began) = (Audit::mark(&hub.bed.hub), Instant::now());
        // After a restart, the operator compares every object once. An unrelated change shows that it is done.
        let _operator = start().await;
        let scaled = json!({ "spec": { "placements": [{
            "name": "p", "cityCodes": ["dfw"], "scaleSettings": { "minReplicas": 2 },
        }] } });
        merge(&project, "Workload", &name, "web", scaled).await;
        eventually("the change is on the hub", || async {
            let deployment = get(&hub.hub, "WorkloadDeployment", &ns, "web-p-dfw").await.ok_or("gone")?;
            let scale = &deployment.data["spec"]["scaleSettings"]["minReplicas"];
            if scale == 2 { Ok(()) } else { Err(scale.to_string()) }
        })
        .await;
        never("the policy is written", || async {
            let now = get(&hub.hub, "PropagationPolicy", &ns, "city-dfw").await;
            // Karmada may add its finalizer and label later. Ineffective requests of the operator are counted below.
            let same = now.as_ref().is_some_and(|now| now.metadata.generation == before.metadata.generation);
            (!same).then(|| format!("{now:?}"))
        })
        .await;
        let asked = audit.requests().unwrap();
        assert!(!asked.is_empty(), "nothing was asked in {:?}", began.elapsed());
        let written: Vec<_> = asked
            .iter()
            .filter(|r| r.resource == "propagationpolicies" && !["get", "list"].contains(&r.verb.as_str()))
            .collect();
        assert!(written.is_empty(), "{written:?}");
        delete(&project, "Workload", &name, "web").await;
        gone(&hub.hub, "PropagationPolicy", &ns, "city-dfw").await;
    });
}

/// Karmada only evicts with `--enable-no-execute-taint-eviction` and its feature gate `Failover`.
#[test]
fn fact_81_tainted_cluster_evicts_untolerated_deployments_until_the_taint_is_removed() {
    RUNTIME.block_on(async {
        let management = "timing:\n  deliveryGraceSeconds: 1\n".into();
        let world = World::start_with(Options { evict_tainted: true, management, ..Options::default() }).await;
        let (ns, _) = world.namespace("evicted").await;
        let (tolerant, tolerant_on_hub) = world.namespace("tolerant").await;
        for ns in [&ns, &tolerant] {
            apply(&world.project, workload(ns, "web", &["dfw", "ord"], 1)).await;
            ready(&world, ns, "web", 2).await;
        }
        let instance = async |client: &Client, ns: &str, name: &str| {
            get(client, "Instance", ns, name).await.and_then(|instance| instance.uid())
        };
        let in_ord = instance(&world.project, &ns, "web-p-ord-0").await;
        let kept = instance(&world.dfw, &tolerant_on_hub, "web-p-dfw-0").await;
        assert!(in_ord.is_some() && kept.is_some());
        let tolerations = json!([{ "key": "maintenance", "operator": "Exists", "effect": "NoExecute" }]);
        let tolerates = json!({ "spec": { "placement": { "clusterTolerations": tolerations } } });
        merge(&world.hub, "PropagationPolicy", &tolerant_on_hub, "city-dfw", tolerates).await;
        eventually("Karmada has applied the toleration", || async {
            let binding = get(&world.hub, "ResourceBinding", &tolerant_on_hub, "web-p-dfw-workloaddeployment").await;
            let binding = binding.ok_or("none")?;
            let applied = binding.annotations().get("policy.karmada.io/applied-placement").cloned().unwrap_or_default();
            if applied.contains("maintenance") { Ok(()) } else { Err(applied) }
        })
        .await;
        let taint = json!([{ "key": "maintenance", "effect": "NoExecute" }]);
        merge(&world.hub, "Cluster", "", "cell-dfw", json!({ "spec": { "taints": taint } })).await;
        eventually("the deployment reports the taint", || async {
            let deployment = get(&world.project, "WorkloadDeployment", &ns, "web-p-dfw").await.ok_or("none")?;
            let said = condition(&deployment, "Federated");
            let names_it = said["message"].as_str().unwrap_or_default().contains("maintenance:NoExecute");
            if names_it && said["status"] == "False" { Ok(()) } else { Err(said.to_string()) }
        })
        .await;
        eventually("the Workload counts one Instance less", || async {
            let status = get(&world.project, "Workload", &ns, "web").await.ok_or("none")?.data["status"].clone();
            if status["readyReplicas"] == 1 { Ok(()) } else { Err(status.to_string()) }
        })
        .await;
        merge(&world.hub, "Cluster", "", "cell-dfw", json!({ "spec": { "taints": null } })).await;
        for ns in [&ns, &tolerant] {
            ready(&world, ns, "web", 2).await;
        }
        assert_eq!(instance(&world.project, &ns, "web-p-ord-0").await, in_ord, "the other city is left alone");
        assert_eq!(instance(&world.dfw, &tolerant_on_hub, "web-p-dfw-0").await, kept, "what tolerates the taint stays");
        let policy = get(&world.hub, "PropagationPolicy", &tolerant_on_hub, "city-dfw").await.unwrap();
        assert_eq!(policy.data["spec"]["placement"]["clusterTolerations"], tolerations);
    });
}

/// Starts a manager on this hub, and creates a namespace in its project. Returns also the name of the hub namespace.
async fn managed(hub: &Hub, log: &str) -> (Operator, Client, String, String) {
    let project = testbed::control_plane::client(&hub.bed.project.kubeconfig(&User::Admin)).await.unwrap();
    let name = format!("fact-{:06x}", fastrand::u32(..0x0100_0000));
    let made = apply(&project, json!({ "apiVersion": "v1", "kind": "Namespace", "metadata": { "name": name } })).await;
    let mut operator = Operator::management(&hub.bed, binary(), log, &[]).unwrap();
    operator.wait_ready().await.unwrap();
    (operator, project, name, format!("ns-{}", made.uid().unwrap()))
}

/// Waits until the member has these network policies.
async fn has_policies(hub: &Hub, ns: &str, policies: &Value) {
    eventually(&format!("the member has {policies}"), || async {
        let found = get(&hub.dfw, "WorkloadDeployment", ns, "web-p-dfw").await.ok_or("nothing")?;
        let interfaces = &found.data["spec"]["template"]["spec"]["networkInterfaces"];
        let found: Vec<Value> =
            interfaces.as_array().into_iter().flatten().map(|interface| interface["networkPolicy"].clone()).collect();
        if json!(found) == *policies { Ok(()) } else { Err(json!(found).to_string()) }
    })
    .await;
}

/// On real Karmada, a network that a tenant had closed stayed open on the cell.
#[test]
fn fact_74_network_closed_by_a_tenant_is_closed_on_the_member() {
    RUNTIME.block_on(async {
        let hub = hub().await;
        let (_operator, project, name, ns) = managed(&hub, "operator-fact-74").await;
        let send = |policies: &[&Value], image: &str| {
            let mut object = workload(&name, "web", &["dfw"], 1);
            object["spec"]["template"] = crate::common::template(image);
            let interface = |policy: &&Value| json!({ "network": { "name": "default" }, "networkPolicy": policy });
            object["spec"]["template"]["spec"]["networkInterfaces"] = policies.iter().map(interface).collect();
            apply(&project, object)
        };
        let (open, shut) = (json!({ "ingress": [{}] }), json!({ "ingress": [] }));
        send(&[&open], "nginx:1").await;
        has_policies(&hub, &ns, &json!([open])).await;
        send(&[&shut], "nginx:1").await;
        has_policies(&hub, &ns, &json!([{}])).await;
        send(&[&open, &shut], "nginx:1").await;
        has_policies(&hub, &ns, &json!([open, {}])).await;
        send(&[&shut, &open], "nginx:2").await;
        has_policies(&hub, &ns, &json!([{}, open])).await;
        delete(&project, "Workload", &name, "web").await;
        gone(&hub.dfw, "WorkloadDeployment", &ns, "web-p-dfw").await;
    });
}

/// On real Karmada, `preserveResourcesOnDeletion` in the operator's policy kept a deleted deployment on the cell permanently.
#[test]
fn fact_77_preserve_option_in_a_city_policy_is_removed() {
    RUNTIME.block_on(async {
        let hub = hub().await;
        let (_operator, project, name, ns) = managed(&hub, "operator-fact-77").await;
        apply(&project, workload(&name, "web", &["dfw"], 1)).await;
        there(&hub.dfw, "WorkloadDeployment", &ns, "web-p-dfw").await;
        let fields = json!({ "preserveResourcesOnDeletion": true, "activationPreference": "Lazy" });
        merge(&hub.hub, "PropagationPolicy", &ns, "city-dfw", json!({ "spec": fields })).await;
        eventually("both are removed, and that is reported", || async {
            let policy = get(&hub.hub, "PropagationPolicy", &ns, "city-dfw").await.ok_or("no policy")?;
            let spec = &policy.data["spec"];
            let events = list(&hub.hub, "Event", &ns).await;
            let told = events.iter().any(|event| event.data["reason"] == "PolicyFieldsRemoved");
            let removed = spec.get("preserveResourcesOnDeletion").is_none_or(|value| *value != true)
                && spec.get("activationPreference").is_none();
            if removed && told { Ok(()) } else { Err(format!("reported: {told}, {spec}")) }
        })
        .await;
        eventually("no Work preserves anything", || async {
            let works = list(&hub.hub, "Work", "karmada-es-cell-dfw").await;
            let preserves = |work: &&DynamicObject| work.data["spec"]["preserveResourcesOnDeletion"] == true;
            works.iter().find(preserves).map_or(Ok(()), |work| Err(work.name_any()))
        })
        .await;
        delete(&project, "Workload", &name, "web").await;
        gone(&hub.dfw, "WorkloadDeployment", &ns, "web-p-dfw").await;
    });
}

/// A deployment with a changed city stayed in the old city.
#[test]
fn fact_52_deployment_with_a_changed_city_moves_alone() {
    RUNTIME.block_on(async {
        let hub = hub().await;
        let (_operator, project, name, ns) = managed(&hub, "operator-fact-52").await;
        for wd in ["moves", "stays"] {
            apply(&project, deployment(&name, wd, "dfw")).await;
            there(&hub.dfw, "WorkloadDeployment", &ns, wd).await;
        }
        let stays = there(&hub.dfw, "WorkloadDeployment", &ns, "stays").await.uid();
        merge(&project, "WorkloadDeployment", &name, "moves", json!({ "spec": { "cityCode": "ord" } })).await;
        there(&hub.ord, "WorkloadDeployment", &ns, "moves").await;
        gone(&hub.dfw, "WorkloadDeployment", &ns, "moves").await;
        kept(&hub.dfw, "WorkloadDeployment", &ns, "stays", stays.as_deref()).await;
        for wd in ["moves", "stays"] {
            delete(&project, "WorkloadDeployment", &name, wd).await;
        }
        gone(&hub.ord, "WorkloadDeployment", &ns, "moves").await;
    });
}
