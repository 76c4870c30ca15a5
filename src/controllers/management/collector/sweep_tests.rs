use kube::core::ObjectMeta;
use serde_json::json;

use super::*;
use crate::{
    api::{meta::annotation, names},
    controllers::management::{Options, Parts, fixtures},
    io::{health::Health, store::Incoming},
    plan::management::observed::facts::BindingFacts,
};

/// What claims have left is healed when an event brings it up; this is the sweep's part where no event came.
#[tokio::test]
async fn residue_that_no_event_has_brought_up_is_looked_at_by_each_sweep() {
    let parts = Parts::new(fixtures::nobody(), Options::of_tests(), Health::default(), Metrics::default());
    let hub = &parts.hub;
    let named = [(label::UPSTREAM_CLUSTER, "cluster-shop"), (label::UPSTREAM_NAMESPACE, "web")];
    hub.namespaces.replace(vec![fixtures::namespace("ns-u", "h", &named)], 1);
    hub.policies.replace(Vec::new(), 1);
    hub.clusters.replace(Vec::new(), 1);
    hub.copies.replace(Vec::new(), 1);
    let binding = json!({
        "apiVersion": "work.karmada.io/v1alpha2", "kind": "ResourceBinding",
        "metadata": { "name": "db-secret", "namespace": "ns-u", "uid": "b", "resourceVersion": "3" },
        "spec": { "resource": { "kind": "Secret", "name": "db" }, "clusters": [{ "name": "cell-dfw" }] },
    });
    let facts = BindingFacts::of(serde_json::from_value(binding).unwrap());
    let key = ObjectKey::new("ns-u", &names::binding_name("Secret", "db"));
    let incoming = Incoming { key, uid: "b".into(), version: 3, value: Some(Arc::new(facts)) };
    hub.bindings.replace(vec![incoming], 3); // nobody listens yet: no event
    assert_eq!(parts.queues.companion.depth(), 0, "nobody has heard of it");
    let companion = |name: &str| -> Metadata {
        let labels = Some([(label::REFERENCED_DATA.to_owned(), "true".to_owned())].into());
        let (name, namespace) = (Some(name.to_owned()), Some("ns-u".to_owned()));
        let metadata = ObjectMeta { name, namespace, labels, uid: Some("c".into()), ..ObjectMeta::default() };
        serde_json::from_value(json!({ "metadata": metadata })).unwrap()
    };
    let sweeper = parts.sweeper();
    for _ in 0..2 {
        sweeper.see(SourceKind::Secret, &companion("db"), &Memory::default(), &mut Found::default());
        assert_eq!(parts.queues.companion.depth(), 1, "each sweep has it looked at, once");
        let key = parts.queues.companion.next().await;
        assert_eq!((&*key.namespace, key.data_ref.to_string()), ("web", "Secret/db".to_owned()));
        parts.queues.companion.finish(key, crate::io::queue::Outcome::Done);
    }
}

/// Found by reading: a companion without label, binding and last user was found by nothing.
#[tokio::test]
async fn what_says_who_uses_it_may_be_a_companion_that_has_lost_its_label() {
    let parts = Parts::new(fixtures::nobody(), Options::of_tests(), Health::default(), Metrics::default());
    let named = [(label::UPSTREAM_CLUSTER, "cluster-shop"), (label::UPSTREAM_NAMESPACE, "web")];
    let mut paused = fixtures::namespace("ns-p", "p", &named);
    let facts = paused.value.take().map(|facts| NamespaceFacts { paused: true, ..(*facts).clone() });
    paused.value = facts.map(Arc::new);
    let theirs = fixtures::namespace("ns-t", "t", &[]);
    parts.hub.namespaces.replace(vec![fixtures::namespace("ns-u", "h", &named), paused, theirs], 1);
    let sweeper = parts.sweeper();
    let users = json!({ annotation::REFERENCED_BY: "[\"web/gone\"]" });
    for (what, namespace, annotations, seen, looked_at) in [
        ("it says who uses it", "ns-u", users.clone(), true, true),
        ("it does not", "ns-u", json!({}), true, false),
        ("clean-up is paused there", "ns-p", users.clone(), true, false),
        ("in a namespace that mirrors nothing", "ns-t", users.clone(), false, false),
        ("in a namespace that is not known", "default", users, false, false),
    ] {
        let metadata = json!({ "name": "db", "namespace": namespace, "uid": "c", "annotations": annotations });
        let other: Metadata = serde_json::from_value(json!({ "metadata": metadata })).unwrap();
        let mut found = Found::default();
        let lost = sweeper.see_other(SourceKind::Secret, &other, &mut found);
        assert_eq!((!found.others.is_empty(), lost.is_some()), (seen, looked_at), "{what}");
        assert!(found.companions.is_empty(), "{what}: it is none before it says so");
    }
}
