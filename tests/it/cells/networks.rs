//! The networks of Instances, and the location of a cell.

use super::*;

#[test]
fn workload_with_a_missing_network_waits_for_it() {
    RUNTIME.block_on(async {
        let visit = shared().await;
        let world = &*visit;
        let (ns, _) = world.namespace("absent").await;
        apply(&world.project, grant(&ns, 9)).await;
        let mut object = workload(&ns, "web", &["dfw"], 1);
        object["spec"]["template"]["spec"]["networkInterfaces"] = json!([{ "network": { "name": "later" } }]);
        apply(&world.project, object).await;
        let message = reason(&world.project, "Workload", &ns, "web", "Available", "NetworkNotFound").await;
        assert_eq!(message, "Unable to find networks: later");
        assert!(list(&world.project, "WorkloadDeployment", &ns).await.is_empty());
        apply(&world.project, network(&ns, "later")).await;
        ready(world, &ns, "web", 1).await;
        delete(&world.project, "Workload", &ns, "web").await;
    });
}

#[test]
fn network_steps_are_reported_on_deployment_and_instance() {
    RUNTIME.block_on(async {
        let visit = shared().await;
        let world = &*visit;
        let (ns, hub) = world.namespace("steps").await;
        apply(&world.project, grant(&ns, 9)).await;
        apply(&world.project, network(&ns, "by-hand")).await;
        let mut object = workload(&ns, "web", &["dfw"], 1);
        object["spec"]["template"]["spec"]["networkInterfaces"] = json!([{ "network": { "name": "by-hand" } }]);
        apply(&world.project, object).await;
        let reports = |expected: &'static str, message: &'static str| {
            let (ns, hub) = (ns.clone(), hub.clone());
            async move {
                for (client, kind, ns, name, type_) in [
                    (&world.dfw, "Instance", &hub, "web-p-dfw-0", "Ready"),
                    (&world.project, "WorkloadDeployment", &ns, "web-p-dfw", "Available"),
                    (&world.project, "Instance", &ns, "web-p-dfw-0", "Ready"),
                ] {
                    eventually(&format!("{kind} reports {expected} {message}"), || async {
                        let object = get(client, kind, ns, name).await.ok_or("it is not there")?;
                        let condition = condition(&object, type_);
                        let text = condition["message"].as_str().unwrap_or_default();
                        if condition["reason"] == expected && text.contains(message) { Ok(()) } else { Err(condition.to_string()) }
                    })
                    .await;
                }
                let instance = get(&world.dfw, "Instance", &hub, "web-p-dfw-0").await.unwrap();
                assert_eq!(gates(&instance), ["Network", "Quota"], "they open together");
                assert_eq!(condition(&instance, "QuotaGranted")["status"], "True", "though quota is granted");
            }
        };
        let binding = "web-p-dfw-net-0";
        reports("NetworkProvisioning", "NetworkBinding web-p-dfw-net-0 reports no status yet").await;
        for why in ["NetworkFailedToCreate", "NetworkNotFound", "ProjectUnresolved", "LocationNotAvailable"] {
            set_status(&world.dfw, "NetworkBinding", &hub, binding, says("Ready", "False", why)).await;
            reports(why, "by hand").await;
        }
        set_status(&world.dfw, "NetworkBinding", &hub, binding, says("Ready", "False", "NetworkContextNotReady")).await;
        reports("NetworkProvisioning", "NetworkBinding web-p-dfw-net-0 is not ready: NetworkContextNotReady").await;
        let mut status = says("Ready", "True", "NetworkContextReady");
        status["networkContextRef"] = json!({ "namespace": hub, "name": "by-hand-dfw" });
        set_status(&world.dfw, "NetworkBinding", &hub, binding, status).await;
        reports("NetworkProvisioning", "NetworkContext by-hand-dfw does not exist yet").await;
        let of = |kind: &str, name: &str, spec: Value| json!({
            "apiVersion": "networking.datumapis.com/v1alpha", "kind": kind,
            "metadata": { "name": name, "namespace": hub }, "spec": spec,
        });
        apply(&world.dfw, of("NetworkContext", "by-hand-dfw", json!({}))).await;
        set_status(&world.dfw, "NetworkContext", &hub, "by-hand-dfw", says("Ready", "False", "Allocating")).await;
        reports("NetworkProvisioning", "NetworkContext by-hand-dfw is not ready: Allocating").await;
        assert!(list(&world.dfw, "SubnetClaim", &hub).await.is_empty());
        set_status(&world.dfw, "NetworkContext", &hub, "by-hand-dfw", says("Ready", "True", "Ready")).await;
        reports("NetworkProvisioning", "SubnetClaim by-hand-dfw-0 reports no status yet").await;
        let claim = get(&world.dfw, "SubnetClaim", &hub, "by-hand-dfw-0").await.unwrap();
        assert_eq!(claim.data["spec"], json!({
            "subnetClass": "private", "ipFamily": "IPv4", "networkContext": { "name": "by-hand-dfw" }, "location": { "name": "dfw-1" },
        }));
        assert_eq!(claim.owner_references()[0].kind, "NetworkContext");
        let mut status = says("Ready", "True", "Ready");
        status["subnetRef"] = json!({ "name": "sub" });
        set_status(&world.dfw, "SubnetClaim", &hub, "by-hand-dfw-0", status).await;
        reports("NetworkProvisioning", "Subnet sub does not exist yet").await;
        apply(&world.dfw, of("Subnet", "sub", json!({ "networkContext": { "name": "by-hand-dfw" } }))).await;
        set_status(&world.dfw, "Subnet", &hub, "sub", says("Ready", "True", "Ready")).await;
        ready(world, &ns, "web", 1).await;
        delete(&world.project, "Workload", &ns, "web").await;
        eventually("nothing is left", || world.is_clean(&ns, &hub)).await;
    });
}

#[test]
fn city_with_several_locations_uses_and_reports_one() {
    RUNTIME.block_on(async {
        let visit = shared().await;
        let world = &*visit;
        let hub = on_cell(world, json!({}), "syd").await;
        let location = |name: &str| {
            json!({
                "apiVersion": "networking.datumapis.com/v1alpha", "kind": "Location",
                "metadata": { "name": name }, "spec": { "topology": { "topology.datum.net/city-code": "SYD" } },
            })
        };
        let reports = |expected: &'static str| {
            let hub = hub.clone();
            async move {
                reason(&world.dfw, "Instance", &hub, "wd-0", "Ready", expected).await;
                reason(&world.dfw, "WorkloadDeployment", &hub, "wd", "Available", expected).await
            }
        };
        // Quota that cannot be claimed ranks above networks in progress.
        reason(&world.dfw, "WorkloadDeployment", &hub, "wd", "Available", "QuotaProjectIDUnresolvable").await;
        apply(&world.dfw, location("syd-1")).await;
        eventually("the one location is used", || async {
            let wd = get(&world.dfw, "WorkloadDeployment", &hub, "wd").await.ok_or("gone")?;
            let used = &wd.data["status"]["location"]["name"];
            if used == "syd-1" { Ok(()) } else { Err(used.to_string()) }
        })
        .await;
        // Another location changes nothing, although its name sorts first.
        apply(&world.dfw, location("syd-0")).await;
        eventually("the choice is reported", || async {
            let message = reports("QuotaProjectIDUnresolvable").await;
            if message.contains("(syd-0, syd-1): syd-1 is used") { Ok(()) } else { Err(message) }
        })
        .await;
        delete(&world.dfw, "Location", "", "syd-0").await;
        let wd = get(&world.dfw, "WorkloadDeployment", &hub, "wd").await.unwrap();
        assert_eq!(wd.data["status"]["location"]["name"], "syd-1");
        // A LocationBinding to the same location does not count as a second location.
        let binding = json!({
            "apiVersion": "networking.datumapis.com/v1alpha", "kind": "LocationBinding", "metadata": { "name": "syd" },
            "spec": { "locationRef": { "name": "syd-1" }, "topology": { "topology.datum.net/city-code": "syd" } },
        });
        apply(&world.dfw, binding).await;
        delete(&world.dfw, "Location", "", "syd-1").await;
        eventually("the network is bound by way of the LocationBinding", || async {
            let binding = get(&world.dfw, "NetworkBinding", &hub, "wd-net-0").await.ok_or("no binding")?;
            if binding.data["spec"]["location"]["name"] == "syd-1" { Ok(()) } else { Err(binding.data.to_string()) }
        })
        .await;
        delete(&world.dfw, "LocationBinding", "", "syd").await;
        delete(&world.dfw, "Namespace", "", &hub).await;
    });
}
