use serde_json::{Value, json};

use super::*;
use crate::api::referenced::MANY_USERS;

#[path = "triggers_binding_tests.rs"]
mod of_bindings;

fn changed<'a, V>(name: &'a str, old: Option<&'a V>, new: Option<&'a V>) -> Delta<'a, V> {
    Delta { namespace: "ns-1", name, old, new }
}

fn deployment(edit: impl FnOnce(&mut Value)) -> WorkloadDeployment {
    let mut object = json!({
        "metadata": { "namespace": "shop", "name": "web-p-dfw", "uid": "u", "generation": 1 },
        "spec": {
            "workloadRef": { "name": "web", "uid": "w" }, "placementName": "p", "cityCode": "DFW",
            "template": { "spec": { "runtime": { "resources": { "instanceType": "t" }, "sandbox": { "containers": [
                { "name": "c", "image": "i", "envFrom": [{ "secretRef": { "name": "db" } }] },
            ] } }, "networkInterfaces": [] } },
            "scaleSettings": { "minReplicas": 1 },
        },
    });
    edit(&mut object);
    serde_json::from_value(object).unwrap()
}

/// Its cluster has been away for long.
fn unheard(deployment: &mut Value) {
    deployment["status"] = json!({ "conditions": [{
        "type": "Available", "status": "Unknown", "reason": "ClusterNotReady", "message": "",
        "lastTransitionTime": "2026-01-01T00:00:00Z",
    }]});
}

fn copy(city: &str, expects: &[&str]) -> WorkloadDeployment {
    deployment(|object| {
        object["metadata"]["labels"] = json!({ label::TOPOLOGY_CITY: city });
        let expects = json!(expects).to_string();
        object["metadata"]["annotations"] = json!({ annotation::EXPECTED_REFERENCED_DATA: expects });
    })
}

fn city(code: &str) -> CityCode {
    CityCode::parse(code).unwrap()
}

fn on(city_code: &str) -> HubWork {
    HubWork::Policy("ns-1".into(), city(city_code))
}

fn of_secret(name: &str) -> HubWork {
    HubWork::Companion("ns-1".into(), DataRef::secret(name))
}

fn originals() -> HubWork {
    HubWork::Originals(Some("ns-1".into()))
}

fn policies() -> HubWork {
    HubWork::Policies(Some("ns-1".into()))
}

/// Checks a table of changes against the work that each brings.
fn table<'a>(cases: impl IntoIterator<Item = (&'a str, HubChange<'a>, Vec<HubWork>)>) {
    for (what, change, expected) in cases {
        assert_eq!(after_hub(&change), expected.into_iter().collect(), "{what}");
    }
}

#[test]
fn a_copy_concerns_its_original_its_cities_and_the_companions_that_it_expects_or_did() {
    let (dfw, ord) = (copy("dfw", &["Secret/db"]), copy("ord", &["Secret/db", "Secret/key"]));
    let lost = copy("not/a city", &[]);
    let web = || original("ns-1", "web");
    let case = |old, new| HubChange::Copy(changed("web", old, new));
    table([
        ("it is new", case(None, Some(&dfw)), vec![web(), on("dfw"), of_secret("db")]),
        ("only its status changed", case(Some(&dfw), Some(&dfw)), vec![web()]),
        ("it moves", case(Some(&dfw), Some(&ord)), vec![web(), on("dfw"), on("ord"), of_secret("key")]),
        ("it is gone", case(Some(&dfw), None), vec![web(), on("dfw"), of_secret("db")]),
        ("its city cannot be read", case(None, Some(&lost)), vec![web()]),
    ]);
}

#[test]
fn a_policy_concerns_its_city_and_with_its_phase_everything_beside_it() {
    let policy = |managed: bool, kinds: &[&str]| -> PropagationPolicy {
        let selectors: Vec<_> = kinds.iter().map(|kind| json!({ "apiVersion": "v1", "kind": kind })).collect();
        let by = if managed { "compute-operator" } else { "somebody" };
        serde_json::from_value(json!({
            "metadata": { "labels": { label::MANAGED_BY: by } }, "spec": { "resourceSelectors": selectors },
        }))
        .unwrap()
    };
    let (ours, claims) = (policy(true, &["WorkloadDeployment"]), policy(true, &["WorkloadDeployment", "Secret"]));
    let theirs = policy(false, &["WorkloadDeployment"]);
    let all = || vec![on("dfw"), HubWork::Companions("ns-1".into()), originals()];
    let case = |old, new| HubChange::Policy(changed("city-dfw", old, new));
    table([
        ("it is new", case(None, Some(&ours)), all()),
        ("it is gone", case(Some(&ours), None), all()),
        ("it claims no more", case(Some(&claims), Some(&ours)), all()),
        ("it is taken over", case(Some(&theirs), Some(&ours)), all()),
        ("its placement changed", case(Some(&ours), Some(&ours)), vec![on("dfw")]),
        (
            "the name is no city's",
            HubChange::Policy(changed("theirs", Some(&ours), None)),
            vec![HubWork::Companions("ns-1".into()), originals()],
        ),
    ]);
}

#[test]
fn a_companion_concerns_its_own_controller_and_those_whose_use_or_copy_changed() {
    let facts = |users: &[&str], policy: Option<&str>| CompanionFacts {
        uid: "u".into(),
        users: Some(users.iter().map(|user| (*user).to_owned()).collect()),
        policy: policy.map(str::to_owned),
        ..CompanionFacts::default()
    };
    let (one, two) = (facts(&["shop/web"], None), facts(&["shop/web", "shop/api"], None));
    let claimed = facts(&["shop/web"], Some("city-dfw"));
    let widely = CompanionFacts { cluster_policy: Some("wide".into()), ..one.clone() };
    let going = CompanionFacts { terminating: true, ..two.clone() };
    let corrupt = CompanionFacts { users: None, ..one.clone() };
    let many = facts(&[MANY_USERS], None);
    let many_go = CompanionFacts { terminating: true, ..many.clone() };
    let (web, api) = (|| original("ns-1", "web"), || original("ns-1", "api"));
    let users = || HubWork::Users("ns-1".into(), DataRef::secret("db"));
    let case = |old, new| HubChange::Companion(SourceKind::Secret, changed("db", old, new));
    table([
        ("it is new", case(None, Some(&one)), vec![of_secret("db"), web()]),
        ("another user", case(Some(&one), Some(&two)), vec![of_secret("db"), api()]),
        ("its content alone", case(Some(&two), Some(&two)), vec![of_secret("db")]),
        ("a policy claims it", case(Some(&one), Some(&claimed)), vec![of_secret("db"), on("dfw"), web()]),
        ("a cluster-wide policy does", case(Some(&one), Some(&widely)), vec![of_secret("db"), web()]),
        ("it goes", case(Some(&two), Some(&going)), vec![of_secret("db"), web(), api()]),
        ("they are too many to be named", case(Some(&one), Some(&many)), vec![of_secret("db"), users(), web()]),
        ("of so many one more or less", case(Some(&many), Some(&many)), vec![of_secret("db")]),
        ("it goes, and many use it", case(Some(&many), Some(&many_go)), vec![of_secret("db"), users()]),
        ("it is gone", case(Some(&many), None), vec![of_secret("db"), users()]),
        ("its claims become unreadable", case(Some(&one), Some(&corrupt)), vec![of_secret("db"), web()]),
    ]);
}

/// Found by reading: whoever waited for one that nobody could read waited on when that was deleted.
#[test]
fn whoever_waited_for_what_nobody_could_read_looks_again_once_it_is_gone() {
    table([
        (
            "a Cluster that nobody could read is gone",
            HubChange::ClustersReadable,
            vec![HubWork::Originals(None), HubWork::Policies(None), HubWork::Clusters, HubWork::Asked(None)],
        ),
        (
            "a binding that nobody could read is gone",
            HubChange::BindingsReadable("ns-1"),
            vec![originals(), policies(), HubWork::Clusters],
        ),
    ]);
}

#[test]
fn clusters_namespaces_and_instances_of_the_hub() {
    let cluster = |draining| ClusterFacts { draining, ..ClusterFacts::labelled("dfw") };
    let (stays, leaves) = (cluster(false), cluster(true));
    let on = |cities: &[&str]| {
        HubWork::OnCluster("a".into(), cities.iter().map(|city| CityCode::parse(city).unwrap()).collect())
    };
    let on_a = || on(&["dfw"]);
    let relabelled = ClusterFacts::labelled("ord");
    let rebuilt = ClusterFacts { cell: Some("uid-2".into()), ..stays.clone() };
    let given_up = ClusterFacts { dead: true, draining: true, ..rebuilt.clone() };
    let labels = [(label::UPSTREAM_CLUSTER, "cluster-single"), (label::UPSTREAM_NAMESPACE, "shop")];
    let labels = labels.map(|(key, value)| (key.to_owned(), value.to_owned())).into();
    let mirror = NamespaceFacts { labels, ..NamespaceFacts::default() };
    let (other, going) = (NamespaceFacts::default(), NamespaceFacts { terminating: true, ..mirror.clone() });
    let mirrored = || vec![HubWork::ProjectNamespace(ProjectName::single(), "shop".into())];
    let of_other = || HubWork::ProjectNamespace(ProjectName::new("other"), "shop".into());
    let everything = || vec![originals(), policies(), HubWork::Companions("ns-1".into())];
    let elsewhere = NamespaceFacts {
        labels: [(label::UPSTREAM_CLUSTER, "cluster-other"), (label::UPSTREAM_NAMESPACE, "shop")]
            .map(|(key, value)| (key.to_owned(), value.to_owned()))
            .into(),
        ..NamespaceFacts::default()
    };
    table([
        (
            "a cluster is drained",
            HubChange::Cluster(changed("a", Some(&stays), Some(&leaves))),
            vec![HubWork::Clusters, on_a()],
        ),
        (
            "it is given up, and what its cell held with it",
            HubChange::Cluster(changed("a", Some(&rebuilt), Some(&given_up))),
            vec![HubWork::Clusters, on_a(), HubWork::Asked(None)],
        ),
        (
            "its drain is called off",
            HubChange::Cluster(changed("a", Some(&leaves), Some(&stays))),
            vec![HubWork::Clusters, on_a(), HubWork::CalledOff("a".into())],
        ),
        (
            "it is another cell behind a cluster of the same name",
            HubChange::Cluster(changed("a", Some(&stays), Some(&rebuilt))),
            vec![HubWork::Clusters, on_a(), HubWork::Asked(None)],
        ),
        (
            "its label moves to another city",
            HubChange::Cluster(changed("a", Some(&stays), Some(&relabelled))),
            vec![HubWork::Clusters, on(&["dfw", "ord"])],
        ),
        ("of a cluster nothing that counts", HubChange::Cluster(changed("a", Some(&stays), Some(&stays))), vec![]),
        (
            "a namespace is there",
            HubChange::Namespace(changed("ns-1", None, Some(&mirror))),
            [mirrored(), everything()].concat(),
        ),
        // Found by reading: whoever could have put the label back was not told, and nothing of the namespace was heard.
        ("a hand took its label", HubChange::Namespace(changed("ns-1", Some(&mirror), Some(&other))), mirrored()),
        (
            "a hand gave it to another project",
            HubChange::Namespace(changed("ns-1", Some(&mirror), Some(&elsewhere))),
            [mirrored(), vec![of_other()], everything()].concat(),
        ),
        (
            "it has its label back",
            HubChange::Namespace(changed("ns-1", Some(&other), Some(&mirror))),
            [mirrored(), everything()].concat(),
        ),
        ("it goes", HubChange::Namespace(changed("ns-1", Some(&mirror), Some(&going))), mirrored()),
        ("it is gone", HubChange::Namespace(changed("ns-1", Some(&going), None)), mirrored()),
        ("of it nothing that counts", HubChange::Namespace(changed("ns-1", Some(&mirror), Some(&mirror))), vec![]),
        ("a namespace that mirrors nothing", HubChange::Namespace(changed("x", None, Some(&other))), vec![]),
    ]);
}

#[test]
fn a_hub_instance_concerns_every_place_that_it_named() {
    let instance = |project: &str| -> Instance {
        serde_json::from_value(json!({
            "metadata": { "namespace": "ns-1", "name": "web-0", "labels": {
                label::UPSTREAM_CLUSTER: project, label::UPSTREAM_NAMESPACE: "shop", label::WORKLOAD_DEPLOYMENT_NAME: "web",
            } },
            "spec": { "runtime": { "resources": { "instanceType": "t" } }, "networkInterfaces": [] },
        }))
        .unwrap()
    };
    let at = |project: Option<&str>| HubWork::Projection {
        namespace: "ns-1".into(),
        name: "web-0".into(),
        origin: project.map(|project| Origin {
            project: ProjectName::new(project),
            namespace: "shop".into(),
            deployment: "web".into(),
        }),
    };
    let (alpha, beta, nowhere) = (instance("cluster-alpha"), instance("cluster-beta"), instance("beta"));
    let case = |old, new| HubChange::Instance(changed("web-0", old, new));
    table([
        ("it is new", case(None, Some(&alpha)), vec![at(Some("alpha"))]),
        ("its label changed", case(Some(&alpha), Some(&beta)), vec![at(Some("alpha")), at(Some("beta"))]),
        ("its label is no project's", case(Some(&alpha), Some(&nowhere)), vec![at(Some("alpha")), at(None)]),
        (
            "it is gone",
            case(Some(&beta), None),
            vec![at(Some("beta")), HubWork::Release("ns-1".into(), "web-0".into())],
        ),
    ]);
}

#[test]
fn whoever_waited_for_what_could_not_be_read_is_called() {
    table([
        (
            "copies",
            HubChange::CopiesReadable("ns-1"),
            vec![originals(), policies(), HubWork::Companions("ns-1".into())],
        ),
        ("Instances", HubChange::InstancesReadable("ns-1"), vec![HubWork::ProjectNamespaceOf("ns-1".into())]),
    ]);
}

fn within<'a, V>(old: Option<&'a V>, new: Option<&'a V>) -> Delta<'a, V> {
    Delta { namespace: "shop", name: "web-p-dfw", old, new }
}

#[test]
fn what_a_change_in_a_project_concerns() {
    let wd = deployment(|_| ());
    let newer = deployment(|object| object["metadata"]["generation"] = json!(2));
    let reborn = deployment(|object| object["metadata"]["uid"] = json!("v"));
    let recorded = deployment(|object| {
        let promised = r#"["ConfigMap/settings"]"#;
        object["metadata"]["annotations"] =
            json!({ annotation::FEDERATION_NAMESPACE: "ns-9", annotation::EXPECTED_REFERENCED_DATA: promised });
    });
    let shop = || "shop".to_owned();
    let status =
        || vec![ProjectWork::Deployment(shop(), "web-p-dfw".into()), ProjectWork::Workload(shop(), "web".into())];
    let always = |recorded: Option<&str>| {
        let policy =
            ProjectWork::Policy { namespace: shop(), recorded: recorded.map(str::to_owned), city: city("dfw") };
        [status(), vec![policy]].concat()
    };
    let companion = |data_ref| vec![ProjectWork::Companion(shop(), data_ref)];
    let db = || companion(DataRef::secret("db"));
    let unheard = deployment(unheard);
    let owned = deployment(|object| {
        object["metadata"]["ownerReferences"] =
            json!([{ "apiVersion": "a/v1", "kind": "Workload", "name": "o", "uid": "o", "controller": true }]);
    });
    let freed = || vec![ProjectWork::NameFreed(shop(), "web-p-dfw".into())];
    let hub_instances = || vec![ProjectWork::HubInstances(shop(), "web-p-dfw".into())];
    for (what, change, expected) in [
        ("a Workload", ProjectChange::Workload("shop", "web"), vec![ProjectWork::Workload(shop(), "web".into())]),
        ("a projection", ProjectChange::Projection("shop", "x"), vec![ProjectWork::Projection(shop(), "x".into())]),
        ("a source", ProjectChange::Source("shop", DataRef::secret("db")), db()),
        (
            "a deployment is new",
            ProjectChange::Deployment(within(None, Some(&wd))),
            [always(None), db(), hub_instances()].concat(),
        ),
        ("only its status", ProjectChange::Deployment(within(Some(&wd), Some(&wd))), status()),
        ("its spec", ProjectChange::Deployment(within(Some(&wd), Some(&newer))), [always(None), db()].concat()),
        (
            "it was replaced",
            ProjectChange::Deployment(within(Some(&wd), Some(&reborn))),
            [always(None), db(), hub_instances()].concat(),
        ),
        (
            "its cluster is not heard of any more",
            ProjectChange::Deployment(within(Some(&wd), Some(&unheard))),
            [status(), hub_instances()].concat(),
        ),
        (
            "it is gone: what it was promised, and where it had been, count",
            ProjectChange::Deployment(within(Some(&recorded), None)),
            [always(Some("ns-9")), db(), companion(DataRef::config_map("settings")), hub_instances(), freed()].concat(),
        ),
        (
            "it has another owner: its name may be another Workload's now",
            ProjectChange::Deployment(within(Some(&wd), Some(&owned))),
            [status(), freed()].concat(),
        ),
    ] {
        assert_eq!(after_project(&change), expected.into_iter().collect(), "{what}");
    }
}

#[test]
fn change_of_a_location_a_namespace_or_a_network_concerns_its_workloads() {
    let shop = || "shop".to_owned();
    let (open, opens) = (Some(city("dfw")), None);
    let facts = NamespaceFacts::default();
    let paused = NamespaceFacts { paused: true, ..NamespaceFacts::default() };
    let of_namespace = |old, new| ProjectChange::Namespace(Delta { namespace: "", name: "shop", old, new });
    for (what, change, expected) in [
        (
            "a location opens a city",
            ProjectChange::Location(within(Some(&opens), Some(&open))),
            vec![ProjectWork::Workloads(None)],
        ),
        ("a location says the same", ProjectChange::Location(within(Some(&open), Some(&open))), vec![]),
        ("a namespace", of_namespace(Some(&facts), Some(&paused)), vec![ProjectWork::Namespace(shop())]),
        ("a namespace says the same", of_namespace(Some(&facts), Some(&facts)), vec![]),
        (
            "a Network is there",
            ProjectChange::Network(within(None, Some(&()))),
            vec![ProjectWork::Workloads(Some(shop()))],
        ),
        (
            "its deployments can be read again",
            ProjectChange::DeploymentsReadable("shop"),
            vec![ProjectWork::Namespace(shop()), ProjectWork::Mirror(shop())],
        ),
        ("a Network changed", ProjectChange::Network(within(Some(&()), Some(&()))), vec![]),
    ] {
        assert_eq!(after_project(&change), expected.into_iter().collect(), "{what}");
    }
}
