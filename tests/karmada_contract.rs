//! What we rely on in Karmada, fact by fact, against the stand-in, or against real Karmada when `KARMADA_BIN` and
//! `KARMADA_CRDS` are set. Each test is named after what was measured; the numbers are those of the list of facts that
//! the stand-in's documentation claims.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, missing_docs)]

mod common;

use common::{RUNTIME, apply, bed, condition, delete, deployment, eventually, get, list, merge};
use kube::{Client, ResourceExt, api::DynamicObject};
use serde_json::{Value, json};
use testbed::{Options, Testbed};
use tokio::sync::{Mutex, MutexGuard, OnceCell};

const CITY: &str = "topology.datum.net/city-code";
const DEPENDENCIES: &str = "compute.datumapis.com/expected-referenced-data";

/// A hub with two cells, and nobody else at work on it.
struct Hub {
    bed: Testbed,
    hub: Client,
    dfw: Client,
    ord: Client,
}

/// One test at a time: some take a cluster away.
async fn hub() -> MutexGuard<'static, Hub> {
    static HUB: OnceCell<Mutex<Hub>> = OnceCell::const_new();
    HUB.get_or_init(|| async {
        let bed = bed(Options { provider: false, ..Options::default() }).await;
        let client = |name: &'static str| {
            let file =
                if name == "hub" { &bed.hub } else { bed.cell(name).unwrap() }.kubeconfig(testbed::pki::User::Admin);
            async move { testbed::control_plane::client(&file).await.unwrap() }
        };
        let (hub, dfw, ord) = (client("hub").await, client("dfw").await, client("ord").await);
        Mutex::new(Hub { bed, hub, dfw, ord })
    })
    .await
    .lock()
    .await
}

impl Hub {
    async fn namespace(&self) -> String {
        let name = format!("fact-{:06x}", fastrand::u32(..0x0100_0000));
        apply(&self.hub, json!({ "apiVersion": "v1", "kind": "Namespace", "metadata": { "name": name } })).await;
        name
    }

    async fn template(&self, ns: &str, name: &str, city: &str, needs: &str) {
        let mut object = deployment(ns, name, city);
        object["metadata"]["labels"] = json!({ CITY: city });
        if !needs.is_empty() {
            object["metadata"]["annotations"] = json!({ DEPENDENCIES: needs });
        }
        apply(&self.hub, object).await;
    }

    async fn policy(&self, ns: &str, city: &str) {
        let labels = json!({ "matchLabels": { CITY: city } });
        apply(&self.hub, policy(ns, city, &json!({ "clusterAffinity": { "labelSelector": labels } }))).await;
    }

    /// A namespace with one deployment, `wd`, that goes to dfw, and has arrived there.
    async fn deployed(&self) -> String {
        let ns = self.namespace().await;
        self.policy(&ns, "dfw").await;
        self.template(&ns, "wd", "dfw", "").await;
        there(&self.dfw, "WorkloadDeployment", &ns, "wd").await;
        ns
    }

    /// The binding of a WorkloadDeployment, once it satisfies `check`.
    async fn binding(&self, ns: &str, name: &str, what: &str, check: impl Fn(&DynamicObject) -> bool) -> DynamicObject {
        eventually(what, || async {
            let found = get(&self.hub, "ResourceBinding", ns, name).await.ok_or("no binding")?;
            if check(&found) { Ok(found) } else { Err(serde_json::to_string(&found).unwrap()) }
        })
        .await
    }

    async fn config(&self, ns: &str, name: &str, value: &str) {
        apply(&self.hub, json!({ "apiVersion": "v1", "kind": "ConfigMap", "metadata": { "name": name, "namespace": ns }, "data": { "k": value } })).await;
    }
}

fn policy(ns: &str, city: &str, placement: &Value) -> Value {
    json!({
        "apiVersion": "policy.karmada.io/v1alpha1", "kind": "PropagationPolicy",
        "metadata": { "name": format!("city-{city}"), "namespace": ns },
        "spec": {
            "propagateDeps": true, "placement": placement,
            "resourceSelectors": [{
                "apiVersion": "compute.datumapis.com/v1alpha", "kind": "WorkloadDeployment", "namespace": ns,
                "labelSelector": { "matchLabels": { CITY: city } },
            }],
        },
    })
}

async fn there(client: &Client, kind: &str, ns: &str, name: &str) -> DynamicObject {
    eventually(&format!("{kind} {name} is there"), || async {
        get(client, kind, ns, name).await.ok_or("not there".into())
    })
    .await
}

async fn gone(client: &Client, kind: &str, ns: &str, name: &str) {
    eventually(&format!("{kind} {name} is gone"), || async {
        match get(client, kind, ns, name).await {
            None => Ok(()),
            Some(_) => Err("still there".into()),
        }
    })
    .await;
}

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
fn facts_15_to_19_and_36_dependencies_go_where_they_are_needed() {
    RUNTIME.block_on(async {
        let hub = hub().await;
        let ns = hub.namespace().await;
        let other = hub.namespace().await;
        hub.config(&ns, "shared", "1").await;
        hub.config(&other, "foreign", "1").await;
        for city in ["dfw", "ord"] {
            hub.policy(&ns, city).await;
            hub.template(&ns, &format!("wd-{city}"), city, r#"["ConfigMap/shared","ConfigMap/late"]"#).await;
        }
        // 16: the union.
        let kept = there(&hub.dfw, "ConfigMap", &ns, "shared").await.uid();
        there(&hub.ord, "ConfigMap", &ns, "shared").await;
        // 15: attached, without a placement of its own.
        let both = |b: &DynamicObject| b.data["spec"]["requiredBy"].as_array().is_some_and(|list| list.len() == 2);
        let attached = hub.binding(&ns, "shared-configmap", "both parents are in it", both).await;
        assert!(attached.data["spec"].get("placement").is_none_or(Value::is_null));
        assert!(attached.labels().keys().any(|key| key.starts_with("resourcebinding.karmada.io/depended-by-")));
        let parent = get(&hub.hub, "ResourceBinding", &ns, "wd-dfw-workloaddeployment").await.unwrap();
        assert!(parent.annotations()["resourcebinding.karmada.io/dependencies"].contains("shared"));
        // 36: late, but delivered at once.
        assert!(get(&hub.hub, "ResourceBinding", &ns, "late-configmap").await.is_none());
        hub.config(&ns, "late", "1").await;
        there(&hub.ord, "ConfigMap", &ns, "late").await;
        // 19
        assert!(get(&hub.dfw, "ConfigMap", &other, "foreign").await.is_none());
        // A changed payload travels.
        hub.config(&ns, "shared", "2").await;
        eventually("the change is there", || async {
            let copy = get(&hub.ord, "ConfigMap", &ns, "shared").await.ok_or("gone")?;
            if copy.data["data"]["k"] == "2" { Ok(()) } else { Err(copy.data.to_string()) }
        })
        .await;
        // 16: one parent goes, its city alone loses it.
        delete(&hub.hub, "WorkloadDeployment", &ns, "wd-ord").await;
        gone(&hub.ord, "ConfigMap", &ns, "shared").await;
        assert_eq!(there(&hub.dfw, "ConfigMap", &ns, "shared").await.uid(), kept);
        // 18: deleted while needed, it goes; made again, it comes back.
        delete(&hub.hub, "ConfigMap", &ns, "shared").await;
        gone(&hub.dfw, "ConfigMap", &ns, "shared").await;
        hub.config(&ns, "shared", "3").await;
        there(&hub.dfw, "ConfigMap", &ns, "shared").await;
        // 17: the last parent goes; the object stays on the hub, its binding with nobody in it.
        delete(&hub.hub, "WorkloadDeployment", &ns, "wd-dfw").await;
        gone(&hub.dfw, "ConfigMap", &ns, "shared").await;
        let nobody = |b: &DynamicObject| b.data["spec"]["requiredBy"].as_array().is_none_or(Vec::is_empty);
        hub.binding(&ns, "shared-configmap", "nobody requires it", nobody).await;
        assert!(get(&hub.hub, "ConfigMap", &ns, "shared").await.is_some());
        delete(&hub.hub, "ConfigMap", &ns, "shared").await;
        gone(&hub.hub, "ResourceBinding", &ns, "shared-configmap").await;
    });
}

#[test]
fn facts_40_and_41_odd_annotations_do_no_harm() {
    RUNTIME.block_on(async {
        let hub = hub().await;
        let ns = hub.namespace().await;
        hub.policy(&ns, "dfw").await;
        hub.config(&ns, "good", "1").await;
        let odd = r#"["ConfigMap/good","Pod/x","Secret/../x","ConfigMap/","ConfigMap/UPPER","nonsense","ConfigMap/absent","ConfigMap/good"]"#;
        hub.template(&ns, "odd", "dfw", odd).await;
        there(&hub.dfw, "ConfigMap", &ns, "good").await;
        let recorded = |b: &DynamicObject| b.annotations().contains_key("resourcebinding.karmada.io/dependencies");
        let parent = hub.binding(&ns, "odd-workloaddeployment", "its dependencies are recorded", recorded).await;
        let known: Value = serde_json::from_str(&parent.annotations()["resourcebinding.karmada.io/dependencies"]).unwrap();
        let names: Vec<&Value> = known.as_array().unwrap().iter().map(|d| &d["name"]).collect();
        assert_eq!(names, ["good", "absent"]);
        let huge = format!("[{}]", vec!["\"ConfigMap/x\""; 9000].join(","));
        for (name, text) in [("not-json", "{{{"), ("huge", huge.as_str()), ("number", "7")] {
            hub.template(&ns, name, "dfw", text).await;
            there(&hub.dfw, "WorkloadDeployment", &ns, name).await;
        }
        let parent = hub.binding(&ns, "not-json-workloaddeployment", "its dependencies are recorded", recorded).await;
        assert_eq!(parent.annotations()["resourcebinding.karmada.io/dependencies"], "[]");
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

#[test]
fn fact_37_without_the_feature_gate_nobody_takes_dependencies_up() {
    RUNTIME.block_on(async {
        let hub = hub().await;
        let Some(karmada) = hub.bed.stand_in() else { return };
        karmada.propagate_deps(false);
        let ns = hub.deployed().await;
        hub.config(&ns, "data", "v").await;
        hub.template(&ns, "wd", "dfw", r#"["ConfigMap/data"]"#).await;
        let parent = hub
            .binding(&ns, "wd-workloaddeployment", "all is True", |b| condition(b, "FullyApplied")["status"] == "True")
            .await;
        assert_eq!(parent.data["spec"]["propagateDeps"], true);
        assert!(!parent.annotations().contains_key("resourcebinding.karmada.io/dependencies"));
        assert!(!parent.finalizers().iter().any(|f| f == "karmada.io/binding-dependencies-distributor"));
        karmada.propagate_deps(true);
        there(&hub.dfw, "ConfigMap", &ns, "data").await;
    });
}

#[test]
fn fact_38_without_its_script_a_deployment_has_no_dependencies_on_record() {
    RUNTIME.block_on(async {
        let hub = hub().await;
        let script = get(&hub.hub, "ResourceInterpreterCustomization", "", "workloaddeployment").await.unwrap();
        let without = json!({ "spec": { "customizations": { "dependencyInterpretation": null } } });
        merge(&hub.hub, "ResourceInterpreterCustomization", "", "workloaddeployment", without).await;
        let ns = hub.deployed().await;
        hub.config(&ns, "data", "v").await;
        hub.template(&ns, "wd", "dfw", r#"["ConfigMap/data"]"#).await;
        let parent = hub
            .binding(&ns, "wd-workloaddeployment", "all is True", |b| condition(b, "FullyApplied")["status"] == "True")
            .await;
        assert!(!parent.annotations().contains_key("resourcebinding.karmada.io/dependencies"));
        let back = json!({ "spec": script.data["spec"] });
        merge(&hub.hub, "ResourceInterpreterCustomization", "", "workloaddeployment", back).await;
        there(&hub.dfw, "ConfigMap", &ns, "data").await;
    });
}

#[test]
fn fact_39_an_invalid_name_among_the_dependencies_holds_up_the_others() {
    RUNTIME.block_on(async {
        let hub = hub().await;
        let script = get(&hub.hub, "ResourceInterpreterCustomization", "", "workloaddeployment").await.unwrap();
        let careless = "function GetDependencies(o) return { { apiVersion = 'v1', kind = 'ConfigMap', namespace = o.metadata.namespace, name = '../x' }, { apiVersion = 'v1', kind = 'ConfigMap', namespace = o.metadata.namespace, name = 'data' } } end";
        let patch = json!({ "spec": { "customizations": { "dependencyInterpretation": { "luaScript": careless } } } });
        merge(&hub.hub, "ResourceInterpreterCustomization", "", "workloaddeployment", patch).await;
        let ns = hub.deployed().await;
        hub.config(&ns, "data", "v").await;
        hub.template(&ns, "wd", "dfw", r#"["ConfigMap/data","ConfigMap/../x"]"#).await;
        hub.binding(&ns, "wd-workloaddeployment", "it is on record", |b| {
            b.annotations().get("resourcebinding.karmada.io/dependencies").is_some_and(|text| text.contains("../x"))
        })
        .await;
        assert!(get(&hub.dfw, "ConfigMap", &ns, "data").await.is_none());
        // Our script drops it, and the others arrive.
        let back = json!({ "spec": script.data["spec"] });
        merge(&hub.hub, "ResourceInterpreterCustomization", "", "workloaddeployment", back).await;
        there(&hub.dfw, "ConfigMap", &ns, "data").await;
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
