//! Clusters that become unreachable.

use super::*;

#[test]
fn facts_30_and_31_unreachable_cluster_stays_ready_for_a_while_then_is_tainted() {
    RUNTIME.block_on(async {
        let mut hub = hub().await;
        let ns = hub.deployed().await;
        if let Some(karmada) = hub.bed.stand_in() {
            karmada.failure_threshold(Duration::from_secs(15));
        }
        let uid = there(&hub.dfw, "WorkloadDeployment", &ns, "wd").await.uid();
        let is_ready = |cluster: &DynamicObject| condition(cluster, "Ready")["status"] == "True";
        hub.bed.cells.get_mut("dfw").unwrap().stop_api_server();
        // 31: the error is reported at once for the next write, while the cluster is still ready.
        let touch = json!({ "metadata": { "annotations": { "touched": "1" } } });
        merge(&hub.hub, "WorkloadDeployment", &ns, "wd", touch).await;
        let refused = |b: &DynamicObject| {
            let told = b.data["status"]["aggregatedStatus"][0]["appliedMessage"].as_str().unwrap_or_default();
            let network = told.to_lowercase().contains("connect");
            let applied = condition(b, "FullyApplied");
            applied["reason"] == "FullyAppliedFailed" && applied["status"] == "False" && network
        };
        hub.binding(&ns, "wd-workloaddeployment", "the network error is reported", refused).await;
        assert!(is_ready(&get(&hub.hub, "Cluster", "", "cell-dfw").await.unwrap()), "still");
        eventually("the cluster is not ready, and tainted", || async {
            let cluster = get(&hub.hub, "Cluster", "", "cell-dfw").await.ok_or("gone")?;
            let ready = condition(&cluster, "Ready");
            let tainted = cluster.data["spec"]["taints"].as_array().is_some_and(|taints| {
                taints.iter().any(|t| t["key"] == "cluster.karmada.io/not-ready" && t["effect"] == "NoSchedule")
            });
            let right = ready["status"] == "False" && ready["reason"] == "ClusterNotReachable" && tainted;
            if right { Ok(()) } else { Err(format!("{ready} {}", cluster.data["spec"]["taints"])) }
        })
        .await;
        // 30: a new template finds no cluster, and the message names the taint.
        hub.template(&ns, "new", "dfw", "").await;
        let unfit = |b: &DynamicObject| condition(b, "Scheduled")["reason"] == "NoClusterFit";
        let binding = hub.binding(&ns, "new-workloaddeployment", "no cluster fits", unfit).await;
        let told = condition(&binding, "Scheduled")["message"].to_string();
        assert!(told.contains("untolerated taint {cluster.karmada.io/not-ready:NoSchedule}"), "{told}");
        let old = get(&hub.hub, "ResourceBinding", &ns, "wd-workloaddeployment").await.unwrap();
        assert!(on(&old, "cell-dfw"), "nothing is evicted");
        let cell = hub.bed.cells.get_mut("dfw").unwrap();
        cell.start_api_server().unwrap();
        cell.wait_ready().await.unwrap();
        there(&hub.dfw, "WorkloadDeployment", &ns, "new").await;
        eventually("the change during the outage arrives", || async {
            let copy = get(&hub.dfw, "WorkloadDeployment", &ns, "wd").await.ok_or("gone")?;
            if copy.annotations().contains_key("touched") { Ok(()) } else { Err("not yet".to_owned()) }
        })
        .await;
        assert_eq!(there(&hub.dfw, "WorkloadDeployment", &ns, "wd").await.uid(), uid);
    });
}

#[test]
fn facts_32_and_70_works_of_deleted_templates_wait_for_their_cluster() {
    RUNTIME.block_on(async {
        let mut hub = hub().await;
        let ns = hub.deployed().await;
        hub.config(&ns, "data", "v").await;
        hub.template(&ns, "wd", "dfw", r#"["ConfigMap/data"]"#).await;
        there(&hub.dfw, "ConfigMap", &ns, "data").await;
        // A change of each object arrives, so Karmada's view of the member is up to date. Right after the return of a cluster it
        // is not. If an object is deleted then, its Work is deleted at once, and the copy stays (fact 80).
        hub.config(&ns, "data", "w").await;
        let touch = json!({ "metadata": { "annotations": { "touched": "1" } } });
        merge(&hub.hub, "WorkloadDeployment", &ns, "wd", touch).await;
        eventually("the changes travel", || async {
            let data = get(&hub.dfw, "ConfigMap", &ns, "data").await.ok_or("no data")?;
            let copy = get(&hub.dfw, "WorkloadDeployment", &ns, "wd").await.ok_or("no copy")?;
            let right = data.data["data"]["k"] == "w" && copy.annotations().contains_key("touched");
            if right { Ok(()) } else { Err(format!("{} {:?}", data.data, copy.annotations())) }
        })
        .await;
        let before = there(&hub.dfw, "WorkloadDeployment", &ns, "wd").await.uid();
        hub.bed.cells.get_mut("dfw").unwrap().stop_api_server();
        for (kind, name) in [("WorkloadDeployment", "wd"), ("ConfigMap", "data")] {
            delete(&hub.hub, kind, &ns, name).await;
            gone(&hub.hub, kind, &ns, name).await;
            gone(&hub.hub, "ResourceBinding", &ns, &format!("{name}-{}", kind.to_lowercase())).await;
        }
        let works = || async {
            let works = list(&hub.hub, "Work", "karmada-es-cell-dfw").await;
            let of = |work: &DynamicObject| work.data["spec"]["workload"]["manifests"][0]["metadata"].clone();
            works.into_iter().filter(|work| of(work)["namespace"] == json!(ns)).collect::<Vec<_>>()
        };
        eventually("both Works wait with deletionTimestamp and finalizer", || async {
            let works = works().await;
            let waiting = works.iter().filter(|work| {
                work.metadata.deletion_timestamp.is_some() && work.finalizers() == ["karmada.io/execution-controller"]
            });
            if waiting.count() == 2 && works.len() == 2 { Ok(()) } else { Err(format!("{works:?}")) }
        })
        .await;
        // 70: a new object of the same name waits until the old Work is deleted.
        hub.template(&ns, "wd", "dfw", "").await;
        never("the old Work is taken over", || async {
            let works = works().await;
            (works.len() != 2 || works.iter().any(|work| work.metadata.deletion_timestamp.is_none()))
                .then(|| format!("{works:?}"))
        })
        .await;
        let cell = hub.bed.cells.get_mut("dfw").unwrap();
        cell.start_api_server().unwrap();
        cell.wait_ready().await.unwrap();
        gone(&hub.dfw, "ConfigMap", &ns, "data").await;
        eventually("the new one is there", || async {
            let copy = get(&hub.dfw, "WorkloadDeployment", &ns, "wd").await.ok_or("not there")?;
            if copy.uid() == before { Err("the old one".to_owned()) } else { Ok(()) }
        })
        .await;
    });
}
