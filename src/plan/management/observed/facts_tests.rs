use serde_json::{Value, json};

use super::*;
use crate::api::meta::label;

fn binding(metadata: Value, spec: Value) -> BindingFacts {
    let mut binding = json!({
        "apiVersion": "work.karmada.io/v1alpha2", "kind": "ResourceBinding", "metadata": { "name": "db-secret" },
        "spec": { "resource": { "kind": "Secret", "name": "db" } },
    });
    for (part, more) in [("metadata", metadata), ("spec", spec)] {
        let fields = more.as_object().unwrap().clone();
        binding[part].as_object_mut().unwrap().extend(fields);
    }
    BindingFacts::of(serde_json::from_value(binding).unwrap())
}

#[test]
fn places_before_scheduler_is_done_are_under_way() {
    let dfw = CityCode::parse("dfw").unwrap();
    let claimed = |asked: &str, done: &str| BindingFacts {
        policy: Some("city-dfw".into()),
        clusters: vec!["a".into()].into(),
        placement: Some(asked.into()),
        scheduled_by: Some(done.into()),
        ..BindingFacts::default()
    };
    let suspension = serde_json::from_value(json!({ "scheduling": true })).unwrap();
    let orphan = || BindingFacts { policy: None, scheduled_for: Some(dfw.clone()), ..claimed("p", "p") };
    let on = |places: usize| (vec![BTreeSet::from(["a".to_owned()]); places], false);
    let under_way = |places: usize| (on(places).0, true);
    let cases = [
        ("it was done", Some("p"), claimed("p", "p"), on(1)),
        ("the scheduler has not processed it", Some("p"), claimed("p", "q"), under_way(1)),
        ("the detector has not", Some("p"), claimed("q", "q"), under_way(1)),
        ("its scheduling is suspended", Some("p"), BindingFacts { suspension, ..claimed("q", "q") }, on(1)),
        ("there is no policy to ask for anything", None, claimed("q", "q"), on(1)),
        ("its policy was removed", None, orphan(), on(1)),
        ("another city's was", None, BindingFacts { scheduled_for: CityCode::parse("ord").ok(), ..orphan() }, on(0)),
        ("another policy's", Some("p"), BindingFacts { policy: Some("theirs".into()), ..claimed("q", "q") }, on(0)),
        ("for the whole hub", Some("p"), BindingFacts { cluster_policy: Some("x".into()), ..claimed("q", "q") }, on(0)),
        ("it is on no cluster", Some("p"), BindingFacts { clusters: vec![].into(), ..claimed("q", "q") }, on(0)),
        ("it is terminating", Some("p"), BindingFacts { terminating: true, ..claimed("q", "q") }, on(0)),
    ];
    for (what, asked, binding, expected) in cases {
        assert_eq!(places(&dfw, asked, &[&binding]), expected, "{what}");
    }
    let both = [&claimed("p", "p"), &claimed("p", "q")];
    assert_eq!(places(&dfw, Some("p"), &both), under_way(2), "one holds up all");
}

/// A cell's webhook quoted a Secret's value, and every reader of deployments, Instances or Events could see it.
#[test]
fn binding_of_secret_drops_message_of_its_cluster() {
    let message_of = |kind: &str, message: &str| {
        let binding = json!({
            "apiVersion": "work.karmada.io/v1alpha2", "kind": "ResourceBinding", "metadata": { "name": "db" },
            "spec": { "resource": { "kind": kind, "name": "db" } },
            "status": { "aggregatedStatus": [{ "clusterName": "a", "applied": false, "appliedMessage": message }] },
        });
        let facts = BindingFacts::of(serde_json::from_value(binding).unwrap());
        facts.applied["a"].clone().unwrap_err()
    };
    let message = "Failed to apply all manifests (0/1): admission webhook \"w\" denied the request: canary is weak";
    for kind in ["Secret", "ConfigMap"] {
        assert_eq!(message_of(kind, message), WITHHELD);
        assert_eq!(message_of(kind, ""), "", "an empty message stays empty");
    }
    assert_eq!(message_of("WorkloadDeployment", message), message, "a deployment has no values of Secrets in it");
}

#[test]
fn binding_is_unreported_if_its_clusters_have_it_and_none_reports() {
    let item = |cluster: &str, applied: bool, status: &Value| {
        let mut item = json!({ "clusterName": cluster, "applied": applied });
        if !status.is_null() {
            item["status"] = status.clone();
        }
        item
    };
    let (report, none, empty) = (json!({ "replicas": 0 }), Value::Null, json!({}));
    for (what, items, evicting, unreported) in [
        ("not applied anywhere yet", json!([]), false, false),
        ("no status yet", json!([item("b", true, &none)]), false, true),
        ("an empty status", json!([item("b", true, &empty)]), false, true),
        ("a report", json!([item("b", true, &report)]), false, false),
        ("the latest change is refused", json!([item("b", false, &none)]), false, false),
        ("a former cluster reports", json!([item("a", true, &report), item("b", true, &none)]), false, true),
        ("an evicted cluster still runs it", json!([item("a", true, &report), item("b", true, &none)]), true, false),
        ("the former one alone is listed", json!([item("a", true, &report)]), false, false),
    ] {
        let tasks = if evicting { json!([{ "fromCluster": "a" }]) } else { json!([]) };
        let mut binding = json!({
            "apiVersion": "work.karmada.io/v1alpha2", "kind": "ResourceBinding", "metadata": { "name": "wd" },
            "spec": {
                "resource": { "kind": "WorkloadDeployment", "name": "wd" }, "clusters": [{ "name": "b" }],
                "gracefulEvictionTasks": tasks,
            },
            "status": { "aggregatedStatus": items },
        });
        let facts = BindingFacts::of(serde_json::from_value(binding.clone()).unwrap());
        assert_eq!(facts.unreported, unreported, "{what}");
        binding["spec"]["resource"]["kind"] = json!("Secret");
        let of_data = BindingFacts::of(serde_json::from_value(binding).unwrap());
        assert!(!of_data.unreported, "{what}: data has no report");
    }
}

#[test]
fn binding_with_cluster_policy_is_not_claimed_by_city_policy() {
    let ours = json!({ "annotations": { annotation::POLICY_NAME: "city-dfw" } });
    let theirs = json!({ "annotations": { annotation::POLICY_NAME: "theirs" } });
    let by_name = json!({ "annotations": { annotation::CLUSTER_POLICY_NAME: "all" } });
    let by_id = json!({ "labels": { label::KARMADA_CLUSTER_CLAIM: "1-2" } });
    let both = json!({
        "annotations": { annotation::POLICY_NAME: "city-dfw", annotation::CLUSTER_POLICY_NAME: "all" },
        "labels": { label::KARMADA_CLUSTER_CLAIM: "1-2" },
    });
    for (what, marks, cluster_policy, expected) in [
        ("nobody", json!({}), None, false),
        ("our policy", ours, None, true),
        ("another policy", theirs, None, false),
        ("a cluster policy, by name", by_name, Some("all"), false),
        ("a cluster policy, by id alone", by_id, Some("1-2"), false),
        ("both: a cluster policy keeps what it has", both, Some("all"), false),
    ] {
        let facts = binding(marks, json!({}));
        assert_eq!(facts.cluster_policy.as_deref(), cluster_policy, "{what}");
        assert_eq!(facts.is_claimed_by("city-dfw"), expected, "{what}");
    }
}

#[test]
fn binding_that_only_follows_others_is_not_placed() {
    let applied = json!({ "annotations": { annotation::APPLIED_PLACEMENT: "{}" } });
    let placement = json!({ "placement": { "clusterAffinity": { "clusterNames": ["a"] } } });
    for (what, metadata, spec, expected) in [
        ("attached", json!({}), json!({ "requiredBy": [{ "namespace": "ns", "name": "web" }] }), false),
        ("null is none", json!({}), json!({ "placement": null }), false),
        ("placed", json!({}), placement, true),
        ("was scheduled by one", applied, json!({}), true),
    ] {
        assert_eq!(binding(metadata, spec).placed, expected, "{what}");
    }
}
