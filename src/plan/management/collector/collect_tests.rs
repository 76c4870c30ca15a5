use super::*;
use crate::{
    api::{compute::WorkloadDeployment, karmada::ResourceBinding, names::ProjectName, referenced::SourceKind},
    plan::{
        Keeper, Kind, NamespaceFacts, Object, ObjectVersion, Op,
        management::collector::table::{Noted, Read, Sweep, is_replaced},
        recorded::recorded,
    },
    timing::Timing,
};
use k8s_openapi::api::core::v1::Namespace;

const HOUR: Duration = Duration::from_hours(1);

fn now() -> Timestamp {
    "2026-01-02T00:00:00Z".parse().unwrap()
}

fn before(period: Duration) -> Timestamp {
    now() - SignedDuration::try_from(period).unwrap()
}

fn item(kind: Kind, name: &str) -> Item {
    Item::new(Object { kind, namespace: "ns-1".into(), name: name.into() }, ObjectVersion::new(name, "3"))
}

fn hub_namespace(protected: bool) -> Item {
    let object = Object::named::<Namespace>("", "ns-1");
    Item { protected, ..Item::new(object, ObjectVersion::new("h", "7")) }
}

fn hub_namespace_facts() -> NamespaceFacts {
    let labels = [(label::UPSTREAM_CLUSTER, "cluster-beta"), (label::UPSTREAM_NAMESPACE, "shop")];
    NamespaceFacts {
        uid: "h".into(),
        labels: labels.map(|(key, value)| (key.to_owned(), value.to_owned())).into(),
        keeper: Keeper { management: Some("us".into()), control_plane: Some("plane".into()) },
        ..NamespaceFacts::default()
    }
}

/// Snapshot of objects without their owner, with the live read of their hub namespace. `since` is the time that their note records.
fn observed(rule: Rule, owner: Read, items: Vec<Item>, since: Option<Timestamp>) -> Observed {
    let on = if rule == Rule::Copy { items[0].clone() } else { hub_namespace(false) };
    Observed {
        rule,
        namespace: "ns-1".into(),
        hub_namespace: hub_namespace_facts(),
        present: Some(hub_namespace_facts()),
        project: Some(ProjectName::new("beta")),
        owner,
        items,
        grace: rule.grace(&Sweep::default(), &Timing::default()),
        noted: Some(Noted { on, since }),
        created: None,
        seen_before: false,
        in_sweep: true,
        paused: false,
    }
}

/// Snapshot of a copy that was created a day ago.
fn copy(since: Option<Timestamp>) -> Observed {
    let original = Read::NotInProject(Object::named::<WorkloadDeployment>("shop", "web"));
    let copy = observed(Rule::Copy, original, vec![item(Kind::WorkloadDeployment, "web")], since);
    Observed { created: Some(before(HOUR * 24)), ..copy }
}

fn no_namespace() -> Read {
    Read::NoNamespace { name: "shop".into(), uid: "1".into() }
}

fn no_project() -> Read {
    Read::NoProject(Object { kind: Kind::Project, namespace: String::new(), name: "beta".into() })
}

/// Returns the steps of a plan in short form.
fn decided(observed: &Observed) -> Vec<String> {
    let (decided, again) = (plan(observed, now()), plan(&recorded(observed), now()));
    assert_eq!(format!("{decided:?}"), format!("{again:?}"), "decided again from its record");
    let step = |(place, object, op): (&str, &Object, &Op)| match op {
        Op::ConfirmAbsent => format!("{place}: no {object}"),
        Op::ConfirmGone { uid } => format!("{place}: no {object} of uid {uid}"),
        Op::Merge { body, .. } => {
            let (labels, version) = (&body["metadata"]["labels"], &body["metadata"]["resourceVersion"]);
            match body["metadata"]["annotations"][annotation::STRANDED_SINCE].as_str() {
                Some(since) => format!("{object} {version} since {since}"),
                None => format!("{object} {version} {labels}"),
            }
        }
        Op::Delete { uid, resource_version } => format!("delete {object} {uid} {resource_version}"),
        Op::Create { body, .. } => format!("{} on {}: {}", body["reason"], body["regarding"]["name"], body["note"]),
        other => format!("{other:?}"),
    };
    let all = decided.steps.iter().map(|action| match action {
        Action::Hub(write) => ("hub", &write.object, &write.op),
        Action::Discovery(write) => ("discovery", &write.object, &write.op),
        Action::Project(write) => ("project", &write.object, &write.op),
    });
    let all: Vec<String> = all.map(step).collect();
    assert_eq!(
        decided.signals.contains(&Signal::Counts),
        all.iter().any(|step| step.starts_with("delete") || step.contains("deletion-protected")),
        "what is deleted counts: {all:?}"
    );
    all
}

const NO_ORIGINAL: &str = "project: no WorkloadDeployment shop/web";
const COPY_DELETED: &str = "delete WorkloadDeployment ns-1/web web 3";

#[test]
fn copy_without_original_is_reported_and_deleted_after_an_hour() {
    let first = decided(&copy(None));
    let [read, noted, reported] = &first[..] else { panic!("{first:?}") };
    assert_eq!(read, NO_ORIGINAL);
    assert_eq!(noted, r#"WorkloadDeployment ns-1/web "3" since 2026-01-02T00:00:00Z"#);
    assert!(reported.starts_with(r#""DeletionsPaused" on "ns-1": "#) && reported.contains("for 3600 s"), "{reported}");
    for (what, since, expected) in [
        ("its grace is over", before(HOUR), vec![NO_ORIGINAL, COPY_DELETED]),
        ("a moment before that", before(Duration::from_millis(3_599_999)), vec![]),
        ("a clock that went back", before(Duration::ZERO) + SignedDuration::from_hours(1), vec![]),
    ] {
        assert_eq!(decided(&copy(Some(since))), expected, "{what}");
    }
    let gone = Observed { owner: no_namespace(), ..copy(Some(before(HOUR))) };
    assert_eq!(decided(&gone), ["project: no Namespace shop of uid 1", COPY_DELETED]);
}

/// A write under way while the finalizer was removed recreated the copy, and no controller deleted it.
#[test]
fn young_copy_without_original_is_deleted_at_once_unless_paused() {
    let with_grace = |grace: Duration, age: Duration| Observed {
        created: Some(before(age)),
        grace: Grace::Noted(Some(grace)),
        in_sweep: false,
        ..copy(None)
    };
    for (grace, young) in [(HOUR, 120), (HOUR * 24, 120), (Duration::from_mins(1), 10)] {
        let found = with_grace(grace, Duration::from_secs(young - 1));
        assert_eq!(decided(&found), [NO_ORIGINAL, COPY_DELETED], "{grace:?}");
        assert_eq!(decided(&with_grace(grace, Duration::from_secs(young))).len(), 3, "{grace:?}: it waits");
        let paused = Observed { paused: true, ..found };
        assert_eq!(decided(&paused), [""; 0], "{grace:?}");
        assert_eq!(plan(&paused, now()).signals, [Signal::Paused], "{grace:?}");
    }
}

/// Without the limit of a sweep, a restored project would lose all copies at the end of their grace.
#[test]
fn copy_after_its_grace_is_deleted_only_by_a_sweep() {
    assert_eq!(decided(&Observed { in_sweep: false, ..copy(Some(before(HOUR * 2))) }), [""; 0]);
}

#[test]
fn copy_of_a_recreated_namespace_is_deleted_without_a_grace_and_counts() {
    let found = Observed { owner: no_namespace(), grace: Grace::Nothing, ..copy(None) };
    assert_eq!(decided(&found), ["project: no Namespace shop of uid 1", COPY_DELETED]);
    assert_eq!(decided(&Observed { paused: true, ..found }), [""; 0]);
}

#[test]
fn namespace_is_replaced_if_its_namesake_is_newer_than_the_hub_namespace() {
    let created = |at: &str| NamespaceFacts { created: Some(at.parse().unwrap()), ..NamespaceFacts::default() };
    let hub = created("2026-01-01T00:00:00Z");
    for (what, namesake, expected) in [
        ("none is there", None, false),
        ("it is recreated", Some(created("2026-01-01T00:05:01Z")), true),
        ("clocks may differ as much", Some(created("2026-01-01T00:05:00Z")), false),
        ("an older one is restored", Some(created("2025-12-01T00:00:00Z")), false),
        ("its age is not known", Some(NamespaceFacts::default()), false),
    ] {
        assert_eq!(is_replaced(&hub, namesake.as_ref()), expected, "{what}");
    }
    assert!(!is_replaced(&NamespaceFacts::default(), Some(&created("2026-01-02T00:00:00Z"))));
}

/// The cache may be older than a pause, or than another owner of the hub namespace.
#[test]
fn deletion_in_a_hub_namespace_needs_a_live_read_that_finds_it_as_judged() {
    let due = [
        copy(Some(before(HOUR))),
        observed(Rule::Content, no_namespace(), vec![item(SourceKind::Secret.into(), "db")], None),
        observed(
            Rule::ControlPlane,
            no_namespace(),
            vec![item(SourceKind::Secret.into(), "db")],
            Some(before(HOUR * 24)),
        ),
        observed(Rule::Namespace, no_project(), vec![hub_namespace(true)], Some(before(HOUR * 24))),
    ];
    let judged = hub_namespace_facts;
    let other = |key: &str| [(key.to_owned(), "other".to_owned())].into();
    let changed = [
        ("it is gone", NamespaceFacts::default()),
        ("another uid", NamespaceFacts { uid: "h2".into(), ..judged() }),
        ("another project", NamespaceFacts { labels: other(label::UPSTREAM_CLUSTER), ..judged() }),
        ("another keeper", NamespaceFacts { keeper: Keeper::default(), ..judged() }),
        ("paused", NamespaceFacts { paused: true, ..judged() }),
        ("its grace began again", NamespaceFacts { stranded_since: Some(now()), ..judged() }),
        ("terminating", NamespaceFacts { terminating: true, ..judged() }),
    ];
    for due in due {
        assert!(!decided(&due).is_empty(), "{:?}", due.rule);
        let unread = plan(&Observed { present: None, ..due.clone() }, now());
        assert_eq!(unread.signals, [Signal::Counts, Signal::Unread], "{:?}", due.rule);
        assert!(unread.steps.is_empty(), "{:?}", due.rule);
        for (what, present) in &changed {
            let plan = plan(&Observed { present: Some(present.clone()), ..due.clone() }, now());
            assert_eq!(plan.signals, [Signal::Changed], "{:?}: {what}", due.rule);
            assert!(plan.steps.is_empty(), "{:?}: {what}", due.rule);
        }
    }
    let template = Read::NotOnHub(Object::named::<WorkloadDeployment>("ns-1", "web"));
    let binding = observed(Rule::CompanionBinding, template, vec![item(Kind::ResourceBinding, "b")], None);
    assert_eq!(decided(&Observed { present: None, ..binding }).len(), 2, "a binding needs only its own proof");
}

#[test]
fn paused_sweep_deletes_nothing_that_is_due() {
    let binding = |rule| {
        let template = Read::NotOnHub(Object { kind: Kind::Project, namespace: "ns-1".into(), name: "db".into() });
        observed(rule, template, vec![item(Kind::ResourceBinding, "db-secret")], None)
    };
    for due in [
        copy(Some(before(HOUR))),
        binding(Rule::CompanionBinding),
        Observed { seen_before: true, ..binding(Rule::CopyBinding) },
        Observed { seen_before: true, ..binding(Rule::Work) },
        observed(Rule::Content, no_namespace(), vec![item(SourceKind::Secret.into(), "db")], None),
        observed(Rule::Namespace, no_project(), vec![hub_namespace(false)], Some(before(HOUR * 24))),
    ] {
        assert!(!decided(&due).is_empty(), "{:?} is due", due.rule);
        let paused = Observed { paused: true, ..due };
        assert_eq!(decided(&paused), [""; 0], "{:?}", paused.rule);
        assert_eq!(plan(&paused, now()).signals, [Signal::Paused], "{:?}", paused.rule);
    }
}

#[test]
fn companion_binding_is_deleted_at_once_and_copy_binding_by_second_sweep() {
    let lost = |rule, seen_before| {
        let template =
            Read::NotOnHub(Object { kind: Kind::WorkloadDeployment, namespace: "ns-1".into(), name: "web".into() });
        Observed { seen_before, ..observed(rule, template, vec![item(Kind::ResourceBinding, "b")], None) }
    };
    let deleted = ["hub: no WorkloadDeployment ns-1/web", "delete ResourceBinding ns-1/b b 3"];
    assert_eq!(decided(&lost(Rule::CompanionBinding, false)), deleted);
    for rule in [Rule::CopyBinding, Rule::Work] {
        assert_eq!(decided(&lost(rule, false)), [""; 0], "{rule:?}");
        assert_eq!(decided(&lost(rule, true)), deleted, "{rule:?}");
    }
}

#[test]
fn content_of_deleted_namespace_is_deleted_after_live_reads() {
    let lost = Item {
        read: Some(Read::NotOnHub(Object::named::<WorkloadDeployment>("ns-1", "web"))),
        ..Item::new(Object::named::<ResourceBinding>("ns-1", "web-workloaddeployment"), ObjectVersion::new("b", "4"))
    };
    let items = vec![item(SourceKind::Secret.into(), "db"), lost];
    let gone = [
        "project: no Namespace shop of uid 1",
        "delete Secret ns-1/db db 3",
        "hub: no WorkloadDeployment ns-1/web",
        "delete ResourceBinding ns-1/web-workloaddeployment b 4",
    ];
    assert_eq!(decided(&observed(Rule::Content, no_namespace(), items.clone(), None)), gone);
    // In another control plane the grace comes first.
    let other = |since| observed(Rule::ControlPlane, no_namespace(), items.clone(), since);
    let first = decided(&other(None));
    assert_eq!(first[1], r#"Namespace ns-1 "7" since 2026-01-02T00:00:00Z"#);
    assert!(first[2].contains("in project beta, which has another control plane"), "{first:?}");
    assert_eq!(decided(&other(Some(before(HOUR * 23)))), [""; 0]);
    assert_eq!(decided(&other(Some(before(HOUR * 24)))), gone);
}

/// A cell's stolen credential created Instances that Karmada refuses to delete. They and their namespace were never deleted.
#[test]
fn protected_object_loses_protection_before_its_namespace_is_deleted() {
    let lifted = |object: &str, version: &str| {
        format!(r#"{object} "{version}" {{"resourcetemplate.karmada.io/deletion-protected":null}}"#)
    };
    let held = || Item { protected: true, ..item(Kind::Instance, "held") };
    let due = |items| observed(Rule::Namespace, no_project(), items, Some(before(HOUR * 24)));
    let all = decided(&due(vec![held(), hub_namespace(true)]));
    assert_eq!(
        all,
        ["discovery: no Project beta".to_owned(), lifted("Instance ns-1/held", "3"), lifted("Namespace ns-1", "7")]
    );
    assert_eq!(
        decided(&due(vec![held(), hub_namespace(false)])),
        ["discovery: no Project beta".to_owned(), lifted("Instance ns-1/held", "3")],
        "the namespace is deleted last"
    );
    assert_eq!(decided(&due(vec![hub_namespace(false)])), ["discovery: no Project beta", "delete Namespace ns-1 h 7"]);
    let content = observed(Rule::Content, no_namespace(), vec![held(), item(SourceKind::Secret.into(), "db")], None);
    let all = decided(&content);
    assert_eq!(all[1..], [lifted("Instance ns-1/held", "3"), "delete Secret ns-1/db db 3".to_owned()]);
}

/// The namespace took two sweeps: one for its protection, and one for itself.
#[test]
fn object_that_lost_its_protection_is_deleted_at_its_new_version() {
    let held = |name: &str| Item { protected: true, ..item(Kind::WorkloadDeployment, name) };
    let items = vec![held("web"), held("gone"), hub_namespace(true)];
    let mut due = observed(Rule::Namespace, no_project(), items, Some(before(HOUR * 24)));
    let lifted = |item: &Item, version| (item.object.clone(), version);
    let version = |uid: &str| Some(ObjectVersion::new(uid, "9"));
    due.unprotect(&[
        lifted(&held("web"), version("web")),
        lifted(&held("gone"), None),
        lifted(&hub_namespace(true), version("h")),
    ]);
    let deleted = ["delete WorkloadDeployment ns-1/web web 9", "delete Namespace ns-1 h 9"];
    assert_eq!(decided(&due)[1..], deleted);
}

/// The operator may not delete Instances on the hub. Each attempt was refused, and reported as `RemovalRefused`.
#[test]
fn instance_is_left_to_the_garbage_collection_of_the_hub() {
    let found = observed(Rule::Content, no_namespace(), vec![item(Kind::Instance, "i")], None);
    assert_eq!(decided(&found), [""; 0]);
}

#[test]
fn refusals_are_reported_in_their_own_words() {
    let note = |write: Write<Hub>| {
        let Op::Create { body, .. } = write.op else { panic!("an Event is created") };
        (write.object.name, format!("{}: {}", body["reason"], body["note"]))
    };
    let (refused, deletion) = note(report::refused(&copy(Some(before(HOUR))), "not today", now()));
    assert!(
        deletion.starts_with(
            r#""RemovalRefused": "WorkloadDeployment ns-1/web has lost its owner, and the hub refuses to"#
        )
    );
    assert!(deletion.ends_with("not today\""), "{deletion}");
    let (not_noted, grace) = note(report::note_refused(&copy(None), "not today", now()));
    assert!(
        grace.contains("refuses its annotation compute.datumapis.com/stranded-since. The object is kept"),
        "{grace}"
    );
    assert_ne!(refused, not_noted, "both can be reported");
}

#[test]
fn copy_that_a_finalizer_holds_is_reported_once_it_has_lasted() {
    let copy = |deleted: Option<&str>| -> WorkloadDeployment {
        let mut copy = WorkloadDeployment::new("web", crate::api::compute::WorkloadDeploymentSpec::default());
        copy.metadata.namespace = Some("ns-1".into());
        copy.metadata.finalizers = Some(vec!["example.com/hold".into()]);
        copy.metadata.deletion_timestamp = serde_json::from_value(json!(deleted)).unwrap();
        copy
    };
    let patience = Duration::from_mins(2);
    assert!(report::copy_held(&copy(None), patience, now()).is_none());
    assert!(report::copy_held(&copy(Some("2026-01-01T23:58:01Z")), patience, now()).is_none());
    let event = report::copy_held(&copy(Some("2026-01-01T23:58:00Z")), patience, now()).unwrap();
    let Op::Create { body, .. } = event.op else { panic!("an Event is created") };
    assert_eq!((&body["reason"], &body["regarding"]["name"]), (&json!("HubCopyHeld"), &json!("web")));
    assert!(body["note"].as_str().unwrap().contains("finalizers example.com/hold"));
}

#[test]
fn hub_namespace_of_deleted_project_is_reported_with_its_deletion_time() {
    for (grace, then) in [
        (Some(Duration::from_mins(1)), "Its objects in this hub namespace are deleted in 60 s."),
        (None, "Its objects in this hub namespace are kept."),
    ] {
        let found = observed(Rule::Namespace, no_project(), vec![hub_namespace(true)], None);
        let found = Observed { grace: Grace::Noted(grace), ..found };
        let first = decided(&found);
        assert_eq!(first[..2], ["discovery: no Project beta", r#"Namespace ns-1 "7" since 2026-01-02T00:00:00Z"#]);
        assert_eq!(first[2], format!(r#""Stranded" on "ns-1": "Project beta does not exist. {then}""#));
        let noted = Some(Noted { on: hub_namespace(true), since: Some(before(HOUR * 10_000)) });
        let kept = decided(&Observed { noted, ..found }).is_empty();
        assert_eq!(kept, grace.is_none(), "without a grace it is kept forever");
    }
}

#[test]
fn namespace_sweep_deletes_at_most_a_tenth_and_five() {
    for (known, expected) in [(0, 1), (1, 1), (19, 1), (20, 2), (49, 4), (50, 5), (10_000, 5)] {
        assert_eq!(Rule::Namespace.most(&Sweep::default(), known), expected, "{known}");
    }
}
