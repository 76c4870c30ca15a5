use std::{collections::HashMap, sync::Arc};

use serde_json::Value;

use super::*;
use crate::{
    api::{
        compute::{Condition, ConditionStatus, WorkloadDeploymentStatus},
        meta::{annotation, condition},
        reason::Reason,
    },
    plan::{Kind, Op, recorded::recorded},
};

const NOW: Timestamp = Timestamp::UNIX_EPOCH;

fn workload(placements: &Value) -> Workload {
    serde_json::from_value(json!({
        "apiVersion": "compute.datumapis.com/v1alpha", "kind": "Workload",
        "metadata": { "name": "web", "namespace": "ns", "uid": "w1", "generation": 3, "finalizers": [finalizer::WORKLOAD] },
        "spec": {
            "template": { "spec": {
                "runtime": { "resources": { "instanceType": "t" }, "sandbox": { "containers": [{ "name": "c", "image": "i" }] } },
                "networkInterfaces": [{ "network": { "name": "n" } }],
                "controller": { "templateHash": "forged" },
            }},
            "placements": placements,
        },
    }))
    .unwrap()
}

fn placement(name: &str, cities: &[&str]) -> Value {
    json!({ "name": name, "cityCodes": cities, "scaleSettings": { "minReplicas": 1 } })
}

/// A project as the planner sees it, with the results of the planner's writes.
#[derive(Default)]
struct World {
    deployments: HashMap<String, Arc<WorkloadDeployment>>,
    bound: BTreeSet<CityCode>,
    /// Networks of the namespace. `None` without the network feature.
    networks: Option<Vec<String>>,
    /// True if another client reverts all due writes.
    contested: bool,
    /// Why LocationBindings cannot be read at present.
    locations_fail: Option<String>,
}

impl World {
    fn with(cities: &[&str]) -> Self {
        Self { bound: cities.iter().map(|c| CityCode::parse(c).unwrap()).collect(), ..Self::default() }
    }

    fn plan(&self, workload: &Workload) -> Vec<Write<Project>> {
        let mut deployments: Vec<_> =
            self.deployments.values().filter(|wd| wd.spec.workload_ref.uid == "w1").cloned().collect();
        deployments.sort_by_key(|wd| wd.name_any());
        let named = placement::names(workload)
            .into_iter()
            .filter_map(|name| Some((name.clone(), self.deployments.get(&name)?.clone().into())));
        let observed = Observed {
            locations_fail: self.locations_fail.clone(),
            unreadable: Vec::new(),
            workload: workload.clone().into(),
            deployments: deployments.into_iter().map(Shared::from).collect(),
            named: named.collect(),
            bound: self.bound.clone(),
            namespace_uid: Some("n1".into()),
            networks: self.networks.as_ref().map(|networks| networks.iter().cloned().collect()),
            contested: self.contested,
            timing: Timing::default(),
        };
        let steps = plan(&observed, NOW).steps;
        let again = plan(&recorded(&observed), NOW).steps;
        assert_eq!(format!("{again:?}"), format!("{steps:?}"), "decided again from its record");
        steps
    }

    /// Plans and applies until only the status is left to write. Returns the status.
    fn settle(&mut self, workload: &Workload) -> Value {
        for _ in 0..5 {
            let writes = self.plan(workload);
            for write in &writes {
                match &write.op {
                    Op::Apply { body, status: true, .. } => return body["status"].clone(),
                    Op::Apply { body, .. } => {
                        let mut wd: WorkloadDeployment = serde_json::from_value(json!(body)).unwrap();
                        wd.metadata.uid = Some(format!("uid-{}", write.object.name));
                        wd.metadata.resource_version = Some("1".into());
                        self.deployments.insert(write.object.name.clone(), Arc::new(wd));
                    }
                    Op::Delete { .. } => drop(self.deployments.remove(&write.object.name)),
                    Op::ConfirmUnchanged { .. } => assert_eq!(write.object.name, workload.name_any()),
                    other => panic!("{other:?}"),
                }
            }
        }
        panic!("does not settle")
    }

    fn names(&self) -> Vec<&str> {
        let mut names: Vec<&str> = self.deployments.keys().map(String::as_str).collect();
        names.sort_unstable();
        names
    }

    fn edit(&mut self, name: &str, edit: impl FnOnce(&mut WorkloadDeployment)) {
        edit(Arc::make_mut(self.deployments.get_mut(name).unwrap()));
    }
}

#[test]
fn workload_gets_a_federated_deployment_in_each_bound_city() {
    let mut world = World::with(&["dfw", "ord"]);
    let status = world.settle(&workload(&json!([placement("a", &["DFW"]), placement("b", &["dfw", "ord"])])));
    assert_eq!(world.names(), ["web-a-dfw", "web-b-dfw", "web-b-ord"]);
    let wd = &world.deployments["web-a-dfw"];
    assert_eq!(wd.spec.city_code, "DFW", "as the user wrote it");
    assert_eq!(wd.finalizers(), [finalizer::FEDERATOR]);
    assert_eq!(wd.annotations()[annotation::FEDERATION_NAMESPACE], "ns-n1");
    assert_eq!(wd.labels()[label::WORKLOAD_UID], "w1");
    assert!(wd.spec.template.spec.controller.is_none(), "never the tenant's to write");
    assert_eq!(status["observedGeneration"], 3);
    assert_eq!(status["deployments"], 3);
}

#[test]
fn deployment_first_apply_yields_and_later_ones_force() {
    let mut world = World::with(&["dfw"]);
    let workload = workload(&json!([placement("a", &["dfw"])]));
    let forced = |writes: &[Write<Project>]| -> Vec<bool> {
        let deployments = writes.iter().filter(|write| write.object.kind == Kind::WorkloadDeployment);
        deployments.filter_map(|w| if let Op::Apply { force, .. } = w.op { Some(force) } else { None }).collect()
    };
    assert_eq!(forced(&world.plan(&workload)), [false]);
    world.settle(&workload);
    world.edit("web-a-dfw", |wd| wd.spec.city_code = "elsewhere".into());
    assert_eq!(forced(&world.plan(&workload)), [true], "ours to put back");
}

#[test]
fn deployment_of_removed_city_or_placement_is_deleted() {
    let mut world = World::with(&["dfw", "ord"]);
    world.settle(&workload(&json!([placement("a", &["dfw", "ord"]), placement("b", &["dfw"])])));
    world.settle(&workload(&json!([placement("a", &["ord"])])));
    assert_eq!(world.names(), ["web-a-ord"]);
}

#[test]
fn invalid_placement_is_reported_and_its_deployments_are_kept() {
    let long = "p".repeat(60);
    for (placements, word) in [
        (json!([placement("a", &["dfw", "DFW"])]), "listed twice"),
        (json!([placement("a", &[])]), "cityCodes is empty"),
        (json!([placement("a", &["dfw"]), placement("a", &["ord"])]), "two placements are named"),
        (json!([placement(&long, &["dfw"])]), "is the limit"),
        (json!([placement("a", &["no/city"])]), "city code"),
        (json!([placement("A", &["dfw"])]), "rename"),
        (json!([]), "spec.placements is empty"),
    ] {
        let mut world = World::with(&["dfw", "ord"]);
        world.settle(&workload(&json!([placement("a", &["dfw"])])));
        let status = world.settle(&workload(&placements));
        let reported = &status["conditions"][0];
        assert_eq!(reported["status"], "False", "{placements}");
        assert!(reported["message"].as_str().unwrap().contains(word), "{placements}: {reported}");
    }
    let mut world = World::with(&["dfw", "ord"]);
    world.settle(&workload(&json!([placement("a", &["dfw"])])));
    world.settle(&workload(&json!([placement("a", &["ord", "ord"])])));
    assert_eq!(world.names(), ["web-a-dfw"], "neither deleted nor added to");
}

#[test]
fn placements_that_make_the_same_name_are_reported() {
    let mut world = World::with(&["b-c", "c"]);
    let status = world.settle(&workload(&json!([placement("a", &["b-c"]), placement("a-b", &["c"])])));
    assert_eq!(world.names(), ["web-a-b-c"], "the first keeps it");
    assert!(status["placements"][1]["conditions"][0]["message"].as_str().unwrap().contains("both make"));
}

/// Placement `a` was rejected because of an invalid placement that makes no deployment.
#[test]
fn invalid_placement_blocks_another_only_if_it_has_the_deployment() {
    let (good, bad) = (placement("a", &["b-c"]), placement("a-b", &["c", "no/city"]));
    for placements in [json!([good, bad]), json!([bad, good])] {
        let mut world = World::with(&["b-c", "c"]);
        let status = world.settle(&workload(&placements));
        assert_eq!(world.names(), ["web-a-b-c"], "{placements}");
        let reported = |name: &str| {
            let found = status["placements"].as_array().unwrap().iter().find(|p| p["name"] == name);
            found.unwrap()["conditions"][0]["reason"].clone()
        };
        assert_eq!((reported("a"), reported("a-b")), (json!("NoAvailableDeployments"), json!("InvalidPlacement")));
        let mut world = World::with(&["b-c", "c"]);
        world.settle(&workload(&json!([placement("a-b", &["c"])])));
        world.settle(&workload(&placements));
        assert_eq!(world.deployments["web-a-b-c"].spec.placement_name, "a-b", "left as it is: {placements}");
    }
}

#[test]
fn unbound_city_is_reported_and_keeps_its_deployment() {
    let mut world = World::with(&["dfw"]);
    let status = world.settle(&workload(&json!([placement("a", &["dfw", "lhr"])])));
    assert_eq!(world.names(), ["web-a-dfw"]);
    let reported = |status: &Value| status["placements"][0]["conditions"][0]["message"].as_str().unwrap().to_owned();
    assert!(reported(&status).contains("lhr is not available"), "{}", reported(&status));
    assert!(reported(&status).ends_with("; open cities: dfw"), "{}", reported(&status));
    world.bound.clear();
    let status = world.settle(&workload(&json!([placement("a", &["dfw", "lhr"])])));
    assert_eq!(world.names(), ["web-a-dfw"]);
    assert!(reported(&status).contains("dfw is no longer available"), "{}", reported(&status));
    let none = World::default().settle(&workload(&json!([placement("a", &["lhr"])])));
    assert_eq!(none["conditions"][0]["reason"], Reason::NoMatchingLocations.as_str());
    assert!(reported(&none).ends_with("; no city is open to this project: ask your platform to open one"), "{none}");
    let cities: Vec<String> = ('a'..='z').map(|letter| format!("x{letter}")).collect();
    let mut many = World::with(&cities.iter().map(String::as_str).collect::<Vec<_>>());
    let status = many.settle(&workload(&json!([placement("a", &["lhr"])])));
    assert!(reported(&status).ends_with("xt, and 6 more"), "{}", reported(&status));
}

#[test]
fn deployment_of_another_owner_is_reported_and_not_changed() {
    let mut world = World::with(&["dfw"]);
    let object = workload(&json!([placement("a", &["dfw"])]));
    world.settle(&object);
    world.edit("web-a-dfw", |wd| {
        wd.metadata.owner_references.as_mut().unwrap()[0].uid = "other".into();
        wd.spec.workload_ref.uid = "other".into();
    });
    let before = world.deployments["web-a-dfw"].clone();
    let status = world.settle(&object);
    assert_eq!(status["conditions"][0]["reason"], Reason::DeploymentNameTaken.as_str());
    assert_eq!(world.deployments["web-a-dfw"], before);
}

/// Makes a deployment one from before the Workload was recreated: left by `--cascade=orphan`, or restored without owner
/// references.
fn left_behind(world: &mut World, edit: impl FnOnce(&mut WorkloadDeployment)) {
    world.edit("web-a-dfw", |wd| {
        wd.metadata.owner_references = None;
        wd.metadata.labels = Some([(label::WORKLOAD_UID.to_owned(), "before".to_owned())].into());
        wd.metadata.annotations = Some([(annotation::FEDERATION_NAMESPACE.to_owned(), "ns-before".to_owned())].into());
        wd.spec.workload_ref.uid = "before".into();
        edit(wd);
    });
}

/// A namespace that was restored object by object waited forever: its Workload took its own deployments for another owner's.
#[test]
fn deployment_without_controller_of_the_same_name_is_adopted() {
    let mut world = World::with(&["dfw"]);
    let object = workload(&json!([placement("a", &["dfw"])]));
    world.settle(&object);
    left_behind(&mut world, |_| ());
    let uid = world.deployments["web-a-dfw"].metadata.uid.clone();
    let writes = world.plan(&object);
    let adopts = writes.iter().find(|write| write.object.kind == Kind::WorkloadDeployment).unwrap();
    assert_eq!(adopts.op.asked().unwrap()["metadata"]["uid"], json!(uid), "exactly the one that was judged");
    let status = world.settle(&object);
    assert_eq!(status["deployments"], 1);
    let adopted = &world.deployments["web-a-dfw"];
    assert!(ownership::is_controlled_by(&**adopted, &object));
    assert_eq!(adopted.spec.workload_ref.uid, "w1");
    assert_eq!(adopted.labels()[label::WORKLOAD_UID], "w1");
    assert_eq!(adopted.annotations()[annotation::FEDERATION_NAMESPACE], "ns-n1");
    // If the city is no longer open, its deployment runs on under the Workload.
    left_behind(&mut world, |_| ());
    world.bound.clear();
    world.settle(&object);
    assert!(ownership::is_controlled_by(&*world.deployments["web-a-dfw"], &object));
}

#[test]
fn deployment_of_another_place_or_terminating_is_not_adopted() {
    type Edit = fn(&mut WorkloadDeployment);
    let edits: [(&str, Edit); 5] = [
        ("another controller", |wd| {
            wd.metadata.owner_references = serde_json::from_value(json!([
                { "apiVersion": "v", "kind": "Other", "name": "o", "uid": "o", "controller": true },
            ]))
            .unwrap();
        }),
        ("a part of another Workload", |wd| wd.spec.workload_ref.name = "other".into()),
        ("of another placement", |wd| wd.spec.placement_name = "b".into()),
        ("in another city", |wd| wd.spec.city_code = "ord".into()),
        ("terminating", |wd| {
            wd.metadata.deletion_timestamp = Some(k8s_openapi::apimachinery::pkg::apis::meta::v1::Time(NOW));
        }),
    ];
    for (what, edit) in edits {
        let mut world = World::with(&["dfw"]);
        let object = workload(&json!([placement("a", &["dfw"])]));
        world.settle(&object);
        left_behind(&mut world, edit);
        let before = world.deployments["web-a-dfw"].clone();
        let status = world.settle(&object);
        assert_eq!(status["conditions"][0]["reason"], Reason::DeploymentNameTaken.as_str(), "{what}");
        assert_eq!(world.deployments["web-a-dfw"], before, "{what}");
    }
}

/// `kubectl delete workload --cascade=orphan` deleted every deployment.
#[test]
fn workload_deleted_with_orphan_keeps_its_deployments() {
    let mut world = World::with(&["dfw"]);
    let mut object = workload(&json!([placement("a", &["dfw"])]));
    world.settle(&object);
    object.metadata.deletion_timestamp = Some(k8s_openapi::apimachinery::pkg::apis::meta::v1::Time(NOW));
    object.metadata.finalizers = Some(vec![finalizer::WORKLOAD.into(), finalizer::ORPHAN.into()]);
    let writes = world.plan(&object);
    let [Write { op: Op::Merge { body, .. }, .. }] = &writes[..] else { panic!("{writes:?}") };
    assert_eq!(body["metadata"]["finalizers"], json!([finalizer::ORPHAN]), "garbage collection has work to do");
    // Garbage collection is done, and our finalizer was not released yet.
    left_behind(&mut world, |_| ());
    object.metadata.finalizers = Some(vec![finalizer::WORKLOAD.into()]);
    let writes = world.plan(&object);
    let [Write { op: Op::Merge { body, .. }, .. }] = &writes[..] else { panic!("{writes:?}") };
    assert_eq!(body["metadata"]["finalizers"], json!([]));
}

/// A policy of the platform rewrote the image of each deployment, and the Workload never got a status.
#[test]
fn deployment_rewritten_by_a_policy_does_not_block_the_status() {
    let mut world = World::with(&["dfw"]);
    let object = workload(&json!([placement("a", &["dfw"])]));
    world.settle(&object);
    world.edit("web-a-dfw", |wd| {
        wd.spec.template.spec.runtime.sandbox.as_mut().unwrap().containers[0].image = "mirror/i".into();
    });
    let is_status = |write: &&Write<Project>| matches!(write.op, Op::Apply { status: true, .. });
    assert_eq!(world.plan(&object).iter().filter(is_status).count(), 0, "until it is known that this is of no use");
    world.contested = true;
    let writes = world.plan(&object);
    let status = writes.iter().find(is_status).unwrap().op.asked().unwrap();
    assert_eq!((&status["status"]["observedGeneration"], &status["status"]["deployments"]), (&json!(3), &json!(1)));
    assert!(writes.iter().any(|write| write.object.kind == Kind::WorkloadDeployment), "it is for the contest to hold");
}

#[test]
fn workload_status_has_sums_and_the_worst_cause() {
    let mut world = World::with(&["dfw", "ord"]);
    let object = workload(&json!([placement("a", &["dfw", "ord"])]));
    world.settle(&object);
    let report = |ready: i32, reason: &str| WorkloadDeploymentStatus {
        conditions: vec![Condition {
            type_: condition::AVAILABLE.into(),
            status: if ready > 0 { ConditionStatus::True } else { ConditionStatus::False },
            observed_generation: None,
            last_transition_time: k8s_openapi::apimachinery::pkg::apis::meta::v1::Time(NOW),
            reason: reason.into(),
            message: "why".into(),
        }],
        replicas: 2,
        ready_replicas: ready,
        desired_replicas: 2,
        ..WorkloadDeploymentStatus::default()
    };
    world.edit("web-a-dfw", |wd| wd.status = Some(report(0, "ImageUnavailable")));
    world.edit("web-a-ord", |wd| wd.status = Some(report(0, Reason::InstancesProvisioning.as_str())));
    let status = world.settle(&object);
    assert_eq!(
        (&status["replicas"], &status["desiredReplicas"], &status["readyReplicas"]),
        (&json!(4), &json!(4), &json!(0))
    );
    assert_eq!(status["conditions"][0]["reason"], "ImageUnavailable");
    assert!(status["conditions"][0]["message"].as_str().unwrap().contains("web-a-dfw: why"));
    world.edit("web-a-ord", |wd| wd.status = Some(report(1, Reason::StableInstanceFound.as_str())));
    let status = world.settle(&object);
    assert_eq!(status["conditions"][0]["reason"], Reason::AvailablePlacementFound.as_str());
}

/// `Available` named the last placement of equal causes, and `Ready` the deployment of the first one.
#[test]
fn workload_of_equal_causes_reports_the_first_name() {
    let mut world = World::with(&["dfw", "ord"]);
    let object = workload(&json!([placement("a", &["ord"]), placement("b", &["dfw"])]));
    world.settle(&object);
    let bad = |type_: &str, message: &str| {
        json!({
            "type": type_, "status": "False", "reason": "ImageUnavailable", "message": message,
            "lastTransitionTime": NOW.to_string(), "observedGeneration": 1,
        })
    };
    for (name, message) in [("web-b-dfw", "of b"), ("web-a-ord", "of a")] {
        let conditions = [condition::AVAILABLE, condition::READY].map(|type_| bad(type_, message));
        world.edit(name, |wd| {
            wd.metadata.generation = Some(1);
            wd.status = serde_json::from_value(json!({ "conditions": conditions })).unwrap();
        });
    }
    let status = world.settle(&object);
    let conditions = status["conditions"].as_array().unwrap();
    for type_ in [condition::AVAILABLE, condition::READY] {
        let found = conditions.iter().find(|condition| condition["type"] == type_).unwrap();
        let message = found["message"].as_str().unwrap();
        assert!(message.contains("of a") && !message.contains("of b"), "{type_}: {message}");
    }
}

/// Cells may report any number, and two large counters overflowed their sum.
#[test]
fn workload_status_clamps_sums_that_overflow() {
    let mut world = World::with(&["dfw", "ord"]);
    let object = workload(&json!([placement("a", &["dfw", "ord"])]));
    world.settle(&object);
    let most = || WorkloadDeploymentStatus {
        replicas: i32::MAX,
        current_replicas: i32::MAX,
        desired_replicas: i32::MAX,
        ready_replicas: i32::MAX,
        updated_replicas: i32::MAX,
        ..WorkloadDeploymentStatus::default()
    };
    for name in ["web-a-dfw", "web-a-ord"] {
        world.edit(name, |wd| wd.status = Some(most()));
    }
    let status = world.settle(&object);
    for field in ["replicas", "currentReplicas", "desiredReplicas", "readyReplicas", "updatedReplicas"] {
        assert_eq!((&status[field], &status["placements"][0][field]), (&json!(i32::MAX), &json!(i32::MAX)), "{field}");
    }
}

/// During a roll-out with killed managers, the sums counted Instances of the old template as updated.
#[test]
fn deployment_status_of_older_generation_counts_none_as_updated() {
    let mut world = World::with(&["dfw"]);
    let object = workload(&json!([placement("a", &["dfw"])]));
    world.settle(&object);
    let status = |generation| WorkloadDeploymentStatus {
        replicas: 1,
        updated_replicas: 1,
        current_replicas: 1,
        ready_replicas: 1,
        desired_replicas: 7,
        observed_generation: Some(generation),
        ..WorkloadDeploymentStatus::default()
    };
    world.edit("web-a-dfw", |wd| {
        wd.metadata.generation = Some(2);
        wd.status = Some(status(1));
    });
    let sums = world.settle(&object);
    assert_eq!(
        (&sums["updatedReplicas"], &sums["readyReplicas"], &sums["desiredReplicas"]),
        (&json!(0), &json!(1), &json!(1))
    );
    world.edit("web-a-dfw", |wd| wd.status = Some(status(2)));
    assert_eq!(world.settle(&object)["updatedReplicas"], 1);
}

#[test]
fn workload_deletion_waits_for_its_deployments() {
    let mut world = World::with(&["dfw"]);
    let mut object = workload(&json!([placement("a", &["dfw"])]));
    world.settle(&object);
    object.metadata.deletion_timestamp = Some(k8s_openapi::apimachinery::pkg::apis::meta::v1::Time(NOW));
    let writes = world.plan(&object);
    let [confirm, delete] = &writes[..] else { panic!("{writes:?}") };
    assert_eq!(confirm.op, Op::ConfirmUnchanged { uid: "w1".into(), generation: 3 });
    assert!(matches!(&delete.op, Op::Delete { uid, .. } if uid == "uid-web-a-dfw"), "{delete:?}");
    let going = object.metadata.deletion_timestamp.clone();
    world.edit("web-a-dfw", |wd| wd.metadata.deletion_timestamp = going);
    assert!(world.plan(&object).is_empty(), "its event brings us back");
    world.deployments.clear();
    let writes = world.plan(&object);
    assert!(
        matches!(&writes[..], [Write { op: Op::Merge { body, .. }, .. }] if body["metadata"]["finalizers"] == json!([])),
        "{writes:?}"
    );
}

#[test]
fn deployment_with_forged_workload_uid_is_neither_counted_nor_deleted() {
    let mut world = World::with(&["dfw"]);
    let mut object = workload(&json!([placement("a", &["dfw"])]));
    world.settle(&object);
    let mut forged = (*world.deployments["web-a-dfw"]).clone();
    forged.metadata.name = Some("forged".into());
    forged.metadata.owner_references = None;
    world.deployments.insert("forged".into(), Arc::new(forged));
    assert_eq!(world.settle(&object)["deployments"], 1);
    object.metadata.deletion_timestamp = Some(k8s_openapi::apimachinery::pkg::apis::meta::v1::Time(NOW));
    world.deployments.remove("web-a-dfw");
    let writes = world.plan(&object);
    assert!(matches!(&writes[..], [Write { op: Op::Merge { .. }, .. }]), "{writes:?}");
}

#[test]
fn workload_with_missing_networks_gets_no_deployment() {
    let mut world = World { networks: Some(vec![]), ..World::with(&["dfw"]) };
    let mut object = workload(&json!([placement("p", &["dfw"])]));
    object.spec.template.spec.network_interfaces = ["b", "a", "b"]
        .map(|name| serde_json::from_value(json!({ "network": { "name": name, "namespace": "elsewhere" } })).unwrap())
        .into();
    let status = world.settle(&object);
    let reported = &status["conditions"][0];
    assert_eq!(
        (&reported["reason"], &reported["message"]),
        (&json!("NetworkNotFound"), &json!("Unable to find networks: a, b"))
    );
    assert!(world.deployments.is_empty());
    world.networks = Some(vec!["a".into(), "b".into()]);
    world.settle(&object);
    assert_eq!(world.deployments.len(), 1);
}

/// A snapshot as it is in a debug log. If a field is renamed, older records become unreadable.
#[test]
fn snapshot_from_its_record_is_decided_again() {
    let record = json!({
        "workload": workload(&json!([placement("a", &["dfw", "ord"])])),
        "deployments": [],
        "named": {},
        "bound": ["dfw"],
        "namespace_uid": "n1",
        "networks": null,
        "timing": Timing::default(),
    });
    let observed: Observed = serde_json::from_value(record.clone()).unwrap();
    assert_eq!(json!(observed), record);
    let steps = plan(&observed, NOW).steps;
    assert!(
        matches!(&steps[..], [Write { object, op: Op::Apply { status: false, .. }, .. }] if object.name == "web-a-dfw")
    );
}

/// For one Workload of 300 KiB with 400 placements, the manager held 100 MiB of writes, and was killed after each start.
#[test]
fn workload_over_a_limit_is_reported_and_gets_no_deployment() {
    let mut world = World::with(&["dfw"]);
    let names: Vec<String> = (0..400).map(|n| format!("p{n}")).collect();
    let many: Vec<Value> = names.iter().map(|name| placement(name, &["dfw"])).collect();
    let status = world.settle(&workload(&many.into()));
    assert_eq!(world.names(), Vec::<&str>::new());
    let available = &status["conditions"][0];
    assert_eq!((&available["reason"], &available["status"]), (&json!("LimitExceeded"), &json!("False")));
    let message = available["message"].as_str().unwrap();
    assert!(
        message.contains("400 placements, 32 is the limit") && message.ends_with("No deployment is created"),
        "{message}"
    );
    assert_eq!(status["placements"].as_array().unwrap().len(), 32, "a status that can be written");
}

#[test]
fn workload_growing_over_a_limit_keeps_deployments_that_it_names() {
    let mut world = World::with(&["dfw", "ord"]);
    world.settle(&workload(&json!([placement("a", &["dfw"]), placement("b", &["ord"])])));
    let before = world.deployments["web-a-dfw"].clone();
    let mut grown = workload(&json!([placement("a", &["dfw"])]));
    let spec = &mut grown.spec.template.spec;
    spec.runtime.sandbox.as_mut().unwrap().containers[0].command = Some(vec!["x".repeat(200 << 10)]);
    let status = world.settle(&grown);
    assert_eq!(world.names(), ["web-a-dfw"], "placement b is named no more");
    assert_eq!(world.deployments["web-a-dfw"], before);
    let message = status["conditions"][0]["message"].as_str().unwrap();
    assert!(message.ends_with("Its deployments keep running and are not changed"), "{message}");
    assert_eq!((&status["deployments"], &status["observedGeneration"]), (&json!(1), &json!(3)));
    world.settle(&workload(&json!([placement("a", &["dfw", "ord"])])));
    assert_eq!(world.names(), ["web-a-dfw", "web-a-ord"], "back under the limit");
}

/// No provider could read an Instance with such a port, or a list that contains one.
#[test]
fn workload_with_invalid_port_is_reported_and_gets_no_deployment() {
    let mut world = World::with(&["dfw"]);
    let mut workload = json!(workload(&json!([placement("a", &["dfw"])])));
    workload["spec"]["template"]["spec"]["networkInterfaces"][0]["networkPolicy"] =
        json!({ "ingress": [{ "ports": [{ "port": 3_000_000_000_u32 }] }] });
    let status = world.settle(&serde_json::from_value(workload).unwrap());
    assert_eq!(world.names(), Vec::<&str>::new());
    let message = status["conditions"][0]["message"].as_str().unwrap();
    assert!(message.contains("ingress[0].ports[0].port is 3000000000, 65535 is the limit"), "{message}");
}

/// A plan of a hundred writes held a hundred copies of their template, each at several times its size. A manager has less memory.
#[test]
fn deployments_of_one_workload_share_their_template() {
    let mut world = World::with(&["dfw"]);
    let names: Vec<String> = (0..32).map(|n| format!("p{n}")).collect();
    let mut workload = workload(&names.iter().map(|name| placement(name, &["dfw"])).collect());
    for (round, command) in ["first", "second"].into_iter().enumerate() {
        let spec = &mut workload.spec.template.spec;
        spec.runtime.sandbox.as_mut().unwrap().containers[0].command = Some(vec![command.into()]);
        let writes = world.plan(&workload);
        let bodies = writes.iter().filter_map(|write| match &write.op {
            Op::Apply { body, status: false, .. } => Some(body),
            _ => None,
        });
        let bodies: Vec<_> = bodies.collect();
        assert_eq!(bodies.len(), 32, "round {round}");
        for body in bodies {
            assert!(body["spec"]["template"].is_null(), "round {round}: a copy of its own: {body:?}");
            let runs = &body.to_value()["spec"]["template"]["spec"]["runtime"]["sandbox"]["containers"][0]["command"];
            assert_eq!(*runs, json!([command]));
        }
        world.settle(&workload);
    }
}

/// Cities were looked up in a cache with a failed watch, and the Workload reported only that they are not open.
#[test]
fn closed_city_is_reported_with_the_error_of_its_watch() {
    let mut world = World::with(&["dfw"]);
    world.locations_fail = Some("locationbindings is forbidden".into());
    let status = world.settle(&workload(&json!([placement("p", &["dfw", "ord"])])));
    let text = status.to_string();
    assert!(
        text.contains("as of the last successful read of the LocationBindings: locationbindings is forbidden"),
        "{text}"
    );
    let ready = status["conditions"].as_array().unwrap().iter().find(|c| c["type"] == "Ready").unwrap();
    assert_eq!((&ready["status"], &ready["reason"]), (&json!("Unknown"), &json!("NoMatchingLocations")), "{text}");
    assert_eq!(world.names(), ["web-p-dfw"], "open cities are not affected");
}

/// While a watch of the project failed, its Workloads kept their last status.
#[test]
fn workload_of_unreadable_project_is_reported_after_the_grace() {
    let (workload, timing) = (workload(&json!([])), Timing::default());
    let reported = |lasted| unread(&workload, "workloaddeployments is forbidden", lasted, &timing, NOW);
    assert_eq!(format!("{:?}", reported(timing.error_grace / 2)), "None");
    let write = reported(timing.error_grace).unwrap();
    let Op::Apply { body, status: true, .. } = &write.op else { panic!("{write:?}") };
    let available = &body["status"]["conditions"][0];
    assert_eq!((&available["type"], &available["status"]), (&json!("Available"), &json!("Unknown")));
    assert_eq!(available["reason"], "ProjectRefused");
    assert!(available["message"].as_str().unwrap().ends_with(": workloaddeployments is forbidden"), "{available}");
}

/// A cached Workload was older than its deployments: a wanted deployment was deleted, and old templates were applied.
#[test]
fn workload_is_read_live_before_changes_and_deletes() {
    let mut world = World::with(&["dfw", "ord"]);
    world.settle(&workload(&json!([placement("a", &["dfw", "ord"])])));
    let mut smaller = workload(&json!([placement("a", &["dfw"])]));
    smaller.spec.template.spec.runtime.sandbox.as_mut().unwrap().containers[0].image = "another".into();
    let writes = world.plan(&smaller);
    let is_read = |write: &Write<Project>| matches!(write.op, Op::ConfirmUnchanged { .. });
    let changes = |write: &Write<Project>| matches!(write.op, Op::Delete { .. } | Op::Apply { status: false, .. });
    let touched: Vec<&str> = writes.iter().filter(|write| changes(write)).map(|write| &*write.object.name).collect();
    assert!(touched.contains(&"web-a-dfw") && touched.contains(&"web-a-ord"), "{writes:?}");
    let first = writes.iter().position(changes).unwrap();
    let read = writes.iter().position(is_read).unwrap();
    assert!(read < first && writes[read].object.name == "web", "{writes:?}");
}
