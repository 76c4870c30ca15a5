//! Placements that the scheduler refuses, and the step from one affinity group to the next.

use super::*;

/// Returns a placement of two groups: the clusters with the city's label, and the named cluster.
fn guarded(first: &str, city: &str, holding: &str) -> Value {
    json!({ "clusterAffinities": [
        { "affinityName": first, "labelSelector": { "matchLabels": { CITY: city } } },
        { "affinityName": "holding", "clusterNames": [holding] },
    ]})
}

fn named(cluster: &str) -> Value {
    json!({ "clusterAffinity": { "clusterNames": [cluster] } })
}

const BINDING: &str = "wd-workloaddeployment";

#[test]
fn fact_47_change_from_one_affinity_to_guarded_groups_moves_nothing() {
    RUNTIME.block_on(async {
        let hub = hub().await;
        let ns = hub.deployed().await;
        let before = there(&hub.dfw, "WorkloadDeployment", &ns, "wd").await.uid();
        apply(&hub.hub, policy(&ns, "dfw", &guarded("city", "dfw", "cell-dfw"))).await;
        let observed = |b: &DynamicObject| b.data["status"]["schedulerObservingAffinityName"] == "city";
        hub.binding(&ns, BINDING, "the first group is observed", observed).await;
        kept(&hub.dfw, "WorkloadDeployment", &ns, "wd", before.as_deref()).await;
    });
}

#[test]
fn facts_59_and_64_refused_last_group_removes_everything() {
    RUNTIME.block_on(async {
        let hub = hub().await;
        let ns = hub.placed(&named("cell-dfw")).await;
        there(&hub.dfw, "WorkloadDeployment", &ns, "wd").await;
        hub.cordon("cell-ord", true).await;
        // A NoSchedule taint does not evict.
        let held = hub.placed(&named("cell-ord")).await;
        hub.binding(&held, BINDING, "it finds no cluster", nowhere).await;
        apply(&hub.hub, policy(&ns, "dfw", &named("cell-ord"))).await;
        let binding = hub.binding(&ns, BINDING, "the empty result is patched", nowhere).await;
        let told = condition(&binding, "Scheduled")["message"].to_string();
        assert!(told.contains("untolerated taint {cordoned:NoSchedule}"), "{told}");
        gone(&hub.dfw, "WorkloadDeployment", &ns, "wd").await;
        // Without the taint, the scheduler tries the only group's cluster again.
        hub.cordon("cell-ord", false).await;
        there(&hub.ord, "WorkloadDeployment", &ns, "wd").await;
        let there_now = there(&hub.ord, "WorkloadDeployment", &held, "wd").await.uid();
        hub.cordon("cell-ord", true).await;
        kept(&hub.ord, "WorkloadDeployment", &held, "wd", there_now.as_deref()).await;
        hub.cordon("cell-ord", false).await;
    });
}

#[test]
fn fact_64_scheduler_starts_at_the_last_observed_group() {
    RUNTIME.block_on(async {
        let hub = hub().await;
        hub.cordon("cell-ord", true).await;
        let ns = hub.placed(&guarded("city", "ord", "cell-dfw")).await;
        let in_group = |group: &'static str, cluster: &'static str| {
            move |b: &DynamicObject| b.data["status"]["schedulerObservingAffinityName"] == group && on(b, cluster)
        };
        hub.binding(&ns, BINDING, "the second group has it", in_group("holding", "cell-dfw")).await;
        let before = there(&hub.dfw, "WorkloadDeployment", &ns, "wd").await.uid();
        // The cluster of the first group is available again: nothing moves.
        hub.cordon("cell-ord", false).await;
        kept(&hub.dfw, "WorkloadDeployment", &ns, "wd", before.as_deref()).await;
        // A touch of the template moves nothing either.
        merge(&hub.hub, "WorkloadDeployment", &ns, "wd", json!({ "metadata": { "annotations": { "touched": "1" } } }))
            .await;
        kept(&hub.dfw, "WorkloadDeployment", &ns, "wd", before.as_deref()).await;
        // The first group gets another name, and the second one keeps its name: nothing moves.
        apply(&hub.hub, policy(&ns, "dfw", &guarded("city-again", "ord", "cell-dfw"))).await;
        kept(&hub.dfw, "WorkloadDeployment", &ns, "wd", before.as_deref()).await;
        let binding = get(&hub.hub, "ResourceBinding", &ns, BINDING).await.unwrap();
        assert_eq!(binding.data["status"]["schedulerObservingAffinityName"], "holding");
        // The last observed name is gone: the scheduler starts at the first group.
        let renamed = json!({ "clusterAffinities": [
            { "affinityName": "city-again", "labelSelector": { "matchLabels": { CITY: "ord" } } },
            { "affinityName": "held", "clusterNames": ["cell-dfw"] },
        ]});
        apply(&hub.hub, policy(&ns, "dfw", &renamed)).await;
        hub.binding(&ns, BINDING, "the first group has it", in_group("city-again", "cell-ord")).await;
        there(&hub.ord, "WorkloadDeployment", &ns, "wd").await;
        gone(&hub.dfw, "WorkloadDeployment", &ns, "wd").await;
    });
}

#[test]
fn fact_65_in_the_second_group_only_its_own_content_moves_the_deployment() {
    RUNTIME.block_on(async {
        let hub = hub().await;
        let ns = hub.placed(&guarded("city", "nowhere", "cell-dfw")).await;
        let before = there(&hub.dfw, "WorkloadDeployment", &ns, "wd").await.uid();
        let observed = |b: &DynamicObject| b.data["status"]["schedulerObservingAffinityName"] == "holding";
        hub.binding(&ns, BINDING, "the second group has it", observed).await;
        // The content of the first group changes to a ready cluster: nothing moves.
        apply(&hub.hub, policy(&ns, "dfw", &guarded("city", "ord", "cell-dfw"))).await;
        kept(&hub.dfw, "WorkloadDeployment", &ns, "wd", before.as_deref()).await;
        // The content of the second group moves it. While that is refused everything is removed, and the scheduler does not try
        // the first group.
        hub.cordon("cell-ord", true).await;
        apply(&hub.hub, policy(&ns, "dfw", &guarded("city", "dfw", "cell-ord"))).await;
        hub.binding(&ns, BINDING, "the empty result is patched", nowhere).await;
        gone(&hub.dfw, "WorkloadDeployment", &ns, "wd").await;
        let binding = get(&hub.hub, "ResourceBinding", &ns, BINDING).await.unwrap();
        assert_eq!(binding.data["status"]["schedulerObservingAffinityName"], "holding");
        merge(&hub.hub, "WorkloadDeployment", &ns, "wd", json!({ "metadata": { "annotations": { "touched": "1" } } }))
            .await;
        absent(&hub.dfw, "WorkloadDeployment", &ns, "wd").await;
        hub.cordon("cell-ord", false).await;
        hub.binding(&ns, BINDING, "the second group has it again", |b| on(b, "cell-ord")).await;
        there(&hub.ord, "WorkloadDeployment", &ns, "wd").await;
    });
}

/// Serves an API on a member, or stops serving it.
async fn serve_deployments(hub: &Hub, served: bool) {
    let api = crate::common::api(&hub.dfw, "CustomResourceDefinition", "");
    let name = "workloaddeployments.compute.datumapis.com";
    let mut definition = api.get(name).await.unwrap();
    definition.data["spec"]["versions"][0]["served"] = json!(served);
    api.replace(name, &kube::api::PostParams::default(), &definition).await.unwrap();
    eventually("the Cluster reports the APIs", || async {
        let cluster = get(&hub.hub, "Cluster", "", "cell-dfw").await.ok_or("gone")?;
        let found = cluster.data["status"]["apiEnablements"].to_string().contains("WorkloadDeployment");
        if found == served { Ok(()) } else { Err(format!("served: {found}")) }
    })
    .await;
}

#[test]
fn fact_66_missing_api_blocks_new_deployments_and_keeps_existing_ones() {
    RUNTIME.block_on(async {
        let hub = hub().await;
        let ns = hub.deployed().await;
        serve_deployments(&hub, false).await;
        hub.template(&ns, "new", "dfw", "").await;
        let binding = hub.binding(&ns, "new-workloaddeployment", "it finds no cluster", nowhere).await;
        let told = condition(&binding, "Scheduled")["message"].to_string();
        assert!(told.contains("1 cluster(s) did not have the API resource"), "{told}");
        // A touch does not move the old deployment.
        merge(&hub.hub, "WorkloadDeployment", &ns, "wd", json!({ "metadata": { "annotations": { "touched": "1" } } }))
            .await;
        never("the old one loses its cluster", || async {
            let binding = get(&hub.hub, "ResourceBinding", &ns, BINDING).await?;
            (!on(&binding, "cell-dfw")).then(|| binding.data["status"].to_string())
        })
        .await;
        // The scheduler ignores that the API is served again.
        serve_deployments(&hub, true).await;
        never("the new one is scheduled by itself", || async {
            let binding = get(&hub.hub, "ResourceBinding", &ns, "new-workloaddeployment").await?;
            (!nowhere(&binding)).then(|| binding.data["status"].to_string())
        })
        .await;
        merge(&hub.hub, "WorkloadDeployment", &ns, "new", json!({ "metadata": { "annotations": { "touched": "1" } } }))
            .await;
        there(&hub.dfw, "WorkloadDeployment", &ns, "new").await;
    });
}

#[test]
fn fact_68_selector_matches_one_of_several_values() {
    RUNTIME.block_on(async {
        let hub = hub().await;
        let ns = hub.namespace().await;
        let either = json!({ "matchExpressions": [{ "key": CITY, "operator": "In", "values": ["DFW", "dfw"] }] });
        let mut policy = policy(&ns, "dfw", &json!({ "clusterAffinity": { "labelSelector": either } }));
        policy["spec"]["resourceSelectors"][0]["labelSelector"] = either;
        apply(&hub.hub, policy).await;
        for (name, city) in [("lower", "dfw"), ("upper", "DFW"), ("mixed", "Dfw")] {
            hub.template(&ns, name, city, "").await;
        }
        let lower = there(&hub.dfw, "WorkloadDeployment", &ns, "lower").await.uid();
        there(&hub.dfw, "WorkloadDeployment", &ns, "upper").await;
        absent(&hub.hub, "ResourceBinding", &ns, "mixed-workloaddeployment").await;
        absent(&hub.ord, "WorkloadDeployment", &ns, "lower").await;
        // The label of the cluster may change its spelling.
        hub.label_cluster("cell-dfw", json!("DFW")).await;
        kept(&hub.dfw, "WorkloadDeployment", &ns, "lower", lower.as_deref()).await;
        hub.label_cluster("cell-dfw", json!("dfw")).await;
    });
}
