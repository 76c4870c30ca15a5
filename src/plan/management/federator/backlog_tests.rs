use super::*;
use crate::timing::some_moment;

type All = Backlog<String>;

fn key(name: &str) -> String {
    format!("project/{name}")
}

fn signal(reason: &str, silence: Option<Absence>) -> [Signal; 1] {
    [Signal::Blocked { reason: reason.into(), silence }]
}

fn silent(reason: &str) -> [Signal; 1] {
    signal(reason, Some(Absence::Pending))
}

fn unlimited() -> All {
    All::new(Limits { per_minute: 60_000, burst: 1_000 })
}

#[test]
fn episode_begins_with_each_reason_and_ends_with_the_delivery() {
    let (mut all, key, start) = (unlimited(), key("wd"), some_moment());
    let at = |seconds| start + Duration::from_secs(seconds);
    let episode =
        |all: &All, seconds| all.of(&key, at(seconds)).map(|blocked| (blocked.reason, blocked.elapsed.as_secs()));
    all.note(&key, &silent("BindingMissing"), at(0));
    all.note(&key, &silent("BindingMissing"), at(3));
    assert_eq!(episode(&all, 4), Some(("BindingMissing".into(), 4)));
    all.note(&key, &silent("NotApplied"), at(6));
    assert_eq!(episode(&all, 7), Some(("NotApplied".into(), 1)));
    all.note(&key, &[], at(8));
    assert_eq!(episode(&all, 9), None);
}

/// When Karmada was back after an outage, the time of the outage counted as Karmada's time to act.
#[test]
fn episode_grace_begins_when_karmada_speaks_unless_repaired() {
    let (mut all, key, start) = (unlimited(), key("wd"), some_moment());
    let at = |seconds| start + Duration::from_secs(seconds);
    let episode = |all: &All, seconds| {
        all.of(&key, at(seconds)).map(|blocked| (blocked.silence.is_some(), blocked.elapsed.as_secs()))
    };
    all.note(&key, &silent("NotListed"), at(0));
    assert_eq!(episode(&all, 600), Some((true, 600)));
    all.note(&key, &signal("NotListed", None), at(600));
    assert_eq!(episode(&all, 604), Some((false, 4)));
    assert!(all.take(&key, Absence::Pending, &Timing::default(), at(610)));
    all.note(&key, &silent("NotListed"), at(610));
    all.note(&key, &signal("NotListed", None), at(611));
    assert_eq!(episode(&all, 620), Some((false, 20)), "its own repair ends nothing");
}

/// A report came before the binding by which it was made. The time that Karmada had taken until then counted as the time for which
/// the binding was lost.
#[test]
fn episode_grace_begins_when_a_pending_object_is_lost_unless_repaired() {
    let (mut all, key, start) = (unlimited(), key("wd"), some_moment());
    let at = |seconds| start + Duration::from_secs(seconds);
    let missing = |absence| signal("BindingMissing", Some(absence));
    let episode =
        |all: &All, seconds| all.of(&key, at(seconds)).map(|blocked| (blocked.silence, blocked.elapsed.as_secs()));
    all.note(&key, &missing(Absence::Pending), at(0));
    all.note(&key, &missing(Absence::Lost), at(11));
    assert_eq!(episode(&all, 12), Some((Some(Absence::Lost), 1)));
    all.note(&key, &missing(Absence::Lost), at(13));
    assert_eq!(episode(&all, 16), Some((Some(Absence::Lost), 5)));
    assert!(all.take(&key, Absence::Lost, &Timing::default(), at(16)));
    all.note(&key, &missing(Absence::Pending), at(17));
    all.note(&key, &missing(Absence::Lost), at(18));
    assert_eq!(episode(&all, 20), Some((Some(Absence::Lost), 9)), "its own repair ends nothing");
}

#[test]
fn repairs_are_counted_until_the_delivery_and_timed_for_each_reason() {
    let (mut all, key, start) = (unlimited(), key("wd"), some_moment());
    let timing = Timing::default();
    let episode = |all: &All| all.of(&key, start).map(|blocked| (blocked.repairs, blocked.repaired_ago.is_some()));
    all.note(&key, &silent("BindingMissing"), start);
    assert!(all.take(&key, Absence::Lost, &timing, start));
    all.note(&key, &silent("BindingMissing"), start);
    assert_eq!(episode(&all), Some((1, true)));
    all.note(&key, &silent("NotApplied"), start);
    assert_eq!(episode(&all), Some((1, false)));
    all.note(&key, &[], start);
    all.note(&key, &silent("BindingMissing"), start);
    assert_eq!(episode(&all), Some((0, false)));
    assert!(!all.take(&super::tests::key("other"), Absence::Lost, &timing, start), "one that is not blocked");
}

#[test]
fn repairs_of_all_deployments_share_one_budget() {
    let (mut all, start) = (All::new(Limits { per_minute: 60, burst: 2 }), some_moment());
    let timing = Timing::default();
    let keys: Vec<String> = (0..5).map(|n| key(&n.to_string())).collect();
    for key in &keys {
        all.note(key, &silent("BindingMissing"), start);
    }
    let taken = |all: &mut All, now| keys.iter().filter(|key| all.take(key, Absence::Lost, &timing, now)).count();
    assert_eq!((taken(&mut all, start), taken(&mut all, start)), (2, 0));
    assert_eq!(all.capacity(&keys[4], &timing, start).repair_in, Duration::from_secs(1));
    assert_eq!(taken(&mut all, start + Duration::from_secs(1)), 1);
    let none = All::new(Limits { per_minute: 0, burst: 2 });
    assert_eq!(none.capacity(&keys[0], &timing, start).repair_in, NO_REPAIRS_WAIT);
}

#[test]
fn pending_deployments_are_repaired_one_at_a_time() {
    let (mut all, start, timing) = (unlimited(), some_moment(), Timing::default());
    let keys: Vec<String> = (0..50).map(|n| key(&format!("{n:02}"))).collect();
    for key in &keys {
        all.note(key, &silent("BindingMissing"), start);
    }
    let tried = |all: &mut All, absence, now| keys.iter().filter(|key| all.take(key, absence, &timing, now)).count();
    assert!(all.take(&keys[0], Absence::Pending, &timing, start));
    assert_eq!(all.capacity(&keys[7], &timing, start).trial_in, Duration::from_mins(1));
    assert_eq!(all.capacity(&keys[0], &timing, start).trial_in, Duration::ZERO, "it is its own trial");
    assert!(!all.take(&keys[7], Absence::Pending, &timing, start));
    all.note(&keys[0], &[], start);
    assert!(all.take(&keys[7], Absence::Pending, &timing, start), "the one before has arrived");
    let later = start + Duration::from_mins(1);
    assert!(all.take(&keys[8], Absence::Pending, &timing, later), "the one before has had its time");
    assert_eq!(tried(&mut all, Absence::Lost, later), 49, "what was lost waits for no trial");
}

#[test]
fn karmada_is_behind_while_it_is_silent_about_many_and_shortly_after() {
    let (mut all, start, timing) = (unlimited(), some_moment(), Timing::default());
    let at = |seconds| start + Duration::from_secs(seconds);
    let keys: Vec<String> = (0..MANY_SILENT).map(|n| key(&n.to_string())).collect();
    let behind = |all: &All, seconds| all.capacity(&key("any"), &timing, at(seconds)).is_karmada_behind;
    for key in &keys[1..] {
        all.note(key, &silent("BindingMissing"), at(0));
        all.note(key, &silent("NotScheduled"), at(0));
    }
    all.note(&keys[0], &signal("NoClusterForCity", None), at(0));
    assert!(!behind(&all, 0), "each counts once, and only if Karmada is silent about it");
    all.note(&keys[0], &silent("NotScheduled"), at(0));
    assert!(behind(&all, 0));
    for key in &keys {
        all.note(key, &[], at(30));
    }
    assert_eq!((behind(&all, 59), behind(&all, 60)), (true, false));
}

#[test]
fn deployments_are_counted_by_reason() {
    let (mut all, start) = (unlimited(), some_moment());
    let count = |reason: &str, count: usize| (reason.to_owned(), count);
    assert_eq!(all.note(&key("a"), &silent("NotApplied"), start), [count("NotApplied", 1)]);
    assert_eq!(all.note(&key("b"), &silent("NotApplied"), start), [count("NotApplied", 2)]);
    assert_eq!(all.note(&key("b"), &silent("NotApplied"), start), []);
    let changed = all.note(&key("b"), &silent("NotScheduled"), start);
    assert_eq!(changed, [count("NotApplied", 1), count("NotScheduled", 1)]);
    assert_eq!(all.forget_where(|key| key.starts_with("another"), start), []);
    let gone = all.forget_where(|key| key.starts_with("project"), start);
    assert_eq!(gone, [count("NotApplied", 0), count("NotScheduled", 0)]);
    assert_eq!(all.keys(), Vec::<String>::new());
}
