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
fn a_reading_stands_until_the_watch_reports_of_a_change() {
    let sources = Sources::default();
    let reported = Arc::new(AtomicUsize::new(0));
    let counter = reported.clone();
    sources.listen(move |_| {
        counter.fetch_add(1, Ordering::SeqCst);
    });
    let key = ObjectKey::new("shop", "db");
    assert!(!sources.wants(&key));
    sources.observe(object(5)); // nobody uses it
    assert_eq!((sources.get(&key), reported.load(Ordering::SeqCst)), (Source::Unknown, 0));

    let epoch = sources.begin(&key);
    assert!(sources.wants(&key));
    assert_eq!(sources.read(&key, epoch, reading(5)), News::Changed);
    sources.copied(&key, ObjectVersion::new("c", "9"));
    sources.observe(object(5)); // what was read
    assert_eq!((sources.get(&key), reported.load(Ordering::SeqCst)), (Source::Present { size: 3 }, 0));
    assert!(sources.copy(&key).is_some());

    sources.observe(object(6));
    assert_eq!((sources.get(&key), reported.load(Ordering::SeqCst)), (Source::Unknown, 1));
    assert_eq!((sources.last(&key), sources.copy(&key)), (Source::Present { size: 3 }, None));

    // A change that comes while it is read makes the reading old before it is noted.
    let epoch = sources.begin(&key);
    Cache::forget(&sources, &key, "u");
    sources.read(&key, epoch, reading(6));
    assert_eq!((sources.get(&key), reported.load(Ordering::SeqCst)), (Source::Unknown, 2));
}

/// Found by reading: a token that had just expired was told to every cell.
#[test]
fn that_nobody_knows_who_asks_counts_from_the_first_time_until_it_can_be_read() {
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
fn source_that_was_there_is_missed_from_when_it_is_not_found_until_it_is_read_again() {
    let (sources, key, start) = (Sources::default(), ObjectKey::new("shop", "db"), crate::timing::some_moment());
    let (grace, at) = (Duration::from_secs(5), |seconds| start + Duration::from_secs(seconds));
    let epoch = sources.begin(&key);
    assert_eq!(sources.missing_for(&key, at(0)), None, "nobody has seen it yet");
    sources.read(&key, epoch, reading(5));
    assert_eq!(sources.may_return_in(&key, at(1), grace), None, "it is there");
    assert_eq!(sources.missing_for(&key, at(2)), Some(Duration::ZERO));
    assert_eq!(sources.missing_for(&key, at(4)), Some(Duration::from_secs(2)));
    assert_eq!(sources.may_return_in(&key, at(4), grace), Some(Duration::from_secs(3)));
    assert_eq!(sources.may_return_in(&key, at(7), grace), None, "it has had its time");
    sources.read(&key, epoch, reading(6));
    assert_eq!(sources.missing_for(&key, at(9)), Some(Duration::ZERO), "it was back meanwhile");
    sources.read(&key, epoch, Reading { source: Source::Absent, ..Reading::default() });
    assert_eq!(sources.missing_for(&key, at(10)), None, "it is known to be absent");
}

/// Found by reading: kept in the place of the reading, a refusal had two sources of one deployment wait for each other.
#[test]
fn that_the_hub_refused_a_source_is_said_beside_what_was_read_of_it() {
    let (sources, key, start) = (Sources::default(), ObjectKey::new("shop", "db"), crate::timing::some_moment());
    let (retry, at) = (Duration::from_secs(10), |seconds| start + Duration::from_secs(seconds));
    let epoch = sources.begin(&key);
    sources.read(&key, epoch, reading(5));
    let refuse = |why: &str, second| sources.refuse(&key, why.into(), at(second), retry);
    assert_eq!(refuse("the hub: quota 1", 0), News::Confirmed);
    assert_eq!(sources.told(&key), Source::Refused("the hub: quota 1".into()));
    assert_eq!(sources.last(&key), Source::Present { size: 3 }, "so nothing else waits for it");
    assert_eq!((sources.offered_in(&key, at(4)), sources.offered_in(&key, at(10))), (Some(at(6) - start), None));
    assert_eq!(refuse("the hub: quota 2", 10), News::Nothing, "no other words");
    assert_eq!(sources.offered_in(&key, at(10)), Some(retry * 2), "ever more rarely");
    assert_eq!(refuse("the hub: a rule", 30), News::Confirmed);
    // Another content is offered at once, and said to be refused until the hub has taken it.
    sources.observe(object(6));
    assert_eq!(sources.offered_in(&key, at(31)), None);
    assert_eq!(refuse("the hub: of what was before", 31), News::Nothing, "a change that came meanwhile is not lost");
    let epoch = sources.begin(&key);
    sources.read(&key, epoch, reading(6));
    assert_eq!(sources.offered_in(&key, at(31)), None);
    assert_eq!(sources.told(&key), Source::Refused("the hub: a rule".into()));
    assert_eq!((sources.accept(&key), sources.accept(&key)), (News::Confirmed, News::Nothing));
    assert_eq!(sources.told(&key), Source::Present { size: 3 });
    // What is no more is not refused either.
    refuse("the hub: a rule", 32);
    sources.read(&key, epoch, Reading { source: Source::Absent, ..Reading::default() });
    assert_eq!(sources.told(&key), Source::Absent);
}

#[test]
fn a_reading_that_the_watch_overtakes_is_news_once_it_is_confirmed() {
    let (sources, key) = (Sources::default(), ObjectKey::new("shop", "db"));
    let first = sources.begin(&key);
    sources.observe(object(5)); // while it is read
    assert_eq!(sources.read(&key, first, reading(5)), News::Changed);
    sources.copied(&key, ObjectVersion::new("c", "9"));
    assert_eq!(sources.copy(&key), None, "nobody knows whether it is the present one");
    let second = sources.begin(&key);
    assert_eq!(sources.read(&key, second, reading(5)), News::Confirmed);
    assert!(sources.copy(&key).is_some());
    assert_eq!(sources.read(&key, second, reading(5)), News::Nothing);
}

#[test]
fn a_list_reports_what_was_missed() {
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
