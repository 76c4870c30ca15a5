use std::time::Duration;

use serde_json::{Value, json};

use super::*;
use crate::{
    api::{karmada::PropagationPolicy, meta::label},
    controllers::management::{Context, Options, fixtures},
    io::{health::Health, store::Incoming},
    metrics::Metrics,
    plan::management::observed::{cluster::ClusterFacts, facts::BindingFacts},
};

fn cluster(name: &str, edit: impl FnOnce(&mut Value)) -> Incoming<ClusterFacts> {
    let mut cluster = json!({
        "apiVersion": "cluster.karmada.io/v1alpha1", "kind": "Cluster",
        "metadata": { "name": name, "labels": { label::TOPOLOGY_CITY: "dfw" } },
        "spec": {},
        "status": {
            "conditions": [{ "type": "Ready", "status": "True" }],
            "apiEnablements": [{
                "groupVersion": "compute.datumapis.com/v1alpha", "resources": [{ "kind": "WorkloadDeployment" }],
            }],
        },
    });
    edit(&mut cluster);
    let facts = ClusterFacts::of(serde_json::from_value(cluster).unwrap());
    incoming("", name, 2, Some(facts))
}

fn incoming<V>(namespace: &str, name: &str, version: u64, value: Option<V>) -> Incoming<V> {
    let key = ObjectKey::new(namespace, name);
    Incoming { key, uid: name.into(), version, value: value.map(Arc::new) }
}

/// A city on the Cluster `old`, which is being drained, and a Cluster `new` that could take it.
fn city_that_leaves() -> Arc<Context> {
    let options = Options { city_guard: true, ..Options::of_tests() };
    let ctx = Context::new(fixtures::unreachable(), options, Health::default(), Metrics::default());
    let placement =
        json!({ "clusterAffinity": { "labelSelector": { "matchLabels": { label::TOPOLOGY_CITY: "dfw" } } } });
    let policy: PropagationPolicy = serde_json::from_value(json!({
        "metadata": { "name": "city-dfw", "namespace": "ns-1", "uid": "p", "resourceVersion": "2" },
        "spec": { "resourceSelectors": [], "placement": placement },
    }))
    .unwrap();
    let binding = BindingFacts::of(
        serde_json::from_value(json!({
            "apiVersion": "work.karmada.io/v1alpha2", "kind": "ResourceBinding",
            "metadata": {
                "name": "web-workloaddeployment", "namespace": "ns-1", "uid": "b", "resourceVersion": "2",
                "annotations": { "propagationpolicy.karmada.io/name": "city-dfw" },
            },
            "spec": {
                "resource": { "kind": "WorkloadDeployment", "name": "web" }, "clusters": [{ "name": "old" }],
            },
        }))
        .unwrap(),
    );
    let hub = &ctx.hub;
    let leaves = cluster("old", |of| of["metadata"]["deletionTimestamp"] = json!("2026-01-01T00:00:00Z"));
    hub.clusters.replace(vec![leaves, cluster("new", |_| ())], 2);
    hub.policies.replace(vec![incoming("ns-1", "city-dfw", 2, Some(policy))], 2);
    hub.bindings.replace(vec![incoming("ns-1", "web-workloaddeployment", 2, Some(binding))], 2);
    hub.copies.replace(Vec::new(), 2);
    ctx
}

#[tokio::test]
async fn unreadable_cluster_leaves_every_drain_unchanged() {
    let dfw = CityCode::parse("dfw").unwrap();
    for unreadable in ["old", "new", "another", ""] {
        let hides = |ctx: &Arc<Context>| ctx.hub.clusters.observe(incoming("", unreadable, 3, None));
        // Before the first decision: nothing is decided, and this does not count as the first one.
        let ctx = city_that_leaves();
        let watch = ctx.clusters();
        hides(&ctx);
        assert_eq!(watch.look(Now::read()).await, Next::Await, "{unreadable:?}");
        assert!(!ctx.drains.are_known() && ctx.drains.last().0.drains.is_empty(), "{unreadable:?}");
        // While a transfer is under way.
        let ctx = city_that_leaves();
        let watch = ctx.clusters();
        watch.look(Now::read()).await;
        let before = ctx.drains.last().0;
        let route = before.drains[&dfw].instruction("ns-1").go.expect("it moves");
        assert_eq!((&*route.from, &*route.to), ("old", "new"));
        hides(&ctx);
        let later = Now { time: Now::read().time + Duration::from_hours(1), ..Now::read() };
        let poll = Next::After(ctx.options.timing.poll);
        assert_eq!(watch.look(later).await, poll, "{unreadable:?}: it is looked again");
        assert_eq!(ctx.drains.last().0, before, "{unreadable:?}");
        // Once the Cluster can be read again, or is gone, the drain goes on. By then its time is over.
        let readable = match unreadable {
            "new" | "old" => Some(cluster(unreadable, |of| {
                if unreadable == "old" {
                    of["metadata"]["deletionTimestamp"] = json!("2026-01-01T00:00:00Z");
                }
            })),
            _ => None,
        };
        match readable {
            Some(cluster) => ctx.hub.clusters.observe(Incoming { version: 4, ..cluster }),
            None => ctx.hub.clusters.forget(&ObjectKey::new("", unreadable), unreadable),
        }
        watch.look(later).await;
        assert_ne!(ctx.drains.last().0, before, "{unreadable:?}");
    }
}

/// The drain ignored a deleted Cluster that a binding still names, and the policy did not: it returned a namespace that had arrived.
#[tokio::test]
async fn deleted_cluster_of_a_binding_has_no_share_in_the_city() {
    let ctx = city_that_leaves();
    let key = ObjectKey::new("ns-1", "web-workloaddeployment");
    let mut binding = (*ctx.hub.bindings.get(&key).unwrap()).clone();
    binding.clusters = vec!["old".to_owned(), "deleted".to_owned()].into();
    ctx.hub.bindings.observe(Incoming { key, uid: "b".into(), version: 3, value: Some(Arc::new(binding)) });
    let copies = [ObjectKey::new("ns-1", "web")];
    let place = ctx.hub.place_of(&CityCode::parse("dfw").unwrap(), "ns-1", &copies).unwrap();
    assert_eq!(place.shares.keys().collect::<Vec<_>>(), ["old"]);
}
