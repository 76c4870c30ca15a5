use std::sync::{
    Arc,
    atomic::{AtomicUsize, Ordering},
};

use super::*;

fn object(version: u64) -> Incoming<()> {
    Incoming { key: ObjectKey::new("shop", "db"), uid: "u".into(), version, value: Some(().into()) }
}

fn reading(version: u64) -> Reading {
    Reading { uid: "u".into(), version, source: Source::Present { size: 3 } }
}

#[test]
fn source_reading_is_valid_until_watch_reports_a_change() {
    let sources = Sources::default();
    let reported = Arc::new(AtomicUsize::new(0));
    let counter = reported.clone();
    sources.listen(move |_| {
        counter.fetch_add(1, Ordering::SeqCst);
    });
    let key = ObjectKey::new("shop", "db");
    assert!(!sources.wants(&key));
    sources.observe(object(5)); // not in use
    assert_eq!((sources.get(&key), reported.load(Ordering::SeqCst)), (Source::Unknown, 0));

    let epoch = sources.begin(&key);
    assert!(sources.wants(&key));
    assert_eq!(sources.read(&key, epoch, reading(5)), News::Changed);
    sources.copied(&key, ObjectVersion::new("c", "9"));
    sources.observe(object(5)); // the version that was read
    assert_eq!((sources.get(&key), reported.load(Ordering::SeqCst)), (Source::Present { size: 3 }, 0));
    assert!(sources.copy(&key).is_some());

    sources.observe(object(6));
    assert_eq!((sources.get(&key), reported.load(Ordering::SeqCst)), (Source::Unknown, 1));
    assert_eq!((sources.last(&key), sources.copy(&key)), (Source::Present { size: 3 }, None));

    // A change during the read makes the reading stale before it is recorded.
    let epoch = sources.begin(&key);
    Cache::forget(&sources, &key, "u");
    sources.read(&key, epoch, reading(6));
    assert_eq!((sources.get(&key), reported.load(Ordering::SeqCst)), (Source::Unknown, 2));
}

/// A token that had just expired was reported on every cell.
#[test]
fn source_unauthenticated_time_counts_from_first_failure_until_it_is_read() {
    let (sources, key, start) = (Sources::default(), ObjectKey::new("shop", "db"), crate::timing::some_moment());
    let at = |seconds| start + Duration::from_secs(seconds);
    let epoch = sources.begin(&key);
    assert_eq!(sources.unread_for(&key, at(0)), Duration::ZERO);
    assert_eq!(sources.unread_for(&key, at(4)), Duration::from_secs(4));
    let unauthorized = Reading { source: Source::Unauthorized("expired".into()), ..Reading::default() };
    sources.read(&key, epoch, unauthorized);
    assert_eq!(sources.unread_for(&key, at(6)), Duration::from_secs(6), "it lasts");
    sources.read(&key, epoch, reading(5));
    assert_eq!(sources.unread_for(&key, at(9)), Duration::ZERO);
}

#[test]
fn source_missing_time_counts_from_first_miss_until_it_is_read() {
    let (sources, key, start) = (Sources::default(), ObjectKey::new("shop", "db"), crate::timing::some_moment());
    let (grace, at) = (Duration::from_secs(5), |seconds| start + Duration::from_secs(seconds));
    let epoch = sources.begin(&key);
    assert_eq!(sources.missing_for(&key, at(0)), None, "it was never read");
    sources.read(&key, epoch, reading(5));
    assert_eq!(sources.may_return_in(&key, at(1), grace), None, "it exists");
    assert_eq!(sources.missing_for(&key, at(2)), Some(Duration::ZERO));
    assert_eq!(sources.missing_for(&key, at(4)), Some(Duration::from_secs(2)));
    assert_eq!(sources.may_return_in(&key, at(4), grace), Some(Duration::from_secs(3)));
    assert_eq!(sources.may_return_in(&key, at(7), grace), None, "the grace period is over");
    sources.read(&key, epoch, reading(6));
    assert_eq!(sources.missing_for(&key, at(9)), Some(Duration::ZERO), "it had returned");
    sources.read(&key, epoch, Reading { source: Source::Absent, ..Reading::default() });
    assert_eq!(sources.missing_for(&key, at(10)), None, "it is known to be absent");
}

/// When a refusal replaced the reading, two sources of one deployment waited for each other.
#[test]
fn source_refused_by_hub_keeps_its_reading_beside_the_refusal() {
    let (sources, key, start) = (Sources::default(), ObjectKey::new("shop", "db"), crate::timing::some_moment());
    let (retry, at) = (Duration::from_secs(10), |seconds| start + Duration::from_secs(seconds));
    let epoch = sources.begin(&key);
    sources.read(&key, epoch, reading(5));
    let refuse = |why: &str, second| sources.refuse(&key, why.into(), at(second), retry);
    assert_eq!(refuse("the hub: quota 1", 0), News::Confirmed);
    assert_eq!(sources.told(&key), Source::Refused("the hub: quota 1".into()));
    assert_eq!(sources.last(&key), Source::Present { size: 3 }, "no other source waits for it");
    assert_eq!((sources.offered_in(&key, at(4)), sources.offered_in(&key, at(10))), (Some(at(6) - start), None));
    assert_eq!(refuse("the hub: quota 2", 10), News::Nothing, "the same message but for its numbers");
    assert_eq!(sources.offered_in(&key, at(10)), Some(retry * 2), "the back-off grows");
    assert_eq!(refuse("the hub: a rule", 30), News::Confirmed);
    // New content is offered at once. The refusal is reported until the hub accepts a copy.
    sources.observe(object(6));
    assert_eq!(sources.offered_in(&key, at(31)), None);
    assert_eq!(refuse("the hub: of what was before", 31), News::Nothing, "a change during the write is not lost");
    let epoch = sources.begin(&key);
    sources.read(&key, epoch, reading(6));
    assert_eq!(sources.offered_in(&key, at(31)), None);
    assert_eq!(sources.told(&key), Source::Refused("the hub: a rule".into()));
    assert_eq!((sources.accept(&key), sources.accept(&key)), (News::Confirmed, News::Nothing));
    assert_eq!(sources.told(&key), Source::Present { size: 3 });
    // An absent source is not refused.
    refuse("the hub: a rule", 32);
    sources.read(&key, epoch, Reading { source: Source::Absent, ..Reading::default() });
    assert_eq!(sources.told(&key), Source::Absent);
}

#[test]
fn source_reading_overtaken_by_watch_is_news_once_confirmed() {
    let (sources, key) = (Sources::default(), ObjectKey::new("shop", "db"));
    let first = sources.begin(&key);
    sources.observe(object(5)); // during the read
    assert_eq!(sources.read(&key, first, reading(5)), News::Changed);
    sources.copied(&key, ObjectVersion::new("c", "9"));
    assert_eq!(sources.copy(&key), None, "the reading may be stale");
    let second = sources.begin(&key);
    assert_eq!(sources.read(&key, second, reading(5)), News::Confirmed);
    assert!(sources.copy(&key).is_some());
    assert_eq!(sources.read(&key, second, reading(5)), News::Nothing);
}

#[test]
fn sources_list_after_missed_events_reports_the_changes() {
    let (sources, key) = (Sources::default(), ObjectKey::new("shop", "db"));
    let epoch = sources.begin(&key);
    sources.read(&key, epoch, reading(5));
    sources.replace(vec![object(5)], 8);
    assert_eq!(sources.get(&key), Source::Present { size: 3 });
    sources.replace(vec![], 9);
    assert_eq!(sources.get(&key), Source::Unknown);
    let epoch = sources.begin(&key);
    let absent = Reading { source: Source::Absent, ..Reading::default() };
    assert_eq!(sources.read(&key, epoch, absent), News::Changed);
    sources.replace(vec![], 9);
    assert_eq!(sources.get(&key), Source::Absent);
    sources.replace(vec![object(10)], 10);
    assert_eq!(sources.get(&key), Source::Unknown);
}
