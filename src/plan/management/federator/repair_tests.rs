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

fn delivery(copy: &str, clusters: &[&str], data: &[&str]) -> LastDelivery {
    serde_json::from_value(json!({
        "copyUID": copy, "clusters": clusters, "data": data, "time": "2026-01-01T00:01:00Z",
    }))
    .unwrap()
}

#[test]
fn only_what_was_part_of_the_last_delivery_counts_as_lost() {
    let mut copy = WorkloadDeployment::new("wd", crate::api::compute::WorkloadDeploymentSpec::default());
    copy.metadata.uid = Some("c1".into());
    let (before, at, after) = ("2026-01-01T00:00:59Z", "2026-01-01T00:01:00Z", "2026-01-01T00:01:01Z");
    let (dfw, ord) = (["cell-dfw".to_owned()], ["cell-ord".to_owned()]);
    let all = delivery("c1", &["cell-dfw"], &["Secret/db"]);
    let (db, nowhere) = (DataRef::secret("db"), delivery("c1", &[], &["Secret/db"]));
    let without = delivery("c1", &["cell-dfw"], &["Secret/other"]);
    // What was delivered last, what is missing, when that was created, and where the deployment goes.
    for (name, last_delivery, companion, created, clusters, expected) in [
        ("nothing was ever delivered", None, Some(&db), before, &dfw[..], false),
        ("the companion was there", Some(&all), Some(&db), before, &dfw, true),
        ("it was created in the second of the delivery", Some(&all), Some(&db), at, &dfw, true),
        ("it was created anew since", Some(&all), Some(&db), after, &dfw, false),
        ("it is listed since, however long others have had it", Some(&without), Some(&db), before, &dfw, false),
        ("all was there, on another cluster", Some(&all), Some(&db), before, &ord, false),
        ("all was there, nobody knows where", Some(&nowhere), Some(&db), before, &ord, true),
        ("the binding itself is gone", Some(&all), Some(&db), before, &[], true),
        ("the copy was there, whatever its data", Some(&without), None, before, &dfw, true),
        ("the copy was there, on another cluster", Some(&all), None, before, &ord, false),
    ] {
        let created = companion.map(|_| created.parse().unwrap());
        let loss = Loss { copy: &copy, companion, created, clusters };
        assert_eq!(loss.had_been_delivered(last_delivery), expected, "{name}");
    }
    copy.status = Some(serde_json::from_value(json!({})).unwrap());
    let loss = |clusters| Loss { copy: &copy, companion: None, created: None, clusters };
    assert!(loss(&[]).had_been_delivered(None), "a cell has reported on it");
    assert!(!loss(&dfw).had_been_delivered(None), "but that says nothing of where it is now");
}

#[test]
fn what_is_said_changes_with_the_scale_alone() {
    let cause = Verdict::no(Reason::BindingMissing, "no binding");
    let said = |others| reported(&cause, Absence::NeverDelivered, &Repairs { others, ..Repairs::default() }).message;
    assert_eq!(said(3), "no binding; it has not been there before: Karmada may not have got to it yet");
    assert_eq!(said(20), said(100));
    assert!(said(101).ends_with("more than 100 others lack the same, repairs are held back"), "{}", said(101));
    assert_eq!(said(101), said(1_000));
    assert_ne!(said(1_000), said(1_001));
    for absence in [Absence::Lost, Absence::LookedAt { times: 3 }] {
        assert_eq!(reported(&cause, absence, &Repairs::default()), cause);
    }
}
