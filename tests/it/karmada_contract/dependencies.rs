//! Dependencies of a deployment follow the deployment.

use super::*;

#[test]
fn facts_15_to_19_and_36_dependencies_follow_their_deployments() {
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
        // 16: the result is the union.
        let kept = there(&hub.dfw, "ConfigMap", &ns, "shared").await.uid();
        there(&hub.ord, "ConfigMap", &ns, "shared").await;
        // 15: the binding is attached, without a placement.
        let both = |b: &DynamicObject| b.data["spec"]["requiredBy"].as_array().is_some_and(|list| list.len() == 2);
        let attached = hub.binding(&ns, "shared-configmap", "both parents are in it", both).await;
        assert!(attached.data["spec"].get("placement").is_none_or(Value::is_null));
        assert!(attached.labels().keys().any(|key| key.starts_with("resourcebinding.karmada.io/depended-by-")));
        let parent = get(&hub.hub, "ResourceBinding", &ns, "wd-dfw-workloaddeployment").await.unwrap();
        assert!(parent.annotations()["resourcebinding.karmada.io/dependencies"].contains("shared"));
        // 36: the dependency comes late, and is delivered at once.
        absent(&hub.hub, "ResourceBinding", &ns, "late-configmap").await;
        hub.config(&ns, "late", "1").await;
        there(&hub.ord, "ConfigMap", &ns, "late").await;
        // 19
        absent(&hub.dfw, "ConfigMap", &other, "foreign").await;
        // A changed payload is delivered.
        hub.config(&ns, "shared", "2").await;
        eventually("the change is there", || async {
            let copy = get(&hub.ord, "ConfigMap", &ns, "shared").await.ok_or("gone")?;
            if copy.data["data"]["k"] == "2" { Ok(()) } else { Err(copy.data.to_string()) }
        })
        .await;
        // 16: one parent is deleted, and only its city loses the copy.
        delete(&hub.hub, "WorkloadDeployment", &ns, "wd-ord").await;
        gone(&hub.ord, "ConfigMap", &ns, "shared").await;
        assert_eq!(there(&hub.dfw, "ConfigMap", &ns, "shared").await.uid(), kept);
        // 18: the ConfigMap is deleted while it is needed, and so is the copy. Recreated, it returns.
        delete(&hub.hub, "ConfigMap", &ns, "shared").await;
        gone(&hub.dfw, "ConfigMap", &ns, "shared").await;
        hub.config(&ns, "shared", "3").await;
        there(&hub.dfw, "ConfigMap", &ns, "shared").await;
        // 17: the last parent is deleted. The object stays on the hub, and its binding has no parent.
        delete(&hub.hub, "WorkloadDeployment", &ns, "wd-dfw").await;
        gone(&hub.dfw, "ConfigMap", &ns, "shared").await;
        let nobody = |b: &DynamicObject| b.data["spec"]["requiredBy"].as_array().is_none_or(Vec::is_empty);
        hub.binding(&ns, "shared-configmap", "it has no requiring binding", nobody).await;
        assert!(get(&hub.hub, "ConfigMap", &ns, "shared").await.is_some());
        delete(&hub.hub, "ConfigMap", &ns, "shared").await;
        gone(&hub.hub, "ResourceBinding", &ns, "shared-configmap").await;
    });
}

/// Karmada before 1.15.3 only noticed the first dependency of a kind (its issue 6924, fixed by 6931).
#[test]
fn fact_20_later_second_dependency_of_a_kind_is_delivered_and_updated() {
    RUNTIME.block_on(async {
        let hub = hub().await;
        let ns = hub.namespace().await;
        let needs = r#"["ConfigMap/first","ConfigMap/second"]"#;
        hub.config(&ns, "first", "1").await;
        hub.policy(&ns, "dfw").await;
        hub.template(&ns, "wd", "dfw", needs).await;
        there(&hub.dfw, "ConfigMap", &ns, "first").await;
        let arrives = async |value: &str| {
            eventually(&format!("the second one is {value}"), || async {
                let copy = get(&hub.dfw, "ConfigMap", &ns, "second").await.ok_or("not there")?;
                if copy.data["data"]["k"] == value { Ok(()) } else { Err(copy.data["data"].to_string()) }
            })
            .await;
        };
        hub.config(&ns, "second", "1").await;
        arrives("1").await;
        hub.config(&ns, "second", "2").await;
        arrives("2").await;
        let Some(karmada) = hub.stand_in("an older Karmada is another binary") else { return };
        // The stand-in plays the older Karmada: it follows the first dependency. It ignores the second, and does not recreate it.
        karmada.hear_of_later(false);
        hub.config(&ns, "second", "3").await;
        hub.config(&ns, "first", "3").await;
        eventually("the first one follows, and the second with it", || async {
            let copy = get(&hub.dfw, "ConfigMap", &ns, "first").await.ok_or("not there")?;
            if copy.data["data"]["k"] == "3" { Ok(()) } else { Err(copy.data["data"].to_string()) }
        })
        .await;
        arrives("3").await;
        hub.config(&ns, "second", "4").await;
        never("its change arrives", || async {
            let copy = get(&hub.dfw, "ConfigMap", &ns, "second").await?;
            (copy.data["data"]["k"] == "4").then_some(())
        })
        .await;
        delete(&hub.hub, "ConfigMap", &ns, "second").await;
        gone(&hub.dfw, "ConfigMap", &ns, "second").await;
        hub.config(&ns, "second", "5").await;
        absent(&hub.dfw, "ConfigMap", &ns, "second").await;
        karmada.hear_of_later(true);
        arrives("5").await;
    });
}

#[test]
fn facts_40_and_41_malformed_annotations_are_harmless() {
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
        assert_eq!(names, ["absent", "good"], "each once, in Karmada's own order");
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
fn fact_37_disabled_feature_gate_ignores_dependencies() {
    RUNTIME.block_on(async {
        let hub = hub().await;
        let why = "the gate is a flag of its processes, which the testbed starts with it on";
        let Some(karmada) = hub.stand_in(why) else { return };
        karmada.propagate_deps(false);
        let ns = hub.deployed().await;
        hub.config(&ns, "data", "v").await;
        hub.template(&ns, "wd", "dfw", r#"["ConfigMap/data"]"#).await;
        let parent = hub
            .binding(&ns, "wd-workloaddeployment", "all is True", |b| condition(b, "FullyApplied")["status"] == "True")
            .await;
        assert_eq!(parent.data["spec"]["propagateDeps"], true);
        absent(&hub.dfw, "ConfigMap", &ns, "data").await;
        let parent = get(&hub.hub, "ResourceBinding", &ns, &parent.name_any()).await.unwrap();
        assert!(!parent.annotations().contains_key("resourcebinding.karmada.io/dependencies"));
        assert!(!parent.finalizers().iter().any(|f| f == "karmada.io/binding-dependencies-distributor"));
        karmada.propagate_deps(true);
        there(&hub.dfw, "ConfigMap", &ns, "data").await;
    });
}

#[test]
fn fact_38_missing_script_adds_no_dependency_and_keeps_delivered_ones() {
    RUNTIME.block_on(async {
        let hub = hub().await;
        let old = hub.deployed().await;
        hub.config(&old, "data", "v").await;
        hub.template(&old, "wd", "dfw", r#"["ConfigMap/data"]"#).await;
        let copy = there(&hub.dfw, "ConfigMap", &old, "data").await.uid();
        let on_record = "resourcebinding.karmada.io/dependencies";
        let recorded = |b: &DynamicObject| b.annotations().contains_key(on_record);
        let before = hub.binding(&old, "wd-workloaddeployment", "it is on record", recorded).await;
        let raising = json!({ "luaScript": "function GetDependencies(o) error('no') end" });
        for without in [Value::Null, raising] {
            let script = Script::replace(&hub, without).await;
            let ns = hub.namespace().await;
            hub.config(&ns, "data", "v").await;
            hub.policy(&ns, "dfw").await;
            hub.template(&ns, "wd", "dfw", r#"["ConfigMap/data"]"#).await;
            let applied = |b: &DynamicObject| condition(b, "FullyApplied")["status"] == "True";
            hub.binding(&ns, "wd-workloaddeployment", "all is True", applied).await;
            absent(&hub.dfw, "ConfigMap", &ns, "data").await;
            let parent = get(&hub.hub, "ResourceBinding", &ns, "wd-workloaddeployment").await.unwrap();
            assert!(!parent.annotations().contains_key(on_record));
            assert!(applied(&parent));
            // An old deployment keeps its record, even after a touch.
            let touch = json!({ "metadata": { "annotations": { "touched": fastrand::u32(..).to_string() } } });
            merge(&hub.hub, "WorkloadDeployment", &old, "wd", touch).await;
            kept(&hub.dfw, "ConfigMap", &old, "data", copy.as_deref()).await;
            let parent = get(&hub.hub, "ResourceBinding", &old, "wd-workloaddeployment").await.unwrap();
            assert_eq!(parent.annotations()[on_record], before.annotations()[on_record]);
            script.restore(&hub).await;
            merge(
                &hub.hub,
                "WorkloadDeployment",
                &ns,
                "wd",
                json!({ "metadata": { "annotations": { "touched": "1" } } }),
            )
            .await;
            there(&hub.dfw, "ConfigMap", &ns, "data").await;
        }
        kept(&hub.dfw, "ConfigMap", &old, "data", copy.as_deref()).await;
    });
}

#[test]
fn fact_39_invalid_dependency_name_is_reported_and_the_others_arrive() {
    RUNTIME.block_on(async {
        let hub = hub().await;
        let careless = "function GetDependencies(o) return { { apiVersion = 'v1', kind = 'ConfigMap', namespace = o.metadata.namespace, name = '../x' }, { apiVersion = 'v1', kind = 'ConfigMap', namespace = o.metadata.namespace, name = 'data' } } end";
        let script = Script::replace(&hub, json!({ "luaScript": careless })).await;
        let ns = hub.deployed().await;
        hub.config(&ns, "data", "v").await;
        hub.template(&ns, "wd", "dfw", r#"["ConfigMap/data","ConfigMap/../x"]"#).await;
        hub.binding(&ns, "wd-workloaddeployment", "it is on record", |b| {
            b.annotations().get("resourcebinding.karmada.io/dependencies").is_some_and(|text| text.contains("../x"))
        })
        .await;
        there(&hub.dfw, "ConfigMap", &ns, "data").await;
        eventually("it is reported", || async {
            let events = list(&hub.hub, "Event", &ns).await;
            let told = events.iter().any(|event| {
                event.data["reason"] == "SyncScheduleResultToDependenciesFailed"
                    && event.data["note"].as_str().is_some_and(|note| note.contains("../x"))
            });
            if told { Ok(()) } else { Err(format!("{} Events", events.len())) }
        })
        .await;
        script.restore(&hub).await;
    });
}

/// The interpreter before the test.
struct Script(Value);

const INTERPRETER: (&str, &str) = ("ResourceInterpreterCustomization", "workloaddeployment");

impl Script {
    /// Replaces or removes the dependency script of the interpreter. Karmada reads it by a watch that a test cannot observe, so
    /// the test waits two seconds.
    async fn replace(hub: &Hub, script: Value) -> Self {
        let file =
            std::fs::read_to_string(crate::common::path("config/components/federation/interpreter.yaml")).unwrap();
        let ours: Value = testbed::manifests::documents(&file).unwrap().remove(0);
        let patch = json!({ "spec": { "customizations": { "dependencyInterpretation": script } } });
        merge(&hub.hub, INTERPRETER.0, "", INTERPRETER.1, patch).await;
        tokio::time::sleep(ABSENT).await;
        Self(ours)
    }

    async fn restore(self, hub: &Hub) {
        merge(&hub.hub, INTERPRETER.0, "", INTERPRETER.1, json!({ "spec": self.0["spec"] })).await;
        tokio::time::sleep(ABSENT).await;
    }
}
