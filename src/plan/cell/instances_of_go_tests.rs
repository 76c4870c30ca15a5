//! What the Go operator left on a cell.

use super::*;

/// Found by reading: a condition of the Go operator's cell manager stayed on its deployment for ever.
#[test]
fn what_others_hold_of_the_status_is_taken_over_before_it_is_written() {
    let mut wd = deployment(0, "i");
    wd.metadata.managed_fields = Some(vec![k8s_openapi::apimachinery::pkg::apis::meta::v1::ManagedFieldsEntry {
        manager: Some("manager".into()),
        subresource: Some("status".into()),
        ..Default::default()
    }]);
    let steps = plan(&observed(&wd, &[]), NOW).steps;
    assert!(matches!(steps[0].op, Op::TakeOver { .. }) && steps[0].told().is_none(), "{steps:?}");
    assert!(matches!(steps[1].op, Op::Apply { status: true, .. }), "{steps:?}");
}

/// Found by reading: an Instance that the deployment controlled and that was none of its own stayed for ever, and counted.
#[test]
fn a_stray_goes_first_and_is_told() {
    let wd = deployment(2, "i:1");
    let hash = template_hash(&wd.spec.template);
    let named = |name: &str, state: &str| {
        let mut stray = (*instance(0, &hash, state)).clone();
        stray.metadata.name = Some(name.into());
        stray.metadata.uid = Some(name.into());
        Shared::from(stray)
    };
    let all = || vec![instance(0, &hash, "ready"), instance(1, &hash, "ready")];
    for (stray, wanted) in [
        (named("wd-extra", "ready"), "remove wd-extra"),
        (named("other-1", "ready"), "remove other-1"),
        (named("wd-01", "ready"), "remove wd-01"),
        (named("wd-extra", "going"), "nothing"),
    ] {
        for instances in [[all(), vec![stray.clone()]].concat(), [vec![stray.clone()], all()].concat()] {
            assert_eq!(act(&wd, &instances), wanted);
        }
    }
    assert_eq!(act(&wd, &[named("other-0", "ready")]), "create 1", "what alone has a number has a place");
    let steps = writes(&wd, &[all(), vec![named("wd-extra", "ready")]].concat());
    let [.., Write { op: Op::Delete { .. }, object, .. }, Write { op: Op::Create { body, .. }, .. }] = &steps[..]
    else {
        panic!("{steps:?}")
    };
    assert_eq!((&*object.name, &body["reason"]), ("wd-extra", &json!("StrayInstance")));
}

/// Found by reading: what the Go operator had dropped as empty, or written in its own form, made an Instance look outdated.
#[test]
fn an_instance_of_the_go_operators_is_stamped_where_its_template_means_the_same() {
    let container = |cpu: &str, more: Value| {
        let mut container = json!({ "name": "c", "image": "i:1", "resources": { "limits": { "cpu": cpu } } });
        container.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        json!({ "resources": { "instanceType": "t" }, "sandbox": { "containers": [container] } })
    };
    let written = container("1000m", json!({ "env": [{ "name": "DEBUG", "value": "" }], "args": [] }));
    for (of_go, expected) in [
        (container("1", json!({ "env": [{ "name": "DEBUG" }] })), "stamp wd-0"),
        (container("1", json!({ "env": [{ "name": "DEBUG", "value": "1" }] })), "delete wd-0"),
        (container("2", json!({ "env": [{ "name": "DEBUG" }] })), "delete wd-0"),
        (container("1", json!({})), "delete wd-0"),
    ] {
        let mut wd = deployment(1, "i:1");
        wd.spec.template.spec.runtime = serde_json::from_value(written.clone()).unwrap();
        wd.spec.template.metadata = None;
        let mut live = (*instance(0, "7f9c5d", "ready")).clone();
        live.spec.runtime = serde_json::from_value(of_go.clone()).unwrap();
        assert_eq!(act(&wd, &[live.into()]), expected, "{of_go}");
    }
}
