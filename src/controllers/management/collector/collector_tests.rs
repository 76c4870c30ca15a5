use kube::core::ObjectMeta;
use serde_json::{Value, json};

use super::*;
use crate::{
    api::{
        compute::WorkloadDeployment,
        meta::{annotation, label},
        names,
        referenced::SourceKind,
    },
    controllers::management::{Context, Options, fixtures},
    io::{health::Health, store::Incoming, watch::Metadata},
    plan::{
        NamespaceFacts, Object,
        management::{collector::table::Read, observed::facts::BindingFacts},
    },
};

const NAMED: [(&str, &str); 2] = [(label::UPSTREAM_CLUSTER, "cluster-shop"), (label::UPSTREAM_NAMESPACE, "web")];

fn ctx() -> Context {
    Context::new(fixtures::nobody(), Options::of_tests(), Health::default(), Metrics::default())
}

fn metadata(metadata: &Value) -> Metadata {
    serde_json::from_value(json!({ "metadata": metadata })).unwrap()
}

/// What claims have left is undone when an event brings it up; this is the sweep's part where no event came.
#[tokio::test]
async fn sweep_enqueues_every_companion() {
    let ctx = ctx();
    let hub = &ctx.hub;
    hub.namespaces.replace(vec![fixtures::namespace("ns-u", "h", &NAMED)], 1);
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
    assert_eq!(ctx.queues.companion.depth(), 0, "nobody has heard of it");
    let companion = metadata(&json!({
        "name": "db", "namespace": "ns-u", "uid": "c", "labels": { label::REFERENCED_DATA: "true" },
    }));
    let collector = ctx.collector();
    for _ in 0..2 {
        let mut lists = Lists::default();
        lists.see(&collector, SourceKind::Secret, &companion, jiff::Timestamp::UNIX_EPOCH);
        assert_eq!(ctx.queues.companion.depth(), 1, "each sweep has it looked at, once");
        let key = ctx.queues.companion.next().await;
        assert_eq!((&*key.namespace, key.data_ref.to_string()), ("web", "Secret/db".to_owned()));
        ctx.queues.companion.finish(key, crate::io::queue::Outcome::Done);
    }
}

/// A companion without label, binding and last user was found by nothing.
#[tokio::test]
async fn object_that_says_who_uses_it_may_be_a_companion_without_its_label() {
    let ctx = ctx();
    let mut paused = fixtures::namespace("ns-p", "p", &NAMED);
    let facts = paused.value.take().map(|facts| NamespaceFacts { paused: true, ..(*facts).clone() });
    paused.value = facts.map(Arc::new);
    let theirs = fixtures::namespace("ns-t", "t", &[]);
    ctx.hub.namespaces.replace(vec![fixtures::namespace("ns-u", "h", &NAMED), paused, theirs], 1);
    let collector = ctx.collector();
    let users = json!({ annotation::REFERENCED_BY: "[\"web/gone\"]" });
    for (what, namespace, annotations, seen, looked_at) in [
        ("it says who uses it", "ns-u", users.clone(), true, true),
        ("it does not", "ns-u", json!({}), true, false),
        ("clean-up is paused there", "ns-p", users.clone(), true, false),
        ("in a namespace that mirrors nothing", "ns-t", users.clone(), false, false),
        ("in a namespace that is not known", "default", users, false, false),
    ] {
        let other = metadata(&json!({ "name": "db", "namespace": namespace, "uid": "c", "annotations": annotations }));
        let mut lists = Lists::default();
        let lost = lists.see_other(&collector, SourceKind::Secret, &other);
        assert_eq!((lists.has_seen_sources(), lost.is_some()), (seen, looked_at), "{what}");
    }
}

/// A Work in the cell's namespace on the hub, of the deployment `web`.
fn work(namespace: &str, terminating: Option<&str>) -> ObjectMeta {
    serde_json::from_value(json!({
        "name": "web-1", "namespace": "karmada-es-cell-dfw", "uid": "w", "resourceVersion": "4",
        "deletionTimestamp": terminating,
        "annotations": {
            "resourcebinding.karmada.io/namespace": namespace,
            "resourcebinding.karmada.io/name": "web-workloaddeployment",
        },
    }))
    .unwrap()
}

#[tokio::test]
async fn work_is_forgotten_or_left_only_if_neither_template_nor_binding_is_there() {
    const GONE: &str = "ns-0b0b2f5c-9d6c-4f2a-9a36-0f6c3a5c7c11";
    let ctx = ctx();
    let hub = &ctx.hub;
    hub.namespaces.replace(vec![fixtures::namespace("ns-u", "h", &NAMED), fixtures::namespace("ns-t", "t", &[])], 1);
    hub.policies.replace(Vec::new(), 1);
    hub.copies.replace(Vec::new(), 1);
    hub.clusters.replace(Vec::new(), 1);
    hub.bindings.replace(Vec::new(), 1);
    for kind in SourceKind::ALL {
        hub.companions(kind).replace(Vec::new(), 1);
    }
    let (collector, now) = (ctx.collector(), Now::read());
    let seen: BTreeSet<String> = ["w".to_owned()].into();
    let long_ago = Some("2026-01-01T00:00:00Z");
    let judge = |work: &ObjectMeta, seen: &BTreeSet<String>| {
        let lists = Lists::of_work(work);
        let forgotten = lists.works_without_template(&collector, seen);
        let left = lists.left_on_clusters(&collector, seen, &BTreeSet::new(), now);
        (forgotten.first().map(|found| (found.rule, found.paused)), left.len())
    };
    let none = BTreeSet::new();
    for (what, work, seen, expected) in [
        ("once", work("ns-u", None), &none, (Some((Rule::Work, false)), 0)),
        ("twice", work("ns-u", None), &seen, (Some((Rule::Work, false)), 1)),
        ("terminating", work("ns-u", long_ago), &seen, (None, 1)),
        (
            "of a hub namespace that is gone: it is counted alone",
            work(GONE, None),
            &seen,
            (Some((Rule::Work, true)), 1),
        ),
        ("of another controller's namespace", work("ns-t", long_ago), &seen, (None, 0)),
        ("of no hub namespace", work("default", long_ago), &seen, (None, 0)),
    ] {
        assert_eq!(judge(&work, seen), expected, "{what}");
    }
    let facts = Arc::new(BindingFacts::default());
    let key = ObjectKey::new("ns-u", "web-workloaddeployment");
    hub.bindings.replace(vec![Incoming { key, uid: "b".into(), version: 3, value: Some(facts) }], 3);
    assert_eq!(judge(&work("ns-u", None), &seen), (None, 0), "Karmada would make it again");
}

#[tokio::test]
async fn copy_is_lost_only_if_the_namespace_that_it_is_of_has_no_original() {
    let ctx = ctx();
    let other = fixtures::namespace("ns-other", "o", &NAMED);
    ctx.hub.namespaces.replace(vec![fixtures::namespace("ns-u", "h", &NAMED), other], 1);
    let copies = [("ns-u", "api"), ("ns-u", "web"), ("ns-other", "web")];
    ctx.hub.copies.replace(copies.map(|(namespace, name)| fixtures::deployment(namespace, name)).into(), 1);
    let lost = |namespace: &str, name: &str| {
        let collector = ctx.collector();
        Owners::of(&collector).lost_copy(&ObjectKey::new(namespace, name)).map(|found| found.owner)
    };
    assert_eq!(lost("ns-u", "web"), None, "the project is not known");
    ctx.projects.insert(fixtures::project("shop"));
    assert_eq!(lost("ns-u", "api"), None, "its original is there");
    let original = Object::named::<WorkloadDeployment>("web", "web");
    assert_eq!(lost("ns-u", "web"), Some(Read::NotInProject(original)));
    assert_eq!(lost("ns-other", "web"), None, "nobody knows in which control plane its namespace was");
}
