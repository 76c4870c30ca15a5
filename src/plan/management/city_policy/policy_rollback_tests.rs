use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ManagedFieldsEntry, Time};

use super::*;

/// A companion that no policy claims blocked the rollback forever, without a report.
#[test]
fn rollback_that_waits_for_companions_is_reported_once() {
    let dfw = dfw();
    let new = Observed { wanted: true, propagation: Propagation::Selectors, ..observed(&dfw, None) };
    let mut both = after(None, &plan(&new, NOW).steps[0]);
    both.spec.propagate_deps = true;
    both.metadata.managed_fields = Some(vec![ManagedFieldsEntry { time: Some(Time(NOW)), ..Default::default() }]);
    let rollback_waits: Vec<String> = (0..7).map(|n| format!("Secret/db-{n}, which no policy claims")).collect();
    let look = |policy: &PropagationPolicy, after: Duration| {
        let seen =
            Observed { rollback_waits: rollback_waits.clone(), policy: Some(policy.clone().into()), ..new.clone() };
        let decided = plan(&seen, NOW + after);
        assert_eq!(format!("{:?}", plan(&recorded(&seen), NOW + after)), format!("{decided:?}"));
        // No event of a companion enqueues the policy.
        assert_eq!(decided.next, Next::After(Timing::default().poll));
        decided.steps
    };
    let patience = Timing::default().migration_step;
    assert!(look(&both, patience.saturating_sub(Duration::from_secs(1))).is_empty(), "Karmada still has time");
    let steps = look(&both, patience);
    let [record] = &steps[..] else { panic!("{steps:?}") };
    let told = format!("{:?}", record.told());
    assert!(
        told.contains("MigrationWaits") && told.contains("Secret/db-4, which no policy claims; and 2 more"),
        "{told}"
    );
    assert!(!told.contains("db-5"), "{told}");
    assert!(look(&after(Some(&both), record), patience * 2).is_empty());
}
