//! Fields of newer versions of the definitions reach the cell and return. A suspended deployment does not change.

use crate::common::{
    RUNTIME, World, api, apply, beds::shared, condition, eventually, get, list, merge, never, ready, workload,
};
use kube::{
    ResourceExt,
    api::{Patch, PatchParams},
};
use serde_json::{Value, json};

const WD: &str = "web-p-ord";

/// Returns a Workload with every template field of the newer definitions.
fn with_later_fields(ns: &str) -> Value {
    let mut object = workload(ns, "web", &["ord"], 1);
    let spec = &mut object["spec"]["template"]["spec"];
    spec["runtime"]["class"] = json!("fast");
    spec["runtime"]["sandbox"]["containers"][0]["securityContext"] = json!({
        "allowPrivilegeEscalation": false, "seccompProfile": { "type": "RuntimeDefault" },
        "capabilities": { "add": ["SYS_TIME"], "drop": ["ALL"] },
    });
    spec["networkInterfaces"][0] = json!({
        "network": { "name": "default" }, "name": "eth0", "ipFamilies": ["IPv6", "IPv4"], "reclaimPolicy": "Retain",
        "addresses": [{ "class": "public-ipv4" }],
    });
    object
}

#[test]
fn newer_fields_arrive_in_the_cell_and_return() {
    RUNTIME.block_on(async {
        let world = shared().await;
        let (ns, hub) = world.namespace("later").await;
        let object = with_later_fields(&ns);
        apply(&world.project, object.clone()).await;
        ready(&world, &ns, "web", 1).await;
        let places = [("project", &world.project, &ns), ("hub", &world.hub, &hub), ("cell", &world.ord, &hub)];
        let wanted = &object["spec"]["template"]["spec"];
        let is_as_wanted = |spec: &Value| ["runtime", "networkInterfaces"].iter().all(|field| spec[*field] == wanted[*field]);
        for (place, client, namespace) in places {
            let deployment = get(client, "WorkloadDeployment", namespace, WD).await.unwrap();
            assert!(is_as_wanted(&deployment.data["spec"]["template"]["spec"]), "{place}: {}", deployment.data);
            let instance = get(client, "Instance", namespace, &format!("{WD}-0")).await.unwrap();
            assert!(is_as_wanted(&instance.data["spec"]), "{place}: {}", instance.data);
        }
        let status = json!({
            "networkInterfaces": [{
                "name": "eth0", "networkInterfaceRef": { "name": "nic-1" }, "assignments": { "networkIP": "10.0.0.9" },
                "addresses": [{ "family": "IPv6", "address": "2001:db8::9/128", "gateway": "2001:db8::1", "primary": true, "class": "private-ipv6" }],
                "externalAddresses": [{ "family": "IPv4", "address": "203.0.113.9", "class": "public-ipv4" }],
                "conditions": [{ "type": "Allocated", "status": "True", "reason": "Allocated", "message": "", "lastTransitionTime": "2026-01-01T00:00:00Z" }],
            }],
            "dns": [{ "name": "web", "anything": { "deep": [1, 2] } }],
        });
        let reported = json!({ "apiVersion": "compute.datumapis.com/v1alpha", "kind": "Instance", "status": status });
        let params = PatchParams::apply("later-provider").force();
        api(&world.ord, "Instance", &hub).patch_status(&format!("{WD}-0"), &params, &Patch::Apply(&reported)).await.unwrap();
        eventually("the tenant sees all of the status", || async {
            let shown = get(&world.project, "Instance", &ns, &format!("{WD}-0")).await.ok_or("gone")?;
            let right = ["networkInterfaces", "dns"].iter().all(|field| shown.data["status"][*field] == status[*field]);
            if right { Ok(()) } else { Err(shown.data["status"].to_string()) }
        })
        .await;

        let mut misspelt = object;
        misspelt["spec"]["template"]["spec"]["runtime"]["clas"] = json!("fast");
        let strict = PatchParams::apply("test").force().validation_strict();
        let refused = api(&world.project, "Workload", &ns).patch("web", &strict, &Patch::Apply(misspelt)).await.unwrap_err();
        assert!(refused.to_string().contains("clas"), "{refused}");
    });
}

/// Returns the Instances of the cell: name, uid, image, and the reasons of `Ready` and of the provider's own `Available`.
async fn instances(world: &World, hub: &str) -> Vec<(String, String, String, [String; 2])> {
    let all = list(&world.ord, "Instance", hub).await;
    let image = |spec: &Value| spec["runtime"]["sandbox"]["containers"][0]["image"].as_str().unwrap().to_owned();
    let reason = |instance, type_| condition(instance, type_)["reason"].as_str().unwrap_or_default().to_owned();
    let reasons = |instance| ["Ready", "Available"].map(|type_| reason(instance, type_));
    all.iter().map(|i| (i.name_any(), i.uid().unwrap(), image(&i.data["spec"]), reasons(i))).collect()
}

#[test]
fn suspended_deployment_does_not_change_and_resumes() {
    RUNTIME.block_on(async {
        let world = shared().await;
        let (ns, hub) = world.namespace("suspended").await;
        apply(&world.project, workload(&ns, "web", &["ord"], 1)).await;
        ready(&world, &ns, "web", 1).await;
        let before = instances(&world, &hub).await;
        let suspend =
            |value: Value| json!({ "metadata": { "annotations": { "compute.datumapis.com/suspended": value } } });
        merge(&world.project, "WorkloadDeployment", &ns, WD, suspend(json!("true"))).await;
        eventually("the suspension is reported everywhere", || async {
            let shown = get(&world.project, "Instance", &ns, &format!("{WD}-0")).await.ok_or("gone")?;
            let deployment = get(&world.project, "WorkloadDeployment", &ns, WD).await.ok_or("gone")?;
            let tenants = get(&world.project, "Workload", &ns, "web").await.ok_or("gone")?;
            let said =
                [condition(&shown, "Ready"), condition(&deployment, "Available"), condition(&tenants, "Available")];
            let all = said.iter().all(|c| c["reason"] == "Suspended" && c["status"] == "False");
            let flags = [&shown, &deployment].iter().all(|object| object.data["status"]["suspended"] == true);
            if all && flags { Ok(()) } else { Err(format!("{said:?}")) }
        })
        .await;
        eventually("the provider has stopped it", || async {
            let now = instances(&world, &hub).await;
            if now.iter().all(|(.., reasons)| reasons.iter().all(|r| r == "Suspended")) {
                Ok(())
            } else {
                Err(format!("{now:?}"))
            }
        })
        .await;
        let mut changed = workload(&ns, "web", &["ord"], 2);
        changed["spec"]["template"]["spec"]["runtime"]["sandbox"]["containers"][0]["image"] =
            json!("docker.io/library/nginx:2");
        apply(&world.project, changed).await;
        eventually("the cell knows of the change", || async {
            let deployment = get(&world.ord, "WorkloadDeployment", &hub, WD).await.ok_or("gone")?;
            let status = &deployment.data["status"];
            let right =
                status["desiredReplicas"] == 2 && status["observedGeneration"] == json!(deployment.metadata.generation);
            if right { Ok(()) } else { Err(status.to_string()) }
        })
        .await;
        never("something is started or replaced", || async {
            let now = instances(&world, &hub).await;
            (now.len() != 1 || now[0].1 != before[0].1 || now[0].3.iter().any(|reason| reason != "Suspended"))
                .then_some(now)
        })
        .await;
        merge(&world.project, "WorkloadDeployment", &ns, WD, suspend(Value::Null)).await;
        ready(&world, &ns, "web", 2).await;
        let after = instances(&world, &hub).await;
        let is_running = |reasons: &[String; 2]| reasons.iter().all(|reason| reason == "Available");
        assert!(after.iter().all(|(_, _, image, reasons)| image.ends_with(":2") && is_running(reasons)), "{after:?}");
        let gone = get(&world.hub, "WorkloadDeployment", &hub, WD).await.unwrap();
        assert!(!gone.annotations().contains_key("compute.datumapis.com/suspended"));
    });
}
