//! What other hands do on the hub and on the members.

use super::*;

#[test]
fn fact_48_a_label_that_moves_moves_nothing_behind_two_groups() {
    RUNTIME.block_on(async {
        let hub = hub().await;
        let ns = hub.namespace().await;
        let groups = json!({ "clusterAffinities": [
            { "affinityName": "city", "labelSelector": { "matchLabels": { CITY: "ord" } } },
            { "affinityName": "holding", "clusterNames": ["cell-ord"] },
        ]});
        apply(&hub.hub, policy(&ns, "ord", &groups)).await;
        hub.template(&ns, "wd", "ord", "").await;
        let safe = there(&hub.ord, "WorkloadDeployment", &ns, "wd").await.uid();
        let city = |city: Value| json!({ "metadata": { "labels": { CITY: city } } });
        merge(&hub.hub, "Cluster", "", "cell-ord", city(Value::Null)).await;
        hub.binding(&ns, "wd-workloaddeployment", "it is in the second group", |b| {
            b.data["status"]["schedulerObservingAffinityName"] == "holding"
        })
        .await;
        merge(&hub.hub, "Cluster", "", "cell-dfw", city(json!("ord"))).await;
        hub.template(&ns, "new", "ord", "").await;
        there(&hub.dfw, "WorkloadDeployment", &ns, "new").await;
        assert_eq!(there(&hub.ord, "WorkloadDeployment", &ns, "wd").await.uid(), safe);
        merge(&hub.hub, "Cluster", "", "cell-dfw", city(json!("dfw"))).await;
        merge(&hub.hub, "Cluster", "", "cell-ord", city(json!("ord"))).await;
    });
}

#[test]
fn fact_49_a_lost_binding_stays_lost_until_its_template_is_touched() {
    RUNTIME.block_on(async {
        let hub = hub().await;
        let ns = hub.deployed().await;
        let before = there(&hub.dfw, "WorkloadDeployment", &ns, "wd").await.uid();
        delete(&hub.hub, "ResourceBinding", &ns, "wd-workloaddeployment").await;
        gone(&hub.dfw, "WorkloadDeployment", &ns, "wd").await;
        assert!(get(&hub.hub, "ResourceBinding", &ns, "wd-workloaddeployment").await.is_none());
        merge(&hub.hub, "WorkloadDeployment", &ns, "wd", json!({ "metadata": { "annotations": { "touched": "1" } } }))
            .await;
        assert_ne!(there(&hub.dfw, "WorkloadDeployment", &ns, "wd").await.uid(), before);
    });
}

#[test]
fn fact_50_a_lost_attached_binding_stays_lost_until_the_dependency_is_touched() {
    RUNTIME.block_on(async {
        let hub = hub().await;
        let ns = hub.deployed().await;
        hub.config(&ns, "data", "v").await;
        hub.template(&ns, "wd", "dfw", r#"["ConfigMap/data"]"#).await;
        let before = there(&hub.dfw, "ConfigMap", &ns, "data").await;
        delete(&hub.hub, "ResourceBinding", &ns, "data-configmap").await;
        gone(&hub.dfw, "ConfigMap", &ns, "data").await;
        let touch = json!({ "metadata": { "annotations": { "touched": "yes" } } });
        merge(&hub.hub, "ConfigMap", &ns, "data", touch).await;
        assert_ne!(there(&hub.dfw, "ConfigMap", &ns, "data").await.uid(), before.uid());
    });
}

#[test]
fn facts_51_to_57_what_other_hands_do() {
    RUNTIME.block_on(async {
        let mut hub = hub().await;
        let ns = hub.deployed().await;
        let uid = || async { there(&hub.dfw, "WorkloadDeployment", &ns, "wd").await.uid() };
        let before = uid().await;
        // 51
        delete(&hub.hub, "PropagationPolicy", &ns, "city-dfw").await;
        gone(&hub.hub, "PropagationPolicy", &ns, "city-dfw").await;
        hub.policy(&ns, "dfw").await;
        let claimed = |b: &DynamicObject| b.annotations().contains_key("propagationpolicy.karmada.io/name");
        hub.binding(&ns, "wd-workloaddeployment", "the claim is renewed", claimed).await;
        assert_eq!(uid().await, before);
        // 52
        hub.policy(&ns, "ord").await;
        merge(&hub.hub, "WorkloadDeployment", &ns, "wd", json!({ "metadata": { "labels": { CITY: "ord" } } })).await;
        eventually("the change has travelled", || async {
            let copy = get(&hub.dfw, "WorkloadDeployment", &ns, "wd").await.ok_or("gone")?;
            if copy.labels()[CITY] == "ord" { Ok(()) } else { Err("not yet".to_owned()) }
        })
        .await;
        assert_eq!(uid().await, before, "it stays in the old city");
        // 53
        let protect = |value: Value| json!({ "metadata": { "labels": { "resourcetemplate.karmada.io/deletion-protected": value } } });
        merge(&hub.hub, "WorkloadDeployment", &ns, "wd", protect(json!("Always"))).await;
        let refused = common::api(&hub.hub, "WorkloadDeployment", &ns).delete("wd", &kube::api::DeleteParams::default()).await;
        assert!(refused.is_err());
        merge(&hub.hub, "WorkloadDeployment", &ns, "wd", protect(Value::Null)).await;
        // 54
        delete(&hub.dfw, "WorkloadDeployment", &ns, "wd").await;
        eventually("it is put back", || async {
            let copy = get(&hub.dfw, "WorkloadDeployment", &ns, "wd").await.ok_or("gone")?;
            if copy.uid() == before { Err("the same".to_owned()) } else { Ok(()) }
        })
        .await;
        // 57
        delete(&hub.dfw, "Namespace", "", &ns).await;
        let second = uid().await;
        eventually("it comes back with its namespace", || async {
            let copy = get(&hub.dfw, "WorkloadDeployment", &ns, "wd").await.ok_or("gone")?;
            if copy.uid() == second { Err("the same".to_owned()) } else { Ok(()) }
        })
        .await;
        // 55
        for work in list(&hub.hub, "Work", "karmada-es-cell-dfw").await {
            let manifest = &work.data["spec"]["workload"]["manifests"][0];
            if manifest["kind"] == "WorkloadDeployment" && manifest["metadata"]["namespace"] == json!(ns) {
                delete(&hub.hub, "Work", "karmada-es-cell-dfw", &work.name_any()).await;
            }
        }
        gone(&hub.dfw, "WorkloadDeployment", &ns, "wd").await;
        tokio::time::sleep(std::time::Duration::from_secs(2)).await;
        assert!(get(&hub.dfw, "WorkloadDeployment", &ns, "wd").await.is_none(), "not by itself");
        // 56: a restart brings it back.
        if hub.bed.stand_in().is_some() {
            hub.bed.restart_stand_in().await.unwrap();
            there(&hub.dfw, "WorkloadDeployment", &ns, "wd").await;
        }
    });
}
