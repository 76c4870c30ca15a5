//! Project and keeper of a hub namespace.

use super::*;
use crate::plan::Keeper;

type Case<'a> = (&'a str, Option<NamespaceFacts>, &'a dyn Fn(&[Step<Project, Hub>]) -> bool);

/// A tenant knew the uid of another tenant's namespace. If the own namespace was deleted before the deployment, the other's copy
/// was deleted.
#[test]
fn hub_namespace_of_another_owner_keeps_its_copy() {
    let labelled = |key: &str, value: &str| {
        let mut facts = namespace();
        facts.labels.insert(key.to_owned(), value.to_owned());
        facts
    };
    let release = |all: &[Step<Project, Hub>]| matches!(all, [Step::Local(Write { op: Op::Merge { .. }, .. })]);
    let live = |all: &[Step<Project, Hub>]| {
        matches!(
            all,
            [Step::Remote(Write { op: Op::ConfirmAbsent, .. }), Step::Local(Write { op: Op::Merge { .. }, .. })]
        )
    };
    let cases: [Case<'_>; 3] = [
        ("another project's", Some(labelled(label::UPSTREAM_CLUSTER, "cluster-other")), &release),
        ("another namespace's", Some(labelled(label::UPSTREAM_NAMESPACE, "other")), &release),
        ("of an unknown project", None, &live),
    ];
    for (what, hub, expected) in cases {
        let all = steps(&deleting(), None, hub, Some(copy_of(&marked())));
        assert!(expected(&all), "{what}: {all:?}");
    }
}

#[test]
fn hub_namespace_with_another_spelling_of_its_project_is_not_changed() {
    let mut facts = namespace();
    facts.labels.insert(label::UPSTREAM_CLUSTER.into(), "cluster-_single".into());
    assert!(steps(&marked(), Some("n1"), Some(facts.clone()), Some(copy_of(&marked()))).is_empty());
    // If another label is missing, the spelling is kept too.
    facts.labels.remove(label::DELETION_PROTECTED);
    let all = steps(&marked(), Some("n1"), Some(facts), Some(copy_of(&marked())));
    let [Step::Remote(Write { op: Op::Apply { body, .. }, .. })] = &all[..] else { panic!("{all:?}") };
    assert_eq!(body["metadata"]["labels"][label::UPSTREAM_CLUSTER], "cluster-_single");
}

#[test]
fn hub_namespace_records_its_keeper_and_another_keeper_is_not_changed() {
    let keeper = |management: Option<&str>, control_plane: Option<&str>| Keeper {
        management: management.map(str::to_owned),
        control_plane: control_plane.map(str::to_owned),
    };
    let ours = || keeper(Some("m"), Some("p"));
    for (what, we, live, expected) in [
        ("created by the Go operator", ours(), Keeper::default(), Some(ours())),
        ("ours", ours(), ours(), None),
        ("another's", ours(), keeper(Some("other"), Some("p")), None),
        ("who we are is not known yet", Keeper::default(), ours(), None),
        ("its project has another control plane by now", ours(), keeper(Some("m"), Some("old")), Some(ours())),
        ("nothing is known", Keeper::default(), Keeper::default(), None),
    ] {
        let facts = NamespaceFacts { keeper: live, ..namespace() };
        let observed =
            Observed { keeper: we, ..observed(&marked(), Some("n1"), Some(facts), Some(copy_of(&marked()))) };
        let all = plan(&observed, NOW).steps;
        let Some(expected) = expected else {
            assert!(all.is_empty(), "{what}: {all:?}");
            continue;
        };
        let [Step::Remote(Write { op: Op::Apply { body, .. }, .. })] = &all[..] else { panic!("{what}: {all:?}") };
        assert_eq!(body["metadata"]["annotations"], json!(expected.to_annotations()), "{what}");
    }
}
