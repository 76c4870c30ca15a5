//! Deployments: claimed, bound, scheduled, brought to the member, and taken back.

use super::*;

#[test]
fn facts_1_to_5_claim_binding_work_and_marks() {
    RUNTIME.block_on(async {
        let hub = hub().await;
        let ns = hub.deployed().await;
        let copy = there(&hub.dfw, "WorkloadDeployment", &ns, "wd").await;
        let template = get(&hub.hub, "WorkloadDeployment", &ns, "wd").await.unwrap();
        // 1: an id as label, names as annotations.
        assert!(template.labels().contains_key("propagationpolicy.karmada.io/permanent-id"));
        assert_eq!(template.annotations()["propagationpolicy.karmada.io/name"], "city-dfw");
        assert_eq!(template.annotations()["propagationpolicy.karmada.io/namespace"], ns);
        // 2 and 3.
        let applied = |b: &DynamicObject| {
            condition(b, "FullyApplied")["status"] == "True" && condition(b, "Scheduled")["status"] == "True"
        };
        let binding = hub.binding(&ns, "wd-workloaddeployment", "it is applied", applied).await;
        let owner = &binding.owner_references()[0];
        assert_eq!((owner.uid.as_str(), owner.controller), (template.uid().unwrap().as_str(), Some(true)));
        for finalizer in ["karmada.io/binding-controller", "karmada.io/binding-dependencies-distributor"] {
            assert!(binding.finalizers().iter().any(|f| f == finalizer), "{finalizer}");
        }
        assert_eq!(binding.annotations()["propagationpolicy.karmada.io/name"], "city-dfw");
        assert!(binding.labels().contains_key("resourcebinding.karmada.io/permanent-id"));
        assert_eq!(binding.data["spec"]["clusters"][0]["name"], "cell-dfw");
        assert_eq!(binding.data["status"]["aggregatedStatus"][0]["clusterName"], "cell-dfw");
        let works = list(&hub.hub, "Work", "karmada-es-cell-dfw").await;
        let work = works.iter().find(|w| {
            w.name_any().starts_with("wd-")
                && w.data["spec"]["workload"]["manifests"][0]["metadata"]["namespace"] == json!(ns)
        });
        assert!(work.unwrap().finalizers().contains(&"karmada.io/execution-controller".to_owned()));
        // 4: the namespace went to every member.
        there(&hub.ord, "Namespace", "", &ns).await;
        // 5
        assert_eq!(copy.labels()["karmada.io/managed"], "true");
        assert_eq!(copy.labels()[CITY], "dfw");
        assert!(copy.annotations().contains_key("resourcetemplate.karmada.io/managed-labels"));
        assert!(get(&hub.ord, "WorkloadDeployment", &ns, "wd").await.is_none());
    });
}

#[test]
fn facts_7_and_8_changes_travel_and_the_member_keeps_what_others_added() {
    RUNTIME.block_on(async {
        let hub = hub().await;
        let ns = hub.deployed().await;
        let theirs = json!({ "metadata": { "labels": { "local": "1" }, "annotations": { "local": "2" }, "finalizers": ["example.com/local"] } });
        merge(&hub.dfw, "WorkloadDeployment", &ns, "wd", theirs).await;
        merge(&hub.dfw, "WorkloadDeployment", &ns, "wd", json!({ "spec": { "placementName": "edited" } })).await;
        merge(&hub.hub, "WorkloadDeployment", &ns, "wd", json!({ "metadata": { "annotations": { "new": "1" } } })).await;
        eventually("the edit is undone, the annotation there", || async {
            let copy = get(&hub.dfw, "WorkloadDeployment", &ns, "wd").await.ok_or("gone")?;
            let right = copy.annotations().contains_key("new") && copy.data["spec"]["placementName"] == "default";
            if right { Ok(()) } else { Err(format!("{copy:?}")) }
        })
        .await;
        let copy = get(&hub.dfw, "WorkloadDeployment", &ns, "wd").await.unwrap();
        assert_eq!((copy.labels()["local"].as_str(), copy.annotations()["local"].as_str()), ("1", "2"));
        // 12: the hub does not wait for the member, whose copy this finalizer holds.
        delete(&hub.hub, "WorkloadDeployment", &ns, "wd").await;
        gone(&hub.hub, "WorkloadDeployment", &ns, "wd").await;
        gone(&hub.hub, "ResourceBinding", &ns, "wd-workloaddeployment").await;
        let held = there(&hub.dfw, "WorkloadDeployment", &ns, "wd").await;
        assert!(held.finalizers().contains(&"example.com/local".to_owned()));
        eventually("the deletion has reached the member", || async {
            let copy = get(&hub.dfw, "WorkloadDeployment", &ns, "wd").await.ok_or("gone")?;
            copy.metadata.deletion_timestamp.map(|_| ()).ok_or("not yet".into())
        })
        .await;
        merge(&hub.dfw, "WorkloadDeployment", &ns, "wd", json!({ "metadata": { "finalizers": null } })).await;
        gone(&hub.dfw, "WorkloadDeployment", &ns, "wd").await;
    });
}

#[test]
fn fact_10_a_status_comes_back_and_a_fresh_object_has_none() {
    RUNTIME.block_on(async {
        let hub = hub().await;
        let ns = hub.deployed().await;
        let status = json!({ "status": { "replicas": 3, "currentReplicas": 0, "desiredReplicas": 3, "readyReplicas": 1, "conditions": [
            { "type": "Available", "status": "True", "reason": "R", "message": "m", "lastTransitionTime": "2026-01-01T00:00:00Z" },
        ]}});
        let api = common::api(&hub.dfw, "WorkloadDeployment", &ns);
        api.patch_status("wd", &kube::api::PatchParams::default(), &kube::api::Patch::Merge(&status)).await.unwrap();
        eventually("it is on the template", || async {
            let template = get(&hub.hub, "WorkloadDeployment", &ns, "wd").await.ok_or("gone")?;
            let right = template.data["status"]["readyReplicas"] == 1 && condition(&template, "Available")["status"] == "True";
            if right { Ok(()) } else { Err(template.data["status"].to_string()) }
        })
        .await;
    });
}

#[test]
fn fact_13_a_policy_that_goes_leaves_the_object_on_the_member() {
    RUNTIME.block_on(async {
        let hub = hub().await;
        let ns = hub.deployed().await;
        let uid = there(&hub.dfw, "WorkloadDeployment", &ns, "wd").await.uid();
        delete(&hub.hub, "PropagationPolicy", &ns, "city-dfw").await;
        eventually("the claim is given back", || async {
            let template = get(&hub.hub, "WorkloadDeployment", &ns, "wd").await.ok_or("gone")?;
            if template.annotations().contains_key("propagationpolicy.karmada.io/name") {
                Err("claimed".into())
            } else {
                Ok(())
            }
        })
        .await;
        gone(&hub.hub, "PropagationPolicy", &ns, "city-dfw").await;
        let binding = get(&hub.hub, "ResourceBinding", &ns, "wd-workloaddeployment").await.unwrap();
        assert_eq!(binding.data["spec"]["clusters"][0]["name"], "cell-dfw");
        assert_eq!(there(&hub.dfw, "WorkloadDeployment", &ns, "wd").await.uid(), uid);
        // 51: made again, nothing moves.
        hub.policy(&ns, "dfw").await;
        eventually("the claim is renewed", || async {
            let template = get(&hub.hub, "WorkloadDeployment", &ns, "wd").await.ok_or("gone")?;
            if template.annotations().contains_key("propagationpolicy.karmada.io/name") {
                Ok(())
            } else {
                Err("not yet".into())
            }
        })
        .await;
        assert_eq!(there(&hub.dfw, "WorkloadDeployment", &ns, "wd").await.uid(), uid);
    });
}

#[test]
fn facts_29_42_46_and_48_the_citys_label_decides_unless_a_second_group_guards() {
    RUNTIME.block_on(async {
        let hub = hub().await;
        let ns = hub.namespace().await;
        // 29
        hub.policy(&ns, "nowhere").await;
        hub.template(&ns, "lost", "nowhere", "").await;
        let unfit = |b: &DynamicObject| condition(b, "Scheduled")["reason"] == "NoClusterFit";
        let binding = hub.binding(&ns, "lost-workloaddeployment", "no cluster fits", unfit).await;
        assert!(binding.data["spec"]["clusters"].as_array().is_none_or(Vec::is_empty));
        // 46: guarded by name.
        let guarded = hub.namespace().await;
        let groups = json!({ "clusterAffinities": [
            { "affinityName": "city", "labelSelector": { "matchLabels": { CITY: "ord" } } },
            { "affinityName": "holding", "clusterNames": ["cell-ord"] },
        ]});
        apply(&hub.hub, policy(&guarded, "ord", &groups)).await;
        hub.template(&guarded, "wd", "ord", "").await;
        let safe = there(&hub.ord, "WorkloadDeployment", &guarded, "wd").await.uid();
        hub.policy(&ns, "ord").await;
        hub.template(&ns, "wd", "ord", "").await;
        let before = there(&hub.ord, "WorkloadDeployment", &ns, "wd").await.uid();
        // 42: without a guard, a lost label takes everything away.
        merge(&hub.hub, "Cluster", "", "cell-ord", json!({ "metadata": { "labels": { CITY: null } } })).await;
        gone(&hub.ord, "WorkloadDeployment", &ns, "wd").await;
        assert_eq!(there(&hub.ord, "WorkloadDeployment", &guarded, "wd").await.uid(), safe, "46");
        merge(&hub.hub, "Cluster", "", "cell-ord", json!({ "metadata": { "labels": { CITY: "ord" } } })).await;
        assert_ne!(there(&hub.ord, "WorkloadDeployment", &ns, "wd").await.uid(), before);
        assert_eq!(there(&hub.ord, "WorkloadDeployment", &guarded, "wd").await.uid(), safe);
    });
}

#[test]
fn fact_32_the_work_of_a_deleted_template_waits_for_its_cluster() {
    RUNTIME.block_on(async {
        let mut hub = hub().await;
        let ns = hub.deployed().await;
        hub.bed.cells.get_mut("dfw").unwrap().stop_api_server();
        delete(&hub.hub, "WorkloadDeployment", &ns, "wd").await;
        gone(&hub.hub, "WorkloadDeployment", &ns, "wd").await;
        gone(&hub.hub, "ResourceBinding", &ns, "wd-workloaddeployment").await;
        let waiting = || async {
            let works = list(&hub.hub, "Work", "karmada-es-cell-dfw").await;
            let ours = works.into_iter().find(|w| {
                w.name_any().starts_with("wd-")
                    && w.data["spec"]["workload"]["manifests"][0]["metadata"]["namespace"] == json!(ns)
            });
            ours.filter(|w| w.metadata.deletion_timestamp.is_some()).map(|_| ()).ok_or("no such Work".to_owned())
        };
        eventually("its Work waits", waiting).await;
        let cell = hub.bed.cells.get_mut("dfw").unwrap();
        cell.start_api_server().unwrap();
        cell.wait_ready().await.unwrap();
        gone(&hub.dfw, "WorkloadDeployment", &ns, "wd").await;
    });
}

#[test]
fn fact_33_what_is_on_the_member_already_is_not_taken_over() {
    RUNTIME.block_on(async {
        let hub = hub().await;
        let ns = hub.deployed().await;
        let theirs = json!({ "apiVersion": "v1", "kind": "ConfigMap", "metadata": { "name": "data", "namespace": ns }, "data": { "k": "theirs" } });
        apply(&hub.dfw, theirs).await;
        hub.config(&ns, "data", "ours").await;
        hub.template(&ns, "wd", "dfw", r#"["ConfigMap/data"]"#).await;
        let attached = hub
            .binding(&ns, "data-configmap", "it is refused", |b| {
                let told = &b.data["status"]["aggregatedStatus"][0]["appliedMessage"];
                condition(b, "FullyApplied")["status"] == "False" && told.is_string()
            })
            .await;
        let told = attached.data["status"]["aggregatedStatus"][0]["appliedMessage"].as_str().unwrap();
        assert!(told.contains("already exists"), "{told}");
        assert_eq!(there(&hub.dfw, "ConfigMap", &ns, "data").await.data["data"]["k"], "theirs");
    });
}
