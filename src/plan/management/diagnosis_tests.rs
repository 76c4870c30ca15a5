use std::collections::BTreeMap;

use serde_json::json;

use super::*;
use crate::{
    api::{
        compute::WorkloadDeployment,
        karmada::{SuspendedClusters, Suspension},
        meta::finalizer,
        names::CityCode,
    },
    plan::{
        management::{
            cluster::ClusterFacts,
            facts::{AttachedBinding, CompanionFacts, Scheduled, SharedCompanion},
        },
        recorded::recorded,
    },
};

/// A federation in which everything is as it should be: one deployment in dfw with a Secret.
struct World {
    copy: WorkloadDeployment,
    bindings: BTreeMap<String, BindingFacts>,
    clusters: BTreeMap<String, ClusterFacts>,
    companion: CompanionFacts,
    policy: bool,
    phase: Phase,
    behind: bool,
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
    }
}

fn look(world: &World) -> Delivery {
    let binding = world.bindings.get(PARENT).cloned();
    let clusters = binding.iter().flat_map(|binding| binding.clusters.clone()).collect::<Vec<_>>();
    let attached = world.bindings.get("db-secret").map(|binding| AttachedBinding::of(binding, PARENT, &clusters));
    let karmada = Karmada {
        policy_lives: world.policy,
        phase: world.phase,
        binding,
        attached: attached.into_iter().map(|binding| (Token::secret("db"), binding)).collect(),
        clusters: world.clusters.clone(),
        drain_waits: None,
    };
    let companion = SharedCompanion::of(&world.companion, "shop/wd", None);
    let companions = [(Token::secret("db"), companion)].into();
    let city = CityCode::parse("dfw").unwrap();
    let behind = world.behind;
    let evidence = Evidence { copy: &world.copy, city: &city, karmada: &karmada, companions: &companions, behind };
    let delivery = diagnose(&evidence);
    let record = recorded(&karmada);
    assert_eq!(diagnose(&Evidence { karmada: &record, ..evidence }), delivery, "judged again from its record");
    delivery
}

#[test]
fn all_is_well() {
    assert_eq!(look(&world()), Delivery::Delivered { on: vec!["cell-dfw".into()], note: None });
    let mut excess = world();
    excess.companion.policy = Some("theirs".into());
    let Delivery::Delivered { note: Some(note), .. } = look(&excess) else { panic!() };
    assert!(note.message.contains("Secret db is also claimed by PropagationPolicy theirs"), "{note:?}");
    excess.companion.policy = Some("city-ord".into());
    assert!(matches!(look(&excess), Delivery::Delivered { note: None, .. }), "a migration is under way");
    excess.companion.cluster_policy = Some("wide".into());
    let Delivery::Delivered { note: Some(note), .. } = look(&excess) else { panic!() };
    assert!(note.message.contains("Secret db is also claimed by ClusterPropagationPolicy wide"), "{note:?}");
    let mut relabelled = world();
    relabelled.clusters.get_mut("cell-dfw").unwrap().city = None;
    let Delivery::Delivered { note: Some(note), .. } = look(&relabelled) else { panic!() };
    assert!(note.reason == "CityLabelLost" && note.message.contains("Cluster cell-dfw"), "{note:?}");
}

#[test]
fn half_way_to_dependencies_what_a_claim_brings_is_there() {
    let mut half = World { phase: Phase::Both, ..world() };
    assert_eq!(look(&half), Delivery::Delivered { on: vec!["cell-dfw".into()], note: None });
    let attached = half.bindings.get_mut("db-secret").unwrap();
    attached.required_by.clear();
    assert!(matches!(look(&half), Delivery::Blocked { data: true, .. }));
    half.bindings.get_mut("db-secret").unwrap().clusters = vec!["cell-dfw".into()];
    let Delivery::Delivered { note: Some(note), .. } = look(&half) else { panic!() };
    assert_eq!(note.reason, "DependenciesNotPropagated", "what holds up the migration is reported: {note:?}");
    half.phase = Phase::Claims;
    assert_eq!(look(&half), Delivery::Delivered { on: vec!["cell-dfw".into()], note: None });
}

#[test]
#[allow(clippy::type_complexity)]
fn each_cause_is_reported_from_its_evidence() {
    let unscheduled = |world: &mut World| {
        let parent = world.bindings.get_mut(PARENT).unwrap();
        parent.clusters.clear();
        parent.scheduled = Some(Scheduled {
            succeeded: false,
            reason: "NoClusterFit".into(),
            message: "0/2 clusters are available".into(),
        });
    };
    let cases: [(&str, &dyn Fn(&mut World), &str, &[&str], bool); 17] = [
        (
            "no cluster (29)",
            &|w| {
                unscheduled(w);
                w.clusters.remove("cell-dfw");
            },
            "NoClusterForCity",
            &["topology.datum.net/city-code=dfw", "0/2 clusters"],
            false,
        ),
        (
            "cluster not ready, new template (30)",
            &|w| {
                unscheduled(w);
                w.clusters.get_mut("cell-dfw").unwrap().ready = Err("ClusterNotReachable".into());
            },
            "ClusterNotReady",
            &["Cluster cell-dfw of city dfw", "ClusterNotReachable", "0/2"],
            false,
        ),
        ("not scheduled, another reason", &|w| unscheduled(w), "NotScheduled", &["NoClusterFit: 0/2"], false),
        (
            "cluster goes away under it (31)",
            &|w| {
                w.clusters.get_mut("cell-dfw").unwrap().ready = Err("ClusterNotReachable".into());
            },
            "ClusterNotReady",
            &["had all before"],
            false,
        ),
        (
            "refused by the cluster (33)",
            &|w| {
                w.bindings.get_mut(PARENT).unwrap().applied.insert("cell-dfw".into(), Err("already exists".into()));
            },
            "NotApplied",
            &["WorkloadDeployment ns-1/wd is not on Cluster cell-dfw: already exists"],
            false,
        ),
        (
            "a companion refused (33)",
            &|w| {
                w.bindings
                    .get_mut("db-secret")
                    .unwrap()
                    .applied
                    .insert("cell-dfw".into(), Err("already exists".into()));
            },
            "NotApplied",
            &["Secret ns-1/db is not on Cluster cell-dfw: already exists"],
            true,
        ),
        (
            "claimed by another policy (34)",
            &|w| {
                w.copy.annotations_mut().insert(annotation::POLICY_NAME.into(), "theirs".into());
            },
            "ClaimedByAnotherPolicy",
            &["PropagationPolicy theirs, not by city-dfw"],
            false,
        ),
        (
            "claimed by a cluster-wide policy (67)",
            &|w| {
                w.copy.annotations_mut().remove(annotation::POLICY_NAME);
                w.copy.annotations_mut().insert(annotation::CLUSTER_POLICY_NAME.into(), "wide".into());
            },
            "ClaimedByAnotherPolicy",
            &["claimed by ClusterPropagationPolicy wide, not by city-dfw"],
            false,
        ),
        (
            "its binding is claimed by a cluster-wide policy (67)",
            &|w| {
                w.bindings.get_mut(PARENT).unwrap().cluster_policy = Some("wide".into());
            },
            "ClaimedByAnotherPolicy",
            &["claimed by ClusterPropagationPolicy wide, not by city-dfw"],
            false,
        ),
        (
            "feature off (37)",
            &|w| {
                let parent = w.bindings.get_mut(PARENT).unwrap();
                (parent.distributed, parent.dependencies) = (false, None);
            },
            "DependenciesNotPropagated",
            &["feature gate PropagateDeps"],
            true,
        ),
        (
            "script missing, new binding (38)",
            &|w| {
                w.bindings.get_mut(PARENT).unwrap().dependencies = None;
            },
            "DependenciesNotPropagated",
            &["does not list Secret/db", "ResourceInterpreterCustomization"],
            true,
        ),
        (
            "script missing, old binding (38)",
            &|w| {
                w.bindings.get_mut(PARENT).unwrap().dependencies = Some(vec![Token::config_map("old")]);
            },
            "DependenciesNotPropagated",
            &["does not list Secret/db"],
            true,
        ),
        (
            "sent elsewhere only",
            &|w| {
                w.bindings.get_mut("db-secret").unwrap().required_by.clear();
            },
            "DependenciesNotPropagated",
            &["does not send it to cluster cell-dfw"],
            true,
        ),
        (
            "binding lost (49)",
            &|w| {
                w.bindings.remove(PARENT);
            },
            "BindingMissing",
            &["ResourceBinding ns-1/wd-workloaddeployment"],
            false,
        ),
        (
            "work lost (55)",
            &|w| {
                w.bindings.get_mut(PARENT).unwrap().applied.clear();
            },
            "NotApplied",
            &["has not reported about it"],
            false,
        ),
        (
            "policy lost",
            &|w| {
                w.bindings.remove(PARENT);
                w.policy = false;
            },
            "BindingMissing",
            &["PropagationPolicy ns-1/city-dfw is not there"],
            false,
        ),
        (
            "attached binding lost (50)",
            &|w| {
                w.bindings.remove("db-secret");
            },
            "BindingMissing",
            &["ResourceBinding ns-1/db-secret for Secret db"],
            true,
        ),
    ];
    for (name, change, reason, words, of_data) in cases {
        let mut world = world();
        change(&mut world);
        let Delivery::Blocked { cause, data, silent, repair } = look(&world) else { panic!("{name}") };
        let cured = match name {
            "binding lost (49)" | "work lost (55)" => Some(Repair::Copy),
            "attached binding lost (50)" => Some(Repair::Companion(Token::secret("db"))),
            _ => None,
        };
        assert_eq!(repair, cured, "{name}");
        let of_karmada = repair.is_some() || ["policy lost", "sent elsewhere only"].contains(&name);
        assert_eq!(silent, of_karmada, "{name}");
        assert_eq!((cause.reason.as_str(), data), (reason, of_data), "{name}: {}", cause.message);
        for word in words {
            assert!(cause.message.contains(word), "{name}: {}", cause.message);
        }
    }
}

/// What Karmada has not said a word about may be lost, or on its way; what it has said is neither.
#[test]
fn silence_is_told_from_words() {
    let parent =
        |world: &mut World, change: &dyn Fn(&mut BindingFacts)| change(world.bindings.get_mut(PARENT).unwrap());
    let said = |world: &World| match look(world) {
        Delivery::Blocked { cause, silent, repair, .. } => (cause.reason.to_string(), silent, repair.is_some()),
        delivered @ Delivery::Delivered { .. } => panic!("{delivered:?}"),
    };
    let mut early = world();
    parent(&mut early, &|binding| {
        (binding.scheduled, binding.clusters) = (None, Vec::new());
    });
    assert_eq!(said(&early), ("NotScheduled".into(), true, false), "the scheduler has not looked at it");
    let mut waiting = world();
    parent(&mut waiting, &|binding| {
        binding.applied.insert("cell-dfw".into(), Err(String::new()));
    });
    assert_eq!(said(&waiting), ("NotApplied".into(), true, false), "its Work is there, and was not carried out");
    let mut unlisted = world();
    parent(&mut unlisted, &|binding| (binding.distributed, binding.dependencies) = (false, None));
    assert_eq!(said(&unlisted), ("DependenciesNotPropagated".into(), false, false));
    unlisted.behind = true;
    assert_eq!(said(&unlisted), ("DependenciesNotPropagated".into(), true, false), "others wait as well");
    let Delivery::Blocked { cause, .. } = look(&unlisted) else { panic!() };
    assert!(!cause.message.contains("PropagateDeps"), "nobody knows that it is a setting: {}", cause.message);
}

#[test]
#[allow(clippy::type_complexity)]
fn what_somebody_has_suspended_is_told_and_not_repaired() {
    let on = |clusters: &[&str]| Suspension {
        dispatching_on_clusters: Some(SuspendedClusters {
            cluster_names: clusters.iter().map(|name| (*name).to_owned()).collect(),
        }),
        ..Suspension::default()
    };
    let all = Suspension { dispatching: Some(true), ..Suspension::default() };
    let scheduling = Suspension { scheduling: Some(true), ..Suspension::default() };
    let unplaced = |binding: &mut BindingFacts| (binding.scheduled, binding.clusters) = (None, Vec::new());
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
            facts.suspension = suspension.clone();
            if name == "not scheduled" && data {
                continue; // it follows others, and is not scheduled
            }
            change(facts);
            let Delivery::Blocked { cause, data: of_data, silent, repair } = look(&world) else { panic!("{name}") };
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
    there.bindings.get_mut(PARENT).unwrap().suspension = all;
    let Delivery::Delivered { note: Some(note), .. } = look(&there) else { panic!() };
    assert!(note.reason == "PropagationSuspended" && note.message.contains("has it as it was"), "{note:?}");
}
