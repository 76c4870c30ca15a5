//! Objects that the Go operator left on a cell, suspended deployments, refused writes and undecodable objects.

use super::*;

/// A condition of the Go operator's cell manager stayed on its deployment.
#[test]
fn status_fields_of_other_managers_are_taken_over_first() {
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

/// A template label that marks copies made its Instances look like another owner's. Such a label is omitted. An Instance that was
/// made with it still matches the template.
#[test]
fn template_with_reserved_labels_does_not_pass_them_on() {
    let reserved =
        [label::UPSTREAM_CLUSTER, label::UPSTREAM_NAMESPACE, label::CELL_UID, label::WORKLOAD_UID, "work.karmada.io/x"];
    let mut wd = deployment(1, "i:1");
    let labels = wd.spec.template.metadata.as_mut().unwrap().labels.as_mut().unwrap();
    labels.extend(reserved.map(|key| (key.to_owned(), "theirs".to_owned())));
    let steps = plan(&observed(&wd, &[]), NOW).steps;
    let made = steps.iter().find(|write| write.makes::<Instance>()).unwrap();
    let Op::Create { body, .. } = &made.op else { panic!("{made:?}") };
    let labels = body["metadata"]["labels"].as_object().unwrap();
    assert_eq!((&labels["app"], &labels[label::WORKLOAD_UID]), (&json!("x"), &json!("w1")));
    assert!(labels.values().all(|value| value != "theirs"), "{labels:?}");

    let mut of_go = (*instance(0, "0123456789", "ready")).clone();
    of_go.spec = wd.spec.template.spec.clone();
    of_go.spec.controller = instance(0, "0123456789", "ready").spec.controller.clone();
    of_go.metadata.labels = Some([("app".to_owned(), "x".to_owned())].into());
    assert_eq!(act(&wd, &[of_go.into()]), "stamp wd-0");
}

/// An Instance that the deployment controlled and did not want stayed, and was counted.
#[test]
fn stray_instance_is_deleted_first_and_reported() {
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
    let [.., removal] = &steps[..] else { panic!("{steps:?}") };
    assert!(matches!(removal.op, Op::Delete { .. }), "{removal:?}");
    let told = removal.told().expect("the Event is sent only after the delete");
    let Op::Create { body, .. } = &told.op else { panic!("{told:?}") };
    assert_eq!((&*removal.object.name, &body["reason"]), ("wd-extra", &json!("StrayInstance")));
}

/// An Instance looked outdated if the Go operator had dropped empty fields or normalized quantities.
#[test]
fn instance_of_go_operator_with_equivalent_template_is_stamped() {
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

/// Returns a template with all later fields, or without them.
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

/// An earlier version of this operator did not know the later fields, and left them out of its hash. Instances with that hash
/// keep running if they have the fields. An Instance that lost the fields to an older CRD is recreated, because it does not run
/// the template.
#[test]
fn newly_known_field_restarts_only_instances_without_it() {
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
            assert_eq!(
                act(&wd, &[object.into()]),
                "delete wd-0",
                "an Instance that differs from its template is recreated"
            );
        }
    }
}

/// An earlier version of this operator hashed an empty instance type, and this version leaves it out.
#[test]
fn instance_without_type_is_stamped() {
    let of_earlier = "j1-ea30da7858997d23";
    for class in [None, Some("fast")] {
        let mut wd = deployment(1, "i:1");
        wd.spec.template.metadata = None;
        wd.spec.template.spec = serde_json::from_value(later(false)).unwrap();
        wd.spec.template.spec.runtime.resources.instance_type = String::new();
        wd.spec.template.spec.runtime.class = class.map(str::to_owned);
        let mut object = (*instance(0, of_earlier, "ready")).clone();
        object.spec = InstanceSpec { controller: object.spec.controller, ..wd.spec.template.spec.clone() };
        assert_eq!(act(&wd, &[object.into()]), "stamp wd-0", "{class:?}");
    }
}

/// Later CRDs store the defaults of an interface. Stored defaults are no change.
#[test]
fn stored_interface_default_is_no_template_change() {
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
fn suspended_deployment_creates_and_replaces_nothing() {
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

/// One undecodable Instance stopped every deployment of its namespace.
#[test]
fn undecodable_instance_blocks_only_its_own_ordinal() {
    let wd = deployment(2, "i:1");
    let hash = template_hash(&wd.spec.template);
    let with = |unreadable: &str, instances: &[Shared<Instance>]| {
        let unreadable = [unreadable.to_owned()].into();
        let observed = Observed { unreadable, ..observed(&wd, instances) };
        let status = deployment_status::plan(&observed, None, None, &hash, NOW).unwrap();
        let Op::Apply { body, .. } = status.op else { panic!() };
        (act_on(&observed), body["status"]["conditions"][1]["message"].as_str().unwrap().to_owned())
    };
    let (act, said) = with("wd-0", &[]);
    assert!(act == "wait" && said.contains("wd-0: the Instance of this name cannot be read"), "{act} {said}");
    assert_eq!(with("wd-1", &[]).0, "create 0");
    assert_eq!(with("wd-1", &[instance(0, &hash, "ready")]).0, "wait");
    assert_eq!(with("wd-5", &[instance(0, &hash, "ready")]).0, "create 1", "what is too many cannot be judged");
    assert_eq!(with("wd-0", &[instance(1, "j1-old", "ready")]).0, "wait", "nothing is deleted before it is known");
}

/// A refusal with new words at each attempt was written at each attempt.
#[test]
fn refusal_with_same_cause_is_written_once() {
    let mut wd = deployment(1, "i:1");
    let refused = |wd: &WorkloadDeployment, name: &str, words: &str| refused(&observed(wd, &[]), name, words, NOW);
    let Op::Apply { body, .. } = refused(&wd, "wd-0", "at 10:00 no").unwrap().op else { panic!() };
    wd.status = serde_json::from_value(body["status"].clone()).unwrap();
    assert!(refused(&wd, "wd-0", "at 10:01 no").is_none());
    assert!(refused(&wd, "wd-0", "at 9:59 no").is_none());
    // Another cause was never reported.
    for other in ["at 10:01 never", "exceeded quota", "at 10:00 no, and more", "at no"] {
        assert!(refused(&wd, "wd-0", other).is_some(), "another cause: {other}");
    }
    assert!(refused(&wd, "wd-1", "at 10:01 no").is_some(), "another one");
    wd.metadata.generation = Some(8);
    assert!(refused(&wd, "wd-0", "at 10:01 no").is_some(), "another template");
}

/// If the cell's API server refused an Instance, only a log line reported it.
#[test]
fn refused_instance_is_reported_until_it_is_created() {
    let mut wd = deployment(2, "i:1");
    let hash = template_hash(&wd.spec.template);
    let said = |status: &Value| -> Vec<String> {
        let of = |c: &Value| format!("{} {}", c["reason"].as_str().unwrap(), c["message"].as_str().unwrap());
        status["conditions"].as_array().unwrap().iter().map(of).collect()
    };
    let tell = |wd: &WorkloadDeployment| refused(&observed(wd, &[]), "wd-0", "exceeded quota: pods", NOW);
    let told = [tell(&wd).unwrap()];
    let expected = [
        "InstanceRefused wd-0: exceeded quota: pods",
        "InstanceRefused 0/2 replicas available: wd-0: exceeded quota: pods",
        "InstanceRefused wd-0: exceeded quota: pods",
    ];
    assert_eq!(said(status_in(&told)), expected);
    wd.status = serde_json::from_value(status_in(&told).clone()).unwrap();
    let again = writes(&wd, &[]);
    assert!(matches!(&again[..], [Write { op: Op::Create { .. }, .. }]), "only the create is repeated: {again:?}");
    assert!(tell(&wd).is_none(), "the same refusal is not written again");
    let made = writes(&wd, &[instance(0, &hash, "waiting")]);
    assert!(said(status_in(&made)).iter().all(|said| !said.contains("exceeded")), "{made:?}");
}
