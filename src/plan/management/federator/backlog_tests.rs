use std::cell::RefCell;

use super::*;
use crate::timing::some_moment;

/// A backlog that closures can share.
struct All(RefCell<Backlog<String>>);

impl All {
    fn new(limits: Limits) -> Self {
        Self(RefCell::new(Backlog::new(limits)))
    }

    fn of(&self, key: &String, now: Instant) -> Option<federate::Blocked> {
        self.0.borrow().of(key, now)
    }

    fn repairs(&self, key: &String, deployments: usize, base: Duration, now: Instant) -> Repairs {
        self.0.borrow().repairs(key, deployments, base, now)
    }

    fn take(&self, key: &String, deployments: usize, base: Duration, now: Instant) -> Result<(), Repairs> {
        self.0.borrow_mut().take(key, deployments, base, now)
    }

    fn note(&self, key: &String, signals: &[Signal], now: Instant) -> Noted<String> {
        self.0.borrow_mut().note(key, signals, now)
    }
}

const BASE: Duration = Duration::from_secs(5);

fn key(name: &str) -> String {
    format!("project/{name}")
}

fn blocked(reason: &str) -> Vec<Signal> {
    vec![Signal::Blocked { reason: reason.into(), silent: true, quiet: false, delivered_before: false }]
}

fn unlimited() -> All {
    All::new(Limits { per_minute: 60_000, burst: 1_000 })
}

#[test]
fn each_cause_counts_its_own_time() {
    let (all, key, start) = (unlimited(), key("wd"), some_moment());
    let at = |seconds| start + Duration::from_secs(seconds);
    let of = |seconds| all.of(&key, at(seconds)).map(|blocked| (blocked.reason, blocked.elapsed));
    all.note(&key, &blocked("BindingMissing"), at(0));
    all.note(&key, &blocked("BindingMissing"), at(3));
    assert_eq!(of(4), Some(("BindingMissing".into(), Duration::from_secs(4))));
    all.note(&key, &blocked("NotApplied"), at(6));
    assert_eq!(of(7), Some(("NotApplied".into(), Duration::from_secs(1))));
    all.note(&key, &[], at(8));
    assert_eq!(of(9), None);
}

/// Found by reading: the moment that a Karmada that had been away was back, it was taken to have had all that time.
#[test]
fn what_karmada_has_only_now_looked_at_begins_anew_unless_it_was_made_to_look() {
    let (all, key, start) = (unlimited(), key("wd"), some_moment());
    let at = |seconds| start + Duration::from_secs(seconds);
    let of = |seconds| all.of(&key, at(seconds)).map(|blocked| (blocked.silent, blocked.elapsed.as_secs()));
    let spoken = [Signal::Blocked { reason: "NotListed".into(), silent: false, quiet: false, delivered_before: false }];
    all.note(&key, &blocked("NotListed"), at(0));
    assert_eq!(of(600), Some((true, 600)));
    all.note(&key, &spoken, at(600));
    assert_eq!(of(604), Some((false, 4)));
    all.note(&key, &spoken, at(610));
    assert!(all.take(&key, 1, BASE, at(610)).is_ok());
    all.note(&key, &blocked("NotListed"), at(610));
    all.note(&key, &spoken, at(611));
    assert_eq!(of(620), Some((false, 20)), "its own repair ends nothing");
}

/// Found by reading: an outage was booked as the end of what had blocked before, and as the time that Karmada takes.
#[test]
fn an_outage_of_the_hub_lies_over_what_blocks_and_counts_for_none_of_it() {
    let (all, key, start) = (unlimited(), key("wd"), some_moment());
    let at = |seconds| start + Duration::from_secs(seconds);
    let of = |seconds| all.of(&key, at(seconds)).map(|blocked| (blocked.reason, blocked.elapsed.as_secs()));
    all.note(&key, &blocked("BindingMissing"), at(0));
    assert!(all.take(&key, 1, BASE, at(10)).is_ok());
    let noted = all.note(&key, &blocked("HubUnavailable"), at(12));
    assert_eq!(noted, Noted::default(), "nothing has ended, and nobody else's turn has come");
    assert_eq!(of(100), Some(("HubUnavailable".into(), 88)));
    all.note(&key, &blocked("BindingMissing"), at(112));
    assert_eq!(of(112), Some(("BindingMissing".into(), 12)), "as if there had been none");
    assert_eq!(all.of(&key, at(112)).unwrap().repairs, 1);

    let other = super::tests::key("other");
    all.note(&other, &blocked("BindingMissing"), at(200));
    all.note(&other, &blocked("HubUnavailable"), at(201));
    all.note(&other, &[], at(4_000));
    let lag = all.repairs(&key, 1, BASE, at(4_000)).lag;
    assert!(lag < Duration::from_secs(2), "{lag:?} is not Karmada's");
}

#[test]
fn what_is_repaired_in_vain_is_repaired_ever_more_rarely() {
    let (all, key, start) = (unlimited(), key("wd"), some_moment());
    all.note(&key, &blocked("BindingMissing"), start);
    let mut now = start;
    let wait = |now| all.repairs(&key, 1, BASE, now).again_in;
    for seconds in [5, 5, 5, 10, 20, 40, 80, 160, 320, 320] {
        assert_eq!(wait(now), Duration::ZERO);
        assert!(all.take(&key, 1, BASE, now).is_ok());
        assert_eq!(wait(now), Duration::from_secs(seconds));
        assert!(all.take(&key, 1, BASE, now).is_err(), "not before its time");
        now += Duration::from_secs(seconds);
    }
    assert_eq!(all.of(&key, now).unwrap().repairs, 10);
    all.note(&key, &blocked("NotApplied"), now);
    assert!(all.take(&key, 1, BASE, now).is_ok());
    all.note(&key, &blocked("BindingMissing"), now);
    assert!(wait(now) <= BASE * 2, "it comes back each time, and somebody takes it away each time");
    all.note(&key, &[], now);
    all.note(&key, &blocked("BindingMissing"), now);
    assert_eq!(wait(now), Duration::ZERO, "what was delivered in between is repaired at once");
}

#[test]
fn all_repairs_share_one_budget() {
    let (all, start) = (All::new(Limits { per_minute: 60, burst: 2 }), some_moment());
    let keys: Vec<String> = (0..5).map(|n| key(&n.to_string())).collect();
    for key in &keys {
        all.note(key, &blocked("BindingMissing"), start);
    }
    let taken = |now| keys.iter().filter(|key| all.take(key, 1_000, BASE, now).is_ok()).count();
    assert_eq!((taken(start), taken(start)), (2, 0));
    let refused = all.take(&keys[4], 1_000, BASE, start).unwrap_err();
    assert_eq!(refused.affordable_in, Duration::from_secs(1));
    assert_eq!(taken(start + Duration::from_secs(1)), 1);
}

#[test]
fn where_many_lack_the_same_one_is_tried_and_the_next_when_it_has_helped() {
    let (all, start) = (unlimited(), some_moment());
    let keys: Vec<String> = (0..50).map(|n| key(&format!("{n:02}"))).collect();
    for key in &keys {
        all.note(key, &blocked("BindingMissing"), start);
    }
    let known = all.repairs(&keys[0], 100, BASE, start);
    assert!(known.are_many() && known.others == 49);
    let tried = |now| keys.iter().filter(|key| all.take(key, 100, BASE, now).is_ok()).count();
    assert_eq!(tried(start), 1);
    assert_eq!(all.repairs(&keys[7], 100, BASE, start).trial, BASE);
    // It has helped: another one's turn has come.
    let noted = all.note(&keys[0], &[], start);
    assert_eq!(noted.counts, [("BindingMissing".to_owned(), 49)]);
    assert!(noted.next.is_some_and(|next| next != keys[0]));
    assert_eq!(tried(start), 1);
    // It has not: another one is tried after a while, and each time after a longer one.
    let mut now = start;
    for seconds in [5, 5, 5, 5, 10, 20] {
        assert_eq!(tried(now + Duration::from_millis(seconds * 999)), 0);
        now += Duration::from_secs(seconds);
        assert_eq!(tried(now), 1, "after {seconds} s");
    }
}

#[test]
fn what_karmada_takes_is_seen_from_what_it_was_silent_about() {
    let (all, start) = (unlimited(), some_moment());
    let at = |seconds| start + Duration::from_secs(seconds);
    let lag = |seconds| all.repairs(&key("other"), 1, BASE, at(seconds)).lag.as_secs();
    assert_eq!(lag(0), 0);
    all.note(&key("slow"), &blocked("BindingMissing"), at(0));
    all.note(&key("slow"), &blocked("NotApplied"), at(60));
    assert_eq!((lag(60), lag(100), lag(301)), (60, 50, 0), "it wears off");
    all.note(&key("quick"), &blocked("BindingMissing"), at(64));
    all.note(&key("quick"), &[], at(65));
    assert_eq!(lag(100), 50, "one that was quicker proves nothing");
    let signals = vec![Signal::Blocked {
        reason: "NoClusterForCity".into(),
        silent: false,
        quiet: false,
        delivered_before: false,
    }];
    all.note(&key("unplaced"), &signals, at(0));
    all.note(&key("unplaced"), &[], at(1_000));
    assert_eq!(lag(1_000), 0, "what Karmada has spoken of is not its slowness");
    assert_eq!(all.repairs(&key("other"), 1, BASE, at(5)).karmada_wrote, None);
    all.0.borrow_mut().karmada_wrote(at(5));
    assert_eq!(all.repairs(&key("other"), 1, BASE, at(7)).karmada_wrote, Some(Duration::from_secs(2)));
}

#[test]
fn what_was_reported_is_remembered_until_all_is_well() {
    let (all, key, start) = (unlimited(), key("wd"), some_moment());
    let blocked = |reason: &str| Signal::Blocked {
        reason: reason.into(),
        silent: true,
        quiet: reason == "NotApplied",
        delivered_before: true,
    };
    all.note(&key, &[blocked("BindingMissing"), Signal::Reported(Reason::BindingMissing)], start);
    all.note(&key, &[blocked("NotApplied")], start);
    let known = all.of(&key, start).unwrap();
    assert_eq!((known.quiet, known.events), (true, vec!["BindingMissing".to_owned()]));
    let forget = |project: &str| all.0.borrow_mut().forget_where(|key| key.starts_with(project), start);
    assert_eq!(forget("another"), []);
    assert_eq!(forget("project"), [("NotApplied".to_owned(), 0)]);
    assert_eq!(all.of(&key, start), None);
}

/// Of what Karmada speaks, it is no sign that it has all hands full.
#[test]
fn what_karmada_says_nothing_of_is_counted_at_each_step() {
    let (all, start) = (unlimited(), some_moment());
    let signal = |reason: &str, silent: bool| Signal::Blocked {
        reason: reason.into(),
        silent,
        quiet: false,
        delivered_before: false,
    };
    let unsaid = |of: &str| all.repairs(&key(of), 9, Duration::from_secs(1), start).unsaid;
    let note = |of: &str, signals: &[Signal]| drop(all.note(&key(of), signals, start));
    assert_eq!(unsaid("a"), 0);
    note("a", &[signal("BindingMissing", true)]);
    assert_eq!((unsaid("a"), unsaid("b")), (0, 1), "itself is none of the others");
    note("b", &[signal("NotApplied", true)]);
    note("c", &[signal("NotApplied", false)]);
    assert_eq!((unsaid("a"), unsaid("c")), (1, 2), "whatever it waits for, but not of what Karmada speaks");
    note("a", &[signal("NotApplied", true)]);
    note("a", &[signal("NotApplied", true)]);
    assert_eq!(unsaid("c"), 2, "each once");
    note("c", &[signal("HubUnavailable", false)]);
    note("b", &[signal("HubUnavailable", false)]);
    assert_eq!(unsaid("c"), 2, "while the hub is away, what was known before counts");
    note("b", &[signal("NotApplied", false)]);
    assert_eq!(unsaid("c"), 1, "Karmada has spoken");
    note("a", &[]);
    note("b", &[]);
    assert_eq!((unsaid("a"), unsaid("c")), (0, 0));
}
