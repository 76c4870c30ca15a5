use std::collections::BTreeMap;

use serde_json::json;

use super::*;
use crate::{
    api::{
        compute::WorkloadDeployment,
        karmada::{SuspendedClusters, Suspension},
        meta::{finalizer, manager},
        names::CityCode,
        user_list::UserName,
    },
    plan::{
        management::observed::{
            cluster::ClusterFacts,
            facts::{AttachedBinding, CompanionFacts, Scheduled, SharedCompanion},
        },
        recorded::recorded,
    },
};

/// A complete federation: one deployment in dfw with a Secret.
struct World {
    copy: WorkloadDeployment,
    bindings: BTreeMap<String, BindingFacts>,
    clusters: BTreeMap<String, ClusterFacts>,
    companion: CompanionFacts,
    policy: bool,
    phase: Phase,
    behind: bool,
    policy_trouble: Option<String>,
    written: Option<u64>,
    /// Data that was delivered before.
    delivered: Vec<DataRef>,
}

const PARENT: &str = "wd-workloaddeployment";

fn binding(object: &serde_json::Value) -> BindingFacts {
    let mut object = object.clone();
    object["apiVersion"] = json!("work.karmada.io/v1alpha2");
    object["kind"] = json!("ResourceBinding");
    BindingFacts::of(serde_json::from_value(object).unwrap())
}

fn world() -> World {
    let copy = serde_json::from_value(json!({
        "metadata": { "name": "wd", "namespace": "ns-1", "annotations": {
            annotation::POLICY_NAME: "city-dfw", annotation::EXPECTED_REFERENCED_DATA: "[\"Secret/db\"]",
        } },
        "spec": {
            "workloadRef": { "name": "w", "uid": "u" }, "placementName": "p", "cityCode": "DFW",
            "template": { "spec": { "runtime": { "resources": { "instanceType": "t" } }, "networkInterfaces": [] } },
            "scaleSettings": { "minReplicas": 1 },
        },
    }))
    .unwrap();
    let list = json!([{ "apiVersion": "v1", "kind": "Secret", "namespace": "ns-1", "name": "db" }]).to_string();
    let applied = json!([{ "clusterName": "cell-dfw", "applied": true }]);
    let parent = binding(&json!({
        "metadata": {
            "name": PARENT, "finalizers": [finalizer::KARMADA_DEPENDENCIES],
            "annotations": { annotation::DEPENDENCIES: list },
        },
        "spec": { "resource": { "kind": "WorkloadDeployment", "name": "wd" }, "clusters": [{ "name": "cell-dfw" }] },
        "status": { "conditions": [{ "type": "Scheduled", "status": "True" }], "aggregatedStatus": applied },
    }));
    let attached = binding(&json!({
        "metadata": { "name": "db-secret" },
        "spec": {
            "resource": { "kind": "Secret", "name": "db" },
            "requiredBy": [{ "name": PARENT, "clusters": [{ "name": "cell-dfw" }] }],
        },
        "status": { "aggregatedStatus": applied },
    }));
    let cluster = ClusterFacts::labelled;
    World {
        copy,
        bindings: [(PARENT.to_owned(), parent), ("db-secret".to_owned(), attached)].into(),
        clusters: [("cell-dfw".to_owned(), cluster("dfw")), ("cell-ord".to_owned(), cluster("ord"))].into(),
        companion: CompanionFacts::default(),
        policy: true,
        phase: Phase::Dependencies,
        behind: false,
        policy_trouble: None,
        written: None,
        delivered: Vec::new(),
    }
}

fn judge(world: &World) -> Delivery {
    let binding = world.bindings.get(PARENT).cloned();
    let clusters = binding.iter().flat_map(|binding| binding.clusters.to_vec()).collect::<Vec<_>>();
    let attached = world.bindings.get("db-secret").map(|binding| AttachedBinding::of(binding, PARENT, &clusters));
    let karmada = Karmada {
        policy_lives: world.policy,
        policy_trouble: world.policy_trouble.clone(),
        phase: world.phase,
        binding,
        attached: attached.into_iter().map(|binding| (DataRef::secret("db"), binding)).collect(),
        clusters: world.clusters.clone(),
        drain_waits: None,
        written: world.written,
    };
    let companion = SharedCompanion::of(&world.companion, &UserName::new("shop", "wd"), None);
    let companions = [(DataRef::secret("db"), companion)].into();
    let city = CityCode::parse("dfw").unwrap();
    let delivery = crate::api::compute::LastDelivery {
        copy_uid: String::new(),
        clusters: Vec::new(),
        data: world.delivered.iter().map(ToString::to_string).collect(),
        time: k8s_openapi::apimachinery::pkg::apis::meta::v1::Time(jiff::Timestamp::UNIX_EPOCH),
    };
    let (behind, last_delivery) = (world.behind, Some(&delivery));
    let evidence =
        Evidence { copy: &world.copy, city: &city, karmada: &karmada, companions: &companions, last_delivery, behind };
    let found = diagnose(&evidence);
    let record = recorded(&karmada);
    assert_eq!(diagnose(&Evidence { karmada: &record, ..evidence }), found, "judged again from its record");
    found
}

#[test]
fn deployment_with_everything_in_place_is_delivered() {
    assert_eq!(judge(&world()), Delivery::Delivered { on: vec!["cell-dfw".into()], note: None });
    let mut excess = world();
    excess.companion.policy = Some("theirs".into());
    let Delivery::Delivered { note: Some(note), .. } = judge(&excess) else { panic!() };
    assert!(note.message.contains("Secret db is also claimed by PropagationPolicy theirs"), "{note:?}");
    excess.companion.policy = Some("city-ord".into());
    assert!(matches!(judge(&excess), Delivery::Delivered { note: None, .. }), "a migration is under way");
    excess.companion.cluster_policy = Some("wide".into());
    let Delivery::Delivered { note: Some(note), .. } = judge(&excess) else { panic!() };
    assert!(note.message.contains("Secret db is also claimed by ClusterPropagationPolicy wide"), "{note:?}");
    let mut relabelled = world();
    relabelled.clusters.get_mut("cell-dfw").unwrap().city = None;
    let Delivery::Delivered { note: Some(note), .. } = judge(&relabelled) else { panic!() };
    assert!(note.reason == "CityLabelLost" && note.message.contains("Cluster cell-dfw"), "{note:?}");
}

/// With a hundred Secrets, each arrival made a write of the status, to name the next missing one. A Secret that was late hid
/// another one that was lost or rejected.
#[test]
fn missing_companion_that_was_lost_is_reported_first() {
    let mut many = world();
    let names: Vec<String> = (0..100).map(|n| format!("data-{n:02}")).collect();
    let refs: Vec<DataRef> = names.iter().map(|name| DataRef::secret(name)).collect();
    let listed = json!(refs.iter().map(ToString::to_string).collect::<Vec<_>>()).to_string();
    many.copy.annotations_mut().insert(annotation::EXPECTED_REFERENCED_DATA.into(), listed);
    many.bindings.get_mut(PARENT).unwrap().dependencies = Some(refs.clone()).into();
    let reported = |world: &World| {
        let Delivery::Blocked { cause, silent, .. } = judge(world) else { panic!() };
        (cause.message, silent)
    };
    assert!(reported(&many).0.ends_with("for Secret data-99"));
    many.delivered = vec![refs[3].clone(), refs[5].clone()];
    assert!(reported(&many).0.ends_with("for Secret data-05"));
    // The cell rejects the Secret that has a binding.
    let listed = json!(["Secret/data-00", "Secret/db", "Secret/zzz"]).to_string();
    many.copy.annotations_mut().insert(annotation::EXPECTED_REFERENCED_DATA.into(), listed);
    let refs = ["data-00", "db", "zzz"].map(DataRef::secret).to_vec();
    many.bindings.get_mut(PARENT).unwrap().dependencies = Some(refs).into();
    let attached = many.bindings.get_mut("db-secret").unwrap();
    attached.applied = [("cell-dfw".to_owned(), Err("it exists already".to_owned()))].into();
    many.delivered.clear();
    let (message, silent) = reported(&many);
    assert!(!silent && message.ends_with("Cluster cell-dfw: it exists already"), "{message}");
    // Karmada's message about a Secret is not repeated. The text names where to read it.
    let attached = many.bindings.get_mut("db-secret").unwrap();
    attached.applied = [("cell-dfw".to_owned(), Err(facts::WITHHELD.to_owned()))].into();
    assert!(
        reported(&many).0.ends_with("; read it in the status of ResourceBinding ns-1/db-secret on the hub"),
        "{:?}",
        reported(&many)
    );
    many.delivered = vec![DataRef::secret("data-00")];
    assert!(reported(&many).0.ends_with("for Secret data-00"), "an object that is repaired comes first");
}

#[test]
fn policy_rejected_by_the_hub_is_reported_at_once() {
    let trouble = Some("create PropagationPolicy: denied".to_owned());
    let mut refused = World { policy: false, policy_trouble: trouble.clone(), ..world() };
    refused.bindings.clear();
    let Delivery::Blocked { cause, silent, .. } = judge(&refused) else { panic!() };
    assert_eq!((cause.reason.as_str(), silent), ("HubRefused", false));
    assert!(cause.message.contains("/city-dfw, which"), "{cause:?}");
    assert!(cause.message.ends_with("create PropagationPolicy: denied"), "{cause:?}");
    // The policy exists, and the hub rejects its second spelling. It was reported as a lost binding, and the copy was repaired
    // again and again.
    let Delivery::Blocked { cause, silent, repair, .. } = judge(&World { policy: true, ..refused }) else { panic!() };
    assert_eq!((cause.reason.as_str(), silent, repair), ("HubRefused", false, None));
    // If the existing policy works, a rejected change blocks no deployment.
    assert!(matches!(judge(&World { policy_trouble: trouble, ..world() }), Delivery::Delivered { .. }));
}

#[test]
fn data_delivered_by_claims_in_a_migration_is_delivered() {
    let mut half = World { phase: Phase::Both, ..world() };
    assert_eq!(judge(&half), Delivery::Delivered { on: vec!["cell-dfw".into()], note: None });
    let attached = half.bindings.get_mut("db-secret").unwrap();
    attached.required_by.clear();
    assert!(matches!(judge(&half), Delivery::Blocked { data: true, .. }));
    half.bindings.get_mut("db-secret").unwrap().clusters = vec!["cell-dfw".into()].into();
    let Delivery::Delivered { note: Some(note), .. } = judge(&half) else { panic!() };
    assert_eq!(note.reason, "DependenciesNotPropagated", "what holds up the migration is reported: {note:?}");
    assert_eq!(note.repair, None, "Karmada is at it");
    let parent = half.bindings.get_mut(PARENT).unwrap();
    (parent.distributed, parent.dependencies) = (false, None.into());
    let Delivery::Delivered { note: Some(note), .. } = judge(&half) else { panic!() };
    assert_eq!(note.repair, Some(Repair::Copy), "Karmada does not check again by itself");
    half.phase = Phase::Claims;
    assert_eq!(judge(&half), Delivery::Delivered { on: vec!["cell-dfw".into()], note: None });
}

/// An object about which Karmada says nothing may be lost or under way. An object with a report is neither.
#[test]
fn gap_without_report_is_silent() {
    let parent =
        |world: &mut World, change: &dyn Fn(&mut BindingFacts)| change(world.bindings.get_mut(PARENT).unwrap());
    let outcome = |world: &World| match judge(world) {
        Delivery::Blocked { cause, silent, repair, .. } => (cause.reason.to_string(), silent, repair.is_some()),
        delivered @ Delivery::Delivered { .. } => panic!("{delivered:?}"),
    };
    let mut early = world();
    parent(&mut early, &|binding| {
        (binding.scheduled, binding.clusters) = (None.into(), Vec::new().into());
    });
    assert_eq!(outcome(&early), ("NotScheduled".into(), true, false), "the scheduler has not processed it");
    let mut waiting = world();
    parent(&mut waiting, &|binding| {
        binding.applied.insert("cell-dfw".into(), Err(String::new()));
    });
    assert_eq!(outcome(&waiting), ("NotApplied".into(), true, false), "its Work is there, and was not carried out");
    let mut unlisted = world();
    parent(&mut unlisted, &|binding| (binding.distributed, binding.dependencies) = (false, None.into()));
    assert_eq!(
        outcome(&unlisted),
        ("DependenciesNotPropagated".into(), false, true),
        "Karmada does not check again by itself"
    );
    unlisted.behind = true;
    assert_eq!(outcome(&unlisted), ("DependenciesNotPropagated".into(), true, false), "others wait as well");
    let Delivery::Blocked { cause, .. } = judge(&unlisted) else { panic!() };
    assert!(!cause.message.contains("PropagateDeps"), "a setting is not proved: {}", cause.message);
}

/// While Karmada was away, a running deployment got one more Secret. A missing script was reported, and the copy was repaired.
/// The binding records from which version of the copy it was made. A write of the status makes no new binding.
#[test]
fn binding_older_than_the_copy_reports_no_missing_script() {
    let at = |second: u32| format!("2026-01-01T00:00:{second:02}Z");
    let written = |second: u32, reported: Option<u32>| {
        let own = json!({ "manager": manager::FEDERATOR, "operation": "Apply", "time": at(second) });
        let status = reported.map(|second| {
            json!({ "manager": "karmada", "operation": "Update", "subresource": "status", "time": at(second) })
        });
        json!([Some(own), status])
    };
    let cases = [
        ("no version is known", "", "", written(10, None), None, false),
        ("the binding is of this version", "9", "9", written(10, None), Some(9), false),
        ("the binding is of an earlier version", "9", "7", written(10, None), Some(9), true),
        ("in the same second, and nothing has come since", "9", "7", written(10, None), Some(10), true),
        ("in the same second, and a status has come since", "9", "7", written(10, Some(10)), Some(10), false),
        ("the status is older than what is written", "9", "7", written(10, Some(9)), Some(10), true),
        ("it was written later, and a status has come since", "9", "7", written(10, Some(30)), Some(11), false),
        ("a status has come, and it was not written since", "9", "7", written(10, Some(30)), Some(9), true),
        ("versions are numbers", "10", "9", written(10, None), Some(9), true),
    ];
    for (name, version, seen, managers, changed, silent) in cases {
        let mut world = world();
        world.copy.metadata.resource_version = Some(version.to_owned());
        let managers =
            managers.as_array().unwrap().iter().filter(|entry| !entry.is_null()).cloned().collect::<Vec<_>>();
        world.copy.metadata.managed_fields = serde_json::from_value(json!(managers)).unwrap();
        let parent = world.bindings.get_mut(PARENT).unwrap();
        (parent.dependencies, parent.seen) = (Some(Vec::new()).into(), seen.parse().ok());
        parent.changed = changed.map(|second| at(second).parse().unwrap());
        let Delivery::Blocked { cause, silent: is_silent, repair, .. } = judge(&world) else { panic!("{name}") };
        assert_eq!((cause.reason.as_str(), is_silent), ("DependenciesNotPropagated", silent), "{name}");
        assert_eq!(
            (repair == Some(Repair::Change), cause.message.contains("Interpreter")),
            (silent, !silent),
            "{name}: {cause:?}"
        );
    }
    // A repair is a write of the operator too, and has the server's time. A manager with a fast clock took Karmada's later
    // results for older than its repair, and repaired again.
    for (repaired, by_our_clock, silent) in [(20, 20, true), (18, 59, false)] {
        let mut touched = world();
        touched.copy.metadata.resource_version = Some("9".into());
        let entry = json!([{ "manager": manager::REPAIR, "operation": "Update", "time": at(repaired) }]);
        touched.copy.metadata.managed_fields = serde_json::from_value(entry).unwrap();
        let second = at(by_our_clock).parse::<jiff::Timestamp>().unwrap().as_second();
        touched.copy.annotations_mut().insert(annotation::REPAIRED.into(), second.to_string());
        let parent = touched.bindings.get_mut(PARENT).unwrap();
        (parent.dependencies, parent.seen) = (Some(Vec::new()).into(), Some(8));
        parent.changed = Some(at(19).parse().unwrap());
        let Delivery::Blocked { silent: is_silent, .. } = judge(&touched) else { panic!("{repaired}") };
        assert_eq!(is_silent, silent, "repaired at {repaired}, {by_our_clock} by our clock");
    }
}

/// A change that Karmada never applied was reported as delivered, because the report on the previous change remained. Within one
/// second, a status from before the change spoke for a binding from before the change.
#[test]
fn change_that_karmada_has_not_applied_is_not_delivered() {
    let second = "2026-01-01T00:00:10Z";
    let entry = |manager: &str, part: Option<&str>| json!({ "manager": manager, "operation": "Apply", "subresource": part, "time": second });
    let delivery = |seen: u64, written: Option<u64>, lists: bool| {
        let mut world = World { written, ..world() };
        world.copy.metadata.resource_version = Some("9".into());
        let managers = json!([entry(manager::FEDERATOR, None), entry("karmada", Some("status"))]);
        world.copy.metadata.managed_fields = serde_json::from_value(managers).unwrap();
        let parent = world.bindings.get_mut(PARENT).unwrap();
        (parent.seen, parent.changed) = (Some(seen), Some(second.parse().unwrap()));
        if !lists {
            parent.dependencies = Some(Vec::new()).into();
        }
        judge(&world)
    };
    assert!(matches!(delivery(9, Some(9), true), Delivery::Delivered { .. }), "the binding is of the latest version");
    assert!(matches!(delivery(7, Some(7), true), Delivery::Delivered { .. }), "and a status has come since");
    assert!(matches!(delivery(7, None, true), Delivery::Delivered { .. }), "unknown within one second");
    let Delivery::Blocked { cause, data: false, silent: true, heard: true, repair: Some(Repair::Change) } =
        delivery(7, Some(8), true)
    else {
        panic!()
    };
    assert_eq!(cause.reason, Reason::NotApplied);
    assert!(cause.message.contains("on Cluster cell-dfw is an earlier version"), "{}", cause.message);
    assert!(
        matches!(delivery(7, Some(8), false), Delivery::Blocked { data: true, silent: true, .. }),
        "no setting is reported"
    );
    assert!(
        matches!(delivery(7, Some(7), false), Delivery::Blocked { data: true, silent: false, .. }),
        "Karmada has processed the copy"
    );
}

/// A city of the Go operator may be on several clusters. One that is away does not silence another one.
#[test]
fn deployment_is_heard_if_one_of_its_clusters_answers() {
    let away = |world: &mut World, name: &str| {
        world.clusters.get_mut(name).unwrap().ready = Err("ClusterNotReachable".into());
    };
    let heard = |world: &World| match judge(world) {
        Delivery::Blocked { cause, heard, .. } => (cause.reason.to_string(), heard),
        delivered @ Delivery::Delivered { .. } => panic!("{delivered:?}"),
    };
    let mut two = world();
    two.clusters.insert("cell-dfw-2".into(), ClusterFacts::labelled("dfw"));
    let parent = two.bindings.get_mut(PARENT).unwrap();
    parent.clusters.push("cell-dfw-2".into());
    parent.applied.insert("cell-dfw-2".into(), Ok(()));
    away(&mut two, "cell-dfw");
    assert_eq!(heard(&two), ("ClusterNotReady".into(), true));
    let mut unapplied = World { bindings: two.bindings.clone(), clusters: two.clusters.clone(), ..world() };
    unapplied.bindings.get_mut(PARENT).unwrap().applied.insert("cell-dfw-2".into(), Err("no".into()));
    assert_eq!(heard(&unapplied), ("ClusterNotReady".into(), false), "the other one does not have it");
    away(&mut two, "cell-dfw-2");
    assert_eq!(heard(&two), ("ClusterNotReady".into(), false));
    let mut lost = world();
    lost.bindings.get_mut("db-secret").unwrap().applied.clear();
    assert_eq!(heard(&lost), ("NotApplied".into(), true), "only its data is missing");
    lost.bindings.get_mut(PARENT).unwrap().applied.clear();
    assert_eq!(heard(&lost), ("NotApplied".into(), false));
    lost.bindings.remove(PARENT);
    assert_eq!(heard(&lost), ("BindingMissing".into(), false));
}

#[test]
#[allow(clippy::type_complexity)]
fn suspended_object_is_reported_and_not_repaired() {
    let on = |clusters: &[&str]| Suspension {
        dispatching_on_clusters: Some(SuspendedClusters {
            cluster_names: clusters.iter().map(|name| (*name).to_owned()).collect(),
        }),
        ..Suspension::default()
    };
    let all = Suspension { dispatching: Some(true), ..Suspension::default() };
    let scheduling = Suspension { scheduling: Some(true), ..Suspension::default() };
    let unplaced =
        |binding: &mut BindingFacts| (binding.scheduled, binding.clusters) = (None.into(), Vec::new().into());
    let unreported = |binding: &mut BindingFacts| binding.applied.clear();
    let untaken = |binding: &mut BindingFacts| {
        binding.applied.insert("cell-dfw".into(), Err(String::new()));
    };
    let cases: [(&str, Suspension, &dyn Fn(&mut BindingFacts), &str); 6] = [
        ("not scheduled", scheduling.clone(), &unplaced, "PropagationSuspended"),
        ("dispatched nowhere", all.clone(), &unreported, "PropagationSuspended"),
        ("dispatched nowhere, with a Work", all.clone(), &untaken, "PropagationSuspended"),
        ("not to this cluster", on(&["cell-dfw"]), &untaken, "PropagationSuspended"),
        ("not to another cluster", on(&["cell-ord"]), &unreported, "NotApplied"),
        ("scheduled before that", scheduling, &unreported, "NotApplied"),
    ];
    for (name, suspension, change, reason) in cases {
        for (binding, data) in [(PARENT, false), ("db-secret", true)] {
            let mut world = world();
            let facts = world.bindings.get_mut(binding).unwrap();
            facts.suspension = suspension.clone().into();
            if name == "not scheduled" && data {
                continue; // it follows others, and is not scheduled
            }
            change(facts);
            let Delivery::Blocked { cause, data: of_data, silent, repair, .. } = judge(&world) else {
                panic!("{name}")
            };
            assert_eq!((cause.reason.as_str(), of_data), (reason, data), "{name}: {}", cause.message);
            let suspended = reason == "PropagationSuspended";
            assert_eq!((silent, repair.is_none()), (!suspended, suspended), "{name}");
            assert!(!suspended || cause.message.contains("spec.suspension"), "{}", cause.message);
            assert!(
                !suspended || cause.message.contains(&format!("ResourceBinding ns-1/{binding}")),
                "{}",
                cause.message
            );
        }
    }
    let mut there = world();
    there.bindings.get_mut(PARENT).unwrap().suspension = all.into();
    let Delivery::Delivered { note: Some(note), .. } = judge(&there) else { panic!() };
    assert!(note.reason == "PropagationSuspended" && note.message.contains("has an earlier version"), "{note:?}");
}

#[path = "diagnosis_causes_tests.rs"]
mod causes;
