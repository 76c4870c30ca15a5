//! Objects that a policy claims for itself, and the way from there to dependencies.

use super::*;

#[test]
fn facts_34_and_35_a_claim_of_another_policy_decides_over_a_template_and_adds_to_a_dependency() {
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
        assert!(get(&hub.dfw, "WorkloadDeployment", &ns, "taken").await.is_none());
        hub.config(&ns, "data", "v").await;
        hub.template(&ns, "wd", "dfw", r#"["ConfigMap/data"]"#).await;
        there(&hub.dfw, "ConfigMap", &ns, "data").await;
        there(&hub.ord, "ConfigMap", &ns, "data").await;
    });
}

/// A policy that claims companions as well as deployments, as the Go operator's do.
fn claiming(ns: &str, city: &str, by_need: bool) -> Value {
    let mut policy =
        policy(ns, city, &json!({ "clusterAffinity": { "labelSelector": { "matchLabels": { CITY: city } } } }));
    policy["spec"]["propagateDeps"] = json!(by_need);
    let companions = json!({ "apiVersion": "v1", "kind": "ConfigMap", "namespace": ns, "name": "shared" });
    policy["spec"]["resourceSelectors"].as_array_mut().unwrap().push(companions);
    policy
}

#[test]
fn facts_21_to_27_the_way_from_claims_to_dependencies() {
    RUNTIME.block_on(async {
        let hub = hub().await;
        let ns = hub.namespace().await;
        for city in ["dfw", "ord"] {
            apply(&hub.hub, claiming(&ns, city, false)).await;
            hub.template(&ns, &format!("wd-{city}"), city, r#"["ConfigMap/shared"]"#).await;
        }
        hub.config(&ns, "shared", "v").await;
        // 21: the first claims it for good.
        let copy = there(&hub.dfw, "ConfigMap", &ns, "shared").await.uid();
        there(&hub.ord, "WorkloadDeployment", &ns, "wd-ord").await;
        assert!(get(&hub.ord, "ConfigMap", &ns, "shared").await.is_none());
        // 23: by need as well, and nothing moves.
        for city in ["dfw", "ord"] {
            apply(&hub.hub, claiming(&ns, city, true)).await;
        }
        there(&hub.ord, "ConfigMap", &ns, "shared").await;
        assert_eq!(there(&hub.dfw, "ConfigMap", &ns, "shared").await.uid(), copy);
        let both = |b: &DynamicObject| b.data["spec"]["requiredBy"].as_array().is_some_and(|list| list.len() == 2);
        let binding = hub.binding(&ns, "shared-configmap", "both need it", both).await;
        assert_eq!(binding.data["spec"]["clusters"], json!([{ "name": "cell-dfw" }]));
        // 24: the selectors go, the claim stays.
        for city in ["dfw", "ord"] {
            hub.policy(&ns, city).await;
        }
        delete(&hub.hub, "WorkloadDeployment", &ns, "wd-ord").await;
        gone(&hub.ord, "ConfigMap", &ns, "shared").await;
        assert_eq!(there(&hub.dfw, "ConfigMap", &ns, "shared").await.uid(), copy);
        let left = get(&hub.hub, "ResourceBinding", &ns, "shared-configmap").await.unwrap();
        assert_eq!(left.data["spec"]["clusters"], json!([{ "name": "cell-dfw" }]));
        // 27: healed by hand, first the template, then the binding.
        let claim = "propagationpolicy.karmada.io";
        let marks = json!({
            "labels": { format!("{claim}/permanent-id"): null },
            "annotations": {
                format!("{claim}/name"): null, format!("{claim}/namespace"): null,
                "policy.karmada.io/applied-placement": null,
            },
        });
        merge(&hub.hub, "ConfigMap", &ns, "shared", json!({ "metadata": marks })).await;
        let healed = json!({ "metadata": marks, "spec": { "clusters": null, "placement": null } });
        merge(&hub.hub, "ResourceBinding", &ns, "shared-configmap", healed).await;
        assert_eq!(there(&hub.dfw, "ConfigMap", &ns, "shared").await.uid(), copy);
        // And 16 holds from then on; without the healing it would have stayed there (26).
        delete(&hub.hub, "WorkloadDeployment", &ns, "wd-dfw").await;
        gone(&hub.dfw, "ConfigMap", &ns, "shared").await;
    });
}
