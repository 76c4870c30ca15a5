use serde_json::{Value, json};

use super::*;
use crate::timing::some_moment;

/// A reconcile at generation `generation` of the deployment `u`. The copy has `copied`, and the cell has reported `reported`.
fn look(generation: i64, copied: Option<i64>, reported: Option<i64>) -> Look {
    Look { uid: "u".into(), generation, copied, reported, wrote_copy: false, wrote_status: false }
}

fn writing(look: Look) -> Look {
    Look { wrote_copy: true, ..look }
}

fn telling(look: Look) -> Look {
    Look { wrote_status: true, ..look }
}

/// Points in time, in seconds from the first.
fn clock() -> impl Fn(u64) -> Instant {
    let start = some_moment();
    move |second| start + Duration::from_secs(second)
}

fn took(leg: Leg, seconds: u64) -> (Leg, Duration) {
    (leg, Duration::from_secs(seconds))
}

#[test]
fn deployment_is_measured_to_its_cell_and_back() {
    let (at, mut all) = (clock(), Latencies::default());
    all.changed(&"web", "u", at(10));
    let first = all.looked(&"web", &writing(look(1, None, None)), at(11), at(13));
    assert_eq!(first, [took(Leg::ProjectToHub, 3)]);
    // A reconcile before any report, while the cell has only reported on the state before.
    assert_eq!(all.looked(&"web", &look(1, Some(1), None), at(14), at(15)), []);
    all.reported(&"web", at(20));
    let back = all.looked(&"web", &telling(look(1, Some(1), Some(1))), at(22), at(24));
    assert_eq!(back, [took(Leg::HubToCell, 7), took(Leg::StatusBack, 4)]);
    assert!(all.is_empty(), "nothing is kept of what has arrived");
    // A report that changes nothing in the project, and a reconcile without any change.
    all.reported(&"web", at(30));
    assert_eq!(all.looked(&"web", &look(1, Some(1), Some(1)), at(31), at(32)), []);
    assert_eq!(all.looked(&"web", &telling(look(1, Some(1), Some(1))), at(40), at(41)), []);
    assert!(all.is_empty());
}

#[test]
fn change_that_waits_is_measured_from_its_start() {
    let (at, mut all) = (clock(), Latencies::default());
    // The hub namespace is terminating, or the hub is away. The reconcile has no effect, and another change comes.
    all.changed(&"web", "u", at(0));
    assert_eq!(all.looked(&"web", &look(1, None, None), at(1), at(2)), []);
    all.changed(&"web", "u", at(5));
    assert_eq!(all.looked(&"web", &writing(look(2, None, None)), at(6), at(60)), [took(Leg::ProjectToHub, 60)]);
    // After a restart the start is unknown. The first reconcile counts as the start.
    all.forget(&"web");
    assert_eq!(all.looked(&"web", &look(3, Some(2), None), at(100), at(101)), []);
    assert_eq!(all.looked(&"web", &writing(look(3, Some(2), None)), at(130), at(131)), [took(Leg::ProjectToHub, 31)]);
}

#[test]
fn changes_faster_than_their_delivery_measure_the_oldest() {
    let (at, mut all) = (clock(), Latencies::default());
    all.changed(&"web", "u", at(0));
    assert_eq!(all.looked(&"web", &writing(look(1, None, None)), at(0), at(1)), [took(Leg::ProjectToHub, 1)]);
    all.changed(&"web", "u", at(2));
    assert_eq!(all.looked(&"web", &writing(look(2, Some(1), None)), at(2), at(4)), [took(Leg::ProjectToHub, 2)]);
    all.reported(&"web", at(9));
    let both = all.looked(&"web", &telling(look(2, Some(2), Some(2))), at(9), at(9));
    assert_eq!(both, [took(Leg::HubToCell, 8), took(Leg::StatusBack, 0)]);
    // Events during a reconcile belong to the next one, from their own time on.
    all.changed(&"web", "u", at(20));
    all.changed(&"web", "u", at(23));
    all.reported(&"web", at(23));
    assert_eq!(
        all.looked(&"web", &writing(look(3, Some(2), Some(2))), at(21), at(25)),
        [took(Leg::ProjectToHub, 5)],
        "a later report is not of this reconcile"
    );
    let next = all.looked(&"web", &telling(writing(look(4, Some(3), Some(2)))), at(26), at(27));
    assert_eq!(next, [took(Leg::ProjectToHub, 4), took(Leg::StatusBack, 4)]);
    assert_eq!(all.len(), 1, "the cell has not reported of either");
}

#[test]
fn recreated_deployment_is_measured_by_itself() {
    let (at, mut all) = (clock(), Latencies::default());
    all.changed(&"web", "before", at(0));
    let recreated = writing(look(1, None, None));
    assert_eq!(
        all.looked(&"web", &recreated, at(50), at(51)),
        [took(Leg::ProjectToHub, 1)],
        "not since the former one"
    );
    all.changed(&"other", "o", at(51));
    all.forget_where(|key| *key == "web");
    assert_eq!(all.len(), 1);
    all.forget(&"other");
    assert!(all.is_empty());
    // A first report before any other event.
    all.reported(&"web", at(60));
    let legs = all.looked(&"web", &telling(look(1, Some(1), Some(1))), at(61), at(62));
    assert_eq!(legs, [took(Leg::StatusBack, 2)]);
}

fn deployment(uid: &str, generation: i64, status: Value) -> WorkloadDeployment {
    let mut value = json!({
        "metadata": { "namespace": "a", "name": "web", "uid": uid, "generation": generation },
        "spec": {
            "workloadRef": { "name": "web", "uid": "w" }, "placementName": "p", "cityCode": "dfw",
            "template": { "spec": { "runtime": { "resources": { "instanceType": "t" } }, "networkInterfaces": [] } },
            "scaleSettings": { "minReplicas": 1 },
        },
    });
    if !status.is_null() {
        value["status"] = status;
    }
    serde_json::from_value(value).unwrap()
}

#[test]
fn change_is_another_generation_and_report_another_status() {
    let (one, two) = (deployment("u", 1, Value::Null), deployment("u", 2, Value::Null));
    let (again, reported) = (deployment("v", 1, Value::Null), deployment("u", 1, json!({ "replicas": 1 })));
    for (old, new, change, report) in [
        (None, Some(&one), true, false),
        (Some(&one), Some(&two), true, false),
        (Some(&one), Some(&again), true, false),
        (Some(&one), Some(&reported), false, true),
        (None, Some(&reported), true, false),
        (Some(&one), Some(&one), false, false),
        (Some(&one), None, false, false),
    ] {
        let delta = Delta { namespace: "a", name: "web", old, new };
        assert_eq!((is_change(&delta), is_report(&delta)), (change, report), "{delta:?}");
    }
}
