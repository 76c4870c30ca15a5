//! Objects that a policy claims, and the migration from there to dependencies.

use super::*;

#[test]
fn facts_34_and_35_foreign_claim_decides_for_a_template_and_adds_to_a_dependency() {
    RUNTIME.block_on(async {
        let hub = hub().await;
        let ns = hub.namespace().await;
        let mut other = policy(&ns, "dfw", &json!({ "clusterAffinity": { "labelSelector": { "matchLabels": { CITY: "ord" } } } }));
        other["metadata"]["name"] = json!("a-other");
        other["spec"]["resourceSelectors"] = json!([
            { "apiVersion": "compute.datumapis.com/v1alpha", "kind": "WorkloadDeployment", "namespace": ns, "name": "taken" },
            { "apiVersion": "v1", "kind": "ConfigMap", "namespace": ns, "name": "data" },
        ]);
        apply(&hub.hub, other).await;
        hub.policy(&ns, "dfw").await;
        hub.template(&ns, "taken", "dfw", "").await;
        there(&hub.ord, "WorkloadDeployment", &ns, "taken").await;
        let taken = there(&hub.hub, "WorkloadDeployment", &ns, "taken").await;
        assert_eq!(taken.annotations()["propagationpolicy.karmada.io/name"], "a-other");
        absent(&hub.dfw, "WorkloadDeployment", &ns, "taken").await;
        hub.config(&ns, "data", "v").await;
        hub.template(&ns, "wd", "dfw", r#"["ConfigMap/data"]"#).await;
        there(&hub.dfw, "ConfigMap", &ns, "data").await;
        there(&hub.ord, "ConfigMap", &ns, "data").await;
    });
}

/// Returns a policy that claims companions as well as deployments, as the Go operator's policies do.
fn claiming(ns: &str, city: &str, by_need: bool) -> Value {
    let mut policy =
        policy(ns, city, &json!({ "clusterAffinity": { "labelSelector": { "matchLabels": { CITY: city } } } }));
    policy["spec"]["propagateDeps"] = json!(by_need);
    let companions = json!({ "apiVersion": "v1", "kind": "ConfigMap", "namespace": ns, "name": "shared" });
    policy["spec"]["resourceSelectors"].as_array_mut().unwrap().push(companions);
    policy
}

#[test]
fn facts_21_to_27_migration_from_claims_to_dependencies() {
    RUNTIME.block_on(async {
        let hub = hub().await;
        let ns = hub.namespace().await;
        for city in ["dfw", "ord"] {
            apply(&hub.hub, claiming(&ns, city, false)).await;
            hub.template(&ns, &format!("wd-{city}"), city, r#"["ConfigMap/shared"]"#).await;
        }
        hub.config(&ns, "shared", "v").await;
        // 21: the first policy claims the ConfigMap permanently.
        let copy = there(&hub.dfw, "ConfigMap", &ns, "shared").await.uid();
        there(&hub.ord, "WorkloadDeployment", &ns, "wd-ord").await;
        absent(&hub.ord, "ConfigMap", &ns, "shared").await;
        // 23: it becomes a dependency as well, and nothing moves.
        for city in ["dfw", "ord"] {
            apply(&hub.hub, claiming(&ns, city, true)).await;
        }
        there(&hub.ord, "ConfigMap", &ns, "shared").await;
        kept(&hub.dfw, "ConfigMap", &ns, "shared", copy.as_deref()).await;
        let both = |b: &DynamicObject| b.data["spec"]["requiredBy"].as_array().is_some_and(|list| list.len() == 2);
        let binding = hub.binding(&ns, "shared-configmap", "both need it", both).await;
        assert_eq!(binding.data["spec"]["clusters"], json!([{ "name": "cell-dfw" }]));
        let in_ord = there(&hub.ord, "ConfigMap", &ns, "shared").await.uid();
        // 24: the selectors are removed, one policy after the other. The other policy may claim the ConfigMap in between. The
        // schedule stays.
        for city in ["dfw", "ord"] {
            hub.policy(&ns, city).await;
        }
        kept(&hub.dfw, "ConfigMap", &ns, "shared", copy.as_deref()).await;
        kept(&hub.ord, "ConfigMap", &ns, "shared", in_ord.as_deref()).await;
        let left = get(&hub.hub, "ResourceBinding", &ns, "shared-configmap").await.unwrap();
        let dfw_is_left = on(&left, "cell-dfw");
        assert!(dfw_is_left || on(&left, "cell-ord"), "{}", left.data["spec"]);
        let (residue, city, uid, other, other_uid) = if dfw_is_left {
            (&hub.dfw, "dfw", copy, &hub.ord, in_ord)
        } else {
            (&hub.ord, "ord", in_ord, &hub.dfw, copy)
        };
        // 26: the copy stays in that city when nothing needs it there any more.
        delete(&hub.hub, "WorkloadDeployment", &ns, &format!("wd-{city}")).await;
        gone(residue, "WorkloadDeployment", &ns, &format!("wd-{city}")).await;
        kept(residue, "ConfigMap", &ns, "shared", uid.as_deref()).await;
        // 27: the repair clears first the template, then the binding.
        heal(&hub, &ns).await;
        gone(residue, "ConfigMap", &ns, "shared").await;
        kept(other, "ConfigMap", &ns, "shared", other_uid.as_deref()).await;
        let healed = get(&hub.hub, "ResourceBinding", &ns, "shared-configmap").await.unwrap();
        assert!(healed.data["spec"]["clusters"].is_null() && healed.data["spec"]["placement"].is_null());
        // From then on, fact 16 holds.
        let last = if dfw_is_left { "wd-ord" } else { "wd-dfw" };
        delete(&hub.hub, "WorkloadDeployment", &ns, last).await;
        gone(other, "ConfigMap", &ns, "shared").await;
    });
}

/// Removes the residue of a claim from the template, then from its binding.
async fn heal(hub: &Hub, ns: &str) -> DynamicObject {
    let claim = "propagationpolicy.karmada.io";
    let marks = json!({
        "labels": { format!("{claim}/permanent-id"): null },
        "annotations": {
            format!("{claim}/name"): null, format!("{claim}/namespace"): null,
            "policy.karmada.io/applied-placement": null,
        },
    });
    merge(&hub.hub, "ConfigMap", ns, "shared", json!({ "metadata": marks })).await;
    let healed = json!({ "metadata": marks, "spec": { "clusters": null, "placement": null } });
    merge(&hub.hub, "ResourceBinding", ns, "shared-configmap", healed).await
}

#[test]
fn fact_28_rollback_removes_the_data_of_the_city_without_the_claim() {
    RUNTIME.block_on(async {
        let hub = hub().await;
        let ns = hub.namespace().await;
        hub.config(&ns, "shared", "v").await;
        for city in ["dfw", "ord"] {
            hub.policy(&ns, city).await;
            hub.template(&ns, &format!("wd-{city}"), city, r#"["ConfigMap/shared"]"#).await;
        }
        let in_dfw = there(&hub.dfw, "ConfigMap", &ns, "shared").await.uid();
        let in_ord = there(&hub.ord, "ConfigMap", &ns, "shared").await.uid();
        // First the selectors, with dependencies as before. In one step, the winner's copy may be recreated as well.
        for city in ["dfw", "ord"] {
            apply(&hub.hub, claiming(&ns, city, true)).await;
        }
        let claimed = |b: &DynamicObject| on(b, "cell-dfw") || on(b, "cell-ord");
        let binding = hub.binding(&ns, "shared-configmap", "one of them has claimed it", claimed).await;
        for city in ["dfw", "ord"] {
            apply(&hub.hub, claiming(&ns, city, false)).await;
        }
        let (winner, uid, loser) =
            if on(&binding, "cell-dfw") { (&hub.dfw, in_dfw, &hub.ord) } else { (&hub.ord, in_ord, &hub.dfw) };
        gone(loser, "ConfigMap", &ns, "shared").await;
        kept(winner, "ConfigMap", &ns, "shared", uid.as_deref()).await;
    });
}

#[test]
fn fact_58_karmada_may_overwrite_with_a_stale_read() {
    RUNTIME.block_on(async {
        let hub = hub().await;
        let why = "the order of its writes and ours cannot be forced there; it was seen in two migrations of two";
        let Some(karmada) = hub.stand_in(why) else { return };
        let ns = hub.namespace().await;
        hub.config(&ns, "shared", "v").await;
        apply(&hub.hub, claiming(&ns, "dfw", true)).await;
        hub.template(&ns, "wd", "dfw", r#"["ConfigMap/shared"]"#).await;
        let held = |b: &DynamicObject| {
            let needed = b.data["spec"]["requiredBy"].as_array().is_some_and(|list| list.len() == 1);
            on(b, "cell-dfw") && needed && b.annotations().contains_key("policy.karmada.io/applied-placement")
        };
        let before = hub.binding(&ns, "shared-configmap", "it is claimed and needed", held).await;
        karmada.write_late(&ns, "shared-configmap");
        eventually("the scheduler has read it", || async {
            if karmada.late_write_is_read(&ns, "shared-configmap") { Ok(()) } else { Err("not yet".to_owned()) }
        })
        .await;
        // The operator's write removes the claim.
        hub.policy(&ns, "dfw").await;
        let ours = heal(&hub, &ns).await;
        assert!(ours.data["spec"]["placement"].is_null());
        // Karmada writes afterwards, and its write stays. No policy claims the binding, and nothing repairs it.
        let back = |b: &DynamicObject| b.data["spec"]["placement"].is_object();
        let residue = hub.binding(&ns, "shared-configmap", "the read schedule is restored", back).await;
        assert_eq!(residue.data["spec"]["clusters"], before.data["spec"]["clusters"]);
        assert_eq!(residue.data["spec"]["placement"], before.data["spec"]["placement"]);
        assert!(residue.annotations().contains_key("policy.karmada.io/applied-placement"));
        assert!(!residue.labels().contains_key("propagationpolicy.karmada.io/permanent-id"), "our marks stay off");
        never("it heals by itself", || async {
            let found = get(&hub.hub, "ResourceBinding", &ns, "shared-configmap").await?;
            found.data["spec"]["placement"].is_null().then(|| "it has".to_owned())
        })
        .await;
        // 26: after its last user, the copy stays in the cell.
        delete(&hub.hub, "WorkloadDeployment", &ns, "wd").await;
        gone(&hub.dfw, "WorkloadDeployment", &ns, "wd").await;
        let copy = there(&hub.dfw, "ConfigMap", &ns, "shared").await.uid();
        kept(&hub.dfw, "ConfigMap", &ns, "shared", copy.as_deref()).await;
    });
}

#[test]
fn fact_67_cluster_wide_policy_claims_with_its_own_keys_and_keeps_the_claim() {
    RUNTIME.block_on(async {
        let hub = hub().await;
        let ns = hub.namespace().await;
        let name = format!("wide-{ns}");
        let mut wide = policy(&ns, "dfw", &json!({ "clusterAffinity": { "clusterNames": ["cell-ord"] } }));
        wide["kind"] = json!("ClusterPropagationPolicy");
        wide["metadata"] = json!({ "name": name });
        apply(&hub.hub, wide).await;
        hub.template(&ns, "wd", "dfw", "").await;
        there(&hub.ord, "WorkloadDeployment", &ns, "wd").await;
        // A policy of the namespace comes too late.
        hub.policy(&ns, "dfw").await;
        absent(&hub.dfw, "WorkloadDeployment", &ns, "wd").await;
        let id = "clusterpropagationpolicy.karmada.io/permanent-id";
        let wide = get(&hub.hub, "ClusterPropagationPolicy", "", &name).await.unwrap();
        for (kind, object) in [("WorkloadDeployment", "wd"), ("ResourceBinding", "wd-workloaddeployment")] {
            let claimed = get(&hub.hub, kind, &ns, object).await.unwrap();
            assert_eq!(claimed.labels()[id], wide.labels()[id], "{kind}");
            assert_eq!(claimed.annotations()["clusterpropagationpolicy.karmada.io/name"], name, "{kind}");
            let other = |key: &String| key.starts_with("propagationpolicy.karmada.io/");
            assert!(!claimed.labels().keys().chain(claimed.annotations().keys()).any(other), "{kind}");
        }
        // The cluster-wide policy is deleted. The namespace's own policy takes over, with its own placement.
        delete(&hub.hub, "ClusterPropagationPolicy", "", &name).await;
        there(&hub.dfw, "WorkloadDeployment", &ns, "wd").await;
        gone(&hub.ord, "WorkloadDeployment", &ns, "wd").await;
        let template = get(&hub.hub, "WorkloadDeployment", &ns, "wd").await.unwrap();
        assert!(!template.labels().contains_key(id));
        assert_eq!(template.annotations()["propagationpolicy.karmada.io/name"], "city-dfw");
    });
}

#[test]
fn fact_69_unclaimed_placement_is_scheduled_when_a_cluster_changes() {
    RUNTIME.block_on(async {
        let hub = hub().await;
        let ns = hub.deployed().await;
        hub.config(&ns, "data", "v").await;
        hub.template(&ns, "wd", "dfw", r#"["ConfigMap/data"]"#).await;
        let copy = there(&hub.dfw, "ConfigMap", &ns, "data").await.uid();
        let attached = |b: &DynamicObject| b.data["spec"]["requiredBy"].as_array().is_some_and(|list| list.len() == 1);
        hub.binding(&ns, "data-configmap", "it is attached", attached).await;
        let residue = json!({ "spec": { "placement": { "clusterAffinity": { "labelSelector": {
            "matchLabels": { "residue": "here" },
        } } } } });
        merge(&hub.hub, "ResourceBinding", &ns, "data-configmap", residue).await;
        // Neither time nor a change of the object causes scheduling.
        hub.config(&ns, "data", "w").await;
        eventually("the change has travelled", || async {
            let copy = get(&hub.dfw, "ConfigMap", &ns, "data").await.ok_or("gone")?;
            if copy.data["data"]["k"] == "w" { Ok(()) } else { Err("not yet".to_owned()) }
        })
        .await;
        absent(&hub.ord, "ConfigMap", &ns, "data").await;
        // A change of a matching cluster causes scheduling, in addition to the dependency.
        merge(&hub.hub, "Cluster", "", "cell-ord", json!({ "metadata": { "labels": { "residue": "here" } } })).await;
        there(&hub.ord, "ConfigMap", &ns, "data").await;
        let binding = get(&hub.hub, "ResourceBinding", &ns, "data-configmap").await.unwrap();
        assert!(on(&binding, "cell-ord"));
        assert!(binding.annotations().contains_key("policy.karmada.io/applied-placement"));
        assert!(!binding.labels().contains_key("propagationpolicy.karmada.io/permanent-id"));
        kept(&hub.dfw, "ConfigMap", &ns, "data", copy.as_deref()).await;
        merge(&hub.hub, "Cluster", "", "cell-ord", json!({ "metadata": { "labels": { "residue": null } } })).await;
        gone(&hub.ord, "ConfigMap", &ns, "data").await;
        kept(&hub.dfw, "ConfigMap", &ns, "data", copy.as_deref()).await;
    });
}
