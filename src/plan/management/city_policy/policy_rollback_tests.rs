use super::*;

/// Found by reading: a companion that nobody claims kept the way back from going on for ever, and nothing said so.
#[test]
fn what_the_way_back_waits_for_is_told_once_where_it_lasts() {
    let dfw = dfw();
    let new = Observed { wanted: true, propagation: Propagation::Selectors, ..observed(&dfw, None) };
    let mut both = after(None, &plan(&new, NOW).steps[0]);
    both.spec.propagate_deps = true;
    let companions: Vec<String> = (0..7).map(|n| format!("Secret/db-{n}, which no policy claims")).collect();
    let others = |n: u32| format!("ns-{n}/city-dfw for Secret/tls, which no policy claims");
    let others = OthersWaiting { count: 499, first: (0..3).map(others).collect() };
    let patience = Timing::default().probe_timeout;
    let second = Duration::from_secs(1);
    // Whether it can go on it sees in memory: no companion's event calls it.
    let poll = Next::After(Timing::default().policy_poll);
    for (lasted, reported, steps, next) in [
        (Duration::ZERO, false, 0, poll),
        (patience.saturating_sub(second), false, 0, Next::After(second)),
        (patience, false, 1, poll),
        (patience + second, true, 0, poll),
    ] {
        let wait = Some(RollbackWait { companions: companions.clone(), lasted, reported, others: others.clone() });
        let propagation = Propagation::Selectors;
        let seen = Observed { wanted: true, propagation, rollback_wait: wait, ..observed(&dfw, Some(&both)) };
        let plan_now = plan(&seen, NOW);
        assert_eq!(format!("{:?}", plan(&recorded(&seen), NOW)), format!("{plan_now:?}"));
        assert_eq!((plan_now.steps.len(), plan_now.next), (steps, next), "{lasted:?}: {plan_now:?}");
        let signals = if steps == 1 { vec![Signal::RollbackWaits] } else { vec![] };
        assert_eq!(plan_now.signals, signals);
        if steps == 1 {
            let told = format!("{:?}", plan_now.steps);
            let says =
                told.contains("MigrationWaits") && told.contains("Secret/db-4, which no policy claims; and 2 more");
            assert!(says && !told.contains("db-5"), "{told}");
            let all =
                ["has waited at 500 of", "Waiting: ns-1/city-dfw for Secret/db-0", " | ns-2/city-dfw for Secret/tls"];
            assert!(all.iter().all(|part| told.contains(part)) && told.contains("| and 496 more policies"), "{told}");
        }
    }
}
