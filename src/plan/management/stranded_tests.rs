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
        project: Existence::Absent,
        seen: Some(PAST_GRACE),
        grace: Some(GRACE),
        paused: false,
    }
}

/// The namespace as it was judged, without its protection.
fn unprotected() -> Present {
    let mut facts = facts();
    facts.labels.remove(label::DELETION_PROTECTED);
    Present { facts, version: ObjectVersion::new("u", "8") }
}

#[test]
fn what_the_caches_say_decides_whether_anybody_looks() {
    type Case = (&'static str, fn(&mut Observed), &'static str);
    let cases: [Case; 12] = [
        ("past its grace", |_| {}, "Look"),
        ("its project exists", |o| o.project = Existence::Exists, "Belongs"),
        ("nobody knows whether its project exists", |o| o.project = Existence::Unknown, "Belongs"),
        ("it mirrors nothing", |o| o.facts.labels.clear(), "Belongs"),
        ("it is on its way out", |o| o.facts.terminating = true, "Belongs"),
        ("never seen before", |o| o.seen = None, "Report"),
        ("never seen before, and no grace at all", |o| (o.seen, o.grace) = (None, Some(Duration::ZERO)), "Report"),
        ("seen, and the report was lost", |o| o.seen = Some(Seen { reported: false, ..PAST_GRACE }), "Report"),
        (
            "a moment before its grace ends",
            |o| o.seen = Some(Seen { since: GRACE.saturating_sub(Duration::from_millis(1)), reported: true }),
            "Keep",
        ),
        ("kept for ever", |o| o.grace = None, "Keep"),
        ("paused there", |o| o.facts.paused = true, "Keep"),
        ("paused everywhere", |o| o.paused = true, "Keep"),
    ];
    for (what, change, expected) in cases {
        let mut observed = due();
        change(&mut observed);
        let decision = format!("{:?}", plan(&observed, NOW));
        assert!(decision.starts_with(expected), "{what}: {decision}");
        let again = format!("{:?}", plan(&recorded(&observed), NOW));
        assert_eq!(again, decision, "{what}: decided again from its record");
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
        let Decision::Report(event) = plan(&Observed { seen: None, grace, ..due() }, NOW) else { panic!("no report") };
        let Op::Create { body, .. } = &event.op else { panic!("{event:?}") };
        assert_eq!(body["note"], text);
        assert_eq!((&body["reason"], &body["regarding"]["uid"]), (&json!("Stranded"), &json!("u")));
        assert_eq!(body["regarding"]["name"], "ns-1");
    }
}

#[test]
fn first_the_protection_goes_and_then_the_version_that_was_judged() {
    let protected = Present { facts: facts(), version: ObjectVersion::new("u", "7") };
    let Removal::Lift(Plan { steps, .. }) = remove(&due(), &protected, Kind::Project) else {
        panic!("it is protected")
    };
    let [Step::Remote(absent), Step::Local(lift)] = &steps[..] else { panic!("{steps:?}") };
    assert_eq!((&absent.op, absent.object.to_string()), (&Op::ConfirmAbsent, "Project beta".to_owned()));
    let Op::Merge { body, .. } = &lift.op else { panic!("{lift:?}") };
    let expected = json!({ "uid": "u", "resourceVersion": "7", "labels": { label::DELETION_PROTECTED: null } });
    assert_eq!((&body["metadata"], lift.object.to_string()), (&expected, "Namespace ns-1".to_owned()));

    let Removal::Delete(Plan { steps, .. }) = remove(&due(), &unprotected(), Kind::ProjectControlPlane) else {
        panic!("it is due")
    };
    let [Step::Remote(absent), Step::Local(delete)] = &steps[..] else { panic!("{steps:?}") };
    assert_eq!((&absent.op, absent.object.to_string()), (&Op::ConfirmAbsent, "ProjectControlPlane beta".to_owned()));
    assert_eq!(delete.op, Op::Delete { uid: "u".into(), resource_version: "8".into() });
    assert_eq!(delete.object.to_string(), "Namespace ns-1");
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
            let removal = remove(&due(), &present, Kind::Project);
            assert!(matches!(removal, Removal::Stays(said) if said == why), "{what}: {removal:?}");
        }
    }
}
