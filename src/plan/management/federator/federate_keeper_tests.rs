//! Whose a hub namespace is, and who keeps it.

use super::*;
use crate::plan::Keeper;

type Case<'a> = (&'a str, Option<NamespaceFacts>, &'a dyn Fn(&[Step<Project, Hub>]) -> bool);

/// Found by reading: a tenant who knew the uid of another's namespace, and whose own was gone before its deployment, had the
/// other's copy deleted.
#[test]
fn whose_a_hub_namespace_is_it_says_itself_and_not_whoever_points_at_it() {
    let of = |key: &str, value: &str| {
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
        ("another project's", Some(of(label::UPSTREAM_CLUSTER, "cluster-other")), &release),
        ("another namespace's", Some(of(label::UPSTREAM_NAMESPACE, "other")), &release),
        ("nobody knows whose", None, &live),
    ];
    for (what, hub, expected) in cases {
        let all = steps(&deleting(), None, hub, Some(copy_of(&marked())));
        assert!(expected(&all), "{what}: {all:?}");
    }
}

#[test]
fn a_project_that_others_spell_in_another_way_is_left_as_it_is() {
    let mut facts = namespace();
    facts.labels.insert(label::UPSTREAM_CLUSTER.into(), "cluster-_single".into());
    assert!(steps(&marked(), Some("n1"), Some(facts.clone()), Some(copy_of(&marked()))).is_empty());
    // Where something else is missing, the spelling stays too.
    facts.labels.remove(label::DELETION_PROTECTED);
    let all = steps(&marked(), Some("n1"), Some(facts), Some(copy_of(&marked())));
    let [Step::Remote(Write { op: Op::Apply { body, .. }, .. })] = &all[..] else { panic!("{all:?}") };
    assert_eq!(body["metadata"]["labels"][label::UPSTREAM_CLUSTER], "cluster-_single");
}

#[test]
fn a_hub_namespace_says_who_keeps_it_and_another_keeper_is_left_alone() {
    let keeper = |management: Option<&str>, control_plane: Option<&str>| Keeper {
        management: management.map(str::to_owned),
        control_plane: control_plane.map(str::to_owned),
    };
    let ours = || keeper(Some("m"), Some("p"));
    for (what, we, live, expected) in [
        ("made by the Go operator", ours(), Keeper::default(), Some(ours())),
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
