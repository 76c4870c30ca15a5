//! Manual edits on the hub and on the members.

use super::*;

#[test]
fn fact_48_moved_label_moves_nothing_with_two_groups() {
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
        hub.label_cluster("cell-ord", Value::Null).await;
        hub.binding(&ns, "wd-workloaddeployment", "it is in the second group", |b| {
            b.data["status"]["schedulerObservingAffinityName"] == "holding"
        })
        .await;
        hub.label_cluster("cell-dfw", json!("ord")).await;
        hub.template(&ns, "new", "ord", "").await;
        there(&hub.dfw, "WorkloadDeployment", &ns, "new").await;
        kept(&hub.ord, "WorkloadDeployment", &ns, "wd", safe.as_deref()).await;
        hub.label_cluster("cell-dfw", json!("dfw")).await;
        hub.label_cluster("cell-ord", json!("ord")).await;
    });
}

#[test]
fn fact_49_deleted_binding_returns_when_its_template_is_touched() {
    RUNTIME.block_on(async {
        let hub = hub().await;
        let ns = hub.deployed().await;
        let before = there(&hub.dfw, "WorkloadDeployment", &ns, "wd").await.uid();
        delete(&hub.hub, "ResourceBinding", &ns, "wd-workloaddeployment").await;
        // The copy may be deleted a moment before the binding, which waits for two finalizers.
        gone(&hub.dfw, "WorkloadDeployment", &ns, "wd").await;
        gone(&hub.hub, "ResourceBinding", &ns, "wd-workloaddeployment").await;
        absent(&hub.hub, "ResourceBinding", &ns, "wd-workloaddeployment").await;
        merge(&hub.hub, "WorkloadDeployment", &ns, "wd", json!({ "metadata": { "annotations": { "touched": "1" } } }))
            .await;
        assert_ne!(there(&hub.dfw, "WorkloadDeployment", &ns, "wd").await.uid(), before);
    });
}

/// A binding records the version of its template. (Source: OnUpdate of pkg/detector/detector.go compares each version with the
/// one before, by SpecificationChanged of pkg/util/eventfilter.)
#[test]
fn fact_73_change_reverted_at_once_updates_the_binding() {
    RUNTIME.block_on(async {
        let hub = hub().await;
        let ns = hub.deployed().await;
        let mark = |value: Value| json!({ "metadata": { "annotations": { "mark": value } } });
        for _ in 0..5 {
            merge(&hub.hub, "WorkloadDeployment", &ns, "wd", mark(json!("1"))).await;
            let template = merge(&hub.hub, "WorkloadDeployment", &ns, "wd", mark(Value::Null)).await;
            let version = template.resource_version().unwrap().parse::<u64>().unwrap();
            hub.binding(&ns, "wd-workloaddeployment", "its binding has the current template", |binding| {
                let made_of = &binding.data["spec"]["resource"]["resourceVersion"];
                made_of.as_str().is_some_and(|made_of| made_of.parse::<u64>().unwrap() >= version)
            })
            .await;
        }
    });
}

#[test]
fn fact_50_deleted_attached_binding_returns_when_the_dependency_is_touched() {
    RUNTIME.block_on(async {
        let hub = hub().await;
        let ns = hub.deployed().await;
        hub.config(&ns, "data", "v").await;
        hub.template(&ns, "wd", "dfw", r#"["ConfigMap/data"]"#).await;
        let before = there(&hub.dfw, "ConfigMap", &ns, "data").await;
        delete(&hub.hub, "ResourceBinding", &ns, "data-configmap").await;
        gone(&hub.dfw, "ConfigMap", &ns, "data").await;
        gone(&hub.hub, "ResourceBinding", &ns, "data-configmap").await;
        absent(&hub.hub, "ResourceBinding", &ns, "data-configmap").await;
        let touch = json!({ "metadata": { "annotations": { "touched": "yes" } } });
        merge(&hub.hub, "ConfigMap", &ns, "data", touch).await;
        assert_ne!(there(&hub.dfw, "ConfigMap", &ns, "data").await.uid(), before.uid());
    });
}

#[test]
fn fact_52_claimed_template_with_a_changed_label_stays_and_is_not_updated() {
    RUNTIME.block_on(async {
        let hub = hub().await;
        let ns = hub.deployed().await;
        hub.policy(&ns, "ord").await;
        let before = there(&hub.dfw, "WorkloadDeployment", &ns, "wd").await;
        let moved = json!({ "metadata": { "labels": { CITY: "ord" } } });
        merge(&hub.hub, "WorkloadDeployment", &ns, "wd", moved).await;
        merge(&hub.hub, "WorkloadDeployment", &ns, "wd", json!({ "metadata": { "annotations": { "touched": "1" } } }))
            .await;
        never("the change travels", || async {
            let copy = get(&hub.dfw, "WorkloadDeployment", &ns, "wd").await;
            let stays = copy.as_ref().is_some_and(|copy| {
                copy.uid() == before.uid()
                    && copy.labels()[CITY] == "dfw"
                    && !copy.annotations().contains_key("touched")
            });
            (!stays).then(|| format!("{copy:?}"))
        })
        .await;
        absent(&hub.ord, "WorkloadDeployment", &ns, "wd").await;
        let template = get(&hub.hub, "WorkloadDeployment", &ns, "wd").await.unwrap();
        assert_eq!(template.annotations()["propagationpolicy.karmada.io/name"], "city-dfw");
        let binding = get(&hub.hub, "ResourceBinding", &ns, "wd-workloaddeployment").await.unwrap();
        assert!(on(&binding, "cell-dfw"));
    });
}

#[test]
fn facts_51_53_to_55_57_and_62_manual_deletions_on_hub_and_member() {
    RUNTIME.block_on(async {
        let hub = hub().await;
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
        // 53
        let protect = |value: Value| json!({ "metadata": { "labels": { "resourcetemplate.karmada.io/deletion-protected": value } } });
        merge(&hub.hub, "WorkloadDeployment", &ns, "wd", protect(json!("Always"))).await;
        let refused = crate::common::api(&hub.hub, "WorkloadDeployment", &ns).delete("wd", &kube::api::DeleteParams::default()).await;
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
        eventually("it returns with its namespace", || async {
            let copy = get(&hub.dfw, "WorkloadDeployment", &ns, "wd").await.ok_or("gone")?;
            if copy.uid() == second { Err("the same".to_owned()) } else { Ok(()) }
        })
        .await;
        // 55
        lose_work(&hub, &ns, "wd").await;
        gone(&hub.dfw, "WorkloadDeployment", &ns, "wd").await;
        absent(&hub.dfw, "WorkloadDeployment", &ns, "wd").await;
        // 62: it returns when its template is touched.
        merge(&hub.hub, "WorkloadDeployment", &ns, "wd", json!({ "metadata": { "annotations": { "touched": "1" } } }))
            .await;
        there(&hub.dfw, "WorkloadDeployment", &ns, "wd").await;
    });
}

/// Deletes the Work of a WorkloadDeployment on dfw.
async fn lose_work(hub: &Hub, ns: &str, name: &str) {
    for work in list(&hub.hub, "Work", "karmada-es-cell-dfw").await {
        let manifest = &work.data["spec"]["workload"]["manifests"][0];
        let of = &manifest["metadata"];
        if manifest["kind"] == "WorkloadDeployment" && of["namespace"] == json!(ns) && of["name"] == json!(name) {
            delete(&hub.hub, "Work", "karmada-es-cell-dfw", &work.name_any()).await;
        }
    }
}

#[test]
fn fact_56_restart_recreates_a_deleted_work_and_moves_nothing_else() {
    RUNTIME.block_on(async {
        let mut hub = hub().await;
        let why = "the testbed does not restart its processes";
        if hub.stand_in(why).is_none() {
            return;
        }
        let ns = hub.deployed().await;
        hub.template(&ns, "other", "dfw", "").await;
        let before = there(&hub.dfw, "WorkloadDeployment", &ns, "other").await.uid();
        lose_work(&hub, &ns, "wd").await;
        gone(&hub.dfw, "WorkloadDeployment", &ns, "wd").await;
        hub.bed.restart_stand_in().await.unwrap();
        there(&hub.dfw, "WorkloadDeployment", &ns, "wd").await;
        kept(&hub.dfw, "WorkloadDeployment", &ns, "other", before.as_deref()).await;
    });
}
