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

/// A template with all later fields, and one without any.
fn later(with: bool) -> Value {
    let mut container = json!({ "name": "c", "image": "i:1" });
    let mut interface = json!({ "network": { "name": "n" } });
    let mut runtime = json!({ "resources": { "instanceType": "t" } });
    if with {
        container["securityContext"] =
            json!({ "capabilities": { "drop": ["ALL"] }, "allowPrivilegeEscalation": false });
        interface["addresses"] = json!([{ "class": "public-ipv4" }]);
        interface["ipFamilies"] = json!(["IPv6", "IPv4"]);
        runtime["class"] = json!("fast");
    }
    runtime["sandbox"] = json!({ "containers": [container] });
    json!({ "runtime": runtime, "networkInterfaces": [interface] })
}

/// An earlier version of this operator did not know the later fields, and left them out of its hash. The Instances that it had
/// stamped must run on when it does.
#[test]
fn a_field_that_becomes_known_restarts_nothing_and_one_that_changes_does() {
    for (template, live, made_of, expected) in [
        (later(true), later(true), later(false), "stamp wd-0"),
        (later(true), later(true), later(true), "nothing"),
        (later(true), later(false), later(false), "delete wd-0"),
        (later(false), later(true), later(true), "delete wd-0"),
        (later(false), later(false), later(false), "nothing"),
    ] {
        let mut wd = deployment(1, "i:1");
        wd.spec.template.spec = serde_json::from_value(made_of).unwrap();
        let hash = template_hash(&wd.spec.template);
        wd.spec.template.spec = serde_json::from_value(template.clone()).unwrap();
        let mut object = (*instance(0, &hash, "ready")).clone();
        object.metadata.labels = wd.spec.template.metadata.as_ref().unwrap().labels.clone();
        let spec: InstanceSpec = serde_json::from_value(live.clone()).unwrap();
        object.spec = InstanceSpec { controller: object.spec.controller, ..spec };
        assert_eq!(act(&wd, &[object.clone().into()]), expected, "{template} {live}");
        if expected.starts_with("stamp") {
            object.metadata.labels = None;
            assert_eq!(act(&wd, &[object.into()]), "delete wd-0", "what is not as the template says is made anew");
        }
    }
}

/// Later definitions write the defaults of an interface down; that says nothing new.
#[test]
fn a_default_that_is_written_down_is_no_change() {
    let mut wd = deployment(1, "i:1");
    wd.spec.template.metadata = None;
    wd.spec.template.spec = serde_json::from_value(later(false)).unwrap();
    let mut written = later(false);
    written["networkInterfaces"][0] =
        json!({ "network": { "name": "n" }, "name": "eth0", "ipFamilies": ["IPv6"], "reclaimPolicy": "Delete" });
    let hash = template_hash(&wd.spec.template);
    let mut object = (*instance(0, &hash, "ready")).clone();
    for (template, live) in [(later(false), &written), (written.clone(), &later(false))] {
        wd.spec.template.spec = serde_json::from_value(template).unwrap();
        let spec: InstanceSpec = serde_json::from_value(live.clone()).unwrap();
        object.spec = InstanceSpec { controller: object.spec.controller, ..spec };
        let wanted = if template_hash(&wd.spec.template) == hash { "nothing" } else { "stamp wd-0" };
        assert_eq!(act(&wd, &[object.clone().into()]), wanted);
    }
}

#[test]
fn what_is_suspended_stands_still_and_goes_on() {
    let mut wd = deployment(2, "i:1");
    let hash = template_hash(&wd.spec.template);
    let at = |ordinal, hash: &str, state: &str| instance(ordinal, hash, state);
    let cases = [
        (vec![], "nothing", "create 0"),
        (vec![at(0, "j1-old", "waiting")], "nothing", "delete wd-0"),
        (vec![at(0, "j1-old", "ready"), at(1, "j1-old", "ready")], "nothing", "delete wd-1"),
        (vec![at(0, &hash, "ready"), at(1, &hash, "ready"), at(3, &hash, "ready")], "delete wd-3", "delete wd-3"),
        (vec![at(0, &hash, "waiting"), at(2, &hash, "going")], "nothing", "wait"),
    ];
    for (value, suspended) in [(Some("true"), true), (Some("false"), false), (None, false)] {
        wd.annotations_mut().remove(annotation::SUSPENDED);
        wd.annotations_mut().extend(value.map(|value| (annotation::SUSPENDED.to_owned(), value.to_owned())));
        for (instances, stopped, running) in &cases {
            let wanted = if suspended { stopped } else { running };
            assert_eq!(act(&wd, instances), *wanted, "{value:?}");
        }
        let status = writes(&wd, &[at(0, &hash, "ready")]);
        let Some(Op::Apply { body, .. }) =
            status.iter().map(|write| &write.op).find(|op| matches!(op, Op::Apply { status: true, .. }))
        else {
            panic!("{status:?}")
        };
        assert_eq!(body["status"]["suspended"] == true, suspended);
        let available =
            body["status"]["conditions"].as_array().unwrap().iter().find(|c| c["type"] == "Available").unwrap();
        assert_eq!(available["reason"] == "Suspended", suspended, "{available}");
    }
}
