use serde_json::{Value, json};

use super::*;
use crate::api::{karmada::BindingSnapshot, names::CityCode};

#[test]
fn binding_is_named_after_its_template() {
    let template = |binding| template_of("ns-1", binding).map(|template| template.to_string());
    assert_eq!(template("db-secret").as_deref(), Some("Secret ns-1/db"));
    assert_eq!(template("settings-configmap").as_deref(), Some("ConfigMap ns-1/settings"));
    assert_eq!(template("web-p-dfw-workloaddeployment").as_deref(), Some("WorkloadDeployment ns-1/web-p-dfw"));
    assert_eq!(template("web-deployment"), None);
    assert_eq!(template("-secret"), None);
}

fn facts(parent: &str) -> BindingFacts {
    BindingFacts {
        required_by: vec![BindingSnapshot { name: parent.into(), clusters: vec![] }],
        ..BindingFacts::default()
    }
}

/// True if a binding of this name is ours.
fn is_ours(name: &str, mut meta: Value, facts: Option<&BindingFacts>) -> bool {
    meta["namespace"] = json!("ns-1");
    meta["name"] = json!(name);
    Binding::ours(&serde_json::from_value(meta).unwrap(), facts).is_some()
}

fn by(policy: &str) -> Value {
    json!({ "annotations": { annotation::POLICY_NAME: policy } })
}

#[test]
fn deployment_binding_claimed_by_city_policy_is_ours() {
    let scheduled = BindingFacts { scheduled_for: CityCode::parse("dfw").ok(), ..BindingFacts::default() };
    let mut terminating = by("city-dfw");
    terminating["deletionTimestamp"] = json!("2026-01-01T00:00:00Z");
    for (what, meta, facts, expected) in [
        ("claimed by a city policy", by("city-dfw"), None, true),
        ("its policy has gone since", json!({}), Some(&scheduled), true),
        ("no policy of ours has ever claimed it", json!({}), Some(&BindingFacts::default()), false),
        ("claimed by another policy", by("theirs"), Some(&scheduled), false),
        ("terminating", terminating, None, false),
    ] {
        assert_eq!(is_ours("web-dfw-workloaddeployment", meta, facts), expected, "{what}");
    }
}

#[test]
fn companion_binding_needed_only_by_our_deployments_is_ours() {
    let attached = json!({ "labels": { "resourcebinding.karmada.io/depended-by-abc": "x" } });
    let owned = |kind: &str, name: &str, controller: bool, annotations: Value| {
        let owner = json!({ "apiVersion": "v1", "kind": kind, "name": name, "uid": "o", "controller": controller });
        json!({ "ownerReferences": [owner], "annotations": annotations })
    };
    let by_all = json!({ annotation::CLUSTER_POLICY_NAME: "theirs" });
    let own = || owned("Secret", "db", true, json!({}));
    let unattached = || Some(BindingFacts::default());
    for (what, meta, facts, expected) in [
        ("claimed by a city policy", by("city-dfw"), None, true),
        ("claimed by another policy", by("theirs"), None, false),
        ("attached to a deployment", attached.clone(), Some(facts("wd-workloaddeployment")), true),
        ("the last parent has gone", attached.clone(), Some(BindingFacts::default()), true),
        ("attached to another kind", attached.clone(), Some(facts("theirs-deployment")), false),
        ("of which the watch knows nothing", attached, None, false),
        ("neither claimed nor attached", json!({}), unattached(), false),
        // Karmada removes the mark with the last parent. A companion was seen to be left like this, with its binding.
        ("its companion's own, which no other needs", own(), unattached(), true),
        ("its companion's own, which others need", own(), Some(facts("theirs-deployment")), false),
        ("its companion's own, of which the watch knows nothing", own(), None, false),
        ("claimed for the whole hub", owned("Secret", "db", true, by_all), unattached(), false),
        ("of another name", owned("Secret", "other", true, json!({})), unattached(), false),
        ("of another kind", owned("ConfigMap", "db", true, json!({})), unattached(), false),
        ("owned without control", owned("Secret", "db", false, json!({})), unattached(), false),
    ] {
        assert_eq!(is_ours("db-secret", meta, facts.as_ref()), expected, "{what}");
    }
}
