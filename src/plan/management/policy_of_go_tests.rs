//! City policies that the Go operator has written and that nobody needs any more.

use super::*;

/// Seen once in many runs: the last deployment of a city left before its policy, as the Go operator had written it, was taken
/// over, and the policy stayed for ever with what it claimed.
#[test]
fn a_policy_of_go_that_nobody_needs_goes_and_one_that_has_but_its_name_stays() {
    let dfw = dfw();
    let go = of_go();
    let steps =
        |policy: &PropagationPolicy, claimed| plan(&Observed { claimed, ..observed(&dfw, Some(policy)) }, NOW).steps;
    let dropped = after(Some(&go), &steps(&go, 1)[0]);
    assert_eq!(Phase::of(&dropped.spec), Phase::Dependencies);
    for policy in [&go, &dropped] {
        assert!(matches!(steps(policy, 0)[..], [Write { op: Op::Delete { .. }, .. }]), "{policy:?}");
    }
    let edits: [fn(&mut PropagationPolicy); 5] = [
        |policy| policy.metadata.name = Some("city-ord".into()),
        |policy| policy.spec.resource_selectors[2].namespace = Some("ns-2".into()),
        |policy| policy.spec.resource_selectors[1].label_selector = None,
        |policy| policy.spec.resource_selectors.truncate(1),
        |policy| policy.spec.propagate_deps = true,
    ];
    for (n, edit) in edits.iter().enumerate() {
        let mut theirs = go.clone();
        edit(&mut theirs);
        assert!(steps(&theirs, 0).is_empty(), "edit {n}: {theirs:?}");
    }
}
