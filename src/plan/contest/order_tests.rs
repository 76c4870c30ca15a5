//! The remaining steps of a plan with dependent steps.

use super::*;

#[test]
fn dependent_writes_wait_together() {
    let mut manager = Manager::new();
    let object = Object::named::<WorkloadDeployment>("ns-1", "web");
    let steps = |now| -> Vec<Step<Cell, Hub>> {
        vec![Step::Remote(Write::confirm_present(object.clone(), "u").into()), Step::Local(status("mine", now))]
    };
    for _ in 0..4 {
        let now = manager.now;
        assert_eq!(manager.reconcile(steps(now)).0, ["event", WRITTEN]);
    }
    let now = manager.now;
    let (left, next) = manager.reconcile(steps(now));
    assert_eq!((left, next), (vec!["event".to_owned()], Next::After(PAUSE / 64)), "only the Event");
}

#[test]
fn step_that_depends_on_a_write_waits_if_it_is_reverted_and_not_if_it_is_not_kept() {
    let steps = [Step::Local(status("mine", Timestamp::UNIX_EPOCH)), Step::<Cell, Hub>::Local(claim())];
    let marks = steps.map(|step| step.mark());
    for (what, trouble, rests, left) in [
        ("nothing waits", None, true, [true, true]),
        ("reverted", Some(Trouble::TakenBack), true, [false, false]),
        ("reverted, with an independent step", Some(Trouble::TakenBack), false, [false, true]),
        ("a field is not kept", Some(Trouble::NotKept(".spec.later".to_owned())), true, [false, true]),
    ] {
        assert_eq!(kept_steps(&marks, &[trouble, None], &[true, rests]), left, "{what}");
    }
}

#[test]
fn deployment_status_does_not_depend_on_its_copy() {
    let status = || Write::status("compute-operator-test", &json!({ "replicas": 1 }), &deployment()).unwrap();
    let steps: [Step<Project, Hub>; 3] = [Step::Local(labels()), Step::Remote(labels()), Step::Local(status())];
    assert_eq!(steps.map(|step| step.rests_on_others()), [true, true, false]);
}

fn labels<P>() -> Write<P> {
    let fields = json!({ "metadata": { "labels": { "a": "1" } } });
    Write::ensure_fields("compute-operator-test", fields, &deployment()).unwrap()
}

fn claim() -> Write<Cell> {
    Write::create("compute-operator-test", Object::named::<WorkloadDeployment>("ns-1", "claim"), json!({}))
}
