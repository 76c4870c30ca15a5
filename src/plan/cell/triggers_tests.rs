use serde_json::{Value, json};

use super::*;
use crate::api::{compute::LocationReference, meta::label, names::CityCode};

fn changed<'a, V>(name: &'a str, old: Option<&'a V>, new: Option<&'a V>) -> Delta<'a, V> {
    Delta { namespace: "ns-1", name, old, new }
}

fn owner(kind: &str, name: &str) -> Value {
    json!([{ "apiVersion": "v1", "kind": kind, "name": name, "uid": "u", "controller": true }])
}

fn deployment(generation: i64, annotations: &Value) -> WorkloadDeployment {
    serde_json::from_value(json!({
        "metadata": { "namespace": "ns-1", "name": "web", "generation": generation, "annotations": annotations },
        "spec": {
            "workloadRef": { "name": "web", "uid": "w" }, "placementName": "p", "cityCode": "DFW",
            "template": { "spec": { "runtime": { "resources": { "instanceType": "t" } }, "networkInterfaces": [] } },
            "scaleSettings": { "minReplicas": 1 },
        },
    }))
    .unwrap()
}

fn instance(owners: &Value) -> Instance {
    serde_json::from_value(json!({
        "metadata": { "namespace": "ns-1", "name": "web-0", "ownerReferences": owners },
        "spec": { "runtime": { "resources": { "instanceType": "t" } }, "networkInterfaces": [] },
    }))
    .unwrap()
}

fn ns() -> String {
    "ns-1".to_owned()
}

fn on(deployment: &str) -> Work {
    Work::Deployment(ns(), deployment.to_owned())
}

fn instances_of(deployment: &str) -> Work {
    Work::InstancesOf(ns(), deployment.to_owned())
}

fn users_of(context: &str) -> Work {
    Work::UsersOfContext(ns(), context.to_owned())
}

/// Checks a table of changes against the work that each causes.
fn table<'a>(cases: impl IntoIterator<Item = (&'a str, Change<'a>, Vec<Work>)>) {
    for (what, change, expected) in cases {
        assert_eq!(after(&change), expected.into_iter().collect(), "{what}");
    }
}

#[test]
fn deployment_change_enqueues_instances_unless_only_status() {
    let (first, second) = (deployment(1, &json!({})), deployment(2, &json!({})));
    let promised = deployment(1, &json!({ "compute.datumapis.com/expected-referenced-data": "[]" }));
    let all = || vec![on("web"), instances_of("web"), Work::CompanionCount(ns())];
    let case = |old, new| Change::Deployment(changed("web", old, new));
    table([
        ("it is new", case(None, Some(&first)), all()),
        ("only its status", case(Some(&first), Some(&first)), vec![on("web")]),
        ("its spec", case(Some(&first), Some(&second)), all()),
        ("what it is to expect", case(Some(&first), Some(&promised)), all()),
        ("it is deleted", case(Some(&first), None), [all(), vec![Work::ForgetNamespace(ns())]].concat()),
        ("an undecodable one is created or deleted", case(None, None), all()),
    ]);
}

#[test]
fn instance_change_enqueues_itself_and_its_deployment() {
    let owned = instance(&owner("WorkloadDeployment", "web"));
    let (others, free) = (instance(&owner("WorkloadDeployment", "other")), instance(&json!([])));
    let itself = || Work::Instance(ns(), "web-0".into());
    let case = |old, new| Change::Instance(changed("web-0", old, new));
    table([
        ("it is new", case(None, Some(&owned)), vec![itself(), on("web")]),
        ("it changed", case(Some(&owned), Some(&owned)), vec![itself(), on("web")]),
        ("it has another owner by now", case(Some(&owned), Some(&others)), vec![itself(), on("other")]),
        ("it has no owner", case(None, Some(&free)), vec![itself()]),
        ("it is deleted", case(Some(&owned), None), vec![itself(), on("web"), Work::QuotaUse(ns())]),
        (
            "it is deleted, and had another owner",
            case(Some(&others), None),
            vec![itself(), on("other"), on("web"), Work::QuotaUse(ns())],
        ),
        ("an undecodable one is deleted", case(None, None), vec![itself(), on("web"), Work::QuotaUse(ns())]),
        (
            "one without an ordinal is deleted",
            Change::Instance(changed("web", Some(&free), None)),
            vec![Work::Instance(ns(), "web".into()), Work::QuotaUse(ns())],
        ),
    ]);
}

#[test]
fn instance_quota_wait_change_recounts_unanswered() {
    let saying = |reason: &str| {
        let mut instance = instance(&json!([]));
        instance.spec.controller = serde_json::from_value(json!({
            "templateHash": "h", "schedulingGates": [{ "name": "Quota" }],
        }))
        .unwrap();
        let condition = json!({
            "type": "QuotaGranted", "status": "Unknown", "reason": reason, "message": "",
            "lastTransitionTime": "2026-01-01T00:00:00Z",
        });
        instance.status = serde_json::from_value(json!({ "conditions": [condition] })).unwrap();
        instance
    };
    let (waits, lost, granted) = (saying("QuotaNoBudget"), saying("QuotaProjectNotFound"), saying("QuotaAvailable"));
    let itself = || Work::Instance(ns(), "web-0".into());
    let case = |old, new| Change::Instance(changed("web-0", old, new));
    let (no_budget, no_project) = (Work::UnansweredCount(Cause::NoBudget), Work::UnansweredCount(Cause::NoProject));
    table([
        ("as it was", case(Some(&waits), Some(&waits)), vec![itself()]),
        ("it waits", case(None, Some(&waits)), vec![itself(), no_budget.clone()]),
        ("for another reason", case(Some(&waits), Some(&lost)), vec![itself(), no_budget.clone(), no_project]),
        ("it has its grant", case(Some(&waits), Some(&granted)), vec![itself(), no_budget.clone()]),
        ("it is deleted", case(Some(&waits), None), vec![itself(), on("web"), Work::QuotaUse(ns()), no_budget]),
    ]);
}

#[test]
fn namespace_or_companion_change_enqueues_its_instances() {
    let facts = NamespaceFacts::default();
    let moved = NamespaceFacts { labels: [(label::UPSTREAM_NAMESPACE.to_owned(), "shop".to_owned())].into(), ..facts };
    let (facts, stays, goes) = (NamespaceFacts::default(), true, false);
    let namespace = |old, new| Change::Namespace(Delta { namespace: "", name: "ns-1", old, new });
    let secret = |old, new| Change::Companion(SourceKind::Secret, changed("db", old, new));
    let users = || vec![Work::Users(ns(), DataRef::secret("db")), Work::CompanionCount(ns())];
    table([
        ("a namespace is there", namespace(None, Some(&facts)), vec![Work::Instances(ns())]),
        ("its labels change", namespace(Some(&facts), Some(&moved)), vec![Work::Instances(ns()), Work::QuotaUse(ns())]),
        // If a namespace was deleted before its last Instance, the project's quota was watched without end.
        (
            "it is deleted, with its metrics",
            namespace(Some(&facts), None),
            vec![Work::Instances(ns()), Work::QuotaUse(ns()), Work::ForgetNamespace(ns())],
        ),
        ("it is unchanged", namespace(Some(&facts), Some(&facts)), vec![]),
        ("a companion is there", secret(None, Some(&stays)), users()),
        ("it is terminating", secret(Some(&stays), Some(&goes)), users()),
        ("it is deleted", secret(Some(&goes), None), users()),
        ("it has other content", secret(Some(&stays), Some(&stays)), vec![]),
    ]);
}

#[test]
fn network_object_change_enqueues_deployments_that_use_it() {
    let binding = |owners: Value| -> NetworkBinding {
        let spec = json!({ "network": { "name": "default" }, "location": { "name": "dfw-1" } });
        serde_json::from_value(json!({ "metadata": { "name": "x", "ownerReferences": owners }, "spec": spec })).unwrap()
    };
    let (web, api) = (binding(owner("WorkloadDeployment", "web")), binding(owner("WorkloadDeployment", "api")));
    let claim = |context: &str| -> SubnetClaim {
        serde_json::from_value(json!({ "metadata": { "name": "x" }, "spec": {
            "networkContext": { "name": context }, "location": { "name": "dfw-1" }, "ipFamily": "IPv4", "subnetClass": "private",
        }}))
        .unwrap()
    };
    let subnet: Subnet = serde_json::from_value(json!({
        "metadata": { "name": "x" }, "spec": { "networkContext": { "name": "one" } },
    }))
    .unwrap();
    let (one, other) = (claim("one"), claim("other"));
    let of_binding = |old, new| Change::NetworkBinding(changed("x", old, new));
    let of_claim = |old, new| Change::SubnetClaim(changed("x", old, new));
    table([
        ("a binding is there", of_binding(None, Some(&web)), vec![on("web"), instances_of("web")]),
        (
            "it is given to another",
            of_binding(Some(&web), Some(&api)),
            vec![on("web"), instances_of("web"), on("api"), instances_of("api")],
        ),
        ("it is deleted", of_binding(Some(&web), None), vec![on("web"), instances_of("web")]),
        ("it has no owner", of_binding(None, Some(&binding(json!([])))), vec![]),
        ("a context", Change::NetworkContext("ns-1", "one"), vec![users_of("one")]),
        ("a subnet claim is there", of_claim(None, Some(&one)), vec![users_of("one")]),
        ("it is deleted", of_claim(Some(&one), None), vec![users_of("one")]),
        ("it moves", of_claim(Some(&one), Some(&other)), vec![users_of("one"), users_of("other")]),
        ("a subnet", Change::Subnet(changed("x", None, Some(&subnet))), vec![users_of("one")]),
        ("where the cell is", Change::Location(changed("dfw", None, Some(&place("dfw")))), vec![Work::Everything]),
        (
            "a location has another city",
            Change::Location(changed("dfw", Some(&place("dfw")), Some(&place("ord")))),
            vec![Work::Everything],
        ),
        (
            "a heartbeat of a location",
            Change::Location(changed("dfw", Some(&place("dfw")), Some(&place("dfw")))),
            vec![],
        ),
    ]);
}

/// Returns a Location `dfw` of this city.
fn place(city: &str) -> Place {
    let reference = LocationReference { name: "dfw".into(), namespace: None };
    Place { reference, city: CityCode::parse(city).ok() }
}

#[test]
fn decodable_objects_again_enqueue_their_namespace() {
    table([
        (
            "Instances",
            Change::InstancesReadable("ns-1"),
            vec![Work::Deployments(ns()), Work::Instances(ns()), Work::Copies(ns()), Work::QuotaClaims(ns())],
        ),
        ("copies", Change::CopiesReadable("ns-1"), vec![Work::Copies(ns())]),
        ("a copy", Change::Copy("ns-1", "web-0"), vec![Work::Copy(ns(), "web-0".into())]),
    ]);
}

#[test]
fn quota_claim_change_enqueues_its_instance_on_this_cell() {
    let claim = |name: &str, cell: Option<&str>, namespace: Option<&str>| -> ResourceClaim {
        let labels = [(label::CELL_UID, cell), (label::INSTANCE_NAMESPACE, namespace)];
        let labels: serde_json::Map<String, Value> =
            labels.into_iter().filter_map(|(key, value)| Some((key.to_owned(), json!(value?)))).collect();
        serde_json::from_value(json!({
            "metadata": { "namespace": "shop", "name": name, "labels": labels },
            "spec": { "consumerRef": {}, "requests": [] },
        }))
        .unwrap()
    };
    let cell = Identity { uid: "here".into(), names: claim::Names { current: "dfw".into(), former: BTreeSet::new() } };
    let ours = claim("instance-web-0", Some("here"), Some("ns-1"));
    let unmarked = claim("instance-web-0", None, Some("ns-1"));
    let others = claim("instance-web-0", Some("there"), Some("ns-1"));
    let for_whom = || Some(("ns-1".to_owned(), "web-0".to_owned()));
    for (what, cell, old, new, expected) in [
        ("it is there", Some(&cell), None, Some(&ours), for_whom()),
        ("it is deleted", Some(&cell), Some(&ours), None, for_whom()),
        ("the Go operator's", Some(&cell), None, Some(&unmarked), for_whom()),
        ("another cell's", Some(&cell), None, Some(&others), None),
        ("before the cell's identity is known", None, None, Some(&others), for_whom()),
        ("for no Instance", Some(&cell), None, Some(&claim("web-0", Some("here"), Some("ns-1"))), None),
        (
            "for a namespace that is not named",
            Some(&cell),
            None,
            Some(&claim("instance-web-0", Some("here"), None)),
            None,
        ),
        ("one that cannot be read", Some(&cell), None, None, None),
    ] {
        let delta = Delta { namespace: "shop", name: "instance-web-0", old, new };
        assert_eq!(after_quota_claim(cell, &delta), expected, "{what}");
    }
}
