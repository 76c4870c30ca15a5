//! Values in Karmada's interpreter: empty values, and names with odd characters.

use super::*;

/// Returns a deployment with one interface for each of these network policies (null for none), and with these additional fields
/// in its container.
fn with(ns: &str, name: &str, policies: &[&Value], container: &Value) -> Value {
    let mut object = deployment(ns, name, "dfw");
    object["metadata"]["labels"] = json!({ CITY: "dfw" });
    let spec = &mut object["spec"]["template"]["spec"];
    if !policies.is_empty() {
        let interface = |policy: &&Value| match policy {
            Value::Null => json!({ "network": { "name": "default" } }),
            policy => json!({ "network": { "name": "default" }, "networkPolicy": policy }),
        };
        spec["networkInterfaces"] = policies.iter().map(interface).collect();
    }
    for (field, value) in container.as_object().into_iter().flatten() {
        spec["runtime"]["sandbox"]["containers"][0][field] = value.clone();
    }
    object
}

/// Waits until the member has exactly the template's spec.
async fn arrived(hub: &Hub, ns: &str, name: &str, what: &str) {
    eventually(&format!("{what}: the member has the template's spec"), || async {
        let wanted = get(&hub.hub, "WorkloadDeployment", ns, name).await.ok_or("no template")?;
        let found = get(&hub.dfw, "WorkloadDeployment", ns, name).await.ok_or("not on the member")?;
        let (wanted, found) = (&wanted.data["spec"], &found.data["spec"]);
        if wanted == found { Ok(()) } else { Err(format!("{found} instead of {wanted}")) }
    })
    .await;
}

#[test]
fn fact_74_empty_list_is_lost_at_the_path_of_an_empty_object() {
    RUNTIME.block_on(async {
        let hub = hub().await;
        let ns = hub.namespace().await;
        hub.policy(&ns, "dfw").await;
        let send = |policies: &[&Value]| apply(&hub.hub, with(&ns, "wd", policies, &json!({})));
        let (open, shut, none) = (json!({ "ingress": [{}] }), json!({ "ingress": [] }), json!({}));
        send(&[&shut]).await;
        arrived(&hub, &ns, "wd", "shut from the start").await;
        send(&[&open]).await;
        arrived(&hub, &ns, "wd", "opened").await;
        let refused = |b: &DynamicObject| {
            let told = b.data["status"]["aggregatedStatus"][0]["appliedMessage"].as_str().unwrap_or_default();
            condition(b, "FullyApplied")["status"] == "False" && told.contains("ingress") && told.contains("array")
        };
        for (what, policies) in [("shut", vec![&shut]), ("shut and open", vec![&open, &shut])] {
            send(&policies).await;
            hub.binding(&ns, "wd-workloaddeployment", &format!("{what}: refused by the member"), refused).await;
        }
        // The operator's replacement has the same meaning, and always arrives.
        for (what, policies) in [
            ("shut", vec![&none]),
            ("shut and open", vec![&open, &none]),
            ("no policy", vec![&Value::Null]),
            ("rules of every kind", vec![&open, &json!({ "ingress": [{ "ports": [{}] }] }), &none]),
        ] {
            send(&policies).await;
            arrived(&hub, &ns, "wd", what).await;
        }
    });
}

#[test]
fn fact_74_other_empty_values_arrive_when_a_template_changes() {
    RUNTIME.block_on(async {
        let hub = hub().await;
        let ns = hub.namespace().await;
        hub.policy(&ns, "dfw").await;
        let values = [
            ("a variable", json!({ "env": [{ "name": "A", "value": "" }, { "name": "B" }] })),
            ("resources", json!({ "resources": {} })),
            ("limits", json!({ "resources": { "limits": {}, "requests": { "cpu": "1" } } })),
            ("a security context", json!({ "securityContext": {} })),
            ("capabilities", json!({ "securityContext": { "capabilities": {} } })),
            ("strings in a list", json!({ "args": ["", "x"] })),
        ];
        for (index, (_, value)) in values.iter().enumerate() {
            apply(&hub.hub, with(&ns, &format!("wd-{index}"), &[], value)).await;
        }
        for (index, (what, value)) in values.iter().enumerate() {
            let name = format!("wd-{index}");
            arrived(&hub, &ns, &name, what).await;
            let mut changed = with(&ns, &name, &[], value);
            let template = &mut changed["spec"]["template"];
            template["metadata"] = json!({ "labels": { "empty": "" }, "annotations": {} });
            template["spec"]["runtime"]["sandbox"]["containers"][0]["image"] = json!("docker.io/library/nginx:2");
            apply(&hub.hub, changed).await;
            arrived(&hub, &ns, &name, what).await;
        }
    });
}

const STATUS: &str = r#"{ "replicas": 1, "currentReplicas": 0, "desiredReplicas": 1, "readyReplicas": 0, "conditions": [], "observedGeneration": 1 }"#;

/// Writes a status on the member, and waits until the template has it.
async fn reports(hub: &Hub, ns: &str, name: &str, ready: u64) {
    says(hub, ns, name, ready).await;
    eventually(&format!("{name}: {ready} ready is on the template"), || async {
        let template = get(&hub.hub, "WorkloadDeployment", ns, name).await.ok_or("gone")?;
        let status = &template.data["status"];
        if status["readyReplicas"] == ready { Ok(()) } else { Err(status.to_string()) }
    })
    .await;
}

async fn says(hub: &Hub, ns: &str, name: &str, ready: u64) {
    let mut status: Value = serde_json::from_str(STATUS).unwrap();
    status["readyReplicas"] = json!(ready);
    let patch = kube::api::Patch::Merge(json!({ "status": status }));
    let api = crate::common::api(&hub.dfw, "WorkloadDeployment", ns);
    api.patch_status(name, &kube::api::PatchParams::default(), &patch).await.unwrap();
}

/// Returns containers with names that Kubernetes allows and that the library of fact 75 misreads.
fn odd() -> Vec<(&'static str, Value)> {
    let variable = |name: &str| json!({ "env": [{ "name": name, "value": "v" }] });
    vec![
        ("at", variable("npm_config_@scope:registry")),
        ("hash", variable("A#B")),
        ("bar", variable("A|B")),
        ("star", variable("A*B")),
        ("question", variable("A?B")),
        ("dot", variable("A.B-C")),
        ("capability", json!({ "securityContext": { "capabilities": { "add": ["*"] } } })),
    ]
}

#[test]
fn fact_75_status_returns_for_templates_with_odd_names() {
    RUNTIME.block_on(async {
        let hub = hub().await;
        let ns = hub.namespace().await;
        hub.policy(&ns, "dfw").await;
        for (name, container) in odd() {
            apply(&hub.hub, with(&ns, name, &[], &container)).await;
        }
        for (name, _) in odd() {
            there(&hub.dfw, "WorkloadDeployment", &ns, name).await;
            reports(&hub, &ns, name, 3).await;
        }
    });
}

#[test]
fn fact_75_aggregation_returning_the_template_fails_for_odd_names() {
    const RIC: &str = "ResourceInterpreterCustomization";
    RUNTIME.block_on(async {
        let hub = hub().await;
        let ns = hub.namespace().await;
        hub.policy(&ns, "dfw").await;
        for (name, container) in odd() {
            apply(&hub.hub, with(&ns, name, &[], &container)).await;
            there(&hub.dfw, "WorkloadDeployment", &ns, name).await;
        }
        let ours = get(&hub.hub, RIC, "", "workloaddeployment").await.unwrap();
        let ours = ours.data["spec"]["customizations"]["statusAggregation"]["luaScript"].as_str().unwrap().to_owned();
        let use_script = |script: String| {
            let patch = json!({ "spec": { "customizations": { "statusAggregation": { "luaScript": script } } } });
            merge(&hub.hub, RIC, "", "workloaddeployment", patch)
        };
        let whole = "function AggregateStatus(desiredObj, items)
            if items ~= nil and items[1] ~= nil and items[1].status ~= nil and items[1].status.replicas ~= nil then
              desiredObj.status = items[1].status
              desiredObj.status.readyReplicas = desiredObj.status.readyReplicas + 100
            end
            return desiredObj
          end";
        use_script(whole.to_owned()).await;
        says(&hub, &ns, "dot", 5).await;
        eventually("the script is active for normal names", || async {
            says(&hub, &ns, "dot", 5 + fastrand::u64(..50)).await;
            let template = get(&hub.hub, "WorkloadDeployment", &ns, "dot").await.ok_or("gone")?;
            let ready = template.data["status"]["readyReplicas"].as_u64();
            if ready.is_some_and(|ready| ready > 100) { Ok(()) } else { Err(format!("{ready:?}")) }
        })
        .await;
        let names = odd().into_iter().map(|(name, _)| name).filter(|name| *name != "dot");
        let names: Vec<&str> = names.collect();
        for name in &names {
            says(&hub, &ns, name, 5).await;
        }
        never("a status returns", || async {
            for name in &names {
                let template = get(&hub.hub, "WorkloadDeployment", &ns, name).await.unwrap();
                // The definition gives each new object a status of zeros.
                if template.data["status"]["readyReplicas"] != 0 {
                    return Some(*name);
                }
            }
            None
        })
        .await;
        use_script(ours).await;
        eventually("ours is in use again", || async {
            says(&hub, &ns, "dot", 60 + fastrand::u64(..20)).await;
            let template = get(&hub.hub, "WorkloadDeployment", &ns, "dot").await.ok_or("gone")?;
            let ready = template.data["status"]["readyReplicas"].as_u64();
            if ready.is_some_and(|ready| (60..100).contains(&ready)) { Ok(()) } else { Err(format!("{ready:?}")) }
        })
        .await;
        for name in names {
            reports(&hub, &ns, name, 6).await;
        }
    });
}

#[test]
fn fact_78_returning_status_changes_nothing_else_of_the_template() {
    RUNTIME.block_on(async {
        let hub = hub().await;
        let ns = hub.deployed().await;
        reports(&hub, &ns, "wd", 1).await;
        // Others' fields keep their manager and path, and the time of their last write.
        let rest = |object: &DynamicObject| {
            let mut object = object.clone();
            object.metadata.resource_version = None;
            let entries = object.metadata.managed_fields.iter_mut().flatten();
            let owned: Vec<Value> =
                entries.filter(|entry| entry.subresource.is_none()).map(|entry| json!(entry)).collect();
            object.metadata.managed_fields = None;
            object.data["status"] = Value::Null;
            (json!(object), owned)
        };
        let before = get(&hub.hub, "WorkloadDeployment", &ns, "wd").await.unwrap();
        assert!(rest(&before).1.iter().any(|entry| entry["manager"] == "test"), "{before:?}");
        reports(&hub, &ns, "wd", 2).await;
        let after = get(&hub.hub, "WorkloadDeployment", &ns, "wd").await.unwrap();
        assert_eq!(rest(&after), rest(&before));
    });
}

#[test]
fn fact_77_preserved_resource_stays_on_the_member() {
    RUNTIME.block_on(async {
        let hub = hub().await;
        let ns = hub.deployed().await;
        hub.template(&ns, "other", "dfw", "").await;
        there(&hub.dfw, "WorkloadDeployment", &ns, "other").await;
        let preserve = |value: Value| {
            let patch = json!({ "spec": { "preserveResourcesOnDeletion": value } });
            merge(&hub.hub, "PropagationPolicy", &ns, "city-dfw", patch)
        };
        let works = |preserved: bool| {
            eventually("the Works say so", {
                let (hub, ns) = (&hub, &ns);
                move || async move {
                    let works = list(&hub.hub, "Work", "karmada-es-cell-dfw").await;
                    let ours = works.iter().filter(|work| {
                        let manifest = &work.data["spec"]["workload"]["manifests"][0];
                        manifest["kind"] == "WorkloadDeployment" && manifest["metadata"]["namespace"] == json!(ns)
                    });
                    let said: Vec<bool> =
                        ours.map(|work| work.data["spec"]["preserveResourcesOnDeletion"] == true).collect();
                    if said == [preserved; 2] { Ok(()) } else { Err(format!("{said:?}")) }
                }
            })
        };
        preserve(json!(true)).await;
        works(true).await;
        delete(&hub.hub, "WorkloadDeployment", &ns, "wd").await;
        gone(&hub.hub, "WorkloadDeployment", &ns, "wd").await;
        let uid = there(&hub.dfw, "WorkloadDeployment", &ns, "wd").await.uid();
        kept(&hub.dfw, "WorkloadDeployment", &ns, "wd", uid.as_deref()).await;
        preserve(Value::Null).await;
        eventually("the Work of the other one drops the mark", || async {
            let works = list(&hub.hub, "Work", "karmada-es-cell-dfw").await;
            let ours = works.iter().find(|work| {
                let manifest = &work.data["spec"]["workload"]["manifests"][0];
                manifest["kind"] == "WorkloadDeployment" && manifest["metadata"]["namespace"] == json!(ns)
            });
            let said = ours.map(|work| work.data["spec"]["preserveResourcesOnDeletion"] == true);
            if said == Some(false) { Ok(()) } else { Err(format!("{said:?}")) }
        })
        .await;
        delete(&hub.hub, "WorkloadDeployment", &ns, "other").await;
        gone(&hub.dfw, "WorkloadDeployment", &ns, "other").await;
    });
}

#[test]
fn fact_79_changed_lazy_policy_waits_for_its_template() {
    RUNTIME.block_on(async {
        let hub = hub().await;
        let ns = hub.deployed().await;
        let uid = there(&hub.dfw, "WorkloadDeployment", &ns, "wd").await.uid();
        let affinity = json!({ "labelSelector": null, "clusterNames": ["cell-ord"] });
        let lazy = json!({ "spec": { "activationPreference": "Lazy", "placement": { "clusterAffinity": affinity } } });
        merge(&hub.hub, "PropagationPolicy", &ns, "city-dfw", lazy).await;
        kept(&hub.dfw, "WorkloadDeployment", &ns, "wd", uid.as_deref()).await;
        merge(&hub.hub, "WorkloadDeployment", &ns, "wd", json!({ "metadata": { "annotations": { "touched": "1" } } }))
            .await;
        there(&hub.ord, "WorkloadDeployment", &ns, "wd").await;
        gone(&hub.dfw, "WorkloadDeployment", &ns, "wd").await;
    });
}

#[test]
fn fact_82_template_keeps_the_former_report_while_its_cluster_shows_none() {
    RUNTIME.block_on(async {
        let hub = hub().await;
        let by_name = |cluster: &str| json!({ "clusterAffinity": { "clusterNames": [cluster] } });
        let ns = hub.namespace().await;
        apply(&hub.hub, policy(&ns, "dfw", &by_name("cell-dfw"))).await;
        let send = |policy: &Value| apply(&hub.hub, with(&ns, "wd", &[policy], &json!({})));
        send(&json!({ "ingress": [{}] })).await;
        arrived(&hub, &ns, "wd", "opened").await;
        reports(&hub, &ns, "wd", 1).await;
        let item = |b: &DynamicObject| b.data["status"]["aggregatedStatus"][0].clone();
        let ready = async || {
            get(&hub.hub, "WorkloadDeployment", &ns, "wd").await.unwrap().data["status"]["readyReplicas"].clone()
        };
        // The cluster refuses the latest change (fact 74). It runs what it has.
        send(&json!({ "ingress": [] })).await;
        let refused = |b: &DynamicObject| item(b)["applied"] != true && item(b)["appliedMessage"].is_string();
        let binding = hub.binding(&ns, "wd-workloaddeployment", "refused by the member", refused).await;
        assert!(item(&binding)["status"].is_null(), "{}", item(&binding));
        assert_eq!(ready().await, 1, "the former report of the same cluster");
        send(&json!({ "ingress": [{}] })).await;
        let has_report = |b: &DynamicObject| item(b)["applied"] == true && item(b)["status"]["replicas"] == 1;
        hub.binding(&ns, "wd-workloaddeployment", "accepted again", has_report).await;
        // It moves, and no cell reports there.
        apply(&hub.hub, policy(&ns, "dfw", &by_name("cell-ord"))).await;
        there(&hub.ord, "WorkloadDeployment", &ns, "wd").await;
        let moved = |b: &DynamicObject| {
            let items = b.data["status"]["aggregatedStatus"].as_array().map_or(0, Vec::len);
            on(b, "cell-ord") && items == 1 && item(b)["clusterName"] == "cell-ord" && item(b)["applied"] == true
        };
        let binding = hub.binding(&ns, "wd-workloaddeployment", "applied on ord alone", moved).await;
        assert!(item(&binding)["status"]["replicas"].is_null(), "{}", item(&binding));
        never("the former report goes", async || (ready().await != 1).then(|| "it has gone".to_owned())).await;
    });
}
