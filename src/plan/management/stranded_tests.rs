use super::*;
use crate::{
    api::meta,
    plan::{Op, recorded::recorded},
};

const NOW: Timestamp = Timestamp::UNIX_EPOCH;
const GRACE: Duration = Duration::from_mins(1);
const PAST_GRACE: Seen = Seen { since: GRACE, reported: true };

fn facts() -> NamespaceFacts {
    let labels = [
        (label::UPSTREAM_CLUSTER, "cluster-_beta"),
        (label::UPSTREAM_NAMESPACE, "shop"),
        (label::DELETION_PROTECTED, meta::PROTECTED),
    ];
    NamespaceFacts {
        uid: "u".into(),
        labels: labels.map(|(key, value)| (key.to_owned(), value.to_owned())).into(),
        ..NamespaceFacts::default()
    }
}

/// Stranded for as long as its grace, and reported.
fn due() -> Observed {
    Observed {
        namespace: "ns-1".into(),
        facts: facts(),
        project: Existence::Absent(Kind::Project),
        seen: Some(PAST_GRACE),
        grace: Some(GRACE),
        paused: false,
        present: None,
    }
}

/// One that is due, as a live read has found it.
fn found(present: &Present) -> Observed {
    Observed { present: Some(present.clone()), ..due() }
}

/// The namespace as it was judged, without its protection.
fn unprotected() -> Present {
    let mut facts = facts();
    facts.labels.remove(label::DELETION_PROTECTED);
    Present { facts, version: ObjectVersion::new("u", "8") }
}

#[test]
fn what_the_caches_say_decides_whether_anybody_looks() {
    type Case = (&'static str, fn(&mut Observed), &'static [Signal]);
    const REPORT: &[Signal] = &[Signal::Stranded, Signal::Reported];
    const KEEP: &[Signal] = &[Signal::Stranded];
    let cases: [Case; 12] = [
        ("past its grace", |_| {}, &[Signal::Read, Signal::Stranded]),
        ("its project exists", |o| o.project = Existence::Exists, &[]),
        ("nobody knows whether its project exists", |o| o.project = Existence::Unknown, &[]),
        ("it mirrors nothing", |o| o.facts.labels.clear(), &[]),
        ("it is on its way out", |o| o.facts.terminating = true, &[]),
        ("never seen before", |o| o.seen = None, REPORT),
        ("never seen before, and no grace at all", |o| (o.seen, o.grace) = (None, Some(Duration::ZERO)), REPORT),
        ("seen, and the report was lost", |o| o.seen = Some(Seen { reported: false, ..PAST_GRACE }), REPORT),
        (
            "a moment before its grace ends",
            |o| o.seen = Some(Seen { since: GRACE.saturating_sub(Duration::from_millis(1)), reported: true }),
            KEEP,
        ),
        ("kept for ever", |o| o.grace = None, KEEP),
        ("paused there", |o| o.facts.paused = true, KEEP),
        ("paused everywhere", |o| o.paused = true, KEEP),
    ];
    for (what, change, expected) in cases {
        // What a live read says counts for nothing where the caches do not call for one.
        for present in
            [None, Some(unprotected())].into_iter().take(if expected.contains(&Signal::Read) { 1 } else { 2 })
        {
            let mut observed = Observed { present, ..due() };
            change(&mut observed);
            let decided = plan(&observed, NOW);
            assert_eq!(decided.signals, expected, "{what}");
            assert_eq!(decided.steps.len(), usize::from(expected == REPORT), "{what}");
            let again = format!("{:?}", plan(&recorded(&observed), NOW));
            assert_eq!(again, format!("{decided:?}"), "{what}: decided again from its record");
        }
    }
}

#[test]
fn the_report_says_when_it_goes() {
    for (grace, text) in [
        (
            Some(GRACE),
            "project beta, whose objects this namespace holds, does not exist: it is removed in 60 s, with all that it holds",
        ),
        (None, "project beta, whose objects this namespace holds, does not exist: it is left as it is"),
    ] {
        let steps = plan(&Observed { seen: None, grace, ..due() }, NOW).steps;
        let [Step::Local(event)] = &steps[..] else { panic!("no report: {steps:?}") };
        let Op::Create { body, .. } = &event.op else { panic!("{event:?}") };
        assert_eq!(body["note"], text);
        assert_eq!((&body["reason"], &body["regarding"]["uid"]), (&json!("Stranded"), &json!("u")));
        assert_eq!(body["regarding"]["name"], "ns-1");
    }
}

#[test]
fn first_the_protection_goes_and_then_the_version_that_was_judged() {
    let protected = found(&Present { facts: facts(), version: ObjectVersion::new("u", "7") });
    let decided = plan(&protected, NOW);
    assert_eq!(decided.signals, [Signal::Read, Signal::Stranded], "it is judged anew without its protection");
    let [Step::Remote(absent), Step::Local(lift)] = &decided.steps[..] else { panic!("{decided:?}") };
    assert_eq!((&absent.op, absent.object.to_string()), (&Op::ConfirmAbsent, "Project beta".to_owned()));
    let Op::Merge { body, .. } = &lift.op else { panic!("{lift:?}") };
    let expected = json!({ "uid": "u", "resourceVersion": "7", "labels": { label::DELETION_PROTECTED: null } });
    assert_eq!((&body["metadata"], lift.object.to_string()), (&expected, "Namespace ns-1".to_owned()));

    let internal = Observed { project: Existence::Absent(Kind::ProjectControlPlane), ..found(&unprotected()) };
    let decided = plan(&internal, NOW);
    assert_eq!(decided.signals, [Signal::Removed, Signal::Stranded]);
    let [Step::Remote(absent), Step::Local(delete)] = &decided.steps[..] else { panic!("{decided:?}") };
    assert_eq!((&absent.op, absent.object.to_string()), (&Op::ConfirmAbsent, "ProjectControlPlane beta".to_owned()));
    assert_eq!(delete.op, Op::Delete { uid: "u".into(), resource_version: "8".into() });
    assert_eq!(delete.object.to_string(), "Namespace ns-1");
    for observed in [protected, internal] {
        let (decided, again) = (plan(&observed, NOW), plan(&recorded(&observed), NOW));
        assert_eq!(format!("{again:?}"), format!("{decided:?}"), "decided again from its record");
    }
}

#[test]
fn what_the_namespace_says_at_present_counts_and_not_what_the_watch_has_brought() {
    type Case = (&'static str, fn(&mut NamespaceFacts), &'static str);
    let cases: [Case; 5] = [
        ("a pause was set a moment ago", |f| f.paused = true, "clean-up is paused there"),
        ("somebody else deletes it", |f| f.terminating = true, "it is on its way out"),
        ("a namesake stands in its place", |f| f.uid = "other".into(), "it is another one by now"),
        (
            "it was given to another project",
            |f| drop(f.labels.insert(label::UPSTREAM_CLUSTER.into(), "cluster-_alpha".into())),
            "it mirrors another project by now",
        ),
        ("it mirrors nothing any more", |f| f.labels.clear(), "it is another one by now"),
    ];
    for (what, change, why) in cases {
        for mut present in [Present { facts: facts(), version: ObjectVersion::new("u", "7") }, unprotected()] {
            change(&mut present.facts);
            let decided = plan(&found(&present), NOW);
            assert_eq!(decided.signals, [Signal::Stays(why), Signal::Stranded], "{what}");
            assert!(decided.steps.is_empty(), "{what}: {decided:?}");
        }
    }
}
