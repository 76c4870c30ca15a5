//! City policies that the Go operator has written and that nobody needs any more.

use super::*;

/// Seen once in many runs: the last deployment of a city left before its policy, as the Go operator had written it, was taken
/// over, and the policy stayed for ever with what it claimed.
#[test]
fn a_policy_of_go_that_nobody_needs_goes_and_one_that_has_but_its_name_stays() {
    let dfw = dfw();
    let go = of_go();
    let decided = |policy: &PropagationPolicy, claimed, unneeded_for| {
        plan(&Observed { claimed, unneeded_for, ..observed(&dfw, Some(policy)) }, NOW)
    };
    let grace = Timing::default().policy_claim_release;
    let steps = |policy: &PropagationPolicy, claimed| decided(policy, claimed, grace).steps;
    let dropped = after(Some(&go), &decided(&go, 1, Duration::ZERO).steps[0]);
    assert_eq!(Phase::of(&dropped.spec), Phase::Dependencies);
    for (policy, unneeded_for) in [(&go, grace), (&dropped, Duration::ZERO)] {
        let steps = decided(policy, 0, unneeded_for).steps;
        assert!(matches!(steps[..], [Write { op: Op::Delete { .. }, .. }]), "{policy:?}");
    }
    // Seen in the suites: one that was written a moment before its first deployment was taken away.
    let early = decided(&go, 0, grace / 4);
    assert!(early.steps.is_empty() && early.next == Next::After(grace / 4 * 3), "{early:?}");
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
