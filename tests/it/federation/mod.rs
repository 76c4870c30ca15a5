//! The whole path on real API servers: project, hub, cells, and back. All tests share one testbed, each in its own namespace.

mod costs;
mod edits;
mod shown;
mod waiting;

use std::{collections::BTreeSet, time::Duration};

use crate::common::{
    RUNTIME, api, apply, beds::shared, condition, delete, deployment, eventually, get, list, merge, network, ready,
    template, try_apply, workload,
};
use kube::{ResourceExt, api::DeleteParams};
use serde_json::json;
use testbed::audit::{Audit, Request};

#[test]
fn workload_reaches_both_cities_and_its_deletion_leaves_nothing() {
    RUNTIME.block_on(async {
        let visit = shared().await;
        let world = &*visit;
        let (ns, hub) = world.namespace("whole").await;
        apply(&world.project, workload(&ns, "web", &["dfw", "ord"], 2)).await;
        let object = ready(world, &ns, "web", 4).await;
        assert_eq!(condition(&object, "Available")["reason"], "AvailablePlacementFound");
        assert_eq!(object.data["status"]["deployments"], 2);
        for (city, cell) in [("dfw", &world.dfw), ("ord", &world.ord)] {
            let name = format!("web-p-{city}");
            let wd = get(&world.project, "WorkloadDeployment", &ns, &name).await.unwrap();
            assert_eq!(wd.annotations()["compute.datumapis.com/federation-namespace"], hub);
            assert!(wd.finalizers().contains(&"compute.datumapis.com/federator".to_owned()));
            assert_eq!(wd.data["status"]["observedGeneration"], json!(wd.metadata.generation));
            let copy = get(&world.hub, "WorkloadDeployment", &hub, &name).await.unwrap();
            assert_eq!(copy.labels()["topology.datum.net/city-code"], city);
            assert_eq!(copy.labels()["meta.datumapis.com/upstream-namespace"], ns);
            let policy = get(&world.hub, "PropagationPolicy", &hub, &format!("city-{city}")).await.unwrap();
            assert_eq!(policy.data["spec"]["propagateDeps"], true);
            assert_eq!(policy.data["spec"]["resourceSelectors"].as_array().unwrap().len(), 1);
            let instances = list(cell, "Instance", &hub).await;
            let names: BTreeSet<_> = instances.iter().map(|i| i.name_any()).collect();
            assert_eq!(names, BTreeSet::from([format!("{name}-0"), format!("{name}-1")]));
            for instance in &instances {
                let granted = if city == "dfw" { "QuotaAvailable" } else { "QuotaDisabled" };
                assert_eq!(condition(instance, "QuotaGranted")["reason"], granted);
                assert!(instance.data["spec"]["controller"].get("schedulingGates").is_none_or(|g| g == &json!([])));
                for key in [
                    "workload-uid",
                    "workload-deployment-uid",
                    "instance-index",
                    "workload-deployment-name",
                    "city-code",
                    "workload-name",
                    "placement-name",
                ] {
                    assert!(instance.labels().contains_key(&format!("compute.datumapis.com/{key}")), "{key}");
                }
                assert_eq!(instance.labels()["app"], "test", "the template's own labels");
            }
        }
        let namespace = get(&world.hub, "Namespace", "", &hub).await.unwrap();
        assert_eq!(namespace.labels()["meta.datumapis.com/upstream-cluster-name"], "cluster-single");
        shown::shown_as_it_is(world, &ns, &hub, "dfw", "web-p-dfw-0").await;
        shown::shown_as_it_is(world, &ns, &hub, "ord", "web-p-ord-1").await;

        delete(&world.project, "Workload", &ns, "web").await;
        eventually("nothing is left", || world.is_clean(&ns, &hub)).await;
        assert!(get(&world.hub, "Namespace", "", &hub).await.is_some(), "hub namespaces stay");
    });
}

#[test]
fn unbound_city_gets_no_deployment_and_is_reported() {
    RUNTIME.block_on(async {
        let visit = shared().await;
        let world = &*visit;
        let (ns, _) = world.namespace("unbound").await;
        apply(&world.project, workload(&ns, "web", &["dfw", "lhr"], 1)).await;
        let object = eventually("the placement reports it", || async {
            let object = get(&world.project, "Workload", &ns, "web").await.ok_or("gone")?;
            let condition = object.data["status"]["placements"][0]["conditions"][0].clone();
            let message = condition["message"].as_str().unwrap_or_default();
            if condition["status"] == "True" && message.contains("lhr") {
                Ok(object)
            } else {
                Err(condition.to_string())
            }
        })
        .await;
        let condition = &object.data["status"]["placements"][0]["conditions"][0];
        assert!(condition["message"].as_str().unwrap().contains("no LocationBinding"), "{condition}");
        assert!(get(&world.project, "WorkloadDeployment", &ns, "web-p-lhr").await.is_none());
        // When the city is bound, it is served. When it is unbound, the running deployment stays.
        testbed::bed::bind_location(&world.project, "lhr").await.unwrap();
        eventually("the city is served", || async {
            get(&world.project, "WorkloadDeployment", &ns, "web-p-lhr").await.ok_or("no deployment".into())
        })
        .await;
        delete(&world.project, "LocationBinding", "", "lhr").await;
        eventually("the lost binding is reported", || async {
            let object = get(&world.project, "Workload", &ns, "web").await.ok_or("gone")?;
            let message = object.data["status"]["placements"][0]["conditions"][0]["message"].to_string();
            if message.contains("no longer") { Ok(()) } else { Err(message) }
        })
        .await;
        assert!(
            get(&world.project, "WorkloadDeployment", &ns, "web-p-lhr")
                .await
                .unwrap()
                .metadata
                .deletion_timestamp
                .is_none()
        );
    });
}

#[test]
fn scaling_adds_instances_in_order_and_removes_the_highest() {
    RUNTIME.block_on(async {
        let visit = shared().await;
        let world = &*visit;
        let (ns, hub) = world.namespace("scale").await;
        apply(&world.project, workload(&ns, "web", &["dfw"], 1)).await;
        ready(world, &ns, "web", 1).await;
        let first = get(&world.dfw, "Instance", &hub, "web-p-dfw-0").await.unwrap();
        let audit = Audit::mark(world.bed.cell("dfw").unwrap());
        apply(&world.project, workload(&ns, "web", &["dfw"], 3)).await;
        ready(world, &ns, "web", 3).await;
        let asked = audit.requests().unwrap().into_iter();
        let mut made: Vec<Request> = asked
            .filter(|r| (r.verb.as_str(), r.resource.as_str(), r.code) == ("create", "instances", 201))
            .filter(|r| r.namespace == hub)
            .collect();
        made.sort_by_key(|r| r.at);
        let names: Vec<&str> = made.iter().map(|r| r.name.as_str()).collect();
        assert_eq!(names, ["web-p-dfw-1", "web-p-dfw-2"], "in order");
        apply(&world.project, workload(&ns, "web", &["dfw"], 1)).await;
        ready(world, &ns, "web", 1).await;
        let left = list(&world.dfw, "Instance", &hub).await;
        assert_eq!(left.iter().map(|i| i.uid()).collect::<Vec<_>>(), [first.uid()], "the first one stays, untouched");
    });
}

#[test]
fn template_change_replaces_every_instance_and_recovers_from_a_broken_image() {
    RUNTIME.block_on(async {
        let visit = shared().await;
        let world = &*visit;
        let (ns, hub) = world.namespace("template").await;
        let with = |image: &str| {
            let mut object = workload(&ns, "web", &["dfw"], 2);
            object["spec"]["template"] = template(image);
            object
        };
        apply(&world.project, with("docker.io/library/nginx:1")).await;
        ready(world, &ns, "web", 2).await;
        let before: BTreeSet<_> = list(&world.dfw, "Instance", &hub).await.iter().map(|i| i.uid()).collect();
        apply(&world.project, with("docker.io/library/broken:2")).await;
        eventually("the failure reaches the tenant", || async {
            let wd = get(&world.project, "WorkloadDeployment", &ns, "web-p-dfw").await.ok_or("gone")?;
            let condition = condition(&wd, "ReplicasReady");
            if condition["reason"] == "ImageUnavailable" { Ok(()) } else { Err(condition.to_string()) }
        })
        .await;
        let still: BTreeSet<_> = list(&world.dfw, "Instance", &hub).await.iter().map(|i| i.uid()).collect();
        assert_eq!(before.intersection(&still).count(), 1, "one at a time: the other one still serves");
        apply(&world.project, with("docker.io/library/nginx:3")).await;
        ready(world, &ns, "web", 2).await;
        let instances = list(&world.dfw, "Instance", &hub).await;
        assert!(instances.iter().all(|i| !before.contains(&i.uid())));
        assert!(
            instances
                .iter()
                .all(|i| i.data["spec"]["runtime"]["sandbox"]["containers"][0]["image"] == "docker.io/library/nginx:3")
        );
    });
}

#[test]
fn removed_city_is_cleaned_up_and_the_other_is_untouched() {
    RUNTIME.block_on(async {
        let visit = shared().await;
        let world = &*visit;
        let (ns, hub) = world.namespace("city").await;
        apply(&world.project, workload(&ns, "web", &["dfw", "ord"], 1)).await;
        ready(world, &ns, "web", 2).await;
        let kept = get(&world.dfw, "Instance", &hub, "web-p-dfw-0").await.unwrap().uid();
        apply(&world.project, workload(&ns, "web", &["dfw"], 1)).await;
        eventually("ord is empty", || async {
            let left = list(&world.ord, "Instance", &hub).await.len()
                + list(&world.ord, "WorkloadDeployment", &hub).await.len()
                + usize::from(get(&world.hub, "PropagationPolicy", &hub, "city-ord").await.is_some());
            if left == 0 { Ok(()) } else { Err(format!("{left} objects are left")) }
        })
        .await;
        ready(world, &ns, "web", 1).await;
        assert_eq!(get(&world.dfw, "Instance", &hub, "web-p-dfw-0").await.unwrap().uid(), kept);
        assert!(get(&world.hub, "PropagationPolicy", &hub, "city-dfw").await.is_some());
    });
}

#[test]
fn city_policy_lives_from_the_first_deployment_to_the_last() {
    RUNTIME.block_on(async {
        let visit = shared().await;
        let world = &*visit;
        let (ns, hub) = world.namespace("policy").await;
        let policy = || get(&world.hub, "PropagationPolicy", &hub, "city-dfw");
        apply(&world.project, deployment(&ns, "alpha", "DFW")).await;
        let first = eventually("the policy is there", || async { policy().await.ok_or("no policy".into()) }).await;
        apply(&world.project, deployment(&ns, "beta", "dfw")).await;
        eventually("the second is on the cell", || async {
            get(&world.dfw, "WorkloadDeployment", &hub, "beta").await.map(|_| ()).ok_or("not yet".into())
        })
        .await;
        delete(&world.project, "WorkloadDeployment", &ns, "alpha").await;
        eventually("the first deployment is deleted", || async {
            match get(&world.project, "WorkloadDeployment", &ns, "alpha").await {
                None => Ok(()),
                Some(_) => Err("still there".into()),
            }
        })
        .await;
        assert_eq!(policy().await.unwrap().uid(), first.uid(), "the second still needs it");
        // A deleted policy is recreated. A foreign policy of the same name is not deleted.
        delete(&world.hub, "PropagationPolicy", &hub, "city-dfw").await;
        eventually("it is back", || async {
            policy().await.filter(|p| p.uid() != first.uid()).map(|_| ()).ok_or("not yet".into())
        })
        .await;
        delete(&world.project, "WorkloadDeployment", &ns, "beta").await;
        eventually("nothing is left", || world.is_clean(&ns, &hub)).await;
    });
}

#[test]
fn invalid_workload_is_reported_and_running_instances_stay() {
    RUNTIME.block_on(async {
        let visit = shared().await;
        let world = &*visit;
        let (ns, hub) = world.namespace("bad").await;
        let mut none = workload(&ns, "none", &["dfw"], 1);
        none["spec"]["placements"] = json!([]);
        assert!(try_apply(&world.project, none).await.unwrap_err().to_string().contains("spec.placements"));

        apply(&world.project, workload(&ns, "web", &["dfw"], 1)).await;
        ready(world, &ns, "web", 1).await;
        let kept = get(&world.dfw, "Instance", &hub, "web-p-dfw-0").await.unwrap().uid();
        let long = "w".repeat(61);
        for (object, word) in [
            (workload(&ns, "web", &["dfw", "DFW", "ord"], 1), "listed twice"),
            (workload(&ns, &long, &["dfw"], 1), "67 characters, 63 is the limit"),
            (workload(&ns, "odd", &["d/f/w"], 1), "lower case letters"),
        ] {
            let name = object["metadata"]["name"].as_str().unwrap().to_owned();
            apply(&world.project, object).await;
            eventually(word, || async {
                let object = get(&world.project, "Workload", &ns, &name).await.ok_or("gone")?;
                let condition = condition(&object, "Available");
                let right = condition["reason"] == "InvalidPlacement"
                    && condition["message"].as_str().unwrap_or_default().contains(word);
                if right { Ok(()) } else { Err(condition.to_string()) }
            })
            .await;
        }
        assert_eq!(get(&world.dfw, "Instance", &hub, "web-p-dfw-0").await.unwrap().uid(), kept, "what ran, runs");
        assert!(get(&world.project, "WorkloadDeployment", &ns, "web-p-ord").await.is_none());

        // A foreign deployment with the wanted name is left alone, and the conflict is reported.
        apply(&world.project, deployment(&ns, "taken-p-dfw", "dfw")).await;
        // The Workload follows at once. Even if the manager has not seen the deployment, it must not take it over.
        apply(&world.project, workload(&ns, "taken", &["dfw"], 1)).await;
        eventually("the name conflict is reported", || async {
            let object = get(&world.project, "Workload", &ns, "taken").await.ok_or("gone")?;
            let condition = condition(&object, "Available");
            if condition["reason"] == "DeploymentNameTaken" { Ok(()) } else { Err(condition.to_string()) }
        })
        .await;
        let theirs = get(&world.project, "WorkloadDeployment", &ns, "taken-p-dfw").await.unwrap();
        assert!(theirs.owner_references().is_empty());
        // The condition stayed until the Workload was edited, because a deployment only triggered its own Workload.
        delete(&world.project, "WorkloadDeployment", &ns, "taken-p-dfw").await;
        ready(world, &ns, "taken", 1).await;
    });
}

#[test]
fn deployment_in_a_terminating_project_namespace_is_deleted_with_its_copy() {
    RUNTIME.block_on(async {
        let visit = shared().await;
        let world = &*visit;
        let (ns, hub) = world.namespace("vanish").await;
        apply(&world.project, workload(&ns, "web", &["dfw"], 1)).await;
        ready(world, &ns, "web", 1).await;
        let _ = api(&world.project, "Namespace", "").delete(&ns, &DeleteParams::background()).await.unwrap();
        eventually("nothing is left", || world.is_clean(&ns, &hub)).await;
        eventually("the namespace is deleted", || async {
            match get(&world.project, "Namespace", "", &ns).await {
                None => Ok(()),
                Some(_) => Err("still there".into()),
            }
        })
        .await;
    });
}

#[test]
fn api_server_keeps_every_field_of_a_workload() {
    RUNTIME.block_on(async {
        let visit = shared().await;
        let world = &*visit;
        let (ns, _) = world.namespace("schema").await;
        apply(&world.project, network(&ns, "n")).await;
        let mut object = workload(&ns, "full", &["dfw"], 1);
        object["spec"]["template"] = json!({
            "metadata": { "labels": { "a": "b" }, "annotations": { "compute.datumapis.com/restartedAt": "2026-01-01T00:00:00Z" } },
            "spec": {
                "runtime": {
                    "resources": { "instanceType": "datumcloud/d1-standard-2", "requests": { "cpu": "2" } },
                    "sandbox": {
                        "imagePullSecrets": [{ "name": "pull" }],
                        "containers": [{
                            "name": "c", "image": "i", "command": ["sh"], "args": ["-c", "true"],
                            "env": [{ "name": "A", "value": "1" }, { "name": "B", "valueFrom": { "secretKeyRef": { "name": "s", "key": "k", "optional": true } } }],
                            "envFrom": [{ "prefix": "P_", "configMapRef": { "name": "cm", "optional": true } }],
                            "resources": { "limits": { "memory": "64Mi" } },
                            "volumeAttachments": [{ "name": "v", "mountPath": "/v" }],
                            "ports": [{ "name": "http", "port": 80, "protocol": "TCP" }],
                        }],
                    },
                },
                "networkInterfaces": [{ "network": { "name": "n", "namespace": ns }, "networkPolicy": { "ingress": [{
                    "ports": [{ "protocol": "TCP", "port": 80, "endPort": 90 }, { "port": "http" }],
                    "from": [{ "ipBlock": { "cidr": "10.0.0.0/8", "except": ["10.1.0.0/16"] } }],
                }] } }],
                "volumes": [
                    { "name": "v", "configMap": { "name": "cm", "items": [{ "key": "k", "path": "p", "mode": 420 }], "defaultMode": 420 } },
                    { "name": "s", "secret": { "secretName": "s", "optional": true } },
                    { "name": "d", "disk": { "deviceName": "d", "template": { "spec": { "type": "pd-standard", "resources": { "requests": { "storage": "10Gi" } }, "populator": { "filesystem": { "type": "ext4" } } } } } },
                ],
            },
        });
        object["spec"]["placements"][0]["scaleSettings"] = json!({
            "minReplicas": 1, "maxReplicas": 3, "instanceManagementPolicy": "OrderedReady",
            "metrics": [{ "resource": { "name": "cpu", "target": { "averageUtilization": 50 } } }],
        });
        let kept = apply(&world.project, object.clone()).await;
        assert_eq!(kept.data["spec"], object["spec"], "nothing is pruned, nothing else is added");
        let wd = eventually("the deployment is created", || async {
            get(&world.project, "WorkloadDeployment", &ns, "full-p-dfw").await.ok_or("not yet".into())
        })
        .await;
        assert_eq!(wd.data["spec"]["template"], object["spec"]["template"]);
        // Every condition of an Instance starts as Unknown. A number out of range is refused with the name of its field.
        let refused = try_apply(&world.project, workload(&ns, "many", &["dfw"], 100_000)).await.unwrap_err().to_string();
        assert!(refused.contains("minReplicas"), "{refused}");
        delete(&world.project, "Workload", &ns, "full").await;
    });
}
