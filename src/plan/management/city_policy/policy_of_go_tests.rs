//! City policies that the Go operator has written and that nobody needs any more.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;

use super::*;

/// Seen once in many runs: the last deployment of a city left before its policy, as the Go operator had written it, was taken
/// over, and the policy stayed for ever with what it claimed.
#[test]
fn unneeded_policy_of_the_go_operator_is_deleted_and_a_namesake_kept() {
    let dfw = dfw();
    let mut go = of_go();
    go.metadata.creation_timestamp = Some(Time(NOW));
    let decided =
        |policy: &PropagationPolicy, claimed, now| plan(&Observed { claimed, ..observed(&dfw, Some(policy)) }, now);
    let grace = Timing::default().policy_claim_release;
    let steps = |policy: &PropagationPolicy, claimed| decided(policy, claimed, NOW + grace).steps;
    let dropped = after(Some(&go), &decided(&go, 1, NOW).steps[0]);
    assert_eq!(Phase::of(&dropped.spec), Phase::Dependencies);
    for policy in [&go, &dropped] {
        let steps = steps(policy, 0);
        assert!(matches!(steps[..], [Write { op: Op::Delete { .. }, .. }]), "{policy:?}");
    }
    // One that was written a moment before its first deployment was taken away.
    let early = decided(&go, 0, NOW + grace / 4);
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
