use serde_json::json;

use super::*;

const GRACE: Duration = Duration::from_secs(5);

fn seconds(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}

/// A cause that has lasted for this time, with the number of repairs and the time since the last one.
fn missing(elapsed: u64, repaired: Option<(u32, u64)>) -> Blocked {
    Blocked {
        reason: "BindingMissing".into(),
        silence: Some(Absence::Pending),
        elapsed: seconds(elapsed),
        repairs: repaired.map_or(0, |(repairs, _)| repairs),
        repaired_ago: repaired.map(|(_, ago)| seconds(ago)),
    }
}

#[test]
fn lost_object_is_repaired_at_once_and_pending_one_after_ten_minutes() {
    use Absence::{Lost, Pending};
    let free = Capacity::default;
    let behind = Capacity { is_karmada_behind: true, ..free() };
    let spent = Capacity { repair_in: seconds(2), ..free() };
    let trial = Capacity { trial_in: seconds(2), ..free() };
    for (name, absence, blocked, capacity, now) in [
        ("removed", Lost, missing(6, None), free(), true),
        ("removed while Karmada is behind", Lost, missing(6, None), behind.clone(), true),
        ("removed while the budget is spent", Lost, missing(6, None), spent.clone(), false),
        ("removed while a pending one is tried", Lost, missing(6, None), trial.clone(), true),
        ("repaired in vain a moment ago", Lost, missing(60, Some((1, 4))), free(), false),
        ("repaired in vain a while ago", Lost, missing(60, Some((1, 5))), free(), true),
        ("repaired in vain again", Lost, missing(60, Some((2, 5))), free(), false),
        ("repaired in vain again and again", Lost, missing(9_999, Some((99, 319))), free(), false),
        ("the same, and long ago", Lost, missing(9_999, Some((99, 320))), free(), true),
        ("never there, and new", Pending, missing(6, None), free(), false),
        ("never there, for long", Pending, missing(600, None), free(), true),
        ("never there for long, and the budget is spent", Pending, missing(600, None), spent, false),
        ("never there for long, and another one is tried", Pending, missing(600, None), trial, false),
        ("repaired once", Pending, missing(1_000, Some((1, 599))), free(), false),
        ("repaired once, long ago", Pending, missing(1_200, Some((1, 600))), free(), true),
        ("repaired many times", Pending, missing(9_999, Some((9, 2_399))), free(), false),
        ("the same, and long ago", Pending, missing(9_999, Some((9, 2_400))), free(), true),
    ] {
        let decision = decide(absence, &blocked, &capacity, &Timing::default(), 0.75);
        assert_eq!(decision.now, now, "{name}");
        assert!(decision.next >= seconds(1), "{name}: {:?}", decision.next);
    }
}

#[test]
fn checks_of_a_missing_object_become_rare_and_are_spread() {
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

fn delivery(copy: &str, clusters: &[&str], data: &[&str]) -> LastDelivery {
    serde_json::from_value(json!({
        "copyUID": copy, "clusters": clusters, "data": data, "time": "2026-01-01T00:01:00Z",
    }))
    .unwrap()
}

#[test]
fn object_counts_as_lost_only_if_it_was_delivered() {
    let mut copy = WorkloadDeployment::new("wd", crate::api::compute::WorkloadDeploymentSpec::default());
    copy.metadata.uid = Some("c1".into());
    let (before, at, after) = ("2026-01-01T00:00:59Z", "2026-01-01T00:01:00Z", "2026-01-01T00:01:01Z");
    let (dfw, ord) = (["cell-dfw".to_owned()], ["cell-ord".to_owned()]);
    let all = delivery("c1", &["cell-dfw"], &["Secret/db"]);
    let (db, nowhere) = (DataRef::secret("db"), delivery("c1", &[], &["Secret/db"]));
    let without = delivery("c1", &["cell-dfw"], &["Secret/other"]);
    // The last delivery, the missing companion, its creation time, and the clusters of the deployment.
    for (name, last_delivery, companion, created, clusters, expected) in [
        ("nothing was ever delivered", None, Some(&db), before, &dfw[..], false),
        ("the companion was there", Some(&all), Some(&db), before, &dfw, true),
        ("it was created in the second of the delivery", Some(&all), Some(&db), at, &dfw, true),
        ("it was recreated since", Some(&all), Some(&db), after, &dfw, false),
        ("it is listed since, however long others have had it", Some(&without), Some(&db), before, &dfw, false),
        ("all was there, on another cluster", Some(&all), Some(&db), before, &ord, false),
        ("all was there, on unknown clusters", Some(&nowhere), Some(&db), before, &ord, true),
        ("the binding itself is gone", Some(&all), Some(&db), before, &[], true),
        ("the copy was there, with other data", Some(&without), None, before, &dfw, true),
        ("the copy was there, on another cluster", Some(&all), None, before, &ord, false),
    ] {
        let created = companion.map(|_| created.parse().unwrap());
        let loss = Loss { copy: &copy, companion, created, clusters };
        assert_eq!(loss.had_been_delivered(last_delivery), expected, "{name}");
    }
    // The status that the definition gives to new objects is no report.
    copy.status = Some(serde_json::from_value(json!({ "observedGeneration": -1, "replicas": 0 })).unwrap());
    assert!(!Loss { copy: &copy, companion: None, created: None, clusters: &[] }.had_been_delivered(None));
    copy.status = Some(serde_json::from_value(json!({ "desiredReplicas": 1 })).unwrap());
    let loss = |clusters| Loss { copy: &copy, companion: None, created: None, clusters };
    assert!(loss(&[]).had_been_delivered(None), "a cell has reported on it");
    assert!(!loss(&dfw).had_been_delivered(None), "but that says nothing of where it is now");
}
