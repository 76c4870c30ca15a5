use serde_json::json;

use super::{
    Absence::{LookedAt, Lost, NeverDelivered, Untaken},
    *,
};

const GRACE: Duration = Duration::from_secs(5);

fn seconds(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}

/// A hub of a thousand deployments on which Karmada is at work.
fn busy() -> Repairs {
    Repairs { deployments: 1_000, karmada_wrote: Some(seconds(1)), ..Repairs::default() }
}

#[test]
fn what_is_repaired_when() {
    let (soon, long) = (seconds(6), seconds(601));
    let cases: [(&str, Absence, Duration, Repairs, bool); 18] = [
        ("changed a moment ago", Untaken, soon, busy(), false),
        ("changed long ago", Untaken, long, busy(), true),
        ("changed long ago, while much else is on its way", Untaken, long, Repairs { unsaid: 100, ..busy() }, false),
        (
            "never there for long, while much else is on its way",
            NeverDelivered,
            long,
            Repairs { unsaid: 100, ..busy() },
            false,
        ),
        ("changed long ago, and Karmada does nothing", Untaken, long, Repairs { karmada_wrote: None, ..busy() }, false),
        ("taken away", Lost, soon, busy(), true),
        ("taken away while Karmada does nothing", Lost, soon, Repairs { karmada_wrote: None, ..busy() }, true),
        ("never there, and new", NeverDelivered, soon, busy(), false),
        ("never there, for long", NeverDelivered, long, busy(), true),
        (
            "never there for long, and Karmada is slow",
            NeverDelivered,
            long,
            Repairs { lag: seconds(60), ..busy() },
            false,
        ),
        (
            "never there for long, and nobody has seen Karmada",
            NeverDelivered,
            long,
            Repairs { karmada_wrote: None, ..busy() },
            false,
        ),
        (
            "never there for long, and Karmada has stopped",
            NeverDelivered,
            long,
            Repairs { karmada_wrote: Some(seconds(301)), ..busy() },
            false,
        ),
        ("never there for long, as many others", NeverDelivered, long, Repairs { others: 100, ..busy() }, false),
        ("taken away as many others, none tried yet", Lost, soon, Repairs { others: 100, ..busy() }, true),
        (
            "taken away as many others, one is tried",
            Lost,
            soon,
            Repairs { others: 100, trial: seconds(2), ..busy() },
            false,
        ),
        ("as a few others, one is tried", Lost, soon, Repairs { others: 99, trial: seconds(2), ..busy() }, true),
        ("repaired in vain a moment ago", Lost, soon, Repairs { again_in: seconds(2), ..busy() }, false),
        ("the budget is spent", Lost, soon, Repairs { affordable_in: seconds(2), ..busy() }, false),
    ];
    for (name, absence, elapsed, repairs, now) in cases {
        let decision = decide(absence, elapsed, &repairs, &Timing::default(), 0.75);
        assert_eq!(decision.now, now, "{name}");
        assert!(decision.next >= seconds(2), "{name}: {:?}", decision.next);
    }
    let small = Repairs { others: 19, deployments: 20, trial: seconds(2), ..busy() };
    assert!(!small.are_many(), "so few are no sign, though they are all there are");
}

#[test]
fn what_karmada_has_looked_at_is_looked_at_again_ever_more_rarely_and_one_at_a_time() {
    let (soon, long) = (GRACE, Timing::default().never_delivered_repair);
    let cases: [(&str, Absence, Duration, Repairs, bool); 11] = [
        ("looked at, and new", LookedAt { times: 0 }, soon, busy(), false),
        ("looked at long ago", LookedAt { times: 0 }, long, busy(), true),
        (
            "looked at long ago, and Karmada has written nothing since, as nothing has changed",
            LookedAt { times: 0 },
            long,
            Repairs { karmada_wrote: None, ..busy() },
            true,
        ),
        (
            "looked at long ago, and Karmada is slow",
            LookedAt { times: 0 },
            long,
            Repairs { lag: seconds(60), ..busy() },
            false,
        ),
        (
            "looked at long ago as many others, none tried yet",
            LookedAt { times: 0 },
            long,
            Repairs { others: 100, ..busy() },
            true,
        ),
        (
            "looked at long ago as many others, one is tried",
            LookedAt { times: 0 },
            long,
            Repairs { others: 100, trial: seconds(2), ..busy() },
            false,
        ),
        (
            "looked at, as a few others, one is tried",
            LookedAt { times: 0 },
            long,
            Repairs { others: 1, trial: seconds(2), ..busy() },
            false,
        ),
        ("looked at again already", LookedAt { times: 1 }, long, busy(), false),
        ("looked at again long ago", LookedAt { times: 1 }, 2 * long, busy(), true),
        ("looked at again and again", LookedAt { times: 4 }, 9 * long, busy(), false),
        ("looked at again and again, and long ago", LookedAt { times: 4 }, 10 * long, busy(), true),
    ];
    for (name, absence, elapsed, repairs, now) in cases {
        assert_eq!(decide(absence, elapsed, &repairs, &Timing::default(), 0.75).now, now, "{name}");
    }
}

#[test]
fn looks_become_rare_and_are_spread() {
    let timing = Timing::default();
    let mut elapsed = GRACE;
    let mut looks = 0;
    while elapsed < Duration::from_hours(1) {
        elapsed += look_again(elapsed, &timing, spread("some-uid"));
        looks += 1;
    }
    assert!((15..40).contains(&looks), "{looks} in an hour");
    assert!(look_again(Duration::from_hours(9), &timing, 1.0) <= BLOCKED_POLL_MAX);
    let all: Vec<f64> = (0..1_000).map(|n| spread(&format!("5f1c-{n}"))).collect();
    assert!(all.iter().all(|spread| (0.5..1.0).contains(spread)));
    let tenths = |from: f64| all.iter().filter(|spread| (from..from + 0.1).contains(*spread)).count();
    for from in [0.5, 0.6, 0.7, 0.8, 0.9] {
        assert!((100..300).contains(&tenths(from)), "{} at {from}", tenths(from));
    }
}

fn deployment(metadata: &serde_json::Value, status: &serde_json::Value) -> WorkloadDeployment {
    serde_json::from_value(json!({
        "metadata": metadata, "status": status,
        "spec": {
            "workloadRef": { "name": "w", "uid": "u" }, "placementName": "p", "cityCode": "DFW",
            "template": { "spec": { "runtime": { "resources": { "instanceType": "t" } }, "networkInterfaces": [] } },
            "scaleSettings": { "minReplicas": 1 },
        },
    }))
    .unwrap()
}

fn saying(status: &str, reason: &str, message: &str) -> WorkloadDeployment {
    let condition = json!({
        "type": "Federated", "status": status, "reason": reason, "message": message,
        "lastTransitionTime": "2026-01-01T00:01:00Z",
    });
    let data = json!({
        "type": "ReferencedDataReady", "status": "True", "reason": "Ready", "message": materialised(1).message,
        "lastTransitionTime": "2026-01-01T00:01:00Z",
    });
    deployment(&json!({ "name": "wd" }), &json!({ "conditions": [condition, data] }))
}

fn copy(created: &str) -> WorkloadDeployment {
    let annotations = json!({ annotation::EXPECTED_REFERENCED_DATA: r#"["Secret/db"]"# });
    let metadata = json!({ "name": "wd", "uid": "c1", "creationTimestamp": created, "annotations": annotations });
    deployment(&metadata, &json!(null))
}

#[test]
#[allow(clippy::type_complexity)]
fn only_what_had_been_delivered_counts_as_lost() {
    let (old, new) = ("2026-01-01T00:00:59Z", "2026-01-01T00:01:01Z");
    let good = || saying("True", "Propagated", "cell-dfw has what the hub was given");
    let cause = Verdict::no(Reason::BindingMissing, "Karmada has no ResourceBinding for Secret db");
    let both = |suffix: &str| saying("False", "BindingMissing", &format!("{}{suffix}", cause.message));
    let dfw = ["cell-dfw".to_owned()];
    let ord = ["cell-ord".to_owned()];
    let db = DataRef::secret("db");
    let waits = saying("True", "DrainWaiting", "cell-dfw has what the hub was given; dfw is to leave Cluster cell-dfw");
    let cases: Vec<(&str, WorkloadDeployment, &str, &str, &[String], bool)> = vec![
        ("nothing was ever said", deployment(&json!({ "name": "wd" }), &json!(null)), old, old, &dfw, false),
        ("all was there", good(), old, old, &dfw, true),
        ("all was there, and the binding itself is gone", good(), old, old, &[], true),
        ("all was there, of a copy that was made anew since", good(), new, new, &dfw, false),
        ("all was there, but for a companion that came later", good(), old, new, &dfw, false),
        ("all was there, on another cluster", good(), old, old, &ord, false),
        ("all was there, with a note", saying("True", "CityLabelLost", "put it back"), old, old, &dfw, true),
        ("it was to leave, and is lost where it was", waits.clone(), old, old, &dfw, true),
        ("it was to leave, and has not come to the other", waits, old, old, &ord, false),
        ("it was told as a loss", both(""), old, old, &dfw, true),
        ("it was told as a loss of many", both("; more than 19 others lack the same"), old, old, &dfw, true),
        ("it was told as never there", both(NEVER_DELIVERED_TEXT), old, old, &dfw, false),
        ("another loss was told", both("2"), old, old, &dfw, false),
        ("another cause was told", saying("False", "NotScheduled", &cause.message), old, old, &dfw, false),
        ("another cause was told, and the binding is gone", saying("False", "NotScheduled", ""), old, old, &[], false),
    ];
    for (name, deployment, copied, created, clusters, expected) in cases {
        let copy = copy(copied);
        let created = Some(created.parse().unwrap());
        let loss =
            Loss { deployment: &deployment, copy: &copy, companion: Some(&db), created, clusters, cause: &cause };
        let last_delivery = LastDelivery::of(&deployment, &copy);
        assert_eq!(loss.had_been_delivered(last_delivery.as_ref()), expected, "{name}");
    }
    // What was remembered from before it was told, and what a cell has reported.
    let (deployment, copy) = (saying("False", "NotScheduled", ""), copy(old));
    let remembered = LastDelivery::of(&good(), &copy).unwrap();
    let created = Some(old.parse().unwrap());
    let loss =
        Loss { deployment: &deployment, copy: &copy, companion: Some(&db), created, clusters: &dfw, cause: &cause };
    assert!(loss.had_been_delivered(Some(&remembered)));
    assert!(!loss.had_been_delivered(Some(&LastDelivery { copy: "another".into(), ..remembered.clone() })));
    let tie = Loss { created: Some(remembered.since), ..loss };
    assert!(tie.had_been_delivered(Some(&remembered)), "made in the very second of the delivery");
    let without = LastDelivery { data: vec![DataRef::secret("other")], ..remembered.clone() };
    assert!(!loss.had_been_delivered(Some(&without)), "it is listed since, however long others have had it");
    let of_copy = Loss { companion: None, created: None, ..loss };
    assert!(of_copy.had_been_delivered(Some(&without)), "that was there all the same");
    let mut running = copy.clone();
    running.status = Some(serde_json::from_value(json!({})).unwrap());
    assert!(Loss { copy: &running, clusters: &[], ..loss }.had_been_delivered(None), "a cell has reported on it");
    assert!(!Loss { copy: &running, ..loss }.had_been_delivered(None), "but that says nothing of its data");
}

#[test]
fn what_is_said_changes_with_the_scale_alone() {
    let cause = Verdict::no(Reason::BindingMissing, "no binding");
    let said = |others| reported(&cause, Absence::NeverDelivered, &Repairs { others, ..Repairs::default() }).message;
    assert_eq!(said(3), format!("no binding{NEVER_DELIVERED_TEXT}"));
    assert_eq!(said(20), said(100));
    assert!(said(101).ends_with("more than 100 others lack the same, repairs are held back"), "{}", said(101));
    assert_eq!(said(101), said(1_000));
    assert_ne!(said(1_000), said(1_001));
    for absence in [Absence::Lost, Absence::LookedAt { times: 3 }] {
        assert_eq!(reported(&cause, absence, &Repairs::default()), cause);
    }
}

/// Found by reading: a manager that was started while data was on its way took what the copy lists by then for delivered.
#[test]
fn what_the_copy_lists_was_part_of_a_delivery_once_that_is_said_of_so_much() {
    let listed = [DataRef::secret("db")];
    for (name, said, known) in [
        ("all of it is there", Some(("True", "Ready", materialised(1).message)), true),
        ("there was none", Some(("True", "Ready", materialised(0).message)), false),
        ("there was more", Some(("True", "Ready", materialised(2).message)), false),
        ("it is on its way to the hub", Some(("Unknown", "Resolving", "Secret db".to_owned())), false),
        ("it is on its way to the cell", Some(("False", "AwaitingPropagation", "BindingMissing".to_owned())), false),
        ("another cannot be copied", Some(("False", "SourceNotFound", "there is no Secret late".to_owned())), true),
        ("nothing is said", None, false),
    ] {
        let mut deployment = saying("True", "Propagated", "cell-dfw has what the hub was given");
        let conditions = &mut deployment.status.as_mut().unwrap().conditions;
        conditions.truncate(1);
        conditions.extend(said.map(|(status, reason, message)| {
            let condition = json!({
                "type": "ReferencedDataReady", "status": status, "reason": reason, "message": message,
                "lastTransitionTime": "2026-01-01T00:00:00Z",
            });
            serde_json::from_value(condition).unwrap()
        }));
        let data = LastDelivery::of(&deployment, &copy("2026-01-01T00:00:59Z")).unwrap().data;
        assert_eq!(data, &listed[..usize::from(known)], "{name}");
    }
}

/// Found by reading: while something was to be said of a deployment for long, what it had had from the beginning was all that
/// counted; and a Secret that was still on its way to the hub had all the others forgotten.
#[test]
fn while_all_is_there_what_was_part_of_it_follows_what_the_copy_lists() {
    let refs = |names: &[&str]| names.iter().map(|name| DataRef::secret(name)).collect::<Vec<_>>();
    let delivery = |copy: &str, names: &[&str]| LastDelivery {
        copy: copy.into(),
        since: Timestamp::UNIX_EPOCH,
        places: None,
        data: refs(names),
    };
    let mut copy = copy("2026-01-01T00:00:59Z");
    copy.annotations_mut().insert(annotation::EXPECTED_REFERENCED_DATA.into(), r#"["Secret/a","Secret/b"]"#.into());
    for (name, remembered, said, expected) in [
        ("added, and there", Some(delivery("c1", &["a"])), Some(&["a", "b"][..]), Some(&["a", "b"][..])),
        ("nothing is known of the list as it is", Some(delivery("c1", &["a"])), Some(&[]), Some(&["a"])),
        ("listed no more", Some(delivery("c1", &["a", "gone"])), Some(&[]), Some(&["a"])),
        ("of another copy", Some(delivery("c0", &["a"])), Some(&[]), Some(&[])),
        ("nothing is said", Some(delivery("c1", &["a"])), None, Some(&["a"])),
        ("nothing is known", None, None, None),
    ] {
        let said = said.map(|names| delivery("c1", names));
        let data = LastDelivery::renewed(remembered, said, &copy).map(|delivery| delivery.data);
        assert_eq!(data, expected.map(refs), "{name}");
    }
}
