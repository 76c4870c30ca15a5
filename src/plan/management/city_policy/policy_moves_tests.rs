use super::*;

/// Found by reading; see [`guard::is_revoked`].
#[test]
fn what_is_under_way_stands_unless_it_is_a_move_that_was_called_off_before_it_began() {
    let dfw = dfw();
    let look = |policy: Option<&PropagationPolicy>, place: guard::Observed| {
        plan(&Observed { wanted: true, place: Some(place), guard: true, ..observed(&dfw, policy) }, NOW).steps
    };
    let from = "cell-dfw";
    let transfer = Some(guard::Transfer { from: from.into(), to: "cell-ord".into(), attempt: "1-0".into() });
    let moving = after(None, &look(None, guard::Observed { transfer: transfer.clone(), ..on(&[from]) })[0]);
    let under_way = |on: guard::Observed| guard::Observed { under_way: true, ..on };
    assert!(look(Some(&moving), under_way(guard::Observed { transfer, ..on(&[from]) })).is_empty());
    assert!(look(Some(&moving), under_way(on(&["cell-ord"]))).is_empty(), "it has moved");
    let back = look(Some(&moving), under_way(on(&[from])));
    let held = after(Some(&moving), &back[0]);
    let names = |policy: &PropagationPolicy| {
        let groups = policy.spec.placement.cluster_affinities.clone().unwrap();
        groups.into_iter().map(|term| (term.affinity_name, term.group.cluster_names)).collect::<Vec<_>>()
    };
    let kept = vec![from.to_owned()];
    assert_eq!(names(&held), [("city".to_owned(), kept.clone()), ("holding".to_owned(), kept)]);
    assert!(look(Some(&held), under_way(on(&["cell-ord"]))).is_empty(), "and that is not crossed");
}

#[test]
fn where_it_did_not_arrive_is_said_in_the_same_write_as_the_way_back_and_goes_by_itself() {
    let dfw = dfw();
    let look = |policy: &PropagationPolicy, place: Option<guard::Observed>| {
        plan(&Observed { wanted: true, place, guard: true, ..observed(&dfw, Some(policy)) }, NOW).steps
    };
    let held = after(
        None,
        &plan(&Observed { wanted: true, place: Some(on(&["b"])), guard: true, ..observed(&dfw, None) }, NOW).steps[0],
    );
    let back = guard::Transfer { from: "b".into(), to: "a".into(), attempt: "back-1-0".into() };
    let failed = |on: guard::Observed| guard::Observed { failed: Some(r#"{"b":{}}"#.into()), ..on };
    let moves = look(&held, Some(guard::Observed { transfer: Some(back.clone()), ..failed(on(&["b"])) }));
    assert_eq!(moves.len(), 1, "{moves:?}");
    let moving = after(Some(&held), &moves[0]);
    assert_eq!(guard::Transfer::of(&moving.spec.placement), Some(back));
    let said = |policy: &PropagationPolicy| policy.annotations().get(annotation::DRAIN_FAILED).cloned();
    assert_eq!(said(&moving).as_deref(), Some(r#"{"b":{}}"#));
    let there = after(Some(&moving), &look(&moving, Some(failed(on(&["a"]))))[0]);
    assert!(said(&there).is_some() && look(&there, Some(failed(on(&["a"])))).is_empty(), "it stays");
    assert!(look(&there, None).is_empty(), "nothing is known");
    let tried = look(&there, Some(on(&["a"])));
    let forgotten = after(Some(&there), &tried[0]);
    assert_eq!((tried.len(), said(&forgotten)), (1, None));
    assert_eq!(forgotten.spec, there.spec);
}

#[test]
fn without_a_guard_the_policy_has_one_spelling_until_another_is_seen_which_is_told_once() {
    let dfw = CityCode::parse("dfw").unwrap();
    let look = |policy: Option<&PropagationPolicy>, label: &str| {
        let mut place = on(&["cell-dfw"]);
        place.clusters.insert("cell-dfw".into(), ClusterFacts::labelled(label));
        let spellings = ["DFW".to_owned()].into();
        plan(&Observed { wanted: true, place: Some(place), spellings, ..observed(&dfw, policy) }, NOW).steps
    };
    let steps = look(None, "DFW");
    assert_eq!(steps.len(), 1, "one spelling is nothing to speak of: {steps:?}");
    let policy = after(None, &steps[0]);
    let selector =
        |policy: &PropagationPolicy| json!(policy.spec.placement.cluster_affinity.as_ref().unwrap().label_selector);
    assert_eq!(selector(&policy), json!({ "matchLabels": { label::TOPOLOGY_CITY: "DFW" } }));
    let respelt = look(Some(&policy), "dfw");
    assert_eq!(respelt.len(), 2, "the write, and that there are several: {respelt:?}");
    assert!(format!("{respelt:?}").contains("is spelt DFW, dfw by"), "{respelt:?}");
    let both = after(Some(&policy), &respelt[0]);
    assert!(look(Some(&both), "dfw").is_empty());
    let back = after(Some(&both), &look(Some(&both), "DFW")[0]);
    assert_eq!(selector(&back), selector(&policy));
}
