use serde_json::json;

use super::*;
use crate::{
    api::karmada::ResourceBinding,
    io::{clients::Connection, store::Incoming},
};

fn hub() -> HubCache {
    let hub = Connection::new(kube::Config::new("http://127.0.0.1:9".parse().unwrap())).unwrap();
    HubCache::new(ControlPlane::new("hub", hub))
}

fn instance(name: &str, asking: Option<&str>) -> Instance {
    serde_json::from_value(json!({
        "metadata": {
            "name": name, "namespace": "ns-1", "uid": name, "resourceVersion": "2",
            "annotations": asking.map(|cell| json!({ annotation::CLAIMED_BY_CELL: cell })),
            "ownerReferences": [{
                "apiVersion": "compute.datumapis.com/v1alpha", "kind": "WorkloadDeployment", "name": "web", "uid": "w",
                "controller": true,
            }],
        },
        "spec": { "runtime": { "resources": { "instanceType": "t" } }, "networkInterfaces": [] },
    }))
    .unwrap()
}

#[tokio::test]
async fn hub_cache_instance_that_a_cell_asks_for_is_indexed_by_deployment() {
    let hub = hub();
    for instance in [instance("web-0", Some("cell")), instance("web-1", None)] {
        hub.instances.observe(Incoming::new(&instance, Some(PackedInstance::of_hub(instance.clone()))));
    }
    let names = |index: &Index| -> Vec<String> {
        hub.instances.by_index(index).iter().map(|instance| instance.name_any()).collect()
    };
    assert_eq!(names(&Index::Asked), ["web-0"]);
    assert_eq!(names(&Index::AskedOf("ns-1".into(), "web".into())), ["web-0"]);
    assert!(names(&Index::AskedOf("ns-1".into(), "api".into())).is_empty());
}

#[tokio::test]
async fn hub_cache_data_in_use_is_known_only_in_namespaces_where_policies_claim() {
    // The data of this copy does not exist yet, and it expects nothing.
    let copy = |name: &str, leaving: bool| {
        let mut copy: WorkloadDeployment = serde_json::from_value(json!({
            "metadata": {
                "name": name, "namespace": "ns-1", "uid": name, "resourceVersion": "1",
                "labels": { "topology.datum.net/city-code": "dfw" },
            },
            "spec": {
                "workloadRef": { "name": name, "uid": "u" }, "placementName": "p", "cityCode": "dfw",
                "template": { "spec": {
                    "runtime": { "resources": { "instanceType": "t" }, "sandbox": { "containers": [
                        { "name": "c", "image": "i", "envFrom": [{ "secretRef": { "name": "db" } }] },
                    ] } },
                    "networkInterfaces": [],
                } },
                "scaleSettings": { "minReplicas": 1 },
            },
        }))
        .unwrap();
        if leaving {
            copy.metadata.deletion_timestamp = Some(serde_json::from_value(json!("2026-01-01T00:00:00Z")).unwrap());
        }
        Incoming::new(&copy.clone(), Some(PackedDeployment::of(copy)))
    };
    let policy = |propagate: bool| {
        let selectors = if propagate { json!([]) } else { json!([{ "apiVersion": "v1", "kind": "Secret" }]) };
        let policy: PropagationPolicy = serde_json::from_value(json!({
            "metadata": { "name": "city-dfw", "namespace": "ns-1", "uid": "p", "resourceVersion": if propagate { "3" } else { "2" } },
            "spec": { "resourceSelectors": selectors, "propagateDeps": propagate, "placement": {} },
        }))
        .unwrap();
        Incoming::new(&policy, Some(policy.clone()))
    };
    let hub = hub();
    assert!(hub.claimed("ns-1", Propagation::Selectors).is_none(), "the caches are not filled");
    hub.namespaces.replace(Vec::new(), 1);
    hub.copies.replace(vec![copy("web", false), copy("old", true)], 1);
    for kind in SourceKind::ALL {
        hub.companions(kind).replace(Vec::new(), 1);
    }
    hub.policies.replace(vec![policy(false)], 2);
    let workloads = |namespace: &str, propagation| {
        let used = hub.claimed(namespace, propagation)?;
        let db = DataRef::secret("db");
        Some(used.into_iter().filter(|copy| copy.data.contains(&db)).map(|copy| copy.workload).collect::<Vec<_>>())
    };
    assert_eq!(
        workloads("ns-1", Propagation::Dependencies),
        Some(vec!["web".to_owned()]),
        "a terminating copy uses nothing"
    );
    assert_eq!(workloads("ns-2", Propagation::Dependencies), None, "no policy claims there");
    hub.policies.observe(policy(true));
    assert_eq!(workloads("ns-1", Propagation::Dependencies), None, "dependencies bring everything");
    assert_eq!(workloads("ns-1", Propagation::Selectors), Some(vec!["web".to_owned()]));
}

/// One unreadable Cluster made every new city of every tenant wait for a policy that was "not there yet".
#[tokio::test]
async fn hub_cache_unreadable_object_that_hides_cities_is_named() {
    let hub = hub();
    assert_eq!(hub.hides_places("ns-1"), None);
    let key = ObjectKey::new("ns-1", "web-workloaddeployment");
    hub.bindings.observe(Incoming { key, uid: "b".into(), version: 2, value: None });
    let message = hub.hides_places("ns-1").unwrap();
    assert!(message.contains("cannot read ResourceBinding ns-1/web-workloaddeployment"), "{message}");
    assert_eq!(hub.hides_places("ns-2"), None, "a binding hides only its own namespace");
    let key = ObjectKey::new("", "cell-dfw");
    hub.clusters.observe(Incoming { key, uid: "c".into(), version: 2, value: None });
    for namespace in ["ns-1", "ns-2"] {
        let message = hub.hides_places(namespace).unwrap();
        assert!(message.contains("cannot read Cluster cell-dfw"), "{message}");
    }
}

#[tokio::test]
async fn hub_cache_place_of_city_is_unknown_while_a_related_object_is_unreadable() {
    let binding = |name: &str| {
        let facts: ResourceBinding = serde_json::from_value(json!({
            "metadata": {
                "name": name, "namespace": "ns-1", "uid": name, "resourceVersion": "2",
                "annotations": { "propagationpolicy.karmada.io/name": "city-dfw" },
            },
            "spec": { "resource": { "kind": "WorkloadDeployment", "name": "web" }, "clusters": [{ "name": "cell-dfw" }] },
        }))
        .unwrap();
        let key = ObjectKey::new("ns-1", name);
        Incoming { key, uid: name.into(), version: 2, value: Some(Arc::new(BindingFacts::of(facts))) }
    };
    let known = || {
        let hub = hub();
        let facts = ClusterFacts { cell: Some("c".into()), ..ClusterFacts::labelled("dfw") };
        let key = ObjectKey::new("", "cell-dfw");
        hub.clusters.replace(vec![Incoming { key, uid: "c".into(), version: 2, value: Some(Arc::new(facts)) }], 2);
        hub.bindings.replace(vec![binding("web-workloaddeployment")], 2);
        hub.policies.replace(Vec::new(), 2);
        hub.copies.replace(Vec::new(), 2);
        hub
    };
    let dfw = CityCode::parse("dfw").unwrap();
    let copies = [ObjectKey::new("ns-1", "web")];
    let place = |hub: &HubCache| hub.place_of(&dfw, "ns-1", &copies);
    let on = vec![BTreeSet::from(["cell-dfw".to_owned()])];
    let hub = known();
    assert_eq!(place(&hub).map(|place| place.on), Some(on.clone()));
    assert!(hub.members().is_some());
    // An object of the list without a name counts as any other.
    for (what, cluster, is_of_bindings, namespace, hides) in [
        ("its own Cluster", "cell-dfw", false, "", true),
        ("another Cluster, which may be the city's", "cell-ord", false, "", true),
        ("a Cluster without a name", "", false, "", true),
        ("another binding of the namespace", "api-workloaddeployment", true, "ns-1", true),
        ("one in another namespace", "api-workloaddeployment", true, "ns-2", false),
    ] {
        let hub = known();
        let key = ObjectKey::new(namespace, cluster);
        if is_of_bindings {
            hub.bindings.observe(Incoming { key: key.clone(), uid: "x".into(), version: 3, value: None });
        } else {
            hub.clusters.observe(Incoming { key: key.clone(), uid: "c".into(), version: 3, value: None });
        }
        assert_eq!(place(&hub).is_none(), hides, "{what}");
        assert_eq!(hub.members().is_none(), !is_of_bindings, "{what}: the members");
        assert_eq!(hub.hides_places("ns-1").is_some(), hides, "{what}: it is named");
        // A deleted object hides nothing.
        if is_of_bindings {
            hub.bindings.forget(&key, "x");
        } else {
            hub.clusters.forget(&key, "c");
        }
        assert_eq!(place(&hub).map(|place| place.on), Some(on.clone()), "{what}: it is gone");
    }
}
