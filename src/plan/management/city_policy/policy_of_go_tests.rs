//! City policies of the Go operator without deployments.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;

use super::*;

/// If the last deployment was deleted before the operator had adopted the Go operator's policy, the policy and its claims stayed
/// forever.
#[test]
fn unneeded_policy_of_the_go_operator_is_deleted_and_a_namesake_kept() {
    let dfw = dfw();
    let mut go = of_go();
    go.metadata.creation_timestamp = Some(Time(NOW));
    let decided =
        |policy: &PropagationPolicy, claimed, now| plan(&Observed { claimed, ..observed(&dfw, Some(policy)) }, now);
    let grace = Timing::default().deletion_patience;
    let steps = |policy: &PropagationPolicy, claimed| decided(policy, claimed, NOW + grace).steps;
    let dropped = after(Some(&go), &decided(&go, 1, NOW).steps[0]);
    assert_eq!(Phase::of(&dropped.spec), Phase::Dependencies);
    for policy in [&go, &dropped] {
        let steps = steps(policy, 0);
        assert!(matches!(steps[..], [Write { op: Op::Delete { .. }, .. }]), "{policy:?}");
    }
    // The operator deleted a policy that was written shortly before its first deployment.
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
