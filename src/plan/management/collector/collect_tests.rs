use super::*;
use crate::{
    api::{compute::WorkloadDeployment, karmada::ResourceBinding, names::ProjectName},
    plan::{
        Kind, Object, ObjectVersion, Op,
        management::collector::table::{Noted, Read, Sweep},
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

/// Snapshot of objects without their owner. `since` is the time that their note records.
fn observed(rule: Rule, owner: Read, items: Vec<Item>, since: Option<Timestamp>) -> Observed {
    let on = if rule == Rule::Copy { items[0].clone() } else { hub_namespace(false) };
    Observed {
        rule,
        namespace: "ns-1".into(),
        namespace_uid: "h".into(),
        project: Some(ProjectName::new("beta")),
        owner,
        items,
        grace: rule.grace(&Sweep::default(), &Timing::default()),
        noted: Some(Noted { on, since }),
        created: None,
        seen_before: false,
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
fn young_copy_without_original_is_deleted_at_once_even_if_paused() {
    let made = |age: Duration| Observed { created: Some(before(age)), paused: true, ..copy(None) };
    assert_eq!(decided(&made(Duration::from_secs(599))), [NO_ORIGINAL, COPY_DELETED]);
    assert_eq!(decided(&made(Duration::from_mins(10))).len(), 3, "it waits");
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
        observed(Rule::Content, no_namespace(), vec![item(Kind::Instance, "i")], None),
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
    let items = vec![item(Kind::Instance, "i"), lost];
    let gone = [
        "project: no Namespace shop of uid 1",
        "delete Instance ns-1/i i 3",
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
    let content = observed(Rule::Content, no_namespace(), vec![held(), item(Kind::Instance, "other")], None);
    let all = decided(&content);
    assert_eq!(all[1..], [lifted("Instance ns-1/held", "3"), "delete Instance ns-1/other other 3".to_owned()]);
}

#[test]
fn hub_namespace_of_deleted_project_is_reported_with_its_deletion_time() {
    for (grace, then) in [
        (Some(Duration::from_mins(1)), "What this hub namespace holds of it is deleted in 60 s."),
        (None, "What this hub namespace holds of it is kept."),
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
