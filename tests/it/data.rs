//! Referenced data on real API servers: sharing, rotation, failures and recovery, and the reported causes. The tests use the
//! shared bed, each in its own namespace.

use std::{collections::BTreeMap, time::Duration};

use crate::common::{
    RUNTIME, World, apply,
    beds::{DELIVERY_GRACE, shared},
    condition, copies, delete, eventually, get, list, merge, promised, ready, template, workload,
};
use kube::{Client, ResourceExt};
use serde_json::{Value, json};
use tokio::time::Instant;

/// Returns a template with these references in `envFrom`.
pub fn using(references: &Value) -> Value {
    let mut template = template("docker.io/library/nginx:1");
    template["spec"]["runtime"]["sandbox"]["containers"][0]["envFrom"] = references.clone();
    template
}

fn all_three() -> Value {
    let mut template = using(&json!([{ "configMapRef": { "name": "settings" } }, { "secretRef": { "name": "db" } }]));
    template["spec"]["runtime"]["sandbox"]["imagePullSecrets"] = json!([{ "name": "registry" }]);
    template
}

pub fn config_map(namespace: &str, name: &str, value: &str) -> Value {
    json!({
        "apiVersion": "v1", "kind": "ConfigMap", "metadata": { "namespace": namespace, "name": name },
        "data": { "key": value },
    })
}

pub fn secret(namespace: &str, name: &str, value: &str) -> Value {
    json!({
        "apiVersion": "v1", "kind": "Secret", "metadata": { "namespace": namespace, "name": name },
        "type": "Opaque", "stringData": { "key": value },
    })
}

pub fn with(template: &Value, namespace: &str, name: &str, cities: &[&str], replicas: u32) -> Value {
    let mut object = workload(namespace, name, cities, replicas);
    object["spec"]["template"] = template.clone();
    object
}

/// Waits until an object's condition has this reason. Fails if that takes longer than a user would wait. Returns its message.
pub async fn reason(client: &Client, kind: &str, namespace: &str, name: &str, type_: &str, reason: &str) -> String {
    reason_after(Duration::ZERO, client, [kind, namespace, name], type_, reason).await
}

/// Waits until a deployment of the shared bed reports that a source was deleted which it uses.
pub async fn source_is_missed(world: &World, namespace: &str, name: &str) {
    let object = ["WorkloadDeployment", namespace, name];
    reason_after(DELIVERY_GRACE, &world.project, object, "ReferencedDataReady", "SourceNotFound").await;
}

async fn reason_after(
    grace: Duration,
    client: &Client,
    [kind, namespace, name]: [&str; 3],
    type_: &str,
    reason: &str,
) -> String {
    let began = Instant::now();
    let message = eventually(&format!("{kind} {name} reports {type_} {reason}"), || async {
        let object = get(client, kind, namespace, name).await.ok_or("it is not there")?;
        let condition = condition(&object, type_);
        if condition["reason"] == reason {
            Ok(condition["message"].as_str().unwrap().to_owned())
        } else {
            Err(condition.to_string())
        }
    })
    .await;
    assert!(began.elapsed() < grace + promised(Duration::from_secs(15)), "{reason}: {:?}", began.elapsed());
    message
}

async fn value(client: &Client, kind: &str, namespace: &str, name: &str) -> Option<(String, String)> {
    let object = get(client, kind, namespace, name).await?;
    let text = object.data["data"]["key"].as_str()?.to_owned();
    Some((object.uid().unwrap(), text))
}

#[test]
fn shared_data_reaches_every_city_and_leaves_only_unused_ones() {
    RUNTIME.block_on(async {
        let visit = shared().await;
        let world = &*visit;
        let (ns, hub) = world.namespace("share").await;
        for object in [config_map(&ns, "settings", "v"), secret(&ns, "db", "s"), secret(&ns, "registry", "r")] {
            apply(&world.project, object).await;
        }
        apply(&world.project, with(&all_three(), &ns, "web", &["dfw", "ord"], 1)).await;
        apply(&world.project, with(&all_three(), &ns, "api", &["dfw"], 1)).await;
        ready(world, &ns, "web", 2).await;
        ready(world, &ns, "api", 1).await;
        let all = ["ConfigMap/settings", "Secret/db", "Secret/registry"];
        let before: Vec<BTreeMap<String, String>> =
            [copies(&world.dfw, &hub).await, copies(&world.ord, &hub).await].into();
        for copies in &before {
            assert_eq!(copies.keys().collect::<Vec<_>>(), all);
        }
        let on_hub = get(&world.hub, "Secret", &hub, "db").await.unwrap();
        assert_eq!(
            on_hub.annotations()["compute.datumapis.com/referenced-by"],
            format!(r#"["{ns}/api-p-dfw","{ns}/web-p-dfw","{ns}/web-p-ord"]"#)
        );
        assert!(!on_hub.labels().contains_key("meta.datumapis.com/upstream-namespace"));
        let wd = get(&world.project, "WorkloadDeployment", &ns, "web-p-ord").await.unwrap();
        assert_eq!(
            wd.annotations()["compute.datumapis.com/expected-referenced-data"],
            r#"["ConfigMap/settings","Secret/db","Secret/registry"]"#
        );
        reason(&world.project, "WorkloadDeployment", &ns, "web-p-ord", "ReferencedDataReady", "Ready").await;
        reason(&world.project, "WorkloadDeployment", &ns, "web-p-ord", "Federated", "Propagated").await;
        reason(&world.ord, "Instance", &hub, "web-p-ord-0", "ReferencedDataReady", "Ready").await;

        // One city stops needing it.
        apply(&world.project, with(&all_three(), &ns, "web", &["dfw"], 1)).await;
        eventually("it leaves ord", || async {
            let left = copies(&world.ord, &hub).await;
            if left.is_empty() { Ok(()) } else { Err(format!("{left:?}")) }
        })
        .await;
        assert_eq!(copies(&world.dfw, &hub).await, before[0], "the others' copies are untouched");
        // One of two users in the same city drops one reference.
        let fewer = using(&json!([{ "configMapRef": { "name": "settings" } }]));
        apply(&world.project, with(&fewer, &ns, "web", &["dfw"], 1)).await;
        eventually("web is removed from the users", || async {
            let companion = get(&world.hub, "Secret", &hub, "db").await.ok_or("it is gone")?;
            let by = companion.annotations()["compute.datumapis.com/referenced-by"].clone();
            if by == format!(r#"["{ns}/api-p-dfw"]"#) { Ok(()) } else { Err(by) }
        })
        .await;
        assert_eq!(copies(&world.dfw, &hub).await, before[0]);
        for name in ["web", "api"] {
            delete(&world.project, "Workload", &ns, name).await;
        }
        eventually("nothing is left", || async {
            world.is_clean(&ns, &hub).await?;
            for client in [&world.hub, &world.dfw, &world.ord] {
                let left = copies(client, &hub).await;
                if !left.is_empty() {
                    return Err(format!("{left:?}"));
                }
            }
            Ok(())
        })
        .await;
    });
}

#[test]
fn rotated_secret_reaches_every_cell_without_a_restart() {
    RUNTIME.block_on(async {
        let visit = shared().await;
        let world = &*visit;
        let (ns, hub) = world.namespace("rotate").await;
        apply(&world.project, secret(&ns, "db", "old")).await;
        let template = using(&json!([{ "secretRef": { "name": "db" } }]));
        apply(&world.project, with(&template, &ns, "web", &["dfw", "ord"], 1)).await;
        ready(world, &ns, "web", 2).await;
        let instances = || async {
            let mut uids = Vec::new();
            for cell in [&world.dfw, &world.ord] {
                uids.extend(list(cell, "Instance", &hub).await.into_iter().map(|i| i.uid().unwrap()));
            }
            uids
        };
        let before = (instances().await, copies(&world.dfw, &hub).await);
        let version = get(&world.hub, "Secret", &hub, "db").await.unwrap().resource_version();
        // A label of the source is no change of its content.
        merge(&world.project, "Secret", &ns, "db", json!({ "metadata": { "labels": { "team": "a" } } })).await;
        apply(&world.project, secret(&ns, "db", "new")).await;
        eventually("the new value is everywhere", || async {
            for cell in [&world.dfw, &world.ord] {
                let (_, found) = value(cell, "Secret", &hub, "db").await.ok_or("it is not there")?;
                if found != "bmV3" {
                    return Err(found);
                }
            }
            Ok(())
        })
        .await;
        assert_ne!(get(&world.hub, "Secret", &hub, "db").await.unwrap().resource_version(), version);
        assert_eq!((instances().await, copies(&world.dfw, &hub).await), before);
        let mut restarted = with(&template, &ns, "web", &["dfw", "ord"], 1);
        restarted["spec"]["template"]["metadata"]["annotations"] =
            json!({ "compute.datumapis.com/restartedAt": "2026-11-21T00:00:00Z" });
        apply(&world.project, restarted).await;
        eventually("every instance is another", || async {
            let now = instances().await;
            if now.len() == 2 && now.iter().all(|uid| !before.0.contains(uid)) {
                Ok(())
            } else {
                Err(format!("{now:?}"))
            }
        })
        .await;
        ready(world, &ns, "web", 2).await;
        assert_eq!(copies(&world.dfw, &hub).await, before.1);
        delete(&world.project, "Workload", &ns, "web").await;
    });
}

/// The place of the Workload `web`. Its Instance and its deployment in dfw are checked.
struct Place<'a> {
    world: &'a World,
    ns: &'a str,
    hub: &'a str,
}

impl Place<'_> {
    /// Waits until one of its objects reports this reason. Returns the message.
    async fn says(&self, of: &str, type_: &str, want: &str) -> String {
        let Self { world, ns, hub } = self;
        match of {
            "project" => reason(&world.project, "WorkloadDeployment", ns, "web-p-dfw", type_, want).await,
            "instance" => reason(&world.dfw, "Instance", hub, "web-p-dfw-0", type_, want).await,
            "projection" => reason(&world.project, "Instance", ns, "web-p-dfw-0", type_, want).await,
            _ => reason(&world.project, "Workload", ns, "web", type_, want).await,
        }
    }
}

#[test]
fn referenced_data_failures_are_reported_and_recover() {
    RUNTIME.block_on(async {
        let visit = shared().await;
        let world = &*visit;
        let (ns, hub) = world.namespace("fail").await;
        // A ConfigMap and a Secret with the same name, one of them missing, and an optional reference.
        let template = using(&json!([
            { "configMapRef": { "name": "same" } },
            { "secretRef": { "name": "same" } },
            { "secretRef": { "name": "maybe", "optional": true } },
        ]));
        apply(&world.project, config_map(&ns, "same", "map")).await;
        apply(&world.project, with(&template, &ns, "web", &["dfw"], 1)).await;
        let wd = "web-p-dfw";
        let place = Place { world, ns: &ns, hub: &hub };
        let say = |of: &'static str, type_: &'static str, want: &'static str| place.says(of, type_, want);
        let message = say("project", "ReferencedDataReady", "SourceNotFound").await;
        assert!(
            message.contains(&format!("no Secret same in namespace {ns} (used by container c: envFrom)")),
            "{message}"
        );
        assert_eq!(say("instance", "ReferencedDataReady", "SourceNotFound").await, message);
        assert_eq!(say("instance", "Ready", "SourceNotFound").await, message);
        say("projection", "Ready", "SourceNotFound").await;
        say("workload", "Available", "SourceNotFound").await;
        assert!(get(&world.hub, "ConfigMap", &hub, "same").await.is_none(), "no part of the data is copied");

        // The Secret is too large, then small enough.
        apply(&world.project, secret(&ns, "same", &"x".repeat(300 << 10))).await;
        let message = say("project", "ReferencedDataReady", "SourceTooLarge").await;
        assert!(message.contains("307200 bytes, 262144 is the limit"), "{message}");
        say("instance", "Ready", "SourceTooLarge").await;
        apply(&world.project, secret(&ns, "same", "small")).await;
        ready(world, &ns, "web", 1).await;
        let annotations = get(&world.project, "WorkloadDeployment", &ns, wd).await.unwrap().annotations().clone();
        assert_eq!(annotations["compute.datumapis.com/skipped-referenced-data"], r#"["Secret/maybe"]"#);
        assert!(!annotations.contains_key("compute.datumapis.com/referenced-data-error"));
        assert_eq!(value(&world.dfw, "ConfigMap", &hub, "same").await.unwrap().1, "map");
        assert_eq!(value(&world.dfw, "Secret", &hub, "same").await.unwrap().1, "c21hbGw=");

        // The optional Secret is created.
        apply(&world.project, secret(&ns, "maybe", "there")).await;
        eventually("it is delivered", || async {
            value(&world.dfw, "Secret", &hub, "maybe").await.map(|_| ()).ok_or("not yet".to_owned())
        })
        .await;

        delete(&world.project, "Workload", &ns, "web").await;
    });
}

/// A tool may delete and recreate a Secret instead of updating it. The copy was deleted and recreated each time.
#[test]
fn optional_secret_replaced_keeps_its_copy() {
    RUNTIME.block_on(async {
        let visit = shared().await;
        let world = &*visit;
        let (ns, hub) = world.namespace("replaced").await;
        let template = using(&json!([{ "secretRef": { "name": "token", "optional": true } }]));
        apply(&world.project, secret(&ns, "token", "0")).await;
        apply(&world.project, with(&template, &ns, "web", &["dfw"], 1)).await;
        ready(world, &ns, "web", 1).await;
        let uid = async |client| get(client, "Secret", &hub, "token").await.map(|copy| copy.uid().unwrap());
        let before = (uid(&world.hub).await, uid(&world.dfw).await);
        assert!(before.0.is_some() && before.1.is_some());
        for round in 1..=10 {
            delete(&world.project, "Secret", &ns, "token").await;
            tokio::time::sleep(Duration::from_millis(150)).await;
            apply(&world.project, secret(&ns, "token", &round.to_string())).await;
            tokio::time::sleep(Duration::from_millis(350)).await;
            assert_eq!((uid(&world.hub).await, uid(&world.dfw).await), before, "round {round}");
        }
        eventually("the last content arrives", || async {
            let copy = value(&world.dfw, "Secret", &hub, "token").await;
            if copy.as_ref().is_some_and(|(_, value)| value == "MTA=") { Ok(()) } else { Err(format!("{copy:?}")) }
        })
        .await;
        assert_eq!((uid(&world.hub).await, uid(&world.dfw).await), before);
        // If the Secret does not return, its copy is deleted, because the deployment does not require it.
        delete(&world.project, "Secret", &ns, "token").await;
        eventually("its copy is deleted", || async {
            value(&world.dfw, "Secret", &hub, "token").await.map_or(Ok(()), |copy| Err(format!("{copy:?}")))
        })
        .await;
        delete(&world.project, "Workload", &ns, "web").await;
    });
}

#[test]
fn source_deleted_while_in_use_is_reported_and_can_be_recreated() {
    RUNTIME.block_on(async {
        let visit = shared().await;
        let world = &*visit;
        let (ns, hub) = world.namespace("anew").await;
        let place = Place { world, ns: &ns, hub: &hub };
        let template = using(&json!([{ "secretRef": { "name": "same" } }]));
        apply(&world.project, secret(&ns, "same", "small")).await;
        apply(&world.project, with(&template, &ns, "web", &["dfw"], 1)).await;
        ready(world, &ns, "web", 1).await;
        // The copy and the Instance stay. The condition reports the missing source.
        let copy = value(&world.dfw, "Secret", &hub, "same").await;
        delete(&world.project, "Secret", &ns, "same").await;
        source_is_missed(world, &ns, "web-p-dfw").await;
        assert_eq!(value(&world.dfw, "Secret", &hub, "same").await, copy);
        assert_eq!(
            condition(&get(&world.dfw, "Instance", &hub, "web-p-dfw-0").await.unwrap(), "Ready")["status"],
            "True"
        );
        // The Secret is recreated as immutable, and then replaced.
        let mut immutable = secret(&ns, "same", "fixed");
        immutable["immutable"] = json!(true);
        apply(&world.project, immutable.clone()).await;
        place.says("project", "ReferencedDataReady", "Ready").await;
        let arrives = |text: &'static str| {
            let hub = hub.clone();
            async move {
                eventually(&format!("{text} arrives"), || async {
                    match value(&world.dfw, "Secret", &hub, "same").await {
                        Some((_, found)) if found == text => Ok(()),
                        other => Err(format!("{other:?}")),
                    }
                })
                .await;
            }
        };
        arrives("Zml4ZWQ=").await;
        delete(&world.project, "Secret", &ns, "same").await;
        immutable["stringData"]["key"] = json!("again");
        apply(&world.project, immutable).await;
        arrives("YWdhaW4=").await;
        place.says("project", "ReferencedDataReady", "Ready").await;
        delete(&world.project, "Workload", &ns, "web").await;
    });
}

#[test]
fn companion_name_taken_on_the_hub_is_reported() {
    RUNTIME.block_on(async {
        let visit = shared().await;
        let world = &*visit;
        let (ns, hub) = world.namespace("taken").await;
        apply(&world.project, workload(&ns, "first", &["dfw"], 1)).await;
        ready(world, &ns, "first", 1).await;
        let theirs = apply(&world.hub, config_map(&hub, "settings", "theirs")).await;
        apply(&world.project, config_map(&ns, "settings", "ours")).await;
        let template = using(&json!([{ "configMapRef": { "name": "settings" } }]));
        apply(&world.project, with(&template, &ns, "web", &["dfw"], 1)).await;
        let message =
            reason(&world.project, "WorkloadDeployment", &ns, "web-p-dfw", "ReferencedDataReady", "SourceNameTaken")
                .await;
        assert!(message.contains("ConfigMap settings cannot be copied"), "{message}");
        let now = get(&world.hub, "ConfigMap", &hub, "settings").await.unwrap();
        assert_eq!(now.resource_version(), theirs.resource_version(), "not touched");
        delete(&world.hub, "ConfigMap", &hub, "settings").await;
        ready(world, &ns, "web", 1).await;
        for name in ["web", "first"] {
            delete(&world.project, "Workload", &ns, name).await;
        }
    });
}

#[test]
fn companion_refused_by_the_hub_is_reported_until_the_source_changes() {
    RUNTIME.block_on(async {
        let visit = shared().await;
        let world = &*visit;
        let (ns, hub) = world.namespace("refused").await;
        // The copy names no service account, and every API server refuses such a token.
        let mut token = secret(&ns, "token", "t");
        token["type"] = json!("kubernetes.io/service-account-token");
        token["metadata"]["annotations"] = json!({ "kubernetes.io/service-account.name": "default" });
        apply(&world.project, token).await;
        let template = using(&json!([{ "secretRef": { "name": "token" } }]));
        apply(&world.project, with(&template, &ns, "web", &["dfw"], 1)).await;
        let wd = "web-p-dfw";
        let message =
            reason(&world.project, "WorkloadDeployment", &ns, wd, "ReferencedDataReady", "SourceRefused").await;
        assert!(
            message.contains("the hub refuses the copy of Secret token") && message.contains("service-account.name"),
            "{message}"
        );
        assert!(get(&world.hub, "Secret", &hub, "token").await.is_none());
        delete(&world.project, "Secret", &ns, "token").await;
        apply(&world.project, secret(&ns, "token", "plain")).await;
        ready(world, &ns, "web", 1).await;
        delete(&world.project, "Workload", &ns, "web").await;
    });
}

#[test]
fn source_without_read_permission_is_reported_until_granted() {
    RUNTIME.block_on(async {
        let visit = shared().await;
        let world = &*visit;
        let (ns, _) = world.namespace("forbidden").await;
        // An administrator can keep the operator from Secrets like this: without get, with all other verbs.
        let role = get(&world.project, "ClusterRole", "", "compute").await.unwrap();
        let mut rules = role.data["rules"].clone();
        for rule in rules.as_array_mut().unwrap() {
            if rule["resources"] == json!(["configmaps", "secrets"]) {
                *rule =
                    json!({ "apiGroups": [""], "resources": ["configmaps", "secrets"], "verbs": ["list", "watch"] });
            }
        }
        merge(&world.project, "ClusterRole", "", "compute", json!({ "rules": rules })).await;
        apply(&world.project, secret(&ns, "db", "s")).await;
        let template = using(&json!([{ "secretRef": { "name": "db" } }]));
        apply(&world.project, with(&template, &ns, "web", &["ord"], 1)).await;
        let message =
            reason(&world.project, "WorkloadDeployment", &ns, "web-p-ord", "ReferencedDataReady", "SourceUnauthorized")
                .await;
        assert!(message.contains("Secret db") && message.contains("cannot get resource"), "{message}");
        merge(&world.project, "ClusterRole", "", "compute", json!({ "rules": role.data["rules"] })).await;
        ready(world, &ns, "web", 1).await;
        delete(&world.project, "Workload", &ns, "web").await;
    });
}
