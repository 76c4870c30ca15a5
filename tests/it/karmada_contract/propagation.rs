//! Deployments are claimed, bound, scheduled, delivered to the member, and deleted.

use super::*;

#[test]
fn facts_1_to_5_template_gets_claim_binding_work_and_marks() {
    RUNTIME.block_on(async {
        let hub = hub().await;
        let ns = hub.deployed().await;
        let copy = there(&hub.dfw, "WorkloadDeployment", &ns, "wd").await;
        let template = get(&hub.hub, "WorkloadDeployment", &ns, "wd").await.unwrap();
        // 1: the id is a label, the names are annotations.
        assert!(template.labels().contains_key("propagationpolicy.karmada.io/permanent-id"));
        assert_eq!(template.annotations()["propagationpolicy.karmada.io/name"], "city-dfw");
        assert_eq!(template.annotations()["propagationpolicy.karmada.io/namespace"], ns);
        // 2 and 3.
        let finalizers = ["karmada.io/binding-controller", "karmada.io/binding-dependencies-distributor"];
        let applied = |b: &DynamicObject| {
            condition(b, "FullyApplied")["status"] == "True"
                && condition(b, "Scheduled")["status"] == "True"
                // The distributor adds its finalizer after it has run the script, somewhat later than the rest.
                && finalizers.iter().all(|finalizer| b.finalizers().iter().any(|f| f == finalizer))
        };
        let binding = hub.binding(&ns, "wd-workloaddeployment", "it is applied and has its finalizers", applied).await;
        let owner = &binding.owner_references()[0];
        assert_eq!((owner.uid.as_str(), owner.controller), (template.uid().unwrap().as_str(), Some(true)));
        assert_eq!(binding.annotations()["propagationpolicy.karmada.io/name"], "city-dfw");
        assert!(binding.labels().contains_key("resourcebinding.karmada.io/permanent-id"));
        assert_eq!(binding.data["spec"]["clusters"][0]["name"], "cell-dfw");
        assert_eq!(binding.data["status"]["aggregatedStatus"][0]["clusterName"], "cell-dfw");
        let works = list(&hub.hub, "Work", "karmada-es-cell-dfw").await;
        let work = works.iter().find(|w| {
            w.name_any().starts_with("wd-")
                && w.data["spec"]["workload"]["manifests"][0]["metadata"]["namespace"] == json!(ns)
        });
        assert!(work.as_ref().unwrap().finalizers().contains(&"karmada.io/execution-controller".to_owned()));
        // 4: the namespace is created on every member.
        there(&hub.ord, "Namespace", "", &ns).await;
        // 5
        assert_eq!(copy.labels()["karmada.io/managed"], "true");
        assert_eq!(copy.labels()[CITY], "dfw");
        for mark in ["resourcetemplate.karmada.io/managed-labels", "resourcetemplate.karmada.io/managed-annotations"] {
            assert!(copy.annotations().contains_key(mark), "{mark}");
        }
        assert_eq!(copy.annotations()["resourcetemplate.karmada.io/uid"], template.uid().unwrap());
        assert_eq!(copy.annotations()["work.karmada.io/name"], work.unwrap().name_any());
        absent(&hub.ord, "WorkloadDeployment", &ns, "wd").await;
    });
}

#[test]
fn facts_7_and_8_changes_arrive_and_the_member_keeps_foreign_fields() {
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
        // 12: the hub does not wait for the member's copy, which this finalizer blocks.
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
fn fact_10_status_of_the_member_returns_to_the_template() {
    RUNTIME.block_on(async {
        let hub = hub().await;
        let ns = hub.deployed().await;
        let status = json!({ "status": { "replicas": 3, "currentReplicas": 0, "desiredReplicas": 3, "readyReplicas": 1, "conditions": [
            { "type": "Available", "status": "True", "reason": "R", "message": "m", "lastTransitionTime": "2026-01-01T00:00:00Z" },
        ]}});
        let api = crate::common::api(&hub.dfw, "WorkloadDeployment", &ns);
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
fn fact_13_deleted_policy_leaves_the_object_on_the_member() {
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
        kept(&hub.dfw, "WorkloadDeployment", &ns, "wd", uid.as_deref()).await;
        // 51: the policy is recreated, and nothing moves.
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
        kept(&hub.dfw, "WorkloadDeployment", &ns, "wd", uid.as_deref()).await;
    });
}

#[test]
fn facts_29_42_46_and_48_city_label_decides_unless_a_second_group_guards() {
    RUNTIME.block_on(async {
        let hub = hub().await;
        let ns = hub.namespace().await;
        // 29
        hub.policy(&ns, "nowhere").await;
        hub.template(&ns, "lost", "nowhere", "").await;
        let unfit = |b: &DynamicObject| condition(b, "Scheduled")["reason"] == "NoClusterFit";
        let binding = hub.binding(&ns, "lost-workloaddeployment", "no cluster fits", unfit).await;
        assert!(binding.data["spec"]["clusters"].as_array().is_none_or(Vec::is_empty));
        let told = condition(&binding, "Scheduled")["message"].as_str().unwrap_or_default().to_owned();
        assert!(told.starts_with("0/2 clusters are available: 2 cluster(s) did not match"), "{told}");
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
        // 42: without a guard, a lost label removes everything.
        merge(&hub.hub, "Cluster", "", "cell-ord", json!({ "metadata": { "labels": { CITY: null } } })).await;
        gone(&hub.ord, "WorkloadDeployment", &ns, "wd").await;
        kept(&hub.ord, "WorkloadDeployment", &guarded, "wd", safe.as_deref()).await;
        merge(&hub.hub, "Cluster", "", "cell-ord", json!({ "metadata": { "labels": { CITY: "ord" } } })).await;
        assert_ne!(there(&hub.ord, "WorkloadDeployment", &ns, "wd").await.uid(), before);
        kept(&hub.ord, "WorkloadDeployment", &guarded, "wd", safe.as_deref()).await;
    });
}

#[test]
fn fact_33_existing_member_object_is_not_adopted() {
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

#[test]
fn fact_43_policy_gets_defaults_and_reapplying_changes_nothing() {
    RUNTIME.block_on(async {
        let hub = hub().await;
        let ns = hub.namespace().await;
        let mut plain = policy(&ns, "dfw", &json!({ "clusterAffinity": { "clusterNames": ["cell-dfw"] } }));
        plain["spec"]["resourceSelectors"][0].as_object_mut().unwrap().remove("namespace");
        apply(&hub.hub, plain.clone()).await;
        let marked = || async {
            let live = get(&hub.hub, "PropagationPolicy", &ns, "city-dfw").await.ok_or("no policy")?;
            let finalizer = live.finalizers().iter().any(|f| f == "karmada.io/propagation-policy-controller");
            let id = live.labels().contains_key("propagationpolicy.karmada.io/permanent-id");
            let named = live.data["spec"]["resourceSelectors"][0]["namespace"] == json!(ns);
            if finalizer && id && named { Ok(live) } else { Err(format!("{:?}", live.metadata)) }
        };
        let live = eventually("it has its id, its finalizer and a namespace in its selector", marked).await;
        let spec = &live.data["spec"];
        assert_eq!((&spec["conflictResolution"], &spec["preemption"]), (&json!("Abort"), &json!("Never")));
        assert_eq!((&spec["priority"], &spec["schedulerName"]), (&json!(0), &json!("default-scheduler")));
        plain["spec"]["resourceSelectors"][0]["namespace"] = json!(ns);
        let live = apply(&hub.hub, plain.clone()).await;
        let again = apply(&hub.hub, plain).await;
        assert_eq!(again.metadata.generation, live.metadata.generation);
        assert_eq!(again.resource_version(), live.resource_version());
    });
}

#[test]
fn fact_63_name_too_long_for_a_work_never_arrives_and_blocks_no_other() {
    RUNTIME.block_on(async {
        let hub = hub().await;
        let ns = hub.deployed().await;
        let (long, longest) = ("s".repeat(246), "c".repeat(242));
        apply(&hub.hub, json!({ "apiVersion": "v1", "kind": "Secret", "metadata": { "name": long, "namespace": ns } }))
            .await;
        for name in [longest.as_str(), "short"] {
            hub.config(&ns, name, "v").await;
        }
        let needs = json!([format!("Secret/{long}"), format!("ConfigMap/{longest}"), "ConfigMap/short"]);
        hub.template(&ns, "wd", "dfw", &needs.to_string()).await;
        for name in [longest.as_str(), "short"] {
            there(&hub.dfw, "ConfigMap", &ns, name).await;
        }
        let stands = |b: &DynamicObject| b.data["spec"]["requiredBy"].as_array().is_some_and(|list| list.len() == 1);
        hub.binding(&ns, &format!("{long}-secret"), "its binding has its parent", stands).await;
        absent(&hub.dfw, "Secret", &ns, &long).await;
        let binding = get(&hub.hub, "ResourceBinding", &ns, &format!("{long}-secret")).await.unwrap();
        assert!(binding.data["status"]["aggregatedStatus"].is_null(), "no status of the cluster");
    });
}
